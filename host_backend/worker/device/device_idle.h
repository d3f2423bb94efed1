/*
 * Makes the device idle for driver calls that wait for all of its work.
 *
 * Some driver calls wait until the device has done all its work, and no other thread can call the
 * driver meanwhile: loading a module, looking up a kernel whose library or code is not loaded yet,
 * unregistering host memory, destroying an array, freeing memory. Unloading a module does the same
 * at its end. (Measured with tests/bench/driver_waits, docs/measurements/faults-and-limits.md.)
 *
 * Such a call could wait for ever: for a kernel that waits for a later call of its own program, or
 * for a stopped run that a new grid must resume. So such a call is made only while the device is
 * idle and no session can give it work. The thread that wants to make it repeats these steps:
 *
 *     1. close the barrier: no session may begin a handler; wait until all have left theirs 2. wait
 *     a moment for the device to become idle; if it does, make the call 3. otherwise open the
 *     barrier, and wait until the device has done that work
 *
 * The moment grows each time, so that a kernel of any length can end within it. A kernel that waits
 * for its program gets that program's calls in step 3. Stopped runs are resumed first (runs/run.h),
 * or the device would never be idle.
 *
 * A kernel of another program may never end. So a thread waits for a bounded time; only threads for
 * which nobody waits may wait without limit (docs/design/preemption.md). After that time a call
 * that may fail fails, and a call that may not fail is deferred (put_off.h). The end of a session
 * and the builder of twins wait without limit. No thread makes such a call while the device is
 * busy.
 *
 * weir_device_barrier_enter() and weir_device_barrier_leave() cost two stores and a load.
 */
#pragma once

#include "base/clock.h"
#include "proto/cuda_abi.h"
#include <stdbool.h>
#include <stdint.h>

struct weir_device_idle;
struct weir_host_stream;
struct weir_put_off;
struct weir_session;
struct weir_session_idle;
struct weir_worker;

/** Make a worker's barrier. NULL: out of memory. @thread main */
struct weir_device_idle *weir_device_idle_create(void);
/** @thread main, after the last session has ended */
void weir_device_idle_destroy(struct weir_worker *worker);

/** Make a session's part of the barrier. NULL: out of memory. */
struct weir_session_idle *weir_session_idle_create(void);
/** Accepts NULL. */
void weir_session_idle_destroy(struct weir_session_idle *idle);
/** The session's deferred calls that wait for an idle device (put_off.h). @thread session */
struct weir_put_off *weir_session_put_off(const struct weir_session *session);

/** A session is about to give the device work; waits while the barrier is closed.
 * @thread session */
void weir_device_barrier_enter(struct weir_session *session);
void weir_device_barrier_leave(struct weir_session *session);

/** The thread will do something that takes long and gives the device no work: leave the barrier if
 * it is in a handler. @return for weir_device_barrier_resume(); NULL: it is in no handler */
struct weir_session *weir_device_barrier_pause(void);
/** Accepts NULL. @thread the one that paused */
void weir_device_barrier_resume(struct weir_session *session);

/**
 * Wait until the device is idle, and keep it so. Returns at once if no other session may give the
 * device work, if the caller's own session is capturing, or if the driver keeps no other threads
 * out (softgpu, unless configured to). Calls nest.
 *
 * @param caller    the session whose thread calls. NULL: the session in whose handler this thread
 *                  is; if it is in no handler, as the builder of twins, all sessions count as
 *                  others.
 * @param limit_ns  how long to wait. 0: do not wait. UINT64_MAX: wait for ever.
 * @param ret_idle  on success, for weir_device_idle_end()
 * @return CUDA_SUCCESS        the device is idle, or its context is dead
 * @return CUDA_ERROR_TIMEOUT  the device is busy; the call must not be made, and _end() must not
 *         follow
 * @thread any with a context, holding no lock; within a handler, too
 */
CUresult weir_device_idle_begin_within(struct weir_worker *worker,
                                       const struct weir_session *caller, uint64_t limit_ns,
                                       uint32_t *ret_idle);
/** Like weir_device_idle_begin_within(), but if no other session may give the device work, it still
 * waits for the caller's own work, unless the driver lets other threads in. */
CUresult weir_device_idle_begin_own(struct weir_worker *worker, const struct weir_session *caller,
                                    uint64_t limit_ns, uint32_t *ret_idle);
/** Like weir_device_idle_begin_within(), for a session's call that may fail: limited by the
 * tenant's load_wait_s. The log names what the call waited for. @thread session */
CUresult weir_device_idle_begin_or_fail(struct weir_session *session, uint32_t *ret_idle);
/** Like weir_device_idle_begin_within(), without a limit. @return for weir_device_idle_end() */
uint32_t weir_device_idle_begin(struct weir_worker *worker, const struct weir_session *caller);
void weir_device_idle_end(struct weir_worker *worker, uint32_t idle);

/** The time limit of a session's call that waits for an idle device. @thread any */
uint64_t weir_device_idle_limit_ns(const struct weir_session *session);
/**
 * Have the devices done the work that they had at the end of the last failed turn? Does not wait.
 * @thread any with a context
 */
bool weir_device_may_be_idle(struct weir_worker *worker);

/** A stream of the session begins or ends a capture. While any stream is captured, the driver
 * refuses to say whether the device is idle. @thread session */
void weir_session_capture_begin(struct weir_session *session, struct weir_host_stream *stream);
void weir_session_capture_end(struct weir_session *session, struct weir_host_stream *stream);

/** From now on the objects of an ending session are destroyed. @thread session */
void weir_session_unloads(struct weir_session *session);
/** Are the session's objects being destroyed? Then no call may be deferred any more. @thread
 * session */
bool weir_session_is_unloading(const struct weir_session *session);
/**
 * A module is about to be unloaded while the session's objects are destroyed: keep the device idle
 * from now on, for some milliseconds at a time, so that other sessions can run in between. Only the
 * session's end needs this: each of the guest's own calls to unload is between
 * weir_device_idle_begin() and _end().
 * @thread session
 */
void weir_session_device_idle(struct weir_session *session);

/** Let the device work again, if it was kept idle. @thread session */
void weir_session_device_idle_end(struct weir_session *session);
