/* The types of a session's modules and functions. Only its own thread touches them. */
#ifndef WEIR_HOST_BACKEND_WORKER_CODE_MODULES_H
#define WEIR_HOST_BACKEND_WORKER_CODE_MODULES_H

#include "host_backend/gate/gate.h"
#include "host_backend/worker/state/object.h"
#include "proto/cuda_abi.h"

struct weir_closed_kernels;
struct weir_forms_kernel;
struct weir_forms_module;
struct weir_host_image;
struct weir_host_jit_options;
struct weir_session;

/* A module or a library. */
struct weir_host_module {
    struct weir_object o;
    struct weir_host_image
        *image;       /* a reference: the driver may read it as long as the module lives */
    const void *code; /* what of it the driver was given; the image's */
    bool library;
    bool of_library; /* the module of a library: unloaded with it */
    bool uses_printf, may_assert;
    const struct weir_closed_kernels *closed; /* the image's: for these neither holds; or NULL */
    bool is_bundle;
    struct weir_forms_module *forms; /* its twins, a list by device; NULL: none (twins/) */
    bool used;      /* a library of which something was asked for: its variables may have changed */
    bool reset_due; /* the last context has gone since, and it is loaded still (ops/reset.c) */
    struct weir_host_jit_options *options; /* a library's, to load it again with; NULL: none */
};

#define WEIR_FUNCTION_SETTABLE 16 /* attributes below this can be set */

struct weir_host_function {
    struct weir_object o;  /* native: the CUfunction */
    CUkernel kernel;       /* of a library; or NULL */
    CUfunction *elsewhere; /* a kernel's function on each device; NULL until there is a second */
    char *name;            /* the guest's; NULL: none yet */
    struct weir_forms_module *forms;            /* its module's */
    struct weir_forms_kernel *form;             /* of those, once found */
    uint32_t set_mask;                          /* attributes that the guest has set .. */
    int32_t set_values[WEIR_FUNCTION_SETTABLE]; /* .. and what to */
    bool uses_printf, may_assert;
    uint32_t loaded_on; /* devices where its code is known to be loaded, a bit each */
    bool layout_known;
    struct weir_gate_hint hint;
    uint32_t param_bytes; /* what a launch must bring at least */
    uint32_t n_params;
};

/**
 * The driver's function on the session's current device: a kernel of a library has one for each,
 * with the attributes that the guest has set; a module's is on its own only.
 */
CUresult weir_function_here(struct weir_session *session, struct weir_host_function *function,
                            CUfunction *ret_native);

/**
 * Load a function's code on the session's current device: later launches of it wait for nothing.
 * The driver may wait for the device's work meanwhile, so what is stopped goes on first. Nothing
 * where it is loaded.
 *
 * @param native  weir_function_here()'s.
 * @return CUDA_SUCCESS
 * @return CUDA_ERROR_NOT_SUPPORTED  a driver before CUDA 12.4
 * @return the driver's
 * @thread session, holding no lock
 */
CUresult weir_function_load(struct weir_session *session, struct weir_host_function *function,
                            CUfunction native);

#endif
