/*
 * Shares on demand: tenants that their user asks for and that end with a program. This file checks
 * what the user asks for, and computes the weights of a user's shares.
 *
 * A share begins with the settings of [default]. Its user may ask for other values of a few
 * settings, up to the bounds in [default]; only the administrator sets all others.
 */
#include "host_backend/config/config.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define PER_USER      16u
#define USERS_WEIGH   10u        /* this part of all weight does not reduce that of others */
#define AS_THE_HOST_S UINT32_MAX /* socket_mode */

/* The settings that a user may ask for. A bound of 0 in `most` means no bound. */
static const char *const askable[] = {"memory", "weight", "priority", "sm_limit", "sessions", NULL};

void weir_demand_default(struct weir_demand_config *ret_demand)
{
    *ret_demand = (struct weir_demand_config){.per_user = PER_USER, .socket_mode = AS_THE_HOST_S};
    weir_tenant_config_default(&ret_demand->usual, "");
    ret_demand->most.sm_limit_pct = 100;
    ret_demand->most.priority = WEIR_PRIORITY_NORMAL;
}

/* Are these amounts of different kinds? Only the device could tell which is larger. */
static bool differ(struct weir_amount a, struct weir_amount b)
{
    return (a.pct != 0) != (b.pct != 0);
}

static bool is_all(struct weir_amount amount)
{
    return amount.bytes == 0 && amount.pct == 0;
}

/* Find the key of a setting that exceeds its bound or cannot be compared with it; NULL: none. */
static const char *find_excess(const struct weir_tenant_config *wanted,
                               const struct weir_tenant_config *most)
{
    if (!is_all(most->memory) &&
        (is_all(wanted->memory) || differ(wanted->memory, most->memory) ||
         wanted->memory.bytes > most->memory.bytes || wanted->memory.pct > most->memory.pct)) {
        return "memory";
    }
    if (wanted->weight > most->weight) {
        return "weight";
    }
    if (wanted->priority > most->priority) {
        return "priority";
    }
    if (wanted->sm_limit_pct > most->sm_limit_pct) {
        return "sm_limit";
    }
    return wanted->sessions_max > most->sessions_max ? "sessions" : NULL;
}

bool weir_demand_complete(struct weir_demand_config *demand, uint32_t socket_mode,
                          struct weir_diag *ret_diag)
{
    struct weir_tenant_config *usual = &demand->usual, *most = &demand->most;

    if (demand->socket_mode == AS_THE_HOST_S) {
        demand->socket_mode = socket_mode;
    }
    if (most->weight == 0) {
        most->weight = usual->weight;
    }
    if (demand->total_weight == 0) {
        demand->total_weight = USERS_WEIGH * most->weight;
    }
    if (most->sessions_max == 0) {
        most->sessions_max = usual->sessions_max;
    }
    if (is_all(usual->memory)) {
        usual->memory = most->memory;
    }
    if (usual->sm_limit_pct > most->sm_limit_pct) { /* an unset limit means all SMs */
        usual->sm_limit_pct = most->sm_limit_pct;
    }
    if (!weir_tenant_group_ok(usual)) {
        weir_diag_set(ret_diag, 0, 0, "[default]: %s", weir_group_rule);
        return false;
    }
    const char *wrong = find_excess(usual, most);
    if (wrong) {
        weir_diag_set(ret_diag, 0, 0, "[default]: '%s' is not within 'max_%s'", wrong, wrong);
    }
    return !wrong;
}

static bool is_askable(const char *key)
{
    for (size_t i = 0; askable[i]; i++) {
        if (strcmp(askable[i], key) == 0) {
            return true;
        }
    }
    return false;
}

static enum weir_status take(char *word, struct weir_tenant_config *wanted,
                             struct weir_diag *ret_diag)
{
    char *equals = strchr(word, '=');
    int setting;

