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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_was_away_goes_first),
        cmocka_unit_test(a_pause_between_two_kernels_is_no_rest),
        cmocka_unit_test(it_goes_first_for_as_long_as_it_was_away),
        cmocka_unit_test(its_place_is_kept_while_others_fill),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
