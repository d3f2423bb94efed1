/* Files in memory that are passed to other processes. */
#pragma once

#include <stdint.h>

/**
 * Make a file of zeroes that nobody can shrink or grow later, so that no mapping of it ever loses a
 * page. Closed on exec.
 *
 * @param name   shown in /proc; borrowed.
 * @param bytes  its size.
 * @return the descriptor, for the caller to close; -1: see errno.
 * @thread any
 */
int weir_memfd_sealed(const char *name, uint64_t bytes);
