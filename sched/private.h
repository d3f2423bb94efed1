/* What the core's files share. docs/design/scheduling.md has the model; each file its part. */
#ifndef WEIR_SCHED_PRIVATE_H
#define WEIR_SCHED_PRIVATE_H

#include "sched/measure.h"
#include "sched/policy.h"
#include "sched/predict.h"
#include "sched/sched.h"
#include "sched/table.h"

#define NAME_BYTES 64
#define NEVER      UINT64_MAX
#define RESOURCES  WEIR_SCHED_RESOURCE_COUNT

#define ITEM_FLAGS                                                                                 \
    (WEIR_SCHED_STOPPABLE | WEIR_SCHED_MOVABLE | WEIR_SCHED_STARTED | WEIR_SCHED_TENSOR |          \
     WEIR_SCHED_UNSURE | WEIR_SCHED_OWN_LEVELS)

/* Bounds on what policies ask for, and the watchdog's. */
#define SLICE_MIN_NS      20000u
#define SLICE_MAX_NS      1000000000u
#define RESCUE_SLICE_NS   500000u
#define RESCUE_EVERY      10u       /* rescues take at most that part of the time */
#define WAKE_MIN_NS       10000u    /* timers are not set for less */
#define CLEAR_MAX_NS      1000000u  /* a newcomer waits no longer for what others queued .. */
#define CLEAR_DOMAIN_NS   50000000u /* .. in its own domain, and no longer than this in others */
#define SWITCH_NS         150000u   /* a GPU changes its context: 148 us on an H100 */
#define UNKNOWN_MAX       2u        /* items on the device behind one of which nothing is known */
#define UNPAIRED_SLOTS    256u
#define PAIR_GAIN_SLOTS   256u
#define SMALL_PRICE_SLOTS 1024u
#define UNSURE_PART       8u /* of a long item's predicted time: it may end so much sooner .. */
#define UNSURE_MAX_NS     1000000u /* .. or so much */
#define STOP_AGAIN_NS     1000000u /* an item that would not stop is not asked again before */
#define PREDICTED_MAX_NS  1000000000000000u /* 11 days: sums and products stay in 64 bits */

struct queue;
struct tenant;

struct item {
    weir_sched_id id;
    struct queue *queue;
    struct item *next, *prev;             /* in the queue */
    struct item *front_next, *front_prev; /* in fronts; see charge.c */
    bool is_front;
    bool waits;           /* as a front it does not hold the device, as has been seen */
    bool filler;          /* granted below the leader's work */
    bool fills_equal;     /* and the leader is of its own class */
    bool above;           /* granted before what is plain of its class: small.c */
    bool teaches;         /* while it is on the device no equal fills; fill.c */
    uint32_t alike;       /* so many, it is the first of, are seen done at once; 0: itself */
    uint32_t part_sms;    /* a kernel that is kept to so many SMs: room.c; 0: it has all */
    uint32_t small_sms;   /* it needs no more of the device; 0: it may need all; small.c */
    weir_sched_id sharer; /* of what was alone beside it while somebody filled, the tenant; or .. */
    uint64_t shared_ns;   /* .. pair_gain.c's mark for several. And how long */
    weir_sched_id small_other; /* the same of small ones, .. */
    uint64_t two_ns;           /* .. how long it was beside that one's alone, .. */
    uint64_t two_service_ns;   /* .. and what it was served meanwhile */
    bool beside_waits;         /* while it was served there was one that waited, as it seemed */
    bool beside_filler; /* one was on the device meanwhile: what it took is taken for a hint only */
    bool beside_small;  /* small work was dealt SMs while it was a front: charge.c */
    bool after_switch;  /* the device turned to its domain for it: that time is in what it took */
    bool disturbed;     /* moved, or not seen from its beginning: nothing is learned from it */
    bool tagged;        /* a copy that has its start tag: copy_share.c */
    bool interrupted;   /* has been stopped: what is learned is the time it was served */
    uint8_t cause;      /* why it waits, as last recorded: enum weir_sched_cause */
    struct weir_sched_item_params params;
    enum weir_sched_item_state state;
    struct weir_sched_place place;
    uint32_t done_blocks;
    uint64_t predicted_ns; /* 0: not known */
    uint64_t counted_ns;   /* the same, or the guess */
    uint64_t arrived_ns;
    uint64_t since_ns;   /* waits since; of a stopped one: stopped since */
    uint64_t started_ns; /* when it was granted or, later, resumed */
    uint64_t head_ns;    /* first of its queue on the device since */
    uint64_t stop_asked_ns;
    uint64_t no_stop_before_ns;
    uint64_t served_ns;     /* charged for it, as service is; corrected by done_blocks */
    uint64_t crowd_ns;      /* of that, where small work was dealt the whole device: small.c */
    uint64_t busy_ns;       /* time in which it was served */
    uint64_t alone_ns;      /* of that, without company */
    uint64_t with_small_ns; /* of that, with nothing but small work beside it */
    uint64_t beside_ns;     /* of that, what others took in between */
    int64_t beyond_ns;      /* charged for it beyond served_ns: claims, less what was credited */
    uint64_t partner_ns;    /* of that, in the company of `partner` alone */
    struct company partner;
    uint64_t group_ns;   /* time in which it was served in a policy's group, .. */
    uint64_t hoped_ns;   /* .. and what it is taken to have got done there: group_account.c */
    uint64_t copy_start; /* start tag of a copy, in virtual time */
    uint64_t rest_ns;    /* of a copy in pieces, what those behind this one will take */
};

