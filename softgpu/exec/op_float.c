/*
 * f32 and f64 arithmetic.
 *
 * The plain forms (nearest even, no .ftz, no .sat) are loops that vectorise; the .ftz forms have
 * loops that also flush; `general` handles all others: it sets the host's rounding mode and reads
 * the flags of each lane. A computed f32 NaN is always 0x7fffffff, as on a GPU. Approximate
 * instructions are more exact than required: they round from double.
 */
#include "softgpu/exec/half.h"
#include "softgpu/exec/internal.h"

#include <fenv.h>
#include <float.h>
#include <math.h>

static inline float canon(float f)
{
    return f != f ? weir_x_as_f32(0x7fffffffu) : f;
}

static inline float flush(float f)
{
    return fabsf(f) < FLT_MIN ? copysignf(0.0f, f) : f;
}

/* An f64 operation returns its first signalling NaN, or else its first NaN, quieted. */
#define QUIET64 0x0008000000000000ull
static double chosen_nan(double x, double y, double z)
{
    const uint64_t bits[3] = {weir_x_bits_f64(x), weir_x_bits_f64(y), weir_x_bits_f64(z)};
    uint64_t nan = 0;
    for (uint32_t k = 3; k-- > 0;) {
        bool is_nan = (bits[k] & (UINT64_MAX >> 1)) > 0x7ff0000000000000ull;
        bool signals = is_nan && (bits[k] & QUIET64) == 0;
        if (signals || (is_nan && (nan == 0 || (nan & QUIET64) != 0))) {
            nan = bits[k];
        }
    }
    return nan != 0 ? weir_x_as_f64(nan | QUIET64) : weir_x_as_f64(0xfff8000000000000ull);
}

#define HW_FMA __attribute__((target("avx2,fma")))

#define FLOAT2(name, attr, cell, row, pre, post, expr)                                             \
    attr static const struct weir_x_inst *name(struct weir_x_warp *w, const struct weir_x_inst *i) \
    {                                                                                              \
        cell *d = (cell *)row(w, i->d);                                                            \
        const cell *a = (const cell *)row(w, i->a);                                                \
        const cell *b = (const cell *)row(w, i->b);                                                \
        WEIR_X_EACH(w, l, {                                                                        \
            cell x = pre(a[l]);                                                                    \
            cell y = pre(b[l]);                                                                    \
            d[l] = post(expr);                                                                     \
        });                                                                                        \
        return i + 1;                                                                              \
    }
#define FLOAT3(name, attr, cell, row, pre, post, expr)                                             \
    attr static const struct weir_x_inst *name(struct weir_x_warp *w, const struct weir_x_inst *i) \
    {                                                                                              \
        cell *d = (cell *)row(w, i->d);                                                            \
        const cell *a = (const cell *)row(w, i->a);                                                \
        const cell *b = (const cell *)row(w, i->b);                                                \
        const cell *c = (const cell *)row(w, i->c);                                                \
        WEIR_X_EACH(w, l, {                                                                        \
            cell x = pre(a[l]);                                                                    \
            cell y = pre(b[l]);                                                                    \
            cell z = pre(c[l]);                                                                    \
            d[l] = post(expr);                                                                     \
        });                                                                                        \
        return i + 1;                                                                              \
    }
enum { G_ADD = 1, G_SUB, G_MUL, G_FMA, G_DIV, G_RCP, G_SQRT, G_MIN, G_MAX };

/*
 * Is a result +-FLT_MIN only because it was rounded as a subnormal number? With .ftz a GPU rounds
 * as if the exponent were unbounded, and flushes a result below FLT_MIN to zero.
 */
static bool rounds_to_tiny(uint8_t op, uint8_t round, float x, float y, float z)
{
    double exact = op == G_MUL   ? (double)x * y
                   : op == G_DIV ? (double)x / y
                   : op == G_FMA ? (double)x * y + z
                   : op == G_RCP ? 1.0 / x
                                 : (double)FLT_MIN;
    double magnitude = fabs(exact);
    bool away = (round == WEIR_X_RP && exact > 0) || (round == WEIR_X_RM && exact < 0);
    return away                 ? magnitude <= 0x1p-126 - 0x1p-150
           : round == WEIR_X_RN ? magnitude < 0x1p-126 - 0x1p-151
                                : magnitude < 0x1p-126;
}

