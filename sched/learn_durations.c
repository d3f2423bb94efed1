/*
 * The learner of durations: what an item that ends teaches about the time that its kernel, graph or
 * copy takes alone on the device. predict.c keeps what is learned.
 *
 * The way in which an item was served gives a lower and an upper bound of its time alone. If
 * nothing ran beside it, both bounds are the time in which it was served, and that is learned. If
 * something did, only a prediction outside of the bounds is corrected, to the nearer bound, and an
 * unsure one stays a supposition until such an item was seen alone. So work that always has others
 * beside it is known well enough to be scheduled, and nobody pays for time that others took.
 *
 * An item that was moved, or whose start was not seen, teaches nothing. Time that later items are
 * known to have taken in between is subtracted. A kernel that was stopped teaches the time in which
 * it was served, because otherwise long kernels would never be known under contention; each stop
 * adds some microseconds of draining.
 *
 * Several items that were seen to end together teach the sum of their times: each is assumed to
 * deviate from its known time in the same ratio as the sum. This is better than to time each kernel
 * by itself, which adds some microseconds. If they are identical, the first is reported with an
 * equal part of the time, and that counts as one observation with the weight of all.
 */
#include "sched/private.h"

#define NEARLY(part, whole) ((part) >= (whole) - (whole) / tuning.error_part)
#define MOSTLY(part, whole) ((part) >= (whole) - (whole) / tuning.mostly_part)

struct bounds {
    uint64_t least_ns, most_ns; /* most_ns 0: the item teaches nothing */
};

/* The weight of an observation. Where equals fill, few items teach, so a long item that kept equals
 * from filling gets more weight. The ends of short items are seen too late for that. */
static uint32_t weight_of(const struct item *item)
{
    bool clean =
        item->teaches && !is_unsure(item) && item->had.busy_ns >= tuning.learn_clean_min_ns;

    return (item->alike != 0 ? item->alike : 1) * (clean ? tuning.learn_clean_weight : 1);
}

static void take(const struct weir_sched *sched, const struct item *item, struct bounds bounds)
{
    const struct weir_sched_item_params *p = &item->params;
    bool kernel = p->class == WEIR_SCHED_KERNEL || p->class == WEIR_SCHED_GRAPH;
    uint64_t size = kernel ? p->blocks : p->bytes;

    if (bounds.least_ns == bounds.most_ns) {
        weir_predict_learn_alike(sched->config.predict, p->class, p->key, size, bounds.most_ns,
                                 weight_of(item));
    } else if (item->predicted_ns < bounds.least_ns || item->predicted_ns > bounds.most_ns) {
        (is_unsure(item) ? weir_predict_suppose : weir_predict_learn)(
            sched->config.predict, p->class, p->key, size,
            item->predicted_ns < bounds.least_ns ? bounds.least_ns : bounds.most_ns);
    }
}

/*
 * Copies of a direction run one after the other, so the first of several took the time since the
 * previous copy ended. This has to be learned, because where many tenants copy, a copy always waits
 * behind the one under way. A short time teaches nothing, since one of the two ends may have been
 * seen late.
 */
static struct bounds copy_bounds(const struct weir_sched *sched, const struct item *item,
                                 uint64_t took_ns)
{
    enum weir_sched_resource way = resource_of(item);

    if (!NEARLY(item->had.alone_ns, item->had.busy_ns)) {
        took_ns = sched->now_ns - max_u64(item->at.head_ns, sched->way[way].done_ns);
        if (way == WEIR_SCHED_COMPUTE || sched->fronts.first[way] != item ||
            took_ns < tuning.seen_late_ns) {
            took_ns = 0;
        }
    }
    return (struct bounds){took_ns, took_ns};
}

/* The time on all SMs of an item that was kept to some of them: to part_sms, estimated by waves of
 * blocks, or to its limit. */
static uint64_t time_on_all_ns(const struct weir_sched *sched, const struct item *item,
                               uint64_t took_ns)
{
    double at_once = (double)item->params.blocks_per_sm * sched->config.sms;
    double there = (double)item->params.blocks_per_sm * item->part_sms;
    double blocks = item->params.blocks;

    if (item->part_sms == 0) {
        return item->place.sm_count == 0 ? took_ns
                                         : took_ns * item->place.sm_count / sched->config.sms;
    }
    return (uint64_t)((double)took_ns * (blocks > at_once ? blocks / at_once : 1) /
                      (blocks > there ? blocks / there : 1));
}

/* Had a kernel its SMs for itself while it was served? Small graphs beside one that is not sure do
 * not count: a tenant that always has them beside it would never have sure predictions, and would
 * pay for all the time in which its kernels are on the device. */
static bool had_its_sms(const struct item *item)
{
    const struct weir_sched_place *place = &item->place;
    uint64_t alone_ns = item->had.alone_ns;

    if (!NEARLY(alone_ns, item->had.busy_ns) && is_unsure(item)) {
        alone_ns += item->had.with_small_ns;
    }
    return NEARLY(alone_ns, item->had.busy_ns) && place->block_limit == 0 &&
           (place->sm_count == 0 || place->sm_count >= limit_sms(item->queue));
}

