/*
 * The scheduler of one device. It decides which tenant runs next, which tenants run together and on
 * which SMs, and in which order copies move data.
 *
 * It has no clock, no thread and no I/O. Its owner reports each event with its time, and the
 * scheduler calls its environment to carry out what it decides. The same calls at the same times
 * give the same decisions, live and in simulation.
 *
 *     tenant ──< queue ──< item        waiting → granted → finished
 *                                         ▲         │ stop
 *                                         │         ▼
 *                                       stopped ← stopping
 *
 * Items of one queue run in their order. Items of different queues do not wait for each other, even
 * if the queues belong to one tenant. An id is an index and a generation, so the id of an object
 * that is gone is refused and never taken for another's.
 *
 * Threads: only the owner's thread calls in, or threads that hold one lock of the owner; struct
 * weir_sched_shared is the exception. Most functions here call the environment while that lock is
 * held, so the environment must not call in again. It should only note each order, and later carry
 * out the orders about one item in the order in which they came.
 *
 * Source: docs/design/scheduling.md
 */
#pragma once

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

/* The id of a tenant, queue or item of one scheduler, below 2^63. 0 names none. */
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
    WEIR_SCHED_STOPPING, /* env->stop was called; stopped(), finished() or running() will follow */
    WEIR_SCHED_STOPPED,
    WEIR_SCHED_GONE
};

/* The SMs on which an item may run. All zero: anywhere. */
struct weir_sched_place {
    uint32_t sm_first;
    uint32_t sm_count;    /* 0: all SMs */
    uint32_t block_limit; /* most blocks of the item on an SM; 0: as many as fit */
};

#define WEIR_SCHED_WEIGHT_MAX 10000u

/* What a tenant whose kernels here may wait for those on another device may do on this one. Such
 * tenants take turns on all of their devices together (spans.h). */
enum weir_sched_span {
    WEIR_SCHED_SPAN_FREE, /* it takes no such turns */
    WEIR_SCHED_SPAN_TURN, /* it has the turn, and none of its work bypasses the scheduler */
    WEIR_SCHED_SPAN_ENDS, /* its turn ends: only span_more more of its compute items are granted */
    WEIR_SCHED_SPAN_WAITS /* none are, and those on the device that can be stopped are stopped */
};

#define WEIR_SCHED_SPAN_MORE_MAX 15u

struct weir_sched_tenant_params {
    const char *name;   /* for the log; copied, cut at 63 bytes; NULL: "" */
    uint32_t weight;    /* 1 .. WEIR_SCHED_WEIGHT_MAX */
    uint32_t min_share; /* percent, 0 .. 100: guaranteed part of the device's time while it has
                           work and no higher class has (sched/min_share.c); 0: none */
    uint32_t sm_limit;  /* percent, 1 .. 100: the share of the SMs that its movable work may use at
                           a time, and of the SMs' time that its other compute work may take */
    enum weir_priority priority;
    bool exclusive; /* its compute work never runs together with other tenants' */
    enum weir_sched_span span;
    uint32_t span_more; /* 0 .. WEIR_SCHED_SPAN_MORE_MAX; counts down */
    void *user; /* the owner's; returned by weir_sched_tenant_query() and not used otherwise */
};

/* Flags of an item: what the scheduler may do to it, and its properties. Traces contain these
 * numbers; older traces also have an 8. */
