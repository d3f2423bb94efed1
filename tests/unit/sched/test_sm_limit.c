/*
 * SM limits: nobody is served more of the SMs than its limit over any 100 ms, but for what was
 * under way, whatever form its kernels have, alone or not; and not much less either, when it wants
 * more.
 */
#include "tests/lib/tl_cmocka.h"
#include "tests/lib/tl_sim.h"

#define SMS      132u
#define MOVABLE  (WEIR_SCHED_STOPPABLE | WEIR_SCHED_MOVABLE)
#define RUN_NS   2000000000u
#define FIRST    10u /* samples of 10 ms: then it has settled */
#define SAMPLES  199u
#define WINDOW   10u
#define SAMPLE_S 0.01

enum how {
    GIVEN,  /* the next kernel is there as soon as the last was given to the device */
    WAITS,  /* it comes when the last one is done */
    UNKNOWN /* as GIVEN, and kernels are taken to be much shorter than they are */
};

struct limit_case {
    const char *name;
    uint32_t tenant_pct, queue_pct; /* 0: none */
    uint32_t queues;
    uint32_t flags;
    uint64_t duration_us;
    uint32_t blocks; /* 0: many */
    enum how how;
    double wanted; /* of the device */
    double beside; /* what an endless unlimited tenant beside it gets; 0: there is none */
};

/* What a kernel of `duration` needs beyond its limit when it cannot be stopped is paid back. */
static const struct limit_case cases[] = {
    {"50 %, 20 us", 50, 0, 1, 0, 20, 0, GIVEN, 0.5, 0},
    {"10 %, 20 us", 10, 0, 1, 0, 20, 0, GIVEN, 0.1, 0},
    {"30 %, 1 ms, waits for each", 30, 0, 1, 0, 1000, 0, WAITS, 0.3, 0},
    {"25 %, 20 ms", 25, 0, 1, 0, 20000, 0, GIVEN, 0.25, 0},
    {"30 %, 1 ms, unknown", 30, 0, 1, 0, 1000, 0, UNKNOWN, 0.3, 0},
    {"50 %, movable, 1 ms", 50, 0, 1, MOVABLE, 1000, 0, GIVEN, 0.5, 0},
    {"10 %, movable, 50 ms", 10, 0, 1, MOVABLE, 50000, 0, GIVEN, 0.1, 0},
    {"40 %, stoppable, 50 ms", 40, 0, 1, WEIR_SCHED_STOPPABLE, 50000, 0, GIVEN, 0.4, 0},
    {"50 % together, three queues", 50, 0, 3, 0, 200, 0, GIVEN, 0.5, 0},
    {"50 % together, three queues, movable", 50, 0, 3, MOVABLE, 5000, 0, GIVEN, 0.5, 0},
    {"25 % each, two queues", 0, 25, 2, 0, 200, 0, GIVEN, 0.5, 0},
    {"60 % together, 20 % each, five queues", 60, 20, 5, 0, 200, 0, GIVEN, 0.6, 0},
    {"30 % together, 80 % each, movable", 30, 80, 2, MOVABLE, 5000, 0, GIVEN, 0.3, 0},
    {"50 %, kernels that fill 8 SMs", 50, 0, 1, 0, 1000, 64, GIVEN, 8.0 / SMS, 0},
    {"20 % beside one without", 20, 0, 1, 0, 200, 0, GIVEN, 0.2, 0.8},
    {"20 % beside one without, movable", 20, 0, 1, MOVABLE, 5000, 0, GIVEN, 0.2, 0.8},
    {"20 % of its queue beside one without, movable", 0, 20, 1, MOVABLE, 5000, 0, GIVEN, 0.2, 0.8},
    {"70 % beside one without: half is its share", 70, 0, 1, MOVABLE, 5000, 0, GIVEN, 0.5, 0.5},
};

static bool is_off(const struct limit_case *c, const char *what, double is, double wanted)
{
    bool off = is > wanted * 1.02 + 0.005 || is < wanted * 0.95 - 0.005;

    if (off) {
        print_error("%s: %s is %.4f of the device, not %.4f\n", c->name, what, is, wanted);
    }
    return off;
}

