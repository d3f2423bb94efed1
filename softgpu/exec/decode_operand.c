/* Translates IR operands to rows, and variables to addresses: see decode.h. */
#include "base/grow.h"
#include "softgpu/exec/decode.h"
#include "softgpu/exec/half.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *weir_x_decode_alloc(struct weir_x_decoder *x, size_t bytes)
{
    struct weir_x_piece *piece = calloc(1, sizeof *piece + bytes);
    if (!piece) {
        x->no_memory = true;
        return NULL;
    }
    WEIR_PUSH(x->func->pieces, piece);
    return piece->bytes;
}

struct weir_x_inst *weir_x_emit(struct weir_x_decoder *x)
{
    static struct weir_x_inst spare;
    if (!WEIR_GROW(x->func->code, x->func->n_code, x->code_room)) {
        x->no_memory = true;
        return &spare;
    }
    struct weir_x_inst *i = &x->func->code[x->func->n_code++];
    memset(i, 0, sizeof *i);
    i->d = i->a = i->b = i->c = i->e = i->guard = WEIR_X_NO_REF;
    i->line = x->ir ? x->ir->line : 0;
    return i;
}

void weir_x_unsupported(struct weir_x_decoder *x, const char *fmt, ...)
{
    if (x->failed) {
        return;
    }
    x->failed = true;
    va_list args;
    va_start(args, fmt);
    vsnprintf(x->reason, sizeof x->reason, fmt, args);
    va_end(args);
}

weir_x_ref weir_x_const(struct weir_x_decoder *x, uint64_t bits, bool wide)
{
    if (!wide) {
        bits &= UINT32_MAX;
    }
    for (uint32_t c = x->n_consts; c-- > 0;) {
        if (x->consts[c].bits == bits && x->consts[c].wide == wide) {
            return x->consts[c].at | WEIR_X_BASE_CONSTS;
        }
        if (x->n_consts - c > 256) {
            break; /* look back only a little, so that decoding many constants takes linear time */
        }
    }
    if (!WEIR_GROW(x->consts, x->n_consts, x->consts_room)) {
        x->no_memory = true;
        return WEIR_X_BASE_CONSTS;
    }
    struct weir_x_const *k = &x->consts[x->n_consts++];
    *k = (struct weir_x_const){.bits = bits, .at = x->consts_bytes, .wide = wide};
    x->consts_bytes += wide ? 256 : 128;
    return k->at | WEIR_X_BASE_CONSTS;
}

/* A new row of the frame. */
static weir_x_ref temp(struct weir_x_decoder *x, uint32_t bits)
{
    weir_x_ref ref = x->func->frame_bytes;
    x->func->frame_bytes += bits == 1 ? 64 : bits <= 32 ? 128 : bits <= 64 ? 256 : 512;
    return ref;
}

uint32_t weir_x_operand_bits(const struct weir_x_decoder *x, const struct weir_ptx_operand *o,
                             uint32_t otherwise)
{
    return o->kind == WEIR_PTX_OPERAND_REG ? x->func->ir->regs[o->reg].bits : otherwise;
}

static bool is_shared(uint8_t space)
{
    return space == WEIR_PTX_SPACE_SHARED || space == WEIR_PTX_SPACE_SHARED_CTA ||
           space == WEIR_PTX_SPACE_SHARED_CLUSTER;
}

uint32_t weir_x_frame_place(const struct weir_x_decoder *x, const struct weir_ptx_var *var)
{
    const struct weir_ptx_func *f = x->func->ir;
    for (uint32_t p = 0; p < f->n_params; p++) {
        if (f->params[p] == var) {
            return x->param_places[p];
        }
    }
    uint32_t at = WEIR_FIRST(p, f->n_returns, f->returns[p] == var);
    return at < f->n_returns                                ? x->param_places[f->n_params + at]
           : var->id < f->n_vars && f->vars[var->id] == var ? x->places[var->id]
                                                            : UINT32_MAX;
}

static bool is_entry_param(const struct weir_x_decoder *x, const struct weir_ptx_var *var)
{
    return var->is_param && x->func->ir->is_entry && var->func == x->func->ir;
}

