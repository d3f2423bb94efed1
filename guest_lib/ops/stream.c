/* Stream entry points except those of captures, which are with the graphs. */
#include "guest_lib/callback.h"
#include "guest_lib/module.h"
#include "guest_lib/ops/forward.h"
#include "proto/guest_calls.h"
#include "proto/guest_hand.h"
#include "proto/wire/op_kinds.h"
#include <stdlib.h>

static CUstream handle_of(const struct weir_guest_stream *stream)
{
    return (CUstream)(uintptr_t)stream->handle;
}

CUresult weir_guest_cuStreamCreateWithPriority(CUstream *phStream, unsigned int flags, int priority)
{
    struct weir_guest_ctx *ctx;
    WEIR_TRY(weir_ctx_current(&ctx));
    WEIR_FAIL_IF(!phStream || flags & ~(unsigned int)CU_STREAM_NON_BLOCKING,
                 CUDA_ERROR_INVALID_VALUE);
    const struct weir_guest_device *device = &weir_guest.devices[ctx->device];
    priority = WEIR_MIN(priority, device->priority_least);
    priority = WEIR_MAX(priority, device->priority_greatest);
    struct weir_guest_stream *stream;
    WEIR_TRY(weir_guest_stream_new(ctx, flags, priority, &stream));
    *phStream = handle_of(stream);
    return CUDA_SUCCESS;
}

CUresult weir_guest_cuStreamDestroy_v2(CUstream hStream)
{
    struct weir_guest_stream *stream;
    if (!weir_guest_stream_find(hStream, &stream) || stream->legacy || stream->per_thread ||
        stream->goes_later) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    weir_graph_capture_abandon(stream);
    return weir_guest_stream_drop(stream);
}

/* ---------------------------------------------------------------- waiting */

CUresult weir_guest_cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags)
{
    struct weir_guest_stream *stream;
    struct weir_guest_event *event;
    WEIR_TRY(weir_guest_stream_get(hStream, &stream));
    WEIR_TRY(weir_event_get(hEvent, &event));
    WEIR_FAIL_IF(Flags & ~(unsigned int)CU_EVENT_WAIT_EXTERNAL, CUDA_ERROR_INVALID_VALUE);
    bool capturing = weir_guest_capturing();
    bool shared = weir_event_is_shared(event);
    if (!capturing && weir_event_is_known_done(event)) {
        return weir_guest_report(); /* nothing to wait for */
    }
    if (capturing) { /* the stream may join a capture by this wait */
        WEIR_TRY(weir_guest_stream_mark_before_capture(stream));
    }
    if (capturing && Flags == CU_EVENT_WAIT_EXTERNAL) {
        weir_event_use_in_graph(event);
    }
    weir_lock_acquire(&event->lock);
    struct weir_op_stream_wait_event_in in = {
        .s = stream->handle, .e = event->handle, .flags = Flags};
    weir_guest_stream_work_begin(stream);
    /* Another process that learns of this wait may record a shared event again, so the host must
     * have executed the wait before. */
    CUresult result = capturing || shared
                          ? weir_call_stream_wait_event(weir_guest_channel(), &in, NULL)
                          : weir_post_stream_wait_event(weir_guest_channel(), &in);
    weir_lock_release(&event->lock);
    return weir_guest_stream_work_end(stream, result);
}

/* ---------------------------------------------------------------- values in memory */

CUresult weir_guest_stream_value(CUstream hStream, CUstreamBatchMemOpType operation,
                                 CUdeviceptr addr, uint64_t value, unsigned int flags)
{
    enum weir_value_kind kind = operation == CU_STREAM_MEM_OP_WRITE_VALUE_32   ? WEIR_VALUE_WRITE32
                                : operation == CU_STREAM_MEM_OP_WRITE_VALUE_64 ? WEIR_VALUE_WRITE64
                                : operation == CU_STREAM_MEM_OP_WAIT_VALUE_32  ? WEIR_VALUE_WAIT32
                                                                               : WEIR_VALUE_WAIT64;
    uint64_t bytes = kind == WEIR_VALUE_WRITE64 || kind == WEIR_VALUE_WAIT64 ? 8 : 4;
    struct weir_guest_stream *stream;
    WEIR_TRY(weir_guest_stream_get(hStream, &stream));
    struct weir_mem mem;
    WEIR_TRY(addr % bytes ? CUDA_ERROR_INVALID_VALUE : weir_mem_check(addr, bytes, &mem));
    WEIR_TRY(weir_managed_before_use(addr, bytes));
    struct weir_op_stream_value_in in = {.s = stream->handle,
                                         .address = mem.device_base + (addr - mem.base),
                                         .value = value,
                                         .flags = flags,
                                         .kind = kind};
    weir_guest_stream_work_begin(stream);
    CUresult result = weir_guest_capturing()
                          ? weir_call_stream_value(weir_guest_channel(), &in, NULL)
                          : weir_post_stream_value(weir_guest_channel(), &in);
    return weir_guest_stream_work_end(stream, result);
}

