/*
 * What a finished item teaches: how long such items take (predict.c), and for kernels how fast they
 * are at a place and in a company (measure.c). Only what was undisturbed teaches: never moved, and
 * in one company most of its time; less what others are known to have taken in between. A
 * kernel that was stopped teaches how long it took by the time in which it was served, for else
 * long ones would never be known where there is contention; each stop adds some microseconds of
 * draining to that. It says nothing about places. Of one that never has more SMs than its limit,
 * what the time on all would be is reckoned from them.
 *
 * Several that are seen to be done at once teach their sum: each is taken to have been as much
 * longer or shorter than it is known to be as all of them were. A kernel timed by itself takes some
 * microseconds more than between others, which would add up. If they are alike, what the first is
 * said to have taken, an equal part, is one observation with the weight of all.
 */
#include "sched/private.h"

#define NEARLY(part, whole) ((part) >= (whole) - (whole) / 32)
/* Of a partner, whose kernels end and begin meanwhile, with something else between them. */
#define MOSTLY(part, whole) ((part) >= (whole) - (whole) / 8)
#define UNSURE              8u /* that part of its time at least, before a kernel's first is believed */
#define TOGETHER_MAX        2.0 /* what several took is no more times as much as was predicted */
#define DOUBTED             4u  /* more than so many times as much teaches all the same */
#define QUEUED_MIN_NS       100000u /* ends are seen up to some 20 us late */
#define CLEAN               4u      /* so much weight has what is seen without equals that fill */
#define CLEAN_MIN_NS        250000u
#define SWITCH_MOST         16u /* of so many times what a switch takes it is a small part */

/* Where equals fill little else teaches, so what does stands for much, if it is long: the ends of
 * short ones are seen too late for that. */
static uint32_t weight_of(const struct item *item)
{
    bool clean = item->teaches && !is_unsure(item) && item->busy_ns >= CLEAN_MIN_NS;

    return (item->alike != 0 ? item->alike : 1) * (clean ? CLEAN : 1);
}

static void learn_kernel(struct weir_sched *sched, struct item *item, uint64_t took_ns,
                         bool supposed)
{
    static const struct company nobody;
    const struct weir_sched_place *place = &item->place;
    bool alone = NEARLY(item->alone_ns, item->busy_ns);
    bool paired = item->partner.key != 0 && MOSTLY(item->partner_ns, item->busy_ns);
    uint32_t sms = place->sm_count != 0 ? place->sm_count : sched->config.sms;
    /* Who always has small graphs beside it would never be sure of anything, and pay for all the
     * time in which its kernels are there. */
    bool nearly_alone =
        alone || (is_unsure(item) && NEARLY(item->alone_ns + item->with_small_ns, item->busy_ns));
    const struct weir_policy_measure *measure;

    if (nearly_alone && place->block_limit == 0 && sms >= limit_sms(item->queue) &&
        sched->config.predict != NULL) {
        uint64_t on_all_ns = took_ns * sms / sched->config.sms;

        if (supposed) {
            weir_predict_suppose(sched->config.predict, item->params.class, item->params.key,
                                 item->params.blocks, on_all_ns);
        } else {
            weir_predict_learn_alike(sched->config.predict, item->params.class, item->params.key,
                                     item->params.blocks, on_all_ns, weight_of(item));
        }
    }
    if ((!alone && !paired) || item->interrupted || item->beside_waits || item->params.key == 0 ||
        item->params.class != WEIR_SCHED_KERNEL) {
        return;
    }
    measure = measures_add(&sched->measures, item->params.key, place,
                           alone ? &nobody : &item->partner, item->params.blocks, took_ns);
    for (uint32_t i = 0; i < WEIR_POLICY_KIND_COUNT && measure != NULL; i++) {
        if (sched->policy[i].ops != NULL && sched->policy[i].ops->measured != NULL) {
            sched->policy[i].ops->measured(&sched->policy[i], measure);
        }
    }
    if (paired) { /* a company that has lost its worth is found out, though its kernels go on */
        sched->group_stale = true;
        sched->group_why = WEIR_POLICY_RETRY;
    }
}

/*
 * A copy that had company in its direction: copies of a direction are done one after the other, so
 * the first of those under way took the time since the one before it was done. That has to be
 * learned from: where many copy, one always waits on the device behind the one that is under way.
 * 0: it says nothing, since the end of one of them may have been seen late.
 */