/* A task in CuMAS's sense: copies to the device, then compute, then copies back. */
struct task {
    uint64_t ns[RESOURCES];
    uint64_t memory_bytes;
};

/* What of the SMs somebody may use; limit.c. */
struct budget {
    uint32_t sms;  /* all: no limit */
    bool held;     /* it is used up */
    int64_t left;  /* SM-nanoseconds, as of seen_ns */
    uint64_t used; /* served since then */
    uint64_t seen_ns;
};

/* What settle() has seen to of a queue: nothing is stopped, and all is where it belongs. */
struct settled {
    struct weir_sched_place place; /* of the member */
    uint32_t limit_sms;
    bool in_company; /* with other members */
    bool valid;
};

/* Items in order: those on the device (granted, stopping, stopped), then those that wait. */
struct queue {
    weir_sched_id id;
    struct tenant *tenant;
    struct queue *next, *prev; /* of the tenant */
    struct item *first, *last;
    struct item *candidate;              /* the first that waits */
    struct item *listed;                 /* the candidate, if it could be granted */
    struct queue *list_next, *list_prev; /* of a direction, if `listed` is a copy */
    uint32_t domain;                     /* of weir_sched_queue_add() */
    uint32_t on_device;
    bool heads;         /* its first item is compute and on the device */
    uint64_t device_ns; /* counted_ns of what is on the device */
    uint64_t copies_ns; /* of that, copies */
    uint32_t kernels;   /* compute on the device; so that nobody need look at all of it: */
    uint32_t stoppable; /* of them */
    uint64_t fixed_ns;  /* predicted of those that are not stoppable */
    struct settled settled;
    struct task task; /* what has been granted of the task under way */
    struct task last_task;
    struct budget limit;
    uint64_t service_ns; /* compute that was charged to it, in SM-nanoseconds */
    bool held;           /* by its limit or its tenant's: its compute waits */
};

/* A tenant's pauses between its copies of a direction. */
struct copy_gap {
    uint64_t since_ns;   /* it has had none, or had none last; NEVER: it always had some */
    uint64_t usual_ns;   /* NEVER: not known */
    uint64_t before_ns;  /* service of the direction up to the last pause */
    uint64_t stretch_ns; /* between the last two pauses */
};

