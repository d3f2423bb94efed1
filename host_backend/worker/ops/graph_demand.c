/*
 * How many SMs a graph needs: the mean, over its kernels, of the SMs that would hold all blocks of
 * the kernel at once. The kernels of most graphs run one after another. So the mean says what the
 * graph occupies while it runs, and the maximum says only what its largest kernel does.
 */
#include "host_backend/worker/ops/ops.h"
#include "host_backend/worker/session/gates.h"

#include <stdlib.h>

#define NODES_MAX 65536u /* of a graph that is looked at */

/* SMs that hold all blocks of a kernel node at once; 0: another node, or not known. */
static uint32_t node_sms(struct weir_session *s, CUgraphNode node, uint32_t all)
{
    const struct weir_driver *d = s->driver;
    CUDA_KERNEL_NODE_PARAMS params;
    CUgraphNodeType type;
    uint64_t blocks;
    int per_sm = 0;

    if (d->cuGraphNodeGetType(node, &type) != CUDA_SUCCESS || type != CU_GRAPH_NODE_TYPE_KERNEL ||
        d->cuGraphKernelNodeGetParams_v2(node, &params) != CUDA_SUCCESS ||
        (params.func == NULL &&
         d->cuKernelGetFunction(&params.func, params.kern) != CUDA_SUCCESS) ||
        d->cuOccupancyMaxActiveBlocksPerMultiprocessor(
            &per_sm, params.func, (int)(params.blockDimX * params.blockDimY * params.blockDimZ),
            params.sharedMemBytes) != CUDA_SUCCESS ||
        per_sm <= 0) {
        return 0;
    }
    blocks = (uint64_t)params.gridDimX * params.gridDimY * params.gridDimZ;
    blocks = (blocks + (uint32_t)per_sm - 1) / (uint32_t)per_sm;
    return blocks < all ? (uint32_t)blocks : all;
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
