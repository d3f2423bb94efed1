/*
 * Giving up SMs while the kernel runs, and taking them back.
 *
 * How long a change takes is seen by a kernel of one warp, watch, which sums the workers' counters
 * of the upper half of the SMs over and over and writes the sum into the host's memory when it
 * changes. It takes a place on one SM, where there is then a worker less.
 */
#include "tests/bench/forms/measure.h"
#include "tests/bench/forms/wait.h"

#include <stdlib.h>
#include <string.h>

#define CONTROL        0u
#define MAX_SAMPLES    512u
#define MAX_FAILED     5u        /* runs without a change, one after another */
#define SETTLE_NS      60000u    /* between two changes */
#define GIVE_UP_NS     20000000u /* for a change: the kernel may just have ended */
#define WATCH_LIMIT_NS 2000000000ull
#define SHARE_OF_RUN   0.6  /* in which changes are made: it does not end under them */
#define QUICK_SHARE    10.0 /* all is slow with many threads on few cores */
#define SM_MASK        0xffff0000u
#define NOTHING_YET    0xffffffffu
#define SMS_NEEDED     16u /* of the small kernel */
#define OTHER_THREADS  1024u
#define OTHER_ROUNDS   20000u /* some 200 us on an H200 */
#define QUICK_ROUNDS   20u
#define MAX_TURNS      64u
#define YIELD_AT       0.3 /* of the run */

#define AT_ASK offsetof(struct weir_ptx_control, ask)

static uint32_t number; /* of what is written into the host's words */

/* Wait until there are no workers where watch looks, or workers on full SMs. */
static bool wait_told(uint32_t full, uint64_t *ret_seen_ns)
{
    uint64_t begin = weir_forms_now_ns();

    for (;;) {
        uint32_t told = weir_forms_word_get(WEIR_FORMS_WORD_TOLD), sms = told >> 16;

        if (told != NOTHING_YET && (full ? sms >= full : told == 0)) {
            *ret_seen_ns = weir_forms_now_ns();
            return true;
        }
        if (weir_forms_now_ns() - begin > GIVE_UP_NS) {
            return false;
        }
    }
}

/* ------------------------------------------------------------ resizing */

struct resize_run {
    double shrink[MAX_SAMPLES], grow[MAX_SAMPLES];
    uint32_t n;
    uint32_t kept;    /* SMs */
    uint32_t range;   /* asking for these */
    uint32_t rest;    /* asking for all again */
    uint32_t full;    /* SMs given up that hold workers when all is as it was */
    uint32_t workers; /* for the SMs given up */
};

static bool start_watch(const struct weir_forms_bench *bench, const struct resize_run *run)
{
    CUdeviceptr counters = weir_forms_control(CONTROL) + offsetof(struct weir_ptx_control, running);
    CUdeviceptr told = weir_forms_word_device(WEIR_FORMS_WORD_TOLD);
    CUdeviceptr quit = weir_forms_word_device(WEIR_FORMS_WORD_QUIT);
    uint32_t first = run->kept, last = bench->sms - 1;
    uint64_t limit_ns = WATCH_LIMIT_NS;
    CUfunction watch = weir_forms_helper("watch");

    weir_forms_word_set(WEIR_FORMS_WORD_TOLD, NOTHING_YET);
    weir_forms_word_set(WEIR_FORMS_WORD_QUIT, 0);
    if (!watch) {
        return false;
    }
    WEIR_FORMS_TRY(cu.cuLaunchKernel(watch, 1, 1, 1, 32, 1, 1, 0, bench->watcher,
                                     (void *[]){&counters, &first, &last, &told, &quit, &limit_ns},
                                     NULL));
    return weir_forms_wait_word(WEIR_FORMS_WORD_TOLD, UINT32_MAX, 0, bench->watcher);
}

/* One change to half and back. False, without a reason, when the kernel is through. */
static bool resize_once(const struct weir_forms_bench *bench,
                        const struct weir_forms_subject *subject,
                        const struct weir_forms_variant *variant, struct weir_ptx_form_args *args,
                        struct resize_run *run)
{
    uint64_t decided = weir_forms_now_ns(), seen;

    if (!weir_forms_control_write(CONTROL, AT_ASK, run->range, bench->control) ||
        !wait_told(0, &seen)) {
        return false;
    }
    double shrink = (double)(seen - decided) * 1e-3;

    weir_forms_pause_ns(SETTLE_NS);
    decided = weir_forms_now_ns();
    if (!weir_forms_control_write(CONTROL, AT_ASK, run->rest, bench->other) ||
        !weir_forms_start(subject->set, variant->build, subject->work, args, run->workers,
                          bench->other) ||
        !wait_told(run->full, &seen)) {
        return false;
    }
    run->shrink[run->n] = shrink;
    run->grow[run->n++] = (double)(seen - decided) * 1e-3;
    weir_forms_pause_ns(SETTLE_NS);
    return true;
}