struct tenant {
    struct weir_policy_tenant view; /* what policies see, and where id, weight .. are kept */
    uint32_t weight;                /* its own; view.weight is what min_share.c makes of it */
    uint32_t min_share;             /* percent; 0: none */
    bool active;     /* it has work, or had some just now; where there is a min_share */
    bool guaranteed; /* it gets its min_share, since its weight would give it less */
    uint32_t sm_limit_pct;
    bool exclusive;                             /* never in a group with others */
    struct budget limit;                        /* of all its queues together */
    uint32_t limits;                            /* its own, if it has one, and its queues' */
    struct tenant *limited_next, *limited_prev; /* if it has any */
    void *user;
    char name[NAME_BYTES];
    struct queue *queues;
    uint64_t waited_ns, finished, stops;
    uint64_t waits[WEIR_SCHED_WAITS];
    uint64_t credit_ns; /* of service on SMs: charged before, and others' */
    uint64_t due_ns;    /* the watchdog helps it until its service comes to so much .. */
    uint64_t helped_ns; /* .. and helped it last */
    uint32_t queue_count, waiting, granted, stopped; /* items */
    uint32_t heads;                                  /* queues */
    uint32_t copies[RESOURCES]; /* of each direction: items on the device, and queues listed */
    uint64_t clean_ns;          /* when it last began to lead without fillers; fill.c */
    uint64_t unsure_ns;         /* until then its durations are still to be learned */
    uint32_t domain;            /* of its queues .. */
    bool one_domain;            /* .. if all are of the same one */
    int64_t owed_ns;            /* what it got done less in groups than it would in turns, .. */
    uint64_t barred_until_ns;   /* .. and until then it is in none: group_account.c */
    bool is_ready;
    bool stale;                   /* view.kernel and its neighbours are to be made anew */
    uint64_t idle_ns;             /* when it was last ready; NEVER: not yet */
    uint64_t copy_end[RESOURCES]; /* where its tagged copies end, in virtual time */
    struct copy_gap copy_gap[RESOURCES];
};

/* What kernels took that were launched in the same way. */
struct spent {
    double ns, blocks;
    uint32_t count;
};

/* A kernel that was alone in its turns, though others were there: group.c. */
struct unpaired {
    uint64_t key;
    uint64_t until_ns; /* 0: not often enough in a row yet */
    uint32_t count;
    uint64_t company; /* of the others' kernels, as last seen .. */
    uint32_t steady;  /* .. so many times in a row */
    uint64_t other;   /* if it is one: what that is */
    struct spent as_run, as_is;
    uint64_t not_before_ns; /* runs are faster: nothing is said of it until then */
};

/* Two equals of which one filled below the other: what both got done. */
struct pair_gain {
    weir_sched_id of[2]; /* tenants, the lesser id first */
    struct pair_gain_side {
        uint64_t ns;     /* what its items took that had only the other's beside them .. */
        double alone_ns; /* .. and what those take alone */
    } side[2];
    uint64_t barred_until_ns; /* in turns they are better off */
    uint32_t bars;            /* judged so, in a row */
    double small_speed[2];    /* of small items, of the speed alone; 0: not known */
};

/* What a small item is charged among others, at each level: small.c. */
struct small_price {
    weir_sched_id tenant;
    uint64_t key;
    double plain_ns, above_ns; /* of service on SMs; 0: not known */
};

struct turn_member {
    struct tenant *tenant;
    struct weir_sched_place place;
    uint64_t key;     /* of the kernel for which the group was made */
    bool tried;       /* sample: has finished an item */
    uint64_t paid_ns; /* of service, for the time that passes */
};

/* Who has the compute resource. */
struct turn {
    struct tenant *leader;
    uint64_t slice_ns, used_ns; /* used: time in which the leader was served */
    uint64_t linger_ns;
    uint64_t linger_until_ns;        /* 0: the leader has work */
    uint64_t keep_ns, kept_until_ns; /* likewise, while others fill */
    uint64_t clear_by_ns;     /* until then its members wait for what others queued to run out */
    struct tenant *filler;    /* is granted what the device has room for beside the leader .. */
    uint64_t filler_until_ns; /* .. for so long .. */
    uint64_t nobody_until_ns; /* .. and if there is none, it is not asked again until then */
    bool clean;               /* none of its equals fills, for what is to be learned */
    bool preempt;
    bool has_equals; /* others of the leader's class, or above, are ready */
    bool rescue;     /* the watchdog's: nobody is asked before it is over */
    struct turn_member member[WEIR_POLICY_GROUP_MAX]; /* the leader is the first */
    uint32_t members;
    bool sample, spatial;
    bool beside;             /* spatial, since the leader's SM limit leaves room for the other */
    uint64_t valid_until_ns; /* 0: until the kernels change */
};

/* How a copy direction is shared: copy_share.c. */
struct copy_share {
    uint64_t now[WEIR_PRIORITY_COUNT]; /* virtual time of each class */
    uint64_t latest;                   /* the latest end of any copy */
    weir_sched_id tenant;              /* whose copy was granted last */
    weir_sched_id whole;               /* queue of the copy whose pieces are under way; 0: none */
    uint64_t whole_ns;                 /* its pieces granted since another's was chosen .. */
    uint64_t left_ns;                  /* .. and what it has left */
    uint64_t idle_since_ns;            /* nobody copies, for the sake of its next one; 0: no */
    uint64_t shared_until_ns;          /* of late several tenants had copies */
};

