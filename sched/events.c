/* Items' events: arrival, end, stop. Each function of the interface changes an item, refreshes its
 * queue and tenant (ready.c) and ends with decide(). */
#include "sched/private.h"

uint64_t weir_sched_guess_ns(const struct weir_sched_config *config, enum weir_sched_class class,
                             uint64_t bytes)
{
    uint64_t speed = class == WEIR_SCHED_H2D || class == WEIR_SCHED_D2H ? tuning.guess_bus_gb_s
                                                                        : tuning.guess_memory_gb_s;

    return class == WEIR_SCHED_KERNEL || class == WEIR_SCHED_GRAPH
               ? config->guess_ns
               : config->guess_ns / 4 + bytes / speed;
}

static uint64_t predict(struct weir_sched *sched, struct weir_sched_item_params *params)
{
    bool kernel = params->class == WEIR_SCHED_KERNEL || params->class == WEIR_SCHED_GRAPH;

    if (params->predicted_ns != 0 || !sched->config.predict) {
        return params->predicted_ns;
    }
    if (!weir_predict_is_sure(sched->config.predict, params->class, params->key)) {
        params->flags |= WEIR_SCHED_UNSURE;
    }
    return weir_predict_ask(sched->config.predict, params->class, params->key,
                            kernel ? params->blocks : params->bytes);
}

static void append(struct weir_sched *sched, struct queue *queue, struct item *item)
{
    struct tenant *tenant = queue->tenant;

    item->queue = queue;
    item->prev = queue->last;
    *(queue->last ? &queue->last->next : &queue->first) = item;
    queue->last = item;
    if (!queue->candidate) {
        queue->candidate = item;
    }
    sched->alone.busy +=
        tenant->counts.waiting + tenant->counts.granted + tenant->counts.stopped == 0;
    tenant->counts.waiting++;
}

/* The time of a copy's later pieces, if they are as fast as this one. */
static uint64_t rest_of(const struct item *item)
{
    const struct weir_sched_item_params *p = &item->params;

    if (p->rest_bytes == 0 || p->bytes == 0 || is_compute(item)) {
        return 0;
    }
    double ns = (double)item->counted_ns * ((double)p->rest_bytes / (double)p->bytes);
    return ns < PREDICTED_MAX_NS ? (uint64_t)ns : PREDICTED_MAX_NS;
}

static void params_take(struct weir_sched *sched, struct item *item,
                        const struct weir_sched_item_params *params)
{
    item->params = *params;
    if (!sched->env.stop) {
        item->params.flags &= ~(uint32_t)WEIR_SCHED_STOPPABLE;
    }
    item->predicted_ns = min_u64(predict(sched, &item->params), PREDICTED_MAX_NS);
    item->counted_ns =
        item->predicted_ns != 0
            ? item->predicted_ns
            : min_u64(weir_sched_guess_ns(&sched->config, params->class, params->bytes),
                      PREDICTED_MAX_NS);
    item->copy.rest_ns = rest_of(item);
    item->at.arrived_ns = sched->now_ns;
    small_look(sched, item);
    item->saw.moved = (params->flags & WEIR_SCHED_STARTED) != 0;
}

enum weir_status weir_sched_arrive(struct weir_sched *sched, uint64_t now_ns,
                                   weir_sched_id queue_id,
                                   const struct weir_sched_item_params *params,
                                   weir_sched_id *ret_item)
{
    struct queue *queue = table_get(&sched->queues, queue_id);
    bool started = (params->flags & WEIR_SCHED_STARTED) != 0;
    struct item *item;

    WEIR_FAIL_IF(!queue, WEIR_ERR_STALE);
    if ((unsigned)params->class >= WEIR_SCHED_CLASS_COUNT ||
        (params->flags & ~WEIR_SCHED_ITEM_FLAGS) != 0 || (started && queue->candidate)) {
        return WEIR_ERR_INVALID;
    }
    WEIR_TRY(table_add(&sched->items, ret_item, (void **)&item));
    time_is(sched, now_ns);
    item->id = *ret_item;
    params_take(sched, item, params);
    append(sched, queue, item);
    sched->counts.arrivals++;
    fill_arrival(sched, item);
    trace(sched, WEIR_SCHED_REC_ARRIVE, NULL, NULL, item, item->predicted_ns);
    if (started) {
        item_grant(sched, item);
    } else {
        queue_refresh(sched, queue);
    }
    alone_look(sched, queue->tenant);
    tenant_refresh(sched, queue->tenant);
    decide(sched);
    return WEIR_OK;
}

