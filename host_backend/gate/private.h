/* What the files of this folder share. */
#ifndef WEIR_HOST_BACKEND_GATE_PRIVATE_H
#define WEIR_HOST_BACKEND_GATE_PRIVATE_H

#include "base/clock.h"
#include "host_backend/config/config.h"
#include "host_backend/gate/client.h"
#include "host_backend/gate/gate.h"
#include "sched/predict.h"
#include <pthread.h>
#include <stdatomic.h>

#define WEIR_GATE_ENTRIES  256u /* marks of a session on a device that are not reached yet */
#define WEIR_GATE_STALL_NS (20 * WEIR_NS_PER_MS) /* no progress for this long is unusual */

/* A piece of work that the gate process decides about. */
struct weir_gate_item {
    struct weir_gate *gate; /* constant, because threads of other gates may ask for it */
    /* Cleared before each use, from here on. */
    struct weir_gate_item *next;   /* in its stream up to the next mark, or in the free list */
    struct weir_gate_queue *queue; /* valid until gone */
    weir_gate_name name;
    uint64_t brought_ns;
    bool stoppable;
    enum weir_sched_level level; /* valid once granted, like the place */
    struct weir_sched_place place;
    bool sure;                   /* its predicted duration is reliable */
    struct weir_gate_slot *slot; /* where the gate process grants it */
    uint32_t sequence;           /* its arrival's, there */
    atomic_bool halted;          /* its run is stopped, or about to be */
    /* Under the gate's lock. */
    uint32_t refs;               /* held by the queue, by actions and by the run */
    bool given;                  /* it went to its stream */
    bool gone;                   /* it has ended or was withdrawn */
    bool stop_late, resize_late; /* ordered before it was given: carried out then */
    uint64_t lease_ns;           /* for stop_late */
    struct weir_sched_place late_place;
    atomic_bool granted;
    _Alignas(max_align_t) char room[]; /* the worker's */
};

/* Work in a stream up to a mark. */
struct weir_gate_entry {
    struct weir_gate_mark mark;
    struct weir_gate_batch work;
    weir_gate_name started; /* the item that stands for the work of beside_ns; 0: not told yet */
    bool pending;           /* the mark was not seen reached yet */
};

/* A session on a device. */
struct weir_gate_queue {
    struct weir_gate_queue *next; /* of the gate, under its lock */
    struct weir_gate *gate;
    struct weir_gate_member *member;
    const struct weir_gate_session_ops *ops;
    void *session;         /* for ops */
    uint32_t sm_limit_pct; /* the session's own, or its context's share if less; 100: none */
    /* The gate process knows the queue by this slot; NULL: it does not know it. Written under the
     * gate's lock. */
    struct weir_gate_client *_Atomic client;
    uint32_t slot;

    /* Written by the session's thread; others read the sums. */
    const struct weir_gate_hint *last; /* names the last launch without a decision; not followed */
    uint32_t gated;                    /* items that the gate process decided about */
    atomic_uint_fast64_t given_ns;     /* predicted duration of all work that streams were given */
    atomic_uint_fast64_t unmarked_ns;  /* the part that passed undecided and has no mark yet */
    atomic_uint_fast64_t passed;       /* items that passed without a decision */
    atomic_uint_fast64_t bytes[2];     /* copied to the device, and from it */
    atomic_uint_fast64_t stalled_at;   /* 0, or done_ns + 1 when the queue made no progress and
                                          was let through for that */

    /* Under the gate's lock; done_ns may be read without it. */
    atomic_uint_fast64_t done_ns;    /* the part of given_ns that has ended */
    weir_gate_name unmarked_started; /* the item that stands for the work of unmarked_ns */
    uint64_t looked_ns, done_seen_ns;
    uint64_t stuck_told_ns; /* since when the work that was last logged as stuck is the oldest */
    uint64_t done_late_ns;  /* the work may have ended up to this long before done_seen_ns */
    struct weir_gate_item *waiting; /* not granted yet */

    pthread_mutex_t lock; /* guards the ring: [first, first + n) */
    struct weir_gate_entry ring[WEIR_GATE_ENTRIES];
    uint32_t first;
    uint64_t first_ns; /* when the entry before the first had ended */
    atomic_uint n;     /* read without the lock, too: is the ring empty? */
};

/* A tenant on a device, under the gate's lock. */
struct weir_gate_member {
    char name[WEIR_TENANT_NAME_BYTES];
    uint64_t bytes[2];      /* copied by sessions that are gone: to the device, from it */
    uint64_t passed;        /* items of such sessions that passed without a decision */
    uint64_t stuck_said_ns; /* when work of it was last logged as stuck; 0: never */
    uint64_t stuck_unsaid;  /* pieces of such work since then */
};

enum weir_gate_act { WEIR_GATE_STOP, WEIR_GATE_RESUME, WEIR_GATE_RESIZE };

