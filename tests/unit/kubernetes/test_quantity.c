/* Kubernetes' quantities as whole numbers. */
#include "kubernetes/plan.h"
#include "tests/lib/tl_cmocka.h"
#include <stdio.h>
#include <string.h>

static void parse_takes_what_kubernetes_writes(void **state)
{
    static const struct {
        const char *text;
        uint64_t value;
    } good[] = {{"0", 0},
                {"1", 1},
                {"512Mi", UINT64_C(512) << 20},
                {"1k", 1000},
                {"2e9", 2000000000},
                {"1E", 1000000000000000000},
                {"1Ei", UINT64_C(1) << 60},
                {"500m", 1},
                {"1001m", 2},
                {"1u", 1},
                {"3n", 1},
                {"0Ei", 0},
                {"999999999999999m", 1000000000000}};

    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        uint64_t value = 12345;

        print_message("%s\n", good[i].text);
        assert_int_equal(weir_quantity_parse(good[i].text, &value), WEIR_OK);
        assert_true(value == good[i].value);
    }
}

static void parse_refuses_everything_else(void **state)
{
    static const char *const bad[] = {
        "",      "-1",    "a",    "1 Gi",   "1GiB", "1g",   "1KI",
        "1K",    "1.5Gi", /* the API server makes 1536Mi of it */
        "+7",    "1 ",    "1 i",  "100e-2", "1e+2", "2E3",  "5000000000G",
        "1e",    "e3",    "1e1e", "2Ei",    "inf",  "0x10", "1e19",
        "2000P", "1e-19", ".",    "Gi",     "1mi",  "1e+",  "99999999999999999999999999999999"};

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uint64_t value = 7;

        print_message("%s\n", bad[i]);
        assert_int_equal(weir_quantity_parse(bad[i], &value), WEIR_ERR_INVALID);
        assert_int_equal(value, 7);
    }
}

static void text_is_read_as_the_same_number(void **state)
{
    static const uint64_t values[] = {
        0, 1, 1023, 1024, UINT64_C(80) << 30, (UINT64_C(1) << 40) + 1};
    char text[32];

    (void)state;
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        uint64_t value = 1;

        weir_quantity_text(values[i], text);
        assert_int_equal(weir_quantity_parse(text, &value), WEIR_OK);
        assert_true(value == values[i]);
    }
    weir_quantity_text(UINT64_C(80) << 30, text);
    assert_string_equal(text, "80Gi");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parse_takes_what_kubernetes_writes),
        cmocka_unit_test(parse_refuses_everything_else),
        cmocka_unit_test(text_is_read_as_the_same_number),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
