/*
 * What the core guarantees whatever the policies say: nobody starves, and with `fair` shares hold,
 * whoever is put beside whom. Every row of policies.def, and policies that were made to be bad.
 */
#include "tests/lib/tl_cmocka.h"
#include "tests/lib/tl_sim.h"
#include <string.h>

#define SMS       132u
#define SECOND_NS UINT64_C(1000000000)
#define TENANTS   3u

/* ---- loads, at work all the time ---- */

struct kernel {
    uint32_t us;
    double lost_beside;  /* of tl_sim_load */
    uint32_t enough_sms; /* likewise */
    uint32_t domain;
    bool fixed;   /* it cannot be stopped or moved */
    bool unknown; /* nobody knows what it takes */
};

static const struct company {
    const char *what;
    uint32_t weight[TENANTS]; /* 0: there is no such tenant */
    struct kernel kernel[TENANTS];
} companies[] = {
    {"one stands still beside the other", {1, 1}, {{.us = 10000, .lost_beside = 1}, {.us = 5000}}},
    {"so does one of three times the weight",
     {3, 1},
     {{.us = 10000, .lost_beside = 1}, {.us = 5000}}},
    {"so does one of a third of the weight",
     {1, 3},
     {{.us = 4000, .lost_beside = 1}, {.us = 5000}}},
    {"one is a third slower", {1, 1}, {{.us = 10000, .lost_beside = 0.33}, {.us = 5000}}},
    {"both are slower",
     {1, 1},
     {{.us = 2000, .lost_beside = 0.8}, {.us = 2000, .lost_beside = 0.2}}},
    {"both compute", {9, 1}, {{.us = 3000}, {.us = 3000}}},
    {"one has enough with a quarter", {1, 1}, {{.us = 5000, .enough_sms = SMS / 4}, {.us = 5000}}},
    {"the same, and a third tenant",
     {1, 2, 1},
     {{.us = 5000, .enough_sms = SMS / 4}, {.us = 5000}, {.us = 3000}}},
    {"one of three stands still",
     {1, 1, 1},
     {{.us = 6000, .lost_beside = 1}, {.us = 5000}, {.us = 800}}},
    {"one cannot be moved", {1, 1}, {{.us = 4000, .fixed = true}, {.us = 3000}}},
    {"of one nothing is known", {1, 1}, {{.us = 4000, .unknown = true}, {.us = 3000}}},
    {"each is in a domain of its own", {1, 1}, {{.us = 4000}, {.us = 3000, .domain = 1}}},
};
#define COMPANIES (sizeof(companies) / sizeof(companies[0]))

static struct tl_sim_load load_of(const struct company *company, uint32_t tenant)
{
    const struct kernel *kernel = &company->kernel[tenant];
    uint32_t flags = kernel->fixed ? 0 : WEIR_SCHED_STOPPABLE | WEIR_SCHED_MOVABLE;

    return (struct tl_sim_load){.duration_ns = kernel->us * 1000u,
                                .flags = flags,
                                .key = 1 + tenant,
                                .blocks = 10000,
                                .blocks_per_sm = 8,
                                .lost_beside = kernel->lost_beside,
                                .enough_sms = kernel->enough_sms,
                                .domain = kernel->domain,
                                .predicted = !kernel->unknown,
                                .think_ns = 2000};
}

static uint32_t count_of(const struct company *company)
{
    uint32_t count = 0;

    while (count < TENANTS && company->weight[count] != 0) {
        count++;
    }
    return count;
}

/* ---- policies that are wrong ---- */

static void two_of(struct weir_policy_group *group, struct weir_sched_place a,
                   struct weir_sched_place b)
{
    group->count = 2;
    group->member[0].place = a;
    group->member[1].ready = 1;
    group->member[1].place = b;
}

static void next_to_nothing(struct weir_policy *self, const struct weir_policy_together_view *view,
                            struct weir_policy_group *group)
{
    (void)self;
    if (view->ready_count > 1) {
        two_of(group, (struct weir_sched_place){.sm_count = 1},
               (struct weir_sched_place){.sm_first = 1, .sm_count = 1});
    }
}

static void all_for_the_first(struct weir_policy *self,
                              const struct weir_policy_together_view *view,
                              struct weir_policy_group *group)
{
    bool leads = view->ready_count > 1 && view->ready[0]->id < view->ready[1]->id;
    struct weir_sched_place most = {.sm_count = SMS - 1};
    struct weir_sched_place least = {.sm_first = SMS - 1, .sm_count = 1};

