/*
 * Handles shared files that a guest can truncate while the worker has them mapped.
 *
 * Reading past the new end of such a file raises SIGBUS, which would end the worker and with it all
 * its sessions. Inside a guarded range the page is replaced by one of zeros instead, and the access
 * continues. The GPU is not affected, since registered pages stay in place.
 */
#pragma once

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
 * Guard all accesses of this thread, at any address: for the time in which it makes a mapping,
 * whose address is not known yet.
 * @thread any; for itself
 */
void weir_bus_tolerate(bool on);

/**
 * Remove the guard of a mapping that was unmapped. If another mapping has its base by now, that one
 * keeps its guard.
 * @param base, bytes  as in weir_bus_guard(); an unguarded range is ignored.
 * @thread any
 */
void weir_bus_unguard(uint64_t base, uint64_t bytes);
