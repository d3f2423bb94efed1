/*
 * Copies and sets. Every form becomes the copy of a 3D box between two addresses.
 *
 * The addresses show the direction. A range that begins in the address space (space.c) must lie
 * there entirely; all others are pageable memory. As on a GPU, an asynchronous copy keeps a private
 * copy of a small pageable source, but waits for a large one, and for any pageable destination.
 */
#include "proto/structs.h"
#include "softgpu/driver/forward.h"
#include "softgpu/memory.h"

#include <stdlib.h>
#include <string.h>

#define STAGE_BYTES 65536u

/* Is [base, base + bytes) memory that the device may access, pageable memory, or neither? */
enum place { PLACE_BAD, PLACE_DEVICE, PLACE_HOST };

static enum place place_of(uint64_t base, uint64_t bytes, bool must_be_device)
{
    const struct weir_soft_alloc *alloc = weir_soft_space_find(base);
    if (base == 0 || base + bytes < base) {
        return PLACE_BAD;
    }
    if (!alloc) {
        return must_be_device || weir_soft_space_in_arena(base) ? PLACE_BAD : PLACE_HOST;
    }
    bool fits = bytes <= alloc->bytes - (base - alloc->base);
    if (alloc->kind == WEIR_SOFT_ALLOC_REGISTERED && !fits && !must_be_device) {
        return PLACE_HOST; /* only the beginning of this host buffer is registered */
    }
    if (!fits) { /* neighbouring mappings count as one */
        return weir_soft_memory_covers(base, bytes, WEIR_SOFT_READ) ? PLACE_DEVICE : PLACE_BAD;
    }
    /* The memory becomes accessible once its node has run. */
    bool waits = alloc->kind == WEIR_SOFT_ALLOC_GRAPH;
    return alloc->accessible || waits ? PLACE_DEVICE : PLACE_BAD;
}

struct end {
    size_t x_bytes, y, z, lod;
    CUmemorytype type;
    uint64_t address; /* address of host, device or unified memory */
    CUarray array;
    size_t pitch, height;
};

struct resolved {
    uint64_t address, row_bytes, slice_bytes;
    struct weir_soft_array *array;
    bool pageable;
    bool mapped;
};

static bool is_mapped(uint64_t address)
{
    const struct weir_soft_alloc *alloc = weir_soft_space_find(address);
    return alloc && alloc->kind == WEIR_SOFT_ALLOC_MAPPED;
}

static CUresult resolve_array(const struct end *end, const CUDA_MEMCPY3D *asked,
                              struct resolved *out)
{
    struct weir_soft_array *array = weir_soft_object_find(WEIR_SOFT_ARRAY, end->array);
    WEIR_FAIL_IF(!array, CUDA_ERROR_INVALID_HANDLE);
    size_t row = array->row_bytes;
    if (end->lod != 0 || end->x_bytes > row || asked->WidthInBytes > row - end->x_bytes ||
        end->y > array->rows || asked->Height > array->rows - end->y || end->z > array->slices ||
        asked->Depth > array->slices - end->z) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *out = (struct resolved){.address = array->base + end->z * array->slice_bytes + end->y * row +
                                        end->x_bytes,
                             .row_bytes = row,
                             .slice_bytes = array->slice_bytes,
                             .array = array};
    return CUDA_SUCCESS;
}

