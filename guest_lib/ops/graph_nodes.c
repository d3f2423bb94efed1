/*
 * Graph nodes whose parameters hold pointers into the program: kernel, memcpy, memset and host
 * nodes. Adding and setting read the parameters in the same way; getting returns the stored
 * parameters.
 */
#include "base/hash.h"
#include "guest_lib/ops/forward.h"
#include "guest_lib/register.h"
#include "proto/guest_calls.h"
#include "proto/guest_hand.h"

#include <stdlib.h>
#include <string.h>

#define MAX_DEPENDENCIES 4096
#define TAKEN_SLOTS      4096

/* The common state of all functions that add a node. */
struct addition {
    uint64_t graph;
    uint64_t node; /* the new node's name */
    const uint64_t *dependencies;
    uint32_t n_dependencies;
};

static CUresult begin_add(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *dependencies,
                          size_t count, struct addition *add)
{
    WEIR_FAIL_IF(!ret_node || !graph || (count && !dependencies) || count > MAX_DEPENDENCIES,
                 CUDA_ERROR_INVALID_VALUE);
    *add = (struct addition){
        .graph = (uintptr_t)graph,
        .dependencies = (const uint64_t *)(const void *)dependencies,
        .n_dependencies = (uint32_t)count,
    };
    return weir_guest_reserve(WEIR_KIND_NODE, &add->node);
}

static CUresult end_add(CUresult result, const struct addition *add, CUgraphNode *ret_node)
{
    if (result != CUDA_SUCCESS) {
        weir_guest_drop(WEIR_KIND_NODE, add->node);
        return result;
    }
    weir_graph_node_own(add->graph, add->node);
    *ret_node = (CUgraphNode)(uintptr_t)add->node;
    return CUDA_SUCCESS;
}

CUresult weir_guest_node_record(CUgraphNode node, CUgraphNodeType type,
                                struct weir_graph_node *ret_record)
{
    WEIR_FAIL_IF(!weir_graph_node_find((uintptr_t)node, ret_record),
                 CUDA_ERROR_NOT_SUPPORTED); /* made by a capture: its block is not program memory */
    return ret_record->type == type ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---------------------------------------------------------------- kernels */

static CUresult read_kernel(const CUDA_KERNEL_NODE_PARAMS *params,
                            struct weir_guest_function **function,
                            struct weir_launch_buffer *buffer)
{
    WEIR_FAIL_IF(!params, CUDA_ERROR_INVALID_VALUE);
    const void *handle = params->func ? (const void *)params->func : (const void *)params->kern;
    *function = weir_function_get(handle);
    WEIR_FAIL_IF(!*function, CUDA_ERROR_INVALID_HANDLE);
    weir_register_note_graph();
    return weir_launch_params(*function, params->kernelParams, params->extra, buffer);
}

CUresult weir_guest_cuGraphAddKernelNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph,
                                            const CUgraphNode *dependencies, size_t numDependencies,
                                            const CUDA_KERNEL_NODE_PARAMS *p)
{
    struct weir_guest_function *function;
    struct weir_launch_buffer buffer;
    struct addition add;
    WEIR_TRY(read_kernel(p, &function, &buffer));
    CUresult result = begin_add(phGraphNode, hGraph, dependencies, numDependencies, &add);
    if (result == CUDA_SUCCESS) {
        const struct weir_op_graph_add_kernel_in in = {
            .g = add.graph,
            .n = add.node,
            .dependencies = add.dependencies,
            .n_dependencies = add.n_dependencies,
            .f = function->handle,
            .grid = {p->gridDimX, p->gridDimY, p->gridDimZ},
            .block = {p->blockDimX, p->blockDimY, p->blockDimZ},
            .shared_bytes = p->sharedMemBytes,
            .params = buffer.data,
            .n_params = buffer.bytes,
        };
        result =
            end_add(weir_call_graph_add_kernel(weir_guest_channel(), &in, NULL), &add, phGraphNode);
    }
    free(buffer.allocated);
    return result;
}

/* Hashes of functions and shapes that the driver has accepted for a node, one in each slot; atomic.
 * With these a program that sets a node's arguments before every launch need not wait for the
 * driver each time. */
static uint64_t taken[TAKEN_SLOTS];

/* Hash everything in a node's parameters that the driver may refuse. */
static uint64_t shape_of(const struct weir_op_graph_kernel_set_in *in,
                         const struct weir_guest_function *function)
{
    const uint64_t words[] = {in->x,
                              in->n,
                              in->f,
                              __atomic_load_n(&function->epoch, __ATOMIC_RELAXED),
                              in->grid[0],
                              in->grid[1],
                              in->grid[2],
                              in->block[0],
                              in->block[1],
                              in->block[2],
                              in->shared_bytes,
                              in->n_params};
    return weir_hash64_of(words, sizeof(words));
}

