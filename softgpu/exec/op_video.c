/*
 * Video instructions: vadd and the like on one number, two halves or four bytes.
 *
 * Each selects parts of its sources (`ext` says which), extends them by their types, computes in
 * wide integers, saturates, and combines the result with the third operand or merges it into that.
 *
 * Recent GPUs lack the instructions for one number. The driver's compiler replaces them by others,
 * which do not always do what the PTX manual's pseudocode says. Where an H200's results (CUDA 13.0,
 * tests/data/ptx/v*.rec) differ from the manual, this code follows the results; "GPU:" marks each
 * such place. Forms that were not recorded follow the manual, or the GPU where they clearly use the
 * same step.
 */
#include "softgpu/exec/decode.h"

#include <string.h>

enum operation { V_ADD, V_SUB, V_AVRG, V_ABSDIFF, V_MIN, V_MAX, V_SHL, V_SHR, V_MAD, V_SET };
enum second { SECOND_NONE, SECOND_ADD, SECOND_MIN, SECOND_MAX };

struct video {
    uint8_t operation;
    uint8_t second;
    uint16_t compare; /* of V_SET: enum weir_ptx_mod */
    bool signed_a, signed_b, signed_d;
    bool saturate;
    bool wrap;                        /* of shifts */
    bool minus_ab, minus_c, plus_one; /* of V_MAD */
    uint8_t scale;                    /* how many bits V_MAD shifts its result right */
    uint8_t bits;                     /* of one element: 32 (scalar), 16, 8 */
    /* One number: position and width of the parts of a and b to use, and of d to write. */
    uint8_t at_a, bits_a, at_b, bits_b, at_d, bits_d;
    /* Several: which elements of {b, a} to use, and which elements of d to write. */
    uint8_t pick_a[4], pick_b[4];
    uint8_t mask;
};

static int64_t part(uint64_t value, uint32_t at, uint32_t bits, bool is_signed)
{
    value <<= 64 - at - bits;
    return is_signed ? (int64_t)value >> (64 - bits) : (int64_t)(value >> (64 - bits));
}

static int64_t clamp(int64_t v, uint32_t bits, bool is_signed)
{
    int64_t high = (1ll << (is_signed ? bits - 1 : bits)) - 1;
    int64_t low = is_signed ? -high - 1 : 0;
    return v > high ? high : WEIR_MAX(v, low);
}

static bool holds(uint16_t compare, int64_t x, int64_t y)
{
    switch (compare) {
    case WEIR_PTX_MOD_EQ:
        return x == y;
    case WEIR_PTX_MOD_NE:
        return x != y;
    case WEIR_PTX_MOD_LT:
    case WEIR_PTX_MOD_LO:
        return x < y;
    case WEIR_PTX_MOD_LE:
    case WEIR_PTX_MOD_LS:
        return x <= y;
    case WEIR_PTX_MOD_GT:
    case WEIR_PTX_MOD_HI:
        return x > y;
    default:
        return x >= y;
    }
}

static __int128 shift(const struct video *v, int64_t x, int64_t y)
{
    uint32_t n = v->wrap ? (uint32_t)y & 31u : y > 32 ? 32 : (uint32_t)y;
    return v->operation == V_SHL ? (__int128)x * ((int64_t)1 << n) : x >> n;
}

static __int128 compute(const struct video *v, int64_t x, int64_t y)
{
    switch (v->operation) {
    case V_ADD:
        return x + y;
    case V_SUB:
        return x - y;
    case V_AVRG:
        return (x + y + (x + y >= 0)) >> 1;
    case V_ABSDIFF:
        return x > y ? x - y : y - x;
    case V_MIN:
        return WEIR_MIN(x, y);
    case V_MAX:
        return WEIR_MAX(x, y);
    case V_SET:
        return holds(v->compare, x, y);
    default:
        return shift(v, x, y);
    }
}

/*
 * Clamp a value of 34 bits, as the manual says: vshl loses the bits above. GPU: a u32 result is
 * clamped at 0, but wraps above its maximum. A signed byte or half is compared with its maximum as
 * an unsigned number, so that all negative numbers become the maximum.
 */
