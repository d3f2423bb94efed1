/*
 * Charge tenants for their service as time passes.
 *
 * Only the first item of each queue on the device is at work, since the others wait for it. These
 * are the head items (front_* in the code). The head items of a copy direction share it equally.
 * The head items of compute get SMs in the order in which they came to the device, higher classes
 * first, as the device itself assigns them. An item with a range of SMs pays for that range, an
 * item without one for all SMs that are left. So a newcomer behind a kernel that ends pays nothing
 * until it has ended. Items with a block limit share SMs with each other and pay equal parts.
 *
 * The device may run a later item in between. When such an item ends, its tenant is charged the
 * item's known duration (its claim), and the tenant of the head item before it gets a credit.
 *
 * Small items get the SMs that they need. They get all SMs if there is nothing else on the device
 * and another tenant waits: that tenant is to get its share of the time, and not of the SMs that
 * the small items happen to need.
 *
 * While a tenant fills below an equal (beside.c), times do not show how many SMs each of the two
 * had. So when an item ends its tenant is charged the time that the item is known to take alone.
 *
 * An item that goes first (beside.c) is behind the other head items, so others pay for the time
 * until it ends. Then its known duration is moved to its tenant's account. The rest of the time is
 * in doubt: the item waited for others' blocks to end, or took longer than is known. The end of the
 * head item before it settles this: if that item took longer than its known duration, the excess,
 * up to the time in doubt, is moved, too. Otherwise a program could keep the device for
 * milliseconds with kernels that are known to be short.
 *
 * A head item may itself wait for a host function, a value or a later kernel. The scheduler cannot
 * see this. But when a later item ends as soon as if it had been alone, the head items before it do
 * not hold the device. From then on they get SMs last.
 */
#include "sched/private.h"

#include <assert.h>

static bool goes_before(const struct item *a, const struct item *b)
{
    if (a->waits != b->waits) {
        return b->waits;
    }
    if (is_filler(a) != is_filler(b)) {
        return is_filler(b);
    }
    return a->queue->tenant->view.priority > b->queue->tenant->view.priority;
}

void front_add(struct weir_sched *sched, struct item *item)
{
    enum weir_sched_resource resource = resource_of(item);
    struct item *after = sched->fronts.last[resource];

    while (after && goes_before(item, after)) {
        after = after->front_prev;
    }
    item->is_front = true;
    item->at.head_ns = item->waits ? item->at.head_ns : sched->now_ns;
    item->saw.filler |= sched->fill.items != 0;
    item->front_prev = after;
    item->front_next = after ? after->front_next : sched->fronts.first[resource];
    *(item->front_next ? &item->front_next->front_prev : &sched->fronts.last[resource]) = item;
    *(after ? &after->front_next : &sched->fronts.first[resource]) = item;
}

void front_remove(struct weir_sched *sched, struct item *item)
{
    enum weir_sched_resource resource = resource_of(item);

    if (!item->is_front) {
        return;
    }
    *(item->front_prev ? &item->front_prev->front_next : &sched->fronts.first[resource]) =
        item->front_next;
    *(item->front_next ? &item->front_next->front_prev : &sched->fronts.last[resource]) =
        item->front_prev;
    item->front_next = item->front_prev = NULL;
    item->is_front = false;
}

/* Is the item confined to some SMs, or to some blocks on each, or is it small? */
static bool is_placed(const struct item *item)
{
    return !is_everywhere(&item->place) || item->small_sms != 0;
}

/* Find the first head item that holds the device without a place, if it is before `item`; NULL:
 * none. */
static struct item *front_before(const struct weir_sched *sched, const struct item *item)
{
    struct item *front = sched->fronts.first[WEIR_SCHED_COMPUTE];

    while (front != item && (front->waits || is_placed(front))) {
        front = front->front_next;
    }
    return front != item ? front : NULL;
}

/* The least time that an item can have taken that went first and ended behind an earlier head item:
 * it waited for at most one block of that item. */
static uint64_t least_ns(const struct weir_sched *sched, const struct item *item,
                         const struct item *before)
{
    uint64_t span_ns = sched->now_ns - item->at.head_ns;
    uint64_t others_ns = item_block_ns(sched, before) + sched->config.launch_ns;

    return span_ns - min_u64(span_ns, others_ns + tuning.seen_late_ns);
}

