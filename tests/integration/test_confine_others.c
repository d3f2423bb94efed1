/*
 * What a confined process can do to another one: whether a signal arrives there, and whether it is
 * scheduled as before. Each way is tried without the filter, too: one that would not work anyway
 * proves nothing.
 */
#include "host_backend/confine/confine.h"

#include "../lib/tl_cmocka.h"
#include "confine_fixture.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Written by children. */
static struct {
    int why[5]; /* errno */
} * said;

static pid_t other; /* a process of the same user, leader of a session with a terminal */
static int terminal = -1, terminal_end = -1;

/* All signals stay pending, so that whatever arrives can be seen. */
static _Noreturn void be_the_other(int ready_fd)
{
    sigset_t all;
    int fd;

    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* also when a check below fails */
    (void)setsid();
    fd = open(ptsname(terminal), O_RDWR);
    (void)!write(ready_fd, fd >= 0 ? "y" : "n", 1);
    while (true) {
        pause();
    }
}

static void other_begins(void)
{
    int ready[2];
    char said_so = 0;

    terminal = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    assert_true(terminal >= 0);
    assert_int_equal(grantpt(terminal), 0);
    assert_int_equal(unlockpt(terminal), 0);
    assert_int_equal(pipe(ready), 0);
    other = fork();
    if (other == 0) {
        be_the_other(ready[1]);
    }
    assert_int_equal(read(ready[0], &said_so, 1), 1);
    assert_int_equal(said_so, 'y');
    close(ready[0]);
    close(ready[1]);
    terminal_end = open(ptsname(terminal), O_RDWR | O_NOCTTY | O_CLOEXEC);
    assert_true(terminal_end >= 0);
}

static void other_ends(void)
{
    assert_int_equal(kill(other, SIGKILL), 0);
    assert_int_equal(waitpid(other, NULL, 0), other);
    close(terminal);
    close(terminal_end);
}

/* Does it have a signal, or has one killed or stopped it? */
static bool other_has_a_signal(void)
{
    char path[40], line[128];
    unsigned long long bits, all = 0;
    FILE *file;

    snprintf(path, sizeof path, "/proc/%d/status", (int)other);
    file = fopen(path, "re");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "SigPnd: %llx", &bits) == 1 || sscanf(line, "ShdPnd: %llx", &bits) == 1) {
            all |= bits;
        }
        all |= strncmp(line, "State:\t", 7) == 0 && strchr("TZX", line[7]);
    }
    (void)fclose(file);
    return all != 0;
}

static void by_kill(void)
{
    (void)kill(other, SIGUSR1);
}

static void by_kill_of_its_group(void)
{
    (void)kill(-other, SIGUSR1);
}

static void by_tgkill(void)
{
    (void)syscall(__NR_tgkill, other, other, SIGUSR1);
}

static void by_tkill(void)
{
    (void)syscall(__NR_tkill, other, SIGUSR1);
}

static void by_sigqueue(void)
{
    (void)sigqueue(other, SIGUSR1, (union sigval){.sival_int = 0});
}

static void by_tgsigqueue(void)
{
    siginfo_t info = {.si_code = SI_QUEUE};

    (void)syscall(__NR_rt_tgsigqueueinfo, other, other, SIGUSR1, &info);
}

static void by_pidfd(void)
{
    int fd = (int)syscall(__NR_pidfd_open, other, 0);

    (void)syscall(__NR_pidfd_send_signal, fd, SIGUSR1, NULL, 0);
}

/* Something comes to read there. */
static void happen(int write_fd)
{
    (void)!write(write_fd, "\n", 1); /* a terminal waits for a whole line */
}

static void own_pipe(int command, long owner, int signal_number)
{
    int ends[2];

    if (pipe(ends) == 0 && fcntl(ends[0], command, owner) == 0 &&
        (signal_number == 0 || fcntl(ends[0], F_SETSIG, signal_number) == 0) &&
        fcntl(ends[0], F_SETFL, O_ASYNC) == 0) {
        happen(ends[1]);
    }
}

