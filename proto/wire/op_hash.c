#include "proto/wire/op_hash.h"
#include "proto/ops.h"
#include "proto/wire/control.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* FNV-1a, 64 bits. */
#define FNV_START 0xcbf29ce484222325ull
#define FNV_PRIME 0x100000001b3ull

static uint64_t mix(uint64_t hash, const void *data, size_t bytes)
{
    const unsigned char *at = data;
    for (size_t i = 0; i < bytes; i++) {
        hash = (hash ^ at[i]) * FNV_PRIME;
    }
    return hash;
}

static uint64_t mix_fields(uint64_t hash, const struct weir_op_field *fields, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const struct weir_op_field *field = &fields[i];
        uint32_t numbers[] = {(uint32_t)field->shape, field->offset, field->elem_bytes,
                              field->count,           field->max,    field->count_offset};
        hash = mix(hash, field->name, strlen(field->name) + 1);
        hash = mix(hash, numbers, sizeof numbers);
    }
    return hash;
}

uint64_t weir_op_hash(void)
{
    uint64_t hash = FNV_START;
    for (int op = 0; op < WEIR_OP_COUNT; op++) {
        const struct weir_op_info *info = &weir_ops[op];
        if (!info->name) {
            continue;
        }
        hash = mix(hash, &op, sizeof op);
        hash = mix(hash, info->name, strlen(info->name) + 1);
        hash = mix(hash, &info->flags, sizeof info->flags);
        hash = mix_fields(hash, info->in_fields, info->n_in_fields);
        hash = mix_fields(hash, info->out_fields, info->n_out_fields);
    }
    return hash;
}

void weir_wire_text(char text[WEIR_WIRE_TEXT_BYTES])
{
    snprintf(text, WEIR_WIRE_TEXT_BYTES, "%u-%016" PRIx64, WEIR_PROTOCOL, weir_op_hash());
}
