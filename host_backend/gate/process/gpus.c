/*
 * A GPU's scheduler, whose orders go to ports. This file also notes which tenants had work in the
 * last second: a worker makes kernels stoppable only if another tenant had.
 */
#include "host_backend/gate/process/served.h"

#include "base/log.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SMS_MAX      65536u
#define PREDICT_KEYS 16384u
#define CROWDED_NS   WEIR_NS_PER_S

/* ---------------------------------------------------------------- the scheduler's orders */

static void on_start(void *user, weir_sched_id id, void *item_user,
                     const struct weir_sched_place *place, enum weir_sched_level level)
{
    struct served_item *item = item_user;
    struct weir_gate_slot *slot = item->queue->slot;
    const struct served_gpu *gpu = user;

    slot->cause = (uint32_t)weir_sched_item_cause(gpu->sched, id);
    slot->place = *place;
    slot->level = (uint32_t)level;
    slot->beside_bytes = place->block_limit != 0
                             ? served_beside_bytes(item, place->block_limit, weir_clock_now_ns())
                             : 0;
    if (item->queue->waiting == item) {
        item->queue->waiting = NULL;
    }
    /* P4: publishes what the slot says about the item; meets the acquire in
     * weir_gate_is_granted(). */
    atomic_store_explicit(&slot->granted, item->sequence, memory_order_release);
    weir_gate_slot_changed(slot);
}

/* Announce a grant in advance: a thread needs 10 to 60 us to wake up, and the copy engine would
 * idle. */
static void on_soon(void *user, weir_sched_id id, void *item_user)
{
    const struct served_gpu *gpu = user;
    struct served_item *item = item_user;

    (void)id;
    if (item->queue->waiting == item && gpu->spin && weir_spin_host_may(gpu->process->spin)) {
        atomic_store(&item->queue->slot->soon, item->sequence);
        weir_gate_slot_changed(item->queue->slot);
    }
}

