/*
 * A worker's gate for one of its GPUs: it lets work pass undecided, or asks the gate process.
 *
 * The gate knows no CUDA, no session and no stream. A worker tells it about
 *
 *     arrivals     weir_gate_enter(): work will go to a stream
 *     launches     weir_gate_leave(): the work went to its stream, or it did not
 *     completions  weir_gate_batch_close(): where the GPU writes a word when the work has ended
 *     withdrawals  weir_gate_batch_drop(), weir_gate_queue_destroy()
 *     runs         weir_gate_run_stopped(), weir_gate_run_goes_on()
 *
 * The gate answers with grants (struct weir_gate_pass) and with orders about runs (struct
 * weir_gate_ops).
 *
 * While only one tenant has work, and little of it is in flight, that work passes with a few loads
 * and stores. Otherwise the session's thread takes the gate's lock, posts the item to the gate
 * process, which has the schedulers (sched/sched.h) and serves all workers, and waits for the
 * grant. Until a gate is attached to it (weir_gate_attach()), and when the gate process is lost,
 * all work passes undecided.
 *
 * Source: docs/design/scheduling.md, docs/design/gate.md
 */
#pragma once

#include "base/priority.h"
#include "base/status.h"
#include "host_backend/config/config.h"
#include "host_backend/config/scheduler.h"
#include "host_backend/config/spin.h"
#include "sched/sched.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct weir_gate;        /* one GPU's gate; internally locked */
struct weir_gate_item;   /* a piece of work that the gate process decides about */
struct weir_gate_queue;  /* one session's work on that GPU */
struct weir_gate_client; /* a worker's end of its port to the gate process */
struct weir_status_tenant;

/* ---------------------------------------------------------------- plain data */

/*
 * A cache of the last prediction for a kernel or a graph, stored next to the object, so that most
 * launches need not ask the scheduler. Zeroed: empty. Used by the session's thread only.
 */
struct weir_gate_hint {
    uint64_t kernel;           /* the kernel's key, without block geometry; 0: not computed yet */
    uint64_t item_key;         /* the key for which the prediction was made */
    uint32_t blocks;           /* the number of blocks for which the prediction was made */
    uint32_t uses;             /* launches since the prediction was made */
    uint64_t ns;               /* the predicted duration; 0: not known */
    bool sure;                 /* measurements have confirmed ns */
    uint64_t fit_key;          /* key with block geometry, for which blocks_per_sm holds */
    uint32_t blocks_per_sm;    /* the number of blocks of this launch that fit on an SM */
    uint32_t blind, blind_max; /* launches since the last reliable prediction; their maximum */
    uint64_t blind_given_ns;   /* predict again when the queue's done_ns has reached this */
};

/* An arrival: work that will go to a stream. */
struct weir_gate_work {
    enum weir_sched_class class;
    uint64_t key;   /* set for kernels and graphs; 0: no prediction */
    uint64_t bytes; /* size of a copy or memset; for a kernel that can be moved: a block's bytes of
                       shared memory */
    uint64_t rest_bytes;         /* for a copy in pieces: bytes that follow; 0: it is the last */
    uint32_t blocks;             /* set for kernels */
    uint32_t blocks_per_sm;      /* 0: not known */
    uint32_t flags;              /* enum weir_sched_item_flags */
    struct weir_gate_hint *hint; /* the hint of the kernel or graph; NULL: none */
};

/* The permission to launch, from weir_gate_enter() to weir_gate_leave(). */
struct weir_gate_pass {
    struct weir_gate_queue *queue;
    struct weir_gate_item *item; /* NULL: the work passed undecided */
    uint64_t ns, key, size;
    uint8_t class; /* enum weir_sched_class */
    bool guessed;  /* ns is a default, not a prediction */
    /* The scheduler's decision about the item; zero if the work passed undecided. */
    struct weir_sched_place place; /* the part of the device that the work may use */
    uint32_t beside_bytes; /* with a block limit: the shared memory of an SM that must stay free for
                              others' blocks */
    enum weir_sched_level level; /* the work's level on the device; WEIR_SCHED_PLAIN if undecided */
    bool stoppable;              /* copied from the work's flags */
    uint8_t cause; /* enum weir_sched_cause: why the work waited last; not set if undecided */
};

