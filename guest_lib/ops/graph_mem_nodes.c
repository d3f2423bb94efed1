/* Allocation and free nodes. The driver sees them as empty nodes, see guest_lib/graph_mem.h. */
#include "guest_lib/graph_mem.h"
#include "guest_lib/ops/forward.h"
#include "proto/guest_calls.h"
#include "proto/guest_hand.h"

static CUresult check_alloc(const CUDA_MEM_ALLOC_NODE_PARAMS *params,
                            struct weir_guest_ctx **ret_ctx)
{
    WEIR_TRY(weir_ctx_current(ret_ctx));
    if (!params || !params->bytesize ||
        params->poolProps.allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
        params->poolProps.handleTypes != CU_MEM_HANDLE_TYPE_NONE ||
        params->poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        (params->accessDescCount && !params->accessDescs)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUdevice device = params->poolProps.location.id;
    return weir_guest_device_get(device) ? weir_ctx_on_device(*ret_ctx, device, ret_ctx)
                                         : CUDA_ERROR_INVALID_DEVICE;
}

CUresult weir_guest_cuGraphAddMemAllocNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                           const CUgraphNode *dependencies, size_t numDependencies,
                                           CUDA_MEM_ALLOC_NODE_PARAMS *nodeParams)
{
    struct weir_guest_ctx *ctx;
    uint64_t base;
    WEIR_TRY(check_alloc(nodeParams, &ctx));
    WEIR_TRY(weir_guest_cuGraphAddEmptyNode(phGraphNode, hGraph, dependencies, numDependencies));
    struct weir_graph_set *set = weir_graph_set_of((uintptr_t)hGraph);
    CUresult result =
        set ? weir_graph_mem_new(ctx, nodeParams->bytesize, &base) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) {
        result = weir_graph_set_mem(set, base, false);
        if (result != CUDA_SUCCESS) {
            weir_graph_mem_drop(base);
        }
    }
    if (result == CUDA_SUCCESS) {
        nodeParams->dptr = base;
        struct weir_graph_node record = {.handle = (uintptr_t)*phGraphNode,
                                         .type = CU_GRAPH_NODE_TYPE_MEM_ALLOC,
                                         .params = {.alloc = *nodeParams}};
        record.params.alloc.accessDescs = NULL;
        record.params.alloc.accessDescCount = 0;
        result = weir_graph_node_keep(&record);
    }
    if (result != CUDA_SUCCESS) {
        (void)weir_guest_cuGraphDestroyNode(*phGraphNode);
    }
    return result;
}

CUresult weir_guest_cuGraphAddMemFreeNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                          const CUgraphNode *dependencies, size_t numDependencies,
                                          CUdeviceptr dptr)
{
    WEIR_FAIL_IF(!weir_graph_mem_known(dptr), CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_guest_cuGraphAddEmptyNode(phGraphNode, hGraph, dependencies, numDependencies));
    struct weir_graph_set *set = weir_graph_set_of((uintptr_t)hGraph);
    CUresult result = set ? weir_graph_set_mem(set, dptr, true) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) {
        const struct weir_graph_node record = {.handle = (uintptr_t)*phGraphNode,
                                               .type = CU_GRAPH_NODE_TYPE_MEM_FREE,
                                               .params = {.freed = dptr}};
        result = weir_graph_node_keep(&record);
    }
    if (result != CUDA_SUCCESS) {
        (void)weir_guest_cuGraphDestroyNode(*phGraphNode);
    }
    return result;
}

CUresult weir_guest_memory_node_record(CUgraphNode node, CUgraphNodeType type,
                                       struct weir_graph_node *ret_record)
{
    return weir_graph_node_find((uintptr_t)node, ret_record) && ret_record->type == type
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

/* The driver returns the empty type for a node of memory. */
CUresult weir_guest_cuGraphNodeGetType(CUgraphNode hNode, CUgraphNodeType *type)
{
    struct weir_graph_node record;
    WEIR_FAIL_IF(!type, CUDA_ERROR_INVALID_VALUE);
    if (weir_graph_node_find((uintptr_t)hNode, &record)) {
        *type = record.type;
        return CUDA_SUCCESS;
    }
    const struct weir_op_cuGraphNodeGetType_in in = {.hNode = (uintptr_t)hNode};
    struct weir_op_cuGraphNodeGetType_out out;
    WEIR_TRY(weir_call_cuGraphNodeGetType(weir_guest_channel(), &in, &out));
    *type = (CUgraphNodeType)out.type;
    return CUDA_SUCCESS;
}
