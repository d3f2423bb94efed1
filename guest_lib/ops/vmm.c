/*
 * Virtual memory management: the entry points, which check what needs no lock.
 *
 * Supported: memory of devices and of the host, exportable as a descriptor. Refused, as by a driver
 * whose device lacks the feature: fabric handles, compression pools, RDMA.
 */
#include "guest_lib/ops/forward.h"
#include "proto/guest_hand.h"
#include <string.h>

/* Host memory on a given node can be exported; host memory anywhere cannot. */
static CUresult check_host_place(const CUmemAllocationProp *prop)
{
    bool good = prop->location.type == CU_MEM_LOCATION_TYPE_HOST
                    ? !prop->requestedHandleTypes
                    : weir_advice_is_node(prop->location.id);
    WEIR_FAIL_IF(!good, CUDA_ERROR_INVALID_VALUE);
    return weir_guest.channel.passes_fds ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult check_place(const CUmemAllocationProp *prop)
{
    bool host = weir_guest_vmm_is_host_place(&prop->location);
    WEIR_FAIL_IF(!host && prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE,
                 CUDA_ERROR_INVALID_VALUE); /* also HOST_NUMA_CURRENT, as natively */
    weir_guest_vmm_name(host);
    if (host) {
        return check_host_place(prop);
    }
    return weir_guest_device_get(prop->location.id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult check_handle_types(unsigned int types)
{
    unsigned int known = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_WIN32 |
                         CU_MEM_HANDLE_TYPE_WIN32_KMT | CU_MEM_HANDLE_TYPE_FABRIC;
    WEIR_FAIL_IF(types & ~known, CUDA_ERROR_INVALID_VALUE);
    /* Accept descriptors in a remote session, too: programs that never export name them. Only
     * exporting is refused. */
    bool carried = !(types & ~(unsigned int)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    return carried ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult check_prop(const CUmemAllocationProp *prop)
{
    WEIR_FAIL_IF(!prop || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED, CUDA_ERROR_INVALID_VALUE);
    CUresult result = check_place(prop);
    result = result == CUDA_SUCCESS ? check_handle_types((unsigned int)prop->requestedHandleTypes)
                                    : result;
    if (result == CUDA_SUCCESS &&
        (prop->allocFlags.gpuDirectRDMACapable || prop->allocFlags.usage)) {
        result = CUDA_ERROR_NOT_SUPPORTED;
    }
    return result;
}

bool weir_guest_vmm_aligned(uint64_t value)
{
    return value % weir_guest_vmm_unit() == 0;
}

CUresult weir_guest_cuMemGetAllocationGranularity(size_t *granularity,
                                                  const CUmemAllocationProp *prop,
                                                  CUmemAllocationGranularity_flags option)
{
    if (!granularity || (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM &&
                         option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = check_prop(prop);
    /* Succeed also for host memory that does not exist here: NCCL falls back only if cuMemCreate
     * refuses. */
    if (result == CUDA_SUCCESS ||
        (result == CUDA_ERROR_NOT_SUPPORTED && weir_guest_vmm_is_host_place(&prop->location))) {
        *granularity = weir_guest_vmm_unit();
        result = CUDA_SUCCESS;
    }
    return result;
}

/* ---------------------------------------------------------------- addresses */

CUresult weir_guest_cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment,
                                        CUdeviceptr addr, unsigned long long flags)
{
    if (!ptr || !size || !weir_guest_vmm_aligned(size) || flags || (alignment & (alignment - 1))) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    uint64_t base;
    WEIR_TRY(weir_guest_vmm_reserve(size, alignment, addr, &base));
    *ptr = base;
    return CUDA_SUCCESS;
}

/* ---------------------------------------------------------------- memory */

CUresult weir_guest_cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
                                const CUmemAllocationProp *prop, unsigned long long flags)
{
    WEIR_FAIL_IF(!handle || !size || !weir_guest_vmm_aligned(size) || flags,
                 CUDA_ERROR_INVALID_VALUE);
    uint64_t made;
    WEIR_TRY(check_prop(prop));
    WEIR_TRY(weir_guest_vmm_create(size, prop, &made));
    *handle = made;
    return CUDA_SUCCESS;
}

/* ---------------------------------------------------------------- mappings */

static CUresult check_access(const CUmemAccessDesc *desc)
{
    bool here = weir_guest_vmm_is_host_place(&desc->location);
    WEIR_FAIL_IF(!here && desc->location.type != CU_MEM_LOCATION_TYPE_DEVICE,
                 CUDA_ERROR_INVALID_VALUE);
    WEIR_FAIL_IF(!here && !weir_guest_device_get(desc->location.id), CUDA_ERROR_INVALID_DEVICE);
    return desc->flags == CU_MEM_ACCESS_FLAGS_PROT_NONE ||
                   desc->flags == CU_MEM_ACCESS_FLAGS_PROT_READ ||
                   desc->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

CUresult weir_guest_cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc,
                                   size_t count)
{
    if (!ptr || !size || !weir_guest_vmm_aligned(ptr) || !weir_guest_vmm_aligned(size) || !desc ||
        !count) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; i < count; i++) {
        WEIR_TRY(check_access(&desc[i]));
    }
    for (size_t i = 0; i < count; i++) {
        uint32_t flags = (uint32_t)desc[i].flags;
        WEIR_TRY(weir_guest_vmm_is_host_place(&desc[i].location)
                     ? weir_guest_vmm_access_here(ptr, size, flags)
                     : weir_guest_vmm_access(ptr, size, desc[i].location.id, flags));
    }
    return CUDA_SUCCESS;
}

CUresult weir_guest_cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location,
                                   CUdeviceptr ptr)
{
    struct weir_mem mem;
    WEIR_FAIL_IF(!flags || !location || !weir_mem_find(ptr, &mem) || mem.kind != WEIR_MEM_MAPPED,
                 CUDA_ERROR_INVALID_VALUE);
    if (mem.on_host && weir_guest_vmm_is_host_place(location)) {
        *flags = mem.flags_here;
        return CUDA_SUCCESS;
    }
    WEIR_FAIL_IF(location->type != CU_MEM_LOCATION_TYPE_DEVICE, CUDA_ERROR_INVALID_VALUE);
    WEIR_FAIL_IF(!weir_guest_device_get(location->id), CUDA_ERROR_INVALID_DEVICE);
    *flags =
        weir_guest_vmm_reachable(&mem, location->id) ? mem.flags : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
}

/* ---------------------------------------------------------------- between processes */

static CUresult check_export_type(CUmemAllocationHandleType type)
{
    switch ((int)type) {
    case CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR:
        return weir_guest.channel.passes_fds ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
    case CU_MEM_HANDLE_TYPE_WIN32:
    case CU_MEM_HANDLE_TYPE_WIN32_KMT:
    case CU_MEM_HANDLE_TYPE_FABRIC:
        return CUDA_ERROR_NOT_SUPPORTED;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult weir_guest_cuMemExportToShareableHandle(void *shareableHandle,
                                                 CUmemGenericAllocationHandle handle,
                                                 CUmemAllocationHandleType handleType,
                                                 unsigned long long flags)
{
    struct weir_guest_vmm_handle facts;
    WEIR_FAIL_IF(!shareableHandle || flags || !weir_guest_vmm_get(handle, &facts),
                 CUDA_ERROR_INVALID_VALUE);
    int fd;
    WEIR_TRY(check_export_type(handleType));
    WEIR_FAIL_IF(!(facts.prop.requestedHandleTypes & handleType), CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_guest_vmm_export(handle, &fd));
    memcpy(shareableHandle, &fd, sizeof fd);
    return CUDA_SUCCESS;
}

CUresult weir_guest_cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle,
                                                   void *osHandle,
                                                   CUmemAllocationHandleType shHandleType)
{
    uint64_t made;
    WEIR_FAIL_IF(!handle, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(check_export_type(shHandleType));
    WEIR_TRY(weir_guest_vmm_import((int)(intptr_t)osHandle, &made));
    *handle = made;
    return CUDA_SUCCESS;
}
