/* A number for the layout of all operations: guest and worker that differ in it cannot talk. */
#ifndef WEIR_PROTO_WIRE_OP_HASH_H
#define WEIR_PROTO_WIRE_OP_HASH_H

#include <stdint.h>

/** Every build of the same description gives the same value; the worker compares it with that in
 * Hello. @thread any */
uint64_t weir_op_hash(void);

#define WEIR_WIRE_TEXT_BYTES 32
/** The protocol and that number, for people and to be compared: hosts refuse guest libraries in
 * which this differs. @thread any */
void weir_wire_text(char text[WEIR_WIRE_TEXT_BYTES]);

#endif
