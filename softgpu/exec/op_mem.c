/*
 * Handlers of loads, stores, copies and address conversions.
 *
 * Fields of ld and st: a: address (register, constant) + imm; d or refs[vec]: data; bytes: size of
 * an element. Every access of 1, 2, 4 or 8 bytes is one relaxed, acquiring or releasing atomic of
 * the host, so accesses that are atomic on a GPU are atomic here.
 */
#include "softgpu/exec/internal.h"

#include <string.h>

#define PTR(type, a) ((type *)(uintptr_t)(a))

static inline void lane_addresses(const struct weir_x_warp *w, const struct weir_x_inst *i,
                                  weir_x_ref ref, uint64_t offset, uint64_t addr[WEIR_X_LANES])
{
    if ((i->flags & WEIR_X_F_ADDR64) != 0) {
        const weir_x_u64 *a = weir_x_w64(w, ref);
        for (uint32_t l = 0; l < WEIR_X_LANES; l++) {
            addr[l] = a[l] + offset;
        }
    } else {
        const weir_x_u32 *a = weir_x_w32(w, ref);
        for (uint32_t l = 0; l < WEIR_X_LANES; l++) {
            addr[l] = (uint32_t)(a[l] + (uint32_t)offset);
        }
    }
}

#define LOAD_AS(type)                                                                              \
    (acquire ? __atomic_load_n(PTR(const type, addr[l] + at), __ATOMIC_ACQUIRE)                    \
             : __atomic_load_n(PTR(const type, addr[l] + at), __ATOMIC_RELAXED))
#define LOAD_ROW(type, wide_type)                                                                  \
    if (wide) {                                                                                    \
        weir_x_u64 *d = weir_x_w64(w, ref);                                                        \
        WEIR_X_EACH(w, l, d[l] = (uint64_t)(wide_type)(type)LOAD_AS(type));                        \
    } else {                                                                                       \
        weir_x_u32 *d = weir_x_w32(w, ref);                                                        \
        WEIR_X_EACH(w, l, d[l] = (uint32_t)(wide_type)(type)LOAD_AS(type));                        \
    }                                                                                              \
    break

static void load_row(struct weir_x_warp *w, const struct weir_x_inst *i, weir_x_ref ref,
                     const uint64_t addr[WEIR_X_LANES], uint32_t at)
{
    bool wide = (i->flags & WEIR_X_F_WIDE) != 0;
    bool acquire = (i->flags & WEIR_X_F_ACQUIRE) != 0;
    bool is_signed = (i->flags & WEIR_X_F_SIGNED) != 0;
    switch (i->bytes * 2u + is_signed) {
    case 2:
        LOAD_ROW(uint8_t, uint64_t);
    case 3:
        LOAD_ROW(int8_t, int64_t);
    case 4:
        LOAD_ROW(uint16_t, uint64_t);
    case 5:
        LOAD_ROW(int16_t, int64_t);
    case 8:
        LOAD_ROW(uint32_t, uint64_t);
    case 9:
        LOAD_ROW(int32_t, int64_t);
    case 32: {
        weir_x_u64 *d = weir_x_w64(w, ref);
        WEIR_X_EACH_ACTIVE(w, l, {
            d[l] = __atomic_load_n(PTR(const uint64_t, addr[l] + at), __ATOMIC_RELAXED);
            d[l + WEIR_X_LANES] =
                __atomic_load_n(PTR(const uint64_t, addr[l] + at + 8), __ATOMIC_RELAXED);
        });
        break;
    }
    default:
        LOAD_ROW(uint64_t, uint64_t);
    }
}

WEIR_X_HANDLER(ld)
{
    uint64_t addr[WEIR_X_LANES];
    lane_addresses(w, i, i->a, i->imm, addr);
    uint32_t bytes = i->bytes * (uint32_t)i->vec;
    WEIR_FAIL_IF(!weir_x_translate(w, i, i->space, addr, bytes, bytes, WEIR_SOFT_READ), NULL);
    if (i->vec == 1) {
        load_row(w, i, i->d, addr, 0);
        return i + 1;
    }
    for (uint32_t e = 0; e < i->vec; e++) {
        if (i->refs[e] != WEIR_X_NO_REF) {
            load_row(w, i, i->refs[e], addr, e * i->bytes);
        }
    }
    return i + 1;
}

