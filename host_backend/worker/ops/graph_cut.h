/*
 * Cuts a graph into pieces that are launched one after the other.
 *
 * Source: docs/design/graphs.md
 */
#pragma once

#include "host_backend/worker/session/objects.h"

/**
 * Make pieces from the copy that an executable graph has kept (exec->inside), which stays.
 *
 * @param exec      has no pieces. On success it has them, and the event behind them.
 * @param n_pieces  2 or more; as many as there are nodes at most.
 * @param stream    the stream in which the pieces are uploaded; not under capture.
 * @return CUDA_SUCCESS
 * @return CUDA_ERROR_NOT_SUPPORTED   the graph cannot be divided
 * @return CUDA_ERROR_OUT_OF_MEMORY
 * @return an error of the driver
 * @thread session, holding no lock
 */
CUresult weir_graph_cut(struct weir_session *session, struct weir_exec *exec, uint32_t n_pieces,
                        CUstream stream);

/** Improve the nodes' weights for the next cut: the pieces were measured, and each piece's time is
 * divided among its nodes by their old weights. @thread session */
void weir_graph_weigh_again(struct weir_exec *exec);
