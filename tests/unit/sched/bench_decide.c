/*
 * What deciding costs, in CPU time of this thread: 64 tenants in endless loops of kernels or
 * copies, one tenant alone. Prints; fails on gross regressions only, because other machines are
 * slower, or busy.
 *
 *     build/dev/tests/unit/sched/bench_decide
 */
#include "sched/policy.h"
#include "tests/lib/tl_cmocka.h"
#include "tests/lib/tl_sched_check.h"
#include <stdlib.h>
#include <time.h>

#define SMS      132u
#define CALLS    200000u
#define GROSS_NS 20000.0 /* the aim is 1000 with 64 tenants */
#define FLIGHT   4096u
#define NONE     WEIR_SCHED_FILL_NONE
#define ALL      WEIR_SCHED_FILL_ALL
#define KERNEL   WEIR_SCHED_KERNEL
#define H2D      WEIR_SCHED_H2D

struct flight {
    weir_sched_id item[FLIGHT]; /* a ring: started and not finished, in order */
    uint32_t queue[FLIGHT];
    uint32_t first, last;
    uint64_t timer_ns;
};

static void on_start(void *user, weir_sched_id item, void *item_user,
                     const struct weir_sched_place *place, enum weir_sched_level level)
{
    struct flight *flight = user;

    (void)level;
    (void)place;
    flight->queue[flight->last % FLIGHT] = (uint32_t)(uintptr_t)item_user;
    flight->item[flight->last++ % FLIGHT] = item;
}

static void on_timer(void *user, uint64_t at_ns)
{
    ((struct flight *)user)->timer_ns = at_ns;
}

static double cpu_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

struct result {
    double call_ns;
    double asked; /* times that the policy was asked, per call */
};

static void bring(struct weir_sched *sched, uint64_t now_ns, const weir_sched_id *queues,
                  uint32_t index, enum weir_sched_class class, uint64_t duration_ns)
{
    struct weir_sched_item_params params = {.class = class,
                                            .flags = WEIR_SCHED_MOVABLE,
                                            .key = index + 1,
                                            .blocks = 10000,
                                            .blocks_per_sm = 8,
                                            .predicted_ns = duration_ns,
                                            .user = (void *)(uintptr_t)index};
    weir_sched_id item;

    assert_int_equal(weir_sched_arrive(sched, now_ns, queues[index], &params, &item), WEIR_OK);
}

/* The item that has been longest on the device. */
static bool finish_first(struct weir_sched *sched, struct flight *flight, uint64_t now_ns,
                         uint32_t *ret_queue)
{
    weir_sched_id item;

    if (flight->first == flight->last) {
        return false;
    }
    *ret_queue = flight->queue[flight->first % FLIGHT];
    item = flight->item[flight->first++ % FLIGHT];
    return weir_sched_finished(sched, now_ns, item, 0) == WEIR_OK;
}

static struct result measure(const char *policy, enum weir_sched_fill fill, uint32_t tenants,
                             enum weir_sched_class class, uint64_t duration_ns, uint32_t depth)
{
    struct flight *flight = calloc(1, sizeof(*flight));
    struct weir_sched_env env = {.user = flight, .start = on_start, .timer = on_timer};
    struct weir_sched_config config;
    struct weir_sched *sched;
    struct weir_sched_counts counts;
    weir_sched_id *queues = calloc(tenants, sizeof(*queues));
    uint64_t now_ns = 1000;
    uint64_t calls = 0;
    uint64_t done_ns = now_ns + duration_ns;
    double begun_ns;
    double spent_ns;

    assert_non_null(flight);
    assert_non_null(queues);
    weir_sched_config_init(&config, SMS);
    config.fill = fill;
    config.above = config.fill == ALL;
    assert_int_equal(weir_sched_create(&config, &env, &sched), WEIR_OK);
    assert_int_equal(weir_sched_policy_set(sched, 0, weir_policy_find(policy)), WEIR_OK);
    for (uint32_t i = 0; i < tenants; i++) {
        struct weir_sched_tenant_params params = {
            .weight = 1 + i % 10, .sm_limit = 100, .priority = WEIR_PRIORITY_NORMAL};
        weir_sched_id tenant;

        assert_int_equal(weir_sched_tenant_add(sched, 0, &params, &tenant), WEIR_OK);
        assert_int_equal(weir_sched_queue_add(sched, tenant, 100, 0, &queues[i]), WEIR_OK);
        for (uint32_t k = 0; k < depth; k++) {
            bring(sched, now_ns, queues, i, class, duration_ns);
        }
    }
    begun_ns = cpu_ns();
    while (calls < CALLS) {
        uint32_t queue;

        if (flight->timer_ns < done_ns) {
            now_ns = flight->timer_ns > now_ns ? flight->timer_ns : now_ns;
            flight->timer_ns = UINT64_MAX;
            weir_sched_tick(sched, now_ns);
            calls++;
            continue;
        }
        now_ns = done_ns;
        done_ns += duration_ns;
        if (finish_first(sched, flight, now_ns, &queue)) {
            bring(sched, now_ns, queues, queue, class, duration_ns);
            calls += 2;
        }
    }
    spent_ns = cpu_ns() - begun_ns;
    weir_sched_count(sched, &counts);
    assert_null(tl_sched_check(sched));
    assert_true(counts.finishes > 1000);
    weir_sched_destroy(sched);
    free(queues);
    free(flight);
    return (struct result){.call_ns = spent_ns / (double)calls,
                           .asked = (double)counts.decisions / (double)calls};
}

static void deciding_is_quick(void **state)
{
    static const struct {
        const char *policy;
        enum weir_sched_fill fill;
        uint32_t tenants;
        enum weir_sched_class class;
        uint64_t duration_ns;
        uint32_t depth; /* of each queue */
    } cases[] = {
        {"fair", NONE, 1, KERNEL, 20000, 2},    {"fair", NONE, 1, KERNEL, 2000, 2000},
        {"fair", NONE, 2, KERNEL, 20000, 2},    {"fair", NONE, 2, KERNEL, 2000, 2000},
        {"fair", NONE, 64, KERNEL, 20000, 2},   {"fair", NONE, 64, KERNEL, 20000000, 2},
        {"fair", ALL, 2, KERNEL, 20000, 2},     {"fair", ALL, 64, KERNEL, 20000, 2},
        {"fair", ALL, 64, KERNEL, 400000, 2},   {"priority", NONE, 64, KERNEL, 20000, 2},
        {"fair", NONE, 1000, KERNEL, 20000, 2}, {"fair", ALL, 1000, KERNEL, 20000, 2},
        {"corun", NONE, 64, KERNEL, 400000, 2}, {"fair", NONE, 2, H2D, 80000, 2},
        {"fair", NONE, 64, H2D, 80000, 2},      {"fair", NONE, 1000, H2D, 80000, 2},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct result result = measure(cases[i].policy, cases[i].fill, cases[i].tenants,
                                       cases[i].class, cases[i].duration_ns, cases[i].depth);

        print_message("%-10s fill %-4s %4u tenants, %s of %5llu us, %4u each: %.0f ns a call, "
                      "%.2f decisions\n",
                      cases[i].policy, weir_sched_fill_words[cases[i].fill], cases[i].tenants,
                      cases[i].class == KERNEL ? "kernels" : "copies",
                      (unsigned long long)cases[i].duration_ns / 1000, cases[i].depth,
                      result.call_ns, result.asked);
        assert_true(result.call_ns < (cases[i].tenants > 64 ? 10 : 1) * GROSS_NS);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(deciding_is_quick)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
