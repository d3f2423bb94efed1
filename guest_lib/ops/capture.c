/*
 * Stream capture. The driver captures in the worker. The guest only counts captures in progress
 * (which turns posted stream work into calls), and keeps the state that a captured graph will need
 * in this process.
 *
 * Pageable copies, functions and memory nodes found during a capture are kept in a list under the
 * capture's id until the capture ends and its graph has a name.
 */
#include "base/thread.h"
#include "guest_lib/graph_mem.h"
#include "guest_lib/ops/forward.h"
#include "proto/guest_calls.h"
#include "proto/guest_hand.h"
#include "proto/wire/guest_api.h"

#include <stdlib.h>
#include <string.h>

enum pending_kind { PENDING_COPY, PENDING_FUNCTION, PENDING_ALLOC, PENDING_FREE };

struct pending {
    uint64_t capture;
    enum pending_kind kind;
    uint64_t address; /* address of the block of PENDING_ALLOC and PENDING_FREE */
    struct weir_stream_capture_copy copy;
    struct weir_graph_function *function;
    struct pending *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards pendings */
static struct pending *pendings;

static CUresult info_of(struct weir_guest_stream *stream, struct weir_op_capture_info_out *out)
{
    const struct weir_op_capture_info_in in = {.s = stream->handle};
    return weir_call_capture_info(weir_guest_channel(), &in, out);
}

/* Get the id of the capture in which a stream takes part; false if it is not captured. */
static bool capture_of(struct weir_guest_stream *stream, uint64_t *ret_id, CUresult *ret_result)
{
    struct weir_op_capture_info_out out;
    if (stream->legacy) { /* it is never captured, but its work fails because of other captures */
        *ret_result = CUDA_SUCCESS;
        return false;
    }
    *ret_result = info_of(stream, &out);
    if (*ret_result != CUDA_SUCCESS || out.status != CU_STREAM_CAPTURE_STATUS_ACTIVE) {
        return false;
    }
    *ret_id = out.id;
    return true;
}

bool weir_graph_is_captured(struct weir_guest_stream *stream)
{
    uint64_t id;
    CUresult result;
    return weir_guest_capturing() && capture_of(stream, &id, &result);
}

static CUresult remember(const struct pending *item)
{
    struct pending *kept = malloc(sizeof(*kept));
    WEIR_FAIL_IF(!kept, CUDA_ERROR_OUT_OF_MEMORY);
    *kept = *item;
    WEIR_LOCKED(&lock);
    WEIR_PUSH(pendings, kept);
    return CUDA_SUCCESS;
}

/* weir_guest.capture_copy; see stream.h. */
static bool capture_copy(struct weir_guest_stream *stream, struct weir_stream_capture_copy *copy,
                         struct weir_guest_copy_side *ret_side, CUresult *ret_result)
{
    struct pending item = {.kind = PENDING_COPY};
    if (!capture_of(stream, &item.capture, ret_result)) {
        return *ret_result != CUDA_SUCCESS;
    }
    *ret_result = weir_graph_block_take(
        stream->ctx, copy->row_bytes * copy->n_rows * copy->n_slices, &copy->block);
    if (*ret_result != CUDA_SUCCESS) {
        return true;
    }
    item.copy = *copy;
    *ret_result = remember(&item);
    if (*ret_result != CUDA_SUCCESS) {
        weir_graph_block_free(&copy->block);
    }
    weir_graph_block_side(&copy->block, copy->row_bytes, copy->n_rows, ret_side);
    return true;
}

bool weir_graph_capture_function(struct weir_guest_stream *stream, CUhostFn fn, void *user,
                                 uint64_t *ret_token, CUresult *ret_result)
{
    struct pending item = {.kind = PENDING_FUNCTION};
    if (!capture_of(stream, &item.capture, ret_result)) {
        return *ret_result != CUDA_SUCCESS;
    }
    *ret_result = weir_graph_function_new(fn, user, &item.function, ret_token);
    if (*ret_result != CUDA_SUCCESS) {
        return true;
    }
    *ret_result = remember(&item);
    if (*ret_result != CUDA_SUCCESS) {
        weir_graph_function_free(item.function);
    }
    return true;
}

/* ---------------------------------------------------------------- memory */

/* Add an empty node after the stream's dependencies; later work depends on it. */
static CUresult insert_node(CUstream stream, CUgraphNode *ret_node)
{
    CUstreamCaptureStatus status;
    const CUgraphNode *before;
    CUgraph graph;
    size_t count;
    WEIR_TRY(
        weir_guest_cuStreamGetCaptureInfo_v3(stream, &status, NULL, &graph, &before, NULL, &count));
    WEIR_TRY(weir_guest_cuGraphAddEmptyNode(ret_node, graph, before, count));
    return weir_guest_cuStreamUpdateCaptureDependencies(stream, ret_node, 1,
                                                        CU_STREAM_SET_CAPTURE_DEPENDENCIES);
}

bool weir_graph_capture_alloc(struct weir_guest_stream *stream, CUstream handle, uint64_t bytes,
                              CUdeviceptr *ret_address, CUresult *ret_result)
{
    struct pending item = {.kind = PENDING_ALLOC};
    CUgraphNode node;
    if (!capture_of(stream, &item.capture, ret_result)) {
        *ret_result = *ret_result == CUDA_SUCCESS ? weir_guest_enter_unsafe() : *ret_result;
        return *ret_result != CUDA_SUCCESS;
    }
    *ret_result = insert_node(handle, &node);
    if (*ret_result == CUDA_SUCCESS) {
        *ret_result = weir_graph_mem_new(stream->ctx, bytes, &item.address);
    }
    if (*ret_result != CUDA_SUCCESS) {
        return true;
    }
    const struct weir_graph_node record = {
        .handle = (uintptr_t)node,
        .type = CU_GRAPH_NODE_TYPE_MEM_ALLOC,
        .params = {.alloc = {.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                           .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE,
                                                        .id = stream->ctx->device}},
                             .bytesize = bytes,
                             .dptr = item.address}}};
    *ret_result = remember(&item);
    if (*ret_result != CUDA_SUCCESS) {
        weir_graph_mem_drop(item.address);
        return true;
    }
    *ret_address = item.address;
    *ret_result = weir_graph_node_keep(&record);
    return true;
}

