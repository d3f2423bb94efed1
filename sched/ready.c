/*
 * Which tenants are ready: updated as items come and go, so that a decision need not look at all
 * queues.
 *
 * A queue is *listed* when its candidate, the first item that waits, could be granted. A copy
 * always can. Compute cannot while copies of some length are before it on the device, because
 * a tenant that gets SMs must be able to use them. A tenant is *ready* when one of its queues has
 * listed compute, or has compute at its head on the device. A queue that is held (queue_is_held())
 * has neither.
 *
 * A tenant that is not ready because others have the turn on several devices (`span`) is *blocked*.
 * Policies are not told of that: they keep its place, as if it had work and were not chosen.
 */
#include "sched/private.h"
#include <stdlib.h>
#include <string.h>

uint64_t item_rest_ns(const struct weir_sched *sched, const struct item *item)
{
    uint64_t served_ns = served_time_ns(sched, item);

    if (item->predicted_ns == 0) {
        return 0;
    }
    return served_ns < item->predicted_ns ? item->predicted_ns - served_ns : 1;
}

uint64_t item_block_ns(const struct weir_sched *sched, const struct item *item)
{
    uint64_t at_once = (uint64_t)item->params.blocks_per_sm * sched->config.sms;
    uint64_t waves = at_once != 0 ? (item->params.blocks + at_once - 1) / at_once : 1;

    return item->predicted_ns / (waves != 0 ? waves : 1);
}

uint64_t queue_rest_ns(const struct weir_sched *sched, const struct queue *queue)
{
    const struct item *first = queue->first;

    if (queue->on_device == 0) {
        return 0;
    }
    return queue->device_ns - min_u64(served_time_ns(sched, first), first->counted_ns);
}

enum weir_status ready_reserve(struct weir_sched *sched)
{
    uint32_t capacity = sched->ready.capacity != 0 ? 2 * sched->ready.capacity : 64;

    if (sched->tenants.live <= sched->ready.capacity) {
        return WEIR_OK;
    }
    const struct weir_policy_tenant **grown = realloc(sched->ready.list, capacity * sizeof(*grown));
    WEIR_FAIL_IF(!grown, WEIR_ERR_NO_MEMORY);
    sched->ready.list = grown;
    grown = realloc(sched->ready.order, capacity * sizeof(*grown));
    WEIR_FAIL_IF(!grown, WEIR_ERR_NO_MEMORY);
    sched->ready.order = grown;
    sched->ready.capacity = capacity;
    return WEIR_OK;
}

/* Does the tenant's turn on several devices end, and was all granted that it still needs? */
static bool has_ended(const struct tenant *tenant)
{
    return tenant->span == WEIR_SCHED_SPAN_ENDS && tenant->span_more == 0;
}

static bool can_be_granted(const struct weir_sched *sched, const struct queue *queue)
{
    const struct item *item = queue->candidate;

    return item && (!is_compute(item) || (queue->copies_ns <= sched->config.inflight_ns &&
                                          !queue_is_held(queue) && !has_ended(queue->tenant)));
}

static void unlist(struct weir_sched *sched, struct queue *queue)
{
    if (is_compute(queue->listed)) {
        queue->tenant->view.waiting--;
    } else {
        copy_unlist(sched, queue);
    }
}

void queue_refresh(struct weir_sched *sched, struct queue *queue)
{
    struct item *item = can_be_granted(sched, queue) ? queue->candidate : NULL;
    bool heads = queue->on_device > 0 && is_compute(queue->first) && !queue_is_held(queue);

    queue->tenant->stale = true;
    queue->tenant->counts.heads += heads - queue->heads;
    queue->heads = heads;
    if (item == queue->listed) {
        return;
    }
    if (queue->listed) {
        unlist(sched, queue);
    }
    queue->listed = item;
    if (!item) {
        return;
    }
    item->at.since_ns = sched->now_ns;
    if (is_compute(item)) {
        queue->tenant->view.waiting++;
        first_note(sched, queue->tenant);
    } else {
        copy_list(sched, queue);
    }
}

/* A tenant without compute got some. */
static void begins(struct weir_sched *sched, struct tenant *tenant)
{
    uint64_t gap_ns;

    tenant->view.ready_since_ns = sched->now_ns;
    if (tenant->idle_ns != NEVER) {
        gap_ns = min_u64(sched->now_ns - tenant->idle_ns, tuning.wait_max_ns);
        tenant->view.gap_ns =
            tenant->view.gap_ns == NEVER ? gap_ns : (7 * tenant->view.gap_ns + gap_ns) / 8;
    }
    sched->min_shares.stale |= sched->min_shares.tenants != 0 && !tenant->active;
    policies_ready(sched, tenant, true);
    tenant->view.passed = false;
}

/* A tenant has no compute left. */
static void ends(struct weir_sched *sched, struct tenant *tenant)
{
    tenant->idle_ns = sched->now_ns;
    tenant->view.ready_since_ns = NEVER;
    tenant->view.waiting_since_ns = NEVER;
    policies_ready(sched, tenant, false);
}

static void list_ready(struct weir_sched *sched, const struct tenant *tenant, bool ready)
{
    const struct weir_policy_tenant **list = sched->ready.list;
    uint32_t at = 0;

    if (ready) {
        list[sched->ready.count++] = &tenant->view;
        sched->news.arrived = true;
        return;
    }
    while (list[at] != &tenant->view) {
        at++;
    }
    sched->ready.count--;
    memmove(&list[at], &list[at + 1], (sched->ready.count - at) * sizeof(*list));
}

/* Has a tenant that is not ready compute that waits, or is on the device? */
static bool has_compute(const struct tenant *tenant)
{
    const struct queue *queue = tenant->queues;

    while (queue && (!queue->candidate || !is_compute(queue->candidate)) && queue->kernels == 0) {
        queue = queue->next;
    }
    return queue != NULL;
}

void tenant_refresh(struct weir_sched *sched, struct tenant *tenant)
{
    bool ready = tenant->view.waiting + tenant->counts.heads > 0;
    bool works = ready || (tenant->span >= WEIR_SCHED_SPAN_ENDS && has_compute(tenant));
    bool blocked = works && !ready;

    if (ready != tenant->is_ready) {
        tenant->is_ready = ready;
        sched->news.ready = true;
        sched->news.group = true;
        list_ready(sched, tenant, ready);
    }
    sched->span_news += blocked != tenant->blocked ||
                        (works != tenant->works && tenant->span != WEIR_SCHED_SPAN_FREE);
    if (blocked != tenant->blocked) {
        tenant->blocked = blocked;
        tenant->blocked_ns = sched->now_ns;
        sched->blocked += blocked ? 1 : -1u;
    }
    if (works != tenant->works) {
        tenant->works = works;
        (works ? begins : ends)(sched, tenant);
    }
}

/* Wake up when the queue can be granted more, if its head item is at work. */
void wake_for(const struct weir_sched *sched, const struct queue *queue, uint64_t bound_ns,
              uint64_t *wake_ns)
{
    uint64_t rest_ns = queue_rest_ns(sched, queue);

    if (!queue->listed || !is_compute(queue->listed) || queue->on_device == 0 ||
        !queue->first->is_front) {
        return;
    }
    rest_ns = rest_ns > bound_ns ? rest_ns - bound_ns : 0;
    *wake_ns = min_u64(*wake_ns, sched->now_ns + WEIR_MAX(rest_ns, tuning.wake_min_ns));
}
