/*
 * cvt: between all integer and floating-point types.
 *
 * Frequent pairs of types have their own loops. All others convert to a 64-bit integer or a double,
 * which hold every source exactly, and then round once to the result's format.
 */
#include "softgpu/exec/half.h"
#include "softgpu/exec/internal.h"

#include <fenv.h>
#include <math.h>

#define DIRECT(name, wa, ca, Ta, wd, cd, expr)                                                     \
    static const struct weir_x_inst *name(struct weir_x_warp *w, const struct weir_x_inst *i)      \
    {                                                                                              \
        cd *d = (cd *)wd(w, i->d);                                                                 \
        const ca *a = (const ca *)wa(w, i->a);                                                     \
        WEIR_X_EACH(w, l, {                                                                        \
            Ta x = (Ta)a[l];                                                                       \
            d[l] = (cd)(expr);                                                                     \
        });                                                                                        \
        return i + 1;                                                                              \
    }
DIRECT(u64_u32, weir_x_w32, weir_x_u32, uint32_t, weir_x_w64, weir_x_u64, x)
DIRECT(s64_s32, weir_x_w32, weir_x_u32, int32_t, weir_x_w64, weir_x_u64, (int64_t)x)
DIRECT(u32_u64, weir_x_w64, weir_x_u64, uint32_t, weir_x_w32, weir_x_u32, x)
DIRECT(u32_u16, weir_x_w32, weir_x_u32, uint16_t, weir_x_w32, weir_x_u32, x)
DIRECT(s32_s16, weir_x_w32, weir_x_u32, int16_t, weir_x_w32, weir_x_u32, (int32_t)x)
DIRECT(u64_u16, weir_x_w32, weir_x_u32, uint16_t, weir_x_w64, weir_x_u64, x)
DIRECT(s64_s16, weir_x_w32, weir_x_u32, int16_t, weir_x_w64, weir_x_u64, (int64_t)x)
DIRECT(u16_u64, weir_x_w64, weir_x_u64, uint16_t, weir_x_w32, weir_x_u32, x)
DIRECT(f32_s32, weir_x_w32, weir_x_u32, int32_t, weir_x_w32, weir_x_f32, x)
DIRECT(f32_u32, weir_x_w32, weir_x_u32, uint32_t, weir_x_w32, weir_x_f32, x)
DIRECT(f64_s32, weir_x_w32, weir_x_u32, int32_t, weir_x_w64, weir_x_f64, x)
DIRECT(f64_u32, weir_x_w32, weir_x_u32, uint32_t, weir_x_w64, weir_x_f64, x)
DIRECT(f64_f32, weir_x_w32, weir_x_f32, float, weir_x_w64, weir_x_f64, x)
DIRECT(f32_f16, weir_x_w32, weir_x_u32, uint16_t, weir_x_w32, weir_x_u32,
       (x & 0x7fffu) > 0x7c00u ? 0x7fffffffu : weir_x_bits_f32(weir_x_half_to_float(x)))
DIRECT(f32_bf16, weir_x_w32, weir_x_u32, uint16_t, weir_x_w32, weir_x_f32, weir_x_bf16_to_float(x))
DIRECT(f16_f32, weir_x_w32, weir_x_f32, float, weir_x_w32, weir_x_u32, weir_x_half_from_float(x))
DIRECT(bf16_f32, weir_x_w32, weir_x_f32, float, weir_x_w32, weir_x_u32, weir_x_bf16_from_float(x))

static uint64_t read_cell(const struct weir_x_warp *w, const struct weir_x_inst *i, uint32_t lane)
{
    return (i->sub & 1u) != 0 ? weir_x_w64(w, i->a)[lane] : weir_x_w32(w, i->a)[lane];
}

/* Fields: sub: bit 0 the source has 64 bits, bit 1 the result has; bit 2 round to an integer */
static void write_cell(const struct weir_x_warp *w, const struct weir_x_inst *i, uint32_t lane,
                       uint64_t value)
{
    if ((i->sub & 2u) != 0) {
        weir_x_w64(w, i->d)[lane] = value;
    } else {
        weir_x_w32(w, i->d)[lane] = (uint32_t)value;
    }
}

