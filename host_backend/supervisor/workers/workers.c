/*
 * Starts workers, watches their links and ends, and restarts them with a growing pause when they
 * die.
 *
 * After a worker has lived for 30 s, its next pause is short again. If the very first worker cannot
 * open a driver, the supervisor ends, because nobody might read a log.
 *
 * A worker of one tenant may ask to be restarted with the number of connections that a program
 * wants (device/connections.c). That is no failure and needs no pause, but happens at most once a
 * second.
 */
#include "host_backend/supervisor/workers/workers.h"
#include "base/fd.h"
#include "host_backend/supervisor/domains/mps.h"
#include "host_backend/supervisor/state/book.h"
#include "host_backend/supervisor/state/extras.h"
#include "host_backend/supervisor/state/outbox.h"
#include "host_backend/supervisor/state/sockets.h"
#include "host_backend/supervisor/state/supervisor.h"
#include "host_backend/supervisor/state/worker_link.h"
#include "host_backend/supervisor/watch/events.h"
#include "host_backend/supervisor/workers/programs.h"
#include "host_backend/supervisor/workers/worker_log.h"
#include "host_backend/supervisor/workers/worker_process.h"

#include "base/clock.h"
#include "base/log.h"
#include "host_backend/config/status_text.h"
#include "proto/wire/control.h"
#include "proto/wire/keys.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAUSE_FIRST_NS     (100 * WEIR_NS_PER_MS)
#define PAUSE_LAST_NS      (10 * WEIR_NS_PER_S)
#define SOUND_AFTER_NS     (30 * WEIR_NS_PER_S)
#define RENEW_PAUSE_NS     WEIR_NS_PER_S
#define STOPPED_WAIT_NS    (5 * WEIR_NS_PER_S) /* time until a stopped worker is killed */
#define ENDPOINT_BYTES     (WEIR_CONFIG_PATH_BYTES + 96)
#define SHARED_CONNECTIONS WEIR_CONTROL_MAX_CONNECTIONS /* for a worker of many tenants */

enum weir_status weir_sup_worker_new(struct weir_supervisor *sup,
                                     const struct weir_sup_worker *like, int *ret_worker)
{
    int slot = 0;

    while (slot < WEIR_WORKERS_MAX && sup->workers[slot].used) {
        slot++;
    }
    WEIR_FAIL_IF(slot == WEIR_WORKERS_MAX, WEIR_ERR_FULL);
    sup->workers[slot] = *like;
    weir_log_rate_init(&sup->workers[slot].log_rate);
    sup->workers[slot].used = true;
    sup->workers[slot].link = -1;
    enum weir_status status = weir_sup_worker_start(sup, slot);
    if (status != WEIR_OK) {
        sup->workers[slot].used = false;
        return status;
    }
    *ret_worker = slot;
    return WEIR_OK;
}

/* Is this the shared worker with the host's own list of devices, which serves remote guests? */
static bool is_main(const struct weir_supervisor *sup, const struct weir_sup_worker *w)
{
    return w->kind == WEIR_WORKER_SHARED && w->group[0] == 0 &&
           strcmp(w->devices, sup->config.devices) == 0;
}

/* The name of a worker's sockets in the run directory. */
static const char *name_of(const struct weir_supervisor *sup, const struct weir_sup_worker *w,
                           char *room, size_t bytes)
{
    if (w->kind == WEIR_WORKER_PROGRAM) {
        snprintf(room, bytes, "program@%d", (int)(w - sup->workers));
    } else if (w->kind == WEIR_WORKER_TENANT) {
        snprintf(room, bytes, "%s", sup->tenants[w->tenant].config.name);
    } else if (is_main(sup, w)) {
        snprintf(room, bytes, "shared");
    } else {
        snprintf(room, bytes, "shared.%d", (int)(w - sup->workers));
    }
    return room;
}

/* Read the key; only this user may have access to the file. Without a key the worker does not
 * listen. */
static void read_server_key(const char *path, char ret_key[WEIR_KEY_Z85_BYTES])
{
    enum weir_status status = *path != 0 ? weir_key_read(path, ret_key) : WEIR_OK;

    if (status != WEIR_OK) {
        weir_log_error("supervisor: no server key path=%s why=\"%s\"", path,
                       weir_status_text(status));
    }
}

