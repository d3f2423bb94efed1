/* What is refused: wrong sizes, places, handles and orders; and that nothing is broken by it. */
#include "vmm.h"

static void refused(CUresult result, const char *label)
{
    check_true(result != CUDA_SUCCESS, label);
}

static void creation(void)
{
    CUmemGenericAllocationHandle handle = 0;
    CUmemAllocationProp prop = vmm_prop(0);
    size_t total, size;

    check_code(cu.MemCreate(&handle, vmm_unit + 4096, &prop, 0), CUDA_ERROR_INVALID_VALUE,
               "a size that is no multiple of the granularity");
    check_code(cu.MemCreate(&handle, 0, &prop, 0), CUDA_ERROR_INVALID_VALUE, "no bytes");
    check_code(cu.MemCreate(&handle, vmm_unit, &prop, 1), CUDA_ERROR_INVALID_VALUE, "flags");
    check_code(cu.MemCreate(&handle, vmm_unit, NULL, 0), CUDA_ERROR_INVALID_VALUE, "no properties");
    prop.type = CU_MEM_ALLOCATION_TYPE_INVALID;
    check_code(cu.MemCreate(&handle, vmm_unit, &prop, 0), CUDA_ERROR_INVALID_VALUE, "no type");
    prop = vmm_prop(0);
    prop.location.id = 999;
    refused(cu.MemCreate(&handle, vmm_unit, &prop, 0), "no such device");
    prop = vmm_prop(0);
    DRV(cu.DeviceTotalMem_v2(&total, 0));
    size = (total / vmm_unit + 1) * vmm_unit;
    check_code(cu.MemCreate(&handle, size, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY,
               "more than there is");
    refused(cu.MemRelease(0), "release of nothing");
}

/* Not asked: a mapping over the end of its reservation, and unmapping nothing. Driver 580 takes
 * both. */
static void places(CUdeviceptr space)
{
    CUmemGenericAllocationHandle handle = vmm_create(2 * vmm_unit, 0);
    CUdeviceptr other = 0;

    check_code(cu.MemAddressReserve(&other, 0, 0, 0, 0), CUDA_ERROR_INVALID_VALUE, "no addresses");
    check_code(cu.MemAddressReserve(&other, vmm_unit, 3 * vmm_unit, 0, 0), CUDA_ERROR_INVALID_VALUE,
               "an alignment that is no power of two");
    refused(cu.MemMap(space + 4096, 2 * vmm_unit, 0, handle, 0), "mapping at a crooked address");
    refused(cu.MemMap(space, 4 * vmm_unit, 0, handle, 0), "more than the memory has");
    refused(cu.MemMap(space, 2 * vmm_unit, 0, handle, 1), "flags of a mapping");
    refused(vmm_access(space, 2 * vmm_unit, CU_MEM_ACCESS_FLAGS_PROT_READWRITE),
            "access where nothing is mapped");
    vmm_map(space, 2 * vmm_unit, handle);
    refused(cu.MemMap(space, 2 * vmm_unit, 0, handle, 0), "mapping over a mapping");
    refused(cu.MemUnmap(space, vmm_unit), "unmapping a half");
    refused(cu.MemFree_v2(space), "cuMemFree of a mapping");
    refused(cu.MemAddressFree(space, 2 * vmm_unit), "a part of a reservation");
    DRV(cu.MemsetD32_v2(space, 77, 1024));
    check_int(vmm_word(space + 4092), 77, "and the mapping still works");
    DRV(cu.MemUnmap(space, 2 * vmm_unit));
    DRV(cu.MemRelease(handle));
}

static void holes(CUdeviceptr space)
{
    static char host[4096];
    CUmemGenericAllocationHandle handle = vmm_create(vmm_unit, 0), retained = 0;

    refused(cu.MemcpyHtoD_v2(space, host, sizeof(host)), "a copy to where nothing is mapped");
    refused(cu.MemsetD8_v2(space, 1, 16), "a fill where nothing is mapped");
    refused(cu.MemRetainAllocationHandle(&retained, (void *)(uintptr_t)space),
            "the handle of a place where nothing is mapped");
    vmm_map(space, vmm_unit, handle);
    DRV(cu.MemUnmap(space, vmm_unit));
    refused(cu.MemcpyDtoH_v2(host, space, sizeof(host)), "a copy from what was unmapped");
    DRV(cu.MemRelease(handle));
}

static void sharing(void)
{
    CUmemGenericAllocationHandle handle = vmm_create(vmm_unit, 0), other = 0;
    int fd = -1, ends[2];

    refused(cu.MemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
            "export of what was not made for it");
    DRV(cu.MemRelease(handle));
    if (pipe(ends) != 0) {
        check_die("pipe");
    }
    refused(cu.MemImportFromShareableHandle(&other, (void *)(intptr_t)ends[0],
                                            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
            "import of a pipe");
    refused(cu.MemImportFromShareableHandle(&other, (void *)(intptr_t)987,
                                            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
            "import of no descriptor");
    close(ends[0]);
    close(ends[1]);
}

int main(void)
{
    CUdeviceptr space = 0;

    vmm_begin("drv_vmm_errors");
    creation();
    DRV(cu.MemAddressReserve(&space, 8 * vmm_unit, 0, 0, 0));
    places(space);
    holes(space);
    sharing();
    DRV(cu.MemAddressFree(space, 8 * vmm_unit));
    refused(cu.MemAddressFree(space, 8 * vmm_unit), "a reservation that is gone");
    return driver_end();
}
