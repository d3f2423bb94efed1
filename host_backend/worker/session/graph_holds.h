/*
 * Objects that graphs use are kept until no graph uses them any more.
 *
 * If a graph is instantiated or launched after its kernel's module, its array or its event is gone,
 * NVIDIA's driver faults, and all sessions of the worker end (docs/design/graphs.md). So a graph
 * that uses such an object gets a user object of the driver. The graph's clones and executables
 * share it, and its destructor runs when the last of them is gone. If the guest destroys the object
 * before that, the session keeps it until then (session/objects.c).
 *
 * *Owner thread only*, except the destructor.
 */
#pragma once

#include "proto/cuda_abi.h"
#include <stdbool.h>

struct weir_driver;
struct weir_exec;
struct weir_graph_hold;
struct weir_host_stream;
struct weir_object;
struct weir_session;

/* When so many destroyed objects are kept, no graph may name another: there is no other bound. */
#define WEIR_GRAPH_KEPT_MAX 65536u

/**
 * A graph is about to name an object: a function, an event, an array. If the driver refuses, the
 * object stays until the session ends.
 * @param graph  the driver's graph.
 * @return CUDA_SUCCESS, CUDA_ERROR_OUT_OF_MEMORY
 */
CUresult weir_graph_hold(struct weir_session *session, struct weir_object *object, CUgraph graph);
/** Like weir_graph_hold(), for the graph that a stream is captured into, if there is one. */
CUresult weir_graph_hold_captured(struct weir_session *session,
                                  const struct weir_host_stream *stream,
                                  struct weir_object *object);
/** Like weir_graph_hold(), for an executable graph, whose own graph need not name the object. */
CUresult weir_graph_hold_exec(struct weir_session *session, struct weir_object *object,
                              struct weir_exec *exec);
/** Let the graph, node or executable that the operation named first hold an event. */
CUresult weir_graph_hold_event(struct weir_session *session, struct weir_object *event);
/** An executable graph is destroyed. */
void weir_graph_hold_exec_gone(const struct weir_driver *driver, struct weir_exec *exec);

/** The object could be destroyed now. @return whether a graph still names it; then ask again. */
bool weir_graph_holds(struct weir_session *session, struct weir_object *object);
/** The object is destroyed, even if a graph names it. */
void weir_graph_holds_drop(struct weir_session *session, struct weir_object *object);
