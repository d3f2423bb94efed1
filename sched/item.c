/*
 * Items: arrival, grant, stop, resume and end. Every function of the interface changes an item,
 * refreshes its queue and tenant (ready.c) and ends with decide().
 */
#include "sched/private.h"

#include "base/clock.h"

void time_is(struct weir_sched *sched, uint64_t now_ns)
{
    if (now_ns > sched->now_ns) {
        sched->now_ns = now_ns;
    }
    charge_until(sched, sched->now_ns);
}

/* Can the device confine the item to its place? If its blocks would fit on the device all at once,
 * but not on the place's SMs, they may wait for each other. */
static bool keeps_to_place(const struct item *item)
{
    const struct weir_sched_item_params *p = &item->params;

    if ((p->flags & WEIR_SCHED_PARTABLE) != 0 && item->place.block_limit == 0) {
        return !item->fills_all;
    }
    return (p->flags & (WEIR_SCHED_MOVABLE | WEIR_SCHED_STOPPABLE)) != 0;
}

/* The place given to the device. An item kept to part_sms is charged as if it were anywhere, and
 * one that cannot be placed as if it were at its tenant's place. */
static struct weir_sched_place place_on_device(const struct item *item)
{
    if (item->part_sms != 0) {
        return (struct weir_sched_place){.sm_count = item->part_sms};
    }
    return keeps_to_place(item) ? item->place : (struct weir_sched_place){0};
}

static void trace_flagged(struct weir_sched *sched, enum weir_sched_record_kind kind,
                          const struct tenant *tenant, const struct queue *queue,
                          const struct item *item, uint64_t value, uint16_t flags)
{
    struct weir_sched_record record;

    if (!sched->env.trace) {
        return;
    }
    queue = item ? item->queue : queue;
    tenant = queue ? queue->tenant : tenant;
    record = (struct weir_sched_record){
        .at_ns = sched->now_ns,
        .tenant = tenant ? tenant->view.id : 0,
        .queue = queue ? queue->id : 0,
        .value = value,
        .kind = (uint8_t)kind,
        .flags = flags,
    };
    if (item) {
        record.item = item->id;
        record.class = (uint8_t)item->params.class;
        record.flags |= (uint16_t)item->params.flags;
        record.place = place_on_device(item);
        record.blocks = item->done_blocks;
    }
    if (kind == WEIR_SCHED_REC_ARRIVE) {
        record.key = is_compute(item) ? item->params.key : item->params.rest_bytes;
        record.bytes = item->params.bytes;
        record.blocks = item->params.blocks;
        record.blocks_per_sm = item->params.blocks_per_sm;
    } else if (kind == WEIR_SCHED_REC_WAIT) {
        record.key = item->why.other;
    }
    sched->env.trace(sched->env.user, &record);
}

void trace(struct weir_sched *sched, enum weir_sched_record_kind kind, const struct tenant *tenant,
           const struct queue *queue, const struct item *item, uint64_t value)
{
    trace_flagged(sched, kind, tenant, queue, item, value, 0);
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
    sched->busy_tenants += tenant->waiting + tenant->granted + tenant->stopped == 0;
    tenant->waiting++;
}

/* Add a compute item to its queue's counts of the device, or remove it. */
static void count_kernel(struct item *item, bool more)
{
    struct queue *queue = item->queue;
    bool stoppable = is_stoppable(item);
    uint64_t fixed_ns = stoppable ? 0 : item->predicted_ns;

    if (!is_compute(item)) {
        return;
    }
    queue->kernels += more ? 1 : -1u;
    queue->stoppable += stoppable ? (more ? 1 : -1u) : 0;
    queue->fixed_ns = more ? queue->fixed_ns + fixed_ns : queue->fixed_ns - fixed_ns;
}

static void count_wait(struct tenant *tenant, uint64_t ns)
{
    uint64_t most_ns = 10 * WEIR_NS_PER_US;
    uint32_t i = 0;

    for (; i < WEIR_SCHED_WAITS - 1 && ns > most_ns; i++) {
        most_ns *= 10;
    }
    tenant->waits[i]++;
    tenant->waited_ns += ns;
}

