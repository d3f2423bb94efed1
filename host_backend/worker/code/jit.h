/*
 * Compiles PTX to a module that the driver loads: by ptxas in a process of its own (compiler/), or
 * by the driver's linker in this process.
 */
#pragma once

#include "base/status.h"
#include "host_backend/compiler/compiler.h"
#include "proto/cuda_abi.h"
#include "proto/driver_table.h"

#define WEIR_JIT_WHY_BYTES 200

/* A program's JIT options; numbers only. */
struct weir_jit_options {
    const CUjit_option *ids;
    void *const *values;
    uint32_t n;
};

/**
 * Convert the options to those of ptxas.
 * @return false: one option has no equivalent; *ret_options has the others
 * @thread any
 */
bool weir_jit_ptxas_options(const struct weir_jit_options *options,
                            struct weir_compile_options *ret_options);

/**
 * Have the driver's linker compile a text. Its context is current.
 *
 * @param text        ends in a NUL.
 * @param ret_result  image if WEIR_OK; log in any case: the driver's messages.
 * @return WEIR_OK, WEIR_ERR_DRIVER (refused), WEIR_ERR_NO_MEMORY
 * @thread one that may wait for seconds
 */
enum weir_status weir_jit_by_driver(const struct weir_driver *driver, const char *text,
                                    size_t text_bytes, const struct weir_jit_options *options,
                                    struct weir_compile_result *ret_result) WEIR_MUST_CHECK;

/* All members are borrowed for the call. */
struct weir_jit_params {
    const struct weir_compiler *compiler;
    const struct weir_driver *driver; /* driver whose context is current */
    struct weir_compile_job job;      /* the job; its options are ignored */
    struct weir_jit_options options;
};

/**
 * Compile a text. If ptxas refuses it or lacks an option, the driver compiles it; not if ptxas
 * crashed or exceeded its limits.
 *
 * @param ret_image  made by malloc; the caller frees it.
 * @param why        filled on failure; WEIR_JIT_WHY_BYTES.
 * @return WEIR_OK, WEIR_ERR_DRIVER (refused), WEIR_ERR_NO_MEMORY
 * @thread one that may wait for seconds
 */
enum weir_status weir_jit(const struct weir_jit_params *params, uint8_t **ret_image,
                          size_t *ret_bytes, char *why) WEIR_MUST_CHECK;
