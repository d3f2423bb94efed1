/* Tenants: their settings, what they have used, and their queues in the GPUs' schedulers. */
#include "host_backend/gate/process/served.h"

#include "base/log.h"
#include "host_backend/config/control.h"
#include <stdio.h>
#include <string.h>

/* ---------------------------------------------------------------- adding and removing them */

static struct weir_sched_member member_of(void *process, uint32_t gpu, uint32_t slot)
{
    const struct served_gpu *g = &((struct weir_gate_process *)process)->gpus[gpu];

    return (struct weir_sched_member){g->sched, g->members[slot].id};
}

void served_spans_begin(struct weir_gate_process *process)
{
    process->spans = (struct weir_sched_spans){.member = member_of,
                                               .user = process,
                                               .tenants = process->span_tenants,
                                               .n_tenants = WEIR_CONFIG_TENANTS_MAX,
                                               .n_devices = process->n_gpus,
                                               .next_ns = UINT64_MAX};
}

struct weir_sched_tenant_params served_params(const struct served_gpu *gpu, uint32_t slot)
{
    struct weir_sched_tenant_params params = gpu->process->tenants[slot].params;
    struct weir_sched_tenant_info info;

    if (gpu->members[slot].id != 0 &&
        weir_sched_tenant_query(gpu->sched, gpu->members[slot].id, &info) == WEIR_OK) {
        params.span = info.params.span;
        params.span_more = info.params.span_more;
    }
    return params;
}

void weir_gate_process_tenant_set(struct weir_gate_process *process, uint32_t slot,
                                  const struct weir_tenant_config *settings)
{
    struct served_tenant *tenant = &process->tenants[slot];

    snprintf(tenant->name, sizeof tenant->name, "%s", settings->name);
    tenant->params =
        (struct weir_sched_tenant_params){.name = tenant->name,
                                          .weight = settings->weight,
                                          .min_share = settings->min_share_pct,
                                          .sm_limit = settings->sm_limit_pct,
                                          .priority = settings->priority,
                                          .exclusive = settings->share == WEIR_SHARE_NO};
    tenant->known = true;
    for (uint32_t i = 0; i < process->n_gpus; i++) {
        struct served_gpu *gpu = &process->gpus[i];
        const struct weir_sched_tenant_params params = served_params(gpu, slot);

        if (gpu->members[slot].id != 0 &&
            weir_sched_tenant_set(gpu->sched, weir_clock_now_ns(), gpu->members[slot].id,
                                  &params) != WEIR_OK) {
            weir_log_warn("sched: settings refused tenant=%s", tenant->name);
        }
    }
}

/* Forget a tenant in a port: its slot may become another tenant's. */
static void leave_port(struct served_port *port, uint32_t tenant)
{
    struct served_queue *next;

    served_tenants_put(&port->may_serve, tenant, false);
    for (uint32_t i = 0; i < WEIR_GATE_PORT_DEVICES; i++) {
        served_tenants_put(&port->told[i], tenant, false);
    }
    for (struct served_queue *q = port->queues; q; q = next) {
        next = q->next;
        if (q->tenant == tenant) {
            served_queue_close(q);
        }
    }
}

/* All SM time of a tenant on the GPU. */
static uint64_t sm_ns_of(const struct served_gpu *gpu, const struct served_member *member)
{
    struct weir_sched_tenant_info info;

    if (member->id == 0 || weir_sched_tenant_query(gpu->sched, member->id, &info) != WEIR_OK) {
        return 0;
    }
    return info.service_ns[WEIR_SCHED_COMPUTE] + member->alone_sm_ns;
}

static void leave_gpu(struct served_gpu *gpu, struct served_member *member)
{
    gpu->sm_ns_gone += sm_ns_of(gpu, member);
    if (member->id != 0) {
        (void)weir_sched_tenant_remove(gpu->sched, weir_clock_now_ns(), member->id);
    }
    for (int k = 0; k < WEIR_GATE_CROWDS; k++) {
        if (gpu->last_member[k] == member) {
            gpu->last_member[k] = NULL;
        }
    }
    if (member->owner != 0) {
        weir_predict_owner_goes(gpu->predict, member->owner);
    }
    *member = (struct served_member){0};
}

void weir_gate_process_tenant_remove(struct weir_gate_process *process, uint32_t slot)
{
    for (uint32_t i = 0; i < process->n_ports; i++) {
        leave_port(process->ports[i], slot);
    }
    for (uint32_t i = 0; i < process->n_gpus; i++) {
        leave_gpu(&process->gpus[i], &process->gpus[i].members[slot]);
    }
    process->tenants[slot].known = false;
    served_use_forget(process, slot);
    memset(process->tenants[slot].uses, 0, sizeof process->tenants[slot].uses);
}

