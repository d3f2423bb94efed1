/* What tl_tail.c (records) and tl_tail_time.c (the time between them) share. */
#pragma once

#include "sched/sim/idmap.h"
#include "tests/lib/tl_tail.h"

#define NEVER UINT64_MAX
#define NONE  UINT32_MAX

/* As in sched/policy/fair.c. */
#define SLICE_NS       200000.0 /* the shortest */
#define FORGET_NS      200000u
#define AWAY_NS        2000000u
#define CREDIT_NS      8e6
#define DEBT_MAX_NS    20e6
#define LINGER_NS      50000u
#define LINGER_PART    16     /* or that part of an item, .. */
#define LINGER_LONG_NS 500000 /* .. and no longer */

#define CLEAN_NS 200000000u /* as in sched/beside.c: then a turn is one without fillers */

/* As in sched/copies.c and copy_share.c: how much a tenant has of a long copy at a time, and how
 * far it may be ahead; how long the next copy of one that is behind is waited for. */
#define COPY_SLICE_NS  6.25e6
#define COPY_AHEAD_NS  1e6
#define COPY_ORDER_NS  10e6
#define COPY_LINGER_NS 1000000u

#define LONGEST_NS 1000000000000u /* of a slice or item that bounds are made of */

/* An end is late beyond a quarter more than predicted, and what a host needs to see it. */
#define LATE_SLACK_NS 100000u
#define SWITCH_NS     150000u /* as in sched/core.c: where a device changes between contexts */

#define CLASSES   ((unsigned)WEIR_PRIORITY_HIGH + 1)
#define RESOURCES WEIR_SCHED_RESOURCE_COUNT

struct item {
    uint32_t queue, prev, next; /* in its queue; next: of those that are free, too */
    uint8_t class, resource;
    bool on, is_stopped, is_filler, is_sure;
    bool by_work, by_small;        /* served beside fillers, beside small work */
    uint32_t small_sms, place_sms; /* 0: not known, all */
    uint64_t predicted_ns;
    uint64_t arrived_ns;
    uint64_t since_ns; /* it waits since then */
    uint64_t front_ns; /* it is its queue's front since then */
    double rate;       /* the part of the resource that it has now .. */
    double served_ns;  /* .. and what that came to */
    weir_sched_id id;
    uint64_t waited_ns;
    uint64_t cause_ns[TL_TAIL_COUNT];
};

struct queue {
    uint32_t tenant, domain;
    weir_sched_id id;
    bool has_limit;
    uint32_t first, last;
    uint32_t next; /* the first that was never granted */
    uint32_t n_on;
    uint32_t n_unsure; /* of them */
    uint64_t on_ns;    /* predicted, of those that are sure */
    uint64_t granted_ns;
    uint32_t front_at, waits_at; /* where it stands in the two lists; NONE */
    bool is_shared;              /* other fronts of the resource were there with its front */
    bool was_stopped;
};

struct tenant {
    uint32_t weight;
    unsigned class;
    bool has_limit;
    uint32_t active[RESOURCES]; /* queues whose first item is of the resource */
    uint32_t fronts[RESOURCES];
    uint32_t below;                 /* of compute, that are fillers */
    uint64_t granted_ns[RESOURCES]; /* predicted, of its items on the device */
    double virtual_ns[RESOURCES];
    double rate[RESOURCES];       /* served now, as a part of the resource */
    double longest_ns[RESOURCES]; /* item */
    uint64_t idle_ns[RESOURCES];  /* without work since then, if it is and has had some */
    bool had_work[RESOURCES];
    uint64_t due_ns[RESOURCES]; /* its turn has come; NEVER: it has not */
    double slice_ns;            /* the longest */
    uint64_t clean_ns;          /* its last turn without fillers began */
};

/* A class on a resource, between two records. */
struct round {
    double weights, sum_ns, rate;
    double turn_ns; /* the longest turn of any of them: a slice and an item */
    uint32_t fronts, unsure;
    uint64_t granted_ns; /* the last grant of what is on the device */
    uint64_t over_ns;    /* when all of it should have ended; NEVER: not known */
    uint32_t domain;     /* of all; NONE: they differ */
};

struct list {
    uint32_t *at; /* queues */
    uint32_t n, cap;
};

struct reading {
    struct tl_tail *tail;
    const struct reading *first; /* the pass before this one; NULL: this is the first */
    struct weir_sched_trace_header header;
    struct weir_sim_idmap tenant_ids, queue_ids, item_ids;
    struct item *items;
    uint32_t n_items, cap_items, free_items;
    struct queue *queues;
    uint32_t n_queues, cap_queues;
    struct tenant *tenants; /* as long as tail->tenants */
    uint32_t cap_tenants;
    struct list fronts[RESOURCES], waits;
    struct round rounds[RESOURCES][CLASSES];
    uint32_t leader; /* NONE: nobody */
    uint64_t leader_ns;
    bool is_clean;                 /* its turn is one without fillers, to learn from */
    uint64_t turn_ns, turn_end_ns; /* of its turn: a slice, and as much again for who is beside */
    uint64_t begin_ns, at_ns;
    uint64_t idle_ns[RESOURCES]; /* nothing is on it since then */
    uint8_t event;               /* the kind of what the scheduler was told last .. */
    uint64_t event_ns;           /* .. and when */
    bool has_begun, has_domains, keeps_no_shares, has_order, is_short;
    uint32_t cap_worst;
};

static inline double min_of(double a, double b)
{
    return a < b ? a : b;
}

static inline double mean_of(const struct round *round)
{
    return round->weights > 0 ? round->sum_ns / round->weights : 0;
}

/* The item that waits: a stopped one, or the next to be granted. NONE: none. */
static inline uint32_t head_of(const struct reading *r, const struct queue *queue)
{
    return queue->first != NONE && r->items[queue->first].is_stopped ? queue->first : queue->next;
}

/** Nothing happens until then: every wait and virtual time grows. */
void tl_tail_pass(struct reading *r, uint64_t to_ns);
