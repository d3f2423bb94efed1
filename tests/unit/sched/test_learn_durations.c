/* What finished items teach, and what must not (sched/learn_durations.c). */
#include "tests/unit/sched/wave_desk.h"

/* Kernels of one length were seen so often. */
static void teach(struct weir_predict *predict, uint64_t us, int times)
{
    for (int i = 0; i < times; i++) {
        weir_predict_learn(predict, WEIR_SCHED_KERNEL, us, WAVE, us * 1000);
    }
}

static weir_sched_id wave_unknown(struct desk *d, weir_sched_id queue_id, uint64_t key)
{
    struct weir_sched_item_params params = {
        .class = WEIR_SCHED_KERNEL, .key = key, .blocks = WAVE, .blocks_per_sm = 8};

    return bring(d, queue_id, &params);
}

/* What is known of who had an equal beside it stays as it is, whatever it took. */
static void nothing_is_learned_beside_equals(void **state)
{
    static const uint64_t took_us[] = {400, 120, 30};

    (void)state;
    for (int i = 0; i < 3; i++) {
        struct weir_predict *predict;
        struct desk d;
        weir_sched_id tenant, queue, leads;

        assert_int_equal(weir_predict_create(16, &predict), WEIR_OK);
        teach(predict, 100, 4);
        desk_init_learning(&d, WEIR_SCHED_FILL_ALL, predict);
        queue = queue_of_weight(&d, LEADS, WEIR_PRIORITY_NORMAL, &tenant);
        leads = wave(&d, queue, 100);
        assert_int_equal(how(&d, wave(&d, queue_of(&d, WEIR_PRIORITY_NORMAL, &tenant), 40)), 1);
        later(&d, took_us[i]);
        finished(&d, leads);
        assert_in_range(weir_predict_ask(predict, WEIR_SCHED_KERNEL, 100, WAVE), 99900, 100100);
        desk_finish(&d);
        weir_predict_destroy(predict);
    }
}

/* Three of 50, 100 and 150 us are done together after 570: each took 1.9 times as long, it seems.
 * But not where another had the device in between,
 * or where the first began with the device idle. */
static void a_sum_is_learned_from_if_nothing_disturbed_it(void **state)
{
    (void)state;
    for (int disturbed = 0; disturbed < 3; disturbed++) {
        struct weir_predict *predict;
        struct desk d;
        weir_sched_id tenant, other, queue, before, three[3];

        assert_int_equal(weir_predict_create(16, &predict), WEIR_OK);
        for (uint64_t us = 50; us <= 150; us += 50) {
            teach(predict, us, 8);
        }
        desk_init_learning(&d, WEIR_SCHED_FILL_ALL, predict);
        queue = queue_of_weight(&d, LEADS, WEIR_PRIORITY_NORMAL, &tenant);
        before = wave(&d, queue, 30);
        if (disturbed == 2) {
            later(&d, 30);
            finished(&d, before);
        }
        for (uint32_t i = 0; i < 3; i++) {
            three[i] = wave(&d, queue, 50 * (i + 1));
        }
        if (disturbed != 2) {
            later(&d, 30);
            finished(&d, before);
        }
        if (disturbed == 1) { /* a lower class goes below them */
            assert_int_equal(how(&d, wave(&d, queue_of(&d, WEIR_PRIORITY_LOW, &other), 40)), 1);
        }
        later(&d, 570);
        weir_sched_done_together(d.sched, d.now_ns, three, 3);
        for (uint64_t us = 50; us <= 150; us += 50) { /* the mean of nine */
            uint64_t ns = disturbed != 0 ? us * 1000 : us * 1105;

            assert_in_range(weir_predict_ask(predict, WEIR_SCHED_KERNEL, us, WAVE), ns - ns / 50,
                            ns + ns / 50);
        }
        for (uint32_t i = 0; i < 3; i++) {
            assert_int_equal(weir_sched_finished(d.sched, d.now_ns, three[i], WEIR_SCHED_UNKNOWN),
                             WEIR_OK);
        }
        desk_finish(&d);
        weir_predict_destroy(predict);
    }
}

