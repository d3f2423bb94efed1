/*
 * NVML as a program in a guest meets it.
 *
 *     e2e_nvml agree QUOTA  memory and processes, as NVML and the Driver API tell them, with a
 *                           context.
 *     e2e_nvml alone        without CUDA: this process is not listed, and a child may use CUDA.
 *     e2e_nvml lost         prints "ready", waits for a line, and expects the GPU to be lost.
 *     e2e_nvml again        prints "ready", waits for a line, and expects that the GPU came back.
 */
#include "proto/nvml/abi.h"
#include "tests/cuda/check_driver.h"

#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#define BLOCK_BYTES   (48u << 20)
#define PROCESSES_MAX 64
#define RETRIES       1000
#define RETRY_US      20000

static nvmlReturn_t (*ml_init)(void);
static nvmlReturn_t (*ml_shutdown)(void);
static nvmlReturn_t (*ml_count)(unsigned int *);
static nvmlReturn_t (*ml_by_index)(unsigned int, nvmlDevice_t *);
static nvmlReturn_t (*ml_by_uuid)(const char *, nvmlDevice_t *);
static nvmlReturn_t (*ml_by_bus)(const char *, nvmlDevice_t *);
static nvmlReturn_t (*ml_uuid)(nvmlDevice_t, char *, unsigned int);
static nvmlReturn_t (*ml_name)(nvmlDevice_t, char *, unsigned int);
static nvmlReturn_t (*ml_memory)(nvmlDevice_t, nvmlMemory_t *);
static nvmlReturn_t (*ml_memory_v2)(nvmlDevice_t, nvmlMemory_v2_t *);
static nvmlReturn_t (*ml_processes)(nvmlDevice_t, unsigned int *, nvmlProcessInfo_t *);
static nvmlReturn_t (*ml_pci)(nvmlDevice_t, nvmlPciInfo_t *);
static nvmlReturn_t (*ml_set_compute_mode)(nvmlDevice_t, unsigned int);

static void load(void)
{
    static const struct {
        const char *name;
        void *to;
    } functions[] = {{"nvmlInit_v2", &ml_init},
                     {"nvmlShutdown", &ml_shutdown},
                     {"nvmlDeviceGetCount_v2", &ml_count},
                     {"nvmlDeviceGetHandleByIndex_v2", &ml_by_index},
                     {"nvmlDeviceGetHandleByUUID", &ml_by_uuid},
                     {"nvmlDeviceGetHandleByPciBusId_v2", &ml_by_bus},
                     {"nvmlDeviceGetUUID", &ml_uuid},
                     {"nvmlDeviceGetName", &ml_name},
                     {"nvmlDeviceGetMemoryInfo", &ml_memory},
                     {"nvmlDeviceGetMemoryInfo_v2", &ml_memory_v2},
                     {"nvmlDeviceGetComputeRunningProcesses_v3", &ml_processes},
                     {"nvmlDeviceGetPciInfo_v3", &ml_pci},
                     {"nvmlDeviceSetComputeMode", &ml_set_compute_mode}};
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!library) {
        printf("FAIL %s\n", dlerror());
        exit(1);
    }
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        void *found = dlsym(library, functions[i].name);
        check_true(found != NULL, functions[i].name);
        memcpy(functions[i].to, &found, sizeof found);
    }
}

static nvmlDevice_t first_device(void)
{
    nvmlDevice_t device = NULL;
    unsigned int count = 0;
    check_int(ml_count(&count), NVML_SUCCESS, "nvmlDeviceGetCount");
    check_int(count, 1, "one device");
    check_int(ml_by_index(0, &device), NVML_SUCCESS, "nvmlDeviceGetHandleByIndex");
    check_int(ml_by_index(1, &device), NVML_ERROR_INVALID_ARGUMENT, "no second device");
    return device;
}

