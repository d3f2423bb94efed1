/*
 * Detects operations that guest and worker define differently. Each tells the other a hash of every
 * operation that it knows. So a guest library and a host of different releases work together,
 * except for the operations in which they differ.
 */
#pragma once

#include "proto/wire/control.h"
#include <stdint.h>

/** Fill in the hash of each operation of this build's description, by its number: over its name,
 * flags and the layout of its fields; 0: no operation has that number. @thread any */
void weir_op_hashes(struct weir_op_hashes *ret_hashes);
