/* What the objects of a session have in common (objects.h). */
#ifndef WEIR_HOST_BACKEND_WORKER_STATE_OBJECT_H
#define WEIR_HOST_BACKEND_WORKER_STATE_OBJECT_H

#include "base/id_table.h"
#include <stdbool.h>

struct weir_graph_hold;
struct weir_host_ctx;

struct weir_object {
    weir_handle handle;
    uint8_t kind;
    uint8_t device;            /* index of the worker's device whose context was current */
    bool borrowed;             /* the driver's own (default pool, child graph): never destroyed */
    bool altered;              /* a node of a graph: its kernel has been given other parameters */
    void *native;              /* the driver's handle */
    struct weir_host_ctx *ctx; /* the object dies with this context; NULL: with the session */
    struct weir_object *owner; /* what it dies with: a function's module, a node's graph; or NULL */
    uint16_t depth;            /* a graph, executable or not: levels of graphs within it */
    uint32_t within;           /* a graph or node: nodes of graphs within it (graph_nesting.h) */
    uint64_t charged_bytes;    /* bytes charged to the tenant's quota */
    struct weir_graph_hold *hold;  /* NULL: no graph has named it (graph_holds.h) */
    struct weir_object *next_kept; /* list of objects that only graphs still name */
};

#endif
