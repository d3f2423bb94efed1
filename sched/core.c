/* The scheduler with its tenants, queues and policies; items are in events.c, decisions in
 * decide.c. */
#include "sched/private.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TENANTS_MAX 65536u
#define QUEUES_MAX  (1u << 24)
#define ITEMS_MAX   (1u << 26)

void weir_sched_config_init(struct weir_sched_config *config, uint32_t sms)
{
    *config = (struct weir_sched_config){
        .sms = sms,
        .alone_ns = 2000000,
        .inflight_ns = 100000,
        .guess_ns = 100000,
        .quiet_ns = tuning.quiet_ns,
        .starve_ns = 2000000000,
        .lease_ns = 2000000000,
        .stop_ns = tuning.stop_ns,
        .launch_ns = tuning.launch_ns,
        .overhead_ppm = 15000,
    };
}

static bool config_is_sound(const struct weir_sched_config *config)
{
    return config->sms > 0 && config->sms <= 65536 && config->alone_ns > 0 &&
           config->inflight_ns > 0 && config->guess_ns > 0 && config->quiet_ns > 0 &&
           config->starve_ns > 0 && config->lease_ns > 0 && config->stop_ns > 0 &&
           config->launch_ns > 0 && config->overhead_ppm > 0;
}

const char *const weir_sched_fill_words[] = {"none", "all", NULL};

enum weir_status weir_sched_create(const struct weir_sched_config *config,
                                   const struct weir_sched_env *env, struct weir_sched **ret_sched)
{
    if (!config_is_sound(config) || !env->start || !env->timer || !env->stop != !env->resume) {
        return WEIR_ERR_INVALID;
    }
    struct weir_sched *sched = calloc(1, sizeof(*sched));
    WEIR_FAIL_IF(!sched, WEIR_ERR_NO_MEMORY);
    sched->config = *config;
    sched->small.above_counts = tuning.small_counts_begin;
    sched->env = *env;
    table_init(&sched->tenants, sizeof(struct tenant), TENANTS_MAX);
    table_init(&sched->queues, sizeof(struct queue), QUEUES_MAX);
    table_init(&sched->items, sizeof(struct item), ITEMS_MAX);
    sched->armed_ns = NEVER;
    enum weir_status status = weir_sched_policy_clear(sched, 0, WEIR_POLICY_NEXT);
    if (status != WEIR_OK) {
        weir_sched_destroy(sched);
        return status;
    }
    *ret_sched = sched;
    return WEIR_OK;
}

void weir_sched_destroy(struct weir_sched *sched)
{
    const struct queue *queue;

    if (!sched) {
        return;
    }
    for (uint32_t i = 0; (queue = table_next(&sched->queues, &i));) {
        free(queue->waits);
    }
    policies_end(sched, WEIR_POLICY_NEXT);
    policies_end(sched, WEIR_POLICY_TOGETHER);
    free(sched->ready.list);
    free(sched->ready.order);
    table_finish(&sched->tenants);
    table_finish(&sched->queues);
    table_finish(&sched->items);
    free(sched);
}

uint64_t weir_sched_span_news(const struct weir_sched *sched)
{
    return sched->span_news;
}

static bool params_are_sound(const struct weir_sched_tenant_params *params)
{
    return params->weight >= 1 && params->weight <= WEIR_SCHED_WEIGHT_MAX &&
           params->sm_limit >= 1 && params->sm_limit <= 100 && params->min_share <= 100 &&
           (unsigned)params->priority < WEIR_PRIORITY_COUNT &&
           (unsigned)params->span <= WEIR_SCHED_SPAN_WAITS &&
           params->span_more <= WEIR_SCHED_SPAN_MORE_MAX;
}

static void take_params(struct weir_sched *sched, struct tenant *tenant,
                        const struct weir_sched_tenant_params *params)
{
    min_share_set(sched, tenant, params->weight, params->min_share);
    tenant->view.priority = params->priority;
    tenant->sm_limit_pct = params->sm_limit;
    tenant->exclusive = params->exclusive;
    limit_set(sched, tenant, &tenant->bound.limit, params->sm_limit);
    tenant->view.sm_limit = tenant->bound.limit.sms;
}

