#include "host_backend/worker/session/graph_nesting.h"

#include "host_backend/worker/session/objects.h"
#include "host_backend/worker/state/session.h"

/* Find the name with the counts: a graph that was under capture may have two names, of which one
 * refers to the other. */
static const struct weir_object *whole(const struct weir_object *graph)
{
    const struct weir_object *owner = graph->owner;

    return owner && owner->kind == WEIR_KIND_GRAPH && owner->native == graph->native ? owner
                                                                                     : graph;
}

static uint64_t own_nodes(struct weir_session *session, const struct weir_object *graph)
{
    size_t own = 0;

    (void)session->driver->cuGraphGetNodes(graph->native, NULL, &own);
    return own;
}

/* Count all of a graph's nodes, including those of its children. */
static uint64_t total(struct weir_session *session, const struct weir_object *graph)
{
    return own_nodes(session, graph) + whole(graph)->within;
}

/* Count further nodes within a graph or node, and within all graphs around it. */
static void grow(struct weir_object *object, uint64_t nodes)
{
    for (struct weir_object *o = object; o; o = o->owner) {
        o->within = (uint32_t)(nodes < UINT32_MAX - o->within ? o->within + nodes : UINT32_MAX);
    }
}

static void shrink(struct weir_object *object, uint32_t nodes)
{
    for (struct weir_object *o = object; o; o = o->owner) {
        o->within -= WEIR_MIN(o->within, nodes);
    }
}

/* How many graphs contain it. */
static uint32_t depth_of(const struct weir_object *graph)
{
    uint32_t n = 0;

    for (const struct weir_object *o = graph->owner; o; o = o->owner) {
        n += o->kind == WEIR_KIND_NODE;
    }
    return n;
}

static const struct weir_object *outermost(const struct weir_object *o)
{
    while (o->owner) {
        o = o->owner;
    }
    return o;
}

