/*
 * Fault domains: MPS servers that the supervisor runs for the workers of programs.
 *
 * A control daemon, its one server and the workers under it are a domain. Inside one, kernels of
 * different programs run side by side behind walls for memory. A fault of one client ends all of
 * them, and the server takes no new client while one of the old ones lives; so all leave at once,
 * and 0.25 s later the domain serves again. A client that is killed while it has work on the GPU
 * counts as a fault, so one is terminated by the daemon before it is killed. A failed assert is no
 * such fault: it ends the client whose it is and nobody else.
 *
 * Each list of devices has domains of its own, since a fault reaches the clients of all GPUs that
 * the faulting one shares with others. A server takes 48 clients; for more, a further domain opens.
 *
 * Measured: docs/measurements/contexts.md. Design: docs/design/workers.md.
 */
#include "host_backend/supervisor/mps.h"
#include "host_backend/supervisor/supervisor.h"

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
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define CONTROL       "nvidia-cuda-mps-control"
#define PERCENTAGE    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE" /* for a client: of the SMs */
#define LOOK_MS       20 /* how often a daemon is looked at that starts */
#define START_WAIT_NS (5 * WEIR_NS_PER_S)
#define RETRY_NS      (2 * WEIR_NS_PER_S)    /* after a daemon has ended by itself */
#define LEAVE_WAIT_NS (500 * WEIR_NS_PER_MS) /* for workers whose context is gone */
#define RECOVERS_NS   (250 * WEIR_NS_PER_MS) /* a server, when the last client has left */
#define SAY_WAIT_MS   1000
#define STUCK_NS      (15 * WEIR_NS_PER_S) /* a server that has taken no client for so long */
#define QUIT_WAIT_MS  2000
#define ANSWER_BYTES  512u
#define PATH_BYTES    (sizeof((struct weir_sup_mps *)NULL)->folder + 32) /* of a file in a folder */
/* In the foreground the daemon says to its output what else it would write into this file. */
#define LOG "server.log"

/* ---------------------------------------------------------------- is it there */

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

/* ---------------------------------------------------------------- the daemon */

static void set_folders(const struct weir_sup_mps *m)
{
    setenv("CUDA_MPS_PIPE_DIRECTORY", m->folder, 1);
    setenv("CUDA_MPS_LOG_DIRECTORY", m->folder, 1);
}

/* In a child, as become_control(). */
static void become_user(const struct weir_sup_mps *m)
{
    if (!weir_confine_become(m->user)) {
        _exit(127);
    }
}

/* In a child. */
static _Noreturn void become_control(const struct weir_sup_mps *m, bool daemon)
{
    sigset_t none;

    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    set_folders(m);
    if (daemon) {
        execlp(CONTROL, CONTROL, "-f", (char *)NULL);
    } else {
        execlp(CONTROL, CONTROL, (char *)NULL);
    }
    _exit(127);
}

static const char *path_of(const struct weir_sup_mps *m, const char *name, char *room, size_t bytes)
{
    snprintf(room, bytes, "%s/%s", m->folder, name);
    return room;
}

static bool is_there(const struct weir_sup_mps *m)
{
    char path[PATH_BYTES];

    return access(path_of(m, "control", path, sizeof path), F_OK) == 0;
}

/* A server serves one user, and its daemon need be no other. */
static bool give_folder(const struct weir_sup_mps *m)
{
    return !m->user->is_other || chown(m->folder, m->user->uid, m->user->gid) == 0;
}

/* What a killed host left would be taken for a daemon that is ready. */
static bool make_folder(const struct weir_supervisor *sup, struct weir_sup_mps *m)
{
    char path[PATH_BYTES];
    int n = snprintf(m->folder, sizeof m->folder, "%s/mps-%d", sup->config.run_dir,
                     (int)(m - sup->mps));

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

    return open(path_of(m, LOG, path, sizeof path), flags | O_NOFOLLOW | O_CLOEXEC, 0600);
}

static void start(struct weir_supervisor *sup, struct weir_sup_mps *m, uint64_t now_ns)
{
    pid_t self = getpid();

    m->started_ns = now_ns;
    m->ready = false;
    m->log_seen = 0;
    if (!make_folder(sup, m)) {
        weir_log_error("mps: no folder path=%s why=\"%s\"", m->folder, strerror(errno));
        return;
    }
    m->pid = fork();
    if (m->pid == 0) {
        int null = open("/dev/null", O_RDWR | O_CLOEXEC), log;

        become_user(m);
        log = weir_mps_log_open(m, O_WRONLY | O_CREAT | O_APPEND);
        prctl(PR_SET_PDEATHSIG, SIGTERM); /* another user would have lost it */
        if (getppid() != self || dup2(null, 0) < 0 || dup2(log, 1) < 0 || dup2(log, 2) < 0) {
            _exit(127);
        }
        become_control(m, true);
    }
    if (m->pid < 0) {
        m->pid = 0;
        return;
    }
    weir_log_info("mps: control daemon started pid=%d folder=%s", (int)m->pid, m->folder);
}

