/* A GPU's scheduler in the gate process: what it orders goes to ports. */
#include "host_backend/gate/process/served.h"

#include "base/log.h"
#include <string.h>

#define SMS_MAX 65536u

/* ---------------------------------------------------------------- what the scheduler orders */

static void on_start(void *user, weir_sched_id id, void *item_user,
                     const struct weir_sched_place *place, enum weir_sched_level level)
{
    struct served_item *item = item_user;
    struct weir_gate_slot *slot = item->queue->slot;

    (void)user;
    (void)id;
    slot->place = *place;
    slot->level = (uint32_t)level;
    if (item->queue->waiting == item) {
        item->queue->waiting = NULL;
    }
    /* P4: publishes what the slot says about the item; meets the acquire in
     * weir_gate_is_granted(). */
    atomic_store_explicit(&slot->granted, item->sequence, memory_order_release);
    weir_gate_slot_changed(slot);
}

static void on_soon(void *user, weir_sched_id id, void *item_user)
{
    struct served_item *item = item_user;

    (void)id;
    if (item->queue->waiting == item && weir_gate_may_spin(user)) {
        atomic_store(&item->queue->slot->soon, item->sequence);
        weir_gate_slot_changed(item->queue->slot);
    }
}

/* A worker that does not read its orders does not get more: what it has goes on. */
static bool send(struct served_item *item, enum weir_gate_order_kind kind,
                 const struct weir_sched_place *place, uint64_t lease_ns)
{
    struct served_queue *queue = item->queue;
    const struct weir_gate_order order = {.kind = kind,
                                          .item = item->index,
                                          .generation = item->generation,
                                          .place =
                                              place != NULL ? *place : (struct weir_sched_place){0},
                                          .lease_ns = lease_ns};
    bool sent = weir_gate_port_send(queue->port->port, queue->device, &order);

    queue->port->has_orders = true;
    if (!sent && !queue->port->told_unread) {
        queue->port->told_unread = true;
        weir_log_warn("gate: a worker does not read its orders port=%u", queue->port->id);
    }
    return sent;
}

static void on_stop(void *user, weir_sched_id id, void *item_user, uint64_t lease_ns)
{
    (void)user;
    (void)id;
    /* One that was not sent is like one that the worker does not heed: the lease ends it. */
    (void)send(item_user, WEIR_GATE_ORDER_STOP, NULL, lease_ns);
}

static void on_resume(void *user, weir_sched_id id, void *item_user,
                      const struct weir_sched_place *place)
{
    (void)user;
    (void)id;
    (void)send(item_user, WEIR_GATE_ORDER_RESUME, place, 0);
}

static void on_resize(void *user, weir_sched_id id, void *item_user,
                      const struct weir_sched_place *place)
{
    (void)user;
    (void)id;
    (void)send(item_user, WEIR_GATE_ORDER_RESIZE, place, 0);
}

void served_env_init(struct weir_gate *gate, struct weir_sched_env *ret_env)
{
    weir_gate_env_init(gate, ret_env);
    ret_env->start = on_start;
    ret_env->soon = on_soon;
    ret_env->stop = on_stop;
    ret_env->resume = on_resume;
    ret_env->resize = on_resize;
}

/* ---------------------------------------------------------------- news */

static uint32_t slot_of(const struct weir_gate *gate, weir_sched_id tenant)
{
    for (uint32_t i = 0; tenant != 0 && i < WEIR_CONFIG_TENANTS_MAX; i++) {
        if (gate->members[i].id == tenant) {
            return i + 1;
        }
    }
    return 0;
}

void served_gpu_tell(const struct served_gpu *gpu, struct served_port *port, uint32_t device)
{
    struct weir_gate_news *news = &port->port->news[device];

    atomic_store_explicit(&news->crowded, gpu->crowded, memory_order_relaxed);
    atomic_store_explicit(&news->worth_stopping_ns, gpu->worth_stopping_ns, memory_order_relaxed);
    /* As P4: who reads its own tenant's slot here has seen all before it. */
    atomic_store_explicit(&news->alone, gpu->alone_slot, memory_order_release);
}

static bool has_queue_of(const struct served_port *port, const struct served_gpu *gpu,
                         uint32_t tenant)
{
    for (const struct served_queue *q = port->queues; q != NULL; q = q->next) {
        if (q->gpu == gpu && q->tenant == tenant) {
            return true;
        }
    }
    return false;
}

