/*
 * Texture and surface objects. Their value goes to kernels as a parameter, so it is the driver's
 * own. The guest keeps their descriptions for the cu*GetDesc calls.
 */
#include "base/thread.h"
#include "guest_lib/ops/forward.h"
#include "guest_lib/register.h"
#include "proto/guest_calls.h"
#include "proto/guest_hand.h"

#include <stdlib.h>
#include <string.h>

#define BUCKETS 256
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards buckets */
static struct weir_guest_texture *buckets[BUCKETS];

static struct weir_guest_texture **bucket_of(unsigned long long value)
{
    return &buckets[(value ^ value >> 8 ^ value >> 16 ^ value >> 32) % BUCKETS];
}

static struct weir_guest_texture *find_locked(unsigned long long value, bool surface)
{
    return WEIR_LINKED(o, *bucket_of(value), o->value == value && o->surface == surface);
}

static void enter(struct weir_guest_texture *object)
{
    WEIR_LOCKED(&lock);
    struct weir_guest_texture **bucket = bucket_of(object->value);
    object->next = *bucket;
    *bucket = object;
}

static CUresult look_up(unsigned long long value, bool surface,
                        struct weir_guest_texture *ret_object)
{
    WEIR_LOCKED(&lock);
    struct weir_guest_texture *object = find_locked(value, surface);
    if (object) {
        *ret_object = *object;
    }
    return object ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult weir_guest_texture_find(CUtexObject object, struct weir_guest_texture *ret_texture)
{
    return look_up(object, false, ret_texture);
}

CUresult weir_guest_surface_find(CUsurfObject object, struct weir_guest_texture *ret_texture)
{
    return look_up(object, true, ret_texture);
}

static bool leave(unsigned long long value, bool surface)
{
    pthread_mutex_lock(&lock);
    struct weir_guest_texture *object = find_locked(value, surface);
    if (object) {
        struct weir_guest_texture **at = bucket_of(value);
        while (*at != object) {
            at = &(*at)->next;
        }
        *at = object->next;
    }
    pthread_mutex_unlock(&lock);
    free(object);
    return object != NULL;
}

/* Convert the resource to the wire's fields. */
static CUresult fill_resource(const CUDA_RESOURCE_DESC *resource,
                              struct weir_op_texture_create_in *in)
{
    in->kind = (uint32_t)resource->resType;
    switch ((unsigned int)resource->resType) {
    case CU_RESOURCE_TYPE_ARRAY:
        in->handle = (uintptr_t)resource->res.array.hArray;
        break;
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
        in->handle = (uintptr_t)resource->res.mipmap.hMipmappedArray;
        break;
    case CU_RESOURCE_TYPE_LINEAR:
        in->address = resource->res.linear.devPtr;
        in->format = (uint32_t)resource->res.linear.format;
        in->channels = resource->res.linear.numChannels;
        in->width = resource->res.linear.sizeInBytes;
        break;
    case CU_RESOURCE_TYPE_PITCH2D:
        in->address = resource->res.pitch2D.devPtr;
        in->format = (uint32_t)resource->res.pitch2D.format;
        in->channels = resource->res.pitch2D.numChannels;
        in->width = resource->res.pitch2D.width;
        in->height = resource->res.pitch2D.height;
        in->pitch = resource->res.pitch2D.pitchInBytes;
        break;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    return weir_register_reach(in->address);
}

CUresult weir_guest_cuTexObjectCreate(CUtexObject *pTexObject, const CUDA_RESOURCE_DESC *pResDesc,
                                      const CUDA_TEXTURE_DESC *pTexDesc,
                                      const CUDA_RESOURCE_VIEW_DESC *pResViewDesc)
{
    struct weir_guest_ctx *ctx;
    WEIR_FAIL_IF(!pTexObject || !pResDesc || !pTexDesc, CUDA_ERROR_INVALID_VALUE);
    CUresult result = weir_ctx_current(&ctx);
    struct weir_op_texture_create_in in = {.desc = *pTexDesc, .has_view = pResViewDesc != NULL};
    if (result == CUDA_SUCCESS) {
        in.c = ctx->handle;
        result = fill_resource(pResDesc, &in);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct weir_guest_texture *object = calloc(1, sizeof(*object));
    WEIR_FAIL_IF(!object, CUDA_ERROR_OUT_OF_MEMORY);
    object->resource = *pResDesc;
    object->texture = *pTexDesc;
    if (pResViewDesc) {
        in.view = *pResViewDesc;
        object->view = *pResViewDesc;
    }
    struct weir_op_texture_create_out out;
    result = weir_call_texture_create(weir_guest_channel(), &in, &out);
    if (result != CUDA_SUCCESS) {
        free(object);
        return result;
    }
    object->value = out.object;
    enter(object);
    *pTexObject = out.object;
    return CUDA_SUCCESS;
}

CUresult weir_guest_cuTexObjectDestroy(CUtexObject texObject)
{
    WEIR_FAIL_IF(!leave(texObject, false), CUDA_ERROR_INVALID_VALUE);
    const struct weir_op_texture_destroy_in in = {.object = texObject};
    return weir_call_texture_destroy(weir_guest_channel(), &in, NULL);
}

CUresult weir_guest_cuSurfObjectCreate(CUsurfObject *pSurfObject,
                                       const CUDA_RESOURCE_DESC *pResDesc)
{
    struct weir_guest_ctx *ctx;
    WEIR_FAIL_IF(!pSurfObject || !pResDesc || pResDesc->resType != CU_RESOURCE_TYPE_ARRAY,
                 CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_ctx_current(&ctx));
    struct weir_guest_texture *object = calloc(1, sizeof(*object));
    WEIR_FAIL_IF(!object, CUDA_ERROR_OUT_OF_MEMORY);
    const struct weir_op_surface_create_in in = {.c = ctx->handle,
                                                 .a = (uintptr_t)pResDesc->res.array.hArray};
    struct weir_op_surface_create_out out;
    CUresult result = weir_call_surface_create(weir_guest_channel(), &in, &out);
    if (result != CUDA_SUCCESS) {
        free(object);
        return result;
    }
    object->value = out.object;
    object->surface = true;
    object->resource = *pResDesc;
    enter(object);
    *pSurfObject = out.object;
    return CUDA_SUCCESS;
}

CUresult weir_guest_cuSurfObjectDestroy(CUsurfObject surfObject)
{
    WEIR_FAIL_IF(!leave(surfObject, true), CUDA_ERROR_INVALID_VALUE);
    const struct weir_op_surface_destroy_in in = {.object = surfObject};
    return weir_call_surface_destroy(weir_guest_channel(), &in, NULL);
}
