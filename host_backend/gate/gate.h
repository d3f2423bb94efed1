/*
 * The gate: the live scheduler of one GPU, and the interface between it and whoever gives that GPU
 * work.
 *
 * The gate knows no CUDA, no session and no stream. A worker tells it
 *
 *     tenants      weir_gate_tenant_set(), weir_gate_tenant_remove()
 *     arrivals     weir_gate_enter(): work that is about to be given to a stream
 *     what it gave weir_gate_leave(): the work went to the stream, or nothing was given
 *     completion   weir_gate_batch_close(): a word that the GPU writes behind what a stream was
 * given withdrawals  weir_gate_batch_drop(), weir_gate_queue_destroy() runs
 * weir_gate_run_stopped(), weir_gate_run_goes_on()
 *
 * and hears from it grants (struct weir_gate_pass) and orders about runs (struct weir_gate_ops).
 * All of it is plain data, so that the gate can move into a process of its own without a change in
 * a handler.
 *
 * While a tenant is alone and has little in flight, its work passes with a few loads and stores;
 * otherwise the session's thread takes the gate's lock, brings the item to the scheduler
 * (sched/sched.h) and waits for the grant.
 *
 * Source: docs/design/scheduling.md, docs/design/gate.md
 */
#ifndef WEIR_HOST_BACKEND_GATE_GATE_H
#define WEIR_HOST_BACKEND_GATE_GATE_H

#include "base/priority.h"
#include "base/status.h"
#include "host_backend/config/config.h"
#include "host_backend/config/scheduler.h"
#include "host_backend/config/spin.h"
#include "sched/policy.h"
#include "sched/sched.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct weir_gate;       /* of a GPU. Internally locked */
struct weir_gate_item;  /* work that the scheduler decides about */
struct weir_gate_queue; /* of a session on that GPU */
struct weir_status_prediction;

/* ---------------------------------------------------------------- plain data */

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

/* An arrival: what is about to be given to a stream. */
struct weir_gate_work {
    enum weir_sched_class class;
    uint64_t key;                /* kernels and graphs */
    uint64_t bytes;              /* copies and memsets */
    uint32_t blocks;             /* kernels */
    uint32_t blocks_per_sm;      /* 0: not known */
    uint32_t flags;              /* enum weir_sched_item_flags */
    struct weir_gate_hint *hint; /* of a kernel or graph; or NULL */
};

/* A grant, from enter to leave. */
struct weir_gate_pass {
    struct weir_gate_queue *queue;
    struct weir_gate_item *item; /* NULL: passed as its tenant is alone */
    uint64_t ns, key, size;
    uint8_t class; /* enum weir_sched_class */
    bool guessed;  /* ns is not a prediction */
    /* Of an item; zero without one. */
    struct weir_sched_place place; /* what it is to have of the device */
    enum weir_sched_fill fills;    /* it fills what another's turn leaves */
    bool stoppable;                /* as the work said */
};

/* Work that a stream has been given since its last completion word. Zeroed: none. */
struct weir_gate_batch {
    struct weir_gate_item *first, *last; /* that the scheduler knows */
    uint64_t ns, since_ns;               /* predicted; when the first was given */
    uint64_t beside_ns;                  /* of ns, of what the scheduler does not know */
    uint64_t key, size;                  /* of all of them, while they are alike */
    uint32_t n;
    uint8_t class, last_class;
    bool alike, guessed;
};

/* How it is seen that a stream has got somewhere: one of the two. */
struct weir_gate_mark {
    const uint32_t *word; /* the GPU writes value there, or a larger one */
    uint32_t value;
    void *event; /* where it cannot write words: weir_gate_ops.event_reached() tells */
};

/* What a tenant was given of a device. Totals since the gate began. */
struct weir_gate_usage {
    uint64_t sm_ns;          /* of compute */
    uint64_t h2d_ns, d2h_ns; /* of the copies' directions */
    uint64_t h2d_bytes, d2h_bytes;
    uint64_t wait_ns; /* of items in the gate */
    uint64_t items;   /* all that passed */
    uint64_t gated;   /* of them, that the scheduler decided about */
    uint64_t stops;
};

/* ---------------------------------------------------------------- what the gate asks for */

enum weir_gate_stop { WEIR_GATE_STOPS, WEIR_GATE_STOPS_NOT_NOW, WEIR_GATE_STOPS_NEVER };

