/*
 * The supervisor's side of the gate process: starts it, like a worker, and restarts it when it
 * dies. The gate process makes a port for each worker; the supervisor passes the port on.
 *
 * The supervisor tells the gate process which tenants a worker serves, before the worker knows
 * them, and the gate process takes no other tenant's work from that worker. It also sends
 * descriptions of the GPUs: workers report these before they have guests, and then get their ports.
 * The gate process saves learned durations in a file that the supervisor opens, since workers must
 * not reach it.
 *
 * A worker does not need the gate to work. Until it has a port, and when the gate has died, its
 * work passes undecided.
 */
#include "base/fd.h"
#include "host_backend/supervisor/state/book.h"
#include "host_backend/supervisor/state/outbox.h"
#include "host_backend/supervisor/state/supervisor.h"
#include "host_backend/supervisor/state/worker_link.h"
#include "host_backend/supervisor/watch/events.h"
#include "host_backend/supervisor/workers/worker_log.h"
#include "host_backend/supervisor/workers/worker_process.h"
#include "host_backend/supervisor/workers/workers.h"

#include "base/clock.h"
#include "base/log.h"
#include "host_backend/config/file_cache.h"
#include "host_backend/config/site_mps.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAUSE_FIRST_NS (100 * WEIR_NS_PER_MS)
#define PAUSE_LAST_NS  (10 * WEIR_NS_PER_S)
#define SOUND_AFTER_NS (30 * WEIR_NS_PER_S)
#define STOP_WAIT_NS   (2 * WEIR_NS_PER_S)
#define PING_WAIT_NS   (2 * WEIR_NS_PER_S)
#define RENEW_PAUSE_NS WEIR_NS_PER_S /* pause before a worker may leave a new port, too */
#define SITE_DOMAIN    0xffffu       /* domain of the site's daemon, above those of our servers */
#define OWN_DOMAIN     0x10000u
#define TIMES          ".times" /* next to the folder of caches, which workers may own */

static bool is_wanted(const struct weir_supervisor *sup)
{
    return strcmp(sup->config.scheduler.policy, "off") != 0;
}

/* Close the link: the gate process exits, or is killed. */
static void lose_link(struct weir_sup_gate *gate)
{
    weir_outbox_clear(&gate->outbox);
    (void)shutdown(gate->link, SHUT_RDWR); /* the keeper has our end, too */
    close(gate->link);
    gate->link = -1;
    gate->alive_by_ns = weir_host_clock_ns() + PING_WAIT_NS;
}

static void on_failure(struct weir_supervisor *sup, enum weir_status status)
{
    if (!sup->life.stopping) { /* the same as in on_failure() for workers */
        weir_log_warn("supervisor: link to the gate lost why=\"%s\"",
                      status == WEIR_ERR_AGAIN ? "it does not read" : weir_status_text(status));
    }
    lose_link(&sup->gate);
}

bool weir_sup_gate_send(struct weir_supervisor *sup, const struct weir_link_message *message,
                        int fd)
{
    struct weir_sup_gate *gate = &sup->gate;
    enum weir_status status = WEIR_ERR_CLOSED;

    if (gate->link >= 0) {
        status = weir_outbox_send(&gate->outbox, gate->link, message, fd);
        if (status != WEIR_OK) {
            on_failure(sup, status);
        }
    }
    return status == WEIR_OK;
}

static void flush(struct weir_supervisor *sup, uint64_t now_ns)
{
    struct weir_sup_gate *gate = &sup->gate;
    enum weir_status status = weir_outbox_flush(&gate->outbox, gate->link, now_ns);

    if (status != WEIR_OK) {
        on_failure(sup, status);
    }
}

/* ---------------------------------------------------------------- messages to the gate process */

void weir_sup_gate_configure(struct weir_supervisor *sup)
{
    struct weir_link_message message = {.type = WEIR_LINK_CONFIG};

    weir_sup_config_fill(sup, &message.config);
    (void)weir_sup_gate_send(sup, &message, -1);
}

void weir_sup_gate_ask(struct weir_supervisor *sup, const struct weir_link_message *message)
{
    sup->gate.answering = weir_sup_gate_send(sup, message, -1);
}