/* @param page_fd the page of WEIR_LINK_CONFIG at the first call; later -1. */
static bool send_config(struct weir_supervisor *sup, int worker, int page_fd)
{
    struct weir_sup_worker *w = &sup->workers[worker];
    struct weir_link_message message = {.type = WEIR_LINK_CONFIG};
    const struct weir_link_sms *sms = weir_mps_sms(sup, w->devices);
    struct weir_link_config *c = &message.config;

    weir_sup_config_fill(sup, c);
    w->without_tcp = is_main(sup, w) && sup->config.listen_tcp[0] != 0 && sup->tcp_fd < 0;
    if (is_main(sup, w) && !w->without_tcp) {
        snprintf(c->listen_tcp, sizeof c->listen_tcp, "%s", sup->config.listen_tcp);
        read_server_key(sup->config.server_key, c->server_key);
    }
    (void)name_of(sup, w, c->name, sizeof c->name);
    snprintf(c->devices, sizeof c->devices, "%s", w->devices);
    c->connections = w->kind == WEIR_WORKER_SHARED ? SHARED_CONNECTIONS
                     : w->program.domain != 0      ? w->program.connections
                                                   : w->connections.wanted;
    c->connections_of_guest = w->kind == WEIR_WORKER_TENANT && !w->connections.failed;
    c->under_mps = weir_mps_of(sup, w) != NULL;
    if (w->program.sm_share_pct != 0 && sms) {
        c->sm_share_pct = w->program.sm_share_pct;
        c->sms = *sms;
    }
    c->by_program = w->kind == WEIR_WORKER_PROGRAM;
    c->alone = w->kind != WEIR_WORKER_SHARED;
    c->gate_comes = w->gate.comes = sup->gate.link >= 0;
    c->started_ns = w->started_ns;
    return weir_sup_worker_send(sup, worker, &message, page_fd);
}

/* The path of the worker's ZeroMQ socket. Guests get it that connect to the tenant's socket and
 * cannot share memory with the host. */
static void endpoint_of(const struct weir_supervisor *sup, const struct weir_sup_worker *w,
                        char path[ENDPOINT_BYTES])
{
    char name[WEIR_TENANT_NAME_BYTES + 16];

    snprintf(path, ENDPOINT_BYTES, "%s/zmq-%s.sock", sup->config.run_dir,
             name_of(sup, w, name, sizeof name));
}

static void remove_endpoint(const struct weir_supervisor *sup, const struct weir_sup_worker *w)
{
    char path[ENDPOINT_BYTES];

    endpoint_of(sup, w, path);
    unlink(path);
}

/* -1: Weir is built without ZeroMQ. Any user may connect to the socket; a token shows who may use
 * it. */
static enum weir_status open_endpoint(struct weir_supervisor *sup, const struct weir_sup_worker *w,
                                      int *ret_fd)
{
    *ret_fd = -1;
#ifdef WEIR_WITH_ZMQ
    char path[ENDPOINT_BYTES];

    endpoint_of(sup, w, path);
    unlink(path); /* the process that listened there before has ended */
    enum weir_status status = weir_sup_listen(path, 0666, ret_fd);
    if (status != WEIR_OK && status != WEIR_ERR_NO_DESCRIPTOR) { /* the caller reports that */
        int why = errno;

        weir_log_limit_thread(&sup->rates.starts, "-"); /* each new program may cause it */
        weir_log_error("supervisor: a worker cannot start: no socket for ZeroMQ path=%s why=\"%s\"",
                       path, status == WEIR_ERR_IO ? strerror(why) : weir_status_text(status));
        weir_log_limit_thread(NULL, NULL);
    }
    return status;
#else
    (void)sup;
    (void)w;
    return WEIR_OK;
#endif
}

/* Let a worker listen. Before it knows its tenants, it would refuse their keys. */
static void let_listen(struct weir_supervisor *sup, int worker)
{
    const struct weir_link_message message = {.type = WEIR_LINK_LISTEN};
    int fd = is_main(sup, &sup->workers[worker]) ? sup->tcp_fd : -1;

    (void)!weir_sup_worker_send(sup, worker, &message, fd); /* as in send_config() */
}

void weir_sup_workers_listen(struct weir_supervisor *sup)
{
    sup->life.listening = true;
    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        if (sup->workers[i].used && sup->workers[i].told) {
            let_listen(sup, i);
        }
    }
}

/* Find the main worker that runs without remote guests; -1: there is none. */
static int find_without_tcp(const struct weir_supervisor *sup)
{
    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        if (sup->workers[i].used && sup->workers[i].pid > 0 && sup->workers[i].without_tcp) {
            return i;
        }
    }
    return -1;
}

