/*
 * What confined processes may do: each test confines a child, has it try, and looks at what the
 * kernel said. Beside it another child tries the same without the filter, so that a call which
 * would fail with EPERM anyway proves nothing. What they can do to others: test_confine_others.c.
 */
#include "host_backend/confine/confine.h"

#include "../lib/tl_cmocka.h"
#include "confine_fixture.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

struct call {
    const char *name;
    long number;
};

/* All of the list, and what is refused beside it. With arguments of -1 each fails by itself. */
static const struct call calls[] = {
#define WEIR_REFUSED(name) {#name, __NR_##name},
#include "host_backend/confine/refused.def"
#undef WEIR_REFUSED
    {"execve", __NR_execve},
    {"execveat", __NR_execveat},
    {"kill", __NR_kill},
    {"tgkill", __NR_tgkill},
    {"rt_sigqueueinfo", __NR_rt_sigqueueinfo},
    {"rt_tgsigqueueinfo", __NR_rt_tgsigqueueinfo},
    {"prlimit64", __NR_prlimit64},
    {"setpgid", __NR_setpgid},
    {"setsid", __NR_setsid},
    {"fcntl", __NR_fcntl},
    {"socketpair", __NR_socketpair},
    {"sched_setaffinity", __NR_sched_setaffinity},
    {"sched_setscheduler", __NR_sched_setscheduler},
    {"sched_setparam", __NR_sched_setparam},
    {"sched_setattr", __NR_sched_setattr},
    {"setpriority", __NR_setpriority},
    {"ioprio_set", __NR_ioprio_set},
    {"migrate_pages", __NR_migrate_pages},
    {"move_pages", __NR_move_pages},
};
#define N_CALLS (sizeof calls / sizeof calls[0])

/* What a worker must never be able to do, whatever becomes of the list. */
static const char *const wanted[] = {
#ifndef __SANITIZE_ADDRESS__
    "ptrace",
#endif
    "execve",
    "mount",
    "bpf",
    "keyctl",
    "kexec_load",
    "init_module",
    "finit_module",
    "reboot",
    "userfaultfd",
    "perf_event_open",
    "process_vm_readv",
    "setns",
    "unshare",
    "io_uring_setup",
    "process_vm_writev",
    "pidfd_getfd",
    "open_by_handle_at",
};

#define TOLD_MIN 10 /* calls that fail for an ordinary user with something else than EPERM */

/* Written by children. */
static struct {
    int why[N_CALLS]; /* errno */
    int value;
    char text[4096];
} * said;

static void try_all(void)
{
    for (size_t i = 0; i < N_CALLS; i++) {
        errno = 0;
        said->why[i] = syscall(calls[i].number, -1, -1, -1, -1, -1, -1) < 0 ? errno : 0;
    }
}

static void try_all_confined(void)
{
    confine(WEIR_CONFINE_KEEPS_NONE);
    try_all();
}

static void refuse_calls_gives_eperm_for_each(void **state)
{
    int before[N_CALLS];
    unsigned n_told = 0;

    (void)state;
    run(try_all);
    memcpy(before, said->why, sizeof before);
    run(try_all_confined);
    for (size_t i = 0; i < N_CALLS; i++) {
        if (said->why[i] != EPERM) {
            fail_msg("%s: %s", calls[i].name, strerror(said->why[i]));
        }
        n_told += before[i] != EPERM;
    }
    assert_true(n_told >= TOLD_MIN);
}

static void refuse_calls_has_what_no_worker_may_do(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        bool there = false;

        for (size_t k = 0; k < N_CALLS && !there; k++) {
            there = strcmp(calls[k].name, wanted[i]) == 0;
        }
        if (!there) {
            fail_msg("%s", wanted[i]);
        }
    }
}

/* ---------------------------------------------------------------- what stays */

static void *thread_main(void *argument)
{
    const struct sched_param usual = {0};

    *(int *)argument = pthread_setschedparam(pthread_self(), SCHED_OTHER, &usual) == 0;
    return NULL;
}

static bool can_start_a_thread(void)
{
    pthread_t thread;
    int ran = 0;

    return pthread_create(&thread, NULL, thread_main, &ran) == 0 &&
           pthread_join(thread, NULL) == 0 && ran == 1;
}

