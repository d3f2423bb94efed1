/*
 * Copies: each direction has a list of queues whose next item is a copy that way, higher classes
 * first, then by their tenants' shares (copy_share.c).
 *
 * The shortest of the first few copies whose shares allow it is granted. If one tenant alone copies
 * in a direction, it gets up to alone_ns. If several do, or did a moment ago, they get up to
 * inflight_ns of predicted rest in the direction, so that the copy engine never waits and a
 * newcomer waits for little more than the copy that runs.
 *
 * A copy in pieces continues before another is chosen (copy_share.c). If several tenants copy, a
 * copy of copy_long_ns or more has the direction for itself: it waits for the end of the copies
 * before it, and the next copy waits for its end.
 */
#include "sched/private.h"

static uint64_t rest_ns(const struct weir_sched *sched, const struct item *item)
{
    return item->counted_ns - min_u64(served_time_ns(sched, item), item->counted_ns);
}

/* Predicted rest of the copies on the device in a direction: head items and those behind them. */
static uint64_t busy_ns(const struct weir_sched *sched, enum weir_sched_resource way)
{
    uint64_t sum_ns = 0;

    for (const struct item *i = sched->fronts.first[way]; i; i = i->front_next) {
        sum_ns += i->queue->copies_ns - i->counted_ns + rest_ns(sched, i);
    }
    return sum_ns;
}

static bool is_long(const struct item *copy)
{
    return copy->counted_ns >= tuning.copy_long_ns;
}

/*
 * Must a copy wait for the end of other queues' copies in its direction, and until when? It waits
 * for a long copy and, if it is long itself, for any copy. If both were on the device, the shorter
 * one would seem to end only with the long one, and its stream would not go on before that (H200,
 * 2026-11-23: kernels waited 3 ms for data that had long arrived, and 2.5 to 5 ms where a copy of
 * 0.1 ms had been granted just before the long one). It does not wait for a copy that is overdue,
 * since that copy may be waiting itself.
 */
static bool has_to_wait(const struct weir_sched *sched, enum weir_sched_resource way,
                        const struct queue *own, bool for_any, uint64_t *wake_ns)
{
    uint64_t hold = 0;

    for (const struct item *i = sched->fronts.first[way]; i; i = i->front_next) {
        uint64_t patience_ns = copy_patience_ns(sched, i);

        if (i->queue != own && (is_long(i) || for_any) && i->had.busy_ns < patience_ns) {
            hold = max_u64(hold, patience_ns - i->had.busy_ns);
        }
    }
    *wake_ns = hold != 0 ? min_u64(*wake_ns, sched->now_ns + hold) : *wake_ns;
    return hold != 0;
}

/* Must a queue's copy wait for another's end, or for the next copy of the last tenant? */
static bool is_held(struct weir_sched *sched, enum weir_sched_resource way,
                    const struct queue *queue, uint64_t *wake_ns)
{
    uint64_t until_ns = copy_expected_ns(sched, way, queue);
    const struct queue *own = copy_going_on(sched, way, queue) == queue ? queue : NULL;

    if (sched->way[way].tenants > 1 &&
        has_to_wait(sched, way, own, is_long(queue->listed) || until_ns == NEVER, wake_ns)) {
        return true;
    }
    if (until_ns == 0 || until_ns == NEVER) {
        return false;
    }
    *wake_ns = min_u64(*wake_ns, until_ns);
    return true;
}

/* Set the queue whose copy is granted as soon as it need not wait. */
static void name_next(struct weir_sched *sched, enum weir_sched_resource way, struct queue *queue)
{
    const struct item *copy = queue->listed;

    if (sched->way[way].next != queue && sched->env.soon) {
        sched->env.soon(sched->env.user, copy->id, copy->params.user);
    }
    sched->way[way].next = queue;
}

static void grant_copy(struct weir_sched *sched, struct queue *queue)
{
    static const struct weir_sched_place anywhere;

    item_start(sched, queue->listed, &anywhere, WEIR_SCHED_PLAIN);
    tenant_refresh(sched, queue->tenant);
}

/* Find the queue whose copy in pieces continues before `next`, if its next piece has arrived. */
static struct queue *next_piece(const struct weir_sched *sched, enum weir_sched_resource way,
                                const struct queue *next)
{
    struct queue *queue = copy_going_on(sched, way, next);

    return queue && queue->listed && resource_of(queue->listed) == way ? queue : NULL;
}

/*
 * The queue with the shortest copy among the first few that have room for more and whose tenants
 * are not ahead of the first by more than lag_ns. So work that needs the data of a short copy does
 * not wait for a long copy, too.
 */
