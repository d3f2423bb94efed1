/* The keeper's rows. One thread. */
#pragma once

#include "base/fd_pass.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define WEIR_KEEP_BUCKETS 4096u

struct weir_keep_row {
    struct weir_keep_row *next; /* in its bucket */
    uint32_t owner;
    uint64_t key;
    pid_t pid; /* its process; 0: none */
    bool ended;
    int wait_status; /* with ended: as waitpid() gives it */
    struct weir_fds fds;
    uint32_t bytes;
    uint8_t *data; /* owned */
};

/* Zeroed: empty. */
struct weir_keep_book {
    struct weir_keep_row *buckets[WEIR_KEEP_BUCKETS];
    uint32_t n_processes;
};

/**
 * Make a row, or replace the bytes and descriptors of an older one; a process stays with its row.
 * @param fds  taken, also on failure.
 * @return the row; NULL: no memory, and the older row stays
 */
struct weir_keep_row *weir_keep_book_put(struct weir_keep_book *book, uint32_t owner, uint64_t key,
                                         const uint8_t *data, uint32_t bytes, struct weir_fds *fds);
/** NULL: there is none. */
struct weir_keep_row *weir_keep_book_find(const struct weir_keep_book *book, uint32_t owner,
                                          uint64_t key);
/** Remove a row and close its descriptors. Its process is the caller's affair. */
void weir_keep_book_drop(struct weir_keep_book *book, struct weir_keep_row *row);
/** The next row in any order; after = NULL: the first. NULL: that was the last. */
struct weir_keep_row *weir_keep_book_next(const struct weir_keep_book *book,
                                          const struct weir_keep_row *after);
