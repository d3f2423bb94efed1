/*
 * What the forms cost when nobody stops them.
 *
 * The original and its variants take turns, round after round, so that drifts of clocks and
 * temperature meet all of them; a variant's overhead is the median over the rounds of the ratio to
 * the original's time in the same round. A turn is a batch of runs between two events, as many as
 * take about a millisecond. The stream waits at a gate until the whole batch is enqueued: the
 * host's own time does not enter. Control blocks are zeroed before the gate, as Weir's host hands
 * them out.
 */
#include "host_backend/worker/twins/fit.h"
#include "tests/bench/forms/measure.h"
#include "tests/bench/forms/wait.h"

#include <stdlib.h>
#include <string.h>

#define BATCH_US     1000.0
#define MAX_BATCH    64u /* runs */
#define MIN_ROUNDS   5u
#define MAX_ROUNDS   61u
#define MIN_WAVES    2u /* of tasks, or the last of them is too long */
#define PLAIN_ROUNDS 3u /* of --quick */

static uint32_t gate_number;

bool weir_forms_is_loop(uint32_t build)
{
    return build == WEIR_FORMS_PERSISTENT || build == WEIR_FORMS_CAPPED ||
           build == WEIR_FORMS_CARVED || build == WEIR_FORMS_ROOMY;
}

uint32_t weir_forms_random(struct weir_forms_bench *bench)
{
    bench->seed = bench->seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(bench->seed >> 33);
}

uint32_t weir_forms_workers(const struct weir_forms_bench *bench,
                            const struct weir_forms_subject *subject,
                            const struct weir_forms_variant *variant)
{
    uint32_t fit = (uint32_t)subject->set->facts[variant->build].per_sm * bench->sms;
    uint32_t tasks = (subject->work->blocks + variant->setting - 1) / variant->setting;

    return fit < tasks ? fit : tasks;
}

/* The time of a block as the original's says: the worker knows it from the twin's. */
static uint64_t block_ns(const struct weir_forms_subject *subject,
                         const struct weir_forms_variant *variant)
{
    const struct weir_forms_facts *facts = subject->set->facts;

    return (uint64_t)(subject->item->block_us * 1e3 * facts[variant->build].per_sm /
                      facts[WEIR_FORMS_ORIGINAL].per_sm);
}

uint32_t weir_forms_rest(const struct weir_forms_subject *subject,
                         const struct weir_forms_variant *variant)
{
    return weir_forms_is_loop(variant->build) &&
                   weir_forms_looks_always(block_ns(subject, variant), variant->setting)
               ? WEIR_PTX_ASK_LOOK
               : 0;
}

bool weir_forms_controls_begin(const struct weir_forms_bench *bench,
                               const struct weir_forms_subject *subject,
                               const struct weir_forms_variant *variant, uint32_t count)
{
    uint32_t rest = weir_forms_rest(subject, variant);
    bool ok = weir_forms_controls_clear(count, bench->main);

    for (uint32_t i = 0; ok && rest != 0 && i < count; i++) {
        ok = weir_forms_control_write(i, offsetof(struct weir_ptx_control, ask), rest, bench->main);
    }
    return ok;
}

bool weir_forms_args(const struct weir_forms_subject *subject,
                     const struct weir_forms_variant *variant, uint32_t control,
                     struct weir_ptx_form_args *ret_args)
{
    if (!weir_ptx_form_args_init(subject->work->grid, ret_args)) {
        return weir_forms_fail("%s: no parameter for its grid", subject->set->kernel->name);
    }
    ret_args->control = weir_forms_control(control);
    if (weir_forms_is_loop(variant->build)) {
        ret_args->task_blocks = variant->setting;
    }
    return true;
}

bool weir_forms_run(const struct weir_forms_bench *bench, const struct weir_forms_subject *subject,
                    const struct weir_forms_variant *variant, uint32_t control)
{
    uint32_t blocks = subject->work->blocks;
    struct weir_ptx_form_args args;

    if (!weir_forms_args(subject, variant, control, &args)) {
        return false;
    }
    if (weir_forms_is_loop(variant->build)) {
        blocks = weir_forms_workers(bench, subject, variant);
    }
    return weir_forms_start(subject->set, variant->build, subject->work, &args, blocks,
                            bench->main);
}

/* ------------------------------------------------------------ variants */

