/* The read-modify-write operations of atom and red, each on one element in memory. */
#include "softgpu/exec/half.h"
#include "softgpu/exec/internal.h"

#define NATIVE(name, type, builtin)                                                                \
    static uint64_t name(void *place, uint64_t value, uint64_t compare)                            \
    {                                                                                              \
        (void)compare;                                                                             \
        return builtin((type *)place, (type)value, __ATOMIC_ACQ_REL);                              \
    }
NATIVE(add_32, uint32_t, __atomic_fetch_add)
NATIVE(add_64, uint64_t, __atomic_fetch_add)
NATIVE(and_32, uint32_t, __atomic_fetch_and)
NATIVE(and_64, uint64_t, __atomic_fetch_and)
NATIVE(or_32, uint32_t, __atomic_fetch_or)
NATIVE(or_64, uint64_t, __atomic_fetch_or)
NATIVE(xor_32, uint32_t, __atomic_fetch_xor)
NATIVE(xor_64, uint64_t, __atomic_fetch_xor)
NATIVE(exch_32, uint32_t, __atomic_exchange_n)
NATIVE(exch_64, uint64_t, __atomic_exchange_n)

#define CAS(name, type)                                                                            \
    static uint64_t name(void *place, uint64_t value, uint64_t compare)                            \
    {                                                                                              \
        type old = (type)compare;                                                                  \
        __atomic_compare_exchange_n((type *)place, &old, (type)value, false, __ATOMIC_ACQ_REL,     \
                                    __ATOMIC_ACQUIRE);                                             \
        return old;                                                                                \
    }
CAS(cas_16, uint16_t)
CAS(cas_32, uint32_t)
CAS(cas_64, uint64_t)

