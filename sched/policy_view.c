/* The view of a tenant that policies see, refreshed before they are asked if it is stale. */
#include "sched/private.h"

/* Choose which of two items becomes the tenant's view.kernel: a running one, else a stopped one,
 * else the one that waits longest. */
static const struct item *better(const struct item *a, const struct item *b)
{
    if (!a || !b) {
        return !a ? b : a;
    }
    if (a->is_front != b->is_front) {
        return a->is_front ? a : b;
    }
    if ((a->state == WEIR_SCHED_WAITING) != (b->state == WEIR_SCHED_WAITING)) {
        return a->state == WEIR_SCHED_WAITING ? b : a;
    }
    return b->at.since_ns < a->at.since_ns ? b : a;
}

static void view_kernel(const struct weir_sched *sched, struct weir_policy_kernel *kernel,
                        const struct item *item)
{
    uint32_t need = sched->config.sms, sms = need;

    *kernel = (struct weir_policy_kernel){.need_sms = need};
    if (!item) {
        return;
    }
    if (item->params.blocks != 0 && item->params.blocks_per_sm != 0) {
        sms = (item->params.blocks - 1) / item->params.blocks_per_sm + 1;
    }
    *kernel = (struct weir_policy_kernel){
        .key = item->params.key,
        .blocks_per_sm = item->params.blocks_per_sm,
        .need_sms = WEIR_MIN(sms, need),
        .predicted_ns = item->predicted_ns,
        .rest_ns = item_rest_ns(sched, item),
        .class = item->params.class,
        .unsure = is_too_unsure(item),
        .stoppable = is_stoppable(item),
        .movable = (item->params.flags & WEIR_SCHED_MOVABLE) != 0,
        .divisible = (item->params.flags & (WEIR_SCHED_MOVABLE | WEIR_SCHED_DIVISIBLE)) != 0,
        .partable = (item->params.flags & WEIR_SCHED_PARTABLE) != 0,
    };
}

static const struct item *first_kernel(const struct queue *queue)
{
    const struct item *item = queue->kernels != 0 ? queue->first : NULL;

    while (item && !is_compute(item)) {
        item = item->next;
    }
    return item;
}

/* Like view_device(), for a queue without stoppable items, which may be many: it only needs
 * sums. */
static const struct item *view_fixed(const struct weir_sched *sched, const struct queue *queue,
                                     struct weir_policy_tenant *view)
{
    const struct item *first = first_kernel(queue);
    uint64_t served_ns = 0;

    if (first) {
        served_ns = min_u64(served_time_ns(sched, first), first->predicted_ns);
        view->stoppable = false;
    }
    view->granted += queue->kernels;
    view->committed_ns += (queue->fixed_ns - served_ns) *
                          (first && small_sms(first) != 0 ? small_sms(first) : sched->config.sms);
    return first;
}

/* Add a queue's items on the device to the view. @return the first compute item of them, or NULL */
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
        first = first ? first : item;
        if (item->state == WEIR_SCHED_STOPPED) {
            view->waiting_since_ns = min_u64(view->waiting_since_ns, item->at.since_ns);
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
    for (struct queue *queue = tenant->queues; queue; queue = queue->next) {
        const struct item *item = view_device(sched, queue, view);

        if (queue->listed && is_compute(queue->listed)) {
            view->waiting_since_ns = min_u64(view->waiting_since_ns, queue->listed->at.since_ns);
            item = item ? item : queue->listed;
        }
        first = better(first, item);
    }
    view_kernel(sched, &view->kernel, first);
}