static bool is_known(const struct weir_sup_gate *gate, const uint8_t uuid[16])
{
    for (uint32_t i = 0; i < gate->n_gpus; i++) {
        if (memcmp(gate->gpus[i].uuid, uuid, sizeof gate->gpus[i].uuid) == 0) {
            return true;
        }
    }
    return false;
}

void weir_sup_gate_gpus(struct weir_supervisor *sup, const struct weir_link_reads *reads)
{
    struct weir_link_message message = {.type = WEIR_LINK_GATE_GPU};
    struct weir_sup_gate *gate = &sup->gate;
    uint32_t n = reads->n < WEIR_LINK_DEVICES_MAX ? reads->n : WEIR_LINK_DEVICES_MAX;

    for (uint32_t i = 0; i < n; i++) {
        if (gate->n_gpus == WEIR_LINK_GPUS_MAX || is_known(gate, reads->gpu[i].uuid)) {
            continue; /* the gate process logs the GPUs that it does not serve */
        }
        weir_book_put(sup, WEIR_BOOK_GPU, gate->n_gpus, &reads->gpu[i], sizeof reads->gpu[i], NULL,
                      0);
        message.gpu = gate->gpus[gate->n_gpus++] = reads->gpu[i];
        (void)weir_sup_gate_send(sup, &message, -1);
    }
}

static void send_gpus(struct weir_supervisor *sup)
{
    struct weir_link_message message = {.type = WEIR_LINK_GATE_GPU};

    for (uint32_t i = 0; i < sup->gate.n_gpus; i++) {
        message.gpu = sup->gate.gpus[i];
        (void)weir_sup_gate_send(sup, &message, -1);
    }
}

/* ---------------------------------------------------------------- ports of workers */

/* The scheduling domain of a worker. Workers under one MPS server run side by side; contexts of
 * other workers take turns on the GPU. The host starts its own daemons in other folders, so a
 * daemon in the usual folder is the site's. */
static uint32_t domain_of(const struct weir_supervisor *sup, int worker)
{
    const struct weir_sup_worker *w = &sup->workers[worker];

    if (w->program.domain != 0) {
        return w->program.domain;
    }
    return !w->program.native && weir_site_mps_is_there() ? SITE_DOMAIN
                                                          : OWN_DOMAIN + (uint32_t)worker;
}

void weir_sup_gate_worker_starts(struct weir_supervisor *sup, int worker)
{
    const struct weir_link_message lost = {.type = WEIR_LINK_GATE_LOST};
    struct weir_sup_worker *w = &sup->workers[worker];
    struct weir_link_message message = {.type = WEIR_LINK_GATE_PORT};

    if (sup->gate.link < 0) {
        if (w->gate.comes) { /* the worker waits for the port */
            (void)weir_sup_worker_send(sup, worker, &lost, -1);
        }
        return;
    }
    w->gate.port = ++sup->gate.last_port;
    w->gate.port_ns = weir_host_clock_ns();
    w->gate.deaf = false;
    weir_book_put(sup, WEIR_BOOK_PORT, (uint64_t)worker, &w->gate.port, sizeof w->gate.port, NULL,
                  0);
    message.gate_port = (struct weir_link_gate_port){
        .id = w->gate.port,
        .worker = (uint32_t)worker,
        .tenant = w->tenant,
        .domain = domain_of(sup, worker),
    };
    (void)weir_sup_gate_send(sup, &message, -1);
    weir_sup_tenants_serve(sup, worker);
}

void weir_sup_gate_worker_serves(struct weir_supervisor *sup, int worker,
                                 const struct weir_sup_tenant *tenant)
{
    const struct weir_sup_worker *w = &sup->workers[worker];
    const struct weir_link_message message = {.type = WEIR_LINK_GATE_PORT_TENANT,
                                              .gate_port = {.id = w->gate.port,
                                                            .worker = (uint32_t)worker,
                                                            .tenant = (int32_t)tenant->index}};

    if (w->gate.port != 0) {
        (void)weir_sup_gate_send(sup, &message, -1);
    }
}

void weir_sup_gate_worker_gone(struct weir_supervisor *sup, int worker)
{
    struct weir_link_message message = {.type = WEIR_LINK_GATE_PORT_GONE,
                                        .gate_port = {.id = sup->workers[worker].gate.port}};

    if (sup->workers[worker].gate.port != 0) {
        sup->workers[worker].gate.port = 0;
        weir_book_drop(sup, WEIR_BOOK_PORT, (uint64_t)worker);
        (void)weir_sup_gate_send(sup, &message, -1);
    }
}

