/*
 * The managed memory that a graph names: addresses among its kernels' arguments, and those of its
 * copies and fills. A launch of the graph uses it (memory/managed_paging.c), as a launch of a
 * kernel does. The driver does not show the nodes of an executable graph, so this is read from the
 * graph that is instantiated, and kept node by node.
 *
 * Not known is what the bodies of conditional nodes name, and what child graphs name that were
 * changed in an executable graph.
 */
#pragma once

#include "host_backend/worker/session/objects.h"

/** An executable graph was made of a graph, or updated from it. @thread session */
void weir_graph_names_read(struct weir_session *session, struct weir_exec *exec, CUgraph graph);

/**
 * A node of an executable graph has got other parameters.
 * @param exec  its handle, which is valid.
 * @param node  the one in the graph.
 * @param words  all addresses are among them, `bytes` of them.
 * @thread session
 */
void weir_graph_names_set(struct weir_session *session, uint64_t exec, CUgraphNode node,
                          const void *words, size_t bytes);
/** The same for a copy. @thread session */
void weir_graph_names_copy_set(struct weir_session *session, uint64_t exec, CUgraphNode node,
                               const CUDA_MEMCPY3D *copy);