static uint64_t queued_copy_ns(const struct weir_sched *sched, const struct item *item)
{
    enum weir_sched_resource way = resource_of(item);
    uint64_t begin_ns = max_u64(item->head_ns, sched->copy_done_ns[way]);
    uint64_t took_ns = sched->now_ns - begin_ns;

    return sched->front_first[way] == item && took_ns >= QUEUED_MIN_NS ? took_ns : 0;
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
 * Beside a filler, or being one, or in a part of the device, it took longer by an unknown time, so
 * that tells of gross errors only. Among equals of those in one direction, since who was kept
 * waiting says nothing of what it takes, and would pay for it; and of none where durations are
 * known, since the short ones of a kernel whose durations vary would be learned, and the long ones
 * not.
 */
static bool is_hint(const struct weir_sched *sched, const struct item *item, uint64_t took_ns)
{
    bool equals = is_among_equals(sched, item) || item->part_sms != 0;

    return item->predicted_ns == 0 ||
           (took_ns < item->predicted_ns / 2 && (!equals || is_unsure(item))) ||
           (took_ns / 2 > item->predicted_ns && !equals);
}

/*
 * It was stopped in between, and stood beside a kernel that seemed to wait, since another's had
 * ended as if it had been alone: that one may have been at work all the same, and this one the
 * slower for it. What is sure was contradicted so by what both took together (md, 6.7 ms for 3.0;
 * H200, 2026-11-23), and a policy that compares what kernels take at a place with what they take
 * alone went by that.
 */
static bool is_doubtful(const struct weir_sched *sched, const struct item *item, uint64_t took_ns)
{
    return sched->policy[WEIR_POLICY_TOGETHER].ops != NULL && item->interrupted &&
           item->beside_waits && item->predicted_ns != 0 && !is_unsure(item) &&
           took_ns > item->predicted_ns && took_ns / DOUBTED <= item->predicted_ns;
}

/*
 * What a kernel took that stood behind another's for a part of its time. If the device took them
 * one after the other, as it mostly does, that is the time in which it was served; if it ran in
 * what the other left, anything up to the time since it was first of its queue. So it tells of
 * predictions outside of that only, and of what nothing is known about it is a supposition. 0: it
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
        return item->busy_ns >= span_ns / UNSURE ? took_ns : 0;
    }
    return item->predicted_ns < took_ns ? took_ns : item->predicted_ns > span_ns ? span_ns : 0;
}

/*
 * It came to the device as the first of its domain after another's, and is so short that the change
 * of context is much of what it took. So it takes no longer than that: where nothing is known that
 * is a supposition, and where less is known it says nothing.
 */
static bool has_switch_in_it(const struct item *item, uint64_t took_ns)
{
    uint64_t all_ns = took_ns * (item->alike != 0 ? item->alike : 1);

    return item->after_switch && all_ns < SWITCH_MOST * SWITCH_NS;
}

/* What it would have taken on all SMs, as far as its waves of blocks tell: it is kept to a part. */
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
    /* In a part only what is not known well is learned. */
    bool disturbed =
        item->beside_filler || item->filler || (item->part_sms != 0 && !is_unsure(item));
    bool supposed = disturbed && is_unsure(item);

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
    } else if (sched->config.predict != NULL) {
        learn_copy(sched, item, took_ns);
    }
}

/* Nothing but items of one tenant were at work since the first of them came to the front? */
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
    if (first == NULL) {
        return;
    }
    for (uint32_t i = 0; i < count; i++, item = item->next) {
        if (item == NULL || item->id != ids[i] || !is_plain(item)) {
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
    if (!sure || sched->config.predict == NULL || !were_alone(sched, first)) {
        return;
    }
    ratio = (double)(sched->now_ns - first->head_ns) / (double)predicted_ns;
    if (ratio < 1 / TOGETHER_MAX || ratio > TOGETHER_MAX) {
        return; /* one of them did something else, or something else was there */
    }
    item = first;
    for (uint32_t i = 0; i < count; i++, item = item->next) {
        weir_predict_learn(sched->config.predict, item->params.class, item->params.key,
                           item->params.blocks, (uint64_t)((double)item->predicted_ns * ratio));
    }
}