WEIR_X_HANDLER(ld_global32)
{
    uint64_t addr[WEIR_X_LANES];
    lane_addresses(w, i, i->a, i->imm, addr);
    WEIR_FAIL_IF(!weir_x_translate(w, i, i->space, addr, 4, 4, WEIR_SOFT_READ), NULL);
    weir_x_u32 *d = weir_x_w32(w, i->d);
    WEIR_X_EACH(w, l, d[l] = __atomic_load_n(PTR(const uint32_t, addr[l]), __ATOMIC_RELAXED));
    return i + 1;
}

WEIR_X_HANDLER(ld_global64)
{
    uint64_t addr[WEIR_X_LANES];
    lane_addresses(w, i, i->a, i->imm, addr);
    WEIR_FAIL_IF(!weir_x_translate(w, i, i->space, addr, 8, 8, WEIR_SOFT_READ), NULL);
    weir_x_u64 *d = weir_x_w64(w, i->d);
    WEIR_X_EACH(w, l, d[l] = __atomic_load_n(PTR(const uint64_t, addr[l]), __ATOMIC_RELAXED));
    return i + 1;
}

/* All lanes read one place: imm, an offset in the parameters that decode.c has checked. */
WEIR_X_HANDLER(ld_param)
{
    for (uint32_t e = 0; e < i->vec; e++) {
        weir_x_ref ref = i->vec == 1 ? i->d : i->refs[e];
        if (ref == WEIR_X_NO_REF) {
            continue;
        }
        uint64_t value = 0;
        memcpy(&value, w->block->params + i->imm + e * i->bytes, WEIR_MIN(i->bytes, 8));
        if ((i->flags & WEIR_X_F_SIGNED) != 0 && i->bytes < 8) {
            uint32_t shift = 64 - i->bytes * 8u;
            value = (uint64_t)((int64_t)(value << shift) >> shift);
        }
        if ((i->flags & WEIR_X_F_WIDE) != 0) {
            weir_x_u64 *d = weir_x_w64(w, ref);
            WEIR_X_EACH(w, l, d[l] = value);
        } else {
            weir_x_u32 *d = weir_x_w32(w, ref);
            WEIR_X_EACH(w, l, d[l] = (uint32_t)value);
        }
    }
    return i + 1;
}

#define STORE_AS(type, value)                                                                      \
    if (release) {                                                                                 \
        __atomic_store_n(PTR(type, addr[l] + at), (type)(value), __ATOMIC_RELEASE);                \
    } else {                                                                                       \
        __atomic_store_n(PTR(type, addr[l] + at), (type)(value), __ATOMIC_RELAXED);                \
    }
#define STORE_ROW(type)                                                                            \
    if (wide) {                                                                                    \
        const weir_x_u64 *s = weir_x_w64(w, ref);                                                  \
        WEIR_X_EACH(w, l, STORE_AS(type, s[l]));                                                   \
    } else {                                                                                       \
        const weir_x_u32 *s = weir_x_w32(w, ref);                                                  \
        WEIR_X_EACH(w, l, STORE_AS(type, s[l]));                                                   \
    }                                                                                              \
    break

static void store_row(struct weir_x_warp *w, const struct weir_x_inst *i, weir_x_ref ref,
                      const uint64_t addr[WEIR_X_LANES], uint32_t at)
{
    bool wide = (i->flags & WEIR_X_F_WIDE) != 0;
    bool release = (i->flags & WEIR_X_F_RELEASE) != 0;
    switch (i->bytes) {
    case 1:
        STORE_ROW(uint8_t);
    case 2:
        STORE_ROW(uint16_t);
    case 4:
        STORE_ROW(uint32_t);
    case 16: {
        const weir_x_u64 *s = weir_x_w64(w, ref);
        WEIR_X_EACH_ACTIVE(w, l, {
            __atomic_store_n(PTR(uint64_t, addr[l] + at), s[l], __ATOMIC_RELAXED);
            __atomic_store_n(PTR(uint64_t, addr[l] + at + 8), s[l + WEIR_X_LANES],
                             __ATOMIC_RELAXED);
        });
        break;
    }
    default:
        STORE_ROW(uint64_t);
    }
}