/* The work in a stream since its last mark. Zeroed: none. */
struct weir_gate_batch {
    struct weir_gate_item *first, *last; /* the items that the scheduler decided about */
    uint64_t ns, since_ns; /* predicted duration of all; when its first part was launched */
    uint64_t beside_ns;    /* the part of ns that passed undecided */
    uint64_t key, size;    /* while alike is set: the key and size of all work in the batch */
    uint32_t n;
    uint8_t class, last_class;
    bool alike, guessed;
};

/* How the gate sees that a stream has reached a mark: by a word in memory or, without one, by an
 * event. */
struct weir_gate_mark {
    const uint32_t *word; /* the mark is reached when the GPU has written value or more here */
    uint32_t value;
    void *event; /* used where the GPU cannot write words; for weir_gate_ops.event_reached() */
};

/* ---------------------------------------------------------------- what the gate asks for */

enum weir_gate_stop { WEIR_GATE_STOPS, WEIR_GATE_STOPS_NOT_NOW, WEIR_GATE_STOPS_NEVER };

/*
 * What the gate calls to act on its device. Any thread that uses the gate may make these calls, and
 * it does not hold the gate's lock, except for item_gone(). An item is passed as its
 * weir_gate_item_room().
 */
struct weir_gate_ops {
    void (*thread_begins)(void *user); /* called first on the gate's own thread */
    bool (*event_reached)(void *user, void *event);
    void (*event_put)(void *user, void *event); /* the gate no longer needs the event */
    /** Stop a run. @param lease_ns the run must resume by itself after this time. */
    enum weir_gate_stop (*stop)(void *user, void *item, uint64_t lease_ns);
    void (*resume)(void *user, void *item, const struct weir_sched_place *place);
    void (*resize)(void *user, void *item, const struct weir_sched_place *place);
    void (*describe)(const void *item, char *text, size_t bytes); /* writes a text for the log */
    void (*item_gone)(void *item); /* called with the gate's lock: another item gets the room */
    void (*deaf)(
        void *user); /* The gate process is unresponsive, and the gate was detached from it. Called
                        on a session's thread, once for each weir_gate_attach() */
};

#define WEIR_GATE_PROGRAM_BYTES 24u /* size of a program's name with the NUL */

/* What the gate calls while a session's thread waits in it. It calls on that thread, without a
 * lock, except where a member says otherwise. */
struct weir_gate_session_ops {
    bool (*is_over)(void *session); /* the session ends, so stop waiting */
    bool (*attend)(void *session);  /* do what cannot wait; true: call again within 1 ms */
    void (*rests)(void *session, bool rests); /* the thread begins or ends its wait in the gate */
    /** Give the session's number and its program's name, cut to WEIR_GATE_PROGRAM_BYTES. NULL: it
     * has neither. Called with the gate's lock, by any thread. */
    void (*name)(void *session, uint64_t *ret_number, char *ret_program);
    /** The current SM limit of its tenant in percent; 100: none. Called with the gate's lock. */
    uint32_t (*sm_limit_pct)(void *session);
    /** Put a mark behind the unmarked work of all the session's streams. */
    void (*mark_all)(void *session, struct weir_gate_queue *queue);
};

/* ---------------------------------------------------------------- a gate */

