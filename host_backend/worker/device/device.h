/*
 * The driver and the worker's devices: found, described (device.c), and their contexts
 * (contexts.c). The first device's context is opened when the worker starts, each other at the
 * first use of that device, because a context takes some 500 MiB of it. All of them last as long as
 * the worker.
 *
 * Source: docs/design/devices.md
 */
#ifndef WEIR_HOST_BACKEND_WORKER_DEVICE_DEVICE_H
#define WEIR_HOST_BACKEND_WORKER_DEVICE_DEVICE_H

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

/** A device's compute capability, times ten; 0: its driver does not say. @thread any */
uint32_t weir_device_capability(const struct weir_device *device);
/**
 * How many contexts a device takes, of all processes together: what was seen of a GPU
 * (docs/measurements/contexts.md), or as many as its memory has room for.
 * @thread any; the device is found, and need not be open
 */
uint32_t weir_platform_n_contexts(const struct weir_platform *platform, uint32_t device);
/** Bytes of all devices. @thread any */
uint64_t weir_platform_total_bytes(const struct weir_platform *platform);
/** "NVIDIA H200", or "2 x NVIDIA H200", or both names where they differ. @thread any */
void weir_platform_text(const struct weir_platform *platform, char *text, size_t bytes);
/** Make the first device's context current in this thread, with relaxed capture. @thread any */
CUresult weir_platform_enter(const struct weir_platform *platform);

/**
 * Open a device, if it is not open yet: retain its primary context and make its gate. Takes 0.2 to
 * 0.5 s on a GPU, in which only threads wait that want the same device. A later try may succeed.
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
 * Set a limit of the context of the session's device. The session's tenant is charged for memory
 * that the context needs in addition to what it had when it was opened. The context keeps the
 * memory until the limit is lowered, so the charge stays as long as the tenant has a session in
 * this worker.
 *
 * @param limit      below WEIR_DEVICE_LIMITS.
 * @param may_lower  no other session uses the context; else a lower value changes nothing.
 * @param ret_now    the limit afterwards, even if it differs from value.
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

#endif
