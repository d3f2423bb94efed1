/* Arrays, mipmapped arrays, and texture and surface objects. Arrays are stored row by row. */
#include "proto/array_format.h"
#include "softgpu/driver/forward.h"
#include "softgpu/memory.h"

#include <stdlib.h>
#include <string.h>

#define MAX_EXTENT      131072u
#define MAX_ARRAY_BYTES (1ull << 36)
#define TEXTURE_ALIGN   64u
#define STALE_BYTE      0xa5
#define KNOWN_FLAGS                                                                                \
    (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST | CUDA_ARRAY3D_CUBEMAP |                     \
     CUDA_ARRAY3D_TEXTURE_GATHER | CUDA_ARRAY3D_COLOR_ATTACHMENT)

static uint64_t at_least_one(uint64_t n)
{
    return n == 0 ? 1 : n;
}

static CUresult check_desc(const CUDA_ARRAY3D_DESCRIPTOR *d)
{
    uint32_t bytes = weir_format_bytes(d->Format);
    if (bytes == 0 || (d->NumChannels != 1 && d->NumChannels != 2 && d->NumChannels != 4) ||
        d->Width == 0 || d->Width > MAX_EXTENT || d->Height > MAX_EXTENT || d->Depth > MAX_EXTENT ||
        (d->Flags & ~(unsigned)KNOWN_FLAGS) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    bool layered = (d->Flags & CUDA_ARRAY3D_LAYERED) != 0;
    WEIR_FAIL_IF((layered && d->Depth == 0) || (!layered && d->Depth != 0 && d->Height == 0),
                 CUDA_ERROR_INVALID_VALUE);
    if ((d->Flags & CUDA_ARRAY3D_CUBEMAP) != 0 &&
        (d->Width != d->Height || d->Depth == 0 || d->Depth % 6 != 0 ||
         (!layered && d->Depth != 6))) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

static void array_shape(struct weir_soft_array *array, const CUDA_ARRAY3D_DESCRIPTOR *d)
{
    array->desc = *d;
    array->element_bytes = (uint64_t)weir_format_bytes(d->Format) * d->NumChannels;
    array->row_bytes = d->Width * array->element_bytes;
    array->rows = at_least_one(d->Height);
    array->slices = at_least_one(d->Depth);
    array->slice_bytes = array->row_bytes * array->rows;
    array->bytes = array->slice_bytes * array->slices;
}

/* Allocate an array's memory, in the memory map, because kernels access it through texture and
 * surface objects. Fill it with nonzero bytes, like used memory of a GPU. */
static void *take_memory(struct weir_soft_device *device, uint64_t bytes)
{
    WEIR_FAIL_IF(bytes > MAX_ARRAY_BYTES || bytes > weir_soft_device_free_bytes(device), NULL);
    uint64_t room = (bytes + TEXTURE_ALIGN - 1) & ~(uint64_t)(TEXTURE_ALIGN - 1);
    void *memory = aligned_alloc(TEXTURE_ALIGN, room);
    WEIR_FAIL_IF(!memory, NULL);
    memset(memory, STALE_BYTE, room);
    if (weir_soft_memory_add((uint64_t)(uintptr_t)memory, room, WEIR_SOFT_READ | WEIR_SOFT_WRITE) !=
        WEIR_OK) {
        free(memory);
        return NULL;
    }
    weir_soft_device_use(device, (int64_t)bytes);
    return memory;
}

static void give_memory(struct weir_soft_device *device, void *memory, uint64_t bytes)
{
    (void)!weir_soft_memory_remove((uint64_t)(uintptr_t)memory);
    weir_soft_device_use(device, -(int64_t)bytes);
    free(memory);
}

static void array_release(void *object)
{
    struct weir_soft_array *array = object;
    if (array->memory) {
        give_memory(array->object.ctx->device, array->memory, array->bytes);
    }
    weir_soft_object_put(array->mipmap);
}

CUresult weir_soft_cuArray3DCreate_v2(CUarray *ret, const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_ctx *ctx;
    WEIR_FAIL_IF(!ret || !desc, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_soft_ctx_current(&ctx));
    WEIR_TRY(check_desc(desc));
    struct weir_soft_array *array =
        weir_soft_object_new(WEIR_SOFT_ARRAY, sizeof(*array), ctx, array_release);
    WEIR_FAIL_IF(!array, CUDA_ERROR_OUT_OF_MEMORY);
    array_shape(array, desc);
    array->memory = take_memory(ctx->device, array->bytes);
    if (!array->memory) {
        weir_soft_object_retire(array);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    array->base = (uint64_t)(uintptr_t)array->memory;
    *ret = (CUarray)array;
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *desc, CUarray handle)
{
    CUDA_ARRAY3D_DESCRIPTOR full;
    WEIR_FAIL_IF(!desc, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_soft_cuArray3DGetDescriptor_v2(&full, handle));
    *desc = (CUDA_ARRAY_DESCRIPTOR){.Width = full.Width,
                                    .Height = full.Height,
                                    .Format = full.Format,
                                    .NumChannels = full.NumChannels};
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuArrayDestroy(CUarray handle)
{
    weir_soft_device_free_slowly();
    WEIR_SOFT_LOCKED();
    struct weir_soft_array *array = weir_soft_object_find(WEIR_SOFT_ARRAY, handle);
    WEIR_FAIL_IF(!array, CUDA_ERROR_INVALID_HANDLE);
    WEIR_FAIL_IF(array->mipmap,
                 CUDA_ERROR_ARRAY_IS_MAPPED); /* a level belongs to its mipmapped array */
    weir_soft_ctx_settle(array->object.ctx);
    /* The array may have been destroyed meanwhile. */
    array = weir_soft_object_find(WEIR_SOFT_ARRAY, handle);
    if (array) {
        weir_soft_object_retire(array);
    }
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *out, CUarray handle,
                                                CUdevice dev)
{
    WEIR_SOFT_LOCKED();
    const struct weir_soft_array *array = weir_soft_object_find(WEIR_SOFT_ARRAY, handle);
    WEIR_FAIL_IF(!out || !weir_soft_device_at(dev), CUDA_ERROR_INVALID_VALUE);
    WEIR_FAIL_IF(!array, CUDA_ERROR_INVALID_HANDLE);
    memset(out, 0, sizeof(*out));
    out->size = array->bytes;
    out->alignment = TEXTURE_ALIGN;
    return CUDA_SUCCESS;
}

/* ------------------------------------------------------------------ mipmapped arrays */

static void mipmap_release(void *object)
{
    struct weir_soft_mipmap *mipmap = object;
    if (mipmap->memory) {
        give_memory(mipmap->object.ctx->device, mipmap->memory, mipmap->bytes);
    }
}

static CUDA_ARRAY3D_DESCRIPTOR level_desc(const CUDA_ARRAY3D_DESCRIPTOR *base, unsigned level)
{
    CUDA_ARRAY3D_DESCRIPTOR d = *base;
    bool layered = (d.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
    d.Width = at_least_one(d.Width >> level);
    d.Height = d.Height == 0 ? 0 : at_least_one(d.Height >> level);
    d.Depth = d.Depth == 0 || layered ? d.Depth : at_least_one(d.Depth >> level);
    return d;
}

CUresult weir_soft_cuMipmappedArrayCreate(CUmipmappedArray *ret,
                                          const CUDA_ARRAY3D_DESCRIPTOR *desc,
                                          unsigned int n_levels)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_ctx *ctx;
    WEIR_FAIL_IF(!ret || !desc || n_levels == 0, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_soft_ctx_current(&ctx));
    WEIR_TRY(check_desc(desc));
    n_levels = WEIR_MIN(n_levels, WEIR_SOFT_MAX_LEVELS);
    struct weir_soft_mipmap *mipmap =
        weir_soft_object_new(WEIR_SOFT_MIPMAP, sizeof(*mipmap), ctx, mipmap_release);
    WEIR_FAIL_IF(!mipmap, CUDA_ERROR_OUT_OF_MEMORY);
    mipmap->desc = *desc;
    uint64_t offset[WEIR_SOFT_MAX_LEVELS], bytes = 0;
    struct weir_soft_array shapes[WEIR_SOFT_MAX_LEVELS];
    for (unsigned i = 0; i < n_levels; i++) {
        CUDA_ARRAY3D_DESCRIPTOR d = level_desc(desc, i);
        offset[i] = bytes;
        array_shape(&shapes[i], &d);
        bytes += (shapes[i].bytes + TEXTURE_ALIGN - 1) & ~(uint64_t)(TEXTURE_ALIGN - 1);
    }
    mipmap->memory = take_memory(ctx->device, bytes);
    mipmap->bytes = !mipmap->memory ? 0 : bytes;
    bool good = mipmap->memory != NULL;
    for (unsigned i = 0; i < n_levels && good; i++) {
        struct weir_soft_array *level =
            weir_soft_object_new(WEIR_SOFT_ARRAY, sizeof(*level), ctx, array_release);
        good = level != NULL;
        if (good) {
            array_shape(level, &shapes[i].desc);
            level->base = (uint64_t)(uintptr_t)mipmap->memory + offset[i];
            level->mipmap = weir_soft_object_ref(mipmap);
            mipmap->levels[i] = level;
            mipmap->n_levels = i + 1;
        }
    }
    if (!good) {
        for (unsigned i = 0; i < mipmap->n_levels; i++) {
            weir_soft_object_retire(mipmap->levels[i]);
        }
        weir_soft_object_retire(mipmap);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *ret = (CUmipmappedArray)mipmap;
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuMipmappedArrayGetLevel(CUarray *ret, CUmipmappedArray handle,
                                            unsigned int level)
{
    WEIR_SOFT_LOCKED();
    const struct weir_soft_mipmap *mipmap = weir_soft_object_find(WEIR_SOFT_MIPMAP, handle);
    WEIR_FAIL_IF(!mipmap, CUDA_ERROR_INVALID_HANDLE);
    WEIR_FAIL_IF(!ret || level >= mipmap->n_levels, CUDA_ERROR_INVALID_VALUE);
    *ret = (CUarray)mipmap->levels[level];
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuMipmappedArrayDestroy(CUmipmappedArray handle)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_mipmap *mipmap = weir_soft_object_find(WEIR_SOFT_MIPMAP, handle);
    WEIR_FAIL_IF(!mipmap, CUDA_ERROR_INVALID_HANDLE);
    weir_soft_ctx_settle(mipmap->object.ctx);
    /* The array may have been destroyed meanwhile. */
    mipmap = weir_soft_object_find(WEIR_SOFT_MIPMAP, handle);
    if (!mipmap) {
        return CUDA_SUCCESS;
    }
    weir_soft_object_ref(mipmap);
    for (unsigned i = 0; i < mipmap->n_levels; i++) {
        weir_soft_object_retire(mipmap->levels[i]);
    }
    weir_soft_object_retire(mipmap);
    weir_soft_object_put(mipmap);
    return CUDA_SUCCESS;
}

/* ------------------------------------------------------------------ texture and surface objects */

static struct weir_soft_texture *textures;

static bool exec_format(CUarray_format format, enum weir_exec_texture_format *ret)
{
    static const struct {
        CUarray_format format;
        enum weir_exec_texture_format exec;
    } map[] = {
        {CU_AD_FORMAT_UNSIGNED_INT8, WEIR_EXEC_TEX_U8},
        {CU_AD_FORMAT_UNSIGNED_INT16, WEIR_EXEC_TEX_U16},
        {CU_AD_FORMAT_UNSIGNED_INT32, WEIR_EXEC_TEX_U32},
        {CU_AD_FORMAT_SIGNED_INT8, WEIR_EXEC_TEX_S8},
        {CU_AD_FORMAT_SIGNED_INT16, WEIR_EXEC_TEX_S16},
        {CU_AD_FORMAT_SIGNED_INT32, WEIR_EXEC_TEX_S32},
        {CU_AD_FORMAT_HALF, WEIR_EXEC_TEX_F16},
        {CU_AD_FORMAT_FLOAT, WEIR_EXEC_TEX_F32},
    };
    for (size_t i = 0; i < WEIR_COUNT(map); i++) {
        if (map[i].format == format) {
            *ret = map[i].exec;
            return true;
        }
    }
    return false;
}

static void level_of(const struct weir_soft_array *array, struct weir_exec_texture_level *level)
{
    *level = (struct weir_exec_texture_level){.base = array->base,
                                              .width = array->desc.Width,
                                              .height = array->desc.Height,
                                              .depth = array->desc.Depth,
                                              .row_bytes = array->row_bytes,
                                              .slice_bytes = array->slice_bytes};
}

static CUresult fill_array(const CUDA_ARRAY3D_DESCRIPTOR *desc, struct weir_exec_texture *out)
{
    out->channels = desc->NumChannels;
    out->layered = (desc->Flags & CUDA_ARRAY3D_LAYERED) != 0;
    out->cubemap = (desc->Flags & CUDA_ARRAY3D_CUBEMAP) != 0;
    return exec_format(desc->Format, &out->format) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult fill_linear(CUdeviceptr base, CUarray_format format, unsigned channels,
                            uint64_t width, uint64_t height, uint64_t pitch,
                            struct weir_exec_texture *out)
{
    uint64_t texel = (uint64_t)weir_format_bytes(format) * channels;
    const struct weir_soft_alloc *alloc = weir_soft_space_find(base);
    uint64_t bytes;
    if (!exec_format(format, &out->format) || (channels != 1 && channels != 2 && channels != 4) ||
        width == 0 || width > UINT32_MAX ||
        __builtin_mul_overflow(pitch, height == 0 ? 1 : height, &bytes) || !alloc ||
        pitch < width * texel || bytes > alloc->bytes - (base - alloc->base)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    out->channels = channels;
    out->n_levels = 1;
    out->levels[0] = (struct weir_exec_texture_level){
        .base = base, .width = width, .height = height, .row_bytes = pitch};
    return CUDA_SUCCESS;
}

static CUresult fill_resource(const CUDA_RESOURCE_DESC *r, struct weir_exec_texture *out,
                              void **ret_owner)
{
    *ret_owner = NULL;
    switch ((int)r->resType) {
    case CU_RESOURCE_TYPE_ARRAY: {
        struct weir_soft_array *array = weir_soft_object_find(WEIR_SOFT_ARRAY, r->res.array.hArray);
        WEIR_FAIL_IF(!array, CUDA_ERROR_INVALID_VALUE);
        level_of(array, &out->levels[0]);
        out->n_levels = 1;
        *ret_owner = array;
        return fill_array(&array->desc, out);
    }
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY: {
        struct weir_soft_mipmap *mipmap =
            weir_soft_object_find(WEIR_SOFT_MIPMAP, r->res.mipmap.hMipmappedArray);
        WEIR_FAIL_IF(!mipmap, CUDA_ERROR_INVALID_VALUE);
        for (unsigned i = 0; i < mipmap->n_levels; i++) {
            level_of(mipmap->levels[i], &out->levels[i]);
        }
        out->n_levels = mipmap->n_levels;
        *ret_owner = mipmap;
        return fill_array(&mipmap->desc, out);
    }
    case CU_RESOURCE_TYPE_LINEAR: {
        uint64_t texel =
            (uint64_t)weir_format_bytes(r->res.linear.format) * r->res.linear.numChannels;
        uint64_t width = texel == 0 ? 0 : r->res.linear.sizeInBytes / texel;
        return fill_linear(r->res.linear.devPtr, r->res.linear.format, r->res.linear.numChannels,
                           width, 0, width * texel, out);
    }
    case CU_RESOURCE_TYPE_PITCH2D:
        WEIR_FAIL_IF(r->res.pitch2D.height == 0, CUDA_ERROR_INVALID_VALUE);
        return fill_linear(r->res.pitch2D.devPtr, r->res.pitch2D.format, r->res.pitch2D.numChannels,
                           r->res.pitch2D.width, r->res.pitch2D.height, r->res.pitch2D.pitchInBytes,
                           out);
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static CUresult fill_sampling(const CUDA_TEXTURE_DESC *d, struct weir_exec_texture *out)
{
    for (int i = 0; i < 3; i++) {
        WEIR_FAIL_IF((unsigned)d->addressMode[i] > CU_TR_ADDRESS_MODE_BORDER,
                     CUDA_ERROR_INVALID_VALUE);
        out->address[i] = (enum weir_exec_texture_address)d->addressMode[i];
    }
    WEIR_FAIL_IF((unsigned)d->filterMode > CU_TR_FILTER_MODE_LINEAR, CUDA_ERROR_INVALID_VALUE);
    out->normalized_coords = (d->flags & CU_TRSF_NORMALIZED_COORDINATES) != 0;
    out->read_as_integer = (d->flags & CU_TRSF_READ_AS_INTEGER) != 0;
    out->srgb = (d->flags & CU_TRSF_SRGB) != 0;
    out->linear_filter = d->filterMode == CU_TR_FILTER_MODE_LINEAR;
    memcpy(out->border, d->borderColor, sizeof(out->border));
    return CUDA_SUCCESS;
}

static CUresult object_make(uint64_t *ret, const CUDA_RESOURCE_DESC *resource,
                            const CUDA_TEXTURE_DESC *desc, const CUDA_RESOURCE_VIEW_DESC *view)
{
    struct weir_soft_ctx *ctx;
    struct weir_exec_texture exec = {.surface = !desc};
    void *owner;
    WEIR_TRY(weir_soft_ctx_current(&ctx));
    WEIR_TRY(fill_resource(resource, &exec, &owner));
    if (desc) {
        WEIR_TRY(fill_sampling(desc, &exec));
    }
    struct weir_soft_texture *texture = calloc(1, sizeof(*texture));
    enum weir_status status =
        !texture ? WEIR_ERR_NO_MEMORY : weir_exec_texture_register(&exec, &texture->value);
    if (status != WEIR_OK) {
        free(texture);
        return status == WEIR_ERR_UNSUPPORTED ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_OUT_OF_MEMORY;
    }
    texture->is_surface = !desc;
    texture->resource = *resource;
    texture->owner = weir_soft_object_ref(owner);
    if (desc) {
        texture->desc = *desc;
    }
    if (view) {
        texture->view = *view;
    }
    WEIR_PUSH(textures, texture);
    *ret = texture->value;
    return CUDA_SUCCESS;
}

static CUresult object_destroy(uint64_t value, bool is_surface)
{
    for (struct weir_soft_texture **at = &textures; *at; at = &(*at)->next) {
        struct weir_soft_texture *texture = *at;
        if (texture->value == value && texture->is_surface == is_surface) {
            *at = texture->next;
            (void)!weir_exec_texture_unregister(value);
            weir_soft_object_put(texture->owner);
            free(texture);
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_INVALID_VALUE;
}

static const struct weir_soft_texture *object_find(uint64_t value, bool is_surface)
{
    for (const struct weir_soft_texture *t = textures; t; t = t->next) {
        if (t->value == value && t->is_surface == is_surface) {
            return t;
        }
    }
    return NULL;
}

const struct weir_soft_texture *weir_soft_texture_find(CUtexObject object)
{
    return object_find(object, false);
}

const struct weir_soft_texture *weir_soft_surface_find(CUsurfObject object)
{
    return object_find(object, true);
}

CUresult weir_soft_cuTexObjectCreate(CUtexObject *ret, const CUDA_RESOURCE_DESC *resource,
                                     const CUDA_TEXTURE_DESC *desc,
                                     const CUDA_RESOURCE_VIEW_DESC *view)
{
    WEIR_SOFT_LOCKED();
    uint64_t value;
    WEIR_FAIL_IF(!ret || !resource || !desc, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(object_make(&value, resource, desc, view));
    *ret = value;
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuTexObjectDestroy(CUtexObject object)
{
    WEIR_SOFT_LOCKED();
    return object_destroy(object, false);
}

CUresult weir_soft_cuSurfObjectCreate(CUsurfObject *ret, const CUDA_RESOURCE_DESC *resource)
{
    WEIR_SOFT_LOCKED();
    uint64_t value;
    WEIR_FAIL_IF(!ret || !resource || resource->resType != CU_RESOURCE_TYPE_ARRAY,
                 CUDA_ERROR_INVALID_VALUE);
    const struct weir_soft_array *array =
        weir_soft_object_find(WEIR_SOFT_ARRAY, resource->res.array.hArray);
    WEIR_FAIL_IF(!array || (array->desc.Flags & CUDA_ARRAY3D_SURFACE_LDST) == 0,
                 CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(object_make(&value, resource, NULL, NULL));
    *ret = value;
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuSurfObjectDestroy(CUsurfObject object)
{
    WEIR_SOFT_LOCKED();
    return object_destroy(object, true);
}
