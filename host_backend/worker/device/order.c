/* Keeps the legacy stream's order with events: see order.h. */
#include "host_backend/worker/device/order.h"

#include "base/clock.h"
#include "host_backend/worker/state/hooks.h"
#include "host_backend/worker/state/session.h"
#include <string.h>
#include <time.h>

void weir_host_stream_set_priority(const struct weir_driver *driver, CUstream stream, int *have,
                                   int priority)
{
    CUlaunchAttributeValue value;

    if (__builtin_expect(*have == priority, 1)) {
        return;
    }
    memset(&value, 0, sizeof value);
    value.priority = priority;
    (void)driver->cuStreamSetAttribute(stream, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value);
    *have = priority;
}

bool weir_host_stream_capturing(struct weir_session *session, const struct weir_host_stream *stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

    return session->n_captures != 0 &&
           session->driver->cuStreamIsCapturing(stream->o.native, &status) == CUDA_SUCCESS &&
           status != CU_STREAM_CAPTURE_STATUS_NONE;
}

CUresult weir_order_join(const struct weir_driver *driver, CUevent *event, CUstream stream,
                         CUstream waiter)
{
    CUresult result = CUDA_SUCCESS;

    if (!*event) {
        result = driver->cuEventCreate(event, CU_EVENT_DISABLE_TIMING);
    }
    if (result == CUDA_SUCCESS && stream) {
        result = driver->cuEventRecord(*event, stream);
    }
    WEIR_THEN(result, driver->cuStreamWaitEvent(waiter, *event, 0));
    return result;
}

CUresult weir_order_refuse(struct weir_session *session, const struct weir_host_stream *stream,
                           bool invalidate)
{
    CUresult result = CUDA_SUCCESS;

    if (!stream->legacy || session->n_captures == 0) {
        return CUDA_SUCCESS;
    }
    for (struct weir_host_stream *s = stream->o.ctx->streams; s; s = s->next) {
        if (s->blocking && !s->legacy && weir_host_stream_capturing(session, s)) {
            result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
            if (invalidate) {
                (void)session->driver->cuStreamQuery(s->o.native); /* invalidates the capture */
            }
        }
    }
    return result;
}

static CUresult legacy_takes_in(struct weir_session *session, struct weir_host_ctx *ctx)
{
    for (struct weir_host_stream *s = ctx->streams; s; s = s->next) {
        if (!s->blocking || s->legacy || !s->dirty || weir_host_stream_capturing(session, s)) {
            continue;
        }
        WEIR_TRY(weir_order_join(session->driver, &s->join, weir_host_stream_at(s),
                                 weir_host_stream_at(ctx->legacy)));
        s->dirty = false;
    }
    return CUDA_SUCCESS;
}

CUresult weir_order_begin(struct weir_session *session, struct weir_host_stream *stream, bool forks)
{
    const struct weir_session_hooks *hooks = weir_worker_hooks(session->worker);
    struct weir_host_ctx *ctx = stream->o.ctx;
    CUresult result = CUDA_SUCCESS;

    if (hooks && !weir_host_stream_capturing(session, stream)) {
        hooks->stream_given(session, stream, forks);
    }
    if (stream->legacy) {
        WEIR_TRY(weir_order_refuse(session, stream, true));
        result = legacy_takes_in(session, ctx);
        ctx->legacy_epoch += result == CUDA_SUCCESS;
        return result;
    }
    if (!stream->blocking || weir_host_stream_capturing(session, stream)) {
        return CUDA_SUCCESS;
    }
    if (stream->seen_epoch != ctx->legacy_epoch) {
        bool recorded = ctx->event_epoch == ctx->legacy_epoch;

        WEIR_TRY(weir_order_join(session->driver, &ctx->legacy_event,
                                 recorded ? NULL : weir_host_stream_at(ctx->legacy),
                                 weir_host_stream_at(stream)));
        ctx->event_epoch = stream->seen_epoch = ctx->legacy_epoch;
    }
    stream->dirty = true;
    return CUDA_SUCCESS;
}

CUresult weir_order_mark(struct weir_session *session, struct weir_host_stream *stream)
{
    return stream->legacy ? legacy_takes_in(session, stream->o.ctx) : CUDA_SUCCESS;
}

CUresult weir_order_leave(struct weir_session *session, struct weir_host_stream *stream)
{
    struct weir_host_ctx *ctx = stream->o.ctx;

    if (!stream->dirty || !stream->blocking || stream->legacy || !ctx->legacy) {
        return CUDA_SUCCESS;
    }
    stream->dirty = false;
    return weir_order_join(session->driver, &stream->join, weir_host_stream_at(stream),
                           weir_host_stream_at(ctx->legacy));
}

CUresult weir_host_stream_wait(const struct weir_driver *driver, CUstream stream,
                               uint64_t timeout_ns)
{
    uint64_t end_ns = weir_clock_now_ns() + timeout_ns;
    long pause_ns = 10 * 1000;

    for (;;) {
        CUresult result = driver->cuStreamQuery(stream);
        struct timespec pause = {0, pause_ns};

        if (result != CUDA_ERROR_NOT_READY) {
            return result;
        }
        WEIR_FAIL_IF(weir_clock_now_ns() >= end_ns, CUDA_ERROR_TIMEOUT);
        nanosleep(&pause, NULL);
        pause_ns = pause_ns < 1000 * 1000 ? pause_ns * 2 : pause_ns;
    }
}
