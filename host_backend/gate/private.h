/* What the files of this folder share. */
#ifndef WEIR_HOST_BACKEND_GATE_PRIVATE_H
#define WEIR_HOST_BACKEND_GATE_PRIVATE_H

#include "base/clock.h"
#include "host_backend/config/config.h"
#include "host_backend/config/file_cache.h"
#include "host_backend/gate/gate.h"
#include "sched/predict.h"
#include <pthread.h>
#include <stdatomic.h>

#define WEIR_GATE_ENTRIES   256u /* marks that a session may have under way on a device */
#define WEIR_GATE_BATCH_MAX 64u  /* items in front of each of them, at the most */
/* Kernels worth stopping: where they are moved and share SMs, or stopped for a higher class; and
 * where equals take turns, who can wait for the end of a shorter one and are paid back for it;
 * longer where all of these have long ones themselves, always the same. */
#define WEIR_GATE_MOVABLE_NS     (500 * WEIR_NS_PER_US)
#define WEIR_GATE_TURN_NS        (5 * WEIR_NS_PER_MS)
#define WEIR_GATE_STEADY_TURN_NS (9 * WEIR_NS_PER_MS)
#define WEIR_GATE_GUESS_NS       (20 * WEIR_NS_PER_US) /* of what nothing is known about */
#define WEIR_GATE_STALL_NS       (20 * WEIR_NS_PER_MS) /* alone, nothing done for so long is strange */

/* A piece of work that the scheduler decides about. */
struct weir_gate_item {
    struct weir_gate_item *next; /* behind it in its stream, before the next mark; or free */
    struct weir_gate *gate;
    struct weir_gate_queue *queue; /* while it is not gone */
    weir_sched_id id;
    uint64_t brought_ns;
    bool stoppable;
    enum weir_sched_fill fills; /* valid when granted, as is .. */
    struct weir_sched_place place;
    bool sure;          /* what it takes is known */
    atomic_bool halted; /* its run is stopped, or about to be */
    atomic_bool soon;   /* it will be granted soon: its thread may spin */
    /* Under the gate's lock. */
    uint32_t refs;               /* the queue's, an action's, the run's */
    bool given;                  /* to the stream */
    bool gone;                   /* the scheduler knows it no more */
    bool stop_late, resize_late; /* asked for before it was given */
    uint64_t lease_ns;           /* of a late stop */
    struct weir_sched_place late_place;
    atomic_bool granted;
    _Alignas(max_align_t) char room[]; /* the worker's */
};

/* Work in a stream up to a mark. */
struct weir_gate_entry {
    struct weir_gate_mark mark;
    struct weir_gate_batch work;
    weir_sched_id started; /* the scheduler's name for all that it had not been told of; or 0 */
    bool pending;          /* the mark is not reached, as far as is known */
};

/* A session on a device. */
struct weir_gate_queue {
    struct weir_gate_queue *next; /* of the gate, under its lock */
    struct weir_gate *gate;
    struct weir_gate_member *member;
    const struct weir_gate_session_ops *ops;
    void *session; /* for ops */
    weir_sched_id id;
    uint32_t sm_limit_pct; /* that the session asks for; 100: none */

    /* Session thread; the sums are read by others. */
    const struct weir_gate_hint *last; /* of what was launched last, alone; never followed */
    uint32_t gated;                    /* items that the scheduler decided about */
    atomic_uint_fast64_t given_ns;     /* predicted, of all that was given */
    atomic_uint_fast64_t unmarked_ns;  /* of what passed beside, and no mark stands behind */
    atomic_uint_fast64_t passed;       /* items that passed beside the scheduler */
    atomic_uint_fast64_t bytes[2];     /* of all copies: to the device, from it */
    atomic_uint_fast64_t stalled_at;   /* done_ns, and one, when it was let through for standing
                                          still; or 0 */

    /* Under the gate's lock, but for reading done_ns. */
    atomic_uint_fast64_t done_ns; /* of given_ns */
    weir_sched_id
        unmarked_started; /* the scheduler's name for unmarked_ns when it was first told */
    uint64_t looked_ns, done_seen_ns;
    uint64_t done_late_ns;          /* so long before done_seen_ns it may have been done */
    struct weir_gate_item *waiting; /* brought, and not yet granted */
    bool ending;

    pthread_mutex_t lock; /* guards the ring: [first, first + n) */
    struct weir_gate_entry ring[WEIR_GATE_ENTRIES];
    uint32_t first;
    uint64_t first_ns; /* when the one before the first was done */
    atomic_uint n;     /* peeked at without the lock: is there anything? */

    uint32_t word; /* a futex: changes when there is something to look at; atomic */
};

