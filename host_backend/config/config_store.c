/* Stores the values of weir.toml's keys, and reports wrong ones. */
#include "host_backend/config/config_row.h"

#include "sched/policy.h"
#include <stdio.h>
#include <string.h>

/* No program can run with less memory, so a smaller number lacks its unit. */
#define AMOUNT_MIN_BYTES (1u << 20)

static bool key_ok(const char *key)
{
    return strlen(key) == WEIR_KEY_Z85_BYTES - 1 &&
           strspn(key, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                       ".-:+=^!/*?&<>()[]{}@%$#") == WEIR_KEY_Z85_BYTES - 1;
}

/* Report that a value has the wrong type. A value from a command line has no place, and is always
 * text. */
static bool wrong_kind(const struct weir_row *row, const struct weir_toml_value *value,
                       const char *wanted, struct weir_diag *diag)
{
    WEIR_FAIL_IF(value->line == 0, WEIR_WRONG(value, "'%s' must be %s", row->key, wanted));
    return WEIR_WRONG(value, "'%s' must be %s, not %s", row->key, wanted,
                      weir_toml_kind_text(value->kind));
}

static bool store_text(const struct weir_row *row, char *to, const struct weir_toml_value *value,
                       struct weir_diag *diag)
{
    WEIR_FAIL_IF(value->kind != WEIR_TOML_STRING,
                 wrong_kind(row, value, "a string in quotes", diag));
    WEIR_FAIL_IF(strlen(value->string) >= row->size && row->kind == ROW_TEXT,
                 WEIR_WRONG(value, "'%s' is too long", row->key));
    WEIR_FAIL_IF(row->kind == ROW_NAME && !weir_tenant_name_ok(value->string),
                 WEIR_WRONG(value, "%s", weir_tenant_name_rule));
    WEIR_FAIL_IF(row->kind == ROW_KEY && !key_ok(value->string),
                 WEIR_WRONG(value, "'key' must be a public key of 40 Z85 characters"));
    memcpy(to, value->string, strlen(value->string) + 1);
    return true;
}

static bool store_number(const struct weir_row *row, char *to, const struct weir_toml_value *value,
                         struct weir_diag *diag)
{
    uint32_t small = (uint32_t)value->integer;

    WEIR_FAIL_IF(value->kind != WEIR_TOML_INTEGER, wrong_kind(row, value, "an integer", diag));
    WEIR_FAIL_IF(value->integer < row->low || value->integer > row->high,
                 WEIR_WRONG(value, "'%s' must lie between %lld and %lld", row->key,
                            (long long)row->low, (long long)row->high));
    memcpy(to, row->kind == ROW_U32 ? (const void *)&small : (const void *)&value->integer,
           row->size);
    return true;
}

/* Convert [0, "GPU-12"] to "0,GPU-12", and copy text. false: the value is neither, or too long. */
static bool list_text(const struct weir_toml_value *value, char *to, size_t bytes)
{
    const struct weir_toml_value *item = value->kind == WEIR_TOML_ARRAY ? value->items : value;
    size_t at = 0;

    *to = 0;
    for (; item; item = value->kind == WEIR_TOML_ARRAY ? item->next : NULL) {
        int n;

        if (item->kind == WEIR_TOML_INTEGER) {
            n = snprintf(to + at, bytes - at, "%s%lld", at == 0 ? "" : ",",
                         (long long)item->integer);
        } else if (item->kind == WEIR_TOML_STRING && strlen(item->string) == item->string_bytes) {
            n = snprintf(to + at, bytes - at, "%s%s", at == 0 ? "" : ",", item->string);
        } else {
            return false;
        }
        at += (size_t)n;
        WEIR_FAIL_IF(at >= bytes, false);
    }
    return true;
}

static bool store_devices(const struct weir_row *row, char *to, const struct weir_toml_value *value,
                          struct weir_diag *diag)
{
    char list[WEIR_DEVICE_LIST_BYTES];

    if (value->kind == WEIR_TOML_INTEGER &&
        (value->integer < row->low || value->integer > row->high)) {
        return WEIR_WRONG(value, "'%s' must lie between %lld and %lld", row->key,
                          (long long)row->low, (long long)row->high);
    }
    WEIR_FAIL_IF(
        !list_text(value, list, sizeof list) || weir_devices_parse(list, to) != WEIR_OK,
        WEIR_WRONG(value,
                   "'%s' must be an ordinal, or a list such as \"0,1\", [0, 1] or \"GPU-4a8f\"",
                   row->key));
    return true;
}

