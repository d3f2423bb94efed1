/*
 * Shares of a copy direction, by start-time fair queueing.
 *
 * Each direction has a virtual time for each class. A copy gets a start tag when it becomes its
 * queue's next item: the direction's virtual time, or the end of its tenant's copies before it, if
 * that is later. Its end is its start and its predicted time, divided by the tenant's weight. The
 * list of a direction is sorted by class, then by tags, then by arrival: with equal weights and one
 * copy each this is first come, first served.
 *
 *     virtual time   the least tag among the copies that are under way or wait; if the direction
 *                    has no copies, the latest end
 *     newcomer       starts at the virtual time, so being idle saves nothing
 *     end of a copy  its tenant's end moves by the difference between served and predicted time
 *
 * A program that waits for each of its copies has none waiting when the next one is chosen, so it
 * would get every second copy whatever its weight. If such a tenant is behind its share and is
 * usually back soon, the others wait for it (deceptive idleness), and it pays for the idle time.
 *
 * A copy that comes in pieces (staged, or cut by the worker) is chosen once and then has the
 * direction for all its pieces, as if it were one item. It gives way to a higher class, and when it
 * has had the direction for copy_slice_ns, the next copy is chosen by tags again. Others wait for
 * its next piece, if that has not arrived, as for any copy that is expected soon.
 *
 * docs/design/scheduling.md states the bound on shares that follows.
 *
 * Source: Goyal, Vin, Cheng, Start-time Fair Queueing (SIGCOMM 1996); Iyer and Druschel,
 * Anticipatory Scheduling (SOSP 2001).
 */
#include "sched/private.h"

#define FRACTION_BITS 10 /* virtual time counts in 1/1024 ns at weight 1 */

static uint64_t to_virtual(const struct tenant *tenant, uint64_t ns)
{
    return (min_u64(ns, PREDICTED_MAX_NS) << FRACTION_BITS) / tenant->view.weight;
}

/* Compare virtual times, which may wrap around. */
static bool is_before(uint64_t a, uint64_t b)
{
    return (int64_t)(a - b) < 0;
}

static uint64_t later_of(uint64_t a, uint64_t b)
{
    return is_before(a, b) ? b : a;
}

void copy_tag(struct weir_sched *sched, struct item *item)
{
    enum weir_sched_resource way = resource_of(item);
    struct tenant *tenant = item->queue->tenant;
    struct copy_way *share = &sched->way[way];

    if (item->copy.tagged) {
        return;
    }
    uint64_t start = later_of(tenant->copying.end[way], share->now[tenant->view.priority]);
    item->copy.tagged = true;
    item->copy.start = start;
    tenant->copying.end[way] = start + to_virtual(tenant, item->counted_ns);
    share->latest = later_of(share->latest, tenant->copying.end[way]);
}

/* A tenant has copies of a direction again: measure the length of the pause. */
static void note_gap(const struct weir_sched *sched, struct tenant *tenant,
                     enum weir_sched_resource way)
{
    struct copy_gap *gap = &tenant->copying.gap[way];
    uint64_t ns = sched->now_ns - gap->since_ns;

    if (gap->since_ns != NEVER) {
        gap->usual_ns = gap->usual_ns == NEVER ? ns : (3 * gap->usual_ns + ns) / 4;
    }
}

static void begin_gap(const struct weir_sched *sched, struct tenant *tenant,
                      enum weir_sched_resource way)
{
    struct copy_gap *gap = &tenant->copying.gap[way];

    gap->since_ns = sched->now_ns;
    gap->stretch_ns = tenant->view.service_ns[way] - gap->before_ns;
    gap->before_ns = tenant->view.service_ns[way];
}

void copies_count(struct weir_sched *sched, struct tenant *tenant, enum weir_sched_resource way,
                  bool more)
{
    uint32_t before = tenant->copying.now[way];

    tenant->copying.now[way] += more ? 1 : -1u;
    if (more && before == 0) {
        sched->way[way].tenants++;
        note_gap(sched, tenant, way);
    } else if (!more && before == 1) {
        sched->way[way].tenants--;
        begin_gap(sched, tenant, way);
    }
    if (sched->way[way].tenants == 0) {
        for (int class = 0; class < WEIR_PRIORITY_COUNT; class ++) {
            sched->way[way].now[class] = sched->way[way].latest;
        }
    }
}