/* The most in 100 ms: a burst of 10 ms more, and what was under way. */
static bool exceeds(const struct limit_case *c, const struct tl_sim *sim)
{
    double limit = c->tenant_pct != 0 ? c->tenant_pct / 100.0 : 1;
    double queues = c->queue_pct != 0 ? c->queue_pct / 100.0 * c->queues : 1;
    double under_way = (c->flags & MOVABLE) != 0 ? 0 : (double)c->duration_us * c->queues / 1e6;
    double most = 0;

    limit = queues < limit ? queues : limit;
    under_way *= c->how == UNKNOWN ? 16 : 1;
    for (uint32_t i = FIRST; i + WINDOW < SAMPLES; i++) {
        double got = (tl_sim_service_at(sim, 0, i + WINDOW) - tl_sim_service_at(sim, 0, i)) / 1e9;

        most = got > most ? got : most;
    }
    if (most > limit * (WINDOW + 1) * SAMPLE_S * 1.02 + under_way) {
        print_error("%s: %.4f s in 100 ms\n", c->name, most);
        return true;
    }
    return false;
}

static void change(struct tl_sim *sim, uint32_t tenant, uint32_t pct)
{
    struct weir_sched_tenant_params params = {
        .weight = 1, .sm_limit = pct != 0 ? pct : 100, .priority = WEIR_PRIORITY_NORMAL};

    tl_sim_change(sim, tenant, &params);
}

static struct tl_sim *begin(const struct limit_case *c)
{
    struct tl_sim_load other = {.duration_ns = 2000000,
                                .flags = MOVABLE,
                                .key = 9,
                                .blocks = 100000,
                                .blocks_per_sm = 8,
                                .predicted = true};
    struct tl_sim_load load = {.duration_ns = c->duration_us * 1000,
                               .flags = c->flags,
                               .key = 1,
                               .blocks = c->blocks != 0 ? c->blocks : 100000,
                               .blocks_per_sm = 8,
                               .predicted = c->how != UNKNOWN,
                               .queues = c->queues,
                               .sm_limit = c->queue_pct,
                               .sync = c->how == WAITS,
                               .think_ns = 2000};
    struct tl_sim_params params;
    struct tl_sim *sim;

    tl_sim_params_init(&params, SMS);
    params.check = true;
    if (c->how == UNKNOWN) {
        params.config.guess_ns = 1000;
    }
    sim = tl_sim_create(&params);
    tl_sim_tenant(sim, 1, WEIR_PRIORITY_NORMAL, &load);
    change(sim, 0, c->tenant_pct);
    if (c->beside != 0) {
        tl_sim_tenant(sim, 1, WEIR_PRIORITY_NORMAL, &other);
    }
    return sim;
}

static double got(const struct tl_sim *sim, uint32_t tenant, uint32_t from, uint32_t to)
{
    return (tl_sim_service_at(sim, tenant, to) - tl_sim_service_at(sim, tenant, from)) / 1e9 /
           ((to - from) * SAMPLE_S);
}

static void limits_hold_for_every_kind_of_work(void **state)
{
    bool good = true;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct limit_case *c = &cases[i];
        struct tl_sim *sim = begin(c);

        tl_sim_run(sim, RUN_NS);
        good &= !is_off(c, "the limited one", got(sim, 0, FIRST, SAMPLES - 1), c->wanted);
        if (c->beside != 0) {
            good &= !is_off(c, "the other", got(sim, 1, FIRST, SAMPLES - 1), c->beside);
        }
        good &= !exceeds(c, sim);
        tl_sim_destroy(sim);
    }
    assert_true(good);
}

static void limits_come_and_go_while_work_is_under_way(void **state)
{
    const struct limit_case loads[] = {
        {.name = "originals", .queues = 2, .duration_us = 300, .flags = 0},
        {.name = "runs", .queues = 2, .duration_us = 3000, .flags = MOVABLE},
    };
    const uint32_t pct[] = {0, 30, 0, 10, 60, 0};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct tl_sim *sim = begin(&loads[i]);

        for (uint32_t k = 0; k < 6; k++) {
            change(sim, 0, pct[k]);
            tl_sim_run(sim, 300000000);
            assert_false(is_off(&loads[i], "after a change", got(sim, 0, 30 * k + 10, 30 * k + 28),
                                pct[k] != 0 ? pct[k] / 100.0 : 0.99));
        }
        tl_sim_destroy(sim);
    }
}

/* Limited tenants beside each other, and the last one without a limit if `unlimited`. */
struct crowd_case {
    const char *name;
    uint32_t count, pct;
    bool unlimited, waits; /* waits: for each kernel */
    double wanted;         /* of the device, of each limited one */
    double total;
    uint64_t resizes; /* at most: who need not make room stays where it is */
};

static const struct crowd_case crowds[] = {
    {"two halves", 2, 50, false, false, 0.5, 1, 10},
    {"four quarters", 4, 25, false, false, 0.25, 1, 10},
    {"four quarters that wait", 4, 25, false, true, 0.25, 1, 10},
    {"seven tenths", 7, 10, false, false, 0.1, 0.7, 10},
    {"eight quarters", 8, 25, false, false, 0.125, 1, UINT64_MAX},
    {"three fifths and one without", 4, 20, true, false, 0.2, 1, 10},
};

