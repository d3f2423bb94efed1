/*
 * weir.toml: keys, their limits and their defaults.
 *
 * Tables of rows, one for each of TOML's: a key is a row. Anything that is not in them is an error
 * at its place, so a misspelt limit is never silently no limit. What changes a running tenant goes
 * through the same rows.
 */
#include "host_backend/config/config.h"

#include "host_backend/config/toml.h"
#include "sched/policy.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_MAX_BYTES (1u << 20)
#define SECONDS_MAX    (365 * 24 * 3600)
#define AREA_UNIT      (UINT64_C(1) << 30)

enum row_kind {
    ROW_TEXT,
    ROW_NAME,
    ROW_KEY,
    ROW_U32,
    ROW_U64,
    ROW_AMOUNT,
    ROW_CHOICE,
    ROW_BYTES, /* a power of two from low to high */
    ROW_AREA,  /* a multiple of AREA_UNIT from low to high */
    ROW_LIMIT, /* any number of bytes */
    ROW_DEVICES,
    ROW_PCT,
    ROW_BOOL,
    ROW_USER
};

struct row {
    const char *key;
    enum row_kind kind;
    size_t offset, size;
    int64_t low, high;
    const char *const *choices; /* ROW_CHOICE: the index is stored; ends in NULL */
};

#define ISOLATION_OLD_TENANT 5 /* "process" is what "tenant" was called first */
static const char *const isolations[] = {"shared", "group",   "tenant", "program",
                                         "strict", "process", NULL};
static const char *const shortages[] = {"share", "refuse", NULL};
static const char *const mps_words[] = {"off", "auto", "on", NULL};
static const char *const shares[] = {"yes", "no", NULL};
static const char *const forms_modes[] = {"off", "auto", "always", "explore", "default", NULL};
static const char *const forms_wishes[] = {"default", "off", "auto", "always", NULL};
static const char *const forms_ptx[] = {"same", "any", NULL};
static const char *const forms_twins[] = {"best", "all", NULL};

