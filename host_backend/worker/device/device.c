/*
 * Finds and describes the driver and the worker's devices.
 *
 * "auto" takes NVIDIA's libcuda.so.1 if it has a device, else softgpu. All sessions work in the
 * devices' primary contexts, each retained once (contexts.c): kernels of several tenants can only
 * run side by side in one context. Everything that a guest may ask about a device is read here
 * once.
 */
#include "host_backend/worker/device/device.h"
#include "host_backend/worker/device/connections.h"
#include "host_backend/worker/device/nvml.h"
#include "host_backend/worker/state/start_stages.h"
#include "host_backend/worker/state/worker.h"

#include "base/clock.h"
#include "base/log.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define N_ATTRIBUTES   149
#define N_LIMITS       16
#define P2P_ATTRIBUTES 5
/* An H100 had room for 98 native contexts. Under MPS a context took 75 MiB on 13 SMs and 519 MiB on
 * 132 (docs/measurements/contexts.md, docs/design/workers.md). */
#define CONTEXTS_MAX     98u
#define CONTEXT_BYTES    (UINT64_C(26) << 20)
#define CONTEXT_SM_BYTES (UINT64_C(15) << 18) /* memory of a context for each SM */
#define FACTS_MAX        (N_LIMITS + 1 + WEIR_DEVICES_MAX * (1 + P2P_ATTRIBUTES))

/* Open a driver; with "auto" it may be missing. */
static enum weir_status open_driver(struct weir_worker *worker, const char *path, bool tried,
                                    int *ret_devices)
{
    char why[200] = "";
    enum weir_status status = weir_driver_open(path, &worker->platform.driver, why, sizeof why);

    if (status != WEIR_OK) {
        weir_log_write(tried ? WEIR_LOG_DEBUG : WEIR_LOG_ERROR,
                       "worker: driver not loaded path=%s why=\"%s\"", path, why);
        return status;
    }
    weir_start_stage_ends(WEIR_START_DRIVER);
    CUresult result = worker->platform.driver.cuInit(0);
    WEIR_THEN(result, worker->platform.driver.cuDeviceGetCount(ret_devices));
    if (result != CUDA_SUCCESS || *ret_devices == 0) {
        weir_log_info("worker: driver has no device path=%s result=%d", path, (int)result);
        weir_driver_close(&worker->platform.driver);
        return WEIR_ERR_NOT_FOUND;
    }
    snprintf(worker->platform.driver_name, sizeof worker->platform.driver_name, "%s", path);
    return WEIR_OK;
}

/* Find softgpu near the program: in a build tree, an installation, or where ld.so searches. */
static enum weir_status open_softgpu(struct weir_worker *worker, int *ret_devices)
{
    static const char *const places[] = {
        "%s/libweir-softgpu.so", "%s/../lib/weir/libweir-softgpu.so",
        "%s/../lib/x86_64-linux-gnu/weir/libweir-softgpu.so", "%s/../softgpu/libweir-softgpu.so"};
    char program[PATH_MAX], path[PATH_MAX + 64];

    if (worker->config.softgpu[0] != 0) {
        return open_driver(worker, worker->config.softgpu, false, ret_devices);
    }
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    program[n > 0 ? n : 0] = 0;
    if (strrchr(program, '/')) {
        *strrchr(program, '/') = 0;
    }
    for (size_t i = 0; i < WEIR_COUNT(places); i++) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        snprintf(path, sizeof path, places[i], program);
#pragma GCC diagnostic pop
        if (access(path, R_OK) == 0) {
            return open_driver(worker, path, false, ret_devices);
        }
    }
    return open_driver(worker, "libweir-softgpu.so", false, ret_devices);
}

static enum weir_status choose_driver(struct weir_worker *worker, int *ret_devices)
{
    const char *wanted = worker->config.driver;
    enum weir_status status;

