/*
 * For each pair (i, j) a sum D: it grows by what j is served while i wants more, and shrinks by
 * what i is served. The most that it has grown since any earlier moment is the worst interval that
 * ends now; so the least value so far is kept. D need be looked at only where it grows.
 *
 * Who wants more follows from the first item of each queue that has not ended, as what is behind it
 * could not be served anyway. Of a copy direction, a tenant wants more whenever such an item is a
 * copy that way; of compute, when such an item waits and none is on the device. For a tenant that
 * has a small graph on the device is served as fast as it can be, however little of its share that
 * is, and nobody wrongs it.
 *
 * An interval ends when i has had nothing of the resource for longer than AWAY_NS (of copies: at
 * all), for then its place is found anew (policy/fair.c, copy_share.c).
 */
#include "tests/lib/tl_fairness.h"

#include "sched/sim/idmap.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define AWAY_NS      200000u /* FORGET_NS of policy/fair.c */
#define AWAY_COPY_NS 0u
#define NEVER        UINT64_MAX

/* A queue's items that have not ended, in order. */
struct queue {
    uint32_t tenant;
    uint32_t n, cap, started;
    bool is_stopped; /* the first */
    uint8_t *classes;
};

struct tenant {
    double weight;
    double longest_ns;
    uint64_t service;     /* as the scheduler counts it */
    double served_ns;     /* of the resource, divided by the weight */
    double step_ns;       /* the same, in this step */
    uint32_t waiting, on; /* queues whose first item is of the resource, and waits or is on it */
    bool wants;
    uint64_t idle_since_ns; /* NEVER: it has work */
};

struct pair {
    double sum_ns; /* what j was served while i wanted more */
    double least_ns;
    uint64_t least_at_ns;
    bool is_open; /* least_ns is of the present interval */
};

struct tl_fairness {
    enum weir_sched_resource resource;
    uint32_t sms;
    struct tenant *tenants;
    uint32_t n;
    struct queue *queues;
    uint32_t n_queues; /* that were added */
    struct weir_sim_idmap ids;
    bool is_short;      /* of memory */
    struct pair *pairs; /* [i * n + j] */
    const struct weir_sim_load *load;
    uint64_t at_ns;
    struct tl_unfair worst;
};

enum weir_status tl_fairness_create(const struct weir_sim_load *load,
                                    enum weir_sched_resource resource, uint32_t sms,
                                    const double *longest_ns, struct tl_fairness **ret_f)
{
    struct tl_fairness *f = calloc(1, sizeof *f);
    uint32_t n = load->n_tenants;
    if (!f) {
        return WEIR_ERR_NO_MEMORY;
    }
    *f = (struct tl_fairness){.resource = resource, .sms = sms, .n = n, .load = load};
    f->tenants = calloc(n + 1u, sizeof *f->tenants);
    f->pairs = calloc((size_t)n * n + 1u, sizeof *f->pairs);
    f->queues = calloc(load->n_queues + 1u, sizeof *f->queues);
    if (!f->tenants || !f->pairs || !f->queues) {
        tl_fairness_destroy(f);
        return WEIR_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < n; i++) {
        f->tenants[i] = (struct tenant){.weight = load->tenants[i].params.weight,
                                        .longest_ns = longest_ns[i],
                                        .idle_since_ns = 0};
    }
    *ret_f = f;
    return WEIR_OK;
}

void tl_fairness_destroy(struct tl_fairness *f)
{
    if (f) {
        for (uint32_t i = 0; f->queues && i < f->load->n_queues; i++) {
            free(f->queues[i].classes);
        }
        weir_sim_idmap_finish(&f->ids);
        free(f->queues);
        free(f->tenants);
        free(f->pairs);
    }
    free(f);
}

static enum weir_sched_resource resource_of(uint8_t class)
{
    return class == WEIR_SCHED_H2D   ? WEIR_SCHED_TO_DEVICE
           : class == WEIR_SCHED_D2H ? WEIR_SCHED_FROM_DEVICE
                                     : WEIR_SCHED_COMPUTE;
}

/* What the first item of a queue counts for its tenant, or no more. */
static void count(struct tl_fairness *f, const struct queue *queue, uint32_t one)
{
    struct tenant *tenant = &f->tenants[queue->tenant];
    if (queue->n == 0 || resource_of(queue->classes[0]) != f->resource) {
        return;
    }
    if (queue->started == 0 || queue->is_stopped) {
        tenant->waiting += one;
    } else {
        tenant->on += one;
    }
}

static void push(struct tl_fairness *f, struct queue *queue, uint8_t class)
{
    if (queue->n == queue->cap) {
        uint32_t cap = queue->cap ? 2 * queue->cap : 16;
        uint8_t *classes = realloc(queue->classes, cap);
        if (!classes) {
            f->is_short = true;
            return;
        }
        queue->classes = classes;
        queue->cap = cap;
    }
    queue->classes[queue->n++] = class;
}

static void pop(struct queue *queue)
{
    if (queue->n != 0) {
        memmove(queue->classes, queue->classes + 1, --queue->n);
        queue->started -= queue->started != 0;
        queue->is_stopped = false;
    }
}

