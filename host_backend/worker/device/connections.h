/* How many connections to the GPU the worker's contexts have (CUDA_DEVICE_MAX_CONNECTIONS). */
#ifndef WEIR_HOST_BACKEND_WORKER_DEVICE_CONNECTIONS_H
#define WEIR_HOST_BACKEND_WORKER_DEVICE_CONNECTIONS_H

#include "base/status.h"
#include <stdbool.h>
#include <stdint.h>

struct weir_worker;

/** Make worker->connections, and choose the variable's value. @return WEIR_OK, WEIR_ERR_NO_MEMORY
 * @thread main, before the driver is open */
enum weir_status weir_connections_choose(struct weir_worker *worker) WEIR_MUST_CHECK;
/** How many they are, as far as the worker can tell; 1 or more. @thread any, after choosing */
uint32_t weir_connections_count(const struct weir_worker *worker);
/** The contexts are there. @thread main */
void weir_connections_opened(struct weir_worker *worker);
/** No session may be left. @thread main */
void weir_connections_destroy(struct weir_worker *worker);

/**
 * May a guest have a session here, although it wants other connections? Waits for 0.3 s at most for
 * sessions that may be ending.
 * @param tenant  its tenant's name, for the log.
 * @param wanted  0: whatever there is; else 1 .. WEIR_CONTROL_MAX_CONNECTIONS.
 * @return true: until weir_connections_leave_locked()
 * @return false: the supervisor starts this worker again, the guest is to come again
 * @thread a guest's
 */
bool weir_connections_admit(struct weir_worker *worker, const char *tenant, uint32_t wanted);
/** One that was let in has gone. @thread any, the worker's lock held */
void weir_connections_leave_locked(struct weir_worker *worker);

#endif
