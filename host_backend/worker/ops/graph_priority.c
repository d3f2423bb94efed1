/* Finds the priorities of a graph's kernels: see graph_priority.h. */
#include "host_backend/worker/ops/graph_priority.h"

#include "host_backend/worker/session/graph_level.h"
#include "host_backend/worker/state/session.h"

/* Native priorities of kernels: a smaller number is more urgent. */
struct span {
    const struct weir_driver *driver;
    int least, greatest; /* valid if any */
    bool any;
};

/* @return false: the priorities of the node's kernels are unknown */
static bool add_node(CUgraphNode node, CUgraphNodeType type, void *user)
{
    CUkernelNodeAttrValue value = {.priority = 0};
    struct span *span = user;

    if (type != CU_GRAPH_NODE_TYPE_KERNEL) {
        return type != CU_GRAPH_NODE_TYPE_CONDITIONAL;
    }
    if (span->driver->cuGraphKernelNodeGetAttribute(node, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value) !=
        CUDA_SUCCESS) {
        return false;
    }
    span->least = !span->any || value.priority > span->least ? value.priority : span->least;
    span->greatest =
        !span->any || value.priority < span->greatest ? value.priority : span->greatest;
    span->any = true;
    return true;
}

uint64_t weir_graph_priority_flags(struct weir_session *session, CUgraph graph, uint64_t flags,
                                   struct weir_exec_priority *ret_priority)
{
    struct span span = {.driver = session->driver};

    *ret_priority = (struct weir_exec_priority){0};
    if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY) == 0) {
        return flags;
    }
    ret_priority->of_nodes = true;
    if (!weir_admission_has_levels(session)) {
        return flags;
    }
    if (!weir_graph_visit(session->driver, graph, add_node, &span) || !span.any ||
        span.least != span.greatest) {
        return flags;
    }
    *ret_priority = (struct weir_exec_priority){
        .by_stream = true, .asked = weir_admission_asked_priority(session, span.least)};
    return flags & ~(uint64_t)CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
}

void weir_graph_priority_updated(struct weir_session *session, struct weir_exec *exec,
                                 CUgraph graph)
{
    struct span span = {.driver = session->driver};

    if (!exec->priority.by_stream) {
        return;
    }
    (void)weir_graph_visit(session->driver, graph, add_node, &span);
    if (span.any) {
        exec->priority.asked = weir_admission_asked_priority(session, span.greatest);
    }
}