static struct weir_sched_tenant_params params_of(const struct tenant *tenant)
{
    return (struct weir_sched_tenant_params){.name = tenant->name,
                                             .weight = tenant->weight,
                                             .min_share = tenant->min_share,
                                             .sm_limit = tenant->sm_limit_pct,
                                             .priority = tenant->view.priority,
                                             .exclusive = tenant->exclusive,
                                             .span = tenant->span,
                                             .span_more = tenant->span_more,
                                             .user = tenant->user};
}

static uint64_t packed(const struct tenant *tenant)
{
    const struct weir_sched_tenant_params params = params_of(tenant);

    return weir_sched_tenant_packed(&params);
}

static void span_set(struct weir_sched *sched, struct tenant *tenant, enum weir_sched_span span,
                     uint32_t more)
{
    tenant->span = span;
    tenant->span_more = more;
    if (span == WEIR_SCHED_SPAN_WAITS && tenant->view.member && sched->turn.members > 1) {
        group_alone(sched);
        sched->news.group = true;
    }
    if (span != WEIR_SCHED_SPAN_FREE &&
        atomic_load_explicit(&sched->alone.shared.alone, memory_order_relaxed) == tenant->view.id) {
        weir_sched_close(sched);
    }
    for (struct queue *queue = tenant->queues; queue; queue = queue->next) {
        queue_refresh(sched, queue);
    }
    tenant_refresh(sched, tenant);
}

enum weir_status weir_sched_tenant_add(struct weir_sched *sched, uint64_t now_ns,
                                       const struct weir_sched_tenant_params *params,
                                       weir_sched_id *ret_tenant)
{
    struct tenant *tenant;
    weir_sched_id id;

    WEIR_FAIL_IF(!params_are_sound(params), WEIR_ERR_INVALID);
    WEIR_TRY(table_add(&sched->tenants, &id, (void **)&tenant));
    tenant->view.id = id;
    time_is(sched, now_ns);
    snprintf(tenant->name, sizeof(tenant->name), "%s", params->name ? params->name : "");
    tenant->user = params->user;
    take_params(sched, tenant, params);
    tenant->idle_ns = NEVER;
    tenant->view.name = tenant->name;
    tenant->view.waiting_since_ns = NEVER;
    tenant->view.ready_since_ns = NEVER;
    tenant->view.gap_ns = NEVER;
    for (int way = WEIR_SCHED_TO_DEVICE; way < RESOURCES; way++) {
        tenant->copying.gap[way] = (struct copy_gap){.since_ns = NEVER, .usual_ns = NEVER};
    }
    tenant->view.stop_ns = sched->config.stop_ns;
    tenant->view.switch_ns = sched->domains.switch_ns;
    tenant->one_domain = true;
    enum weir_status status = ready_reserve(sched);
    if (status != WEIR_OK) {
        min_share_set(sched, tenant, 1, 0);
        limit_drop(sched, tenant, &tenant->bound.limit);
        table_remove(&sched->tenants, id);
        return status;
    }
    policies_join(sched, tenant);
    span_set(sched, tenant, params->span, params->span_more);
    trace(sched, WEIR_SCHED_REC_TENANT_ADD, tenant, NULL, NULL, packed(tenant));
    *ret_tenant = id;
    return WEIR_OK;
}

/* Change a tenant's class. Its head items and listed copies are sorted by class, so list them
 * again. */
static void resort(struct weir_sched *sched, struct tenant *tenant, enum weir_priority priority)
{
    for (struct queue *queue = tenant->queues; queue; queue = queue->next) {
        if (queue->first && queue->first->is_front) {
            front_remove(sched, queue->first);
        }
        if (queue->listed && !is_compute(queue->listed)) {
            copy_unlist(sched, queue);
        }
    }
    tenant->view.priority = priority;
    copies_change_class(sched, tenant);
    for (struct queue *queue = tenant->queues; queue; queue = queue->next) {
        if (queue->first && is_at_work(queue->first)) {
            front_add(sched, queue->first);
        }
        if (queue->listed && !is_compute(queue->listed)) {
            copy_list(sched, queue);
        }
    }
}

static void change(struct weir_sched *sched, struct tenant *tenant,
                   const struct weir_sched_tenant_params *params)
{
    policies_changing(sched, tenant);
    if (params->priority != tenant->view.priority) {
        resort(sched, tenant, params->priority);
    }
    take_params(sched, tenant, params);
    if (tenant->view.member) {
        group_alone(sched);
        sched->news.group = true;
    }
}

