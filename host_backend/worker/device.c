/*
 * The driver and its one context: found, opened, described.
 *
 * "auto" takes NVIDIA's libcuda.so.1 if it has a device, else softgpu. All sessions work in the
 * device's primary context, retained once: kernels of several tenants can only run side by side in
 * one context. Everything that a guest asks about the device is asked here once.
 */
#include "host_backend/worker/nvml.h"
#include "host_backend/worker/worker.h"

#include "base/clock.h"
#include "base/log.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define N_ATTRIBUTES 149
#define N_LIMITS     16

bool weir_error_is_sticky(CUresult error)
{
    switch ((int)error) {
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
        return true;
    default:
        return false;
    }
}

static enum weir_status open_driver(struct weir_worker *worker, const char *path, int *ret_devices)
{
    char why[200] = "";
    enum weir_status status = weir_driver_open(path, &worker->driver, why, sizeof why);
    CUresult result;

    if (status != WEIR_OK) {
        weir_log_debug("worker: driver not loaded path=%s why=\"%s\"", path, why);
        return status;
    }
    result = worker->driver.cuInit(0);
    if (result == CUDA_SUCCESS) {
        result = worker->driver.cuDeviceGetCount(ret_devices);
    }
    if (result != CUDA_SUCCESS || *ret_devices == 0) {
        weir_log_info("worker: driver has no device path=%s result=%d", path, (int)result);
        weir_driver_close(&worker->driver);
        return WEIR_ERR_NOT_FOUND;
    }
    snprintf(worker->driver_name, sizeof worker->driver_name, "%s", path);
    return WEIR_OK;
}

/* softgpu stands beside the program: in a build tree, an installation, or where ld.so looks. */
static enum weir_status open_softgpu(struct weir_worker *worker, int *ret_devices)
{
    static const char *const places[] = {
        "%s/libweir-softgpu.so", "%s/../lib/weir/libweir-softgpu.so",
        "%s/../lib/x86_64-linux-gnu/weir/libweir-softgpu.so", "%s/../softgpu/libweir-softgpu.so"};
    char program[PATH_MAX], path[PATH_MAX + 64];
    ssize_t n;

    if (worker->config.softgpu[0] != 0) {
        return open_driver(worker, worker->config.softgpu, ret_devices);
    }
    n = readlink("/proc/self/exe", program, sizeof program - 1);
    program[n > 0 ? n : 0] = 0;
    if (strrchr(program, '/') != NULL) {
        *strrchr(program, '/') = 0;
    }
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        snprintf(path, sizeof path, places[i], program);
#pragma GCC diagnostic pop
        if (access(path, R_OK) == 0) {
            return open_driver(worker, path, ret_devices);
        }
    }
    return open_driver(worker, "libweir-softgpu.so", ret_devices);
}

static enum weir_status choose_driver(struct weir_worker *worker, int *ret_devices)
{
    const char *wanted = worker->config.driver;
    enum weir_status status;

    /* Should libcuda.so.1 be Weir's own, it must find no host here and so have no device. */
    setenv("WEIR_HOST", "none:", 1);
    if (strcmp(wanted, "softgpu") == 0) {
        status = open_softgpu(worker, ret_devices);
    } else if (strcmp(wanted, "auto") != 0 && strcmp(wanted, "nvidia") != 0) {
        status = open_driver(worker, wanted, ret_devices);
        worker->device.real = status == WEIR_OK && strstr(wanted, "softgpu") == NULL;
    } else {
        status = open_driver(worker, "libcuda.so.1", ret_devices);
        worker->device.real = status == WEIR_OK;
        if (status != WEIR_OK && strcmp(wanted, "auto") == 0) {
            status = open_softgpu(worker, ret_devices);
        }
    }
    return status;
}

static enum weir_status describe_attributes(struct weir_worker *worker)
{
    struct weir_device *d = &worker->device;

    d->attributes = calloc(N_ATTRIBUTES, sizeof *d->attributes);
    d->facts = calloc(N_LIMITS, sizeof *d->facts);
    if (d->attributes == NULL || d->facts == NULL) {
        return WEIR_ERR_NO_MEMORY;
    }
    for (int id = 1; id <= N_ATTRIBUTES; id++) {
        int value = 0;
        CUresult result =
            worker->driver.cuDeviceGetAttribute(&value, (CUdevice_attribute)id, worker->cu_device);

        d->attributes[d->n_attributes++] =
            (struct weir_device_attribute){id, (int32_t)result, result == CUDA_SUCCESS ? value : 0};
    }
    for (int limit = 0; limit < N_LIMITS; limit++) {
        size_t value;

        if (worker->driver.cuCtxGetLimit(&value, (CUlimit)limit) == CUDA_SUCCESS) {
            struct weir_device_fact *fact = &d->facts[d->n_facts++];

            snprintf(fact->key, sizeof fact->key, "limit.%d", limit);
            fact->value = value;
        }
    }
    return WEIR_OK;
}

static CUmemAllocationProp memory_prop(const struct weir_worker *worker)
{
    CUmemAllocationProp prop;

    memset(&prop, 0, sizeof prop);
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = worker->cu_device;
    return prop;
}

static enum weir_status describe(struct weir_worker *worker)
{
    const struct weir_driver *driver = &worker->driver;
    struct weir_device *d = &worker->device;
    CUmemAllocationProp prop = memory_prop(worker);
    size_t bytes = 0, granularity = 2 << 20;
    CUuuid uuid = {{0}};
    int fd_ok = 0;

