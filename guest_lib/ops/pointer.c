/* Answers what an address is: pointer and range attributes, and hints on managed memory. */
#include "guest_lib/memory.h"
#include "guest_lib/module.h"
#include "guest_lib/moves.h"
#include "guest_lib/register.h"
#include "proto/guest_hand.h"
#include <string.h>

/* A value in the caller's type; bytes is its size. */
struct value {
    uint64_t bits;
    size_t bytes;
};

static struct value word(uint64_t bits)
{
    return (struct value){bits, 8};
}

static struct value flag(bool is)
{
    return (struct value){is, 4};
}

static CUmemorytype type_of(const struct weir_mem *mem)
{
    return weir_mem_on_device(mem) || mem->kind == WEIR_MEM_MANAGED ? CU_MEMORYTYPE_DEVICE
                                                                    : CU_MEMORYTYPE_HOST;
}

static const struct value no_value = {0};

static struct value host_pointer(const struct weir_mem *mem, uint64_t at)
{
    return !weir_mem_on_device(mem) || weir_mem_is_managed(mem) ? word(at) : no_value;
}

static struct value device_pointer(uint64_t at)
{
    struct weir_mem mem;
    bool visible = weir_register_reach(at) == CUDA_SUCCESS && weir_mem_find(at, &mem) &&
                   weir_mem_gpu_visible(&mem);
    return visible ? word(mem.device_base + (at - mem.base)) : no_value;
}

/* Get an attribute; one flat switch. */
static struct value value_of(const struct weir_mem *mem, CUpointer_attribute attribute, uint64_t at)
{
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        return word(mem->ctx ? mem->ctx->handle : 0);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        return (struct value){type_of(mem), 4};
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        return device_pointer(at);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        return host_pointer(mem, at);
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        return flag(mem->sync_memops);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        return word(mem->buffer_id);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        return flag(weir_mem_is_managed(mem));
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        return (struct value){(uint32_t)weir_mem_device(mem), 4};
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        return flag(mem->kind == WEIR_MEM_DEVICE && !mem->pool && !weir_guest.channel.remote);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        return word(mem->device_base ? mem->device_base : mem->base);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        return word(mem->bytes);
    case CU_POINTER_ATTRIBUTE_MAPPED:
        return flag(true);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        return word(mem->handle_types);
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        return flag(false);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        return (struct value){CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE, 4};
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        return word(mem->pool ? weir_pool_handle(mem->pool) : 0);
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
    default:
        return no_value;
    }
}

/* The value that the call for several attributes returns for memory unknown to CUDA. */
static struct value neutral(CUpointer_attribute attribute)
{
    switch ((int)attribute) {
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        return (struct value){(uint32_t)-2, 4};
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        return (struct value){0, 4};
    default:
        return word(0);
    }
}

