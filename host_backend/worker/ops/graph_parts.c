/* Launches graphs that are confined to a part: see graph_parts.h. */
#include "host_backend/worker/ops/graph_parts.h"

#include "base/clock.h"
#include "base/log.h"
#include "host_backend/worker/device/gates.h"
#include "host_backend/worker/ops/ops.h"
#include "host_backend/worker/session/graph_level.h"
#include "host_backend/worker/state/platform.h"

#include <stdlib.h>
#include <string.h>

bool weir_graph_parts_possible(struct weir_session *session, const struct weir_exec *exec,
                               const struct weir_host_stream *stream)
{
    return exec->inside.partable && session->n_captures == 0 && !session->prints &&
           exec->o.device == stream->o.device &&
           (exec->stream == 0 || exec->stream == stream->o.handle);
}

/* ---------------------------------------------------------------- making */

/* A graph that is being made for a part. */
struct placing {
    struct weir_session *session;
    const struct weir_part *part;
    CUgraph graph;     /* a clone of the copy */
    uint32_t n_placed; /* kernels that keep to the part */
};

static CUcontext context_of(const struct weir_session *s)
{
    return s->platform->devices[s->device].context;
}

/* Blocks that would all be on the device at once, but not on the part, may wait for each other, and
 * those of a cooperative kernel do: such a kernel keeps all SMs (as in sched/small.c). So does one
 * on another device. */
static bool suits(const struct placing *p, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params)
{
    struct weir_session *s = p->session;
    CUlaunchAttributeValue value = {.cooperative = 0};
    uint64_t sms = weir_ops_kernel_sms(s, params);

    return sms != 0 &&
           (s->platform->n_devices == 1 || !params->ctx || params->ctx == context_of(s)) &&
           (sms <= weir_part_sms(p->part) || sms > weir_worker_sms(s->worker, s->device)) &&
           s->driver->cuGraphKernelNodeGetAttribute(node, CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
                                                    &value) == CUDA_SUCCESS &&
           value.cooperative == 0;
}

/* Copy the edges of another node that lead to it, or those that leave it. */
static CUresult copy_edges(const struct placing *p, CUgraphNode of, CUgraphNode to, bool before)
{
    struct weir_graph_neighbours n = {0};
    CUresult result = weir_graph_neighbours_read(p->session->driver, of, before, &n);

    WEIR_THEN(result, weir_graph_neighbours_edit(p->session->driver, p->graph, to, &n, true));
    weir_graph_neighbours_finish(&n);
    return result;
}

/* Attributes that a program or a capture can set. cuGraphKernelNodeCopyAttributes only copies
 * between nodes of one context. */
static const CUlaunchAttributeID attributes[] = {
    CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW,
    CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
    CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE,
    CU_LAUNCH_ATTRIBUTE_PRIORITY,
    CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP,
    CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN,
    CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION,
    CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING,
    CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
};

static CUresult copy_attributes(const struct weir_driver *d, CUgraphNode from, CUgraphNode to)
{
    for (size_t i = 0; i < WEIR_COUNT(attributes); i++) {
        CUlaunchAttributeValue has, wanted;

        memset(&has, 0, sizeof has);
        memset(&wanted, 0, sizeof wanted);
        if (d->cuGraphKernelNodeGetAttribute(from, attributes[i], &wanted) == CUDA_SUCCESS &&
            d->cuGraphKernelNodeGetAttribute(to, attributes[i], &has) == CUDA_SUCCESS &&
            memcmp(has.pad, wanted.pad, sizeof has.pad) != 0) {
            WEIR_TRY(d->cuGraphKernelNodeSetAttribute(to, attributes[i], &wanted));
        }
    }
    return CUDA_SUCCESS;
}

/* Replace a node of the clone by one that belongs to the current context. */
static CUresult replace(const struct placing *p, CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *params)
{
    const struct weir_driver *d = p->session->driver;
    CUgraphNode other;

    params->ctx = NULL;
    WEIR_TRY(d->cuGraphAddKernelNode_v2(&other, p->graph, NULL, 0, params));
    WEIR_TRY(copy_attributes(d, node, other));
    WEIR_TRY(copy_edges(p, node, other, true));
    WEIR_TRY(copy_edges(p, node, other, false));
    return d->cuGraphDestroyNode(node);
}

/* @return CUDA_ERROR_NOT_SUPPORTED: the graph can be in no part */
static CUresult place_node(struct placing *p, CUgraphNode node)
{
    const struct weir_driver *d = p->session->driver;
    CUDA_KERNEL_NODE_PARAMS params;
    CUgraphNodeType type;

    WEIR_TRY(d->cuGraphNodeGetType(node, &type));
    if (type != CU_GRAPH_NODE_TYPE_KERNEL) {
        return type == CU_GRAPH_NODE_TYPE_GRAPH ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
    }
    memset(&params, 0, sizeof params);
    WEIR_TRY(d->cuGraphKernelNodeGetParams_v2(node, &params));
    if (!suits(p, node, &params)) {
        return CUDA_SUCCESS;
    }
    p->n_placed++;
    return replace(p, node, &params);
}

