/*
 * Opens a device: its primary context, and the objects that depend on it.
 *
 * A thread that opens a device holds only its lock `opening`, and has left the barrier of
 * device_idle.h, so that sessions on other devices continue. The store of is_open publishes these
 * objects (C1); they never change afterwards.
 */

#include "base/clock.h"
#include "base/log.h"
#include "host_backend/worker/device/device.h"
#include "host_backend/worker/device/device_idle.h"
#include "host_backend/worker/device/gates.h"
#include "host_backend/worker/device/streams.h"
#include "host_backend/worker/state/ending.h"
#include "host_backend/worker/state/limits.h"
#include "host_backend/worker/state/start_stages.h"
#include "host_backend/worker/state/tenant.h"
#include "host_backend/worker/state/worker.h"
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define TRIAL_VALUE 0x57e1u

/* The limits of its context that a program may set. */
static const CUlimit limits[] = {CU_LIMIT_STACK_SIZE,
                                 CU_LIMIT_PRINTF_FIFO_SIZE,
                                 CU_LIMIT_MALLOC_HEAP_SIZE,
                                 CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH,
                                 CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT,
                                 CU_LIMIT_MAX_L2_FETCH_GRANULARITY,
                                 CU_LIMIT_PERSISTING_L2_CACHE_SIZE};
_Static_assert(WEIR_COUNT(limits) == WEIR_DEVICE_LIMITS, "a value for each");

/* ---------------------------------------------------------------- writes by the GPU */

/* Map host memory and register it. Unregistering would wait for the work of all devices, so the
 * memory stays registered. */
static void *map_registered(const struct weir_driver *driver, size_t bytes)
{
    unsigned flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    WEIR_FAIL_IF(at == MAP_FAILED, NULL);
    if (driver->cuMemHostRegister_v2(at, bytes, flags) != CUDA_SUCCESS) {
        munmap(at, bytes);
        return NULL;
    }
    return at;
}

static void unmap_registered(const struct weir_driver *driver, void *at, size_t bytes)
{
    if (at) {
        (void)driver->cuMemHostUnregister(at);
        munmap(at, bytes);
    }
}

/* Does the GPU's own write to registered memory arrive? Tested, because drivers report this
 * attribute wrongly. The device's context is current. */
static bool try_write_value(const struct weir_platform *platform, uint32_t index)
{
    const struct weir_driver *driver = &platform->driver;
    uint32_t *word = platform->trial + index;
    CUdeviceptr address;
    CUstream stream;
    bool ok = false;

    WEIR_FAIL_IF(!platform->trial, false);
    __atomic_store_n(word, 0, __ATOMIC_RELEASE);
    if (driver->cuMemHostGetDevicePointer_v2(&address, word, 0) == CUDA_SUCCESS &&
        driver->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS) {
        ok = driver->cuStreamWriteValue32_v2(stream, address, TRIAL_VALUE,
                                             CU_STREAM_WRITE_VALUE_DEFAULT) == CUDA_SUCCESS &&
             driver->cuStreamSynchronize(stream) == CUDA_SUCCESS &&
             __atomic_load_n(word, __ATOMIC_ACQUIRE) == TRIAL_VALUE;
        (void)driver->cuStreamDestroy_v2(stream);
    }
    return ok;
}

/* ---------------------------------------------------------------- limits */

/* Read the limits of the current context. 0: the driver has no limit of this kind. */
static void read_limits(const struct weir_driver *driver, size_t values[WEIR_DEVICE_LIMITS])
{
    for (size_t i = 0; i < WEIR_DEVICE_LIMITS; i++) {
        if (driver->cuCtxGetLimit(&values[i], limits[i]) != CUDA_SUCCESS) {
            values[i] = 0;
        }
    }
}

void weir_worker_limits_note(struct weir_worker *worker)
{
    struct weir_platform *platform = &worker->platform;

    (void)weir_platform_enter(platform);
    read_limits(&platform->driver, platform->devices[0].limits);
}