static bool in_frame(const struct weir_x_decoder *x, const struct weir_ptx_var *var)
{
    return (var->space == WEIR_PTX_SPACE_LOCAL && var->func) ||
           (var->space == WEIR_PTX_SPACE_PARAM && !is_entry_param(x, var));
}

/* Address constant of a variable, or false when it has none (frame variables). */
static bool var_address(struct weir_x_decoder *x, const struct weir_ptx_var *var,
                        uint64_t *ret_address)
{
    WEIR_FAIL_IF(in_frame(x, var), false);
    if (is_entry_param(x, var)) {
        *ret_address = var->offset_bytes;
        return true;
    }
    const struct weir_exec_module *module = x->kernel->module;
    const struct weir_ptx_var *definition = !var->func ? weir_x_var_resolve(module, var) : var;
    if (is_shared(definition->space)) {
        for (uint32_t s = 0; s < x->kernel->n_shared; s++) {
            if (x->kernel->shared[s].var == definition) {
                *ret_address = x->kernel->shared[s].offset;
                return true;
            }
        }
        weir_x_unsupported(x, "shared variable %s is out of reach", var->name);
        return false;
    }
    /* .global and .const: module.c left the address here. */
    *ret_address = (uint64_t)(uintptr_t)definition->user;
    return true;
}

static uint64_t func_address(struct weir_x_decoder *x, struct weir_ptx_func *func)
{
    const struct weir_ptx_func *definition = weir_x_func_resolve(x->kernel->module, func);
    uint64_t id = (uint64_t)(uintptr_t)definition->user;
    if (id == 0) {
        weir_x_unsupported(x, "address of %s", func->name);
    }
    return WEIR_X_FUNC_TAG | id * 16;
}

/* Convert an immediate to the bits that an instruction of this type expects. */
static uint64_t immediate(const struct weir_ptx_operand *o, uint8_t type, uint32_t bits)
{
    bool is_float = weir_ptx_type_class(type) == 'F';
    if (o->kind == WEIR_PTX_OPERAND_INT) {
        return o->bits;
    }
    bool single = o->float_bits == 32;
    if (single && bits <= 32 && type != WEIR_PTX_TYPE_F16 && type != WEIR_PTX_TYPE_BF16) {
        return (uint32_t)o->bits;
    }
    double d = single ? (double)weir_x_as_f32((uint32_t)o->bits) : weir_x_as_f64(o->bits);
    if (type == WEIR_PTX_TYPE_F16) {
        return weir_x_half_from_double(d);
    }
    if (type == WEIR_PTX_TYPE_BF16) {
        return weir_x_bf16_from_double(d);
    }
    return is_float && bits <= 32 ? weir_x_bits_f32((float)d) : weir_x_bits_f64(d);
}

/* Clocks and timers change, so emit an instruction that reads them. */
static weir_x_ref clock_source(struct weir_x_decoder *x, const struct weir_ptx_operand *o,
                               uint32_t bits)
{
    struct weir_x_inst *i = weir_x_emit(x);
    i->fn = weir_x_exec_sreg;
    i->sub = (uint8_t)o->sreg;
    i->d = temp(x, bits);
    i->flags = bits > 32 ? WEIR_X_F_WIDE : 0;
    return i->d;
}

/* A 32-bit row as a 64-bit one. */
static weir_x_ref widened(struct weir_x_decoder *x, weir_x_ref ref)
{
    struct weir_x_inst *i = weir_x_emit(x);
    struct weir_ptx_inst none = {.n_operands = 2};
    i->type = WEIR_PTX_TYPE_U64;
    i->type2 = WEIR_PTX_TYPE_U32;
    i->sub = 2;
    i->a = ref;
    i->d = temp(x, 64);
    i->fn = weir_x_find_cvt(&none, i);
    return i->d;
}

/* Rows of the special registers that do not change; those with components are the rows of .x. All
 * other %envreg and %pm registers read as 0. */
