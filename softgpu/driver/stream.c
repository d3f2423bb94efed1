/*
 * Streams: the order of work, the legacy default stream's rules, per-thread default streams.
 *
 * A stream only keeps its last task. Work in the legacy stream waits for the last tasks of all
 * blocking streams of its context, and theirs for its last task. Non-blocking streams have no such
 * order. A destroyed stream with work left stays in the list as a zombie until that work is done,
 * so that the legacy stream still waits for it.
 */
#include "softgpu/driver/forward.h"

#include <stdlib.h>
#include <string.h>

static bool is_blocking(const struct weir_soft_stream *stream)
{
    return !stream->legacy && (stream->flags & CU_STREAM_NON_BLOCKING) == 0;
}

static void stream_release(void *object)
{
    struct weir_soft_stream *stream = object;
    weir_soft_task_put(stream->tail);
    weir_soft_object_put(stream->green);
    weir_soft_capture_put(stream->capture);
    weir_soft_nodes_clear(&stream->capture_nodes);
}

static int clamped(int priority)
{
    return priority > 0 ? 0 : priority < -5 ? -5 : priority;
}

struct weir_soft_stream *weir_soft_stream_make(struct weir_soft_ctx *ctx, unsigned flags,
                                               int priority)
{
    struct weir_soft_stream *stream =
        weir_soft_object_new(WEIR_SOFT_STREAM, sizeof(*stream), ctx, stream_release);
    WEIR_FAIL_IF(!stream, NULL);
    stream->flags = flags;
    stream->priority = clamped(priority);
    stream->id = weir_soft_next_id();
    stream->next = ctx->streams;
    ctx->streams = weir_soft_object_ref(stream);
    return stream;
}

/* Drop destroyed streams whose work is done. */
static void purge_zombies(struct weir_soft_ctx *ctx)
{
    struct weir_soft_stream **at = &ctx->streams;
    while (*at) {
        struct weir_soft_stream *stream = *at;
        if (stream->zombie && weir_soft_task_is_done(stream->tail)) {
            *at = stream->next;
            weir_soft_object_put(stream);
        } else {
            at = &stream->next;
        }
    }
}

static void stream_destroy(struct weir_soft_stream *stream)
{
    weir_soft_capture_abandon(stream);
    stream->zombie = true;
    weir_soft_object_retire(stream);
    purge_zombies(stream->object.ctx);
}

/* ------------------------------------------------------------------ per-thread default streams */

#define THREAD_STREAMS 16

struct thread_streams {
    struct {
        struct weir_soft_stream
            *stream; /* the stream may be gone: compare its id after a look-up */
        struct weir_soft_ctx *ctx;
        uint64_t id;
    } at[THREAD_STREAMS];
    uint32_t n;
};

static pthread_key_t thread_key;
static pthread_once_t thread_once = PTHREAD_ONCE_INIT;

static void thread_ends(void *value)
{
    struct thread_streams *mine = value;
    weir_soft_lock();
    for (uint32_t i = 0; i < mine->n; i++) {
        struct weir_soft_stream *stream =
            weir_soft_object_find(WEIR_SOFT_STREAM, mine->at[i].stream);
        if (stream && stream->id == mine->at[i].id) {
            stream_destroy(stream);
        }
    }
    weir_soft_unlock();
    free(mine);
}

static void make_key(void)
{
    pthread_key_create(&thread_key, thread_ends);
}

static struct weir_soft_stream *per_thread_stream(struct weir_soft_ctx *ctx)
{
    pthread_once(&thread_once, make_key);
    struct thread_streams *mine = pthread_getspecific(thread_key);
    if (!mine) {
        mine = calloc(1, sizeof(*mine));
        if (!mine || pthread_setspecific(thread_key, mine) != 0) {
            free(mine);
            return NULL;
        }
    }
    uint32_t slot = mine->n;
    for (uint32_t i = 0; i < mine->n; i++) {
        struct weir_soft_stream *stream =
            weir_soft_object_find(WEIR_SOFT_STREAM, mine->at[i].stream);
        bool live = stream && stream->id == mine->at[i].id;
        if (live && stream->object.ctx == ctx) {
            return stream;
        }
        slot = live ? slot : i;
    }
    struct weir_soft_stream *stream =
        slot < THREAD_STREAMS ? weir_soft_stream_make(ctx, CU_STREAM_DEFAULT, 0) : NULL;
    if (stream) {
        stream->per_thread = true;
        mine->at[slot].stream = stream;
        mine->at[slot].ctx = ctx;
        mine->at[slot].id = stream->id;
        mine->n = slot == mine->n ? mine->n + 1 : mine->n;
    }
    return stream;
}

