/*
 * Finds loops that wait for a value read with volatile, relaxed or acquiring loads, or with
 * atomics. wait_plain.c finds loops that wait with plain loads.
 *
 * A loop here is a strongly connected part of the control flow (loops inside a loop belong to it).
 * Registers and memory are tainted, to a fixed point, by accesses that see other blocks' writes
 * (weir_ptx_inst_sees()); also through memory (a store of something tainted makes all plain loads
 * of the loop tainted) and through control (registers written between a tainted branch and its
 * post-dominator).
 *
 * The loop may wait if a tainted branch decides whether it repeats: one that leaves the loop or can
 * come back to itself before its post-dominator. A branch that only chooses between two paths
 * through one iteration does not count; the chosen values are tainted.
 *
 * Two kinds of loop end even when the block runs alone, and do not count. In one, a
 * compare-and-swap is repeated with the value that it has found, or with one loaded again from its
 * address, until it succeeds: its back edge is removed from the graph before loops are searched. In
 * the other, the only atomic or ordered write is an addition of a positive constant.
 */
#include "ptx/wait.h"

#include "ptx/scc.h"
#include <stdlib.h>
#include <string.h>

/* Most passes of a fixed point over one loop; a loop that needs more counts as waiting. */
#define MAX_PASSES     32
#define STEPS_PER_INST 128 /* budget of the searches inside loops */

struct waits {
    const struct weir_ptx_flow *flow;
    weir_ptx_call_sees_fn sees;
    void *context;
    struct weir_ptx_parts parts; /* strongly connected parts of the blocks' graph */
    uint32_t *first;             /* edges of the blocks' graph */
    uint32_t *to;
    uint8_t *state;     /* for each register and the carry: is it tainted in the current loop? */
    uint32_t *n_writes; /* for each register and the carry: how many instructions in the loop
                           write it */
    uint32_t *stack;
    uint32_t *mark;
    uint32_t n_marks;
    bool *tainted_place; /* per block */
    bool memory;         /* plain loads of this loop are tainted */
    uint64_t steps;      /* steps left of the budget */
};

/* Take steps from the budget. When it is used up, every loop counts as waiting. */
static bool spend(struct waits *w, uint64_t steps)
{
    return weir_ptx_spend(&w->steps, steps);
}

bool weir_ptx_is_private_space(uint8_t space)
{
    return space == WEIR_PTX_SPACE_SHARED || space == WEIR_PTX_SPACE_SHARED_CTA ||
           space == WEIR_PTX_SPACE_LOCAL || space == WEIR_PTX_SPACE_CONST ||
           space == WEIR_PTX_SPACE_PARAM || space == WEIR_PTX_SPACE_PARAM_ENTRY ||
           space == WEIR_PTX_SPACE_PARAM_FUNC;
}

bool weir_ptx_inst_sees(const struct weir_ptx_inst *inst)
{
    if (weir_ptx_is_private_space(inst->space) || inst->scope == WEIR_PTX_MOD_CTA) {
        return false; /* a scope of one block orders nothing between blocks */
    }
    switch (inst->op) {
    case WEIR_PTX_OP_ATOM:
    case WEIR_PTX_OP_MULTIMEM:
        return true;
    case WEIR_PTX_OP_LD:
        return (inst->order && inst->order != WEIR_PTX_MOD_WEAK) ||
               inst->cache == WEIR_PTX_MOD_CV || inst->cache == WEIR_PTX_MOD_CG ||
               weir_ptx_inst_has(inst, WEIR_PTX_MOD_MMIO);
    default:
        return false;
    }
}

static const struct weir_ptx_inst *inst_at(const struct waits *w, uint32_t i)
{
    return &w->flow->func->insts[i];
}

/* Loops that end without help from other blocks */

static void count_write(void *context, uint32_t reg)
{
    struct waits *w = context;

    w->n_writes[reg]++;
}

static bool is_reg(const struct weir_ptx_operand *op, uint32_t reg)
{
    return op->kind == WEIR_PTX_OPERAND_REG && op->reg == reg;
}

struct part {
    struct weir_ptx_loop loop;
    uint32_t n_insts;
    bool ends_alone_add; /* the only atomic of the loop is an addition of a positive constant */
};

static bool is_same_place(const struct weir_ptx_operand *a, const struct weir_ptx_operand *b)
{
    return a->kind == WEIR_PTX_OPERAND_MEM && b->kind == WEIR_PTX_OPERAND_MEM &&
           a->base == b->base && a->offset == b->offset &&
           (a->base == WEIR_PTX_BASE_VAR ? a->var == b->var
                                         : a->base == WEIR_PTX_BASE_REG && a->reg == b->reg);
}

