/*
 * The staging arena: blocks of the segment's last part, through which pageable copies and images
 * travel.
 *
 * A thread takes a block, fills it, names it in a posted record, and returns it with the point in
 * its stream after which no work needs it. Points are checked when blocks are taken. So staging
 * needs no message of its own until the arena is full; then it marks the streams of the blocks and
 * waits for them.
 *
 * A block lies in one of the arena's parts, which the worker registers when they are first used
 * (proto/transport/segment.h); good fit takes from the smallest that has room.
 */
#include "guest_lib/memory.h"
#include "guest_lib/range.h"
#include "proto/guest_calls.h"
#include <stdlib.h>
#include <string.h>

#define GRAIN_BYTES  256ull
#define LOOK_AT      8  /* how many pending blocks are examined when there is room anyway */
#define MARK_AT_ONCE 16 /* how many streams are marked at once when there is no room */
#define NAP_NS       (20 * WEIR_NS_PER_US)

/* For remote sessions. One thread after the other copies, encrypts, sends, decrypts and copies a
 * message. Several small messages can be in different stages at once, a large one only in one. */
#define REMOTE_BYTES   (256u << 10)
#define REMOTE_AT_ONCE 64

struct flight {
    struct flight *next;
    struct weir_range_block *block;
    struct weir_stream_point point;
};

/* Guarded by lock. */
static struct {
    struct weir_lock lock;
    struct weir_range_heap heap;
    struct weir_range_region *regions; /* regions for the arena's parts */
    uint32_t n_regions;
    struct weir_range_block **by_offset; /* used blocks, indexed by offset / GRAIN_BYTES */
    struct flight *first;                /* list of pending blocks, oldest first */
    struct flight **last;
    struct flight *spare;
    uint64_t bytes;
} staging;

/* Add the last part first: of equally large parts, the one added last is used first. */
static bool add_regions(void)
{
    for (uint32_t i = staging.n_regions; i-- > 0;) {
        uint64_t start = weir_segment_part_start(i);
        uint64_t end = weir_segment_part_end(i, staging.bytes);
        if (!weir_guest_range_add(&staging.heap, &staging.regions[i], start, end - start)) {
            return false;
        }
    }
    return true;
}

CUresult weir_staging_init(uint64_t arena_bytes)
{
    staging.bytes = arena_bytes & ~(GRAIN_BYTES - 1);
    staging.heap.grain_bytes = GRAIN_BYTES;
    staging.last = &staging.first;
    WEIR_FAIL_IF(!staging.bytes, CUDA_ERROR_OUT_OF_MEMORY);
    staging.n_regions = weir_segment_part(staging.bytes - 1) + 1;
    staging.regions = calloc(staging.n_regions, sizeof *staging.regions);
    staging.by_offset = calloc(staging.bytes / GRAIN_BYTES + 1, sizeof(void *));
    return staging.regions && staging.by_offset && add_regions() ? CUDA_SUCCESS
                                                                 : CUDA_ERROR_OUT_OF_MEMORY;
}

static void free_flights(struct flight *flight)
{
    for (struct flight *first; (first = WEIR_POP(flight));) {
        free(first);
    }
}

void weir_staging_finish(void)
{
    free_flights(staging.first);
    free_flights(staging.spare);
    for (uint32_t i = 0; staging.regions && i < staging.n_regions; i++) {
        weir_guest_range_remove(&staging.heap, &staging.regions[i]);
    }
    weir_guest_range_finish(&staging.heap);
    free(staging.regions);
    free(staging.by_offset);
    memset(&staging, 0, sizeof staging);
}

uint64_t weir_staging_max_bytes(void)
{
    uint64_t quarter = staging.bytes / 4;
    return WEIR_MIN(quarter, WEIR_SEGMENT_PART_MAX_BYTES);
}

static void give_locked(struct weir_range_block *block)
{
    staging.by_offset[block->base / GRAIN_BYTES] = NULL;
    weir_guest_range_give(&staging.heap, block);
}

/* Free the blocks whose points have passed; examines no more than limit blocks. */
static void harvest_locked(unsigned int limit)
{
    for (struct flight **at = &staging.first; *at && limit; limit--) {
        struct flight *flight = *at;
        if (!weir_guest_stream_passed(&flight->point)) {
            at = &flight->next;
            continue;
        }
        *at = flight->next;
        if (staging.last == &flight->next) {
            staging.last = at;
        }
        give_locked(flight->block);
        WEIR_PUSH(staging.spare, flight);
    }
}

static struct weir_range_block *take_locked(uint64_t bytes)
{
    struct weir_range_block *block = weir_guest_range_take(&staging.heap, bytes);
    if (block) {
        staging.by_offset[block->base / GRAIN_BYTES] = block;
    }
    return block;
}

/* Mark the streams of the oldest blocks, to see when the blocks are free. */
static CUresult mark_oldest(struct weir_stream_point *ret_oldest)
{
    struct weir_stream_point points[MARK_AT_ONCE];
    unsigned int n = 0;
    weir_lock_acquire(&staging.lock);
    for (struct flight *flight = staging.first; flight && n < MARK_AT_ONCE; flight = flight->next) {
        points[n++] = flight->point;
    }
    weir_lock_release(&staging.lock);
    *ret_oldest = n ? points[0] : (struct weir_stream_point){0};
    CUresult result = CUDA_SUCCESS;
    for (unsigned int i = 0; i < n && result == CUDA_SUCCESS; i++) {
        result = weir_guest_stream_mark(&points[i]);
    }
    return result;
}

