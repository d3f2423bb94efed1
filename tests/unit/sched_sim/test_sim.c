/* Runs: the scheduler itself on the model. Determinism, replay, metrics, pictures, size. */
#include "sched/sim/generate.h"
#include "sched/sim/metrics.h"
#include "sched/sim/replay.h"
#include "sched/sim/timeline.h"

#include "../../lib/tl_cmocka.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct file {
    uint8_t *data;
    uint64_t bytes;
};

static struct file slurp(int fd)
{
    struct file f = {.bytes = (uint64_t)lseek(fd, 0, SEEK_END)};
    f.data = malloc(f.bytes + 1);
    assert_non_null(f.data);
    assert_int_equal(pread(fd, f.data, f.bytes, 0), f.bytes);
    close(fd);
    return f;
}

static struct weir_sim_gpu_params gpu_of(const char *text)
{
    struct weir_sim_gpu_params gpu;
    char error[256];
    assert_int_equal(weir_sim_gpu_find(text, &gpu, error), WEIR_OK);
    return gpu;
}

static struct weir_sim_load load_of(const char *spec, const char *gpu, uint64_t duration_ns)
{
    struct weir_sim_generate_params params = {
        .gpu = gpu_of(gpu), .seed = 3, .duration_ns = duration_ns};
    struct weir_diag diag;
    struct weir_sim_load load;
    struct weir_sched_trace_error error;
    int fd = memfd_create("load", MFD_CLOEXEC);
    int reader = dup(fd);
    assert_int_equal(weir_sim_generate(spec, &params, fd, &diag), WEIR_OK);
    struct file f = slurp(reader);
    assert_int_equal(weir_sim_load_read(f.data, f.bytes, false, &load, &error), WEIR_OK);
    free(f.data);
    return load;
}

static struct weir_sim_params params_of(const struct weir_sim_load *load, const char *gpu,
                                        const char *policies)
{
    struct weir_sim_params params;
    const struct weir_sim_gpu_params found = gpu_of(gpu);
    weir_sim_params_init(&params, load, &found);
    assert_int_equal(weir_policy_set_parse(policies, &params.policies, NULL), WEIR_OK);
    return params;
}

static struct weir_sim_result result_of(const struct weir_sim_load *load,
                                        const struct weir_sim_params *params)
{
    struct weir_sim_result result;
    char error[WEIR_SIM_ERROR_BYTES];
    if (weir_sim_run(load, params, &result, error) != WEIR_OK) {
        fail_msg("%s", error);
    }
    return result;
}

/* ------------------------------------------------------------------ filling */

#define FILLING_NS 900000000 /* durations are learned in the first 200 ms, in turns */

/* What each gets done, of what it would alone in the same time. */
static void progress_of(const char *spec, enum weir_sched_fill fill, double *ret_part, int count)
{
    struct weir_sim_load load = load_of(spec, "h200", FILLING_NS);
    struct weir_sim_params params = params_of(&load, "h200", "fair");
    struct weir_sim_metrics metrics = {0};
    char error[WEIR_SIM_ERROR_BYTES];
    params.config.fill = fill;
    params.learns = true;
    params.until_ns = FILLING_NS;
    struct weir_sim_result result = result_of(&load, &params);
    assert_int_equal(weir_sim_measure(&load, &params, &result, &metrics, error), WEIR_OK);
    for (int i = 0; i < count; i++) {
        ret_part[i] = metrics.tenants[i].alone_ns / FILLING_NS;
    }
    weir_sim_metrics_finish(&metrics);
    weir_sim_result_finish(&result);
    weir_sim_load_finish(&load);
}

/* Two programs of many kernels, some of which leave SMs free, as trainings are. */
static const char trainings[] =
    "name=a weight=3 kernel=exp:50us blocks=80..2000 form=original keys=40 per_sm=4 depth=64; "
    "name=b weight=1 kernel=exp:50us blocks=80..2000 form=original keys=40 per_sm=4 depth=64";

/* Nothing to be had there: whoever fills gets in the way. */
static const char whole_device[] =
    "name=a weight=3 kernel=exp:50us blocks=50000 form=original keys=40 per_sm=4 depth=64; "
    "name=b weight=1 kernel=exp:50us blocks=50000 form=original keys=40 per_sm=4 depth=64";

