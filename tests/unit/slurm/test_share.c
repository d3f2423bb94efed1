/* What a job of Slurm's may have: arguments of plugstack.conf, options, and what follows. */
#include "slurm/share.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define GIB (UINT64_C(1) << 30)
#define MIB (UINT64_C(1) << 20)

static void size_is_as_sbatchs_mem_has_it(void **state)
{
    static const struct {
        const char *text;
        uint64_t bytes; /* 0: refused */
        const char *again;
    } rows[] = {
        {"8G", 8 * GIB, "8G"},
        {"8g", 8 * GIB, "8G"},
        {"8GiB", 8 * GIB, "8G"},
        {"8GB", 8 * GIB, "8G"},
        {"512", 512 * MIB, "512M"},
        {"512M", 512 * MIB, "512M"},
        {"1536M", 1536 * MIB, "1536M"},
        {"2048M", 2 * GIB, "2G"},
        {"64K", 65536, "64K"},
        {"1T", 1024 * GIB, "1T"},
        {"0", 0, NULL},
        {"", 0, NULL},
        {"G", 0, NULL},
        {"-1G", 0, NULL},
        {" 1G", 0, NULL},
        {"1.5G", 0, NULL},
        {"1GX", 0, NULL},
        {"1GiBs", 0, NULL},
        {"25%", 0, NULL},
        {"0x10", 0, NULL},
        {"2000000T", 0, NULL},
        {"99999999999999999999G", 0, NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint64_t bytes = 0;
        char text[24];
        enum weir_status status = weir_share_size(rows[i].text, &bytes);
        if (status != (rows[i].bytes ? WEIR_OK : WEIR_ERR_INVALID) || bytes != rows[i].bytes) {
            fail_msg("'%s' is %llu", rows[i].text, (unsigned long long)bytes);
        }
        if (rows[i].bytes) {
            weir_share_size_text(bytes, text);
            assert_string_equal(text, rows[i].again);
        }
    }
}

static void rules_are_read_and_wrong_ones_named(void **state)
{
    static const char *const good[] = {
        "run_dir=/run/x", "guest_lib=/opt/guest", "max_weight=1000",   "max_mem=16G",
        "default_mem=2G", "mem_per_shard=1G",     "max_priority=high", "default_weight=50"};
    static const struct {
        const char *argument, *complaint;
    } wrong[] = {
        {"max_wieght=3", "there is no argument 'max_wieght=3'"},
        {"max_weight", "there is no argument"},
        {"=3", "there is no argument"},
        {"max_weight=0", "max_weight must be a number"},
        {"max_weight=10001", "between 1 and 10000"},
        {"max_mem=lots", "max_mem must be a size"},
        {"run_dir=run", "run_dir must be an absolute path"},
        {"max_priority=urgent", "low, normal or high"},
        {"gpus=some", "slurm or all"},
        {"account=sacct", "none or admincomment"},
    };
    struct weir_share_rules rules;
    struct weir_diag diag = {0};
    (void)state;
    assert_int_equal(weir_share_rules_read(8, good, &rules, &diag), WEIR_OK);
    assert_string_equal(rules.run_dir, "/run/x");
    assert_string_equal(rules.guest_lib, "/opt/guest");
    assert_int_equal(rules.max_weight, 1000);
    assert_int_equal(rules.default_weight, 50);
    assert_true(rules.max_mem_bytes == 16 * GIB && rules.default_mem_bytes == 2 * GIB);
    assert_true(rules.mem_per_shard_bytes == GIB);
    assert_int_equal(rules.max_priority, 2);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        const char *const argv[] = {wrong[i].argument, "max_mem=3G"};
        memset(&diag, 0, sizeof(diag));
        assert_int_equal(weir_share_rules_read(2, argv, &rules, &diag), WEIR_ERR_INVALID);
        if (!strstr(diag.message, wrong[i].complaint)) {
            fail_msg("%s: %s", wrong[i].argument, diag.message);
        }
        assert_true(rules.max_mem_bytes == 3 * GIB); /* what is in order holds */
        assert_int_equal(rules.max_weight, 100);     /* and the limits are narrow */
    }
}

static void rules_without_arguments_let_nobody_have_more_than_others(void **state)
{
    static const char *const contrary[][2] = {{"max_weight=10", "default_weight=11"},
                                              {"max_mem=1G", "default_mem=2G"}};
    static const char *const low[] = {"max_weight=10"};
    static const char *const high[] = {"default_weight=300"};
    struct weir_share_rules rules;
    struct weir_diag diag = {0};
    (void)state;
    assert_int_equal(weir_share_rules_read(0, NULL, &rules, &diag), WEIR_OK);
    assert_string_equal(rules.run_dir, "/run/weir");
    assert_int_equal(rules.max_weight, 100);
    assert_int_equal(rules.default_weight, 100);
    assert_int_equal(rules.max_priority, 1);
    assert_int_equal(weir_share_rules_read(1, low, &rules, &diag), WEIR_OK);
    assert_int_equal(rules.default_weight, 10);
    assert_int_equal(weir_share_rules_read(1, high, &rules, &diag), WEIR_OK);
    assert_int_equal(rules.max_weight, 300);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(weir_share_rules_read(2, contrary[i], &rules, &diag), WEIR_ERR_INVALID);
        assert_non_null(strstr(diag.message, "is more than"));
    }
}

