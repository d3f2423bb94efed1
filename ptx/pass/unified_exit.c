/*
 * Unified exit: in a twin that loops, a thread that would end goes to the end of the logical block
 * instead, twin->tail, and waits there for the others.
 *
 * In the original, a barrier of all threads does not wait for those that have ended. Here they have
 * not, so where a thread may end before others come to such a barrier (the analysis says so), the
 * threads in the tail go on arriving at it. Nobody there knows how many barriers are still to come;
 * so every such barrier becomes a reduction that asks "is anybody still in the body?": who comes to
 * it in the body says yes, who is in the tail says no, and repeats until all have said no. That
 * last round is the one in which the whole block is in the tail.
 *
 *     body: bar.sync 0            becomes   barrier.red.or.pred _, 0, true
 *     tail:                                 barrier.red.or.pred p, 0, false; @p bra tail
 *
 * Not .aligned: threads of one warp may be in the body and in the tail.
 */
#include "ptx/pass/twin.h"

/* The text of a plain barrier in the body, with its guard. */
static void ask(struct weir_ptx_edit *edit, const struct weir_ptx_inst *inst, uint32_t id)
{
    edit->n_names = edit->func == edit->twin->entry ? WEIR_PTX_VIRTUAL_COUNT : 0;
    uint32_t first = edit->n_insts;

    weir_ptx_edit_text(edit,
                       ".reg .pred %%t, %%p;\n.reg .b32 %%z;\nmov.b32 %%z, 0;\n"
                       "setp.eq.u32 %%t, %%z, 0;\nbarrier.red.or.pred %%p, %u, %%t;\n",
                       id);
    for (uint32_t i = first; i < edit->n_insts && edit->status == WEIR_OK; i++) {
        edit->insts[i].guard = inst->guard;
        edit->insts[i].guard_negated = inst->guard_negated;
    }
}

/* ret or exit: a branch, with the same guard. */
static void leave(struct weir_ptx_edit *edit, const struct weir_ptx_inst *inst)
{
    uint32_t first = edit->n_insts;

    weir_ptx_edit_text(edit, "bra TAIL;\n");
    if (edit->status == WEIR_OK) {
        edit->insts[first].guard = inst->guard;
        edit->insts[first].guard_negated = inst->guard_negated;
    }
}

static enum weir_status rewrite(struct weir_ptx_twin *twin, struct weir_ptx_func *func)
{
    struct weir_ptx_edit edit;
    bool entry = func == twin->entry;

    weir_ptx_edit_begin(&edit, twin, func);
    if (entry) {
        twin->tail = weir_ptx_edit_label(&edit, "TAIL");
    }
    for (uint32_t i = 0; i < func->n_insts; i++) {
        const struct weir_ptx_inst *inst = &func->insts[i];

        weir_ptx_edit_mark(&edit, i);
        if (entry && (inst->op == WEIR_PTX_OP_RET || inst->op == WEIR_PTX_OP_EXIT)) {
            edit.n_names = WEIR_PTX_VIRTUAL_COUNT + 1;
            leave(&edit, inst);
        } else if (twin->exit_barrier != WEIR_PTX_NONE && weir_ptx_inst_is_plain_barrier(inst)) {
            uint32_t names = edit.n_names;

            ask(&edit, inst, twin->exit_barrier);
            edit.n_names = names;
        } else {
            weir_ptx_edit_add(&edit, inst);
        }
    }
    weir_ptx_edit_mark(&edit, func->n_insts);
    return weir_ptx_edit_finish(&edit);
}

enum weir_status weir_ptx_pass_unified_exit(struct weir_ptx_twin *twin)
{
    enum weir_status status = rewrite(twin, twin->entry);

    for (uint32_t i = 0; i < twin->n_funcs && status == WEIR_OK; i++) {
        if (twin->exit_barrier != WEIR_PTX_NONE) {
            status = rewrite(twin, twin->funcs[i]);
        }
    }
    twin->info->unified_exit = twin->exit_barrier != WEIR_PTX_NONE;
    return status;
}
