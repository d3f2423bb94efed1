/*
 * Arrays and mipmapped arrays. They are charged before the driver makes them, so that none exists
 * uncharged, and destroyed with their context at the latest.
 *
 * A new array contains old data of another one. In a worker of several programs it is cleared
 * before its program gets it; in a program's own worker the old data is the tenant's. The driver
 * cannot fill arrays, so zeroes are copied into them.
 */
#include "host_backend/worker/ops/ops.h"

#include "base/log.h"
#include "host_backend/worker/session/arrays.h"
#include "host_backend/worker/state/ending.h"
#include "host_backend/worker/state/platform.h"
#include "host_backend/worker/state/tenant.h"

#include <string.h>

#define TILE_BYTES 64u
#define TILE_ROWS  8u

static uint64_t at_least_one(uint64_t n)
{
    return n != 0 ? n : 1;
}

/* Round up to a multiple of `to`, a power of two. */
static bool round_up(uint64_t n, uint64_t to, uint64_t *ret)
{
    bool over = __builtin_add_overflow(n, to - 1, ret);

    *ret &= ~(to - 1);
    return !over;
}

/*
 * Compute the size of an array. false: it exceeds 64 bits. A compressed array takes less than this.
 *
 * The device lays texels out in tiles of 64 bytes by 8 rows, and an array of one row also takes
 * whole tiles: 131,072 floats take 4 MiB, and 64 take 2 KiB (H100, 2026-11-27).
 */
static bool array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d, uint64_t *ret_bytes)
{
    uint64_t texel = weir_array_texel_bytes(d), row, rows;

    texel = texel != 0 ? texel : UINT64_C(4) * d->NumChannels;
    return !__builtin_mul_overflow(texel, at_least_one(d->Width), &row) &&
           round_up(row, TILE_BYTES, &row) && round_up(at_least_one(d->Height), TILE_ROWS, &rows) &&
           !__builtin_mul_overflow(row, rows, ret_bytes) &&
           !__builtin_mul_overflow(*ret_bytes, at_least_one(d->Depth), ret_bytes);
}

/* Compute the size of a mipmapped array with n_levels levels, or with the most that it can have. */
static bool mipmap_bytes(const CUDA_ARRAY3D_DESCRIPTOR *desc, uint32_t n_levels,
                         uint64_t *ret_bytes)
{
    bool layered = (desc->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
    CUDA_ARRAY3D_DESCRIPTOR d = *desc;
    uint64_t sum = 0, bytes;

    for (uint32_t i = 0; i == 0 || i < n_levels; i++) { /* the driver takes 0 levels as 1 */
        WEIR_FAIL_IF(!array_bytes(&d, &bytes) || __builtin_add_overflow(sum, bytes, &sum), false);
        if (d.Width <= 1 && d.Height <= 1 && (layered || d.Depth <= 1)) {
            break;
        }
        d.Width /= 2; /* 0 counts as 1 */
        d.Height /= 2;
        d.Depth /= layered ? 1 : 2;
    }
    *ret_bytes = sum;
    return true;
}

/* Make the object and charge it; the array comes later. */
static CUresult begin(struct weir_session *s, enum weir_kind kind, uint64_t handle,
                      struct weir_host_ctx *ctx, uint64_t bytes, struct weir_object **ret_object)
{
    struct weir_object *o;

    WEIR_TRY(weir_session_free_name(s, kind, handle));
    WEIR_TRY(
        weir_host_object_create(s, kind, sizeof(struct weir_host_array), handle, NULL, ctx, &o));
    CUresult result = weir_session_charge(s, o->device, WEIR_ACCOUNT_DEVICE_MEMORY, bytes);
    if (result != CUDA_SUCCESS) {
        weir_host_object_forget(s, o);
        return result;
    }
    o->charged_bytes = bytes;
    weir_session_hold(s, o->device, bytes);
    *ret_object = o;
    return CUDA_SUCCESS;
}

/* ---------------------------------------------------------------- clearing */

/* Is this an array without memory of its own? No operation maps memory to it. */
static bool is_hollow(const CUDA_ARRAY3D_DESCRIPTOR *d)
{
    return (d->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)) != 0;
}

