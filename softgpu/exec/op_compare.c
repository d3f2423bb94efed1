/* setp and set: comparisons to a predicate or to a mask,
 * alone or combined with another predicate. */
#include "softgpu/exec/half.h"
#include "softgpu/exec/internal.h"

#include <float.h>
#include <math.h>

static inline float flush(float f)
{
    return fabsf(f) < FLT_MIN ? copysignf(0.0f, f) : f;
}

/* Compare without branches, so that the loop over lanes vectorises. */
#define COMPARE(name, T, row, cell, load, expr)                                                    \
    static uint32_t name(struct weir_x_warp *w, const struct weir_x_inst *i)                       \
    {                                                                                              \
        const cell *a = (const cell *)row(w, i->a);                                                \
        const cell *b = (const cell *)row(w, i->b);                                                \
        uint32_t out = 0;                                                                          \
        for (uint32_t l = 0; l < WEIR_X_LANES; l++) {                                              \
            T x = (T)load(a[l]);                                                                   \
            T y = (T)load(b[l]);                                                                   \
            out |= (uint32_t)((expr) != 0) << l;                                                   \
        }                                                                                          \
        return out;                                                                                \
    }
#define AS_IS(v) (v)
#define INT_SET(t, T, row, cell)                                                                   \
    COMPARE(eq_##t, T, row, cell, AS_IS, x == y)                                                   \
    COMPARE(ne_##t, T, row, cell, AS_IS, x != y)                                                   \
    COMPARE(lt_##t, T, row, cell, AS_IS, x < y)                                                    \
    COMPARE(le_##t, T, row, cell, AS_IS, x <= y)                                                   \
    COMPARE(gt_##t, T, row, cell, AS_IS, x > y)                                                    \
    COMPARE(ge_##t, T, row, cell, AS_IS, x >= y)
INT_SET(u16, uint16_t, weir_x_w32, weir_x_u32)
INT_SET(s16, int16_t, weir_x_w32, weir_x_u32)
INT_SET(u32, uint32_t, weir_x_w32, weir_x_u32)
INT_SET(s32, int32_t, weir_x_w32, weir_x_u32)
INT_SET(u64, uint64_t, weir_x_w64, weir_x_u64)
INT_SET(s64, int64_t, weir_x_w64, weir_x_u64)
#define FLOAT_SET(t, T, row, cell, load)                                                           \
    COMPARE(eq_##t, T, row, cell, load, x == y)                                                    \
    COMPARE(ne_##t, T, row, cell, load, x<y || x> y)                                               \
    COMPARE(lt_##t, T, row, cell, load, x < y)                                                     \
    COMPARE(le_##t, T, row, cell, load, x <= y)                                                    \
    COMPARE(gt_##t, T, row, cell, load, x > y)                                                     \
    COMPARE(ge_##t, T, row, cell, load, x >= y)                                                    \
    COMPARE(equ_##t, T, row, cell, load, !(x < y || x > y))                                        \
    COMPARE(neu_##t, T, row, cell, load, x != y)                                                   \
    COMPARE(ltu_##t, T, row, cell, load, !(x >= y))                                                \
    COMPARE(leu_##t, T, row, cell, load, !(x > y))                                                 \
    COMPARE(gtu_##t, T, row, cell, load, !(x <= y))                                                \
    COMPARE(geu_##t, T, row, cell, load, !(x < y))                                                 \
    COMPARE(num_##t, T, row, cell, load, x == x && y == y)                                         \
    COMPARE(nan_##t, T, row, cell, load, x != x || y != y)
#define HALF(v)      weir_x_half_to_float((uint16_t)(v))
#define HALF_HIGH(v) weir_x_half_to_float((uint16_t)((v) >> 16))
/* Loads with .ftz: a number whose exponent is 0 becomes a zero. */
#define FTZ(v)      ((uint16_t)((v) & (((v)&0x7c00u) == 0 ? 0x8000u : 0xffffu)))
#define HALF_FTZ(v) weir_x_half_to_float(FTZ(v))
#define HIGH_FTZ(v) weir_x_half_to_float(FTZ((v) >> 16))
#define BF(v)       weir_x_bf16_to_float((uint16_t)(v))
#define BF_HIGH(v)  weir_x_bf16_to_float((uint16_t)((v) >> 16))
FLOAT_SET(f32, float, weir_x_w32, weir_x_f32, AS_IS)
FLOAT_SET(ftz, float, weir_x_w32, weir_x_f32, flush)
FLOAT_SET(f64, double, weir_x_w64, weir_x_f64, AS_IS)
FLOAT_SET(f16, float, weir_x_w32, weir_x_u32, HALF)
FLOAT_SET(f16h, float, weir_x_w32, weir_x_u32, HALF_HIGH)
FLOAT_SET(f16z, float, weir_x_w32, weir_x_u32, HALF_FTZ)
FLOAT_SET(f16zh, float, weir_x_w32, weir_x_u32, HIGH_FTZ)
FLOAT_SET(bf16, float, weir_x_w32, weir_x_u32, BF)
FLOAT_SET(bf16h, float, weir_x_w32, weir_x_u32, BF_HIGH)

struct compare_row {
    uint16_t cmp;
    uint8_t type;
    weir_x_compare_fn fn;
};
#define C(cmp, type, fn)                                                                           \
    {                                                                                              \
        WEIR_PTX_MOD_##cmp, WEIR_PTX_TYPE_##type, fn                                               \
    }
#define INT_ROWS(type, t)                                                                          \
    C(EQ, type, eq_##t), C(NE, type, ne_##t), C(LT, type, lt_##t), C(LE, type, le_##t),            \
        C(GT, type, gt_##t), C(GE, type, ge_##t)
#define UNSIGNED_ROWS(type, t)                                                                     \
    INT_ROWS(type, t), C(LO, type, lt_##t), C(LS, type, le_##t), C(HI, type, gt_##t),              \
        C(HS, type, ge_##t)
#define FLOAT_ROWS(type, t)                                                                        \
    INT_ROWS(type, t), C(EQU, type, equ_##t), C(NEU, type, neu_##t), C(LTU, type, ltu_##t),        \
        C(LEU, type, leu_##t), C(GTU, type, gtu_##t), C(GEU, type, geu_##t),                       \
        C(NUM, type, num_##t), C(NAN, type, nan_##t)
static const struct compare_row rows[] = {
    UNSIGNED_ROWS(U16, u16), INT_ROWS(S16, s16),     UNSIGNED_ROWS(B16, u16),
    UNSIGNED_ROWS(U32, u32), INT_ROWS(S32, s32),     UNSIGNED_ROWS(B32, u32),
    UNSIGNED_ROWS(U64, u64), INT_ROWS(S64, s64),     UNSIGNED_ROWS(B64, u64),
    FLOAT_ROWS(F32, f32),    FLOAT_ROWS(F64, f64),   FLOAT_ROWS(F16, f16),
    FLOAT_ROWS(BF16, bf16),  FLOAT_ROWS(F16X2, f16), FLOAT_ROWS(BF16X2, bf16),
};
/* The same with .ftz, and the high halves of packed types. */
static const struct compare_row ftz_rows[] = {FLOAT_ROWS(F32, ftz), FLOAT_ROWS(F16, f16z),
                                              FLOAT_ROWS(F16X2, f16z)};
static const struct compare_row high_rows[] = {FLOAT_ROWS(F16X2, f16h), FLOAT_ROWS(BF16X2, bf16h)};
static const struct compare_row high_ftz_rows[] = {FLOAT_ROWS(F16X2, f16zh)};

static weir_x_compare_fn find(const struct compare_row *list, size_t n, uint16_t cmp, uint8_t type)
{
    size_t at = WEIR_FIRST(r, n, list[r].cmp == cmp && list[r].type == type);
    return at < n ? list[at].fn : NULL;
}
#define FIND(list, cmp, type) find(list, sizeof(list) / sizeof(list)[0], cmp, type)
/* Search the list for .ftz if the instruction and its type have it, else the plain list. */
#define FIND_FTZ(list, ftz_list, ir, type)                                                         \
    ({                                                                                             \
        bool ftz_ = ((ir)->flags & WEIR_PTX_FLAG_FTZ) != 0;                                        \
        weir_x_compare_fn fn_ = ftz_ ? FIND(ftz_list, (ir)->cmp, type) : NULL;                     \
        fn_ ? fn_ : FIND(list, (ir)->cmp, type);                                                   \
    })

static const struct weir_x_inst *setp_simple(struct weir_x_warp *w, const struct weir_x_inst *i)
{
    weir_x_set_pred(w, i->d, i->compare(w, i));
    return i + 1;
}

/* Fields: sub: 0 none, 1 and, 2 or, 3 xor with predicate c (sub2 bit 0: negated); e: 2nd result */
static uint32_t combine(const struct weir_x_warp *w, const struct weir_x_inst *i, uint32_t value)
{
    if (i->sub == 0) {
        return value;
    }
    uint32_t c = weir_x_pred(w, i->c) ^ ((i->sub2 & 1u) != 0 ? WEIR_X_FULL : 0);
    return i->sub == 1 ? value & c : i->sub == 2 ? value | c : value ^ c;
}

static const struct weir_x_inst *setp_general(struct weir_x_warp *w, const struct weir_x_inst *i)
{
    uint32_t value = i->compare(w, i);
    uint32_t first = combine(w, i, value);
    uint32_t second = combine(w, i, ~value);
    if (i->d != WEIR_X_NO_REF) {
        weir_x_set_pred(w, i->d, first);
    }
    if (i->e != WEIR_X_NO_REF) {
        weir_x_set_pred(w, i->e, second);
    }
    return i + 1;
}

/* setp on a packed type: each half has its own destination. */
static const struct weir_x_inst *setp_packed(struct weir_x_warp *w, const struct weir_x_inst *i)
{
    uint32_t low = combine(w, i, i->compare(w, i));
    uint32_t high = combine(w, i, ((weir_x_compare_fn)(uintptr_t)i->refs)(w, i));
    if (i->d != WEIR_X_NO_REF) {
        weir_x_set_pred(w, i->d, low);
    }
    if (i->e != WEIR_X_NO_REF) {
        weir_x_set_pred(w, i->e, high);
    }
    return i + 1;
}

/* What set gives for true, where that is not all ones. */
static const uint32_t true_values[WEIR_PTX_TYPE_COUNT] = {
    [WEIR_PTX_TYPE_F32] = 0x3f800000u,    [WEIR_PTX_TYPE_F16] = 0x3c00u,
    [WEIR_PTX_TYPE_BF16] = 0x3f80u,       [WEIR_PTX_TYPE_F16X2] = 0x3c003c00u,
    [WEIR_PTX_TYPE_U16] = 0xffffu,        [WEIR_PTX_TYPE_S16] = 0xffffu,
    [WEIR_PTX_TYPE_BF16X2] = 0x3f803f80u,
};

static const struct weir_x_inst *set(struct weir_x_warp *w, const struct weir_x_inst *i)
{
    uint32_t low = combine(w, i, i->compare(w, i));
    uint32_t high = low;
    uint32_t value = true_values[i->type] != 0 ? true_values[i->type] : UINT32_MAX;
    if (i->refs) {
        high = combine(w, i, ((weir_x_compare_fn)(uintptr_t)i->refs)(w, i));
    }
    weir_x_u32 *d = weir_x_w32(w, i->d);
    WEIR_X_EACH_ACTIVE(w, l, {
        uint32_t r = (low >> l & 1u) != 0 ? value & (i->refs ? 0xffffu : UINT32_MAX) : 0;
        if (i->refs) {
            r |= (high >> l & 1u) != 0 ? value & 0xffff0000u : 0;
        }
        d[l] = r;
    });
    return i + 1;
}

static weir_x_fn find_set(const struct weir_ptx_inst *ir, struct weir_x_inst *out, bool packed)
{
    uint8_t type = ir->types[ir->op == WEIR_PTX_OP_SET ? 1 : 0];
    if (packed) {
        out->refs = (const weir_x_ref *)(uintptr_t)FIND_FTZ(high_rows, high_ftz_rows, ir, type);
    }
    if (ir->op == WEIR_PTX_OP_SET) {
        out->type = ir->types[0];
        return set;
    }
    if (packed) {
        return setp_packed;
    }
    return out->sub == 0 && out->e == WEIR_X_NO_REF && out->d != WEIR_X_NO_REF ? setp_simple
                                                                               : setp_general;
}

weir_x_fn weir_x_find_compare(const struct weir_ptx_inst *ir, struct weir_x_inst *out)
{
    uint8_t type = ir->types[ir->op == WEIR_PTX_OP_SET ? 1 : 0];
    weir_x_compare_fn fn = FIND_FTZ(rows, ftz_rows, ir, type);
    WEIR_FAIL_IF(!fn, NULL);
    out->compare = fn;
    out->sub = ir->n_operands < 4               ? 0
               : ir->action == WEIR_PTX_MOD_AND ? 1
               : ir->action == WEIR_PTX_MOD_OR  ? 2
                                                : 3;
    return find_set(ir, out, type == WEIR_PTX_TYPE_F16X2 || type == WEIR_PTX_TYPE_BF16X2);
}
