/*
 * The types of a session's objects. Each begins with struct weir_object and lives in the table of
 * its kind (session/objects.h). The objects of a context die with it, functions with their module,
 * nodes with their graph. A linker's state, or a texture or surface object, has no more than the
 * object. Only the session's own thread touches them.
 */
#ifndef WEIR_HOST_BACKEND_WORKER_SESSION_OBJECT_TYPES_H
#define WEIR_HOST_BACKEND_WORKER_SESSION_OBJECT_TYPES_H

#include "host_backend/worker/session/exec.h"
#include "host_backend/worker/session/modules.h"
#include "host_backend/worker/session/streams.h"

/* At which priority a graph's kernels run: ops/graph_priority.h. */
struct weir_exec_priority {
    bool of_nodes;  /* each kernel has its own */
    bool by_stream; /* it asks for that, but all have the same: the launching stream is given it */
    int asked;      /* that priority, as the guest counts them */
};

/* An executable graph. */
struct weir_exec {
    struct weir_object o;
    struct weir_gate_hint hint;
    uint32_t nodes; /* of its graph, without those within */
    uint32_t sms;   /* how many it needs (ops/graph_demand.c); 0: not known */
    bool updated;   /* from another graph than it was made of */
    struct weir_exec_priority priority;
    struct weir_exec_inside inside;
    struct weir_exec_pieces *pieces; /* NULL: it has none */
    struct weir_exec_probe probe;
    uint64_t stream;    /* the handle of the stream that it was last launched into; 0: none */
    bool was_pieces;    /* that launch was in pieces, and done was recorded behind it */
    CUevent done;       /* NULL until the first such launch */
    CUuserObject *held; /* of what it was given to name (graph_holds.h) */
    uint32_t n_held;
};

#endif
