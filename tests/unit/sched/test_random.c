/*
 * Whatever happens by seed: tenants come and go, change, bring work of all classes, under every
 * policy and under ones that answer nonsense. After each step the scheduler's invariants hold,
 * everything that it was given ends, and nobody waits longer than the watchdog allows.
 */
#include "tests/lib/tl_cmocka.h"
#include "tests/lib/tl_sim.h"

#define SMS 132u

static uint64_t noise = 88172645463325252u;

static uint64_t any(uint64_t below)
{
    noise ^= noise << 13;
    noise ^= noise >> 7;
    noise ^= noise << 17;
    return noise % below;
}

/* ---- policies that answer nonsense ---- */

static void nonsense_next(struct weir_policy *self, const struct weir_policy_next_view *view,
                          struct weir_policy_choice *choice)
{
    (void)self;
    choice->ready =
        (uint32_t)any(3) == 0 ? (uint32_t)any(UINT32_MAX) : (uint32_t)any(view->ready_count);
    choice->slice_ns = any(4) == 0 ? any(UINT64_MAX) : any(1000000);
    choice->linger_ns = any(4) == 0 ? any(UINT64_MAX) : any(10000);
    choice->keep_ns = any(4) == 0 ? any(UINT64_MAX) : any(100000);
}

static void nonsense_together(struct weir_policy *self,
                              const struct weir_policy_together_view *view,
                              struct weir_policy_group *group)
{
    (void)self;
    group->count = (uint32_t)any(WEIR_POLICY_GROUP_MAX + 3);
    for (uint32_t i = 0; i < group->count && i < WEIR_POLICY_GROUP_MAX; i++) {
        group->member[i].ready =
            any(5) == 0 ? (uint32_t)any(UINT32_MAX) : (i + (uint32_t)any(2)) % view->ready_count;
        group->member[i].place.sm_first = (uint32_t)any(SMS + 2);
        group->member[i].place.sm_count = (uint32_t)any(SMS + 2) / (1 + i);
        group->member[i].place.block_limit = (uint32_t)any(4);
    }
    if (any(2) == 0) { /* a sound one, at last */
        group->count = view->ready_count > 1 ? 2 : 1;
        for (uint32_t i = 0; i < group->count; i++) {
            group->member[i].ready = i;
            group->member[i].place =
                (struct weir_sched_place){i * 66, 66, any(3) == 0 ? 1 + (uint32_t)any(8) : 0};
        }
    }
    group->sample = any(2);
    group->valid_ns = any(2) == 0 ? any(3000000) : 0;
}

static const struct weir_policy_ops nonsense[] = {
    {.name = "nonsense", .kind = WEIR_POLICY_NEXT, .next = nonsense_next},
    {.name = "nonsense", .kind = WEIR_POLICY_TOGETHER, .together = nonsense_together},
};

/* Always the same one, for as long as it may. */
static void stubborn_next(struct weir_policy *self, const struct weir_policy_next_view *view,
                          struct weir_policy_choice *choice)
{
    (void)self;
    choice->ready = 0;
    for (uint32_t i = 1; i < view->ready_count; i++) {
        choice->ready = view->ready[i]->id < view->ready[choice->ready]->id ? i : choice->ready;
    }
    choice->slice_ns = UINT64_MAX;
    choice->linger_ns = UINT64_MAX;
}

static const struct weir_policy_ops stubborn = {
    .name = "stubborn", .kind = WEIR_POLICY_NEXT, .next = stubborn_next};

/* ---- loads by seed ---- */

