/* NVML and the Driver API about one device: who it is, what memory it has, what state it is in. */
#define _GNU_SOURCE
#include "check_driver.h"

#include <sched.h>

#define BLOCK_BYTES (64u << 20)
#define SEEN_BYTES  (56u << 20) /* of the block, in what is used */
#define VERSION_2   (40u | 2u << 24)

typedef struct nvml_device *nvml_device;

struct memory {
    unsigned long long total, free, used;
};
struct memory_v2 {
    unsigned int version;
    unsigned long long total, reserved, free, used;
};
struct pci {
    char legacy[16];
    unsigned int domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
};

static void *library;

static void *symbol(const char *name)
{
    void *found = dlsym(library, name);
    check_true(found != NULL, name);
    if (!found) {
        exit(check_end());
    }
    return found;
}

#define NVML(name, ...) ((int (*)(__VA_ARGS__))(uintptr_t)symbol("nvml" #name))

static void uuid_text(char text[41])
{
    CUuuid uuid;
    const unsigned char *u = (const unsigned char *)uuid.bytes;
    DRV(cu.DeviceGetUuid_v2(&uuid, 0));
    snprintf(text, 41, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
             u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13],
             u[14], u[15]);
}

static int near(unsigned long long a, unsigned long long b, unsigned long long of)
{
    return (a > b ? a - b : b - a) <= of / 100;
}

static void check_identity(nvml_device device)
{
    nvml_device same = NULL;
    struct pci pci;
    char name[96], other[96];
    int major = 0, minor = 0, value = 0;
    CUdevice found = -1;
    check_int(NVML(DeviceGetName, nvml_device, char *, unsigned int)(device, name, sizeof(name)), 0,
              "a name");
    DRV(cu.DeviceGetName(other, sizeof(other), 0));
    check_true(strcmp(name, other) == 0, "the same name");
    check_int(NVML(DeviceGetName, nvml_device, char *, unsigned int)(device, name, 2), 7,
              "a buffer too small");
    check_int(NVML(DeviceGetPciInfo_v3, nvml_device, struct pci *)(device, &pci), 0, "an address");
    check_code(cu.DeviceGetByPCIBusId(&found, pci.bus_id), CUDA_SUCCESS, "CUDA knows the address");
    check_int(found, 0, "as this device's");
    check_int(NVML(DeviceGetHandleByPciBusId_v2, const char *, nvml_device *)(pci.bus_id, &same), 0,
              "NVML too");
    check_true(same == device, "and gives the same handle");
    check_int(
        NVML(DeviceGetCudaComputeCapability, nvml_device, int *, int *)(device, &major, &minor), 0,
        "a compute capability");
    DRV(cu.DeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0));
    check_int(major, value, "its major number");
    DRV(cu.DeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0));
    check_int(minor, value, "its minor number");
}

#define WORDS 16

/* The thread is put on the processors near the device that it may use, and is let go again. */
static void check_processors(nvml_device device)
{
    unsigned long near_set[WORDS + 1], by_node[WORDS];
    cpu_set_t before, now, wanted, allowed;

    memset(near_set, 0xa5, sizeof(near_set));
    check_int(NVML(DeviceGetCpuAffinity, nvml_device, unsigned int, unsigned long *)(device, WORDS,
                                                                                     near_set),
              0, "the processors near it");
    check_true(near_set[WORDS] == 0xa5a5a5a5a5a5a5a5ul, "nothing is written behind them");
    check_int(NVML(DeviceGetCpuAffinityWithinScope, nvml_device, unsigned int, unsigned long *,
                   unsigned int)(device, WORDS, by_node, 0),
              0, "those of its node");
    check_int(
        NVML(DeviceGetCpuAffinity, nvml_device, unsigned int, unsigned long *)(device, 0, near_set),
        2, "no place for an answer");
    check_int(sched_getaffinity(0, sizeof(before), &before), 0, "what the thread may use");
    check_int(NVML(DeviceClearCpuAffinity, nvml_device)(device), 0, "all processors");
    check_int(sched_getaffinity(0, sizeof(allowed), &allowed), 0, "what the program may use");
    memset(&wanted, 0, sizeof(wanted));
    memcpy(&wanted, near_set, WORDS * sizeof(near_set[0]));
    CPU_AND(&wanted, &wanted, &allowed);
    if (CPU_COUNT(&wanted) > 0) {
        check_int(NVML(DeviceSetCpuAffinity, nvml_device)(device), 0, "those near it alone");
        check_int(sched_getaffinity(0, sizeof(now), &now), 0, "what the thread may use now");
        check_true(CPU_EQUAL(&now, &wanted), "it is what was told");
        check_int(NVML(DeviceClearCpuAffinity, nvml_device)(device), 0, "all processors again");
        check_int(sched_getaffinity(0, sizeof(now), &now), 0, "what the thread may use then");
        check_true(CPU_EQUAL(&now, &allowed), "it is all");
    }
    check_int(sched_setaffinity(0, sizeof(before), &before), 0, "as before");
}

