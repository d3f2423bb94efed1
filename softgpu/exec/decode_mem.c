/* Decoding of memory instructions and calls: see decode.h. */
#include "base/grow.h"
#include "softgpu/exec/decode.h"

#include <stdlib.h>
#include <string.h>

static bool wide_operand(const struct weir_x_decoder *x, const struct weir_ptx_operand *o,
                         uint32_t bits)
{
    return weir_x_operand_bits(x, o, bits) > 32;
}

static uint32_t order_flags(const struct weir_ptx_inst *ir)
{
    return ir->order == WEIR_PTX_MOD_ACQUIRE   ? WEIR_X_F_ACQUIRE
           : ir->order == WEIR_PTX_MOD_RELEASE ? WEIR_X_F_RELEASE
                                               : 0;
}

/* Decode the data operand of ld (dest) or st: one register or a vector. Sets vec, refs, d, WIDE. */
static bool data_operand(struct weir_x_decoder *x, struct weir_x_inst *out,
                         const struct weir_ptx_operand *o, uint8_t type, bool dest)
{
    uint32_t bits = out->bytes * 8u;
    out->vec = 1;
    if (o->kind != WEIR_PTX_OPERAND_VECTOR) {
        out->d = dest ? weir_x_dest(x, o) : weir_x_source(x, o, bits, type);
        out->flags |= wide_operand(x, o, bits) ? WEIR_X_F_WIDE : 0;
        return true;
    }
    weir_x_ref *refs = weir_x_decode_alloc(x, o->n_elems * sizeof *refs);
    uint32_t n = o->n_elems;
    WEIR_FAIL_IF(!refs || (n != 1 && n != 2 && n != 4 && n != 8), false);
    for (uint32_t e = 0; e < o->n_elems; e++) {
        const struct weir_ptx_operand *elem = &o->elems[e];
        bool sink = elem->kind == WEIR_PTX_OPERAND_SINK;
        refs[e] = sink   ? WEIR_X_NO_REF
                  : dest ? weir_x_dest(x, elem)
                         : weir_x_source(x, elem, bits, type);
        if (!sink && wide_operand(x, elem, bits)) {
            out->flags |= WEIR_X_F_WIDE;
        }
    }
    out->vec = (uint8_t)o->n_elems;
    out->refs = refs;
    return true;
}

static weir_x_fn pick_load(const struct weir_x_inst *i)
{
    bool plain = i->vec == 1 && (i->flags & (WEIR_X_F_ACQUIRE | WEIR_X_F_SIGNED)) == 0 &&
                 i->d != WEIR_X_NO_REF;
    bool wide = (i->flags & WEIR_X_F_WIDE) != 0;
    if (plain && i->bytes == 4 && !wide) {
        return weir_x_exec_ld_global32;
    }
    return plain && i->bytes == 8 && wide ? weir_x_exec_ld_global64 : weir_x_exec_ld;
}

static bool decode_ld(struct weir_x_decoder *x)
{
    const struct weir_ptx_inst *ir = x->ir;
    struct weir_x_inst out = {.d = WEIR_X_NO_REF, .a = WEIR_X_NO_REF};
    out.bytes = (uint8_t)weir_ptx_type_bytes(ir->types[0]);
    out.flags = order_flags(ir);
    out.flags |= weir_ptx_type_class(ir->types[0]) == 'S' ? WEIR_X_F_SIGNED : 0;
    if (!weir_x_memory(x, &out, &ir->operands[1], ir->space, false) ||
        !data_operand(x, &out, &ir->operands[0], ir->types[0], true)) {
        return false;
    }
    const struct weir_ptx_operand *mem = &ir->operands[1];
    struct weir_x_inst *i = weir_x_emit(x);
    uint32_t line = i->line;
    uint8_t vec = out.vec;
    out.fn = pick_load(&out);
    if (out.space == WEIR_X_PARAM && mem->base == WEIR_PTX_BASE_VAR && out.bytes <= 8) {
        out.imm += mem->var->offset_bytes;
        uint64_t end = out.imm + (uint64_t)out.bytes * vec;
        WEIR_FAIL_IF(out.imm > end || end > x->func->ir->params_size_bytes, false);
        out.fn = weir_x_exec_ld_param;
    }
    out.b = out.c = out.e = out.guard = WEIR_X_NO_REF;
    *i = out;
    i->line = line;
    return true;
}

