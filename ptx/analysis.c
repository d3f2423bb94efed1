/*
 * Combines facts about functions into facts about kernels.
 *
 * First each function is analysed by itself (scan.c, flow.c). Then the call graph shows which
 * functions may be called again while they run, which see other blocks' writes, and which loops
 * wait (wait.c). Then, for each entry, all functions are found that can be called from it. Each of
 * them has two marks, which its callees inherit: threads may have parted where the function is
 * called, or it may be called through a pointer. A call through a pointer may reach any function
 * whose address the module takes.
 *
 * Facts of functions are merged into the kernel; this file finds the others (early exits, numbers
 * of barriers, sizes of memory).
 */
#include "ptx/analysis.h"

#include "ptx/flow.h"
#include "ptx/scan.h"
#include "ptx/scc.h"
#include "ptx/wait.h"
#include "ptx/warp.h"

#include <stdlib.h>
#include <string.h>

#define VISITS_PER_KERNEL 256u /* cost of an entry that calls nothing; this also bounds memory */

enum {
    REACHED = 1u << 0,
    PARTED = 1u << 1,  /* threads may have parted before the function is called */
    ENDED = 1u << 2,   /* some threads may have ended before */
    POINTED = 1u << 3, /* the function may be called through a pointer, or by a function that is */
};

struct builder {
    const struct weir_ptx_module *module;
    uint32_t flags;
    struct weir_ptx_scan *scans; /* results of the scan, per function */
    struct weir_ptx_flow *flows; /* flow of each function; blocks is NULL without a body */
    bool *taken;                 /* per function: is its address taken? */
    uint32_t *stamps;            /* per variable */
    uint32_t *targets;           /* functions with a body whose address is taken */
    uint32_t n_targets;
    uint64_t pointer_facts; /* facts of functions without a body whose address is taken */
    uint32_t *first;        /* the call graph; its last node is "through a pointer" */
    uint32_t *to;
    struct weir_ptx_parts parts;
    bool *sees; /* per part of the call graph: does it see other blocks' writes? */
    /* State of the current kernel */
    uint8_t *marks; /* per function: its marks */
    uint32_t *list; /* functions reached, in the order in which they were reached */
    uint32_t n_list;
    uint32_t *work;
    uint32_t n_work;
    bool *is_queued;
    uint8_t pointer_marks; /* marks with which the targets of pointers were reached */
    uint64_t visits;
};

/* Functions by themselves */

static void mark_warp(struct weir_ptx_scan *scan, enum weir_ptx_mask mask, uint32_t inst,
                      bool ended)
{
    for (int i = 0; mask != WEIR_PTX_MASK_NONE && i <= ended; i++) {
        struct weir_ptx_warp_use *use = &scan->warp[i];

        use->first = use->n++ ? use->first : inst;
        if (mask == WEIR_PTX_MASK_OTHER) {
            use->other = use->n_other++ ? use->other : inst;
        }
    }
}

/* Mark barriers, calls and warp-wide instructions where threads may have parted or left. */
static void mark_parted(struct weir_ptx_scan *scan, const struct weir_ptx_flow *flow)
{
    const struct weir_ptx_func *func = flow->func;
    uint32_t edge = 0;

    for (uint32_t i = 0; i < flow->n_blocks; i++) {
        bool ended = flow->blocks[i].ended;

        for (uint32_t j = flow->blocks[i].first; j < flow->blocks[i].end; j++) {
            bool is_parted = weir_ptx_flow_is_parted(flow, i, j);

            for (; edge < scan->n_edges && scan->edges[edge].inst == j; edge++) {
                scan->edges[edge].parted = is_parted;
                scan->edges[edge].ended = ended;
            }
            if (is_parted && weir_ptx_is_full_barrier(&func->insts[j])) {
                scan->parted = scan->n_parted++ ? scan->parted : j;
            }
            mark_warp(scan, weir_ptx_mask_of(func, flow->blocks[i].first, j), j, ended);
        }
    }
}

