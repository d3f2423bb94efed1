/* Strongly connected parts of a directed graph. Private to ptx/. */
#pragma once

#include "base/status.h"
#include <stdbool.h>
#include <stdint.h>

/* Edges of node i: to[first[i]] .. to[first[i + 1] - 1]. Borrowed. */
struct weir_ptx_graph {
    uint32_t n_nodes;
    const uint32_t *first;
    const uint32_t *to;
};

/* Owned by the caller; weir_ptx_parts_finish() frees it. */
struct weir_ptx_parts {
    uint32_t n_parts;
    uint32_t *part;  /* each node's part; a part's number is above those of its successors */
    uint32_t *begin; /* index in nodes for each part, and one more */
    uint32_t *nodes; /* by part */
    bool *is_cyclic; /* the part has more than one node, or an edge from its node to itself */
};

/**
 * Find the strongly connected parts (Tarjan, without recursion); linear.
 *
 * @param ret_parts  gives the parts.
 * @return WEIR_OK, WEIR_ERR_NO_MEMORY
 * @thread any
 */
enum weir_status weir_ptx_parts_init(const struct weir_ptx_graph *graph,
                                     struct weir_ptx_parts *ret_parts) WEIR_MUST_CHECK;

/** Free the arrays. Accepts a zeroed struct. @thread owner */
void weir_ptx_parts_finish(struct weir_ptx_parts *parts);
