/* A worker's gates: see gates.h. */
#include "host_backend/worker/device/gates.h"

#include "base/log.h"
#include "host_backend/worker/device/device.h"
#include "host_backend/worker/state/tenant.h"
#include "host_backend/worker/state/worker.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LEVELS_MANY 6
#define LEVELS_MIN  3 /* at least one level of stream priority for each class */

/* ---------------------------------------------------------------- callbacks of the gate */

static void thread_begins(void *user)
{
    const struct weir_device_gate *g = user;

    (void)g->worker->platform.driver.cuCtxSetCurrent(
        g->worker->platform.devices[g->device].context);
}

static bool event_reached(void *user, void *event)
{
    return weir_mark_event_reached(((struct weir_device_gate *)user)->marks, event);
}

static void event_put(void *user, void *event)
{
    weir_mark_event_put(((struct weir_device_gate *)user)->marks, event);
}

static void deaf(void *user)
{
    const struct weir_link_message message = {.type = WEIR_LINK_GATE_DEAF};

    weir_worker_tell(((struct weir_device_gate *)user)->worker, &message);
}

/* ---------------------------------------------------------------- begin */

uint32_t weir_worker_sms(const struct weir_worker *worker, uint32_t device)
{
    const struct weir_link_sms *told = &worker->config.sms;
    const struct weir_device_attribute *a = weir_device_attribute_get(
        &worker->platform.devices[device].about, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);

    if (device < told->n && told->sms[device] != 0) {
        return told->sms[device]; /* the driver reports the SMs of its context's share */
    }
    return a && a->value > 0 ? (uint32_t)a->value : 1;
}

static int levels_on(const struct weir_device_gate *g)
{
    return g->priority_least - g->priority_greatest + 1;
}

static bool has_levels(const struct weir_device_gate *g)
{
    return g->worker->platform.real && levels_on(g) >= LEVELS_MIN;
}

/* Is there a level for WEIR_SCHED_ABOVE, and does anything use it? */
static bool has_above(const struct weir_device_gate *g)
{
    return has_levels(g) && levels_on(g) >= LEVELS_MANY && g->fill == WEIR_SCHED_FILL_ALL;
}

static void find_levels(struct weir_device_gate *g, struct weir_worker *worker, uint32_t device)
{
    g->worker = worker;
    g->device = device;
    g->priority_least = worker->platform.devices[device].about.stream_priority_least;
    g->priority_greatest = worker->platform.devices[device].about.stream_priority_greatest;
    g->fill = has_levels(g) ? worker->config.scheduler.fill : WEIR_SCHED_FILL_NONE;
}

/* The step of parts into which a context of the whole device can be divided. 0: it cannot. */
static uint32_t part_step(const struct weir_worker *worker, uint32_t device)
{
    uint32_t step = weir_sched_part_step(weir_worker_sms(worker, device));

    return step != 0 && weir_part_is_possible(&worker->platform.driver,
                                              worker->platform.devices[device].cu, step)
               ? step
               : 0;
}

void weir_gates_describe(struct weir_worker *worker, struct weir_link_reads *ret_gpus)
{
    *ret_gpus = (struct weir_link_reads){.n = worker->platform.n_devices};
    for (uint32_t i = 0; i < ret_gpus->n; i++) {
        struct weir_link_gpu *gpu = &ret_gpus->gpu[i];
        struct weir_device_gate g = {0};

        find_levels(&g, worker, i);
        memcpy(gpu->uuid, worker->platform.devices[i].about.uuid, sizeof gpu->uuid);
        gpu->sms = weir_worker_sms(worker, i);
        gpu->fill = g.fill;
        gpu->levels = has_levels(&g);
        gpu->above = has_above(&g);
        gpu->parts = part_step(worker, i) != 0;
        gpu->real = worker->platform.real;
        gpu->contexts = weir_platform_n_contexts(&worker->platform, i);
    }
}

static void destroy(struct weir_device_gate *g)
{
    weir_gate_destroy(g->gate);
    weir_marks_destroy(g->marks);
    weir_parts_destroy(g->parts);
    pthread_mutex_destroy(&g->lock);
    free(g);
}

/* Make what a device needs beside its gate. */
static enum weir_status create(struct weir_worker *worker, uint32_t device,
                               const struct weir_gate_ops *runs, size_t item_room,
                               struct weir_device_gate **ret_gate)
{
    struct weir_device_gate *g = calloc(1, sizeof *g);

