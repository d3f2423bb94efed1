/* The passes that passes.def lists, and their table for printing. */
#ifndef WEIR_PTX_PASS_PASSES_H
#define WEIR_PTX_PASS_PASSES_H

#include "base/status.h"
#include <stdbool.h>
#include <stdint.h>

struct weir_ptx_twin;

#define WEIR_PTX_PASS(name, forms, summary)                                                        \
    enum weir_status weir_ptx_pass_##name(struct weir_ptx_twin *twin) WEIR_MUST_CHECK;
#include "ptx/pass/passes.def"
#undef WEIR_PTX_PASS

/** Get a row of passes.def for printing; false past the last one. @thread any */
bool weir_ptx_pass_row(uint32_t index, const char **ret_name, const char **ret_summary,
                       uint32_t *ret_forms);

#endif