static bool goes_before(const struct queue *a, const struct queue *b)
{
    if (a->tenant->view.priority != b->tenant->view.priority) {
        return a->tenant->view.priority > b->tenant->view.priority;
    }
    return is_before(a->listed->copy.start, b->listed->copy.start);
}

void copy_list(struct weir_sched *sched, struct queue *queue)
{
    enum weir_sched_resource way = resource_of(queue->listed);
    struct queue *after = sched->way[way].last;

    copy_tag(sched, queue->listed);
    while (after && goes_before(queue, after)) {
        after = after->list_prev;
    }
    queue->list_prev = after;
    queue->list_next = after ? after->list_next : sched->way[way].first;
    *(queue->list_next ? &queue->list_next->list_prev : &sched->way[way].last) = queue;
    *(after ? &after->list_next : &sched->way[way].first) = queue;
    copies_count(sched, queue->tenant, way, true);
}

void copy_unlist(struct weir_sched *sched, struct queue *queue)
{
    enum weir_sched_resource way = resource_of(queue->listed);

    *(queue->list_prev ? &queue->list_prev->list_next : &sched->way[way].first) = queue->list_next;
    *(queue->list_next ? &queue->list_next->list_prev : &sched->way[way].last) = queue->list_prev;
    queue->list_next = queue->list_prev = NULL;
    copies_count(sched, queue->tenant, way, false);
    if (sched->way[way].next == queue) {
        sched->way[way].next = NULL;
    }
}

/* In its new class the tenant starts at that class's virtual time. */
void copies_change_class(struct weir_sched *sched, struct tenant *tenant)
{
    for (int way = WEIR_SCHED_TO_DEVICE; way < RESOURCES; way++) {
        tenant->copying.end[way] = sched->way[way].now[tenant->view.priority];
    }
    for (struct queue *queue = tenant->queues; queue; queue = queue->next) {
        if (queue->listed) {
            queue->listed->copy.tagged = false;
        }
    }
}

/* The tenant that others waited for pays for the idle time. */
static void pay_for_waiting(struct weir_sched *sched, struct copy_way *share,
                            enum weir_sched_resource way)
{
    struct tenant *tenant = table_get(&sched->tenants, share->tenant);

    if (share->idle_since_ns != 0 && tenant) {
        tenant->copying.end[way] += to_virtual(tenant, sched->now_ns - share->idle_since_ns);
        share->latest = later_of(share->latest, tenant->copying.end[way]);
    }
    share->idle_since_ns = 0;
}

void copy_share_grant(struct weir_sched *sched, struct item *copy)
{
    enum weir_sched_resource way = resource_of(copy);
    enum weir_priority class = copy->queue->tenant->view.priority;
    struct copy_way *share = &sched->way[way];
    const struct queue *first = sched->way[way].first;
    uint64_t now = copy->copy.start;

    if (first && first->tenant->view.priority == class &&
        is_before(first->listed->copy.start, now)) {
        now = first->listed->copy.start;
    }
    for (const struct item *i = sched->fronts.first[way]; i; i = i->front_next) {
        if (i->queue->tenant->view.priority == class && is_before(i->copy.start, now)) {
            now = i->copy.start;
        }
    }
    share->now[class] = later_of(share->now[class], now);
    pay_for_waiting(sched, share, way);
    share->whole_ns = share->whole == copy->queue->id ? share->whole_ns : 0;
    share->whole_ns += copy->counted_ns;
    share->left_ns = copy->copy.rest_ns;
    share->whole = copy->copy.rest_ns != 0 ? copy->queue->id : 0;
    share->tenant = copy->queue->tenant->view.id;
}

