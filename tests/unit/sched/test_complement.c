/*
 * `complement`: classes and divisions by hand, from measures as the core would bring them; and on
 * a device with a kernel that saturates the memory.
 */
#include "tests/unit/sched/pair_desk.h"

/* ---- by hand ---- */

static int desk_make(void **state)
{
    return pair_desk_make(state, "complement");
}

/* What two kernels of those kinds do in company: 'm' saturates the memory at a quarter of the SMs,
 * 'c' computes; two that saturate it share it. */
static double speed_of(char kind, char other, uint32_t sms)
{
    double part = (double)sms / SMS;

    if (kind == 'c') {
        return part;
    }
    part = part * 4 < 1 ? part * 4 : 1;
    return other == 'm' ? part / 2 : part;
}

/* Ask and finish as the core does, until the pair is settled or refused.
 * Returns the last answer. */
static int try_out(struct pair_desk *desk, const char *ready, const char *kinds,
                   uint32_t *ret_samples)
{
    int with = -1;

    for (*ret_samples = 0; *ret_samples < 20; ++*ret_samples) {
        int leader = ready[0] - 'a';

        with = ask(desk, ready);
        if (with < 0 || !desk->group.sample) {
            return with;
        }
        assert_true(desk->group.valid_ns >= 2 * 1000000);
        finish(desk, leader, with,
               speed_of(kinds[leader], kinds[with], desk->group.member[0].place.sm_count),
               speed_of(kinds[with], kinds[leader], desk->group.member[1].place.sm_count));
    }
    fail_msg("never settled");
    return -1;
}

static void memory_beside_compute_gets_the_sms_it_needs(void **state)
{
    struct pair_desk *desk = *state;
    uint32_t samples;

    /* The first answer is halves, to be tried. */
    assert_int_equal(ask(desk, "ab"), 1);
    assert_true(desk->group.sample);
    assert_int_equal(desk->group.member[0].place.sm_first, 0);
    assert_int_equal(desk->group.member[0].place.sm_count, 64);
    assert_int_equal(desk->group.member[1].place.sm_first, 64);

    /* Halves: 1 + 0.50. 5/8: 1 + 0.38, worse; 3/8: 1 + 0.63; 2/8: 1 + 0.75; 1/8: 0.5 + 0.88. */
    assert_int_equal(try_out(desk, "ab", "mc", &samples), 1);
    assert_int_equal(samples, 5);
    assert_int_equal(desk->group.member[0].place.sm_count, 32);
    assert_int_equal(desk->group.member[1].place.sm_first, 32);

    /* The same places whoever leads: nobody is moved when the lead passes. */
    assert_int_equal(ask(desk, "ba"), 0);
    assert_int_equal(desk->group.member[0].place.sm_first, 32);
    assert_int_equal(desk->group.member[1].place.sm_count, 32);

    /* One goes: the other has all (the answer that was filled in). One of another class: too. */
    assert_int_equal(ask(desk, "a"), -1);
    desk->tenant[1].priority = WEIR_PRIORITY_LOW;
    assert_int_equal(ask(desk, "ab"), -1);
}

static void like_kernels_run_alone(void **state)
{
    struct pair_desk *desk = *state;
    uint32_t samples;

    assert_int_equal(try_out(desk, "ab", "ccmm", &samples), -1);
    assert_in_range(samples, 1, 3); /* 1.00 everywhere */
    assert_int_equal(try_out(desk, "cd", "ccmm", &samples), -1);
    assert_in_range(samples, 1, 3); /* each half as fast as alone */
    for (int i = 0; i < 100; i++) {
        assert_int_equal(ask(desk, "ab"), -1);
    }
    /* With all of them there each leader finds one of the other kind. */
    assert_true(try_out(desk, "abcd", "ccmm", &samples) >= 2);
    assert_true(try_out(desk, "dcba", "ccmm", &samples) <= 1);
}

/* After it has been seen beside one of each kind, nothing is tried any more: the table says it. */
static void classes_spare_the_trying(void **state)
{
    struct pair_desk *desk = *state;
    uint32_t samples;

    assert_int_equal(try_out(desk, "ac", "ccmm", &samples), 2);
    assert_int_equal(try_out(desk, "ad", "ccmm", &samples), 3);
    assert_int_equal(try_out(desk, "bc", "ccmm", &samples), 2);
    assert_int_equal(try_out(desk, "bd", "ccmm", &samples), 3);
    assert_int_equal(ask(desk, "ab"), -1); /* scales and scales */
    assert_int_equal(ask(desk, "cd"), -1); /* saturates and saturates */
}

static void small_kernel_gets_what_it_needs(void **state)
{
    struct pair_desk *desk = *state;

    desk->tenant[1].kernel.need_sms = 20;
    assert_int_equal(ask(desk, "ab"), 1);
    assert_int_equal(desk->group.member[1].place.sm_count, 20);
    finish(desk, 0, 1, 108.0 / 128, 1);
    assert_int_equal(ask(desk, "ab"), 1);
}

static void what_cannot_share_runs_alone(void **state)
{
    struct pair_desk *desk = *state;
    struct weir_policy_kernel *kernel = &desk->tenant[1].kernel;

    kernel->movable = false;
    assert_int_equal(ask(desk, "ab"), -1);
    assert_int_equal(ask(desk, "ba"), -1);
    kernel->movable = true;
    kernel->key = 0;
    assert_int_equal(ask(desk, "ab"), -1);
    kernel->key = 20;
    kernel->class = WEIR_SCHED_GRAPH;
    assert_int_equal(ask(desk, "ab"), -1);
    kernel->class = WEIR_SCHED_KERNEL;
    kernel->predicted_ns = 0; /* not known yet */
    assert_int_equal(ask(desk, "ab"), -1);
    kernel->predicted_ns = 20000; /* short, and its client waits for each */
    desk->tenant[1].gap_ns = 10000;
    assert_int_equal(ask(desk, "ab"), -1);
    kernel->predicted_ns = 1000000;
    desk->tenant[1].sm_limit = 64;
    assert_int_equal(ask(desk, "ab"), -1);
    desk->tenant[1].sm_limit = SMS;
    assert_int_equal(ask(desk, "ab"), 1);
}

