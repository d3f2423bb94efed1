/* Checks the requests of workers, and passes them to the GPU's scheduler. */
#include "host_backend/gate/process/served.h"

#include "base/log.h"
#include <stdlib.h>

/* The most requests of a port in one round, and the time for them, so that a busy port delays the
 * others little. */
#define REQUESTS_AT_ONCE 256u
#define AT_ONCE_NS       (100 * WEIR_NS_PER_US)
#define NS_MAX           (3600 * WEIR_NS_PER_S) /* no work may claim a longer duration */

/* A request, and the objects that it is about. */
struct about {
    struct weir_gate_process *process;
    struct served_port *port;
    const struct weir_gate_request *request;
    struct served_gpu *gpu;     /* the GPU of the request's device; NULL: there is none */
    struct served_queue *queue; /* the queue that the request names; NULL: there is none */
    struct served_item *item;   /* the item that the request names; NULL: unused, or an old name */
    uint64_t now_ns;            /* when the event happened */
    bool held;                  /* the request was deferred once */
};

static bool is_class(uint8_t class)
{
    return class < WEIR_SCHED_CLASS_COUNT;
}

/*
 * Learned durations are found by keys. The worker chooses the lower bits of a key; the upper bits
 * stand for the tenant, and the gate process fills them in. So no request reaches durations of
 * another tenant's work. A copy's key has only the upper bits. A graph's key is private to its
 * worker: the same key in two workers names two graphs.
 */
static uint64_t key_of(const struct about *a)
{
    const struct weir_gate_request *r = a->request;
    uint64_t owner = a->queue->member->owner, key = r->key;

    if (weir_gate_is_copy((enum weir_sched_class)r->class)) {
        return owner;
    }
    if (owner == 0 || key == 0) {
        return 0; /* not known */
    }
    if (r->class == WEIR_SCHED_GRAPH) {
        key = (key ^ a->port->id) * UINT64_C(0x9e3779b97f4a7c15) >> (64 - WEIR_PREDICT_KEY_BITS);
    }
    return (key & WEIR_PREDICT_KEY_MASK) | owner;
}

/* ---------------------------------------------------------------- items */

/* Find an entry in the port's table of items, or make it; NULL: no memory. */
static struct served_item *item_at(struct served_port *port, uint32_t index)
{
    struct served_item **chunk = &port->items[index / SERVED_ITEMS_CHUNK];

    if (!*chunk) {
        *chunk = calloc(SERVED_ITEMS_CHUNK, sizeof **chunk);
    }
    return *chunk ? &(*chunk)[index % SERVED_ITEMS_CHUNK] : NULL;
}

static struct served_item *item_of(struct served_port *port,
                                   const struct weir_gate_request *request)
{
    struct served_item *chunk, *item;

    WEIR_FAIL_IF(request->item >= WEIR_GATE_PORT_ITEMS, NULL);
    chunk = port->items[request->item / SERVED_ITEMS_CHUNK];
    item = chunk ? &chunk[request->item % SERVED_ITEMS_CHUNK] : NULL;
    return item && item->id != 0 && item->generation == request->generation ? item : NULL;
}

static void use(struct served_item *item)
{
    struct served_queue *queue = item->queue;

    item->next = queue->items;
    item->link = &queue->items;
    if (item->next) {
        item->next->link = &item->next;
    }
    queue->items = item;
}

static void forget(struct served_item *item)
{
    *item->link = item->next;
    if (item->next) {
        item->next->link = item->link;
    }
    if (item->queue->waiting == item) {
        item->queue->waiting = NULL;
    }
    item->id = 0;
}

/* ---------------------------------------------------------------- arrivals */

/*
 * Workers use the predictions of the gate process. A worker's own prediction may be better only
 * where this one is not reliable. The slot has the prediction before the grant.
 */
