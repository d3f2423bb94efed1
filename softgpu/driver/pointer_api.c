/*
 * cuPointerGetAttribute(s), and advice on managed ranges.
 *
 * For an unknown address cuPointerGetAttribute returns CUDA_ERROR_INVALID_VALUE and
 * cuPointerGetAttributes gives neutral values. Callers recognise pageable memory by that.
 */
#include "softgpu/driver/driver.h"

#include <stdlib.h>
#include <string.h>

static bool is_host(const struct weir_soft_alloc *alloc)
{
    return alloc->kind == WEIR_SOFT_ALLOC_HOST || alloc->kind == WEIR_SOFT_ALLOC_REGISTERED ||
           (alloc->kind == WEIR_SOFT_ALLOC_MAPPED && !alloc->chunk->device);
}

static size_t attribute_bytes(CUpointer_attribute attribute)
{
    switch ((int)attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        return 8;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        return 4;
    default:
        return 0; /* P2P tokens need the kernel driver */
    }
}

/* Returns the value as 64 bits; the caller stores only the attribute's size. */
static CUresult attribute_value(const struct weir_soft_alloc *a, CUpointer_attribute attribute,
                                uint64_t address, uint64_t *ret_value)
{
    bool pool = a->kind == WEIR_SOFT_ALLOC_POOL;
    switch ((int)attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *ret_value = pool || a->kind == WEIR_SOFT_ALLOC_MAPPED ? 0 : (uint64_t)(uintptr_t)a->ctx;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *ret_value = is_host(a) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *ret_value = address;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        *ret_value = address;
        return is_host(a) || a->kind == WEIR_SOFT_ALLOC_MANAGED ? CUDA_SUCCESS
                                                                : CUDA_ERROR_INVALID_VALUE;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        *ret_value = a->sync_memops;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        *ret_value = a->id;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *ret_value = a->kind == WEIR_SOFT_ALLOC_MANAGED;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *ret_value = (uint64_t)(int64_t)a->device->ordinal;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *ret_value = a->kind == WEIR_SOFT_ALLOC_DEVICE;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        *ret_value = a->base;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        *ret_value = a->bytes;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        *ret_value = a->accessible;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *ret_value = a->chunk  ? (uint64_t)a->chunk->prop.requestedHandleTypes
                     : a->pool ? (uint64_t)a->pool->props.handleTypes
                               : 0;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        *ret_value = 0;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        *ret_value = !a->accessible ? CU_MEM_ACCESS_FLAGS_PROT_NONE
                     : a->read_only ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                    : CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *ret_value = (uint64_t)(uintptr_t)a->pool;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult weir_soft_cuPointerGetAttribute(void *data, CUpointer_attribute attribute,
                                         CUdeviceptr address)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_ctx *ctx;
    size_t bytes = attribute_bytes(attribute);
    WEIR_FAIL_IF(!data || bytes == 0, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_soft_ctx_current(&ctx));
    const struct weir_soft_alloc *alloc = weir_soft_space_find(address);
    uint64_t value;
    WEIR_FAIL_IF(!alloc, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(attribute_value(alloc, attribute, address, &value));
    memcpy(data, &value, bytes); /* little endian: the low bytes */
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuPointerGetAttributes(unsigned int n, CUpointer_attribute *attributes,
                                          void **data, CUdeviceptr address)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_ctx *ctx;
    WEIR_FAIL_IF(n == 0 || !attributes || !data, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_soft_ctx_current(&ctx));
    for (unsigned i = 0; i < n; i++) {
        WEIR_FAIL_IF(!data[i] || attribute_bytes(attributes[i]) == 0, CUDA_ERROR_INVALID_VALUE);
    }
    const struct weir_soft_alloc *alloc = weir_soft_space_find(address);
    for (unsigned i = 0; i < n; i++) {
        uint64_t value = 0;
        if (!alloc) {
            value = attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL ? (uint64_t)-2
                    : attributes[i] == CU_POINTER_ATTRIBUTE_HOST_POINTER ? address
                                                                         : 0;
        } else if (attribute_value(alloc, attributes[i], address, &value) != CUDA_SUCCESS) {
            value = 0;
        }
        memcpy(data[i], &value, attribute_bytes(attributes[i]));
    }
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuPointerSetAttribute(const void *value, CUpointer_attribute attribute,
                                         CUdeviceptr address)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_ctx *ctx;
    WEIR_FAIL_IF(!value || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_soft_ctx_current(&ctx));
    struct weir_soft_alloc *alloc = weir_soft_space_find(address);
    WEIR_FAIL_IF(!alloc || is_host(alloc), CUDA_ERROR_INVALID_VALUE);
    alloc->sync_memops = *(const unsigned int *)value != 0;
    return CUDA_SUCCESS;
}

/* ------------------------------------------------------------------ managed ranges */

static CUresult managed_range(CUdeviceptr address, size_t bytes, struct weir_soft_alloc **ret_alloc)
{
    struct weir_soft_ctx *ctx;
    WEIR_TRY(weir_soft_ctx_current(&ctx));
    struct weir_soft_alloc *alloc = weir_soft_space_find(address);
    if (bytes == 0 || !alloc || alloc->kind != WEIR_SOFT_ALLOC_MANAGED ||
        bytes > alloc->bytes - (address - alloc->base)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *ret_alloc = alloc;
    return CUDA_SUCCESS;
}

static CUresult say(CUdeviceptr address, size_t bytes, CUmem_advise advice, CUmemLocation at)
{
    bool exists = at.type == CU_MEM_LOCATION_TYPE_DEVICE && weir_soft_device_at(at.id);
    struct weir_soft_alloc *alloc;
    WEIR_TRY(managed_range(address, bytes, &alloc));
    WEIR_TRY(weir_advice_check(advice, &at, exists));
    const struct weir_advice_span span = {alloc->base, alloc->bytes, address, bytes};
    return weir_advice_say(&alloc->advice, &span, advice, at) ? CUDA_SUCCESS
                                                              : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult weir_soft_cuMemAdvise_v2(CUdeviceptr address, size_t bytes, CUmem_advise advice,
                                  CUmemLocation location)
{
    WEIR_SOFT_LOCKED();
    return advice == WEIR_ADVICE_PREFETCH ? CUDA_ERROR_INVALID_VALUE
                                          : say(address, bytes, advice, location);
}

CUresult weir_soft_cuMemAdvise(CUdeviceptr address, size_t bytes, CUmem_advise advice, CUdevice dev)
{
    return weir_soft_cuMemAdvise_v2(address, bytes, advice, weir_advice_location(dev));
}

CUresult weir_soft_cuMemPrefetchAsync_v2(CUdeviceptr address, size_t bytes, CUmemLocation location,
                                         unsigned int flags, CUstream stream)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_stream *s;
    WEIR_FAIL_IF(flags != 0, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_soft_stream_find(stream, &s));
    return say(address, bytes, WEIR_ADVICE_PREFETCH, location);
}

CUresult weir_soft_cuMemPrefetchAsync(CUdeviceptr address, size_t bytes, CUdevice dev,
                                      CUstream stream)
{
    return weir_soft_cuMemPrefetchAsync_v2(address, bytes, weir_advice_location(dev), 0, stream);
}

CUresult weir_soft_cuMemDiscardBatchAsync(CUdeviceptr *addresses, size_t *sizes, size_t count,
                                          unsigned long long flags, CUstream stream)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_stream *s;
    struct weir_soft_alloc *alloc;
    if (!addresses || !sizes || count == 0 || flags != 0 || !stream || stream == CU_STREAM_LEGACY) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    WEIR_TRY(weir_soft_stream_find(stream, &s));
    for (size_t i = 0; i < count; i++) {
        WEIR_TRY(managed_range(addresses[i], sizes[i], &alloc)); /* contents may stay: allowed */
    }
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr *addresses, size_t *sizes,
                                                     size_t count, CUmemLocation *locations,
                                                     size_t *first, size_t n_locations,
                                                     unsigned long long flags, CUstream stream)
{
    WEIR_TRY(weir_soft_cuMemDiscardBatchAsync(addresses, sizes, count, flags, stream));
    return weir_soft_cuMemPrefetchBatchAsync(addresses, sizes, count, locations, first, n_locations,
                                             flags, stream);
}

CUresult weir_soft_cuMemRangeGetAttribute(void *data, size_t data_bytes,
                                          CUmem_range_attribute attribute, CUdeviceptr address,
                                          size_t bytes)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_alloc *alloc;
    WEIR_TRY(managed_range(address, bytes, &alloc));
    const struct weir_advice_span span = {alloc->base, alloc->bytes, address, bytes};
    return weir_advice_attribute(&alloc->advice, &span, attribute, data, data_bytes);
}