static bool resize_run(const struct weir_forms_bench *bench,
                       const struct weir_forms_subject *subject,
                       const struct weir_forms_variant *variant, uint32_t max,
                       struct resize_run *run)
{
    double share = bench->quick ? QUICK_SHARE : SHARE_OF_RUN;
    uint64_t changes_ns = (uint64_t)(subject->item->original_us * 1e3 * share), begin, seen;
    struct weir_ptx_form_args args;
    uint32_t differences = 0;

    if (!weir_forms_work_spoil(subject->work) ||
        !weir_forms_controls_begin(bench, subject, variant, 1) ||
        !weir_forms_wait_stream(bench->main) ||
        !weir_forms_args(subject, variant, CONTROL, &args) || !start_watch(bench, run)) {
        return false;
    }
    begin = weir_forms_now_ns();
    bool ok = weir_forms_start(subject->set, variant->build, subject->work, &args,
                               weir_forms_workers(bench, subject, variant), bench->main) &&
              wait_told(run->full, &seen);

    weir_forms_pause_ns(SETTLE_NS);
    while (ok && run->n < max && weir_forms_now_ns() - begin < changes_ns) {
        ok = resize_once(bench, subject, variant, &args, run);
    }
    /* Whatever became of the changes, all must come to an end, and rightly. */
    ok = weir_forms_control_write(CONTROL, AT_ASK, run->rest, bench->other) &&
         weir_forms_start(subject->set, variant->build, subject->work, &args,
                          weir_forms_workers(bench, subject, variant), bench->other) &&
         weir_forms_wait_stream(bench->main) && weir_forms_wait_stream(bench->other) &&
         weir_forms_wait_stream(bench->control);
    weir_forms_word_set(WEIR_FORMS_WORD_QUIT, 1);
    ok = weir_forms_wait_stream(bench->watcher) && ok &&
         weir_forms_work_compare(subject->work, &differences);
    subject->item->resizes.wrong += differences != 0;
    return ok;
}

bool weir_forms_measure_resizes(struct weir_forms_bench *bench,
                                const struct weir_forms_subject *subject, uint32_t n,
                                double budget_s)
{
    static struct resize_run run;
    struct weir_forms_item *item = subject->item;
    struct weir_forms_resizes *resizes = &item->resizes;
    const struct weir_forms_variant *variant = &item->timings[item->chosen].variant;
    uint64_t end = weir_forms_now_ns() + (uint64_t)(budget_s * 1e9);
    uint32_t n_failed = 0;

    if (variant->build == WEIR_FORMS_TICKET || bench->sms < 2) {
        return true;
    }
    n = n < MAX_SAMPLES ? n : MAX_SAMPLES;
    memset(&run, 0, sizeof(run));
    /* softgpu puts workers where it likes: there, all are given up, and any SM will do. */
    run.kept = bench->quick ? 0 : bench->sms / 2;
    run.range = WEIR_PTX_ASK(bench->quick ? bench->sms : 0, bench->quick ? 1 : run.kept, 0);
    run.rest = weir_forms_rest(subject, variant);
    run.full = bench->quick ? 1 : bench->sms - run.kept;
    run.workers = (bench->sms - run.kept) * (uint32_t)subject->set->facts[variant->build].per_sm;
    resizes->sms = bench->sms;
    resizes->sms_kept = run.kept;
    resizes->per_sm = (uint32_t)subject->set->facts[variant->build].per_sm;
    for (uint32_t i = 0; i < n && run.n < n && weir_forms_now_ns() < end; i++) {
        uint32_t before = run.n;

        bench->results->beat_ns = weir_forms_now_ns();
        if (!resize_run(bench, subject, variant, n, &run)) {
            return false;
        }
        n_failed = run.n == before ? n_failed + 1 : 0;
        if (n_failed == MAX_FAILED) {
            break; /* too few blocks to fill the SMs */
        }
    }
    resizes->shrink = weir_forms_times_of(run.shrink, run.n);
    resizes->grow = weir_forms_times_of(run.grow, run.n);
    weir_forms_json("resize",
                    "\"kernel\": \"%s\", \"sms\": %u, \"kept\": %u, \"n\": %u, "
                    "\"shrink_p50_us\": %.2f, \"shrink_max_us\": %.2f, \"grow_p50_us\": %.2f, "
                    "\"grow_max_us\": %.2f, \"block_us\": %.2f, \"wrong\": %u",
                    subject->set->kernel->name, bench->sms, run.kept, run.n, resizes->shrink.p50,
                    resizes->shrink.max, resizes->grow.p50, resizes->grow.max, item->block_us,
                    resizes->wrong);
    return true;
}

