/*
 * softgpu's memory map: which addresses a kernel may touch.
 *
 * A device address is an address of this process. Every allocation, mapping and module variable is
 * a range here; an access outside all ranges is an illegal address, as on a real GPU, never a
 * crash. The map is read by every memory instruction, so readers take no lock: they look at an
 * immutable sorted snapshot that writers replace, and cache the ranges that they hit until the
 * generation changes. Replaced snapshots are freed when no reader can hold them.
 */
#pragma once

#include "base/status.h"
#include <stdbool.h>
#include <stdint.h>

#define WEIR_SOFT_READ  0x1u
#define WEIR_SOFT_WRITE 0x2u

struct weir_soft_range {
    uint64_t base;
    uint64_t bytes;
    uint32_t access; /* WEIR_SOFT_READ | WEIR_SOFT_WRITE */
};

/**
 * Make [base, base + bytes) accessible to kernels and copies.
 *
 * @param access  WEIR_SOFT_* bits, not 0.
 * @return WEIR_OK, WEIR_ERR_EXISTS (overlaps a range), WEIR_ERR_INVALID, WEIR_ERR_NO_MEMORY
 * @thread any (internally locked)
 */
enum weir_status weir_soft_memory_add(uint64_t base, uint64_t bytes,
                                      uint32_t access) WEIR_MUST_CHECK;

/** Take out the range that begins at base. WEIR_ERR_NOT_FOUND if there is none. @thread any */
enum weir_status weir_soft_memory_remove(uint64_t base) WEIR_MUST_CHECK;

/** Changes with every add and remove; a cached range is good while it stays. @thread any */
uint64_t weir_soft_memory_generation(void);

/**
 * The range that holds an address.
 * @return false  none.
 * @thread any; lock-free
 */
bool weir_soft_memory_find(uint64_t address, struct weir_soft_range *ret_range);

/** True when all of [base, base + bytes) lies in ranges (neighbours count as one) with access. */
bool weir_soft_memory_covers(uint64_t base, uint64_t bytes, uint32_t access);
