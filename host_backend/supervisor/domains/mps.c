/*
 * Fault domains: MPS servers that the supervisor runs for the workers of programs.
 *
 * A control daemon, its one server and the workers under it are a domain. In a domain, kernels of
 * different programs run side by side with memory protection. A fault of one client ends all of
 * them, and the server takes no new client while an old one lives. So all leave at once, and 0.25 s
 * later the domain serves again. Until then programs go to a domain in reserve, whose server was
 * started before; the domain with the fault is the next reserve. A client that is killed while it
 * has work on the GPU counts as a fault, so one is terminated by the daemon before it is killed. A
 * failed assert is no such fault: it ends only its own client.
 *
 * Contexts of two servers take turns on a GPU. So programs whose lists of devices have a GPU in
 * common, directly or by way of other tenants' lists, are in one domain; others are not, since a
 * fault reaches all of a domain. A server takes 48 clients on a GPU; for more, a further domain
 * opens.
 *
 * Measured: docs/measurements/contexts.md. Design: docs/design/workers.md.
 */
#include "host_backend/supervisor/domains/mps.h"

#include "base/fd.h"
#include "base/file_text.h"
#include "host_backend/supervisor/state/book.h"
#include "host_backend/supervisor/state/supervisor.h"
#include "host_backend/supervisor/state/worker_link.h"

#include "base/clock.h"
#include "base/log.h"
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define START_WAIT_NS    (5 * WEIR_NS_PER_S)
#define RETRY_NS         (2 * WEIR_NS_PER_S)    /* pause after a daemon has ended by itself */
#define RESERVE_RETRY_NS (60 * WEIR_NS_PER_S)   /* the same pause for a domain in reserve */
#define LEAVE_WAIT_NS    (500 * WEIR_NS_PER_MS) /* time to end for workers whose context is gone */
#define RECOVERS_NS      (250 * WEIR_NS_PER_MS) /* time for a server after the last client left */
#define CLOSE_WAIT_NS    (5 * WEIR_NS_PER_S)    /* time for a daemon that was told to quit */
#define STUCK_NS         (15 * WEIR_NS_PER_S)   /* no client for this long: the server is stuck */

/* Connections to the GPU of a server's clients. A server on an H100 took 15 clients with 8 each but
 * not a 16th, so the limit is 120. 48 clients, the most per server, need 96 of these. */
#define CONNECTIONS_MOST  8u /* the driver's own number outside MPS */
#define CONNECTIONS_LEAST 2u /* the driver's own number under MPS */
#define CLIENTS_WITH_MOST                                                                          \
    ((120u - WEIR_MPS_CLIENTS_MAX * CONNECTIONS_LEAST) / (CONNECTIONS_MOST - CONNECTIONS_LEAST))

/* ---------------------------------------------------------------- domains and workers */

struct weir_sup_mps *weir_mps_of(struct weir_supervisor *sup, const struct weir_sup_worker *worker)
{
    return worker->kind == WEIR_WORKER_PROGRAM && worker->program.domain != 0
               ? &sup->mps.of[worker->program.domain - 1]
               : NULL;
}

bool weir_mps_has(const struct weir_supervisor *sup, const struct weir_sup_mps *m,
                  const struct weir_sup_worker *worker)
{
    return worker->used && worker->kind == WEIR_WORKER_PROGRAM &&
           worker->program.domain == (uint32_t)(m - sup->mps.of) + 1;
}

static uint32_t n_workers(const struct weir_supervisor *sup, const struct weir_sup_mps *m)
{
    uint32_t n = 0;

    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        n += weir_mps_has(sup, m, &sup->workers[i]);
    }
    return n;
}

