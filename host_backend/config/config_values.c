/* Parses the values of weir.toml's keys: amounts, lists of devices, users, isolation. */
#include "host_backend/config/config.h"

#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static bool unit_of(const char *text, double *ret)
{
    static const struct {
        const char *name;
        double factor;
    } units[] = {{"", 1},         {"b", 1},       {"kib", 0x1p10}, {"mib", 0x1p20}, {"gib", 0x1p30},
                 {"tib", 0x1p40}, {"k", 0x1p10},  {"m", 0x1p20},   {"g", 0x1p30},   {"t", 0x1p40},
                 {"ki", 0x1p10},  {"mi", 0x1p20}, {"gi", 0x1p30},  {"ti", 0x1p40}, /* Kubernetes' */
                 {"kb", 1e3},     {"mb", 1e6},    {"gb", 1e9},     {"tb", 1e12}};

    for (size_t i = 0; i < WEIR_COUNT(units); i++) {
        if (strcasecmp(text, units[i].name) == 0) {
            *ret = units[i].factor;
            return true;
        }
    }
    return false;
}

enum weir_status weir_amount_parse(const char *text, struct weir_amount *ret_amount)
{
    char *rest;
    double value, factor;

    if (*text < '0' || *text > '9' || text[1] == 'x') { /* strtod also reads "inf", "-1", "0x1" */
        return WEIR_ERR_INVALID;
    }
    value = strtod(text, &rest);
    while (*rest == ' ') {
        rest++;
    }
    if (strcmp(rest, "%") == 0) {
        WEIR_FAIL_IF(value < 1 || value > 100, WEIR_ERR_INVALID);
        *ret_amount = (struct weir_amount){.pct = (uint32_t)value};
        return WEIR_OK;
    }
    WEIR_FAIL_IF(!unit_of(rest, &factor) || value * factor < 1 || value * factor > 0x1p60,
                 WEIR_ERR_INVALID);
    *ret_amount = (struct weir_amount){.bytes = (uint64_t)(value * factor)};
    return WEIR_OK;
}

enum weir_status weir_amounts_get(const char *list, uint32_t device, struct weir_amount *ret_amount)
{
    char one[32];

    WEIR_FAIL_IF(*list == 0, WEIR_ERR_NOT_FOUND);
    for (; device != 0 && strchr(list, ','); device--) {
        list = strchr(list, ',') + 1;
    }
    list += strspn(list, " ");
    if (snprintf(one, sizeof one, "%.*s", (int)strcspn(list, ","), list) >= (int)sizeof one) {
        return WEIR_ERR_INVALID;
    }
    return weir_amount_parse(one, ret_amount);
}

bool weir_labels_ok(const char *labels)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_";

    while (*labels != 0) {
        size_t name =
            strspn(labels, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789");
        size_t end = strcspn(labels, ",");

        if (!strchr(letters, *labels) || labels[name] != '=' || name > end ||
            (labels[end] == ',' && labels[end + 1] == 0)) {
            return false;
        }
        for (size_t i = name + 1; i < end; i++) {
            if (labels[i] <= ' ' || labels[i] > '~' || labels[i] == '"' || labels[i] == '\\') {
                return false;
            }
        }
        labels += end + (labels[end] == ',');
    }
    return true;
}

uint64_t weir_amount_of(struct weir_amount amount, uint64_t whole_bytes)
{
    if (amount.pct != 0) {
        return whole_bytes / 100 * amount.pct;
    }
    return amount.bytes != 0 && amount.bytes < whole_bytes ? amount.bytes : whole_bytes;
}

static bool device_ok(const char *item)
{
    size_t n = strlen(item);

    if (strncasecmp(item, "GPU-", 4) == 0) {
        return n > 4 && n <= 40 && strspn(item + 4, "0123456789abcdefABCDEF-") == n - 4;
    }
    return n > 0 && n <= 2 && strspn(item, "0123456789") == n;
}

static bool in_list(const char *list, const char *item, size_t item_bytes)
{
    while (*list != 0) {
        size_t n = strcspn(list, ",");

        if (n == item_bytes && strncasecmp(list, item, n) == 0) {
            return true;
        }
        list += n + (list[n] == ',');
    }
    return false;
}

enum weir_status weir_devices_parse(const char *text, char *ret_list)
{
    char list[WEIR_DEVICE_LIST_BYTES] = "";
    size_t at = 0;

