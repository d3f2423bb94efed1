/*
 * Slice: a one-dimensional grid whose block b runs the logical block first + b. The launcher cuts
 * the logical grid as it likes; every slice must end within it.
 */
#include "ptx/pass/passes.h"
#include "ptx/twin/editor.h"

enum weir_status weir_ptx_pass_slice(struct weir_ptx_twin *twin)
{
    struct weir_ptx_edit edit;

    weir_ptx_edit_begin(&edit, twin, twin->entry);
    weir_ptx_edit_text(&edit,
                       ".reg .b32 %%b, %%f;\n"
                       "ld.param.b32 %%f, [" WEIR_PTX_ARGS_NAME "+%zu];\n"
                       "mov.b32 %%b, %%ctaid.x;\n"
                       "add.u32 %%wn, %%b, %%f;\n",
                       offsetof(struct weir_ptx_form_args, first));
    weir_ptx_grid_emit(&edit);
    weir_ptx_index_emit(&edit);
    weir_ptx_edit_keep(&edit, 0, twin->entry->n_insts);
    return weir_ptx_edit_finish(&edit);
}
