/*
 * Stopping a kernel and going on with it.
 *
 * A run is stopped at random points, on and on, until it is through; a fraction of its time lies
 * between two stops. The latency of a stop is what the host sees: from its decision (the clock is
 * read, then the write into the control block is enqueued in a stream of its own) to the word in
 * its memory that the GPU writes when it is free (enqueued behind the kernel). What is written in
 * between belongs to neither.
 */
#include "tests/bench/forms/measure.h"
#include "tests/bench/forms/wait.h"

#include <stdlib.h>
#include <string.h>

#define MIN_PAUSE_NS  30000u /* a launch has begun by then */
#define MIN_SPAN_NS   100000u
#define STOPS_PER_RUN 8u
#define MAX_STOPS     4096u
#define MAX_STARTS    64u /* of a mixed run before it is left alone to end */
#define RANDOM_STARTS 6u
#define CONTROL       0u

static uint32_t done_number;

/* One start behind which the host's word is written. */
static bool start(const struct weir_forms_bench *bench, const struct weir_forms_subject *subject,
                  const struct weir_forms_variant *variant, struct weir_ptx_form_args *args,
                  uint32_t blocks)
{
    return weir_forms_start(subject->set, variant->build, subject->work, args, blocks,
                            bench->main) &&
           weir_forms_word_write(bench->main, WEIR_FORMS_WORD_DONE, ++done_number) &&
           weir_forms_ok(cu.cuEventRecord(bench->freed, bench->main), "cuEventRecord");
}

static bool wait_done(const struct weir_forms_bench *bench)
{
    return weir_forms_wait_word(WEIR_FORMS_WORD_DONE, UINT32_MAX, done_number, bench->main);
}

static bool write_word(enum weir_forms_way way, CUdeviceptr at, uint32_t value, CUstream stream)
{
    static uint32_t *source; /* pinned: a copy from it does not wait */
    void *host = NULL;

    switch (way) {
    case WEIR_FORMS_WAY_SET:
        WEIR_FORMS_TRY(cu.cuMemsetD32Async(at, value, 1, stream));
        return true;
    case WEIR_FORMS_WAY_COPY:
        if (!source) {
            WEIR_FORMS_TRY(cu.cuMemHostAlloc(&host, sizeof(*source), 0));
            source = host;
        }
        *source = value;
        WEIR_FORMS_TRY(cu.cuMemcpyHtoDAsync_v2(at, source, sizeof(*source), stream));
        return true;
    case WEIR_FORMS_WAY_WRITE:
    case WEIR_FORMS_WAY_COUNT:
    default:
        WEIR_FORMS_TRY(cu.cuStreamWriteValue32_v2(stream, at, value, 0));
        return true;
    }
}

/* Workers are told elsewhere than blocks of the ticket form; both look for anything but 0. */
static CUdeviceptr stop_word(const struct weir_forms_variant *variant)
{
    return weir_forms_control_word(CONTROL, variant->build == WEIR_FORMS_TICKET
                                                ? offsetof(struct weir_ptx_control, stop)
                                                : offsetof(struct weir_ptx_control, ask));
}
_Static_assert(WEIR_PTX_ASK_STOP == 1, "both are told by 1");

static bool stop_now(const struct weir_forms_bench *bench, const struct weir_forms_variant *variant)
{
    return write_word(bench->stop_by, stop_word(variant), 1, bench->control) &&
           weir_forms_ok(cu.cuEventRecord(bench->stopped, bench->control), "cuEventRecord");
}

/* Before the next start in the main stream. */
static bool go_on(const struct weir_forms_bench *bench, const struct weir_forms_variant *variant,
                  uint32_t rest)
{
    return write_word(WEIR_FORMS_WAY_WRITE, stop_word(variant), rest, bench->main);
}

bool weir_forms_measure_ways(struct weir_forms_bench *bench, uint32_t n)
{
    static const struct weir_forms_variant variant = {WEIR_FORMS_PERSISTENT, 1};
    static double samples[MAX_STOPS];

    for (uint32_t way = 0; way < WEIR_FORMS_WAY_COUNT; way++) {
        for (uint32_t i = 0; i < n && i < MAX_STOPS; i++) {
            uint64_t begin = weir_forms_now_ns();

            if (!write_word((enum weir_forms_way)way, stop_word(&variant), 0, bench->control) ||
                !weir_forms_word_write(bench->control, WEIR_FORMS_WORD_DONE, ++done_number) ||
                !weir_forms_wait_word(WEIR_FORMS_WORD_DONE, UINT32_MAX, done_number,
                                      bench->control)) {
                return false;
            }
            samples[i] = (double)(weir_forms_now_ns() - begin) * 1e-3;
        }
        bench->results->ways[way] = weir_forms_times_of(samples, n < MAX_STOPS ? n : MAX_STOPS);
        weir_forms_json("way", "\"way\": \"%s\", \"n\": %u, \"p50_us\": %.2f, \"p99_us\": %.2f",
                        weir_forms_way_names[way], bench->results->ways[way].n,
                        bench->results->ways[way].p50, bench->results->ways[way].p99);
    }
    return true;
}