/* How much of the time was used by an item that went first and now ends? before: the head item
 * before it, or NULL. */
static uint64_t first_took_ns(const struct weir_sched *sched, const struct item *item,
                              const struct item *before)
{
    if (!before) {
        return item->predicted_ns;
    }
    return before->predicted_ns == 0 ? sched->now_ns - item->at.head_ns
                                     : max_u64(item->predicted_ns, least_ns(sched, item, before));
}

/* An item that went first ends behind `before` and is charged claim_ns: note the rest of its time
 * as in doubt. */
static void first_doubt(const struct weir_sched *sched, const struct item *item,
                        struct item *before, uint64_t claim_ns)
{
    uint64_t span_ns = sched->now_ns - item->at.head_ns;
    uint64_t doubt_ns = span_ns - min_u64(span_ns, claim_ns);
    weir_sched_id id = item->queue->tenant->view.id;

    if (before->doubt.of == id) {
        before->doubt.ns += doubt_ns;
    } else if (doubt_ns > before->doubt.ns) { /* keep the tenant with the largest doubt */
        before->doubt.of = id;
        before->doubt.ns = doubt_ns;
    }
}

/* An item ends. If it took longer than is known, the items above it used the time in doubt. */
static void first_settle(struct weir_sched *sched, struct item *done)
{
    struct tenant *tenant = done->doubt.ns != 0 ? table_get(&sched->tenants, done->doubt.of) : NULL;
    int64_t owed_ns = (int64_t)done->had.served_ns + done->had.beyond_ns -
                      (int64_t)(done->predicted_ns * sched->config.sms);
    int64_t most_ns = (int64_t)(done->doubt.ns * sched->config.sms);

    owed_ns = WEIR_MIN(owed_ns, most_ns);
    if (tenant && owed_ns > 0 && !done->saw.stop && done->predicted_ns != 0) {
        charge_more(tenant, owed_ns);
        charge_more(done->queue->tenant, -owed_ns);
        done->had.beyond_ns -= owed_ns;
    }
}

void first_bounds(const struct weir_sched *sched, const struct item *item, uint64_t *ret_least_ns,
                  uint64_t *ret_most_ns)
{
    const struct item *before = item->is_front ? front_before(sched, item) : NULL;

    if (before && !item->saw.filler && !item->saw.moved) {
        *ret_least_ns = least_ns(sched, item, before);
        *ret_most_ns = sched->now_ns - item->at.head_ns;
    }
}

/* The time that an ended item must have been served beside those before it. */
static uint64_t claim_ns(const struct weir_sched *sched, const struct item *done,
                         const struct item *before)
{
    uint64_t served_ns = done->had.served_ns / sched->config.sms;
    uint64_t had_ns = is_first(done) ? first_took_ns(sched, done, before) : done->predicted_ns;

    return min_u64(had_ns > served_ns ? had_ns - served_ns : 0,
                   sched->now_ns - done->at.started_ns);
}

/* Did an item end as if `before` had not been there? Or has `before` been there for very long? */
static bool went_past(const struct weir_sched *sched, const struct item *before,
                      const struct item *done)
{
    uint64_t alone_ns =
        done->predicted_ns != 0 ? done->predicted_ns * 3 / 2 + sched->config.launch_ns : 0;

    return done->had.served_ns == 0 && (sched->now_ns - done->at.head_ns <= alone_ns ||
                                        sched->now_ns - before->at.head_ns > tuning.patience_ns);
}

/* Charge an ended item its claim. During that time the item before it was not served. */
static uint64_t charge_claim(struct weir_sched *sched, struct item *done, struct item *before)
{
    uint64_t claim = claim_ns(sched, done, before);

    done->queue->tenant->view.service_ns[WEIR_SCHED_COMPUTE] += claim * sched->config.sms;
    done->queue->service_ns += claim * sched->config.sms;
    limit_pay(sched, done, claim * sched->config.sms, claim);
    done->had.beyond_ns += (int64_t)(claim * sched->config.sms);
    done->saw.moved = true;
    if (before) {
        before->had.beside_ns += claim;
    }
    return claim;
}

