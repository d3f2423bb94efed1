/* Device count, properties and attributes: plausible, and the same by every way of asking. */
#include "check.h"

int main(void)
{
    cudaDeviceProp p;
    int count = 0, device = -1, driver = 0, runtime = 0, value = 0, found = -1;
    char bus[32] = "";

    check_begin("device_properties");
    RT(cudaDriverGetVersion(&driver));
    RT(cudaRuntimeGetVersion(&runtime));
    check_true(driver / 1000 >= runtime / 1000, "driver is new enough");
    RT(cudaGetDeviceCount(&count));
    check_true(count >= 1, "a device");
    RT(cudaGetDevice(&device));
    check_int(device, 0, "the first is current");
    RT(cudaGetDeviceProperties(&p, 0));
    check_true(p.name[0] != 0 && memchr(p.name, 0, sizeof(p.name)) != NULL, "it has a name");
    check_true(p.major * 10 + p.minor >= 75, "compute capability 7.5 or more");
    check_int(p.warpSize, 32, "warp size");
    check_int(p.maxThreadsPerBlock, 1024, "threads per block");
    check_true(p.maxThreadsDim[0] == 1024 && p.maxThreadsDim[1] == 1024 && p.maxThreadsDim[2] == 64,
               "block dimensions");
    check_true(p.maxGridSize[0] == 2147483647 && p.maxGridSize[1] == 65535 &&
                   p.maxGridSize[2] == 65535,
               "grid dimensions");
    check_int((long long)p.sharedMemPerBlock, 48 * 1024, "shared memory per block");
    check_int(p.regsPerBlock, 65536, "registers per block");
    check_int((long long)p.totalConstMem, 65536, "constant memory");
    check_true(p.multiProcessorCount >= 1 && p.totalGlobalMem >= (64u << 20), "SMs and memory");
    check_int(p.unifiedAddressing, 1, "unified addressing");
    check_true(p.canMapHostMemory == device_attribute(cudaDevAttrCanMapHostMemory) &&
                   p.asyncEngineCount >= 0, "mapped host memory");
    const struct {
        cudaDeviceAttr attribute;
        int want;
        const char *label;
    } same[] = {
        {cudaDevAttrMaxThreadsPerBlock, p.maxThreadsPerBlock, "attribute: threads per block"},
        {cudaDevAttrMultiProcessorCount, p.multiProcessorCount, "attribute: SMs"},
        {cudaDevAttrComputeCapabilityMajor, p.major, "attribute: major"},
        {cudaDevAttrComputeCapabilityMinor, p.minor, "attribute: minor"},
        {cudaDevAttrMaxSharedMemoryPerBlock, (int)p.sharedMemPerBlock, "attribute: shared"},
        {cudaDevAttrL2CacheSize, p.l2CacheSize, "attribute: L2 size"},
        {cudaDevAttrManagedMemory, p.managedMemory, "attribute: managed memory"},
        {cudaDevAttrPciBusId, p.pciBusID, "attribute: bus"},
    };
    for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++) {
        RT(cudaDeviceGetAttribute(&value, same[i].attribute, 0));
        check_true(value == same[i].want, same[i].label);
    }
    RT(cudaDeviceGetPCIBusId(bus, sizeof(bus), 0));
    RT(cudaDeviceGetByPCIBusId(&found, bus));
    check_int(found, 0, "device found by its bus address");
    check_code(cudaDeviceGetAttribute(&value, (cudaDeviceAttr)100000, 0), cudaErrorInvalidValue,
               "unknown attribute");
    check_code(cudaGetDeviceProperties(&p, count), cudaErrorInvalidDevice, "one device too far");
    (void)cudaGetLastError();
    RT(cudaSetDevice(0));
    return check_end();
}