bool weir_graph_capture_free(struct weir_guest_stream *stream, CUstream handle, CUdeviceptr address,
                             CUresult *ret_result)
{
    struct pending item = {.kind = PENDING_FREE, .address = address};
    CUgraphNode node;
    if (!capture_of(stream, &item.capture, ret_result)) {
        *ret_result = *ret_result == CUDA_SUCCESS ? weir_guest_enter_unsafe() : *ret_result;
        return *ret_result != CUDA_SUCCESS;
    }
    *ret_result =
        weir_graph_mem_known(address) ? insert_node(handle, &node) : CUDA_ERROR_INVALID_VALUE;
    if (*ret_result == CUDA_SUCCESS) {
        *ret_result = remember(&item);
    }
    if (*ret_result == CUDA_SUCCESS) {
        const struct weir_graph_node record = {.handle = (uintptr_t)node,
                                               .type = CU_GRAPH_NODE_TYPE_MEM_FREE,
                                               .params = {.freed = address}};
        *ret_result = weir_graph_node_keep(&record);
    }
    return true;
}

/* ---------------------------------------------------------------- state kept during a capture */

static CUresult give(struct weir_graph_set *set, const struct pending *item)
{
    switch (item->kind) {
    case PENDING_COPY:
        return weir_graph_set_copy(set, &item->copy);
    case PENDING_FUNCTION:
        weir_graph_set_function(set, item->function);
        return CUDA_SUCCESS;
    case PENDING_ALLOC:
        return weir_graph_set_mem(set, item->address, false);
    case PENDING_FREE:
        return weir_graph_set_mem(set, item->address, true);
    }
    return CUDA_ERROR_UNKNOWN;
}

static void let_go(const struct pending *item)
{
    switch (item->kind) {
    case PENDING_COPY:
        weir_graph_block_free(&item->copy.block);
        break;
    case PENDING_FUNCTION:
        weir_graph_function_free(item->function);
        break;
    case PENDING_ALLOC:
        weir_graph_mem_drop(item->address);
        break;
    case PENDING_FREE:
        break;
    }
}

