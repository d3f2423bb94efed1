/* Adds nodes of every kind, and gets and sets their parameters. */
#include "proto/structs.h"
#include "softgpu/driver/graph_private.h"

#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------ operations from parameters */

/* The SMs on which a kernel node runs; NULL: all. A new node gets the SMs of the current green
 * context; a changed node keeps its SMs. */
static const struct weir_exec_sms *node_sms(const CUDA_KERNEL_NODE_PARAMS *params,
                                            const struct weir_soft_op *old)
{
    const struct weir_soft_green *green = !old && !params->ctx ? weir_soft_green_current() : NULL;
    return old && old->kernel.in_part ? &old->kernel.sms : green ? &green->sms : NULL;
}

CUresult weir_soft_node_kernel(const CUDA_KERNEL_NODE_PARAMS *params,
                               const struct weir_soft_op *old, struct weir_soft_op **ret_op)
{
    struct weir_soft_ctx *ctx;
    WEIR_FAIL_IF(!params, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_soft_ctx_find(params->ctx, &ctx));
    void *function = params->func ? (void *)params->func : (void *)params->kern;
    struct weir_soft_launch_args args = {
        .function = function,
        .grid = {params->gridDimX, params->gridDimY, params->gridDimZ},
        .block = {params->blockDimX, params->blockDimY, params->blockDimZ},
        .shared_bytes = params->sharedMemBytes,
        .cooperative = old && old->kernel.cooperative,
        .sms = node_sms(params, old),
        .params = params->kernelParams,
        .extra = params->extra};
    WEIR_TRY(weir_soft_launch_make(ctx, &args, ret_op));
    if (old) { /* attributes stay when parameters change */
        memcpy((*ret_op)->kernel.attributes, old->kernel.attributes,
               sizeof(old->kernel.attributes));
        (*ret_op)->kernel.attributes_set = old->kernel.attributes_set;
        (*ret_op)->kernel.priority = old->kernel.priority;
    }
    return CUDA_SUCCESS;
}

/* Give an operation back that a node may not have. */
static CUresult allowed(CUresult made, struct weir_soft_op **op)
{
    WEIR_TRY(made);
    CUresult result = weir_soft_node_allows(*op);
    if (result != CUDA_SUCCESS) {
        weir_soft_op_put(*op);
        *op = NULL;
    }
    return result;
}

CUresult weir_soft_node_copy(const CUDA_MEMCPY3D *params, CUcontext ctx_handle,
                             struct weir_soft_op **ret_op)
{
    struct weir_soft_ctx *ctx;
    bool host_src, host_dst;
    WEIR_FAIL_IF(!params, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_soft_ctx_find(ctx_handle, &ctx));
    return allowed(weir_soft_copy_resolve(params, ctx, ret_op, &host_src, &host_dst), ret_op);
}

CUresult weir_soft_node_set(const CUDA_MEMSET_NODE_PARAMS *params, CUcontext ctx_handle,
                            struct weir_soft_op **ret_op)
{
    struct weir_soft_ctx *ctx;
    WEIR_FAIL_IF(!params, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_soft_ctx_find(ctx_handle, &ctx));
    return allowed(weir_soft_set_make(params, ctx, ret_op), ret_op);
}

CUresult weir_soft_node_host(const CUDA_HOST_NODE_PARAMS *params, struct weir_soft_op **ret_op)
{
    struct weir_soft_ctx *ctx;
    WEIR_FAIL_IF(!params || !params->fn, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_soft_ctx_current(&ctx));
    struct weir_soft_op *op = weir_soft_op_new(WEIR_SOFT_OP_HOST, ctx);
    WEIR_FAIL_IF(!op, CUDA_ERROR_OUT_OF_MEMORY);
    op->host.fn = params->fn;
    op->host.user = params->userData;
    *ret_op = op;
    return CUDA_SUCCESS;
}

CUresult weir_soft_node_event(enum weir_soft_op_kind kind, CUevent handle,
                              struct weir_soft_op **ret_op)
{
    struct weir_soft_event *event;
    WEIR_TRY(weir_soft_event_find(handle, &event));
    struct weir_soft_op *op = weir_soft_op_new(kind, event->object.ctx);
    WEIR_FAIL_IF(!op, CUDA_ERROR_OUT_OF_MEMORY);
    op->event = weir_soft_object_ref(event);
    *ret_op = op;
    return CUDA_SUCCESS;
}