#define AT(type, field) offsetof(struct type, field), sizeof(((struct type *)0)->field)
static const struct row host_rows[] = {
    {"run_dir", ROW_TEXT, AT(weir_host_config, run_dir), 0, 0, NULL},
    {"listen_tcp", ROW_TEXT, AT(weir_host_config, listen_tcp), 0, 0, NULL},
    {"server_key", ROW_TEXT, AT(weir_host_config, server_key), 0, 0, NULL},
    {"driver", ROW_TEXT, AT(weir_host_config, driver), 0, 0, NULL},
    {"softgpu", ROW_TEXT, AT(weir_host_config, softgpu), 0, 0, NULL},
    {"log", ROW_TEXT, AT(weir_host_config, log), 0, 0, NULL},
    {"cdi", ROW_TEXT, AT(weir_host_config, cdi), 0, 0, NULL},
    {"socket_mode", ROW_U32, AT(weir_host_config, socket_mode), 0, 0777, NULL},
    {"vm_user", ROW_TEXT, AT(weir_host_config, vm_user), 0, 0, NULL},
    {"worker_user", ROW_TEXT, AT(weir_host_config, worker_user), 0, 0, NULL},
    {"vsock_port", ROW_U32, AT(weir_host_config, vsock_port), 0, UINT32_MAX - 1, NULL},
    {"vm_region", ROW_BYTES, AT(weir_host_config, vm_region_bytes), 1 << 26, INT64_C(1) << 36,
     NULL},
    {"quarantine_s", ROW_U32, AT(weir_host_config, quarantine_s), 0, SECONDS_MAX, NULL},
    {"devices", ROW_DEVICES, AT(weir_host_config, devices), 0, 63, NULL},
    {"device", ROW_DEVICES, AT(weir_host_config, devices), 0, 63, NULL}, /* of one */
    {"window_base", ROW_U64, AT(weir_host_config, window_base), 1 << 30, INT64_C(1) << 46, NULL},
    {"window_bytes", ROW_BYTES, AT(weir_host_config, window_bytes), 1 << 28, INT64_C(1) << 42,
     NULL},
    {"vmm_base", ROW_U64, AT(weir_host_config, vmm_base), 1 << 30, INT64_C(1) << 46, NULL},
    {"vmm_bytes", ROW_AREA, AT(weir_host_config, vmm_bytes), AREA_UNIT, INT64_C(1) << 45, NULL},
    {"spare_workers", ROW_U32, AT(weir_host_config, workers.spares), 0, WEIR_SPARE_WORKERS_MAX,
     NULL},
    {"worker_idle_s", ROW_U32, AT(weir_host_config, workers.idle_s), 0, 86400, NULL},
    {"mps", ROW_CHOICE, AT(weir_host_config, workers.mps), 0, 0, mps_words},
    {"on_shortage", ROW_CHOICE, AT(weir_host_config, workers.on_shortage), 0, 0, shortages},
};
static const struct row forms_rows[] = {
    {"mode", ROW_CHOICE, AT(weir_host_config, forms.mode), 0, 0, forms_modes},
    {"ptx", ROW_CHOICE, AT(weir_host_config, forms.ptx), 0, 0, forms_ptx},
    {"twins", ROW_CHOICE, AT(weir_host_config, forms.twins), 0, 0, forms_twins},
    {"seed", ROW_U32, AT(weir_host_config, forms.seed), 0, INT32_MAX, NULL},
    {"compiler", ROW_TEXT, AT(weir_host_config, forms.compiler), 0, 0, NULL},
    {"cache_dir", ROW_TEXT, AT(weir_host_config, forms.cache_dir), 0, 0, NULL},
    {"cache", ROW_LIMIT, AT(weir_host_config, forms.cache_bytes), 0, 0, NULL},
};
static const struct row scheduler_rows[] = {
    {"policy", ROW_TEXT, AT(weir_host_config, scheduler.policy), 0, 0, NULL},
    {"inflight_us", ROW_U32, AT(weir_host_config, scheduler.inflight_us), 10, 1000000, NULL},
    {"alone_us", ROW_U32, AT(weir_host_config, scheduler.alone_us), 100, 10000000, NULL},
    {"starve_ms", ROW_U32, AT(weir_host_config, scheduler.starve_ms), 1, 60000, NULL},
    {"overhead_ppm", ROW_U32, AT(weir_host_config, scheduler.overhead_ppm), 100, 500000, NULL},
    {"fill", ROW_CHOICE, AT(weir_host_config, scheduler.fill), 0, 0, weir_sched_fill_words},
    {"order_window", ROW_U32, AT(weir_host_config, scheduler.order_window), 2, 10, NULL},
};
static const struct row metrics_rows[] = {
    {"listen", ROW_TEXT, AT(weir_host_config, metrics_listen), 0, 0, NULL},
};
static const struct row libvirt_rows[] = {
    {"uri", ROW_TEXT, AT(weir_host_config, libvirt_uri), 0, 0, NULL},
    {"create", ROW_BOOL, AT(weir_host_config, libvirt_create), 0, 0, NULL},
};
static const struct row tenant_rows[] = {
    {"name", ROW_NAME, AT(weir_tenant_config, name), 0, 0, NULL},
    {"key", ROW_KEY, AT(weir_tenant_config, key), 0, 0, NULL},
    {"vsock_cid", ROW_U32, AT(weir_tenant_config, vsock_cid), 0, UINT32_MAX - 1, NULL},
    {"weight", ROW_U32, AT(weir_tenant_config, weight), 1, 10000, NULL},
    {"priority", ROW_CHOICE, AT(weir_tenant_config, priority), 0, 0, weir_priority_names},
    {"min_share", ROW_PCT, AT(weir_tenant_config, min_share_pct), 0, 100, NULL},
    {"sm_limit", ROW_PCT, AT(weir_tenant_config, sm_limit_pct), 1, 100, NULL},
    {"share", ROW_CHOICE, AT(weir_tenant_config, share), 0, 0, shares},
    {"isolation", ROW_CHOICE, AT(weir_tenant_config, isolation), 0, 0, isolations},
    {"group", ROW_NAME, AT(weir_tenant_config, group), 0, 0, NULL},
    {"memory", ROW_AMOUNT, AT(weir_tenant_config, memory), 0, 0, NULL},
    {"pinned", ROW_AMOUNT, AT(weir_tenant_config, pinned), 0, 0, NULL},
    {"devices", ROW_DEVICES, AT(weir_tenant_config, devices), 0, 63, NULL},
    {"forms", ROW_CHOICE, AT(weir_tenant_config, forms), 0, 0, forms_wishes},
    {"sessions", ROW_U32, AT(weir_tenant_config, sessions_max), 1, 1024, NULL},
    {"orphan_s", ROW_U32, AT(weir_tenant_config, orphan_s), 0, SECONDS_MAX, NULL},
    {"user", ROW_USER, AT(weir_tenant_config, user), 0, UINT32_MAX - 1, NULL},
};
/* What a share on demand has, and how much of it may be asked for. */
static const struct row default_rows[] = {
    {"weight", ROW_U32, AT(weir_host_config, demand.usual.weight), 1, 10000, NULL},
    {"max_weight", ROW_U32, AT(weir_host_config, demand.most.weight), 1, 10000, NULL},
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
    {"isolation", ROW_CHOICE, AT(weir_host_config, demand.usual.isolation), 0, 0, isolations},
    {"group", ROW_NAME, AT(weir_host_config, demand.usual.group), 0, 0, NULL},
    {"pinned", ROW_AMOUNT, AT(weir_host_config, demand.usual.pinned), 0, 0, NULL},
    {"devices", ROW_DEVICES, AT(weir_host_config, demand.usual.devices), 0, 63, NULL},
    {"forms", ROW_CHOICE, AT(weir_host_config, demand.usual.forms), 0, 0, forms_wishes},
    {"orphan_s", ROW_U32, AT(weir_host_config, demand.usual.orphan_s), 0, SECONDS_MAX, NULL},
    {"per_user", ROW_U32, AT(weir_host_config, demand.per_user), 0, WEIR_CONFIG_TENANTS_MAX, NULL},
    {"socket_mode", ROW_U32, AT(weir_host_config, demand.socket_mode), 0, 0777, NULL},
};
#define N_ROWS(rows) (sizeof(rows) / sizeof((rows)[0]))