struct weir_sched {
    struct weir_sched_config config;
    struct weir_sched_env env;
    struct weir_sched_shared shared;
    bool allow_alone;
    struct table tenants, queues, items;
    struct weir_sched_counts counts;
    uint64_t now_ns;
    uint64_t armed_ns; /* the timer */

    struct item *front_first[RESOURCES];
    struct item *front_last[RESOURCES];
    uint64_t charged_ns; /* up to when service is charged */

    const struct weir_policy_tenant **ready; /* in the order in which they became ready */
    const struct weir_policy_tenant **order; /* of them, those that one question is about */
    uint32_t ready_count, ready_capacity;
    uint32_t order_count; /* without those that share with nobody */
    struct turn turn;
    bool arrived;     /* somebody became ready since `next` was asked */
    bool again;       /* readiness changed while deciding */
    bool changed;     /* weights, tenants, policies */
    bool group_stale; /* ask `together` */
    enum weir_policy_why group_why;
    uint64_t rescue_after_ns;

    uint32_t with_min_share; /* tenants */
    bool shares_stale;       /* what tenants weigh is to be made anew .. */
    uint64_t shares_ns;      /* .. or at this time, if one has a min_share */

    uint32_t fillers;         /* on the device, of the leader's class or another */
    uint32_t equal_fillers;   /* of them, of the leader's class .. */
    uint64_t equal_filled_ns; /* .. and when one was last there */
    uint32_t teachers;        /* items on the device that are to be learned from .. */
    uint64_t teachers_ns;     /* .. and until when they are to have no company of fillers */
    struct pair_gain pair_gain[PAIR_GAIN_SLOTS];
    struct {
        weir_sched_id queue;
        uint64_t at_ns;
        struct pair_gain_side *side;
    } seen; /* what was done last and told something of that */
    struct unpaired unpaired[UNPAIRED_SLOTS];
    int64_t filled_ns; /* what equals below paid, less what those above were paid back */
    struct small_price small_price[SMALL_PRICE_SLOTS];
    double above_counts;           /* a small item above counts as so many plain ones */
    uint64_t room_ns;              /* how long small items were there lately: room.c */
    weir_sched_id room_for;        /* whose the last of them was, .. */
    enum weir_priority room_class; /* .. and its class */
    int64_t small_owe_ns;          /* small work, of service on SMs; negative: it is owed that */
    struct queue *copy_first[RESOURCES], *copy_last[RESOURCES];
    struct queue *copy_next[RESOURCES]; /* of them, who waits for the end of another; or NULL */
    uint32_t copy_tenants[RESOURCES];   /* with copies of that direction */
    uint32_t copies_on[RESOURCES];      /* on the device */
    uint64_t copy_check_ns[RESOURCES];  /* nobody can have waited too long before */
    uint64_t copy_done_ns[RESOURCES];   /* when the last one of a direction was done */
    struct copy_share copy_share[RESOURCES];
    uint64_t memory_bytes; /* of tasks under way */

    uint32_t busy_tenants; /* with items */
    uint64_t switch_ns;    /* 0: all tenants are in one domain */
    uint32_t last_domain;  /* of the compute that was granted last */
    struct tenant *sole;   /* the only one of them, at its last arrival */
    uint64_t sole_since_ns;
    uint64_t quiet_from_ns; /* if no equals are ready for compute until then */

    struct tenant *limited; /* who has limits */

    struct weir_policy policy[WEIR_POLICY_KIND_COUNT];
    uint32_t named[WEIR_POLICY_KIND_COUNT]; /* bits of enum mistake, that have been logged */
    struct measures measures;
};

enum mistake { MISTAKE_NONSENSE, MISTAKE_STARVED };

