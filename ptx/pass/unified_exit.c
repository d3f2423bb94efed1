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

/*
 * The text of a plain barrier in the body, with its guard.
 *
 * Threads of one warp that come to the barrier in the body and in the tail are brought together by
 * the hardware, at one of the two places: what the compiler left out there as not needed is missing
 * in the other (CUDA 13.0, sm_90). So the body needs the answer, too, which for it is always yes.
 */
static void ask(struct weir_ptx_edit *edit, const struct weir_ptx_inst *inst, uint32_t id)
{
    (void)weir_ptx_edit_reg(edit, "%answer", WEIR_PTX_TYPE_PRED);
    weir_ptx_edit_text(edit,
                       ".reg .pred %%t;\n.reg .b32 %%z;\nmov.b32 %%z, 0;\n"
                       "setp.eq.u32 %%t, %%z, 0;\nsetp.eq.u32 %%answer, %%z, 0;\n"
                       "barrier.red.or.pred %%answer, %u, %%t;\n",
                       id);
    if (edit->status == WEIR_OK) {
        edit->insts[edit->n_insts - 1].guard = inst->guard;
        edit->insts[edit->n_insts - 1].guard_negated = inst->guard_negated;
    }
    weir_ptx_edit_text(edit, "@!%%answer trap;\n");
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

/* One old instruction; true when something else took its place. */
static bool replace(struct weir_ptx_edit *edit, struct weir_ptx_warp_edit *we, uint32_t i)
{
    const struct weir_ptx_inst *inst = &edit->func->insts[i];
    bool entry = edit->func == edit->twin->entry;

    edit->n_names = entry ? WEIR_PTX_VIRTUAL_COUNT + 1 : 0; /* the virtual registers, and TAIL */
    if (entry && (inst->op == WEIR_PTX_OP_RET || inst->op == WEIR_PTX_OP_EXIT)) {
        leave(edit, inst);
        return true;
    }
    if (edit->twin->exit_barrier != WEIR_PTX_NONE && weir_ptx_inst_is_plain_barrier(inst)) {
        ask(edit, inst, edit->twin->exit_barrier);
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
        if (twin->exit_barrier != WEIR_PTX_NONE || twin->warp_votes) {
            status = rewrite(twin, twin->funcs[i]);
        }
    }
    twin->info->unified_exit = twin->exit_barrier != WEIR_PTX_NONE;
    return status;
}
