/*
 * Ticket: each block of a one-dimensional grid takes the next logical block, or ends at once when
 * the host stops the launch or no block is left.
 *
 * One thread takes the block and passes its number to the others through shared memory. The barrier
 * in between may be number 0: all threads of the block are still there, and a thread that comes to
 * the kernel's own barrier 0 next has passed this one, since all others have arrived at it. Nothing
 * is written after that, so that no second barrier is needed.
 */
#include "ptx/pass/passes.h"
#include "ptx/twin/editor.h"

_Static_assert(offsetof(struct weir_ptx_control, stop) == 0, "read at the block's address");

enum weir_status weir_ptx_pass_ticket(struct weir_ptx_twin *twin)
{
    struct weir_ptx_edit edit;

    weir_ptx_edit_begin(&edit, twin, twin->entry);
    uint32_t body = weir_ptx_edit_label(&edit, "BODY");
    const char *task = weir_ptx_slot_task(&edit);

    weir_ptx_edit_text(&edit,
                       ".reg .pred %%p;\n.reg .b32 %%a, %%b, %%s, %%k, %%e;\n.reg .b64 %%c;\n"
                       "mov.b32 %%a, %%tid.x;\nmov.b32 %%b, %%tid.y;\nor.b32 %%a, %%a, %%b;\n"
                       "mov.b32 %%b, %%tid.z;\nor.b32 %%a, %%a, %%b;\n"
                       "setp.ne.u32 %%p, %%a, 0;\n@%%p bra TOLD;\n"
                       "ld.param.b64 %%c, [" WEIR_PTX_ARGS_NAME "];\n"
                       "mov.b32 %%k, -1;\n"
                       "ld.volatile.global.u32 %%s, [%%c];\n"
                       "setp.ne.u32 %%p, %%s, 0;\n@%%p bra TELL;\n"
                       "atom.global.add.u32 %%a, [%%c+%zu], 1;\n"
                       "ld.param.b32 %%e, [" WEIR_PTX_ARGS_NAME "+%zu];\n"
                       "setp.lt.u32 %%p, %%a, %%e;\n@%%p mov.b32 %%k, %%a;\n"
                       "TELL:\nst.shared.b32 [%s], %%k;\n"
                       "TOLD:\nbar.sync 0;\n"
                       "ld.shared.b32 %%wn, [%s];\n"
                       "setp.ne.s32 %%p, %%wn, -1;\n@%%p bra BODY;\nret;\n",
                       offsetof(struct weir_ptx_control, next),
                       offsetof(struct weir_ptx_form_args, end), task, task);
    weir_ptx_edit_place(&edit, body);
    weir_ptx_grid_emit(&edit);
    weir_ptx_index_emit(&edit);
    weir_ptx_edit_keep(&edit, 0, twin->entry->n_insts);
    twin->info->barriers = 1;
    return weir_ptx_edit_finish(&edit);
}