    /* If libcuda.so.1 is Weir's own, it must find no host here and so have no device. */
    setenv("WEIR_HOST", "none:", 1);
    WEIR_TRY(weir_connections_choose(worker));
    if (strcmp(wanted, "softgpu") == 0) {
        status = open_softgpu(worker, ret_devices);
    } else if (strcmp(wanted, "auto") != 0 && strcmp(wanted, "nvidia") != 0) {
        status = open_driver(worker, wanted, false, ret_devices);
        worker->platform.real = status == WEIR_OK && !strstr(wanted, "softgpu");
    } else {
        bool tried = strcmp(wanted, "auto") == 0;

        status = open_driver(worker, "libcuda.so.1", tried, ret_devices);
        worker->platform.real = status == WEIR_OK;
        if (status != WEIR_OK && tried) {
            status = open_softgpu(worker, ret_devices);
        }
    }
    return status;
}

static bool add_fact(struct weir_device *d, const char *key, uint64_t value)
{
    WEIR_FAIL_IF(d->n_facts == FACTS_MAX, false);
    snprintf(d->facts[d->n_facts].key, sizeof d->facts[0].key, "%s", key);
    d->facts[d->n_facts++].value = value;
    return true;
}

static enum weir_status describe_attributes(struct weir_worker *worker,
                                            struct weir_worker_device *device)
{
    struct weir_device *d = &device->about;

    d->attributes = calloc(N_ATTRIBUTES, sizeof *d->attributes);
    d->facts = calloc(FACTS_MAX, sizeof *d->facts);
    WEIR_FAIL_IF(!d->attributes || !d->facts, WEIR_ERR_NO_MEMORY);
    for (int id = 1; id <= N_ATTRIBUTES; id++) {
        int value = 0;
        CUresult result = worker->platform.driver.cuDeviceGetAttribute(
            &value, (CUdevice_attribute)id, device->cu);

        d->attributes[d->n_attributes++] =
            (struct weir_device_attribute){id, (int32_t)result, result == CUDA_SUCCESS ? value : 0};
    }
    return WEIR_OK;
}

/* Describe what a device may do with the memory of the others. */
static void describe_peers(struct weir_worker *worker, uint32_t index)
{
    const struct weir_driver *driver = &worker->platform.driver;
    struct weir_worker_device *device = &worker->platform.devices[index];

    for (uint32_t i = 0; i < worker->platform.n_devices; i++) {
        int can = 0, value;
        char key[32];

        if (i == index) {
            continue;
        }
        if (driver->cuDeviceCanAccessPeer(&can, device->cu, worker->platform.devices[i].cu) ==
                CUDA_SUCCESS &&
            can != 0) {
            device->peers |= 1u << i;
        }
        snprintf(key, sizeof key, "peer.%u", i);
        (void)add_fact(&device->about, key, can != 0);
        for (int id = 1; id <= P2P_ATTRIBUTES; id++) {
            if (driver->cuDeviceGetP2PAttribute(&value, (CUdevice_P2PAttribute)id, device->cu,
                                                worker->platform.devices[i].cu) == CUDA_SUCCESS) {
                snprintf(key, sizeof key, "p2p.%u.%d", i, id);
                (void)add_fact(&device->about, key, (uint64_t)value);
            }
        }
    }
}