enum weir_sched_item_flags {
    WEIR_SCHED_STOPPABLE = 1, /* env.stop and env.resume may be called for it */
    WEIR_SCHED_MOVABLE = 2,   /* env.start, resume and resize can choose its SMs */
    WEIR_SCHED_STARTED = 4,   /* the item bypassed the scheduler and is on the device already. The
                                 scheduler does not call env.start, and charges it from now on */
    WEIR_SCHED_UNSURE = 16,   /* predicted_ns is unreliable (weir_predict_is_sure()). The scheduler
                                 itself sets this when it asks config.predict */
    WEIR_SCHED_OWN_LEVELS = 32, /* a graph whose kernels have different priorities */
    WEIR_SCHED_PARTABLE = 64, /* a kernel or graph that can be kept, as it is, to a part of the SMs:
                                 the first n, or all behind the first n (config.part_step). If it is
                                 MOVABLE, too, its original form is launched on a part */
    WEIR_SCHED_DIVISIBLE = 128, /* a kernel that is not MOVABLE, because that form costs too much
                                   otherwise. After one was granted with a block limit, its
                                   successors come in that form for a while */
    WEIR_SCHED_PEERS = 256,     /* kernels of its session may wait for work on other devices. The
                                   scheduler makes no use of this: its owner does (spans.h) */
    WEIR_SCHED_ITEM_FLAGS =     /* all of them */
    WEIR_SCHED_STOPPABLE | WEIR_SCHED_MOVABLE | WEIR_SCHED_STARTED | WEIR_SCHED_UNSURE |
    WEIR_SCHED_OWN_LEVELS | WEIR_SCHED_PARTABLE | WEIR_SCHED_DIVISIBLE | WEIR_SCHED_PEERS
};

/* Borrowed for the call of weir_sched_arrive(). */
struct weir_sched_item_params {
    enum weir_sched_class class;
    uint32_t flags;      /* enum weir_sched_item_flags */
    uint64_t key;        /* names the kernel and its block geometry; 0: not known. Its highest bits
                            may name an owner (predict.h); for a copy only those bits count */
    uint64_t bytes;      /* size of a copy or memset */
    uint64_t rest_bytes; /* a copy that comes in pieces: bytes of the pieces behind this one, which
                            are the queue's next items; 0: this is the last */
    uint32_t blocks;     /* kernels: blocks of the grid; graphs: SMs needed; 0: not known */
    uint32_t blocks_per_sm; /* kernels: blocks that fit on an SM; graphs: 1; 0: not known */
    uint64_t predicted_ns;  /* duration alone on the device; 0: ask config.predict */
    void *user;             /* passed to the environment */
};

/* Which tenants may fill the gaps that the leader's work leaves on the device. Their streams have a
 * lower priority. */
enum weir_sched_fill {
    WEIR_SCHED_FILL_NONE,
    WEIR_SCHED_FILL_ALL, /* those of lower classes and, up to their shares, of the leader's */
};

extern const char *const weir_sched_fill_words[]; /* by enum weir_sched_fill; then NULL */

/* The level at which the device runs an item: it places blocks of a higher level first. */
enum weir_sched_level {
    WEIR_SCHED_PLAIN,       /* the level of its tenant's class */
    WEIR_SCHED_BELOW,       /* below all classes: fills what a higher class leaves */
    WEIR_SCHED_BELOW_EQUAL, /* like BELOW, but fills what a tenant of its own class leaves */
    WEIR_SCHED_ABOVE,       /* above plain items of its class, below higher classes */
    WEIR_SCHED_LEVEL_COUNT
};

/**
 * The scheduler's environment: functions that it calls. It calls every function inside a call into
 * it, with the lock that its owner holds; none may block or call the scheduler. `item_user` is the
 * item's params.user.
 */
