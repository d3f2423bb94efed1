/* Contexts, limits, printf, echo. */
#include "host_backend/worker/device/device.h"
#include "host_backend/worker/device/prints.h"
#include "host_backend/worker/ops/ops.h"
#include "host_backend/worker/state/platform.h"

#include <stdlib.h>
#include <string.h>

#define PRINT_PIECE_BYTES 1048576u

CUcontext weir_ops_context(const struct weir_session *s)
{
    return s->platform->devices[s->device].context;
}

CUresult weir_host_ctx_create(struct weir_session *s, const struct weir_op_ctx_create_in *in)
{
    struct weir_object *ctx_object, *stream_object;
    struct weir_host_stream *stream;
    struct weir_host_ctx *ctx;
    CUstream native;
    CUresult result;

    WEIR_FAIL_IF(in->device < 0 || (uint32_t)in->device >= s->platform->n_devices,
                 CUDA_ERROR_INVALID_DEVICE);
    WEIR_FAIL_IF(!weir_session_word_ok(s, in->legacy_word), CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_session_enter(s, (uint32_t)in->device));
    WEIR_TRY(weir_session_work_stream(s, &native)); /* this call detects a dead context */
    if (!weir_session_contexts(s)) {
        WEIR_TRY(weir_ops_libraries_reload(s));
    }
    int priority = weir_admission_stream_priority(s, 0);
    WEIR_TRY(s->driver->cuStreamCreateWithPriority(&native, CU_STREAM_NON_BLOCKING, priority));
    result =
        weir_host_object_create(s, WEIR_KIND_CONTEXT, sizeof *ctx, in->c, NULL, NULL, &ctx_object);
    if (result != CUDA_SUCCESS) {
        (void)s->driver->cuStreamDestroy_v2(native);
        return result;
    }
    ctx = (struct weir_host_ctx *)ctx_object;
    result = weir_host_object_create(s, WEIR_KIND_STREAM, sizeof *stream, in->legacy, native, ctx,
                                     &stream_object);
    if (result != CUDA_SUCCESS) {
        (void)s->driver->cuStreamDestroy_v2(native);
        weir_host_object_forget(s, ctx_object);
        return result;
    }
    stream = (struct weir_host_stream *)stream_object;
    stream->legacy = true;
    stream->blocking = true;
    weir_admission_stream_made(stream, priority);
    stream->word = in->legacy_word;
    ctx->legacy = ctx->streams = stream;
    ctx->flags = in->flags;
    for (const struct weir_host_ctx *c = weir_session_contexts(s); c; c = c->next) {
        s->devices.has_peers |= c->o.device != ctx->o.device;
    }
    weir_ctx_list(s, ctx);
    return CUDA_SUCCESS;
}

CUresult weir_host_ctx_destroy(struct weir_session *s, const struct weir_op_ctx_destroy_in *in)
{
    struct weir_host_ctx *ctx = weir_ops_ctx(s, in->c);

    WEIR_FAIL_IF(!ctx, CUDA_ERROR_INVALID_CONTEXT);
    weir_ctx_destroy(s, ctx);
    weir_ops_streams_sweep(s); /* destroy streams whose capture began in this context */
    if (!weir_session_contexts(s)) {
        weir_ops_libraries_unload(s);
    }
    return CUDA_SUCCESS;
}

/* Check a limit. Its device memory is charged, but the driver may also need host memory, and others
 * share the heap of a context. */
static bool limit_ok(uint32_t limit, uint64_t value, bool alone)
{
    switch (limit) {
    case CU_LIMIT_STACK_SIZE:
        return value <= 512u << 10; /* a thread can have no more than this */
    case CU_LIMIT_PRINTF_FIFO_SIZE:
        return value <= 64u << 20;
    case CU_LIMIT_MALLOC_HEAP_SIZE:
        return alone || value <= UINT64_C(1) << 30;
    case CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH:
    case CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT:
        return value <= 65536;
    case CU_LIMIT_MAX_L2_FETCH_GRANULARITY:
        return value <= 128;
    default:
        return true; /* the driver clamps it */
    }
}

/* Does another program share the contexts? When contexts are short, programs of a tenant may share
 * a worker that was for one. */
static bool has_company(const struct weir_session *s)
{
    bool any = false;

    for (const struct weir_session *other = weir_sessions_lock(s->worker); other;
         other = other->next) {
        any |= other != s && !weir_session_is_monitor(other);
    }
    weir_sessions_unlock(s->worker);
    return any;
}

CUresult weir_host_ctx_limit_set(struct weir_session *s, const struct weir_op_ctx_limit_set_in *in,
                                 struct weir_op_ctx_limit_set_out *out)
{
    bool alone = s->platform->by_program && !has_company(s);

    WEIR_FAIL_IF(!weir_ops_ctx(s, in->c), CUDA_ERROR_INVALID_CONTEXT);
    WEIR_FAIL_IF(in->limit >= CU_LIMIT_MAX || !limit_ok(in->limit, in->value, alone),
                 CUDA_ERROR_INVALID_VALUE);
    WEIR_FAIL_IF(in->limit >= WEIR_DEVICE_LIMITS, CUDA_ERROR_UNSUPPORTED_LIMIT);
    return weir_context_limit_set(s, in->limit, in->value, alone, &out->value);
}

CUresult weir_host_ctx_limit_get(struct weir_session *s, const struct weir_op_ctx_limit_get_in *in,
                                 struct weir_op_ctx_limit_get_out *out)
{
    size_t now = 0;

    WEIR_FAIL_IF(!weir_ops_ctx(s, in->c), CUDA_ERROR_INVALID_CONTEXT);
    WEIR_TRY(s->driver->cuCtxGetLimit(&now, (CUlimit)in->limit));
    out->value = now;
    return CUDA_SUCCESS;
}

CUresult weir_host_printf_flush(struct weir_session *s, const struct weir_op_printf_flush_in *in,
                                struct weir_op_printf_flush_out *out)
{
    (void)in;
    CUresult result = weir_prints_collect(s);
    result = result == CUDA_SUCCESS ? weir_fault_check_asserts(s) : result;
    /* Return printed text even if a kernel failed, since it may explain the failure. */
    size_t n = weir_prints_bytes(s) < PRINT_PIECE_BYTES ? weir_prints_bytes(s) : PRINT_PIECE_BYTES;
    if (n == 0) {
        return result;
    }
    void *text = weir_session_alloc(s, n);
    WEIR_FAIL_IF(!text, CUDA_ERROR_OUT_OF_MEMORY);
    weir_prints_take(s, text, n);
    out->text = text;
    out->n_text = (uint32_t)n;
    out->more = weir_prints_bytes(s) != 0;
    if (result != CUDA_SUCCESS) {
        weir_session_defer(s, result);
    }
    return CUDA_SUCCESS;
}

CUresult weir_host_echo(struct weir_session *s, const struct weir_op_echo_in *in,
                        struct weir_op_echo_out *out)
{
    (void)s;
    out->value = in->value;
    return CUDA_SUCCESS;
}