struct weir_gate_params {
    uint32_t device;    /* the worker's index, for the log */
    uint32_t sms;       /* number of all SMs of the device, 1 or more */
    uint32_t share_pct; /* percent of the SMs that the worker's context may use; 0: all */
    bool levels;        /* the device first runs work in streams of a higher priority */
    bool real; /* the device is a GPU, not softgpu: threads may spin if there are enough cores */
    enum weir_sched_fill fill; /* the setting, lowered to what the device supports */
    const struct weir_sched_settings *settings; /* borrowed for the call */
    const struct weir_spin_page *spin;          /* borrowed: says who may spin now */
    const uint8_t *uuid; /* the GPU's UUID, 16 bytes, borrowed for the call: the gate process
                            identifies the GPU by it */
    size_t item_room;    /* bytes in each item for the worker's own use; zeroed at first */
    const struct weir_gate_ops *ops; /* borrowed */
    void *user;                      /* for ops */
};

/**
 * Make a device's gate, and its thread.
 * @return WEIR_OK, WEIR_ERR_NO_MEMORY
 * @thread main
 */
enum weir_status weir_gate_create(const struct weir_gate_params *params,
                                  struct weir_gate **ret_gate) WEIR_MUST_CHECK;

/**
 * Free the gate. No queue may be left. Accepts NULL.
 * @thread main, with the context
 */
void weir_gate_destroy(struct weir_gate *gate);

/* ---------------------------------------------------------------- the gate process */

/**
 * Open a worker's end of a port (port.h).
 *
 * @param port_fd  borrowed.
 * @param bell_fd  the client keeps it and closes it in the end.
 * @param older    the client to replace, whose gates are detached; taken; or NULL.
 * @return WEIR_OK, WEIR_ERR_INVALID, WEIR_ERR_VERSION, WEIR_ERR_NO_MEMORY (nothing was taken)
 * @thread main
 */
enum weir_status weir_gate_client_create(int port_fd, int bell_fd, struct weir_gate_client *older,
                                         struct weir_gate_client **ret_client) WEIR_MUST_CHECK;
/** Free a client and all that it has replaced. Their gates are gone. Accepts NULL. @thread main */
void weir_gate_client_destroy(struct weir_gate_client *client);

/**
 * From now on the gate process decides about work that arrives.
 * @param client  borrowed until the gate is destroyed.
 * @thread main
 */
void weir_gate_attach(struct weir_gate *gate, struct weir_gate_client *client);
/** The gate process is lost: waiting items pass, and stopped runs resume. */
bool weir_gate_detach(struct weir_gate *gate);

/** Remove a tenant that has no queue. @thread main */
void weir_gate_tenant_remove(struct weir_gate *gate, uint32_t slot);
/** Add to a row of weir-status(1) what the tenant has copied, and how many items passed undecided.
 * @thread any */
void weir_gate_tenant_usage(struct weir_gate *gate, uint32_t slot, struct weir_status_tenant *row);

/* ---------------------------------------------------------------- a session on a device */

/**
 * A session begins to use the device.
 *
 * @param slot    the tenant's slot, below WEIR_CONFIG_TENANTS_MAX.
 * @param tenant  the tenant's name; borrowed for the call.
 * @param sm_limit_pct  the session's own limit, or its context's share if less; 100: none.
 * @param ops     borrowed.
 * @return WEIR_OK, WEIR_ERR_NO_MEMORY
 * @thread session
 */
enum weir_status weir_gate_queue_create(struct weir_gate *gate, uint32_t slot, const char *tenant,
                                        uint32_t sm_limit_pct,
                                        const struct weir_gate_session_ops *ops, void *session,
                                        struct weir_gate_queue **ret_queue) WEIR_MUST_CHECK;

/** The session ends: its runs are not stopped any more. @thread session, with the context */
void weir_gate_queue_ends(struct weir_gate_queue *queue);
/** Withdraw work that has not ended, and free the queue. @thread session, with the context */
void weir_gate_queue_destroy(struct weir_gate_queue *queue);
/** Make a waiting session thread call its ops again. @thread any, while the queue lives */
void weir_gate_queue_wake(struct weir_gate_queue *queue);