static const struct weir_x_format *format_of(uint8_t type)
{
    static const struct weir_x_format *const formats[WEIR_PTX_TYPE_COUNT] = {
        [WEIR_PTX_TYPE_F16] = &weir_x_format_f16,     [WEIR_PTX_TYPE_F16X2] = &weir_x_format_f16,
        [WEIR_PTX_TYPE_BF16] = &weir_x_format_bf16,   [WEIR_PTX_TYPE_BF16X2] = &weir_x_format_bf16,
        [WEIR_PTX_TYPE_F32] = &weir_x_format_f32,     [WEIR_PTX_TYPE_F64] = &weir_x_format_f64,
        [WEIR_PTX_TYPE_TF32] = &weir_x_format_tf32,   [WEIR_PTX_TYPE_E4M3X2] = &weir_x_format_e4m3,
        [WEIR_PTX_TYPE_E5M2X2] = &weir_x_format_e5m2,
    };
    return formats[type];
}

static double read_float(uint8_t type, uint64_t bits)
{
    if (type == WEIR_PTX_TYPE_F64) {
        return weir_x_as_f64(bits);
    }
    if (type == WEIR_PTX_TYPE_F32) {
        return (double)weir_x_as_f32((uint32_t)bits);
    }
    if (type == WEIR_PTX_TYPE_F16) {
        return (double)weir_x_half_to_float((uint16_t)bits);
    }
    if (type == WEIR_PTX_TYPE_BF16) {
        return (double)weir_x_bf16_to_float((uint16_t)bits);
    }
    return weir_x_format_to_double(format_of(type), bits);
}

static double round_integral(double x, uint8_t round)
{
    switch (round) {
    case WEIR_X_RZ:
        return trunc(x);
    case WEIR_X_RM:
        return floor(x);
    case WEIR_X_RP:
        return ceil(x);
    case WEIR_X_RNA:
        return round > 0 ? (x < 0 ? ceil(x - 0.5) : floor(x + 0.5)) : x;
    default:
        return nearbyint(x);
    }
}

/* Convert to an integer type and clamp. A NaN becomes 0, or the highest bit alone if the source is
 * f64 or the result has 64 bits. */
static uint64_t float_to_int(double x, uint8_t type, uint8_t round, bool from_f64)
{
    uint32_t bits = weir_ptx_type_bits(type);
    bool is_signed = weir_ptx_type_class(type) == 'S';
    if (x != x) {
        uint64_t top = 1ull << (bits - 1);
        return bits != 64 && !from_f64 ? 0 : is_signed ? 0 - top : top;
    }
    x = round_integral(x, round);
    if (is_signed) {
        double limit = ldexp(1.0, (int)bits - 1);
        uint64_t top = (1ull << (bits - 1)) - 1;
        return x >= limit ? top : x < -limit ? ~top : (uint64_t)(int64_t)x;
    }
    double limit = ldexp(1.0, (int)bits);
    uint64_t top = bits == 64 ? UINT64_MAX : (1ull << bits) - 1;
    return x >= limit ? top : x <= 0 ? 0 : (uint64_t)x;
}

static int64_t read_int(uint8_t type, uint64_t bits)
{
    uint32_t n = weir_ptx_type_bits(type);
    if (n == 64) {
        return (int64_t)bits;
    }
    bits <<= 64 - n;
    return weir_ptx_type_class(type) == 'S' ? (int64_t)bits >> (64 - n)
                                            : (int64_t)(bits >> (64 - n));
}

static const struct weir_x_inst *int_to_int(struct weir_x_warp *w, const struct weir_x_inst *i)
{
    bool sat = (i->flags & WEIR_X_F_SAT) != 0;
    bool from_signed = weir_ptx_type_class(i->type2) == 'S';
    bool to_signed = weir_ptx_type_class(i->type) == 'S';
    uint32_t bits = weir_ptx_type_bits(i->type);
    uint64_t top = to_signed    ? (1ull << (bits - 1)) - 1
                   : bits == 64 ? UINT64_MAX
                                : (1ull << bits) - 1;
    WEIR_X_EACH_ACTIVE(w, l, {
        int64_t x = read_int(i->type2, read_cell(w, i, l));
        bool negative = from_signed && x < 0;
        if (sat && negative) {
            int64_t low = to_signed ? -(int64_t)top - 1 : 0;
            x = WEIR_MAX(x, low);
        } else if (sat && (uint64_t)x > top) {
            x = (int64_t)top;
        }
        /* A result register wider than the type is extended as the type says. */
        write_cell(w, i, l, (uint64_t)read_int(i->type, (uint64_t)x));
    });
    return i + 1;
}

