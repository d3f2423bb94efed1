/*
 * Counts the SM time of each session, and of each tenant's programs by their names. Also counts how
 * long they waited, by cause and by the tenant waited for.
 *
 * A guest can make up as many program names as it likes. So each tenant has 17 entries. The first
 * 16 names get one each, until the tenant is removed. The last entry counts all programs with
 * further names together.
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

/* The slot + 1 of the tenant that a queue's work waited for. */
static uint64_t slot_of(const struct served_queue *queue, weir_sched_id other)
{
    struct weir_sched_tenant_info info;

    if (other == 0) {
        return 0;
    }
    return weir_sched_tenant_query(queue->gpu->sched, other, &info) == WEIR_OK
               ? (uintptr_t)info.params.user
               : WEIR_LINK_OTHER_GONE;
}

/* Add a queue's wait times to a table in which tenants are slots. */
static void add_waits(const struct served_queue *queue, struct weir_sched_wait *rows)
{
    const struct weir_sched_wait *own = weir_sched_queue_waits(queue->gpu->sched, queue->id);

    for (uint32_t i = 0; own && i < WEIR_SCHED_WAIT_ROWS; i++) {
        if (own[i].ns != 0) {
            weir_sched_wait_add(rows,
                                &(struct weir_sched_wait){.other = slot_of(queue, own[i].other),
                                                          .ns = own[i].ns,
                                                          .cause = own[i].cause});
        }
    }
}

void served_use_end(struct served_queue *queue)
{
    queue->use->sm_ns += served_queue_sm_ns(queue);
    add_waits(queue, queue->use->waits);
}

void served_use_forget(struct weir_gate_process *process, uint32_t slot)
{
    for (uint32_t i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        for (struct served_use *u = process->tenants[i].uses;
             process->tenants[i].known && u < process->tenants[i].uses + SERVED_USES; u++) {
            for (uint32_t k = 0; k < WEIR_SCHED_WAIT_ROWS; k++) {
                u->waits[k].other =
                    u->waits[k].other == slot + 1 ? WEIR_LINK_OTHER_GONE : u->waits[k].other;
            }
        }
    }
}

/* The use of a program, including that of its live queues. */
static void add_live(const struct weir_gate_process *process, const struct served_use *use,
                     struct weir_link_use *sum)
{
    sum->sm_ns = use->sm_ns;
    memcpy(sum->waits, use->waits, sizeof sum->waits);
    for (uint32_t i = 0; i < process->n_ports; i++) {
        for (struct served_queue *q = process->ports[i]->queues; q; q = q->next) {
            if (q->use == use) {
                sum->sm_ns += served_queue_sm_ns(q);
                add_waits(q, sum->waits);
            }
        }
    }
}

void weir_gate_process_uses(struct weir_gate_process *process, weir_gate_use_fn tell, void *user)
{
    for (uint32_t i = 0; i < process->n_ports; i++) {
        for (struct served_queue *q = process->ports[i]->queues; q; q = q->next) {
            struct weir_link_use use = {.port = process->ports[i]->id,
                                        .tenant_index = q->tenant,
                                        .session = q->session,
                                        .sm_ns = served_queue_sm_ns(q)};

            add_waits(q, use.waits);
            tell(user, &use);
        }
    }
    for (uint32_t i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        for (const struct served_use *u = process->tenants[i].uses;
             process->tenants[i].known && u < process->tenants[i].uses + SERVED_USES; u++) {
            struct weir_link_use use = {.tenant_index = i};

            if (u->program[0] != 0) {
                memcpy(use.program, u->program, sizeof use.program);
                add_live(process, u, &use);
                tell(user, &use);
            }
        }
    }
}
