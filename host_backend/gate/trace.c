/*
 * Records a gate's schedule trace. The scheduler's records go into a ring under the gate's lock,
 * and a thread writes them to the file, so that a slow disk delays no session.
 *
 * Only what the scheduler decides about can be recorded. So no work passes undecided meanwhile, and
 * work that has passed before is reported to the scheduler first. A scheduler that already has
 * tenants knows things that are not in the file: such a trace is marked as begun in the middle, and
 * it cannot be replayed exactly.
 */
#include "host_backend/gate/private.h"

#include "base/log.h"
#include "base/thread.h"
#include "sched/trace/trace.h"
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define RING_RECORDS 65536u /* 5 MiB */
#define FLUSH_NS     (10 * WEIR_NS_PER_MS)

struct weir_gate_trace {
    struct weir_sched_trace *trace;
    uint64_t records; /* under the gate's lock */
    pthread_t flusher;
    pthread_mutex_t lock; /* guards quit */
    pthread_cond_t wake;
    bool quit;
};

void weir_gate_on_record(void *user, const struct weir_sched_record *record)
{
    struct weir_gate *gate = user;

    if (gate->trace != NULL) {
        gate->trace->records += weir_sched_trace_put(gate->trace->trace, record);
    }
}

void weir_gate_trace_name_locked(struct weir_gate *gate, const struct weir_gate_member *member)
{
    if (gate->trace != NULL && member->id != 0) {
        weir_sched_trace_tenant_name(gate->trace->trace, weir_clock_now_ns(), member->id,
                                     member->name);
    }
}

void weir_gate_trace_policy_locked(struct weir_gate *gate, int kind, const char *name)
{
    if (gate->trace != NULL) {
        weir_sched_trace_policy(gate->trace->trace, weir_clock_now_ns(), (uint8_t)kind, name);
    }
}

/* ---------------------------------------------------------------- start */

