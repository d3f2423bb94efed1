/*
 * Finds loops that wait with plain loads: for (;;) if (*flag) break; if a fence, a store or a
 * barrier keeps the compiler from loading only once.
 *
 * A branch that decides whether a loop repeats counts as waiting under two conditions. Its inputs
 * (through data, and through the branches that control their computation) include a plain load. And
 * there is a path from the branch back to itself on which no input makes progress. Progress is a
 * register computed from itself (i = i + 1, p = p->next), but not with a value that is loaded again
 * and again from one address; or a clock. So a loop over data ends by itself, even if the data may
 * end it early. A loop that reads the same address again does not, even as the inner one of two
 * loops that share their first block.
 *
 * Loads from shared, local or parameter memory count only in loops that also call functions or load
 * from elsewhere: one thread may have read the flag and passed its value to the others.
 *
 * Dependences are a graph: a node for each register of the function and each instruction of the
 * loop, edges from registers to the instructions that write them and from instructions to the
 * registers that they read, or to the instruction before them in their block that wrote it. Cyclic
 * parts of this graph are the candidates for progress.
 */
#include "ptx/scc.h"
#include "ptx/wait.h"

#include <stdlib.h>

enum change {
    STILL,  /* the same value in every iteration of the loop */
    LOADED, /* read from the same address in every iteration */
    MOVING, /* depends on the loop's progress */
};

struct search {
    const struct weir_ptx_flow *flow;
    const struct weir_ptx_loop *loop;
    uint64_t *steps;
    uint32_t n_regs;          /* number of registers and the carry, which are the first nodes */
    uint32_t n_insts;         /* number of the loop's instructions, which are the other nodes */
    uint32_t *inst;           /* place in the function of each instruction of the loop */
    uint32_t *block;          /* block of each instruction of the loop */
    uint32_t *node_of_branch; /* for each block of the function: node of its last instruction */
    uint32_t *first;          /* edges of the data dependences */
    uint32_t *to;
    uint32_t *control_first; /* for each block of the function: the branches that it depends on */
    uint32_t *control_to;
    struct weir_ptx_parts parts; /* strongly connected parts of the data dependences */
    uint8_t *change;             /* for each part: how its value changes */
    uint32_t *stack;
    uint32_t *mark;      /* for each node: number of the slice that it is in */
    uint32_t *mark_slow; /* for each block: number of the slice that makes progress there */
    uint32_t *mark_way;  /* for each block: number of the slice whose paths passed it */
    uint32_t n_marks;
    /* While edges are counted or written */
    uint32_t from;
    bool is_counting;
    uint32_t *writer;    /* for each register: node of its last writer in a block */
    uint32_t *writer_of; /* for each register: number of the visit that set writer */
    uint32_t n_visits;
};

static const struct weir_ptx_inst *inst_of(const struct search *s, uint32_t node)
{
    return &s->flow->func->insts[s->inst[node - s->n_regs]];
}

static bool in_loop(const struct search *s, uint32_t block)
{
    return s->loop->part_of[block] == s->loop->part;
}

/* Data dependences */

static void add_edge(struct search *s, uint32_t from, uint32_t to)
{
    if (s->is_counting) {
        s->first[from + 2]++;
    } else {
        s->to[s->first[from + 1]++] = to;
    }
}

static void add_read(void *context, uint32_t reg)
{
    struct search *s = context;

    add_edge(s, s->from, s->writer_of[reg] == s->n_visits ? s->writer[reg] : reg);
}

static void add_write(void *context, uint32_t reg)
{
    struct search *s = context;

    add_edge(s, reg, s->from);
    if (inst_of(s, s->from)->guard == WEIR_PTX_NONE) {
        s->writer[reg] = s->from;
        s->writer_of[reg] = s->n_visits;
    }
}

static void walk_edges(struct search *s, bool is_counting)
{
    s->is_counting = is_counting;
    for (uint32_t i = 0; i < s->n_insts; i++) {
        s->n_visits += i == 0 || s->block[i] != s->block[i - 1];
        s->from = s->n_regs + i;
        weir_ptx_inst_each_read(s->flow->func, inst_of(s, s->from), add_read, s);
        weir_ptx_inst_each_write(s->flow->func, inst_of(s, s->from), add_write, s);
    }
}

