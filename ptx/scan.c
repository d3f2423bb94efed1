/*
 * Finds the facts of one function (ptx/facts.def): visits its instructions and operands, and checks
 * opcodes, suffixes, special registers, variables and calls.
 */
#include "ptx/scan.h"

#include "base/grow.h"
#include "ptx/wait.h"
#include <stdlib.h>
#include <string.h>

#define MAX_ALIASES 16 /* longest chain of aliases */

struct scanner {
    const struct weir_ptx_module *module;
    const struct weir_ptx_func *func;
    bool *taken;
    uint32_t *stamps;
    struct weir_ptx_scan *scan;
    const struct weir_ptx_inst *inst;
    uint32_t at;
    bool failed; /* out of memory */
};

const struct weir_ptx_func *weir_ptx_func_of(const struct weir_ptx_func *func)
{
    for (int i = 0; i < MAX_ALIASES && func->is_alias && func->alias_of; i++) {
        func = func->alias_of;
    }
    return func;
}

bool weir_ptx_scan_note(struct weir_ptx_scan *scan, enum weir_ptx_fact fact, uint32_t inst)
{
    for (uint32_t i = 0; i < scan->n_seen; i++) {
        if (scan->seen[i].fact == fact) {
            scan->seen[i].count++;
            return true;
        }
    }
    WEIR_FAIL_IF(!WEIR_GROW_POWER(scan->seen, scan->n_seen), false);
    scan->seen[scan->n_seen++] = (struct weir_ptx_seen){fact, inst, 1};
    scan->facts |= 1ull << fact;
    return true;
}

static void note(struct scanner *s, enum weir_ptx_fact fact)
{
    s->failed |= !weir_ptx_scan_note(s->scan, fact, s->at);
}

/* Barriers */

static bool is_block_barrier(const struct weir_ptx_inst *inst)
{
    return (inst->op == WEIR_PTX_OP_BAR || inst->op == WEIR_PTX_OP_BARRIER) &&
           !weir_ptx_inst_has(inst, WEIR_PTX_MOD_WARP) &&
           !weir_ptx_inst_has(inst, WEIR_PTX_MOD_CLUSTER);
}

/* Does the barrier have a thread count? Operands: sync a{, b}; arrive a, b; red d, a{, b}, p. */
static bool is_counted(const struct weir_ptx_inst *inst)
{
    return weir_ptx_inst_has(inst, WEIR_PTX_MOD_RED) ? inst->n_operands > 3 : inst->n_operands > 1;
}

bool weir_ptx_is_full_barrier(const struct weir_ptx_inst *inst)
{
    return is_block_barrier(inst) && !is_counted(inst);
}

static void use_barrier(struct scanner *s, uint64_t number, bool is_red, bool is_arrive)
{
    struct weir_ptx_scan *scan = s->scan;
    const struct weir_ptx_operand *count = &s->inst->operands[is_red ? 2 : 1];

    if (!scan->barriers) {
        scan->barriers = calloc(WEIR_PTX_BARRIERS, sizeof(*scan->barriers));
    }
    if (!scan->barriers) {
        s->failed = true;
        return;
    }
    struct weir_ptx_barrier_use *use = &scan->barriers[number];

    use->n_red += is_red;
    use->n_arrive += is_arrive;
    use->n_sync += !is_red && !is_arrive;
    if (is_counted(s->inst)) {
        uint32_t threads = count->kind == WEIR_PTX_OPERAND_INT && count->bits <= UINT32_MAX
                               ? (uint32_t)count->bits
                               : 0;

        use->threads = use->n_counted && use->threads != threads ? 0 : threads;
        use->n_counted++;
    }
}

