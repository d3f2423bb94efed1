/* Creates and destroys a device's gate; policies and tenants' settings. */
#include "host_backend/gate/private.h"

#include "base/log.h"
#include "base/thread.h"
#include "host_backend/config/control.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PREDICT_KEYS 16384u
#define MANY_CORES   8
#define SPINNERS     4u /* one in so many cores at most */

/* ---------------------------------------------------------------- begin */

static void weigh_stopping(struct weir_gate *gate)
{
    bool turns = gate->levels && gate->policies.policy[WEIR_POLICY_TOGETHER] == NULL;

    atomic_store(&gate->worth_stopping_ns, turns ? WEIR_GATE_TURN_NS : WEIR_GATE_MOVABLE_NS);
}

static enum weir_status make_sched(struct weir_gate *gate, const struct weir_gate_params *params)
{
    const struct weir_policy_set *policies = params->policies;
    struct weir_sched_config config;
    struct weir_sched_env env;
    enum weir_status status = weir_predict_create(PREDICT_KEYS, &gate->predict);

    if (status != WEIR_OK) {
        return status;
    }
    weir_sched_settings_apply(params->settings, gate->sms, params->fill, &config);
    config.predict = gate->predict;
    config.above = params->above && config.small_sms != 0;
    config.room_sms = config.above != 0 && params->part ? weir_sched_room_sms(gate->sms) : 0;
    gate->config = config;
    gate->alone_limit_ns = config.alone_ns;
    gate->inflight_ns = config.inflight_ns;
    weir_gate_env_init(gate, &env);
    gate->policies = *policies;
    weigh_stopping(gate);
    status = weir_sched_create(&config, &env, &gate->sched);
    for (int kind = 0; status == WEIR_OK && kind < WEIR_POLICY_KIND_COUNT; kind++) {
        if (policies->policy[kind] != NULL) {
            status =
                weir_sched_policy_set(gate->sched, weir_clock_now_ns(), policies->policy[kind]);
        }
    }
    if (status == WEIR_OK) {
        weir_sched_allow_alone(gate->sched, true);
        gate->shared = weir_sched_shared(gate->sched);
    }
    return status;
}

static void destroy(struct weir_gate *gate)
{
    if (gate->watching) {
        pthread_mutex_lock(&gate->lock);
        gate->quit = true;
        pthread_cond_signal(&gate->work);
        if (weir_gate_client_of(gate) != NULL) {
            weir_gate_port_call(weir_gate_client_of(gate)->port);
        }
        pthread_mutex_unlock(&gate->lock);
        pthread_join(gate->watcher, NULL);
    }
    weir_sched_destroy(gate->sched);
    weir_predict_destroy(gate->predict);
    while (gate->free_items != NULL) {
        struct weir_gate_item *item = gate->free_items;

        gate->free_items = item->next;
        free(item);
    }
    free(gate->actions);
    pthread_cond_destroy(&gate->work);
    pthread_mutex_destroy(&gate->lock);
    free(gate);
}

static void init_locks(struct weir_gate *gate)
{
    pthread_mutexattr_t mutex;

    pthread_mutexattr_init(&mutex);
    if (gate->spin) { /* held for less than a wake-up takes */
        pthread_mutexattr_settype(&mutex, PTHREAD_MUTEX_ADAPTIVE_NP);
    }
    pthread_mutex_init(&gate->lock, &mutex);
    pthread_mutexattr_destroy(&mutex);
    weir_thread_condition_init(&gate->work);
}

enum weir_status weir_gate_create(const struct weir_gate_params *params,
                                  struct weir_gate **ret_gate)
{
    struct weir_gate *gate = calloc(1, sizeof *gate);
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    enum weir_status status;

    if (gate == NULL) {
        return WEIR_ERR_NO_MEMORY;
    }
    gate->ops = params->ops;
    gate->user = params->user;
    gate->spin_page = params->spin;
    gate->item_room = params->item_room;
    gate->device = params->device;
    gate->sms = params->sms;
    gate->share_pct = params->share_pct;
    gate->share_sms = weir_gate_share_sms(params->sms, params->share_pct);
    gate->spin = params->real && cores >= MANY_CORES;
    gate->spinners_max = gate->spin ? (uint32_t)cores / SPINNERS : 0;
    gate->timer_ns = UINT64_MAX;
    gate->levels = params->levels;
    gate->real = params->real;
    memcpy(gate->uuid, params->uuid, sizeof gate->uuid);
    init_locks(gate);
    status = make_sched(gate, params);
    if (status != WEIR_OK) {
        destroy(gate);
        return status;
    }
    weir_gate_times_open(gate, params->times_dir);
    gate->watching = pthread_create(&gate->watcher, NULL, weir_gate_watch, gate) == 0;
    if (!gate->watching) {
        destroy(gate);
        return WEIR_ERR_NO_MEMORY;
    }
    *ret_gate = gate;
    return WEIR_OK;
}