static void by_owner(void)
{
    own_pipe(F_SETOWN, other, 0);
}

static void by_owner_and_number(void)
{
    own_pipe(F_SETOWN, other, SIGSTOP);
}

static void by_owning_group(void)
{
    own_pipe(F_SETOWN, -other, 0);
}

static void by_owner_ex(void)
{
    struct f_owner_ex owner = {F_OWNER_PID, other};

    own_pipe(F_SETOWN_EX, (long)&owner, 0);
}

static void own_socket(unsigned long request)
{
    int pair[2], on = 1;

    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 && ioctl(pair[0], request, &other) == 0 &&
        ioctl(pair[0], FIOASYNC, &on) == 0) {
        happen(pair[1]);
    }
}

static void by_owner_of_socket(void)
{
    own_socket(FIOSETOWN);
}

static void by_group_of_socket(void)
{
    own_socket(SIOCSPGRP);
}

/* The kernel passes a line on a little later; it signals the owner before it wakes who waits. */
static void happen_there(void)
{
    struct pollfd line = {terminal_end, POLLIN, 0};

    happen(terminal);
    (void)poll(&line, 1, -1);
}

/* The group in front of the terminal owns it. */
static void by_terminal_flag(void)
{
    if (fcntl(terminal_end, F_SETFL, O_ASYNC) == 0) {
        happen_there();
    }
}

static void by_terminal_request(void)
{
    int on = 1;

    if (ioctl(terminal_end, FIOASYNC, &on) == 0) {
        happen_there();
    }
}

static void by_terminal_signal(void)
{
    (void)ioctl(terminal, TIOCSIG, SIGINT);
}

static const struct {
    const char *name;
    void (*send)(void);
} ways[] = {
    {"kill", by_kill},
    {"kill of its group", by_kill_of_its_group},
    {"tgkill", by_tgkill},
    {"tkill", by_tkill},
    {"sigqueue", by_sigqueue},
    {"tgsigqueue", by_tgsigqueue},
    {"pidfd", by_pidfd},
    {"F_SETOWN", by_owner},
    {"F_SETOWN, F_SETSIG", by_owner_and_number},
    {"F_SETOWN of its group", by_owning_group},
    {"F_SETOWN_EX", by_owner_ex},
    {"FIOSETOWN", by_owner_of_socket},
    {"SIOCSPGRP", by_group_of_socket},
    {"F_SETFL on its terminal", by_terminal_flag},
    {"FIOASYNC on its terminal", by_terminal_request},
    {"TIOCSIG", by_terminal_signal},
};
static void (*way)(void);

static void send_confined(void)
{
    confine(WEIR_CONFINE_KEEPS_NONE);
    way();
}

static void send_as_ptxas(void)
{
    confine(WEIR_CONFINE_KEEPS_EXEC);
    way();
}

static void refuse_calls_lets_no_signal_reach_another_process(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        way = ways[i].send;
        other_begins();
        run(send_confined);
        run(send_as_ptxas);
        if (other_has_a_signal()) {
            fail_msg("%s", ways[i].name);
        }
        run(way);
        if (!other_has_a_signal()) {
            fail_msg("%s: it would not have been one anyway", ways[i].name);
        }
        other_ends();
    }
}

/* How a process is scheduled. */
struct schedule {
    cpu_set_t cpus;
    int nice, policy, io;
};

#define IO_BY_PROCESS 1 /* IOPRIO_WHO_PROCESS */
#define IO_BY_GROUP   2
#define IO_IDLE       (3 << 13)

static struct schedule schedule_of_other(void)
{
    struct schedule s;

