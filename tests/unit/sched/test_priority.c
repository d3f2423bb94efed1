/*
 * `priority`: how long the high class waits, what it takes of the device, and what becomes of
 * equals; and how long a newcomer waits under `fair`.
 */
#include "tests/lib/tl_cmocka.h"
#include "tests/lib/tl_sim.h"

#define SMS  132u
#define BOTH (WEIR_SCHED_STOPPABLE | WEIR_SCHED_MOVABLE)

static struct tl_sim *make(const char *policy)
{
    struct tl_sim_params params;
    struct tl_sim *sim;

    tl_sim_params_init(&params, SMS);
    params.check = true;
    sim = tl_sim_create(&params);
    assert_int_equal(weir_sched_policy_set(tl_sim_sched(sim), 0, weir_policy_find(policy)),
                     WEIR_OK);
    return sim;
}

static struct tl_sim_load kernels(uint64_t duration_us, uint32_t flags)
{
    return (struct tl_sim_load){.duration_ns = duration_us * 1000,
                                .flags = flags,
                                .key = duration_us,
                                .blocks = 100000,
                                .blocks_per_sm = 8,
                                .predicted = true,
                                .think_ns = 2000};
}

/* Now and then, each when the last is done: a client that asks. */
static struct tl_sim_load asking(uint64_t duration_us, uint64_t think_us)
{
    struct tl_sim_load load = kernels(duration_us, BOTH);

    load.sync = true;
    load.think_ns = think_us * 1000;
    return load;
}

static void priority_high_class_waits_for_a_stop_only(void **state)
{
    struct tl_sim *sim = make("priority");
    struct tl_sim_load low = kernels(10000, BOTH);
    struct tl_sim_load high = asking(100, 700);
    struct tl_sim_stats stats;

    (void)state;
    tl_sim_tenant(sim, 1, WEIR_PRIORITY_LOW, &low);
    high.from_ns = 1000000;
    tl_sim_tenant(sim, 1, WEIR_PRIORITY_HIGH, &high);
    tl_sim_run(sim, 200000000);
    tl_sim_stats(sim, 1, &stats);
    assert_true(stats.finished > 200);
    /* 16 us to stop, 4 to launch, 4 to be seen. */
    assert_in_range(stats.wait_max_ns, 1, 25000);
    assert_in_range(stats.turn_max_ns, 100000, 130000);
    tl_sim_stats(sim, 0, &stats);
    assert_true(stats.service_ns > 0.8 * 200000000 * 700 / 830);
    tl_sim_destroy(sim);
}

static void priority_shorter_of_equals_goes_first_and_longer_ones_end(void **state)
{
    struct tl_sim *sim = make("priority");
    struct tl_sim_load large = kernels(20000, BOTH);
    struct tl_sim_load small = asking(500, 3000);
    struct tl_sim_load forever = kernels(300, BOTH);
    struct tl_sim_stats stats;
    uint64_t finished;

    (void)state;
    tl_sim_tenant(sim, 1, WEIR_PRIORITY_NORMAL, &large);
    tl_sim_tenant(sim, 1, WEIR_PRIORITY_NORMAL, &small);
    tl_sim_run(sim, 300000000);
    tl_sim_stats(sim, 1, &stats);
    assert_in_range(stats.turn_sum_ns / stats.finished, 500000, 550000);
    tl_sim_stats(sim, 0, &stats);
    finished = stats.finished;
    assert_true(finished >= 11); /* what the small ones leave */
    tl_sim_tenant(sim, 1, WEIR_PRIORITY_NORMAL, &forever);
    tl_sim_run(sim, 3000000000);
    tl_sim_stats(sim, 0, &stats);
    assert_true(stats.finished >= finished + 2); /* 66 times slower, then it may */
    tl_sim_destroy(sim);
}

/* One that cannot be stopped and always has more on the device keeps nobody out: the shorter one
 * is next when what is there is done. */
static void priority_shorter_of_equals_waits_for_no_more_than_is_there(void **state)
{
    struct tl_sim *sim = make("priority");
    struct tl_sim_load load = kernels(3000, 0);
    struct tl_sim_load asks = asking(100, 700);
    struct tl_sim_stats stats;

    (void)state;
    asks.from_ns = 1000000;
    tl_sim_tenant(sim, 1, WEIR_PRIORITY_NORMAL, &load);
    tl_sim_tenant(sim, 1, WEIR_PRIORITY_NORMAL, &asks);
    tl_sim_run(sim, 200000000);
    tl_sim_stats(sim, 1, &stats);
    assert_true(stats.finished > 20);
    assert_in_range(stats.wait_max_ns, 1, 6500000);
    tl_sim_stats(sim, 0, &stats);
    assert_true(stats.finished > 50); /* nor does the longer one wait for long */
    tl_sim_destroy(sim);
}

static void priority_not_stoppable_runs_out_and_low_is_not_forgotten(void **state)
{
    struct tl_sim *sim = make("priority");
    struct tl_sim_load low = kernels(2000, 0);
    struct tl_sim_load high = kernels(1000, BOTH); /* always there */
    struct tl_sim_stats stats;

    (void)state;
    tl_sim_tenant(sim, 1, WEIR_PRIORITY_LOW, &low);
    high.from_ns = 500000;
    tl_sim_tenant(sim, 1, WEIR_PRIORITY_HIGH, &high);
    tl_sim_run(sim, 7000000000);
    tl_sim_stats(sim, 1, &stats);
    assert_in_range(stats.wait_max_ns, 1, 5000000); /* one in hand, one granted before it came */
    tl_sim_stats(sim, 0, &stats);
    assert_in_range(stats.finished, 3, 6); /* the watchdog: every two seconds */
    tl_sim_destroy(sim);
}

