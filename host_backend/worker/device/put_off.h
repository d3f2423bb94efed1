/*
 * Calls of a session that need an idle device and cannot fail: unloading code, destroying arrays,
 * unregistering host memory.
 *
 * Such a call waits for WEIR_PUT_OFF_NS. If another program keeps the device busy for longer, the
 * call is put off: to the guest it has succeeded, and what it frees stays charged to the session's
 * tenant. The session's thread makes it between two records once the device is idle, or at the
 * session's end, for which it waits as long as it takes. So nobody else waits for it, and no second
 * thread touches what belongs to the session.
 *
 * Owner thread only. Source: docs/design/preemption.md
 */
#ifndef WEIR_HOST_BACKEND_WORKER_DEVICE_PUT_OFF_H
#define WEIR_HOST_BACKEND_WORKER_DEVICE_PUT_OFF_H

#include "base/clock.h"
#include "proto/cuda_abi.h"
#include <stdbool.h>
#include <stdint.h>

#define WEIR_PUT_OFF_NS (WEIR_NS_PER_S / 4)

struct weir_put_off;
struct weir_session;

/** What is to be done while the device is idle. @param what  freed by it */
typedef void (*weir_put_off_fn)(struct weir_session *session, void *what);

/** A session's part. NULL: out of memory. */
struct weir_put_off *weir_put_off_create(void);
/** Nothing may be left in it. Accepts NULL. */
void weir_put_off_destroy(struct weir_put_off *put_off);

/**
 * Wait until the device is idle, as weir_device_idle_begin_within(), but for ever at the session's
 * end, and not at all while the device is busy with what an earlier call was put off for.
 * @return CUDA_SUCCESS, with ret_idle for weir_device_idle_end()
 * @return CUDA_ERROR_TIMEOUT  put the call off with weir_put_off()
 */
CUresult weir_put_off_begin(struct weir_session *session, uint32_t *ret_idle);

/**
 * Have it done later. Without memory to remember it, waits and does it here.
 * @param address  of the worker, that it gives free; 0 and 0 bytes: none
 */
void weir_put_off(struct weir_session *session, weir_put_off_fn make, void *what, uint64_t address,
                  uint64_t bytes);

/** Is there anything to do? */
bool weir_put_off_any(const struct weir_session *session);
/** Will a call give these addresses free? */
bool weir_put_off_holds(const struct weir_session *session, uint64_t address, uint64_t bytes);
/** Do it, if the device is idle. Cheap while it is not. */
void weir_put_off_try(struct weir_session *session);
/** Wait and do it. @return CUDA_ERROR_TIMEOUT  not within the tenant's load_wait_s */
CUresult weir_put_off_settle(struct weir_session *session);
/** The session ends: wait for as long as it takes, and do it. */
void weir_put_off_finish(struct weir_session *session);

#endif
