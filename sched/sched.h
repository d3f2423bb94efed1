/*
 * The scheduler of one device: who runs next, who runs together and where, in which order data
 * moves.
 *
 * It has no clock, no thread and no I/O. Whoever owns it brings what happened, with the time, and
 * gets decisions back as calls into its environment. The same calls at the same times give the same
 * decisions, live and in simulation.
 *
 *     tenant ──< queue ──< item        waiting → granted → finished
 *                                         ▲         │ stop
 *                                         │         ▼
 *                                       stopped ← stopping
 *
 * Items of a queue run in their order. Items of a tenant's several queues do not wait for each
 * other. Ids are index + generation: one of something that is gone is refused, never mistaken.
 *
 * Threads: owner thread only, or under one lock of the owner's, but for struct weir_sched_shared.
 * The environment is called inside most functions here, with that lock held; it must not call in
 * again before the function has returned. It should do no more than to note the order, and carry
 * orders for one item out in the order in which they were given.
 *
 * Source: docs/design/scheduling.md
 */
#ifndef WEIR_SCHED_SCHED_H
#define WEIR_SCHED_SCHED_H

#include "base/priority.h"
#include "base/status.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct weir_predict;
struct weir_policy_ops;
struct weir_sched;
struct weir_sched_record;

/* A tenant, queue or item of one scheduler. 0 is none. */
typedef uint64_t weir_sched_id;

enum weir_sched_class {
    WEIR_SCHED_KERNEL,
    WEIR_SCHED_GRAPH,
    WEIR_SCHED_H2D,
    WEIR_SCHED_D2H,
    WEIR_SCHED_D2D,
    WEIR_SCHED_MEMSET,
    WEIR_SCHED_CLASS_COUNT
};

enum weir_sched_resource {
    WEIR_SCHED_COMPUTE, /* kernels, graphs, D2D, memsets; served in SM-nanoseconds */
    WEIR_SCHED_TO_DEVICE,
    WEIR_SCHED_FROM_DEVICE,
    WEIR_SCHED_RESOURCE_COUNT
};

enum weir_sched_item_state {
    WEIR_SCHED_WAITING,
    WEIR_SCHED_GRANTED,
    WEIR_SCHED_STOPPING, /* env->stop was called; stopped() or finished() or running() follows */
    WEIR_SCHED_STOPPED,
    WEIR_SCHED_GONE
};

/* Where an item may work. All zero: anywhere. */
struct weir_sched_place {
    uint32_t sm_first;
    uint32_t sm_count;    /* 0: all SMs */
    uint32_t block_limit; /* blocks of it per SM, 0: as many as fit */
};

#define WEIR_SCHED_WEIGHT_MAX 10000u

struct weir_sched_tenant_params {
    const char *name;  /* for the log; borrowed for the call, cut at 63 bytes; NULL: "" */
    uint32_t weight;   /* 1 .. WEIR_SCHED_WEIGHT_MAX */
    uint32_t sm_limit; /* of 100, 1 .. 100: of the SMs that its movable work may have at a time, and
                          of their time that everything else of its compute may take */
    enum weir_priority priority;
    bool exclusive; /* it never has the compute resource together with others */
    void *user; /* handed to policies' log lines and weir_sched_tenant_query(); not looked into */
};

/* What may be done to an item, and what is known of it. */
enum weir_sched_item_flags {
    WEIR_SCHED_STOPPABLE = 1, /* stop and resume may be called */
    WEIR_SCHED_MOVABLE = 2,   /* start, resume and resize heed the place */
    WEIR_SCHED_STARTED = 4,   /* the device has it already (it passed the gate while its tenant was
                                 alone): counted and charged from now on; start is not called */
    WEIR_SCHED_TENSOR = 8,    /* a kernel that uses tensor cores */
    WEIR_SCHED_UNSURE = 16    /* predicted_ns is a supposition (weir_predict_is_sure()); set by the
                                 scheduler itself of what it asks config.predict */
};

