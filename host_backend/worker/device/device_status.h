/* Reports the state of a worker's device to operators. Private to host_backend/worker. */
#pragma once

#include "host_backend/config/control.h"

struct weir_worker;

/**
 * @param looks  ask NVML and the driver for the current state; else that stays unknown.
 * @thread main; leaves the context of a device that is open current if it looks
 */
void weir_device_status(const struct weir_worker *worker, uint32_t device, bool looks,
                        struct weir_status_device *row);
