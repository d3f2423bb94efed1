/*
 * SM limits: how much of the SMs a tenant, or one of its queues, may use.
 *
 * What can be moved is given no more SMs than its limit (place_of() in decide.c) and so keeps to it
 * without anybody looking. All other compute is held to it in time: who is limited has a budget of
 * SM-nanoseconds, which grows with time by as many SMs as the limit is, at most to what BURST_NS
 * bring, and shrinks by what its work is served. Who has used it up is *held*: none of its compute
 * is ready, what can be stopped is stopped, until the budget is worth RESUME_NS again. What cannot
 * be stopped runs out, and is paid back before anything else is granted; so over any time T, what
 * is served is at most the limit times (T + BURST_NS), and what was under way at its end: of each
 * queue one item at least, ITEMS_MAX at most, and in between as much as the budget is worth.
 *
 * A kernel uses no more SMs than it has blocks, whatever it is charged for.
 *
 * It costs nothing while nobody is limited; else a look at each who is, in each decision.
 */
#include "sched/private.h"

#define BURST_NS  10000000
#define RESUME_NS 1000000 /* turns of so long: each ends with a wait of the owner's timer */
#define ITEMS_MAX 16u     /* of a queue on the device: predictions can be wrong, or made so */

static bool is_limited(const struct weir_sched *sched, const struct budget *budget)
{
    return budget->sms < sched->config.sms;
}

/* What came and went since it was last looked at. */
static void settle(struct budget *budget, uint64_t now_ns)
{
    int64_t burst = BURST_NS * (int64_t)budget->sms;
    uint64_t ns = min_u64(now_ns - budget->seen_ns, 1000000000000); /* 1000 s: no overflow */

    budget->left += (int64_t)(ns * budget->sms) - (int64_t)budget->used;
    budget->left = budget->left < burst ? budget->left : burst;
    budget->used = 0;
    budget->seen_ns = now_ns;
}

static void list(struct weir_sched *sched, struct tenant *tenant)
{
    tenant->limited_prev = NULL;
    tenant->limited_next = sched->limited;
    if (sched->limited != NULL) {
        sched->limited->limited_prev = tenant;
    }
    sched->limited = tenant;
}

static void unlist(struct weir_sched *sched, struct tenant *tenant)
{
    *(tenant->limited_prev != NULL ? &tenant->limited_prev->limited_next : &sched->limited) =
        tenant->limited_next;
    if (tenant->limited_next != NULL) {
        tenant->limited_next->limited_prev = tenant->limited_prev;
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
    bool is;

    if (was) {
        settle(budget, sched->now_ns);
    }
    budget->sms = sms_of(sched, pct);
    is = is_limited(sched, budget);
    if (!was) {
        *budget = (struct budget){
            .sms = budget->sms, .left = RESUME_NS * (int64_t)budget->sms, .seen_ns = sched->now_ns};
    }
    budget->held = budget->held && is;
    if (is && !was && tenant->limits++ == 0) {
        list(sched, tenant);
    } else if (was && !is && --tenant->limits == 0) {
        unlist(sched, tenant);
    }
    for (struct queue *queue = tenant->queues; tenant->limits == 0 && queue != NULL;
         queue = queue->next) {
        release(sched, queue);
    }
    if (tenant->limits != 0 &&
        atomic_load_explicit(&sched->shared.alone, memory_order_relaxed) == tenant->view.id) {
        weir_sched_close(sched); /* who is limited is looked at */
    }
}

void limit_drop(struct weir_sched *sched, struct tenant *tenant, const struct budget *budget)
{
    if (is_limited(sched, budget) && --tenant->limits == 0) {
        unlist(sched, tenant);
    }
}

void limit_pay(struct weir_sched *sched, const struct item *item, uint64_t service_ns, uint64_t ns)
{
    struct queue *queue = item->queue;

    if (queue->tenant->limits == 0) {
        return;
    }
    if (item->params.class == WEIR_SCHED_KERNEL && item->params.blocks != 0 &&
        item->params.blocks < sched->config.sms) {
        service_ns = min_u64(service_ns, ns * item->params.blocks);
    }
    queue->limit.used += service_ns;
    queue->tenant->limit.used += service_ns;
}

uint32_t limit_sms(const struct queue *queue)
{
    uint32_t tenants = queue->tenant->limit.sms;

    return queue->limit.sms < tenants ? queue->limit.sms : tenants;
}

static uint64_t room_of(const struct weir_sched *sched, const struct budget *budget)
{
    return !is_limited(sched, budget) ? NEVER
           : budget->left > 0         ? (uint64_t)budget->left / sched->config.sms
                                      : 0;
}

uint64_t limit_room_ns(const struct weir_sched *sched, const struct queue *queue)
{
    if (queue->tenant->limits == 0) {
        return NEVER;
    }
    return min_u64(room_of(sched, &queue->limit), room_of(sched, &queue->tenant->limit));
}

bool limit_has_room(const struct weir_sched *sched, const struct queue *queue)
{
    return queue->tenant->limits == 0 ||
           (queue->on_device < ITEMS_MAX &&
            queue_rest_ns(sched, queue) < limit_room_ns(sched, queue));
}

/* Is it held? When it might be no more goes into the timer. */
static bool look(const struct weir_sched *sched, struct budget *budget, uint64_t *wake_ns)
{
    int64_t enough = RESUME_NS * (int64_t)budget->sms;

    settle(budget, sched->now_ns);
    if (!is_limited(sched, budget)) {
        return false;
    }
    budget->held = budget->left < (budget->held ? enough : 1);
    if (budget->held) {
        uint64_t ns = (uint64_t)(enough - budget->left) / budget->sms + 1;

        *wake_ns = min_u64(*wake_ns, sched->now_ns + (ns > WAKE_MIN_NS ? ns : WAKE_MIN_NS));
    }
    return budget->held;
}

void limits_look(struct weir_sched *sched, uint64_t *wake_ns)
{
    for (struct tenant *tenant = sched->limited; tenant != NULL; tenant = tenant->limited_next) {
        bool all = look(sched, &tenant->limit, wake_ns);
        bool changed = false;

        for (struct queue *queue = tenant->queues; queue != NULL; queue = queue->next) {
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
