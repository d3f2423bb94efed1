/* XXH3-128 of a block of memory: the name of an image, the same on every machine. Not secure. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define WEIR_HASH_BYTES 16

struct weir_hash {
    uint8_t bytes[WEIR_HASH_BYTES]; /* canonical order: the most significant byte first */
};

/** Hash len bytes; data may be NULL when len is 0. @thread any */
struct weir_hash weir_hash_of(const void *data, size_t len);

/** A 64-bit hash (XXH3-64) for tables. Not for names that processes of different versions exchange.
 * @thread any */
uint64_t weir_hash64_of(const void *data, size_t len);

/** The place in a table of this size for a key, which may be a plain number. @thread any */
static inline uint32_t weir_hash_slot(uint64_t key, uint32_t count)
{
    return (uint32_t)((key * 0x9E3779B97F4A7C15u >> 32) * count >> 32);
}
