/* Types and functions that the core's files share. docs/design/scheduling.md explains the model. */
#pragma once

#include "sched/policy.h"
#include "sched/predict.h"
#include "sched/sched.h"
#include "sched/table.h"
#include "sched/tuning.h"

#define NAME_BYTES 64
#define NEVER      UINT64_MAX
#define RESOURCES  WEIR_SCHED_RESOURCE_COUNT

/* Bounds on the answers of policies. */
#define SLICE_MIN_NS      20000u
#define SLICE_MAX_NS      1000000000u
#define PAIR_GAIN_SLOTS   256u
#define SMALL_PRICE_SLOTS 1024u
#define PREDICTED_MAX_NS  1000000000000000u /* 11 days: sums and products stay in 64 bits */

struct queue;
struct tenant;

/* The reason why an item waits: causes.c. */
struct waiting {
    uint8_t cause;       /* enum weir_sched_cause */
    weir_sched_id other; /* the tenant that it waits for; 0: none */
    uint64_t since_ns;   /* since when this is not counted yet; 0: no wait was seen */
};

struct item {
    weir_sched_id id;
    struct queue *queue;
    struct item *next, *prev;             /* in the queue */
    struct item *front_next, *front_prev; /* among the head items: charge.c */
    bool is_front;
    bool waits;                  /* a head item that was seen not to hold the device */
    bool teaches;                /* its time is learned, so no equal may fill: beside.c */
    bool fills_all;              /* it has all SMs: its blocks may wait for each other: small.c */
    enum weir_sched_level level; /* the stream priority at which it was granted: beside.c */
    uint32_t alike;              /* the first of this many identical items that ended together */
    uint32_t part_sms;           /* the SMs to which a kernel is confined: small.c; 0: all */
    uint32_t small_sms;          /* it needs only this many SMs: small.c; 0: perhaps all */
    struct waiting why;          /* why it waits, as last seen */
    struct weir_sched_item_params params;
    enum weir_sched_item_state state;
    struct weir_sched_place place;
    uint32_t done_blocks;
    uint64_t predicted_ns; /* 0: not known */
    uint64_t counted_ns;   /* predicted_ns, or else a guess */
    struct {
        uint64_t arrived_ns;
        uint64_t since_ns;   /* when it began to wait or, if stopped, was stopped */
        uint64_t started_ns; /* when it was granted or, later, resumed */
        uint64_t head_ns;    /* when it became the first item of its queue on the device */
        uint64_t stop_asked_ns, no_stop_before_ns;
    } at;
    struct {
        uint64_t served_ns;     /* service charged as it ran; corrected by done_blocks */
        uint64_t crowd_ns;      /* part of served_ns while small items had all SMs: small.c */
        uint64_t busy_ns;       /* time in which it was served */
        uint64_t alone_ns;      /* part of busy_ns in which it was alone on the device */
        uint64_t with_small_ns; /* part of busy_ns with only small items beside it */
        uint64_t beside_ns;     /* part of busy_ns that later items claimed: charge.c */
        int64_t beyond_ns;      /* its other charges: claims, less credits: charge.c */
    } had;
    struct {             /* what makes its time less reliable: learn_durations.c */
        bool waits;      /* it was served while another head item seemed to wait */
        bool filler;     /* a filler shared the device */
        bool small;      /* small items had SMs while it was a head item: charge.c */
        bool new_domain; /* its time includes a change of the device to its domain */
        bool moved;      /* it was moved, or its start was not seen */
        bool stop;       /* it was stopped: only the time in which it was served counts */
    } saw;
    struct {                 /* group_account.c */
        uint64_t ns;         /* part of had.busy_ns while its tenant was in a policy's group */
        uint64_t hoped_ns;   /* work assumed done in that time */
        uint64_t counted_ns; /* part of its work that view.work_ns has already */
        bool by_work;        /* its tenant pays for its work and not for its time, */
        uint64_t late_ns;    /* and has paid so much service while outside the group */
    } group;
    struct {                       /* pair_gain.c */
        weir_sched_id sharer;      /* the only other tenant on the device while an equal filled, */
        uint64_t shared_ns;        /* or SEVERAL; and how long that lasted */
        weir_sched_id small_other; /* a small item: the other tenant with small items */
        uint64_t two_ns;           /* time beside one item of small_other and nothing else */
        uint64_t two_service_ns;   /* service charged to it in that time */
    } pair;
    struct {
        weir_sched_id of; /* the tenant of items that went above it and have ended, and how */
        uint64_t ns;      /* long they delayed it or waited for it: charge.c */
    } doubt;
    struct { /* a copy: copy_share.c */
        bool tagged;
        uint64_t start;   /* its tag, in virtual time */
        uint64_t rest_ns; /* of a copy in pieces: predicted time of the later pieces */
    } copy;
};