/* ---------------------------------------------------------------- their queues */

uint64_t served_owner_of(struct served_gpu *gpu, uint32_t tenant)
{
    struct served_member *member = &gpu->members[tenant];

    if (member->owner == 0 &&
        weir_predict_owner_comes(gpu->predict, gpu->process->tenants[tenant].name,
                                 &member->owner) != WEIR_OK) {
        weir_log_warn("gate: no memory to learn what work takes tenant=%s",
                      gpu->process->tenants[tenant].name);
    }
    return member->owner;
}

enum weir_status served_queue_enlist(struct weir_gate_process *process, struct served_queue *queue)
{
    struct served_gpu *gpu = queue->gpu;
    struct served_member *member = &gpu->members[queue->tenant];
    struct weir_sched_tenant_params params = process->tenants[queue->tenant].params;
    enum weir_status status = WEIR_OK;

    if (member->id == 0) {
        params.user = (void *)(uintptr_t)(queue->tenant + 1); /* uses.c */
        status = weir_sched_tenant_add(gpu->sched, weir_clock_now_ns(), &params, &member->id);
        served_trace_name(gpu, queue->tenant);
    }
    queue->member = member;
    return status == WEIR_OK ? weir_sched_queue_add(gpu->sched, member->id, queue->sm_limit_pct,
                                                    queue->port->domain, &queue->id)
                             : status;
}

void served_queue_charge(struct served_queue *queue, uint8_t class, uint64_t took_ns)
{
    struct served_member *member = queue->member;

    if (weir_gate_is_copy((enum weir_sched_class) class)) {
        member->alone_ns[class == WEIR_SCHED_D2H] += took_ns;
    } else {
        member->alone_sm_ns += took_ns * queue->gpu->of->sms;
        queue->alone_sm_ns += took_ns * queue->gpu->of->sms;
    }
}

uint64_t served_queue_sm_ns(const struct served_queue *queue)
{
    return weir_sched_queue_service(queue->gpu->sched, queue->id) + queue->alone_sm_ns;
}

/* ---------------------------------------------------------------- what they have used */

static void add_usage(const struct served_gpu *gpu, const struct served_member *member,
                      struct weir_status_tenant *row)
{
    struct weir_sched_tenant_info info;

    if (member->id == 0 || weir_sched_tenant_query(gpu->sched, member->id, &info) != WEIR_OK) {
        return;
    }
    row->service_sm_ns += info.service_ns[WEIR_SCHED_COMPUTE] + member->alone_sm_ns;
    row->copy_h2d_ns += info.service_ns[WEIR_SCHED_TO_DEVICE] + member->alone_ns[0];
    row->copy_d2h_ns += info.service_ns[WEIR_SCHED_FROM_DEVICE] + member->alone_ns[1];
    row->wait_ns += info.waited_ns;
    row->waits_10us += info.waits[0];
    row->waits_100us += info.waits[1];
    row->waits_1ms += info.waits[2];
    row->waits_10ms += info.waits[3];
    row->waits_100ms += info.waits[4];
    row->waits_1s += info.waits[5];
    row->waits_longer += info.waits[6];
    row->stops += info.stops;
    row->items += member->gated;
}

bool weir_gate_process_usage(struct weir_gate_process *process, uint32_t slot,
                             struct weir_status_tenant *row)
{
    *row = (struct weir_status_tenant){.scheduled = true};
    snprintf(row->name, sizeof row->name, "%s", process->tenants[slot].name);
    for (uint32_t i = 0; i < process->n_gpus; i++) {
        add_usage(&process->gpus[i], &process->gpus[i].members[slot], row);
    }
    return process->tenants[slot].known;
}

bool weir_gate_process_device(struct weir_gate_process *process, uint32_t gpu,
                              struct weir_status_device *row)
{
    const struct served_gpu *g = &process->gpus[gpu];

    WEIR_FAIL_IF(gpu >= process->n_gpus, false);
    weir_status_device_init(row, (const uint8_t *)g->uuid);
    row->sms = g->of->sms;
    row->scheduled = 1;
    row->sm_ns = g->sm_ns_gone;
    for (uint32_t i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        row->sm_ns += sm_ns_of(g, &g->members[i]);
    }
    return true;
}