/* The workers that have a context on one of these devices, or may have one. */
static uint32_t n_clients(const struct weir_supervisor *sup, const struct weir_sup_mps *m,
                          const char *devices)
{
    uint32_t n = 0;

    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        n += weir_mps_has(sup, m, &sup->workers[i]) &&
             weir_devices_meet(sup->workers[i].devices, devices);
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

/* Are programs with these devices in the domain, or would they be? */
static bool has_devices(const struct weir_supervisor *sup, const struct weir_sup_mps *m,
                        const char *devices)
{
    return m->used && !m->closing && weir_mps_lists_meet(sup, m->devices, devices);
}

uint32_t weir_mps_busy(const struct weir_supervisor *sup, const struct weir_sup_worker *worker)
{
    uint32_t domain = worker->program.domain, n = 0;

    for (int i = 0; domain != 0 && i < WEIR_WORKERS_MAX; i++) {
        n += weir_mps_has(sup, &sup->mps.of[domain - 1], &sup->workers[i]) &&
             sup->workers[i].program.busy;
    }
    return n;
}

/* ---------------------------------------------------------------- connections */

uint32_t weir_mps_connections(const struct weir_supervisor *sup,
                              const struct weir_sup_worker *worker)
{
    uint32_t n = 0;

    if (worker->program.domain == 0) {
        return 0;
    }
    if (worker->connections.wanted != 0) {
        return worker->connections.wanted < CONNECTIONS_LEAST ? worker->connections.wanted
                                                              : CONNECTIONS_LEAST;
    }
    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        const struct weir_sup_worker *w = &sup->workers[i];

        n += w->used && w != worker && w->program.domain == worker->program.domain &&
             w->program.connections == CONNECTIONS_MOST &&
             weir_devices_meet(w->devices, worker->devices);
    }
    return n < CLIENTS_WITH_MOST ? CONNECTIONS_MOST : CONNECTIONS_LEAST;
}

/* ---------------------------------------------------------------- opening */

static struct weir_sup_mps *open_one(struct weir_supervisor *sup, const char *devices,
                                     uint64_t now_ns)
{
    for (int i = 0; i < WEIR_MPS_MAX; i++) {
        struct weir_sup_mps *m = &sup->mps.of[i];

        if (!m->used) {
            *m = (struct weir_sup_mps){
                .used = true, .user = &sup->running.user, .turn = ++sup->mps.turns};
            snprintf(m->devices, sizeof m->devices, "%s", devices);
            weir_mps_daemon_start(sup, m, now_ns);
            return m;
        }
    }
    return NULL;
}

/* Find the domain in reserve with these devices; NULL: none. */
static struct weir_sup_mps *reserve_of(struct weir_supervisor *sup, const char *devices)
{
    for (int i = 0; i < WEIR_MPS_MAX; i++) {
        if (has_devices(sup, &sup->mps.of[i], devices) && sup->mps.of[i].reserve) {
            return &sup->mps.of[i];
        }
    }
    return NULL;
}

static void use_reserve(struct weir_supervisor *sup, struct weir_sup_mps *m)
{
    m->reserve = false;
    m->turn = ++sup->mps.turns;
    weir_mps_note(sup, m);
    weir_log_info("mps: a domain in reserve takes programs folder=%s", m->folder);
}

bool weir_mps_open(struct weir_supervisor *sup, const char *devices)
{
    struct weir_sup_mps *reserve = reserve_of(sup, devices);

    if (reserve) {
        use_reserve(sup, reserve);
    }
    return reserve || open_one(sup, devices, weir_host_clock_ns());
}

/* Kill the daemon's children, which are its servers. */
static void kill_servers(const struct weir_sup_mps *m)
{
    char path[64], pids[WEIR_MPS_ANSWER_BYTES], *rest = NULL;

    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)m->pid, (int)m->pid);
    (void)weir_file_text(path, pids, sizeof pids);
    for (char *pid = strtok_r(pids, " ", &rest); pid; pid = strtok_r(NULL, " ", &rest)) {
        long value = strtol(pid, NULL, 10);

        if (value > 1) {
            kill((pid_t)value, SIGKILL);
        }
    }
}

/* ---------------------------------------------------------------- when all domains are used */

static bool is_any_busy(const struct weir_supervisor *sup, const struct weir_sup_mps *m)
{
    return weir_mps_tenants(sup, m) != 0;
}

/* Find the domain that programs need least: a reserve, or one without workers or without busy ones.
 * A domain whose last fault is still being traced does not count. */
static struct weir_sup_mps *least_needed(struct weir_supervisor *sup)
{
    struct weir_sup_mps *least = NULL;