static bool can_share_memory(void)
{
    int fd = memfd_create("test", MFD_CLOEXEC);

    return fd >= 0 && ftruncate(fd, 4096) == 0 &&
           mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) != MAP_FAILED;
}

static bool can_arrange_itself(void)
{
    cpu_set_t cpus;

    return sched_getaffinity(0, sizeof cpus, &cpus) == 0 &&
           sched_setaffinity(0, sizeof cpus, &cpus) == 0 &&
           pthread_setaffinity_np(pthread_self(), sizeof cpus, &cpus) == 0 &&
           setpriority(PRIO_PROCESS, 0, 1) == 0 && prctl(PR_SET_NAME, "test") == 0;
}

static bool can_use_descriptors(void)
{
    struct flock lock = {.l_type = F_WRLCK};
    int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING), pipes[2], pair[2];

    return fcntl(fd, F_SETLK, &lock) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0 &&
           fcntl(fd, F_DUPFD_CLOEXEC, 20) >= 20 && pipe(pipes) == 0 &&
           fcntl(pipes[0], F_SETFL, O_NONBLOCK) == 0 &&
           fcntl(pipes[1], F_SETPIPE_SZ, 4096) >= 4096 &&
           socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0;
}

static bool can_signal_itself(void)
{
    struct rlimit limit;

    signal(SIGUSR1, SIG_IGN);
    return kill(getpid(), SIGUSR1) == 0 && raise(SIGUSR1) == 0 &&
           getrlimit(RLIMIT_NOFILE, &limit) == 0;
}

static bool can_reach_a_driver(void)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    int result = ioctl(null, 0, 0);

    return null >= 0 && result < 0 && errno != EPERM && socket(AF_UNIX, SOCK_STREAM, 0) >= 0 &&
           eventfd(0, EFD_CLOEXEC) >= 0;
}

static void count_what_stays(void)
{
    confine(WEIR_CONFINE_KEEPS_NONE);
    said->value = can_start_a_thread() + can_share_memory() * 2 + can_arrange_itself() * 4 +
                  can_signal_itself() * 8 + can_reach_a_driver() * 16 + can_use_descriptors() * 32;
}

static void refuse_calls_leaves_what_a_driver_needs(void **state)
{
    (void)state;
    run(count_what_stays);
    assert_int_equal(said->value, 63);
}

/* ---------------------------------------------------------------- arguments */

static int why_no_socket(int family)
{
    return socket(family, SOCK_STREAM, 0) >= 0 ? 0 : errno;
}

static void try_sockets(void)
{
    said->why[0] = why_no_socket(AF_INET);
    said->why[1] = why_no_socket(AF_INET6);
    said->why[2] = why_no_socket(AF_PACKET);
}

static void try_sockets_confined(void)
{
    confine(WEIR_CONFINE_KEEPS_NONE);
    try_sockets();
}

static void try_sockets_with_inet(void)
{
    confine(WEIR_CONFINE_KEEPS_INET);
    try_sockets();
}

static void refuse_calls_refuses_the_network_unless_it_is_served(void **state)
{
    (void)state;
    run(try_sockets);
    assert_int_not_equal(said->why[0], EPERM);
    run(try_sockets_confined);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(said->why[i], EPERM);
    }
    run(try_sockets_with_inet);
    assert_int_not_equal(said->why[0], EPERM);
    assert_int_not_equal(said->why[1], EPERM);
    assert_int_equal(said->why[2], EPERM);
}

/* A namespace of users is an ordinary user's right on most machines. */
static long try_clone(unsigned long flags)
{
    long pid = syscall(__NR_clone, flags, 0, 0, 0, 0);

    if (pid == 0) {
        _exit(0);
    }
    return pid < 0 ? errno : 0;
}

static void try_processes(void)
{
    pid_t pid = fork();

    if (pid == 0) {
        _exit(0);
    }
    said->why[0] = pid < 0 ? errno : 0;
    said->why[1] = (int)try_clone(SIGCHLD);
    said->why[2] = (int)try_clone(CLONE_PARENT | SIGCHLD);
    said->why[3] = (int)try_clone(CLONE_PARENT | CLONE_FS);
    said->value = can_start_a_thread();
}