/* Send an order. If the worker does not read its orders, its runs continue. */
static bool send(struct served_item *item, enum weir_gate_order_kind kind,
                 const struct weir_sched_place *place, uint64_t lease_ns)
{
    struct served_queue *queue = item->queue;
    const struct weir_gate_order order = {.kind = kind,
                                          .item = item->index,
                                          .generation = item->generation,
                                          .place = place ? *place : (struct weir_sched_place){0},
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
    /* if the order is lost, the lease of the run still ends it */
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

static void on_timer(void *user, uint64_t at_ns)
{
    ((struct served_gpu *)user)->timer_ns = at_ns;
}

static void on_log(void *user, const char *line)
{
    (void)user;
    weir_log_warn("sched: %s", line);
}

/* ---------------------------------------------------------------- which tenants contend */

static void crowd(struct served_gpu *gpu, unsigned which, uint64_t now_ns)
{
    gpu->crowded_until_ns[which] = now_ns + CROWDED_NS;
}

static enum weir_priority priority_of(const struct served_gpu *gpu,
                                      const struct served_member *member)
{
    return gpu->process->tenants[member - gpu->members].params.priority;
}

/* Note for two contending tenants the one of the lower class, or both if they have one class. */
static void note_company(struct served_gpu *gpu, struct served_member *member, uint64_t now_ns)
{
    enum weir_priority own = priority_of(gpu, member);

    member->seen_ns = now_ns;
    for (int other = 0; other < WEIR_PRIORITY_COUNT; other++) {
        const struct served_member *last =
            gpu->last_member[weir_gate_company((enum weir_priority)other)];

        if (last && last != member && now_ns - last->seen_ns < CROWDED_NS) {
            crowd(gpu, weir_gate_company((int)own < other ? own : (enum weir_priority)other),
                  now_ns);
        }
    }
    gpu->last_member[weir_gate_company(own)] = member;
}

static void note_peers(struct served_gpu *gpu, struct served_member *member, uint64_t now_ns)
{
    unsigned peers = weir_gate_peers(gpu->of->levels, priority_of(gpu, member));

    if (gpu->last_member[peers] != member && gpu->last_member[peers]) {
        crowd(gpu, peers, now_ns);
    }
    gpu->last_member[peers] = member;
}

static uint32_t crowded_at(const struct served_gpu *gpu, uint64_t now_ns)
{
    uint32_t bits = 0;

    for (uint32_t i = 0; i < WEIR_GATE_CROWDS; i++) {
        bits |= (uint32_t)(now_ns < gpu->crowded_until_ns[i]) << i;
    }
    return bits;
}

/* ---------------------------------------------------------------- news */

/* A tenant's slot + 1; 0: it has no slot. */
static uint32_t slot_of(const struct served_gpu *gpu, weir_sched_id tenant)
{
    for (uint32_t i = 0; tenant != 0 && i < WEIR_CONFIG_TENANTS_MAX; i++) {
        if (gpu->members[i].id == tenant) {
            return i + 1;
        }
    }
    return 0;
}

/* The workers of the tenant that was alone are woken after this round, to report undecided work. */
void served_gpu_comes(struct served_gpu *gpu, struct served_member *member, uint64_t now_ns)
{
    weir_sched_id alone = atomic_load(&gpu->shared->alone);

    note_peers(gpu, member, now_ns);
    note_company(gpu, member, now_ns);
    if (alone != 0 && alone != member->id) {
        (void)weir_sched_close(gpu->sched);
        note_company(gpu, &gpu->members[slot_of(gpu, alone) - 1], now_ns);
    }
}

void served_gpu_tell(const struct served_gpu *gpu, struct served_port *port, uint32_t device)
{
    struct weir_gate_news *news = &port->port->news[device];

    atomic_store_explicit(&news->crowded, gpu->crowded, memory_order_relaxed);
    /* Release like P4: a worker that reads its tenant's slot here has seen all earlier writes. */
    atomic_store_explicit(&news->alone, gpu->alone_slot, memory_order_release);
}

static bool has_queue_of(const struct served_port *port, const struct served_gpu *gpu,
                         uint32_t tenant)
{
    return WEIR_LINKED(q, port->queues, q->gpu == gpu && q->tenant == tenant) != NULL;
}

/* Wake the workers of a tenant that is no longer alone, since they must report its undecided
 * work. */
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
    uint32_t crowded = crowded_at(gpu, now_ns), was_slot = gpu->alone_slot;

    if (now_ns >= gpu->timer_ns) {
        gpu->timer_ns = UINT64_MAX;
        weir_sched_tick(gpu->sched, now_ns);
    }
    weir_sched_id alone = atomic_load(&gpu->shared->alone);
    if (alone == gpu->alone && crowded == gpu->crowded) {
        return;
    }
    if (alone != gpu->alone) {
        gpu->alone_slot = slot_of(gpu, alone);
    }
    gpu->alone = alone;
    gpu->crowded = crowded;
    tell_all(process, gpu, was_slot);
}

uint64_t served_gpu_next_ns(const struct served_gpu *gpu)
{
    uint64_t at_ns = gpu->timer_ns;

    for (uint32_t i = 0; i < WEIR_GATE_CROWDS; i++) {
        if ((gpu->crowded >> i & 1) != 0 && gpu->crowded_until_ns[i] < at_ns) {
            at_ns = gpu->crowded_until_ns[i];
        }
    }
    return at_ns;
}

/* ---------------------------------------------------------------- policies */

static void put_in_force(struct served_gpu *gpu, int kind, const struct weir_policy_ops *ops)
{
    uint64_t now_ns = weir_clock_now_ns();

    if (ops == gpu->policies.policy[kind]) {
        return; /* the scheduler keeps the policies that it has */
    }
    enum weir_status status = ops ? weir_sched_policy_set(gpu->sched, now_ns, ops)
                                  : weir_sched_policy_clear(gpu->sched, now_ns, kind);
    if (status != WEIR_OK) {
        weir_log_error("sched: policy not changed device=%u policy=%s why=\"%s\"", gpu->index,
                       ops ? ops->name : "none", weir_status_text(status));
        return;
    }
    gpu->policies.policy[kind] = ops;
    served_trace_policy(gpu, kind, ops ? ops->name : NULL);
}

void served_gpu_policies(struct served_gpu *gpu, const struct weir_policy_set *policies)
{
    for (int kind = 0; kind < WEIR_POLICY_KIND_COUNT; kind++) {
        put_in_force(gpu, kind, policies->policy[kind]);
    }
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
    if (named(process, uuid)) {
        return;
    }
    if (process->n_named == WEIR_LINK_GPUS_MAX || gpu->sms == 0 || gpu->sms > SMS_MAX ||
        gpu->fill > WEIR_SCHED_FILL_ALL) {
        weir_log_error("gate: a GPU is not scheduled sms=%u gpus=%u", gpu->sms, process->n_named);
        return;
    }
    process->named[process->n_named++] = *gpu;
}

static enum weir_status make_sched(struct served_gpu *gpu)
{
    const struct weir_sched_env env = {.user = gpu,
                                       .start = on_start,
                                       .soon = on_soon,
                                       .stop = on_stop,
                                       .resume = on_resume,
                                       .resize = on_resize,
                                       .timer = on_timer,
                                       .trace = served_trace_record,
                                       .log = on_log};
    const struct weir_link_gpu *of = gpu->of;
    struct weir_sched_config *config = &gpu->config;

    weir_scheduler_config(&gpu->process->settings, of->sms, (enum weir_sched_fill)of->fill, config);
    config->predict = gpu->predict;
    config->above = of->above && config->small_sms != 0;
    config->part_step = of->parts ? weir_sched_part_step(of->sms) : 0;
    config->room_sms = config->above != 0 && of->parts ? weir_sched_room_sms(of->sms) : 0;
    return weir_sched_create(config, &env, &gpu->sched);
}

static struct served_gpu *make(struct weir_gate_process *process, const struct weir_link_gpu *of)
{
    struct served_gpu *gpu = &process->gpus[process->n_gpus];

    gpu->process = process;
    gpu->of = of;
    gpu->index = process->n_gpus;
    gpu->timer_ns = UINT64_MAX;
    gpu->spin = of->real && sysconf(_SC_NPROCESSORS_ONLN) >= SERVED_MANY_CORES;
    memcpy(gpu->uuid, of->uuid, sizeof gpu->uuid);
    if (weir_predict_create(PREDICT_KEYS, &gpu->predict) != WEIR_OK || make_sched(gpu) != WEIR_OK) {
        weir_predict_destroy(gpu->predict);
        memset(gpu, 0, sizeof *gpu);
        return NULL;
    }
    served_gpu_policies(gpu, &process->policies);
    weir_sched_allow_alone(gpu->sched, true);
    gpu->shared = weir_sched_shared(gpu->sched);
    process->spans.n_devices = ++process->n_gpus;
    served_times_open(process, gpu);
    process->real |= of->real;
    weir_log_info("gate: a GPU gpu=%u sms=%u", gpu->index, of->sms);
    return gpu;
}

static void log_counts(const struct served_gpu *gpu)
{
    struct weir_predict_stats predict;
    struct weir_sched_counts c;

    weir_sched_count(gpu->sched, &c);
    weir_predict_stats(gpu->predict, &predict);
    weir_log_info("sched: device=%u arrivals=%llu finishes=%llu withdrawals=%llu switches=%llu "
                  "stops=%llu resumes=%llu rescues=%llu nonsense=%llu left=%u keys=%u "
                  "kernel_error=%.3f",
                  gpu->index, (unsigned long long)c.arrivals, (unsigned long long)c.finishes,
                  (unsigned long long)c.withdrawals, (unsigned long long)c.switches,
                  (unsigned long long)c.stops, (unsigned long long)c.resumes,
                  (unsigned long long)c.rescues, (unsigned long long)c.nonsense, c.items,
                  predict.keys, predict.kernels.mean);
}

void served_gpu_destroy(struct served_gpu *gpu)
{
    log_counts(gpu);
    weir_sched_destroy(gpu->sched);
    weir_predict_destroy(gpu->predict);
}

struct served_gpu *served_gpu_of(struct weir_gate_process *process,
                                 const struct weir_gate_request *request)
{
    const uint64_t uuid[2] = {request->key, request->size};
    const struct weir_link_gpu *of = named(process, uuid);

    for (uint32_t i = 0; of && i < process->n_gpus; i++) {
        if (process->gpus[i].of == of) {
            return &process->gpus[i];
        }
    }
    return of ? make(process, of) : NULL;
}
