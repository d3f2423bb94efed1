/* What the files of this folder share. */
#ifndef WEIR_HOST_BACKEND_GATE_PRIVATE_H
#define WEIR_HOST_BACKEND_GATE_PRIVATE_H

#include "base/clock.h"
#include "host_backend/config/config.h"
#include "host_backend/config/file_cache.h"
#include "host_backend/gate/client.h"
#include "host_backend/gate/gate.h"
#include "sched/predict.h"
#include <pthread.h>
#include <stdatomic.h>

#define WEIR_GATE_ENTRIES  256u /* marks of a session on a device that are not reached yet */
#define WEIR_GATE_STALL_NS (20 * WEIR_NS_PER_MS) /* no progress for this long is unusual */

/* A piece of work that the scheduler decides about. */
struct weir_gate_item {
    struct weir_gate *gate; /* constant, because threads of other gates may ask for it */
    /* Cleared before each use, from here on. */
    struct weir_gate_item *next;   /* in its stream up to the next mark, or in the free list */
    struct weir_gate_queue *queue; /* valid until gone */
    weir_sched_id id;
    uint64_t brought_ns;
    bool stoppable;
    enum weir_sched_level level; /* valid once granted, like the place */
    struct weir_sched_place place;
    bool sure;                   /* its predicted duration is reliable */
    struct weir_gate_slot *slot; /* where the gate process grants it; NULL: this process decides */
    uint32_t sequence;           /* its arrival's, there */
    atomic_bool halted;          /* its run is stopped, or about to be */
    atomic_bool soon;            /* it will be granted soon: its thread may spin */
    /* Under the gate's lock. */
    uint32_t refs;               /* held by the queue, by actions and by the run */
    bool given;                  /* it went to its stream */
    bool gone;                   /* the scheduler has forgotten it */
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
    weir_sched_id started; /* the item that stands for the work of beside_ns; 0: not told yet */
    bool pending;          /* the mark was not seen reached yet */
};

/* A session on a device. */
struct weir_gate_queue {
    struct weir_gate_queue *next; /* of the gate, under its lock */
    struct weir_gate *gate;
    struct weir_gate_member *member;
    const struct weir_gate_session_ops *ops;
    void *session; /* for ops */
    weir_sched_id id;
    uint32_t sm_limit_pct; /* the session's own, or its context's share if less; 100: none */
    /* The gate process knows the queue by this slot; NULL: this process decides about it. Written
     * under the gate's lock. */
    struct weir_gate_client *_Atomic client;
    uint32_t slot;

    /* Written by the session's thread; others read the sums. */
    const struct weir_gate_hint *last; /* names the last launch without a decision; not followed */
    uint32_t gated;                    /* items that the scheduler decided about */
    atomic_uint_fast64_t given_ns;     /* predicted duration of all work that streams were given */
    atomic_uint_fast64_t unmarked_ns;  /* the part that passed undecided and has no mark yet */
    atomic_uint_fast64_t passed;       /* items that passed without a decision */
    atomic_uint_fast64_t bytes[2];     /* copied to the device, and from it */
    atomic_uint_fast64_t stalled_at;   /* 0, or done_ns + 1 when the queue made no progress and
                                          was let through for that */

    /* Under the gate's lock; done_ns may be read without it. */
    atomic_uint_fast64_t done_ns;   /* the part of given_ns that has ended */
    weir_sched_id unmarked_started; /* the item that stands for the work of unmarked_ns */
    uint64_t looked_ns, done_seen_ns;
    uint64_t stuck_told_ns; /* since when the work that was last logged as stuck is the oldest */
    uint64_t alone_sm_ns;   /* compute that passed without a decision */
    uint64_t done_late_ns;  /* the work may have ended up to this long before done_seen_ns */
    struct weir_gate_item *waiting; /* not granted yet */
    bool ending;

    pthread_mutex_t lock; /* guards the ring: [first, first + n) */
    struct weir_gate_entry ring[WEIR_GATE_ENTRIES];
    uint32_t first;
    uint64_t first_ns; /* when the entry before the first had ended */
    atomic_uint n;     /* read without the lock, too: is the ring empty? */

    uint32_t word; /* a futex, atomic: it changes when the session's thread should look */
};

/* A tenant on a device. All but sm_limit_pct is under the gate's lock. */
struct weir_gate_member {
    weir_sched_id id;
    char name[WEIR_TENANT_NAME_BYTES];
    struct weir_sched_tenant_params params; /* its settings; the name is the one above */

