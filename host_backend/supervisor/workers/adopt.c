/*
 * Takes over the workers of the last supervisor.
 *
 * A row says how a worker was started. All else the worker itself knows best: it is asked
 * (WEIR_LINK_RESUME), and answers after all earlier messages. So it makes no difference at which
 * moment the last supervisor ended. A worker that was not ready has had no program: it is killed,
 * and another one starts.
 */
#include "base/fd.h"
#include "host_backend/supervisor/domains/mps.h"
#include "host_backend/supervisor/state/book.h"
#include "host_backend/supervisor/state/supervisor.h"
#include "host_backend/supervisor/state/worker_link.h"
#include "host_backend/supervisor/workers/programs.h"
#include "host_backend/supervisor/workers/worker_log.h"
#include "host_backend/supervisor/workers/worker_process.h"
#include "host_backend/supervisor/workers/workers.h"

#include "base/clock.h"
#include "base/log.h"
#include <poll.h>
#include <signal.h>
#include <unistd.h>

/* Workers answer within a millisecond; one that a signal has stopped does not, and is served
 * without its answer. */
#define ANSWER_WAIT_NS WEIR_NS_PER_S

static void adopt_one(struct weir_supervisor *sup, struct weir_book_row *row)
{
    struct weir_sup_worker *w = &sup->workers[row->key];
    struct weir_sup_log *log;
    int link, page_fd;

    enum weir_status status = weir_sup_adopt(row, w, &link, &log, &page_fd);
    weir_log_rate_init(&w->log_rate);
    w->used = true;
    w->pid = row->pid;
    w->link = link;
    w->log = log;
    w->told = true;
    w->resuming = true;
    if (weir_spin_page_map(page_fd, &w->spin_page) != WEIR_OK || link < 0) {
        status = WEIR_ERR_IO;
    }
    weir_fd_close(page_fd);
    if (status != WEIR_OK) {
        weir_log_error("supervisor: a worker of the last host is not understood, killed worker=%d "
                       "pid=%d why=\"%s\"",
                       (int)row->key, (int)row->pid, weir_status_text(status));
        w->resuming = false;
        w->program.stopping = true;
        kill(row->pid, SIGKILL);
    }
}

/* Learn which tenants the workers serve, and kill workers that had not become ready. */
static void look_at_ready(struct weir_supervisor *sup)
{
    bool ready[WEIR_WORKERS_MAX] = {false};
    struct weir_book_row *row;

    while ((row = weir_book_adopt(sup, WEIR_BOOK_READY))) {
        struct weir_sup_worker *w = &sup->workers[row->key % WEIR_WORKERS_MAX];
        int32_t tenant;

        weir_book_read(row, &tenant, sizeof tenant);
        ready[row->key % WEIR_WORKERS_MAX] = true;
        if (tenant >= -1 && tenant < WEIR_CONFIG_TENANTS_MAX) { /* messages may name the tenant */
            w->tenant = tenant;
        }
    }
    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        struct weir_sup_worker *w = &sup->workers[i];

        if (w->used && !ready[i] && w->resuming) {
            w->resuming = false;
            w->program.stopping = true;
            kill(w->pid, SIGKILL);
        }
    }
}

/* A tenant's worker may have ended, and not been started again yet. */
static void forget_ended(struct weir_supervisor *sup)
{
    for (int i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        struct weir_sup_tenant *t = &sup->tenants[i];

        if (t->used && t->worker >= 0 &&
            (t->worker >= WEIR_WORKERS_MAX || !sup->workers[t->worker].used)) {
            t->worker = -1;
        }
    }
}

void weir_sup_workers_adopt(struct weir_supervisor *sup)
{
    struct weir_book_row *row;

    while ((row = weir_book_adopt(sup, WEIR_BOOK_WORKER))) {
        if (row->key < WEIR_WORKERS_MAX) {
            adopt_one(sup, row);
        }
    }
    look_at_ready(sup);
    while ((row = weir_book_adopt(sup, WEIR_BOOK_PORT))) {
        if (row->key < WEIR_WORKERS_MAX) {
            weir_book_read(row, &sup->workers[row->key].gate.port,
                           sizeof sup->workers[row->key].gate.port);
        }
    }
    forget_ended(sup);
}

