/*
 * Why items wait, and for which other tenant. After each decision the cause is determined for every
 * queue whose next item waits; the time until the next change belongs to it.
 *
 * The times are summed up for each queue by cause and other tenant, in a table of fixed size. For
 * schedule traces each change is recorded, too, so a trace gives the cause of each moment of a
 * wait, and readers need not work it out. A trace has all of them; for the sums at most LOOKS_MAX
 * queues are looked at after a decision, so that a tenant with many queues delays nobody's work.
 * The others keep the cause that they had. While only one tenant has work, nothing is looked at.
 */
#include "sched/private.h"

/* With 64 tenants, eight looks take a decision from 95 to about 150 ns of CPU time, and 64 looks to
 * 450 (bench_decide, EPYC, 2026-11-29). */
#define LOOKS_MAX 8u

const struct weir_sched_cause_info weir_sched_causes[WEIR_SCHED_CAUSE_COUNT] = {
#define WEIR_SCHED_CAUSE(name, word_, text_)                                                       \
    [WEIR_SCHED_CAUSE_##name] = {.word = word_, .text = text_},
#include "sched/causes.def"
#undef WEIR_SCHED_CAUSE
};

/* Does the tenant have a head item of this resource? */
static bool is_at_front(const struct weir_sched *sched, enum weir_sched_resource resource,
                        const struct tenant *tenant)
{
    const struct item *front = sched->fronts.first[resource];

    while (front && front->queue->tenant != tenant) {
        front = front->front_next;
    }
    return front != NULL;
}

/* A cause, and the tenant that an item waits for; 0: none, or several. */
struct why {
    enum weir_sched_cause cause;
    weir_sched_id other;
};

static struct why why_for(enum weir_sched_cause cause, const struct tenant *other)
{
    return (struct why){cause, other ? other->view.id : 0};
}

/* Find the cause for a queue whose tenant has the turn; also used while no tenant has it. */
static struct why why_of_due(const struct weir_sched *sched, const struct queue *queue)
{
    const struct item *first = sched->fronts.first[WEIR_SCHED_COMPUTE], *front = first;

    if (!limit_has_room(sched, queue)) {
        return why_for(WEIR_SCHED_CAUSE_LIMIT, NULL);
    }
    if (!front) {
        return why_for(WEIR_SCHED_CAUSE_IDLE, NULL);
    }
    while (front && is_beside(front->queue->tenant, queue->tenant)) {
        front = front->front_next;
    }
    return front ? why_for(WEIR_SCHED_CAUSE_DOMAIN, front->queue->tenant)
                 : why_for(WEIR_SCHED_CAUSE_FLIGHT, first->queue->tenant);
}

static struct why why_of_compute(const struct weir_sched *sched, const struct queue *queue)
{
    const struct tenant *tenant = queue->tenant, *leader = sched->turn.leader;

    if (queue->held) {
        return why_for(WEIR_SCHED_CAUSE_LIMIT, NULL);
    }
    if (tenant->blocked) {
        return why_for(WEIR_SCHED_CAUSE_TURN, leader);
    }
    if (is_at_front(sched, WEIR_SCHED_COMPUTE, tenant)) {
        return why_for(WEIR_SCHED_CAUSE_OWN, NULL);
    }
    if (!leader || leader == tenant || tenant->view.member) {
        return why_of_due(sched, queue);
    }
    if (leader->view.priority != tenant->view.priority) {
        return why_for(leader->view.priority > tenant->view.priority ? WEIR_SCHED_CAUSE_CLASS
                                                                     : WEIR_SCHED_CAUSE_STARVED,
                       leader);
    }
    return why_for(leader->is_ready ? WEIR_SCHED_CAUSE_TURN : WEIR_SCHED_CAUSE_LINGER, leader);
}

static struct why why_of_copy(const struct weir_sched *sched, enum weir_sched_resource way,
                              const struct queue *queue)
{
    const struct item *first = sched->fronts.first[way], *front = first;

    if (is_at_front(sched, way, queue->tenant)) {
        return why_for(WEIR_SCHED_CAUSE_OWN, NULL);
    }
    if (!front) {
        return sched->way[way].idle_since_ns != 0
                   ? (struct why){WEIR_SCHED_CAUSE_LINGER, sched->way[way].tenant}
                   : why_for(WEIR_SCHED_CAUSE_IDLE, NULL);
    }
    while (front && front->queue->tenant->view.priority <= queue->tenant->view.priority) {
        front = front->front_next;
    }
    return front ? why_for(WEIR_SCHED_CAUSE_CLASS, front->queue->tenant)
                 : why_for(WEIR_SCHED_CAUSE_TURN, first->queue->tenant);
}

/* ---------------------------------------------------------------- after a decision */

/* Is each change recorded? */
static bool is_traced(const struct weir_sched *sched)
{
    return sched->env.trace && !sched->alone.allowed;
}

/* Find the cause of a queue's first item that waits: a stopped one, or the next to be granted. */
static void look(struct weir_sched *sched, const struct queue *queue)
{
    bool is_stopped = queue->first && queue->first->state == WEIR_SCHED_STOPPED;
    struct item *item = is_stopped ? queue->first : queue->candidate;

    if (!item) {
        return;
    }
    if (is_stopped && queue->candidate) { /* it waits behind the stopped one */
        causes_count(sched, queue->candidate);
        queue->candidate->why.since_ns = 0;
    }
    struct why why = !is_stopped && queue->on_device != 0 ? why_for(WEIR_SCHED_CAUSE_OWN, NULL)
                     : is_compute(item)                   ? why_of_compute(sched, queue)
                                        : why_of_copy(sched, resource_of(item), queue);
    if (why.cause != item->why.cause || why.other != item->why.other) {
        causes_count(sched, item);
        item->why.cause = (uint8_t)why.cause;
        item->why.other = why.other;
        if (is_traced(sched)) {
            trace(sched, WEIR_SCHED_REC_WAIT, NULL, NULL, item, why.cause);
        }
    }
    item->why.since_ns = item->why.since_ns != 0 ? item->why.since_ns : sched->now_ns;
}

/* Examine a tenant's queues, and count down how many more may be examined. */
static void look_at_all(struct weir_sched *sched, const struct tenant *tenant, uint32_t *left)
{
    for (const struct queue *queue = tenant->queues; queue && *left != 0; queue = queue->next) {
        look(sched, queue);
        (*left)--;
    }
}

static void look_at_copies(struct weir_sched *sched, enum weir_sched_resource way, uint32_t most)
{
    for (const struct queue *q = sched->way[way].first; q && most-- != 0; q = q->list_next) {
        look(sched, q);
    }
}

void causes_look(struct weir_sched *sched)
{
    const struct tenant *tenant;
    bool is_all = is_traced(sched);
    uint32_t most = is_all ? UINT32_MAX : LOOKS_MAX, left = most, n = sched->ready.count;
    uint32_t from = (uint32_t)sched->counts.arrivals; /* another tenant each time */

    if (!is_all && sched->alone.busy < 2 && !sched->limited) {
        return;
    }
    for (uint32_t i = 0; i < n && left != 0; i++) {
        uint32_t part = is_all ? most : 1 + LOOKS_MAX / n, unused = part;

        look_at_all(sched, tenant_of(sched->ready.list[(from + i) % n]), &unused);
        left -= (uint32_t)min_u64(left, is_all ? 1 : part - unused);
    }
    left = most;
    for (const struct tenant *t = sched->limited; t; t = t->bound.next) {
        look_at_all(sched, t, &left);
    }
    for (uint32_t i = 0; sched->blocked != 0 && (tenant = table_next(&sched->tenants, &i));) {
        uint32_t few = tenant->blocked ? most : 0;

        look_at_all(sched, tenant, &few);
    }
    for (int way = WEIR_SCHED_TO_DEVICE; way < RESOURCES; way++) {
        look_at_copies(sched, (enum weir_sched_resource)way, most);
    }
}