struct weir_sched_env {
    void *user;
    /**
     * Give an item to the device. Mandatory. Never called for a STARTED item.
     *
     * level: BELOW and BELOW_EQUAL only with config.fill of ALL. ABOVE for work of the normal class
     * only, and with config.above.
     * place: for an item that is not MOVABLE this counts only if the item is PARTABLE, and the
     * place is a part of the device (config.part_step) or the first config.room_sms, which no
     * MOVABLE item gets.
     */
    void (*start)(void *user, weir_sched_id item, void *item_user,
                  const struct weir_sched_place *place, enum weir_sched_level level);
    /**
     * A hint that a copy will be granted soon, so that its thread may get ready: the copy is next,
     * and the copy before it has at most inflight_ns to go. Given once each time the copy becomes
     * the next. Another copy may still be granted first. Not in schedule traces. NULL: not wanted.
     */
    void (*soon)(void *user, weir_sched_id item, void *item_user);
    /**
     * Stop a STOPPABLE item. The owner answers with weir_sched_stopped(), or with
     * weir_sched_finished() if the item ended first, or with weir_sched_running() if it cannot be
     * stopped. lease_ns: if no further order comes within this time, the environment resumes the
     * item itself and calls weir_sched_running(). NULL: nothing is ever stopped.
     */
    void (*stop)(void *user, weir_sched_id item, void *item_user, uint64_t lease_ns);
    /** Continue an item for which weir_sched_stopped() was called. NULL if `stop` is NULL. */
    void (*resume)(void *user, weir_sched_id item, void *item_user,
                   const struct weir_sched_place *place);
    /** Move a granted item. Called for MOVABLE items only. NULL: nothing is ever moved. */
    void (*resize)(void *user, weir_sched_id item, void *item_user,
                   const struct weir_sched_place *place);
    /** Call weir_sched_tick() at that time instead of the time given before; UINT64_MAX: do not
     * call it. Mandatory. */
    void (*timer)(void *user, uint64_t at_ns);
    /** Receives a record of the schedule trace: an event or a decision, in order. NULL: no trace is
     * wanted. */
    void (*trace)(void *user, const struct weir_sched_record *record);
    /** Receives a line for the operator: at most one per policy and kind of mistake. NULL: no lines
     * are wanted. */
    void (*log)(void *user, const char *line);
};

#define WEIR_SCHED_UNKNOWN UINT64_MAX

struct weir_sched_config {
    uint32_t sms;              /* number of SMs of the device, 1 or more */
    uint64_t alone_ns;         /* most predicted work in flight of a tenant that is alone */
    uint64_t inflight_ns;      /* most predicted work in flight per queue, with several tenants */
    uint64_t guess_ns;         /* assumed duration, in alone_ns and inflight_ns, of an item without
                                  prediction; copies and memsets: weir_sched_guess_ns() */
    uint64_t quiet_ns;         /* a tenant is alone when all others had no work for this long */
    uint64_t starve_ns;        /* an item that waited this long is granted despite the policy */
    uint64_t lease_ns;         /* an item stopped for this long is resumed despite the policy */
    uint64_t stop_ns;          /* assumed time from env.stop to stopped(), until one was measured */
    uint64_t launch_ns;        /* time from grant to first block */
    uint32_t overhead_ppm;     /* part of the time that may be lost by switching between tenants */
    enum weir_sched_fill fill; /* which tenants may fill what the leader leaves: see env.start */
    uint32_t small_sms; /* graphs that need only a part of the device may run beside the leader
                           until they need this many SMs together (small.c); 0: none may */
    uint32_t above;     /* 1: the device has a level for some items of the normal class (small.c,
                           beside.c), between that class and the high one */
    uint32_t room_sms;  /* beside small graphs other tenants' kernels get only the first room_sms
                           SMs (small.c); 0: all of them */
    uint32_t part_step; /* parts of the device for PARTABLE items are its first n SMs, or all SMs
                           behind these, where n is a multiple of part_step; 0: it has none */
    struct weir_predict *predict; /* borrowed; predicts, and learns from ended items; NULL: none */
};

/** Fill in defaults, measured on an H200 with the worker's twins. @thread any */
void weir_sched_config_init(struct weir_sched_config *config, uint32_t sms);

/**
 * How many SMs kernels get beside small graphs (small.c): five eighths, in steps of eight, which
 * all GPUs with green contexts can be divided into.
 * @param sms  of the device.
 * @return 0  it has too few to be divided.
 * @thread any
 */
uint32_t weir_sched_room_sms(uint32_t sms);

/**
 * The config.part_step of a device that can be divided.
 * @param sms  of the device.
 * @return 0  it has too few to be divided.
 * @thread any
 */
uint32_t weir_sched_part_step(uint32_t sms);

/**
 * May a graph run beside the leader (small.c)?
 * @param sms  how many it needs; 0: not known.
 * @thread any
 */
bool weir_sched_is_small(const struct weir_sched_config *config, uint32_t sms);

/**
 * Most predicted work in flight of a filler's queue, ns. Look for ended items twice in that time.
 *
 * @param level  next to tenants of its own class (BELOW_EQUAL) the bound is lower.
 * @thread any
 */
