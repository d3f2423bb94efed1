/* Strongly connected parts of a directed graph. Private to ptx/. */
#ifndef WEIR_PTX_SCC_H
#define WEIR_PTX_SCC_H

#include "base/status.h"
#include <stdbool.h>
#include <stdint.h>

/* Edges of node i: to[first[i]] .. to[first[i + 1] - 1]. Borrowed. */
struct weir_ptx_graph {
    uint32_t n_nodes;
    const uint32_t *first;
    const uint32_t *to;
};

/* Owned by whoever asked; weir_ptx_parts_finish() frees it. */
struct weir_ptx_parts {
    uint32_t n_parts;
    uint32_t *part;  /* per node; a part's number is above those of all parts it has edges to */
    uint32_t *begin; /* per part and one more: index in nodes */
    uint32_t *nodes; /* by part */
    bool *is_cyclic; /* per part: more than one node, or one with an edge to itself */
};

/**
 * Find the strongly connected parts (Tarjan, without recursion); linear.
 *
 * @param ret_parts  gives them.
 * @return WEIR_OK, WEIR_ERR_NO_MEMORY
 * @thread any
 */
enum weir_status weir_ptx_parts_init(const struct weir_ptx_graph *graph,
                                     struct weir_ptx_parts *ret_parts) WEIR_MUST_CHECK;

/** Free what it holds. Accepts a zeroed one. @thread owner */
void weir_ptx_parts_finish(struct weir_ptx_parts *parts);

#endif
