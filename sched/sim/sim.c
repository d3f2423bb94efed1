/*
 * The simulator's loop: schedulers, models of GPUs, and a load between them.
 *
 * The next time is that of a GPU's next event, the next arrival (a heap with at most one for each
 * queue, as each arrival follows from the one before it) or a scheduler's timer. At equal times
 * GPUs go first, then arrivals in the order of their items, then timers. The scheduler
 * gives orders during a call; the environment must only note them. The loop carries them out on the
 * GPU, in order, after the call has returned.
 *
 * The environment keeps leases: a stopped item that the scheduler has forgotten is resumed when its
 * lease ends, and the scheduler gets a report.
 */
#include "base/grow.h"
#include "sched/sim/sim_private.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NEVER UINT64_MAX

/* Threads of a block, which traces lack: as in the kernels whose ticket form was measured. */
#define BLOCK_THREADS 256u

/* So many events in a row at one time mean that the scheduler is in a loop. */
#define STANDSTILL_MAX 10000000u

/* Fillers rank below the lowest class, and items above rank between their class and the next one,
 * as live (host_backend/worker/device/gates.c). */
#define RANK_OF_FILLERS 0u
#define RANK_OF_CLASSES 1u
#define RANKS_OF_CLASS  2u

/* ------------------------------------------------------------------ arrivals */

static bool comes_before(const struct arrival *a, const struct arrival *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->item < b->item;
}

static void heap_push(struct run *run, struct arrival arrival)
{
    uint32_t at = run->n_heap++;
    for (; at && comes_before(&arrival, &run->heap[(at - 1) / 2]); at = (at - 1) / 2) {
        run->heap[at] = run->heap[(at - 1) / 2];
    }
    run->heap[at] = arrival;
}

static struct arrival heap_pop(struct run *run)
{
    struct arrival top = run->heap[0];
    struct arrival last = run->heap[--run->n_heap];
    uint32_t at = 0;
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= run->n_heap) {
            break;
        }
        if (child + 1 < run->n_heap && comes_before(&run->heap[child + 1], &run->heap[child])) {
            child++;
        }
        if (!comes_before(&run->heap[child], &last)) {
            break;
        }
        run->heap[at] = run->heap[child];
        at = child;
    }
    run->heap[at] = last;
    return top;
}

/* Let the next item of a queue arrive, if it waited for this event. */
static void call_next(struct run *run, uint32_t item, enum weir_sim_after what)
{
    uint32_t next = run->load->items[item].next;
    if (next == WEIR_SIM_NONE || run->load->items[next].after != what) {
        return;
    }
    uint64_t delay_ns = run->load->items[next].delay_ns;
    uint64_t at_ns = what == WEIR_SIM_AT ? delay_ns : run->now_ns + delay_ns;
    heap_push(run, (struct arrival){at_ns > run->now_ns ? at_ns : run->now_ns, next});
}

/* ------------------------------------------------------------------ spans and shares */

static void tell_span(struct run *run, uint32_t i, uint64_t from_ns, uint64_t to_ns, bool finished)
{
    const struct weir_sim_item *item = &run->load->items[i];
    struct fate *fate = &run->fates[i];
    if (run->params->watch.span) {
        const struct weir_sim_span span = {
            .item = i,
            .tenant = item->tenant,
            .queue = item->queue,
            .class = item->params.class,
            .from_ns = from_ns,
            .to_ns = WEIR_MAX(to_ns, from_ns),
            .waited_ns = fate->has_waited ? 0 : run->result->waited_ns[i],
            .has_finished = finished,
        };
        run->params->watch.span(run->params->watch.user, &span);
    }
    fate->has_waited = true;
}

/* Add buckets up to until_ns, if the run has buckets: its length is not known in advance. */
static enum weir_status grow_buckets(struct run *run, uint64_t until_ns)
{
    struct weir_sim_result *result = run->result;
    if (!run->params->bucket_ns || !result->n_tenants) {
        return WEIR_OK;
    }
    uint64_t wanted = until_ns / run->params->bucket_ns + 1;
    if (wanted <= result->n_buckets) {
        return WEIR_OK;
    }
    WEIR_FAIL_IF(wanted > WEIR_SIM_BUCKETS_MAX / result->n_tenants, WEIR_ERR_TOO_BIG);
    size_t row = result->n_tenants;
    double *bigger = realloc(result->bucket_sm_ns, (size_t)wanted * row * sizeof *bigger);
    WEIR_FAIL_IF(!bigger, WEIR_ERR_NO_MEMORY);
    memset(bigger + result->n_buckets * row, 0,
           ((size_t)wanted - result->n_buckets) * row * sizeof *bigger);
    result->bucket_sm_ns = bigger;
    result->n_buckets = (uint32_t)wanted;
    return WEIR_OK;
}

