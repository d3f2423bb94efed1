/*
 * Divide a graph's nodes into pieces that can run one after the other. Works on plain data, without
 * a driver.
 *
 * Source: docs/design/graphs.md
 */
#pragma once

#include <stdint.h>

/* Node to[i] depends on node from[i]. Borrowed. */
struct weir_graph_shape {
    uint32_t n_nodes, n_edges;
    const uint32_t *from, *to; /* below n_nodes */
    const uint64_t *weights;   /* each node's weight, 1 or more; only the ratios matter */
};

/**
 * Divide the nodes into pieces of about equal weight.
 *
 * No edge leads from a later piece to an earlier one, so running the pieces in their order keeps
 * all dependencies. Nodes that the graph would run at the same time mostly share a piece.
 *
 * @param n_pieces      1 or more.
 * @param ret_piece_of  n_nodes of them: each node's piece. No piece is empty.
 * @return how many pieces there are: n_pieces, or fewer if there are fewer places to cut
 * @return 0  no memory, no nodes, or the edges form a circle
 * @thread any
 */
uint32_t weir_graph_split(const struct weir_graph_shape *shape, uint32_t n_pieces,
                          uint32_t *ret_piece_of);
