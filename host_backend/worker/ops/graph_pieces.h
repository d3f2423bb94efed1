/*
 * Launches long graphs in pieces, so that other tenants' work can run in between.
 *
 * Source: docs/design/graphs.md
 */
#pragma once

#include "host_backend/worker/session/objects.h"

/**
 * A graph was instantiated: keep a copy, from which pieces and graphs for parts (graph_parts.h) can
 * be made, if that is possible.
 * @param graph  the instantiated graph. Borrowed; the guest may change it afterwards.
 * @param flags  of the instantiation.
 * @thread session
 */
void weir_graph_pieces_keep(struct weir_session *session, struct weir_exec *exec, CUgraph graph,
                            uint64_t flags);

/**
 * Should this launch be in pieces? Makes them if they are needed. Not in another stream than the
 * last launch: the driver orders launches of the whole graph, but not of pieces.
 *
 * @param stream  the stream of the launch; not under capture.
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
 * another stream, the stream waits for its end. For launches of the graph itself the driver does
 * that.
 * @return CUDA_SUCCESS, or an error of the driver
 * @thread session
 */
CUresult weir_graph_pieces_follow(struct weir_session *session, struct weir_exec *exec,
                                  const struct weir_host_stream *stream);
