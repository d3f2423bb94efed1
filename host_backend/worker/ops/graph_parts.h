/*
 * Launches graphs that are confined to a part of the device's SMs.
 *
 * A graph does not run in a stream of a green context. But a kernel node that is added while the
 * green context is current has that part's SMs, whatever stream the graph is launched into; a node
 * keeps its context for ever (H200, driver 580). So when a graph is first granted a part, its copy
 * (exec->inside) is cloned with other kernel nodes. The clone is instantiated, and launched in
 * place of the graph.
 *
 * Source: docs/design/graphs.md
 */
#pragma once

#include "host_backend/worker/session/objects.h"

/**
 * May this launch be confined to a part? Not in another stream than the last launch: the driver
 * orders launches of one executable graph, and this would be another one.
 *
 * @param stream  the stream of the launch; not under capture.
 * @thread session
 */
bool weir_graph_parts_possible(struct weir_session *session, const struct weir_exec *exec,
                               const struct weir_host_stream *stream);

/**
 * Launch the graph made for a part, and make it if it does not exist; it replaces the least
 * recently used one of the graph.
 *
 * @param part  NULL: no part.
 * @param at    the stream, of the primary context.
 * @return false: nothing was launched; launch the graph on all SMs
 * @thread session
 */
bool weir_graph_parts_launch(struct weir_session *session, struct weir_exec *exec,
                             struct weir_part *part, CUstream at);
