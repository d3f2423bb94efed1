/*
 * Drained tenants take no new programs; running programs continue to their ends.
 *
 *   <run_dir>/drained a line for each with its name, or "*" for all tenants
 *
 * An administrator drains for work that may restart the host, and ends the drain when the work is
 * done. So the drain is kept in that file, over restarts, until weir undrain or the machine's next
 * boot. A supervisor refuses programs for which it would need a worker; workers refuse all others
 * (weir_sup_drain_of()).
 */
#include "host_backend/supervisor/tenants/tenants.h"

#include "host_backend/supervisor/state/supervisor.h"
#include "host_backend/supervisor/watch/events.h"
#include "host_backend/supervisor/workers/workers.h"

#include "base/log.h"
#include "base/replace.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define ALL "*" /* it cannot be a tenant's name */

static void path_of(const struct weir_supervisor *sup, char *path, size_t bytes)
{
    snprintf(path, bytes, "%s/drained", sup->config.run_dir);
}

static bool is_drained(const struct weir_sup_tenant *tenant)
{
    return tenant->used && !tenant->gone && tenant->drained;
}

/* Write the file again; without drained tenants there is no file. */
static bool store(const struct weir_supervisor *sup)
{
    char path[WEIR_CONFIG_PATH_BYTES + 16];
    bool any = sup->drain.all;

    path_of(sup, path, sizeof path);
    for (int i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        any |= is_drained(&sup->tenants[i]);
    }
    if (!any) {
        return unlink(path) == 0 || errno == ENOENT;
    }
    FILE *file = weir_replace_begin(path);
    if (!file) {
        return false;
    }
    fputs(sup->drain.all ? ALL "\n" : "", file);
    for (int i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        if (is_drained(&sup->tenants[i])) {
            fprintf(file, "%s\n", sup->tenants[i].config.name);
        }
    }
    return weir_replace_end(file, path, true);
}

static void tell_workers(struct weir_supervisor *sup)
{
    for (int i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        if (sup->tenants[i].used && !sup->tenants[i].gone) {
            weir_sup_tenant_tell(sup, &sup->tenants[i], WEIR_LINK_TENANT);
        }
    }
}

/* Change which tenants are drained. @return whether this changed anything */
static bool change(struct weir_supervisor *sup, struct weir_sup_tenant *tenant, bool drained)
{
    bool before = tenant ? tenant->drained : sup->drain.all, others = false;

    if (tenant) {
        tenant->drained = drained;
        return before != drained;
    }
    sup->drain.all = drained;
    for (int i = 0; i < WEIR_CONFIG_TENANTS_MAX && !drained; i++) {
        others |= is_drained(&sup->tenants[i]);
        sup->tenants[i].drained = false;
    }
    return before != drained || others;
}

bool weir_sup_drain_set(struct weir_supervisor *sup, struct weir_sup_tenant *tenant, bool drained)
{
    const char *whose = tenant ? tenant->config.name : "(all)";
    struct weir_sup_event event = {
        .kind = drained ? WEIR_EVENT_DRAIN_BEGAN : WEIR_EVENT_DRAIN_ENDED, .tenant = tenant};

    if (!change(sup, tenant, drained)) {
        return true;
    }
    weir_log_info("supervisor: %s tenant=%s", drained ? "drained" : "drained no more", whose);
    weir_sup_event(sup, &event, "%s", tenant ? "" : "all tenants");
    tell_workers(sup);
    return store(sup);
}

void weir_sup_drain_forget(struct weir_supervisor *sup, struct weir_sup_tenant *tenant)
{
    if (tenant->drained) {
        tenant->drained = false;
        (void)store(sup);
    }
}

void weir_sup_drain_load(struct weir_supervisor *sup)
{
    char path[WEIR_CONFIG_PATH_BYTES + 16], name[WEIR_TENANT_NAME_BYTES + 2];

    path_of(sup, path, sizeof path);
    FILE *file = fopen(path, "re");
    while (file && fgets(name, sizeof name, file)) {
        name[strcspn(name, "\n")] = 0;
        struct weir_sup_tenant *tenant = weir_sup_tenant_find(sup, name);
        if (strcmp(name, ALL) == 0 || tenant) {
            (void)change(sup, tenant, true);
            weir_log_warn(
                "supervisor: drained by weir drain, also after this start: no new programs "
                "until weir undrain tenant=%s",
                tenant ? name : "(all)");
        }
    }
    if (file) {
        fclose(file);
        tell_workers(sup);
    }
}