static bool is_worth_it(const struct weir_forms_bench *bench,
                        const struct weir_forms_subject *subject,
                        const struct weir_forms_variant *variant)
{
    uint32_t blocks = subject->work->blocks;

    if (!subject->set->facts[variant->build].there || subject->unusable >> variant->build & 1) {
        return false;
    }
    if (variant->setting <= 1) {
        return true;
    }
    uint64_t wave =
        (uint64_t)subject->set->facts[variant->build].per_sm * bench->sms * variant->setting;

    return bench->quick ? variant->setting <= blocks : wave * MIN_WAVES <= blocks;
}

/* @return its index in the timings, also when it was there; or WEIR_FORMS_NONE */
static uint32_t add_variant(const struct weir_forms_bench *bench,
                            const struct weir_forms_subject *subject, uint32_t build,
                            uint32_t setting)
{
    struct weir_forms_item *item = subject->item;
    struct weir_forms_variant variant = {build, setting};

    for (uint32_t i = 0; i < item->n_timings; i++) {
        if (memcmp(&item->timings[i].variant, &variant, sizeof(variant)) == 0) {
            return i;
        }
    }
    if (item->n_timings == WEIR_FORMS_MAX_VARIANTS || !is_worth_it(bench, subject, &variant)) {
        return WEIR_FORMS_NONE;
    }
    item->timings[item->n_timings] = (struct weir_forms_timing){.variant = variant};
    return item->n_timings++;
}

/* ------------------------------------------------------------ time */

static bool open_gate(const struct weir_forms_bench *bench)
{
    weir_forms_word_set(WEIR_FORMS_WORD_GATE, gate_number);
    return weir_forms_wait_event(bench->end);
}

/* Time n runs of a variant, each. */
static bool time_batch(const struct weir_forms_bench *bench,
                       const struct weir_forms_subject *subject,
                       const struct weir_forms_variant *variant, uint32_t n, double *ret_us)
{
    float ms = 0;

    gate_number++;
    if (variant->build != WEIR_FORMS_ORIGINAL &&
        !weir_forms_controls_begin(bench, subject, variant, n)) {
        return false;
    }
    WEIR_FORMS_TRY(cu.cuStreamWaitValue32_v2(bench->main,
                                             weir_forms_word_device(WEIR_FORMS_WORD_GATE),
                                             gate_number, CU_STREAM_WAIT_VALUE_GEQ));
    bool ok = weir_forms_ok(cu.cuEventRecord(bench->begin, bench->main), "cuEventRecord");

    for (uint32_t i = 0; ok && i < n; i++) {
        ok = weir_forms_run(bench, subject, variant, i);
    }
    ok = ok && weir_forms_ok(cu.cuEventRecord(bench->end, bench->main), "cuEventRecord");
    if (!ok) { /* whatever is behind the gate may go */
        weir_forms_word_set(WEIR_FORMS_WORD_GATE, gate_number);
        return false;
    }
    if (!open_gate(bench)) {
        return false;
    }
    WEIR_FORMS_TRY(cu.cuEventElapsedTime(&ms, bench->begin, bench->end));
    *ret_us = (double)ms * 1e3 / n;
    return true;
}

/* ------------------------------------------------------------ which of them */

static bool is_usable(const struct weir_forms_subject *subject, uint32_t build)
{
    return subject->set->facts[build].there && !(subject->unusable >> build & 1);
}

static void add_candidate(const struct weir_forms_bench *bench,
                          const struct weir_forms_subject *subject,
                          const struct weir_forms_choice *choice, uint32_t build)
{
    struct weir_forms_item *item = subject->item;
    uint64_t workers = (uint64_t)subject->set->facts[build].per_sm * bench->sms;
    uint32_t setting = 0, i;

    if (weir_forms_is_loop(build)) {
        setting = weir_forms_task_blocks(choice->kernel_ns, choice->block_ns[build],
                                         subject->work->blocks, workers);
    }
    i = add_variant(bench, subject, build, setting);
    item->candidates |= i != WEIR_FORMS_NONE ? 1u << i : 0;
}

/* The time of a block of a build, as the worker finds it by launches with tasks of any size. */
static bool find_block_ns(const struct weir_forms_bench *bench,
                          const struct weir_forms_subject *subject, uint32_t build,
                          uint64_t *ret_ns)
{
    const struct weir_forms_variant variant = {build, WEIR_FORMS_TASK_UNKNOWN};
    uint64_t workers = (uint64_t)subject->set->facts[build].per_sm * bench->sms;
    double us = 0;

    /* The first one warms up. */
    if (!time_batch(bench, subject, &variant, 1, &us) ||
        !time_batch(bench, subject, &variant, 1, &us)) {
        return false;
    }
    *ret_ns = (uint64_t)(us * 1e3 / subject->work->blocks * (double)workers);
    return true;
}