uint32_t weir_device_capability(const struct weir_device *device)
{
    const struct weir_device_attribute *major =
        weir_device_attribute_get(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
    const struct weir_device_attribute *minor =
        weir_device_attribute_get(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);

    return major && minor ? (uint32_t)(major->value * 10 + minor->value) : 0;
}

/* Read the properties that need no context. */
static enum weir_status describe(struct weir_worker *worker, struct weir_worker_device *device)
{
    const struct weir_driver *driver = &worker->platform.driver;
    struct weir_device *d = &device->about;
    CUmemAllocationProp prop;
    size_t bytes = 0, granularity = 2 << 20;
    CUuuid uuid = {{0}};
    int fd_ok = 0;

    memset(&prop, 0, sizeof prop);
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = device->cu;
    d->real = worker->platform.real;
    if (driver->cuDriverGetVersion(&d->driver_version) != CUDA_SUCCESS ||
        driver->cuDeviceGetName(d->name, sizeof d->name, device->cu) != CUDA_SUCCESS ||
        driver->cuDeviceTotalMem_v2(&bytes, device->cu) != CUDA_SUCCESS) {
        return WEIR_ERR_DRIVER;
    }
    d->total_memory_bytes = bytes;
    if (driver->cuDeviceGetUuid_v2(&uuid, device->cu) == CUDA_SUCCESS) {
        memcpy(d->uuid, uuid.bytes, sizeof d->uuid);
    }
    (void)driver->cuDeviceGetLuid((char *)d->luid, &d->luid_mask, device->cu);
    (void)driver->cuDeviceGetPCIBusId(d->pci_bus_id, sizeof d->pci_bus_id, device->cu);
    (void)driver->cuMemGetAllocationGranularity(&granularity, &prop,
                                                CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    d->granularity_bytes = granularity;
    if (granularity > worker->platform.granularity_bytes) {
        worker->platform.granularity_bytes = granularity;
    }
    (void)driver->cuDeviceGetAttribute(
        &fd_ok, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, device->cu);
    worker->platform.posix_fds = worker->platform.posix_fds && fd_ok != 0;
    WEIR_FAIL_IF(describe_attributes(worker, device) != WEIR_OK, WEIR_ERR_NO_MEMORY);
    if (d->real) {
        uint32_t sm = weir_device_capability(d);

        worker->platform.sm =
            device == &worker->platform.devices[0] || worker->platform.sm == sm ? sm : 0;
    }
    return WEIR_OK;
}

/* --------------------------------------------------------------- properties that need a context */

/* Read properties from the current context, which is the device's or that of a similar one. */
static void ask_context(const struct weir_driver *driver, struct weir_device *d)
{
    CUexecAffinityParam affinity;

    (void)driver->cuCtxGetStreamPriorityRange(&d->stream_priority_least,
                                              &d->stream_priority_greatest);
    if (driver->cuCtxGetExecAffinity(&affinity, CU_EXEC_AFFINITY_TYPE_SM_COUNT) == CUDA_SUCCESS) {
        (void)add_fact(d, WEIR_DEVICE_FACT_SMS, affinity.param.smCount.val);
    }
    for (int limit = 0; limit < N_LIMITS; limit++) {
        char key[32];
        size_t value;

        if (driver->cuCtxGetLimit(&value, (CUlimit)limit) == CUDA_SUCCESS) {
            snprintf(key, sizeof key, "limit.%d", limit);
            (void)add_fact(d, key, value);
        }
    }
}

/* Find an earlier device of the same architecture. */
static bool has_like(const struct weir_platform *platform, uint32_t index, uint32_t *ret_like)
{
    uint32_t capability = weir_device_capability(&platform->devices[index].about);

    for (uint32_t i = 0; i < index; i++) {
        if (weir_device_capability(&platform->devices[i].about) == capability) {
            *ret_like = i;
            return true;
        }
    }
    return false;
}

/* Open a context, read its properties, and close it again. */
static bool ask_and_close(struct weir_worker *worker, struct weir_worker_device *device)
{
    const struct weir_driver *driver = &worker->platform.driver;
    CUcontext context;

    WEIR_FAIL_IF(driver->cuDevicePrimaryCtxRetain(&context, device->cu) != CUDA_SUCCESS, false);
    bool asked = driver->cuCtxSetCurrent(context) == CUDA_SUCCESS;
    if (asked) {
        ask_context(driver, &device->about);
    }
    (void)driver->cuCtxSetCurrent(worker->platform.devices[0].context);
    (void)driver->cuDevicePrimaryCtxRelease_v2(device->cu);
    return asked;
}

/*
 * Read the range of stream priorities and the default limits. Devices of one architecture have the
 * same values, so one context is enough for them. The first device's is current.
 */
static void describe_contexts(struct weir_worker *worker)
{
    struct weir_platform *platform = &worker->platform;

    for (uint32_t i = 0; i < platform->n_devices; i++) {
        struct weir_device *d = &platform->devices[i].about;
        uint32_t like = 0;

        if (i == 0) {
            ask_context(&platform->driver, d);
        } else if (has_like(platform, i, &like) || !ask_and_close(worker, &platform->devices[i])) {
            /* Without a similar device, use the first one's values. */
            const struct weir_device *from = &platform->devices[like].about;

            d->stream_priority_least = from->stream_priority_least;
            d->stream_priority_greatest = from->stream_priority_greatest;
            for (uint32_t k = 0; k < from->n_facts; k++) {
                (void)add_fact(d, from->facts[k].key, from->facts[k].value);
            }
        }
    }
}

CUresult weir_platform_enter(const struct weir_platform *platform)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    WEIR_TRY(platform->driver.cuCtxSetCurrent(platform->devices[0].context));
    /* One guest's capture must not forbid another guest's allocation. */
    (void)platform->driver.cuThreadExchangeStreamCaptureMode(&mode);
    return CUDA_SUCCESS;
}

/* Does the text, of an ordinal or of "GPU-" and the beginning of a UUID, mean this device? */
static bool names_device(struct weir_worker *worker, const char *item, CUdevice device, int ordinal)
{
    char text[64] = "GPU-", *end;
    size_t at = 4;
    CUuuid uuid;

    if (strncasecmp(item, "GPU-", 4) != 0) {
        return strtol(item, &end, 10) == ordinal && end != item && *end == 0;
    }
    if (worker->platform.driver.cuDeviceGetUuid_v2(&uuid, device) != CUDA_SUCCESS) {
        return false;
    }
    for (int i = 0; i < 16; i++) {
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%02x",
                               i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                               (unsigned char)uuid.bytes[i]);
    }
    return item[4] != 0 && strncasecmp(text, item, strlen(item)) == 0;
}