static void scan_barrier(struct scanner *s)
{
    const struct weir_ptx_inst *inst = s->inst;
    bool is_red = weir_ptx_inst_has(inst, WEIR_PTX_MOD_RED);
    bool is_arrive = weir_ptx_inst_has(inst, WEIR_PTX_MOD_ARRIVE);

    if (weir_ptx_inst_has(inst, WEIR_PTX_MOD_WARP)) {
        note(s, WEIR_PTX_FACT_BARRIER_WARP);
        return;
    }
    if (!is_block_barrier(inst)) {
        note(s, WEIR_PTX_FACT_CLUSTER);
        return;
    }
    note(s, WEIR_PTX_FACT_BARRIER);
    if (is_red) {
        note(s, WEIR_PTX_FACT_BARRIER_RED);
    }
    if (is_arrive) {
        note(s, WEIR_PTX_FACT_BARRIER_ARRIVE);
    }
    if (is_counted(inst)) {
        note(s, WEIR_PTX_FACT_BARRIER_COUNTED);
    } else {
        s->scan->full = s->scan->n_full++ ? s->scan->full : s->at;
        s->scan->has_red |= is_red;
    }
    const struct weir_ptx_operand *number =
        inst->n_operands > is_red ? &inst->operands[is_red] : NULL;

    if (number && number->kind == WEIR_PTX_OPERAND_INT && number->bits < WEIR_PTX_BARRIERS) {
        use_barrier(s, number->bits, is_red, is_arrive);
    } else {
        note(s, WEIR_PTX_FACT_BARRIER_DYNAMIC);
    }
}

/* Calls */

static void add_edge(struct scanner *s, uint32_t callee)
{
    struct weir_ptx_scan *scan = s->scan;

    if (!WEIR_GROW_POWER(scan->edges, scan->n_edges)) {
        s->failed = true;
        return;
    }
    scan->edges[scan->n_edges++] = (struct weir_ptx_edge){.func = callee, .inst = s->at};
}

/* Facts of functions of the device runtime, which are not in the module. */
enum weir_ptx_fact weir_ptx_fact_of_extern(const char *name)
{
    static const struct {
        const char *name;
        enum weir_ptx_fact fact;
    } known[] = {
        {"vprintf", WEIR_PTX_FACT_PRINTF},
        {"malloc", WEIR_PTX_FACT_HEAP},
        {"free", WEIR_PTX_FACT_HEAP},
        {"__assertfail", WEIR_PTX_FACT_ASSERT},
    };

    for (size_t i = 0; i < WEIR_COUNT(known); i++) {
        if (strcmp(known[i].name, name) == 0) {
            return known[i].fact;
        }
    }
    if (strncmp(name, "cudaCG", 6) == 0) {
        return WEIR_PTX_FACT_GRID_SYNC; /* cooperative groups in relocatable code use this */
    }
    if (strncmp(name, "cuda", 4) == 0 || strncmp(name, "__cudaCDP", 9) == 0) {
        return WEIR_PTX_FACT_CHILD_LAUNCH;
    }
    return WEIR_PTX_FACT_UNKNOWN_CALL;
}

static void scan_call(struct scanner *s)
{
    const struct weir_ptx_operand *target = &s->inst->operands[1];

    if (target->kind != WEIR_PTX_OPERAND_FUNC) {
        note(s, WEIR_PTX_FACT_INDIRECT_CALL);
        add_edge(s, s->module->n_funcs);
        return;
    }
    const struct weir_ptx_func *callee = weir_ptx_func_of(target->func);

    if (callee->has_body) {
        add_edge(s, callee->id);
    } else {
        note(s, weir_ptx_fact_of_extern(callee->name));
    }
}

/* Operands */