/* What the worker tries, one after the other. Its plain twin is the one with the original's
 * carve-out, where there is one. */
static bool list_candidates(const struct weir_forms_bench *bench,
                            const struct weir_forms_subject *subject,
                            struct weir_forms_choice *choice)
{
    static const uint32_t builds[] = {WEIR_FORMS_CARVED, WEIR_FORMS_PERSISTENT, WEIR_FORMS_CAPPED,
                                      WEIR_FORMS_ROOMY};

    for (size_t i = 0; i < sizeof(builds) / sizeof(builds[0]); i++) {
        uint64_t *block_ns = &choice->block_ns[builds[i]];

        if (!is_usable(subject, builds[i]) ||
            (builds[i] == WEIR_FORMS_PERSISTENT && choice->kernel_ns != 0) ||
            (builds[i] == WEIR_FORMS_ROOMY &&
             !weir_forms_is_roomy_enough(subject->set->facts[builds[i]].per_sm,
                                         subject->set->facts[WEIR_FORMS_ORIGINAL].per_sm))) {
            continue;
        }
        if (!find_block_ns(bench, subject, builds[i], block_ns)) {
            return false;
        }
        choice->kernel_ns = choice->kernel_ns == 0 ? *block_ns : choice->kernel_ns;
        add_candidate(bench, subject, choice, builds[i]);
    }
    if (choice->kernel_ns == 0 && is_usable(subject, WEIR_FORMS_TICKET)) {
        add_candidate(bench, subject, choice, WEIR_FORMS_TICKET);
    }
    return true;
}

/* Behind the original, all of them for the input by which one is chosen, else that and the
 * simplest. */
static bool list_variants(const struct weir_forms_bench *bench,
                          const struct weir_forms_subject *subject,
                          struct weir_forms_choice *choice)
{
    static const uint32_t tasks[] = {1, 2, 4, 8};
    uint32_t n_tasks = choice->is_made ? 1 : sizeof(tasks) / sizeof(tasks[0]);

    if (choice->is_made) {
        add_candidate(bench, subject, choice, choice->build);
    } else if (!list_candidates(bench, subject, choice)) {
        return false;
    }
    add_variant(bench, subject, WEIR_FORMS_TICKET, 0);
    for (uint32_t i = 0; i < n_tasks; i++) {
        add_variant(bench, subject, WEIR_FORMS_PERSISTENT, tasks[i]);
        add_variant(bench, subject, WEIR_FORMS_CAPPED, tasks[i]);
        add_variant(bench, subject, WEIR_FORMS_CARVED, tasks[i]);
        add_variant(bench, subject, WEIR_FORMS_ROOMY, tasks[i]);
    }
    return true;
}

/* ------------------------------------------------------------ rounds */

/* Run a variant on spoilt outputs and compare. */
static bool check_variant(const struct weir_forms_bench *bench,
                          const struct weir_forms_subject *subject,
                          struct weir_forms_timing *timing)
{
    const struct weir_forms_variant *variant = &timing->variant;
    double us;