WEIR_X_HANDLER(st)
{
    uint64_t addr[WEIR_X_LANES];
    lane_addresses(w, i, i->a, i->imm, addr);
    uint32_t bytes = i->bytes * (uint32_t)i->vec;
    WEIR_FAIL_IF(!weir_x_translate(w, i, i->space, addr, bytes, bytes, WEIR_SOFT_WRITE), NULL);
    if (i->vec == 1) {
        store_row(w, i, i->d, addr, 0);
        return i + 1;
    }
    for (uint32_t e = 0; e < i->vec; e++) {
        if (i->refs[e] != WEIR_X_NO_REF) {
            store_row(w, i, i->refs[e], addr, e * i->bytes);
        }
    }
    return i + 1;
}

WEIR_X_HANDLER(st_global32)
{
    uint64_t addr[WEIR_X_LANES];
    lane_addresses(w, i, i->a, i->imm, addr);
    WEIR_FAIL_IF(!weir_x_translate(w, i, i->space, addr, 4, 4, WEIR_SOFT_WRITE), NULL);
    const weir_x_u32 *s = weir_x_w32(w, i->d);
    WEIR_X_EACH(w, l, __atomic_store_n(PTR(uint32_t, addr[l]), s[l], __ATOMIC_RELAXED));
    return i + 1;
}

/* Fields: a: address; b: value; c: compare (cas); rmw: operation; d: NO_REF for red */
static uint32_t global_lanes(const struct weir_x_warp *w, const struct weir_x_inst *i,
                             const uint64_t addr[WEIR_X_LANES])
{
    uint32_t lanes = 0;
    if (i->space == WEIR_X_GLOBAL) {
        return w->mask;
    }
    WEIR_X_EACH_ACTIVE(w, l, {
        bool inside = addr[l] - weir_x_window_shared < WEIR_X_WINDOW_BYTES * WEIR_X_WINDOWS;
        lanes |= i->space == WEIR_X_GENERIC && !inside ? 1u << l : 0;
    });
    return lanes;
}

WEIR_X_HANDLER(atom)
{
    uint64_t addr[WEIR_X_LANES];
    lane_addresses(w, i, i->a, (uint64_t)(int64_t)(int32_t)i->e, addr);
    weir_x_rmw_fn global_rmw = weir_x_global_rmw(i->rmw);
    uint32_t global = global_rmw != i->rmw ? global_lanes(w, i, addr) : 0;
    uint32_t total = i->bytes * (uint32_t)i->vec;
    if (!weir_x_translate(w, i, i->space, addr, total, total, WEIR_SOFT_READ | WEIR_SOFT_WRITE)) {
        return NULL;
    }
    bool wide = (i->flags & WEIR_X_F_WIDE) != 0;
    for (uint32_t e = 0; e < i->vec; e++) {
        weir_x_ref value = i->vec == 1 ? i->b : i->refs[i->vec + e];
        weir_x_ref result = i->vec == 1 ? i->d : i->refs[e];
        WEIR_X_EACH_ACTIVE(w, l, {
            void *place = PTR(void, addr[l] + e * i->bytes);
            uint64_t v = wide ? weir_x_w64(w, value)[l] : weir_x_w32(w, value)[l];
            uint64_t compare = 0;
            if (i->c != WEIR_X_NO_REF) {
                compare = wide ? weir_x_w64(w, i->c)[l] : weir_x_w32(w, i->c)[l];
            }
            uint64_t old = ((global >> l & 1u) != 0 ? global_rmw : i->rmw)(place, v, compare);
            if (result != WEIR_X_NO_REF && wide) {
                weir_x_w64(w, result)[l] = old;
            } else if (result != WEIR_X_NO_REF) {
                weir_x_w32(w, result)[l] = (uint32_t)old;
            }
        });
    }
    return i + 1;
}

/* 16 bytes; sub: 0 exchange, 1 compare and swap. One lock serves all, because the host may lack the
 * instruction. */
