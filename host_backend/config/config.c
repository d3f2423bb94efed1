/*
 * weir.toml: keys, their limits and their defaults.
 *
 * Each table of TOML has a table of rows here, one row for each key. A key without a row is an
 * error at its place, so a misspelt limit is never ignored. Commands that change a running tenant
 * use the same rows.
 */
#include "host_backend/config/config.h"
#include "base/fd.h"

#include "base/guess.h"
#include "base/text.h"
#include "host_backend/config/config_row.h"
#include "sched/policy.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_MAX_BYTES (1u << 20)
#define SECONDS_MAX    (365 * 24 * 3600)

const char *const weir_isolation_words[] = {"group",  "tenant",  "program",
                                            "strict", "process", NULL};
static const char *const shortages[] = {"share", "refuse", NULL};
static const char *const mps_words[] = {"off", "auto", "on", NULL};
static const char *const shares[] = {"yes", "no", NULL};
static const char *const forms_modes[] = {"off", "auto", "always", "explore", "default", NULL};
static const char *const forms_wishes[] = {"default", "off", "auto", "always", NULL};
static const char *const forms_ptx[] = {"same", "any", NULL};
static const char *const forms_twins[] = {"best", "all", NULL};

#define AT(type, field) offsetof(struct type, field), sizeof(((struct type *)0)->field)
static const struct weir_row host_rows[] = {
    {"run_dir", ROW_TEXT, AT(weir_host_config, run_dir), 0, 0, NULL},
    {"listen_tcp", ROW_TEXT, AT(weir_host_config, listen_tcp), 0, 0, NULL},
    {"server_key", ROW_TEXT, AT(weir_host_config, server_key), 0, 0, NULL},
    {"driver", ROW_TEXT, AT(weir_host_config, driver), 0, 0, NULL},
    {"softgpu", ROW_TEXT, AT(weir_host_config, softgpu), 0, 0, NULL},
    {"cupti", ROW_TEXT, AT(weir_host_config, cupti), 0, 0, NULL},
    {"log", ROW_TEXT, AT(weir_host_config, log), 0, 0, NULL},
    {"cdi", ROW_TEXT, AT(weir_host_config, cdi), 0, 0, NULL},
    {"socket_mode", ROW_U32, AT(weir_host_config, socket_mode), 0, 0777, NULL},
    {"vm_user", ROW_TEXT, AT(weir_host_config, vm_user), 0, 0, NULL},
    {"worker_user", ROW_TEXT, AT(weir_host_config, worker_user), 0, 0, NULL},
    {"vsock_port", ROW_U32, AT(weir_host_config, vsock_port), 0, UINT32_MAX - 1, NULL},
    {"vm_region", ROW_BYTES, AT(weir_host_config, vm_region_bytes), 1 << 26, INT64_C(1) << 36,
     NULL},
    {"quarantine_s", ROW_U32, AT(weir_host_config, quarantine_s), 0, SECONDS_MAX, NULL},
    {"linger_s", ROW_U32, AT(weir_host_config, linger_s), 0, SECONDS_MAX, NULL},
    {"devices", ROW_DEVICES, AT(weir_host_config, devices), 0, 63, NULL},
    {"device", ROW_DEVICES, AT(weir_host_config, devices), 0, 63, NULL}, /* one device in a list */
    {"exclusive", ROW_BOOL, AT(weir_host_config, exclusive), 0, 0, NULL},
    {"window_base", ROW_U64, AT(weir_host_config, window_base), 1 << 30, INT64_C(1) << 46, NULL},
    {"window_bytes", ROW_BYTES, AT(weir_host_config, window_bytes), 1 << 28, INT64_C(1) << 42,
     NULL},
    {"vmm_base", ROW_U64, AT(weir_host_config, vmm_base), 1 << 30, INT64_C(1) << 46, NULL},
    {"vmm_bytes", ROW_AREA, AT(weir_host_config, vmm_bytes), WEIR_AREA_UNIT, INT64_C(1) << 45,
     NULL},
    {"spare_workers", ROW_U32, AT(weir_host_config, workers.spares), 0, WEIR_SPARE_WORKERS_MAX,
     NULL},
    {"worker_idle_s", ROW_U32, AT(weir_host_config, workers.idle_s), 0, 86400, NULL},
    {"mps", ROW_CHOICE, AT(weir_host_config, workers.mps), 0, 0, mps_words},
    {"mps_alone", ROW_BOOL, AT(weir_host_config, workers.mps_alone), 0, 0, NULL},
    {"on_shortage", ROW_CHOICE, AT(weir_host_config, workers.on_shortage), 0, 0, shortages},
};
static const struct weir_row forms_rows[] = {
    {"mode", ROW_CHOICE, AT(weir_host_config, forms.mode), 0, 0, forms_modes},
    {"ptx", ROW_CHOICE, AT(weir_host_config, forms.ptx), 0, 0, forms_ptx},
    {"twins", ROW_CHOICE, AT(weir_host_config, forms.twins), 0, 0, forms_twins},
    {"seed", ROW_U32, AT(weir_host_config, forms.seed), 0, INT32_MAX, NULL},
    {"compiler", ROW_TEXT, AT(weir_host_config, forms.compiler), 0, 0, NULL},
    {"cache_dir", ROW_TEXT, AT(weir_host_config, forms.cache_dir), 0, 0, NULL},
    {"cache", ROW_LIMIT, AT(weir_host_config, forms.cache_bytes), 0, 0, NULL},
    {"compile_memory", ROW_BYTES, AT(weir_host_config, forms.compile_memory_bytes), 1 << 26,
     INT64_C(1) << 44, NULL},
    {"compile_s", ROW_U32, AT(weir_host_config, forms.compile_s), 0, SECONDS_MAX, NULL},
};
static const struct weir_row scheduler_rows[] = {
    {"policy", ROW_POLICY, AT(weir_host_config, scheduler.policy), 0, 0, NULL},
    {"inflight_us", ROW_U32, AT(weir_host_config, scheduler.inflight_us), 10, 1000000, NULL},
    {"alone_us", ROW_U32, AT(weir_host_config, scheduler.alone_us), 100, 10000000, NULL},
    {"graph_piece_us", ROW_U32, AT(weir_host_config, scheduler.graph_piece_us), 0, 10000000, NULL},
    {"starve_ms", ROW_U32, AT(weir_host_config, scheduler.starve_ms), 1, 60000, NULL},
    {"overhead_ppm", ROW_U32, AT(weir_host_config, scheduler.overhead_ppm), 100, 500000, NULL},
    {"fill", ROW_CHOICE, AT(weir_host_config, scheduler.fill), 0, 0, weir_sched_fill_words},
};
static const struct weir_row metrics_rows[] = {
    {"listen", ROW_TEXT, AT(weir_host_config, metrics_listen), 0, 0, NULL},
};
static const struct weir_row libvirt_rows[] = {
    {"uri", ROW_TEXT, AT(weir_host_config, libvirt_uri), 0, 0, NULL},
    {"create", ROW_BOOL, AT(weir_host_config, libvirt_create), 0, 0, NULL},
};
static const struct weir_row tenant_rows[] = {
#define WEIR_SETTING(key, kind, type, member, low, high, words, live, usual)                       \
    {#key, kind, AT(weir_tenant_config, member), low, high, words},
#include "host_backend/config/tenant.def"
#undef WEIR_SETTING
};
enum { FIXED, LIVE };
static const bool is_live[] = {
#define WEIR_SETTING(key, kind, type, member, low, high, words, live, usual) live,
#include "host_backend/config/tenant.def"
#undef WEIR_SETTING
};
/* What a share on demand has, and how much of each setting its user may ask for. */
static const struct weir_row default_rows[] = {
    {"weight", ROW_U32, AT(weir_host_config, demand.usual.weight), 1, 10000, NULL},
    {"max_weight", ROW_U32, AT(weir_host_config, demand.most.weight), 1, 10000, NULL},
    {"total_weight", ROW_U32, AT(weir_host_config, demand.total_weight), 1, 1000000, NULL},
    {"priority", ROW_CHOICE, AT(weir_host_config, demand.usual.priority), 0, 0,
     weir_priority_names},
    {"max_priority", ROW_CHOICE, AT(weir_host_config, demand.most.priority), 0, 0,
     weir_priority_names},
    {"sm_limit", ROW_PCT, AT(weir_host_config, demand.usual.sm_limit_pct), 1, 100, NULL},
    {"max_sm_limit", ROW_PCT, AT(weir_host_config, demand.most.sm_limit_pct), 1, 100, NULL},
    {"memory", ROW_AMOUNT, AT(weir_host_config, demand.usual.memory), 0, 0, NULL},
    {"max_memory", ROW_AMOUNT, AT(weir_host_config, demand.most.memory), 0, 0, NULL},
    {"sessions", ROW_U32, AT(weir_host_config, demand.usual.sessions_max), 1, 1024, NULL},
    {"max_sessions", ROW_U32, AT(weir_host_config, demand.most.sessions_max), 1, 1024, NULL},
    {"share", ROW_CHOICE, AT(weir_host_config, demand.usual.share), 0, 0, shares},
    {"isolation", ROW_CHOICE, AT(weir_host_config, demand.usual.isolation), 0, 0,
     weir_isolation_words},
    {"group", ROW_NAME, AT(weir_host_config, demand.usual.group), 0, 0, NULL},
    {"pinned", ROW_AMOUNT, AT(weir_host_config, demand.usual.pinned), 0, 0, NULL},
    {"devices", ROW_DEVICES, AT(weir_host_config, demand.usual.devices), 0, 63, NULL},
    {"forms", ROW_CHOICE, AT(weir_host_config, demand.usual.forms), 0, 0, forms_wishes},
    {"orphan_s", ROW_U32, AT(weir_host_config, demand.usual.orphan_s), 0, SECONDS_MAX, NULL},
    {"load_wait_s", ROW_U32, AT(weir_host_config, demand.usual.load_wait_s), 1, SECONDS_MAX, NULL},
    {"per_user", ROW_U32, AT(weir_host_config, demand.per_user), 0, WEIR_CONFIG_TENANTS_MAX, NULL},
    {"socket_mode", ROW_U32, AT(weir_host_config, demand.socket_mode), 0, 0777, NULL},
    {"user_tenants", ROW_U32, AT(weir_host_config, demand.user_tenants), 0, WEIR_USER_TENANTS_MAX,
     NULL},
    {"show_others", ROW_BOOL, AT(weir_host_config, demand.show_others), 0, 0, NULL},
};
#define N_ROWS(rows) (sizeof(rows) / sizeof((rows)[0]))

static const struct table {
    const char *name;
    const struct weir_row *rows;
    size_t n_rows;
} tables[] = {{"host", host_rows, N_ROWS(host_rows)},
              {"forms", forms_rows, N_ROWS(forms_rows)},
              {"scheduler", scheduler_rows, N_ROWS(scheduler_rows)},
              {"metrics", metrics_rows, N_ROWS(metrics_rows)},
              {"libvirt", libvirt_rows, N_ROWS(libvirt_rows)},
              {"default", default_rows, N_ROWS(default_rows)}},
  tenant_table = {"tenant", tenant_rows, N_ROWS(tenant_rows)};

uint32_t weir_tenant_sm_limit(const struct weir_tenant_config *tenant, uint32_t asked_pct)
{
    uint32_t granted_pct = __atomic_load_n(&tenant->sm_limit_pct, __ATOMIC_RELAXED);

    return asked_pct != 0 && asked_pct < granted_pct ? asked_pct : granted_pct;
}

void weir_tenant_config_default(struct weir_tenant_config *tenant, const char *name)
{
    *tenant = (struct weir_tenant_config){
#define WEIR_SETTING(key, kind, type, member, low, high, words, live, usual) .member = usual,
#include "host_backend/config/tenant.def"
#undef WEIR_SETTING
    };
    snprintf(tenant->name, sizeof tenant->name, "%s", name);
}

static void host_default(struct weir_host_config *config)
{
    *config = (struct weir_host_config){
        .socket_mode = 0660,
        .vsock_port = 7070,
        .vm_region_bytes = UINT64_C(1) << 30,
        .quarantine_s = 300,
        .linger_s = 30,
        .exclusive = true,
        .window_base = 0x200000000000,
        .window_bytes = UINT64_C(1) << 40,
        .vmm_base = 0x120000000000,
        .vmm_bytes = UINT64_C(14) << 40,
        .workers = {.spares = 2, .idle_s = 10, .mps = WEIR_MPS_AUTO, .mps_alone = true}};
    weir_demand_default(&config->demand);
    snprintf(config->driver, sizeof config->driver, "auto");
    snprintf(config->log, sizeof config->log, "info");
    snprintf(config->forms.compiler, sizeof config->forms.compiler, "auto");
    snprintf(config->cupti, sizeof config->cupti, "auto");
    config->forms.mode = WEIR_FORMS_DEFAULT;
    config->forms.cache_bytes = UINT64_C(512) << 20;
    config->forms.compile_memory_bytes = UINT64_C(8) << 30;
    config->scheduler = weir_sched_settings_default();
    snprintf(config->run_dir, sizeof config->run_dir, "%s", weir_control_own_run_dir());
}

void weir_config_default(struct weir_host_config *ret_config)
{
    struct weir_diag none;

    host_default(ret_config);
    (void)weir_demand_complete(&ret_config->demand, ret_config->socket_mode, &none);
    weir_tenant_config_default(&ret_config->tenants[0], "default");
    ret_config->n_tenants = 1;
}

void weir_tenant_config_show(const struct weir_tenant_config *tenant,
                             struct weir_status_tenant *row)
{
    snprintf(row->name, sizeof row->name, "%s", tenant->name);
    memcpy(row->labels, tenant->labels, sizeof row->labels);
    snprintf(row->priority, sizeof row->priority, "%s", weir_priority_names[tenant->priority]);
    snprintf(row->isolation, sizeof row->isolation, "%s", weir_isolation_words[tenant->isolation]);
    row->weight = tenant->weight;
    row->min_share_pct = tenant->min_share_pct;
    row->sm_limit_pct = tenant->sm_limit_pct;
}

bool weir_tenant_name_ok(const char *name)
{
    size_t n = strlen(name);

    return n > 0 && n < WEIR_TENANT_NAME_BYTES && strcmp(name, "admin") != 0 &&
           strcmp(name, "new") != 0 && name[0] != '.' &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == n;
}

/* Complain about an unknown key or table, and suggest a similar one. */
static bool unknown(const struct weir_toml_value *item, const char *what, const char *where,
                    const struct weir_guess *guess, struct weir_diag *diag)
{
    char name[80], meant[64];

    weir_diag_set(diag, item->key_line, item->key_column, "unknown %s '%s'%s%s", what,
                  weir_text_visible(item->key, name, sizeof name), where,
                  weir_guess_text(guess, meant));
    return false;
}

/* Find the first row for the same setting: that of "device" for "devices". */
static size_t first_row(const struct table *table, size_t row)
{
    size_t first = 0;

    while (table->rows[first].offset != table->rows[row].offset) {
        first++;
    }
    return first;
}

static bool read_rows(const struct table *table, const struct weir_toml_value *from, void *object,
                      struct weir_diag *diag)
{
    bool many = table == &tenant_table;
    const char *by[32] = {NULL}; /* for each row, the key that has set it */

    for (const struct weir_toml_value *item = from->items; item; item = item->next) {
        struct weir_guess guess = weir_guess_begin(item->key);
        char where[32];
        size_t i = 0, first;

        for (; i < table->n_rows && strcmp(table->rows[i].key, item->key) != 0; i++) {
            weir_guess_offer(&guess, table->rows[i].key);
        }
        if (i == table->n_rows) {
            snprintf(where, sizeof where, many ? " in [[%s]]" : " in [%s]", table->name);
            return unknown(item, "key", where, &guess, diag);
        }
        first = first_row(table, i);
        if (by[first]) {
            weir_diag_set(diag, item->key_line, item->key_column,
                          "'%s' says again what '%s' has said", item->key, by[first]);
            return false;
        }
        by[first] = item->key;
        WEIR_FAIL_IF(!weir_row_store(&table->rows[i], object, item, diag), false);
    }
    return true;
}

/* Read one [[tenant]], and then check what depends on several of its keys. */
static bool read_tenant(const struct weir_toml_value *from, struct weir_host_config *config,
                        struct weir_diag *diag)
{
    struct weir_tenant_config *tenant = &config->tenants[config->n_tenants];

    WEIR_FAIL_IF(from->kind != WEIR_TOML_TABLE,
                 WEIR_WRONG(from, "a tenant is a table, not %s", weir_toml_kind_text(from->kind)));
    WEIR_FAIL_IF(config->n_tenants == WEIR_CONFIG_TENANTS_MAX,
                 WEIR_WRONG(from, "more than %d tenants", WEIR_CONFIG_TENANTS_MAX));
    weir_tenant_config_default(tenant, "");
    WEIR_FAIL_IF(!read_rows(&tenant_table, from, tenant, diag), false);
    WEIR_FAIL_IF(tenant->name[0] == 0, WEIR_WRONG(from, "this tenant has no name"));
    WEIR_FAIL_IF(!weir_tenant_group_ok(tenant), WEIR_WRONG(from, "%s", weir_group_rule));
    for (uint32_t i = 0; i < config->n_tenants; i++) {
        const struct weir_tenant_config *other = &config->tenants[i];

        WEIR_FAIL_IF(strcmp(other->name, tenant->name) == 0,
                     WEIR_WRONG(from, "a second tenant is named '%s'", tenant->name));
        const char *same = weir_tenants_clash(other, tenant);

        WEIR_FAIL_IF(same, WEIR_WRONG(from, "tenants '%s' and '%s' have the same %s", other->name,
                                      tenant->name, same));
    }
    config->n_tenants++;
    return true;
}

static bool read_tenants(const struct weir_toml_value *from, struct weir_host_config *config,
                         struct weir_diag *diag)
{
    WEIR_FAIL_IF(from->kind != WEIR_TOML_ARRAY,
                 WEIR_WRONG(from, "each tenant is a table in two brackets: [[tenant]]"));
    for (const struct weir_toml_value *item = from->items; item; item = item->next) {
        WEIR_FAIL_IF(!read_tenant(item, config, diag), false);
    }
    return true;
}

static bool read_table(const struct weir_toml_value *from, struct weir_host_config *config,
                       struct weir_diag *diag)
{
    struct weir_guess guess = weir_guess_begin(from->key);

    if (strcmp(from->key, tenant_table.name) == 0) {
        return read_tenants(from, config, diag);
    }
    weir_guess_offer(&guess, tenant_table.name);
    for (size_t i = 0; i < N_ROWS(tables); i++) {
        if (strcmp(from->key, tables[i].name) != 0) {
            weir_guess_offer(&guess, tables[i].name);
        } else if (from->kind == WEIR_TOML_TABLE) {
            return read_rows(&tables[i], from, config, diag);
        } else {
            return WEIR_WRONG(from, "'%s' is one table: [%s]", from->key, from->key);
        }
    }
    if (from->made == WEIR_TOML_MADE_WHOLE && from->kind != WEIR_TOML_TABLE) {
        char name[80];

        weir_diag_set(diag, from->key_line, from->key_column,
                      "'%s' stands before any table such as [host]",
                      weir_text_visible(from->key, name, sizeof name));
        return false;
    }
    return unknown(from, "table",
                   !guess.best ? ": [host], [default], [forms], [scheduler], [metrics], [libvirt] "
                                 "or [[tenant]]"
                               : "",
                   &guess, diag);
}

size_t weir_setting_count(void)
{
    return N_ROWS(tenant_rows) - 1; /* all rows but the name, which is the first */
}

static const struct weir_row *setting_row(size_t setting)
{
    return &tenant_rows[setting + 1];
}

_Static_assert(N_ROWS(tenant_rows) - 1 <= WEIR_SETTINGS_MAX, "room for each");

const char *weir_setting_key(size_t setting)
{
    return setting_row(setting)->key;
}

const char *const *weir_setting_choices(size_t setting)
{
    return setting_row(setting)->choices;
}

bool weir_setting_is_live(size_t setting)
{
    return is_live[setting + 1];
}

int weir_setting_find(const char *key)
{
    for (size_t i = 0; i < weir_setting_count(); i++) {
        const char *a = key, *b = setting_row(i)->key;

        while (*a != 0 && (*a == *b || (*a == '-' && *b == '_'))) {
            a++;
            b++;
        }
        if (*a == 0 && *b == 0) {
            return (int)i;
        }
    }
    return -1;
}

enum weir_status weir_setting_store(size_t setting, const char *text,
                                    struct weir_tenant_config *config, struct weir_diag *ret_diag)
{
    const struct weir_row *row = setting_row(setting);
    struct weir_toml_value value = {
        .kind = WEIR_TOML_STRING, .string = text, .string_bytes = strlen(text)};
    char *end;

    errno = 0;
    value.integer = strtoll(text, &end, 10);
    if (row->kind != ROW_KEY && row->kind != ROW_AMOUNTS && row->kind != ROW_LABELS && errno == 0 &&
        *text != ' ' && *text != 0 && *end == 0) {
        value.kind = WEIR_TOML_INTEGER;
    }
    return weir_row_store(row, config, &value, ret_diag) ? WEIR_OK : WEIR_ERR_INVALID;
}

bool weir_setting_fits(size_t setting, const struct weir_tenant_config *config,
                       uint64_t device_bytes, struct weir_diag *ret_diag)
{
    const uint64_t machine_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)getpagesize();
    const char *key = weir_setting_key(setting);
    bool pinned = strcmp(key, "pinned") == 0;
    uint64_t there = pinned ? machine_bytes : device_bytes;
    uint64_t asked = pinned                       ? config->pinned.bytes
                     : strcmp(key, "memory") == 0 ? config->memory.bytes
                                                  : 0;
    char text[WEIR_SETTING_TEXT_BYTES];

    if (there == 0 || asked <= there) {
        return true;
    }
    weir_setting_text(setting, config, text);
    weir_diag_set(ret_diag, 0, 0, "%s=%.40s is more than the %s has, %llu MiB", key, text,
                  pinned ? "machine" : "GPU", (unsigned long long)(there >> 20));
    return false;
}

