/*
 * MPS's control daemon: starts it in a folder of its own, sends commands with NVIDIA's control
 * program, and ends it.
 */
#include "base/fd.h"
#include "host_backend/supervisor/domains/mps.h"
#include "host_backend/supervisor/state/book.h"
#include "host_backend/supervisor/state/supervisor.h"

#include "base/clock.h"
#include "base/log.h"
#include "host_backend/config/program_path.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define CONTROL        "nvidia-cuda-mps-control"
#define PERCENTAGE     "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE" /* a client's percentage of the SMs */
#define QUIT_WAIT_MS   2000
#define SERVER_WAIT_NS (5 * WEIR_NS_PER_S) /* time for a server in reserve to start */
#define PATH_BYTES     (sizeof((struct weir_sup_mps *)NULL)->folder + 32) /* of a file's path */
/* The daemon runs in the foreground. Its output, which would otherwise go into this file, is
 * redirected there. */
#define LOG "server.log"

/* ---------------------------------------------------------------- whether it is installed */

bool weir_mps_is_wanted(const struct weir_host_config *config)
{
    char path[512];

    switch (config->workers.mps) {
    case WEIR_MPS_ON:
        return true;
    case WEIR_MPS_AUTO:
        return strcmp(config->driver, "softgpu") != 0 &&
               weir_program_find(CONTROL, path, sizeof path);
    case WEIR_MPS_OFF:
    default:
        return false;
    }
}

/* ---------------------------------------------------------------- its life */

static void set_folders(const struct weir_sup_mps *m)
{
    setenv("CUDA_MPS_PIPE_DIRECTORY", m->folder, 1);
    setenv("CUDA_MPS_LOG_DIRECTORY", m->folder, 1);
}

/* In a child: become the domain's user, or exit. */
static void become_user(const struct weir_sup_mps *m)
{
    if (!weir_confine_become(m->user)) {
        _exit(127);
    }
}

/* In a child. */
static _Noreturn void become_control(const struct weir_sup_mps *m)
{
    sigset_t none;

    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    set_folders(m);
    execlp(CONTROL, CONTROL, (char *)NULL);
    _exit(127);
}

static const char *path_of(const struct weir_sup_mps *m, const char *name, char *room, size_t bytes)
{
    snprintf(room, bytes, "%s/%s", m->folder, name);
    return room;
}

bool weir_mps_daemon_is_there(const struct weir_sup_mps *m)
{
    char path[PATH_BYTES];

    return access(path_of(m, "control", path, sizeof path), F_OK) == 0;
}

/* Give the folder to the server's user, who may be the daemon's user, too. */
static bool give_folder(const struct weir_sup_mps *m)
{
    return !m->user->is_other || chown(m->folder, m->user->uid, m->user->gid) == 0;
}

/* Make an empty folder: files of a killed host would look like those of a ready daemon. */
static bool make_folder(const struct weir_supervisor *sup, struct weir_sup_mps *m)
{
    char path[PATH_BYTES];
    int n = snprintf(m->folder, sizeof m->folder, "%s/mps-%d", sup->config.run_dir,
                     (int)(m - sup->mps.of));

    if (n < 0 || (size_t)n >= sizeof m->folder ||
        (mkdir(m->folder, 0700) != 0 && errno != EEXIST) || !give_folder(m)) {
        return false;
    }
    (void)unlink(path_of(m, LOG, path, sizeof path));
    return unlink(path_of(m, "control", path, sizeof path)) == 0 || errno == ENOENT;
}

int weir_mps_log_open(const struct weir_sup_mps *m, int flags)
{
    char path[PATH_BYTES];

    /* The folder belongs to the workers' user: a worker may have put a pipe there, and opening it
     * would block. */
    return open(path_of(m, LOG, path, sizeof path), flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC,
                0600);
}

/* What the next supervisor must know of a domain (WEIR_BOOK_MPS). Members are only appended. */
struct row {
    uint32_t turn;
    uint32_t reserve;
    uint64_t started_ns;
    char devices[WEIR_DEVICE_LIST_BYTES];
    char folder[sizeof((struct weir_sup_mps *)NULL)->folder];
    struct weir_link_sms sms;
};

static struct row row_of(const struct weir_supervisor *sup, const struct weir_sup_mps *m)
{
    struct row row = {.turn = m->turn, .reserve = m->reserve, .started_ns = m->started_ns};
    const struct weir_link_sms *sms = weir_mps_sms(sup, m->devices);

    if (sms) {
        row.sms = *sms;
    }
    memcpy(row.devices, m->devices, sizeof row.devices);
    memcpy(row.folder, m->folder, sizeof row.folder);
    return row;
}

