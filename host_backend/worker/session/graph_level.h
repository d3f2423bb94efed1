/* The nodes and edges of one graph, read from the driver. Child graphs are nodes of it. */
#pragma once

#include "proto/cuda_abi.h"
#include "proto/driver_table.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WEIR_GRAPH_NODES_MAX 262144u /* largest number of nodes of a graph that is read */
#define WEIR_GRAPH_EDGES_MAX 1048576u
#define WEIR_GRAPH_DEPTH_MAX 16 /* levels of child graphs within child graphs */
#define WEIR_GRAPH_NO_NODE   UINT32_MAX

/* Owned by the caller. Zeroed: empty. */
struct weir_graph_level {
    CUgraphNode *nodes;     /* sorted by address */
    CUgraphNode *from, *to; /* edge i leads from from[i] to to[i] */
    size_t n_nodes, n_edges;
};

/**
 * Read a graph.
 *
 * @param ret_level  zeroed; call weir_graph_level_finish() also on failure.
 * @return CUDA_SUCCESS, CUDA_ERROR_OUT_OF_MEMORY
 * @return CUDA_ERROR_NOT_SUPPORTED  the graph has more nodes or edges than the limits above
 * @return an error of the driver
 * @thread session
 */
CUresult weir_graph_level_read(const struct weir_driver *driver, CUgraph graph,
                               struct weir_graph_level *ret_level);

/** Free what was read. @thread session */
void weir_graph_level_finish(struct weir_graph_level *level);

/** Called for a node of a graph. @return false: visit no more */
typedef bool weir_graph_visit_fn(CUgraphNode node, CUgraphNodeType type, void *user);

/**
 * Visit the nodes of a graph and of its child graphs, which are nodes themselves.
 * @return false: visit() has returned false; or the driver does not show a node, or there are more
 *         than WEIR_GRAPH_NODES_MAX of them or WEIR_GRAPH_DEPTH_MAX levels
 * @thread session
 */
bool weir_graph_visit(const struct weir_driver *driver, CUgraph graph, weir_graph_visit_fn *visit,
                      void *user);

/* The nodes that a node depends on, or those that depend on it. Owned. Zeroed: none. */
struct weir_graph_neighbours {
    CUgraphNode *nodes, *same; /* same: room for the other end of each edge */
    CUgraphEdgeData *edges;
    size_t n;
    bool before; /* edges lead from nodes[] */
};

/** Read a node's neighbours. @param before those that it depends on. @param ret zeroed; call
 * weir_graph_neighbours_finish() also on failure.
 * @return as weir_graph_level_read(); CUDA_ERROR_NOT_SUPPORTED: a driver before CUDA 12.3
 * @thread session */
CUresult weir_graph_neighbours_read(const struct weir_driver *driver, CUgraphNode node, bool before,
                                    struct weir_graph_neighbours *ret);

/** Add edges of the same kinds between a node and all neighbours of another one, or remove its own.
 * @param node  to add: any node of the graph; to remove: the one whose neighbours they are.
 * @thread session */
CUresult weir_graph_neighbours_edit(const struct weir_driver *driver, CUgraph graph,
                                    CUgraphNode node,
                                    const struct weir_graph_neighbours *neighbours, bool add);

/** Free what was read. @thread session */
void weir_graph_neighbours_finish(struct weir_graph_neighbours *neighbours);

/** A node's index in level->nodes, or WEIR_GRAPH_NO_NODE. @thread session */
uint32_t weir_graph_level_find(const struct weir_graph_level *level, CUgraphNode node);