CUresult weir_soft_node_memops(const CUDA_BATCH_MEM_OP_NODE_PARAMS *params,
                               struct weir_soft_op **ret_op)
{
    struct weir_soft_ctx *ctx;
    WEIR_FAIL_IF(!params, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_soft_ctx_find(params->ctx, &ctx));
    return weir_soft_memops_make(ctx, params->count, params->paramArray, params->flags, ret_op);
}

CUresult weir_soft_graph_memory_make(struct weir_soft_op *op)
{
    struct weir_soft_graph_memory *memory = calloc(1, sizeof(*memory));
    struct weir_soft_alloc *alloc = NULL;
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    if (memory) {
        result = weir_soft_space_alloc(op->ctx, op->alloc.asked.bytesize, 0, WEIR_SOFT_ALLOC_GRAPH,
                                       &alloc);
    }
    if (result != CUDA_SUCCESS) {
        free(memory);
        weir_soft_op_put(op);
        return result;
    }
    struct weir_soft_device *device = op->ctx->device;
    device->graph_used_bytes += alloc->bytes;
    if (device->graph_high_bytes < device->graph_used_bytes) {
        device->graph_high_bytes = device->graph_used_bytes;
    }
    memory->refs = 1;
    memory->base = alloc->base;
    memory->id = alloc->id;
    op->alloc.memory = memory;
    op->alloc.asked.dptr = alloc->base;
    op->alloc.asked.accessDescs = NULL;
    op->alloc.asked.accessDescCount = 0;
    (void)weir_soft_space_set_accessible(alloc, false); /* until the allocation's node has run */
    return CUDA_SUCCESS;
}

