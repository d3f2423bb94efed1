/* The supervisor's end of a worker's link: host_backend/supervisor/state/worker_link.c. */
#ifndef WEIR_HOST_BACKEND_SUPERVISOR_STATE_WORKER_LINK_H
#define WEIR_HOST_BACKEND_SUPERVISOR_STATE_WORKER_LINK_H

#include "base/clock.h"
#include "host_backend/supervisor/state/supervisor.h"

#define WEIR_WORKER_STOP_WAIT_NS (5 * WEIR_NS_PER_S) /* for one that is to end */

/** Send what waits for room in the link, if anything does. One that has had none for too long is
 * given up. */
void weir_sup_worker_flush(struct weir_supervisor *sup, int worker, uint64_t now_ns);
/** Close it, with what waits for room in it. */
void weir_sup_worker_close_link(struct weir_sup_worker *w);
/** The same; the worker sees that and exits. One that stands still does not, and is killed. */
void weir_sup_worker_lose_link(struct weir_sup_worker *w);

/** Does it read its link, and know its tenants? One that does not yet is told all at once when it
 * does. -1: no. */
bool weir_sup_worker_is_told(const struct weir_supervisor *sup, int worker);
/** Have it end by itself; it is killed if it does not within 5 s. */
void weir_sup_worker_stop(struct weir_supervisor *sup, int worker);
/** Send to one worker; a broken link is closed. @return true when it went out */
bool weir_sup_worker_send(struct weir_supervisor *sup, int worker,
                          const struct weir_link_message *message, int fd);

#endif