uint64_t weir_sched_fill_bound_ns(const struct weir_sched_config *config,
                                  enum weir_sched_level level);

/**
 * The assumed duration of an item without a prediction. For copies and memsets it follows from
 * their size and a typical speed of bus and memory, so that a long copy does not count as short.
 * @param bytes  copies and memsets: how much.
 * @thread any
 */
uint64_t weir_sched_guess_ns(const struct weir_sched_config *config, enum weir_sched_class class,
                             uint64_t bytes);

/*
 * The state that threads may read without the lock. While one tenant has work, its work may bypass
 * the scheduler:
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
    _Atomic(weir_sched_id) alone; /* the tenant that may pass; 0: none. Written under the lock */
};

/**
 * Make a scheduler without tenants, with the policy `fair`.
 *
 * @param config  copied.
 * @param env     copied; the functions must be callable until destroy.
 * @return WEIR_OK
 * @return WEIR_ERR_INVALID    no SMs, a mandatory function missing, a zero among the times.
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
 * Let no work bypass the scheduler any more.
 *
 * The first arrival after only one tenant had work for quiet_ns allows it again (shared->alone),
 * unless that tenant or one of its queues has an SM limit.
 * @return the tenant that may have work on the device that the scheduler has not heard of, or 0.
 * @thread owner
 */
weir_sched_id weir_sched_close(struct weir_sched *sched);

/**
 * May the work of a lone tenant bypass the scheduler? At first it may not. Simulations and owners
 * without a gate leave it so. As long as it may not, env.trace also gets the causes of waits.
 * @thread owner
 */
void weir_sched_allow_alone(struct weir_sched *sched, bool allow);

/**
 * Put a policy in force, from the next decision on. It replaces the policy of the same kind.
 *
 * @param now_ns  not less than in earlier calls, as everywhere here; if it is less, the latest time
 *                given so far counts.
 * @param ops     a static table.
 * @return WEIR_OK, WEIR_ERR_NO_MEMORY (the old one stays), WEIR_ERR_INVALID (an incomplete table)
 * @thread owner
 */
enum weir_status weir_sched_policy_set(struct weir_sched *sched, uint64_t now_ns,
                                       const struct weir_policy_ops *ops) WEIR_MUST_CHECK;

/**
 * Remove the policy of a kind. The kind `next` goes back to `fair`. `kind` is an enum
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
 * Change a tenant's parameters except name and user. They count from a decision made at once. A
 * change of `span` or span_more alone leaves the tenant's share as it is.
 * params->name and params->user are ignored.
 * @return WEIR_OK, WEIR_ERR_INVALID, WEIR_ERR_STALE
 * @thread owner
 */
enum weir_status
weir_sched_tenant_set(struct weir_sched *sched, uint64_t now_ns, weir_sched_id tenant,
                      const struct weir_sched_tenant_params *params) WEIR_MUST_CHECK;

/**
 * Remove a tenant. Its queues and items are forgotten, as by weir_sched_withdraw().
 * @return WEIR_OK, WEIR_ERR_STALE
 * @thread owner
 */
enum weir_status weir_sched_tenant_remove(struct weir_sched *sched, uint64_t now_ns,
                                          weir_sched_id tenant);

/**
 * @param sm_limit  as a tenant's, for this queue alone; the lower one counts. 100: none.
 * @param domain    names the context, or the MPS server, that its work runs in. The device runs
 * work of one domain at a time, so tenants share it side by side only in one domain.
 * @return WEIR_OK, WEIR_ERR_STALE, WEIR_ERR_INVALID, WEIR_ERR_NO_MEMORY, WEIR_ERR_TOO_BIG
 * @thread owner
 */
enum weir_status weir_sched_queue_add(struct weir_sched *sched, weir_sched_id tenant,
                                      uint32_t sm_limit, uint32_t domain,
                                      weir_sched_id *ret_queue) WEIR_MUST_CHECK;

/** Remove a queue; its items are withdrawn. @return WEIR_OK, WEIR_ERR_STALE @thread owner */
enum weir_status weir_sched_queue_remove(struct weir_sched *sched, uint64_t now_ns,
                                         weir_sched_id queue);