static struct tl_sim_load random_load(struct tl_sim *sim)
{
    static const enum weir_sched_class classes[] = {
        WEIR_SCHED_KERNEL, WEIR_SCHED_KERNEL, WEIR_SCHED_KERNEL, WEIR_SCHED_GRAPH,
        WEIR_SCHED_H2D,    WEIR_SCHED_D2H,    WEIR_SCHED_D2D,    WEIR_SCHED_MEMSET,
    };
    struct tl_sim_load load = {
        .duration_ns = 5000 + tl_sim_random(sim, 3) * tl_sim_random(sim, 2000000),
        .jitter_ns = tl_sim_random(sim, 20000),
        .class = classes[tl_sim_random(sim, 8)],
        .key = 1 + tl_sim_random(sim, 5),
        .bytes = tl_sim_random(sim, 1000000),
        .rest_bytes = tl_sim_random(sim, 3) == 0 ? tl_sim_random(sim, 1000000000000) : 0,
        .predicted = tl_sim_random(sim, 2),
        .sync = tl_sim_random(sim, 2),
        .think_ns = 1000 + tl_sim_random(sim, 30000),
        .queues = 1 + (uint32_t)tl_sim_random(sim, 3),
        .sm_limit = tl_sim_random(sim, 4) == 0 ? 1 + (uint32_t)tl_sim_random(sim, 100) : 0,
        .domain = tl_sim_random(sim, 4) == 0,
        .from_ns = tl_sim_random(sim, 1000000),
        .count = (uint32_t)tl_sim_random(sim, 60),
    };

    if (load.class == WEIR_SCHED_KERNEL) {
        load.flags = (uint32_t)tl_sim_random(sim, 4);
        load.blocks = (uint32_t)tl_sim_random(sim, 3000);
        load.blocks_per_sm = (uint32_t)tl_sim_random(sim, 9);
    }
    return load;
}

static void change(struct tl_sim *sim, uint32_t tenant)
{
    struct weir_sched_tenant_params params = {
        .weight = 1 + (uint32_t)tl_sim_random(sim, 10000),
        .sm_limit = 1 + (uint32_t)tl_sim_random(sim, 100),
        .min_share = tl_sim_random(sim, 2) == 0 ? (uint32_t)tl_sim_random(sim, 101) : 0,
        .exclusive = tl_sim_random(sim, 4) == 0,
        .priority = (enum weir_priority)tl_sim_random(sim, WEIR_PRIORITY_COUNT),
    };

    tl_sim_change(sim, tenant, &params);
}

static void put_in_force(struct tl_sim *sim, const struct weir_policy_ops *ops)
{
    assert_int_equal(weir_sched_policy_set(tl_sim_sched(sim), tl_sim_now(sim), ops), WEIR_OK);
}

/* Half a second of whatever comes; then all leave or finish. */
static void live_through(struct tl_sim *sim, uint32_t steps)
{
    uint32_t tenants = 0;
    struct weir_sched_counts counts;
    uint64_t arrivals;

    for (uint32_t step = 0; step < steps; step++) {
        uint64_t what = tl_sim_random(sim, 10);

        if (what < 4 || tenants == 0) {
            struct tl_sim_load load = random_load(sim);

            tenants = 1 + tl_sim_tenant(sim, 1 + (uint32_t)tl_sim_random(sim, 10),
                                        (enum weir_priority)tl_sim_random(sim, 3), &load);
        } else if (what < 6) {
            tl_sim_leave(sim, (uint32_t)tl_sim_random(sim, tenants));
        } else if (what < 8) {
            change(sim, (uint32_t)tl_sim_random(sim, tenants));
        }
        tl_sim_run(sim, tl_sim_random(sim, 4000000));
    }
    for (uint32_t i = 0; i < tenants; i++) {
        if (tl_sim_is_endless(sim, i)) {
            tl_sim_leave(sim, i);
        }
    }
    for (int i = 0; i < 4000;
         i++) { /* until nothing is there (limits make it long), nothing has come */
        weir_sched_count(tl_sim_sched(sim), &counts);
        arrivals = counts.arrivals;
        tl_sim_run(sim, 50000000);
        weir_sched_count(tl_sim_sched(sim), &counts);
        if (tl_sim_pending(sim) == 0 && counts.arrivals == arrivals) {
            break;
        }
    }
    assert_int_equal(tl_sim_pending(sim), 0);
    assert_int_equal(counts.items, 0);
    assert_int_equal(counts.arrivals, counts.finishes + tl_sim_dropped(sim));
}