static CUresult send_kernel(const struct weir_op_graph_kernel_set_in *in,
                            const struct weir_guest_function *function)
{
    uint64_t shape = shape_of(in, function);
    uint64_t *slot = &taken[shape % TAKEN_SLOTS];
    bool known = in->x && shape && __atomic_load_n(slot, __ATOMIC_RELAXED) == shape;
    if (known && weir_guest_object_get(WEIR_KIND_EXEC, (const void *)(uintptr_t)in->x) &&
        weir_guest_object_get(WEIR_KIND_NODE, (const void *)(uintptr_t)in->n)) {
        return weir_post_graph_kernel_set(weir_guest_channel(), in);
    }
    WEIR_TRY(weir_call_graph_kernel_set(weir_guest_channel(), in, NULL));
    __atomic_store_n(slot, shape, __ATOMIC_RELAXED);
    return CUDA_SUCCESS;
}

CUresult weir_guest_node_set_kernel(uint64_t exec, CUgraphNode node,
                                    const CUDA_KERNEL_NODE_PARAMS *p)
{
    struct weir_guest_function *function;
    struct weir_launch_buffer buffer;
    WEIR_TRY(read_kernel(p, &function, &buffer));
    const struct weir_op_graph_kernel_set_in in = {
        .x = exec,
        .n = (uintptr_t)node,
        .f = function->handle,
        .grid = {p->gridDimX, p->gridDimY, p->gridDimZ},
        .block = {p->blockDimX, p->blockDimY, p->blockDimZ},
        .shared_bytes = p->sharedMemBytes,
        .params = buffer.data,
        .n_params = buffer.bytes,
    };
    CUresult result = send_kernel(&in, function);
    free(buffer.allocated);
    return result;
}

