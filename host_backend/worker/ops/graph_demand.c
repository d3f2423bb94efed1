/*
 * Estimates what a graph and its nodes need.
 *
 * How many SMs a graph needs: the mean, over its kernels and those of its child graphs, of the SMs
 * that would hold all blocks of the kernel at once. The kernels of most graphs run one after
 * another. So the mean is what the graph occupies while it runs; the maximum would only describe
 * its largest kernel. For a graph with conditional nodes the need is unknown.
 *
 * An executable graph needs no more than the graph that it was made of, or updated from, until one
 * of its kernels gets more blocks than it had there. Then its need is unknown, since the driver
 * does not show the kernels of an executable graph.
 *
 * How long a node takes, compared with others of its graph: as many units as its kernel has waves
 * of blocks. That is a guess for the first cut of a graph (graph_pieces.c).
 */
#include "host_backend/worker/device/gates.h"
#include "host_backend/worker/ops/ops.h"
#include "host_backend/worker/session/graph_level.h"

#include <string.h>

/* Count a kernel's blocks, and how many of them fit on an SM. false: unknown. */
static bool count_blocks(struct weir_session *s, const CUDA_KERNEL_NODE_PARAMS *params,
                         uint64_t *ret_blocks, uint32_t *ret_per_sm)
{
    const struct weir_driver *d = s->driver;
    CUfunction function = params->func;
    int per_sm = 0;

    if ((!function && d->cuKernelGetFunction(&function, params->kern) != CUDA_SUCCESS) ||
        d->cuOccupancyMaxActiveBlocksPerMultiprocessor(
            &per_sm, function, (int)(params->blockDimX * params->blockDimY * params->blockDimZ),
            params->sharedMemBytes) != CUDA_SUCCESS ||
        per_sm <= 0) {
        return false;
    }
    *ret_blocks = (uint64_t)params->gridDimX * params->gridDimY * params->gridDimZ;
    *ret_per_sm = (uint32_t)per_sm;
    return true;
}

uint64_t weir_ops_kernel_sms(struct weir_session *s, const CUDA_KERNEL_NODE_PARAMS *params)
{
    uint64_t blocks;
    uint32_t per_sm;

    return count_blocks(s, params, &blocks, &per_sm) ? (blocks + per_sm - 1) / per_sm : 0;
}

/* The SMs that a kernel needs: at most all of them, and all if unknown. */
static uint32_t kernel_sms(struct weir_session *s, const CUDA_KERNEL_NODE_PARAMS *params)
{
    uint64_t all = weir_worker_sms(s->worker, s->device), sms = weir_ops_kernel_sms(s, params);

    return (uint32_t)(sms != 0 && sms < all ? sms : all);
}

static bool is_kernel(struct weir_session *s, CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *ret_params)
{
    CUgraphNodeType type;

    memset(ret_params, 0, sizeof *ret_params);
    return s->driver->cuGraphNodeGetType(node, &type) == CUDA_SUCCESS &&
           type == CU_GRAPH_NODE_TYPE_KERNEL &&
           s->driver->cuGraphKernelNodeGetParams_v2(node, ret_params) == CUDA_SUCCESS;
}

uint64_t weir_ops_node_weight(struct weir_session *s, CUgraphNode node)
{
    CUDA_KERNEL_NODE_PARAMS params;
    uint64_t blocks, at_once;
    uint32_t per_sm;
    CUgraph child;
    size_t n = 0;

    if (is_kernel(s, node, &params) && count_blocks(s, &params, &blocks, &per_sm)) {
        at_once = (uint64_t)per_sm * weir_worker_sms(s->worker, s->device);
        return blocks > at_once ? (blocks + at_once - 1) / at_once : 1;
    }
    if (s->driver->cuGraphChildGraphNodeGetGraph(node, &child) == CUDA_SUCCESS &&
        s->driver->cuGraphGetNodes(child, NULL, &n) == CUDA_SUCCESS && n > 1) {
        return n;
    }
    return 1;
}

struct demand {
    struct weir_session *session;
    uint64_t sms; /* sum over all kernels */
    uint32_t kernels;
};

/* @return false: what the node needs is unknown */
static bool add_node(CUgraphNode node, CUgraphNodeType type, void *user)
{
    struct demand *demand = user;
    struct weir_session *s = demand->session;
    CUDA_KERNEL_NODE_PARAMS params;

    if (type == CU_GRAPH_NODE_TYPE_KERNEL) {
        demand->sms += is_kernel(s, node, &params) ? kernel_sms(s, &params)
                                                   : weir_worker_sms(s->worker, s->device);
        demand->kernels++;
    }
    return type != CU_GRAPH_NODE_TYPE_CONDITIONAL;
}

uint32_t weir_ops_graph_sms(struct weir_session *s, CUgraph graph)
{
    struct demand demand = {.session = s};

    return weir_graph_visit(s->driver, graph, add_node, &demand) && demand.kernels != 0
               ? (uint32_t)((demand.sms + demand.kernels - 1) / demand.kernels)
               : 0;
}

void weir_ops_graph_sms_updated(struct weir_session *s, struct weir_exec *exec, CUgraph graph)
{
    exec->sms = weir_admission_is_small(s, 1) ? weir_ops_graph_sms(s, graph) : 0;
    exec->updated = true;
}

static bool needs_more(struct weir_session *s, const CUDA_KERNEL_NODE_PARAMS *now,
                       const CUDA_KERNEL_NODE_PARAMS *before)
{
    /* Most updates only change arguments. */
    return (now->func != before->func || now->gridDimX != before->gridDimX ||
            now->gridDimY != before->gridDimY || now->gridDimZ != before->gridDimZ ||
            now->blockDimX != before->blockDimX || now->blockDimY != before->blockDimY ||
            now->blockDimZ != before->blockDimZ || now->sharedMemBytes != before->sharedMemBytes) &&
           kernel_sms(s, now) > kernel_sms(s, before);
}

void weir_ops_graph_sms_set(struct weir_session *s, struct weir_exec *exec,
                            const struct weir_object *node, const CUDA_KERNEL_NODE_PARAMS *params)
{
    CUDA_KERNEL_NODE_PARAMS before;

    if (exec->sms != 0 && (exec->updated || node->altered || !is_kernel(s, node->native, &before) ||
                           needs_more(s, params, &before))) {
        exec->sms = 0;
    }
}
