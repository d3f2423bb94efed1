/*
 * Small items: graphs that need only some of the SMs and run beside other work (beside.c). Their
 * level, what they pay, and the room that kernels leave them.
 *
 * Levels. Without a level above, a tenant with one graph at a time would be limited by its graph's
 * time among the others, whatever its weight. Two kinds of graphs go above: among many small items
 * of tenants with different weights, those of tenants that are behind their share; beside another
 * tenant's kernels that may fill the device, those of tenants that are not ahead of their share,
 * since such kernels take the SMs that become free before the graph's next kernel comes.
 *
 * Pay. A small item is charged its SMs for as long as it is on the device, or its part of all SMs
 * while it keeps others from using them (charge.c). While small items have all SMs, one above gets
 * more done in the same time, and counts as several plain ones (above_counts). Their number is
 * learned from keys that are granted at both levels, so that an item costs the same at both. So
 * virtual time still measures work, and a tenant's items go above only until it has its share.
 *
 * Room. A small graph is many short kernels, one after the other. Even above, each of them waits
 * until blocks of another tenant's kernel have ended: a token of a language model took 14 ms beside
 * a training, and 6.8 alone. With the training's kernels on 80 of 132 SMs it takes 10 to 11 ms, and
 * the training gets as much done as before, since its kernels make better use of their SMs (H100,
 * docs/measurements/other-programs.md). So while other tenants' small graphs are on the device most
 * of the time, kernels get config.room_sms of the SMs, except those whose blocks fit on the device
 * at once but not on the part, as they may wait for each other, and those that can be stopped,
 * whose form cannot use a green context. Kernels on the part cost in the end their time alone.
 */
#include "sched/private.h"

#include "base/hash.h"

#define CLAIM_UNIT 16 /* scale that makes claims whole numbers */
#define STEP       8u

bool weir_sched_is_small(const struct weir_sched_config *config, uint32_t sms)
{
    return config->small_sms != 0 && sms != 0 && sms <= config->sms / tuning.small_part;
}

void small_look(const struct weir_sched *sched, struct item *item)
{
    const struct weir_sched_item_params *p = &item->params;

    item->small_sms = 0;
    if (p->blocks == 0 || p->blocks_per_sm == 0 || p->class != WEIR_SCHED_GRAPH ||
        is_stoppable(item)) {
        return;
    }
    uint32_t sms = (p->blocks - 1) / p->blocks_per_sm + 1;
    item->small_sms = weir_sched_is_small(&sched->config, sms) ? sms : 0;
}

/* SMs that the small head items, or those of them that are above, need together. */
static uint32_t sms_in_use(const struct weir_sched *sched, bool above)
{
    uint32_t sms = 0;

    for (const struct item *i = sched->fronts.first[WEIR_SCHED_COMPUTE]; i; i = i->front_next) {
        sms += !above || i->level == WEIR_SCHED_ABOVE ? small_sms(i) : 0;
    }
    return sms;
}

uint32_t small_in_use(const struct weir_sched *sched)
{
    return sms_in_use(sched, false);
}

/* ---- the level ---- */

/* Find another tenant of the class with an item on the device that may need all SMs; or NULL. */
static const struct tenant *large_beside(const struct weir_sched *sched,
                                         const struct tenant *tenant)
{
    const struct item *front = sched->fronts.first[WEIR_SCHED_COMPUTE];

    while (front && (small_sms(front) != 0 || is_filler(front) || front->queue->tenant == tenant ||
                     front->queue->tenant->view.priority != tenant->view.priority)) {
        front = front->front_next;
    }
    return front ? front->queue->tenant : NULL;
}

/* Does a ready tenant of this class have another weight? If not, one level is fair to all. */
static bool has_unequals(const struct weir_sched *sched, const struct tenant *tenant)
{
    uint32_t i = 0;

    while (i < sched->ready.count && (sched->ready.list[i]->priority != tenant->view.priority ||
                                      sched->ready.list[i]->weight == tenant->view.weight)) {
        i++;
    }
    return i < sched->ready.count;
}

bool small_goes_above(const struct weir_sched *sched, const struct item *item)
{
    const struct weir_policy *policy = &sched->policy[WEIR_POLICY_NEXT];
    const struct tenant *tenant = item->queue->tenant;

    if (item->small_sms == 0 || sched->config.above == 0 ||
        tenant->view.priority != WEIR_PRIORITY_NORMAL || sched->ready.count < 2 ||
        (item->params.flags & WEIR_SCHED_OWN_LEVELS) != 0 || !policy->ops->lag_ns) {
        return false;
    }
    int64_t lag_ns = policy->ops->lag_ns(policy, &tenant->view);
    const struct tenant *large = large_beside(sched, tenant);
    if (!large) {
        return lag_ns > (int64_t)tuning.lag_ns &&
               small_in_use(sched) >= sched->config.small_sms / tuning.small_crowd_part &&
               has_unequals(sched, tenant);
    }
    return lag_ns >= policy->ops->lag_ns(policy, &large->view) -
                         (int64_t)(room_is_made(sched) ? tuning.slack_ns : tuning.lag_ns) &&
           sms_in_use(sched, true) + item->small_sms <= sched->config.sms / tuning.small_part;
}