/* Pass on a port that the gate process has made; its worker may be gone. Without a descriptor (none
 * was made, or this process has none left) the worker learns that it has no port. */
static void on_port(struct weir_supervisor *sup, struct weir_link_heard *heard)
{
    const struct weir_link_message *message = &heard->message;
    const struct weir_link_message lost = {.type = WEIR_LINK_GATE_LOST};
    uint32_t worker = message->gate_port.worker;

    if (worker >= WEIR_WORKERS_MAX || !sup->workers[worker].used ||
        sup->workers[worker].gate.port != message->gate_port.id) {
        return;
    }
    if (heard->fd < 0) {
        weir_log_error("supervisor: a worker has no port to the gate, its work is not scheduled "
                       "worker=%u",
                       worker);
        weir_sup_gate_worker_gone(sup, (int)worker);
        (void)weir_sup_worker_send(sup, (int)worker, &lost, -1);
        return;
    }
    (void)weir_sup_worker_send(sup, (int)worker, message, heard->fd);
}

/* ---------------------------------------------------------------- an unresponsive gate process */

/* A worker reports that the gate process does not read. That may be wrong, so ask the gate process
 * first. */
void weir_sup_gate_deaf(struct weir_supervisor *sup, int worker)
{
    const struct weir_link_message ping = {.type = WEIR_LINK_PING};
    struct weir_sup_worker *w = &sup->workers[worker];
    uint64_t now_ns = weir_host_clock_ns();

    if (w->gate.port == 0 || now_ns - w->gate.port_ns < RENEW_PAUSE_NS) {
        return;
    }
    w->gate.deaf = true;
    if (sup->gate.alive_by_ns == 0 && weir_sup_gate_send(sup, &ping, -1)) {
        sup->gate.alive_by_ns = now_ns + PING_WAIT_NS;
    }
}

/* The gate process answers: give new ports to the workers that have left theirs. */
static void on_ping(struct weir_supervisor *sup, struct weir_link_heard *heard)
{
    (void)heard;
    sup->gate.alive_by_ns = 0;
    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        if (sup->workers[i].used && sup->workers[i].gate.deaf) {
            weir_sup_gate_worker_gone(sup, i);
            weir_sup_gate_worker_starts(sup, i);
        }
    }
}

/* ---------------------------------------------------------------- its life */

static void send_times(struct weir_supervisor *sup)
{
    const struct weir_link_message message = {.type = WEIR_LINK_GATE_TIMES};
    int fd = weir_file_cache_open_beside(sup->config.forms.cache_dir, TIMES);

    if (fd >= 0) {
        (void)weir_sup_gate_send(sup, &message, fd);
        close(fd);
    }
}

static enum weir_status start(struct weir_supervisor *sup)
{
    struct weir_sup_gate *gate = &sup->gate;
    struct weir_link_message message = {.type = WEIR_LINK_CONFIG};
    WEIR_TRY(weir_sup_spawn(sup, NULL, -1, sup->spin.page_fd, &gate->pid, &gate->link, &gate->log));
    gate->started_ns = weir_host_clock_ns();
    gate->restart_at_ns = 0;
    weir_log_info("supervisor: gate started pid=%d", (int)gate->pid);
    weir_sup_event(
        sup,
        &(struct weir_sup_event){.kind = WEIR_EVENT_GATE_STARTED, .worker = (uint64_t)gate->pid},
        "%s", "");
    weir_sup_config_fill(sup, &message.config);
    if (weir_sup_gate_send(sup, &message,
                           sup->spin.page_fd)) { /* the keeper reports the process if it is gone */
        send_times(sup);
        send_gpus(sup);
        weir_sup_tenants_tell_gate(sup);
    }
    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        if (weir_sup_worker_is_told(sup, i)) { /* the others get a port when they begin to read */
            weir_sup_gate_worker_starts(sup, i);
        }
    }
    return WEIR_OK;
}

