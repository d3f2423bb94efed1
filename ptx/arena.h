/* Memory of one module: grows in blocks up to a cap, freed at once. Private to ptx/. */
#ifndef WEIR_PTX_ARENA_H
#define WEIR_PTX_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct weir_ptx_arena_block;

/* Owner thread only. */
struct weir_ptx_arena {
    struct weir_ptx_arena_block *blocks;
    char *next;        /* free part of the newest block */
    size_t left_bytes; /* its length */
    size_t used_bytes; /* of all blocks */
    size_t cap_bytes;
    bool over_cap; /* the last NULL was because of the cap, not of malloc */
};

/** Make an empty arena that refuses to grow past cap_bytes. @return NULL when out of memory */
struct weir_ptx_arena *weir_ptx_arena_create(size_t cap_bytes);

/** Free it and everything allocated from it. Accepts NULL. */
void weir_ptx_arena_destroy(struct weir_ptx_arena *arena);

/** Zeroed memory, aligned to align (a power of two up to 16), or NULL. */
void *weir_ptx_arena_alloc(struct weir_ptx_arena *arena, size_t size_bytes, size_t align);

/** A NUL-terminated copy of text[0 .. len), or NULL. */
char *weir_ptx_arena_text(struct weir_ptx_arena *arena, const char *text, size_t len);

#endif