void weir_sup_tcp_again(struct weir_supervisor *sup)
{
    const struct weir_link_message release = {.type = WEIR_LINK_RELEASE};

    weir_sup_tcp_open(sup);
    if (sup->tcp_fd < 0) {
        return;
    }
    int worker = find_without_tcp(sup);
    if (worker < 0) {
        weir_sup_extra_works(sup, WEIR_EXTRA_TCP);
        return;
    }
    weir_sup_extra_fails(sup, WEIR_EXTRA_TCP,
                         "the worker of remote programs begins to listen when "
                         "no virtual machine's program is in it");
    if (sup->workers[worker].ready) { /* it answers STAYS, or ends and is restarted */
        sup->workers[worker].ready = false;
        sup->workers[worker].connections.renewing = true;
        (void)weir_sup_worker_send(sup, worker, &release, -1);
    }
}

/* Start a worker's process, with its descriptors. */
static enum weir_status launch(struct weir_supervisor *sup, struct weir_sup_worker *w, int page_fd)
{
    int listener;

    WEIR_TRY(open_endpoint(sup, w, &listener));
    enum weir_status status = weir_sup_spawn(sup, w, listener, page_fd, &w->pid, &w->link, &w->log);
    weir_fd_close(listener);
    if (status != WEIR_OK) {
        remove_endpoint(sup, w);
    }
    return status;
}

static void tell_event(struct weir_supervisor *sup, const struct weir_sup_worker *w,
                       enum weir_event_kind kind, pid_t pid, const char *why)
{
    const struct weir_sup_event event = {.kind = kind,
                                         .tenant = w->tenant >= 0 ? &sup->tenants[w->tenant] : NULL,
                                         .worker = (uint64_t)pid};

    weir_sup_event(sup, &event, "%s", why);
}

enum weir_status weir_sup_worker_start(struct weir_supervisor *sup, int worker)
{
    struct weir_sup_worker *w = &sup->workers[worker];
    int page_fd;

    w->started_ns = weir_host_clock_ns();
    WEIR_TRY(weir_sup_spin_worker_starts(sup, w, &page_fd));
    enum weir_status status = launch(sup, w, page_fd);
    if (status != WEIR_OK) {
        weir_sup_spin_worker_gone(w);
        close(page_fd);
        return status;
    }
    w->ready = w->told = false;
    w->answering = false;
    w->restart_at_ns = 0;
    weir_log_limit_thread(&sup->rates.starts, "-"); /* each new program may cause it */
    weir_log_info("supervisor: worker started worker=%d pid=%d mps_domain=%u", worker, (int)w->pid,
                  w->program.domain);
    weir_log_limit_thread(NULL, NULL);
    sup->running.starts++;
    tell_event(sup, w, WEIR_EVENT_WORKER_STARTED, w->pid, "");
    (void)send_config(sup, worker, page_fd); /* the keeper reports a worker that is gone */
    close(page_fd);
    return WEIR_OK;
}

static const char *why_text(int status, char *room, size_t bytes)
{
    if (WIFSIGNALED(status)) {
        snprintf(room, bytes, "signal %d", WTERMSIG(status));
    } else if (WEXITSTATUS(status) == WEIR_WORKER_EXIT_STICKY) {
        snprintf(room, bytes, "the GPU context died");
    } else if (WEXITSTATUS(status) == WEIR_WORKER_EXIT_OVERDUE) {
        snprintf(room, bytes, "work of a program that is gone was given up");
    } else if (WEXITSTATUS(status) == WEIR_WORKER_EXIT_NO_FD) {
        snprintf(room, bytes, "the host has no file descriptor left for it");
    } else if (WEXITSTATUS(status) == WEIR_WORKER_EXIT_FULL) {
        snprintf(room, bytes, "the device has no room for another context");
    } else if (WEXITSTATUS(status) == WEIR_WORKER_EXIT_DRIVER) {
        snprintf(room, bytes, "no driver or no device");
    } else {
        snprintf(room, bytes, "exit status %d", WEXITSTATUS(status));
    }
    return room;
}

