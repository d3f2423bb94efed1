/*
 * Launches graphs so that each of their kernels, copies and memsets is recorded (device/profile.h).
 *
 * Another graph is launched in place of the graph. It is made from the graph's copy at the first
 * recorded launch, and has *marks*: nodes that record an event. A mark stands behind each recorded
 * node, and what followed the node follows the mark. Another one stands before a recorded node that
 * does not follow exactly one other. So branches stay parallel, and a chain of n nodes has n + 1
 * marks.
 *
 * Source: docs/design/profiling.md
 */
#ifndef WEIR_HOST_BACKEND_WORKER_OPS_GRAPH_TIMED_H
#define WEIR_HOST_BACKEND_WORKER_OPS_GRAPH_TIMED_H

#include "host_backend/worker/session/objects.h"

/**
 * May a recorded launch be of a graph with marks? Not if the last launch was of the graph itself in
 * another stream: the driver orders launches of one executable graph, and this is another one.
 * @param stream  the stream of the launch; not under capture.
 * @thread session, before weir_graph_pieces_follow()
 */
bool weir_graph_timed_possible(const struct weir_session *session, const struct weir_exec *exec,
                               const struct weir_host_stream *stream);

/**
 * Launch the graph with marks, and make it if it does not exist.
 * @return false: nothing was launched; launch the graph itself
 * @thread session, inside weir_submit()
 */
bool weir_graph_timed_launch(struct weir_session *session, struct weir_exec *exec, CUstream at);

/** A recorded launch was of the graph itself: order what stands for it behind that launch.
 * @thread session */
void weir_graph_timed_passed(struct weir_session *session, struct weir_exec *exec, CUstream at);

#endif
