/*
 * Learn from a finished item how long such items take (predict.c). Only an undisturbed item
 * teaches: it was never moved, and nobody was beside it most of its time. Time that others are
 * known to have taken in between is subtracted. A kernel that was stopped teaches the time in which
 * it was served, because otherwise long kernels would never be known under contention; each stop
 * adds some microseconds of draining. It teaches nothing about places. If a limit keeps a kernel to
 * fewer SMs, its time on all SMs is computed from these.
 *
 * Several items that were seen to end together teach the sum of their times: each is assumed to
 * deviate from its known time in the same ratio as the sum. This is better than to time each kernel
 * by itself, which adds some microseconds. If they are identical, the first is reported with an
 * equal part of the time, and that counts as one observation with the weight of all.
 */
#include "sched/private.h"

#define NEARLY(part, whole) ((part) >= (whole) - (whole) / tuning.error_part)
#define MOSTLY(part, whole) ((part) >= (whole) - (whole) / tuning.mostly_part)

/* The weight of an observation. Where equals fill, few items teach, so a long item that kept equals
 * from filling gets more weight. The ends of short items are seen too late for that. */
static uint32_t weight_of(const struct item *item)
{
    bool clean = item->teaches && !is_unsure(item) && item->busy_ns >= tuning.learn_clean_min_ns;

    return (item->alike != 0 ? item->alike : 1) * (clean ? tuning.learn_clean_weight : 1);
}

static void learn_kernel(struct weir_sched *sched, struct item *item, uint64_t took_ns,
                         bool supposed)
{
    const struct weir_sched_place *place = &item->place;
    bool alone = NEARLY(item->alone_ns, item->busy_ns);
    uint32_t sms = place->sm_count != 0 ? place->sm_count : sched->config.sms;
    /* Otherwise a tenant that always has small graphs beside it would never have sure predictions,
     * and would pay for all the time in which its kernels are on the device. */
    bool nearly_alone =
        alone || (is_unsure(item) && NEARLY(item->alone_ns + item->with_small_ns, item->busy_ns));

    if (nearly_alone && place->block_limit == 0 && sms >= limit_sms(item->queue) &&
        sched->config.predict) {
        uint64_t on_all_ns = took_ns * sms / sched->config.sms;

        if (supposed) {
            weir_predict_suppose(sched->config.predict, item->params.class, item->params.key,
                                 item->params.blocks, on_all_ns);
        } else {
            weir_predict_learn_alike(sched->config.predict, item->params.class, item->params.key,
                                     item->params.blocks, on_all_ns, weight_of(item));
        }
    }
}

/*
 * The duration of a copy that had others beside it in its direction. Copies of a direction run one
 * after the other, so the first of them took the time since the previous copy ended. This has to be
 * learned, because where many tenants copy, a copy always waits behind the one under way. 0: the
 * time says nothing, since one of the two ends may have been seen late.
 */
static uint64_t queued_copy_ns(const struct weir_sched *sched, const struct item *item)
{
    enum weir_sched_resource way = resource_of(item);
    uint64_t begin_ns = max_u64(item->head_ns, sched->copy_done_ns[way]);
    uint64_t took_ns = sched->now_ns - begin_ns;

    return sched->front_first[way] == item && took_ns >= tuning.seen_late_ns ? took_ns : 0;
}

static void learn_copy(struct weir_sched *sched, const struct item *item, uint64_t took_ns)
{
    if (!NEARLY(item->alone_ns, item->busy_ns)) {
        took_ns = is_compute(item) ? 0 : queued_copy_ns(sched, item);
    }
    if (took_ns != 0) {
        weir_predict_learn(sched->config.predict, item->params.class, item->params.key,
                           item->params.bytes, took_ns);
    }
}

/*
 * Is a disturbed time the first one, or does it show a gross error? An item beside a filler, one
 * that fills, or one in a part of the device takes longer by an unknown time. Among equals only a
 * much shorter time counts, since an item that was kept waiting would be thought long and pay for
 * that. If the prediction is sure it does not count either, or only the short times of a kernel
 * whose duration varies would be learned.
 */
static bool is_hint(const struct weir_sched *sched, const struct item *item, uint64_t took_ns)
{
    bool equals = is_among_equals(sched, item) || item->part_sms != 0;

    return item->predicted_ns == 0 ||
           (took_ns < item->predicted_ns / 2 && (!equals || is_unsure(item))) ||
           (took_ns / 2 > item->predicted_ns && !equals);
}

/*
 * Is an item's time doubtful? It was stopped in between, and was beside a kernel that seemed to
 * wait (item.waits) but may have been at work and made it slower. Such times contradicted a sure
 * prediction (md, 6.7 ms instead of 3.0; H200, 2026-11-23), and misled a policy that compares
 * what is done together with times alone.
 */
static bool is_doubtful(const struct weir_sched *sched, const struct item *item, uint64_t took_ns)
{
    return sched->policy[WEIR_POLICY_TOGETHER].ops && item->interrupted && item->beside_waits &&
           item->predicted_ns != 0 && !is_unsure(item) && took_ns > item->predicted_ns &&
           took_ns / tuning.predict_pull <= item->predicted_ns;
}

/*
 * The time of a kernel that was behind another's for a part of its time. If the device ran them one
 * after the other, as it mostly does, that is the time in which it was served. If it ran on SMs
 * that the other left, it took up to the time since it became a head item. So only a prediction
 * outside this range is corrected, and the first time of a kernel is only supposed. 0: the time
 * says nothing.
 */