bool weir_worker_limits_changed(const struct weir_worker *worker)
{
    const struct weir_platform *platform = &worker->platform;
    size_t now[WEIR_DEVICE_LIMITS];
    bool changed = false;

    for (uint32_t i = 0; i < platform->n_devices; i++) {
        const struct weir_worker_device *device = &platform->devices[i];

        if (weir_device_is_open(device) &&
            platform->driver.cuCtxSetCurrent(device->context) == CUDA_SUCCESS) {
            read_limits(&platform->driver, now);
            changed |= memcmp(now, device->limits, sizeof now) != 0;
        }
    }
    (void)weir_platform_enter(platform);
    return changed;
}

static uint64_t attribute_of(const struct weir_worker_device *device, CUdevice_attribute attribute)
{
    const struct weir_device_attribute *a = weir_device_attribute_get(&device->about, attribute);

    return a && a->value > 0 ? (uint64_t)a->value : 1;
}

/*
 * Device memory that a context takes for a limit. The stack exists for each thread that the
 * context's SMs can hold: this explains the 520 MiB of an H200's context with stacks of 1 KiB. The
 * size of a level of synchronisation is from the CUDA C++ Programming Guide, for GPUs that still
 * have them. A pending launch keeps its parameters, at most 4 KiB before CUDA 12.1: an upper bound
 * that was not measured.
 */