static enum weir_status scan_all(struct builder *b)
{
    enum weir_status status = WEIR_OK;

    for (uint32_t i = 0; i < b->module->n_funcs && status == WEIR_OK; i++) {
        const struct weir_ptx_func *func = b->module->funcs[i];

        if (!func->has_body) {
            continue;
        }
        status = weir_ptx_scan_func(b->module, func, b->taken, b->stamps, &b->scans[i]);
        WEIR_THEN(status, weir_ptx_flow_init(func, &b->flows[i]));
        if (status == WEIR_OK) {
            mark_parted(&b->scans[i], &b->flows[i]);
        }
    }
    return status;
}

static void take_inits(struct builder *b, struct weir_ptx_var *const *vars, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t j = 0; j < vars[i]->n_inits; j++) {
            if (vars[i]->inits[j].kind == WEIR_PTX_INIT_FUNC) {
                b->taken[weir_ptx_func_of(vars[i]->inits[j].func)->id] = true;
            }
        }
    }
}

/* Find the functions that a call through a pointer may reach. */
static void find_targets(struct builder *b)
{
    const struct weir_ptx_module *module = b->module;

    take_inits(b, module->vars, module->n_vars);
    for (uint32_t i = 0; i < module->n_funcs; i++) {
        take_inits(b, module->funcs[i]->vars, module->funcs[i]->n_vars);
    }
    for (uint32_t i = 0; i < module->n_funcs; i++) {
        const struct weir_ptx_func *func = module->funcs[i];

        if (!b->taken[i] || func->is_entry) {
            continue;
        }
        if (func->has_body) {
            b->targets[b->n_targets++] = i;
        } else {
            b->pointer_facts |= 1ull << weir_ptx_fact_of_extern(func->name);
        }
    }
    if (b->n_targets == 0) {
        b->pointer_facts |= 1ull << WEIR_PTX_FACT_UNKNOWN_CALL;
    }
}

/* The call graph */

static enum weir_status find_parts(struct builder *b)
{
    uint32_t n = b->module->n_funcs;
    uint64_t n_edges = b->n_targets;
    uint32_t at = 0;

    for (uint32_t i = 0; i < n; i++) {
        n_edges += b->scans[i].n_edges;
    }
    b->first = calloc((size_t)n + 2, sizeof(*b->first));
    b->to = calloc(n_edges + 1, sizeof(*b->to));
    WEIR_FAIL_IF(!b->first || !b->to, WEIR_ERR_NO_MEMORY);
    for (uint32_t i = 0; i < n; i++) {
        b->first[i] = at;
        for (uint32_t j = 0; j < b->scans[i].n_edges; j++) {
            b->to[at++] = b->scans[i].edges[j].func;
        }
    }
    b->first[n] = at;
    if (b->n_targets) {
        memcpy(b->to + at, b->targets, b->n_targets * sizeof(*b->to));
    }
    b->first[n + 1] = at + b->n_targets;
    struct weir_ptx_graph graph = {.n_nodes = n + 1, .first = b->first, .to = b->to};

    return weir_ptx_parts_init(&graph, &b->parts);
}

/* Find which parts of the call graph see other blocks' writes. A part's number is above those of
 * all parts that it calls. */
static enum weir_status find_sees(struct builder *b)
{
    const struct weir_ptx_parts *parts = &b->parts;

    b->sees = calloc((size_t)parts->n_parts + 1, sizeof(*b->sees));
    WEIR_FAIL_IF(!b->sees, WEIR_ERR_NO_MEMORY);
    for (uint32_t i = 0; i < parts->n_parts; i++) {
        for (uint32_t j = parts->begin[i]; j < parts->begin[i + 1]; j++) {
            uint32_t node = parts->nodes[j];

            b->sees[i] |= node < b->module->n_funcs && b->scans[node].sees;
            for (uint32_t k = b->first[node]; k < b->first[node + 1]; k++) {
                b->sees[i] |= b->sees[parts->part[b->to[k]]];
            }
        }
    }
    return WEIR_OK;
}