static uint32_t n_resuming(const struct weir_supervisor *sup)
{
    uint32_t n = 0;

    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        n += sup->workers[i].used && sup->workers[i].resuming && sup->workers[i].link >= 0;
    }
    return n;
}

/* Receive messages of all workers that have some, and notice their ends. */
static void receive_all(struct weir_supervisor *sup)
{
    struct pollfd waits[WEIR_WORKERS_MAX];
    int workers[WEIR_WORKERS_MAX];
    nfds_t n = 0;

    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        if (sup->workers[i].used && sup->workers[i].resuming && sup->workers[i].link >= 0) {
            waits[n] = (struct pollfd){sup->workers[i].link, POLLIN, 0};
            workers[n++] = i;
        }
    }
    if (poll(waits, n, 10) > 0) {
        for (nfds_t i = 0; i < n; i++) {
            if (waits[i].revents != 0 && sup->workers[workers[i]].link >= 0) {
                weir_sup_worker_receive(sup, workers[i]);
            }
        }
    }
    (void)weir_book_receive(sup);
    weir_sup_workers_reap(sup);
}

void weir_sup_workers_resume(struct weir_supervisor *sup)
{
    const struct weir_link_message ask = {.type = WEIR_LINK_RESUME};
    uint64_t end_ns = weir_host_clock_ns() + ANSWER_WAIT_NS;
    uint32_t n = n_resuming(sup);

    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        if (sup->workers[i].used && sup->workers[i].resuming) {
            (void)weir_sup_worker_send(sup, i, &ask, -1);
        }
    }
    while (n_resuming(sup) != 0 && weir_host_clock_ns() < end_ns) {
        receive_all(sup);
    }
    if (n != 0) {
        weir_log_info("supervisor: workers of the last host taken over workers=%u silent=%u", n,
                      n_resuming(sup));
    }
}

/* Send a worker what the last supervisor may not have sent. */
static void retell(struct weir_supervisor *sup, int worker)
{
    if (sup->workers[worker].gate.port == 0) {
        weir_sup_gate_worker_starts(sup, worker);
    }
    weir_sup_tenants_retell(sup, worker);
}

void weir_sup_workers_retell(struct weir_supervisor *sup)
{
    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        if (sup->workers[i].used && sup->workers[i].ready) {
            retell(sup, i);
        }
    }
}

void weir_sup_worker_resumed(struct weir_supervisor *sup, int worker,
                             const struct weir_link_resumed *resumed)
{
    const struct weir_link_message again = {.type = WEIR_LINK_RESUME, .resumed = {.busy = 1}};
    struct weir_sup_worker *w = &sup->workers[worker];
    int tenant = resumed->tenant_index;

    if (!w->resuming) {
        return;
    }
    w->resuming = false;
    w->giving.n_syncs = resumed->syncs;
    if (resumed->last_session > sup->programs.n_guests) {
        sup->programs.n_guests = resumed->last_session;
    }
    if (w->kind == WEIR_WORKER_PROGRAM && tenant >= -1 && tenant < WEIR_CONFIG_TENANTS_MAX) {
        w->tenant = tenant;
        w->program.n_guests = resumed->n_guests;
        w->program.busy = resumed->busy != 0;
        w->program.is_alone = w->program.native && !sup->config.workers.mps_alone; /* perhaps */
        w->program.pid = (pid_t)resumed->pid;
        w->program.idle_since_ns = w->program.busy ? 0 : weir_host_clock_ns();
    }
    (void)weir_sup_worker_send(sup, worker, &again, -1);
    weir_sup_worker_row(w, &resumed->worker);
    w->ready = true;
    weir_mps_serves(sup, w);
    if (resumed->has_port == 0) {
        weir_sup_gate_worker_gone(sup, worker);
    }
    if (w->tenant >= 0 && w->kind == WEIR_WORKER_PROGRAM &&
        (!sup->tenants[w->tenant].used || sup->tenants[w->tenant].gone)) {
        weir_sup_program_stop(sup, worker);
    }
    if (sup->life.listening) { /* a late answer */
        retell(sup, worker);
    }
}
