/* Types and functions that the files of this folder share. */
#pragma once

#include "base/clock.h"
#include "base/thread.h"
#include "host_backend/config/config.h"
#include "host_backend/gate/client.h"
#include "host_backend/gate/gate.h"
#include "sched/predict.h"
#include <stdatomic.h>

#define WEIR_GATE_ENTRIES  256u /* the most unreached marks of a session on a device */
#define WEIR_GATE_STALL_NS (20 * WEIR_NS_PER_MS) /* making no progress for this long is unusual */

/* A piece of work that the gate process decides about. */
struct weir_gate_item {
    struct weir_gate *gate; /* constant, since threads of other gates may read it */
    /* Members from here on are cleared before each use. */
    struct weir_gate_item *next;   /* the next in its stream up to a mark, or in the free list */
    struct weir_gate_queue *queue; /* valid until `gone` is set */
    weir_gate_name name;
    uint64_t brought_ns;
    bool stoppable;
    enum weir_sched_level level; /* valid once granted, as place is */
    struct weir_sched_place place;
    uint32_t beside_bytes;       /* as in weir_gate_pass */
    uint8_t cause;               /* likewise */
    bool sure;                   /* its predicted duration is reliable */
    struct weir_gate_slot *slot; /* the slot in which the gate process grants the item */
    uint32_t sequence;           /* sequence number of its arrival */
    atomic_bool halted;          /* its run is stopped, or is about to be */
    /* The gate's lock guards the members below. */
    uint32_t refs;               /* references of the queue, of actions and of the run */
    bool given;                  /* it went to its stream */
    bool gone;                   /* it has ended or was withdrawn */
    bool stop_late, resize_late; /* orders that came before the item was given; executed then */
    uint64_t lease_ns;           /* the lease of stop_late */
    struct weir_sched_place late_place;
    atomic_bool granted;
    _Alignas(max_align_t) char room[]; /* for the worker's own use */
};

/* The work in a stream between two marks. */
struct weir_gate_entry {
    struct weir_gate_mark mark;
    struct weir_gate_batch work;
    weir_gate_name started; /* the item that represents the work of beside_ns; 0: none yet */
    bool pending;           /* the mark has not been seen reached yet */
};

/* A session's work on a device. */
struct weir_gate_queue {
    struct weir_gate_queue *next; /* the next queue of the gate, under the gate's lock */
    struct weir_gate *gate;
    struct weir_gate_member *member;
    const struct weir_gate_session_ops *ops;
    void *session;         /* for ops */
    uint32_t sm_limit_pct; /* the session's own limit, or its context's share if less; 100: none */
    /* The gate process knows the queue by this client's slot; NULL: it does not know the queue.
     * Written under the gate's lock. */
    struct weir_gate_client *_Atomic client;
    uint32_t slot;

    /* Only the session's thread writes these members; others read the sums. */
    const struct weir_gate_hint *last; /* the last undecided launch; only compared */
    uint32_t gated;                    /* items that the gate process decided about */
    bool has_peers; /* an item with WEIR_SCHED_PEERS was brought. Written under the gate's lock */
    atomic_uint_fast64_t given_ns;    /* predicted duration of all work that streams were given */
    atomic_uint_fast64_t unmarked_ns; /* the part of it that passed undecided and has no mark yet */
    atomic_uint_fast64_t passed;      /* items that passed without a decision */
    atomic_uint_fast64_t bytes[2];    /* bytes copied to the device, and from it */
    atomic_uint_fast64_t stalled_at;  /* done_ns + 1 if the queue passed because it made no progress
                                         at that done_ns; else 0 */

    /* The gate's lock guards these members; done_ns may be read without it. */
    atomic_uint_fast64_t done_ns;    /* the part of given_ns that has ended */
    weir_gate_name unmarked_started; /* the item that represents the work of unmarked_ns */
    uint64_t looked_ns, done_seen_ns;
    uint64_t stuck_told_ns; /* start time of the stuck work that was logged last */
    uint64_t done_late_ns;  /* uncertainty: the work may have ended this long before done_seen_ns */
    struct weir_gate_item *waiting; /* the item that waits for its grant; NULL: none */

    pthread_mutex_t lock; /* guards the ring: [first, first + n) */
    struct weir_gate_entry ring[WEIR_GATE_ENTRIES];
    uint32_t first;
    uint64_t first_ns; /* when the work before the first entry had ended */
    atomic_uint n;     /* entries in the ring; also read without the lock */
};

