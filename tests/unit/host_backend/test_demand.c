/* Shares on demand: what [default] says, what may be asked for, and what a user's shares weigh. */
#include "host_backend/config/config.h"

#include "../../lib/tl_cmocka.h"
#include <string.h>

static struct weir_host_config parse(const char *text)
{
    struct weir_host_config config;
    struct weir_diag diag = {0};

    assert_int_equal(weir_config_parse(text, strlen(text), &config, &diag), WEIR_OK);
    return config;
}

static void refused_text(const char *text, const char *why)
{
    struct weir_host_config config;
    struct weir_diag diag = {0};

    assert_int_equal(weir_config_parse(text, strlen(text), &config, &diag), WEIR_ERR_SYNTAX);
    if (!strstr(diag.message, why)) {
        fail_msg("'%s' is not in '%s'", why, diag.message);
    }
}

static void default_leaves_nothing_open(void **state)
{
    struct weir_host_config config = parse("[host]\nsocket_mode = 0o600\n");
    struct weir_host_config none;

    (void)state;
    assert_int_equal(config.demand.socket_mode, 0600);
    assert_int_equal(config.demand.per_user, 16);
    assert_int_equal(config.demand.usual.weight, 100);
    assert_int_equal(config.demand.most.weight, 100);
    assert_int_equal(config.demand.total_weight, 1000);
    assert_int_equal(config.demand.most.priority, WEIR_PRIORITY_NORMAL);
    assert_int_equal(config.demand.most.sessions_max, 256);
    weir_config_default(&none);
    assert_int_equal(none.demand.socket_mode, 0660);
    assert_int_equal(none.demand.most.weight, 100);
    assert_int_equal(none.demand.total_weight, 1000);
}

static void bounds_are_also_what_a_share_has(void **state)
{
    struct weir_host_config config =
        parse("[default]\nmax_memory = \"8GiB\"\nmax_sm_limit = 50\nweight = 2000\n"
              "sessions = 4\nisolation = \"program\"\nper_user = 0\nsocket_mode = 0o666\n");

    (void)state;
    assert_true(config.demand.usual.memory.bytes == UINT64_C(8) << 30);
    assert_int_equal(config.demand.usual.sm_limit_pct, 50);
    assert_int_equal(config.demand.most.weight, 2000);
    assert_int_equal(config.demand.total_weight, 20000);
    assert_int_equal(config.demand.most.sessions_max, 4);
    assert_int_equal(config.demand.usual.isolation, WEIR_ISOLATION_PROGRAM);
    assert_int_equal(config.demand.per_user, 0);
    assert_int_equal(config.demand.socket_mode, 0666);
}

static void what_does_not_fit_together_is_refused(void **state)
{
    (void)state;
    refused_text("[default]\nmemory = \"9GiB\"\nmax_memory = \"8GiB\"\n", "within 'max_memory'");
    refused_text("[default]\nmemory = \"9%\"\nmax_memory = \"8GiB\"\n", "within 'max_memory'");
    refused_text("[default]\nweight = 300\nmax_weight = 200\n", "within 'max_weight'");
    refused_text("[default]\npriority = \"high\"\n", "within 'max_priority'");
    refused_text("[default]\nmax_sessions = 5\n", "within 'max_sessions'");
    refused_text("[default]\ngroup = \"g\"\n", "isolation is 'group'");
    refused_text("[default]\nname = \"g\"\n", "unknown key 'name' in [default]");
    refused_text("[[tenant]]\nname = \"new\"\n", "'new'");
}

static enum weir_status take(const struct weir_host_config *config, const char *one,
                             const char *two, struct weir_tenant_config *tenant, char *why)
{
    char words[2][64];
    char *list[2] = {words[0], words[1]};
    struct weir_diag diag = {0};
    enum weir_status status;

    snprintf(words[0], sizeof words[0], "%s", one);
    snprintf(words[1], sizeof words[1], "%s", two ? two : "");
    status =
        weir_demand_take(&config->demand, list, two ? 2 : 1, UINT64_C(64) << 30, tenant, &diag);
    memcpy(why, diag.message, sizeof diag.message);
    return status;
}

static void take_gives_what_was_asked_within_the_bounds(void **state)
{
    struct weir_host_config config =
        parse("[default]\nmemory = \"1GiB\"\nmax_memory = \"8GiB\"\nmax_priority = \"high\"\n"
              "max_weight = 1000\n");
    struct weir_tenant_config tenant;
    char why[200];

    (void)state;
    assert_int_equal(take(&config, "memory=8GiB", "weight=1000", &tenant, why), WEIR_OK);
    assert_true(tenant.memory.bytes == UINT64_C(8) << 30);
    assert_int_equal(tenant.weight, 1000);
    assert_int_equal(take(&config, "sm-limit=30%", "priority=high", &tenant, why), WEIR_OK);
    assert_int_equal(tenant.sm_limit_pct, 30);
    assert_int_equal(tenant.priority, WEIR_PRIORITY_HIGH);
    assert_true(tenant.memory.bytes == UINT64_C(1) << 30);
}

