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
 * Events, waits, values and host functions do not pass the gate, nor does what is captured.
 *
 * Functions are for the session's own thread, unless they say otherwise.
 *
 * Source: docs/design/gate.md
 */
#ifndef WEIR_HOST_BACKEND_WORKER_DEVICE_ADMISSION_H
#define WEIR_HOST_BACKEND_WORKER_DEVICE_ADMISSION_H

#include "host_backend/gate/gate.h"
#include "host_backend/worker/device/mark.h"
#include "proto/cuda_abi.h"

struct weir_part;
struct weir_session;
struct weir_host_stream;

/* Admission state of a stream. */
struct weir_admission_stream {
    struct weir_mark_word word;
    struct weir_gate_batch unmarked; /* work that the stream was given since its last mark */
    struct weir_gate_queue *queue;   /* the queue that unmarked belongs to */
    struct weir_host_stream *next;   /* next in the session's list of streams with unmarked work */
    bool listed;
    int priority; /* the stream's native priority */
};

/* State between enter and leave. */
struct weir_admission {
    struct weir_gate_pass pass; /* queue NULL: there is no gate */
    struct weir_session *session;
    struct weir_host_stream *stream;
    struct weir_part *part; /* counted until leave: the part that a graph was granted; NULL: none */
    bool in_part; /* a part was granted, so a kernel is launched as it is: a twin keeps to SMs by
                     their numbers, which say nothing of the SMs of a green context */
};

/** The session's queue at the gate of a device; NULL: it has not given the device work yet. */
struct weir_gate_queue *weir_admission_queue(const struct weir_session *session, uint32_t device);

/** Can a kernel that has a twin be kept to a part as it is? Not one of a session with an SM limit,
 * which only runs keep to. @thread session */
bool weir_admission_is_partable(const struct weir_session *session);

/**
 * Wait until work may be given to a stream, which is in order already and whose device is current.
 *
 * @param priority       what the guest asks for the work, as it counts priorities; NULL: what it
 *                       asks for the stream.
 * @param ret_admission  for weir_admission_leave(), which must follow if this succeeds.
 * @return CUDA_SUCCESS
 * @return CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_DEVICE_UNAVAILABLE (the session ends)
 */
CUresult weir_admission_enter(struct weir_session *session, struct weir_host_stream *stream,
                              const struct weir_gate_work *work, const int *priority,
                              struct weir_admission *ret_admission);

/** The driver call has been made. @param result  what it returned; if not CUDA_SUCCESS, the stream
 * got nothing. */
void weir_admission_leave(struct weir_admission *admission, CUresult result);

/** As weir_gate_run_cost_pct(). Without a scheduler: UINT32_MAX. */
uint32_t weir_admission_run_cost_pct(const struct weir_session *session,
                                     const struct weir_gate_hint *hint);
/** Might some kernel be launched in a form that can be stopped: is there a scheduler, and an SM
 * limit or a second tenant on the host, whichever worker serves it? */
bool weir_admission_may_want_runs(const struct weir_session *session);
/**
 * Did another tenant, of the session's class or a higher one, have work on the current device in
 * the last second? Without a scheduler: false.
 */
bool weir_admission_has_company(const struct weir_session *session);
/** Has the session given work to more than one device? */
bool weir_admission_on_several_devices(const struct weir_session *session);
/** Does a graph that needs sms SMs run beside other tenants' turns? sms 0: not known. */
bool weir_admission_is_small(const struct weir_session *session, uint32_t sms);
/** How long a piece of a graph is to take that is launched in pieces; 0: graphs stay whole. */
uint64_t weir_admission_graph_piece_ns(const struct weir_session *session);
/** Does the session share its current device with other tenants now? */
bool weir_admission_contends(const struct weir_session *session);

/** The session will give no work for a while: put marks behind all unmarked work, so that the gate
 * sees when it ends. Cheap if nothing is unmarked. */
void weir_admission_idle(struct weir_session *session);
/** Does the session have unmarked work? */
bool weir_admission_has_unmarked(const struct weir_session *session);

/** The guest waits for a stream: put a mark behind its unmarked work, if tenants compete. */
void weir_admission_stream_awaited(struct weir_session *session, struct weir_host_stream *stream);
/** Take a stream out of its part of the device: its next work may use all SMs. */
void weir_admission_stream_whole(struct weir_session *session, struct weir_host_stream *stream);
/** A stream is about to be captured: put a mark behind its unmarked work. Take all of the session's
 * streams out of their parts of the device, and away from a filler's priority, because a capture
 * may draw any of them in. */
void weir_admission_stream_captures(struct weir_session *session, struct weir_host_stream *stream);
/** A stream is about to be destroyed. */
void weir_admission_stream_gone(struct weir_session *session, struct weir_host_stream *stream);
/** The native priority for something of the session's now: of the tenant's class, and within it
 * what the guest asks for, as far as that counts (gates.h). */
int weir_admission_stream_priority(const struct weir_session *session, int asked);
/** What the guest asked for that has this native priority. */
int weir_admission_asked_priority(const struct weir_session *session, int native);
/** Does the scheduler choose the priorities of work on the current device? */
bool weir_admission_has_levels(const struct weir_session *session);
/** A stream has this native priority, by weir_admission_stream_priority(). @thread session */
void weir_admission_stream_made(struct weir_host_stream *stream, int native);

/** The session ends; its runs will not be stopped again (weir_forms_session_ends()). */
void weir_admission_session_ends(struct weir_session *session);
/** The session's streams have ended their work and are destroyed: remove its queues. */
void weir_admission_session_gone(struct weir_session *session);

#endif
