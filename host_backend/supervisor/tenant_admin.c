/*
 * The requests of `weir tenant` in the supervisor: show, set, add, remove.
 *
 * Settings are first tried on a copy, and each wrong one is reported. The tenant changes only if
 * none is wrong. The change lasts until the host ends; the reply also gives the values of the
 * tenant's source, mostly weir.toml.
 */
#include "host_backend/supervisor/admin.h"
#include "host_backend/supervisor/state/supervisor.h"
#include "host_backend/supervisor/state/users.h"
#include "host_backend/supervisor/tenants/libvirt.h"
#include "host_backend/supervisor/tenants/tenants.h"
#include "host_backend/supervisor/watch/append.h"
#include "host_backend/supervisor/watch/events.h"
#include "host_backend/supervisor/workers/worker_for.h"

#include "base/guess.h"
#include "base/log.h"
#include <stdio.h>
#include <string.h>

/* Add a setting to the report; `before` is its value before the request. */
static void show(const struct weir_supervisor *sup, struct weir_status_report *report,
                 const struct weir_sup_tenant *tenant, size_t setting,
                 const struct weir_tenant_config *before)
{
    struct weir_status_setting row = {.live = weir_setting_is_live(setting)};

    _Static_assert(sizeof row.value == WEIR_SETTING_TEXT_BYTES, "one size");
    snprintf(row.tenant, sizeof row.tenant, "%s", tenant->config.name);
    snprintf(row.key, sizeof row.key, "%s", weir_setting_key(setting));
    weir_setting_text(setting, &tenant->config, row.value);
    weir_setting_text(setting, before, row.before);
    weir_setting_text(setting, &tenant->base, row.base);
    snprintf(row.origin, sizeof row.origin, "%s", weir_origin_text(sup, tenant->origins[setting]));
    weir_sup_append((void **)&report->settings, &report->n_settings, &row, sizeof row);
}

/* Find the setting of "key=value", and replace the '=' by a NUL; else -1 and a note. */
static int split(struct weir_status_report *report, char *word, char **ret_value)
{
    char *equals = strchr(word, '='), text[256], keys[160] = "";
    int setting;

    if (!equals) {
        snprintf(text, sizeof text, "'%.60s': a setting is written KEY=VALUE", word);
        weir_sup_note(report, "error", text);
        return -1;
    }
    *equals = 0;
    *ret_value = equals + 1;
    setting = weir_setting_find(word);
    if (setting < 0) {
        struct weir_guess guess = weir_guess_begin(word);
        char meant[64];

        for (size_t i = 0, at = 0; i < weir_setting_count() && at < sizeof keys; i++) {
            at += (size_t)snprintf(keys + at, sizeof keys - at, "%s%s", i == 0 ? ": " : ", ",
                                   weir_setting_key(i));
            weir_guess_offer(&guess, weir_setting_key(i));
        }
        snprintf(text, sizeof text, "unknown setting '%.40s'%s", word,
                 guess.best ? weir_guess_text(&guess, meant) : keys);
        weir_sup_note(report, "error", text);
    }
    return setting;
}

static void set(struct weir_supervisor *sup, struct weir_sup_tenant *tenant,
                struct weir_status_report *report, char **words, size_t n_words)
{
    struct weir_tenant_config config = tenant->config, before = tenant->config;
    uint8_t origins[WEIR_SETTINGS_MAX];
    uint32_t given = 0;

    memcpy(origins, tenant->origins, sizeof origins);
    for (size_t i = 0; i < n_words; i++) {
        struct weir_diag diag = {0};
        char *value = NULL;
        int setting = split(report, words[i], &value);

        if (setting < 0) {
            continue;
        }
        if (weir_sup_setting_try(sup, tenant, (size_t)setting, value, &config, &diag) != WEIR_OK) {
            weir_sup_note(report, "error", diag.message);
        }
        given |= 1u << setting;
        origins[setting] = (uint8_t)(*value == 0 ? tenant->source : WEIR_ORIGIN_COMMAND);
    }
    if (report->n_notes != 0) {
        return;
    }
    memcpy(tenant->origins, origins, sizeof origins);
    weir_sup_tenant_commit(sup, tenant, &config);
    if (tenant->source == WEIR_ORIGIN_DEMAND) {
        weir_sup_shares_weigh(sup);
    }
    for (size_t i = 0; i < weir_setting_count(); i++) {
        if ((given >> i & 1) != 0) {
            char value[WEIR_SETTING_TEXT_BYTES];

            show(sup, report, tenant, i, &before);
            if (weir_setting_equal(i, &before, &tenant->config)) {
                continue;
            }
            weir_setting_text(i, &tenant->config, value);
            weir_log_info("supervisor: tenant changed tenant=%s %s=%s", tenant->config.name,
                          weir_setting_key(i), value);
            weir_sup_event(
                sup, &(struct weir_sup_event){.kind = WEIR_EVENT_TENANT_CHANGED, .tenant = tenant},
                "%s=%s by weir tenant", weir_setting_key(i), value);
        }
    }
}