/* Add the device that an item of the list names; NULL: the driver's device of this ordinal. */
static bool add_device(struct weir_worker *worker, const char *item, int ordinal, int n_driver)
{
    CUdevice device;

    for (int i = item ? 0 : ordinal; i < n_driver; i++) {
        if (worker->platform.driver.cuDeviceGet(&device, i) != CUDA_SUCCESS ||
            (item && !names_device(worker, item, device, i))) {
            continue;
        }
        for (uint32_t k = 0; k < worker->platform.n_devices; k++) {
            if (worker->platform.devices[k].cu == device) {
                return false; /* the configuration names the device twice */
            }
        }
        if (worker->platform.n_devices == WEIR_DEVICES_MAX) {
            return false;
        }
        worker->platform.devices[worker->platform.n_devices].cu = device;
        pthread_mutex_init(&worker->platform.devices[worker->platform.n_devices++].opening, NULL);
        return true;
    }
    return false;
}

/* Explain why an item of the list could not be added. */
static void explain(struct weir_diag *why, struct weir_worker *worker, const char *item,
                    int n_driver)
{
    CUdevice device;

    for (int i = 0; i < n_driver; i++) {
        if (worker->platform.driver.cuDeviceGet(&device, i) == CUDA_SUCCESS &&
            names_device(worker, item, device, i)) {
            weir_diag_set(why, 0, 0, "device %d is named twice, the second time as '%s'", i, item);
            return;
        }
    }
    weir_diag_set(why, 0, 0,
                  n_driver == 1 ? "there is no device '%s', only device 0"
                                : "there is no device '%s': the driver has 0 to %d",
                  item, n_driver - 1);
}

static enum weir_status choose_devices(struct weir_worker *worker, int n_driver,
                                       struct weir_diag *why)
{
    char list[WEIR_DEVICE_LIST_BYTES], *rest = list, *item;

