#include "base/arena.h"
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define ARENA_ALIGN       16u
#define CHUNK_MIN_BYTES   4000u /* with malloc's own header about a page */
#define CHUNK_GROWTH_STOP (256u << 10)

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

/* A chunk behind the current one that holds bytes, old or new. */
static struct weir_arena_chunk *next_chunk(struct weir_arena *arena, size_t bytes)
{
    struct weir_arena_chunk *last = arena->current;
    for (struct weir_arena_chunk *chunk = last ? last->next : NULL; chunk; chunk = chunk->next) {
        if (chunk->size_bytes >= bytes) {
            return chunk;
        }
        last = chunk;
    }
    size_t size =
        last && last->size_bytes < CHUNK_GROWTH_STOP ? last->size_bytes * 2 : CHUNK_MIN_BYTES;
    if (size < bytes) {
        size = bytes;
    }
    struct weir_arena_chunk *chunk = malloc(sizeof *chunk + size);
    if (!chunk) {
        return NULL;
    }
    *chunk = (struct weir_arena_chunk){.size_bytes = size};
    if (last) {
        last->next = chunk;
    } else {
        arena->chunks = chunk;
    }
    return chunk;
}

void *weir_arena_alloc(struct weir_arena *arena, size_t bytes)
{
    if (bytes > SIZE_MAX - ARENA_ALIGN) {
        return NULL;
    }
    bytes = (bytes + ARENA_ALIGN - 1) & ~(size_t)(ARENA_ALIGN - 1);
    if (bytes > arena->cap_bytes - arena->used_bytes || arena->cap_bytes == 0) {
        return NULL;
    }
    struct weir_arena_chunk *chunk = arena->current;
    if (!chunk || chunk->size_bytes - chunk->used_bytes < bytes) {
        chunk = next_chunk(arena, bytes);
        if (!chunk) {
            return NULL;
        }
        arena->current = chunk;
    }
    void *memory = chunk->data + chunk->used_bytes;
    chunk->used_bytes += bytes;
    arena->used_bytes += bytes;
    return memory;
}

char *weir_arena_strndup(struct weir_arena *arena, const char *text, size_t len)
{
    char *copy = len < SIZE_MAX ? weir_arena_alloc(arena, len + 1) : NULL;
    if (copy) {
        memcpy(copy, text, len);
        copy[len] = '\0';
    }
    return copy;
}
