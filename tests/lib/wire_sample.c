#include "tests/lib/wire_sample.h"

#include <stdlib.h>
#include <string.h>

struct wire_half wire_half_get(unsigned number)
{
    const struct weir_op_info *op = &weir_ops[number / 2];
    if (number % 2 == 0) {
        return (struct wire_half){op->name,      "in",         op->in_struct_bytes, op->n_in_fields,
                                  op->in_fields, op->in_bytes, op->in_encode,       op->in_decode};
    }
    return (struct wire_half){op->name,       "out",         op->out_struct_bytes, op->n_out_fields,
                              op->out_fields, op->out_bytes, op->out_encode,       op->out_decode};
}

static uint32_t next_random(unsigned *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

static void *allocate(size_t bytes)
{
    void *memory = calloc(1, bytes ? bytes : 1);
    if (!memory) {
        abort();
    }
    return memory;
}

static uint32_t count_for(const struct weir_op_field *field, enum wire_sample_size size,
                          unsigned *seed)
{
    uint32_t small = 1 + next_random(seed) % 9;
    return size == WIRE_SAMPLE_EMPTY  ? 0
           : size == WIRE_SAMPLE_FULL ? field->max
           : small < field->max       ? small
                                      : field->max;
}

static void *read_pointer(const void *message, const struct weir_op_field *field)
{
    void *pointer;
    memcpy(&pointer, (const char *)message + field->offset, sizeof(pointer));
    return pointer;
}

static uint32_t read_count(const void *message, const struct weir_op_field *field)
{
    uint32_t count;
    memcpy(&count, (const char *)message + field->count_offset, sizeof(count));
    return count;
}

static void make_field(void *message, const struct weir_op_field *field, enum wire_sample_size size,
                       unsigned *seed)
{
    char *at = (char *)message + field->offset;
    if (field->shape == WEIR_FIELD_SCALAR || field->shape == WEIR_FIELD_FIXED) {
        for (size_t i = 0; i < (size_t)field->elem_bytes * field->count; i++) {
            at[i] = (char)next_random(seed);
        }
        return;
    }
    uint32_t count = count_for(field, size, seed);
    if (field->shape == WEIR_FIELD_STR) {
        uint32_t length = count ? count - 1 : 0;
        char *text = allocate((size_t)length + 1);
        for (uint32_t i = 0; i < length; i++) {
            text[i] = (char)('a' + next_random(seed) % 26);
        }
        memcpy(at, &text, sizeof(text));
        return;
    }
    size_t bytes = (size_t)count * field->elem_bytes;
    char *array = allocate(bytes);
    for (size_t i = 0; i < bytes; i++) {
        array[i] = (char)next_random(seed);
    }
    memcpy(at, &array, sizeof(array));
    memcpy((char *)message + field->count_offset, &count, sizeof(count));
}

void *wire_sample_make(const struct wire_half *half, enum wire_sample_size size, unsigned seed)
{
    void *message = allocate(half->struct_bytes);
    for (uint32_t i = 0; i < half->n_fields; i++) {
        make_field(message, &half->fields[i], size, &seed);
    }
    return message;
}

static bool is_pointer(const struct weir_op_field *field)
{
    return field->shape != WEIR_FIELD_SCALAR && field->shape != WEIR_FIELD_FIXED;
}

void wire_sample_free(const struct wire_half *half, void *message)
{
    for (uint32_t i = 0; i < half->n_fields; i++) {
        if (is_pointer(&half->fields[i])) {
            free(read_pointer(message, &half->fields[i]));
        }
    }
    free(message);
}

static bool same(const struct weir_op_field *field, const void *a, const void *b)
{
    const void *pa = read_pointer(a, field), *pb = read_pointer(b, field);
    if (field->shape == WEIR_FIELD_STR) {
        return !strcmp(pa, pb);
    }
    uint32_t count = read_count(a, field);
    return count == read_count(b, field) &&
           (!count || !memcmp(pa, pb, (size_t)count * field->elem_bytes));
}

const char *wire_sample_difference(const struct wire_half *half, const void *a, const void *b)
{
    for (uint32_t i = 0; i < half->n_fields; i++) {
        const struct weir_op_field *field = &half->fields[i];
        bool equal = is_pointer(field)
                         ? same(field, a, b)
                         : !memcmp((const char *)a + field->offset, (const char *)b + field->offset,
                                   (size_t)field->elem_bytes * field->count);
        if (!equal) {
            return field->name;
        }
    }
    return NULL;
}

bool wire_sample_inside(const struct wire_half *half, const void *message, const void *body,
                        size_t bytes)
{
    for (uint32_t i = 0; i < half->n_fields; i++) {
        const struct weir_op_field *field = &half->fields[i];
        if (!is_pointer(field)) {
            continue;
        }
        uintptr_t at = (uintptr_t)read_pointer(message, field);
        bool string = field->shape == WEIR_FIELD_STR;
        size_t offset = at - (uintptr_t)body;
        size_t need = string ? 1 : (size_t)read_count(message, field) * field->elem_bytes;
        if (need == 0) {
            continue;
        }
        if (at < (uintptr_t)body || offset > bytes || need > bytes - offset || offset % 8) {
            return false;
        }
        if (string && !memchr((const void *)at, 0, bytes - offset)) {
            return false;
        }
    }
    return true;
}