static struct tl_sim *make(uint64_t seed)
{
    struct tl_sim_params params;

    tl_sim_params_init(&params, SMS);
    params.check = true;
    params.seed = seed;
    params.refuse_stop = seed % 2;
    params.config.fill = seed % 4 < 2 ? WEIR_SCHED_FILL_NONE : WEIR_SCHED_FILL_ALL;
    params.config.small_sms = seed % 3 == 0 ? 0 : (uint32_t)(seed % 3) * params.config.sms;
    params.config.above = (uint32_t)(seed % 2);
    params.config.starve_ns = params.config.lease_ns = 20000000;
    return tl_sim_create(&params);
}

static void everything_ends_under_every_policy(void **state)
{
    (void)state;
    for (uint32_t row = 0; weir_policy_at(row); row++) {
        for (uint64_t seed = 1; seed <= 6; seed++) {
            struct tl_sim *sim = make(seed);

            put_in_force(sim, weir_policy_at(row));
            live_through(sim, 40);
            tl_sim_destroy(sim);
        }
    }
}

static void everything_ends_under_nonsense(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct tl_sim *sim = make(seed);
        struct weir_sched_counts counts;

        for (int i = 0; i < WEIR_POLICY_KIND_COUNT; i++) {
            put_in_force(sim, &nonsense[i]);
        }
        live_through(sim, 40);
        weir_sched_count(tl_sim_sched(sim), &counts);
        assert_true(counts.nonsense > 0);
        assert_in_range(tl_sim_log_lines(sim), 1, 2 * WEIR_POLICY_KIND_COUNT);
        tl_sim_destroy(sim);
    }
}

static void everything_ends_while_policies_change(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 5; seed++) {
        struct tl_sim *sim = make(seed);

        for (int i = 0; i < 8; i++) {
            uint32_t row = (uint32_t)tl_sim_random(sim, 4);

            put_in_force(sim, row < 2 ? weir_policy_at(row) : &nonsense[row - 2]);
            if (i % 3 == 2) {
                assert_int_equal(weir_sched_policy_clear(tl_sim_sched(sim), tl_sim_now(sim), i % 2),
                                 WEIR_OK);
            }
            live_through(sim, 6);
        }
        tl_sim_destroy(sim);
    }
}

static void nobody_starves_under_a_policy_that_names_one(void **state)
{
    struct tl_sim *sim = make(2);
    struct tl_sim_stats stats;
    struct weir_sched_counts counts;

    (void)state;
    put_in_force(sim, &stubborn);
    for (uint32_t i = 0; i < 6; i++) {
        struct tl_sim_load load = {
            .duration_ns = 300000,
            .class = i < 4 ? WEIR_SCHED_KERNEL : WEIR_SCHED_H2D,
            .flags = i % 2 == 0 ? WEIR_SCHED_STOPPABLE : 0,
            .predicted = true,
            .think_ns = 2000,
        };

        tl_sim_tenant(sim, 1, WEIR_PRIORITY_NORMAL, &load);
    }
    tl_sim_run(sim, 300000000);
    for (uint32_t i = 0; i < 6; i++) {
        tl_sim_stats(sim, i, &stats);
        assert_true(stats.finished >= 2);
        assert_in_range(stats.wait_max_ns, 0, 2 * 20000000 + 6 * 6000000);
    }
    weir_sched_count(tl_sim_sched(sim), &counts);
    assert_true(counts.rescues > 0);
    assert_int_equal(tl_sim_log_lines(sim), 1);
    tl_sim_destroy(sim);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_ends_under_every_policy),
        cmocka_unit_test(everything_ends_under_nonsense),
        cmocka_unit_test(everything_ends_while_policies_change),
        cmocka_unit_test(nobody_starves_under_a_policy_that_names_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
