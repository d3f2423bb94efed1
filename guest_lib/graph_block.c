/*
 * Blocks for pageable copies of graphs. See graph.h.
 *
 * A graph keeps its blocks for as long as it lives. They may fill at most half of the arena,
 * because ordinary copies need the arena. Further blocks are in pinned memory. A remote session has
 * no pinned memory that the GPU reaches, so its further blocks are in device memory, and each
 * launch copies them through the arena.
 */
#include "guest_lib/graph.h"

#include "guest_lib/callback.h"

static uint64_t kept_bytes; /* atomic: bytes of the arena that blocks of all graphs take */

static bool keep_in_arena(uint64_t bytes, uint64_t *ret_offset)
{
    uint64_t most = 2 * weir_staging_max_bytes();
    if (bytes > weir_staging_max_bytes()) {
        return false;
    }
    bool kept = __atomic_add_fetch(&kept_bytes, bytes, __ATOMIC_RELAXED) <= most &&
                weir_staging_try(bytes, ret_offset);
    if (!kept) {
        __atomic_sub_fetch(&kept_bytes, bytes, __ATOMIC_RELAXED);
    }
    return kept;
}

CUresult weir_graph_block_take(struct weir_guest_ctx *ctx, uint64_t bytes,
                               struct weir_graph_block *ret_block)
{
    struct weir_graph_block block = {.place = WEIR_GRAPH_BLOCK_ARENA, .bytes = bytes};
    struct weir_mem mem;
    if (!keep_in_arena(bytes, &block.at)) {
        bool remote = weir_guest.channel.remote;
        WEIR_TRY(
            weir_mem_alloc(ctx, remote ? WEIR_MEM_DEVICE : WEIR_MEM_PINNED, bytes, 0, NULL, &mem));
        block.place = remote ? WEIR_GRAPH_BLOCK_DEVICE : WEIR_GRAPH_BLOCK_PINNED;
        block.at = mem.base;
        block.buffer_id = mem.buffer_id;
    }
    *ret_block = block;
    return CUDA_SUCCESS;
}

/* Does the block still exist? Its context may be destroyed, and the address may have another
 * owner. */
static bool is_there(const struct weir_graph_block *block)
{
    struct weir_mem mem;
    return weir_mem_find(block->at, &mem) && mem.buffer_id == block->buffer_id;
}

void weir_graph_block_free(const struct weir_graph_block *block)
{
    struct weir_mem mem;
    if (block->place == WEIR_GRAPH_BLOCK_ARENA) {
        weir_staging_free(block->at);
        __atomic_sub_fetch(&kept_bytes, block->bytes, __ATOMIC_RELAXED);
    } else if (is_there(block) &&
               weir_mem_remove(block->at, 1u << WEIR_MEM_DEVICE | 1u << WEIR_MEM_PINNED, &mem)) {
        weir_mem_release(&mem);
    }
}

void weir_graph_block_side(const struct weir_graph_block *block, uint64_t width, uint64_t height,
                           struct weir_guest_copy_side *ret_side)
{
    bool arena = block->place == WEIR_GRAPH_BLOCK_ARENA;
    *ret_side = (struct weir_guest_copy_side){
        .kind = arena ? WEIR_COPY_PAGEABLE : WEIR_COPY_GPU, /* on the wire this is an arena block */
        .address = block->at,
        .pitch = width,
        .height = height,
    };
}

static CUresult move_row(const struct weir_graph_block *block, uint64_t at, uint8_t *row,
                         uint64_t bytes, bool to_gpu, struct weir_guest_stream *stream)
{
    struct weir_guest_copy_side inside = {
        .kind = WEIR_COPY_GPU, .address = block->at + at, .on_device = true};
    struct weir_guest_copy_side outside = {.kind = WEIR_COPY_PAGEABLE, .address = (uintptr_t)row};
    void *pinned = (void *)(uintptr_t)(block->at + at);
    switch (block->place) {
    case WEIR_GRAPH_BLOCK_ARENA:
        return to_gpu ? weir_callback_staging_write(block->at + at, row, bytes)
                      : weir_callback_staging_read(block->at + at, row, bytes);
    case WEIR_GRAPH_BLOCK_PINNED:
        weir_parallel_copy(to_gpu ? pinned : row, to_gpu ? row : pinned, bytes);
        return CUDA_SUCCESS;
    case WEIR_GRAPH_BLOCK_DEVICE:
        return to_gpu ? weir_copy_linear(&inside, &outside, bytes, stream, false)
                      : weir_copy_linear(&outside, &inside, bytes, stream, false);
    }
    return CUDA_ERROR_UNKNOWN;
}

CUresult weir_graph_block_move(const struct weir_stream_capture_copy *copy,
                               struct weir_guest_stream *stream)
{
    CUresult result = CUDA_SUCCESS;
    uint64_t at = 0;
    WEIR_FAIL_IF(copy->block.place != WEIR_GRAPH_BLOCK_ARENA && !is_there(&copy->block),
                 CUDA_ERROR_INVALID_VALUE);
    for (uint64_t z = 0; z < copy->n_slices; z++) {
        for (uint64_t y = 0; y < copy->n_rows && result == CUDA_SUCCESS; y++) {
            uint8_t *row = copy->host + z * copy->host_slice + y * copy->host_pitch;
            result = move_row(&copy->block, at, row, copy->row_bytes, copy->to_gpu, stream);
            at += copy->row_bytes;
        }
    }
    return result;
}
