/*
 * The interface of policies. A policy is one table of functions, one row in policies.def and one
 * file in policy/.
 *
 * A policy names tenants and places. It never holds items, so it cannot lose one. The scheduler
 * checks each answer. It logs an invalid one once, and replaces it by a plain answer: the tenant
 * that has waited longest, alone, on all SMs. An item that waits longer than config.starve_ns is
 * granted whatever the policy says. Copies are ordered without a policy (copies.c).
 *
 * At most one policy of each kind is in force:
 *
 *     NEXT      which tenant leads, and for how long
 *     TOGETHER  which tenants run beside the leader, on which SMs, with how many blocks on each
 *
 * A policy's arguments are valid during the call. It may keep only a struct weir_policy_tenant,
 * from joined() to left(); it is current whenever one of the policy's functions is called. A policy
 * uses nothing else: no clock, no I/O, and no randomness except from its own seed. So the same
 * trace gives the same decisions. With 64 tenants it should answer within half a microsecond.
 *
 * Threads: the scheduler's owner thread.
 * Source: docs/design/scheduling.md
 */
#pragma once

#include "sched/sched.h"
#include "sched/tuning.h"

enum weir_policy_kind { WEIR_POLICY_NEXT, WEIR_POLICY_TOGETHER, WEIR_POLICY_KIND_COUNT };

#define WEIR_POLICY_GROUP_MAX    8u    /* tenants that share the device at a time */
#define WEIR_POLICY_BLOCKS_MAX   1024u /* largest block limit of a place: as many as fit */
#define WEIR_POLICY_TENANT_BYTES 128u  /* largest state of a tenant for a policy */

/* A tenant's first compute item: the one that runs, or else the one that would be granted next. */
struct weir_policy_kernel {
    uint64_t key;           /* 0: not known; the kernel is not measured */
    uint32_t blocks_per_sm; /* blocks that fit on an SM; 0: not known */
    uint32_t need_sms;      /* SMs that hold all its blocks at once; all SMs if not known */
    uint64_t predicted_ns;  /* the duration alone on all SMs; 0: not known */
    uint64_t rest_ns;       /* the rest of that duration now; 0: not known */
    enum weir_sched_class class;
    bool unsure; /* predicted_ns is unreliable, and may be long */
    bool stoppable;
    bool movable;   /* the kernel can be confined to any place */
    bool divisible; /* it can be confined to some blocks of each SM, if not at once */
    bool partable;  /* it can be confined to a part (config.part_step) */
};

/* A tenant in the form that policies see. The core maintains it; state[] belongs to the
 * policies. */
struct weir_policy_tenant {
    weir_sched_id id;
    const char *name;
    uint32_t weight;   /* 1 .. WEIR_SCHED_WEIGHT_MAX */
    uint32_t sm_limit; /* SMs, 1 .. config.sms */
    enum weir_priority priority;
    uint64_t service_ns[WEIR_SCHED_RESOURCE_COUNT]; /* total service; compute in SM-nanoseconds */
    uint64_t work_ns; /* compute work done, as time alone: that of ended items, and in groups an
                         assumed part of those that run */
    uint64_t committed_ns;     /* predicted compute that was granted, will not be stopped and is not
                                  charged yet, in SM-nanoseconds */
    uint64_t waiting_since_ns; /* when its oldest waiting compute item arrived; UINT64_MAX: none */
    uint64_t ready_since_ns;   /* since when it has had compute work; UINT64_MAX: it has none */
    uint64_t gap_ns;           /* usual time from the end of its compute work to its next arrival */
    uint64_t graph_ns;  /* usual time that one of its graphs is served on the device, alone or
                           beside other work; 0: none has ended */
    uint64_t stop_ns;   /* usual time from the order to stop until its work has stopped */
    uint64_t switch_ns; /* time that the device loses when it turns to this tenant from another
                           domain (weir_sched_queue_add()); 0: there is no other */
    uint64_t domain;    /* its queues' domain plus 1; 0: it has several domains or no queue */
    uint32_t waiting;   /* queues with compute work that could be granted */
    uint32_t granted;   /* compute items on the device */
    bool stoppable;     /* all of these can be stopped */
    bool member;        /* it is the leader or in the leader's group */
    bool passed;        /* since it was idle, work of it bypassed the scheduler */
    bool may_pass;      /* for `beside`: its next item may be granted beside the leader's */
    struct weir_policy_kernel kernel;
    void *state[WEIR_POLICY_KIND_COUNT]; /* ops.tenant_bytes, zeroed before joined() */
};

struct weir_policy_next_view {
    uint64_t now_ns;
    bool arrived; /* why the policy is asked. true: within the leader's slice, which may go on, a
                     tenant without compute work got some; false: nobody leads, the slice is over,
                     or weights or tenants changed */
    const struct weir_policy_tenant *const *ready; /* all tenants with compute work, in the order
                                                      in which they got it. 1 or more */
    uint32_t ready_count;
    const struct weir_policy_tenant *leader; /* may have no work now; NULL: no leader */
    uint64_t used_ns;  /* the leader's service in this slice, as time of the whole device */
    uint64_t slice_ns; /* the leader's slice */
    uint32_t free_sms; /* for `beside`: what small items leave of config.small_sms; 0: a filler is
                          wanted */
};

/* Preset: the tenant that waited longest, 1 ms, no lingering. */
struct weir_policy_choice {
    uint32_t ready;     /* index; for the leader within its slice, the rest is ignored */
    uint64_t slice_ns;  /* service after which the policy is asked again; 20 us at least */
    uint64_t linger_ns; /* how long it stays the leader without work, within its slice */
    uint64_t keep_ns;   /* the same, at most, while others fill what it leaves */
};