static bool call_sees(void *context, const struct weir_ptx_inst *call)
{
    const struct builder *b = context;
    const struct weir_ptx_operand *target = &call->operands[1];
    uint32_t node = target->kind == WEIR_PTX_OPERAND_FUNC ? weir_ptx_func_of(target->func)->id
                                                          : b->module->n_funcs;

    return b->sees[b->parts.part[node]];
}

/* Find loops that wait, and functions that may wait by calling themselves. */
static enum weir_status find_waits(struct builder *b)
{
    uint64_t spare = WEIR_PTX_WAIT_STEPS_SPARE;

    for (uint32_t i = 0; i < b->module->n_funcs; i++) {
        uint32_t part = b->parts.part[i];
        uint32_t inst = WEIR_PTX_NONE;
        bool polls = b->parts.is_cyclic[part] && b->sees[part];

        if (!b->module->funcs[i]->has_body) {
            continue;
        }
        if (b->parts.is_cyclic[part] &&
            !weir_ptx_scan_note(&b->scans[i], WEIR_PTX_FACT_RECURSION, WEIR_PTX_NONE)) {
            return WEIR_ERR_NO_MEMORY;
        }
        if (!polls && b->flows[i].n_blocks) {
            WEIR_TRY(weir_ptx_find_wait(&b->flows[i], call_sees, b, &spare, &inst));
        }
        if ((polls || inst != WEIR_PTX_NONE) &&
            !weir_ptx_scan_note(&b->scans[i], WEIR_PTX_FACT_POLL, inst)) {
            return WEIR_ERR_NO_MEMORY;
        }
    }
    return WEIR_OK;
}

/* What an entry reaches */

static void reach(struct builder *b, uint32_t func, uint8_t marks)
{
    if ((b->marks[func] & marks) == marks) {
        return;
    }
    if (!b->marks[func]) {
        b->list[b->n_list++] = func;
    }
    b->marks[func] |= marks;
    if (!b->is_queued[func]) {
        b->is_queued[func] = true;
        b->work[b->n_work++] = func;
    }
}

static void reach_targets(struct builder *b, uint8_t marks)
{
    if ((b->pointer_marks & marks) == marks) {
        return;
    }
    b->pointer_marks |= marks;
    b->visits += b->n_targets;
    for (uint32_t i = 0; i < b->n_targets; i++) {
        reach(b, b->targets[i], marks);
    }
}

static enum weir_status reach_all(struct builder *b, const struct weir_ptx_func *entry)
{
    reach(b, entry->id, REACHED);
    while (b->n_work) {
        uint32_t from = b->work[--b->n_work];
        const struct weir_ptx_scan *scan = &b->scans[from];

        b->is_queued[from] = false;
        b->visits +=
            1u + scan->n_edges + scan->n_shared + scan->n_seen + b->module->funcs[from]->n_vars;
        WEIR_FAIL_IF(b->visits > WEIR_PTX_MAX_ANALYSIS_VISITS, WEIR_ERR_TOO_BIG);
        for (uint32_t i = 0; i < scan->n_edges; i++) {
            const struct weir_ptx_edge *edge = &scan->edges[i];
            uint8_t marks =
                b->marks[from] | (edge->parted ? PARTED : 0) | (edge->ended ? ENDED : 0);

            if (edge->func < b->module->n_funcs) {
                reach(b, edge->func, marks);
            } else {
                /* Threads that call together may have different pointers, so they part. */
                reach_targets(b, marks | PARTED | POINTED);
            }
        }
    }
    return WEIR_OK;
}

