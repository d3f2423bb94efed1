/* Decoding of everything but memory and calls: see decode.h. */
#include "softgpu/exec/decode.h"

static uint8_t rounding(uint16_t mod)
{
    switch (mod) {
    case WEIR_PTX_MOD_RZ:
    case WEIR_PTX_MOD_RZI:
        return WEIR_X_RZ;
    case WEIR_PTX_MOD_RM:
    case WEIR_PTX_MOD_RMI:
        return WEIR_X_RM;
    case WEIR_PTX_MOD_RP:
    case WEIR_PTX_MOD_RPI:
        return WEIR_X_RP;
    case WEIR_PTX_MOD_RNA:
        return WEIR_X_RNA;
    default:
        return WEIR_X_RN;
    }
}

static uint32_t float_flags(const struct weir_ptx_inst *ir)
{
    static const struct {
        uint32_t from, to;
    } map[] = {
        {WEIR_PTX_FLAG_FTZ, WEIR_X_F_FTZ},       {WEIR_PTX_FLAG_SAT, WEIR_X_F_SAT},
        {WEIR_PTX_FLAG_RELU, WEIR_X_F_RELU},     {WEIR_PTX_FLAG_NAN_PROPAGATE, WEIR_X_F_NAN},
        {WEIR_PTX_FLAG_APPROX, WEIR_X_F_APPROX}, {WEIR_PTX_FLAG_FULL, WEIR_X_F_FULL},
    };
    uint32_t flags = 0;
    for (size_t k = 0; k < WEIR_COUNT(map); k++) {
        flags |= (ir->flags & map[k].from) != 0 ? map[k].to : 0;
    }
    return flags | (weir_ptx_inst_has(ir, WEIR_PTX_MOD_XORSIGN) ? WEIR_X_F_XORSIGN : 0);
}

/* Width of source k if it differs from the instruction's type: shift counts, wide products. */
static uint32_t source_bits(const struct weir_ptx_inst *ir, uint32_t k)
{
    uint32_t bits = weir_ptx_type_bits(ir->types[0]);
    switch (ir->op) {
    case WEIR_PTX_OP_SHL:
    case WEIR_PTX_OP_SHR:
        return k == 2 ? 32 : bits;
    case WEIR_PTX_OP_BFE:
        return k >= 2 ? 32 : bits;
    case WEIR_PTX_OP_BFI:
        return k >= 3 ? 32 : bits;
    case WEIR_PTX_OP_MAD:
        return k == 3 && ir->half == WEIR_PTX_MOD_WIDE ? bits * 2 : bits;
    default:
        return bits;
    }
}

/* Decode d, then up to four sources into a, b, c, e; the handler comes from the tables. */
static bool decode_arithmetic(struct weir_x_decoder *x)
{
    const struct weir_ptx_inst *ir = x->ir;
    weir_x_ref refs[5] = {WEIR_X_NO_REF, WEIR_X_NO_REF, WEIR_X_NO_REF, WEIR_X_NO_REF,
                          WEIR_X_NO_REF};
    for (uint32_t k = 1; k < ir->n_operands; k++) {
        refs[k] = weir_x_source(x, &ir->operands[k], source_bits(ir, k), ir->types[0]);
    }
    WEIR_FAIL_IF(x->failed, false);
    struct weir_x_inst *i = weir_x_emit(x);
    i->d = weir_x_dest(x, &ir->operands[0]);
    i->a = refs[1];
    i->b = refs[2];
    i->c = refs[3];
    i->e = refs[4];
    i->type = ir->types[0];
    i->round = rounding(ir->round);
    i->flags = float_flags(ir);
    i->fn = weir_ptx_type_class(ir->types[0]) == 'F' ? weir_x_find_float(ir, i)
                                                     : weir_x_find_int(ir, i);
    if (!i->fn) {
        i->fn = weir_x_find_half(ir, i);
    }
    return i->fn && i->d != WEIR_X_NO_REF;
}

