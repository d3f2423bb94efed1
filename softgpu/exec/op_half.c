/*
 * f16, bf16 and their packed pairs: computed in double, rounded once.
 *
 * In double, sums and products of two such numbers are exact or off by a bit too low to matter. The
 * exceptions are sums whose operands lie more than 53 bits apart: add_odd() rounds them to odd
 * (sets the last bit), so that they do not look like a tie.
 */
#include "softgpu/exec/half.h"
#include "softgpu/exec/internal.h"

#include <math.h>

enum { H_ADD = 1, H_SUB, H_MUL, H_FMA, H_MIN, H_MAX, H_NEG, H_ABS, H_EX2, H_TANH };
#define H_BF16 0x1u /* sub2 */
#define H_PAIR 0x2u

static double to_double(uint16_t bits, bool bf16)
{
    return (double)(bf16 ? weir_x_bf16_to_float(bits) : weir_x_half_to_float(bits));
}

static double add_odd(double x, double y)
{
    double sum = x + y;
    double part = sum - x;
    double error = (x - (sum - part)) + (y - part);
    uint64_t bits = weir_x_bits_f64(sum);
    if (error == error && error != 0 && (bits & 1u) == 0) {
        bits += ((error > 0) == (sum > 0)) ? 1 : UINT64_MAX;
        memcpy(&sum, &bits, 8);
    }
    return sum;
}

static uint16_t flush(uint16_t bits, const struct weir_x_inst *i)
{
    uint16_t exponent = (i->sub2 & H_BF16) != 0 ? 0x7f80u : 0x7c00u;
    return (i->flags & WEIR_X_F_FTZ) != 0 && (bits & exponent) == 0 ? bits & 0x8000u : bits;
}

static uint16_t min_max(const struct weir_x_inst *i, uint16_t x, uint16_t y, bool bf16)
{
    bool xorsign = (i->flags & WEIR_X_F_XORSIGN) != 0;
    uint16_t sign = (x ^ y) & 0x8000u;
    if (xorsign) {
        x &= 0x7fffu;
        y &= 0x7fffu;
    }
    double a = to_double(x, bf16);
    double b = to_double(y, bf16);
    if (a != a || b != b) {
        bool nan = (i->flags & WEIR_X_F_NAN) != 0 || (a != a && b != b);
        return nan ? 0x7fffu : (a != a ? y : x) | (xorsign ? sign : 0);
    }
    bool less = a < b || (a == b && (x & 0x8000u) != 0);
    return (less == (i->sub == H_MIN) ? x : y) | (xorsign ? sign : 0);
}

static uint16_t compute(const struct weir_x_inst *i, uint16_t x, uint16_t y, uint16_t z)
{
    bool bf16 = (i->sub2 & H_BF16) != 0;
    double a = to_double(x, bf16);
    double b = to_double(y, bf16);
    double r;
    switch (i->sub) {
    case H_ADD:
        r = add_odd(a, b);
        break;
    case H_SUB:
        r = add_odd(a, -b);
        break;
    case H_MUL:
        r = a * b;
        break;
    case H_FMA:
        r = add_odd(a * b, to_double(z, bf16));
        break;
    case H_MIN:
    case H_MAX:
        return min_max(i, x, y, bf16);
    case H_NEG:
        return a != a ? 0x7fffu : x ^ 0x8000u;
    case H_ABS:
        return a != a ? 0x7fffu : x & 0x7fffu;
    case H_EX2:
        r = exp2(a);
        break;
    default:
        r = tanh(a);
        break;
    }
    if ((i->flags & WEIR_X_F_SAT) != 0) {
        r = r > 0 ? WEIR_MIN(r, 1) : 0;
    }
    if ((i->flags & WEIR_X_F_RELU) != 0 && r < 0) {
        r = 0;
    }
    uint16_t bits = bf16 ? weir_x_bf16_from_double(r) : weir_x_half_from_double(r);
    return (i->flags & WEIR_X_F_RELU) != 0 && bits == 0x8000u ? 0 : bits;
}

static uint16_t one(const struct weir_x_inst *i, uint32_t x, uint32_t y, uint32_t z)
{
    return flush(compute(i, flush((uint16_t)x, i), flush((uint16_t)y, i), flush((uint16_t)z, i)),
                 i);
}

static const struct weir_x_inst *half(struct weir_x_warp *w, const struct weir_x_inst *i)
{
    weir_x_u32 *d = weir_x_w32(w, i->d);
    const weir_x_u32 *a = weir_x_w32(w, i->a);
    const weir_x_u32 *b = i->b != WEIR_X_NO_REF ? weir_x_w32(w, i->b) : a;
    const weir_x_u32 *c = i->c != WEIR_X_NO_REF ? weir_x_w32(w, i->c) : a;
    bool pair = (i->sub2 & H_PAIR) != 0;
    WEIR_X_EACH_ACTIVE(w, l, {
        uint32_t r = one(i, a[l], b[l], c[l]);
        if (pair) {
            r |= (uint32_t)one(i, a[l] >> 16, b[l] >> 16, c[l] >> 16) << 16;
        }
        d[l] = r;
    });
    return i + 1;
}

static const uint8_t operations[WEIR_PTX_OP_COUNT] = {
    [WEIR_PTX_OP_ADD] = H_ADD,   [WEIR_PTX_OP_SUB] = H_SUB, [WEIR_PTX_OP_MUL] = H_MUL,
    [WEIR_PTX_OP_FMA] = H_FMA,   [WEIR_PTX_OP_MIN] = H_MIN, [WEIR_PTX_OP_MAX] = H_MAX,
    [WEIR_PTX_OP_NEG] = H_NEG,   [WEIR_PTX_OP_ABS] = H_ABS, [WEIR_PTX_OP_EX2] = H_EX2,
    [WEIR_PTX_OP_TANH] = H_TANH,
};

weir_x_fn weir_x_find_half(const struct weir_ptx_inst *ir, struct weir_x_inst *out)
{
    uint8_t type = ir->types[0];
    bool bf16 = type == WEIR_PTX_TYPE_BF16 || type == WEIR_PTX_TYPE_BF16X2;
    bool pair = type == WEIR_PTX_TYPE_F16X2 || type == WEIR_PTX_TYPE_BF16X2;
    out->sub = operations[ir->op];
    out->sub2 = (uint8_t)((bf16 ? H_BF16 : 0) | (pair ? H_PAIR : 0));
    bool known = bf16 || pair || type == WEIR_PTX_TYPE_F16;
    bool three = ir->n_operands > 3 && (out->sub == H_MIN || out->sub == H_MAX);
    return known && out->sub != 0 && !three && ir->n_types == 1 ? half : NULL;
}
