/* What the driver reports about a stream's capture. */
#pragma once

#include "proto/cuda_abi.h"
#include <stdbool.h>
#include <stddef.h>

struct weir_host_stream;
struct weir_object;
struct weir_session;

struct weir_capture {
    CUstreamCaptureStatus status;
    cuuint64_t id;
    CUgraph graph; /* graph and the members below are valid only while the capture is active */
    const CUgraphNode *nodes;
    const CUgraphEdgeData *edges; /* NULL: all edges are plain */
    size_t n;
};

/** @param ret_capture  the driver owns its arrays and overwrites them at the next call.
 * @return an error of the driver @thread session */
CUresult weir_capture_read(const struct weir_session *session,
                           const struct weir_host_stream *stream, struct weir_capture *ret_capture);

/** The driver's graph that a stream is captured into.
 * @return CUDA_SUCCESS
 * @return CUDA_ERROR_ILLEGAL_STATE  the stream is not captured, or its capture was invalidated.
 * @return an error of the driver
 * @thread session */
CUresult weir_capture_graph(const struct weir_session *session,
                            const struct weir_host_stream *stream, CUgraph *ret_graph);

/**
 * Is a stream of the session being captured into the graph or node, so that it would be destroyed,
 * too?
 * @thread session
 */
bool weir_capture_within(struct weir_session *session, const struct weir_object *object);

/** The stream is about to be destroyed: end the capture that began in it. The captured nodes are
 * lost, except in a graph that the guest gave. @thread session */
void weir_capture_abandon(struct weir_session *session, struct weir_host_stream *stream);
