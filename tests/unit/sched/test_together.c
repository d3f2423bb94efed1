/* What `together` policies are shown, and what becomes of their answers. */
#include "tests/lib/tl_cmocka.h"
#include "tests/lib/tl_sim.h"
#include <string.h>

#define SMS  132u
#define BOTH (WEIR_SCHED_STOPPABLE | WEIR_SCHED_MOVABLE)

/* ---- a policy that halves the device, and notes ---- */

static struct {
    uint32_t asked;
    uint32_t groups; /* of two */
    bool sample;
    uint64_t valid_ns;
    const char *loner; /* name of a tenant that is never in a group */
} seen;

static void halves(struct weir_policy *self, const struct weir_policy_together_view *view,
                   struct weir_policy_group *group)
{
    (void)self;
    seen.asked++;
    assert_in_range(view->ready_count, 1, 8);
    for (uint32_t i = 0; i < view->ready_count; i++) {
        assert_true(view->ready[i]->kernel.predicted_ns > 0);
        assert_true(view->ready[i]->ready_since_ns <= view->now_ns);
    }
    assert_int_equal(group->count, 1); /* filled in: the leader alone */
    assert_int_equal(group->member[0].ready, 0);
    for (uint32_t i = 0; i < view->ready_count && view->ready_count > 1; i++) {
        assert_ptr_not_equal(view->ready[i]->name, seen.loner);
    }
    if (view->ready_count > 1) {
        group->count = 2;
        seen.groups++;
        group->member[1].ready = 1;
        for (uint32_t i = 0; i < 2; i++) { /* the same one always in the same half */
            bool second = view->ready[i]->id > view->ready[1 - i]->id;

            group->member[i].place =
                (struct weir_sched_place){.sm_first = second ? SMS / 2 : 0, .sm_count = SMS / 2};
        }
    }
    group->sample = seen.sample;
    group->valid_ns = seen.valid_ns;
}

static const struct weir_policy_ops halving = {
    .name = "halving",
    .kind = WEIR_POLICY_TOGETHER,
    .together = halves,
};

static struct tl_sim *make(const struct weir_policy_ops *ops)
{
    struct tl_sim_params params;
    struct tl_sim *sim;

    memset(&seen, 0, sizeof(seen));
    tl_sim_params_init(&params, SMS);
    params.check = true;
    sim = tl_sim_create(&params);
    assert_int_equal(weir_sched_policy_set(tl_sim_sched(sim), 0, ops), WEIR_OK);
    return sim;
}

static struct tl_sim_load kernels(uint64_t key, uint64_t duration_us)
{
    return (struct tl_sim_load){.duration_ns = duration_us * 1000,
                                .flags = BOTH,
                                .key = key,
                                .blocks = 10000,
                                .blocks_per_sm = 8,
                                .predicted = true,
                                .think_ns = 2000};
}

static void group_shares_the_device(void **state)
{
    struct tl_sim *sim = make(&halving);
    struct tl_sim_load first = kernels(11, 1000);
    struct tl_sim_load second = kernels(22, 700);
    struct tl_sim_stats stats;
    struct weir_sched_counts counts;

    (void)state;
    tl_sim_tenant(sim, 1, WEIR_PRIORITY_NORMAL, &first);
    second.from_ns = 20000000;
    tl_sim_tenant(sim, 1, WEIR_PRIORITY_NORMAL, &second);
    tl_sim_run(sim, 20000000);
    tl_sim_run(sim, 100000000);

    /* Both at work all the time, each in its half: whoever leads, nobody is stopped. */
    for (uint32_t i = 0; i < 2; i++) {
        tl_sim_stats(sim, i, &stats);
        assert_in_range(stats.service_ns - (i == 0 ? 20e6 : 0), 47000000, 53000000);
    }
    weir_sched_count(tl_sim_sched(sim), &counts);
    assert_int_equal(counts.nonsense, 0);
    assert_in_range(counts.stops, 0, 3);
    assert_true(counts.resizes >= 1);
    tl_sim_destroy(sim);
}

