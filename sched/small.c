/*
 * Small items run beside the leader instead of taking turns.
 *
 * Turns suit kernels that fill the device. A graph that needs only a part of it leaves the rest
 * idle during its turn, and with many such tenants most of the device is idle. So an item that is
 * known to need only some of the SMs (item->small_sms) is granted beside the leader, together with
 * other such items, until they need config.small_sms together. The policy chooses the order: `fair`
 * chooses the tenant with the least virtual time, and none that is ahead of its share by more than
 * a slice. This is start-time fair queueing with a depth, where the depth is counted in SMs.
 *
 * Only graphs are granted so. If a program launches single kernels, some of them would run beside
 * the leader while others take turns, and the longest waits would grow: eager inference beside a
 * training had a p99 of 20 ms instead of 12 (H100, 2026-11-25).
 *
 * Levels. The device places blocks of a higher stream priority first, so a small item that is
 * granted *above* ends sooner than plain ones of its class. Without this level, a tenant with one
 * graph at a time would be limited by its graph's time among the others, whatever its weight. Two
 * kinds of items go above: among many small items of tenants with different weights, those of
 * tenants that are behind their share; beside another tenant's kernels that may fill the device,
 * those of tenants that are not ahead of their share, since such kernels take the SMs that become
 * free before the graph's next kernel comes.
 *
 * Where small items have all SMs, one above gets more done in the same time, and counts as several
 * plain ones (above_counts). Their number is learned from keys that are granted at both levels, so
 * that an item costs the same at both. So virtual time still measures work, and a tenant's items go
 * above only until it has its share.
 *
 * A small item is charged its SMs for as long as it is on the device, or its part of all SMs where
 * it keeps the others from use (charge.c).
 *
 * Source: SFQ(D): Jin, Chase, Kaur, Interposed Proportional Sharing for a Storage Service Utility
 * (SIGMETRICS 2004).
 */
#include "sched/private.h"

#include "base/hash.h"

#define CLAIM_UNIT 16 /* scale that makes claims whole numbers */

bool weir_sched_is_small(const struct weir_sched_config *config, uint32_t sms)
{
    return config->small_sms != 0 && sms != 0 && sms <= config->sms / tuning.small_part;
}

void small_look(const struct weir_sched *sched, struct item *item)
{
    const struct weir_sched_item_params *p = &item->params;
    uint32_t sms;

    item->small_sms = 0;
    if (p->blocks == 0 || p->blocks_per_sm == 0 || p->class != WEIR_SCHED_GRAPH ||
        is_stoppable(item)) {
        return;
    }
    sms = (p->blocks - 1) / p->blocks_per_sm + 1;
    item->small_sms = weir_sched_is_small(&sched->config, sms) ? sms : 0;
}

/* SMs that the small front items need together. */
static uint32_t in_use(const struct weir_sched *sched)
{
    uint32_t sms = 0;

    for (const struct item *i = sched->front_first[WEIR_SCHED_COMPUTE]; i; i = i->front_next) {
        sms += small_sms(i);
    }
    return sms;
}

/* A queue of the tenant whose next item is small and may be granted; NULL: there is none. The queue
 * may have other small items on the device. */
static struct queue *queue_of_small(const struct weir_sched *sched, const struct tenant *tenant)
{
    for (struct queue *queue = tenant->queues; queue; queue = queue->next) {
        const struct item *item = queue->listed;

        if (item && item->small_sms != 0 && !queue->held && limit_sms(queue) >= sched->config.sms &&
            (queue->on_device == 0 || (queue->first->small_sms != 0 &&
                                       queue_rest_ns(sched, queue) < sched->config.inflight_ns))) {
            return queue;
        }
    }
    return NULL;
}

/* The tenant whose small item, of at most `room` SMs, the policy grants next; NULL: none. */
static struct tenant *ask(struct weir_sched *sched, uint32_t room)
{
    struct weir_policy *policy = &sched->policy[WEIR_POLICY_NEXT];
    struct weir_policy_next_view view = {.now_ns = sched->now_ns,
                                         .ready = sched->ready,
                                         .ready_count = sched->ready_count,
                                         .leader = &sched->turn.leader->view,
                                         .has_room = room >= sched->config.small_sms /
                                                                 tuning.small_crowd_part};
    bool any = false;
    uint32_t i;

    for (i = 0; i < sched->ready_count; i++) {
        struct tenant *tenant = tenant_of(sched->ready[i]);
        const struct queue *queue =
            tenant->view.member || tenant->exclusive || !is_beside(tenant, sched->turn.leader)
                ? NULL
                : queue_of_small(sched, tenant);

        tenant->view.small = queue && queue->listed->small_sms <= room;
        any |= tenant->view.small;
        view_refresh(sched, tenant);
    }
    if (!any) {
        return NULL;
    }
    i = policy->ops->small(policy, &view);
    return i < sched->ready_count && sched->ready[i]->small ? tenant_of(sched->ready[i]) : NULL;
}

/*
 * Has the leader an item on the device that was granted while the leader was a filler? This item is
 * at the lowest stream priority: more small items would keep it, and so the leader, from the SMs,
 * and the leader's turn would never end, because it is not served.
 */