static void equals_that_fill_get_more_done_and_keep_their_shares(void **state)
{
    (void)state;
    double in_turns[2];
    double filled[2];
    progress_of(trainings, WEIR_SCHED_FILL_NONE, in_turns, 2);
    progress_of(trainings, WEIR_SCHED_FILL_ALL, filled, 2);
    print_message("3:1, in turns %.3f + %.3f, filled %.3f + %.3f\n", in_turns[0], in_turns[1],
                  filled[0], filled[1]);
    assert_true(filled[0] + filled[1] > in_turns[0] + in_turns[1] + 0.12);
    assert_float_equal(filled[0] / (filled[0] + filled[1]), 0.75, 0.015);
    progress_of(whole_device, WEIR_SCHED_FILL_ALL, filled, 2);
    print_message("kernels of the whole device, filled %.3f + %.3f\n", filled[0], filled[1]);
    assert_true(filled[0] + filled[1] > 0.98);
    assert_float_equal(filled[0] / (filled[0] + filled[1]), 0.75, 0.015);
}

/* Kernels of 20 us to 20 ms, the longest of which is stopped for each turn of the others. */
static void shares_hold_with_learned_durations_and_stops(void **state)
{
    static const char five[] =
        "name=a weight=1 kernel=20us blocks=1056 per_sm=8 depth=16 form=original; "
        "name=b weight=2 kernel=200us blocks=5280 per_sm=8 depth=16 form=original; "
        "name=c weight=3 kernel=1ms blocks=26400 per_sm=8 depth=16 form=original; "
        "name=d weight=4 kernel=20ms blocks=528000 per_sm=8 depth=4 form=persistent; "
        "name=e weight=10 kernel=2ms blocks=52800 per_sm=8 depth=16 form=original";
    static const double wanted[] = {0.05, 0.1, 0.15, 0.2, 0.5};
    static const enum weir_sched_fill fills[] = {WEIR_SCHED_FILL_NONE, WEIR_SCHED_FILL_ALL};
    (void)state;
    for (size_t f = 0; f < 2; f++) {
        double part[5], all = 0;
        progress_of(five, fills[f], part, 5);
        for (int i = 0; i < 5; i++) {
            all += part[i];
        }
        assert_true(all > 0.97);
        for (int i = 0; i < 5; i++) {
            assert_float_equal(part[i] / all, wanted[i], 0.025); /* a kernel of 20 ms in 900 */
        }
    }
}

/* Of each weight sixteen tenants, all in one context or some in another. Had they turns one after
 * the other, or long ones, some of these seconds would have 3 to 5 % too much or too little; and if
 * their turns changed the context each time, 2.4 % of the time would be lost. */
static void many_have_their_shares_in_each_second(void **state)
{
    static const char *const loads[] = {
        "tenants=16 weight=1 kernel=500us depth=8; tenants=16 weight=2 kernel=500us depth=8; "
        "tenants=16 weight=3 kernel=500us depth=8; tenants=16 weight=4 kernel=500us depth=8",
        "tenants=12 weight=1 kernel=500us depth=8; tenants=12 weight=2 kernel=500us depth=8; "
        "tenants=12 weight=3 kernel=500us depth=8; tenants=12 weight=4 kernel=500us depth=8; "
        "tenants=4 weight=1 kernel=500us depth=8 context=2; "
        "tenants=4 weight=2 kernel=500us depth=8 context=2; "
        "tenants=4 weight=3 kernel=500us depth=8 context=2; "
        "tenants=4 weight=4 kernel=500us depth=8 context=2"};
    enum { STEPS = 10, SECONDS = 5 }; /* a step of buckets of 100 ms, by which a second is moved */
    (void)state;
    for (int l = 0; l < 2; l++) {
        struct weir_sim_load load = load_of(loads[l], "h200", SECONDS * 1000000000ull);
        struct weir_sim_params params = params_of(&load, "h200", "fair");
        params.learns = true;
        params.knows_contexts = true;
        params.until_ns = SECONDS * 1000000000ull;
        params.bucket_ns = 1000000000 / STEPS;
        struct weir_sim_result result = result_of(&load, &params);
        assert_int_equal(result.n_tenants, 64);
        for (uint32_t first = STEPS; first <= (SECONDS - 1) * STEPS;
             first++) { /* at first it learns */
            double part[4] = {0}, all = 0;
            for (uint32_t i = 0; i < 64 * STEPS; i++) {
                uint32_t tenant = i % 64;
                uint32_t weight = l == 0        ? tenant / 16
                                  : tenant < 48 ? tenant / 12
                                                : (tenant - 48) / 4;
                part[weight] += result.bucket_sm_ns[(first + i / 64) * 64 + tenant];
            }
            for (int w = 0; w < 4; w++) {
                all += part[w];
            }
            for (int w = 0; w < 4; w++) {
                assert_float_equal(part[w] / all, 0.1 * (w + 1), 0.01);
            }
            assert_true(all > 0.985 * 1e9 * params.gpu.sms);
        }
        weir_sim_result_finish(&result);
        weir_sim_load_finish(&load);
    }
}

