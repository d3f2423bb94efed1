/* Rounding in software to any small floating-point format: see half.h. */
#include "softgpu/exec/half.h"

#include "softgpu/exec/internal.h"

#include <math.h>

const struct weir_x_format weir_x_format_f16 = {5, 10, 0};
const struct weir_x_format weir_x_format_bf16 = {8, 7, 0};
const struct weir_x_format weir_x_format_tf32 = {8, 10, 0};
const struct weir_x_format weir_x_format_f32 = {8, 23, 0};
const struct weir_x_format weir_x_format_f64 = {11, 52, 0};
const struct weir_x_format weir_x_format_e4m3 = {4, 3, 1};
const struct weir_x_format weir_x_format_e5m2 = {5, 2, 0};

static uint64_t nan_bits(const struct weir_x_format *f)
{
    if (f->mantissa_bits == 52) {
        return 0x7ff8000000000000ull;
    }
    return (1ull << (f->exponent_bits + f->mantissa_bits)) - 1;
}

static uint64_t largest(const struct weir_x_format *f)
{
    uint64_t all = (1ull << (f->exponent_bits + f->mantissa_bits)) - 1;
    return f->finite_only ? all - 1 : (((1ull << f->exponent_bits) - 1) << f->mantissa_bits) - 1;
}

static uint64_t overflow(const struct weir_x_format *f, int negative, int round, int saturate)
{
    int to_finite =
        round == WEIR_X_RZ || (round == WEIR_X_RM && !negative) || (round == WEIR_X_RP && negative);
    if (saturate || to_finite) {
        return largest(f);
    }
    return f->finite_only ? nan_bits(f) : largest(f) + 1;
}

static int rounds_up(int round, int negative, int odd, int half, int sticky)
{
    switch (round) {
    case WEIR_X_RZ:
        return 0;
    case WEIR_X_RM:
        return negative && (half || sticky);
    case WEIR_X_RP:
        return !negative && (half || sticky);
    case WEIR_X_RNA:
        return half;
    default:
        return half && (sticky || odd);
    }
}

uint64_t weir_x_format_pack(const struct weir_x_format *f, int negative, uint64_t significand,
                            int exponent, int round, int saturate)
{
    uint64_t sign = (uint64_t)(negative != 0) << (f->exponent_bits + f->mantissa_bits);
    if (significand == 0) {
        return sign;
    }
    int top = 63 - __builtin_clzll(significand);
    int bias = (1 << (f->exponent_bits - 1)) - 1;
    int e = top + exponent + bias; /* of the result, if normal */
    int last = e >= 1 ? top - f->mantissa_bits : 1 - bias - f->mantissa_bits - exponent;
    uint64_t kept, half = 0, sticky = 0;
    if (last <= 0) {
        kept = significand << -last;
    } else if (last > 63) {
        kept = 0;
        half = last == 64 && top == 63;
        sticky = half ? significand << 1 != 0 : 1;
    } else {
        kept = significand >> last;
        half = significand >> (last - 1) & 1u;
        sticky = (significand & ((1ull << (last - 1)) - 1)) != 0;
    }
    kept += (uint64_t)rounds_up(round, negative, kept & 1u, half != 0, sticky != 0);
    /* A carry out of the mantissa correctly increments the exponent. */
    uint64_t bits = e >= 1 ? kept + ((uint64_t)(e - 1) << f->mantissa_bits) : kept;
    if (e >= (1 << f->exponent_bits) || bits > largest(f)) {
        bits = overflow(f, negative, round, saturate);
    }
    return sign | bits;
}

uint64_t weir_x_format_from_double(const struct weir_x_format *f, double value, int round,
                                   int saturate)
{
    uint64_t bits = weir_x_bits_f64(value);
    int negative = (int)(bits >> 63);
    int e = (int)(bits >> 52 & 0x7ffu);
    uint64_t m = bits & 0xfffffffffffffull;
    if (e == 0x7ff && m != 0) {
        return nan_bits(f);
    }
    if (e == 0x7ff) {
        uint64_t infinite = saturate ? largest(f) : f->finite_only ? nan_bits(f) : largest(f) + 1;
        return (uint64_t)negative << (f->exponent_bits + f->mantissa_bits) | infinite;
    }
    if (e != 0) {
        m |= 1ull << 52;
    }
    return weir_x_format_pack(f, negative, m, (e != 0 ? e : 1) - 1075, round, saturate);
}

double weir_x_format_to_double(const struct weir_x_format *f, uint64_t bits)
{
    int negative = (int)(bits >> (f->exponent_bits + f->mantissa_bits) & 1u);
    uint64_t m = bits & ((1ull << f->mantissa_bits) - 1);
    int e = (int)(bits >> f->mantissa_bits & ((1ull << f->exponent_bits) - 1));
    int top = (1 << f->exponent_bits) - 1;
    int bias = (1 << (f->exponent_bits - 1)) - 1;
    double value;
    if (f->finite_only ? e == top && m == (1ull << f->mantissa_bits) - 1 : e == top && m != 0) {
        return (double)NAN;
    }
    if (!f->finite_only && e == top) {
        value = (double)INFINITY;
    } else if (e == 0) {
        value = ldexp((double)m, 1 - bias - f->mantissa_bits);
    } else {
        value = ldexp((double)(m | 1ull << f->mantissa_bits), e - bias - f->mantissa_bits);
    }
    return negative ? -value : value;
}
