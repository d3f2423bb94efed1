/* What is read from a program's environment for the host, and what is not. */
#include "guest_lib/limits.h"

#include "../../lib/tl_cmocka.h"
#include <string.h>

static const char *const *environment; /* name, value, ..., NULL */

static char *lookup(const char *name)
{
    for (const char *const *at = environment; *at; at += 2) {
        if (strcmp(at[0], name) == 0) {
            return (char *)(uintptr_t)at[1];
        }
    }
    return NULL;
}

static struct weir_limit_wish read_from(const char *const *pairs)
{
    struct weir_limit_wish wish;

    environment = pairs;
    weir_limits_read(lookup, &wish);
    return wish;
}

static void limit_bytes_reads_sizes_and_nothing_else(void **state)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } cases[] = {
        {"1024", 1024},
        {"1k", 1024},
        {"512m", UINT64_C(512) << 20},
        {"1G", UINT64_C(1) << 30},
        {"3000M", UINT64_C(3000) << 20},
        {"2t", UINT64_C(2) << 40},
        {"16mb", UINT64_C(16) << 20},
        {"16MiB", UINT64_C(16) << 20},
        {"0", 0},
        {"", 0},
        {"g", 0},
        {"-1g", 0},
        {" 1g", 0},
        {"1g ", 0},
        {"1gg", 0},
        {"1x", 0},
        {"1.5g", 0},
        {"0x10", 0},
        {"18446744073709551615", UINT64_MAX},
        {"18446744073709551616", 0},
        {"99999999999999999999999999g", 0},
        {"16777216t", 0}, /* 2^64 */
        {"16777215t", UINT64_C(16777215) << 40},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (weir_limit_bytes(cases[i].text) != cases[i].bytes) {
            fail_msg("'%s' gave %llu", cases[i].text,
                     (unsigned long long)weir_limit_bytes(cases[i].text));
        }
    }
}

static void read_without_variables_asks_for_nothing(void **state)
{
    static const char *const none[] = {NULL};
    struct weir_limit_wish wish = read_from(none);

    (void)state;
    assert_int_equal(wish.sm_pct, 0);
    assert_int_equal(wish.connections, 0);
    for (int i = 0; i < (int)WEIR_CONTROL_MAX_DEVICES; i++) {
        assert_true(wish.memory_bytes[i] == 0);
    }
}

static void read_prefers_the_variable_of_one_device(void **state)
{
    static const char *const pairs[] = {"CUDA_DEVICE_MEMORY_LIMIT",
                                        "1g",
                                        "CUDA_DEVICE_MEMORY_LIMIT_1",
                                        "512m",
                                        "CUDA_DEVICE_MEMORY_LIMIT_15",
                                        "1",
                                        NULL};
    struct weir_limit_wish wish = read_from(pairs);

    (void)state;
    assert_true(wish.memory_bytes[0] == UINT64_C(1) << 30);
    assert_true(wish.memory_bytes[1] == UINT64_C(512) << 20);
    assert_true(wish.memory_bytes[2] == UINT64_C(1) << 30);
    assert_true(wish.memory_bytes[15] == 1);
}

static void read_takes_percentages_below_the_whole(void **state)
{
    static const struct {
        const char *text;
        uint32_t pct;
    } cases[] = {{"30", 30}, {"1", 1},   {"99", 99}, {"100", 0}, {"0", 0},
                 {"", 0},    {"30%", 0}, {"-30", 0}, {"1e1", 0}, {"99999999999999999999", 0}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *const pairs[] = {"CUDA_DEVICE_SM_LIMIT", cases[i].text, NULL};

        assert_int_equal(read_from(pairs).sm_pct, cases[i].pct);
    }
}

static void read_takes_connections_from_1_to_32(void **state)
{
    static const struct {
        const char *text;
        uint32_t connections;
    } cases[] = {{"1", 1},   {"8", 8},
                 {"32", 32}, {"33", 0},
                 {"0", 0},   {"", 0},
                 {"-1", 0},  {"8 ", 0},
                 {"0x8", 0}, {"4294967297", 0},
                 {"x", 0},   {"008", 8},
                 {"1.5", 0}, {"99999999999999999999", 0}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *const pairs[] = {"CUDA_DEVICE_MAX_CONNECTIONS", cases[i].text, NULL};

        assert_int_equal(read_from(pairs).connections, cases[i].connections);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(limit_bytes_reads_sizes_and_nothing_else),
        cmocka_unit_test(read_without_variables_asks_for_nothing),
        cmocka_unit_test(read_prefers_the_variable_of_one_device),
        cmocka_unit_test(read_takes_percentages_below_the_whole),
        cmocka_unit_test(read_takes_connections_from_1_to_32),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
