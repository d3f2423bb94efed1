/*
 * Records a GPU's schedule trace. The scheduler's records go into a ring, and a thread writes them
 * to the file, so that a slow disk delays nobody.
 *
 * Only work that the scheduler decides about can be recorded. So no work passes undecided during a
 * recording, and work that has passed before is reported to the scheduler first. A scheduler that
 * already has tenants has state that is not in the file: such a trace is marked as begun in the
 * middle, and cannot be replayed exactly.
 */
#include "host_backend/gate/process/served.h"

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

struct served_trace {
    struct weir_sched_trace *trace;
    uint64_t records;
    pthread_t flusher;
    pthread_mutex_t lock; /* guards quit */
    pthread_cond_t wake;
    bool quit;
};

void served_trace_record(void *user, const struct weir_sched_record *record)
{
    struct served_gpu *gpu = user;

    if (gpu->trace) {
        gpu->trace->records += weir_sched_trace_put(gpu->trace->trace, record);
    }
}

void served_trace_name(struct served_gpu *gpu, uint32_t tenant)
{
    if (gpu->trace && gpu->members[tenant].id != 0) {
        weir_sched_trace_tenant_name(gpu->trace->trace, weir_clock_now_ns(),
                                     gpu->members[tenant].id, gpu->process->tenants[tenant].name);
    }
}

void served_trace_policy(struct served_gpu *gpu, int kind, const char *name)
{
    if (gpu->trace) {
        weir_sched_trace_policy(gpu->trace->trace, weir_clock_now_ns(), (uint8_t)kind, name);
    }
}

/* ---------------------------------------------------------------- start */