static void scan_sreg(struct scanner *s, const struct weir_ptx_operand *op)
{
    bool is_grid = op->sreg == WEIR_PTX_SREG_CTAID || op->sreg == WEIR_PTX_SREG_NCTAID;

    if (is_grid) {
        note(s, op->sreg == WEIR_PTX_SREG_CTAID ? WEIR_PTX_FACT_CTAID : WEIR_PTX_FACT_NCTAID);
        if (!s->func->is_entry) {
            note(s, WEIR_PTX_FACT_GRID_IN_FUNC);
        }
        if (op->component == WEIR_PTX_COMPONENT_ALL) {
            note(s, WEIR_PTX_FACT_GRID_VECTOR);
        }
    } else if (op->sreg >= WEIR_PTX_SREG_CLUSTERID &&
               op->sreg <= WEIR_PTX_SREG_IS_EXPLICIT_CLUSTER) {
        note(s, WEIR_PTX_FACT_CLUSTER_SREG);
        if (op->sreg != WEIR_PTX_SREG_IS_EXPLICIT_CLUSTER) {
            note(s, WEIR_PTX_FACT_CLUSTER);
        }
    } else if (op->sreg >= WEIR_PTX_SREG_WARPID && op->sreg <= WEIR_PTX_SREG_NSMID) {
        note(s, WEIR_PTX_FACT_SMID);
    } else if (op->sreg == WEIR_PTX_SREG_GRIDID) {
        note(s, WEIR_PTX_FACT_GRID_ID);
    } else if (op->sreg >= WEIR_PTX_SREG_CLOCK && op->sreg <= WEIR_PTX_SREG_GLOBALTIMER_HI) {
        note(s, WEIR_PTX_FACT_CLOCK);
    } else if (op->sreg == WEIR_PTX_SREG_CURRENT_GRAPH_EXEC) {
        note(s, WEIR_PTX_FACT_CHILD_LAUNCH);
    } else if (op->sreg == WEIR_PTX_SREG_ENVREG1 || op->sreg == WEIR_PTX_SREG_ENVREG2) {
        note(s, WEIR_PTX_FACT_GRID_SYNC); /* cooperative groups keep the grid's barrier there */
    } else if (op->sreg >= WEIR_PTX_SREG_ENVREG0 && op->sreg <= WEIR_PTX_SREG_ENVREG31) {
        note(s, WEIR_PTX_FACT_ENVREG);
    }
}

static void add_shared(struct scanner *s, uint32_t id)
{
    struct weir_ptx_scan *scan = s->scan;

    if (s->stamps[id] == s->func->id + 1) {
        return;
    }
    s->stamps[id] = s->func->id + 1;
    if (!WEIR_GROW_POWER(scan->shared, scan->n_shared)) {
        s->failed = true;
        return;
    }
    scan->shared[scan->n_shared++] = id;
}

static void scan_var(struct scanner *s, const struct weir_ptx_var *var)
{
    if (weir_ptx_type_class((enum weir_ptx_type)var->type) == 'O') {
        note(s, WEIR_PTX_FACT_TEXREF);
    }
    if (var->space == WEIR_PTX_SPACE_SHARED && var->unsized) {
        note(s, WEIR_PTX_FACT_DYNAMIC_SHARED);
    }
    if (var->func || var->is_param) {
        return;
    }
    if (var->space == WEIR_PTX_SPACE_SHARED) {
        add_shared(s, var->id);
    } else {
        note(s, WEIR_PTX_FACT_GLOBAL_VAR);
        if (var->managed) {
            note(s, WEIR_PTX_FACT_MANAGED_VAR);
        }
    }
}

static void scan_table(struct scanner *s, const struct weir_ptx_table *table)
{
    for (uint32_t i = 0; table->kind == WEIR_PTX_TABLE_CALL && i < table->n; i++) {
        s->taken[weir_ptx_func_of(table->funcs[i])->id] = true;
    }
}

static void scan_operand(struct scanner *s, const struct weir_ptx_operand *op)
{
    switch ((enum weir_ptx_operand_kind)op->kind) {
    case WEIR_PTX_OPERAND_SREG:
        scan_sreg(s, op);
        break;
    case WEIR_PTX_OPERAND_VAR:
        scan_var(s, op->var);
        break;
    case WEIR_PTX_OPERAND_MEM:
        if (op->base == WEIR_PTX_BASE_VAR) {
            scan_var(s, op->var);
        }
        break;
    case WEIR_PTX_OPERAND_FUNC:
        s->taken[weir_ptx_func_of(op->func)->id] = true;
        break;
    case WEIR_PTX_OPERAND_TABLE: /* scan_func() visits each table once */
    case WEIR_PTX_OPERAND_SINK:
    case WEIR_PTX_OPERAND_REG:
    case WEIR_PTX_OPERAND_INT:
    case WEIR_PTX_OPERAND_FLOAT:
    case WEIR_PTX_OPERAND_VECTOR:
    case WEIR_PTX_OPERAND_LABEL:
    case WEIR_PTX_OPERAND_LIST:
        break;
    }
    for (uint32_t i = 0; i < op->n_elems; i++) {
        scan_operand(s, &op->elems[i]);
    }
}