void weir_setting_copy(size_t setting, const struct weir_tenant_config *from,
                       struct weir_tenant_config *to)
{
    const struct weir_row *row = setting_row(setting);

    memcpy((char *)to + row->offset, (const char *)from + row->offset, row->size);
}

static bool row_equal(const struct weir_row *row, const void *a, const void *b)
{
    const char *left = (const char *)a + row->offset, *right = (const char *)b + row->offset;

    switch (row->kind) {
    case ROW_TEXT:
    case ROW_NAME:
    case ROW_KEY:
    case ROW_DEVICES:
    case ROW_POLICY:
    case ROW_USER:
    case ROW_AMOUNTS:
    case ROW_LABELS:
        return strcmp(left, right) == 0;
    case ROW_AMOUNT: {
        const struct weir_amount *x = (const void *)left, *y = (const void *)right;

        return x->bytes == y->bytes && x->pct == y->pct;
    }
    case ROW_U32:
    case ROW_U64:
    case ROW_CHOICE:
    case ROW_BYTES:
    case ROW_AREA:
    case ROW_LIMIT:
    case ROW_PCT:
    case ROW_BOOL:
        break;
    }
    return memcmp(left, right, row->size) == 0;
}

bool weir_setting_equal(size_t setting, const struct weir_tenant_config *a,
                        const struct weir_tenant_config *b)
{
    return row_equal(setting_row(setting), a, b);
}

