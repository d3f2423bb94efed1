/*
 * Inputs of a case: corners first, then random pairs of corners, then random numbers of several
 * characters. Everything is made from integers, so every machine makes the same.
 */
#include "tests/instructions/case.h"

#include <string.h>

static const uint64_t corners_f32[] = {
    0x00000000, 0x80000000, 0x3f800000, 0xbf800000, 0x7f800000, 0xff800000, 0x7fc00000, 0xffc12345,
    0x7f800001, 0x00000001, 0x80000001, 0x007fffff, 0x807fffff, 0x00800000, 0x80800000, 0x00800001,
    0x7f7fffff, 0xff7fffff, 0x3f000000, 0xbf000000, 0x3fc00000, 0xbfc00000, 0x40200000, 0xc0200000,
    0x40490fdb, 0x3fc90fdb, 0x3f7fffff, 0x3f800001, 0x4b000000, 0x4b000001, 0x4b7fffff, 0xcb7fffff,
    0x4effffff, 0x4f000000, 0xcf000000, 0xcf000001, 0x4f7fffff, 0x4f800000, 0x5effffff, 0x5f000000,
    0xdf000000, 0x5f7fffff, 0x5f800000, 0x437f8000, 0x43000000, 0xc3008000, 0x477fff80, 0x46fffe00,
    0x7e800000, 0x7e800001, 0x01000000, 0x00400000, 0x3effffff, 0x477fe000, 0x477ff000, 0x33800000,
    0x38800000, 0x387fc000, 0x33000000, 0x33000001, 0x42b17218, 0xc2aeac50, 0x42fe0000, 0xc3150000};
static const uint64_t corners_f64[] = {
    0x0000000000000000, 0x8000000000000000, 0x3ff0000000000000, 0xbff0000000000000,
    0x7ff0000000000000, 0xfff0000000000000, 0x7ff8000000000000, 0xfff8000012345678,
    0x7ff0000000000001, 0x0000000000000001, 0x8000000000000001, 0x000fffffffffffff,
    0x800fffffffffffff, 0x0010000000000000, 0x8010000000000000, 0x7fefffffffffffff,
    0xffefffffffffffff, 0x3fe0000000000000, 0xbfe0000000000000, 0x3ff8000000000000,
    0xbff8000000000000, 0x4004000000000000, 0xc004000000000000, 0x3fefffffffffffff,
    0x3ff0000000000001, 0x400921fb54442d18, 0x4330000000000000, 0x4330000000000001,
    0x433fffffffffffff, 0x41dfffffffc00000, 0x41dfffffffe00000, 0x41e0000000000000,
    0xc1e0000000000000, 0xc1e0000000100000, 0xc1e0000000200000, 0x41efffffffe00000,
    0x41f0000000000000, 0x43dfffffffffffff, 0x43e0000000000000, 0xc3e0000000000000,
    0xc3e0000000000001, 0x43efffffffffffff, 0x43f0000000000000, 0x47efffffe0000000,
    0x47efffffefffffff, 0x47effffff0000000, 0x47f0000000000000, 0x3810000000000000,
    0x380fffffffffffff, 0x36a0000000000000, 0x3690000000000000, 0x3690000000000001,
    0x40efffc000000000, 0x40effe0000000000, 0x3f10000000000000, 0x3e70000000000000,
    0x7fd0000000000000, 0x0020000000000000, 0x406fe00000000000, 0xc060100000000000};
static const uint64_t corners_f16[] = {
    0x0000, 0x8000, 0x3c00, 0xbc00, 0x7c00, 0xfc00, 0x7e00, 0xfe01, 0x7c01, 0x0001, 0x8001,
    0x03ff, 0x83ff, 0x0400, 0x8400, 0x0401, 0x7bff, 0xfbff, 0x3800, 0xb800, 0x3e00, 0xbe00,
    0x4100, 0xc100, 0x3bff, 0x3c01, 0x6400, 0x6401, 0x67ff, 0x57f8, 0x5c00, 0xd808, 0x7800,
    0x77ff, 0xf800, 0x4248, 0x0200, 0x1000, 0x5800, 0x0c00, 0x2e66, 0xb266, 0x4b80, 0xcb80};
static const uint64_t corners_bf16[] = {
    0x0000, 0x8000, 0x3f80, 0xbf80, 0x7f80, 0xff80, 0x7fc0, 0xffc1, 0x7f81, 0x0001,
    0x8001, 0x007f, 0x807f, 0x0080, 0x8080, 0x0081, 0x7f7f, 0xff7f, 0x3f00, 0xbf00,
    0x3fc0, 0xbfc0, 0x4020, 0xc020, 0x3f7f, 0x3f81, 0x4300, 0x4301, 0x437f, 0x4effu,
    0x4f00, 0xcf00, 0x5f00, 0x5f80, 0x4049, 0x0040, 0x7e80, 0x0100, 0x42ff, 0xc300};
