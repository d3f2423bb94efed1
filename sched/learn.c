/*
 * What a finished item teaches: how long such items take (predict.c), and for kernels how fast they
 * are at a place and in a company (measure.c). Only what was undisturbed teaches: never moved, and
 * in one company most of its time; less what others are known to have taken in between. A
 * kernel that was stopped teaches how long it took by the time in which it was served, for else
 * long ones would never be known where there is contention; each stop adds some microseconds of
 * draining to that. It says nothing about places. Of one that never has more SMs than its limit,
 * what the time on all would be is reckoned from them.
 */
#include "sched/private.h"

#define NEARLY(part, whole) ((part) >= (whole) - (whole) / 32)
/* Of a partner, whose kernels end and begin meanwhile, with something else between them. */
#define MOSTLY(part, whole) ((part) >= (whole) - (whole) / 8)
#define UNSURE              8u /* that part of its time at least, before a kernel's first is believed */
#define QUEUED_MIN_NS       100000u /* ends are seen up to some 20 us late */

static void learn_kernel(struct weir_sched *sched, struct item *item, uint64_t took_ns,
                         bool supposed)
{
    static const struct company nobody;
    const struct weir_sched_place *place = &item->place;
    bool alone = NEARLY(item->alone_ns, item->busy_ns);
    bool paired = item->partner.key != 0 && MOSTLY(item->partner_ns, item->busy_ns);
    uint32_t sms = place->sm_count != 0 ? place->sm_count : sched->config.sms;
    const struct weir_policy_measure *measure;

    if (alone && place->quota == 0 && sms >= limit_sms(item->queue) &&
        sched->config.predict != NULL) {
        (supposed ? weir_predict_suppose : weir_predict_learn)(
            sched->config.predict, item->params.class, item->params.key, item->params.blocks,
            took_ns * sms / sched->config.sms);
    }
    if ((!alone && !paired) || item->interrupted || item->params.key == 0 ||
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
        weir_predict_learn(sched->config.predict, item->params.class, 0, item->params.bytes,
                           took_ns);
    }
}

static bool is_unsure(const struct item *item)
{
    return item->predicted_ns == 0 || (item->params.flags & WEIR_SCHED_UNSURE) != 0;
}

/*
 * Beside a filler, or being one, it took longer by an unknown time, so that tells of gross errors
 * only. Among equals of those in one direction, since who was kept waiting says nothing of what it
 * takes, and would pay for it; and of none where durations are known, since the short ones of a
 * kernel whose durations vary would be learned, and the long ones not.
 */
static bool is_hint(const struct weir_sched *sched, const struct item *item, uint64_t took_ns)
{
    bool equals = is_among_equals(sched, item);

    return item->predicted_ns == 0 ||
           (took_ns < item->predicted_ns / 2 && (!equals || is_unsure(item))) ||
           (took_ns / 2 > item->predicted_ns && !equals);
}

/*
 * What a kernel took that stood behind another's for a part of its time. If the device took them
 * one after the other, as it mostly does, that is the time in which it was served; if it ran in
 * what the other left, anything up to the time since it was first of its queue. So it tells of
 * predictions outside of that only. 0: it says nothing.
 */
static uint64_t between_ns(const struct weir_sched *sched, const struct item *item,
                           uint64_t took_ns)
{
    uint64_t span_ns = sched->now_ns - item->head_ns;

    if (item->interrupted || MOSTLY(item->busy_ns, span_ns)) {
        return took_ns;
    }
    if (item->predicted_ns == 0) {
        return item->busy_ns >= span_ns / UNSURE ? took_ns : 0;
    }
    return item->predicted_ns < took_ns ? took_ns : item->predicted_ns > span_ns ? span_ns : 0;
}

void learn(struct weir_sched *sched, struct item *item, uint64_t took_ns)
{
    bool disturbed = item->beside_filler || item->filler;

    took_ns = took_ns != 0 && !item->interrupted ? took_ns : item->busy_ns;
    if (item->disturbed || item->beside_ns > took_ns / 2 || item->busy_ns == 0) {
        return;
    }
    took_ns -= item->beside_ns;
    if (disturbed && !is_hint(sched, item, took_ns)) {
        return;
    }
    if (item->params.class == WEIR_SCHED_KERNEL || item->params.class == WEIR_SCHED_GRAPH) {
        took_ns = between_ns(sched, item, took_ns);
        if (took_ns != 0) {
            learn_kernel(sched, item, took_ns, disturbed && is_unsure(item));
        }
    } else if (sched->config.predict != NULL) {
        learn_copy(sched, item, took_ns);
    }
}