/* .ftz for results that can come near FLT_MIN without being exact. */
#define TINY(name, attr, op, has_c, expr)                                                          \
    attr static const struct weir_x_inst *name(struct weir_x_warp *w, const struct weir_x_inst *i) \
    {                                                                                              \
        weir_x_f32 *d = (weir_x_f32 *)weir_x_w32(w, i->d);                                         \
        const weir_x_f32 *a = (const weir_x_f32 *)weir_x_w32(w, i->a);                             \
        const weir_x_f32 *b = (const weir_x_f32 *)weir_x_w32(w, i->b);                             \
        const weir_x_f32 *c = has_c ? (const weir_x_f32 *)weir_x_w32(w, i->c) : a;                 \
        float r[WEIR_X_LANES];                                                                     \
        bool any = false;                                                                          \
        for (uint32_t l = 0; l < WEIR_X_LANES; l++) {                                              \
            float x = flush(a[l]);                                                                 \
            float y = flush(b[l]);                                                                 \
            float z = flush(c[l]);                                                                 \
            (void)z;                                                                               \
            float v = (expr);                                                                      \
            any |= fabsf(v) == FLT_MIN;                                                            \
            r[l] = canon(flush(v));                                                                \
        }                                                                                          \
        for (uint32_t l = 0; l < WEIR_X_LANES && any; l++) {                                       \
            if (fabsf(r[l]) == FLT_MIN &&                                                          \
                rounds_to_tiny(op, WEIR_X_RN, flush(a[l]), flush(b[l]), flush(c[l]))) {            \
                r[l] = copysignf(0.0f, r[l]);                                                      \
            }                                                                                      \
        }                                                                                          \
        WEIR_X_EACH(w, l, d[l] = r[l]);                                                            \
        return i + 1;                                                                              \
    }

/* f64: NaNs are rare, so all lanes are computed before any result is checked for NaN. */
#define DOUBLE(name, attr, has_c, expr)                                                            \
    attr static const struct weir_x_inst *name(struct weir_x_warp *w, const struct weir_x_inst *i) \
    {                                                                                              \
        weir_x_f64 *d = (weir_x_f64 *)weir_x_w64(w, i->d);                                         \
        const weir_x_f64 *a = (const weir_x_f64 *)weir_x_w64(w, i->a);                             \
        const weir_x_f64 *b = (const weir_x_f64 *)weir_x_w64(w, i->b);                             \
        const weir_x_f64 *c = has_c ? (const weir_x_f64 *)weir_x_w64(w, i->c) : a;                 \
        double r[WEIR_X_LANES];                                                                    \
        bool any = false;                                                                          \
        for (uint32_t l = 0; l < WEIR_X_LANES; l++) {                                              \
            double x = a[l];                                                                       \
            double y = b[l];                                                                       \
            double z = c[l];                                                                       \
            (void)z;                                                                               \
            r[l] = (expr);                                                                         \
            any |= r[l] != r[l];                                                                   \
        }                                                                                          \
        for (uint32_t l = 0; l < WEIR_X_LANES && any; l++) {                                       \
            r[l] = r[l] != r[l] ? chosen_nan(a[l], b[l], c[l]) : r[l];                             \
        }                                                                                          \
        WEIR_X_EACH(w, l, d[l] = r[l]);                                                            \
        return i + 1;                                                                              \
    }
#define SAME(v)         (v)
#define CANON(v)        canon(v)
#define FLUSHED(v)      canon(flush(v))
#define F32(name, expr) FLOAT2(name##_f32, , weir_x_f32, weir_x_w32, SAME, CANON, expr)
F32(add, x + y)
F32(sub, x - y)
F32(mul, x *y)
F32(div, x / y)
DOUBLE(add_f64, , 0, x + y)
DOUBLE(sub_f64, , 0, x - y)
DOUBLE(mul_f64, , 0, x *y)
/* Division returns the first NaN, on a GPU as on the host. */
FLOAT2(div_f64, , weir_x_f64, weir_x_w64, SAME, SAME, x / y)
FLOAT2(add_ftz, , weir_x_f32, weir_x_w32, flush, FLUSHED, x + y)
FLOAT2(sub_ftz, , weir_x_f32, weir_x_w32, flush, FLUSHED, x - y)
FLOAT3(fma_f32, , weir_x_f32, weir_x_w32, SAME, CANON, __builtin_fmaf(x, y, z))
TINY(mul_ftz, , G_MUL, 0, x *y)
TINY(div_ftz, , G_DIV, 0, x / y)
TINY(fma_ftz, , G_FMA, 1, __builtin_fmaf(x, y, z))
DOUBLE(fma_f64, , 1, __builtin_fma(x, y, z))
#if defined(__x86_64__)
FLOAT3(fma_f32_hw, HW_FMA, weir_x_f32, weir_x_w32, SAME, CANON, __builtin_fmaf(x, y, z))
TINY(fma_ftz_hw, HW_FMA, G_FMA, 1, __builtin_fmaf(x, y, z))
DOUBLE(fma_f64_hw, HW_FMA, 1, __builtin_fma(x, y, z))
#endif

