/*
 * Work beside the leader.
 *
 * One tenant leads, and its kernels leave a part of the device. Others' work is granted there in
 * three ways, at three levels: the device places blocks of a higher stream priority first.
 *
 *     goes first   above    work of a tenant that was away and needs little. At the plain level it
 *                           would wait for all blocks of others' kernels: 100 us of work beside
 *                           kernels of 3.2 ms took 2.6 ms (simulated)
 *     small        above    graphs that need only some of the SMs, until they need
 *                  or plain config.small_sms together. With many such tenants most of the device
 *                           would be idle in turns
 *     filler       below    kernels of one other tenant use what the leader's kernels leave: at
 *                           their ends, between them, and where a grid is too small for all SMs
 *
 * The policy says who goes first, and chooses the tenant whose small item is next and the filler:
 * `fair` the one that is furthest behind, and none that is ahead by more than a slice. This is
 * start-time fair queueing with a depth, counted in SMs. Only graphs are small: if a program
 * launches single kernels, some of them would run beside the leader while others take turns, and
 * the longest waits would grow (eager inference beside a training: p99 of 20 ms instead of 12;
 * H100, 2026-11-25).
 *
 * Work that goes first and fillers are charged the time that they are known to take alone, small
 * items their SMs or their part of all (charge.c, small.c). So an item of unknown duration does not
 * go first, and all tenants' service together may exceed the device's time.
 *
 * A filler of a lower class may run anything that fits. A filler of the leader's own class, an
 * *equal*, may run only items that release their SMs soon, as running blocks stay on their SMs. It
 * would have to wait for work of lower classes, which may be long, so equals and lower classes
 * never fill together. Beside an equal the leader, too, pays the time that its kernels are known to
 * take. So shares are only as good as predictions, but items beside an equal teach little. Hence
 * equals fill only with items, and beside items, whose durations are sure or very short:
 *
 *   - when an item arrives whose duration is to be learned, its tenant has turns of its own for a
 *     time in proportion to that duration, and no equal fills while such an item is on the device;
 *   - every tenant now and then has a *clean* turn, which begins when equal fillers are done and
 *     has none, as long as its items are on the device. A tenant without a clean turn for long may
 *     not fill, so it falls behind and gets one.
 *
 * Sources: SFQ(D): Jin, Chase, Kaur, Interposed Proportional Sharing for a Storage Service Utility
 * (SIGMETRICS 2004). Filling is in effect NVIDIA's MPS, where clients' kernels fill each other's
 * gaps, but under shares.
 */
#include "sched/private.h"

static const struct weir_sched_place anywhere;

/* May the tenant's work be on the device beside the leader's? */
static bool may_pass(const struct weir_sched *sched, const struct tenant *tenant)
{
    return tenant->is_ready && !tenant->view.member && !tenant->exclusive &&
           is_beside(tenant, sched->turn.leader);
}

/* May the queue's next item, which goes first or is small, be granted? Items of the queue on the
 * device must be of the same kind, with less than inflight_ns left. */
static bool has_room(const struct weir_sched *sched, const struct queue *queue)
{
    const struct item *item = queue->listed, *first = queue->first;

    return item && limit_sms(queue) >= sched->config.sms &&
           (queue->on_device == 0 ||
            ((item->small_sms != 0 ? first->small_sms != 0 : is_first(first)) &&
             queue_rest_ns(sched, queue) < sched->config.inflight_ns));
}

/* ---- who goes first ---- */

/* The longest item of a tenant that may go above now; 0: none. */
static uint64_t longest_ns(struct weir_sched *sched, struct tenant *tenant)
{
    const struct weir_policy *policy = &sched->policy[WEIR_POLICY_NEXT];

    if (sched->config.above == 0 || tenant->view.priority != WEIR_PRIORITY_NORMAL ||
        sched->ready.count < 2 || !policy->ops->first_ns) {
        return 0;
    }
    view_refresh(sched, tenant);
    return policy->ops->first_ns(policy, &tenant->view);
}

bool first_goes_above(struct weir_sched *sched, const struct item *item)
{
    return is_compute(item) && item->small_sms == 0 && item->predicted_ns != 0 &&
           (item->params.flags & WEIR_SCHED_OWN_LEVELS) == 0 && sched->turn.members == 1 &&
           item->predicted_ns <= longest_ns(sched, item->queue->tenant);
}

enum weir_sched_level level_now(struct weir_sched *sched, const struct item *item)
{
    return small_goes_above(sched, item) || first_goes_above(sched, item) ? WEIR_SCHED_ABOVE
                                                                          : WEIR_SCHED_PLAIN;
}

