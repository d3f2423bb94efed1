/*
 * The gain of pairs: do two tenants of one class gain by filling each other's gaps (beside.c)?
 *
 * Mostly it does. But some kernels use the same cache and slow each other down: a dense-algebra
 * kernel with tensor cores took 18 ms instead of 1.9 below a kernel that walks a table, which
 * itself took twice as long (an H200). Both are faster in turns.
 *
 * So for each pair of tenants the core sums up the durations of items that had only the other's
 * beside them while an equal filled, and the durations of the same items alone. The quotient is the
 * speed of each tenant. If both speeds add up to less than pair_least, the two do not fill for each
 * other for a while, and for twice as long each further time.
 *
 * If several items were seen to end together, the first of them adds their whole time.
 *
 * Small items of two tenants beside each other (small.c) each pay for a part of the time; but in
 * that time both together get more done than one of them alone. So the tenant of less weight, which
 * always runs beside the other, would get more for its pay than the heavier one, which is alone
 * while the lighter one waits: of two LLM engines with weights 3:1 the first had 71 % of the tokens
 * in 75 % of the time (H100, 2026-11-27). So when an item ends it pays for the work that the two
 * get done together beyond one. That is learned from items that were alone for a part of their time
 * and whose duration alone is known; the slower of the two counts for both. If neither tenant is
 * ever alone, both pay for the time only.
 */
#include "base/hash.h"
#include "sched/private.h"

#define SEVERAL UINT64_MAX

/* The slot of a pair of tenants, and their ids in its order. */
static uint32_t slot_of(weir_sched_id a, weir_sched_id b, weir_sched_id ret_of[2])
{
    ret_of[0] = min_u64(a, b);
    ret_of[1] = max_u64(a, b);
    return weir_hash_slot(weir_hash64_of(ret_of, 2 * sizeof(*ret_of)), PAIR_GAIN_SLOTS);
}

static bool is_of(const struct pair_gain *gain, const weir_sched_id of[2])
{
    return gain->of[0] == of[0] && gain->of[1] == of[1];
}

bool pair_gain_may_fill(const struct weir_sched *sched, const struct tenant *a,
                        const struct tenant *b)
{
    weir_sched_id of[2];
    const struct pair_gain *gain = &sched->pairs.gain[slot_of(a->view.id, b->view.id, of)];

    return !is_of(gain, of) || sched->now_ns >= gain->barred_until_ns;
}

static struct pair_gain *gain_of(struct weir_sched *sched, weir_sched_id a, weir_sched_id b,
                                 weir_sched_id ret_of[2])
{
    struct pair_gain *gain = &sched->pairs.gain[slot_of(a, b, ret_of)];

    if (!is_of(gain, ret_of)) {
        *gain = (struct pair_gain){.of = {ret_of[0], ret_of[1]}};
    }
    return gain;
}

/* An item was beside `before`, and now beside `other`, too: the tenant to record, or SEVERAL. */
static weir_sched_id with_other(weir_sched_id before, const struct item *other)
{
    weir_sched_id id = other->queue->tenant->view.id;

    return before == 0 || before == id ? id : SEVERAL;
}

static void note_beside(struct item *item, const struct item *other, uint64_t ns)
{
    item->pair.sharer = with_other(item->pair.sharer, other);
    item->pair.shared_ns += ns;
}

void pair_gain_pass(struct weir_sched *sched, uint64_t ns)
{
    struct item *first = sched->fronts.first[WEIR_SCHED_COMPUTE];
    struct item *second = first ? first->front_next : NULL;

    if (sched->fill.equals != 0 && second && !second->front_next &&
        first->queue->tenant != second->queue->tenant) {
        note_beside(first, second, ns);
        note_beside(second, first, ns);
    }
}

static void judge(const struct weir_sched *sched, struct pair_gain *gain)
{
    struct pair_gain_side *a = &gain->side[0], *b = &gain->side[1];

    if (a->ns < tuning.lately_ns || b->ns < tuning.lately_ns) {
        return;
    }
    if (a->alone_ns / (double)a->ns + b->alone_ns / (double)b->ns < 1 - tuning.clearly) {
        gain->bar_ns = min_u64(max_u64(2 * gain->bar_ns, tuning.pair_bar_ns), tuning.barred_max_ns);
        gain->barred_until_ns = sched->now_ns + gain->bar_ns;
    } else {
        gain->bar_ns = 0;
    }
    *a = *b = (struct pair_gain_side){0};
}

void pair_gain_done(struct weir_sched *sched, const struct item *done)
{
    uint64_t span_ns = sched->now_ns - done->at.head_ns;
    weir_sched_id own = done->queue->tenant->view.id, of[2];

    if (!is_compute(done) || is_unsure(done) || done->saw.stop || !done->is_front) {
        return;
    }
    if (span_ns == 0 && sched->pairs.seen.queue == done->queue->id &&
        sched->pairs.seen.at_ns == sched->now_ns) {
        sched->pairs.seen.side->alone_ns += (double)done->predicted_ns;
        return;
    }
    if (done->pair.sharer == 0 || done->pair.sharer == SEVERAL ||
        done->pair.shared_ns < span_ns - span_ns / tuning.mostly_part) {
        return;
    }
    struct pair_gain *gain = gain_of(sched, own, done->pair.sharer, of);
    judge(sched, gain);
    sched->pairs.seen.queue = done->queue->id;
    sched->pairs.seen.at_ns = sched->now_ns;
    sched->pairs.seen.side = &gain->side[own == of[0] ? 0 : 1];
    sched->pairs.seen.side->alone_ns += (double)done->predicted_ns;
    sched->pairs.seen.side->ns += span_ns;
}

void pair_gain_two_small(struct item *item, const struct item *other, uint64_t ns,
                         uint64_t service_ns)
{
    item->pair.small_other = with_other(item->pair.small_other, other);
    item->pair.two_ns += ns;
    item->pair.two_service_ns += service_ns;
}

uint64_t pair_gain_small_done(struct weir_sched *sched, const struct item *done)
{
    weir_sched_id own = done->queue->tenant->view.id, of[2];
    double speed, least, *mine, *others;

    if (done->pair.small_other == 0 || done->pair.small_other == SEVERAL || done->saw.stop ||
        done->had.alone_ns + done->pair.two_ns <
            done->had.busy_ns - done->had.busy_ns / tuning.mostly_part) {
        return 0;
    }
    struct pair_gain *gain = gain_of(sched, own, done->pair.small_other, of);
    mine = &gain->small_speed[own == of[0] ? 0 : 1];
    others = &gain->small_speed[own == of[0] ? 1 : 0];
    if (done->had.alone_ns > done->had.busy_ns / 16 && done->predicted_ns > done->had.alone_ns &&
        done->pair.two_ns > done->had.busy_ns / 4) {
        speed = (double)(done->predicted_ns - done->had.alone_ns) / (double)done->pair.two_ns;
        speed = WEIR_MIN(speed, 1);
        *mine += (speed - *mine) / (*mine != 0 ? tuning.few : 1);
    }
    least = *others != 0 && (*mine == 0 || *others < *mine) ? *others : *mine;
    return least > 0.5 ? (uint64_t)((2 * least - 1) * (double)done->pair.two_service_ns) : 0;
}
