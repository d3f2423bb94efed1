/* Conditional graph nodes: their handles, and their bodies, which are graphs. */
#include "guest_lib/graph.h"
#include "proto/guest_calls.h"
#include <stdlib.h>

#define MAX_DEPENDENCIES 4096
#define MAX_BODIES       64

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
        } else {
            weir_graph_node_own(in.g, in.n);
        }
    }
    for (uint32_t i = 0; result == CUDA_SUCCESS && i < params->size && i < out.n_graphs; i++) {
        uint64_t body = out.graphs[i];
        bodies[i] = (CUgraph)(uintptr_t)body;
        result = weir_guest_adopt(WEIR_KIND_GRAPH, &body, 1);
        /* The whole graph owns functions and copies of the body: both are destroyed together. */
        result = result == CUDA_SUCCESS && weir_graph_set_of(body)
                     ? weir_graph_set_include((uintptr_t)graph, body)
                     : CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result == CUDA_SUCCESS) {
        const struct weir_graph_node record = {.handle = in.n,
                                               .type = CU_GRAPH_NODE_TYPE_CONDITIONAL,
                                               .n_bodies = params->size,
                                               .params = {.bodies = bodies}};
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
