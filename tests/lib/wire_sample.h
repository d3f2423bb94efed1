/* Operations made up from their field tables, and compared field by field. */
#pragma once

#include "proto/ops.h"
#include <stdbool.h>

/* One half of an operation, as tests go through them. */
struct wire_half {
    const char *op;
    const char *way; /* "in" or "out" */
    uint32_t struct_bytes;
    uint32_t n_fields;
    const struct weir_op_field *fields;
    weir_op_bytes_fn bytes;
    weir_op_encode_fn encode;
    weir_op_decode_fn decode;
};

#define WIRE_HALVES (2u * WEIR_OP_COUNT)

/** Half number 0 .. WIRE_HALVES - 1. */
struct wire_half wire_half_get(unsigned number);

enum wire_sample_size {
    WIRE_SAMPLE_EMPTY, /* arrays and strings are empty */
    WIRE_SAMPLE_SMALL,
    WIRE_SAMPLE_FULL, /* every array and string at its limit */
};

/**
 * Make up a message of pseudo-random values.
 *
 * @return a struct of struct_bytes that the caller passes to wire_sample_free(). Aborts without
 * memory.
 */
void *wire_sample_make(const struct wire_half *half, enum wire_sample_size size, unsigned seed);
void wire_sample_free(const struct wire_half *half, void *message);

/** The first field in which two messages differ, or NULL. */
const char *wire_sample_difference(const struct wire_half *half, const void *a, const void *b);

/** Do all pointers of a decoded message lie within bytes at body, strings with their end? */
bool wire_sample_inside(const struct wire_half *half, const void *message, const void *body,
                        size_t bytes);