    for (int i = 0; i < WEIR_MPS_MAX; i++) {
        struct weir_sup_mps *m = &sup->mps.of[i];

        if (!m->used || m->leaving || m->blame.open || is_any_busy(sup, m)) {
            continue;
        }
        if (m->reserve) {
            return m;
        }
        least = !least || n_workers(sup, m) < n_workers(sup, least) ? m : least;
    }
    return least;
}

bool weir_mps_make_place(struct weir_supervisor *sup)
{
    for (int i = 0; i < WEIR_MPS_MAX; i++) {
        if (!sup->mps.of[i].used || sup->mps.of[i].closing) {
            return true;
        }
    }
    struct weir_sup_mps *m = least_needed(sup);
    WEIR_FAIL_IF(!m, false);
    weir_log_info("mps: a domain ends for programs with other devices folder=%s devices=%s",
                  m->folder, m->devices);
    m->closing = true;
    m->reserve = false;
    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        if (weir_mps_has(sup, m, &sup->workers[i]) && !sup->workers[i].program.stopping) {
            sup->workers[i].program.stopping = true;
            weir_sup_worker_stop(sup, i);
        }
    }
    return true;
}

/* Advance the end of a domain: first workers end, then the daemon, then the folder goes. */
static void look_at_closing(struct weir_supervisor *sup, struct weir_sup_mps *m, uint64_t now_ns)
{
    if (n_workers(sup, m) != 0) {
        return;
    }
    if (m->pid == 0) {
        weir_mps_daemon_forget(m);
        weir_mps_folder_remove(m);
        *m = (struct weir_sup_mps){0};
    } else if (m->close_by_ns == 0) {
        m->close_by_ns = now_ns + CLOSE_WAIT_NS;
        weir_mps_daemon_quit(m);
    } else if (m->close_by_ns <= now_ns) {
        m->close_by_ns = now_ns + CLOSE_WAIT_NS;
        kill_servers(m);
        kill(m->pid, SIGKILL);
    }
}

/* ---------------------------------------------------------------- room */

static bool has_room(const struct weir_supervisor *sup, const struct weir_sup_mps *m,
                     const char *devices)
{
    return n_clients(sup, m, devices) < WEIR_MPS_CLIENTS_MAX;
}

/* Could a worker with these devices be started in the domain now? */
static bool is_open(const struct weir_supervisor *sup, const struct weir_sup_mps *m,
                    const char *devices)
{
    return has_room(sup, m, devices) && m->ready && !m->leaving &&
           m->again_ns <= weir_host_clock_ns();
}

/* Find the domain to be filled first among those that take a worker now; NULL: none. */
static struct weir_sup_mps *first_open(struct weir_supervisor *sup, const char *devices,
                                       enum weir_mps_room *ret_room)
{
    struct weir_sup_mps *first = NULL;

    *ret_room = WEIR_MPS_NO_ROOM;
    for (int i = 0; i < WEIR_MPS_MAX; i++) {
        struct weir_sup_mps *m = &sup->mps.of[i];

        if (!has_devices(sup, m, devices) || m->reserve) {
            continue;
        }
        if (is_open(sup, m, devices)) {
            first = !first || m->turn < first->turn ? m : first;
        }
        if (has_room(sup, m, devices)) {
            *ret_room = WEIR_MPS_ROOM_SOON;
        } else if (*ret_room == WEIR_MPS_NO_ROOM) {
            *ret_room = WEIR_MPS_FULL;
        }
    }
    return first;
}

enum weir_mps_room weir_mps_room(struct weir_supervisor *sup, const char *devices,
                                 uint32_t *ret_domain)
{
    enum weir_mps_room room;
    struct weir_sup_mps *m = first_open(sup, devices, &room), *reserve;

    if (!m && room == WEIR_MPS_ROOM_SOON) { /* there was a fault, or a daemon has ended */
        reserve = reserve_of(sup, devices);
        if (reserve && reserve->serves && is_open(sup, reserve, devices)) {
            use_reserve(sup, reserve);
            m = reserve;
        }
    }
    if (m) {
        *ret_domain = (uint32_t)(m - sup->mps.of) + 1;
        return WEIR_MPS_ROOM;
    }
    if (room == WEIR_MPS_NO_ROOM && weir_mps_open(sup, devices)) {
        room = WEIR_MPS_ROOM_SOON;
    }
    return room;
}