/* Trying is not gone on with, pair after pair, by programs that never have the same two side by
 * side. */
static void trying_has_an_end(void **state)
{
    struct pair_desk *desk = *state;
    int tries = 0;

    for (uint64_t i = 0; i < 2000; i++) {
        desk->tenant[0].kernel.key = 1000 + i % 50;
        desk->tenant[1].kernel.key = 2000 + i % 49;
        tries += ask(desk, "ab") == 1;
    }
    assert_in_range(tries, 100, 300);
}

/* ---- on the device ---- */

static struct tl_sim_load kernels(uint64_t key, uint64_t duration_us, uint32_t enough_sms)
{
    struct tl_sim_load load = endless(key, duration_us);

    load.enough_sms = enough_sms;
    return load;
}

static double run_pair(const char *policies, uint64_t duration_us, uint32_t enough_a,
                       uint32_t enough_b)
{
    struct tl_sim_load load[] = {kernels(1, duration_us, enough_a),
                                 kernels(2, duration_us * 3 / 4, enough_b)};

    return run_two(policies, load, 400000000);
}

static void memory_and_compute_gain_and_likes_lose_nothing(void **state)
{
    static const char *const policies[] = {"fair,complement", "priority,complement"};

    (void)state;
    for (int i = 0; i < 2; i++) {
        for (uint64_t us = 400; us <= 10000; us *= 5) {
            double gain = run_pair(policies[i], us, 32, 0);
            double like = run_pair(policies[i], us, 0, 0);

            print_message("%s, %u us: %.3f, %.3f\n", policies[i], (unsigned)us, gain, like);
            assert_true(gain > 1.55 && gain < 1.75); /* 1 + 3/4, less trying */
            assert_true(like > 0.94);
        }
    }
}

/* Who is beside another when that one leaves has all SMs at once, and keeps its work. */
static void who_is_left_has_all_sms(void **state)
{
    struct tl_sim_params params;
    struct tl_sim *sim;
    struct tl_sim_load memory = kernels(1, 2000, 32);
    struct tl_sim_load compute = kernels(2, 2000, 0);
    struct tl_sim_stats before;
    struct tl_sim_stats after;

    (void)state;
    tl_sim_params_init(&params, SMS);
    params.check = true;
    sim = tl_sim_create(&params);
    tl_sim_policy(sim, 0, weir_policy_find("complement"));
    tl_sim_tenant(sim, 1, WEIR_PRIORITY_NORMAL, &memory);
    tl_sim_tenant(sim, 1, WEIR_PRIORITY_NORMAL, &compute);
    tl_sim_run(sim, 200000000);
    tl_sim_stats(sim, 1, &before);
    tl_sim_run(sim, 40000000);
    tl_sim_stats(sim, 1, &after);
    assert_in_range(after.finished - before.finished, 14, 15); /* 40 ms on 3/4 of the SMs */
    tl_sim_leave(sim, 0);
    tl_sim_run(sim, 40000000);
    tl_sim_stats(sim, 1, &before);
    assert_in_range(before.finished - after.finished, 19, 20);
    /* Another comes: it is beside it again, where it has been before. */
    memory.from_ns = 0;
    tl_sim_tenant(sim, 1, WEIR_PRIORITY_NORMAL, &memory);
    tl_sim_run(sim, 10000000);
    tl_sim_stats(sim, 1, &before);
    tl_sim_run(sim, 40000000);
    tl_sim_stats(sim, 1, &after);
    assert_in_range(after.finished - before.finished, 14, 15);
    tl_sim_destroy(sim);
}

/* Four of two kinds: whoever leads has one of the other kind beside it. */
static void four_tenants_find_each_other(void **state)
{
    struct tl_sim_params params;
    struct tl_sim *sim;
    double progress = 0;

    (void)state;
    tl_sim_params_init(&params, SMS);
    params.check = true;
    sim = tl_sim_create(&params);
    tl_sim_policy(sim, 0, weir_policy_find("complement"));
    for (uint32_t i = 0; i < 4; i++) {
        struct tl_sim_load load = kernels(1 + i, 1000, i % 2 != 0 ? 32 : 0);

        tl_sim_tenant(sim, 1, WEIR_PRIORITY_NORMAL, &load);
    }
    tl_sim_run(sim, 1000000000);
    for (uint32_t i = 0; i < 4; i++) {
        struct tl_sim_stats stats;

        tl_sim_stats(sim, i, &stats);
        assert_true(stats.finished > 150);
        progress += (double)stats.finished / 1000;
    }
    print_message("four: %.3f\n", progress);
    assert_true(progress > 1.45);
    tl_sim_destroy(sim);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        AT_DESK(memory_beside_compute_gets_the_sms_it_needs),
        AT_DESK(like_kernels_run_alone),
        AT_DESK(classes_spare_the_trying),
        AT_DESK(small_kernel_gets_what_it_needs),
        AT_DESK(what_cannot_share_runs_alone),
        AT_DESK(a_pair_of_which_one_is_never_measured_runs_alone),
        AT_DESK(what_cannot_be_measured_runs_alone),
        AT_DESK(trying_has_an_end),
        cmocka_unit_test(memory_and_compute_gain_and_likes_lose_nothing),
        cmocka_unit_test(who_is_left_has_all_sms),
        cmocka_unit_test(four_tenants_find_each_other),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
