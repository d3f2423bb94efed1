/* Copy entry points: check the sides, then copy.c and copy_box.c. */
#include "guest_lib/module.h"
#include "guest_lib/ops/forward.h"
#include "guest_lib/register.h"
#include "guest_lib/state.h"
#include "proto/structs.h"

/* Host data up to this size is searched for addresses: programs copy addresses for kernels in small
 * pieces. */
#define ADDRESSES_BYTES (64u << 10)

/* @param type the caller's type of the side; it must be right for device memory. */
static CUresult make_side(uint64_t address, uint64_t bytes, CUmemorytype type,
                          struct weir_guest_copy_side *ret_side)
{
    CUresult result = weir_managed_before_use(address, bytes);
    result = result == CUDA_SUCCESS ? weir_copy_classify(address, bytes, ret_side) : result;
    if (result == CUDA_SUCCESS && type == CU_MEMORYTYPE_DEVICE &&
        ret_side->kind == WEIR_COPY_PAGEABLE) {
        struct weir_mem mem; /* in a remote session "pinned" memory has no real device address */
        result = weir_mem_find(address, &mem) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
    return result;
}

/* Find the context that owns the memory, if its device is not the stream's; or NULL. */
static struct weir_guest_ctx *owner_elsewhere(uint64_t address,
                                              const struct weir_guest_stream *stream)
{
    struct weir_mem mem;
    if (!weir_mem_find(address, &mem) || !weir_mem_on_device(&mem) || mem.device < 0 ||
        mem.device == stream->ctx->device) {
        return NULL;
    }
    bool own = mem.ctx && mem.ctx->device == mem.device;
    struct weir_guest_ctx *ctx = own ? mem.ctx : weir_guest.devices[mem.device].primary;
    return weir_ctx_use(ctx, NULL) ? ctx : NULL;
}

/*
 * A copy that names no stream and has memory of another device on one side begins after all work of
 * both devices, and all later work of both comes after it. So the guest waits before and after it.
 */
static CUresult linear_between(uint64_t dst, uint64_t src, const struct weir_guest_copy_side *to,
                               const struct weir_guest_copy_side *from, uint64_t bytes,
                               struct weir_guest_stream *stream)
{
    struct weir_guest_ctx *others[2] = {owner_elsewhere(dst, stream), owner_elsewhere(src, stream)};
    CUresult result = CUDA_SUCCESS;
    for (int i = 0; i < 2 && result == CUDA_SUCCESS; i++) {
        result = others[i] ? weir_streams_wait_all(others[i]) : CUDA_SUCCESS;
    }
    result = result == CUDA_SUCCESS ? weir_copy_linear(to, from, bytes, stream, true) : result;
    if (result == CUDA_SUCCESS && (others[0] || others[1])) {
        result = weir_ctx_synchronize(stream->ctx);
    }
    return result;
}

static CUresult linear_alike(uint64_t dst, CUmemorytype dst_type, uint64_t src,
                             CUmemorytype src_type, uint64_t bytes,
                             struct weir_guest_stream *stream, bool sync)
{
    struct weir_guest_copy_side to, from;
    CUresult result = make_side(dst, bytes, dst_type, &to);
    result = result == CUDA_SUCCESS ? make_side(src, bytes, src_type, &from) : result;
    if (result == CUDA_SUCCESS && to.on_device && !from.on_device && bytes <= ADDRESSES_BYTES) {
        (void)weir_register_reach_words((const void *)(uintptr_t)src, bytes);
    }
    if (result == CUDA_SUCCESS && sync && weir_guest.n_devices > 1 && !weir_guest_capturing()) {
        return linear_between(dst, src, &to, &from, bytes, stream);
    }
    return result == CUDA_SUCCESS ? weir_copy_linear(&to, &from, bytes, stream, sync) : result;
}

/* Note registered memory of a copy: if the program's process cannot copy it in the stream's order,
 * share it with the GPU. A failure to share is no error. */
static CUresult note_sides(uint64_t dst, uint64_t src, uint64_t bytes, bool async, bool captured)
{
    if (captured) {
        (void)weir_register_reach(dst);
        (void)weir_register_reach(src);
    }
    WEIR_TRY(weir_register_note_copy(dst, bytes, true, async));
    return weir_register_note_copy(src, bytes, false, async);
}

CUresult weir_guest_copy(uint64_t dst, CUmemorytype dst_type, uint64_t src, CUmemorytype src_type,
                         uint64_t bytes, CUstream hStream, bool sync)
{
    struct weir_guest_stream *stream;
    CUresult result = weir_guest_stream_get(hStream, &stream);
    if (result != CUDA_SUCCESS || !bytes) {
        return result != CUDA_SUCCESS ? result : weir_guest_report();
    }
    result = note_sides(dst, src, bytes, !sync, weir_guest_capturing());
    for (uint64_t done = 0, n; done < bytes && result == CUDA_SUCCESS; done += n) {
        uint64_t left = weir_register_alike(dst + done, bytes - done);
        n = weir_register_alike(src + done, left);
        result = linear_alike(dst + done, dst_type, src + done, src_type, n, stream, sync);
    }
    return result;
}

static uint64_t bits(const void *pointer)
{
    return (uint64_t)(uintptr_t)pointer;
}

/* Addresses are unique over all devices, so a copy between contexts only needs addresses. */
static CUresult check_contexts(CUcontext dst, CUcontext src)
{
    struct weir_guest_ctx *ctx;
    WEIR_TRY(weir_ctx_resolve(dst, &ctx));
    return weir_ctx_resolve(src, &ctx);
}

CUresult weir_guest_copy_peer(CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src,
                              CUcontext src_context, size_t bytes, CUstream hStream, bool sync)
{
    WEIR_TRY(check_contexts(dst_context, src_context));
    return weir_guest_copy(dst, CU_MEMORYTYPE_DEVICE, src, CU_MEMORYTYPE_DEVICE, bytes, hStream,
                           sync);
}

/* ---------------------------------------------------------------- boxes */

/* A side of a 2D or 3D copy as its struct describes it. */
struct raw_side {
    CUmemorytype type;
    uint64_t host, device;
    CUarray array;
    uint64_t x, y, z, lod, pitch, height;
};

static CUresult array_side(const struct raw_side *raw, struct weir_guest_copy_side *ret_side)
{
    *ret_side = (struct weir_guest_copy_side){.kind = WEIR_COPY_ARRAY,
                                              .address = bits(raw->array),
                                              .x = raw->x,
                                              .y = raw->y,
                                              .z = raw->z,
                                              .lod = raw->lod,
                                              .on_device = true};
    return weir_guest_object_get(WEIR_KIND_ARRAY, raw->array) ? CUDA_SUCCESS
                                                              : CUDA_ERROR_INVALID_HANDLE;
}

/* The bytes from the first to the last one of the box; false if this overflows or rows overlap. */
static bool box_span(uint64_t width, uint64_t height, uint64_t depth, uint64_t pitch,
                     uint64_t slice_rows, uint64_t *ret_bytes)
{
    uint64_t rows, before;
    if ((height > 1 && pitch < width) || (depth > 1 && slice_rows < height) ||
        __builtin_mul_overflow(depth - 1, slice_rows, &rows) ||
        __builtin_add_overflow(rows, height - 1, &rows) ||
        __builtin_mul_overflow(rows, pitch, &before)) {
        return false;
    }
    return !__builtin_add_overflow(before, width, ret_bytes);
}

static CUresult memory_side(const struct raw_side *raw, uint64_t width, uint64_t height,
                            uint64_t depth, struct weir_guest_copy_side *ret_side)
{
    uint64_t pitch = raw->pitch ? raw->pitch : raw->x + width;
    uint64_t slice_rows = raw->height ? raw->height : raw->y + height;
    uint64_t bytes, slices, start;
    if (!box_span(width, height, depth, pitch, slice_rows, &bytes) ||
        __builtin_mul_overflow(raw->z, slice_rows, &slices) ||
        __builtin_mul_overflow(slices + raw->y, pitch, &start)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    bool host = raw->type == CU_MEMORYTYPE_HOST;
    uint64_t address = (host ? raw->host : raw->device) + start + raw->x;
    CUresult result = make_side(address, bytes, raw->type, ret_side);
    ret_side->pitch = pitch;
    ret_side->height = slice_rows;
    return result;
}

static CUresult any_side(const struct raw_side *raw, uint64_t width, uint64_t height,
                         uint64_t depth, struct weir_guest_copy_side *ret_side)
{
    switch (raw->type) {
    case CU_MEMORYTYPE_ARRAY:
        return array_side(raw, ret_side);
    case CU_MEMORYTYPE_HOST:
    case CU_MEMORYTYPE_DEVICE:
    case CU_MEMORYTYPE_UNIFIED:
        return memory_side(raw, width, height, depth, ret_side);
    }
    return CUDA_ERROR_INVALID_VALUE;
}

/* Share the registered memory of a box with the GPU: the program cannot copy rows in the stream's
 * order. */
static CUresult note_box(const struct raw_side *side, uint64_t bytes, bool writes, bool shares)
{
    uint64_t address = side->type == CU_MEMORYTYPE_HOST ? side->host : side->device;
    if (side->type == CU_MEMORYTYPE_ARRAY) {
        return CUDA_SUCCESS;
    }
    if (shares) {
        (void)weir_register_reach(address);
    }
    return weir_register_note_copy(address, bytes, writes, shares);
}

static CUresult box(const struct raw_side *dst, const struct raw_side *src, uint64_t width,
                    uint64_t height, uint64_t depth, CUstream hStream, bool sync)
{
    struct weir_guest_stream *stream;
    CUresult result = weir_guest_stream_get(hStream, &stream);
    if (result != CUDA_SUCCESS || !width || !height || !depth) {
        return result;
    }
    struct weir_guest_copy_side to, from;
    bool shares = !sync || weir_guest_capturing();
    WEIR_TRY(note_box(dst, width * height * depth, true, shares));
    WEIR_TRY(note_box(src, width * height * depth, false, shares));
    WEIR_TRY(any_side(dst, width, height, depth, &to));
    WEIR_TRY(any_side(src, width, height, depth, &from));
    return weir_copy_box(&to, &from, width, height, depth, stream, sync);
}

CUresult weir_guest_copy_3d(const CUDA_MEMCPY3D *c, CUstream hStream, bool sync)
{
    struct raw_side src = {.type = c->srcMemoryType,
                           .host = bits(c->srcHost),
                           .device = c->srcDevice,
                           .array = c->srcArray,
                           .x = c->srcXInBytes,
                           .y = c->srcY,
                           .z = c->srcZ,
                           .lod = c->srcLOD,
                           .pitch = c->srcPitch,
                           .height = c->srcHeight};
    struct raw_side dst = {.type = c->dstMemoryType,
                           .host = bits(c->dstHost),
                           .device = c->dstDevice,
                           .array = c->dstArray,
                           .x = c->dstXInBytes,
                           .y = c->dstY,
                           .z = c->dstZ,
                           .lod = c->dstLOD,
                           .pitch = c->dstPitch,
                           .height = c->dstHeight};
    return box(&dst, &src, c->WidthInBytes, c->Height, c->Depth, hStream, sync);
}

CUresult weir_guest_copy_3d_peer(const CUDA_MEMCPY3D_PEER *p, CUstream hStream, bool sync)
{
    WEIR_TRY(check_contexts(p->dstContext, p->srcContext));
    const CUDA_MEMCPY3D c = weir_struct_memcpy_3d_of_peer(p);
    return weir_guest_copy_3d(&c, hStream, sync);
}

/* ---------------------------------------------------------------- one-dimensional arrays */

/* A side of one row; at: an offset in the array, or an address. */
static struct raw_side row_side(CUmemorytype type, CUarray array, uint64_t at)
{
    return type == CU_MEMORYTYPE_ARRAY ? (struct raw_side){.type = type, .array = array, .x = at}
                                       : (struct raw_side){.type = type, .host = at, .device = at};
}

CUresult weir_guest_copy_row(CUmemorytype dst_type, CUarray dst_array, uint64_t dst_at,
                             CUmemorytype src_type, CUarray src_array, uint64_t src_at,
                             size_t bytes, CUstream hStream, bool sync)
{
    const struct raw_side dst = row_side(dst_type, dst_array, dst_at);
    const struct raw_side src = row_side(src_type, src_array, src_at);
    return box(&dst, &src, bytes, 1, 1, hStream, sync);
}
