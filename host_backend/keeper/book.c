/* The keeper's rows, in hash buckets: a supervisor may hold thousands of pieces of memory. */
#include "host_backend/keeper/book.h"

#include <stdlib.h>
#include <string.h>

static uint32_t bucket_of(uint32_t owner, uint64_t key)
{
    return (uint32_t)((key * 0x9e3779b97f4a7c15u + owner) >> 32) % WEIR_KEEP_BUCKETS;
}

struct weir_keep_row *weir_keep_book_find(const struct weir_keep_book *book, uint32_t owner,
                                          uint64_t key)
{
    struct weir_keep_row *row = book->buckets[bucket_of(owner, key)];

    while (row && (row->owner != owner || row->key != key)) {
        row = row->next;
    }
    return row;
}

struct weir_keep_row *weir_keep_book_put(struct weir_keep_book *book, uint32_t owner, uint64_t key,
                                         const uint8_t *data, uint32_t bytes, struct weir_fds *fds)
{
    struct weir_keep_row *row = weir_keep_book_find(book, owner, key), *fresh = NULL;
    uint8_t *copy = malloc(bytes + 1u);

    if (!row) {
        fresh = row = calloc(1, sizeof *row);
    }
    if (!copy || !row) {
        free(copy);
        free(fresh);
        weir_fds_close(fds);
        return NULL;
    }
    if (fresh) {
        struct weir_keep_row **bucket = &book->buckets[bucket_of(owner, key)];

        *row = (struct weir_keep_row){.next = *bucket, .owner = owner, .key = key};
        *bucket = row;
    }
    memcpy(copy, data, bytes);
    free(row->data);
    weir_fds_close(&row->fds);
    row->data = copy;
    row->bytes = bytes;
    row->fds = *fds;
    fds->n = 0;
    return row;
}

void weir_keep_book_drop(struct weir_keep_book *book, struct weir_keep_row *row)
{
    struct weir_keep_row **at = &book->buckets[bucket_of(row->owner, row->key)];

    while (*at != row) {
        at = &(*at)->next;
    }
    *at = row->next;
    weir_fds_close(&row->fds);
    free(row->data);
    free(row);
}

struct weir_keep_row *weir_keep_book_next(const struct weir_keep_book *book,
                                          const struct weir_keep_row *after)
{
    uint32_t i = after ? bucket_of(after->owner, after->key) + 1 : 0;

    if (after && after->next) {
        return after->next;
    }
    while (i < WEIR_KEEP_BUCKETS && !book->buckets[i]) {
        i++;
    }
    return i < WEIR_KEEP_BUCKETS ? book->buckets[i] : NULL;
}
