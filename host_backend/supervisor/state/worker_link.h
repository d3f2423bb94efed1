/* The supervisor's end of a worker's link: host_backend/supervisor/state/worker_link.c. */
#pragma once

#include "base/clock.h"
#include "host_backend/supervisor/state/supervisor.h"

#define WEIR_WORKER_STOP_WAIT_NS (5 * WEIR_NS_PER_S) /* time for a worker to end by itself */

/** Send messages that wait for room in the link. A link without room for too long is closed. */
void weir_sup_worker_flush(struct weir_supervisor *sup, int worker, uint64_t now_ns);
/** Close a worker's link, and drop the messages that wait for room in it. */
void weir_sup_worker_close_link(struct weir_sup_worker *w);
/** Close the link of a running worker, which sees that and exits; a stopped one is killed. */
void weir_sup_worker_lose_link(struct weir_sup_worker *w);

/** Does a worker read its link, and has it received its tenants? If not, it receives all when it
 * begins to read. Worker -1: no. */
bool weir_sup_worker_is_told(const struct weir_supervisor *sup, int worker);
/** Tell a worker to end; after 5 s it is killed. */
void weir_sup_worker_stop(struct weir_supervisor *sup, int worker);
/** Send a message to one worker; a broken link is closed. @return true if it was sent or queued */
bool weir_sup_worker_send(struct weir_supervisor *sup, int worker,
                          const struct weir_link_message *message, int fd);