static const uint8_t special_rows[WEIR_PTX_SREG_COUNT] = {
    [WEIR_PTX_SREG_TID] = WEIR_X_TID_X,
    [WEIR_PTX_SREG_NTID] = WEIR_X_NTID_X,
    [WEIR_PTX_SREG_CTAID] = WEIR_X_CTAID_X,
    [WEIR_PTX_SREG_NCTAID] = WEIR_X_NCTAID_X,
    [WEIR_PTX_SREG_CLUSTERID] = WEIR_X_CLUSTERID_X,
    [WEIR_PTX_SREG_NCLUSTERID] = WEIR_X_NCLUSTERID_X,
    [WEIR_PTX_SREG_CLUSTER_CTAID] = WEIR_X_CLUSTER_CTAID_X,
    [WEIR_PTX_SREG_CLUSTER_NCTAID] = WEIR_X_CLUSTER_NCTAID_X,
    [WEIR_PTX_SREG_CLUSTER_CTARANK] = WEIR_X_CLUSTER_RANK,
    [WEIR_PTX_SREG_CLUSTER_NCTARANK] = WEIR_X_CLUSTER_SIZE,
    [WEIR_PTX_SREG_LANEID] = WEIR_X_LANEID,
    [WEIR_PTX_SREG_WARPID] = WEIR_X_WARPID,
    [WEIR_PTX_SREG_NWARPID] = WEIR_X_NWARPID,
    [WEIR_PTX_SREG_SMID] = WEIR_X_SMID,
    [WEIR_PTX_SREG_NSMID] = WEIR_X_NSMID,
    [WEIR_PTX_SREG_GRIDID] = WEIR_X_GRIDID,
    [WEIR_PTX_SREG_LANEMASK_EQ] = WEIR_X_MASK_EQ,
    [WEIR_PTX_SREG_LANEMASK_LE] = WEIR_X_MASK_LE,
    [WEIR_PTX_SREG_LANEMASK_LT] = WEIR_X_MASK_LT,
    [WEIR_PTX_SREG_LANEMASK_GE] = WEIR_X_MASK_GE,
    [WEIR_PTX_SREG_LANEMASK_GT] = WEIR_X_MASK_GT,
    [WEIR_PTX_SREG_ENVREG1] = WEIR_X_ENVREG1,
    [WEIR_PTX_SREG_ENVREG2] = WEIR_X_ENVREG2,
    [WEIR_PTX_SREG_DYNAMIC_SMEM_SIZE] = WEIR_X_DYNAMIC_SMEM,
    [WEIR_PTX_SREG_TOTAL_SMEM_SIZE] = WEIR_X_TOTAL_SMEM,
    [WEIR_PTX_SREG_AGGR_SMEM_SIZE] = WEIR_X_TOTAL_SMEM,
};

static weir_x_ref special(struct weir_x_decoder *x, const struct weir_ptx_operand *o, uint32_t bits)
{
    uint32_t row = special_rows[o->sreg];
    if (o->component == 3) {
        row = o->sreg == WEIR_PTX_SREG_TID || o->sreg == WEIR_PTX_SREG_CTAID ||
                      o->sreg == WEIR_PTX_SREG_CLUSTERID || o->sreg == WEIR_PTX_SREG_CLUSTER_CTAID
                  ? WEIR_X_ZERO
                  : WEIR_X_ONE;
        return row * 128 | WEIR_X_BASE_SPECIALS;
    }
    if (o->sreg >= WEIR_PTX_SREG_CLOCK && o->sreg <= WEIR_PTX_SREG_GLOBALTIMER_HI) {
        return clock_source(x, o, bits);
    }
    row += o->component < 3 ? o->component : 0;
    weir_x_ref ref = row * 128 | WEIR_X_BASE_SPECIALS;
    return bits > 32 && row != WEIR_X_GRIDID ? widened(x, ref) : ref;
}

