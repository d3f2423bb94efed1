/*
 * Three kinds of processes below the worker: the one that waits for jobs; one for each job, which
 * waits for its ptxas and answers; and ptxas. Each dies with the one above it, so nothing outlives
 * the worker.
 *
 * A job comes with the descriptor of a pipe, into which the answer is written. If the job's process
 * dies, the pipe ends without an answer.
 *
 * ptxas has limits on processor time, wall time, memory and the size of what it writes: the text is
 * a guest's. It has none of the worker's descriptors, and of the system calls that a worker is
 * refused only those that execute programs.
 */
#include "host_backend/worker/twins/ptxas.h"

#include "base/clock.h"
#include "base/fd_pass.h"
#include "host_backend/confine/confine.h"
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LIMIT_NS      (120 * WEIR_NS_PER_S)
#define LIMIT_MEMORY  (UINT64_C(8) << 30)
#define LIMIT_FILE    (UINT64_C(512) << 20)
#define CHILD_NICE    10
#define ARGS_MAX      10
#define PATH_BYTES    (sizeof((struct weir_ptxas_job *)NULL)->folder + 16)
#define FIRST_TO_SHUT 3 /* descriptors from here on are the worker's */

/* ---------------------------------------------------------------- ptxas */

static void limit(int what, uint64_t value)
{
    const struct rlimit both = {value, value};

    (void)setrlimit(what, &both);
}

static bool open_standard(const char *log)
{
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int out = open(log, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

    return null >= 0 && out >= 0 && dup2(null, 0) == 0 && dup2(out, 1) == 1 && dup2(out, 2) == 2 &&
           close_range(FIRST_TO_SHUT, ~0u, 0) == 0;
}

static _Noreturn void become_ptxas(const char *program, const struct weir_ptxas_job *job)
{
    static char *const environment[] = {NULL};
    char in[PATH_BYTES], out[PATH_BYTES], log[PATH_BYTES];
    const char *args[ARGS_MAX + 1] = {program, job->arch};
    int n = 2;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    snprintf(in, sizeof in, "%s/in.ptx", job->folder);
    snprintf(out, sizeof out, "%s/out.cubin", job->folder);
    snprintf(log, sizeof log, "%s/log", job->folder);
    if (job->registers[0] != 0) {
        args[n++] = "-maxrregcount";
        args[n++] = job->registers;
    }
    if (job->level[0] != 0) {
        args[n++] = job->level;
    }
    args[n++] = in;
    args[n++] = "-o";
    args[n] = out;
    limit(RLIMIT_CPU, LIMIT_NS / WEIR_NS_PER_S);
    limit(RLIMIT_AS, LIMIT_MEMORY);
    limit(RLIMIT_FSIZE, LIMIT_FILE);
    (void)setpriority(PRIO_PROCESS, 0, CHILD_NICE);
    if (setpgid(0, 0) == 0 && open_standard(log)) {
        (void)!weir_confine_refuse_calls(
            WEIR_CONFINE_KEEPS_EXEC); /* some kernels have no filters */
        execve(program, (char *const *)(uintptr_t)args, environment);
    }
    _exit(127);
}

/* ---------------------------------------------------------------- a job's process */

/* Did it end well? Killed when its time is over, with what it started. */
static bool wait_for(pid_t pid)
{
    uint64_t end_ns = weir_clock_now_ns() + LIMIT_NS;
    struct timespec pause = {0, 2 * 1000 * 1000};
    int status = 0;

    for (;;) {
        pid_t got = waitpid(pid, &status, WNOHANG);

        if (got == pid) {
            return WIFEXITED(status) && WEXITSTATUS(status) == 0;
        }
        if (got < 0) {
            return false;
        }
        if (weir_clock_now_ns() >= end_ns) {
            (void)kill(-pid, SIGKILL);
            (void)waitpid(pid, &status, 0);
            return false;
        }
        nanosleep(&pause, NULL);
    }
}

static _Noreturn void do_job(const char *program, const struct weir_ptxas_job *job, int answer_fd)
{
    bool good;
    pid_t pid;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGCHLD, SIG_DFL);
    pid = fork();
    if (pid == 0) {
        become_ptxas(program, job);
    }
    good = pid > 0 && wait_for(pid);
    (void)!write(answer_fd, &good, sizeof good); /* a worker that is gone has no use for it */
    _exit(0);
}

