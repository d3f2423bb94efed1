/*
 * A twin set is the result of making twins of a module's PTX: the compiled module of twins, and
 * what is needed to launch them. The cache file and the memory hold the same bytes.
 */
#pragma once

#include "base/status.h"
#include "ptx/analysis.h"
#include "ptx/twin/twin.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A twin; name NULL: there is none of this form. */
struct weir_forms_twin {
    const char *name; /* name in the module of twins */
    uint32_t args_offset;
    uint32_t param_bytes;
    uint32_t dynamic_shared_bytes; /* add to the launch's bytes, rounded up to 16 first */
};

struct weir_forms_kernel_info {
    const char *name; /* name of the original kernel */
    struct weir_forms_twin twins[WEIR_PTX_FORM_COUNT];
};

/* Immutable once made; texts and image lie in bytes. */
struct weir_forms_set {
    uint8_t *bytes; /* owned: as weir_forms_set_encode() wrote them, and 64 of NUL */
    size_t n_bytes;
    struct weir_forms_kernel_info *kernels; /* sorted by name */
    uint32_t n_kernels;
    const char **binds; /* names of the original's variables, in the order of WEIR_PTX_BINDS_NAME */
    uint32_t n_binds;
    const char **consts;
    uint32_t n_consts;
    const uint8_t *image; /* NULL: no kernel has a twin */
    size_t image_bytes;
};

/**
 * Write a set as bytes.
 *
 * @param twins        result of weir_ptx_twins().
 * @param image        the compiled module; NULL when n_made is 0.
 * @param ret_bytes    made by malloc; the caller frees it.
 * @return WEIR_OK, WEIR_ERR_NO_MEMORY
 * @thread any
 */
enum weir_status weir_forms_set_encode(const struct weir_ptx_twins *twins, const uint8_t *image,
                                       size_t image_bytes, uint8_t **ret_bytes,
                                       size_t *ret_n_bytes) WEIR_MUST_CHECK;

/**
 * Read a set.
 *
 * @param bytes    made by malloc; taken, also on failure.
 * @param ret_set  gives the set.
 * @return WEIR_OK, WEIR_ERR_INVALID (not written by weir_forms_set_encode()), WEIR_ERR_NO_MEMORY
 * @thread any
 */
enum weir_status weir_forms_set_decode(uint8_t *bytes, size_t n_bytes,
                                       struct weir_forms_set **ret_set) WEIR_MUST_CHECK;

/** Accepts NULL. */
void weir_forms_set_destroy(struct weir_forms_set *set);

/** Find the kernel of a name; NULL: none. @thread any */
const struct weir_forms_kernel_info *weir_forms_set_find(const struct weir_forms_set *set,
                                                         const char *name);