/* The scheduler itself says so of what it asks for; three times alike is enough. */
static void what_was_seen_three_times_is_sure(void **state)
{
    struct weir_predict *predict;
    struct desk d;
    weir_sched_id tenant, queue, items[4];
    struct weir_sched_item_info info;

    (void)state;
    assert_int_equal(weir_predict_create(16, &predict), WEIR_OK);
    desk_init_learning(&d, WEIR_SCHED_FILL_ALL, predict);
    queue = queue_of(&d, WEIR_PRIORITY_NORMAL, &tenant);
    for (int i = 0; i < 4; i++) {
        items[i] = wave_unknown(&d, queue, 9);
        assert_int_equal(weir_sched_item_query(d.sched, items[i], &info), WEIR_OK);
        assert_int_equal(info.params.flags, i < 3 ? WEIR_SCHED_UNSURE : 0);
        later(&d, 70);
        finished(&d, items[i]);
    }
    desk_finish(&d);
    weir_predict_destroy(predict);
}

/* One that leads in a clean turn is alone on the device until it is done, though another leads by
 * then; what it took counts four times. Here 400 us, known as 300. */
static void what_a_clean_turn_shows_is_not_disturbed(void **state)
{
    struct weir_predict *predict;
    struct desk d;
    weir_sched_id a, b, queue_a, queue_b, leads, fills;

    (void)state;
    assert_int_equal(weir_predict_create(16, &predict), WEIR_OK);
    teach(predict, 300, 64);
    desk_init_learning(&d, WEIR_SCHED_FILL_ALL, predict);
    later(&d, 300000); /* no turn of anybody's was clean for that long */
    queue_a = queue_of_weight(&d, LEADS, WEIR_PRIORITY_NORMAL, &a);
    queue_b = queue_of(&d, WEIR_PRIORITY_NORMAL, &b);
    leads = wave(&d, queue_a, 300);
    fills = wave(&d, queue_b, 50);
    assert_int_equal(how(&d, leads), 0);
    assert_int_equal(how(&d, fills), -1);
    later(&d, 400);
    finished(&d, leads);
    /* 300 us in 31 parts of 32 to the power of 4, 400 us in the rest */
    assert_in_range(weir_predict_ask(predict, WEIR_SCHED_KERNEL, 300, WAVE), 308000, 314000);
    desk_finish(&d);
    weir_predict_destroy(predict);
}

/* Four of 20 us that took 25 each, seen done at once, teach what four would. */
static void like_ones_count_as_often_as_they_are_many(void **state)
{
    uint64_t known_ns[2];

    (void)state;
    for (int together = 0; together < 2; together++) {
        struct weir_predict *predict;
        struct desk d;
        weir_sched_id tenant, queue, item[4];

        assert_int_equal(weir_predict_create(16, &predict), WEIR_OK);
        teach(predict, 20, 64);
        desk_init_learning(&d, WEIR_SCHED_FILL_NONE, predict);
        queue = queue_of(&d, WEIR_PRIORITY_NORMAL, &tenant);
        for (int i = 0; i < 4; i++) {
            item[i] = wave(&d, queue, 20);
        }
        later(&d, 100);
        if (together) {
            weir_sched_done_together(d.sched, d.now_ns, item, 4);
        }
        for (int i = 0; i < 4; i++) {
            uint64_t took_ns = i == 0 ? 25000 : WEIR_SCHED_UNKNOWN;

            assert_int_equal(weir_sched_finished(d.sched, d.now_ns, item[i], took_ns), WEIR_OK);
        }
        known_ns[together] = weir_predict_ask(predict, WEIR_SCHED_KERNEL, 20, WAVE);
        desk_finish(&d);
        weir_predict_destroy(predict);
    }
    assert_in_range(known_ns[0], 20100, 20250);
    assert_in_range(known_ns[1], 20500, 20750);
}

/* Granted, it was given to the device only 100 us later: its thread slept. And no longer than it
 * was served can it have taken. */
static void what_was_measured_is_believed_below_what_was_served(void **state)
{
    (void)state;
    for (int late = 0; late < 2; late++) {
        struct weir_predict *predict;
        struct desk d;
        weir_sched_id tenant, queue, item;

        assert_int_equal(weir_predict_create(16, &predict), WEIR_OK);
        desk_init_learning(&d, WEIR_SCHED_FILL_NONE, predict);
        queue = queue_of(&d, WEIR_PRIORITY_NORMAL, &tenant);
        item = wave(&d, queue, 200);
        later(&d, 300);
        assert_int_equal(weir_sched_finished(d.sched, d.now_ns, item, late ? 200000 : 900000),
                         WEIR_OK);
        assert_int_equal(weir_predict_ask(predict, WEIR_SCHED_KERNEL, 200, WAVE),
                         late ? 200000 : 300000);
        desk_finish(&d);
        weir_predict_destroy(predict);
    }
}