static CUresult place_nodes(struct placing *p, size_t n)
{
    struct weir_session *s = p->session;
    CUgraphNode *nodes = calloc(n + 1, sizeof(CUgraphNode));
    CUresult result =
        nodes ? s->driver->cuGraphGetNodes(p->graph, nodes, &n) : CUDA_ERROR_OUT_OF_MEMORY;

    WEIR_THEN(result, s->driver->cuCtxSetCurrent(weir_part_context(p->part)));
    for (size_t i = 0; i < n && result == CUDA_SUCCESS; i++) {
        result = place_node(p, nodes[i]);
    }
    (void)s->driver->cuCtxSetCurrent(context_of(s));
    free(nodes);
    return result;
}

/* @param ret_native stays NULL on failure, or if no kernel suits the part */
static CUresult make(struct weir_session *s, const struct weir_exec *exec,
                     const struct weir_part *part, CUgraphExec *ret_native)
{
    CUDA_GRAPH_INSTANTIATE_PARAMS params = {.flags = exec->inside.flags};
    struct placing p = {.session = s, .part = part};
    uint64_t start_ns = weir_clock_now_ns();

    WEIR_TRY(s->driver->cuGraphClone(&p.graph, exec->inside.graph));
    CUresult result = place_nodes(&p, exec->inside.n_nodes);
    if (result == CUDA_SUCCESS && p.n_placed != 0) {
        result = s->driver->cuGraphInstantiateWithParams(ret_native, p.graph, &params);
    }
    (void)s->driver->cuGraphDestroy(p.graph);
    weir_log_debug("graph: for a part session=%llu nodes=%u sms=%u kernels=%u result=%d us=%llu",
                   (unsigned long long)s->id, exec->inside.n_nodes, weir_part_sms(part), p.n_placed,
                   (int)result,
                   (unsigned long long)((weir_clock_now_ns() - start_ns) / WEIR_NS_PER_US));
    return result;
}

/* ---------------------------------------------------------------- launching */

static struct weir_placed_graph *find(struct weir_exec *exec, const struct weir_part *part)
{
    struct weir_placed_graph *found = NULL;

    for (uint32_t i = 0; i < WEIR_EXEC_PARTS_MAX; i++) {
        found = exec->placed[i].part == part ? &exec->placed[i] : found;
    }
    return found;
}

/* Find the graph that was launched longest ago, or a free place. */
static struct weir_placed_graph *oldest(struct weir_exec *exec)
{
    struct weir_placed_graph *oldest = &exec->placed[0];

    for (uint32_t i = 1; i < WEIR_EXEC_PARTS_MAX; i++) {
        oldest = exec->placed[i].used < oldest->used ? &exec->placed[i] : oldest;
    }
    return oldest;
}

static struct weir_placed_graph *find_or_make(struct weir_session *s, struct weir_exec *exec,
                                              struct weir_part *part)
{
    struct weir_placed_graph *graph = find(exec, part);
    CUgraphExec native = NULL;
    CUresult result = CUDA_SUCCESS;

    if (!graph) {
        if (!exec->done) {
            result = s->driver->cuEventCreate(&exec->done, CU_EVENT_DISABLE_TIMING);
        }
        WEIR_THEN(result, make(s, exec, part, &native));
        if (result == CUDA_ERROR_NOT_SUPPORTED) {
            weir_exec_not_partable(s->driver, exec);
            return NULL;
        }
        graph = oldest(exec);
        weir_placed_graph_drop(s->driver, graph);
        weir_placed_graph_keep(s, graph, part, native);
    }
    graph->used = ++exec->placed_uses;
    return graph;
}

bool weir_graph_parts_launch(struct weir_session *session, struct weir_exec *exec,
                             struct weir_part *part, CUstream at)
{
    const struct weir_driver *d = session->driver;
    struct weir_placed_graph *graph = part ? find_or_make(session, exec, part) : NULL;

    WEIR_FAIL_IF(!graph || !graph->native, false);
    if (d->cuGraphLaunch(graph->native, at) != CUDA_SUCCESS) { /* it would fail again */
        weir_placed_graph_drop(d, graph);
        weir_placed_graph_keep(session, graph, part, NULL);
        return false;
    }
    exec->was_other = true;
    (void)d->cuEventRecord(exec->done, at); /* if it fails, all later calls fail, too */
    return true;
}
