/* Comparison of two outputs of a case: see case.h. */
#include "tests/instructions/case.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

struct format {
    const char *type;
    uint32_t bits, exponent_bits, mantissa_bits;
};
static const struct format formats[] = {
    {"f32", 32, 8, 23}, {"f64", 64, 11, 52},  {"f16", 16, 5, 10},
    {"bf16", 16, 8, 7}, {"f16x2", 16, 5, 10}, {"bf16x2", 16, 8, 7},
};

static const struct format *format_of(const char *type)
{
    for (size_t k = 0; k < sizeof formats / sizeof formats[0]; k++) {
        if (strcmp(formats[k].type, type) == 0) {
            return &formats[k];
        }
    }
    return NULL;
}

static double value_of(const struct format *f, uint64_t bits)
{
    uint64_t e = bits >> f->mantissa_bits & ((1ull << f->exponent_bits) - 1);
    uint64_t m = bits & ((1ull << f->mantissa_bits) - 1);
    int bias = (1 << (f->exponent_bits - 1)) - 1;
    double v = e == 0 ? ldexp((double)m, 1 - bias - (int)f->mantissa_bits)
                      : ldexp((double)(m | 1ull << f->mantissa_bits),
                              (int)e - bias - (int)f->mantissa_bits);
    return bits >> (f->bits - 1) & 1u ? -v : v;
}

static bool is_finite(const struct format *f, uint64_t bits)
{
    return (bits >> f->mantissa_bits & ((1ull << f->exponent_bits) - 1)) !=
           (1ull << f->exponent_bits) - 1;
}

/* Numbers on a line: neighbours differ by one, both zeros are one place. */
static int64_t ordinal(const struct format *f, uint64_t bits)
{
    uint64_t sign = bits >> (f->bits - 1) & 1u;
    int64_t magnitude = (int64_t)(bits & ((1ull << (f->bits - 1)) - 1));
    return sign != 0 ? -magnitude : magnitude;
}

static bool near_enough(const struct format *f, const struct case_bound *b, uint64_t got,
                        uint64_t want)
{
    if (got == want) {
        return true;
    }
    if (!is_finite(f, got) || !is_finite(f, want)) {
        return false;
    }
    if (b->abs != 0) {
        return fabs(value_of(f, got) - value_of(f, want)) <= b->abs;
    }
    int64_t x = ordinal(f, got);
    int64_t y = ordinal(f, want);
    return (double)(x > y ? x - y : y - x) <= b->ulp;
}

static const struct case_bound *bound_of(const struct test_case *c, uint32_t result)
{
    for (uint32_t b = 0; b < c->n_bounds; b++) {
        if (result >= c->bounds[b].first && result <= c->bounds[b].last) {
            return &c->bounds[b];
        }
    }
    return NULL;
}

static uint64_t cell_of(const struct test_case *c, const void *data, size_t at)
{
    uint64_t v = 0;
    memcpy(&v, (const char *)data + at * c->out_bytes, c->out_bytes);
    return v;
}

static bool same(const struct test_case *c, uint32_t result, uint64_t got, uint64_t want)
{
    const struct case_bound *b = bound_of(c, result);
    const struct format *f = format_of(c->out_type);
    if (b && b->bits != 0) {
        return ((got ^ want) & ((1ull << b->bits) - 1)) == 0;
    }
    if (!b || !f || got == want) {
        return got == want;
    }
    if (!strstr(c->out_type, "x2")) {
        return near_enough(f, b, got, want);
    }
    return near_enough(f, b, got & 0xffff, want & 0xffff) &&
           near_enough(f, b, got >> 16, want >> 16);
}

uint32_t case_compare(const struct test_case *c, const uint64_t *inputs, const void *got,
                      const void *want, uint32_t max_lines)
{
    uint32_t wrong = 0;
    uint32_t last = UINT32_MAX;
    uint32_t shown = 0;
    for (uint32_t r = 0; r < c->n_results; r++) {
        for (uint32_t t = 0; t < c->threads; t++) {
            size_t at = (size_t)r * c->threads + t;
            uint64_t x = cell_of(c, got, at);
            uint64_t y = cell_of(c, want, at);
            if (same(c, r, x, y)) {
                continue;
            }
            wrong++;
            shown = last == r ? shown + 1 : 0;
            last = r;
            if (shown >= max_lines) {
                continue;
            }
            printf("    result %u thread %u: 0x%" PRIx64 ", recorded 0x%" PRIx64 ", of", r, t, x,
                   y);
            for (uint32_t k = 0; k < c->n_columns && k < 8; k++) {
                printf(" 0x%" PRIx64, inputs[(size_t)t * c->n_columns + k]);
            }
            printf("\n");
        }
    }
    return wrong;
}