/* ------------------------------------------------------------ a small kernel between */

struct spatial_run {
    CUfunction busy;
    CUdeviceptr out;
    uint32_t rounds, shared_bytes, sms_needed;
    const struct weir_forms_variant *variant;
    struct weir_ptx_form_args args;
    uint32_t workers, more; /* for all SMs, for those yielded */
};

static bool start_busy(const struct spatial_run *run, CUstream stream)
{
    struct spatial_run own = *run;

    WEIR_FORMS_TRY(cu.cuLaunchKernel(run->busy, run->sms_needed, 1, 1, OTHER_THREADS, 1, 1,
                                     run->shared_bytes, stream, (void *[]){&own.out, &own.rounds},
                                     NULL));
    return weir_forms_word_write(stream, WEIR_FORMS_WORD_OTHER, ++number);
}

static bool start_large(const struct weir_forms_subject *subject, struct spatial_run *run,
                        uint32_t workers, CUstream stream)
{
    return weir_forms_start(subject->set, run->variant->build, subject->work, &run->args, workers,
                            stream);
}

static bool prepare(const struct weir_forms_bench *bench, const struct weir_forms_subject *subject,
                    const struct spatial_run *run)
{
    return weir_forms_work_spoil(subject->work) &&
           weir_forms_controls_begin(bench, subject, run->variant, 1) &&
           weir_forms_wait_stream(bench->main);
}

/* The end of the large kernel, wherever its starts were. */
static bool wait_all(const struct weir_forms_bench *bench, uint64_t begin, double *ret_us)
{
    if (!weir_forms_wait_stream(bench->main) || !weir_forms_wait_stream(bench->other)) {
        return false;
    }
    *ret_us = (double)(weir_forms_now_ns() - begin) * 1e-3;
    return weir_forms_wait_stream(bench->control);
}

static bool time_alone(const struct weir_forms_bench *bench,
                       const struct weir_forms_subject *subject, struct spatial_run *run,
                       double *ret_us)
{
    if (!prepare(bench, subject, run)) {
        return false;
    }
    uint64_t begin = weir_forms_now_ns();

    return start_large(subject, run, run->workers, bench->main) && wait_all(bench, begin, ret_us);
}

static bool time_busy(const struct weir_forms_bench *bench, const struct spatial_run *run,
                      double *ret_us)
{
    uint64_t begin = weir_forms_now_ns();

    return start_busy(run, bench->other) && wait_all(bench, begin, ret_us);
}

static bool wait_busy(CUstream stream, uint64_t decided, double *ret_us)
{
    if (!weir_forms_wait_word(WEIR_FORMS_WORD_OTHER, UINT32_MAX, number, stream)) {
        return false;
    }
    *ret_us = (double)(weir_forms_now_ns() - decided) * 1e-3;
    return true;
}

/* All SMs: stop, the small kernel, go on; one stream, without the host in between. */
static bool time_all(const struct weir_forms_bench *bench, const struct weir_forms_subject *subject,
                     struct spatial_run *run, double *ret_us, double *ret_other_us)
{
    uint32_t rest = weir_forms_rest(subject, run->variant);

    if (!prepare(bench, subject, run)) {
        return false;
    }
    uint64_t begin = weir_forms_now_ns();

    if (!start_large(subject, run, run->workers, bench->main)) {
        return false;
    }
    weir_forms_pause_ns((uint64_t)(subject->item->original_us * YIELD_AT * 1e3));
    uint64_t decided = weir_forms_now_ns();

    return weir_forms_control_write(CONTROL, AT_ASK, WEIR_PTX_ASK_STOP, bench->control) &&
           start_busy(run, bench->main) &&
           weir_forms_control_write(CONTROL, AT_ASK, rest, bench->main) &&
           start_large(subject, run, run->workers, bench->main) &&
           wait_busy(bench->main, decided, ret_other_us) && wait_all(bench, begin, ret_us);
}

/* Only those needed: the small kernel comes in a stream of its own, and behind it more workers. */
static bool time_some(const struct weir_forms_bench *bench,
                      const struct weir_forms_subject *subject, struct spatial_run *run,
                      double *ret_us, double *ret_other_us)
{
    uint32_t kept = WEIR_PTX_ASK(0, bench->sms - run->sms_needed, 0);
    uint32_t rest = weir_forms_rest(subject, run->variant);

    if (!prepare(bench, subject, run)) {
        return false;
    }
    uint64_t begin = weir_forms_now_ns();

    if (!start_large(subject, run, run->workers, bench->main)) {
        return false;
    }
    weir_forms_pause_ns((uint64_t)(subject->item->original_us * YIELD_AT * 1e3));
    uint64_t decided = weir_forms_now_ns();

    return weir_forms_control_write(CONTROL, AT_ASK, kept, bench->control) &&
           start_busy(run, bench->other) &&
           weir_forms_control_write(CONTROL, AT_ASK, rest, bench->other) &&
           start_large(subject, run, run->more, bench->other) &&
           wait_busy(bench->other, decided, ret_other_us) && wait_all(bench, begin, ret_us);
}

