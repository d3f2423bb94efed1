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
 * Only graphs are granted so. A program that launches single kernels would have some of them run
 * beside the leader while others take turns, and that made its longest waits longer: eager
 * inference beside a training had a p99 of 20 ms with it, and of 12 without (H100, 2026-11-25).
 *
 * Levels. The device places blocks of a higher stream priority first, so a small item that is
 * granted *above* is done sooner than plain ones of its class. Without that a tenant with one graph
 * at a time on the device cannot have more than its graph's time among the others allows, whatever
 * it weighs. Two kinds go above: among many small items of unequal tenants, those of
 * tenants that are behind their share; beside another tenant's kernels that may fill the device,
 * those of tenants that are not ahead of theirs, since such kernels take the SMs that become free
 * while the graph's next kernel is not there yet.
 *
 * Where all of the device is dealt to small items, one above gets more done in the same time, and
 * counts as so many plain ones (above_counts). How many is seen from keys that are granted at
 * both levels: an item is to cost the same at both. So virtual time keeps meaning work, and who is
 * above is so only until it has what is due.
 *
 * A small item is charged its SMs for as long as it is on the device, or its part of all of them
 * where it keeps the rest from others (charge.c).
 *
 * Source: SFQ(D): Jin, Chase, Kaur, Interposed Proportional Sharing for a Storage Service Utility
 * (SIGMETRICS 2004).
 */
#include "sched/private.h"

#include "base/hash.h"

/* So far behind its share an item goes before other small ones, or so far ahead before large ones.
 * With less, equals would go before each other all the time; with 2 ms weights hold less well. */
#define LAG_NS 1000000
/* Where kernels leave room they are not much slower for it. */
#define LAG_ROOM_NS 4000000

/* Among small items only where those on the device need that part of the budget: fewer do not take
 * much longer for each other, and the heavy one among two gets its share by turns. */
#define CROWD_PART 2

/* An item above counts as so many plain ones: at first, and at least, and at most. */
#define COUNTS_BEGIN 4.0
#define COUNTS_MIN   1.0
#define COUNTS_MAX   16.0
#define COUNTS_STEPS 64  /* it changes by so small a part of what is amiss, .. */
#define COUNTS_RATIO 2.0 /* .. which is at most so much: one graph may take any time */
#define PRICES_SEEN  8   /* a price is the mean of about so many */
#define CLAIM_UNIT   16  /* claims are whole numbers */

bool weir_sched_is_small(const struct weir_sched_config *config, uint32_t sms)
{
    return config->small_sms != 0 && sms != 0 && sms <= config->sms / SMALL_PART;
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

    for (const struct item *i = sched->front_first[WEIR_SCHED_COMPUTE]; i != NULL;
         i = i->front_next) {
        sms += small_sms(i);
    }
    return sms;
}

/* A queue of the tenant whose next item is small and may be granted; NULL: there is none. Small
 * items of the same queue may be on the device already. */