/* Borrowed for the call of weir_sched_arrive(). */
struct weir_sched_item_params {
    enum weir_sched_class class;
    uint32_t flags;         /* enum weir_sched_item_flags */
    uint64_t key;           /* what it is: kernel and block geometry; 0: not known. Copies: 0 */
    uint64_t bytes;         /* of copies and memsets */
    uint32_t blocks;        /* of kernels; of graphs the SMs that they need; 0: not known */
    uint32_t blocks_per_sm; /* of them that fit on an SM; of such graphs 1; 0: not known */
    uint64_t predicted_ns;  /* alone on the device; 0: config.predict is asked */
    uint64_t memory_bytes;  /* device memory that it needs while under way and that is not there
                               yet; 0 live */
    void *user;             /* handed to the environment */
};

/* Who may have what the leader's work leaves of the device, at a level below it. Each allows what
 * those before it do. */
enum weir_sched_fill {
    WEIR_SCHED_FILL_NONE,
    WEIR_SCHED_FILL_LOWER, /* tenants of lower classes */
    WEIR_SCHED_FILL_ALL,   /* and of the leader's own, as far as their shares go, .. */
    WEIR_SCHED_FILL_PARTS, /* .. these on as many SMs as their weights give them beside it */
};

extern const char *const weir_sched_fill_words[]; /* by enum weir_sched_fill; then NULL */

/**
 * What the scheduler asks of the world. Every function is called inside a call into the scheduler,
 * with whatever lock its owner holds; none may block or call in again. `item_user` is the
 * item's params.user.
 */
struct weir_sched_env {
    void *user;
    /**
     * Give an item to the device. Of a STARTED item never called. Mandatory.
     * fills: not NONE: at a level at which others' blocks go first, beside work of a higher class
     * (LOWER) or of its own (ALL); only as far as config.fill goes. Its place is
     * heeded if it is not MOVABLE, too, as far as the device can: with FILL_PARTS it is the least
     * number of SMs that it is to have, the first ones.
     */
    void (*start)(void *user, weir_sched_id item, void *item_user,
                  const struct weir_sched_place *place, enum weir_sched_fill fills);
    /**
     * A copy waits for the end of another that has no more than inflight_ns to go, and will be
     * given to the device then, if nobody comes before it: its thread may get ready. At most once
     * for each time that it is next. It decides nothing, so no record tells of it. NULL: not
     * wanted.
     */
    void (*soon)(void *user, weir_sched_id item, void *item_user);
    /**
     * Stop an item. Answered by weir_sched_stopped(), or weir_sched_finished() when it was quicker,
     * or weir_sched_running() when it cannot be stopped now or ever. Called for STOPPABLE items
     * only. lease_ns: the environment itself resumes it after that, should nothing come (and says
     * so by weir_sched_running()). NULL: nothing is ever stopped.
     */
    void (*stop)(void *user, weir_sched_id item, void *item_user, uint64_t lease_ns);
    /** Let a stopped item go on. Called for items that stopped() was called for. NULL as stop. */
    void (*resume)(void *user, weir_sched_id item, void *item_user,
                   const struct weir_sched_place *place);
    /** Move a granted item. Called for MOVABLE items only. NULL: nothing is ever moved. */
    void (*resize)(void *user, weir_sched_id item, void *item_user,
                   const struct weir_sched_place *place);
    /** Call weir_sched_tick() at that time; replaces the former one. UINT64_MAX: no more.
     * Mandatory. */
    void (*timer)(void *user, uint64_t at_ns);
    /** What happened and was decided, in order. NULL: not wanted. */
    void (*trace)(void *user, const struct weir_sched_record *record);
    /** Something an operator should read: at most a line per policy and kind of mistake.
     * NULL: no. */
    void (*log)(void *user, const char *line);
};

#define WEIR_SCHED_UNKNOWN    UINT64_MAX
#define WEIR_SCHED_WINDOW_MAX 10u /* CuMAS looks at no larger ones */

