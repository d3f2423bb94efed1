/*
 * The time between two records of a trace: who was served, how far each tenant is behind, and why
 * each queue's next item waits.
 */
#include "tests/lib/tl_tail_private.h"

#include <string.h>

/* Has somebody of the leader's class work, none of which is on the device? */
static bool keeps_waiting(const struct reading *r)
{
    for (uint32_t i = 0; i < r->tail->n_tenants && r->leader != NONE; i++) {
        const struct tenant *t = &r->tenants[i];
        if (t->class >= r->tenants[r->leader].class && t->active[WEIR_SCHED_COMPUTE] &&
            !t->fronts[WEIR_SCHED_COMPUTE]) {
            return true;
        }
    }
    return false;
}

/* The part of all SMs that small work together needs, or 0; and the part that it pays for. */
static double small_part(const struct reading *r, double *ret_paid)
{
    const struct list *fronts = &r->fronts[WEIR_SCHED_COMPUTE];
    double part = 0;
    bool only = true, is_shared = false;
    for (uint32_t i = 0; i < fronts->n; i++) {
        const struct queue *queue = &r->queues[fronts->at[i]];
        part += r->items[queue->first].small_sms / (double)r->header.sms;
        only &= r->items[queue->first].small_sms != 0;
        is_shared |= queue->tenant != r->queues[fronts->at[0]].tenant;
    }
    *ret_paid = part > 1 || (part > 0 && only && (is_shared || keeps_waiting(r))) ? 1 : part;
    return part;
}

/* SMs as the scheduler deals them out: to small work first, then by class; fillers are last. */
static void serve_compute(const struct reading *r)
{
    const struct list *fronts = &r->fronts[WEIR_SCHED_COMPUTE];
    double paid, small = small_part(r, &paid), left = 1 - paid;
    bool fills = false;
    for (unsigned step = 0; step < 2 * CLASSES; step++) {
        for (uint32_t i = 0; i < fronts->n; i++) {
            const struct queue *queue = &r->queues[fronts->at[i]];
            struct item *front = &r->items[queue->first];
            double part = (front->small_sms   ? front->small_sms
                           : front->place_sms ? front->place_sms
                                              : r->header.sms) /
                          (double)r->header.sms;
            fills |= front->is_filler;
            front->by_small |= small > 0;
            if (front->is_filler != (step >= CLASSES) ||
                r->tenants[queue->tenant].class != CLASSES - 1 - step % CLASSES) {
                continue;
            }
            front->rate = front->small_sms ? part * paid / small : min_of(part, left);
            left -= front->small_sms ? 0 : front->rate;
        }
    }
    for (uint32_t i = 0; fills && i < fronts->n; i++) {
        r->items[r->queues[fronts->at[i]].first].by_work = true;
    }
}

static void serve(struct reading *r, double ns)
{
    serve_compute(r);
    for (unsigned resource = 0; resource < RESOURCES; resource++) {
        const struct list *fronts = &r->fronts[resource];
        for (uint32_t i = 0; i < fronts->n; i++) {
            const struct queue *queue = &r->queues[fronts->at[i]];
            struct item *front = &r->items[queue->first];
            front->rate = resource == WEIR_SCHED_COMPUTE ? front->rate : 1.0 / fronts->n;
            front->served_ns += front->rate * ns;
            r->tenants[queue->tenant].rate[resource] += front->rate;
        }
    }
}

/* When all of a queue's work on the device should have ended. */
static uint64_t over_ns(const struct reading *r, const struct queue *queue)
{
    const struct item *first = &r->items[queue->first];
    return queue->is_shared || queue->was_stopped || queue->n_unsure
               ? NEVER
               : first->front_ns + queue->on_ns / 4 * 5 + r->header.launch_ns + LATE_SLACK_NS +
                     (r->has_domains ? SWITCH_NS : 0);
}

static void look_at_fronts(struct reading *r, unsigned resource)
{
    for (uint32_t i = 0; i < r->fronts[resource].n; i++) {
        const struct queue *queue = &r->queues[r->fronts[resource].at[i]];
        struct round *round = &r->rounds[resource][r->tenants[queue->tenant].class];
        uint64_t over = over_ns(r, queue);
        round->domain = round->fronts && round->domain != queue->domain ? NONE : queue->domain;
        round->over_ns = round->fronts && round->over_ns > over ? round->over_ns : over;
        round->fronts++;
        round->unsure += queue->n_unsure != 0;
        round->granted_ns =
            queue->granted_ns > round->granted_ns ? queue->granted_ns : round->granted_ns;
    }
}

