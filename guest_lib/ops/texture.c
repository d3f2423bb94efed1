/*
 * Texture and surface objects. Their value goes to kernels as a parameter, so it is the driver's
 * own; what they were made of is kept here for the cu*GetDesc calls.
 */
#include "guest_lib/entry.h"
#include "guest_lib/register.h"
#include "proto/guest_calls.h"
#include "proto/guest_hand.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct object {
    unsigned long long value;
    bool surface;
    CUDA_RESOURCE_DESC resource;
    CUDA_TEXTURE_DESC texture;
    CUDA_RESOURCE_VIEW_DESC view;
    bool has_view;
    struct object *next;
};

#define BUCKETS 256
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards buckets */
static struct object *buckets[BUCKETS];

static struct object **bucket_of(unsigned long long value)
{
    return &buckets[(value ^ value >> 8 ^ value >> 16 ^ value >> 32) % BUCKETS];
}

static struct object *find_locked(unsigned long long value, bool surface)
{
    for (struct object *o = *bucket_of(value); o; o = o->next) {
        if (o->value == value && o->surface == surface) {
            return o;
        }
    }
    return NULL;
}

static void enter(struct object *object)
{
    pthread_mutex_lock(&lock);
    struct object **bucket = bucket_of(object->value);
    object->next = *bucket;
    *bucket = object;
    pthread_mutex_unlock(&lock);
}

/* A copy of an object, or INVALID_HANDLE. */
static CUresult look_up(unsigned long long value, bool surface, struct object *ret_object)
{
    pthread_mutex_lock(&lock);
    struct object *object = find_locked(value, surface);
    if (object) {
        *ret_object = *object;
    }
    pthread_mutex_unlock(&lock);
    return object ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static bool leave(unsigned long long value, bool surface)
{
    pthread_mutex_lock(&lock);
    struct object *object = find_locked(value, surface);
    if (object) {
        struct object **at = bucket_of(value);
        while (*at != object) {
            at = &(*at)->next;
        }
        *at = object->next;
    }
    pthread_mutex_unlock(&lock);
    free(object);
    return object != NULL;
}

/* The resource in the wire's fields. */
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
    if (!pTexObject || !pResDesc || !pTexDesc) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = weir_ctx_current(&ctx);
    struct weir_op_texture_create_in in = {.desc = *pTexDesc, .has_view = pResViewDesc != NULL};
    if (result == CUDA_SUCCESS) {
        in.c = ctx->handle;
        result = fill_resource(pResDesc, &in);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct object *object = calloc(1, sizeof(*object));
    if (!object) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    object->resource = *pResDesc;
    object->texture = *pTexDesc;
    if (pResViewDesc) {
        in.view = *pResViewDesc;
        object->view = *pResViewDesc;
        object->has_view = true;
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
    if (!leave(texObject, false)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const struct weir_op_texture_destroy_in in = {.object = texObject};
    return weir_call_texture_destroy(weir_guest_channel(), &in, NULL);
}

CUresult weir_guest_cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC *pResDesc, CUtexObject texObject)
{
    struct object object;
    CUresult result = pResDesc ? look_up(texObject, false, &object) : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) {
        *pResDesc = object.resource;
    }
    return result;
}

CUresult weir_guest_cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC *pTexDesc, CUtexObject texObject)
{
    struct object object;
    CUresult result = pTexDesc ? look_up(texObject, false, &object) : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) {
        *pTexDesc = object.texture;
    }
    return result;
}

CUresult weir_guest_cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC *pResViewDesc,
                                                   CUtexObject texObject)
{
    struct object object;
    CUresult result = pResViewDesc ? look_up(texObject, false, &object) : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) {
        if (!object.has_view) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        *pResViewDesc = object.view;
    }
    return result;
}

CUresult weir_guest_cuSurfObjectCreate(CUsurfObject *pSurfObject,
                                       const CUDA_RESOURCE_DESC *pResDesc)
{
    struct weir_guest_ctx *ctx;
    if (!pSurfObject || !pResDesc || pResDesc->resType != CU_RESOURCE_TYPE_ARRAY) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = weir_ctx_current(&ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct object *object = calloc(1, sizeof(*object));
    if (!object) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    const struct weir_op_surface_create_in in = {.c = ctx->handle,
                                                 .a = (uintptr_t)pResDesc->res.array.hArray};
    struct weir_op_surface_create_out out;
    result = weir_call_surface_create(weir_guest_channel(), &in, &out);
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
    if (!leave(surfObject, true)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const struct weir_op_surface_destroy_in in = {.object = surfObject};
    return weir_call_surface_destroy(weir_guest_channel(), &in, NULL);
}

CUresult weir_guest_cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC *pResDesc,
                                                CUsurfObject surfObject)
{
    struct object object;
    CUresult result = pResDesc ? look_up(surfObject, true, &object) : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) {
        *pResDesc = object.resource;
    }
    return result;
}