WEIR_X_HANDLER(atom128)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    uint64_t addr[WEIR_X_LANES];
    lane_addresses(w, i, i->a, (uint64_t)(int64_t)(int32_t)i->e, addr);
    if (!weir_x_translate(w, i, i->space, addr, 16, 16, WEIR_SOFT_READ | WEIR_SOFT_WRITE)) {
        return NULL;
    }
    const weir_x_u64 *b = weir_x_w64(w, i->b);
    const weir_x_u64 *c = i->c != WEIR_X_NO_REF ? weir_x_w64(w, i->c) : b;
    WEIR_X_EACH_ACTIVE(w, l, {
        uint64_t *place = PTR(uint64_t, addr[l]);
        pthread_mutex_lock(&lock);
        uint64_t low = __atomic_load_n(&place[0], __ATOMIC_ACQUIRE);
        uint64_t high = __atomic_load_n(&place[1], __ATOMIC_ACQUIRE);
        if (i->sub == 0 || (low == c[l] && high == c[l + WEIR_X_LANES])) {
            __atomic_store_n(&place[0], b[l], __ATOMIC_RELEASE);
            __atomic_store_n(&place[1], b[l + WEIR_X_LANES], __ATOMIC_RELEASE);
        }
        pthread_mutex_unlock(&lock);
        if (i->d != WEIR_X_NO_REF) {
            weir_x_w64(w, i->d)[l] = low;
            weir_x_w64(w, i->d)[l + WEIR_X_LANES] = high;
        }
    });
    return i + 1;
}

/* Fields: a: shared destination + imm; b: global source + imm in e; c: bytes to read (NO_REF: all);
 * sub 1: lanes with predicate d read nothing */
WEIR_X_HANDLER(cp_async)
{
    uint64_t to[WEIR_X_LANES];
    uint64_t from[WEIR_X_LANES];
    lane_addresses(w, i, i->a, i->imm, to);
    const weir_x_u64 *b = weir_x_w64(w, i->b);
    for (uint32_t l = 0; l < WEIR_X_LANES; l++) {
        from[l] = b[l] + (uint64_t)(int64_t)(int32_t)i->e;
    }
    uint32_t bytes = i->bytes;
    WEIR_FAIL_IF(!weir_x_translate(w, i, WEIR_X_SHARED, to, bytes, bytes, WEIR_SOFT_WRITE), NULL);
    uint32_t all = w->mask;
    uint32_t reading = all;
    const weir_x_u32 *size = i->c != WEIR_X_NO_REF ? weir_x_w32(w, i->c) : NULL;
    if (size) {
        WEIR_X_EACH_ACTIVE(w, l, reading &= size[l] == 0 ? ~(1u << l) : WEIR_X_FULL);
    }
    if (i->sub == 1) {
        reading &= ~weir_x_pred(w, i->d);
    }
    w->mask = reading;
    bool ok = reading == 0 || weir_x_translate(w, i, i->space, from, bytes, bytes, WEIR_SOFT_READ);
    w->mask = all;
    WEIR_FAIL_IF(!ok, NULL);
    WEIR_X_EACH_ACTIVE(w, l, {
        char *d = PTR(char, to[l]);
        memset(d, 0, bytes);
        if ((reading >> l & 1u) != 0) {
            uint32_t n = size && size[l] < bytes ? size[l] : bytes;
            for (uint32_t k = 0; k < n; k++) {
                d[k] = __atomic_load_n(PTR(const char, from[l] + k), __ATOMIC_RELAXED);
            }
        }
    });
    return i + 1;
}

static uint64_t window_of(uint8_t space)
{
    return space == WEIR_X_SHARED || space == WEIR_X_CLUSTER ? weir_x_window_shared
           : space == WEIR_X_LOCAL                           ? weir_x_window_local
                                                             : weir_x_window_param;
}

/* Convert generic addresses to offsets; 32- or 64-bit rows. */
WEIR_X_HANDLER(cvta_to)
{
    const weir_x_u64 *a = weir_x_w64(w, i->a);
    weir_x_u64 *d = weir_x_w64(w, i->d);
    uint64_t window = window_of(i->space);
    WEIR_X_EACH(w, l, d[l] = a[l] == 0 ? 0 : a[l] - window);
    return i + 1;
}