static weir_x_ref variable(struct weir_x_decoder *x, const struct weir_ptx_operand *o, bool wide)
{
    uint64_t address;
    if (var_address(x, o->var, &address)) {
        return weir_x_const(x, address + (uint64_t)o->offset, wide);
    }
    uint32_t place = weir_x_frame_place(x, o->var);
    if (place == UINT32_MAX) {
        weir_x_unsupported(x, "address of %s", o->var->name);
        return weir_x_const(x, 0, wide);
    }
    /* A 32-bit destination takes the low half of each lane's 64-bit cell: convert. */
    struct weir_x_inst *i = weir_x_emit(x);
    i->fn = weir_x_exec_frame_address;
    i->imm = place + (uint64_t)o->offset;
    i->d = temp(x, 64);
    weir_x_ref ref = i->d;
    if (!wide) {
        struct weir_ptx_inst none = {.n_operands = 2};
        i = weir_x_emit(x);
        i->type = WEIR_PTX_TYPE_U32;
        i->type2 = WEIR_PTX_TYPE_U64;
        i->sub = 1;
        i->a = ref;
        i->d = temp(x, 32);
        i->fn = weir_x_find_cvt(&none, i);
        ref = i->d;
    }
    return ref;
}

weir_x_ref weir_x_source(struct weir_x_decoder *x, const struct weir_ptx_operand *o, uint32_t bits,
                         uint8_t type)
{
    switch ((enum weir_ptx_operand_kind)o->kind) {
    case WEIR_PTX_OPERAND_REG:
        if (o->selector != 0 || o->minus) {
            weir_x_unsupported(x, "selector of a video instruction");
        }
        return x->regs[o->reg];
    case WEIR_PTX_OPERAND_INT:
    case WEIR_PTX_OPERAND_FLOAT:
        return weir_x_const(x, immediate(o, type, bits), bits > 32);
    case WEIR_PTX_OPERAND_SREG:
        return special(x, o, bits);
    case WEIR_PTX_OPERAND_VAR:
        return variable(x, o, bits > 32);
    case WEIR_PTX_OPERAND_FUNC:
        return weir_x_const(x, func_address(x, o->func), bits > 32);
    case WEIR_PTX_OPERAND_SINK:
    case WEIR_PTX_OPERAND_MEM:
    case WEIR_PTX_OPERAND_VECTOR:
    case WEIR_PTX_OPERAND_LABEL:
    case WEIR_PTX_OPERAND_LIST:
    case WEIR_PTX_OPERAND_TABLE:
        break;
    }
    weir_x_unsupported(x, "operand of a kind that does not belong here");
    return weir_x_const(x, 0, bits > 32);
}

weir_x_ref weir_x_pred_source(struct weir_x_decoder *x, const struct weir_ptx_operand *o)
{
    if (o->kind == WEIR_PTX_OPERAND_INT) {
        return weir_x_const(x, o->bits != 0 ? UINT32_MAX : 0, false);
    }
    if (o->kind == WEIR_PTX_OPERAND_SREG && o->sreg == WEIR_PTX_SREG_IS_EXPLICIT_CLUSTER) {
        return WEIR_X_CLUSTER_EXPLICIT * 128 | WEIR_X_BASE_SPECIALS;
    }
    if (o->kind != WEIR_PTX_OPERAND_REG) {
        weir_x_unsupported(x, "predicate operand");
        return weir_x_const(x, 0, false);
    }
    weir_x_ref ref = x->regs[o->reg];
    if (o->negated) {
        struct weir_x_inst *i = weir_x_emit(x);
        i->fn = weir_x_exec_not_pred;
        i->a = ref;
        i->d = temp(x, 1);
        ref = i->d;
    }
    return ref;
}

weir_x_ref weir_x_dest(struct weir_x_decoder *x, const struct weir_ptx_operand *o)
{
    if (o->kind == WEIR_PTX_OPERAND_REG) {
        return x->regs[o->reg];
    }
    if (o->kind != WEIR_PTX_OPERAND_SINK) {
        weir_x_unsupported(x, "destination operand");
        return WEIR_X_NO_REF;
    }
    if (!x->has_sink) {
        x->sink = temp(x, 128);
        x->has_sink = true;
    }
    return x->sink;
}