/* A tenant that is no longer alone is to report what has passed: its workers are called. */
static void tell_all(struct weir_gate_process *process, const struct served_gpu *gpu,
                     uint32_t was_alone_slot)
{
    bool ended = was_alone_slot != 0 && was_alone_slot != gpu->alone_slot;

    for (uint32_t i = 0; i < process->n_ports; i++) {
        struct served_port *port = process->ports[i];

        for (uint32_t d = 0; d < WEIR_GATE_PORT_DEVICES; d++) {
            if (port->gpu[d] == gpu) {
                served_gpu_tell(gpu, port, d);
            }
        }
        port->has_orders |= ended && has_queue_of(port, gpu, was_alone_slot - 1);
    }
}

void served_gpu_tick(struct weir_gate_process *process, struct served_gpu *gpu, uint64_t now_ns)
{
    struct weir_gate *gate = gpu->gate;
    uint64_t worth_ns = atomic_load(&gate->worth_stopping_ns);
    uint32_t crowded = 0, was_slot = gpu->alone_slot;
    weir_sched_id alone;

    pthread_mutex_lock(&gate->lock);
    weir_gate_tick_locked(gate, now_ns);
    alone = atomic_load(&gate->shared->alone);
    for (uint32_t i = 0; i < WEIR_GATE_CROWDS; i++) {
        crowded |= (uint32_t)atomic_load(&gate->crowded[i]) << i;
    }
    pthread_mutex_unlock(&gate->lock);
    if (alone == gpu->alone && crowded == gpu->crowded && worth_ns == gpu->worth_stopping_ns) {
        return;
    }
    if (alone != gpu->alone) {
        gpu->alone_slot = slot_of(gate, alone);
    }
    gpu->alone = alone;
    gpu->crowded = crowded;
    gpu->worth_stopping_ns = worth_ns;
    tell_all(process, gpu, was_slot);
}

/* ---------------------------------------------------------------- GPUs */

static bool is_called(const struct weir_link_gpu *gpu, const uint64_t uuid[2])
{
    return memcmp(gpu->uuid, uuid, sizeof gpu->uuid) == 0;
}

static const struct weir_link_gpu *named(const struct weir_gate_process *process,
                                         const uint64_t uuid[2])
{
    for (uint32_t i = 0; i < process->n_named; i++) {
        if (is_called(&process->named[i], uuid)) {
            return &process->named[i];
        }
    }
    return NULL;
}

void weir_gate_process_gpu(struct weir_gate_process *process, const struct weir_link_gpu *gpu)
{
    uint64_t uuid[2];

    memcpy(uuid, gpu->uuid, sizeof uuid);
    if (named(process, uuid) != NULL) {
        return;
    }
    if (process->n_named == WEIR_LINK_GPUS_MAX || gpu->sms == 0 || gpu->sms > SMS_MAX ||
        gpu->fill > WEIR_SCHED_FILL_ALL) {
        weir_log_error("gate: a GPU is not scheduled sms=%u gpus=%u", gpu->sms, process->n_named);
        return;
    }
    process->named[process->n_named++] = *gpu;
}

static struct served_gpu *make(struct weir_gate_process *process, const struct weir_link_gpu *of)
{
    static const struct weir_gate_ops no_ops;
    struct served_gpu *gpu = &process->gpus[process->n_gpus];
    struct weir_gate_params params = {.device = process->n_gpus,
                                      .sms = of->sms,
                                      .levels = of->levels,
                                      .above = of->above,
                                      .part = of->part,
                                      .real = of->real,
                                      .fill = (enum weir_sched_fill)of->fill,
                                      .settings = &process->settings,
                                      .policies = &process->policies,
                                      .spin = process->spin,
                                      .times_dir = "none", /* times.c */
                                      .uuid = of->uuid,
                                      .ops = &no_ops};

    *gpu = (struct served_gpu){.of = of};
    memcpy(gpu->uuid, of->uuid, sizeof gpu->uuid);
    if (weir_gate_create_served(&params, served_env_init, &gpu->gate) != WEIR_OK) {
        return NULL;
    }
    process->n_gpus++;
    served_times_open(process, gpu);
    process->real |= params.real;
    weir_log_info("gate: a GPU gpu=%u sms=%u", params.device, params.sms);
    return gpu;
}

struct served_gpu *served_gpu_of(struct weir_gate_process *process,
                                 const struct weir_gate_request *request)
{
    const uint64_t uuid[2] = {request->key, request->size};
    const struct weir_link_gpu *of = named(process, uuid);

    for (uint32_t i = 0; of != NULL && i < process->n_gpus; i++) {
        if (process->gpus[i].of == of) {
            return &process->gpus[i];
        }
    }
    return of != NULL ? make(process, of) : NULL;
}