static const struct weir_x_inst *cvt_float_to_int(struct weir_x_warp *w,
                                                  const struct weir_x_inst *i)
{
    bool ftz = (i->flags & WEIR_X_F_FTZ) != 0 && i->type2 == WEIR_PTX_TYPE_F32;
    WEIR_X_EACH_ACTIVE(w, l, {
        double x = read_float(i->type2, read_cell(w, i, l));
        if (ftz && fabs(x) < 0x1p-126) {
            x = 0;
        }
        write_cell(w, i, l, float_to_int(x, i->type, i->round, i->type2 == WEIR_PTX_TYPE_F64));
    });
    return i + 1;
}

static const struct weir_x_inst *int_to_float(struct weir_x_warp *w, const struct weir_x_inst *i)
{
    const struct weir_x_format *format = format_of(i->type);
    bool is_signed = weir_ptx_type_class(i->type2) == 'S';
    WEIR_X_EACH_ACTIVE(w, l, {
        int64_t x = read_int(i->type2, read_cell(w, i, l));
        bool negative = is_signed && x < 0;
        uint64_t magnitude = negative ? 0 - (uint64_t)x : (uint64_t)x;
        if ((i->flags & WEIR_X_F_SAT) != 0) { /* to [0, 1] */
            magnitude = negative ? 0 : WEIR_MIN(magnitude, 1);
            negative = false;
        }
        write_cell(w, i, l, weir_x_format_pack(format, negative, magnitude, 0, i->round, 0));
    });
    return i + 1;
}

/* Convert a NaN to or from f64: quiet it, but keep the sign and the payload's high bits. */
static uint64_t f64_nan(uint8_t to, uint64_t bits)
{
    const struct weir_x_format *f = format_of(to);
    uint64_t top = (1ull << f->exponent_bits) - 1;
    uint64_t payload = (bits & 0xfffffffffffffull) >> (52 - f->mantissa_bits);
    return (bits >> 63 << (f->exponent_bits + f->mantissa_bits)) | top << f->mantissa_bits |
           payload | 1ull << (f->mantissa_bits - 1);
}

static uint64_t nan_to_f64(uint8_t from, uint64_t bits)
{
    const struct weir_x_format *f = format_of(from);
    uint64_t payload = bits & ((1ull << f->mantissa_bits) - 1);
    return (bits >> (f->exponent_bits + f->mantissa_bits) & 1u) << 63 | 0x7ff8000000000000ull |
           payload << (52 - f->mantissa_bits);
}

/* Convert one value to the result's format with the instruction's flags. */
static uint64_t to_format(const struct weir_x_inst *i, double x)
{
    const struct weir_x_format *format = format_of(i->type);
    bool narrow = i->type == WEIR_PTX_TYPE_F16; /* .ftz matters only if both sides are f32 */
    if ((i->flags & WEIR_X_F_FTZ) != 0 && i->type2 == WEIR_PTX_TYPE_F32 && !narrow &&
        fabs(x) < 0x1p-126) {
        x = copysign(0.0, x);
    }
    if ((i->flags & WEIR_X_F_SAT) != 0) {
        x = x > 0 ? WEIR_MIN(x, 1) : 0;
    }
    if ((i->flags & WEIR_X_F_RELU) != 0 && x <= 0) {
        x = 0; /* -0 too */
    }
    if ((i->sub & 4u) != 0) {
        x = round_integral(x, i->round);
    }
    uint64_t bits = weir_x_format_from_double(format, x, i->round, (i->flags & WEIR_X_F_NAN) != 0);
    if ((i->flags & WEIR_X_F_FTZ) != 0 && i->type == WEIR_PTX_TYPE_F32 &&
        (bits & 0x7f800000u) == 0) {
        bits &= 0x80000000u;
    }
    return i->type == WEIR_PTX_TYPE_TF32 ? bits << 13 : bits;
}

static uint64_t convert_float(const struct weir_x_inst *i, uint64_t bits)
{
    double x = read_float(i->type2, bits);
    bool keeps = (i->flags & (WEIR_X_F_SAT | WEIR_X_F_FTZ)) == 0 || i->type2 == WEIR_PTX_TYPE_F64;
    if (x != x && (i->flags & WEIR_X_F_SAT) == 0) {
        if (i->type2 == WEIR_PTX_TYPE_F64) {
            return f64_nan(i->type, bits);
        }
        if (i->type == WEIR_PTX_TYPE_F64) {
            return nan_to_f64(i->type2, keeps ? bits : 0x7fffffffu);
        }
    }
    return to_format(i, x);
}