/* ---------------------------------------------------------------- other policies */

static void put_in_force_locked(struct weir_gate *gate, int kind, const struct weir_policy_ops *ops)
{
    uint64_t now_ns = weir_clock_now_ns();
    enum weir_status status;

    if (ops == gate->policies.policy[kind]) {
        return; /* it goes on with what it knows */
    }
    status = ops != NULL ? weir_sched_policy_set(gate->sched, now_ns, ops)
                         : weir_sched_policy_clear(gate->sched, now_ns, kind);
    if (status != WEIR_OK) {
        weir_log_error("sched: policy not changed device=%u policy=%s why=\"%s\"", gate->device,
                       ops != NULL ? ops->name : "none", weir_status_text(status));
        return;
    }
    gate->policies.policy[kind] = ops;
}

void weir_gate_policies_set(struct weir_gate *gate, const struct weir_policy_set *policies)
{
    pthread_mutex_lock(&gate->lock);
    for (int kind = 0; kind < WEIR_POLICY_KIND_COUNT; kind++) {
        put_in_force_locked(gate, kind, policies->policy[kind]);
    }
    weigh_stopping(gate);
    weir_gate_kick_locked(
        gate); /* the gate's thread carries out the new orders: it has a context */
    pthread_mutex_unlock(&gate->lock);
}

/* ---------------------------------------------------------------- end */

static void log_counts(struct weir_gate *gate)
{
    struct weir_predict_stats predict;
    struct weir_sched_counts c;
    uint64_t passed;

    pthread_mutex_lock(&gate->lock);
    passed = gate->passed_gone;
    weir_sched_count(gate->sched, &c);
    weir_predict_stats(gate->predict, &predict);
    for (uint32_t i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        passed += gate->members[i].passed;
    }
    pthread_mutex_unlock(&gate->lock);
    weir_log_info("sched: device=%u passed=%llu arrivals=%llu finishes=%llu withdrawals=%llu "
                  "switches=%llu stops=%llu resumes=%llu rescues=%llu nonsense=%llu left=%u "
                  "stuck=%llu keys=%u kernel_error=%.3f",
                  gate->device, (unsigned long long)passed, (unsigned long long)c.arrivals,
                  (unsigned long long)c.finishes, (unsigned long long)c.withdrawals,
                  (unsigned long long)c.switches, (unsigned long long)c.stops,
                  (unsigned long long)c.resumes, (unsigned long long)c.rescues,
                  (unsigned long long)c.nonsense, c.items, (unsigned long long)gate->passed_stuck,
                  predict.keys, predict.kernels.mean);
}

void weir_gate_destroy(struct weir_gate *gate)
{
    if (gate != NULL) {
        log_counts(gate);
        weir_gate_times_close(gate);
        destroy(gate);
    }
}

/* ---------------------------------------------------------------- tenants */

struct weir_sched_tenant_params weir_gate_tenant_params(const struct weir_tenant_config *tenant)
{
    return (struct weir_sched_tenant_params){.name = tenant->name,
                                             .weight = tenant->weight,
                                             .min_share = tenant->min_share_pct,
                                             .sm_limit = tenant->sm_limit_pct,
                                             .priority = tenant->priority,
                                             .exclusive = tenant->share == WEIR_SHARE_NO};
}

void weir_gate_queue_charge_locked(struct weir_gate_queue *q, uint8_t class, uint64_t took_ns)
{
    struct weir_gate_member *member = q->member;

    if (weir_gate_is_copy(class)) {
        member->alone_ns[class == WEIR_SCHED_D2H] += took_ns;
    } else {
        member->alone_sm_ns += took_ns * q->gate->sms;
        q->alone_sm_ns += took_ns * q->gate->sms;
    }
}

void weir_gate_member_set_locked(struct weir_gate_member *member,
                                 const struct weir_sched_tenant_params *settings)
{
    snprintf(member->name, sizeof member->name, "%s", settings->name);
    member->params = *settings;
    member->params.name = member->name;
    atomic_store(&member->sm_limit_pct, settings->sm_limit);
}

void weir_gate_tenant_set(struct weir_gate *gate, uint32_t slot,
                          const struct weir_sched_tenant_params *settings)
{
    struct weir_gate_member *member = &gate->members[slot];

    pthread_mutex_lock(&gate->lock);
    if (member->id != 0) {
        weir_gate_member_set_locked(member, settings);
        if (weir_sched_tenant_set(gate->sched, weir_clock_now_ns(), member->id, &member->params) !=
            WEIR_OK) {
            weir_log_warn("sched: settings refused tenant=%s", member->name);
        }
    }
    weir_gate_kick_locked(
        gate); /* the gate's thread carries out the new orders: it has a context */
    pthread_mutex_unlock(&gate->lock);
}

