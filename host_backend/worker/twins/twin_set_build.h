/* Makes a set of compiled twins from an image's PTX, or reads it from the cache. */
#pragma once

#include "host_backend/config/file_cache.h"
#include "host_backend/config/forms.h"
#include "host_backend/worker/code/jit.h"
#include "host_backend/worker/twins/twin_set.h"

#define WEIR_FORMS_TEXT_MAX_BYTES (UINT64_C(16) << 20)

/* All members are borrowed for the call. */
struct weir_forms_build_params {
    struct weir_file_cache *cache;
    const struct weir_compiler *compiler;
    const struct weir_driver *driver; /* driver whose context is current */
    int driver_version;
    uint32_t sm; /* the GPU's compute capability times ten */
    enum weir_forms_twins twins;
    const char *kernel; /* build only its persistent twin, within max_regs registers; or NULL */
    uint32_t max_regs;
    struct weir_jit_options options;
    uint64_t compile_memory_bytes; /* memory that ptxas may use */
    const char *tenant;
    const char *text; /* ends in a NUL */
    size_t text_bytes;
};

/* The result of a build, for the log. */
struct weir_forms_build_report {
    bool cached;
    uint32_t n_kernels;   /* kernels in the text; 0 when the set came from the cache */
    char why[200];        /* reason why the build failed */
    struct weir_hash key; /* key of the set in the cache */
};

/**
 * Build the twins of a text.
 *
 * @param ret_set     gives the set; it may have no kernels.
 * @param ret_report  filled in any case.
 * @return WEIR_OK
 * @return WEIR_ERR_SYNTAX, WEIR_ERR_UNSUPPORTED, WEIR_ERR_TOO_BIG  an error of Weir's PTX parser,
 *                          or a limit.
 * @return WEIR_ERR_DRIVER  the compiler refused the twins.
 * @return WEIR_ERR_NO_MEMORY
 * @thread one that may wait for seconds
 */
enum weir_status weir_forms_build(const struct weir_forms_build_params *params,
                                  struct weir_forms_set **ret_set,
                                  struct weir_forms_build_report *ret_report) WEIR_MUST_CHECK;
