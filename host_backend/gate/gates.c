/* A worker's gates, from begin to end; tenants as they are configured; stream priorities. */
#include "host_backend/gate/private.h"

#include "base/log.h"
#include "host_backend/gate/trace.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PREDICT_KEYS 16384u
#define MANY_CORES   8
#define SPINNERS     4u /* one in so many cores at most */
#define LEVELS_MANY  6
#define LEVELS_MIN   3 /* of stream priorities: one for each class */

/* ---------------------------------------------------------------- begin */

static uint32_t sms_of(const struct weir_worker_device *device)
{
    const struct weir_device_attribute *a =
        weir_device_attribute_get(&device->about, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);

    return a != NULL && a->value > 0 ? (uint32_t)a->value : 1;
}

static void weigh_stopping(struct weir_gate *gate)
{
    bool turns = gate->levels && gate->policies.policy[WEIR_POLICY_TOGETHER] == NULL;

    atomic_store(&gate->worth_stopping_ns, turns ? TURN_NS : MOVABLE_NS);
}

/* What the device can do of what is wished. The context is current. */
static enum weir_sched_fill fill_of(struct weir_gate *gate, enum weir_sched_fill wished)
{
    CUdevice device = gate->worker->devices[gate->device].cu;
    enum weir_status status;

    if (!gate->levels) {
        return WEIR_SCHED_FILL_NONE;
    }
    if (wished == WEIR_SCHED_FILL_PARTS) {
        (void)gate->driver->cuCtxSetCurrent(gate->worker->devices[gate->device].context);
        status = weir_parts_create(gate->driver, device, gate->priority_least, &gate->parts);
        if (status != WEIR_OK) {
            weir_log_warn("sched: no parts of the device, so what fills has all of it device=%u "
                          "why=\"%s\"",
                          gate->device, weir_status_text(status));
            return WEIR_SCHED_FILL_ALL;
        }
    }
    return wished;
}

static enum weir_status make_sched(struct weir_gate *gate, const struct weir_sched_settings *c,
                                   const struct weir_policy_set *policies)
{
    struct weir_sched_config config;
    struct weir_sched_env env;
    enum weir_status status = weir_predict_create(PREDICT_KEYS, &gate->predict);

    if (status != WEIR_OK) {
        return status;
    }
    weir_sched_config_init(&config, gate->sms);
    config.alone_ns = c->alone_us * WEIR_NS_PER_US;
    config.inflight_ns = c->inflight_us * WEIR_NS_PER_US;
    config.starve_ns = c->starve_ms * WEIR_NS_PER_MS;
    config.overhead_ppm = c->overhead_ppm;
    config.order_window = c->order_window;
    config.guess_ns = WEIR_GATE_GUESS_NS;
    config.predict = gate->predict;
    config.fill = fill_of(gate, c->fill);
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
    if (gate == NULL) {
        return;
    }
    if (gate->watching) {
        pthread_mutex_lock(&gate->lock);
        gate->quit = true;
        pthread_cond_signal(&gate->work);
        pthread_mutex_unlock(&gate->lock);
        pthread_join(gate->watcher, NULL);
    }
    weir_sched_destroy(gate->sched);
    weir_predict_destroy(gate->predict);
    weir_marks_destroy(gate->marks);
    weir_parts_destroy(gate->parts);
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

static enum weir_status create(struct weir_worker *worker, uint32_t device,
                               const struct weir_policy_set *policies, struct weir_gate **ret_gate)
{
    struct weir_gate *gate = calloc(1, sizeof *gate);
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    pthread_mutexattr_t mutex;
    pthread_condattr_t attr;
    enum weir_status status;

    if (gate == NULL) {
        return WEIR_ERR_NO_MEMORY;
    }
    gate->worker = worker;
    gate->driver = &worker->driver;
    gate->device = device;
    gate->sms = sms_of(&worker->devices[device]);
    gate->spin = worker->real && cores >= MANY_CORES;
    gate->spinners_max = gate->spin ? (uint32_t)cores / SPINNERS : 0;
    gate->timer_ns = UINT64_MAX;
    gate->priority_least = worker->devices[device].about.stream_priority_least;
    gate->priority_greatest = worker->devices[device].about.stream_priority_greatest;
    gate->levels = worker->real && gate->priority_least - gate->priority_greatest + 1 >= LEVELS_MIN;
    pthread_mutexattr_init(&mutex);
    if (gate->spin) { /* held for less than a wake-up takes */
        pthread_mutexattr_settype(&mutex, PTHREAD_MUTEX_ADAPTIVE_NP);
    }
    pthread_mutex_init(&gate->lock, &mutex);
    pthread_mutexattr_destroy(&mutex);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&gate->work, &attr);
    pthread_condattr_destroy(&attr);
    status = weir_marks_create(gate->driver, worker->write_value_ok, &gate->marks);
    if (status == WEIR_OK) {
        status = make_sched(gate, &worker->config.scheduler, policies);
    }
    if (status == WEIR_OK) {
        weir_gate_times_open(gate);
        gate->watching = pthread_create(&gate->watcher, NULL, weir_gate_watch, gate) == 0;
        status = gate->watching ? WEIR_OK : WEIR_ERR_NO_MEMORY;
    }
    if (status != WEIR_OK) {
        destroy(gate);
        return status;
    }
    *ret_gate = gate;
    return WEIR_OK;
}