    WEIR_FAIL_IF(!g, WEIR_ERR_NO_MEMORY);
    pthread_mutex_init(&g->lock, NULL);
    g->item_room = item_room;
    g->ops = *runs;
    g->ops.thread_begins = thread_begins;
    g->ops.event_reached = event_reached;
    g->ops.event_put = event_put;
    g->ops.deaf = deaf;
    find_levels(g, worker, device);
    enum weir_status status = weir_marks_create(
        &worker->platform.driver, worker->platform.devices[device].write_value_ok, &g->marks);
    if (status != WEIR_OK) {
        destroy(g);
        return status;
    }
    weir_marks_prepare(g->marks);
    g->part_step = part_step(worker, device);
    if (worker->platform.devices[device].share_pct == 0 && g->part_step != 0) {
        g->parts = weir_parts_create(&worker->platform.driver, worker->platform.devices[device].cu);
    }
    *ret_gate = g;
    return WEIR_OK;
}

/* Make the gate itself. */
static enum weir_status begin(struct weir_device_gate *g)
{
    struct weir_worker *worker = g->worker;
    struct weir_gate_params params = {.device = g->device,
                                      .sms = weir_worker_sms(worker, g->device),
                                      .share_pct = worker->platform.devices[g->device].share_pct,
                                      .levels = has_levels(g),
                                      .real = worker->platform.real,
                                      .fill = g->fill,
                                      .settings = &worker->config.scheduler,
                                      .spin = worker->platform.spin.page,
                                      .uuid = worker->platform.devices[g->device].about.uuid,
                                      .item_room = g->item_room,
                                      .ops = &g->ops,
                                      .user = g};

    return weir_gate_create(&params, &g->gate);
}

enum weir_status weir_gates_create(struct weir_worker *worker, const struct weir_gate_ops *runs,
                                   size_t item_room)
{
    struct weir_device_gate *g;

    if (strcmp(worker->config.scheduler.policy, "off") == 0) {
        return WEIR_OK;
    }
    WEIR_TRY(create(worker, 0, runs, item_room, &g));
    enum weir_status status = begin(g);
    if (status != WEIR_OK) {
        destroy(g);
        return status;
    }
    worker->gates[0] = g;
    return WEIR_OK;
}

enum weir_status weir_gates_add(struct weir_worker *worker, uint32_t device)
{
    struct weir_device_gate *first = worker->gates[0], *g;

    if (!first) { /* nothing is scheduled, or the first device is being opened */
        return WEIR_OK;
    }
    WEIR_TRY(create(worker, device, &first->ops, first->item_room, &g));
    pthread_mutex_lock(&first->lock);
    enum weir_status status = begin(g);
    if (status == WEIR_OK && first->attached) {
        weir_gate_attach(g->gate, first->client);
    }
    if (status == WEIR_OK) {
        worker->gates[device] = g;
    }
    pthread_mutex_unlock(&first->lock);
    if (status != WEIR_OK) {
        destroy(g);
    }
    return status;
}

void weir_gates_destroy(struct weir_worker *worker)
{
    struct weir_gate_client *client = worker->gates[0] ? worker->gates[0]->client : NULL;

    for (uint32_t i = 0; i < worker->platform.n_devices; i++) {
        if (worker->gates[i]) {
            destroy(worker->gates[i]);
            worker->gates[i] = NULL;
        }
    }
    weir_gate_client_destroy(client);
}

/* ---------------------------------------------------------------- all gates of the worker */

/* Find the next gate, from a device on; the first gate's lock keeps others from making or attaching
 * one. NULL: there are no more. */
static struct weir_device_gate *next_locked(struct weir_worker *worker, uint32_t device)
{
    while (device < worker->platform.n_devices && !worker->gates[device]) {
        device++;
    }
    return device < worker->platform.n_devices ? worker->gates[device] : NULL;
}

/* Get the first gate, with the lock of all. NULL: there is no scheduler, and nothing to unlock. */
static struct weir_device_gate *lock_all(struct weir_worker *worker)
{
    struct weir_device_gate *first = worker->gates[0];

    if (first) {
        pthread_mutex_lock(&first->lock);
    }
    return first;
}

static void unlock_all(struct weir_device_gate *first)
{
    if (first) {
        pthread_mutex_unlock(&first->lock);
    }
}

