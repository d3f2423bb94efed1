/*
 * Virtual memory management: the entry points, which check what needs no lock.
 *
 * Supported: device memory, exportable as a descriptor. Refused, as by a driver whose device lacks
 * the feature: host memory, fabric handles, compression pools, RDMA.
 */
#include "guest_lib/ops/forward.h"
#include "proto/guest_hand.h"
#include <string.h>

static CUresult check_place(const CUmemLocation *location)
{
    switch ((int)location->type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        return weir_guest_device_get(location->id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
        return CUDA_ERROR_NOT_SUPPORTED; /* attributes 141 and 145 report that */
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static CUresult check_handle_types(unsigned int types)
{
    unsigned int known = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_WIN32 |
                         CU_MEM_HANDLE_TYPE_WIN32_KMT | CU_MEM_HANDLE_TYPE_FABRIC;
    if (types & ~known) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    /* A remote guest may name descriptors, as programs do that never export. Only exporting is
     * refused. */
    bool carried = !(types & ~(unsigned int)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    return carried ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult check_prop(const CUmemAllocationProp *prop)
{
    if (!prop || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = check_place(&prop->location);
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
    /* Also for host memory, before a program tries it: NCCL only falls back if cuMemCreate
     * refuses. */
    if (result == CUDA_SUCCESS || (result == CUDA_ERROR_NOT_SUPPORTED &&
                                   prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE)) {
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
    CUresult result = weir_guest_vmm_reserve(size, alignment, addr, &base);
    if (result == CUDA_SUCCESS) {
        *ptr = base;
    }
    return result;
}

/* ---------------------------------------------------------------- memory */

CUresult weir_guest_cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
                                const CUmemAllocationProp *prop, unsigned long long flags)
{
    if (!handle || !size || !weir_guest_vmm_aligned(size) || flags) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    uint64_t made;
    CUresult result = check_prop(prop);
    result = result == CUDA_SUCCESS ? weir_guest_vmm_create(size, prop, &made) : result;
    if (result == CUDA_SUCCESS) {
        *handle = made;
    }
    return result;
}

/* ---------------------------------------------------------------- mappings */

CUresult weir_guest_cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc,
                                   size_t count)
{
    if (!ptr || !size || !weir_guest_vmm_aligned(ptr) || !weir_guest_vmm_aligned(size) || !desc ||
        !count) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; i < count; i++) {
        CUresult result = check_place(&desc[i].location);
        if (result != CUDA_SUCCESS) {
            return result;
        }
        if (desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
            desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
            desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        result = weir_guest_vmm_access(ptr, size, desc[i].location.id, (uint32_t)desc[i].flags);
    }
    return result;
}

CUresult weir_guest_cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location,
                                   CUdeviceptr ptr)
{
    struct weir_mem mem;
    if (!flags || !location || location->type != CU_MEM_LOCATION_TYPE_DEVICE ||
        !weir_mem_find(ptr, &mem) || mem.kind != WEIR_MEM_MAPPED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!weir_guest_device_get(location->id)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
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
    if (!shareableHandle || flags || !weir_guest_vmm_get(handle, &facts)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    int fd;
    CUresult result = check_export_type(handleType);
    if (result == CUDA_SUCCESS && !(facts.prop.requestedHandleTypes & handleType)) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    result = result == CUDA_SUCCESS ? weir_guest_vmm_export(handle, &fd) : result;
    if (result == CUDA_SUCCESS) {
        memcpy(shareableHandle, &fd, sizeof fd);
    }
    return result;
}

CUresult weir_guest_cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle,
                                                   void *osHandle,
                                                   CUmemAllocationHandleType shHandleType)
{
    uint64_t made;
    if (!handle) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = check_export_type(shHandleType);
    result =
        result == CUDA_SUCCESS ? weir_guest_vmm_import((int)(intptr_t)osHandle, &made) : result;
    if (result == CUDA_SUCCESS) {
        *handle = made;
    }
    return result;
}
