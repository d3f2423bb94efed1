/*
 * What a policy is: one table of functions, one row in policies.def, one file in policy/.
 *
 * A policy names tenants, places and orders. It never holds items, so it cannot lose one. The
 * scheduler checks each answer. One that makes no sense is logged once, and replaced by a plain
 * answer: the tenant that has waited longest, alone, on all SMs; for copies, the one whose turn it
 * is by shares. An item that waits longer than config.starve_ns is granted whatever the policy
 * says.
 *
 * One policy of each kind at most is in force:
 *
 *     NEXT      which tenant leads, for how long, and whether others' kernels are stopped for it
 *     TOGETHER  which tenants run beside the leader, on which SMs, with how many blocks on each
 *     ORDER     which waiting copy goes first
 *
 * What a policy is shown is valid during the call. Only a struct weir_policy_tenant may be kept,
 * from joined() to left(); it is current whenever one of the policy's functions is called. A policy
 * uses nothing else: no clock, no I/O, and no randomness except from its own seed. So the same
 * trace gives the same decisions. With 64 tenants it should answer within half a microsecond.
 *
 * Threads: the scheduler's owner thread.
 * Source: docs/design/scheduling.md
 */
#ifndef WEIR_SCHED_POLICY_H
#define WEIR_SCHED_POLICY_H

#include "sched/sched.h"

enum weir_policy_kind {
    WEIR_POLICY_NEXT,
    WEIR_POLICY_TOGETHER,
    WEIR_POLICY_ORDER,
    WEIR_POLICY_KIND_COUNT
};

#define WEIR_POLICY_GROUP_MAX 8u /* tenants that share the device at a time */

/* A tenant's first compute item: the one that runs, or else the one that would be granted next. */
struct weir_policy_kernel {
    uint64_t key;           /* 0: not known, so nothing is measured for it */
    uint32_t blocks;        /* 0: not known */
    uint32_t blocks_per_sm; /* blocks that fit on an SM; 0: not known */
    uint32_t need_sms;      /* SMs that hold all its blocks at once; all SMs if not known */
    uint32_t done_blocks;   /* when last looked at */
    uint64_t predicted_ns;  /* duration alone on all SMs; 0: not known */
    uint64_t rest_ns;       /* what is left of that now; 0: not known */
    enum weir_sched_class class;
    bool unsure; /* predicted_ns is unreliable, and not short */
    bool begun;  /* it has been granted */
    bool stoppable;
    bool movable; /* places are heeded */
    bool tensor;
};

/* A tenant as policies see it. Made and kept by the core; state[] is the policies'. */
struct weir_policy_tenant {
    weir_sched_id id;
    const char *name;
    uint32_t weight;   /* 1 .. WEIR_SCHED_WEIGHT_MAX */
    uint32_t sm_limit; /* SMs, 1 .. config.sms */
    enum weir_priority priority;
    uint64_t service_ns[WEIR_SCHED_RESOURCE_COUNT]; /* in total; compute in SM-nanoseconds */
    uint64_t committed_ns;     /* predicted compute that was granted, will not be stopped and is not
                                  charged yet, in SM-nanoseconds */
    uint64_t waiting_since_ns; /* when its oldest waiting compute item came; UINT64_MAX: none */
    uint64_t ready_since_ns;   /* since when it has had compute work; UINT64_MAX: it has none */
    uint64_t gap_ns;           /* usual time from the end of its compute work to its next arrival */
    uint64_t graph_ns;         /* usual time that one of its graphs is served on the device, also in
                                  company; 0: none has ended */
    uint64_t stop_ns;          /* usual time from the order to stop until its work has stopped */
    uint64_t switch_ns;        /* what the device loses when it turns to the tenant's work from that
                                  of another domain (weir_sched_queue_add()); 0: there is none */
    uint64_t domain;           /* of its queues, plus 1; 0: they are of several, or it has none */
    uint32_t waiting;          /* queues with compute work that could be granted */
    uint32_t granted;          /* items of compute on the device */
    bool stoppable;            /* all of those can be stopped */
    bool member;               /* it is the leader or in the leader's group */
    bool passed;               /* since it was idle, work of it has passed beside the scheduler */
    bool small;                /* its next item needs only a part of the device, which is free */
    struct weir_sched_place place; /* its place in the last group */
    struct weir_policy_kernel kernel;
    void *state[WEIR_POLICY_KIND_COUNT]; /* ops.tenant_bytes, zeroed before joined() */
};

/* Why a policy is asked. */
enum weir_policy_why {
    WEIR_POLICY_ARRIVAL, /* a tenant without compute work got some, within the slice */
    WEIR_POLICY_SLICE,   /* the leader's slice is over */
    WEIR_POLICY_EMPTY,   /* the leader has no work; or there is no leader */
    WEIR_POLICY_CHANGED, /* weights, priorities, tenants or policies changed */
    WEIR_POLICY_RETRY,   /* the policy has asked for this call */
    WEIR_POLICY_WHY_COUNT
};

