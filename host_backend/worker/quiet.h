/*
 * Around driver calls that wait for the device, and keep everybody else out meanwhile.
 *
 * Measured with tests/bench/driver_waits (docs/measurements.md): loading a module, unregistering host
 * memory, destroying an array and freeing memory wait until the device has done all its work, and
 * no other thread gets into the driver as long. A tenant's kernel that waits for its own program,
 * whose next call is kept out, would then wait for ever. So whoever makes such a call waits for
 * the device first, in a way that keeps nobody out; what is left to wait for in the call is what came
 * in between. Stopped runs go on (forms/run.h), or the device would never be done.
 *
 * Not closed: a kernel that begins between the two.
 */
#ifndef WEIR_HOST_BACKEND_WORKER_QUIET_H
#define WEIR_HOST_BACKEND_WORKER_QUIET_H

#include <stdint.h>

struct weir_worker;

/**
 * Wait until the devices are done with what they have been given. At once where
 * nobody else is there; not at all while a stream is under capture, which forbids to ask.
 * @return for weir_quiet_end(); calls nest.
 * @thread any with a context, holding no lock
 */
uint32_t weir_quiet_begin(struct weir_worker *worker);
void weir_quiet_end(struct weir_worker *worker, uint32_t calm);

#endif