static void take_says_what_is_wrong_and_writes_nothing(void **state)
{
    struct weir_host_config config = parse("[default]\nmax_memory = \"8GiB\"\nsessions = 4\n");
    struct weir_tenant_config tenant, before;
    static const struct {
        const char *word, *why;
    } rows[] = {
        {"memory=9GiB", "memory=9GiB is over the limit of 8GiB (max_memory of the host)"},
        {"memory=50%", "memory=50% is not comparable with the limit of 8GiB"},
        {"memory=", "'memory' must be an amount"},
        {"memory=much", "'memory' must be an amount"},
        {"memory=-1", "'memory' must be an amount"},
        {"weight=101", "weight=101 is over the limit of 100"},
        {"weight=0", "'weight' must lie between 1 and 10000"},
        {"weight=3 4", "'weight' must be an integer"},
        {"priority=high", "priority=high is over the limit of normal"},
        {"priority=urgent", "'priority' must be one of: low, normal, high"},
        {"sm_limit=101", "'sm_limit' must be a percentage"},
        {"sessions=5", "sessions=5 is over the limit of 4"},
        {"wieght=3", "'wieght' cannot be asked for, only memory, weight"},
        {"user=0", "'user' cannot be asked for"},
        {"isolation=strict", "'isolation' cannot be asked for"},
        {"devices=0", "'devices' cannot be asked for"},
        {"name=x", "'name' cannot be asked for"},
        {"memory", "'memory': a setting is written KEY=VALUE"},
    };
    char why[200];

    (void)state;
    memset(&tenant, 7, sizeof tenant);
    before = tenant;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(take(&config, rows[i].word, NULL, &tenant, why), WEIR_ERR_INVALID);
        if (!strstr(why, rows[i].why)) {
            fail_msg("'%s': '%s'", rows[i].word, why);
        }
    }
    assert_int_equal(take(&config, "weight=5", "memory=9GiB", &tenant, why), WEIR_ERR_INVALID);
    assert_memory_equal(&tenant, &before, sizeof before);
}

static void divide_keeps_the_sum_and_the_ratio(void **state)
{
    uint32_t asked[WEIR_CONFIG_TENANTS_MAX], weights[WEIR_CONFIG_TENANTS_MAX], seed = 1;

    (void)state;
    for (uint32_t round = 0; round < 300; round++) {
        uint32_t n = round % 40 + 1, most = 0;
        uint64_t sum = 0, all = 0;

        for (uint32_t i = 0; i < n; i++) {
            seed = seed * 1103515245 + 12345;
            asked[i] = (seed >> 16) % 10000 + 1;
            most = asked[i] > most ? asked[i] : most;
            all += asked[i];
        }
        if (most < n) {
            continue;
        }
        weir_demand_divide(most, asked, n, weights);
        for (uint32_t i = 0; i < n; i++) {
            double exact = (double)most * asked[i] / (double)all;

            assert_true(weights[i] >= 1);
            assert_true(weights[i] <= exact + 2); /* one for each, and the rounding */
            assert_true(weights[i] > exact * (most - n) / most - 1);
            sum += weights[i];
        }
        assert_int_equal(sum, most);
    }
}

static void divide_of_a_few(void **state)
{
    static const uint32_t alone[] = {300},
                          ten[] = {100, 100, 100, 100, 100, 100, 100, 100, 100, 100};
    static const uint32_t two[] = {300, 100}, three[] = {100, 100, 100}, little[] = {1, 2, 1};
    uint32_t weights[10] = {0};

    (void)state;
    weir_demand_divide(300, alone, 1, weights);
    assert_int_equal(weights[0], 300);
    weir_demand_divide(100, ten, 10, weights);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(weights[i], 10);
    }
    weir_demand_divide(300, two, 2, weights);
    assert_int_equal(weights[0], 225);
    assert_int_equal(weights[1], 75);
    weir_demand_divide(100, three, 3, weights);
    assert_int_equal(weights[0], 34);
    assert_int_equal(weights[1] + weights[2], 66);
    weir_demand_divide(2, little, 3, weights);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(weights[i], 1);
    }
}

/* The device of take() has 64 GiB. */
static void no_more_than_the_device_has(void **state)
{
    struct weir_host_config config = parse("[default]\nmemory = \"96GiB\"\n");
    struct weir_tenant_config tenant;
    char why[200];

    (void)state;
    assert_int_equal(take(&config, "memory=96GiB", NULL, &tenant, why), WEIR_ERR_INVALID);
    assert_string_equal(why, "memory=96GiB is more than the GPU has, 65536 MiB");
    assert_int_equal(take(&config, "memory=64GiB", NULL, &tenant, why), WEIR_OK);
    assert_int_equal(take(&config, "weight=1", NULL, &tenant, why), WEIR_OK);
    assert_true(tenant.memory.bytes == 0 && tenant.memory.pct == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_more_than_the_device_has),
        cmocka_unit_test(default_leaves_nothing_open),
        cmocka_unit_test(bounds_are_also_what_a_share_has),
        cmocka_unit_test(what_does_not_fit_together_is_refused),
        cmocka_unit_test(take_gives_what_was_asked_within_the_bounds),
        cmocka_unit_test(take_says_what_is_wrong_and_writes_nothing),
        cmocka_unit_test(divide_keeps_the_sum_and_the_ratio),
        cmocka_unit_test(divide_of_a_few),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
