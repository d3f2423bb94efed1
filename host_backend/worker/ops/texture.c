/*
 * Texture and surface objects: the guest passes the driver's own value to its kernels. Where a
 * session is made again, the value must be the same.
 */
#include "host_backend/worker/ops/ops.h"

#include "base/grow.h"
#include "host_backend/worker/session/arrays.h"
#include "host_backend/worker/session/book.h"
#include <stdlib.h>
#include <string.h>

/* How many objects are made for the sake of one value: as many as a session may have. */
#define TRIES 65536u

static CUresult use_array(struct weir_session *s, enum weir_kind kind, uint64_t handle,
                          void **ret_native)
{
    const struct weir_object *array = weir_host_object_get(s, kind, handle);

    if (array) {
        weir_session_book_needs(s, array);
    }
    return weir_session_use(s, kind, handle, ret_native);
}

static CUresult fill_resource(struct weir_session *s, const struct weir_op_texture_create_in *in,
                              CUDA_RESOURCE_DESC *r)
{
    uint64_t bytes;

    memset(r, 0, sizeof *r);
    r->resType = (CUresourcetype)in->kind;
    switch (in->kind) {
    case CU_RESOURCE_TYPE_ARRAY:
        return use_array(s, WEIR_KIND_ARRAY, in->handle, (void **)&r->res.array.hArray);
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
        return use_array(s, WEIR_KIND_MIPMAP, in->handle, (void **)&r->res.mipmap.hMipmappedArray);
    case CU_RESOURCE_TYPE_LINEAR:
        r->res.linear.devPtr = in->address;
        r->res.linear.format = (CUarray_format)in->format;
        r->res.linear.numChannels = in->channels;
        r->res.linear.sizeInBytes = in->width;
        return weir_session_check_dptr(s, in->address, in->width);
    case CU_RESOURCE_TYPE_PITCH2D:
        r->res.pitch2D.devPtr = in->address;
        r->res.pitch2D.format = (CUarray_format)in->format;
        r->res.pitch2D.numChannels = in->channels;
        r->res.pitch2D.width = in->width;
        r->res.pitch2D.height = in->height;
        r->res.pitch2D.pitchInBytes = in->pitch;
        WEIR_FAIL_IF(in->height == 0 || __builtin_mul_overflow(in->height, in->pitch, &bytes),
                     CUDA_ERROR_INVALID_VALUE);
        /* The last row needs only its texels: up to 16 bytes each. */
        bytes -= in->pitch;
        WEIR_FAIL_IF(in->width > UINT32_MAX || in->channels == 0 || in->channels > 4,
                     CUDA_ERROR_INVALID_VALUE);
        return weir_session_check_dptr(s, in->address, bytes + in->width * in->channels);
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* What is to be made. */
struct texture {
    enum weir_kind kind;
    CUDA_RESOURCE_DESC resource;
    const CUDA_TEXTURE_DESC *desc;
    const CUDA_RESOURCE_VIEW_DESC *view; /* or NULL */
};

static CUresult make(const struct weir_session *s, const struct texture *t, uint64_t *ret)
{
    unsigned long long value = 0;
    CUresult result = t->kind == WEIR_KIND_SURFACE
                          ? s->driver->cuSurfObjectCreate(&value, &t->resource)
                          : s->driver->cuTexObjectCreate(&value, &t->resource, t->desc, t->view);

    *ret = value;
    return result;
}

static void drop(const struct weir_session *s, enum weir_kind kind, uint64_t value)
{
    (void)(kind == WEIR_KIND_SURFACE ? s->driver->cuSurfObjectDestroy(value)
                                     : s->driver->cuTexObjectDestroy(value));
}

/* Make the object with a value that another worker's driver gave it (0: any). Drivers count, so
 * others take the values of objects that are gone by now, until it is its turn. */
static CUresult make_as(const struct weir_session *s, const struct texture *t, uint64_t due,
                        uint64_t *ret)
{
    uint64_t *others = NULL;
    uint32_t n = 0, room = 0;
    CUresult result = make(s, t, ret);

    while (result == CUDA_SUCCESS && *ret < due && n < TRIES && WEIR_GROW(others, n, room)) {
        others[n++] = *ret;
        result = make(s, t, ret);
    }
    while (n > 0) {
        drop(s, t->kind, others[--n]);
    }
    free(others);
    return result;
}

/* Make the object under an unused name: it is found by the driver's value. */
static CUresult enter(struct weir_session *s, const struct texture *t, struct weir_host_ctx *ctx,
                      uint64_t *ret_value)
{
    uint64_t due = weir_session_book_next_name(s);
    struct weir_object *o;

    WEIR_TRY(make_as(s, t, due, ret_value));
    CUresult result = weir_session_book_number(
        s, due, *ret_value, t->kind == WEIR_KIND_SURFACE ? "surface" : "texture", "");
    if (result == CUDA_SUCCESS) {
        result = weir_host_object_create_own(s, t->kind, sizeof *o, (void *)(uintptr_t)*ret_value,
                                             ctx, &o);
    }
    if (result != CUDA_SUCCESS) {
        drop(s, t->kind, *ret_value);
        return result;
    }
    weir_session_book_made(s, o);
    return CUDA_SUCCESS;
}

CUresult weir_host_texture_create(struct weir_session *s,
                                  const struct weir_op_texture_create_in *in,
                                  struct weir_op_texture_create_out *out)
{
    struct texture t = {
        .kind = WEIR_KIND_TEXTURE, .desc = &in->desc, .view = in->has_view != 0 ? &in->view : NULL};
    struct weir_host_ctx *ctx = weir_ops_ctx(s, in->c);

    WEIR_FAIL_IF(!ctx, CUDA_ERROR_INVALID_CONTEXT);
    WEIR_TRY(fill_resource(s, in, &t.resource));
    return enter(s, &t, ctx, &out->object);
}

CUresult weir_host_texture_destroy(struct weir_session *s,
                                   const struct weir_op_texture_destroy_in *in)
{
    struct weir_object *o =
        weir_host_object_find(s, WEIR_KIND_TEXTURE, (void *)(uintptr_t)in->object);

    return o ? weir_host_object_destroy(s, o) : CUDA_ERROR_INVALID_HANDLE;
}

CUresult weir_host_surface_create(struct weir_session *s,
                                  const struct weir_op_surface_create_in *in,
                                  struct weir_op_surface_create_out *out)
{
    struct texture t = {.kind = WEIR_KIND_SURFACE};
    struct weir_host_ctx *ctx = weir_ops_ctx(s, in->c);

    WEIR_FAIL_IF(!ctx, CUDA_ERROR_INVALID_CONTEXT);
    t.resource.resType = CU_RESOURCE_TYPE_ARRAY;
    WEIR_TRY(use_array(s, WEIR_KIND_ARRAY, in->a, (void **)&t.resource.res.array.hArray));
    weir_array_of(weir_host_object_get(s, WEIR_KIND_ARRAY, in->a))->on_surface = true;
    return enter(s, &t, ctx, &out->object);
}

CUresult weir_host_surface_destroy(struct weir_session *s,
                                   const struct weir_op_surface_destroy_in *in)
{
    struct weir_object *o =
        weir_host_object_find(s, WEIR_KIND_SURFACE, (void *)(uintptr_t)in->object);

    return o ? weir_host_object_destroy(s, o) : CUDA_ERROR_INVALID_HANDLE;
}