void weir_mps_note(struct weir_supervisor *sup, const struct weir_sup_mps *m)
{
    struct row row = row_of(sup, m);

    if (m->pid > 0) {
        weir_book_put(sup, WEIR_BOOK_MPS, (uint64_t)(m - sup->mps.of), &row, sizeof row, NULL, 0);
    }
}

void weir_mps_adopt(struct weir_supervisor *sup)
{
    struct weir_book_row *row;

    while ((row = weir_book_adopt(sup, WEIR_BOOK_MPS))) {
        struct weir_sup_mps *m = &sup->mps.of[row->key % WEIR_MPS_MAX];
        struct row old;

        weir_book_read(row, &old, sizeof old);
        *m = (struct weir_sup_mps){.used = true,
                                   .pid = row->pid,
                                   .user = &sup->running.user,
                                   .turn = old.turn,
                                   .reserve = old.reserve != 0,
                                   .started_ns = old.started_ns};
        memcpy(m->devices, old.devices, sizeof m->devices - 1);
        memcpy(m->folder, old.folder, sizeof m->folder - 1);
        weir_mps_sms_note(sup, m->devices, &old.sms);
        m->ready = weir_mps_daemon_is_there(m);
        sup->mps.turns = old.turn > sup->mps.turns ? old.turn : sup->mps.turns;
    }
}

/* Have the keeper start the daemon. @return its pid; -1: see errno */
static pid_t start(struct weir_supervisor *sup, const struct weir_sup_mps *m)
{
    const char *const argv[] = {CONTROL, "-f", NULL};
    const char *env[][2] = {{"CUDA_MPS_PIPE_DIRECTORY", m->folder},
                            {"CUDA_MPS_LOG_DIRECTORY", m->folder},
                            {NULL, NULL}};
    struct weir_keep_spawn spawn = {.user = *m->user, .death_signal = SIGTERM};
    struct row row = row_of(sup, m);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    struct weir_book_process process = {.spawn = &spawn,
                                        .argv = argv,
                                        .env = env,
                                        .fds = (int[]){null, null},
                                        .n_fds = 2,
                                        .row = &row,
                                        .row_bytes = sizeof row};
    pid_t pid;

    (void)path_of(m, LOG, spawn.log_path, sizeof spawn.log_path);
    pid =
        null >= 0 ? weir_book_spawn(sup, WEIR_BOOK_MPS, (uint64_t)(m - sup->mps.of), &process) : -1;
    weir_fd_close(null);
    return pid;
}

void weir_mps_daemon_start(struct weir_supervisor *sup, struct weir_sup_mps *m, uint64_t now_ns)
{
    m->started_ns = now_ns;
    m->ready = false;
    m->serves = m->asked = false;
    m->log_seen = 0;
    if (!make_folder(sup, m)) {
        weir_log_error("mps: no folder path=%s why=\"%s\"", m->folder, strerror(errno));
        return;
    }
    m->pid = start(sup, m);
    if (m->pid < 0) {
        m->pid = 0;
        return;
    }
    weir_log_info("mps: control daemon started pid=%d folder=%s", (int)m->pid, m->folder);
}

/* Send a command to a daemon, and read its answer; waits for at most wait_ms. */
bool weir_mps_say(const struct weir_sup_mps *m, const char *line, int wait_ms, char *answer,
                  size_t bytes)
{
    uint64_t end_ns = weir_host_clock_ns() + (uint64_t)wait_ms * WEIR_NS_PER_MS;
    int in[2], out[2];
    size_t n = 0;
    bool over = false;

    WEIR_FAIL_IF(pipe2(in, O_CLOEXEC) != 0, false);
    if (pipe2(out, O_CLOEXEC) != 0) {
        close(in[0]);
        close(in[1]);
        return false;
    }
    pid_t pid = fork();
    if (pid == 0) {
        become_user(m);
        if (dup2(in[0], 0) < 0 || dup2(out[1], 1) < 0) {
            _exit(127);
        }
        become_control(m);
    }
    close(in[0]);
    close(out[1]);
    (void)!write(in[1], line, strlen(line)); /* it fits into the pipe */
    close(in[1]);
    while (pid > 0 && !over && n + 1 < bytes && weir_host_clock_ns() < end_ns) {
        struct pollfd wait = {out[0], POLLIN, 0};

        if (poll(&wait, 1, WEIR_MPS_LOOK_MS) > 0) {
            ssize_t got = read(out[0], answer + n, bytes - 1 - n);

            over = got <= 0;
            n += got > 0 ? (size_t)got : 0;
        }
    }
    answer[n] = 0;
    close(out[0]);
    if (pid > 0) {
        if (!over) {
            kill(pid, SIGKILL);
        }
        waitpid(pid, NULL, 0);
    }
    return pid > 0 && over;
}

/* ---------------------------------------------------------------- its server */