static const uint64_t corners_int[] = {0,
                                       1,
                                       2,
                                       3,
                                       7,
                                       0x7f,
                                       0x80,
                                       0x81,
                                       0xff,
                                       0x100,
                                       0x7fff,
                                       0x8000,
                                       0x8001,
                                       0xffff,
                                       0x10000,
                                       0x7fffff,
                                       0x800000,
                                       0xffffff,
                                       0x1000000,
                                       0x1000001,
                                       0x7fffffff,
                                       0x80000000,
                                       0x80000001,
                                       0xffffffff,
                                       0xfffffffe,
                                       0xffff8000,
                                       0xffffff80,
                                       0xffffff7f,
                                       0x55555555,
                                       0xaaaaaaaa,
                                       0x01020304,
                                       0xfefdfcfb,
                                       0x100000000,
                                       0x100000001,
                                       0x1fffffffffffff,
                                       0x20000000000001,
                                       0x7fffffffffffffff,
                                       0x8000000000000000,
                                       0x8000000000000001,
                                       0xffffffff00000000,
                                       0xffffffff7fffffff,
                                       0xffffffff80000000,
                                       0xfffffffffffffffe,
                                       0xffffffffffffffff,
                                       0xffffffffffffff80,
                                       0xffffffffffff8000};
static const uint64_t corners_shift[] = {
    0,  1,  2,  7,  8,  15, 16,  17,  24,  31,  32,  33,  40,    47,         48,
    63, 64, 65, 95, 96, 97, 127, 128, 255, 256, 257, 288, 0x101, 0x80000000, 0xffffffff};

struct source {
    const char *kind;
    const uint64_t *corners;
    uint32_t n_corners;
    uint32_t exponent_bits, mantissa_bits; /* 0, 0: integer */
    uint32_t copies;                       /* in one cell: packed types */
};
#define N(a) (a), sizeof(a) / sizeof((a)[0])
static const struct source sources[] = {
    {"f32", N(corners_f32), 8, 23, 1},   {"f64", N(corners_f64), 11, 52, 1},
    {"f16", N(corners_f16), 5, 10, 1},   {"bf16", N(corners_bf16), 8, 7, 1},
    {"f16x2", N(corners_f16), 5, 10, 2}, {"bf16x2", N(corners_bf16), 8, 7, 2},
    {"int", N(corners_int), 0, 64, 1},   {"shift", N(corners_shift), 0, 8, 1},
};
#undef N

