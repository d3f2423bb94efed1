#include "guest_lib/range.h"
#include "base/status.h"
#include <stdlib.h>
#include <string.h>

static unsigned int class_of(const struct weir_range_heap *heap, uint64_t bytes)
{
    uint64_t grains = bytes / heap->grain_bytes;
    if (grains < 4) {
        return (unsigned int)grains;
    }
    unsigned int log = 63u - (unsigned int)__builtin_clzll(grains);
    unsigned int index = log * 4 + (unsigned int)(grains >> (log - 2) & 3) - 4;
    return index < WEIR_RANGE_CLASSES ? index : WEIR_RANGE_CLASSES - 1;
}

static void class_add(struct weir_range_heap *heap, struct weir_range_block *block)
{
    unsigned int c = class_of(heap, block->bytes);
    block->used = false;
    block->class_prev = NULL;
    block->class_next = heap->classes[c];
    if (block->class_next) {
        block->class_next->class_prev = block;
    }
    heap->classes[c] = block;
    heap->class_map[c / 64] |= 1ull << (c % 64);
    heap->free_bytes += block->bytes;
}

static void class_remove(struct weir_range_heap *heap, struct weir_range_block *block)
{
    unsigned int c = class_of(heap, block->bytes);
    if (block->class_prev) {
        block->class_prev->class_next = block->class_next;
    } else {
        heap->classes[c] = block->class_next;
        if (!block->class_next) {
            heap->class_map[c / 64] &= ~(1ull << (c % 64));
        }
    }
    if (block->class_next) {
        block->class_next->class_prev = block->class_prev;
    }
    heap->free_bytes -= block->bytes;
}

static struct weir_range_block *new_struct(struct weir_range_heap *heap)
{
    struct weir_range_block *block = heap->spare;
    if (block) {
        heap->spare = block->class_next;
        memset(block, 0, sizeof *block);
        return block;
    }
    return calloc(1, sizeof *block);
}

static void drop_struct(struct weir_range_heap *heap, struct weir_range_block *block)
{
    block->class_next = heap->spare;
    heap->spare = block;
}

bool weir_guest_range_add(struct weir_range_heap *heap, struct weir_range_region *region,
                          uint64_t base, uint64_t bytes)
{
    struct weir_range_block *block = new_struct(heap);
    WEIR_FAIL_IF(!block, false);
    block->base = base;
    block->bytes = bytes;
    block->region = region;
    region->base = base;
    region->bytes = bytes;
    region->used_bytes = 0;
    region->first = block;
    class_add(heap, block);
    return true;
}

void weir_guest_range_remove(struct weir_range_heap *heap, struct weir_range_region *region)
{
    for (struct weir_range_block *block; (block = WEIR_POP(region->first));) {
        if (!block->used) {
            class_remove(heap, block);
        }
        drop_struct(heap, block);
    }
    region->used_bytes = 0;
}

/* Find the first non-empty class at or above c, or -1. */
static int find_class(const struct weir_range_heap *heap, unsigned int c)
{
    for (unsigned int word = c / 64; word < WEIR_RANGE_CLASSES / 64; word++) {
        uint64_t map = heap->class_map[word];
        if (word == c / 64) {
            map &= ~0ull << (c % 64);
        }
        if (map) {
            return (int)(word * 64 + (unsigned int)__builtin_ctzll(map));
        }
    }
    return -1;
}

/* In a class whose blocks may be too small, find the smallest that fits among the first few. */
static struct weir_range_block *best_in_class(struct weir_range_block *block, uint64_t bytes)
{
    struct weir_range_block *best = NULL;
    for (int looked = 0; block && looked < 16; block = block->class_next, looked++) {
        if (block->bytes >= bytes && (!best || block->bytes < best->bytes)) {
            best = block;
        }
    }
    return best;
}

static struct weir_range_block *find_block(struct weir_range_heap *heap, uint64_t bytes)
{
    unsigned int own = class_of(heap, bytes);
    struct weir_range_block *block = best_in_class(heap->classes[own], bytes);
    if (block || own + 1 >= WEIR_RANGE_CLASSES) {
        return block;
    }
    int above = find_class(heap, own + 1);
    return above >= 0 ? best_in_class(heap->classes[above], bytes) : NULL;
}

struct weir_range_block *weir_guest_range_take(struct weir_range_heap *heap, uint64_t bytes)
{
    uint64_t grain = heap->grain_bytes;
    WEIR_FAIL_IF(bytes > UINT64_MAX - grain, NULL);
    bytes = (bytes + grain - 1) & ~(grain - 1);
    struct weir_range_block *block = find_block(heap, bytes);
    WEIR_FAIL_IF(!block, NULL);
    struct weir_range_block *rest = NULL;
    WEIR_FAIL_IF(block->bytes > bytes && !(rest = new_struct(heap)), NULL);
    class_remove(heap, block);
    if (rest) {
        rest->base = block->base + bytes;
        rest->bytes = block->bytes - bytes;
        rest->region = block->region;
        rest->prev = block;
        rest->next = block->next;
        if (rest->next) {
            rest->next->prev = rest;
        }
        block->next = rest;
        block->bytes = bytes;
        class_add(heap, rest);
    }
    block->used = true;
    block->region->used_bytes += block->bytes;
    return block;
}

/* Join a block with its right neighbour, which is in no list. */
static void absorb_next(struct weir_range_heap *heap, struct weir_range_block *block)
{
    struct weir_range_block *next = block->next;
    block->bytes += next->bytes;
    block->next = next->next;
    if (block->next) {
        block->next->prev = block;
    }
    drop_struct(heap, next);
}

void weir_guest_range_give(struct weir_range_heap *heap, struct weir_range_block *block)
{
    block->region->used_bytes -= block->bytes;
    if (block->next && !block->next->used) {
        class_remove(heap, block->next);
        absorb_next(heap, block);
    }
    if (block->prev && !block->prev->used) {
        block = block->prev;
        class_remove(heap, block);
        absorb_next(heap, block);
    }
    class_add(heap, block);
}

void weir_guest_range_finish(struct weir_range_heap *heap)
{
    while (heap->spare) {
        struct weir_range_block *next = heap->spare->class_next;
        free(heap->spare);
        heap->spare = next;
    }
}

bool weir_guest_range_check(const struct weir_range_heap *heap,
                            const struct weir_range_region *region)
{
    uint64_t at = region->base;
    uint64_t used = 0;
    const struct weir_range_block *prev = NULL;
    for (const struct weir_range_block *b = region->first; b; prev = b, b = b->next) {
        if (b->base != at || b->prev != prev || b->region != region || !b->bytes ||
            b->bytes % heap->grain_bytes || (prev && !prev->used && !b->used)) {
            return false;
        }
        used += b->used ? b->bytes : 0;
        at += b->bytes;
    }
    return at == region->base + region->bytes && used == region->used_bytes;
}