/* Write the list of kept tenants after one was added or removed, for the next host. */
static void keep(struct weir_supervisor *sup, struct weir_status_report *report,
                 struct weir_sup_tenant *made)
{
    if (weir_sup_kept_store(sup)) {
        return;
    }
    weir_sup_note(report, made ? "error" : "warning",
                  made ? "not added: the file of kept tenants cannot be written"
                       : "it comes back with the next host: the file of kept tenants cannot be "
                         "written");
    if (made) {
        weir_sup_tenant_remove(sup, made);
    }
}

static void add(struct weir_supervisor *sup, struct weir_status_report *report, const char *name,
                enum weir_origin source, char **words, size_t n_words)
{
    struct weir_tenant_config config;
    struct weir_sup_tenant *tenant;
    struct weir_diag diag = {0};

    if (!weir_tenant_name_ok(name)) {
        weir_sup_note(report, "error", weir_tenant_name_rule);
        return;
    }
    weir_tenant_config_default(&config, name);
    for (size_t i = 0; i < n_words; i++) {
        char *value = NULL;
        int setting = split(report, words[i], &value);

        if (setting >= 0 && *value != 0 &&
            weir_setting_store((size_t)setting, value, &config, &diag) != WEIR_OK) {
            weir_sup_note(report, "error", diag.message);
        }
    }
    for (int i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        const struct weir_sup_tenant *other = &sup->tenants[i];

        const char *same = weir_tenants_clash(&other->config, &config);

        if (other->used && !other->gone && same) {
            char text[160];

            snprintf(text, sizeof text, "tenant '%s' has the same %s", other->config.name, same);
            weir_sup_note(report, "error", text);
        }
    }
    if (report->n_notes != 0) {
        return;
    }
    if (weir_sup_tenant_add(sup, &config, source, &diag) != WEIR_OK) {
        weir_sup_note(report, "error", diag.message);
        return;
    }
    weir_sup_libvirt_again(sup);
    tenant = weir_sup_tenant_find(sup, name);
    if (tenant && source == WEIR_ORIGIN_KEPT) {
        keep(sup, report, tenant);
    }
    for (size_t i = 0; tenant && i < weir_setting_count(); i++) {
        show(sup, report, tenant, i, &config);
    }
}

/* Execute a request about a tenant that must exist. @return false: the words are invalid. */
static bool known(struct weir_supervisor *sup, struct weir_sup_tenant *tenant,
                  struct weir_status_report *report, char **words, size_t n_words)
{
    if (strcmp(words[1], "show") == 0 && n_words == 3) {
        for (size_t i = 0; i < weir_setting_count(); i++) {
            show(sup, report, tenant, i, &tenant->config);
        }
    } else if (strcmp(words[1], "set") == 0) {
        set(sup, tenant, report, words + 3, n_words - 3);
    } else if (strcmp(words[1], "remove") == 0 && n_words == 3) {
        bool kept = tenant->source == WEIR_ORIGIN_KEPT;

        weir_sup_tenant_remove(sup, tenant);
        if (kept) {
            keep(sup, report, NULL);
        }
    } else {
        return false;
    }
    return true;
}

/* Has a worker of the tenant not received the change yet? */
static bool is_any_late(const struct weir_supervisor *sup, const struct weir_sup_tenant *tenant)
{
    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        const struct weir_sup_worker *w = &sup->workers[i];

        if (w->used && !w->program.stopping && weir_sup_serves(sup, i, tenant) &&
            (!w->ready || w->answering)) {
            return true;
        }
    }
    return false;
}

/* Answer with the tenant's row and the settings of the request. */
static void answer(struct weir_supervisor *sup, struct weir_admin_client *client,
                   struct weir_status_report *report)
{
    const struct weir_sup_tenant *tenant = weir_sup_tenant_find(sup, client->tenant);

    weir_sup_admin_tenants(sup, client->tenant, report);
    if (tenant && is_any_late(sup, tenant)) {
        weir_sup_note(client->report, "warning", "its worker has not said yet that it has this");
    }
}

bool weir_sup_tenant_request(struct weir_supervisor *sup, struct weir_admin_client *client,
                             char **words, size_t n_words)
{
    WEIR_FAIL_IF(n_words < 3, false);
    client->answer = answer;
    snprintf(client->tenant, sizeof client->tenant, "%s", words[2]);
    if (strcmp(words[1], "show") != 0 && !weir_sup_may_change(client, "change tenants")) {
        return true;
    }
    if (strcmp(words[1], "add") == 0 || strcmp(words[1], "keep") == 0) {
        add(sup, client->report, words[2],
            strcmp(words[1], "keep") == 0 ? WEIR_ORIGIN_KEPT : WEIR_ORIGIN_COMMAND, words + 3,
            n_words - 3);
        return true;
    }
    struct weir_sup_tenant *tenant = weir_sup_tenant_named(sup, client, words[2]);
    return !tenant || known(sup, tenant, client->report, words, n_words);
}