static const struct weir_x_inst *float_to_float(struct weir_x_warp *w, const struct weir_x_inst *i)
{
    WEIR_X_EACH_ACTIVE(w, l, write_cell(w, i, l, convert_float(i, read_cell(w, i, l))));
    return i + 1;
}

/* cvt.rna.tf32.f32: halves round away from zero, and a NaN is truncated; .satfinite then decrements
 * values with the highest exponent, including NaN. */
static const struct weir_x_inst *tf32_rna(struct weir_x_warp *w, const struct weir_x_inst *i)
{
    weir_x_u32 *d = weir_x_w32(w, i->d);
    const weir_x_u32 *a = weir_x_w32(w, i->a);
    bool satfinite = (i->flags & WEIR_X_F_NAN) != 0;
    WEIR_X_EACH_ACTIVE(w, l, {
        bool nan = (a[l] & 0x7fffffffu) > 0x7f800000u;
        uint32_t r = (a[l] + (nan ? 0 : 0x1000u)) & 0xffffe000u;
        d[l] = satfinite && (r & 0x7f800000u) == 0x7f800000u ? r - 0x2000u : r;
    });
    return i + 1;
}

/* cvt.pack: a and b saturated to `bits`, above the low bits of c (if there is one). sub: signed */
static const struct weir_x_inst *pack(struct weir_x_warp *w, const struct weir_x_inst *i)
{
    weir_x_u32 *d = weir_x_w32(w, i->d);
    const weir_x_u32 *a = weir_x_w32(w, i->a);
    const weir_x_u32 *b = weir_x_w32(w, i->b);
    const weir_x_u32 *c = i->c != WEIR_X_NO_REF ? weir_x_w32(w, i->c) : NULL;
    uint32_t bits = weir_ptx_type_bits(i->type);
    bool is_signed = weir_ptx_type_class(i->type) == 'S';
    int32_t high = (1 << (is_signed ? bits - 1 : bits)) - 1;
    int32_t low = is_signed ? -high - 1 : 0;
    uint32_t mask = (1u << bits) - 1;
    WEIR_X_EACH_ACTIVE(w, l, {
        int32_t x = (int32_t)a[l];
        int32_t y = (int32_t)b[l];
        uint32_t r = ((uint32_t)(x > high ? high : WEIR_MAX(x, low)) & mask) << bits;
        r |= (uint32_t)(y > high ? high : WEIR_MAX(y, low)) & mask;
        d[l] = r | (c ? c[l] << (2 * bits) : 0);
    });
    return i + 1;
}

static uint32_t element_bits(uint8_t type)
{
    return weir_ptx_type_bits(type) / 2;
}

/* cvt.x2 d, a, b: a goes high, b low */
static const struct weir_x_inst *pair_from_two(struct weir_x_warp *w, const struct weir_x_inst *i)
{
    uint32_t bits = element_bits(i->type);
    const weir_x_u32 *b = weir_x_w32(w, i->b);
    WEIR_X_EACH_ACTIVE(w, l, {
        uint64_t high = to_format(i, read_float(i->type2, read_cell(w, i, l)));
        uint64_t low = to_format(i, read_float(i->type2, b[l]));
        write_cell(w, i, l, high << bits | low);
    });
    return i + 1;
}

static uint8_t half_type(uint8_t type)
{
    return type == WEIR_PTX_TYPE_F16X2    ? WEIR_PTX_TYPE_F16
           : type == WEIR_PTX_TYPE_BF16X2 ? WEIR_PTX_TYPE_BF16
                                          : type;
}

static const struct weir_x_inst *pair_to_pair(struct weir_x_warp *w, const struct weir_x_inst *i)
{
    uint32_t from = element_bits(i->type2);
    uint32_t to = element_bits(i->type);
    uint64_t mask = (1ull << from) - 1;
    uint8_t element = half_type(i->type2);
    WEIR_X_EACH_ACTIVE(w, l, {
        uint64_t source = read_cell(w, i, l);
        uint64_t high = to_format(i, read_float(element, source >> from & mask));
        uint64_t low = to_format(i, read_float(element, source & mask));
        write_cell(w, i, l, high << to | low);
    });
    return i + 1;
}

/* Convert f64 to f32 in the current rounding mode (nearest). */
static const struct weir_x_inst *f32_f64(struct weir_x_warp *w, const struct weir_x_inst *i)
{
    weir_x_f32 *d = (weir_x_f32 *)weir_x_w32(w, i->d);
    const weir_x_f64 *a = (const weir_x_f64 *)weir_x_w64(w, i->a);
    WEIR_X_EACH(w, l, d[l] = (float)a[l]);
    return i + 1;
}