    snprintf(list, sizeof list, "%s", worker->config.devices);
    if (list[0] == 0) {
        for (int i = 0; i < n_driver && i < (int)WEIR_DEVICES_MAX; i++) {
            (void)add_device(worker, NULL, i, n_driver);
        }
        return worker->platform.n_devices != 0 ? WEIR_OK : WEIR_ERR_NOT_FOUND;
    }
    while ((item = strsep(&rest, ","))) {
        if (!add_device(worker, item, 0, n_driver)) {
            explain(why, worker, item, n_driver);
            return WEIR_ERR_NOT_FOUND;
        }
    }
    return WEIR_OK;
}

enum weir_status weir_worker_find_devices(struct weir_worker *worker, struct weir_diag *ret_why)
{
    int n_driver = 0;

    if (choose_driver(worker, &n_driver) != WEIR_OK) {
        weir_diag_set(ret_why, 0, 0, "no driver '%s' that has a device", worker->config.driver);
        return WEIR_ERR_NOT_FOUND;
    }
    return choose_devices(worker, n_driver, ret_why);
}

/* Report the devices: the supervisor checks whether another host serves them. */
static void tell_devices(const struct weir_worker *worker)
{
    struct weir_link_message message = {.type = WEIR_LINK_DEVICES};
    CUuuid uuid;

    _Static_assert(WEIR_LINK_DEVICES_MAX >= WEIR_DEVICES_MAX, "a worker's devices fit");
    for (uint32_t i = 0; worker->platform.real && i < worker->platform.n_devices; i++) {
        if (worker->platform.driver.cuDeviceGetUuid_v2(&uuid, worker->platform.devices[i].cu) ==
            CUDA_SUCCESS) {
            memcpy(message.gpus.uuid[message.gpus.n++], uuid.bytes, sizeof uuid.bytes);
        }
    }
    if (message.gpus.n != 0) {
        weir_worker_tell(worker, &message);
    }
}

/* For tests: WEIR_SOFTGPU_WAITS, WEIR_SOFTGPU_AWAY (docs/design/softgpu-driver.md). */
static bool softgpu_does(const char *variable)
{
    const char *text = getenv(variable);

    return text && strcmp(text, "1") == 0;
}

/* For tests: WEIR_SOFTGPU_MOVE. */
static uint64_t moves_for_tests(void)
{
    const char *text = getenv("WEIR_SOFTGPU_MOVE");

    return text ? strtoull(text, NULL, 10) : 0;
}

/*
 * The libcupti that may record. It records for the whole process, so only a worker of one program
 * uses it: other programs would pay. NVIDIA's works with NVIDIA's driver alone.
 */
static const char *choose_cupti(const struct weir_worker *worker)
{
    const char *wanted = worker->config.cupti;
    bool usable = worker->config.by_program && strcmp(wanted, "off") != 0 &&
                  (worker->platform.real || strcmp(wanted, "auto") != 0);

    return usable ? wanted : NULL;
}

