/*
 * mbarrier objects in shared memory.
 *
 * PTX leaves the object's layout open. Here bits 0..19 count the pending arrivals of this phase,
 * 20..39 the expected arrivals of each phase, 40..62 the pending bytes (signed), and bit 63 is the
 * phase's parity. A state token is the object's value when the thread arrived. Waits are tests that
 * may fail, so programs loop; a failed try_wait gives the other warps a turn. Only the block's core
 * accesses its shared memory, so plain reads and writes suffice.
 */
#include "softgpu/exec/decode.h"

#include <string.h>

#define PENDING_MASK 0xfffffull
#define COUNT_SHIFT  20u
#define TX_SHIFT     40u
#define TX_MASK      0x7fffffull
#define PHASE        (1ull << 63)

enum operation { M_INIT, M_INVAL, M_ARRIVE, M_EXPECT, M_COMPLETE, M_TEST, M_PENDING };

static uint64_t turn_if_complete(uint64_t bar)
{
    if ((bar & PENDING_MASK) != 0 || (bar >> TX_SHIFT & TX_MASK) != 0) {
        return bar;
    }
    uint64_t count = bar >> COUNT_SHIFT & PENDING_MASK;
    return ((bar & PHASE) ^ PHASE) | count << COUNT_SHIFT | count;
}

static uint64_t add_tx(uint64_t bar, uint32_t bytes)
{
    uint64_t tx = ((bar >> TX_SHIFT & TX_MASK) + bytes) & TX_MASK;
    return (bar & ~(TX_MASK << TX_SHIFT)) | tx << TX_SHIFT;
}

void weir_x_mbarrier_complete(uint64_t object, uint32_t bytes)
{
    weir_x_u64 *bar = (weir_x_u64 *)(uintptr_t)object;
    *bar = turn_if_complete(add_tx(*bar, 0u - bytes));
}

/* Fields: sub: operation; a + imm2: the object; d: token or predicate; b: count, bytes, token or
 * parity; sub2: bit 0 arrive drops, 1 arrive also expects b bytes, 2 b is a parity, 3 b is the
 * count, 4 a failed test yields */
WEIR_X_HANDLER(mbarrier)
{
    uint64_t addr[WEIR_X_LANES];
    uint32_t passed = 0;
    WEIR_X_EACH_ACTIVE(w, l,
                       addr[l] = (i->flags & WEIR_X_F_ADDR64) != 0
                                     ? weir_x_w64(w, i->a)[l] + i->imm2
                                     : weir_x_w32(w, i->a)[l] + (uint32_t)i->imm2);
    if (!weir_x_translate(w, i, i->space, addr, 8, 8, WEIR_SOFT_READ | WEIR_SOFT_WRITE)) {
        return NULL;
    }
    WEIR_X_EACH_ACTIVE(w, l, {
        weir_x_u64 *bar = (weir_x_u64 *)(uintptr_t)addr[l];
        bool token = i->sub == M_TEST && (i->sub2 & 4u) == 0;
        uint64_t b = i->b == WEIR_X_NO_REF ? 1
                     : token               ? weir_x_w64(w, i->b)[l]
                                           : weir_x_w32(w, i->b)[l];
        uint64_t before = *bar;
        uint64_t count = 1;
        switch (i->sub) {
        case M_INIT:
            *bar = b << COUNT_SHIFT | b;
            break;
        case M_INVAL:
            *bar = 0;
            break;
        case M_ARRIVE:
            count = (i->sub2 & 8u) != 0 ? b : 1;
            WEIR_FAIL_IF(
                (before & PENDING_MASK) < count,
                weir_x_fault(w, i, 719, l, addr[l], "mbarrier: more arrivals than awaited"));
            before = (i->sub2 & 2u) != 0 ? add_tx(before, (uint32_t)b) : before;
            before -= count;
            before -= (i->sub2 & 1u) != 0 ? count << COUNT_SHIFT : 0;
            *bar = turn_if_complete(before);
            break;
        case M_EXPECT:
            *bar = add_tx(before, (uint32_t)b);
            break;
        case M_COMPLETE:
            *bar = turn_if_complete(add_tx(before, 0u - (uint32_t)b));
            break;
        default: /* M_TEST */
            if ((i->sub2 & 4u) != 0 ? (before >> 63) != (b & 1u) : ((before ^ b) & PHASE) != 0) {
                passed |= 1u << l;
            }
            break;
        }
        if (i->sub == M_ARRIVE && i->d != WEIR_X_NO_REF) {
            weir_x_w64(w, i->d)[l] = before;
        }
    });
    if (i->sub != M_TEST) {
        return i + 1;
    }
    weir_x_set_pred(w, i->d, passed);
    return passed != w->mask && (i->sub2 & 16u) != 0 ? weir_x_leave(w, i + 1, WEIR_X_EVENT_YIELD)
                                                     : i + 1;
}