static void try_processes_confined(void)
{
    confine(WEIR_CONFINE_KEEPS_NONE);
    try_processes();
}

static void try_processes_as_helper(void)
{
    confine(WEIR_CONFINE_KEEPS_EXEC);
    try_processes();
}

static void refuse_calls_leaves_threads_and_no_processes(void **state)
{
    (void)state;
    run(try_processes);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(said->why[i], 0);
    }
    for (int i = 2; i < 4; i++) { /* are this process's children */
        assert_true(waitpid(-1, NULL, __WALL) > 0);
    }
    run(try_processes_as_helper);
    assert_int_equal(said->why[0], 0);
    assert_int_equal(said->why[1], 0);
    assert_int_equal(said->why[2], EPERM);
    assert_int_equal(said->why[3], EPERM);
    run(try_processes_confined);
#ifndef __SANITIZE_ADDRESS__ /* such a build's leak checker makes a process */
    assert_int_equal(said->why[0], EPERM);
    assert_int_equal(said->why[1], EPERM);
#endif
    assert_int_equal(said->why[2], EPERM);
    assert_int_equal(said->why[3], EPERM);
    assert_int_equal(said->value, 1);
    assert_int_equal(waitpid(-1, NULL, __WALL), -1);
}

static void try_namespaces(void)
{
    confine(WEIR_CONFINE_KEEPS_NONE);
    said->why[0] = syscall(__NR_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0) < 0 ? errno : 0;
    said->why[1] = syscall(__NR_clone, CLONE_NEWNS | SIGCHLD, 0, 0, 0, 0) < 0 ? errno : 0;
    said->why[2] = syscall(__NR_clone3, NULL, 0) < 0 ? errno : 0;
#ifdef __x86_64__
    said->why[3] = syscall(__NR_getpid | 0x40000000) < 0 ? errno : 0;
#else
    said->why[3] = EPERM;
#endif
}

static void refuse_calls_refuses_namespaces_and_other_numbers(void **state)
{
    (void)state;
    run(try_namespaces);
    assert_int_equal(said->why[0], EPERM);
    assert_int_equal(said->why[1], EPERM);
    assert_int_equal(said->why[2], ENOSYS);
    assert_int_equal(said->why[3], EPERM);
}

static void execute_true(void)
{
    confine(WEIR_CONFINE_KEEPS_EXEC);
    execl("/bin/true", "true", (char *)NULL);
    _exit(4);
}

static void refuse_calls_keeps_programs_for_a_helper(void **state)
{
    (void)state;
    run(execute_true);
}

/* ---------------------------------------------------------------- privileges and users */

static void read_status(void)
{
    int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, said->text, sizeof said->text - 1) : 0;

    said->text[n > 0 ? n : 0] = 0;
}

static void has_line(const char *name, const char *value)
{
    char line[128];

    snprintf(line, sizeof line, "\n%s:\t%s\n", name, value);
    if (!strstr(said->text, line)) {
        fail_msg("no \"%s: %s\" in %s", name, value, said->text);
    }
}

static const char none[] = "0000000000000000";

static void become_nobody(void)
{
    struct weir_confine_user user;
    struct rlimit core;

    if (weir_confine_user_find("nobody", &user) != WEIR_OK) {
        _exit(3);
    }
    weir_confine_drop_bounding();
    if (!weir_confine_become(&user) || !weir_confine_drop_privileges() ||
        weir_confine_refuse_calls(WEIR_CONFINE_KEEPS_NONE) != WEIR_OK) {
        _exit(4);
    }
    said->value = getrlimit(RLIMIT_CORE, &core) == 0 && core.rlim_max == 0 &&
                  prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) == 0 && strcmp(getenv("USER"), "nobody") == 0;
    read_status();
}

