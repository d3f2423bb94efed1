/*
 * How a process becomes a worker, or the gate process: between fork and exec.
 *
 * The child gets its descriptors at fixed numbers. All other descriptors of the supervisor are
 * closed, the standard ones too: its output goes into a pipe (worker_log.h). It leaves the
 * supervisor's terminal. Then it becomes the workers' user and gives up its privileges
 * (host_backend/confine/).
 */
#include "host_backend/supervisor/workers/worker_process.h"

#include "host_backend/supervisor/domains/mps.h"
#include "host_backend/supervisor/state/supervisor.h"
#include "host_backend/supervisor/workers/worker_log.h"
#include "host_backend/supervisor/workers/workers.h"

#include "base/log.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define TO_US_BYTES (4 << 20)
/* The link holds few messages, so that another tenant's guest only waits for these behind a flood
 * of one tenant's. */
#define TO_WORKER_BYTES (128 << 10)
#define OUT_OF_THE_WAY  16    /* above all numbers that descriptors are moved to */
#define OOM_SCORE       "100" /* as if it used a tenth of the machine's memory more */

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

/* Leave the terminal: a process with a terminal can type there for others, and signal its
 * foreground processes. */
static void leave_terminal(void)
{
    int fd = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC);

    if (fd >= 0) {
        (void)ioctl(fd, TIOCNOTTY);
        close(fd);
    }
}

/* Move descriptors to their numbers. dup2() onto itself would keep close-on-exec, and a number may
 * be in use by another of them. */
static bool place_descriptors(const struct weir_sup_ends *ends)
{
    bool listens = ends->listener >= 0;
    int link = fcntl(ends->link, F_DUPFD_CLOEXEC, OUT_OF_THE_WAY);
    int log = fcntl(ends->log, F_DUPFD_CLOEXEC, OUT_OF_THE_WAY);
    int listener = listens ? fcntl(ends->listener, F_DUPFD_CLOEXEC, OUT_OF_THE_WAY) : -1;
    int null = open("/dev/null", O_RDONLY); /* it may already have the right number */

    if (link < 0 || log < 0 || null < 0 || (listens && listener < 0) ||
        (null != STDIN_FILENO && dup2(null, STDIN_FILENO) < 0) || dup2(log, STDOUT_FILENO) < 0 ||
        dup2(log, STDERR_FILENO) < 0 || dup2(link, WEIR_LINK_FD) < 0 ||
        (listens && dup2(listener, WEIR_LINK_LISTENER_FD) < 0)) {
        return false;
    }
    /* All close on exec anyway, unless close-on-exec was forgotten; old kernels lack
     * close_range(). */
    (void)close_range(listens ? WEIR_LINK_LISTENER_FD + 1 : WEIR_LINK_FD + 1, ~0u, 0);
    return true;
}

/* Allow locked memory, for the GPU: root is not bound by this limit, other users are. */
static void allow_locked_memory(void)
{
    const struct rlimit none = {RLIM_INFINITY, RLIM_INFINITY};

    (void)setrlimit(RLIMIT_MEMLOCK, &none); /* even root may not raise it: the limit stays */
}

/* Let the kernel prefer a worker to the supervisor when the machine is out of memory. The worker
 * inherits the value that systemd has set for the supervisor. After a failure it keeps that. */
static void be_ended_first(void)
{
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

    if (fd >= 0) {
        (void)!write(fd, OOM_SCORE, sizeof OOM_SCORE - 1);
        close(fd);
    }
}

/* Confine a worker, or exit: an unconfined one would be root. */
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

/* Become the worker. The child may call any function, since the supervisor has one thread. */
static _Noreturn void become(struct weir_supervisor *sup, const struct weir_sup_worker *w,
                             const struct weir_sup_ends *ends, pid_t supervisor)
{
    const char *program = sup->params.program ? sup->params.program : "/proc/self/exe";
    char *argv[] = {(char *)(uintptr_t) "weir", (char *)(uintptr_t)(w ? "worker" : "gate"), NULL};
    sigset_t none;

    if (w) {
        be_ended_first();
        lower_mappings();
        weir_mps_environment(sup, w);
    }
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    leave_terminal();
    if (!place_descriptors(ends)) {
        int why = errno;

        weir_log_error("supervisor: a process cannot start why=\"%s\"", strerror(why));
        _exit(why == EMFILE || why == ENFILE ? WEIR_WORKER_EXIT_NO_FD : WEIR_WORKER_EXIT_FAILED);
    }
    weir_log_for_reader(); /* until exec */
    confine(&sup->worker_user);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a change of user would have cleared it */
    if (getppid() != supervisor) {
        _exit(WEIR_WORKER_EXIT_FAILED); /* the supervisor died before the line above */
    }
    execv(program, argv);
    weir_log_error("supervisor: cannot execute it program=%s why=\"%s\"", program, strerror(errno));
    _exit(WEIR_WORKER_EXIT_FAILED);
}