/* The SM limit of a tenant or queue, and what is left of it: limit.c. */
struct budget {
    uint32_t sms;  /* all SMs of the device: no limit */
    bool held;     /* it is used up */
    int64_t left;  /* SM-nanoseconds that were left at seen_ns */
    uint64_t used; /* SM-nanoseconds served since seen_ns */
    uint64_t seen_ns;
};

/* The settings for which settle() (decide.c) last resumed and placed a queue's items. */
struct settled {
    struct weir_sched_place place; /* place of the queue's tenant in the group */
    uint32_t limit_sms;
    bool in_company; /* the group has other members */
    bool valid;
};

/* Items in order: those on the device (granted, stopping, stopped), then those that wait. */
struct queue {
    weir_sched_id id;
    struct tenant *tenant;
    struct queue *next, *prev; /* links in the tenant's list */
    struct item *first, *last;
    struct item *candidate;              /* the first item that waits */
    struct item *listed;                 /* the candidate, if it could be granted */
    struct queue *list_next, *list_prev; /* links in its direction's list, if `listed` is a copy */
    uint32_t domain;                     /* as of weir_sched_queue_add() */
    uint32_t on_device;
    bool heads;         /* its first item is compute and on the device */
    uint64_t device_ns; /* counted_ns of its items on the device */
    uint64_t copies_ns; /* part of device_ns for copies */
    uint32_t kernels;   /* compute items on the device */
    uint32_t stoppable; /* how many of `kernels` can be stopped */
    uint64_t fixed_ns;  /* predicted time of the `kernels` that cannot be stopped */
    struct settled settled;
    struct budget limit;
    uint64_t service_ns;           /* compute that was charged to it, in SM-nanoseconds */
    bool held;                     /* its own or its tenant's limit is used up: its compute waits */
    struct weir_sched_wait *waits; /* WEIR_SCHED_WAIT_ROWS; owned; NULL: it has not waited yet */
};

/* A tenant's pauses between its copies of a direction. */
struct copy_gap {
    uint64_t since_ns;   /* since when it has no copy; NEVER: it has one */
    uint64_t usual_ns;   /* usual length of a pause; NEVER: not known */
    uint64_t before_ns;  /* its service in this direction up to the last pause */
    uint64_t stretch_ns; /* its service between the last two pauses */
};

struct tenant {
    struct weir_policy_tenant view; /* what policies see; also holds id, priority and others */
    uint32_t weight;                /* as configured; min_share.c derives view.weight from it */
    uint32_t min_share;             /* percent; 0: none */
    bool active;     /* it has or just had work; maintained if a tenant has a min_share */
    bool guaranteed; /* by its weight alone it would get less than its min_share */
    uint32_t sm_limit_pct;
    bool exclusive; /* never in a group with others */
    enum weir_sched_span span;
    uint32_t span_more;
    void *user;
    char name[NAME_BYTES];
    struct queue *queues;
    uint64_t credit_ns;  /* service paid for others' work, to be deducted from its charges */
    uint32_t domain;     /* of its queues, if one_domain */
    bool one_domain;     /* all its queues have the same domain */
    bool works;          /* it has compute, as policies are told */
    bool is_ready;       /* and some of it is at work or could be granted */
    bool blocked;        /* and it only waits for what `span` lets others have: ready.c */
    bool stale;          /* view.kernel and its neighbours must be computed again */
    uint64_t idle_ns;    /* when it last had compute; NEVER: not yet */
    uint64_t blocked_ns; /* if it is blocked: since when */
    struct {
        struct budget limit;            /* its own limit, for all its queues together */
        uint32_t limits;                /* how many limits it and its queues have */
        struct tenant *next, *previous; /* links in sched->limited, if it has limits */
    } bound;
    struct {
        uint64_t waited_ns, finished, stops, kernels;
        uint64_t waits[WEIR_SCHED_WAITS];
    } told; /* for weir_sched_tenant_query() */
    struct {
        uint32_t queues, waiting, granted, stopped; /* items, but for the first */
        uint32_t heads;                             /* queues */
    } counts;
    struct {
        uint64_t due_ns;    /* the watchdog helps it until its service reaches this */
        uint64_t helped_ns; /* when the watchdog helped it last */
    } watchdog;
    struct {                     /* by direction */
        uint32_t now[RESOURCES]; /* copies on the device, and listed queues */
        uint64_t end[RESOURCES]; /* where its tagged copies end, in virtual time */
        struct copy_gap gap[RESOURCES];
    } copying;
    struct {
        uint64_t clean_ns;  /* when its last turn without equal fillers began: beside.c */
        uint64_t unsure_ns; /* until then no equal fills beside it: beside.c */
    } beside;
    struct {
        int64_t owed_ns;          /* work that groups still owe it: group_account.c */
        int64_t lost_ns;          /* the same with another bound: what is to be paid back */
        int64_t tried_ns;         /* the part of owed_ns that is from trials */
        double speed;             /* its last items' speed there, relative to alone; 0: not known */
        uint64_t barred_until_ns; /* until then it joins no group */
    } grouped;
    /* What view.state points to. */
    _Alignas(8) uint8_t policy_state[WEIR_POLICY_KIND_COUNT][WEIR_POLICY_TENANT_BYTES];
};