static void predict(const struct about *a, struct weir_sched_item_params *params)
{
    struct served_gpu *gpu = a->gpu;
    struct weir_gate_slot *slot = a->queue->slot;
    bool names = params->class == WEIR_SCHED_KERNEL || params->class == WEIR_SCHED_GRAPH;
    bool sure = (params->flags & WEIR_SCHED_UNSURE) == 0 && params->predicted_ns != 0;
    uint64_t ns = weir_predict_ask(gpu->predict, params->class, params->key,
                                   names ? params->blocks : params->bytes);
    bool known = !names || params->key == 0 ||
                 weir_predict_is_sure(gpu->predict, params->class, params->key);

    if (ns != 0 && (known || !sure)) {
        params->predicted_ns = ns;
        sure = known;
    }
    params->flags &= ~(uint32_t)WEIR_SCHED_UNSURE;
    params->flags |= sure ? 0 : WEIR_SCHED_UNSURE;
    slot->ns = params->predicted_ns;
    slot->sure = sure;
}

/* Let an item pass if it cannot be scheduled; else its thread would wait for ever. */
static void pass(const struct about *a)
{
    const struct weir_gate_request *r = a->request;

    if (r->sequence != 0 && r->queue < WEIR_GATE_PORT_QUEUES) {
        struct weir_gate_slot *slot = &a->port->port->slot[r->queue];

        slot->place = (struct weir_sched_place){0};
        slot->level = WEIR_SCHED_PLAIN;
        slot->ns = 0;
        atomic_store_explicit(&slot->granted, r->sequence, memory_order_release); /* P4 */
        weir_gate_slot_changed(slot);
    }
}

/* If the flags say so, kernels of the queue may wait for work on other GPUs, until it is closed. */
static void note_peers(struct served_queue *queue, uint32_t flags)
{
    if ((flags & WEIR_SCHED_PEERS) != 0 && !queue->has_peers) {
        queue->has_peers = true;
        queue->member->with_peers++;
        weir_sched_spans_come(&queue->gpu->process->spans, weir_clock_now_ns(), queue->gpu->index,
                              queue->tenant);
    }
}

static void arrive(const struct about *a, struct served_item *item,
                   struct weir_sched_item_params *params)
{
    note_peers(a->queue, params->flags);
    if (item->sequence != 0) {
        served_gpu_comes(a->gpu, a->queue->member, a->now_ns);
        predict(a, params);
        a->queue->waiting = item;
    }
    if (weir_sched_arrive(a->gpu->sched, a->now_ns, a->queue->id, params, &item->id) != WEIR_OK) {
        forget(item);
        pass(a);
        return;
    }
    if (item->sequence != 0) {
        a->queue->member->gated++;
        atomic_store(&a->queue->slot->seen, item->sequence);
    }
}

static bool on_arrive(const struct about *a)
{
    const struct weir_gate_request *r = a->request;
    bool copies = weir_gate_is_copy((enum weir_sched_class)r->class);
    bool is_kernel = r->class == WEIR_SCHED_KERNEL;
    struct weir_sched_item_params params = {.class = (enum weir_sched_class)r->class,
                                            .flags = r->flags & WEIR_SCHED_ITEM_FLAGS,
                                            .key = a->queue ? key_of(a) : 0,
                                            .bytes = is_kernel ? 0 : r->size,
                                            .rest_bytes = copies ? r->key : 0,
                                            .blocks = r->blocks,
                                            .blocks_per_sm = r->blocks_per_sm,
                                            .predicted_ns = r->ns < NS_MAX ? r->ns : NS_MAX};
    bool started = (r->flags & WEIR_SCHED_STARTED) != 0;

    if (!a->queue) {
        pass(a); /* the tenant was removed, or the port may not serve it */
        return true;
    }
    if (!is_class(r->class) || r->item >= WEIR_GATE_PORT_ITEMS || started != (r->sequence == 0) ||
        (!started && a->queue->waiting)) {
        pass(a);
        return false;
    }
    struct served_item *item = item_at(a->port, r->item);
    if (!item || item->id != 0) {
        pass(a);
        return false;
    }
    *item = (struct served_item){.queue = a->queue,
                                 .generation = r->generation,
                                 .index = r->item,
                                 .sequence = r->sequence,
                                 .blocks_per_sm = r->blocks_per_sm};
    use(item);
    if (is_kernel && !started && (r->flags & WEIR_SCHED_MOVABLE) != 0) {
        served_need_note(&a->queue->need, r, a->now_ns);
    }
    params.user = item;
    arrive(a, item, &params);
    return true;
}