/* If a tenant that goes first but does not lead may have a new next item, grant its items. */
static void pass_first(struct weir_sched *sched)
{
    struct tenant *tenant = table_get(&sched->tenants, sched->turn.fresh);

    sched->turn.fresh = 0;
    if (!tenant || !may_pass(sched, tenant)) {
        return;
    }
    for (struct queue *queue = tenant->queues; queue; queue = queue->next) {
        while (has_room(sched, queue) && first_goes_above(sched, queue->listed)) {
            item_start(sched, queue->listed, &anywhere, WEIR_SCHED_ABOVE);
        }
    }
    tenant_refresh(sched, tenant);
}

/* ---- the policy's choice: small items and fillers ---- */

/* Find a queue whose next item is small, needs at most `most` SMs and may be granted; or NULL. */
static struct queue *queue_of_small(const struct weir_sched *sched, const struct tenant *tenant,
                                    uint32_t most)
{
    for (struct queue *queue = tenant->queues; queue; queue = queue->next) {
        if (has_room(sched, queue) && queue->listed->small_sms != 0) {
            return queue->listed->small_sms <= most ? queue : NULL;
        }
    }
    return NULL;
}

/* Could the tenant be the filler? Beside an equal, only a kernel whose duration is well known may
 * fill. */
static bool could_fill(const struct weir_sched *sched, const struct tenant *tenant)
{
    return tenant->view.waiting != 0 &&
           (tenant->view.priority < sched->turn.leader->view.priority ||
            !tenant->view.kernel.unsure);
}

/* Ask the policy whose work to grant beside the leader: the tenant whose small item needs at most
 * free_sms SMs or, if free_sms is 0, the next filler. NULL: nobody's. */
static struct tenant *ask(struct weir_sched *sched, uint32_t free_sms)
{
    struct weir_policy *policy = &sched->policy[WEIR_POLICY_NEXT];
    struct weir_policy_next_view view = {.now_ns = sched->now_ns,
                                         .ready = sched->ready.list,
                                         .ready_count = sched->ready.count,
                                         .leader = &sched->turn.leader->view,
                                         .free_sms = free_sms};
    bool any = false;
    uint32_t i;

    if (!policy->ops->beside) {
        return NULL;
    }
    for (i = 0; i < sched->ready.count; i++) {
        struct tenant *tenant = tenant_of(sched->ready.list[i]);

        view_refresh(sched, tenant);
        tenant->view.may_pass = may_pass(sched, tenant) &&
                                (free_sms != 0 ? queue_of_small(sched, tenant, free_sms) != NULL
                                               : could_fill(sched, tenant));
        any |= tenant->view.may_pass;
    }
    i = any ? policy->ops->beside(policy, &view) : UINT32_MAX;
    return i < sched->ready.count && sched->ready.list[i]->may_pass
               ? tenant_of(sched->ready.list[i])
               : NULL;
}

/*
 * Has the leader an item on the device that was granted while the leader was a filler? This item is
 * at the lowest stream priority: more small items would keep it, and so the leader, from the SMs,
 * and the leader's turn would never end, because it is not served.
 */
static bool is_leader_below(const struct weir_sched *sched)
{
    const struct item *front = sched->fronts.first[WEIR_SCHED_COMPUTE];

    while (front &&
           (front->level != WEIR_SCHED_BELOW_EQUAL || front->queue->tenant != sched->turn.leader)) {
        front = front->front_next;
    }
    return front != NULL;
}

static void pass_small(struct weir_sched *sched)
{
    uint32_t most = sched->config.small_sms, used;
    struct tenant *tenant;

    if (most == 0 || is_leader_below(sched)) {
        return;
    }
    used = small_in_use(sched);
    while (used < most && (tenant = ask(sched, most - used))) {
        struct queue *queue = queue_of_small(sched, tenant, most - used);

        used += queue->on_device == 0 ? queue->listed->small_sms : 0;
        item_start(sched, queue->listed, &anywhere, level_now(sched, queue->listed));
        tenant_refresh(sched, tenant);
    }
}

/* ---- fillers ---- */

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
                  longest_ns(sched, turn->leader) == 0 &&
                  (sched->now_ns - turn->leader->beside.clean_ns >= tuning.clean_every_ns ||
                   has_to_learn(turn->leader));
    if (turn->clean) {
        turn->leader->beside.clean_ns = sched->now_ns;
        turn->clear_by_ns = sched->now_ns + tuning.clean_drain_ns;
    }
}

bool fill_drains(const struct weir_sched *sched, const struct item *front)
{
    return sched->turn.clean && front->level == WEIR_SCHED_BELOW_EQUAL &&
           front->queue->tenant != sched->turn.leader;
}