/* ------------------------------------------------------------------ many small graphs */

#define SERVICES_NS 400000000

/* As 20 services that replay ResNet-18's graph were measured on an H100, where each graph needs 19
 * SMs and all together get 7,344 done a second: docs/measurements/other-programs.md. */
#define SERVICE "graph=19 kernel=510us memory=0.267 think=60us"
#define HOST    "h200,launch_ns=60000,notice_ns=60000"

static struct weir_sim_result services(const struct weir_sim_load *load, uint32_t small_sms)
{
    struct weir_sim_params params = params_of(load, HOST, "fair");
    params.config.fill = WEIR_SCHED_FILL_ALL;
    params.config.small_sms = small_sms;
    params.until_ns = SERVICES_NS;
    return result_of(load, &params);
}

/* Of all tenants, a second; and the least and most of one. */
static double finished_of(const struct weir_sim_result *result, double *ret_least, double *ret_most)
{
    double sum = 0;
    *ret_least = 1e9;
    *ret_most = 0;
    for (uint32_t i = 0; i < result->n_tenants; i++) {
        double one = (double)result->tenants[i].finished * 1e9 / SERVICES_NS;
        sum += one;
        *ret_least = one < *ret_least ? one : *ret_least;
        *ret_most = one > *ret_most ? one : *ret_most;
    }
    return sum;
}

static void small_graphs_pass_and_collapse_in_turns(void **state)
{
    static const struct {
        const char *spec;
        double spread; /* of what one gets done, most to least */
    } cases[] = {
        {"name=s tenants=20 " SERVICE, 1.05},
        {"name=s tenants=64 " SERVICE, 1.1},
        {"name=s tenants=1000 " SERVICE, 4}, /* each has time for three */
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct weir_sim_load load = load_of(cases[i].spec, HOST, SERVICES_NS);
        struct weir_sim_result passing = services(&load, 3 * 132);
        struct weir_sim_result turns = services(&load, 0);
        double least, most;
        double passed = finished_of(&passing, &least, &most);
        print_message("%s: %.0f a second, one %.0f to %.0f; ", cases[i].spec, passed, least, most);
        assert_true(passed > 7100 && passed < 7600);
        assert_true(most <= cases[i].spread * least);
        passed = finished_of(&turns, &least, &most);
        print_message("in turns %.0f\n", passed);
        assert_true(passed > 1400 && passed < 1800);
        weir_sim_result_finish(&passing);
        weir_sim_result_finish(&turns);
        weir_sim_load_finish(&load);
    }
}

/* ------------------------------------------------------------------ long graphs */

#define GRAPHS_NS 1000000000

/* A training of graphs of such a time beside a service: what of its time alone the training gets
 * done, and for how long 99 of 100 of the service's graphs wait at most. */
