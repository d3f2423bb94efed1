/*
 * Who was away goes first when it is back, until it has had what that is worth; and its place is
 * kept while others fill (sched/policy/fair.c, sched/decide.c).
 */
#include "tests/unit/sched/wave_desk.h"

struct pair {
    struct desk d;
    weir_sched_id asks, trains; /* tenants */
    weir_sched_id asks_queue, trains_queue;
};

/* One was away for so long, after a short pause; the other has had the device since. */
static void open_pair(struct pair *p, enum weir_sched_fill fill, uint64_t away_us)
{
    desk_init_filling(&p->d, fill);
    p->asks_queue = queue_of_weight(&p->d, LEADS / 10, WEIR_PRIORITY_NORMAL, &p->asks);
    p->trains_queue = queue_of_weight(&p->d, LEADS, WEIR_PRIORITY_NORMAL, &p->trains);
    for (int i = 0; i < 2; i++) {
        weir_sched_id item = wave(&p->d, p->asks_queue, 50);

        later(&p->d, 50);
        finished(&p->d, item);
        later(&p->d, 10);
    }
    for (uint64_t us = 0; us < away_us; us += 100) {
        weir_sched_id item = wave(&p->d, p->trains_queue, 100);

        later(&p->d, 100);
        finished(&p->d, item);
    }
    p->d.count = 0;
}

/* It comes while a kernel of the other's runs, which weighs much more and leads. */
static bool goes_first(struct pair *p)
{
    weir_sched_id under_way = wave(&p->d, p->trains_queue, 300);
    weir_sched_id asked;

    later(&p->d, 50);
    asked = wave(&p->d, p->asks_queue, 100);
    assert_int_equal(how(&p->d, under_way), 0);
    return how(&p->d, asked) == 0;
}

static void who_was_away_goes_first(void **state)
{
    struct pair p;

    (void)state;
    open_pair(&p, WEIR_SCHED_FILL_NONE, 3000);
    assert_true(goes_first(&p));
    desk_finish(&p.d);
}

static void a_pause_between_two_kernels_is_no_rest(void **state)
{
    struct pair p;

    (void)state;
    open_pair(&p, WEIR_SCHED_FILL_NONE, 100);
    assert_false(goes_first(&p));
    desk_finish(&p.d);
}

/* The scheduler does not see what passes beside it: it cannot tell that from an absence. */
static void who_passed_alone_was_not_away(void **state)
{
    struct pair p;

    (void)state;
    open_pair(&p, WEIR_SCHED_FILL_NONE, 0);
    weir_sched_allow_alone(p.d.sched, true);
    for (int i = 0; i < 60; i++) {
        weir_sched_id item = wave(&p.d, p.asks_queue, 50);

        later(&p.d, 50);
        finished(&p.d, item);
        later(&p.d, 10);
    }
    assert_int_equal(atomic_load(&weir_sched_shared(p.d.sched)->alone), p.asks);
    later(&p.d, 50000);
    p.d.count = 0;
    assert_false(goes_first(&p));
    desk_finish(&p.d);
}

/* It was away for 3 ms and has had 5: it owes, and goes first no more. */
static void it_goes_first_for_as_long_as_it_was_away(void **state)
{
    struct pair p;
    weir_sched_id item;

    (void)state;
    open_pair(&p, WEIR_SCHED_FILL_NONE, 3000);
    item = wave(&p.d, p.asks_queue, 5000);
    later(&p.d, 5000);
    finished(&p.d, item);
    later(&p.d, 10);
    p.d.count = 0;
    assert_false(goes_first(&p));
    desk_finish(&p.d);
}

