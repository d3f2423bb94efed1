/*
 * Decisions about compute: which tenants have the turn, which items are stopped and granted.
 *
 *     one tenant ready    its items are granted, up to alone_ns
 *     several             the policy `next` names a leader for a slice; a group around it (group.c)
 *                         has the device. Items of other tenants are stopped where that is possible
 *                         and pays, or run to their end. Members get up to inflight_ns a queue
 *
 * The slice counts time in which the leader is served, not its wait for others' kernels to end. A
 * leader without work keeps its place for linger_ns, and pays for it. The watchdog is asked before
 * the policy (watchdog.c).
 *
 * Decisions depend only on the core's state and on the time it was given.
 */
#include "sched/private.h"

#include <assert.h>

/* ---- asking `next` ---- */

static uint32_t longest_waiting(struct weir_sched *sched,
                                const struct weir_policy_tenant *const *ready, uint32_t count)
{
    uint32_t best = 0;

    for (uint32_t i = 0; i < count; i++) {
        view_refresh(sched, tenant_of(ready[i]));
        if (ready[i]->waiting_since_ns < ready[best]->waiting_since_ns) {
            best = i;
        }
    }
    return best;
}

/* Ask the policy to choose among these tenants. leader: the present one, or NULL. */
static struct weir_policy_choice ask_next(struct weir_sched *sched, bool arrived,
                                          const struct tenant *leader,
                                          const struct weir_policy_tenant *const *ready,
                                          uint32_t count)
{
    struct weir_policy *policy = &sched->policy[WEIR_POLICY_NEXT];
    struct weir_policy_choice plain = {.slice_ns = 1000000};
    struct weir_policy_next_view view = {
        .now_ns = sched->now_ns,
        .arrived = arrived,
        .ready = ready,
        .ready_count = count,
        .leader = leader ? &leader->view : NULL,
        .used_ns = sched->turn.used_ns,
        .slice_ns = sched->turn.slice_ns,
    };

    plain.ready = longest_waiting(sched, ready, count);
    struct weir_policy_choice choice = plain;
    sched->counts.decisions++;
    policy->ops->next(policy, &view, &choice);
    if (choice.ready >= count) {
        policy_blame(sched, WEIR_POLICY_NEXT, MISTAKE_NONSENSE, "named nobody", NULL);
        choice = plain;
    }
    choice.slice_ns = WEIR_MAX(choice.slice_ns, SLICE_MIN_NS);
    choice.slice_ns = min_u64(choice.slice_ns, SLICE_MAX_NS);
    choice.linger_ns = min_u64(choice.linger_ns, choice.slice_ns);
    return choice;
}

static void lead(struct weir_sched *sched, struct tenant *leader,
                 const struct weir_policy_choice *choice)
{
    turn_begin(sched, leader, choice->slice_ns, choice->keep_ns);
    sched->turn.linger_ns = choice->linger_ns;
}

static void choose(struct weir_sched *sched, bool arrived)
{
    struct turn *turn = &sched->turn;
    struct tenant *old = turn->leader;
    struct weir_policy_choice choice =
        ask_next(sched, arrived, old, sched->ready.list, sched->ready.count);
    struct tenant *leader = tenant_of(sched->ready.list[choice.ready]);

    sched->news.arrived = false;
    sched->news.changed = false;
    if (leader == old && turn->used_ns < turn->slice_ns) {
        return;
    }
    lead(sched, leader, &choice);
    if (leader == old) {
        return; /* a new slice for the same group */
    }
    if (!group_keeps(sched, leader)) {
        group_of(sched);
        sched->news.group = true;
    }
}

/*
 * Is the leader's work about to end: nothing can be granted, and each queue has at most one compute
 * item on the device, with a copy behind it? Then the next leader can be granted work now, as at
 * the end of a slice. *wake_ns: when at most inflight_ns of the leader's work will be left.
 */
static bool is_spent(const struct weir_sched *sched, uint64_t *wake_ns)
{
    const struct tenant *leader = sched->turn.leader;
    uint64_t rest_ns = 0;

    if (!leader || leader->counts.heads == 0 || leader->view.waiting != 0) {
        return false;
    }
    for (const struct queue *queue = leader->queues; queue; queue = queue->next) {
        if (queue->kernels == 0) {
            continue;
        }
        if (queue->kernels > 1 || queue->stoppable != 0 || !queue->heads || !queue->first->next ||
            is_compute(queue->first->next) || queue->first->predicted_ns == 0) {
            return false;
        }
        rest_ns = max_u64(rest_ns, item_rest_ns(sched, queue->first));
    }
    if (rest_ns > sched->config.inflight_ns) {
        *wake_ns = min_u64(*wake_ns, sched->now_ns + rest_ns - sched->config.inflight_ns);
        return false;
    }
    return true;
}