struct weir_policy_next_view {
    uint64_t now_ns;
    enum weir_policy_why why;
    const struct weir_policy_tenant *const *ready; /* all tenants with compute work, in the order
                                                      in which they got it. 1 or more */
    uint32_t ready_count;
    const struct weir_policy_tenant *leader; /* may have no work at the moment; NULL: none */
    uint64_t used_ns;  /* the leader's service in this slice, as time of the whole device */
    uint64_t slice_ns; /* the leader's slice */
    bool has_room;     /* for `small`: what is there of small work leaves much of its budget */
};

/* Preset to: the tenant that waited longest, 1 ms, no lingering, preempting, all SMs. */
struct weir_policy_choice {
    uint32_t ready;     /* index. Naming the leader before its slice is over changes nothing else */
    uint64_t slice_ns;  /* service until the policy is asked again; 20 us at least */
    uint64_t linger_ns; /* how long it stays the leader without work within its slice */
    uint64_t keep_ns;   /* how long, at most, while others fill what it leaves */
    bool preempt;       /* stop others' work on the device; false: let it end */
    uint32_t sms;       /* not 0: it needs only so many, and the old leader, of a lower class, keeps
                           the others if all its work can be moved there; else that is stopped */
};

/* For choosing the leader's group. */
struct weir_policy_together_view {
    uint64_t now_ns;
    enum weir_policy_why why;
    const struct weir_policy_tenant *const *ready; /* ready[0] is the leader; the others are those
                                                      of its class and domain that may share */
    uint32_t ready_count;
    uint64_t slice_ns; /* rest of the leader's */
};

struct weir_policy_member {
    uint32_t ready; /* index */
    struct weir_sched_place place;
};

/* Preset to the leader alone on all SMs. member[0] must be the leader. */
struct weir_policy_group {
    struct weir_policy_member member[WEIR_POLICY_GROUP_MAX];
    uint32_t count;
    bool sample;       /* a trial of these places: ask again when each member has finished an item
                          there. Needs a valid_ns, or the next change of leader ends it */
    uint64_t valid_ns; /* ask again after this time, but not when another member becomes leader; 0:
                          when the leader or a member's first kernel changes */
};

/*
 * How fast a kernel was at a place, measured from items whose place and neighbours did not change
 * while they ran. The core keeps the latest few thousand measures.
 */
struct weir_policy_measure {
    uint64_t key;
    uint32_t sm_count;    /* 0: all */
    uint32_t block_limit; /* 0: as many as fit */
    uint64_t partner_key; /* of the kernel beside it, 0: alone. With two or more: not kept */
    uint32_t partner_sm_count, partner_block_limit; /* 0 when alone */
    uint64_t duration_ns;                           /* mean, of launches with `blocks` */
    uint32_t blocks;                                /* of the latest */
    uint32_t samples;
    double block_ns;        /* duration / blocks, mean */
    double latest_block_ns; /* of the latest launch alone */
    double error;           /* mean relative deviation of that */
};

/* A candidate for the next copy: of each queue whose next item is a copy in view->direction, unless
 * its tenant is ahead of its share. */
struct weir_policy_task {
    weir_sched_id item; /* the copy */
    const struct weir_policy_tenant *tenant;
    uint64_t arrived_ns;     /* of the copy */
    uint64_t copy_ns;        /* predicted, of the copy itself; 0: not known, as below */
    uint64_t to_device_ns;   /* of the whole task: copies to the device that go first, */
    uint64_t compute_ns;     /* then kernels, */
    uint64_t from_device_ns; /* then copies back: of what waits in the queue, and where it ends
                                early, as this queue's last task had it */
    uint64_t memory_bytes;   /* device memory that it holds from its first copy to its last */
    bool complete;           /* all three come from waiting items, none from the last task */
};

struct weir_policy_order_view {
    uint64_t now_ns;
    enum weir_sched_resource direction;
    const struct weir_policy_task *tasks;
    uint32_t task_count; /* 1 .. WEIR_POLICY_TASKS_MAX: of the highest class that has any, in the
                            order in which they could have begun */
    /* Until each is free of the tasks under way, by predictions and, for what is not known yet, by
     * their queues' last tasks; those that copy to the device count as the last. */
    uint64_t busy_ns[WEIR_SCHED_RESOURCE_COUNT];
    uint64_t memory_used_bytes, memory_limit_bytes; /* limit 0: none */
};

#define WEIR_POLICY_TASKS_MAX 64u
#define WEIR_POLICY_WAIT      UINT32_MAX

/* A policy in force. */
struct weir_policy {
    const struct weir_policy_ops *ops;
    const struct weir_sched_config *config; /* the scheduler's */
    void *state;                            /* ops.state_bytes, zeroed before init() */
};

