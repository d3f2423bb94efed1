/*
 * Three kinds of processes below the worker: the one that waits for jobs, which dies with the
 * worker; one for each job, which waits for its ptxas and answers; and ptxas.
 *
 * A job comes with the descriptor of a pipe, into which the answer is written. If the job's process
 * dies, the pipe ends without an answer. If the worker gives up, it closes its end of the pipe, and
 * the job's process kills ptxas. It does the same when the process above it has died, since a
 * worker that was taken over can keep the pipe open elsewhere.
 *
 * ptxas and all that it starts are one group of processes, which they cannot leave. The job's
 * process kills the group in any case, so nothing of a job outlives it.
 *
 * The text is a guest's, so ptxas has limits. The kernel limits processor time, address space and
 * the size of files. The job's process looks at ptxas' resident memory and at the clock: a limit of
 * address space alone would be reported as an error of the text. ptxas has none of the worker's
 * descriptors, and of the system calls that a worker is refused only those that execute programs.
 */
#include "host_backend/compiler/process.h"

#include "base/clock.h"
#include "base/fd_pass.h"
#include "base/file_text.h"
#include "host_backend/confine/confine.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
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

#define LIMIT_FILE    (UINT64_C(512) << 20)
#define ROOM_BYTES    (UINT64_C(512) << 20) /* room for addresses beyond the resident memory */
#define ARGS_MAX      12
#define PATH_BYTES    (sizeof((struct weir_compiler_job *)NULL)->folder + 16)
#define FIRST_TO_SHUT 3 /* descriptors from here on belong to the worker */
#define LOOK_NS       (2 * WEIR_NS_PER_MS)
#define GIVE_UP_MS    20
/* Jobs at a time. More wait: four tenants have as many sessions by default, and each session
 * compiles one text at a time. The bound protects against a worker that a guest controls. */
#define JOBS_MAX 1024

/* ---------------------------------------------------------------- ptxas */

static void limit(int what, uint64_t soft, uint64_t hard)
{
    const struct rlimit both = {soft, hard};

    (void)setrlimit(what, &both);
}

static void set_limits(const struct weir_compile_limits *limits)
{
    if (limits->cpu_s != 0) {
        limit(RLIMIT_CPU, limits->cpu_s, limits->cpu_s + 1); /* sends SIGXCPU, then SIGKILL */
    }
    limit(RLIMIT_AS, limits->memory_bytes + ROOM_BYTES, limits->memory_bytes + ROOM_BYTES);
    limit(RLIMIT_FSIZE, LIMIT_FILE, LIMIT_FILE);
    limit(RLIMIT_CORE, 0, 0);
    (void)setpriority(PRIO_PROCESS, 0, (int)limits->nice);
}

static bool open_standard(const char *log)
{
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int out = open(log, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

    return null >= 0 && out >= 0 && dup2(null, 0) == 0 && dup2(out, 1) == 1 && dup2(out, 2) == 2 &&
           close_range(FIRST_TO_SHUT, ~0u, 0) == 0;
}

static _Noreturn void become_ptxas(const char *program, const struct weir_compiler_job *job)
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
    if (job->relocatable != 0) {
        args[n++] = "-c";
    }
    if (job->verbose != 0) {
        args[n++] = "-v";
    }
    args[n++] = in;
    args[n++] = "-o";
    args[n] = out;
    set_limits(&job->limits);
    if (setpgid(0, 0) == 0 && open_standard(log)) {
        (void)!weir_confine_refuse_calls(
            WEIR_CONFINE_KEEPS_EXEC); /* some kernels have no filters */
        execve(program, (char *const *)(uintptr_t)args, environment);
    }
    _exit(127);
}

/* ---------------------------------------------------------------- a job's process */