static uint32_t blocks_left(const struct weir_forms_bench *bench,
                            const struct weir_forms_subject *subject,
                            const struct weir_forms_variant *variant,
                            const struct weir_ptx_control *control)
{
    uint32_t total = subject->work->blocks;
    uint32_t left = control->next < total ? total - control->next : 0;
    uint32_t workers;

    if (variant->build == WEIR_FORMS_TICKET) {
        return left;
    }
    workers = weir_forms_workers(bench, subject, variant);
    return workers < left ? workers : left;
}

/* Blocks that were done more or less than once, of a kernel at rest. */
static int64_t blocks_wrong(const struct weir_forms_subject *subject,
                            const struct weir_forms_variant *variant,
                            const struct weir_ptx_control *control)
{
    uint32_t total = subject->work->blocks;
    uint32_t taken = control->next < total ? control->next : total;

    return variant->build == WEIR_FORMS_TICKET ? 0 : (int64_t)control->done - taken;
}

/* ------------------------------------------------------------ latency */

struct stop_run {
    const struct weir_forms_variant *variant;
    double form_us;
    double *samples, *device;
    uint32_t n_samples, max_samples, host_late;
    double busy_us; /* of all segments */
    uint64_t end_ns;
};

static uint64_t random_pause_ns(struct weir_forms_bench *bench, double form_us)
{
    uint64_t span = (uint64_t)(form_us * 2e3 / STOPS_PER_RUN);

    if (bench->quick) {
        return weir_forms_random(bench) % (span + 1);
    }
    span = span < MIN_SPAN_NS ? MIN_SPAN_NS : span;
    return MIN_PAUSE_NS + weir_forms_random(bench) % span;
}

/* One run from begin to end, with stops. */
static bool run_with_stops(struct weir_forms_bench *bench, const struct weir_forms_subject *subject,
                           struct stop_run *run, struct weir_forms_stops *stops)
{
    struct weir_ptx_control control = {0};
    struct weir_ptx_form_args args;
    uint32_t total = subject->work->blocks;

    if (!weir_forms_work_spoil(subject->work) ||
        !weir_forms_controls_begin(bench, subject, run->variant, 1) ||
        !weir_forms_wait_stream(bench->main) ||
        !weir_forms_args(subject, run->variant, CONTROL, &args)) {
        return false;
    }
    while (control.next < total) {
        uint64_t begin = weir_forms_now_ns(), decided = 0, asked = 0, seen, gap;
        bool stop = run->n_samples < run->max_samples && begin < run->end_ns;

        if (!start(bench, subject, run->variant, &args,
                   blocks_left(bench, subject, run->variant, &control))) {
            return false;
        }
        if (stop) {
            weir_forms_pause_ns(random_pause_ns(bench, run->form_us));
            decided = weir_forms_now_ns();
            if (!stop_now(bench, run->variant)) {
                return false;
            }
            asked = weir_forms_now_ns();
        }
        if (!wait_done(bench)) {
            return false;
        }
        seen = weir_forms_now_ns();
        gap = weir_forms_wait_gap_ns();
        run->busy_us += (double)(seen - begin) * 1e-3;
        /* The write may come behind the end: only then may the word be written again. */
        if (!weir_forms_wait_stream(bench->control) ||
            !weir_forms_control_read(CONTROL, &control)) {
            return false;
        }
        stops->blocks_twice += llabs(blocks_wrong(subject, run->variant, &control));
        if (stop && control.next < total) {
            double late_ns = (double)(asked - decided > gap ? asked - decided : gap);
            float ms = 0;

            if (!weir_forms_wait_event(bench->freed)) {
                return false;
            }
            WEIR_FORMS_TRY(cu.cuEventElapsedTime(&ms, bench->stopped, bench->freed));
            run->host_late += late_ns >= WEIR_FORMS_LATE_US * 1e3;
            run->device[run->n_samples] = (double)ms * 1e3;
            run->samples[run->n_samples++] = (double)(seen - decided) * 1e-3;
        }
        if (!go_on(bench, run->variant, weir_forms_rest(subject, run->variant))) {
            return false;
        }
    }
    uint32_t differences = 0;

