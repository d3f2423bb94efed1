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
 * the device is idle and nobody can give it work:
 *
 *     wait, without keeping anybody out, until the device has done what it was given
 *     close the barrier: sessions stay out of their handlers, and soon all of them are out
 *     is the device still idle?  yes: make the call.  Not within a moment: open, and begin again
 *
 * The moment grows from turn to turn, so that a kernel of any length can end. A kernel that waits
 * for its program gets that program's calls in between. After WEIR_DEVICE_IDLE_LIMIT_NS the call is
 * made anyway. Stopped runs are resumed first (runs/run.h), or the device would never be idle.
 *
 * weir_device_barrier_enter() and weir_device_barrier_leave() cost two stores and a load.
 */
#ifndef WEIR_HOST_BACKEND_WORKER_SESSION_DEVICE_IDLE_H
#define WEIR_HOST_BACKEND_WORKER_SESSION_DEVICE_IDLE_H

#include "base/clock.h"
#include "proto/cuda_abi.h"
#include <stdbool.h>
#include <stdint.h>

#define WEIR_DEVICE_IDLE_LIMIT_NS (20 * WEIR_NS_PER_S)

struct weir_device_idle;
struct weir_host_stream;
struct weir_session;
struct weir_session_idle;
struct weir_worker;

/** A worker's part. NULL: out of memory. @thread main */
struct weir_device_idle *weir_device_idle_create(void);
/** @thread the worker's first, with no session left */
void weir_device_idle_destroy(struct weir_worker *worker);

/** A session's part. NULL: out of memory. */
struct weir_session_idle *weir_session_idle_create(void);
/** Accepts NULL. */
void weir_session_idle_destroy(struct weir_session_idle *idle);

/** A session is about to give the device work; waits while the barrier is closed.
 * @thread session */
void weir_device_barrier_enter(struct weir_session *session);
void weir_device_barrier_leave(struct weir_session *session);

/**
 * Wait until the device is idle, and keep it so. At once where no other session is there that may
 * give it work, where the caller's own session is capturing, or where the driver is softgpu, which
 * keeps nobody out. Calls nest.
 *
 * @param caller  the session whose thread calls; NULL: the one in whose handler this thread is, or,
 * on a thread of the worker's own, none: then a single session is another one, too.
 * @return for weir_device_idle_end()
 * @thread any with a context, holding no lock; within a handler, too
 */
uint32_t weir_device_idle_begin(struct weir_worker *worker, const struct weir_session *caller);
void weir_device_idle_end(struct weir_worker *worker, uint32_t idle);

/** A stream of the session is under capture from now on, or no longer: as long as one is, the
 * driver does not say whether the device is idle. @thread session */
void weir_session_capture_begin(struct weir_session *session, struct weir_host_stream *stream);
void weir_session_capture_end(struct weir_session *session, struct weir_host_stream *stream);

/** The objects of a session that ends are destroyed from here on. @thread session */
void weir_session_unloads(struct weir_session *session);
/**
 * A module is about to be unloaded while the session's objects are destroyed: keep the device idle
 * from here on, for some milliseconds at a time, so that others get in. Only the session's end
 * needs this: each of the guest's own calls to unload is between weir_device_idle_begin() and
 * _end().
 * @thread session
 */
void weir_session_device_idle(struct weir_session *session);

/** Let the device work again, if it was kept idle. @thread session */
void weir_session_device_idle_end(struct weir_session *session);

#endif