static bool count_wrong(const struct weir_forms_subject *subject)
{
    uint32_t differences = 0;

    if (!weir_forms_work_compare(subject->work, &differences)) {
        return false;
    }
    subject->item->spatial.wrong += differences != 0;
    return true;
}

enum { ALONE, BUSY, ALL, SOME, OTHER_ALL, OTHER_SOME, MEASURES };

static bool turn(const struct weir_forms_bench *bench, const struct weir_forms_subject *subject,
                 struct spatial_run *run, double us[MEASURES])
{
    return time_alone(bench, subject, run, &us[ALONE]) && time_busy(bench, run, &us[BUSY]) &&
           time_all(bench, subject, run, &us[ALL], &us[OTHER_ALL]) && count_wrong(subject) &&
           time_some(bench, subject, run, &us[SOME], &us[OTHER_SOME]) && count_wrong(subject);
}

static bool spatial_init(const struct weir_forms_bench *bench,
                         const struct weir_forms_subject *subject, struct spatial_run *run)
{
    const struct weir_forms_item *item = subject->item;

    memset(run, 0, sizeof(*run));
    run->variant = &item->timings[item->chosen].variant;
    run->sms_needed = SMS_NEEDED < bench->sms ? SMS_NEEDED : bench->sms - 1;
    run->rounds = bench->quick ? QUICK_ROUNDS : OTHER_ROUNDS;
    run->shared_bytes = bench->max_shared;
    run->busy = weir_forms_helper("busy");
    if (!run->busy || !weir_forms_args(subject, run->variant, CONTROL, &run->args)) {
        return false;
    }
    run->workers = weir_forms_workers(bench, subject, run->variant);
    run->more = run->sms_needed * (uint32_t)subject->set->facts[run->variant->build].per_sm;
    WEIR_FORMS_TRY(cu.cuFuncSetAttribute(run->busy, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                         (int)run->shared_bytes));
    WEIR_FORMS_TRY(cu.cuMemAlloc_v2(&run->out, (size_t)run->sms_needed * OTHER_THREADS * 4));
    return true;
}

bool weir_forms_measure_spatial(struct weir_forms_bench *bench,
                                const struct weir_forms_subject *subject, uint32_t n,
                                double budget_s)
{
    static double samples[MEASURES][MAX_TURNS];
    struct weir_forms_spatial *spatial = &subject->item->spatial;
    struct weir_forms_item *item = subject->item;
    struct spatial_run run;
    uint64_t end = weir_forms_now_ns() + (uint64_t)(budget_s * 1e9);
    double us[MEASURES];
    bool ok = true;

    if (item->timings[item->chosen].variant.build == WEIR_FORMS_TICKET || bench->sms < 2) {
        return true;
    }
    ok = spatial_init(bench, subject, &run);
    for (uint32_t i = 0; ok && i < n && i < MAX_TURNS && weir_forms_now_ns() < end; i++) {
        bench->results->beat_ns = weir_forms_now_ns();
        ok = turn(bench, subject, &run, us);
        for (uint32_t k = 0; ok && k < MEASURES; k++) {
            samples[k][spatial->n] = us[k];
        }
        spatial->n += ok;
    }
    if (run.out) {
        cu.cuMemFree_v2(run.out);
    }
    spatial->sms_needed = run.sms_needed;
    spatial->alone_us = weir_forms_times_of(samples[ALONE], spatial->n).p50;
    spatial->other_us = weir_forms_times_of(samples[BUSY], spatial->n).p50;
    spatial->all_us = weir_forms_times_of(samples[ALL], spatial->n).p50;
    spatial->some_us = weir_forms_times_of(samples[SOME], spatial->n).p50;
    spatial->other_all_us = weir_forms_times_of(samples[OTHER_ALL], spatial->n).p50;
    spatial->other_some_us = weir_forms_times_of(samples[OTHER_SOME], spatial->n).p50;
    weir_forms_json("spatial",
                    "\"kernel\": \"%s\", \"sms_needed\": %u, \"n\": %u, \"alone_us\": %.2f, "
                    "\"other_us\": %.2f, \"all_us\": %.2f, \"some_us\": %.2f, "
                    "\"other_all_us\": %.2f, \"other_some_us\": %.2f, \"wrong\": %u",
                    subject->set->kernel->name, run.sms_needed, spatial->n, spatial->alone_us,
                    spatial->other_us, spatial->all_us, spatial->some_us, spatial->other_all_us,
                    spatial->other_some_us, spatial->wrong);
    return ok;
}
