/* Allocates device, managed and host memory, and answers queries about addresses. */
#include "softgpu/driver/driver.h"
#include "softgpu/memory.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE_BYTES 4096u

CUresult weir_soft_cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_ctx *ctx;
    WEIR_TRY(weir_soft_ctx_current(&ctx));
    WEIR_GIVE(total_bytes, ctx->device->total_bytes);
    WEIR_GIVE(free_bytes, weir_soft_device_free_bytes(ctx->device));
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuMemAlloc_v2(CUdeviceptr *ret, size_t bytes)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_ctx *ctx;
    struct weir_soft_alloc *alloc;
    WEIR_FAIL_IF(!ret || bytes == 0, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_soft_ctx_current(&ctx));
    WEIR_TRY(weir_soft_space_alloc(ctx, bytes, 0, WEIR_SOFT_ALLOC_DEVICE, &alloc));
    *ret = alloc->base;
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuMemAllocManaged(CUdeviceptr *ret, size_t bytes, unsigned int flags)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_ctx *ctx;
    struct weir_soft_alloc *alloc;
    if (!ret || bytes == 0 || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    WEIR_TRY(weir_soft_ctx_current(&ctx));
    WEIR_TRY(weir_soft_space_alloc(ctx, bytes, PAGE_BYTES, WEIR_SOFT_ALLOC_MANAGED, &alloc));
    alloc->flags = flags;
    *ret = alloc->base;
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuMemFree_v2(CUdeviceptr address)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_ctx *ctx;
    WEIR_TRY(weir_soft_ctx_current(&ctx));
    if (address == 0) {
        return CUDA_SUCCESS;
    }
    struct weir_soft_alloc *alloc = weir_soft_space_at(address);
    if (!alloc || alloc->freeing ||
        (alloc->kind != WEIR_SOFT_ALLOC_DEVICE && alloc->kind != WEIR_SOFT_ALLOC_MANAGED &&
         alloc->kind != WEIR_SOFT_ALLOC_POOL && alloc->kind != WEIR_SOFT_ALLOC_GRAPH)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    uint64_t id = alloc->id;
    alloc->freeing = true;
    weir_soft_ctx_settle(alloc->ctx);
    alloc = weir_soft_space_at(address); /* the context may have been destroyed meanwhile, with all
                                            its memory */
    if (!alloc || alloc->id != id) {
        return CUDA_SUCCESS;
    }
    if (alloc->kind == WEIR_SOFT_ALLOC_GRAPH) {
        alloc->freeing = alloc->graph_live = false;
        return weir_soft_space_set_accessible(alloc, false);
    }
    weir_soft_space_free(alloc);
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr address)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_ctx *ctx;
    WEIR_TRY(weir_soft_ctx_current(&ctx));
    const struct weir_soft_alloc *alloc = weir_soft_space_find(address);
    WEIR_FAIL_IF(!alloc, CUDA_ERROR_NOT_FOUND);
    WEIR_GIVE(base, alloc->base);
    WEIR_GIVE(bytes, alloc->bytes);
    return CUDA_SUCCESS;
}

/* ------------------------------------------------------------------ host memory */

#define HOST_ALLOC_FLAGS                                                                           \
    (CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED)
#define HOST_REGISTER_FLAGS                                                                        \
    (CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_READ_ONLY)

CUresult weir_soft_cuMemHostAlloc(void **ret, size_t bytes, unsigned int flags)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_ctx *ctx;
    WEIR_FAIL_IF(!ret || (flags & ~HOST_ALLOC_FLAGS) != 0, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_soft_ctx_current(&ctx));
    if (bytes == 0) {
        *ret = NULL;
        return CUDA_SUCCESS;
    }
    WEIR_FAIL_IF(bytes > SIZE_MAX / 2, CUDA_ERROR_OUT_OF_MEMORY);
    size_t span = (bytes + PAGE_BYTES - 1) & ~(size_t)(PAGE_BYTES - 1);
    void *at = mmap(NULL, span, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    WEIR_FAIL_IF(at == MAP_FAILED, CUDA_ERROR_OUT_OF_MEMORY);
    struct weir_soft_alloc like = {.base = (uint64_t)(uintptr_t)at,
                                   .bytes = bytes,
                                   .kind = WEIR_SOFT_ALLOC_HOST,
                                   .ctx = ctx,
                                   .device = ctx->device,
                                   .flags = flags | CU_MEMHOSTALLOC_DEVICEMAP,
                                   .span_bytes = span,
                                   .map_base = (uint64_t)(uintptr_t)at};
    struct weir_soft_alloc *alloc;
    CUresult result = weir_soft_space_adopt(&like, WEIR_SOFT_READ | WEIR_SOFT_WRITE, &alloc);
    if (result != CUDA_SUCCESS) {
        munmap(at, span);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *ret = at;
    return CUDA_SUCCESS;
}

/* Free host memory once no work uses it. Meanwhile the lock may be free, and p another's. */
static void free_when_settled(struct weir_soft_alloc *alloc, void *p)
{
    uint64_t id = alloc->id;
    alloc->freeing = true;
    weir_soft_ctx_settle(alloc->ctx);
    alloc = weir_soft_space_at((uint64_t)(uintptr_t)p);
    if (alloc && alloc->id == id) {
        weir_soft_space_free(alloc);
    }
}

CUresult weir_soft_cuMemFreeHost(void *p)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_ctx *ctx;
    WEIR_TRY(weir_soft_ctx_current(&ctx));
    if (!p) {
        return CUDA_SUCCESS;
    }
    struct weir_soft_alloc *alloc = weir_soft_space_at((uint64_t)(uintptr_t)p);
    WEIR_FAIL_IF(!alloc || alloc->kind != WEIR_SOFT_ALLOC_HOST || alloc->freeing,
                 CUDA_ERROR_INVALID_VALUE);
    free_when_settled(alloc, p);
    return CUDA_SUCCESS;
}