static void beside_graphs(const char *kernel, bool own_contexts, double *ret_done,
                          uint64_t *ret_wait_ns)
{
    char spec[256];
    char error[WEIR_SIM_ERROR_BYTES];
    struct weir_sim_metrics metrics = {0};
    (void)snprintf(spec, sizeof spec,
                   "name=train kernel=%s graph=132 depth=4; "
                   "name=serve graph=19 kernel=500us arrive=poisson:100",
                   kernel);
    struct weir_sim_load load = load_of(spec, "h200", GRAPHS_NS);
    struct weir_sim_params params = params_of(&load, "h200", "fair");
    params.config.fill = WEIR_SCHED_FILL_ALL;
    params.config.small_sms = 3 * 132;
    params.own_contexts = own_contexts;
    params.until_ns = GRAPHS_NS;
    struct weir_sim_result result = result_of(&load, &params);
    assert_int_equal(weir_sim_measure(&load, &params, &result, &metrics, error), WEIR_OK);
    *ret_done = metrics.tenants[0].alone_ns / GRAPHS_NS;
    *ret_wait_ns = metrics.tenants[1].wait_p99_ns;
    weir_sim_metrics_finish(&metrics);
    weir_sim_result_finish(&result);
    weir_sim_load_finish(&load);
}

/* The worker launches a long graph in pieces (docs/design/graphs.md): to the scheduler they are as
 * many graphs. */
static void a_service_waits_for_a_piece_of_a_long_graph(void **state)
{
    (void)state;
    for (int own = 0; own < 2; own++) {
        double whole, pieces;
        uint64_t whole_ns, pieces_ns;
        beside_graphs("30ms", own, &whole, &whole_ns);
        beside_graphs("1ms", own, &pieces, &pieces_ns);
        print_message("contexts %s: whole %.3f done, waits %.1f ms; pieces %.3f, %.1f ms\n",
                      own ? "own" : "one", whole, (double)whole_ns / 1e6, pieces,
                      (double)pieces_ns / 1e6);
        assert_true(whole_ns > 20000000);
        assert_true(pieces_ns < 4000000);
        assert_true(pieces > whole - 0.03);
    }
}

/* ------------------------------------------------------------------ copies by weight */

/* Endless copies at weights 10:1: pinned, in pieces as of pageable memory, and each waited for. */
static void copies_have_their_shares_within_two_percent(void **state)
{
    static const char *const forms[] = {"depth=64", "cut=4M", "depth=64 cut=4M stage=30us",
                                        "think=20us"};
    static const char *const gpus[] = {"h200", "h200,h2d_ns=60000,d2h_ns=60000"};
    (void)state;
    for (size_t i = 0; i < 16; i++) {
        char spec[256];
        const char *way = i % 2 ? "h2d" : "d2h";
        const char *form = forms[i / 2 % 4];
        const char *gpu = gpus[i / 8];
        (void)snprintf(spec, sizeof spec,
                       "name=a weight=10 %s=64M kernels=0 %s; name=b %s=64M kernels=0 %s", way,
                       form, way, form);
        struct weir_sim_load load = load_of(spec, gpu, 1000000000);
        struct weir_sim_params params = params_of(&load, gpu, "fair");
        params.until_ns = 1000000000;
        struct weir_sim_result result = result_of(&load, &params);
        const struct weir_sim_tenant_result *t = result.tenants;
        double a = (double)(t[0].copied_bytes[0] + t[0].copied_bytes[1]);
        double b = (double)(t[1].copied_bytes[0] + t[1].copied_bytes[1]);
        print_message("%s %s on %s: %.4f\n", way, form, gpu, a / (a + b));
        assert_float_equal(a / (a + b), 10.0 / 11, 0.02 * 10 / 11);
        weir_sim_result_finish(&result);
        weir_sim_load_finish(&load);
    }
}

/* ------------------------------------------------------------------ contexts, waking */

/* SMs held, of all, by two tenants that take turns of one kernel each. */
static double held_part(const char *spec, const char *gpu, uint64_t *ret_switches)
{
    struct weir_sim_load load = load_of(spec, gpu, SERVICES_NS);
    struct weir_sim_params params = params_of(&load, gpu, "fair");
    params.until_ns = SERVICES_NS;
    struct weir_sim_result result = result_of(&load, &params);
    double part = result.usage.sm_ns / (132.0 * SERVICES_NS);
    *ret_switches = result.usage.switches;
    weir_sim_result_finish(&result);
    weir_sim_load_finish(&load);
    return part;
}

