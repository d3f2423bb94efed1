/*
 * Control flow of one function.
 *
 * Blocks end at every label and after every instruction that may jump or leave. trap counts as
 * falling through: a thread that traps ends the whole grid, so the other threads' path does not
 * matter, and nvcc writes no code behind a trap that would end a block.
 *
 * Post-dominators are found by Cooper, Harvey and Kennedy's iteration ("A Simple, Fast Dominance
 * Algorithm", 2001) over the reversed graph, whose root is the end of the function. A block that
 * cannot reach the end counts as if it could jump there.
 *
 * Parted threads: registers and blocks count as common to all threads until the opposite is found,
 * up to a fixed point. A branch on a varying register parts the threads in all blocks that are
 * reachable from it without passing its immediate post-dominator; registers that are written there
 * vary.
 *
 * Every loop here has a budget in steps that no compiler's output comes near. Beyond it the
 * analysis gives up, and everything counts as parted.
 */
#include "ptx/flow.h"

#include "ptx/scan.h"
#include "ptx/warp.h"
#include <stdlib.h>
#include <string.h>

#define MAX_PASSES 32 /* most passes of a fixed point over all instructions */
/* Steps per block for post-dominators, and for parted regions. */
#define STEPS_PER_BLOCK 512
/* Extra edges that branch tables may have beyond EDGES_PER_INST. */
#define EDGES_SPARE    (4u << 20)
#define EDGES_PER_INST 8

struct builder {
    struct weir_ptx_flow *flow;
    uint32_t *block_of; /* the block of each instruction, and of the end */
    uint32_t *preds;
    uint32_t *pred;  /* index in preds of the predecessors of each block and the end */
    uint32_t *order; /* blocks in post-order of the reversed graph; later the parting branch */
    uint32_t n_order;
    uint32_t *number; /* position of each block and the end in that post-order; 0: not reached */
    uint32_t *stack;
    uint32_t *mark;
    /* For each block and the end: from its start on no thread waits for others. */
    bool *runs_out;
    uint64_t steps;
};

static bool ends_block(const struct weir_ptx_inst *inst)
{
    switch (inst->op) {
    case WEIR_PTX_OP_BRA:
    case WEIR_PTX_OP_BRX:
    case WEIR_PTX_OP_RET:
    case WEIR_PTX_OP_EXIT:
        return true;
    default:
        return false;
    }
}

/* Visit the registers of an operand, including those of addresses. */
static void each_reg(const struct weir_ptx_operand *op, weir_ptx_reg_fn fn, void *context)
{
    if (op->kind == WEIR_PTX_OPERAND_REG ||
        (op->kind == WEIR_PTX_OPERAND_MEM && op->base == WEIR_PTX_BASE_REG)) {
        fn(context, op->reg);
    }
    if (op->reg2 != WEIR_PTX_NONE) {
        fn(context, op->reg2);
    }
    for (uint32_t i = 0; i < op->n_elems; i++) {
        each_reg(&op->elems[i], fn, context);
    }
}

static bool reads_carry(const struct weir_ptx_inst *inst)
{
    return inst->op == WEIR_PTX_OP_ADDC || inst->op == WEIR_PTX_OP_SUBC ||
           inst->op == WEIR_PTX_OP_MADC;
}

/* Does operand 0 receive the result? For a call, operand 0 is a list of results. */
static bool has_dst(const struct weir_ptx_inst *inst)
{
    return inst->op == WEIR_PTX_OP_CALL || (inst->n_operands && weir_ptx_inst_has_dst(inst));
}

void weir_ptx_inst_each_read(const struct weir_ptx_func *func, const struct weir_ptx_inst *inst,
                             weir_ptx_reg_fn fn, void *context)
{
    if (inst->guard != WEIR_PTX_NONE) {
        fn(context, inst->guard);
    }
    if (reads_carry(inst)) {
        fn(context, func->n_regs);
    }
    for (uint32_t i = has_dst(inst); i < inst->n_operands; i++) {
        each_reg(&inst->operands[i], fn, context);
    }
}

