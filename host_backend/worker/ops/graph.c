/* Capture, instantiation and launch of graphs. */
#include "host_backend/worker/device/device_idle.h"
#include "host_backend/worker/memory/managed.h"
#include "host_backend/worker/ops/graph_names.h"
#include "host_backend/worker/ops/graph_parts.h"
#include "host_backend/worker/ops/graph_pieces.h"
#include "host_backend/worker/ops/graph_priority.h"
#include "host_backend/worker/ops/graph_probe.h"
#include "host_backend/worker/ops/ops.h"
#include "host_backend/worker/profile/profile.h"
#include "host_backend/worker/session/capture.h"
#include "host_backend/worker/session/graph_nesting.h"
#include "host_backend/worker/submit/submit.h"
#include "host_backend/worker/twins/forms.h"

#include <string.h>

/* Convert an array of handles to the driver's nodes; the memory belongs to the operation. */
static CUresult nodes_of(struct weir_session *s, const uint64_t *handles, uint32_t n,
                         CUgraphNode **ret_nodes)
{
    CUgraphNode *nodes = weir_session_alloc(s, (n + 1) * sizeof *nodes);

    WEIR_FAIL_IF(!nodes, CUDA_ERROR_OUT_OF_MEMORY);
    for (uint32_t i = 0; i < n; i++) {
        WEIR_TRY(weir_session_use(s, WEIR_KIND_NODE, handles[i], (void **)&nodes[i]));
    }
    *ret_nodes = nodes;
    return CUDA_SUCCESS;
}

