/*
 * Handles warps whose threads end at different times.
 *
 * A warp-wide instruction (shfl.sync, vote.sync, bar.warp.sync ..) waits for the threads of its
 * mask that have not ended. In a twin that loops no thread has ended, so it would also wait for
 * threads that have left the body. So where a warp may have parted, such an instruction with the
 * mask "all" gets the mask of the threads that are still in the body. They find that mask by a
 * vote, in which all threads of the warp take part: threads in the tail vote no until no thread
 * votes yes.
 *
 *     body: shfl.sync d, a, b, c, -1   becomes   vote.sync.ballot m, true, -1
 *                                                shfl.sync d, a, b, c, m
 *     tail:                                      vote.sync.ballot m, false, -1; m != 0: again
 *
 * Between two such instructions of one basic block no thread leaves, so they share a vote.
 *
 * Other masks stay, which is correct if no thread of the mask can bypass the instruction. That
 * holds if activemask, a ballot or a match computed the mask at a place from which every path leads
 * to the instruction.
 */
#include "ptx/flow.h"
#include "ptx/twin/editor.h"
#include "ptx/warp.h"

#include <stdlib.h>
#include <string.h>

static uint32_t block_of(const struct weir_ptx_flow *flow, uint32_t inst)
{
    uint32_t low = 0, high = flow->n_blocks;

    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;

        if (flow->blocks[middle].first <= inst) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

#define MANY (WEIR_PTX_NONE - 1)

/* For each register the only instruction that writes it, NONE or MANY. */
struct writes {
    uint32_t *at;
    uint32_t inst;
};

static void note_write(void *context, uint32_t reg)
{
    struct writes *w = context;

    w->at[reg] = w->at[reg] == WEIR_PTX_NONE ? w->inst : MANY;
}

/* NULL: no memory. */
static uint32_t *find_writes(const struct weir_ptx_func *func)
{
    struct writes w = {.at = malloc((func->n_regs + 1u) * sizeof(*w.at))};

    if (w.at) {
        memset(w.at, 0xff, (func->n_regs + 1u) * sizeof(*w.at)); /* WEIR_PTX_NONE */
    }
    for (w.inst = 0; w.at && w.inst < func->n_insts; w.inst++) {
        weir_ptx_inst_each_write(func, &func->insts[w.inst], note_write, &w);
    }
    return w.at;
}

/* Find the instruction, other than a move between registers, that computed a register; NULL: not
 * known. */
static const struct weir_ptx_inst *find_origin(const struct weir_ptx_func *func,
                                               const uint32_t *writes, uint32_t reg)
{
    for (uint32_t step = 0; step < 8; step++) {
        uint32_t at = writes[reg];

        WEIR_FAIL_IF(at >= MANY || func->insts[at].guard != WEIR_PTX_NONE, NULL);
        const struct weir_ptx_inst *inst = &func->insts[at];

        if (inst->op != WEIR_PTX_OP_MOV || inst->operands[0].kind != WEIR_PTX_OPERAND_REG ||
            inst->operands[1].kind != WEIR_PTX_OPERAND_REG) {
            return inst;
        }
        reg = inst->operands[1].reg;
    }
    return NULL;
}

static const struct weir_ptx_operand *mask_of(const struct weir_ptx_inst *inst)
{
    return &inst->operands[inst->n_operands - 1];
}

static bool is_all(const struct weir_ptx_operand *op)
{
    return op->kind == WEIR_PTX_OPERAND_INT && (uint32_t)op->bits == UINT32_MAX;
}

/* Does an instruction wait for all threads of the warp? */
static bool is_full(const struct weir_ptx_func *func, const uint32_t *writes,
                    const struct weir_ptx_inst *inst)
{
    if (!weir_ptx_inst_is_warp_sync(inst)) {
        return false;
    }
    if (mask_of(inst)->kind != WEIR_PTX_OPERAND_REG) {
        return is_all(mask_of(inst));
    }
    const struct weir_ptx_inst *origin = find_origin(func, writes, mask_of(inst)->reg);

    return origin && origin->op == WEIR_PTX_OP_MOV && is_all(&origin->operands[1]);
}

/* Can block `to` be reached from the successors of block `from` without entering `avoid`? */
static bool reaches(const struct weir_ptx_flow *flow, uint32_t from, uint32_t to, uint32_t avoid)
{
    bool *seen = calloc(flow->n_blocks + 1u, sizeof(*seen));
    uint32_t *work = calloc(flow->n_blocks + 1u, sizeof(*work));
    bool found = !seen || !work;
    uint32_t n = 0;

    if (!found) {
        work[n++] = from;
    }
    while (n && !found) {
        const struct weir_ptx_block *block = &flow->blocks[work[--n]];

        for (uint32_t i = 0; i < block->n_succs && !found; i++) {
            uint32_t succ = flow->succs[block->succ + i];

            found = succ == to;
            if (succ < flow->n_blocks && succ != avoid && !seen[succ]) {
                seen[succ] = true;
                work[n++] = succ;
            }
        }
    }
    free(seen);
    free(work);
    return found;
}

static bool finds_mask(const struct weir_ptx_inst *inst)
{
    return inst->op == WEIR_PTX_OP_ACTIVEMASK || inst->op == WEIR_PTX_OP_VOTE ||
           inst->op == WEIR_PTX_OP_MATCH;
}

/* Does every thread in the mask of instruction i reach i before it ends? */
static bool mask_is_met(const struct weir_ptx_flow *flow, const uint32_t *writes, uint32_t i)
{
    const struct weir_ptx_inst *inst = &flow->func->insts[i];

    if (mask_of(inst)->kind != WEIR_PTX_OPERAND_REG || inst->guard != WEIR_PTX_NONE ||
        flow->gave_up) {
        return false;
    }
    const struct weir_ptx_inst *origin = find_origin(flow->func, writes, mask_of(inst)->reg);

    if (!origin || !finds_mask(origin)) {
        return false;
    }
    uint32_t at = (uint32_t)(origin - flow->func->insts);
    uint32_t from = block_of(flow, at), to = block_of(flow, i);

    if (from == to) {
        return at < i;
    }
    /* Every path from where the mask was made comes here, and none comes here twice. */
    return !reaches(flow, from, flow->n_blocks, to) && !reaches(flow, to, to, from);
}

/* Blocks examined for the masks of one function: a bound on the time for hostile texts. */
#define MAX_VISITS (1ull << 26)

static const char *look_at(const struct weir_ptx_kernel *kernel, const struct weir_ptx_flow *flow,
                           const uint32_t *writes, bool *ret_votes)
{
    const struct weir_ptx_func *func = flow->func;
    uint64_t visits = 0;

    for (uint32_t i = 0; i < func->n_insts; i++) {
        if (!weir_ptx_inst_is_warp_sync(&func->insts[i]) ||
            (func == kernel->entry && !flow->blocks[block_of(flow, i)].ended)) {
            continue;
        }
        if (is_full(func, writes, &func->insts[i])) {
            *ret_votes = true;
        } else if ((visits += 2ull * flow->n_blocks) > MAX_VISITS ||
                   !mask_is_met(flow, writes, i)) {
            return "a thread may end before its warp exchanges values under a mask that is not "
                   "known to leave it out";
        }
    }
    return NULL;
}

static enum weir_status look(const struct weir_ptx_kernel *kernel, const struct weir_ptx_func *func,
                             bool *ret_votes, const char **ret_why_not)
{
    struct weir_ptx_flow flow;
    uint32_t *writes = find_writes(func);
    enum weir_status status = writes ? weir_ptx_flow_init(func, &flow) : WEIR_ERR_NO_MEMORY;

    if (status == WEIR_OK) {
        *ret_why_not = look_at(kernel, &flow, writes, ret_votes);
        weir_ptx_flow_finish(&flow);
    }
    free(writes);
    return status;
}

enum weir_status weir_ptx_warp_exits(const struct weir_ptx_kernel *kernel, bool *ret_votes,
                                     const char **ret_why_not)
{
    enum weir_status status = WEIR_OK;

    *ret_votes = false;
    *ret_why_not = NULL;
    for (uint32_t i = 0; i < kernel->n_funcs && !*ret_why_not && status == WEIR_OK; i++) {
        if (weir_ptx_func_has(kernel->funcs[i], weir_ptx_inst_is_warp_sync)) {
            status = look(kernel, kernel->funcs[i], ret_votes, ret_why_not);
        }
    }
    return status;
}

/*
 * Rewriting.
 */

enum weir_status weir_ptx_warp_edit_begin(struct weir_ptx_warp_edit *we, struct weir_ptx_twin *twin,
                                          struct weir_ptx_func *func)
{
    *we = (struct weir_ptx_warp_edit){.mask = WEIR_PTX_NONE, .is_entry = func == twin->entry};
    we->on = twin->warp_votes && weir_ptx_func_has(func, weir_ptx_inst_is_warp_sync);
    if (!we->on) {
        return WEIR_OK;
    }
    we->writes = find_writes(func);
    we->flow = calloc(1, sizeof(*we->flow));
    return we->flow && we->writes ? weir_ptx_flow_init(func, we->flow) : WEIR_ERR_NO_MEMORY;
}

void weir_ptx_warp_edit_finish(struct weir_ptx_warp_edit *we)
{
    if (we->flow) {
        weir_ptx_flow_finish(we->flow);
        free(we->flow);
    }
    free(we->writes);
}

/* A guarded instruction's vote is guarded, too, so no other instruction can use it. */
static uint32_t emit_vote(struct weir_ptx_edit *edit, const struct weir_ptx_inst *inst)
{
    uint32_t mask = weir_ptx_edit_reg(edit, "%live", WEIR_PTX_TYPE_B32);
    uint32_t first = edit->n_insts;

    weir_ptx_edit_text(edit, ".reg .pred %%t;\n.reg .b32 %%z;\nmov.b32 %%z, 0;\n"
                             "setp.eq.u32 %%t, %%z, 0;\n"
                             "vote.sync.ballot.b32 %%live, %%t, -1;\n");
    for (uint32_t i = first; i < edit->n_insts && edit->status == WEIR_OK; i++) {
        edit->insts[i].guard = inst->guard;
        edit->insts[i].guard_negated = inst->guard_negated;
    }
    return mask;
}

bool weir_ptx_warp_edit_inst(struct weir_ptx_warp_edit *we, struct weir_ptx_edit *edit, uint32_t i)
{
    const struct weir_ptx_inst *inst = &edit->func->insts[i];

    WEIR_FAIL_IF(!we->on || !is_full(edit->func, we->writes, inst), false);
    uint32_t block = block_of(we->flow, i);
    bool guarded = inst->guard != WEIR_PTX_NONE;
    struct weir_ptx_inst copy = *inst;

    WEIR_FAIL_IF(we->is_entry && !we->flow->blocks[block].ended, false);
    if (we->mask == WEIR_PTX_NONE || we->block != block || guarded) {
        we->mask = emit_vote(edit, inst);
        we->block = block;
    }
    copy.operands = weir_ptx_alloc(edit->twin->module, inst->n_operands * sizeof(*copy.operands));
    if (copy.operands) {
        memcpy(copy.operands, inst->operands, inst->n_operands * sizeof(*copy.operands));
        copy.operands[inst->n_operands - 1] = (struct weir_ptx_operand){
            .kind = WEIR_PTX_OPERAND_REG, .reg = we->mask, .reg2 = WEIR_PTX_NONE};
        weir_ptx_edit_add(edit, &copy);
    } else if (edit->status == WEIR_OK) {
        edit->status = WEIR_ERR_NO_MEMORY;
    }
    if (guarded) {
        we->mask = WEIR_PTX_NONE;
    }
    return true;
}

void weir_ptx_warp_tail_emit(struct weir_ptx_edit *edit)
{
    weir_ptx_edit_text(edit, ".reg .pred %%f, %%p;\n.reg .b32 %%z, %%m;\nmov.b32 %%z, 0;\n"
                             "setp.ne.u32 %%f, %%z, 0;\n"
                             "AGAIN:\nvote.sync.ballot.b32 %%m, %%f, -1;\n"
                             "setp.ne.u32 %%p, %%m, 0;\n@%%p bra AGAIN;\n");
}