WEIR_X_HANDLER(cvta_from)
{
    const weir_x_u64 *a = weir_x_w64(w, i->a);
    weir_x_u64 *d = weir_x_w64(w, i->d);
    uint64_t window = window_of(i->space);
    WEIR_X_EACH(w, l, d[l] = a[l] + window);
    return i + 1;
}

/* Is this generic address in the shared memory of a block of the cluster? */
static bool is_shared(const struct weir_x_warp *w, uint64_t address, bool anyone)
{
    uint64_t window = (address - weir_x_window_shared) >> WEIR_X_WINDOW_SHIFT;
    return anyone ? window <= w->block->cluster->n_blocks
                  : window == 0 || window == w->block->cluster_rank + 1u;
}

static bool is_const(const struct weir_x_warp *w, uint64_t address)
{
    const struct weir_exec_module *module = w->block->grid->kernel->module;
    return address - module->storage[WEIR_X_STORE_CONST] <
           module->storage_bytes[WEIR_X_STORE_CONST];
}

static bool is_of_space(const struct weir_x_warp *w, uint8_t space, uint64_t address)
{
    switch (space) {
    case WEIR_X_SHARED:
        return is_shared(w, address, false);
    case WEIR_X_CLUSTER:
        return is_shared(w, address, true);
    case WEIR_X_CONST:
        return is_const(w, address);
    case WEIR_X_LOCAL:
    case WEIR_X_PARAM:
        return address >> WEIR_X_WINDOW_SHIFT == window_of(space) >> WEIR_X_WINDOW_SHIFT;
    default: /* an address is global if it is in no other space */
        return address - weir_x_window_shared >= WEIR_X_WINDOW_BYTES * WEIR_X_WINDOWS &&
               !is_const(w, address);
    }
}

WEIR_X_HANDLER(isspacep)
{
    const weir_x_u64 *a = weir_x_w64(w, i->a);
    uint32_t in = 0;
    WEIR_X_EACH_ACTIVE(w, l, in |= is_of_space(w, i->space, a[l]) ? 1u << l : 0);
    weir_x_set_pred(w, i->d, in);
    return i + 1;
}

/* mapa: the same address in block b's shared memory. WIDE: 64-bit registers; sub not 0: operand a
 * is a generic address. */
WEIR_X_HANDLER(mapa)
{
    const weir_x_u32 *rank = weir_x_w32(w, i->b);
    uint64_t base = i->sub != 0 ? weir_x_window_shared : 0;
    WEIR_X_EACH_ACTIVE(w, l, {
        uint64_t window = (uint64_t)(rank[l] + 1) << WEIR_X_WINDOW_SHIFT;
        if ((i->flags & WEIR_X_F_WIDE) != 0) {
            uint64_t offset = (weir_x_w64(w, i->a)[l] - base) & (WEIR_X_WINDOW_BYTES - 1);
            weir_x_w64(w, i->d)[l] = base + window + offset;
        } else {
            weir_x_w32(w, i->d)[l] =
                (uint32_t)(window | (weir_x_w32(w, i->a)[l] & (WEIR_X_WINDOW_BYTES - 1)));
        }
    });
    return i + 1;
}

/* getctarank: find the block to which an address belongs. */
WEIR_X_HANDLER(ctarank)
{
    weir_x_u32 *d = weir_x_w32(w, i->d);
    uint64_t base = i->sub != 0 ? weir_x_window_shared : 0;
    WEIR_X_EACH_ACTIVE(w, l, {
        uint64_t address = (i->flags & WEIR_X_F_WIDE) != 0 ? weir_x_w64(w, i->a)[l] - base
                                                           : weir_x_w32(w, i->a)[l];
        uint64_t window = address >> WEIR_X_WINDOW_SHIFT;
        d[l] = window == 0 ? w->block->cluster_rank : (uint32_t)window - 1;
    });
    return i + 1;
}

WEIR_X_HANDLER(fence)
{
    (void)w;
#if defined(__SANITIZE_THREAD__)
    static uint32_t order;
    __atomic_fetch_add(&order, 1, __ATOMIC_SEQ_CST);
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
    static uint32_t order;
    __atomic_fetch_add(&order, 1, __ATOMIC_SEQ_CST);
#else
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
#else
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
    return i + 1;
}
