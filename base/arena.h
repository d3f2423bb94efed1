/*
 * A bump arena with a cap: the memory of one call, one message or one parse, freed all at once.
 *
 * Memory comes in chunks that survive weir_arena_reset(), so an arena that is reset after each call
 * stops allocating after the first few. The cap bounds what a hostile message can make us allocate.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct weir_arena_chunk;

/* Only the owner's thread uses it. Fields are private unless a comment says otherwise; a zeroed
 * arena is valid and gives no memory (cap 0). */
struct weir_arena {
    struct weir_arena_chunk *chunks;  /* list of all chunks, in order of use */
    struct weir_arena_chunk *current; /* where the next allocation is tried; NULL: none yet */
    size_t used_bytes;                /* bytes handed out since the last reset */
    size_t cap_bytes;                 /* the owner may raise it */
    bool over_cap; /* the last NULL came from the cap, not from a lack of memory */
};

/** Make an arena that hands out at most cap_bytes between resets; allocates nothing yet. */
void weir_arena_init(struct weir_arena *arena, size_t cap_bytes);

/** Free all memory. Accepts NULL and a zeroed arena; the arena may be initialised again. */
void weir_arena_finish(struct weir_arena *arena);

/** Forget everything that was handed out, but keep the chunks for reuse. */
void weir_arena_reset(struct weir_arena *arena);

/**
 * Take memory from the arena.
 *
 * @param arena  owner thread only.
 * @param bytes  any; 0 gives a valid pointer.
 * @return 16-byte aligned memory, not cleared, valid until reset or finish; NULL when the cap is
 *         reached or memory is out.
 * @thread owner
 */
void *weir_arena_alloc(struct weir_arena *arena, size_t bytes);

/** Take memory with another alignment: a power of two up to 16. @thread owner */
void *weir_arena_alloc_aligned(struct weir_arena *arena, size_t bytes, size_t align);

/** A copy of len bytes of text with a NUL behind it, or NULL. @thread owner */
char *weir_arena_strndup(struct weir_arena *arena, const char *text, size_t len);