struct weir_x_inst *weir_x_emit_op(struct weir_x_decoder *x, weir_x_fn fn, const uint8_t types[4])
{
    const struct weir_ptx_operand *o = x->ir->operands;
    weir_x_ref refs[4] = {WEIR_X_NO_REF, WEIR_X_NO_REF, WEIR_X_NO_REF, WEIR_X_NO_REF};
    for (uint32_t k = 0; k < 4 && types[k] != WEIR_PTX_TYPE_NONE; k++) {
        refs[k] = types[k] == WEIR_PTX_TYPE_PRED
                      ? weir_x_pred_source(x, &o[k + 1])
                      : weir_x_source(x, &o[k + 1], weir_ptx_type_bits(types[k]), types[k]);
    }
    struct weir_x_inst *i = weir_x_emit(x);
    i->fn = fn;
    i->d = weir_x_dest(x, &o[0]);
    i->a = refs[0];
    i->b = refs[1];
    i->c = refs[2];
    i->e = refs[3];
    return i;
}

struct weir_x_inst *weir_x_emit_members(struct weir_x_decoder *x, weir_x_fn fn, uint8_t type)
{
    uint32_t at = type == WEIR_PTX_TYPE_NONE ? 1 : 2;
    weir_x_ref members = x->ir->n_operands > at
                             ? weir_x_source(x, &x->ir->operands[at], 32, WEIR_PTX_TYPE_B32)
                             : weir_x_const(x, 0, false);
    struct weir_x_inst *i = weir_x_emit_op(x, fn, (uint8_t[4]){type});
    i->e = members;
    return i;
}

static uint8_t access_space(const struct weir_x_decoder *x, uint8_t space)
{
    switch (space) {
    case WEIR_PTX_SPACE_GLOBAL:
    case WEIR_PTX_SPACE_CONST:
        return WEIR_X_GLOBAL;
    case WEIR_PTX_SPACE_SHARED:
    case WEIR_PTX_SPACE_SHARED_CTA:
        return WEIR_X_SHARED;
    case WEIR_PTX_SPACE_SHARED_CLUSTER:
        return WEIR_X_CLUSTER;
    case WEIR_PTX_SPACE_LOCAL:
        return WEIR_X_LOCAL;
    case WEIR_PTX_SPACE_PARAM:
    case WEIR_PTX_SPACE_PARAM_ENTRY:
    case WEIR_PTX_SPACE_PARAM_FUNC:
        return x->func->ir->is_entry ? WEIR_X_PARAM : WEIR_X_LOCAL;
    default:
        return WEIR_X_GENERIC;
    }
}

static void set_offset(struct weir_x_inst *out, int64_t offset, bool in_e)
{
    if (in_e) {
        out->e = (uint32_t)offset;
    } else {
        out->imm = (uint64_t)offset;
    }
}

bool weir_x_memory(struct weir_x_decoder *x, struct weir_x_inst *out,
                   const struct weir_ptx_operand *o, uint8_t space, bool offset_in_e)
{
    out->space = access_space(x, space);
    WEIR_FAIL_IF(o->kind != WEIR_PTX_OPERAND_MEM || o->n_elems != 0, false);
    if (o->base == WEIR_PTX_BASE_INT) {
        out->a = weir_x_const(x, o->bits, true);
        out->flags |= WEIR_X_F_ADDR64;
        set_offset(out, 0, offset_in_e);
        return true;
    }
    set_offset(out, o->offset, offset_in_e);
    if (o->base == WEIR_PTX_BASE_REG) {
        out->a = x->regs[o->reg];
        out->flags |= x->func->ir->regs[o->reg].bits > 32 ? WEIR_X_F_ADDR64 : 0;
        return true;
    }
    uint64_t address;
    out->flags |= WEIR_X_F_ADDR64;
    if (var_address(x, o->var, &address)) {
        out->a = weir_x_const(x, address, true);
        if (out->space == WEIR_X_GENERIC && is_shared(o->var->space)) {
            out->space = WEIR_X_SHARED;
        }
        return true;
    }
    uint32_t place = weir_x_frame_place(x, o->var);
    out->space = WEIR_X_FRAME;
    out->a = weir_x_const(x, place, true);
    return place != UINT32_MAX;
}

