/*
 * The inside of a session: variables of modules with twins whose addresses the guest has got. Only
 * module_variables.c uses it.
 */
#pragma once

#include "proto/cuda_abi.h"
#include <stdbool.h>
#include <stdint.h>

struct weir_forms_module;
struct weir_host_module;

struct weir_forms_exposure {
    struct weir_forms_exposure *next;
    struct weir_host_module *module; /* never dereferenced */
    struct weir_forms_module *forms;
    CUdeviceptr address;
    size_t bytes;
    CUdeviceptr twin;  /* the constant's copy, once bound; else 0 */
    bool in_arguments; /* a kernel may write the variable */
    CUevent written;   /* recorded behind the last write before binding; or NULL */
    uint64_t stream;   /* handle of the stream of that write */
};

/* A session's exposures, and which of them the current operation is about to write. */
struct weir_forms_exposures {
    struct weir_forms_exposure *first; /* never NULL: the struct is freed with the last one */
    uint64_t touched_address, touched_bytes;
};
