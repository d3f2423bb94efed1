/* Allocation, pinned and registered memory. */
#include "guest_lib/memory.h"
#include "guest_lib/graph_mem.h"
#include "guest_lib/register.h"
#include "proto/guest_calls.h"
#include "proto/guest_hand.h"

#define KIND(kind) (1u << (kind))

CUresult weir_guest_cuMemGetInfo_v2(size_t *free, size_t *total)
{
    struct weir_guest_ctx *ctx;
    WEIR_TRY(weir_ctx_current(&ctx));
    struct weir_op_mem_info_out out = {0};
    (void)weir_pools_give_back(false);
    WEIR_TRY(weir_call_mem_info(weir_guest_channel(), NULL, &out));
    uint64_t available = out.free + weir_mem_cached_bytes(ctx->device);
    WEIR_GIVE(free, WEIR_MIN(available, out.total));
    WEIR_GIVE(total, out.total);
    return CUDA_SUCCESS;
}

CUresult weir_guest_cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
    struct weir_guest_ctx *ctx;
    WEIR_TRY(weir_ctx_current(&ctx));
    WEIR_FAIL_IF(!dptr, CUDA_ERROR_INVALID_VALUE);
    struct weir_mem mem;
    WEIR_TRY(weir_mem_alloc(ctx, WEIR_MEM_DEVICE, bytesize, 0, NULL, &mem));
    *dptr = mem.base;
    return CUDA_SUCCESS;
}

/* Wait for the memory's context, as the driver does: no work may use the memory once it is free. */
static CUresult free_memory(uint64_t address, uint32_t kinds)
{
    struct weir_mem mem;
    WEIR_FAIL_IF(!weir_mem_find(address, &mem) || mem.base != address || !(kinds >> mem.kind & 1),
                 CUDA_ERROR_INVALID_VALUE);
    WEIR_FAIL_IF(!weir_ctx_use(mem.ctx, NULL),
                 CUDA_ERROR_INVALID_VALUE); /* freed with its context, which is being destroyed */
    CUresult waited = weir_streams_wait_all(mem.ctx);
    WEIR_FAIL_IF(!weir_mem_remove(address, kinds, &mem),
                 CUDA_ERROR_INVALID_VALUE); /* another thread was first */
    if (mem.pool) {
        weir_pool_forget(&mem);
    }
    weir_mem_release(&mem);
    weir_guest_stream_run_actions();
    return weir_guest_result(waited);
}

CUresult weir_guest_cuMemFree_v2(CUdeviceptr dptr)
{
    struct weir_guest_ctx *ctx;
    CUresult result = weir_ctx_current(&ctx);
    if (result != CUDA_SUCCESS || !dptr) {
        return result;
    }
    struct weir_mem mem;
    if (weir_graph_mem_free(dptr, &result)) {
        return result;
    }
    if (weir_mem_find(dptr, &mem) && mem.base == dptr && weir_mem_is_pool_import(&mem)) {
        WEIR_TRY(weir_ctx_synchronize(ctx));
        return weir_pool_free_import(dptr);
    }
    return free_memory(dptr, KIND(WEIR_MEM_DEVICE) | KIND(WEIR_MEM_MANAGED));
}

CUresult weir_guest_cuMemGetAddressRange_v2(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr)
{
    struct weir_guest_ctx *ctx;
    WEIR_TRY(weir_ctx_current(&ctx));
    struct weir_mem mem;
    WEIR_FAIL_IF(!weir_mem_find(dptr, &mem) || mem.kind == WEIR_MEM_HOST, CUDA_ERROR_NOT_FOUND);
    WEIR_GIVE(pbase, mem.device_base ? mem.device_base : mem.base);
    WEIR_GIVE(psize, mem.bytes);
    return CUDA_SUCCESS;
}

/* ---------------------------------------------------------------- pinned */

CUresult weir_guest_cuMemHostAlloc(void **pp, size_t bytesize, unsigned int Flags)
{
    const unsigned int known =
        CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
    struct weir_guest_ctx *ctx;
    WEIR_TRY(weir_ctx_current(&ctx));
    WEIR_FAIL_IF(!pp || Flags & ~known, CUDA_ERROR_INVALID_VALUE);
    if (!bytesize) {
        *pp = NULL;
        return CUDA_SUCCESS;
    }
    struct weir_mem mem;
    unsigned int flags =
        Flags | CU_MEMHOSTALLOC_DEVICEMAP; /* with unified addresses all pinned memory is mapped */
    WEIR_TRY(weir_mem_alloc(ctx, WEIR_MEM_PINNED, bytesize, flags, NULL, &mem));
    *pp = (void *)(uintptr_t)mem.base;
    return CUDA_SUCCESS;
}