/* and, or, xor, not on predicates */
static bool decode_pred_logic(struct weir_x_decoder *x)
{
    const struct weir_ptx_inst *ir = x->ir;
    weir_x_fn fn = ir->op == WEIR_PTX_OP_AND   ? weir_x_exec_and_pred
                   : ir->op == WEIR_PTX_OP_OR  ? weir_x_exec_or_pred
                   : ir->op == WEIR_PTX_OP_XOR ? weir_x_exec_xor_pred
                   : ir->op == WEIR_PTX_OP_NOT ? weir_x_exec_not_pred
                                               : weir_x_exec_mov_pred;
    uint8_t second = ir->n_operands > 2 ? WEIR_PTX_TYPE_PRED : WEIR_PTX_TYPE_NONE;
    (void)weir_x_emit_op(x, fn, (uint8_t[4]){WEIR_PTX_TYPE_PRED, second});
    return true;
}

static bool decode_pack(struct weir_x_decoder *x, const struct weir_ptx_operand *vector,
                        const struct weir_ptx_operand *whole, bool unpack)
{
    uint32_t total = weir_ptx_type_bits(x->ir->types[0]) / 8;
    uint32_t n = vector->n_elems;
    weir_x_ref *refs = weir_x_decode_alloc(x, n * sizeof *refs);
    WEIR_FAIL_IF(!refs || n == 0 || n > 8 || total < 4 || total % n != 0, false);
    for (uint32_t e = 0; e < n; e++) {
        refs[e] = unpack ? weir_x_dest(x, &vector->elems[e])
                         : weir_x_source(x, &vector->elems[e], total * 8 / n, x->ir->types[0]);
    }
    weir_x_ref other =
        unpack ? weir_x_source(x, whole, total * 8, x->ir->types[0]) : weir_x_dest(x, whole);
    struct weir_x_inst *i = weir_x_emit(x);
    i->fn = unpack ? weir_x_exec_unpack : weir_x_exec_pack;
    i->refs = refs;
    i->vec = (uint8_t)n;
    i->bytes = (uint8_t)(total / n);
    i->sub = (uint8_t)total;
    i->a = i->d = other;
    return true;
}

/* mov.v4.u32 {a, b, c, d}, %ctaid: decode one component for each register. */
static bool decode_components(struct weir_x_decoder *x, const struct weir_ptx_operand *vector,
                              const struct weir_ptx_operand *special)
{
    for (uint32_t e = 0; e < vector->n_elems; e++) {
        struct weir_ptx_operand one = *special;
        if (vector->elems[e].kind == WEIR_PTX_OPERAND_SINK) {
            continue;
        }
        one.component = (uint8_t)e;
        weir_x_ref source = weir_x_source(x, &one, 32, x->ir->types[0]);
        struct weir_x_inst *i = weir_x_emit(x);
        i->d = weir_x_dest(x, &vector->elems[e]);
        i->a = source;
        i->fn = weir_x_exec_mov32;
    }
    return vector->n_elems <= 4;
}

static bool decode_mov(struct weir_x_decoder *x)
{
    const struct weir_ptx_inst *ir = x->ir;
    const struct weir_ptx_operand *d = &ir->operands[0];
    const struct weir_ptx_operand *a = &ir->operands[1];
    if (ir->types[0] == WEIR_PTX_TYPE_PRED) {
        return decode_pred_logic(x);
    }
    WEIR_FAIL_IF(d->kind == WEIR_PTX_OPERAND_VECTOR && a->kind == WEIR_PTX_OPERAND_VECTOR, false);
    if (d->kind == WEIR_PTX_OPERAND_VECTOR && a->kind == WEIR_PTX_OPERAND_SREG) {
        return decode_components(x, d, a);
    }
    if (d->kind == WEIR_PTX_OPERAND_VECTOR) {
        return decode_pack(x, d, a, true);
    }
    if (a->kind == WEIR_PTX_OPERAND_VECTOR) {
        return decode_pack(x, a, d, false);
    }
    uint32_t bits = weir_x_operand_bits(x, d, weir_ptx_type_bits(ir->types[0]));
    weir_x_ref source = weir_x_source(x, a, bits, ir->types[0]);
    struct weir_x_inst *i = weir_x_emit(x);
    i->d = weir_x_dest(x, d);
    i->a = source;
    i->fn = bits <= 32 ? weir_x_exec_mov32 : bits <= 64 ? weir_x_exec_mov64 : weir_x_exec_mov128;
    return i->d != WEIR_X_NO_REF;
}