/* Opcodes */

static bool is_private(const struct weir_ptx_inst *inst)
{
    return inst->space == WEIR_PTX_SPACE_SHARED || inst->space == WEIR_PTX_SPACE_SHARED_CTA ||
           inst->space == WEIR_PTX_SPACE_LOCAL;
}

static void scan_memory(struct scanner *s)
{
    const struct weir_ptx_inst *inst = s->inst;
    uint32_t flags = weir_ptx_op_info((enum weir_ptx_op)inst->op)->flags;

    if ((flags & WEIR_PTX_OPF_ATOMIC) && !is_private(inst)) {
        note(s, WEIR_PTX_FACT_GLOBAL_ATOMIC);
    }
    if ((inst->op == WEIR_PTX_OP_LD || inst->op == WEIR_PTX_OP_ST) && inst->order &&
        inst->order != WEIR_PTX_MOD_WEAK && !is_private(inst)) {
        note(s, WEIR_PTX_FACT_STRONG_ACCESS);
    }
    if ((inst->op == WEIR_PTX_OP_ST || inst->op == WEIR_PTX_OP_RED) &&
        (inst->flags & (WEIR_PTX_FLAG_ASYNC | WEIR_PTX_FLAG_BULK))) {
        note(s, WEIR_PTX_FACT_BULK);
    }
    if (flags & WEIR_PTX_OPF_TEXTURE) {
        note(s, flags & WEIR_PTX_OPF_STORE ? WEIR_PTX_FACT_SURFACE_STORE : WEIR_PTX_FACT_TEXTURE);
    }
    if (weir_ptx_inst_has(inst, WEIR_PTX_MOD_MULTICAST_CLUSTER) ||
        weir_ptx_inst_has(inst, WEIR_PTX_MOD_MULTICAST_CLUSTER_ALL)) {
        note(s, WEIR_PTX_FACT_CLUSTER);
    }
    s->scan->sees |= weir_ptx_inst_sees(inst);
}

static void scan_copy(struct scanner *s)
{
    if (s->inst->flags & WEIR_PTX_FLAG_BULK) {
        note(s, WEIR_PTX_FACT_BULK);
    } else {
        note(s, WEIR_PTX_FACT_CP_ASYNC);
    }
    if (weir_ptx_inst_has(s->inst, WEIR_PTX_MOD_MBARRIER)) {
        note(s, WEIR_PTX_FACT_MBARRIER);
    }
}

static void scan_exit(struct scanner *s)
{
    s->scan->n_exits += s->inst->op == WEIR_PTX_OP_EXIT || s->func->is_entry;
    if (s->inst->op == WEIR_PTX_OP_EXIT && !s->func->is_entry) {
        note(s, WEIR_PTX_FACT_EXIT_IN_FUNC);
    }
}

/* Find the fact that follows from an opcode alone. */
static enum weir_ptx_fact fact_of_op(uint16_t op)
{
    switch (op) {
    case WEIR_PTX_OP_MBARRIER:
        return WEIR_PTX_FACT_MBARRIER;
    case WEIR_PTX_OP_TENSORMAP:
        return WEIR_PTX_FACT_BULK;
    case WEIR_PTX_OP_WGMMA:
        return WEIR_PTX_FACT_WGMMA;
    case WEIR_PTX_OP_TCGEN05:
        return WEIR_PTX_FACT_TENSOR_MEMORY;
    case WEIR_PTX_OP_SETMAXNREG:
        return WEIR_PTX_FACT_SETMAXNREG;
    case WEIR_PTX_OP_MAPA:
    case WEIR_PTX_OP_GETCTARANK:
        return WEIR_PTX_FACT_CLUSTER;
    case WEIR_PTX_OP_CLUSTERLAUNCHCONTROL:
        return WEIR_PTX_FACT_LAUNCH_CONTROL;
    case WEIR_PTX_OP_GRIDDEPCONTROL:
        return WEIR_PTX_FACT_PDL;
    case WEIR_PTX_OP_ALLOCA:
        return WEIR_PTX_FACT_ALLOCA;
    case WEIR_PTX_OP_TRAP:
        return WEIR_PTX_FACT_TRAP;
    case WEIR_PTX_OP_BRKPT:
        return WEIR_PTX_FACT_BRKPT;
    case WEIR_PTX_OP_NANOSLEEP:
        return WEIR_PTX_FACT_NANOSLEEP;
    default:
        return WEIR_PTX_FACT_COUNT;
    }
}

