/*
 * What a policy is: one table of functions, one row in policies.def, one file in policy/.
 *
 * A policy names tenants, places and orders; it never holds items, so it cannot lose one. Whatever
 * it answers is checked: an answer that makes no sense is replaced by a plain one (who waited
 * longest, alone, on all SMs; first come, first served) and named once in the log. What waits
 * longer than config.starve_ns is granted past it.
 *
 * One policy of each kind at most is in force:
 *
 *     NEXT      which tenant has the compute resource, for how long, and may it preempt
 *     TOGETHER  which tenants share it with that one, on which SMs, with how many blocks on each
 *     ORDER     which waiting copy goes first
 *
 * What a policy is shown is valid for the call; only struct weir_policy_tenant stays where it is
 * from joined() to left(), its contents current whenever a function of the policy is called. A
 * policy may look at nothing else: no clock, no randomness but of its own seed, no I/O; then the
 * same trace gives the same decisions. Asked with 64 tenants it should answer within half a
 * microsecond.
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

/* The first of a tenant's compute work: what runs, else what would be granted next. */
struct weir_policy_kernel {
    uint64_t key;           /* 0: not known, nothing is measured for it */
    uint32_t blocks;        /* 0: not known */
    uint32_t blocks_per_sm; /* that fit on an SM; 0: not known */
    uint32_t need_sms;      /* to hold all its blocks at once, at most all; not known: all */
    uint32_t done_blocks;   /* as last seen */
    uint64_t predicted_ns;  /* alone, all SMs; 0: not known */
    uint64_t rest_ns;       /* of that, now; 0: not known */
    enum weir_sched_class class;
    bool unsure; /* predicted_ns is a supposition */
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
    uint64_t service_ns[WEIR_SCHED_RESOURCE_COUNT]; /* ever; compute in SM-nanoseconds */
    uint64_t committed_ns; /* compute that is granted, will not be stopped, and is yet to be
                              charged; predicted, in SM-nanoseconds */
    uint64_t
        waiting_since_ns;    /* its compute work that has waited longest; UINT64_MAX: none waits */
    uint64_t ready_since_ns; /* has had compute work since; UINT64_MAX: it has none */
    uint64_t gap_ns;         /* between the end of its compute work and the next arrival, usually */
    uint64_t stop_ns;        /* from telling its work to stop until it has, usually */
    uint32_t waiting;        /* queues with compute work that could be granted */
    uint32_t granted;        /* items of compute on the device */
    bool stoppable;          /* all of those can be stopped */
    bool member;             /* it has the compute resource, alone or with others */
    bool small;              /* its next item needs a part of the device only, and that is free */
    struct weir_sched_place place; /* where the last group of kind TOGETHER had it */
    struct weir_policy_kernel kernel;
    void *state[WEIR_POLICY_KIND_COUNT]; /* ops.tenant_bytes, zeroed before joined() */
};

/* Why a policy is asked. */
enum weir_policy_why {
    WEIR_POLICY_ARRIVAL, /* a tenant got compute work that had none; the slice is not over */
    WEIR_POLICY_SLICE,   /* the leader's slice is over */
    WEIR_POLICY_EMPTY,   /* the leader has no work; or there is no leader */
    WEIR_POLICY_CHANGED, /* weights, priorities, tenants or policies changed */
    WEIR_POLICY_RETRY,   /* it asked to be asked again */
    WEIR_POLICY_WHY_COUNT
};

struct weir_policy_next_view {
    uint64_t now_ns;
    enum weir_policy_why why;
    const struct weir_policy_tenant *const *ready; /* with compute work, of all classes; in the
                                                      order in which they became ready. 1 or more */
    uint32_t ready_count;
    const struct weir_policy_tenant *leader; /* who has it now, perhaps without work; or NULL */
    uint64_t used_ns;  /* service that the leader had in this slice, of the whole device's time */
    uint64_t slice_ns; /* of the leader */
};

/* Comes filled in with: who waited longest, 1 ms, no lingering, preempting, all SMs. */
struct weir_policy_choice {
    uint32_t ready;     /* index. Naming the leader before its slice is over changes nothing else */
    uint64_t slice_ns;  /* until asked again, in time that it is served; at least 20 us is given */
    uint64_t linger_ns; /* how long its place is kept when it runs out of work within its slice */
    bool preempt;       /* stop what others have on the device; else that runs out */
    uint32_t sms;       /* not 0: it needs that many only, and the old leader keeps the others, if
                           all its work there can be moved (else it is stopped) */
};