    atomic_uint sm_limit_pct; /* a copy of the settings' */
    uint64_t seen_ns;         /* when it last took the gate's lock for an item */
    uint64_t alone_sm_ns;     /* compute that passed without a decision */
    uint64_t alone_ns[2];     /* copies likewise: to the device, from it */
    uint64_t bytes[2];        /* copied by sessions that are gone */
    uint64_t passed;          /* items of such sessions that passed without a decision */
    uint64_t gated;           /* items that the scheduler decided about */
    uint64_t stuck_said_ns;   /* when work of it was last logged as stuck; 0: never */
    uint64_t stuck_unsaid;    /* pieces of such work since then */
    uint64_t owner;           /* of the keys of its work, in the gate process; 0: none yet */
};

enum weir_gate_act { WEIR_GATE_STOP, WEIR_GATE_RESUME, WEIR_GATE_RESIZE };

/* What the scheduler has ordered about a run. It is carried out without the lock. */
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
    uint32_t sms;
    uint32_t share_pct, share_sms; /* as in weir_gate_params; and how many that are. 0: all */
    uint64_t alone_limit_ns, inflight_ns;
    struct weir_sched_config config; /* of sched */
    struct weir_policy_set policies; /* main thread */
    const struct weir_sched_shared *shared;
    bool spin;             /* the machine has enough cores: weir_gate_may_spin() */
    uint32_t spinners_max; /* sessions that may spin at the same time */
    atomic_uint spinners;
    bool levels, real;                       /* as in weir_gate_params */
    struct weir_gate_client *_Atomic client; /* NULL: it is attached to no gate process */
    atomic_uint_fast64_t worth_stopping_ns;  /* one of WEIR_GATE_*_NS, by the policies in force */
    /*
     * What was so in the last second. By weir_gate_peers(): several tenants of the class had work;
     * without levels: of all classes. By weir_gate_company(): a tenant of the class had work beside
     * another one of its class or a higher one.
     */
    atomic_bool crowded[WEIR_GATE_CROWDS];

    /* Main thread: saving of the learned durations (keep.c). */
    struct weir_file_cache times;
    struct weir_hash times_key;
    uint64_t kept_ns, kept_learned;
    uint32_t keys_found; /* on disk */
    bool told_not_kept;
    bool attached_once; /* the gate process keeps the durations */
    _Alignas(uint64_t) uint8_t uuid[16];

    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t work;
    pthread_t watcher;
    bool watching, quit;
    atomic_bool idle; /* the watcher sleeps; read without the lock, too */
    struct weir_sched *sched;
    struct weir_predict *predict;
    struct weir_gate_queue *queues;
    struct weir_gate_item *free_items;
    uint32_t n_items; /* that the scheduler knows, with those that stand for undecided work */
    uint64_t timer_ns;
    uint64_t crowded_until_ns[WEIR_GATE_CROWDS];
    uint64_t sm_ns_gone;   /* compute of tenants that are gone */
    uint64_t passed_gone;  /* items of tenants that are gone, passed without a decision */
    uint64_t passed_stuck; /* items let through because the work before them did not end */
    uint64_t event_ns;     /* when a mark was last seen reached */
    struct weir_gate_member *last_member[WEIR_GATE_CROWDS]; /* that took the lock last */
    struct weir_gate_action *actions;                       /* a ring */
    uint32_t actions_room, first_action, n_actions;
    bool acting; /* a thread is carrying them out */
    struct weir_gate_member
        members[WEIR_CONFIG_TENANTS_MAX]; /* by the tenant's index; id 0: none */
};

/* As many as the scheduler makes of an SM limit of so many percent. */
static inline uint32_t weir_gate_share_sms(uint32_t sms, uint32_t pct)
{
    uint32_t share = (uint32_t)((uint64_t)sms * pct / 100);

    return pct != 0 && share == 0 ? 1 : share;
}

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

/* What the gate process publishes about a device. */
static inline struct weir_gate_news *weir_gate_news_of(const struct weir_gate_client *client,
                                                       uint32_t device)
{
    return &client->port->news[device];
}

/* tell.c: what the scheduler is told, here or in the gate process */

/** As weir_sched_arrive(); with params->user NULL for undecided work that is reported. */
enum weir_status weir_gate_arrive_locked(struct weir_gate_queue *queue, uint64_t now_ns,
                                         const struct weir_sched_item_params *params,
                                         weir_sched_id *ret_id) WEIR_MUST_CHECK;
/** As weir_sched_finished(). */
void weir_gate_finished_locked(struct weir_gate *gate, uint64_t now_ns, weir_sched_id id,
                               uint64_t took_ns);
/** As weir_sched_withdraw(). */
void weir_gate_forget_locked(struct weir_gate *gate, uint64_t now_ns, weir_sched_id id);
/** As weir_sched_done_together(). */
void weir_gate_together_locked(struct weir_gate *gate, uint64_t now_ns, const weir_sched_id *ids,
                               uint32_t n);
