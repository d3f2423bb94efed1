/* Conditional graph nodes: their handles, and the graphs that are their bodies. */
#include "host_backend/worker/ops/ops.h"
#include <stdlib.h>
#include <string.h>

#define BODIES_MAX     64
#define CONDITIONS_MAX 4096

CUresult weir_host_graph_condition(struct weir_session *s,
                                   const struct weir_op_graph_condition_in *in,
                                   struct weir_op_graph_condition_out *out)
{
    struct weir_object *graph = weir_host_object_get(s, WEIR_KIND_GRAPH, in->g);
    struct weir_condition *more;
    CUgraphConditionalHandle handle;
    uint32_t at = 0;

    if (graph == NULL) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    /* In the place of one whose graph is gone, or in a new one. */
    while (at < s->n_conditions && s->conditions[at].graph != NULL) {
        at++;
    }
    more =
        at == CONDITIONS_MAX ? NULL : realloc(s->conditions, (s->n_conditions + 1) * sizeof *more);
    if (more == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    s->conditions = more;
    WEIR_TRY(s->driver->cuGraphConditionalHandleCreate(&handle, graph->native, weir_ops_context(s),
                                                       in->default_value, in->flags));
    s->conditions[at] = (struct weir_condition){handle, graph};
    s->n_conditions += at == s->n_conditions;
    out->handle = handle;
    return CUDA_SUCCESS;
}

/* One that this session made, of a graph that is still there. */
static bool condition_good(const struct weir_session *s, uint64_t handle)
{
    for (uint32_t i = 0; i < s->n_conditions; i++) {
        if (s->conditions[i].native == handle && s->conditions[i].graph != NULL) {
            return true;
        }
    }
    return false;
}

CUresult weir_host_graph_add_conditional(struct weir_session *s,
                                         const struct weir_op_graph_add_conditional_in *in,
                                         struct weir_op_graph_add_conditional_out *out)
{
    struct weir_object *node_object, *body;
    CUgraphNodeParams params;
    struct weir_ops_place p;
    CUgraphNode node;

    if (in->size == 0 || in->size > BODIES_MAX || !condition_good(s, in->handle)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    WEIR_TRY(weir_ops_node_begin(s, in->g, in->n, in->dependencies, in->n_dependencies, &p));
    uint64_t *bodies = weir_session_alloc(s, BODIES_MAX * sizeof *bodies);
    if (bodies == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memset(&params, 0, sizeof params);
    params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    params.conditional.handle = in->handle;
    params.conditional.type = (CUgraphConditionalNodeType)in->type;
    params.conditional.size = in->size;
    params.conditional.ctx = weir_ops_context(s);
    WEIR_TRY(weir_driver_has(s->driver, cuGraphAddNode_v2)
                 ? s->driver->cuGraphAddNode_v2(&node, p.graph, p.nodes, NULL, in->n_dependencies,
                                                &params)
                 : s->driver->cuGraphAddNode(&node, p.graph, p.nodes, in->n_dependencies, &params));
    WEIR_TRY(weir_session_put(s, WEIR_KIND_NODE, in->n, node));
    node_object = weir_host_object_get(s, WEIR_KIND_NODE, in->n);
    for (uint32_t i = 0; i < in->size; i++) {
        WEIR_TRY(
            weir_session_name(s, WEIR_KIND_GRAPH, params.conditional.phGraph_out[i], &bodies[i]));
        body = weir_host_object_get(s, WEIR_KIND_GRAPH, bodies[i]);
        if (body != NULL && body->borrowed) {
            body->owner = node_object; /* it dies with its node */
        }
    }
    out->graphs = bodies;
    out->n_graphs = in->size;
    return CUDA_SUCCESS;
}
