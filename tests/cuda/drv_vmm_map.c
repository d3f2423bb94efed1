/* Reserve, create, map, give access: then copies, fills and kernels use the memory as any other. */
#include "vmm.h"

CHECK_EMBED(basic_ptx, "basic.ptx");

enum { N = 300000 };

static float x[N], y[N], back[N];

static void attributes(CUdeviceptr at, size_t bytes)
{
    unsigned type = 0;
    int managed = 7, ordinal = 7;
    CUdeviceptr base = 0;
    size_t size = 0;
    CUdeviceptr pointer = 0;

    DRV(cu.PointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at + 4096));
    check_int(type, CU_MEMORYTYPE_DEVICE, "it is device memory");
    DRV(cu.PointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, at + 4096));
    check_int(managed, 0, "not managed");
    DRV(cu.PointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at + 4096));
    check_int(ordinal, 0, "of device 0");
    DRV(cu.PointerGetAttribute(&pointer, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, at + 4096));
    check_true(pointer == at + 4096, "its device pointer is itself");
    DRV(cu.MemGetAddressRange_v2(&base, &size, at + 4096));
    check_true(base <= at && base + size >= at + bytes, "its range holds it");
}

/* Small reservations, aligned to more than the granularity or with a wished address: each is
 * usable. */
static void small_spaces(void)
{
    CUdeviceptr wish = 0, space[6];

    for (int i = 0; i < 6; i++) {
        size_t alignment = i % 2 ? 4 * vmm_unit : 0;

        DRV(cu.MemAddressReserve(&space[i], 2 * vmm_unit, alignment, wish, 0));
        check_true(space[i] % (i % 2 ? 4 * vmm_unit : vmm_unit) == 0, "aligned as asked");
        for (int k = 0; k < i; k++) {
            check_true(space[i] >= space[k] + 2 * vmm_unit || space[k] >= space[i] + 2 * vmm_unit,
                       "apart from the others");
        }
        wish = i >= 2 ? space[i] + 2 * vmm_unit : 0;

        CUmemGenericAllocationHandle memory = vmm_create(2 * vmm_unit, 0);
        DRV(cu.MemMap(space[i], 2 * vmm_unit, 0, memory, 0));
        DRV(cu.MemRelease(memory));
        DRV(vmm_access(space[i], 2 * vmm_unit, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
        DRV(cu.MemsetD32_v2(space[i], 100u + (unsigned)i, 2 * vmm_unit / 4));
    }
    for (int i = 0; i < 6; i++) {
        check_int(vmm_word(space[i] + 2 * vmm_unit - 4), 100 + i,
                  "a small reservation's own memory");
        DRV(cu.MemUnmap(space[i], 2 * vmm_unit));
        DRV(cu.MemAddressFree(space[i], 2 * vmm_unit));
    }
}

int main(void)
{
    CUmodule module;
    CUdeviceptr space = 0;
    float a = 1.5f;
    unsigned n = N;
    int good = 1;
    unsigned long long flags = 7;
    CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE};

    vmm_begin("drv_vmm_map");
    size_t bytes = (N * sizeof(float) + vmm_unit - 1) / vmm_unit * vmm_unit;
    for (int i = 0; i < N; i++) {
        x[i] = (float)i;
        y[i] = (float)(2 * N - i);
    }
    DRV(cu.ModuleLoadData(&module, basic_ptx));
    CUfunction saxpy = driver_function(module, "saxpy");
    DRV(cu.MemAddressReserve(&space, 2 * bytes, 0, 0, 0));
    check_true(space != 0 && space % vmm_unit == 0, "addresses, aligned");
    CUmemGenericAllocationHandle first = vmm_create(bytes, 0), second = vmm_create(bytes, 0);
    DRV(cu.MemMap(space, bytes, 0, first, 0));
    DRV(cu.MemMap(space + bytes, bytes, 0, second, 0));
    DRV(cu.MemGetAccess(&flags, &here, space));
    check_int((long long)flags, 0, "no access at first");
    DRV(vmm_access(space, 2 * bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    DRV(cu.MemGetAccess(&flags, &here, space + bytes));
    check_int((long long)flags, 3, "then reads and writes");
    attributes(space, bytes);
    small_spaces();

    CUdeviceptr device_x = space, device_y = space + bytes;
    DRV(cu.MemcpyHtoD_v2(device_x, x, sizeof(x)));
    DRV(cu.MemcpyHtoD_v2(device_y, y, sizeof(y)));
    void *params[] = {&a, &device_x, &device_y, &n};
    driver_launch(saxpy, (N + 255) / 256, 256, NULL, params);
    DRV(cu.MemcpyDtoH_v2(back, device_y, sizeof(back)));
    for (int i = 0; i < N; i++) {
        good &= back[i] == 1.5f * x[i] + y[i];
    }
    check_true(good, "a kernel over two mappings");

    /* Copies and fills across the seam between the mappings. */
    DRV(cu.MemsetD32_v2(space + bytes - 4000, 0x01020304, 2000));
    check_int(vmm_word(space + bytes - 4), 0x01020304, "a fill before the seam");
    check_int(vmm_word(space + bytes + 3996), 0x01020304, "and behind it");
    DRV(cu.MemcpyHtoD_v2(space + bytes - 600000, x, 2 * 600000));
    DRV(cu.MemcpyDtoH_v2(back, space + bytes - 600000, 2 * 600000));
    check_true(memcmp(x, back, 2 * 600000) == 0, "a copy over the seam and back");
    DRV(cu.MemcpyDtoD_v2(space, space + bytes - 600000, 600000));
    DRV(cu.MemcpyDtoH_v2(back, space, 600000));
    check_true(memcmp(x, back, 600000) == 0, "a copy on the device");

    DRV(cu.CtxSynchronize());
    DRV(cu.MemUnmap(space, bytes));
    DRV(cu.MemUnmap(space + bytes, bytes));
    DRV(cu.MemRelease(first));
    DRV(cu.MemRelease(second));
    DRV(cu.MemAddressFree(space, 2 * bytes));
    DRV(cu.ModuleUnload(module));
    return driver_end();
}