/* Change an item from waiting to granted; it must be the candidate of its queue. */
static void grant(struct weir_sched *sched, struct item *item)
{
    struct queue *queue = item->queue;
    struct tenant *tenant = queue->tenant;
    enum weir_sched_resource resource = resource_of(item);

    queue->candidate = item->next;
    queue->on_device++;
    queue->device_ns += item->counted_ns;
    queue->settled.valid = false;
    count_kernel(item, true);
    tenant->waiting--;
    tenant->granted++;
    count_wait(tenant, sched->now_ns - item->arrived_ns);
    causes_count(sched, item);
    item->state = WEIR_SCHED_GRANTED;
    item->started_ns = sched->now_ns;
    fill_grant(sched, item);
    if (resource == WEIR_SCHED_COMPUTE) {
        item->after_switch = sched->switch_ns != 0 && queue->domain != sched->last_domain;
        sched->last_domain = queue->domain;
    } else {
        copy_tag(sched, item);
        copy_share_grant(sched, item);
        queue->copies_ns += item->counted_ns;
        sched->copies_on[resource]++;
        copies_count(sched, tenant, resource, true);
    }
    if (item == queue->first) {
        front_add(sched, item);
    }
    queue_refresh(sched, queue);
}

/* Values of a START record. */
enum { REC_BELOW = 1, REC_ABOVE = 2 };

void item_start(struct weir_sched *sched, struct item *item, const struct weir_sched_place *place)
{
    struct weir_sched_place on_device;

    item->place = *place;
    item->part_sms = is_everywhere(place) ? room_part(sched, item) : 0;
    item->fills_all = room_needs_all(sched, item, place->sm_count);
    on_device = place_on_device(item);
    item->above =
        small_goes_above(sched, item) || (is_everywhere(place) && first_goes_above(sched, item));
    grant(sched, item);
    sched->counts.starts++;
    trace(sched, WEIR_SCHED_REC_START, NULL, NULL, item,
          item->filler  ? REC_BELOW
          : item->above ? REC_ABOVE
                        : 0);
    sched->env.start(sched->env.user, item->id, item->params.user, &on_device, level_of(item));
}

/* After an item's state changed: its queue must be settled, and its tenant's view refreshed. */
static void state_changed(struct item *item)
{
    item->queue->settled.valid = false;
    item->queue->tenant->stale = true;
}

void item_stop(struct weir_sched *sched, struct item *item)
{
    item->state = WEIR_SCHED_STOPPING;
    item->stop_asked_ns = sched->now_ns;
    item->interrupted = true;
    item->queue->tenant->stops++;
    state_changed(item);
    sched->counts.stops++;
    trace(sched, WEIR_SCHED_REC_STOP, NULL, NULL, item, sched->config.lease_ns);
    sched->env.stop(sched->env.user, item->id, item->params.user, sched->config.lease_ns);
}

/* A stopped item runs again, by the scheduler's order or on its own. */
static void goes_on(struct weir_sched *sched, struct item *item)
{
    item->state = WEIR_SCHED_GRANTED;
    item->started_ns = sched->now_ns;
    item->queue->tenant->stopped--;
    item->queue->tenant->granted++;
    count_wait(item->queue->tenant, sched->now_ns - item->since_ns);
    causes_count(sched, item);
    item->queue->tenant->stale = true;
    if (item->queue->first == item) {
        front_add(sched, item);
    }
}

void item_resume(struct weir_sched *sched, struct item *item, const struct weir_sched_place *place)
{
    item->place = *place;
    goes_on(sched, item);
    sched->counts.resumes++;
    trace(sched, WEIR_SCHED_REC_RESUME, NULL, NULL, item, 0);
    sched->env.resume(sched->env.user, item->id, item->params.user, place);
}

