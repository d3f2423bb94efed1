/*
 * Linear copies. If the GPU can reach both sides, a copy is one posted record. If one side is
 * pageable, it goes in pieces through the staging arena, several at a time. If both are pageable,
 * the guest copies its own memory, in the stream's order.
 */
#include "guest_lib/callback.h"
#include "guest_lib/memory.h"
#include "guest_lib/register.h"
#include "guest_lib/vmm.h"
#include "proto/guest_calls.h"
#include <string.h>

#define PIECE_MIN_BYTES (256ull << 10)
#define PIECE_MAX_BYTES (4ull << 20)
#define DEPTH           4 /* how many pieces from the GPU may be pending at once */

CUresult weir_copy_classify(uint64_t address, uint64_t bytes, struct weir_guest_copy_side *ret_side)
{
    *ret_side = (struct weir_guest_copy_side){.kind = WEIR_COPY_PAGEABLE, .address = address};
    struct weir_mem mem;
    if (!weir_mem_find(address, &mem)) {
        bool in_window = address >= weir_guest.window_base &&
                         address - weir_guest.window_base < weir_guest.window_bytes;
        return !address || (in_window && !weir_guest.same_process) ||
                       weir_guest_vmm_is_reserved(address)
                   ? CUDA_ERROR_INVALID_VALUE
                   : CUDA_SUCCESS;
    }
    WEIR_FAIL_IF(!weir_mem_reaches(&mem, address, bytes), CUDA_ERROR_INVALID_VALUE);
    if (mem.kind == WEIR_MEM_REGISTERED && !weir_guest.channel.remote) {
        bool shared = weir_register_shared(&mem, address, bytes, &ret_side->address);
        ret_side->kind = shared ? WEIR_COPY_GPU : WEIR_COPY_PAGEABLE;
        ret_side->address = shared ? ret_side->address : address;
        ret_side->registered = !shared;
        return CUDA_SUCCESS;
    }
    if (weir_mem_gpu_visible(&mem)) {
        ret_side->kind = WEIR_COPY_GPU;
        ret_side->address = mem.device_base + (address - mem.base);
        ret_side->on_device = weir_mem_on_device(&mem);
    }
    return CUDA_SUCCESS;
}

CUresult weir_copy_post(uint64_t dst, uint64_t src, uint64_t bytes, uint64_t rest,
                        struct weir_guest_stream *stream, uint32_t flags)
{
    struct weir_op_copy_in in = {
        .dst = dst, .src = src, .bytes = bytes, .rest = rest, .s = stream->handle, .flags = flags};
    weir_guest_stream_work_begin(stream);
    CUresult result = weir_guest_capturing() ? weir_call_copy(weir_guest_channel(), &in, NULL)
                                             : weir_post_copy(weir_guest_channel(), &in);
    return weir_guest_stream_work_end(stream, result);
}

static CUresult post_copy(uint64_t dst, uint64_t src, uint64_t bytes,
                          struct weir_guest_stream *stream, uint32_t flags)
{
    return weir_copy_post(dst, src, bytes, 0, stream, flags);
}

/* A large copy is divided so that at least four pieces are pending together; a small copy is one
 * piece. */
static uint64_t piece_bytes(uint64_t bytes)
{
    uint64_t piece = bytes / DEPTH & ~(PIECE_MIN_BYTES - 1);
    piece = WEIR_MAX(piece, PIECE_MIN_BYTES);
    piece = WEIR_MIN(piece, PIECE_MAX_BYTES);
    uint64_t most = weir_staging_max_bytes() / DEPTH;
    return WEIR_MIN(piece, most);
}

static CUresult copy_in(uint64_t dst, const uint8_t *src, uint64_t bytes,
                        struct weir_guest_stream *stream)
{
    uint64_t piece = piece_bytes(bytes);
    CUresult result = CUDA_SUCCESS;
    for (uint64_t done = 0; done < bytes && result == CUDA_SUCCESS; done += piece) {
        uint64_t n = bytes - done < piece ? bytes - done : piece;
        uint64_t offset;
        result = weir_staging_take(n, &offset);
        if (result != CUDA_SUCCESS) {
            break;
        }
        result = weir_staging_write(offset, src + done, n);
        WEIR_THEN(result, weir_copy_post(dst + done, offset, n, bytes - done - n, stream,
                                         WEIR_COPY_SRC_IN_ARENA));
        struct weir_stream_point point = weir_guest_stream_here(stream);
        weir_staging_free_after(offset, &point);
    }
    return result;
}

/* A pending piece from the GPU. */
struct incoming {
    uint64_t offset;
    uint64_t bytes;
    uint8_t *dst;
    struct weir_stream_point point;
};

static CUresult receive_piece(const struct incoming *piece)
{
    CUresult result = weir_guest_stream_wait(&piece->point);
    WEIR_THEN(result, weir_staging_read(piece->offset, piece->dst, piece->bytes));
    weir_staging_free_after(piece->offset, &piece->point);
    return result;
}

/* Post one piece, whose staging block was taken already. */
static CUresult send_for_piece(struct incoming *piece, uint64_t src, uint64_t rest,
                               struct weir_guest_stream *stream)
{
    CUresult result =
        weir_copy_post(piece->offset, src, piece->bytes, rest, stream, WEIR_COPY_DST_IN_ARENA);
    piece->point = weir_guest_stream_here(stream);
    WEIR_THEN(result, weir_guest_stream_mark(&piece->point));
    if (result != CUDA_SUCCESS) {
        weir_staging_free_after(piece->offset, &piece->point);
    }
    return result;
}

/*
 * Copy from the GPU. Only this thread can free pending pieces, so it must not wait for more room
 * while it has some: it receives the oldest instead.
 */