bool weir_mps_is_surplus(const struct weir_supervisor *sup, const struct weir_sup_worker *worker)
{
    uint32_t own = worker->program.domain;

    for (int i = 0; own != 0 && i < WEIR_MPS_MAX; i++) {
        const struct weir_sup_mps *m = &sup->mps.of[i];

        if (m->turn < sup->mps.of[own - 1].turn && has_devices(sup, m, worker->devices) &&
            !m->reserve && is_open(sup, m, worker->devices)) {
            return true;
        }
    }
    return false;
}

static void have_all_leave(struct weir_supervisor *sup, struct weir_sup_mps *m)
{
    const struct weir_link_message message = {.type = WEIR_LINK_CONTEXT_GONE};

    m->leaving = true;
    m->leave_by_ns = weir_host_clock_ns() + LEAVE_WAIT_NS;
    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        if (weir_mps_has(sup, m, &sup->workers[i])) {
            sup->workers[i].program.stopping = true;
            (void)weir_sup_worker_send(sup, i, &message, -1);
        }
    }
}

void weir_mps_faulted(struct weir_supervisor *sup, struct weir_sup_mps *m)
{
    if (!m->leaving) { /* else this worker was already told to leave */
        weir_log_warn("mps: a fault, so all of its programs end folder=%s workers=%u", m->folder,
                      n_workers(sup, m));
        have_all_leave(sup, m);
        sup->programs.spares_paused_ns = 0; /* the next programs wait for spare workers */
    }
}

