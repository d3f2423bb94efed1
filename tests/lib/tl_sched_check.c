#include "tests/lib/tl_sched_check.h"

#include "sched/private.h"

/* Sums over all queues and items. */
struct sums {
    uint32_t items, queues, busy, members, fillers, equal_fillers, teachers, blocked;
    uint32_t fronts[RESOURCES], listed[RESOURCES], on[RESOURCES], tenants[RESOURCES];
};

static const char *check_item(const struct item *item, bool first, struct sums *sums)
{
    bool at_work = item->state == WEIR_SCHED_GRANTED || item->state == WEIR_SCHED_STOPPING;

    if (item->is_front != (first && at_work)) {
        return "the first of a queue at work is not a front, or another is";
    }
    if (item->state == WEIR_SCHED_GONE) {
        return "an item that is gone is in a queue";
    }
    if (!is_compute(item) && !at_work && item->state != WEIR_SCHED_WAITING) {
        return "a copy has been stopped";
    }
    sums->fronts[resource_of(item)] += item->is_front;
    sums->on[resource_of(item)] += item->state != WEIR_SCHED_WAITING;
    sums->items++;
    sums->fillers += is_filler(item);
    sums->equal_fillers += item->level == WEIR_SCHED_BELOW_EQUAL;
    sums->teachers += item->teaches && item->state != WEIR_SCHED_WAITING;
    if (item->level != WEIR_SCHED_PLAIN && item->state == WEIR_SCHED_WAITING) {
        return "a filler, or what goes above, has not been granted";
    }
    return NULL;
}

static const char *check_queue(const struct queue *queue, struct sums *sums, uint32_t *state_count)
{
    uint32_t on_device = 0;
    uint64_t device_ns = 0;
    uint64_t copies_ns = 0;
    uint64_t fixed_ns = 0;
    uint32_t kernels = 0;
    uint32_t stoppable = 0;
    const struct item *candidate = NULL;

    for (const struct item *item = queue->first; item; item = item->next) {
        const char *wrong = check_item(item, item == queue->first, sums);

        if (wrong) {
            return wrong;
        }
        if (item->queue != queue || !item->next != (item == queue->last) ||
            !item->prev != (item == queue->first)) {
            return "a queue's list is broken";
        }
        if (item->state == WEIR_SCHED_WAITING) {
            candidate = candidate ? candidate : item;
        } else if (candidate) {
            return "an item overtook another of its queue";
        } else {
            on_device++;
            device_ns += item->counted_ns;
            copies_ns += is_compute(item) ? 0 : item->counted_ns;
            kernels += is_compute(item);
            stoppable += is_compute(item) && is_stoppable(item);
            fixed_ns += is_compute(item) && !is_stoppable(item) ? item->predicted_ns : 0;
            if (queue->settled.valid && item->state == WEIR_SCHED_STOPPED) {
                return "a queue with stopped work is said to be settled";
            }
        }
        state_count[item->state]++;
    }
    if (queue->candidate != candidate || queue->on_device != on_device ||
        queue->device_ns != device_ns || queue->copies_ns != copies_ns ||
        queue->kernels != kernels || queue->stoppable != stoppable || queue->fixed_ns != fixed_ns) {
        return "a queue's sums are wrong";
    }
    if (queue->listed && queue->listed != candidate) {
        return "a queue lists what is not its candidate";
    }
    if (candidate && !is_compute(candidate) && !queue->listed) {
        return "a copy that could be granted is not listed";
    }
    if (queue->heads != (on_device > 0 && is_compute(queue->first) && !queue_is_held(queue))) {
        return "a queue does not know what is at its head";
    }
    return NULL;
}

static const char *check_tenant(const struct weir_sched *sched, const struct tenant *tenant,
                                struct sums *sums)
{
    uint32_t state_count[WEIR_SCHED_GONE + 1] = {0};
    uint32_t copies[RESOURCES] = {0};
    uint32_t queues = 0;
    uint32_t waiting = 0;
    uint32_t heads = 0;
    uint32_t limits = tenant->bound.limit.sms < sched->config.sms;
    bool is_ready = false, works = false;

    for (const struct queue *queue = tenant->queues; queue; queue = queue->next) {
        uint32_t before[RESOURCES] = {sums->on[0], sums->on[1], sums->on[2]};
        const char *wrong = queue->tenant == tenant ? check_queue(queue, sums, state_count)
                                                    : "a queue is in another tenant's list";

        if (wrong) {
            return wrong;
        }
        for (int i = 0; i < RESOURCES; i++) {
            bool listed = queue->listed && (int)resource_of(queue->listed) == i;

            sums->listed[i] += listed;
            copies[i] += sums->on[i] - before[i] + listed;
        }
        waiting += queue->listed && is_compute(queue->listed);
        heads += queue->heads;
        works |= queue->kernels != 0 || (queue->candidate && is_compute(queue->candidate));
        limits += queue->limit.sms < sched->config.sms;
        queues++;
    }
    for (uint32_t i = 0; i < sched->ready.count; i++) {
        is_ready |= sched->ready.list[i] == &tenant->view;
    }
    for (int i = WEIR_SCHED_TO_DEVICE; i < RESOURCES; i++) {
        sums->tenants[i] += copies[i] > 0;
        if (copies[i] != tenant->copying.now[i]) {
            return "a tenant's copies are counted wrong";
        }
    }
    sums->queues += queues;
    sums->members += tenant->view.member;
    sums->busy += state_count[WEIR_SCHED_WAITING] + state_count[WEIR_SCHED_GRANTED] +
                      state_count[WEIR_SCHED_STOPPING] + state_count[WEIR_SCHED_STOPPED] >
                  0;
    if (tenant->counts.queues != queues || tenant->counts.heads != heads ||
        tenant->view.waiting != waiting ||
        tenant->counts.waiting != state_count[WEIR_SCHED_WAITING] ||
        tenant->counts.stopped != state_count[WEIR_SCHED_STOPPED] ||
        tenant->counts.granted !=
            state_count[WEIR_SCHED_GRANTED] + state_count[WEIR_SCHED_STOPPING]) {
        return "a tenant's counts are wrong";
    }
    if (tenant->bound.limits != limits) {
        return "a tenant's limits are counted wrong";
    }
    if (is_ready != tenant->is_ready || is_ready != (waiting + heads > 0)) {
        return "a tenant with work is not ready, or one without is";
    }
    works = is_ready || (works && tenant->span >= WEIR_SCHED_SPAN_ENDS);
    if (tenant->works != works || tenant->blocked != (works && !is_ready)) {
        return "it is not known who has work, or who waits for a turn on several devices";
    }
    sums->blocked += tenant->blocked;
    return NULL;
}

