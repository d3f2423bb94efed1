/*
 * A library that plays a guest who has taken over a process of the host: preloaded into the host,
 * it wakes in each process that has just given up its system calls, and makes the calls that a test
 * tells it to.
 *
 * It connects to the socket that WEIR_TAKEOVER names and says the process's name and number. Then
 * it reads lines "TIMES CALL ARGUMENT ..", makes the call so many times, or until it fails, and
 * answers "RESULT ERRNO TIMES MEMORY ..". An argument is a number, or "=" and bytes in hex: then
 * the call gets their address, and the answer has them as they are afterwards.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#define ARGS_MAX   6
#define BYTES_MAX  4096
#define LINE_BYTES (ARGS_MAX * (2 * BYTES_MAX + 2) + 64)

static const struct {
    const char *name;
    long number;
} calls[] = {
    {"clone", __NR_clone},
    {"clone3", __NR_clone3},
    {"dup3", __NR_dup3},
    {"fcntl", __NR_fcntl},
    {"ftruncate", __NR_ftruncate},
    {"ioctl", __NR_ioctl},
    {"ioprio_set", __NR_ioprio_set},
    {"kill", __NR_kill},
    {"mq_open", __NR_mq_open},
    {"openat", __NR_openat},
    {"pidfd_open", __NR_pidfd_open},
    {"pidfd_send_signal", __NR_pidfd_send_signal},
    {"pipe2", __NR_pipe2},
    {"prctl", __NR_prctl},
    {"prlimit64", __NR_prlimit64},
    {"rt_sigqueueinfo", __NR_rt_sigqueueinfo},
    {"sched_setaffinity", __NR_sched_setaffinity},
    {"sched_setattr", __NR_sched_setattr},
    {"sched_setscheduler", __NR_sched_setscheduler},
    {"setpgid", __NR_setpgid},
    {"setpriority", __NR_setpriority},
    {"setsid", __NR_setsid},
    {"shmget", __NR_shmget},
    {"shutdown", __NR_shutdown},
    {"socketpair", __NR_socketpair},
    {"tgkill", __NR_tgkill},
    {"tkill", __NR_tkill},
    {"write", __NR_write},
#ifdef __NR_fork
    {"fork", __NR_fork},
#endif
};

static long (*real_syscall)(long number, ...);
static __thread struct {
    long value[ARGS_MAX];
    unsigned char memory[ARGS_MAX][BYTES_MAX];
    size_t bytes[ARGS_MAX]; /* of memory; 0: it is a number */
} args;

static long number_of(const char *name)
{
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        if (strcmp(calls[i].name, name) == 0) {
            return calls[i].number;
        }
    }
    return -1;
}

static void parse(int i, const char *word)
{
    args.bytes[i] = 0;
    if (*word != '=') {
        args.value[i] = strtol(word, NULL, 0);
        return;
    }
    for (word++; args.bytes[i] < BYTES_MAX && word[0] != 0 && word[1] != 0; word += 2) {
        unsigned byte = 0;

        (void)sscanf(word, "%2x", &byte);
        args.memory[i][args.bytes[i]++] = (unsigned char)byte;
    }
    args.value[i] = (long)args.memory[i];
}

/* A child that a call has made does nothing more. */
static void stay_if_child(pid_t self)
{
    while (real_syscall(__NR_getpid) != self) {
        pause();
    }
}

static void answer(FILE *out, char *line)
{
    char *rest = NULL, *times = strtok_r(line, " \n", &rest), *name = strtok_r(NULL, " \n", &rest);
    long count = times ? atol(times) : 0, result = -1, done = 0;
    long number = name ? number_of(name) : -1;
    pid_t self = getpid();
    int n = 0;

    memset(args.value, 0, sizeof args.value);
    for (char *word; n < ARGS_MAX && (word = strtok_r(NULL, " \n", &rest)); n++) {
        parse(n, word);
    }
    errno = ENOSYS;
    while (done < count && number >= 0) {
        result = real_syscall(number, args.value[0], args.value[1], args.value[2], args.value[3],
                              args.value[4], args.value[5]);
        stay_if_child(self);
        done += result >= 0;
        if (result < 0) {
            break;
        }
    }
    fprintf(out, "%ld %d %ld", result, result < 0 ? errno : 0, done);
    for (int i = 0; i < n; i++) {
        for (size_t k = 0; k < args.bytes[i]; k++) {
            fprintf(out, "%s%02x", k == 0 ? " " : "", args.memory[i][k]);
        }
    }
    fputc('\n', out);
    fflush(out);
}

static void *attack(void *user)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char *line = malloc(LINE_BYTES), name[16] = "";
    FILE *file;

    (void)user;
    snprintf(address.sun_path, sizeof address.sun_path, "%s", getenv("WEIR_TAKEOVER"));
    if (fd < 0 || !line || connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        return NULL;
    }
    file = fdopen(fd, "r+");
    (void)prctl(PR_GET_NAME, name);
    fprintf(file, "%s %d\n", name, (int)getpid());
    fflush(file);
    while (fgets(line, LINE_BYTES, file)) {
        answer(file, line);
    }
    return NULL;
}

/* The host asks for its filter by this function of the C library. */
long syscall(long number, ...)
{
    long a[ARGS_MAX], result;
    pthread_t thread;
    va_list list;

    if (!real_syscall) {
        *(void **)&real_syscall = dlsym(RTLD_NEXT, "syscall");
    }
    va_start(list, number);
    for (int i = 0; i < ARGS_MAX; i++) {
        a[i] = va_arg(list, long);
    }
    va_end(list);
    result = real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    if (number == __NR_seccomp && result == 0 && getenv("WEIR_TAKEOVER") &&
        pthread_create(&thread, NULL, attack, NULL) == 0) {
        pthread_detach(thread);
        errno = 0;
    }
    return result;
}
