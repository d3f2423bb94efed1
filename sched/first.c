/*
 * Who goes first goes above.
 *
 * A policy lets a tenant go first that was away and needs little (`fair`). At the plain level its
 * items would wait for all blocks of others' kernels that cannot be stopped: 100 us of work beside
 * a loop of kernels of 3.2 ms took 2.6 ms on average (simulated). So its items are granted *above*,
 * at once, beside what runs of its class, whether the tenant leads or not: the device places their
 * blocks as soon as any block ends. The policy bounds how much goes above. An item whose duration
 * is not known cannot be counted against that bound, so it does not go above.
 *
 * On the device such an item is behind the other head items, and so it is charged: others pay for
 * the time until it ends, and then what it is known to take is moved to its own account (charge.c).
 * The rest of the time is in doubt: it waited for others' blocks to end, or took longer than is
 * known. When the head item before it ends, its own known duration tells: what that took beyond it,
 * and was in doubt, is moved, too. Otherwise a program could have kernels that are known to be
 * short and keep the device for milliseconds.
 */
#include "sched/private.h"

/* The longest item of a tenant that may go above now; 0: none. */
static uint64_t longest_ns(struct weir_sched *sched, struct tenant *tenant)
{
    const struct weir_policy *policy = &sched->policy[WEIR_POLICY_NEXT];

    if (sched->config.above == 0 || tenant->view.priority != WEIR_PRIORITY_NORMAL ||
        sched->ready_count < 2 || !policy->ops->first_ns) {
        return 0;
    }
    view_refresh(sched, tenant);
    return policy->ops->first_ns(policy, &tenant->view);
}

bool first_goes(struct weir_sched *sched, struct tenant *tenant)
{
    return longest_ns(sched, tenant) != 0;
}

bool first_goes_above(struct weir_sched *sched, const struct item *item)
{
    return is_compute(item) && !item->filler && item->small_sms == 0 && item->predicted_ns != 0 &&
           (item->params.flags & WEIR_SCHED_OWN_LEVELS) == 0 && sched->turn.members == 1 &&
           item->predicted_ns <= longest_ns(sched, item->queue->tenant);
}

/* May another item of the queue go above, behind those that did? */
static bool has_room(const struct weir_sched *sched, const struct queue *queue)
{
    return limit_sms(queue) >= sched->config.sms &&
           (queue->on_device == 0 ||
            (is_first(queue->first) && queue_rest_ns(sched, queue) < sched->config.inflight_ns));
}

void first_pass(struct weir_sched *sched)
{
    static const struct weir_sched_place anywhere;
    const struct tenant *leader = sched->turn.leader;
    struct tenant *tenant = table_get(&sched->tenants, sched->turn.fresh);

    sched->turn.fresh = 0;
    if (!tenant || !tenant->is_ready || tenant->view.member || tenant->exclusive ||
        leader->exclusive || !is_beside(tenant, leader)) {
        return;
    }
    for (struct queue *queue = tenant->queues; queue; queue = queue->next) {
        while (queue->listed && has_room(sched, queue) && first_goes_above(sched, queue->listed)) {
            item_start(sched, queue->listed, &anywhere);
        }
    }
    tenant_refresh(sched, tenant);
}

/* The least time of its own that an item had which ended beside an earlier head item: it goes
 * first, so it waited for a block of that one at most. */
static uint64_t least_ns(const struct weir_sched *sched, const struct item *item,
                         const struct item *before)
{
    uint64_t span_ns = sched->now_ns - item->head_ns;
    uint64_t others_ns = item_block_ns(sched, before) + sched->config.launch_ns;

    return span_ns - min_u64(span_ns, others_ns + tuning.seen_late_ns);
}

uint64_t first_took_ns(const struct weir_sched *sched, const struct item *item,
                       const struct item *before)
{
    if (!before) {
        return item->predicted_ns;
    }
    return before->predicted_ns == 0 ? sched->now_ns - item->head_ns
                                     : max_u64(item->predicted_ns, least_ns(sched, item, before));
}

void first_doubt(const struct weir_sched *sched, const struct item *item, struct item *before,
                 uint64_t claim_ns)
{
    uint64_t span_ns = sched->now_ns - item->head_ns;
    uint64_t doubt_ns = span_ns - min_u64(span_ns, claim_ns);
    weir_sched_id id = item->queue->tenant->view.id;

    if (before->doubt_of == id) {
        before->doubt_ns += doubt_ns;
    } else if (doubt_ns > before->doubt_ns) { /* of several tenants that of the largest doubt */
        before->doubt_of = id;
        before->doubt_ns = doubt_ns;
    }
}

void first_settle(struct weir_sched *sched, struct item *done)
{
    struct tenant *tenant = done->doubt_ns != 0 ? table_get(&sched->tenants, done->doubt_of) : NULL;
    int64_t owed_ns = (int64_t)done->served_ns + done->beyond_ns -
                      (int64_t)(done->predicted_ns * sched->config.sms);
    int64_t most_ns = (int64_t)(done->doubt_ns * sched->config.sms);

    owed_ns = owed_ns < most_ns ? owed_ns : most_ns;
    if (tenant && owed_ns > 0 && !done->interrupted && done->predicted_ns != 0) {
        charge_more(tenant, owed_ns);
        charge_more(done->queue->tenant, -owed_ns);
        done->beyond_ns -= owed_ns;
    }
}

void first_bounds(const struct weir_sched *sched, const struct item *item, uint64_t *ret_least_ns,
                  uint64_t *ret_most_ns)
{
    const struct item *before = front_before(sched, item);

    if (before && !item->beside_filler && !item->disturbed) {
        *ret_least_ns = least_ns(sched, item, before);
        *ret_most_ns = sched->now_ns - item->head_ns;
    }
}