/* The speeds of two tenants of one class while they fill each other's gaps: pair_gain.c. */
struct pair_gain {
    weir_sched_id of[2]; /* the tenants; the smaller id first */
    struct pair_gain_side {
        uint64_t ns;     /* duration of its items that had only the other's beside them */
        double alone_ns; /* duration of the same items alone */
    } side[2];
    uint64_t barred_until_ns; /* until then they do not fill for each other */
    uint64_t bar_ns;          /* how long they were last barred; 0: never */
    double small_speed[2];    /* speed of small items, relative to alone; 0: not known */
};

/* Service that a small item costs at each level while small items have all SMs: small.c. */
struct small_price {
    weir_sched_id tenant;
    uint64_t key;
    double plain_ns, above_ns; /* service on SMs; 0: not known */
};

struct turn_member {
    struct tenant *tenant;
    struct weir_sched_place place;
    uint64_t key;     /* key of its kernel when the group was made */
    bool tried;       /* in a trial: it has finished an item */
    uint64_t paid_ns; /* service charged to it in the step that is being charged */
    uint64_t done_ns; /* work that it is assumed to have done in that step */
};

/* The turn: which tenants have the compute resource now. */
struct turn {
    struct tenant *leader;
    uint64_t slice_ns, used_ns; /* used_ns: time in which the leader was served */
    uint64_t linger_ns;
    uint64_t linger_until_ns;        /* 0: the leader has work */
    uint64_t keep_ns, kept_until_ns; /* the same while equals fill */
    uint64_t clear_by_ns;            /* members wait for others' queued work until then at most */
    struct tenant *filler;           /* the tenant that fills what the leader leaves, */
    uint64_t filler_until_ns;        /* until then; then the policy chooses again */
    uint64_t nobody_until_ns;        /* if there is no filler: when to ask the policy again */
    weir_sched_id fresh;             /* a tenant with a new item that may go above: beside.c */
    bool clean;                      /* no equal fills, so that durations can be learned */
    bool has_equals;                 /* other tenants of the leader's class or above are ready */
    bool rescue;                     /* the watchdog's turn: no policy is asked before its end */
    struct turn_member member[WEIR_POLICY_GROUP_MAX]; /* the leader is the first */
    uint32_t members;
    bool sample;
    bool beside;             /* the group was made because the leader's SM limit leaves SMs */
    uint64_t valid_until_ns; /* 0: the group is valid until a member's kernel changes */
    uint64_t hold_ns;        /* how long a member keeps its SMs without work; 0: not at all */
    bool quiet;              /* no member's kernel starts while kernels of other tenants run */
    bool by_work;            /* members pay for the work that they get done */
};

