/* The passes that passes.def lists, and their table for printing. */
#pragma once

#include "base/status.h"

struct weir_ptx_twin;

#define WEIR_PTX_PASS(name, forms)                                                                 \
    enum weir_status weir_ptx_pass_##name(struct weir_ptx_twin *twin) WEIR_MUST_CHECK;
#include "ptx/pass/passes.def"
#undef WEIR_PTX_PASS
