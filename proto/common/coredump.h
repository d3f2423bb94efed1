/*
 * Settings of GPU core dumps. No library here writes a core dump: a program or a debugger's script
 * only gets back the settings that it made.
 */
#pragma once

#include "proto/cuda_abi.h"

struct weir_coredump; /* a context's settings */

/**
 * cuCoredumpSetAttribute() and, for own NULL, cuCoredumpSetAttributeGlobal().
 *
 * @param own    of a context: NULL before the first call, which makes it; free() it with the
 * context.
 * @param value  a bool, an int, or text that need not end with a NUL; with size.
 * @return CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_OUT_OF_MEMORY
 * @thread any
 */
CUresult weir_coredump_set(struct weir_coredump **own, CUcoredumpSettings attrib, const void *value,
                           const size_t *size);

/**
 * cuCoredumpGetAttribute() and, for own NULL, cuCoredumpGetAttributeGlobal(). A setting that the
 * context has not made has the global value, or else the driver's default.
 *
 * @param size  room at value; set to the needed size. value NULL: only get the size.
 * @return CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE
 * @thread any
 */
CUresult weir_coredump_get(struct weir_coredump *const *own, CUcoredumpSettings attrib, void *value,
                           size_t *size);