static bool has_heirs(const struct weir_sched *sched, const struct tenant *leader)
{
    for (uint32_t i = 0; i < sched->ready.count; i++) {
        if (sched->ready.list[i]->waiting != 0 &&
            sched->ready.list[i]->priority == leader->view.priority) {
            return true;
        }
    }
    return false;
}

/*
 * If the leader's work is about to end, choose its successor now from the others. Otherwise the
 * choice would wait until the last kernel is seen to end, and the device until the next thread
 * wakes (some 60 us at each end of a task on an H200, 2026-11-23). This is not done for a leader
 * that may linger, nor for one to which a policy gave the device alone so that it catches up.
 */
static void hand_over(struct weir_sched *sched, uint64_t *wake_ns)
{
    struct turn *turn = &sched->turn;
    const struct tenant *old = turn->leader;
    uint32_t others = 0;

    if (turn->rescue || turn->linger_ns != 0 || turn->members != 1 || turn->hold_ns != 0 ||
        !is_spent(sched, wake_ns) || !has_heirs(sched, old)) {
        return;
    }
    /* The old leader stays ready until its last item ends, so leave it out. */
    for (uint32_t i = 0; i < sched->ready.count; i++) {
        if (sched->ready.list[i] != &old->view) {
            sched->ready.order[others++] = sched->ready.list[i];
        }
    }
    struct weir_policy_choice choice = ask_next(sched, false, NULL, sched->ready.order, others);
    struct tenant *next = tenant_of(sched->ready.order[choice.ready]);
    if (next->view.waiting != 0) {
        lead(sched, next, &choice);
        group_of(sched);
        sched->news.group = true;
    }
}

/* Is another tenant of this class or above ready? */
static bool is_other_ready(const struct weir_sched *sched, int class)
{
    const struct tenant *leader = sched->turn.leader;
    uint32_t i = 0;

    while (i < sched->ready.count &&
           (sched->ready.list[i] == &leader->view || (int)sched->ready.list[i]->priority < class)) {
        i++;
    }
    return i < sched->ready.count;
}

/* Has a tenant of the leader's class that cannot be a filler waited for slack_ns? */
static bool keeps_out(struct weir_sched *sched)
{
    const struct tenant *leader = sched->turn.leader;

    for (uint32_t i = 0; i < sched->ready.count; i++) {
        struct tenant *tenant = tenant_of(sched->ready.list[i]);

        view_refresh(sched, tenant);
        if (tenant->view.priority == leader->view.priority &&
            tenant->view.waiting_since_ns <
                sched->now_ns - min_u64(sched->now_ns, tuning.slack_ns) &&
            (tenant->exclusive || tenant->view.kernel.unsure || !is_beside(tenant, leader))) {
            return true;
        }
    }
    return false;
}

/* Does the absent leader keep its turn, because equals fill and no other tenant claims it? */
static bool is_kept(struct weir_sched *sched)
{
    return sched->turn.kept_until_ns > sched->now_ns && sched->fill.equals != 0 &&
           (!sched->news.arrived || sched->ready.count < 2) && !keeps_out(sched);
}

/* Is the turn over, so that the policy `next` names a leader? */
static bool is_over(struct weir_sched *sched)
{
    const struct turn *turn = &sched->turn;

    if (!turn->leader) {
        return true;
    }
    if (!turn->leader->is_ready) {
        return (turn->linger_until_ns <= sched->now_ns && !is_kept(sched) &&
                !group_is_held(sched)) ||
               (turn->slice_ns != 0 && turn->used_ns >= turn->slice_ns) ||
               is_other_ready(sched, (int)turn->leader->view.priority + 1);
    }
    return turn->used_ns >= turn->slice_ns || (sched->news.changed && !turn->rescue);
}

/* ---- carrying out the decision ---- */

static bool same_place(const struct weir_sched_place *a, const struct weir_sched_place *b)
{
    return a->sm_first == b->sm_first && a->sm_count == b->sm_count &&
           a->block_limit == b->block_limit;
}

/* May the item be stopped, and is that worth it: does the waiting tenant gain more than a stop and
 * a new launch cost? */
