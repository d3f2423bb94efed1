/* Memory lives while a handle or a mapping refers to it; handles are counted; contents survive. */
#include "vmm.h"

int main(void)
{
    CUdeviceptr space = 0;
    CUmemGenericAllocationHandle again = 0, third = 0;
    CUmemAllocationProp prop;

    vmm_begin("drv_vmm_lifetime");
    size_t bytes = 8 * vmm_unit;
    DRV(cu.MemAddressReserve(&space, 4 * bytes, 0, 0, 0));
    CUmemGenericAllocationHandle handle = vmm_create(bytes, 0);
    memset(&prop, 0, sizeof(prop));
    DRV(cu.MemGetAllocationPropertiesFromHandle(&prop, handle));
    check_true(prop.type == CU_MEM_ALLOCATION_TYPE_PINNED &&
                   prop.location.type == CU_MEM_LOCATION_TYPE_DEVICE && prop.location.id == 0,
               "the handle's properties");
    vmm_map(space, bytes, handle);
    DRV(cu.MemsetD32_v2(space, 4711, bytes / 4));
    DRV(cu.MemRelease(handle));
    check_int(vmm_word(space + bytes - 4), 4711, "released but mapped");

    /* The handle of what is mapped, after its own was released; mapped a second time through it. */
    DRV(cu.MemRetainAllocationHandle(&again, (void *)(uintptr_t)(space + 4096)));
    DRV(cu.MemRetainAllocationHandle(&third, (void *)(uintptr_t)space));
    check_true(again == third, "one handle for one memory");
    vmm_map(space + bytes, bytes, again);
    check_int(vmm_word(space + bytes), 4711, "the same memory at a second address");
    DRV(cu.MemsetD32_v2(space + bytes, 815, 1));
    check_int(vmm_word(space), 815, "written at one, read at the other");
    DRV(cu.MemUnmap(space, bytes));
    check_int(vmm_word(space + bytes), 815, "one mapping gone, the other there");
    DRV(cu.MemUnmap(space + bytes, bytes));
    DRV(cu.MemRelease(again));
    vmm_map(space + 2 * bytes, bytes, third);
    check_int(vmm_word(space + 2 * bytes), 815, "one handle less: the contents are there");
    DRV(cu.MemRelease(third));
    DRV(cu.MemUnmap(space + 2 * bytes, bytes));

    /* Access taken away and given back keeps the contents. */
    handle = vmm_create(bytes, 0);
    vmm_map(space, bytes, handle);
    DRV(cu.MemsetD32_v2(space, 5, bytes / 4));
    DRV(cu.CtxSynchronize());
    DRV(vmm_access(space, bytes, CU_MEM_ACCESS_FLAGS_PROT_NONE));
    DRV(vmm_access(space, bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    check_int(vmm_word(space + bytes / 2), 5, "access taken and given back");
    DRV(cu.MemUnmap(space, bytes));
    DRV(cu.MemRelease(handle));
    DRV(cu.MemAddressFree(space, 4 * bytes));
    return driver_end();
}
