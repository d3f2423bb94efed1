/*
 * The gate: where a session's work passes the scheduler before it is given to a stream.
 *
 *     WEIR_TRY(weir_gate_enter(session, stream, &work, &pass));
 *     result = the driver's call
 *     weir_gate_leave(&pass, result);
 *
 * One struct weir_gate a device. While a tenant is alone and has little in flight, its work passes
 * with a few loads and stores; otherwise the session's thread takes the gate's lock, brings the
 * item to the scheduler (sched/sched.h) and waits for the grant. Without [scheduler] there is no
 * gate and a call costs one load.
 *
 * Not everything that a stream is given is work: events, waits, values and host functions pass
 * beside the gate, and so does what is captured.
 *
 * Source: docs/design/scheduling.md
 */
#ifndef WEIR_HOST_BACKEND_GATE_GATE_H
#define WEIR_HOST_BACKEND_GATE_GATE_H

#include "base/status.h"
#include "host_backend/gate/mark.h"
#include "proto/cuda_abi.h"
#include "sched/sched.h"
#include <stdbool.h>
#include <stdint.h>

struct weir_forms_order;
struct weir_gate;
struct weir_gate_item;
struct weir_gate_queue;
struct weir_session;
struct weir_host_stream;
struct weir_tenant;
struct weir_worker;

/* What is known of a kernel's or a graph's duration, beside it. Zeroed: nothing. Session thread. */
struct weir_gate_hint {
    uint64_t kernel;   /* its key, without a geometry; 0: not made yet */
    uint64_t item_key; /* that ns was asked for, .. */
    uint32_t blocks;
    enum weir_sched_unpaired unpaired; /* it shares the device with nobody */
    uint32_t uses;                     /* .. so many uses ago */
    uint64_t ns;                       /* 0: not known */
    bool sure;                         /* and rightly so */
    uint64_t fit_key;                  /* the key, with its geometry, of .. */
    uint32_t blocks_per_sm;            /* .. so many blocks on an SM */
    uint32_t blind, blind_max;         /* launched alone, not sure, since then; and may be */
    uint64_t blind_given_ns;           /* the queue's given_ns */
};

/* Work that a stream has been given since its last mark. */
struct weir_gate_unmarked {
    struct weir_gate_item *first, *last; /* that the scheduler knows */
    uint64_t ns, since_ns;               /* predicted; when the first was given */
    uint64_t beside_ns;                  /* of ns, of what the scheduler does not know */
    uint64_t key, size;                  /* of all of them, while they are alike */
    uint32_t n;
    uint8_t class, last_class;
    bool alike, guessed;
};

/* In each stream. Session thread. */
struct weir_gate_stream {
    struct weir_mark_word word;
    struct weir_gate_unmarked unmarked;
    struct weir_gate_queue *queue; /* of unmarked */
    struct weir_host_stream *next; /* in the queue's list of streams with unmarked work */
    bool listed;
    uint32_t priority_epoch; /* of the tenant's, that was last applied */
    bool filler;             /* the same */
};

/* What is about to be given to a stream. */
struct weir_gate_work {
    enum weir_sched_class class;
    uint64_t key;                /* kernels and graphs */
    uint64_t bytes;              /* copies and memsets */
    uint32_t blocks;             /* kernels */
    uint32_t blocks_per_sm;      /* 0: not known */
    uint32_t flags;              /* enum weir_sched_item_flags */
    struct weir_gate_hint *hint; /* of a kernel or graph; or NULL */
};

/* From enter to leave. */
struct weir_gate_pass {
    struct weir_gate_queue *queue; /* NULL: there is no gate */
    struct weir_host_stream *stream;
    struct weir_gate_item *item; /* NULL: passed as its tenant is alone */
    uint64_t ns, key, size;
    uint8_t class; /* enum weir_sched_class */
    bool guessed;  /* ns is not a prediction */
};

/**
 * Make the gates of a worker's devices, if its configuration wants a scheduler; worker->gates.
 * @return WEIR_OK, WEIR_ERR_NO_MEMORY, WEIR_ERR_DRIVER, WEIR_ERR_INVALID (no such policy)
 * @thread the worker's main thread
 */
enum weir_status weir_gates_create(struct weir_worker *worker) WEIR_MUST_CHECK;

/** No session and no tenant may be left. @thread main */
void weir_gates_destroy(struct weir_worker *worker);

