/* Sends tenants' settings to workers and the gate process, and makes the account pages that a
 * tenant's workers share. */
#include "host_backend/supervisor/state/supervisor.h"
#include "host_backend/supervisor/state/worker_link.h"
#include "host_backend/supervisor/workers/tenant_row.h"
#include "host_backend/supervisor/workers/worker_for.h"
#include "host_backend/supervisor/workers/workers.h"

#include "base/log.h"
#include "host_backend/config/shared_page.h"

static struct weir_link_message message_of(const struct weir_supervisor *sup,
                                           const struct weir_sup_tenant *tenant, uint32_t type)
{
    return (struct weir_link_message){.type = type,
                                      .tenant = {.index = tenant->index,
                                                 .generation = tenant->generation,
                                                 .drain = weir_sup_drain_of(sup, tenant),
                                                 .config = tenant->config}};
}

/* Does the tenant have its account page? It is made for the tenant's first worker. */
static bool has_account(struct weir_supervisor *sup, struct weir_sup_tenant *tenant)
{
    void *page;

    if (!tenant->account && weir_shared_page_create("weir-account", sizeof *tenant->account,
                                                    &tenant->account_fd, &page) == WEIR_OK) {
        tenant->account = page;
        weir_sup_tenant_note(sup, tenant);
    }
    return tenant->account != NULL;
}

void weir_sup_tenant_join(struct weir_supervisor *sup, struct weir_sup_tenant *tenant, int worker)
{
    struct weir_link_message message = message_of(sup, tenant, WEIR_LINK_TENANT);

    if (!weir_sup_worker_is_told(sup, worker)) {
        return;
    }
    bool shares = has_account(sup, tenant);
    if (!shares) {
        weir_log_error("supervisor: a worker counts for itself worker=%d tenant=%s", worker,
                       tenant->config.name);
    }
    message.tenant.place = (uint32_t)worker;
    message.tenant.many = weir_sup_by_program(tenant);
    weir_sup_gate_worker_serves(sup, worker, tenant);
    (void)weir_sup_worker_send(sup, worker, &message, shares ? tenant->account_fd : -1);
}

void weir_sup_tenant_tell(struct weir_supervisor *sup, struct weir_sup_tenant *tenant,
                          uint32_t type)
{
    struct weir_link_message message = message_of(sup, tenant, type);

    weir_sup_tenant_note(sup, tenant);
    (void)weir_sup_gate_send(sup, &message, -1);
    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        if (!weir_sup_worker_is_told(sup, i) || !weir_sup_serves(sup, i, tenant)) {
            continue;
        }
        if (type == WEIR_LINK_TENANT) {
            weir_sup_tenant_join(sup, tenant, i); /* the tenant may be new to this worker */
        } else {
            (void)weir_sup_worker_send(sup, i, &message, -1);
        }
    }
}

void weir_sup_tenants_serve(struct weir_supervisor *sup, int worker)
{
    for (int i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        const struct weir_sup_tenant *tenant = &sup->tenants[i];

        if (tenant->used && !tenant->gone && weir_sup_serves(sup, worker, tenant)) {
            weir_sup_gate_worker_serves(sup, worker, tenant);
        }
    }
}

void weir_sup_tenants_tell_gate(struct weir_supervisor *sup)
{
    for (int i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        if (sup->tenants[i].used && !sup->tenants[i].gone) {
            struct weir_link_message message = message_of(sup, &sup->tenants[i], WEIR_LINK_TENANT);

            (void)weir_sup_gate_send(sup, &message, -1);
        }
    }
}

void weir_sup_tenants_retell(struct weir_supervisor *sup, int worker)
{
    for (int i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        struct weir_sup_tenant *tenant = &sup->tenants[i];
        struct weir_link_message gone = message_of(sup, tenant, WEIR_LINK_TENANT_GONE);

        if (!tenant->used || !weir_sup_serves(sup, worker, tenant)) {
            continue;
        }
        if (tenant->gone) {
            (void)weir_sup_worker_send(sup, worker, &gone, -1);
        } else {
            weir_sup_tenant_join(sup, tenant, worker);
        }
    }
}

void weir_sup_tenants_settle(struct weir_supervisor *sup, int worker)
{
    for (int i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        if (sup->tenants[i].account) {
            weir_account_page_settle(sup->tenants[i].account, (uint32_t)worker);
        }
    }
}
