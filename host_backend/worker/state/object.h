/* The common part of all objects of a session (objects.h). */
#pragma once

#include "base/id_table.h"
#include <stdbool.h>

struct weir_book_page;
struct weir_graph_hold;
struct weir_host_ctx;

struct weir_object {
    weir_handle handle;
    uint8_t kind;
    uint8_t device;            /* index of the worker's device whose context was current */
    bool borrowed;             /* the driver's own (default pool, child graph): never destroyed */
    bool altered;              /* a node of a graph: its kernel has got other parameters */
    void *native;              /* the driver's handle */
    struct weir_host_ctx *ctx; /* destroyed with this context; NULL: with the session */
    struct weir_object *owner; /* dies with this: a function's module, a node's graph; or NULL */
    uint16_t depth;            /* of a graph, executable or not: levels of graphs within it */
    uint32_t within;           /* of a graph or node: nodes of graphs within it (graph_nesting.h) */
    uint64_t charged_bytes;    /* bytes charged to the tenant's quota */
    struct weir_graph_hold *hold;  /* next object that only graphs still name */
    struct weir_object *next_kept; /* list of objects that only graphs still name */
    struct weir_book_page *page;   /* how it was made and changed (session/book.h); or NULL */
};
