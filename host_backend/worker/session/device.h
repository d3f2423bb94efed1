/* The driver and the worker's devices: found, opened and described. */
#ifndef WEIR_HOST_BACKEND_WORKER_SESSION_DEVICE_H
#define WEIR_HOST_BACKEND_WORKER_SESSION_DEVICE_H

#include "host_backend/worker/session/platform.h"

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

#endif