static void become_and_drop_leave_nothing(void **state)
{
    const struct passwd *nobody = getpwnam("nobody");
    char ids[64];

    (void)state;
    if (geteuid() != 0 || !nobody) {
        skip();
    }
    run(become_nobody);
    snprintf(ids, sizeof ids, "%u\t%u\t%u\t%u", nobody->pw_uid, nobody->pw_uid, nobody->pw_uid,
             nobody->pw_uid);
    has_line("Uid", ids);
    snprintf(ids, sizeof ids, "%u\t%u\t%u\t%u", nobody->pw_gid, nobody->pw_gid, nobody->pw_gid,
             nobody->pw_gid);
    has_line("Gid", ids);
    has_line("CapBnd", none);
    has_line("CapPrm", none);
    has_line("CapInh", none);
    has_line("CapAmb", none);
    has_line("NoNewPrivs", "1");
    has_line("Seccomp", "2");
    assert_int_equal(said->value, 1);
}

static void drop_alone(void)
{
    weir_confine_drop_bounding();
    if (!weir_confine_drop_privileges()) {
        _exit(4);
    }
    read_status();
}

static void drop_privileges_without_another_user(void **state)
{
    (void)state;
    run(drop_alone);
    has_line("CapPrm", none);
    has_line("CapEff", none);
    has_line("NoNewPrivs", "1");
    if (geteuid() == 0) {
        has_line("CapBnd", none);
    }
}

static void user_find_knows_whom_it_can_start(void **state)
{
    struct weir_confine_user user;
    char own[24];

    (void)state;
    snprintf(own, sizeof own, "%u", geteuid());
    if (getpwuid(geteuid())) {
        assert_int_equal(weir_confine_user_find(own, &user), WEIR_OK);
        assert_false(user.is_other);
        assert_true(weir_confine_user_may_open(&user, "/nowhere"));
    }
    assert_int_equal(weir_confine_user_find("no-such-user", &user), WEIR_ERR_NOT_FOUND);
    if (geteuid() != 0) {
        assert_int_equal(weir_confine_user_find("root", &user), WEIR_ERR_DENIED);
        return;
    }
    if (!getpwnam("nobody")) {
        return;
    }
    assert_int_equal(weir_confine_user_find("nobody", &user), WEIR_OK);
    assert_true(user.is_other);
    assert_string_equal(user.name, "nobody");
}

static void may_open_looks_at_owner_group_and_mode(void **state)
{
    static const struct {
        mode_t mode;
        uid_t uid;
        gid_t gid;
        bool may;
    } cases[] = {{0600, 1001, 0, true}, {0066, 1001, 0, false}, {0660, 0, 1002, true},
                 {0660, 0, 1003, true}, {0660, 0, 1004, false}, {0606, 0, 1002, false},
                 {0666, 0, 0, true},    {0664, 0, 0, false}};
    const struct weir_confine_user user = {
        .is_other = true, .uid = 1001, .gid = 1002, .groups = {1003}, .n_groups = 1};
    char path[] = "/tmp/weir-confine-XXXXXX";
    int fd = mkstemp(path);

    (void)state;
    assert_true(fd >= 0);
    assert_false(weir_confine_user_may_open(&user, "/nowhere"));
    for (size_t i = 0; geteuid() == 0 && i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(fchown(fd, cases[i].uid, cases[i].gid), 0);
        assert_int_equal(fchmod(fd, cases[i].mode), 0);
        if (weir_confine_user_may_open(&user, path) != cases[i].may) {
            fail_msg("%zu", i);
        }
    }
    close(fd);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuse_calls_gives_eperm_for_each),
        cmocka_unit_test(refuse_calls_has_what_no_worker_may_do),
        cmocka_unit_test(refuse_calls_leaves_what_a_driver_needs),
        cmocka_unit_test(refuse_calls_refuses_the_network_unless_it_is_served),
        cmocka_unit_test(refuse_calls_refuses_namespaces_and_other_numbers),
        cmocka_unit_test(refuse_calls_leaves_threads_and_no_processes),
        cmocka_unit_test(refuse_calls_keeps_programs_for_a_helper),
        cmocka_unit_test(become_and_drop_leave_nothing),
        cmocka_unit_test(drop_privileges_without_another_user),
        cmocka_unit_test(user_find_knows_whom_it_can_start),
        cmocka_unit_test(may_open_looks_at_owner_group_and_mode),
    };

    said = mmap(NULL, sizeof *said, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return said != MAP_FAILED ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
}