static CUresult one_mem_op(CUstream stream, const CUstreamBatchMemOpParams *op)
{
    switch (op->operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
        return weir_guest_stream_value(stream, op->operation, op->waitValue.address,
                                       op->waitValue.value, op->waitValue.flags);
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
        return weir_guest_stream_value(stream, op->operation, op->writeValue.address,
                                       op->writeValue.value, op->writeValue.flags);
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
        return weir_guest_stream_value(stream, op->operation, op->waitValue.address,
                                       op->waitValue.value64, op->waitValue.flags);
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        return weir_guest_stream_value(stream, op->operation, op->writeValue.address,
                                       op->writeValue.value64, op->writeValue.flags);
    case CU_STREAM_MEM_OP_BARRIER:
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult weir_guest_cuStreamBatchMemOp_v2(CUstream stream, unsigned int count,
                                          CUstreamBatchMemOpParams *paramArray, unsigned int flags)
{
    WEIR_FAIL_IF(!paramArray || !count || count > 256 || flags, CUDA_ERROR_INVALID_VALUE);
    CUresult result = CUDA_SUCCESS;
    for (unsigned int i = 0; i < count && result == CUDA_SUCCESS; i++) {
        result = one_mem_op(stream, &paramArray[i]);
    }
    return result;
}

/* ---------------------------------------------------------------- host functions */

CUresult weir_guest_stream_function(struct weir_guest_stream *stream, CUhostFn fn, void *user)
{
    struct weir_op_host_func_in in = {.s = stream->handle};
    bool capturing = weir_guest_capturing();
    CUresult result;
    /* In a captured stream the function becomes a node, which runs at every launch and belongs to
     * the graph or its capture. */
    bool captured = capturing && weir_graph_capture_function(stream, fn, user, &in.token, &result);
    if (!captured) {
        result = weir_callback_add(fn, NULL, user, true, &in.token);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    weir_guest_stream_work_begin(stream);
    result = capturing ? weir_call_host_func(weir_guest_channel(), &in, NULL)
                       : weir_post_host_func(weir_guest_channel(), &in);
    if (result != CUDA_SUCCESS && !captured) {
        weir_callback_remove(in.token);
    }
    return weir_guest_stream_work_end(stream, result);
}

struct stream_callback {
    CUstream stream;
    CUstreamCallback fn;
    void *user;
};

static void run_stream_callback(void *arg)
{
    struct stream_callback callback = *(struct stream_callback *)arg;
    free(arg);
    uint32_t sticky = __atomic_load_n(&weir_guest.channel.header->sticky_error, __ATOMIC_ACQUIRE);
    callback.fn(callback.stream, (CUresult)sticky, callback.user);
}

CUresult weir_guest_cuStreamAddCallback(CUstream hStream, CUstreamCallback callback, void *userData,
                                        unsigned int flags)
{
    struct weir_guest_stream *stream;
    WEIR_TRY(weir_guest_stream_get(hStream, &stream));
    WEIR_FAIL_IF(!callback || flags, CUDA_ERROR_INVALID_VALUE);
    struct stream_callback *call = malloc(sizeof *call);
    WEIR_FAIL_IF(!call, CUDA_ERROR_OUT_OF_MEMORY);
    *call = (struct stream_callback){.stream = hStream, .fn = callback, .user = userData};
    CUresult result = weir_guest_capturing() ? weir_guest_stream_ask_host(stream) : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY) {
        result = weir_guest_stream_function(stream, run_stream_callback, call);
    }
    if (result != CUDA_SUCCESS) {
        free(call);
    }
    return result;
}

/* Ignore the attachment: managed memory is correct for every stream. Programs may break what they
 * promise here where that does no harm natively. */
CUresult weir_guest_cuStreamAttachMemAsync(CUstream hStream, CUdeviceptr dptr, size_t length,
                                           unsigned int flags)
{
    (void)length;
    struct weir_guest_stream *stream;
    CUresult result = weir_guest_stream_get(hStream, &stream);
    struct weir_mem mem;
    if (result == CUDA_SUCCESS && (!flags || flags > 4 || !weir_mem_find(dptr, &mem))) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    return result;
}

/* ---------------------------------------------------------------- attributes */

CUresult weir_guest_cuStreamCopyAttributes(CUstream dstStream, CUstream srcStream)
{
    static const CUstreamAttrID copied[] = {CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW,
                                            CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY,
                                            CU_LAUNCH_ATTRIBUTE_PRIORITY};
    for (size_t i = 0; i < WEIR_COUNT(copied); i++) {
        CUstreamAttrValue value;
        WEIR_TRY(weir_guest_cuStreamGetAttribute(srcStream, copied[i], &value));
        WEIR_TRY(weir_guest_cuStreamSetAttribute(dstStream, copied[i], &value));
    }
    return CUDA_SUCCESS;
}
