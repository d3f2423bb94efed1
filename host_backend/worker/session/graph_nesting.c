#include "host_backend/worker/session/graph_nesting.h"

#include "host_backend/worker/session/objects.h"
#include "host_backend/worker/session/session.h"

/* All of a graph's nodes, those of its children too. */
static uint64_t total(struct weir_session *session, const struct weir_object *graph)
{
    size_t own = 0;

    (void)session->driver->cuGraphGetNodes(graph->native, NULL, &own);
    return (uint64_t)own + graph->within;
}

/* How many graphs lie around it. */
static uint32_t depth_of(const struct weir_object *graph)
{
    uint32_t n = 0;

    for (const struct weir_object *o = graph->owner; o != NULL; o = o->owner) {
        n += o->kind == WEIR_KIND_NODE;
    }
    return n;
}

static const struct weir_object *outermost(const struct weir_object *o)
{
    while (o->owner != NULL) {
        o = o->owner;
    }
    return o;
}

static CUresult check(const struct weir_object *parent, uint32_t levels, uint64_t nodes)
{
    if (depth_of(parent) + levels > WEIR_GRAPH_DEPTH_MAX) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    return outermost(parent)->within + nodes <= WEIR_GRAPH_WITHIN_MAX ? CUDA_SUCCESS
                                                                      : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult weir_graph_nest_check(struct weir_session *session, const struct weir_object *parent,
                               const struct weir_object *child)
{
    for (const struct weir_object *o = parent; o != NULL; o = o->owner) {
        if (o->native == child->native) { /* one graph may have two names */
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    return check(parent, child->depth + 1u, total(session, child));
}

/* So many levels lie within a graph, at least; and in those around it. */
static void deepen(struct weir_object *graph, uint32_t levels)
{
    for (struct weir_object *o = graph; o != NULL; o = o->owner) {
        if (o->kind == WEIR_KIND_GRAPH) {
            o->depth = (uint16_t)(o->depth > levels ? o->depth : levels);
        } else {
            levels++;
        }
    }
}

void weir_graph_nested(struct weir_session *session, struct weir_object *node,
                       const struct weir_object *child)
{
    uint32_t nodes = (uint32_t)total(session, child); /* was checked */

    node->within += nodes;
    for (struct weir_object *o = node->owner; o != NULL; o = o->owner) {
        o->within += nodes;
    }
    if (node->owner != NULL) {
        deepen(node->owner, child->depth + 1u);
    }
}

void weir_graph_nest_node_gone(struct weir_object *node)
{
    for (struct weir_object *o = node->owner; o != NULL; o = o->owner) {
        o->within -= o->within < node->within ? o->within : node->within;
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

void weir_graph_nest_copy(struct weir_object *to, const struct weir_object *from)
{
    to->depth = from->depth;
    to->within = from->within;
}

void weir_graph_nest_named(struct weir_object *graph)
{
    const struct weir_object *node = graph->owner;

    if (node != NULL && node->kind == WEIR_KIND_NODE && node->owner != NULL) {
        graph->within = node->within;
        graph->depth = (uint16_t)(node->owner->depth - (node->owner->depth != 0));
    }
}

void weir_graph_nest_capture_begin(struct weir_host_stream *stream, const struct weir_object *graph)
{
    stream->capture_depth = 0;
    stream->capture_within = graph != NULL ? outermost(graph)->within : 0;
}

void weir_graph_nest_capture_end(const struct weir_host_stream *stream, struct weir_object *graph)
{
    uint32_t before = outermost(graph)->within;
    uint32_t more = stream->capture_within > before ? stream->capture_within - before : 0;

    for (struct weir_object *o = graph; o != NULL; o = o->owner) {
        o->within += more;
    }
    deepen(graph, stream->capture_depth);
}

/* Which capture it is for is not known, so it counts for each. */
CUresult weir_graph_nest_captured(struct weir_session *session, const struct weir_exec *exec)
{
    const uint64_t nodes = exec->nodes + (uint64_t)exec->o.within;

    if (exec->o.depth + 1u > WEIR_GRAPH_DEPTH_MAX) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    for (struct weir_host_ctx *ctx = weir_session_contexts(session); ctx != NULL; ctx = ctx->next) {
        for (struct weir_host_stream *s = ctx->streams; s != NULL; s = s->next) {
            if (s->capturing && s->capture_within + nodes > WEIR_GRAPH_WITHIN_MAX) {
                return CUDA_ERROR_OUT_OF_MEMORY;
            }
        }
    }
    for (struct weir_host_ctx *ctx = weir_session_contexts(session); ctx != NULL; ctx = ctx->next) {
        for (struct weir_host_stream *s = ctx->streams; s != NULL; s = s->next) {
            if (s->capturing) {
                s->capture_within += (uint32_t)nodes;
                s->capture_depth = s->capture_depth > exec->o.depth + 1u
                                       ? s->capture_depth
                                       : (uint16_t)(exec->o.depth + 1u);
            }
        }
    }
    return CUDA_SUCCESS;
}
