/* Handlers that move data: mov, pack and unpack, selp, slct, lop3, predicate logic, special
 * registers. */
#include "softgpu/exec/internal.h"

#include <assert.h>
#include <time.h>

#define MOV(width)                                                                                 \
    WEIR_X_HANDLER(mov##width)                                                                     \
    {                                                                                              \
        weir_x_u##width *d = weir_x_w##width(w, i->d);                                             \
        const weir_x_u##width *a = weir_x_w##width(w, i->a);                                       \
        WEIR_X_EACH(w, l, d[l] = a[l]);                                                            \
        return i + 1;                                                                              \
    }
MOV(32)
MOV(64)

WEIR_X_HANDLER(mov128)
{
    weir_x_u64 *d = weir_x_w64(w, i->d);
    const weir_x_u64 *a = weir_x_w64(w, i->a);
    WEIR_X_EACH_ACTIVE(w, l, {
        d[l] = a[l];
        d[l + WEIR_X_LANES] = a[l + WEIR_X_LANES];
    });
    return i + 1;
}

#define PRED2(name, expr)                                                                          \
    WEIR_X_HANDLER(name)                                                                           \
    {                                                                                              \
        uint32_t x = weir_x_pred(w, i->a);                                                         \
        uint32_t y = weir_x_pred(w, i->b);                                                         \
        weir_x_set_pred(w, i->d, expr);                                                            \
        return i + 1;                                                                              \
    }
PRED2(and_pred, x &y)
PRED2(or_pred, x | y)
PRED2(xor_pred, x ^ y)

WEIR_X_HANDLER(mov_pred)
{
    weir_x_set_pred(w, i->d, weir_x_pred(w, i->a));
    return i + 1;
}

WEIR_X_HANDLER(not_pred)
{
    weir_x_set_pred(w, i->d, ~weir_x_pred(w, i->a));
    return i + 1;
}

/* Read an element of a vector operand, which has this many bytes, as 64 bits. */
static uint64_t cell(const struct weir_x_warp *w, weir_x_ref ref, uint32_t bytes, uint32_t lane)
{
    return bytes == 8   ? weir_x_w64(w, ref)[lane]
           : bytes == 4 ? weir_x_w32(w, ref)[lane]
                        : weir_x_w32(w, ref)[lane] & ((1u << (bytes * 8)) - 1);
}

/* mov.b32 d, {a, b}: pack refs[vec], each with `bytes` bytes, into 32, 64 or 128 bits (type2) */
WEIR_X_HANDLER(pack)
{
    WEIR_X_EACH_ACTIVE(w, l, {
        uint64_t value[2] = {0, 0};
        for (uint32_t e = 0; e < i->vec; e++) {
            uint32_t at = e * i->bytes;
            assert(at < sizeof value);
            value[at / 8] |= cell(w, i->refs[e], i->bytes, l) << (at % 8 * 8);
        }
        if (i->sub == 4) {
            weir_x_w32(w, i->d)[l] = (uint32_t)value[0];
        } else {
            weir_x_w64(w, i->d)[l] = value[0];
        }
        if (i->sub == 16) {
            weir_x_w64(w, i->d)[l + WEIR_X_LANES] = value[1];
        }
    });
    return i + 1;
}

WEIR_X_HANDLER(unpack)
{
    WEIR_X_EACH_ACTIVE(w, l, {
        uint64_t value[2] = {0, 0};
        value[0] = i->sub == 4 ? weir_x_w32(w, i->a)[l] : weir_x_w64(w, i->a)[l];
        if (i->sub == 16) {
            value[1] = weir_x_w64(w, i->a)[l + WEIR_X_LANES];
        }
        for (uint32_t e = 0; e < i->vec; e++) {
            uint32_t at = e * i->bytes;
            assert(at < sizeof value);
            uint64_t part = value[at / 8] >> (at % 8 * 8);
            if (i->refs[e] == WEIR_X_NO_REF) {
                continue;
            }
            if (i->bytes == 8) {
                weir_x_w64(w, i->refs[e])[l] = part;
            } else {
                weir_x_w32(w, i->refs[e])[l] =
                    (uint32_t)(i->bytes == 4 ? part : part & ((1u << (i->bytes * 8)) - 1));
            }
        }
    });
    return i + 1;
}

/* Fields: c: predicate; guard_flip: it is negated */
#define SELP(width)                                                                                \
    WEIR_X_HANDLER(selp##width)                                                                    \
    {                                                                                              \
        weir_x_u##width *d = weir_x_w##width(w, i->d);                                             \
        const weir_x_u##width *a = weir_x_w##width(w, i->a);                                       \
        const weir_x_u##width *b = weir_x_w##width(w, i->b);                                       \
        uint32_t p = weir_x_pred(w, i->c);                                                         \
        WEIR_X_EACH(w, l, d[l] = (p & (1u << l)) != 0 ? a[l] : b[l]);                              \
        return i + 1;                                                                              \
    }
SELP(32)
SELP(64)

/* d = c >= 0 ? a : b; sub: c is 0 an integer, 1 f32, 2 f32 with .ftz; WIDE: a and b have 64 bits */
WEIR_X_HANDLER(slct)
{
    const weir_x_u32 *c = weir_x_w32(w, i->c);
    WEIR_X_EACH_ACTIVE(w, l, {
        uint32_t bits = c[l];
        bool first = (int32_t)bits >= 0;
        if (i->sub != 0) {
            uint32_t magnitude = bits & 0x7fffffffu;
            bool zero = magnitude == 0 || (i->sub == 2 && magnitude < 0x800000u);
            first = magnitude <= 0x7f800000u && (zero || (int32_t)bits >= 0);
        }
        if ((i->flags & WEIR_X_F_WIDE) != 0) {
            weir_x_w64(w, i->d)[l] = weir_x_w64(w, first ? i->a : i->b)[l];
        } else {
            weir_x_w32(w, i->d)[l] = weir_x_w32(w, first ? i->a : i->b)[l];
        }
    });
    return i + 1;
}

/* imm is the truth table: bit n is the result for the bits a, b, c of n. */
static void apply_lut(struct weir_x_warp *w, const struct weir_x_inst *i, weir_x_u32 *d)
{
    const weir_x_u32 *a = weir_x_w32(w, i->a);
    const weir_x_u32 *b = weir_x_w32(w, i->b);
    const weir_x_u32 *c = weir_x_w32(w, i->c);
    uint32_t m[8];
    for (uint32_t k = 0; k < 8; k++) {
        m[k] = (i->imm >> k & 1u) != 0 ? UINT32_MAX : 0;
    }
    WEIR_X_EACH(w, l, {
        uint32_t x = a[l];
        uint32_t y = b[l];
        uint32_t z = c[l];
        d[l] = (~x & ~y & ~z & m[0]) | (~x & ~y & z & m[1]) | (~x & y & ~z & m[2]) |
               (~x & y & z & m[3]) | (x & ~y & ~z & m[4]) | (x & ~y & z & m[5]) |
               (x & y & ~z & m[6]) | (x & y & z & m[7]);
    });
}

WEIR_X_HANDLER(lop3)
{
    apply_lut(w, i, weir_x_w32(w, i->d));
    return i + 1;
}

/* Fields: refs[0]: receives whether the result is not zero, combined with refs[1] by or (sub) or
 * and */
WEIR_X_HANDLER(lop3_pred)
{
    weir_x_u32 result[WEIR_X_LANES] = {0};
    apply_lut(w, i, result);
    weir_x_u32 *d = weir_x_w32(w, i->d);
    uint32_t other = weir_x_pred(w, i->refs[1]);
    uint32_t set = 0;
    WEIR_X_EACH_ACTIVE(w, l, {
        d[l] = result[l];
        set |= result[l] != 0 ? 1u << l : 0;
    });
    weir_x_set_pred(w, i->refs[0], i->sub != 0 ? set | other : set & other);
    return i + 1;
}

/* Read a special register that changes. sub is enum weir_ptx_sreg. %clock counts nanoseconds. */
WEIR_X_HANDLER(sreg)
{
    struct timespec now;
    bool global = i->sub == WEIR_PTX_SREG_GLOBALTIMER || i->sub == WEIR_PTX_SREG_GLOBALTIMER_LO ||
                  i->sub == WEIR_PTX_SREG_GLOBALTIMER_HI;
    clock_gettime(global ? CLOCK_REALTIME : CLOCK_MONOTONIC, &now);
    uint64_t value = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    if (i->sub == WEIR_PTX_SREG_CLOCK_HI || i->sub == WEIR_PTX_SREG_GLOBALTIMER_HI) {
        value >>= 32;
    }
    if ((i->flags & WEIR_X_F_WIDE) != 0) {
        weir_x_u64 *d = weir_x_w64(w, i->d);
        WEIR_X_EACH(w, l, d[l] = value);
    } else {
        weir_x_u32 *d = weir_x_w32(w, i->d);
        WEIR_X_EACH(w, l, d[l] = (uint32_t)value);
    }
    return i + 1;
}
