/*
 * `waterfill`: Algorithm 1 and the threshold by hand; the policy from measures as the core would
 * bring them; and on a device with a kernel that has its best with half of its blocks.
 */
#include "sched/policy/waterfill.h"
#include "tests/unit/sched/pair_desk.h"

/* ---- the division ---- */

static const struct waterfill_curve compute = {.performance = {0, 1, 2, 3, 4, 5, 6, 7, 8},
                                               .blocks = 8};
static const struct waterfill_curve memory = {.performance = {0, 1, 2, 3, 4, 4, 4, 4, 4},
                                              .blocks = 8};
/* Short of cache: its best with 3 blocks, worse with more. */
static const struct waterfill_curve cache = {.performance = {0, 3, 6, 8, 5, 4, 4}, .blocks = 6};
/* Two blocks are no better than one. */
static const struct waterfill_curve stairs = {.performance = {0, 2, 2, 4, 4}, .blocks = 4};

/* The drawing in waterfill.c, step by step: c m: 1 1, 2 1, 3 1 (then m, .25 against .375), 3 2,
 * 4 2, 5 2 (both .5: the first), 5 3: full. */
static void divide_fills_the_lowest(void **state)
{
    const struct waterfill_curve *const curves[] = {&compute, &memory};
    uint32_t blocks[2];
    double kept[2];

    (void)state;
    assert_true(waterfill_divide(curves, 2, blocks, kept));
    assert_int_equal(blocks[0], 5);
    assert_int_equal(blocks[1], 3);
    assert_true(kept[0] == 5.0 / 8 && kept[1] == 3.0 / 4);
    assert_true(waterfill_is_tolerable(kept, 2));
}

static void divide_gives_nobody_more_than_its_best(void **state)
{
    const struct waterfill_curve *curves[] = {&cache, &compute};
    uint32_t blocks[2];
    double kept[2];

    (void)state;
    /* c 1 (.38), the other 3 (.38), c 2 (.75), the other 5 (.63); 1/24 is left. */
    assert_true(waterfill_divide(curves, 2, blocks, kept));
    assert_int_equal(blocks[0], 2);
    assert_int_equal(blocks[1], 5);
    assert_true(kept[0] == 0.75 && kept[1] == 0.625);
    curves[1] = &memory; /* best with 4 of 8: both have it */
    assert_true(waterfill_divide(curves, 2, blocks, kept));
    assert_int_equal(blocks[0], 3);
    assert_int_equal(blocks[1], 4);
    assert_true(kept[0] == 1 && kept[1] == 1);
}

static void divide_takes_steps_as_a_whole(void **state)
{
    const struct waterfill_curve *const curves[] = {&stairs, &compute};
    uint32_t blocks[2];
    double kept[2];

    (void)state;
    /* 1 (.5) and 4 (.5); then two more for the first do not fit (1/4 is left): 1 and 6. */
    assert_true(waterfill_divide(curves, 2, blocks, kept));
    assert_int_equal(blocks[0], 1);
    assert_int_equal(blocks[1], 6);
}

static void divide_of_three_and_the_threshold(void **state)
{
    const struct waterfill_curve *const curves[] = {&compute, &compute, &compute};
    static const struct waterfill_curve whole = {.performance = {0, 1}, .blocks = 1};
    static const struct waterfill_curve large = {.performance = {0, 1, 2}, .blocks = 2};
    const struct waterfill_curve *const both[] = {&whole, &large};
    const struct waterfill_curve *const twins[] = {&large, &large};
    uint32_t blocks[3];
    double kept[3];

    (void)state;
    assert_true(waterfill_divide(curves, 3, blocks, kept));
    assert_int_equal(blocks[0] + blocks[1] + blocks[2], 8);
    assert_true(blocks[2] >= 2 && blocks[0] == 3);
    assert_false(waterfill_is_tolerable(kept, 3)); /* 2/8: lost 75 %, more than 40 % */
    assert_false(waterfill_divide(both, 2, blocks, kept));
    assert_true(waterfill_divide(twins, 2, blocks, kept));
    assert_true(waterfill_is_tolerable(kept, 2)); /* half lost, 60 % allowed */
    kept[1] = 0.39;
    assert_false(waterfill_is_tolerable(kept, 2));
}

/* ---- by hand ---- */

static int desk_make(void **state)
{
    return pair_desk_make(state, "waterfill");
}

/* Speed of a kernel of 8 blocks per SM with `block limit` of them: 'c' gains with each, 'm' up to
 * 4, 's' suffers from company on its SMs. */
static double speed_of(char kind, const struct weir_sched_place *place)
{
    double part = place->sm_count != 0 ? (double)place->sm_count / SMS : 1;
    double enough = kind == 'm' ? 4 : 8;
    double block_limit = place->block_limit != 0 ? place->block_limit : 8;

    if (kind == 's' && place->sm_count == 0) {
        return 0.01;
    }
    if (kind == 'm' && place->block_limit == 0) {
        return part * 1.5 < 1 ? part * 1.5 : 1;
    }
    return part * (block_limit < enough ? block_limit / enough : 1);
}

static int try_out(struct pair_desk *desk, const char *ready, const char *kinds,
                   uint32_t *ret_samples)
{
    for (*ret_samples = 0; *ret_samples < 40; ++*ret_samples) {
        int leader = ready[0] - 'a';
        int with = ask(desk, ready);

        if (with < 0 || !desk->group.sample) {
            return with;
        }
        assert_true(desk->group.valid_ns >= 8 * 1000000);
        finish(desk, leader, with, speed_of(kinds[leader], &desk->group.member[0].place),
               speed_of(kinds[with], &desk->group.member[1].place));
    }
    fail_msg("never settled");
    return -1;
}

