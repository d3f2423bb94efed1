/*
 * Sends messages to workers. The supervisor never waits for a worker: if its link has no room, the
 * message waits in the worker's outbox. A worker that takes no message for too long loses its link.
 */
#include "host_backend/supervisor/state/worker_link.h"

#include "base/fd.h"
#include "host_backend/supervisor/state/outbox.h"
#include "host_backend/supervisor/state/supervisor.h"

#include "base/log.h"
#include <sys/socket.h>
#include <unistd.h>

void weir_sup_worker_close_link(struct weir_sup_worker *w)
{
    weir_outbox_clear(&w->outbox);
    w->link = weir_fd_close(w->link);
    w->ready = w->told = false;
    w->answering = false;
}

void weir_sup_worker_lose_link(struct weir_sup_worker *w)
{
    if (w->link >= 0) {
        (void)shutdown(w->link, SHUT_RDWR); /* the keeper has our end, too */
    }
    weir_sup_worker_close_link(w);
    if (w->stop_by_ns == 0) {
        w->stop_by_ns = weir_host_clock_ns() + WEIR_WORKER_STOP_WAIT_NS;
    }
}

static void on_failure(struct weir_supervisor *sup, int worker, enum weir_status status)
{
    struct weir_sup_worker *w = &sup->workers[worker];

    if (!sup->life.stopping) { /* else the worker may have been stopped with the host */
        weir_log_warn("supervisor: link lost worker=%d why=\"%s\"", worker,
                      status == WEIR_ERR_AGAIN ? "it does not read" : weir_status_text(status));
    }
    w->program.stopping |= status == WEIR_ERR_AGAIN; /* if it has exited, its status says more */
    weir_sup_worker_lose_link(w);
}

void weir_sup_worker_flush(struct weir_supervisor *sup, int worker, uint64_t now_ns)
{
    struct weir_sup_worker *w = &sup->workers[worker];
    enum weir_status status = weir_outbox_flush(&w->outbox, w->link, now_ns);

    if (status != WEIR_OK) {
        on_failure(sup, worker, status);
    }
}

bool weir_sup_worker_send(struct weir_supervisor *sup, int worker,
                          const struct weir_link_message *message, int fd)
{
    if (worker < 0 || worker >= WEIR_WORKERS_MAX || !sup->workers[worker].used ||
        sup->workers[worker].link < 0) {
        return false;
    }
    enum weir_status status =
        weir_outbox_send(&sup->workers[worker].outbox, sup->workers[worker].link, message, fd);
    if (status != WEIR_OK) {
        on_failure(sup, worker, status);
    }
    return status == WEIR_OK;
}

bool weir_sup_worker_is_told(const struct weir_supervisor *sup, int worker)
{
    return worker >= 0 && worker < WEIR_WORKERS_MAX && sup->workers[worker].used &&
           sup->workers[worker].told;
}

void weir_sup_worker_stop(struct weir_supervisor *sup, int worker)
{
    const struct weir_link_message stop = {.type = WEIR_LINK_STOP};

    weir_log_debug("supervisor: worker told to stop worker=%d", worker);
    sup->workers[worker].stop_by_ns = weir_host_clock_ns() + WEIR_WORKER_STOP_WAIT_NS;
    (void)weir_sup_worker_send(sup, worker, &stop, -1); /* a lost link ends the worker, too */
}