/*
 * Halves suit equals only. Who would get more in turns has the device to itself at times, and no
 * more than that: what is gained by sharing stays where it is.
 */
static void nobody_gets_less_in_a_group_than_in_turns(void **state)
{
    static const struct {
        uint32_t weight[2];
        uint32_t enough_sms; /* of the second */
        double least[2], most[2];
    } cases[] = {
        {{1, 1}, 0, {0.48, 0.48}, {0.52, 0.52}},
        {{3, 1}, 0, {0.72, 0.22}, {0.77, 0.28}},
        {{1, 9}, 0, {0.08, 0.87}, {0.13, 0.92}},
        {{1, 1}, SMS / 2, {0.48, 0.95}, {0.52, 1.00}},
        {{3, 1}, SMS / 2, {0.73, 0.45}, {0.77, 0.55}},
        {{1, 3}, SMS / 2, {0.48, 0.95}, {0.52, 1.00}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct tl_sim *sim = make(&halving);
        struct tl_sim_load loads[2] = {kernels(11, 5000), kernels(22, 5000)};
        struct tl_sim_stats before[2], after[2];

        loads[1].enough_sms = cases[i].enough_sms;
        for (uint32_t k = 0; k < 2; k++) {
            tl_sim_tenant(sim, cases[i].weight[k], WEIR_PRIORITY_NORMAL, &loads[k]);
        }
        tl_sim_run(sim, 200000000);
        tl_sim_stats(sim, 0, &before[0]);
        tl_sim_stats(sim, 1, &before[1]);
        tl_sim_run(sim, 1000000000);
        for (uint32_t k = 0; k < 2; k++) {
            double speed;

            tl_sim_stats(sim, k, &after[k]);
            speed = (double)(after[k].finished - before[k].finished) * 5e6 / 1e9;
            if (speed < cases[i].least[k] || speed > cases[i].most[k]) {
                fail_msg("case %zu: tenant %u does %.3f of what it does alone", i, k, speed);
            }
        }
        tl_sim_destroy(sim);
    }
}

/* Of three the first shares with nobody, from some time on; the others go on sharing. */
static void exclusive_tenants_are_never_in_a_group(void **state)
{
    struct weir_sched_tenant_params exclusive = {
        .weight = 1, .sm_limit = 100, .priority = WEIR_PRIORITY_NORMAL, .exclusive = true};
    struct tl_sim *sim = make(&halving);
    struct tl_sim_load load[] = {kernels(11, 1000), kernels(22, 700), kernels(33, 2000)};
    struct weir_sched_tenant_info info;
    struct tl_sim_stats stats;
    double service_ns = 0;
    uint32_t groups;

    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        tl_sim_tenant(sim, 1, WEIR_PRIORITY_NORMAL, &load[i]);
    }
    tl_sim_run(sim, 100000000);
    tl_sim_change(sim, 0, &exclusive);
    assert_int_equal(weir_sched_tenant_query(tl_sim_sched(sim), tl_sim_id(sim, 0), &info), WEIR_OK);
    assert_true(info.params.exclusive);
    seen.loner = info.params.name;
    tl_sim_run(sim, 100000000); /* what was under way in a group is done */
    groups = seen.groups;
    tl_sim_run(sim, 300000000);
    assert_true(seen.groups > groups + 10);
    for (uint32_t i = 0; i < 3; i++) {
        tl_sim_stats(sim, i, &stats);
        service_ns += stats.service_ns;
        assert_true(stats.service_ns > 0.27 * 500e6);
    }
    assert_true(service_ns > 0.97 * 500e6);
    tl_sim_destroy(sim);
}