/* Keep the compiler from folding v, or moving it across a change of the rounding mode. */
#define OPAQUE(type, v)                                                                            \
    ({                                                                                             \
        volatile type opaque_ = (v);                                                               \
        opaque_;                                                                                   \
    })

#define COMPUTE(name, type, fused, root)                                                           \
    static type name(uint8_t op, type x, type y, type z)                                           \
    {                                                                                              \
        volatile type a = x;                                                                       \
        volatile type b = y;                                                                       \
        switch (op) {                                                                              \
        case G_ADD:                                                                                \
            return OPAQUE(type, a + b);                                                            \
        case G_SUB:                                                                                \
            return OPAQUE(type, a - b);                                                            \
        case G_MUL:                                                                                \
            return OPAQUE(type, a * b);                                                            \
        case G_FMA:                                                                                \
            return OPAQUE(type, fused(a, b, z));                                                   \
        case G_DIV:                                                                                \
            return OPAQUE(type, a / b);                                                            \
        case G_RCP:                                                                                \
            return OPAQUE(type, 1 / a);                                                            \
        default:                                                                                   \
            return OPAQUE(type, root(a));                                                          \
        }                                                                                          \
    }
COMPUTE(compute_f32, float, fmaf, sqrtf)
COMPUTE(compute_f64, double, fma, sqrt)

static int host_rounding(uint8_t round)
{
    switch (round) {
    case WEIR_X_RZ:
        return FE_TOWARDZERO;
    case WEIR_X_RM:
        return FE_DOWNWARD;
    case WEIR_X_RP:
        return FE_UPWARD;
    default:
        return FE_TONEAREST;
    }
}

static float saturate_f32(float f)
{
    return f > 0.0f ? WEIR_MIN(f, 1.0f) : 0.0f; /* NaN becomes 0 */
}

/* sub: G_*; flags FTZ, SAT; round */
static const struct weir_x_inst *general_f32(struct weir_x_warp *w, const struct weir_x_inst *i)
{
    weir_x_u32 *d = weir_x_w32(w, i->d);
    const weir_x_u32 *a = weir_x_w32(w, i->a);
    const weir_x_u32 *b = i->b != WEIR_X_NO_REF ? weir_x_w32(w, i->b) : a;
    const weir_x_u32 *c = i->c != WEIR_X_NO_REF ? weir_x_w32(w, i->c) : a;
    bool ftz = (i->flags & WEIR_X_F_FTZ) != 0;
    bool sat = (i->flags & WEIR_X_F_SAT) != 0;
    if (i->round != WEIR_X_RN) {
        fesetround(host_rounding(i->round));
    }
    WEIR_X_EACH_ACTIVE(w, l, {
        float x = weir_x_as_f32(a[l]);
        float y = weir_x_as_f32(b[l]);
        float z = weir_x_as_f32(c[l]);
        if (ftz) {
            x = flush(x);
            y = flush(y);
            z = flush(z);
        }
        float r = compute_f32(i->sub, x, y, z);
        if (ftz) {
            bool tiny = fabsf(r) == FLT_MIN && rounds_to_tiny(i->sub, i->round, x, y, z);
            r = tiny ? copysignf(0.0f, r) : flush(r);
        }
        r = sat ? saturate_f32(r) : canon(r);
        d[l] = (i->flags & WEIR_X_F_RELU) != 0 && r < 0 ? 0 : weir_x_bits_f32(r);
    });
    if (i->round != WEIR_X_RN) {
        fesetround(FE_TONEAREST);
    }
    return i + 1;
}

