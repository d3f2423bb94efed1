/* Batches of memory operations and conditional nodes; edges with data. */
#include "guest_lib/entry.h"
#include "guest_lib/graph.h"
#include "proto/guest_calls.h"
#include "proto/guest_hand.h"

#include <stdlib.h>
#include <string.h>

#define MAX_DEPENDENCIES 4096
#define MAX_OPS          256
#define MAX_BODIES       64

/* ---------------------------------------------------------------- memory operations */

static bool ops_good(const CUDA_BATCH_MEM_OP_NODE_PARAMS *params)
{
    return params && params->paramArray && params->count && params->count <= MAX_OPS &&
           !params->flags;
}

/* The record keeps a copy: the program's array may be gone when it asks. */
static CUresult keep_ops(CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS *params)
{
    struct weir_graph_node record = {.handle = (uintptr_t)node,
                                     .type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
                                     .params = {.memops = *params}};
    size_t bytes = params->count * sizeof(params->paramArray[0]);
    record.params.memops.paramArray = malloc(bytes);
    if (!record.params.memops.paramArray) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memcpy(record.params.memops.paramArray, params->paramArray, bytes);
    CUresult result = weir_graph_node_keep(&record);
    if (result != CUDA_SUCCESS) {
        free(record.params.memops.paramArray);
    }
    return result;
}

CUresult weir_guest_cuGraphAddBatchMemOpNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                             const CUgraphNode *dependencies,
                                             size_t numDependencies,
                                             const CUDA_BATCH_MEM_OP_NODE_PARAMS *nodeParams)
{
    if (!phGraphNode || !ops_good(nodeParams) || (numDependencies && !dependencies) ||
        numDependencies > MAX_DEPENDENCIES) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct weir_op_graph_add_memops_in in = {
        .g = (uintptr_t)hGraph,
        .dependencies = (const uint64_t *)(const void *)dependencies,
        .n_dependencies = (uint32_t)numDependencies,
        .ops = nodeParams->paramArray,
        .n_ops = nodeParams->count,
    };
    CUresult result = weir_guest_reserve(WEIR_KIND_NODE, &in.n);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = weir_call_graph_add_memops(weir_guest_channel(), &in, NULL);
    if (result != CUDA_SUCCESS) {
        weir_guest_drop(WEIR_KIND_NODE, in.n);
        return result;
    }
    *phGraphNode = (CUgraphNode)(uintptr_t)in.n;
    return keep_ops(*phGraphNode, nodeParams);
}

static CUresult set_ops(uint64_t exec, CUgraphNode node,
                        const CUDA_BATCH_MEM_OP_NODE_PARAMS *params)
{
    if (!ops_good(params)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const struct weir_op_graph_memops_set_in in = {
        .x = exec, .n = (uintptr_t)node, .ops = params->paramArray, .n_ops = params->count};
    CUresult result = weir_call_graph_memops_set(weir_guest_channel(), &in, NULL);
    return result == CUDA_SUCCESS && !exec ? keep_ops(node, params) : result;
}

CUresult weir_guest_cuGraphBatchMemOpNodeSetParams(CUgraphNode hNode,
                                                   const CUDA_BATCH_MEM_OP_NODE_PARAMS *nodeParams)
{
    return set_ops(0, hNode, nodeParams);
}

CUresult
weir_guest_cuGraphExecBatchMemOpNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                              const CUDA_BATCH_MEM_OP_NODE_PARAMS *nodeParams)
{
    return hGraphExec ? set_ops((uintptr_t)hGraphExec, hNode, nodeParams)
                      : CUDA_ERROR_INVALID_VALUE;
}

CUresult weir_guest_cuGraphBatchMemOpNodeGetParams(CUgraphNode hNode,
                                                   CUDA_BATCH_MEM_OP_NODE_PARAMS *nodeParams_out)
{
    struct weir_graph_node record;
    if (!nodeParams_out) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!weir_graph_node_find((uintptr_t)hNode, &record)) {
        return CUDA_ERROR_NOT_SUPPORTED; /* made by a capture */
    }
    if (record.type != CU_GRAPH_NODE_TYPE_BATCH_MEM_OP) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *nodeParams_out = record.params.memops;
    return CUDA_SUCCESS;
}

/* ---------------------------------------------------------------- conditions */

