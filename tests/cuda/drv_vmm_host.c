/*
 * Memory of the host by cuMemCreate, as NCCL makes its buffers: two processes and the GPU read and
 * write the same pages, at an address of each one's own. The descriptor alone keeps them alive.
 */
#include "vmm.h"

enum { UNITS = 3 };

static CUmemAllocationProp host_prop(CUmemLocationType type, int exportable)
{
    CUmemAllocationProp prop = vmm_prop(exportable);

    prop.location.type = type;
    return prop;
}

static CUresult access_here(CUdeviceptr at, size_t bytes, int flags)
{
    CUmemAccessDesc access;

    memset(&access, 0, sizeof(access));
    access.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
    access.flags = (CUmemAccess_flags)flags;
    return cu.MemSetAccess(at, bytes, &access, 1);
}

static CUmemGenericAllocationHandle create(CUmemLocationType type, size_t bytes, int exportable)
{
    CUmemAllocationProp prop = host_prop(type, exportable);
    CUmemGenericAllocationHandle handle = 0;

    DRV(cu.MemCreate(&handle, bytes, &prop, 0));
    return handle;
}

static void map_at(CUdeviceptr at, size_t bytes, CUmemGenericAllocationHandle handle)
{
    vmm_map(at, bytes, handle);
    DRV(access_here(at, bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
}

/* A reservation with the memory in it, for the GPU and the processor. */
static CUdeviceptr map(CUmemGenericAllocationHandle handle, size_t bytes)
{
    CUdeviceptr at = 0;

    DRV(cu.MemAddressReserve(&at, bytes, 0, 0, 0));
    map_at(at, bytes, handle);
    return at;
}

static void unmap(CUdeviceptr at, size_t bytes)
{
    DRV(cu.MemUnmap(at, bytes));
    DRV(cu.MemAddressFree(at, bytes));
}

static volatile unsigned *words(CUdeviceptr at)
{
    return (volatile unsigned *)(uintptr_t)at;
}

static int other_process(int socket_fd)
{
    uint64_t bytes;
    CUmemGenericAllocationHandle handle = 0;
    CUmemAllocationProp prop;

    int fd = vmm_receive_fd(socket_fd, &bytes, sizeof(bytes));
    if (fd < 0) {
        return 10;
    }
    driver_begin("drv_vmm_host, the other process");
    if (cu.MemImportFromShareableHandle(&handle, (void *)(intptr_t)fd,
                                        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)) {
        return 11;
    }
    close(fd);
    if (cu.MemGetAllocationPropertiesFromHandle(&prop, handle) ||
        prop.location.type != CU_MEM_LOCATION_TYPE_HOST_NUMA) {
        return 12;
    }
    CUdeviceptr at = map(handle, bytes);
    DRV(cu.MemRelease(handle));
    if (words(at)[0] != 1234 || vmm_word(at + bytes - 4) != 1234) {
        return 13;
    }
    DRV(cu.MemsetD32_v2(at, 5678, bytes / 8));
    DRV(cu.CtxSynchronize());
    words(at)[bytes / 4 - 1] = 91011;
    while (words(at)[1] != 1) { /* both processors see the page at the same time */
        sched_yield();
    }
    words(at)[1] = 2;
    unmap(at, bytes);
    return 0;
}

static void share(const char *program)
{
    uint64_t bytes = UNITS * vmm_unit;
    CUmemGenericAllocationHandle handle = create(CU_MEM_LOCATION_TYPE_HOST_NUMA, bytes, 1);
    int socket_fd = -1, fd = -1;
    pid_t child = vmm_start_other(program, &socket_fd);
    CUdeviceptr at = map(handle, bytes);

    check_int((int)words(at)[0], 0, "new memory is clear");
    words(at)[0] = 1234;
    DRV(cu.MemsetD32_v2(at + bytes - 4, 1234, 1));
    DRV(cu.CtxSynchronize());
    check_int((int)words(at)[bytes / 4 - 1], 1234, "the processor reads what the GPU wrote");
    check_int((int)vmm_word(at), 1234, "the GPU reads what the processor wrote");
    DRV(cu.MemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    DRV(cu.MemRelease(handle));
    vmm_send_fd(socket_fd, fd, &bytes, sizeof(bytes));
    close(fd);
    while (words(at)[bytes / 4 - 1] != 91011) {
        if (waitpid(child, NULL, WNOHANG) != 0) {
            check_die("the other process has ended");
        }
        sched_yield();
    }
    check_int((int)words(at)[0], 5678, "what the other's GPU wrote");
    words(at)[1] = 1;
    check_int(vmm_status_of(child), 0, "the other process found all well");
    check_int((int)words(at)[1], 2, "what the other's processor wrote");
    unmap(at, bytes);
}

static void attributes(CUdeviceptr at)
{
    CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA};
    unsigned long long flags = 0;
    unsigned type = 0;

    DRV(cu.PointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at));
    check_int((int)type, CU_MEMORYTYPE_HOST, "it is memory of the host");
    DRV(cu.MemGetAccess(&flags, &here, at));
    check_int((int)flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, "the processor's access");
    here.type = CU_MEM_LOCATION_TYPE_DEVICE;
    DRV(cu.MemGetAccess(&flags, &here, at));
    check_int((int)flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, "the GPU's access");
}

/* Copies with all kinds of other sides; those that name no stream have ended when they return. */
static void copies(void)
{
    size_t bytes = vmm_unit;
    unsigned *own = malloc(bytes);
    CUmemGenericAllocationHandle handle = create(CU_MEM_LOCATION_TYPE_HOST, bytes, 0);
    CUdeviceptr device = 0, at = map(handle, bytes);

    DRV(cu.MemRelease(handle));
    attributes(at);
    DRV(cu.MemAlloc_v2(&device, bytes));
    for (size_t i = 0; i < bytes / 4; i++) {
        words(at)[i] = (unsigned)i;
    }
    DRV(cu.MemcpyDtoD_v2(device, at, bytes));
    DRV(cu.CtxSynchronize());
    memset((void *)(uintptr_t)at, 0, bytes);
    DRV(cu.MemcpyDtoH_v2((void *)(uintptr_t)at, device, bytes));
    check_int((int)words(at)[bytes / 4 - 1], (int)(bytes / 4 - 1), "from the GPU");
    DRV(cu.MemcpyDtoH_v2(own, at, bytes));
    check_int((int)own[bytes / 4 - 1], (int)(bytes / 4 - 1), "to the program's own memory");
    DRV(cu.MemsetD32_v2(device, 7, bytes / 4));
    DRV(cu.Memcpy(at, device, bytes));
    check_int((int)words(at)[bytes / 4 - 1], 7, "by cuMemcpy");
    free(own);
    DRV(cu.MemFree_v2(device));
    unmap(at, bytes);
}

/* Addresses do not know what will be mapped there. */
static void in_either_order(CUdeviceptr space)
{
    CUmemGenericAllocationHandle host = create(CU_MEM_LOCATION_TYPE_HOST_NUMA, vmm_unit, 0);
    CUmemGenericAllocationHandle device = vmm_create(vmm_unit, 0);

    for (int i = 0; i < 2; i++) {
        map_at(space, vmm_unit, host);
        words(space)[0] = 31;
        check_int((int)vmm_word(space), 31, "memory of the host");
        DRV(cu.MemUnmap(space, vmm_unit));
        vmm_map(space, vmm_unit, device);
        DRV(cu.MemsetD32_v2(space, 32, 1));
        check_int((int)vmm_word(space), 32, "memory of the GPU at the same address");
        DRV(cu.MemUnmap(space, vmm_unit));
    }
    DRV(cu.MemRelease(host));
    DRV(cu.MemRelease(device));
    DRV(cu.MemAddressFree(space, vmm_unit));
}

static void errors(void)
{
    CUmemAllocationProp prop = host_prop(CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT, 0);
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr at = 0;
    int fd = -1;

    check_code(cu.MemCreate(&handle, vmm_unit, &prop, 0), CUDA_ERROR_INVALID_VALUE,
               "memory of the current node");
    prop = host_prop(CU_MEM_LOCATION_TYPE_HOST, 1);
    check_code(cu.MemCreate(&handle, vmm_unit, &prop, 0), CUDA_ERROR_INVALID_VALUE,
               "exportable memory of no node");
    prop = host_prop(CU_MEM_LOCATION_TYPE_HOST_NUMA, 0);
    check_code(cu.MemCreate(&handle, vmm_unit + 4096, &prop, 0), CUDA_ERROR_INVALID_VALUE,
               "a size that is no multiple of the granularity");
    prop.location.id = 9999;
    check_true(cu.MemCreate(&handle, vmm_unit, &prop, 0) != CUDA_SUCCESS, "no such node");
    handle = create(CU_MEM_LOCATION_TYPE_HOST_NUMA, vmm_unit, 0);
    check_true(cu.MemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                             0) != CUDA_SUCCESS,
               "export of what was not made for it");
    DRV(cu.MemRelease(handle));
    handle = vmm_create(vmm_unit, 0);
    DRV(cu.MemAddressReserve(&at, vmm_unit, 0, 0, 0));
    vmm_map(at, vmm_unit, handle);
    check_true(access_here(at, vmm_unit, CU_MEM_ACCESS_FLAGS_PROT_READWRITE) != CUDA_SUCCESS,
               "the processor's access to memory of the GPU");
    DRV(cu.MemsetD32_v2(at, 77, 1));
    check_int((int)vmm_word(at), 77, "which the GPU has");
    DRV(cu.MemRelease(handle));
    unmap(at, vmm_unit);
}

int main(int argc, char **argv)
{
    CUmemAllocationProp prop = host_prop(CU_MEM_LOCATION_TYPE_HOST_NUMA, 0);
    CUdeviceptr early = 0;
    size_t unit = 0;

    if (argc > 1) {
        return other_process(atoi(argv[1]));
    }
    vmm_begin("drv_vmm_host");
    if (!vmm_attribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)) {
        check_skip("no memory of the host by cuMemCreate");
    }
    DRV(cu.MemAddressReserve(&early, vmm_unit, 0, 0, 0));
    DRV(cu.MemGetAllocationGranularity(&unit, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    check_true(unit != 0 && vmm_unit % unit == 0, "a granularity");
    in_either_order(early);
    share(argv[0]);
    if (vmm_attribute(CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)) {
        copies();
    }
    errors();
    return driver_end();
}