/* Does a block give the value that a compare-and-swap found to its next comparison, or load it
 * again? */
static bool renews(const struct waits *w, uint32_t block, const struct weir_ptx_inst *cas)
{
    uint32_t expected = cas->operands[2].reg;

    for (uint32_t i = w->flow->blocks[block].first; i < w->flow->blocks[block].end; i++) {
        const struct weir_ptx_inst *inst = inst_at(w, i);

        if (inst->n_operands != 2 || !is_reg(&inst->operands[0], expected) ||
            inst->guard != WEIR_PTX_NONE) {
            continue;
        }
        if (inst->op == WEIR_PTX_OP_MOV) {
            return is_reg(&inst->operands[1], cas->operands[0].reg);
        }
        return inst->op == WEIR_PTX_OP_LD && is_same_place(&inst->operands[1], &cas->operands[1]);
    }
    return false;
}

/* Find the compare-and-swap of this loop whose result a setp.eq/ne compares with the expected
 * value. */
static const struct weir_ptx_inst *tested_cas(struct waits *w, const struct part *part,
                                              const struct weir_ptx_inst *test)
{
    if (test->op != WEIR_PTX_OP_SETP || test->n_operands != 3 ||
        (test->cmp != WEIR_PTX_MOD_EQ && test->cmp != WEIR_PTX_MOD_NE) ||
        test->operands[0].reg2 != WEIR_PTX_NONE || test->guard != WEIR_PTX_NONE) {
        return NULL;
    }
    const struct weir_ptx_operand *a = &test->operands[1];
    const struct weir_ptx_operand *b = &test->operands[2];

    for (uint32_t i = 0; i < part->loop.n_blocks; i++) {
        const struct weir_ptx_block *block = &w->flow->blocks[part->loop.blocks[i]];

        if (!spend(w, block->end - block->first)) {
            return NULL;
        }
        for (uint32_t j = block->first; j < block->end; j++) {
            const struct weir_ptx_inst *cas = inst_at(w, j);

            if (cas->op != WEIR_PTX_OP_ATOM || cas->action != WEIR_PTX_MOD_CAS ||
                cas->n_operands < 4 || cas->operands[0].kind != WEIR_PTX_OPERAND_REG ||
                cas->operands[2].kind != WEIR_PTX_OPERAND_REG) {
                continue;
            }
            uint32_t found = cas->operands[0].reg;
            uint32_t expected = cas->operands[2].reg;

            if (w->n_writes[found] == 1 && ((is_reg(a, found) && is_reg(b, expected)) ||
                                            (is_reg(b, found) && is_reg(a, expected)))) {
                return cas;
            }
        }
    }
    return NULL;
}

/* Find the setp that is the only writer of a register in a loop; NULL: none. */
static const struct weir_ptx_inst *only_write(const struct waits *w, const struct part *part,
                                              uint32_t reg)
{
    for (uint32_t i = 0; w->n_writes[reg] == 1 && i < part->loop.n_blocks; i++) {
        const struct weir_ptx_block *block = &w->flow->blocks[part->loop.blocks[i]];

        for (uint32_t j = block->first; j < block->end; j++) {
            const struct weir_ptx_inst *inst = inst_at(w, j);

            if (inst->n_operands && is_reg(&inst->operands[0], reg) &&
                inst->op == WEIR_PTX_OP_SETP) {
                return inst;
            }
        }
    }
    return NULL;
}

struct write_count {
    uint32_t reg;
    uint32_t n;
};

static void count_reg(void *context, uint32_t reg)
{
    struct write_count *count = context;

    count->n += reg == count->reg;
}

static uint32_t writes_in(const struct waits *w, uint32_t block, uint32_t reg)
{
    struct write_count count = {.reg = reg};

    for (uint32_t i = w->flow->blocks[block].first; i < w->flow->blocks[block].end; i++) {
        weir_ptx_inst_each_write(w->flow->func, inst_at(w, i), count_reg, &count);
    }
    return count.n;
}

/*
 * Remove a retry's back edge from the graph. The expected value must be renewed on that path,
 * before or after the branch; then a block that runs alone fails at most once.
 */