bool weir_settings_equal(const struct weir_tenant_config *a, const struct weir_tenant_config *b)
{
    return !WEIR_ANY(i, weir_setting_count(), !weir_setting_equal(i, a, b));
}

void weir_setting_text(size_t setting, const struct weir_tenant_config *config,
                       char text[WEIR_SETTING_TEXT_BYTES])
{
    const struct weir_row *row = setting_row(setting);
    const void *at = (const char *)config + row->offset;
    int choice;

    switch (row->kind) {
    case ROW_U32:
        snprintf(text, WEIR_SETTING_TEXT_BYTES, "%u", *(const uint32_t *)at);
        break;
    case ROW_PCT:
        snprintf(text, WEIR_SETTING_TEXT_BYTES, "%u%%", *(const uint32_t *)at);
        break;
    case ROW_AMOUNT:
        weir_amount_text(at, text, WEIR_SETTING_TEXT_BYTES);
        break;
    case ROW_CHOICE:
        memcpy(&choice, at, sizeof choice);
        snprintf(text, WEIR_SETTING_TEXT_BYTES, "%s", row->choices[choice]);
        break;
    case ROW_TEXT:
    case ROW_NAME:
    case ROW_KEY:
    case ROW_DEVICES:
    case ROW_POLICY:
    case ROW_USER:
    case ROW_AMOUNTS:
    case ROW_LABELS:
    case ROW_U64:
    case ROW_BYTES:
    case ROW_AREA:
    case ROW_LIMIT:
    case ROW_BOOL: /* a [[tenant]] has none of the last five kinds */
        snprintf(text, WEIR_SETTING_TEXT_BYTES, "%.*s", WEIR_SETTING_TEXT_BYTES - 1,
                 (const char *)at);
        break;
    }
}

