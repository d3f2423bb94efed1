#include "guest_lib/module.h"
#include "guest_lib/stream.h"
#include "proto/guest_calls.h"
#include "proto/guest_hand.h"

#define EVENT_FLAGS                                                                                \
    (unsigned int)(CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS)

CUresult weir_guest_cuEventCreate(CUevent *phEvent, unsigned int Flags)
{
    struct weir_guest_ctx *ctx;
    CUresult rc = weir_ctx_current(&ctx);
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    bool bad_ipc = (Flags & CU_EVENT_INTERPROCESS) && !(Flags & CU_EVENT_DISABLE_TIMING);
    if (!phEvent || Flags & ~EVENT_FLAGS || bad_ipc) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct weir_guest_event *event;
    rc = weir_event_new(ctx, Flags, false, &event);
    if (rc == CUDA_SUCCESS) {
        *phEvent = (CUevent)(uintptr_t)event->handle;
    }
    return rc;
}

CUresult weir_guest_cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int flags)
{
    struct weir_guest_stream *stream;
    struct weir_guest_event *event;
    CUresult rc = weir_guest_stream_get(hStream, &stream);
    rc = rc == CUDA_SUCCESS ? weir_event_get(hEvent, &event) : rc;
    if (rc == CUDA_SUCCESS && event->ctx != stream->ctx) {
        rc = CUDA_ERROR_INVALID_HANDLE;
    }
    return rc == CUDA_SUCCESS ? weir_event_record(event, stream, flags) : rc;
}

/* Unsafe while a stream is captured; but a captured event has an error of its own. */
static CUresult get_to_wait(CUevent handle, struct weir_guest_event **ret_event)
{
    CUresult rc = weir_event_get(handle, ret_event);
    if (rc != CUDA_SUCCESS || !weir_guest_capturing()) {
        return rc;
    }
    weir_lock_acquire(&(*ret_event)->lock);
    bool captured = (*ret_event)->captured;
    weir_lock_release(&(*ret_event)->lock);
    return captured ? CUDA_SUCCESS : weir_guest_enter_unsafe();
}

CUresult weir_guest_cuEventQuery(CUevent hEvent)
{
    struct weir_guest_event *event;
    CUresult rc = get_to_wait(hEvent, &event);
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    rc = weir_event_query(event);
    if (rc == CUDA_SUCCESS) {
        rc = weir_guest_stream_asserts(event->ctx);
        weir_guest_stream_run_actions();
        rc = rc == CUDA_SUCCESS ? weir_managed_pull() : rc;
    }
    CUresult error = weir_guest_report();
    return error != CUDA_SUCCESS ? error : rc;
}

CUresult weir_guest_cuEventSynchronize(CUevent hEvent)
{
    struct weir_guest_event *event;
    CUresult rc = get_to_wait(hEvent, &event);
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    rc = weir_event_wait(event);
    CUresult settled = weir_guest_stream_settled(event->ctx);
    return weir_guest_result(rc != CUDA_SUCCESS ? rc : settled);
}

CUresult weir_guest_cuEventElapsedTime_v2(float *pMilliseconds, CUevent hStart, CUevent hEnd)
{
    struct weir_guest_event *start, *end;
    CUresult rc = weir_event_get(hStart, &start);
    rc = rc == CUDA_SUCCESS ? weir_event_get(hEnd, &end) : rc;
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    if (!pMilliseconds) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING ||
        !(start->recorded || weir_event_is_shared(start)) ||
        !(end->recorded || weir_event_is_shared(end))) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    rc = weir_event_query(start);
    rc = rc == CUDA_SUCCESS ? weir_event_query(end) : rc;
    if (rc != CUDA_SUCCESS) {
        CUresult error = weir_guest_report();
        return error != CUDA_SUCCESS ? error : rc;
    }
    struct weir_op_event_elapsed_out out = {0};
    rc = weir_call_event_elapsed(
        weir_guest_channel(),
        &(struct weir_op_event_elapsed_in){.start = start->wire, .end = end->wire}, &out);
    if (rc == CUDA_SUCCESS) {
        *pMilliseconds = out.milliseconds;
    }
    return weir_guest_result(rc);
}