/* The longest that a tenant is served at a time. */
static double turn_ns(const struct reading *r, const struct tenant *t, unsigned resource)
{
    return t->longest_ns[resource] +
           (resource != WEIR_SCHED_COMPUTE
                ? COPY_SLICE_NS + (r->has_order ? COPY_ORDER_NS : COPY_AHEAD_NS)
            : t->slice_ns > SLICE_NS ? t->slice_ns
                                     : SLICE_NS);
}

static void look(struct reading *r)
{
    memset(r->rounds, 0, sizeof r->rounds);
    for (uint32_t i = 0; i < r->tail->n_tenants; i++) {
        struct tenant *t = &r->tenants[i];
        for (unsigned resource = 0; resource < RESOURCES; resource++) {
            struct round *round = &r->rounds[resource][t->class];
            if (t->active[resource]) {
                round->weights += t->weight;
                round->sum_ns += t->virtual_ns[resource] * t->weight;
                round->rate += t->rate[resource];
                double turn = turn_ns(r, t, resource);
                round->turn_ns = turn > round->turn_ns ? turn : round->turn_ns;
            }
        }
    }
    for (unsigned resource = 0; resource < RESOURCES; resource++) {
        look_at_fronts(r, resource);
    }
}

/* How far a tenant may be behind before its turn has come: its own longest turn, and what it falls
 * behind in the longest of others. */
static double allowed_ns(const struct reading *r, const struct tenant *t, unsigned resource)
{
    const struct round *round = &r->rounds[resource][t->class];
    return turn_ns(r, t, resource) + (double)r->header.inflight_ns +
           round->turn_ns * t->weight / round->weights;
}

/* When its turn has come, or will have if all goes on as it does. */
static uint64_t due_ns(const struct reading *r, uint32_t tenant, unsigned resource)
{
    const struct tenant *t = &r->tenants[tenant];
    const struct round *round = &r->rounds[resource][t->class];
    double lag_ns = (mean_of(round) - t->virtual_ns[resource]) * t->weight;
    double rate = round->rate * t->weight / round->weights; /* at which it falls behind */
    /* `fair` counts what is granted as served. */
    double left_ns = allowed_ns(r, t, resource) + (double)t->granted_ns[resource] - lag_ns;
    if (t->due_ns[resource] != NEVER) {
        return t->due_ns[resource];
    }
    if (resource == WEIR_SCHED_COMPUTE && r->leader == tenant) {
        return r->leader_ns;
    }
    return left_ns <= 0                                     ? r->at_ns
           : rate > 0 && left_ns / rate < (double)INT64_MAX ? r->at_ns + (uint64_t)(left_ns / rate)
                                                            : NEVER;
}

/* Until when a device without work is kept for somebody. */
static uint64_t linger_end_ns(const struct reading *r, unsigned resource)
{
    double linger_ns;
    if (resource != WEIR_SCHED_COMPUTE) {
        return r->idle_ns[resource] + COPY_LINGER_NS;
    }
    if (r->leader == NONE || r->tenants[r->leader].active[resource] ||
        !r->tenants[r->leader].had_work[resource]) {
        return 0;
    }
    linger_ns = r->tenants[r->leader].longest_ns[resource] / LINGER_PART;
    linger_ns = min_of(linger_ns, LINGER_LONG_NS);
    return r->tenants[r->leader].idle_ns[resource] +
           (linger_ns > LINGER_NS ? (uint64_t)linger_ns : LINGER_NS);
}

/* What may still go on when its turn has come: the turn that was under way, and what was granted
 * before that. */
static enum tl_tail_cause cause_when_due(const struct reading *r, const struct queue *queue,
                                         const struct item *item, uint64_t at_ns, uint64_t due,
                                         uint64_t *until_ns)
{
    unsigned class = r->tenants[queue->tenant].class;
    const struct round *round = &r->rounds[item->resource][class];
    if (item->resource == WEIR_SCHED_COMPUTE && r->tenants[queue->tenant].below) {
        bool leads = r->leader == queue->tenant && at_ns < r->turn_end_ns;
        *until_ns = leads && r->turn_end_ns < *until_ns ? r->turn_end_ns : *until_ns;
        return leads ? TL_TAIL_FLIGHT : TL_TAIL_BELOW;
    }
    if (round->granted_ns <= due) {
        return round->domain == queue->domain ? TL_TAIL_FLIGHT : TL_TAIL_DOMAIN;
    }
    if (item->resource == WEIR_SCHED_COMPUTE && r->turn_ns <= due && at_ns < r->turn_end_ns) {
        *until_ns = r->turn_end_ns < *until_ns ? r->turn_end_ns : *until_ns;
        return TL_TAIL_TURN;
    }
    return r->is_clean || round->unsure == round->fronts ? TL_TAIL_LEARNING : TL_TAIL_BEYOND;
}

