/* Copies and fills: every address and extent is checked before the driver sees it. */
#include "host_backend/worker/device/order.h"
#include "host_backend/worker/memory/managed.h"
#include "host_backend/worker/memory/tenant_window.h"
#include "host_backend/worker/ops/ops.h"
#include "host_backend/worker/session/arrays.h"
#include "host_backend/worker/session/graph_holds.h"
#include "host_backend/worker/submit/submit.h"

#include <string.h>

/*
 * Copies between host and device go to the driver in pieces of this size, because a copy cannot be
 * stopped once it runs. So others wait for a piece, 0.6 ms of an H200's bus, and not for the whole
 * copy.
 */
#define PIECE_BYTES (UINT64_C(32) << 20)

/* Convert an arena offset to the driver's address. */
static CUresult place(struct weir_session *s, bool arena, uint64_t address, uint64_t bytes,
                      bool writes, CUdeviceptr *ret)
{
    if (!arena) {
        *ret = address;
        weir_managed_reached(s, address, bytes);
        return writes ? weir_session_check_write(s, address, bytes)
                      : weir_session_check_dptr(s, address, bytes);
    }
    return weir_session_arena_dptr(s, address, bytes, ret);
}

/* Is this host memory: pinned by Weir, or the guest's own and registered? */
static bool of_host(const struct weir_session *s, bool arena, uint64_t address)
{
    uint64_t base = weir_tenant_window_base(s->tenant), whole = weir_tenant_window_bytes(s->tenant);

    return arena || (address >= base + whole / 2 && address - base < whole) ||
           weir_session_registered(s, address);
}

static struct weir_gate_work work_of(bool to_host, bool from_host, uint64_t bytes)
{
    return (struct weir_gate_work){.class = to_host == from_host ? WEIR_SCHED_D2D
                                            : to_host            ? WEIR_SCHED_D2H
                                                                 : WEIR_SCHED_H2D,
                                   .bytes = bytes};
}

struct copy {
    CUdeviceptr dst, src;
    size_t bytes;
};

static CUresult call_copy(struct weir_session *s, CUstream at, const void *user)
{
    const struct copy *c = user;

    return s->driver->cuMemcpyAsync(c->dst, c->src, c->bytes, at);
}

/* A captured copy is not divided, since the program expects one node. */
static uint64_t piece_bytes(struct weir_session *s, struct weir_host_stream *stream,
                            enum weir_sched_class class, uint64_t bytes)
{
    bool whole = bytes <= PIECE_BYTES || class == WEIR_SCHED_D2D;

    return whole || weir_host_stream_capturing(s, stream) ? bytes : PIECE_BYTES;
}

static CUresult submit_copy(struct weir_session *s, struct weir_host_stream *stream,
                            const struct copy *whole, enum weir_sched_class class, uint64_t rest)
{
    uint64_t piece = piece_bytes(s, stream, class, whole->bytes);

    for (uint64_t done = 0; done < whole->bytes; done += piece) {
        uint64_t left = whole->bytes - done;
        struct copy copy = {whole->dst + done, whole->src + done, left < piece ? left : piece};
        struct weir_submission what = {.call = call_copy, .user = &copy};

        what.work = (struct weir_gate_work){.class = class, .bytes = copy.bytes};
        if (__builtin_add_overflow(left - copy.bytes, rest, &what.work.rest_bytes)) {
            what.work.rest_bytes = UINT64_MAX; /* the guest may send any number */
        }
        WEIR_TRY(weir_submit(s, stream, &what));
    }
    return CUDA_SUCCESS;
}