void fronts_yield(struct weir_sched *sched, struct item *done)
{
    struct item *before, *front, *next;

    if (!done->is_front || !is_compute(done)) {
        return;
    }
    before = front_before(sched, done);
    if (is_filler(done)) { /* other tenants that left it SMs pay for their own time nevertheless */
        (void)charge_claim(sched, done, before);
        return;
    }
    if (is_placed(done) || !before) {
        return;
    }
    uint64_t claim = charge_claim(sched, done, before) * sched->config.sms;
    before->queue->tenant->credit_ns += claim;
    before->had.beyond_ns -= (int64_t)claim;
    before->saw.moved |= done->predicted_ns == 0;
    if (is_first(done)) {
        first_doubt(sched, done, before, claim / sched->config.sms);
        sched->turn.used_ns +=
            done->queue->tenant == sched->turn.leader ? claim / sched->config.sms : 0;
    }
    bool past = !is_first(done) && went_past(sched, before, done);
    for (front = before; front != done; front = next) {
        next = front->front_next;
        if (past && !front->waits && !is_placed(front) &&
            front->queue->tenant->view.priority == done->queue->tenant->view.priority) {
            front_remove(sched, front);
            front->waits = true;
            front->saw.moved = true;
            front_add(sched, front);
        }
    }
}

bool is_among_equals(const struct weir_sched *sched, const struct item *item)
{
    return item->level == WEIR_SCHED_BELOW_EQUAL || sched->fill.equals != 0 ||
           item->at.started_ns < sched->fill.equal_ns;
}

/*
 * The service that small items owe for an ended item. Beside small items an item is charged the SMs
 * that these leave while it runs, and in the end what it takes alone. The small items pay, or get
 * back, the difference: they slowed the item down, since both use the same memory, or they were
 * charged for SMs that the item used. So both are charged as if they had taken turns. But small
 * items owe at most half of what the item was charged: otherwise others would pay for a tenant
 * whose kernels take longer than is known.
 */
static int64_t owed_by_small(const struct weir_sched *sched, const struct item *done,
                             int64_t costs_ns)
{
    enum weir_priority class = done->queue->tenant->view.priority;
    int64_t owed_ns = (int64_t)done->had.served_ns - costs_ns;
    int64_t most_ns = (int64_t)done->had.served_ns / 2;

    if (!done->saw.small || !sched->turn.leader || class != sched->turn.leader->view.priority) {
        return 0;
    }
    return WEIR_MIN(owed_ns, most_ns);
}

static void charge_queue(struct queue *queue, int64_t more_ns)
{
    charge_more(queue->tenant, more_ns);
    queue->service_ns += more_ns > 0 ? (uint64_t)more_ns : 0;
}

/* Note what equals paid for filling, or (negative) what leaders got back. */
static void note_filled(struct weir_sched *sched, int64_t paid_ns, int64_t most_ns)
{
    sched->fill.paid_ns += paid_ns;
    sched->fill.paid_ns = WEIR_MIN(sched->fill.paid_ns, most_ns);
}

void charge_by_work(struct weir_sched *sched, struct item *done)
{
    int64_t most_ns = (int64_t)tuning.slack_ns * sched->config.sms;
    bool fills = done->level == WEIR_SCHED_BELOW_EQUAL;
    int64_t owed_ns, more_ns;

    first_settle(sched, done);
    int64_t paid_ns = (int64_t)done->had.served_ns + done->had.beyond_ns;
    if (small_sms(done) != 0) {
        small_done(sched, done);
        charge_queue(done->queue, (int64_t)pair_gain_small_done(sched, done));
        return;
    }
    if (!is_compute(done) || done->saw.stop || is_placed(done)) {
        return;
    }
    if (is_unsure(done)) {
        note_filled(sched, fills ? paid_ns : 0, most_ns);
        return;
    }
    more_ns = (int64_t)(min_u64(done->predicted_ns, sched->now_ns - done->at.started_ns) *
                        sched->config.sms) -
              paid_ns;
    owed_ns = owed_by_small(sched, done, paid_ns + more_ns);
    if (is_among_equals(sched, done)) {
        if (more_ns < 0 && sched->fill.paid_ns + more_ns < -most_ns) {
            more_ns = sched->fill.paid_ns > -most_ns ? -most_ns - sched->fill.paid_ns : 0;
        }
        note_filled(sched, more_ns + (fills ? paid_ns : 0), most_ns);
    } else if (done->saw.small) {
        int64_t back_ns = WEIR_MAX(owed_ns, 0); /* most that it gets back */

        more_ns = more_ns > -back_ns ? more_ns : -back_ns;
        sched->turn.used_ns += more_ns > 0 && done->queue->tenant == sched->turn.leader
                                   ? (uint64_t)more_ns / sched->config.sms
                                   : 0;
    } else {
        return;
    }
    charge_queue(done->queue, more_ns);
    sched->small.owe_ns += owed_ns;
}