    (void)self;
    if (view->ready_count > 1) {
        two_of(group, leads ? most : least, leads ? least : most);
    }
}

static void on_trial_for_ever(struct weir_policy *self,
                              const struct weir_policy_together_view *view,
                              struct weir_policy_group *group)
{
    (void)self;
    if (view->ready_count > 1) {
        two_of(group, (struct weir_sched_place){.block_limit = 1},
               (struct weir_sched_place){.block_limit = 1});
        group->sample = true;
        group->valid_ns = SECOND_NS;
    }
}

/* One on top of the other, and whoever came last never with anybody. */
static void without_the_last(struct weir_policy *self, const struct weir_policy_together_view *view,
                             struct weir_policy_group *group)
{
    uint32_t last = 0;

    (void)self;
    for (uint32_t i = 1; i < view->ready_count; i++) {
        last = view->ready[i]->id > view->ready[last]->id ? i : last;
    }
    for (uint32_t i = 1; i < view->ready_count && last != 0 && group->count == 1; i++) {
        if (i != last || view->ready_count == 2) {
            two_of(group, (struct weir_sched_place){.sm_count = SMS}, (struct weir_sched_place){0});
            group->member[1].ready = i;
            group->valid_ns = SECOND_NS;
        }
    }
}

static const struct weir_policy_ops bad_together[] = {
    {.name = "next_to_nothing", .kind = WEIR_POLICY_TOGETHER, .together = next_to_nothing},
    {.name = "all_for_the_first", .kind = WEIR_POLICY_TOGETHER, .together = all_for_the_first},
    {.name = "on_trial_for_ever", .kind = WEIR_POLICY_TOGETHER, .together = on_trial_for_ever},
    {.name = "without_the_last", .kind = WEIR_POLICY_TOGETHER, .together = without_the_last},
};
#define BAD_TOGETHER (sizeof(bad_together) / sizeof(bad_together[0]))

/* Whoever came first, for as long as it has work. */
static void always_the_first(struct weir_policy *self, const struct weir_policy_next_view *view,
                             struct weir_policy_choice *choice)
{
    (void)self;
    for (uint32_t i = 0; i < view->ready_count; i++) {
        choice->ready = view->ready[i]->id < view->ready[choice->ready]->id ? i : choice->ready;
    }
    choice->slice_ns = UINT64_MAX;
    choice->linger_ns = UINT64_MAX;
}

static void with_no_slice(struct weir_policy *self, const struct weir_policy_next_view *view,
                          struct weir_policy_choice *choice)
{
    always_the_first(self, view, choice);
    choice->slice_ns = 0;
}

static const struct weir_policy_ops bad_next[] = {
    {.name = "always_the_first", .kind = WEIR_POLICY_NEXT, .next = always_the_first},
    {.name = "with_no_slice", .kind = WEIR_POLICY_NEXT, .next = with_no_slice},
};
#define BAD_NEXT (sizeof(bad_next) / sizeof(bad_next[0]))

/* ---- runs ---- */

static struct tl_sim *new_sim(void)
{
    struct tl_sim_params params;

    tl_sim_params_init(&params, SMS);
    params.check = true;
    params.config.starve_ns = SECOND_NS;
    return tl_sim_create(&params);
}

static struct tl_sim *make(const struct company *company, const struct weir_policy_ops *next,
                           const struct weir_policy_ops *together)
{
    struct tl_sim *sim = new_sim();

    tl_sim_policy(sim, WEIR_POLICY_NEXT, next);
    tl_sim_policy(sim, WEIR_POLICY_TOGETHER, together);
    for (uint32_t i = 0; i < count_of(company); i++) {
        struct tl_sim_load load = load_of(company, i);

        tl_sim_tenant(sim, company->weight[i], WEIR_PRIORITY_NORMAL, &load);
    }
    return sim;
}

static double part_of(const struct company *company, uint32_t tenant)
{
    double weights = 0;

    for (uint32_t i = 0; i < count_of(company); i++) {
        weights += company->weight[i];
    }
    return company->weight[tenant] / weights;
}

/* What a tenant got done since then, as time alone on the device. */
static double done_ns(const struct tl_sim *sim, uint32_t tenant, double before_ns)
{
    struct tl_sim_stats stats;

    tl_sim_stats(sim, tenant, &stats);
    return stats.service_ns - before_ns;
}

/*
 * As docs/design/scheduling.md has it: in turns everybody has its weight's part; groups may cost a
 * sixteenth of the time, and 40 ms at a time that are made up for later. What cannot be stopped is
 * paid back as late as it ends.
 */
