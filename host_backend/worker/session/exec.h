/*
 * The type of executable graphs. One may hold, besides the driver's handle, a copy of its graph,
 * the pieces that it is launched in where a launch of the whole would hold the GPU for too long,
 * and executable graphs whose kernels are confined to a part of the SMs. This file stores and frees
 * them; ops/graph_pieces.c and ops/graph_parts.c make and launch them.
 *
 * Source: docs/design/graphs.md
 */
#pragma once

#include "host_backend/gate/gate.h"
#include "host_backend/worker/device/place.h"
#include "host_backend/worker/state/object.h"
#include "proto/cuda_abi.h"
#include "proto/driver_table.h"
#include <stdbool.h>
#include <stdint.h>

/* For how many parts a graph may have executable graphs at a time. Each takes as much memory as the
 * graph. */
#define WEIR_EXEC_PARTS_MAX 3u

/* The copy from which pieces and graphs for parts are made. Zeroed: there is none. */
struct weir_exec_inside {
    CUgraph graph;      /* a copy of the graph that was instantiated; NULL: none */
    bool cuttable;      /* pieces may still be made */
    bool partable;      /* its kernels may be confined to a part */
    uint64_t flags;     /* flags of the instantiation */
    uint32_t n_nodes;   /* the number of nodes of the copy */
    uint32_t cuts;      /* how often the graph was cut */
    uint64_t *weights;  /* by the node's index in weir_graph_level; NULL until the first cut */
    uint32_t *piece_of; /* each node's piece in the latest cut, by the same index */
};

struct weir_exec_piece {
    CUgraphExec native;
    struct weir_gate_hint hint;
    uint64_t weight; /* sum of its nodes' weights */
};

/* Pieces of a graph. Launched in order into one stream, they do what the whole graph does. */
struct weir_exec_pieces {
    uint32_t cut; /* the number of the cut that made them */
    uint32_t n;
    struct weir_exec_piece piece[];
};

/* Times of whole launches, measured with events while the scheduler knows none. Zeroed: none. */
struct weir_exec_probe {
    CUevent event[2]; /* recorded before and behind a launch; NULL until they are needed */
    bool under_way;   /* both were recorded and not evaluated yet */
    uint32_t n;       /* how many times were measured */
    uint64_t ns;      /* the shortest of them */
};

/* The priority at which a graph's kernels run: ops/graph_priority.h. */
struct weir_exec_priority {
    bool of_nodes;  /* each kernel runs at its own priority */
    bool by_stream; /* all kernels ask for the same priority: the launching stream gets it */
    int asked;      /* that priority, as the guest counts */
};

/* Managed memory that nodes of a graph name: ops/graph_names.c. Zeroed: none. */
struct weir_exec_names {
    CUgraphNode *nodes; /* as the graph has them that was instantiated; owned */
    uint64_t *pieces;   /* of the same index: an address in the piece that the node names; owned */
    uint32_t n, room;
};

struct weir_exec {
    struct weir_object o;
    struct weir_gate_hint hint;
    uint32_t nodes; /* nodes of the graph, without those of child graphs */
    uint32_t works; /* kernels, copies and memsets of a launch; 0: not known */
    uint32_t sms;   /* number of SMs that it needs (ops/graph_demand.c); 0: unknown */
    bool updated;   /* it was updated from another graph than it was made from */
    struct weir_exec_priority priority;
    struct weir_exec_inside inside;
    struct weir_exec_pieces *pieces; /* NULL: it has none */
    struct weir_exec_probe probe;
    struct weir_placed_graph placed[WEIR_EXEC_PARTS_MAX];
    uint64_t placed_uses; /* number of launches of graphs for parts */
    bool is_divided;      /* the last launch, or one of its pieces, was granted a part */
    uint64_t stream;      /* handle of the stream of the last launch; 0: none */
    bool was_other;       /* the last launch was of another graph in its place */
    CUevent done;         /* recorded behind such a launch; NULL until the first */
    struct weir_exec_names names;
    CUuserObject *held; /* references to the objects that the graph uses (graph_holds.h) */
    uint32_t n_held;
};

/** Free pieces; their running launches continue. Accepts NULL. @thread session */
void weir_exec_pieces_destroy(const struct weir_driver *driver, struct weir_exec_pieces *pieces);

/** Make no more pieces; existing ones stay. Frees the copy of the graph, if nothing else needs it.
 * @thread session */
void weir_exec_cut_over(const struct weir_driver *driver, struct weir_exec_inside *inside);

/** The graph cannot be launched in pieces. @thread session */
void weir_exec_stays_whole(const struct weir_driver *driver, struct weir_exec *exec);

/** The graph cannot be confined to a part. Frees the copy, as above. @thread session */
void weir_exec_not_partable(const struct weir_driver *driver, struct weir_exec *exec);

/**
 * The executable graph changes: free its pieces and graphs for parts.
 * @thread session
 */
void weir_exec_changes(const struct weir_driver *driver, struct weir_exec *exec);

/** The executable graph is destroyed. @thread session */
void weir_exec_gone(const struct weir_driver *driver, struct weir_exec *exec);