static bool should_stop(const struct weir_sched *sched, const struct item *item, uint64_t *wake_ns)
{
    uint64_t rest_ns = item_rest_ns(sched, item);
    uint64_t costs_ns = item->queue->tenant->view.stop_ns + sched->config.launch_ns;

    if (item->state != WEIR_SCHED_GRANTED || !is_compute(item) || !is_stoppable(item) ||
        (rest_ns > 1 && rest_ns <= costs_ns)) {
        return false; /* a rest of 1 means that the prediction was too short */
    }
    if (sched->now_ns < item->at.no_stop_before_ns) {
        *wake_ns = min_u64(*wake_ns, item->at.no_stop_before_ns);
        return false;
    }
    return true;
}

/* Stop the first item of a queue that can be stopped: the items behind it wait for it. */
static void stop_queue(struct weir_sched *sched, const struct queue *queue, uint64_t *wake_ns)
{
    struct item *item = queue->first;
    uint32_t left = queue->stoppable != 0 ? queue->on_device : 0;

    for (; left > 0 && item->state == WEIR_SCHED_GRANTED; left--, item = item->next) {
        if (should_stop(sched, item, wake_ns)) {
            item_stop(sched, item);
            break;
        }
    }
}

/* Stop the items of tenants that are not members. */
static void evict(struct weir_sched *sched, uint64_t *wake_ns)
{
    struct item *front = sched->fronts.first[WEIR_SCHED_COMPUTE];

    for (; front; front = front->front_next) {
        if (!front->queue->tenant->view.member) {
            stop_queue(sched, front->queue, wake_ns);
        }
    }
}

/* Stop items that are held. Wake up when the budget of an item without a range is used
 * up. */
static void hold(struct weir_sched *sched, uint64_t *wake_ns)
{
    struct item *front = sched->fronts.first[WEIR_SCHED_COMPUTE];

    for (; front && (sched->limited || sched->blocked != 0); front = front->front_next) {
        if (queue_is_held(front->queue)) {
            stop_queue(sched, front->queue, wake_ns);
        } else if (front->place.sm_count == 0 && is_stoppable(front)) {
            uint64_t room_ns = limit_room_ns(sched, front->queue);

            *wake_ns = min_u64(*wake_ns, room_ns != NEVER ? sched->now_ns + room_ns : NEVER);
        }
    }
}

/* The place of a member's item. An item that cannot be moved runs anywhere, but in a group of
 * several it is charged for the member's place. */
static struct weir_sched_place place_of(const struct weir_sched *sched, const struct item *item,
                                        const struct weir_sched_place *place)
{
    static const struct weir_sched_place anywhere;
    struct weir_sched_place own = *place;
    uint32_t limit = limit_sms(item->queue);

    if ((item->params.flags & WEIR_SCHED_MOVABLE) == 0) {
        return sched->turn.members > 1 ? *place : anywhere;
    }
    if (limit < (own.sm_count != 0 ? own.sm_count : sched->config.sms)) {
        own.sm_count = limit;
    }
    return own;
}

/* Resume and place a member's items on the device for the current turn. */
static void settle(struct weir_sched *sched, struct queue *queue,
                   const struct weir_sched_place *member_place)
{
    const struct settled now = {.place = *member_place,
                                .limit_sms = limit_sms(queue),
                                .in_company = sched->turn.members > 1,
                                .valid = true};
    struct item *item = queue->first;

    if (queue_is_held(queue) ||
        (queue->settled.valid && same_place(&queue->settled.place, &now.place) &&
         queue->settled.limit_sms == now.limit_sms &&
         queue->settled.in_company == now.in_company)) {
        return;
    }
    for (uint32_t left = queue->on_device; left > 0; left--, item = item->next) {
        struct weir_sched_place place = place_of(sched, item, member_place);

        if (!is_compute(item)) {
            continue;
        }
        if (item->state == WEIR_SCHED_STOPPED) {
            item_resume(sched, item, &place);
        } else if (item->state == WEIR_SCHED_GRANTED && !same_place(&item->place, &place)) {
            if ((item->params.flags & WEIR_SCHED_MOVABLE) != 0) {
                if (sched->env.resize) { /* the environment ignores it for what is in a part */
                    item_resize(sched, item, &place);
                }
            } else if ((item->params.flags & WEIR_SCHED_PARTABLE) == 0) {
                item->place = place; /* otherwise it stays where it was started */
            }
        }
    }
    queue->settled = now;
}