static enum weir_status find_data(struct search *s)
{
    size_t n = (size_t)s->n_regs + s->n_insts;

    s->first = calloc(n + 3, sizeof(*s->first));
    s->writer = calloc(s->n_regs, sizeof(*s->writer));
    s->writer_of = calloc(s->n_regs, sizeof(*s->writer_of));
    WEIR_FAIL_IF(!s->first || !s->writer || !s->writer_of, WEIR_ERR_NO_MEMORY);
    walk_edges(s, true);
    for (size_t i = 2; i < n + 3; i++) {
        s->first[i] += s->first[i - 1];
    }
    s->to = calloc((size_t)s->first[n + 2] + 1, sizeof(*s->to));
    WEIR_FAIL_IF(!s->to, WEIR_ERR_NO_MEMORY);
    walk_edges(s, false);
    struct weir_ptx_graph graph = {.n_nodes = (uint32_t)n, .first = s->first, .to = s->to};

    return weir_ptx_parts_init(&graph, &s->parts);
}

static bool is_source(const struct search *s, const struct weir_ptx_inst *inst)
{
    return inst->op == WEIR_PTX_OP_CALL || weir_ptx_is_plain_load(s->flow->func, inst);
}

static bool reads_clock(const struct weir_ptx_inst *inst)
{
    for (uint32_t i = 0; i < inst->n_operands; i++) {
        uint16_t sreg = inst->operands[i].sreg;

        if (inst->operands[i].kind == WEIR_PTX_OPERAND_SREG && sreg >= WEIR_PTX_SREG_CLOCK &&
            sreg <= WEIR_PTX_SREG_GLOBALTIMER_HI) {
            return true;
        }
    }
    return false;
}

/*
 * Does an instruction make progress? A clock does, and one that computes a register from itself and
 * from no value that is loaded repeatedly. A loop through a load is a walk along pointers.
 */
static bool is_progress(const struct search *s, uint32_t node)
{
    uint32_t part = s->parts.part[node];

    if (reads_clock(inst_of(s, node))) {
        return true;
    }
    if (!s->parts.is_cyclic[part] || inst_of(s, node)->op == WEIR_PTX_OP_MOV) {
        return false;
    }
    for (uint32_t i = s->first[node]; i < s->first[node + 1]; i++) {
        uint32_t other = s->parts.part[s->to[i]];

        if (other != part && s->change[other] == LOADED) {
            return false;
        }
    }
    return true;
}

/* Classify a part, after all parts that it depends on. */
static enum change change_of(const struct search *s, uint32_t part)
{
    bool moves = false, loads = false;

    for (uint32_t i = s->parts.begin[part]; i < s->parts.begin[part + 1]; i++) {
        uint32_t node = s->parts.nodes[i];

        for (uint32_t j = s->first[node]; j < s->first[node + 1]; j++) {
            uint32_t other = s->parts.part[s->to[j]];

            moves |= other != part && s->change[other] == MOVING;
            loads |= other != part && s->change[other] == LOADED;
        }
        if (node >= s->n_regs) {
            moves |= is_progress(s, node);
            loads |= is_source(s, inst_of(s, node));
        }
    }
    return moves ? MOVING : loads ? LOADED : STILL;
}

/* Control dependences */

/* Visit each block between a successor of a branch and its post-dominator. */
static bool walk_control(struct search *s, uint32_t branch, bool is_counting)
{
    const struct weir_ptx_flow *flow = s->flow;
    const struct weir_ptx_block *it = &flow->blocks[branch];

    for (uint32_t i = 0; i < it->n_succs; i++) {
        uint32_t at = flow->succs[it->succ + i];

        for (; at != it->ipdom && in_loop(s, at); at = flow->blocks[at].ipdom) {
            if (is_counting) {
                s->control_first[at + 2]++;
            } else {
                s->control_to[s->control_first[at + 1]++] = branch;
            }
            WEIR_FAIL_IF(!weir_ptx_spend(s->steps, 1), false);
        }
    }
    return true;
}

/* @return WEIR_ERR_TOO_BIG when the budget ends */
static enum weir_status find_control(struct search *s)
{
    size_t n = s->flow->n_blocks;
    bool ok = true;