static bool decode_st(struct weir_x_decoder *x)
{
    const struct weir_ptx_inst *ir = x->ir;
    struct weir_x_inst out = {.d = WEIR_X_NO_REF, .a = WEIR_X_NO_REF};
    out.bytes = (uint8_t)weir_ptx_type_bytes(ir->types[0]);
    out.flags = order_flags(ir);
    if (!weir_x_memory(x, &out, &ir->operands[0], ir->space, false) ||
        !data_operand(x, &out, &ir->operands[1], ir->types[0], false)) {
        return false;
    }
    struct weir_x_inst *i = weir_x_emit(x);
    bool plain =
        out.vec == 1 && out.bytes == 4 && (out.flags & (WEIR_X_F_RELEASE | WEIR_X_F_WIDE)) == 0;
    out.fn = plain ? weir_x_exec_st_global32 : weir_x_exec_st;
    out.b = out.c = out.e = out.guard = WEIR_X_NO_REF;
    out.line = i->line;
    *i = out;
    return true;
}

/* atom has a destination first, red has not. */
static bool decode_atom(struct weir_x_decoder *x)
{
    const struct weir_ptx_inst *ir = x->ir;
    bool red = ir->op == WEIR_PTX_OP_RED;
    const struct weir_ptx_operand *o = &ir->operands[red ? 0 : 1];
    uint8_t type = ir->types[0];
    struct weir_x_inst out = {0};
    out.d = out.a = out.b = out.c = out.e = out.guard = WEIR_X_NO_REF;
    out.bytes = (uint8_t)weir_ptx_type_bytes(type);
    out.vec = 1;
    uint32_t bits = out.bytes * 8u;
    WEIR_FAIL_IF(!weir_x_memory(x, &out, &o[0], ir->space, true), false);
    bool cas = ir->action == WEIR_PTX_MOD_CAS;
    bool vector = o[1].kind == WEIR_PTX_OPERAND_VECTOR;
    if (ir->n_operands < (red ? 2u : 3u) + cas || (bits == 128 && (vector || red)) ||
        (vector && cas)) {
        return false;
    }
    if (vector) {
        uint32_t n = o[1].n_elems;
        const struct weir_ptx_operand *to = &ir->operands[0];
        weir_x_ref *refs = weir_x_decode_alloc(x, 2 * n * sizeof *refs);
        if (!refs || (n != 2 && n != 4 && n != 8) ||
            (!red && (to->kind != WEIR_PTX_OPERAND_VECTOR || to->n_elems != n))) {
            return false;
        }
        for (uint32_t e = 0; e < n; e++) {
            refs[e] = red ? WEIR_X_NO_REF : weir_x_dest(x, &ir->operands[0].elems[e]);
            refs[n + e] = weir_x_source(x, &o[1].elems[e], bits, type);
        }
        out.refs = refs;
        out.vec = (uint8_t)n;
    } else {
        out.d = red ? WEIR_X_NO_REF : weir_x_dest(x, &ir->operands[0]);
        out.b = weir_x_source(x, &o[1], bits, type);
    }
    if (cas) { /* operands: d, [a], compare, value */
        out.c = out.b;
        out.b = weir_x_source(x, &o[2], bits, type);
    }
    out.flags |= bits > 32 ? WEIR_X_F_WIDE : 0;
    if (bits == 128) {
        out.fn = weir_x_exec_atom128;
        out.sub = cas;
    } else {
        out.fn = weir_x_exec_atom;
        out.rmw = weir_x_find_rmw(ir);
        WEIR_FAIL_IF(!out.rmw, false);
    }
    struct weir_x_inst *i = weir_x_emit(x);
    out.line = i->line;
    *i = out;
    return true;
}

