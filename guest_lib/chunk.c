/*
 * Allocation of device and pinned memory, cut from chunks that the host grants.
 *
 * Each context has a heap per kind, so that its chunks can be returned when it is destroyed. Small
 * blocks share chunks of 32 MiB; a block of more than half of that has a chunk of its own. One
 * empty chunk per heap is kept, others are returned at once. A pinned chunk is a memfd, mapped at
 * the same address as in the worker.
 */
#include "base/addresses.h"
#include "base/log.h"
#include "guest_lib/memory.h"
#include "guest_lib/moves.h"
#include "guest_lib/range.h"
#include "guest_lib/register.h"
#include "proto/guest_calls.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define CHUNK_BYTES  (32ull << 20)
#define ROUND_BYTES  (2ull << 20) /* granularity of the GPU's mappings */
#define BLOCK_GRAIN  512          /* minimum alignment of cuMemAlloc */
#define PINNED_GRAIN 4096         /* so two allocations never share a page */

enum heap_kind { HEAP_DEVICE, HEAP_PINNED, HEAP_MANAGED, HEAP_MANAGED_SMALL };

/* Managed chunks are smaller, as their host memory is pinned at once, 0.3 ms per MiB. */
static const struct {
    enum weir_grant_kind grant;
    uint32_t grain_bytes;
    uint64_t chunk_bytes;
} kinds[WEIR_MEM_HEAPS] = {
    [HEAP_DEVICE] = {WEIR_GRANT_DEVICE, BLOCK_GRAIN, CHUNK_BYTES},
    [HEAP_PINNED] = {WEIR_GRANT_PINNED, PINNED_GRAIN, CHUNK_BYTES},
    /* Managed allocations that are smaller than a block share blocks; others do not. */
    [HEAP_MANAGED] = {WEIR_GRANT_MANAGED, WEIR_MOVES_BLOCK, CHUNK_BYTES / 4},
    [HEAP_MANAGED_SMALL] = {WEIR_GRANT_MANAGED, BLOCK_GRAIN, ROUND_BYTES},
};

struct weir_guest_chunk {
    /* Must be first: a pointer to the region is a pointer to its chunk. */
    struct weir_range_region region;
    uint64_t id;
    struct weir_guest_chunk *next;
};

/* A heap lives as long as its context's struct, so a late free finds that the memory was freed
 * already. */
struct weir_mem_heap {
    struct weir_lock lock; /* guards the whole heap */
    uint32_t epoch;        /* grows when the heap is emptied: older blocks are invalid */
    struct weir_range_heap ranges;
    struct weir_guest_chunk *chunks;
    struct weir_guest_ctx *ctx;
    enum heap_kind kind;
};

static uint64_t cached_bytes[WEIR_GUEST_MAX_DEVICES]; /* atomic: free bytes of device chunks */

static struct weir_mem_heap *heap_of(struct weir_guest_ctx *ctx, enum heap_kind kind)
{
    WEIR_GUEST_LOCKED(&ctx->lock);
    struct weir_mem_heap *heap = ctx->heaps[kind];
    if (!heap && (heap = calloc(1, sizeof *heap))) {
        heap->ctx = ctx;
        heap->kind = kind;
        heap->ranges.grain_bytes = kinds[kind].grain_bytes;
        ctx->heaps[kind] = heap;
    }
    return heap;
}

static void count_free(const struct weir_mem_heap *heap, uint64_t before)
{
    if (heap->kind == HEAP_DEVICE) {
        __atomic_add_fetch(&cached_bytes[heap->ctx->device], heap->ranges.free_bytes - before,
                           __ATOMIC_RELAXED);
    }
}

uint64_t weir_mem_cached_bytes(CUdevice device)
{
    return __atomic_load_n(&cached_bytes[device], __ATOMIC_RELAXED);
}

/* ---------------------------------------------------------------- chunks */

static bool in_window(uint64_t base, uint64_t bytes)
{
    return base >= weir_guest.window_base && bytes <= weir_guest.window_bytes &&
           base - weir_guest.window_base <= weir_guest.window_bytes - bytes;
}

