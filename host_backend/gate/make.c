/* Creates and destroys a device's gate, and keeps counters of its tenants. */
#include "host_backend/gate/private.h"

#include "base/log.h"
#include "base/thread.h"
#include "host_backend/config/control.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PREDICT_KEYS 16384u
#define MANY_CORES   8
#define SPINNERS     4u /* at most one core in this many spins */

/* ---------------------------------------------------------------- begin */

static void destroy(struct weir_gate *gate)
{
    if (gate->watching) {
        pthread_mutex_lock(&gate->lock);
        gate->quit = true;
        pthread_cond_signal(&gate->work);
        if (weir_gate_client_of(gate)) {
            weir_gate_port_call(weir_gate_client_of(gate)->port);
        }
        pthread_mutex_unlock(&gate->lock);
        pthread_join(gate->watcher, NULL);
    }
    weir_predict_destroy(gate->predict);
    for (struct weir_gate_item *item; (item = WEIR_POP(gate->free_items));) {
        free(item);
    }
    free(gate->orders.ring);
    pthread_cond_destroy(&gate->work);
    pthread_mutex_destroy(&gate->lock);
    free(gate);
}

static void init_locks(struct weir_gate *gate)
{
    pthread_mutexattr_t mutex;

    pthread_mutexattr_init(&mutex);
    if (gate->spin) { /* threads hold the lock for a shorter time than a wake-up takes */
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

    WEIR_FAIL_IF(!gate, WEIR_ERR_NO_MEMORY);
    gate->ops = params->ops;
    gate->user = params->user;
    gate->spin_page = params->spin;
    gate->item_room = params->item_room;
    gate->device = params->device;
    gate->share_pct = params->share_pct;
    gate->spin = params->real && cores >= MANY_CORES;
    gate->spinners_max = gate->spin ? (uint32_t)cores / SPINNERS : 0;
    gate->levels = params->levels;
    memcpy(gate->uuid, params->uuid, sizeof gate->uuid);
    init_locks(gate);
    weir_scheduler_config(params->settings, params->sms, params->fill, &gate->config);
    enum weir_status status = weir_predict_create(PREDICT_KEYS, &gate->predict);
    if (status != WEIR_OK) {
        destroy(gate);
        return status;
    }
    gate->watching = pthread_create(&gate->watcher, NULL, weir_gate_watch, gate) == 0;
    if (!gate->watching) {
        destroy(gate);
        return WEIR_ERR_NO_MEMORY;
    }
    *ret_gate = gate;
    return WEIR_OK;
}

/* ---------------------------------------------------------------- end */

static void log_counts(struct weir_gate *gate)
{
    pthread_mutex_lock(&gate->lock);
    uint64_t passed = gate->passed.gone;
    for (uint32_t i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        passed += gate->members[i].passed;
    }
    pthread_mutex_unlock(&gate->lock);
    weir_log_info("sched: device=%u passed=%llu stuck=%llu left=%u", gate->device,
                  (unsigned long long)passed, (unsigned long long)gate->passed.stuck,
                  gate->n_items);
}

void weir_gate_destroy(struct weir_gate *gate)
{
    if (gate) {
        log_counts(gate);
        destroy(gate);
    }
}

/* ---------------------------------------------------------------- tenants */

void weir_gate_tenant_remove(struct weir_gate *gate, uint32_t slot)
{
    struct weir_gate_member *member = &gate->members[slot];

    WEIR_LOCKED(&gate->lock);
    gate->passed.gone += member->passed;
    *member = (struct weir_gate_member){0}; /* another tenant may get the slot */
}

void weir_gate_tenant_usage(struct weir_gate *gate, uint32_t slot, struct weir_status_tenant *row)
{
    const struct weir_gate_member *member = &gate->members[slot];

    WEIR_LOCKED(&gate->lock);
    row->copy_h2d_bytes += member->bytes[0];
    row->copy_d2h_bytes += member->bytes[1];
    row->items += member->passed;
    for (const struct weir_gate_queue *q = gate->queues; q; q = q->next) {
        if (q->member == member) {
            row->items += atomic_load_explicit(&q->passed, memory_order_relaxed);
            row->copy_h2d_bytes += atomic_load_explicit(&q->bytes[0], memory_order_relaxed);
            row->copy_d2h_bytes += atomic_load_explicit(&q->bytes[1], memory_order_relaxed);
        }
    }
}