/* Three of 20 us are seen done 210 us after they came to the device: in another context's place,
 * whose change takes most of that; or in the same context. */
static void a_change_of_context_is_not_learned(void **state)
{
    (void)state;
    for (uint32_t apart = 0; apart < 2; apart++) {
        struct weir_predict *predict;
        struct desk d;
        weir_sched_id queue_a, queue_b, item[3], other;

        assert_int_equal(weir_predict_create(16, &predict), WEIR_OK);
        teach(predict, 20, 8);
        desk_init_learning(&d, WEIR_SCHED_FILL_NONE, predict);
        assert_int_equal(
            weir_sched_queue_add(d.sched, tenant(&d, WEIR_PRIORITY_NORMAL, 100), 100, 0, &queue_a),
            WEIR_OK);
        assert_int_equal(weir_sched_queue_add(d.sched, tenant(&d, WEIR_PRIORITY_NORMAL, 100), 100,
                                              apart, &queue_b),
                         WEIR_OK);
        other = wave(&d, queue_a, 100);
        later(&d, 100);
        finished(&d, other);
        later(&d, 5000); /* nobody is there for a while */
        for (int i = 0; i < 3; i++) {
            item[i] = wave(&d, queue_b, 20);
        }
        later(&d, 210);
        weir_sched_done_together(d.sched, d.now_ns, item, 3);
        for (int i = 0; i < 3; i++) {
            uint64_t took_ns = i == 0 ? 70000 : WEIR_SCHED_UNKNOWN;

            assert_int_equal(weir_sched_finished(d.sched, d.now_ns, item[i], took_ns), WEIR_OK);
        }
        assert_in_range(weir_predict_ask(predict, WEIR_SCHED_KERNEL, 20, WAVE),
                        apart ? 19900 : 25000, apart ? 20100 : 60000);
        desk_finish(&d);
        weir_predict_destroy(predict);
    }
}

/* Of what nothing is known it is a supposition; a kernel that takes much longer than a change of
 * context is learned from all the same. */
static void what_is_long_teaches_after_a_change_of_context_too(void **state)
{
    (void)state;
    for (uint32_t is_long = 0; is_long < 2; is_long++) {
        uint64_t us = is_long ? 3000 : 300;
        struct weir_predict *predict;
        struct desk d;
        weir_sched_id queue_a, queue_b, item;

        assert_int_equal(weir_predict_create(16, &predict), WEIR_OK);
        desk_init_learning(&d, WEIR_SCHED_FILL_NONE, predict);
        queue_a = queue(&d, tenant(&d, WEIR_PRIORITY_NORMAL, 100));
        assert_int_equal(
            weir_sched_queue_add(d.sched, tenant(&d, WEIR_PRIORITY_NORMAL, 100), 100, 1, &queue_b),
            WEIR_OK);
        for (int i = 0; i < 4; i++) {
            finished(&d, wave_unknown(&d, queue_a, 7));
            item = wave_unknown(&d, queue_b, us);
            later(&d, us);
            finished(&d, item);
        }
        assert_in_range(weir_predict_ask(predict, WEIR_SCHED_KERNEL, us, WAVE), us * 999,
                        us * 1001);
        assert_int_equal(weir_predict_is_sure(predict, WEIR_SCHED_KERNEL, us), is_long);
        desk_finish(&d);
        weir_predict_destroy(predict);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_learned_beside_equals),
        cmocka_unit_test(a_sum_is_learned_from_if_nothing_disturbed_it),
        cmocka_unit_test(what_was_seen_three_times_is_sure),
        cmocka_unit_test(what_a_clean_turn_shows_is_not_disturbed),
        cmocka_unit_test(like_ones_count_as_often_as_they_are_many),
        cmocka_unit_test(what_was_measured_is_believed_below_what_was_served),
        cmocka_unit_test(a_change_of_context_is_not_learned),
        cmocka_unit_test(what_is_long_teaches_after_a_change_of_context_too),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
