/*
 * Launches of graphs that keep to a part of the device's SMs.
 *
 * A graph does not run in a stream of a green context. But a kernel node that is added while the
 * green context is current has that part's SMs, whatever stream the graph is launched into; a node
 * keeps its context for ever (H200, driver 580). So where a graph is first granted a part, its copy
 * (exec->inside) is cloned with other kernel nodes, and what is instantiated from the clone is
 * launched in the place of the graph.
 *
 * Source: docs/design/graphs.md
 */
#ifndef WEIR_HOST_BACKEND_WORKER_OPS_GRAPH_PARTS_H
#define WEIR_HOST_BACKEND_WORKER_OPS_GRAPH_PARTS_H

#include "host_backend/worker/session/objects.h"

/**
 * May this launch keep to a part? Not into another stream than the last time: the driver has
 * launches of one executable graph wait for each other, and these would be of another one.
 *
 * @param stream  where it goes; not under capture.
 * @thread session
 */
bool weir_graph_parts_possible(struct weir_session *session, const struct weir_exec *exec,
                               const struct weir_host_stream *stream);

/**
 * Launch what stands for the graph in a part. Makes it if it is not there; of those of the graph
 * the one that was unused for longest goes.
 *
 * @param part  NULL: no part.
 * @param at    of the primary context.
 * @return false: nothing was launched; the graph is to have all SMs
 * @thread session
 */
bool weir_graph_parts_launch(struct weir_session *session, struct weir_exec *exec,
                             struct weir_part *part, CUstream at);

#endif
