/*
 * Launches of graphs in pieces, so that a long graph does not hold the GPU to its end.
 *
 * Source: docs/design/graphs.md
 */
#ifndef WEIR_HOST_BACKEND_WORKER_OPS_GRAPH_PIECES_H
#define WEIR_HOST_BACKEND_WORKER_OPS_GRAPH_PIECES_H

#include "host_backend/worker/session/objects.h"

/**
 * A graph was instantiated: keep what pieces of it, and graphs for parts (graph_parts.h), can be
 * made of, if it can be cut or kept to a part.
 * @param graph  what was instantiated. Borrowed; the guest may change it afterwards.
 * @param flags  of the instantiation.
 * @thread session
 */
void weir_graph_pieces_keep(struct weir_session *session, struct weir_exec *exec, CUgraph graph,
                            uint64_t flags);

/**
 * Should this launch be in pieces? Makes them if they are needed and not there. Not into another
 * stream than the last time: the whole waits for the last whole, pieces would not.
 *
 * @param stream  where it goes; not under capture.
 * @thread session, holding no lock
 */
bool weir_graph_pieces_wanted(struct weir_session *session, struct weir_exec *exec,
                              const struct weir_host_stream *stream);

/**
 * Launch the pieces in order. After each of them the gate may let other tenants' work go first.
 * @return as weir_submit(); the pieces before the one that failed were launched
 * @thread session, holding no lock
 */
CUresult weir_graph_pieces_launch(struct weir_session *session, struct weir_exec *exec,
                                  struct weir_host_stream *stream);

/**
 * Call this before each launch of the graph. If its last launch was in pieces or in a part, in
 * another stream, that may not have ended yet: the stream waits for it. The driver itself does that
 * for launches of the graph itself.
 * @return CUDA_SUCCESS, or the driver's
 * @thread session
 */
CUresult weir_graph_pieces_follow(struct weir_session *session, struct weir_exec *exec,
                                  const struct weir_host_stream *stream);

#endif