/* Is the whole range mapped in this process? Otherwise a kernel would crash this process later. */
static bool is_mapped(uint64_t base, uint64_t bytes)
{
    enum { PAGES_AT_ONCE = 1024 };
    unsigned char vec[PAGES_AT_ONCE];
    uint64_t first = base & ~(uint64_t)(PAGE_BYTES - 1);
    uint64_t last = base + bytes;
    while (first < last) {
        uint64_t step = last - first;
        step = step > PAGES_AT_ONCE * PAGE_BYTES ? PAGES_AT_ONCE * PAGE_BYTES : step;
        if (mincore((void *)(uintptr_t)first, step, vec) != 0) {
            return errno != ENOMEM;
        }
        first += PAGES_AT_ONCE * PAGE_BYTES;
    }
    return true;
}

CUresult weir_soft_cuMemHostRegister_v2(void *p, size_t bytes, unsigned int flags)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_ctx *ctx;
    uint64_t base = (uint64_t)(uintptr_t)p;
    if (!p || bytes == 0 || base + bytes < base ||
        (flags & ~(HOST_REGISTER_FLAGS | CU_MEMHOSTREGISTER_IOMEMORY)) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    WEIR_TRY(weir_soft_ctx_current(&ctx));
    WEIR_FAIL_IF((flags & CU_MEMHOSTREGISTER_IOMEMORY) != 0, CUDA_ERROR_NOT_SUPPORTED);
    WEIR_FAIL_IF(!weir_soft_space_is_empty(base, bytes), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    WEIR_FAIL_IF(!is_mapped(base, bytes), CUDA_ERROR_INVALID_VALUE);
    struct weir_soft_alloc like = {.base = base,
                                   .bytes = bytes,
                                   .kind = WEIR_SOFT_ALLOC_REGISTERED,
                                   .ctx = ctx,
                                   .device = ctx->device,
                                   .flags = flags | CU_MEMHOSTREGISTER_DEVICEMAP};
    struct weir_soft_alloc *alloc;
    bool read_only = (flags & CU_MEMHOSTREGISTER_READ_ONLY) != 0;
    return weir_soft_space_adopt(
        &like, read_only ? WEIR_SOFT_READ : WEIR_SOFT_READ | WEIR_SOFT_WRITE, &alloc);
}

CUresult weir_soft_cuMemHostUnregister(void *p)
{
    weir_soft_device_free_slowly();
    WEIR_SOFT_LOCKED();
    struct weir_soft_ctx *ctx;
    WEIR_FAIL_IF(!p, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_soft_ctx_current(&ctx));
    struct weir_soft_alloc *alloc = weir_soft_space_at((uint64_t)(uintptr_t)p);
    WEIR_FAIL_IF(!alloc || alloc->kind != WEIR_SOFT_ALLOC_REGISTERED || alloc->freeing,
                 CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    free_when_settled(alloc, p);
    return CUDA_SUCCESS;
}

static bool is_host(const struct weir_soft_alloc *alloc)
{
    return alloc->kind == WEIR_SOFT_ALLOC_HOST || alloc->kind == WEIR_SOFT_ALLOC_REGISTERED;
}

CUresult weir_soft_cuMemHostGetDevicePointer_v2(CUdeviceptr *ret, void *p, unsigned int flags)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_ctx *ctx;
    WEIR_FAIL_IF(!ret || !p || flags != 0, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_soft_ctx_current(&ctx));
    const struct weir_soft_alloc *alloc = weir_soft_space_find((uint64_t)(uintptr_t)p);
    WEIR_FAIL_IF(!alloc || !is_host(alloc), CUDA_ERROR_INVALID_VALUE);
    *ret = (CUdeviceptr)(uintptr_t)p;
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuMemHostGetFlags(unsigned int *flags, void *p)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_ctx *ctx;
    WEIR_FAIL_IF(!flags || !p, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_soft_ctx_current(&ctx));
    const struct weir_soft_alloc *alloc = weir_soft_space_find((uint64_t)(uintptr_t)p);
    WEIR_FAIL_IF(!alloc || alloc->kind != WEIR_SOFT_ALLOC_HOST, CUDA_ERROR_INVALID_VALUE);
    *flags = alloc->flags;
    return CUDA_SUCCESS;
}
