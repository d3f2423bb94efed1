/*
 * Pitched and array copies. A box is width bytes by height rows by depth slices. The address of a
 * memory side includes the start offset. A pageable side is packed into (or unpacked from) a
 * staging block; a box that does not fit into one is halved.
 */
#include "guest_lib/memory.h"
#include "proto/guest_calls.h"
#include <string.h>

#define BOX_MAX_BYTES (4ull << 20) /* largest staged piece */

struct box {
    uint64_t width, height, depth;
};

static bool is_packed(const struct weir_guest_copy_side *side, const struct box *box)
{
    return side->kind != WEIR_COPY_ARRAY &&
           (box->height * box->depth == 1 || side->pitch == box->width) &&
           (box->depth == 1 || side->height == box->height);
}

static CUresult post_box(const struct weir_guest_copy_side *dst,
                         const struct weir_guest_copy_side *src, const struct box *box,
                         struct weir_guest_stream *stream)
{
    struct weir_op_copy_3d_in in = {.src_kind = weir_copy_side_on_wire(src),
                                    .dst_kind = weir_copy_side_on_wire(dst),
                                    .src_addr = src->address,
                                    .dst_addr = dst->address,
                                    .src_x = src->x,
                                    .src_y = src->y,
                                    .src_z = src->z,
                                    .src_lod = src->lod,
                                    .src_pitch = src->pitch,
                                    .src_height = src->height,
                                    .dst_x = dst->x,
                                    .dst_y = dst->y,
                                    .dst_z = dst->z,
                                    .dst_lod = dst->lod,
                                    .dst_pitch = dst->pitch,
                                    .dst_height = dst->height,
                                    .width = box->width,
                                    .height = box->height,
                                    .depth = box->depth,
                                    .s = stream->handle};
    weir_guest_stream_work_begin(stream);
    CUresult result = weir_guest_capturing() ? weir_call_copy_3d(weir_guest_channel(), &in, NULL)
                                             : weir_post_copy_3d(weir_guest_channel(), &in);
    return weir_guest_stream_work_end(stream, result);
}

static uint8_t *row_of(const struct weir_guest_copy_side *side, uint64_t y, uint64_t z)
{
    return (uint8_t *)(uintptr_t)(side->address + (z * side->height + y) * side->pitch);
}

/* Copy between the program's rows and packed rows in the arena. */
static CUresult move_rows(const struct weir_guest_copy_side *side, const struct box *box,
                          uint64_t offset, bool to_arena)
{
    CUresult result = CUDA_SUCCESS;
    for (uint64_t z = 0; z < box->depth && result == CUDA_SUCCESS; z++) {
        for (uint64_t y = 0; y < box->height && result == CUDA_SUCCESS; y++) {
            uint8_t *row = row_of(side, y, z);
            result = to_arena ? weir_staging_write(offset, row, box->width)
                              : weir_staging_read(offset, row, box->width);
            offset += box->width;
        }
    }
    return result;
}

static struct weir_guest_copy_side packed_side(uint64_t offset, const struct box *box)
{
    return (struct weir_guest_copy_side){
        .kind = WEIR_COPY_PAGEABLE, .address = offset, .pitch = box->width, .height = box->height};
}

static bool captured(const struct weir_guest_copy_side *dst, const struct weir_guest_copy_side *src,
                     const struct box *box, struct weir_guest_stream *stream, CUresult *ret_result)
{
    bool to_gpu = src->kind == WEIR_COPY_PAGEABLE;
    const struct weir_guest_copy_side *host = to_gpu ? src : dst;
    struct weir_guest_copy_side block;
    WEIR_FAIL_IF(!weir_guest_capturing() || !weir_guest.capture_copy, false);
    struct weir_stream_capture_copy copy = {.to_gpu = to_gpu,
                                            .host = row_of(host, 0, 0),
                                            .row_bytes = box->width,
                                            .host_pitch = host->pitch,
                                            .host_slice = host->pitch * host->height,
                                            .n_rows = box->height,
                                            .n_slices = box->depth};
    WEIR_FAIL_IF(!weir_guest.capture_copy(stream, &copy, &block, ret_result), false);
    if (*ret_result == CUDA_SUCCESS) {
        *ret_result = post_box(to_gpu ? dst : &block, to_gpu ? &block : src, box, stream);
    }
    return true;
}