/* The handle is the driver's own value: kernels that set the condition get it as a parameter. */
CUresult weir_guest_cuGraphConditionalHandleCreate(CUgraphConditionalHandle *pHandle_out,
                                                   CUgraph hGraph, CUcontext ctx,
                                                   unsigned int defaultLaunchValue,
                                                   unsigned int flags)
{
    struct weir_ctx *context;
    struct weir_op_graph_condition_out out;
    const struct weir_op_graph_condition_in in = {
        .g = (uintptr_t)hGraph, .default_value = defaultLaunchValue, .flags = flags};
    if (!pHandle_out) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = weir_ctx_resolve(ctx, &context);
    if (result == CUDA_SUCCESS) {
        result = weir_call_graph_condition(weir_guest_channel(), &in, &out);
    }
    if (result == CUDA_SUCCESS) {
        *pHandle_out = out.handle;
    }
    return result;
}

CUresult weir_graph_add_conditional(CUgraphNode *ret_node, CUgraph graph,
                                    const CUgraphNode *dependencies, size_t count,
                                    CUDA_CONDITIONAL_NODE_PARAMS *params)
{
    if (!ret_node || (count && !dependencies) || count > MAX_DEPENDENCIES || !params->size ||
        params->size > MAX_BODIES) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct weir_op_graph_add_conditional_in in = {
        .g = (uintptr_t)graph,
        .dependencies = (const uint64_t *)(const void *)dependencies,
        .n_dependencies = (uint32_t)count,
        .handle = params->handle,
        .type = (uint32_t)params->type,
        .size = params->size,
    };
    struct weir_op_graph_add_conditional_out out;
    /* The program reads the bodies through this array for as long as the node lives. */
    CUgraph *bodies = calloc(params->size, sizeof(CUgraph));
    CUresult result = bodies ? weir_guest_reserve(WEIR_KIND_NODE, &in.n) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) {
        result = weir_call_graph_add_conditional(weir_guest_channel(), &in, &out);
        if (result != CUDA_SUCCESS) {
            weir_guest_drop(WEIR_KIND_NODE, in.n);
        }
    }
    for (uint32_t i = 0; result == CUDA_SUCCESS && i < params->size && i < out.n_graphs; i++) {
        uint64_t body = out.graphs[i];
        bodies[i] = (CUgraph)(uintptr_t)body;
        result = weir_guest_adopt(WEIR_KIND_GRAPH, &body, 1);
        /* Functions and copies of the body are the whole graph's: both go together. */
        result = result == CUDA_SUCCESS && weir_graph_set_of(body)
                     ? weir_graph_set_include((uintptr_t)graph, body)
                     : CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result == CUDA_SUCCESS) {
        const struct weir_graph_node record = {
            .handle = in.n, .type = CU_GRAPH_NODE_TYPE_CONDITIONAL, .params = {.bodies = bodies}};
        result = weir_graph_node_keep(&record);
    }
    if (result != CUDA_SUCCESS) {
        free(bodies);
        return result;
    }
    params->phGraph_out = bodies;
    *ret_node = (CUgraphNode)(uintptr_t)in.n;
    return CUDA_SUCCESS;
}

/* ---------------------------------------------------------------- edges with data */

static bool all_plain(const CUgraphEdgeData *edges, size_t count)
{
    static const CUgraphEdgeData plain;
    for (size_t i = 0; edges && i < count; i++) {
        if (memcmp(&edges[i], &plain, sizeof(plain)) != 0) {
            return false;
        }
    }
    return true;
}

/* A node with special edges is made without any, and gets them then. */
CUresult weir_guest_cuGraphAddNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph,
                                      const CUgraphNode *dependencies,
                                      const CUgraphEdgeData *dependencyData, size_t numDependencies,
                                      CUgraphNodeParams *nodeParams)
{
    if (all_plain(dependencyData, numDependencies)) {
        return weir_guest_cuGraphAddNode(phGraphNode, hGraph, dependencies, numDependencies,
                                         nodeParams);
    }
    if (!dependencies || numDependencies > MAX_DEPENDENCIES) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUgraphNode *to = calloc(numDependencies, sizeof(CUgraphNode));
    CUgraphNode node;
    CUresult result = to ? weir_guest_cuGraphAddNode(&node, hGraph, NULL, 0, nodeParams)
                         : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) {
        for (size_t i = 0; i < numDependencies; i++) {
            to[i] = node;
        }
        result = weir_guest_cuGraphAddDependencies_v2(hGraph, dependencies, to, dependencyData,
                                                      numDependencies);
        if (result == CUDA_SUCCESS) {
            *phGraphNode = node;
        } else {
            (void)weir_guest_cuGraphDestroyNode(node);
        }
    }
    free(to);
    return result;
}