static uint64_t bytes_of(const struct weir_worker_device *device, CUlimit limit, uint64_t value)
{
    switch ((int)limit) {
    case CU_LIMIT_STACK_SIZE:
        return value * attribute_of(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) *
               attribute_of(device, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
    case CU_LIMIT_PRINTF_FIFO_SIZE:
    case CU_LIMIT_MALLOC_HEAP_SIZE:
        return value;
    case CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH:
        return value * (150u << 20);
    case CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT:
        return value * 4096;
    default:
        return 0; /* the limit is about the L2 cache, and takes no memory */
    }
}

static uint64_t bytes_beyond_open(const struct weir_worker_device *device, uint32_t limit,
                                  uint64_t value)
{
    uint64_t at_open = device->limits[limit];

    return value > at_open
               ? bytes_of(device, limits[limit], value) - bytes_of(device, limits[limit], at_open)
               : 0;
}

static pthread_mutex_t limits_lock = PTHREAD_MUTEX_INITIALIZER; /* limit_bytes, tenants' limits */

/* Release what a limit no longer needs. */
static void give_back(struct weir_tenant *tenant, uint32_t device, uint64_t *needed, uint64_t bytes)
{
    uint64_t charged = WEIR_MIN(tenant->limits.of[device], bytes);

    *needed -= bytes;
    tenant->limits.bytes[device] -= bytes;
    tenant->limits.of[device] -= charged;
    tenant->limits.charged -= charged;
    weir_tenant_release(tenant, device, charged);
}

static CUresult set_locked(struct weir_session *s, uint32_t limit, uint64_t value)
{
    struct weir_worker_device *device = &s->worker->platform.devices[s->device];
    uint64_t *needed = &device->limit_bytes[limit], before = *needed,
             after = bytes_beyond_open(device, limit, value);

    if (after > before) {
        WEIR_TRY(weir_session_charge(s, s->device, WEIR_ACCOUNT_DEVICE_MEMORY, after - before));
        *needed = after;
        s->tenant->limits.bytes[s->device] += after - before;
        s->tenant->limits.of[s->device] += after - before;
        s->tenant->limits.charged += after - before;
    }
    CUresult result = weir_session_note_lack(s, s->driver->cuCtxSetLimit(limits[limit], value));
    after = result == CUDA_SUCCESS ? after : before;
    if (*needed > after) {
        give_back(s->tenant, s->device, needed, *needed - after);
    }
    return result;
}

void weir_context_limits_join(struct weir_tenant *tenant)
{
    WEIR_LOCKED(&limits_lock);
    bool first = tenant->limits.n_sessions++ == 0;

    for (uint32_t i = 0; first && i < WEIR_ACCOUNT_DEVICES; i++) {
        const struct weir_amounts amounts = weir_account_device_bytes(i, tenant->limits.bytes[i]);
        enum weir_account_item refused;

        if (weir_account_charge_all(&tenant->account, &amounts, &refused)) {
            tenant->limits.of[i] = tenant->limits.bytes[i];
            tenant->limits.charged += tenant->limits.of[i];
        }
    }
}

void weir_context_limits_leave(struct weir_tenant *tenant)
{
    WEIR_LOCKED(&limits_lock);
    bool last = --tenant->limits.n_sessions == 0;

    for (uint32_t i = 0; last && i < WEIR_ACCOUNT_DEVICES; i++) {
        weir_tenant_release(tenant, i, tenant->limits.of[i]);
        tenant->limits.charged -= tenant->limits.of[i];
        tenant->limits.of[i] = 0;
    }
}

CUresult weir_context_limit_set(struct weir_session *session, uint32_t limit, uint64_t value,
                                bool may_lower, uint64_t *ret_now)
{
    size_t now = 0;

    pthread_mutex_lock(&limits_lock);
    CUresult result = session->driver->cuCtxGetLimit(&now, limits[limit]);
    if (result == CUDA_SUCCESS && (may_lower || value > now)) {
        result = set_locked(session, limit, value);
    }
    WEIR_THEN(result, session->driver->cuCtxGetLimit(&now, limits[limit]));
    pthread_mutex_unlock(&limits_lock);
    *ret_now = now;
    return result;
}

/* ---------------------------------------------------------------- open */

/* A driver that does not reach its MPS server may silently make a context outside it. Such a
 * context has all SMs. */
static void check_mps(const struct weir_worker *worker, struct weir_worker_device *device)
{
    int under_mps = 1;

    if (!worker->config.under_mps ||
        worker->platform.driver.cuDeviceGetAttribute(&under_mps, CU_DEVICE_ATTRIBUTE_MPS_ENABLED,
                                                     device->cu) != CUDA_SUCCESS) {
        return; /* a driver too old for the attribute cannot tell */
    }
    if (under_mps == 0) {
        weir_log_warn("worker: its context is not under MPS, so its program takes turns with those "
                      "that are device=%d",
                      (int)device->cu);
        return;
    }
    device->share_pct = worker->config.sm_share_pct;
    if (device->share_pct != 0) {
        weir_log_info("worker: its context has a share of the SMs device=%d percent=%u",
                      (int)device->cu, device->share_pct);
    }
}

/* Did an idle worker give up its contexts, so that this one may try again? Only for devices after
 * the first: for the first the supervisor makes room. */
static bool room_was_made(struct weir_worker *worker, uint32_t index, CUresult result)
{
    return index != 0 &&
           (result == CUDA_ERROR_OUT_OF_MEMORY ||
            result == CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED) &&
           weir_memory_came(worker);
}

static CUresult retain(struct weir_worker *worker, uint32_t index)
{
    const struct weir_driver *driver = &worker->platform.driver;
    struct weir_worker_device *device = &worker->platform.devices[index];

    /* The worker itself waits only during clean-up, so it does not spin. */
    (void)driver->cuDevicePrimaryCtxSetFlags_v2(device->cu,
                                                CU_CTX_SCHED_BLOCKING_SYNC | CU_CTX_MAP_HOST);
    CUresult result = driver->cuDevicePrimaryCtxRetain(&device->context, device->cu);
    if (result != CUDA_SUCCESS && room_was_made(worker, index, result)) {
        result = driver->cuDevicePrimaryCtxRetain(&device->context, device->cu);
    }
    return result;
}

/* Make the parts of a device. Its context is current. */
static CUresult make_parts(struct weir_worker *worker, uint32_t index)
{
    struct weir_platform *platform = &worker->platform;
    struct weir_worker_device *device = &platform->devices[index];

    check_mps(worker, device);
    if (index == 0) {
        platform->trial = map_registered(&platform->driver, (size_t)sysconf(_SC_PAGESIZE));
    }
    if (index == 0 && !platform->by_program) {
        platform->zeroes = map_registered(&platform->driver, WEIR_ZEROES_BYTES);
    }
    device->write_value_ok = try_write_value(platform, index);
    enum weir_status status = weir_gates_add(worker, index);
    read_limits(&platform->driver, device->limits); /* the values that Weir starts with */
    return status == WEIR_OK ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult open_locked(struct weir_worker *worker, uint32_t index)
{
    const struct weir_driver *driver = &worker->platform.driver;
    struct weir_worker_device *device = &worker->platform.devices[index];
    uint64_t start_ns = weir_clock_now_ns();
    CUcontext before = NULL;

    (void)driver->cuCtxGetCurrent(&before);
    CUresult result = retain(worker, index);
    if (index == 0) {
        weir_start_stage_ends(WEIR_START_CONTEXT);
    }
    if (result == CUDA_SUCCESS) {
        result = driver->cuCtxSetCurrent(device->context);
        result = result == CUDA_SUCCESS ? make_parts(worker, index) : result;
        if (result != CUDA_SUCCESS) {
            (void)driver->cuDevicePrimaryCtxRelease_v2(device->cu);
        }
        (void)driver->cuCtxSetCurrent(before);
    }
    if (result != CUDA_SUCCESS) {
        device->context = NULL;
        weir_log_warn("worker: no context can be made, so what needs it fails device=%d result=%d",
                      (int)device->cu, (int)result);
        return result;
    }
    weir_log_info("worker: context opened device=%d ms=%llu", (int)device->cu,
                  (unsigned long long)((weir_clock_now_ns() - start_ns) / WEIR_NS_PER_MS));
    /* C1: publishes the context; meets the acquire in weir_device_is_open(). */
    atomic_store_explicit(&device->is_open, true, memory_order_release);
    return CUDA_SUCCESS;
}

CUresult weir_worker_device_open(struct weir_worker *worker, uint32_t index)
{
    struct weir_worker_device *device = &worker->platform.devices[index];
    CUresult result = CUDA_SUCCESS;

    if (weir_device_is_open(device)) {
        return CUDA_SUCCESS;
    }
    struct weir_session *inside = weir_device_barrier_pause();
    pthread_mutex_lock(&device->opening);
    if (!weir_device_is_open(device)) {
        result = open_locked(worker, index);
    }
    pthread_mutex_unlock(&device->opening);
    weir_device_barrier_resume(inside);
    return result;
}

void weir_worker_contexts_close(struct weir_worker *worker)
{
    struct weir_platform *platform = &worker->platform;

    unmap_registered(&platform->driver, platform->trial, (size_t)sysconf(_SC_PAGESIZE));
    unmap_registered(&platform->driver, platform->zeroes, WEIR_ZEROES_BYTES);
    platform->trial = NULL;
    platform->zeroes = NULL;
    for (uint32_t i = 0; i < platform->n_devices; i++) {
        struct weir_worker_device *device = &platform->devices[i];

        if (weir_device_is_open(device)) {
            atomic_store(&device->is_open, false);
            (void)platform->driver.cuDevicePrimaryCtxRelease_v2(device->cu);
            device->context = NULL;
        }
    }
}

/* ---------------------------------------------------------------- use by sessions */

CUresult weir_session_switch(struct weir_session *session, uint32_t device)
{
    if ((session->devices.used >> device & 1) == 0) {
        WEIR_TRY(weir_worker_device_open(session->worker, device));
        session->devices.used |= 1u << device;
        session->devices.first_use(session, device);
    }
    WEIR_TRY(session->driver->cuCtxSetCurrent(session->platform->devices[device].context));
    session->device = device;
    return CUDA_SUCCESS;
}

CUresult weir_session_work_stream(struct weir_session *session, CUstream *ret_stream)
{
    CUstream *stream = &session->devices.work_streams[session->device];
    CUresult result = CUDA_SUCCESS;

    if (!*stream) {
        result = session->driver->cuStreamCreate(stream, CU_STREAM_NON_BLOCKING);
    }
    *ret_stream = *stream;
    return result;
}

void weir_session_work_streams_end(struct weir_session *session)
{
    const struct weir_driver *d = session->driver;

    for (uint32_t i = 0; i < WEIR_DEVICES_MAX; i++) {
        CUstream stream = session->devices.work_streams[i];

        if (stream && weir_session_enter(session, i) == CUDA_SUCCESS) {
            (void)d->cuStreamSynchronize(stream);
            (void)d->cuStreamDestroy_v2(stream);
        }
    }
}
