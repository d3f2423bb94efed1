/* Chooses the worker for a tenant's programs and machines: see worker_for.h. */
#include "host_backend/supervisor/workers/worker_for.h"

#include "host_backend/supervisor/state/supervisor.h"
#include "host_backend/supervisor/workers/tenant_row.h"
#include "host_backend/supervisor/workers/workers.h"

#include "base/log.h"
#include <stdio.h>
#include <string.h>

bool weir_sup_has_own_worker(const struct weir_supervisor *sup,
                             const struct weir_sup_tenant *tenant)
{
    return tenant->worker >= 0 && sup->workers[tenant->worker].tenant == (int)tenant->index;
}

enum weir_drain weir_sup_drain_of(const struct weir_supervisor *sup,
                                  const struct weir_sup_tenant *tenant)
{
    return sup->drain.all || tenant->drained ? WEIR_DRAIN_ON : WEIR_DRAIN_OFF;
}

static bool is_same_kind(const struct weir_sup_worker *a, const struct weir_sup_worker *b)
{
    return a->kind == b->kind && a->tenant == b->tenant && strcmp(a->group, b->group) == 0 &&
           strcmp(a->devices, b->devices) == 0;
}

int weir_sup_worker_for(struct weir_supervisor *sup, const struct weir_sup_tenant *tenant)
{
    struct weir_sup_worker wanted = {.kind = WEIR_WORKER_TENANT, .tenant = (int)tenant->index};
    int worker;

    if (weir_sup_uses_shared_worker(sup, tenant) && tenant->faults.quarantine_end_ns == 0) {
        wanted.kind = WEIR_WORKER_SHARED;
        wanted.tenant = -1;
        snprintf(wanted.group, sizeof wanted.group, "%s", weir_sup_group_of(tenant));
    }
    snprintf(wanted.devices, sizeof wanted.devices, "%s", weir_sup_devices_of(sup, tenant));
    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        if (sup->workers[i].used && is_same_kind(&sup->workers[i], &wanted)) {
            return i;
        }
    }
    enum weir_status status = weir_sup_worker_new(sup, &wanted, &worker);
    if (status != WEIR_OK) {
        weir_log_error("supervisor: no worker for a tenant tenant=%s why=\"%s\"",
                       tenant->config.name, weir_sup_no_worker_text(status));
        return -1;
    }
    return worker;
}

bool weir_sup_is_of_program(const struct weir_sup_worker *w, const struct weir_sup_tenant *tenant)
{
    return w->used && w->kind == WEIR_WORKER_PROGRAM && w->tenant == (int)tenant->index;
}

bool weir_sup_serves(const struct weir_supervisor *sup, int worker,
                     const struct weir_sup_tenant *tenant)
{
    return tenant->used &&
           (worker == tenant->worker || weir_sup_is_of_program(&sup->workers[worker], tenant));
}

int weir_sup_machine_worker(struct weir_supervisor *sup, struct weir_sup_tenant *tenant)
{
    if (tenant->worker < 0) {
        tenant->worker = weir_sup_worker_for(sup, tenant);
        if (tenant->worker >= 0 && !tenant->gone) {
            weir_sup_tenant_note(sup, tenant);
            weir_sup_tenant_join(sup, tenant, tenant->worker);
        }
    }
    return tenant->worker;
}

bool weir_sup_takes_guests(const struct weir_supervisor *sup, const struct weir_sup_tenant *tenant)
{
    return tenant->worker >= 0 && sup->workers[tenant->worker].ready &&
           sup->workers[tenant->worker].outbox.n == 0;
}
