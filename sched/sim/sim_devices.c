/* The GPUs of a run, each with a scheduler whose orders are noted. */
#include "base/grow.h"
#include "sched/sim/sim_private.h"

#include "sched/predict.h"
#include <stdlib.h>

#define NEVER UINT64_MAX

/* Most keys whose durations a run learns. */
#define PREDICT_KEYS 65536u

/* ------------------------------------------------------------------ orders of the scheduler */

static struct order *note(const struct device *device, enum order_kind kind, void *item_user,
                          const struct weir_sched_place *place)
{
    struct run *run = device->run;
    if (!WEIR_GROW(run->orders, run->n_orders, run->cap_orders)) {
        run->is_short = true;
        return NULL;
    }
    struct order *order = &run->orders[run->n_orders++];
    *order =
        (struct order){.kind = kind, .item = (uint32_t)((struct fate *)item_user - run->fates)};
    if (place) {
        order->place =
            (struct weir_sim_place){place->sm_first, place->sm_count, place->block_limit};
    }
    return order;
}

static void on_start(void *user, weir_sched_id item, void *item_user,
                     const struct weir_sched_place *place, enum weir_sched_level level)
{
    struct order *order = note(user, ORDER_START, item_user, place);
    (void)item;
    if (order) {
        order->level = level;
    }
}

static void on_stop(void *user, weir_sched_id item, void *item_user, uint64_t lease_ns)
{
    struct order *order = note(user, ORDER_STOP, item_user, NULL);
    (void)item;
    if (order) {
        order->lease_ns = lease_ns;
    }
}

static void on_resume(void *user, weir_sched_id item, void *item_user,
                      const struct weir_sched_place *place)
{
    (void)item;
    (void)note(user, ORDER_RESUME, item_user, place);
}

static void on_resize(void *user, weir_sched_id item, void *item_user,
                      const struct weir_sched_place *place)
{
    (void)item;
    (void)note(user, ORDER_RESIZE, item_user, place);
}

static void on_timer(void *user, uint64_t at_ns)
{
    ((struct device *)user)->timer_ns = at_ns;
}

static void on_record(void *user, const struct weir_sched_record *record)
{
    const struct run *run = ((const struct device *)user)->run;
    run->params->watch.record(run->params->watch.user, record);
}

static void on_log(void *user, const char *line)
{
    const struct run *run = ((const struct device *)user)->run;
    if (run->params->log) {
        run->params->log(run->params->log_user, line);
    }
}

/* ------------------------------------------------------------------ use and time */

static void on_hold(void *user, const struct weir_sim_hold *hold)
{
    const struct device *device = user;
    const struct run *run = device->run;
    struct weir_sim_result *result = run->result;
    double sms = hold->sm_count * (double)hold->share;
    uint64_t bucket_ns = run->params->bucket_ns;
    result->tenants[hold->owner].sm_ns += sms * (double)(hold->to_ns - hold->from_ns);
    device->sm_ns[hold->owner] += sms * (double)(hold->to_ns - hold->from_ns);
    uint32_t bucket = bucket_ns ? (uint32_t)(hold->from_ns / bucket_ns) : 0;
    for (uint64_t from = hold->from_ns; bucket_ns && from < hold->to_ns; bucket++) {
        uint64_t end = (bucket + UINT64_C(1)) * bucket_ns;
        uint64_t to = WEIR_MIN(end, hold->to_ns);
        if (bucket < result->n_buckets) {
            result->bucket_sm_ns[(size_t)bucket * result->n_tenants + hold->owner] +=
                sms * (double)(to - from);
        }
        from = to;
    }
    if (run->params->watch.hold) {
        run->params->watch.hold(run->params->watch.user, hold);
    }
}

/* Add what a device was used for. */
static void add_usage(const struct device *device, struct weir_sim_result *result)
{
    struct weir_sim_usage usage, *sum = &result->usage;
    struct weir_sched_counts counts, *all = &result->decisions.counts;
    weir_sim_gpu_usage(device->gpu, &usage);
    weir_sched_count(device->sched, &counts);
    sum->now_ns = usage.now_ns;
    sum->sm_ns += usage.sm_ns;
    sum->peers_sm_ns += usage.peers_sm_ns;
    sum->dram_ns += usage.dram_ns;
    sum->idle_sm_ns += usage.idle_sm_ns;
    sum->switches += usage.switches;
    for (int engine = 0; engine < WEIR_SIM_ENGINES; engine++) {
        sum->engine_ns[engine] += usage.engine_ns[engine];
    }
    all->arrivals += counts.arrivals;
    all->finishes += counts.finishes;
    all->withdrawals += counts.withdrawals;
    all->starts += counts.starts;
    all->stops += counts.stops;
    all->resumes += counts.resumes;
    all->resizes += counts.resizes;
    all->decisions += counts.decisions;
    all->switches += counts.switches;
    all->rescues += counts.rescues;
    all->nonsense += counts.nonsense;
    all->tenants += counts.tenants;
    all->queues += counts.queues;
    all->items += counts.items;
}

