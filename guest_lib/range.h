/*
 * Allocates blocks from ranges of numbers: device addresses of granted chunks, offsets in the
 * arena.
 *
 * Good fit over size classes (four per power of two), immediate coalescing; allocate and free take
 * a constant number of steps. Nothing is stored in the ranges themselves.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WEIR_RANGE_CLASSES 192

struct weir_range_region;

/* A used or free piece of a region; pieces of a region are linked by address and cover it. */
struct weir_range_block {
    uint64_t base;
    uint64_t bytes;
    bool used;
    struct weir_range_region *region;
    struct weir_range_block *prev, *next; /* neighbours in order of addresses */
    /* Neighbours in the free list of its size class. */
    struct weir_range_block *class_prev, *class_next;
};

struct weir_range_region {
    uint64_t base;
    uint64_t bytes;
    uint64_t used_bytes;
    struct weir_range_block *first;
    void *user;
};

/* Not locked: the owner's lock guards it. A zeroed heap with grain_bytes set is empty and valid. */
struct weir_range_heap {
    uint64_t grain_bytes; /* power of two; every block begins and ends on a multiple */
    uint64_t free_bytes;
    uint64_t class_map[WEIR_RANGE_CLASSES / 64];
    struct weir_range_block *classes[WEIR_RANGE_CLASSES];
    struct weir_range_block *spare; /* unused block structs */
};

/**
 * Add a region that is all free.
 * @param region  zeroed; the caller owns it, and keeps it until it is removed. base and bytes are
 *                multiples of
 * grain.
 * @return false  no memory.
 */
bool weir_guest_range_add(struct weir_range_heap *heap, struct weir_range_region *region,
                          uint64_t base, uint64_t bytes);

/** Remove a region with all its blocks. */
void weir_guest_range_remove(struct weir_range_heap *heap, struct weir_range_region *region);

/** Take a block of at least bytes (> 0); NULL: no room, or no memory for the struct. */
struct weir_range_block *weir_guest_range_take(struct weir_range_heap *heap, uint64_t bytes);

/** Free a block; the heap owns its struct again. */
void weir_guest_range_give(struct weir_range_heap *heap, struct weir_range_block *block);

/** Free the spare structs; every region has been removed. */
void weir_guest_range_finish(struct weir_range_heap *heap);

/** Is the heap consistent? For tests. */
bool weir_guest_range_check(const struct weir_range_heap *heap,
                            const struct weir_range_region *region);