static void check_identity(nvmlDevice_t device)
{
    nvmlDevice_t found = NULL;
    nvmlPciInfo_t pci;
    char uuid[96];
    char text[96];
    char driver_name[96];
    CUdevice same = -1;
    check_int(ml_uuid(device, uuid, sizeof uuid), NVML_SUCCESS, "nvmlDeviceGetUUID");
    check_int(ml_uuid(device, text, 5), NVML_ERROR_INSUFFICIENT_SIZE, "a short buffer");
    check_int(ml_by_uuid(uuid, &found), NVML_SUCCESS, "by UUID");
    check_true(found == device, "it is that device");
    check_int(ml_by_uuid("GPU-00000000-0000-0000-0000-000000000000", &found), NVML_ERROR_NOT_FOUND,
              "another UUID");
    check_int(ml_pci(device, &pci), NVML_SUCCESS, "nvmlDeviceGetPciInfo");
    check_int(ml_by_bus(pci.busId, &found), NVML_SUCCESS, "by PCI bus id");
    check_int(cu.DeviceGetByPCIBusId(&same, pci.busId), CUDA_SUCCESS, "CUDA finds that bus id");
    check_int(ml_name(device, text, sizeof text), NVML_SUCCESS, "nvmlDeviceGetName");
    DRV(cu.DeviceGetName(driver_name, sizeof driver_name, 0));
    check_true(strcmp(text, driver_name) == 0, "the name is cuDeviceGetName's");
    check_int(ml_set_compute_mode(device, 0), NVML_ERROR_NO_PERMISSION, "a setter is refused");
}

static void check_memory(nvmlDevice_t device, size_t quota, const char *when)
{
    nvmlMemory_t memory = {0};
    nvmlMemory_v2_t memory_v2 = {.version = WEIR_NVML_VERSION(sizeof memory_v2, 2)};
    size_t free_bytes = 0;
    size_t total = 0;
    DRV(cu.MemGetInfo_v2(&free_bytes, &total));
    check_int(ml_memory(device, &memory), NVML_SUCCESS, when);
    check_int(ml_memory_v2(device, &memory_v2), NVML_SUCCESS, when);
    check_int((long long)memory.total, (long long)quota, "total is the quota");
    check_int((long long)memory.total, (long long)total, "total is cuMemGetInfo's");
    check_int((long long)memory.free, (long long)free_bytes, "free is cuMemGetInfo's");
    check_int((long long)(memory.free + memory.used), (long long)total, "used is the rest");
    check_int((long long)memory_v2.total, (long long)total, "total, version 2");
    check_int((long long)memory_v2.free, (long long)free_bytes, "free, version 2");
    check_int((long long)(memory_v2.used + memory_v2.free + memory_v2.reserved), (long long)total,
              "version 2 adds up");
    memory_v2.version = 7;
    check_int(ml_memory_v2(device, &memory_v2), NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
              "another version");
}

/* How many processes are listed; *ret_own is what this one uses, or 0. */
static unsigned int list(nvmlDevice_t device, unsigned long long *ret_own)
{
    nvmlProcessInfo_t infos[PROCESSES_MAX];
    unsigned int count = PROCESSES_MAX;
    check_int(ml_processes(device, &count, infos), NVML_SUCCESS, "the processes");
    *ret_own = 0;
    for (unsigned int i = 0; i < count; i++) {
        if (infos[i].pid == (unsigned int)getpid()) {
            *ret_own = infos[i].usedGpuMemory;
        }
    }
    return count;
}

static void agree(size_t quota)
{
    CUdeviceptr block = 0;
    unsigned long long own = 0;
    unsigned int none = 0;
    check_int(ml_init(), NVML_SUCCESS, "nvmlInit");
    nvmlDevice_t device = first_device();
    check_identity(device);
    check_memory(device, quota, "memory with nothing taken");
    DRV(cu.MemAlloc_v2(&block, BLOCK_BYTES));
    check_memory(device, quota, "memory with a block taken");
    check_int(list(device, &own), 1, "only this process is listed");
    check_true(own >= BLOCK_BYTES && own <= quota, "with the memory that it uses");
    check_int(ml_processes(device, &none, NULL), NVML_ERROR_INSUFFICIENT_SIZE, "no room");
    check_int(none, 1, "how much is needed");
    DRV(cu.MemFree_v2(block));
    check_memory(device, quota, "memory with the block given back");
    check_int(ml_shutdown(), NVML_SUCCESS, "nvmlShutdown");
    check_int(ml_shutdown(), NVML_ERROR_UNINITIALIZED, "once too often");
    check_int(ml_count(&none), NVML_ERROR_UNINITIALIZED, "nothing works after it");
}