void weir_sup_gate_adopt(struct weir_supervisor *sup)
{
    struct weir_sup_gate *gate = &sup->gate;
    struct weir_book_row *row = weir_book_adopt(sup, WEIR_BOOK_GATE);
    uint32_t n = 0;

    /* Higher than any earlier number: no host makes a thousand ports a second. */
    gate->last_port = (uint32_t)(weir_clock_now_ns() / WEIR_NS_PER_MS);
    if (row) {
        enum weir_status status =
            weir_sup_adopt(row, NULL, &gate->link, &gate->log, &sup->spin.page_fd);

        gate->pid = row->pid;
        gate->started_ns = weir_host_clock_ns();
        if (status != WEIR_OK) {
            (void)kill(gate->pid, SIGKILL); /* workers decide alone until the next one runs */
        }
    }
    while ((row = weir_book_adopt(sup, WEIR_BOOK_GPU))) {
        if (row->key < WEIR_LINK_GPUS_MAX) {
            weir_book_read(row, &gate->gpus[row->key], sizeof gate->gpus[0]);
            n++;
        }
    }
    gate->n_gpus = n;
}

/* Send the gate process that was taken over what the last supervisor may not have sent. */
static void resume(struct weir_supervisor *sup)
{
    weir_sup_gate_configure(sup);
    weir_sup_tenants_tell_gate(sup);
}

enum weir_status weir_sup_gate_open(struct weir_supervisor *sup)
{
    if (sup->gate.pid > 0 && is_wanted(sup)) {
        resume(sup);
        return WEIR_OK;
    }
    weir_sup_gate_close(sup); /* an earlier one may still run */
    return is_wanted(sup) ? start(sup) : WEIR_OK;
}

static void on_answer(struct weir_supervisor *sup, struct weir_link_heard *heard)
{
    sup->listener->gate_answers(sup, &heard->message.text);
}

static void on_use(struct weir_supervisor *sup, struct weir_link_heard *heard)
{
    sup->listener->gate_uses(sup, &heard->message.use);
}

static void on_row(struct weir_supervisor *sup, struct weir_link_heard *heard)
{
    sup->listener->gate_row(sup, &heard->message, heard->fd);
}

static void (*const handlers[WEIR_LINK_COUNT])(struct weir_supervisor *sup,
                                               struct weir_link_heard *heard) = {
#define NO NULL
#define WEIR_LINK(message, worker, gate, of_worker, of_gate, when, about)                          \
    [WEIR_LINK_##message] = of_gate,
#include "host_backend/config/link.def"
#undef WEIR_LINK
#undef NO
};

void weir_sup_gate_receive(struct weir_supervisor *sup)
{
    struct weir_link_heard heard;
    int link = sup->gate.link;
    enum weir_status status = weir_link_peek(link, &heard.message, &heard.fd);
    uint32_t type = heard.message.type;

    if (status == WEIR_ERR_AGAIN) {
        return;
    }
    if (status != WEIR_OK && status != WEIR_ERR_NO_MEMORY) {
        lose_link(&sup->gate);
        return;
    }
    if (type < WEIR_LINK_COUNT && handlers[type]) {
        handlers[type](sup, &heard);
    } else {
        weir_log_warn("supervisor: unknown message of the gate type=%u", type);
    }
    weir_link_finish(&heard);
    if (sup->gate.link == link) {
        weir_link_consume(link);
    }
}

/* The gate process has died: work passes undecided until the next one runs. */
static void on_death(struct weir_supervisor *sup, int wait_status)
{
    const struct weir_link_message lost = {.type = WEIR_LINK_GATE_LOST};
    struct weir_sup_gate *gate = &sup->gate;
    uint64_t now_ns = weir_host_clock_ns(), pause_ns = PAUSE_FIRST_NS;

    weir_sup_log_close(sup, NULL);
    weir_outbox_clear(&gate->outbox);
    gate->link = weir_fd_close(gate->link);
    gate->answering = false;
    gate->alive_by_ns = 0;
    if (!sup->life.stopping) {
        weir_sup_event(
            sup,
            &(struct weir_sup_event){.kind = WEIR_EVENT_GATE_DIED, .worker = (uint64_t)gate->pid},
            "%s %d", WIFSIGNALED(wait_status) ? "signal" : "exit status",
            WIFSIGNALED(wait_status) ? WTERMSIG(wait_status) : WEXITSTATUS(wait_status));
    }
    gate->pid = 0;
    if (sup->life.stopping) {
        return;
    }
    weir_log_error("supervisor: gate died %s=%d",
                   WIFSIGNALED(wait_status) ? "signal" : "exit_status",
                   WIFSIGNALED(wait_status) ? WTERMSIG(wait_status) : WEXITSTATUS(wait_status));
    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        if (sup->workers[i].used && sup->workers[i].gate.port != 0) {
            sup->workers[i].gate.port = 0;
            sup->workers[i].gate.deaf = false;
            weir_book_drop(sup, WEIR_BOOK_PORT, (uint64_t)i);
            (void)weir_sup_worker_send(sup, i, &lost, -1);
        }
    }
    gate->failures = now_ns - gate->started_ns > SOUND_AFTER_NS ? 1 : gate->failures + 1;
    for (uint32_t i = 1; i < gate->failures && pause_ns < PAUSE_LAST_NS; i++) {
        pause_ns *= 2;
    }
    gate->restart_at_ns = now_ns + (pause_ns < PAUSE_LAST_NS ? pause_ns : PAUSE_LAST_NS);
}