/*
 * Of a device. Called without the gate's lock, by any thread that uses the gate, but for
 * item_gone(). What is handed over of an item is weir_gate_item_room().
 */
struct weir_gate_ops {
    void (*thread_begins)(void *user); /* by the gate's own thread, first */
    bool (*event_reached)(void *user, void *event);
    void (*event_put)(void *user, void *event); /* nobody asks for it any more */
    /** @param lease_ns  it goes on by itself after that. */
    enum weir_gate_stop (*stop)(void *user, void *item, uint64_t lease_ns);
    void (*resume)(void *user, void *item, const struct weir_sched_place *place);
    void (*resize)(void *user, void *item, const struct weir_sched_place *place);
    void (*describe)(const void *item, char *text, size_t bytes); /* for the log */
    void (*item_gone)(void *item); /* with the gate's lock: its room is free for another */
};

/* Of a session. Called by its own thread, without a lock. */
struct weir_gate_session_ops {
    bool (*is_over)(void *session); /* nobody is there any more who wants its work done */
    bool (*attend)(void *session);  /* to what cannot wait; true: again within a millisecond */
    void (*rests)(void *session, bool rests); /* it waits in the gate from now on, or no more */
    /** Put completion words behind all that its streams were given. */
    void (*mark_all)(void *session, struct weir_gate_queue *queue);
};

/* ---------------------------------------------------------------- a gate */

struct weir_gate_params {
    uint32_t device;           /* the worker's index, for the log */
    uint32_t sms;              /* 1 or more */
    bool levels;               /* streams of a higher class go first on the device */
    bool real;                 /* a GPU, not softgpu: threads may spin where there are cores */
    enum weir_sched_fill fill; /* what the device can do of the settings' */
    const struct weir_sched_settings *settings; /* borrowed for the call */
    const struct weir_policy_set *policies;     /* likewise */
    const struct weir_spin_page *spin;          /* borrowed: who may spin now */
    const char *times_dir; /* borrowed for the call: where what is learned is kept
                              (host_backend/config/file_cache.h) */
    const char *times_of;  /* borrowed for the call: what it holds for (GPU, driver, worker) */
    size_t item_room;      /* bytes that each item has for the worker's own use, zeroed at first */
    const struct weir_gate_ops *ops; /* borrowed */
    void *user;                      /* for ops */
};

/**
 * Make a device's gate, and its thread.
 * @return WEIR_OK, WEIR_ERR_NO_MEMORY, WEIR_ERR_INVALID (sched/sched.h)
 * @thread main
 */
enum weir_status weir_gate_create(const struct weir_gate_params *params,
                                  struct weir_gate **ret_gate) WEIR_MUST_CHECK;

/** No queue may be left. Accepts NULL. Keeps what was learned. @thread main, with the context */
void weir_gate_destroy(struct weir_gate *gate);

/** What is known of durations. @thread any */
void weir_gate_prediction(struct weir_gate *gate, struct weir_status_prediction *row);

/** Now and then: what was learned of durations goes to disk when it is time. @thread main */
void weir_gate_keep(struct weir_gate *gate);

/** Other policies. @thread main */
void weir_gate_policies_set(struct weir_gate *gate, const struct weir_policy_set *policies);

/** @param slot  of the tenant: below WEIR_CONFIG_TENANTS_MAX. @thread main */
void weir_gate_tenant_set(struct weir_gate *gate, uint32_t slot,
                          const struct weir_tenant_config *tenant);
/** It goes; it has no queue. @thread main */
void weir_gate_tenant_remove(struct weir_gate *gate, uint32_t slot);
/** Adds to usage. @thread any */
void weir_gate_tenant_usage(struct weir_gate *gate, uint32_t slot, struct weir_gate_usage *usage);

/**
 * Begin to record. While that lasts, nothing passes beside the scheduler.
 *
 * @param fd    takes it; a regular file.
 * @param text  gets what came of it: "recording ...", or "error: ...".
 * @thread main
 */
void weir_gate_trace_start(struct weir_gate *gate, int fd, char *text, size_t bytes);
/** End a recording. @param text  gets what is in the file. @return false: there was none. @thread
 * main */
bool weir_gate_trace_stop(struct weir_gate *gate, char *text, size_t bytes);

/* ---------------------------------------------------------------- a session on a device */

