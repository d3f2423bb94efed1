/*
 * The end of a host: all workers end at the same time.
 *
 * Each worker gets a message to stop: it ends its sessions within some seconds, and exits. Then the
 * driver frees its context, one context after another: 60 native workers take 13 s for that (H100,
 * driver 580). So the host waits as long as workers continue to end. Then it kills the rest at
 * once. An MPS server first releases its clients among them, since the kill of a client with work
 * would end the work of the others.
 *
 * A worker that survives a kill hangs in the driver. The host ends without waiting for it;
 * systemd's TimeoutStopSec (packaging/weir.service) is longer than all of this.
 */
#include "host_backend/supervisor/domains/mps.h"
#include "host_backend/supervisor/state/book.h"
#include "host_backend/supervisor/state/outbox.h"
#include "host_backend/supervisor/state/supervisor.h"
#include "host_backend/supervisor/state/worker_link.h"
#include "host_backend/supervisor/workers/programs.h"
#include "host_backend/supervisor/workers/worker_log.h"
#include "host_backend/supervisor/workers/workers.h"

#include "base/clock.h"
#include "base/log.h"
#include <poll.h>

#define NEXT_WAIT_NS (5 * WEIR_NS_PER_S)  /* time for the next worker to end */
#define ALL_WAIT_NS  (30 * WEIR_NS_PER_S) /* for all to end; as long again after the kill */
#define SAY_NS       (5 * WEIR_NS_PER_S)
#define LOOK_MS      50

static unsigned n_alive(const struct weir_supervisor *sup)
{
    unsigned n = 0;

    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        n += sup->workers[i].used && sup->workers[i].pid > 0;
    }
    return n;
}

/* Wait for the next events, and handle them: ends of workers, and messages. A worker that says
 * WEIR_LINK_LEFT_BEHIND is killed, since its work on the GPU does not end. */
static void wait_once(struct weir_supervisor *sup)
{
    struct pollfd waits[1 + WEIR_WORKERS_MAX];
    int workers[1 + WEIR_WORKERS_MAX];
    nfds_t n = 1;

    weir_book_poll(sup, &waits[0]);
    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        if (sup->workers[i].used && sup->workers[i].link >= 0) {
            waits[n] = (struct pollfd){sup->workers[i].link,
                                       weir_outbox_events(&sup->workers[i].outbox), 0};
            workers[n++] = i;
        }
    }
    if (poll(waits, n, LOOK_MS) <= 0) {
        return;
    }
    (void)weir_book_receive(sup);
    for (nfds_t i = 1; i < n; i++) {
        if (waits[i].revents != 0) {
            weir_sup_worker_flush(sup, workers[i], weir_host_clock_ns());
        }
        if (waits[i].revents != 0 && sup->workers[workers[i]].link >= 0) {
            weir_sup_worker_receive(sup, workers[i]);
        }
    }
    weir_sup_giving_answer(sup, weir_host_clock_ns()); /* ending sessions wait for these answers */
}

/* Wait until all workers have ended, or no further one ends in time. */
static void wait_for_end(struct weir_supervisor *sup)
{
    uint64_t since_ns = weir_host_clock_ns(), now_ns = since_ns, next_ns = since_ns,
             said_ns = since_ns;

    weir_sup_workers_reap(sup);
    unsigned left = n_alive(sup);
    while (left != 0 && now_ns - next_ns < NEXT_WAIT_NS && now_ns - since_ns < ALL_WAIT_NS) {
        wait_once(sup);
        weir_sup_logs_read(sup);
        weir_sup_workers_reap(sup);
        now_ns = weir_host_clock_ns();
        if (n_alive(sup) != left) {
            left = n_alive(sup);
            next_ns = now_ns;
        }
        if (left != 0 && now_ns - said_ns >= SAY_NS) {
            weir_log_info("supervisor: waits for workers to end workers=%u", left);
            said_ns = now_ns;
        }
    }
}

static unsigned kill_left(struct weir_supervisor *sup)
{
    unsigned n = 0;

    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        if (sup->workers[i].used && sup->workers[i].pid > 0) {
            weir_log_warn("supervisor: worker does not stop, killed worker=%d pid=%d", i,
                          (int)sup->workers[i].pid);
            weir_mps_kill(sup, &sup->workers[i]);
            n++;
        }
    }
    return n;
}

void weir_sup_workers_stop(struct weir_supervisor *sup)
{
    const struct weir_link_message stop = {.type = WEIR_LINK_STOP};
    uint64_t since_ns = weir_host_clock_ns();
    unsigned n = n_alive(sup), killed;

    sup->life.stopping = true;
    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        (void)weir_sup_worker_send(sup, i, &stop, -1); /* a lost link ends the worker, too */
    }
    wait_for_end(sup);
    killed = kill_left(sup);
    if (killed != 0) {
        wait_for_end(sup);
    }
    if (n_alive(sup) != 0) {
        weir_log_error("supervisor: workers hang in the driver, left behind workers=%u",
                       n_alive(sup));
    }
    if (n != 0) {
        weir_log_info("supervisor: workers ended workers=%u killed=%u ms=%llu", n, killed,
                      (unsigned long long)((weir_host_clock_ns() - since_ns) / WEIR_NS_PER_MS));
    }
    weir_sup_workers_close(sup);
}
