/*
 * Graphs as a whole: they are made, cloned, instantiated, launched, updated, destroyed. Also the
 * generic node calls, which only select the function for the type.
 */
#include "guest_lib/ops/forward.h"
#include "guest_lib/register.h"
#include "proto/guest_calls.h"
#include "proto/guest_hand.h"
#include "proto/structs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DEPENDENCIES 4096

void weir_guest_graph_forget(uint64_t graph)
{
    weir_graph_nodes_forget(graph);
    weir_graph_set_drop(graph);
    weir_guest_drop(WEIR_KIND_GRAPH, graph);
}

void weir_guest_exec_forget(uint64_t exec)
{
    weir_graph_set_drop(exec);
    weir_guest_drop(WEIR_KIND_EXEC, exec);
}

void weir_guest_node_forget(uint64_t node)
{
    weir_graph_node_bodies_forget(node);
    weir_graph_node_forget(node);
    weir_graph_set_drop(node);
    weir_guest_drop(WEIR_KIND_NODE, node);
}

CUresult weir_guest_cuGraphClone(CUgraph *phGraphClone, CUgraph originalGraph)
{
    struct weir_op_cuGraphClone_in in = {.originalGraph = (uintptr_t)originalGraph};
    struct weir_op_cuGraphClone_out out;
    WEIR_FAIL_IF(!phGraphClone, CUDA_ERROR_INVALID_VALUE);
    WEIR_FAIL_IF(weir_graph_set_has_mem((uintptr_t)originalGraph), CUDA_ERROR_NOT_SUPPORTED);
    WEIR_TRY(weir_guest_reserve(WEIR_KIND_GRAPH, &in.phGraphClone));
    CUresult result = weir_call_cuGraphClone(weir_guest_channel(), &in, &out);
    if (result != CUDA_SUCCESS) {
        weir_guest_drop(WEIR_KIND_GRAPH, in.phGraphClone);
        return result;
    }
    *phGraphClone = (CUgraph)(uintptr_t)in.phGraphClone;
    return weir_graph_set_include(in.phGraphClone, (uintptr_t)originalGraph);
}

CUresult weir_guest_cuGraphAddChildGraphNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                             const CUgraphNode *dependencies,
                                             size_t numDependencies, CUgraph childGraph)
{
    struct weir_op_cuGraphAddChildGraphNode_in in = {
        .hGraph = (uintptr_t)hGraph,
        .dependencies = (const uint64_t *)(const void *)dependencies,
        .n_dependencies = (uint32_t)numDependencies,
        .childGraph = (uintptr_t)childGraph,
    };
    struct weir_op_cuGraphAddChildGraphNode_out out;
    WEIR_FAIL_IF(!phGraphNode || (numDependencies && !dependencies) || numDependencies > 4096,
                 CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_guest_reserve(WEIR_KIND_NODE, &in.phGraphNode));
    CUresult result = weir_call_cuGraphAddChildGraphNode(weir_guest_channel(), &in, &out);
    if (result != CUDA_SUCCESS) {
        weir_guest_drop(WEIR_KIND_NODE, in.phGraphNode);
        return result;
    }
    weir_graph_node_own(in.hGraph, in.phGraphNode);
    *phGraphNode = (CUgraphNode)(uintptr_t)in.phGraphNode;
    return weir_graph_set_include((uintptr_t)hGraph, (uintptr_t)childGraph);
}

/* ---------------------------------------------------------------- instantiation and launch */

static CUresult instantiate(CUgraphExec *ret_exec, CUgraph graph, uint64_t flags,
                            struct weir_op_graph_instantiate_out *out)
{
    struct weir_op_graph_instantiate_in in = {.g = (uintptr_t)graph, .flags = flags};
    WEIR_FAIL_IF(!ret_exec, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_graph_function_order((uintptr_t)graph));
    WEIR_TRY(weir_guest_reserve(WEIR_KIND_EXEC, &in.x));
    CUresult result = weir_call_graph_instantiate(weir_guest_channel(), &in, out);
    if (result != CUDA_SUCCESS) {
        weir_guest_drop(WEIR_KIND_EXEC, in.x);
        return result;
    }
    *ret_exec = (CUgraphExec)(uintptr_t)in.x;
    result = weir_graph_set_include(in.x, (uintptr_t)graph);
    if (result == CUDA_SUCCESS && (flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH)) {
        result = weir_graph_set_auto_free(in.x);
    }
    return result;
}

CUresult weir_guest_cuGraphInstantiateWithFlags(CUgraphExec *phGraphExec, CUgraph hGraph,
                                                unsigned long long flags)
{
    struct weir_op_graph_instantiate_out out;
    /* NVIDIA's driver refuses this flag here, as there is no stream for the upload. */
    return (flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) != 0
               ? CUDA_ERROR_INVALID_VALUE
               : instantiate(phGraphExec, hGraph, flags, &out);
}