static const struct weir_x_inst *general_f64(struct weir_x_warp *w, const struct weir_x_inst *i)
{
    weir_x_u64 *d = weir_x_w64(w, i->d);
    const weir_x_u64 *a = weir_x_w64(w, i->a);
    const weir_x_u64 *b = i->b != WEIR_X_NO_REF ? weir_x_w64(w, i->b) : a;
    const weir_x_u64 *c = i->c != WEIR_X_NO_REF ? weir_x_w64(w, i->c) : a;
    if (i->round != WEIR_X_RN) {
        fesetround(host_rounding(i->round));
    }
    WEIR_X_EACH_ACTIVE(w, l, {
        double x = weir_x_as_f64(a[l]);
        double y = weir_x_as_f64(b[l]);
        double z = weir_x_as_f64(c[l]);
        double r = compute_f64(i->sub, x, y, z);
        d[l] = weir_x_bits_f64(r == r || i->sub == G_DIV ? r : chosen_nan(x, y, z));
    });
    if (i->round != WEIR_X_RN) {
        fesetround(FE_TONEAREST);
    }
    return i + 1;
}

static float min_f32(float x, float y, uint32_t flags)
{
    if (x != x || y != y) {
        return (flags & WEIR_X_F_NAN) != 0 ? NAN : x != x ? y : x;
    }
    return x < y || (x == y && signbit(x)) ? x : y;
}

static float max_f32(float x, float y, uint32_t flags)
{
    if (x != x || y != y) {
        return (flags & WEIR_X_F_NAN) != 0 ? NAN : x != x ? y : x;
    }
    return x > y || (x == y && !signbit(x)) ? x : y;
}

/* Fields: sub: G_MIN or G_MAX; two or three sources; flags for .ftz .NaN .xorsign.abs */
static const struct weir_x_inst *minmax_f32(struct weir_x_warp *w, const struct weir_x_inst *i)
{
    weir_x_f32 *d = (weir_x_f32 *)weir_x_w32(w, i->d);
    const weir_x_f32 *a = (const weir_x_f32 *)weir_x_w32(w, i->a);
    const weir_x_f32 *b = (const weir_x_f32 *)weir_x_w32(w, i->b);
    const weir_x_f32 *c = i->c != WEIR_X_NO_REF ? (const weir_x_f32 *)weir_x_w32(w, i->c) : NULL;
    bool ftz = (i->flags & WEIR_X_F_FTZ) != 0;
    WEIR_X_EACH_ACTIVE(w, l, {
        float x = ftz ? flush(a[l]) : a[l];
        float y = ftz ? flush(b[l]) : b[l];
        bool negative = (signbit(x) != 0) != (signbit(y) != 0);
        if ((i->flags & WEIR_X_F_XORSIGN) != 0) {
            x = fabsf(x);
            y = fabsf(y);
        }
        float r = i->sub == G_MIN ? min_f32(x, y, i->flags) : max_f32(x, y, i->flags);
        if (c) {
            float z = ftz ? flush(c[l]) : c[l];
            r = i->sub == G_MIN ? min_f32(r, z, i->flags) : max_f32(r, z, i->flags);
        }
        if ((i->flags & WEIR_X_F_XORSIGN) != 0 && r == r) {
            r = negative ? -fabsf(r) : fabsf(r);
        }
        d[l] = canon(r);
    });
    return i + 1;
}

static const struct weir_x_inst *minmax_f64(struct weir_x_warp *w, const struct weir_x_inst *i)
{
    weir_x_f64 *d = (weir_x_f64 *)weir_x_w64(w, i->d);
    const weir_x_f64 *a = (const weir_x_f64 *)weir_x_w64(w, i->a);
    const weir_x_f64 *b = (const weir_x_f64 *)weir_x_w64(w, i->b);
    WEIR_X_EACH_ACTIVE(w, l, {
        double x = a[l];
        double y = b[l];
        bool first =
            i->sub == G_MIN ? x < y || (x == y && signbit(x)) : x > y || (x == y && !signbit(x));
        d[l] = x != x && y != y ? chosen_nan(x, y, y) : x != x ? y : y != y ? x : first ? x : y;
    });
    return i + 1;
}

#define BITS1(name, cell, row, expr)                                                               \
    static const struct weir_x_inst *name(struct weir_x_warp *w, const struct weir_x_inst *i)      \
    {                                                                                              \
        cell *d = row(w, i->d);                                                                    \
        const cell *a = row(w, i->a);                                                              \
        WEIR_X_EACH(w, l, {                                                                        \
            cell x = a[l];                                                                         \
            d[l] = (expr);                                                                         \
        });                                                                                        \
        return i + 1;                                                                              \
    }
