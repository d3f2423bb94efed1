/* The connection to the host that Weir's libnvidia-ml.so.1 uses. It is in this library; see
 * monitor.c. */
#pragma once

#include "proto/cuda_abi.h"
#include <stdbool.h>

/**
 * Is this the UUID of proto/nvml/session_table.h? Then give that table, static memory.
 * @thread any, also before cuInit
 */
bool weir_monitor_table(const CUuuid *id, const void **ret_table);