/* The service of a head item in a step. */
struct part {
    struct item *item;
    uint64_t service_ns;
    uint32_t with;      /* index of the part whose range it shares, or its own index */
    uint32_t range_sms; /* SMs that all items that share this part's range have */
};

#define PARTS_MAX 128u /* at most this many head items are served at a time */

static void pay(struct weir_sched *sched, struct item *item, enum weir_sched_resource resource,
                uint64_t service_ns, uint64_t ns)
{
    item->had.served_ns += service_ns;
    item->had.busy_ns += ns;
    if (resource == WEIR_SCHED_COMPUTE) { /* use up its credit first */
        uint64_t credit_ns = min_u64(item->queue->tenant->credit_ns, service_ns);

        item->queue->tenant->credit_ns -= credit_ns;
        service_ns -= credit_ns;
    }
    item->queue->tenant->view.service_ns[resource] += service_ns;
    if (resource == WEIR_SCHED_COMPUTE) {
        item->queue->service_ns += service_ns;
        limit_pay(sched, item, service_ns, ns);
    }
}

static void charge_copies(struct weir_sched *sched, enum weir_sched_resource direction, uint64_t ns)
{
    uint64_t count = 0;
    uint64_t left = ns;

    for (struct item *i = sched->fronts.first[direction]; i; i = i->front_next) {
        count++;
    }
    for (struct item *i = sched->fronts.first[direction]; i; i = i->front_next) {
        uint64_t part = left / count;

        pay(sched, i, direction, part, ns);
        i->had.alone_ns += !i->front_next && !i->front_prev ? ns : 0;
        left -= part;
        count--;
    }
}

static bool is_ranged(const struct item *item)
{
    return item->place.sm_count != 0 && item->place.block_limit == 0;
}

/* Find the first part of the same tenant whose range begins at the same SM; `count`: there is
 * none. */
static uint32_t find_range(const struct part *parts, uint32_t count, const struct item *item)
{
    uint32_t i = is_ranged(item) ? 0 : count;

    while (i < count &&
           (parts[i].item->queue->tenant != item->queue->tenant || !is_ranged(parts[i].item) ||
            parts[i].item->place.sm_first != item->place.sm_first)) {
        i++;
    }
    return i;
}

/* A tenant pays once for a range that several of its items share, in proportion to their sizes. */
static void share_range(struct part *parts, uint32_t count, uint32_t first)
{
    uint64_t sms = 0;
    uint64_t whole_ns = 0;

    for (uint32_t i = first; i < count; i++) {
        sms += parts[i].with == first ? parts[i].item->place.sm_count : 0;
        whole_ns += parts[i].with == first ? parts[i].service_ns : 0;
    }
    assert(sms != 0); /* parts[first] has the range, so the sum is not 0 */
    for (uint32_t i = first; i < count; i++) {
        if (parts[i].with == first) {
            parts[i].service_ns = whole_ns * parts[i].item->place.sm_count / sms;
        }
    }
}

/* Does a tenant of the leader's class or above have work, but no work on the device? */
static bool keeps_waiting(const struct weir_sched *sched)
{
    const struct tenant *leader = sched->turn.leader;

    for (uint32_t i = 0; i < sched->ready.count && leader; i++) {
        if (sched->ready.list[i]->priority >= leader->view.priority &&
            sched->ready.list[i]->waiting != 0 &&
            tenant_of(sched->ready.list[i])->counts.heads == 0) {
            return true;
        }
    }
    return false;
}

