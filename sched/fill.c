/*
 * Filling: one other tenant at a time, the filler, uses what the leader's kernels leave of the
 * device.
 *
 * A device whose streams have levels places the blocks of a higher level first, so work at a lower
 * level costs the leader little: it gets SMs at the ends of kernels, between them, and where a grid
 * is too small for all SMs. This is all for a filler of a lower class. A filler of the leader's own
 * class (an equal) is granted at the lowest level, and only items that release their SMs soon,
 * because running blocks are not taken off the SMs. Work of lower classes would run before its
 * items there, and may be long. So equals and lower classes never fill together: one begins when
 * the other's work is done.
 *
 * The policy chooses the filler. The core cannot see which of the two had the SMs. So a filler's
 * item is charged when it ends, with its known time alone, and all tenants' service together may be
 * more than the device's time. Among equals the leader, too, pays its kernels' known time alone,
 * and not for the time in which a filler delayed it. It gets back no more than fillers have paid,
 * so a tenant gains nothing by kernels that are longer than predicted.
 *
 * So shares are only as good as predictions, but durations beside an equal are only suppositions.
 * Hence equals fill only with items, and beside items, whose durations are sure or very short:
 *
 *   - when an item arrives whose duration is to be learned, its tenant has turns of its own for a
 *     time in proportion to that duration, and no equal fills while such an item is on the device;
 *   - every tenant now and then has a *clean* turn, which begins when equal fillers are done and
 *     has none, as long as its items are on the device. A tenant without a clean turn for long may
 *     not fill, so it falls behind and gets one.
 *
 * Source: in effect NVIDIA's MPS, where clients' kernels fill each other's gaps, but under shares.
 * The levels: CUDA's stream priorities.
 */
#include "sched/private.h"

/* Is the duration of one of the tenant's listed items still to be learned? */
static bool has_to_learn(const struct tenant *tenant)
{
    const struct queue *queue = tenant->queues;

    while (queue && (!queue->listed || !is_to_learn(queue->listed))) {
        queue = queue->next;
    }
    return queue != NULL;
}

void fill_begin(struct weir_sched *sched)
{
    struct turn *turn = &sched->turn;

    turn->filler = NULL;
    turn->clean = sched->config.fill == WEIR_SCHED_FILL_ALL && turn->keep_ns == 0 &&
                  !first_goes(sched, turn->leader) &&
                  (sched->now_ns - turn->leader->clean_ns >= tuning.clean_every_ns ||
                   has_to_learn(turn->leader));
    if (turn->clean) {
        turn->leader->clean_ns = sched->now_ns;
        turn->clear_by_ns = sched->now_ns + tuning.clean_drain_ns;
    }
}

bool fill_drains(const struct weir_sched *sched, const struct item *front)
{
    return sched->turn.clean && front->fills_equal && front->queue->tenant != sched->turn.leader;
}

/* The time is in proportion to the item's: a training step has hundreds of kernels, a few of which
 * are never seen to end separately often enough, but these are a small part of the step's time. */
void fill_arrival(struct weir_sched *sched, const struct item *item)
{
    uint64_t *unsure_ns = &item->queue->tenant->unsure_ns;
    uint64_t bar_ns =
        item->predicted_ns != 0 && item->predicted_ns < tuning.patience_ns / tuning.unsure_times
            ? tuning.unsure_times * item->predicted_ns
            : tuning.patience_ns;

    if (is_to_learn(item)) {
        *unsure_ns = max_u64(*unsure_ns, sched->now_ns) + bar_ns;
        *unsure_ns = min_u64(*unsure_ns, sched->now_ns + tuning.patience_ns);
    }
}

void fill_grant(struct weir_sched *sched, struct item *item)
{
    const struct turn *turn = &sched->turn;

    sched->fillers += item->filler;
    sched->equal_fillers += item->fills_equal;
    item->teaches = (is_to_learn(item) && !item->fills_equal) ||
                    (turn->clean && item->queue->tenant == turn->leader && is_compute(item));
    if (item->teaches) {
        sched->teachers++;
        sched->teachers_ns = sched->now_ns + tuning.patience_ns;
    }
}

/* Is an item on the device that would teach nothing beside a filler? It counts for a bounded time,
 * since it may be long. */
static bool is_learning(const struct weir_sched *sched)
{
    return sched->teachers != 0 && sched->now_ns < sched->teachers_ns;
}

/* Are the durations of this equal's and the leader's work known well enough for it to fill? */
static bool is_known_well(const struct weir_sched *sched, const struct tenant *filler)
{
    const struct tenant *leader = sched->turn.leader;

    return !sched->turn.clean && sched->now_ns >= leader->unsure_ns &&
           sched->now_ns >= filler->unsure_ns &&
           sched->now_ns - filler->clean_ns < 2 * tuning.clean_every_ns;
}

uint64_t weir_sched_fill_bound_ns(const struct weir_sched_config *config,
                                  enum weir_sched_level level)
{
    return (level == WEIR_SCHED_BELOW_EQUAL ? tuning.fill_depth_equals : tuning.fill_depth) *
           config->inflight_ns;
}

