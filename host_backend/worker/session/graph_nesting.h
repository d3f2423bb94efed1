/*
 * Bounds how deep graphs are nested, and how many nodes they have altogether.
 *
 * The driver copies a graph that becomes a child, and goes through all of it by recursion. NVIDIA's
 * driver crashes if a graph is added to itself, or if the recursion exceeds the stack
 * (docs/design/graphs.md). A few calls that double a graph would take all memory. So both are
 * bounded. The counts may be too high, but are never too low.
 *
 * Source: docs/design/graphs.md
 */
#pragma once

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
 * @return CUDA_ERROR_INVALID_VALUE  it is the same graph, or contains it.
 * @return CUDA_ERROR_NOT_SUPPORTED  the nesting would be too deep.
 * @return CUDA_ERROR_OUT_OF_MEMORY  there would be too many nodes.
 * @thread session
 */
CUresult weir_graph_nest_check(struct weir_session *session, const struct weir_object *parent,
                               const struct weir_object *child);
/** A graph has become a child of another, by this node. */
void weir_graph_nested(struct weir_session *session, struct weir_object *node,
                       const struct weir_object *child);
/** The guest has made a node, or a node is destroyed. */
void weir_graph_nest_node_made(struct weir_object *node);
void weir_graph_nest_node_gone(struct weir_object *node);

/** May a graph have a conditional node? As weir_graph_nest_check(). */
CUresult weir_graph_nest_body_check(const struct weir_object *parent);
/** A graph has got a conditional node. */
void weir_graph_nested_body(struct weir_object *parent);

/** A clone or executable has the same contents as its graph. */
void weir_graph_nest_copy(struct weir_session *session, struct weir_object *to,
                          const struct weir_object *from);
/** A graph was looked up in a node. */
void weir_graph_nest_named(struct weir_object *graph);

/** A capture begins in a stream. @param graph the guest's graph that it is captured into; or
 * NULL */
void weir_graph_nest_capture_begin(struct weir_session *session, struct weir_host_stream *stream,
                                   const struct weir_object *graph);
/** The captured nodes are now in a graph with a name, or in the given one. */
void weir_graph_nest_capture_end(struct weir_session *session, struct weir_host_stream *stream,
                                 struct weir_object *graph);

/** May an executable be launched into a capture of the session? It becomes a child there. */
CUresult weir_graph_nest_captured(struct weir_session *session, const struct weir_exec *exec);