static bool decode_setp(struct weir_x_decoder *x)
{
    const struct weir_ptx_inst *ir = x->ir;
    bool is_set = ir->op == WEIR_PTX_OP_SET;
    uint8_t type = ir->types[is_set ? 1 : 0];
    WEIR_FAIL_IF(ir->n_operands == 4 && ir->operands[3].kind != WEIR_PTX_OPERAND_REG, false);
    struct weir_x_inst *i = weir_x_emit_op(x, NULL, (uint8_t[4]){type, type});
    uint32_t second = ir->operands[0].reg2;
    bool has_second = !is_set && second != WEIR_PTX_NONE &&
                      (ir->operands[0].kind == WEIR_PTX_OPERAND_REG ||
                       ir->operands[0].kind == WEIR_PTX_OPERAND_SINK);
    i->e = has_second ? x->regs[second] : WEIR_X_NO_REF;
    if (ir->n_operands == 4) {
        i->c = x->regs[ir->operands[3].reg];
        i->sub2 = ir->operands[3].negated;
    }
    i->fn = weir_x_find_compare(ir, i);
    return i->fn != NULL;
}

static bool decode_select(struct weir_x_decoder *x)
{
    const struct weir_ptx_inst *ir = x->ir;
    uint32_t bits = weir_ptx_type_bits(ir->types[0]);
    uint8_t type = ir->types[0];
    if (ir->op == WEIR_PTX_OP_SLCT) {
        struct weir_x_inst *i =
            weir_x_emit_op(x, weir_x_exec_slct, (uint8_t[4]){type, type, ir->types[1]});
        i->sub = ir->types[1] != WEIR_PTX_TYPE_F32      ? 0
                 : (ir->flags & WEIR_PTX_FLAG_FTZ) != 0 ? 2
                                                        : 1;
        i->flags = bits > 32 ? WEIR_X_F_WIDE : 0;
    } else {
        (void)weir_x_emit_op(x, bits > 32 ? weir_x_exec_selp64 : weir_x_exec_selp32,
                             (uint8_t[4]){type, type, WEIR_PTX_TYPE_PRED});
    }
    return bits <= 64;
}

static const uint8_t three_words[4] = {WEIR_PTX_TYPE_B32, WEIR_PTX_TYPE_B32, WEIR_PTX_TYPE_B32};

/* lop3.or.b32 d|p, a, b, c, lut, q: p tells whether the result is not zero, combined with q. */
static bool decode_lop3_pred(struct weir_x_decoder *x)
{
    const struct weir_ptx_inst *ir = x->ir;
    weir_x_ref *refs = weir_x_decode_alloc(x, 2 * sizeof *refs);
    weir_x_ref q = weir_x_pred_source(x, &ir->operands[5]);
    WEIR_FAIL_IF(!refs || ir->operands[0].reg2 == WEIR_PTX_NONE, false);
    refs[0] = x->regs[ir->operands[0].reg2];
    refs[1] = q;
    struct weir_x_inst *i = weir_x_emit_op(x, weir_x_exec_lop3_pred, three_words);
    i->imm = ir->operands[4].bits;
    i->refs = refs;
    i->sub = ir->action == WEIR_PTX_MOD_OR;
    return i->d != WEIR_X_NO_REF;
}

static bool decode_lop3(struct weir_x_decoder *x)
{
    const struct weir_ptx_inst *ir = x->ir;
    WEIR_FAIL_IF(ir->operands[4].kind != WEIR_PTX_OPERAND_INT, false);
    if (ir->n_operands == 6) {
        return decode_lop3_pred(x);
    }
    struct weir_x_inst *i = weir_x_emit_op(x, weir_x_exec_lop3, three_words);
    i->imm = ir->operands[4].bits;
    return i->d != WEIR_X_NO_REF;
}

