/*
 * Address ranges inside a tenant's window: first fit over a sorted list of free extents. It has no
 * lock of its own: the tenant's guards it. Pure address arithmetic, without CUDA or mmap.
 */
#pragma once

#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>

struct weir_extent {
    uint64_t base, bytes;
};

struct weir_window {
    uint64_t base, bytes;
    struct weir_extent *free_extents; /* sorted, never adjacent; owned */
    size_t n, room;
};

/** Make a window that is all free. WEIR_ERR_INVALID, WEIR_ERR_NO_MEMORY. */
enum weir_status weir_window_init(struct weir_window *window, uint64_t base,
                                  uint64_t bytes) WEIR_MUST_CHECK;
/** Accepts a zeroed window. */
void weir_window_finish(struct weir_window *window);

/**
 * Take a range.
 * @param bytes  multiple of alignment, not 0.
 * @param alignment  a power of two.
 * @return WEIR_OK, WEIR_ERR_INVALID, WEIR_ERR_QUOTA (no such hole), WEIR_ERR_NO_MEMORY
 */
enum weir_status weir_window_take(struct weir_window *window, uint64_t bytes, uint64_t alignment,
                                  uint64_t *ret_base) WEIR_MUST_CHECK;

/** Take the given range. WEIR_ERR_EXISTS: not all of it is free. */
enum weir_status weir_window_take_at(struct weir_window *window, uint64_t base,
                                     uint64_t bytes) WEIR_MUST_CHECK;

/**
 * Give a range back.
 * @return WEIR_OK, WEIR_ERR_INVALID (outside, or free already: a bug of the caller), NO_MEMORY:
 * lost
 */
enum weir_status weir_window_give(struct weir_window *window, uint64_t base,
                                  uint64_t bytes) WEIR_MUST_CHECK;

/** Sum of the free extents. */
uint64_t weir_window_free_bytes(const struct weir_window *window);