enum place {
    PLACE_NONE,
    PLACE_HOST,
    PLACE_FORMS,
    PLACE_SCHEDULER,
    PLACE_METRICS,
    PLACE_LIBVIRT,
    PLACE_DEFAULT,
    PLACE_TENANT
};

static const struct {
    const char *name, *shown;
    const struct row *rows;
    size_t n_rows;
} tables[] = {
    [PLACE_NONE] = {"", "", NULL, 0},
    [PLACE_HOST] = {"host", "[host]", host_rows, N_ROWS(host_rows)},
    [PLACE_FORMS] = {"forms", "[forms]", forms_rows, N_ROWS(forms_rows)},
    [PLACE_SCHEDULER] = {"scheduler", "[scheduler]", scheduler_rows, N_ROWS(scheduler_rows)},
    [PLACE_METRICS] = {"metrics", "[metrics]", metrics_rows, N_ROWS(metrics_rows)},
    [PLACE_LIBVIRT] = {"libvirt", "[libvirt]", libvirt_rows, N_ROWS(libvirt_rows)},
    [PLACE_DEFAULT] = {"default", "[default]", default_rows, N_ROWS(default_rows)},
    [PLACE_TENANT] = {"tenant", "[[tenant]]", tenant_rows, N_ROWS(tenant_rows)}};

struct parse {
    struct weir_host_config config;
    enum place place;
    uint32_t seen;        /* bit per row of the table in hand */
    uint32_t tables_seen; /* bit per place */
    uint32_t table_line, table_column;
};

void weir_tenant_config_default(struct weir_tenant_config *tenant, const char *name)
{
    *tenant = (struct weir_tenant_config){.weight = 100,
                                          .priority = WEIR_PRIORITY_NORMAL,
                                          .sm_limit_pct = 100,
                                          .pinned = {.pct = 50},
                                          .sessions_max = 256};
    snprintf(tenant->name, sizeof tenant->name, "%s", name);
}

