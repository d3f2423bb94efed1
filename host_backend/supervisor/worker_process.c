/*
 * How a process becomes a worker, or the gate process: between fork and exec.
 *
 * The child gets its descriptors in their places and opens what the worker could not open by
 * itself. All other descriptors of the supervisor are closed. Then it becomes the workers' user and
 * gives up its privileges (host_backend/confine/).
 */
#include "host_backend/supervisor/supervisor.h"

#include "base/log.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#define OUT_OF_THE_WAY 16    /* above all places that descriptors are moved to */
#define OOM_SCORE      "100" /* as if a worker had a tenth of the machine's memory more than it has */

/*
 * Guests' memory is registered at the guests' own addresses, so the worker keeps away from where
 * programs have theirs: the kernel begins a process's mappings below the room that its stack may
 * take, and the worker gives that room up again (worker/main.c). ThreadSanitizer knows no mappings
 * as low as that: its worker stays where it is, and some registrations find their addresses taken.
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

/* A log in a file is the worker's standard error: the file may be root's. */
static bool open_log(const char *spec)
{
    const char *path = strchr(spec, ':');
    char level[16];
    int fd;

    if (path == NULL) {
        return true;
    }
    snprintf(level, sizeof level, "%.*s", (int)(path - spec), spec);
    fd = open(path + 1, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0644);
    return fd >= 0 && dup2(fd, STDERR_FILENO) == STDERR_FILENO &&
           weir_log_init(level, "weir serve") == WEIR_OK; /* until exec */
}

/* dup2() to itself would keep close-on-exec, and one place may be what the other lies in. */
static bool place_descriptors(int link, int listener)
{
    bool listens = listener >= 0;

    link = fcntl(link, F_DUPFD_CLOEXEC, OUT_OF_THE_WAY);
    listener = listens ? fcntl(listener, F_DUPFD_CLOEXEC, OUT_OF_THE_WAY) : -1;
    if (link < 0 || (listens && listener < 0) || dup2(link, WEIR_LINK_FD) < 0 ||
        (listens && dup2(listener, WEIR_LINK_LISTENER_FD) < 0)) {
        return false;
    }
    /* All are closed on exec anyway, unless one was forgotten; old kernels have no such call. */
    (void)close_range(listens ? WEIR_LINK_LISTENER_FD + 1 : WEIR_LINK_FD + 1, ~0u, 0);
    return true;
}

/* For the GPU: root is not bound by this limit, other users are. */
static void allow_locked_memory(void)
{
    const struct rlimit none = {RLIM_INFINITY, RLIM_INFINITY};

    (void)setrlimit(RLIMIT_MEMLOCK, &none); /* not root's to raise: it stays */
}

/* Where the machine has no memory left, the kernel rather ends a worker than the supervisor, from
 * which it has what systemd has set for that. A failure leaves it as it is. */
static void be_ended_first(void)
{
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

    if (fd >= 0) {
        (void)!write(fd, OOM_SCORE, sizeof OOM_SCORE - 1);
        close(fd);
    }
}

/* All or nothing: a worker that could not be confined would be root. */
static void confine(const struct weir_confine_user *user)
{
    allow_locked_memory();
    weir_confine_drop_bounding();
    if (!weir_confine_become(user) || !weir_confine_drop_privileges()) {
        weir_log_error("supervisor: cannot confine a process user=%s why=\"%s\"",
                       user->is_other ? user->name : "", strerror(errno));
        _exit(WEIR_WORKER_EXIT_FAILED);
    }
}

/* In the child, which may call anything, since the supervisor has one thread. */
static _Noreturn void become(struct weir_supervisor *sup, const struct weir_sup_worker *w, int link,
                             int listener, pid_t supervisor)
{
    const char *program = sup->params.program != NULL ? sup->params.program : "/proc/self/exe";
    char *argv[] = {(char *)(uintptr_t) "weir", (char *)(uintptr_t)(w != NULL ? "worker" : "gate"),
                    NULL};
    sigset_t none;

    if (w != NULL) {
        be_ended_first();
        lower_mappings();
        weir_mps_environment(sup, w);
    }
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (!open_log(sup->config.log) || !place_descriptors(link, listener)) {
        int why = errno;

        weir_log_error("supervisor: a process cannot start why=\"%s\"", strerror(why));
        _exit(why == EMFILE || why == ENFILE ? WEIR_WORKER_EXIT_NO_FD : WEIR_WORKER_EXIT_FAILED);
    }
    confine(&sup->worker_user);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* another user would have lost it */
    if (getppid() != supervisor) {
        _exit(WEIR_WORKER_EXIT_FAILED); /* it died before the line above */
    }
    execv(program, argv);
    weir_log_error("supervisor: cannot execute it program=%s why=\"%s\"", program, strerror(errno));
    _exit(WEIR_WORKER_EXIT_FAILED);
}

pid_t weir_sup_fork(struct weir_supervisor *sup, const struct weir_sup_worker *worker, int link,
                    int listener)
{
    pid_t self = getpid(), pid = fork();

    if (pid == 0) {
        become(sup, worker, link, listener, self);
    }
    return pid;
}
