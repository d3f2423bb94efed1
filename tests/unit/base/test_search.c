/* Searches in arrays and lists, and changes of lists. */
#include "base/search.h"
#include "tests/lib/tl_cmocka.h"

struct item {
    struct item *next;
    int number;
};

static void arrays_are_searched_up_to_the_first(void **state)
{
    (void)state;
    const int of[] = {3, 5, 5, 7};
    int looked = 0;
    assert_true(WEIR_ANY(i, WEIR_COUNT(of), (looked++, of[i] == 5)));
    assert_int_equal(looked, 2);
    assert_false(WEIR_ANY(i, WEIR_COUNT(of), of[i] == 4));
    assert_int_equal(WEIR_FIRST(i, WEIR_COUNT(of), of[i] == 5), 1);
    assert_int_equal(WEIR_FIRST(i, 4, of[i] > 7), 4);
    assert_int_equal(WEIR_FIRST(i, 0, of[i] == 3), 0);
}

static void lists_are_searched_and_changed(void **state)
{
    (void)state;
    struct item a = {.number = 1}, b = {.number = 2}, c = {.number = 3}, stranger = {.number = 4};
    struct item *list = NULL;
    WEIR_PUSH(list, &a);
    WEIR_PUSH(list, &b);
    WEIR_PUSH(list, &c);
    assert_ptr_equal(WEIR_LINKED(m, list, m->number < 3), &b);
    assert_null(WEIR_LINKED(m, list, m->number > 3));
    WEIR_UNLINK(list, &b, next);
    WEIR_UNLINK(list, &stranger, next);
    assert_ptr_equal(WEIR_POP(list), &c);
    assert_ptr_equal(WEIR_POP(list), &a);
    assert_null(WEIR_POP(list));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arrays_are_searched_up_to_the_first),
        cmocka_unit_test(lists_are_searched_and_changed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