void weir_ptx_inst_each_write(const struct weir_ptx_func *func, const struct weir_ptx_inst *inst,
                              weir_ptx_reg_fn fn, void *context)
{
    if (has_dst(inst)) {
        each_reg(&inst->operands[0], fn, context);
    }
    if (inst->op == WEIR_PTX_OP_TCGEN05 && inst->n_operands > 2 &&
        weir_ptx_inst_has(inst, WEIR_PTX_MOD_RED)) {
        each_reg(&inst->operands[1], fn, context); /* ld.red returns the loaded and reduced value */
    }
    if (inst->flags & WEIR_PTX_FLAG_CC) {
        fn(context, func->n_regs);
    }
}

struct bits {
    uint8_t *state;
    const uint8_t *seen;
    uint8_t bits;
    bool found;
};

static void look(void *context, uint32_t reg)
{
    struct bits *b = context;

    b->found |= (b->seen[reg] & b->bits) != 0;
}

static void set(void *context, uint32_t reg)
{
    struct bits *b = context;

    b->found |= (b->state[reg] & b->bits) != b->bits;
    b->state[reg] |= b->bits;
}

bool weir_ptx_inst_reads(const struct weir_ptx_func *func, const struct weir_ptx_inst *inst,
                         const uint8_t *state, uint8_t bits)
{
    struct bits b = {.seen = state, .bits = bits};

    weir_ptx_inst_each_read(func, inst, look, &b);
    return b.found;
}

bool weir_ptx_inst_writes(const struct weir_ptx_func *func, const struct weir_ptx_inst *inst,
                          uint8_t *state, uint8_t bits)
{
    struct bits b = {.state = state, .bits = bits};

    weir_ptx_inst_each_write(func, inst, set, &b);
    return b.found;
}

/* Blocks */

static enum weir_status find_blocks(struct builder *b)
{
    const struct weir_ptx_func *func = b->flow->func;
    uint32_t n = 0;

    b->block_of = calloc(func->n_insts + 1, sizeof(*b->block_of));
    WEIR_FAIL_IF(!b->block_of, WEIR_ERR_NO_MEMORY);
    for (uint32_t i = 0; i < func->n_labels; i++) {
        b->block_of[func->labels[i].inst] = 1; /* a block begins here */
    }
    for (uint32_t i = 0; i < func->n_insts; i++) {
        bool begins = i == 0 || b->block_of[i] || ends_block(&func->insts[i - 1]);

        n += begins;
        b->block_of[i] = n - 1;
    }
    b->block_of[func->n_insts] = n;
    b->flow->n_blocks = n;
    b->flow->blocks = calloc(n + 1, sizeof(*b->flow->blocks));
    WEIR_FAIL_IF(!b->flow->blocks, WEIR_ERR_NO_MEMORY);
    for (uint32_t i = func->n_insts; i-- > 0;) {
        struct weir_ptx_block *block = &b->flow->blocks[b->block_of[i]];

        block->first = i;
        block->end = block->end ? block->end : i + 1;
    }
    return WEIR_OK;
}

/* Write the successors of a block to `to`, which may be NULL; returns how many. */
static uint32_t successors(const struct builder *b, uint32_t block, uint32_t *to)
{
    const struct weir_ptx_func *func = b->flow->func;
    uint32_t end = b->flow->blocks[block].end;
    const struct weir_ptx_inst *last = &func->insts[end - 1];
    bool falls = !ends_block(last) || last->guard != WEIR_PTX_NONE;
    uint32_t n = 0;

    if (falls) {
        if (to) {
            to[n] = b->block_of[end];
        }
        n++;
    }
    if (last->op == WEIR_PTX_OP_BRA) {
        if (to) {
            to[n] = b->block_of[func->labels[last->operands[0].label].inst];
        }
        n++;
    } else if (last->op == WEIR_PTX_OP_BRX) {
        const struct weir_ptx_table *table = last->operands[1].table;

        for (uint32_t i = 0; i < table->n; i++, n++) {
            if (to) {
                to[n] = b->block_of[func->labels[table->labels[i]].inst];
            }
        }
    } else if (ends_block(last)) {
        if (to) {
            to[n] = b->flow->n_blocks;
        }
        n++;
    }
    return n;
}