/* Say a line to a daemon, and read what it answers; waits for at most SAY_WAIT_MS. */
static bool say(const struct weir_sup_mps *m, const char *line, int wait_ms, char *answer,
                size_t bytes)
{
    uint64_t end_ns = weir_clock_now_ns() + (uint64_t)wait_ms * WEIR_NS_PER_MS;
    int in[2], out[2];
    size_t n = 0;
    bool over = false;
    pid_t pid;

    if (pipe2(in, O_CLOEXEC) != 0) {
        return false;
    }
    if (pipe2(out, O_CLOEXEC) != 0) {
        close(in[0]);
        close(in[1]);
        return false;
    }
    pid = fork();
    if (pid == 0) {
        become_user(m);
        if (dup2(in[0], 0) < 0 || dup2(out[1], 1) < 0) {
            _exit(127);
        }
        become_control(m, false);
    }
    close(in[0]);
    close(out[1]);
    (void)!write(in[1], line, strlen(line)); /* shorter than a pipe holds */
    close(in[1]);
    while (pid > 0 && !over && n + 1 < bytes && weir_clock_now_ns() < end_ns) {
        struct pollfd wait = {out[0], POLLIN, 0};

        if (poll(&wait, 1, LOOK_MS) > 0) {
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

/* ---------------------------------------------------------------- domains and workers */

struct weir_sup_mps *weir_mps_of(struct weir_supervisor *sup, const struct weir_sup_worker *worker)
{
    return worker->kind == WEIR_WORKER_PROGRAM && worker->program.domain != 0
               ? &sup->mps[worker->program.domain - 1]
               : NULL;
}

bool weir_mps_has(const struct weir_supervisor *sup, const struct weir_sup_mps *m,
                  const struct weir_sup_worker *worker)
{
    return worker->used && worker->kind == WEIR_WORKER_PROGRAM &&
           worker->program.domain == (uint32_t)(m - sup->mps) + 1;
}

static uint32_t n_workers(const struct weir_supervisor *sup, const struct weir_sup_mps *m)
{
    uint32_t n = 0;

    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        n += weir_mps_has(sup, m, &sup->workers[i]);
    }
    return n;
}

uint32_t weir_mps_tenants(const struct weir_supervisor *sup, const struct weir_sup_mps *domain)
{
    bool there[WEIR_CONFIG_TENANTS_MAX] = {false};
    uint32_t n = 0;

    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        const struct weir_sup_worker *w = &sup->workers[i];

        if (weir_mps_has(sup, domain, w) && w->program.busy && !there[w->tenant]) {
            there[w->tenant] = true;
            n++;
        }
    }
    return n;
}

static bool has_devices(const struct weir_sup_mps *m, const char *devices)
{
    return m->used && strcmp(m->devices, devices) == 0;
}

const struct weir_link_sms *weir_mps_sms(const struct weir_supervisor *sup, const char *devices)
{
    for (int i = 0; i < WEIR_MPS_MAX; i++) {
        if (has_devices(&sup->mps[i], devices) && sup->mps[i].sms.n != 0) {
            return &sup->mps[i].sms;
        }
    }
    return NULL;
}

void weir_mps_sms_told(struct weir_supervisor *sup, const struct weir_sup_worker *worker,
                       const struct weir_link_sms *sms)
{
    struct weir_sup_mps *m = weir_mps_of(sup, worker);

    if (m != NULL && !worker->ready && worker->program.sm_share_pct == 0 && m->sms.n == 0 &&
        sms->n <= WEIR_LINK_DEVICES_MAX) {
        m->sms = *sms;
    }
}

uint32_t weir_mps_busy(const struct weir_supervisor *sup, const struct weir_sup_worker *worker)
{
    uint32_t domain = worker->program.domain, n = 0;

    for (int i = 0; domain != 0 && i < WEIR_WORKERS_MAX; i++) {
        n += weir_mps_has(sup, &sup->mps[domain - 1], &sup->workers[i]) &&
             sup->workers[i].program.busy;
    }
    return n;
}

bool weir_mps_open(struct weir_supervisor *sup, const char *devices)
{
    for (int i = 0; i < WEIR_MPS_MAX; i++) {
        struct weir_sup_mps *m = &sup->mps[i];

        if (!m->used) {
            *m = (struct weir_sup_mps){.used = true, .user = &sup->worker_user};
            snprintf(m->devices, sizeof m->devices, "%s", devices);
            start(sup, m, weir_clock_now_ns());
            return true;
        }
    }
    return false;
}

static bool has_room(const struct weir_supervisor *sup, const struct weir_sup_mps *m)
{
    return n_workers(sup, m) < WEIR_MPS_CLIENTS_MAX;
}

/* Could a worker be started in it now? */
static bool is_open(const struct weir_supervisor *sup, const struct weir_sup_mps *m)
{
    return has_room(sup, m) && m->ready && !m->leaving && m->again_ns <= weir_clock_now_ns();
}

enum weir_mps_room weir_mps_room(struct weir_supervisor *sup, const char *devices,
                                 uint32_t *ret_domain)
{
    enum weir_mps_room room = WEIR_MPS_NO_ROOM;

    for (int i = 0; i < WEIR_MPS_MAX; i++) {
        struct weir_sup_mps *m = &sup->mps[i];

        if (!has_devices(m, devices)) {
            continue;
        }
        if (is_open(sup, m)) {
            *ret_domain = (uint32_t)i + 1;
            return WEIR_MPS_ROOM;
        }
        if (has_room(sup, m)) {
            room = WEIR_MPS_ROOM_SOON;
        } else if (room == WEIR_MPS_NO_ROOM) {
            room = WEIR_MPS_FULL;
        }
    }
    if (room == WEIR_MPS_NO_ROOM && weir_mps_open(sup, devices)) {
        room = WEIR_MPS_ROOM_SOON;
    }
    return room;
}

bool weir_mps_is_surplus(const struct weir_supervisor *sup, const struct weir_sup_worker *worker)
{
    for (uint32_t i = 0; i + 1 < worker->program.domain; i++) {
        const struct weir_sup_mps *m = &sup->mps[i];

        if (has_devices(m, worker->devices) && is_open(sup, m)) {
            return true;
        }
    }
    return false;
}

static void have_all_leave(struct weir_supervisor *sup, struct weir_sup_mps *m)
{
    const struct weir_link_message message = {.type = WEIR_LINK_CONTEXT_GONE};

    m->leaving = true;
    m->leave_by_ns = weir_clock_now_ns() + LEAVE_WAIT_NS;
    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        if (weir_mps_has(sup, m, &sup->workers[i])) {
            sup->workers[i].program.stopping = true;
            (void)weir_sup_worker_send(sup, i, &message, -1);
        }
    }
}