/* Decode st.async and red.async. They execute at once, and then an mbarrier counts their bytes. */
static bool decode_async(struct weir_x_decoder *x)
{
    const struct weir_ptx_inst *ir = x->ir;
    const struct weir_ptx_operand *value = &ir->operands[1];
    bool vector = value->kind == WEIR_PTX_OPERAND_VECTOR;
    uint32_t n = vector ? value->n_elems : 1;
    uint32_t bytes = weir_ptx_type_bytes(ir->types[0]);
    struct weir_x_inst to = {0};
    struct weir_x_inst gate = {0};
    weir_x_ref *refs = weir_x_decode_alloc(x, n * sizeof *refs);
    if (!refs || ir->n_operands < 3 || (n != 1 && n != 2 && n != 4) || (bytes != 4 && bytes != 8) ||
        !weir_x_memory(x, &to, &ir->operands[0], WEIR_PTX_SPACE_SHARED_CLUSTER, false) ||
        !weir_x_memory(x, &gate, &ir->operands[2], WEIR_PTX_SPACE_SHARED_CLUSTER, true) ||
        ((to.flags ^ gate.flags) & WEIR_X_F_ADDR64) != 0) {
        return false;
    }
    for (uint32_t e = 0; e < n; e++) {
        refs[e] = weir_x_source(x, vector ? &value->elems[e] : value, bytes * 8, ir->types[0]);
    }
    weir_x_rmw_fn rmw = ir->op == WEIR_PTX_OP_RED ? weir_x_find_rmw(ir) : NULL;
    struct weir_x_inst *i = weir_x_emit(x);
    i->fn = weir_x_exec_store_async;
    i->a = to.a;
    i->imm2 = to.imm;
    i->flags = to.flags | (bytes == 8 ? WEIR_X_F_WIDE : 0);
    i->b = gate.a;
    i->e = gate.e;
    i->space = to.space;
    i->bytes = (uint8_t)bytes;
    i->vec = (uint8_t)n;
    i->refs = refs;
    i->rmw = rmw;
    return ir->op != WEIR_PTX_OP_RED || (rmw && n == 1);
}

static uint8_t window_space(uint8_t space)
{
    switch (space) {
    case WEIR_PTX_SPACE_SHARED:
    case WEIR_PTX_SPACE_SHARED_CTA:
        return WEIR_X_SHARED;
    case WEIR_PTX_SPACE_SHARED_CLUSTER:
        return WEIR_X_CLUSTER;
    case WEIR_PTX_SPACE_CONST:
        return WEIR_X_CONST;
    case WEIR_PTX_SPACE_LOCAL:
        return WEIR_X_LOCAL;
    case WEIR_PTX_SPACE_PARAM:
    case WEIR_PTX_SPACE_PARAM_ENTRY:
        return WEIR_X_PARAM;
    default:
        return WEIR_X_GLOBAL;
    }
}

static bool decode_cvta(struct weir_x_decoder *x)
{
    const struct weir_ptx_inst *ir = x->ir;
    uint8_t space = window_space(ir->space);
    WEIR_FAIL_IF(weir_ptx_type_bits(ir->types[0]) != 64, false);
    if (space == WEIR_X_PARAM && !x->func->ir->is_entry) {
        space = WEIR_X_LOCAL;
    }
    weir_x_fn fn = space == WEIR_X_GLOBAL || space == WEIR_X_CONST ? weir_x_exec_mov64
                   : (ir->flags & WEIR_PTX_FLAG_TO) != 0           ? weir_x_exec_cvta_to
                                                                   : weir_x_exec_cvta_from;
    weir_x_emit_op(x, fn, (uint8_t[4]){ir->types[0]})->space = space;
    return true;
}

static bool decode_isspacep(struct weir_x_decoder *x)
{
    weir_x_emit_op(x, weir_x_exec_isspacep, (uint8_t[4]){WEIR_PTX_TYPE_U64})->space =
        window_space(x->ir->space);
    return true;
}

