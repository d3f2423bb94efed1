/*
 * Events. An event is the task that was last in its stream when the event was recorded.
 *
 * An interprocess event also counts records in a page that both processes map: the call takes the
 * record's number, and the stream publishes the number when it reaches the record.
 */
#include "base/fd.h"
#include "softgpu/driver/driver.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE_BYTES 4096

static void event_release(void *object)
{
    struct weir_soft_event *event = object;
    weir_soft_task_put(event->task);
    weir_soft_capture_put(event->capture);
    weir_soft_nodes_clear(&event->capture_nodes);
    if (event->shared) {
        munmap(event->shared, PAGE_BYTES);
    }
    weir_fd_close(event->shared_fd);
}

CUresult weir_soft_event_make(struct weir_soft_ctx *ctx, unsigned flags, int fd,
                              struct weir_soft_event **ret)
{
    struct weir_soft_event *event =
        weir_soft_object_new(WEIR_SOFT_EVENT, sizeof(*event), ctx, event_release);
    WEIR_FAIL_IF(!event, CUDA_ERROR_OUT_OF_MEMORY);
    event->flags = flags;
    event->shared_fd = fd;
    if (fd >= 0) {
        void *page = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        event->shared = page == MAP_FAILED ? NULL : page;
        if (!event->shared) {
            weir_soft_object_retire(event);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    *ret = event;
    return CUDA_SUCCESS;
}

CUresult weir_soft_event_find(CUevent handle, struct weir_soft_event **ret_event)
{
    struct weir_soft_event *event = weir_soft_object_find(WEIR_SOFT_EVENT, handle);
    WEIR_FAIL_IF(!event, CUDA_ERROR_INVALID_HANDLE);
    *ret_event = event;
    return event->object.ctx->sticky;
}

void weir_soft_event_set_task(struct weir_soft_event *event, struct weir_soft_task *task)
{
    if (task) {
        task->refs++;
    }
    weir_soft_task_put(event->task);
    event->task = task;
    event->recorded = true;
    weir_soft_capture_put(event->capture);
    event->capture = NULL;
    weir_soft_nodes_clear(&event->capture_nodes);
}

CUresult weir_soft_event_wait_in(struct weir_soft_event *event, struct weir_soft_task *task)
{
    return weir_soft_task_after(task, event->task) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static struct weir_soft_op *ipc_op(enum weir_soft_op_kind kind, struct weir_soft_event *event,
                                   struct weir_soft_ctx *ctx)
{
    struct weir_soft_op *op = weir_soft_op_new(kind, ctx);
    if (op) {
        op->ipc.event = weir_soft_object_ref(event);
        op->ipc.value = kind == WEIR_SOFT_OP_IPC_SIGNAL
                            ? __atomic_add_fetch(&event->shared->recorded, 1, __ATOMIC_ACQ_REL)
                            : __atomic_load_n(&event->shared->recorded, __ATOMIC_ACQUIRE);
    }
    return op;
}

CUresult weir_soft_event_record(struct weir_soft_event *event, struct weir_soft_stream *stream,
                                unsigned flags)
{
    if (stream->capture && flags != CU_EVENT_RECORD_EXTERNAL) {
        return weir_soft_capture_record(event, stream);
    }
    if (stream->capture) {
        struct weir_soft_op *op = weir_soft_op_new(WEIR_SOFT_OP_RECORD, stream->object.ctx);
        WEIR_FAIL_IF(!op, CUDA_ERROR_OUT_OF_MEMORY);
        op->event = weir_soft_object_ref(event);
        return weir_soft_capture_op(stream, op);
    }
    if (stream->legacy) {
        WEIR_TRY(weir_soft_capture_check_legacy(stream->object.ctx));
    }
    struct weir_soft_op *op = NULL;
    if (event->shared) {
        op = ipc_op(WEIR_SOFT_OP_IPC_SIGNAL, event, stream->object.ctx);
        WEIR_FAIL_IF(!op, CUDA_ERROR_OUT_OF_MEMORY);
    }
    struct weir_soft_task *mark = weir_soft_task_new(stream->object.ctx, op, stream->priority);
    weir_soft_op_put(op);
    WEIR_FAIL_IF(!mark, CUDA_ERROR_OUT_OF_MEMORY);
    CUresult result = weir_soft_stream_push(stream, mark);
    weir_soft_event_set_task(event, mark);
    weir_soft_task_put(mark);
    return result;
}

/* ------------------------------------------------------------------ entries */

CUresult weir_soft_cuEventCreate(CUevent *ret, unsigned int flags)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_ctx *ctx;
    struct weir_soft_event *event;
    if (!ret ||
        (flags & ~(unsigned)(CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING |
                             CU_EVENT_INTERPROCESS)) != 0 ||
        ((flags & CU_EVENT_INTERPROCESS) != 0 && (flags & CU_EVENT_DISABLE_TIMING) == 0)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    WEIR_TRY(weir_soft_ctx_current(&ctx));
    int fd = -1;
    if ((flags & CU_EVENT_INTERPROCESS) != 0) {
        fd = memfd_create("weir-softgpu-event", MFD_CLOEXEC);
        if (fd < 0 || ftruncate(fd, PAGE_BYTES) != 0) {
            weir_fd_close(fd);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    WEIR_TRY(weir_soft_event_make(ctx, flags, fd, &event));
    *ret = (CUevent)event;
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuEventDestroy_v2(CUevent handle)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_event *event = weir_soft_object_find(WEIR_SOFT_EVENT, handle);
    WEIR_FAIL_IF(!event, CUDA_ERROR_INVALID_HANDLE);
    weir_soft_task_put(event->task); /* the task's graph node refers to the event: each would keep
                                        the other alive */
    event->task = NULL;
    weir_soft_object_retire(event);
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuEventRecordWithFlags(CUevent event_handle, CUstream stream_handle,
                                          unsigned int flags)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_event *event;
    struct weir_soft_stream *stream;
    WEIR_FAIL_IF(flags != CU_EVENT_RECORD_DEFAULT && flags != CU_EVENT_RECORD_EXTERNAL,
                 CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_soft_event_find(event_handle, &event));
    WEIR_TRY(weir_soft_stream_find(stream_handle, &stream));
    WEIR_FAIL_IF(event->object.ctx != stream->object.ctx, CUDA_ERROR_INVALID_HANDLE);
    WEIR_FAIL_IF(flags == CU_EVENT_RECORD_EXTERNAL && !stream->capture, CUDA_ERROR_INVALID_VALUE);
    return weir_soft_event_record(event, stream, flags);
}

static bool event_is_done(const struct weir_soft_event *event)
{
    if (event->shared && __atomic_load_n(&event->shared->happened, __ATOMIC_ACQUIRE) <
                             __atomic_load_n(&event->shared->recorded, __ATOMIC_ACQUIRE)) {
        return false;
    }
    return weir_soft_task_is_done(event->task);
}

CUresult weir_soft_cuEventQuery(CUevent handle)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_event *event;
    WEIR_TRY(weir_soft_event_find(handle, &event));
    if (event->capture) {
        return weir_soft_capture_refuse_event(event);
    }
    WEIR_TRY(weir_soft_capture_check(NULL));
    return event_is_done(event) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static CUresult synchronize(CUevent handle)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_event *event;
    WEIR_TRY(weir_soft_event_find(handle, &event));
    if (event->capture) {
        return weir_soft_capture_refuse_event(event);
    }
    WEIR_TRY(weir_soft_capture_check(NULL));
    struct weir_soft_ctx *ctx = weir_soft_object_ref(event->object.ctx);
    weir_soft_object_ref(event);
    weir_soft_task_wait_unlocked(event->task);
    if (event->shared) {
        struct weir_soft_op *op = ipc_op(WEIR_SOFT_OP_IPC_WAIT, event, ctx);
        if (op) {
            weir_soft_unlock();
            (void)weir_soft_op_run(op);
            weir_soft_lock();
            weir_soft_op_put(op);
        }
    }
    CUresult result = weir_soft_ctx_tell(ctx);
    weir_soft_object_put(event);
    weir_soft_object_put(ctx);
    return result;
}

CUresult weir_soft_cuEventSynchronize(CUevent handle)
{
    CUresult result = synchronize(handle);
    weir_soft_print_flush();
    return result;
}

CUresult weir_soft_cuEventElapsedTime_v2(float *milliseconds, CUevent start_handle,
                                         CUevent end_handle)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_event *start, *end;
    WEIR_FAIL_IF(!milliseconds, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_soft_event_find(start_handle, &start));
    WEIR_TRY(weir_soft_event_find(end_handle, &end));
    if (start->object.ctx != end->object.ctx || !start->recorded || !end->recorded ||
        ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING) != 0) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    WEIR_FAIL_IF(!event_is_done(start) || !event_is_done(end), CUDA_ERROR_NOT_READY);
    int64_t ns = (int64_t)(end->task->finished_ns - start->task->finished_ns);
    *milliseconds = (float)((double)ns / 1e6);
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuStreamWaitEvent(CUstream stream_handle, CUevent event_handle,
                                     unsigned int flags)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_stream *stream;
    struct weir_soft_event *event;
    WEIR_FAIL_IF(flags != CU_EVENT_WAIT_DEFAULT && flags != CU_EVENT_WAIT_EXTERNAL,
                 CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_soft_stream_find(stream_handle, &stream));
    WEIR_TRY(weir_soft_event_find(event_handle, &event));
    bool external = flags == CU_EVENT_WAIT_EXTERNAL;
    if (external && stream->capture) {
        struct weir_soft_op *op = weir_soft_op_new(WEIR_SOFT_OP_WAIT, stream->object.ctx);
        WEIR_FAIL_IF(!op, CUDA_ERROR_OUT_OF_MEMORY);
        op->event = weir_soft_object_ref(event);
        return weir_soft_capture_op(stream, op);
    }
    bool handled = false;
    WEIR_TRY(external ? CUDA_SUCCESS : weir_soft_capture_wait(stream, event, &handled));
    if (handled) {
        return CUDA_SUCCESS;
    }
    if (stream->legacy) {
        WEIR_TRY(weir_soft_capture_check_legacy(stream->object.ctx));
    }
    struct weir_soft_op *op = NULL;
    if (event->shared) {
        op = ipc_op(WEIR_SOFT_OP_IPC_WAIT, event, stream->object.ctx);
        WEIR_FAIL_IF(!op, CUDA_ERROR_OUT_OF_MEMORY);
    } else if (weir_soft_task_is_done(event->task)) {
        return CUDA_SUCCESS;
    }
    struct weir_soft_task *mark = weir_soft_task_new(stream->object.ctx, op, stream->priority);
    weir_soft_op_put(op);
    WEIR_FAIL_IF(!mark, CUDA_ERROR_OUT_OF_MEMORY);
    CUresult result = weir_soft_event_wait_in(event, mark);
    CUresult pushed = weir_soft_stream_push(stream, mark);
    weir_soft_task_put(mark);
    return result != CUDA_SUCCESS ? result : pushed;
}