static const struct {
    uint8_t to, from;
    bool rounds; /* requires .rn; else the conversion is exact and has no suffix */
    weir_x_fn fn;
} direct_rows[] = {
#define D(to, from, rounds, fn)                                                                    \
    {                                                                                              \
        WEIR_PTX_TYPE_##to, WEIR_PTX_TYPE_##from, rounds, fn                                       \
    }
    D(U64, U32, false, u64_u32), D(S64, S32, false, s64_s32),  D(S64, U32, false, u64_u32),
    D(U64, S32, false, s64_s32), D(U32, U64, false, u32_u64),  D(U32, S64, false, u32_u64),
    D(S32, U64, false, u32_u64), D(S32, S64, false, u32_u64),  D(U32, U16, false, u32_u16),
    D(S32, U16, false, u32_u16), D(S32, S16, false, s32_s16),  D(U32, S16, false, s32_s16),
    D(U16, U32, false, u32_u16), D(U16, S32, false, u32_u16),  D(U16, U16, false, u32_u16),
    D(U64, U16, false, u64_u16), D(S64, U16, false, u64_u16),  D(S64, S16, false, s64_s16),
    D(U16, U64, false, u16_u64), D(U16, S64, false, u16_u64),  D(F32, S32, true, f32_s32),
    D(F32, U32, true, f32_u32),  D(F64, S32, true, f64_s32),   D(F64, U32, true, f64_u32),
    D(F64, F32, false, f64_f32), D(F32, F16, false, f32_f16),  D(F32, BF16, false, f32_bf16),
    D(F16, F32, true, f16_f32),  D(BF16, F32, true, bf16_f32), D(F32, F64, true, f32_f64),
};

static bool is_pair(uint8_t type)
{
    return type == WEIR_PTX_TYPE_F16X2 || type == WEIR_PTX_TYPE_BF16X2 ||
           type == WEIR_PTX_TYPE_E4M3X2 || type == WEIR_PTX_TYPE_E5M2X2;
}

static weir_x_fn find_pair(const struct weir_ptx_inst *ir, struct weir_x_inst *out)
{
    if (ir->n_operands == 3 && is_pair(out->type) && out->type2 == WEIR_PTX_TYPE_F32) {
        return pair_from_two;
    }
    return ir->n_operands == 2 && is_pair(out->type) && is_pair(out->type2) ? pair_to_pair : NULL;
}

/* decode.c has set type, type2, round, flags (SATFINITE as NAN), widths in sub, d, a and b. */
weir_x_fn weir_x_find_cvt(const struct weir_ptx_inst *ir, struct weir_x_inst *out)
{
    char to = weir_ptx_type_class(out->type);
    char from = weir_ptx_type_class(out->type2);
    if (weir_ptx_inst_has(ir, WEIR_PTX_MOD_PACK)) {
        return ir->n_operands > 2 && weir_ptx_type_bits(out->type) <= 16 ? pack : NULL;
    }
    if (out->type == WEIR_PTX_TYPE_TF32 && out->round == WEIR_X_RNA) {
        return tf32_rna;
    }
    bool natural = ((out->sub & 1u) != 0) == (weir_ptx_type_bits(out->type2) == 64) &&
                   ((out->sub & 2u) != 0) == (weir_ptx_type_bits(out->type) == 64);
    for (size_t r = 0; natural && out->flags == 0 && r < WEIR_COUNT(direct_rows); r++) {
        if (direct_rows[r].to == out->type && direct_rows[r].from == out->type2 &&
            (!direct_rows[r].rounds || out->round == WEIR_X_RN)) {
            return direct_rows[r].fn;
        }
    }
    if (to != 'F' && from != 'F') {
        return to == 'P' || from == 'P' ? NULL : int_to_int;
    }
    if (is_pair(out->type) || is_pair(out->type2)) {
        return find_pair(ir, out);
    }
    if ((to == 'F' && !format_of(out->type)) || (from == 'F' && !format_of(out->type2)) ||
        ir->n_operands != 2) {
        return NULL;
    }
    if (to == 'F' && from == 'F') {
        bool integral = ir->round >= WEIR_PTX_MOD_RNI && ir->round <= WEIR_PTX_MOD_RPI;
        out->sub |= integral ? 4 : 0;
        return float_to_float;
    }
    return to == 'F' ? int_to_float : cvt_float_to_int;
}