/* cp.async copies at once, so waits for its groups do nothing. */
static bool decode_cp(struct weir_x_decoder *x)
{
    const struct weir_ptx_inst *ir = x->ir;
    if (weir_ptx_inst_has(ir, WEIR_PTX_MOD_BULK)) {
        bool nothing = weir_ptx_inst_has(ir, WEIR_PTX_MOD_COMMIT_GROUP) ||
                       weir_ptx_inst_has(ir, WEIR_PTX_MOD_WAIT_GROUP) ||
                       weir_ptx_inst_has(ir, WEIR_PTX_MOD_PREFETCH);
        if (!nothing) {
            return weir_x_decode_bulk(x);
        }
        weir_x_emit(x)->fn = weir_x_exec_nop;
        return true;
    }
    if (weir_ptx_inst_has(ir, WEIR_PTX_MOD_COMMIT_GROUP) ||
        weir_ptx_inst_has(ir, WEIR_PTX_MOD_WAIT_GROUP) ||
        weir_ptx_inst_has(ir, WEIR_PTX_MOD_WAIT_ALL)) {
        weir_x_emit(x)->fn = weir_x_exec_nop;
        return true;
    }
    if (weir_ptx_inst_has(ir, WEIR_PTX_MOD_MBARRIER)) {
        return weir_x_decode_copy_arrive(x);
    }
    WEIR_FAIL_IF(ir->n_operands < 3 || ir->operands[2].kind != WEIR_PTX_OPERAND_INT, false);
    struct weir_x_inst to = {0};
    struct weir_x_inst from = {0};
    if (!weir_x_memory(x, &to, &ir->operands[0], WEIR_PTX_SPACE_SHARED, false) ||
        !weir_x_memory(x, &from, &ir->operands[1], WEIR_PTX_SPACE_GLOBAL, true)) {
        return false;
    }
    weir_x_ref size = WEIR_X_NO_REF;
    weir_x_ref ignore = WEIR_X_NO_REF;
    bool hint = weir_ptx_inst_has(ir, WEIR_PTX_MOD_L2_CACHE_HINT);
    uint32_t extra = ir->n_operands - (hint ? 1u : 0);
    if (extra > 3) {
        const struct weir_ptx_operand *o = &ir->operands[3];
        if (o->kind == WEIR_PTX_OPERAND_REG && x->func->ir->regs[o->reg].bits == 1) {
            ignore = weir_x_pred_source(x, o);
        } else {
            size = weir_x_source(x, o, 32, WEIR_PTX_TYPE_U32);
        }
    }
    struct weir_x_inst *i = weir_x_emit(x);
    i->fn = weir_x_exec_cp_async;
    i->a = to.a;
    i->imm = to.imm;
    i->flags = to.flags;
    i->b = from.a;
    i->e = from.e;
    i->space = from.space;
    i->c = size;
    i->d = ignore;
    i->sub = ignore != WEIR_X_NO_REF;
    i->bytes = (uint8_t)ir->operands[2].bits;
    uint64_t bytes = ir->operands[2].bits;
    WEIR_FAIL_IF(bytes != 4 && bytes != 8 && bytes != 16, false);
    return (from.flags & WEIR_X_F_ADDR64) != 0;
}

bool weir_x_decode_memory_op(struct weir_x_decoder *x)
{
    switch (x->ir->op) {
    case WEIR_PTX_OP_LD:
    case WEIR_PTX_OP_LDU:
        return decode_ld(x);
    case WEIR_PTX_OP_ST:
        return (x->ir->flags & WEIR_PTX_FLAG_ASYNC) != 0 ? decode_async(x) : decode_st(x);
    case WEIR_PTX_OP_ATOM:
        return decode_atom(x);
    case WEIR_PTX_OP_RED:
        return (x->ir->flags & WEIR_PTX_FLAG_ASYNC) != 0 ? decode_async(x) : decode_atom(x);
    case WEIR_PTX_OP_CVTA:
        return decode_cvta(x);
    case WEIR_PTX_OP_ISSPACEP:
        return decode_isspacep(x);
    case WEIR_PTX_OP_CP:
        return decode_cp(x);
    default:
        return false;
    }
}

