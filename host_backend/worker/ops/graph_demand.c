/*
 * What a graph and its nodes need.
 *
 * How many SMs a graph needs: the mean, over its kernels, of the SMs that would hold all blocks of
 * the kernel at once. The kernels of most graphs run one after another. So the mean says what the
 * graph occupies while it runs, and the maximum says only what its largest kernel does.
 *
 * How long a node takes, compared with others of its graph: as many units as its kernel has waves
 * of blocks. That is a guess for the first cut of a graph (graph_pieces.c).
 */
#include "host_backend/worker/ops/ops.h"
#include "host_backend/worker/session/gates.h"

#include <stdlib.h>

#define NODES_MAX 65536u /* of a graph that is looked at */

/* How many blocks a kernel node has, and how many of them fit on an SM. false: it is another node,
 * or that is not known. */
static bool count_blocks(struct weir_session *s, CUgraphNode node, uint64_t *ret_blocks,
                         uint32_t *ret_per_sm)
{
    const struct weir_driver *d = s->driver;
    CUDA_KERNEL_NODE_PARAMS params;
    CUgraphNodeType type;
    int per_sm = 0;

    if (d->cuGraphNodeGetType(node, &type) != CUDA_SUCCESS || type != CU_GRAPH_NODE_TYPE_KERNEL ||
        d->cuGraphKernelNodeGetParams_v2(node, &params) != CUDA_SUCCESS ||
        (params.func == NULL &&
         d->cuKernelGetFunction(&params.func, params.kern) != CUDA_SUCCESS) ||
        d->cuOccupancyMaxActiveBlocksPerMultiprocessor(
            &per_sm, params.func, (int)(params.blockDimX * params.blockDimY * params.blockDimZ),
            params.sharedMemBytes) != CUDA_SUCCESS ||
        per_sm <= 0) {
        return false;
    }
    *ret_blocks = (uint64_t)params.gridDimX * params.gridDimY * params.gridDimZ;
    *ret_per_sm = (uint32_t)per_sm;
    return true;
}

/* SMs that hold all blocks of a kernel node at once; 0: another node, or not known. */
static uint32_t node_sms(struct weir_session *s, CUgraphNode node, uint32_t all)
{
    uint64_t blocks;
    uint32_t per_sm;

    if (!count_blocks(s, node, &blocks, &per_sm)) {
        return 0;
    }
    blocks = (blocks + per_sm - 1) / per_sm;
    return blocks < all ? (uint32_t)blocks : all;
}

uint64_t weir_ops_node_weight(struct weir_session *s, CUgraphNode node)
{
    uint64_t blocks, at_once;
    uint32_t per_sm;
    CUgraph child;
    size_t n = 0;

    if (count_blocks(s, node, &blocks, &per_sm)) {
        at_once = (uint64_t)per_sm * weir_worker_sms(s->worker, s->device);
        return blocks > at_once ? (blocks + at_once - 1) / at_once : 1;
    }
    if (s->driver->cuGraphChildGraphNodeGetGraph(node, &child) == CUDA_SUCCESS &&
        s->driver->cuGraphGetNodes(child, NULL, &n) == CUDA_SUCCESS && n > 1) {
        return n;
    }
    return 1;
}

uint32_t weir_ops_graph_sms(struct weir_session *s, CUgraph graph)
{
    uint32_t all = weir_worker_sms(s->worker, s->device), kernels = 0;
    uint64_t sum = 0;
    CUgraphNode *nodes;
    size_t n = 0;

    if (s->driver->cuGraphGetNodes(graph, NULL, &n) != CUDA_SUCCESS || n == 0 || n > NODES_MAX ||
        (nodes = calloc(n, sizeof(CUgraphNode))) == NULL) {
        return 0;
    }
    if (s->driver->cuGraphGetNodes(graph, nodes, &n) == CUDA_SUCCESS) {
        for (size_t i = 0; i < n; i++) {
            uint32_t sms = node_sms(s, nodes[i], all);

            sum += sms;
            kernels += sms != 0;
        }
    }
    free(nodes);
    return kernels != 0 ? (uint32_t)((sum + kernels - 1) / kernels) : 0;
}