CUresult weir_host_copy(struct weir_session *s, const struct weir_op_copy_in *in)
{
    bool dst_in_arena = (in->flags & WEIR_COPY_DST_IN_ARENA) != 0;
    bool src_in_arena = (in->flags & WEIR_COPY_SRC_IN_ARENA) != 0;
    struct weir_host_stream *stream = weir_ops_stream(s, in->s);
    struct copy copy = {.bytes = in->bytes};

    WEIR_FAIL_IF(!stream, CUDA_ERROR_INVALID_HANDLE);
    if (in->bytes == 0) {
        return CUDA_SUCCESS;
    }
    WEIR_TRY(place(s, dst_in_arena, in->dst, in->bytes, true, &copy.dst));
    WEIR_TRY(place(s, src_in_arena, in->src, in->bytes, false, &copy.src));
    if (weir_host_stream_capturing(s, stream)) {
        const struct weir_managed_part parts[] = {{copy.src, in->bytes}, {copy.dst, in->bytes}};

        WEIR_TRY(weir_managed_in_node(s, parts, 2));
    }
    struct weir_gate_work work =
        work_of(of_host(s, dst_in_arena, in->dst), of_host(s, src_in_arena, in->src), in->bytes);
    return submit_copy(s, stream, &copy, work.class, in->rest);
}

/* The number of bytes from a side's address to the end of the copy; false on overflow. */
static bool extent(const struct weir_host_copy_side *side, uint64_t width, uint64_t height,
                   uint64_t depth, uint64_t *ret_bytes)
{
    uint64_t pitch = side->pitch != 0 ? side->pitch : side->x + width;
    uint64_t rows = side->height != 0 ? side->height : side->y + height;
    uint64_t row, bytes;

    WEIR_FAIL_IF(pitch < width || (depth > 1 && rows < height), false);
    return !__builtin_mul_overflow(side->z + depth - 1, rows, &row) &&
           !__builtin_add_overflow(row, side->y + height - 1, &row) &&
           !__builtin_mul_overflow(row, pitch, &bytes) &&
           !__builtin_add_overflow(bytes, side->x + width, ret_bytes);
}

static CUresult check_side(struct weir_session *s, const struct weir_host_copy_side *side,
                           uint64_t width, uint64_t height, uint64_t depth, bool writes,
                           CUmemorytype *ret_type, struct weir_managed_part *ret_part,
                           CUarray *ret_array)
{
    const uint64_t limit = UINT64_C(1) << 47;
    struct weir_object *array;

    if (side->x > limit || side->y > limit || side->z > limit || side->pitch > limit ||
        side->height > limit) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (side->kind == WEIR_SIDE_ARRAY) {
        array = weir_host_object_get(s, WEIR_KIND_ARRAY, side->addr);
        WEIR_FAIL_IF(!array, CUDA_ERROR_INVALID_HANDLE);
        *ret_type = CU_MEMORYTYPE_ARRAY;
        *ret_array = array->native; /* the driver checks the array's extents */
        return CUDA_SUCCESS;
    }
    WEIR_FAIL_IF(side->kind >= WEIR_SIDE_KIND_COUNT ||
                     !extent(side, width, height, depth, &ret_part->bytes),
                 CUDA_ERROR_INVALID_VALUE);
    *ret_type = CU_MEMORYTYPE_UNIFIED;
    return place(s, side->kind == WEIR_SIDE_ARENA, side->addr, ret_part->bytes, writes,
                 &ret_part->address);
}