static bool decode_cvt(struct weir_x_decoder *x)
{
    const struct weir_ptx_inst *ir = x->ir;
    uint32_t from_bits = weir_ptx_type_bits(ir->types[1]);
    WEIR_FAIL_IF(ir->n_types < 2 || ir->round == WEIR_PTX_MOD_RS, false);
    const uint8_t types[4] = {ir->types[1], ir->n_operands > 2 ? ir->types[1] : WEIR_PTX_TYPE_NONE,
                              ir->n_operands > 3 ? WEIR_PTX_TYPE_B32 : WEIR_PTX_TYPE_NONE};
    struct weir_x_inst *i = weir_x_emit_op(x, NULL, types);
    i->type = ir->types[0];
    i->type2 = ir->types[1];
    i->round = rounding(ir->round);
    i->flags = float_flags(ir);
    i->flags |= (ir->flags & WEIR_PTX_FLAG_SATFINITE) != 0 ? WEIR_X_F_NAN : 0;
    if (weir_x_operand_bits(x, &ir->operands[1], from_bits) > 32) {
        i->sub |= 1;
    }
    if (weir_x_operand_bits(x, &ir->operands[0], weir_ptx_type_bits(ir->types[0])) > 32) {
        i->sub |= 2;
    }
    i->fn = weir_x_find_cvt(ir, i);
    return i->fn && i->d != WEIR_X_NO_REF;
}

/* Decode bar{rier}.{sync,arrive,red}, bar.warp.sync and barrier.cluster.*. */
static bool decode_barrier(struct weir_x_decoder *x)
{
    const struct weir_ptx_inst *ir = x->ir;
    const struct weir_ptx_operand *o = ir->operands;
    if (weir_ptx_inst_has(ir, WEIR_PTX_MOD_WARP)) {
        weir_x_ref members = weir_x_source(x, &o[0], 32, WEIR_PTX_TYPE_B32);
        struct weir_x_inst *i = weir_x_emit(x);
        i->fn = weir_x_exec_warp_sync;
        i->e = members;
        return true;
    }
    if (weir_ptx_inst_has(ir, WEIR_PTX_MOD_CLUSTER)) {
        bool wait = weir_ptx_inst_has(ir, WEIR_PTX_MOD_WAIT);
        weir_x_emit(x)->fn = wait ? weir_x_exec_cluster_wait : weir_x_exec_cluster_arrive;
        return true;
    }
    bool red = ir->n_types != 0;
    bool arrive = weir_ptx_inst_has(ir, WEIR_PTX_MOD_ARRIVE);
    uint32_t at = red ? 1 : 0;
    if (ir->n_operands < (red ? 3 : 1) ||
        (red && o[ir->n_operands - 1].kind != WEIR_PTX_OPERAND_REG)) {
        return false;
    }
    uint32_t n = ir->n_operands - at - (red ? 1 : 0);
    weir_x_ref id = weir_x_source(x, &o[at], 32, WEIR_PTX_TYPE_U32);
    weir_x_ref count = n > 1 ? weir_x_source(x, &o[at + 1], 32, WEIR_PTX_TYPE_U32) : WEIR_X_NO_REF;
    struct weir_x_inst *i = weir_x_emit(x);
    i->fn = weir_x_exec_barrier;
    i->a = id;
    i->b = count;
    i->sub = arrive ? 1 : 0;
    if (red) {
        const struct weir_ptx_operand *p = &o[ir->n_operands - 1];
        i->sub = ir->action == WEIR_PTX_MOD_POPC ? 2 : ir->action == WEIR_PTX_MOD_AND ? 3 : 4;
        i->d = weir_x_dest(x, &o[0]);
        i->c = x->regs[p->reg];
        i->sub2 = p->negated;
    }
    return true;
}

static uint8_t action_index(const struct weir_ptx_inst *ir, const uint16_t *list, uint8_t n)
{
    return WEIR_FIRST(k, n, weir_ptx_inst_has(ir, list[k]));
}