#define CANON_BITS(v) (((v)&0x7fffffffu) > 0x7f800000u ? 0x7fffffffu : (v))
#define IS_NAN64(v)   (((v) & (UINT64_MAX >> 1)) > 0x7ff0000000000000ull)
/* abs and neg make an f32 NaN canonical; an f64 NaN keeps its sign and is quieted. */
BITS1(abs_f32, weir_x_u32, weir_x_w32, CANON_BITS(x & 0x7fffffffu))
BITS1(abs_ftz, weir_x_u32, weir_x_w32,
      CANON_BITS(weir_x_bits_f32(flush(weir_x_as_f32(x & 0x7fffffffu)))))
BITS1(neg_f32, weir_x_u32, weir_x_w32, CANON_BITS(x ^ 0x80000000u))
BITS1(neg_ftz, weir_x_u32, weir_x_w32,
      CANON_BITS(weir_x_bits_f32(flush(weir_x_as_f32(x ^ 0x80000000u)))))
BITS1(abs_f64, weir_x_u64, weir_x_w64, IS_NAN64(x) ? x | QUIET64 : x & 0x7fffffffffffffffull)
BITS1(neg_f64, weir_x_u64, weir_x_w64, IS_NAN64(x) ? x | QUIET64 : x ^ 0x8000000000000000ull)

static const struct weir_x_inst *copysign_f32(struct weir_x_warp *w, const struct weir_x_inst *i)
{
    weir_x_u32 *d = weir_x_w32(w, i->d);
    const weir_x_u32 *a = weir_x_w32(w, i->a);
    const weir_x_u32 *b = weir_x_w32(w, i->b);
    WEIR_X_EACH(w, l, d[l] = (a[l] & 0x80000000u) | (b[l] & 0x7fffffffu));
    return i + 1;
}

static const struct weir_x_inst *copysign_f64(struct weir_x_warp *w, const struct weir_x_inst *i)
{
    weir_x_u64 *d = weir_x_w64(w, i->d);
    const weir_x_u64 *a = weir_x_w64(w, i->a);
    const weir_x_u64 *b = weir_x_w64(w, i->b);
    WEIR_X_EACH(w, l, d[l] = (a[l] & (1ull << 63)) | (b[l] & ~(1ull << 63)));
    return i + 1;
}

/* Approximate functions of one f32. */
static float approx_f32(uint16_t op, float x)
{
    switch (op) {
    case WEIR_PTX_OP_RCP:
        return 1.0f / x;
    case WEIR_PTX_OP_SQRT:
        return sqrtf(x);
    case WEIR_PTX_OP_RSQRT:
        return (float)(1.0 / sqrt((double)x));
    case WEIR_PTX_OP_SIN:
        return (float)sin((double)x);
    case WEIR_PTX_OP_COS:
        return (float)cos((double)x);
    case WEIR_PTX_OP_LG2:
        return (float)log2((double)x);
    case WEIR_PTX_OP_EX2:
        return (float)exp2((double)x);
    default:
        return (float)tanh((double)x);
    }
}

static const struct weir_x_inst *unary_approx_f32(struct weir_x_warp *w,
                                                  const struct weir_x_inst *i)
{
    weir_x_f32 *d = (weir_x_f32 *)weir_x_w32(w, i->d);
    const weir_x_f32 *a = (const weir_x_f32 *)weir_x_w32(w, i->a);
    bool ftz = (i->flags & WEIR_X_F_FTZ) != 0;
    uint16_t op = (uint16_t)(i->sub | i->sub2 << 8);
    WEIR_X_EACH_ACTIVE(w, l, {
        float r = approx_f32(op, ftz ? flush(a[l]) : a[l]);
        d[l] = canon(ftz ? flush(r) : r);
    });
    return i + 1;
}

/*
 * rcp and rsqrt .approx.ftz.f64 read only the high word and set the low one to zero. Any NaN that
 * they return has this one encoding.
 */