static CUresult copy_out(uint8_t *dst, uint64_t src, uint64_t bytes,
                         struct weir_guest_stream *stream)
{
    struct incoming ring[DEPTH];
    uint64_t piece = piece_bytes(bytes);
    uint64_t sent = 0;
    unsigned int first = 0, count = 0;
    CUresult result = CUDA_SUCCESS;
    while (count || (sent < bytes && result == CUDA_SUCCESS)) {
        struct incoming *next = &ring[(first + count) % DEPTH];
        if (sent < bytes && count < DEPTH && result == CUDA_SUCCESS) {
            uint64_t n = bytes - sent < piece ? bytes - sent : piece;
            bool room = weir_staging_try(n, &next->offset);
            if (!room && !count) {
                result = weir_staging_take(n, &next->offset);
                room = result == CUDA_SUCCESS;
            }
            if (room) {
                next->bytes = n;
                next->dst = dst + sent;
                result = send_for_piece(next, src + sent, bytes - sent - n, stream);
                count += result == CUDA_SUCCESS;
                sent += n;
                continue;
            }
        }
        if (count) {
            CUresult received = receive_piece(&ring[first]);
            result = result == CUDA_SUCCESS ? received : result;
            first = (first + 1) % DEPTH;
            count--;
        }
    }
    return result;
}

/* Let the graph code handle a captured copy; see stream.h. True: it did, and *ret_result is the
 * result. */
static bool captured(const struct weir_guest_copy_side *dst, const struct weir_guest_copy_side *src,
                     uint64_t bytes, struct weir_guest_stream *stream, CUresult *ret_result)
{
    bool to_gpu = src->kind == WEIR_COPY_PAGEABLE;
    WEIR_FAIL_IF(!weir_guest_capturing() || !weir_guest.capture_copy, false);
    struct weir_stream_capture_copy copy = {
        .to_gpu = to_gpu,
        .host = (uint8_t *)(uintptr_t)(to_gpu ? src->address : dst->address),
        .row_bytes = bytes,
        .n_rows = 1,
        .n_slices = 1};
    struct weir_guest_copy_side block;
    WEIR_FAIL_IF(!weir_guest.capture_copy(stream, &copy, &block, ret_result), false);
    if (*ret_result == CUDA_SUCCESS) {
        uint32_t in_arena = to_gpu ? WEIR_COPY_SRC_IN_ARENA : WEIR_COPY_DST_IN_ARENA;
        *ret_result =
            post_copy(to_gpu ? dst->address : block.address, to_gpu ? block.address : src->address,
                      bytes, stream, block.kind == WEIR_COPY_PAGEABLE ? in_arena : 0);
    }
    return true;
}

static CUresult copy_in_program(const struct weir_guest_copy_side *dst,
                                const struct weir_guest_copy_side *src, uint64_t bytes,
                                struct weir_guest_stream *stream)
{
    WEIR_TRY(weir_guest_stream_synchronize(stream));
    memmove((void *)(uintptr_t)dst->address, (const void *)(uintptr_t)src->address, bytes);
    return CUDA_SUCCESS;
}

CUresult weir_copy_source_ready(struct weir_guest_stream *stream, bool sync)
{
    if (!(sync || weir_guest.channel.remote) || !weir_callbacks_pending()) {
        return CUDA_SUCCESS;
    }
    return weir_guest_stream_synchronize(stream);
}

/* Is all work of the stream known to be done, and all work that the stream waits for implicitly? */
static bool is_idle(struct weir_guest_stream *stream)
{
    struct weir_guest_stream *legacy = __atomic_load_n(&stream->ctx->legacy, __ATOMIC_ACQUIRE);
    struct weir_stream_point here = weir_guest_stream_here(stream);
    bool idle = weir_guest_stream_passed(&here);
    if (idle && legacy && !(stream->flags & CU_STREAM_NON_BLOCKING)) {
        here = weir_guest_stream_here(legacy);
        idle = weir_guest_stream_passed(&here);
    }
    return idle;
}

/* Must the program's bytes wait for their turn in the stream? */
static bool is_ordered(const struct weir_guest_copy_side *dst,
                       const struct weir_guest_copy_side *src, struct weir_guest_stream *stream,
                       bool sync)
{
    return !sync && (dst->registered || (src->registered && !is_idle(stream)));
}

CUresult weir_copy_linear(const struct weir_guest_copy_side *dst,
                          const struct weir_guest_copy_side *src, uint64_t bytes,
                          struct weir_guest_stream *stream, bool sync)
{
    if (!bytes) {
        return sync ? weir_guest_stream_synchronize(stream) : weir_guest_report();
    }
    bool from_program = src->kind == WEIR_COPY_PAGEABLE;
    bool to_program = dst->kind == WEIR_COPY_PAGEABLE;
    CUresult result;
    bool both = src->registered && dst->registered && !weir_guest_capturing();
    if (from_program && to_program && (sync || !both)) {
        return copy_in_program(dst, src, bytes, stream);
    }
    if (from_program != to_program && captured(dst, src, bytes, stream, &result)) {
        return result;
    }
    if (is_ordered(dst, src, stream, sync)) {
        return weir_copy_ordered(dst, src, bytes, stream);
    }
    if (from_program) {
        result = weir_copy_source_ready(stream, sync);
        result =
            result != CUDA_SUCCESS
                ? result
                : copy_in(dst->address, (const uint8_t *)(uintptr_t)src->address, bytes, stream);
    } else if (to_program) {
        result = copy_out((uint8_t *)(uintptr_t)dst->address, src->address, bytes, stream);
    } else {
        result = post_copy(dst->address, src->address, bytes, stream, 0);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    bool on_device = dst->on_device && src->on_device;
    return sync && !on_device ? weir_guest_stream_synchronize(stream) : weir_guest_report();
}