/* The data for a policy of kind TOGETHER that chooses the leader's group. */
struct weir_policy_together_view {
    uint64_t now_ns;
    const struct weir_policy_tenant *const *ready; /* ready[0] is the leader; the others are those
                                                      of its class and domain that may share */
    uint32_t ready_count;
    int64_t behind_ns; /* device time by which the leader is behind its share; negative: ahead; 0:
                          the policy NEXT does not report it */
};

struct weir_policy_member {
    uint32_t ready; /* index */
    struct weir_sched_place place;
};

/* The policy's answer. Preset: the leader alone on all SMs. member[0] must be the leader. */
struct weir_policy_group {
    struct weir_policy_member member[WEIR_POLICY_GROUP_MAX];
    uint32_t count;
    bool sample;       /* a trial of these places: ask again when each member has finished an item
                          there, and let members be owed more (group_account.c) */
    uint64_t valid_ns; /* ask again after this time, and not when another member becomes leader; 0:
                          ask again when the leader or a member's first kernel changes */
    uint64_t hold_ns;  /* with valid_ns: the group holds whichever kernels its tenants run. A member
                          keeps its SMs for this time without work, and no other tenant's work is
                          granted beside the group */
    bool quiet;   /* with hold_ns: no member's kernel starts while kernels of other tenants run */
    bool by_work; /* with hold_ns: members pay for the work that they get done, and not for the
                     device by weight */
};

/* A policy in force. */
struct weir_policy {
    const struct weir_policy_ops *ops;
    const struct weir_sched_config *config; /* the scheduler's */
    void *state;                            /* ops.state_bytes, zeroed before joined() */
};

/**
 * A policy. Each function's comment says what NULL means; functions that a kind does not use are
 * NULL. All are called inside a call into the scheduler, with its lock held.
 */
struct weir_policy_ops {
    const char *name; /* as in policies.def */
    enum weir_policy_kind kind;
    size_t state_bytes;  /* size of policy->state */
    size_t tenant_bytes; /* size of each tenant->state[kind], up to WEIR_POLICY_TENANT_BYTES */

    /** The policy is put in force, or a tenant was added. NULL: nothing to do. */
    void (*joined)(struct weir_policy *policy, struct weir_policy_tenant *tenant);
    /** A tenant, which is not ready any more, is removed. NULL: nothing to do. */
    void (*left)(struct weir_policy *policy, struct weir_policy_tenant *tenant);
    /** A tenant's weight, priority or limit will change; it still has the old values.
     * NULL: nothing to do. */
    void (*changing)(struct weir_policy *policy, struct weir_policy_tenant *tenant);
    /** A tenant without compute work got some. Its service is charged up to now. NULL: no-op. */
    void (*ready)(struct weir_policy *policy, uint64_t now_ns, struct weir_policy_tenant *tenant);
    /** A tenant has no compute work left. NULL: nothing to do. */
    void (*idle)(struct weir_policy *policy, uint64_t now_ns, struct weir_policy_tenant *tenant);

    /** Kind NEXT: choose the leader. Called while several tenants are ready, or one that does not
     * lead. Mandatory. */
    void (*next)(struct weir_policy *policy, const struct weir_policy_next_view *view,
                 struct weir_policy_choice *choice);
    /**
     * Kind NEXT. Whose work is granted beside the leader (beside.c): its next small item or, with
     * free_sms of 0, a filler's items for about a millisecond? NULL: nobody's.
     * @return index into view->ready of a tenant that may_pass; UINT32_MAX: none now.
     */
    uint32_t (*beside)(struct weir_policy *policy, const struct weir_policy_next_view *view);
    /**
     * Kind NEXT. By how much of the device's time a tenant is behind its share, as of the last
     * decision; negative: ahead. Its small items may then go above others of its class (small.c).
     * NULL: no items go above.
     */
    int64_t (*lag_ns)(const struct weir_policy *policy, const struct weir_policy_tenant *tenant);
    /**
     * Kind NEXT. Does a tenant go first, as of the last decision? Then its items go above others of
     * its class, beside what runs (beside.c). It has to count what was granted (committed_ns).
     * NULL: nobody goes first.
     * @return the longest item that may go above, in ns; 0: the tenant does not go first.
     */
    uint64_t (*first_ns)(const struct weir_policy *policy, const struct weir_policy_tenant *tenant);
    /** Kind TOGETHER: choose the leader's group. Called after each choice that changes something,
     * and when the group requires it. Mandatory. */
    void (*together)(struct weir_policy *policy, const struct weir_policy_together_view *view,
                     struct weir_policy_group *group);
};

/** Find a policy by its name in policies.def; NULL: none. @thread any */
const struct weir_policy_ops *weir_policy_find(const char *name);

/** The policy in a row of policies.def, from 0; NULL behind the last. @thread any */
const struct weir_policy_ops *weir_policy_at(uint32_t index);

/** The name of a kind: "next", "together"; "?" for others. @thread any */
const char *weir_policy_kind_text(enum weir_policy_kind kind);

struct weir_policy_set {
    const struct weir_policy_ops *policy[WEIR_POLICY_KIND_COUNT]; /* NULL: none */
};

/**
 * Read "fair,corun": names in any order, one of a kind at most; without one of kind
 * NEXT it is fair.
 *
 * @param ret_diag  says what is wrong, with the column; may be NULL.
 * @return WEIR_OK, WEIR_ERR_NOT_FOUND (no such policy), WEIR_ERR_EXISTS (two of a kind),
 *         WEIR_ERR_SYNTAX (an empty name)
 * @thread any
 */
enum weir_status weir_policy_set_parse(const char *text, struct weir_policy_set *ret_set,
                                       struct weir_diag *ret_diag) WEIR_MUST_CHECK;
