/* What the core's files share. docs/design/scheduling.md has the model; each file its part. */
#ifndef WEIR_SCHED_PRIVATE_H
#define WEIR_SCHED_PRIVATE_H

#include "sched/policy.h"
#include "sched/predict.h"
#include "sched/sched.h"
#include "sched/table.h"

#define NAME_BYTES 64
#define NEVER      UINT64_MAX

struct queue;
struct tenant;

struct item {
    weir_sched_id id;
    struct queue *queue;
    struct item *next, *prev;             /* in the queue */
    struct item *front_next, *front_prev; /* in fronts[resource]; see charge.c */
    bool is_front;
    struct weir_sched_item_params params;
    enum weir_sched_item_state state;
    struct weir_sched_place place;
    uint32_t done_blocks;
    uint64_t predicted_ns;
    uint64_t arrived_ns;
    uint64_t started_ns; /* when it was granted or, later, resumed */
    uint64_t front_ns;   /* when it became first of its queue on the device */
    uint64_t stop_asked_ns;
    uint64_t stopped_ns;
    uint64_t served_ns; /* charged for it, as service is */
};

/* Items in order: those on the device (granted, stopping, stopped), then those that wait. */
struct queue {
    weir_sched_id id;
    struct tenant *tenant;
    struct queue *next, *prev; /* of the tenant */
    struct item *first, *last;
    struct item *candidate; /* the first that waits */
    uint32_t on_device;
};

struct tenant {
    struct weir_policy_tenant view; /* what policies see, and where id, weight .. are kept */
    uint32_t sm_limit_pct;
    void *user;
    char name[NAME_BYTES];
    struct queue *queues;
    uint64_t waited_ns, finished, stops;
    uint32_t queue_count, waiting, granted, stopped; /* items */
};

struct weir_sched {
    struct weir_sched_config config;
    struct weir_sched_env env;
    struct weir_sched_shared shared;
    struct table tenants, queues, items;
    struct weir_policy policy[WEIR_POLICY_KIND_COUNT];
    bool allow_alone;
    struct weir_sched_counts counts;
    uint64_t now_ns;
    struct item *front_first[WEIR_SCHED_RESOURCE_COUNT];
    struct item *front_last[WEIR_SCHED_RESOURCE_COUNT];
    uint64_t charged_ns; /* up to when service is charged */
};

static inline enum weir_sched_resource resource_of(enum weir_sched_class class)
{
    return class == WEIR_SCHED_H2D   ? WEIR_SCHED_TO_DEVICE
           : class == WEIR_SCHED_D2H ? WEIR_SCHED_FROM_DEVICE
                                     : WEIR_SCHED_COMPUTE;
}

#define ITEM_FLAGS                                                                                 \
    (WEIR_SCHED_STOPPABLE | WEIR_SCHED_MOVABLE | WEIR_SCHED_STARTED | WEIR_SCHED_TENSOR)

/* charge.c */
void charge_until(struct weir_sched *sched, uint64_t now_ns);
void front_add(struct weir_sched *sched, struct item *item);
void front_remove(struct weir_sched *sched, struct item *item);

/* item.c */
void time_is(struct weir_sched *sched, uint64_t now_ns);
void item_start(struct weir_sched *sched, struct item *item, const struct weir_sched_place *place);
void item_drop(struct weir_sched *sched, struct item *item);
void trace(struct weir_sched *sched, enum weir_sched_record_kind kind, const struct tenant *tenant,
           const struct queue *queue, const struct item *item, uint64_t value);

/* decide.c */
uint64_t item_rest_ns(const struct weir_sched *sched, const struct item *item); /* 0: not known */
void decide(struct weir_sched *sched); /* what every call into the core ends with */

#endif