/* Has the worker ended as renew() asked? Then the next one starts without a pause. */
static bool on_renewed(struct weir_sup_worker *w, int status, uint64_t now_ns)
{
    bool wanted = w->connections.renewing;

    w->connections.renewing = false;
    if (!wanted || !WIFEXITED(status) || WEXITSTATUS(status) != WEIR_WORKER_EXIT_OK) {
        return false;
    }
    w->restart_at_ns = now_ns;
    if (w->connections.renewed_ns != 0 && w->connections.renewed_ns + RENEW_PAUSE_NS > now_ns) {
        w->restart_at_ns = w->connections.renewed_ns + RENEW_PAUSE_NS;
    }
    w->connections.renewed_ns = w->restart_at_ns;
    return true;
}

/* Give up a requested number of connections if the driver may have had no room for it. */
static bool drop_connections(struct weir_sup_worker *w, int status)
{
    w->connections.failed = w->connections.wanted != 0 && WEIR_WORKER_HAS_NO_DEVICE(status);
    if (w->connections.failed) {
        w->connections.wanted = 0;
    }
    return w->connections.failed;
}

void weir_sup_no_gpu(struct weir_supervisor *sup)
{
    const char *driver = sup->config.driver;

    sup->life.stopping = true;
    sup->life.exit_status = WEIR_SERVE_EXIT_NO_GPU;
    if (strcmp(driver, "nvidia") != 0) {
        weir_log_error("supervisor: no device to serve driver=%s: the lines above say why", driver);
    } else if (access("/dev/nvidiactl", F_OK) != 0) {
        weir_log_error(
            "supervisor: no NVIDIA GPU to serve: NVIDIA's driver is not loaded (there is "
            "no /dev/nvidiactl). Install or load it, then start weir again; to try Weir "
            "without a GPU set driver = \"softgpu\" in weir.toml");
    } else {
        weir_log_error(
            "supervisor: no NVIDIA GPU to serve: libcuda.so.1 is missing or finds none, or "
            "not one that devices names (see above, and nvidia-smi -L). Mend that, then "
            "start weir again");
    }
}

/* Handle a dead worker's last messages: one may name the cause of its death. */
static void take_last_messages(struct weir_supervisor *sup, int worker)
{
    const struct weir_sup_worker *w = &sup->workers[worker];
    struct pollfd wait = {w->link, POLLIN, 0};

    while (w->link >= 0 && poll(&wait, 1, 0) > 0) {
        weir_sup_worker_receive(sup, worker); /* closes the link at its end */
    }
}

static void on_death(struct weir_supervisor *sup, int worker, int status)
{
    struct weir_sup_worker *w = &sup->workers[worker];
    uint64_t now_ns = weir_host_clock_ns(), pause_ns = PAUSE_FIRST_NS;
    pid_t pid = w->pid;
    char why[64];

    weir_sup_log_close(sup, w);
    take_last_messages(sup, worker);
    weir_sup_worker_close_link(w);
    w->pid = 0;
    w->stop_by_ns = w->stopped_by_ns = 0;
    weir_sup_gate_worker_gone(sup, worker);
    weir_sup_spin_worker_gone(w);
    weir_sup_drop_all(sup, worker);
    weir_book_drop(sup, WEIR_BOOK_READY, (uint64_t)worker);
    w->program.stopping |= w->resuming; /* the last supervisor may have told it to stop */
    w->resuming = false;
    sup->listener->gone(sup, worker);
    remove_endpoint(sup, w);
    if (w->kind == WEIR_WORKER_PROGRAM) {
        bool ended = w->program.stopping || sup->life.stopping;

        tell_event(sup, w, ended ? WEIR_EVENT_WORKER_ENDED : WEIR_EVENT_WORKER_DIED, pid,
                   ended ? "" : why_text(status, why, sizeof why));
        sup->listener->program_died(sup, worker, status);
        return;
    }
    sup->listener->left(sup, worker);
    if (sup->life.stopping) {
        return;
    }
    if (!w->used) {
        weir_log_info("supervisor: worker ended with its tenant worker=%d", worker);
        tell_event(sup, w, WEIR_EVENT_WORKER_ENDED, pid, "its tenant is gone");
        return;
    }
    if (sup->listener->retires(sup, worker)) {
        tell_event(sup, w, WEIR_EVENT_WORKER_ENDED, pid,
                   "its tenant is in the worker of several tenants from now on");
        return;
    }
    if (on_renewed(w, status, now_ns)) {
        tell_event(sup, w, WEIR_EVENT_WORKER_ENDED, pid, "it starts again with other connections");
        return;
    }
    if (!drop_connections(w, status) && !sup->life.announced && w->restarts == 0 &&
        WEIR_WORKER_HAS_NO_DEVICE(status) && !weir_sup_others_may_serve(sup, worker, false)) {
        weir_sup_no_gpu(sup);
        return;
    }
    weir_log_error("supervisor: worker died worker=%d why=\"%s\"", worker,
                   why_text(status, why, sizeof why));
    tell_event(sup, w, WEIR_EVENT_WORKER_DIED, pid, why);
    bool by_guest = WIFEXITED(status) && (WEXITSTATUS(status) == WEIR_WORKER_EXIT_STICKY ||
                                          WEXITSTATUS(status) == WEIR_WORKER_EXIT_OVERDUE);

    /* A guest's fault does not count against the next worker. */
    w->failures = by_guest || now_ns - w->started_ns > SOUND_AFTER_NS ? 1 : w->failures + 1;
    for (uint32_t i = 1; i < w->failures && pause_ns < PAUSE_LAST_NS; i++) {
        pause_ns *= 2;
    }
    w->restart_at_ns = now_ns + (pause_ns < PAUSE_LAST_NS ? pause_ns : PAUSE_LAST_NS);
    w->restarts++;
    sup->listener->failed(sup, worker);
}