    if (driver->cuDriverGetVersion(&d->driver_version) != CUDA_SUCCESS ||
        driver->cuDeviceGetName(d->name, sizeof d->name, worker->cu_device) != CUDA_SUCCESS ||
        driver->cuDeviceTotalMem_v2(&bytes, worker->cu_device) != CUDA_SUCCESS) {
        return WEIR_ERR_DRIVER;
    }
    d->total_memory_bytes = bytes;
    if (driver->cuDeviceGetUuid_v2(&uuid, worker->cu_device) == CUDA_SUCCESS) {
        memcpy(d->uuid, uuid.bytes, sizeof d->uuid);
    }
    (void)driver->cuDeviceGetLuid((char *)d->luid, &d->luid_mask, worker->cu_device);
    (void)driver->cuDeviceGetPCIBusId(d->pci_bus_id, sizeof d->pci_bus_id, worker->cu_device);
    (void)driver->cuCtxGetStreamPriorityRange(&d->stream_priority_least,
                                              &d->stream_priority_greatest);
    (void)driver->cuMemGetAllocationGranularity(&granularity, &prop,
                                                CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    worker->granularity_bytes = d->granularity_bytes = granularity;
    (void)driver->cuDeviceGetAttribute(
        &fd_ok, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, worker->cu_device);
    worker->posix_fds = fd_ok != 0;
    if (describe_attributes(worker) != WEIR_OK) {
        return WEIR_ERR_NO_MEMORY;
    }
    if (d->real) {
        const struct weir_device_attribute *major =
            weir_device_attribute_get(d, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
        const struct weir_device_attribute *minor =
            weir_device_attribute_get(d, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);

        worker->sm = (uint32_t)(major->value * 10 + minor->value);
    }
    return WEIR_OK;
}

/* Does the GPU's own write to registered memory arrive? Tried, because attributes have lied. */
static bool try_write_value(struct weir_worker *worker)
{
    const struct weir_driver *driver = &worker->driver;
    size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
    void *page = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CUdeviceptr address;
    CUstream stream;
    bool ok = false;

    if (page == MAP_FAILED) {
        return false;
    }
    if (driver->cuMemHostRegister_v2(page, bytes, CU_MEMHOSTREGISTER_DEVICEMAP) == CUDA_SUCCESS) {
        if (driver->cuMemHostGetDevicePointer_v2(&address, page, 0) == CUDA_SUCCESS &&
            driver->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS) {
            ok = driver->cuStreamWriteValue32_v2(stream, address, 0x57e1,
                                                 CU_STREAM_WRITE_VALUE_DEFAULT) == CUDA_SUCCESS &&
                 driver->cuStreamSynchronize(stream) == CUDA_SUCCESS &&
                 __atomic_load_n((uint32_t *)page, __ATOMIC_ACQUIRE) == 0x57e1;
            (void)driver->cuStreamDestroy_v2(stream);
        }
        (void)driver->cuMemHostUnregister(page);
    }
    munmap(page, bytes);
    return ok;
}

CUresult weir_worker_enter(struct weir_worker *worker)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUresult result = worker->driver.cuCtxSetCurrent(worker->context);

    if (result == CUDA_SUCCESS) {
        /* One guest's capture must not forbid another's allocation. */
        (void)worker->driver.cuThreadExchangeStreamCaptureMode(&mode);
    }
    return result;
}

enum weir_status weir_worker_open_device(struct weir_worker *worker)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    enum weir_status status;
    int n_devices = 0;

    status = choose_driver(worker, &n_devices);
    if (status != WEIR_OK) {
        return WEIR_ERR_NOT_FOUND;
    }
    if (worker->config.device >= (uint32_t)n_devices ||
        worker->driver.cuDeviceGet(&worker->cu_device, (int)worker->config.device) !=
            CUDA_SUCCESS) {
        weir_log_error("worker: no such device device=%u devices=%d", worker->config.device,
                       n_devices);
        return WEIR_ERR_NOT_FOUND;
    }
    /* The worker itself waits only at clean-up: never by spinning. */
    (void)worker->driver.cuDevicePrimaryCtxSetFlags_v2(
        worker->cu_device, CU_CTX_SCHED_BLOCKING_SYNC | CU_CTX_MAP_HOST);
    if (worker->driver.cuDevicePrimaryCtxRetain(&worker->context, worker->cu_device) !=
            CUDA_SUCCESS ||
        weir_worker_enter(worker) != CUDA_SUCCESS) {
        worker->context = NULL;
        return WEIR_ERR_DRIVER;
    }
    status = describe(worker);
    if (status == WEIR_OK) {
        status = weir_nvml_create(worker->device.real ? "libnvidia-ml.so.1" : NULL, &worker->device,
                                  &worker->nvml);
    }
    if (status == WEIR_OK) {
        worker->write_value_ok = try_write_value(worker);
        /* Spinning pays where a core is to spare and a launch costs microseconds. */
        worker->spin_ns = cores >= 8 ? 200 * WEIR_NS_PER_US : 15 * WEIR_NS_PER_US;
        worker->owed_spin_ns = cores >= 8 && worker->device.real ? 10 * WEIR_NS_PER_MS : 0;
    }
    return status;
}

void weir_worker_close_device(struct weir_worker *worker)
{
    if (worker->context != NULL) {
        (void)worker->driver.cuDevicePrimaryCtxRelease_v2(worker->cu_device);
        worker->context = NULL;
    }
    weir_nvml_destroy(worker->nvml);
    worker->nvml = NULL;
    free(worker->device.attributes);
    free(worker->device.facts);
    worker->device.attributes = NULL;
    worker->device.facts = NULL;
    weir_driver_close(&worker->driver);
}
