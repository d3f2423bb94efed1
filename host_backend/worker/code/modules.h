/* The types of a session's modules and functions. Only its own thread touches them. */
#pragma once

#include "host_backend/gate/gate.h"
#include "host_backend/worker/state/object.h"
#include "proto/cuda_abi.h"

struct weir_closed_kernels;
struct weir_forms_kernel;
struct weir_forms_module;
struct weir_host_image;
struct weir_host_jit_options;
struct weir_session;
struct weir_variable;
struct weir_variables;

/* What is known of a module's kernels. */
#define WEIR_CODE_RAN     1u /* one may have run */
#define WEIR_CODE_UNSAVED 2u /* ... since its variables were last copied (rebuild/variables.c) */

/* A module or a library. */
struct weir_host_module {
    struct weir_object o;
    struct weir_host_image
        *image;       /* a reference, since the driver may read it while the module lives */
    const void *code; /* the part of the image that the driver got; the image owns it */
    bool library;
    bool of_library; /* the module belongs to a library and is unloaded with it */
    bool uses_printf, may_assert, leaves_addresses;
    const struct weir_closed_kernels *closed; /* kernels that neither print nor assert; or NULL */
    bool is_bundle;
    struct weir_forms_module *forms; /* the module's twins, a list by device; NULL: none (twins/) */
    struct weir_variables *variables; /* code/variables.h; NULL: nobody has had to know yet */
    struct weir_variable *asked;      /* variables whose addresses the guest has asked for */
    uint32_t n_asked, asked_room;
    uint8_t ran;    /* WEIR_CODE_RAN ...; a library's module has it there */
    bool in_graph;  /* a graph has a kernel of it, and may run it at any time */
    bool used;      /* the guest has asked for an object: its variables may differ */
    bool reset_due; /* its last context is gone, but the library is loaded (ops/reset.c) */
    struct weir_host_jit_options *options; /* options to load a library again with; NULL: none */
};

#define WEIR_FUNCTION_SETTABLE 16 /* only attributes below this number can be set */

struct weir_host_function {
    struct weir_object o;  /* its native handle is the CUfunction */
    CUkernel kernel;       /* a library's kernel; NULL for a module's function */
    CUfunction *elsewhere; /* a kernel's function on each device; NULL while only one is used */
    char *name;            /* the guest's name for the function; NULL: none yet */
    struct weir_forms_module *forms;            /* twins of the function's module */
    struct weir_forms_kernel *form;             /* this kernel's twins in forms, once found */
    uint32_t set_mask;                          /* attributes that the guest has set */
    int32_t set_values[WEIR_FUNCTION_SETTABLE]; /* the values that it set them to */
    bool uses_printf, may_assert;
    uint32_t loaded_on; /* bit mask of the devices where the code is known to be loaded */
    bool layout_known;
    struct weir_gate_hint hint;
    uint32_t param_bytes; /* the least size of a launch's parameters */
    uint32_t n_params;
};

/**
 * Find the driver's function on the session's current device. A library's kernel has one on each
 * device, with the attributes that the guest has set; a module's function only on its own.
 */
CUresult weir_function_here(struct weir_session *session, struct weir_host_function *function,
                            CUfunction *ret_native);

/**
 * Load a function's code on the session's current device: later launches need not wait for a load.
 * The driver may wait for the device's work, so stopped runs are resumed first. Does nothing if the
 * code is loaded.
 *
 * @param native  as of weir_function_here().
 * @return CUDA_SUCCESS
 * @return CUDA_ERROR_NOT_SUPPORTED  a driver before CUDA 12.4
 * @return an error of the driver
 * @thread session, holding no lock
 */
CUresult weir_function_load(struct weir_session *session, struct weir_host_function *function,
                            CUfunction native);