/* A direction of copies, and how it is shared: copies.c, copy_share.c. */
struct copy_way {
    struct queue *first, *last;        /* queues whose next item is a copy this way */
    struct queue *next;                /* its copy is chosen, but must wait: copies.c; or NULL */
    uint32_t tenants;                  /* tenants with such copies */
    uint32_t on_device;                /* copies */
    uint64_t check_ns;                 /* no copy can have starved before this time */
    uint64_t done_ns;                  /* when the last one ended; for compute, too */
    uint64_t now[WEIR_PRIORITY_COUNT]; /* virtual time of each class */
    uint64_t latest;                   /* the latest end of any copy */
    weir_sched_id tenant;              /* the tenant whose copy was granted last */
    weir_sched_id whole;               /* queue of the copy whose pieces are under way; 0: none */
    uint64_t whole_ns;                 /* predicted time of its pieces granted in a row */
    uint64_t left_ns;                  /* predicted time of its remaining pieces */
    uint64_t idle_since_ns;            /* idle since then to wait for a copy of `tenant`; 0: not */
    uint64_t shared_until_ns;          /* until then the direction counts as shared */
};

/* Tenants that are ready, and those of them that a policy is asked about: ready.c, group.c. */
struct ready {
    const struct weir_policy_tenant **list, **order; /* in the order in which they became ready */
    uint32_t count, order_count, capacity;
};

/* What has changed since the policies were asked. */
struct news {
    bool arrived; /* somebody became ready */
    bool changed; /* weights, tenants or policies changed */
    bool group;   /* the policy `together` must be asked */
    bool ready;   /* readiness changed while deciding */
};

/* Work that runs beside the leader's (fillers), also of tenants of the leader's own priority
 * (equals), and what keeps equals from that: beside.c. */
struct fill {
    uint32_t items, equals; /* on the device: all fillers' items, and equals' alone */
    uint64_t equal_ns;      /* when an equal's item was last on the device */
    uint32_t teachers;      /* items on the device with item.teaches */
    uint64_t teachers_ns;   /* until then they keep equals from filling */
    int64_t paid_ns;        /* charges to equals, less what leaders got back: charge.c */
};

/* Small items: small.c. */
struct small {
    struct small_price price[SMALL_PRICE_SLOTS];
    double above_counts; /* how many plain items one above counts as */
    int64_t
        owe_ns; /* SM time that the next charge adds to small items; below 0: that it subtracts */
    uint64_t room_ns;              /* for how long small items were on the device lately */
    weir_sched_id room_for;        /* the tenant of the last one, */
    enum weir_priority room_class; /* and its class */
};

/* Pairs of tenants: pair_gain.c. */
struct pairs {
    struct pair_gain gain[PAIR_GAIN_SLOTS];
    struct {
        weir_sched_id queue;
        uint64_t at_ns;
        struct pair_gain_side *side;
    } seen; /* the last end that was added: queue, time and side */
};

/* May a lone tenant's work bypass the scheduler? alone.c. */
struct alone {
    struct weir_sched_shared shared;
    bool allowed;
    uint32_t busy;       /* tenants with items */
    struct tenant *sole; /* the only one at the last arrival, */
    uint64_t sole_since_ns;
    uint64_t quiet_from_ns; /* until then others of its class or above are expected back */
};

struct weir_sched {
    struct weir_sched_config config;
    struct weir_sched_env env;
    struct weir_sched_counts counts;
    struct table tenants, queues, items;
    uint64_t now_ns;   /* service is charged up to this time */
    uint64_t armed_ns; /* when env.timer is set to fire */
    struct {
        struct item *first[RESOURCES], *last[RESOURCES];
    } fronts; /* head items: charge.c */
    struct {
        uint64_t switch_ns; /* 0: all tenants are in one domain */
        uint32_t last;      /* MPS domain of the compute item that was granted last */
    } domains;
    struct ready ready;
    struct news news;
    struct turn turn;
    uint64_t rescue_after_ns; /* the watchdog looks again at this time */
    struct {
        uint32_t tenants; /* tenants with a min_share */
        bool stale;       /* weights must be computed again now, */
        uint64_t at_ns;   /* or at this time, if any tenant has a min_share */
    } min_shares;
    struct fill fill;
    struct small small;
    struct pairs pairs;
    struct copy_way way[RESOURCES];
    struct alone alone;
    struct tenant *limited; /* list of tenants with limits */
    uint32_t blocked;       /* tenants that are */
    uint64_t span_news;     /* weir_sched_span_news() */
    struct weir_policy policy[WEIR_POLICY_KIND_COUNT];
    uint32_t named[WEIR_POLICY_KIND_COUNT]; /* logged mistakes: bits of enum mistake */
};

