/*
 * The legacy stream's order, kept inside a session's context.
 *
 * All real streams are non-blocking, so the driver orders nothing by itself. A piece of work for a
 * stream is announced first; what CUDA promises about the legacy stream is then made with events:
 * legacy work waits for every blocking stream that has had work since it last did, blocking work
 * waits for the legacy stream's latest. Nothing is inserted where only one of the two is used.
 */
#ifndef WEIR_HOST_BACKEND_WORKER_DEVICE_ORDER_H
#define WEIR_HOST_BACKEND_WORKER_DEVICE_ORDER_H

#include "host_backend/worker/device/streams.h"

struct weir_driver;
struct weir_session;

/**
 * Work is about to be given to a stream.
 * @param forks  it has streams of its own inside: a graph.
 * @return CUDA_SUCCESS
 * @return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT  as weir_order_refuse()
 * @return the driver's
 * @thread session
 */
CUresult weir_order_begin(struct weir_session *session, struct weir_host_stream *stream,
                          bool forks);

/**
 * Would use of the stream make it depend on a capture: the legacy stream on a blocking one?
 * @param invalidate  it is used: those captures are invalidated, as the driver does.
 * @return CUDA_SUCCESS
 * @return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT  yes
 * @thread session
 */
CUresult weir_order_refuse(struct weir_session *session, const struct weir_host_stream *stream,
                           bool invalidate);

/**
 * The stream's present work is about to be waited for: the legacy stream takes in what blocking
 * streams were given, but no later work is made to wait for it. Streams under capture are left out:
 * the guest has what they were given before taken in before they are captured.
 * @thread session
 */
CUresult weir_order_mark(struct weir_session *session, struct weir_host_stream *stream);

/** A stream is about to be destroyed: legacy work still waits for what it was given. */
CUresult weir_order_leave(struct weir_session *session, struct weir_host_stream *stream);

/**
 * Make a stream wait for what another has been given so far; what that is given later is not waited
 * for, so the event can serve again.
 *
 * @param event   made if it is NULL; whose it is destroys it.
 * @param stream  NULL: the event has been recorded before.
 * @return CUDA_SUCCESS, or the driver's.
 * @thread session, with the context
 */
CUresult weir_order_join(const struct weir_driver *driver, CUevent *event, CUstream stream,
                         CUstream waiter);

/**
 * Give a stream of the driver's another priority. A driver that does not change it leaves the one
 * that the stream was made with.
 *
 * @param have      the stream's priority; gets `priority`. Where it is that already, nothing is
 * done.
 * @param priority  as cuStreamCreateWithPriority takes it.
 * @thread session, with the context
 */
void weir_host_stream_set_priority(const struct weir_driver *driver, CUstream stream, int *have,
                                   int priority);

/** Is it under capture? Asks the driver only when the session has captures. */
bool weir_host_stream_capturing(struct weir_session *session,
                                const struct weir_host_stream *stream);

/** Wait for a stream without cuStreamSynchronize; CUDA_ERROR_TIMEOUT.
 * @thread any with the context */
CUresult weir_host_stream_wait(const struct weir_driver *driver, CUstream stream,
                               uint64_t timeout_ns);

#endif