CUresult weir_ops_copy_3d(struct weir_session *s, const struct weir_host_copy_side *src,
                          const struct weir_host_copy_side *dst, uint64_t width, uint64_t height,
                          uint64_t depth, bool in_node, CUDA_MEMCPY3D *ret_copy)
{
    const uint64_t limit = UINT64_C(1) << 47;
    struct weir_managed_part parts[2] = {0};

    if (width == 0 || height == 0 || depth == 0 || width > limit || height > limit ||
        depth > limit) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    memset(ret_copy, 0, sizeof *ret_copy);
    WEIR_TRY(check_side(s, src, width, height, depth, false, &ret_copy->srcMemoryType, &parts[0],
                        &ret_copy->srcArray));
    WEIR_TRY(check_side(s, dst, width, height, depth, true, &ret_copy->dstMemoryType, &parts[1],
                        &ret_copy->dstArray));
    if (in_node) {
        WEIR_TRY(weir_managed_in_node(s, parts, 2));
    }
    ret_copy->srcDevice = parts[0].address;
    ret_copy->dstDevice = parts[1].address;
    ret_copy->srcXInBytes = src->x;
    ret_copy->srcY = src->y;
    ret_copy->srcZ = src->z;
    ret_copy->srcLOD = src->lod;
    ret_copy->srcPitch =
        src->pitch != 0 || src->kind == WEIR_SIDE_ARRAY ? src->pitch : src->x + width;
    ret_copy->srcHeight =
        src->height != 0 || src->kind == WEIR_SIDE_ARRAY ? src->height : src->y + height;
    ret_copy->dstXInBytes = dst->x;
    ret_copy->dstY = dst->y;
    ret_copy->dstZ = dst->z;
    ret_copy->dstLOD = dst->lod;
    ret_copy->dstPitch =
        dst->pitch != 0 || dst->kind == WEIR_SIDE_ARRAY ? dst->pitch : dst->x + width;
    ret_copy->dstHeight =
        dst->height != 0 || dst->kind == WEIR_SIDE_ARRAY ? dst->height : dst->y + height;
    ret_copy->WidthInBytes = width;
    ret_copy->Height = height;
    ret_copy->Depth = depth;
    return CUDA_SUCCESS;
}

void weir_ops_copy_arrays(struct weir_session *s, const CUDA_MEMCPY3D *copy,
                          struct weir_object *ret_arrays[2])
{
    ret_arrays[0] = copy->srcMemoryType == CU_MEMORYTYPE_ARRAY
                        ? weir_host_object_find(s, WEIR_KIND_ARRAY, copy->srcArray)
                        : NULL;
    ret_arrays[1] = copy->dstMemoryType == CU_MEMORYTYPE_ARRAY
                        ? weir_host_object_find(s, WEIR_KIND_ARRAY, copy->dstArray)
                        : NULL;
}

static CUresult call_copy_3d(struct weir_session *s, CUstream at, const void *user)
{
    return s->driver->cuMemcpy3DAsync_v2(user, at);
}

CUresult weir_host_copy_3d(struct weir_session *s, const struct weir_op_copy_3d_in *in)
{
    struct weir_host_stream *stream = weir_ops_stream(s, in->s);
    struct weir_object *arrays[2];
    CUDA_MEMCPY3D copy;
    struct weir_submission what = {.call = call_copy_3d, .user = &copy};

    WEIR_FAIL_IF(!stream, CUDA_ERROR_INVALID_HANDLE);
    if (in->width == 0 || in->height == 0 || in->depth == 0) {
        return CUDA_SUCCESS;
    }
    WEIR_TRY(WEIR_HAND_COPY_3D(s, in, weir_host_stream_capturing(s, stream), &copy));
    weir_ops_copy_arrays(s, &copy, arrays);
    for (int i = 0; i < 2; i++) {
        WEIR_TRY(arrays[i] ? weir_graph_hold_captured(s, stream, arrays[i]) : CUDA_SUCCESS);
    }
    if (arrays[1]) {
        weir_array_of(arrays[1])->unsaved = true;
    }
    what.work = work_of(in->dst_kind != WEIR_SIDE_ARRAY &&
                            of_host(s, in->dst_kind == WEIR_SIDE_ARENA, in->dst_addr),
                        in->src_kind != WEIR_SIDE_ARRAY &&
                            of_host(s, in->src_kind == WEIR_SIDE_ARENA, in->src_addr),
                        in->width * in->height * in->depth);
    return weir_submit(s, stream, &what);
}

