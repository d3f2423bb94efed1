/* Logs possible mistakes in a configuration that is valid. */
#include "host_backend/supervisor/state/supervisor.h"
#include "host_backend/supervisor/tenants/tenants.h"
#include "host_backend/supervisor/workers/worker_for.h"

#include "base/log.h"
#include <string.h>

void weir_sup_remark_restart(const struct weir_supervisor *sup, const struct weir_host_config *now)
{
    char keys[400];

    weir_config_restart_keys(&sup->config, now, keys, sizeof keys);
    if (keys[0] != 0) {
        weir_log_warn("supervisor: not reloaded, these change with a restart keys=\"%s\"", keys);
    }
}

/* The memory of a list's devices, which all workers with the same list share. For the host's own
 * list the last known value serves while no worker has it, as when all tenants are drained. */
static uint64_t memory_of(const struct weir_supervisor *sup, const char *devices)
{
    uint64_t bytes = strcmp(devices, sup->config.devices) == 0 ? sup->memory.bytes : 0;

    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        const struct weir_sup_worker *w = &sup->workers[i];

        if (w->used && w->row.memory_bytes != 0 && strcmp(w->devices, devices) == 0) {
            bytes = w->row.memory_bytes;
        }
    }
    return bytes;
}

/* Memory of the devices that a tenant has or will have; 0: no worker has reported it yet. If no
 * worker has the tenant's list, that of the host's list counts. */
static uint64_t memory_for(const struct weir_supervisor *sup, const char *devices)
{
    uint64_t bytes = *devices != 0 ? memory_of(sup, devices) : 0;

    return bytes != 0 ? bytes : memory_of(sup, sup->config.devices);
}

uint64_t weir_sup_device_bytes(const struct weir_supervisor *sup,
                               const struct weir_tenant_config *config)
{
    return memory_for(sup, config->devices);
}

uint64_t weir_sup_quota_bytes(const struct weir_supervisor *sup,
                              const struct weir_sup_tenant *tenant)
{
    uint64_t bytes = memory_of(sup, weir_sup_devices_of(sup, tenant));

    return bytes != 0 ? weir_amount_of(tenant->config.memory, bytes) : tenant->config.memory.bytes;
}

uint32_t weir_sup_promised_pct(const struct weir_supervisor *sup)
{
    const struct weir_tenant_config *tenants[WEIR_CONFIG_TENANTS_MAX];
    uint32_t most_pct = 0;
    size_t n = 0;

    for (int i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        if (sup->tenants[i].used && !sup->tenants[i].gone) {
            tenants[n++] = &sup->tenants[i].config;
        }
    }
    for (size_t i = 0; i < n; i++) {
        const char *list = tenants[i]->devices;

        if (i > 0 && strcmp(list, tenants[i - 1]->devices) == 0) {
            continue; /* most tenants have the same list */
        }
        uint64_t bytes = memory_of(sup, *list != 0 ? list : sup->config.devices);
        uint32_t pct = weir_config_promised_pct(tenants, n, list, bytes);

        most_pct = WEIR_MAX(pct, most_pct);
    }
    return most_pct;
}

void weir_sup_remark_memory(struct weir_supervisor *sup)
{
    uint32_t pct = weir_sup_promised_pct(sup);

    sup->memory.bytes = memory_for(sup, ""); /* as last reported, while no worker reports it */
    if (pct > 100 && pct != sup->memory.remarked_pct) {
        weir_log_warn("supervisor: " WEIR_SUP_MEMORY_REMARK, pct);
    }
    sup->memory.remarked_pct = pct;
}

void weir_sup_remark_keys(const struct weir_supervisor *sup)
{
    for (int i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        const struct weir_sup_tenant *tenant = &sup->tenants[i];
        bool is_there = tenant->used && !tenant->gone;
        bool waits = weir_sup_has_own_worker(sup, tenant) && tenant->faults.quarantine_end_ns == 0;
        bool comes = weir_sup_uses_shared_worker(sup, tenant) && tenant->config.group[0] == 0 &&
                     strcmp(weir_sup_devices_of(sup, tenant), sup->config.devices) == 0;

        if (is_there && weir_sup_has_remote_guests(sup, tenant) && !comes) {
            weir_log_warn("supervisor: its remote guests are turned away, since its isolation is "
                          "not program, or it has devices of its own tenant=%s",
                          tenant->config.name);
        } else if (is_there && weir_sup_has_remote_guests(sup, tenant) && waits) {
            weir_log_warn(
                "supervisor: its remote guests are turned away as long as programs of its "
                "virtual machines run, which have a worker since before it had a key "
                "tenant=%s",
                tenant->config.name);
        }
    }
}