/* Others' kernels are at the lowest level until 3 ms after its last one. */
static void its_place_is_kept_while_others_fill(void **state)
{
    struct pair p;
    weir_sched_id item, asked, fills;

    (void)state;
    open_pair(&p, WEIR_SCHED_FILL_ALL, 3000);
    item = wave(&p.d, p.trains_queue, 100);
    later(&p.d, 10);
    asked = wave(&p.d, p.asks_queue, 50);
    later(&p.d, 90);
    finished(&p.d, item);
    fills = wave(&p.d, p.trains_queue, 100);
    assert_int_equal(how(&p.d, fills), 1);
    later(&p.d, 50);
    finished(&p.d, asked);
    for (int i = 0; i < 28; i++) {
        item = wave(&p.d, p.trains_queue, 100);
        later(&p.d, 100);
        finished(&p.d, fills);
        assert_int_equal(how(&p.d, item), 1);
        fills = item;
        p.d.count = 0;
    }
    later(&p.d, 500);
    item = wave(&p.d, p.trains_queue, 100);
    later(&p.d, 10);
    finished(&p.d, fills);
    later(&p.d, 10);
    assert_int_equal(how(&p.d, item), 0);
    desk_finish(&p.d);
}

/* One of another context waits while the place is kept for one that comes again before that is
 * over. */
static void nobody_is_kept_out_for_long(void **state)
{
    struct pair p;
    weir_sched_id other, foreign, asked, fills;
    bool granted = false;

    (void)state;
    open_pair(&p, WEIR_SCHED_FILL_ALL, 3000);
    assert_int_equal(
        weir_sched_queue_add(p.d.sched, tenant(&p.d, WEIR_PRIORITY_NORMAL, 100), 100, 1, &other),
        WEIR_OK);
    fills = wave(&p.d, p.trains_queue, 100);
    later(&p.d, 10);
    asked = wave(&p.d, p.asks_queue, 50);
    later(&p.d, 20);
    foreign = wave(&p.d, other, 100);
    for (int request = 0; request < 4; request++) {
        for (int i = 0; i < 28; i++) {
            weir_sched_id next = wave(&p.d, p.trains_queue, 100);

            later(&p.d, 100);
            if (state_of(&p.d, fills) == WEIR_SCHED_GRANTED) {
                finished(&p.d, fills);
                fills = next;
            }
            if (state_of(&p.d, asked) == WEIR_SCHED_GRANTED) {
                finished(&p.d, asked);
            }
            granted |= state_of(&p.d, foreign) != WEIR_SCHED_WAITING;
        }
        asked = wave(&p.d, p.asks_queue, 50);
        later(&p.d, 10);
    }
    assert_true(granted);
    desk_finish(&p.d);
}

/* Its place is kept for a moment, which it pays for; not for as long as nobody has work. */
static void who_lingers_pays_for_no_more_than_that(void **state)
{
    struct weir_sched_tenant_info before, after;
    struct desk d;
    weir_sched_id waits, other, q[2], item, last;

    (void)state;
    desk_init(&d);
    q[0] = queue_of(&d, WEIR_PRIORITY_NORMAL, &waits);
    q[1] = queue_of(&d, WEIR_PRIORITY_NORMAL, &other);
    for (int i = 0; i < 6; i++) {
        item = wave(&d, q[0], 2000);
        later(&d, 2000);
        finished(&d, item);
        later(&d, 20);
    }
    last = wave(&d, q[1], 100);
    item = wave(&d, q[0], 2000);
    later(&d, 100);
    finished(&d, last);
    later(&d, 2000);
    finished(&d, item);
    assert_int_equal(weir_sched_tenant_query(d.sched, waits, &before), WEIR_OK);
    later(&d, 10000000);
    item = wave(&d, q[1], 100);
    assert_int_equal(weir_sched_tenant_query(d.sched, waits, &after), WEIR_OK);
    assert_true(after.service_ns[0] - before.service_ns[0] <= 500000ull * SMS);
    later(&d, 100);
    finished(&d, item);
    desk_finish(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_was_away_goes_first),
        cmocka_unit_test(a_pause_between_two_kernels_is_no_rest),
        cmocka_unit_test(who_passed_alone_was_not_away),
        cmocka_unit_test(it_goes_first_for_as_long_as_it_was_away),
        cmocka_unit_test(its_place_is_kept_while_others_fill),
        cmocka_unit_test(nobody_is_kept_out_for_long),
        cmocka_unit_test(who_lingers_pays_for_no_more_than_that),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