struct weir_sched_config {
    uint32_t sms;              /* of the device, 1 or more */
    uint64_t alone_ns;         /* predicted work in flight while one tenant has work */
    uint64_t inflight_ns;      /* predicted work in flight per queue while several have */
    uint64_t guess_ns;         /* what an item without prediction counts as in the two above; of
                                  copies and memsets a part: weir_sched_guess_ns() */
    uint64_t quiet_ns;         /* others' silence after which a tenant counts as alone */
    uint64_t starve_ns;        /* an item that waited longer is granted whatever the policy says */
    uint64_t lease_ns;         /* a stopped item goes on after that, whatever the policy says */
    uint64_t stop_ns;          /* stop to stopped, until it has been measured */
    uint64_t launch_ns;        /* grant to first block */
    uint32_t overhead_ppm;     /* of the time may go into switching: the epochs' length follows */
    enum weir_sched_fill fill; /* who may have what the leader leaves: see env.start */
    uint32_t small_sms;    /* graphs that need a part of the device only pass beside the leader, as
                              long as they need no more SMs together (small.c); 0: none does */
    uint32_t order_window; /* tasks that a policy of order looks at; 2 .. WEIR_SCHED_WINDOW_MAX */
    uint64_t memory_limit_bytes;  /* of items' memory_bytes under way; 0: no limit */
    struct weir_predict *predict; /* borrowed; asked and taught; NULL: none */
};

/** Fill in defaults, measured on an H200 with the worker's twins. @thread any */
void weir_sched_config_init(struct weir_sched_config *config, uint32_t sms);

/**
 * Predicted work in flight of a queue that fills, ns; what it has done is worth seeing twice in
 * that.
 *
 * @param fills  as env.start has it: beside its equals (ALL, PARTS) it is less.
 * @thread any
 */
uint64_t weir_sched_fill_bound_ns(const struct weir_sched_config *config,
                                  enum weir_sched_fill fills);

/**
 * What an item counts as while nothing is known of how long such items take: of bytes by the speed
 * of a bus or of a memory that is not slow, so that a long copy is not taken for a short one.
 * @param bytes  of copies and memsets; else not looked at.
 * @thread any
 */
uint64_t weir_sched_guess_ns(const struct weir_sched_config *config, enum weir_sched_class class,
                             uint64_t bytes);

/*
 * What threads may read without the lock. While one tenant has work, its work may pass beside the
 * scheduler:
 *
 * - A gate that reads its own tenant's id in `alone` gives work to the device without the lock, up
 *   to alone_ns of predicted work in flight for each queue. It notes what it gave.
 * - A gate that reads anything else takes the lock and calls weir_sched_arrive().
 * - A newcomer that holds the lock and reads another tenant's id calls weir_sched_close(), which
 *   stores 0. Then it reports the work that the other tenant's queues have noted, by
 *   weir_sched_arrive() with WEIR_SCHED_STARTED.
 *
 * The newcomer does not wait for threads that are passing. A thread that read `alone` just before
 * the close may still give one item to the device; that item is reported later, with its queue's
 * next item or by the gate's own thread. docs/design/scheduling.md says why this is enough.
 */
struct weir_sched_shared {
    _Atomic(weir_sched_id) alone; /* this tenant may pass; 0: nobody. Written under the lock */
};

/**
 * Make a scheduler without tenants, with the policy `fair`.
 *
 * @param config  copied.
 * @param env     copied; the functions must be callable until destroy.
 * @return WEIR_OK
 * @return WEIR_ERR_INVALID    no SMs, a mandatory function missing, a zero among the times, no such
 * window.
 * @return WEIR_ERR_NO_MEMORY
 * @thread any
 */
enum weir_status weir_sched_create(const struct weir_sched_config *config,
                                   const struct weir_sched_env *env,
                                   struct weir_sched **ret_sched) WEIR_MUST_CHECK;

/** Forget everything; the environment is not called. Accepts NULL. @thread owner */
void weir_sched_destroy(struct weir_sched *sched);

/** Borrowed until destroy. @thread any */
const struct weir_sched_shared *weir_sched_shared(const struct weir_sched *sched);

/**
 * Close the way past the scheduler.
 *
 * It opens again (shared->alone) when one tenant alone has had work for quiet_ns; the first such
 * arrival opens it. For a tenant with an SM limit, its own or a queue's, it stays closed.
 * @return the tenant that may have work on the device that the scheduler has not heard of, or 0.
 * @thread owner
 */
weir_sched_id weir_sched_close(struct weir_sched *sched);

/**
 * Never open the way past the scheduler (it begins closed), or allow it. Simulations, and owners
 * without a gate, leave it closed.
 * @thread owner
 */
void weir_sched_allow_alone(struct weir_sched *sched, bool allow);