static enum weir_status find_edges(struct builder *b)
{
    struct weir_ptx_flow *flow = b->flow;
    uint64_t total = 0;

    for (uint32_t i = 0; i < flow->n_blocks; i++) {
        flow->blocks[i].succ = (uint32_t)total;
        flow->blocks[i].n_succs = successors(b, i, NULL);
        total += flow->blocks[i].n_succs;
    }
    if (total > (uint64_t)EDGES_PER_INST * flow->func->n_insts + EDGES_SPARE) {
        flow->gave_up = true; /* many branches use large tables */
        for (uint32_t i = 0; i < flow->n_blocks; i++) {
            flow->blocks[i].succ = flow->blocks[i].n_succs = 0;
        }
        total = 0;
    }
    flow->n_succs = (uint32_t)total;
    flow->succs = calloc(total + 1, sizeof(*flow->succs));
    b->preds = calloc(total + flow->n_blocks + 1, sizeof(*b->preds));
    b->pred = calloc((size_t)flow->n_blocks + 3, sizeof(*b->pred));
    WEIR_FAIL_IF(!flow->succs || !b->preds || !b->pred, WEIR_ERR_NO_MEMORY);
    for (uint32_t i = 0; i < flow->n_blocks && !flow->gave_up; i++) {
        successors(b, i, flow->succs + flow->blocks[i].succ);
    }
    for (uint32_t i = 0; i < total; i++) {
        b->pred[flow->succs[i] + 2]++;
    }
    for (uint32_t i = 2; i < flow->n_blocks + 3; i++) {
        b->pred[i] += b->pred[i - 1];
    }
    for (uint32_t i = 0; i < flow->n_blocks; i++) {
        for (uint32_t j = 0; j < flow->blocks[i].n_succs; j++) {
            b->preds[b->pred[flow->succs[flow->blocks[i].succ + j] + 1]++] = i;
        }
    }
    return WEIR_OK;
}

/* Post-dominators */

/* Visit the reversed graph in post-order from one root; fills number[] with 1, 2 .. */
static void visit_back(struct builder *b, uint32_t root)
{
    uint32_t *next = b->mark;
    uint32_t depth = 0;

    b->stack[depth++] = root;
    b->number[root] = UINT32_MAX; /* the node is being visited */
    next[root] = b->pred[root];
    while (depth) {
        uint32_t at = b->stack[depth - 1];

        if (next[at] == b->pred[at + 1]) {
            b->order[b->n_order++] = at;
            b->number[at] = b->n_order;
            depth--;
            continue;
        }
        uint32_t before = b->preds[next[at]++];

        if (!b->number[before]) {
            b->number[before] = UINT32_MAX;
            next[before] = b->pred[before];
            b->stack[depth++] = before;
        }
    }
}

static bool spend(struct builder *b, uint64_t steps)
{
    if (b->steps < steps) {
        b->flow->gave_up = true;
        return false;
    }
    b->steps -= steps;
    return true;
}

static uint32_t meet(struct builder *b, uint32_t left, uint32_t right)
{
    while (left != right && spend(b, 1)) {
        if (b->number[left] < b->number[right]) {
            left = b->flow->blocks[left].ipdom;
        } else {
            right = b->flow->blocks[right].ipdom;
        }
    }
    return left;
}

