/*
 * Counts the use of the SMs by each session, and by the programs of a tenant by their names.
 *
 * A guest can make up as many program names as it likes. So each tenant has 17 entries: the first
 * 16 names that come get one each, until the tenant is removed. The last entry counts all programs
 * with further names together.
 */
#include "host_backend/gate/process/served.h"

#include <stdio.h>
#include <string.h>

#define OTHERS "other programs"

static struct served_use *place_for(struct served_tenant *tenant, const char *program)
{
    struct served_use *others = &tenant->uses[SERVED_USES - 1];

    for (struct served_use *u = tenant->uses; u < others; u++) {
        if (u->program[0] == 0) {
            snprintf(u->program, sizeof u->program, "%s", program);
        }
        if (strcmp(u->program, program) == 0) {
            return u;
        }
    }
    snprintf(others->program, sizeof others->program, "%s", OTHERS);
    return others;
}

void served_use_begin(struct weir_gate_process *process, struct served_queue *queue,
                      const struct weir_gate_request *request)
{
    char program[WEIR_GATE_PROGRAM_BYTES];

    _Static_assert(sizeof program == 3 * sizeof(uint64_t), "as the request has room for");
    queue->session = weir_gate_port_named(request, program);
    queue->use = place_for(&process->tenants[queue->tenant], program[0] != 0 ? program : OTHERS);
}

void served_use_end(struct served_queue *queue)
{
    queue->use->sm_ns += served_queue_sm_ns(queue);
}

/* The use of a program, including its queues that live. */
static uint64_t sm_ns_of(const struct weir_gate_process *process, const struct served_use *use)
{
    uint64_t sm_ns = use->sm_ns;

    for (uint32_t i = 0; i < process->n_ports; i++) {
        for (struct served_queue *q = process->ports[i]->queues; q; q = q->next) {
            sm_ns += q->use == use ? served_queue_sm_ns(q) : 0;
        }
    }
    return sm_ns;
}

void weir_gate_process_uses(struct weir_gate_process *process, weir_gate_use_fn tell, void *user)
{
    for (uint32_t i = 0; i < process->n_ports; i++) {
        for (struct served_queue *q = process->ports[i]->queues; q; q = q->next) {
            tell(user, &(struct weir_link_use){.port = process->ports[i]->id,
                                               .tenant_index = q->tenant,
                                               .session = q->session,
                                               .sm_ns = served_queue_sm_ns(q)});
        }
    }
    for (uint32_t i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        for (const struct served_use *u = process->tenants[i].uses;
             process->tenants[i].known && u < process->tenants[i].uses + SERVED_USES; u++) {
            struct weir_link_use use = {.tenant_index = i, .sm_ns = sm_ns_of(process, u)};

            if (u->program[0] != 0) {
                memcpy(use.program, u->program, sizeof use.program);
                tell(user, &use);
            }
        }
    }
}
