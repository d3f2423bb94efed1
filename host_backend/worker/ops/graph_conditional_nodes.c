/* Conditional graph nodes: their handles, and their bodies, which are graphs. */
#include "host_backend/worker/ops/ops.h"
#include "host_backend/worker/session/conditions.h"
#include "host_backend/worker/session/graph_nesting.h"
#include <string.h>

#define BODIES_MAX 64

CUresult weir_host_graph_condition(struct weir_session *s,
                                   const struct weir_op_graph_condition_in *in,
                                   struct weir_op_graph_condition_out *out)
{
    struct weir_object *graph = weir_host_object_get(s, WEIR_KIND_GRAPH, in->g);
    CUgraphConditionalHandle handle;

    WEIR_FAIL_IF(!graph, CUDA_ERROR_INVALID_HANDLE);
    WEIR_TRY(weir_condition_create(s, graph, weir_ops_context(s), in->default_value, in->flags,
                                   &handle));
    out->handle = handle;
    return CUDA_SUCCESS;
}

CUresult weir_host_graph_add_conditional(struct weir_session *s,
                                         const struct weir_op_graph_add_conditional_in *in,
                                         struct weir_op_graph_add_conditional_out *out)
{
    struct weir_object *node_object, *body;
    CUgraphNodeParams params;
    struct weir_ops_place p;
    CUgraphNode node;

    WEIR_FAIL_IF(in->size == 0 || in->size > BODIES_MAX || !weir_condition_good(s, in->handle),
                 CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_ops_node_begin(s, in->g, in->n, in->dependencies, in->n_dependencies, &p));
    WEIR_TRY(weir_graph_nest_body_check(weir_host_object_get(s, WEIR_KIND_GRAPH, in->g)));
    uint64_t *bodies = weir_session_alloc(s, BODIES_MAX * sizeof *bodies);
    WEIR_FAIL_IF(!bodies, CUDA_ERROR_OUT_OF_MEMORY);
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
    weir_graph_nested_body(weir_host_object_get(s, WEIR_KIND_GRAPH, in->g));
    node_object = weir_host_object_get(s, WEIR_KIND_NODE, in->n);
    for (uint32_t i = 0; i < in->size; i++) {
        WEIR_TRY(
            weir_session_name(s, WEIR_KIND_GRAPH, params.conditional.phGraph_out[i], &bodies[i]));
        body = weir_host_object_get(s, WEIR_KIND_GRAPH, bodies[i]);
        if (body && body->borrowed) {
            body->owner = node_object; /* the body dies with its node */
        }
    }
    out->graphs = bodies;
    out->n_graphs = in->size;
    return CUDA_SUCCESS;
}