enum weir_status weir_worker_open_device(struct weir_worker *worker)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    struct weir_diag why = {0};
    enum weir_status status = weir_worker_find_devices(worker, &why);

    if (status != WEIR_OK) {
        weir_log_error("worker: %s", why.message);
        return status;
    }
    weir_start_stage_ends(WEIR_START_INIT);
    tell_devices(worker);
    worker->platform.posix_fds = true;
    worker->platform.alone = worker->config.alone;
    worker->platform.by_program = worker->config.by_program;
    worker->platform.cupti = choose_cupti(worker);
    worker->platform.keeps_out = worker->platform.real || softgpu_does("WEIR_SOFTGPU_WAITS");
    worker->platform.moves_every = worker->platform.real ? 0 : moves_for_tests();
    worker->platform.away_tests = !worker->platform.real && softgpu_does("WEIR_SOFTGPU_AWAY");
    CUresult result = weir_worker_device_open(worker, 0);
    if (result == CUDA_ERROR_OUT_OF_MEMORY || result == CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED) {
        return WEIR_ERR_NO_MEMORY;
    }
    WEIR_FAIL_IF(result != CUDA_SUCCESS || weir_platform_enter(&worker->platform) != CUDA_SUCCESS,
                 WEIR_ERR_DRIVER);
    weir_start_stage_ends(WEIR_START_PARTS);
    for (uint32_t i = 0; status == WEIR_OK && i < worker->platform.n_devices; i++) {
        status = describe(worker, &worker->platform.devices[i]);
    }
    if (status != WEIR_OK) {
        return status;
    }
    describe_contexts(worker);
    for (uint32_t i = 0; status == WEIR_OK && i < worker->platform.n_devices; i++) {
        struct weir_worker_device *device = &worker->platform.devices[i];

        describe_peers(worker, i);
        status = weir_nvml_create(worker->platform.real ? "libnvidia-ml.so.1" : NULL,
                                  &device->about, &device->nvml);
    }
    /* Spinning pays off if a core is idle and a launch takes microseconds. */
    worker->platform.spin.ns = cores >= 8 ? 200 * WEIR_NS_PER_US : WEIR_SHORT_SPIN_NS;
    worker->platform.spin.owed_ns = cores >= 8 && worker->platform.real ? 10 * WEIR_NS_PER_MS : 0;
    weir_connections_opened(worker);
    return status;
}

void weir_worker_close_device(struct weir_worker *worker)
{
    weir_worker_contexts_close(worker);
    for (uint32_t i = 0; i < worker->platform.n_devices; i++) {
        struct weir_worker_device *device = &worker->platform.devices[i];

        weir_nvml_destroy(device->nvml);
        free(device->about.attributes);
        free(device->about.facts);
        pthread_mutex_destroy(&device->opening);
        *device = (struct weir_worker_device){0};
    }
    worker->platform.n_devices = 0;
    weir_driver_close(&worker->platform.driver);
}

/* For tests: a limit on softgpu's contexts. */
static uint32_t softgpu_contexts(void)
{
    const char *text = getenv("WEIR_SOFTGPU_CONTEXTS");
    unsigned long n = text ? strtoul(text, NULL, 10) : 0;

    return n != 0 && n < CONTEXTS_MAX ? (uint32_t)n : CONTEXTS_MAX;
}

uint32_t weir_platform_n_contexts(const struct weir_platform *platform, uint32_t device)
{
    CUdevice cu = platform->devices[device].cu;
    uint64_t room = CONTEXTS_MAX;
    size_t bytes = 0;
    int sms = 0;

    if (!platform->real) {
        return softgpu_contexts();
    }
    if (platform->driver.cuDeviceTotalMem_v2(&bytes, cu) == CUDA_SUCCESS &&
        platform->driver.cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, cu) ==
            CUDA_SUCCESS &&
        sms > 0) {
        room = bytes / (CONTEXT_BYTES + (uint64_t)sms * CONTEXT_SM_BYTES);
    }
    return room < CONTEXTS_MAX ? (uint32_t)room : CONTEXTS_MAX;
}

uint64_t weir_platform_total_bytes(const struct weir_platform *platform)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < platform->n_devices; i++) {
        bytes += platform->devices[i].about.total_memory_bytes;
    }
    return bytes;
}

void weir_platform_text(const struct weir_platform *platform, char *text, size_t bytes)
{
    const char *first = platform->devices[0].about.name;
    bool alike =
        !WEIR_ANY(i, platform->n_devices, strcmp(first, platform->devices[i].about.name) != 0);
    size_t at = 0;

    if (alike && platform->n_devices > 1) {
        snprintf(text, bytes, "%u x %.*s", platform->n_devices, (int)bytes - 8, first);
        return;
    }
    for (uint32_t i = 0; i < platform->n_devices && at < bytes; i++) {
        at += (size_t)snprintf(text + at, bytes - at, "%s%s", i == 0 ? "" : ", ",
                               platform->devices[i].about.name);
    }
}