/*
 * Will the leader's slice end before another item of this queue could begin? Then nothing more is
 * granted. The slice ends now, and the policy chooses, so that the next leader's work is there when
 * the queue's last item ends.
 */
static bool ends_before(struct weir_sched *sched, const struct queue *queue)
{
    struct turn *turn = &sched->turn;

    if (queue->tenant != turn->leader || sched->ready.count < 2 || queue->on_device == 0 ||
        turn->used_ns + queue_rest_ns(sched, queue) < turn->slice_ns) {
        return false;
    }
    if (turn->used_ns > 0) {
        turn->slice_ns = turn->used_ns;
        sched->news.ready = true;
    }
    return true;
}

/*
 * How much predicted work a member's queue may have on the device. A leader without equals may have
 * alone_ns: all others are of lower classes, and wait or are stopped anyway. Otherwise the bound
 * makes sure that the next item is on the device when the running one ends, even if that is sooner
 * than predicted. Without it the device was idle for 0.1 ms each time (kernels of 5 ms that had
 * been stopped, H200).
 */
static uint64_t bound_of(const struct weir_sched *sched, const struct queue *queue)
{
    uint64_t bound_ns = sched->config.inflight_ns;

    if (queue->tenant == sched->turn.leader && !sched->turn.has_equals &&
        sched->turn.members == 1) {
        return sched->config.alone_ns;
    }
    if (queue->on_device == 0 || queue->first->counted_ns <= bound_ns) {
        return bound_ns;
    }
    return bound_ns + min_u64(queue->first->counted_ns / tuning.wait_part, tuning.wait_max_ns);
}

bool weir_sched_waits_for_room(const struct weir_sched *sched, weir_sched_id id)
{
    const struct item *item = table_get(&sched->items, id);
    const struct turn *turn = &sched->turn;

    if (!item || item->queue->listed != item || !is_compute(item) || item->queue->on_device == 0 ||
        !turn->leader) {
        return false;
    }
    const struct tenant *tenant = item->queue->tenant;
    uint64_t rest_ns = queue_rest_ns(sched, item->queue);
    if (tenant == turn->filler) {
        return fills(sched, item) && rest_ns >= fill_bound_ns(sched, tenant);
    }
    if (tenant == turn->leader && sched->ready.count > 1 &&
        turn->used_ns + rest_ns >= turn->slice_ns) {
        return false;
    }
    return tenant->view.member && rest_ns >= bound_of(sched, item->queue);
}

/*
 * May a queue have one more item on the device? The first one always may. If the last item has no
 * prediction, at most unknown_max items may be there, as they may be long and delay others' turns.
 */
static bool has_room(const struct weir_sched *sched, const struct queue *queue, uint64_t bound_ns)
{
    if (queue->on_device >= tuning.unknown_max && sched->turn.has_equals &&
        queue->listed->prev->predicted_ns == 0) {
        return false;
    }
    return queue->on_device == 0 || (queue_rest_ns(sched, queue) < bound_ns &&
                                     ((queue->listed->params.flags & WEIR_SCHED_MOVABLE) != 0 ||
                                      limit_has_room(sched, queue)));
}

/* Grant a queue's next items, as far as the bound allows. crowded: only those that go above. */
static void grant_queue(struct weir_sched *sched, struct queue *queue,
                        const struct weir_sched_place *member_place, uint64_t bound_ns,
                        bool crowded)
{
    struct item *item;
    bool settled = queue->settled.valid;
    bool restricted = member_place->sm_count != 0 && sched->turn.hold_ns == 0 &&
                      (queue->tenant != sched->turn.leader || sched->turn.beside);

    while ((item = queue->listed) && is_compute(item) && has_room(sched, queue, bound_ns)) {
        struct weir_sched_place place = place_of(sched, item, member_place);

        if ((restricted && (item->params.flags & WEIR_SCHED_MOVABLE) == 0) ||
            (crowded && !first_goes_above(sched, item)) || ends_before(sched, queue)) {
            break;
        }
        item_start(sched, item, &place,
                   is_everywhere(&place) ? level_now(sched, item) : WEIR_SCHED_PLAIN);
        queue->settled.valid = settled; /* the new item is at its place */
    }
}

/*
 * Has a tenant of another domain work on the device? The device would slice its time between the
 * domains, so charges would be wrong, and items would seem to take longer than they do. In a quiet
 * turn any other tenant's work counts: under MPS kernels of two programs run side by side, and
 * which of them was served when cannot be seen.
 */