static bool improve(struct builder *b, uint32_t block)
{
    struct weir_ptx_flow *flow = b->flow;
    struct weir_ptx_block *it = &flow->blocks[block];
    uint32_t found = WEIR_PTX_NONE;

    for (uint32_t i = 0; i < it->n_succs && !flow->gave_up; i++) {
        uint32_t succ = flow->succs[it->succ + i];

        if (flow->blocks[succ].ipdom == WEIR_PTX_NONE || !spend(b, 1)) {
            continue;
        }
        found = found == WEIR_PTX_NONE ? succ : meet(b, found, succ);
    }
    WEIR_FAIL_IF(found == it->ipdom || found == WEIR_PTX_NONE, false);
    it->ipdom = found;
    return true;
}

/*
 * Compute immediate post-dominators. Blocks that never reach the end (endless loops) get the end,
 * which means "unknown" here. Their number stays 0, so that meet() climbs from them first.
 */
static void find_ipdoms(struct builder *b)
{
    struct weir_ptx_flow *flow = b->flow;
    bool changed = true;

    visit_back(b, flow->n_blocks);
    for (uint32_t i = 0; i < flow->n_blocks; i++) {
        flow->blocks[i].ipdom = b->number[i] ? WEIR_PTX_NONE : flow->n_blocks;
    }
    flow->blocks[flow->n_blocks].ipdom = flow->n_blocks;
    while (changed && !flow->gave_up) {
        changed = false;
        for (uint32_t i = b->n_order; i-- > 0 && !flow->gave_up;) {
            if (b->order[i] != flow->n_blocks) {
                changed |= improve(b, b->order[i]);
            }
        }
    }
}

/* Parted threads */

static bool is_common_sreg(uint16_t sreg)
{
    switch (sreg) {
    case WEIR_PTX_SREG_TID:
    case WEIR_PTX_SREG_LANEID:
    case WEIR_PTX_SREG_WARPID:
    case WEIR_PTX_SREG_SMID:
        return false;
    case WEIR_PTX_SREG_NTID:
    case WEIR_PTX_SREG_CTAID:
    case WEIR_PTX_SREG_NCTAID:
    case WEIR_PTX_SREG_CLUSTERID:
    case WEIR_PTX_SREG_NCLUSTERID:
    case WEIR_PTX_SREG_CLUSTER_CTAID:
    case WEIR_PTX_SREG_CLUSTER_NCTAID:
    case WEIR_PTX_SREG_CLUSTER_CTARANK:
    case WEIR_PTX_SREG_CLUSTER_NCTARANK:
    case WEIR_PTX_SREG_IS_EXPLICIT_CLUSTER:
    case WEIR_PTX_SREG_GRIDID:
    case WEIR_PTX_SREG_TOTAL_SMEM_SIZE:
    case WEIR_PTX_SREG_DYNAMIC_SMEM_SIZE:
        return true;
    default:
        return false;
    }
}

static bool is_entry_param(const struct weir_ptx_flow *flow, const struct weir_ptx_operand *op)
{
    return op->kind == WEIR_PTX_OPERAND_MEM && op->base == WEIR_PTX_BASE_VAR && op->var->is_param &&
           flow->func->is_entry;
}

/* Does a load give all threads the same value? It does if the address is the same and no thread can
 * write there at that time. */
static bool is_common_load(const struct weir_ptx_flow *flow, const struct weir_ptx_inst *inst)
{
    return inst->space == WEIR_PTX_SPACE_CONST || (inst->flags & WEIR_PTX_FLAG_NC) ||
           is_entry_param(flow, &inst->operands[1]);
}

