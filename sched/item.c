/* Items: how they come, what becomes of them, how they go. */
#include "sched/private.h"

void time_is(struct weir_sched *sched, uint64_t now_ns)
{
    if (now_ns > sched->now_ns) {
        sched->now_ns = now_ns;
    }
    charge_until(sched, sched->now_ns);
}

void trace(struct weir_sched *sched, enum weir_sched_record_kind kind, const struct tenant *tenant,
           const struct queue *queue, const struct item *item, uint64_t value)
{
    struct weir_sched_record record;

    if (sched->env.trace == NULL) {
        return;
    }
    if (item != NULL) {
        queue = item->queue;
    }
    if (queue != NULL) {
        tenant = queue->tenant;
    }
    record = (struct weir_sched_record){
        .at_ns = sched->now_ns,
        .tenant = tenant != NULL ? tenant->view.id : 0,
        .queue = queue != NULL ? queue->id : 0,
        .value = value,
        .kind = (uint8_t)kind,
    };
    if (item != NULL) {
        record.item = item->id;
        record.class = (uint8_t)item->params.class;
        record.flags = (uint16_t)item->params.flags;
        record.place = item->place;
        record.blocks = item->done_blocks;
    }
    if (kind == WEIR_SCHED_REC_ARRIVE) {
        record.key = item->params.key;
        record.bytes = item->params.bytes;
        record.blocks = item->params.blocks;
        record.blocks_per_sm = item->params.blocks_per_sm;
    }
    sched->env.trace(sched->env.user, &record);
}

static uint64_t predict(struct weir_sched *sched, const struct weir_sched_item_params *params)
{
    bool kernel = params->class == WEIR_SCHED_KERNEL || params->class == WEIR_SCHED_GRAPH;

    if (params->predicted_ns != 0 || sched->config.predict == NULL) {
        return params->predicted_ns;
    }
    return weir_predict_ask(sched->config.predict, params->class, params->key,
                            kernel ? params->blocks : params->bytes);
}

static void append(struct queue *queue, struct item *item)
{
    item->queue = queue;
    item->prev = queue->last;
    *(queue->last != NULL ? &queue->last->next : &queue->first) = item;
    queue->last = item;
    if (queue->candidate == NULL) {
        queue->candidate = item;
    }
    queue->tenant->waiting++;
}

/* From waiting to granted; it must be the candidate of its queue. */
static void grant(struct weir_sched *sched, struct item *item)
{
    struct queue *queue = item->queue;

    queue->candidate = item->next;
    queue->on_device++;
    queue->tenant->waiting--;
    queue->tenant->granted++;
    queue->tenant->waited_ns += sched->now_ns - item->arrived_ns;
    item->state = WEIR_SCHED_GRANTED;
    item->started_ns = sched->now_ns;
    if (item == queue->first) {
        front_add(sched, item);
    }
}

void item_start(struct weir_sched *sched, struct item *item, const struct weir_sched_place *place)
{
    item->place = *place;
    grant(sched, item);
    sched->counts.starts++;
    trace(sched, WEIR_SCHED_REC_START, NULL, NULL, item, 0);
    sched->env.start(sched->env.user, item->id, item->params.user, place);
}

enum weir_status weir_sched_arrive(struct weir_sched *sched, uint64_t now_ns,
                                   weir_sched_id queue_id,
                                   const struct weir_sched_item_params *params,
                                   weir_sched_id *ret_item)
{
    struct queue *queue = table_get(&sched->queues, queue_id);
    struct item *item;
    enum weir_status status;

    if (queue == NULL) {
        return WEIR_ERR_STALE;
    }
    if ((unsigned)params->class >= WEIR_SCHED_CLASS_COUNT || params->flags > ITEM_FLAGS) {
        return WEIR_ERR_INVALID;
    }
    status = table_add(&sched->items, ret_item, (void **)&item);
    if (status != WEIR_OK) {
        return status;
    }
    time_is(sched, now_ns);
    item->id = *ret_item;
    item->params = *params;
    item->predicted_ns = predict(sched, params);
    item->arrived_ns = sched->now_ns;
    append(queue, item);
    sched->counts.arrivals++;
    trace(sched, WEIR_SCHED_REC_ARRIVE, NULL, NULL, item, item->predicted_ns);
    if ((params->flags & WEIR_SCHED_STARTED) != 0 && queue->candidate == item) {
        grant(sched, item);
    }
    decide(sched);
    return WEIR_OK;
}

void item_drop(struct weir_sched *sched, struct item *item)
{
    struct queue *queue = item->queue;
    struct tenant *tenant = queue->tenant;
    struct item *next = item->next;
    bool was_first = item == queue->first;

    front_remove(sched, item);
    *(item->prev != NULL ? &item->prev->next : &queue->first) = item->next;
    *(item->next != NULL ? &item->next->prev : &queue->last) = item->prev;
    if (item->state == WEIR_SCHED_WAITING) {
        tenant->waiting--;
        if (queue->candidate == item) {
            queue->candidate = next;
        }
    } else {
        queue->on_device--;
        if (item->state == WEIR_SCHED_STOPPED) {
            tenant->stopped--;
        } else {
            tenant->granted--;
        }
    }
    table_remove(&sched->items, item->id);
    if (was_first && next != NULL &&
        (next->state == WEIR_SCHED_GRANTED || next->state == WEIR_SCHED_STOPPING)) {
        front_add(sched, next);
    }
}

