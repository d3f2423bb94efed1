/*
 * What the generator knows about an operation at run time: its codec, and its fields for code that
 * prints, compares or generates operations.
 *
 * Encoding: little endian; a fixed part with every scalar, struct and array length at its natural
 * alignment and all padding zero, then the bytes of each array, each begun on a multiple of 8. It
 * is not protobuf, which takes 60 ns to pack a launch and 115 ns to read it; a flat struct takes a
 * few ns.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Result of in_bytes() if the struct cannot be encoded (a count over its limit, or NULL with a
 * count). */
#define WEIR_OP_BYTES_INVALID SIZE_MAX

#define WEIR_OP_POSTED 0x1u /* may be sent without a reply */
#define WEIR_OP_NOTIFY 0x2u /* travels from the host to the guest */

/* What a session's book keeps of a record, so that another worker can make the session again. */
enum weir_op_book {
    WEIR_OP_LEAVES_NOTHING, /* nothing: no object is made or changed, or something else knows it */
    WEIR_OP_MAKES,          /* the record, as long as its object lives */
    WEIR_OP_SETS,           /* likewise; of those with equal fields only the last */
    WEIR_OP_REPLACES,       /* likewise; it also changes what other records have set */
    WEIR_OP_IS_PAST,        /* as MAKES; it depends on what the object was, or ends a part of it */
    WEIR_OP_IS_CAPTURED,    /* while its stream is captured: the record, with the graph */
    WEIR_OP_CAPTURES,       /* likewise: a capture's begin and end */
    WEIR_OP_NAMES,          /* as MAKES, if the host has named an object in the reply */
    WEIR_OP_ENDS,           /* the record, as long as others need what it has ended */
    WEIR_OP_STAYS,          /* that the object cannot be made again */
};

enum weir_field_shape {
    WEIR_FIELD_SCALAR,
    WEIR_FIELD_FIXED, /* an array inside the struct */
    WEIR_FIELD_ARRAY, /* a pointer to elements, and a count */
    WEIR_FIELD_BYTES, /* a pointer to bytes, and a count */
    WEIR_FIELD_STR,   /* a pointer to a string */
};

struct weir_op_field {
    const char *name;
    enum weir_field_shape shape;
    uint32_t offset;       /* offset in the struct */
    uint32_t elem_bytes;   /* size of one element */
    uint32_t count;        /* elements of a scalar (1) or fixed array */
    uint32_t max;          /* most elements of an array; most bytes of a string, with its NUL */
    uint32_t count_offset; /* offset of the uint32_t count of an array or bytes */
    uint32_t kind;         /* enum weir_kind of a handle; 0: the field is no handle */
};

/*
 * bytes: returns the size of the encoded struct, a multiple of 8, or WEIR_OP_BYTES_INVALID. encode:
 * write that many bytes at body, which is 8-byte aligned. Only if that size was valid. decode: read
 * a struct from exactly `bytes` bytes at body, which is 8-byte aligned, private to this process and
 * outlives the struct: pointers point into it. Nothing is allocated or copied. Lengths, limits and
 * string ends are checked; the meaning of values is not. False: malformed, and the struct must not
 * be used.
 */
typedef size_t (*weir_op_bytes_fn)(const void *message);
typedef void (*weir_op_encode_fn)(const void *message, void *body);
typedef bool (*weir_op_decode_fn)(const void *body, size_t bytes, void *message);

/* "in" is the request, "out" the reply. A message without fields has 0 bytes; its struct may be
 * NULL. */
struct weir_op_info {
    const char *name;
    uint32_t flags; /* WEIR_OP_POSTED, WEIR_OP_NOTIFY */
    enum weir_op_book book;
    uint32_t in_struct_bytes;
    uint32_t out_struct_bytes;
    uint32_t n_in_fields;
    uint32_t n_out_fields;
    weir_op_bytes_fn in_bytes;
    weir_op_encode_fn in_encode;
    weir_op_decode_fn in_decode;
    weir_op_bytes_fn out_bytes;
    weir_op_encode_fn out_encode;
    weir_op_decode_fn out_decode;
    const struct weir_op_field *in_fields;
    const struct weir_op_field *out_fields;
    /* The inputs that the description's word names, a bit each. The object is the first of them
     * that is a handle and not 0. */
    uint32_t book_fields;
    const char *why; /* STAYS: why; else NULL */
};