/* A tenant on a device. Under the gate's lock, but for sm_limit_pct. */
struct weir_gate_member {
    weir_sched_id id;
    struct weir_tenant_config settings;
    atomic_uint sm_limit_pct; /* the settings' */
    uint64_t seen_ns;         /* it last came by the slow way */
    uint64_t alone_sm_ns;     /* what it was given beside the scheduler */
    uint64_t alone_ns[2];     /* the same of copies: to the device, from it */
    uint64_t bytes[2];        /* of copies, of sessions that are gone */
    uint64_t passed;          /* items beside it, likewise */
    uint64_t gated;           /* items that the scheduler decided about */
};

enum weir_gate_act { WEIR_GATE_STOP, WEIR_GATE_RESUME, WEIR_GATE_RESIZE };

/* An order of the scheduler's about a run, to be carried out without the lock. */
struct weir_gate_action {
    struct weir_gate_item *item;
    enum weir_gate_act act;
    uint64_t lease_ns;
    struct weir_sched_place place;
};

struct weir_gate_trace;

struct weir_gate {
    const struct weir_gate_ops *ops;
    void *user; /* for ops */
    const struct weir_spin_page *spin_page;
    size_t item_room;
    uint32_t device;
    uint32_t sms;
    uint64_t alone_limit_ns, inflight_ns;
    struct weir_sched_config config; /* of sched */
    struct weir_policy_set policies; /* main thread */
    const struct weir_sched_shared *shared;
    bool spin;             /* the machine has many cores: weir_gate_may_spin() */
    uint32_t spinners_max; /* sessions that do so at a time */
    atomic_uint spinners;
    bool levels;                              /* streams of a higher class go first on the device */
    atomic_uint_fast64_t worth_stopping_ns;   /* of kernels that take so long: by the policies */
    atomic_bool crowded[WEIR_PRIORITY_COUNT]; /* several tenants of a class came within the
                                                       last second; without levels: of any */

    /* Main thread: what is kept of durations (keep.c). */
    struct weir_file_cache times;
    struct weir_hash times_key;
    uint64_t kept_ns, kept_learned;
    uint32_t keys_found; /* on disk */
    bool told_not_kept;

    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t work;
    pthread_t watcher;
    bool watching, quit, idle;
    struct weir_sched *sched;
    struct weir_predict *predict;
    struct weir_gate_trace *trace; /* NULL: nothing is recorded */
    struct weir_gate_queue *queues;
    struct weir_gate_item *free_items;
    uint32_t n_items; /* that the scheduler knows and that are not gone; also what was started */
    uint64_t timer_ns;
    uint64_t crowded_until_ns[WEIR_PRIORITY_COUNT];
    uint64_t passed_gone;  /* items beside it of tenants that are gone */
    uint64_t passed_stuck; /* items: what was in flight before them did not end */
    uint64_t event_ns;     /* when a mark was last seen reached */
    struct weir_gate_member *last_member[WEIR_PRIORITY_COUNT]; /* that came by the slow way */
    struct weir_gate_action *actions;                          /* a ring */
    uint32_t actions_room, first_action, n_actions;
    bool acting; /* somebody carries them out */
    struct weir_gate_member
        members[WEIR_CONFIG_TENANTS_MAX]; /* by the tenant's index; id 0: none */
};

/** May threads wait by spinning for a while? @thread any */
static inline bool weir_gate_may_spin(const struct weir_gate *gate)
{
    return gate->spin && weir_spin_host_may(gate->spin_page);
}

/* watch.c: the scheduler's side */

/** The functions that the scheduler calls. */
void weir_gate_env_init(struct weir_gate *gate, struct weir_sched_env *ret_env);

/** What was ordered before the item was given to its stream. */
void weir_gate_late_orders_locked(struct weir_gate_item *item);

/** Drop a reference. */
void weir_gate_item_put_locked(struct weir_gate *gate, struct weir_gate_item *item);

/** Unlock, having carried out what the scheduler ordered. @thread any with the context */
void weir_gate_unlock(struct weir_gate *gate);

/** Look which marks of a queue are reached, and tell the scheduler. */
void weir_gate_look_locked(struct weir_gate_queue *queue, uint64_t now_ns);

/** Nobody asks for a mark any more. */
void weir_gate_mark_put(const struct weir_gate *gate, const struct weir_gate_mark *mark);

/** Tell the scheduler of work of a queue that passed beside it. */
void weir_gate_adopt_locked(struct weir_gate_queue *queue, uint64_t now_ns);

/** An item goes without having been given, or its session does. */
void weir_gate_withdraw_locked(struct weir_gate_item *item, uint64_t now_ns);

/** Wake the thread of this file, which sleeps while nothing is under way. */
void weir_gate_kick_locked(struct weir_gate *gate);