/* Others may take and give memory meanwhile: it must agree once in so many times. */
#define TIMES 50

static struct memory memory_of(nvml_device device)
{
    static int (*get)(nvml_device, struct memory *);
    struct memory memory = {0, 0, 0};
    if (!get) {
        get = (int (*)(nvml_device, struct memory *))(uintptr_t)symbol("nvmlDeviceGetMemoryInfo");
    }
    if (get(device, &memory) != 0) {
        memory.total = 0;
    }
    return memory;
}

static void check_memory(nvml_device device)
{
    int (*get_more)(nvml_device, struct memory_v2 *) =
        (int (*)(nvml_device, struct memory_v2 *))(uintptr_t)symbol("nvmlDeviceGetMemoryInfo_v2");
    struct memory_v2 more = {.version = VERSION_2};
    size_t free_bytes = 0, total = 0;
    int agree = 0;
    for (int i = 0; i < TIMES && !agree; i++) {
        DRV(cu.MemGetInfo_v2(&free_bytes, &total));
        agree = get_more(device, &more) == 0 && near(more.free, free_bytes, total);
    }
    check_true(agree, "free memory is as cuMemGetInfo has it");
    check_true(near(more.total - more.reserved, total, total), "the total too");
    check_true(near(more.reserved + more.free + more.used, more.total, more.total), "it adds up");
    check_true(memory_of(device).total == more.total, "version 1 has the same total");
    more.version = 77;
    check_true(get_more(device, &more) != 0, "a version that never was"); /* 580: 13 */
}

static void check_block(nvml_device device)
{
    int seen = 0;
    for (int i = 0; i < TIMES && !seen; i++) {
        CUdeviceptr block = 0;
        unsigned long long before = memory_of(device).used;
        DRV(cu.MemAlloc_v2(&block, BLOCK_BYTES));
        seen = memory_of(device).used >= before + SEEN_BYTES;
        DRV(cu.MemFree_v2(block));
    }
    check_true(seen, "a block that is taken is seen");
}

/* Not every device measures these. */
static void check_state(nvml_device device)
{
    unsigned int pair[2] = {0, 0};
    unsigned int value = 0;
    int result = NVML(DeviceGetUtilizationRates, nvml_device, unsigned int *)(device, pair);
    check_true(result == 3 || (result == 0 && pair[0] <= 100 && pair[1] <= 100), "utilization");
    result =
        NVML(DeviceGetTemperature, nvml_device, unsigned int, unsigned int *)(device, 0, &value);
    check_true(result == 3 || (result == 0 && value > 0 && value < 130), "temperature");
    result = NVML(DeviceGetPowerUsage, nvml_device, unsigned int *)(device, &value);
    check_true(result == 3 || (result == 0 && value > 1000 && value < 3000000), "power");
    result = NVML(DeviceGetPerformanceState, nvml_device, unsigned int *)(device, &value);
    check_true(result == 3 || (result == 0 && value <= 32), "performance state");
    check_int(NVML(DeviceGetComputeMode, nvml_device, unsigned int *)(device, &value), 0,
              "compute mode");
}

int main(void)
{
    nvml_device device = NULL;
    char uuid[41];
    unsigned int count = 0;
    driver_begin("drv_nvml");
    library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!library) {
        check_skip("no libnvidia-ml.so.1");
    }
    if (((int (*)(void))(uintptr_t)symbol("nvmlInit_v2"))() != 0) {
        check_skip("NVML has no device");
    }
    uuid_text(uuid);
    if (NVML(DeviceGetHandleByUUID, const char *, nvml_device *)(uuid, &device) != 0) {
        check_skip("NVML does not know the CUDA device"); /* a software device beside a real one */
    }
    check_int(NVML(DeviceGetCount_v2, unsigned int *)(&count), 0, "a count");
    check_true(count >= 1, "of one at least");
    check_identity(device);
    check_memory(device);
    check_block(device);
    check_state(device);
    check_processors(device);
    check_int(NVML(Shutdown, void)(), 0, "the end");
    check_int(NVML(DeviceGetCount_v2, unsigned int *)(&count), 1, "nothing works after it");
    return driver_end();
}
