/*
 * Contexts: primary and created ones, the calling thread's stack, limits, sticky errors, teardown.
 *
 * A device's primary context is one permanent object, which is active while it is retained: cudart
 * makes it current before retaining it. Teardown waits for the context's work, runs the destructors
 * of its local storage with no lock held, then retires everything that was made in it.
 */
#include "proto/common/ctx_stack.h"
#include "softgpu/driver/forward.h"

#include <stdlib.h>
#include <string.h>

#define CTX_FLAGS_MASK 0xffu

static const size_t default_limits[WEIR_SOFT_LIMIT_COUNT] = {
    [CU_LIMIT_STACK_SIZE] = 1024,
    [CU_LIMIT_PRINTF_FIFO_SIZE] = 1 << 20,
    [CU_LIMIT_MALLOC_HEAP_SIZE] = 8 << 20,
    [CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = 2,
    [CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048,
    [CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64,
};

static void ctx_release(void *object)
{
    struct weir_soft_ctx *ctx = object;
    weir_ctx_storage_finish(&ctx->storage);
    free(ctx->coredump);
}

static struct weir_soft_ctx *ctx_new(struct weir_soft_device *device)
{
    struct weir_soft_ctx *ctx =
        weir_soft_object_new(WEIR_SOFT_CONTEXT, sizeof(*ctx), NULL, ctx_release);
    WEIR_FAIL_IF(!ctx, NULL);
    ctx->device = device;
    ctx->api_version = 3020;
    ctx->id = weir_soft_next_id();
    ctx->cache_config = CU_FUNC_CACHE_PREFER_NONE;
    memcpy(ctx->limits, default_limits, sizeof(ctx->limits));
    weir_ctx_storage_init(&ctx->storage);
    return ctx;
}

static CUresult ctx_activate(struct weir_soft_ctx *ctx)
{
    ctx->sticky = ctx->untold = CUDA_SUCCESS;
    ctx->cancel = 0;
    ctx->closing = 0;
    ctx->legacy = weir_soft_stream_make(ctx, CU_STREAM_DEFAULT, 0);
    WEIR_FAIL_IF(!ctx->legacy, CUDA_ERROR_OUT_OF_MEMORY);
    ctx->legacy->legacy = true;
    ctx->active = true;
    return CUDA_SUCCESS;
}

CUresult weir_soft_ctx_make_primary(struct weir_soft_device *device)
{
    struct weir_soft_ctx *ctx = ctx_new(device);
    WEIR_FAIL_IF(!ctx, CUDA_ERROR_OUT_OF_MEMORY);
    ctx->primary = true;
    device->primary = ctx;
    return CUDA_SUCCESS;
}

/* ------------------------------------------------------------------ teardown */

static void retire_of_ctx(void *object, void *user)
{
    struct weir_soft_object *o = object;
    if (o->ctx == user) {
        weir_soft_object_retire(object);
    }
}

static void free_alloc(struct weir_soft_alloc *alloc)
{
    weir_soft_space_free(alloc);
}

static void wait_for_work(struct weir_soft_ctx *ctx)
{
    while (ctx->tasks && !weir_soft_exiting()) {
        struct weir_soft_task *barrier = weir_soft_task_barrier(ctx);
        if (!barrier) {
            return;
        }
        weir_soft_task_wait_unlocked(barrier);
        weir_soft_task_put(barrier);
    }
}

static void retire_streams(struct weir_soft_ctx *ctx)
{
    for (struct weir_soft_stream *stream; (stream = WEIR_POP(ctx->streams));) {
        weir_soft_capture_abandon(stream);
        weir_soft_object_retire(stream);
        weir_soft_object_put(stream); /* the reference that the list holds */
    }
    ctx->legacy = NULL;
}

/* The caller holds the lock; it is released while this waits and during destructors. */
static void ctx_teardown(struct weir_soft_ctx *ctx)
{
    static const enum weir_soft_kind kinds[] = {
        WEIR_SOFT_EVENT,  WEIR_SOFT_MODULE, WEIR_SOFT_GRAPH_EXEC, WEIR_SOFT_ARRAY,
        WEIR_SOFT_MIPMAP, WEIR_SOFT_LINK,   WEIR_SOFT_GREEN};
    __atomic_store_n(&ctx->closing, 1, __ATOMIC_RELEASE);
    wait_for_work(ctx);
    weir_soft_unlock();
    weir_soft_print_flush();
    weir_ctx_storage_clear(&ctx->storage, (CUcontext)ctx);
    weir_soft_lock();
    wait_for_work(ctx);
    ctx->active = false;
    if (ctx->primary) {
        weir_soft_device_give_room(ctx->device);
    }
    weir_soft_library_forget_ctx(ctx);
    for (size_t i = 0; i < WEIR_COUNT(kinds); i++) {
        weir_soft_object_visit(kinds[i], retire_of_ctx, ctx);
    }
    retire_streams(ctx);
    weir_soft_space_visit(ctx, free_alloc);
    memcpy(ctx->limits, default_limits, sizeof(ctx->limits));
    ctx->sticky = ctx->untold = CUDA_SUCCESS;
}

/* ------------------------------------------------------------------ primary contexts */

CUresult weir_soft_ctx_retain_primary(struct weir_soft_device *device)
{
    if (!device->primary->active) {
        WEIR_TRY(ctx_activate(device->primary));
    }
    device->primary->retained++;
    return CUDA_SUCCESS;
}

CUresult weir_soft_ctx_release_primary(struct weir_soft_device *device)
{
    struct weir_soft_ctx *ctx = device->primary;
    WEIR_FAIL_IF(ctx->retained == 0, CUDA_ERROR_INVALID_CONTEXT);
    if (--ctx->retained == 0 && ctx->active) {
        ctx_teardown(ctx);
    }
    return CUDA_SUCCESS;
}

static bool is_active(const struct weir_soft_device *device)
{
    WEIR_SOFT_LOCKED();
    return device->primary->active;
}

CUresult weir_soft_cuDevicePrimaryCtxRetain(CUcontext *ret, CUdevice dev)
{
    struct weir_soft_device *device = weir_soft_device_at(dev);
    WEIR_FAIL_IF(!ret, CUDA_ERROR_INVALID_VALUE);
    WEIR_FAIL_IF(!device, CUDA_ERROR_INVALID_DEVICE);
    if (!is_active(device)) {
        WEIR_TRY(weir_soft_device_make_room(device));
    }
    WEIR_SOFT_LOCKED();
    WEIR_TRY(weir_soft_ctx_retain_primary(device));
    *ret = (CUcontext)device->primary;
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_device *device = weir_soft_device_at(dev);
    return !device ? CUDA_ERROR_INVALID_DEVICE : weir_soft_ctx_release_primary(device);
}

CUresult weir_soft_cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
    WEIR_SOFT_LOCKED();
    const struct weir_soft_device *device = weir_soft_device_at(dev);
    WEIR_FAIL_IF(!device, CUDA_ERROR_INVALID_DEVICE);
    if (device->primary->active) {
        ctx_teardown(device->primary);
        device->primary->flags = 0;
    }
    device->primary->retained = 0;
    return CUDA_SUCCESS;
}

static bool ctx_flags_valid(unsigned flags)
{
    unsigned sched = flags & CU_CTX_SCHED_MASK;
    return (flags & ~CTX_FLAGS_MASK) == 0 &&
           (sched == CU_CTX_SCHED_AUTO || sched == CU_CTX_SCHED_SPIN ||
            sched == CU_CTX_SCHED_YIELD || sched == CU_CTX_SCHED_BLOCKING_SYNC);
}

CUresult weir_soft_cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags)
{
    WEIR_SOFT_LOCKED();
    const struct weir_soft_device *device = weir_soft_device_at(dev);
    WEIR_FAIL_IF(!device, CUDA_ERROR_INVALID_DEVICE);
    WEIR_FAIL_IF(!ctx_flags_valid(flags), CUDA_ERROR_INVALID_VALUE);
    device->primary->flags = flags;
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active)
{
    WEIR_SOFT_LOCKED();
    const struct weir_soft_device *device = weir_soft_device_at(dev);
    WEIR_FAIL_IF(!flags || !active, CUDA_ERROR_INVALID_VALUE);
    WEIR_FAIL_IF(!device, CUDA_ERROR_INVALID_DEVICE);
    *flags = device->primary->flags;
    *active = device->primary->active;
    return CUDA_SUCCESS;
}

/* ------------------------------------------------------------------ created contexts */

CUresult weir_soft_cuCtxCreate_v2(CUcontext *ret, unsigned int flags, CUdevice dev)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_device *device = weir_soft_device_at(dev);
    WEIR_FAIL_IF(!ret || !ctx_flags_valid(flags), CUDA_ERROR_INVALID_VALUE);
    WEIR_FAIL_IF(!device, CUDA_ERROR_INVALID_DEVICE);
    struct weir_soft_ctx *ctx = ctx_new(device);
    if (!ctx || ctx_activate(ctx) != CUDA_SUCCESS) {
        weir_soft_object_retire(ctx);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    ctx->flags = flags;
    ctx->attached = 1;
    if (weir_ctx_stack_push((CUcontext)ctx) != WEIR_OK) {
        ctx_teardown(ctx);
        weir_soft_object_retire(ctx);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *ret = (CUcontext)ctx;
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuCtxDestroy_v2(CUcontext handle)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_ctx *ctx = weir_soft_object_find(WEIR_SOFT_CONTEXT, handle);
    WEIR_FAIL_IF(!handle, CUDA_ERROR_INVALID_VALUE);
    WEIR_FAIL_IF(!ctx || ctx->primary || !ctx->active, CUDA_ERROR_INVALID_CONTEXT);
    ctx_teardown(ctx);
    if (weir_ctx_stack_current() == handle) {
        (void)!weir_ctx_stack_pop(NULL);
    }
    weir_soft_object_retire(ctx);
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuCtxAttach(CUcontext *ret, unsigned int flags)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_ctx *ctx;
    WEIR_FAIL_IF(!ret || flags != 0, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_soft_ctx_current(&ctx));
    ctx->attached++;
    *ret = (CUcontext)ctx;
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuCtxDetach(CUcontext handle)
{
    weir_soft_lock();
    struct weir_soft_ctx *ctx = weir_soft_object_find(WEIR_SOFT_CONTEXT, handle);
    if (!ctx || ctx->primary || handle != weir_ctx_stack_current()) {
        weir_soft_unlock();
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    bool last = --ctx->attached == 0;
    weir_soft_unlock();
    return last ? weir_soft_cuCtxDestroy_v2(handle) : CUDA_SUCCESS;
}

/* ------------------------------------------------------------------ the stack */

static CUresult check_usable(CUcontext handle)
{
    WEIR_SOFT_LOCKED();
    return weir_soft_ctx_of(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult weir_soft_cuCtxPushCurrent_v2(CUcontext handle)
{
    WEIR_TRY(check_usable(handle));
    return weir_ctx_stack_push(handle) == WEIR_OK ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult weir_soft_cuCtxPopCurrent_v2(CUcontext *ret)
{
    return weir_ctx_stack_pop(ret) == WEIR_OK ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult weir_soft_cuCtxSetCurrent(CUcontext handle)
{
    if (handle) {
        WEIR_TRY(check_usable(handle));
    }
    weir_ctx_stack_set(handle);
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuCtxSetFlags(unsigned int flags)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_ctx *ctx;
    WEIR_FAIL_IF(!ctx_flags_valid(flags), CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_soft_ctx_any(NULL, &ctx));
    ctx->flags = flags;
    return CUDA_SUCCESS;
}

/* ------------------------------------------------------------------ work and settings */

CUresult weir_soft_cuCtxSynchronize_v2(CUcontext handle)
{
    weir_soft_lock();
    struct weir_soft_ctx *ctx;
    CUresult result = weir_soft_ctx_find(handle, &ctx);
    result = result == CUDA_SUCCESS ? weir_soft_capture_check(ctx) : result;
    if (result == CUDA_SUCCESS) {
        weir_soft_object_ref(ctx);
        struct weir_soft_task *barrier = weir_soft_task_barrier(ctx);
        result = !barrier ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
        if (barrier) {
            weir_soft_task_wait_unlocked(barrier);
            weir_soft_task_put(barrier);
            result = weir_soft_ctx_tell(ctx);
        }
        weir_soft_object_put(ctx);
    }
    weir_soft_unlock();
    weir_soft_print_flush();
    return result;
}

CUresult weir_soft_cuCtxSetLimit(CUlimit limit, size_t value)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_ctx *ctx;
    WEIR_TRY(weir_soft_ctx_current(&ctx));
    switch ((int)limit) {
    case CU_LIMIT_STACK_SIZE:
        WEIR_FAIL_IF(value > 512 << 10, CUDA_ERROR_INVALID_VALUE);
        ctx->limits[limit] = (value + 15) & ~(size_t)15;
        return CUDA_SUCCESS;
    case CU_LIMIT_PRINTF_FIFO_SIZE:
    case CU_LIMIT_MALLOC_HEAP_SIZE:
        WEIR_FAIL_IF(value > ctx->device->total_bytes, CUDA_ERROR_OUT_OF_MEMORY);
        ctx->limits[limit] = value;
        return CUDA_SUCCESS;
    case CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH:
    case CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT:
        ctx->limits[limit] = value;
        return CUDA_SUCCESS;
    case CU_LIMIT_MAX_L2_FETCH_GRANULARITY:
        WEIR_FAIL_IF(value > 128, CUDA_ERROR_INVALID_VALUE);
        ctx->limits[limit] = value;
        return CUDA_SUCCESS;
    case CU_LIMIT_PERSISTING_L2_CACHE_SIZE:
        return value == 0 ? CUDA_SUCCESS : CUDA_ERROR_UNSUPPORTED_LIMIT;
    case CU_LIMIT_SHMEM_SIZE:
    case CU_LIMIT_CIG_ENABLED:
    case CU_LIMIT_CIG_SHMEM_FALLBACK_ENABLED:
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult weir_soft_cuCtxGetLimit(size_t *value, CUlimit limit)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_ctx *ctx;
    WEIR_FAIL_IF(!value || (unsigned)limit >= WEIR_SOFT_LIMIT_COUNT, CUDA_ERROR_INVALID_VALUE);
    WEIR_FAIL_IF(limit >= CU_LIMIT_SHMEM_SIZE, CUDA_ERROR_UNSUPPORTED_LIMIT);
    WEIR_TRY(weir_soft_ctx_current(&ctx));
    *value = ctx->limits[limit];
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuCtxGetExecAffinity(CUexecAffinityParam *param, CUexecAffinityType type)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_ctx *ctx;
    WEIR_FAIL_IF(!param || type != CU_EXEC_AFFINITY_TYPE_SM_COUNT, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_soft_ctx_current(&ctx));
    WEIR_FAIL_IF(!ctx->device->under_mps, CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
    memset(param, 0, sizeof(*param));
    param->type = type;
    param->param.smCount.val = ctx->device->usable_sms;
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_ctx *ctx, *other;
    WEIR_FAIL_IF(flags != 0, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_soft_ctx_current(&ctx));
    WEIR_FAIL_IF(!peer || weir_soft_ctx_find(peer, &other) != CUDA_SUCCESS || other == ctx,
                 CUDA_ERROR_INVALID_CONTEXT);
    WEIR_FAIL_IF(other->device == ctx->device, CUDA_ERROR_INVALID_CONTEXT);
    uint32_t bit = 1u << other->device->ordinal;
    WEIR_FAIL_IF((ctx->peers & bit) != 0, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    ctx->peers |= bit; /* nothing else to do: all memory belongs to this process */
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuCtxDisablePeerAccess(CUcontext peer)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_ctx *ctx, *other;
    WEIR_TRY(weir_soft_ctx_current(&ctx));
    WEIR_FAIL_IF(!peer || weir_soft_ctx_find(peer, &other) != CUDA_SUCCESS,
                 CUDA_ERROR_INVALID_CONTEXT);
    uint32_t bit = 1u << other->device->ordinal;
    WEIR_FAIL_IF((ctx->peers & bit) == 0, CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    ctx->peers &= ~bit;
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuCtxRecordEvent(CUcontext handle, CUevent event_handle)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_ctx *ctx;
    struct weir_soft_event *event;
    WEIR_TRY(weir_soft_ctx_find(handle, &ctx));
    WEIR_TRY(weir_soft_event_find(event_handle, &event));
    WEIR_FAIL_IF(event->object.ctx != ctx, CUDA_ERROR_INVALID_HANDLE);
    struct weir_soft_task *barrier = weir_soft_task_barrier(ctx);
    WEIR_FAIL_IF(!barrier, CUDA_ERROR_OUT_OF_MEMORY);
    weir_soft_event_set_task(event, barrier);
    weir_soft_task_put(barrier);
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuCtxWaitEvent(CUcontext handle, CUevent event_handle)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_ctx *ctx;
    struct weir_soft_event *event;
    WEIR_TRY(weir_soft_ctx_find(handle, &ctx));
    WEIR_TRY(weir_soft_event_find(event_handle, &event));
    for (struct weir_soft_stream *stream = ctx->streams; stream; stream = stream->next) {
        struct weir_soft_task *mark = weir_soft_task_new(ctx, NULL, 0);
        WEIR_FAIL_IF(!mark, CUDA_ERROR_OUT_OF_MEMORY);
        CUresult result = weir_soft_event_wait_in(event, mark);
        CUresult pushed = weir_soft_stream_push(stream, mark);
        weir_soft_task_put(mark);
        WEIR_TRY(result != CUDA_SUCCESS ? result : pushed);
    }
    return CUDA_SUCCESS;
}