#define GROSS_NAN 0x7fffffff00000000ull
static const struct weir_x_inst *unary_approx_f64(struct weir_x_warp *w,
                                                  const struct weir_x_inst *i)
{
    weir_x_u64 *d = weir_x_w64(w, i->d);
    const weir_x_u64 *a = weir_x_w64(w, i->a);
    uint16_t op = (uint16_t)(i->sub | i->sub2 << 8);
    bool gross = (i->flags & WEIR_X_F_FTZ) != 0;
    WEIR_X_EACH_ACTIVE(w, l, {
        double x = weir_x_as_f64(gross ? a[l] & 0xffffffff00000000ull : a[l]);
        if (gross && fabs(x) < DBL_MIN) {
            x = copysign(0.0, x);
        }
        double y = op == WEIR_PTX_OP_RCP ? 1.0 / x : 1.0 / sqrt(x);
        if (gross && fabs(y) < DBL_MIN) {
            y = copysign(0.0, y);
        }
        d[l] = !gross   ? weir_x_bits_f64(y)
               : y != y ? GROSS_NAN
                        : weir_x_bits_f64(y) & 0xffffffff00000000ull;
    });
    return i + 1;
}

/* div.approx: a divisor above 2^126 gives 0, as multiplying by its reciprocal does. */
static const struct weir_x_inst *div_approx(struct weir_x_warp *w, const struct weir_x_inst *i)
{
    weir_x_f32 *d = (weir_x_f32 *)weir_x_w32(w, i->d);
    const weir_x_f32 *a = (const weir_x_f32 *)weir_x_w32(w, i->a);
    const weir_x_f32 *b = (const weir_x_f32 *)weir_x_w32(w, i->b);
    bool ftz = (i->flags & WEIR_X_F_FTZ) != 0;
    bool full = (i->flags & WEIR_X_F_FULL) != 0;
    WEIR_X_EACH_ACTIVE(w, l, {
        float x = ftz ? flush(a[l]) : a[l];
        float y = ftz ? flush(b[l]) : b[l];
        float r = x / y;
        if (!full && fabsf(y) > 0x1p126f && y == y && !isinf(y)) {
            r = isinf(x) ? (float)NAN : x != x ? x : copysignf(0.0f, x) * copysignf(1.0f, y);
        }
        d[l] = canon(ftz ? flush(r) : r);
    });
    return i + 1;
}

/* testp: sub is the modifier's place in the list below; zero counts as normal */
static const struct weir_x_inst *testp(struct weir_x_warp *w, const struct weir_x_inst *i)
{
    bool wide = i->type == WEIR_PTX_TYPE_F64;
    uint32_t out = 0;
    WEIR_X_EACH_ACTIVE(w, l, {
        double x = wide ? weir_x_as_f64(weir_x_w64(w, i->a)[l])
                        : (double)weir_x_as_f32(weir_x_w32(w, i->a)[l]);
        double smallest = wide ? DBL_MIN : (double)FLT_MIN;
        bool sub = x != 0 && fabs(x) < smallest;
        bool yes = i->sub == 0   ? isfinite(x)
                   : i->sub == 1 ? isinf(x)
                   : i->sub == 2 ? x == x
                   : i->sub == 3 ? x != x
                   : i->sub == 4 ? isfinite(x) && !sub
                                 : sub;
        out |= yes ? 1u << l : 0;
    });
    weir_x_set_pred(w, i->d, out);
    return i + 1;
}

static const uint8_t operations[WEIR_PTX_OP_COUNT] = {
    [WEIR_PTX_OP_ADD] = G_ADD, [WEIR_PTX_OP_SUB] = G_SUB,   [WEIR_PTX_OP_MUL] = G_MUL,
    [WEIR_PTX_OP_FMA] = G_FMA, [WEIR_PTX_OP_MAD] = G_FMA,   [WEIR_PTX_OP_DIV] = G_DIV,
    [WEIR_PTX_OP_RCP] = G_RCP, [WEIR_PTX_OP_SQRT] = G_SQRT, [WEIR_PTX_OP_MIN] = G_MIN,
    [WEIR_PTX_OP_MAX] = G_MAX,
};

static weir_x_fn pick_fma(weir_x_fn plain, weir_x_fn hw)
{
#if defined(__x86_64__)
    return __builtin_cpu_supports("fma") && __builtin_cpu_supports("avx2") ? hw : plain;
#else
    (void)hw;
    return plain;
#endif
}