static bool is_leader_below(const struct weir_sched *sched)
{
    const struct item *front = sched->front_first[WEIR_SCHED_COMPUTE];

    while (front && (!front->fills_equal || front->queue->tenant != sched->turn.leader)) {
        front = front->front_next;
    }
    return front != NULL;
}

void small_pass(struct weir_sched *sched)
{
    static const struct weir_sched_place anywhere;
    const struct turn *turn = &sched->turn;
    uint32_t used;

    if (sched->config.small_sms == 0 || !sched->policy[WEIR_POLICY_NEXT].ops->small ||
        turn->members != 1 || turn->hold_ns != 0 || turn->leader->exclusive ||
        sched->ready_count < (turn->leader->is_ready ? 2 : 1) || is_leader_below(sched)) {
        return;
    }
    used = in_use(sched);
    while (used < sched->config.small_sms) {
        struct tenant *tenant = ask(sched, sched->config.small_sms - used);
        struct queue *queue = tenant ? queue_of_small(sched, tenant) : NULL;

        if (!queue) {
            return;
        }
        used += queue->on_device == 0 ? queue->listed->small_sms : 0;
        item_start(sched, queue->listed, &anywhere);
        tenant_refresh(sched, tenant);
    }
}

/* ---- the level of a small item ---- */

/* Another tenant of the same class with an item on the device that may need all SMs; or NULL. */
static const struct tenant *large_beside(const struct weir_sched *sched,
                                         const struct tenant *tenant)
{
    const struct item *front = sched->front_first[WEIR_SCHED_COMPUTE];

    while (front && (small_sms(front) != 0 || front->filler || front->queue->tenant == tenant ||
                     front->queue->tenant->view.priority != tenant->view.priority)) {
        front = front->front_next;
    }
    return front ? front->queue->tenant : NULL;
}

/* SMs that the items above on the device need together. */
static uint32_t above_sms(const struct weir_sched *sched)
{
    uint32_t sms = 0;

    for (const struct item *i = sched->front_first[WEIR_SCHED_COMPUTE]; i; i = i->front_next) {
        sms += i->above ? small_sms(i) : 0;
    }
    return sms;
}

/* Has a ready tenant of the class another weight? If not, all get the same at one level. */
static bool has_unequals(const struct weir_sched *sched, const struct tenant *tenant)
{
    uint32_t i = 0;

    while (i < sched->ready_count && (sched->ready[i]->priority != tenant->view.priority ||
                                      sched->ready[i]->weight == tenant->view.weight)) {
        i++;
    }
    return i < sched->ready_count;
}

bool small_goes_above(const struct weir_sched *sched, const struct item *item)
{
    const struct weir_policy *policy = &sched->policy[WEIR_POLICY_NEXT];
    const struct tenant *tenant = item->queue->tenant;
    const struct tenant *large;
    int64_t lag_ns;

    if (small_sms(item) == 0 || item->filler || sched->config.above == 0 ||
        tenant->view.priority != WEIR_PRIORITY_NORMAL || sched->ready_count < 2 ||
        (item->params.flags & WEIR_SCHED_OWN_LEVELS) != 0 || !policy->ops->lag_ns) {
        return false;
    }
    lag_ns = policy->ops->lag_ns(policy, &tenant->view);
    large = large_beside(sched, tenant);
    if (!large) {
        return lag_ns > (int64_t)tuning.lag_ns &&
               in_use(sched) >= sched->config.small_sms / tuning.small_crowd_part &&
               has_unequals(sched, tenant);
    }
    return lag_ns >= policy->ops->lag_ns(policy, &large->view) -
                         (int64_t)(room_is_made(sched) ? tuning.slack_ns : tuning.lag_ns) &&
           above_sms(sched) + small_sms(item) <= sched->config.sms / tuning.small_part;
}

uint64_t small_claim(const struct weir_sched *sched, const struct item *item)
{
    return (uint64_t)(small_sms(item) * (item->above ? sched->above_counts : 1) * CLAIM_UNIT);
}

static void add_price(double *mean_ns, uint64_t ns)
{
    *mean_ns += ((double)ns - *mean_ns) / (*mean_ns != 0 ? tuning.few : 1);
}

void small_done(struct weir_sched *sched, const struct item *done)
{
    const uint64_t of[] = {done->queue->tenant->view.id, done->params.key};
    struct small_price *price;

    if (small_sms(done) == 0 || done->params.key == 0 || sched->config.above == 0 ||
        done->crowd_ns == 0 ||
        done->crowd_ns < done->served_ns - done->served_ns / tuning.mostly_part) {
        return;
    }
    price = &sched->small_price[weir_hash_slot(weir_hash64_of(of, sizeof of), SMALL_PRICE_SLOTS)];
    if (price->tenant != of[0] || price->key != of[1]) {
        *price = (struct small_price){.tenant = of[0], .key = of[1]};
    }
    add_price(done->above ? &price->above_ns : &price->plain_ns, done->crowd_ns);
    if (price->above_ns != 0 && price->plain_ns != 0) {
        double error = price->plain_ns / price->above_ns - 1;

        sched->above_counts *= 1 + error / tuning.error_part;
        sched->above_counts = sched->above_counts < 1 ? 1 : sched->above_counts;
    }
}

void small_init(struct weir_sched *sched)
{
    sched->above_counts = tuning.small_counts_begin;
}