static CUresult map_pinned(const struct weir_op_mem_grant_out *grant)
{
    WEIR_GUEST_KEEP_ERRNO;
    struct weir_transport *transport = weir_guest.channel.transport;
    void *want = (void *)(uintptr_t)grant->base;
    int fd;
    if (transport->ops->region_fd) {
        /* In a virtual machine the chunk is part of the region shared with the host. */
        return mmap(want, grant->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                    transport->ops->region_fd(transport), (off_t)grant->fd_offset) == want
                   ? CUDA_SUCCESS
                   : CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (!grant->n_fds) {
        return weir_guest.same_process ? CUDA_SUCCESS : CUDA_ERROR_DEVICE_UNAVAILABLE;
    }
    WEIR_TRY(weir_channel_receive_fd(weir_guest_channel(), &fd));
    void *got = weir_guest.same_process ? want
                                        : mmap(want, grant->bytes, PROT_READ | PROT_WRITE,
                                               MAP_SHARED | MAP_FIXED, fd, (off_t)grant->fd_offset);
    close(fd);
    return got == want ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static void unmap_pinned(uint64_t base, uint64_t bytes)
{
    WEIR_GUEST_KEEP_ERRNO;
    if (!weir_guest.same_process && !weir_addresses_reclaim(base, bytes)) {
        weir_log_warn("guest: cannot take a pinned chunk's pages away");
    }
}

static void return_chunk(uint64_t id)
{
    CUresult result = weir_call_mem_return(weir_guest_channel(),
                                           &(struct weir_op_mem_return_in){.chunk = id}, NULL);
    if (result != CUDA_SUCCESS) {
        weir_log_warn("guest: a chunk was not taken back, result=%d", (int)result);
    }
}

static CUresult grant_chunk(const struct weir_mem_heap *heap, uint64_t bytes,
                            struct weir_op_mem_grant_out *ret_grant)
{
    struct weir_op_mem_grant_in in = {
        .c = heap->ctx->handle, .bytes = bytes, .kind = kinds[heap->kind].grant};
    WEIR_GUEST_LOCKED(&weir_mem_fd);
    CUresult result = weir_call_mem_grant(weir_guest_channel(), &in, ret_grant);
    if (result == CUDA_SUCCESS &&
        (!in_window(ret_grant->base, ret_grant->bytes) || ret_grant->bytes < bytes ||
         ret_grant->base % PINNED_GRAIN || ret_grant->bytes % PINNED_GRAIN)) {
        weir_log_error("guest: the host granted an impossible chunk");
        /* The failed grant's descriptor may still arrive, and would be taken for that of the next
         * grant. */
        result = CUDA_ERROR_DEVICE_UNAVAILABLE;
        weir_channel_kill(weir_guest_channel(), result);
    } else if (result == CUDA_SUCCESS && heap->kind != HEAP_DEVICE) {
        result = map_pinned(ret_grant);
        if (result == CUDA_SUCCESS && heap->kind >= HEAP_MANAGED) {
            result = weir_moves_add(ret_grant->chunk, ret_grant->base, ret_grant->bytes);
            if (result != CUDA_SUCCESS) {
                unmap_pinned(ret_grant->base, ret_grant->bytes);
            }
        }
        if (result != CUDA_SUCCESS) {
            return_chunk(ret_grant->chunk);
        }
    }
    return result;
}

static CUresult add_chunk_locked(struct weir_mem_heap *heap, uint64_t bytes)
{
    struct weir_op_mem_grant_out grant = {0};
    WEIR_TRY(grant_chunk(heap, bytes, &grant));
    struct weir_guest_chunk *chunk = calloc(1, sizeof *chunk);
    if (!chunk || !weir_guest_range_add(&heap->ranges, &chunk->region, grant.base, grant.bytes)) {
        free(chunk);
        return_chunk(grant.chunk);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    chunk->id = grant.chunk;
    WEIR_PUSH(heap->chunks, chunk);
    return CUDA_SUCCESS;
}

static void drop_chunk_locked(struct weir_mem_heap *heap, struct weir_guest_chunk *chunk)
{
    struct weir_guest_chunk **at = &heap->chunks;
    while (*at != chunk) {
        at = &(*at)->next;
    }
    *at = chunk->next;
    weir_guest_range_remove(&heap->ranges, &chunk->region);
    if (heap->kind != HEAP_DEVICE) {
        unmap_pinned(chunk->region.base, chunk->region.bytes);
    }
    if (heap->kind >= HEAP_MANAGED) {
        weir_moves_remove();
    }
    return_chunk(chunk->id);
    free(chunk);
}

/* Return empty chunks until `keep` of them are left. */
static bool trim_locked(struct weir_mem_heap *heap, unsigned int keep)
{
    bool dropped = false;
    for (struct weir_guest_chunk *chunk = heap->chunks; chunk;) {
        struct weir_guest_chunk *next = chunk->next;
        if (!chunk->region.used_bytes) {
            if (keep && chunk->region.bytes <= CHUNK_BYTES) {
                keep--;
            } else {
                drop_chunk_locked(heap, chunk);
                dropped = true;
            }
        }
        chunk = next;
    }
    return dropped;
}

static CUresult grow_locked(struct weir_mem_heap *heap, uint64_t bytes)
{
    uint64_t exact = (bytes + ROUND_BYTES - 1) & ~(ROUND_BYTES - 1);
    uint64_t chunk_bytes = kinds[heap->kind].chunk_bytes;
    uint64_t want = bytes > chunk_bytes / 2 ? exact : chunk_bytes;
    CUresult result = add_chunk_locked(heap, want);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && trim_locked(heap, 0)) {
        result = add_chunk_locked(heap, want);
    }
    if (result == CUDA_ERROR_OUT_OF_MEMORY && want > exact) {
        result = add_chunk_locked(heap, exact);
    }
    return result;
}

static CUresult take_block(struct weir_mem_heap *heap, uint64_t bytes, struct weir_mem *mem)
{
    WEIR_GUEST_LOCKED(&heap->lock);
    uint64_t before = heap->ranges.free_bytes;
    CUresult result = CUDA_SUCCESS;
    struct weir_range_block *block = weir_guest_range_take(&heap->ranges, bytes);
    if (!block) {
        result = grow_locked(heap, bytes);
        block = result == CUDA_SUCCESS ? weir_guest_range_take(&heap->ranges, bytes) : NULL;
    }
    count_free(heap, before);
    if (block) {
        mem->owner = block;
        mem->base = mem->device_base = block->base;
        mem->heap_epoch = heap->epoch;
    }
    return block ? CUDA_SUCCESS : result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
}

static enum heap_kind heap_kind(const struct weir_mem *mem)
{
    return mem->kind == WEIR_MEM_DEVICE    ? HEAP_DEVICE
           : !mem->moves                   ? HEAP_PINNED
           : mem->bytes < WEIR_MOVES_BLOCK ? HEAP_MANAGED_SMALL
                                           : HEAP_MANAGED;
}

static void give_block(const struct weir_mem *mem)
{
    struct weir_mem_heap *heap = mem->ctx->heaps[heap_kind(mem)];
    struct weir_range_block *block = mem->owner;
    WEIR_GUEST_LOCKED(&heap->lock);
    if (heap->epoch == mem->heap_epoch) {
        uint64_t before = heap->ranges.free_bytes;
        const struct weir_range_region *region = block->region;
        weir_guest_range_give(&heap->ranges, block);
        if (!region->used_bytes) {
            trim_locked(heap, 1);
        }
        count_free(heap, before);
    }
}

/* ---------------------------------------------------------------- allocations */

/* Allocate ordinary memory for a remote session's "pinned" memory; copies treat it as pageable. */
static CUresult alloc_plain(struct weir_mem *mem)
{
    WEIR_GUEST_KEEP_ERRNO;
    void *at = mmap(NULL, mem->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    WEIR_FAIL_IF(at == MAP_FAILED, CUDA_ERROR_OUT_OF_MEMORY);
    mem->kind = WEIR_MEM_HOST;
    mem->base = mem->device_base = (uint64_t)(uintptr_t)at;
    return CUDA_SUCCESS;
}

static void free_plain(const struct weir_mem *mem)
{
    WEIR_GUEST_KEEP_ERRNO;
    munmap((void *)(uintptr_t)mem->base, mem->bytes);
}

static CUresult alloc_in_heap(struct weir_mem *mem)
{
    struct weir_mem_heap *heap = heap_of(mem->ctx, heap_kind(mem));
    WEIR_FAIL_IF(!heap, CUDA_ERROR_OUT_OF_MEMORY);
    return take_block(heap, mem->bytes, mem);
}

/* Allocate a block. Managed memory gets room on the device, too, if possible. */
static CUresult alloc_block(struct weir_mem *mem)
{
    if (mem->kind == WEIR_MEM_MANAGED && weir_moves_begin()) {
        mem->moves = true;
        if (alloc_in_heap(mem) == CUDA_SUCCESS) {
            return CUDA_SUCCESS;
        }
        mem->moves = false;
    }
    return alloc_in_heap(mem);
}

/* Give back the empty chunks that lie on the device. @return was there one? */
static bool trim_context(struct weir_guest_ctx *ctx)
{
    bool any = false;
    for (int kind = 0; kind < WEIR_MEM_HEAPS; kind++) {
        struct weir_mem_heap *heap = ctx->heaps[kind];
        if (heap && kind != HEAP_PINNED) {
            weir_lock_acquire(&heap->lock);
            uint64_t before = heap->ranges.free_bytes;
            any |= trim_locked(heap, 0);
            count_free(heap, before);
            weir_lock_release(&heap->lock);
        }
    }
    return any;
}

CUresult weir_mem_alloc(struct weir_guest_ctx *ctx, enum weir_mem_kind kind, uint64_t bytes,
                        unsigned int flags, struct weir_pool *pool, struct weir_mem *ret_mem)
{
    struct weir_mem mem = {.bytes = bytes,
                           .kind = kind,
                           .flags = flags,
                           .ctx = ctx,
                           .device = ctx->device,
                           .pool = pool};
    WEIR_FAIL_IF(!bytes, CUDA_ERROR_INVALID_VALUE);
    WEIR_FAIL_IF(bytes > weir_guest.window_bytes, CUDA_ERROR_OUT_OF_MEMORY);
    mem.buffer_id = weir_guest_objects_next_id();
    bool plain = kind == WEIR_MEM_PINNED && weir_guest.channel.remote;
    CUresult result = plain ? alloc_plain(&mem) : alloc_block(&mem);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && kind == WEIR_MEM_DEVICE &&
        (weir_guest.tell.pools_give_back(true) || trim_context(ctx))) {
        result = alloc_block(&mem);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!weir_mem_insert(&mem)) {
        weir_mem_release(&mem);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *ret_mem = mem;
    return CUDA_SUCCESS;
}

void weir_mem_release(const struct weir_mem *mem)
{
    switch (mem->kind) {
    case WEIR_MEM_DEVICE:
    case WEIR_MEM_PINNED:
    case WEIR_MEM_MANAGED:
        if (mem->placed) { /* the next allocation there has not been placed */
            weir_moves_place(mem->base, mem->bytes, WEIR_MANAGED_ANYWHERE);
        }
        give_block(mem);
        break;
    case WEIR_MEM_REGISTERED:
        weir_register_undo(mem);
        break;
    case WEIR_MEM_HOST:
        free_plain(mem);
        break;
    case WEIR_MEM_IMPORTED:
        (void)weir_call_ipc_close(
            weir_guest_channel(),
            &(struct weir_op_ipc_close_in){.reference = (uintptr_t)mem->owner}, NULL);
        break;
    case WEIR_MEM_MODULE:
    case WEIR_MEM_MAPPED:
        break;
    }
}

void weir_mem_trim(void)
{
    struct weir_guest_ctx *ctx;
    if (weir_ctx_current(&ctx) == CUDA_SUCCESS) {
        (void)trim_context(ctx);
    }
}

void weir_mem_make_room(void)
{
    (void)weir_guest.tell.pools_give_back(true);
    weir_mem_trim();
}

/* ---------------------------------------------------------------- the end of a context */

static bool is_of_context(const struct weir_mem *mem, void *ctx)
{
    return mem->ctx == ctx;
}

static void empty_heap(struct weir_mem_heap *heap, bool tell_host)
{
    if (!heap) {
        return;
    }
    WEIR_GUEST_LOCKED(&heap->lock);
    uint64_t before = heap->ranges.free_bytes;
    while (heap->chunks) {
        struct weir_guest_chunk *chunk = heap->chunks;
        if (tell_host) {
            drop_chunk_locked(heap, chunk);
        } else {
            heap->chunks = chunk->next;
            weir_guest_range_remove(&heap->ranges, &chunk->region);
            free(chunk);
        }
    }
    count_free(heap, before);
    weir_guest_range_finish(&heap->ranges);
    heap->epoch++;
}

static void drop_of_context(const struct weir_mem *mem)
{
    if (mem->pool) {
        weir_guest.tell.pool_forget(mem);
    }
    weir_mem_release(mem);
}

void weir_mem_context_gone(struct weir_guest_ctx *ctx)
{
    weir_mem_remove_if(is_of_context, drop_of_context, ctx);
    for (int kind = 0; kind < WEIR_MEM_HEAPS; kind++) {
        empty_heap(ctx->heaps[kind], true);
    }
}

static bool is_any(const struct weir_mem *mem, void *user)
{
    (void)mem;
    (void)user;
    return true;
}

static void drop_entry(const struct weir_mem *mem)
{
    (void)mem;
}

static void finish_context(weir_handle handle, void *object, void *user)
{
    (void)handle;
    (void)user;
    struct weir_guest_ctx *ctx = object;
    for (int kind = 0; kind < WEIR_MEM_HEAPS; kind++) {
        empty_heap(ctx->heaps[kind], false);
        free(ctx->heaps[kind]);
        ctx->heaps[kind] = NULL;
    }
}

void weir_mem_finish(void)
{
    weir_mem_remove_if(is_any, drop_entry, NULL);
    if (weir_guest.objects.tables[WEIR_KIND_CONTEXT]) {
        weir_id_table_visit(weir_guest.objects.tables[WEIR_KIND_CONTEXT], finish_context, NULL);
    }
    memset(cached_bytes, 0, sizeof cached_bytes);
    weir_moves_finish();
}