/* Queues are added in the order of the load. */
static void add_queue(struct tl_fairness *f, weir_sched_id id)
{
    uint32_t index = f->n_queues++;
    if (index < f->load->n_queues) {
        f->queues[index].tenant = f->load->queues[index].tenant;
        f->is_short |= !weir_sim_idmap_set(&f->ids, id, index);
    }
}

void tl_fairness_record(struct tl_fairness *f, const struct weir_sched_record *record)
{
    struct queue *queue;
    uint64_t index;
    if (record->kind == WEIR_SCHED_REC_QUEUE_ADD) {
        add_queue(f, record->queue);
    }
    if (!record->item || !weir_sim_idmap_get(&f->ids, record->queue, &index)) {
        return;
    }
    queue = &f->queues[index];
    count(f, queue, -1u);
    switch (record->kind) {
    case WEIR_SCHED_REC_ARRIVE:
        push(f, queue, record->class);
        break;
    case WEIR_SCHED_REC_START:
        queue->started++;
        break;
    case WEIR_SCHED_REC_STOPPED:
    case WEIR_SCHED_REC_RESUME:
        queue->is_stopped = record->kind == WEIR_SCHED_REC_STOPPED;
        break;
    case WEIR_SCHED_REC_FINISH:
        pop(queue);
        break;
    default:
        break;
    }
    count(f, queue, 1);
}

static void look_at_pair(struct tl_fairness *f, uint32_t i, uint32_t j, uint64_t now_ns)
{
    const struct tenant *behind = &f->tenants[i];
    const struct tenant *ahead = &f->tenants[j];
    struct pair *pair = &f->pairs[(size_t)i * f->n + j];
    double before_ns = pair->sum_ns - (behind->served_ns - behind->step_ns);
    double bound_ns = behind->longest_ns / behind->weight + ahead->longest_ns / ahead->weight;
    if (!pair->is_open || before_ns < pair->least_ns) {
        pair->is_open = true;
        pair->least_ns = before_ns;
        pair->least_at_ns = f->at_ns;
    }
    pair->sum_ns += ahead->step_ns;
    double risen_ns = pair->sum_ns - behind->served_ns - pair->least_ns;
    if (risen_ns > f->worst.ratio * bound_ns) {
        f->worst =
            (struct tl_unfair){risen_ns / bound_ns, risen_ns, j, i, pair->least_at_ns, now_ns};
    }
}

/* What was charged since the last call; its place is found anew if it was away. */
static void step_tenant(struct tl_fairness *f, struct tenant *tenant,
                        const struct weir_sched *sched, weir_sched_id id)
{
    struct weir_sched_tenant_info info;
    double unit = (f->resource == WEIR_SCHED_COMPUTE ? f->sms : 1) * tenant->weight;
    if (weir_sched_tenant_query(sched, id, &info) != WEIR_OK) {
        return;
    }
    tenant->step_ns = (double)(info.service_ns[f->resource] - tenant->service) / unit;
    tenant->served_ns += tenant->step_ns;
    tenant->service = info.service_ns[f->resource];
}

static void note_state(struct tl_fairness *f, uint32_t i, uint64_t now_ns)
{
    struct tenant *tenant = &f->tenants[i];
    bool is_copy = f->resource != WEIR_SCHED_COMPUTE;
    bool has_work = tenant->waiting + tenant->on != 0;
    uint64_t away_ns = is_copy ? 0 : AWAY_NS;
    if (has_work && tenant->idle_since_ns != NEVER && now_ns - tenant->idle_since_ns >= away_ns) {
        for (uint32_t j = 0; j < f->n; j++) {
            f->pairs[(size_t)i * f->n + j].is_open = false;
        }
    }
    if (has_work) {
        tenant->idle_since_ns = NEVER;
    } else if (tenant->idle_since_ns == NEVER) {
        tenant->idle_since_ns = now_ns;
    }
    tenant->wants = is_copy ? has_work : tenant->waiting != 0 && tenant->on == 0;
}

void tl_fairness_called(struct tl_fairness *f, uint64_t now_ns, const struct weir_sched *sched,
                        const weir_sched_id *tenants)
{
    for (uint32_t i = 0; i < f->n; i++) {
        step_tenant(f, &f->tenants[i], sched, tenants[i]);
    }
    for (uint32_t i = 0; i < f->n; i++) {
        for (uint32_t j = 0; f->tenants[i].wants && j < f->n; j++) {
            if (j != i && f->tenants[j].step_ns > 0 &&
                f->load->tenants[i].params.priority == f->load->tenants[j].params.priority) {
                look_at_pair(f, i, j, now_ns);
            }
        }
    }
    for (uint32_t i = 0; i < f->n; i++) {
        note_state(f, i, now_ns);
    }
    f->at_ns = now_ns;
}

struct tl_unfair tl_fairness_worst(const struct tl_fairness *f)
{
    struct tl_unfair worst = f->worst;
    worst.ratio = f->is_short ? HUGE_VAL : worst.ratio;
    return worst;
}
