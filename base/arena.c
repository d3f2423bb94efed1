#include "base/arena.h"
#include "base/status.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define ARENA_ALIGN     16u
#define CHUNK_MIN_BYTES 4000u        /* size with malloc's own header is about a page */
#define CHUNK_MAX_BYTES (256u << 10) /* unless one allocation is larger */

struct weir_arena_chunk {
    struct weir_arena_chunk *next;
    size_t size_bytes;
    size_t used_bytes;
    _Alignas(ARENA_ALIGN) uint8_t data[];
};

void weir_arena_init(struct weir_arena *arena, size_t cap_bytes)
{
    *arena = (struct weir_arena){.cap_bytes = cap_bytes};
}

void weir_arena_finish(struct weir_arena *arena)
{
    if (!arena) {
        return;
    }
    struct weir_arena_chunk *next;
    for (struct weir_arena_chunk *chunk = arena->chunks; chunk; chunk = next) {
        next = chunk->next;
        free(chunk);
    }
    *arena = (struct weir_arena){0};
}

void weir_arena_reset(struct weir_arena *arena)
{
    for (struct weir_arena_chunk *chunk = arena->chunks; chunk; chunk = chunk->next) {
        chunk->used_bytes = 0;
    }
    arena->current = arena->chunks;
    arena->used_bytes = 0;
}

/* Find a chunk behind the current one that holds bytes, or make one. */
static struct weir_arena_chunk *next_chunk(struct weir_arena *arena, size_t bytes)
{
    struct weir_arena_chunk *last = arena->current;
    for (struct weir_arena_chunk *chunk = last ? last->next : NULL; chunk; chunk = chunk->next) {
        if (chunk->size_bytes >= bytes) {
            return chunk;
        }
        last = chunk;
    }
    size_t size = last ? last->size_bytes * 2 : CHUNK_MIN_BYTES;
    if (size > CHUNK_MAX_BYTES) {
        size = CHUNK_MAX_BYTES;
    }
    if (size < bytes) {
        size = bytes;
    }
    struct weir_arena_chunk *chunk = malloc(sizeof *chunk + size);
    WEIR_FAIL_IF(!chunk, NULL);
    *chunk = (struct weir_arena_chunk){.size_bytes = size};
    if (last) {
        last->next = chunk;
    } else {
        arena->chunks = chunk;
    }
    return chunk;
}

void *weir_arena_alloc_aligned(struct weir_arena *arena, size_t bytes, size_t align)
{
    struct weir_arena_chunk *chunk = arena->current;
    size_t pad = chunk ? -chunk->used_bytes & (align - 1) : 0;
    size_t left = arena->cap_bytes - arena->used_bytes;
    arena->over_cap =
        arena->cap_bytes == 0 || bytes > SIZE_MAX / 2 || pad > left || bytes > left - pad;
    WEIR_FAIL_IF(arena->over_cap, NULL);
    if (!chunk || pad + bytes > chunk->size_bytes - chunk->used_bytes) {
        chunk = next_chunk(arena, bytes);
        WEIR_FAIL_IF(!chunk, NULL);
        arena->current = chunk;
        pad = 0;
    }
    void *memory = chunk->data + chunk->used_bytes + pad;
    chunk->used_bytes += pad + bytes;
    arena->used_bytes += pad + bytes;
    return memory;
}

void *weir_arena_alloc(struct weir_arena *arena, size_t bytes)
{
    size_t rounded = (bytes + ARENA_ALIGN - 1) & ~(size_t)(ARENA_ALIGN - 1);
    return weir_arena_alloc_aligned(arena, WEIR_MAX(rounded, bytes), ARENA_ALIGN);
}

char *weir_arena_strndup(struct weir_arena *arena, const char *text, size_t len)
{
    char *copy = len < SIZE_MAX ? weir_arena_alloc_aligned(arena, len + 1, 1) : NULL;
    if (copy) {
        memcpy(copy, text, len);
        copy[len] = '\0';
    }
    return copy;
}