/* ------------------------------------------------------------------ the device */

static bool is_copy(enum weir_sched_class class)
{
    return class == WEIR_SCHED_H2D || class == WEIR_SCHED_D2H;
}

/* Recordings of a host have domains of queues; generated loads have contexts of tenants. */
static uint32_t context_of(const struct run *run, uint32_t queue)
{
    const struct weir_sim_queue *q = &run->load->queues[queue];
    uint32_t of_tenant = run->load->tenants[q->tenant].context;
    return run->params->own_contexts ? q->tenant + 1 : of_tenant != 0 ? of_tenant : q->domain;
}

static struct weir_sim_work work_of(const struct run *run, uint32_t i)
{
    const struct weir_sim_item *item = &run->load->items[i];
    const struct weir_sim_tenant *tenant = &run->load->tenants[item->tenant];
    return (struct weir_sim_work){
        .engine = item->params.class == WEIR_SCHED_H2D   ? WEIR_SIM_H2D
                  : item->params.class == WEIR_SCHED_D2H ? WEIR_SIM_D2H
                                                         : WEIR_SIM_COMPUTE,
        .owner = item->tenant,
        .stream = item->queue,
        .rank = RANK_OF_CLASSES + RANKS_OF_CLASS * tenant->params.priority,
        .graph = item->params.class == WEIR_SCHED_GRAPH,
        .context = context_of(run, item->queue),
        .bytes = item->params.bytes,
        .sm_ns = item->sm_ns,
        .blocks = item->blocks,
        .blocks_per_sm = item->blocks_per_sm,
        .block_threads = BLOCK_THREADS,
        .one_shot = (item->params.flags & WEIR_SCHED_STOPPABLE) &&
                    !(item->params.flags & WEIR_SCHED_MOVABLE),
        .has_peers = !is_copy(item->params.class) && weir_sim_job_has(run->load, item->queue),
        .need = item->nature.need_ppm / 1e6,
        .memory = item->nature.memory_ppm / 1e6,
    };
}

/* Note the lease of a stopped item: at its end the item is resumed unless the scheduler did so. */
static enum weir_status lease_add(struct run *run, uint32_t item, uint64_t lease_ns)
{
    WEIR_FAIL_IF(!WEIR_GROW(run->leases, run->n_leases, run->cap_leases), WEIR_ERR_NO_MEMORY);
    run->leases[run->n_leases++] = item;
    run->fates[item].lease_ns = lease_ns < NEVER - run->now_ns ? run->now_ns + lease_ns : NEVER;
    return WEIR_OK;
}

static void lease_end(struct run *run, uint32_t item)
{
    for (uint32_t i = 0; i < run->n_leases; i++) {
        if (run->leases[i] == item) {
            run->leases[i] = run->leases[--run->n_leases];
        }
    }
    run->fates[item].lease_ns = NEVER;
}

static enum weir_status started(struct run *run, uint32_t item)
{
    struct weir_sim_tenant_result *tenant = &run->result->tenants[run->load->items[item].tenant];
    uint64_t waited_ns = run->now_ns - run->result->arrived_ns[item];
    run->fates[item].started_ns = run->now_ns;
    run->result->waited_ns[item] = waited_ns;
    tenant->waited_ns += waited_ns;
    tenant->waited_max_ns = WEIR_MAX(waited_ns, tenant->waited_max_ns);
    call_next(run, item, WEIR_SIM_AFTER_START);
    return WEIR_OK;
}

/* The time to wake the thread that waited for the grant: it spun for a while, and then slept. */
static uint64_t wake_ns(const struct run *run, uint32_t item)
{
    uint64_t waited_ns = run->now_ns - run->result->arrived_ns[item];
    return waited_ns > run->params->gpu.spin_ns ? run->params->gpu.wake_ns : 0;
}