static int64_t saturate_scalar(const struct video *v, __int128 wide)
{
    int64_t r = part((uint64_t)(unsigned __int128)wide, 0, 34, true);
    if (v->bits_d == 32) {
        return v->signed_d ? clamp(r, 32, true) : r < 0 ? 0 : (int64_t)(r & UINT32_MAX);
    }
    return v->signed_d ? clamp(r & UINT32_MAX, v->bits_d - 1u, false) : clamp(r, v->bits_d, false);
}

/*
 * Combine with the third operand, which has the result's type. Comparisons come before the result
 * is cut to 32 bits. GPU: a saturated u32 sum or difference is sign-extended and then compared as
 * unsigned, so that one with bit 31 set is larger than any third operand.
 */
static uint32_t combine(const struct video *v, __int128 value, uint32_t c)
{
    __int128 third = v->signed_d ? (__int128)(int32_t)c : (__int128)c;
    bool is_sum = v->operation == V_ADD || v->operation == V_SUB;
    bool beyond = is_sum && v->saturate && !v->signed_d && value > INT32_MAX;
    bool less = !beyond && value < third;
    uint32_t low = (uint32_t)(unsigned __int128)value;
    switch (v->second) {
    case SECOND_ADD:
        return low + c;
    case SECOND_MIN:
        return less ? low : c;
    case SECOND_MAX:
        return less ? c : low;
    default:
        return low;
    }
}

/* GPU: .h1 takes the high half of the value; by the manual it would be the low half, shifted up. */
static uint32_t merge(const struct video *v, uint32_t value, uint32_t c)
{
    if (v->bits_d == 32) {
        return value;
    }
    uint32_t mask = ((1u << v->bits_d) - 1) << v->at_d;
    bool high_half = v->bits_d == 16 && v->at_d == 16;
    return (c & ~mask) | ((high_half ? value : value << v->at_d) & mask);
}

static uint32_t scalar(const struct video *v, uint32_t a, uint32_t b, uint32_t c)
{
    __int128 r = compute(v, part(a, v->at_a, v->bits_a, v->signed_a),
                         part(b, v->at_b, v->bits_b, v->signed_b));
    r = v->saturate ? saturate_scalar(v, r) : r;
    return merge(v, combine(v, r, c), c);
}

/*
 * d = (a b + c) >> scale, where the product or c may be negated, or 1 added. GPU: 32-bit sources
 * count as signed whatever their types, but the types decide whether the result is signed. An
 * unsigned result is shifted as 64 bits with zeros, so .sat turns a negative one into the maximum
 * if it was scaled, and else into 0.
 */
static uint32_t multiply(const struct video *v, uint32_t a, uint32_t b, uint32_t c)
{
    int64_t product = part(a, v->at_a, v->bits_a, v->signed_a || v->bits_a == 32) *
                      part(b, v->at_b, v->bits_b, v->signed_b || v->bits_b == 32);
    int64_t addend = (int32_t)c;
    product = v->minus_ab ? -product : product;
    addend = v->minus_c ? -addend : addend;
    int64_t sum = product + addend + v->plus_one;
    bool is_signed = v->signed_a || v->signed_b || v->minus_ab || v->minus_c;
    sum = is_signed || v->scale == 0 ? sum >> v->scale : (int64_t)((uint64_t)sum >> v->scale);
    return (uint32_t)(uint64_t)(v->saturate ? clamp(sum, 32, is_signed) : sum);
}

static uint32_t several(const struct video *v, uint32_t a, uint32_t b, uint32_t c)
{
    uint64_t pool = (uint64_t)b << 32 | a;
    uint32_t d = c;
    for (uint32_t e = 0; e < 32u / v->bits; e++) {
        if ((v->mask >> e & 1u) == 0) {
            continue;
        }
        int64_t r = (int64_t)compute(v, part(pool, v->pick_a[e] * v->bits, v->bits, v->signed_a),
                                     part(pool, v->pick_b[e] * v->bits, v->bits, v->signed_b));
        r = v->saturate ? clamp(r, v->bits, v->signed_d) : r;
        if (v->second == SECOND_ADD) {
            d += (uint32_t)(uint64_t)r;
        } else {
            uint32_t mask = ((1u << v->bits) - 1) << (e * v->bits);
            d = (d & ~mask) | ((uint32_t)(uint64_t)r << (e * v->bits) & mask);
        }
    }
    return d;
}