void weir_mps_kill(struct weir_supervisor *sup, struct weir_sup_worker *worker)
{
    struct weir_sup_mps *m = weir_mps_of(sup, worker);
    int pidfd = (int)syscall(SYS_pidfd_open, worker->pid, 0);

    worker->program.terminated = true;
    if (!m || m->leaving || pidfd < 0) { /* without a context it can cause no fault */
        kill(worker->pid, SIGKILL);
        weir_fd_close(pidfd);
        return;
    }
    pid_t helper = fork();
    if (helper == 0) {
        char servers[WEIR_MPS_ANSWER_BYTES], answer[WEIR_MPS_ANSWER_BYTES], line[64], *rest = NULL;

        pid_t second = fork();
        if (second > 0) {
            _exit(0); /* nobody waits for this grandchild */
        }
        if (second < 0) { /* there is no time to ask the server first */
            (void)syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
            _exit(0);
        }
        if (dup2(pidfd, STDERR_FILENO + 1) >= 0) { /* connections must end when others close them */
            pidfd = STDERR_FILENO + 1;
            (void)close_range((unsigned)pidfd + 1, ~0u, 0);
        }
        (void)weir_mps_say(m, "get_server_list\n", WEIR_MPS_SAY_MS, servers, sizeof servers);
        for (const char *server = strtok_r(servers, " \n", &rest); server;
             server = strtok_r(NULL, " \n", &rest)) {
            snprintf(line, sizeof line, "terminate_client %.20s %d\n", server, (int)worker->pid);
            (void)weir_mps_say(m, line, WEIR_MPS_SAY_MS, answer, sizeof answer);
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

/* ---------------------------------------------------------------- servers that do not serve */

bool weir_mps_give_up(struct weir_supervisor *sup, const char *why)
{
    if (sup->config.workers.mps != WEIR_MPS_AUTO || sup->mps.proved) {
        return false;
    }
    if (sup->mps.wanted) {
        weir_log_warn("mps: not used, contexts take turns on the GPU why=\"%s\"", why);
    }
    sup->mps.wanted = false;
    for (int i = 0; i < WEIR_MPS_MAX; i++) {
        if (sup->mps.of[i].used && sup->mps.of[i].pid > 0) {
            kill(sup->mps.of[i].pid, SIGTERM); /* weir_mps_close() removes what SIGTERM leaves */
        }
    }
    return true;
}

void weir_mps_serves(struct weir_supervisor *sup, const struct weir_sup_worker *worker)
{
    struct weir_sup_mps *m = weir_mps_of(sup, worker);

    if (m) {
        sup->mps.proved = true;
        m->served_ns = weir_host_clock_ns();
    }
}

/* When a worker's start counts as stuck in the server; WEIR_FOREVER: none starts. */
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

/*
 * Replace a server that takes no client any more. This was seen when an assert of one client
 * coincided with the start of others (H200, driver 580, once in some thirty asserts); calls of its
 * clients did not return. The replacement ends these programs, which would wait for ever.
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

/* When to restart a daemon that has ended. One in reserve can wait longer. */
static uint64_t retry_ns(const struct weir_sup_mps *m)
{
    return m->started_ns + (m->reserve ? RESERVE_RETRY_NS : RETRY_NS);
}

static void look_at_daemon(struct weir_supervisor *sup, struct weir_sup_mps *m, uint64_t now_ns)
{
    if (m->pid == 0 && now_ns >= retry_ns(m)) {
        weir_mps_daemon_start(sup, m, now_ns);
    } else if (m->pid != 0 && !m->ready && weir_mps_daemon_is_there(m)) {
        m->ready = true;
    } else if (m->pid != 0 && !m->ready && now_ns - m->started_ns >= START_WAIT_NS) {
        weir_log_error("mps: the control daemon is not ready, killed pid=%d", (int)m->pid);
        kill(m->pid, SIGKILL);
        (void)weir_mps_give_up(sup, "its control daemon does not get ready");
        m->started_ns = now_ns;
    }
}

/* Has another domain taken the programs since this one had its fault? */
static bool is_replaced(struct weir_supervisor *sup, const struct weir_sup_mps *m)
{
    for (int i = 0; i < WEIR_MPS_MAX; i++) {
        const struct weir_sup_mps *other = &sup->mps.of[i];

        if (other->turn > m->turn && has_devices(sup, other, m->devices) && !other->reserve &&
            is_open(sup, other, m->devices)) {
            return !reserve_of(sup, m->devices);
        }
    }
    return false;
}

static void look_at_leaving(struct weir_supervisor *sup, struct weir_sup_mps *m, uint64_t now_ns)
{
    if (n_workers(sup, m) == 0) {
        m->leaving = false;
        m->again_ns = now_ns + RECOVERS_NS;
        m->reserve = is_replaced(sup, m);
        m->serves = m->asked = m->reserve;
        weir_mps_note(sup, m);
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

/* ---------------------------------------------------------------- in reserve */

static void reap_starter(struct weir_sup_mps *m)
{
    int status;

    if (m->starter == 0 || waitpid(m->starter, &status, WNOHANG) != m->starter) {
        return;
    }
    m->starter = 0;
    if (m->closing) {
        return; /* the child has told the daemon to quit */
    }
    m->serves = m->ready && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (m->serves) {
        weir_log_info("mps: a server is in reserve folder=%s", m->folder);
    } else {
        weir_log_warn("mps: no server in reserve, so after a fault programs wait until the domain "
                      "has recovered folder=%s",
                      m->folder);
    }
}

/* Is another domain with these devices in reserve, or about to be? */
static bool has_reserve(struct weir_supervisor *sup, const char *devices, uint64_t now_ns)
{
    bool has = reserve_of(sup, devices) != NULL;

    for (int i = 0; i < WEIR_MPS_MAX && !has; i++) {
        const struct weir_sup_mps *m = &sup->mps.of[i];

        has = has_devices(sup, m, devices) && (m->leaving || m->again_ns > now_ns);
    }
    return has;
}

/* Is there room for another domain in reserve, besides a first one for each other list of
 * devices? */
static bool has_room_for_reserve(const struct weir_supervisor *sup)
{
    uint32_t n = 0, n_used = 0;

    for (int i = 0; i < WEIR_MPS_MAX; i++) {
        n += sup->mps.of[i].used && sup->mps.of[i].reserve;
        n_used += sup->mps.of[i].used;
    }
    return n < WEIR_MPS_RESERVE_MAX && n_used + 2 <= WEIR_MPS_MAX;
}

/* Keep a domain in reserve beside each domain that serves. */
static void keep_reserve(struct weir_supervisor *sup, const struct weir_sup_mps *m, uint64_t now_ns)
{
    if (!sup->life.announced || sup->life.stopping || m->reserve || m->served_ns == 0 ||
        !has_room_for_reserve(sup) || has_reserve(sup, m->devices, now_ns)) {
        return;
    }
    struct weir_sup_mps *reserve = open_one(sup, m->devices, now_ns);
    if (reserve) {
        reserve->reserve = true;
        weir_mps_note(sup, reserve);
    }
}

void weir_mps_tick(struct weir_supervisor *sup, uint64_t now_ns)
{
    for (int i = 0; i < WEIR_MPS_MAX; i++) {
        struct weir_sup_mps *m = &sup->mps.of[i];

        if (m->used && sup->mps.wanted && !m->closing) {
            look_at_daemon(sup, m, now_ns);
            look_at_starting(sup, m, now_ns);
            keep_reserve(sup, m, now_ns);
        }
        if (m->used && m->reserve && m->ready && !m->asked) {
            weir_mps_server_start(m);
        }
        if (m->used && m->leaving) {
            look_at_leaving(sup, m, now_ns);
        }
        if (m->used && m->closing) {
            look_at_closing(sup, m, now_ns);
        }
    }
}

/* When to check a daemon next. SIGCHLD shows the ends of its processes. */
static uint64_t daemon_next_ns(const struct weir_sup_mps *m, uint64_t now_ns)
{
    if (m->pid == 0) {
        return retry_ns(m);
    }
    if (!m->ready) {
        return now_ns + WEIR_MPS_LOOK_MS * WEIR_NS_PER_MS;
    }
    return !m->leaving && m->again_ns > now_ns ? m->again_ns : WEIR_FOREVER;
}

void weir_mps_watch(struct weir_supervisor *sup, struct weir_host_loop *loop)
{
    uint64_t now_ns = weir_host_loop_now_ns(loop);

    for (int i = 0; i < WEIR_MPS_MAX; i++) {
        const struct weir_sup_mps *m = &sup->mps.of[i];

        if (!m->used) {
            continue;
        }
        if (m->leaving) {
            weir_host_loop_wake(loop, m->leave_by_ns);
        }
        if (m->closing && m->close_by_ns != 0) {
            weir_host_loop_wake(loop, m->close_by_ns);
        }
        if (sup->mps.wanted && !m->closing) {
            weir_host_loop_wake(loop, daemon_next_ns(m, now_ns));
            weir_host_loop_wake(loop, stuck_at_ns(sup, m));
        }
        weir_host_loop_wake(loop, weir_mps_blame_next_ns(m, now_ns));
    }
}

void weir_mps_reap(struct weir_supervisor *sup)
{
    for (int i = 0; i < WEIR_MPS_MAX; i++) {
        struct weir_sup_mps *m = &sup->mps.of[i];
        int status;

        reap_starter(m);
        if (m->used && m->pid > 0 && weir_book_ended(sup, m->pid, &status)) {
            m->pid = 0;
            m->ready = false;
            if (!sup->life.stopping && sup->mps.wanted && !m->closing) {
                weir_log_error("mps: the control daemon ended folder=%s status=0x%x", m->folder,
                               (unsigned)status);
                (void)weir_mps_give_up(sup, "its control daemon ends");
            }
        }
    }
}

void weir_mps_close(struct weir_supervisor *sup)
{
    for (int i = 0; i < WEIR_MPS_MAX; i++) {
        if (sup->mps.of[i].used) {
            weir_mps_daemon_quit(&sup->mps.of[i]);
        }
    }
    for (int i = 0; i < WEIR_MPS_MAX; i++) {
        struct weir_sup_mps *m = &sup->mps.of[i];

        if (m->used && m->pid > 0) {
            weir_mps_daemon_await(sup, m);
        }
        if (m->used) {
            weir_mps_folder_remove(m);
        }
        m->used = false;
    }
}
