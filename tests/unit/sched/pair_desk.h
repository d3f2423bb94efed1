/*
 * What the tests of pairing policies share: a policy by itself, with four tenants, that is asked
 * and told as by the core; and a device for two endless loads.
 */
#ifndef WEIR_TESTS_SCHED_PAIR_DESK_H
#define WEIR_TESTS_SCHED_PAIR_DESK_H

#include "tests/lib/tl_cmocka.h"
#include "tests/lib/tl_sim.h"
#include <stdlib.h>
#include <string.h>

#define SMS 128u

/* ---- by hand ---- */

struct pair_desk {
    struct weir_sched_config config;
    struct weir_policy policy;
    struct weir_policy_tenant tenant[4]; /* a, b, c, d */
    struct weir_policy_group group;      /* the last answer */
};

static inline int pair_desk_make(void **state, const char *policy)
{
    const struct weir_policy_ops *ops = weir_policy_find(policy);
    struct pair_desk *desk = calloc(1, sizeof(*desk));

    assert_non_null(desk);
    weir_sched_config_init(&desk->config, SMS);
    desk->policy = (struct weir_policy){.ops = ops, .config = &desk->config};
    desk->policy.state = calloc(1, ops->state_bytes);
    assert_non_null(desk->policy.state);
    for (uint32_t i = 0; i < 4; i++) {
        desk->tenant[i] = (struct weir_policy_tenant){
            .id = 1 + i,
            .sm_limit = SMS,
            .priority = WEIR_PRIORITY_NORMAL,
            .gap_ns = UINT64_MAX,
            .kernel = {.key = 10 * (1 + i),
                       .blocks = 1000,
                       .blocks_per_sm = 8,
                       .need_sms = SMS,
                       .predicted_ns = 1000000,
                       .class = WEIR_SCHED_KERNEL,
                       .movable = true},
        };
    }
    *state = desk;
    return 0;
}

static inline int pair_desk_drop(void **state)
{
    struct pair_desk *desk = *state;

    free(desk->policy.state);
    free(desk);
    return 0;
}

/* At a desk of desk_make(), which names the policy. */
#define AT_DESK(test) cmocka_unit_test_setup_teardown(test, desk_make, pair_desk_drop)

/* Two have SMs of their own, which are all there are, or blocks on all of them. */
static inline void check_places(const struct weir_sched_place *a, const struct weir_sched_place *b)
{
    if (a->sm_count == 0) {
        assert_int_equal(b->sm_count, 0);
        assert_true(a->block_limit != 0 && b->block_limit != 0);
    } else {
        assert_in_range(a->sm_count, 1, SMS - 1);
        assert_int_equal(a->sm_count + b->sm_count, SMS);
    }
}

/* Ask with some of the tenants ready, the first of them leading. Returns who is beside, or -1. */
static inline int ask(struct pair_desk *desk, const char *ready)
{
    const struct weir_policy_tenant *list[4];
    struct weir_policy_together_view view = {.ready = list};

    for (; ready[view.ready_count] != '\0'; view.ready_count++) {
        list[view.ready_count] = &desk->tenant[ready[view.ready_count] - 'a'];
    }
    memset(&desk->group, 0, sizeof(desk->group));
    desk->group.count = 1;
    desk->policy.ops->together(&desk->policy, &view, &desk->group);
    assert_in_range(desk->group.count, 1, 2);
    if (desk->group.count == 1) {
        return -1;
    }
    check_places(&desk->group.member[0].place, &desk->group.member[1].place);
    return ready[desk->group.member[1].ready] - 'a';
}

/* Both finish a kernel where the last answer had them, at those speeds; 0: it teaches nothing. */
static inline void finish(struct pair_desk *desk, int a, int b, double speed_a, double speed_b)
{
    const struct weir_policy_tenant *tenant[] = {&desk->tenant[a], &desk->tenant[b]};
    const double speed[] = {speed_a, speed_b};

    for (int i = 0; i < 2; i++) {
        struct weir_policy_measure measure = {
            .key = tenant[i]->kernel.key,
            .sm_count = desk->group.member[i].place.sm_count,
            .block_limit = desk->group.member[i].place.block_limit,
            .partner_key = tenant[1 - i]->kernel.key,
            .partner_sm_count = desk->group.member[1 - i].place.sm_count,
            .partner_block_limit = desk->group.member[1 - i].place.block_limit,
            .samples = 1,
            .block_ns = 1000 / speed[i],
            .latest_block_ns = 1000 / speed[i],
        };

        if (speed[i] > 0) {
            desk->policy.ops->measured(&desk->policy, &measure);
        }
    }
}

/* ---- what holds for all of them ---- */

/* Samples that never come (it is stopped each time) are not waited for without end. */
static inline void what_cannot_be_measured_runs_alone(void **state)
{
    struct pair_desk *desk = *state;
    int tries = 0;

    while (ask(desk, "ab") == 1) {
        assert_in_range(++tries, 1, 50);
    }
    assert_in_range(tries, 30, 50);
    assert_int_equal(ask(desk, "ab"), -1);
}

/*
 * One of the two is disturbed each time, the other measured again and again. Where the number of
 * blocks is searched on halves of the SMs first, both are measured.
 */
static inline void a_pair_of_which_one_is_never_measured_runs_alone(void **state)
{
    struct pair_desk *desk = *state;
    int tries = 0;

    while (ask(desk, "ab") == 1) {
        const struct weir_sched_place *place = &desk->group.member[1].place;

        assert_in_range(++tries, 1, 60);
        finish(desk, 0, 1, 0.5, place->sm_count != 0 && place->block_limit != 0 ? 0.5 : 0);
    }
    assert_in_range(tries, 30, 60);
}

/* ---- on the device ---- */

static inline struct tl_sim_load endless(uint64_t key, uint64_t duration_us)
{
    return (struct tl_sim_load){.duration_ns = duration_us * 1000,
                                .flags = WEIR_SCHED_STOPPABLE | WEIR_SCHED_MOVABLE,
                                .key = key,
                                .blocks = 10000,
                                .blocks_per_sm = 8,
                                .predicted = true,
                                .think_ns = 2000};
}

/* Progress of two loads, of what the device does with one at a time. */
static inline double run_two(const char *policies, const struct tl_sim_load *load, uint64_t for_ns)
{
    struct tl_sim_params params;
    struct tl_sim *sim;
    struct weir_policy_set set;
    struct weir_sched_counts counts;
    double progress = 0;

    tl_sim_params_init(&params, SMS);
    params.check = true;
    sim = tl_sim_create(&params);
    assert_int_equal(weir_policy_set_parse(policies, &set, NULL), WEIR_OK);
    for (int i = 0; i < WEIR_POLICY_KIND_COUNT; i++) {
        if (set.policy[i]) {
            assert_int_equal(weir_sched_policy_set(tl_sim_sched(sim), 0, set.policy[i]), WEIR_OK);
        }
    }
    for (uint32_t i = 0; i < 2; i++) {
        tl_sim_tenant(sim, 1, WEIR_PRIORITY_NORMAL, &load[i]);
    }
    tl_sim_run(sim, for_ns);
    for (uint32_t i = 0; i < 2; i++) {
        struct tl_sim_stats stats;

        tl_sim_stats(sim, i, &stats);
        progress += (double)stats.finished * (double)load[i].duration_ns / (double)for_ns;
    }
    weir_sched_count(tl_sim_sched(sim), &counts);
    assert_int_equal(counts.nonsense, 0);
    assert_int_equal(counts.rescues, 0);
    tl_sim_destroy(sim);
    return progress;
}

#endif