/* Decode a second destination (d|p) into refs[0]. */
static bool pair_ref(struct weir_x_decoder *x, struct weir_x_inst *i)
{
    weir_x_ref *refs = weir_x_decode_alloc(x, sizeof *refs);
    WEIR_FAIL_IF(!refs, false);
    uint32_t second = x->ir->operands[0].reg2;
    refs[0] = second != WEIR_PTX_NONE ? x->regs[second] : WEIR_X_NO_REF;
    i->refs = refs;
    return true;
}

static bool decode_shfl(struct weir_x_decoder *x)
{
    static const uint16_t modes[] = {WEIR_PTX_MOD_UP, WEIR_PTX_MOD_DOWN, WEIR_PTX_MOD_BFLY,
                                     WEIR_PTX_MOD_IDX};
    const struct weir_ptx_inst *ir = x->ir;
    weir_x_ref members = ir->n_operands > 4
                             ? weir_x_source(x, &ir->operands[4], 32, WEIR_PTX_TYPE_B32)
                             : weir_x_const(x, 0, false);
    struct weir_x_inst *i = weir_x_emit_op(x, weir_x_exec_shfl, three_words);
    i->e = members;
    i->sub = action_index(ir, modes, 4);
    i->sub2 = ir->operands[0].reg2 != WEIR_PTX_NONE;
    return i->sub < 4 && pair_ref(x, i);
}

static bool decode_vote(struct weir_x_decoder *x)
{
    static const uint16_t modes[] = {WEIR_PTX_MOD_BALLOT, WEIR_PTX_MOD_ALL, WEIR_PTX_MOD_ANY,
                                     WEIR_PTX_MOD_UNI};
    const struct weir_ptx_inst *ir = x->ir;
    if (ir->operands[1].kind != WEIR_PTX_OPERAND_REG &&
        ir->operands[1].kind != WEIR_PTX_OPERAND_INT) {
        return false;
    }
    struct weir_x_inst *i = weir_x_emit_members(x, weir_x_exec_vote, WEIR_PTX_TYPE_PRED);
    i->sub = action_index(ir, modes, 4);
    return i->sub < 4 && i->d != WEIR_X_NO_REF && ir->n_operands > 2;
}

static bool decode_match(struct weir_x_decoder *x)
{
    const struct weir_ptx_inst *ir = x->ir;
    struct weir_x_inst *i = weir_x_emit_members(x, weir_x_exec_match, ir->types[0]);
    i->sub = weir_ptx_inst_has(ir, WEIR_PTX_MOD_ALL);
    i->flags = weir_ptx_type_bits(ir->types[0]) > 32 ? WEIR_X_F_WIDE : 0;
    return pair_ref(x, i);
}

static bool decode_redux(struct weir_x_decoder *x)
{
    static const uint16_t modes[] = {WEIR_PTX_MOD_ADD, WEIR_PTX_MOD_MIN, WEIR_PTX_MOD_MAX,
                                     WEIR_PTX_MOD_AND, WEIR_PTX_MOD_OR,  WEIR_PTX_MOD_XOR};
    const struct weir_ptx_inst *ir = x->ir;
    struct weir_x_inst *i = weir_x_emit_members(x, weir_x_exec_redux, ir->types[0]);
    i->sub = action_index(ir, modes, 6);
    i->sub2 = ir->types[0] == WEIR_PTX_TYPE_S32;
    return i->sub < 6 && i->d != WEIR_X_NO_REF && ir->types[0] != WEIR_PTX_TYPE_F32;
}

static bool decode_elect(struct weir_x_decoder *x)
{
    return pair_ref(x, weir_x_emit_members(x, weir_x_exec_elect, WEIR_PTX_TYPE_NONE));
}

static bool decode_branch(struct weir_x_decoder *x)
{
    const struct weir_ptx_inst *ir = x->ir;
    if (ir->op == WEIR_PTX_OP_BRA) {
        struct weir_x_inst *i = weir_x_emit(x);
        i->fn = weir_x_exec_bra;
        i->imm = ir->operands[0].label;
        return ir->operands[0].kind == WEIR_PTX_OPERAND_LABEL;
    }
    weir_x_ref index = weir_x_source(x, &ir->operands[0], 32, WEIR_PTX_TYPE_U32);
    struct weir_x_inst *i = weir_x_emit(x);
    i->fn = weir_x_exec_brx;
    i->a = index;
    i->ext = ir->operands[1].table;
    return ir->operands[1].kind == WEIR_PTX_OPERAND_TABLE;
}

