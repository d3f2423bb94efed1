/* A number for the layout of all operations: guest and worker that differ in it cannot talk. */
#ifndef WEIR_PROTO_WIRE_OP_HASH_H
#define WEIR_PROTO_WIRE_OP_HASH_H

#include <stdint.h>

/** Every build of the same description gives the same value; the worker compares it with that in
 * Hello. @thread any */
uint64_t weir_op_hash(void);

#endif
