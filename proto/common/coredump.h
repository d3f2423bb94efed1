/*
 * Settings of GPU core dumps. No library here writes one: a program, or a debugger's script, that
 * sets them gets back what it has set.
 */
#ifndef WEIR_PROTO_COMMON_COREDUMP_H
#define WEIR_PROTO_COMMON_COREDUMP_H

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
 * cuCoredumpGetAttribute() and, for own NULL, cuCoredumpGetAttributeGlobal(). What a context has
 * not set is as everywhere, and what is not set there as the driver has it by default.
 *
 * @param size  room at value; gets what was needed. value NULL: only that.
 * @return CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE
 * @thread any
 */
CUresult weir_coredump_get(struct weir_coredump *const *own, CUcoredumpSettings attrib, void *value,
                           size_t *size);

#endif