/* splitmix64 of what and where */
static uint64_t random_of(uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t z =
        (a * 0x9e3779b97f4a7c15ull) ^ (b * 0xc2b2ae3d27d4eb4full) ^ (c + 0x165667b19e3779f9ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

/* A random number of a format: any bits, near one, with few digits,
 * or a whole number and a half. */
static uint64_t random_float(const struct source *s, uint64_t r, uint32_t t)
{
    uint64_t mantissa = r & ((1ull << s->mantissa_bits) - 1);
    uint64_t sign = r >> 63 << (s->exponent_bits + s->mantissa_bits);
    uint64_t exponent = r >> 52 & ((1ull << s->exponent_bits) - 1);
    uint64_t bias = (1ull << (s->exponent_bits - 1)) - 1;
    switch (t % 4) {
    case 0:
        break;
    case 1:
        exponent = bias - 3 + exponent % 7;
        break;
    case 2:
        mantissa &= ~0ull << (s->mantissa_bits - 3);
        exponent = bias - 4 + exponent % 12;
        break;
    default: /* digits down to 2^-1 */
        exponent = bias + exponent % (s->mantissa_bits < 12 ? s->mantissa_bits : 12);
        mantissa &= ~0ull << (s->mantissa_bits - 1 - (exponent - bias));
        break;
    }
    return sign | exponent << s->mantissa_bits | mantissa;
}

static uint64_t random_int(uint64_t r, uint32_t t)
{
    uint64_t sign = (r & 1u) != 0 ? ~0ull : 0;
    switch (t % 4) {
    case 0:
        return r;
    case 1:
        return (r >> 2 & 0xff) ^ sign;
    case 2:
        return (r >> (r >> 1 & 63)) ^ sign;
    default:
        return (r >> 8 & r >> 16) | r << 40;
    }
}

static uint64_t one(const struct source *s, uint32_t column, uint32_t t, uint32_t threads,
                    uint32_t copy)
{
    uint64_t r = random_of(t, column * 2 + copy, s->n_corners);
    if (t < s->n_corners) {
        return s->corners[(t * (2 * column + 1) + column * 5 + copy * 7) % s->n_corners];
    }
    if (t < threads / 2) {
        return s->corners[r % s->n_corners];
    }
    if (s->exponent_bits == 0) {
        return s->mantissa_bits == 8 ? r & 0xff : random_int(r, t);
    }
    return random_float(s, r, t);
}

/* Selectors of sparse matrices: two different places of four, ascending, in each nibble. */
static uint64_t sparse_metadata(uint64_t r)
{
    static const uint8_t pairs[6] = {0x4, 0x8, 0xc, 0x9, 0xd, 0xe};
    uint64_t out = 0;
    for (uint32_t k = 0; k < 8; k++, r >>= 8) {
        out |= (uint64_t)pairs[(r & 0xff) % 6] << (4 * k);
    }
    return out;
}

/* A small whole number in a format, so that sums of products are exact in any order. */
static uint64_t whole(uint64_t r, uint32_t exponent_bits, uint32_t mantissa_bits)
{
    uint32_t n = (uint32_t)(r % 5); /* 0 .. 4 */
    uint64_t sign = (r >> 32 & 1u) << (exponent_bits + mantissa_bits);
    if (n == 0) {
        return 0;
    }
    uint32_t top = n >= 4 ? 2 : n >= 2 ? 1 : 0;
    uint64_t mantissa = ((uint64_t)n << mantissa_bits >> top) & ((1ull << mantissa_bits) - 1);
    uint64_t bias = (1ull << (exponent_bits - 1)) - 1;
    return sign | (bias + top) << mantissa_bits | mantissa;
}

static bool special(const struct case_column *c, uint64_t r, uint32_t t, uint64_t *ret_value)
{
    if (strcmp(c->kind, "thread") == 0) {
        *ret_value = t;
    } else if (strcmp(c->kind, "random") == 0) {
        *ret_value = r;
    } else if (strcmp(c->kind, "sparse") == 0) {
        *ret_value = sparse_metadata(r);
    } else if (strcmp(c->kind, "wholef16x2") == 0) {
        *ret_value = whole(r, 5, 10) | whole(r >> 20, 5, 10) << 16;
    } else if (strcmp(c->kind, "wholebf16x2") == 0) {
        *ret_value = whole(r, 8, 7) | whole(r >> 20, 8, 7) << 16;
    } else if (strcmp(c->kind, "wholef32") == 0) {
        *ret_value = whole(r, 8, 23);
    } else if (strcmp(c->kind, "wholef64") == 0) {
        *ret_value = whole(r, 11, 52);
    } else if (strcmp(c->kind, "wholee4m3") == 0 || strcmp(c->kind, "wholee5m2") == 0) {
        *ret_value = 0;
        uint32_t e = c->kind[6] == '4' ? 4 : 5;
        for (uint32_t k = 0; k < 4; k++) {
            *ret_value |= whole(random_of(r, k, 1), e, 7 - e) << (8 * k);
        }
    } else if (strcmp(c->kind, "unitf32") == 0) { /* [1, 2) with either sign */
        *ret_value = (r >> 63) << 31 | 0x3f800000u | (r & 0x7fffffu);
    } else if (strcmp(c->kind, "unitf16x2") == 0) {
        *ret_value = 0x3c003c00u | (r & 0x83ff83ffu);
    } else if (strcmp(c->kind, "unitbf16x2") == 0) {
        *ret_value = 0x3f803f80u | (r & 0x807f807fu);
    } else if (strcmp(c->kind, "unitf64") == 0) {
        *ret_value = 0x3ff0000000000000ull | (r & 0x800fffffffffffffull);
    } else {
        return false;
    }
    return true;
}

static bool fill(const struct test_case *c, uint32_t column, uint64_t *cell)
{
    const struct case_column *col = &c->columns[column];
    const struct source *source = NULL;
    for (size_t s = 0; s < sizeof sources / sizeof sources[0]; s++) {
        if (strcmp(sources[s].kind, col->kind) == 0) {
            source = &sources[s];
        }
    }
    for (uint32_t t = 0; t < c->threads; t++, cell += c->n_columns) {
        uint64_t r = random_of(t, column, 77);
        if (col->has_range && strcmp(col->kind, "int") == 0) {
            *cell = (uint64_t)col->low + r % (uint64_t)(col->high - col->low + 1);
        } else if (source) {
            *cell = one(source, column, t, c->threads, 0);
            if (source->copies == 2) {
                *cell |= one(source, column, t, c->threads, 1) << 16;
            }
        } else if (!special(col, r, t, cell)) {
            return false;
        }
    }
    return true;
}

bool case_inputs(const struct test_case *c, uint64_t *inputs)
{
    for (uint32_t column = 0; column < c->n_columns; column++) {
        if (!fill(c, column, inputs + column)) {
            return false;
        }
    }
    return true;
}