/* All its compute on the device. */
static uint64_t sm_ns_of_locked(const struct weir_gate *gate, const struct weir_gate_member *m)
{
    struct weir_sched_tenant_info info;

    if (m->id == 0 || weir_sched_tenant_query(gate->sched, m->id, &info) != WEIR_OK) {
        return 0;
    }
    return info.service_ns[WEIR_SCHED_COMPUTE] + m->alone_sm_ns;
}

uint64_t weir_gate_sm_ns(struct weir_gate *gate)
{
    uint64_t sm_ns;

    pthread_mutex_lock(&gate->lock);
    sm_ns = gate->sm_ns_gone;
    for (uint32_t i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        sm_ns += sm_ns_of_locked(gate, &gate->members[i]);
    }
    pthread_mutex_unlock(&gate->lock);
    return sm_ns;
}

uint64_t weir_gate_queue_sm_ns(struct weir_gate_queue *q)
{
    uint64_t sm_ns;

    pthread_mutex_lock(&q->gate->lock);
    sm_ns = weir_sched_queue_service(q->gate->sched, q->id) + q->alone_sm_ns;
    pthread_mutex_unlock(&q->gate->lock);
    return sm_ns;
}

void weir_gate_tenant_remove(struct weir_gate *gate, uint32_t slot)
{
    struct weir_gate_member *member = &gate->members[slot];
    uint64_t sm_ns;

    pthread_mutex_lock(&gate->lock);
    sm_ns = sm_ns_of_locked(gate, member);
    if (member->id != 0) {
        (void)weir_sched_tenant_remove(gate->sched, weir_clock_now_ns(), member->id);
        weir_gate_kick_locked(gate); /* likewise */
    }
    for (int k = 0; k < WEIR_GATE_CROWDS; k++) {
        if (gate->last_member[k] == member) {
            gate->last_member[k] = NULL;
        }
    }
    if (member->owner != 0) {
        weir_predict_owner_goes(gate->predict, member->owner);
    }
    gate->passed_gone += member->passed;
    gate->sm_ns_gone += sm_ns;
    *member = (struct weir_gate_member){0}; /* another tenant's, perhaps */
    pthread_mutex_unlock(&gate->lock);
}

void weir_gate_usage_show(const struct weir_gate_usage *usage, struct weir_status_tenant *row)
{
    row->service_sm_ns = usage->sm_ns;
    row->copy_h2d_ns = usage->h2d_ns;
    row->copy_d2h_ns = usage->d2h_ns;
    row->copy_h2d_bytes = usage->h2d_bytes;
    row->copy_d2h_bytes = usage->d2h_bytes;
    row->wait_ns = usage->wait_ns;
    row->waits_10us = usage->waits[0];
    row->waits_100us = usage->waits[1];
    row->waits_1ms = usage->waits[2];
    row->waits_10ms = usage->waits[3];
    row->waits_100ms = usage->waits[4];
    row->waits_1s = usage->waits[5];
    row->waits_longer = usage->waits[6];
    row->items = usage->items;
    row->stops = usage->stops;
}

static void add_usage_locked(struct weir_gate *gate, const struct weir_gate_member *m,
                             struct weir_gate_usage *u)
{
    struct weir_sched_tenant_info info;

    if (m->id == 0 || weir_sched_tenant_query(gate->sched, m->id, &info) != WEIR_OK) {
        return;
    }
    u->sm_ns += info.service_ns[WEIR_SCHED_COMPUTE] + m->alone_sm_ns;
    u->h2d_ns += info.service_ns[WEIR_SCHED_TO_DEVICE] + m->alone_ns[0];
    u->d2h_ns += info.service_ns[WEIR_SCHED_FROM_DEVICE] + m->alone_ns[1];
    u->h2d_bytes += m->bytes[0];
    u->d2h_bytes += m->bytes[1];
    u->wait_ns += info.waited_ns;
    for (uint32_t i = 0; i < WEIR_SCHED_WAITS; i++) {
        u->waits[i] += info.waits[i];
    }
    u->stops += info.stops;
    u->gated += m->gated;
    u->items += m->gated + m->passed;
    for (struct weir_gate_queue *q = gate->queues; q != NULL; q = q->next) {
        if (q->member == m) {
            u->items += atomic_load_explicit(&q->passed, memory_order_relaxed);
            u->h2d_bytes += atomic_load_explicit(&q->bytes[0], memory_order_relaxed);
            u->d2h_bytes += atomic_load_explicit(&q->bytes[1], memory_order_relaxed);
        }
    }
}

void weir_gate_tenant_usage(struct weir_gate *gate, uint32_t slot, struct weir_gate_usage *usage)
{
    pthread_mutex_lock(&gate->lock);
    add_usage_locked(gate, &gate->members[slot], usage);
    pthread_mutex_unlock(&gate->lock);
}