/**
 * Put a policy in charge, from the next decision on.
 *
 * @param now_ns  never less than in an earlier call, here and everywhere; if it is, the earlier
 * holds.
 * @param ops     its kind says of what; a static table. Replaces the one of that kind.
 * @return WEIR_OK, WEIR_ERR_NO_MEMORY (the former stays), WEIR_ERR_INVALID (an incomplete table)
 * @thread owner
 */
enum weir_status weir_sched_policy_set(struct weir_sched *sched, uint64_t now_ns,
                                       const struct weir_policy_ops *ops) WEIR_MUST_CHECK;

/**
 * Go without a policy of a kind: together, order; `next` goes back to fair. kind is an enum
 * weir_policy_kind (policy.h). @thread owner
 */
enum weir_status weir_sched_policy_clear(struct weir_sched *sched, uint64_t now_ns,
                                         int kind) WEIR_MUST_CHECK;

/**
 * @return WEIR_OK, WEIR_ERR_INVALID (a value out of range), WEIR_ERR_NO_MEMORY,
 *         WEIR_ERR_TOO_BIG (65,536 tenants)
 * @thread owner
 */
enum weir_status weir_sched_tenant_add(struct weir_sched *sched, uint64_t now_ns,
                                       const struct weir_sched_tenant_params *params,
                                       weir_sched_id *ret_tenant) WEIR_MUST_CHECK;

/**
 * Change all but name and user; in force from the next decision on, which is made at once.
 * params->name and user are not looked at.
 * @return WEIR_OK, WEIR_ERR_INVALID, WEIR_ERR_STALE
 * @thread owner
 */
enum weir_status
weir_sched_tenant_set(struct weir_sched *sched, uint64_t now_ns, weir_sched_id tenant,
                      const struct weir_sched_tenant_params *params) WEIR_MUST_CHECK;

/**
 * A tenant goes: its queues and items are forgotten, as by weir_sched_withdraw().
 * @return WEIR_OK, WEIR_ERR_STALE
 * @thread owner
 */
enum weir_status weir_sched_tenant_remove(struct weir_sched *sched, uint64_t now_ns,
                                          weir_sched_id tenant);

/**
 * @param sm_limit  as the tenant's, of this queue alone; the lower one holds. 100: none.
 * @return WEIR_OK, WEIR_ERR_STALE, WEIR_ERR_INVALID, WEIR_ERR_NO_MEMORY, WEIR_ERR_TOO_BIG
 * @thread owner
 */
enum weir_status weir_sched_queue_add(struct weir_sched *sched, weir_sched_id tenant,
                                      uint32_t sm_limit, weir_sched_id *ret_queue) WEIR_MUST_CHECK;

/** Its items are withdrawn. @return WEIR_OK, WEIR_ERR_STALE @thread owner */
enum weir_status weir_sched_queue_remove(struct weir_sched *sched, uint64_t now_ns,
                                         weir_sched_id queue);

/**
 * An item comes to the end of a queue.
 *
 * env->start may be called for it, and anything for others, before this returns; what is not
 * started now is started inside some later call, of whomever.
 *
 * @param params    borrowed for the call.
 * @param ret_item  written before the environment is called.
 * @return WEIR_OK
 * @return WEIR_ERR_STALE      no such queue.
 * @return WEIR_ERR_INVALID    class or flags out of range; STARTED behind one that waits.
 * @return WEIR_ERR_NO_MEMORY, WEIR_ERR_TOO_BIG  nothing happened.
 * @thread owner
 */
enum weir_status weir_sched_arrive(struct weir_sched *sched, uint64_t now_ns, weir_sched_id queue,
                                   const struct weir_sched_item_params *params,
                                   weir_sched_id *ret_item) WEIR_MUST_CHECK;

/**
 * A granted item is done.
 *
 * @param took_ns  on the device, if the environment measured it; 0: from when it was first of its
 *                 queue on the device to now_ns; WEIR_SCHED_UNKNOWN: nothing is learned from it.
 * @return WEIR_OK
 * @return WEIR_ERR_STALE    gone already: withdrawn, or told before. Harmless.
 * @return WEIR_ERR_INVALID  it waits: nothing happened.
 * @thread owner
 */
enum weir_status weir_sched_finished(struct weir_sched *sched, uint64_t now_ns, weir_sched_id item,
                                     uint64_t took_ns);

