/* cuPointerGetAttribute and its plural: device, interior, pinned and unknown addresses. */
#include "check_driver.h"

static unsigned memory_type(CUdeviceptr p)
{
    unsigned type = 99;

    DRV(cu.PointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
    return type;
}

static void device_block(CUcontext context)
{
    CUdeviceptr p = 0, other = 0, back = 0, start = 0;
    CUcontext seen = NULL;
    size_t bytes = 0;
    unsigned long long id = 0, id_inner = 0, id_other = 0;
    int ordinal = -1, managed = -1;

    DRV(cu.MemAlloc_v2(&p, 1 << 20));
    DRV(cu.MemAlloc_v2(&other, 1 << 20));
    check_int(memory_type(p), CU_MEMORYTYPE_DEVICE, "device memory");
    check_int(memory_type(p + (1 << 20) - 1), CU_MEMORYTYPE_DEVICE, "its last byte");
    DRV(cu.PointerGetAttribute(&back, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, p + 5));
    check_true(back == p + 5, "device pointer");
    DRV(cu.PointerGetAttribute(&seen, CU_POINTER_ATTRIBUTE_CONTEXT, p));
    check_true(seen == context, "context");
    DRV(cu.PointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p));
    check_int(ordinal, 0, "device ordinal");
    DRV(cu.PointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, p));
    check_int(managed & 0xff, 0, "not managed");
    DRV(cu.PointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, p + 4321));
    DRV(cu.PointerGetAttribute(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, p + 4321));
    check_true(start == p && bytes == 1 << 20, "range");
    DRV(cu.PointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, p));
    DRV(cu.PointerGetAttribute(&id_inner, CU_POINTER_ATTRIBUTE_BUFFER_ID, p + 99));
    DRV(cu.PointerGetAttribute(&id_other, CU_POINTER_ATTRIBUTE_BUFFER_ID, other));
    check_true(id == id_inner && id != id_other, "buffer identity");
    DRV(cu.MemFree_v2(p));
    DRV(cu.MemFree_v2(other));
}

static void pinned_block(void)
{
    char *pinned = NULL;
    void *host = NULL;
    CUdeviceptr device = 0;

    DRV(cu.MemHostAlloc((void **)&pinned, 8192, 0));
    check_int(memory_type((CUdeviceptr)(uintptr_t)pinned + 100), CU_MEMORYTYPE_HOST, "pinned");
    DRV(cu.PointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER,
                               (CUdeviceptr)(uintptr_t)pinned + 100));
    DRV(cu.PointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                               (CUdeviceptr)(uintptr_t)pinned + 100));
    check_true(host == pinned + 100 && (uintptr_t)device == (uintptr_t)pinned + 100,
               "host and device pointer");
    DRV(cu.MemFreeHost(pinned));
}

static void unknown(void)
{
    char *heap = (char *)malloc(100000);
    CUdeviceptr p = (CUdeviceptr)(uintptr_t)heap, host = 9;
    unsigned type = 99;
    CUcontext context = (CUcontext)1;
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_CONTEXT,
                                        CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                        CU_POINTER_ATTRIBUTE_HOST_POINTER};
    void *results[] = {&context, &type, &host};

    check_code(cu.PointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p),
               CUDA_ERROR_INVALID_VALUE, "one attribute of the heap");
    check_code(cu.PointerGetAttributes(3, attributes, results, p), CUDA_SUCCESS,
               "several attributes of the heap");
    check_true(type == 0 && !context && host == p, "which are neutral, but for the address");
    free(heap);
}

int main(void)
{
    CUcontext context = driver_begin("drv_pointer_attributes");
    int maps = 0;
    DRV(cu.DeviceGetAttribute(&maps, CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 0));
    if (!maps) {
        check_skip("host memory cannot be mapped"); /* over a network */
    }

    device_block(context);
    pinned_block();
    unknown();
    return driver_end();
}
