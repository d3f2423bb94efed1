#include "host_backend/worker/state/unknown_ops.h"

#include "proto/ops.h"
#include "proto/wire/op_hash.h"

static void add(struct weir_unknown_ops *ops, uint32_t op)
{
    ops->any = true;
    ops->bits[op / 64] |= UINT64_C(1) << op % 64;
}

void weir_unknown_ops_find(const struct weir_op_hashes *hashes, struct weir_unknown_ops *ret_ops)
{
    struct weir_op_hashes own;

    *ret_ops = (struct weir_unknown_ops){0};
    if (!hashes) {
        return;
    }
    weir_op_hashes(&own);
    for (uint32_t op = 0; op < hashes->n || op < own.n; op++) {
        uint32_t guests = op < hashes->n ? hashes->hash[op] : 0;

        if (guests != (op < own.n ? own.hash[op] : 0)) {
            add(ret_ops, op);
        }
    }
    if (weir_unknown_ops_has(ret_ops, WEIR_OP_host_func_call)) {
        add(ret_ops, WEIR_OP_host_func);
    }
    if (weir_unknown_ops_has(ret_ops, WEIR_OP_host_func_data)) {
        add(ret_ops, WEIR_OP_host_func_read);
    }
}

unsigned weir_unknown_ops_count(const struct weir_unknown_ops *ops)
{
    unsigned n = 0;

    for (uint32_t i = 0; i < WEIR_CONTROL_MAX_OPS / 64; i++) {
        n += (unsigned)__builtin_popcountll(ops->bits[i]);
    }
    return n;
}