/** Compute charged to a queue up to the last call, in SM-nanoseconds. 0: no such queue.
 * @thread owner */
uint64_t weir_sched_queue_service(const struct weir_sched *sched, weir_sched_id queue);

enum weir_sched_cause {
#define WEIR_SCHED_CAUSE(name, word, text) WEIR_SCHED_CAUSE_##name,
#include "sched/causes.def"
#undef WEIR_SCHED_CAUSE
    WEIR_SCHED_CAUSE_COUNT
};

extern const struct weir_sched_cause_info {
    const char *word, *text;
} weir_sched_causes[WEIR_SCHED_CAUSE_COUNT];

/* How long a queue's next item waited for a cause, and for which other tenant. */
struct weir_sched_wait {
    weir_sched_id other; /* 0: none, or several that are not distinguished */
    uint64_t ns;
    uint8_t cause; /* enum weir_sched_cause */
};
/* A row without a tenant for each cause, and one for each of the first eight (cause, tenant). */
#define WEIR_SCHED_WAIT_ROWS (WEIR_SCHED_CAUSE_COUNT + 8)

/** The cause for which an item waited last, or waits. OWN also if it did not wait, and if there is
 * no such item. @thread owner, also in a call of the environment */
enum weir_sched_cause weir_sched_item_cause(const struct weir_sched *sched, weir_sched_id item);

/** Add a wait to a table: to the row of its pair, a free one, or the cause's without a tenant.
 * @param rows  WEIR_SCHED_WAIT_ROWS of them; zeroed: empty. @thread owner */
void weir_sched_wait_add(struct weir_sched_wait *rows, const struct weir_sched_wait *wait);

/**
 * How long a queue's work waited so far, by cause. A wait under way counts when its cause changes
 * or it ends.
 * @return WEIR_SCHED_WAIT_ROWS rows, those without time unused; borrowed until the next call into
 *         the scheduler. NULL: it has not waited, or there is no such queue.
 * @thread owner
 */
const struct weir_sched_wait *weir_sched_queue_waits(const struct weir_sched *sched,
                                                     weir_sched_id queue);

/**
 * Append an item to a queue.
 *
 * Before this returns, env->start may be called for the item, and any function of env for others.
 * An item that is not started now is started inside a later call into the scheduler.
 *
 * @param params    borrowed for the call.
 * @param ret_item  written before the environment is called.
 * @return WEIR_OK
 * @return WEIR_ERR_STALE      no such queue.
 * @return WEIR_ERR_INVALID    class or flags out of range; STARTED behind an item that waits.
 * @return WEIR_ERR_NO_MEMORY, WEIR_ERR_TOO_BIG  nothing happened.
 * @thread owner
 */
enum weir_status weir_sched_arrive(struct weir_sched *sched, uint64_t now_ns, weir_sched_id queue,
                                   const struct weir_sched_item_params *params,
                                   weir_sched_id *ret_item) WEIR_MUST_CHECK;

/**
 * A granted item has ended.
 *
 * @param took_ns  its time on the device, if the environment measured that; 0: the time since it
 *                 became its queue's head item; WEIR_SCHED_UNKNOWN: learn nothing from it.
 * @return WEIR_OK
 * @return WEIR_ERR_STALE    the item was withdrawn or reported before. Harmless.
 * @return WEIR_ERR_INVALID  the item is still waiting; nothing changes.
 * @thread owner
 */
enum weir_status weir_sched_finished(struct weir_sched *sched, uint64_t now_ns, weir_sched_id item,
                                     uint64_t took_ns);

/**
 * Several granted items that follow each other in one queue were seen to have ended together. If
 * nothing disturbed them, the scheduler learns from the sum of their times. Report each of them
 * afterwards by weir_sched_finished() with WEIR_SCHED_UNKNOWN; if all are the same kernel, the
 * first may be reported with an equal part of the time, which then counts for all of them. Items
 * that are gone, or do not follow each other, teach nothing.
 *
 * @param ids  `count` of them, in their order.
 * @thread owner
 */