/* In double, since ns * claim may exceed 64 bits. */
static uint64_t part_of(uint64_t ns, uint64_t claim, uint64_t claims)
{
    return (uint64_t)((double)ns * (double)claim / (double)claims);
}

/*
 * Deal SMs to small items: what they need, or less if there are not enough. If only small items are
 * on the device and they are of several tenants or keep another waiting, they pay for all SMs, in
 * proportion to their claims (small.c): nobody else can have the SMs that they leave idle.
 */
static uint32_t deal_small(const struct weir_sched *sched, uint64_t ns, struct part *parts,
                           uint32_t *left)
{
    const struct item *first = sched->fronts.first[0];
    uint64_t needed = 0, claims = 0, dealt;
    uint32_t count = 0;
    bool only = true, shared = false, whole;

    for (const struct item *i = first; i; i = i->front_next) {
        needed += small_sms(i);
        claims += small_claim(sched, i);
        only &= small_sms(i) != 0;
        shared |= i->queue->tenant != first->queue->tenant;
    }
    dealt = needed >= *left || (only && (shared || keeps_waiting(sched))) ? *left : needed;
    whole = dealt == *left;
    for (struct item *i = sched->fronts.first[0]; i && needed != 0 && count < PARTS_MAX;
         i = i->front_next) {
        if (small_sms(i) != 0) {
            parts[count] = (struct part){
                .item = i,
                .service_ns = whole ? part_of(ns * dealt, small_claim(sched, i), claims)
                                    : ns * small_sms(i) * dealt / needed,
                .with = count};
            count++;
        }
    }
    *left -= needed != 0 ? (uint32_t)dealt : 0;
    return count;
}

/* Deal SMs out: first to small items, then to items with ranges or without a place, then what is
 * left to items with block limits. */
static uint32_t deal(struct weir_sched *sched, uint64_t ns, struct part *parts)
{
    uint32_t left = sched->config.sms;
    uint32_t small_count = deal_small(sched, ns, parts, &left);
    uint32_t count = small_count;
    uint64_t sharing = 0;

    for (struct item *i = sched->fronts.first[0]; i && count < PARTS_MAX; i = i->front_next) {
        uint32_t sms = i->place.sm_count != 0 ? i->place.sm_count : sched->config.sms;

        if (small_sms(i) != 0) {
            continue;
        }
        uint32_t with = find_range(parts, count, i);
        if (i->place.block_limit != 0) {
            parts[count] = (struct part){.item = i, .with = count};
            count++;
            sharing++;
        } else if (with < count) {
            uint32_t has = parts[with].range_sms;

            sms = sms > has ? sms - has : 0;
            sms = WEIR_MIN(sms, left);
            parts[with].range_sms += sms;
            parts[count++] = (struct part){.item = i, .service_ns = ns * sms, .with = with};
            share_range(parts, count, with);
            left -= sms;
        } else if (left > 0 && (sharing == 0 || i->place.sm_count != 0)) {
            sms = WEIR_MIN(sms, left);
            parts[count] =
                (struct part){.item = i, .service_ns = ns * sms, .with = count, .range_sms = sms};
            count++;
            left -= sms;
        }
    }
    uint64_t shared_ns = ns * left;
    for (uint32_t i = small_count; i < count; i++) {
        if (parts[i].item->place.block_limit != 0) {
            assert(sharing != 0); /* the loop above counted it */
            parts[i].service_ns = shared_ns / sharing;
            shared_ns -= parts[i].service_ns;
            sharing--;
        }
    }
    return count;
}

/* A leader that lingers keeps waiting tenants from the device, so it pays for the idle time, unless
 * the policy charges members for the work that they get done. */
static void charge_lingering(struct weir_sched *sched, uint64_t ns)
{
    struct turn *turn = &sched->turn;
    uint64_t from_ns = sched->now_ns - ns;
    uint64_t until_ns = max_u64(turn->linger_until_ns, turn->kept_until_ns);

    if (turn->leader && turn->hold_ns == 0 && turn->linger_until_ns != 0 && until_ns > from_ns &&
        sched->ready.count != 0 && !sched->fronts.first[0]) {
        ns = min_u64(ns, until_ns - from_ns);
        turn->leader->view.service_ns[WEIR_SCHED_COMPUTE] += ns * sched->config.sms;
        turn->used_ns += ns;
    }
}

