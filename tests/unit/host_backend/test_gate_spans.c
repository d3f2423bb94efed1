/*
 * Jobs over several GPUs, on schedulers and a clock of this test: an operation ends a while after
 * its kernels have begun on all GPUs. A kernel that has begun on one GPU alone waits there.
 */
#include "host_backend/gate/process/served.h"
#include "tests/lib/tl_cmocka.h"

#include <stdlib.h>

enum { GPUS = 2, JOBS = 2, SINGLES = 1, TENANTS = JOBS + SINGLES, AHEAD = 8, SMS = 132 };
#define OPERATION_NS (100 * WEIR_NS_PER_US)
#define KERNEL_NS    (300 * WEIR_NS_PER_US)
#define SELDOM_NS    (200 * WEIR_NS_PER_MS)
#define RUN_NS       (500 * WEIR_NS_PER_MS)

struct work {
    weir_sched_id item;
    uint32_t tenant, gpu;
    bool granted;
};

/* A tenant's work on a GPU: the program is AHEAD items ahead of the first that has not ended. */
struct stream {
    weir_sched_id queue;
    uint64_t ended, arrived;
    struct work work[AHEAD];
};

struct model {
    struct weir_gate_process process;
    uint64_t now_ns, timer_ns[GPUS], ends_ns[TENANTS][GPUS];
    uint64_t seldom_ns; /* when tenant 1 has work for the first GPU next, if the jobs are no jobs */
    struct stream streams[TENANTS][GPUS];
    bool together;
    bool apart; /* the jobs are tenants with a program on each GPU, one of which seldom has work */
};

static void on_start(void *user, weir_sched_id item, void *item_user,
                     const struct weir_sched_place *place, enum weir_sched_level level)
{
    (void)user;
    (void)item;
    (void)place;
    (void)level;
    ((struct work *)item_user)->granted = true;
}

static void on_timer(void *user, uint64_t at_ns)
{
    *(uint64_t *)user = at_ns;
}

static bool works_on(uint32_t tenant, uint32_t gpu)
{
    return tenant < JOBS || gpu == GPUS - 1;
}

static void begin(struct model *m, const uint32_t *weights)
{
    m->process.n_gpus = GPUS;
    m->now_ns = WEIR_NS_PER_S;
    for (uint32_t g = 0; g < GPUS; g++) {
        struct served_gpu *gpu = &m->process.gpus[g];
        const struct weir_sched_env env = {
            .user = &m->timer_ns[g], .start = on_start, .timer = on_timer};

        gpu->process = &m->process;
        m->timer_ns[g] = UINT64_MAX;
        weir_sched_config_init(&gpu->config, SMS);
        assert_int_equal(weir_sched_create(&gpu->config, &env, &gpu->sched), WEIR_OK);
        for (uint32_t t = 0; t < TENANTS; t++) {
            struct weir_sched_tenant_params params = {.weight = weights[t] != 0 ? weights[t] : 1,
                                                      .sm_limit = 100,
                                                      .priority = WEIR_PRIORITY_NORMAL,
                                                      .user = (void *)(uintptr_t)(t + 1)};

            m->process.tenants[t].params = params;
            if (!works_on(t, g) || weights[t] == 0) {
                continue;
            }
            assert_int_equal(
                weir_sched_tenant_add(gpu->sched, m->now_ns, &params, &gpu->members[t].id),
                WEIR_OK);
            assert_int_equal(weir_sched_queue_add(gpu->sched, gpu->members[t].id, 100, 0,
                                                  &m->streams[t][g].queue),
                             WEIR_OK);
        }
    }
    served_spans_begin(&m->process);
    for (uint32_t g = 0; m->together && g < GPUS; g++) {
        for (uint32_t t = 0; t < TENANTS; t++) {
            if (m->streams[t][g].queue != 0) {
                weir_sched_spans_come(&m->process.spans, m->now_ns, g, t);
            }
        }
    }
}

static void finish(struct model *m)
{
    for (uint32_t g = 0; g < GPUS; g++) {
        weir_sched_destroy(m->process.gpus[g].sched);
    }
    free(m);
}

static bool has_work(struct model *m, uint32_t tenant, uint32_t g)
{
    const struct stream *s = &m->streams[tenant][g];

    if (s->queue == 0 || s->arrived == s->ended + AHEAD) {
        return false;
    }
    if (m->apart && tenant == 1 && g == 0) {
        if (m->now_ns < m->seldom_ns) {
            return false;
        }
        m->seldom_ns = m->now_ns + SELDOM_NS;
    }
    return true;
}

/* The programs give work until they are AHEAD. */
static void post(struct model *m, uint32_t tenant, uint32_t g)
{
    struct stream *s = &m->streams[tenant][g];

    while (has_work(m, tenant, g)) {
        struct work *work = &s->work[s->arrived % AHEAD];
        const struct weir_sched_item_params params = {.class = WEIR_SCHED_KERNEL,
                                                      .key = tenant + 1,
                                                      .blocks = tenant < JOBS ? 24 : SMS,
                                                      .blocks_per_sm = 1,
                                                      .predicted_ns =
                                                          tenant < JOBS ? OPERATION_NS : KERNEL_NS,
                                                      .user = work};

        *work = (struct work){.tenant = tenant, .gpu = g};
        s->arrived++;
        assert_int_equal(
            weir_sched_arrive(m->process.gpus[g].sched, m->now_ns, s->queue, &params, &work->item),
            WEIR_OK);
    }
}