/* Rules, options and shards; what the job gets, or a piece of the complaint. */
static const struct share_row {
    const char *rules[3], *weight, *mem, *priority;
    uint32_t shards;
    const char *complaint;
    struct weir_share share;
} share_rows[] = {
    {.shards = 3, .share = {0, 100, 1}}, /* shards stand for nothing here */
    {.weight = "7", .share = {0, 7, 1}},
    {.mem = "2G", .share = {2 * GIB, 100, 1}},
    {.priority = "low", .share = {0, 100, 0}},
    {.weight = "101", .complaint = "--weir-weight=101 is over this cluster's limit of 100"},
    {.weight = "0", .complaint = "between 1 and 10000"},
    {.weight = "3x", .complaint = "between 1 and 10000"},
    {.mem = "much", .complaint = "--weir-mem must be a size such as 8G"},
    {.priority = "urgent", .complaint = "--weir-priority must be low, normal or high"},
    {.priority = "high", .complaint = "over this cluster's limit of normal"},
    {.rules = {"max_priority=high"}, .priority = "high", .share = {0, 100, 2}},
    {.rules = {"max_priority=low"}, .weight = "5", .share = {0, 5, 0}},
    {.rules = {"max_mem=4G"}, .weight = "5", .share = {4 * GIB, 5, 1}},
    {.rules = {"max_mem=4G"}, .mem = "4G", .share = {4 * GIB, 100, 1}},
    {.rules = {"max_mem=4G"},
     .mem = "5G",
     .complaint = "--weir-mem=5G is over this cluster's limit of 4G"},
    {.rules = {"max_mem=4G", "default_mem=1G"}, .weight = "5", .share = {GIB, 5, 1}},
    {.rules = {"default_mem=1G"}, .mem = "9G", .share = {9 * GIB, 100, 1}},
    {.rules = {"mem_per_shard=1G"}, .shards = 4, .share = {4 * GIB, 100, 1}},
    {.rules = {"mem_per_shard=1G"}, .shards = 4, .mem = "3G", .share = {3 * GIB, 100, 1}},
    {.rules = {"mem_per_shard=1G"},
     .shards = 4,
     .mem = "5G",
     .complaint = "--weir-mem=5G is over the limit of 4G of the job's 4 shards"},
    {.rules = {"mem_per_shard=1G"}, .mem = "1G", .complaint = "--gres=shard:N"},
    {.rules = {"mem_per_shard=1G", "max_mem=2G"}, .shards = 4, .share = {2 * GIB, 100, 1}},
    {.rules = {"mem_per_shard=1T"}, .shards = UINT32_MAX, .weight = "5", .share = {0, 5, 1}},
};

static void share_follows_from_rules_options_and_shards(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(share_rows) / sizeof(share_rows[0]); i++) {
        const struct share_row *row = &share_rows[i];
        const char *const texts[] = {row->weight, row->mem, row->priority};
        struct weir_share_wish wish = {0};
        struct weir_share_rules rules;
        struct weir_share share = {0};
        struct weir_diag diag = {0};
        enum weir_status status = WEIR_OK;
        int n = 0;
        while (n < 3 && row->rules[n]) {
            n++;
        }
        assert_int_equal(weir_share_rules_read(n, row->rules, &rules, &diag), WEIR_OK);
        for (int k = 0; k < WEIR_SHARE_OPTIONS && status == WEIR_OK; k++) {
            if (texts[k]) {
                status = weir_share_wish_take(&wish, (enum weir_share_option)k, texts[k], &diag);
            }
        }
        if (status == WEIR_OK) {
            status = weir_share_of(&wish, &rules, row->shards, &share, &diag);
        }
        if (row->complaint) {
            if (status != WEIR_ERR_INVALID || !strstr(diag.message, row->complaint)) {
                fail_msg("row %zu: %d '%s'", i, (int)status, diag.message);
            }
            continue;
        }
        if (status != WEIR_OK || share.mem_bytes != row->share.mem_bytes ||
            share.weight != row->share.weight || share.priority != row->share.priority) {
            fail_msg("row %zu: %d '%s' %llu %u %u", i, (int)status, diag.message,
                     (unsigned long long)share.mem_bytes, share.weight, share.priority);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(size_is_as_sbatchs_mem_has_it),
        cmocka_unit_test(rules_are_read_and_wrong_ones_named),
        cmocka_unit_test(rules_without_arguments_let_nobody_have_more_than_others),
        cmocka_unit_test(share_follows_from_rules_options_and_shards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