static bool is_foreign(const struct weir_sched *sched)
{
    const struct item *front = sched->fronts.first[WEIR_SCHED_COMPUTE];

    bool quiet = sched->turn.quiet;

    if ((sched->domains.switch_ns == 0 && !quiet) ||
        sched->now_ns >= sched->turn.clear_by_ns + tuning.patience_ns) {
        return false;
    }
    while (front && (front->queue->tenant->view.member || front->state != WEIR_SCHED_GRANTED ||
                     (!quiet && is_beside(front->queue->tenant, sched->turn.leader)))) {
        front = front->front_next;
    }
    return front != NULL;
}

/*
 * Must members wait, because a tenant outside the group has several running items in a queue? The
 * device alternates between streams: the members' work would run in between, and the ends of items
 * would not show which of them was served when. So members begin when only the last of these items
 * is left, and take its SMs as they become free. Lower classes do not count, since the device lets
 * them wait. Fillers count only in a clean turn, in which durations are learned.
 */
static bool is_crowded(const struct weir_sched *sched)
{
    const struct item *front = sched->fronts.first[WEIR_SCHED_COMPUTE];

    if (sched->now_ns >= sched->turn.clear_by_ns) {
        return false; /* that work may wait for the members' items */
    }
    for (; front; front = front->front_next) {
        const struct tenant *tenant = front->queue->tenant;

        if (fill_drains(sched, front) ||
            (!tenant->view.member && !front->waits && !is_filler(front) && front->small_sms == 0 &&
             front->state == WEIR_SCHED_GRANTED && front->queue->on_device > 1 &&
             is_compute(front->next) && front->next->state == WEIR_SCHED_GRANTED &&
             tenant->view.priority == sched->turn.leader->view.priority)) {
            return true;
        }
    }
    return false;
}

static void serve_member(struct weir_sched *sched, struct tenant *tenant,
                         const struct weir_sched_place *place, bool crowded, uint64_t *wake_ns)
{
    for (struct queue *queue = tenant->queues; queue; queue = queue->next) {
        if (!crowded) {
            settle(sched, queue, place);
        }
        grant_queue(sched, queue, place, bound_of(sched, queue), crowded);
        wake_for(sched, queue, bound_of(sched, queue), wake_ns);
    }
    tenant_refresh(sched, tenant);
}

/*
 * Grant a lone tenant up to alone_ns over all queues, but at least one item of each. If others of
 * its class or above had work a moment ago, grant only as much as to a filler. A program that waits
 * for each of its kernels or graphs is back soon, and would have to wait for all work granted
 * meanwhile.
 */
static void serve_alone(struct weir_sched *sched, struct tenant *tenant, uint64_t *wake_ns)
{
    const struct weir_sched_place *place = &sched->turn.member[0].place;
    uint64_t most_ns = sched->now_ns >= sched->alone.quiet_from_ns
                           ? sched->config.alone_ns
                           : weir_sched_fill_bound_ns(&sched->config, WEIR_SCHED_BELOW_EQUAL);
    uint64_t rest_ns = 0;

    for (struct queue *queue = tenant->queues; queue; queue = queue->next) {
        rest_ns += queue_rest_ns(sched, queue);
    }
    for (struct queue *queue = tenant->queues; queue; queue = queue->next) {
        uint64_t own_ns = queue_rest_ns(sched, queue);
        uint64_t others_ns = rest_ns - own_ns;
        uint64_t bound_ns = others_ns < most_ns ? most_ns - others_ns : 0;

        settle(sched, queue, place);
        grant_queue(sched, queue, place, bound_ns, false);
        wake_for(sched, queue, bound_ns, wake_ns);
        rest_ns = others_ns + queue_rest_ns(sched, queue);
    }
    tenant_refresh(sched, tenant);
}

static void rule_alone(struct weir_sched *sched, uint64_t *wake_ns)
{
    struct tenant *tenant = tenant_of(sched->ready.list[0]);

    assert(tenant);
    if (sched->turn.leader != tenant || sched->turn.members != 1 || sched->turn.slice_ns != 0) {
        turn_begin(sched, tenant, 0, 0);
        group_alone(sched);
        if (sched->now_ns <
            sched->alone.quiet_from_ns) { /* the tenant keeps its place, as equals are back soon */
            sched->turn.linger_ns = ask_next(sched, false, NULL, sched->ready.list, 1).linger_ns;
        }
    }
    sched->turn.has_equals = false;
    sched->news.arrived = sched->news.changed = false;
    watchdog_rest(sched);
    serve_alone(sched, tenant, wake_ns);
}