static void forget(struct builder *b)
{
    for (uint32_t i = 0; i < b->n_list; i++) {
        b->marks[b->list[i]] = 0;
        b->is_queued[b->list[i]] = false;
    }
    b->n_list = b->n_work = 0;
    b->pointer_marks = 0;
}

/* Kernels */

static void add_fact(struct weir_ptx_kernel *kernel, enum weir_ptx_fact fact,
                     const struct weir_ptx_func *func, uint32_t inst, uint32_t count)
{
    struct weir_ptx_place *place = &kernel->places[fact];

    kernel->facts |= 1ull << fact;
    if (!place->func) {
        place->func = func;
        place->inst = inst;
    }
    place->count += count;
}

static void add_barriers(struct weir_ptx_kernel *kernel, const struct weir_ptx_scan *scan)
{
    for (uint32_t i = 0; scan->barriers && i < WEIR_PTX_BARRIERS; i++) {
        const struct weir_ptx_barrier_use *from = &scan->barriers[i];
        struct weir_ptx_barrier_use *use = &kernel->barriers[i];

        if (from->n_sync || from->n_arrive || from->n_red) {
            kernel->barriers_used |= (uint16_t)(1u << i);
        }
        use->threads = use->n_counted && from->n_counted && use->threads != from->threads
                           ? 0
                           : use->threads | from->threads;
        use->n_sync += from->n_sync;
        use->n_arrive += from->n_arrive;
        use->n_red += from->n_red;
        use->n_counted += from->n_counted;
    }
}

static void add_shared(struct weir_ptx_kernel *kernel, const struct weir_ptx_var *var)
{
    uint64_t align = var->align ? var->align : 1;

    if (var->align > kernel->shared_align) {
        kernel->shared_align = var->align;
    }
    if (!var->unsized) {
        kernel->shared_static_bytes = (kernel->shared_static_bytes + align - 1) / align * align;
        kernel->shared_static_bytes += var->size_bytes;
    }
}

/* Add the variables that a body declares, and the module's variables that it is the first to
 * name. */
static void add_memory(struct builder *b, struct weir_ptx_kernel *kernel, uint32_t id)
{
    const struct weir_ptx_func *func = b->module->funcs[id];
    const struct weir_ptx_scan *scan = &b->scans[id];

    for (uint32_t i = 0; i < func->n_vars; i++) {
        if (func->vars[i]->space == WEIR_PTX_SPACE_SHARED) {
            add_shared(kernel, func->vars[i]);
        } else if (func->vars[i]->space == WEIR_PTX_SPACE_LOCAL) {
            kernel->local_bytes += func->vars[i]->size_bytes;
        }
    }
    for (uint32_t i = 0; i < scan->n_shared; i++) {
        uint32_t *stamp = &b->stamps[scan->shared[i]];

        if (*stamp != kernel->entry->id + 1) {
            *stamp = kernel->entry->id + 1;
            add_shared(kernel, b->module->vars[scan->shared[i]]);
        }
    }
}

static void merge_func(struct builder *b, struct weir_ptx_kernel *kernel, uint32_t id)
{
    const struct weir_ptx_func *func = b->module->funcs[id];
    const struct weir_ptx_scan *scan = &b->scans[id];

    for (uint32_t i = 0; i < scan->n_seen; i++) {
        add_fact(kernel, (enum weir_ptx_fact)scan->seen[i].fact, func, scan->seen[i].inst,
                 scan->seen[i].count);
    }
    add_barriers(kernel, scan);
    add_memory(b, kernel, id);
    kernel->n_insts += func->n_insts;
    kernel->n_exits += scan->n_exits;
}

/* Count the barriers that wait for all threads of the block. */
static uint32_t count_full(const struct weir_ptx_kernel *kernel)
{
    uint32_t n = 0;

    for (int i = 0; i < WEIR_PTX_BARRIERS; i++) {
        const struct weir_ptx_barrier_use *use = &kernel->barriers[i];

        n += use->n_sync + use->n_arrive + use->n_red > use->n_counted;
    }
    return n;
}