static struct queue *queue_of_small(const struct weir_sched *sched, const struct tenant *tenant)
{
    for (struct queue *queue = tenant->queues; queue != NULL; queue = queue->next) {
        const struct item *item = queue->listed;

        if (item != NULL && item->small_sms != 0 && !queue->held &&
            limit_sms(queue) >= sched->config.sms &&
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
                                         .why = WEIR_POLICY_RETRY,
                                         .ready = sched->ready,
                                         .ready_count = sched->ready_count,
                                         .leader = &sched->turn.leader->view,
                                         .has_room = room > sched->config.small_sms * 5 / 12};
    bool any = false;
    uint32_t i;

    for (i = 0; i < sched->ready_count; i++) {
        struct tenant *tenant = tenant_of(sched->ready[i]);
        const struct queue *queue =
            tenant->view.member || tenant->exclusive || !is_beside(tenant, sched->turn.leader)
                ? NULL
                : queue_of_small(sched, tenant);

        tenant->view.small = queue != NULL && queue->listed->small_sms <= room;
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
 * Has the leader something on the device that was granted while it filled? That is at the lowest
 * stream priority: small items that keep passing would keep it from the SMs, and with it the
 * leader, whose turn would never end because it is not served.
 */
static bool is_leader_below(const struct weir_sched *sched)
{
    const struct item *front = sched->front_first[WEIR_SCHED_COMPUTE];

    while (front != NULL && (!front->fills_equal || front->queue->tenant != sched->turn.leader)) {
        front = front->front_next;
    }
    return front != NULL;
}

void small_pass(struct weir_sched *sched)
{
    static const struct weir_sched_place anywhere;
    const struct turn *turn = &sched->turn;
    uint32_t used;

    if (sched->config.small_sms == 0 || sched->policy[WEIR_POLICY_NEXT].ops->small == NULL ||
        turn->members != 1 || turn->leader->exclusive ||
        sched->ready_count < (turn->leader->is_ready ? 2 : 1) || is_leader_below(sched)) {
        return;
    }
    used = in_use(sched);
    while (used < sched->config.small_sms) {
        struct tenant *tenant = ask(sched, sched->config.small_sms - used);
        struct queue *queue = tenant != NULL ? queue_of_small(sched, tenant) : NULL;

        if (queue == NULL) {
            return;
        }
        used += queue->on_device == 0 ? queue->listed->small_sms : 0;
        item_start(sched, queue->listed, &anywhere);
        tenant_refresh(sched, tenant);
    }
}

/* ---- the level of a small item ---- */

/* Another tenant of its class with something on the device that may need all of it; or NULL. */
static const struct tenant *large_beside(const struct weir_sched *sched,
                                         const struct tenant *tenant)
{
    const struct item *front = sched->front_first[WEIR_SCHED_COMPUTE];

    while (front != NULL &&
           (small_sms(front) != 0 || front->filler || front->queue->tenant == tenant ||
            front->queue->tenant->view.priority != tenant->view.priority)) {
        front = front->front_next;
    }
    return front != NULL ? front->queue->tenant : NULL;
}

/* SMs that what is above on the device needs together. */
static uint32_t above_sms(const struct weir_sched *sched)
{
    uint32_t sms = 0;

    for (const struct item *i = sched->front_first[WEIR_SCHED_COMPUTE]; i != NULL;
         i = i->front_next) {
        sms += i->above ? small_sms(i) : 0;
    }
    return sms;
}

/* Equals get the same at one level. */
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
        (item->params.flags & WEIR_SCHED_OWN_LEVELS) != 0 || policy->ops->lag_ns == NULL) {
        return false;
    }
    lag_ns = policy->ops->lag_ns(policy, &tenant->view);
    large = large_beside(sched, tenant);
    if (large == NULL) {
        return lag_ns > LAG_NS && in_use(sched) >= sched->config.small_sms / CROWD_PART &&
               has_unequals(sched, tenant);
    }
    return lag_ns >= policy->ops->lag_ns(policy, &large->view) -
                         (room_is_made(sched) ? LAG_ROOM_NS : LAG_NS) &&
           above_sms(sched) + small_sms(item) <= sched->config.sms / SMALL_PART;
}

uint64_t small_claim(const struct weir_sched *sched, const struct item *item)
{
    return (uint64_t)(small_sms(item) * (item->above ? sched->above_counts : 1) * CLAIM_UNIT);
}

static void add_price(double *mean_ns, uint64_t ns)
{
    *mean_ns += ((double)ns - *mean_ns) / (*mean_ns != 0 ? PRICES_SEEN : 1);
}

void small_done(struct weir_sched *sched, const struct item *done)
{
    const uint64_t of[] = {done->queue->tenant->view.id, done->params.key};
    struct small_price *price;

    if (small_sms(done) == 0 || done->params.key == 0 || sched->config.above == 0 ||
        done->crowd_ns == 0 || done->crowd_ns < done->served_ns - done->served_ns / 10) {
        return;
    }
    price = &sched->small_price[weir_hash_slot(weir_hash64_of(of, sizeof of), SMALL_PRICE_SLOTS)];
    if (price->tenant != of[0] || price->key != of[1]) {
        *price = (struct small_price){.tenant = of[0], .key = of[1]};
    }
    add_price(done->above ? &price->above_ns : &price->plain_ns, done->crowd_ns);
    if (price->above_ns != 0 && price->plain_ns != 0) {
        double ratio = price->plain_ns / price->above_ns;

        ratio = ratio < COUNTS_RATIO ? ratio : COUNTS_RATIO;
        sched->above_counts *= 1 + (ratio - 1) / COUNTS_STEPS;
        sched->above_counts = sched->above_counts < COUNTS_MIN   ? COUNTS_MIN
                              : sched->above_counts > COUNTS_MAX ? COUNTS_MAX
                                                                 : sched->above_counts;
    }
}

void small_init(struct weir_sched *sched)
{
    sched->above_counts = COUNTS_BEGIN;
}