static void samples_are_taken_on_halves(void **state)
{
    static const uint32_t block_limit[] = {8, 4, 2};
    struct pair_desk *desk = *state;

    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(ask(desk, i == 1 ? "ba" : "ab"), i == 1 ? 0 : 1);
        assert_true(desk->group.sample);
        for (uint32_t k = 0; k < 2; k++) {
            bool first = (k == 0) == (i != 1);

            assert_int_equal(desk->group.member[k].place.sm_count, 64);
            assert_int_equal(desk->group.member[k].place.sm_first, first ? 0 : 64);
            assert_int_equal(desk->group.member[k].place.block_limit, block_limit[i]);
        }
        finish(desk, i == 1 ? 1 : 0, i == 1 ? 0 : 1, 0.5, 0.5);
    }
}

static void memory_and_compute_share_each_sm(void **state)
{
    struct pair_desk *desk = *state;
    uint32_t samples;

    assert_int_equal(try_out(desk, "ab", "cm", &samples), 1);
    /* Three points, together 5 and 3, which the curves give; 6 and 2, 4 and 4, 3 and 5. */
    assert_int_equal(samples, 3 + 4 * 4);
    assert_int_equal(desk->group.member[0].place.sm_count, 0);
    assert_int_equal(desk->group.member[0].place.block_limit, 4);
    assert_int_equal(desk->group.member[1].place.block_limit, 4);
    assert_int_equal(ask(desk, "ba"), 0);
    assert_int_equal(desk->group.member[0].place.block_limit, 4);
    desk->tenant[1].priority = WEIR_PRIORITY_HIGH;
    assert_int_equal(ask(desk, "ba"), -1);
    assert_int_equal(ask(desk, "b"), -1);
}

static void who_loses_too_much_gets_its_own_sms(void **state)
{
    struct pair_desk *desk = *state;
    uint32_t samples;

    /* One block fills an SM: nothing to divide. */
    desk->tenant[0].kernel.blocks_per_sm = 1;
    assert_int_equal(try_out(desk, "ab", "mm", &samples), 1);
    assert_int_equal(desk->group.member[0].place.sm_count, 64);
    assert_int_equal(desk->group.member[0].place.block_limit, 0);
    /* Divided well, and slow all the same (0.01 and 1): apart, 0.5 and 0.75. */
    assert_int_equal(try_out(desk, "cd", "mmsm", &samples), 3);
    assert_int_equal(desk->group.member[0].place.sm_count, 64);
    assert_int_equal(desk->group.member[1].place.block_limit, 0);
}

static void likes_run_alone(void **state)
{
    struct pair_desk *desk = *state;
    uint32_t samples;

    assert_int_equal(try_out(desk, "ab", "cc", &samples), -1);
    assert_int_equal(samples, 3 + 3 * 4 + 1); /* three points, three divisions, apart */
    for (int i = 0; i < 100; i++) {
        assert_int_equal(ask(desk, "ab"), -1);
    }
}

static void what_cannot_share_runs_alone(void **state)
{
    struct pair_desk *desk = *state;

    desk->tenant[1].kernel.blocks_per_sm = 0;
    assert_int_equal(ask(desk, "ab"), -1);
    desk->tenant[1].kernel.blocks_per_sm = 33;
    assert_int_equal(ask(desk, "ab"), -1);
    desk->tenant[1].kernel.blocks_per_sm = 8;
    desk->tenant[1].kernel.movable = false;
    assert_int_equal(ask(desk, "ab"), -1);
    desk->tenant[1].kernel.movable = true;
    assert_int_equal(ask(desk, "ab"), 1);
}

/* ---- on the device ---- */

static double run_pair(const char *policies, uint64_t duration_us, uint32_t enough_a,
                       uint32_t enough_b)
{
    struct tl_sim_load load[] = {endless(1, duration_us), endless(2, duration_us * 3 / 4)};

    load[0].enough_blocks = enough_a;
    load[1].enough_blocks = enough_b;
    /* So long that sampling is a small part. */
    return run_two(policies, load, 800000000 + 600000 * duration_us);
}

static void memory_and_compute_gain_and_likes_lose_nothing(void **state)
{
    static const char *const policies[] = {"fair,waterfill", "priority,waterfill"};

    (void)state;
    for (int i = 0; i < 2; i++) {
        for (uint64_t us = 400; us <= 3200; us *= 8) {
            double gain = run_pair(policies[i], us, 4, 0);
            double like = run_pair(policies[i], us, 0, 0);

            print_message("%s, %u us: %.3f, %.3f\n", policies[i], (unsigned)us, gain, like);
            assert_true(gain > 1.3 && gain < 1.51); /* 4/8 + 4/4, less sampling */
            assert_true(like > 0.85);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(divide_fills_the_lowest),
        cmocka_unit_test(divide_gives_nobody_more_than_its_best),
        cmocka_unit_test(divide_takes_steps_as_a_whole),
        cmocka_unit_test(divide_of_three_and_the_threshold),
        AT_DESK(samples_are_taken_on_halves),
        AT_DESK(a_pair_of_which_one_is_never_measured_runs_alone),
        AT_DESK(memory_and_compute_share_each_sm),
        AT_DESK(who_loses_too_much_gets_its_own_sms),
        AT_DESK(likes_run_alone),
        AT_DESK(what_cannot_share_runs_alone),
        AT_DESK(what_cannot_be_measured_runs_alone),
        cmocka_unit_test(memory_and_compute_gain_and_likes_lose_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