static void fair_newcomer_is_served_at_once(void **state)
{
    static const uint32_t flags[] = {BOTH, 0};

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct tl_sim *sim = make("fair");
        struct tl_sim_load old = kernels(1000, flags[i]);
        struct tl_sim_load young = kernels(100, BOTH);
        struct tl_sim_stats stats;

        young.from_ns = 50300000;
        young.count = 1;
        tl_sim_tenant(sim, 1, WEIR_PRIORITY_NORMAL, &old);
        tl_sim_tenant(sim, 1, WEIR_PRIORITY_NORMAL, &young);
        tl_sim_run(sim, 60000000);
        tl_sim_stats(sim, 1, &stats);
        assert_int_equal(stats.finished, 1);
        /* What is on the device: stopped, or at most alone_ns and the kernel that runs. */
        assert_in_range(stats.wait_max_ns, 1, flags[i] != 0 ? 30000 : 3100000);
        tl_sim_destroy(sim);
    }
}

static void fair_change_of_weight_is_in_force_at_once(void **state)
{
    struct tl_sim *sim = make("fair");
    struct tl_sim_load load = kernels(5000, BOTH);
    struct weir_sched_tenant_params params = {
        .weight = 9, .sm_limit = 100, .priority = WEIR_PRIORITY_NORMAL};
    struct tl_sim_stats before;
    struct tl_sim_stats after;

    (void)state;
    tl_sim_tenant(sim, 1, WEIR_PRIORITY_NORMAL, &load);
    tl_sim_tenant(sim, 1, WEIR_PRIORITY_NORMAL, &load);
    tl_sim_run(sim, 200000000);
    tl_sim_stats(sim, 0, &before);
    assert_in_range(before.service_ns, 96000000, 104000000);
    tl_sim_change(sim, 0, &params);
    tl_sim_run(sim, 100000000);
    tl_sim_stats(sim, 0, &after);
    assert_in_range(after.service_ns - before.service_ns, 86000000, 94000000);
    tl_sim_destroy(sim);
}

/* A client that waits for each of its kernels has its share all the same. */
static void fair_synchronous_client_keeps_its_place(void **state)
{
    struct tl_sim *sim = make("fair");
    struct tl_sim_load sync = asking(50, 8);
    struct tl_sim_load loop = kernels(3000, BOTH);
    struct tl_sim_stats stats;

    (void)state;
    tl_sim_tenant(sim, 1, WEIR_PRIORITY_NORMAL, &sync);
    tl_sim_tenant(sim, 1, WEIR_PRIORITY_NORMAL, &loop);
    tl_sim_run(sim, 500000000);
    tl_sim_stats(sim, 0, &stats);
    /* Half of the time is its own, of which its pauses take a quarter. */
    assert_in_range(stats.service_ns, 0.5 * 0.70 * 500000000, 0.5 * 500000000);
    tl_sim_destroy(sim);
}

/* Who was away comes back to its share, not to what it missed. */
static void fair_idle_tenant_has_no_credit(void **state)
{
    struct tl_sim *sim = make("fair");
    struct tl_sim_load loop = kernels(1000, BOTH);
    struct tl_sim_load late = kernels(1000, BOTH);
    struct tl_sim_stats stats;

    (void)state;
    late.from_ns = 300000000;
    tl_sim_tenant(sim, 1, WEIR_PRIORITY_NORMAL, &loop);
    tl_sim_tenant(sim, 1, WEIR_PRIORITY_NORMAL, &late);
    tl_sim_run(sim, 500000000);
    tl_sim_stats(sim, 1, &stats);
    assert_in_range(stats.service_ns, 97000000, 103000000);
    tl_sim_destroy(sim);
}

/* Who had the device to itself owes nothing for that to those who come while it is away. */
static void fair_time_alone_is_no_debt(void **state)
{
    struct tl_sim *sim = make("fair");
    struct tl_sim_load first = kernels(40000, 0);
    struct tl_sim_load late = kernels(1000, 0);
    struct tl_sim_stats before, after;

    (void)state;
    first.sync = true;
    first.think_ns = 10000000;
    late.from_ns = 45000000;
    tl_sim_tenant(sim, 1, WEIR_PRIORITY_NORMAL, &first);
    tl_sim_tenant(sim, 1, WEIR_PRIORITY_NORMAL, &late);
    tl_sim_run(sim, 49000000);
    tl_sim_stats(sim, 0, &before);
    tl_sim_run(sim, 13000000);
    tl_sim_stats(sim, 0, &after);
    assert_in_range(before.service_ns, 39900000, 40100000);
    assert_in_range(after.service_ns - before.service_ns, 6000000, 12000000);
    tl_sim_destroy(sim);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(priority_high_class_waits_for_a_stop_only),
        cmocka_unit_test(priority_shorter_of_equals_goes_first_and_longer_ones_end),
        cmocka_unit_test(priority_shorter_of_equals_waits_for_no_more_than_is_there),
        cmocka_unit_test(priority_not_stoppable_runs_out_and_low_is_not_forgotten),
        cmocka_unit_test(fair_newcomer_is_served_at_once),
        cmocka_unit_test(fair_change_of_weight_is_in_force_at_once),
        cmocka_unit_test(fair_synchronous_client_keeps_its_place),
        cmocka_unit_test(fair_idle_tenant_has_no_credit),
        cmocka_unit_test(fair_time_alone_is_no_debt),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