    if (!weir_forms_wait_stream(bench->main) ||
        !weir_forms_work_compare(subject->work, &differences)) {
        return false;
    }
    stops->runs++;
    stops->wrong += differences != 0;
    return true;
}

static void tell_stops(const struct weir_forms_subject *subject,
                       const struct weir_forms_stops *stops)
{
    char text[32];

    weir_forms_json(
        "stop",
        "\"kernel\": \"%s\", \"form\": \"%s\", \"stops\": %u, \"p50_us\": %.2f, "
        "\"p99_us\": %.2f, \"max_us\": %.2f, \"gpu_p50_us\": %.2f, \"gpu_p99_us\": %.2f, "
        "\"gpu_max_us\": %.2f, \"host_late\": %u, \"block_us\": %.2f, \"runs\": %u, "
        "\"wrong\": %u, \"blocks_wrong\": %lld, \"lost_us\": %.2f",
        subject->set->kernel->name, weir_forms_variant_text(&stops->variant, text),
        stops->latency.n, stops->latency.p50, stops->latency.p99, stops->latency.max,
        stops->device.p50, stops->device.p99, stops->device.max, stops->host_late,
        subject->item->block_us, stops->runs, stops->wrong, (long long)stops->blocks_twice,
        stops->lost_us);
}

bool weir_forms_measure_stops(struct weir_forms_bench *bench,
                              const struct weir_forms_subject *subject,
                              const struct weir_forms_variant *variant, uint32_t n_stops,
                              double budget_s, struct weir_forms_stops *ret_stops)
{
    static double samples[MAX_STOPS], device[MAX_STOPS];
    struct stop_run run = {
        .variant = variant,
        .form_us = subject->item->original_us,
        .samples = samples,
        .device = device,
        .max_samples = n_stops < MAX_STOPS ? n_stops : MAX_STOPS,
        .end_ns = weir_forms_now_ns() + (uint64_t)(budget_s * 1e9),
    };

    memset(ret_stops, 0, sizeof(*ret_stops));
    ret_stops->variant = *variant;
    for (uint32_t i = 0; i < subject->item->n_timings; i++) {
        if (memcmp(&subject->item->timings[i].variant, variant, sizeof(*variant)) == 0) {
            run.form_us = subject->item->timings[i].us;
        }
    }
    do {
        bench->results->beat_ns = weir_forms_now_ns();
        if (!run_with_stops(bench, subject, &run, ret_stops)) {
            return false;
        }
    } while (run.n_samples < run.max_samples && weir_forms_now_ns() < run.end_ns &&
             ret_stops->runs < 2 * n_stops);
    if (run.n_samples > 0) {
        ret_stops->lost_us = (run.busy_us - run.form_us * ret_stops->runs) / run.n_samples;
    }
    ret_stops->latency = weir_forms_times_of(samples, run.n_samples);
    ret_stops->device = weir_forms_times_of(device, run.n_samples);
    ret_stops->host_late = run.host_late;
    tell_stops(subject, ret_stops);
    return true;
}

/* ------------------------------------------------------------ anything goes */

/* Some other kernel on the freed GPU. */
static bool run_other(const struct weir_forms_bench *bench)
{
    static CUdeviceptr out;
    CUfunction busy = weir_forms_helper("busy");
    uint32_t rounds = 10;

    if (!out) {
        WEIR_FORMS_TRY(cu.cuMemAlloc_v2(&out, 4096 * sizeof(uint32_t)));
    }
    if (!busy) {
        return false;
    }
    WEIR_FORMS_TRY(cu.cuLaunchKernel(busy, 16, 1, 1, 256, 1, 1, 1024, bench->other,
                                     (void *[]){&out, &rounds}, NULL));
    return weir_forms_wait_stream(bench->other);
}

static void random_settings(struct weir_forms_bench *bench,
                            const struct weir_forms_subject *subject,
                            const struct weir_forms_variant *variant,
                            struct weir_ptx_form_args *args)
{
    uint32_t per_sm = (uint32_t)subject->set->facts[variant->build].per_sm;
    uint32_t count = 1 + weir_forms_random(bench) % bench->sms;
    uint32_t first = weir_forms_random(bench) % (bench->sms - count + 1);

