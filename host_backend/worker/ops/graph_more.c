/* Nodes that programs make rarely: batches of memory operations, and conditional ones. */
#include "host_backend/worker/ops/ops.h"

#include <stdlib.h>
#include <string.h>

#define BODIES_MAX     64
#define CONDITIONS_MAX 4096

/* ---------------------------------------------------------------- memory operations */

/* Each one in the driver's struct, its address checked; what is waited for is remembered, so that
 * the session's end can write it. */
static CUresult read_memops(struct weir_session *s, const CUstreamBatchMemOpParams *ops, uint32_t n,
                            CUDA_BATCH_MEM_OP_NODE_PARAMS *ret)
{
    CUstreamBatchMemOpParams *copy = weir_session_alloc(s, (n + 1) * sizeof *copy);

    if (copy == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    for (uint32_t i = 0; i < n; i++) {
        bool wide = ops[i].operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 ||
                    ops[i].operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
        bool wait = ops[i].operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 ||
                    ops[i].operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;

        if (!wide && !wait && ops[i].operation != CU_STREAM_MEM_OP_WRITE_VALUE_32) {
            return CUDA_ERROR_NOT_SUPPORTED;
        }
        copy[i] = ops[i];
        copy[i].waitValue.alias = 0;
        if (copy[i].waitValue.address % (wide ? 8 : 4) != 0) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        WEIR_TRY(wait ? weir_session_check_dptr(s, copy[i].waitValue.address, wide ? 8 : 4)
                      : weir_session_check_write(s, copy[i].waitValue.address, wide ? 8 : 4));
        if (wait) {
            s->awaited[s->n_awaited++ % WEIR_AWAITED_MAX] = (struct weir_awaited_value){
                copy[i].waitValue.address,
                wide ? copy[i].waitValue.value64 : copy[i].waitValue.value, wide};
        }
    }
    memset(ret, 0, sizeof *ret);
    ret->ctx = weir_ops_context(s);
    ret->count = n;
    ret->paramArray = copy;
    return CUDA_SUCCESS;
}

CUresult weir_host_graph_add_memops(struct weir_session *s,
                                    const struct weir_op_graph_add_memops_in *in,
                                    struct weir_op_graph_add_memops_out *out)
{
    CUDA_BATCH_MEM_OP_NODE_PARAMS params;
    struct weir_ops_place p;
    CUgraphNode node;

    (void)out;
    WEIR_TRY(weir_ops_node_begin(s, in->g, in->n, in->dependencies, in->n_dependencies, &p));
    WEIR_TRY(read_memops(s, in->ops, in->n_ops, &params));
    WEIR_TRY(
        s->driver->cuGraphAddBatchMemOpNode(&node, p.graph, p.nodes, in->n_dependencies, &params));
    return weir_session_put(s, WEIR_KIND_NODE, in->n, node);
}

CUresult weir_host_graph_memops_set(struct weir_session *s,
                                    const struct weir_op_graph_memops_set_in *in,
                                    struct weir_op_graph_memops_set_out *out)
{
    CUDA_BATCH_MEM_OP_NODE_PARAMS params;
    CUgraphExec exec = NULL;
    CUgraphNode node;

    (void)out;
    if (in->x != 0) {
        WEIR_TRY(weir_session_use(s, WEIR_KIND_EXEC, in->x, (void **)&exec));
    }
    WEIR_TRY(weir_session_use(s, WEIR_KIND_NODE, in->n, (void **)&node));
    WEIR_TRY(read_memops(s, in->ops, in->n_ops, &params));
    return exec != NULL ? s->driver->cuGraphExecBatchMemOpNodeSetParams(exec, node, &params)
                        : s->driver->cuGraphBatchMemOpNodeSetParams(node, &params);
}

/* ---------------------------------------------------------------- conditions */

CUresult weir_host_graph_condition(struct weir_session *s,
                                   const struct weir_op_graph_condition_in *in,
                                   struct weir_op_graph_condition_out *out)
{
    struct weir_object *graph = weir_object_get(s, WEIR_KIND_GRAPH, in->g);
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
    node_object = weir_object_get(s, WEIR_KIND_NODE, in->n);
    for (uint32_t i = 0; i < in->size; i++) {
        WEIR_TRY(
            weir_session_name(s, WEIR_KIND_GRAPH, params.conditional.phGraph_out[i], &bodies[i]));
        body = weir_object_get(s, WEIR_KIND_GRAPH, bodies[i]);
        if (body != NULL && body->borrowed) {
            body->owner = node_object; /* it dies with its node */
        }
    }
    out->graphs = bodies;
    out->n_graphs = in->size;
    return CUDA_SUCCESS;
}