/* What the gate process has ordered about a run. It is carried out without the lock. */
struct weir_gate_action {
    struct weir_gate_item *item;
    enum weir_gate_act act;
    uint64_t lease_ns;
    struct weir_sched_place place;
};

struct weir_gate {
    const struct weir_gate_ops *ops;
    void *user; /* for ops */
    const struct weir_spin_page *spin_page;
    size_t item_room;
    uint32_t device;
    uint32_t share_pct;              /* as in weir_gate_params */
    struct weir_sched_config config; /* for guesses and bounds; nothing is decided here */
    bool spin;                       /* there are enough cores: weir_gate_may_spin() */
    uint32_t spinners_max;           /* sessions that may spin at the same time */
    atomic_uint spinners;
    bool levels;                             /* as in weir_gate_params */
    struct weir_gate_client *_Atomic client; /* NULL: it is attached to no gate process */
    _Alignas(uint64_t) uint8_t uuid[16];

    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t work;
    pthread_t watcher;
    bool watching, quit;
    atomic_bool idle;             /* the watcher sleeps; read without the lock, too */
    struct weir_predict *predict; /* of what passes undecided */
    struct weir_gate_queue *queues;
    struct weir_gate_item *free_items;
    uint32_t n_items; /* that the gate process knows, with those that stand for undecided work */
    uint64_t passed_gone;  /* items of tenants that are gone, passed without a decision */
    uint64_t passed_stuck; /* items let through because the work before them did not end */
    uint64_t event_ns;     /* when a mark was last seen reached */
    bool told_full;        /* that it cannot take more queues */
    struct weir_gate_action *actions; /* a ring */
    uint32_t actions_room, first_action, n_actions;
    bool acting;                                              /* a thread is carrying them out */
    struct weir_gate_member members[WEIR_CONFIG_TENANTS_MAX]; /* by the tenant's index */
};

/** May threads wait by spinning for a while? @thread any */
static inline bool weir_gate_may_spin(const struct weir_gate *gate)
{
    return gate->spin && weir_spin_host_may(gate->spin_page);
}

static inline struct weir_gate_client *weir_gate_client_of(const struct weir_gate *gate)
{
    return atomic_load_explicit(&gate->client, memory_order_acquire);
}

static inline struct weir_gate_client *weir_gate_queue_client(const struct weir_gate_queue *queue)
{
    return atomic_load_explicit(&queue->client, memory_order_acquire);
}

/* What the gate process publishes about the device; NULL: it is attached to none. */
static inline const struct weir_gate_news *weir_gate_news_of(const struct weir_gate *gate)
{
    const struct weir_gate_client *client = weir_gate_client_of(gate);

    return client != NULL ? &client->port->news[gate->device] : NULL;
}

/* tell.c: what the gate process is told. Nothing happens while there is none. */

/**
 * As weir_sched_arrive(). Its fields are those of WEIR_GATE_REQUEST_ARRIVE.
 * @param item  NULL: it stands for undecided work that is reported.
 * @return WEIR_OK, WEIR_ERR_NO_MEMORY (also: the gate process does not know the queue)
 */
enum weir_status weir_gate_arrive_locked(struct weir_gate_queue *queue,
                                         struct weir_gate_request *request,
                                         struct weir_gate_item *item,
                                         weir_gate_name *ret_name) WEIR_MUST_CHECK;
/** Post what is known of an item (port.h): FINISHED, WITHDRAW, after which its name is not valid;
 * STUCK, TOGETHER, RUNNING, STOPPED. */
void weir_gate_tell_locked(struct weir_gate *gate, weir_gate_name name,
                           struct weir_gate_request request);
/** A waiting item passes without a grant: the gate process is told that the device has it. */
void weir_gate_pass_locked(struct weir_gate_queue *queue, struct weir_gate_item *item,
                           uint64_t now_ns);
/** Undecided work, all alike, took so long each. */
void weir_gate_learn_locked(struct weir_gate_queue *queue, const struct weir_gate_batch *work,
                            uint64_t each_ns);
/** Undecided work took so long together. */
void weir_gate_charge_locked(struct weir_gate_queue *queue, uint8_t class, uint64_t took_ns);

/** Is the item granted? Then its place and level are valid. @thread session */
bool weir_gate_is_granted(struct weir_gate_item *item);
/** An item is granted: take over what the gate process said about it. @thread session */
void weir_gate_granted(struct weir_gate_queue *queue, struct weir_gate_item *item,
                       const struct weir_gate_work *work, struct weir_gate_pass *pass);
/** As weir_sched_waits_for_room(). @thread session */
bool weir_gate_waits_for_room(const struct weir_gate_item *item);
/** Will it be granted soon? Says so once. @thread session */
bool weir_gate_is_soon(struct weir_gate_item *item);

