/*
 * Shared files that a guest can cut short while the worker has them mapped.
 *
 * Reading past the new end of such a file raises SIGBUS, which would end the worker and with it all
 * its sessions. Inside a guarded range the page is replaced by one of zeros instead, and the
 * access goes on. The GPU is not concerned: registered pages stay where they are.
 */
#ifndef WEIR_HOST_BACKEND_WORKER_STATE_BUS_GUARD_H
#define WEIR_HOST_BACKEND_WORKER_STATE_BUS_GUARD_H

#include <stdbool.h>
#include <stdint.h>

#define WEIR_BUS_GUARDS_MAX 4096

/** Install the handler: once, before the first guard. @thread main */
void weir_bus_guard_init(void);

/**
 * Guard a mapping.
 * @return false: WEIR_BUS_GUARDS_MAX are guarded already.
 * @thread any
 */
bool weir_bus_guard(uint64_t base, uint64_t bytes);

/**
 * Guard whatever this thread reaches for, wherever it lies: while it makes a mapping, whose place
 * is not known yet.
 * @thread any; for itself
 */
void weir_bus_tolerate(bool on);

/**
 * After the mapping is gone. Another one may have its base by then: it keeps its guard.
 * @param base, bytes  as they were guarded; what is not guarded is ignored.
 * @thread any
 */
void weir_bus_unguard(uint64_t base, uint64_t bytes);

#endif