struct weir_status_prediction;
/** What is known of durations on a device. @return false: it has no scheduler. @thread any */
bool weir_gates_prediction(struct weir_worker *worker, uint32_t device,
                           struct weir_status_prediction *row);

/** Now and then: what was learned of durations goes to disk when it is time. @thread main */
void weir_gates_keep(struct weir_worker *worker);

/** Other policies, as of [scheduler]; what is no list of them changes nothing. @thread main */
void weir_gates_policies_set(struct weir_worker *worker, const char *policy);

/** Weight, priority or SM limit may be others. @thread main */
void weir_gates_tenant_changed(struct weir_tenant *tenant);

/** The tenant goes. @thread main */
void weir_gates_tenant_gone(struct weir_tenant *tenant);

/* What a tenant was given, over all devices. Totals since the worker began. */
struct weir_gate_usage {
    uint64_t sm_ns;          /* of compute */
    uint64_t h2d_ns, d2h_ns; /* of the copies' directions */
    uint64_t h2d_bytes, d2h_bytes;
    uint64_t wait_ns; /* of items in the gate */
    uint64_t items;   /* all that passed */
    uint64_t gated;   /* of them, that the scheduler decided about */
    uint64_t stops;
};
/** @return false: there is no scheduler. @thread any */
bool weir_gates_usage(struct weir_tenant *tenant, struct weir_gate_usage *ret_usage);

/**
 * Wait until work may be given to a stream, which is in order already and whose device is current.
 *
 * @param ret_pass  for weir_gate_leave(), which must follow if this succeeds.
 * @return CUDA_SUCCESS
 * @return CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_DEVICE_UNAVAILABLE (the session ends)
 * @thread session
 */
CUresult weir_gate_enter(struct weir_session *session, struct weir_host_stream *stream,
                         const struct weir_gate_work *work, struct weir_gate_pass *ret_pass);

/** What came of it. @param result  of the driver: other than CUDA_SUCCESS: nothing was given. */
void weir_gate_leave(struct weir_gate_pass *pass, CUresult result);

/**
 * How work that can be stopped is launched: for weir_forms_launch(), once, which must follow.
 * NULL: nobody looks after it.
 */
struct weir_forms_order *weir_gate_order(const struct weir_gate_pass *pass);

/**
 * Is a kernel to be launched so that it can be stopped? Without a scheduler: as its forms say.
 * @thread session
 */
bool weir_gate_wants_runs(const struct weir_session *session, const struct weir_gate_hint *hint);

/** Is there a scheduler, and an SM limit, or another tenant that may come? @thread session */
bool weir_gate_may_want_runs(const struct weir_session *session);

/** May what the session's work looks like matter to others now? @thread session */
bool weir_gate_contends(const struct weir_session *session);

/** The key of a kernel with a block's geometry. */
uint64_t weir_gate_kernel_key(uint64_t kernel, const uint32_t block[3], uint32_t shared_bytes);

/**
 * The session will give nothing more for a while: marks behind all unmarked work, so that its end
 * is seen. Costs nothing where nothing is.
 * @thread session
 */
void weir_gate_idle(struct weir_session *session);

/** Has the session work that no mark stands behind yet? @thread session */
bool weir_gate_has_unmarked(const struct weir_session *session);

/** The guest waits for what a stream has been given: its end matters now. @thread session */
void weir_gate_stream_awaited(struct weir_session *session, struct weir_host_stream *stream);

/** What a stream is given next may have all SMs, in the stream that it was made as.
 * @thread session */
void weir_gate_stream_whole(struct weir_session *session, struct weir_host_stream *stream);

/**
 * A stream is about to be captured (marks behind unmarked work; all of the session's streams are
 * whole while any is) or destroyed. @thread session
 */
void weir_gate_stream_captures(struct weir_session *session, struct weir_host_stream *stream);
void weir_gate_stream_gone(struct weir_session *session, struct weir_host_stream *stream);

/** The priority for a stream of the session:
 * the tenant's class, within it what the guest asks for. */
int weir_gate_stream_priority(const struct weir_session *session, int asked);

/** The session's runs will not be stopped again (weir_forms_session_ends()). @thread session */
void weir_gate_session_ends(struct weir_session *session);
/** Its streams are drained and gone. @thread session */
void weir_gate_session_gone(struct weir_session *session);
/** Somebody wants the session to look up from its wait. @thread any, while the session lives */
void weir_gate_session_wake(struct weir_session *session);

#endif