void weir_mps_faulted(struct weir_supervisor *sup, struct weir_sup_mps *m)
{
    if (!m->leaving) { /* else it is one of those who were told to leave */
        weir_log_warn("mps: a fault, so all of its programs end folder=%s workers=%u", m->folder,
                      n_workers(sup, m));
        have_all_leave(sup, m);
    }
}

void weir_mps_kill(struct weir_supervisor *sup, struct weir_sup_worker *worker)
{
    struct weir_sup_mps *m = weir_mps_of(sup, worker);
    int pidfd = (int)syscall(SYS_pidfd_open, worker->pid, 0);
    pid_t helper;

    worker->program.terminated = true;
    if (m == NULL || m->leaving || pidfd < 0) { /* a context that is gone can do no harm */
        kill(worker->pid, SIGKILL);
        if (pidfd >= 0) {
            close(pidfd);
        }
        return;
    }
    helper = fork();
    if (helper == 0) {
        char servers[ANSWER_BYTES], answer[ANSWER_BYTES], line[64], *rest = NULL;

        if (fork() != 0) {
            _exit(0); /* nobody waits for the other */
        }
        (void)say(m, "get_server_list\n", SAY_WAIT_MS, servers, sizeof servers);
        for (const char *server = strtok_r(servers, " \n", &rest); server != NULL;
             server = strtok_r(NULL, " \n", &rest)) {
            snprintf(line, sizeof line, "terminate_client %.20s %d\n", server, (int)worker->pid);
            (void)say(m, line, SAY_WAIT_MS, answer, sizeof answer);
        }
        (void)syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
        _exit(0);
    }
    if (helper > 0) {
        waitpid(helper, NULL, 0);
    } else {
        kill(worker->pid, SIGKILL);
    }
    close(pidfd);
}

