/* Before cuInit, bad ordinals, bad attributes, error names: answers that need no GPU work. */
#include "check_driver.h"

static void before_init(void)
{
    CUcontext context = NULL;
    CUdeviceptr p = 0;
    const char *text = NULL;
    int count = -1, version = 0;

    check_code(cu.DeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED, "device count before cuInit");
    check_code(cu.CtxGetCurrent(&context), CUDA_ERROR_NOT_INITIALIZED, "context before cuInit");
    check_code(cu.MemAlloc_v2(&p, 64), CUDA_ERROR_NOT_INITIALIZED, "malloc before cuInit");
    check_code(cu.DriverGetVersion(&version), CUDA_SUCCESS, "version before cuInit");
    check_true(version >= 12000, "version is plausible");
    check_code(cu.GetErrorName(CUDA_ERROR_INVALID_VALUE, &text), CUDA_SUCCESS, "error name");
    check_true(text && strcmp(text, "CUDA_ERROR_INVALID_VALUE") == 0, "its text");
    check_code(cu.GetErrorString(CUDA_ERROR_INVALID_VALUE, &text), CUDA_SUCCESS, "error string");
    check_true(text && strcmp(text, "invalid argument") == 0, "its text");
    check_code(cu.GetErrorName((CUresult)123456, &text), CUDA_ERROR_INVALID_VALUE,
               "name of no error");
    check_code(cu.Init(1), CUDA_ERROR_INVALID_VALUE, "cuInit with flags");
}

static void after_init(void)
{
    CUdevice device = -1, found = -1;
    CUuuid id, zero;
    CUdeviceptr p = 0;
    size_t total = 0;
    char name[256], bus[32];
    int count = 0, value = 0, again = 0;

    check_code(cu.Init(0), CUDA_SUCCESS, "cuInit");
    check_code(cu.Init(0), CUDA_SUCCESS, "cuInit again");
    DRV(cu.DeviceGetCount(&count));
    check_true(count >= 1, "a device");
    check_code(cu.DeviceGet(&device, count), CUDA_ERROR_INVALID_DEVICE, "one device too far");
    check_code(cu.DeviceGet(&device, -1), CUDA_ERROR_INVALID_DEVICE, "device -1");
    DRV(cu.DeviceGet(&device, 0));
    memset(name, 'x', sizeof(name));
    DRV(cu.DeviceGetName(name, 256, device));
    check_true(name[0] != 0 && memchr(name, 0, sizeof(name)), "name");
    memset(name, 'x', sizeof(name));
    DRV(cu.DeviceGetName(name, 4, device));
    check_true(name[4] == 'x', "no more than four bytes of the name");
    DRV(cu.DeviceTotalMem_v2(&total, device));
    check_true(total >= (64u << 20), "total memory");
    memset(&zero, 0, sizeof(zero));
    memset(&id, 0, sizeof(id));
    DRV(cu.DeviceGetUuid_v2(&id, device));
    check_true(memcmp(&id, &zero, sizeof(id)) != 0, "identity");
    DRV(cu.DeviceGetPCIBusId(bus, sizeof(bus), device));
    DRV(cu.DeviceGetByPCIBusId(&found, bus));
    check_int(found, device, "device by bus address");
    DRV(cu.DeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, device));
    check_int(value, 32, "warp size");
    DRV(cu.DeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device));
    DRV(cu.DeviceGetAttribute(&again, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device));
    check_true(value * 10 + again >= 75, "compute capability");
    DRV(cu.DeviceGetExecAffinitySupport(&value, CU_EXEC_AFFINITY_TYPE_MAX, device));
    check_int(value, 0, "unknown kind of execution affinity");
    check_code(cu.DeviceGetAttribute(&value, (CUdevice_attribute)100000, device),
               CUDA_ERROR_INVALID_VALUE, "unknown attribute");
    check_code(cu.DeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 4242),
               CUDA_ERROR_INVALID_DEVICE, "attribute of no device");
    check_code(cu.MemAlloc_v2(&p, 64), CUDA_ERROR_INVALID_CONTEXT, "malloc without a context");
    check_code(cu.CtxSynchronize(), CUDA_ERROR_INVALID_CONTEXT, "synchronise without a context");
}

int main(void)
{
    driver_open("drv_init_errors");
    before_init();
    after_init();
    return check_end();
}