CUresult weir_soft_stream_find(CUstream handle, struct weir_soft_stream **ret_stream)
{
    if (!handle || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
        struct weir_soft_ctx *ctx;
        WEIR_TRY(weir_soft_ctx_current(&ctx));
        *ret_stream = handle == CU_STREAM_PER_THREAD ? per_thread_stream(ctx) : ctx->legacy;
        return *ret_stream ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    }
    struct weir_soft_stream *stream = weir_soft_object_find(WEIR_SOFT_STREAM, handle);
    WEIR_FAIL_IF(!stream, CUDA_ERROR_INVALID_HANDLE);
    WEIR_FAIL_IF(stream->green && stream->green->destroyed, CUDA_ERROR_CONTEXT_IS_DESTROYED);
    *ret_stream = stream;
    return stream->object.ctx->sticky;
}

/* ------------------------------------------------------------------ queueing */

CUresult weir_soft_stream_push(struct weir_soft_stream *stream, struct weir_soft_task *task)
{
    struct weir_soft_ctx *ctx = stream->object.ctx;
    bool ordered = weir_soft_task_after(task, stream->tail);
    if (stream->legacy) {
        purge_zombies(ctx);
        for (struct weir_soft_stream *s = ctx->streams; s; s = s->next) {
            ordered = (!is_blocking(s) || weir_soft_task_after(task, s->tail)) && ordered;
        }
    } else if (is_blocking(stream)) {
        ordered = weir_soft_task_after(task, ctx->legacy->tail) && ordered;
    }
    weir_soft_task_put(stream->tail);
    task->refs++;
    stream->tail = task;
    weir_soft_task_start(task);
    return ordered ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult weir_soft_stream_submit(struct weir_soft_stream *stream, struct weir_soft_op *op)
{
    if (stream->capture) {
        return weir_soft_capture_op(stream, op);
    }
    CUresult result = CUDA_SUCCESS;
    if (stream->legacy) {
        result = weir_soft_capture_check_legacy(stream->object.ctx);
    }
    struct weir_soft_task *task = NULL;
    if (result == CUDA_SUCCESS) {
        int priority = op->kind == WEIR_SOFT_OP_KERNEL && op->kernel.priority != 0
                           ? op->kernel.priority
                           : stream->priority;
        task = weir_soft_task_new(stream->object.ctx, op, priority);
        result = !task ? CUDA_ERROR_OUT_OF_MEMORY : weir_soft_stream_push(stream, task);
        weir_soft_task_put(task);
    }
    weir_soft_op_put(op);
    return result;
}

/* Make a task that ends after all work queued so far. The caller gets a reference. */
static struct weir_soft_task *stream_mark(struct weir_soft_stream *stream)
{
    if (!stream->legacy) {
        if (stream->tail) {
            stream->tail->refs++;
        }
        return stream->tail;
    }
    struct weir_soft_task *mark = weir_soft_task_new(stream->object.ctx, NULL, 0);
    if (mark) {
        (void)weir_soft_stream_push(stream, mark);
    }
    return mark;
}

CUresult weir_soft_stream_sync(struct weir_soft_stream *stream)
{
    struct weir_soft_ctx *ctx = weir_soft_object_ref(stream->object.ctx);
    struct weir_soft_task *mark = stream_mark(stream);
    weir_soft_task_wait_unlocked(mark);
    weir_soft_task_put(mark);
    CUresult result = weir_soft_ctx_tell(ctx);
    weir_soft_object_put(ctx);
    return result;
}

/* ------------------------------------------------------------------ entries */

CUresult weir_soft_cuStreamCreateWithPriority(CUstream *ret, unsigned int flags, int priority)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_ctx *ctx;
    WEIR_FAIL_IF(!ret || (flags & ~(unsigned)CU_STREAM_NON_BLOCKING) != 0,
                 CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_soft_ctx_current(&ctx));
    struct weir_soft_stream *stream = weir_soft_stream_make(ctx, flags, priority);
    WEIR_FAIL_IF(!stream, CUDA_ERROR_OUT_OF_MEMORY);
    *ret = (CUstream)stream;
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuStreamDestroy_v2(CUstream handle)
{
    WEIR_SOFT_LOCKED();
    WEIR_FAIL_IF(!handle || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD,
                 CUDA_ERROR_INVALID_VALUE);
    struct weir_soft_stream *stream = weir_soft_object_find(WEIR_SOFT_STREAM, handle);
    WEIR_FAIL_IF(!stream || stream->legacy || stream->per_thread, CUDA_ERROR_INVALID_HANDLE);
    WEIR_FAIL_IF(stream->green && stream->green->destroyed, CUDA_ERROR_CONTEXT_IS_DESTROYED);
    stream_destroy(stream);
    return CUDA_SUCCESS;
}

/* Find a stream whose end is asked for, which no capture may depend on. */
static CUresult find_to_await(CUstream handle, struct weir_soft_stream **ret_stream)
{
    WEIR_TRY(weir_soft_stream_find(handle, ret_stream));
    struct weir_soft_stream *stream = *ret_stream;
    if (stream->capture) {
        stream->capture->invalidated = true;
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return stream->legacy ? weir_soft_capture_check_legacy(stream->object.ctx) : CUDA_SUCCESS;
}

CUresult weir_soft_cuStreamQuery(CUstream handle)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_stream *stream;
    WEIR_TRY(find_to_await(handle, &stream));
    struct weir_soft_task *mark = stream_mark(stream);
    bool done = weir_soft_task_is_done(mark);
    weir_soft_task_put(mark);
    return !done ? CUDA_ERROR_NOT_READY : weir_soft_ctx_tell(stream->object.ctx);
}

static CUresult synchronize(CUstream handle)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_stream *stream;
    WEIR_TRY(find_to_await(handle, &stream));
    return weir_soft_stream_sync(stream);
}