/** Another tenant than those that came lately? Then it is crowded for a while. */
void weir_gate_seen_locked(struct weir_gate *gate, struct weir_gate_member *member,
                           uint64_t now_ns);

void *weir_gate_watch(void *gate);

/* trace.c */

/** For struct weir_sched_env: the record goes into the recording, if there is one. */
void weir_gate_on_record(void *gate, const struct weir_sched_record *record);

/** A policy of a kind has been put in force; NULL: none is any more. */
void weir_gate_trace_policy_locked(struct weir_gate *gate, int kind, const char *name);

/** A tenant is new to the scheduler: say what it is called. */
void weir_gate_trace_name_locked(struct weir_gate *gate, const struct weir_gate_member *member);

/* predict.c. Session threads. */

static inline bool weir_gate_is_copy(enum weir_sched_class class)
{
    return class == WEIR_SCHED_H2D || class == WEIR_SCHED_D2H;
}

/** In blocks or bytes. */
static inline uint64_t weir_gate_size_of(const struct weir_gate_work *work)
{
    return work->class == WEIR_SCHED_KERNEL || work->class == WEIR_SCHED_GRAPH ? work->blocks
                                                                               : work->bytes;
}

/** What the work is predicted to take, or guessed: pass->ns, and the work's hint. */
void weir_gate_ask_locked(struct weir_gate *gate, const struct weir_gate_work *work,
                          struct weir_gate_pass *pass, uint64_t now_ns);

/** The same, by the hint where that does, without the lock. */
void weir_gate_predict(struct weir_gate *gate, const struct weir_gate_work *work,
                       struct weir_gate_pass *pass);

/** Has enough of a kernel of which nothing sure is known (hint; or NULL) passed beside the
 * scheduler? */
bool weir_gate_is_blind(struct weir_gate_queue *queue, struct weir_gate_hint *hint);

/** Then, with marks behind all unmarked work: wait, and predict again.
 * false: the session is over. */
bool weir_gate_see(struct weir_gate_queue *queue, const struct weir_gate_work *work,
                   struct weir_gate_pass *pass);

/* wait.c. Session threads. */

/** Is the queue's tenant alone, by what the scheduler last said? */
bool weir_gate_is_alone(const struct weir_gate_queue *queue);

/** May so much more be in flight while it is? */
bool weir_gate_below(const struct weir_gate_queue *queue, uint64_t ns);

/** Wait until it may, or until the tenant is alone no more. false: the session is over. */
bool weir_gate_wait_below(struct weir_gate_queue *queue, uint64_t ns);

/**
 * Wait until as much is done as had been given when given_ns was so much, half a second at most, or
 * until the tenant is alone no more.
 * @param ret_done  is it?
 * @return false: the session is over
 */
bool weir_gate_wait_done(struct weir_gate_queue *queue, uint64_t given_ns, bool *ret_done);

/**
 * An item waits: while that is for room behind its own session's work, whose end is seen by marks
 * that are under way, it is waited for here, for about as long as a batch of marks takes.
 * @return granted; false: somebody else waits for the end of what no mark stands behind, too
 */
bool weir_gate_wait_room(struct weir_gate_queue *queue, const struct weir_gate_item *item);

/** Wait until an item is granted. @param ns  predicted. @return false: the session is over. */
bool weir_gate_wait_granted(struct weir_gate_queue *queue, struct weir_gate_item *item,
                            uint64_t ns);

/* keep.c. Main thread. */

/** Take over what is on disk, if anything. */
void weir_gate_times_open(struct weir_gate *gate, const char *dir, const char *times_of);
/** Keep what is known now. */
void weir_gate_times_close(struct weir_gate *gate);

/* make.c */

/** Among which a tenant's kernels are to be stoppable: its class, where the device itself lets
 * higher classes go first; else all are one. */
static inline unsigned weir_gate_peers(const struct weir_gate *gate, enum weir_priority priority)
{
    return gate->levels ? (unsigned)priority : 0;
}

/** A tenant as the scheduler is told of it. */
struct weir_sched_tenant_params weir_gate_tenant_params(const struct weir_tenant_config *tenant);
/** Give a member these settings, and say what the scheduler is told of them. */
struct weir_sched_tenant_params
weir_gate_member_set_locked(struct weir_gate_member *member,
                            const struct weir_tenant_config *settings);

/** The part of the SMs that a queue may use: its tenant's limit, or what it asks for itself. */
static inline uint32_t weir_gate_sm_limit_pct(const struct weir_gate_queue *queue)
{
    uint32_t granted = atomic_load_explicit(&queue->member->sm_limit_pct, memory_order_relaxed);

    return queue->sm_limit_pct < granted ? queue->sm_limit_pct : granted;
}

#endif