/* A tenant on a device. The gate's lock guards it. */
struct weir_gate_member {
    char name[WEIR_TENANT_NAME_BYTES];
    uint64_t bytes[2];      /* bytes that its ended sessions have copied: to the device, from it */
    uint64_t passed;        /* items of its ended sessions that passed undecided */
    uint64_t stuck_said_ns; /* when work of the tenant was last logged as stuck; 0: never */
    uint64_t stuck_unsaid;  /* stuck work since then that was not logged */
};

enum weir_gate_act { WEIR_GATE_STOP, WEIR_GATE_RESUME, WEIR_GATE_RESIZE };

/* An order of the gate process about a run. A thread executes it without the lock. */
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
    struct weir_sched_config config; /* for guesses and bounds only; the gate decides nothing */
    bool spin;             /* the machine has enough cores to spin: see weir_gate_may_spin() */
    uint32_t spinners_max; /* sessions that may spin at the same time */
    atomic_uint spinners;
    bool levels;                             /* as in weir_gate_params */
    struct weir_gate_client *_Atomic client; /* NULL: the gate is attached to no gate process */
    _Alignas(uint64_t) uint8_t uuid[16];

    pthread_mutex_t lock; /* guards the members below */
    pthread_cond_t work;
    pthread_t watcher;
    bool watching, quit;
    atomic_bool idle;             /* the watcher sleeps; also read without the lock */
    struct weir_predict *predict; /* predicts the duration of work that passes undecided */
    struct weir_gate_queue *queues;
    struct weir_gate_item *free_items;
    uint32_t n_items; /* items that the gate process knows, also those for undecided work */
    struct {
        uint64_t gone;  /* items of removed tenants that passed undecided */
        uint64_t stuck; /* items that passed because the work before them did not end */
    } passed;
    uint64_t event_ns; /* when a mark was last seen reached */
    bool told_full;    /* the message that the gate process has no free slot was logged */
    struct {
        struct weir_gate_action *ring;
        uint32_t room, first, n;
        bool acting; /* a thread is executing actions */
    } orders;
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

/* The news that the gate process publishes about the device; NULL: the gate is not attached. */
static inline const struct weir_gate_news *weir_gate_news_of(const struct weir_gate *gate)
{
    const struct weir_gate_client *client = weir_gate_client_of(gate);

    return client ? &client->port->news[gate->device] : NULL;
}

/* tell.c: reports to the gate process. These functions do nothing while there is none. */

/**
 * Report an arrival, as weir_sched_arrive(). The request has the fields of
 * WEIR_GATE_REQUEST_ARRIVE.
 * @param item NULL: the request stands for undecided work.
 * @return WEIR_OK, WEIR_ERR_NO_MEMORY (also: the gate process does not know the queue)
 */
enum weir_status weir_gate_arrive_locked(struct weir_gate_queue *queue,
                                         struct weir_gate_request *request,
                                         struct weir_gate_item *item,
                                         weir_gate_name *ret_name) WEIR_MUST_CHECK;
/** Post a request about an item (port.h): STUCK, TOGETHER, RUNNING, STOPPED, FINISHED or WITHDRAW.
 * After the last two the item's name is no longer valid. */
void weir_gate_tell_locked(struct weir_gate *gate, weir_gate_name name,
                           struct weir_gate_request request);
/** Let a waiting item pass without a grant, and report that it went to the device. */
void weir_gate_pass_locked(struct weir_gate_queue *queue, struct weir_gate_item *item,
                           uint64_t now_ns);
/** Report that each of several identical pieces of undecided work took each_ns. */
void weir_gate_learn_locked(struct weir_gate_queue *queue, const struct weir_gate_batch *work,
                            uint64_t each_ns);
/** Report that undecided work took took_ns together. */
void weir_gate_charge_locked(struct weir_gate_queue *queue, uint8_t class, uint64_t took_ns);

/** Is the item granted? Then its place and level are valid. @thread session */
bool weir_gate_is_granted(struct weir_gate_item *item);
/** Copy the gate process's decision about a granted item. @thread session */
void weir_gate_granted(struct weir_gate_queue *queue, struct weir_gate_item *item,
                       const struct weir_gate_work *work, struct weir_gate_pass *pass);
/** Does the item wait only for room, as weir_sched_waits_for_room() says? @thread session */
bool weir_gate_waits_for_room(const struct weir_gate_item *item);
/** Will the item be granted soon? Returns true only once for an item. @thread session */
bool weir_gate_is_soon(struct weir_gate_item *item);

