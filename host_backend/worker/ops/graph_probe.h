/*
 * How long a graph takes at most, by the GPU's clock. The scheduler learns durations of work that
 * had the device for itself; where tenants do not share a context and a graph takes longer than
 * others are made to wait, that may never be. A graph of which nothing is known would not be cut.
 *
 * Source: docs/design/graphs.md
 */
#ifndef WEIR_HOST_BACKEND_WORKER_OPS_GRAPH_PROBE_H
#define WEIR_HOST_BACKEND_WORKER_OPS_GRAPH_PROBE_H

#include "host_backend/worker/session/objects.h"

/**
 * The driver's launch of the whole, with a time taken if that is needed.
 * @return the driver's
 * @thread session
 */
CUresult weir_graph_probe_launch(struct weir_session *session, struct weir_exec *exec, CUstream at);

/**
 * What the graph takes: by the scheduler's prediction; without one, at most so long by the times
 * that were taken.
 * @return 0: not known
 * @thread session
 */
uint64_t weir_graph_probe_ns(struct weir_session *session, struct weir_exec *exec);

#endif