static weir_x_fn fast_f32(uint8_t op, bool ftz)
{
    switch (op) {
    case G_ADD:
        return ftz ? add_ftz : add_f32;
    case G_SUB:
        return ftz ? sub_ftz : sub_f32;
    case G_MUL:
        return ftz ? mul_ftz : mul_f32;
    case G_DIV:
        return ftz ? div_ftz : div_f32;
    case G_FMA:
#if defined(__x86_64__)
        return ftz ? pick_fma(fma_ftz, fma_ftz_hw) : pick_fma(fma_f32, fma_f32_hw);
#else
        return ftz ? fma_ftz : fma_f32;
#endif
    default:
        return NULL;
    }
}

static weir_x_fn fast_f64(uint8_t op)
{
    switch (op) {
    case G_ADD:
        return add_f64;
    case G_SUB:
        return sub_f64;
    case G_MUL:
        return mul_f64;
    case G_DIV:
        return div_f64;
    case G_FMA:
#if defined(__x86_64__)
        return pick_fma(fma_f64, fma_f64_hw);
#else
        return fma_f64;
#endif
    default:
        return NULL;
    }
}

static weir_x_fn find_testp(const struct weir_ptx_inst *ir, struct weir_x_inst *out)
{
    static const uint16_t tests[] = {WEIR_PTX_MOD_FINITE, WEIR_PTX_MOD_INFINITE,
                                     WEIR_PTX_MOD_NUMBER, WEIR_PTX_MOD_NOTANUMBER,
                                     WEIR_PTX_MOD_NORMAL, WEIR_PTX_MOD_SUBNORMAL};
    for (uint8_t t = 0; t < 6; t++) {
        if (weir_ptx_inst_has(ir, tests[t])) {
            out->sub = t;
            return testp;
        }
    }
    return NULL;
}

static weir_x_fn find_unary(const struct weir_ptx_inst *ir, struct weir_x_inst *out, bool f64)
{
    bool ftz = (ir->flags & WEIR_PTX_FLAG_FTZ) != 0;
    switch (ir->op) {
    case WEIR_PTX_OP_ABS:
        return f64 ? abs_f64 : ftz ? abs_ftz : abs_f32;
    case WEIR_PTX_OP_NEG:
        return f64 ? neg_f64 : ftz ? neg_ftz : neg_f32;
    case WEIR_PTX_OP_COPYSIGN:
        return f64 ? copysign_f64 : copysign_f32;
    case WEIR_PTX_OP_TESTP:
        return find_testp(ir, out);
    case WEIR_PTX_OP_RCP:
    case WEIR_PTX_OP_SQRT:
    case WEIR_PTX_OP_RSQRT:
    case WEIR_PTX_OP_SIN:
    case WEIR_PTX_OP_COS:
    case WEIR_PTX_OP_LG2:
    case WEIR_PTX_OP_EX2:
    case WEIR_PTX_OP_TANH:
        WEIR_FAIL_IF((ir->flags & WEIR_PTX_FLAG_APPROX) == 0 && ir->op != WEIR_PTX_OP_RSQRT, NULL);
        out->sub = (uint8_t)ir->op;
        out->sub2 = (uint8_t)(ir->op >> 8);
        return f64 ? unary_approx_f64 : unary_approx_f32;
    default:
        return NULL;
    }
}

weir_x_fn weir_x_find_float(const struct weir_ptx_inst *ir, struct weir_x_inst *out)
{
    bool f64 = ir->types[0] == WEIR_PTX_TYPE_F64;
    WEIR_FAIL_IF(!f64 && ir->types[0] != WEIR_PTX_TYPE_F32, NULL);
    weir_x_fn fn = find_unary(ir, out, f64);
    if (fn) {
        return fn;
    }
    uint8_t op = operations[ir->op];
    WEIR_FAIL_IF(op == 0, NULL);
    if (op == G_MIN || op == G_MAX) {
        out->sub = op;
        return f64 ? minmax_f64 : minmax_f32;
    }
    if (op == G_DIV && (ir->flags & (WEIR_PTX_FLAG_APPROX | WEIR_PTX_FLAG_FULL)) != 0) {
        return div_approx;
    }
    bool plain =
        out->round == WEIR_X_RN && (ir->flags & (WEIR_PTX_FLAG_SAT | WEIR_PTX_FLAG_RELU)) == 0;
    fn = !plain ? NULL : f64 ? fast_f64(op) : fast_f32(op, (ir->flags & WEIR_PTX_FLAG_FTZ) != 0);
    out->sub = op;
    return fn ? fn : f64 ? general_f64 : general_f32;
}
