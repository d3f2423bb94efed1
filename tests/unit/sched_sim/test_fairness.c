/*
 * The bounds on unfairness that docs/design/scheduling.md states, over all intervals of runs: of
 * compute in turns and beside them, and of copies in both directions.
 */
#include "sched/sim/generate.h"
#include "tests/lib/tl_fairness.h"

#include "../../lib/tl_cmocka.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define RUN_NS 500000000u
#define BOUND  2.0 /* of docs/design/scheduling.md, in its units */
#define HOST   "h200,launch_ns=60000,notice_ns=60000,h2d_ns=60000,d2h_ns=60000"

static struct weir_sim_load load_in(int fd)
{
    struct weir_sched_trace_error error;
    struct weir_sim_load load;
    off_t bytes = lseek(fd, 0, SEEK_END);
    void *data = mmap(NULL, (size_t)bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    assert_ptr_not_equal(data, MAP_FAILED);
    assert_int_equal(weir_sim_load_read(data, (uint64_t)bytes, false, &load, &error), WEIR_OK);
    munmap(data, (size_t)bytes);
    close(fd);
    return load;
}

static struct weir_sim_load load_of(const char *spec, uint64_t seed, uint64_t duration_ns)
{
    struct weir_sim_generate_params params = {.seed = seed, .duration_ns = duration_ns};
    struct weir_diag diag;
    char error[256];
    int fd = memfd_create("load", MFD_CLOEXEC);
    int reader = dup(fd);
    assert_int_equal(weir_sim_gpu_find(HOST, &params.gpu, error), WEIR_OK);
    assert_int_equal(weir_sim_generate(spec, &params, fd, &diag), WEIR_OK);
    return load_in(reader);
}

static void on_record(void *user, const struct weir_sched_record *record)
{
    tl_fairness_record(user, record);
}

static void on_called(void *user, uint64_t now_ns, const struct weir_sched *sched,
                      const weir_sched_id *tenants)
{
    tl_fairness_called(user, now_ns, sched, tenants);
}

static struct tl_unfair worst_of(const struct weir_sim_load *load, struct weir_sim_params *params,
                                 enum weir_sched_resource resource, const double *longest_ns)
{
    struct tl_fairness *fairness;
    struct weir_sim_result result;
    struct tl_unfair worst;
    char error[WEIR_SIM_ERROR_BYTES];
    assert_int_equal(tl_fairness_create(load, resource, params->gpu.sms, longest_ns, &fairness),
                     WEIR_OK);
    params->watch =
        (struct weir_sim_watch){.user = fairness, .record = on_record, .called = on_called};
    if (weir_sim_run(load, params, &result, error) != WEIR_OK) {
        fail_msg("%s", error);
    }
    weir_sim_result_finish(&result);
    worst = tl_fairness_worst(fairness);
    tl_fairness_destroy(fairness);
    return worst;
}

static struct weir_sim_params params_of(const struct weir_sim_load *load, const char *policies,
                                        enum weir_sched_fill fill)
{
    struct weir_sim_gpu_params gpu;
    struct weir_sim_params params;
    char error[256];
    assert_int_equal(weir_sim_gpu_find(HOST, &gpu, error), WEIR_OK);
    weir_sim_params_init(&params, load, &gpu);
    assert_int_equal(weir_policy_set_parse(policies, &params.policies, NULL), WEIR_OK);
    params.config.fill = fill;
    params.config.small_sms = fill == WEIR_SCHED_FILL_ALL ? 3 * gpu.sms : 0;
    params.config.above = fill == WEIR_SCHED_FILL_ALL;
    params.until_ns = RUN_NS;
    return params;
}

static void print_worst(const char *what, size_t row, const struct tl_unfair *worst)
{
    print_message("%s, load %zu: %.2f of the bound's unit (%.2f ms), %u over %u, %.1f to %.1f ms\n",
                  what, row, worst->ratio, worst->ns / 1e6, worst->ahead, worst->behind,
                  (double)worst->from_ns / 1e6, (double)worst->to_ns / 1e6);
}

/* ------------------------------------------------------------------ copies */

/* As sched/copies.c and copy_share.c have them. */
#define SHORT_SLACK_NS 1e6
#define SLICE_NS       5e6

/* Of each tenant: its longest copy, or what it has of a longer one at a time; and its slack. */
static double *longest_copies(const struct weir_sim_load *load)
{
    double *longest = calloc(load->n_tenants + 1u, sizeof *longest);
    assert_non_null(longest);
    for (uint32_t i = 0; i < load->n_items; i++) {
        const struct weir_sched_item_params *p = &load->items[i].params;
        double piece_ns = (double)p->bytes / 55.3;
        double whole_ns = (double)(p->bytes + p->rest_bytes) / 55.3;
        double ns = fmin(whole_ns, SLICE_NS + piece_ns) + SHORT_SLACK_NS;
        uint32_t t = load->items[i].tenant;
        longest[t] = fmax(longest[t], ns);
    }
    return longest;
}

/* Of a direction, which takes the place of WAY. */
static const char *const copy_loads[] = {
    "name=a weight=10 WAY=64M kernels=0 depth=64; name=b WAY=64M kernels=0 depth=64",
    "name=a weight=10 WAY=64M kernels=0 depth=64 cut=4M; name=b WAY=64M kernels=0 depth=64 cut=4M",
    "name=a weight=3 WAY=4G kernels=0 cut=32M depth=3; name=b WAY=1M kernels=0 depth=1000; "
    "name=c weight=2 WAY=20M kernels=0 depth=90",
    "tenants=12 weight=1..10 WAY=100K..300M kernels=2 kernel=exp:1ms cut=32M",
    "tenants=20 weight=1..4 WAY=1M..8M kernels=0 depth=50; "
    "name=high priority=high WAY=8M kernels=0 arrive=poisson:500",
    "tenants=20 weight=1..10 WAY=100K..100M kernels=0 depth=20 cut=32M",
};

static struct weir_sim_load copies_of(size_t row, enum weir_sched_resource way)
{
    char spec[512];
    size_t length = 0;
    for (const char *at = copy_loads[row]; *at; at++) {
        bool is_way = strncmp(at, "WAY", 3) == 0;
        length += (size_t)snprintf(spec + length, sizeof spec - length, "%.*s", is_way ? 3 : 1,
                                   !is_way                       ? at
                                   : way == WEIR_SCHED_TO_DEVICE ? "h2d"
                                                                 : "d2h");
        at += is_way ? 2 : 0;
    }
    return load_of(spec, row + 1, RUN_NS);
}

static void copies_stay_within_their_bound(void **state)
{
    double most = 0;
    (void)state;
    for (size_t i = 0; i < sizeof copy_loads / sizeof copy_loads[0]; i++) {
        for (int way = WEIR_SCHED_TO_DEVICE; way <= WEIR_SCHED_FROM_DEVICE; way++) {
            struct weir_sim_load load = copies_of(i, (enum weir_sched_resource)way);
            struct weir_sim_params params = params_of(&load, "fair", WEIR_SCHED_FILL_ALL);
            double *longest = longest_copies(&load);
            struct tl_unfair worst =
                worst_of(&load, &params, (enum weir_sched_resource)way, longest);
            most = fmax(most, worst.ratio);
            print_worst("fair", i, &worst);
            free(longest);
            weir_sim_load_finish(&load);
        }
    }
    assert_true(most > 0.1 && most <= BOUND);
}

/* ------------------------------------------------------------------ compute */

#define SLICE_MIN_NS 2e5
#define SLICE_MAX_NS 8e6

/* Of each tenant: its slice (policy/fair.c), its longest kernel, and what may be in flight. */
static double *longest_turns(const struct weir_sim_load *load,
                             const struct weir_sched_config *config)
{
    double *longest = calloc(load->n_tenants + 1u, sizeof *longest);
    double weights = 0, cost_ns = 0, block_ns = 0;
    uint32_t stops = 0;
    assert_non_null(longest);
    for (uint32_t i = 0; i < load->n_items; i++) {
        const struct weir_sim_item *item = &load->items[i];
        double ns = (double)item->sm_ns / fmin((double)item->blocks / item->blocks_per_sm, 132);
        longest[item->tenant] = fmax(longest[item->tenant], ns);
        block_ns = fmax(block_ns, (double)item->sm_ns / item->blocks * item->blocks_per_sm);
        stops |= item->params.flags & WEIR_SCHED_STOPPABLE;
    }
    for (uint32_t t = 0; t < load->n_tenants; t++) {
        weights += load->tenants[t].params.weight;
        cost_ns += (double)config->launch_ns + (stops ? (double)config->stop_ns + block_ns : 0);
    }
    for (uint32_t t = 0; t < load->n_tenants; t++) {
        double slice_ns =
            cost_ns * 1e6 / config->overhead_ppm * load->tenants[t].params.weight / weights;
        longest[t] +=
            fmax(SLICE_MIN_NS, fmin(SLICE_MAX_NS, slice_ns)) + (double)config->inflight_ns;
    }
    return longest;
}

#define SERVICE "graph=19 kernel=510us memory=0.267 think=60us"

static const char *const compute_loads[] = {
    "name=a weight=10 kernel=1ms form=original depth=16; name=b kernel=1ms form=original depth=16",
    "name=a weight=3 kernel=20us..2ms keys=8 depth=16; name=b kernel=5ms depth=3; "
    "name=c weight=2 kernel=200us form=original depth=32",
    "tenants=40 " SERVICE,
    "tenants=40 weight=1..4 " SERVICE,
    "tenants=12 " SERVICE
    "; name=train kernel=exp:300us blocks=400..4000 per_sm=4 keys=60 depth=64 "
    "form=original",
    "tenants=40 weight=1..10 kernel=20us..1ms keys=9 depth=4 form=original",
};

static void compute_is_within_its_bound(enum weir_sched_fill fill)
{
    double most = 0;
    for (size_t i = 0; i < sizeof compute_loads / sizeof compute_loads[0]; i++) {
        struct weir_sim_load load = load_of(compute_loads[i], i + 1, RUN_NS);
        struct weir_sim_params params = params_of(&load, "fair", fill);
        double *longest = longest_turns(&load, &params.config);
        struct tl_unfair worst = worst_of(&load, &params, WEIR_SCHED_COMPUTE, longest);
        most = fmax(most, worst.ratio);
        print_worst(weir_sched_fill_words[fill], i, &worst);
        free(longest);
        weir_sim_load_finish(&load);
    }
    assert_true(most > 0.1 && most <= BOUND);
}

static void turns(void **state)
{
    (void)state;
    compute_is_within_its_bound(WEIR_SCHED_FILL_NONE);
}

static void turns_with_small_graphs_beside_them(void **state)
{
    (void)state;
    compute_is_within_its_bound(WEIR_SCHED_FILL_ALL);
}

/* ------------------------------------------------------------------ recorded runs */

static const char mixed[] =
    "tenants=6 weight=1..5 h2d=1M..64M kernels=3 kernel=50us..1ms keys=9 depth=4 form=original; "
    "tenants=6 weight=1..5 d2h=1M..64M kernels=3 kernel=50us..1ms keys=9 depth=4 form=original; "
    "tenants=6 weight=1..3 " SERVICE "; name=stopped kernel=4ms depth=2";

static void on_trace(void *user, const struct weir_sched_record *record)
{
    assert_true(weir_sched_trace_put(user, record));
}

/* What a host would have recorded of a run, as the load of another. */
static struct weir_sim_load recorded(void)
{
    struct weir_sim_load load = load_of(mixed, 7, RUN_NS / 2);
    struct weir_sim_params params = params_of(&load, "fair", WEIR_SCHED_FILL_ALL);
    struct weir_sim_result result;
    struct weir_sched_trace *trace;
    char error[WEIR_SIM_ERROR_BYTES];
    int fd = memfd_create("trace", MFD_CLOEXEC);
    int reader = dup(fd);
    params.config.sms = params.gpu.sms;
    assert_int_equal(weir_sched_trace_create(&params.config, 0, 0, 1u << 20, fd, &trace), WEIR_OK);
    params.watch = (struct weir_sim_watch){.user = trace, .record = on_trace};
    assert_int_equal(weir_sim_run(&load, &params, &result, error), WEIR_OK);
    assert_int_equal(weir_sched_trace_destroy(trace), WEIR_OK);
    weir_sim_result_finish(&result);
    weir_sim_load_finish(&load);
    return load_in(reader);
}

static void a_recorded_run_is_within_all_bounds(void **state)
{
    struct weir_sim_load load = recorded();
    double most = 0;
    (void)state;
    assert_false(load.header.flags & WEIR_SCHED_TRACE_GENERATED);
    assert_true(load.n_items > 2000);
    for (int resource = 0; resource < WEIR_SCHED_RESOURCE_COUNT; resource++) {
        struct weir_sim_params params = params_of(&load, "fair", WEIR_SCHED_FILL_ALL);
        double *longest = resource == WEIR_SCHED_COMPUTE ? longest_turns(&load, &params.config)
                                                         : longest_copies(&load);
        struct tl_unfair worst =
            worst_of(&load, &params, (enum weir_sched_resource)resource, longest);
        print_worst("recorded", (size_t)resource, &worst);
        most = fmax(most, worst.ratio);
        free(longest);
    }
    assert_true(most > 0.1 && most <= BOUND);
    weir_sim_load_finish(&load);
}

/*
 * Twenty services whose graphs could have all SMs three times over, and a training of large kernels
 * beside them. What the training holds must be its share: it must not be kept from the device by
 * graphs that pass beside its turn, nor have what it holds beside them for nothing.
 */
static void a_training_beside_many_small_graphs_gets_its_share(void **state)
{
    static const char *const trainings[] = {"kernel=exp:300us blocks=400..4000 per_sm=4 keys=60",
                                            "kernel=1ms"};
    (void)state;
    for (size_t i = 0; i < sizeof trainings / sizeof trainings[0]; i++) {
        struct weir_sim_result result;
        char spec[256], error[WEIR_SIM_ERROR_BYTES];
        (void)snprintf(spec, sizeof spec,
                       "tenants=20 " SERVICE "; name=train %s depth=64 form=original",
                       trainings[i]);
        struct weir_sim_load load = load_of(spec, 1, 2 * RUN_NS);
        struct weir_sim_params params = params_of(&load, "fair", WEIR_SCHED_FILL_ALL);
        params.until_ns = 2 * RUN_NS;
        assert_int_equal(weir_sim_run(&load, &params, &result, error), WEIR_OK);
        double share = result.tenants[20].sm_ns / ((double)result.end_ns * params.gpu.sms);
        print_message("training %zu: %.3f of the SMs' time, due %.3f\n", i, share, 1.0 / 21);
        assert_true(share > 0.75 / 21 && share < 1.25 / 21);
        weir_sim_result_finish(&result);
        weir_sim_load_finish(&load);
    }
}

/* How much each of two groups of one tenant got done, of what it gets done alone. */
static void parts_of_alone(const char *a, const char *b, double ret_part[2])
{
    const char *const one[] = {a, b};
    char spec[512];
    for (int i = 0; i < 3; i++) {
        struct weir_sim_result result;
        char error[WEIR_SIM_ERROR_BYTES];
        (void)snprintf(spec, sizeof spec, i < 2 ? "%s" : "%s; %s", i < 2 ? one[i] : a, b);
        struct weir_sim_load load = load_of(spec, 1, 2 * RUN_NS);
        struct weir_sim_params params = params_of(&load, "fair", WEIR_SCHED_FILL_ALL);
        params.until_ns = 2 * RUN_NS;
        assert_int_equal(weir_sim_run(&load, &params, &result, error), WEIR_OK);
        for (uint32_t t = 0; t < result.n_tenants; t++) {
            double done = (double)result.tenants[t].finished;
            ret_part[i < 2 ? i : (int)t] = i < 2 ? done : done / ret_part[t];
        }
        weir_sim_result_finish(&result);
        weir_sim_load_finish(&load);
    }
    print_message("%s: %.3f and %.3f of alone\n", spec, ret_part[0], ret_part[1]);
}

#define TRAINING "kernel=exp:300us blocks=400..4000 per_sm=4 keys=60 depth=64 form=original"

/*
 * Graphs that need few SMs, back to back, as an LLM's decoding: whatever else they take of the
 * device, a training beside them gets its share of it, and so do they.
 */
static void a_training_beside_one_with_small_graphs_gets_its_share(void **state)
{
    static const char *const small[] = {
        "name=decode graph=11 kernel=6.2ms think=40us",
        "name=decode graph=11 kernel=6.2ms think=40us memory=0.5",
        "name=decode graph=11 kernel=6.2ms think=40us memory=1",
        "name=decode graph=60 kernel=6.2ms think=40us memory=1",
        ("name=one " SERVICE),
    };
    (void)state;
    for (size_t i = 0; i < sizeof small / sizeof small[0]; i++) {
        double part[2] = {0};
        parts_of_alone(small[i], "name=train memory=1 " TRAINING, part);
        assert_true(part[0] > 0.38 && part[1] > 0.38); /* 0.5, less what launches cost here */
    }
}

/* Of two that are in each other's way and wait for each of their graphs. */
static void weights_hold_for_two_with_long_graphs(void **state)
{
    static const char *const graphs[] = {
        "graph=20 kernel=6.2ms memory=1 think=10us",
        "graph=20 kernel=6.2ms memory=1 think=100us",
        "graph=132 kernel=6.2ms think=10us",
        "graph=132 kernel=6.2ms think=100us",
    };
    (void)state;
    for (size_t i = 0; i < sizeof graphs / sizeof graphs[0]; i++) {
        char heavy[128], light[128];
        double part[2] = {0};
        (void)snprintf(heavy, sizeof heavy, "name=a weight=3 %s", graphs[i]);
        (void)snprintf(light, sizeof light, "name=b %s", graphs[i]);
        parts_of_alone(heavy, light, part);
        assert_true(part[0] / (part[0] + part[1]) > 0.72);
        assert_true(part[0] / (part[0] + part[1]) < 0.78);
    }
}

/* `priority` does not keep shares: within a class it serves the shortest work first. */
static void a_policy_that_keeps_no_shares_is_found_out(void **state)
{
    struct weir_sim_load load = load_of("name=short kernel=200us form=original depth=64; "
                                        "name=long kernel=2ms form=original depth=64",
                                        1, RUN_NS);
    struct weir_sim_params params = params_of(&load, "priority", WEIR_SCHED_FILL_NONE);
    double *longest = longest_turns(&load, &params.config);
    struct tl_unfair worst = worst_of(&load, &params, WEIR_SCHED_COMPUTE, longest);
    (void)state;
    print_worst("priority", 0, &worst);
    assert_true(worst.ratio > 10);
    assert_int_equal(worst.ahead, 0);
    assert_int_equal(worst.behind, 1);
    free(longest);
    weir_sim_load_finish(&load);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_stay_within_their_bound),
        cmocka_unit_test(turns),
        cmocka_unit_test(turns_with_small_graphs_beside_them),
        cmocka_unit_test(a_recorded_run_is_within_all_bounds),
        cmocka_unit_test(a_training_beside_many_small_graphs_gets_its_share),
        cmocka_unit_test(a_training_beside_one_with_small_graphs_gets_its_share),
        cmocka_unit_test(weights_hold_for_two_with_long_graphs),
        cmocka_unit_test(a_policy_that_keeps_no_shares_is_found_out),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
