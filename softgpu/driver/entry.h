/* What every exported entry checks before its body runs. */
#pragma once

#include "softgpu/driver/cuda_types.h"
#include <stdbool.h>

/**
 * May a call go on?
 *
 * @param name    of the entry, for the log (WEIR_SOFTGPU_LOG=debug).
 * @param always  the entry may be called before cuInit.
 * @return CUDA_SUCCESS
 * @return CUDA_ERROR_NOT_INITIALIZED  before cuInit, and for ever in a child of a process that had
 *                                     called it
 * @return CUDA_ERROR_DEINITIALIZED    the process is on its way out
 * @thread any
 */
CUresult weir_soft_enter(const char *name, bool always);

/**
 * May a call go on that is unsafe while a stream is captured (proto/common/capture_mode.h)?
 *
 * @return CUDA_SUCCESS
 * @return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED  no; the captures that forbid it are invalidated
 * @thread any
 */
CUresult weir_soft_enter_unsafe(void);

/* Both strings are literals, so the compiler evaluates the comparison. */
#define WEIR_SOFT_IS(entry, name) (__builtin_strcmp(#entry, name) == 0)
#define WEIR_SOFT_ENTER(entry)                                                                     \
    weir_soft_enter(#entry, WEIR_SOFT_IS(entry, "cuInit") ||                                       \
                                WEIR_SOFT_IS(entry, "cuDriverGetVersion") ||                       \
                                WEIR_SOFT_IS(entry, "cuGetProcAddress") ||                         \
                                WEIR_SOFT_IS(entry, "cuGetProcAddress_v2") ||                      \
                                WEIR_SOFT_IS(entry, "cuGetExportTable") ||                         \
                                WEIR_SOFT_IS(entry, "cuGetErrorString") ||                         \
                                WEIR_SOFT_IS(entry, "cuGetErrorName"))