CUresult weir_guest_cuGraphInstantiateWithParams(CUgraphExec *phGraphExec, CUgraph hGraph,
                                                 CUDA_GRAPH_INSTANTIATE_PARAMS *params,
                                                 CUstream default_stream)
{
    struct weir_op_graph_instantiate_out out = {0};
    WEIR_FAIL_IF(!params, CUDA_ERROR_INVALID_VALUE);
    /* The upload is done below, on the caller's stream. */
    const uint64_t upload = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD;
    CUresult result = instantiate(phGraphExec, hGraph, params->flags & ~upload, &out);
    params->hErrNode_out = (CUgraphNode)(uintptr_t)out.error_node;
    params->result_out =
        result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
    if (result == CUDA_SUCCESS && (params->flags & upload)) {
        CUstream stream = params->hUploadStream ? params->hUploadStream : default_stream;
        result = weir_guest_cuGraphUpload(*phGraphExec, stream);
    }
    return result;
}

CUresult weir_guest_cuGraphLaunch(CUgraphExec hGraph, CUstream hStream)
{
    struct weir_guest_stream *stream;
    WEIR_FAIL_IF(!weir_guest_object_get(WEIR_KIND_EXEC, hGraph), CUDA_ERROR_INVALID_VALUE);
    CUresult result = weir_guest_stream_get(hStream, &stream);
    struct weir_graph_set *set = weir_graph_set_find((uintptr_t)hGraph);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    WEIR_TRY(weir_managed_before_launch());
    if (set) {
        WEIR_TRY(weir_graph_set_before_launch(set, stream));
    }
    weir_register_before_launch();
    const struct weir_op_graph_launch_in in = {.x = (uintptr_t)hGraph, .s = stream->handle};
    weir_guest_stream_work_begin(stream);
    result = weir_guest_capturing() ? weir_call_graph_launch(weir_guest_channel(), &in, NULL)
                                    : weir_post_graph_launch(weir_guest_channel(), &in);
    result = weir_guest_stream_work_end(stream, result);
    if (result == CUDA_SUCCESS && set) {
        result = weir_graph_set_after_launch(set, stream);
    }
    return result;
}

