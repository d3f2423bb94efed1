/*
 * Reports events to the gate process, reads its answers and orders, and attaches a gate to it.
 *
 * Arrivals are posted (client.h), and the queue's slot shows grants. When the gate process is lost,
 * items that waited for its grant pass, and runs that it had stopped resume. Until the next gate
 * process is attached, work passes undecided and is charged to nobody. The next gate process knows
 * none of the items of the lost one, and refuses their names.
 */
#include "host_backend/gate/private.h"

#include "base/log.h"
#include <string.h>

/* ---------------------------------------------------------------- items */

void weir_gate_tell_locked(struct weir_gate *gate, weir_gate_name name,
                           struct weir_gate_request request)
{
    struct weir_gate_client *client = weir_gate_client_of(gate);

    request.device = gate->device;
    if (!client) {
        return;
    }
    weir_gate_client_post_item(client, name, &request);
    if (request.kind == WEIR_GATE_REQUEST_FINISHED || request.kind == WEIR_GATE_REQUEST_WITHDRAW) {
        weir_gate_client_unname(client, name);
    }
}

enum weir_status weir_gate_arrive_locked(struct weir_gate_queue *q,
                                         struct weir_gate_request *request,
                                         struct weir_gate_item *item, weir_gate_name *ret_name)
{
    *ret_name = q->client ? weir_gate_client_name(q->client, item) : 0;
    WEIR_FAIL_IF(*ret_name == 0, WEIR_ERR_NO_MEMORY);
    request->kind = WEIR_GATE_REQUEST_ARRIVE;
    request->queue = q->slot;
    if (item) {
        request->sequence = ++q->client->sequence[q->slot];
        request->sequence += request->sequence == 0; /* 0 means none, so skip it */
        q->client->sequence[q->slot] = request->sequence;
        item->sequence = request->sequence;
        item->slot = &q->client->port->slot[q->slot];
    }
    weir_gate_tell_locked(q->gate, *ret_name, *request);
    return WEIR_OK;
}

void weir_gate_pass_locked(struct weir_gate_queue *q, struct weir_gate_item *item, uint64_t now_ns)
{
    weir_gate_tell_locked(
        q->gate, item->name,
        (struct weir_gate_request){.kind = WEIR_GATE_REQUEST_STUCK, .at_ns = now_ns});
    q->waiting = NULL;
    atomic_store(&item->granted, true);
}

/* ---------------------------------------------------------------- durations of undecided work */

static void post_of_queue(struct weir_gate_queue *q, struct weir_gate_request *request)
{
    request->device = q->gate->device;
    request->queue = q->slot;
    if (q->client) {
        weir_gate_client_post(q->client, request);
    }
}

void weir_gate_learn_locked(struct weir_gate_queue *q, const struct weir_gate_batch *work,
                            uint64_t each_ns)
{
    struct weir_gate_request request = {.kind = WEIR_GATE_REQUEST_LEARN,
                                        .class = work->class,
                                        .key = work->key,
                                        .size = work->size,
                                        .ns = each_ns,
                                        .blocks = work->n};

    weir_predict_learn_alike(q->gate->predict, (enum weir_sched_class)work->class, work->key,
                             work->size, each_ns, work->n);
    post_of_queue(q, &request);
}

void weir_gate_charge_locked(struct weir_gate_queue *q, uint8_t class, uint64_t took_ns)
{
    struct weir_gate_request request = {
        .kind = WEIR_GATE_REQUEST_CHARGE, .class = class, .ns = took_ns};

    post_of_queue(q, &request);
}

/* ---------------------------------------------------------------- answers of the gate process */

bool weir_gate_is_granted(struct weir_gate_item *item)
{
    const struct weir_gate_slot *slot = item->slot;

    if (atomic_load_explicit(&item->granted, memory_order_acquire)) { /* G1 */
        return true;
    }
    /* P4: acquires the gate process's decision about the item; meets its store of `granted`. */
    if (atomic_load_explicit(&slot->granted, memory_order_acquire) != item->sequence) {
        return false;
    }
    item->place = slot->place;
    item->beside_bytes = slot->beside_bytes;
    item->level = slot->level < WEIR_SCHED_LEVEL_COUNT ? (enum weir_sched_level)slot->level
                                                       : WEIR_SCHED_PLAIN;
    item->cause = slot->cause < WEIR_SCHED_CAUSE_COUNT ? (uint8_t)slot->cause : 0;
    item->sure = slot->sure != 0;
    atomic_store_explicit(&item->granted, true, memory_order_release);
    return true;
}

/* The gate process knows the item's duration better than this process. */
static void take_prediction(const struct weir_gate_slot *slot, struct weir_gate *gate,
                            const struct weir_gate_work *work, struct weir_gate_pass *pass)
{
    struct weir_gate_hint *hint = work->hint;

    if (slot->ns == 0) {
        return;
    }
    if (pass->guessed) {
        pass->guessed = false;
        weir_predict_suppose(gate->predict, work->class, work->key, weir_gate_size_of(work),
                             slot->ns);
    }
    pass->ns = slot->ns;
    if (hint) {
        hint->ns = slot->ns;
        hint->sure = slot->sure != 0;
    }
}

void weir_gate_granted(struct weir_gate_queue *q, struct weir_gate_item *item,
                       const struct weir_gate_work *work, struct weir_gate_pass *pass)
{
    struct weir_gate *gate = q->gate;

    WEIR_LOCKED(&gate->lock);
    if (q->waiting == item) {
        q->waiting = NULL;
    }
    take_prediction(item->slot, gate, work, pass);
}

