/*
 * Does it pay that two equals fill each other's gaps (fill.c)? Mostly; but some kernels are each
 * other's ruin, since they want the same cache: one of dense algebra with tensor cores took 18 ms
 * instead of 1.9 below one that walks a table, which took twice as long itself (an H200). In turns
 * both are better off.
 *
 * So of each two tenants it is added up how long their items took that had the other's beside them,
 * and nobody else's, while somebody filled, and what they take alone. The one by the other is how
 * fast each was, and both together are to come to one at least. If they do not, they do not
 * fill for each other for a while, which is longer each time.
 *
 * Of several that are seen to be done at once the first is said to have taken all the time.
 */
#include "base/hash.h"
#include "sched/private.h"

#define SEEN_NS  50000000u   /* of each one's items, before it is judged */
#define BAR_NS   2000000000u /* doubled each time */
#define BARS_MAX 4u
#define LEAST    0.9 /* of what turns would give; they lose some percent, too */
#define SEVERAL  UINT64_MAX

/* The slot that two may have, and their ids as they are there. */
static uint32_t slot_of(weir_sched_id a, weir_sched_id b, weir_sched_id ret_of[2])
{
    ret_of[0] = min_u64(a, b);
    ret_of[1] = max_u64(a, b);
    return weir_hash_slot(weir_hash64_of(ret_of, 2 * sizeof(*ret_of)), WORTH_SLOTS);
}

static bool is_of(const struct worth *worth, const weir_sched_id of[2])
{
    return worth->of[0] == of[0] && worth->of[1] == of[1];
}

bool worth_filling(const struct weir_sched *sched, const struct tenant *a, const struct tenant *b)
{
    weir_sched_id of[2];
    const struct worth *worth = &sched->worth[slot_of(a->view.id, b->view.id, of)];

    return !is_of(worth, of) || sched->now_ns >= worth->barred_until_ns;
}

static void note_beside(struct item *item, const struct item *other, uint64_t ns)
{
    weir_sched_id id = other->queue->tenant->view.id;

    item->sharer = item->sharer == 0 || item->sharer == id ? id : SEVERAL;
    item->shared_ns += ns;
}

void worth_pass(struct weir_sched *sched, uint64_t ns)
{
    struct item *first = sched->front_first[WEIR_SCHED_COMPUTE];
    struct item *second = first != NULL ? first->front_next : NULL;

    if (sched->equal_fillers != 0 && second != NULL && second->front_next == NULL &&
        first->queue->tenant != second->queue->tenant) {
        note_beside(first, second, ns);
        note_beside(second, first, ns);
    }
}

static void judge(const struct weir_sched *sched, struct worth *worth)
{
    struct worth_side *a = &worth->side[0], *b = &worth->side[1];

    if (a->ns < SEEN_NS || b->ns < SEEN_NS) {
        return;
    }
    if (a->alone_ns / (double)a->ns + b->alone_ns / (double)b->ns < LEAST) {
        worth->barred_until_ns = sched->now_ns + ((uint64_t)BAR_NS << worth->bars);
        worth->bars += worth->bars < BARS_MAX;
    } else {
        worth->bars = 0;
    }
    *a = *b = (struct worth_side){0};
}

void worth_done(struct weir_sched *sched, const struct item *done)
{
    uint64_t span_ns = sched->now_ns - done->head_ns;
    weir_sched_id own = done->queue->tenant->view.id, of[2];
    struct worth *worth;

    if (!is_compute(done) || is_unsure(done) || done->interrupted || !done->is_front) {
        return;
    }
    if (span_ns == 0 && sched->seen.queue == done->queue->id &&
        sched->seen.at_ns == sched->now_ns) {
        sched->seen.side->alone_ns += (double)done->predicted_ns;
        return;
    }
    if (done->sharer == 0 || done->sharer == SEVERAL || done->shared_ns < span_ns - span_ns / 8) {
        return;
    }
    worth = &sched->worth[slot_of(own, done->sharer, of)];
    if (!is_of(worth, of)) {
        *worth = (struct worth){.of = {of[0], of[1]}};
    }
    judge(sched, worth);
    sched->seen.queue = done->queue->id;
    sched->seen.at_ns = sched->now_ns;
    sched->seen.side = &worth->side[own == of[0] ? 0 : 1];
    sched->seen.side->alone_ns += (double)done->predicted_ns;
    sched->seen.side->ns += span_ns;
}