/** Announce the queue to the gate process, unless it knows the queue or there is no gate
 * process. */
void weir_gate_enlist_locked(struct weir_gate_queue *queue);
/** Report to the gate process that the queue ends. */
void weir_gate_delist_locked(struct weir_gate_queue *queue);
/** Read the orders that the gate process has sent, and note them as actions. */
void weir_gate_take_orders_locked(struct weir_gate *gate);

/* watch.c: executes orders, and runs the thread that watches marks */

/** Store an order of the gate process as an action: to stop, resume or move a run. */
void weir_gate_stop_locked(struct weir_gate_item *item, uint64_t lease_ns);
void weir_gate_resume_locked(struct weir_gate_item *item, const struct weir_sched_place *place);
void weir_gate_resize_locked(struct weir_gate_item *item, const struct weir_sched_place *place);

/** Store as actions the orders that arrived before the item was given to its stream. */
void weir_gate_late_orders_locked(struct weir_gate_item *item);

/** Drop a reference to an item. */
void weir_gate_item_put_locked(struct weir_gate *gate, struct weir_gate_item *item);

/** Execute the stored actions, and unlock. @thread any with the context */
void weir_gate_unlock(struct weir_gate *gate);

/** Report to the gate process which marks of a queue were reached. */
void weir_gate_look_locked(struct weir_gate_queue *queue, uint64_t now_ns);

/** Free a mark. */
void weir_gate_mark_put(const struct weir_gate *gate, const struct weir_gate_mark *mark);

/** Report to the gate process the work of a queue that passed without a decision. */
void weir_gate_adopt_locked(struct weir_gate_queue *queue, uint64_t now_ns);

/** Withdraw an item that was not given, or whose session ends. */
void weir_gate_withdraw_locked(struct weir_gate_item *item, uint64_t now_ns);

/** Wake the gate's thread, which sleeps while nothing is in flight. */
void weir_gate_kick_locked(struct weir_gate *gate);

void *weir_gate_watch(void *gate);

/* predict.c: called by session threads */

/** The size of the work, in blocks or bytes. */
static inline uint64_t weir_gate_size_of(const struct weir_gate_work *work)
{
    return work->class == WEIR_SCHED_KERNEL || work->class == WEIR_SCHED_GRAPH ? work->blocks
                                                                               : work->bytes;
}

/** Predict or guess how long the work takes: sets pass->ns and the work's hint. */
void weir_gate_ask_locked(struct weir_gate *gate, const struct weir_gate_work *work,
                          struct weir_gate_pass *pass);

/** Predict as weir_gate_ask_locked() does, without the lock while the work's hint is fresh. */
void weir_gate_predict(struct weir_gate *gate, const struct weir_gate_work *work,
                       struct weir_gate_pass *pass);

/** Have too many launches of a kernel without a sure prediction passed undecided? @param hint  or
 * NULL */
bool weir_gate_is_blind(struct weir_gate_queue *queue, struct weir_gate_hint *hint);

/** If so, put marks behind all work, wait for it, and predict again. @return false: the session is
 * over. */
bool weir_gate_see(struct weir_gate_queue *queue, const struct weir_gate_work *work,
                   struct weir_gate_pass *pass);

/* wait.c: called by session threads */

/** May the queue's work pass undecided? It may while its tenant is alone, and while there is no
 * gate process. */
bool weir_gate_may_pass(const struct weir_gate_queue *queue);

/** May a tenant that passes undecided add work of this predicted duration to the work in flight? */
bool weir_gate_below(const struct weir_gate_queue *queue, uint64_t ns);

/** Wait until the work may pass, or until the gate process must decide. false: the session is
 * over. */
bool weir_gate_wait_below(struct weir_gate_queue *queue, uint64_t ns);

/**
 * Wait until the queue has done its work up to given_ns, for half a second at most, or until the
 * gate process must decide about its work.
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

/** Wait for an item's grant. @param ns  predicted. @return false: the session is over. */
bool weir_gate_wait_granted(struct weir_gate_queue *queue, struct weir_gate_item *item,
                            uint64_t ns);

/** The part of the SMs that a queue may use: the lower of its tenant's limit and its own. */
static inline uint32_t weir_gate_sm_limit_pct(const struct weir_gate_queue *queue)
{
    uint32_t granted = queue->ops->sm_limit_pct(queue->session);

    return WEIR_MIN(queue->sm_limit_pct, granted);
}