void item_resize(struct weir_sched *sched, struct item *item, const struct weir_sched_place *place)
{
    item->place = *place;
    item->disturbed = true;
    sched->counts.resizes++;
    trace(sched, WEIR_SCHED_REC_RESIZE, NULL, NULL, item, 0);
    sched->env.resize(sched->env.user, item->id, item->params.user, place);
}

/* Let a tenant's work bypass the scheduler when no other tenant has had work for quiet_ns. */
static void look_alone(struct weir_sched *sched, struct tenant *tenant)
{
    weir_sched_id alone = atomic_load_explicit(&sched->shared.alone, memory_order_relaxed);

    if (sched->busy_tenants > 1 || sched->sole != tenant) {
        sched->sole = sched->busy_tenants == 1 ? tenant : NULL;
        sched->sole_since_ns = sched->now_ns;
        if (alone != 0 && (alone != tenant->view.id || !sched->sole)) {
            weir_sched_close(sched);
        }
    } else if (sched->allow_alone && alone == 0 && tenant->stopped == 0 && tenant->limits == 0 &&
               sched->now_ns - sched->sole_since_ns >= sched->config.quiet_ns) {
        atomic_store(&sched->shared.alone, tenant->view.id);
    }
}

/* The time of a copy's later pieces, if they are as fast as this one. */
static uint64_t rest_of(const struct item *item)
{
    const struct weir_sched_item_params *p = &item->params;
    double ns;

    if (p->rest_bytes == 0 || p->bytes == 0 || is_compute(item)) {
        return 0;
    }
    ns = (double)item->counted_ns * ((double)p->rest_bytes / (double)p->bytes);
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
    item->rest_ns = rest_of(item);
    item->arrived_ns = sched->now_ns;
    small_look(sched, item);
    item->disturbed = (params->flags & WEIR_SCHED_STARTED) != 0;
}

enum weir_status weir_sched_arrive(struct weir_sched *sched, uint64_t now_ns,
                                   weir_sched_id queue_id,
                                   const struct weir_sched_item_params *params,
                                   weir_sched_id *ret_item)
{
    struct queue *queue = table_get(&sched->queues, queue_id);
    bool started = (params->flags & WEIR_SCHED_STARTED) != 0;
    struct item *item;
    enum weir_status status;

    if (!queue) {
        return WEIR_ERR_STALE;
    }
    if ((unsigned)params->class >= WEIR_SCHED_CLASS_COUNT || (params->flags & ~ITEM_FLAGS) != 0 ||
        (started && queue->candidate)) {
        return WEIR_ERR_INVALID;
    }
    status = table_add(&sched->items, ret_item, (void **)&item);
    if (status != WEIR_OK) {
        return status;
    }
    time_is(sched, now_ns);
    item->id = *ret_item;
    params_take(sched, item, params);
    append(sched, queue, item);
    sched->counts.arrivals++;
    fill_arrival(sched, item);
    trace(sched, WEIR_SCHED_REC_ARRIVE, NULL, NULL, item, item->predicted_ns);
    if (started) {
        grant(sched, item);
    } else {
        queue_refresh(sched, queue);
    }
    look_alone(sched, queue->tenant);
    tenant_refresh(sched, queue->tenant);
    decide(sched);
    return WEIR_OK;
}

/* Remove an item from all counts of the device. */
static void leave_device(struct weir_sched *sched, struct item *item)
{
    struct queue *queue = item->queue;
    struct tenant *tenant = queue->tenant;
    enum weir_sched_resource resource = resource_of(item);

    front_remove(sched, item);
    sched->fillers -= item->filler;
    sched->equal_fillers -= item->fills_equal;
    sched->teachers -= item->teaches;
    sched->equal_filled_ns = item->fills_equal ? sched->now_ns : sched->equal_filled_ns;
    queue->on_device--;
    queue->device_ns -= item->counted_ns;
    count_kernel(item, false);
    if (resource != WEIR_SCHED_COMPUTE) {
        queue->copies_ns -= item->counted_ns;
        sched->copies_on[resource]--;
        copies_count(sched, tenant, resource, false);
    }
    if (item->state == WEIR_SCHED_STOPPED) {
        tenant->stopped--;
    } else {
        tenant->granted--;
    }
}

