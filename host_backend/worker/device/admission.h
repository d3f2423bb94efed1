/*
 * Admission: where a session's work passes the gate of its device before it is given to a stream.
 *
 *     WEIR_TRY(weir_admission_enter(session, stream, &work, NULL, &admission));
 *     result = the driver's call
 *     weir_admission_leave(&admission, result);
 *
 * This side knows streams and the driver: it puts marks behind work, moves streams into parts of
 * the device, and gives them their priorities. The gate (host_backend/gate/gate.h) knows neither.
 * Without [scheduler] there is no gate and a call costs one load.
 *
 * Events, waits, values, host functions and captured work do not pass the gate.
 *
 * Functions are for the session's own thread, unless they say otherwise.
 *
 * Source: docs/design/gate.md
 */
#pragma once

#include "host_backend/gate/gate.h"
#include "host_backend/worker/device/mark.h"
#include "proto/cuda_abi.h"

struct weir_part;
struct weir_session;
struct weir_host_stream;

struct weir_admission_stream {
    struct weir_mark_word word;
    struct weir_gate_batch unmarked; /* work in the stream since its last mark */
    struct weir_gate_queue *queue;   /* the queue that unmarked belongs to */
    struct weir_host_stream *next;   /* next in the session's list of streams with unmarked work */
    bool listed;
    int priority; /* the stream's native priority */
};

/* State between weir_admission_enter() and _leave(). */
struct weir_admission {
    struct weir_gate_pass pass; /* queue NULL: there is no gate */
    struct weir_session *session;
    struct weir_host_stream *stream;
    struct weir_part *part; /* counted until leave: the part that a graph was granted; NULL: none */
    bool in_part; /* a part was granted, so a kernel is launched in its original form: a twin
                     selects SMs by number, which does not work in a green context */
};

/** The session's queue at the gate of a device; NULL: it has not given the device work yet. */
struct weir_gate_queue *weir_admission_queue(const struct weir_session *session, uint32_t device);

/** Can the original form of a kernel with a twin be confined to a part? Not if the session has an
 * SM limit, which only runs can enforce. @thread session */
bool weir_admission_is_partable(const struct weir_session *session);

/**
 * Wait until work may be given to a stream, which is in order already and whose device is current.
 *
 * @param priority       priority that the guest asks for, by its own numbers; NULL: that of the
 *                       stream.
 * @param ret_admission  for weir_admission_leave(), which must follow if this succeeds.
 * @return CUDA_SUCCESS
 * @return CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_DEVICE_UNAVAILABLE (the session ends)
 */
CUresult weir_admission_enter(struct weir_session *session, struct weir_host_stream *stream,
                              const struct weir_gate_work *work, const int *priority,
                              struct weir_admission *ret_admission);

/** Finish an admission after the driver call. @param result what it returned; if not CUDA_SUCCESS,
 * the stream got no work. */
void weir_admission_leave(struct weir_admission *admission, CUresult result);

/** As weir_gate_run_cost_pct(); without a scheduler UINT32_MAX. */
uint32_t weir_admission_run_cost_pct(const struct weir_session *session,
                                     const struct weir_gate_hint *hint);
/** May kernels be launched in a form that can be stopped? That needs a scheduler, and an SM limit
 * or a second tenant on the host, in whichever worker. */
bool weir_admission_may_want_runs(const struct weir_session *session);
/**
 * Did another tenant, of the session's class or a higher one, have work on the current device in
 * the last second? Without a scheduler: false.
 */
bool weir_admission_has_company(const struct weir_session *session);
/** Has the session given work to more than one device? */
bool weir_admission_on_several_devices(const struct weir_session *session);
/** May a graph that needs this many SMs run beside other tenants' turns? sms 0: unknown. */
bool weir_admission_is_small(const struct weir_session *session, uint32_t sms);
/** The intended duration of a piece of a graph that is launched in pieces; 0: graphs stay whole. */
uint64_t weir_admission_graph_piece_ns(const struct weir_session *session);
/** Does the session share its current device with other tenants now? */
bool weir_admission_contends(const struct weir_session *session);

/** The session will submit no work for a while: put marks behind all unmarked work, so that the
 * gate sees when it ends. Cheap if there is none. */
void weir_admission_idle(struct weir_session *session);
/** Does the session have unmarked work? */
bool weir_admission_has_unmarked(const struct weir_session *session);

/** The guest waits for a stream: put a mark behind its unmarked work, if tenants compete. */
void weir_admission_stream_awaited(struct weir_session *session, struct weir_host_stream *stream);
/** Take a stream out of its part of the device: its next work may use all SMs. */
void weir_admission_stream_whole(struct weir_session *session, struct weir_host_stream *stream);
/** A stream is about to be captured: put a mark behind its unmarked work. Take all of the session's
 * streams out of their parts of the device, and away from a filler's priority, because any of them
 * may join the capture. */
void weir_admission_stream_captures(struct weir_session *session, struct weir_host_stream *stream);
/** A stream is about to be destroyed. */
void weir_admission_stream_gone(struct weir_session *session, struct weir_host_stream *stream);
/** The native priority for new work or streams of the session: that of the tenant's class, and
 * within it the priority that the guest asks for, as far as that counts (gates.h). */
int weir_admission_stream_priority(const struct weir_session *session, int asked);
/** The priority that the guest asked for when it got this native priority. */
int weir_admission_asked_priority(const struct weir_session *session, int native);
/** Does the scheduler choose the priorities of work on the current device? */
bool weir_admission_has_levels(const struct weir_session *session);
/** Store the native priority that weir_admission_stream_priority() gave a new stream. @thread
 * session */
void weir_admission_stream_made(struct weir_host_stream *stream, int native);

/** The session ends; its runs will not be stopped again (weir_forms_session_ends()). */
void weir_admission_session_ends(struct weir_session *session);
/** Remove the session's queues. Its streams have ended their work and are destroyed. */
void weir_admission_session_gone(struct weir_session *session);