/* The driver returns pointers to its own copy of the arguments; ours is in the node's record. */
static CUresult keep_arguments(CUgraphNode node, const struct weir_guest_function *function,
                               const struct weir_op_graph_kernel_get_out *out, void ***ret_pointers)
{
    struct weir_graph_node record = {.handle = (uintptr_t)node, .type = CU_GRAPH_NODE_TYPE_KERNEL};
    WEIR_FAIL_IF(out->n_params < function->param_bytes, CUDA_ERROR_UNKNOWN);
    uint8_t *packed = malloc(out->n_params ? out->n_params : 1);
    void **pointers = calloc(function->n_params + 1, sizeof(*pointers));
    if (!packed || !pointers) {
        free(packed);
        free(pointers);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memcpy(packed, out->params, out->n_params);
    for (uint32_t i = 0; i < function->n_params; i++) {
        pointers[i] = packed + function->params[i].offset;
    }
    record.params.kernel.pointers = pointers;
    record.params.kernel.packed = packed;
    CUresult result = weir_graph_node_keep(&record);
    if (result != CUDA_SUCCESS) {
        free(packed);
        free(pointers);
        return result;
    }
    *ret_pointers = pointers;
    return CUDA_SUCCESS;
}

CUresult weir_guest_cuGraphKernelNodeGetParams_v2(CUgraphNode hNode,
                                                  CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
    WEIR_FAIL_IF(!nodeParams, CUDA_ERROR_INVALID_VALUE);
    struct weir_op_graph_kernel_get_out out;
    const struct weir_op_graph_kernel_get_in in = {.n = (uintptr_t)hNode};
    WEIR_TRY(weir_call_graph_kernel_get(weir_guest_channel(), &in, &out));
    struct weir_guest_function *function = weir_function_get((const void *)(uintptr_t)out.f);
    void **pointers;
    WEIR_FAIL_IF(!function, CUDA_ERROR_UNKNOWN);
    WEIR_TRY(keep_arguments(hNode, function, &out, &pointers));
    *nodeParams = (CUDA_KERNEL_NODE_PARAMS){
        .func = (CUfunction)(uintptr_t)out.f,
        .gridDimX = out.grid[0],
        .gridDimY = out.grid[1],
        .gridDimZ = out.grid[2],
        .blockDimX = out.block[0],
        .blockDimY = out.block[1],
        .blockDimZ = out.block[2],
        .sharedMemBytes = out.shared_bytes,
        .kernelParams = pointers,
        /* the handle by which cudart knows its kernels */
        .kern = function->library ? (CUkernel)(uintptr_t)out.f : NULL,
    };
    return CUDA_SUCCESS;
}

/* ---------------------------------------------------------------- copies */

#define COPY_FIELDS(copy, context)                                                                 \
    .c = (context), .src_kind = weir_copy_side_on_wire(&(copy).src),                               \
    .dst_kind = weir_copy_side_on_wire(&(copy).dst), .src_addr = (copy).src.address,               \
    .dst_addr = (copy).dst.address, .src_x = (copy).src.x, .src_y = (copy).src.y,                  \
    .src_z = (copy).src.z, .src_lod = (copy).src.lod, .src_pitch = (copy).src.pitch,               \
    .src_height = (copy).src.height, .dst_x = (copy).dst.x, .dst_y = (copy).dst.y,                 \
    .dst_z = (copy).dst.z, .dst_lod = (copy).dst.lod, .dst_pitch = (copy).dst.pitch,               \
    .dst_height = (copy).dst.height, .width = (copy).width, .height = (copy).height,               \
    .depth = (copy).depth

/* The node has accepted the copy: its pageable block now belongs to the (executable) graph. */
static CUresult give_block(uint64_t owner, const struct weir_graph_copy *copy)
{
    if (!copy->pageable) {
        return CUDA_SUCCESS;
    }
    struct weir_graph_set *set = weir_graph_set_of(owner);
    return set ? weir_graph_set_copy(set, &copy->host) : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult weir_guest_cuGraphAddMemcpyNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                         const CUgraphNode *dependencies, size_t numDependencies,
                                         const CUDA_MEMCPY3D *copyParams, CUcontext ctx)
{
    struct weir_guest_ctx *context;
    struct weir_graph_copy copy;
    struct addition add;
    WEIR_FAIL_IF(!copyParams, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_ctx_resolve(ctx, &context));
    WEIR_TRY(begin_add(phGraphNode, hGraph, dependencies, numDependencies, &add));
    CUresult result = weir_graph_copy_read(context, copyParams, &copy);
    if (result != CUDA_SUCCESS) {
        return end_add(result, &add, phGraphNode);
    }
    const struct weir_op_graph_add_copy_in in = {
        .g = add.graph,
        .n = add.node,
        .dependencies = add.dependencies,
        .n_dependencies = add.n_dependencies,
        COPY_FIELDS(copy, context->handle),
    };
    result = weir_call_graph_add_copy(weir_guest_channel(), &in, NULL);
    if (result == CUDA_SUCCESS) {
        result = give_block(add.graph, &copy);
    } else if (copy.pageable) {
        weir_graph_block_free(&copy.host.block);
    }
    if (result == CUDA_SUCCESS) {
        const struct weir_graph_node record = {
            .handle = add.node, .type = CU_GRAPH_NODE_TYPE_MEMCPY, .params = {.copy = *copyParams}};
        result = weir_graph_node_keep(&record);
    }
    return end_add(result, &add, phGraphNode);
}

CUresult weir_guest_node_set_copy(uint64_t exec, CUgraphNode node, const CUDA_MEMCPY3D *copyParams,
                                  CUcontext ctx)
{
    struct weir_guest_ctx *context;
    struct weir_graph_copy copy;
    WEIR_FAIL_IF(!copyParams, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_ctx_resolve(ctx, &context));
    WEIR_TRY(weir_graph_copy_read(context, copyParams, &copy));
    if (copy.pageable && !exec) {
        /* The block would belong to the node's graph, which cannot be found from the node. */
        weir_graph_block_free(&copy.host.block);
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    const struct weir_op_graph_copy_set_in in = {
        .x = exec, .n = (uintptr_t)node, COPY_FIELDS(copy, context->handle)};
    CUresult result = weir_call_graph_copy_set(weir_guest_channel(), &in, NULL);
    if (result != CUDA_SUCCESS) {
        if (copy.pageable) {
            weir_graph_block_free(&copy.host.block);
        }
        return result;
    }
    if (exec) {
        return give_block(exec, &copy);
    }
    const struct weir_graph_node record = {.handle = (uintptr_t)node,
                                           .type = CU_GRAPH_NODE_TYPE_MEMCPY,
                                           .params = {.copy = *copyParams}};
    return weir_graph_node_keep(&record);
}

/* ---------------------------------------------------------------- memsets */

CUresult weir_guest_cuGraphAddMemsetNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                         const CUgraphNode *dependencies, size_t numDependencies,
                                         const CUDA_MEMSET_NODE_PARAMS *p, CUcontext ctx)
{
    struct weir_guest_ctx *context;
    struct addition add;
    WEIR_FAIL_IF(!p, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_ctx_resolve(ctx, &context));
    WEIR_TRY(weir_register_reach(p->dst));
    WEIR_TRY(begin_add(phGraphNode, hGraph, dependencies, numDependencies, &add));
    const struct weir_op_graph_add_memset_in in = {
        .g = add.graph,
        .n = add.node,
        .dependencies = add.dependencies,
        .n_dependencies = add.n_dependencies,
        .c = context->handle,
        .dst = p->dst,
        .pitch = p->pitch,
        .value = p->value,
        .element_bytes = p->elementSize,
        .width = p->width,
        .height = p->height,
    };
    CUresult result = weir_call_graph_add_memset(weir_guest_channel(), &in, NULL);
    if (result == CUDA_SUCCESS) {
        const struct weir_graph_node record = {
            .handle = add.node, .type = CU_GRAPH_NODE_TYPE_MEMSET, .params = {.memset = *p}};
        result = weir_graph_node_keep(&record);
    }
    return end_add(result, &add, phGraphNode);
}

CUresult weir_guest_node_set_memset(uint64_t exec, CUgraphNode node,
                                    const CUDA_MEMSET_NODE_PARAMS *p, CUcontext ctx)
{
    struct weir_guest_ctx *context;
    WEIR_FAIL_IF(!p, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_ctx_resolve(ctx, &context));
    WEIR_TRY(weir_register_reach(p->dst));
    const struct weir_op_graph_memset_set_in in = {
        .x = exec,
        .n = (uintptr_t)node,
        .c = context->handle,
        .dst = p->dst,
        .pitch = p->pitch,
        .value = p->value,
        .element_bytes = p->elementSize,
        .width = p->width,
        .height = p->height,
    };
    CUresult result = weir_call_graph_memset_set(weir_guest_channel(), &in, NULL);
    if (result == CUDA_SUCCESS && !exec) {
        const struct weir_graph_node record = {
            .handle = (uintptr_t)node, .type = CU_GRAPH_NODE_TYPE_MEMSET, .params = {.memset = *p}};
        result = weir_graph_node_keep(&record);
    }
    return result;
}

/* ---------------------------------------------------------------- host functions */

CUresult weir_guest_cuGraphAddHostNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                       const CUgraphNode *dependencies, size_t numDependencies,
                                       const CUDA_HOST_NODE_PARAMS *p)
{
    struct weir_graph_function *function = NULL;
    struct addition add;
    uint64_t token;
    WEIR_FAIL_IF(!p || !p->fn, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(begin_add(phGraphNode, hGraph, dependencies, numDependencies, &add));
    struct weir_graph_set *set = weir_graph_set_of(add.graph);
    CUresult result = set ? weir_graph_function_new(p->fn, p->userData, &function, &token)
                          : CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS) {
        return end_add(result, &add, phGraphNode);
    }
    const struct weir_op_graph_add_host_in in = {
        .g = add.graph,
        .n = add.node,
        .dependencies = add.dependencies,
        .n_dependencies = add.n_dependencies,
        .token = token,
    };
    result = weir_call_graph_add_host(weir_guest_channel(), &in, NULL);
    if (result == CUDA_SUCCESS) {
        weir_graph_set_function(set, function);
    } else {
        weir_graph_function_free(function);
    }
    if (result == CUDA_SUCCESS) {
        const struct weir_graph_node record = {
            .handle = add.node, .type = CU_GRAPH_NODE_TYPE_HOST, .params = {.host = *p}};
        result = weir_graph_node_keep(&record);
    }
    return end_add(result, &add, phGraphNode);
}

