/* Texture and surface objects: the guest passes the driver's own value to its kernels. */
#include "host_backend/worker/ops/ops.h"

#include <string.h>

static CUresult fill_resource(struct weir_session *s, const struct weir_op_texture_create_in *in,
                              CUDA_RESOURCE_DESC *r)
{
    uint64_t bytes;

    memset(r, 0, sizeof *r);
    r->resType = (CUresourcetype)in->kind;
    switch (in->kind) {
    case CU_RESOURCE_TYPE_ARRAY:
        return weir_session_use(s, WEIR_KIND_ARRAY, in->handle, (void **)&r->res.array.hArray);
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
        return weir_session_use(s, WEIR_KIND_MIPMAP, in->handle,
                                (void **)&r->res.mipmap.hMipmappedArray);
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

/* Add the object under an unused name: it is found by the driver's value. */
static CUresult enter(struct weir_session *s, enum weir_kind kind, unsigned long long value,
                      struct weir_host_ctx *ctx)
{
    struct weir_object *o;

    return weir_host_object_create_own(s, kind, sizeof *o, (void *)(uintptr_t)value, ctx, &o);
}

CUresult weir_host_texture_create(struct weir_session *s,
                                  const struct weir_op_texture_create_in *in,
                                  struct weir_op_texture_create_out *out)
{
    struct weir_host_ctx *ctx = weir_ops_ctx(s, in->c);
    CUDA_RESOURCE_DESC resource;
    CUtexObject object;

    WEIR_FAIL_IF(!ctx, CUDA_ERROR_INVALID_CONTEXT);
    WEIR_TRY(fill_resource(s, in, &resource));
    WEIR_TRY(s->driver->cuTexObjectCreate(&object, &resource, &in->desc,
                                          in->has_view != 0 ? &in->view : NULL));
    CUresult result = enter(s, WEIR_KIND_TEXTURE, object, ctx);
    if (result != CUDA_SUCCESS) {
        (void)s->driver->cuTexObjectDestroy(object);
        return result;
    }
    out->object = object;
    return CUDA_SUCCESS;
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
    struct weir_host_ctx *ctx = weir_ops_ctx(s, in->c);
    CUDA_RESOURCE_DESC resource;
    CUsurfObject object;

    WEIR_FAIL_IF(!ctx, CUDA_ERROR_INVALID_CONTEXT);
    memset(&resource, 0, sizeof resource);
    resource.resType = CU_RESOURCE_TYPE_ARRAY;
    WEIR_TRY(weir_session_use(s, WEIR_KIND_ARRAY, in->a, (void **)&resource.res.array.hArray));
    WEIR_TRY(s->driver->cuSurfObjectCreate(&object, &resource));
    CUresult result = enter(s, WEIR_KIND_SURFACE, object, ctx);
    if (result != CUDA_SUCCESS) {
        (void)s->driver->cuSurfObjectDestroy(object);
        return result;
    }
    out->object = object;
    return CUDA_SUCCESS;
}

CUresult weir_host_surface_destroy(struct weir_session *s,
                                   const struct weir_op_surface_destroy_in *in)
{
    struct weir_object *o =
        weir_host_object_find(s, WEIR_KIND_SURFACE, (void *)(uintptr_t)in->object);

    return o ? weir_host_object_destroy(s, o) : CUDA_ERROR_INVALID_HANDLE;
}