pid_t weir_sup_fork(struct weir_supervisor *sup, const struct weir_sup_worker *worker,
                    const struct weir_sup_ends *ends)
{
    pid_t self = getpid(), pid = fork();

    if (pid == 0) {
        become(sup, worker, ends, self);
    }
    return pid;
}

static enum weir_status status_of_errno(int error)
{
    switch (error) {
    case EMFILE:
    case ENFILE:
        return WEIR_ERR_NO_DESCRIPTOR;
    case ENOMEM:
    case ENOBUFS:
        return WEIR_ERR_NO_MEMORY;
    case EAGAIN: /* fork() reached RLIMIT_NPROC, or the limit of a cgroup */
        return WEIR_ERR_FULL;
    default:
        return WEIR_ERR_IO;
    }
}

static enum weir_status open_link(int ret_pair[2])
{
    int to_us = TO_US_BYTES, to_it = TO_WORKER_BYTES;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ret_pair) != 0) {
        return status_of_errno(errno);
    }
    (void)fcntl(ret_pair[0], F_SETFL, O_NONBLOCK); /* non-blocking for this end only */
    (void)setsockopt(ret_pair[0], SOL_SOCKET, SO_SNDBUF, &to_it, sizeof to_it);
    (void)setsockopt(ret_pair[1], SOL_SOCKET, SO_SNDBUF, &to_us, sizeof to_us);
    return WEIR_OK;
}

enum weir_status weir_sup_spawn(struct weir_supervisor *sup, const struct weir_sup_worker *worker,
                                int listener, pid_t *ret_pid, int *ret_link,
                                struct weir_sup_log **ret_log)
{
    struct weir_sup_ends ends = {.listener = listener};
    struct weir_sup_log *log = NULL;
    enum weir_status status;
    pid_t pid = -1;
    int pair[2];

    status = open_link(pair);
    if (status != WEIR_OK) {
        return status;
    }
    ends.link = pair[1];
    status = weir_sup_log_open(&log, &ends.log);
    if (status == WEIR_OK) {
        pid = weir_sup_fork(sup, worker, &ends);
        status = pid < 0 ? status_of_errno(errno) : WEIR_OK;
        close(ends.log);
    }
    close(pair[1]);
    if (status != WEIR_OK) {
        weir_sup_log_free(log);
        close(pair[0]);
        return status;
    }
    *ret_pid = pid;
    *ret_link = pair[0];
    *ret_log = log;
    return WEIR_OK;
}

const char *weir_sup_no_worker_text(enum weir_status status)
{
    if (status == WEIR_ERR_NO_DESCRIPTOR) {
        return "the host has no file descriptor left for another worker";
    }
    if (status == WEIR_ERR_NO_MEMORY) {
        return "the host has no memory for another process";
    }
    if (status == WEIR_ERR_FULL) {
        return "the host has as many workers or processes as it may";
    }
    return "the host cannot start another worker: its log says why";
}

void weir_sup_config_fill(const struct weir_supervisor *sup, struct weir_link_config *config)
{
    int level = (int)strcspn(sup->config.log, ":"); /* the log's file is open already */

    snprintf(config->driver, sizeof config->driver, "%s", sup->config.driver);
    snprintf(config->softgpu, sizeof config->softgpu, "%s", sup->config.softgpu);
    snprintf(config->log, sizeof config->log, "%.*s", level, sup->config.log);
    snprintf(config->run_dir, sizeof config->run_dir, "%s", sup->config.run_dir);
    config->window_base = sup->config.window_base;
    config->window_bytes = sup->config.window_bytes;
    config->vmm_base = sup->config.vmm_base;
    config->vmm_bytes = sup->config.vmm_bytes;
    config->forms = sup->config.forms;
    weir_sup_worker_user_cache(sup, &config->forms);
    config->scheduler = sup->config.scheduler;
}