/* The item has passed without a grant, since the work before it in its queue does not end. */
static bool on_stuck(const struct about *a)
{
    struct weir_sched *sched = a->gpu->sched;
    struct weir_sched_item_info info;

    if (!a->item) {
        return true; /* the item was granted and has ended meanwhile */
    }
    if (a->item->queue->waiting != a->item ||
        weir_sched_item_query(sched, a->item->id, &info) != WEIR_OK) {
        return true;
    }
    (void)weir_sched_withdraw(sched, a->now_ns, a->item->id);
    a->item->queue->waiting = NULL;
    info.params.flags |= WEIR_SCHED_STARTED;
    if (weir_sched_arrive(sched, a->now_ns, a->item->queue->id, &info.params, &a->item->id) !=
        WEIR_OK) {
        forget(a->item);
    }
    return true;
}

/* ---------------------------------------------------------------- ends */

/* Invalid names belong to items that ended with their queue or their tenant. */
static bool on_finished(const struct about *a)
{
    const struct weir_gate_request *r = a->request;
    uint64_t took_ns = r->ns == WEIR_SCHED_UNKNOWN || r->ns < NS_MAX ? r->ns : NS_MAX;

    if (a->item) {
        if (a->item->queue->waiting == a->item) { /* a waiting item cannot have ended */
            (void)weir_sched_withdraw(a->gpu->sched, a->now_ns, a->item->id);
        } else {
            (void)weir_sched_finished(a->gpu->sched, a->now_ns, a->item->id, took_ns);
        }
        forget(a->item);
    }
    return true;
}

static bool on_together(const struct about *a)
{
    struct served_port *port = a->port;
    bool good = a->item && port->n_together < WEIR_GATE_BATCH_MAX;

    if (good) {
        port->together[port->n_together++] = a->item->id;
    }
    if (a->request->blocks == 0 || !good) {
        weir_sched_done_together(a->gpu->sched, a->now_ns, port->together,
                                 good ? port->n_together : 0);
        port->n_together = 0;
    }
    return true;
}

static bool on_withdraw(const struct about *a)
{
    if (a->item) {
        (void)weir_sched_withdraw(a->gpu->sched, a->now_ns, a->item->id);
        forget(a->item);
    }
    return true;
}

static bool on_stopped(const struct about *a)
{
    return !a->item || weir_sched_stopped(a->gpu->sched, a->now_ns, a->item->id,
                                          a->request->blocks) != WEIR_ERR_STALE;
}

static bool on_running(const struct about *a)
{
    return !a->item || weir_sched_running(a->gpu->sched, a->now_ns, a->item->id,
                                          a->request->flags != 0) != WEIR_ERR_STALE;
}

static bool on_learn(const struct about *a)
{
    const struct weir_gate_request *r = a->request;

    WEIR_FAIL_IF(!is_class(r->class) || r->blocks == 0 || r->ns > NS_MAX, false);
    if (!a->queue) {
        return true; /* the tenant was removed */
    }
    weir_predict_learn_alike(a->gpu->predict, (enum weir_sched_class)r->class, key_of(a), r->size,
                             r->ns, r->blocks);
    return true;
}

static bool on_charge(const struct about *a)
{
    const struct weir_gate_request *r = a->request;

    WEIR_FAIL_IF(!is_class(r->class), false);
    if (!a->queue) {
        return true; /* the tenant was removed, with its queues */
    }
    served_queue_charge(a->queue, r->class, WEIR_MIN(r->ns, NS_MAX));
    return true;
}

/* ---------------------------------------------------------------- devices and queues */

