/* Narrow floating-point formats: to and from float and double, rounding once. */
#pragma once

#include <stdint.h>
#include <string.h>

/* A binary format of up to 64 bits. */
struct weir_x_format {
    uint8_t exponent_bits;
    uint8_t mantissa_bits; /* mantissa bits that are stored */
    uint8_t finite_only;   /* 1: no infinity, only all ones is NaN (e4m3) */
};
extern const struct weir_x_format weir_x_format_f16, weir_x_format_bf16, weir_x_format_tf32,
    weir_x_format_f32, weir_x_format_f64, weir_x_format_e4m3, weir_x_format_e5m2;

/**
 * The number (-1)^negative * significand * 2^exponent in a format.
 *
 * @param round     enum weir_x_round.
 * @param saturate  overflow gives the largest finite number.
 * @return its bits, sign included.
 */
uint64_t weir_x_format_pack(const struct weir_x_format *format, int negative, uint64_t significand,
                            int exponent, int round, int saturate);
uint64_t weir_x_format_from_double(const struct weir_x_format *format, double value, int round,
                                   int saturate);
double weir_x_format_to_double(const struct weir_x_format *format, uint64_t bits);

static inline float weir_x_as_f32(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

static inline uint32_t weir_x_bits_f32(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, 4);
    return bits;
}

static inline double weir_x_as_f64(uint64_t bits)
{
    double d;
    memcpy(&d, &bits, 8);
    return d;
}

static inline uint64_t weir_x_bits_f64(double d)
{
    uint64_t bits;
    memcpy(&bits, &d, 8);
    return bits;
}

static inline float weir_x_bf16_to_float(uint16_t h)
{
    return weir_x_as_f32((uint32_t)h << 16);
}

/* Converts without branches, so that loops of it vectorise: the multiplication moves the exponent
 * and makes subnormal numbers normal. */
static inline float weir_x_half_to_float(uint16_t h)
{
    uint32_t rest = (uint32_t)h & 0x7fffu;
    uint32_t bits = weir_x_bits_f32(weir_x_as_f32(rest << 13) * 0x1p112f);
    bits |= rest >= 0x7c00u ? 0x7f800000u : 0;
    return weir_x_as_f32(bits | ((uint32_t)h & 0x8000u) << 16);
}

/* Nearest even; NaN becomes the canonical 0x7fff. */
static inline uint16_t weir_x_half_from_float(float f)
{
    uint32_t bits = weir_x_bits_f32(f);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000u);
    bits &= 0x7fffffffu;
    if (bits > 0x7f800000u) {
        return 0x7fffu;
    }
    if (bits >= 0x477ff000u) { /* 65520 and above */
        return (uint16_t)(sign | 0x7c00u);
    }
    if (bits < 0x38800000u) { /* subnormal: let the FPU round at bit 2^-24 */
        return (uint16_t)(sign | (weir_x_bits_f32(weir_x_as_f32(bits) + 0.5f) - 0x3f000000u));
    }
    bits += 0xfffu + (bits >> 13 & 1u);
    return (uint16_t)(sign | ((bits - (112u << 23)) >> 13));
}

static inline uint16_t weir_x_bf16_from_float(float f)
{
    uint32_t bits = weir_x_bits_f32(f);
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        return 0x7fffu;
    }
    bits += 0x7fffu + (bits >> 16 & 1u);
    return (uint16_t)(bits >> 16);
}

/* Round to odd: truncate, but set the last bit if bits were lost. A later rounding to a narrower
 * format then gives the same result as rounding the double. */
static inline float weir_x_float_odd(double d)
{
    uint64_t bits = weir_x_bits_f64(d);
    uint32_t sign = (uint32_t)(bits >> 32) & 0x80000000u;
    uint32_t out = sign;
    bits &= UINT64_MAX >> 1;
    if (bits >= 0x47f0000000000000ull) { /* 2^128 and above, infinities, NaN */
        out |= bits > 0x7ff0000000000000ull    ? 0x7fc00000u
               : bits == 0x7ff0000000000000ull ? 0x7f800000u
                                               : 0x7f7fffffu;
    } else if (bits >= 0x3810000000000000ull) {
        out |= (uint32_t)((bits - 0x3800000000000000ull) >> 29) | ((bits & 0x1fffffffu) != 0);
    } else if (bits != 0) { /* below 2^-126: in units of 2^-149 */
        uint32_t e = (uint32_t)(bits >> 52);
        uint32_t shift = 29 + (897 - e);
        uint64_t m = (bits & 0xfffffffffffffull) | 1ull << 52;
        out |= shift > 52 ? 1u : (uint32_t)(m >> shift) | ((m & ((1ull << shift) - 1)) != 0);
    }
    return weir_x_as_f32(out);
}

static inline uint16_t weir_x_half_from_double(double d)
{
    return weir_x_half_from_float(weir_x_float_odd(d));
}

static inline uint16_t weir_x_bf16_from_double(double d)
{
    return weir_x_bf16_from_float(weir_x_float_odd(d));
}
