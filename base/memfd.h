/* Files in memory that are passed to other processes. */
#pragma once

#include <stdbool.h>
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

/**
 * Is it such a file? Another process may have passed it on.
 *
 * @param bytes  the size that it must have.
 * @thread any
 */
bool weir_memfd_is_sealed(int fd, uint64_t bytes);
