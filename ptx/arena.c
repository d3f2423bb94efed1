#include "ptx/arena.h"

#include <stdlib.h>
#include <string.h>

#define BLOCK_BYTES ((size_t)64 << 10)

struct weir_ptx_arena_block {
    struct weir_ptx_arena_block *next;
    _Alignas(16) char data[];
};

struct weir_ptx_arena *weir_ptx_arena_create(size_t cap_bytes)
{
    struct weir_ptx_arena *arena = calloc(1, sizeof(*arena));

    if (arena) {
        arena->cap_bytes = cap_bytes;
    }
    return arena;
}

void weir_ptx_arena_destroy(struct weir_ptx_arena *arena)
{
    if (!arena) {
        return;
    }
    for (struct weir_ptx_arena_block *block = arena->blocks, *next; block; block = next) {
        next = block->next;
        free(block);
    }
    free(arena);
}

static bool add_block(struct weir_ptx_arena *arena, size_t size_bytes)
{
    size_t want = size_bytes > BLOCK_BYTES / 4 ? size_bytes : BLOCK_BYTES;

    arena->over_cap = want > arena->cap_bytes - arena->used_bytes;
    if (arena->over_cap) {
        return false;
    }
    struct weir_ptx_arena_block *block = calloc(1, sizeof(*block) + want);

    if (!block) {
        return false;
    }
    block->next = arena->blocks;
    arena->blocks = block;
    arena->used_bytes += want;
    arena->next = block->data;
    arena->left_bytes = want;
    return true;
}

void *weir_ptx_arena_alloc(struct weir_ptx_arena *arena, size_t size_bytes, size_t align)
{
    size_t pad = -(uintptr_t)arena->next & (align - 1);

    if (!arena->next || pad > arena->left_bytes || size_bytes > arena->left_bytes - pad) {
        if (!add_block(arena, size_bytes)) {
            return NULL;
        }
        pad = 0;
    }
    char *ret = arena->next + pad;

    arena->next = ret + size_bytes;
    arena->left_bytes -= pad + size_bytes;
    return ret;
}

char *weir_ptx_arena_text(struct weir_ptx_arena *arena, const char *text, size_t len)
{
    char *copy = weir_ptx_arena_alloc(arena, len + 1, 1);

    if (copy && len) {
        memcpy(copy, text, len);
    }
    return copy;
}
