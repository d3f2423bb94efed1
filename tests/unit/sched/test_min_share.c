/*
 * Guaranteed shares under `fair`: a tenant with a min_share gets that part of the device's time
 * while it has work, and the others divide the rest by weight.
 */
#include "tests/lib/tl_cmocka.h"
#include "tests/lib/tl_sim.h"

#define SMS      132u
#define TENANTS  6u
#define BEGIN_NS 500000000u /* shares count from then on .. */
#define LONG_NS  2000000000u
#define OFF_MAX  0.02
#define NORMAL   WEIR_PRIORITY_NORMAL
#define HIGH     WEIR_PRIORITY_HIGH

struct share_case {
    const char *name;
    struct {
        uint32_t weight, min_share;
        double part; /* what it gets */
        enum weir_priority priority;
        uint64_t kernel_us;
    } of[TENANTS]; /* a weight of 0: no more tenants */
};

static const struct share_case cases[] = {
    {"more than the weight gives",
     {{100, 50, 0.5, NORMAL, 1000}, {100, 0, 0.25, NORMAL, 1000}, {100, 0, 0.25, NORMAL, 1000}}},
    {"less than the weight gives", {{300, 50, 0.75, NORMAL, 1000}, {100, 0, 0.25, NORMAL, 1000}}},
    {"the rest by weight",
     {{1, 40, 0.4, NORMAL, 200}, {300, 0, 0.45, NORMAL, 3000}, {100, 0, 0.15, NORMAL, 500}}},
    {"what is left is not enough for another's min_share either",
     {{10, 60, 0.6, NORMAL, 1000}, {100, 30, 0.3, NORMAL, 1000}, {200, 0, 0.1, NORMAL, 1000}}},
    {"more than all", {{100, 90, 0.6, NORMAL, 1000}, {100, 60, 0.4, NORMAL, 1000}}},
    {"long kernels",
     {{1, 50, 0.5, NORMAL, 20000}, {10, 0, 0.25, NORMAL, 20000}, {10, 0, 0.25, NORMAL, 20000}}},
    {"five others",
     {{100, 20, 0.2, NORMAL, 500},
      {1000, 0, 0.16, NORMAL, 500},
      {1000, 0, 0.16, NORMAL, 500},
      {1000, 0, 0.16, NORMAL, 500},
      {1000, 0, 0.16, NORMAL, 500},
      {1000, 0, 0.16, NORMAL, 500}}},
    {"a higher class goes first", {{100, 50, 0, NORMAL, 1000}, {100, 0, 1, HIGH, 1000}}},
};

static void set(struct tl_sim *sim, uint32_t tenant, uint32_t weight, uint32_t min_share,
                enum weir_priority priority)
{
    struct weir_sched_tenant_params params = {
        .weight = weight, .min_share = min_share, .sm_limit = 100, .priority = priority};

    tl_sim_change(sim, tenant, &params);
}

static struct tl_sim_load endless(uint64_t kernel_us)
{
    return (struct tl_sim_load){.duration_ns = kernel_us * 1000,
                                .flags = WEIR_SCHED_STOPPABLE | WEIR_SCHED_MOVABLE,
                                .key = kernel_us,
                                .blocks = 100000,
                                .blocks_per_sm = 8,
                                .predicted = true,
                                .think_ns = 2000};
}

static double service_ns(const struct tl_sim *sim, uint32_t tenant)
{
    struct tl_sim_stats stats;

    tl_sim_stats(sim, tenant, &stats);
    return stats.service_ns;
}

/* Of the time from now on, of tenants from first to before n. */
static void parts(struct tl_sim *sim, uint32_t first, uint32_t n, double ret_part[TENANTS])
{
    double sum = 0;

    for (uint32_t i = first; i < n; i++) {
        ret_part[i] = service_ns(sim, i);
    }
    tl_sim_run(sim, LONG_NS);
    for (uint32_t i = first; i < n; i++) {
        ret_part[i] = service_ns(sim, i) - ret_part[i];
        sum += ret_part[i];
    }
    for (uint32_t i = first; i < n; i++) {
        ret_part[i] /= sum;
    }
}

static bool is_part(const char *name, uint32_t tenant, double got, double wanted)
{
    bool good = got > wanted - OFF_MAX && got < wanted + OFF_MAX;

    if (!good) {
        print_error("%s: tenant %u has %.3f instead of %.3f\n", name, tenant, got, wanted);
    }
    return good;
}

static bool run_case(const struct share_case *c)
{
    struct tl_sim_params params;
    struct tl_sim *sim;
    double part[TENANTS];
    uint32_t n = 0;
    bool good = true;

    tl_sim_params_init(&params, SMS);
    sim = tl_sim_create(&params);
    for (; n < TENANTS && c->of[n].weight != 0; n++) {
        struct tl_sim_load load = endless(c->of[n].kernel_us);

        tl_sim_tenant(sim, c->of[n].weight, c->of[n].priority, &load);
        set(sim, n, c->of[n].weight, c->of[n].min_share, c->of[n].priority);
    }
    tl_sim_run(sim, BEGIN_NS);
    parts(sim, 0, n, part);
    for (uint32_t i = 0; i < n; i++) {
        good &= is_part(c->name, i, part[i], c->of[i].part);
    }
    tl_sim_destroy(sim);
    return good;
}

static void a_min_share_is_kept(void **state)
{
    bool good = true;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        good &= run_case(&cases[i]);
    }
    assert_true(good);
}

/* Also by one that is set while there is work, and by who has work for a part of the time only. */
static void a_min_share_is_kept_from_when_it_counts(void **state)
{
    struct tl_sim_params params;
    struct tl_sim_load load = endless(1000), later = endless(1000);
    struct tl_sim *sim;
    double part[TENANTS];

    (void)state;
    tl_sim_params_init(&params, SMS);
    sim = tl_sim_create(&params);
    tl_sim_tenant(sim, 100, NORMAL, &load);
    tl_sim_tenant(sim, 100, NORMAL, &load);
    later.from_ns = 4 * (uint64_t)LONG_NS;
    tl_sim_tenant(sim, 100, NORMAL, &later);
    tl_sim_run(sim, BEGIN_NS);
    parts(sim, 0, 2, part);
    assert_true(is_part("none yet", 0, part[0], 0.5));
    set(sim, 0, 100, 70, NORMAL);
    parts(sim, 0, 2, part);
    assert_true(is_part("set", 0, part[0], 0.7));
    set(sim, 2, 100, 25, NORMAL); /* it has no work yet */
    parts(sim, 0, 2, part);
    assert_true(is_part("without work", 0, part[0], 0.7));
    tl_sim_run(sim, later.from_ns - tl_sim_now(sim) + BEGIN_NS);
    parts(sim, 0, 3, part);
    assert_true(is_part("comes", 0, part[0], 0.7));
    assert_true(is_part("comes", 1, part[1], 0.05));
    assert_true(is_part("comes", 2, part[2], 0.25));
    tl_sim_leave(sim, 0);
    tl_sim_run(sim, BEGIN_NS);
    parts(sim, 1, 3, part);
    assert_true(is_part("goes", 1, part[1], 0.5));
    set(sim, 2, 100, 0, NORMAL);
    parts(sim, 1, 3, part);
    assert_true(is_part("taken back", 1, part[1], 0.5));
    tl_sim_destroy(sim);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_min_share_is_kept),
        cmocka_unit_test(a_min_share_is_kept_from_when_it_counts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