void weir_sup_gate_reap(struct weir_supervisor *sup)
{
    int status;

    if (sup->gate.pid > 0 && weir_book_ended(sup, sup->gate.pid, &status)) {
        on_death(sup, status);
    }
}

void weir_sup_gate_tick(struct weir_supervisor *sup, uint64_t now_ns)
{
    struct weir_sup_gate *gate = &sup->gate;

    if (weir_outbox_due_ns(&gate->outbox) <= now_ns) {
        flush(sup, now_ns);
    }
    if (gate->pid > 0 && gate->alive_by_ns != 0 && gate->alive_by_ns <= now_ns) {
        weir_log_error("supervisor: the gate does not answer, killed pid=%d", (int)gate->pid);
        (void)kill(gate->pid, SIGKILL); /* the keeper reports that */
        gate->alive_by_ns = 0;
    }
    if (gate->restart_at_ns != 0 && gate->restart_at_ns <= now_ns && start(sup) != WEIR_OK) {
        gate->restart_at_ns = now_ns + PAUSE_LAST_NS;
        weir_log_error("supervisor: cannot start the gate");
    }
}

static void on_log(void *user, int index)
{
    (void)index;
    weir_sup_log_read(user, NULL);
}

static void on_link(void *user, int index)
{
    struct weir_supervisor *sup = user;

    (void)index;
    flush(sup, weir_host_clock_ns());
    if (sup->gate.link >= 0) {
        weir_sup_gate_receive(sup);
    }
}

void weir_sup_gate_watch(struct weir_supervisor *sup, struct weir_host_loop *loop)
{
    const struct weir_sup_gate *gate = &sup->gate;

    weir_sup_log_watch(sup, NULL, loop, on_log, 0);
    weir_host_loop_watch(loop, gate->link, weir_outbox_events(&gate->outbox), on_link, sup, 0);
    weir_host_loop_wake(loop, gate->restart_at_ns != 0 ? gate->restart_at_ns : WEIR_FOREVER);
    weir_host_loop_wake(loop, gate->alive_by_ns != 0 ? gate->alive_by_ns : WEIR_FOREVER);
    weir_host_loop_wake(loop, weir_outbox_due_ns(&gate->outbox));
}

static void await_end(struct weir_supervisor *sup, pid_t pid)
{
    int status;
    uint64_t end_ns = weir_host_clock_ns() + STOP_WAIT_NS;

    while (!weir_book_ended(sup, pid, &status)) {
        if (weir_host_clock_ns() > end_ns) {
            weir_log_warn("supervisor: the gate does not stop, killed");
            (void)kill(pid, SIGKILL);
            return;
        }
        weir_book_wait(sup, 5);
    }
}

void weir_sup_gate_close(struct weir_supervisor *sup)
{
    const struct weir_link_message stop = {.type = WEIR_LINK_STOP};

    if (sup->gate.pid > 0) {
        (void)weir_sup_gate_send(sup, &stop, -1);
        await_end(sup, sup->gate.pid);
        sup->gate.pid = 0;
    }
    weir_sup_log_close(sup, NULL);
    weir_outbox_clear(&sup->gate.outbox);
    sup->gate.link = weir_fd_close(sup->gate.link);
}
