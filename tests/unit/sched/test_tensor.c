/*
 * `tensor`: bisection, what is left of an SM and the two-stage model by hand; the policy from
 * measures as the core would bring them; and on a device.
 */
#include "sched/policy/tensor.h"
#include "tests/unit/sched/pair_desk.h"
#include <math.h>

/* ---- searches and model ---- */

/* As fast from `enough` blocks on: found in one measurement of all, and four for 16. */
static void search_finds_the_fewest_in_as_many_steps_as_bits(void **state)
{
    (void)state;
    for (uint32_t most = 1; most <= 32; most++) {
        for (uint32_t enough = 1; enough <= most; enough++) {
            struct tensor_search search = {.high = most};
            uint32_t steps = 0;
            uint32_t blocks;

            while ((blocks = tensor_search_next(&search)) != 0) {
                double speed = blocks >= enough ? 2.0 : 2.0 * blocks / enough;

                assert_true(tensor_search_take(&search, blocks, speed));
                steps++;
            }
            assert_int_equal(search.high, enough);
            assert_true(steps <= 1 + (uint32_t)ceil(log2(most)));
        }
    }
}

static void search_goes_as_by_hand(void **state)
{
    static const uint32_t asked[] = {16, 8, 4, 6, 5};
    struct tensor_search search = {.high = 16};

    (void)state;
    for (uint32_t i = 0; i < 5; i++) { /* 5 are enough */
        assert_int_equal(tensor_search_next(&search), asked[i]);
        assert_false(tensor_search_take(&search, 3, 1)); /* not asked for */
        assert_true(tensor_search_take(&search, asked[i], asked[i] >= 5 ? 0.98 : 0.9));
    }
    assert_int_equal(tensor_search_next(&search), 0);
    assert_int_equal(search.high, 5);
}

static void beside_gets_what_is_left(void **state)
{
    (void)state;
    assert_int_equal(tensor_beside(2, 4, 3, 8), 3); /* room for 4, needs 3 */
    assert_int_equal(tensor_beside(3, 4, 4, 8), 2); /* room for 2: half of it */
    assert_int_equal(tensor_beside(3, 4, 5, 8), 0); /* room for 2: less than half */
    assert_int_equal(tensor_beside(1, 1, 1, 8), 0);
    assert_int_equal(tensor_beside(7, 8, 1, 8), 1);
}

static void pair_takes_as_long_as_both_stages(void **state)
{
    static const struct {
        double tensor, other, ns;
    } cases[] = {
        {10, 4, 10.5},           /* 5 together, the first has 5.5 of 10 left */
        {10, 20, 20 + 2 / 0.9},  /* 11.1 together, the second has 11.1 of 20 left */
        {10, 8 / 0.9, 10 / 0.9}, /* the knee: both end at once */
        {5, 2, 5.25},            /* half of the load, half of the time */
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        double ns = tensor_pair_ns(cases[i].tensor, cases[i].other, 0.9, 0.8);

        assert_true(fabs(ns - cases[i].ns) < 1e-9);
        assert_true(fabs(tensor_pair_ns(cases[i].other, cases[i].tensor, 0.8, 0.9) - ns) < 1e-9);
    }
}

/* ---- by hand ---- */

static int desk_make(void **state)
{
    return pair_desk_make(state, "tensor");
}

/* On halves `enough` of 8 blocks are as fast as all; on the same SMs each has its share. */
static double speed_of(double together, uint32_t enough, const struct weir_sched_place *place)
{
    if (place->sm_count == 0) {
        return together;
    }
    return 0.5 * (place->block_limit < enough ? (double)place->block_limit / enough : 1);
}

struct kind {
    uint32_t enough;
    double together;
};

/* Ask and finish as the core does, until nothing is tried any more. Returns the last answer. */
static int try_out(struct pair_desk *desk, const char *ready, const struct kind *kinds)
{
    for (int samples = 0; samples < 30; samples++) {
        int leader = ready[0] - 'a';
        int with = ask(desk, ready);

        if (with < 0 || !desk->group.sample) {
            return with;
        }
        assert_true(desk->group.valid_ns >= 4 * 1000000);
        finish(desk, leader, with,
               speed_of(kinds[leader].together, kinds[leader].enough, &desk->group.member[0].place),
               speed_of(kinds[with].together, kinds[with].enough, &desk->group.member[1].place));
    }
    fail_msg("never settled");
    return -1;
}