/* Only in arrays of plain texels is it known how copies reach all bytes. */
static CUresult check_clearable(const struct weir_session *s, const CUDA_ARRAY3D_DESCRIPTOR *d)
{
    static atomic_bool told;

    if (s->platform->by_program || is_hollow(d) || weir_array_texel_bytes(d) != 0) {
        return CUDA_SUCCESS;
    }
    if (!atomic_exchange(&told, true)) {
        weir_log_warn("session: arrays of this format are not made where tenants share a worker, "
                      "since they cannot be cleared (isolation = \"program\" has them) "
                      "session=%llu tenant=%s format=0x%x",
                      (unsigned long long)s->id, s->tenant->name, (unsigned)d->Format);
    }
    return CUDA_ERROR_NOT_SUPPORTED;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Copy zeroes in boxes as large as the buffer of zeroes allows. */
static CUresult copy_zeroes(struct weir_session *s, CUarray array, const size_t extent[3],
                            void *stream)
{
    CUDA_MEMCPY3D c = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                       .srcHost = s->platform->zeroes,
                       .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                       .dstArray = array};
    size_t left = WEIR_ZEROES_BYTES, box[3];

    for (int i = 0; i < 3; i++) {
        box[i] = at_least_one(least(extent[i], left));
        left = box[i] == extent[i] ? left / box[i] : 1;
    }
    c.srcPitch = box[0];
    c.srcHeight = box[1];
    for (c.dstZ = 0; c.dstZ < extent[2]; c.dstZ += box[2]) {
        for (c.dstY = 0; c.dstY < extent[1]; c.dstY += box[1]) {
            for (c.dstXInBytes = 0; c.dstXInBytes < extent[0]; c.dstXInBytes += box[0]) {
                c.WidthInBytes = least(box[0], extent[0] - c.dstXInBytes);
                c.Height = least(box[1], extent[1] - c.dstY);
                c.Depth = least(box[2], extent[2] - c.dstZ);
                WEIR_TRY(s->driver->cuMemcpy3DAsync_v2(&c, (CUstream)stream));
            }
        }
    }
    return CUDA_SUCCESS;
}

static CUresult clear(struct weir_session *s, const struct weir_object *o,
                      const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
    CUresult result, waited;
    CUstream stream;

    if (s->platform->by_program || is_hollow(desc)) {
        return CUDA_SUCCESS;
    }
    WEIR_FAIL_IF(!s->platform->zeroes, CUDA_ERROR_OUT_OF_MEMORY);
    WEIR_TRY(weir_session_work_stream(s, &stream));
    result = weir_array_visit(s, o, copy_zeroes, stream);
    waited = s->driver->cuStreamSynchronize(stream);
    return result != CUDA_SUCCESS ? result : waited;
}

/* ---------------------------------------------------------------- operations */

/* Complete an object after the driver has made its array, or has refused. */
static CUresult finish(struct weir_session *s, struct weir_object *o, CUresult made, void *native,
                       const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
    if (made != CUDA_SUCCESS) {
        weir_host_object_forget(s, o);
        return weir_session_note_lack(s, made);
    }
    CUresult result = weir_host_object_bind(s, o, native);
    if (result == CUDA_SUCCESS) {
        result = clear(s, o, desc);
    }
    if (result != CUDA_SUCCESS) {
        (void)weir_host_object_destroy(s, o);
    }
    return result;
}

CUresult weir_host_array_create(struct weir_session *s, const struct weir_op_array_create_in *in)
{
    struct weir_host_ctx *ctx = weir_ops_ctx(s, in->c);
    CUarray native = NULL;
    struct weir_object *o;
    uint64_t bytes;

    if (!ctx || !array_bytes(&in->desc, &bytes)) {
        return !ctx ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_VALUE;
    }
    WEIR_TRY(check_clearable(s, &in->desc));
    WEIR_TRY(begin(s, WEIR_KIND_ARRAY, in->a, ctx, bytes, &o));
    CUresult made = s->driver->cuArray3DCreate_v2(&native, &in->desc);
    return finish(s, o, made, native, &in->desc);
}

CUresult weir_host_mipmap_create(struct weir_session *s, const struct weir_op_mipmap_create_in *in)
{
    struct weir_host_ctx *ctx = weir_ops_ctx(s, in->c);
    CUmipmappedArray native = NULL;
    struct weir_object *o;
    uint64_t bytes;

    if (!ctx || !mipmap_bytes(&in->desc, in->levels, &bytes)) {
        return !ctx ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_VALUE;
    }
    WEIR_TRY(check_clearable(s, &in->desc));
    WEIR_TRY(begin(s, WEIR_KIND_MIPMAP, in->m, ctx, bytes, &o));
    CUresult made = s->driver->cuMipmappedArrayCreate(&native, &in->desc, in->levels);
    return finish(s, o, made, native, &in->desc);
}
