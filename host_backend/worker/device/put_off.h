/*
 * Calls of a session that need an idle device and cannot fail: unloading code, destroying arrays,
 * unregistering host memory.
 *
 * Such a call waits for WEIR_PUT_OFF_NS. If another program keeps the device busy for longer, the
 * call is deferred: the guest gets success, and memory that the call will free stays charged to the
 * session's tenant. The session's thread makes the call between two records once the device is
 * idle, or at the session's end, when it waits without limit. So no other session waits for it, and
 * no second thread touches the session's objects.
 *
 * Owner thread only. Source: docs/design/preemption.md
 */
#pragma once

#include "base/clock.h"
#include "proto/cuda_abi.h"
#include <stdbool.h>
#include <stdint.h>

#define WEIR_PUT_OFF_NS (WEIR_NS_PER_S / 4)

struct weir_put_off;
struct weir_session;

/** The call to make while the device is idle. @param what its object, which it frees */
typedef void (*weir_put_off_fn)(struct weir_session *session, void *what);

/** Make a session's list of deferred calls. NULL: out of memory. */
struct weir_put_off *weir_put_off_create(void);
/** Free the list, which must be empty. Accepts NULL. */
void weir_put_off_destroy(struct weir_put_off *put_off);

/**
 * Wait until the device is idle, as weir_device_idle_begin_within(), but without limit at the
 * session's end. Does not wait while the device is busy with the work for which an earlier call was
 * deferred.
 * @return CUDA_SUCCESS, with ret_idle for weir_device_idle_end()
 * @return CUDA_ERROR_TIMEOUT  defer the call with weir_put_off()
 */
CUresult weir_put_off_begin(struct weir_session *session, uint32_t *ret_idle);

/**
 * Defer the call. Without memory for that, wait and make the call now.
 * @param address worker memory that the call will free; 0 and 0 bytes: none
 */
void weir_put_off(struct weir_session *session, weir_put_off_fn make, void *what, uint64_t address,
                  uint64_t bytes);

/** Are there deferred calls? */
bool weir_put_off_any(const struct weir_session *session);
/** Will a deferred call free these addresses? */
bool weir_put_off_holds(const struct weir_session *session, uint64_t address, uint64_t bytes);
/** Make the deferred calls if the device is idle. Cheap while it is not. */
void weir_put_off_try(struct weir_session *session);
/** Wait and make the deferred calls. @return CUDA_ERROR_TIMEOUT not within the tenant's
 * load_wait_s */
CUresult weir_put_off_settle(struct weir_session *session);
/** The session ends: wait without limit, and make the deferred calls. */
void weir_put_off_finish(struct weir_session *session);