static bool on_device(const struct about *a)
{
    const struct weir_gate_request *r = a->request;

    WEIR_FAIL_IF(a->gpu, false);
    struct served_gpu *gpu = served_gpu_of(a->process, r);
    if (!gpu) {
        if (!a->port->told_not_served) {
            weir_log_error("gate: a worker's GPU is not scheduled port=%u", a->port->id);
        }
        a->port->told_not_served = true;
        return false;
    }
    a->port->gpu[r->device] = gpu;
    served_gpu_tell(gpu, a->port, r->device);
    return true;
}

/* May the port serve the tenant? The supervisor announces a tenant here before it does so in the
 * worker. */
static bool may_serve(const struct about *a)
{
    return a->process->tenants[a->request->item].known &&
           served_tenants_has(&a->port->may_serve, a->request->item);
}

/* Defer the request until the supervisor's messages are read. false: it was deferred already. */
static bool hold(const struct about *a)
{
    if (a->held) {
        return false;
    }
    a->port->held = *a->request;
    a->port->holds = true;
    a->port->held_at = a->process->heard;
    return true;
}

static bool tell_row(void *user, const uint8_t bytes[WEIR_PREDICT_ROW_BYTES])
{
    const struct served_queue *queue = user;

    return weir_gate_port_tell(queue->port->port, queue->device, bytes);
}

/* Send the worker once the learned durations of the tenant, so that it can predict undecided
 * work. */
static void begin_to_predict(struct served_queue *queue)
{
    struct served_tenants *told = &queue->port->told[queue->device];
    uint64_t owner = served_owner_of(queue->gpu, queue->tenant);

    if (owner != 0 && !served_tenants_has(told, queue->tenant)) {
        served_tenants_put(told, queue->tenant, true);
        weir_predict_rows(queue->gpu->predict, owner, tell_row, queue);
    }
}

static bool on_queue(const struct about *a)
{
    const struct weir_gate_request *r = a->request;

    if (!a->gpu || a->queue || r->queue >= WEIR_GATE_PORT_QUEUES ||
        r->item >= WEIR_CONFIG_TENANTS_MAX || r->blocks == 0 || r->blocks > 100) {
        return false;
    }
    if (!may_serve(a)) {
        return hold(a);
    }
    struct served_queue *queue = calloc(1, sizeof *queue);
    if (!queue) {
        return false; /* work of this queue will pass undecided */
    }
    *queue = (struct served_queue){.port = a->port,
                                   .gpu = a->gpu,
                                   .slot = &a->port->port->slot[r->queue],
                                   .index = r->queue,
                                   .device = r->device,
                                   .tenant = r->item,
                                   .sm_limit_pct = r->blocks};
    if (served_queue_enlist(a->process, queue) != WEIR_OK) {
        free(queue);
        return false; /* work of this queue will pass undecided */
    }
    begin_to_predict(queue);
    note_peers(queue, r->flags);
    served_use_begin(a->process, queue, r);
    WEIR_PUSH(a->port->queues, queue);
    a->port->queue[r->queue] = queue;
    return true;
}

void served_queue_close(struct served_queue *queue)
{
    struct served_port *port = queue->port;
    struct served_queue **at = &port->queues;

    while (queue->items) {
        forget(queue->items);
    }
    while (*at != queue) {
        at = &(*at)->next;
    }
    *at = queue->next;
    port->queue[queue->index] = NULL;
    served_use_end(queue);
    (void)weir_sched_queue_remove(queue->gpu->sched, weir_clock_now_ns(), queue->id);
    if (queue->has_peers && --queue->member->with_peers == 0) {
        weir_sched_spans_forget(&queue->gpu->process->spans, queue->gpu->index, queue->tenant);
    }
    free(queue);
}

static bool on_queue_gone(const struct about *a)
{
    if (a->queue) {
        served_queue_close(a->queue);
    }
    return true; /* the tenant may have been removed first, with its queues */
}

/* ---------------------------------------------------------------- all requests */