    args->task_blocks = 1 + weir_forms_random(bench) % 5;
    args->sm_range = WEIR_PTX_SM_RANGE(first, count);
    args->block_limit = weir_forms_random(bench) % (per_sm + 1);
}

/* While it runs: move it elsewhere, then let more workers join it everywhere. */
static bool move_and_grow(struct weir_forms_bench *bench, const struct weir_forms_subject *subject,
                          const struct weir_forms_variant *variant, struct weir_ptx_form_args *args,
                          uint32_t workers)
{
    uint32_t half = bench->sms / 2;
    uint32_t first = weir_forms_random(bench) % 2 ? half : 0;
    size_t at = offsetof(struct weir_ptx_control, ask);

    return weir_forms_control_write(CONTROL, at, WEIR_PTX_ASK(first, half, 0), bench->other) &&
           weir_forms_control_write(CONTROL, at, WEIR_PTX_ASK(0, bench->sms, 0), bench->other) &&
           weir_forms_start(subject->set, variant->build, subject->work, args, workers,
                            bench->other);
}

static bool mixed_run(struct weir_forms_bench *bench, const struct weir_forms_subject *subject,
                      const struct weir_forms_variant *variant, struct weir_forms_mixed *mixed)
{
    struct weir_ptx_control control = {0};
    struct weir_ptx_form_args args;
    uint32_t total = subject->work->blocks, starts = 0, differences = 0;

    if (!weir_forms_work_spoil(subject->work) || !weir_forms_controls_clear(1, bench->main) ||
        !weir_forms_wait_stream(bench->main)) {
        return false;
    }
    for (; control.done < total && starts < MAX_STARTS; starts++) {
        bool at_random = starts < RANDOM_STARTS;

        if (!weir_forms_args(subject, variant, CONTROL, &args)) {
            return false;
        }
        if (at_random) {
            random_settings(bench, subject, variant, &args);
        }
        uint32_t workers = blocks_left(bench, subject, variant, &control);

        if (!start(bench, subject, variant, &args, workers)) {
            return false;
        }
        if (at_random) {
            weir_forms_pause_ns(random_pause_ns(bench, subject->item->original_us));
            if (weir_forms_random(bench) % 2 &&
                !move_and_grow(bench, subject, variant, &args, workers)) {
                return false;
            }
            weir_forms_pause_ns(random_pause_ns(bench, subject->item->original_us) / 4);
            if (!stop_now(bench, variant)) {
                return false;
            }
        }
        if (!wait_done(bench) || !weir_forms_wait_stream(bench->other) ||
            !weir_forms_wait_stream(bench->control) || !run_other(bench) ||
            !weir_forms_control_read(CONTROL, &control)) {
            return false;
        }
        mixed->blocks_twice += llabs(blocks_wrong(subject, variant, &control));
        if (!go_on(bench, variant, 0)) {
            return false;
        }
    }
    if (!weir_forms_wait_stream(bench->main) || !weir_forms_control_read(CONTROL, &control) ||
        !weir_forms_work_compare(subject->work, &differences)) {
        return false;
    }
    mixed->runs++;
    mixed->starts += starts;
    mixed->wrong += differences != 0 || control.finished != 1;
    return true;
}

bool weir_forms_measure_mixed(struct weir_forms_bench *bench,
                              const struct weir_forms_subject *subject, uint32_t runs,
                              double budget_s)
{
    struct weir_forms_item *item = subject->item;
    const struct weir_forms_variant *variant = &item->timings[item->chosen].variant;
    uint64_t end = weir_forms_now_ns() + (uint64_t)(budget_s * 1e9);

    if (variant->build == WEIR_FORMS_TICKET) {
        return true; /* has neither SMs nor tasks to choose from */
    }
    for (uint32_t i = 0; i < runs && weir_forms_now_ns() < end; i++) {
        bench->results->beat_ns = weir_forms_now_ns();
        if (!mixed_run(bench, subject, variant, &item->mixed)) {
            return false;
        }
    }
    weir_forms_json("mixed",
                    "\"kernel\": \"%s\", \"runs\": %u, \"starts\": %u, \"wrong\": %u, "
                    "\"blocks_wrong\": %lld",
                    subject->set->kernel->name, item->mixed.runs, item->mixed.starts,
                    item->mixed.wrong, (long long)item->mixed.blocks_twice);
    return true;
}