/** The gate process gets to know the queue, if there is one that does not know it. */
void weir_gate_enlist_locked(struct weir_gate_queue *queue);
/** A queue goes. */
void weir_gate_delist_locked(struct weir_gate_queue *queue);
/** Note the orders that the gate process has sent. */
void weir_gate_take_orders_locked(struct weir_gate *gate);

/* watch.c: orders, marks, and the thread that sees them */

/** The gate process orders: a run is to stop, to go on, to move. */
void weir_gate_stop_locked(struct weir_gate_item *item, uint64_t lease_ns);
void weir_gate_resume_locked(struct weir_gate_item *item, const struct weir_sched_place *place);
void weir_gate_resize_locked(struct weir_gate_item *item, const struct weir_sched_place *place);

/** Carry out what was ordered before the item was given to its stream. */
void weir_gate_late_orders_locked(struct weir_gate_item *item);

/** Drop a reference. */
void weir_gate_item_put_locked(struct weir_gate *gate, struct weir_gate_item *item);

/** Carry out what was ordered, and unlock. @thread any with the context */
void weir_gate_unlock(struct weir_gate *gate);

/** Tell the gate process which marks of a queue were reached. */
void weir_gate_look_locked(struct weir_gate_queue *queue, uint64_t now_ns);

/** Free a mark. */
void weir_gate_mark_put(const struct weir_gate *gate, const struct weir_gate_mark *mark);

/** Tell the gate process about the work of a queue that passed without a decision. */
void weir_gate_adopt_locked(struct weir_gate_queue *queue, uint64_t now_ns);

/** Withdraw an item: it was not given, or its session ends. */
void weir_gate_withdraw_locked(struct weir_gate_item *item, uint64_t now_ns);

/** Wake the gate's thread, which sleeps while nothing is in flight. */
void weir_gate_kick_locked(struct weir_gate *gate);

void *weir_gate_watch(void *gate);

/* predict.c. Session threads. */

/** In blocks or bytes. */
static inline uint64_t weir_gate_size_of(const struct weir_gate_work *work)
{
    return work->class == WEIR_SCHED_KERNEL || work->class == WEIR_SCHED_GRAPH ? work->blocks
                                                                               : work->bytes;
}

/** Predict or guess how long the work takes: sets pass->ns and the work's hint. */
void weir_gate_ask_locked(struct weir_gate *gate, const struct weir_gate_work *work,
                          struct weir_gate_pass *pass);

/** The same without the lock; the hint is used while it is fresh. */
void weir_gate_predict(struct weir_gate *gate, const struct weir_gate_work *work,
                       struct weir_gate_pass *pass);

/** Have too many launches of a kernel without a sure prediction passed undecided? @param hint  or
 * NULL */
bool weir_gate_is_blind(struct weir_gate_queue *queue, struct weir_gate_hint *hint);

/** Then put marks behind all work, wait for them, and predict again. false: the session is over. */
bool weir_gate_see(struct weir_gate_queue *queue, const struct weir_gate_work *work,
                   struct weir_gate_pass *pass);

/* wait.c. Session threads. */

/** May the queue's work pass without a decision? So it is while its tenant is alone, and while
 * there is no gate process. */
bool weir_gate_may_pass(const struct weir_gate_queue *queue);

/** If so, may work of this predicted duration be added to what is in flight? */
bool weir_gate_below(const struct weir_gate_queue *queue, uint64_t ns);

/** Wait until it may, or until it must not pass any more. false: the session is over. */
bool weir_gate_wait_below(struct weir_gate_queue *queue, uint64_t ns);

/**
 * Wait until the queue has done its work up to given_ns, for half a second at most, or until it
 * must not pass any more.
 * @param ret_done  whether the work is done.
 * @return false: the session is over
 */
bool weir_gate_wait_done(struct weir_gate_queue *queue, uint64_t given_ns, bool *ret_done);

/**
 * Wait for a grant while the item waits only for earlier work of its own session, and a mark will
 * show the end of that work. Waits about as long as one batch takes.
 * @return true if granted; false: put marks behind the unmarked work before waiting further
 */
bool weir_gate_wait_room(struct weir_gate_queue *queue, struct weir_gate_item *item);

/** Wait until an item is granted. @param ns  predicted. @return false: the session is over. */
bool weir_gate_wait_granted(struct weir_gate_queue *queue, struct weir_gate_item *item,
                            uint64_t ns);

/** The part of the SMs that a queue may use: the lower of its tenant's limit and its own. */
static inline uint32_t weir_gate_sm_limit_pct(const struct weir_gate_queue *queue)
{
    uint32_t granted = queue->ops->sm_limit_pct(queue->session);

    return queue->sm_limit_pct < granted ? queue->sm_limit_pct : granted;
}

#endif