    if (!weir_forms_work_spoil(subject->work) || !time_batch(bench, subject, variant, 1, &us)) {
        return false;
    }
    if (variant->build == WEIR_FORMS_ORIGINAL) {
        timing->equal = weir_forms_work_keep(subject->work);
        return timing->equal;
    }
    if (!weir_forms_work_compare(subject->work, &timing->differences)) {
        return false;
    }
    timing->equal = timing->differences == 0;
    if (!timing->equal) {
        timing->in_bounds = weir_forms_work_check(subject->work);
        if (!weir_forms_is_broken()) {
            weir_forms_reason(); /* a result, not a failure of the measurement */
        }
    }
    return true;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void summarise(struct weir_forms_timing *timing, const double *original, const double *times,
                      uint32_t rounds)
{
    double sorted[MAX_ROUNDS];

    for (uint32_t i = 0; i < rounds; i++) {
        sorted[i] = times[i] / original[i];
    }
    qsort(sorted, rounds, sizeof(double), compare_doubles);
    timing->ratio = sorted[rounds / 2];
    timing->spread = (sorted[rounds * 3 / 4] - sorted[rounds / 4]) / 2;
    memcpy(sorted, times, rounds * sizeof(double));
    qsort(sorted, rounds, sizeof(double), compare_doubles);
    timing->us = sorted[rounds / 2];
    timing->ran = true;
}

static uint32_t batch_of(double us)
{
    uint32_t n = us > 0 ? (uint32_t)(BATCH_US / us) : MAX_BATCH;

    return n < 1 ? 1 : n > MAX_BATCH ? MAX_BATCH : n;
}

/* Rounds of turns until the time is over. */
static bool time_rounds(const struct weir_forms_bench *bench,
                        const struct weir_forms_subject *subject, double budget_s)
{
    static double times[WEIR_FORMS_MAX_VARIANTS][MAX_ROUNDS];
    struct weir_forms_item *item = subject->item;
    uint64_t begin = weir_forms_now_ns();
    uint32_t max_rounds = bench->quick ? PLAIN_ROUNDS : MAX_ROUNDS;
    uint32_t round = 0;

    for (; round < max_rounds; round++) {
        double spent_s = (double)(weir_forms_now_ns() - begin) * 1e-9;

        if (round >= MIN_ROUNDS && spent_s * (round + 1) / round > budget_s) {
            break;
        }
        for (uint32_t i = 0; i < item->n_timings; i++) {
            /* Every other round backwards: nobody always comes behind the same. */
            uint32_t at = round % 2 ? item->n_timings - 1 - i : i;
            const struct weir_forms_variant *variant = &item->timings[at].variant;
            uint32_t n = bench->quick ? 1 : batch_of(item->original_us);

            if (!time_batch(bench, subject, variant, n, &times[at][round])) {
                return false;
            }
        }
    }
    for (uint32_t i = 0; i < item->n_timings; i++) {
        summarise(&item->timings[i], times[0], times[i], round);
    }
    item->rounds = round;
    return true;
}

static void tell(const struct weir_forms_subject *subject)
{
    const struct weir_forms_item *item = subject->item;
    char text[32];

    for (uint32_t i = 0; i < item->n_timings; i++) {
        const struct weir_forms_timing *timing = &item->timings[i];

        weir_forms_json("overhead",
                        "\"kernel\": \"%s\", \"size\": \"%s\", \"form\": \"%s\", \"us\": %.3f, "
                        "\"ratio\": %.5f, \"spread\": %.5f, \"equal\": %s, \"differences\": %u, "
                        "\"in_bounds\": %s, \"blocks\": %u, \"rounds\": %u, \"chosen\": %s",
                        subject->set->kernel->name, weir_forms_size_names[subject->work->size],
                        weir_forms_variant_text(&timing->variant, text), timing->us, timing->ratio,
                        timing->spread, timing->equal ? "true" : "false", timing->differences,
                        timing->equal || timing->in_bounds ? "true" : "false", item->blocks,
                        item->rounds, i == item->chosen ? "true" : "false");
    }
}

/* The fastest that the worker tries. */
static void choose(const struct weir_forms_subject *subject, struct weir_forms_choice *choice)
{
    struct weir_forms_item *item = subject->item;

    item->chosen = WEIR_FORMS_NONE;
    for (uint32_t i = 0; i < item->n_timings; i++) {
        if ((item->candidates >> i & 1) != 0 &&
            (item->chosen == WEIR_FORMS_NONE ||
             item->timings[i].ratio < item->timings[item->chosen].ratio)) {
            item->chosen = i;
        }
    }
    if (item->chosen != WEIR_FORMS_NONE && !choice->is_made) {
        choice->is_made = true;
        choice->build = item->timings[item->chosen].variant.build;
    }
}

static void set_block_us(struct weir_forms_item *item, uint32_t slots)
{
    item->block_us =
        item->original_us * (slots < item->blocks ? slots : item->blocks) / (double)item->blocks;
}

bool weir_forms_measure_overhead(struct weir_forms_bench *bench,
                                 const struct weir_forms_subject *subject,
                                 struct weir_forms_choice *choice, double budget_s)
{
    struct weir_forms_item *item = subject->item;
    uint32_t slots = (uint32_t)subject->set->facts[WEIR_FORMS_ORIGINAL].per_sm * bench->sms;

    item->blocks = subject->work->blocks;
    item->n_timings = item->candidates = 0;
    add_variant(bench, subject, WEIR_FORMS_ORIGINAL, 0);
    if (!check_variant(bench, subject, &item->timings[0]) ||
        !list_variants(bench, subject, choice)) {
        return false;
    }
    for (uint32_t i = 1; i < item->n_timings; i++) {
        if (!check_variant(bench, subject, &item->timings[i])) {
            return false;
        }
    }
    if (!time_batch(bench, subject, &item->timings[0].variant, 1, &item->original_us)) {
        return false;
    }
    set_block_us(item, slots); /* roughly: whether workers look always depends on it */
    if (!time_rounds(bench, subject, budget_s)) {
        return false;
    }
    item->original_us = item->timings[0].us;
    set_block_us(item, slots);
    choose(subject, choice);
    tell(subject);
    return true;
}
