/* Lists of GPUs: those that are none, the same in another order, and places of some in others. */
#include "slurm/gpus.h"

#include "../../lib/tl_cmocka.h"
#include <string.h>

static void lists_are_of_different_numbers(void **state)
{
    static const char *const wrong[] = {"",    ",",     "0,", ",0",  "0,,1", "a",
                                        "0,0", "1,0,1", "-1", "0 1", "1234", "0;rm"};

    (void)state;
    assert_true(weir_gpus_ok("0"));
    assert_true(weir_gpus_ok("3,0,12"));
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        if (weir_gpus_ok(wrong[i])) {
            fail_msg("'%s'", wrong[i]);
        }
    }
}

static void the_same_in_another_order(void **state)
{
    (void)state;
    assert_true(weir_gpus_same("0,1", "1,0"));
    assert_true(weir_gpus_same("7", "7"));
    assert_false(weir_gpus_same("0", "0,1"));
    assert_false(weir_gpus_same("0,1", "0"));
    assert_false(weir_gpus_same("1", "11"));
    assert_false(weir_gpus_same("0", ""));
}

static void visible_are_places(void **state)
{
    static const struct {
        const char *list, *used, *visible;
    } rows[] = {{"1", "1", "0"},        {"2,5,7", "7,5", "2,1"},   {"2,5,7", NULL, "0,1,2"},
                {"2,5,7", "", "0,1,2"}, {"2,5,7", "0,1", "0,1,2"}, {"2,5,7", "1,5", "1"}};
    char visible[WEIR_GPUS_BYTES];

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        weir_gpus_visible(rows[i].list, rows[i].used, visible);
        assert_string_equal(visible, rows[i].visible);
    }
}

static void long_lists_fit(void **state)
{
    char list[WEIR_GPUS_BYTES] = "", visible[WEIR_GPUS_BYTES];

    (void)state;
    for (int i = 100; i < 163; i++) {
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%d", i == 100 ? "" : ",", i);
    }
    assert_true(weir_gpus_ok(list));
    weir_gpus_visible(list, NULL, visible);
    assert_non_null(strstr(visible, ",61,62"));
    weir_gpus_visible(list, list, visible);
    assert_non_null(strstr(visible, ",61,62"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_are_of_different_numbers),
        cmocka_unit_test(the_same_in_another_order),
        cmocka_unit_test(visible_are_places),
        cmocka_unit_test(long_lists_fit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
