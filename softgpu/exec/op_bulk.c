/*
 * cp.async.bulk between shared and global memory, and between blocks of a cluster: a copy executes
 * at once, and then its mbarrier counts the bytes. Tensor copies are not supported.
 */
#include "softgpu/exec/decode.h"

#include <string.h>

/* An address and its state space. */
struct end {
    weir_x_ref ref;
    uint64_t offset;
    uint8_t space;
    bool wide;
};

struct bulk {
    struct end to, from, gate;
    bool has_gate;
    weir_x_ref size;
};

/* Convert one lane's address to a host address; 0 after a fault. */
static uint64_t reach(struct weir_x_warp *w, const struct weir_x_inst *i, const struct end *end,
                      uint32_t lane, uint32_t bytes, uint32_t align, uint32_t access)
{
    uint64_t addr[WEIR_X_LANES] = {0};
    uint32_t all = w->mask;
    addr[lane] = end->wide ? weir_x_w64(w, end->ref)[lane] + end->offset
                           : (uint32_t)(weir_x_w32(w, end->ref)[lane] + (uint32_t)end->offset);
    w->mask = 1u << lane;
    bool ok = weir_x_translate(w, i, (enum weir_x_space)end->space, addr, bytes, align, access);
    w->mask = all;
    return ok ? addr[lane] : 0;
}

/* ext: struct bulk */
static const struct weir_x_inst *copy_bulk(struct weir_x_warp *w, const struct weir_x_inst *i)
{
    const struct bulk *bulk = i->ext;
    WEIR_X_EACH_ACTIVE(w, l, {
        uint32_t bytes = weir_x_w32(w, bulk->size)[l];
        WEIR_FAIL_IF(bytes % 16 != 0,
                     weir_x_fault(w, i, 716, l, bytes, "cp.async.bulk of %u bytes", bytes));
        uint64_t gate = bulk->has_gate
                            ? reach(w, i, &bulk->gate, l, 8, 8, WEIR_SOFT_READ | WEIR_SOFT_WRITE)
                            : 1;
        uint64_t to = gate == 0 ? 0 : reach(w, i, &bulk->to, l, bytes, 16, WEIR_SOFT_WRITE);
        uint64_t from = to == 0 ? 0 : reach(w, i, &bulk->from, l, bytes, 16, WEIR_SOFT_READ);
        WEIR_FAIL_IF(from == 0, NULL);
        memmove((void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes);
        if (bulk->has_gate) {
            weir_x_mbarrier_complete(gate, bytes);
        }
    });
    return i + 1;
}

static bool take_end(struct weir_x_decoder *x, const struct weir_ptx_operand *o, uint8_t space,
                     struct end *ret_end)
{
    struct weir_x_inst where = {0};
    WEIR_FAIL_IF(!weir_x_memory(x, &where, o, space, false), false);
    ret_end->ref = where.a;
    ret_end->offset = where.imm;
    ret_end->space = where.space;
    ret_end->wide = (where.flags & WEIR_X_F_ADDR64) != 0;
    return true;
}

bool weir_x_decode_bulk(struct weir_x_decoder *x)
{
    const struct weir_ptx_inst *ir = x->ir;
    struct bulk *bulk = weir_x_decode_alloc(x, sizeof *bulk);
    if (!bulk || (ir->flags & WEIR_PTX_FLAG_TENSOR) != 0 || ir->n_operands < 3 ||
        weir_ptx_inst_has(ir, WEIR_PTX_MOD_REDUCE) ||
        weir_ptx_inst_has(ir, WEIR_PTX_MOD_MULTICAST_CLUSTER) ||
        weir_ptx_inst_has(ir, WEIR_PTX_MOD_CP_MASK) ||
        weir_ptx_inst_has(ir, WEIR_PTX_MOD_IGNORE_OOB) ||
        !take_end(x, &ir->operands[0], ir->space, &bulk->to) ||
        !take_end(x, &ir->operands[1], ir->space2, &bulk->from)) {
        return false;
    }
    bulk->has_gate = weir_ptx_inst_has(ir, WEIR_PTX_MOD_MBARRIER_COMPLETE_TX_BYTES);
    if (bulk->has_gate &&
        (ir->n_operands < 4 ||
         !take_end(x, &ir->operands[3], WEIR_PTX_SPACE_SHARED_CLUSTER, &bulk->gate))) {
        return false;
    }
    bulk->size = weir_x_source(x, &ir->operands[2], 32, WEIR_PTX_TYPE_U32);
    struct weir_x_inst *i = weir_x_emit(x);
    i->fn = copy_bulk;
    i->ext = bulk;
    return true;
}