static CUresult check(const struct weir_object *parent, uint32_t levels, uint64_t nodes)
{
    WEIR_FAIL_IF(depth_of(parent) + levels > WEIR_GRAPH_DEPTH_MAX, CUDA_ERROR_NOT_SUPPORTED);
    return outermost(parent)->within + nodes <= WEIR_GRAPH_WITHIN_MAX ? CUDA_SUCCESS
                                                                      : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Count what was captured so far into graphs of the guest, before one of them is copied. */
static void count_captured(struct weir_session *session)
{
    struct weir_host_ctx *ctx = session->n_captures != 0 ? weir_session_contexts(session) : NULL;

    for (; ctx; ctx = ctx->next) {
        for (struct weir_host_stream *s = ctx->streams; s; s = s->next) {
            struct weir_object *graph =
                s->capturing && s->capture_given
                    ? weir_host_object_get(session, WEIR_KIND_GRAPH, s->capture_graph)
                    : NULL;

            if (graph) {
                weir_graph_nest_capture_end(session, s, graph);
            }
        }
    }
}

CUresult weir_graph_nest_check(struct weir_session *session, const struct weir_object *parent,
                               const struct weir_object *child)
{
    for (const struct weir_object *o = parent; o; o = o->owner) {
        if (o->native == child->native) { /* one graph may have two names */
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    count_captured(session);
    return check(parent, whole(child)->depth + 1u, total(session, child));
}

/* Note that at least this many levels lie within a graph, and update the graphs around it. */
static void deepen(struct weir_object *graph, uint32_t levels)
{
    for (struct weir_object *o = graph; o; o = o->owner) {
        if (o->kind == WEIR_KIND_GRAPH) {
            o->depth = (uint16_t)(WEIR_MAX(o->depth, levels));
        } else {
            levels++;
        }
    }
}

void weir_graph_nested(struct weir_session *session, struct weir_object *node,
                       const struct weir_object *child)
{
    grow(node, total(session, child));
    if (node->owner) {
        deepen(node->owner, whole(child)->depth + 1u);
    }
}

/* Count a new node in the graphs around its own; the driver counts the graph's own nodes. */
void weir_graph_nest_node_made(struct weir_object *node)
{
    if (node->owner) {
        grow(whole(node->owner)->owner, 1);
    }
}

void weir_graph_nest_node_gone(struct weir_object *node)
{
    shrink(node->owner, node->within);
    if (node->owner && !node->borrowed) { /* a node that was looked up may not be counted */
        shrink(whole(node->owner)->owner, 1);
    }
}

CUresult weir_graph_nest_body_check(const struct weir_object *parent)
{
    return check(parent, 1, 0);
}

void weir_graph_nested_body(struct weir_object *parent)
{
    deepen(parent, 1);
}

void weir_graph_nest_copy(struct weir_session *session, struct weir_object *to,
                          const struct weir_object *from)
{
    count_captured(session);
    to->depth = whole(from)->depth;
    to->within = whole(from)->within;
}

void weir_graph_nest_named(struct weir_object *graph)
{
    const struct weir_object *node = graph->owner;

    if (node && node->kind == WEIR_KIND_NODE && node->owner) {
        /* For a node that was looked up, as in a clone, only the count of the whole graph is
         * known. */
        graph->within = node->borrowed ? node->owner->within : node->within;
        graph->depth = (uint16_t)(node->owner->depth - (node->owner->depth != 0));
    }
}

void weir_graph_nest_capture_begin(struct weir_session *session, struct weir_host_stream *stream,
                                   const struct weir_object *graph)
{
    stream->capture_depth = 0;
    stream->capture_within = 0;
    stream->capture_nodes = graph ? (uint32_t)own_nodes(session, graph) : 0;
}

void weir_graph_nest_capture_end(struct weir_session *session, struct weir_host_stream *stream,
                                 struct weir_object *graph)
{
    uint64_t own = stream->capture_given ? own_nodes(session, graph) : 0;

    grow(graph, stream->capture_within);
    deepen(graph, stream->capture_depth);
    stream->capture_depth = 0;
    stream->capture_within = 0;
    if (own > stream->capture_nodes) { /* nodes that were not captured are counted twice here */
        grow(whole(graph)->owner, own - stream->capture_nodes);
        stream->capture_nodes = (uint32_t)own;
    }
}

/* May the launched graph become a child of the graph under capture? */
static CUresult check_capture(struct weir_session *session, const struct weir_host_stream *stream,
                              uint32_t levels, uint64_t nodes)
{
    const struct weir_object *graph =
        weir_host_object_get(session, WEIR_KIND_GRAPH, stream->capture_graph);

    if (graph) {
        return check(graph, levels, nodes);
    }
    return stream->capture_within + nodes <= WEIR_GRAPH_WITHIN_MAX ? CUDA_SUCCESS
                                                                   : CUDA_ERROR_OUT_OF_MEMORY;
}

static void add_to_capture(struct weir_session *session, struct weir_host_stream *stream,
                           uint32_t levels, uint64_t nodes)
{
    struct weir_object *graph =
        weir_host_object_get(session, WEIR_KIND_GRAPH, stream->capture_graph);

    if (graph) {
        grow(graph, nodes);
        deepen(graph, levels);
        return;
    }
    stream->capture_within += (uint32_t)nodes; /* was checked */
    stream->capture_depth = (uint16_t)(WEIR_MAX(stream->capture_depth, levels));
}

/* It is unknown for which capture the launch is, so it counts for each. */
CUresult weir_graph_nest_captured(struct weir_session *session, const struct weir_exec *exec)
{
    const uint64_t nodes = exec->nodes + (uint64_t)exec->o.within;
    const uint32_t levels = exec->o.depth + 1u;

    WEIR_FAIL_IF(levels > WEIR_GRAPH_DEPTH_MAX, CUDA_ERROR_NOT_SUPPORTED);
    for (struct weir_host_ctx *ctx = weir_session_contexts(session); ctx; ctx = ctx->next) {
        for (struct weir_host_stream *s = ctx->streams; s; s = s->next) {
            if (s->capturing) {
                WEIR_TRY(check_capture(session, s, levels, nodes));
            }
        }
    }
    for (struct weir_host_ctx *ctx = weir_session_contexts(session); ctx; ctx = ctx->next) {
        for (struct weir_host_stream *s = ctx->streams; s; s = s->next) {
            if (s->capturing) {
                add_to_capture(session, s, levels, nodes);
            }
        }
    }
    return CUDA_SUCCESS;
}