/*
 * The bounds for a kernel or graph that was served for took_ns.
 *
 * - It was behind another's kernel for a part of its time. If the device ran them one after the
 *   other, as it mostly does, it took the time in which it was served; if it ran on SMs that the
 *   other left, it took up to the time since it became a head item.
 * - It was stopped, and beside a kernel that seemed to wait (item.waits) but may have been at work
 *   and made it slower: md took 6.7 ms instead of 3.0 (H200, 2026-11-23).
 * - A change of context may be a large part of its time.
 * - It was beside a filler, or filled itself: it may take less, beside a lower class not much.
 */
static struct bounds kernel_bounds(const struct weir_sched *sched, const struct item *item,
                                   uint64_t took_ns)
{
    uint64_t span_ns = sched->now_ns - item->at.head_ns;
    uint64_t all_ns = took_ns * (item->alike != 0 ? item->alike : 1);
    bool known = item->predicted_ns != 0;
    struct bounds bounds = {took_ns, took_ns};

    if (!item->saw.stop && !MOSTLY(item->had.busy_ns, span_ns)) {
        bounds.most_ns = known || item->had.busy_ns >= span_ns / tuning.mostly_part ? span_ns : 0;
    }
    if (item->saw.stop && item->saw.waits) {
        bounds.least_ns = took_ns / (uint64_t)tuning.predict_pull;
    }
    if (item->saw.new_domain && all_ns < tuning.learn_switch_most * tuning.switch_ns) {
        bounds.least_ns = 0;
    }
    if (item->saw.filler || is_filler(item)) {
        bounds.least_ns = is_among_equals(sched, item) ? 0 : took_ns / 2;
    }
    if (!known && bounds.least_ns != bounds.most_ns && bounds.most_ns != 0) {
        return (struct bounds){took_ns, NEVER};
    }
    return bounds;
}

/* Is the time of an item useless? If its duration is sure, times on a part of the SMs or beside
 * equals are: of a kernel whose duration varies only the short times would be learned. */
static bool says_nothing(const struct weir_sched *sched, const struct item *item)
{
    bool equals = (item->saw.filler || is_filler(item)) && is_among_equals(sched, item);

    return item->saw.moved || item->had.busy_ns == 0 ||
           (!is_unsure(item) && (item->part_sms != 0 || equals));
}

void learn(struct weir_sched *sched, struct item *item, uint64_t took_ns)
{
    bool kernel = item->params.class == WEIR_SCHED_KERNEL || item->params.class == WEIR_SCHED_GRAPH;
    struct bounds bounds = {0};

    took_ns =
        took_ns != 0 && !item->saw.stop ? min_u64(took_ns, item->had.busy_ns) : item->had.busy_ns;
    if (!sched->config.predict) {
        return;
    }
    if (is_first(item) && item->had.busy_ns == 0) { /* it was never charged */
        first_bounds(sched, item, &bounds.least_ns, &bounds.most_ns);
    } else if (says_nothing(sched, item) || item->had.beside_ns > took_ns / 2) {
        return;
    } else if (!kernel) {
        bounds = copy_bounds(sched, item, took_ns - item->had.beside_ns);
    } else if (had_its_sms(item)) {
        bounds =
            kernel_bounds(sched, item, time_on_all_ns(sched, item, took_ns - item->had.beside_ns));
    }
    if (bounds.most_ns != 0) {
        take(sched, item, bounds);
    }
}

/* Has nothing but this queue been served since `first` became its head item? */
static bool were_alone(const struct weir_sched *sched, const struct item *first)
{
    uint64_t span_ns = sched->now_ns - first->at.head_ns;

    return first->is_front && first->at.started_ns < first->at.head_ns && !is_filler(first) &&
           !first->saw.new_domain && !first->saw.filler && sched->fill.items == 0 &&
           NEARLY(first->had.alone_ns, span_ns) && first->had.beside_ns == 0;
}

static bool is_plain(const struct item *item)
{
    return item->params.class == WEIR_SCHED_KERNEL && item->params.key != 0 && !item->saw.moved &&
           !item->saw.stop && item->part_sms == 0 && is_everywhere(&item->place);
}

void weir_sched_done_together(struct weir_sched *sched, uint64_t now_ns, const weir_sched_id *ids,
                              uint32_t count)
{
    struct item *first = count != 0 ? table_get(&sched->items, ids[0]) : NULL;
    const struct item *item = first;
    uint64_t predicted_ns = 0;
    bool alike = true, sure = true;

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
    double ratio = (double)(sched->now_ns - first->at.head_ns) / (double)predicted_ns;
    if (ratio < 1 / tuning.learn_together_max || ratio > tuning.learn_together_max) {
        return; /* an item was served differently, or was disturbed */
    }
    item = first;
    for (uint32_t i = 0; i < count; i++, item = item->next) {
        weir_predict_learn(sched->config.predict, item->params.class, item->params.key,
                           item->params.blocks, (uint64_t)((double)item->predicted_ns * ratio));
    }
}