/* Measured on an H200: a change of context costs 7 % of a turn of 2 ms, 1.4 % of one of 10 ms. */
static void contexts_cost_what_was_measured(void **state)
{
    static const struct {
        const char *spec;
        double least, most;
    } cases[] = {
        {"tenants=2 kernel=2ms form=original depth=8", 0.999, 1},
        {"tenants=2 kernel=2ms form=original depth=8 context=3", 0.999, 1},
        {"tenants=2 kernel=2ms form=original depth=8 context=own", 0.925, 0.945},
        {"tenants=2 kernel=10ms form=original depth=8 context=own", 0.98, 0.995},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint64_t switches;
        double part = held_part(cases[i].spec, "h200", &switches);
        print_message("%s: %.4f, %u changes\n", cases[i].spec, part, (unsigned)switches);
        assert_true(part >= cases[i].least && part <= cases[i].most);
        assert_int_equal(switches > 0, i >= 2);
    }
}

/* Four kernels that follow each other in four queues. The third has slept when it is granted, a
 * tenth of a ms before the second's end, and begins late; so the fourth is chosen while it runs. */
static void who_waits_for_long_has_to_wake_up(void **state)
{
    static const char spec[] = "tenants=4 kernel=1ms form=original items=1";
    static const struct {
        const char *gpu;
        uint64_t end_ns;
    } cases[] = {
        {"ideal", 4000000},
        {"ideal,wake_ns=500000,spin_ns=1500000", 4000000 + 300000},
        {"ideal,wake_ns=500000,spin_ns=9000000", 4000000},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct weir_sim_load load = load_of(spec, "ideal", 1000000);
        struct weir_sim_params params = params_of(&load, cases[i].gpu, "fair");
        struct weir_sim_result result = result_of(&load, &params);
        assert_in_range(result.end_ns, cases[i].end_ns - 1000, cases[i].end_ns + 1000);
        weir_sim_result_finish(&result);
        weir_sim_load_finish(&load);
    }
}

/* ------------------------------------------------------------------ recordings */

struct recorder {
    struct weir_sched_trace *trace;
    uint64_t finishes;
};

static void on_record(void *user, const struct weir_sched_record *record)
{
    struct recorder *r = user;
    assert_true(weir_sched_trace_put(r->trace, record));
    r->finishes += record->kind == WEIR_SCHED_REC_FINISH;
}

static const char mixed[] = "name=a weight=2 kernel=300us; name=b kernel=50us depth=3; "
                            "name=c kernel=20us..1ms keys=5 kernels=2 h2d=1M d2h=256K "
                            "arrive=poisson:400 predicted=no; name=d priority=high kernel=30us "
                            "think=3ms form=original; name=e kernel=400us form=ticket";

/* Run, and what its scheduler traced. */
static struct file recorded(const char *policies, uint64_t *ret_finishes)
{
    struct weir_sim_load load = load_of(mixed, "h200", 6000000);
    struct weir_sim_params params = params_of(&load, "h200", policies);
    struct recorder recorder = {0};
    int fd = memfd_create("trace", MFD_CLOEXEC);
    int reader = dup(fd);
    params.config.sms = params.gpu.sms;
    assert_int_equal(weir_sched_trace_create(&params.config, 0, 0, 1u << 16, fd, &recorder.trace),
                     WEIR_OK);
    for (unsigned kind = 0; kind < WEIR_POLICY_KIND_COUNT; kind++) {
        if (params.policies.policy[kind]) {
            weir_sched_trace_policy(recorder.trace, 0, (uint8_t)kind,
                                    params.policies.policy[kind]->name);
        }
    }
    params.watch.user = &recorder;
    params.watch.record = on_record;
    struct weir_sim_result result = result_of(&load, &params);
    assert_int_equal(weir_sched_trace_destroy(recorder.trace), WEIR_OK);
    *ret_finishes = recorder.finishes;
    weir_sim_result_finish(&result);
    weir_sim_load_finish(&load);
    return slurp(reader);
}

static void run_repeats_to_the_last_bit(void **state)
{
    (void)state;
    uint64_t finishes[2];
    struct file one = recorded("fair", &finishes[0]);
    struct file two = recorded("fair", &finishes[1]);
    assert_int_equal(one.bytes, two.bytes);
    assert_memory_equal(one.data, two.data, one.bytes);
    assert_int_equal(finishes[0], finishes[1]);
    assert_true(finishes[0] > 60);
    free(one.data);
    free(two.data);
}