/* Give a capture's state to its graph; without a graph, free it. */
static CUresult settle(uint64_t capture, uint64_t graph)
{
    CUresult result = CUDA_SUCCESS;
    struct pending *mine = NULL;
    pthread_mutex_lock(&lock);
    for (struct pending **at = &pendings; *at;) {
        struct pending *item = *at;
        if (item->capture == capture) {
            *at = item->next;
            WEIR_PUSH(mine, item);
        } else {
            at = &item->next;
        }
    }
    pthread_mutex_unlock(&lock);
    struct weir_graph_set *set = mine && graph ? weir_graph_set_of(graph) : NULL;
    for (struct pending *first; (first = WEIR_POP(mine));) {
        CUresult kept = CUDA_ERROR_OUT_OF_MEMORY;
        if (set) {
            kept = give(set, first);
        }
        if (kept != CUDA_SUCCESS) {
            let_go(first);
            result = graph ? kept : result;
        }
        free(first);
    }
    return result;
}

/* ---------------------------------------------------------------- captures in progress */

/* The list of streams in which a capture began, and their captures. */
static struct {
    pthread_mutex_t lock;
    struct weir_guest_stream *first;
} captures = {PTHREAD_MUTEX_INITIALIZER, NULL};

/*
 * Mark the stream before the host is asked, since no thread may post into a captured stream. The
 * stream's lock orders a mark that another thread is about to post before the capture.
 * @return false: a capture began in it already
 */
static bool enter(struct weir_guest_stream *stream, CUstreamCaptureMode mode, uint64_t graph)
{
    pthread_mutex_lock(&captures.lock);
    bool first = !__atomic_exchange_n(&stream->capture.under_way, true, __ATOMIC_RELAXED);
    if (first) {
        stream->capture.next = captures.first;
        captures.first = stream;
        stream->capture.mode = mode;
        stream->capture.thread = pthread_self();
        stream->capture.broken = false;
        stream->capture.id = 0;
        stream->capture.into = graph;
        stream->capture.named = 0;
        weir_lock_acquire(&stream->lock);
        __atomic_fetch_add(&weir_guest.captures_active, 1, __ATOMIC_RELEASE);
        weir_lock_release(&stream->lock);
    }
    pthread_mutex_unlock(&captures.lock);
    return first;
}

CUresult weir_guest_capture_leave(struct weir_guest_stream *stream, uint64_t graph)
{
    if (!__atomic_load_n(&stream->capture.under_way, __ATOMIC_RELAXED)) {
        return CUDA_SUCCESS;
    }
    pthread_mutex_lock(&captures.lock);
    uint64_t id = stream->capture.id;
    bool mine = __atomic_exchange_n(&stream->capture.under_way, false, __ATOMIC_RELAXED);
    struct weir_guest_stream **at = &captures.first;
    while (mine && *at != stream) {
        at = &(*at)->capture.next;
    }
    *at = mine ? stream->capture.next : *at;
    pthread_mutex_unlock(&captures.lock);
    if (!mine) {
        return CUDA_SUCCESS;
    }
    __atomic_fetch_sub(&weir_guest.captures_active, 1, __ATOMIC_RELEASE);
    return settle(id, graph);
}

/* Find a capture that forbids this thread's call and that the host must invalidate. */
static struct weir_guest_stream *find_forbidding(const struct weir_guest_ctx *ctx,
                                                 bool *ret_forbidden)
{
    struct weir_guest_stream *found = NULL;
    WEIR_LOCKED(&captures.lock);
    for (struct weir_guest_stream *s = captures.first; s && !found; s = s->capture.next) {
        if (weir_capture_forbids(s->capture.mode, s->capture.thread) || s->ctx == ctx) {
            *ret_forbidden = true;
            found = s->capture.broken ? NULL : s;
            s->capture.broken = true;
        }
    }
    return found;
}

