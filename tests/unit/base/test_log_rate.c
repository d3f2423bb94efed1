/* How many lines of the log somebody may cause, and what is told of the others. */
#include "../../lib/tl_cmocka.h"
#include "base/clock.h"
#include "base/log_rate.h"

static struct weir_log_rate rate;
static uint64_t left_out;

static enum weir_log_verdict ask(enum weir_log_level level, uint64_t now_ns)
{
    return weir_log_rate_ask(&rate, level, now_ns, &left_out);
}

/* An interval's lines; the last of them is known as such. */
static void use_up(enum weir_log_level level, uint64_t now_ns)
{
    for (int i = 1; i < WEIR_LOG_RATE_LINES; i++) {
        assert_int_equal(ask(level, now_ns), WEIR_LOG_WRITE);
    }
    assert_int_equal(ask(level, now_ns), WEIR_LOG_WRITE_LAST);
}

static int set_up(void **state)
{
    (void)state;
    weir_log_rate_init(&rate);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    weir_log_rate_finish(&rate);
    return 0;
}

static void lines_over_the_rate_are_left_out_and_counted(void **state)
{
    const uint64_t end_ns = 5 + WEIR_LOG_RATE_INTERVAL_S * WEIR_NS_PER_S;

    (void)state;
    use_up(WEIR_LOG_INFO, 5);
    assert_int_equal(ask(WEIR_LOG_INFO, end_ns - 1), WEIR_LOG_LEAVE_OUT);
    assert_int_equal(ask(WEIR_LOG_INFO, end_ns - 1), WEIR_LOG_LEAVE_OUT);
    assert_int_equal(ask(WEIR_LOG_INFO, end_ns), WEIR_LOG_WRITE);
    assert_true(left_out == 2);
    assert_int_equal(ask(WEIR_LOG_INFO, end_ns), WEIR_LOG_WRITE);
    assert_true(left_out == 0); /* it was told */
}

static void a_flood_of_one_level_hides_no_other(void **state)
{
    (void)state;
    use_up(WEIR_LOG_INFO, 0);
    assert_int_equal(ask(WEIR_LOG_INFO, 0), WEIR_LOG_LEAVE_OUT);
    use_up(WEIR_LOG_ERROR, 0);
}

static void a_rate_for_several_lets_each_ones_lines_through(void **state)
{
    (void)state;
    rate.several = 3;
    for (int i = 1; i < 3 * WEIR_LOG_RATE_LINES; i++) {
        assert_int_equal(ask(WEIR_LOG_INFO, 0), WEIR_LOG_WRITE);
    }
    assert_int_equal(ask(WEIR_LOG_INFO, 0), WEIR_LOG_WRITE_LAST);
    assert_int_equal(ask(WEIR_LOG_INFO, 0), WEIR_LOG_LEAVE_OUT);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(lines_over_the_rate_are_left_out_and_counted, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_flood_of_one_level_hides_no_other, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_rate_for_several_lets_each_ones_lines_through, set_up,
                                        tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