/* A signal has stopped a worker: its programs wait, and new ones would wait, too. */
static void on_stop(struct weir_supervisor *sup, int worker)
{
    struct weir_sup_worker *w = &sup->workers[worker];
    bool serves = w->kind != WEIR_WORKER_PROGRAM || w->program.busy;

    w->program.stopping |= !serves;
    w->stopped_by_ns = weir_host_clock_ns() + (serves ? STOPPED_WAIT_NS : 0);
}

void weir_sup_workers_reap(struct weir_supervisor *sup)
{
    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        struct weir_sup_worker *w = &sup->workers[i];
        int status;

        while (w->used && w->pid > 0 && weir_book_changed(sup, w->pid, &status)) {
            if (WIFSTOPPED(status)) {
                on_stop(sup, i);
            } else if (WIFCONTINUED(status)) {
                w->stopped_by_ns = 0;
            } else {
                on_death(sup, i, status);
            }
        }
    }
}

/* Kill a worker that takes too long to end. */
static void end_late(struct weir_supervisor *sup, int worker, uint64_t now_ns)
{
    struct weir_sup_worker *w = &sup->workers[worker];
    bool stopped = w->stopped_by_ns != 0 && w->stopped_by_ns <= now_ns;

    if (w->pid <= 0 || !(stopped || (w->stop_by_ns != 0 && w->stop_by_ns <= now_ns))) {
        return;
    }
    w->stop_by_ns = w->stopped_by_ns = 0;
    weir_log_warn("supervisor: %s, killed worker=%d",
                  stopped ? "a signal has stopped a worker" : "worker does not stop", worker);
    weir_mps_kill(sup, w);
}

void weir_sup_workers_tick(struct weir_supervisor *sup, uint64_t now_ns)
{
    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        struct weir_sup_worker *w = &sup->workers[i];

        if (w->used && weir_outbox_due_ns(&w->outbox) <= now_ns) {
            weir_sup_worker_flush(sup, i, now_ns);
        }
        if (w->used) {
            end_late(sup, i, now_ns);
        }
        if (!w->used || w->pid != 0 || w->restart_at_ns == 0 || w->restart_at_ns > now_ns) {
            continue;
        }
        enum weir_status status = weir_sup_worker_start(sup, i);
        if (status != WEIR_OK) {
            w->restart_at_ns = now_ns + PAUSE_LAST_NS;
            weir_log_error("supervisor: cannot start a worker worker=%d why=\"%s\"", i,
                           weir_sup_no_worker_text(status));
        }
    }
}

static void on_log(void *user, int index)
{
    struct weir_supervisor *sup = user;

    weir_sup_log_read(sup, &sup->workers[index]);
}

static void on_link(void *user, int index)
{
    struct weir_supervisor *sup = user;

    weir_sup_worker_flush(sup, index, weir_host_clock_ns());
    if (sup->workers[index].link >= 0) {
        weir_sup_worker_receive(sup, index);
    }
}