/* Whom the leader may have beside it. */
struct weir_policy_together_view {
    uint64_t now_ns;
    enum weir_policy_why why;
    const struct weir_policy_tenant *const *ready; /* ready[0] is the leader */
    uint32_t ready_count;
    uint64_t slice_ns; /* rest of the leader's */
};

struct weir_policy_member {
    uint32_t ready; /* index */
    struct weir_sched_place place;
};

/* Comes filled in with the leader alone on all SMs. member[0] must be the leader. */
struct weir_policy_group {
    struct weir_policy_member member[WEIR_POLICY_GROUP_MAX];
    uint32_t count;
    bool sample;       /* these places are tried out: the policy is asked again when each member has
                          finished an item there. Wants a valid_ns, or the next leader ends it */
    uint64_t valid_ns; /* ask again after that, and not when the lead passes to another member; 0:
                          when the leader, or whose work is first, changes */
};

/*
 * How fast a kernel was at a place: what completions taught, of items that had one place and the
 * same company from beginning to end. The core keeps the latest some thousands.
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

/* Which copy goes first: one entry a queue whose next item is a copy in view->direction. */
struct weir_policy_task {
    weir_sched_id item; /* the copy */
    const struct weir_policy_tenant *tenant;
    uint64_t arrived_ns;     /* of the copy */
    uint64_t copy_ns;        /* predicted, of the copy itself; 0: not known, as below */
    uint64_t to_device_ns;   /* of the whole task: copies to the device that go first, */
    uint64_t compute_ns;     /* then kernels, */
    uint64_t from_device_ns; /* then copies back: of what waits in the queue, and where it ends
                                early, as this queue's last task had it */
    uint64_t memory_bytes;   /* that it holds from its first copy to its last */
    bool complete;           /* all three are from what waits, nothing from the last task */
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
    /** A tenant has compute work that had none. Service so far is charged. NULL: nothing to do. */
    void (*ready)(struct weir_policy *policy, uint64_t now_ns, struct weir_policy_tenant *tenant);
    /** It has none any more. NULL: nothing to do. */
    void (*idle)(struct weir_policy *policy, uint64_t now_ns, struct weir_policy_tenant *tenant);
    /** An item was measured: what is now known of its kernel there. NULL: not wanted. */
    void (*measured)(struct weir_policy *policy, const struct weir_policy_measure *measure);

    /** Kind NEXT. Asked while two tenants or more are ready, or one behind a leader. Mandatory. */
    void (*next)(struct weir_policy *policy, const struct weir_policy_next_view *view,
                 struct weir_policy_choice *choice);
    /**
     * Kind NEXT. Who may have what the leader leaves of the device (fill.c)? Asked about every
     * millisecond. NULL: nobody.
     * @return index into view->ready, not the leader's; or UINT32_MAX: nobody.
     */
    uint32_t (*filler)(struct weir_policy *policy, const struct weir_policy_next_view *view);
    /**
     * Kind NEXT. Whose small item is granted next, beside the leader (small.c)? NULL: nobody's ever
     * is.
     * @return index into view->ready of one that is `small`; or UINT32_MAX: nobody's now.
     */
    uint32_t (*small)(struct weir_policy *policy, const struct weir_policy_next_view *view);
    /** Kind TOGETHER. Asked after each choice that changes something, and as the group says.
     *  Mandatory. */
    void (*together)(struct weir_policy *policy, const struct weir_policy_together_view *view,
                     struct weir_policy_group *group);
    /**
     * Kind ORDER. Asked when a direction has less than inflight_ns to do: while it is in force a
     * copy is granted only when it is first of its queue on the device, and two a direction at most
     * are granted. What it names may have to wait for the end of what is under way; it is not asked
     * again meanwhile, unless somebody of a higher class comes. Mandatory.
     * @return index into view->tasks, or WEIR_POLICY_WAIT: none now; asked again when something
     *         changes, past it after starve_ns.
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