/* Resident memory of a process; 0: not known. */
static uint64_t resident_bytes(pid_t pid)
{
    unsigned long long all, resident;
    char path[40], text[128];

    snprintf(path, sizeof path, "/proc/%d/statm", (int)pid);
    if (!weir_file_text(path, text, sizeof text) ||
        sscanf(text, "%llu %llu", &all, &resident) != 2) {
        return 0;
    }
    return (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Has the worker given up, or ended? */
static bool worker_gave_up(int answer_fd, pid_t server)
{
    struct pollfd at = {.fd = answer_fd}; /* poll() reports a closed reading end as an error here */

    return (poll(&at, 1, 0) == 1 && (at.revents & POLLERR) != 0) || getppid() != server;
}

static enum weir_compile_end end_of(int status)
{
    if (WIFEXITED(status)) {
        return WEXITSTATUS(status) == 0     ? WEIR_COMPILE_DONE
               : WEXITSTATUS(status) == 127 ? WEIR_COMPILE_NOT_DONE
                                            : WEIR_COMPILE_REFUSED;
    }
    switch (WTERMSIG(status)) {
    case SIGXCPU:
        return WEIR_COMPILE_TIME;
    case SIGXFSZ:
        return WEIR_COMPILE_SIZE;
    default:
        return WEIR_COMPILE_CRASHED;
    }
}

/* Why must ptxas be killed now? @return WEIR_COMPILE_DONE: no reason. */
static enum weir_compile_end look(pid_t pid, const struct weir_compile_limits *limits,
                                  uint64_t since_ns, int answer_fd, pid_t server)
{
    if (resident_bytes(pid) > limits->memory_bytes) {
        return WEIR_COMPILE_MEMORY;
    }
    if (limits->all_s != 0 && weir_clock_now_ns() - since_ns >= limits->all_s * WEIR_NS_PER_S) {
        return WEIR_COMPILE_TIME;
    }
    return worker_gave_up(answer_fd, server) ? WEIR_COMPILE_GIVEN_UP : WEIR_COMPILE_DONE;
}

/* Wait for the end of ptxas, and kill it at a limit. The rest of its process group is killed before
 * ptxas is reaped, so that the group's number cannot belong to another group yet. */
static enum weir_compile_end wait_for(pid_t pid, const struct weir_compile_limits *limits,
                                      int answer_fd, pid_t server)
{
    const struct timespec pause = {0, (long)LOOK_NS};
    uint64_t since_ns = weir_clock_now_ns();
    enum weir_compile_end why = WEIR_COMPILE_DONE;
    siginfo_t ended = {.si_pid = 0};
    int status = 0;

    while (why == WEIR_COMPILE_DONE &&
           waitid(P_PID, (id_t)pid, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           ended.si_pid == 0) {
        nanosleep(&pause, NULL);
        why = look(pid, limits, since_ns, answer_fd, server);
    }
    (void)kill(-pid, SIGKILL);
    (void)waitpid(pid, &status, 0);
    return why == WEIR_COMPILE_DONE ? end_of(status) : why;
}

static _Noreturn void do_job(const char *program, const struct weir_compiler_job *job,
                             int answer_fd, pid_t server)
{
    enum weir_compile_end end = WEIR_COMPILE_NOT_DONE;

    signal(SIGPIPE, SIG_IGN);
    pid_t pid = fork();
    if (pid == 0) {
        become_ptxas(program, job);
    }
    if (pid > 0) {
        (void)setpgid(pid, pid); /* parent and child both do this, since either may run first */
        end = wait_for(pid, &job->limits, answer_fd, server);
    }
    (void)!write(answer_fd, &end, sizeof end); /* if the worker is gone, nobody needs the answer */
    _exit(0);
}

/* ---------------------------------------------------------------- the waiting process */

static bool ends(const char *text, size_t bytes)
{
    return memchr(text, 0, bytes) != NULL;
}

/* Is this a valid job? A guest may control the worker. */
static bool is_job(const struct weir_compiler_job *job, ssize_t bytes, const struct weir_fds *fds)
{
    return bytes == sizeof *job && fds->n == 1 && job->folder[0] == '/' &&
           ends(job->folder, sizeof job->folder) && ends(job->arch, sizeof job->arch) &&
           ends(job->level, sizeof job->level) && ends(job->registers, sizeof job->registers);
}

/* Wait for jobs' processes, which send their answers themselves, until another job may start. */
static void reap(unsigned *n_jobs)
{
    while (*n_jobs != 0 && waitpid(-1, NULL, *n_jobs < JOBS_MAX ? WNOHANG : 0) > 0) {
        (*n_jobs)--;
    }
}

static _Noreturn void serve(int socket_fd, const char *program)
{
    struct weir_compiler_job job;
    struct weir_fds fds;
    pid_t self = getpid();
    unsigned n_jobs = 0;
    ssize_t n;

    while ((n = weir_fd_receive(socket_fd, &job, sizeof job, 0, &fds)) > 0) {
        pid_t pid = 0;

        reap(&n_jobs);
        if (is_job(&job, n, &fds)) {
            pid = fork();
            if (pid == 0) {
                do_job(program, &job, fds.fd[0], self);
            }
        }
        n_jobs += pid > 0;
        weir_fds_close(&fds);
    }
    _exit(0);
}

static _Noreturn void become_server(int socket_fd, const char *program, pid_t worker)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_NAME, "weir-compiler");
    if (getppid() != worker || dup2(socket_fd, FIRST_TO_SHUT) < 0 ||
        close_range(FIRST_TO_SHUT + 1, ~0u, 0) != 0) {
        _exit(1);
    }
    (void)!weir_confine_refuse_calls(WEIR_CONFINE_KEEPS_EXEC | WEIR_CONFINE_KEEPS_OTHERS);
    serve(FIRST_TO_SHUT, program);
}

/* ---------------------------------------------------------------- the worker's side */

void weir_compiler_process_start(const char *program, struct weir_compiler_process *ret_process)
{
    pid_t self = getpid(), pid;
    int pair[2];

    *ret_process = (struct weir_compiler_process){.socket_fd = -1};
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
    *ret_process = (struct weir_compiler_process){.socket_fd = pair[0], .pid = pid};
}

void weir_compiler_process_stop(struct weir_compiler_process *process)
{
    if (process->socket_fd >= 0) {
        close(process->socket_fd); /* closes its socket: the process exits */
        (void)waitpid(process->pid, NULL, 0);
    }
    *process = (struct weir_compiler_process){.socket_fd = -1};
}

/* Wait for the answer, or until the caller gives up. */
static enum weir_compile_end await(int fd, bool (*give_up)(void *user), void *user)
{
    struct pollfd at = {.fd = fd, .events = POLLIN};
    enum weir_compile_end end;
    int n;

    do {
        n = poll(&at, 1, give_up ? GIVE_UP_MS : -1);
        if (n == 0 && give_up && give_up(user)) {
            return WEIR_COMPILE_GIVEN_UP;
        }
    } while (n == 0 || (n < 0 && errno == EINTR));
    return n == 1 && read(fd, &end, sizeof end) == (ssize_t)sizeof end ? end
                                                                       : WEIR_COMPILE_NOT_DONE;
}

enum weir_compile_end weir_compiler_process_run(const struct weir_compiler_process *process,
                                                const struct weir_compiler_job *job,
                                                bool (*give_up)(void *user), void *user)
{
    enum weir_compile_end end = WEIR_COMPILE_NOT_DONE;
    int pipes[2];

    if (pipe2(pipes, O_CLOEXEC) != 0) {
        return end;
    }
    bool sent =
        weir_fd_send(process->socket_fd, job, sizeof *job, pipes[1], 0) == (ssize_t)sizeof *job;
    close(pipes[1]);
    if (sent) {
        end = await(pipes[0], give_up, user);
    }
    close(pipes[0]);
    return end;
}
