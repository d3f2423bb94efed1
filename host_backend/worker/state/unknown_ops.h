/*
 * The operations in which a guest library of another release and this worker differ. The session
 * refuses them, and only them.
 */
#pragma once

#include "proto/wire/control.h"
#include <stdbool.h>
#include <stdint.h>

/* One bit for each number of an operation. Zeroed: none. */
struct weir_unknown_ops {
    bool any;
    uint64_t bits[WEIR_CONTROL_MAX_OPS / 64];
};

/**
 * Compare what a guest says with this build's operations. An operation is unknown if the two
 * hashes differ, which they also do where one side has no such operation. Where the guest and this
 * worker differ in what the worker sends, so are the operations that ask for it.
 *
 * @param hashes  of the guest's hello; NULL: none is unknown.
 * @thread any
 */
void weir_unknown_ops_find(const struct weir_op_hashes *hashes, struct weir_unknown_ops *ret_ops);

/** @param op  any number that a record may have @thread any */
static inline bool weir_unknown_ops_has(const struct weir_unknown_ops *ops, uint32_t op)
{
    return op < WEIR_CONTROL_MAX_OPS && (ops->bits[op / 64] >> op % 64 & 1) != 0;
}

/** How many there are. @thread any */
unsigned weir_unknown_ops_count(const struct weir_unknown_ops *ops);