static enum weir_status carry_out_one(struct run *run, const struct order *order)
{
    struct weir_sim_work work = work_of(run, order->item);
    struct weir_sim_gpu *gpu = weir_sim_device_of(run, order->item)->gpu;
    enum weir_status status;
    if (order->level == WEIR_SCHED_BELOW || order->level == WEIR_SCHED_BELOW_EQUAL) {
        work.rank = RANK_OF_FILLERS;
    }
    work.rank += order->level == WEIR_SCHED_ABOVE;
    switch (order->kind) {
    case ORDER_START:
        work.delay_ns = wake_ns(run, order->item);
        WEIR_TRY(weir_sim_gpu_start(gpu, run->now_ns, order->item, &work, &order->place));
        return started(run, order->item);
    case ORDER_STOP:
        status = weir_sim_gpu_stop(gpu, run->now_ns, order->item);
        run->result->tenants[work.owner].stops++;
        run->fates[order->item].was_stopped = true;
        return status == WEIR_OK ? lease_add(run, order->item, order->lease_ns) : status;
    case ORDER_RESUME:
        lease_end(run, order->item);
        return weir_sim_gpu_resume(gpu, run->now_ns, order->item, &order->place);
    case ORDER_RESIZE:
        return weir_sim_gpu_resize(gpu, run->now_ns, order->item, &order->place);
    }
    return WEIR_ERR_INTERNAL;
}

static enum weir_status carry_out(struct run *run)
{
    static const char *const words[] = {"start", "stop", "resume", "resize"};
    for (uint32_t i = 0; i < run->n_orders; i++) {
        enum weir_status status = carry_out_one(run, &run->orders[i]);
        if (status == WEIR_ERR_INVALID || status == WEIR_ERR_NOT_FOUND) {
            run->wrong = words[run->orders[i].kind];
            return WEIR_ERR_INTERNAL;
        }
        if (status != WEIR_OK) {
            return status;
        }
    }
    run->n_orders = 0;
    return run->is_short ? WEIR_ERR_NO_MEMORY : WEIR_OK;
}

/* ------------------------------------------------------------------ calls into the scheduler */

static uint64_t clock_of(const struct run *run)
{
    return run->params->clock ? run->params->clock() : 0;
}

/* Finish a call into a device's scheduler that began at began_ns of the real clock. */
static enum weir_status called(struct device *device, uint64_t began_ns, enum weir_status status)
{
    struct run *run = device->run;
    struct weir_sim_decisions *decisions = &run->result->decisions;
    uint64_t cost_ns = clock_of(run) - began_ns;
    decisions->calls++;
    if (run->params->watch.called) {
        run->params->watch.called(run->params->watch.user, run->now_ns, device->sched,
                                  device->tenants);
    }
    decisions->cost_ns += cost_ns;
    decisions->cost_max_ns = WEIR_MAX(cost_ns, decisions->cost_max_ns);
    if (status == WEIR_ERR_STALE || status == WEIR_ERR_INVALID) {
        run->wrong = "it refuses what became of an item";
        return WEIR_ERR_INTERNAL;
    }
    weir_sim_jobs_tick(run);
    return status == WEIR_OK ? carry_out(run) : status;
}

static enum weir_status arrive(struct run *run, uint32_t i)
{
    const struct weir_sim_item *item = &run->load->items[i];
    struct weir_sim_tenant_result *tenant = &run->result->tenants[item->tenant];
    struct weir_sched_item_params params = item->params;
    struct device *device = weir_sim_device_of(run, i);
    params.user = &run->fates[i];
    if (run->params->learns) {
        params.predicted_ns = 0;
    }
    run->result->arrived_ns[i] = run->now_ns;
    if (!tenant->items++) {
        tenant->first_ns = run->now_ns;
    }
    call_next(run, i, WEIR_SIM_AT);
    uint64_t began_ns = clock_of(run);
    return called(device, began_ns,
                  weir_sched_arrive(device->sched, run->now_ns, run->queues[item->queue], &params,
                                    &run->fates[i].id));
}

static void count_finish(struct run *run, uint32_t i, const struct weir_sim_event *event)
{
    const struct weir_sim_item *item = &run->load->items[i];
    struct weir_sim_tenant_result *tenant = &run->result->tenants[item->tenant];
    run->result->finished_ns[i] = run->now_ns;
    tenant->finished++;
    if (is_copy(item->params.class)) {
        int way = item->params.class == WEIR_SCHED_D2H;
        tenant->copy_ns[way] += event->ended_ns - event->begun_ns;
        tenant->copied_bytes[way] += item->params.bytes;
    } else {
        tenant->kernels++;
    }
    run->left--;
}

