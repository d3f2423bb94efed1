/* Why work waits, and for whom, as the scheduler sums it up for each queue. */
#include "desk.h"

static uint64_t waited_us(struct desk *b, weir_sched_id queue_id, enum weir_sched_cause cause,
                          weir_sched_id other)
{
    const struct weir_sched_wait *rows = weir_sched_queue_waits(b->sched, queue_id);
    uint64_t ns = 0;

    for (unsigned i = 0; rows && i < WEIR_SCHED_WAIT_ROWS; i++) {
        ns += rows[i].cause == cause && rows[i].other == other ? rows[i].ns : 0;
    }
    return ns / 1000;
}

static uint64_t all_us(struct desk *b, weir_sched_id queue_id)
{
    const struct weir_sched_wait *rows = weir_sched_queue_waits(b->sched, queue_id);
    uint64_t ns = 0;

    for (unsigned i = 0; rows && i < WEIR_SCHED_WAIT_ROWS; i++) {
        ns += rows[i].ns;
    }
    return ns / 1000;
}

/* Nobody fills gaps, and nobody records a trace. */
static void desk_without_fillers(struct desk *b)
{
    struct weir_sched_config config;

    weir_sched_config_init(&config, SMS);
    config.fill = WEIR_SCHED_FILL_NONE;
    desk_init_with(b, &config);
}

static void a_wait_names_the_tenant_that_had_the_device(void **state)
{
    struct desk b;
    weir_sched_id alice, carol, of_alice, of_bob, of_carol, waiting;

    (void)state;
    desk_without_fillers(&b);
    alice = tenant(&b, WEIR_PRIORITY_HIGH, 100);
    carol = tenant(&b, WEIR_PRIORITY_HIGH, 100);
    of_alice = queue(&b, alice);
    of_bob = queue(&b, tenant(&b, WEIR_PRIORITY_NORMAL, 100));
    of_carol = queue(&b, carol);
    (void)kernel(&b, of_alice, 20000, 0);
    (void)kernel(&b, of_alice, 20000, 0);
    waiting = kernel(&b, of_bob, 20000, 0);
    assert_null(weir_sched_queue_waits(b.sched, of_alice));
    later(&b, 2000);
    assert_int_equal(state_of(&b, waiting), WEIR_SCHED_WAITING);
    (void)kernel(&b, of_carol, 20000, 0);
    (void)kernel(&b, of_carol, 20000, 0);
    assert_int_equal(weir_sched_queue_remove(b.sched, b.now_ns, of_alice), WEIR_OK);
    later(&b, 1000);
    assert_int_equal(state_of(&b, waiting), WEIR_SCHED_WAITING);
    assert_int_equal(weir_sched_queue_remove(b.sched, b.now_ns, of_carol), WEIR_OK);
    later(&b, 1000);
    assert_int_equal(state_of(&b, waiting), WEIR_SCHED_GRANTED);
    assert_int_equal(waited_us(&b, of_bob, WEIR_SCHED_CAUSE_CLASS, alice), 2000);
    assert_int_equal(waited_us(&b, of_bob, WEIR_SCHED_CAUSE_CLASS, carol), 1000);
    assert_int_equal(all_us(&b, of_bob), 3000);
    assert_int_equal(weir_sched_item_cause(b.sched, waiting), WEIR_SCHED_CAUSE_CLASS);
    assert_int_equal(weir_sched_item_cause(b.sched, 0), WEIR_SCHED_CAUSE_OWN);
    desk_finish(&b);
}

/* A program that launches ahead waits once, not once for each launch. */
static void what_waits_behind_its_own_queue_is_not_counted(void **state)
{
    struct desk b;
    weir_sched_id of_alice, of_bob, items[2];

    (void)state;
    desk_without_fillers(&b);
    of_alice = queue(&b, tenant(&b, WEIR_PRIORITY_HIGH, 100));
    of_bob = queue(&b, tenant(&b, WEIR_PRIORITY_NORMAL, 100));
    items[0] = kernel(&b, of_alice, 20000, 0);
    items[1] = kernel(&b, of_alice, 20000, 0);
    for (int i = 0; i < 5; i++) {
        (void)kernel(&b, of_bob, 10, 0);
    }
    later(&b, 2000);
    assert_int_equal(weir_sched_withdraw(b.sched, b.now_ns, items[1]), WEIR_OK);
    finished(&b, items[0]);
    later(&b, 1000);
    assert_in_range(all_us(&b, of_bob), 2000, 3000);
    desk_finish(&b);
}

/* The table has places for eight pairs; what others add is still there, without a name. */
static void a_full_table_loses_names_and_no_time(void **state)
{
    enum { OTHERS = 12 };
    struct desk b;
    weir_sched_id of_bob, before = 0, others[OTHERS];
    uint64_t named_us = 0;

    (void)state;
    desk_without_fillers(&b);
    of_bob = queue(&b, tenant(&b, WEIR_PRIORITY_LOW, 100));
    for (int i = 0; i < OTHERS; i++) {
        weir_sched_id next;

        others[i] = tenant(&b, WEIR_PRIORITY_HIGH, 100);
        next = queue(&b, others[i]);
        (void)kernel(&b, next, 20000, 0);
        (void)kernel(&b, next, 20000, 0);
        if (i == 0) {
            (void)kernel(&b, of_bob, 10, 0);
        } else {
            assert_int_equal(weir_sched_queue_remove(b.sched, b.now_ns, before), WEIR_OK);
        }
        later(&b, 1000);
        before = next;
    }
    assert_int_equal(weir_sched_queue_remove(b.sched, b.now_ns, before), WEIR_OK);
    later(&b, 1000);
    for (int i = 0; i < OTHERS; i++) {
        named_us += waited_us(&b, of_bob, WEIR_SCHED_CAUSE_CLASS, others[i]);
    }
    assert_int_equal(named_us, 8000);
    assert_int_equal(waited_us(&b, of_bob, WEIR_SCHED_CAUSE_CLASS, 0), (OTHERS - 8) * 1000);
    assert_int_equal(all_us(&b, of_bob), OTHERS * 1000);
    desk_finish(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wait_names_the_tenant_that_had_the_device),
        cmocka_unit_test(what_waits_behind_its_own_queue_is_not_counted),
        cmocka_unit_test(a_full_table_loses_names_and_no_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