static void host_default(struct weir_host_config *config)
{
    *config = (struct weir_host_config){.socket_mode = 0660,
                                        .vsock_port = 7070,
                                        .vm_region_bytes = UINT64_C(1) << 30,
                                        .quarantine_s = 300,
                                        .window_base = 0x200000000000,
                                        .window_bytes = UINT64_C(1) << 40,
                                        .vmm_base = 0x120000000000,
                                        .vmm_bytes = UINT64_C(14) << 40,
                                        .workers = {.spares = 2, .idle_s = 10}};
    weir_demand_default(&config->demand);
    snprintf(config->driver, sizeof config->driver, "auto");
    snprintf(config->log, sizeof config->log, "info");
    snprintf(config->forms.compiler, sizeof config->forms.compiler, "auto");
    config->forms.mode = WEIR_FORMS_DEFAULT;
    config->forms.cache_bytes = UINT64_C(512) << 20;
    config->scheduler = weir_sched_settings_default();
    snprintf(config->run_dir, sizeof config->run_dir, "%s", weir_control_default_run_dir());
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
    snprintf(row->priority, sizeof row->priority, "%s", weir_priority_names[tenant->priority]);
    snprintf(row->isolation, sizeof row->isolation, "%s", isolations[tenant->isolation]);
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

static bool key_ok(const char *key)
{
    return strlen(key) == WEIR_KEY_Z85_BYTES - 1 &&
           strspn(key, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                       ".-:+=^!/*?&<>()[]{}@%$#") == WEIR_KEY_Z85_BYTES - 1;
}

#define WRONG(value, ...) (weir_diag_set(diag, (value)->line, (value)->column, __VA_ARGS__), false)

static bool store_text(const struct row *row, char *to, const struct weir_toml_value *value,
                       struct weir_diag *diag)
{
    if (value->kind != WEIR_TOML_STRING) {
        return WRONG(value, "'%s' must be a string in quotes", row->key);
    }
    if (strlen(value->string) >= row->size && row->kind == ROW_TEXT) {
        return WRONG(value, "'%s' is too long", row->key);
    }
    if (row->kind == ROW_NAME && !weir_tenant_name_ok(value->string)) {
        return WRONG(value, "a tenant's name has 1 to 63 of A-Z a-z 0-9 . _ - and is not 'admin' "
                            "or 'new', and a group's");
    }
    if (row->kind == ROW_KEY && !key_ok(value->string)) {
        return WRONG(value, "'key' must be a public key of 40 Z85 characters");
    }
    memcpy(to, value->string, strlen(value->string) + 1);
    return true;
}

static bool store_number(const struct row *row, char *to, const struct weir_toml_value *value,
                         struct weir_diag *diag)
{
    uint32_t small = (uint32_t)value->integer;

    if (value->kind != WEIR_TOML_INTEGER) {
        return WRONG(value, "'%s' must be an integer", row->key);
    }
    if (value->integer < row->low || value->integer > row->high) {
        return WRONG(value, "'%s' must lie between %lld and %lld", row->key, (long long)row->low,
                     (long long)row->high);
    }
    memcpy(to, row->kind == ROW_U32 ? (const void *)&small : (const void *)&value->integer,
           row->size);
    return true;
}

static bool store_devices(const struct row *row, char *to, const struct weir_toml_value *value,
                          struct weir_diag *diag)
{
    if (value->kind == WEIR_TOML_INTEGER) {
        if (value->integer < row->low || value->integer > row->high) {
            return WRONG(value, "'%s' must lie between %lld and %lld", row->key,
                         (long long)row->low, (long long)row->high);
        }
        snprintf(to, row->size, "%d", (int)value->integer);
        return true;
    }
    if (value->kind != WEIR_TOML_STRING || weir_devices_parse(value->string, to) != WEIR_OK) {
        return WRONG(value, "'%s' must be an ordinal, or a list such as \"0,1\" or \"GPU-4a8f\"",
                     row->key);
    }
    return true;
}

/* In the largest unit that divides it. */
static void amount_text(const struct weir_amount *amount, char *text, size_t bytes)
{
    static const char *const units[] = {"", "KiB", "MiB", "GiB", "TiB"};
    uint64_t value = amount->bytes;
    int unit = 0;

    while (value != 0 && value % 1024 == 0 && unit < 4) {
        value /= 1024;
        unit++;
    }
    if (amount->pct != 0 || value == 0) {
        snprintf(text, bytes, "%u%%", amount->pct != 0 ? amount->pct : 100);
    } else {
        snprintf(text, bytes, "%llu%s", (unsigned long long)value, units[unit]);
    }
}

static bool is_size_of(const struct row *row, uint64_t bytes)
{
    uint64_t odd = row->kind == ROW_AREA ? bytes % AREA_UNIT : bytes & (bytes - 1);

    return bytes >= (uint64_t)row->low && bytes <= (uint64_t)row->high && odd == 0;
}

static bool wrong_size(const struct row *row, const struct weir_toml_value *value,
                       struct weir_diag *diag)
{
    const struct weir_amount low = {.bytes = (uint64_t)row->low};
    const struct weir_amount high = {.bytes = (uint64_t)row->high};
    char least[WEIR_SETTING_TEXT_BYTES], most[WEIR_SETTING_TEXT_BYTES];

    amount_text(&low, least, sizeof least);
    amount_text(&high, most, sizeof most);
    return WRONG(value, "'%s' must be a %s between %s and %s", row->key,
                 row->kind == ROW_AREA ? "multiple of 1GiB" : "power of two", least, most);
}

static bool store_amount(const struct row *row, char *to, const struct weir_toml_value *value,
                         struct weir_diag *diag)
{
    struct weir_amount amount = {0};

    if (value->kind == WEIR_TOML_INTEGER && value->integer > 0) {
        amount.bytes = (uint64_t)value->integer;
    } else if (value->kind != WEIR_TOML_STRING ||
               weir_amount_parse(value->string, &amount) != WEIR_OK) {
        return WRONG(value, "'%s' must be an amount such as \"8GiB\" or \"25%%\"", row->key);
    }
    if (row->kind == ROW_AMOUNT) {
        memcpy(to, &amount, sizeof amount);
        return true;
    }
    if (row->kind == ROW_LIMIT && amount.bytes != 0) {
        memcpy(to, &amount.bytes, sizeof amount.bytes);
        return true;
    }
    if (row->kind == ROW_LIMIT) {
        return WRONG(value, "'%s' must be an amount such as \"512MiB\"", row->key);
    }
    if (!is_size_of(row, amount.bytes)) {
        return wrong_size(row, value, diag);
    }
    memcpy(to, &amount.bytes, sizeof amount.bytes);
    return true;
}

static bool store_choice(const struct row *row, char *to, const struct weir_toml_value *value,
                         struct weir_diag *diag)
{
    char all[80] = "";

    for (int i = 0; row->choices[i] != NULL; i++) {
        if (value->kind == WEIR_TOML_STRING && strcmp(value->string, row->choices[i]) == 0) {
            int stored =
                row->choices == isolations && i == ISOLATION_OLD_TENANT ? WEIR_ISOLATION_TENANT : i;

            memcpy(to, &stored, sizeof stored);
            return true;
        }
        strcat(strcat(all, i == 0 ? "" : ", "), row->choices[i]);
    }
    return WRONG(value, "'%s' must be one of: %s", row->key, all);
}

/* 50 or "50%"; an amount of "0%" is none, but a part of nothing may be meant. */
static bool store_pct(const struct row *row, char *to, const struct weir_toml_value *value,
                      struct weir_diag *diag)
{
    struct weir_amount amount = {0};
    uint32_t pct;

    if (value->kind == WEIR_TOML_INTEGER && value->integer >= row->low && value->integer <= 100) {
        pct = (uint32_t)value->integer;
    } else if (value->kind == WEIR_TOML_STRING &&
               weir_amount_parse(value->string, &amount) == WEIR_OK && amount.pct != 0) {
        pct = amount.pct;
    } else if (value->kind == WEIR_TOML_STRING && row->low == 0 &&
               strcmp(value->string, "0%") == 0) {
        pct = 0;
    } else {
        return WRONG(value, "'%s' must be a percentage between %lld and 100", row->key,
                     (long long)row->low);
    }
    memcpy(to, &pct, sizeof pct);
    return true;
}

static bool store_bool(const struct row *row, char *to, const struct weir_toml_value *value,
                       struct weir_diag *diag)
{
    if (value->kind != WEIR_TOML_BOOLEAN) {
        return WRONG(value, "'%s' must be true or false", row->key);
    }
    memcpy(to, &value->boolean, sizeof value->boolean);
    return true;
}

/* A name, or a number without one. */
static bool store_user(const struct row *row, char *to, const struct weir_toml_value *value,
                       struct weir_diag *diag)
{
    uint32_t uid;

    if (value->kind == WEIR_TOML_INTEGER && value->integer >= row->low &&
        value->integer <= row->high) {
        snprintf(to, row->size, "%lld", (long long)value->integer);
        return true;
    }
    if (value->kind != WEIR_TOML_STRING || strlen(value->string) >= row->size) {
        return WRONG(value, "'%s' must be a user's name or number", row->key);
    }
    if (value->string[0] != 0 && weir_user_id(value->string, &uid) != WEIR_OK) {
        return WRONG(value, "'%s': there is no user '%s' here", row->key, value->string);
    }
    memcpy(to, value->string, strlen(value->string) + 1);
    return true;
}

static bool store(const struct row *row, void *object, const struct weir_toml_value *value,
                  struct weir_diag *diag)
{
    char *to = (char *)object + row->offset;

    switch (row->kind) {
    case ROW_TEXT:
    case ROW_NAME:
    case ROW_KEY:
        return store_text(row, to, value, diag);
    case ROW_U32:
    case ROW_U64:
        return store_number(row, to, value, diag);
    case ROW_AMOUNT:
    case ROW_BYTES:
    case ROW_AREA:
    case ROW_LIMIT:
        return store_amount(row, to, value, diag);
    case ROW_DEVICES:
        return store_devices(row, to, value, diag);
    case ROW_CHOICE:
        return store_choice(row, to, value, diag);
    case ROW_PCT:
        return store_pct(row, to, value, diag);
    case ROW_BOOL:
        return store_bool(row, to, value, diag);
    case ROW_USER:
        return store_user(row, to, value, diag);
    }
    return false;
}

static struct weir_tenant_config *last_tenant(struct parse *parse)
{
    return &parse->config.tenants[parse->config.n_tenants - 1];
}

/* What can only be judged at the end of a table. */
static bool close_table(struct parse *parse, struct weir_diag *diag)
{
    const struct weir_tenant_config *tenant;

    if (parse->place != PLACE_TENANT) {
        return true;
    }
    tenant = last_tenant(parse);
    if (tenant->name[0] == 0) {
        weir_diag_set(diag, parse->table_line, parse->table_column, "this tenant has no name");
        return false;
    }
    if (!weir_tenant_group_ok(tenant)) {
        weir_diag_set(diag, parse->table_line, parse->table_column, "%s", weir_group_rule);
        return false;
    }
    for (uint32_t i = 0; i + 1 < parse->config.n_tenants; i++) {
        const struct weir_tenant_config *other = &parse->config.tenants[i];

        if (strcmp(other->name, tenant->name) == 0) {
            weir_diag_set(diag, parse->table_line, parse->table_column,
                          "a second tenant is named '%s'", tenant->name);
            return false;
        }
        const char *same = weir_tenants_clash(other, tenant);

        if (same != NULL) {
            weir_diag_set(diag, parse->table_line, parse->table_column,
                          "tenants '%s' and '%s' have the same %s", other->name, tenant->name,
                          same);
            return false;
        }
    }
    return true;
}

static bool on_table(void *user, const char *name, bool array, uint32_t line, uint32_t column,
                     struct weir_diag *diag)
{
    struct parse *parse = user;

    if (!close_table(parse, diag)) {
        return false;
    }
    parse->seen = 0;
    parse->table_line = line;
    parse->table_column = column;
    for (enum place place = PLACE_HOST; place < PLACE_TENANT && !array; place++) {
        if (strcmp(name, tables[place].name) == 0 && (parse->tables_seen >> place & 1) == 0) {
            parse->place = place;
            parse->tables_seen |= 1u << place;
            return true;
        }
    }
    if (strcmp(name, "tenant") == 0 && array) {
        if (parse->config.n_tenants == WEIR_CONFIG_TENANTS_MAX) {
            weir_diag_set(diag, line, column, "more than %d tenants", WEIR_CONFIG_TENANTS_MAX);
            return false;
        }
        parse->place = PLACE_TENANT;
        weir_tenant_config_default(&parse->config.tenants[parse->config.n_tenants++], "");
        return true;
    }
    weir_diag_set(diag, line, column,
                  "unknown or repeated table '%.60s': [host], [default], [forms], [metrics], "
                  "[libvirt] or [[tenant]]",
                  name);
    return false;
}

static bool on_value(void *user, const char *key, uint32_t line, uint32_t column,
                     const struct weir_toml_value *value, struct weir_diag *diag)
{
    struct parse *parse = user;
    const struct row *rows = tables[parse->place].rows;
    size_t n_rows = tables[parse->place].n_rows;
    bool tenant = parse->place == PLACE_TENANT;

    if (parse->place == PLACE_NONE) {
        weir_diag_set(diag, line, column, "'%.60s' stands before any table such as [host]", key);
        return false;
    }
    for (size_t i = 0; i < n_rows; i++) {
        if (strcmp(rows[i].key, key) != 0) {
            continue;
        }
        if (parse->seen >> i & 1) {
            weir_diag_set(diag, line, column, "'%s' is given twice", key);
            return false;
        }
        parse->seen |= 1u << i;
        return store(&rows[i], tenant ? (void *)last_tenant(parse) : (void *)&parse->config, value,
                     diag);
    }
    weir_diag_set(diag, line, column, "unknown key '%.60s' in %s", key, tables[parse->place].shown);
    return false;
}

size_t weir_setting_count(void)
{
    return N_ROWS(tenant_rows) - 1; /* without the name, which comes first */
}

static const struct row *setting_row(size_t setting)
{
    return &tenant_rows[setting + 1];
}

_Static_assert(N_ROWS(tenant_rows) - 1 <= WEIR_SETTINGS_MAX, "room for each");

const char *weir_setting_key(size_t setting)
{
    return setting_row(setting)->key;
}

bool weir_setting_is_live(size_t setting)
{
    const char *key = setting_row(setting)->key;

    return strcmp(key, "isolation") != 0 && strcmp(key, "group") != 0 &&
           strcmp(key, "devices") != 0 && strcmp(key, "user") != 0;
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
    const struct row *row = setting_row(setting);
    struct weir_toml_value value = {.kind = WEIR_TOML_STRING, .string = text};
    char *end;

    errno = 0;
    value.integer = strtoll(text, &end, 10);
    if (row->kind != ROW_KEY && errno == 0 && *text != ' ' && *text != 0 && *end == 0) {
        value.kind = WEIR_TOML_INTEGER;
    }
    return store(row, config, &value, ret_diag) ? WEIR_OK : WEIR_ERR_INVALID;
}

void weir_setting_copy(size_t setting, const struct weir_tenant_config *from,
                       struct weir_tenant_config *to)
{
    const struct row *row = setting_row(setting);

    memcpy((char *)to + row->offset, (const char *)from + row->offset, row->size);
}

bool weir_setting_equal(size_t setting, const struct weir_tenant_config *a,
                        const struct weir_tenant_config *b)
{
    const struct row *row = setting_row(setting);
    const char *left = (const char *)a + row->offset, *right = (const char *)b + row->offset;

    switch (row->kind) {
    case ROW_TEXT:
    case ROW_NAME:
    case ROW_KEY:
    case ROW_DEVICES:
    case ROW_USER:
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

bool weir_settings_equal(const struct weir_tenant_config *a, const struct weir_tenant_config *b)
{
    for (size_t i = 0; i < weir_setting_count(); i++) {
        if (!weir_setting_equal(i, a, b)) {
            return false;
        }
    }
    return true;
}

void weir_setting_text(size_t setting, const struct weir_tenant_config *config,
                       char text[WEIR_SETTING_TEXT_BYTES])
{
    const struct row *row = setting_row(setting);
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
        amount_text(at, text, WEIR_SETTING_TEXT_BYTES);
        break;
    case ROW_CHOICE:
        memcpy(&choice, at, sizeof choice);
        snprintf(text, WEIR_SETTING_TEXT_BYTES, "%s", row->choices[choice]);
        break;
    case ROW_TEXT:
    case ROW_NAME:
    case ROW_KEY:
    case ROW_DEVICES:
    case ROW_USER:
    case ROW_U64:
    case ROW_BYTES:
    case ROW_AREA:
    case ROW_LIMIT:
    case ROW_BOOL: /* the last five: no tenant has one */
        snprintf(text, WEIR_SETTING_TEXT_BYTES, "%.*s", WEIR_SETTING_TEXT_BYTES - 1,
                 (const char *)at);
        break;
    }
}

/* The area for reservations may lie anywhere beside all windows. */
bool weir_config_areas_ok(const struct weir_host_config *c, struct weir_diag *ret_diag)
{
    uint64_t windows_end = c->window_base + WEIR_WINDOWS_MAX * c->window_bytes;

    if (c->vmm_base % AREA_UNIT != 0 || c->vmm_bytes % AREA_UNIT != 0) {
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

enum weir_status weir_config_parse(const char *text, size_t bytes,
                                   struct weir_host_config *ret_config, struct weir_diag *ret_diag)
{
    static const struct weir_toml_visitor visitor = {on_table, on_value};
    struct parse *parse = calloc(1, sizeof *parse);
    enum weir_status status;

    if (parse == NULL) {
        return WEIR_ERR_NO_MEMORY;
    }
    host_default(&parse->config);
    status = weir_toml_parse(text, bytes, &visitor, parse, ret_diag);
    if (status == WEIR_OK && !close_table(parse, ret_diag)) {
        status = WEIR_ERR_SYNTAX;
    }
    if (status == WEIR_OK && parse->config.window_base % parse->config.window_bytes != 0) {
        weir_diag_set(ret_diag, 0, 0, "window_base is not a multiple of window_bytes");
        status = WEIR_ERR_SYNTAX;
    }
    if (status == WEIR_OK && !weir_config_areas_ok(&parse->config, ret_diag)) {
        status = WEIR_ERR_SYNTAX;
    }
    if (status == WEIR_OK && !weir_config_policy_ok(parse->config.scheduler.policy, ret_diag)) {
        status = WEIR_ERR_SYNTAX;
    }
    if (status == WEIR_OK &&
        !weir_demand_complete(&parse->config.demand, parse->config.socket_mode, ret_diag)) {
        status = WEIR_ERR_SYNTAX;
    }
    if (status == WEIR_OK) {
        if (parse->config.n_tenants == 0) {
            weir_tenant_config_default(&parse->config.tenants[parse->config.n_tenants++],
                                       "default");
        }
        *ret_config = parse->config;
    }
    free(parse);
    return status;
}

enum weir_status weir_config_load(const char *path, struct weir_host_config *ret_config,
                                  struct weir_diag *ret_diag)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    enum weir_status status = WEIR_ERR_NO_MEMORY;
    char *text = NULL;
    size_t bytes = 0;
    ssize_t n = 0;

    if (fd < 0) {
        return errno == ENOENT ? WEIR_ERR_NOT_FOUND : WEIR_ERR_IO;
    }
    text = malloc(FILE_MAX_BYTES + 1);
    while (text != NULL && bytes <= FILE_MAX_BYTES &&
           (n = read(fd, text + bytes, FILE_MAX_BYTES + 1 - bytes)) > 0) {
        bytes += (size_t)n;
    }
    if (text != NULL) {
        if (n < 0) {
            status = WEIR_ERR_IO;
        } else if (bytes > FILE_MAX_BYTES) {
            status = WEIR_ERR_TOO_BIG;
        } else {
            status = weir_config_parse(text, bytes, ret_config, ret_diag);
        }
    }
    free(text);
    close(fd);
    return status;
}
