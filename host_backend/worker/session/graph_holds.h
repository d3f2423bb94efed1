/*
 * What graphs name of other objects stays until they no longer do.
 *
 * NVIDIA's driver does not survive that a graph is instantiated or launched whose kernel's module,
 * whose array or whose event is gone: the process faults, and with it whoever else is in the worker
 * (docs/design/graphs.md). So a graph that names such an object is given a user object of the
 * driver's. That goes on with the graph's clones and executables, and its destructor says when the
 * last of them is gone. What the guest destroys before, the session keeps until then
 * (session/objects.c).
 *
 * *Owner thread only*, but for the destructor.
 */
#ifndef WEIR_HOST_BACKEND_WORKER_SESSION_GRAPH_HOLDS_H
#define WEIR_HOST_BACKEND_WORKER_SESSION_GRAPH_HOLDS_H

#include "proto/cuda_abi.h"
#include <stdbool.h>

struct weir_driver;
struct weir_exec;
struct weir_graph_hold;
struct weir_host_stream;
struct weir_object;
struct weir_session;

/* With so many objects kept that the guest has destroyed, graphs can name no others: nothing else
 * bounds them. */
#define WEIR_GRAPH_KEPT_MAX 65536u

/**
 * A graph is about to name an object: a function, an event, an array. Where the driver does not
 * take it, the object stays until the session ends.
 * @param graph  the driver's.
 * @return CUDA_SUCCESS, CUDA_ERROR_OUT_OF_MEMORY
 */
CUresult weir_graph_hold(struct weir_session *session, struct weir_object *object, CUgraph graph);
/** The same for the graph that a stream is captured into; nothing if it is not. */
CUresult weir_graph_hold_captured(struct weir_session *session,
                                  const struct weir_host_stream *stream,
                                  struct weir_object *object);
/** The same for an executable graph, whose own graph need not name it. */
CUresult weir_graph_hold_exec(struct weir_session *session, struct weir_object *object,
                              struct weir_exec *exec);
/** The operation gives an event to the graph, node or executable that it named first. */
CUresult weir_graph_hold_event(struct weir_session *session, struct weir_object *event);
/** The executable graph goes. */
void weir_graph_hold_exec_gone(const struct weir_driver *driver, struct weir_exec *exec);

/** The object could go now. @return does a graph still name it? Then ask again. */
bool weir_graph_holds(struct weir_session *session, struct weir_object *object);
/** The object goes, whether one names it or not. */
void weir_graph_holds_drop(struct weir_session *session, struct weir_object *object);

#endif