CUresult weir_soft_cuStreamSynchronize(CUstream handle)
{
    CUresult result = synchronize(handle);
    weir_soft_print_flush();
    return result;
}

CUresult weir_soft_cuStreamAttachMemAsync(CUstream handle, CUdeviceptr address, size_t bytes,
                                          unsigned int flags)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_stream *stream;
    WEIR_TRY(weir_soft_stream_find(handle, &stream));
    const struct weir_soft_alloc *alloc = weir_soft_space_find(address);
    if (!alloc || alloc->kind != WEIR_SOFT_ALLOC_MANAGED || (bytes != 0 && bytes != alloc->bytes) ||
        (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST &&
         flags != CU_MEM_ATTACH_SINGLE)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return stream->legacy && flags == CU_MEM_ATTACH_SINGLE ? CUDA_ERROR_INVALID_VALUE
                                                           : CUDA_SUCCESS;
}

/* ------------------------------------------------------------------ attributes */

static CUstreamAttrValue *attribute_of(struct weir_soft_stream *stream, CUstreamAttrID id)
{
    switch ((int)id) {
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
        return &stream->policy_window;
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
        return &stream->sync_policy;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
        return &stream->sync_domain;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
        return &stream->sync_domain_map;
    default:
        return NULL;
    }
}

CUresult weir_soft_cuStreamGetAttribute(CUstream handle, CUstreamAttrID id,
                                        CUstreamAttrValue *value)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_stream *stream;
    WEIR_TRY(weir_soft_stream_find(handle, &stream));
    const CUstreamAttrValue *mine = attribute_of(stream, id);
    WEIR_FAIL_IF(!value || (!mine && id != CU_LAUNCH_ATTRIBUTE_PRIORITY), CUDA_ERROR_INVALID_VALUE);
    if (id == CU_LAUNCH_ATTRIBUTE_PRIORITY) {
        memset(value, 0, sizeof(*value));
        value->priority = stream->priority;
    } else {
        *value = *mine;
    }
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuStreamSetAttribute(CUstream handle, CUstreamAttrID id,
                                        const CUstreamAttrValue *value)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_stream *stream;
    WEIR_TRY(weir_soft_stream_find(handle, &stream));
    CUstreamAttrValue *mine = attribute_of(stream, id);
    WEIR_FAIL_IF(!value || (!mine && id != CU_LAUNCH_ATTRIBUTE_PRIORITY), CUDA_ERROR_INVALID_VALUE);
    if (id == CU_LAUNCH_ATTRIBUTE_PRIORITY) {
        stream->priority = clamped(value->priority);
    } else {
        *mine = *value;
    }
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuStreamCopyAttributes(CUstream dst_handle, CUstream src_handle)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_stream *dst, *src;
    WEIR_TRY(weir_soft_stream_find(dst_handle, &dst));
    WEIR_TRY(weir_soft_stream_find(src_handle, &src));
    dst->policy_window = src->policy_window;
    dst->sync_policy = src->sync_policy;
    dst->sync_domain = src->sync_domain;
    dst->sync_domain_map = src->sync_domain_map;
    return CUDA_SUCCESS;
}

/* ------------------------------------------------------------------ the program's functions */