/**
 * Several granted items, one behind the other in their queue, are seen to be done at once: if
 * nothing disturbed them, what they took as a sum is learned from. That they are done has to be
 * told, too, behind this, with WEIR_SCHED_UNKNOWN; of kernels that are alike the first may be said
 * to have taken an equal part, which then counts as often as they are many. Items that are gone or
 * do not follow each other teach nothing.
 *
 * @param ids  `count` of them, in their order.
 * @thread owner
 */
void weir_sched_done_together(struct weir_sched *sched, uint64_t now_ns, const weir_sched_id *ids,
                              uint32_t count);

/**
 * A granted item and all before it in its queue are done: what a mark behind it says.
 * @return as weir_sched_finished()
 * @thread owner
 */
enum weir_status weir_sched_finished_through(struct weir_sched *sched, uint64_t now_ns,
                                             weir_sched_id item);

/**
 * An item that was told to stop has: none of its blocks is at work.
 *
 * @param done_blocks  of it; less than before counts as before.
 * @return WEIR_OK, WEIR_ERR_STALE, WEIR_ERR_INVALID (it was not stopping)
 * @thread owner
 */
enum weir_status weir_sched_stopped(struct weir_sched *sched, uint64_t now_ns, weir_sched_id item,
                                    uint32_t done_blocks);

/**
 * An item that was told to stop, or has stopped, runs all the same: it could not be stopped, or its
 * lease was over.
 *
 * @param may_stop  false: it is never told to stop again.
 * @return WEIR_OK, WEIR_ERR_STALE, WEIR_ERR_INVALID (it waits)
 * @thread owner
 */
enum weir_status weir_sched_running(struct weir_sched *sched, uint64_t now_ns, weir_sched_id item,
                                    bool may_stop);

/**
 * An item goes without having been finished, in whatever state: it is not charged any more, and the
 * environment hears nothing of it again.
 * @return WEIR_OK, WEIR_ERR_STALE
 * @thread owner
 */
enum weir_status weir_sched_withdraw(struct weir_sched *sched, uint64_t now_ns, weir_sched_id item);

/** The time of env->timer has come. Earlier and more often is harmless. @thread owner */
void weir_sched_tick(struct weir_sched *sched, uint64_t now_ns);

struct weir_sched_tenant_info {
    struct weir_sched_tenant_params params; /* name: borrowed until the tenant goes */
    uint64_t
        service_ns[WEIR_SCHED_RESOURCE_COUNT]; /* compute: SM-nanoseconds. Up to the last call */
    uint64_t waited_ns; /* sum over items, arrival to start; and stopped to resumed */
    uint64_t finished;  /* items */
    uint64_t stops;
    uint32_t queues;
    uint32_t waiting, granted, stopped; /* items; granted: with those that are stopping */
};
/** @return WEIR_OK, WEIR_ERR_STALE @thread owner */
enum weir_status weir_sched_tenant_query(const struct weir_sched *sched, weir_sched_id tenant,
                                         struct weir_sched_tenant_info *ret_info) WEIR_MUST_CHECK;

struct weir_sched_item_info {
    weir_sched_id tenant, queue;
    struct weir_sched_item_params params;
    struct weir_sched_place place;
    enum weir_sched_item_state state;
    uint32_t done_blocks;
    uint64_t predicted_ns, rest_ns; /* 0: not known */
    uint64_t arrived_ns, started_ns;
};
/** @return WEIR_OK, WEIR_ERR_STALE @thread owner */
enum weir_status weir_sched_item_query(const struct weir_sched *sched, weir_sched_id item,
                                       struct weir_sched_item_info *ret_info) WEIR_MUST_CHECK;

/**
 * Does all that an item waits for come by itself, as what its queue has on the device gets done: is
 * its tenant being served, and only the bound on work in flight keeps it? Not so when its turn, or
 * what it may fill, is over.
 * @return false also for items that do not wait, and for copies
 * @thread owner
 */
bool weir_sched_waits_for_room(const struct weir_sched *sched, weir_sched_id item);

enum weir_sched_unpaired {
    WEIR_SCHED_NOT_UNPAIRED,
    WEIR_SCHED_UNPAIRED,       /* it need not be movable for a while */
    WEIR_SCHED_STEADY_UNPAIRED /* nor stoppable: equals' kernels are long, and always the same */
};