/**
 * A policy. NULL functions are said at each; what a kind does not use is NULL.
 * All are called inside a call into the scheduler, with its lock held.
 */
struct weir_policy_ops {
    const char *name; /* as in policies.def */
    enum weir_policy_kind kind;
    size_t state_bytes;  /* of the policy */
    size_t tenant_bytes; /* of each tenant: tenant->state[kind] */

    /** When it is put in force; joined() follows for each tenant there is. NULL: nothing to do. */
    enum weir_status (*init)(struct weir_policy *policy);
    /** When it goes; left() is not called before. NULL: nothing to do. */
    void (*finish)(struct weir_policy *policy);
    /** A tenant came. NULL: nothing to do. */
    void (*joined)(struct weir_policy *policy, struct weir_policy_tenant *tenant);
    /** A tenant goes; it is not ready any more. NULL: nothing to do. */
    void (*left)(struct weir_policy *policy, struct weir_policy_tenant *tenant);
    /** Weight, priority or limit change: called before, with the old values.
     * NULL: nothing to do. */
    void (*changing)(struct weir_policy *policy, struct weir_policy_tenant *tenant);
    /** A tenant without compute work got some. Its service is charged up to now. NULL: no-op. */
    void (*ready)(struct weir_policy *policy, uint64_t now_ns, struct weir_policy_tenant *tenant);
    /** A tenant has no compute work left. NULL: nothing to do. */
    void (*idle)(struct weir_policy *policy, uint64_t now_ns, struct weir_policy_tenant *tenant);
    /** A measure has changed, because an item was measured. NULL: not wanted. */
    void (*measured)(struct weir_policy *policy, const struct weir_policy_measure *measure);

    /** Kind NEXT. Asked while several tenants are ready, or one that does not lead. Mandatory. */
    void (*next)(struct weir_policy *policy, const struct weir_policy_next_view *view,
                 struct weir_policy_choice *choice);
    /**
     * Kind NEXT. Which tenant is the filler (fill.c)? Asked about every millisecond. NULL: nobody.
     * @return index into view->ready, not the leader's; or UINT32_MAX: nobody.
     */
    uint32_t (*filler)(struct weir_policy *policy, const struct weir_policy_next_view *view);
    /**
     * Kind NEXT. Names the tenant whose small item is granted next, beside the leader (small.c).
     * NULL: with this policy no item is granted so.
     * @return index into view->ready of a tenant that is `small`; UINT32_MAX: none now.
     */
    uint32_t (*small)(struct weir_policy *policy, const struct weir_policy_next_view *view);
    /**
     * Kind NEXT. By how much of the device's time a tenant is behind its share, as of the last
     * question; negative: ahead. Its small items may then go before others of its class (small.c).
     * NULL: nobody's do.
     */
    int64_t (*lag_ns)(const struct weir_policy *policy, const struct weir_policy_tenant *tenant);
    /** Kind TOGETHER. Asked after each choice that changes something, and as the group says.
     *  Mandatory. */
    void (*together)(struct weir_policy *policy, const struct weir_policy_together_view *view,
                     struct weir_policy_group *group);
    /**
     * Kind ORDER. Names the copy that goes next in one direction. Mandatory.
     * The scheduler asks when the copies under way in that direction need less than inflight_ns.
     * It then grants at most two copies at a time in a direction. The named copy may have to wait
     * for copies that are running. The policy is not asked again before that, unless a tenant of a
     * higher class arrives.
     * @return index into view->tasks; or WEIR_POLICY_WAIT: none now. Then the scheduler asks again
     *         when something changes, and grants a copy by itself after starve_ns.
     */
    uint32_t (*order)(struct weir_policy *policy, const struct weir_policy_order_view *view);
};

/** A policy by its name in policies.def, or NULL. @thread any */
const struct weir_policy_ops *weir_policy_find(const char *name);

/** The rows of policies.def, 0 .. ; NULL behind the last. @thread any */
const struct weir_policy_ops *weir_policy_at(uint32_t index);

/** "next", "together", "order"; "?" for others. @thread any */
const char *weir_policy_kind_text(enum weir_policy_kind kind);

struct weir_policy_set {
    const struct weir_policy_ops *policy[WEIR_POLICY_KIND_COUNT]; /* NULL: none */
};

/**
 * Read "fair,complement,overlap": names in any order, one of a kind at most; without one of kind
 * NEXT it is fair.
 *
 * @param ret_diag  says what is wrong, with the column; may be NULL.
 * @return WEIR_OK, WEIR_ERR_NOT_FOUND (no such policy), WEIR_ERR_EXISTS (two of a kind),
 *         WEIR_ERR_SYNTAX (an empty name)
 * @thread any
 */
enum weir_status weir_policy_set_parse(const char *text, struct weir_policy_set *ret_set,
                                       struct weir_diag *ret_diag) WEIR_MUST_CHECK;

#endif