static bool store_policy(const struct weir_row *row, char *to, const struct weir_toml_value *value,
                         struct weir_diag *diag)
{
    char list[WEIR_CONFIG_PATH_BYTES];
    struct weir_diag why;

    WEIR_FAIL_IF(
        !list_text(value, list, row->size < sizeof list ? row->size : sizeof list),
        WEIR_WRONG(value, "'%s' must be a list such as \"fair,corun\", or \"off\"", row->key));
    WEIR_FAIL_IF(!weir_config_policy_ok(list, &why), WEIR_WRONG(value, "%s", why.message));
    memcpy(to, list, strlen(list) + 1);
    return true;
}

/* Write an amount in the largest unit that divides it. */
void weir_amount_text(const struct weir_amount *amount, char *text, size_t bytes)
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

static bool is_size_of(const struct weir_row *row, uint64_t bytes)
{
    uint64_t odd = row->kind == ROW_AREA ? bytes % WEIR_AREA_UNIT : bytes & (bytes - 1);

    return bytes >= (uint64_t)row->low && bytes <= (uint64_t)row->high && odd == 0;
}

static bool wrong_size(const struct weir_row *row, const struct weir_toml_value *value,
                       struct weir_diag *diag)
{
    const struct weir_amount low = {.bytes = (uint64_t)row->low};
    const struct weir_amount high = {.bytes = (uint64_t)row->high};
    char least[WEIR_SETTING_TEXT_BYTES], most[WEIR_SETTING_TEXT_BYTES];

    weir_amount_text(&low, least, sizeof least);
    weir_amount_text(&high, most, sizeof most);
    return WEIR_WRONG(value, "'%s' must be a %s between %s and %s", row->key,
                      row->kind == ROW_AREA ? "multiple of 1GiB" : "power of two", least, most);
}

static bool store_amount(const struct weir_row *row, char *to, const struct weir_toml_value *value,
                         struct weir_diag *diag)
{
    struct weir_amount amount = {0};

    if (value->kind == WEIR_TOML_INTEGER && value->integer > 0) {
        amount.bytes = (uint64_t)value->integer;
    } else if (value->kind != WEIR_TOML_STRING ||
               weir_amount_parse(value->string, &amount) != WEIR_OK) {
        return WEIR_WRONG(value, "'%s' must be an amount such as \"8GiB\" or \"25%%\"", row->key);
    }
    WEIR_FAIL_IF(
        row->kind == ROW_AMOUNT && amount.bytes != 0 && amount.bytes < AMOUNT_MIN_BYTES,
        WEIR_WRONG(value,
                   "'%s' is only %llu bytes, and the least is 1MiB: give a unit, as in \"8GiB\"",
                   row->key, (unsigned long long)amount.bytes));
    if (row->kind == ROW_AMOUNT) {
        memcpy(to, &amount, sizeof amount);
        return true;
    }
    if (row->kind == ROW_LIMIT && amount.bytes != 0) {
        memcpy(to, &amount.bytes, sizeof amount.bytes);
        return true;
    }
    WEIR_FAIL_IF(row->kind == ROW_LIMIT,
                 WEIR_WRONG(value, "'%s' must be an amount such as \"512MiB\"", row->key));
    if (!is_size_of(row, amount.bytes)) {
        return wrong_size(row, value, diag);
    }
    memcpy(to, &amount.bytes, sizeof amount.bytes);
    return true;
}

static bool store_choice(const struct weir_row *row, char *to, const struct weir_toml_value *value,
                         struct weir_diag *diag)
{
    char all[80] = "";

    for (int i = 0; row->choices[i]; i++) {
        if (value->kind == WEIR_TOML_STRING && strcmp(value->string, row->choices[i]) == 0) {
            int stored = row->choices == weir_isolation_words && i == WEIR_ISOLATION_WORD_OLD_TENANT
                             ? WEIR_ISOLATION_TENANT
                             : i;

            memcpy(to, &stored, sizeof stored);
            return true;
        }
        strcat(strcat(all, i == 0 ? "" : ", "), row->choices[i]);
    }
    if (row->choices == weir_isolation_words && value->kind == WEIR_TOML_STRING &&
        strcmp(value->string, "shared") == 0) {
        return WEIR_WRONG(value, "'isolation' is not 'shared' any more: use 'group', with the same "
                                 "'group' for all tenants that are to share a worker");
    }
    return WEIR_WRONG(value, "'%s' must be one of: %s", row->key, all);
}