void weir_config_restart_keys(const struct weir_host_config *before,
                              const struct weir_host_config *now, char *text, size_t bytes)
{
    size_t at = 0;

    *text = 0;
    for (size_t t = 0; t < N_ROWS(tables); t++) {
        for (size_t i = 0; i < tables[t].n_rows && at < bytes; i++) {
            const struct weir_row *row = &tables[t].rows[i];

            if (tables[t].rows == default_rows || tables[t].rows == metrics_rows ||
                row->kind == ROW_POLICY || first_row(&tables[t], i) != i ||
                row_equal(row, before, now)) {
                continue;
            }
            at += (size_t)snprintf(text + at, bytes - at, "%s[%s] %s", at == 0 ? "" : ", ",
                                   tables[t].name, row->key);
        }
    }
}

uint32_t weir_config_promised_pct(const struct weir_tenant_config *const *tenants, size_t n,
                                  const char *devices, uint64_t total_bytes)
{
    double promised_pct = 0;

    for (size_t i = 0; i < n; i++) {
        const struct weir_amount *memory = &tenants[i]->memory;

        if (strcmp(tenants[i]->devices, devices) != 0) {
            continue;
        }
        if (memory->pct != 0) {
            promised_pct += memory->pct;
        } else if (total_bytes != 0) {
            promised_pct += 100.0 * (double)memory->bytes / (double)total_bytes;
        }
    }
    return promised_pct < UINT32_MAX ? (uint32_t)promised_pct : UINT32_MAX;
}