/**
 * @param tenant  as of weir_gate_tenant_set(), for the first queue of a slot.
 * @param sm_limit_pct  that the session asks for itself; 100: none.
 * @param ops     borrowed.
 * @return WEIR_OK, WEIR_ERR_NO_MEMORY, WEIR_ERR_TOO_MANY
 * @thread session
 */
enum weir_status weir_gate_queue_create(struct weir_gate *gate, uint32_t slot,
                                        const struct weir_tenant_config *tenant,
                                        uint32_t sm_limit_pct,
                                        const struct weir_gate_session_ops *ops, void *session,
                                        struct weir_gate_queue **ret_queue) WEIR_MUST_CHECK;

/** The session ends: its runs will not be stopped again. @thread session, with the context */
void weir_gate_queue_ends(struct weir_gate_queue *queue);
/** Its work is done or given up: the rest is withdrawn. @thread session, with the context */
void weir_gate_queue_destroy(struct weir_gate_queue *queue);
/** The session's thread is to look up from its wait. @thread any, while the queue lives */
void weir_gate_queue_wake(struct weir_gate_queue *queue);

/** May what its work looks like matter to others now? @thread session */
bool weir_gate_contends(const struct weir_gate_queue *queue);

/**
 * Is a kernel to be launched so that it can be stopped?
 *
 * @param sm_limit_pct  the lower of the tenant's and the session's.
 * @thread any
 */
bool weir_gate_wants_runs(const struct weir_gate *gate, enum weir_priority priority,
                          uint32_t sm_limit_pct, const struct weir_gate_hint *hint);

/* ---------------------------------------------------------------- a piece of work */

/**
 * Wait until work may be given to a stream.
 *
 * @param ret_pass  for weir_gate_leave(), which must follow if this succeeds.
 * @return WEIR_OK, WEIR_ERR_NO_MEMORY
 * @return WEIR_ERR_CLOSED  the session is over
 * @thread session, with the context
 */
enum weir_status weir_gate_enter(struct weir_gate_queue *queue, const struct weir_gate_work *work,
                                 struct weir_gate_pass *ret_pass) WEIR_MUST_CHECK;

/** Is a completion word to be put behind what the stream has, before this goes there? @thread
 * session */
bool weir_gate_begins_apart(const struct weir_gate_pass *pass, const struct weir_gate_batch *batch);

/**
 * What came of it.
 *
 * @param batch  of the stream that it was given to.
 * @param given  false: nothing was given.
 * @return whether a completion word is to be put behind the batch now.
 * @thread session, with the context
 */
bool weir_gate_leave(struct weir_gate_pass *pass, struct weir_gate_batch *batch, bool given);

/** Is there room for one more closed batch? @thread session */
bool weir_gate_batch_may_close(const struct weir_gate_queue *queue);
/** A mark stands behind a batch: takes it, and leaves the batch zeroed. @thread session */
void weir_gate_batch_close(struct weir_gate_queue *queue, struct weir_gate_batch *batch,
                           const struct weir_gate_mark *mark);
/** Its stream goes, and no mark is to be had behind it. @thread session, with the context */
void weir_gate_batch_drop(struct weir_gate_queue *queue, struct weir_gate_batch *batch);

/** Look which marks are reached, and tell the scheduler. @thread session, with the context */
void weir_gate_look(struct weir_gate_queue *queue);
/** Are there closed batches whose end is not known yet? @thread session */
bool weir_gate_in_flight(const struct weir_gate_queue *queue);

/* ---------------------------------------------------------------- runs */

/** The worker's room in an item. @thread any that holds the item */
void *weir_gate_item_room(struct weir_gate_item *item);
/** A run refers to its item, until weir_gate_item_drop(). @thread any */
void weir_gate_item_hold(struct weir_gate_item *item);
void weir_gate_item_drop(struct weir_gate_item *item);
/** The item's run has stopped. @param done_blocks  of its grid. @thread any with the context */
void weir_gate_run_stopped(struct weir_gate_item *item, uint32_t done_blocks);
/** It goes on, or does not stop. @param may_stop  it may be asked again. @thread any with the
 * context */
void weir_gate_run_goes_on(struct weir_gate_item *item, bool may_stop);

/** The key of a kernel with a block's geometry. */
uint64_t weir_gate_kernel_key(uint64_t kernel, const uint32_t block[3], uint32_t shared_bytes);

#endif
