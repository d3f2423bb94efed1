/* How many connections to the GPU the worker's contexts have (CUDA_DEVICE_MAX_CONNECTIONS). */
#pragma once

#include "base/status.h"
#include <stdbool.h>
#include <stdint.h>

struct weir_worker;

/** Make worker->connections, and choose the variable's value. @return WEIR_OK, WEIR_ERR_NO_MEMORY
 * @thread main, before the driver is open */
enum weir_status weir_connections_choose(struct weir_worker *worker) WEIR_MUST_CHECK;
/** The number of connections, as far as the worker knows it; 1 or more. @thread any, after
 * choosing */
uint32_t weir_connections_count(const struct weir_worker *worker);
/** The contexts were opened. @thread main */
void weir_connections_opened(struct weir_worker *worker);
/** No session may be left. @thread main */
void weir_connections_destroy(struct weir_worker *worker);

/**
 * May a guest have a session here, although it wants another number of connections? Waits for 0.3 s
 * at most for sessions that may be ending.
 * @param tenant  its tenant's name, for the log.
 * @param wanted  0: any number; else 1 .. WEIR_CONTROL_MAX_CONNECTIONS.
 * @return true: until weir_connections_leave_locked()
 * @return false: the supervisor restarts this worker, and the guest must connect again
 * @thread a guest's
 */
bool weir_connections_admit(struct weir_worker *worker, const char *tenant, uint32_t wanted);
/** An admitted guest has gone. @thread any, the worker's lock held */
void weir_connections_leave_locked(struct weir_worker *worker);