enum mistake { MISTAKE_NONSENSE, MISTAKE_STARVED };

/* Was the item granted below the leader's work? */
static inline bool is_filler(const struct item *item)
{
    return item->level == WEIR_SCHED_BELOW || item->level == WEIR_SCHED_BELOW_EQUAL;
}
/* Did the item go above because its tenant goes first? */
static inline bool is_first(const struct item *item)
{
    return item->level == WEIR_SCHED_ABOVE && item->small_sms == 0;
}
static inline enum weir_sched_resource resource_of(const struct item *item)
{
    return item->params.class == WEIR_SCHED_H2D   ? WEIR_SCHED_TO_DEVICE
           : item->params.class == WEIR_SCHED_D2H ? WEIR_SCHED_FROM_DEVICE
                                                  : WEIR_SCHED_COMPUTE;
}
static inline bool is_compute(const struct item *item)
{
    return resource_of(item) == WEIR_SCHED_COMPUTE;
}
static inline bool is_stoppable(const struct item *item)
{
    return (item->params.flags & WEIR_SCHED_STOPPABLE) != 0;
}
/* Is the item's duration unknown or only supposed? */
static inline bool is_unsure(const struct item *item)
{
    return item->predicted_ns == 0 || (item->params.flags & WEIR_SCHED_UNSURE) != 0;
}
/* Could the item be so long that a wrong prediction would shift shares, if it filled? */
static inline bool is_too_unsure(const struct item *item)
{
    return is_unsure(item) && (item->predicted_ns == 0 || item->predicted_ns > tuning.brief_ns);
}
/* Must the item's duration still be learned? */
static inline bool is_to_learn(const struct item *item)
{
    return is_compute(item) && item->params.key != 0 && is_unsure(item);
}
/* Are the two items identical, so that they should take the same time? */
static inline bool is_like(const struct item *a, const struct item *b)
{
    return a->params.class == b->params.class && a->params.key == b->params.key &&
           a->params.blocks == b->params.blocks && a->params.bytes == b->params.bytes;
}
static inline bool is_at_work(const struct item *item)
{
    return item->state == WEIR_SCHED_GRANTED || item->state == WEIR_SCHED_STOPPING;
}
/* Do an SM limit, or turns on several devices, hold all compute of the queue back? */
static inline bool queue_is_held(const struct queue *queue)
{
    return queue->held || queue->tenant->span == WEIR_SCHED_SPAN_WAITS;
}
/* Can the device run both tenants' work at the same time (one domain)? */
static inline bool is_beside(const struct tenant *a, const struct tenant *b)
{
    return a->one_domain && b->one_domain && a->domain == b->domain;
}
static inline struct tenant *tenant_of(const struct weir_policy_tenant *view)
{
    return (struct tenant *)(void *)((char *)(uintptr_t)view - offsetof(struct tenant, view));
}
static inline uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}
static inline uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}
/* How long a tenant's work may wait before it is helped. */
static inline uint64_t patience_ns(const struct weir_sched *sched)
{
    return min_u64(sched->config.starve_ns, sched->config.lease_ns);
}
/* Does the place mean all SMs, with as many blocks on each as fit? */
static inline bool is_everywhere(const struct weir_sched_place *place)
{
    return place->sm_count == 0 && place->block_limit == 0;
}
/* The number of SMs that an item without a given place needs; 0: perhaps all. */
static inline uint32_t small_sms(const struct item *item)
{
    return is_everywhere(&item->place) ? item->small_sms : 0;
}
/* The item's service as time: of its copy engine, of all SMs or, if it is small or in a policy's
 * group, of its own SMs. */
static inline uint64_t served_time_ns(const struct weir_sched *sched, const struct item *item)
{
    return small_sms(item) != 0 || item->group.ns != 0 ? item->had.busy_ns
           : is_compute(item)                          ? item->had.served_ns / sched->config.sms
                                                       : item->had.served_ns;
}

/* charge.c */
/** Set the scheduler's time, and charge each tenant for the SM and copy time that it has used until
 * then. */
void time_is(struct weir_sched *sched, uint64_t now_ns);
bool is_served(struct weir_sched *sched, const struct tenant *tenant); /* does it use SMs now? */
/** How long an item took, at least and at most, that went first, ends and was never charged. Writes
 * nothing if that is not known. */