static inline enum weir_sched_level level_of(const struct item *item)
{
    return item->fills_equal ? WEIR_SCHED_BELOW_EQUAL
           : item->filler    ? WEIR_SCHED_BELOW
           : item->above     ? WEIR_SCHED_ABOVE
                             : WEIR_SCHED_PLAIN;
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
/* Is what it takes not known, or a supposition? */
static inline bool is_unsure(const struct item *item)
{
    return item->predicted_ns == 0 || (item->params.flags & WEIR_SCHED_UNSURE) != 0;
}
#define BRIEF_NS 50000u
/* May it be so long that a wrong prediction would move shares, if it filled? */
static inline bool is_too_unsure(const struct item *item)
{
    return is_unsure(item) && (item->predicted_ns == 0 || item->predicted_ns > BRIEF_NS);
}
/* Is there something to be learned from what it takes? */
static inline bool is_to_learn(const struct item *item)
{
    return is_compute(item) && item->params.key != 0 && is_unsure(item);
}
/* Does one take what the other does? */
static inline bool is_like(const struct item *a, const struct item *b)
{
    return a->params.class == b->params.class && a->params.key == b->params.key &&
           a->params.blocks == b->params.blocks && a->params.bytes == b->params.bytes;
}
static inline bool is_at_work(const struct item *item)
{
    return item->state == WEIR_SCHED_GRANTED || item->state == WEIR_SCHED_STOPPING;
}
/* May both have work on the device at a time, and run at a time? */
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
/* All SMs, and as many blocks on each as fit. */
static inline bool is_everywhere(const struct weir_sched_place *place)
{
    return place->sm_count == 0 && place->block_limit == 0;
}
/* The part of the SMs that it needs, if no place was given to it; 0: it may need all. */
static inline uint32_t small_sms(const struct item *item)
{
    return is_everywhere(&item->place) ? item->small_sms : 0;
}
/* Service as time: of a copy engine, or of all SMs; of small work, of its own. */
static inline uint64_t served_time_ns(const struct weir_sched *sched, const struct item *item)
{
    return small_sms(item) != 0 ? item->busy_ns
           : is_compute(item)   ? item->served_ns / sched->config.sms
                                : item->served_ns;
}

/* charge.c */
void charge_until(struct weir_sched *sched, uint64_t now_ns);
bool is_served(struct weir_sched *sched, const struct tenant *tenant); /* now, on SMs */
/** A tenant pays so much service on SMs, or is paid it back. */
void charge_more(struct tenant *tenant, int64_t more_ns);
void front_add(struct weir_sched *sched, struct item *item);
void front_remove(struct weir_sched *sched, struct item *item);
/** Has an item on the device shared it with one that fills below its own class, or is it one? */
bool is_among_equals(const struct weir_sched *sched, const struct item *item);

/** Such an item is done: in the end it costs what it is known to take alone, if that is known. */
void charge_by_work(struct weir_sched *sched, const struct item *done);
/** A filler comes: what is at work has it beside it from now on. */
void fronts_disturb(struct weir_sched *sched);
/** An item is done: did those before it hold the device? */
void fronts_yield(struct weir_sched *sched, struct item *done);

/* limit.c */
void limit_set(struct weir_sched *sched, struct tenant *tenant, struct budget *budget,
               uint32_t pct);
void limit_drop(struct weir_sched *sched, struct tenant *tenant, const struct budget *budget);
/** An item was served so much, in so much time. */
void limit_pay(struct weir_sched *sched, const struct item *item, uint64_t service_ns, uint64_t ns);
/** SMs that what can be moved may have of a queue. */
uint32_t limit_sms(const struct queue *queue);
/** May a queue have more on the device of what cannot be moved? */
bool limit_has_room(const struct weir_sched *sched, const struct queue *queue);
/** Time of the whole device that it may still have; NEVER: no limit. */
uint64_t limit_room_ns(const struct weir_sched *sched, const struct queue *queue);
/** Who is held, and who not any more. */
void limits_look(struct weir_sched *sched, uint64_t *wake_ns);

/* item.c */
void time_is(struct weir_sched *sched, uint64_t now_ns);
void item_start(struct weir_sched *sched, struct item *item, const struct weir_sched_place *place);
void item_stop(struct weir_sched *sched, struct item *item);
void item_resume(struct weir_sched *sched, struct item *item, const struct weir_sched_place *place);
void item_resize(struct weir_sched *sched, struct item *item, const struct weir_sched_place *place);
void item_drop(struct weir_sched *sched, struct item *item);
void trace(struct weir_sched *sched, enum weir_sched_record_kind kind, const struct tenant *tenant,
           const struct queue *queue, const struct item *item, uint64_t value);

/* learn_durations.c */
void learn(struct weir_sched *sched, struct item *item, uint64_t took_ns);

/* ready.c: who is ready for what */
uint64_t item_rest_ns(const struct weir_sched *sched, const struct item *item); /* 0: not known */
uint64_t queue_rest_ns(const struct weir_sched *sched, const struct queue *queue);
void queue_refresh(struct weir_sched *sched, struct queue *queue);
void tenant_refresh(struct weir_sched *sched, struct tenant *tenant);
enum weir_status ready_reserve(struct weir_sched *sched);

/* policy_view.c */
void view_refresh(struct weir_sched *sched, struct tenant *tenant);

/* decide.c: what every call into the core ends with */
void decide(struct weir_sched *sched);
void turn_forget(struct weir_sched *sched, const struct tenant *tenant); /* it goes */
void turn_begin(struct weir_sched *sched, struct tenant *leader, uint64_t slice_ns,
                uint64_t keep_ns);
void wake_for(const struct weir_sched *sched, const struct queue *queue, uint64_t bound_ns,
              uint64_t *wake_ns); /* when it can be granted more, if its head is at work */

/* causes.c */
/** A decision is made: record why items wait now, where traces are wanted. */
void causes_look(struct weir_sched *sched);

/* watchdog.c */
/** Give the turn to who has waited for too long. */
void watchdog_look(struct weir_sched *sched);
/** Nobody waits now. */
void watchdog_rest(struct weir_sched *sched);

/* fill.c: what the leader leaves of the device */
void fill(struct weir_sched *sched, uint64_t *wake_ns);
/** May an item of the tenant that fills be granted, if there is room? */
bool fills(const struct weir_sched *sched, const struct item *item);
uint64_t fill_bound_ns(const struct weir_sched *sched, const struct tenant *tenant);
/** A turn begins: nobody fills yet, and perhaps no equal may. */
void fill_begin(struct weir_sched *sched);
/** Is the leader's turn a clean one, and this at the front to be done before it? */
bool fill_drains(const struct weir_sched *sched, const struct item *front);
/** An item has come: is what it takes known? */
void fill_arrival(struct weir_sched *sched, const struct item *item);
/** An item is granted. */
void fill_grant(struct weir_sched *sched, struct item *item);

/* min_share.c */

/** What a tenant weighs, and is guaranteed. */
void min_share_set(struct weir_sched *sched, struct tenant *tenant, uint32_t weight,
                   uint32_t min_share);
/** Make the weights that policies see anew, if who has work has changed. */
void min_share_look(struct weir_sched *sched);

/* small.c */
#define SMALL_PART 2u /* of the device: what needs more takes turns */
/** Set item->small_sms of an item that has arrived. */
void small_look(const struct weir_sched *sched, struct item *item);
/** Does an item that is granted now go before what is plain of its class? */
bool small_goes_above(const struct weir_sched *sched, const struct item *item);
/** What a small item has of the device, in proportion to others, where all of it is dealt to small
 * items. */
uint64_t small_claim(const struct weir_sched *sched, const struct item *item);
/** An item is done: learn what an item above counts as. */
void small_done(struct weir_sched *sched, const struct item *done);
void small_init(struct weir_sched *sched);
/** Grant small items beside the leader, up to config.small_sms. */
void small_pass(struct weir_sched *sched);

/* room.c */
/** Time passes. @param small  a front item that is small; NULL: there is none */
void room_pass(struct weir_sched *sched, const struct item *small, uint64_t ns);
/** Do kernels leave room for small items now? */
bool room_is_made(const struct weir_sched *sched);
/** The SMs that an item is to have if it is granted now; 0: all. */
uint32_t room_part(const struct weir_sched *sched, const struct item *item);

/* pair_gain.c */
/** May one of the two fill below the other? */
bool pair_gain_may_fill(const struct weir_sched *sched, const struct tenant *a,
                        const struct tenant *b);
/** Time passes with what is on the device. */
void pair_gain_pass(struct weir_sched *sched, uint64_t ns);
/** An item is done, and was not yet taken off the device. */
void pair_gain_done(struct weir_sched *sched, const struct item *done);
/* A small item was beside another tenant's only for a while, in which it was served so much. */
void pair_gain_two_small(struct item *item, const struct item *other, uint64_t ns,
                         uint64_t service_ns);
/* A small item is done. @return service that it has to pay for what two get done together */
uint64_t pair_gain_small_done(struct weir_sched *sched, const struct item *done);

/* group.c */
void group_alone(struct weir_sched *sched);
void group_of(struct weir_sched *sched); /* the leader, and who has what its SM limit leaves */
void group_spatial(struct weir_sched *sched, struct tenant *other, uint32_t sms);
void group_ask(struct weir_sched *sched, enum weir_policy_why why);
bool group_keeps(struct weir_sched *sched, const struct tenant *leader);
void group_outgrown(struct weir_sched *sched);
/** The leader's turn begins, and no policy says who shares: is it always alone? */
void group_note(struct weir_sched *sched);
/** An item is done: is it slower as it is than as a run? */
void group_learn(struct weir_sched *sched, const struct item *item);
/** Make sched->order: the leader, and whom it may have beside it; their views are made anew. */
void order_ready(struct weir_sched *sched);
bool group_is_over(struct weir_sched *sched);

/* group_account.c: what is got done in groups, against what would be in turns */
/** Is it a group of several that a policy has made? */
bool group_is_policys(const struct weir_sched *sched);
/** An item is served on the device while a policy's group has it. */
void group_serve(struct weir_sched *sched, struct item *item, uint64_t service_ns, uint64_t ns);
/** Time has passed, and what was served in it is said. */
void group_pass(struct weir_sched *sched, uint64_t ns);
/** It is known now how much of an item is done, as time alone; or of it and others behind it. */
void group_correct(struct item *item, uint64_t done_ns);
/** Has a member got too little done? Then accounts are settled, and all are barred from groups. */
bool group_settle(struct weir_sched *sched);
bool group_is_barred(const struct weir_sched *sched, const struct tenant *tenant);
/** When a member may have got too little done. */
void group_wake(const struct weir_sched *sched, uint64_t *wake_ns);

/* copy_share.c: whose copy is first in a direction */
void copy_list(struct weir_sched *sched, struct queue *queue);
void copy_unlist(struct weir_sched *sched, struct queue *queue);
/** A tenant has one copy of a direction more, or less: on the device, or listed. */
void copies_count(struct weir_sched *sched, struct tenant *tenant, enum weir_sched_resource way,
                  bool more);
/** The tenant is in another class now; its queues are not listed yet. */
void copies_change_class(struct weir_sched *sched, struct tenant *tenant);
/** Give a copy its start tag, unless it has one. */
void copy_tag(struct weir_sched *sched, struct item *item);
/** A copy goes to the device; it is still listed. */
void copy_share_grant(struct weir_sched *sched, struct item *copy);
/** A tagged copy goes: it costs what it was served. */
void copy_share_end(struct weir_sched *sched, const struct item *copy);
/** Do several tenants have copies of a direction, or had them until a moment ago? */
bool copies_are_shared(struct weir_sched *sched, enum weir_sched_resource way);
/** How long the end of a copy is waited for. */
uint64_t copy_patience_ns(const struct weir_sched *sched, const struct item *copy);
/** What a copy takes with all its pieces behind it. */
static inline uint64_t copy_whole_ns(const struct item *copy)
{
    return copy->counted_ns + copy->rest_ns;
}
/** The queue whose copy, of several pieces, goes on before `next` is granted; NULL: none. */
struct queue *copy_going_on(const struct weir_sched *sched, enum weir_sched_resource way,
                            const struct queue *next);
/** Is the listed copy of a queue no more than so much of its tenant's service behind a tag? */
bool copy_is_within(const struct queue *queue, uint64_t start, uint64_t slack_ns);
/**
 * Should a queue wait for the next copy of the tenant that had the direction last?
 * @return until when; NEVER: until the end of that tenant's copy on the device; 0: no
 */
uint64_t copy_expected_ns(struct weir_sched *sched, enum weir_sched_resource way,
                          const struct queue *next);

/* copies.c */
void copies_decide(struct weir_sched *sched, uint64_t *wake_ns);
void task_grow(struct weir_sched *sched, struct item *item);
void task_shrink(struct weir_sched *sched, struct queue *queue);

/* policies_in_force.c */
void policies_finish(struct weir_sched *sched);
enum weir_status policies_join(struct weir_sched *sched, struct tenant *tenant) WEIR_MUST_CHECK;
void policies_leave(struct weir_sched *sched, struct tenant *tenant);
void policies_changing(struct weir_sched *sched, struct tenant *tenant);
void policies_ready(struct weir_sched *sched, struct tenant *tenant, bool ready);
void policy_blame(struct weir_sched *sched, enum weir_policy_kind kind, enum mistake mistake,
                  const char *what, const struct tenant *tenant);

#endif