CUresult weir_guest_refuse_unsafe(const struct weir_guest_ctx *ctx)
{
    struct weir_guest_stream *stream;
    bool forbidden = false;
    while ((stream = find_forbidding(ctx, &forbidden))) {
        (void)weir_guest_stream_ask_host(stream); /* this invalidates the capture */
    }
    return forbidden ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

/* ---------------------------------------------------------------- begin and end */

CUresult weir_guest_capture_begin(CUstream hStream, CUstreamCaptureMode mode, uint64_t graph,
                                  const CUgraphNode *dependencies, const CUgraphEdgeData *edges,
                                  size_t count)
{
    struct weir_guest_stream *stream;
    struct weir_op_capture_begin_out out;
    if ((unsigned int)mode > CU_STREAM_CAPTURE_MODE_RELAXED || (count && !dependencies) ||
        count > 4096) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    WEIR_TRY(weir_guest_stream_get(hStream, &stream));
    WEIR_FAIL_IF(stream->legacy, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    WEIR_TRY(weir_guest_stream_mark_before_capture(stream));
    weir_guest.capture_copy = capture_copy;
    WEIR_FAIL_IF(!enter(stream, mode, graph), CUDA_ERROR_ILLEGAL_STATE);
    const struct weir_op_capture_begin_in in = {
        .s = stream->handle,
        .mode = (uint32_t)mode,
        .g = graph,
        .dependencies = (const uint64_t *)(const void *)dependencies,
        .n_dependencies = (uint32_t)count,
        .edges = edges,
        .n_edges = edges ? (uint32_t)count : 0,
    };
    CUresult result = weir_call_capture_begin(weir_guest_channel(), &in, &out);
    if (result == CUDA_SUCCESS) {
        pthread_mutex_lock(&captures.lock);
        stream->capture.id = out.id;
        pthread_mutex_unlock(&captures.lock);
    } else {
        (void)weir_guest_capture_leave(stream, 0);
    }
    return result;
}

/* Note the name of a graph under capture: at its end the program gets it by the same name. */
static void name_capture(const struct weir_op_capture_info_out *out)
{
    WEIR_LOCKED(&captures.lock);
    for (struct weir_guest_stream *s = captures.first; s; s = s->capture.next) {
        if (s->capture.id == out->id) {
            s->capture.named = out->graph;
        }
    }
}

/* End a capture. A graph that has a name keeps it, as its state is stored under that name. */
static CUresult end(struct weir_guest_stream *stream, const struct weir_guest_capture *begun,
                    CUgraph *ret_graph)
{
    struct weir_op_capture_end_in in = {.s = stream->handle,
                                        .g = begun->into ? begun->into : begun->named};
    WEIR_TRY(in.g ? CUDA_SUCCESS : weir_guest_reserve(WEIR_KIND_GRAPH, &in.g));
    CUresult result = weir_call_capture_end(weir_guest_channel(), &in, NULL);
    CUresult settled = weir_guest_capture_leave(stream, result == CUDA_SUCCESS ? in.g : 0);
    weir_streams_reap(stream->ctx);
    if (result != CUDA_SUCCESS && !begun->into) {
        weir_graph_nodes_forget(in.g);
        weir_graph_set_drop(in.g); /* its destructors run */
        weir_guest_drop(WEIR_KIND_GRAPH, in.g);
    }
    if (result == CUDA_SUCCESS) {
        *ret_graph = (CUgraph)(uintptr_t)in.g;
    }
    return result == CUDA_SUCCESS ? settled : result;
}

/* Get the mode in which the stream's capture began. @return false: no capture began in it */
static bool how_begun(struct weir_guest_stream *stream, struct weir_guest_capture *ret_capture)
{
    pthread_mutex_lock(&captures.lock);
    *ret_capture = stream->capture;
    pthread_mutex_unlock(&captures.lock);
    if (!ret_capture->under_way) {
        ret_capture->into = ret_capture->named = 0; /* of an earlier capture */
    }
    return ret_capture->under_way;
}

void weir_graph_capture_abandon(struct weir_guest_stream *stream)
{
    struct weir_guest_capture begun;
    CUgraph graph;
    if (how_begun(stream, &begun) && end(stream, &begun, &graph) == CUDA_SUCCESS && !begun.into) {
        (void)weir_guest_cuGraphDestroy(graph); /* no graph owns it */
    }
}

CUresult weir_guest_cuStreamEndCapture(CUstream hStream, CUgraph *phGraph)
{
    struct weir_guest_stream *stream;
    struct weir_guest_capture begun;
    CUgraph graph = NULL;
    WEIR_TRY(weir_guest_stream_get(hStream, &stream));
    bool origin = how_begun(stream, &begun);
    WEIR_FAIL_IF(!phGraph && !(origin && begun.into), CUDA_ERROR_INVALID_VALUE);
    if (origin && begun.mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
        !pthread_equal(begun.thread, pthread_self())) {
        weir_graph_capture_abandon(stream); /* as the driver does */
        return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    }
    CUresult result = end(stream, &begun, &graph);
    WEIR_GIVE(phGraph, graph);
    return result;
}

CUresult weir_guest_cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus *captureStatus)
{
    struct weir_guest_stream *stream;
    struct weir_op_capture_info_out out;
    WEIR_FAIL_IF(!captureStatus, CUDA_ERROR_INVALID_VALUE);
    CUresult result = weir_guest_stream_get(hStream, &stream);
    *captureStatus = CU_STREAM_CAPTURE_STATUS_NONE;
    if (result != CUDA_SUCCESS || !weir_guest_capturing()) {
        return result;
    }
    WEIR_TRY(info_of(stream, &out));
    *captureStatus = (CUstreamCaptureStatus)out.status;
    return CUDA_SUCCESS;
}

/* The dependencies stay valid until the thread's next query, as the driver's do. */
static __thread uint64_t *kept_dependencies;
static __thread CUgraphEdgeData *kept_edges;
static __thread size_t kept_room;

static CUresult keep_dependencies(const struct weir_op_capture_info_out *out)
{
    if (out->n_dependencies > kept_room) {
        uint64_t *more = realloc(kept_dependencies, out->n_dependencies * sizeof(*more));
        WEIR_FAIL_IF(!more, CUDA_ERROR_OUT_OF_MEMORY);
        kept_dependencies = more;
        CUgraphEdgeData *more_edges =
            realloc(kept_edges, out->n_dependencies * sizeof(*more_edges));
        WEIR_FAIL_IF(!more_edges, CUDA_ERROR_OUT_OF_MEMORY);
        kept_edges = more_edges;
        kept_room = out->n_dependencies;
    }
    if (out->n_dependencies) {
        memcpy(kept_dependencies, out->dependencies,
               out->n_dependencies * sizeof(*kept_dependencies));
    }
    if (out->n_edges && out->n_edges == out->n_dependencies) {
        memcpy(kept_edges, out->edges, out->n_edges * sizeof(*kept_edges));
    }
    return CUDA_SUCCESS;
}

CUresult weir_guest_cuStreamGetCaptureInfo_v3(CUstream hStream,
                                              CUstreamCaptureStatus *captureStatus_out,
                                              cuuint64_t *id_out, CUgraph *graph_out,
                                              const CUgraphNode **dependencies_out,
                                              const CUgraphEdgeData **edgeData_out,
                                              size_t *numDependencies_out)
{
    struct weir_guest_stream *stream;
    struct weir_op_capture_info_out out = {.status = CU_STREAM_CAPTURE_STATUS_NONE};
    WEIR_FAIL_IF(!captureStatus_out, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_guest_stream_get(hStream, &stream));
    if (weir_guest_capturing()) {
        WEIR_TRY(info_of(stream, &out));
    }
    WEIR_TRY(keep_dependencies(&out));
    WEIR_TRY(weir_guest_adopt(WEIR_KIND_NODE, kept_dependencies, out.n_dependencies));
    WEIR_TRY(weir_guest_adopt(WEIR_KIND_GRAPH, &out.graph, 1));
    if (out.graph) {
        name_capture(&out);
    }
    *captureStatus_out = (CUstreamCaptureStatus)out.status;
    WEIR_GIVE(id_out, out.id);
    WEIR_GIVE(graph_out, (CUgraph)(uintptr_t)out.graph);
    WEIR_GIVE(dependencies_out, (const CUgraphNode *)(const void *)kept_dependencies);
    if (edgeData_out) {
        *edgeData_out = out.n_edges ? kept_edges : NULL; /* NULL: all edges are plain */
    }
    WEIR_GIVE(numDependencies_out, out.n_dependencies);
    return CUDA_SUCCESS;
}

CUresult weir_guest_cuStreamUpdateCaptureDependencies_v2(CUstream hStream,
                                                         CUgraphNode *dependencies,
                                                         const CUgraphEdgeData *dependencyData,
                                                         size_t numDependencies, unsigned int flags)
{
    struct weir_guest_stream *stream;
    if ((numDependencies && !dependencies) || numDependencies > 4096 ||
        flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    WEIR_TRY(weir_guest_stream_get(hStream, &stream));
    const struct weir_op_capture_update_in in = {
        .s = stream->handle,
        .dependencies = (const uint64_t *)(const void *)dependencies,
        .n_dependencies = (uint32_t)numDependencies,
        .edges = dependencyData,
        .n_edges = dependencyData ? (uint32_t)numDependencies : 0,
        .flags = flags,
    };
    return weir_call_capture_update(weir_guest_channel(), &in, NULL);
}
