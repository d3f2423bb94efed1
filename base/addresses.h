/* Ranges of addresses that the process keeps from others, with nothing behind them. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/**
 * Reserve a range in which nothing is mapped.
 *
 * @param base, bytes  whole pages.
 * @return false: nothing has changed; errno is EEXIST if something is mapped there, else
 * mmap()'s
 * @thread any
 */
bool weir_addresses_hold(uint64_t base, uint64_t bytes);

/**
 * Unmap what is in a range, and reserve the range at the same moment.
 *
 * @param base, bytes  whole pages.
 * @return false: what was mapped is still there; errno is mmap()'s
 * @thread any
 */
bool weir_addresses_reclaim(uint64_t base, uint64_t bytes);
