/*
 * The contexts of a worker's devices. The first device's is opened when the worker starts, each
 * other at the first use of that device, because a context takes some 500 MiB of it. All of them
 * last as long as the worker.
 *
 * Private to host_backend/worker. Source: docs/design/devices.md
 */
#ifndef WEIR_HOST_BACKEND_WORKER_SESSION_CONTEXTS_H
#define WEIR_HOST_BACKEND_WORKER_SESSION_CONTEXTS_H

#include "host_backend/worker/session/platform.h"

/**
 * Open a device, if it is not open yet: retain its primary context and make its gate. Takes 0.2 to
 * 0.5 s on a GPU, in which only those wait who want the same device. A later try may succeed.
 *
 * @param index  below the worker's n_devices.
 * @return CUDA_SUCCESS, or what the driver said: CUDA_ERROR_OUT_OF_MEMORY is likely
 * @thread any, holding no lock; within a handler, too. What is current in the thread stays.
 */
CUresult weir_worker_device_open(struct weir_worker *worker, uint32_t index);

/** Release the contexts. No session and no gate may be left. @thread main */
void weir_worker_contexts_close(struct weir_worker *worker);

/** The first device has its gate and all else now: these are its limits. @thread main, before there
 * are sessions */
void weir_worker_limits_note(struct weir_worker *worker);

/** Do the contexts have other limits than when they were opened? @thread main, with no session
 * left */
bool weir_worker_limits_changed(const struct weir_worker *worker);

/**
 * Set a limit of the session's device's context. What the context needs for it beyond what it had
 * when it was opened is charged to the session's tenant. The context has it until the limit is
 * lowered, so it stays charged as long as the tenant has a session in this worker.
 *
 * @param limit      below WEIR_DEVICE_LIMITS.
 * @param may_lower  nobody else has the context; else a lower value than it has changes nothing.
 * @param ret_now    the limit afterwards, also where it is another one than was wanted.
 * @return CUDA_SUCCESS, CUDA_ERROR_OUT_OF_MEMORY (over the quota), or what the driver says
 * @thread the session's, in a handler
 */
CUresult weir_context_limit_set(struct weir_session *session, uint32_t limit, uint64_t value,
                                bool may_lower, uint64_t *ret_now);
/** A session of the tenant begins: charge what earlier ones have left behind, if it can be. Not for
 * monitors. @thread any */
void weir_context_limits_join(struct weir_tenant *tenant);
/** One has ended, and its memory is given back. @thread any */
void weir_context_limits_leave(struct weir_tenant *tenant);

/** How many devices are open. @thread any */
uint32_t weir_platform_n_open(const struct weir_platform *platform);

#endif
