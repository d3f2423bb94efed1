/*
 * PTX to a module that the driver loads: by ptxas in a process of its own, or by the driver's
 * linker in this one.
 */
#ifndef WEIR_HOST_BACKEND_WORKER_TWINS_COMPILE_H
#define WEIR_HOST_BACKEND_WORKER_TWINS_COMPILE_H

#include "base/status.h"
#include "host_backend/worker/twins/ptxas.h"
#include "proto/cuda_abi.h"
#include "proto/driver_table.h"
#include <stddef.h>
#include <stdint.h>

/* Immutable while it is open. */
struct weir_forms_compiler {
    struct weir_ptxas ptxas; /* without a process the driver compiles */
    char id[320];            /* tells results of different compilers apart */
};

/* The guest's JIT options; numbers only. */
struct weir_forms_options {
    const CUjit_option *ids;
    void *const *values;
    uint32_t n;
};

struct weir_forms_compile_params {
    const struct weir_forms_compiler *compiler;
    const struct weir_driver *driver; /* its context is current */
    const char *tmp_dir;              /* for ptxas' files; "": /tmp */
    const char *text;                 /* ends in a NUL */
    size_t text_bytes;
    uint32_t sm;    /* of the GPU, times ten */
    char sm_suffix; /* of the text's target, or 0 */
    struct weir_forms_options options;
};

/**
 * Choose the compiler, and start the process that executes it.
 *
 * @param wanted  path of ptxas; "auto": looked for on PATH and in /usr/local/cuda; "driver".
 * @thread the only one of its process, unless wanted is "driver"
 */
void weir_forms_compiler_open(const char *wanted, struct weir_forms_compiler *ret_compiler);

/** From now on the driver compiles. @thread owner, while nobody compiles */
void weir_forms_compiler_close(struct weir_forms_compiler *compiler);

/**
 * Compile. What ptxas does not take, or has no option for, the driver is given.
 *
 * @param ret_image  of malloc, the caller's.
 * @param why        filled on failure; 200 bytes.
 * @return WEIR_OK, WEIR_ERR_DRIVER (refused), WEIR_ERR_NO_MEMORY
 * @thread one that may wait for seconds
 */
enum weir_status weir_forms_compile(const struct weir_forms_compile_params *params,
                                    uint8_t **ret_image, size_t *ret_bytes,
                                    char *why) WEIR_MUST_CHECK;

#endif