void weir_sched_done_together(struct weir_sched *sched, uint64_t now_ns, const weir_sched_id *ids,
                              uint32_t count);

/**
 * An item has stopped as ordered: none of its blocks runs.
 *
 * @param done_blocks  blocks that have ended; a number lower than reported before is ignored.
 * @return WEIR_OK, WEIR_ERR_STALE, WEIR_ERR_INVALID (it was not stopping)
 * @thread owner
 */
enum weir_status weir_sched_stopped(struct weir_sched *sched, uint64_t now_ns, weir_sched_id item,
                                    uint32_t done_blocks);

/**
 * An item that was ordered to stop, or has stopped, runs: it could not be stopped, or its lease
 * ended.
 *
 * @param may_stop  false: do not order it to stop again.
 * @return WEIR_OK, WEIR_ERR_STALE, WEIR_ERR_INVALID (it waits)
 * @thread owner
 */
enum weir_status weir_sched_running(struct weir_sched *sched, uint64_t now_ns, weir_sched_id item,
                                    bool may_stop);

/**
 * Forget an item in any state: it is no longer charged, and the environment is not called for it
 * any more.
 * @return WEIR_OK, WEIR_ERR_STALE
 * @thread owner
 */
enum weir_status weir_sched_withdraw(struct weir_sched *sched, uint64_t now_ns, weir_sched_id item);

/** Call this at the time of env->timer. Earlier or additional calls are harmless. @thread owner */
void weir_sched_tick(struct weir_sched *sched, uint64_t now_ns);

/* Waits are counted by their length: up to 10 us, 100 us, 1 ms, 10 ms, 100 ms, 1 s, and longer. */
#define WEIR_SCHED_WAITS 7u

struct weir_sched_tenant_info {
    struct weir_sched_tenant_params params; /* name: borrowed until the tenant is removed */
    uint64_t
        service_ns[WEIR_SCHED_RESOURCE_COUNT]; /* up to the last call; compute: SM-nanoseconds */
    uint64_t waited_ns; /* summed: from arrival to start, and from stopped to resumed */
    uint64_t waits[WEIR_SCHED_WAITS]; /* number of waits by length; waited_ns is their sum */
    uint64_t finished;                /* number of items */
    uint64_t stops;
    uint32_t queues;
    uint32_t waiting, granted, stopped; /* numbers of items; granted includes stopping */
    uint32_t weight;                    /* as policies see it: sched/min_share.c */
    struct {                            /* its compute, for spans.h */
        bool works;                     /* it waits or is on the device */
        bool blocked;                   /* it waits for `span` alone */
        bool starves;                   /* and has done so for starve_ns */
        uint32_t fixed;                 /* items on the device that cannot be stopped */
        uint64_t rest_ns;               /* predicted time of the queue that has most of these */
        uint64_t starts;                /* items that came onto the device so far */
    } compute;
};

/** A number that changes when a tenant with a `span` gets its first compute, has none left, or is
 * blocked or no longer blocked by `span`. @thread owner */
uint64_t weir_sched_span_news(const struct weir_sched *sched);

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
 * Does an item wait only for earlier work of its own queue? It does while its tenant is served, and
 * only the bound on work in flight holds the item back. This ends with the tenant's turn, or when
 * it is no longer the filler.
 * @return false also for items that do not wait, and for copies
 * @thread owner
 */
bool weir_sched_waits_for_room(const struct weir_sched *sched, weir_sched_id item);

struct weir_sched_counts {
    uint64_t arrivals, starts, stops, resumes, resizes, finishes, withdrawals;
    uint64_t decisions; /* times that the policy `next` was asked */
    uint64_t switches;  /* times that the leader changed */
    uint64_t rescues;   /* turns and copies granted by the watchdog or after starve_ns */
    uint64_t nonsense;  /* refused answers of policies */
    uint32_t tenants, queues, items;
};
/** @thread owner */
void weir_sched_count(const struct weir_sched *sched, struct weir_sched_counts *ret_counts);