enum weir_status weir_sched_tenant_set(struct weir_sched *sched, uint64_t now_ns, weir_sched_id id,
                                       const struct weir_sched_tenant_params *params)
{
    struct tenant *tenant = table_get(&sched->tenants, id);

    WEIR_FAIL_IF(!tenant, WEIR_ERR_STALE);
    WEIR_FAIL_IF(!params_are_sound(params), WEIR_ERR_INVALID);
    time_is(sched, now_ns);
    struct weir_sched_tenant_params now = params_of(tenant);
    now.span = params->span;
    now.span_more = params->span_more;
    if (weir_sched_tenant_packed(&now) != weir_sched_tenant_packed(params)) {
        sched->news.changed = true;
        change(sched, tenant, params);
    }
    span_set(sched, tenant, params->span, params->span_more);
    trace(sched, WEIR_SCHED_REC_TENANT_SET, tenant, NULL, NULL, packed(tenant));
    decide(sched);
    return WEIR_OK;
}

/* Do any two tenants belong to different domains? */
static bool are_apart(const struct weir_sched *sched)
{
    const struct tenant *first = NULL, *tenant;
    uint32_t index = 0;

    while ((tenant = table_next(&sched->tenants, &index))) {
        if (tenant->queues) {
            first = first ? first : tenant;
            if (!is_beside(first, tenant)) {
                return true;
            }
        }
    }
    return false;
}

/* A tenant's queues changed: note whether they have one domain. */
static void domain_refresh(struct weir_sched *sched, struct tenant *tenant)
{
    uint32_t index = 0;
    const struct queue *queue = tenant->queues;

    tenant->domain = queue ? queue->domain : 0;
    tenant->one_domain = true;
    for (; queue; queue = queue->next) {
        tenant->one_domain &= queue->domain == tenant->domain;
    }
    tenant->view.domain = tenant->queues && tenant->one_domain ? (uint64_t)tenant->domain + 1 : 0;
    sched->domains.switch_ns = are_apart(sched) ? tuning.switch_ns : 0;
    while ((tenant = table_next(&sched->tenants, &index))) {
        tenant->view.switch_ns = sched->domains.switch_ns;
    }
}

static void drop_queue(struct weir_sched *sched, struct queue *queue)
{
    struct tenant *tenant = queue->tenant;

    while (queue->first) {
        item_drop(sched, queue->first);
    }
    *(queue->prev ? &queue->prev->next : &tenant->queues) = queue->next;
    if (queue->next) {
        queue->next->prev = queue->prev;
    }
    tenant->counts.queues--;
    domain_refresh(sched, tenant);
    limit_drop(sched, tenant, &queue->limit);
    free(queue->waits);
    table_remove(&sched->queues, queue->id);
}

enum weir_status weir_sched_tenant_remove(struct weir_sched *sched, uint64_t now_ns,
                                          weir_sched_id id)
{
    struct tenant *tenant = table_get(&sched->tenants, id);

    WEIR_FAIL_IF(!tenant, WEIR_ERR_STALE);
    time_is(sched, now_ns);
    trace(sched, WEIR_SCHED_REC_TENANT_REMOVE, tenant, NULL, NULL, 0);
    while (tenant->queues) {
        drop_queue(sched, tenant->queues);
    }
    if (atomic_load_explicit(&sched->alone.shared.alone, memory_order_relaxed) == id) {
        weir_sched_close(sched);
    }
    tenant_refresh(sched, tenant);
    turn_forget(sched, tenant);
    policies_leave(sched, tenant);
    min_share_set(sched, tenant, 1, 0);
    limit_drop(sched, tenant, &tenant->bound.limit);
    table_remove(&sched->tenants, id);
    decide(sched);
    return WEIR_OK;
}

enum weir_status weir_sched_queue_add(struct weir_sched *sched, weir_sched_id tenant_id,
                                      uint32_t sm_limit, uint32_t domain, weir_sched_id *ret_queue)
{
    struct tenant *tenant = table_get(&sched->tenants, tenant_id);
    struct queue *queue;

    WEIR_FAIL_IF(!tenant, WEIR_ERR_STALE);
    WEIR_FAIL_IF(sm_limit < 1 || sm_limit > 100, WEIR_ERR_INVALID);
    WEIR_TRY(table_add(&sched->queues, ret_queue, (void **)&queue));
    queue->id = *ret_queue;
    queue->tenant = tenant;
    queue->domain = domain;
    queue->next = tenant->queues;
    if (queue->next) {
        queue->next->prev = queue;
    }
    tenant->queues = queue;
    tenant->counts.queues++;
    domain_refresh(sched, tenant);
    limit_set(sched, tenant, &queue->limit, sm_limit);
    trace(sched, WEIR_SCHED_REC_QUEUE_ADD, tenant, queue, NULL,
          weir_sched_queue_packed(sm_limit, domain));
    return WEIR_OK;
}

