/*
 * Around driver calls that wait for the device, and keep everybody else out meanwhile.
 *
 * Measured with tests/bench/driver_waits (docs/measurements/faults-and-limits.md): loading a
 * module, looking up a kernel whose library or code is not loaded yet, unregistering host memory,
 * destroying an array and freeing memory wait until the device has done all its work, and no other
 * thread gets into the driver as long. Unloading a module waits, too: first in a way that lets
 * others in, then, with the driver's lock, for what they have given the device meanwhile. A
 * tenant's kernel that waits for its own program, whose next call is kept out, would then wait for
 * ever; so would a stopped run for the grid that lets it go on. So such a call is made only when
 * the device has nothing to do and nobody gives it anything:
 *
 *     wait, in a way that keeps nobody out, until the device has done what it has been given
 *     close the gate: sessions stay out of their handlers; soon all are
 *     still nothing to do? make the call.  No, not within a moment? open, and begin again
 *
 * The moment grows from turn to turn, so that kernels of any length that end by themselves do; one
 * that waits for its program gets that program's calls in between. After WEIR_QUIET_LIMIT_NS the
 * call is made all the same. Stopped runs go on first (runs/run.h), or the device would never be
 * done.
 *
 * weir_quiet_pass() and weir_quiet_left() cost two stores and a load.
 */
#ifndef WEIR_HOST_BACKEND_WORKER_SESSION_QUIET_H
#define WEIR_HOST_BACKEND_WORKER_SESSION_QUIET_H

#include "base/clock.h"
#include "proto/cuda_abi.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define WEIR_QUIET_LIMIT_NS (20 * WEIR_NS_PER_S)
#define WEIR_QUIET_DEVICES  16u /* WEIR_DEVICES_MAX */

struct weir_session;
struct weir_worker;

/* The worker's part. */
struct weir_quiet {
    atomic_uint closed;
    atomic_uint captures;  /* streams under capture, of all sessions: then nobody may ask */
    pthread_mutex_t lock;  /* recursive; whoever makes such a call */
    uint32_t depth;        /* under it */
    pthread_mutex_t gate;  /* for opened */
    pthread_cond_t opened; /* closed is 0 again */
    CUevent events[WEIR_QUIET_DEVICES]; /* under lock; made at first need */
    atomic_uint_fast64_t turns, forced; /* given up, and made all the same; for tests */
};

void weir_quiet_init(struct weir_quiet *quiet);
/** @thread the worker's first, with no session left */
void weir_quiet_finish(struct weir_worker *worker);

/** A session is about to give work to the device; waits while the gate is closed.
 * @thread session */
void weir_quiet_pass(struct weir_session *session);
void weir_quiet_left(struct weir_session *session);

/**
 * Make the device quiet. At once where no other session is there that may give it work, where the
 * caller's own session is capturing, or where the driver is softgpu, which keeps nobody out. Calls
 * nest.
 * @return for weir_quiet_end()
 * @thread any with a context, holding no lock; within a handler, too
 */
uint32_t weir_quiet_begin(struct weir_worker *worker);
void weir_quiet_end(struct weir_worker *worker, uint32_t calm);

#endif
