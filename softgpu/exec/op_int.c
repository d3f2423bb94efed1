/*
 * Integer, logic, shift and bit handlers. Each is a loop over lanes that the compiler vectorises.
 *
 * 16-bit operations whose low bits do not depend on high ones (add, sub, mul.lo, and ..) use the
 * 32-bit handlers: the bits above the low half of a 16-bit register's row are undefined.
 */
#include "softgpu/exec/internal.h"

/* Operands x, y, z have type T and lie in rows of 32 or 64 bits. R: the result row's width. */
#define ROW_32  weir_x_w32
#define ROW_64  weir_x_w64
#define CELL_32 weir_x_u32
#define CELL_64 weir_x_u64

#define UNARY(name, T, wa, wd, expr)                                                               \
    static const struct weir_x_inst *name(struct weir_x_warp *w, const struct weir_x_inst *i)      \
    {                                                                                              \
        CELL_##wd *d = ROW_##wd(w, i->d);                                                          \
        const CELL_##wa *a = ROW_##wa(w, i->a);                                                    \
        WEIR_X_EACH(w, l, {                                                                        \
            T x = (T)a[l];                                                                         \
            d[l] = (CELL_##wd)(expr);                                                              \
        });                                                                                        \
        return i + 1;                                                                              \
    }
#define BINARY(name, T, wa, wb, wd, expr)                                                          \
    static const struct weir_x_inst *name(struct weir_x_warp *w, const struct weir_x_inst *i)      \
    {                                                                                              \
        CELL_##wd *d = ROW_##wd(w, i->d);                                                          \
        const CELL_##wa *a = ROW_##wa(w, i->a);                                                    \
        const CELL_##wb *b = ROW_##wb(w, i->b);                                                    \
        WEIR_X_EACH(w, l, {                                                                        \
            T x = (T)a[l];                                                                         \
            T y = (T)b[l];                                                                         \
            d[l] = (CELL_##wd)(expr);                                                              \
        });                                                                                        \
        return i + 1;                                                                              \
    }
#define TERNARY(name, T, wa, wb, wc, Tc, wd, expr)                                                 \
    static const struct weir_x_inst *name(struct weir_x_warp *w, const struct weir_x_inst *i)      \
    {                                                                                              \
        CELL_##wd *d = ROW_##wd(w, i->d);                                                          \
        const CELL_##wa *a = ROW_##wa(w, i->a);                                                    \
        const CELL_##wb *b = ROW_##wb(w, i->b);                                                    \
        const CELL_##wc *c = ROW_##wc(w, i->c);                                                    \
        WEIR_X_EACH(w, l, {                                                                        \
            T x = (T)a[l];                                                                         \
            T y = (T)b[l];                                                                         \
            Tc z = (Tc)c[l];                                                                       \
            d[l] = (CELL_##wd)(expr);                                                              \
        });                                                                                        \
        return i + 1;                                                                              \
    }

BINARY(add_32, uint32_t, 32, 32, 32, x + y)
BINARY(add_64, uint64_t, 64, 64, 64, x + y)
BINARY(sub_32, uint32_t, 32, 32, 32, x - y)
BINARY(sub_64, uint64_t, 64, 64, 64, x - y)
BINARY(mul_32, uint32_t, 32, 32, 32, x *y)
BINARY(mul_64, uint64_t, 64, 64, 64, x *y)
TERNARY(mad_32, uint32_t, 32, 32, 32, uint32_t, 32, x *y + z)
TERNARY(mad_64, uint64_t, 64, 64, 64, uint64_t, 64, x *y + z)
BINARY(mulhi_u16, uint16_t, 32, 32, 32, (uint32_t)x *y >> 16)
BINARY(mulhi_s16, int16_t, 32, 32, 32, ((int32_t)x * y) >> 16)
BINARY(mulhi_u32, uint32_t, 32, 32, 32, (uint64_t)x *y >> 32)
BINARY(mulhi_s32, int32_t, 32, 32, 32, ((int64_t)x * y) >> 32)
BINARY(mulhi_u64, uint64_t, 64, 64, 64, (unsigned __int128)x *y >> 64)
BINARY(mulhi_s64, int64_t, 64, 64, 64, ((__int128)x * y) >> 64)
TERNARY(madhi_u16, uint16_t, 32, 32, 32, uint32_t, 32, ((uint32_t)x * y >> 16) + z)
TERNARY(madhi_s16, int16_t, 32, 32, 32, uint32_t, 32, (uint32_t)(((int32_t)x * y) >> 16) + z)
TERNARY(madhi_u32, uint32_t, 32, 32, 32, uint32_t, 32, (uint32_t)((uint64_t)x *y >> 32) + z)
TERNARY(madhi_s32, int32_t, 32, 32, 32, uint32_t, 32, (uint32_t)(((int64_t)x * y) >> 32) + z)
TERNARY(madhi_u64, uint64_t, 64, 64, 64, uint64_t, 64,
        (uint64_t)((unsigned __int128)x *y >> 64) + z)
TERNARY(madhi_s64, int64_t, 64, 64, 64, uint64_t, 64, (uint64_t)(((__int128)x * y) >> 64) + z)
BINARY(mulwide_u16, uint16_t, 32, 32, 32, (uint32_t)x *y)
BINARY(mulwide_s16, int16_t, 32, 32, 32, (int32_t)x *y)
BINARY(mulwide_u32, uint32_t, 32, 32, 64, (uint64_t)x *y)
BINARY(mulwide_s32, int32_t, 32, 32, 64, (int64_t)x *y)
TERNARY(madwide_u16, uint16_t, 32, 32, 32, uint32_t, 32, (uint32_t)x *y + z)
TERNARY(madwide_s16, int16_t, 32, 32, 32, uint32_t, 32, (uint32_t)((int32_t)x *y) + z)
TERNARY(madwide_u32, uint32_t, 32, 32, 64, uint64_t, 64, (uint64_t)x *y + z)
TERNARY(madwide_s32, int32_t, 32, 32, 64, uint64_t, 64, (uint64_t)((int64_t)x *y) + z)

#define CLAMP_S32(v) ((v) > INT32_MAX ? INT32_MAX : (v) < INT32_MIN ? INT32_MIN : (v))
BINARY(addsat_s32, int32_t, 32, 32, 32, CLAMP_S32((int64_t)x + y))
BINARY(subsat_s32, int32_t, 32, 32, 32, CLAMP_S32((int64_t)x - y))
TERNARY(madhisat_s32, int32_t, 32, 32, 32, int32_t, 32, CLAMP_S32((((int64_t)x * y) >> 32) + z))

#define LOW24U(v) ((v)&0xffffffu)
#define LOW24S(v) ((int32_t)((uint32_t)(v) << 8) >> 8)
TERNARY(mad24hisat_s32, uint32_t, 32, 32, 32, int32_t, 32,
        CLAMP_S32((((int64_t)LOW24S(x) * LOW24S(y)) >> 16) + z))
BINARY(mul24lo_u32, uint32_t, 32, 32, 32, LOW24U(x) * LOW24U(y))
BINARY(mul24hi_u32, uint32_t, 32, 32, 32, (uint64_t)LOW24U(x) * LOW24U(y) >> 16)
BINARY(mul24lo_s32, uint32_t, 32, 32, 32, (int64_t)LOW24S(x) * LOW24S(y))
BINARY(mul24hi_s32, uint32_t, 32, 32, 32, ((int64_t)LOW24S(x) * LOW24S(y)) >> 16)
TERNARY(mad24lo_u32, uint32_t, 32, 32, 32, uint32_t, 32, LOW24U(x) * LOW24U(y) + z)
TERNARY(mad24hi_u32, uint32_t, 32, 32, 32, uint32_t, 32,
        (uint32_t)((uint64_t)LOW24U(x) * LOW24U(y) >> 16) + z)
TERNARY(mad24lo_s32, uint32_t, 32, 32, 32, uint32_t, 32,
        (uint32_t)((int64_t)LOW24S(x) * LOW24S(y)) + z)
TERNARY(mad24hi_s32, uint32_t, 32, 32, 32, uint32_t, 32,
        (uint32_t)(((int64_t)LOW24S(x) * LOW24S(y)) >> 16) + z)

/* Division by zero is undefined in PTX; GPUs give all ones. */
BINARY(div_u16, uint16_t, 32, 32, 32, y == 0 ? 0xffffu : (uint32_t)(x / y))
BINARY(div_s16, int16_t, 32, 32, 32, y == 0 ? -1 : x / y)
BINARY(div_u32, uint32_t, 32, 32, 32, y == 0 ? UINT32_MAX : x / y)
BINARY(div_s32, int32_t, 32, 32, 32, y == 0 ? -1 : (int64_t)x / y)
BINARY(div_u64, uint64_t, 64, 64, 64, y == 0 ? UINT64_MAX : x / y)
BINARY(div_s64, int64_t, 64, 64, 64,
       y == 0    ? UINT64_MAX
       : y == -1 ? 0 - (uint64_t)x
                 : (uint64_t)(x / y))
BINARY(rem_u16, uint16_t, 32, 32, 32, y == 0 ? 0xffffu : (uint32_t)(x % y))
BINARY(rem_s16, int16_t, 32, 32, 32, y == 0 ? -1 : x % y)
BINARY(rem_u32, uint32_t, 32, 32, 32, y == 0 ? UINT32_MAX : x % y)
BINARY(rem_s32, int32_t, 32, 32, 32, y == 0 ? -1 : (int64_t)x % y)
BINARY(rem_u64, uint64_t, 64, 64, 64, y == 0 ? UINT64_MAX : x % y)
BINARY(rem_s64, int64_t, 64, 64, 64, y == 0 ? -1 : y == -1 ? 0 : x % y)

#define MINMAX(type, T, wd)                                                                        \
    BINARY(min_##type, T, wd, wd, wd, WEIR_MIN(x, y))                                              \
    BINARY(max_##type, T, wd, wd, wd, WEIR_MAX(x, y))
MINMAX(u16, uint16_t, 32)
MINMAX(s16, int16_t, 32)
MINMAX(u32, uint32_t, 32)
MINMAX(s32, int32_t, 32)
MINMAX(u64, uint64_t, 64)
MINMAX(s64, int64_t, 64)
#define PAIR(op, T)                                                                                \
    ((uint16_t)((T)x op(T) y ? x : y) |                                                            \
     (uint32_t)(uint16_t)((T)(x >> 16) op(T)(y >> 16) ? x >> 16 : y >> 16) << 16)
BINARY(min_u16x2, uint32_t, 32, 32, 32, PAIR(<, uint16_t))
BINARY(max_u16x2, uint32_t, 32, 32, 32, PAIR(>, uint16_t))
BINARY(min_s16x2, uint32_t, 32, 32, 32, PAIR(<, int16_t))
BINARY(max_s16x2, uint32_t, 32, 32, 32, PAIR(>, int16_t))
#define RELU16(v) ((int16_t)(v) < 0 ? 0u : (uint32_t)(uint16_t)(v))
#define RELUX2(v) (RELU16(v) | RELU16((v) >> 16) << 16)
BINARY(minrelu_s16x2, uint32_t, 32, 32, 32, RELUX2(PAIR(<, int16_t)))
BINARY(maxrelu_s16x2, uint32_t, 32, 32, 32, RELUX2(PAIR(>, int16_t)))
BINARY(minrelu_s32, int32_t, 32, 32, 32, x < y ? WEIR_MAX(x, 0) : WEIR_MAX(y, 0))
BINARY(maxrelu_s32, int32_t, 32, 32, 32, x > y ? WEIR_MAX(x, 0) : WEIR_MAX(y, 0))
BINARY(add_16x2, uint32_t, 32, 32, 32,
       ((x + y) & 0xffffu) | ((x & 0xffff0000u) + (y & 0xffff0000u)))

UNARY(abs_s16, int16_t, 32, 32, x < 0 ? 0 - (uint32_t)x : (uint32_t)x)
UNARY(abs_s32, int32_t, 32, 32, x < 0 ? 0 - (uint32_t)x : (uint32_t)x)
UNARY(abs_s64, int64_t, 64, 64, x < 0 ? 0 - (uint64_t)x : (uint64_t)x)
UNARY(neg_32, uint32_t, 32, 32, 0 - x)
UNARY(neg_64, uint64_t, 64, 64, 0 - x)
#define DISTANCE(U) ((x < y ? (U)y - (U)x : (U)x - (U)y) + z)
TERNARY(sad_u16, uint16_t, 32, 32, 32, uint32_t, 32, DISTANCE(uint32_t))
TERNARY(sad_s16, int16_t, 32, 32, 32, uint32_t, 32, DISTANCE(uint32_t))
TERNARY(sad_u32, uint32_t, 32, 32, 32, uint32_t, 32, DISTANCE(uint32_t))
TERNARY(sad_s32, int32_t, 32, 32, 32, uint32_t, 32, DISTANCE(uint32_t))
TERNARY(sad_u64, uint64_t, 64, 64, 64, uint64_t, 64, DISTANCE(uint64_t))
TERNARY(sad_s64, int64_t, 64, 64, 64, uint64_t, 64, DISTANCE(uint64_t))

BINARY(and_32, uint32_t, 32, 32, 32, x &y)
BINARY(and_64, uint64_t, 64, 64, 64, x &y)
BINARY(or_32, uint32_t, 32, 32, 32, x | y)
BINARY(or_64, uint64_t, 64, 64, 64, x | y)
BINARY(xor_32, uint32_t, 32, 32, 32, x ^ y)
BINARY(xor_64, uint64_t, 64, 64, 64, x ^ y)
UNARY(not_32, uint32_t, 32, 32, ~x)
UNARY(not_64, uint64_t, 64, 64, ~x)
UNARY(cnot_16, uint16_t, 32, 32, x == 0)
UNARY(cnot_32, uint32_t, 32, 32, x == 0)
UNARY(cnot_64, uint64_t, 64, 64, x == 0)

/* A count of the width or more shifts out all bits. */
#define SHIFT(name, T, wd, big, expr)                                                              \
    static const struct weir_x_inst *name(struct weir_x_warp *w, const struct weir_x_inst *i)      \
    {                                                                                              \
        CELL_##wd *d = ROW_##wd(w, i->d);                                                          \
        const CELL_##wd *a = ROW_##wd(w, i->a);                                                    \
        const weir_x_u32 *b = weir_x_w32(w, i->b);                                                 \
        WEIR_X_EACH(w, l, {                                                                        \
            T x = (T)a[l];                                                                         \
            uint32_t n = b[l];                                                                     \
            uint32_t m = n & (sizeof(T) * 8 - 1);                                                  \
            d[l] = (CELL_##wd)(n >= sizeof(T) * 8 ? (big) : (expr));                               \
        });                                                                                        \
        return i + 1;                                                                              \
    }
SHIFT(shl_32, uint32_t, 32, 0, x << m)
SHIFT(shl_64, uint64_t, 64, 0, x << m)
SHIFT(shr_u16, uint16_t, 32, 0, (uint32_t)x >> m)
SHIFT(shr_s16, int16_t, 32, x >> 15, (int32_t)x >> m)
SHIFT(shr_u32, uint32_t, 32, 0, x >> m)
SHIFT(shr_s32, int32_t, 32, x >> 31, x >> m)
SHIFT(shr_u64, uint64_t, 64, 0, x >> m)
SHIFT(shr_s64, int64_t, 64, x >> 63, x >> m)

#define FUNNEL(n) ((uint64_t)y << 32 | x) /* b is the high word */
TERNARY(shf_l_wrap, uint32_t, 32, 32, 32, uint32_t, 32, (FUNNEL() << (z & 31)) >> 32)
TERNARY(shf_r_wrap, uint32_t, 32, 32, 32, uint32_t, 32, FUNNEL() >> (z & 31))
TERNARY(shf_l_clamp, uint32_t, 32, 32, 32, uint32_t, 32,
        z >= 32 ? x : (uint32_t)((FUNNEL() << z) >> 32))
TERNARY(shf_r_clamp, uint32_t, 32, 32, 32, uint32_t, 32, z >= 32 ? y : (uint32_t)(FUNNEL() >> z))

UNARY(popc_32, uint32_t, 32, 32, __builtin_popcount(x))
UNARY(popc_64, uint64_t, 64, 32, __builtin_popcountll(x))
UNARY(clz_32, uint32_t, 32, 32, x == 0 ? 32 : __builtin_clz(x))
UNARY(clz_64, uint64_t, 64, 32, x == 0 ? 64 : __builtin_clzll(x))

static inline uint32_t reverse32(uint32_t x)
{
    x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
    x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
    x = (x >> 4 & 0x0f0f0f0fu) | (x & 0x0f0f0f0fu) << 4;
    return __builtin_bswap32(x);
}
UNARY(brev_32, uint32_t, 32, 32, reverse32(x))
UNARY(brev_64, uint64_t, 64, 64,
      (uint64_t)reverse32((uint32_t)x) << 32 | reverse32((uint32_t)(x >> 32)))

#define FIND32(v)  ((v) == 0 ? UINT32_MAX : 31u - (uint32_t)__builtin_clz(v))
#define FIND64(v)  ((v) == 0 ? UINT32_MAX : 63u - (uint32_t)__builtin_clzll(v))
#define SHIFT32(v) ((v) == 0 ? UINT32_MAX : (uint32_t)__builtin_clz(v))
#define SHIFT64(v) ((v) == 0 ? UINT32_MAX : (uint32_t)__builtin_clzll(v))
UNARY(bfind_u32, uint32_t, 32, 32, FIND32(x))
UNARY(bfind_s32, int32_t, 32, 32, FIND32((uint32_t)(x < 0 ? ~x : x)))
UNARY(bfind_u64, uint64_t, 64, 32, FIND64(x))
UNARY(bfind_s64, int64_t, 64, 32, FIND64((uint64_t)(x < 0 ? ~x : x)))
UNARY(bfindsh_u32, uint32_t, 32, 32, SHIFT32(x))
UNARY(bfindsh_s32, int32_t, 32, 32, SHIFT32((uint32_t)(x < 0 ? ~x : x)))
UNARY(bfindsh_u64, uint64_t, 64, 32, SHIFT64(x))
UNARY(bfindsh_s64, int64_t, 64, 32, SHIFT64((uint64_t)(x < 0 ? ~x : x)))

static uint64_t extract(uint64_t x, uint32_t pos, uint32_t len, uint32_t width, bool is_signed)
{
    if (width == 32) { /* 64-bit fields use position and length without masking them */
        pos &= 0xff;
        len &= 0xff;
    }
    if (len == 0) {
        return 0;
    }
    len = WEIR_MIN(len, 255);
    pos = WEIR_MIN(pos, 255);
    /* Fill the bits above the field with copies of its sign, or zeros. */
    bool sign = is_signed && (x >> (pos + len - 1 < width ? pos + len - 1 : width - 1) & 1u) != 0;
    uint64_t value = pos >= width ? 0 : x >> pos;
    uint32_t have = pos >= width ? 0 : width - pos;
    uint32_t keep = WEIR_MIN(len, have);
    uint64_t mask = keep >= 64 ? UINT64_MAX : (1ull << keep) - 1;
    return sign ? value | ~mask : value & mask;
}

static uint64_t insert(uint64_t field, uint64_t into, uint32_t pos, uint32_t len, uint32_t width)
{
    if (width == 32) {
        pos &= 0xff;
        len &= 0xff;
    }
    if (pos >= width || len == 0) {
        return into;
    }
    uint64_t mask = len >= 64 ? UINT64_MAX : (1ull << len) - 1;
    mask <<= pos;
    return (into & ~mask) | (field << pos & mask);
}

static uint32_t fold_mask(uint32_t pos, uint32_t len, bool wrap)
{
    if (wrap) {
        pos &= 31;
        len &= 31;
    } else if (pos >= 32) {
        return 0;
    }
    uint64_t mask = len >= 32 ? 0xffffffffull : (1ull << len) - 1;
    return (uint32_t)(mask << pos);
}

#define EXTRACT(type, T, width, is_signed)                                                         \
    static const struct weir_x_inst *bfe_##type(struct weir_x_warp *w,                             \
                                                const struct weir_x_inst *i)                       \
    {                                                                                              \
        CELL_##width *d = ROW_##width(w, i->d);                                                    \
        const CELL_##width *a = ROW_##width(w, i->a);                                              \
        const weir_x_u32 *b = weir_x_w32(w, i->b);                                                 \
        const weir_x_u32 *c = weir_x_w32(w, i->c);                                                 \
        WEIR_X_EACH_ACTIVE(w, l, d[l] = (T)extract(a[l], b[l], c[l], width, is_signed));           \
        return i + 1;                                                                              \
    }
EXTRACT(u32, uint32_t, 32, false)
EXTRACT(s32, uint32_t, 32, true)
EXTRACT(u64, uint64_t, 64, false)
EXTRACT(s64, uint64_t, 64, true)

#define INSERT(width)                                                                              \
    static const struct weir_x_inst *bfi_##width(struct weir_x_warp *w,                            \
                                                 const struct weir_x_inst *i)                      \
    {                                                                                              \
        CELL_##width *d = ROW_##width(w, i->d);                                                    \
        const CELL_##width *a = ROW_##width(w, i->a);                                              \
        const CELL_##width *b = ROW_##width(w, i->b);                                              \
        const weir_x_u32 *c = weir_x_w32(w, i->c);                                                 \
        const weir_x_u32 *e = weir_x_w32(w, i->e);                                                 \
        WEIR_X_EACH_ACTIVE(w, l, d[l] = (CELL_##width)insert(a[l], b[l], c[l], e[l], width));      \
        return i + 1;                                                                              \
    }
INSERT(32)
INSERT(64)
BINARY(bmsk_clamp, uint32_t, 32, 32, 32, fold_mask(x, y, false))
BINARY(bmsk_wrap, uint32_t, 32, 32, 32, fold_mask(x, y, true))
/* The lowest n bits of x, extended. */
static inline uint32_t low_unsigned(uint32_t x, uint32_t n)
{
    return n >= 32 ? x : x & ((1u << n) - 1);
}
static inline uint32_t low_signed(uint32_t x, uint32_t n)
{
    return n == 0 ? 0 : n >= 32 ? x : (uint32_t)((int32_t)(x << (32 - n)) >> (32 - n));
}
BINARY(szext_clamp_u32, uint32_t, 32, 32, 32, low_unsigned(x, y))
BINARY(szext_clamp_s32, uint32_t, 32, 32, 32, low_signed(x, y))
BINARY(szext_wrap_u32, uint32_t, 32, 32, 32, low_unsigned(x, y & 31))
BINARY(szext_wrap_s32, uint32_t, 32, 32, 32, low_signed(x, y & 31))

static uint32_t nth_set(uint32_t mask, uint32_t base, int32_t offset)
{
    uint32_t n = 0;
    int step = offset < 0 ? -1 : 1;
    if (offset == 0) {
        return base < 32 && (mask >> base & 1u) != 0 ? base : UINT32_MAX;
    }
    for (int32_t at = (int32_t)base; at >= 0 && at < 32; at += step) {
        n += mask >> at & 1u;
        if (n == (uint32_t)(offset < 0 ? -(int64_t)offset : offset)) {
            return (uint32_t)at;
        }
    }
    return UINT32_MAX;
}
TERNARY(fns_32, uint32_t, 32, 32, 32, int32_t, 32, nth_set(x, y, z))

static uint32_t permute(uint32_t a, uint32_t b, uint32_t c, uint32_t mode)
{
    uint64_t pool = (uint64_t)b << 32 | a;
    uint32_t k = c & 3u;
    uint32_t d = 0;
    for (uint32_t byte = 0; byte < 4; byte++) {
        uint32_t pick;
        switch (mode) {
        case 1: /* f4e */
            pick = k + byte;
            break;
        case 2: /* b4e */
            pick = (k - byte) & 7u;
            break;
        case 3: /* rc8 */
            pick = k;
            break;
        case 4: /* ecl: bytes below k become byte k */
            pick = WEIR_MAX(byte, k);
            break;
        case 5: /* ecr */
            pick = WEIR_MIN(byte, k);
            break;
        case 6: /* rc16 */
            pick = (k & 1u) * 2 + (byte & 1u);
            break;
        default:
            pick = c >> (byte * 4) & 0xfu;
            break;
        }
        uint32_t value = (uint32_t)(pool >> ((pick & 7u) * 8)) & 0xffu;
        if ((pick & 8u) != 0) {
            value = (value & 0x80u) != 0 ? 0xffu : 0;
        }
        d |= value << (byte * 8);
    }
    return d;
}
TERNARY(prmt_32, uint32_t, 32, 32, 32, uint32_t, 32, permute(x, y, z, i->sub))

/* sub is a bit mask: 1 a is signed, 2 b is signed, 4 the high half of b (dp2a). */
static uint32_t dot(uint32_t a, uint32_t b, uint32_t c, uint32_t mode, bool two)
{
    for (uint32_t k = 0; k < (two ? 2u : 4u); k++) {
        uint32_t x = two ? a >> (k * 16) & 0xffffu : a >> (k * 8) & 0xffu;
        uint32_t y = b >> (k * 8 + (two && (mode & 4u) != 0 ? 16 : 0)) & 0xffu;
        if ((mode & 1u) != 0) {
            x = two ? (uint32_t)(int32_t)(int16_t)x : (uint32_t)(int32_t)(int8_t)x;
        }
        if ((mode & 2u) != 0) {
            y = (uint32_t)(int32_t)(int8_t)y;
        }
        c += x * y;
    }
    return c;
}
TERNARY(dp4a_32, uint32_t, 32, 32, 32, uint32_t, 32, dot(x, y, z, i->sub, false))
TERNARY(dp2a_32, uint32_t, 32, 32, 32, uint32_t, 32, dot(x, y, z, i->sub, true))

/* Carry chains. sub is a bit mask: 1 reads the carry, 2 writes it, 4 subtracts. */
#define CHAIN(width, U, wide)                                                                      \
    static const struct weir_x_inst *chain_##width(struct weir_x_warp *w,                          \
                                                   const struct weir_x_inst *i)                    \
    {                                                                                              \
        CELL_##width *d = ROW_##width(w, i->d);                                                    \
        const CELL_##width *a = ROW_##width(w, i->a);                                              \
        const CELL_##width *b = ROW_##width(w, i->b);                                              \
        uint32_t carry = w->carry;                                                                 \
        WEIR_X_EACH_ACTIVE(w, l, {                                                                 \
            U in = (i->sub & 1u) != 0 ? carry >> l & 1u : 0;                                       \
            wide sum = (i->sub & 4u) != 0 ? (wide)a[l] - b[l] - in : (wide)a[l] + b[l] + in;       \
            d[l] = (U)sum;                                                                         \
            uint32_t out = (uint32_t)(sum >> width) & 1u;                                          \
            carry = (carry & ~(1u << l)) | out << l;                                               \
        });                                                                                        \
        w->carry = (i->sub & 2u) != 0 ? carry : w->carry;                                          \
        return i + 1;                                                                              \
    }
CHAIN(32, uint32_t, uint64_t)
CHAIN(64, uint64_t, unsigned __int128)

/* mad.cc and madc: sub as above, and 8: the high half; sub2: signed. */
#define MAD_CHAIN(width, U, S, wide, swide)                                                        \
    static const struct weir_x_inst *mad_chain_##width(struct weir_x_warp *w,                      \
                                                       const struct weir_x_inst *i)                \
    {                                                                                              \
        CELL_##width *d = ROW_##width(w, i->d);                                                    \
        const CELL_##width *a = ROW_##width(w, i->a);                                              \
        const CELL_##width *b = ROW_##width(w, i->b);                                              \
        const CELL_##width *c = ROW_##width(w, i->c);                                              \
        uint32_t carry = w->carry;                                                                 \
        WEIR_X_EACH_ACTIVE(w, l, {                                                                 \
            wide product = i->sub2 != 0 ? (wide)((swide)(S)a[l] * (S)b[l]) : (wide)a[l] * b[l];    \
            U part = (U)((i->sub & 8u) != 0 ? product >> width : product);                         \
            wide sum = (wide)part + c[l] + ((i->sub & 1u) != 0 ? carry >> l & 1u : 0);             \
            d[l] = (U)sum;                                                                         \
            carry = (carry & ~(1u << l)) | ((uint32_t)(sum >> width) & 1u) << l;                   \
        });                                                                                        \
        w->carry = (i->sub & 2u) != 0 ? carry : w->carry;                                          \
        return i + 1;                                                                              \
    }
MAD_CHAIN(32, uint32_t, int32_t, uint64_t, int64_t)
MAD_CHAIN(64, uint64_t, int64_t, unsigned __int128, __int128)

/* A row of the table applies to an opcode, a type, and one of these further conditions. */
enum form { ANY, LO, HI, WIDE, SATURATE, RELU };
struct row {
    uint16_t op;
    uint8_t type;
    uint8_t form;
    weir_x_fn fn;
};
#define R(op, type, form, fn)                                                                      \
    {                                                                                              \
        WEIR_PTX_OP_##op, WEIR_PTX_TYPE_##type, form, fn                                           \
    }
#define ROWS3(op, form, fn)                                                                        \
    R(op, U16, form, fn##_32), R(op, S16, form, fn##_32), R(op, U32, form, fn##_32),               \
        R(op, S32, form, fn##_32), R(op, U64, form, fn##_64), R(op, S64, form, fn##_64)
#define ROWS_B(op, fn) R(op, B16, ANY, fn##_32), R(op, B32, ANY, fn##_32), R(op, B64, ANY, fn##_64)
#define ROWS6(op, form, fn)                                                                        \
    R(op, U16, form, fn##_u16), R(op, S16, form, fn##_s16), R(op, U32, form, fn##_u32),            \
        R(op, S32, form, fn##_s32), R(op, U64, form, fn##_u64), R(op, S64, form, fn##_s64)
#define ROWS4(op, form, fn)                                                                        \
    R(op, U16, form, fn##_u16), R(op, S16, form, fn##_s16), R(op, U32, form, fn##_u32),            \
        R(op, S32, form, fn##_s32)

static const struct row rows[] = {
    ROWS3(ADD, ANY, add),
    ROWS3(SUB, ANY, sub),
    ROWS3(MUL, LO, mul),
    ROWS3(MAD, LO, mad),
    R(ADD, S32, SATURATE, addsat_s32),
    R(SUB, S32, SATURATE, subsat_s32),
    R(MAD, S32, SATURATE, madhisat_s32),
    R(ADD, U16X2, ANY, add_16x2),
    R(ADD, S16X2, ANY, add_16x2),
    ROWS6(MUL, HI, mulhi),
    ROWS6(MAD, HI, madhi),
    ROWS4(MUL, WIDE, mulwide),
    ROWS4(MAD, WIDE, madwide),
    ROWS6(DIV, ANY, div),
    ROWS6(REM, ANY, rem),
    ROWS6(MIN, ANY, min),
    ROWS6(MAX, ANY, max),
    R(MIN, U16X2, ANY, min_u16x2),
    R(MAX, U16X2, ANY, max_u16x2),
    R(MIN, S16X2, ANY, min_s16x2),
    R(MAX, S16X2, ANY, max_s16x2),
    R(MIN, S16X2, RELU, minrelu_s16x2),
    R(MAX, S16X2, RELU, maxrelu_s16x2),
    R(MIN, S32, RELU, minrelu_s32),
    R(MAX, S32, RELU, maxrelu_s32),
    R(MUL24, U32, LO, mul24lo_u32),
    R(MUL24, S32, LO, mul24lo_s32),
    R(MUL24, U32, HI, mul24hi_u32),
    R(MUL24, S32, HI, mul24hi_s32),
    R(MAD24, U32, LO, mad24lo_u32),
    R(MAD24, S32, LO, mad24lo_s32),
    R(MAD24, U32, HI, mad24hi_u32),
    R(MAD24, S32, HI, mad24hi_s32),
    R(MAD24, S32, SATURATE, mad24hisat_s32),
    R(ABS, S16, ANY, abs_s16),
    R(ABS, S32, ANY, abs_s32),
    R(ABS, S64, ANY, abs_s64),
    R(NEG, S16, ANY, neg_32),
    R(NEG, S32, ANY, neg_32),
    R(NEG, S64, ANY, neg_64),
    ROWS6(SAD, ANY, sad),
    ROWS_B(AND, and),
    ROWS_B(OR, or),
    ROWS_B(XOR, xor),
    ROWS_B(NOT, not ),
    R(CNOT, B16, ANY, cnot_16),
    R(CNOT, B32, ANY, cnot_32),
    R(CNOT, B64, ANY, cnot_64),
    ROWS_B(SHL, shl),
    ROWS6(SHR, ANY, shr),
    R(SHR, B16, ANY, shr_u16),
    R(SHR, B32, ANY, shr_u32),
    R(SHR, B64, ANY, shr_u64),
    R(POPC, B32, ANY, popc_32),
    R(POPC, B64, ANY, popc_64),
    R(CLZ, B32, ANY, clz_32),
    R(CLZ, B64, ANY, clz_64),
    R(BREV, B32, ANY, brev_32),
    R(BREV, B64, ANY, brev_64),
    R(BFE, U32, ANY, bfe_u32),
    R(BFE, S32, ANY, bfe_s32),
    R(BFE, U64, ANY, bfe_u64),
    R(BFE, S64, ANY, bfe_s64),
    R(BFI, B32, ANY, bfi_32),
    R(BFI, B64, ANY, bfi_64),
    R(FNS, B32, ANY, fns_32),
    R(PRMT, B32, ANY, prmt_32),
    R(DP4A, U32, ANY, dp4a_32),
    R(DP4A, S32, ANY, dp4a_32),
    R(DP2A, U32, ANY, dp2a_32),
    R(DP2A, S32, ANY, dp2a_32),
};

static bool is_wide_type(uint8_t type)
{
    return weir_ptx_type_bits(type) == 64;
}

static weir_x_fn find_special(const struct weir_ptx_inst *ir, struct weir_x_inst *out)
{
    bool cc = (ir->flags & WEIR_PTX_FLAG_CC) != 0;
    bool wide = is_wide_type(ir->types[0]);
    bool shift = weir_ptx_inst_has(ir, WEIR_PTX_MOD_SHIFTAMT);
    switch (ir->op) {
    case WEIR_PTX_OP_ADD:
    case WEIR_PTX_OP_SUB:
    case WEIR_PTX_OP_ADDC:
    case WEIR_PTX_OP_SUBC:
        out->sub = (ir->op == WEIR_PTX_OP_ADDC || ir->op == WEIR_PTX_OP_SUBC ? 1 : 0) |
                   (cc ? 2 : 0) | (ir->op == WEIR_PTX_OP_SUB || ir->op == WEIR_PTX_OP_SUBC ? 4 : 0);
        return wide ? chain_64 : chain_32;
    case WEIR_PTX_OP_MAD:
    case WEIR_PTX_OP_MADC:
        out->sub = (ir->op == WEIR_PTX_OP_MADC ? 1 : 0) | (cc ? 2 : 0) |
                   (ir->half == WEIR_PTX_MOD_HI ? 8 : 0);
        out->sub2 = weir_ptx_type_class(ir->types[0]) == 'S';
        return wide ? mad_chain_64 : mad_chain_32;
    case WEIR_PTX_OP_SHF:
        if (weir_ptx_inst_has(ir, WEIR_PTX_MOD_L)) {
            return weir_ptx_inst_has(ir, WEIR_PTX_MOD_WRAP) ? shf_l_wrap : shf_l_clamp;
        }
        return weir_ptx_inst_has(ir, WEIR_PTX_MOD_WRAP) ? shf_r_wrap : shf_r_clamp;
    case WEIR_PTX_OP_BFIND:
        switch (ir->types[0]) {
        case WEIR_PTX_TYPE_U32:
            return shift ? bfindsh_u32 : bfind_u32;
        case WEIR_PTX_TYPE_S32:
            return shift ? bfindsh_s32 : bfind_s32;
        case WEIR_PTX_TYPE_U64:
            return shift ? bfindsh_u64 : bfind_u64;
        default:
            return shift ? bfindsh_s64 : bfind_s64;
        }
    case WEIR_PTX_OP_BMSK:
        return weir_ptx_inst_has(ir, WEIR_PTX_MOD_WRAP) ? bmsk_wrap : bmsk_clamp;
    case WEIR_PTX_OP_SZEXT:
        if (ir->types[0] == WEIR_PTX_TYPE_S32) {
            return weir_ptx_inst_has(ir, WEIR_PTX_MOD_WRAP) ? szext_wrap_s32 : szext_clamp_s32;
        }
        return weir_ptx_inst_has(ir, WEIR_PTX_MOD_WRAP) ? szext_wrap_u32 : szext_clamp_u32;
    default:
        return NULL;
    }
}

static uint8_t permute_mode(const struct weir_ptx_inst *ir)
{
    static const uint16_t modes[] = {WEIR_PTX_MOD_F4E, WEIR_PTX_MOD_B4E, WEIR_PTX_MOD_RC8,
                                     WEIR_PTX_MOD_ECL, WEIR_PTX_MOD_ECR, WEIR_PTX_MOD_RC16};
    uint8_t at = WEIR_FIRST(m, 6, weir_ptx_inst_has(ir, modes[m]));
    return at < 6 ? at + 1 : 0;
}

weir_x_fn weir_x_find_int(const struct weir_ptx_inst *ir, struct weir_x_inst *out)
{
    if ((ir->flags & WEIR_PTX_FLAG_CC) != 0 || ir->op == WEIR_PTX_OP_ADDC ||
        ir->op == WEIR_PTX_OP_SUBC || ir->op == WEIR_PTX_OP_MADC || ir->op == WEIR_PTX_OP_SHF ||
        ir->op == WEIR_PTX_OP_BFIND || ir->op == WEIR_PTX_OP_BMSK || ir->op == WEIR_PTX_OP_SZEXT) {
        return find_special(ir, out);
    }
    enum form form = (ir->flags & WEIR_PTX_FLAG_SAT) != 0    ? SATURATE
                     : (ir->flags & WEIR_PTX_FLAG_RELU) != 0 ? RELU
                     : ir->half == WEIR_PTX_MOD_LO           ? LO
                     : ir->half == WEIR_PTX_MOD_HI           ? HI
                     : ir->half == WEIR_PTX_MOD_WIDE         ? WIDE
                                                             : ANY;
    if (ir->op == WEIR_PTX_OP_DP2A || ir->op == WEIR_PTX_OP_DP4A) {
        form = ANY;
        out->sub = (uint8_t)((weir_ptx_type_class(ir->types[0]) == 'S' ? 1 : 0) |
                             (weir_ptx_type_class(ir->types[1]) == 'S' ? 2 : 0) |
                             (weir_ptx_inst_has(ir, WEIR_PTX_MOD_HI) ? 4 : 0));
    } else if (ir->op == WEIR_PTX_OP_PRMT) {
        out->sub = permute_mode(ir);
    }
    size_t at =
        WEIR_FIRST(r, WEIR_COUNT(rows),
                   rows[r].op == ir->op && rows[r].type == ir->types[0] && rows[r].form == form);
    return at < WEIR_COUNT(rows) ? rows[at].fn : NULL;
}
