/*
 * The driver and the worker's devices: finding and describing them (device.c), and their contexts
 * (contexts.c). The first device's context is opened when the worker starts, each other at the
 * first use of that device, because a context takes some 500 MiB of it. All contexts live as long
 * as the worker.
 *
 * Source: docs/design/devices.md
 */
#pragma once

#include "host_backend/worker/state/platform.h"

/**
 * Open the driver that the configuration asks for and find its devices, without contexts.
 * @param ret_why  filled on an error.
 * @return WEIR_OK, WEIR_ERR_NOT_FOUND (no driver, or no such device)
 */
enum weir_status weir_worker_find_devices(struct weir_worker *worker,
                                          struct weir_diag *ret_why) WEIR_MUST_CHECK;

/**
 * Open the driver that the configuration asks for, describe its devices and open the first one.
 * @return WEIR_OK, WEIR_ERR_NOT_FOUND (no driver or device), WEIR_ERR_DRIVER, WEIR_ERR_NO_MEMORY
 */
enum weir_status weir_worker_open_device(struct weir_worker *worker) WEIR_MUST_CHECK;
void weir_worker_close_device(struct weir_worker *worker);

/** A device's compute capability, times ten; 0: its driver does not report it. @thread any */
uint32_t weir_device_capability(const struct weir_device *device);
/**
 * How many contexts fit on a device, of all processes together: the number measured on a GPU
 * (docs/measurements/contexts.md), or as many as its memory has room for.
 * @thread any; the device is found, and need not be open
 */
uint32_t weir_platform_n_contexts(const struct weir_platform *platform, uint32_t device);
/** The memory of all devices, in bytes. @thread any */
uint64_t weir_platform_total_bytes(const struct weir_platform *platform);
/** A text such as "NVIDIA H200" or "2 x NVIDIA H200", or all names if they differ. @thread any */
void weir_platform_text(const struct weir_platform *platform, char *text, size_t bytes);
/** Make the first device's context current in this thread, with relaxed capture. @thread any */
CUresult weir_platform_enter(const struct weir_platform *platform);

/**
 * Open a device, if it is not open yet: retain its primary context and make its gate. This takes
 * 0.2 to 0.5 s on a GPU; only threads that want the same device wait meanwhile. After a failure a
 * later call may succeed.
 *
 * @param index  below the worker's n_devices.
 * @return CUDA_SUCCESS, or an error of the driver, mostly CUDA_ERROR_OUT_OF_MEMORY
 * @thread any, holding no lock; within a handler, too. The thread's current context stays.
 */
CUresult weir_worker_device_open(struct weir_worker *worker, uint32_t index);

/** Release the contexts. No session and no gate may be left. @thread main */
void weir_worker_contexts_close(struct weir_worker *worker);

/** The first device is open completely: remember its limits. @thread main, before there are
 * sessions */
void weir_worker_limits_note(struct weir_worker *worker);

/** Were limits of the contexts changed since they were opened? @thread main, with no session
 * left */
bool weir_worker_limits_changed(const struct weir_worker *worker);

/**
 * Set a limit of the context of the session's device. The session's tenant is charged for memory
 * that the context needs in addition to what it had when it was opened. The context keeps the
 * memory until the limit is lowered, so the charge stays as long as the tenant has a session in
 * this worker.
 *
 * @param limit      below WEIR_DEVICE_LIMITS.
 * @param may_lower  no other session uses the context; else a lower value changes nothing.
 * @param ret_now    the limit afterwards, even if it differs from value.
 * @return CUDA_SUCCESS, CUDA_ERROR_OUT_OF_MEMORY (over the quota), or an error of the driver
 * @thread the session's, in a handler
 */
CUresult weir_context_limit_set(struct weir_session *session, uint32_t limit, uint64_t value,
                                bool may_lower, uint64_t *ret_now);
/** A session of the tenant begins: charge the limits that earlier sessions have left, if possible.
 * Not called for monitors. @thread any */
void weir_context_limits_join(struct weir_tenant *tenant);
/** A session of the tenant has ended, and its memory is given back. @thread any */
void weir_context_limits_leave(struct weir_tenant *tenant);