CUresult weir_soft_cuLaunchHostFunc(CUstream handle, CUhostFn fn, void *user)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_stream *stream;
    WEIR_FAIL_IF(!fn, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_soft_stream_find(handle, &stream));
    struct weir_soft_op *op = weir_soft_op_new(WEIR_SOFT_OP_HOST, stream->object.ctx);
    WEIR_FAIL_IF(!op, CUDA_ERROR_OUT_OF_MEMORY);
    op->host.fn = fn;
    op->host.user = user;
    return weir_soft_stream_submit(stream, op);
}

CUresult weir_soft_cuStreamAddCallback(CUstream handle, CUstreamCallback fn, void *user,
                                       unsigned int flags)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_stream *stream;
    WEIR_FAIL_IF(!fn || flags != 0, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_soft_stream_find(handle, &stream));
    if (stream->capture) {
        stream->capture->invalidated = true;
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    struct weir_soft_op *op = weir_soft_op_new(WEIR_SOFT_OP_CALLBACK, stream->object.ctx);
    WEIR_FAIL_IF(!op, CUDA_ERROR_OUT_OF_MEMORY);
    op->callback.fn = fn;
    op->callback.user = user;
    op->callback.stream = handle == CU_STREAM_LEGACY ? NULL : handle;
    return weir_soft_stream_submit(stream, op);
}

/* ------------------------------------------------------------------ values in memory */

static CUresult check_item(const CUstreamBatchMemOpParams *item)
{
    switch (item->operation) {
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
    case CU_STREAM_MEM_OP_WAIT_VALUE_64: {
        bool wide = item->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64 ||
                    item->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
        uint64_t bytes = wide ? 8 : 4;
        uint64_t address = item->waitValue.address; /* both structs begin with the same members */
        struct weir_soft_alloc *alloc = weir_soft_space_find(address);
        return address % bytes == 0 && alloc && alloc->bytes - (address - alloc->base) >= bytes
                   ? CUDA_SUCCESS
                   : CUDA_ERROR_INVALID_VALUE;
    }
    case CU_STREAM_MEM_OP_BARRIER:
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

#define MAX_MEMOPS 256

CUresult weir_soft_memops_make(struct weir_soft_ctx *ctx, unsigned count,
                               const CUstreamBatchMemOpParams *items, unsigned flags,
                               struct weir_soft_op **ret_op)
{
    WEIR_FAIL_IF(!items || count == 0 || count > MAX_MEMOPS || flags != 0,
                 CUDA_ERROR_INVALID_VALUE);
    for (unsigned i = 0; i < count; i++) {
        WEIR_TRY(check_item(&items[i]));
    }
    struct weir_soft_op *op = weir_soft_op_new(WEIR_SOFT_OP_MEMOPS, ctx);
    WEIR_FAIL_IF(!op, CUDA_ERROR_OUT_OF_MEMORY);
    op->memops.items = malloc(count * sizeof(*items));
    if (!op->memops.items) {
        weir_soft_op_put(op);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memcpy(op->memops.items, items, count * sizeof(*items));
    op->memops.n_items = count;
    op->memops.flags = flags;
    *ret_op = op;
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuStreamBatchMemOp_v2(CUstream handle, unsigned int count,
                                         CUstreamBatchMemOpParams *items, unsigned int flags)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_stream *stream;
    struct weir_soft_op *op;
    WEIR_TRY(weir_soft_stream_find(handle, &stream));
    WEIR_TRY(weir_soft_memops_make(stream->object.ctx, count, items, flags, &op));
    return weir_soft_stream_submit(stream, op);
}

CUresult weir_soft_stream_value(CUstream handle, CUstreamBatchMemOpType operation,
                                CUdeviceptr address, uint64_t value, unsigned flags)
{
    bool write = operation == CU_STREAM_MEM_OP_WRITE_VALUE_32 ||
                 operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
    unsigned known = write ? CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER
                           : (unsigned)CU_STREAM_WAIT_VALUE_NOR | CU_STREAM_WAIT_VALUE_FLUSH;
    WEIR_FAIL_IF((flags & ~known) != 0, CUDA_ERROR_INVALID_VALUE);
    CUstreamBatchMemOpParams item;
    memset(&item, 0, sizeof(item));
    if (write) {
        item.writeValue.operation = operation;
        item.writeValue.address = address;
        item.writeValue.value64 = value;
        item.writeValue.flags = flags;
    } else {
        item.waitValue.operation = operation;
        item.waitValue.address = address;
        item.waitValue.value64 = value;
        item.waitValue.flags = flags;
    }
    return weir_soft_cuStreamBatchMemOp_v2(handle, 1, &item, 0);
}
