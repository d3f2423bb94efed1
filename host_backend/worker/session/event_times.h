/*
 * Times of recorded events in a session that another worker makes again.
 *
 * An event that was recorded and is done equals one that was never recorded, but for
 * cuEventElapsedTime(). So when a session rests, the time of each recorded event is noted by the
 * host's clock, and another worker answers from that until the event is recorded there.
 *
 * Session thread only.
 */
#pragma once

#include "host_backend/worker/session/objects.h"

/** Note the times of all events of a session that has a book and no work. @return CUDA_SUCCESS, the
 * driver's error */
CUresult weir_event_times_note(struct weir_session *session);
/** The time between two events of which the driver knows at most one. @return CUDA_SUCCESS,
 * CUDA_ERROR_INVALID_HANDLE: one has no time, the driver's error */
CUresult weir_event_times_between(struct weir_session *session, const struct weir_host_event *start,
                                  const struct weir_host_event *end, float *ret_ms);
/** An event is recorded. @param captured  in a capture, where it joins streams and is no work */
void weir_event_times_recorded(struct weir_host_event *event, bool captured);
/** The event was last recorded outside of captures: give it another one of the driver if its book
 * ends with a captured record. @return the driver's error, CUDA_ERROR_OUT_OF_MEMORY */
CUresult weir_event_times_forget_capture(struct weir_session *session,
                                         struct weir_host_event *event);
/** Destroy what this needs of the driver. */
void weir_event_times_end(struct weir_session *session);