#define LOSS     (1.0 / 16)
#define AT_ONCE  0.04e9
#define TURNS_NS 0.02e9 /* a slice that is under way, kernels, and what stops and starts cost */

static void check_shares(const struct company *company, const struct weir_policy_ops *together)
{
    struct tl_sim *sim = make(company, weir_policy_find("fair"), together);
    double before_ns[TENANTS] = {0};

    for (uint32_t second = 0; second < 4; second++) {
        tl_sim_run(sim, SECOND_NS);
        for (uint32_t i = 0; i < count_of(company); i++) {
            double part = part_of(company, i);
            double least_ns = part * (1 - LOSS) * SECOND_NS - AT_ONCE - TURNS_NS;
            double ns = done_ns(sim, i, before_ns[i]);

            before_ns[i] += ns;
            if (ns < least_ns) {
                fail_msg("%s, %s: in second %u tenant %u gets %.3f done, of %.3f",
                         together ? together->name : "fair", company->what, second, i,
                         ns / SECOND_NS, part);
            }
        }
    }
    tl_sim_destroy(sim);
}

static void with_fair_shares_hold_whoever_is_put_beside_whom(void **state)
{
    (void)state;
    for (size_t c = 0; c < COMPANIES; c++) {
        check_shares(&companies[c], NULL);
        for (uint32_t row = 0; weir_policy_at(row); row++) {
            if (weir_policy_at(row)->kind == WEIR_POLICY_TOGETHER) {
                check_shares(&companies[c], weir_policy_at(row));
            }
        }
        for (size_t i = 0; i < BAD_TOGETHER; i++) {
            check_shares(&companies[c], &bad_together[i]);
        }
    }
}

/* In five seconds. The watchdog takes a tenth of the time at most, for all; it helps who has waited
 * for a second until that one has had its weight's part of a second. */
#define LEAST_NS 0.05e9

static void check_progress(const struct company *company, const struct weir_policy_ops *next,
                           const struct weir_policy_ops *together)
{
    struct tl_sim *sim = make(company, next, together);

    tl_sim_run(sim, 5 * SECOND_NS);
    for (uint32_t i = 0; i < count_of(company); i++) {
        double ns = done_ns(sim, i, 0);

        if (ns < LEAST_NS) {
            fail_msg("%s, %s, %s: tenant %u gets %.3f s done in 5", next->name,
                     together ? together->name : "-", company->what, i, ns / SECOND_NS);
        }
    }
    tl_sim_destroy(sim);
}

static void nobody_starves_under(const struct weir_policy_ops *next)
{
    for (size_t c = 0; c < COMPANIES; c++) {
        check_progress(&companies[c], next, NULL);
        for (uint32_t row = 0; weir_policy_at(row); row++) {
            if (weir_policy_at(row)->kind == WEIR_POLICY_TOGETHER) {
                check_progress(&companies[c], next, weir_policy_at(row));
            }
        }
    }
}

static void nobody_starves_whatever_policies_say(void **state)
{
    (void)state;
    for (uint32_t row = 0; weir_policy_at(row); row++) {
        if (weir_policy_at(row)->kind == WEIR_POLICY_NEXT) {
            nobody_starves_under(weir_policy_at(row));
        }
    }
    for (size_t i = 0; i < BAD_NEXT; i++) {
        nobody_starves_under(&bad_next[i]);
    }
}

/* ---- copies ---- */

/* Of two that copy all the time, with weights 3:1. */
static void copies_are_shared(void **state)
{
    static const uint32_t weight[] = {3, 1};
    const struct tl_sim_load load = {.duration_ns = 1000000,
                                     .class = WEIR_SCHED_H2D,
                                     .bytes = 40000000,
                                     .queues = 4,
                                     .predicted = true,
                                     .think_ns = 2000};
    struct tl_sim *sim = new_sim();

    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        tl_sim_tenant(sim, weight[i], WEIR_PRIORITY_NORMAL, &load);
    }
    tl_sim_run(sim, 4 * SECOND_NS);
    for (uint32_t i = 0; i < 2; i++) {
        struct tl_sim_stats stats;

        tl_sim_stats(sim, i, &stats);
        if ((double)stats.copied_ns < 0.96 * weight[i] * SECOND_NS) {
            fail_msg("tenant %u copies for %.3f s of 4", i, (double)stats.copied_ns / SECOND_NS);
        }
    }
    tl_sim_destroy(sim);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(with_fair_shares_hold_whoever_is_put_beside_whom),
        cmocka_unit_test(nobody_starves_whatever_policies_say),
        cmocka_unit_test(copies_are_shared),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
