/*
 * The priorities of a graph's kernels.
 *
 * With CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY, for which PyTorch always asks, each kernel of
 * a graph has the priority of the stream that it was captured from, whatever stream the graph is
 * launched into. If all kernels have the same priority, a graph without the flag runs in the same
 * way in a stream of that priority, and the scheduler can choose a level for each launch. So such a
 * graph is instantiated without the flag.
 *
 * Source: docs/design/scheduling.md
 */
#pragma once

#include "host_backend/worker/session/objects.h"

/**
 * A graph is about to be instantiated: find the flags to use, and the priority of its kernels.
 * @param flags the guest's.
 * @param ret_priority for the executable graph.
 * @return flags, or without USE_NODE_PRIORITY
 * @thread session
 */
uint64_t weir_graph_priority_flags(struct weir_session *session, CUgraph graph, uint64_t flags,
                                   struct weir_exec_priority *ret_priority);

/** Take the priority of an executable graph from the graph that it was updated from. If the kernels
 * of that graph have different priorities, all of them get the highest. @thread session */
void weir_graph_priority_updated(struct weir_session *session, struct weir_exec *exec,
                                 CUgraph graph);

/** The value of weir_submission.priority for a launch of the graph. @thread session */
static inline const int *weir_graph_priority_asked(const struct weir_exec *exec)
{
    return exec->priority.by_stream ? &exec->priority.asked : NULL;
}

/** The graph's flags for the gate (enum weir_sched_item_flags). @thread session */
static inline uint32_t weir_graph_priority_work_flags(const struct weir_exec *exec)
{
    return exec->priority.of_nodes ? WEIR_SCHED_OWN_LEVELS : 0;
}