static const struct kind {
    bool (*handle)(const struct about *about);
    bool opens;       /* it announces a device, or opens or closes a queue */
    bool names_queue; /* false: the request is about an item, and its queue is 0 */
} kinds[] = {
    [WEIR_GATE_REQUEST_DEVICE] = {on_device, true, false},
    [WEIR_GATE_REQUEST_QUEUE] = {on_queue, true, false},
    [WEIR_GATE_REQUEST_QUEUE_GONE] = {on_queue_gone, true, false},
    [WEIR_GATE_REQUEST_ARRIVE] = {on_arrive, false, true},
    [WEIR_GATE_REQUEST_STUCK] = {on_stuck, false, false},
    [WEIR_GATE_REQUEST_FINISHED] = {on_finished, false, false},
    [WEIR_GATE_REQUEST_TOGETHER] = {on_together, false, false},
    [WEIR_GATE_REQUEST_WITHDRAW] = {on_withdraw, false, false},
    [WEIR_GATE_REQUEST_STOPPED] = {on_stopped, false, false},
    [WEIR_GATE_REQUEST_RUNNING] = {on_running, false, false},
    [WEIR_GATE_REQUEST_LEARN] = {on_learn, false, true},
    [WEIR_GATE_REQUEST_CHARGE] = {on_charge, false, true},
};

/* Handle a request. @return false: the request is invalid. */
static bool handle(struct about *a)
{
    const struct weir_gate_request *r = a->request;
    const struct kind *kind = &kinds[r->kind < sizeof kinds / sizeof *kinds ? r->kind : 0];

    WEIR_FAIL_IF(r->device >= WEIR_GATE_PORT_DEVICES || !kind->handle, false);
    a->gpu = a->port->gpu[r->device];
    a->queue = r->queue < WEIR_GATE_PORT_QUEUES ? a->port->queue[r->queue] : NULL;
    a->item = item_of(a->port, r);
    if (!kind->opens && (!a->gpu || (kind->names_queue && a->queue && a->queue->gpu != a->gpu) ||
                         (a->item && a->item->queue->gpu != a->gpu))) {
        return false;
    }
    return kind->handle(a);
}

/* Take the next request: the deferred one, once the supervisor's messages are read, or a new
 * one. */
static bool take(const struct weir_gate_process *process, struct served_port *port,
                 struct about *about, struct weir_gate_request *ret_request)
{
    about->held = port->holds;
    if (!port->holds) {
        return weir_gate_port_take(port->port, &port->tail, ret_request);
    }
    if (process->heard == port->held_at) {
        return false;
    }
    port->holds = false;
    *ret_request = port->held;
    return true;
}

uint32_t served_port_read(struct weir_gate_process *process, struct served_port *port)
{
    struct weir_gate_request request;
    struct about about = {.process = process, .port = port, .request = &request};
    uint64_t now_ns = weir_clock_now_ns(), end_ns = now_ns + AT_ONCE_NS;
    uint32_t n = 0;

    while (n < REQUESTS_AT_ONCE && now_ns < end_ns && take(process, port, &about, &request)) {
        about.now_ns = request.at_ns != 0 && request.at_ns < now_ns ? request.at_ns : now_ns;
        if (!handle(&about) && port->dropped++ == 0) {
            weir_log_warn("gate: a request that makes no sense port=%u kind=%u", port->id,
                          request.kind);
        }
        n++;
        now_ns = weir_clock_now_ns();
    }
    return n;
}

void served_port_rooms(struct served_port *port)
{
    for (struct served_queue *q = port->queues; q; q = q->next) {
        if (!q->waiting) {
            continue;
        }
        bool room = weir_sched_waits_for_room(q->gpu->sched, q->waiting->id);
        atomic_store(&q->slot->room, room ? q->waiting->sequence : 0);
    }
}

void served_port_close(struct served_port *port)
{
    struct served_queue *next;

    for (struct served_queue *q = port->queues; q; q = next) {
        next = q->next;
        served_queue_close(q);
    }
    for (uint32_t i = 0; i < WEIR_GATE_PORT_ITEMS / SERVED_ITEMS_CHUNK; i++) {
        free(port->items[i]);
    }
    weir_gate_port_unmap(port->port);
    free(port);
}
