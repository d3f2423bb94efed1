/*
 * Stream capture: puts a stream's work into a graph instead of running it.
 *
 * A capturing stream holds the nodes on which its next node will depend. An event recorded in such
 * a stream remembers those nodes. A program forks when another stream waits for the event and so
 * joins the capture; it joins when the first stream waits for an event of the other one.
 */
#include "proto/common/capture_mode.h"
#include "softgpu/driver/entry.h"
#include "softgpu/driver/graph_private.h"

#include <stdlib.h>
#include <string.h>

static struct weir_soft_capture *captures; /* all captures that have not ended */

static bool nodes_merge(struct weir_soft_nodes *to, const struct weir_soft_nodes *from)
{
    for (uint32_t i = 0; i < from->n; i++) {
        WEIR_FAIL_IF(!weir_soft_nodes_add(to, from->at[i], &from->edges[i]), false);
    }
    return true;
}

/* ------------------------------------------------------------------ what a capture forbids */

CUresult weir_soft_capture_check(const struct weir_soft_ctx *ctx)
{
    CUresult result = CUDA_SUCCESS;
    for (struct weir_soft_capture *c = captures; c; c = c->next) {
        if (weir_capture_forbids(c->mode, c->thread) || c->origin->object.ctx == ctx) {
            c->invalidated = true;
            result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    }
    return result;
}

CUresult weir_soft_enter_unsafe(void)
{
    WEIR_SOFT_LOCKED();
    return weir_soft_capture_check(NULL);
}

CUresult weir_soft_capture_check_legacy(struct weir_soft_ctx *ctx)
{
    if (!ctx || ctx->n_captures == 0) {
        return CUDA_SUCCESS;
    }
    CUresult result = CUDA_SUCCESS;
    for (struct weir_soft_stream *s = ctx->streams; s; s = s->next) {
        if (s->capture && (s->flags & CU_STREAM_NON_BLOCKING) == 0) {
            s->capture->invalidated = true;
            result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
        }
    }
    return result;
}

/* ------------------------------------------------------------------ life of a capture */

void weir_soft_capture_put(struct weir_soft_capture *capture)
{
    if (capture && --capture->refs == 0) {
        weir_soft_nodes_clear(&capture->left);
        free(capture);
    }
}

static void stream_leave(struct weir_soft_stream *stream)
{
    weir_soft_capture_put(stream->capture);
    stream->capture = NULL;
    weir_soft_nodes_clear(&stream->capture_nodes);
    stream->object.ctx->n_captures--;
}

static bool stream_join(struct weir_soft_stream *stream, struct weir_soft_capture *capture)
{
    stream->capture = capture;
    capture->refs++;
    stream->object.ctx->n_captures++;
    return true;
}

static void leave_if_in(void *object, void *user)
{
    struct weir_soft_stream *stream = object;
    if (stream->capture == user) {
        stream_leave(stream);
    }
}

static void capture_end(struct weir_soft_capture *capture)
{
    WEIR_UNLINK(captures, capture, next);
    weir_soft_object_put(capture->graph); /* events recorded in the capture may keep it alive */
    capture->graph = NULL;
    weir_soft_object_visit(WEIR_SOFT_STREAM, leave_if_in, capture);
}

void weir_soft_capture_abandon(struct weir_soft_stream *stream)
{
    struct weir_soft_capture *capture = stream->capture;
    if (!capture) {
        return;
    }
    if (capture->origin != stream) { /* the work stays in the graph */
        capture->invalidated |= !nodes_merge(&capture->left, &stream->capture_nodes);
        stream_leave(stream);
        return;
    }
    struct weir_soft_graph *graph = capture->graph;
    bool own = capture->own_graph;
    capture_end(capture);
    if (own) {
        weir_soft_object_retire(graph);
    }
}

static CUresult begin(CUstream handle, struct weir_soft_graph *graph, const CUgraphNode *nodes,
                      const CUgraphEdgeData *edges, size_t n_nodes, CUstreamCaptureMode mode)
{
    struct weir_soft_stream *stream;
    WEIR_TRY(weir_soft_stream_find(handle, &stream));
    WEIR_FAIL_IF((unsigned)mode > CU_STREAM_CAPTURE_MODE_RELAXED, CUDA_ERROR_INVALID_VALUE);
    WEIR_FAIL_IF(stream->legacy, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    WEIR_FAIL_IF(stream->capture, CUDA_ERROR_ILLEGAL_STATE);
    struct weir_soft_capture *capture = calloc(1, sizeof(*capture));
    WEIR_FAIL_IF(!capture, CUDA_ERROR_OUT_OF_MEMORY);
    capture->own_graph = !graph;
    if (!graph && weir_soft_graph_make(&graph) != CUDA_SUCCESS) {
        free(capture);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    capture->graph = weir_soft_object_ref(graph);
    capture->id = weir_soft_next_id();
    capture->mode = mode;
    capture->origin = stream;
    capture->thread = pthread_self();
    for (size_t i = 0; i < n_nodes; i++) {
        if (!weir_soft_nodes_add(&stream->capture_nodes, (struct weir_soft_node *)nodes[i],
                                 edges ? &edges[i] : NULL)) {
            weir_soft_nodes_clear(&stream->capture_nodes);
            weir_soft_object_put(capture->graph);
            free(capture);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    WEIR_PUSH(captures, capture);
    stream_join(stream, capture);
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode)
{
    WEIR_SOFT_LOCKED();
    return begin(handle, NULL, NULL, NULL, 0, mode);
}

CUresult weir_soft_cuStreamBeginCaptureToGraph(CUstream handle, CUgraph graph_handle,
                                               const CUgraphNode *nodes,
                                               const CUgraphEdgeData *edges, size_t n_nodes,
                                               CUstreamCaptureMode mode)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_graph *graph = weir_soft_object_find(WEIR_SOFT_GRAPH, graph_handle);
    WEIR_FAIL_IF(!graph || (n_nodes != 0 && !nodes), CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < n_nodes; i++) {
        const struct weir_soft_node *node = weir_soft_object_find(WEIR_SOFT_NODE, nodes[i]);
        WEIR_FAIL_IF(!node || node->graph != graph, CUDA_ERROR_INVALID_VALUE);
    }
    return begin(handle, graph, nodes, edges, n_nodes, mode);
}

/* Mark everything that the nodes depend on, themselves included. */
static bool mark_ancestors(const struct weir_soft_graph *graph, const struct weir_soft_nodes *nodes)
{
    struct weir_soft_node **todo = malloc((graph->n_nodes + 1) * sizeof(struct weir_soft_node *));
    WEIR_FAIL_IF(!todo, false);
    uint32_t n = 0;
    for (struct weir_soft_node *node = graph->first; node; node = node->next) {
        node->mark = 0;
    }
    for (uint32_t i = 0; i < nodes->n; i++) {
        if (nodes->at[i]->mark == 0) {
            nodes->at[i]->mark = 1;
            todo[n++] = nodes->at[i];
        }
    }
    while (n > 0) {
        const struct weir_soft_node *node = todo[--n];
        for (uint32_t i = 0; i < node->before.n; i++) {
            if (node->before.at[i]->mark == 0) {
                node->before.at[i]->mark = 1;
                todo[n++] = node->before.at[i];
            }
        }
    }
    free(todo);
    return true;
}

struct join_check {
    struct weir_soft_capture *capture;
    bool unjoined;
};

/* Is a captured node left unjoined? Nodes that the program itself added do not count (NCCL). */
static bool any_unmarked(const struct weir_soft_nodes *nodes)
{
    for (uint32_t i = 0; i < nodes->n; i++) {
        if (nodes->at[i]->mark == 0 && nodes->at[i]->captured) {
            return true;
        }
    }
    return false;
}

static void check_joined(void *object, void *user)
{
    const struct weir_soft_stream *stream = object;
    struct join_check *check = user;
    if (stream->capture == check->capture && stream != check->capture->origin) {
        check->unjoined = check->unjoined || any_unmarked(&stream->capture_nodes);
    }
}

/* The capture is over, and nobody gets its graph. */
static void give_up(struct weir_soft_capture *capture)
{
    struct weir_soft_graph *graph = capture->graph;
    bool own = capture->own_graph;
    capture_end(capture);
    if (own) {
        weir_soft_object_retire(graph);
    }
}

CUresult weir_soft_cuStreamEndCapture(CUstream handle, CUgraph *ret)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_stream *stream;
    WEIR_TRY(weir_soft_stream_find(handle, &stream));
    struct weir_soft_capture *capture = stream->capture;
    WEIR_FAIL_IF(!ret && (!capture || capture->own_graph), CUDA_ERROR_INVALID_VALUE);
    WEIR_FAIL_IF(!capture, CUDA_ERROR_ILLEGAL_STATE);
    if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
        !pthread_equal(capture->thread, pthread_self())) {
        give_up(capture);
        return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    }
    if (capture->origin != stream) {
        capture->invalidated = true;
        return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    }
    struct join_check check = {.capture = capture};
    CUresult result = capture->invalidated ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS) {
        WEIR_FAIL_IF(!mark_ancestors(capture->graph, &stream->capture_nodes),
                     CUDA_ERROR_OUT_OF_MEMORY);
        check.unjoined = any_unmarked(&capture->left);
        weir_soft_object_visit(WEIR_SOFT_STREAM, check_joined, &check);
        result = check.unjoined ? CUDA_ERROR_STREAM_CAPTURE_UNJOINED : CUDA_SUCCESS;
    }
    WEIR_GIVE(ret, result == CUDA_SUCCESS ? (CUgraph)capture->graph : NULL);
    if (result == CUDA_SUCCESS) {
        capture_end(capture);
    } else {
        give_up(capture);
    }
    return result;
}

/* ------------------------------------------------------------------ what goes in */

CUresult weir_soft_capture_op(struct weir_soft_stream *stream, struct weir_soft_op *op)
{
    struct weir_soft_capture *capture = stream->capture;
    if (capture->invalidated) {
        weir_soft_op_put(op);
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    struct weir_soft_node *node;
    CUresult result = weir_soft_node_allows(op);
    if (result != CUDA_SUCCESS) {
        weir_soft_op_put(op);
        return result;
    }
    result = weir_soft_graph_add(capture->graph, weir_soft_op_node_type(op), op,
                                 &stream->capture_nodes, &node);
    if (result == CUDA_SUCCESS) {
        node->captured = true;
        stream->capture_nodes.n = 0;
        if (!weir_soft_nodes_add(&stream->capture_nodes, node, NULL)) {
            result = CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    if (result != CUDA_SUCCESS) {
        capture->invalidated = true;
    }
    return result;
}

CUresult weir_soft_capture_record(struct weir_soft_event *event, struct weir_soft_stream *stream)
{
    WEIR_FAIL_IF(stream->capture->invalidated, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    struct weir_soft_nodes nodes = {0};
    if (!nodes_merge(&nodes, &stream->capture_nodes)) {
        weir_soft_nodes_clear(&nodes);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    weir_soft_capture_put(event->capture);
    weir_soft_nodes_clear(&event->capture_nodes);
    event->capture = stream->capture;
    event->capture->refs++;
    event->capture_nodes = nodes;
    return CUDA_SUCCESS;
}

static bool is_under_way(const struct weir_soft_capture *capture)
{
    return WEIR_LINKED(c, captures, c == capture) != NULL;
}

CUresult weir_soft_capture_refuse_event(const struct weir_soft_event *event)
{
    event->capture->invalidated = true; /* nobody reads this flag of a capture that has ended */
    return CUDA_ERROR_CAPTURED_EVENT;
}

CUresult weir_soft_capture_wait(struct weir_soft_stream *stream, struct weir_soft_event *event,
                                bool *ret_handled)
{
    *ret_handled = true;
    if (!event->capture) {
        *ret_handled = false;
        if (stream->capture) { /* a captured stream cannot wait for work outside its capture */
            stream->capture->invalidated = true;
            return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
        }
        return CUDA_SUCCESS;
    }
    WEIR_FAIL_IF(!is_under_way(event->capture), CUDA_ERROR_CAPTURED_EVENT);
    WEIR_FAIL_IF(event->capture->invalidated, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    if (stream->capture && stream->capture != event->capture) {
        stream->capture->invalidated = event->capture->invalidated = true;
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
    if (stream->legacy) {
        event->capture->invalidated = true;
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    WEIR_FAIL_IF(!nodes_merge(&stream->capture_nodes, &event->capture_nodes),
                 CUDA_ERROR_OUT_OF_MEMORY);
    if (!stream->capture) {
        stream_join(stream, event->capture);
    }
    return CUDA_SUCCESS;
}

/* ------------------------------------------------------------------ questions */

static CUresult status_of(const struct weir_soft_stream *stream, CUstreamCaptureStatus *ret_status)
{
    if (stream->legacy && !stream->capture) {
        for (const struct weir_soft_stream *s = stream->object.ctx->streams; s; s = s->next) {
            WEIR_FAIL_IF(s->capture && (s->flags & CU_STREAM_NON_BLOCKING) == 0,
                         CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
        }
    }
    *ret_status = !stream->capture               ? CU_STREAM_CAPTURE_STATUS_NONE
                  : stream->capture->invalidated ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                                 : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *status)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_stream *stream;
    WEIR_FAIL_IF(!status, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_soft_stream_find(handle, &stream));
    return status_of(stream, status);
}

CUresult weir_soft_cuStreamGetCaptureInfo_v3(CUstream handle, CUstreamCaptureStatus *status,
                                             cuuint64_t *id, CUgraph *graph,
                                             const CUgraphNode **nodes,
                                             const CUgraphEdgeData **edges, size_t *n_nodes)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_stream *stream;
    WEIR_FAIL_IF(!status, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_soft_stream_find(handle, &stream));
    WEIR_TRY(status_of(stream, status));
    if (*status != CU_STREAM_CAPTURE_STATUS_ACTIVE) {
        return CUDA_SUCCESS;
    }
    WEIR_GIVE(id, stream->capture->id);
    WEIR_GIVE(graph, (CUgraph)stream->capture->graph);
    WEIR_GIVE(nodes, (const CUgraphNode *)stream->capture_nodes.at);
    WEIR_GIVE(edges, stream->capture_nodes.edges);
    WEIR_GIVE(n_nodes, stream->capture_nodes.n);
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuStreamUpdateCaptureDependencies_v2(CUstream handle, CUgraphNode *nodes,
                                                        const CUgraphEdgeData *edges,
                                                        size_t n_nodes, unsigned int flags)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_stream *stream;
    WEIR_FAIL_IF(flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES || (n_nodes != 0 && !nodes),
                 CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_soft_stream_find(handle, &stream));
    WEIR_FAIL_IF(!stream->capture, CUDA_ERROR_ILLEGAL_STATE);
    WEIR_FAIL_IF(stream->capture->invalidated, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    for (size_t i = 0; i < n_nodes; i++) {
        const struct weir_soft_node *node = weir_soft_object_find(WEIR_SOFT_NODE, nodes[i]);
        WEIR_FAIL_IF(!node || node->graph != stream->capture->graph, CUDA_ERROR_INVALID_VALUE);
    }
    if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES) {
        stream->capture_nodes.n = 0;
    }
    for (size_t i = 0; i < n_nodes; i++) {
        WEIR_FAIL_IF(!weir_soft_nodes_add(&stream->capture_nodes, (struct weir_soft_node *)nodes[i],
                                          edges ? &edges[i] : NULL),
                     CUDA_ERROR_OUT_OF_MEMORY);
    }
    return CUDA_SUCCESS;
}

bool weir_soft_capture_uses(const struct weir_soft_graph *graph)
{
    return WEIR_LINKED(c, captures, c->graph == graph) != NULL;
}
