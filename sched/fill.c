/*
 * Filling: what the leader's kernels leave of the device goes to one other tenant at a time.
 *
 * A device whose streams have levels places the blocks of a higher level first, so work at a lower
 * one costs the leader little: it gets SMs at the ends of kernels, between them, and where a grid
 * is too small for all. Of a lower class that is all there is to it. Of the leader's own class a
 * filler is granted at the lowest level, and only what lets go of its SMs soon, because a block
 * that runs is not taken off them. Work of lower classes would run before it there, and may
 * be long. So equals and lower classes never fill together: one begins when the other's work is
 * done.
 *
 * Who fills is the policy's to say. What a filler has done is charged when it is done, with the
 * time that it is known to take alone, since who of the two had the SMs is the device's secret; so
 * all tenants' service together may be more than the device's time. Among equals the leader, too,
 * pays for its work and not for the time in which a filler was in its way: what its kernels take
 * alone. It gets back no more than fillers have paid, so that who makes kernels longer than they
 * are known to be gains nothing by leading.
 *
 * So shares are as good as predictions, and beside an equal nothing can be learned but what is
 * forgotten as soon as something better is known. Hence equals share only what both are sure of,
 * or what is too short to matter: a tenant of whom something came that was not yet learned of often
 * enough has turns of its own for a while, in proportion to what that takes, and until such an item
 * of a turn is done, which may wait for longer than that before it begins, no equal fills anything.
 * And every tenant has a turn now and then in which none of its equals fills, which begins when
 * those that do are done, and what it gave the device has no such company afterwards either; who
 * had none for long does not fill, falls behind, and so gets one.
 *
 * Source: in effect NVIDIA's MPS, where clients' kernels fill each other's gaps, but under shares.
 * The levels: CUDA's stream priorities.
 */
#include "sched/private.h"

#define TURN_NS 1000000u /* a filler is chosen anew after that */
/* Where nobody fills it is asked again with the next event, or, of many who are ready, after that
 * time each: the answer costs some tens of ns each. */
#define FEW          8u
#define ASK_NS       1000u
#define BLOCK_MAX_NS 500000u /* a leader's blocks wait no longer for one */
/* Times inflight_ns: by what it has queued who fills keeps nobody of higher classes waiting, and an
 * equal that fills no more than itself, when its turn comes. */
#define DEPTH        8u
#define DEPTH_EQUALS 2u
#define LONG_NS      1000000u   /* beside such a kernel of the leader's no equal fills .. */
#define SHORT_PART   8u         /* .. with what is that much shorter */
#define CLEAN_NS     200000000u /* a tenant's turn is clean if its last that was began before that */
#define DRAIN_NS     5000000u /* it waits for others' fillers that are under way, at most so long */
/* A tenant has turns of its own for so many times as long as something takes that is still to be
 * learned, at most so long. */
#define UNSURE_TIMES 16u
#define UNSURE_NS    50000000u

/* Does it begin its turn with something from which there is to be learned? */
static bool has_to_learn(const struct tenant *tenant)
{
    const struct queue *queue = tenant->queues;

    while (queue != NULL && (queue->listed == NULL || !is_to_learn(queue->listed))) {
        queue = queue->next;
    }
    return queue != NULL;
}

void fill_begin(struct weir_sched *sched)
{
    struct turn *turn = &sched->turn;

    turn->filler = NULL;
    turn->clean =
        sched->config.fill >= WEIR_SCHED_FILL_ALL && turn->keep_ns == 0 &&
        (sched->now_ns - turn->leader->clean_ns >= CLEAN_NS || has_to_learn(turn->leader));
    if (turn->clean) {
        turn->leader->clean_ns = sched->now_ns;
        turn->clear_by_ns = sched->now_ns + DRAIN_NS;
    }
}

bool fill_drains(const struct weir_sched *sched, const struct item *front)
{
    return sched->turn.clean && front->fills_equal && front->queue->tenant != sched->turn.leader;
}

/* In proportion to what it takes: a training step has hundreds of kernels, some of which the marks
 * never separate often enough, and one of them is always on its way; but they are a small part of
 * its time. */
void fill_arrival(struct weir_sched *sched, const struct item *item)
{
    uint64_t *unsure_ns = &item->queue->tenant->unsure_ns;
    uint64_t bar_ns = item->predicted_ns != 0 && item->predicted_ns < UNSURE_NS / UNSURE_TIMES
                          ? UNSURE_TIMES * item->predicted_ns
                          : UNSURE_NS;

    if (is_to_learn(item)) {
        *unsure_ns = max_u64(*unsure_ns, sched->now_ns) + bar_ns;
        *unsure_ns = min_u64(*unsure_ns, sched->now_ns + UNSURE_NS);
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
        sched->teachers_ns = sched->now_ns + UNSURE_NS;
    }
}

