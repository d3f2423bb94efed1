/*
 * Records when the device did a session's profiled work, and how long that waited in the gate.
 *
 * A guest profiles a call by a number in its requests' header. So a session that profiles nothing
 * pays one load for each piece of work. Around profiled work go two events. The records are kept
 * until the guest takes them, of WEIR_PROFILE_RECORDS_MAX pieces of work at most; what does not fit
 * is counted. A graph may be launched with events at its nodes (ops/graph_timed.c): then each node
 * has a record.
 *
 * Functions are for the session's own thread.
 *
 * Source: docs/design/profiling.md
 */
#ifndef WEIR_HOST_BACKEND_WORKER_DEVICE_PROFILE_H
#define WEIR_HOST_BACKEND_WORKER_DEVICE_PROFILE_H

#include "host_backend/gate/gate.h"
#include "proto/cuda_abi.h"
#include "proto/profile/record.h"

struct weir_driver;
struct weir_host_stream;
struct weir_op_profile_take_out;
struct weir_profile_span;
struct weir_session;

/**
 * Profiled work has come to the gate, and will go to a stream of the current device.
 * @return NULL: there will be no record, because there is no room or the work is captured.
 */
struct weir_profile_span *weir_profile_arrives(struct weir_session *session,
                                               const struct weir_host_stream *stream,
                                               const struct weir_gate_work *work);

/** The work may go to the stream now. @param pass what the gate said. */
void weir_profile_begins(struct weir_session *session, const struct weir_host_stream *stream,
                         struct weir_profile_span *span, const struct weir_gate_pass *pass);

/** The work was given to the stream; given false: it was not, and there will be no record. Either
 * call ends what weir_profile_arrives() began. */
void weir_profile_given(struct weir_session *session, const struct weir_host_stream *stream,
                        struct weir_profile_span *span, bool given);

/** Take the records of work that has ended. @param out borrows them until the next call. */
void weir_profile_take(struct weir_session *session, struct weir_op_profile_take_out *out);

/* A graph's node of which records are made, and the marks between which it runs. */
struct weir_profile_node {
    struct weir_profile_record about; /* class and bytes, and what follows `device` */
    uint32_t begin, end;              /* indices of marks */
};

/* A node that records an event. */
struct weir_profile_mark {
    CUgraphNode node;
    uint64_t ns; /* scratch: when a launch passed it; 0: not known */
};

/* The events that a launch records at the marks. */
struct weir_profile_events {
    struct weir_profile_events *next;
    bool in_use;     /* of a launch whose records have not been taken */
    CUevent event[]; /* NULL, and those behind it: not made */
};

/* An executable graph that has marks. */
struct weir_profile_graph {
    CUgraph graph;      /* from which native was made: its nodes name those of native */
    CUgraphExec native; /* NULL: it is gone, and launches of it have not been taken */
    uint32_t n_nodes, n_marks;
    uint32_t open; /* launches whose records have not been taken */
    struct weir_profile_node *nodes;
    struct weir_profile_mark *marks;
    struct weir_profile_events *events; /* those that native records now, then all others */
};

/** Allocate a graph, zeroed. @return NULL: no memory */
struct weir_profile_graph *weir_profile_graph_create(uint32_t max_nodes, uint32_t max_marks);

/** The graph is not launched any more. Records of its launches still come. Accepts NULL. */
void weir_profile_graph_destroy(const struct weir_driver *driver, struct weir_profile_graph *graph);

/** Records of a launch were taken, or will not be: its events can be used anew. */
void weir_profile_graph_taken(const struct weir_driver *driver, struct weir_profile_graph *graph,
                              struct weir_profile_events *events);

/** How many records of nodes may come of the launch that is under way; 0: it is not recorded, or
 * there is no room. */
uint32_t weir_profile_graph_room(const struct weir_session *session);

/**
 * Give the graph's next launch events that no open launch uses.
 * @return CUDA_SUCCESS, CUDA_ERROR_OUT_OF_MEMORY, or an error of the driver: destroy the graph
 */
CUresult weir_profile_graph_ready(const struct weir_driver *driver,
                                  struct weir_profile_graph *graph);

/** The launch under way was of this graph: its records are those of the graph's nodes. */
void weir_profile_graph_given(struct weir_session *session, struct weir_profile_graph *graph);

/** The session ends: destroy its events. */
void weir_profile_end(struct weir_session *session);

#endif