/* ext: struct video */
static const struct weir_x_inst *video(struct weir_x_warp *w, const struct weir_x_inst *i)
{
    const struct video *v = i->ext;
    weir_x_u32 *d = weir_x_w32(w, i->d);
    const weir_x_u32 *a = weir_x_w32(w, i->a);
    const weir_x_u32 *b = weir_x_w32(w, i->b);
    const weir_x_u32 *c = weir_x_w32(w, i->c);
    WEIR_X_EACH_ACTIVE(w, l, {
        d[l] = v->bits != 32           ? several(v, a[l], b[l], c[l])
               : v->operation == V_MAD ? multiply(v, a[l], b[l], c[l])
                                       : scalar(v, a[l], b[l], c[l]);
    });
    return i + 1;
}

/* b0 .. b3, h0, h1, or all of it */
static bool scalar_part(const char *selector, uint8_t *ret_at, uint8_t *ret_bits)
{
    *ret_at = 0;
    *ret_bits = 32;
    if (!selector) {
        return true;
    }
    WEIR_FAIL_IF(strlen(selector) != 2, false);
    uint32_t bits = selector[0] == 'b' ? 8 : 16;
    uint32_t at = (uint32_t)(selector[1] - '0') * bits;
    *ret_at = (uint8_t)at;
    *ret_bits = (uint8_t)bits;
    return at < 32;
}

/* h10, b7654: read a selector, highest element first. @param first lowest element of the
 * default. */
static bool several_parts(const char *selector, uint32_t n, uint8_t first, uint8_t *ret_pick)
{
    WEIR_FAIL_IF(selector && strlen(selector) != n + 1, false);
    for (uint32_t e = 0; e < n; e++) {
        ret_pick[e] = (uint8_t)(selector ? selector[n - e] - '0' : (int)(first + e));
        WEIR_FAIL_IF(ret_pick[e] >= 2 * n, false);
    }
    return true;
}

static uint8_t write_mask(const char *selector, uint32_t n)
{
    if (!selector) {
        return (uint8_t)((1u << n) - 1);
    }
    uint32_t mask = 0;
    for (const char *p = selector + 1; *p != '\0'; p++) {
        mask |= 1u << (*p & 7);
    }
    return (uint8_t)(mask & ((1u << n) - 1));
}

static const struct {
    uint16_t op;
    uint8_t operation, bits;
} rows[] = {
    {WEIR_PTX_OP_VADD, V_ADD, 32},          {WEIR_PTX_OP_VSUB, V_SUB, 32},
    {WEIR_PTX_OP_VABSDIFF, V_ABSDIFF, 32},  {WEIR_PTX_OP_VMIN, V_MIN, 32},
    {WEIR_PTX_OP_VMAX, V_MAX, 32},          {WEIR_PTX_OP_VSHL, V_SHL, 32},
    {WEIR_PTX_OP_VSHR, V_SHR, 32},          {WEIR_PTX_OP_VMAD, V_MAD, 32},
    {WEIR_PTX_OP_VSET, V_SET, 32},          {WEIR_PTX_OP_VADD2, V_ADD, 16},
    {WEIR_PTX_OP_VSUB2, V_SUB, 16},         {WEIR_PTX_OP_VAVRG2, V_AVRG, 16},
    {WEIR_PTX_OP_VABSDIFF2, V_ABSDIFF, 16}, {WEIR_PTX_OP_VMIN2, V_MIN, 16},
    {WEIR_PTX_OP_VMAX2, V_MAX, 16},         {WEIR_PTX_OP_VSET2, V_SET, 16},
    {WEIR_PTX_OP_VADD4, V_ADD, 8},          {WEIR_PTX_OP_VSUB4, V_SUB, 8},
    {WEIR_PTX_OP_VAVRG4, V_AVRG, 8},        {WEIR_PTX_OP_VABSDIFF4, V_ABSDIFF, 8},
    {WEIR_PTX_OP_VMIN4, V_MIN, 8},          {WEIR_PTX_OP_VMAX4, V_MAX, 8},
    {WEIR_PTX_OP_VSET4, V_SET, 8},
};

