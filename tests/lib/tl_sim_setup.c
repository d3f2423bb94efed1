/* Setting simulations up, and asking them. The device itself is in tl_sim.c. */
#include "tests/lib/tl_sim_private.h"
#include <stdlib.h>

void tl_sim_params_init(struct tl_sim_params *params, uint32_t sms)
{
    *params = (struct tl_sim_params){
        .stop_ns = 16000,
        .drain_ns = 10000,
        .launch_ns = 4000,
        .resize_ns = 15000,
        .notice_ns = 4000,
        .seed = 1,
    };
    weir_sched_config_init(&params->config, sms);
}

struct tl_sim *tl_sim_create(const struct tl_sim_params *params)
{
    struct tl_sim *sim = calloc(1, sizeof(*sim));
    struct weir_sched_env env = sim_env(sim, params->check);

    assert_non_null(sim);
    assert_true(params->config.sms <= SMS_MAX);
    sim->params = *params;
    sim->random = params->seed * 0x9E3779B97F4A7C15u | 1;
    sim->timer_ns = UINT64_MAX;
    sim->heap = calloc(HEAP_MAX, sizeof(*sim->heap));
    assert_non_null(sim->heap);
    assert_int_equal(weir_sched_create(&params->config, &env, &sim->sched), WEIR_OK);
    sim_push(sim, (struct event){.at_ns = SAMPLE_NS, .kind = EVENT_SAMPLE});
    return sim;
}

static void lane_clear(struct tl_sim *sim, struct lane *lane)
{
    while (lane->first) {
        struct work *work = lane->first;

        lane->first = work->next;
        sim_dev_remove(sim, work);
        work->gone = true;
        sim->pending--;
        sim->dropped++;
        sim_work_put(work);
    }
    lane->last = NULL;
    lane->closed = true;
}

static uint32_t lanes_of(const struct sim_tenant *tenant)
{
    return tenant->load.queues != 0 ? tenant->load.queues : 1;
}

void tl_sim_destroy(struct tl_sim *sim)
{
    weir_sched_destroy(sim->sched);
    for (uint32_t i = 0; i < sim->tenants; i++) {
        for (uint32_t k = 0; k < lanes_of(sim->tenant[i]); k++) {
            lane_clear(sim, &sim->tenant[i]->lanes[k]);
        }
    }
    while (sim->heap_count > 0) {
        struct event event = sim_pop(sim);

        if (event.work) {
            event.work->gone = true;
            event.work->references--;
            sim_work_put(event.work);
        }
    }
    for (uint32_t i = 0; i < sim->tenants; i++) {
        free(sim->tenant[i]->lanes);
        free(sim->tenant[i]);
    }
    free(sim->heap);
    free(sim);
}

struct weir_sched *tl_sim_sched(struct tl_sim *sim)
{
    return sim->sched;
}

uint64_t tl_sim_now(const struct tl_sim *sim)
{
    return sim->now_ns;
}

uint32_t tl_sim_tenant(struct tl_sim *sim, uint32_t weight, enum weir_priority priority,
                       const struct tl_sim_load *load)
{
    struct sim_tenant *tenant = calloc(1, sizeof(*tenant));
    uint32_t number = sim->tenants++;
    char name[16];
    struct weir_sched_tenant_params params = {
        .name = name, .weight = weight, .sm_limit = 100, .priority = priority};

    assert_true(number < TENANTS_MAX);
    assert_non_null(tenant);
    snprintf(name, sizeof(name), "t%u", number);
    sim->tenant[number] = tenant;
    tenant->priority = priority;
    tenant->load = *load;
    tenant->lanes = calloc(lanes_of(tenant), sizeof(*tenant->lanes));
    assert_non_null(tenant->lanes);
    assert_int_equal(weir_sched_tenant_add(sim->sched, sim->now_ns, &params, &tenant->id), WEIR_OK);
    for (uint32_t i = 0; i < lanes_of(tenant); i++) {
        struct lane *lane = &tenant->lanes[i];

        lane->tenant = number;
        assert_int_equal(weir_sched_queue_add(sim->sched, tenant->id,
                                              load->sm_limit != 0 ? load->sm_limit : 100,
                                              load->domain, &lane->queue),
                         WEIR_OK);
        sim_bring_next(sim, lane, load->from_ns);
    }
    return number;
}

weir_sched_id tl_sim_id(const struct tl_sim *sim, uint32_t tenant)
{
    return sim->tenant[tenant]->id;
}

void tl_sim_leave(struct tl_sim *sim, uint32_t number)
{
    struct sim_tenant *tenant = sim->tenant[number];

    if (tenant->gone) {
        return;
    }
    tenant->gone = true;
    for (uint32_t i = 0; i < lanes_of(tenant); i++) {
        lane_clear(sim, &tenant->lanes[i]);
    }
    for (uint32_t i = 0; i < sim->heap_count; i++) { /* done, and not told yet */
        struct work *work = sim->heap[i].work;

        if (work && work->lane->tenant == number && !work->gone) {
            work->gone = true;
            sim->pending--;
            sim->dropped++;
        }
    }
    sim_enter(sim);
    assert_int_equal(weir_sched_tenant_remove(sim->sched, sim->now_ns, tenant->id), WEIR_OK);
    sim_leave(sim);
}

void tl_sim_stats(const struct tl_sim *sim, uint32_t tenant, struct tl_sim_stats *ret_stats)
{
    *ret_stats = sim->tenant[tenant]->stats;
}

double tl_sim_service_at(const struct tl_sim *sim, uint32_t tenant, uint32_t k)
{
    return sim->tenant[tenant]->sample[k];
}

uint32_t tl_sim_pending(const struct tl_sim *sim)
{
    return sim->pending;
}

uint32_t tl_sim_dropped(const struct tl_sim *sim)
{
    return sim->dropped;
}

bool tl_sim_is_endless(const struct tl_sim *sim, uint32_t tenant)
{
    return sim->tenant[tenant]->load.count == 0;
}

void tl_sim_bring(struct tl_sim *sim, weir_sched_id queue,
                  const struct weir_sched_item_params *params, weir_sched_id *ret_item)
{
    sim_enter(sim);
    assert_null(params->user);
    assert_int_equal(weir_sched_arrive(sim->sched, sim->now_ns, queue, params, ret_item), WEIR_OK);
    sim_leave(sim);
}

void tl_sim_policy(struct tl_sim *sim, int kind, const struct weir_policy_ops *ops)
{
    sim_enter(sim);
    assert_int_equal(ops ? weir_sched_policy_set(sim->sched, sim->now_ns, ops)
                         : weir_sched_policy_clear(sim->sched, sim->now_ns, kind),
                     WEIR_OK);
    sim_leave(sim);
}

void tl_sim_change(struct tl_sim *sim, uint32_t number,
                   const struct weir_sched_tenant_params *params)
{
    struct sim_tenant *tenant = sim->tenant[number];

    if (tenant->gone) {
        return;
    }
    tenant->priority = params->priority; /* of what it launches from now on */
    sim_enter(sim);
    assert_int_equal(weir_sched_tenant_set(sim->sched, sim->now_ns, tenant->id, params), WEIR_OK);
    sim_leave(sim);
}

uint64_t tl_sim_trace_hash(const struct tl_sim *sim)
{
    return sim->trace_hash;
}

uint32_t tl_sim_log_lines(const struct tl_sim *sim)
{
    return sim->log_lines;
}

const char *tl_sim_last_line(const struct tl_sim *sim)
{
    return sim->last_line;
}
