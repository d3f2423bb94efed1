/*
 * What a finished item teaches: how long such items take (predict.c), and for kernels how fast they
 * are at a place and in a company (measure.c). Only what was undisturbed teaches: never moved, and
 * in one company nearly all of its time; less what others are known to have taken in between. A
 * kernel that was stopped teaches how long it took by the time in which it was served, for else
 * long ones would never be known where there is contention; each stop adds some microseconds of
 * draining to that. It says nothing about places. Of one that never has more SMs than its limit,
 * what the time on all would be is reckoned from them.
 */
#include "sched/private.h"

#define NEARLY(part, whole) ((part) >= (whole) - (whole) / 32)

static void learn_kernel(struct weir_sched *sched, struct item *item, uint64_t took_ns)
{
    static const struct company nobody;
    const struct weir_sched_place *place = &item->place;
    bool alone = NEARLY(item->alone_ns, item->busy_ns);
    bool paired = item->partner.key != 0 && NEARLY(item->partner_ns, item->busy_ns);
    uint32_t sms = place->sm_count != 0 ? place->sm_count : sched->config.sms;
    const struct weir_policy_measure *measure;

    if (alone && place->quota == 0 && sms >= limit_sms(item->queue) &&
        sched->config.predict != NULL) {
        weir_predict_learn(sched->config.predict, item->params.class, item->params.key,
                           item->params.blocks, took_ns * sms / sched->config.sms);
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
}

/* Beside a filler it took longer by an unknown time: that tells of gross errors only. */
static bool is_about(uint64_t took_ns, uint64_t predicted_ns)
{
    return took_ns <= 2 * predicted_ns && predicted_ns <= 2 * took_ns;
}

void learn(struct weir_sched *sched, struct item *item, uint64_t took_ns)
{
    took_ns = took_ns != 0 && !item->interrupted ? took_ns : item->busy_ns;
    if (item->disturbed || item->beside_ns > took_ns / 2 || item->busy_ns == 0) {
        return;
    }
    took_ns -= item->beside_ns;
    if (item->beside_filler && is_about(took_ns, item->predicted_ns)) {
        return;
    }
    if (item->params.class == WEIR_SCHED_KERNEL || item->params.class == WEIR_SCHED_GRAPH) {
        learn_kernel(sched, item, took_ns);
    } else if (NEARLY(item->alone_ns, item->busy_ns) && sched->config.predict != NULL) {
        weir_predict_learn(sched->config.predict, item->params.class, 0, item->params.bytes,
                           took_ns);
    }
}
