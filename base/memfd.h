/* Files in memory that are passed to other processes. */
#ifndef WEIR_BASE_MEMFD_H
#define WEIR_BASE_MEMFD_H

#include <stdint.h>

/**
 * Make a file of zeroes that nobody can shrink or grow any more, so that whoever has mapped it
 * never finds a page of it gone. Closed on exec.
 *
 * @param name   for people who look into /proc; borrowed.
 * @param bytes  its size.
 * @return the descriptor, for the caller to close; -1: see errno.
 * @thread any
 */
int weir_memfd_sealed(const char *name, uint64_t bytes);

#endif
