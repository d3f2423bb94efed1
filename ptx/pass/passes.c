/* The table of passes, in the order of passes.def, and their application to a twin. */
#include "ptx/pass/passes.h"
#include "ptx/twin/editor.h"

#define FORM_BIT(name) WEIR_PTX_FORM_BIT(WEIR_PTX_FORM_##name)

static const struct pass {
    uint32_t forms;
    enum weir_status (*run)(struct weir_ptx_twin *twin);
} passes[] = {
#define WEIR_PTX_PASS(name, forms) {forms, weir_ptx_pass_##name},
#include "ptx/pass/passes.def"
#undef WEIR_PTX_PASS
};
#define N_PASSES WEIR_COUNT(passes)

/* Can one logical block disturb the next one of the same worker? */
static bool blocks_interfere(const struct weir_ptx_twin *twin)
{
    return twin->kernel->shared_static_bytes > 0 ||
           weir_ptx_kernel_has(twin->kernel, WEIR_PTX_FACT_DYNAMIC_SHARED) ||
           weir_ptx_kernel_has(twin->kernel, WEIR_PTX_FACT_BARRIER) ||
           weir_ptx_kernel_has(twin->kernel, WEIR_PTX_FACT_CP_ASYNC);
}

enum weir_status weir_ptx_passes_run(struct weir_ptx_twin *twin)
{
    enum weir_status status = WEIR_OK;

    for (uint32_t i = 0; i < N_PASSES && status == WEIR_OK; i++) {
        if (passes[i].forms & WEIR_PTX_FORM_BIT(twin->form)) {
            status = passes[i].run(twin);
        }
        twin->block_barrier = blocks_interfere(twin) || twin->index;
    }
    return status;
}