/* Why it waits from at_ns on; *ret_until_ns: how long that holds, if nothing happens. */
static enum tl_tail_cause cause_of(const struct reading *r, const struct queue *queue,
                                   const struct item *item, uint64_t at_ns, uint64_t due,
                                   uint64_t *ret_until_ns)
{
    const struct tenant *t = &r->tenants[queue->tenant];
    const struct round *rounds = r->rounds[item->resource], *round = &rounds[t->class];
    uint64_t over = 0;
    uint32_t fronts = 0, above = 0;
    for (unsigned class = 0; class < CLASSES; class ++) {
        fronts += rounds[class].fronts;
        above += class > t->class ? rounds[class].fronts : 0;
        over = rounds[class].fronts && rounds[class].over_ns > over ? rounds[class].over_ns : over;
    }
    *ret_until_ns = NEVER;
    if (queue->has_limit || t->has_limit) {
        return TL_TAIL_LIMIT;
    }
    if (fronts == 0) {
        *ret_until_ns = linger_end_ns(r, item->resource);
        if (at_ns < *ret_until_ns) {
            return TL_TAIL_LINGER;
        }
        *ret_until_ns = NEVER;
        return TL_TAIL_IDLE;
    }
    if (at_ns >= over) {
        return TL_TAIL_LATE;
    }
    *ret_until_ns = over;
    if (above) {
        return TL_TAIL_CLASS;
    }
    if (!round->fronts) {
        const struct round *below =
            &rounds[t->class > 1 && rounds[t->class - 1].fronts ? t->class - 1 : 0];
        return below->granted_ns <= item->since_ns ? TL_TAIL_FLIGHT : TL_TAIL_LOWER;
    }
    if (r->keeps_no_shares) {
        uint64_t starved_ns = item->since_ns + r->header.starve_ns;
        *ret_until_ns = at_ns < starved_ns && starved_ns < over ? starved_ns : over;
        return at_ns < starved_ns ? TL_TAIL_ORDER : TL_TAIL_BEYOND;
    }
    if (at_ns < due) {
        *ret_until_ns = due < over ? due : over;
        return TL_TAIL_SHARE;
    }
    return cause_when_due(r, queue, item, at_ns, due, ret_until_ns);
}

/* Is something of its tenant, or of its queue, on the device, and not below its equals' work? */
static bool is_served(const struct reading *r, const struct queue *queue, const struct item *item)
{
    const struct tenant *t = &r->tenants[queue->tenant];
    bool has_below = item->resource == WEIR_SCHED_COMPUTE && t->below && r->leader != NONE &&
                     r->tenants[r->leader].class == t->class;
    return t->fronts[item->resource] > (has_below ? t->below : 0) ||
           (queue->n_on && !item->is_stopped && !(has_below && r->items[queue->first].is_filler));
}

/* A queue's next item has waited until to_ns. */
static void account(struct reading *r, struct queue *queue, uint64_t to_ns)
{
    struct item *item = &r->items[head_of(r, queue)];
    uint64_t due;
    uint64_t at_ns = r->at_ns > item->since_ns ? r->at_ns : item->since_ns;
    if (is_served(r, queue, item)) {
        r->tenants[queue->tenant].due_ns[item->resource] = NEVER;
        item->cause_ns[TL_TAIL_OWN] += to_ns - at_ns;
        return;
    }
    due = due_ns(r, queue->tenant, item->resource);
    while (at_ns < to_ns) {
        uint64_t until_ns;
        enum tl_tail_cause cause = cause_of(r, queue, item, at_ns, due, &until_ns);
        until_ns = until_ns < to_ns && until_ns > at_ns ? until_ns : to_ns;
        item->cause_ns[cause] += until_ns - at_ns;
        at_ns = until_ns;
    }
    if (due < to_ns && r->leader != queue->tenant) { /* a leader's is over with its turn */
        r->tenants[queue->tenant].due_ns[item->resource] = due;
    }
}

void tl_tail_pass(struct reading *r, uint64_t to_ns)
{
    double ns = (double)(to_ns - r->at_ns);
    if (to_ns == r->at_ns) {
        return;
    }
    serve(r, ns);
    look(r);
    for (uint32_t i = 0; i < r->waits.n; i++) {
        account(r, &r->queues[r->waits.at[i]], to_ns);
    }
    for (uint32_t i = 0; i < r->tail->n_tenants; i++) {
        for (unsigned resource = 0; resource < RESOURCES; resource++) {
            struct tenant *t = &r->tenants[i];
            t->virtual_ns[resource] += t->rate[resource] * ns / t->weight;
            t->rate[resource] = 0;
        }
    }
    r->at_ns = to_ns;
}