static void cut_retry(struct waits *w, const struct part *part, uint32_t block)
{
    const struct weir_ptx_block *it = &w->flow->blocks[block];
    const struct weir_ptx_inst *branch = inst_at(w, it->end - 1);

    if (it->n_succs != 2 || branch->op != WEIR_PTX_OP_BRA || branch->guard == WEIR_PTX_NONE ||
        !spend(w, part->n_insts)) {
        return;
    }
    const struct weir_ptx_inst *test = only_write(w, part, branch->guard);
    const struct weir_ptx_inst *cas = test ? tested_cas(w, part, test) : NULL;

    if (!cas) {
        return;
    }
    /* A block's first successor is the next block, its second the branch's target. */
    bool fails_to_target = (test->cmp == WEIR_PTX_MOD_NE) != branch->guard_negated;
    uint32_t *failure = &w->to[it->succ + fails_to_target];
    uint32_t expected = cas->operands[2].reg;
    /* No other instruction may write the expected value; this is easy to see in a loop of one
     * block. */
    bool only_there =
        *failure == block ? writes_in(w, block, expected) == 1 : w->n_writes[expected] == 1;

    if (only_there && *failure < w->flow->n_blocks &&
        (renews(w, block, cas) || renews(w, *failure, cas))) {
        *failure = w->flow->n_blocks;
    }
}

static bool adds_positive(const struct weir_ptx_inst *inst)
{
    return inst->op == WEIR_PTX_OP_ATOM && inst->action == WEIR_PTX_MOD_ADD &&
           inst->n_operands == 3 && inst->operands[2].kind == WEIR_PTX_OPERAND_INT &&
           (int64_t)inst->operands[2].bits > 0 && inst->operands[2].bits <= INT32_MAX;
}

/* Is one addition of a positive constant the loop's only atomic or ordered write? */
static bool has_only_an_addition(const struct waits *w, const struct part *part)
{
    uint32_t n_adds = 0;

    for (uint32_t i = 0; i < part->loop.n_blocks; i++) {
        const struct weir_ptx_block *block = &w->flow->blocks[part->loop.blocks[i]];

        for (uint32_t j = block->first; j < block->end; j++) {
            const struct weir_ptx_inst *inst = inst_at(w, j);
            uint32_t flags = weir_ptx_op_info((enum weir_ptx_op)inst->op)->flags;

            if (weir_ptx_is_private_space(inst->space)) {
                continue;
            }
            if (inst->op == WEIR_PTX_OP_CALL || (flags & WEIR_PTX_OPF_ATOMIC) ||
                (inst->op == WEIR_PTX_OP_ST && inst->order && inst->order != WEIR_PTX_MOD_WEAK)) {
                if (!adds_positive(inst)) {
                    return false;
                }
                n_adds++;
            }
        }
    }
    return n_adds == 1;
}

/* Taint */

bool weir_ptx_is_plain_load(const struct weir_ptx_func *func, const struct weir_ptx_inst *inst)
{
    if (inst->op != WEIR_PTX_OP_LD && inst->op != WEIR_PTX_OP_LDU &&
        inst->op != WEIR_PTX_OP_LDMATRIX) {
        return false;
    }
    return inst->space != WEIR_PTX_SPACE_CONST && !(inst->flags & WEIR_PTX_FLAG_NC) &&
           !(inst->operands[1].base == WEIR_PTX_BASE_VAR && inst->operands[1].var->is_param &&
             func->is_entry);
}

static bool is_source(const struct waits *w, const struct part *part,
                      const struct weir_ptx_inst *inst)
{
    if (inst->op == WEIR_PTX_OP_CALL) {
        return w->sees(w->context, inst);
    }
    if (part->ends_alone_add && adds_positive(inst)) {
        return false;
    }
    return weir_ptx_inst_sees(inst);
}

/* May the instruction store a tainted value, or one that another block wrote, to memory? */
static bool taints_memory(const struct weir_ptx_inst *inst, bool is_tainted)
{
    uint32_t flags = weir_ptx_op_info((enum weir_ptx_op)inst->op)->flags;

    if (inst->op == WEIR_PTX_OP_CALL) {
        return is_tainted;
    }
    return (is_tainted && (flags & (WEIR_PTX_OPF_STORE | WEIR_PTX_OPF_ATOMIC))) ||
           inst->op == WEIR_PTX_OP_CP;
}

static bool taint_inst(struct waits *w, const struct part *part, const struct weir_ptx_inst *inst,
                       bool is_place)
{
    const struct weir_ptx_func *func = w->flow->func;
    bool is_tainted = is_place || is_source(w, part, inst) ||
                      (w->memory && weir_ptx_is_plain_load(func, inst)) ||
                      weir_ptx_inst_reads(func, inst, w->state, 1);
    bool changed = is_tainted && weir_ptx_inst_writes(func, inst, w->state, 1);

    if (!w->memory && taints_memory(inst, is_tainted)) {
        w->memory = true;
        changed = true;
    }
    return changed;
}

