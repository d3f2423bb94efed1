/*
 * Start, fork and exit of the library, and the callbacks of the export tables.
 *
 * cuInit makes the device table and one inactive primary context per device: it starts no thread
 * and no kernel engine, so that a program which only probes costs little. A forked child of a
 * process that has called cuInit always gets CUDA_ERROR_NOT_INITIALIZED. At exit running kernels
 * are cancelled, and every later call returns CUDA_ERROR_DEINITIALIZED. Nothing is freed and no
 * thread is joined then, since other exit handlers may still call this library.
 */
#include "base/log.h"
#include "proto/common/common.h"
#include "proto/common/ctx_stack.h"
#include "softgpu/driver/driver.h"
#include "softgpu/driver/entry.h"

#include <stdlib.h>
#include <unistd.h>

enum { STATE_NONE, STATE_READY, STATE_FORKED, STATE_EXITING };

static int state = STATE_NONE;

CUresult weir_soft_enter(const char *name, bool always)
{
    weir_log_debug("softgpu: %s", name);
    switch (__atomic_load_n(&state, __ATOMIC_ACQUIRE)) {
    case STATE_READY:
        return CUDA_SUCCESS;
    case STATE_EXITING:
        return CUDA_ERROR_DEINITIALIZED;
    default:
        return always ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
    }
}

/* ------------------------------------------------------------------ export tables */

static bool front_initialized(void)
{
    return __atomic_load_n(&state, __ATOMIC_ACQUIRE) == STATE_READY;
}

static int front_version(void)
{
    return WEIR_SOFT_DRIVER_VERSION;
}

static int front_device_count(void)
{
    return (int)weir_soft_device_count();
}

static void front_device(int ordinal, struct weir_common_device *ret_device)
{
    const struct weir_soft_device *device = weir_soft_device_at(ordinal);
    *ret_device = (struct weir_common_device){.uuid = device->uuid, .pci_bus = device->pci_bus};
}

static CUresult front_primary(CUdevice dev, CUcontext *ret_context)
{
    const struct weir_soft_device *device = weir_soft_device_at(dev);
    WEIR_FAIL_IF(!device, CUDA_ERROR_INVALID_DEVICE);
    *ret_context = (CUcontext)device->primary;
    return CUDA_SUCCESS;
}

static struct weir_ctx_storage *front_storage(CUcontext context)
{
    /* A short cut for the most frequent call: device 0's primary context is never freed. */
    struct weir_soft_device *first = weir_soft_device_at(0);
    if (first && context == (CUcontext)first->primary) {
        return &first->primary->storage;
    }
    WEIR_SOFT_LOCKED();
    struct weir_soft_ctx *ctx = weir_soft_object_find(WEIR_SOFT_CONTEXT, context);
    return !ctx ? NULL : &ctx->storage;
}

static CUresult front_module_function(CUmodule module, unsigned int index, CUfunction *ret_function)
{
    WEIR_SOFT_LOCKED();
    const struct weir_soft_module *m = weir_soft_object_find(WEIR_SOFT_MODULE, module);
    WEIR_FAIL_IF(!m, CUDA_ERROR_INVALID_HANDLE);
    WEIR_FAIL_IF(index >= m->n_functions, CUDA_ERROR_NOT_FOUND);
    *ret_function = (CUfunction)m->functions[index];
    return CUDA_SUCCESS;
}

static CUresult front_stream_id(CUcontext context, CUstream stream, unsigned long long *ret_id)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_ctx *ctx;
    WEIR_TRY(weir_soft_ctx_find(context, &ctx));
    CUstream named = !stream ? CU_STREAM_LEGACY : stream;
    if (named == CU_STREAM_LEGACY) {
        *ret_id = ctx->legacy->id;
        return CUDA_SUCCESS;
    }
    struct weir_soft_stream *found;
    WEIR_TRY(weir_soft_stream_find(named, &found));
    *ret_id = found->id;
    return CUDA_SUCCESS;
}

static const struct weir_common_ops front_ops = {
    .initialized = front_initialized,
    .driver_version = front_version,
    .device_count = front_device_count,
    .device = front_device,
    .primary_context = front_primary,
    .current_context = weir_ctx_stack_current,
    .context_storage = front_storage,
    .context_id = weir_soft_cuCtxGetId,
    .stream_id = front_stream_id,
    .module_function = front_module_function,
};

__attribute__((constructor)) static void at_load(void)
{
    (void)!weir_log_init(getenv("WEIR_SOFTGPU_LOG"), "softgpu");
    weir_common_init(&front_ops);
}

/* ------------------------------------------------------------------ start and end */

static void after_fork(void)
{
    if (state == STATE_READY) {
        state = STATE_FORKED;
    }
    weir_soft_tasks_forget();
    weir_soft_unlock();
}

static void cancel_context(void *object, void *user)
{
    (void)user;
    struct weir_soft_ctx *ctx = object;
    __atomic_store_n(&ctx->cancel, 1, __ATOMIC_RELEASE);
    __atomic_store_n(&ctx->closing, 1, __ATOMIC_RELEASE);
}

static void at_exit(void)
{
    int ready = STATE_READY;
    if (!__atomic_compare_exchange_n(&state, &ready, STATE_EXITING, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_RELAXED)) {
        return;
    }
    weir_soft_exit_begins();
    weir_soft_print_flush();
    weir_soft_lock();
    weir_soft_object_visit(WEIR_SOFT_CONTEXT, cancel_context, NULL);
    weir_soft_unlock();
}

static CUresult init_locked(void)
{
    WEIR_TRY(weir_soft_devices_init());
    uint64_t total = 0;
    for (uint32_t i = 0; i < weir_soft_device_count(); i++) {
        total += weir_soft_device_at((int)i)->total_bytes;
    }
    WEIR_TRY(weir_soft_space_init(total));
    for (uint32_t i = 0; i < weir_soft_device_count(); i++) {
        struct weir_soft_device *device = weir_soft_device_at((int)i);
        WEIR_TRY(weir_soft_ctx_make_primary(device));
        CUmemPoolProps props = {
            .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device->ordinal},
        };
        WEIR_TRY(weir_soft_pool_make(device, &props, &device->default_pool));
        device->default_pool->is_default = true;
        device->current_pool = device->default_pool;
    }
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuInit(unsigned int flags)
{
    WEIR_FAIL_IF(flags != 0, CUDA_ERROR_INVALID_VALUE);
    int now = __atomic_load_n(&state, __ATOMIC_ACQUIRE);
    WEIR_FAIL_IF(now == STATE_FORKED, CUDA_ERROR_NOT_INITIALIZED);
    if (now != STATE_NONE) {
        return now == STATE_READY ? CUDA_SUCCESS : CUDA_ERROR_DEINITIALIZED;
    }
    WEIR_SOFT_LOCKED();
    if (state != STATE_NONE) {
        return CUDA_SUCCESS;
    }
    WEIR_TRY(init_locked());
    weir_soft_lock_at_fork(after_fork);
    atexit(at_exit);
    __atomic_store_n(&state, STATE_READY, __ATOMIC_RELEASE);
    return CUDA_SUCCESS;
}