/* May the result differ although all registers read are the same in all threads? */
static bool makes_varying(const struct weir_ptx_flow *flow, const struct weir_ptx_inst *inst)
{
    const uint32_t other = WEIR_PTX_OPF_MEM | WEIR_PTX_OPF_ATOMIC | WEIR_PTX_OPF_TEXTURE |
                           WEIR_PTX_OPF_CALL | WEIR_PTX_OPF_CONVERGENT | WEIR_PTX_OPF_MBARRIER |
                           WEIR_PTX_OPF_MATRIX;

    if (WEIR_ANY(i, inst->n_operands,
                 inst->operands[i].kind == WEIR_PTX_OPERAND_SREG &&
                     !is_common_sreg(inst->operands[i].sreg))) {
        return true;
    }
    switch (inst->op) {
    case WEIR_PTX_OP_LD:
    case WEIR_PTX_OP_LDU:
        return !is_common_load(flow, inst);
    case WEIR_PTX_OP_BAR:
    case WEIR_PTX_OP_BARRIER: /* the block's result, unless it has a thread count */
        return inst->n_operands != 3;
    case WEIR_PTX_OP_ACTIVEMASK:
    case WEIR_PTX_OP_STACKSAVE:
    case WEIR_PTX_OP_ALLOCA:
        return true;
    default:
        return (weir_ptx_op_info((enum weir_ptx_op)inst->op)->flags & other) != 0;
    }
}

/* Does a block make a thread wait for the other threads of its warp, or for all threads? */
static bool waits_for_others(const struct weir_ptx_flow *flow, uint32_t block)
{
    const struct weir_ptx_block *it = &flow->blocks[block];

    for (uint32_t i = it->first; i < it->end; i++) {
        const struct weir_ptx_inst *inst = &flow->func->insts[i];

        if (inst->guard == WEIR_PTX_NONE &&
            ((weir_ptx_is_full_barrier(inst) && !weir_ptx_inst_has(inst, WEIR_PTX_MOD_ARRIVE)) ||
             weir_ptx_mask_of(flow->func, it->first, i) == WEIR_PTX_MASK_ALL)) {
            return true;
        }
    }
    return false;
}

/* Search backwards from the end to blocks that wait. */
static void find_runs_out(struct builder *b)
{
    uint32_t depth = 0;

    b->runs_out[b->flow->n_blocks] = true;
    b->stack[depth++] = b->flow->n_blocks;
    while (depth) {
        uint32_t at = b->stack[--depth];

        for (uint32_t i = b->pred[at]; i < b->pred[at + 1]; i++) {
            uint32_t before = b->preds[i];

            if (!b->runs_out[before] && !waits_for_others(b->flow, before)) {
                b->runs_out[before] = true;
                b->stack[depth++] = before;
            }
        }
    }
}

/*
 * Mark all blocks that threads can reach from a branch before they are together again. Threads that
 * meet again do not wait for each other: the first one may continue and end.
 */
static bool part_from(struct builder *b, uint32_t branch)
{
    struct weir_ptx_flow *flow = b->flow;
    uint32_t stop = flow->blocks[branch].ipdom;
    uint32_t depth = 0;
    bool is_new = false;

    b->stack[depth++] = branch;
    while (depth) {
        const struct weir_ptx_block *at = &flow->blocks[b->stack[--depth]];

        if (!spend(b, at->n_succs + 1)) {
            return true;
        }
        for (uint32_t i = 0; i < at->n_succs; i++) {
            uint32_t succ = flow->succs[at->succ + i];

            if (succ != stop && succ != flow->n_blocks && b->mark[succ] != branch + 1) {
                b->mark[succ] = branch + 1;
                is_new |= !flow->blocks[succ].parted;
                flow->blocks[succ].parted = true;
                flow->blocks[succ].ended |= b->runs_out[stop];
                b->stack[depth++] = succ;
            }
        }
    }
    return is_new;
}

static bool vary_block(struct builder *b, uint32_t block)
{
    struct weir_ptx_flow *flow = b->flow;
    const struct weir_ptx_block *it = &flow->blocks[block];
    const struct weir_ptx_inst *inst = NULL;
    bool changed = false;

    for (uint32_t i = it->first; i < it->end; i++) {
        inst = &flow->func->insts[i];
        if (it->parted || makes_varying(flow, inst) ||
            weir_ptx_inst_reads(flow->func, inst, flow->varying, 1)) {
            changed |= weir_ptx_inst_writes(flow->func, inst, flow->varying, 1);
        }
    }
    /* The branch that parted this block has already marked all blocks that it can reach. */
    if (inst && it->n_succs > 1 && !it->parted && !b->order[block] &&
        weir_ptx_inst_reads(flow->func, inst, flow->varying, 1)) {
        b->order[block] = 1;
        changed |= part_from(b, block);
    }
    return changed;
}

