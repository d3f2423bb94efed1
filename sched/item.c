/* The state changes of items: grant, stop, resume, removal; and the time that items waited. */
#include "sched/private.h"

#include "base/clock.h"
#include <stdlib.h>

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

/* The place for the device. Charges differ: an item kept to part_sms is charged as if it were
 * anywhere, and one that cannot be placed as if it were at its tenant's place. */
static struct weir_sched_place place_on_device(const struct item *item)
{
    if (item->part_sms != 0) {
        return (struct weir_sched_place){.sm_count = item->part_sms};
    }
    return keeps_to_place(item) ? item->place : (struct weir_sched_place){0};
}

void trace(struct weir_sched *sched, enum weir_sched_record_kind kind, const struct tenant *tenant,
           const struct queue *queue, const struct item *item, uint64_t value)
{
    if (!sched->env.trace) {
        return;
    }
    queue = item ? item->queue : queue;
    tenant = queue ? queue->tenant : tenant;
    struct weir_sched_record record = (struct weir_sched_record){
        .at_ns = sched->now_ns,
        .tenant = tenant ? tenant->view.id : 0,
        .queue = queue ? queue->id : 0,
        .value = value,
        .kind = (uint8_t)kind,
    };
    if (item) {
        record.item = item->id;
        record.class = (uint8_t)item->params.class;
        record.flags = (uint16_t)item->params.flags;
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

/* Count a granted item if it fills, or if its duration is to be learned. */
static void count_beside(struct weir_sched *sched, struct item *item)
{
    const struct turn *turn = &sched->turn;
    bool equal = item->level == WEIR_SCHED_BELOW_EQUAL;

    for (struct item *i = sched->fronts.first[WEIR_SCHED_COMPUTE]; i && equal; i = i->front_next) {
        i->saw.filler = true;
    }
    sched->fill.items += is_filler(item);
    sched->fill.equals += equal;
    item->teaches = (is_to_learn(item) && !equal) ||
                    (turn->clean && item->queue->tenant == turn->leader && is_compute(item));
    if (item->teaches) {
        sched->fill.teachers++;
        sched->fill.teachers_ns = sched->now_ns + tuning.patience_ns;
    }
}

static void count_wait(struct tenant *tenant, uint64_t ns)
{
    uint64_t most_ns = 10 * WEIR_NS_PER_US;
    uint32_t i = 0;

    for (; i < WEIR_SCHED_WAITS - 1 && ns > most_ns; i++) {
        most_ns *= 10;
    }
    tenant->told.waits[i]++;
    tenant->told.waited_ns += ns;
}

void weir_sched_wait_add(struct weir_sched_wait *rows, const struct weir_sched_wait *wait)
{
    /* The first rows, one a cause, are for waits for no particular tenant. */
    struct weir_sched_wait *row = &rows[WEIR_SCHED_CAUSE_COUNT], *end = rows + WEIR_SCHED_WAIT_ROWS;
    bool named = wait->other != 0;

    while (named && row < end && row->ns != 0 &&
           (row->other != wait->other || row->cause != wait->cause)) {
        row++;
    }
    named = named && row < end;
    row = named ? row : &rows[wait->cause];
    *row = (struct weir_sched_wait){
        .other = named ? wait->other : 0, .ns = row->ns + wait->ns, .cause = wait->cause};
}

void causes_count(const struct weir_sched *sched, struct item *item)
{
    struct queue *queue = item->queue;
    const struct weir_sched_wait wait = {.other = item->why.other,
                                         .ns = sched->now_ns - item->why.since_ns,
                                         .cause = item->why.cause};

    if (item->why.since_ns == 0 || wait.ns == 0) {
        return; /* it waited behind items of its own queue, whose waits count */
    }
    item->why.since_ns = sched->now_ns;
    if (!queue->waits) {
        queue->waits = calloc(WEIR_SCHED_WAIT_ROWS, sizeof *queue->waits);
    }
    if (queue->waits) {
        weir_sched_wait_add(queue->waits, &wait);
    }
}

enum weir_sched_cause weir_sched_item_cause(const struct weir_sched *sched, weir_sched_id id)
{
    const struct item *item = table_get(&sched->items, id);

    return item ? (enum weir_sched_cause)item->why.cause : WEIR_SCHED_CAUSE_OWN;
}

const struct weir_sched_wait *weir_sched_queue_waits(const struct weir_sched *sched,
                                                     weir_sched_id id)
{
    const struct queue *queue = table_get(&sched->queues, id);

    return queue ? queue->waits : NULL;
}

void item_grant(struct weir_sched *sched, struct item *item)
{
    struct queue *queue = item->queue;
    struct tenant *tenant = queue->tenant;
    enum weir_sched_resource resource = resource_of(item);

    queue->candidate = item->next;
    queue->on_device++;
    queue->device_ns += item->counted_ns;
    queue->settled.valid = false;
    count_kernel(item, true);
    tenant->counts.waiting--;
    tenant->counts.granted++;
    count_wait(tenant, sched->now_ns - item->at.arrived_ns);
    causes_count(sched, item);
    item->state = WEIR_SCHED_GRANTED;
    item->at.started_ns = sched->now_ns;
    count_beside(sched, item);
    if (resource == WEIR_SCHED_COMPUTE) {
        tenant->told.kernels++;
        item->saw.new_domain =
            sched->domains.switch_ns != 0 && queue->domain != sched->domains.last;
        sched->domains.last = queue->domain;
    } else {
        copy_tag(sched, item);
        copy_share_grant(sched, item);
        queue->copies_ns += item->counted_ns;
        sched->way[resource].on_device++;
        copies_count(sched, tenant, resource, true);
    }
    if (item == queue->first) {
        front_add(sched, item);
    }
    queue_refresh(sched, queue);
    if (tenant->span_more != 0 && is_compute(item) && --tenant->span_more == 0) {
        for (struct queue *other = tenant->queues; other; other = other->next) {
            queue_refresh(sched, other);
        }
    }
}

/* Values of a START record. */
enum { REC_BELOW = 1, REC_ABOVE = 2 };

void item_start(struct weir_sched *sched, struct item *item, const struct weir_sched_place *place,
                enum weir_sched_level level)
{
    item->place = *place;
    item->part_sms = is_everywhere(place) ? room_part(sched, item) : 0;
    item->fills_all = room_needs_all(sched, item, place->sm_count);
    struct weir_sched_place on_device = place_on_device(item);
    item->level = level;
    item_grant(sched, item);
    sched->counts.starts++;
    trace(sched, WEIR_SCHED_REC_START, NULL, NULL, item,
          is_filler(item)             ? REC_BELOW
          : level == WEIR_SCHED_ABOVE ? REC_ABOVE
                                      : 0);
    sched->env.start(sched->env.user, item->id, item->params.user, &on_device, level);
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
    item->at.stop_asked_ns = sched->now_ns;
    item->saw.stop = true;
    item->queue->tenant->told.stops++;
    state_changed(item);
    sched->counts.stops++;
    trace(sched, WEIR_SCHED_REC_STOP, NULL, NULL, item, sched->config.lease_ns);
    sched->env.stop(sched->env.user, item->id, item->params.user, sched->config.lease_ns);
}

/* A stopped item runs again, because the scheduler resumed it or on its own. */
static void goes_on(struct weir_sched *sched, struct item *item)
{
    item->state = WEIR_SCHED_GRANTED;
    item->at.started_ns = sched->now_ns;
    item->queue->tenant->counts.stopped--;
    item->queue->tenant->counts.granted++;
    count_wait(item->queue->tenant, sched->now_ns - item->at.since_ns);
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
    item->saw.moved = true;
    sched->counts.resizes++;
    trace(sched, WEIR_SCHED_REC_RESIZE, NULL, NULL, item, 0);
    sched->env.resize(sched->env.user, item->id, item->params.user, place);
}

void item_stopped(struct weir_sched *sched, struct item *item)
{
    struct tenant *tenant = item->queue->tenant;

    item->state = WEIR_SCHED_STOPPED;
    item->at.since_ns = sched->now_ns;
    item->why.cause = WEIR_SCHED_CAUSE_OWN;
    item->why.other = 0;
    item->why.since_ns = sched->now_ns;
    tenant->counts.granted--;
    tenant->counts.stopped++;
    state_changed(item);
    tenant->view.stop_ns = (3 * tenant->view.stop_ns + sched->now_ns - item->at.stop_asked_ns) / 4;
    front_remove(sched, item);
}

void item_runs(struct weir_sched *sched, struct item *item, bool may_stop)
{
    if (item->state == WEIR_SCHED_STOPPED) {
        goes_on(sched, item);
    }
    item->state = WEIR_SCHED_GRANTED;
    state_changed(item);
    item->at.no_stop_before_ns = sched->now_ns + tuning.again_ns;
    if (!may_stop) {
        count_kernel(item, false);
        item->params.flags &= ~(uint32_t)WEIR_SCHED_STOPPABLE;
        count_kernel(item, true);
    }
}

/* Remove an item from all counts of the device. */
static void leave_device(struct weir_sched *sched, struct item *item)
{
    struct queue *queue = item->queue;
    struct tenant *tenant = queue->tenant;
    enum weir_sched_resource resource = resource_of(item);

    front_remove(sched, item);
    sched->fill.items -= is_filler(item);
    if (item->level == WEIR_SCHED_BELOW_EQUAL) {
        sched->fill.equals--;
        sched->fill.equal_ns = sched->now_ns;
    }
    sched->fill.teachers -= item->teaches;
    queue->on_device--;
    queue->device_ns -= item->counted_ns;
    count_kernel(item, false);
    if (resource != WEIR_SCHED_COMPUTE) {
        queue->copies_ns -= item->counted_ns;
        sched->way[resource].on_device--;
        copies_count(sched, tenant, resource, false);
    }
    if (item->state == WEIR_SCHED_STOPPED) {
        tenant->counts.stopped--;
    } else {
        tenant->counts.granted--;
    }
}

/* Remove an item in any state. The caller refreshes the tenant. */
void item_drop(struct weir_sched *sched, struct item *item)
{
    struct queue *queue = item->queue;
    struct tenant *tenant = queue->tenant;
    struct item *next = item->next;
    bool was_first = item == queue->first;

    if (item->copy.tagged) {
        copy_share_end(sched, item);
    }
    if (item->state == WEIR_SCHED_WAITING) {
        tenant->counts.waiting--;
        queue->candidate = queue->candidate == item ? next : queue->candidate;
    } else {
        leave_device(sched, item);
    }
    *(item->prev ? &item->prev->next : &queue->first) = item->next;
    *(item->next ? &item->next->prev : &queue->last) = item->prev;
    sched->alone.busy -=
        tenant->counts.waiting + tenant->counts.granted + tenant->counts.stopped == 0;
    if (was_first && next && is_at_work(next)) {
        front_add(sched, next);
    }
    queue_refresh(sched, queue);
    first_note(sched, tenant);
    table_remove(&sched->items, item->id);
}