enum weir_status weir_sched_queue_remove(struct weir_sched *sched, uint64_t now_ns,
                                         weir_sched_id id)
{
    struct queue *queue = table_get(&sched->queues, id);

    WEIR_FAIL_IF(!queue, WEIR_ERR_STALE);
    time_is(sched, now_ns);
    trace(sched, WEIR_SCHED_REC_QUEUE_REMOVE, queue->tenant, queue, NULL, 0);
    struct tenant *tenant = queue->tenant;
    drop_queue(sched, queue);
    tenant_refresh(sched, tenant);
    decide(sched);
    return WEIR_OK;
}

enum weir_status weir_sched_tenant_query(const struct weir_sched *sched, weir_sched_id id,
                                         struct weir_sched_tenant_info *ret_info)
{
    const struct tenant *tenant = table_get(&sched->tenants, id);

    WEIR_FAIL_IF(!tenant, WEIR_ERR_STALE);
    *ret_info = (struct weir_sched_tenant_info){
        .params = params_of(tenant),
        .waited_ns = tenant->told.waited_ns,
        .finished = tenant->told.finished,
        .stops = tenant->told.stops,
        .queues = tenant->counts.queues,
        .waiting = tenant->counts.waiting,
        .granted = tenant->counts.granted,
        .stopped = tenant->counts.stopped,
        .weight = tenant->view.weight,
        .compute = {.works = tenant->works,
                    .blocked = tenant->blocked,
                    .starves =
                        tenant->blocked && sched->now_ns - tenant->blocked_ns >= patience_ns(sched),
                    .starts = tenant->told.kernels},
    };
    for (const struct queue *queue = tenant->queues; queue; queue = queue->next) {
        uint32_t fixed = queue->kernels - queue->stoppable;

        ret_info->compute.fixed += fixed;
        ret_info->compute.rest_ns =
            max_u64(ret_info->compute.rest_ns, fixed != 0 ? queue_rest_ns(sched, queue) : 0);
    }
    memcpy(ret_info->service_ns, tenant->view.service_ns, sizeof(ret_info->service_ns));
    memcpy(ret_info->waits, tenant->told.waits, sizeof(ret_info->waits));
    return WEIR_OK;
}

uint64_t weir_sched_queue_service(const struct weir_sched *sched, weir_sched_id id)
{
    const struct queue *queue = table_get(&sched->queues, id);

    return queue ? queue->service_ns : 0;
}

void weir_sched_count(const struct weir_sched *sched, struct weir_sched_counts *ret_counts)
{
    *ret_counts = sched->counts;
    ret_counts->tenants = sched->tenants.live;
    ret_counts->queues = sched->queues.live;
    ret_counts->items = sched->items.live;
}

static bool ops_are_sound(const struct weir_policy_ops *ops)
{
    return ops->name && ops->tenant_bytes <= WEIR_POLICY_TENANT_BYTES &&
           ((ops->kind == WEIR_POLICY_NEXT && ops->next) ||
            (ops->kind == WEIR_POLICY_TOGETHER && ops->together));
}

enum weir_status weir_sched_policy_set(struct weir_sched *sched, uint64_t now_ns,
                                       const struct weir_policy_ops *ops)
{
    WEIR_FAIL_IF(!ops_are_sound(ops), WEIR_ERR_INVALID);
    time_is(sched, now_ns);
    WEIR_TRY(policies_put(sched, ops));
    sched->news.changed = true;
    sched->news.group = true;
    decide(sched);
    return WEIR_OK;
}

enum weir_status weir_sched_policy_clear(struct weir_sched *sched, uint64_t now_ns, int kind)
{
    WEIR_FAIL_IF(kind < 0 || kind >= WEIR_POLICY_KIND_COUNT, WEIR_ERR_INVALID);
    if (kind == WEIR_POLICY_NEXT) {
        return weir_sched_policy_set(sched, now_ns, weir_policy_find("fair"));
    }
    time_is(sched, now_ns);
    policies_end(sched, WEIR_POLICY_TOGETHER);
    group_alone(sched);
    decide(sched);
    return WEIR_OK;
}