/* ---------------------------------------------------------------- a server that does not serve */

bool weir_mps_give_up(struct weir_supervisor *sup, const char *why)
{
    if (sup->config.workers.mps != WEIR_MPS_AUTO || sup->mps_proved) {
        return false;
    }
    if (sup->mps_wanted) {
        weir_log_warn("mps: not used, contexts take turns on the GPU why=\"%s\"", why);
    }
    sup->mps_wanted = false;
    for (int i = 0; i < WEIR_MPS_MAX; i++) {
        if (sup->mps[i].used && sup->mps[i].pid > 0) {
            kill(sup->mps[i].pid, SIGTERM); /* weir_mps_close() takes what it leaves */
        }
    }
    return true;
}

void weir_mps_serves(struct weir_supervisor *sup, const struct weir_sup_worker *worker)
{
    struct weir_sup_mps *m = weir_mps_of(sup, worker);

    if (m != NULL) {
        sup->mps_proved = true;
        m->served_ns = weir_clock_now_ns();
    }
}

/* When the server has taken too long for a worker that starts; WEIR_FOREVER: none does. */
static uint64_t stuck_at_ns(const struct weir_supervisor *sup, const struct weir_sup_mps *m)
{
    uint64_t first_ns = WEIR_FOREVER;

    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        const struct weir_sup_worker *w = &sup->workers[i];

        if (weir_mps_has(sup, m, w) && !w->ready && !w->program.stopping &&
            w->started_ns < first_ns) {
            first_ns = w->started_ns;
        }
    }
    if (m->pid == 0 || m->leaving || first_ns == WEIR_FOREVER) {
        return WEIR_FOREVER;
    }
    return (first_ns > m->served_ns ? first_ns : m->served_ns) + STUCK_NS;
}

/* Its servers are the daemon's children. */
static void kill_servers(const struct weir_sup_mps *m)
{
    char path[64], pids[ANSWER_BYTES], *rest = NULL;
    ssize_t n = -1;
    int fd;

    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)m->pid, (int)m->pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        n = read(fd, pids, sizeof pids - 1);
        close(fd);
    }
    pids[n > 0 ? n : 0] = 0;
    for (char *pid = strtok_r(pids, " ", &rest); pid != NULL; pid = strtok_r(NULL, " ", &rest)) {
        long value = strtol(pid, NULL, 10);

        if (value > 1) {
            kill((pid_t)value, SIGKILL);
        }
    }
}

/*
 * A server was seen to take no client any more, and its clients' calls not to return, when an
 * assert of one fell together with the start of others (H200, driver 580, once in some thirty
 * asserts). Then it is replaced, which ends the programs there: they would wait for ever.
 */
static void look_at_starting(struct weir_supervisor *sup, struct weir_sup_mps *m, uint64_t now_ns)
{
    if (stuck_at_ns(sup, m) > now_ns) {
        return;
    }
    weir_log_error("mps: the server takes no client, so it and all of its programs end folder=%s "
                   "workers=%u",
                   m->folder, n_workers(sup, m));
    kill_servers(m);
    kill(m->pid, SIGKILL);
    have_all_leave(sup, m);
}

/* ---------------------------------------------------------------- time */

static void look_at_daemon(struct weir_supervisor *sup, struct weir_sup_mps *m, uint64_t now_ns)
{
    if (m->pid == 0 && now_ns - m->started_ns >= RETRY_NS) {
        start(sup, m, now_ns);
    } else if (m->pid != 0 && !m->ready && is_there(m)) {
        m->ready = true;
    } else if (m->pid != 0 && !m->ready && now_ns - m->started_ns >= START_WAIT_NS) {
        weir_log_error("mps: the control daemon is not ready, killed pid=%d", (int)m->pid);
        kill(m->pid, SIGKILL);
        (void)weir_mps_give_up(sup, "its control daemon does not get ready");
        m->started_ns = now_ns;
    }
}

static void look_at_leaving(struct weir_supervisor *sup, struct weir_sup_mps *m, uint64_t now_ns)
{
    if (n_workers(sup, m) == 0) {
        m->leaving = false;
        m->again_ns = now_ns + RECOVERS_NS;
        return;
    }
    if (now_ns < m->leave_by_ns) {
        return;
    }
    m->leave_by_ns = now_ns + LEAVE_WAIT_NS;
    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        if (weir_mps_has(sup, m, &sup->workers[i]) && sup->workers[i].pid > 0) {
            kill(sup->workers[i].pid, SIGKILL);
        }
    }
}