/* Copy one piece through a staging block. */
static CUresult stage_box(const struct weir_guest_copy_side *dst,
                          const struct weir_guest_copy_side *src, const struct box *box,
                          struct weir_guest_stream *stream)
{
    bool to_gpu = src->kind == WEIR_COPY_PAGEABLE;
    uint64_t offset;
    WEIR_TRY(weir_staging_take(box->width * box->height * box->depth, &offset));
    struct weir_guest_copy_side arena = packed_side(offset, box);
    CUresult result;
    if (to_gpu) {
        result = move_rows(src, box, offset, true);
        result = result == CUDA_SUCCESS ? post_box(dst, &arena, box, stream) : result;
    } else {
        result = post_box(&arena, src, box, stream);
    }
    struct weir_stream_point point = weir_guest_stream_here(stream);
    if (!to_gpu && result == CUDA_SUCCESS) {
        result = weir_guest_stream_wait(&point);
        result = result == CUDA_SUCCESS ? move_rows(dst, box, offset, false) : result;
    }
    weir_staging_free_after(offset, &point);
    return result;
}

static struct weir_guest_copy_side moved(const struct weir_guest_copy_side *side, uint64_t x,
                                         uint64_t y, uint64_t z)
{
    struct weir_guest_copy_side other = *side;
    if (side->kind == WEIR_COPY_ARRAY) {
        other.x += x;
        other.y += y;
        other.z += z;
    } else {
        other.address += (z * side->height + y) * side->pitch + x;
    }
    return other;
}

/* Halve the box until its pieces can be staged: the recursion is at most 64 levels deep. */
static CUresult cut_box(const struct weir_guest_copy_side *dst,
                        const struct weir_guest_copy_side *src, const struct box *box,
                        struct weir_guest_stream *stream)
{
    uint64_t max =
        weir_staging_max_bytes() < BOX_MAX_BYTES ? weir_staging_max_bytes() : BOX_MAX_BYTES;
    if (box->width * box->height * box->depth <= max) {
        return stage_box(dst, src, box, stream);
    }
    struct box first = *box, second = *box;
    uint64_t x = 0, y = 0, z = 0;
    if (box->depth > 1) {
        first.depth = z = box->depth / 2;
        second.depth -= z;
    } else if (box->height > 1) {
        first.height = y = box->height / 2;
        second.height -= y;
    } else {
        /* Cut at 16 bytes, a multiple of every array's element size. */
        first.width = x = (box->width / 2 + 15) & ~15ull;
        second.width -= x;
    }
    WEIR_TRY(cut_box(dst, src, &first, stream));
    struct weir_guest_copy_side dst2 = moved(dst, x, y, z);
    struct weir_guest_copy_side src2 = moved(src, x, y, z);
    return cut_box(&dst2, &src2, &second, stream);
}

static CUresult copy_in_program(const struct weir_guest_copy_side *dst,
                                const struct weir_guest_copy_side *src, const struct box *box,
                                struct weir_guest_stream *stream)
{
    CUresult result = weir_guest_stream_synchronize(stream);
    for (uint64_t z = 0; z < box->depth && result == CUDA_SUCCESS; z++) {
        for (uint64_t y = 0; y < box->height; y++) {
            memmove(row_of(dst, y, z), row_of(src, y, z), box->width);
        }
    }
    return result;
}

CUresult weir_copy_box(const struct weir_guest_copy_side *dst,
                       const struct weir_guest_copy_side *src, uint64_t width, uint64_t height,
                       uint64_t depth, struct weir_guest_stream *stream, bool sync)
{
    struct box box = {width, height, depth};
    uint64_t rows, bytes;
    if (__builtin_mul_overflow(height, depth, &rows) ||
        __builtin_mul_overflow(rows, width, &bytes)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!bytes || (is_packed(dst, &box) && is_packed(src, &box))) {
        return weir_copy_linear(dst, src, bytes, stream, sync);
    }
    bool from_program = src->kind == WEIR_COPY_PAGEABLE;
    bool to_program = dst->kind == WEIR_COPY_PAGEABLE;
    CUresult result;
    if (from_program && to_program) {
        return copy_in_program(dst, src, &box, stream);
    }
    if ((from_program || to_program) && captured(dst, src, &box, stream, &result)) {
        return result;
    }
    /* Natively the GPU reads registered memory when the stream gets there: wait for that. */
    WEIR_TRY(src->registered && !sync ? weir_guest_stream_synchronize(stream)
             : from_program           ? weir_copy_source_ready(stream, sync)
                                      : CUDA_SUCCESS);
    WEIR_TRY(from_program || to_program ? cut_box(dst, src, &box, stream)
                                        : post_box(dst, src, &box, stream));
    bool on_device = dst->on_device && src->on_device;
    return sync && !on_device ? weir_guest_stream_synchronize(stream) : weir_guest_report();
}