static void rule(struct weir_sched *sched, uint64_t *wake_ns)
{
    struct turn *turn = &sched->turn;

    watchdog_look(sched);
    if (is_over(sched)) {
        choose(sched, false);
    } else if (sched->news.arrived && turn->leader->is_ready && !turn->rescue) {
        choose(sched, true);
    }
    hand_over(sched, wake_ns);
    turn->has_equals = !turn->leader || is_other_ready(sched, (int)turn->leader->view.priority);
    group_outgrown(sched);
    if (group_is_over(sched)) {
        group_ask(sched);
    }
    evict(sched, wake_ns);
    if (is_foreign(sched)) {
        *wake_ns = min_u64(*wake_ns, turn->clear_by_ns + tuning.patience_ns);
    } else {
        bool crowded = is_crowded(sched);

        *wake_ns = crowded ? min_u64(*wake_ns, turn->clear_by_ns) : *wake_ns;
        for (uint32_t i = 0; i < turn->members; i++) {
            serve_member(sched, turn->member[i].tenant, &turn->member[i].place, crowded, wake_ns);
        }
        pass_beside(sched, wake_ns);
    }
    *wake_ns = min_u64(*wake_ns, sched->rescue_after_ns);
    if (turn->linger_until_ns != 0) {
        *wake_ns = min_u64(*wake_ns, turn->linger_until_ns > sched->now_ns ? turn->linger_until_ns
                                                                           : turn->kept_until_ns);
    } else if (is_served(sched, turn->leader)) {
        uint64_t left_ns = turn->slice_ns - min_u64(turn->used_ns, turn->slice_ns);

        *wake_ns = min_u64(*wake_ns, sched->now_ns + (left_ns > 0 ? left_ns : tuning.wake_min_ns));
    }
    if (turn->valid_until_ns > sched->now_ns) {
        *wake_ns = min_u64(*wake_ns, turn->valid_until_ns);
    }
    group_wake(sched, wake_ns);
}

/* A leader that ran out of work keeps its place for a while, or loses it: at once if it is
 * blocked. */
static void look_at_leader(struct weir_sched *sched)
{
    struct turn *turn = &sched->turn;

    if (!turn->leader) {
        return;
    }
    if (turn->leader->is_ready) {
        turn->linger_until_ns = 0;
    } else if (turn->leader->blocked) {
        turn->leader = NULL;
        turn->linger_until_ns = 0;
    } else if (turn->linger_until_ns == 0 && turn->linger_ns > 0) {
        turn->linger_until_ns = sched->now_ns + turn->linger_ns;
        turn->kept_until_ns = sched->now_ns + turn->keep_ns;
    } else if (turn->linger_until_ns <= sched->now_ns && !is_kept(sched) && !group_is_held(sched)) {
        turn->leader = NULL;
        turn->linger_until_ns = 0;
    }
}

static void decide_compute(struct weir_sched *sched, uint64_t *wake_ns)
{
    bool lingers, held;

    limits_look(sched, wake_ns);
    look_at_leader(sched);
    lingers = sched->turn.leader && !sched->turn.leader->is_ready;
    held = group_is_held(sched);
    if (sched->blocked != 0) {
        sched->alone.quiet_from_ns = sched->now_ns + sched->config.quiet_ns;
    }
    if (sched->ready.count > 1 || (sched->ready.count == 1 && (lingers || held))) {
        rule(sched, wake_ns);
        if (sched->turn.has_equals || held) {
            sched->alone.quiet_from_ns = sched->now_ns + sched->config.quiet_ns;
        }
    } else if (sched->ready.count == 1) {
        rule_alone(sched, wake_ns);
    }
    hold(sched, wake_ns);
}

void decide(struct weir_sched *sched)
{
    uint64_t wake_ns;

    /* Repeat, since a grant may change which tenants are ready. */
    do {
        min_share_look(sched);
        wake_ns = NEVER;
        sched->news.ready = false;
        decide_compute(sched, &wake_ns);
        copies_decide(sched, &wake_ns);
    } while (sched->news.ready);
    causes_look(sched);
    if (wake_ns <= sched->now_ns) {
        wake_ns = sched->now_ns + tuning.wake_min_ns;
    }
    if (wake_ns != sched->armed_ns) {
        sched->armed_ns = wake_ns;
        sched->env.timer(sched->env.user, wake_ns);
    }
}