static int child_uses_cuda(nvmlDevice_t device)
{
    nvmlMemory_t memory;
    CUcontext context;
    CUdeviceptr block;
    unsigned long long own = 0;
    if (ml_memory(device, &memory) != NVML_SUCCESS) {
        return 2;
    }
    driver_open("e2e_nvml's child");
    if (cu.Init(0) != CUDA_SUCCESS || cu.DevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
        cu.CtxSetCurrent(context) != CUDA_SUCCESS ||
        cu.MemAlloc_v2(&block, BLOCK_BYTES) != CUDA_SUCCESS) {
        return 3;
    }
    return list(device, &own) == 1 && own >= BLOCK_BYTES ? 0 : 4;
}

static void alone(void)
{
    unsigned long long own = 0;
    int status = -1;
    check_int(ml_init(), NVML_SUCCESS, "nvmlInit");
    check_int(ml_init(), NVML_SUCCESS, "nvmlInit again");
    nvmlDevice_t device = first_device();
    check_int(list(device, &own), 0, "no process is listed");
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        _exit(child_uses_cuda(device));
    }
    check_true(child > 0 && waitpid(child, &status, 0) == child, "a child");
    check_int(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 0, "it could use CUDA");
    unsigned int listed = list(device, &own);
    for (int i = 0; listed != 0 && i < RETRIES; i++) { /* the host is cleaning up */
        usleep(RETRY_US);
        listed = list(device, &own);
    }
    check_int(listed, 0, "the parent's connection is unharmed, the child is gone");
    check_int(ml_shutdown(), NVML_SUCCESS, "nvmlShutdown");
    check_int(list(device, &own), 0, "the first nvmlInit still counts");
    check_int(ml_shutdown(), NVML_SUCCESS, "nvmlShutdown again");
}

static void wait_for_line(void)
{
    char line[16];
    printf("ready\n");
    fflush(stdout);
    check_true(fgets(line, sizeof line, stdin) != NULL, "a line");
}

static void lost(bool comes_back)
{
    nvmlMemory_t memory;
    nvmlReturn_t want = comes_back ? NVML_SUCCESS : NVML_ERROR_GPU_IS_LOST;
    check_int(ml_init(), NVML_SUCCESS, "nvmlInit");
    nvmlDevice_t device = first_device();
    check_int(ml_memory(device, &memory), NVML_SUCCESS, "memory");
    wait_for_line();
    nvmlReturn_t got = ml_memory(device, &memory);
    for (int i = 0; got != want && i < RETRIES; i++) {
        usleep(RETRY_US);
        got = ml_memory(device, &memory);
    }
    check_int(got, want, comes_back ? "it came back" : "it is lost");
    check_int(ml_shutdown(), NVML_SUCCESS, "nvmlShutdown");
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    if (strcmp(what, "agree") == 0 && argc == 3) {
        driver_begin("e2e_nvml");
        load();
        agree(strtoull(argv[2], NULL, 0));
        return driver_end();
    }
    check_begin("e2e_nvml");
    load();
    if (strcmp(what, "alone") == 0) {
        alone();
    } else if (strcmp(what, "lost") == 0 || strcmp(what, "again") == 0) {
        lost(strcmp(what, "again") == 0);
    } else {
        fprintf(stderr, "usage: e2e_nvml agree QUOTA | alone | lost | again\n");
        return 2;
    }
    return check_end();
}
