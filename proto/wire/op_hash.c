#include "proto/wire/op_hash.h"
#include "proto/ops.h"
#include "proto/wire/control.h"
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

static uint32_t hash_of(uint32_t op, const struct weir_op_info *info)
{
    uint64_t hash = mix(FNV_START, &op, sizeof op);

    hash = mix(hash, info->name, strlen(info->name) + 1);
    hash = mix(hash, &info->flags, sizeof info->flags);
    hash = mix_fields(hash, info->in_fields, info->n_in_fields);
    hash = mix_fields(hash, info->out_fields, info->n_out_fields);
    return (uint32_t)(hash ^ hash >> 32) | 1u; /* never 0 */
}

void weir_op_hashes(struct weir_op_hashes *ret_hashes)
{
    _Static_assert(WEIR_OP_COUNT <= WEIR_CONTROL_MAX_OPS, "a hello has room for all operations");
    ret_hashes->n = WEIR_OP_COUNT;
    for (uint32_t op = 0; op < WEIR_OP_COUNT; op++) {
        ret_hashes->hash[op] = weir_ops[op].name ? hash_of(op, &weir_ops[op]) : 0;
    }
}