/* Every row of policies.def: what it decided in a run, it decides when told the same. */
static void replay_of_every_policy_decides_alike(void **state)
{
    (void)state;
    for (uint32_t i = 0; weir_policy_at(i); i++) {
        struct weir_sim_replay replay;
        struct weir_sched_trace_error error;
        uint64_t finishes;
        struct file f = recorded(weir_policy_at(i)->name, &finishes);
        print_message("%s\n", weir_policy_at(i)->name);
        assert_int_equal(weir_sim_replay(f.data, f.bytes, NULL, &replay, &error), WEIR_OK);
        if (replay.differs) {
            fail_msg("traced %s, decided %s", replay.traced, replay.decided);
        }
        assert_true(replay.decisions > finishes);
        uint64_t remarks = weir_policy_at(i)->kind == WEIR_POLICY_NEXT ? 2 : 3;
        for (size_t at = 128; at < f.bytes; at += 80) {
            remarks += f.data[at + 76] == WEIR_SCHED_REC_WAIT;
        }
        assert_int_equal(replay.records, (f.bytes - 128) / 80 - remarks);
        free(f.data);
    }
}

static void replay_names_the_decision_that_differs(void **state)
{
    (void)state;
    uint64_t finishes, at = 128;
    struct weir_sim_replay replay;
    struct weir_sched_trace_error error;
    struct weir_sched_record r;
    struct file f = recorded("fair", &finishes);
    do {
        at += 80;
        memcpy(&r, f.data + at, sizeof r);
    } while (r.kind != WEIR_SCHED_REC_STOP);
    r.item++;
    memcpy(f.data + at, &r, sizeof r);
    assert_int_equal(weir_sim_replay(f.data, f.bytes, NULL, &replay, &error), WEIR_OK);
    assert_true(replay.differs);
    assert_int_equal(replay.offset, at);
    assert_non_null(strstr(replay.traced, " stop "));
    assert_non_null(strstr(replay.decided, " stop "));
    free(f.data);
}

static void replay_refuses_what_is_no_whole_recording(void **state)
{
    (void)state;
    uint64_t finishes;
    struct weir_sim_replay replay;
    struct weir_sched_trace_error error;
    struct file f = recorded("fair", &finishes);
    f.data[24] = WEIR_SCHED_TRACE_MIDDLE;
    assert_int_equal(weir_sim_replay(f.data, f.bytes, NULL, &replay, &error), WEIR_ERR_UNSUPPORTED);
    assert_int_equal(error.offset, 24);
    f.data[24] = 0;
    f.data[128 + 80 + 76] = WEIR_SCHED_TRACE_LOST;
    assert_int_equal(weir_sim_replay(f.data, f.bytes, NULL, &replay, &error), WEIR_ERR_UNSUPPORTED);
    assert_int_equal(error.offset, 128 + 80);
    free(f.data);
}

/* ------------------------------------------------------------------ metrics */

static void stp_and_antt_of_known_times(void **state)
{
    (void)state;
    double stp, antt;
    /* Two programs of 10 and 1: the long one first, then the short one waits for it. */
    weir_sim_stp_antt((const double[]){10, 1}, (const double[]){10, 11}, 2, &stp, &antt);
    assert_float_equal(stp, 1 + 1.0 / 11, 1e-12);
    assert_float_equal(antt, (1 + 11.0) / 2, 1e-12);
    weir_sim_stp_antt((const double[]){10, 1}, (const double[]){11, 1}, 2, &stp, &antt);
    assert_float_equal(stp, 10.0 / 11 + 1, 1e-12);
    assert_float_equal(antt, 1.05, 1e-12);
    weir_sim_stp_antt((const double[]){3, 0}, (const double[]){3, 7}, 2, &stp, &antt);
    assert_float_equal(stp, 1, 0); /* one without a time is left out */
    assert_float_equal(antt, 1, 0);
    weir_sim_stp_antt(NULL, NULL, 0, &stp, &antt);
    assert_float_equal(stp + antt, 0, 0);
}