static void find_parted(struct builder *b)
{
    struct weir_ptx_flow *flow = b->flow;
    bool changed = true;

    memset(b->mark, 0, sizeof(*b->mark) * (flow->n_blocks + 1));
    memset(b->order, 0, sizeof(*b->order) * (flow->n_blocks + 1));
    for (uint32_t i = 0; i < flow->func->n_params; i++) {
        if (flow->func->params[i]->reg != WEIR_PTX_NONE) {
            flow->varying[flow->func->params[i]->reg] = 1;
        }
    }
    for (int pass = 0; changed && !flow->gave_up; pass++) {
        changed = false;
        for (uint32_t i = 0; i < flow->n_blocks && !flow->gave_up; i++) {
            changed |= vary_block(b, i);
        }
        flow->gave_up |= pass == MAX_PASSES;
    }
}

static void give_up(struct weir_ptx_flow *flow)
{
    for (uint32_t i = 0; i < flow->n_blocks; i++) {
        flow->blocks[i].parted = flow->blocks[i].ended = true;
        flow->blocks[i].ipdom = flow->n_blocks;
    }
    memset(flow->varying, 1, (size_t)flow->func->n_regs + 1);
}

static enum weir_status build(struct builder *b)
{
    struct weir_ptx_flow *flow = b->flow;
    WEIR_TRY(find_blocks(b));
    WEIR_TRY(find_edges(b));
    size_t n = (size_t)flow->n_blocks + 1;

    b->order = calloc(n, sizeof(*b->order));
    b->number = calloc(n, sizeof(*b->number));
    b->stack = calloc(n + flow->n_succs, sizeof(*b->stack));
    b->mark = calloc(n, sizeof(*b->mark));
    b->runs_out = calloc(n, sizeof(*b->runs_out));
    flow->varying = calloc((size_t)flow->func->n_regs + 1, 1);
    WEIR_FAIL_IF(!b->order || !b->number || !b->stack || !b->mark || !b->runs_out || !flow->varying,
                 WEIR_ERR_NO_MEMORY);
    b->steps = (uint64_t)STEPS_PER_BLOCK * (n + flow->n_succs);
    if (!flow->gave_up) {
        find_ipdoms(b);
        find_runs_out(b);
        find_parted(b);
    }
    if (flow->gave_up) {
        give_up(flow);
    }
    return WEIR_OK;
}

enum weir_status weir_ptx_flow_init(const struct weir_ptx_func *func,
                                    struct weir_ptx_flow *ret_flow)
{
    struct weir_ptx_flow flow = {.func = func};
    struct builder b = {.flow = &flow};
    enum weir_status status = build(&b);

    free(b.runs_out);
    free(b.mark);
    free(b.stack);
    free(b.number);
    free(b.order);
    free(b.pred);
    free(b.preds);
    free(b.block_of);
    if (status != WEIR_OK) {
        weir_ptx_flow_finish(&flow);
        return status;
    }
    *ret_flow = flow;
    return WEIR_OK;
}

void weir_ptx_flow_finish(struct weir_ptx_flow *flow)
{
    free(flow->varying);
    free(flow->succs);
    free(flow->blocks);
    *flow = (struct weir_ptx_flow){0};
}

bool weir_ptx_flow_is_parted(const struct weir_ptx_flow *flow, uint32_t block, uint32_t inst)
{
    uint32_t guard = flow->func->insts[inst].guard;

    return flow->blocks[block].parted || (guard != WEIR_PTX_NONE && flow->varying[guard]);
}