/* Nor beside anybody's, or have anybody's beside theirs, at a lower level. */
static void exclusive_tenants_fill_no_gaps(void **state)
{
    struct weir_sched_tenant_params change = {
        .weight = 1, .sm_limit = 100, .priority = WEIR_PRIORITY_NORMAL};
    struct tl_sim_load load = {
        .duration_ns = 50000, .key = 5, .blocks = 1000, .blocks_per_sm = 8, .predicted = true};
    struct tl_sim_params params;
    struct tl_sim *sim;

    (void)state;
    tl_sim_params_init(&params, SMS);
    params.check = true;
    params.config.fill = WEIR_SCHED_FILL_ALL;
    sim = tl_sim_create(&params);
    for (uint32_t i = 0; i < 2; i++) {
        tl_sim_tenant(sim, 1, WEIR_PRIORITY_NORMAL, &load);
    }
    for (uint32_t round = 0; round < 3; round++) {
        uint64_t fillers = 0;

        change.exclusive = round == 1;
        tl_sim_change(sim, 0, &change);
        tl_sim_run(sim, 20000000);
        for (uint32_t i = 0; i < 2; i++) {
            struct tl_sim_stats before, after;

            tl_sim_stats(sim, i, &before);
            tl_sim_run(sim, 100000000);
            tl_sim_stats(sim, i, &after);
            fillers += after.fillers - before.fillers;
        }
        assert_true(round == 1 ? fillers == 0 : fillers > 0);
    }
    tl_sim_destroy(sim);
}

static void resize_when_a_member_goes(uint32_t flags)
{
    struct tl_sim *sim = make(&halving);
    struct tl_sim_load first = kernels(11, 50000);
    struct tl_sim_load second = kernels(22, 700);
    struct weir_sched_counts counts;
    struct tl_sim_stats stats;

    first.flags = flags;
    tl_sim_tenant(sim, 1, WEIR_PRIORITY_NORMAL, &first);
    second.count = 5;
    tl_sim_tenant(sim, 1, WEIR_PRIORITY_NORMAL, &second);
    tl_sim_run(sim, 60000000);
    tl_sim_stats(sim, 1, &stats);
    assert_int_equal(stats.finished, 5); /* 7 ms in its half */
    tl_sim_stats(sim, 0, &stats);
    assert_in_range(stats.service_ns, 55000000, 57500000); /* and all of it from then on */
    weir_sched_count(tl_sim_sched(sim), &counts);
    assert_true(counts.resizes >= 2);
    tl_sim_destroy(sim);
}

static void group_is_resized_when_a_member_goes(void **state)
{
    (void)state;
    resize_when_a_member_goes(BOTH);
    resize_when_a_member_goes(BOTH | WEIR_SCHED_PARTABLE); /* it could also be kept to a part */
}

static void group_of_a_sample_is_asked_about_when_all_were_tried(void **state)
{
    struct tl_sim *sim = make(&halving);
    struct tl_sim_load first = kernels(11, 1000);
    struct tl_sim_load second = kernels(22, 300);

    (void)state;
    seen.sample = true;
    seen.valid_ns = 500000000;
    tl_sim_tenant(sim, 1, WEIR_PRIORITY_NORMAL, &first);
    tl_sim_tenant(sim, 1, WEIR_PRIORITY_NORMAL, &second);
    tl_sim_run(sim, 40000000);
    assert_in_range(seen.asked, 10, 25); /* every two milliseconds */
    seen.sample = false;
    seen.valid_ns = 3000000;
    tl_sim_run(sim, 3000000);
    seen.asked = 0;
    tl_sim_run(sim, 30000000);
    assert_in_range(seen.asked, 5, 11); /* when it is not valid any more */
    tl_sim_destroy(sim);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(group_shares_the_device),
        cmocka_unit_test(nobody_gets_less_in_a_group_than_in_turns),
        cmocka_unit_test(exclusive_tenants_are_never_in_a_group),
        cmocka_unit_test(exclusive_tenants_fill_no_gaps),
        cmocka_unit_test(group_is_resized_when_a_member_goes),
        cmocka_unit_test(group_of_a_sample_is_asked_about_when_all_were_tried),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