static weir_x_fn builtin_handler(enum weir_x_builtin builtin)
{
    switch (builtin) {
    case WEIR_X_BUILTIN_VPRINTF:
        return weir_x_exec_vprintf;
    case WEIR_X_BUILTIN_ASSERT:
        return weir_x_exec_assertfail;
    case WEIR_X_BUILTIN_MALLOC:
        return weir_x_exec_malloc;
    case WEIR_X_BUILTIN_FREE:
        return weir_x_exec_free;
    case WEIR_X_BUILTIN_NONE:
        break;
    }
    return NULL;
}

/* Find an argument or result, which must lie inside one of the caller's .param variables. */
static bool frame_argument(const struct weir_x_decoder *x, const struct weir_ptx_operand *o,
                           uint64_t bytes, uint32_t *ret_place)
{
    const struct weir_ptx_var *var = o->var;
    uint32_t place = weir_x_frame_place(x, var);
    bool ours = (!var->is_param || !x->func->ir->is_entry) &&
                (var->space == WEIR_PTX_SPACE_PARAM || var->space == WEIR_PTX_SPACE_LOCAL);
    if (!ours || place == UINT32_MAX || o->offset < 0 || (uint64_t)o->offset > var->size_bytes ||
        bytes > var->size_bytes - (uint64_t)o->offset) {
        return false;
    }
    *ret_place = place + (uint32_t)o->offset;
    return true;
}

/* Decode one list of arguments or results: the caller's left, the callee's right. */
static bool decode_args(struct weir_x_decoder *x, const struct weir_ptx_operand *list,
                        struct weir_ptx_var **vars, uint32_t n_vars, const uint32_t *places,
                        bool results, struct weir_x_arg *args)
{
    WEIR_FAIL_IF(list->n_elems != n_vars, false);
    for (uint32_t k = 0; k < n_vars; k++) {
        const struct weir_ptx_operand *o = &list->elems[k];
        bool theirs_reg = vars[k]->reg != WEIR_PTX_NONE;
        bool ours_reg = o->kind != WEIR_PTX_OPERAND_VAR;
        struct weir_x_arg arg = {.bytes = (uint32_t)vars[k]->size_bytes};
        uint32_t bits = arg.bytes * 8;
        uint32_t ours = 0;
        if (ours_reg) {
            ours = results ? weir_x_dest(x, o) : weir_x_source(x, o, bits, vars[k]->type);
        } else if (!frame_argument(x, o, arg.bytes, &ours)) {
            return false;
        }
        /* The callee may not be decoded yet, but the rows of its parameters can be computed. */
        uint32_t theirs = theirs_reg ? vars[k]->reg : places[k];
        if ((theirs_reg && !vars[k]->func) || arg.bytes > (theirs_reg || ours_reg ? 8u : ~0u)) {
            return false;
        }
        arg.wide = bits > 32;
        arg.from = results ? theirs : ours;
        arg.to = results ? ours : theirs;
        arg.from_reg = results ? theirs_reg : ours_reg;
        arg.to_reg = results ? ours_reg : theirs_reg;
        args[k] = arg;
    }
    return true;
}

/* Find the row of a callee's parameter register, as place_registers() will place it. */
static weir_x_ref callee_row(const struct weir_ptx_func *f, uint32_t reg)
{
    uint32_t preds = 0;
    for (uint32_t r = 0; r < f->n_regs; r++) {
        preds += f->regs[r].bits == 1;
    }
    uint32_t at = (preds * 8 + 63u) & ~63u;
    for (uint32_t r = 0; r < reg; r++) {
        uint32_t bits = f->regs[r].bits;
        at += bits == 1 ? 0 : bits <= 32 ? 128 : bits <= 64 ? 256 : 512;
    }
    return at;
}