static void tensor_and_other_share_each_sm(void **state)
{
    static const struct kind kinds[] = {{3, 0.9}, {6, 0.7}};
    struct pair_desk *desk = *state;

    /* Searched on halves, at the same time. */
    assert_int_equal(ask(desk, "ba"), 0);
    assert_true(desk->group.sample);
    assert_int_equal(desk->group.member[0].place.sm_first, 64);
    assert_int_equal(desk->group.member[1].place.sm_count, 64);
    assert_int_equal(desk->group.member[0].place.block_limit, 8);

    /* The first has its 3, the other 5 of the 6 that it would like. */
    assert_int_equal(try_out(desk, "ab", kinds), 1);
    assert_int_equal(desk->group.member[0].place.sm_count, 0);
    assert_int_equal(desk->group.member[0].place.block_limit, 3);
    assert_int_equal(desk->group.member[1].place.block_limit, 5);
    assert_int_equal(desk->group.valid_ns, 0);
    assert_int_equal(ask(desk, "ba"), 0);
    assert_int_equal(desk->group.member[0].place.block_limit, 5);
    assert_int_equal(desk->group.member[1].place.block_limit, 3);
}

static void likes_are_not_paired(void **state)
{
    struct pair_desk *desk = *state;

    desk->tenant[1].kernel.tensor = true;
    assert_int_equal(ask(desk, "ab"), -1);
    assert_int_equal(ask(desk, "cd"), -1); /* neither uses tensor cores */
    assert_int_equal(ask(desk, "abc"), 2);
    desk->tenant[2].priority = WEIR_PRIORITY_LOW;
    assert_int_equal(ask(desk, "abc"), -1);
}

static void pair_that_gains_most_is_taken(void **state)
{
    /* b: 0.9 + 0.5; c: 0.9 + 0.7; d: 0.9 + 0.1. */
    static const struct kind kinds[] = {{3, 0.9}, {4, 0.5}, {4, 0.7}, {4, 0.1}};
    struct pair_desk *desk = *state;

    assert_int_equal(try_out(desk, "ab", kinds), 1);
    assert_int_equal(try_out(desk, "ac", kinds), 2);
    assert_int_equal(try_out(desk, "ad", kinds), -1); /* not one more than one after the other */
    assert_int_equal(ask(desk, "abcd"), 2);
    assert_int_equal(ask(desk, "abd"), 1);
    /* 400 us beside 1000 us of a: 1000 + 400 * 0.1 / 0.7 for 1400; b's 1000 us: 1400 for 2000. */
    desk->tenant[2].kernel.blocks = 400;
    desk->tenant[2].kernel.predicted_ns = 400000;
    assert_int_equal(ask(desk, "abc"), 1);
}

static void pair_without_room_is_not_made(void **state)
{
    static const struct kind kinds[] = {{7, 0.9}, {4, 0.5}};
    struct pair_desk *desk = *state;

    assert_int_equal(try_out(desk, "ab", kinds), -1); /* room for 1, needs 4 */
    assert_int_equal(ask(desk, "ba"), -1);
}

static void what_cannot_share_runs_alone(void **state)
{
    struct pair_desk *desk = *state;

    desk->tenant[1].kernel.blocks_per_sm = 0;
    assert_int_equal(ask(desk, "ab"), -1);
    desk->tenant[1].kernel.blocks_per_sm = 8;
    desk->tenant[0].kernel.movable = false;
    assert_int_equal(ask(desk, "ab"), -1);
    desk->tenant[0].kernel.movable = true;
    assert_int_equal(ask(desk, "ab"), 1);
}

/* ---- on the device ---- */

static double run_pair(const char *policies, uint64_t duration_us, uint32_t enough_a,
                       uint32_t enough_b)
{
    struct tl_sim_load load[] = {endless(1, duration_us), endless(2, duration_us * 3 / 4)};

    load[0].flags |= WEIR_SCHED_TENSOR;
    load[0].enough_blocks = enough_a;
    load[1].enough_blocks = enough_b;
    /* So long that searching is a small part. */
    return run_two(policies, load, 400000000 + 200000 * duration_us);
}

static void pair_gains_and_the_rest_loses_little(void **state)
{
    static const char *const policies[] = {"fair,tensor", "priority,tensor"};

    (void)state;
    for (int i = 0; i < 2; i++) {
        for (uint64_t us = 400; us <= 10000; us *= 5) {
            double gain = run_pair(policies[i], us, 3, 0);
            double none = run_pair(policies[i], us, 0, 0);

            print_message("%s, %u us: %.3f, %.3f\n", policies[i], (unsigned)us, gain, none);
            assert_true(gain > 1.4 && gain < 1.64); /* 1 and 5 of 8, less searching */
            assert_true(none > 0.9);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(search_finds_the_fewest_in_as_many_steps_as_bits),
        cmocka_unit_test(search_goes_as_by_hand),
        cmocka_unit_test(beside_gets_what_is_left),
        cmocka_unit_test(pair_takes_as_long_as_both_stages),
        AT_DESK(tensor_and_other_share_each_sm),
        AT_DESK(a_pair_of_which_one_is_never_measured_runs_alone),
        AT_DESK(likes_are_not_paired),
        AT_DESK(pair_that_gains_most_is_taken),
        AT_DESK(pair_without_room_is_not_made),
        AT_DESK(what_cannot_share_runs_alone),
        AT_DESK(what_cannot_be_measured_runs_alone),
        cmocka_unit_test(pair_gains_and_the_rest_loses_little),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