void first_bounds(const struct weir_sched *sched, const struct item *item, uint64_t *ret_least_ns,
                  uint64_t *ret_most_ns);
/** Charge a tenant more SM service or, if negative, give it credit. */
static inline void charge_more(struct tenant *tenant, int64_t more_ns)
{
    if (more_ns > 0) {
        tenant->view.service_ns[WEIR_SCHED_COMPUTE] += (uint64_t)more_ns;
    } else {
        tenant->credit_ns += (uint64_t)-more_ns;
    }
}
void front_add(struct weir_sched *sched, struct item *item);
void front_remove(struct weir_sched *sched, struct item *item);
/** Is the item an equal filler (fill.c), or was an equal filler on the device beside it? */
bool is_among_equals(const struct weir_sched *sched, const struct item *item);
/** An item that ran beside others ends: correct its charge to its known duration alone. */
void charge_by_work(struct weir_sched *sched, struct item *done);
/** An item ends: charge its claim, and find out whether earlier head items hold the device. */
void fronts_yield(struct weir_sched *sched, struct item *done);

/* limit.c */
void limit_set(struct weir_sched *sched, struct tenant *tenant, struct budget *budget,
               uint32_t pct);
void limit_drop(struct weir_sched *sched, struct tenant *tenant, const struct budget *budget);
/** Charge an item's limits the service that it had in `ns`. */
void limit_pay(struct weir_sched *sched, const struct item *item, uint64_t service_ns, uint64_t ns);
/** Most SMs that a queue's movable items may have. */
uint32_t limit_sms(const struct queue *queue);
/** Do the limits allow a queue one more item that cannot be moved? */
bool limit_has_room(const struct weir_sched *sched, const struct queue *queue);
/** Time of the whole device that the queue's limits still allow; NEVER: no limit. */
uint64_t limit_room_ns(const struct weir_sched *sched, const struct queue *queue);
/** Find out which queues their limits hold now. */
void limits_look(struct weir_sched *sched, uint64_t *wake_ns);

/* item.c */
/** Change an item from waiting to granted; it must be the candidate of its queue. */
void item_grant(struct weir_sched *sched, struct item *item);
void item_start(struct weir_sched *sched, struct item *item, const struct weir_sched_place *place,
                enum weir_sched_level level);
void item_stop(struct weir_sched *sched, struct item *item);
void item_resume(struct weir_sched *sched, struct item *item, const struct weir_sched_place *place);
void item_resize(struct weir_sched *sched, struct item *item, const struct weir_sched_place *place);
void item_stopped(struct weir_sched *sched, struct item *item); /* as was ordered */
/** An item that was ordered to stop, or has stopped, runs. */
void item_runs(struct weir_sched *sched, struct item *item, bool may_stop);
void item_drop(struct weir_sched *sched, struct item *item); /* in any state; refresh its tenant */
/** An item waits no longer, or for another cause: count its last cause. */
void causes_count(const struct weir_sched *sched, struct item *item);
void trace(struct weir_sched *sched, enum weir_sched_record_kind kind, const struct tenant *tenant,
           const struct queue *queue, const struct item *item, uint64_t value);

/* learn_durations.c */
void learn(struct weir_sched *sched, struct item *item, uint64_t took_ns);

/* ready.c: which tenants are ready */
uint64_t item_rest_ns(const struct weir_sched *sched, const struct item *item); /* 0: not known */
/** How long a block of the item keeps its SM; 0: not known. */
uint64_t item_block_ns(const struct weir_sched *sched, const struct item *item);
uint64_t queue_rest_ns(const struct weir_sched *sched, const struct queue *queue);
/** Wake up when the queue can be granted more, if its head item is at work. */
void wake_for(const struct weir_sched *sched, const struct queue *queue, uint64_t bound_ns,
              uint64_t *wake_ns);
void queue_refresh(struct weir_sched *sched, struct queue *queue);
void tenant_refresh(struct weir_sched *sched, struct tenant *tenant);
enum weir_status ready_reserve(struct weir_sched *sched);

/* policy_view.c */
void view_refresh(struct weir_sched *sched, struct tenant *tenant);

/* decide.c: every call into the core ends with decide() */
void decide(struct weir_sched *sched);

/* alone.c */
/** A tenant's item has arrived: may its next ones bypass the scheduler? */
void alone_look(struct weir_sched *sched, struct tenant *tenant);

