/*
 * Memory that the supervisor shares with workers: the supervisor makes it and sends the descriptor
 * over the link. It contains a struct of atomics that both sides know.
 */
#pragma once

#include "base/status.h"
#include <stddef.h>

/**
 * Make a page of zeroes.
 * @param name      shown in /proc; borrowed.
 * @param bytes     size of the struct, 1 or more.
 * @param ret_fd    gives a sealed memfd for weir_shared_page_map() in a worker.
 * @param ret_page  gives the mapping, to read and write; munmap() ends it.
 * @return WEIR_OK, WEIR_ERR_IO, WEIR_ERR_NO_MEMORY, WEIR_ERR_NO_DESCRIPTOR
 * @thread any
 */
enum weir_status weir_shared_page_create(const char *name, size_t bytes, int *ret_fd,
                                         void **ret_page) WEIR_MUST_CHECK;
/**
 * Map a page that the supervisor made.
 * @param fd        borrowed.
 * @param bytes     size of the struct, 1 or more.
 * @param ret_page  as of weir_shared_page_create().
 * @return WEIR_OK, WEIR_ERR_INVALID (no file, or a smaller one), WEIR_ERR_NO_MEMORY
 * @thread any
 */
enum weir_status weir_shared_page_map(int fd, size_t bytes, void **ret_page) WEIR_MUST_CHECK;