/* Read 50 or "50%", and "0%" where the lowest value is 0. */
static bool store_pct(const struct weir_row *row, char *to, const struct weir_toml_value *value,
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
        return WEIR_WRONG(value, "'%s' must be a percentage between %lld and 100", row->key,
                          (long long)row->low);
    }
    memcpy(to, &pct, sizeof pct);
    return true;
}

static bool store_bool(const struct weir_row *row, char *to, const struct weir_toml_value *value,
                       struct weir_diag *diag)
{
    WEIR_FAIL_IF(value->kind != WEIR_TOML_BOOLEAN,
                 WEIR_WRONG(value, "'%s' must be true or false", row->key));
    memcpy(to, &value->boolean, sizeof value->boolean);
    return true;
}

/* Both kinds of lists stay text; their users parse them. */
static bool store_list(const struct weir_row *row, char *to, const struct weir_toml_value *value,
                       struct weir_diag *diag)
{
    char number[24];
    bool is_number = value->kind == WEIR_TOML_INTEGER && row->kind == ROW_AMOUNTS;
    const char *text = is_number ? number : value->string, *comma = text;
    struct weir_amount amount;

    snprintf(number, sizeof number, "%lld", (long long)value->integer);
    WEIR_FAIL_IF(value->kind != WEIR_TOML_STRING && !is_number,
                 wrong_kind(row, value, "a string in quotes", diag));
    WEIR_FAIL_IF(
        strlen(text) >= row->size,
        WEIR_WRONG(value, "'%s' is too long: %zu characters at most", row->key, row->size - 1));
    WEIR_FAIL_IF(row->kind == ROW_LABELS && !weir_labels_ok(text),
                 WEIR_WRONG(value, "'labels' must be NAME=VALUE with commas between: a name of "
                                   "letters, digits and _, a value without blanks and quotes"));
    for (uint32_t i = 0; row->kind == ROW_AMOUNTS && *text != 0 && comma; i++) {
        if (weir_amounts_get(text, i, &amount) != WEIR_OK ||
            (amount.pct == 0 && amount.bytes < AMOUNT_MIN_BYTES)) {
            return WEIR_WRONG(value,
                              "'%s' must be amounts with commas between, such as "
                              "\"8GiB,25%%\"",
                              row->key);
        }
        comma = strchr(comma, ',');
        comma = comma ? comma + 1 : NULL;
    }
    memcpy(to, text, strlen(text) + 1);
    return true;
}

/* Store a user's name, or a number without one. */
static bool store_user(const struct weir_row *row, char *to, const struct weir_toml_value *value,
                       struct weir_diag *diag)
{
    uint32_t uid;

    if (value->kind == WEIR_TOML_INTEGER && value->integer >= row->low &&
        value->integer <= row->high) {
        snprintf(to, row->size, "%lld", (long long)value->integer);
        return true;
    }
    WEIR_FAIL_IF(value->kind != WEIR_TOML_STRING || strlen(value->string) >= row->size,
                 WEIR_WRONG(value, "'%s' must be a user's name or number", row->key));
    WEIR_FAIL_IF(value->string[0] != 0 && weir_user_id(value->string, &uid) != WEIR_OK,
                 WEIR_WRONG(value, "'%s': there is no user '%s' here", row->key, value->string));
    memcpy(to, value->string, strlen(value->string) + 1);
    return true;
}

bool weir_row_store(const struct weir_row *row, void *object, const struct weir_toml_value *value,
                    struct weir_diag *diag)
{
    char *to = (char *)object + row->offset;

    WEIR_FAIL_IF(value->kind == WEIR_TOML_STRING && strlen(value->string) != value->string_bytes,
                 WEIR_WRONG(value, "'%s' must not have a NUL inside", row->key));
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
    case ROW_POLICY:
        return store_policy(row, to, value, diag);
    case ROW_CHOICE:
        return store_choice(row, to, value, diag);
    case ROW_PCT:
        return store_pct(row, to, value, diag);
    case ROW_BOOL:
        return store_bool(row, to, value, diag);
    case ROW_USER:
        return store_user(row, to, value, diag);
    case ROW_AMOUNTS:
    case ROW_LABELS:
        return store_list(row, to, value, diag);
    }
    return false;
}