static enum weir_status take_event(struct run *run, const struct weir_sim_event *event)
{
    uint32_t i = (uint32_t)event->id;
    struct fate *fate = &run->fates[i];
    struct device *device = weir_sim_device_of(run, i);
    bool is_done = event->kind == WEIR_SIM_FINISHED;
    run->now_ns = event->at_ns;
    if (event->kind == WEIR_SIM_BEGUN) {
        weir_sim_job_begun(run, i);
        return WEIR_OK;
    }
    uint64_t from_ns = WEIR_MAX(fate->span_ns, event->begun_ns);
    tell_span(run, i, from_ns, event->ended_ns, is_done);
    if (!is_done) {
        fate->span_ns = event->ended_ns;
        uint64_t began_ns = clock_of(run);
        return called(device, began_ns,
                      weir_sched_stopped(device->sched, run->now_ns, fate->id, event->done_blocks));
    }
    if (fate->was_stopped) {
        lease_end(run, i);
    }
    count_finish(run, i, event);
    call_next(run, i, WEIR_SIM_AFTER_FINISH);
    uint64_t took_ns = fate->was_stopped ? 0 : event->ended_ns - event->begun_ns;
    uint64_t began_ns = clock_of(run);
    return called(device, began_ns,
                  weir_sched_finished(device->sched, run->now_ns, fate->id, took_ns));
}

static enum weir_status tick(struct device *device)
{
    const struct run *run = device->run;
    device->timer_ns = NEVER;
    uint64_t began_ns = clock_of(run);
    weir_sched_tick(device->sched, run->now_ns);
    return called(device, began_ns, WEIR_OK);
}

static enum weir_status lease_is_over(struct run *run, uint32_t item)
{
    const struct weir_sim_place anywhere = {0};
    struct device *device = weir_sim_device_of(run, item);
    lease_end(run, item);
    if (weir_sim_gpu_resume(device->gpu, run->now_ns, item, &anywhere) != WEIR_OK) {
        return WEIR_OK; /* the item has been resumed, or has ended, already */
    }
    uint64_t began_ns = clock_of(run);
    return called(device, began_ns,
                  weir_sched_running(device->sched, run->now_ns, run->fates[item].id, true));
}

static enum weir_status change(struct run *run)
{
    const struct weir_sim_change *c = &run->load->changes[run->next_change++];
    enum weir_status status = WEIR_OK;
    for (uint32_t g = 0; status == WEIR_OK && g < run->n_devices; g++) {
        struct device *device = &run->devices[g];
        struct weir_sched_tenant_params params = c->params;
        struct weir_sched_tenant_info info;
        weir_sched_id tenant = device->tenants[c->tenant];
        if (weir_sched_tenant_query(device->sched, tenant, &info) == WEIR_OK) {
            params.span = info.params.span; /* this one is the rule's */
            params.span_more = info.params.span_more;
        }
        uint64_t began_ns = clock_of(run);
        status = called(device, began_ns,
                        weir_sched_tenant_set(device->sched, run->now_ns, tenant, &params));
    }
    return status;
}

/* ------------------------------------------------------------------ the loop */

/* The stopped item whose lease ends first, or WEIR_SIM_NONE. */
static uint32_t first_lease(const struct run *run)
{
    uint32_t first = WEIR_SIM_NONE;
    for (uint32_t i = 0; i < run->n_leases; i++) {
        uint32_t item = run->leases[i];
        if (first == WEIR_SIM_NONE || run->fates[item].lease_ns < run->fates[first].lease_ns) {
            first = item;
        }
    }
    return first;
}

/* The device whose scheduler wants to be called first. */
static struct device *first_timer(const struct run *run)
{
    struct device *first = &run->devices[0];
    for (uint32_t g = 1; g < run->n_devices; g++) {
        first = run->devices[g].timer_ns < first->timer_ns ? &run->devices[g] : first;
    }
    return first;
}

/* Is there work that nothing will end? other_ns: when anything but a timer is due. */
static enum weir_status check_alive(struct run *run, uint64_t other_ns, uint64_t timer_ns)
{
    if (other_ns != NEVER) {
        run->busy_ns = run->now_ns;
    } else if (weir_sim_jobs_are_stuck(run, timer_ns)) {
        run->wrong = "jobs wait for each other";
        return WEIR_ERR_TIMED_OUT;
    } else if (timer_ns == NEVER) {
        run->wrong = "work is left and it waits for nothing";
        return WEIR_ERR_INTERNAL;
    }
    return WEIR_OK;
}