static bool add_shared(struct weir_exec_kernel *kernel, const struct weir_ptx_var *var)
{
    if (WEIR_ANY(s, kernel->n_shared, kernel->shared[s].var == var)) {
        return true;
    }
    if (kernel->n_shared == WEIR_X_MAX_SHARED_VARS) {
        return true; /* the access itself will fault */
    }
    WEIR_FAIL_IF(!WEIR_GROW_POWER(kernel->shared, kernel->n_shared), false);
    kernel->shared[kernel->n_shared++].var = var;
    return true;
}

struct scan {
    const struct weir_ptx_func **seen;
    uint32_t n_seen, room;
    bool indirect;
};

static bool scan_add(struct scan *scan, const struct weir_ptx_func *func)
{
    if (WEIR_ANY(k, scan->n_seen, scan->seen[k] == func)) {
        return true;
    }
    if (scan->n_seen == WEIR_X_MAX_FUNCS) {
        return true; /* too large: the kernel will be refused */
    }
    WEIR_FAIL_IF(!WEIR_GROW(scan->seen, scan->n_seen, scan->room), false);
    scan->seen[scan->n_seen++] = func;
    return true;
}

static bool scan_inst(struct weir_exec_kernel *kernel, struct scan *scan,
                      const struct weir_ptx_inst *inst)
{
    for (uint32_t o = 0; o < inst->n_operands; o++) {
        const struct weir_ptx_operand *operand = &inst->operands[o];
        bool is_var = operand->kind == WEIR_PTX_OPERAND_VAR ||
                      (operand->kind == WEIR_PTX_OPERAND_MEM && operand->base == WEIR_PTX_BASE_VAR);
        if (is_var && is_shared(operand->var->space)) {
            const struct weir_ptx_var *var = !operand->var->func
                                                 ? weir_x_var_resolve(kernel->module, operand->var)
                                                 : operand->var;
            WEIR_FAIL_IF(!add_shared(kernel, var), false);
        }
    }
    if (inst->op == WEIR_PTX_OP_CALL) {
        const struct weir_ptx_operand *target = &inst->operands[1];
        if (target->kind == WEIR_PTX_OPERAND_FUNC) {
            return scan_add(scan, weir_x_func_resolve(kernel->module, target->func));
        }
        scan->indirect = true;
    }
    return true;
}

static bool scan_all(struct weir_exec_kernel *kernel, struct scan *scan)
{
    bool pointed = false;
    for (uint32_t k = 0; k < scan->n_seen; k++) {
        const struct weir_ptx_func *func = scan->seen[k];
        for (uint32_t n = 0; n < func->n_insts; n++) {
            WEIR_FAIL_IF(!scan_inst(kernel, scan, &func->insts[n]), false);
        }
        const struct weir_exec_module *module = kernel->module;
        for (uint32_t f = 0; scan->indirect && !pointed && f < module->n_functions; f++) {
            WEIR_FAIL_IF(module->address_taken[f] && !scan_add(scan, module->functions[f]), false);
        }
        pointed = pointed || scan->indirect;
    }
    return true;
}

/* Place static variables in order of appearance, then all dynamic ones at the same address. */
bool weir_x_place_shared(struct weir_exec_kernel *kernel)
{
    struct scan scan = {0};
    bool ok = scan_add(&scan, kernel->ir) && scan_all(kernel, &scan);
    free(scan.seen);
    uint32_t at = 0;
    uint32_t dynamic_align = 16;
    for (uint32_t s = 0; s < kernel->n_shared; s++) {
        const struct weir_ptx_var *var = kernel->shared[s].var;
        uint32_t align = var->align == 0 ? 1 : var->align;
        if (var->unsized) {
            dynamic_align = WEIR_MAX(align, dynamic_align);
            continue;
        }
        kernel->shared[s].offset = weir_x_align(at, align);
        at = weir_x_align(kernel->shared[s].offset + var->size_bytes, 1);
    }
    kernel->static_shared_bytes = at;
    at = weir_x_align(at, dynamic_align);
    for (uint32_t s = 0; s < kernel->n_shared; s++) {
        if (kernel->shared[s].var->unsized) {
            kernel->shared[s].offset = at;
            kernel->dynamic_at = at;
        }
    }
    return ok;
}