/* Remove an item in any state. The caller refreshes the tenant. */
void item_drop(struct weir_sched *sched, struct item *item)
{
    struct queue *queue = item->queue;
    struct tenant *tenant = queue->tenant;
    struct item *next = item->next;
    bool was_first = item == queue->first;

    if (item->tagged) {
        copy_share_end(sched, item);
    }
    if (item->state == WEIR_SCHED_WAITING) {
        tenant->waiting--;
        queue->candidate = queue->candidate == item ? next : queue->candidate;
    } else {
        leave_device(sched, item);
    }
    *(item->prev ? &item->prev->next : &queue->first) = item->next;
    *(item->next ? &item->next->prev : &queue->last) = item->prev;
    sched->busy_tenants -= tenant->waiting + tenant->granted + tenant->stopped == 0;
    if (was_first && next && is_at_work(next)) {
        front_add(sched, next);
    }
    queue_refresh(sched, queue);
    first_note(sched, tenant);
    table_remove(&sched->items, item->id);
}

static void finish(struct weir_sched *sched, struct item *item, uint64_t took_ns, bool taught,
                   uint16_t flags)
{
    struct tenant *tenant = item->queue->tenant;
    struct turn *turn = &sched->turn;

    tenant->finished++;
    tenant->view.work_ns += is_compute(item) ? item->counted_ns - item->counted_work_ns : 0;
    sched->counts.finishes++;
    trace_flagged(sched, WEIR_SCHED_REC_FINISH, NULL, NULL, item, took_ns, flags);
    if (taught) {
        learn(sched, item, took_ns);
    }
    group_correct(sched, item, item->counted_ns);
    sched->copy_done_ns[resource_of(item)] = sched->now_ns; /* used for copies only */
    for (uint32_t i = 0; i < turn->members && is_compute(item); i++) {
        turn->member[i].tried |= turn->member[i].tenant == tenant;
    }
    if (item->params.class == WEIR_SCHED_GRAPH) {
        uint64_t *usual_ns = &tenant->view.graph_ns;

        *usual_ns = *usual_ns != 0 ? (7 * *usual_ns + item->busy_ns) / 8 : item->busy_ns;
    }
    fronts_yield(sched, item);
    first_settle(sched, item);
    charge_by_work(sched, item);
    small_done(sched, item);
    pair_gain_done(sched, item);
    item_drop(sched, item);
}

enum weir_status weir_sched_finished(struct weir_sched *sched, uint64_t now_ns, weir_sched_id id,
                                     uint64_t took_ns)
{
    struct item *item = table_get(&sched->items, id);
    struct tenant *tenant;

    if (!item) {
        return WEIR_ERR_STALE;
    }
    if (item->state == WEIR_SCHED_WAITING) {
        return WEIR_ERR_INVALID;
    }
    time_is(sched, now_ns);
    tenant = item->queue->tenant;
    finish(sched, item, took_ns, took_ns != WEIR_SCHED_UNKNOWN && (item->is_front || took_ns != 0),
           0);
    tenant_refresh(sched, tenant);
    decide(sched);
    return WEIR_OK;
}

/*
 * Learn from several items that were seen to end together. If they are identical, each took the
 * mean: the first was charged the time of all.
 */
static bool learn_alike(struct weir_sched *sched, struct queue *queue, const struct item *last)
{
    struct item *first = queue->first;
    uint32_t count = 1;

    for (struct item *i = first; i != last; i = i->next, count++) {
        if (!is_like(i->next, first) || i->next->disturbed || i->next->interrupted) {
            return false;
        }
    }
    first->alike = count;
    learn(sched, first, first->busy_ns / count);
    return true;
}

/* Correct the accounts: the first item was served for the time of all. */
static void correct_all(const struct weir_sched *sched, struct queue *queue,
                        const struct item *last)
{
    uint64_t done_ns = last->counted_ns;

    for (const struct item *i = queue->first; i != last; i = i->next) {
        done_ns += i->counted_ns;
    }
    group_correct(sched, queue->first, done_ns);
    queue->first->group_ns = 0;
    queue->first->later_ns = done_ns - queue->first->counted_ns;
}