const char *weir_config_user_of(const struct weir_host_config *config, const char *tenant)
{
    uint32_t at = WEIR_FIRST(i, config->n_tenants, strcmp(config->tenants[i].name, tenant) == 0);
    return at < config->n_tenants ? config->tenants[at].user : "";
}

/* The area for reservations may lie anywhere outside all windows. */
bool weir_config_areas_ok(const struct weir_host_config *c, struct weir_diag *ret_diag)
{
    uint64_t windows_end = c->window_base + WEIR_WINDOWS_MAX * c->window_bytes;

    if (c->vmm_base % WEIR_AREA_UNIT != 0 || c->vmm_bytes % WEIR_AREA_UNIT != 0) {
        weir_diag_set(ret_diag, 0, 0, "vmm_base and vmm_bytes are not multiples of 1 GiB");
        return false;
    }
    if (c->vmm_base < windows_end && c->window_base < c->vmm_base + c->vmm_bytes) {
        weir_diag_set(ret_diag, 0, 0, "the area of vmm_base overlaps the windows");
        return false;
    }
    return true;
}

bool weir_config_policy_ok(const char *policy, struct weir_diag *ret_diag)
{
    struct weir_policy_set set;

    return strcmp(policy, "off") == 0 || weir_policy_set_parse(policy, &set, ret_diag) == WEIR_OK;
}