/* ---- what it pays ---- */

uint64_t small_claim(const struct weir_sched *sched, const struct item *item)
{
    return (uint64_t)(small_sms(item) *
                      (item->level == WEIR_SCHED_ABOVE ? sched->small.above_counts : 1) *
                      CLAIM_UNIT);
}

static void add_price(double *mean_ns, uint64_t ns)
{
    *mean_ns += ((double)ns - *mean_ns) / (*mean_ns != 0 ? tuning.few : 1);
}

void small_done(struct weir_sched *sched, const struct item *done)
{
    const uint64_t of[] = {done->queue->tenant->view.id, done->params.key};

    if (done->params.key == 0 || sched->config.above == 0 || done->had.crowd_ns == 0 ||
        done->had.crowd_ns < done->had.served_ns - done->had.served_ns / tuning.mostly_part) {
        return;
    }
    struct small_price *price =
        &sched->small.price[weir_hash_slot(weir_hash64_of(of, sizeof of), SMALL_PRICE_SLOTS)];
    if (price->tenant != of[0] || price->key != of[1]) {
        *price = (struct small_price){.tenant = of[0], .key = of[1]};
    }
    add_price(done->level == WEIR_SCHED_ABOVE ? &price->above_ns : &price->plain_ns,
              done->had.crowd_ns);
    if (price->above_ns != 0 && price->plain_ns != 0) {
        double error = price->plain_ns / price->above_ns - 1;

        sched->small.above_counts *= 1 + error / tuning.error_part;
        sched->small.above_counts = WEIR_MAX(sched->small.above_counts, 1);
    }
}

/* ---- room ---- */

uint32_t weir_sched_room_sms(uint32_t sms)
{
    return sms * tuning.room_eighths / 8 / STEP * STEP;
}

/* 16 SMs are an eighth of a large GPU: finer steps would only mean more green contexts. Sizes are
 * multiples of 8 on compute capability 9.0, and of 2 on softgpu. */
uint32_t weir_sched_part_step(uint32_t sms)
{
    return sms >= 64 ? 16 : sms >= 32 ? STEP : sms >= 4 ? 2 : 0;
}

void room_pass(struct weir_sched *sched, const struct item *small, uint64_t ns)
{
    if (sched->config.room_sms == 0 || sched->config.room_sms >= sched->config.sms) {
        return;
    }
    if (small) {
        sched->small.room_ns = min_u64(sched->small.room_ns + ns, 2 * tuning.room_from_ns);
        sched->small.room_for = small->queue->tenant->view.id;
        sched->small.room_class = small->queue->tenant->view.priority;
    } else {
        sched->small.room_ns -= min_u64(sched->small.room_ns, ns);
    }
}

bool room_is_made(const struct weir_sched *sched)
{
    return sched->small.room_ns >= tuning.room_from_ns;
}

/* Is room made for another tenant, which is of this tenant's class or a higher one? */
static bool is_for_another(const struct weir_sched *sched, const struct tenant *tenant)
{
    const struct item *front = sched->fronts.first[WEIR_SCHED_COMPUTE];

    if (sched->small.room_for != tenant->view.id) {
        return sched->small.room_class >= tenant->view.priority;
    }
    while (front && (small_sms(front) == 0 || front->queue->tenant == tenant ||
                     front->queue->tenant->view.priority < tenant->view.priority)) {
        front = front->front_next;
    }
    return front != NULL;
}

bool room_needs_all(const struct weir_sched *sched, const struct item *item, uint32_t sms)
{
    const struct weir_sched_item_params *p = &item->params;

    if (sms == 0 || p->class != WEIR_SCHED_KERNEL) {
        return false;
    }
    if (p->blocks == 0 || p->blocks_per_sm == 0) {
        return true; /* it is not known */
    }
    uint32_t needed = (p->blocks - 1) / p->blocks_per_sm + 1;
    return needed > sms && needed <= sched->config.sms;
}

uint32_t room_part(const struct weir_sched *sched, const struct item *item)
{
    const struct weir_sched_item_params *p = &item->params;

    if (!room_is_made(sched) || p->class != WEIR_SCHED_KERNEL ||
        (p->flags & (WEIR_SCHED_STOPPABLE | WEIR_SCHED_MOVABLE)) != 0 || p->blocks == 0 ||
        p->blocks_per_sm == 0 || !is_for_another(sched, item->queue->tenant)) {
        return 0;
    }
    return room_needs_all(sched, item, sched->config.room_sms) ? 0 : sched->config.room_sms;
}
