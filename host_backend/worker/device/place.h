/*
 * Chooses the SMs for work that cannot be moved: executes the places of grants (struct
 * weir_sched_place) for kernels in their original form and for graphs.
 *
 * A kernel follows its stream, which is moved into the part (part.h). A graph would not run in a
 * stream of a green context. Instead there is an executable graph for each part, whose nodes name
 * the part (ops/graph_parts.h). The session lists these, so that they can be destroyed with their
 * part.
 *
 * A part is made here when it is first wanted. The driver does that only while no kernel of the
 * process runs, so it first waits for the worker's work on the device, for a bounded time. If that
 * fails, and while a stream of the session is captured, work runs on all SMs.
 *
 * Session thread only, with the current device.
 *
 * Source: docs/design/scheduling.md, "Stream priorities and parts of the device"
 */
#pragma once

#include "host_backend/gate/gate.h"
#include "host_backend/worker/device/part.h"

struct weir_session;
struct weir_host_stream;

/* An executable graph whose kernels keep to a part. Zeroed: none. */
struct weir_placed_graph {
    struct weir_part *part;               /* counted; NULL: none */
    CUgraphExec native;                   /* NULL: the graph cannot be launched there */
    uint64_t used;                        /* when the owner last launched it */
    struct weir_placed_graph *next, **at; /* in the session's list */
};

/** Can work of the current device be confined to parts? */
bool weir_place_has_parts(const struct weir_session *session);

/** Does a place name a part of the current device, which has parts? Other places are for work that
 * can be moved. */
bool weir_place_is_part(const struct weir_session *session, const struct weir_sched_place *place);

/**
 * Find the part that a place names. It is made at its first use.
 * @return counted, for weir_part_put(); NULL: the place names none, or the part cannot be made now
 */
struct weir_part *weir_place_part(struct weir_session *session, struct weir_host_stream *stream,
                                  const struct weir_sched_place *place);

/** For tests with the mode "explore": find one of the device's parts. @param draw a random number.
 * @return as above */
struct weir_part *weir_place_any_part(struct weir_session *session, struct weir_host_stream *stream,
                                      uint64_t draw);

/**
 * Let the next work of the stream run in a part. If the stream cannot be moved, its work runs where
 * it is. A stream only moves into a part while no run is active: work there that waits for a
 * stopped run would block a second connection to the GPU, which the run needs to resume
 * (runs/run_streams.c).
 * @param part  NULL: on all SMs.
 */
void weir_place_stream(struct weir_session *session, struct weir_host_stream *stream,
                       struct weir_part *part);

/** Add an executable graph for a part. @param graph zeroed. @param part gets one more user.
 * @param native  owned from now on; NULL: such a graph cannot be made. */
void weir_placed_graph_keep(struct weir_session *session, struct weir_placed_graph *graph,
                            struct weir_part *part, CUgraphExec native);
/** Destroy the graph; its running launches continue. Zeroes it; accepts a zeroed one. */
void weir_placed_graph_drop(const struct weir_driver *driver, struct weir_placed_graph *graph);