void weir_sup_workers_watch(struct weir_supervisor *sup, struct weir_host_loop *loop)
{
    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        struct weir_sup_worker *w = &sup->workers[i];

        if (!w->used) {
            continue;
        }
        weir_sup_log_watch(sup, w, loop, on_log, i); /* its log may explain its messages */
        weir_host_loop_watch(loop, w->link, weir_outbox_events(&w->outbox), on_link, sup, i);
        weir_host_loop_wake(loop, weir_outbox_due_ns(&w->outbox));
        if (w->pid == 0 && w->restart_at_ns != 0) {
            weir_host_loop_wake(loop, w->restart_at_ns);
        }
        if (w->pid > 0 && w->stop_by_ns != 0) {
            weir_host_loop_wake(loop, w->stop_by_ns);
        }
        if (w->pid > 0 && w->stopped_by_ns != 0) {
            weir_host_loop_wake(loop, w->stopped_by_ns);
        }
    }
}

void weir_sup_worker_reads(struct weir_supervisor *sup, int worker,
                           const struct weir_link_reads *reads)
{
    sup->workers[worker].told = true;
    weir_sup_gate_gpus(sup, reads);
    weir_sup_gate_worker_starts(sup, worker);
    sup->listener->reads(sup, worker);
    if (sup->life.listening) {
        let_listen(sup, worker);
    }
}

void weir_sup_worker_note(struct weir_supervisor *sup, int worker)
{
    int32_t tenant = sup->workers[worker].tenant;

    weir_book_put(sup, WEIR_BOOK_READY, (uint64_t)worker, &tenant, sizeof tenant, NULL, 0);
}

void weir_sup_worker_ready(struct weir_supervisor *sup, int worker,
                           const struct weir_status_worker *row)
{
    struct weir_sup_worker *w = &sup->workers[worker];

    if (w->ready) {
        return;
    }
    weir_sup_worker_row(w, row);
    w->ready = true;
    weir_sup_worker_note(sup, worker);
    weir_mps_serves(sup, w);
    weir_log_info("supervisor: worker ready worker=%d device=\"%.100s\" devices=%.60s "
                  "driver=\"%.100s\"",
                  worker, w->row.device, w->row.devices, w->row.driver);
    sup->listener->ready(sup, worker);
}

void weir_sup_worker_renew(struct weir_supervisor *sup, int worker, uint32_t connections)
{
    struct weir_sup_worker *w = &sup->workers[worker];

    if (w->kind != WEIR_WORKER_TENANT || w->stop_by_ns != 0 || connections == 0 ||
        connections > WEIR_CONTROL_MAX_CONNECTIONS) {
        weir_log_warn("supervisor: connections refused worker=%d connections=%u", worker,
                      connections);
        return;
    }
    weir_log_info("supervisor: worker starts again for a program worker=%d connections=%u", worker,
                  connections);
    w->connections.wanted = connections;
    w->ready = false;
    w->connections.renewing = true;
    weir_sup_worker_stop(sup, worker);
}

static void receive(struct weir_supervisor *sup, int worker)
{
    struct weir_link_heard heard;
    int link = sup->workers[worker].link;
    enum weir_status status = weir_link_peek(link, &heard.message, &heard.fd);

    if (status == WEIR_ERR_AGAIN) {
        return;
    }
    if (status == WEIR_ERR_NO_MEMORY) { /* memory that was to be kept is lost if the worker dies */
        weir_log_error("supervisor: no descriptors left, a message came without its own worker=%d "
                       "type=%u",
                       worker, heard.message.type);
    } else if (status != WEIR_OK) {
        weir_sup_worker_lose_link(&sup->workers[worker]);
        return;
    }
    sup->listener->hears(sup, worker, &heard);
    if (sup->workers[worker].link == link) { /* else the link is lost, and the message with it */
        weir_link_consume(link);
    }
}

/* Receive messages with a limit on log lines, since a guest that controls a worker may cause any
 * number. */
void weir_sup_worker_receive(struct weir_supervisor *sup, int worker)
{
    weir_log_limit_thread(&sup->workers[worker].log_rate, "-");
    receive(sup, worker);
    weir_log_limit_thread(NULL, NULL);
}

void weir_sup_workers_close(struct weir_supervisor *sup)
{
    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        if (sup->workers[i].used) {
            weir_sup_log_close(sup, &sup->workers[i]);
            weir_sup_worker_close_link(&sup->workers[i]);
            remove_endpoint(sup, &sup->workers[i]);
        }
    }
}

void weir_sup_worker_row(struct weir_sup_worker *worker, const struct weir_status_worker *row)
{
    worker->row = *row;
    weir_status_end_texts(weir_status_worker_fields, &worker->row);
}