static void *flush(void *user)
{
    struct weir_gate_trace *t = user;

    (void)prctl(PR_SET_NAME, "weir-trace");
    pthread_mutex_lock(&t->lock);
    while (!t->quit) {
        uint64_t end_ns = weir_clock_now_ns() + FLUSH_NS;
        struct timespec end = {(time_t)(end_ns / WEIR_NS_PER_S), (long)(end_ns % WEIR_NS_PER_S)};

        (void)pthread_cond_timedwait(&t->wake, &t->lock, &end);
        pthread_mutex_unlock(&t->lock);
        (void)weir_sched_trace_flush(t->trace); /* that it failed is told at the end */
        pthread_mutex_lock(&t->lock);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

static uint64_t wall_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * WEIR_NS_PER_S + (uint64_t)now.tv_nsec;
}

static void put_tenant(struct weir_gate_trace *t, const struct weir_gate_member *member,
                       uint64_t now_ns)
{
    const struct weir_sched_record record = {.at_ns = now_ns,
                                             .tenant = member->id,
                                             .kind = WEIR_SCHED_REC_TENANT_ADD,
                                             .value = weir_sched_tenant_packed(&member->params)};

    t->records += weir_sched_trace_put(t->trace, &record);
    weir_sched_trace_tenant_name(t->trace, now_ns, member->id, member->name);
}

/* What the scheduler knows at the beginning. */
static void put_beginning_locked(struct weir_gate *gate, struct weir_gate_trace *t, uint64_t now_ns)
{
    for (int kind = 0; kind < WEIR_POLICY_KIND_COUNT; kind++) {
        if (gate->policies.policy[kind] != NULL) {
            weir_sched_trace_policy(t->trace, now_ns, (uint8_t)kind,
                                    gate->policies.policy[kind]->name);
        }
    }
    for (uint32_t i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        if (gate->members[i].id != 0) {
            put_tenant(t, &gate->members[i], now_ns);
        }
    }
    for (struct weir_gate_queue *q = gate->queues; q != NULL; q = q->next) {
        const struct weir_sched_record record = {
            .at_ns = now_ns,
            .tenant = q->member->id,
            .queue = q->id,
            .value = weir_sched_queue_packed(q->sm_limit_pct, q->domain),
            .kind = WEIR_SCHED_REC_QUEUE_ADD};

        t->records += weir_sched_trace_put(t->trace, &record);
    }
}

/* Let nothing pass undecided any more, and report what has passed. */
static void close_way_locked(struct weir_gate *gate, uint64_t now_ns)
{
    weir_sched_id alone = atomic_load(&gate->shared->alone);

    weir_sched_allow_alone(gate->sched, false);
    (void)weir_sched_close(gate->sched);
    for (struct weir_gate_queue *q = gate->queues; q != NULL; q = q->next) {
        if (alone != 0 && q->member->id == alone) {
            weir_gate_look_locked(q, now_ns);
            weir_gate_adopt_locked(q, now_ns);
        }
    }
}

static bool has_members(const struct weir_gate *gate)
{
    for (uint32_t i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        if (gate->members[i].id != 0) {
            return true;
        }
    }
    return false;
}

static enum weir_status make_flusher(struct weir_gate_trace *t)
{
    bool made;

    pthread_mutex_init(&t->lock, NULL);
    weir_thread_condition_init(&t->wake);
    made = pthread_create(&t->flusher, NULL, flush, t) == 0;
    if (!made) {
        pthread_cond_destroy(&t->wake);
        pthread_mutex_destroy(&t->lock);
    }
    return made ? WEIR_OK : WEIR_ERR_NO_MEMORY;
}

/* Takes fd. */
static enum weir_status start(struct weir_gate *gate, int fd)
{
    struct weir_gate_trace *t = calloc(1, sizeof *t);
    enum weir_status status = WEIR_ERR_NO_MEMORY;
    uint64_t now_ns;

    if (t == NULL) {
        close(fd);
        return status;
    }
    pthread_mutex_lock(&gate->lock);
    status = weir_sched_trace_create(&gate->config, has_members(gate) ? WEIR_SCHED_TRACE_MIDDLE : 0,
                                     wall_ns(), RING_RECORDS, fd, &t->trace);
    if (status == WEIR_OK) {
        status = make_flusher(t);
        if (status != WEIR_OK) {
            (void)weir_sched_trace_destroy(t->trace);
        }
    }
    if (status == WEIR_OK) {
        now_ns = weir_clock_now_ns();
        weir_sched_tick(gate->sched, now_ns); /* its clock: what follows is not before this */
        put_beginning_locked(gate, t, now_ns);
        gate->trace = t;
        close_way_locked(gate, now_ns);
        weir_gate_kick_locked(gate); /* it carries out what this has led to: no context here */
    } else {
        free(t);
    }
    pthread_mutex_unlock(&gate->lock);
    return status;
}

void weir_gate_trace_start(struct weir_gate *gate, int fd, char *text, size_t bytes)
{
    enum weir_status status;
    struct stat info;

    if (gate->trace != NULL || fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        snprintf(text, bytes, "error: %s",
                 gate->trace != NULL ? "the device is being recorded already"
                                     : "a regular file is wanted");
        close(fd);
        return;
    }
    status = start(gate, fd);
    if (status != WEIR_OK) {
        snprintf(text, bytes, "error: %s", weir_status_text(status));
        return;
    }
    snprintf(text, bytes, "recording device %u", gate->device);
    weir_log_info("sched: recording device=%u", gate->device);
}

/* ---------------------------------------------------------------- stop */

bool weir_gate_trace_stop(struct weir_gate *gate, char *text, size_t bytes)
{
    struct weir_gate_trace *t;
    uint64_t lost, records;
    enum weir_status status;

    pthread_mutex_lock(&gate->lock);
    t = gate->trace;
    gate->trace = NULL;
    if (t != NULL) {
        weir_sched_allow_alone(gate->sched, true);
    }
    pthread_mutex_unlock(&gate->lock);
    if (t == NULL) {
        return false;
    }
    pthread_mutex_lock(&t->lock);
    t->quit = true;
    pthread_cond_signal(&t->wake);
    pthread_mutex_unlock(&t->lock);
    pthread_join(t->flusher, NULL);
    lost = weir_sched_trace_lost(t->trace);
    records = t->records;
    status = weir_sched_trace_destroy(t->trace);
    pthread_cond_destroy(&t->wake);
    pthread_mutex_destroy(&t->lock);
    free(t);
    snprintf(text, bytes, "%sdevice %u: %llu records, %llu lost%s",
             status == WEIR_OK ? "" : "error: ", gate->device, (unsigned long long)records,
             (unsigned long long)lost,
             status == WEIR_OK ? "" : ", and the file could not be written");
    weir_log_info("sched: recorded device=%u records=%llu lost=%llu status=\"%s\"", gate->device,
                  (unsigned long long)records, (unsigned long long)lost, weir_status_text(status));
    return true;
}
