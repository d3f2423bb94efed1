/*
 * Unified exit: in a twin that loops, a thread that would end goes instead to the end of the
 * logical block (twin->tail) and waits there for the others.
 *
 * In the original, a barrier of all threads does not wait for threads that have ended; in the twin
 * they have not ended. Kernels in which other threads may reach such a barrier later are refused
 * (EARLY_EXIT). warp_exit.c handles the same problem for exchanges of a warp.
 */
#include "ptx/pass/passes.h"
#include "ptx/twin/editor.h"

/* Replace ret or exit by a branch with the same guard. */
static void leave(struct weir_ptx_edit *edit, const struct weir_ptx_inst *inst)
{
    uint32_t first = edit->n_insts;

    weir_ptx_edit_text(edit, "bra TAIL;\n");
    if (edit->status == WEIR_OK) {
        edit->insts[first].guard = inst->guard;
        edit->insts[first].guard_negated = inst->guard_negated;
    }
}

static bool replace(struct weir_ptx_edit *edit, struct weir_ptx_warp_edit *we, uint32_t i)
{
    const struct weir_ptx_inst *inst = &edit->func->insts[i];
    bool entry = edit->func == edit->twin->entry;

    edit->n_names = entry ? WEIR_PTX_VIRTUAL_COUNT + 1 : 0; /* the virtual registers, and TAIL */
    if (entry && (inst->op == WEIR_PTX_OP_RET || inst->op == WEIR_PTX_OP_EXIT)) {
        leave(edit, inst);
        return true;
    }
    return weir_ptx_warp_edit_inst(we, edit, i);
}

static enum weir_status rewrite(struct weir_ptx_twin *twin, struct weir_ptx_func *func)
{
    struct weir_ptx_warp_edit we;
    struct weir_ptx_edit edit;

    weir_ptx_edit_begin(&edit, twin, func);
    enum weir_status status = weir_ptx_warp_edit_begin(&we, twin, func);

    if (status != WEIR_OK) {
        edit.status = status;
    }
    if (func == twin->entry) {
        twin->tail = weir_ptx_edit_label(&edit, "TAIL");
    }
    for (uint32_t i = 0; i < func->n_insts && edit.status == WEIR_OK; i++) {
        weir_ptx_edit_mark(&edit, i);
        if (!replace(&edit, &we, i)) {
            weir_ptx_edit_add(&edit, &func->insts[i]);
        }
    }
    weir_ptx_edit_mark(&edit, func->n_insts);
    weir_ptx_warp_edit_finish(&we);
    return weir_ptx_edit_finish(&edit);
}

enum weir_status weir_ptx_pass_unified_exit(struct weir_ptx_twin *twin)
{
    enum weir_status status = rewrite(twin, twin->entry);

    for (uint32_t i = 0; i < twin->n_funcs && status == WEIR_OK; i++) {
        if (twin->warp_votes) {
            status = rewrite(twin, twin->funcs[i]);
        }
    }
    return status;
}
