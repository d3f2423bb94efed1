/*
 * SM limits: how much of the SMs a tenant, or one of its queues, may use.
 *
 * A movable item gets no more SMs than its limit (place_of() in decide.c). All other compute is
 * limited in time: each limit has a budget of SM-nanoseconds. The budget grows with time by the SMs
 * of the limit, up to limit_burst_ns of time, and shrinks by the service of its items. When it is
 * used up, the queues are *held* until it has grown to limit_resume_ns again: none of their compute
 * is ready, and items that can be stopped are stopped. Other items run to their end, and the budget
 * recovers before anything else is granted. So over any time T the service is at most the limit
 * times (T + limit_burst_ns), and the items under way at its end: one to `few` of each queue.
 *
 * A kernel uses no more SMs than it has blocks, whatever it is charged for.
 *
 * Each decision looks at each tenant that has limits; without limits this costs nothing.
 */
#include "sched/private.h"

static bool is_limited(const struct weir_sched *sched, const struct budget *budget)
{
    return budget->sms < sched->config.sms;
}

/* Update a budget by the time and the service since seen_ns. */
static void settle(struct budget *budget, uint64_t now_ns)
{
    int64_t burst = tuning.limit_burst_ns * (int64_t)budget->sms;
    uint64_t ns = min_u64(now_ns - budget->seen_ns, 1000000000000); /* 1000 s: no overflow */

    budget->left += (int64_t)(ns * budget->sms) - (int64_t)budget->used;
    budget->left = WEIR_MIN(budget->left, burst);
    budget->used = 0;
    budget->seen_ns = now_ns;
}

static void list(struct weir_sched *sched, struct tenant *tenant)
{
    tenant->bound.previous = NULL;
    tenant->bound.next = sched->limited;
    if (sched->limited) {
        sched->limited->bound.previous = tenant;
    }
    sched->limited = tenant;
}

static void unlist(struct weir_sched *sched, struct tenant *tenant)
{
    *(tenant->bound.previous ? &tenant->bound.previous->bound.next : &sched->limited) =
        tenant->bound.next;
    if (tenant->bound.next) {
        tenant->bound.next->bound.previous = tenant->bound.previous;
    }
}

static uint32_t sms_of(const struct weir_sched *sched, uint32_t pct)
{
    uint32_t sms = (uint32_t)((uint64_t)sched->config.sms * pct / 100);

    return sms > 0 ? sms : 1;
}

static void release(struct weir_sched *sched, struct queue *queue)
{
    if (queue->held) {
        queue->held = false;
        queue_refresh(sched, queue);
        tenant_refresh(sched, queue->tenant);
    }
}

void limit_set(struct weir_sched *sched, struct tenant *tenant, struct budget *budget, uint32_t pct)
{
    bool was = budget->sms != 0 && is_limited(sched, budget);

    if (was) {
        settle(budget, sched->now_ns);
    }
    budget->sms = sms_of(sched, pct);
    bool is = is_limited(sched, budget);
    if (!was) {
        *budget = (struct budget){.sms = budget->sms,
                                  .left = tuning.limit_resume_ns * (int64_t)budget->sms,
                                  .seen_ns = sched->now_ns};
    }
    budget->held = budget->held && is;
    if (is && !was && tenant->bound.limits++ == 0) {
        list(sched, tenant);
    } else if (was && !is && --tenant->bound.limits == 0) {
        unlist(sched, tenant);
    }
    for (struct queue *queue = tenant->queues; tenant->bound.limits == 0 && queue;
         queue = queue->next) {
        release(sched, queue);
    }
    if (tenant->bound.limits != 0 &&
        atomic_load_explicit(&sched->alone.shared.alone, memory_order_relaxed) == tenant->view.id) {
        weir_sched_close(sched); /* limited work must not bypass the scheduler */
    }
}

void limit_drop(struct weir_sched *sched, struct tenant *tenant, const struct budget *budget)
{
    if (is_limited(sched, budget) && --tenant->bound.limits == 0) {
        unlist(sched, tenant);
    }
}

void limit_pay(struct weir_sched *sched, const struct item *item, uint64_t service_ns, uint64_t ns)
{
    struct queue *queue = item->queue;

    if (queue->tenant->bound.limits == 0) {
        return;
    }
    if (item->params.class == WEIR_SCHED_KERNEL && item->params.blocks != 0 &&
        item->params.blocks < sched->config.sms) {
        service_ns = min_u64(service_ns, ns * item->params.blocks);
    }
    if (item->place.sm_count != 0) { /* a block limit beside it has no effect on other SMs */
        service_ns = min_u64(service_ns, ns * item->place.sm_count);
    }
    queue->limit.used += service_ns;
    queue->tenant->bound.limit.used += service_ns;
}

uint32_t limit_sms(const struct queue *queue)
{
    uint32_t tenants = queue->tenant->bound.limit.sms;

    return WEIR_MIN(queue->limit.sms, tenants);
}

static uint64_t room_of(const struct weir_sched *sched, const struct budget *budget)
{
    return !is_limited(sched, budget) ? NEVER
           : budget->left > 0         ? (uint64_t)budget->left / sched->config.sms
                                      : 0;
}

uint64_t limit_room_ns(const struct weir_sched *sched, const struct queue *queue)
{
    if (queue->tenant->bound.limits == 0) {
        return NEVER;
    }
    return min_u64(room_of(sched, &queue->limit), room_of(sched, &queue->tenant->bound.limit));
}

bool limit_has_room(const struct weir_sched *sched, const struct queue *queue)
{
    return queue->tenant->bound.limits == 0 ||
           (queue->on_device < tuning.few &&
            queue_rest_ns(sched, queue) < limit_room_ns(sched, queue));
}

/* Is the budget used up? *wake_ns: when that may change. */
static bool look(const struct weir_sched *sched, struct budget *budget, uint64_t *wake_ns)
{
    int64_t enough = tuning.limit_resume_ns * (int64_t)budget->sms;

    settle(budget, sched->now_ns);
    if (!is_limited(sched, budget)) {
        return false;
    }
    budget->held = budget->left < (budget->held ? enough : 1);
    if (budget->held) {
        uint64_t ns = (uint64_t)(enough - budget->left) / budget->sms + 1;

        *wake_ns = min_u64(*wake_ns, sched->now_ns + WEIR_MAX(ns, tuning.wake_min_ns));
    }
    return budget->held;
}

void limits_look(struct weir_sched *sched, uint64_t *wake_ns)
{
    for (struct tenant *tenant = sched->limited; tenant; tenant = tenant->bound.next) {
        bool all = look(sched, &tenant->bound.limit, wake_ns);
        bool changed = false;

        for (struct queue *queue = tenant->queues; queue; queue = queue->next) {
            bool held = look(sched, &queue->limit, wake_ns) || all;

            if (held != queue->held) {
                queue->held = held;
                queue_refresh(sched, queue);
                changed = true;
            }
        }
        if (changed) {
            tenant_refresh(sched, tenant);
        }
    }
}