void weir_gates_attach(struct weir_worker *worker, int port_fd, int bell_fd)
{
    struct weir_device_gate *first = worker->gates[0];
    struct weir_gate_client *client;
    enum weir_status status = WEIR_ERR_INVALID;

    weir_gates_detach(worker);
    if (first) {
        status = weir_gate_client_create(port_fd, bell_fd, first->client, &client);
    }
    if (status != WEIR_OK) {
        weir_log_error("sched: no port to the gate process why=\"%s\"", weir_status_text(status));
        close(bell_fd);
        return;
    }
    (void)lock_all(worker);
    first->client = client;
    first->attached = true;
    for (struct weir_device_gate *g = first; g; g = next_locked(worker, g->device + 1)) {
        weir_gate_attach(g->gate, client);
    }
    unlock_all(first);
}

void weir_gates_detach(struct weir_worker *worker)
{
    struct weir_device_gate *first = lock_all(worker);

    for (struct weir_device_gate *g = first; g; g = next_locked(worker, g->device + 1)) {
        g->attached = false;
        weir_gate_detach(g->gate);
    }
    unlock_all(first);
}

/* ---------------------------------------------------------------- tenants */

void weir_gates_tenant_gone(struct weir_tenant *tenant)
{
    struct weir_device_gate *first = lock_all(tenant->worker), *g;

    for (g = first; g; g = next_locked(tenant->worker, g->device + 1)) {
        weir_gate_tenant_remove(g->gate, tenant->index);
    }
    unlock_all(first);
}

void weir_gates_usage(struct weir_tenant *tenant, struct weir_status_tenant *row)
{
    struct weir_device_gate *first = lock_all(tenant->worker), *g;

    for (g = first; g; g = next_locked(tenant->worker, g->device + 1)) {
        weir_gate_tenant_usage(g->gate, tenant->index, row);
    }
    row->scheduled = first != NULL;
    unlock_all(first);
}

/* ---------------------------------------------------------------- stream priorities */

/* Levels of a class, from the lowest up; the guest's priority chooses among them. */
struct levels {
    int low, high;
};

/*
 * How the classes share the device's levels. With six, as on NVIDIA's GPUs (0 to -5 in CUDA):
 *
 *     0 work of fillers (WEIR_SCHED_BELOW) 1 low 2 normal 3 normal, above: small graphs whose
 *     tenants are behind, and work of tenants that were away
 *        (WEIR_SCHED_ABOVE). Without that level, or while the tenant is alone: work for which the
 *        guest asks a high priority
 *     4  high
 *     5  control of runs
 *
 * So while the scheduler decides, no guest gets ahead of others of its class by asking. A device
 * with few levels gives each class one.
 */
static struct levels levels_of(int levels, int priority)
{
    bool many = levels >= LEVELS_MANY;

    if (levels < LEVELS_MIN) {
        return priority == WEIR_PRIORITY_HIGH ? (struct levels){levels - 1, levels - 1}
                                              : (struct levels){0, 0};
    }
    switch (priority) {
    case WEIR_PRIORITY_LOW:
        return many ? (struct levels){1, 1} : (struct levels){0, 0};
    case WEIR_PRIORITY_HIGH:
        return many ? (struct levels){levels - 2, levels - 2} : (struct levels){2, levels - 1};
    default:
        return many ? (struct levels){2, levels - 3} : (struct levels){1, 1};
    }
}

/* Clamp a distance above the least priority to the levels of a class. */
static int within(const struct levels *of, int above)
{
    return above < 0 ? 0 : above > of->high - of->low ? of->high - of->low : above;
}

int weir_device_gate_priority(const struct weir_device_gate *gate, enum weir_priority priority,
                              enum weir_sched_level level, bool decided, int asked)
{
    struct levels of = levels_of(levels_on(gate), priority);

    if (level == WEIR_SCHED_BELOW || level == WEIR_SCHED_BELOW_EQUAL) {
        return gate->priority_least;
    }
    if (decided && priority == WEIR_PRIORITY_NORMAL && has_above(gate)) {
        return gate->priority_least - (level == WEIR_SCHED_ABOVE ? of.high : of.low);
    }
    return gate->priority_least - (of.low + within(&of, gate->priority_least - asked));
}

int weir_device_gate_asked(const struct weir_device_gate *gate, enum weir_priority priority,
                           int native)
{
    struct levels of = levels_of(levels_on(gate), priority);

    return gate->priority_least - within(&of, gate->priority_least - native - of.low);
}

bool weir_device_gate_has_levels(const struct weir_device_gate *gate)
{
    return has_levels(gate);
}