/* causes.c */
/** After a decision: find out why items wait now, and record it in the trace if one is wanted. */
void causes_look(struct weir_sched *sched);

/* watchdog.c */
/** Give the turn to a tenant that has waited for too long. */
void watchdog_look(struct weir_sched *sched);
/** No tenant waits now: look again after the time that one may wait. */
void watchdog_rest(struct weir_sched *sched);

/* beside.c: others' work beside the leader */
void pass_beside(struct weir_sched *sched, uint64_t *wake_ns);
/** Is an item to go above if it is granted now, anywhere, because its tenant goes first? */
bool first_goes_above(struct weir_sched *sched, const struct item *item);
/** The level of an item that is granted now, anywhere, and does not fill. */
enum weir_sched_level level_now(struct weir_sched *sched, const struct item *item);
/** May this item of the filler be granted, if there is room? */
bool fills(const struct weir_sched *sched, const struct item *item);
uint64_t fill_bound_ns(const struct weir_sched *sched, const struct tenant *tenant);
/** A turn begins: there is no filler yet. Decide whether the turn is clean. */
void fill_begin(struct weir_sched *sched);
/** Must this head item end before the leader's clean turn begins? */
bool fill_drains(const struct weir_sched *sched, const struct item *front);
/** An item arrives: if its duration is to be learned, keep equals from filling for a while. */
void fill_arrival(struct weir_sched *sched, const struct item *item);

/* min_share.c */
/** Set a tenant's weight and guaranteed share. */
void min_share_set(struct weir_sched *sched, struct tenant *tenant, uint32_t weight,
                   uint32_t min_share);
/** Compute the weights that policies see again, if other tenants have work now. */
void min_share_look(struct weir_sched *sched);

/* small.c */
/** Set item->small_sms of an item that has arrived. */
void small_look(const struct weir_sched *sched, struct item *item);
/** SMs that the small head items need together. */
uint32_t small_in_use(const struct weir_sched *sched);
/** Is an item that is granted now, anywhere, to go above because it is small? */
bool small_goes_above(const struct weir_sched *sched, const struct item *item);
/** A small item's claim: while small items have all SMs, each gets a part in proportion to it. */
uint64_t small_claim(const struct weir_sched *sched, const struct item *item);
/** A small item ends: learn how many plain items one above counts as. */
void small_done(struct weir_sched *sched, const struct item *done);
/** Note that `ns` have passed. @param small  a small head item; NULL: there is none */
void room_pass(struct weir_sched *sched, const struct item *small, uint64_t ns);
/** Must kernels leave room for small items now? */
bool room_is_made(const struct weir_sched *sched);
/** Would a kernel's blocks be on the device all at once, but not on `sms` of its SMs (0: all)? Then
 * they may wait for each other, and the kernel must have all SMs. */
bool room_needs_all(const struct weir_sched *sched, const struct item *item, uint32_t sms);
/** The SMs that an item is to have if it is granted now; 0: all. */
uint32_t room_part(const struct weir_sched *sched, const struct item *item);

/* ready.c: a tenant may have a new next item */
static inline void first_note(struct weir_sched *sched, const struct tenant *tenant)
{
    sched->turn.fresh = tenant->view.member ? sched->turn.fresh : tenant->view.id;
}

/* pair_gain.c */
/** May one of the two fill below the other? */
bool pair_gain_may_fill(const struct weir_sched *sched, const struct tenant *a,
                        const struct tenant *b);
/** Record for `ns` which items were beside each other. */
void pair_gain_pass(struct weir_sched *sched, uint64_t ns);
/** An item ends, but still counts as on the device: add it to its pair's speeds. */
void pair_gain_done(struct weir_sched *sched, const struct item *done);
/* In `ns` a small item had only another tenant's small item beside it, and got this service. */
void pair_gain_two_small(struct item *item, const struct item *other, uint64_t ns,
                         uint64_t service_ns);
/* A small item ends. @return service to charge, because two together get more done than one */
uint64_t pair_gain_small_done(struct weir_sched *sched, const struct item *done);

/* group.c */
/** @param keep_ns  the turn is kept so long without work, while equals fill */
void turn_begin(struct weir_sched *sched, struct tenant *leader, uint64_t slice_ns,
                uint64_t keep_ns);