/* The token of a replaced function stays until its owner is destroyed, since an earlier launch may
 * still call it. */
CUresult weir_guest_node_set_host(uint64_t exec, CUgraphNode node, const CUDA_HOST_NODE_PARAMS *p)
{
    struct weir_graph_function *function = NULL;
    struct weir_op_graph_host_set_out out;
    uint64_t token;
    WEIR_FAIL_IF(!p || !p->fn, CUDA_ERROR_INVALID_VALUE);
    struct weir_graph_set *set = weir_graph_set_of(exec ? exec : (uintptr_t)node);
    WEIR_TRY(set ? weir_graph_function_new(p->fn, p->userData, &function, &token)
                 : CUDA_ERROR_OUT_OF_MEMORY);
    const struct weir_op_graph_host_set_in in = {.x = exec, .n = (uintptr_t)node, .token = token};
    CUresult result = weir_call_graph_host_set(weir_guest_channel(), &in, &out);
    if (result != CUDA_SUCCESS) {
        weir_graph_function_free(function);
        return result;
    }
    weir_graph_set_function(set, function);
    if (exec) {
        result = weir_graph_function_replace(exec, out.replaced, function);
    }
    if (result == CUDA_SUCCESS && !exec) {
        const struct weir_graph_node record = {
            .handle = (uintptr_t)node, .type = CU_GRAPH_NODE_TYPE_HOST, .params = {.host = *p}};
        result = weir_graph_node_keep(&record);
    }
    return result;
}