CUresult weir_guest_cuPointerGetAttribute(void *data, CUpointer_attribute attribute,
                                          CUdeviceptr ptr)
{
    struct weir_mem mem;
    WEIR_FAIL_IF(!data || !weir_mem_find(ptr, &mem), CUDA_ERROR_INVALID_VALUE);
    struct value value = value_of(&mem, attribute, ptr);
    memcpy(data, &value.bits, value.bytes);
    return value.bytes != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult weir_guest_cuPointerGetAttributes(unsigned int numAttributes,
                                           CUpointer_attribute *attributes, void **data,
                                           CUdeviceptr ptr)
{
    WEIR_FAIL_IF(!attributes || !data || !numAttributes, CUDA_ERROR_INVALID_VALUE);
    struct weir_mem mem;
    bool known = weir_mem_find(ptr, &mem);
    for (unsigned int i = 0; i < numAttributes; i++) {
        WEIR_FAIL_IF(!data[i], CUDA_ERROR_INVALID_VALUE);
        struct value value = known ? value_of(&mem, attributes[i], ptr) : no_value;
        if (value.bytes == 0) {
            /* For unknown memory, driver 580 returns the address itself as host pointer. */
            bool host = !known && attributes[i] == CU_POINTER_ATTRIBUTE_HOST_POINTER;
            value = host ? word(ptr) : neutral(attributes[i]);
        }
        memcpy(data[i], &value.bits, value.bytes);
    }
    return CUDA_SUCCESS;
}

CUresult weir_guest_cuPointerSetAttribute(const void *value, CUpointer_attribute attribute,
                                          CUdeviceptr ptr)
{
    WEIR_FAIL_IF(!value || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, CUDA_ERROR_INVALID_VALUE);
    uint32_t on;
    memcpy(&on, value, sizeof on);
    return weir_mem_set_sync(ptr, on != 0) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---------------------------------------------------------------- hints */

CUresult weir_mem_check_managed(uint64_t address, uint64_t bytes, struct weir_mem *ret_mem)
{
    struct weir_guest_ctx *ctx;
    WEIR_TRY(weir_ctx_current(&ctx));
    return bytes && weir_mem_check(address, bytes, ret_mem) == CUDA_SUCCESS &&
                   weir_mem_is_managed(ret_mem)
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

static CUresult check_advice(CUmem_advise advice, CUmemLocation *at)
{
    return weir_advice_check(
        advice, at, at->type == CU_MEM_LOCATION_TYPE_DEVICE && weir_guest_device_get(at->id));
}

/* Memory lies on the host or on its own device. From others it is reached as a peer's. */
static enum weir_managed_place place_of(const struct weir_mem *mem, CUmem_advise advice,
                                        CUmemLocation at)
{
    if (advice == CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION) {
        return WEIR_MANAGED_ANYWHERE;
    }
    if (at.type != CU_MEM_LOCATION_TYPE_DEVICE) {
        return WEIR_MANAGED_ON_HOST;
    }
    return at.id == mem->device ? WEIR_MANAGED_ON_DEVICE : WEIR_MANAGED_ANYWHERE;
}

CUresult weir_guest_cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, CUmem_advise advice,
                                   CUmemLocation location)
{
    struct weir_mem mem;
    WEIR_TRY(weir_mem_check_managed(devPtr, count, &mem));
    WEIR_TRY(advice == WEIR_ADVICE_PREFETCH ? CUDA_ERROR_INVALID_VALUE
                                            : check_advice(advice, &location));
    WEIR_TRY(weir_mem_advise(devPtr, count, advice, location));
    if (mem.moves && (advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION ||
                      advice == CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION)) {
        weir_moves_place(devPtr, count, place_of(&mem, advice, location));
    }
    return CUDA_SUCCESS;
}

CUresult weir_guest_cuMemAdvise(CUdeviceptr devPtr, size_t count, CUmem_advise advice,
                                CUdevice device)
{
    return weir_guest_cuMemAdvise_v2(devPtr, count, advice, weir_advice_location(device));
}

CUresult weir_guest_cuMemPrefetchAsync_v2(CUdeviceptr devPtr, size_t count, CUmemLocation location,
                                          unsigned int flags, CUstream hStream)
{
    struct weir_guest_stream *stream;
    struct weir_mem mem;
    CUresult result = flags ? CUDA_ERROR_INVALID_VALUE : weir_guest_stream_get(hStream, &stream);
    WEIR_THEN(result, check_advice(WEIR_ADVICE_PREFETCH, &location));
    WEIR_THEN(result, weir_mem_check_managed(devPtr, count, &mem));
    WEIR_THEN(result, weir_mem_advise(devPtr, count, WEIR_ADVICE_PREFETCH, location));
    if (result != CUDA_SUCCESS || !weir_mem_moves(&mem) || weir_guest_capturing()) {
        return result;
    }
    if (location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
        return weir_moves_any() ? weir_moves_take(devPtr, count) : CUDA_SUCCESS;
    }
    WEIR_TRY(weir_guest_stream_synchronize(stream));
    return weir_moves_fetch(devPtr, count);
}

CUresult weir_guest_cuMemPrefetchAsync(CUdeviceptr devPtr, size_t count, CUdevice dstDevice,
                                       CUstream hStream)
{
    return weir_guest_cuMemPrefetchAsync_v2(devPtr, count, weir_advice_location(dstDevice), 0,
                                            hStream);
}

CUresult weir_guest_cuMemRangeGetAttribute(void *data, size_t dataSize,
                                           CUmem_range_attribute attribute, CUdeviceptr devPtr,
                                           size_t count)
{
    struct weir_mem mem;
    WEIR_TRY(weir_mem_check_managed(devPtr, count, &mem));
    return weir_mem_advised(devPtr, count, attribute, data, dataSize);
}

/* Only check the arguments: contents that may be discarded may also stay. */
CUresult weir_guest_cuMemDiscardBatchAsync(CUdeviceptr *dptrs, size_t *sizes, size_t count,
                                           unsigned long long flags, CUstream hStream)
{
    struct weir_guest_stream *stream;
    struct weir_mem mem;
    if (!dptrs || !sizes || !count || flags || !hStream || hStream == CU_STREAM_LEGACY) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    WEIR_TRY(weir_guest_stream_get(hStream, &stream));
    for (size_t i = 0; i < count; i++) {
        WEIR_TRY(weir_mem_check_managed(dptrs[i], sizes[i], &mem));
    }
    return CUDA_SUCCESS;
}
