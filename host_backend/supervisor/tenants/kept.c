/*
 * Tenants that outlive the host without standing in weir.toml: `weir tenant add --keep`.
 *
 *   /var/lib/weir/tenants   of the host in /run/weir; of others <run_dir>/tenants
 *
 * A line for each tenant, its words with tabs between: its name, and KEY=VALUE for each setting
 * that is not the default. The file is the host's own. It is written before the request is
 * answered, so whoever was told that there is such a tenant finds it after any end of the host. It
 * is not synced: the supervisor must not wait for a disk, and a power cut ends all programs anyway.
 * What weir.toml says wins: a tenant of that name is the file's from then on.
 */
#include "host_backend/supervisor/tenants/tenants.h"

#include "host_backend/supervisor/state/supervisor.h"
#include "host_backend/supervisor/workers/tenant_row.h"

#include "base/log.h"
#include "base/replace.h"
#include "container/cdi.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define STATE_DIR "/var/lib/weir"

static bool is_machines(const struct weir_supervisor *sup)
{
    return strcmp(sup->config.run_dir, WEIR_CONTAINER_RUN_DIR) == 0;
}

static void path_of(const struct weir_supervisor *sup, char *path, size_t bytes)
{
    snprintf(path, bytes, "%s/tenants", is_machines(sup) ? STATE_DIR : sup->config.run_dir);
}

static bool is_kept(const struct weir_sup_tenant *tenant)
{
    return tenant->used && !tenant->gone && tenant->source == WEIR_ORIGIN_KEPT;
}

bool weir_sup_kept_store(const struct weir_supervisor *sup)
{
    char path[WEIR_CONFIG_PATH_BYTES + 16];

    path_of(sup, path, sizeof path);
    if (!WEIR_ANY(i, WEIR_CONFIG_TENANTS_MAX, is_kept(&sup->tenants[i]))) {
        return unlink(path) == 0 || errno == ENOENT;
    }
    if (is_machines(sup)) {
        (void)mkdir(STATE_DIR, 0755); /* a failure shows below */
    }
    FILE *file = weir_replace_begin(path);
    WEIR_FAIL_IF(!file, false);
    for (int i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        if (is_kept(&sup->tenants[i])) {
            weir_sup_tenant_write(file, &sup->tenants[i].base);
        }
    }
    return weir_replace_end(file, path, true);
}

/* Why the host cannot serve these settings; NULL: it can. */
static const char *refusal(struct weir_supervisor *sup, const struct weir_tenant_config *config)
{
    const struct weir_sup_tenant *there = weir_sup_tenant_find(sup, config->name);

    if (there && !there->gone && there->source != WEIR_ORIGIN_KEPT) {
        return "weir.toml has a tenant of that name";
    }
    if (!weir_tenant_group_ok(config)) {
        return weir_group_rule;
    }
    if (!weir_tenant_devices_ok(config, &sup->config)) {
        return "its devices are not among those that the host serves";
    }
    for (int i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        const struct weir_sup_tenant *other = &sup->tenants[i];

        if (other != there && other->used && !other->gone &&
            weir_tenants_clash(&other->config, config)) {
            return "another tenant has the same key or vsock_cid";
        }
    }
    return NULL;
}

static void load_line(struct weir_supervisor *sup, char *line)
{
    struct weir_tenant_config config = {0};
    struct weir_diag diag = {0};
    const char *why = NULL;
    enum weir_status status = weir_sup_tenant_read(line, &config, &diag);

    why = status != WEIR_OK ? diag.message : refusal(sup, &config);
    if (!why) {
        status = weir_sup_tenant_set_base(sup, WEIR_ORIGIN_KEPT, &config);
        why = status != WEIR_OK ? weir_status_text(status) : NULL;
    }
    if (why) {
        weir_log_error("supervisor: a kept tenant is forgotten tenant=%.63s why=\"%s\"", line, why);
    } else {
        weir_log_info("supervisor: tenant kept tenant=%s", config.name);
    }
}

void weir_sup_kept_load(struct weir_supervisor *sup)
{
    char path[WEIR_CONFIG_PATH_BYTES + 16], *line = NULL;
    size_t room = 0;

    path_of(sup, path, sizeof path);
    FILE *file = fopen(path, "re");
    while (file && getline(&line, &room, file) > 0) {
        line[strcspn(line, "\n")] = 0;
        load_line(sup, line);
    }
    if (!file && errno != ENOENT) {
        weir_log_error("supervisor: kept tenants cannot be read path=%s why=\"%s\"", path,
                       strerror(errno));
    }
    free(line);
    if (file) {
        fclose(file);
    }
}