static uint64_t between_ns(const struct weir_sched *sched, const struct item *item,
                           uint64_t took_ns, bool *ret_supposed)
{
    uint64_t span_ns = sched->now_ns - item->head_ns;

    if (item->interrupted || MOSTLY(item->busy_ns, span_ns)) {
        return took_ns;
    }
    *ret_supposed |= is_unsure(item);
    if (item->predicted_ns == 0) {
        return item->busy_ns >= span_ns / tuning.mostly_part ? took_ns : 0;
    }
    return item->predicted_ns < took_ns ? took_ns : item->predicted_ns > span_ns ? span_ns : 0;
}

/*
 * Is the device's change to the item's domain a large part of its time? Then the item takes at most
 * this time: learn() supposes it if nothing is known, and ignores it if it is not below the
 * prediction.
 */
static bool has_switch_in_it(const struct item *item, uint64_t took_ns)
{
    uint64_t all_ns = took_ns * (item->alike != 0 ? item->alike : 1);

    return item->after_switch && all_ns < tuning.learn_switch_most * tuning.switch_ns;
}

/* The time on all SMs of an item that was kept to a part of them, estimated by waves of blocks. */
static uint64_t time_on_all_ns(const struct weir_sched *sched, const struct item *item,
                               uint64_t took_ns)
{
    double at_once = (double)item->params.blocks_per_sm * sched->config.sms;
    double there = (double)item->params.blocks_per_sm * item->part_sms;
    double blocks = item->params.blocks;

    if (item->part_sms == 0) {
        return took_ns;
    }
    return (uint64_t)((double)took_ns * (blocks > at_once ? blocks / at_once : 1) /
                      (blocks > there ? blocks / there : 1));
}

void learn(struct weir_sched *sched, struct item *item, uint64_t took_ns)
{
    /* On a part of the SMs only unsure durations are learned. */
    bool disturbed =
        item->beside_filler || item->filler || (item->part_sms != 0 && !is_unsure(item));
    bool supposed = disturbed && is_unsure(item);

    if (is_first(item) && item->busy_ns == 0) {
        first_learn(sched, item);
    }
    took_ns = took_ns != 0 && !item->interrupted ? min_u64(took_ns, item->busy_ns) : item->busy_ns;
    if (item->disturbed || item->beside_ns > took_ns / 2 || item->busy_ns == 0) {
        return;
    }
    took_ns = time_on_all_ns(sched, item, took_ns - item->beside_ns);
    if ((disturbed && !is_hint(sched, item, took_ns)) || is_doubtful(sched, item, took_ns)) {
        return;
    }
    if (has_switch_in_it(item, took_ns)) {
        if (item->predicted_ns != 0 && took_ns >= item->predicted_ns) {
            return;
        }
        supposed |= item->predicted_ns == 0;
    }
    if (item->params.class == WEIR_SCHED_KERNEL || item->params.class == WEIR_SCHED_GRAPH) {
        took_ns = between_ns(sched, item, took_ns, &supposed);
        if (took_ns != 0) {
            learn_kernel(sched, item, took_ns, supposed);
        }
    } else if (sched->config.predict) {
        learn_copy(sched, item, took_ns);
    }
}

/* Were only items of this queue served since the first of them became its head item? */
static bool were_alone(const struct weir_sched *sched, const struct item *first)
{
    uint64_t span_ns = sched->now_ns - first->head_ns;

    return first->is_front && first->started_ns < first->head_ns && !first->filler &&
           !first->after_switch && !first->beside_filler && sched->fillers == 0 &&
           NEARLY(first->alone_ns, span_ns) && first->beside_ns == 0;
}

static bool is_plain(const struct item *item)
{
    return item->params.class == WEIR_SCHED_KERNEL && item->params.key != 0 && !item->disturbed &&
           !item->interrupted && item->part_sms == 0 && is_everywhere(&item->place);
}

void weir_sched_done_together(struct weir_sched *sched, uint64_t now_ns, const weir_sched_id *ids,
                              uint32_t count)
{
    struct item *first = count != 0 ? table_get(&sched->items, ids[0]) : NULL;
    const struct item *item = first;
    uint64_t predicted_ns = 0;
    bool alike = true, sure = true;
    double ratio;

    time_is(sched, now_ns);
    if (!first) {
        return;
    }
    for (uint32_t i = 0; i < count; i++, item = item->next) {
        if (!item || item->id != ids[i] || !is_plain(item)) {
            return;
        }
        predicted_ns += item->predicted_ns;
        alike &= is_like(item, first);
        sure &= !is_unsure(item);
    }
    if (alike) {
        first->alike = count;
        return;
    }
    if (!sure || !sched->config.predict || !were_alone(sched, first)) {
        return;
    }
    ratio = (double)(sched->now_ns - first->head_ns) / (double)predicted_ns;
    if (ratio < 1 / tuning.learn_together_max || ratio > tuning.learn_together_max) {
        return; /* an item was served differently, or was disturbed */
    }
    item = first;
    for (uint32_t i = 0; i < count; i++, item = item->next) {
        weir_predict_learn(sched->config.predict, item->params.class, item->params.key,
                           item->params.blocks, (uint64_t)((double)item->predicted_ns * ratio));
    }
}