/* Find barriers that some threads may never reach. */
static void find_early_exits(const struct builder *b, struct weir_ptx_kernel *kernel)
{
    bool exits_in_func = weir_ptx_kernel_has(kernel, WEIR_PTX_FACT_EXIT_IN_FUNC);
    bool has_red = false;

    for (uint32_t i = 0; i < b->n_list; i++) {
        const struct weir_ptx_scan *scan = &b->scans[b->list[i]];
        bool is_all = exits_in_func || (b->marks[b->list[i]] & PARTED);
        uint32_t n = is_all ? scan->n_full : scan->n_parted;

        if (n) {
            add_fact(kernel, WEIR_PTX_FACT_EARLY_EXIT, b->module->funcs[b->list[i]],
                     is_all ? scan->full : scan->parted, n);
        }
        has_red |= scan->has_red;
    }
    if (!weir_ptx_kernel_has(kernel, WEIR_PTX_FACT_EARLY_EXIT)) {
        return;
    }
    struct weir_ptx_place place = kernel->places[WEIR_PTX_FACT_EARLY_EXIT];

    if (has_red) {
        add_fact(kernel, WEIR_PTX_FACT_EARLY_EXIT_RED, place.func, place.inst, 1);
    }
    if (count_full(kernel) > 1) {
        add_fact(kernel, WEIR_PTX_FACT_EARLY_EXIT_SEVERAL, place.func, place.inst, 1);
    }
    for (uint32_t i = 0; i < b->n_list; i++) {
        const struct weir_ptx_scan *scan = &b->scans[b->list[i]];

        if ((b->marks[b->list[i]] & POINTED) && scan->n_full) {
            add_fact(kernel, WEIR_PTX_FACT_EARLY_EXIT_INDIRECT, b->module->funcs[b->list[i]],
                     scan->full, scan->n_full);
        }
    }
}

/* Find warp-wide instructions that some threads of the warp may never reach. */
static void find_warp_exits(const struct builder *b, struct weir_ptx_kernel *kernel)
{
    bool exits_in_func = weir_ptx_kernel_has(kernel, WEIR_PTX_FACT_EXIT_IN_FUNC);

    for (uint32_t i = 0; i < b->n_list; i++) {
        const struct weir_ptx_func *func = b->module->funcs[b->list[i]];
        bool is_all = exits_in_func || (b->marks[b->list[i]] & ENDED);
        const struct weir_ptx_warp_use *use = &b->scans[b->list[i]].warp[is_all ? 0 : 1];

        if (use->n) {
            add_fact(kernel, WEIR_PTX_FACT_EARLY_EXIT_WARP, func, use->first, use->n);
        }
        if (use->n_other) {
            add_fact(kernel, WEIR_PTX_FACT_EARLY_EXIT_MASK, func, use->other, use->n_other);
        }
    }
    if (!weir_ptx_kernel_has(kernel, WEIR_PTX_FACT_EARLY_EXIT_WARP)) {
        return;
    }
    if (weir_ptx_kernel_has(kernel, WEIR_PTX_FACT_EARLY_EXIT)) {
        struct weir_ptx_place place = kernel->places[WEIR_PTX_FACT_EARLY_EXIT_WARP];

        add_fact(kernel, WEIR_PTX_FACT_EARLY_EXIT_BOTH, place.func, place.inst, 1);
    }
    for (uint32_t i = 0; i < b->n_list; i++) {
        const struct weir_ptx_warp_use *use = &b->scans[b->list[i]].warp[0];

        if ((b->marks[b->list[i]] & POINTED) && use->n) {
            add_fact(kernel, WEIR_PTX_FACT_EARLY_EXIT_INDIRECT, b->module->funcs[b->list[i]],
                     use->first, use->n);
        }
    }
}