/*
 * Does a branch decide whether the loop repeats? The blocks between which it chooses become
 * tainted; *ret_new tells whether one of them was not tainted before.
 */
static bool decides(struct waits *w, uint32_t block, uint32_t loop, bool *ret_new)
{
    const struct weir_ptx_flow *flow = w->flow;
    uint32_t stop = flow->blocks[block].ipdom;
    uint32_t depth = 0;
    bool comes_back = w->parts.part[stop] != loop;

    w->n_marks++;
    w->stack[depth++] = block;
    while (depth) {
        uint32_t at = w->stack[--depth];

        if (!spend(w, w->first[at + 1] - w->first[at])) {
            return true;
        }
        for (uint32_t i = w->first[at]; i < w->first[at + 1]; i++) {
            uint32_t succ = w->to[i];

            comes_back |= succ == block;
            if (succ != stop && w->parts.part[succ] == loop && w->mark[succ] != w->n_marks) {
                w->mark[succ] = w->n_marks;
                *ret_new |= !w->tainted_place[succ];
                w->tainted_place[succ] = true;
                w->stack[depth++] = succ;
            }
        }
    }
    return comes_back;
}

static bool taint_block(struct waits *w, const struct part *part, uint32_t block)
{
    const struct weir_ptx_block *it = &w->flow->blocks[block];
    bool changed = false;

    for (uint32_t i = it->first; i < it->end; i++) {
        changed |= taint_inst(w, part, inst_at(w, i), w->tainted_place[block]);
    }
    return changed;
}

/* Find a tainted branch of a loop that decides; NONE: none so far. */
static uint32_t deciding_branch(struct waits *w, const struct part *part, bool *ret_changed)
{
    for (uint32_t i = 0; i < part->loop.n_blocks; i++) {
        uint32_t block = part->loop.blocks[i];
        const struct weir_ptx_block *it = &w->flow->blocks[block];
        bool is_new = false;

        if (it->n_succs > 1 &&
            weir_ptx_inst_reads(w->flow->func, inst_at(w, it->end - 1), w->state, 1) &&
            decides(w, block, part->loop.part, &is_new)) {
            return it->end - 1;
        }
        *ret_changed |= is_new;
    }
    return WEIR_PTX_NONE;
}

static void look_at_writes(struct waits *w, const struct part *part)
{
    memset(w->n_writes, 0, sizeof(*w->n_writes) * ((size_t)w->flow->func->n_regs + 1));
    for (uint32_t i = 0; i < part->loop.n_blocks; i++) {
        const struct weir_ptx_block *block = &w->flow->blocks[part->loop.blocks[i]];

        for (uint32_t j = block->first; j < block->end; j++) {
            weir_ptx_inst_each_write(w->flow->func, inst_at(w, j), count_write, w);
        }
    }
}

/* Does any access of a loop see others' writes? */
static bool sees(const struct waits *w, const struct part *part)
{
    for (uint32_t i = 0; i < part->loop.n_blocks; i++) {
        const struct weir_ptx_block *block = &w->flow->blocks[part->loop.blocks[i]];

        for (uint32_t j = block->first; j < block->end; j++) {
            if (is_source(w, part, inst_at(w, j)) || inst_at(w, j)->op == WEIR_PTX_OP_CP) {
                return true;
            }
        }
    }
    return false;
}

static uint32_t loop_waits(struct waits *w, struct part *part)
{
    uint32_t first = w->flow->blocks[part->loop.blocks[0]].first;
    size_t n_regs = (size_t)w->flow->func->n_regs + 1;
    bool changed = true;

    part->ends_alone_add = has_only_an_addition(w, part);
    if (!sees(w, part)) {
        return WEIR_PTX_NONE;
    }
    if (!spend(w, n_regs)) {
        return first;
    }
    memset(w->state, 0, n_regs);
    w->memory = false;
    for (int pass = 0; changed; pass++) {
        changed = false;
        for (uint32_t i = 0; i < part->loop.n_blocks; i++) {
            changed |= taint_block(w, part, part->loop.blocks[i]);
        }
        uint32_t found = deciding_branch(w, part, &changed);

        if (found != WEIR_PTX_NONE) {
            return found;
        }
        if (pass == MAX_PASSES || w->steps == 0) {
            return first;
        }
    }
    return WEIR_PTX_NONE;
}

