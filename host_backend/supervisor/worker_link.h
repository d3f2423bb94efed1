/* The supervisor's end of a worker's link: host_backend/supervisor/worker_link.c. */
#ifndef WEIR_HOST_SUPERVISOR_WORKER_LINK_H
#define WEIR_HOST_SUPERVISOR_WORKER_LINK_H

#include "base/clock.h"
#include "host_backend/supervisor/supervisor.h"

#define WEIR_WORKER_STOP_WAIT_NS (5 * WEIR_NS_PER_S) /* for one that is to end */

/** Send what waits for room in the link, if anything does. One that has had none for too long is
 * given up. */
void weir_sup_worker_flush(struct weir_supervisor *sup, int worker, uint64_t now_ns);
/** Close it, with what waits for room in it. */
void weir_sup_worker_close_link(struct weir_sup_worker *w);
/** The same; the worker sees that and exits. One that stands still does not, and is killed. */
void weir_sup_worker_lose_link(struct weir_sup_worker *w);

#endif