static bool is_granted(const struct stream *s)
{
    return s->queue != 0 && s->arrived != s->ended && s->work[s->ended % AHEAD].granted;
}

/* Does the next piece of work run? An operation of a job does when it has begun on all GPUs. */
static bool runs(const struct model *m, uint32_t tenant, uint32_t g)
{
    bool all = true;

    for (uint32_t i = 0; !m->apart && tenant < JOBS && i < GPUS; i++) {
        all = all && is_granted(&m->streams[tenant][i]);
    }
    return all && is_granted(&m->streams[tenant][g]);
}

static void end_work(struct model *m, uint32_t tenant, uint32_t g)
{
    struct stream *s = &m->streams[tenant][g];
    struct work *work = &s->work[s->ended % AHEAD];

    m->ends_ns[tenant][g] = 0;
    s->ended++;
    assert_int_equal(weir_sched_finished(m->process.gpus[g].sched, m->now_ns, work->item, 0),
                     WEIR_OK);
}

/* The earliest time at which something happens, once what was granted runs. */
static uint64_t next_ns(struct model *m)
{
    uint64_t at_ns = m->now_ns + WEIR_NS_PER_MS;

    at_ns = m->process.spans.next_ns < at_ns ? m->process.spans.next_ns : at_ns;

    for (uint32_t g = 0; g < GPUS; g++) {
        for (uint32_t t = 0; t < TENANTS; t++) {
            uint64_t *ends_ns = &m->ends_ns[t][g];

            if (*ends_ns == 0 && runs(m, t, g)) {
                *ends_ns = m->now_ns + (t < JOBS ? OPERATION_NS : KERNEL_NS);
            }
            at_ns = *ends_ns != 0 && *ends_ns < at_ns ? *ends_ns : at_ns;
        }
        at_ns = m->timer_ns[g] < at_ns ? m->timer_ns[g] : at_ns;
    }
    return at_ns;
}

/* Go to the next event. */
static void step(struct model *m)
{
    for (uint32_t t = 0; t < TENANTS; t++) {
        post(m, t, 0);
        post(m, TENANTS - 1 - t, 1); /* so the jobs' first work comes in another order there */
    }
    if (m->together) {
        weir_sched_spans_tick(&m->process.spans, m->now_ns);
    }
    m->now_ns = next_ns(m);
    for (uint32_t g = 0; g < GPUS; g++) {
        for (uint32_t t = 0; t < TENANTS; t++) {
            if (m->ends_ns[t][g] == m->now_ns) {
                end_work(m, t, g);
            }
        }
        if (m->timer_ns[g] <= m->now_ns) {
            m->timer_ns[g] = UINT64_MAX;
            weir_sched_tick(m->process.gpus[g].sched, m->now_ns);
        }
    }
}

struct done {
    uint64_t n[TENANTS]; /* operations, and kernels of the one with one GPU, that have ended */
};

static struct done run(bool together, bool apart, const uint32_t *weights)
{
    struct model *m = calloc(1, sizeof *m);
    struct done done;

    assert_non_null(m);
    m->together = together;
    m->apart = apart;
    begin(m, weights);
    for (uint64_t end_ns = m->now_ns + RUN_NS; m->now_ns < end_ns;) {
        step(m);
    }
    for (uint32_t t = 0; t < TENANTS; t++) {
        done.n[t] = m->streams[t][GPUS - 1].ended;
    }
    finish(m);
    return done;
}

static void assert_ratio(uint64_t a, uint64_t b, uint64_t least_pct, uint64_t most_pct)
{
    assert_in_range(100 * a / b, least_pct, most_pct);
}

/* Jobs that are alone with each other get about what they got, and as much as each other. Here
 * operations of both run at a time if both are granted, so turns cost a little. */
static void equal_jobs_share_alike(void **state)
{
    static const uint32_t weights[TENANTS] = {1, 1, 0};
    const struct done apart = run(false, false, weights), together = run(true, false, weights);

    (void)state;
    assert_ratio(together.n[0], together.n[1], 98, 102);
    assert_ratio(together.n[0] + together.n[1], apart.n[0] + apart.n[1], 90, 120);
}

/* By themselves two schedulers have each job lead at other times: what the lighter one gets on one
 * GPU is of no use without the other, and it had an eighth of the heavy one. */
static void weights_hold_over_several_gpus(void **state)
{
    static const uint32_t weights[TENANTS] = {3, 1, 0};
    const struct done apart = run(false, false, weights), together = run(true, false, weights);

    (void)state;
    assert_ratio(together.n[0], together.n[1], 250, 320);
    assert_ratio(together.n[0] + together.n[1], apart.n[0] + apart.n[1], 160, 300);
}