    for (;;) {
        char item[48];

        text += strspn(text, " \t");
        size_t n = strcspn(text, ", \t");
        snprintf(item, sizeof item, "%.*s", (int)n, text);
        if (n >= sizeof item || !device_ok(item) || in_list(list, item, n) ||
            at + n + 2 > sizeof list) {
            return WEIR_ERR_INVALID;
        }
        at += (size_t)snprintf(list + at, sizeof list - at, "%s%s", at == 0 ? "" : ",", item);
        text += n + strspn(text + n, " \t");
        if (*text == 0) {
            memcpy(ret_list, list, at + 1);
            return WEIR_OK;
        }
        WEIR_FAIL_IF(*text++ != ',', WEIR_ERR_INVALID);
    }
}

bool weir_devices_among(const char *list, const char *all)
{
    while (*list != 0 && *all != 0) {
        size_t n = strcspn(list, ",");

        if (!in_list(all, list, n)) {
            return false;
        }
        list += n + (list[n] == ',');
    }
    return true;
}

static bool is_number(const char *item)
{
    return *item >= '0' && *item <= '9';
}

static bool item_may_be_in(const char *list, const char *item, size_t item_bytes)
{
    bool may = in_list(list, item, item_bytes);

    while (*list != 0 && !may) {
        may = is_number(list) != is_number(item);
        list += strcspn(list, ",");
        list += *list == ',';
    }
    return may;
}

bool weir_devices_meet(const char *list, const char *other)
{
    bool meet = *list == 0 || *other == 0;

    while (*list != 0 && !meet) {
        size_t n = strcspn(list, ",");

        meet = item_may_be_in(other, list, n);
        list += n + (list[n] == ',');
    }
    return meet;
}

enum weir_status weir_user_id(const char *text, uint32_t *ret_uid)
{
    unsigned long long number;
    char *end;

    if (*text >= '0' && *text <= '9') {
        number = strtoull(text, &end, 10);
        if (*end != 0 || number >= UINT32_MAX) { /* UINT32_MAX is no user's number: it means -1 */
            return WEIR_ERR_INVALID;
        }
        *ret_uid = (uint32_t)number;
        return WEIR_OK;
    }
    const struct passwd *known = getpwnam(text);
    WEIR_FAIL_IF(!known, WEIR_ERR_NOT_FOUND);
    *ret_uid = known->pw_uid;
    return WEIR_OK;
}

const char weir_tenant_name_rule[] =
    "a tenant's name, and a group's, has 1 to 63 characters of A-Z "
    "a-z 0-9 . _ - and is not 'admin' or 'new'";

const char weir_group_rule[] = "a tenant has a 'group' if, and only if, its isolation is 'group'";

bool weir_tenant_group_ok(const struct weir_tenant_config *tenant)
{
    return (tenant->isolation == WEIR_ISOLATION_GROUP) == (tenant->group[0] != 0);
}

void weir_sessions_refusal(const char *tenant, uint64_t sessions_max, char *text, size_t bytes)
{
    snprintf(text, bytes, "too many sessions: tenant '%s' may have %llu at a time", tenant,
             (unsigned long long)sessions_max);
}

void weir_drain_refusal(const char *tenant, char *text, size_t bytes)
{
    snprintf(text, bytes,
             "tenant '%s' is drained (weir drain): it takes no new programs until weir undrain",
             tenant);
}

bool weir_tenant_devices_ok(const struct weir_tenant_config *tenant,
                            const struct weir_host_config *host)
{
    return weir_devices_among(tenant->devices, host->devices);
}

const char *weir_config_new_devices(const struct weir_host_config *config, uint32_t tenant)
{
    const char *list = config->tenants[tenant].devices;

    for (uint32_t i = 0; i < tenant; i++) {
        if (strcmp(config->tenants[i].devices, list) == 0) {
            return NULL;
        }
    }
    return *list != 0 ? list : NULL;
}

const char *weir_tenants_clash(const struct weir_tenant_config *a,
                               const struct weir_tenant_config *b)
{
    if (a->key[0] != 0 && strcmp(a->key, b->key) == 0) {
        return "key";
    }
    return a->vsock_cid != 0 && a->vsock_cid == b->vsock_cid ? "vsock_cid" : NULL;
}
