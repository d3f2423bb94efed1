/*
 * Memory pools and stream-ordered allocation.
 *
 * The call itself allocates address and memory. The free runs in stream order, and later accesses
 * fault. A pool only counts: its reserved bytes follow the used bytes down to the release
 * threshold.
 */
#include "softgpu/driver/driver.h"

#include <stdlib.h>

CUresult weir_soft_pool_make(struct weir_soft_device *device, const CUmemPoolProps *props,
                             struct weir_soft_pool **ret_pool)
{
    struct weir_soft_pool *pool = weir_soft_object_new(WEIR_SOFT_POOL, sizeof(*pool), NULL, NULL);
    WEIR_FAIL_IF(!pool, CUDA_ERROR_OUT_OF_MEMORY);
    pool->device = device;
    pool->props = *props;
    pool->reuse[0] = pool->reuse[1] = pool->reuse[2] = 1;
    *ret_pool = pool;
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuMemPoolCreate(CUmemoryPool *ret, const CUmemPoolProps *props)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_pool *pool;
    WEIR_FAIL_IF(!ret || !props || props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED,
                 CUDA_ERROR_INVALID_VALUE);
    WEIR_FAIL_IF(props->location.type != CU_MEM_LOCATION_TYPE_DEVICE, CUDA_ERROR_NOT_SUPPORTED);
    struct weir_soft_device *device = weir_soft_device_at(props->location.id);
    WEIR_FAIL_IF(!device, CUDA_ERROR_INVALID_DEVICE);
    WEIR_FAIL_IF(props->handleTypes != CU_MEM_HANDLE_TYPE_NONE, CUDA_ERROR_NOT_SUPPORTED);
    WEIR_TRY(weir_soft_pool_make(device, props, &pool));
    *ret = (CUmemoryPool)pool;
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuMemPoolDestroy(CUmemoryPool handle)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_pool *pool = weir_soft_object_find(WEIR_SOFT_POOL, handle);
    WEIR_FAIL_IF(!pool || pool->is_default, CUDA_ERROR_INVALID_VALUE);
    if (pool->device->current_pool == pool) {
        pool->device->current_pool = pool->device->default_pool;
    }
    weir_soft_object_retire(pool); /* the pool lives until its last allocation is freed */
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuMemPoolTrimTo(CUmemoryPool handle, size_t keep)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_pool *pool = weir_soft_object_find(WEIR_SOFT_POOL, handle);
    WEIR_FAIL_IF(!pool, CUDA_ERROR_INVALID_VALUE);
    uint64_t least = WEIR_MAX(pool->used, keep);
    pool->reserved = WEIR_MIN(pool->reserved, least);
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute,
                                         void *value)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_pool *pool = weir_soft_object_find(WEIR_SOFT_POOL, handle);
    WEIR_FAIL_IF(!pool || !value, CUDA_ERROR_INVALID_VALUE);
    switch ((int)attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        pool->reuse[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES] =
            *(const int *)value != 0;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        pool->threshold = *(const uint64_t *)value;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        WEIR_FAIL_IF(*(const uint64_t *)value != 0, CUDA_ERROR_INVALID_VALUE);
        if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH) {
            pool->used_high = pool->used;
        } else {
            pool->reserved_high = pool->reserved;
        }
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult weir_soft_cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute,
                                         void *value)
{
    WEIR_SOFT_LOCKED();
    const struct weir_soft_pool *pool = weir_soft_object_find(WEIR_SOFT_POOL, handle);
    WEIR_FAIL_IF(!pool || !value, CUDA_ERROR_INVALID_VALUE);
    uint64_t *wide = value;
    switch ((int)attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        *(int *)value = pool->reuse[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES];
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        *wide = pool->threshold;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        *wide = pool->reserved;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        *wide = pool->reserved_high;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        *wide = pool->used;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        *wide = pool->used_high;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult weir_soft_cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc *descs,
                                      size_t count)
{
    WEIR_SOFT_LOCKED();
    const struct weir_soft_pool *pool = weir_soft_object_find(WEIR_SOFT_POOL, handle);
    WEIR_FAIL_IF(!pool || (!descs && count != 0), CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < count; i++) {
        if (descs[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
            !weir_soft_device_at(descs[i].location.id)) {
            return CUDA_ERROR_INVALID_DEVICE;
        }
        bool own = descs[i].location.id == pool->device->ordinal;
        WEIR_FAIL_IF(own && descs[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
                     CUDA_ERROR_INVALID_VALUE); /* the pool's own device always has access */
        WEIR_FAIL_IF(!own && descs[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE,
                     CUDA_ERROR_INVALID_DEVICE); /* no peer access */
    }
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool handle,
                                      CUmemLocation *location)
{
    WEIR_SOFT_LOCKED();
    const struct weir_soft_pool *pool = weir_soft_object_find(WEIR_SOFT_POOL, handle);
    WEIR_FAIL_IF(!flags || !location || !pool || location->type != CU_MEM_LOCATION_TYPE_DEVICE,
                 CUDA_ERROR_INVALID_VALUE);
    WEIR_FAIL_IF(!weir_soft_device_at(location->id), CUDA_ERROR_INVALID_DEVICE);
    *flags = location->id == pool->device->ordinal ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                                                   : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
}

/* ------------------------------------------------------------------ the device's pools */

CUresult weir_soft_cuDeviceSetMemPool(CUdevice dev, CUmemoryPool handle)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_device *device = weir_soft_device_at(dev);
    struct weir_soft_pool *pool = weir_soft_object_find(WEIR_SOFT_POOL, handle);
    WEIR_FAIL_IF(!device, CUDA_ERROR_INVALID_DEVICE);
    WEIR_FAIL_IF(!pool || pool->device != device, CUDA_ERROR_INVALID_VALUE);
    device->current_pool = pool;
    return CUDA_SUCCESS;
}

/* ------------------------------------------------------------------ allocation in stream order */

static CUresult alloc_from(CUdeviceptr *ret, size_t bytes, CUmemoryPool handle, bool current,
                           CUstream stream_handle)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_ctx *ctx;
    struct weir_soft_stream *stream;
    struct weir_soft_alloc *alloc;
    WEIR_TRY(weir_soft_ctx_current(&ctx));
    struct weir_soft_pool *pool =
        current ? ctx->device->current_pool : weir_soft_object_find(WEIR_SOFT_POOL, handle);
    WEIR_FAIL_IF(!ret || bytes == 0 || !pool, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_soft_stream_find(stream_handle, &stream));
    if (stream->capture) {
        struct weir_soft_op *op = weir_soft_op_new(WEIR_SOFT_OP_ALLOC, ctx);
        WEIR_FAIL_IF(!op, CUDA_ERROR_OUT_OF_MEMORY);
        op->alloc.asked.poolProps = pool->props;
        op->alloc.asked.bytesize = bytes;
        WEIR_TRY(weir_soft_graph_memory_make(op));
        uint64_t address = op->alloc.asked.dptr;
        WEIR_TRY(weir_soft_stream_submit(stream, op));
        *ret = address;
        return CUDA_SUCCESS;
    }
    WEIR_TRY(weir_soft_capture_check_legacy(stream->legacy ? ctx : NULL));
    WEIR_TRY(weir_soft_capture_check(NULL));
    WEIR_FAIL_IF(pool->props.maxSize != 0 && bytes > pool->props.maxSize - pool->used,
                 CUDA_ERROR_OUT_OF_MEMORY);
    WEIR_TRY(weir_soft_space_alloc(ctx, bytes, 0, WEIR_SOFT_ALLOC_POOL, &alloc));
    alloc->pool = weir_soft_object_ref(pool);
    weir_soft_pool_account(pool, (int64_t)bytes);
    *ret = alloc->base;
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuMemAllocAsync(CUdeviceptr *ret, size_t bytes, CUstream stream)
{
    return alloc_from(ret, bytes, NULL, true, stream);
}

CUresult weir_soft_cuMemAllocFromPoolAsync(CUdeviceptr *ret, size_t bytes, CUmemoryPool pool,
                                           CUstream stream)
{
    return alloc_from(ret, bytes, pool, false, stream);
}

CUresult weir_soft_cuMemFreeAsync(CUdeviceptr address, CUstream stream_handle)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_ctx *ctx;
    struct weir_soft_stream *stream;
    WEIR_TRY(weir_soft_ctx_current(&ctx));
    WEIR_TRY(weir_soft_stream_find(stream_handle, &stream));
    struct weir_soft_alloc *alloc = weir_soft_space_at(address);
    if (!alloc || alloc->freeing ||
        (alloc->kind != WEIR_SOFT_ALLOC_POOL && alloc->kind != WEIR_SOFT_ALLOC_GRAPH &&
         alloc->kind != WEIR_SOFT_ALLOC_DEVICE)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!stream->capture) {
        WEIR_TRY(weir_soft_capture_check(NULL));
        alloc->graph_live = false;
    }
    struct weir_soft_op *op = weir_soft_op_new(WEIR_SOFT_OP_FREE, ctx);
    WEIR_FAIL_IF(!op, CUDA_ERROR_OUT_OF_MEMORY);
    op->free.address = address;
    op->free.id = alloc->id;
    bool once = alloc->kind != WEIR_SOFT_ALLOC_GRAPH && !stream->capture;
    alloc->freeing = alloc->freeing || once;
    CUresult result = weir_soft_stream_submit(stream, op);
    if (result != CUDA_SUCCESS && once) {
        alloc->freeing = false;
    }
    return result;
}