void weir_mps_tick(struct weir_supervisor *sup, uint64_t now_ns)
{
    for (int i = 0; i < WEIR_MPS_MAX; i++) {
        struct weir_sup_mps *m = &sup->mps[i];

        if (m->used && sup->mps_wanted) {
            look_at_daemon(sup, m, now_ns);
            look_at_starting(sup, m, now_ns);
        }
        if (m->used && m->leaving) {
            look_at_leaving(sup, m, now_ns);
        }
    }
}

int weir_mps_wait_ms(const struct weir_supervisor *sup, uint64_t now_ns)
{
    uint64_t next_ns = WEIR_FOREVER;

    for (int i = 0; i < WEIR_MPS_MAX; i++) {
        const struct weir_sup_mps *m = &sup->mps[i];
        uint64_t at_ns = WEIR_FOREVER;

        if (!m->used || !sup->mps_wanted) {
            continue;
        }
        if (m->pid == 0) {
            at_ns = m->started_ns + RETRY_NS;
        } else if (!m->ready) {
            at_ns = now_ns + LOOK_MS * WEIR_NS_PER_MS;
        } else if (m->leaving) {
            at_ns = m->leave_by_ns;
        } else if (m->again_ns > now_ns) {
            at_ns = m->again_ns;
        }
        if (stuck_at_ns(sup, m) < at_ns) {
            at_ns = stuck_at_ns(sup, m);
        }
        if (weir_mps_blame_next_ns(m, now_ns) < at_ns) {
            at_ns = weir_mps_blame_next_ns(m, now_ns);
        }
        next_ns = at_ns < next_ns ? at_ns : next_ns;
    }
    return weir_poll_ms(next_ns, now_ns);
}

void weir_mps_reap(struct weir_supervisor *sup)
{
    for (int i = 0; i < WEIR_MPS_MAX; i++) {
        struct weir_sup_mps *m = &sup->mps[i];
        int status;

        if (m->used && m->pid > 0 && waitpid(m->pid, &status, WNOHANG) == m->pid) {
            m->pid = 0;
            m->ready = false;
            if (!sup->stopping && sup->mps_wanted) {
                weir_log_error("mps: the control daemon ended folder=%s status=0x%x", m->folder,
                               (unsigned)status);
                (void)weir_mps_give_up(sup, "its control daemon ends");
            }
        }
    }
}

void weir_mps_close(struct weir_supervisor *sup)
{
    char answer[ANSWER_BYTES], path[PATH_BYTES];
    static const char *const files[] = {"control",
                                        "control_lock",
                                        "control_privileged",
                                        "log",
                                        "control.log",
                                        LOG,
                                        "nvidia-cuda-mps-control.pid"};

    for (int i = 0; i < WEIR_MPS_MAX; i++) {
        struct weir_sup_mps *m = &sup->mps[i];

        if (!m->used) {
            continue;
        }
        if (m->pid > 0) {
            (void)say(m, "quit -t 1\n", QUIT_WAIT_MS, answer, sizeof answer);
            for (int k = 0; k < QUIT_WAIT_MS / LOOK_MS && waitpid(m->pid, NULL, WNOHANG) == 0;
                 k++) {
                poll(NULL, 0, LOOK_MS);
            }
            kill(m->pid, SIGKILL); /* without effect if it has ended */
            waitpid(m->pid, NULL, 0);
        }
        for (size_t k = 0; k < sizeof files / sizeof files[0]; k++) {
            unlink(path_of(m, files[k], path, sizeof path));
        }
        rmdir(m->folder);
        m->used = false;
    }
}

void weir_mps_environment(struct weir_supervisor *sup, const struct weir_sup_worker *worker)
{
    const struct weir_sup_mps *m = weir_mps_of(sup, worker);
    char percent[16];

    if (worker->kind == WEIR_WORKER_PROGRAM) {
        unsetenv(PERCENTAGE); /* the host's own is not meant for it */
    }
    if (m != NULL && worker->program.sm_share_pct != 0) {
        snprintf(percent, sizeof percent, "%u", worker->program.sm_share_pct);
        setenv(PERCENTAGE, percent, 1);
    }
    if (m != NULL) {
        set_folders(m);
    } else if (worker->kind == WEIR_WORKER_PROGRAM && worker->program.native) {
        /* A folder without a daemon, so that the site's own is not found either. */
        setenv("CUDA_MPS_PIPE_DIRECTORY", "/nonexistent", 1);
    }
}
