/*
 * Measures an upper bound of a graph's duration, by the GPU's clock. The scheduler learns durations
 * only from work that had the device for itself. If tenants do not share a context and a graph is
 * longer than others' longest wait, that may never happen, and a graph of unknown duration would
 * not be cut.
 *
 * Source: docs/design/graphs.md
 */
#pragma once

#include "host_backend/worker/session/objects.h"

/**
 * Launch the whole graph, and measure its time if that is needed.
 * @return an error of the driver
 * @thread session
 */
CUresult weir_graph_probe_launch(struct weir_session *session, struct weir_exec *exec, CUstream at);

/**
 * The graph's duration, as the scheduler predicts it; without a prediction, the measured upper
 * bound.
 * @return 0: not known
 * @thread session
 */
uint64_t weir_graph_probe_ns(struct weir_session *session, struct weir_exec *exec);