/* Is something on the device that would be seen disturbed, and hence teach nothing? Not for ever,
 * for it may be long. */
static bool is_learning(const struct weir_sched *sched)
{
    return sched->teachers != 0 && sched->now_ns < sched->teachers_ns;
}

/* May this equal fill, as far as what is known of its work and of the leader's is true? */
static bool is_known_well(const struct weir_sched *sched, const struct tenant *filler)
{
    const struct tenant *leader = sched->turn.leader;

    return !sched->turn.clean && sched->now_ns >= leader->unsure_ns &&
           sched->now_ns >= filler->unsure_ns && sched->now_ns - filler->clean_ns < 2 * CLEAN_NS;
}

/* How long its blocks keep their SMs. */
static uint64_t block_ns(const struct weir_sched *sched, const struct item *item)
{
    uint64_t at_once = (uint64_t)item->params.blocks_per_sm * sched->config.sms;
    uint64_t waves = at_once != 0 ? (item->params.blocks + at_once - 1) / at_once : 1;

    return item->predicted_ns / (waves != 0 ? waves : 1);
}

uint64_t weir_sched_fill_bound_ns(const struct weir_sched_config *config,
                                  enum weir_sched_level level)
{
    return (level == WEIR_SCHED_BELOW_EQUAL ? DEPTH_EQUALS : DEPTH) * config->inflight_ns;
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

/* At the lowest level it would wait for all of theirs, and its tenant is no lower than they. */
static bool is_below_lower(const struct weir_sched *sched)
{
    const struct item *front = sched->front_first[WEIR_SCHED_COMPUTE];

    while (front != NULL &&
           front->queue->tenant->view.priority >= sched->turn.leader->view.priority) {
        front = front->front_next;
    }
    return front != NULL;
}

/* Is it short beside what the leader has there, and that can be stopped? At the lowest level it
 * would wait for that and for the next one; its own turn comes sooner. */
static bool is_short_here(const struct weir_sched *sched, const struct item *item)
{
    const struct queue *queue = sched->turn.leader->queues;
    uint64_t long_ns = max_u64(LONG_NS, SHORT_PART * item->predicted_ns);

    while (queue != NULL &&
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
    return sched->config.fill >= WEIR_SCHED_FILL_ALL && !is_too_unsure(item) &&
           (sched->turn.keep_ns != 0 || (is_known_well(sched, tenant) && !is_learning(sched))) &&
           pair_gain_may_fill(sched, leader, tenant) && block_ns(sched, item) <= BLOCK_MAX_NS &&
           !is_short_here(sched, item) && !is_below_lower(sched);
}

static struct tenant *ask(struct weir_sched *sched)
{
    struct weir_policy *policy = &sched->policy[WEIR_POLICY_NEXT];
    struct weir_policy_next_view view = {
        .now_ns = sched->now_ns,
        .why = WEIR_POLICY_RETRY,
        .ready = sched->order,
        .leader = &sched->turn.leader->view,
    };
    uint32_t i;

    if (policy->ops->filler == NULL) {
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
        return; /* behind something that is stopped it would wait */
    }
    while ((item = queue->listed) != NULL && fills(sched, item)) {
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
    if (item != NULL && fills(sched, item)) {
        wake_for(sched, queue, bound_ns, wake_ns);
    }
}

void fill(struct weir_sched *sched, uint64_t *wake_ns)
{
    struct turn *turn = &sched->turn;

    if (!sched->config.fill || turn->members != 1 || turn->leader->exclusive ||
        (turn->leader->is_ready ? sched->ready_count < 2 : turn->kept_until_ns <= sched->now_ns)) {
        return;
    }
    if (turn->filler == NULL
            ? sched->now_ns >= turn->nobody_until_ns
            : !turn->filler->is_ready || turn->filler->view.member || turn->filler->exclusive ||
                  sched->now_ns >= turn->filler_until_ns) {
        turn->filler = ask(sched);
        turn->filler_until_ns = sched->now_ns + TURN_NS;
        turn->nobody_until_ns =
            sched->now_ns + (sched->ready_count > FEW ? sched->ready_count * ASK_NS : 0);
    }
    *wake_ns = min_u64(*wake_ns, max_u64(turn->filler_until_ns, turn->nobody_until_ns));
    if (turn->filler == NULL) {
        return;
    }
    for (struct queue *queue = turn->filler->queues; queue != NULL; queue = queue->next) {
        fill_queue(sched, queue, wake_ns);
    }
    tenant_refresh(sched, turn->filler);
}