    if (!equals) {
        weir_diag_set(ret_diag, 0, 0, "'%.60s': a setting is written KEY=VALUE", word);
        return WEIR_ERR_INVALID;
    }
    *equals = 0;
    setting = weir_setting_find(word);
    if (setting < 0 || !is_askable(weir_setting_key((size_t)setting))) {
        weir_diag_set(ret_diag, 0, 0,
                      "'%.40s' cannot be asked for, only memory, weight, priority, sm_limit and "
                      "sessions",
                      word);
        return WEIR_ERR_INVALID;
    }
    return weir_setting_store((size_t)setting, equals + 1, wanted, ret_diag);
}

static enum weir_status refuse(const char *key, const struct weir_tenant_config *wanted,
                               const struct weir_tenant_config *most, struct weir_diag *ret_diag)
{
    char asked[WEIR_SETTING_TEXT_BYTES], bound[WEIR_SETTING_TEXT_BYTES];
    size_t setting = (size_t)weir_setting_find(key);

    weir_setting_text(setting, wanted, asked);
    weir_setting_text(setting, most, bound);
    weir_diag_set(
        ret_diag, 0, 0, "%s=%.40s is %s the limit of %.40s (max_%s of the host)", key, asked,
        strcmp(key, "memory") == 0 && differ(wanted->memory, most->memory) ? "not comparable with"
                                                                           : "over",
        bound, key);
    return WEIR_ERR_INVALID;
}

enum weir_status weir_demand_take(const struct weir_demand_config *demand, char *const *words,
                                  size_t n_words, uint64_t device_bytes,
                                  struct weir_tenant_config *ret_tenant, struct weir_diag *ret_diag)
{
    struct weir_tenant_config wanted = demand->usual;
    const size_t memory = (size_t)weir_setting_find("memory");
    struct weir_diag ignored = {0};
    bool asks = false;

    for (size_t i = 0; i < n_words; i++) {
        asks |= strncmp(words[i], "memory=", strlen("memory=")) == 0;
        WEIR_FAIL_IF(take(words[i], &wanted, ret_diag) != WEIR_OK, WEIR_ERR_INVALID);
    }
    const char *excess = find_excess(&wanted, &demand->most);
    WEIR_FAIL_IF(excess, refuse(excess, &wanted, &demand->most, ret_diag));
    WEIR_FAIL_IF(asks && !weir_setting_fits(memory, &wanted, device_bytes, ret_diag),
                 WEIR_ERR_INVALID);
    if (!weir_setting_fits(memory, &wanted, device_bytes, &ignored)) {
        wanted.memory = (struct weir_amount){0};
    }
    *ret_tenant = wanted;
    return WEIR_OK;
}

/*
 * Each share gets its part of the total, rounded down. The remainder goes to the shares that lost
 * most by rounding, one each; among equals, to the earlier. If any part is less than 1, all shares
 * first get 1, and the rest is divided.
 */
void weir_demand_divide(uint32_t together, const uint32_t *asked, uint32_t n, uint32_t *ret_weights)
{
    uint64_t lost[WEIR_CONFIG_TENANTS_MAX], sum = 0;
    uint32_t all = WEIR_MAX(together, n), few = UINT32_MAX, least, left;

    assert(n <= WEIR_CONFIG_TENANTS_MAX);
    for (uint32_t i = 0; i < n; i++) {
        sum += asked[i];
        few = WEIR_MIN(asked[i], few);
    }
    if (n == 0) {
        return;
    }
    least = (uint64_t)all * few < sum;
    all -= least * n;
    left = all;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t part = (uint64_t)all * asked[i];

        ret_weights[i] = least + (uint32_t)(part / sum);
        lost[i] = part % sum;
        left -= (uint32_t)(part / sum);
    }
    for (; left != 0; left--) {
        uint32_t most = 0;

        for (uint32_t i = 1; i < n; i++) {
            most = lost[i] > lost[most] ? i : most;
        }
        ret_weights[most]++;
        lost[most] = 0;
    }
}