/* Equals may not fill for a time in proportion to the item's. A training step has hundreds of
 * kernels. The ends of a few are seen too rarely, but these few are a small part of the step. */
void fill_arrival(struct weir_sched *sched, const struct item *item)
{
    uint64_t *unsure_ns = &item->queue->tenant->beside.unsure_ns;
    uint64_t bar_ns =
        item->predicted_ns != 0 && item->predicted_ns < tuning.patience_ns / tuning.unsure_times
            ? tuning.unsure_times * item->predicted_ns
            : tuning.patience_ns;

    if (is_to_learn(item)) {
        *unsure_ns = max_u64(*unsure_ns, sched->now_ns) + bar_ns;
        *unsure_ns = min_u64(*unsure_ns, sched->now_ns + tuning.patience_ns);
    }
}

/* Does an item on the device, whose duration is to be learned, keep equals from filling? It does so
 * for a bounded time, since it may be long. */
static bool is_learning(const struct weir_sched *sched)
{
    return sched->fill.teachers != 0 && sched->now_ns < sched->fill.teachers_ns;
}

/* Are the durations of this equal's and the leader's work known well enough for it to fill? */
static bool is_known_well(const struct weir_sched *sched, const struct tenant *filler)
{
    const struct tenant *leader = sched->turn.leader;

    return !sched->turn.clean && sched->now_ns >= leader->beside.unsure_ns &&
           sched->now_ns >= filler->beside.unsure_ns &&
           sched->now_ns - filler->beside.clean_ns < 2 * tuning.clean_every_ns;
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

/* Is work of a lower class on the device? A filler of the leader's class would wait for it. */
static bool is_below_lower(const struct weir_sched *sched)
{
    const struct item *front = sched->fronts.first[WEIR_SCHED_COMPUTE];

    while (front && front->queue->tenant->view.priority >= sched->turn.leader->view.priority) {
        front = front->front_next;
    }
    return front != NULL;
}

/* Is an item much shorter than a stoppable kernel of the leader? As a filler it would wait for that
 * kernel and for the next one, and its tenant's own turn comes sooner. */
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
        return sched->fill.equals == 0;
    }
    return !is_too_unsure(item) &&
           (sched->turn.keep_ns != 0 || (is_known_well(sched, tenant) && !is_learning(sched))) &&
           pair_gain_may_fill(sched, leader, tenant) &&
           item_block_ns(sched, item) <= tuning.fill_block_max_ns && !is_short_here(sched, item) &&
           !is_below_lower(sched);
}

static void fill_queue(struct weir_sched *sched, struct queue *queue, uint64_t *wake_ns)
{
    const struct tenant *tenant = queue->tenant;
    enum weir_sched_level level =
        is_equal(sched, tenant) ? WEIR_SCHED_BELOW_EQUAL : WEIR_SCHED_BELOW;
    uint64_t bound_ns = fill_bound_ns(sched, tenant);
    struct item *item;

    if (queue->on_device != 0 &&
        (queue->first->state != WEIR_SCHED_GRANTED || is_first(queue->first))) {
        return; /* it would wait behind a stopped item; behind a first one it may go above */
    }
    while ((item = queue->listed) && fills(sched, item)) {
        if (queue->on_device != 0 && queue_rest_ns(sched, queue) >= bound_ns) {
            break;
        }
        item_start(sched, item, &anywhere, level);
    }
    if (item && fills(sched, item)) {
        wake_for(sched, queue, bound_ns, wake_ns);
    }
}

static void fill(struct weir_sched *sched, uint64_t *wake_ns)
{
    struct turn *turn = &sched->turn;

    if (sched->config.fill != WEIR_SCHED_FILL_ALL ||
        (!turn->leader->is_ready && turn->kept_until_ns <= sched->now_ns)) {
        return;
    }
    if (!turn->filler ? sched->now_ns >= turn->nobody_until_ns
                      : !may_pass(sched, turn->filler) || sched->now_ns >= turn->filler_until_ns) {
        turn->filler = ask(sched, 0);
        turn->filler_until_ns = sched->now_ns + tuning.again_ns;
        turn->nobody_until_ns =
            sched->now_ns +
            (sched->ready.count > tuning.few ? sched->ready.count * tuning.fill_ask_ns : 0);
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

void pass_beside(struct weir_sched *sched, uint64_t *wake_ns)
{
    const struct turn *turn = &sched->turn;

    if (turn->members != 1 || turn->leader->exclusive) {
        return;
    }
    pass_first(sched);
    if (turn->hold_ns == 0 && sched->ready.count > (turn->leader->is_ready ? 1 : 0)) {
        pass_small(sched);
        fill(sched, wake_ns);
    }
}
