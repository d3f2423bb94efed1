/*
 * How long short work waits beside long work of the same weight, and what the long one loses by it:
 * who goes first goes above (sched/beside.c). FLEP's second experiment in simulation.
 */
#include "sched/sim/generate.h"
#include "sched/sim/metrics.h"

#include "../../lib/tl_cmocka.h"
#include <sys/mman.h>
#include <unistd.h>

#define RUN_NS 1000000000u

static struct weir_sim_load load_of(const char *spec)
{
    struct weir_sim_generate_params params = {.seed = 1, .duration_ns = RUN_NS};
    struct weir_sched_trace_error trace_error;
    struct weir_sim_load load;
    struct weir_diag diag;
    char error[256];
    int fd = memfd_create("load", MFD_CLOEXEC);
    int reader = dup(fd);
    assert_int_equal(weir_sim_gpu_find("h200", &params.gpu, error), WEIR_OK);
    assert_int_equal(weir_sim_generate(spec, &params, fd, &diag), WEIR_OK);
    off_t bytes = lseek(reader, 0, SEEK_END);
    void *data = mmap(NULL, (size_t)bytes, PROT_READ, MAP_PRIVATE, reader, 0);
    assert_ptr_not_equal(data, MAP_FAILED);
    assert_int_equal(weir_sim_load_read(data, (uint64_t)bytes, false, &load, &trace_error),
                     WEIR_OK);
    munmap(data, (size_t)bytes);
    close(reader);
    return load;
}

/* As on a host whose device has stream priorities. */
static struct weir_sim_metrics metrics_of(const char *spec)
{
    struct weir_sim_load load = load_of(spec);
    struct weir_sim_gpu_params gpu;
    struct weir_sim_params params;
    struct weir_sim_result result;
    struct weir_sim_metrics metrics;
    char error[WEIR_SIM_ERROR_BYTES];
    assert_int_equal(weir_sim_gpu_find("h200", &gpu, error), WEIR_OK);
    weir_sim_params_init(&params, &load, &gpu);
    assert_int_equal(weir_policy_set_parse("fair", &params.policies, NULL), WEIR_OK);
    params.config.fill = WEIR_SCHED_FILL_ALL;
    params.config.small_sms = 3 * gpu.sms;
    params.config.above = 1;
    params.until_ns = RUN_NS;
    assert_int_equal(weir_sim_run(&load, &params, &result, error), WEIR_OK);
    assert_int_equal(weir_sim_measure(&load, &params, &result, &metrics, error), WEIR_OK);
    weir_sim_result_finish(&result);
    weir_sim_load_finish(&load);
    return metrics;
}

#define OFTEN    "name=short kernel=100us form=original think=500us"
#define REQUESTS "name=short kernel=100us blocks=1056 per_sm=8 form=original arrive=poisson:500"
#define LOOP     "; name=long form=original depth=4 kernel="
#define PIECES   "; name=long graph=132 depth=30 kernel=1ms"
#define TRAIN                                                                                      \
    "; name=long kernel=exp:300us blocks=400..4000 per_sm=4 keys=60 depth=64 form=original"

/* The short one's kernels take so many times what they take alone; in brackets, where they wait for
 * a turn at the plain level. What the model has of the wait that is left is half a block's time of
 * the long one's: it has eight waves of blocks, and a graph one. */
static void short_work_beside_long_work_waits_for_blocks_only(void **state)
{
    static const struct {
        const char *spec;
        double ntt, slower; /* most: of the first tenant, of the last one */
    } rows[] = {
        {REQUESTS LOOP "1ms", 2, 1.06},    /* (9.4) */
        {REQUESTS LOOP "3200us", 4, 1.06}, /* (14) */
        {REQUESTS LOOP "5ms", 5, 1.06},    /* (26) */
        {OFTEN LOOP "3200us", 3.2, 1.16},  /* (26) */
        {OFTEN LOOP "5ms", 4.5, 1.14},     /* (43) */
        {OFTEN LOOP "20ms", 14, 1.08},     /* (181) */
        {OFTEN PIECES, 6, 1.55},           /* (11) */
        {REQUESTS PIECES, 7, 1.25},        /* (19) */
        {OFTEN TRAIN, 2.5, 1.2},           /* (5.7) */
        {OFTEN "; " OFTEN LOOP "3200us", 3.3, 1.4},
        {OFTEN "; name=other kernel=3ms form=original depth=4" LOOP "3200us", 3.2, 2.4},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct weir_sim_metrics m = metrics_of(rows[i].spec);
        const struct weir_sim_tenant_metrics *last = &m.tenants[m.n_tenants - 1];
        print_message("%s: %.2f; %.3f\n", rows[i].spec, m.tenants[0].kernel_ntt, last->slowdown);
        assert_true(m.tenants[0].kernel_ntt < rows[i].ntt);
        assert_true(last->slowdown < rows[i].slower);
        weir_sim_metrics_finish(&m);
    }
}

/* However often it is away: who needs more than its share, or says less than its kernels take, does
 * not get it from the long one, which always has work. */
static void nobody_gets_more_than_its_share_by_being_away(void **state)
{
    static const char *const specs[] = {
        "name=a kernel=1ms form=original think=300us" LOOP "3200us",
        "name=a kernel=2ms form=original think=500us" LOOP "3200us",
        "tenants=3 kernel=1ms form=original think=300us" LOOP "3200us weight=3",
        "tenants=5 kernel=1ms form=original think=1ms" LOOP "3200us",
        "tenants=3 kernel=100us..4ms keys=1 jitter=0.9 form=original think=300us" LOOP "3200us",
        ("name=a kernel=4ms form=original think=4ms" TRAIN),
    };
    (void)state;
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        struct weir_sim_metrics m = metrics_of(specs[i]);
        const struct weir_sim_tenant_metrics *last = &m.tenants[m.n_tenants - 1];
        print_message("%s: %.3f, due %.3f\n", specs[i], last->share, last->entitled);
        assert_true(last->share > last->entitled - 0.02);
        weir_sim_metrics_finish(&m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(short_work_beside_long_work_waits_for_blocks_only),
        cmocka_unit_test(nobody_gets_more_than_its_share_by_being_away),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