static void finish(struct weir_sched *sched, struct item *item, uint64_t took_ns)
{
    item->queue->tenant->finished++;
    sched->counts.finishes++;
    trace(sched, WEIR_SCHED_REC_FINISH, NULL, NULL, item, took_ns);
    item_drop(sched, item);
}

enum weir_status weir_sched_finished(struct weir_sched *sched, uint64_t now_ns, weir_sched_id id,
                                     uint64_t took_ns)
{
    struct item *item = table_get(&sched->items, id);

    if (item == NULL) {
        return WEIR_ERR_STALE;
    }
    if (item->state == WEIR_SCHED_WAITING) {
        return WEIR_ERR_INVALID;
    }
    time_is(sched, now_ns);
    finish(sched, item, took_ns);
    decide(sched);
    return WEIR_OK;
}

enum weir_status weir_sched_finished_through(struct weir_sched *sched, uint64_t now_ns,
                                             weir_sched_id id)
{
    struct item *item = table_get(&sched->items, id);
    struct queue *queue;
    bool last = false;

    if (item == NULL) {
        return WEIR_ERR_STALE;
    }
    if (item->state == WEIR_SCHED_WAITING) {
        return WEIR_ERR_INVALID;
    }
    time_is(sched, now_ns);
    queue = item->queue;
    while (!last) {
        last = queue->first == item;
        finish(sched, queue->first, 0);
    }
    decide(sched);
    return WEIR_OK;
}

enum weir_status weir_sched_withdraw(struct weir_sched *sched, uint64_t now_ns, weir_sched_id id)
{
    struct item *item = table_get(&sched->items, id);

    if (item == NULL) {
        return WEIR_ERR_STALE;
    }
    time_is(sched, now_ns);
    sched->counts.withdrawals++;
    trace(sched, WEIR_SCHED_REC_WITHDRAW, NULL, NULL, item, 0);
    item_drop(sched, item);
    decide(sched);
    return WEIR_OK;
}

enum weir_status weir_sched_stopped(struct weir_sched *sched, uint64_t now_ns, weir_sched_id id,
                                    uint32_t done_blocks)
{
    struct item *item = table_get(&sched->items, id);

    if (item == NULL) {
        return WEIR_ERR_STALE;
    }
    if (item->state != WEIR_SCHED_STOPPING) {
        return WEIR_ERR_INVALID;
    }
    time_is(sched, now_ns);
    item->done_blocks = done_blocks > item->done_blocks ? done_blocks : item->done_blocks;
    item->state = WEIR_SCHED_STOPPED;
    item->queue->tenant->granted--;
    item->queue->tenant->stopped++;
    front_remove(sched, item);
    trace(sched, WEIR_SCHED_REC_STOPPED, NULL, NULL, item, 0);
    decide(sched);
    return WEIR_OK;
}

enum weir_status weir_sched_running(struct weir_sched *sched, uint64_t now_ns, weir_sched_id id,
                                    bool may_stop)
{
    struct item *item = table_get(&sched->items, id);

    if (item == NULL) {
        return WEIR_ERR_STALE;
    }
    if (item->state == WEIR_SCHED_WAITING) {
        return WEIR_ERR_INVALID;
    }
    time_is(sched, now_ns);
    if (item->state == WEIR_SCHED_STOPPED) {
        item->queue->tenant->stopped--;
        item->queue->tenant->granted++;
        if (item->queue->first == item) {
            front_add(sched, item);
        }
    }
    item->state = WEIR_SCHED_GRANTED;
    if (!may_stop) {
        item->params.flags &= ~(uint32_t)WEIR_SCHED_STOPPABLE;
    }
    trace(sched, WEIR_SCHED_REC_RUNNING, NULL, NULL, item, may_stop);
    decide(sched);
    return WEIR_OK;
}

void weir_sched_tick(struct weir_sched *sched, uint64_t now_ns)
{
    time_is(sched, now_ns);
    trace(sched, WEIR_SCHED_REC_TICK, NULL, NULL, NULL, 0);
    decide(sched);
}

enum weir_status weir_sched_item_query(const struct weir_sched *sched, weir_sched_id id,
                                       struct weir_sched_item_info *ret_info)
{
    const struct item *item = table_get(&sched->items, id);

    if (item == NULL) {
        return WEIR_ERR_STALE;
    }
    *ret_info = (struct weir_sched_item_info){
        .tenant = item->queue->tenant->view.id,
        .queue = item->queue->id,
        .params = item->params,
        .place = item->place,
        .state = item->state,
        .done_blocks = item->done_blocks,
        .predicted_ns = item->predicted_ns,
        .rest_ns = item_rest_ns(sched, item),
        .arrived_ns = item->arrived_ns,
        .started_ns = item->started_ns,
    };
    return WEIR_OK;
}