bool weir_config_cdi_ok(const char *cdi)
{
    size_t n = strlen(cdi);

    return n == 0 || strcmp(cdi, "none") == 0 ||
           (cdi[0] == '/' && n > 6 && strcmp(cdi + n - 5, ".json") == 0);
}

static bool read_tree(const struct weir_toml_value *root, struct weir_host_config *config,
                      struct weir_diag *diag)
{
    const struct weir_toml_value *host = weir_toml_find(root, "host");

    for (const struct weir_toml_value *item = root->items; item; item = item->next) {
        WEIR_FAIL_IF(!read_table(item, config, diag), false);
    }
    if (config->window_base % config->window_bytes != 0) {
        weir_diag_set(diag, 0, 0, "window_base is not a multiple of window_bytes");
    } else if (weir_config_areas_ok(config, diag)) {
        return true;
    }
    if (diag && host) { /* the fault of several keys together */
        diag->line = host->line;
        diag->column = host->column;
    }
    return false;
}

enum weir_status weir_config_parse(const char *text, size_t bytes,
                                   struct weir_host_config *ret_config, struct weir_diag *ret_diag)
{
    struct weir_host_config *config = calloc(1, sizeof *config);
    const struct weir_toml_value *root;
    struct weir_arena arena;
    bool named = false; /* tenant = [] means none; without the key there is one tenant */