CUresult weir_guest_cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph,
                                         CUgraphExecUpdateResultInfo *resultInfo)
{
    struct weir_op_graph_exec_update_out out = {0};
    const struct weir_op_graph_exec_update_in in = {.x = (uintptr_t)hGraphExec,
                                                    .g = (uintptr_t)hGraph};
    WEIR_FAIL_IF(!resultInfo, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_graph_function_order((uintptr_t)hGraph));
    WEIR_TRY(weir_call_graph_exec_update(weir_guest_channel(), &in, &out));
    *resultInfo = (CUgraphExecUpdateResultInfo){
        .result = (CUgraphExecUpdateResult)out.result,
        .errorNode = (CUgraphNode)(uintptr_t)out.error_node,
        .errorFromNode = (CUgraphNode)(uintptr_t)out.error_from_node,
    };
    WEIR_FAIL_IF(resultInfo->result != CU_GRAPH_EXEC_UPDATE_SUCCESS,
                 CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    return weir_graph_set_add_update((uintptr_t)hGraphExec, (uintptr_t)hGraph);
}

/* ---------------------------------------------------------------- generic nodes */

/* The two versions of kernel parameters have the same layout. */
static const CUDA_KERNEL_NODE_PARAMS *kernel_of(const CUDA_KERNEL_NODE_PARAMS_v3 *p)
{
    _Static_assert(sizeof(CUDA_KERNEL_NODE_PARAMS_v3) == sizeof(CUDA_KERNEL_NODE_PARAMS),
                   "same fields");
    return (const CUDA_KERNEL_NODE_PARAMS *)(const void *)p;
}

/* Both structs have the same layout. The address is an output, so it is written to the caller's
 * struct. */
static CUDA_MEM_ALLOC_NODE_PARAMS *alloc_of(CUDA_MEM_ALLOC_NODE_PARAMS_v2 *p)
{
    _Static_assert(sizeof(CUDA_MEM_ALLOC_NODE_PARAMS_v2) == sizeof(CUDA_MEM_ALLOC_NODE_PARAMS),
                   "same fields");
    return (CUDA_MEM_ALLOC_NODE_PARAMS *)(void *)p;
}

CUresult weir_guest_cuGraphAddNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                   const CUgraphNode *dependencies, size_t n, CUgraphNodeParams *p)
{
    WEIR_FAIL_IF(!p, CUDA_ERROR_INVALID_VALUE);
    const CUgraphNode *d = dependencies;
    switch ((unsigned int)p->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return weir_guest_cuGraphAddKernelNode_v2(phGraphNode, hGraph, d, n, kernel_of(&p->kernel));
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return weir_guest_cuGraphAddMemcpyNode(phGraphNode, hGraph, d, n, &p->memcpy.copyParams,
                                               p->memcpy.copyCtx);
    case CU_GRAPH_NODE_TYPE_MEMSET: {
        const CUDA_MEMSET_NODE_PARAMS set = weir_struct_memset_of_v2(&p->memset);
        return weir_guest_cuGraphAddMemsetNode(phGraphNode, hGraph, d, n, &set, p->memset.ctx);
    }
    case CU_GRAPH_NODE_TYPE_HOST: {
        const CUDA_HOST_NODE_PARAMS host = weir_struct_host_of_v2(&p->host);
        return weir_guest_cuGraphAddHostNode(phGraphNode, hGraph, d, n, &host);
    }
    case CU_GRAPH_NODE_TYPE_GRAPH:
        return weir_guest_cuGraphAddChildGraphNode(phGraphNode, hGraph, d, n, p->graph.graph);
    case CU_GRAPH_NODE_TYPE_EMPTY:
        return weir_guest_cuGraphAddEmptyNode(phGraphNode, hGraph, d, n);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return weir_guest_cuGraphAddEventWaitNode(phGraphNode, hGraph, d, n, p->eventWait.event);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return weir_guest_cuGraphAddEventRecordNode(phGraphNode, hGraph, d, n,
                                                    p->eventRecord.event);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        return weir_guest_cuGraphAddMemAllocNode(phGraphNode, hGraph, d, n, alloc_of(&p->alloc));
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        return weir_guest_cuGraphAddMemFreeNode(phGraphNode, hGraph, d, n, p->free.dptr);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: {
        const CUDA_BATCH_MEM_OP_NODE_PARAMS ops = weir_struct_memops_of_v2(&p->memOp);
        return weir_guest_cuGraphAddBatchMemOpNode(phGraphNode, hGraph, d, n, &ops);
    }
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        return weir_graph_add_conditional(phGraphNode, hGraph, d, n, &p->conditional);
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

/* Set a node's parameters in its graph or, with exec, in an instantiated one. */
static CUresult set_any(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *p)
{
    uint64_t x = (uintptr_t)exec;
    WEIR_FAIL_IF(!p, CUDA_ERROR_INVALID_VALUE);
    switch ((unsigned int)p->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return weir_guest_node_set_kernel(x, node, kernel_of(&p->kernel));
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return weir_guest_node_set_copy(x, node, &p->memcpy.copyParams,
                                        exec ? p->memcpy.copyCtx : NULL);
    case CU_GRAPH_NODE_TYPE_MEMSET: {
        const CUDA_MEMSET_NODE_PARAMS set = weir_struct_memset_of_v2(&p->memset);
        return weir_guest_node_set_memset(x, node, &set, exec ? p->memset.ctx : NULL);
    }
    case CU_GRAPH_NODE_TYPE_HOST: {
        const CUDA_HOST_NODE_PARAMS host = weir_struct_host_of_v2(&p->host);
        return weir_guest_node_set_host(x, node, &host);
    }
    case CU_GRAPH_NODE_TYPE_GRAPH:
        return exec ? weir_guest_cuGraphExecChildGraphNodeSetParams(exec, node, p->graph.graph)
                    : CUDA_ERROR_NOT_SUPPORTED;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return exec ? weir_guest_cuGraphExecEventWaitNodeSetEvent(exec, node, p->eventWait.event)
                    : weir_guest_cuGraphEventWaitNodeSetEvent(node, p->eventWait.event);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return exec
                   ? weir_guest_cuGraphExecEventRecordNodeSetEvent(exec, node, p->eventRecord.event)
                   : weir_guest_cuGraphEventRecordNodeSetEvent(node, p->eventRecord.event);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: {
        const CUDA_BATCH_MEM_OP_NODE_PARAMS ops = weir_struct_memops_of_v2(&p->memOp);
        return weir_guest_node_set_memops(x, node, &ops);
    }
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

CUresult weir_guest_cuGraphNodeSetParams(CUgraphNode hNode, CUgraphNodeParams *p)
{
    return set_any(NULL, hNode, p);
}

CUresult weir_guest_cuGraphExecNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                             CUgraphNodeParams *p)
{
    WEIR_FAIL_IF(!hGraphExec, CUDA_ERROR_INVALID_VALUE);
    return set_any(hGraphExec, hNode, p);
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

/* Make a node with special edges first without edges, and then add them. */
CUresult weir_guest_cuGraphAddNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph,
                                      const CUgraphNode *dependencies,
                                      const CUgraphEdgeData *dependencyData, size_t numDependencies,
                                      CUgraphNodeParams *nodeParams)
{
    if (all_plain(dependencyData, numDependencies)) {
        return weir_guest_cuGraphAddNode(phGraphNode, hGraph, dependencies, numDependencies,
                                         nodeParams);
    }
    WEIR_FAIL_IF(!dependencies || numDependencies > MAX_DEPENDENCIES, CUDA_ERROR_INVALID_VALUE);
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
