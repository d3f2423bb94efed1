/*
 * Where work that nothing can move runs: carries out the places of grants (struct
 * weir_sched_place) for kernels as they are and for graphs.
 *
 * A kernel follows its stream, which is moved into the part (part.h). A graph would not run in a
 * stream of a green context. What it is launched as instead names the part in its nodes: an
 * executable graph for each part (ops/graph_parts.h), which the session lists, so that it can go
 * when its part has to.
 *
 * A part is made here when it is first wanted. The driver does that only while no kernel of the
 * process runs, so the work that the worker has on the device ends first, within a bounded time.
 * Where that does not help, and while a stream of the session is captured, work runs on all SMs.
 *
 * Session thread only, with the current device.
 *
 * Source: docs/design/scheduling.md, "Stream priorities and parts of the device"
 */
#ifndef WEIR_HOST_BACKEND_WORKER_DEVICE_PLACE_H
#define WEIR_HOST_BACKEND_WORKER_DEVICE_PLACE_H

#include "host_backend/gate/gate.h"
#include "host_backend/worker/device/part.h"

struct weir_session;
struct weir_host_stream;

/* An executable graph whose kernels keep to a part. Zeroed: none. */
struct weir_placed_graph {
    struct weir_part *part;               /* counted; NULL: none */
    CUgraphExec native;                   /* NULL: the graph cannot be launched there */
    uint64_t used;                        /* for the owner: when it was last launched */
    struct weir_placed_graph *next, **at; /* in the session's list */
};

/** Can the current device's work be kept to parts? */
bool weir_place_has_parts(const struct weir_session *session);

/** Does a place name a part of the current device, which has parts? What else a scheduler names is
 * for work that can be moved. */
bool weir_place_is_part(const struct weir_session *session, const struct weir_sched_place *place);

/**
 * The part that a place names. It is made if it is wanted for the first time.
 * @return counted, for weir_part_put(); NULL: the place is none, or the part cannot be made now
 */
struct weir_part *weir_place_part(struct weir_session *session, struct weir_host_stream *stream,
                                  const struct weir_sched_place *place);

/** Mode "explore", for tests: one of the device's parts. @param draw  which. @return as above */
struct weir_part *weir_place_any_part(struct weir_session *session, struct weir_host_stream *stream,
                                      uint64_t draw);

/**
 * Have what the stream is given from now on run in a part. If the stream cannot be moved, its work
 * runs where it is. A stream moves in only while no run is under way: what waits there for a
 * stopped run would keep a second connection to the GPU from what lets it go on
 * (runs/run_streams.c).
 * @param part  NULL: on all SMs.
 */
void weir_place_stream(struct weir_session *session, struct weir_host_stream *stream,
                       struct weir_part *part);

/** Take an executable graph for a part in. @param graph  zeroed. @param part  gets one more user.
 * @param native  owned from now on; NULL: it was found that there is none. */
void weir_placed_graph_keep(struct weir_session *session, struct weir_placed_graph *graph,
                            struct weir_part *part, CUgraphExec native);
/** Destroy it; what runs of it ends as it would. Zeroes it; accepts one that is zeroed. */
void weir_placed_graph_drop(const struct weir_driver *driver, struct weir_placed_graph *graph);

#endif