/* cp.async.mbarrier.arrive: the copies are done, so this arrives at once. Without .noinc (sub) the
 * phase first expects one more arrival, so the object does not change. */
static const struct weir_x_inst *copy_arrive(struct weir_x_warp *w, const struct weir_x_inst *i)
{
    struct weir_x_inst arrive = *i;
    arrive.fn = weir_x_exec_mbarrier;
    arrive.sub = M_ARRIVE;
    arrive.sub2 = 0;
    if (i->sub == 0 && !weir_x_exec_mbarrier(w, &arrive)) {
        w->resume = i;
        return NULL;
    }
    return i + 1;
}

bool weir_x_decode_copy_arrive(struct weir_x_decoder *x)
{
    const struct weir_ptx_inst *ir = x->ir;
    struct weir_x_inst where = {0};
    WEIR_FAIL_IF(!weir_x_memory(x, &where, &ir->operands[0], ir->space, false), false);
    struct weir_x_inst *i = weir_x_emit(x);
    i->fn = copy_arrive;
    i->a = where.a;
    i->imm2 = where.imm;
    i->flags = where.flags;
    i->space = where.space;
    i->sub = !weir_ptx_inst_has(ir, WEIR_PTX_MOD_NOINC);
    return true;
}

/*
 * Fields: a + imm2: destination; refs: values; rmw: operation, NULL: store; b + e: the mbarrier
 * that counts the bytes. PTX does not define st.async in a cluster of one block; here it is an
 * illegal instruction, as on an H200 (CUDA 13.0).
 */
WEIR_X_HANDLER(store_async)
{
    WEIR_FAIL_IF(w->block->grid->cluster_blocks < 2,
                 weir_x_fault(w, i, 715, (uint32_t)__builtin_ctz(w->mask), 0,
                              "st.async or red.async in a cluster of one block"));
    uint64_t to[WEIR_X_LANES];
    uint64_t gate[WEIR_X_LANES];
    bool wide_address = (i->flags & WEIR_X_F_ADDR64) != 0;
    uint32_t bytes = i->bytes * (uint32_t)i->vec;
    WEIR_X_EACH_ACTIVE(w, l, {
        to[l] = wide_address ? weir_x_w64(w, i->a)[l] + i->imm2
                             : weir_x_w32(w, i->a)[l] + (uint32_t)i->imm2;
        gate[l] = wide_address ? weir_x_w64(w, i->b)[l] + (uint64_t)(int64_t)(int32_t)i->e
                               : weir_x_w32(w, i->b)[l] + i->e;
    });
    uint32_t access = WEIR_SOFT_READ | WEIR_SOFT_WRITE;
    if (!weir_x_translate(w, i, WEIR_X_CLUSTER, to, bytes, bytes, access) ||
        !weir_x_translate(w, i, WEIR_X_CLUSTER, gate, 8, 8, access)) {
        return NULL;
    }
    WEIR_X_EACH_ACTIVE(w, l, {
        for (uint32_t e = 0; e < i->vec; e++) {
            void *place = (void *)(uintptr_t)(to[l] + e * i->bytes);
            uint64_t value = (i->flags & WEIR_X_F_WIDE) != 0 ? weir_x_w64(w, i->refs[e])[l]
                                                             : weir_x_w32(w, i->refs[e])[l];
            if (i->rmw) {
                i->rmw(place, value, 0);
            } else {
                memcpy(place, &value, i->bytes);
            }
        }
        weir_x_mbarrier_complete(gate[l], bytes);
    });
    return i + 1;
}