static bool is_equal(const struct weir_sched *sched, const struct tenant *filler)
{
    return filler->view.priority == sched->turn.leader->view.priority;
}

uint64_t fill_bound_ns(const struct weir_sched *sched, const struct tenant *tenant)
{
    return weir_sched_fill_bound_ns(&sched->config, is_equal(sched, tenant) ? WEIR_SCHED_BELOW_EQUAL
                                                                            : WEIR_SCHED_BELOW);
}

/* Is work of a lower class on the device? An equal's item would wait for it at the lowest level. */
static bool is_below_lower(const struct weir_sched *sched)
{
    const struct item *front = sched->front_first[WEIR_SCHED_COMPUTE];

    while (front && front->queue->tenant->view.priority >= sched->turn.leader->view.priority) {
        front = front->front_next;
    }
    return front != NULL;
}

/* Is an item short beside a stoppable kernel of the leader? At the lowest level it would wait for
 * that kernel and for the next one; its own turn comes sooner. */
static bool is_short_here(const struct weir_sched *sched, const struct item *item)
{
    const struct queue *queue = sched->turn.leader->queues;
    uint64_t long_ns = max_u64(tuning.wait_max_ns, tuning.fill_short_part * item->predicted_ns);

    while (queue &&
           (!queue->heads || !is_stoppable(queue->first) || queue->first->predicted_ns < long_ns)) {
        queue = queue->next;
    }
    return queue != NULL;
}

bool fills(const struct weir_sched *sched, const struct item *item)
{
    const struct tenant *leader = sched->turn.leader;
    const struct tenant *tenant = item->queue->tenant;

    if (!is_compute(item) || is_stoppable(item) || limit_sms(item->queue) < sched->config.sms ||
        !is_beside(tenant, leader)) {
        return false;
    }
    if (tenant->view.priority < leader->view.priority) {
        return sched->equal_fillers == 0;
    }
    return !is_too_unsure(item) &&
           (sched->turn.keep_ns != 0 || (is_known_well(sched, tenant) && !is_learning(sched))) &&
           pair_gain_may_fill(sched, leader, tenant) &&
           item_block_ns(sched, item) <= tuning.fill_block_max_ns && !is_short_here(sched, item) &&
           !is_below_lower(sched);
}

static struct tenant *ask(struct weir_sched *sched)
{
    struct weir_policy *policy = &sched->policy[WEIR_POLICY_NEXT];
    struct weir_policy_next_view view = {
        .now_ns = sched->now_ns,
        .ready = sched->order,
        .leader = &sched->turn.leader->view,
    };
    uint32_t i;

    if (!policy->ops->filler) {
        return NULL;
    }
    order_ready(sched);
    view.ready_count = sched->order_count;
    i = policy->ops->filler(policy, &view);
    return i < view.ready_count && !view.ready[i]->member ? tenant_of(view.ready[i]) : NULL;
}

static void fill_queue(struct weir_sched *sched, struct queue *queue, uint64_t *wake_ns)
{
    static const struct weir_sched_place anywhere;
    const struct tenant *tenant = queue->tenant;
    bool equal = is_equal(sched, tenant);
    uint64_t bound_ns = fill_bound_ns(sched, tenant);
    struct item *item;

    if (queue->on_device != 0 && queue->first->state != WEIR_SCHED_GRANTED) {
        return; /* an item would wait behind the stopped one */
    }
    if (queue->on_device != 0 && is_first(queue->first)) {
        return; /* what comes behind it may go above, too */
    }
    while ((item = queue->listed) && fills(sched, item)) {
        if (queue->on_device != 0 && queue_rest_ns(sched, queue) >= bound_ns) {
            break;
        }
        item->filler = true;
        item->fills_equal = equal;
        if (equal) {
            fronts_disturb(sched);
        }
        item_start(sched, item, &anywhere);
    }
    if (item && fills(sched, item)) {
        wake_for(sched, queue, bound_ns, wake_ns);
    }
}

void fill(struct weir_sched *sched, uint64_t *wake_ns)
{
    struct turn *turn = &sched->turn;

    if (sched->config.fill != WEIR_SCHED_FILL_ALL || turn->members != 1 || turn->hold_ns != 0 ||
        turn->leader->exclusive ||
        (turn->leader->is_ready ? sched->ready_count < 2 : turn->kept_until_ns <= sched->now_ns)) {
        return;
    }
    if (!turn->filler ? sched->now_ns >= turn->nobody_until_ns
                      : !turn->filler->is_ready || turn->filler->view.member ||
                            turn->filler->exclusive || sched->now_ns >= turn->filler_until_ns) {
        turn->filler = ask(sched);
        turn->filler_until_ns = sched->now_ns + tuning.again_ns;
        turn->nobody_until_ns =
            sched->now_ns +
            (sched->ready_count > tuning.few ? sched->ready_count * tuning.fill_ask_ns : 0);
    }
    *wake_ns = min_u64(*wake_ns, max_u64(turn->filler_until_ns, turn->nobody_until_ns));
    if (!turn->filler) {
        return;
    }
    for (struct queue *queue = turn->filler->queues; queue; queue = queue->next) {
        fill_queue(sched, queue, wake_ns);
    }
    tenant_refresh(sched, turn->filler);
}
