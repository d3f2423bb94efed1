/*
 * Asynchronous copies of registered memory that the GPU does not reach. Host functions of the
 * library give them the order that pinned memory has.
 *
 *     to the GPU      a function fills a block of the arena, and the GPU copies from the block
 *     from the GPU    the GPU copies to the block, and a function empties it
 *     in the program  a function copies
 *
 * All pieces of a copy use one block, since the stream's order separates them. Such blocks wait for
 * their stream, which may be stuck, so they take half of the arena at most. Functions only copy
 * memory: a request to the host would wait for the session's thread, which may wait for the stream.
 */
#include "guest_lib/callback.h"
#include "guest_lib/memory.h"
#include "guest_lib/register.h"
#include <stdlib.h>

/* Size of a block. Each block costs the stream a host function, about 0.1 ms, as long as copying a
 * fraction of a block takes. */
#define BLOCK_BYTES (4ull << 20)

static uint64_t waiting_bytes; /* atomic: bytes of blocks whose functions have not run yet */
static uint32_t n_pending;     /* atomic: number of functions that have not run yet */

/* A block that functions use. */
struct block {
    uint64_t at; /* offset in the arena */
    uint64_t bytes;
    /* Atomic: counts the functions that use the block, and the thread that posts them. */
    uint32_t users;
};

/* A piece that a function copies. */
struct part {
    void *to;
    const void *from;
    uint64_t bytes;
    struct block *block; /* NULL: the copy is within the program's memory */
};

static void put_block(struct block *block)
{
    if (block && __atomic_sub_fetch(&block->users, 1, __ATOMIC_ACQ_REL) == 0) {
        __atomic_sub_fetch(&waiting_bytes, block->bytes, __ATOMIC_RELAXED);
        free(block);
    }
}

static void end_part(void *user)
{
    struct part *part = user;
    put_block(part->block);
    free(part);
    /* C1: publishes the copied bytes; meets C2 in weir_copies_ordered_pending(). */
    __atomic_sub_fetch(&n_pending, 1, __ATOMIC_RELEASE);
}

static void run_part(void *user)
{
    const struct part *part = user;
    weir_parallel_copy(part->to, part->from, part->bytes);
    end_part(user);
}

bool weir_copies_ordered_pending(void)
{
    return __atomic_load_n(&n_pending, __ATOMIC_ACQUIRE) != 0; /* C2 */
}

static CUresult post_part(void *to, const void *from, uint64_t bytes, struct block *block,
                          struct weir_guest_stream *stream)
{
    struct part *part = malloc(sizeof(*part));
    WEIR_FAIL_IF(!part, CUDA_ERROR_OUT_OF_MEMORY);
    *part = (struct part){to, from, bytes, block};
    if (block) {
        __atomic_add_fetch(&block->users, 1, __ATOMIC_RELAXED);
    }
    __atomic_add_fetch(&n_pending, 1, __ATOMIC_RELAXED);
    return weir_callback_in_stream(stream, run_part, end_part, part);
}

static struct block *take_block(uint64_t bytes, bool may_wait)
{
    struct block *block = malloc(sizeof(*block));
    uint64_t waiting = __atomic_add_fetch(&waiting_bytes, bytes, __ATOMIC_RELAXED);
    if (block) {
        *block = (struct block){.bytes = bytes, .users = 1};
        if (may_wait
                ? weir_staging_take(bytes, &block->at) == CUDA_SUCCESS
                : waiting <= 2 * weir_staging_max_bytes() && weir_staging_try(bytes, &block->at)) {
            return block;
        }
        free(block);
    }
    __atomic_sub_fetch(&waiting_bytes, bytes, __ATOMIC_RELAXED);
    return NULL;
}

static CUresult copy_through(const struct weir_guest_copy_side *dst,
                             const struct weir_guest_copy_side *src, uint64_t bytes,
                             struct block *block, struct weir_guest_stream *stream)
{
    uint8_t *place = weir_guest.channel.arena + block->at;
    CUresult result = CUDA_SUCCESS;
    for (uint64_t at = 0, n; at < bytes && result == CUDA_SUCCESS; at += n) {
        n = bytes - at < block->bytes ? bytes - at : block->bytes;
        uint64_t rest = bytes - at - n;
        if (src->kind == WEIR_COPY_PAGEABLE) {
            result =
                post_part(place, (const uint8_t *)(uintptr_t)src->address + at, n, block, stream);
            result = result == CUDA_SUCCESS ? weir_copy_post(dst->address + at, block->at, n, rest,
                                                             stream, WEIR_COPY_SRC_IN_ARENA)
                                            : result;
        } else {
            result = weir_copy_post(block->at, src->address + at, n, rest, stream,
                                    WEIR_COPY_DST_IN_ARENA);
            result = result == CUDA_SUCCESS ? post_part((uint8_t *)(uintptr_t)dst->address + at,
                                                        place, n, block, stream)
                                            : result;
        }
    }
    struct weir_stream_point point = weir_guest_stream_here(stream);
    weir_staging_free_after(block->at, &point);
    return result;
}

CUresult weir_copy_ordered(const struct weir_guest_copy_side *dst,
                           const struct weir_guest_copy_side *src, uint64_t bytes,
                           struct weir_guest_stream *stream)
{
    bool from_program = src->kind == WEIR_COPY_PAGEABLE;
    if (from_program && dst->kind == WEIR_COPY_PAGEABLE) {
        return post_part((void *)(uintptr_t)dst->address, (const void *)(uintptr_t)src->address,
                         bytes, NULL, stream);
    }
    const struct weir_guest_copy_side *mine = from_program ? src : dst;
    uint64_t most = weir_staging_max_bytes() < BLOCK_BYTES ? weir_staging_max_bytes() : BLOCK_BYTES;
    uint64_t block_bytes = WEIR_MIN(bytes, most);
    struct block *block = take_block(block_bytes, false);
    if (!block) { /* the stream may wait for the program, so copy without a block */
        struct weir_guest_copy_side shared;
        if (weir_register_reach(mine->address) == CUDA_SUCCESS &&
            weir_copy_classify(mine->address, bytes, &shared) == CUDA_SUCCESS &&
            shared.kind == WEIR_COPY_GPU) {
            return weir_copy_linear(from_program ? dst : &shared, from_program ? &shared : src,
                                    bytes, stream, false);
        }
        block = take_block(block_bytes, true);
    }
    WEIR_FAIL_IF(!block, weir_guest_result(CUDA_ERROR_OUT_OF_MEMORY));
    CUresult result = copy_through(dst, src, bytes, block, stream);
    put_block(block);
    return result;
}
