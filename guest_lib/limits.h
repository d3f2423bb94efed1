/* Reads a program's requests from its environment: limits, in HAMi's variables, and connections. */
#pragma once

#include "proto/wire/control.h"

/**
 * Read CUDA_DEVICE_MEMORY_LIMIT, CUDA_DEVICE_MEMORY_LIMIT_<i> (of device i, which has precedence)
 * and CUDA_DEVICE_SM_LIMIT, and CUDA_DEVICE_MAX_CONNECTIONS.
 *
 * They are requests: the host takes the limits as this session's, below the tenant's own, and gives
 * the connections if the tenant has a worker of its own. A variable with an invalid value counts as
 * not set.
 *
 * @param lookup    getenv, or a test's.
 * @param ret_wish  always written; zeros where nothing is requested.
 * @thread any
 */
void weir_limits_read(char *(*lookup)(const char *name), struct weir_limit_wish *ret_wish);

/**
 * A size such as "512m", "1g", "1024" (bytes); suffixes k, m, g, t, in powers of 1024, in either
 * case, also as "mb" or "MiB".
 *
 * @return the size, or 0: not a size, or too large for 64 bits.
 * @thread any
 */
uint64_t weir_limit_bytes(const char *text);
