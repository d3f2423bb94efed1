/* Handles the gate process's reports about sessions and programs: SM time used, and wait times by
 * cause and tenant. */
#include "host_backend/supervisor/admin.h"
#include "host_backend/supervisor/state/supervisor.h"
#include "host_backend/supervisor/watch/append.h"

#include <stdio.h>
#include <string.h>

static const char *name_of_other(const struct weir_supervisor *sup, uint64_t other)
{
    const struct weir_sup_tenant *tenant =
        other != 0 && other <= WEIR_CONFIG_TENANTS_MAX ? &sup->tenants[other - 1] : NULL;

    return other == 0                                ? ""
           : tenant && tenant->used && !tenant->gone ? tenant->config.name
                                                     : WEIR_STATUS_OTHER_GONE;
}

/* Do two rows of wait times have the same program, cause and tenant? */
static bool is_same(const struct weir_status_wait *a, const struct weir_status_wait *b)
{
    return a->session == b->session && a->worker == b->worker && strcmp(a->cause, b->cause) == 0 &&
           strcmp(a->other, b->other) == 0 && strcmp(a->program, b->program) == 0 &&
           strcmp(a->tenant, b->tenant) == 0;
}

/* Add waits of a session's queue or a program to the rows from `first` on. */
static void add_waits(struct weir_supervisor *sup, const struct weir_link_use *use,
                      struct weir_status_wait row, size_t first)
{
    struct weir_status_report *g = &sup->admin.gathered;

    snprintf(row.tenant, sizeof row.tenant, "%s", sup->tenants[use->tenant_index].config.name);
    for (uint32_t i = 0; i < WEIR_SCHED_WAIT_ROWS; i++) {
        const struct weir_sched_wait *wait = &use->waits[i];
        size_t k = first;

        if (wait->ns == 0) {
            continue;
        }
        row.wait_ns = wait->ns;
        snprintf(row.cause, sizeof row.cause, "%s", weir_sched_causes[wait->cause].word);
        snprintf(row.other, sizeof row.other, "%s", name_of_other(sup, wait->other));
        while (k < g->n_waits && !is_same(&g->waits[k], &row)) {
            k++;
        }
        if (k < g->n_waits) {
            g->waits[k].wait_ns += row.wait_ns;
        } else {
            weir_sup_append((void **)&g->waits, &g->n_waits, &row, sizeof row);
        }
    }
}

void weir_sup_admin_use(struct weir_supervisor *sup, const struct weir_link_use *use)
{
    struct weir_status_program row = {.sm_ns = use->sm_ns};
    struct weir_link_use mine = *use;

    if (use->tenant_index >= WEIR_CONFIG_TENANTS_MAX) {
        return;
    }
    if (use->port == 0) {
        struct weir_status_wait wait = {.session = 0};

        snprintf(row.tenant, sizeof row.tenant, "%s", sup->tenants[use->tenant_index].config.name);
        memcpy(row.program, use->program, sizeof row.program);
        row.program[sizeof row.program - 1] = 0;
        weir_sup_append((void **)&sup->admin.gathered.programs, &sup->admin.gathered.n_programs,
                        &row, sizeof row);
        memcpy(wait.program, row.program, sizeof wait.program);
        add_waits(sup, use, wait, sup->admin.gathered.n_waits);
        return;
    }
    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        if (sup->workers[i].used && sup->workers[i].gate.port == use->port) {
            mine.port = (uint32_t)sup->workers[i].pid;
            weir_sup_append((void **)&sup->admin.uses, &sup->admin.n_uses, &mine, sizeof mine);
        }
    }
}

/* Does the session belong to the tenant? A worker may name any session as a queue's. */
static bool is_of(const struct weir_supervisor *sup, const struct weir_link_use *use,
                  const struct weir_status_session *session)
{
    return session->worker == use->port && session->id == use->session &&
           strcmp(session->tenant, sup->tenants[use->tenant_index].config.name) == 0;
}

void weir_sup_uses_join(struct weir_supervisor *sup)
{
    for (size_t i = 0; i < sup->admin.gathered.n_sessions; i++) {
        struct weir_status_session *s = &sup->admin.gathered.sessions[i];
        size_t first = sup->admin.gathered.n_waits;

        for (size_t k = 0; k < sup->admin.n_uses; k++) {
            const struct weir_link_use *use = &sup->admin.uses[k];

            if (is_of(sup, use, s)) {
                s->sm_ns += use->sm_ns;
                add_waits(sup, use,
                          (struct weir_status_wait){.session = s->id, .worker = s->worker}, first);
            }
        }
    }
    sup->admin.n_uses = 0;
}
