/* Launch parameters, shared by launches and graph kernel nodes. */
#pragma once

#include "guest_lib/module.h"
#include "proto/cuda_abi.h"
#include "proto/ops.h"
#include "proto/wire/op_kinds.h"
#include <stdint.h>

#define WEIR_LAUNCH_ATTRIBUTES_MAX WEIR_OP_launch_in_attributes_max
#define WEIR_LAUNCH_PARAMS_MAX     32768 /* bytes; the driver's limit is 32,764 */

struct weir_launch_dims {
    uint32_t grid[3];
    uint32_t block[3];
    uint32_t shared_bytes;
};

/* A packed parameter buffer: in place when small, else allocated. */
struct weir_launch_buffer {
    const void *data;
    uint32_t bytes;
    uint8_t *allocated; /* free() it when done; NULL mostly */
    uint8_t small[4096] __attribute__((aligned(16)));
};

/**
 * Pack kernelParams by the function's layout, or take `extra`'s buffer as it is.
 *
 * @param buffer  filled; the caller must free buffer->allocated, on success only.
 * @return CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE (both are given, or parameters are missing or
 *         NULL), CUDA_ERROR_OUT_OF_MEMORY
 * @thread any
 */
CUresult weir_launch_params(const struct weir_guest_function *function, void **params, void **extra,
                            struct weir_launch_buffer *buffer);

/**
 * Select the attributes that go to the host, with only the used bytes of their values; events are
 * still the program's handles. CUDA_ERROR_NOT_SUPPORTED for device-updatable nodes.
 *
 * @param ret_attributes  room for WEIR_LAUNCH_ATTRIBUTES_MAX.
 * @thread any
 */
CUresult weir_launch_attributes(const CUlaunchAttribute *attributes, uint32_t count,
                                CUlaunchAttribute *ret_attributes, uint32_t *ret_count);