static bool crowd_is_off(const struct crowd_case *c)
{
    const struct limit_case *plain =
        &(struct limit_case){.name = c->name, .wanted = c->wanted, .queues = 1};
    struct weir_sched_counts counts;
    struct tl_sim_params params;
    struct tl_sim *sim;
    double total = 0;
    bool off = false;

    tl_sim_params_init(&params, SMS);
    params.check = true;
    sim = tl_sim_create(&params);
    for (uint32_t i = 0; i < c->count; i++) {
        const struct tl_sim_load load = {.duration_ns = 1000000,
                                         .flags = MOVABLE,
                                         .key = 1 + i,
                                         .blocks = 100000,
                                         .blocks_per_sm = 8,
                                         .predicted = true,
                                         .sync = c->waits,
                                         .think_ns = 2000};

        tl_sim_tenant(sim, 1, WEIR_PRIORITY_NORMAL, &load);
        change(sim, i, c->unlimited && i + 1 == c->count ? 0 : c->pct);
    }
    tl_sim_run(sim, RUN_NS);
    for (uint32_t i = 0; i < c->count; i++) {
        double part = got(sim, i, FIRST, SAMPLES - 1);

        total += part;
        off |=
            !(c->unlimited && i + 1 == c->count) && is_off(plain, "one of them", part, c->wanted);
    }
    off |= is_off(plain, "all of it", total, c->total);
    weir_sched_count(tl_sim_sched(sim), &counts);
    if (counts.resizes > c->resizes) {
        print_error("%s: %llu resizes\n", c->name, (unsigned long long)counts.resizes);
        off = true;
    }
    tl_sim_destroy(sim);
    return off;
}

/* `count` tenants, each with an endless load of kernels of 1 ms and a limit, 0: none. */
struct mixed {
    enum weir_priority priority;
    uint32_t weight, pct, flags;
    double least, most; /* of the device, as it is charged */
};

static bool are_off(const char *name, const struct mixed *rows, uint32_t count)
{
    struct tl_sim_params params;
    struct tl_sim *sim;
    bool off = false;

    tl_sim_params_init(&params, SMS);
    params.check = true;
    params.config.starve_ns = params.config.lease_ns = 10 * RUN_NS; /* the watchdog does not help */
    sim = tl_sim_create(&params);
    for (uint32_t i = 0; i < count; i++) {
        const struct tl_sim_load load = {.duration_ns = 1000000,
                                         .flags = rows[i].flags,
                                         .key = 1 + i,
                                         .blocks = 100000,
                                         .blocks_per_sm = 8,
                                         .predicted = true,
                                         .think_ns = 2000};
        struct weir_sched_tenant_params tenant = {.weight = rows[i].weight,
                                                  .sm_limit = rows[i].pct != 0 ? rows[i].pct : 100,
                                                  .priority = rows[i].priority};

        tl_sim_tenant(sim, rows[i].weight, rows[i].priority, &load);
        tl_sim_change(sim, i, &tenant);
    }
    tl_sim_run(sim, RUN_NS);
    for (uint32_t i = 0; i < count; i++) {
        double part = got(sim, i, FIRST, SAMPLES - 1);

        if (part < rows[i].least || part > rows[i].most) {
            print_error("%s: number %u has %.4f of the device\n", name, i, part);
            off = true;
        }
    }
    tl_sim_destroy(sim);
    return off;
}

/* What a limit leaves goes to those of the class first. */
static void who_is_lower_has_what_others_leave(void **state)
{
    static const struct mixed rows[] = {
        {WEIR_PRIORITY_NORMAL, 1, 10, MOVABLE, 0.09, 0.11},
        {WEIR_PRIORITY_NORMAL, 1, 0, MOVABLE, 0.85, 0.91},
        {WEIR_PRIORITY_LOW, 1, 0, MOVABLE, 0, 0.05},
    };

    (void)state;
    assert_false(are_off("a lower class", rows, 3));
}

static void limited_ones_run_beside_each_other(void **state)
{
    bool off = false;

    (void)state;
    for (size_t i = 0; i < sizeof crowds / sizeof crowds[0]; i++) {
        off |= crowd_is_off(&crowds[i]);
    }
    assert_false(off);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(limits_hold_for_every_kind_of_work),
        cmocka_unit_test(limits_come_and_go_while_work_is_under_way),
        cmocka_unit_test(limited_ones_run_beside_each_other),
        cmocka_unit_test(who_is_lower_has_what_others_leave),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
