/* Finds the priorities of a graph's kernels: see graph_priority.h. */
#include "host_backend/worker/ops/graph_priority.h"

#include "host_backend/worker/ops/graph_level.h"
#include "host_backend/worker/state/session.h"

#include <stdlib.h>

/* Native priorities of kernels: a smaller number is more urgent. */
struct span {
    int least, greatest; /* valid if any */
    bool any;
    bool unknown; /* a node was not examined or not understood */
};

static void look_at_graph(const struct weir_driver *d, CUgraph graph, unsigned depth,
                          struct span *span);

static void look_at_node(const struct weir_driver *d, CUgraphNode node, unsigned depth,
                         struct span *span)
{
    CUkernelNodeAttrValue value = {.priority = 0};
    CUgraphNodeType type;
    CUgraph child;

    if (d->cuGraphNodeGetType(node, &type) != CUDA_SUCCESS) {
        span->unknown = true;
    } else if (type == CU_GRAPH_NODE_TYPE_GRAPH) {
        if (d->cuGraphChildGraphNodeGetGraph(node, &child) == CUDA_SUCCESS) {
            look_at_graph(d, child, depth + 1, span);
        } else {
            span->unknown = true;
        }
    } else if (type == CU_GRAPH_NODE_TYPE_CONDITIONAL ||
               (type == CU_GRAPH_NODE_TYPE_KERNEL &&
                d->cuGraphKernelNodeGetAttribute(node, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value) !=
                    CUDA_SUCCESS)) {
        span->unknown = true;
    } else if (type == CU_GRAPH_NODE_TYPE_KERNEL) {
        span->least = !span->any || value.priority > span->least ? value.priority : span->least;
        span->greatest =
            !span->any || value.priority < span->greatest ? value.priority : span->greatest;
        span->any = true;
    }
}

/* Read a graph's priorities. The recursion is as deep as child graphs are nested,
 * WEIR_GRAPH_DEPTH_MAX. */
static void look_at_graph(const struct weir_driver *d, CUgraph graph, unsigned depth,
                          struct span *span)
{
    CUgraphNode *nodes = NULL;
    size_t n = 0;
    bool known = depth < WEIR_GRAPH_DEPTH_MAX &&
                 d->cuGraphGetNodes(graph, NULL, &n) == CUDA_SUCCESS && n <= WEIR_GRAPH_NODES_MAX;

    if (known && n != 0) {
        nodes = calloc(n, sizeof(CUgraphNode));
        known = nodes && d->cuGraphGetNodes(graph, nodes, &n) == CUDA_SUCCESS;
    }
    span->unknown |= !known;
    for (size_t i = 0; i < n && !span->unknown; i++) {
        look_at_node(d, nodes[i], depth, span);
    }
    free(nodes);
}

uint64_t weir_graph_priority_flags(struct weir_session *session, CUgraph graph, uint64_t flags,
                                   struct weir_exec_priority *ret_priority)
{
    struct span span = {0};

    *ret_priority = (struct weir_exec_priority){0};
    if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY) == 0) {
        return flags;
    }
    ret_priority->of_nodes = true;
    if (!weir_admission_has_levels(session)) {
        return flags;
    }
    look_at_graph(session->driver, graph, 0, &span);
    if (span.unknown || !span.any || span.least != span.greatest) {
        return flags;
    }
    *ret_priority = (struct weir_exec_priority){
        .by_stream = true, .asked = weir_admission_asked_priority(session, span.least)};
    return flags & ~(uint64_t)CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
}

void weir_graph_priority_updated(struct weir_session *session, struct weir_exec *exec,
                                 CUgraph graph)
{
    struct span span = {0};

    if (!exec->priority.by_stream) {
        return;
    }
    look_at_graph(session->driver, graph, 0, &span);
    if (span.any) {
        exec->priority.asked = weir_admission_asked_priority(session, span.greatest);
    }
}