/* Kinds of records of a schedule trace. Add new ones at the end: files keep these numbers. */
enum weir_sched_record_kind {
    WEIR_SCHED_REC_TENANT_ADD, /* value: weir_sched_tenant_packed() */
    WEIR_SCHED_REC_TENANT_SET, /* value: weir_sched_tenant_packed() */
    WEIR_SCHED_REC_TENANT_REMOVE,
    WEIR_SCHED_REC_QUEUE_ADD, /* value: weir_sched_queue_packed() */
    WEIR_SCHED_REC_QUEUE_REMOVE,
    WEIR_SCHED_REC_ARRIVE,  /* class, flags, key, bytes, blocks, blocks_per_sm; value: predicted_ns.
                               A copy's key is its rest_bytes */
    WEIR_SCHED_REC_START,   /* place; value: 1 filler, 2 above (enum weir_sched_level), 0 else */
    WEIR_SCHED_REC_STOP,    /* value: lease_ns */
    WEIR_SCHED_REC_STOPPED, /* blocks: done_blocks */
    WEIR_SCHED_REC_RESUME,  /* place */
    WEIR_SCHED_REC_RESIZE,  /* place */
    WEIR_SCHED_REC_RUNNING, /* value: may_stop */
    WEIR_SCHED_REC_FINISH,  /* value: took_ns as given */
    WEIR_SCHED_REC_WITHDRAW,
    WEIR_SCHED_REC_CHOOSE, /* tenant: the leader, 0: none; value: slice_ns */
    WEIR_SCHED_REC_TICK,
    WEIR_SCHED_REC_WAIT, /* value: enum weir_sched_cause of the item's wait from now on; key: the
                            other tenant that it waits for, 0: none. Before the first such record,
                            from arrival or stop on, the cause is OWN */
    WEIR_SCHED_REC_KIND_COUNT
};

/** Pack a queue's SM limit (none: 0) and domain into a record's value. @thread any */
static inline uint64_t weir_sched_queue_packed(uint32_t sm_limit, uint32_t domain)
{
    return (sm_limit < 100 ? sm_limit : 0) | (uint64_t)domain << 8;
}
/** Unpack a queue's SM limit: 1 .. 100 if the value is valid. @thread any */
static inline uint32_t weir_sched_queue_sm_limit(uint64_t value)
{
    return (value & 0xff) != 0 ? (uint32_t)(value & 0xff) : 100;
}
/** Unpack a queue's domain. @thread any */
static inline uint32_t weir_sched_queue_domain(uint64_t value)
{
    return (uint32_t)(value >> 8);
}

/** Pack a tenant's parameters, without name and user, into a record's value. @thread any */
static inline uint64_t weir_sched_tenant_packed(const struct weir_sched_tenant_params *params)
{
    return params->weight | (uint64_t)params->priority << 32 | (uint64_t)params->sm_limit << 40 |
           (uint64_t)params->exclusive << 48 | (uint64_t)params->min_share << 49 |
           (uint64_t)params->span << 58 | (uint64_t)params->span_more << 60;
}

/** Unpack a tenant's parameters. Older traces have two bits that count no more. @thread any */
static inline struct weir_sched_tenant_params weir_sched_tenant_unpacked(uint64_t value)
{
    return (struct weir_sched_tenant_params){
        .weight = (uint32_t)value,
        .priority = (enum weir_priority)(value >> 32 & 0xff),
        .sm_limit = (uint32_t)(value >> 40 & 0xff),
        .exclusive = (value >> 48 & 1) != 0,
        .min_share = (uint32_t)(value >> 49 & 0x7f),
        .span = (enum weir_sched_span)(value >> 58 & 3),
        .span_more = (uint32_t)(value >> 60),
    };
}

struct weir_sched_record {
    uint64_t at_ns;
    weir_sched_id tenant, queue, item; /* 0: the record concerns none */
    uint64_t key, bytes, value;
    uint32_t blocks, blocks_per_sm;
    struct weir_sched_place place;
    uint8_t kind;  /* enum weir_sched_record_kind */
    uint8_t class; /* for items: enum weir_sched_class */
    uint16_t flags;
};