/* Handle all events of the next time that has any. */
static enum weir_status step(struct run *run, uint64_t until_ns, bool *ret_over)
{
    const struct weir_sim_load *load = run->load;
    struct weir_sim_event event;
    uint32_t lease = first_lease(run);
    uint64_t lease_ns = lease == WEIR_SIM_NONE ? NEVER : run->fates[lease].lease_ns;
    uint64_t change_ns =
        run->next_change < load->n_changes ? load->changes[run->next_change].at_ns : NEVER;
    uint64_t arrival_ns = run->n_heap ? run->heap[0].at_ns : NEVER;
    uint64_t gpu_ns = weir_sim_devices_next_ns(run);
    struct device *timer = first_timer(run);
    uint64_t timer_ns = WEIR_MIN(timer->timer_ns, run->spans.next_ns);
    uint64_t next_ns = WEIR_MIN(WEIR_MIN(lease_ns, change_ns), arrival_ns);
    enum weir_status status =
        run->left ? check_alive(run, WEIR_MIN(next_ns, gpu_ns), timer_ns) : WEIR_OK;
    next_ns = WEIR_MIN(next_ns, timer_ns);
    if (status != WEIR_OK || WEIR_MIN(next_ns, gpu_ns) > until_ns || !run->left) {
        *ret_over = true;
        return status;
    }
    uint64_t to_ns = WEIR_MIN(next_ns, until_ns);
    WEIR_TRY(grow_buckets(run, WEIR_MIN(to_ns, gpu_ns)));
    to_ns = WEIR_MIN(to_ns, WEIR_MAX(gpu_ns, run->now_ns));
    if (weir_sim_devices_advance(run, to_ns, &event)) {
        return take_event(run, &event);
    }
    run->now_ns = to_ns;
    if (change_ns <= to_ns) {
        return change(run);
    }
    if (arrival_ns <= to_ns) {
        return arrive(run, heap_pop(run).item);
    }
    if (lease_ns <= to_ns) {
        return lease_is_over(run, lease);
    }
    if (timer->timer_ns <= to_ns) {
        return tick(timer);
    }
    if (run->spans.next_ns <= to_ns) {
        weir_sim_jobs_tick(run);
    }
    return carry_out(run);
}

static enum weir_status loop(struct run *run)
{
    uint64_t until_ns = run->params->until_ns ? run->params->until_ns : NEVER - 1;
    uint32_t standstill = 0;
    bool is_over = false;
    while (!is_over) {
        uint64_t before_ns = run->now_ns;
        WEIR_TRY(step(run, until_ns, &is_over));
        standstill = run->now_ns == before_ns ? standstill + 1 : 0;
        if (standstill > STANDSTILL_MAX) {
            run->wrong = "time stands still";
            return WEIR_ERR_INTERNAL;
        }
    }
    return WEIR_OK;
}

/* When the run is cut, count the items that are still on the device. */
static enum weir_status close_run(struct run *run, uint64_t until_ns)
{
    struct weir_sim_event event;
    struct weir_sim_result *result = run->result;
    uint64_t bucket_ns = run->params->bucket_ns;
    result->was_cut = run->left != 0;
    if (result->was_cut) {
        WEIR_TRY(grow_buckets(run, until_ns));
        for (uint32_t g = 0; g < run->n_devices; g++) {
            while (weir_sim_gpu_advance(run->devices[g].gpu, until_ns, &event)) {
            }
        }
        run->now_ns = until_ns;
    }
    weir_sim_devices_close(run);
    result->end_ns = run->now_ns;
    if (bucket_ns && result->n_buckets) {
        uint64_t reached = (result->end_ns + bucket_ns - 1) / bucket_ns;
        result->n_buckets = reached < result->n_buckets ? (uint32_t)reached : result->n_buckets;
    }
    return WEIR_OK;
}

/* ------------------------------------------------------------------ beginning and end */

