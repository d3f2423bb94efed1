/*
 * Settings of GPU core dumps. No library here writes one: a program, or a debugger's script, that
 * sets them gets back what it has set.
 */
#ifndef WEIR_PROTO_COMMON_COREDUMP_H
#define WEIR_PROTO_COMMON_COREDUMP_H

#include "proto/cuda_abi.h"
#include <stdbool.h>

#define WEIR_COREDUMP_NAME_BYTES 1024 /* as CUDA's documentation says, with the NUL */

/* Zeroed: nothing is set. Guarded by whoever has it. */
struct weir_coredump {
    unsigned int set; /* bit per CUcoredumpSettings */
    bool flags[CU_COREDUMP_MAX];
    int generation_flags;
    char names[2][WEIR_COREDUMP_NAME_BYTES]; /* CU_COREDUMP_FILE, CU_COREDUMP_PIPE */
};

/**
 * cuCoredumpSetAttribute().
 *
 * @param value  a bool, an int, or text that need not end with a NUL; with size.
 * @return CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE
 */
CUresult weir_coredump_set(struct weir_coredump *settings, CUcoredumpSettings attrib,
                           const void *value, const size_t *size);

/**
 * cuCoredumpGetAttribute().
 *
 * @param own         of a context; or NULL.
 * @param everywhere  what is not set there is as here, or else as the driver has it by default.
 * @param size        room at value; gets what was needed. value NULL: only that.
 * @return CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE
 */
CUresult weir_coredump_get(const struct weir_coredump *own, const struct weir_coredump *everywhere,
                           CUcoredumpSettings attrib, void *value, size_t *size);

#endif
