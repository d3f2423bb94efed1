/*
 * Cuts a graph into pieces that are launched one after the other.
 *
 * Source: docs/design/graphs.md
 */
#ifndef WEIR_HOST_BACKEND_WORKER_OPS_GRAPH_CUT_H
#define WEIR_HOST_BACKEND_WORKER_OPS_GRAPH_CUT_H

#include "host_backend/worker/session/objects.h"

/**
 * Make pieces of what an executable graph has kept (exec->inside), which stays.
 *
 * @param exec      has no pieces. Gets them, and the event behind them, if this succeeds.
 * @param n_pieces  2 or more; as many as there are nodes at most.
 * @param stream    the pieces are uploaded in; not under capture.
 * @return CUDA_SUCCESS
 * @return CUDA_ERROR_NOT_SUPPORTED   it cannot be divided
 * @return CUDA_ERROR_OUT_OF_MEMORY
 * @return the driver's
 * @thread session, holding no lock
 */
CUresult weir_graph_cut(struct weir_session *session, struct weir_exec *exec, uint32_t n_pieces,
                        CUstream stream);

/** The pieces were measured: what a piece took is what its nodes took, by the weights that they
 * had. For the next cut. @thread session */
void weir_graph_weigh_again(struct weir_exec *exec);

#endif