/* Charge, or pay back, small_owe_ns to the small head items in proportion to their service. */
static void settle_with_small(struct weir_sched *sched, const struct part *parts, uint32_t count)
{
    double all_ns = 0;

    for (uint32_t i = 0; i < count && small_sms(parts[i].item) != 0; i++) {
        all_ns += (double)parts[i].service_ns;
    }
    for (uint32_t i = 0; i < count && all_ns > 0 && small_sms(parts[i].item) != 0; i++) {
        charge_queue(parts[i].item->queue, (int64_t)((double)sched->small.owe_ns *
                                                     ((double)parts[i].service_ns / all_ns)));
    }
    sched->small.owe_ns = all_ns > 0 ? 0 : sched->small.owe_ns;
}

/* Did small items get the whole device? */
static bool is_crowd(const struct weir_sched *sched, uint64_t ns, const struct part *parts,
                     uint32_t count)
{
    uint64_t dealt = 0;

    for (uint32_t i = 0; i < count && small_sms(parts[i].item) != 0; i++) {
        dealt += parts[i].service_ns;
    }
    return dealt + count >= ns * sched->config.sms;
}

static void charge_compute(struct weir_sched *sched, uint64_t ns)
{
    struct part parts[PARTS_MAX];
    uint32_t count = deal(sched, ns, parts);
    bool waits = sched->fronts.last[0] && sched->fronts.last[0]->waits;
    bool led = false;

    bool crowd = is_crowd(sched, ns, parts, count);

    for (uint32_t i = 0; i < count; i++) {
        struct item *item = parts[i].item;

        item->had.crowd_ns += crowd ? parts[i].service_ns : 0;
        if (parts[i].service_ns == 0) {
            continue;
        }
        pay(sched, item, WEIR_SCHED_COMPUTE, parts[i].service_ns, ns);
        group_serve(sched, item, parts[i].service_ns, ns);
        item->saw.waits |= waits && !item->waits;
        /* An item that was granted to a filler does not use up its later turn's slice. */
        led |= item->queue->tenant == sched->turn.leader &&
               !(item->level == WEIR_SCHED_BELOW_EQUAL && item->saw.small);
        if (count == 1) {
            item->had.alone_ns += ns;
        } else if (count == 2) {
            if (small_sms(item) != 0 && small_sms(parts[1 - i].item) != 0 &&
                item->queue->tenant != parts[1 - i].item->queue->tenant) {
                pair_gain_two_small(item, parts[1 - i].item, ns, parts[i].service_ns);
            }
        }
    }
    if (count > 1 && small_sms(parts[count - 2].item) != 0 &&
        small_sms(parts[count - 1].item) == 0) {
        parts[count - 1].item->had.with_small_ns += parts[count - 1].service_ns != 0 ? ns : 0;
    }
    if (count != 0 && small_sms(parts[0].item) != 0) { /* small items come first */
        settle_with_small(sched, parts, count);
        for (struct item *i = sched->fronts.first[0]; i; i = i->front_next) {
            i->saw.small = true;
        }
    }
    room_pass(sched, count != 0 && small_sms(parts[0].item) != 0 ? parts[0].item : NULL, ns);
    sched->turn.used_ns += led ? ns : 0;
    group_pass(sched, ns);
    pair_gain_pass(sched, ns);
    charge_lingering(sched, ns);
}

bool is_served(struct weir_sched *sched, const struct tenant *tenant)
{
    struct part parts[PARTS_MAX];
    uint32_t count = deal(sched, PARTS_MAX, parts);

    for (uint32_t i = 0; i < count; i++) {
        if (parts[i].service_ns > 0 && parts[i].item->queue->tenant == tenant) {
            return true;
        }
    }
    return false;
}

void time_is(struct weir_sched *sched, uint64_t now_ns)
{
    uint64_t ns = now_ns > sched->now_ns ? now_ns - sched->now_ns : 0;

    sched->now_ns += ns;
    if (ns != 0) {
        charge_compute(sched, ns);
        charge_copies(sched, WEIR_SCHED_TO_DEVICE, ns);
        charge_copies(sched, WEIR_SCHED_FROM_DEVICE, ns);
    }
}
