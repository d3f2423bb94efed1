/*
 * weir.toml: its reader, the values behind its keys, and the editor that keeps what people wrote.
 *
 * The first four bytes choose an edit, the rest is the file. A file that the host accepts must
 * still be one when a tenant's key has been changed, with that value, every other setting as it
 * was, and every byte outside the key's lines too; and the tenant must be gone when it was taken
 * out.
 */
#include "host_backend/config/config.h"
#include "host_backend/config/toml.h"
#include "tools/toml_edit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EDIT_BYTES 4

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require_at(bool condition, int line)
{
    if (!condition) {
        (void)fprintf(stderr, "fuzz_toml.c:%d: does not hold\n", line);
        abort();
    }
}
#define require(condition) require_at((condition), __LINE__)

/* Values that weir.toml may have, and some that it may not. */
static const char *const values[] = {
    "1",      "100",    "5%",   "100%",    "1GiB",    "1.5 GiB", "25%",       "high",   "low",
    "normal", "off",    "0x10", "process", "program", "strict",  "group",     "tenant", "0,1",
    "never",  "always", "-3",   "10000",   "nobody",  "0",       "4294967294"};

static bool parse(const char *text, size_t bytes, struct weir_host_config *ret)
{
    struct weir_diag diag = {0};

    if (weir_config_parse(text, bytes, ret, &diag) == WEIR_OK) {
        return true;
    }
    require(strnlen(diag.message, sizeof diag.message) < sizeof diag.message &&
            diag.message[0] != 0);
    return false;
}

/* ---------------------------------------------------------------- bytes */

static size_t line_start(const char *text, size_t at)
{
    while (at > 0 && text[at - 1] != '\n') {
        at--;
    }
    return at;
}

static size_t line_end(const char *text, size_t at)
{
    at += strcspn(text + at, "\n");
    return at + (text[at] == '\n');
}

/* The lines that a change of a tenant's key may touch: [from, to). */
static void lines_of(const char *text, const char *name, const char *key, size_t *from, size_t *to)
{
    struct weir_arena arena;
    const struct weir_toml_value *root, *tenant;

    *from = *to = strlen(text);
    weir_arena_init(&arena, WEIR_TOML_ARENA_BASE + *to * WEIR_TOML_ARENA_PER_BYTE);
    require(weir_toml_parse(text, *to, &arena, &root, NULL) == WEIR_OK);
    tenant = weir_toml_find(root, "tenant");
    for (tenant = tenant ? tenant->items : NULL; tenant; tenant = tenant->next) {
        const struct weir_toml_value *value = weir_toml_find(tenant, key);

        if (strcmp(weir_toml_find(tenant, "name")->string, name) == 0) {
            *from = value ? line_start(text, value->key_at)
                          : line_end(text, weir_toml_find(tenant, "name")->end);
            *to = value ? line_end(text, value->end) : *from;
        }
    }
    weir_arena_finish(&arena);
}

static void keeps_the_rest(const char *text, const char *edited, const char *name, const char *key)
{
    size_t from, to, rest;

    lines_of(text, name, key, &from, &to);
    rest = strlen(text) - to;
    require(strlen(edited) >= from + rest && memcmp(text, edited, from) == 0);
    require(strcmp(text + to, edited + strlen(edited) - rest) == 0);
}

/* ---------------------------------------------------------------- settings */

static struct weir_tenant_config *find(struct weir_host_config *config, const char *name)
{
    for (uint32_t i = 0; i < config->n_tenants; i++) {
        if (strcmp(config->tenants[i].name, name) == 0) {
            return &config->tenants[i];
        }
    }
    return NULL;
}

static void same_but_for(struct weir_host_config *before, struct weir_host_config *now,
                         const char *changed)
{
    require(strcmp(before->run_dir, now->run_dir) == 0 && strcmp(before->log, now->log) == 0 &&
            before->window_base == now->window_base &&
            before->vm_region_bytes == now->vm_region_bytes &&
            memcmp(&before->forms, &now->forms, sizeof now->forms) == 0 &&
            memcmp(&before->scheduler, &now->scheduler, sizeof now->scheduler) == 0 &&
            strcmp(before->metrics_listen, now->metrics_listen) == 0);
    for (uint32_t i = 0; i < before->n_tenants; i++) {
        const struct weir_tenant_config *was = &before->tenants[i], *is = find(now, was->name);

        require(strcmp(was->name, changed) == 0 || (is && weir_settings_equal(was, is)));
    }
}

/* Does the file hold with the tenant as it will be? */
static bool fits(const struct weir_host_config *config, const struct weir_tenant_config *tenant)
{
    for (uint32_t i = 0; i < config->n_tenants; i++) {
        if (strcmp(config->tenants[i].name, tenant->name) != 0 &&
            weir_tenants_clash(tenant, &config->tenants[i])) {
            return false;
        }
    }
    return weir_tenant_group_ok(tenant) && weir_tenant_devices_ok(tenant, config);
}

static void set(const char *text, struct weir_host_config *config, const char *name, size_t setting,
                const char *value)
{
    struct weir_tenant_config *there = find(config, name), wanted;
    struct weir_host_config now;
    struct weir_diag diag;
    char *edited;

    weir_tenant_config_default(&wanted, name);
    wanted = there ? *there : wanted;
    if (weir_setting_store(setting, value, &wanted, &diag) != WEIR_OK || !fits(config, &wanted) ||
        (!there && config->n_tenants == WEIR_CONFIG_TENANTS_MAX)) {
        return;
    }
    edited = weir_toml_set(text, name, weir_setting_key(setting), value);
    require(edited != NULL);
    require(parse(edited, strlen(edited), &now));
    require(find(&now, name) && weir_settings_equal(find(&now, name), &wanted));
    same_but_for(config, &now, name);
    keeps_the_rest(text, edited, name, weir_setting_key(setting));
    free(edited);
}

static void remove_one(const char *text, struct weir_host_config *config, const char *name)
{
    char *edited = weir_toml_remove(text, name);
    struct weir_host_config now;

    require(edited != NULL);
    require(parse(edited, strlen(edited), &now));
    if (weir_toml_has_tenants(edited)) {
        require(!find(&now, name));
    }
    same_but_for(config, &now, name);
    free(edited);
}

static void edit(const uint8_t *choice, const char *text, struct weir_host_config *config)
{
    const char *name = choice[0] < config->n_tenants ? config->tenants[choice[0]].name : "other";
    size_t setting = choice[1] % weir_setting_count();

    if (choice[3] % 4 == 0 && config->n_tenants > 1) {
        remove_one(text, config, name);
    } else {
        set(text, config, name, setting, values[choice[2] % (sizeof values / sizeof values[0])]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct weir_host_config config;
    char *text;

    if (size < EDIT_BYTES) {
        return 0;
    }
    text = calloc(1, size - EDIT_BYTES + 1);
    if (!text) {
        return 0;
    }
    memcpy(text, data + EDIT_BYTES, size - EDIT_BYTES);
    if (parse(text, size - EDIT_BYTES, &config)) {
        require(strlen(text) == size - EDIT_BYTES); /* an editor would lose what is behind */
        if (weir_toml_editable(text)) {
            edit(data, text, &config);
        }
    }
    free(text);
    return 0;
}
