/* Pinned and registered host memory in the Driver API, used in place by a kernel. */
#include "check_driver.h"

CHECK_EMBED(basic_ptx, "basic.ptx");

enum { N = 10000 };

static int filled(const unsigned *p, unsigned first)
{
    int good = 1;

    for (unsigned i = 0; i < N; i++) {
        good &= p[i] == first + i;
    }
    return good;
}

static void use(CUfunction fill, unsigned *host, unsigned first, const char *label)
{
    CUdeviceptr device = 0;
    unsigned n = N;

    DRV(cu.MemHostGetDevicePointer_v2(&device, host, 0));
    check_true((uintptr_t)device == (uintptr_t)host, "equal addresses");
    void *params[] = {&device, &first, &n};
    driver_launch(fill, (N + 255) / 256, 256, NULL, params);
    DRV(cu.CtxSynchronize());
    check_true(filled(host, first), label);
}

int main(void)
{
    CUmodule module;
    CUfunction fill;
    CUdeviceptr device;
    unsigned *pinned = NULL, *heap = (unsigned *)calloc(N, sizeof(unsigned)), flags = 0;

    driver_begin("drv_host_memory");
    int maps = 0;
    DRV(cu.DeviceGetAttribute(&maps, CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 0));
    if (!maps) {
        check_skip("host memory cannot be mapped"); /* over a network */
    }
    DRV(cu.ModuleLoadData(&module, basic_ptx));
    fill = driver_function(module, "fill");
    DRV(cu.MemHostAlloc((void **)&pinned, N * sizeof(unsigned),
                        CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
    DRV(cu.MemHostGetFlags(&flags, pinned));
    check_int(flags & 3, 3, "flags of pinned memory");
    use(fill, pinned, 100, "kernel writes pinned memory");
    use(fill, pinned, 7, "and again");
    DRV(cu.MemHostRegister_v2(heap, N * sizeof(unsigned), CU_MEMHOSTREGISTER_DEVICEMAP));
    use(fill, heap, 55, "kernel writes registered memory");
    check_code(cu.MemHostRegister_v2(heap, 4096, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
               "registered twice");
    DRV(cu.MemAlloc_v2(&device, N * sizeof(unsigned)));
    DRV(cu.MemcpyHtoDAsync_v2(device, pinned, N * sizeof(unsigned), NULL));
    DRV(cu.MemcpyDtoHAsync_v2(heap, device, N * sizeof(unsigned), NULL));
    DRV(cu.StreamSynchronize(NULL));
    check_true(filled(heap, 7), "pinned to device to registered");
    DRV(cu.MemHostUnregister(heap));
    check_code(cu.MemHostUnregister(heap), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED,
               "unregistered twice");
    check_true(filled(heap, 7), "contents stay");
    DRV(cu.MemFreeHost(pinned));
    check_code(cu.MemFreeHost(heap), CUDA_ERROR_INVALID_VALUE, "free of what is not pinned");
    DRV(cu.MemFree_v2(device));
    DRV(cu.ModuleUnload(module));
    free(heap);
    return driver_end();
}
