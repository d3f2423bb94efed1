/* Contexts that go while other threads use them, with the guest linked in. */
#include "tests/e2e/contexts.h"
#include "tests/lib/tl_cmocka.h"
#include "tests/lib/tl_stack.h"

enum { TIMES = 20 };

static struct tl_stack stack;

static int set_up(void **state)
{
    (void)state;
    tl_stack_start(&stack);
    driver_open("test_contexts");
    DRV(cu.Init(0));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    tl_stack_stop(&stack);
    return 0;
}

/* An error that is not to be ends the program. */
static void primary_context_is_reset(void **state)
{
    (void)state;
    contexts_go(CONTEXT_RESETS, TIMES);
    assert_int_equal(check_bad_count, 0);
}

static void created_context_is_destroyed_by_two_threads(void **state)
{
    (void)state;
    contexts_go(CONTEXT_DESTROYS, TIMES);
    assert_int_equal(check_bad_count, 0);
}

static void primary_context_is_released_by_its_users(void **state)
{
    (void)state;
    contexts_go(CONTEXT_RELEASES, TIMES);
    assert_int_equal(check_bad_count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(primary_context_is_reset),
        cmocka_unit_test(created_context_is_destroyed_by_two_threads),
        cmocka_unit_test(primary_context_is_released_by_its_users),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