/** May a graph that needs this many SMs (0: unknown) run beside any tenant's turn? @thread any */
bool weir_gate_is_small(const struct weir_gate *gate, uint32_t sms);

/** Does the queue's tenant share the device with others now? @thread session */
bool weir_gate_contends(const struct weir_gate_queue *queue);

/**
 * Should a kernel be launched in a form that can be stopped?
 *
 * @param sm_limit_pct  the lower of the tenant's and the session's.
 * @return how many percent slower than the original that form may be; 0: launch the original;
 *         UINT32_MAX: any slowdown
 * @thread any
 */
uint32_t weir_gate_run_cost_pct(const struct weir_gate *gate, enum weir_priority priority,
                                uint32_t sm_limit_pct, const struct weir_gate_hint *hint);

/**
 * Did a tenant of the same or a higher class have work at the same time as one of this class in the
 * last second? @thread any
 */
bool weir_gate_has_company(const struct weir_gate *gate, enum weir_priority priority);

/* ---------------------------------------------------------------- a piece of work */

/**
 * Wait until work may be given to a stream.
 *
 * @param ret_pass  for weir_gate_leave(), which must follow if this succeeds.
 * @return WEIR_OK, WEIR_ERR_NO_MEMORY (also: the worker has too many sessions)
 * @return WEIR_ERR_CLOSED  the session is over
 * @thread session, with the context
 */
enum weir_status weir_gate_enter(struct weir_gate_queue *queue, const struct weir_gate_work *work,
                                 struct weir_gate_pass *ret_pass) WEIR_MUST_CHECK;

/** Should the stream get a mark before this work goes there? @thread session */
bool weir_gate_begins_apart(const struct weir_gate_pass *pass, const struct weir_gate_batch *batch);

/**
 * Follow weir_gate_enter(): the work went to its stream, or the driver refused it.
 *
 * @param batch  the stream's.
 * @param given  false: the stream got nothing.
 * @return true if the stream should get a mark now.
 * @thread session, with the context
 */
bool weir_gate_leave(struct weir_gate_pass *pass, struct weir_gate_batch *batch, bool given);

/** Has the queue room for one more closed batch? @thread session */
bool weir_gate_batch_may_close(const struct weir_gate_queue *queue);
/** The batch has a mark behind it: take its contents and zero it. @thread session */
void weir_gate_batch_close(struct weir_gate_queue *queue, struct weir_gate_batch *batch,
                           const struct weir_gate_mark *mark);
/** Withdraw a batch whose stream goes away unmarked. @thread session, with the context */
void weir_gate_batch_drop(struct weir_gate_queue *queue, struct weir_gate_batch *batch);

/** Report to the gate process which marks were reached. @thread session, with the context */
void weir_gate_look(struct weir_gate_queue *queue);
/** Are there closed batches whose mark was not seen yet? @thread session */
bool weir_gate_in_flight(const struct weir_gate_queue *queue);

/* ---------------------------------------------------------------- runs */

/** The worker's room in an item. @thread any that holds the item */
void *weir_gate_item_room(struct weir_gate_item *item);
/** Keep an item for a run, until weir_gate_item_drop(). @thread any */
void weir_gate_item_hold(struct weir_gate_item *item);
void weir_gate_item_drop(struct weir_gate_item *item);
/**
 * The item's run has stopped.
 * @param done_blocks  blocks that have ended.
 * @thread any with the context
 */
void weir_gate_run_stopped(struct weir_gate_item *item, uint32_t done_blocks);
/**
 * The item's run has resumed, or could not stop.
 * @param may_stop  the scheduler may try again later.
 * @thread any with the context
 */
void weir_gate_run_goes_on(struct weir_gate_item *item, bool may_stop);

/** Compute the key of a kernel with this block geometry; it has WEIR_PREDICT_KEY_BITS. */
uint64_t weir_gate_kernel_key(uint64_t kernel, const uint32_t block[3], uint32_t shared_bytes);