static enum weir_status make_result(struct run *run)
{
    const struct weir_sim_load *load = run->load;
    struct weir_sim_result *result = run->result;
    size_t items = load->n_items ? load->n_items : 1;
    size_t tenants = load->n_tenants ? load->n_tenants : 1;
    size_t queues = load->n_queues ? load->n_queues : 1;
    result->n_items = load->n_items;
    result->n_tenants = load->n_tenants;
    result->tenants = calloc(tenants, sizeof *result->tenants);
    result->arrived_ns = malloc(items * sizeof(uint64_t));
    result->finished_ns = malloc(items * sizeof(uint64_t));
    result->waited_ns = malloc(items * sizeof(uint64_t));
    run->queues = calloc(queues, sizeof *run->queues);
    run->ranks = calloc(queues, sizeof *run->ranks);
    run->fates = calloc(items, sizeof *run->fates);
    run->heap = calloc(queues, sizeof *run->heap);
    if (!result->tenants || !result->arrived_ns || !result->finished_ns || !result->waited_ns ||
        !run->queues || !run->ranks || !run->fates || !run->heap) {
        return WEIR_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < load->n_items; i++) {
        result->arrived_ns[i] = result->finished_ns[i] = result->waited_ns[i] = NEVER;
        run->fates[i].lease_ns = NEVER;
    }
    return WEIR_OK;
}

static enum weir_status add_queues(struct run *run)
{
    const struct weir_sim_load *load = run->load;
    enum weir_status status = WEIR_OK;
    for (uint32_t i = 0; i < load->n_tenants; i++) {
        run->left += load->tenants[i].n_items;
    }
    for (uint32_t i = 0; status == WEIR_OK && i < load->n_queues; i++) {
        const struct weir_sim_queue *queue = &load->queues[i];
        const struct device *device = &run->devices[queue->gpu];
        status = weir_sched_queue_add(
            device->sched, device->tenants[queue->tenant], queue->sm_limit,
            run->params->knows_contexts ? context_of(run, i) : queue->domain, &run->queues[i]);
        if (queue->first != WEIR_SIM_NONE) {
            weir_sim_jobs_come(run, queue);
            heap_push(run, (struct arrival){load->items[queue->first].delay_ns, queue->first});
        }
    }
    return status;
}

static void run_finish(struct run *run)
{
    weir_sim_devices_finish(run);
    free(run->spans.tenants);
    free(run->queues);
    free(run->ranks);
    free(run->fates);
    free(run->heap);
    free(run->orders);
    free(run->leases);
}

enum weir_status weir_sim_run(const struct weir_sim_load *load,
                              const struct weir_sim_params *params,
                              struct weir_sim_result *ret_result, char *ret_error)
{
    struct weir_sim_result result = {0};
    struct run run = {.load = load, .params = params, .result = &result};
    enum weir_status status = make_result(&run);
    WEIR_THEN(status, weir_sim_devices_make(&run));
    WEIR_THEN(status, weir_sim_jobs_make(&run));
    if (status == WEIR_OK && run.n_devices > 1 && (params->watch.record || params->watch.hold)) {
        run.wrong = "recordings and timelines are of one GPU only";
        status = WEIR_ERR_INVALID;
    }
    WEIR_THEN(status, add_queues(&run));
    WEIR_THEN(status, carry_out(&run));
    WEIR_THEN(status, loop(&run));
    WEIR_THEN(status, close_run(&run, params->until_ns));
    if (status == WEIR_OK) {
        *ret_result = result;
    } else {
        (void)snprintf(ret_error, WEIR_SIM_ERROR_BYTES,
                       run.wrong ? "%s at %" PRIu64 " ns: %s" : "%s at %" PRIu64 " ns",
                       weir_status_text(status), run.now_ns, run.wrong);
        weir_sim_result_finish(&result);
    }
    run_finish(&run);
    return status;
}

void weir_sim_result_finish(struct weir_sim_result *result)
{
    if (!result) {
        return;
    }
    free(result->tenants);
    free(result->arrived_ns);
    free(result->finished_ns);
    free(result->waited_ns);
    free(result->bucket_sm_ns);
    free(result->gpu_sm_ns);
    *result = (struct weir_sim_result){0};
}

void weir_sim_params_init(struct weir_sim_params *params, const struct weir_sim_load *load,
                          const struct weir_sim_gpu_params *gpu)
{
    *params = (struct weir_sim_params){.gpu = *gpu};
    weir_sched_config_init(&params->config, gpu->sms);
    if (!(load->header.flags & WEIR_SCHED_TRACE_GENERATED)) {
        weir_sched_trace_config(&load->header, &params->config);
        params->config.sms = gpu->sms;
    }
    params->policies.policy[WEIR_POLICY_NEXT] = weir_policy_find("fair");
}
