/* Graph nodes that wait for or write values: batches of memory operations. */
#include "guest_lib/ops/forward.h"
#include "guest_lib/register.h"
#include "proto/guest_calls.h"
#include "proto/guest_hand.h"
#include <stdlib.h>
#include <string.h>

#define MAX_DEPENDENCIES 4096
#define MAX_OPS          256

static CUresult check_ops(const CUDA_BATCH_MEM_OP_NODE_PARAMS *params)
{
    bool good =
        params && params->paramArray && params->count && params->count <= MAX_OPS && !params->flags;
    return good ? weir_register_reach_words(params->paramArray,
                                            params->count * sizeof(params->paramArray[0]))
                : CUDA_ERROR_INVALID_VALUE;
}

/* The record keeps a copy, since the program's array may be gone when it queries the node. */
static CUresult keep_ops(CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS *params)
{
    struct weir_graph_node record = {.handle = (uintptr_t)node,
                                     .type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
                                     .params = {.memops = *params}};
    size_t bytes = params->count * sizeof(params->paramArray[0]);
    record.params.memops.paramArray = malloc(bytes);
    WEIR_FAIL_IF(!record.params.memops.paramArray, CUDA_ERROR_OUT_OF_MEMORY);
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
    if (!phGraphNode || (numDependencies && !dependencies) || numDependencies > MAX_DEPENDENCIES) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    WEIR_TRY(check_ops(nodeParams));
    struct weir_op_graph_add_memops_in in = {
        .g = (uintptr_t)hGraph,
        .dependencies = (const uint64_t *)(const void *)dependencies,
        .n_dependencies = (uint32_t)numDependencies,
        .ops = nodeParams->paramArray,
        .n_ops = nodeParams->count,
    };
    WEIR_TRY(weir_guest_reserve(WEIR_KIND_NODE, &in.n));
    CUresult result = weir_call_graph_add_memops(weir_guest_channel(), &in, NULL);
    if (result != CUDA_SUCCESS) {
        weir_guest_drop(WEIR_KIND_NODE, in.n);
        return result;
    }
    weir_graph_node_own(in.g, in.n);
    *phGraphNode = (CUgraphNode)(uintptr_t)in.n;
    return keep_ops(*phGraphNode, nodeParams);
}

CUresult weir_guest_node_set_memops(uint64_t exec, CUgraphNode node,
                                    const CUDA_BATCH_MEM_OP_NODE_PARAMS *params)
{
    WEIR_TRY(check_ops(params));
    const struct weir_op_graph_memops_set_in in = {
        .x = exec, .n = (uintptr_t)node, .ops = params->paramArray, .n_ops = params->count};
    CUresult result = weir_call_graph_memops_set(weir_guest_channel(), &in, NULL);
    return result == CUDA_SUCCESS && !exec ? keep_ops(node, params) : result;
}