static void scan_inst(struct scanner *s)
{
    const struct weir_ptx_inst *inst = s->inst;
    enum weir_ptx_fact fact = fact_of_op(inst->op);

    if (fact != WEIR_PTX_FACT_COUNT) {
        note(s, fact);
    }
    switch (inst->op) {
    case WEIR_PTX_OP_BAR:
    case WEIR_PTX_OP_BARRIER:
        scan_barrier(s);
        break;
    case WEIR_PTX_OP_CALL:
        scan_call(s);
        break;
    case WEIR_PTX_OP_CP:
        scan_copy(s);
        break;
    case WEIR_PTX_OP_MULTIMEM:
        if (inst->flags & WEIR_PTX_FLAG_BULK) {
            note(s, WEIR_PTX_FACT_BULK);
        }
        break;
    case WEIR_PTX_OP_RET:
    case WEIR_PTX_OP_EXIT:
        scan_exit(s);
        break;
    default:
        break;
    }
    scan_memory(s);
    for (uint32_t i = 0; i < inst->n_operands; i++) {
        /* The function that a call names is called; its address is not taken. */
        if (inst->op != WEIR_PTX_OP_CALL || i != 1) {
            scan_operand(s, &inst->operands[i]);
        }
    }
}

static void scan_head(struct scanner *s)
{
    const struct weir_ptx_func *func = s->func;
    const struct weir_ptx_perf *perf = &func->perf;

    s->at = WEIR_PTX_NONE;
    if (perf->n_reqnctapercluster || perf->explicitcluster || perf->blocksareclusters ||
        perf->has_maxclusterrank) {
        note(s, WEIR_PTX_FACT_CLUSTER);
    }
    for (uint32_t i = 0; i < func->n_params; i++) {
        if (weir_ptx_type_class((enum weir_ptx_type)func->params[i]->type) == 'O') {
            note(s, WEIR_PTX_FACT_TEXREF);
        }
    }
    for (uint32_t i = 0; i < func->n_vars; i++) {
        const struct weir_ptx_var *var = func->vars[i];

        if (var->space == WEIR_PTX_SPACE_LOCAL) {
            note(s, WEIR_PTX_FACT_LOCAL);
        } else if (var->space == WEIR_PTX_SPACE_SHARED && var->unsized) {
            note(s, WEIR_PTX_FACT_DYNAMIC_SHARED);
        }
    }
}

enum weir_status weir_ptx_scan_func(const struct weir_ptx_module *module,
                                    const struct weir_ptx_func *func, bool *taken, uint32_t *stamps,
                                    struct weir_ptx_scan *ret_scan)
{
    struct scanner s = {
        .module = module, .func = func, .taken = taken, .stamps = stamps, .scan = ret_scan};

    scan_head(&s);
    for (uint32_t i = 0; i < func->n_insts && !s.failed; i++) {
        s.inst = &func->insts[i];
        s.at = i;
        scan_inst(&s);
    }
    for (uint32_t i = 0; i < func->n_tables; i++) {
        scan_table(&s, func->tables[i]);
    }
    return s.failed ? WEIR_ERR_NO_MEMORY : WEIR_OK;
}

void weir_ptx_scan_finish(struct weir_ptx_scan *scan)
{
    free(scan->barriers);
    free(scan->shared);
    free(scan->edges);
    free(scan->seen);
    *scan = (struct weir_ptx_scan){0};
}