/** A tenant is removed. */
void turn_forget(struct weir_sched *sched, const struct tenant *tenant);
void group_alone(struct weir_sched *sched);
void group_of(
    struct weir_sched *sched); /* the leader, and tenants on the SMs that its limit leaves */
void group_ask(struct weir_sched *sched);
bool group_keeps(struct weir_sched *sched, const struct tenant *leader);
void group_outgrown(struct weir_sched *sched);
bool group_is_over(struct weir_sched *sched);
/** Has the turn a group whose members keep their SMs while they have no work? */
bool group_is_held(const struct weir_sched *sched);

/* group_account.c: compares the work done in groups with what turns would give */
/** Account for an item's service, if its tenant is in a policy's group. */
void group_serve(struct weir_sched *sched, struct item *item, uint64_t service_ns, uint64_t ns);
/** Charge the step of `ns` to the group's members by weight, after group_serve() for each item. */
void group_pass(struct weir_sched *sched, uint64_t ns);
/** Correct the account: `done_ns` of an item's work, as time alone, is known to be done. */
void group_correct(const struct weir_sched *sched, struct item *item, uint64_t done_ns);
/** If a member got too little work done, settle accounts and bar all members from groups. */
bool group_settle(struct weir_sched *sched);
bool group_is_barred(const struct weir_sched *sched, const struct tenant *tenant);
/** Wake up when a member may have got too little work done. */
void group_wake(const struct weir_sched *sched, uint64_t *wake_ns);

/* copy_share.c: which tenant's copy goes first in a direction */
void copy_list(struct weir_sched *sched, struct queue *queue);
void copy_unlist(struct weir_sched *sched, struct queue *queue);
/** Count one more, or one less, copy of a tenant on the device or listed in a direction. */
void copies_count(struct weir_sched *sched, struct tenant *tenant, enum weir_sched_resource way,
                  bool more);
/** Call this after a change of a tenant's class and before its queues are listed. */
void copies_change_class(struct weir_sched *sched, struct tenant *tenant);
/** Give a copy its start tag, unless it has one. */
void copy_tag(struct weir_sched *sched, struct item *item);
/** A copy is granted; it is still listed. */
void copy_share_grant(struct weir_sched *sched, struct item *copy);
/** A tagged copy ends: charge what it was served instead of its prediction. */
void copy_share_end(struct weir_sched *sched, const struct item *copy);
/** Do several tenants have copies of a direction, or had them until a moment ago? */
bool copies_are_shared(struct weir_sched *sched, enum weir_sched_resource way);
/** How long others wait for the end of a copy. */
uint64_t copy_patience_ns(const struct weir_sched *sched, const struct item *copy);
/** Predicted time of a copy with all its later pieces. */
static inline uint64_t copy_whole_ns(const struct item *copy)
{
    return copy->counted_ns + copy->copy.rest_ns;
}
/** The queue whose copy in pieces continues before `next` is granted; NULL: none. */
struct queue *copy_going_on(const struct weir_sched *sched, enum weir_sched_resource way,
                            const struct queue *next);
/** Does a queue's listed copy start at most slack_ns of its tenant's service behind a tag? */
bool copy_is_within(const struct queue *queue, uint64_t start, uint64_t slack_ns);
/**
 * Should a queue wait for the next copy of the tenant that had the direction last?
 * @return until when; NEVER: until the end of that tenant's copy on the device; 0: no
 */
uint64_t copy_expected_ns(struct weir_sched *sched, enum weir_sched_resource way,
                          const struct queue *next);

/* copies.c */
void copies_decide(struct weir_sched *sched, uint64_t *wake_ns);

/* policies_in_force.c */
/** Put a sound policy in force. */
enum weir_status policies_put(struct weir_sched *sched,
                              const struct weir_policy_ops *ops) WEIR_MUST_CHECK;
/** Remove the policy of a kind, if there is one. */
void policies_end(struct weir_sched *sched, enum weir_policy_kind kind);
void policies_join(struct weir_sched *sched, struct tenant *tenant);
void policies_leave(struct weir_sched *sched, struct tenant *tenant);
void policies_changing(struct weir_sched *sched, struct tenant *tenant);
void policies_ready(struct weir_sched *sched, struct tenant *tenant, bool ready);
void policy_blame(struct weir_sched *sched, enum weir_policy_kind kind, enum mistake mistake,
                  const char *what, const struct tenant *tenant);