/* In a child that talks to the daemon: close inherited connections, since peers wait for their
 * end. */
static void close_inherited(void)
{
    (void)close_range(STDERR_FILENO + 1, ~0u, 0);
}

/* In a child: have the daemon start its server. */
static _Noreturn void become_starter(const struct weir_sup_mps *m)
{
    uint64_t end_ns = weir_host_clock_ns() + SERVER_WAIT_NS;
    char line[64], answer[WEIR_MPS_ANSWER_BYTES];
    uid_t uid = m->user->is_other ? m->user->uid : geteuid();

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close_inherited();
    snprintf(line, sizeof line, "start_server -uid %u\n", (unsigned)uid);
    (void)weir_mps_say(m, line, SERVER_WAIT_NS / WEIR_NS_PER_MS, answer, sizeof answer);
    do {
        if (weir_mps_say(m, "get_server_list\n", WEIR_MPS_SAY_MS, answer, sizeof answer) &&
            strtol(answer, NULL, 10) > 1) {
            _exit(0);
        }
        poll(NULL, 0, WEIR_MPS_LOOK_MS);
    } while (weir_host_clock_ns() < end_ns);
    _exit(1);
}

void weir_mps_server_start(struct weir_sup_mps *m)
{
    m->asked = true;
    m->starter = fork();
    if (m->starter == 0) {
        become_starter(m);
    }
    m->starter = m->starter > 0 ? m->starter : 0;
}

/* ---------------------------------------------------------------- the end */

void weir_mps_daemon_quit(struct weir_sup_mps *m)
{
    char answer[WEIR_MPS_ANSWER_BYTES];

    weir_mps_daemon_forget(m);
    m->starter = m->pid > 0 ? fork() : 0;
    if (m->pid > 0 && m->starter == 0) {
        close_inherited();
        (void)weir_mps_say(m, "quit -t 1\n", QUIT_WAIT_MS, answer, sizeof answer);
        _exit(0);
    }
}

void weir_mps_daemon_await(struct weir_supervisor *sup, struct weir_sup_mps *m)
{
    int status;
    bool ended = weir_book_ended(sup, m->pid, &status);

    for (int k = 0; k < QUIT_WAIT_MS / WEIR_MPS_LOOK_MS && !ended; k++) {
        weir_book_wait(sup, WEIR_MPS_LOOK_MS);
        ended = weir_book_ended(sup, m->pid, &status);
    }
    if (!ended) { /* else the number may belong to another process by now */
        kill(m->pid, SIGKILL);
    }
    weir_mps_daemon_forget(m);
}

void weir_mps_daemon_forget(struct weir_sup_mps *m)
{
    if (m->starter > 0) {
        kill(m->starter, SIGKILL);
        waitpid(m->starter, NULL, 0);
    }
    m->starter = 0;
}

void weir_mps_folder_remove(const struct weir_sup_mps *m)
{
    static const char *const files[] = {"control",
                                        "control_lock",
                                        "control_privileged",
                                        "log",
                                        "control.log",
                                        LOG,
                                        "nvidia-cuda-mps-control.pid"};
    char path[PATH_BYTES];

    for (size_t k = 0; k < sizeof files / sizeof files[0]; k++) {
        unlink(path_of(m, files[k], path, sizeof path));
    }
    rmdir(m->folder);
}

void weir_mps_environment(struct weir_supervisor *sup, const struct weir_sup_worker *worker,
                          const char *ret_env[WEIR_MPS_VARIABLES + 1][2],
                          struct weir_mps_room_for_texts *ret_texts)
{
    const struct weir_sup_mps *m = weir_mps_of(sup, worker);
    uint32_t n = 0;

    if (worker->kind ==
        WEIR_WORKER_PROGRAM) { /* a value that is the host's own is not for workers */
        bool has_share = m && worker->program.sm_share_pct != 0;

        snprintf(ret_texts->percent, sizeof ret_texts->percent, "%u", worker->program.sm_share_pct);
        ret_env[n][0] = PERCENTAGE;
        ret_env[n++][1] = has_share ? ret_texts->percent : NULL;
    }
    if (m) {
        ret_env[n][0] = "CUDA_MPS_PIPE_DIRECTORY";
        ret_env[n++][1] = m->folder;
        ret_env[n][0] = "CUDA_MPS_LOG_DIRECTORY";
        ret_env[n++][1] = m->folder;
    } else if (worker->kind == WEIR_WORKER_PROGRAM && worker->program.native) {
        /* Name a folder without a daemon, so that the worker does not find the site's daemon. */
        ret_env[n][0] = "CUDA_MPS_PIPE_DIRECTORY";
        ret_env[n++][1] = "/nonexistent";
    }
    ret_env[n][0] = NULL;
}
