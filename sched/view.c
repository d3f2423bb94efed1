/*
 * Who is ready for what: kept as items come and go, so that a decision need not look at all queues.
 *
 * A queue is *listed* when its candidate, the first that waits, could be granted: a copy always;
 * compute unless copies of some length are before it on the device, because whoever gets SMs must
 * be able to use them. A tenant is *ready* when a queue of its has listed compute, or compute at
 * its head on the device. A queue that is held by an SM limit has neither. What policies see of a
 * tenant is made anew before they are asked, where it changed.
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
    uint32_t capacity = sched->ready_capacity != 0 ? 2 * sched->ready_capacity : 64;
    const struct weir_policy_tenant **grown;

    if (sched->tenants.live <= sched->ready_capacity) {
        return WEIR_OK;
    }
    grown = realloc(sched->ready, capacity * sizeof(*grown));
    if (grown == NULL) {
        return WEIR_ERR_NO_MEMORY;
    }
    sched->ready = grown;
    grown = realloc(sched->order, capacity * sizeof(*grown));
    if (grown == NULL) {
        return WEIR_ERR_NO_MEMORY;
    }
    sched->order = grown;
    sched->ready_capacity = capacity;
    return WEIR_OK;
}

static bool can_be_granted(const struct weir_sched *sched, const struct queue *queue)
{
    const struct item *item = queue->candidate;

    return item != NULL &&
           (!is_compute(item) || (queue->copies_ns <= sched->config.inflight_ns && !queue->held));
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
    bool heads = queue->on_device > 0 && is_compute(queue->first) && !queue->held;

    queue->tenant->stale = true;
    queue->tenant->heads += heads - queue->heads;
    queue->heads = heads;
    if (item == queue->listed) {
        return;
    }
    if (queue->listed != NULL) {
        unlist(sched, queue);
    }
    queue->listed = item;
    if (item == NULL) {
        return;
    }
    item->since_ns = sched->now_ns;
    if (is_compute(item)) {
        queue->tenant->view.waiting++;
    } else {
        copy_list(sched, queue);
    }
}

static void became_ready(struct weir_sched *sched, struct tenant *tenant)
{
    uint64_t gap_ns;

    sched->ready[sched->ready_count++] = &tenant->view;
    tenant->view.ready_since_ns = sched->now_ns;
    if (tenant->idle_ns != NEVER) {
        gap_ns = min_u64(sched->now_ns - tenant->idle_ns, 1000000000);
        tenant->view.gap_ns =
            tenant->view.gap_ns == NEVER ? gap_ns : (7 * tenant->view.gap_ns + gap_ns) / 8;
    }
    sched->arrived = true;
    policies_ready(sched, tenant, true);
}

static void became_idle(struct weir_sched *sched, struct tenant *tenant)
{
    uint32_t at = 0;

    while (sched->ready[at] != &tenant->view) {
        at++;
    }
    sched->ready_count--;
    memmove(&sched->ready[at], &sched->ready[at + 1],
            (sched->ready_count - at) * sizeof(*sched->ready));
    tenant->idle_ns = sched->now_ns;
    tenant->view.ready_since_ns = NEVER;
    tenant->view.waiting_since_ns = NEVER;
    policies_ready(sched, tenant, false);
}

void tenant_refresh(struct weir_sched *sched, struct tenant *tenant)
{
    bool ready = tenant->view.waiting + tenant->heads > 0;

    if (ready == tenant->is_ready) {
        return;
    }
    tenant->is_ready = ready;
    sched->again = true;
    sched->group_stale = true;
    sched->group_why = ready ? WEIR_POLICY_ARRIVAL : WEIR_POLICY_EMPTY;
    if (ready) {
        became_ready(sched, tenant);
    } else {
        became_idle(sched, tenant);
    }
}

/* The better of two to stand for a tenant: what runs, what is stopped, what has waited longest. */
static const struct item *better(const struct item *a, const struct item *b)
{
    if (a == NULL || b == NULL) {
        return a == NULL ? b : a;
    }
    if (a->is_front != b->is_front) {
        return a->is_front ? a : b;
    }
    if ((a->state == WEIR_SCHED_WAITING) != (b->state == WEIR_SCHED_WAITING)) {
        return a->state == WEIR_SCHED_WAITING ? b : a;
    }
    return b->since_ns < a->since_ns ? b : a;
}