static bool emit_plain(struct weir_x_decoder *x, weir_x_fn fn)
{
    weir_x_emit(x)->fn = fn;
    return true;
}

/* mapa and getctarank, of an address of shared::cluster or of a generic one (sub) */
static bool decode_mapa(struct weir_x_decoder *x)
{
    const struct weir_ptx_inst *ir = x->ir;
    bool rank = ir->op == WEIR_PTX_OP_GETCTARANK;
    uint32_t bits = weir_ptx_type_bits(ir->types[0]);
    const uint8_t types[4] = {ir->types[0], rank ? WEIR_PTX_TYPE_NONE : WEIR_PTX_TYPE_U32};
    struct weir_x_inst *i = weir_x_emit_op(x, rank ? weir_x_exec_ctarank : weir_x_exec_mapa, types);
    i->sub = ir->space == WEIR_PTX_SPACE_NONE;
    i->flags = bits > 32 ? WEIR_X_F_WIDE : 0;
    return i->d != WEIR_X_NO_REF && (i->sub == 0 || bits == 64);
}

/* softgpu ignores cache policies, so any number will do. */
static bool decode_policy(struct weir_x_decoder *x)
{
    weir_x_ref none = weir_x_const(x, 0, true);
    struct weir_x_inst *i = weir_x_emit(x);
    i->fn = weir_x_exec_mov64;
    i->d = weir_x_dest(x, &x->ir->operands[0]);
    i->a = none;
    return i->d != WEIR_X_NO_REF;
}

static bool decode_stack(struct weir_x_decoder *x)
{
    const struct weir_ptx_inst *ir = x->ir;
    uint32_t bits = weir_ptx_type_bits(ir->types[0]);
    bool restore = ir->op == WEIR_PTX_OP_STACKRESTORE;
    bool allocate = ir->op == WEIR_PTX_OP_ALLOCA;
    weir_x_ref a = WEIR_X_NO_REF;
    uint64_t align = 8;
    if (restore || allocate) {
        a = weir_x_source(x, &ir->operands[allocate ? 1 : 0], bits, ir->types[0]);
    }
    if (allocate && ir->n_operands > 2) {
        align = ir->operands[2].bits;
        if (ir->operands[2].kind != WEIR_PTX_OPERAND_INT || align == 0 || align > 4096 ||
            (align & (align - 1)) != 0) {
            return false;
        }
    }
    x->func->uses_alloca = true;
    struct weir_x_inst *i = weir_x_emit(x);
    i->fn = restore    ? weir_x_exec_stackrestore
            : allocate ? weir_x_exec_alloca
                       : weir_x_exec_stacksave;
    i->d = restore ? WEIR_X_NO_REF : weir_x_dest(x, &ir->operands[0]);
    i->a = a;
    i->imm = WEIR_MAX(align, 8);
    i->flags = bits > 32 ? WEIR_X_F_WIDE : 0;
    i->sub = bits > 32;
    return restore || i->d != WEIR_X_NO_REF;
}

static bool decode_trap(struct weir_x_decoder *x, bool breakpoint)
{
    struct weir_x_inst *i = weir_x_emit(x);
    i->fn = weir_x_exec_trap;
    i->sub = breakpoint;
    return true;
}