    s->control_first = calloc(n + 3, sizeof(*s->control_first));
    WEIR_FAIL_IF(!s->control_first, WEIR_ERR_NO_MEMORY);
    for (uint32_t i = 0; i < s->loop->n_blocks && ok; i++) {
        ok = s->flow->blocks[s->loop->blocks[i]].n_succs < 2 ||
             walk_control(s, s->loop->blocks[i], true);
    }
    for (size_t i = 2; i < n + 3; i++) {
        s->control_first[i] += s->control_first[i - 1];
    }
    s->control_to = calloc((size_t)s->control_first[n + 2] + 1, sizeof(*s->control_to));
    WEIR_FAIL_IF(!s->control_to, WEIR_ERR_NO_MEMORY);
    for (uint32_t i = 0; i < s->loop->n_blocks && ok; i++) {
        ok = s->flow->blocks[s->loop->blocks[i]].n_succs < 2 ||
             walk_control(s, s->loop->blocks[i], false);
    }
    return ok ? WEIR_OK : WEIR_ERR_TOO_BIG;
}

/* One branch */

static void reach(struct search *s, uint32_t node, uint32_t *depth)
{
    if (s->mark[node] != s->n_marks) {
        s->mark[node] = s->n_marks;
        s->stack[(*depth)++] = node;
    }
}

/* Collect everything that a branch depends on, and mark the blocks with progress. @return whether
 * it includes a load */
static bool slice(struct search *s, uint32_t branch)
{
    uint32_t depth = 0;
    bool has_load = false;

    reach(s, s->node_of_branch[branch], &depth);
    while (depth) {
        uint32_t node = s->stack[--depth];

        if (!weir_ptx_spend(s->steps, s->first[node + 1] - s->first[node] + 1)) {
            return true;
        }
        for (uint32_t i = s->first[node]; i < s->first[node + 1]; i++) {
            reach(s, s->to[i], &depth);
        }
        if (node < s->n_regs) {
            continue;
        }
        uint32_t block = s->block[node - s->n_regs];

        has_load |= is_source(s, inst_of(s, node));
        if (is_progress(s, node)) {
            s->mark_slow[block] = s->n_marks;
        }
        for (uint32_t i = s->control_first[block]; i < s->control_first[block + 1]; i++) {
            reach(s, s->node_of_branch[s->control_to[i]], &depth);
        }
    }
    return has_load;
}

/*
 * Is there a path in the loop from a branch back to itself: one that bypasses its post-dominator
 * (stop), or one on which its slice makes no progress (stop is the function's end)?
 */
static bool comes_back(struct search *s, uint32_t branch, uint32_t stop, bool avoids_progress)
{
    const struct weir_ptx_flow *flow = s->flow;
    uint32_t depth = 0;
    uint32_t mark = 2 * s->n_marks + avoids_progress;

    s->stack[depth++] = branch;
    while (depth) {
        const struct weir_ptx_block *at = &flow->blocks[s->stack[--depth]];

        if (!weir_ptx_spend(s->steps, at->n_succs + 1)) {
            return true;
        }
        for (uint32_t i = 0; i < at->n_succs; i++) {
            uint32_t succ = flow->succs[at->succ + i];

            if (succ == stop || !in_loop(s, succ) ||
                (avoids_progress && s->mark_slow[succ] == s->n_marks)) {
                continue;
            }
            if (succ == branch) {
                return true;
            }
            if (s->mark_way[succ] != mark) {
                s->mark_way[succ] = mark;
                s->stack[depth++] = succ;
            }
        }
    }
    return false;
}

static bool waits(struct search *s, uint32_t branch)
{
    const struct weir_ptx_flow *flow = s->flow;
    uint32_t ipdom = flow->blocks[branch].ipdom;

    s->n_marks++;
    if (in_loop(s, ipdom) && !comes_back(s, branch, ipdom, false)) {
        return false; /* the branch chooses between two paths through one iteration */
    }
    return slice(s, branch) && s->mark_slow[branch] != s->n_marks &&
           comes_back(s, branch, flow->n_blocks, true);
}

/* The loop */