    WEIR_FAIL_IF(!config, WEIR_ERR_NO_MEMORY);
    weir_arena_init(&arena, WEIR_TOML_ARENA_BASE + bytes * WEIR_TOML_ARENA_PER_BYTE);
    host_default(config);
    enum weir_status status = weir_toml_parse(text, bytes, &arena, &root, ret_diag);
    if (status == WEIR_OK &&
        (!read_tree(root, config, ret_diag) ||
         !weir_demand_complete(&config->demand, config->socket_mode, ret_diag))) {
        status = WEIR_ERR_SYNTAX;
    }
    named = status == WEIR_OK && weir_toml_find(root, tenant_table.name);
    weir_arena_finish(&arena);
    if (status == WEIR_OK) {
        if (config->n_tenants == 0 && !named) {
            weir_tenant_config_default(&config->tenants[config->n_tenants++], "default");
        }
        *ret_config = *config;
    }
    free(config);
    return status;
}

enum weir_status weir_config_load(const char *path, struct weir_host_config *ret_config,
                                  struct weir_diag *ret_diag)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t bytes;

    WEIR_FAIL_IF(fd < 0, weir_status_of_errno(errno));
    char *text = weir_fd_text(fd, FILE_MAX_BYTES, &bytes);
    enum weir_status status =
        text ? weir_config_parse(text, bytes, ret_config, ret_diag) : weir_status_of_errno(errno);
    free(text);
    close(fd);
    return status;
}