/** As weir_sched_running(). */
void weir_gate_running_locked(struct weir_gate *gate, uint64_t now_ns, weir_sched_id id,
                              bool may_stop);
/** As weir_sched_stopped(). */
void weir_gate_stopped_locked(struct weir_gate *gate, uint64_t now_ns, weir_sched_id id,
                              uint32_t done_blocks);
/** A waiting item passes without a grant: the scheduler is told that the device has it. */
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
bool weir_gate_waits_for_room(struct weir_gate *gate, const struct weir_gate_item *item);
/** Will it be granted soon? Says so once. @thread session */
bool weir_gate_is_soon(struct weir_gate_item *item);

/** A queue begins: the gate process gets to know it, if there is one. */
void weir_gate_enlist_locked(struct weir_gate_queue *queue);
/** A queue goes. */
void weir_gate_delist_locked(struct weir_gate_queue *queue);
/** Note the orders that the gate process has sent. */
void weir_gate_take_orders_locked(struct weir_gate *gate);

/* watch.c: the scheduler's side */

/** The scheduler orders: a run is to stop, to go on, to move. */
void weir_gate_stop_locked(struct weir_gate_item *item, uint64_t lease_ns);
void weir_gate_resume_locked(struct weir_gate_item *item, const struct weir_sched_place *place);
void weir_gate_resize_locked(struct weir_gate_item *item, const struct weir_sched_place *place);

/** The time of the scheduler's timer may have come, and the end of a crowded second. */
void weir_gate_tick_locked(struct weir_gate *gate, uint64_t now_ns);

/** The functions that the scheduler calls. */
void weir_gate_env_init(struct weir_gate *gate, struct weir_sched_env *ret_env);

/** Carry out what was ordered before the item was given to its stream. */
void weir_gate_late_orders_locked(struct weir_gate_item *item);

/** Drop a reference. */
void weir_gate_item_put_locked(struct weir_gate *gate, struct weir_gate_item *item);

/** Carry out what the scheduler has ordered, and unlock. @thread any with the context */
void weir_gate_unlock(struct weir_gate *gate);

/** Tell the scheduler which marks of a queue were reached. */
void weir_gate_look_locked(struct weir_gate_queue *queue, uint64_t now_ns);

/** Free a mark. */
void weir_gate_mark_put(const struct weir_gate *gate, const struct weir_gate_mark *mark);

/** Tell the scheduler about the work of a queue that passed without a decision. */
void weir_gate_adopt_locked(struct weir_gate_queue *queue, uint64_t now_ns);

/** Withdraw an item: it was not given, or its session ends. */
void weir_gate_withdraw_locked(struct weir_gate_item *item, uint64_t now_ns);

/** Wake the gate's thread, which sleeps while nothing is in flight. */
void weir_gate_kick_locked(struct weir_gate *gate);

/** Note that a tenant has work. If another had some lately, the class is crowded for a while. */
void weir_gate_seen_locked(struct weir_gate *gate, struct weir_gate_member *member,
                           uint64_t now_ns);
/** Note that the tenant that passed undecided until now has company. @param id  its */
void weir_gate_joined_locked(struct weir_gate *gate, weir_sched_id id, uint64_t now_ns);

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
                          struct weir_gate_pass *pass, uint64_t now_ns);

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

/** May the queue's tenant pass without a decision? */
bool weir_gate_is_alone(const struct weir_gate_queue *queue);

/** If so, may work of this predicted duration be added to what is in flight? */
bool weir_gate_below(const struct weir_gate_queue *queue, uint64_t ns);

/** Wait until it may, or until the tenant is no longer alone. false: the session is over. */
bool weir_gate_wait_below(struct weir_gate_queue *queue, uint64_t ns);

/**
 * Wait until the queue has done its work up to given_ns, for half a second at most, or until the
 * tenant is no longer alone.
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

/* keep.c. Main thread. */

/** Load the durations that are on disk, if any. */
void weir_gate_times_open(struct weir_gate *gate, const char *dir);
/** Save the durations. */
void weir_gate_times_close(struct weir_gate *gate);

/* make.c */

/** Undecided work of a tenant took so long. */
void weir_gate_queue_charge_locked(struct weir_gate_queue *queue, uint8_t class, uint64_t took_ns);

/** Store a copy of a member's settings. */
void weir_gate_member_set_locked(struct weir_gate_member *member,
                                 const struct weir_sched_tenant_params *settings);

/** The part of the SMs that a queue may use: the lower of its tenant's limit and its own. */
static inline uint32_t weir_gate_sm_limit_pct(const struct weir_gate_queue *queue)
{
    uint32_t granted = atomic_load_explicit(&queue->member->sm_limit_pct, memory_order_relaxed);

    return queue->sm_limit_pct < granted ? queue->sm_limit_pct : granted;
}

#endif