static CUresult edges_of(const CUgraphEdgeData *edges, uint32_t n, uint32_t n_nodes,
                         const CUgraphEdgeData **ret_edges)
{
    *ret_edges = n != 0 ? edges : NULL;
    return n == 0 || n == n_nodes ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult weir_host_capture_begin(struct weir_session *s, const struct weir_op_capture_begin_in *in,
                                 struct weir_op_capture_begin_out *out)
{
    struct weir_host_stream *stream = weir_ops_stream(s, in->s);
    struct weir_object *graph = NULL;
    const CUgraphEdgeData *edges;
    struct weir_capture c;
    CUgraphNode *nodes;
    CUresult result;

    WEIR_FAIL_IF(!stream, CUDA_ERROR_INVALID_HANDLE);
    WEIR_FAIL_IF(stream->legacy, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    WEIR_FAIL_IF(in->mode > CU_STREAM_CAPTURE_MODE_RELAXED, CUDA_ERROR_INVALID_VALUE);
    WEIR_FAIL_IF(stream->capturing, CUDA_ERROR_ILLEGAL_STATE);
    weir_admission_stream_captures(s, stream);
    /* The guest library applies the mode to the guest's threads. In the worker it would apply to
     * other sessions' calls. */
    if (in->g != 0) {
        graph = weir_host_object_get(s, WEIR_KIND_GRAPH, in->g);
        WEIR_FAIL_IF(!graph, CUDA_ERROR_INVALID_HANDLE);
        WEIR_TRY(nodes_of(s, in->dependencies, in->n_dependencies, &nodes));
        WEIR_TRY(edges_of(in->edges, in->n_edges, in->n_dependencies, &edges));
        result = s->driver->cuStreamBeginCaptureToGraph(
            stream->o.native, graph->native, in->n_dependencies != 0 ? nodes : NULL, edges,
            in->n_dependencies, CU_STREAM_CAPTURE_MODE_RELAXED);
    } else {
        result =
            s->driver->cuStreamBeginCapture_v2(stream->o.native, CU_STREAM_CAPTURE_MODE_RELAXED);
    }
    if (result == CUDA_SUCCESS) {
        weir_session_capture_begin(s, stream);
        stream->capture_graph = graph ? graph->handle : 0;
        stream->capture_given = graph != NULL;
        weir_graph_nest_capture_begin(s, stream, graph);
        out->id = weir_capture_read(s, stream, &c) == CUDA_SUCCESS ? c.id : 0;
    }
    return result;
}

struct adoption {
    const struct weir_object *from;
    struct weir_object *to;
};

static void adopt(weir_handle handle, void *object, void *user)
{
    struct adoption *a = user;
    struct weir_object *o = object;

    (void)handle;
    if (o->owner == a->from) {
        o->owner = a->to;
    }
}

/* Give the captured graph the guest's name. A name that capture_info gave stays valid as an
 * alias. */
static CUresult name_captured(struct weir_session *s, struct weir_host_stream *stream,
                              CUgraph native, uint64_t handle)
{
    struct weir_object *known = weir_host_object_find(s, WEIR_KIND_GRAPH, native);
    struct weir_object *o;

    if (known && known->handle == handle) { /* the guest has already got it under this handle */
        known->borrowed = false;
        weir_graph_nest_capture_end(s, stream, known);
        return CUDA_SUCCESS;
    }
    if (known) {
        weir_host_object_hide(s, known);
    }
    CUresult result =
        weir_host_object_create(s, WEIR_KIND_GRAPH, sizeof *o, handle, native, NULL, &o);
    if (result != CUDA_SUCCESS) {
        if (known) {
            weir_host_object_forget(s, known);
        }
        (void)s->driver->cuGraphDestroy(native);
        return result;
    }
    if (known) {
        struct adoption a = {known, o};

        weir_graph_nest_copy(s, o, known);
        weir_host_objects_visit(s, WEIR_KIND_NODE, adopt, &a);
        weir_host_objects_visit(s, WEIR_KIND_GRAPH, adopt, &a);
        known->owner = o;
        known->borrowed = true;
    }
    weir_graph_nest_capture_end(s, stream, o);
    return CUDA_SUCCESS;
}

static CUresult end_capture(struct weir_session *s, struct weir_host_stream *stream,
                            uint64_t handle)
{
    CUgraph native = NULL;

    CUresult result = s->driver->cuStreamEndCapture(stream->o.native, &native);
    weir_session_capture_end(s, stream);
    struct weir_object *graph = weir_host_object_get(s, WEIR_KIND_GRAPH, stream->capture_graph);
    stream->capture_graph = 0;
    if (graph && stream->capture_given) {
        weir_graph_nest_capture_end(s, stream, graph);
    }
    if (result == CUDA_SUCCESS && stream->capture_given) { /* the graph has its name already */
        return graph && graph->handle == handle ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
    }
    if (result == CUDA_SUCCESS && native) {
        return name_captured(s, stream, native, handle);
    }
    if (graph && !stream->capture_given) {
        weir_host_object_forget(s, graph); /* the driver has destroyed the graph and its nodes */
    }
    return result == CUDA_SUCCESS ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : result;
}

CUresult weir_host_capture_end(struct weir_session *s, const struct weir_op_capture_end_in *in)
{
    struct weir_host_stream *stream = weir_ops_stream(s, in->s);
    CUgraph none = NULL;

    WEIR_FAIL_IF(!stream, CUDA_ERROR_INVALID_HANDLE);
    if (!stream->capturing) {
        return weir_host_stream_capturing(s, stream)
                   ? s->driver->cuStreamEndCapture(stream->o.native, &none)
                   : CUDA_ERROR_ILLEGAL_STATE;
    }
    CUresult result = end_capture(s, stream, in->g);
    weir_ops_streams_sweep(s);
    return result;
}

/* If a stream of the context began the capture of this graph, give the stream the graph's name. A
 * stream that only joined a capture cannot end it. */
static void name_of_its_own(struct weir_session *s, const struct weir_host_ctx *ctx, CUgraph graph,
                            uint64_t name)
{
    CUgraph its;

    for (struct weir_host_stream *origin = ctx->streams; origin; origin = origin->next) {
        if (origin->capturing && origin->capture_graph == 0 &&
            weir_capture_graph(s, origin, &its) == CUDA_SUCCESS && its == graph) {
            origin->capture_graph = name;
            weir_graph_nest_capture_end(s, origin, weir_host_object_get(s, WEIR_KIND_GRAPH, name));
        }
    }
}

/* Name the graph under capture, and the nodes that the next node will depend on. */
static CUresult name_capture(struct weir_session *s, CUgraph graph, const CUgraphNode *nodes,
                             size_t n, struct weir_op_capture_info_out *out)
{
    WEIR_TRY(weir_session_name(s, WEIR_KIND_GRAPH, graph, &out->graph));
    for (struct weir_host_ctx *ctx = weir_session_contexts(s); ctx; ctx = ctx->next) {
        name_of_its_own(s, ctx, graph, out->graph);
    }
    uint64_t *names = weir_session_alloc(s, (n + 1) * sizeof *names);
    WEIR_FAIL_IF(!names || n > 4096, CUDA_ERROR_OUT_OF_MEMORY);
    s->op.first = weir_host_object_get(s, WEIR_KIND_GRAPH, out->graph);
    for (size_t i = 0; i < n; i++) {
        WEIR_TRY(weir_session_name(s, WEIR_KIND_NODE, nodes[i], &names[i]));
    }
    out->dependencies = names;
    out->n_dependencies = (uint32_t)n;
    return CUDA_SUCCESS;
}

CUresult weir_host_capture_info(struct weir_session *s, const struct weir_op_capture_info_in *in,
                                struct weir_op_capture_info_out *out)
{
    struct weir_host_stream *stream = weir_ops_stream(s, in->s);
    struct weir_capture c;

    WEIR_FAIL_IF(!stream, CUDA_ERROR_INVALID_HANDLE);
    WEIR_TRY(weir_order_refuse(s, stream, false));
    WEIR_TRY(weir_capture_read(s, stream, &c));
    out->status = (uint32_t)c.status;
    if (c.status != CU_STREAM_CAPTURE_STATUS_ACTIVE) {
        return CUDA_SUCCESS;
    }
    out->id = c.id;
    if (c.edges && c.n <= 4096) {
        CUgraphEdgeData *kept = weir_session_alloc(s, (c.n + 1) * sizeof *kept);

        WEIR_FAIL_IF(!kept, CUDA_ERROR_OUT_OF_MEMORY);
        memcpy(kept, c.edges, c.n * sizeof *kept); /* the driver reuses its array */
        out->edges = kept;
        out->n_edges = (uint32_t)c.n;
    }
    return name_capture(s, c.graph, c.nodes, c.n, out);
}

CUresult weir_host_capture_update(struct weir_session *s,
                                  const struct weir_op_capture_update_in *in)
{
    struct weir_host_stream *stream = weir_ops_stream(s, in->s);
    const CUgraphEdgeData *edges;
    CUgraphNode *nodes;

    WEIR_FAIL_IF(!stream, CUDA_ERROR_INVALID_HANDLE);
    WEIR_TRY(nodes_of(s, in->dependencies, in->n_dependencies, &nodes));
    WEIR_TRY(edges_of(in->edges, in->n_edges, in->n_dependencies, &edges));
    return weir_driver_has(s->driver, cuStreamUpdateCaptureDependencies_v2)
               ? s->driver->cuStreamUpdateCaptureDependencies_v2(stream->o.native, nodes, edges,
                                                                 in->n_dependencies, in->flags)
               : s->driver->cuStreamUpdateCaptureDependencies(stream->o.native, nodes,
                                                              in->n_dependencies, in->flags);
}

/* ---------------------------------------------------------------- executable graphs */

CUresult weir_host_graph_instantiate(struct weir_session *s,
                                     const struct weir_op_graph_instantiate_in *in,
                                     struct weir_op_graph_instantiate_out *out)
{
    const uint64_t known = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH |
                           CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
                           CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
    struct weir_object *graph = weir_host_object_get(s, WEIR_KIND_GRAPH, in->g), *o;
    CUDA_GRAPH_INSTANTIATE_PARAMS params;
    struct weir_exec_priority priority;
    CUgraphExec native = NULL;
    size_t nodes = 0;

    WEIR_FAIL_IF(!graph, CUDA_ERROR_INVALID_HANDLE);
    WEIR_FAIL_IF((in->flags & ~known) != 0,
                 CUDA_ERROR_NOT_SUPPORTED); /* a device launch would bypass the session */
    WEIR_TRY(weir_session_free_name(s, WEIR_KIND_EXEC, in->x));
    memset(&params, 0, sizeof params);
    params.flags = weir_graph_priority_flags(s, graph->native, in->flags, &priority);
    params.flags &= ~(uint64_t)CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD; /* at the launch */
    CUresult result = s->driver->cuGraphInstantiateWithParams(&native, graph->native, &params);
    out->result = (uint32_t)params.result_out;
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = weir_host_object_create(s, WEIR_KIND_EXEC, sizeof(struct weir_exec), in->x, native,
                                     NULL, &o);
    if (result != CUDA_SUCCESS) {
        (void)s->driver->cuGraphExecDestroy(native);
        return result;
    }
    weir_graph_nest_copy(s, o, graph);
    (void)s->driver->cuGraphGetNodes(graph->native, NULL, &nodes);
    ((struct weir_exec *)o)->nodes = (uint32_t)nodes;
    ((struct weir_exec *)o)->sms = weir_ops_graph_sms(s, graph->native);
    ((struct weir_exec *)o)->priority = priority;
    weir_graph_names_read(s, (struct weir_exec *)o, graph->native);
    weir_graph_pieces_keep(s, (struct weir_exec *)o, graph->native, params.flags);
    return CUDA_SUCCESS;
}

CUresult weir_host_graph_exec_flags(struct weir_session *s,
                                    const struct weir_op_graph_exec_flags_in *in,
                                    struct weir_op_graph_exec_flags_out *out)
{
    const struct weir_exec *exec = weir_host_object_get(s, WEIR_KIND_EXEC, in->x);
    cuuint64_t flags = 0;

    WEIR_FAIL_IF(!exec, CUDA_ERROR_INVALID_HANDLE);
    WEIR_TRY(s->driver->cuGraphExecGetFlags(exec->o.native, &flags));
    /* NVIDIA's driver does not report this flag. */
    out->flags = flags & ~(cuuint64_t)CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
    return CUDA_SUCCESS;
}

/* The guest's name of a node, or 0: none. */
static uint64_t known_node(const struct weir_session *s, CUgraphNode node)
{
    const struct weir_object *o = node ? weir_host_object_find(s, WEIR_KIND_NODE, node) : NULL;

    return o ? o->handle : 0;
}

CUresult weir_host_graph_exec_update(struct weir_session *s,
                                     const struct weir_op_graph_exec_update_in *in,
                                     struct weir_op_graph_exec_update_out *out)
{
    struct weir_object *exec = weir_host_object_get(s, WEIR_KIND_EXEC, in->x);
    struct weir_object *graph = weir_host_object_get(s, WEIR_KIND_GRAPH, in->g);
    CUgraphExecUpdateResultInfo info;

    WEIR_FAIL_IF(!exec || !graph, CUDA_ERROR_INVALID_HANDLE);
    weir_exec_changes(s->driver, (struct weir_exec *)exec);
    memset(&info, 0, sizeof info);
    CUresult result = s->driver->cuGraphExecUpdate_v2(exec->native, graph->native, &info);
    if (result == CUDA_SUCCESS) {
        weir_graph_priority_updated(s, (struct weir_exec *)exec, graph->native);
        weir_ops_graph_sms_updated(s, (struct weir_exec *)exec, graph->native);
        weir_graph_names_read(s, (struct weir_exec *)exec, graph->native);
    }
    /* Return a refusal as an output, so that its reason reaches the guest. */
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE) {
        return result;
    }
    out->result = result == CUDA_SUCCESS                        ? CU_GRAPH_EXEC_UPDATE_SUCCESS
                  : info.result == CU_GRAPH_EXEC_UPDATE_SUCCESS ? CU_GRAPH_EXEC_UPDATE_ERROR
                                                                : (uint32_t)info.result;
    out->error_node = known_node(s, info.errorNode);
    out->error_from_node = known_node(s, info.errorFromNode);
    return CUDA_SUCCESS;
}

struct graph_launch {
    struct weir_exec *exec;
    struct weir_part *part; /* the part to which it is confined; NULL: none */
};

static CUresult call_graph(struct weir_session *s, CUstream at, const void *user)
{
    const struct graph_launch *launch = user;

    launch->exec->is_divided = launch->part != NULL;
    if (weir_graph_parts_launch(s, launch->exec, launch->part, at)) {
        return CUDA_SUCCESS;
    }
    weir_profile_graph_given(s);
    return weir_graph_probe_launch(s, launch->exec, at);
}

CUresult weir_host_graph_launch(struct weir_session *s, const struct weir_op_graph_launch_in *in)
{
    struct weir_exec *exec = weir_host_object_get(s, WEIR_KIND_EXEC, in->x);
    struct weir_host_stream *stream = weir_ops_stream(s, in->s);
    struct graph_launch launch = {.exec = exec};
    struct weir_submission what = {
        .work = {.class = WEIR_SCHED_GRAPH, .key = s->id << 40 ^ in->x},
        .may_print = s->prints != NULL, /* it is unknown whether one of its kernels prints */
        .call = call_graph,
        .user = &launch};

    WEIR_FAIL_IF(!exec || !stream, CUDA_ERROR_INVALID_HANDLE);
    weir_forms_note(s, WEIR_FORMS_LAUNCHED_GRAPHS);
    what.work.flags = weir_graph_priority_work_flags(exec);
    if (weir_host_stream_capturing(s, stream)) {
        WEIR_TRY(weir_graph_nest_captured(s, exec));
    } else {
        bool in_part = weir_graph_parts_possible(s, exec, stream);
        bool pieces = !(in_part && exec->is_divided) && weir_graph_pieces_wanted(s, exec, stream);

        if (in_part) {
            what.work.flags |= WEIR_SCHED_PARTABLE;
            what.ret_part = &launch.part;
        }
        weir_managed_launches(s, exec->names.pieces, exec->names.n * sizeof *exec->names.pieces);
        weir_managed_reached(s, 0, 0);
        WEIR_TRY(weir_graph_pieces_follow(s, exec, stream));
        if (pieces) {
            return weir_graph_pieces_launch(s, exec, stream);
        }
    }
    what.work.hint = &exec->hint;
    what.work.blocks = exec->sms;
    what.works = exec->works;
    what.work.blocks_per_sm = exec->sms != 0;
    what.priority = weir_graph_priority_asked(exec);
    return weir_submit(s, stream, &what);
}