/* The arena is full. A stream may be stuck for long, so wait for any stream, not only for the
 * oldest block's. */
static CUresult wait_for_room(void)
{
    struct weir_stream_point oldest;
    WEIR_TRY(mark_oldest(&oldest));
    if (weir_guest.channel.remote) {
        return weir_guest_stream_wait(&oldest);
    }
    const struct weir_channel *channel = &weir_guest.channel;
    uint32_t error = __atomic_load_n(&channel->dead, __ATOMIC_ACQUIRE);
    error = error ? error : __atomic_load_n(&channel->header->sticky_error, __ATOMIC_ACQUIRE);
    if (!error && channel->transport->ops->peer_gone(channel->transport)) {
        weir_channel_kill(weir_guest_channel(), CUDA_ERROR_DEVICE_UNAVAILABLE);
        error = CUDA_ERROR_DEVICE_UNAVAILABLE;
    }
    uint32_t nobody = 0;
    weir_futex_wait(&nobody, 0, NAP_NS);
    return (CUresult)error;
}

bool weir_staging_try(uint64_t bytes, uint64_t *ret_offset)
{
    weir_lock_acquire(&staging.lock);
    harvest_locked(LOOK_AT);
    struct weir_range_block *block = take_locked(bytes);
    if (!block) {
        harvest_locked(~0u);
        block = take_locked(bytes);
    }
    weir_lock_release(&staging.lock);
    if (block) {
        *ret_offset = block->base;
    }
    return block != NULL;
}

CUresult weir_staging_take(uint64_t bytes, uint64_t *ret_offset)
{
    WEIR_FAIL_IF(!bytes || bytes > weir_staging_max_bytes(), CUDA_ERROR_OUT_OF_MEMORY);
    CUresult result = CUDA_SUCCESS;
    while (result == CUDA_SUCCESS && !weir_staging_try(bytes, ret_offset)) {
        result = wait_for_room();
    }
    return result;
}

void weir_staging_free(uint64_t offset)
{
    WEIR_GUEST_LOCKED(&staging.lock);
    struct weir_range_block *block = staging.by_offset[offset / GRAIN_BYTES];
    if (block) {
        give_locked(block);
    }
}

void weir_staging_free_after(uint64_t offset, const struct weir_stream_point *point)
{
    weir_lock_acquire(&staging.lock);
    struct flight *flight = staging.spare;
    if (flight) {
        staging.spare = flight->next;
    } else {
        flight = malloc(sizeof *flight);
    }
    if (flight) {
        *flight =
            (struct flight){.block = staging.by_offset[offset / GRAIN_BYTES], .point = *point};
        *staging.last = flight;
        staging.last = &flight->next;
    }
    weir_lock_release(&staging.lock);
    if (!flight) { /* no memory to remember the block: wait now */
        CUresult result = weir_guest_stream_wait(point);
        (void)result; /* after an error no work runs, so the block is free as well */
        weir_staging_free(offset);
    }
}

CUresult weir_staging_write(uint64_t offset, const void *data, uint64_t bytes)
{
    if (!weir_guest.channel.remote) {
        weir_parallel_copy(weir_guest.channel.arena + offset, data, bytes);
        return CUDA_SUCCESS;
    }
    const uint8_t *from = data;
    CUresult result = CUDA_SUCCESS;
    for (uint64_t done = 0; done < bytes && result == CUDA_SUCCESS;) {
        uint64_t piece = bytes - done < REMOTE_BYTES ? bytes - done : REMOTE_BYTES;
        struct weir_op_arena_write_in in = {.offset = offset + done, .bytes = piece};
        struct weir_channel_extra extra = {.bulk = from + done, .bulk_bytes = piece};
        result = weir_channel_call_extra(weir_guest_channel(), WEIR_OP_arena_write, &in, NULL,
                                         &extra, true);
        done += piece;
    }
    return result;
}

CUresult weir_staging_read(uint64_t offset, void *ret_data, uint64_t bytes)
{
    if (!weir_guest.channel.remote) {
        weir_parallel_copy(ret_data, weir_guest.channel.arena + offset, bytes);
        return CUDA_SUCCESS;
    }
    uint8_t *to = ret_data;
    CUresult result = CUDA_SUCCESS;
    for (uint64_t done = 0; done < bytes && result == CUDA_SUCCESS;) {
        struct weir_op_arena_read_in in[REMOTE_AT_ONCE];
        struct weir_channel_piece pieces[REMOTE_AT_ONCE];
        size_t n = 0;
        for (; n < REMOTE_AT_ONCE && done < bytes; n++) {
            uint64_t piece = bytes - done < REMOTE_BYTES ? bytes - done : REMOTE_BYTES;
            in[n] = (struct weir_op_arena_read_in){.offset = offset + done, .bytes = piece};
            pieces[n] =
                (struct weir_channel_piece){.in = &in[n], .ret_bulk = to + done, .bytes = piece};
            done += piece;
        }
        result = weir_channel_call_pieces(weir_guest_channel(), WEIR_OP_arena_read, pieces, n);
    }
    return result;
}