bool copies_are_shared(struct weir_sched *sched, enum weir_sched_resource way)
{
    struct copy_way *share = &sched->way[way];

    if (sched->way[way].tenants > 1) {
        share->shared_until_ns = sched->now_ns + sched->config.quiet_ns;
    }
    return sched->now_ns < share->shared_until_ns;
}

uint64_t copy_patience_ns(const struct weir_sched *sched, const struct item *copy)
{
    return copy->counted_ns + copy->counted_ns / 4 + sched->config.inflight_ns;
}

void copy_share_end(struct weir_sched *sched, const struct item *copy)
{
    struct tenant *tenant = copy->queue->tenant;
    enum weir_sched_resource way = resource_of(copy);
    uint64_t served_ns = min_u64(copy->had.served_ns, copy_patience_ns(sched, copy));

    tenant->copying.end[way] +=
        to_virtual(tenant, served_ns) - to_virtual(tenant, copy->counted_ns);
    sched->way[way].latest = later_of(sched->way[way].latest, tenant->copying.end[way]);
}

bool copy_is_within(const struct queue *queue, uint64_t start, uint64_t slack_ns)
{
    uint64_t slack = to_virtual(queue->tenant, slack_ns);

    return !is_before(start + slack, queue->listed->copy.start);
}

static bool has_front(const struct weir_sched *sched, enum weir_sched_resource way,
                      const struct tenant *tenant)
{
    for (const struct item *i = sched->fronts.first[way]; i; i = i->front_next) {
        if (i->queue->tenant == tenant) {
            return true;
        }
    }
    return false;
}

struct queue *copy_going_on(const struct weir_sched *sched, enum weir_sched_resource way,
                            const struct queue *next)
{
    const struct copy_way *share = &sched->way[way];
    struct queue *queue = share->whole != 0 ? table_get(&sched->queues, share->whole) : NULL;

    if (!queue || next->tenant->view.priority > queue->tenant->view.priority ||
        share->whole_ns >= tuning.copy_slice_ns ||
        /* Let the shorter copy go first: that makes the sum of both end times smallest. */
        copy_whole_ns(next->listed) + tuning.copy_end_seen_ns < share->left_ns) {
        return NULL;
    }
    return queue;
}

/* Has a tenant had copies for so long without a pause that its next one will come at once? */
static bool goes_on(const struct tenant *tenant, enum weir_sched_resource way)
{
    return tenant->view.service_ns[way] - tenant->copying.gap[way].before_ns >=
           (uint64_t)tuning.wait_part * tuning.copy_end_seen_ns;
}

/* Does a tenant's next copy usually come before the bus would have been idle for long? */
static bool is_soon_back(const struct copy_gap *gap)
{
    return gap->usual_ns <= tuning.wait_max_ns &&
           (gap->usual_ns + tuning.copy_end_seen_ns) * tuning.wait_part <= gap->stretch_ns;
}

uint64_t copy_expected_ns(struct weir_sched *sched, enum weir_sched_resource way,
                          const struct queue *next)
{
    struct copy_way *share = &sched->way[way];
    const struct tenant *tenant = table_get(&sched->tenants, share->tenant);
    const struct queue *whole = copy_going_on(sched, way, next);

    if (!tenant || tenant == next->tenant || tenant->view.priority != next->tenant->view.priority ||
        (!whole && !is_before(tenant->copying.end[way], next->listed->copy.start))) {
        return 0;
    }
    const struct copy_gap *gap = &tenant->copying.gap[way];
    if (tenant->copying.now[way] > 0) {
        bool comes = is_soon_back(gap) || goes_on(tenant, way) || (whole && gap->usual_ns == NEVER);

        return comes && has_front(sched, way, tenant) ? NEVER : 0;
    }
    if (!is_soon_back(gap)) {
        return 0;
    }
    uint64_t until_ns = gap->since_ns + 2 * gap->usual_ns + tuning.wake_min_ns;
    if (until_ns <= sched->now_ns) {
        return 0;
    }
    if (share->idle_since_ns == 0 && sched->way[way].on_device == 0) {
        share->idle_since_ns = sched->now_ns;
    }
    return until_ns;
}