/**
 * Has a kernel had the device alone again and again, though equals were there: left so by the
 * policy of kind `together`, or without one?
 *
 * @param key  as in weir_sched_item_params
 * @thread owner
 */
enum weir_sched_unpaired weir_sched_is_unpaired(const struct weir_sched *sched, uint64_t now_ns,
                                                uint64_t key);

struct weir_sched_counts {
    uint64_t arrivals, starts, stops, resumes, resizes, finishes, withdrawals;
    uint64_t decisions; /* times that the policy `next` was asked */
    uint64_t switches;  /* times that it named another tenant */
    uint64_t rescues;   /* grants by the watchdog */
    uint64_t nonsense;  /* answers of policies that were refused */
    uint32_t tenants, queues, items;
};
/** @thread owner */
void weir_sched_count(const struct weir_sched *sched, struct weir_sched_counts *ret_counts);

/**
 * Look whether everything that must hold does: lists, counts, states, sums.
 * @return NULL, or what does not; a static string.
 * @thread owner
 */
const char *weir_sched_check(const struct weir_sched *sched);

/* What a trace is made of. Appended to, never reordered: files of it live on. */
enum weir_sched_record_kind {
    WEIR_SCHED_REC_TENANT_ADD, /* value: weir_sched_tenant_packed() */
    WEIR_SCHED_REC_TENANT_SET, /* the same */
    WEIR_SCHED_REC_TENANT_REMOVE,
    WEIR_SCHED_REC_QUEUE_ADD, /* value: sm_limit, 0: none */
    WEIR_SCHED_REC_QUEUE_REMOVE,
    WEIR_SCHED_REC_ARRIVE,  /* class, flags, key, bytes, blocks, blocks a SM; value: predicted_ns */
    WEIR_SCHED_REC_START,   /* place; value: 1 for a filler */
    WEIR_SCHED_REC_STOP,    /* value: lease_ns */
    WEIR_SCHED_REC_STOPPED, /* blocks: done */
    WEIR_SCHED_REC_RESUME,  /* place */
    WEIR_SCHED_REC_RESIZE,  /* place */
    WEIR_SCHED_REC_RUNNING, /* value: may_stop */
    WEIR_SCHED_REC_FINISH,  /* value: took_ns as given; flags: how it was told */
    WEIR_SCHED_REC_WITHDRAW,
    WEIR_SCHED_REC_CHOOSE, /* tenant: the leader, 0: none; value: slice_ns */
    WEIR_SCHED_REC_TICK,
    WEIR_SCHED_REC_KIND_COUNT
};

/** A tenant's parameters as they stand in records: not its name, nor user. @thread any */
static inline uint64_t weir_sched_tenant_packed(const struct weir_sched_tenant_params *params)
{
    return params->weight | (uint64_t)params->priority << 32 | (uint64_t)params->sm_limit << 40 |
           (uint64_t)params->exclusive << 48;
}

/** The other way round; of what is no such value with a weight of 0. @thread any */
static inline struct weir_sched_tenant_params weir_sched_tenant_unpacked(uint64_t value)
{
    return (struct weir_sched_tenant_params){
        .weight = value >> 49 == 0 ? (uint32_t)value : 0,
        .priority = (enum weir_priority)(value >> 32 & 0xff),
        .sm_limit = (uint32_t)(value >> 40 & 0xff),
        .exclusive = (value >> 48 & 1) != 0,
    };
}

/* In flags of WEIR_SCHED_REC_FINISH, beside the item's own. */
#define WEIR_SCHED_REC_THROUGH 0x4000u /* by weir_sched_finished_through() */
#define WEIR_SCHED_REC_MORE    0x8000u /* and the next FINISH is of the same call */

struct weir_sched_record {
    uint64_t at_ns;
    weir_sched_id tenant, queue, item; /* as far as it concerns one */
    uint64_t key, bytes, value;
    uint32_t blocks, blocks_per_sm;
    struct weir_sched_place place;
    uint8_t kind;  /* enum weir_sched_record_kind */
    uint8_t class; /* enum weir_sched_class, of items */
    uint16_t flags;
};

#endif