static void measure_of_a_tenant_alone_is_one(void **state)
{
    (void)state;
    struct weir_sim_load load = load_of("name=a kernel=1ms items=10", "h200", 1000000000);
    struct weir_sim_params params = params_of(&load, "h200", "fair");
    struct weir_sim_result result = result_of(&load, &params);
    struct weir_sim_metrics metrics;
    char error[WEIR_SIM_ERROR_BYTES];
    assert_int_equal(weir_sim_measure(&load, &params, &result, &metrics, error), WEIR_OK);
    assert_float_equal(metrics.stp, 1, 0);
    assert_float_equal(metrics.antt, 1, 0);
    assert_float_equal(metrics.kernel_antt, 1, 0);
    assert_float_equal(metrics.tenants[0].share, 1, 1e-12);
    /* Ten launches of 1 ms, each waited for: 7.378 us beside it. */
    assert_int_equal(result.end_ns, 10 * (1000000 + 7378));
    assert_float_equal(result.tenants[0].sm_ns, 132e7, 2000);
    assert_float_equal(result.usage.sm_ns, 132e7, 2000);
    assert_int_equal(result.tenants[0].finished, 10);
    weir_sim_metrics_finish(&metrics);
    weir_sim_result_finish(&result);
    weir_sim_load_finish(&load);
}

/* Kernels that nobody stops, on a device without latencies: turns of 1 ms each. */
static void measure_of_two_equals_is_a_half_each(void **state)
{
    (void)state;
    struct weir_sim_load load =
        load_of("name=x tenants=2 kernel=1ms items=40 form=original", "ideal", 1000000000);
    struct weir_sim_params params = params_of(&load, "ideal", "fair");
    params.bucket_ns = 10000000;
    struct weir_sim_result result = result_of(&load, &params);
    struct weir_sim_metrics metrics;
    char error[WEIR_SIM_ERROR_BYTES];
    assert_int_equal(weir_sim_measure(&load, &params, &result, &metrics, error), WEIR_OK);
    assert_in_range(result.end_ns, 80000000, 81000000);
    assert_float_equal(metrics.tenants[0].share, 0.5, 1e-6);
    assert_float_equal(metrics.tenants[0].entitled, 0.5, 0);
    assert_in_range((uint64_t)(metrics.stp * 1000), 1000, 1100);
    assert_in_range((uint64_t)(metrics.antt * 1000), 1850, 2000);
    /* Over 10 ms each has had about half. */
    assert_true(result.n_buckets >= 8);
    for (uint32_t b = 0; b < 6; b++) {
        double one = result.bucket_sm_ns[2 * b], other = result.bucket_sm_ns[2 * b + 1];
        assert_float_equal(one + other, 132e7, 2000);
        assert_in_range((uint64_t)(one / 132e4), 300, 700);
    }
    weir_sim_metrics_finish(&metrics);
    weir_sim_result_finish(&result);
    weir_sim_load_finish(&load);
}

static void run_until_cuts_and_counts_what_was_held(void **state)
{
    (void)state;
    struct weir_sim_load load =
        load_of("name=a kernel=10ms items=5; name=b h2d=1G kernels=0 items=1", "ideal", 1000000000);
    struct weir_sim_params params = params_of(&load, "ideal", "fair");
    params.until_ns = 15000000;
    params.bucket_ns = 5000000;
    struct weir_sim_result result = result_of(&load, &params);
    assert_true(result.was_cut);
    assert_int_equal(result.end_ns, 15000000);
    assert_int_equal(result.n_buckets, 3);
    assert_int_equal(result.tenants[0].finished, 1);
    assert_float_equal(result.tenants[0].sm_ns, 132 * 15e6, 2000);
    assert_float_equal(result.usage.engine_ns[WEIR_SIM_H2D], 15e6, 0);
    weir_sim_result_finish(&result);
    weir_sim_load_finish(&load);
}

static void run_of_a_thousand_tenants_comes_to_its_end(void **state)
{
    (void)state;
    struct weir_sim_load load =
        load_of("tenants=1000 kernel=100us..1ms keys=3 items=1 weight=1..10", "h200", 1000000000);
    struct weir_sim_params params = params_of(&load, "h200", "fair");
    struct weir_sim_result result = result_of(&load, &params);
    assert_false(result.was_cut);
    for (uint32_t i = 0; i < 1000; i++) {
        assert_int_equal(result.tenants[i].finished, 1);
    }
    /* A bound on the work, not on time: calls into the scheduler an item. */
    assert_true(result.decisions.calls < 1000 * 10);
    weir_sim_result_finish(&result);
    weir_sim_load_finish(&load);
}

