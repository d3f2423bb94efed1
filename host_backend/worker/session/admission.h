/*
 * Admission: where a session's work passes the gate of its device before it is given to a stream.
 *
 *     WEIR_TRY(weir_admission_enter(session, stream, &work, &admission));
 *     result = the driver's call
 *     weir_admission_leave(&admission, result);
 *
 * This side knows streams and the driver: it puts marks behind work, moves streams into parts of
 * the device, and gives them their priorities. The gate (host_backend/gate/gate.h) knows neither.
 * Without [scheduler] there is no gate and a call costs one load.
 *
 * Not everything that a stream is given is work: events, waits, values and host functions pass
 * beside the gate, and so does what is captured.
 *
 * All of it on the session's own thread, unless it says otherwise.
 *
 * Source: docs/design/gate.md
 */
#ifndef WEIR_HOST_BACKEND_WORKER_SESSION_ADMISSION_H
#define WEIR_HOST_BACKEND_WORKER_SESSION_ADMISSION_H

#include "host_backend/gate/gate.h"
#include "host_backend/worker/session/mark.h"
#include "proto/cuda_abi.h"

struct weir_session;
struct weir_session_admission;
struct weir_host_stream;

/* In each stream. */
struct weir_admission_stream {
    struct weir_mark_word word;
    struct weir_gate_batch unmarked; /* work that it was given since its last mark */
    struct weir_gate_queue *queue;   /* of unmarked */
    struct weir_host_stream *next;   /* in the session's list of streams with unmarked work */
    bool listed;
    bool filler;                 /* its priority is that of what fills others' gaps */
    enum weir_priority priority; /* of the tenant, when the stream last got its own */
};

/* From enter to leave. */
struct weir_admission {
    struct weir_gate_pass pass; /* queue NULL: there is no gate */
    struct weir_session *session;
    struct weir_host_stream *stream;
};

/** A session's part. NULL: out of memory. */
struct weir_session_admission *weir_session_admission_create(void);
/** After weir_admission_session_gone(). Accepts NULL. */
void weir_session_admission_destroy(struct weir_session_admission *admission);

/** The session's queue at the gate of a device; NULL: it has given that no work. */
struct weir_gate_queue *weir_admission_queue(const struct weir_session *session, uint32_t device);

/**
 * Wait until work may be given to a stream, which is in order already and whose device is current.
 *
 * @param ret_admission  for weir_admission_leave(), which must follow if this succeeds.
 * @return CUDA_SUCCESS
 * @return CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_DEVICE_UNAVAILABLE (the session ends)
 */
CUresult weir_admission_enter(struct weir_session *session, struct weir_host_stream *stream,
                              const struct weir_gate_work *work,
                              struct weir_admission *ret_admission);

/** What came of it. @param result  of the driver: other than CUDA_SUCCESS: nothing was given. */
void weir_admission_leave(struct weir_admission *admission, CUresult result);

/** Is a kernel to be launched so that it can be stopped? Without a scheduler: as its forms say. */
bool weir_admission_wants_runs(const struct weir_session *session,
                               const struct weir_gate_hint *hint);
/** Is there a scheduler, and an SM limit, or another tenant that may come? */
bool weir_admission_may_want_runs(const struct weir_session *session);
/** May what the session's work looks like matter to others now? */
bool weir_admission_contends(const struct weir_session *session);

/**
 * The session will give nothing more for a while: marks behind all unmarked work, so that its end
 * is seen. Costs nothing where nothing is.
 */
void weir_admission_idle(struct weir_session *session);
/** Has the session work that no mark stands behind yet? */
bool weir_admission_has_unmarked(const struct weir_session *session);

/** The guest waits for what a stream has been given: its end matters now. */
void weir_admission_stream_awaited(struct weir_session *session, struct weir_host_stream *stream);
/** What a stream is given next may have all SMs, in the stream that it was made as. */
void weir_admission_stream_whole(struct weir_session *session, struct weir_host_stream *stream);
/**
 * A stream is about to be captured: marks behind unmarked work; all of the session's streams are
 * whole while any is.
 */
void weir_admission_stream_captures(struct weir_session *session, struct weir_host_stream *stream);
/** A stream is about to be destroyed. */
void weir_admission_stream_gone(struct weir_session *session, struct weir_host_stream *stream);
/** The priority for a stream of the session:
 * the tenant's class, within it what the guest asks for. */
int weir_admission_stream_priority(const struct weir_session *session, int asked);
/** A stream was made with weir_admission_stream_priority(). @thread session */
void weir_admission_stream_made(const struct weir_session *session,
                                struct weir_host_stream *stream);

/** The session's runs will not be stopped again (weir_forms_session_ends()). */
void weir_admission_session_ends(struct weir_session *session);
/** Its streams are drained and gone. */
void weir_admission_session_gone(struct weir_session *session);
/** Somebody wants the session to look up from its wait. @thread any, while the session lives */
void weir_admission_session_wake(struct weir_session *session);

#endif
