/* Events. */
#include "host_backend/worker/ops/ops.h"
#include "host_backend/worker/session/event_times.h"
#include "host_backend/worker/session/graph_holds.h"

#include "base/clock.h"
#include "host_backend/worker/memory/ipc.h"
#include <sched.h>

#define BEHIND_WORD_NS (20 * WEIR_NS_PER_MS)

static CUresult make_native(struct weir_session *s, uint32_t flags, CUevent *ret_native,
                            struct weir_ipc_event **ret_shared)
{
    if ((flags & CU_EVENT_INTERPROCESS) == 0) {
        *ret_shared = NULL;
        return s->driver->cuEventCreate(ret_native, flags & CU_EVENT_DISABLE_TIMING);
    }
    WEIR_TRY(weir_ipc_event_create(s, ret_shared));
    *ret_native = (*ret_shared)->native;
    return CUDA_SUCCESS;
}

CUresult weir_host_event_create(struct weir_session *s, const struct weir_op_event_create_in *in)
{
    const uint32_t known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    struct weir_host_ctx *ctx = weir_ops_ctx(s, in->c);
    struct weir_ipc_event *shared;
    struct weir_object *o;
    CUevent native;

    WEIR_FAIL_IF(!ctx, CUDA_ERROR_INVALID_CONTEXT);
    if ((in->flags & ~known) != 0 ||
        ((in->flags & CU_EVENT_INTERPROCESS) != 0 && (in->flags & CU_EVENT_DISABLE_TIMING) == 0)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    WEIR_TRY(make_native(s, in->flags, &native, &shared));
    CUresult result = weir_host_object_create(s, WEIR_KIND_EVENT, sizeof(struct weir_host_event),
                                              in->e, native, ctx, &o);
    if (result != CUDA_SUCCESS) {
        (void)(shared ? weir_ipc_event_put(s, shared) : s->driver->cuEventDestroy_v2(native));
        return result;
    }
    ((struct weir_host_event *)o)->shared = shared;
    ((struct weir_host_event *)o)->flags = in->flags;
    return CUDA_SUCCESS;
}

CUresult weir_host_event_destroy(struct weir_session *s, const struct weir_op_event_destroy_in *in)
{
    struct weir_host_event *event = weir_ops_event(s, in->e);

    return event ? weir_host_object_destroy(s, &event->o) : CUDA_ERROR_INVALID_HANDLE;
}

/*
 * Write the word before recording the event. A thread that sees the event's effect, for instance
 * through a stream that waited for it, must find the word written. If the word is early, that does
 * no harm, since the work before the event is done by then.
 */
CUresult weir_host_event_record(struct weir_session *s, const struct weir_op_event_record_in *in,
                                struct weir_op_event_record_out *out)
{
    struct weir_host_stream *stream = weir_ops_stream(s, in->s);
    struct weir_host_event *event = weir_ops_event(s, in->e);

    WEIR_FAIL_IF(!stream || !event || !weir_session_word_ok(s, in->word),
                 CUDA_ERROR_INVALID_HANDLE);
    WEIR_TRY(weir_order_begin(s, stream, false));
    if (weir_host_stream_capturing(s, stream)) {
        out->captured = 1;
    } else {
        WEIR_TRY(weir_session_word_write(s, weir_host_stream_at(stream), in->word, in->value));
    }
    if (in->flags != 0) { /* in a capture, a record with flags is a node */
        WEIR_TRY(weir_graph_hold_captured(s, stream, &event->o));
    }
    weir_event_times_recorded(event, out->captured != 0 && in->flags == 0);
    return in->flags == 0 ? s->driver->cuEventRecord(event->o.native, weir_host_stream_at(stream))
                          : s->driver->cuEventRecordWithFlags(
                                event->o.native, weir_host_stream_at(stream), in->flags);
}

CUresult weir_host_event_mark(struct weir_session *s, const struct weir_op_event_mark_in *in,
                              struct weir_op_event_mark_out *out)
{
    struct weir_host_stream *stream = weir_ops_stream(s, in->s);
    struct weir_host_event *event = weir_ops_event(s, in->e);

    WEIR_FAIL_IF(!stream || !event || !weir_session_word_ok(s, in->word),
                 CUDA_ERROR_INVALID_HANDLE);
    out->captured = weir_host_stream_capturing(s, stream);
    weir_event_times_recorded(event, out->captured != 0);
    if (out->captured != 0) {
        return CUDA_SUCCESS;
    }
    return weir_session_word_write(s, weir_host_stream_at(stream), in->word, in->value);
}

static CUresult elapsed(struct weir_session *s, const struct weir_host_event *start,
                        const struct weir_host_event *end, float *ret_milliseconds)
{
    return weir_event_elapsed(s->driver, ret_milliseconds, start->o.native, end->o.native);
}

CUresult weir_host_event_elapsed(struct weir_session *s, const struct weir_op_event_elapsed_in *in,
                                 struct weir_op_event_elapsed_out *out)
{
    struct weir_host_event *start = weir_ops_event(s, in->start), *end = weir_ops_event(s, in->end);

    WEIR_FAIL_IF(!start || !end, CUDA_ERROR_INVALID_HANDLE);
    /* The guest has seen both words; the events follow them at once. */
    for (uint64_t end_ns = weir_clock_now_ns() + BEHIND_WORD_NS;;) {
        CUresult result = elapsed(s, start, end, &out->milliseconds);

        if (result == CUDA_ERROR_INVALID_HANDLE) {
            result = weir_event_times_between(s, start, end, &out->milliseconds);
        }
        if (result != CUDA_ERROR_NOT_READY || weir_clock_now_ns() >= end_ns) {
            return result;
        }
        sched_yield();
    }
}

CUresult weir_host_event_query(struct weir_session *s, const struct weir_op_event_query_in *in)
{
    struct weir_host_event *event = weir_ops_event(s, in->e);

    return event ? s->driver->cuEventQuery(event->o.native) : CUDA_ERROR_INVALID_HANDLE;
}