static void view_kernel(const struct weir_sched *sched, struct weir_policy_kernel *kernel,
                        const struct item *item)
{
    uint32_t need = sched->config.sms;

    *kernel = (struct weir_policy_kernel){.need_sms = need};
    if (item == NULL) {
        return;
    }
    if (item->params.blocks != 0 && item->params.blocks_per_sm != 0) {
        uint32_t sms = (item->params.blocks - 1) / item->params.blocks_per_sm + 1;

        need = sms < need ? sms : need;
    }
    *kernel = (struct weir_policy_kernel){
        .key = item->params.key,
        .blocks = item->params.blocks,
        .blocks_per_sm = item->params.blocks_per_sm,
        .need_sms = need,
        .done_blocks = item->done_blocks,
        .predicted_ns = item->predicted_ns,
        .rest_ns = item_rest_ns(sched, item),
        .class = item->params.class,
        .unsure = (item->params.flags & WEIR_SCHED_UNSURE) != 0,
        .begun = item->state != WEIR_SCHED_WAITING,
        .stoppable = is_stoppable(item),
        .movable = (item->params.flags & WEIR_SCHED_MOVABLE) != 0,
        .tensor = (item->params.flags & WEIR_SCHED_TENSOR) != 0,
    };
}

static const struct item *first_kernel(const struct queue *queue)
{
    const struct item *item = queue->kernels != 0 ? queue->first : NULL;

    while (item != NULL && !is_compute(item)) {
        item = item->next;
    }
    return item;
}

/* The same of what cannot be stopped, which may be a long list. */
static const struct item *view_fixed(const struct weir_sched *sched, const struct queue *queue,
                                     struct weir_policy_tenant *view)
{
    const struct item *first = first_kernel(queue);
    uint64_t served_ns = 0;

    if (first != NULL) {
        served_ns = min_u64(served_time_ns(sched, first), first->predicted_ns);
        view->stoppable = false;
    }
    view->granted += queue->kernels;
    view->committed_ns += (queue->fixed_ns - served_ns) * sched->config.sms;
    return first;
}

/* What of a queue is on the device; the first to stand for it. */
static const struct item *view_device(const struct weir_sched *sched, struct queue *queue,
                                      struct weir_policy_tenant *view)
{
    const struct item *first = NULL;
    const struct item *item = queue->first;

    if (queue->stoppable == 0) {
        return view_fixed(sched, queue, view);
    }
    for (uint32_t i = 0; i < queue->on_device; i++, item = item->next) {
        if (!is_compute(item)) {
            continue;
        }
        first = first != NULL ? first : item;
        if (item->state == WEIR_SCHED_STOPPED) {
            view->waiting_since_ns = min_u64(view->waiting_since_ns, item->since_ns);
            continue;
        }
        view->granted++;
        if (!is_stoppable(item)) {
            view->stoppable = false;
            view->committed_ns += item_rest_ns(sched, item) * sched->config.sms;
        }
    }
    return first;
}

void view_refresh(struct weir_sched *sched, struct tenant *tenant)
{
    struct weir_policy_tenant *view = &tenant->view;
    const struct item *first = NULL;

    if (!tenant->stale && view->granted == 0) {
        return;
    }
    tenant->stale = false;
    view->waiting_since_ns = NEVER;
    view->granted = 0;
    view->committed_ns = 0;
    view->stoppable = true;
    for (struct queue *queue = tenant->queues; queue != NULL; queue = queue->next) {
        const struct item *item = view_device(sched, queue, view);

        if (queue->listed != NULL && is_compute(queue->listed)) {
            view->waiting_since_ns = min_u64(view->waiting_since_ns, queue->listed->since_ns);
            item = item != NULL ? item : queue->listed;
        }
        first = better(first, item);
    }
    view_kernel(sched, &view->kernel, first);
}
