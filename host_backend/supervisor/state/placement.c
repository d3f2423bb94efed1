#include "host_backend/supervisor/state/placement.h"

#include "base/log.h"
#include <string.h>

bool weir_sup_by_program(const struct weir_sup_tenant *tenant)
{
    return tenant->config.isolation == WEIR_ISOLATION_PROGRAM || weir_sup_is_strict(tenant);
}

bool weir_sup_has_remote_guests(const struct weir_supervisor *sup,
                                const struct weir_sup_tenant *tenant)
{
    return sup->config.listen_tcp[0] != 0 && tenant->config.key[0] != 0;
}

bool weir_sup_uses_shared_worker(const struct weir_supervisor *sup,
                                 const struct weir_sup_tenant *tenant)
{
    return tenant->config.isolation == WEIR_ISOLATION_GROUP ||
           (tenant->config.isolation == WEIR_ISOLATION_PROGRAM &&
            weir_sup_has_remote_guests(sup, tenant) &&
            strcmp(weir_sup_devices_of(sup, tenant), sup->config.devices) == 0);
}

bool weir_sup_is_strict(const struct weir_sup_tenant *tenant)
{
    return tenant->config.isolation == WEIR_ISOLATION_STRICT;
}

const char *weir_sup_devices_of(const struct weir_supervisor *sup,
                                const struct weir_sup_tenant *tenant)
{
    return tenant->config.devices[0] != 0 ? tenant->config.devices : sup->config.devices;
}

const char *weir_sup_group_of(const struct weir_sup_tenant *tenant)
{
    return tenant->config.group;
}

bool weir_sup_worker_keep(const struct weir_sup_tenant *tenant, struct weir_tenant_config *settings)
{
    const struct weir_tenant_config *now = &tenant->config;
    const char *changed = NULL;

    if (tenant->gone && tenant->worker < 0) {
        return true; /* the tenant has no worker yet, so these settings may change */
    }
    if (now->isolation != settings->isolation || strcmp(now->group, settings->group) != 0) {
        changed = "isolation changes";
    } else if (strcmp(now->devices, settings->devices) != 0) {
        changed = "devices change";
    }
    if (changed) {
        weir_log_warn("supervisor: %s with a restart tenant=%s", changed, now->name);
    }
    settings->isolation = now->isolation;
    memcpy(settings->group, now->group, sizeof settings->group);
    memcpy(settings->devices, now->devices, sizeof settings->devices);
    return !changed;
}
