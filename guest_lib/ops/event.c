#include "guest_lib/module.h"
#include "guest_lib/stream.h"
#include "proto/guest_calls.h"
#include "proto/guest_hand.h"

#define EVENT_FLAGS                                                                                \
    (unsigned int)(CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS)

CUresult weir_guest_cuEventCreate(CUevent *phEvent, unsigned int Flags)
{
    struct weir_guest_ctx *ctx;
    WEIR_TRY(weir_ctx_current(&ctx));
    bool bad_ipc = (Flags & CU_EVENT_INTERPROCESS) && !(Flags & CU_EVENT_DISABLE_TIMING);
    WEIR_FAIL_IF(!phEvent || Flags & ~EVENT_FLAGS || bad_ipc, CUDA_ERROR_INVALID_VALUE);
    struct weir_guest_event *event;
    WEIR_TRY(weir_event_new(ctx, Flags, false, &event));
    *phEvent = (CUevent)(uintptr_t)event->handle;
    return CUDA_SUCCESS;
}

CUresult weir_guest_cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int flags)
{
    struct weir_guest_stream *stream;
    struct weir_guest_event *event;
    CUresult result = weir_guest_stream_get(hStream, &stream);
    result = result == CUDA_SUCCESS ? weir_event_get(hEvent, &event) : result;
    if (result == CUDA_SUCCESS && event->ctx != stream->ctx) {
        result = CUDA_ERROR_INVALID_HANDLE;
    }
    return result == CUDA_SUCCESS ? weir_event_record(event, stream, flags) : result;
}

/* Unsafe while a stream is captured, except that a captured event has its own error. */
static CUresult get_to_wait(CUevent handle, struct weir_guest_event **ret_event)
{
    CUresult result = weir_event_get(handle, ret_event);
    if (result != CUDA_SUCCESS || !weir_guest_capturing()) {
        return result;
    }
    weir_lock_acquire(&(*ret_event)->lock);
    bool captured = (*ret_event)->captured;
    weir_lock_release(&(*ret_event)->lock);
    return captured ? CUDA_SUCCESS : weir_guest_enter_unsafe();
}

CUresult weir_guest_cuEventQuery(CUevent hEvent)
{
    struct weir_guest_event *event;
    WEIR_TRY(get_to_wait(hEvent, &event));
    CUresult result = weir_event_query(event);
    if (result == CUDA_SUCCESS) {
        result = weir_guest_stream_asserts(event->ctx);
        weir_guest_stream_run_actions();
        result = result == CUDA_SUCCESS ? weir_managed_pull() : result;
    }
    WEIR_TRY(weir_guest_report());
    return result;
}

CUresult weir_guest_cuEventSynchronize(CUevent hEvent)
{
    struct weir_guest_event *event;
    WEIR_TRY(get_to_wait(hEvent, &event));
    CUresult result = weir_event_wait(event);
    CUresult settled = weir_guest_stream_settled(event->ctx);
    return weir_guest_result(result != CUDA_SUCCESS ? result : settled);
}

CUresult weir_guest_cuEventElapsedTime_v2(float *pMilliseconds, CUevent hStart, CUevent hEnd)
{
    struct weir_guest_event *start, *end;
    WEIR_TRY(weir_event_get(hStart, &start));
    WEIR_TRY(weir_event_get(hEnd, &end));
    WEIR_FAIL_IF(!pMilliseconds, CUDA_ERROR_INVALID_VALUE);
    if ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING ||
        !(start->recorded || weir_event_is_shared(start)) ||
        !(end->recorded || weir_event_is_shared(end))) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    CUresult result = weir_event_query(start);
    result = result == CUDA_SUCCESS ? weir_event_query(end) : result;
    if (result != CUDA_SUCCESS) {
        WEIR_TRY(weir_guest_report());
        return result;
    }
    struct weir_op_event_elapsed_out out = {0};
    result = weir_call_event_elapsed(
        weir_guest_channel(),
        &(struct weir_op_event_elapsed_in){.start = start->handle, .end = end->handle}, &out);
    if (result == CUDA_SUCCESS) {
        *pMilliseconds = out.milliseconds;
    }
    return weir_guest_result(result);
}