static struct part part_at(const struct waits *w, uint32_t i)
{
    uint32_t begin = w->parts.begin[i];
    struct part part = {.loop = {.blocks = w->parts.nodes + begin,
                                 .n_blocks = w->parts.begin[i + 1] - begin,
                                 .part_of = w->parts.part,
                                 .part = i}};

    for (uint32_t j = 0; j < part.loop.n_blocks; j++) {
        const struct weir_ptx_block *block = &w->flow->blocks[part.loop.blocks[j]];

        part.n_insts += block->end - block->first;
    }
    return part;
}

static bool has_cas(const struct waits *w, const struct part *part)
{
    for (uint32_t i = 0; i < part->loop.n_blocks; i++) {
        const struct weir_ptx_block *block = &w->flow->blocks[part->loop.blocks[i]];

        for (uint32_t j = block->first; j < block->end; j++) {
            if (inst_at(w, j)->op == WEIR_PTX_OP_ATOM &&
                inst_at(w, j)->action == WEIR_PTX_MOD_CAS) {
                return true;
            }
        }
    }
    return false;
}

/* Build the blocks' graph, its loops, and its loops without the back edges of failed
 * compare-and-swaps. */
static enum weir_status find_loops(struct waits *w)
{
    uint32_t n = w->flow->n_blocks;
    struct weir_ptx_graph graph = {.n_nodes = n + 1, .first = w->first, .to = w->to};

    for (uint32_t i = 0; i < n; i++) {
        w->first[i] = w->flow->blocks[i].succ;
    }
    w->first[n] = w->first[n + 1] = w->flow->n_succs;
    memcpy(w->to, w->flow->succs, w->flow->n_succs * sizeof(*w->to));
    WEIR_TRY(weir_ptx_parts_init(&graph, &w->parts));
    for (uint32_t i = 0; i < w->parts.n_parts; i++) {
        struct part part = part_at(w, i);

        if (w->parts.is_cyclic[i] && has_cas(w, &part) && spend(w, w->flow->func->n_regs)) {
            look_at_writes(w, &part);
            for (uint32_t j = 0; j < part.loop.n_blocks; j++) {
                cut_retry(w, &part, part.loop.blocks[j]);
            }
        }
    }
    weir_ptx_parts_finish(&w->parts);
    return weir_ptx_parts_init(&graph, &w->parts);
}

static enum weir_status search(struct waits *w, uint32_t *ret_inst)
{
    enum weir_status status = find_loops(w);

    *ret_inst = WEIR_PTX_NONE;
    for (uint32_t i = 0; status == WEIR_OK && i < w->parts.n_parts; i++) {
        struct part part = part_at(w, i);

        if (!w->parts.is_cyclic[i]) {
            continue;
        }
        *ret_inst = loop_waits(w, &part);
        if (*ret_inst == WEIR_PTX_NONE) {
            status = weir_ptx_find_plain_wait(w->flow, &part.loop, &w->steps, ret_inst);
        }
        if (*ret_inst != WEIR_PTX_NONE) {
            break;
        }
    }
    return status;
}

enum weir_status weir_ptx_find_wait(const struct weir_ptx_flow *flow, weir_ptx_call_sees_fn sees_fn,
                                    void *context, uint64_t *spare, uint32_t *ret_inst)
{
    uint64_t own = (uint64_t)STEPS_PER_INST * flow->func->n_insts;
    size_t n_regs = (size_t)flow->func->n_regs + 1;
    size_t n = (size_t)flow->n_blocks + 1;
    struct waits w = {.flow = flow,
                      .sees = sees_fn,
                      .context = context,
                      .steps = own + *spare,
                      .first = calloc(n + 1, sizeof(*w.first)),
                      .to = calloc((size_t)flow->n_succs + 1, sizeof(*w.to)),
                      .state = calloc(n_regs, 1),
                      .n_writes = calloc(n_regs, sizeof(*w.n_writes)),
                      .stack = calloc(n, sizeof(*w.stack)),
                      .mark = calloc(n, sizeof(*w.mark)),
                      .tainted_place = calloc(n, sizeof(*w.tainted_place))};
    enum weir_status status = WEIR_ERR_NO_MEMORY;

    if (flow->gave_up) {
        *ret_inst = 0;
        status = WEIR_OK;
    } else if (w.first && w.to && w.state && w.n_writes && w.stack && w.mark && w.tainted_place) {
        status = search(&w, ret_inst);
    }
    *spare = w.steps < *spare ? w.steps : *spare;
    weir_ptx_parts_finish(&w.parts);
    free(w.tainted_place);
    free(w.mark);
    free(w.stack);
    free(w.n_writes);
    free(w.state);
    free(w.to);
    free(w.first);
    return status;
}