static void *flush(void *user)
{
    struct served_trace *t = user;
    enum weir_status status = WEIR_OK, before;

    (void)prctl(PR_SET_NAME, "weir-trace");
    pthread_mutex_lock(&t->lock);
    while (!t->quit) {
        (void)weir_thread_condition_wait(&t->wake, &t->lock, weir_clock_now_ns() + FLUSH_NS);
        pthread_mutex_unlock(&t->lock);
        before = status;
        status = weir_sched_trace_flush(t->trace); /* an earlier failure is kept */
        if (status != before) {
            weir_log_warn("sched: a recording cannot be written any more why=\"%s\"",
                          weir_status_text(status));
        }
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

static void put_tenant(const struct served_gpu *gpu, struct served_trace *t, uint32_t tenant,
                       uint64_t now_ns)
{
    const struct served_tenant *of = &gpu->process->tenants[tenant];
    const struct weir_sched_tenant_params params = served_params(gpu, tenant);
    const struct weir_sched_record record = {.at_ns = now_ns,
                                             .tenant = gpu->members[tenant].id,
                                             .kind = WEIR_SCHED_REC_TENANT_ADD,
                                             .value = weir_sched_tenant_packed(&params)};

    t->records += weir_sched_trace_put(t->trace, &record);
    weir_sched_trace_tenant_name(t->trace, now_ns, record.tenant, of->name);
}

static void put_queues(const struct served_gpu *gpu, struct served_trace *t, uint64_t now_ns)
{
    for (uint32_t i = 0; i < gpu->process->n_ports; i++) {
        const struct served_port *port = gpu->process->ports[i];

        for (const struct served_queue *q = port->queues; q; q = q->next) {
            const struct weir_sched_record record = {
                .at_ns = now_ns,
                .tenant = q->member->id,
                .queue = q->id,
                .value = weir_sched_queue_packed(q->sm_limit_pct, port->domain),
                .kind = WEIR_SCHED_REC_QUEUE_ADD};

            t->records += q->gpu == gpu ? weir_sched_trace_put(t->trace, &record) : 0;
        }
    }
}

/* Record the state of the scheduler at the start of the recording. */
static void put_beginning(const struct served_gpu *gpu, struct served_trace *t, uint64_t now_ns)
{
    for (int kind = 0; kind < WEIR_POLICY_KIND_COUNT; kind++) {
        if (gpu->policies.policy[kind]) {
            weir_sched_trace_policy(t->trace, now_ns, (uint8_t)kind,
                                    gpu->policies.policy[kind]->name);
        }
    }
    for (uint32_t i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        if (gpu->members[i].id != 0) {
            put_tenant(gpu, t, i, now_ns);
        }
    }
    put_queues(gpu, t, now_ns);
}

static bool has_members(const struct served_gpu *gpu)
{
    for (uint32_t i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        if (gpu->members[i].id != 0) {
            return true;
        }
    }
    return false;
}

static enum weir_status make_flusher(struct served_trace *t)
{
    pthread_mutex_init(&t->lock, NULL);
    weir_thread_condition_init(&t->wake);
    bool made = pthread_create(&t->flusher, NULL, flush, t) == 0;
    if (!made) {
        pthread_cond_destroy(&t->wake);
        pthread_mutex_destroy(&t->lock);
    }
    return made ? WEIR_OK : WEIR_ERR_NO_MEMORY;
}

/* Begin a recording; takes fd. */
static enum weir_status start(struct served_gpu *gpu, int fd)
{
    struct served_trace *t = calloc(1, sizeof *t);
    enum weir_status status = WEIR_ERR_NO_MEMORY;
    uint64_t now_ns = weir_clock_now_ns();

    if (!t) {
        close(fd);
        return status;
    }
    status = weir_sched_trace_create(&gpu->config, has_members(gpu) ? WEIR_SCHED_TRACE_MIDDLE : 0,
                                     wall_ns(), RING_RECORDS, fd, &t->trace);
    if (status == WEIR_OK) {
        status = make_flusher(t);
        if (status != WEIR_OK) {
            (void)weir_sched_trace_destroy(t->trace);
        }
    }
    if (status != WEIR_OK) {
        free(t);
        return status;
    }
    weir_sched_tick(gpu->sched, now_ns); /* sets its clock: no later record is before now_ns */
    put_beginning(gpu, t, now_ns);
    gpu->trace = t;
    weir_sched_allow_alone(gpu->sched, false);
    (void)weir_sched_close(gpu->sched); /* so that workers report work that has passed */
    return WEIR_OK;
}

void served_trace_start(struct served_gpu *gpu, int fd, char *text, size_t bytes)
{
    struct stat info;

    if (gpu->trace || fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        snprintf(text, bytes, "error: %s",
                 gpu->trace ? "the device is being recorded already" : "a regular file is wanted");
        close(fd);
        return;
    }
    enum weir_status status = start(gpu, fd);
    if (status != WEIR_OK) {
        snprintf(text, bytes, "error: %s", weir_status_text(status));
        return;
    }
    snprintf(text, bytes, "recording device %u", gpu->index);
    weir_log_info("sched: recording device=%u", gpu->index);
}

/* ---------------------------------------------------------------- stop */

void served_trace_stop(struct served_gpu *gpu, char *text, size_t bytes)
{
    struct served_trace *t = gpu->trace;
    uint64_t lost, records;

    if (!t) {
        return;
    }
    gpu->trace = NULL;
    weir_sched_allow_alone(gpu->sched, true);
    pthread_mutex_lock(&t->lock);
    t->quit = true;
    pthread_cond_signal(&t->wake);
    pthread_mutex_unlock(&t->lock);
    pthread_join(t->flusher, NULL);
    lost = weir_sched_trace_lost(t->trace);
    records = t->records;
    enum weir_status status = weir_sched_trace_destroy(t->trace);
    pthread_cond_destroy(&t->wake);
    pthread_mutex_destroy(&t->lock);
    free(t);
    snprintf(text, bytes, "%sdevice %u: %llu records, %llu lost%s%s",
             status == WEIR_OK ? "" : "error: ", gpu->index, (unsigned long long)records,
             (unsigned long long)lost,
             status == WEIR_OK ? "" : ", and the file could not be written: ",
             status == WEIR_OK ? "" : weir_status_text(status));
    weir_log_info("sched: recorded device=%u records=%llu lost=%llu status=\"%s\"", gpu->index,
                  (unsigned long long)records, (unsigned long long)lost, weir_status_text(status));
}