enum weir_status weir_sched_finished_through(struct weir_sched *sched, uint64_t now_ns,
                                             weir_sched_id id)
{
    struct item *item = table_get(&sched->items, id);
    struct queue *queue;
    bool last;

    if (!item) {
        return WEIR_ERR_STALE;
    }
    if (item->state == WEIR_SCHED_WAITING) {
        return WEIR_ERR_INVALID;
    }
    time_is(sched, now_ns);
    queue = item->queue;
    (void)learn_alike(sched, queue, item);
    correct_all(sched, queue, item);
    do {
        last = queue->first == item;
        finish(sched, queue->first, 0, false,
               last ? WEIR_SCHED_REC_THROUGH : WEIR_SCHED_REC_THROUGH | WEIR_SCHED_REC_MORE);
    } while (!last);
    tenant_refresh(sched, queue->tenant);
    decide(sched);
    return WEIR_OK;
}

enum weir_status weir_sched_withdraw(struct weir_sched *sched, uint64_t now_ns, weir_sched_id id)
{
    struct item *item = table_get(&sched->items, id);
    struct tenant *tenant;

    if (!item) {
        return WEIR_ERR_STALE;
    }
    time_is(sched, now_ns);
    tenant = item->queue->tenant;
    sched->counts.withdrawals++;
    trace(sched, WEIR_SCHED_REC_WITHDRAW, NULL, NULL, item, 0);
    item_drop(sched, item);
    tenant_refresh(sched, tenant);
    decide(sched);
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
        item->served_ns =
            (uint64_t)((double)item->predicted_ns * sched->config.sms * item->done_blocks / blocks);
        group_correct(sched, item, item->served_ns / sched->config.sms);
    }
}

enum weir_status weir_sched_stopped(struct weir_sched *sched, uint64_t now_ns, weir_sched_id id,
                                    uint32_t done_blocks)
{
    struct item *item = table_get(&sched->items, id);
    struct tenant *tenant;

    if (!item) {
        return WEIR_ERR_STALE;
    }
    if (item->state != WEIR_SCHED_STOPPING) {
        return WEIR_ERR_INVALID;
    }
    time_is(sched, now_ns);
    tenant = item->queue->tenant;
    note_done(sched, item, done_blocks);
    item->state = WEIR_SCHED_STOPPED;
    item->since_ns = sched->now_ns;
    item->why.cause = WEIR_SCHED_CAUSE_OWN;
    item->why.other = 0;
    item->why.since_ns = sched->now_ns;
    tenant->granted--;
    tenant->stopped++;
    state_changed(item);
    tenant->view.stop_ns = (3 * tenant->view.stop_ns + sched->now_ns - item->stop_asked_ns) / 4;
    front_remove(sched, item);
    trace(sched, WEIR_SCHED_REC_STOPPED, NULL, NULL, item, 0);
    decide(sched);
    return WEIR_OK;
}

enum weir_status weir_sched_running(struct weir_sched *sched, uint64_t now_ns, weir_sched_id id,
                                    bool may_stop)
{
    struct item *item = table_get(&sched->items, id);

    if (!item) {
        return WEIR_ERR_STALE;
    }
    if (item->state == WEIR_SCHED_WAITING) {
        return WEIR_ERR_INVALID;
    }
    time_is(sched, now_ns);
    if (item->state == WEIR_SCHED_STOPPED) {
        goes_on(sched, item);
    }
    item->state = WEIR_SCHED_GRANTED;
    state_changed(item);
    item->no_stop_before_ns = sched->now_ns + tuning.again_ns;
    if (!may_stop) {
        count_kernel(item, false);
        item->params.flags &= ~(uint32_t)WEIR_SCHED_STOPPABLE;
        count_kernel(item, true);
    }
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

    if (!item) {
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