    memset(&s, 0, sizeof s);
    assert_int_equal(sched_getaffinity(other, sizeof s.cpus, &s.cpus), 0);
    s.nice = getpriority(PRIO_PROCESS, (id_t)other);
    s.policy = sched_getscheduler(other);
    s.io = (int)syscall(__NR_ioprio_get, IO_BY_PROCESS, other);
    return s;
}

static void by_affinity(void)
{
    cpu_set_t last = schedule_of_other().cpus;

    for (int cpu = 0; CPU_COUNT(&last) > 1; cpu++) {
        CPU_CLR(cpu, &last);
    }
    (void)sched_setaffinity(other, sizeof last, &last);
}

static void by_nice(void)
{
    (void)setpriority(PRIO_PROCESS, (id_t)other, schedule_of_other().nice + 1);
}

static void by_nice_of_its_group(void)
{
    (void)setpriority(PRIO_PGRP, (id_t)other, schedule_of_other().nice + 1);
}

static void by_policy(void)
{
    const struct sched_param none = {0};

    (void)sched_setscheduler(other, SCHED_IDLE, &none);
}

static void by_attributes(void)
{
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
    } batch = {.size = 48, .policy = SCHED_BATCH, .nice = schedule_of_other().nice};

    (void)syscall(__NR_sched_setattr, other, &batch, 0);
}

static void by_io(void)
{
    (void)syscall(__NR_ioprio_set, IO_BY_PROCESS, other, IO_IDLE);
}

static void by_io_of_its_group(void)
{
    (void)syscall(__NR_ioprio_set, IO_BY_GROUP, other, IO_IDLE);
}

static void refuse_calls_leaves_others_scheduled_as_they_are(void **state)
{
    static void (*const schedules[])(void) = {
        by_affinity,   by_nice, by_nice_of_its_group, by_policy,
        by_attributes, by_io,   by_io_of_its_group};

    (void)state;
    for (size_t i = 0; i < sizeof schedules / sizeof schedules[0]; i++) {
        struct schedule before, after;

        way = schedules[i];
        other_begins();
        before = schedule_of_other();
        run(send_confined);
        run(send_as_ptxas);
        after = schedule_of_other();
        if (memcmp(&before, &after, sizeof before) != 0) {
            fail_msg("%zu", i);
        }
        run(way);
        after = schedule_of_other();
        if (memcmp(&before, &after, sizeof before) == 0 &&
            (way != by_affinity || CPU_COUNT(&before.cpus) > 1)) {
            fail_msg("%zu: it would have stayed so anyway", i);
        }
        other_ends();
    }
}

static void try_other(void)
{
    struct rlimit limit;

    said->why[0] = kill(other, SIGCONT) != 0 ? errno : 0;
    said->why[1] = prlimit(other, RLIMIT_NOFILE, NULL, &limit) != 0 ? errno : 0;
    said->why[2] = kill(0, SIGCONT) != 0 ? errno : 0;
    said->why[3] = prctl(PR_SET_PDEATHSIG, 0) != 0 ? errno : 0;
    said->why[4] = setpgid(0, 0) != 0 ? errno : 0;
}

static void try_other_confined(void)
{
    confine(WEIR_CONFINE_KEEPS_NONE);
    try_other();
}

static void try_other_as_helper(void)
{
    confine(WEIR_CONFINE_KEEPS_EXEC | WEIR_CONFINE_KEEPS_OTHERS);
    try_other();
}

static void refuse_calls_keeps_other_processes_for_a_helper(void **state)
{
    (void)state;
    other_begins();
    run(try_other_confined);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(said->why[i], EPERM);
    }
    run(try_other_as_helper);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(said->why[i], 0);
    }
    other_ends();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuse_calls_lets_no_signal_reach_another_process),
        cmocka_unit_test(refuse_calls_leaves_others_scheduled_as_they_are),
        cmocka_unit_test(refuse_calls_keeps_other_processes_for_a_helper),
    };

    said = mmap(NULL, sizeof *said, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return said != MAP_FAILED ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
}
