/*
 * Why items wait, for schedule traces. After each decision the cause is determined for every queue
 * whose next item waits, and recorded when it has changed. So a trace gives the cause of each
 * moment of a wait, and readers need not work it out.
 *
 * This happens only while no work may bypass the scheduler, as in a host that records. A host that
 * does not record pays nothing for it.
 */
#include "sched/private.h"

const struct weir_sched_cause_info weir_sched_causes[WEIR_SCHED_CAUSE_COUNT] = {
#define WEIR_SCHED_CAUSE(name, word_, explained, text_)                                            \
    [WEIR_SCHED_CAUSE_##name] = {.word = word_, .text = text_, .is_explained = explained},
#include "sched/causes.def"
#undef WEIR_SCHED_CAUSE
};

/* Has the tenant a head item of this resource? */
static bool is_at_front(const struct weir_sched *sched, enum weir_sched_resource resource,
                        const struct tenant *tenant)
{
    const struct item *front = sched->front_first[resource];

    while (front && front->queue->tenant != tenant) {
        front = front->front_next;
    }
    return front != NULL;
}

/* The cause for a queue whose tenant has the turn, or while nobody has it. */
static enum weir_sched_cause cause_of_due(const struct weir_sched *sched, const struct queue *queue)
{
    const struct item *front = sched->front_first[WEIR_SCHED_COMPUTE];

    if (!limit_has_room(sched, queue)) {
        return WEIR_SCHED_CAUSE_LIMIT;
    }
    if (!front) {
        return WEIR_SCHED_CAUSE_IDLE;
    }
    while (front && is_beside(front->queue->tenant, queue->tenant)) {
        front = front->front_next;
    }
    return front ? WEIR_SCHED_CAUSE_DOMAIN : WEIR_SCHED_CAUSE_FLIGHT;
}

static enum weir_sched_cause cause_of_compute(const struct weir_sched *sched,
                                              const struct queue *queue)
{
    const struct tenant *tenant = queue->tenant, *leader = sched->turn.leader;

    if (queue->held) {
        return WEIR_SCHED_CAUSE_LIMIT;
    }
    if (is_at_front(sched, WEIR_SCHED_COMPUTE, tenant)) {
        return WEIR_SCHED_CAUSE_OWN;
    }
    if (!leader || leader == tenant || tenant->view.member) {
        return cause_of_due(sched, queue);
    }
    if (leader->view.priority != tenant->view.priority) {
        return leader->view.priority > tenant->view.priority ? WEIR_SCHED_CAUSE_CLASS
                                                             : WEIR_SCHED_CAUSE_STARVED;
    }
    return leader->is_ready ? WEIR_SCHED_CAUSE_TURN : WEIR_SCHED_CAUSE_LINGER;
}

static enum weir_sched_cause cause_of_copy(const struct weir_sched *sched,
                                           enum weir_sched_resource way, const struct queue *queue)
{
    const struct item *front = sched->front_first[way];

    if (is_at_front(sched, way, queue->tenant)) {
        return WEIR_SCHED_CAUSE_OWN;
    }
    if (!front) {
        return sched->copy_share[way].idle_since_ns != 0 ? WEIR_SCHED_CAUSE_LINGER
                                                         : WEIR_SCHED_CAUSE_IDLE;
    }
    while (front && front->queue->tenant->view.priority <= queue->tenant->view.priority) {
        front = front->front_next;
    }
    return front ? WEIR_SCHED_CAUSE_CLASS : WEIR_SCHED_CAUSE_TURN;
}

/* Record the cause of a queue's first item that waits: a stopped one, or the next to be granted. */
static void look(struct weir_sched *sched, const struct queue *queue)
{
    bool is_stopped = queue->first && queue->first->state == WEIR_SCHED_STOPPED;
    struct item *item = is_stopped ? queue->first : queue->candidate;
    enum weir_sched_cause cause;

    if (!item) {
        return;
    }
    cause = !is_stopped && queue->on_device != 0 ? WEIR_SCHED_CAUSE_OWN
            : is_compute(item)                   ? cause_of_compute(sched, queue)
                                                 : cause_of_copy(sched, resource_of(item), queue);
    if (cause != item->cause) {
        item->cause = (uint8_t)cause;
        trace(sched, WEIR_SCHED_REC_WAIT, NULL, NULL, item, cause);
    }
}

static void look_at_all(struct weir_sched *sched, const struct tenant *tenant)
{
    for (const struct queue *queue = tenant->queues; queue; queue = queue->next) {
        look(sched, queue);
    }
}

void causes_look(struct weir_sched *sched)
{
    if (!sched->env.trace || sched->allow_alone) {
        return;
    }
    for (uint32_t i = 0; i < sched->ready_count; i++) {
        look_at_all(sched, tenant_of(sched->ready[i]));
    }
    for (const struct tenant *t = sched->limited; t; t = t->limited_next) {
        look_at_all(sched, t);
    }
    for (int way = WEIR_SCHED_TO_DEVICE; way < RESOURCES; way++) {
        for (const struct queue *q = sched->copy_first[way]; q; q = q->list_next) {
            look(sched, q);
        }
    }
}