static CUresult node_alloc(CUDA_MEM_ALLOC_NODE_PARAMS *params, struct weir_soft_op **ret_op)
{
    struct weir_soft_ctx *ctx;
    if (!params || params->bytesize == 0 ||
        params->poolProps.allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
        params->poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    WEIR_TRY(weir_soft_ctx_current(&ctx));
    struct weir_soft_op *op = weir_soft_op_new(WEIR_SOFT_OP_ALLOC, ctx);
    WEIR_FAIL_IF(!op, CUDA_ERROR_OUT_OF_MEMORY);
    op->alloc.asked = *params;
    WEIR_TRY(weir_soft_graph_memory_make(op));
    params->dptr = op->alloc.asked.dptr;
    *ret_op = op;
    return CUDA_SUCCESS;
}

static CUresult node_free(CUdeviceptr address, struct weir_soft_op **ret_op)
{
    struct weir_soft_ctx *ctx;
    WEIR_TRY(weir_soft_ctx_current(&ctx));
    const struct weir_soft_alloc *alloc = weir_soft_space_at(address);
    WEIR_FAIL_IF(!alloc || alloc->kind != WEIR_SOFT_ALLOC_GRAPH, CUDA_ERROR_INVALID_VALUE);
    struct weir_soft_op *op = weir_soft_op_new(WEIR_SOFT_OP_FREE, ctx);
    WEIR_FAIL_IF(!op, CUDA_ERROR_OUT_OF_MEMORY);
    op->free.address = address;
    op->free.id = alloc->id;
    *ret_op = op;
    return CUDA_SUCCESS;
}

CUresult weir_soft_node_any(CUgraphNodeParams *params, const struct weir_soft_op *old,
                            struct weir_soft_op **ret_op)
{
    *ret_op = NULL;
    switch ((int)params->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
        CUDA_KERNEL_NODE_PARAMS kernel;
        _Static_assert(sizeof(kernel) == sizeof(params->kernel), "one layout");
        memcpy(&kernel, &params->kernel, sizeof(kernel));
        return weir_soft_node_kernel(&kernel, old, ret_op);
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return weir_soft_node_copy(&params->memcpy.copyParams, params->memcpy.copyCtx, ret_op);
    case CU_GRAPH_NODE_TYPE_MEMSET: {
        const CUDA_MEMSET_NODE_PARAMS set = weir_struct_memset_of_v2(&params->memset);
        return weir_soft_node_set(&set, params->memset.ctx, ret_op);
    }
    case CU_GRAPH_NODE_TYPE_HOST: {
        const CUDA_HOST_NODE_PARAMS host = weir_struct_host_of_v2(&params->host);
        return weir_soft_node_host(&host, ret_op);
    }
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return weir_soft_node_event(WEIR_SOFT_OP_WAIT, params->eventWait.event, ret_op);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return weir_soft_node_event(WEIR_SOFT_OP_RECORD, params->eventRecord.event, ret_op);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: {
        const CUDA_BATCH_MEM_OP_NODE_PARAMS memops = weir_struct_memops_of_v2(&params->memOp);
        return weir_soft_node_memops(&memops, ret_op);
    }
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC: {
        CUDA_MEM_ALLOC_NODE_PARAMS alloc;
        _Static_assert(sizeof(alloc) == sizeof(params->alloc), "one layout");
        memcpy(&alloc, &params->alloc, sizeof(alloc));
        WEIR_TRY(node_alloc(&alloc, ret_op));
        params->alloc.dptr = alloc.dptr;
        return CUDA_SUCCESS;
    }
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        return node_free(params->free.dptr, ret_op);
    case CU_GRAPH_NODE_TYPE_GRAPH:
    case CU_GRAPH_NODE_TYPE_EMPTY:
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        return CUDA_ERROR_NOT_SUPPORTED;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* ------------------------------------------------------------------ adding */

/* Find and check the graph, and the nodes that the new node depends on. */
static CUresult add_begin(CUgraphNode *ret, CUgraph handle, const CUgraphNode *before,
                          const CUgraphEdgeData *edges, size_t n,
                          struct weir_soft_graph **ret_graph, struct weir_soft_nodes *ret_before)
{
    memset(ret_before, 0, sizeof(*ret_before));
    WEIR_FAIL_IF(!ret || (n > 0 && !before), CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_soft_graph_find(handle, ret_graph));
    for (size_t i = 0; i < n; i++) {
        struct weir_soft_node *node = weir_soft_object_find(WEIR_SOFT_NODE, before[i]);
        uint32_t had = ret_before->n;
        if (!node || node->graph != *ret_graph ||
            !weir_soft_nodes_add(ret_before, node, edges ? &edges[i] : NULL) ||
            ret_before->n == had) {
            weir_soft_nodes_clear(ret_before);
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    return CUDA_SUCCESS;
}

/* Add a node with the operation, or only clean up if making the operation failed. Takes op. */
static CUresult add_end(CUgraphNode *ret, struct weir_soft_graph *graph, CUgraphNodeType type,
                        CUresult made, struct weir_soft_op *op, struct weir_soft_graph *child,
                        struct weir_soft_nodes *before)
{
    struct weir_soft_node *node;
    CUresult result = made;
    WEIR_THEN(result, weir_soft_graph_add(graph, type, op, before, &node));
    if (result == CUDA_SUCCESS && child) {
        result = weir_soft_graph_clone(child, &node->child);
        if (result == CUDA_SUCCESS) {
            weir_soft_object_ref(node->child);
            node->child->is_child = true;
        }
    }
    weir_soft_nodes_clear(before);
    if (result == CUDA_SUCCESS) {
        *ret = (CUgraphNode)node;
    }
    return result;
}

#define ADD_NODE(type, make, child)                                                                \
    do {                                                                                           \
        struct weir_soft_graph *graph;                                                             \
        struct weir_soft_nodes nodes;                                                              \
        struct weir_soft_op *op = NULL;                                                            \
        WEIR_TRY(add_begin(ret, handle, before, NULL, n, &graph, &nodes));                         \
        CUresult made = (make);                                                                    \
        return add_end(ret, graph, (type), made, op, (child), &nodes);                             \
    } while (0)

CUresult weir_soft_cuGraphAddKernelNode_v2(CUgraphNode *ret, CUgraph handle,
                                           const CUgraphNode *before, size_t n,
                                           const CUDA_KERNEL_NODE_PARAMS *params)
{
    WEIR_SOFT_LOCKED();
    ADD_NODE(CU_GRAPH_NODE_TYPE_KERNEL, weir_soft_node_kernel(params, NULL, &op), NULL);
}

CUresult weir_soft_cuGraphAddMemcpyNode(CUgraphNode *ret, CUgraph handle, const CUgraphNode *before,
                                        size_t n, const CUDA_MEMCPY3D *params, CUcontext ctx)
{
    WEIR_SOFT_LOCKED();
    ADD_NODE(CU_GRAPH_NODE_TYPE_MEMCPY, weir_soft_node_copy(params, ctx, &op), NULL);
}

CUresult weir_soft_cuGraphAddMemsetNode(CUgraphNode *ret, CUgraph handle, const CUgraphNode *before,
                                        size_t n, const CUDA_MEMSET_NODE_PARAMS *params,
                                        CUcontext ctx)
{
    WEIR_SOFT_LOCKED();
    ADD_NODE(CU_GRAPH_NODE_TYPE_MEMSET, weir_soft_node_set(params, ctx, &op), NULL);
}

CUresult weir_soft_cuGraphAddHostNode(CUgraphNode *ret, CUgraph handle, const CUgraphNode *before,
                                      size_t n, const CUDA_HOST_NODE_PARAMS *params)
{
    WEIR_SOFT_LOCKED();
    ADD_NODE(CU_GRAPH_NODE_TYPE_HOST, weir_soft_node_host(params, &op), NULL);
}

CUresult weir_soft_cuGraphAddEmptyNode(CUgraphNode *ret, CUgraph handle, const CUgraphNode *before,
                                       size_t n)
{
    WEIR_SOFT_LOCKED();
    ADD_NODE(CU_GRAPH_NODE_TYPE_EMPTY, CUDA_SUCCESS, NULL);
}

CUresult weir_soft_cuGraphAddChildGraphNode(CUgraphNode *ret, CUgraph handle,
                                            const CUgraphNode *before, size_t n,
                                            CUgraph child_handle)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_graph *child;
    WEIR_TRY(weir_soft_graph_find(child_handle, &child));
    if (child_handle == handle) { /* NVIDIA's driver faults */
        return CUDA_ERROR_INVALID_VALUE;
    }
    ADD_NODE(CU_GRAPH_NODE_TYPE_GRAPH, CUDA_SUCCESS, child);
}

CUresult weir_soft_cuGraphAddEventRecordNode(CUgraphNode *ret, CUgraph handle,
                                             const CUgraphNode *before, size_t n, CUevent event)
{
    WEIR_SOFT_LOCKED();
    ADD_NODE(CU_GRAPH_NODE_TYPE_EVENT_RECORD, weir_soft_node_event(WEIR_SOFT_OP_RECORD, event, &op),
             NULL);
}

CUresult weir_soft_cuGraphAddEventWaitNode(CUgraphNode *ret, CUgraph handle,
                                           const CUgraphNode *before, size_t n, CUevent event)
{
    WEIR_SOFT_LOCKED();
    ADD_NODE(CU_GRAPH_NODE_TYPE_WAIT_EVENT, weir_soft_node_event(WEIR_SOFT_OP_WAIT, event, &op),
             NULL);
}

CUresult weir_soft_cuGraphAddBatchMemOpNode(CUgraphNode *ret, CUgraph handle,
                                            const CUgraphNode *before, size_t n,
                                            const CUDA_BATCH_MEM_OP_NODE_PARAMS *params)
{
    WEIR_SOFT_LOCKED();
    ADD_NODE(CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, weir_soft_node_memops(params, &op), NULL);
}

CUresult weir_soft_cuGraphAddMemAllocNode(CUgraphNode *ret, CUgraph handle,
                                          const CUgraphNode *before, size_t n,
                                          CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
    WEIR_SOFT_LOCKED();
    ADD_NODE(CU_GRAPH_NODE_TYPE_MEM_ALLOC, node_alloc(params, &op), NULL);
}

CUresult weir_soft_cuGraphAddMemFreeNode(CUgraphNode *ret, CUgraph handle,
                                         const CUgraphNode *before, size_t n, CUdeviceptr address)
{
    WEIR_SOFT_LOCKED();
    ADD_NODE(CU_GRAPH_NODE_TYPE_MEM_FREE, node_free(address, &op), NULL);
}

CUresult weir_soft_cuGraphAddNode_v2(CUgraphNode *ret, CUgraph handle, const CUgraphNode *before,
                                     const CUgraphEdgeData *edges, size_t n,
                                     CUgraphNodeParams *params)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_graph *graph, *child = NULL;
    struct weir_soft_nodes nodes;
    struct weir_soft_op *op = NULL;
    WEIR_FAIL_IF(!params, CUDA_ERROR_INVALID_VALUE);
    if (params->type == CU_GRAPH_NODE_TYPE_GRAPH) {
        WEIR_TRY(weir_soft_graph_find(params->graph.graph, &child));
    }
    WEIR_TRY(add_begin(ret, handle, before, edges, n, &graph, &nodes));
    CUresult made = weir_soft_node_any(params, NULL, &op);
    return add_end(ret, graph, params->type, made, op, child, &nodes);
}

/* ------------------------------------------------------------------ reading */

/* As weir_soft_node_of(), but also checks that the call's argument is not NULL. */
static CUresult node_of(CUgraphNode handle, CUgraphNodeType type, const void *given,
                        struct weir_soft_node **ret_node)
{
    return !given ? CUDA_ERROR_INVALID_VALUE : weir_soft_node_of(handle, type, ret_node);
}

CUresult weir_soft_cuGraphKernelNodeGetParams_v2(CUgraphNode handle,
                                                 CUDA_KERNEL_NODE_PARAMS *params)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_node *node;
    WEIR_TRY(node_of(handle, CU_GRAPH_NODE_TYPE_KERNEL, params, &node));
    const struct weir_soft_op_kernel *k = &node->op->kernel;
    *params = (CUDA_KERNEL_NODE_PARAMS){
        .func = (CUfunction)k->function,
        .gridDimX = k->grid[0],
        .gridDimY = k->grid[1],
        .gridDimZ = k->grid[2],
        .blockDimX = k->block[0],
        .blockDimY = k->block[1],
        .blockDimZ = k->block[2],
        .sharedMemBytes = k->shared_bytes,
        .kernelParams = k->pointers, /* valid as long as the node keeps these parameters */
        .kern = (CUkernel)k->function->of_kernel, /* cudart knows the kernel by this handle */
        .ctx = (CUcontext)node->op->ctx};
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuGraphHostNodeGetParams(CUgraphNode handle, CUDA_HOST_NODE_PARAMS *params)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_node *node;
    WEIR_TRY(node_of(handle, CU_GRAPH_NODE_TYPE_HOST, params, &node));
    *params = (CUDA_HOST_NODE_PARAMS){node->op->host.fn, node->op->host.user};
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuGraphBatchMemOpNodeGetParams(CUgraphNode handle,
                                                  CUDA_BATCH_MEM_OP_NODE_PARAMS *params)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_node *node;
    WEIR_TRY(node_of(handle, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, params, &node));
    *params = (CUDA_BATCH_MEM_OP_NODE_PARAMS){(CUcontext)node->op->ctx, node->op->memops.n_items,
                                              node->op->memops.items, node->op->memops.flags};
    return CUDA_SUCCESS;
}

/* ------------------------------------------------------------------ writing */

/* Replace a node's operation, in its graph or, with exec, in an instantiated one. */
#define SET_NODE(node_type, params, make)                                                          \
    do {                                                                                           \
        struct weir_soft_op **at, *op = NULL;                                                      \
        WEIR_FAIL_IF(!(params), CUDA_ERROR_INVALID_VALUE);                                         \
        WEIR_TRY(weir_soft_node_op(exec, handle, (node_type), &at));                               \
        WEIR_TRY(make);                                                                            \
        weir_soft_op_replace(at, op);                                                              \
        return CUDA_SUCCESS;                                                                       \
    } while (0)

CUresult weir_soft_node_set_kernel(uint64_t exec, CUgraphNode handle,
                                   const CUDA_KERNEL_NODE_PARAMS *params)
{
    WEIR_SOFT_LOCKED();
    SET_NODE(CU_GRAPH_NODE_TYPE_KERNEL, params, weir_soft_node_kernel(params, *at, &op));
}

/* A node of a graph keeps its context; one of an instantiated graph gets the given one. */
CUresult weir_soft_node_set_copy(uint64_t exec, CUgraphNode handle, const CUDA_MEMCPY3D *params,
                                 CUcontext ctx)
{
    WEIR_SOFT_LOCKED();
    SET_NODE(CU_GRAPH_NODE_TYPE_MEMCPY, params,
             weir_soft_node_copy(params, exec ? ctx : (CUcontext)(*at)->ctx, &op));
}

CUresult weir_soft_node_set_memset(uint64_t exec, CUgraphNode handle,
                                   const CUDA_MEMSET_NODE_PARAMS *params, CUcontext ctx)
{
    WEIR_SOFT_LOCKED();
    SET_NODE(CU_GRAPH_NODE_TYPE_MEMSET, params,
             weir_soft_node_set(params, exec ? ctx : (CUcontext)(*at)->ctx, &op));
}

CUresult weir_soft_node_set_host(uint64_t exec, CUgraphNode handle,
                                 const CUDA_HOST_NODE_PARAMS *params)
{
    WEIR_SOFT_LOCKED();
    SET_NODE(CU_GRAPH_NODE_TYPE_HOST, params, weir_soft_node_host(params, &op));
}

CUresult weir_soft_node_set_event(uint64_t exec, CUgraphNode handle, CUgraphNodeType type,
                                  CUevent event)
{
    WEIR_SOFT_LOCKED();
    SET_NODE(type, event,
             weir_soft_node_event(type == CU_GRAPH_NODE_TYPE_WAIT_EVENT ? WEIR_SOFT_OP_WAIT
                                                                        : WEIR_SOFT_OP_RECORD,
                                  event, &op));
}

CUresult weir_soft_exec_set_event(CUgraphExec exec, CUgraphNode handle, CUgraphNodeType type,
                                  CUevent event)
{
    WEIR_FAIL_IF(!exec, CUDA_ERROR_INVALID_VALUE);
    return weir_soft_node_set_event((uintptr_t)exec, handle, type, event);
}

CUresult weir_soft_node_set_memops(uint64_t exec, CUgraphNode handle,
                                   const CUDA_BATCH_MEM_OP_NODE_PARAMS *params)
{
    WEIR_SOFT_LOCKED();
    SET_NODE(CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, params, weir_soft_node_memops(params, &op));
}

CUresult weir_soft_node_set_any(uint64_t exec, CUgraphNode handle, CUgraphNodeParams *params)
{
    WEIR_SOFT_LOCKED();
    WEIR_FAIL_IF(params && (params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
                            params->type == CU_GRAPH_NODE_TYPE_MEM_FREE),
                 CUDA_ERROR_INVALID_VALUE);
    SET_NODE(params->type, params, weir_soft_node_any(params, *at, &op));
}

/* ------------------------------------------------------------------ attributes of kernel nodes */

CUresult weir_soft_cuGraphKernelNodeGetAttribute(CUgraphNode handle, CUkernelNodeAttrID id,
                                                 CUkernelNodeAttrValue *value)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_node *node;
    WEIR_TRY(node_of(handle, CU_GRAPH_NODE_TYPE_KERNEL, value, &node));
    const struct weir_soft_op_kernel *k = &node->op->kernel;
    WEIR_FAIL_IF((unsigned)id >= WEIR_SOFT_LAUNCH_ATTRIBUTES, CUDA_ERROR_INVALID_VALUE);
    *value = k->attributes[id];
    if (id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) {
        value->cooperative = k->cooperative;
    }
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuGraphKernelNodeSetAttribute(CUgraphNode handle, CUkernelNodeAttrID id,
                                                 const CUkernelNodeAttrValue *value)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_node *node;
    WEIR_TRY(node_of(handle, CU_GRAPH_NODE_TYPE_KERNEL, value, &node));
    struct weir_soft_op_kernel *k = &node->op->kernel;
    WEIR_TRY(weir_soft_attribute_check((unsigned)id, value));
    k->attributes[id] = *value;
    k->attributes_set |= 1u << (unsigned)id;
    if (id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) {
        k->cooperative = value->cooperative != 0;
    } else if (id == CU_LAUNCH_ATTRIBUTE_PRIORITY) {
        k->priority = value->priority;
    }
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuGraphKernelNodeCopyAttributes(CUgraphNode dst_handle, CUgraphNode src_handle)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_node *dst, *src;
    WEIR_TRY(node_of(dst_handle, CU_GRAPH_NODE_TYPE_KERNEL, dst_handle, &dst));
    WEIR_TRY(node_of(src_handle, CU_GRAPH_NODE_TYPE_KERNEL, src_handle, &src));
    memcpy(dst->op->kernel.attributes, src->op->kernel.attributes,
           sizeof(src->op->kernel.attributes));
    dst->op->kernel.attributes_set = src->op->kernel.attributes_set;
    dst->op->kernel.cooperative = src->op->kernel.cooperative;
    dst->op->kernel.priority = src->op->kernel.priority;
    return CUDA_SUCCESS;
}
