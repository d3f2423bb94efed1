/*
 * The legacy stream's order, kept inside a session's context.
 *
 * All real streams are non-blocking, so the driver orders nothing by itself. A session announces
 * each piece of work for a stream. Events then give the order that CUDA promises for the legacy
 * stream: legacy work waits for the new work of every blocking stream, and blocking work waits for
 * the legacy stream's latest work. If only one of the two is used, no event is inserted.
 */
#pragma once

#include "host_backend/worker/device/streams.h"

struct weir_driver;
struct weir_session;

/**
 * Work is about to be given to a stream.
 * @param forks  the work has several streams inside: a graph.
 * @return CUDA_SUCCESS
 * @return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT  as weir_order_refuse()
 * @return an error of the driver
 * @thread session
 */
CUresult weir_order_begin(struct weir_session *session, struct weir_host_stream *stream,
                          bool forks);

/**
 * Would use of the stream make it depend on a capture: the legacy stream on a blocking one?
 * @param invalidate  the stream is used: invalidate such captures, as the driver does.
 * @return CUDA_SUCCESS
 * @return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT  yes
 * @thread session
 */
CUresult weir_order_refuse(struct weir_session *session, const struct weir_host_stream *stream,
                           bool invalidate);

/**
 * The host is about to wait for the stream's present work. The legacy stream then waits for the
 * work of blocking streams, but no later work waits for it. Streams under capture are left out: the
 * guest has the legacy stream wait for their earlier work before their capture.
 * @thread session
 */
CUresult weir_order_mark(struct weir_session *session, struct weir_host_stream *stream);

/** A stream is about to be destroyed: legacy work still waits for its work. */
CUresult weir_order_leave(struct weir_session *session, struct weir_host_stream *stream);

/**
 * Make a stream wait for the work that another has so far, but not for its later work, so the event
 * can be used again.
 *
 * @param event   made if it is NULL; the caller destroys it.
 * @param stream  NULL: the event has been recorded before.
 * @return CUDA_SUCCESS, or an error of the driver.
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

/** Is the stream under capture? Asks the driver only if the session has captures. */
bool weir_host_stream_capturing(struct weir_session *session,
                                const struct weir_host_stream *stream);

/**
 * Wait for a stream without cuStreamSynchronize(). @return also CUDA_ERROR_TIMEOUT
 * @thread any with the context
 */
CUresult weir_host_stream_wait(const struct weir_driver *driver, CUstream stream,
                               uint64_t timeout_ns);
