/*
 * Green contexts: a part of the SMs, and streams whose kernels run only there.
 *
 * A green context is not a separate context: its streams belong to the primary context and use its
 * memory, functions, events and faults. Each stream remembers its green context. A kernel copies
 * the set of SMs when it is launched or captured, so queued work and graphs do not need the green
 * context. A graph node keeps the SMs of its capture, in whatever stream the graph is launched.
 *
 * After its green context is destroyed, a stream's handle returns CUDA_ERROR_CONTEXT_IS_DESTROYED
 * until the primary context is destroyed. A handle from cuCtxFromGreenCtx stands for the primary
 * context and has its default stream, with one difference: kernel nodes added to a graph while it
 * is current run only on the green context's SMs.
 */
#include "softgpu/driver/forward.h"

static void green_release(void *object)
{
    struct weir_soft_green *green = object;
    weir_soft_task_put(green->held);
}

CUresult weir_soft_green_find(CUgreenCtx handle, struct weir_soft_green **ret_green)
{
    struct weir_soft_green *green = weir_soft_object_find(WEIR_SOFT_GREEN, handle);
    WEIR_FAIL_IF(!green, CUDA_ERROR_INVALID_CONTEXT);
    *ret_green = green;
    return green->object.ctx->sticky;
}

/* ------------------------------------------------------------------ life */

CUresult weir_soft_cuGreenCtxCreate(CUgreenCtx *ret, CUdevResourceDesc desc_handle, CUdevice dev,
                                    unsigned int flags)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_device *device = weir_soft_device_at(dev);
    const struct weir_soft_resource_desc *desc =
        weir_soft_object_find(WEIR_SOFT_RESOURCE_DESC, desc_handle);
    WEIR_FAIL_IF(!ret || !desc || flags != CU_GREEN_CTX_DEFAULT_STREAM, CUDA_ERROR_INVALID_VALUE);
    WEIR_FAIL_IF(!device, CUDA_ERROR_INVALID_DEVICE);
    WEIR_FAIL_IF(desc->device != device, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_soft_ctx_retain_primary(device));
    if (weir_soft_device_waits()) {
        weir_soft_ctx_wait_keeping_out(device->primary);
    }
    struct weir_soft_green *green =
        weir_soft_object_new(WEIR_SOFT_GREEN, sizeof(*green), device->primary, green_release);
    if (!green) {
        (void)weir_soft_ctx_release_primary(device);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    green->sms = desc->sms;
    green->id = weir_soft_next_id();
    *ret = (CUgreenCtx)green;
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuGreenCtxDestroy(CUgreenCtx handle)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_green *green = weir_soft_object_find(WEIR_SOFT_GREEN, handle);
    WEIR_FAIL_IF(!green, CUDA_ERROR_INVALID_CONTEXT);
    struct weir_soft_ctx *ctx = green->object.ctx;
    green->destroyed = true;
    for (struct weir_soft_stream *s = ctx->streams; s; s = s->next) {
        if (s->green == green) {
            weir_soft_capture_abandon(s);
        }
    }
    weir_soft_object_retire(green);
    return weir_soft_ctx_release_primary(ctx->device);
}

CUresult weir_soft_cuCtxFromGreenCtx(CUcontext *ret, CUgreenCtx handle)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_green *green;
    WEIR_FAIL_IF(!ret, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_soft_green_find(handle, &green));
    *ret = (CUcontext)green;
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuGreenCtxGetDevResource(CUgreenCtx handle, CUdevResource *resource,
                                            CUdevResourceType type)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_green *green;
    WEIR_TRY(weir_soft_green_find(handle, &green));
    return weir_soft_resource_get(green->object.ctx->device, &green->sms, resource, type);
}

/* ------------------------------------------------------------------ streams */

CUresult weir_soft_cuGreenCtxStreamCreate(CUstream *ret, CUgreenCtx handle, unsigned int flags,
                                          int priority)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_green *green;
    WEIR_FAIL_IF(!ret || flags != CU_STREAM_NON_BLOCKING, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_soft_green_find(handle, &green));
    struct weir_soft_stream *stream = weir_soft_stream_make(green->object.ctx, flags, priority);
    WEIR_FAIL_IF(!stream, CUDA_ERROR_OUT_OF_MEMORY);
    stream->green = weir_soft_object_ref(green);
    if (green->held) {
        green->held->refs++;
        stream->tail = green->held;
    }
    *ret = (CUstream)stream;
    return CUDA_SUCCESS;
}

/* ------------------------------------------------------------------ events */

/* Refuse the call if a stream is capturing, and invalidate the capture. */
static CUresult refuse_captures(const struct weir_soft_green *green)
{
    CUresult result = CUDA_SUCCESS;
    for (struct weir_soft_stream *s = green->object.ctx->streams; s; s = s->next) {
        if (s->green == green && s->capture) {
            s->capture->invalidated = true;
            result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    }
    return result;
}

CUresult weir_soft_cuGreenCtxRecordEvent(CUgreenCtx handle, CUevent event_handle)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_green *green;
    struct weir_soft_event *event;
    WEIR_TRY(weir_soft_green_find(handle, &green));
    WEIR_TRY(weir_soft_event_find(event_handle, &event));
    WEIR_FAIL_IF(event->object.ctx != green->object.ctx, CUDA_ERROR_INVALID_HANDLE);
    WEIR_TRY(refuse_captures(green));
    struct weir_soft_task *mark = weir_soft_task_new(green->object.ctx, NULL, 0);
    WEIR_FAIL_IF(!mark, CUDA_ERROR_OUT_OF_MEMORY);
    bool ordered = true;
    for (const struct weir_soft_stream *s = green->object.ctx->streams; s; s = s->next) {
        ordered = (s->green != green || weir_soft_task_after(mark, s->tail)) && ordered;
    }
    weir_soft_task_start(mark);
    weir_soft_event_set_task(event, mark);
    weir_soft_task_put(mark);
    return ordered ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Streams that are created later also wait for the mark. */
CUresult weir_soft_cuGreenCtxWaitEvent(CUgreenCtx handle, CUevent event_handle)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_green *green;
    struct weir_soft_event *event;
    WEIR_TRY(weir_soft_green_find(handle, &green));
    WEIR_TRY(weir_soft_event_find(event_handle, &event));
    WEIR_TRY(refuse_captures(green));
    if (event->capture) {
        event->capture->invalidated = true;
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    struct weir_soft_ctx *ctx = green->object.ctx;
    struct weir_soft_task *held = weir_soft_task_new(ctx, NULL, 0);
    WEIR_FAIL_IF(!held, CUDA_ERROR_OUT_OF_MEMORY);
    CUresult result = weir_soft_event_wait_in(event, held);
    bool ordered = weir_soft_task_after(held, green->held);
    for (struct weir_soft_stream *s = ctx->streams; s && ordered; s = s->next) {
        struct weir_soft_task *mark =
            s->green == green ? weir_soft_task_new(ctx, NULL, s->priority) : NULL;
        if (mark) {
            ordered = weir_soft_task_after(mark, held);
            ordered = weir_soft_stream_push(s, mark) == CUDA_SUCCESS && ordered;
            weir_soft_task_put(mark);
        }
        ordered = ordered && (s->green != green || mark);
    }
    weir_soft_task_start(held);
    weir_soft_task_put(green->held);
    green->held = held;
    return result != CUDA_SUCCESS ? result : ordered ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