/* Are two neighbours of a direction's list in order? */
static bool is_in_order(const struct queue *a, const struct queue *b)
{
    enum weir_priority of_a = a->tenant->view.priority;
    enum weir_priority of_b = b->tenant->view.priority;

    return of_a > of_b ||
           (of_a == of_b && (int64_t)(b->listed->copy.start - a->listed->copy.start) >= 0);
}

static const char *check_lists(const struct weir_sched *sched, const struct sums *sums)
{
    for (int i = 0; i < RESOURCES; i++) {
        uint32_t fronts = 0;
        uint32_t listed = 0;
        bool next_listed = !sched->way[i].next;

        for (const struct item *item = sched->fronts.first[i]; item; item = item->front_next) {
            const struct item *next = item->front_next;

            if (next && item->waits && !next->waits) {
                return "what waits is before what works on the device";
            }
            if (next && item->waits == next->waits && is_filler(item) && !is_filler(next)) {
                return "a filler is before what it fills the gaps of";
            }
            if (next && item->waits == next->waits && is_filler(item) == is_filler(next) &&
                item->queue->tenant->view.priority < next->queue->tenant->view.priority) {
                return "a lower class is before a higher one on the device";
            }
            fronts++;
        }
        for (const struct queue *queue = sched->way[i].first; queue; queue = queue->list_next) {
            if (!queue->listed->copy.tagged ||
                (queue->list_next && !is_in_order(queue, queue->list_next))) {
                return "copies do not wait in the order of their shares";
            }
            listed++;
            next_listed |= queue == sched->way[i].next;
        }
        if (!next_listed) {
            return "the copy that goes next does not wait";
        }
        if (fronts != sums->fronts[i] || (i != WEIR_SCHED_COMPUTE && listed != sums->listed[i])) {
            return "a list of fronts or copies is not what the queues say";
        }
        if (i != WEIR_SCHED_COMPUTE &&
            (sched->way[i].on_device != sums->on[i] || sched->way[i].tenants != sums->tenants[i])) {
            return "copies under way are counted wrong";
        }
    }
    return NULL;
}

/* Has a member no range of SMs, or one that overlaps another's? */
static bool places_overlap(const struct turn *turn)
{
    bool overlap = false;

    for (uint32_t i = 0; i < turn->members; i++) {
        const struct weir_sched_place *a = &turn->member[i].place;

        overlap |= a->sm_count == 0;
        for (uint32_t k = 0; k < i; k++) {
            const struct weir_sched_place *b = &turn->member[k].place;

            overlap |=
                a->sm_first < b->sm_first + b->sm_count && b->sm_first < a->sm_first + a->sm_count;
        }
    }
    return overlap;
}

static const char *check_turn(const struct weir_sched *sched)
{
    const struct turn *turn = &sched->turn;

    if (turn->members > WEIR_POLICY_GROUP_MAX) {
        return "a group is too large";
    }
    if (turn->leader && (turn->members == 0 || turn->member[0].tenant != turn->leader)) {
        return "the leader is not the first of its group";
    }
    for (uint32_t i = 0; i < turn->members; i++) {
        if (!turn->member[i].tenant->view.member ||
            table_get(&sched->tenants, turn->member[i].tenant->view.id) != turn->member[i].tenant ||
            turn->member[i].place.sm_first + turn->member[i].place.sm_count > sched->config.sms) {
            return "a member of the group is gone, or its place is not on the device";
        }
    }
    if (sched->ready.count > 0 && !turn->leader) {
        return "there is work and nobody has the device";
    }
    if (turn->beside && (turn->members < 2 || places_overlap(turn))) {
        return "those beside a leader with a limit are not beside it";
    }
    return NULL;
}

const char *tl_sched_check(const struct weir_sched *sched)
{
    struct sums sums = {0};
    uint32_t at = 0;
    const struct tenant *tenant;
    const char *wrong = NULL;

    while (!wrong && (tenant = table_next(&sched->tenants, &at))) {
        wrong = check_tenant(sched, tenant, &sums);
    }
    if (!wrong) {
        wrong = check_lists(sched, &sums);
    }
    if (!wrong) {
        wrong = check_turn(sched);
    }
    if (wrong) {
        return wrong;
    }
    if (sums.items != sched->items.live || sums.queues != sched->queues.live ||
        sums.fillers != sched->fill.items || sums.equal_fillers != sched->fill.equals ||
        sums.teachers != sched->fill.teachers || sums.busy != sched->alone.busy ||
        sums.blocked != sched->blocked) {
        return "an item, a queue or a tenant is counted wrong";
    }
    if (sums.members != sched->turn.members) {
        return "somebody is taken for a member of the group, or is there twice";
    }
    return NULL;
}