static void find_pointer_facts(const struct builder *b, struct weir_ptx_kernel *kernel)
{
    const uint64_t grid = 1ull << WEIR_PTX_FACT_CTAID | 1ull << WEIR_PTX_FACT_NCTAID |
                          1ull << WEIR_PTX_FACT_CLUSTER_SREG;
    struct weir_ptx_place call = kernel->places[WEIR_PTX_FACT_INDIRECT_CALL];

    if (!weir_ptx_kernel_has(kernel, WEIR_PTX_FACT_INDIRECT_CALL)) {
        return;
    }
    for (int i = 0; i < WEIR_PTX_FACT_COUNT; i++) {
        if (b->pointer_facts >> i & 1) {
            add_fact(kernel, (enum weir_ptx_fact)i, call.func, call.inst, 1);
        }
    }
    for (uint32_t i = 0; i < b->n_list && !(b->flags & WEIR_PTX_ASSUME_OWN_POINTERS); i++) {
        if ((b->marks[b->list[i]] & POINTED) && (b->scans[b->list[i]].facts & grid)) {
            add_fact(kernel, WEIR_PTX_FACT_INDIRECT_GRID, b->module->funcs[b->list[i]],
                     WEIR_PTX_NONE, 1);
        }
    }
}

/* Find the highest barrier number that is not used. */
static void find_free_barrier(struct weir_ptx_kernel *kernel)
{
    const uint16_t all = UINT16_MAX;

    if (kernel->barriers_used == all) {
        const struct weir_ptx_place *place = &kernel->places[WEIR_PTX_FACT_BARRIER];

        add_fact(kernel, WEIR_PTX_FACT_NO_FREE_BARRIER, place->func, place->inst, 1);
    }
    if (weir_ptx_kernel_has(kernel, WEIR_PTX_FACT_BARRIER_DYNAMIC)) {
        kernel->barriers_used = all;
    }
    kernel->free_barrier = -1;
    for (int i = 0; i < WEIR_PTX_BARRIERS; i++) {
        kernel->free_barrier = kernel->barriers_used >> i & 1 ? kernel->free_barrier : (int8_t)i;
    }
}

static enum weir_status analyze_entry(struct builder *b, const struct weir_ptx_func *entry,
                                      struct weir_ptx_kernel *kernel)
{
    const struct weir_ptx_module *module = b->module;
    bool has_large =
        module->sm >= 70 &&
        (module->version_major > 8 || (module->version_major == 8 && module->version_minor >= 1));

    b->visits += VISITS_PER_KERNEL;
    WEIR_TRY(reach_all(b, entry));
    const struct weir_ptx_func **funcs = calloc(b->n_list, sizeof(const struct weir_ptx_func *));
    WEIR_FAIL_IF(!funcs, WEIR_ERR_NO_MEMORY);
    kernel->entry = entry;
    kernel->funcs = funcs;
    kernel->n_funcs = b->n_list;
    kernel->params_size_bytes = entry->params_size_bytes;
    kernel->params_max_bytes = has_large ? 32764 : 4352;
    for (uint32_t i = 0; i < b->n_list; i++) {
        funcs[i] = module->funcs[b->list[i]];
        merge_func(b, kernel, b->list[i]);
    }
    find_pointer_facts(b, kernel);
    find_early_exits(b, kernel);
    find_warp_exits(b, kernel);
    find_free_barrier(kernel);
    for (int i = 0; i < WEIR_PTX_FORM_COUNT; i++) {
        if (!weir_ptx_kernel_refusals(kernel, (enum weir_ptx_form)i)) {
            kernel->forms |= (uint8_t)(1u << i);
        }
    }
    return WEIR_OK;
}

static enum weir_status analyze_entries(struct builder *b, struct weir_ptx_analysis *analysis)
{
    const struct weir_ptx_module *module = b->module;
    enum weir_status status = WEIR_OK;
    uint32_t n = 0;