static bool find_operation(uint16_t op, struct video *v)
{
    for (size_t r = 0; r < WEIR_COUNT(rows); r++) {
        if (rows[r].op == op) {
            v->operation = rows[r].operation;
            v->bits = rows[r].bits;
            return true;
        }
    }
    return false;
}

/* What the suffixes say. */
static void take_suffixes(const struct weir_ptx_inst *ir, struct video *v)
{
    const uint8_t *sources = &ir->types[v->operation == V_SET ? 0 : 1];
    v->signed_a = weir_ptx_type_class(sources[0]) == 'S';
    v->signed_b = weir_ptx_type_class(sources[1]) == 'S';
    v->signed_d = v->operation != V_SET && weir_ptx_type_class(ir->types[0]) == 'S';
    v->saturate = (ir->flags & WEIR_PTX_FLAG_SAT) != 0;
    v->wrap = weir_ptx_inst_has(ir, WEIR_PTX_MOD_WRAP);
    v->plus_one = weir_ptx_inst_has(ir, WEIR_PTX_MOD_PO);
    v->scale = weir_ptx_inst_has(ir, WEIR_PTX_MOD_SHR7)    ? 7
               : weir_ptx_inst_has(ir, WEIR_PTX_MOD_SHR15) ? 15
                                                           : 0;
    v->compare = ir->cmp;
    v->second = ir->action == WEIR_PTX_MOD_ADD   ? SECOND_ADD
                : ir->action == WEIR_PTX_MOD_MIN ? SECOND_MIN
                : ir->action == WEIR_PTX_MOD_MAX ? SECOND_MAX
                                                 : SECOND_NONE;
}

static bool take_parts(const struct weir_ptx_inst *ir, struct video *v)
{
    const struct weir_ptx_operand *o = ir->operands;
    v->minus_ab = o[1].minus != o[2].minus;
    v->minus_c = ir->n_operands > 3 && o[3].minus;
    if (v->bits == 32) {
        return scalar_part(o[0].selector, &v->at_d, &v->bits_d) &&
               scalar_part(o[1].selector, &v->at_a, &v->bits_a) &&
               scalar_part(o[2].selector, &v->at_b, &v->bits_b);
    }
    uint32_t n = 32u / v->bits;
    v->mask = write_mask(o[0].selector, n);
    return several_parts(o[1].selector, n, 0, v->pick_a) &&
           several_parts(o[2].selector, n, (uint8_t)n, v->pick_b);
}

/* Decode a source's whole register; the handler selects its part. */
static weir_x_ref whole_source(struct weir_x_decoder *x, const struct weir_ptx_operand *o)
{
    struct weir_ptx_operand whole = *o;
    whole.selector = NULL;
    whole.minus = false;
    return weir_x_source(x, &whole, 32, WEIR_PTX_TYPE_B32);
}

bool weir_x_decode_video(struct weir_x_decoder *x)
{
    const struct weir_ptx_inst *ir = x->ir;
    struct video *v = weir_x_decode_alloc(x, sizeof *v);
    if (!v || !find_operation(ir->op, v) || ir->n_types < (v->operation == V_SET ? 2 : 3)) {
        return false;
    }
    take_suffixes(ir, v);
    WEIR_FAIL_IF(!take_parts(ir, v), false);
    weir_x_ref sources[3] = {weir_x_const(x, 0, false), weir_x_const(x, 0, false),
                             weir_x_const(x, 0, false)};
    for (uint32_t k = 1; k < ir->n_operands; k++) {
        sources[k - 1] = whole_source(x, &ir->operands[k]);
    }
    struct weir_x_inst *i = weir_x_emit(x);
    i->fn = video;
    i->ext = v;
    i->d = weir_x_dest(x, &ir->operands[0]);
    i->a = sources[0];
    i->b = sources[1];
    i->c = sources[2];
    return i->d != WEIR_X_NO_REF;
}