CUresult weir_guest_cuMemFreeHost(void *p)
{
    struct weir_guest_ctx *ctx;
    WEIR_TRY(weir_ctx_current(&ctx));
    if (!p) {
        return CUDA_SUCCESS;
    }
    return free_memory((uint64_t)(uintptr_t)p, KIND(WEIR_MEM_PINNED) | KIND(WEIR_MEM_HOST));
}

CUresult weir_guest_cuMemHostGetDevicePointer_v2(CUdeviceptr *pdptr, void *p, unsigned int Flags)
{
    struct weir_guest_ctx *ctx;
    WEIR_TRY(weir_ctx_current(&ctx));
    uint64_t address = (uint64_t)(uintptr_t)p;
    struct weir_mem mem;
    WEIR_FAIL_IF(!pdptr || Flags, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_register_reach(address));
    WEIR_FAIL_IF(!weir_mem_find(address, &mem) || weir_mem_on_device(&mem),
                 CUDA_ERROR_INVALID_VALUE);
    WEIR_FAIL_IF(!weir_mem_gpu_visible(&mem), CUDA_ERROR_NOT_SUPPORTED);
    *pdptr = mem.device_base + (address - mem.base);
    return CUDA_SUCCESS;
}

CUresult weir_guest_cuMemHostGetFlags(unsigned int *pFlags, void *p)
{
    struct weir_mem mem;
    if (!pFlags || !weir_mem_find((uint64_t)(uintptr_t)p, &mem) ||
        (mem.kind != WEIR_MEM_PINNED && mem.kind != WEIR_MEM_REGISTERED &&
         mem.kind != WEIR_MEM_HOST)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pFlags = mem.flags;
    return CUDA_SUCCESS;
}

CUresult weir_guest_cuMemHostRegister_v2(void *p, size_t bytesize, unsigned int Flags)
{
    const unsigned int known = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                               CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;
    struct weir_guest_ctx *ctx;
    WEIR_TRY(weir_ctx_current(&ctx));
    uint64_t base = (uint64_t)(uintptr_t)p;
    WEIR_FAIL_IF(!p || !bytesize || Flags & ~known || bytesize > UINT64_MAX / 2 - base,
                 CUDA_ERROR_INVALID_VALUE);
    return Flags & CU_MEMHOSTREGISTER_IOMEMORY ? CUDA_ERROR_NOT_SUPPORTED
                                               : weir_register_memory(ctx, base, bytesize, Flags);
}

CUresult weir_guest_cuMemHostUnregister(void *p)
{
    struct weir_guest_ctx *ctx;
    WEIR_TRY(weir_ctx_current(&ctx));
    uint64_t address = (uint64_t)(uintptr_t)p;
    struct weir_mem mem;
    if (!weir_mem_find(address, &mem)) {
        return p ? CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED : CUDA_ERROR_INVALID_VALUE;
    }
    WEIR_FAIL_IF(mem.kind != WEIR_MEM_REGISTERED || mem.base != address, CUDA_ERROR_INVALID_VALUE);
    if (mem.device_base || weir_copies_ordered_pending()) {
        return free_memory(address, KIND(WEIR_MEM_REGISTERED));
    }
    WEIR_FAIL_IF(!weir_mem_remove(address, KIND(WEIR_MEM_REGISTERED), &mem),
                 CUDA_ERROR_INVALID_VALUE); /* another thread was first */
    weir_mem_release(&mem);
    return weir_guest_report();
}

CUresult weir_guest_cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags)
{
    struct weir_guest_ctx *ctx;
    WEIR_TRY(weir_ctx_current(&ctx));
    WEIR_FAIL_IF(!dptr || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST),
                 CUDA_ERROR_INVALID_VALUE);
    WEIR_FAIL_IF(weir_guest.channel.remote, CUDA_ERROR_NOT_SUPPORTED);
    struct weir_mem mem;
    WEIR_TRY(weir_mem_alloc(ctx, WEIR_MEM_MANAGED, bytesize, flags, NULL, &mem));
    *dptr = mem.base;
    return CUDA_SUCCESS;
}