static bool looks_outside(const struct search *s)
{
    for (uint32_t i = 0; i < s->n_insts; i++) {
        const struct weir_ptx_inst *inst = inst_of(s, s->n_regs + i);

        if (inst->op == WEIR_PTX_OP_CALL || inst->op == WEIR_PTX_OP_CP ||
            (weir_ptx_is_plain_load(s->flow->func, inst) &&
             !weir_ptx_is_private_space(inst->space))) {
            return true;
        }
    }
    return false;
}

static void list_insts(struct search *s)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < s->loop->n_blocks; i++) {
        const struct weir_ptx_block *block = &s->flow->blocks[s->loop->blocks[i]];

        for (uint32_t j = block->first; j < block->end; j++) {
            s->inst[n] = j;
            s->block[n] = s->loop->blocks[i];
            n++;
        }
        s->node_of_branch[s->loop->blocks[i]] = s->n_regs + n - 1;
    }
}

static enum weir_status search(struct search *s, uint32_t *ret_inst)
{
    size_t n_nodes = (size_t)s->n_regs + s->n_insts;
    size_t n_blocks = (size_t)s->flow->n_blocks + 1;
    WEIR_TRY(find_data(s));
    WEIR_TRY(find_control(s));
    s->change = calloc((size_t)s->parts.n_parts + 1, 1);
    s->stack = calloc(n_nodes + n_blocks, sizeof(*s->stack));
    s->mark = calloc(n_nodes, sizeof(*s->mark));
    s->mark_slow = calloc(n_blocks, sizeof(*s->mark_slow));
    s->mark_way = calloc(n_blocks, sizeof(*s->mark_way));
    WEIR_FAIL_IF(!s->change || !s->stack || !s->mark || !s->mark_slow || !s->mark_way,
                 WEIR_ERR_NO_MEMORY);
    for (uint32_t i = 0; i < s->parts.n_parts; i++) {
        s->change[i] = (uint8_t)change_of(s, i);
    }
    for (uint32_t i = 0; i < s->loop->n_blocks; i++) {
        uint32_t block = s->loop->blocks[i];

        if (s->flow->blocks[block].n_succs > 1 && (waits(s, block) || *s->steps == 0)) {
            *ret_inst = s->flow->blocks[block].end - 1;
            return WEIR_OK;
        }
    }
    return WEIR_OK;
}

static void finish(struct search *s)
{
    weir_ptx_parts_finish(&s->parts);
    free(s->inst);
    free(s->block);
    free(s->node_of_branch);
    free(s->writer);
    free(s->writer_of);
    free(s->first);
    free(s->to);
    free(s->control_first);
    free(s->control_to);
    free(s->change);
    free(s->stack);
    free(s->mark);
    free(s->mark_slow);
    free(s->mark_way);
}

enum weir_status weir_ptx_find_plain_wait(const struct weir_ptx_flow *flow,
                                          const struct weir_ptx_loop *loop, uint64_t *steps,
                                          uint32_t *ret_inst)
{
    struct search s = {
        .flow = flow, .loop = loop, .steps = steps, .n_regs = flow->func->n_regs + 1};

    *ret_inst = WEIR_PTX_NONE;
    for (uint32_t i = 0; i < loop->n_blocks; i++) {
        s.n_insts += flow->blocks[loop->blocks[i]].end - flow->blocks[loop->blocks[i]].first;
    }
    if (!weir_ptx_spend(steps, (uint64_t)s.n_regs + s.n_insts + flow->n_blocks)) {
        *ret_inst = flow->blocks[loop->blocks[0]].first;
        return WEIR_OK;
    }
    s.inst = calloc((size_t)s.n_insts + 1, sizeof(*s.inst));
    s.block = calloc((size_t)s.n_insts + 1, sizeof(*s.block));
    s.node_of_branch = calloc((size_t)flow->n_blocks + 1, sizeof(*s.node_of_branch));
    enum weir_status status = WEIR_ERR_NO_MEMORY;

    if (s.inst && s.block && s.node_of_branch) {
        list_insts(&s);
        status = looks_outside(&s) ? search(&s, ret_inst) : WEIR_OK;
    }
    if (status == WEIR_ERR_TOO_BIG) {
        *ret_inst = flow->blocks[loop->blocks[0]].first;
        status = WEIR_OK;
    }
    finish(&s);
    return status;
}
