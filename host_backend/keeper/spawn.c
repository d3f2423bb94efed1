/*
 * How a process becomes a worker, the gate process or an MPS daemon: between fork and exec.
 *
 * The child gets its descriptors from number 0 on; all others are closed. Then it becomes the
 * wanted user, and gives up its privileges if it is to be a worker (host_backend/confine/). It has
 * no terminal, since the keeper has none. It ends with the keeper.
 */
#include "host_backend/keeper/spawn.h"

#include "base/log.h"
#include "host_backend/config/control.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

extern char **environ;

#define OUT_OF_THE_WAY 16    /* above all numbers that descriptors are moved to */
#define OOM_SCORE      "100" /* as if it used a tenth of the machine's memory more */
#define WORDS_MAX      4096

/*
 * Guests' memory is registered at the guests' own addresses, so the worker must not use addresses
 * that programs use. The kernel begins a process's mappings below the room that its stack may take;
 * the worker gives that room up again (worker/main.c). ThreadSanitizer does not support mappings
 * that low: there the worker keeps the usual addresses, and some registrations fail.
 */
static void lower_mappings(void)
{
#ifndef __SANITIZE_THREAD__
    struct rlimit limit;

    if (getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_max == RLIM_INFINITY) {
        limit.rlim_cur = WEIR_WORKER_STACK_ROOM;
        (void)setrlimit(RLIMIT_STACK, &limit);
    }
#endif
}

/* A session that another worker makes again may only find its variables where they were, and the
 * driver places them after the process's mappings (docs/design/rebuild.md). */
static void keep_addresses(void)
{
    int now = personality(0xffffffff);

    if (now != -1) {
        (void)personality((unsigned long)now | ADDR_NO_RANDOMIZE);
    }
}

/* Let the kernel prefer a worker to the supervisor when the machine is out of memory. The worker
 * inherits the value that systemd has set for the keeper. After a failure it keeps that. */
static void be_ended_first(void)
{
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

    if (fd >= 0) {
        (void)!write(fd, OOM_SCORE, sizeof OOM_SCORE - 1);
        close(fd);
    }
}

/* Move descriptors to their numbers, and the program's file, if there is one, to the next. dup2()
 * onto itself would keep close-on-exec, and a number may be in use by another of them.
 * @return that next number; -1: see errno */
static int place(const int *fds, uint32_t n, bool by_file)
{
    int moved[WEIR_FDS_MAX + 1] = {0}, next = 0;

    for (uint32_t i = 0; i < n + by_file; i++) {
        moved[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, OUT_OF_THE_WAY);
        if (moved[i] < 0) {
            return -1;
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        if (dup2(moved[i], next++) < 0 || (i == 1 && dup2(moved[i], next++) < 0)) {
            return -1;
        }
    }
    if (by_file && dup3(moved[n], next, O_CLOEXEC) < 0) {
        return -1;
    }
    /* All close on exec anyway, unless close-on-exec was forgotten; old kernels lack
     * close_range(). */
    (void)close_range((unsigned)next + by_file, ~0u, 0);
    return next;
}

/* Become the process's user; an unconfined worker would be root. */
static bool confine(const struct weir_keep_spawn *spawn)
{
    const struct rlimit none = {RLIM_INFINITY, RLIM_INFINITY};

    if (!spawn->is_worker) {
        return weir_confine_become(&spawn->user);
    }
    /* Registered memory counts against this limit for all users but root. Even root may not be
     * allowed to raise the limit: then it stays. */
    (void)setrlimit(RLIMIT_MEMLOCK, &none);
    weir_confine_drop_bounding();
    return weir_confine_become(&spawn->user) && weir_confine_drop_privileges();
}

/* The folder belongs to the process's user, who may have put a pipe there: opening it would
 * block. */
static bool open_log(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);

    return fd >= 0 && dup2(fd, STDOUT_FILENO) >= 0 && dup2(fd, STDERR_FILENO) >= 0;
}

/* The words, of which the first are the command; the others become the environment. */
static void take_words(uint32_t n_argv, char *at, const char *end, char **words)
{
    static char *none[1] = {NULL};
    uint32_t n = 0, n_command = n_argv < WORDS_MAX / 2 ? n_argv : WORDS_MAX / 2;

    environ = none;
    for (; at < end && n < n_command; at += strlen(at) + 1) {
        words[n++] = at;
    }
    words[n++] = NULL;
    environ = words + n;
    for (; at < end && n < WORDS_MAX - 1; at += strlen(at) + 1) {
        words[n++] = at;
    }
    words[n] = NULL;
}

static _Noreturn void become(const struct weir_keep_spawn *spawn, char *at, const char *end,
                             const int *fds, pid_t keeper)
{
    static char *words[WORDS_MAX];
    sigset_t none;

    take_words(spawn->n_argv, at, end, words);
    if (spawn->is_worker) {
        be_ended_first();
        keep_addresses();
    }
    if (spawn->lowered) {
        lower_mappings();
    }
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    int program = place(fds, spawn->n_fds, spawn->by_file);
    if (program < 0) {
        _exit(errno == EMFILE || errno == ENFILE ? WEIR_WORKER_EXIT_NO_FD
                                                 : WEIR_WORKER_EXIT_FAILED);
    }
    weir_log_for_reader(); /* until exec */
    if (!confine(spawn) || (spawn->log_path[0] != 0 && !open_log(spawn->log_path))) {
        weir_log_error("keeper: cannot confine a process user=%s why=\"%s\"",
                       spawn->user.is_other ? spawn->user.name : "", strerror(errno));
        _exit(WEIR_WORKER_EXIT_FAILED);
    }
    prctl(PR_SET_PDEATHSIG, spawn->death_signal); /* a change of user would have cleared it */
    if (getppid() != keeper) {
        _exit(WEIR_WORKER_EXIT_FAILED); /* the keeper died before the line above */
    }
    if (spawn->by_file) {
        fexecve(program, words, environ);
    } else {
        execvp(words[0], words);
    }
    weir_log_error("keeper: cannot execute it program=%s why=\"%s\"", words[0], strerror(errno));
    _exit(WEIR_WORKER_EXIT_FAILED);
}

pid_t weir_keep_fork(const struct weir_keep_spawn *spawn, char *words, const char *end,
                     const int *fds)
{
    pid_t self = getpid(), pid = fork();

    if (pid == 0) {
        become(spawn, words, end, fds, self);
    }
    return pid;
}