/* One flat switch over opcodes. */
bool weir_x_decode_op(struct weir_x_decoder *x)
{
    const struct weir_ptx_inst *ir = x->ir;
    switch (ir->op) {
    case WEIR_PTX_OP_MOV:
        return decode_mov(x);
    case WEIR_PTX_OP_AND:
    case WEIR_PTX_OP_OR:
    case WEIR_PTX_OP_XOR:
    case WEIR_PTX_OP_NOT:
        return ir->types[0] == WEIR_PTX_TYPE_PRED ? decode_pred_logic(x) : decode_arithmetic(x);
    case WEIR_PTX_OP_SETP:
    case WEIR_PTX_OP_SET:
        return decode_setp(x);
    case WEIR_PTX_OP_SELP:
    case WEIR_PTX_OP_SLCT:
        return decode_select(x);
    case WEIR_PTX_OP_LOP3:
        return decode_lop3(x);
    case WEIR_PTX_OP_CVT:
        return decode_cvt(x);
    case WEIR_PTX_OP_BRA:
    case WEIR_PTX_OP_BRX:
        return decode_branch(x);
    case WEIR_PTX_OP_CALL:
        return weir_x_decode_call(x);
    case WEIR_PTX_OP_RET:
        return emit_plain(x, weir_x_exec_ret);
    case WEIR_PTX_OP_EXIT:
        return emit_plain(x, weir_x_exec_exit);
    case WEIR_PTX_OP_TRAP:
    case WEIR_PTX_OP_BRKPT:
        return decode_trap(x, ir->op == WEIR_PTX_OP_BRKPT);
    case WEIR_PTX_OP_BAR:
    case WEIR_PTX_OP_BARRIER:
        return decode_barrier(x);
    case WEIR_PTX_OP_MEMBAR:
    case WEIR_PTX_OP_FENCE:
        return emit_plain(x, weir_x_exec_fence);
    case WEIR_PTX_OP_NANOSLEEP:
        return emit_plain(x, weir_x_exec_nanosleep);
    case WEIR_PTX_OP_PREFETCH:
    case WEIR_PTX_OP_PREFETCHU:
    case WEIR_PTX_OP_APPLYPRIORITY:
    case WEIR_PTX_OP_DISCARD:
    case WEIR_PTX_OP_PMEVENT:
    case WEIR_PTX_OP_GRIDDEPCONTROL:
    case WEIR_PTX_OP_SETMAXNREG:
        return emit_plain(x, weir_x_exec_nop);
    case WEIR_PTX_OP_MAPA:
    case WEIR_PTX_OP_GETCTARANK:
        return decode_mapa(x);
    case WEIR_PTX_OP_CREATEPOLICY:
        return decode_policy(x);
    case WEIR_PTX_OP_STACKSAVE:
    case WEIR_PTX_OP_STACKRESTORE:
    case WEIR_PTX_OP_ALLOCA:
        return decode_stack(x);
    case WEIR_PTX_OP_SHFL:
        return decode_shfl(x);
    case WEIR_PTX_OP_VOTE:
        return decode_vote(x);
    case WEIR_PTX_OP_MATCH:
        return decode_match(x);
    case WEIR_PTX_OP_REDUX:
        return decode_redux(x);
    case WEIR_PTX_OP_ELECT:
        return decode_elect(x);
    case WEIR_PTX_OP_ACTIVEMASK: {
        struct weir_x_inst *i = weir_x_emit(x);
        i->fn = weir_x_exec_activemask;
        i->d = weir_x_dest(x, &ir->operands[0]);
        return true;
    }
    default:
        break;
    }
    if (ir->op >= WEIR_PTX_OP_VADD && ir->op <= WEIR_PTX_OP_VSET4) {
        return weir_x_decode_video(x);
    }
    bool computes =
        (weir_ptx_op_info(ir->op)->flags & ~(uint32_t)WEIR_PTX_OPF_SAME) == WEIR_PTX_OPF_DST;
    if (computes && ir->op != WEIR_PTX_OP_CVTA && ir->op != WEIR_PTX_OP_ISSPACEP) {
        return ir->n_types != 0 && ir->n_operands <= 5 && decode_arithmetic(x);
    }
    uint32_t kind = weir_ptx_op_info(ir->op)->flags;
    if ((kind & WEIR_PTX_OPF_TEXTURE) != 0) {
        return weir_x_decode_texture(x);
    }
    if ((kind & WEIR_PTX_OPF_MATRIX) != 0) {
        return weir_x_decode_matrix(x);
    }
    if ((kind & WEIR_PTX_OPF_MBARRIER) != 0) {
        return weir_x_decode_mbarrier(x);
    }
    return weir_x_decode_memory_op(x);
}