/* A tenant that works on one of the GPUs keeps its third of that, and the jobs get more done. */
static void a_tenant_with_one_gpu_keeps_its_share(void **state)
{
    static const uint32_t weights[TENANTS] = {1, 1, 1};
    const struct done apart = run(false, false, weights), together = run(true, false, weights);

    (void)state;
    assert_ratio(together.n[0], together.n[1], 97, 103);
    assert_ratio(together.n[0] + together.n[1], apart.n[0] + apart.n[1], 160, 300);
    assert_ratio(together.n[JOBS] * KERNEL_NS, RUN_NS, 33, 45);
}

/* Tenants with programs of their own on each GPU: one that hardly uses the first GPU, where the
 * other leads nearly always, has its half of the second all the same. */
static void who_seldom_uses_a_gpu_has_its_share_of_another(void **state)
{
    static const uint32_t weights[TENANTS] = {1, 1, 0};
    const struct done done = run(true, true, weights);

    (void)state;
    assert_ratio(done.n[1], done.n[0], 85,
                 115); /* what it may be behind counts in so short a time */
}

/* The spans of tenant 1 in both schedulers. */
static void assert_spans(struct model *m, enum weir_sched_span first, enum weir_sched_span second)
{
    struct weir_sched_tenant_info info[GPUS];

    for (uint32_t g = 0; g < GPUS; g++) {
        const struct served_gpu *gpu = &m->process.gpus[g];

        assert_int_equal(weir_sched_tenant_query(gpu->sched, gpu->members[1].id, &info[g]),
                         WEIR_OK);
    }
    assert_int_equal(info[0].params.span, first);
    assert_int_equal(info[1].params.span, second);
}

/* Two tenants work on both GPUs, and only one of them has peers. */
static void who_has_no_peers_takes_no_turns(void **state)
{
    static const uint32_t weights[TENANTS] = {1, 1, 0};
    struct model *m = calloc(1, sizeof *m);

    (void)state;
    assert_non_null(m);
    m->apart = true;
    begin(m, weights);
    weir_sched_spans_come(&m->process.spans, m->now_ns, 0, 0);
    weir_sched_spans_come(&m->process.spans, m->now_ns, 1, 0);
    m->together = true;
    for (uint64_t end_ns = m->now_ns + 10 * WEIR_NS_PER_MS; m->now_ns < end_ns;) {
        step(m);
        assert_int_equal(m->process.span_tenants[0].span, WEIR_SCHED_SPAN_FREE);
        assert_spans(m, WEIR_SCHED_SPAN_FREE, WEIR_SCHED_SPAN_FREE);
    }
    weir_sched_spans_come(&m->process.spans, m->now_ns, 0, 1);
    assert_spans(m, WEIR_SCHED_SPAN_FREE, WEIR_SCHED_SPAN_FREE);
    weir_sched_spans_come(&m->process.spans, m->now_ns, 1, 1);
    assert_spans(m, WEIR_SCHED_SPAN_WAITS, WEIR_SCHED_SPAN_WAITS);
    finish(m);
}

/* Who has no queue on a second GPU any more takes no turns, nor does who then has nobody to take
 * them with; and both may come back. */
static void who_leaves_a_gpu_takes_no_turns(void **state)
{
    static const uint32_t weights[TENANTS] = {1, 1, 0};
    struct model *m = calloc(1, sizeof *m);

    (void)state;
    assert_non_null(m);
    m->together = true;
    begin(m, weights);
    for (uint64_t end_ns = m->now_ns + 10 * WEIR_NS_PER_MS; m->now_ns < end_ns;) {
        step(m);
    }
    assert_true(m->process.span_tenants[1].span != WEIR_SCHED_SPAN_FREE);
    weir_sched_spans_forget(&m->process.spans, 0, 0);
    weir_sched_spans_tick(&m->process.spans, m->now_ns);
    assert_spans(m, WEIR_SCHED_SPAN_FREE, WEIR_SCHED_SPAN_FREE);
    assert_int_equal(m->process.span_tenants[0].span, WEIR_SCHED_SPAN_FREE);
    weir_sched_spans_come(&m->process.spans, m->now_ns, 0, 0);
    assert_spans(m, WEIR_SCHED_SPAN_TURN, WEIR_SCHED_SPAN_TURN);
    weir_sched_spans_forget(&m->process.spans, 0, 1);
    assert_spans(m, WEIR_SCHED_SPAN_FREE, WEIR_SCHED_SPAN_TURN);
    weir_sched_spans_forget(&m->process.spans, 1, 1);
    assert_spans(m, WEIR_SCHED_SPAN_FREE, WEIR_SCHED_SPAN_FREE);
    finish(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_jobs_share_alike),
        cmocka_unit_test(weights_hold_over_several_gpus),
        cmocka_unit_test(a_tenant_with_one_gpu_keeps_its_share),
        cmocka_unit_test(who_seldom_uses_a_gpu_has_its_share_of_another),
        cmocka_unit_test(who_has_no_peers_takes_no_turns),
        cmocka_unit_test(who_leaves_a_gpu_takes_no_turns)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