CUresult weir_ops_check_fill(struct weir_session *s, uint64_t dst, uint64_t pitch,
                             uint32_t element_bytes, uint64_t width, uint64_t height, bool in_node)
{
    struct weir_managed_part part = {.address = dst};
    uint64_t row;

    if ((element_bytes != 1 && element_bytes != 2 && element_bytes != 4) ||
        dst % element_bytes != 0 || width == 0 || height == 0 ||
        __builtin_mul_overflow(width, element_bytes, &row) ||
        (height > 1 && (pitch < row || pitch % element_bytes != 0)) ||
        __builtin_mul_overflow(height - 1, pitch, &part.bytes) ||
        __builtin_add_overflow(part.bytes, row, &part.bytes)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    weir_managed_reached(s, dst, part.bytes);
    WEIR_TRY(weir_session_check_write(s, dst, part.bytes));
    return in_node ? weir_managed_in_node(s, &part, 1) : CUDA_SUCCESS;
}

static CUresult fill_row(const struct weir_driver *d, const struct weir_op_memset_in *in,
                         CUstream stream)
{
    switch (in->element_bytes) {
    case 1:
        return d->cuMemsetD8Async(in->dst, (unsigned char)in->value, in->width, stream);
    case 2:
        return d->cuMemsetD16Async(in->dst, (unsigned short)in->value, in->width, stream);
    default:
        return d->cuMemsetD32Async(in->dst, in->value, in->width, stream);
    }
}

static CUresult fill_rows(const struct weir_driver *d, const struct weir_op_memset_in *in,
                          CUstream stream)
{
    switch (in->element_bytes) {
    case 1:
        return d->cuMemsetD2D8Async(in->dst, in->pitch, (unsigned char)in->value, in->width,
                                    in->height, stream);
    case 2:
        return d->cuMemsetD2D16Async(in->dst, in->pitch, (unsigned short)in->value, in->width,
                                     in->height, stream);
    default:
        return d->cuMemsetD2D32Async(in->dst, in->pitch, in->value, in->width, in->height, stream);
    }
}

static CUresult call_memset(struct weir_session *s, CUstream at, const void *user)
{
    const struct weir_op_memset_in *in = user;

    return in->height == 1 ? fill_row(s->driver, in, at) : fill_rows(s->driver, in, at);
}

CUresult weir_host_memset(struct weir_session *s, const struct weir_op_memset_in *in)
{
    struct weir_host_stream *stream = weir_ops_stream(s, in->s);
    struct weir_submission what = {
        .work = {.class = WEIR_SCHED_MEMSET, .bytes = in->width * in->height * in->element_bytes},
        .call = call_memset,
        .user = in};

    WEIR_FAIL_IF(!stream, CUDA_ERROR_INVALID_HANDLE);
    if (in->width == 0 || in->height == 0) {
        return CUDA_SUCCESS;
    }
    WEIR_TRY(weir_ops_check_fill(s, in->dst, in->pitch, in->element_bytes, in->width, in->height,
                                 weir_host_stream_capturing(s, stream)));
    return weir_submit(s, stream, &what);
}

CUresult weir_host_arena_write(struct weir_session *s, const struct weir_op_arena_write_in *in)
{
    uint8_t *at = weir_session_arena(s, in->offset, in->bytes);

    WEIR_FAIL_IF(in->bytes != s->op.bulk_bytes || !at, CUDA_ERROR_INVALID_VALUE);
    if (in->bytes != 0) {
        memcpy(at, s->op.bulk, in->bytes);
    }
    return CUDA_SUCCESS;
}

CUresult weir_host_arena_read(struct weir_session *s, const struct weir_op_arena_read_in *in)
{
    const uint8_t *at = weir_session_arena(s, in->offset, in->bytes);

    WEIR_FAIL_IF(!weir_session_is_remote(s) || in->bytes > WEIR_BULK_MAX_BYTES || !at,
                 CUDA_ERROR_INVALID_VALUE);
    s->op.reply_bulk = at;
    s->op.reply_bulk_bytes = in->bytes;
    return CUDA_SUCCESS;
}