/* Pending arrivals of the phase to which a token belongs. */
static const struct weir_x_inst *pending_count(struct weir_x_warp *w, const struct weir_x_inst *i)
{
    const weir_x_u64 *a = weir_x_w64(w, i->a);
    weir_x_u32 *d = weir_x_w32(w, i->d);
    WEIR_X_EACH(w, l, d[l] = (uint32_t)(a[l] & PENDING_MASK) + 1);
    return i + 1;
}

static bool decode_pending(struct weir_x_decoder *x)
{
    WEIR_FAIL_IF(x->ir->n_operands != 2, false);
    (void)weir_x_emit_op(x, pending_count, (uint8_t[4]){WEIR_PTX_TYPE_B64});
    return true;
}

/* Find operation and sub2 from the suffixes; false: not supported. */
static bool classify(const struct weir_ptx_inst *ir, uint8_t *ret_sub, uint8_t *ret_sub2)
{
    bool drop = weir_ptx_inst_has(ir, WEIR_PTX_MOD_ARRIVE_DROP);
    bool expect = weir_ptx_inst_has(ir, WEIR_PTX_MOD_EXPECT_TX);
    *ret_sub2 = 0;
    if (weir_ptx_inst_has(ir, WEIR_PTX_MOD_INIT)) {
        *ret_sub = M_INIT;
    } else if (weir_ptx_inst_has(ir, WEIR_PTX_MOD_INVAL)) {
        *ret_sub = M_INVAL;
    } else if (drop || weir_ptx_inst_has(ir, WEIR_PTX_MOD_ARRIVE)) {
        *ret_sub = M_ARRIVE;
        *ret_sub2 = (uint8_t)((drop ? 1 : 0) | (expect ? 2 : 8));
    } else if (expect) {
        *ret_sub = M_EXPECT;
    } else if (weir_ptx_inst_has(ir, WEIR_PTX_MOD_COMPLETE_TX)) {
        *ret_sub = M_COMPLETE;
    } else if (weir_ptx_inst_has(ir, WEIR_PTX_MOD_TEST_WAIT) ||
               weir_ptx_inst_has(ir, WEIR_PTX_MOD_TRY_WAIT)) {
        *ret_sub = M_TEST;
        *ret_sub2 = (uint8_t)(((ir->flags & WEIR_PTX_FLAG_PARITY) != 0 ? 4 : 0) |
                              (weir_ptx_inst_has(ir, WEIR_PTX_MOD_TRY_WAIT) ? 16 : 0));
    } else {
        return false;
    }
    return true;
}

bool weir_x_decode_mbarrier(struct weir_x_decoder *x)
{
    const struct weir_ptx_inst *ir = x->ir;
    if (weir_ptx_inst_has(ir, WEIR_PTX_MOD_PENDING_COUNT)) {
        return decode_pending(x);
    }
    uint8_t sub, sub2;
    WEIR_FAIL_IF(!classify(ir, &sub, &sub2), false);
    /* The object is the first address; a result may precede it, and a number follow. */
    uint32_t at = ir->operands[0].kind == WEIR_PTX_OPERAND_MEM ? 0 : 1;
    struct weir_x_inst where = {0};
    if (at >= ir->n_operands || !weir_x_memory(x, &where, &ir->operands[at], ir->space, false)) {
        return false;
    }
    bool token = sub == M_TEST && (sub2 & 4u) == 0;
    weir_x_ref number = WEIR_X_NO_REF;
    if (at + 1 < ir->n_operands) {
        number = weir_x_source(x, &ir->operands[at + 1], token ? 64 : 32,
                               token ? WEIR_PTX_TYPE_B64 : WEIR_PTX_TYPE_U32);
    }
    struct weir_x_inst *i = weir_x_emit(x);
    i->fn = weir_x_exec_mbarrier;
    i->a = where.a;
    i->imm2 = where.imm;
    i->flags = where.flags;
    i->space = where.space;
    i->b = number;
    i->d = at == 1 ? weir_x_dest(x, &ir->operands[0]) : WEIR_X_NO_REF;
    i->sub = sub;
    i->sub2 = sub2;
    return sub != M_TEST || i->d != WEIR_X_NO_REF;
}
