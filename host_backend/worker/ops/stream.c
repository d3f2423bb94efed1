/* Streams, completion words, host functions. */
#include "host_backend/worker/memory/managed.h"
#include "host_backend/worker/ops/ops.h"
#include "host_backend/worker/session/capture.h"
#include "host_backend/worker/session/graph_holds.h"

#include "host_backend/worker/device/awaited.h"
#include "host_backend/worker/state/host_calls.h"

CUresult weir_host_stream_create(struct weir_session *s, const struct weir_op_stream_create_in *in)
{
    struct weir_host_ctx *ctx = weir_ops_ctx(s, in->c);
    struct weir_host_stream *stream;
    struct weir_object *o;
    CUstream native;

    WEIR_FAIL_IF(!ctx, CUDA_ERROR_INVALID_CONTEXT);
    if ((in->flags & ~(uint32_t)CU_STREAM_NON_BLOCKING) != 0 ||
        !weir_session_word_ok(s, in->word)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    int priority = weir_admission_stream_priority(s, in->priority);
    WEIR_TRY(s->driver->cuStreamCreateWithPriority(&native, CU_STREAM_NON_BLOCKING, priority));
    CUresult result =
        weir_host_object_create(s, WEIR_KIND_STREAM, sizeof *stream, in->s, native, ctx, &o);
    if (result != CUDA_SUCCESS) {
        (void)s->driver->cuStreamDestroy_v2(native);
        return result;
    }
    stream = (struct weir_host_stream *)o;
    stream->word = in->word;
    stream->flags = in->flags;
    stream->priority = in->priority;
    weir_admission_stream_made(stream, priority);
    stream->blocking = (in->flags & CU_STREAM_NON_BLOCKING) == 0;
    WEIR_PUSH(ctx->streams, stream);
    return CUDA_SUCCESS;
}

/* Destroy streams that the guest has left, if they are done. A query of a stream under capture
 * would invalidate the capture. */
static void sweep(struct weir_session *s, const struct weir_host_ctx *ctx)
{
    for (struct weir_host_stream *stream = ctx->streams, *next; stream; stream = next) {
        next = stream->next;
        if (stream->left && !weir_host_stream_capturing(s, stream) &&
            s->driver->cuStreamQuery(weir_host_stream_at(stream)) != CUDA_ERROR_NOT_READY) {
            (void)weir_host_object_destroy(s, &stream->o);
        }
    }
}

void weir_ops_streams_sweep(struct weir_session *s)
{
    for (struct weir_host_ctx *ctx = weir_session_contexts(s); ctx; ctx = ctx->next) {
        sweep(s, ctx);
    }
}

/*
 * Destroy a stream. If it may wait for a value, it stays until its work is done: at the session's
 * end the worker writes such values, but the driver would not report that a destroyed stream still
 * waits. If it has joined a capture, it stays until that ends: the legacy stream waits for its
 * earlier work, for which a captured stream can have no event.
 */
CUresult weir_host_stream_destroy(struct weir_session *s,
                                  const struct weir_op_stream_destroy_in *in)
{
    struct weir_host_stream *stream = weir_ops_stream(s, in->s);
    CUresult result = CUDA_SUCCESS;

    WEIR_FAIL_IF(!stream || stream->legacy, CUDA_ERROR_INVALID_HANDLE);
    if (stream->capturing) {
        weir_capture_abandon(s, stream);
    }
    if (!weir_awaited_any(s) && !weir_host_stream_capturing(s, stream)) {
        result = weir_host_object_destroy(s, &stream->o);
    } else {
        stream->left = true;
    }
    weir_ops_streams_sweep(s); /* destroy streams whose capture began in this stream */
    return result;
}

CUresult weir_host_stream_mark(struct weir_session *s, const struct weir_op_stream_mark_in *in)
{
    struct weir_host_stream *stream = weir_ops_stream(s, in->s);

    WEIR_FAIL_IF(!stream, CUDA_ERROR_INVALID_HANDLE);
    WEIR_FAIL_IF(weir_host_stream_capturing(s, stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    WEIR_TRY(weir_order_mark(s, stream));
    WEIR_TRY(weir_session_word_write(s, weir_host_stream_at(stream), stream->word, in->value));
    weir_admission_stream_awaited(s, stream);
    return CUDA_SUCCESS;
}

CUresult weir_host_stream_wait_event(struct weir_session *s,
                                     const struct weir_op_stream_wait_event_in *in)
{
    struct weir_host_stream *stream = weir_ops_stream(s, in->s);
    struct weir_host_event *event = weir_ops_event(s, in->e);

    WEIR_FAIL_IF(!stream || !event, CUDA_ERROR_INVALID_HANDLE);
    WEIR_TRY(weir_order_begin(s, stream, false));
    if (in->flags != 0) { /* in a capture, a wait with flags is a node */
        WEIR_TRY(weir_graph_hold_captured(s, stream, &event->o));
    }
    return s->driver->cuStreamWaitEvent(weir_host_stream_at(stream), event->o.native, in->flags);
}

CUresult weir_host_stream_value(struct weir_session *s, const struct weir_op_stream_value_in *in)
{
    struct weir_host_stream *stream = weir_ops_stream(s, in->s);
    bool wide = in->kind == WEIR_VALUE_WRITE64 || in->kind == WEIR_VALUE_WAIT64;
    bool wait = in->kind == WEIR_VALUE_WAIT32 || in->kind == WEIR_VALUE_WAIT64;
    const struct weir_driver *d = s->driver;
    uint32_t small = (uint32_t)in->value;

    WEIR_FAIL_IF(!stream, CUDA_ERROR_INVALID_HANDLE);
    if (in->kind >= WEIR_VALUE_KIND_COUNT || in->address % (wide ? 8 : 4) != 0 ||
        (wait && !weir_awaited_can_come(in->value, in->flags, wide))) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    WEIR_TRY(wait ? weir_session_check_dptr(s, in->address, wide ? 8 : 4)
                  : weir_session_check_write(s, in->address, wide ? 8 : 4));
    weir_managed_reached(s, in->address, wide ? 8 : 4);
    WEIR_TRY(weir_order_begin(s, stream, false));
    if (wait) {
        /* In a capture the wait becomes a node, which may run any number of times. */
        WEIR_TRY(weir_awaited_note(s, weir_host_stream_capturing(s, stream) ? NULL : stream,
                                   in->address, in->value, wide));
        return wide ? d->cuStreamWaitValue64_v2(weir_host_stream_at(stream), in->address, in->value,
                                                in->flags)
                    : d->cuStreamWaitValue32_v2(weir_host_stream_at(stream), in->address, small,
                                                in->flags);
    }
    return wide ? d->cuStreamWriteValue64_v2(weir_host_stream_at(stream), in->address, in->value,
                                             in->flags)
                : d->cuStreamWriteValue32_v2(weir_host_stream_at(stream), in->address, small,
                                             in->flags);
}

CUresult weir_host_stream_query(struct weir_session *s, const struct weir_op_stream_query_in *in)
{
    struct weir_host_stream *stream = weir_ops_stream(s, in->s);

    WEIR_FAIL_IF(!stream, CUDA_ERROR_INVALID_HANDLE);
    WEIR_TRY(weir_order_refuse(s, stream, true));
    WEIR_TRY(weir_order_mark(s, stream));
    return s->driver->cuStreamQuery(weir_host_stream_at(stream));
}

CUresult weir_host_stream_attribute(struct weir_session *s,
                                    const struct weir_op_stream_attribute_in *in,
                                    struct weir_op_stream_attribute_out *out)
{
    struct weir_host_stream *stream = weir_ops_stream(s, in->s);
    CUlaunchAttributeID id = (CUlaunchAttributeID)in->attribute;
    CUlaunchAttributeValue value = in->value;

    WEIR_FAIL_IF(!stream, CUDA_ERROR_INVALID_HANDLE);
    if (id != CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW &&
        id != CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY && id != CU_LAUNCH_ATTRIBUTE_PRIORITY &&
        id != CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP &&
        id != CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (in->write != 0) {
        const CUaccessPolicyWindow *window = &value.accessPolicyWindow;

        if (id == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW && window->num_bytes != 0) {
            WEIR_TRY(weir_session_check_dptr(s, (uintptr_t)window->base_ptr, window->num_bytes));
        }
        if (id == CU_LAUNCH_ATTRIBUTE_PRIORITY) { /* the priority stays within the tenant's class */
            stream->priority = value.priority;
            value.priority = weir_admission_stream_priority(s, value.priority);
            weir_admission_stream_made(stream, value.priority);
        } else {
            weir_part_attribute_set(stream, id);
        }
        return s->driver->cuStreamSetAttribute(stream->o.native, id, &value);
    }
    WEIR_TRY(s->driver->cuStreamGetAttribute(stream->o.native, id, &out->value));
    if (id == CU_LAUNCH_ATTRIBUTE_PRIORITY) {
        out->value.priority = stream->priority;
    }
    return CUDA_SUCCESS;
}

/* ---------------------------------------------------------------- functions of the guest */

static CUresult launch_function(struct weir_session *s, const struct weir_op_host_func_in *in)
{
    struct weir_host_stream *stream = weir_ops_stream(s, in->s);
    CUgraph graph;

    WEIR_FAIL_IF(!stream, CUDA_ERROR_INVALID_HANDLE);
    WEIR_TRY(weir_order_begin(s, stream, false));
    /* In a capture the function becomes a node, which may run any number of times. */
    bool captured = weir_host_stream_capturing(s, stream);
    struct weir_host_call *call = weir_host_call_create(s, in->token, !captured);
    WEIR_FAIL_IF(!call, CUDA_ERROR_OUT_OF_MEMORY);
    CUresult result =
        s->driver->cuLaunchHostFunc(weir_host_stream_at(stream), weir_host_call_run, call);
    if (result != CUDA_SUCCESS) {
        weir_host_call_cancel(call);
    } else if (captured && weir_capture_graph(s, stream, &graph) == CUDA_SUCCESS) {
        weir_host_call_keep(call, graph);
    }
    return result;
}

/* The guest has mostly posted this, and listed the function: tell it of a failure. */
CUresult weir_host_host_func(struct weir_session *s, const struct weir_op_host_func_in *in)
{
    CUresult result = launch_function(s, in);

    if (result != CUDA_SUCCESS) {
        weir_host_call_refuse(s, in->token);
    }
    return result;
}

CUresult weir_host_host_func_done(struct weir_session *s,
                                  const struct weir_op_host_func_done_in *in)
{
    CUresult result = weir_host_call_done(s, in->ticket);

    return weir_session_is_remote(s) ? CUDA_SUCCESS : result; /* remote: handled when it arrived */
}

/* Both operations are handled when they arrive (weir_host_call_glance()). */
CUresult weir_host_host_func_read(struct weir_session *s,
                                  const struct weir_op_host_func_read_in *in)
{
    (void)in;
    return weir_session_is_remote(s) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult weir_host_host_func_write(struct weir_session *s,
                                   const struct weir_op_host_func_write_in *in)
{
    (void)in;
    return weir_session_is_remote(s) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---------------------------------------------------------------- completion words of remote
 * guests */

CUresult weir_host_word_wait(struct weir_session *s, const struct weir_op_word_wait_in *in,
                             struct weir_op_word_wait_out *out)
{
    WEIR_FAIL_IF(in->word == WEIR_WORD_NONE || !weir_session_word_ok(s, in->word),
                 CUDA_ERROR_INVALID_VALUE);
    out->value = weir_session_word(s, in->word);
    if ((int32_t)(out->value - in->value) >= 0) {
        return CUDA_SUCCESS;
    }
    return weir_session_word_wait(s, in->word, in->value) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult weir_host_word_peek(struct weir_session *s, const struct weir_op_word_peek_in *in,
                             struct weir_op_word_peek_out *out)
{
    WEIR_FAIL_IF(!weir_session_word_ok(s, in->word), CUDA_ERROR_INVALID_VALUE);
    out->value = weir_session_word(s, in->word);
    return CUDA_SUCCESS;
}