uint64_t weir_sim_devices_next_ns(const struct run *run)
{
    uint64_t next_ns = NEVER;
    for (uint32_t g = 0; g < run->n_devices; g++) {
        uint64_t gpu_ns = weir_sim_gpu_next_ns(run->devices[g].gpu);
        next_ns = WEIR_MIN(gpu_ns, next_ns);
    }
    return next_ns;
}

bool weir_sim_devices_advance(struct run *run, uint64_t to_ns, struct weir_sim_event *ret_event)
{
    bool has_event = false;
    for (uint32_t g = 0; g < run->n_devices; g++) {
        weir_sim_gpu_pass(run->devices[g].gpu, to_ns);
    }
    for (uint32_t g = 0; !has_event && g < run->n_devices; g++) {
        has_event = weir_sim_gpu_advance(run->devices[g].gpu, to_ns, ret_event);
    }
    return has_event;
}

void weir_sim_devices_close(struct run *run)
{
    for (uint32_t g = 0; g < run->n_devices; g++) {
        weir_sim_gpu_end(run->devices[g].gpu);
        add_usage(&run->devices[g], run->result);
    }
}

/* ------------------------------------------------------------------ beginning and end */

static enum weir_status make_scheduler(struct device *device)
{
    const struct weir_sim_params *params = device->run->params;
    struct weir_sched_config config = params->config;
    config.sms = params->gpu.sms;
    config.predict = NULL;
    enum weir_status status = WEIR_OK;
    if (params->learns) {
        status = weir_predict_create(PREDICT_KEYS, &device->predict);
        config.predict = device->predict;
    }
    const struct weir_sched_env env = {.user = device,
                                       .start = on_start,
                                       .stop = on_stop,
                                       .resume = on_resume,
                                       .resize = on_resize,
                                       .timer = on_timer,
                                       .trace = params->watch.record ? on_record : NULL,
                                       .log = on_log};
    WEIR_THEN(status, weir_sched_create(&config, &env, &device->sched));
    for (int kind = 0; status == WEIR_OK && kind < WEIR_POLICY_KIND_COUNT; kind++) {
        if (params->policies.policy[kind]) {
            status = weir_sched_policy_set(device->sched, 0, params->policies.policy[kind]);
        }
    }
    return status;
}

static enum weir_status make(struct device *device)
{
    const struct weir_sim_load *load = device->run->load;
    enum weir_status status = weir_sim_gpu_create(&device->run->params->gpu, &device->gpu);
    device->timer_ns = NEVER;
    device->tenants = calloc(load->n_tenants + 1u, sizeof *device->tenants);
    if (status == WEIR_OK && !device->tenants) {
        status = WEIR_ERR_NO_MEMORY;
    }
    if (status == WEIR_OK) {
        weir_sim_gpu_watch(device->gpu, on_hold, device);
        status = make_scheduler(device);
    }
    for (uint32_t i = 0; status == WEIR_OK && i < load->n_tenants; i++) {
        struct weir_sched_tenant_params params = load->tenants[i].params;
        params.name = load->tenants[i].name;
        status = weir_sched_tenant_add(device->sched, 0, &params, &device->tenants[i]);
    }
    return status;
}

enum weir_status weir_sim_devices_make(struct run *run)
{
    const struct weir_sim_load *load = run->load;
    struct weir_sim_result *result = run->result;
    enum weir_status status = WEIR_OK;
    result->n_gpus = 1;
    for (uint32_t q = 0; q < load->n_queues; q++) {
        uint32_t gpu = load->queues[q].gpu;
        result->n_gpus = gpu < result->n_gpus ? result->n_gpus : gpu + 1;
    }
    result->gpu_sm_ns = calloc((size_t)result->n_gpus * load->n_tenants + 1, sizeof(double));
    run->devices = calloc(result->n_gpus, sizeof *run->devices);
    WEIR_FAIL_IF(!result->gpu_sm_ns || !run->devices, WEIR_ERR_NO_MEMORY);
    run->n_devices = result->n_gpus;
    for (uint32_t g = 0; status == WEIR_OK && g < run->n_devices; g++) {
        run->devices[g].run = run;
        run->devices[g].sm_ns = result->gpu_sm_ns + (size_t)g * load->n_tenants;
        status = make(&run->devices[g]);
    }
    return status;
}

void weir_sim_devices_finish(struct run *run)
{
    for (uint32_t g = 0; g < run->n_devices; g++) {
        weir_sched_destroy(run->devices[g].sched);
        weir_predict_destroy(run->devices[g].predict);
        weir_sim_gpu_destroy(run->devices[g].gpu);
        free(run->devices[g].tenants);
    }
    free(run->devices);
}