static void run_refuses_too_many_buckets(void **state)
{
    (void)state;
    struct weir_sim_load load = load_of("kernel=10ms items=2", "ideal", 1000000000);
    struct weir_sim_params params = params_of(&load, "ideal", "fair");
    struct weir_sim_result result;
    char error[WEIR_SIM_ERROR_BYTES];
    params.bucket_ns = 1;
    assert_int_equal(weir_sim_run(&load, &params, &result, error), WEIR_ERR_TOO_BIG);
    assert_true(error[0]);
    weir_sim_load_finish(&load);
}

/* ------------------------------------------------------------------ the timeline */

static void on_span(void *user, const struct weir_sim_span *span)
{
    weir_sim_timeline_span(user, span);
}

static void on_hold(void *user, const struct weir_sim_hold *hold)
{
    weir_sim_timeline_hold(user, hold);
}

static unsigned count(const char *text, const char *word)
{
    unsigned n = 0;
    for (; (text = strstr(text, word)); text += strlen(word)) {
        n++;
    }
    return n;
}

/* Two tenants in turn, 1 ms each: what must be in the timeline is known. */
static void timeline_shows_what_ran_and_for_how_long(void **state)
{
    (void)state;
    struct weir_sim_load load =
        load_of("name=x kernel=1ms items=3 form=original; name=y kernel=1ms "
                "items=3 form=original h2d=1M kernels=1",
                "ideal", 1000000000);
    struct weir_sim_params params = params_of(&load, "ideal", "fair");
    struct weir_sim_timeline *timeline;
    char *json = NULL;
    size_t json_bytes;
    FILE *json_file = open_memstream(&json, &json_bytes);
    assert_int_equal(weir_sim_timeline_open(json_file, &load, &timeline), WEIR_OK);
    params.watch = (struct weir_sim_watch){.user = timeline, .span = on_span, .hold = on_hold};
    struct weir_sim_result result = result_of(&load, &params);
    assert_int_equal(weir_sim_timeline_close(timeline), WEIR_OK);
    assert_int_equal(fclose(json_file), 0);
    unsigned copies = (unsigned)(result.tenants[1].items - 1) / 2 + 1;
    assert_int_equal(count(json, "\"ph\":\"X\""), 3 + result.tenants[1].items + copies);
    assert_non_null(strstr(json, "\"dur\":1000.000"));
    assert_non_null(strstr(json, "h2d of y"));
    weir_sim_result_finish(&result);
    weir_sim_load_finish(&load);
    free(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_that_fill_get_more_done_and_keep_their_shares),
        cmocka_unit_test(shares_hold_with_learned_durations_and_stops),
        cmocka_unit_test(many_have_their_shares_in_each_second),
        cmocka_unit_test(small_graphs_pass_and_collapse_in_turns),
        cmocka_unit_test(a_service_waits_for_a_piece_of_a_long_graph),
        cmocka_unit_test(copies_have_their_shares_within_two_percent),
        cmocka_unit_test(contexts_cost_what_was_measured),
        cmocka_unit_test(who_waits_for_long_has_to_wake_up),
        cmocka_unit_test(run_repeats_to_the_last_bit),
        cmocka_unit_test(replay_of_every_policy_decides_alike),
        cmocka_unit_test(replay_names_the_decision_that_differs),
        cmocka_unit_test(replay_refuses_what_is_no_whole_recording),
        cmocka_unit_test(stp_and_antt_of_known_times),
        cmocka_unit_test(measure_of_a_tenant_alone_is_one),
        cmocka_unit_test(measure_of_two_equals_is_a_half_each),
        cmocka_unit_test(run_until_cuts_and_counts_what_was_held),
        cmocka_unit_test(run_of_a_thousand_tenants_comes_to_its_end),
        cmocka_unit_test(run_refuses_too_many_buckets),
        cmocka_unit_test(timeline_shows_what_ran_and_for_how_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