/* Compute next from old and v, and repeat until no other thread has written in between. */
#define LOOP(name, type, next)                                                                     \
    static uint64_t name(void *place, uint64_t value, uint64_t compare)                            \
    {                                                                                              \
        (void)compare;                                                                             \
        type v = (type)value;                                                                      \
        type old = __atomic_load_n((type *)place, __ATOMIC_RELAXED);                               \
        while (!__atomic_compare_exchange_n((type *)place, &old, (type)(next), true,               \
                                            __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {                 \
        }                                                                                          \
        return old;                                                                                \
    }
LOOP(min_u32, uint32_t, WEIR_MIN(old, v))
LOOP(max_u32, uint32_t, WEIR_MAX(old, v))
LOOP(min_s32, uint32_t, (int32_t)old < (int32_t)v ? old : v)
LOOP(max_s32, uint32_t, (int32_t)old > (int32_t)v ? old : v)
LOOP(min_u64, uint64_t, WEIR_MIN(old, v))
LOOP(max_u64, uint64_t, WEIR_MAX(old, v))
LOOP(min_s64, uint64_t, (int64_t)old < (int64_t)v ? old : v)
LOOP(max_s64, uint64_t, (int64_t)old > (int64_t)v ? old : v)
LOOP(inc_u32, uint32_t, old >= v ? 0 : old + 1)
LOOP(dec_u32, uint32_t, old == 0 || old > v ? v : old - 1)
LOOP(exch_16, uint16_t, v)

static uint32_t add_bits_f32(uint32_t a, uint32_t b)
{
    float sum = weir_x_as_f32(a) + weir_x_as_f32(b);
    return sum != sum ? 0x7fffffffu : weir_x_bits_f32(sum);
}

static bool is_nan_f64(uint64_t a)
{
    return (a & (UINT64_MAX >> 1)) > 0x7ff0000000000000ull;
}

/* Of two NaNs, return the first, quieted. The code does so explicitly, because a compiler may swap
 * the operands of an addition. */
static uint64_t add_bits_f64(uint64_t a, uint64_t b)
{
    if (is_nan_f64(a) || is_nan_f64(b)) {
        return (is_nan_f64(a) ? a : b) | 0x0008000000000000ull;
    }
    return weir_x_bits_f64(weir_x_as_f64(a) + weir_x_as_f64(b));
}

static uint16_t add_f16_bits(uint16_t a, uint16_t b)
{
    return weir_x_half_from_float(weir_x_half_to_float(a) + weir_x_half_to_float(b));
}

static uint16_t add_bf16_bits(uint16_t a, uint16_t b)
{
    return weir_x_bf16_from_double((double)weir_x_bf16_to_float(a) + weir_x_bf16_to_float(b));
}

static uint32_t both(uint16_t (*op)(uint16_t, uint16_t), uint32_t a, uint32_t b)
{
    return op((uint16_t)a, (uint16_t)b) | (uint32_t)op((uint16_t)(a >> 16), (uint16_t)(b >> 16))
                                              << 16;
}

/* If one operand is NaN, return the other; if both are, the canonical NaN. inf: its bits */
static uint16_t min_max_bits(uint16_t a, uint16_t b, float x, float y, uint16_t inf, bool min)
{
    bool nan_a = (a & 0x7fffu) > inf;
    bool nan_b = (b & 0x7fffu) > inf;
    if (nan_a || nan_b) {
        return nan_a && nan_b ? 0x7fffu : nan_a ? b : a;
    }
    bool less = x < y || (x == y && (a & 0x8000u) != 0);
    return less == min ? a : b;
}

#define MIN_MAX(name, to_float, inf, min)                                                          \
    static uint16_t name(uint16_t a, uint16_t b)                                                   \
    {                                                                                              \
        return min_max_bits(a, b, to_float(a), to_float(b), inf, min);                             \
    }
MIN_MAX(min_f16_bits, weir_x_half_to_float, 0x7c00u, true)
MIN_MAX(max_f16_bits, weir_x_half_to_float, 0x7c00u, false)
MIN_MAX(min_bf16_bits, weir_x_bf16_to_float, 0x7f80u, true)
MIN_MAX(max_bf16_bits, weir_x_bf16_to_float, 0x7f80u, false)

/* In global memory, f32 additions flush subnormal numbers, and f64 additions pass a NaN on
 * unchanged. */
static uint32_t flush_f32(uint32_t a)
{
    return (a & 0x7f800000u) == 0 ? a & 0x80000000u : a;
}

static uint32_t add_global_f32(uint32_t a, uint32_t b)
{
    return flush_f32(add_bits_f32(flush_f32(a), flush_f32(b)));
}

static uint64_t add_global_f64(uint64_t a, uint64_t b)
{
    bool quiet_a = (a & 0x0008000000000000ull) != 0;
    bool quiet_b = (b & 0x0008000000000000ull) != 0;
    if (is_nan_f64(a) && is_nan_f64(b)) {
        return quiet_a && !quiet_b ? b : a;
    }
    return is_nan_f64(a) ? a : is_nan_f64(b) ? b : add_bits_f64(a, b);
}

LOOP(add_f32, uint32_t, add_bits_f32(old, v))
LOOP(add_f64, uint64_t, add_bits_f64(old, v))
LOOP(global_add_f32, uint32_t, add_global_f32(old, v))
LOOP(global_add_f64, uint64_t, add_global_f64(old, v))
LOOP(add_f16, uint16_t, add_f16_bits(old, v))
LOOP(add_bf16, uint16_t, add_bf16_bits(old, v))
LOOP(add_f16x2, uint32_t, both(add_f16_bits, old, v))
LOOP(add_bf16x2, uint32_t, both(add_bf16_bits, old, v))
LOOP(min_f16, uint16_t, min_f16_bits(old, v))
LOOP(max_f16, uint16_t, max_f16_bits(old, v))
LOOP(min_f16x2, uint32_t, both(min_f16_bits, old, v))
LOOP(max_f16x2, uint32_t, both(max_f16_bits, old, v))
LOOP(min_bf16, uint16_t, min_bf16_bits(old, v))
LOOP(max_bf16, uint16_t, max_bf16_bits(old, v))
LOOP(min_bf16x2, uint32_t, both(min_bf16_bits, old, v))
LOOP(max_bf16x2, uint32_t, both(max_bf16_bits, old, v))

#define ROW(action, type, fn)                                                                      \
    {                                                                                              \
        WEIR_PTX_MOD_##action, WEIR_PTX_TYPE_##type, fn                                            \
    }
#define ROWS_BITS(action, fn)                                                                      \
    ROW(action, B32, fn##_32), ROW(action, U32, fn##_32), ROW(action, S32, fn##_32),               \
        ROW(action, B64, fn##_64), ROW(action, U64, fn##_64), ROW(action, S64, fn##_64)

static const struct {
    uint16_t action;
    uint8_t type;
    weir_x_rmw_fn fn;
} rows[] = {
    ROWS_BITS(ADD, add),          ROWS_BITS(AND, and),          ROWS_BITS(OR, or),
    ROWS_BITS(XOR, xor),          ROWS_BITS(EXCH, exch),        ROWS_BITS(CAS, cas),
    ROW(EXCH, B16, exch_16),      ROW(CAS, B16, cas_16),        ROW(CAS, U16, cas_16),
    ROW(MIN, U32, min_u32),       ROW(MIN, S32, min_s32),       ROW(MIN, U64, min_u64),
    ROW(MIN, S64, min_s64),       ROW(MAX, U32, max_u32),       ROW(MAX, S32, max_s32),
    ROW(MAX, U64, max_u64),       ROW(MAX, S64, max_s64),       ROW(INC, U32, inc_u32),
    ROW(DEC, U32, dec_u32),       ROW(ADD, F32, add_f32),       ROW(ADD, F64, add_f64),
    ROW(ADD, F16, add_f16),       ROW(ADD, BF16, add_bf16),     ROW(ADD, F16X2, add_f16x2),
    ROW(ADD, BF16X2, add_bf16x2), ROW(MIN, F16, min_f16),       ROW(MAX, F16, max_f16),
    ROW(MIN, F16X2, min_f16x2),   ROW(MAX, F16X2, max_f16x2),   ROW(MIN, BF16, min_bf16),
    ROW(MAX, BF16, max_bf16),     ROW(MIN, BF16X2, min_bf16x2), ROW(MAX, BF16X2, max_bf16x2),
};

weir_x_rmw_fn weir_x_global_rmw(weir_x_rmw_fn rmw)
{
    return rmw == add_f32 ? global_add_f32 : rmw == add_f64 ? global_add_f64 : rmw;
}

weir_x_rmw_fn weir_x_find_rmw(const struct weir_ptx_inst *ir)
{
    size_t at = WEIR_FIRST(r, WEIR_COUNT(rows),
                           rows[r].action == ir->action && rows[r].type == ir->types[0]);
    return at < WEIR_COUNT(rows) ? rows[at].fn : NULL;
}