    for (uint32_t i = 0; i < module->n_funcs; i++) {
        n += module->funcs[i]->is_entry && module->funcs[i]->has_body;
    }
    WEIR_FAIL_IF(n > WEIR_PTX_MAX_ANALYSIS_VISITS / VISITS_PER_KERNEL, WEIR_ERR_TOO_BIG);
    analysis->kernels = calloc((size_t)n + 1, sizeof(*analysis->kernels));
    WEIR_FAIL_IF(!analysis->kernels, WEIR_ERR_NO_MEMORY);
    memset(b->stamps, 0, module->n_vars * sizeof(*b->stamps));
    for (uint32_t i = 0; i < module->n_funcs && status == WEIR_OK; i++) {
        if (module->funcs[i]->is_entry && module->funcs[i]->has_body) {
            status = analyze_entry(b, module->funcs[i], &analysis->kernels[analysis->n_kernels++]);
            forget(b);
        }
    }
    return status;
}

/* The whole */

static enum weir_status begin(struct builder *b, const struct weir_ptx_module *module,
                              uint32_t flags)
{
    size_t n = (size_t)module->n_funcs + 1;

    b->module = module;
    b->flags = flags;
    b->scans = calloc(n, sizeof(*b->scans));
    b->flows = calloc(n, sizeof(*b->flows));
    b->taken = calloc(n, sizeof(*b->taken));
    b->stamps = calloc((size_t)module->n_vars + 1, sizeof(*b->stamps));
    b->targets = calloc(n, sizeof(*b->targets));
    b->marks = calloc(n, 1);
    b->list = calloc(n, sizeof(*b->list));
    b->work = calloc(n, sizeof(*b->work));
    b->is_queued = calloc(n, sizeof(*b->is_queued));
    return b->scans && b->flows && b->taken && b->stamps && b->targets && b->marks && b->list &&
                   b->work && b->is_queued
               ? WEIR_OK
               : WEIR_ERR_NO_MEMORY;
}

static void finish(struct builder *b)
{
    for (uint32_t i = 0; i < b->module->n_funcs; i++) {
        if (b->scans) {
            weir_ptx_scan_finish(&b->scans[i]);
        }
        if (b->flows) {
            weir_ptx_flow_finish(&b->flows[i]);
        }
    }
    weir_ptx_parts_finish(&b->parts);
    free(b->scans);
    free(b->flows);
    free(b->taken);
    free(b->stamps);
    free(b->targets);
    free(b->first);
    free(b->to);
    free(b->sees);
    free(b->marks);
    free(b->list);
    free(b->work);
    free(b->is_queued);
}

static enum weir_status analyze(struct builder *b, struct weir_ptx_analysis *analysis)
{
    WEIR_TRY(scan_all(b));
    find_targets(b);
    WEIR_TRY(find_parts(b));
    WEIR_TRY(find_sees(b));
    WEIR_TRY(find_waits(b));
    return analyze_entries(b, analysis);
}

enum weir_status weir_ptx_analyze(const struct weir_ptx_module *module, uint32_t flags,
                                  struct weir_ptx_analysis **ret_analysis)
{
    struct weir_ptx_analysis *analysis = calloc(1, sizeof(*analysis));
    struct builder b = {0};

    WEIR_FAIL_IF(!analysis, WEIR_ERR_NO_MEMORY);
    analysis->module = module;
    enum weir_status status = begin(&b, module, flags);
    WEIR_THEN(status, analyze(&b, analysis));
    finish(&b);
    if (status != WEIR_OK) {
        weir_ptx_analysis_destroy(analysis);
        return status;
    }
    *ret_analysis = analysis;
    return WEIR_OK;
}

void weir_ptx_analysis_destroy(struct weir_ptx_analysis *analysis)
{
    if (!analysis) {
        return;
    }
    for (uint32_t i = 0; i < analysis->n_kernels; i++) {
        free((void *)analysis->kernels[i].funcs);
    }
    free(analysis->kernels);
    free(analysis);
}