static bool add_callee(struct weir_x_decoder *x, struct weir_x_func *callee)
{
    if (!WEIR_GROW_POWER(x->func->callees, x->func->n_callees)) {
        x->no_memory = true;
        return false;
    }
    x->func->callees[x->func->n_callees++] = callee;
    return true;
}

static const struct weir_ptx_func *prototype_of(const struct weir_ptx_inst *ir)
{
    WEIR_FAIL_IF(ir->n_operands < 4 || ir->operands[3].kind != WEIR_PTX_OPERAND_TABLE, NULL);
    const struct weir_ptx_table *table = ir->operands[3].table;
    return table->kind == WEIR_PTX_TABLE_PROTOTYPE ? table->proto
           : table->n != 0                         ? table->funcs[0]
                                                   : NULL;
}

bool weir_x_decode_call(struct weir_x_decoder *x)
{
    const struct weir_ptx_inst *ir = x->ir;
    const struct weir_ptx_operand *target = &ir->operands[1];
    bool direct = target->kind == WEIR_PTX_OPERAND_FUNC;
    const struct weir_ptx_func *shape =
        direct ? weir_x_func_resolve(x->kernel->module, target->func) : prototype_of(ir);
    WEIR_FAIL_IF(!shape || shape->n_params > 256 || shape->n_returns > 16, false);
    struct weir_x_call *call = weir_x_decode_alloc(x, sizeof *call);
    struct weir_x_arg *args =
        weir_x_decode_alloc(x, (shape->n_params + shape->n_returns + 1) * sizeof *args);
    uint32_t places[256 + 16] = {0};
    WEIR_FAIL_IF(!call || !args, false);
    call->param_bytes = weir_x_place_params(shape, places);
    WEIR_FAIL_IF(call->param_bytes > WEIR_X_MAX_LOCAL_BYTES, false);
    call->args = args;
    call->results = args + shape->n_params;
    call->n_args = shape->n_params;
    call->n_results = shape->n_returns;
    if (!decode_args(x, &ir->operands[2], shape->params, shape->n_params, places, false, args) ||
        !decode_args(x, &ir->operands[0], shape->returns, shape->n_returns,
                     places + shape->n_params, true, call->results)) {
        return false;
    }
    for (uint32_t k = 0; k < shape->n_params; k++) {
        args[k].to = args[k].to_reg ? callee_row(shape, args[k].to) : args[k].to;
    }
    for (uint32_t k = 0; k < shape->n_returns; k++) {
        struct weir_x_arg *result = &call->results[k];
        result->from = result->from_reg ? callee_row(shape, result->from) : result->from;
    }
    enum weir_x_builtin builtin =
        direct && !shape->has_body ? weir_x_builtin_of(shape->name) : WEIR_X_BUILTIN_NONE;
    weir_x_ref pointer = direct ? WEIR_X_NO_REF : weir_x_source(x, target, 64, WEIR_PTX_TYPE_U64);
    if (builtin != WEIR_X_BUILTIN_NONE) {
        x->func->uses_printf = x->func->uses_printf || builtin == WEIR_X_BUILTIN_VPRINTF;
    } else if (direct) {
        if (x->kernel->nesting >= WEIR_X_MAX_NESTING || x->kernel->n_funcs >= WEIR_X_MAX_FUNCS) {
            weir_x_unsupported(x, "too many functions, or calls too deep");
            return false;
        }
        struct weir_x_func *callee = shape->has_body ? weir_x_func_for(x->kernel, shape) : NULL;
        x->func->launches = x->func->launches || !shape->has_body;
        WEIR_FAIL_IF(!callee || !add_callee(x, callee), false);
        call->callee = callee;
    } else {
        x->func->calls_indirect = true;
    }
    struct weir_x_inst *i = weir_x_emit(x);
    i->fn = builtin != WEIR_X_BUILTIN_NONE ? builtin_handler(builtin) : weir_x_exec_call;
    i->ext = call;
    i->a = pointer;
    return true;
}
