/* corun on the model: what two programs of closed code get done, and in what shares. */
#include "sched/sim/metrics.h"
#include "tests/lib/tl_cmocka.h"
#include "tests/lib/tl_recorded.h"

#include <math.h>

#define RUN_NS UINT64_C(6000000000)

#define COMPUTES "kernel=3ms blocks=4224 per_sm=8 depth=4 form=closed"
#define WAITS    "kernel=3ms need=0.4 memory=1 blocks=4224 per_sm=8 depth=4 form=closed"

struct speeds {
    double of[3], sum; /* relative to alone */
};

static struct speeds run(const char *spec, const char *policy, uint32_t part_step)
{
    struct tl_recorded r;
    struct weir_sim_result result;
    struct weir_sim_metrics metrics;
    struct speeds speeds = {.sum = 0};
    char error[WEIR_SIM_ERROR_BYTES];

    tl_recorded_make(&r, spec, policy, RUN_NS);
    r.params.config.part_step = part_step;
    assert_int_equal(weir_sim_run(&r.load, &r.params, &result, error), WEIR_OK);
    assert_int_equal(weir_sim_measure(&r.load, &r.params, &result, &metrics, error), WEIR_OK);
    for (uint32_t i = 0; i < metrics.n_tenants && i < 3; i++) {
        speeds.of[i] = 1 / metrics.tenants[i].slowdown;
        speeds.sum += speeds.of[i];
    }
    print_message("%s: %.3f %.3f %.3f\n", policy, speeds.of[0], speeds.of[1], speeds.of[2]);
    weir_sim_metrics_finish(&metrics);
    weir_sim_result_finish(&result);
    weir_sim_load_finish(&r.load);
    return speeds;
}

/* One program needs all SMs, the other has all of the memory's bandwidth with half of them. */
static void parts_give_more_than_turns(void **unused)
{
    (void)unused;
    const char *spec = COMPUTES ";" WAITS;
    struct speeds turns = run(spec, "fair", 16), parts = run(spec, "fair,corun", 16);

    assert_true(turns.sum < 1.05);
    assert_true(parts.sum > 1.45);
    assert_true(parts.of[0] > 0.48 && parts.of[1] > 0.48);
}

/* Work that cannot be put side by side is not, and trying costs little. */
static void what_gains_nothing_takes_turns(void **unused)
{
    (void)unused;
    struct speeds speeds = run(COMPUTES ";" COMPUTES, "fair,corun", 16);

    assert_true(speeds.sum > 0.98);
    assert_true(speeds.of[0] > 0.48 && speeds.of[1] > 0.48);
}

static void unequal_weights_are_kept_by_space(void **unused)
{
    (void)unused;
    const char *spec = "weight=3 need=0.5 " COMPUTES ";" WAITS;
    struct speeds turns = run(spec, "fair", 16), parts = run(spec, "fair,corun", 16);

    assert_true(turns.sum < 1.05);
    assert_true(parts.sum > 1.25);
    /* The heavier one has all that it could use, and the lighter one the rest. */
    assert_true(parts.of[0] / parts.of[1] > 2.6 && parts.of[0] / parts.of[1] < 3.25);
}

/* A third program: all take turns as before. */
static void three_take_turns(void **unused)
{
    (void)unused;
    struct speeds speeds = run(COMPUTES ";" WAITS ";" WAITS, "fair,corun", 16);

    for (uint32_t i = 0; i < 3; i++) {
        assert_true(speeds.of[i] > 0.32);
    }
}

/* A device without parts: the hardware places the blocks of both. In this model that is no gain. */
static void without_parts_there_are_turns(void **unused)
{
    (void)unused;
    struct speeds speeds = run(COMPUTES ";" WAITS, "fair,corun", 0);

    assert_true(speeds.of[0] > 0.48 && speeds.of[1] > 0.48);
}

/* Two programs that run for a while (first and third span) what goes well together, and in between
 * (second span) what does not. The generator knows no such programs, so their spans are made as six
 * tenants' work and put together. */
#define SPAN_NS UINT64_C(2000000000)
#define SPANS_SPEC                                                                                 \
    COMPUTES " items=300;" WAITS " items=300;"                                                     \
             "start=2s items=300 kernel=2ms blocks=4224 per_sm=8 depth=4 form=closed;"             \
             "start=2s items=300 kernel=2ms blocks=4224 per_sm=8 depth=4 form=closed;"             \
             "start=4s items=300 " COMPUTES "; start=4s items=300 " WAITS

/* How long each span's work took. */
static void run_spans(double *ret_s)
{
    struct tl_recorded r;
    struct weir_sim_result result;
    char error[WEIR_SIM_ERROR_BYTES];
    uint64_t key[2] = {0};

    tl_recorded_make(&r, SPANS_SPEC, "fair,corun", 3 * SPAN_NS);
    r.params.config.part_step = 16;
    r.params.learns = true;
    for (uint32_t i = 0; i < r.load.n_items; i++) {
        struct weir_sim_item *item = &r.load.items[i];

        item->tenant = item->queue % 2;
        if (item->queue < 2) {
            key[item->queue] = item->params.key;
        } else if (item->queue >= 4) {
            item->params.key = key[item->queue - 4];
        }
    }
    for (uint32_t i = 0; i < r.load.n_queues; i++) {
        r.load.queues[i].tenant = i % 2;
    }
    assert_int_equal(weir_sim_run(&r.load, &r.params, &result, error), WEIR_OK);
    assert_false(result.was_cut);
    for (uint32_t i = 0; i < r.load.n_items; i++) {
        uint32_t span = r.load.items[i].queue / 2;

        ret_s[span] = fmax(ret_s[span], (double)(result.finished_ns[i] - span * SPAN_NS) / 1e9);
    }
    weir_sim_result_finish(&result);
    weir_sim_load_finish(&r.load);
}

/* 0.9 s of work for each take 1.8 s in turns. In the best division one is done after 0.92 s, and
 * the other, which has 0.61 of its speed until then, after 1.26 s. */
static void what_was_learned_of_kernels_is_found_again(void **unused)
{
    (void)unused;
    double s[3] = {0};

    run_spans(s);
    print_message("spans: %.3f %.3f %.3f s\n", s[0], s[1], s[2]);
    assert_true(s[0] < 1.37);
    assert_true(s[1] < 1.23);
    assert_true(s[2] < 1.3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_give_more_than_turns),
        cmocka_unit_test(what_gains_nothing_takes_turns),
        cmocka_unit_test(unequal_weights_are_kept_by_space),
        cmocka_unit_test(three_take_turns),
        cmocka_unit_test(without_parts_there_are_turns),
        cmocka_unit_test(what_was_learned_of_kernels_is_found_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