static CUresult resolve_end(const struct end *end, const CUDA_MEMCPY3D *asked, struct resolved *out)
{
    if (end->type == CU_MEMORYTYPE_ARRAY) {
        return resolve_array(end, asked, out);
    }
    if (end->type != CU_MEMORYTYPE_HOST && end->type != CU_MEMORYTYPE_DEVICE &&
        end->type != CU_MEMORYTYPE_UNIFIED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    uint64_t row = end->pitch != 0 ? end->pitch : asked->WidthInBytes + end->x_bytes;
    uint64_t height = end->height != 0 ? end->height : asked->Height + end->y;
    if (asked->Height > 1 &&
        (row < asked->WidthInBytes || row - asked->WidthInBytes < end->x_bytes)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    WEIR_FAIL_IF(asked->Depth > 1 && (height < asked->Height || height - asked->Height < end->y),
                 CUDA_ERROR_INVALID_VALUE);
    uint64_t slice, offset, last, part;
    if (__builtin_mul_overflow(row, height, &slice) ||
        __builtin_mul_overflow(slice, (uint64_t)end->z, &offset) ||
        __builtin_mul_overflow(row, (uint64_t)end->y, &part) ||
        __builtin_add_overflow(offset, part, &offset) ||
        __builtin_add_overflow(offset, (uint64_t)end->x_bytes, &offset) ||
        __builtin_mul_overflow(slice, (uint64_t)(asked->Depth - 1), &last) ||
        __builtin_mul_overflow(row, (uint64_t)(asked->Height - 1), &part) ||
        __builtin_add_overflow(last, part, &last) ||
        __builtin_add_overflow(last, (uint64_t)asked->WidthInBytes, &last)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    uint64_t base = end->address + offset;
    enum place place = place_of(base, last, end->type == CU_MEMORYTYPE_DEVICE);
    WEIR_FAIL_IF(place == PLACE_BAD, CUDA_ERROR_INVALID_VALUE);
    *out = (struct resolved){.address = base,
                             .row_bytes = row,
                             .slice_bytes = slice,
                             .pageable = place == PLACE_HOST,
                             .mapped = is_mapped(base)};
    return CUDA_SUCCESS;
}

static uint64_t end_address(CUmemorytype type, const void *host, CUdeviceptr device)
{
    return type == CU_MEMORYTYPE_HOST ? (uint64_t)(uintptr_t)host : (uint64_t)device;
}

CUresult weir_soft_copy_resolve(const CUDA_MEMCPY3D *asked, struct weir_soft_ctx *ctx,
                                struct weir_soft_op **ret_op, bool *ret_host_src,
                                bool *ret_host_dst)
{
    struct end src = {
        asked->srcXInBytes,   asked->srcY,
        asked->srcZ,          asked->srcLOD,
        asked->srcMemoryType, end_address(asked->srcMemoryType, asked->srcHost, asked->srcDevice),
        asked->srcArray,      asked->srcPitch,
        asked->srcHeight};
    struct end dst = {
        asked->dstXInBytes,   asked->dstY,
        asked->dstZ,          asked->dstLOD,
        asked->dstMemoryType, end_address(asked->dstMemoryType, asked->dstHost, asked->dstDevice),
        asked->dstArray,      asked->dstPitch,
        asked->dstHeight};
    struct resolved from = {0}, to = {0};
    bool nothing = asked->WidthInBytes == 0 || asked->Height == 0 || asked->Depth == 0;
    if (!nothing) {
        WEIR_TRY(resolve_end(&src, asked, &from));
        WEIR_TRY(resolve_end(&dst, asked, &to));
    }
    struct weir_soft_op *op = weir_soft_op_new(WEIR_SOFT_OP_COPY, ctx);
    WEIR_FAIL_IF(!op, CUDA_ERROR_OUT_OF_MEMORY);
    op->copy.asked = *asked;
    op->copy.arrays[0] = weir_soft_object_ref(from.array);
    op->copy.arrays[1] = weir_soft_object_ref(to.array);
    op->copy.mapped[0] = from.mapped;
    op->copy.mapped[1] = to.mapped;
    op->copy.box = (struct weir_soft_copy){.src = from.address,
                                           .dst = to.address,
                                           .src_row_bytes = from.row_bytes,
                                           .src_slice_bytes = from.slice_bytes,
                                           .dst_row_bytes = to.row_bytes,
                                           .dst_slice_bytes = to.slice_bytes,
                                           .width_bytes = asked->WidthInBytes,
                                           .height = asked->Height,
                                           .depth = asked->Depth};
    *ret_op = op;
    *ret_host_src = from.pageable;
    *ret_host_dst = to.pageable;
    return CUDA_SUCCESS;
}

/* Keep a packed copy of a small pageable source in the operation. */
static bool stage(struct weir_soft_op *op)
{
    struct weir_soft_copy *box = &op->copy.box;
    uint64_t bytes = box->width_bytes * box->height * box->depth;
    if (bytes > STAGE_BYTES || bytes == 0) {
        return false;
    }
    void *copy = malloc(bytes);
    WEIR_FAIL_IF(!copy, false);
    struct weir_soft_copy in = *box;
    in.dst = (uint64_t)(uintptr_t)copy;
    in.dst_row_bytes = box->width_bytes;
    in.dst_slice_bytes = box->width_bytes * box->height;
    weir_soft_box_copy(&in);
    op->copy.staged = copy;
    box->src_row_bytes = in.dst_row_bytes;
    box->src_slice_bytes = in.dst_slice_bytes;
    return true;
}

/* Queue a copy in a stream that has been looked up; the lock is held. */
static CUresult copy_in(struct weir_soft_stream *stream, const CUDA_MEMCPY3D *asked, bool wait)
{
    struct weir_soft_op *op;
    bool host_src, host_dst;
    WEIR_TRY(weir_soft_copy_resolve(asked, stream->object.ctx, &op, &host_src, &host_dst));
    if (stream->capture) {
        if (wait) {
            weir_soft_op_put(op);
            stream->capture->invalidated = true;
            return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
        return weir_soft_stream_submit(stream, op);
    }
    bool staged = host_src && !host_dst && !wait && stage(op);
    WEIR_TRY(weir_soft_stream_submit(stream, op));
    if (wait || host_dst || (host_src && !staged)) {
        return weir_soft_stream_sync(stream);
    }
    return CUDA_SUCCESS;
}

CUresult weir_soft_copy_3d(const CUDA_MEMCPY3D *asked, CUstream handle, bool wait)
{
    CUresult result;
    {
        WEIR_SOFT_LOCKED();
        struct weir_soft_stream *stream;
        WEIR_TRY(weir_soft_stream_find(handle, &stream));
        result = copy_in(stream, asked, wait);
    }
    if (wait) {
        weir_soft_print_flush();
    }
    return result;
}

static CUresult copy_1d(uint64_t dst, CUmemorytype dst_type, uint64_t src, CUmemorytype src_type,
                        size_t bytes, CUstream stream, bool wait)
{
    CUDA_MEMCPY3D asked = {.srcMemoryType = src_type,
                           .srcHost = (const void *)(uintptr_t)src,
                           .srcDevice = src,
                           .dstMemoryType = dst_type,
                           .dstHost = (void *)(uintptr_t)dst,
                           .dstDevice = dst,
                           .WidthInBytes = bytes,
                           .Height = 1,
                           .Depth = 1};
    return weir_soft_copy_3d(&asked, stream, wait);
}

/* A copy without host memory on either side is asynchronous to the program even without "Async". */
static bool waits(bool wait, CUmemorytype dst, CUmemorytype src)
{
    bool memory = dst == CU_MEMORYTYPE_HOST || src == CU_MEMORYTYPE_HOST;
    return wait && (memory || dst == CU_MEMORYTYPE_UNIFIED || src == CU_MEMORYTYPE_UNIFIED);
}

CUresult weir_soft_copy(uint64_t dst, CUmemorytype dst_type, uint64_t src, CUmemorytype src_type,
                        size_t bytes, CUstream stream, bool wait)
{
    return copy_1d(dst, dst_type, src, src_type, bytes, stream, waits(wait, dst_type, src_type));
}

static CUresult check_contexts(CUcontext a, CUcontext b)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_ctx *ctx;
    WEIR_TRY(weir_soft_ctx_find(a, &ctx));
    return weir_soft_ctx_find(b, &ctx);
}

/* Without a stream, the call waits: later work on either device must come after the copy, and
 * streams of two contexts have no order. */
CUresult weir_soft_copy_peer(CUdeviceptr dst, CUcontext dst_ctx, CUdeviceptr src, CUcontext src_ctx,
                             size_t bytes, CUstream stream, bool wait)
{
    WEIR_TRY(check_contexts(dst_ctx, src_ctx));
    return copy_1d(dst, CU_MEMORYTYPE_DEVICE, src, CU_MEMORYTYPE_DEVICE, bytes, stream, wait);
}

/* ------------------------------------------------------------------ arrays, one row */

/* @param at offset in an array, or an address. */
CUresult weir_soft_copy_row(CUmemorytype dst_type, CUarray dst_array, uint64_t dst_at,
                            CUmemorytype src_type, CUarray src_array, uint64_t src_at, size_t bytes,
                            CUstream stream, bool wait)
{
    CUDA_MEMCPY3D asked = {.srcMemoryType = src_type,
                           .srcArray = src_array,
                           .srcXInBytes = src_array ? src_at : 0,
                           .srcHost = (const void *)(uintptr_t)src_at,
                           .srcDevice = src_at,
                           .dstMemoryType = dst_type,
                           .dstArray = dst_array,
                           .dstXInBytes = dst_array ? dst_at : 0,
                           .dstHost = (void *)(uintptr_t)dst_at,
                           .dstDevice = dst_at,
                           .WidthInBytes = bytes,
                           .Height = 1,
                           .Depth = 1};
    return weir_soft_copy_3d(&asked, stream, waits(wait, dst_type, src_type));
}

/* ------------------------------------------------------------------ 2D and 3D */

CUresult weir_soft_copy_3d_peer(const CUDA_MEMCPY3D_PEER *copy, CUstream stream, bool wait)
{
    const CUDA_MEMCPY3D asked = weir_struct_memcpy_3d_of_peer(copy);
    return weir_soft_copy_3d(&asked, stream, wait);
}

/* ------------------------------------------------------------------ sets */

CUresult weir_soft_set_make(const CUDA_MEMSET_NODE_PARAMS *set, struct weir_soft_ctx *ctx,
                            struct weir_soft_op **ret_op)
{
    if ((set->elementSize != 1 && set->elementSize != 2 && set->elementSize != 4) ||
        set->dst % set->elementSize != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    uint64_t row, span = 0;
    WEIR_FAIL_IF(__builtin_mul_overflow((uint64_t)set->width, (uint64_t)set->elementSize, &row),
                 CUDA_ERROR_INVALID_VALUE);
    WEIR_FAIL_IF(set->height > 1 && (set->pitch < row || set->pitch % set->elementSize != 0),
                 CUDA_ERROR_INVALID_VALUE);
    if (set->height > 0 &&
        (__builtin_mul_overflow((uint64_t)set->pitch, (uint64_t)(set->height - 1), &span) ||
         __builtin_add_overflow(span, row, &span))) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    WEIR_FAIL_IF(span > 0 && place_of(set->dst, span, true) != PLACE_DEVICE,
                 CUDA_ERROR_INVALID_VALUE);
    struct weir_soft_op *op = weir_soft_op_new(WEIR_SOFT_OP_SET, ctx);
    WEIR_FAIL_IF(!op, CUDA_ERROR_OUT_OF_MEMORY);
    op->set = *set;
    *ret_op = op;
    return CUDA_SUCCESS;
}

CUresult weir_soft_memset(CUdeviceptr dst, size_t pitch, unsigned value, unsigned element_bytes,
                          size_t width, size_t height, CUstream handle, bool wait)
{
    (void)wait; /* every call fills memory in the stream's order */
    WEIR_SOFT_LOCKED();
    struct weir_soft_stream *stream;
    struct weir_soft_op *op;
    CUDA_MEMSET_NODE_PARAMS set = {.dst = dst,
                                   .pitch = pitch,
                                   .value = value,
                                   .elementSize = element_bytes,
                                   .width = width,
                                   .height = height};
    WEIR_TRY(weir_soft_stream_find(handle, &stream));
    WEIR_TRY(weir_soft_set_make(&set, stream->object.ctx, &op));
    return weir_soft_stream_submit(stream, op);
}