static struct queue *shortest_with_room(const struct weir_sched *sched,
                                        enum weir_sched_resource way, uint64_t bound_ns)
{
    struct queue *first = NULL;
    struct queue *best = NULL;
    uint32_t seen = 0;

    for (struct queue *queue = sched->way[way].first; queue && seen < tuning.few;
         queue = queue->list_next) {
        if (queue->on_device != 0 && queue_rest_ns(sched, queue) >= bound_ns) {
            continue;
        }
        if (!first) {
            first = best = queue;
        } else if (queue->tenant->view.priority < first->tenant->view.priority ||
                   !copy_is_within(queue, first->listed->copy.start, tuning.lag_ns)) {
            break;
        } else if (copy_whole_ns(queue->listed) < copy_whole_ns(best->listed)) {
            best = queue;
        }
        seen++;
    }
    return best;
}

/* Find the queue whose copy is next; NULL: none has room. */
static struct queue *next_by_shares(const struct weir_sched *sched, enum weir_sched_resource way,
                                    uint64_t bound_ns)
{
    struct queue *best = shortest_with_room(sched, way, bound_ns);
    struct queue *whole = next_piece(sched, way, best ? best : sched->way[way].first);

    if (!whole) {
        return best;
    }
    return whole->on_device == 0 || queue_rest_ns(sched, whole) < bound_ns ? whole : NULL;
}

/* Find a queue whose copy has waited for starve_ns, at limited intervals; NULL: none. */
static struct queue *starved(struct weir_sched *sched, enum weir_sched_resource way)
{
    struct queue *oldest = sched->way[way].first;

    if (sched->now_ns < sched->way[way].check_ns) {
        return NULL;
    }
    for (struct queue *queue = oldest; queue; queue = queue->list_next) {
        oldest = queue->listed->at.since_ns < oldest->listed->at.since_ns ? queue : oldest;
    }
    sched->way[way].check_ns = oldest->listed->at.since_ns + sched->config.starve_ns;
    if (sched->now_ns < sched->way[way].check_ns) {
        return NULL;
    }
    sched->way[way].check_ns = sched->now_ns + tuning.rescue_slice_ns * tuning.rescue_every;
    return oldest;
}

/* Wake when the direction has at most inflight_ns of work left, or soon if it has less. */
static void wake_near_end(const struct weir_sched *sched, uint64_t rest_ns, uint64_t *wake_ns)
{
    uint64_t early_ns = rest_ns - min_u64(sched->config.inflight_ns, rest_ns);

    *wake_ns = min_u64(*wake_ns, sched->now_ns + max_u64(early_ns, tuning.wake_min_ns));
}

/* Grant the first copy of the list that may go now. @return false: none may */
static bool grant_first(struct weir_sched *sched, enum weir_sched_resource way, uint64_t *wake_ns)
{
    const struct weir_sched_config *config = &sched->config;
    bool shared = copies_are_shared(sched, way);
    uint64_t rest_ns = busy_ns(sched, way);
    struct queue *queue = next_by_shares(
        sched, way, sched->way[way].tenants > 1 ? config->inflight_ns : config->alone_ns);

    if (queue && is_held(sched, way, queue, wake_ns)) {
        if (rest_ns <= config->inflight_ns) {
            name_next(sched, way, queue);
        } else {
            wake_near_end(sched, rest_ns, wake_ns);
        }
        return false;
    }
    if (!queue || (shared && sched->fronts.first[way] && rest_ns >= config->inflight_ns)) {
        if (sched->fronts.first[way]) {
            wake_near_end(sched, rest_ns, wake_ns);
        }
        return false;
    }
    grant_copy(sched, queue);
    return true;
}

static void grant_by_shares(struct weir_sched *sched, enum weir_sched_resource way,
                            uint64_t *wake_ns)
{
    struct queue *queue = starved(sched, way);

    if (queue) {
        sched->counts.rescues++;
        grant_copy(sched, queue);
    }
    while (sched->way[way].first && grant_first(sched, way, wake_ns)) {
    }
    if (sched->way[way].first) {
        *wake_ns = min_u64(*wake_ns, sched->way[way].check_ns);
    }
}

void copies_decide(struct weir_sched *sched, uint64_t *wake_ns)
{
    for (int way = WEIR_SCHED_TO_DEVICE; way < RESOURCES; way++) {
        if (!sched->way[way].first) {
            sched->way[way].idle_since_ns = 0;
            continue;
        }
        grant_by_shares(sched, (enum weir_sched_resource)way, wake_ns);
    }
}
