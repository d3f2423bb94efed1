/*
 * How deep graphs lie within graphs, and how many nodes they have altogether.
 *
 * The driver copies a graph that becomes a child, and goes through all of it by recursion. NVIDIA's
 * faults where a graph is added to itself, and where the stack ends (docs/design/graphs.md); a few
 * calls that double a graph take all memory. So both are bounded. What is counted may be too much,
 * but is never too little.
 *
 * Source: docs/design/graphs.md
 */
#ifndef WEIR_HOST_BACKEND_WORKER_SESSION_GRAPH_NESTING_H
#define WEIR_HOST_BACKEND_WORKER_SESSION_GRAPH_NESTING_H

#include "proto/cuda_abi.h"

#define WEIR_GRAPH_DEPTH_MAX  64u        /* the driver handled 100 levels on a stack of 1 MiB */
#define WEIR_GRAPH_WITHIN_MAX (1u << 20) /* nodes of child graphs; all of them may have names */

struct weir_exec;
struct weir_host_stream;
struct weir_object;
struct weir_session;

/**
 * May a graph become a child of another one?
 * @return CUDA_SUCCESS
 * @return CUDA_ERROR_INVALID_VALUE  it is that one, or lies around it.
 * @return CUDA_ERROR_NOT_SUPPORTED  that would be too deep.
 * @return CUDA_ERROR_OUT_OF_MEMORY  those would be too many nodes.
 * @thread session
 */
CUresult weir_graph_nest_check(struct weir_session *session, const struct weir_object *parent,
                               const struct weir_object *child);
/** A graph has become a child, by this node. */
void weir_graph_nested(struct weir_session *session, struct weir_object *node,
                       const struct weir_object *child);
/** The guest has made a node, or one goes. */
void weir_graph_nest_node_made(struct weir_object *node);
void weir_graph_nest_node_gone(struct weir_object *node);

/** May a graph have a conditional node? As weir_graph_nest_check(). */
CUresult weir_graph_nest_body_check(const struct weir_object *parent);
/** A graph has got a conditional node. */
void weir_graph_nested_body(struct weir_object *parent);

/** A graph's clone or executable has the same inside. */
void weir_graph_nest_copy(struct weir_session *session, struct weir_object *to,
                          const struct weir_object *from);
/** The graph has been found in a node. */
void weir_graph_nest_named(struct weir_object *graph);

/** A capture begins in a stream. @param graph  of the guest, that it is captured into; or NULL */
void weir_graph_nest_capture_begin(struct weir_session *session, struct weir_host_stream *stream,
                                   const struct weir_object *graph);
/** What was captured so far is in a graph that now has a name; or in the given one. */
void weir_graph_nest_capture_end(struct weir_session *session, struct weir_host_stream *stream,
                                 struct weir_object *graph);

/** May an executable be launched into a capture of the session? Then it becomes a child there. */
CUresult weir_graph_nest_captured(struct weir_session *session, const struct weir_exec *exec);

#endif