/* ---------------------------------------------------------------- the waiting process */

static bool ends(const char *text, size_t bytes)
{
    return memchr(text, 0, bytes) != NULL;
}

/* The worker may have been taken over by a guest. */
static bool is_job(const struct weir_ptxas_job *job, ssize_t bytes, const struct weir_fds *fds)
{
    return bytes == sizeof *job && fds->n == 1 && job->folder[0] == '/' &&
           ends(job->folder, sizeof job->folder) && ends(job->arch, sizeof job->arch) &&
           ends(job->level, sizeof job->level) && ends(job->registers, sizeof job->registers);
}

static _Noreturn void serve(int socket_fd, const char *program)
{
    struct weir_ptxas_job job;
    struct weir_fds fds;
    ssize_t n;

    while ((n = weir_fd_receive(socket_fd, &job, sizeof job, 0, &fds)) > 0) {
        if (is_job(&job, n, &fds) && fork() == 0) {
            do_job(program, &job, fds.fd[0]);
        }
        weir_fds_close(&fds);
    }
    _exit(0);
}

static _Noreturn void become_server(int socket_fd, const char *program, pid_t worker)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_NAME, "weir-ptxas");
    signal(SIGCHLD, SIG_IGN); /* jobs' processes answer for themselves */
    if (getppid() != worker || dup2(socket_fd, FIRST_TO_SHUT) < 0 ||
        close_range(FIRST_TO_SHUT + 1, ~0u, 0) != 0) {
        _exit(1);
    }
    (void)!weir_confine_refuse_calls(WEIR_CONFINE_KEEPS_EXEC | WEIR_CONFINE_KEEPS_OTHERS);
    serve(FIRST_TO_SHUT, program);
}

/* ---------------------------------------------------------------- the worker's side */

void weir_ptxas_start(const char *program, struct weir_ptxas *ret_ptxas)
{
    pid_t self = getpid(), pid;
    int pair[2];

    *ret_ptxas = (struct weir_ptxas){.socket_fd = -1};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
        return;
    }
    pid = fork();
    if (pid == 0) {
        become_server(pair[1], program, self);
    }
    close(pair[1]);
    if (pid < 0) {
        close(pair[0]);
        return;
    }
    *ret_ptxas = (struct weir_ptxas){.socket_fd = pair[0], .pid = pid};
}

void weir_ptxas_stop(struct weir_ptxas *ptxas)
{
    if (ptxas->socket_fd >= 0) {
        close(ptxas->socket_fd); /* the process sees the end */
        (void)waitpid(ptxas->pid, NULL, 0);
    }
    *ptxas = (struct weir_ptxas){.socket_fd = -1};
}

/* Whether there was an answer. */
static bool ask(int socket_fd, const struct weir_ptxas_job *job, const int pipes[2], bool *ret_good)
{
    bool sent = weir_fd_send(socket_fd, job, sizeof *job, pipes[1], 0) == (ssize_t)sizeof *job;

    close(pipes[1]);
    return sent && read(pipes[0], ret_good, sizeof *ret_good) == (ssize_t)sizeof *ret_good;
}

bool weir_ptxas_run(const struct weir_ptxas *ptxas, const struct weir_ptxas_job *job,
                    bool *ret_good)
{
    int pipes[2];
    bool ran;

    if (pipe2(pipes, O_CLOEXEC) != 0) {
        return false;
    }
    ran = ask(ptxas->socket_fd, job, pipes, ret_good);
    close(pipes[0]);
    return ran;
}