static void finish(struct weir_sched *sched, struct item *item, uint64_t took_ns)
{
    struct tenant *tenant = item->queue->tenant;

    tenant->told.finished++;
    tenant->view.work_ns += is_compute(item) ? item->counted_ns - item->group.counted_ns : 0;
    sched->counts.finishes++;
    trace(sched, WEIR_SCHED_REC_FINISH, NULL, NULL, item, took_ns);
    if (took_ns != WEIR_SCHED_UNKNOWN && (item->is_front || took_ns != 0)) {
        learn(sched, item, took_ns);
    }
    group_correct(sched, item, item->counted_ns);
    for (uint32_t i = 0; i < sched->turn.members && is_compute(item); i++) {
        sched->turn.member[i].tried |= sched->turn.member[i].tenant == tenant;
    }
    sched->way[resource_of(item)].done_ns = sched->now_ns; /* used for copies only */
    if (item->params.class == WEIR_SCHED_GRAPH) {
        uint64_t *usual_ns = &tenant->view.graph_ns;

        *usual_ns = *usual_ns != 0 ? (7 * *usual_ns + item->had.busy_ns) / 8 : item->had.busy_ns;
    }
    fronts_yield(sched, item);
    charge_by_work(sched, item);
    pair_gain_done(sched, item);
    item_drop(sched, item);
}

#define BIT(state) (1u << WEIR_SCHED_##state)
#define ON_DEVICE  (BIT(GRANTED) | BIT(STOPPING) | BIT(STOPPED))

/* Begin an event of an item that is in one of the states, given as bits. */
static enum weir_status begin(struct weir_sched *sched, uint64_t now_ns, weir_sched_id id,
                              uint32_t states, struct item **ret_item)
{
    *ret_item = table_get(&sched->items, id);
    WEIR_FAIL_IF(!*ret_item, WEIR_ERR_STALE);
    WEIR_FAIL_IF((states & 1u << (*ret_item)->state) == 0, WEIR_ERR_INVALID);
    time_is(sched, now_ns);
    return WEIR_OK;
}

static void end(struct weir_sched *sched, struct tenant *tenant)
{
    tenant_refresh(sched, tenant);
    decide(sched);
}

enum weir_status weir_sched_finished(struct weir_sched *sched, uint64_t now_ns, weir_sched_id id,
                                     uint64_t took_ns)
{
    struct item *item;
    WEIR_TRY(begin(sched, now_ns, id, ON_DEVICE, &item));
    struct tenant *tenant = item->queue->tenant;
    finish(sched, item, took_ns);
    end(sched, tenant);
    return WEIR_OK;
}

enum weir_status weir_sched_withdraw(struct weir_sched *sched, uint64_t now_ns, weir_sched_id id)
{
    struct item *item;
    WEIR_TRY(begin(sched, now_ns, id, ON_DEVICE | BIT(WAITING), &item));
    struct tenant *tenant = item->queue->tenant;
    sched->counts.withdrawals++;
    trace(sched, WEIR_SCHED_REC_WITHDRAW, NULL, NULL, item, 0);
    item_drop(sched, item);
    end(sched, tenant);
    return WEIR_OK;
}

/* Correct served_ns by the exact number of blocks done; so far it came from the time. */
static void note_done(struct weir_sched *sched, struct item *item, uint32_t done_blocks)
{
    uint32_t blocks = item->params.blocks;

    done_blocks = blocks != 0 && done_blocks > blocks ? blocks : done_blocks;
    if (done_blocks > item->done_blocks) {
        item->done_blocks = done_blocks;
    }
    if (blocks != 0 && item->predicted_ns != 0) {
        item->had.served_ns =
            (uint64_t)((double)item->predicted_ns * sched->config.sms * item->done_blocks / blocks);
        group_correct(sched, item, item->had.served_ns / sched->config.sms);
    }
}

enum weir_status weir_sched_stopped(struct weir_sched *sched, uint64_t now_ns, weir_sched_id id,
                                    uint32_t done_blocks)
{
    struct item *item;
    WEIR_TRY(begin(sched, now_ns, id, BIT(STOPPING), &item));
    note_done(sched, item, done_blocks);
    item_stopped(sched, item);
    trace(sched, WEIR_SCHED_REC_STOPPED, NULL, NULL, item, 0);
    decide(sched);
    return WEIR_OK;
}

enum weir_status weir_sched_running(struct weir_sched *sched, uint64_t now_ns, weir_sched_id id,
                                    bool may_stop)
{
    struct item *item;
    WEIR_TRY(begin(sched, now_ns, id, ON_DEVICE, &item));
    item_runs(sched, item, may_stop);
    trace(sched, WEIR_SCHED_REC_RUNNING, NULL, NULL, item, may_stop);
    decide(sched);
    return WEIR_OK;
}

void weir_sched_tick(struct weir_sched *sched, uint64_t now_ns)
{
    time_is(sched, now_ns);
    sched->armed_ns = NEVER;
    trace(sched, WEIR_SCHED_REC_TICK, NULL, NULL, NULL, 0);
    decide(sched);
}

enum weir_status weir_sched_item_query(const struct weir_sched *sched, weir_sched_id id,
                                       struct weir_sched_item_info *ret_info)
{
    const struct item *item = table_get(&sched->items, id);

    WEIR_FAIL_IF(!item, WEIR_ERR_STALE);
    *ret_info = (struct weir_sched_item_info){
        .tenant = item->queue->tenant->view.id,
        .queue = item->queue->id,
        .params = item->params,
        .place = item->place,
        .state = item->state,
        .done_blocks = item->done_blocks,
        .predicted_ns = item->predicted_ns,
        .rest_ns = item_rest_ns(sched, item),
        .arrived_ns = item->at.arrived_ns,
        .started_ns = item->at.started_ns,
    };
    return WEIR_OK;
}