enum weir_status weir_gates_create(struct weir_worker *worker)
{
    const char *policy = worker->config.scheduler.policy;
    struct weir_policy_set policies = {0};
    enum weir_status status = WEIR_OK;
    struct weir_diag diag = {0};

    if (strcmp(policy, "off") == 0) {
        return WEIR_OK;
    }
    if (weir_policy_set_parse(policy, &policies, &diag) != WEIR_OK) {
        weir_log_error("sched: no such policies policy=\"%s\" why=\"%s\"", policy, diag.message);
        return WEIR_ERR_INVALID;
    }
    for (uint32_t i = 0; status == WEIR_OK && i < worker->n_devices; i++) {
        status = create(worker, i, &policies, &worker->gates[i]);
    }
    return status;
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
    weir_gate_trace_policy_locked(gate, kind, ops != NULL ? ops->name : NULL);
}

void weir_gates_policies_set(struct weir_worker *worker, const char *policy)
{
    struct weir_policy_set policies;

    if (weir_policy_set_parse(policy, &policies, NULL) != WEIR_OK) {
        return; /* the supervisor has looked at it */
    }
    snprintf(worker->config.scheduler.policy, sizeof worker->config.scheduler.policy, "%s", policy);
    for (uint32_t i = 0; i < worker->n_devices; i++) {
        struct weir_gate *gate = worker->gates[i];

        if (gate == NULL) {
            continue;
        }
        pthread_mutex_lock(&gate->lock);
        for (int kind = 0; kind < WEIR_POLICY_KIND_COUNT; kind++) {
            put_in_force_locked(gate, kind, policies.policy[kind]);
        }
        weigh_stopping(gate);
        weir_gate_kick_locked(gate); /* it carries out what this has led to: no context here */
        pthread_mutex_unlock(&gate->lock);
    }
    weir_log_info("sched: policy=\"%s\"", policy);
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

void weir_gates_destroy(struct weir_worker *worker)
{
    weir_gates_trace_stop(worker);
    for (uint32_t i = 0; i < worker->n_devices; i++) {
        if (worker->gates[i] != NULL) {
            log_counts(worker->gates[i]);
            weir_gate_times_close(worker->gates[i]);
            destroy(worker->gates[i]);
            worker->gates[i] = NULL;
        }
    }
}

/* ---------------------------------------------------------------- tenants */

unsigned weir_gate_peers(const struct weir_gate *gate, const struct weir_tenant *tenant)
{
    return gate->levels ? (unsigned)atomic_load(&tenant->priority) : 0;
}

struct weir_sched_tenant_params weir_gate_tenant_params(const struct weir_tenant *tenant)
{
    return (struct weir_sched_tenant_params){.name = tenant->name,
                                             .weight = atomic_load(&tenant->weight),
                                             .sm_limit = atomic_load(&tenant->sm_limit_pct),
                                             .priority =
                                                 (enum weir_priority)atomic_load(&tenant->priority),
                                             .exclusive = atomic_load(&tenant->exclusive)};
}

uint32_t weir_gate_sm_limit_pct(const struct weir_session *session)
{
    uint32_t granted = atomic_load_explicit(&session->tenant->sm_limit_pct, memory_order_relaxed);
    uint32_t wish = session->wish.sm_pct;

    return wish != 0 && wish < granted ? wish : granted;
}

void weir_gates_tenant_changed(struct weir_tenant *tenant)
{
    struct weir_sched_tenant_params params = weir_gate_tenant_params(tenant);

    for (uint32_t i = 0; i < tenant->worker->n_devices; i++) {
        struct weir_gate *gate = tenant->worker->gates[i];

        if (gate == NULL) {
            continue;
        }
        pthread_mutex_lock(&gate->lock);
        if (gate->members[tenant->index].id != 0 &&
            weir_sched_tenant_set(gate->sched, weir_clock_now_ns(), gate->members[tenant->index].id,
                                  &params) != WEIR_OK) {
            weir_log_warn("sched: settings refused tenant=%s", tenant->name);
        }
        weir_gate_kick_locked(gate); /* it carries out what this has led to: no context here */
        pthread_mutex_unlock(&gate->lock);
    }
}

void weir_gates_tenant_gone(struct weir_tenant *tenant)
{
    struct weir_gate_member *member;

    for (uint32_t i = 0; i < tenant->worker->n_devices; i++) {
        struct weir_gate *gate = tenant->worker->gates[i];

        if (gate == NULL) {
            continue;
        }
        pthread_mutex_lock(&gate->lock);
        member = &gate->members[tenant->index];
        if (member->id != 0) {
            (void)weir_sched_tenant_remove(gate->sched, weir_clock_now_ns(), member->id);
            weir_gate_kick_locked(gate); /* it carries out what this has led to */
        }
        for (int k = 0; k < WEIR_PRIORITY_COUNT; k++) {
            if (gate->last_member[k] == member) {
                gate->last_member[k] = NULL;
            }
        }
        gate->passed_gone += member->passed;
        *member = (struct weir_gate_member){0}; /* another tenant's, perhaps */
        pthread_mutex_unlock(&gate->lock);
    }
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

bool weir_gates_usage(struct weir_tenant *tenant, struct weir_gate_usage *ret_usage)
{
    struct weir_gate_usage usage = {0};
    bool any = false;

    for (uint32_t i = 0; i < tenant->worker->n_devices; i++) {
        struct weir_gate *gate = tenant->worker->gates[i];

        if (gate != NULL) {
            any = true;
            pthread_mutex_lock(&gate->lock);
            add_usage_locked(gate, &gate->members[tenant->index], &usage);
            pthread_mutex_unlock(&gate->lock);
        }
    }
    *ret_usage = usage;
    return any;
}

/* ---------------------------------------------------------------- stream priorities */

/* Levels of a class, upwards from the least; what a guest asks for counts between the two. */
struct levels {
    int low, high;
};

/*
 * The device's levels are shared out: the least to what fills others' gaps, the greatest to runs'
 * control. A device with few levels gives each class one.
 */
static struct levels levels_of(int levels, int priority)
{
    bool many = levels >= LEVELS_MANY; /* 6 on an H200: 0 .. -5 */

    switch (priority) {
    case WEIR_PRIORITY_LOW:
        return many ? (struct levels){1, 1} : (struct levels){0, 0};
    case WEIR_PRIORITY_HIGH:
        return many ? (struct levels){levels - 2, levels - 2} : (struct levels){2, levels - 1};
    default:
        return many ? (struct levels){2, levels - 3} : (struct levels){1, 1};
    }
}

int weir_gate_stream_priority(const struct weir_session *session, int asked)
{
    const struct weir_gate *gate = session->worker->gates[session->device];
    int priority = atomic_load(&session->tenant->priority);
    struct levels of;
    int levels, above;

    if (gate == NULL) {
        return asked;
    }
    levels = gate->priority_least - gate->priority_greatest + 1;
    if (levels < LEVELS_MIN) {
        return priority == WEIR_PRIORITY_HIGH ? gate->priority_greatest : gate->priority_least;
    }
    of = levels_of(levels, priority);
    above = gate->priority_least - asked;
    above = above < 0 ? 0 : above > of.high - of.low ? of.high - of.low : above;
    return gate->priority_least - (of.low + above);
}

void weir_gate_priority_apply(struct weir_session *session, struct weir_host_stream *stream,
                              bool filler)
{
    CUlaunchAttributeValue value;

    memset(&value, 0, sizeof value);
    value.priority = filler ? session->worker->gates[session->device]->priority_least
                            : weir_gate_stream_priority(session, stream->priority);
    /* A driver that does not change a stream's priority leaves the one it was made with. */
    (void)session->driver->cuStreamSetAttribute(stream->o.native, CU_LAUNCH_ATTRIBUTE_PRIORITY,
                                                &value);
}
