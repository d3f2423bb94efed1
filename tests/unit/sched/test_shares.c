/*
 * Shares under `fair`: in every window of one second after the first, what each tenant was served
 * is within 2 % of the device's time of what its weight entitles it to, and at least 97 % of the
 * time is served.
 */
#include "sched/predict.h"
#include "tests/lib/tl_cmocka.h"
#include "tests/lib/tl_sim.h"

#define SMS     132u
#define WINDOW  100u   /* samples of 10 ms */
#define OFF_MAX 0.0201 /* a kernel of 20 ms that cannot be stopped is 2 % of a second by itself */
#define TENANTS 5u

struct share_case {
    const char *name;
    uint32_t weight[TENANTS]; /* 0: no more tenants */
    uint64_t duration_us[TENANTS];
    uint32_t stoppable; /* bit per tenant */
    uint32_t tenths;    /* of a second */
    bool learned;       /* the scheduler is not told durations */
};

static const struct share_case cases[] = {
    {"2:1, 20 us", {2, 1}, {20, 20}, 3, 22, false},
    {"2:1, 20 us not stoppable", {2, 1}, {20, 20}, 0, 22, false},
    {"2:1, 20 us and 20 ms", {2, 1}, {20, 20000}, 3, 22, false},
    {"2:1, 20 ms not stoppable and 20 us", {2, 1}, {20000, 20}, 0, 22, false},
    {"2:1, 20 ms", {2, 1}, {20000, 20000}, 3, 30, false},
    {"2:1, 20 ms not stoppable", {2, 1}, {20000, 20000}, 0, 30, false},
    {"1:1:2, 1 ms", {1, 1, 2}, {1000, 1000, 1000}, 7, 30, false},
    {"1:1:2, mixed", {1, 1, 2}, {100, 20000, 3000}, 7, 25, false},
    {"1:1:2, mixed, one not stoppable", {1, 1, 2}, {100, 20000, 3000}, 5, 25, false},
    {"1:1:2, mixed, none stoppable", {1, 1, 2}, {100, 20000, 3000}, 0, 25, false},
    {"1:2:3:4:10, 20 us to 20 ms", {1, 2, 3, 4, 10}, {20, 200, 2000, 20000, 500}, 31, 25, false},
    {"1:2:3:4:10, heavy 20 ms", {1, 2, 3, 4, 10}, {2000, 500, 100, 1000, 20000}, 31, 25, false},
    {"1:2:3:4:10, none stoppable", {1, 2, 3, 4, 10}, {20, 200, 2000, 5000, 500}, 0, 25, false},
    {"1:2:3:4:10, all 20 ms", {1, 2, 3, 4, 10}, {20000, 20000, 20000, 20000, 20000}, 31, 40, false},
    {"1:2:3:4:10, all 20 ms, none stoppable",
     {1, 2, 3, 4, 10},
     {20000, 20000, 20000, 20000, 20000},
     0,
     40,
     false},
    {"2:1, 20 us and 20 ms, learned", {2, 1}, {20, 20000}, 1, 22, true},
    {"1:2:3:4:10, learned", {1, 2, 3, 4, 10}, {20, 200, 2000, 5000, 500}, 21, 25, true},
};

static bool check_windows(const struct tl_sim *sim, const struct share_case *c, uint32_t tenants)
{
    double weights = 0;
    double worst = 0;
    double least = 1;
    double lost = 0;

    for (uint32_t i = 0; i < tenants; i++) {
        struct tl_sim_stats stats;

        tl_sim_stats(sim, i, &stats);
        lost += stats.lost_ns / (c->tenths * 1e8);
        weights += c->weight[i];
    }
    for (uint32_t k = WINDOW - 1; k + WINDOW + 1 < c->tenths * 10; k++) {
        double sum = 0;

        for (uint32_t i = 0; i < tenants; i++) {
            double got =
                (tl_sim_service_at(sim, i, k + WINDOW) - tl_sim_service_at(sim, i, k)) / 1e9;
            double off = got - c->weight[i] / weights;

            sum += got;
            off = off < 0 ? -off : off;
            worst = off > worst ? off : worst;
        }
        least = sum < least ? sum : least;
    }
    least -= lost;
    print_message("%-45s off by %.4f, served %.4f\n", c->name, worst, least);
    if (worst > OFF_MAX || least < 0.97) {
        print_error("%s: a share is off by %.4f, the device is served %.4f of the time\n", c->name,
                    worst, least);
        return false;
    }
    return true;
}

static bool run_case(const struct share_case *c)
{
    struct tl_sim_params params;
    struct tl_sim *sim;
    uint32_t tenants = 0;
    bool good;

    tl_sim_params_init(&params, SMS);
    if (c->learned) {
        assert_int_equal(weir_predict_create(16, &params.config.predict), WEIR_OK);
    }
    sim = tl_sim_create(&params);
    for (; tenants < TENANTS && c->weight[tenants] != 0; tenants++) {
        struct tl_sim_load load = {
            .duration_ns = c->duration_us[tenants] * 1000,
            .flags =
                (c->stoppable >> tenants & 1) != 0 ? WEIR_SCHED_STOPPABLE | WEIR_SCHED_MOVABLE : 0,
            .key = tenants + 1,
            .blocks = 100000,
            .blocks_per_sm = 8,
            .predicted = !c->learned,
            .think_ns = 2000,
        };

        tl_sim_tenant(sim, c->weight[tenants], WEIR_PRIORITY_NORMAL, &load);
    }
    tl_sim_run(sim, c->tenths * 100000000ull);
    good = check_windows(sim, c, tenants);
    tl_sim_destroy(sim);
    weir_predict_destroy(params.config.predict);
    return good;
}

static void fair_endless_loops_get_their_shares(void **state)
{
    bool good = true;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        good &= run_case(&cases[i]);
    }
    assert_true(good);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fair_endless_loops_get_their_shares),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
