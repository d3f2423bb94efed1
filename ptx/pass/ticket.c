/*
 * Ticket: each block of a one-dimensional grid takes the next logical block, or ends at once when
 * it is told to stop or none is left.
 *
 * One thread asks and tells the others through shared memory. The barrier between may be number 0:
 * all threads of the block are still there, and whoever comes to the kernel's own barrier 0 next
 * has passed this one, as all others have arrived at it. Nothing is written after that, so that no
 * second barrier is needed.
 */
#include "ptx/pass/twin.h"

enum weir_status weir_ptx_pass_ticket(struct weir_ptx_twin *twin)
{
    struct weir_ptx_edit edit;

    weir_ptx_edit_begin(&edit, twin, twin->entry);
    uint32_t body = weir_ptx_edit_label(&edit, "BODY");

    weir_ptx_edit_text(
        &edit,
        ".reg .pred %%p;\n.reg .b32 %%a, %%b, %%s, %%k;\n.reg .b64 %%c, %%n, %%e, %%one;\n"
        "mov.b32 %%a, %%tid.x;\nmov.b32 %%b, %%tid.y;\nor.b32 %%a, %%a, %%b;\n"
        "mov.b32 %%b, %%tid.z;\nor.b32 %%a, %%a, %%b;\n"
        "setp.ne.u32 %%p, %%a, 0;\n@%%p bra TOLD;\n"
        "ld.param.b64 %%c, [" WEIR_PTX_ARGS_NAME "];\n"
        "mov.b32 %%k, -1;\n"
        "ld.volatile.global.u32 %%s, [%%c+%zu];\n"
        "setp.ne.u32 %%p, %%s, 0;\n@%%p bra TELL;\n"
        "ld.volatile.global.u64 %%e, [%%c+%zu];\n"
        "mov.b64 %%one, 1;\n"
        "atom.global.add.u64 %%n, [%%c+%zu], %%one;\n"
        "setp.ge.u64 %%p, %%n, %%e;\n@%%p bra TELL;\n"
        "cvt.u32.u64 %%k, %%n;\n"
        "TELL:\nst.shared.b32 [" WEIR_PTX_TASK_NAME "], %%k;\n"
        "TOLD:\nbar.sync 0;\n"
        "ld.shared.b32 %%wn, [" WEIR_PTX_TASK_NAME "];\n"
        "setp.ne.s32 %%p, %%wn, -1;\n@%%p bra BODY;\nret;\n",
        offsetof(struct weir_ptx_control, stop), offsetof(struct weir_ptx_control, end),
        offsetof(struct weir_ptx_control, next));
    weir_ptx_edit_place(&edit, body);
    weir_ptx_grid_emit(&edit);
    weir_ptx_index_emit(&edit);
    weir_ptx_edit_keep(&edit, 0, twin->entry->n_insts);
    twin->info->barriers = 1;
    return weir_ptx_edit_finish(&edit);
}