bool weir_gate_waits_for_room(const struct weir_gate_item *item)
{
    return atomic_load(&item->slot->seen) != item->sequence ||
           atomic_load(&item->slot->room) == item->sequence;
}

bool weir_gate_is_soon(struct weir_gate_item *item)
{
    uint32_t expected = item->sequence;

    return atomic_compare_exchange_strong(&item->slot->soon, &expected, 0);
}

static void take_order_locked(struct weir_gate *gate, struct weir_gate_client *client,
                              const struct weir_gate_order *order)
{
    struct weir_gate_item *item = weir_gate_client_item(client, order->item, order->generation);

    if (!item || item->gate != gate) {
        return;
    }
    switch (order->kind) {
    case WEIR_GATE_ORDER_STOP:
        weir_gate_stop_locked(item, order->lease_ns);
        break;
    case WEIR_GATE_ORDER_RESUME:
        weir_gate_resume_locked(item, &order->place);
        break;
    default:
        weir_gate_resize_locked(item, &order->place);
        break;
    }
}

/* ---------------------------------------------------------------- attach */

/* Announce the queue to the gate process. */
static void enlist_locked(struct weir_gate_queue *q, struct weir_gate_client *client)
{
    struct weir_gate_request request = {.kind = WEIR_GATE_REQUEST_QUEUE,
                                        .flags = q->has_peers ? WEIR_SCHED_PEERS : 0,
                                        .device = q->gate->device,
                                        .item = (uint32_t)(q->member - q->gate->members),
                                        .blocks = q->sm_limit_pct};
    uint32_t slot = weir_gate_client_slot_take(client);

    if (q->ops->name) {
        weir_gate_port_name(&request, q->ops->name, q->session);
    }
    if (slot == WEIR_GATE_PORT_QUEUES) {
        if (!q->gate->told_full) {
            weir_log_warn("sched: too many sessions for the gate process, others are refused "
                          "device=%u",
                          q->gate->device);
        }
        q->gate->told_full = true;
        return;
    }
    q->slot = request.queue = slot;
    weir_gate_client_post(client, &request);
    atomic_store_explicit(&q->client, client, memory_order_release);
}

void weir_gate_enlist_locked(struct weir_gate_queue *q)
{
    struct weir_gate_client *client = weir_gate_client_of(q->gate);

    if (client && !q->client) {
        enlist_locked(q, client);
    }
}

void weir_gate_delist_locked(struct weir_gate_queue *q)
{
    struct weir_gate_request request = {
        .kind = WEIR_GATE_REQUEST_QUEUE_GONE, .device = q->gate->device, .queue = q->slot};

    if (q->client) {
        weir_gate_client_post(q->client, &request);
        weir_gate_client_slot_put(q->client, q->slot);
        q->client = NULL;
    }
}

void weir_gate_attach(struct weir_gate *gate, struct weir_gate_client *client)
{
    struct weir_gate_request request = {.kind = WEIR_GATE_REQUEST_DEVICE, .device = gate->device};

    memcpy(&request.key, gate->uuid, sizeof request.key);
    memcpy(&request.size, gate->uuid + sizeof request.key, sizeof request.size);
    WEIR_LOCKED(&gate->lock);
    weir_gate_client_post(client, &request);
    for (struct weir_gate_queue *q = gate->queues; q; q = q->next) {
        enlist_locked(q, client);
    }
    weir_gate_kick_locked(gate);
    atomic_store_explicit(&gate->client, client, memory_order_release);
}

/* Resume the runs that the lost gate process stopped. */
static void let_go_locked(struct weir_gate *gate, struct weir_gate_client *client)
{
    static const struct weir_sched_place everywhere;

    for (uint32_t i = 0; i < WEIR_GATE_PORT_ITEMS; i++) {
        struct weir_gate_item *item = weir_gate_client_item_at(client, i);

        if (item && item->gate == gate && atomic_load(&item->halted)) {
            item->stop_late = false;
            weir_gate_resume_locked(item, &everywhere);
        }
    }
}

bool weir_gate_detach(struct weir_gate *gate)
{
    pthread_mutex_lock(&gate->lock);
    struct weir_gate_client *client = weir_gate_client_of(gate);
    if (!client) {
        pthread_mutex_unlock(&gate->lock);
        return false;
    }
    for (struct weir_gate_queue *q = gate->queues; q; q = q->next) {
        struct weir_gate_item *item = q->waiting;

        q->client = NULL;
        if (item) {
            q->waiting = NULL;
            atomic_store_explicit(&item->granted, true, memory_order_release); /* G1 */
            weir_gate_slot_changed(item->slot);
        }
    }
    let_go_locked(gate, client);
    atomic_store_explicit(&gate->client, NULL, memory_order_release);
    weir_gate_port_call(client->port); /* wakes a watcher that sleeps on the port */
    weir_gate_unlock(gate);
    weir_log_warn("sched: the gate process is lost, work passes undecided until the next comes "
                  "device=%u",
                  gate->device);
    return true;
}

void weir_gate_take_orders_locked(struct weir_gate *gate)
{
    struct weir_gate_client *client = weir_gate_client_of(gate);
    struct weir_gate_order order;

    while (client && weir_gate_port_order(client->port, gate->device, &order)) {
        take_order_locked(gate, client, &order);
    }
}
