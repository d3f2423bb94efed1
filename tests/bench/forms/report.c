/* Summaries of samples, lines of JSON, tables of Markdown. */
#include "tests/bench/forms/report.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

const char *const weir_forms_way_names[] = {"write", "set", "copy"};

static FILE *json;

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

struct weir_forms_times weir_forms_times_of(double *samples, uint32_t n)
{
    struct weir_forms_times times = {.n = n};

    if (n > 0) {
        qsort(samples, n, sizeof(double), compare_doubles);
        times.p50 = samples[n / 2];
        times.p99 = samples[(uint64_t)n * 99 / 100];
        times.max = samples[n - 1];
    }
    return times;
}

void weir_forms_json_open(FILE *out)
{
    json = out;
}

void weir_forms_json(const char *kind, const char *fmt, ...)
{
    va_list args;

    if (!json) {
        return;
    }
    fprintf(json, "{\"kind\": \"%s\", ", kind);
    va_start(args, fmt);
    vfprintf(json, fmt, args);
    va_end(args);
    fputs("}\n", json);
    fflush(json);
}

const char *weir_forms_variant_text(const struct weir_forms_variant *variant, char text[32])
{
    if (variant->setting) {
        snprintf(text, 32, "%s %u", weir_forms_build_names[variant->build], variant->setting);
    } else {
        snprintf(text, 32, "%s", weir_forms_build_names[variant->build]);
    }
    return text;
}

/* ------------------------------------------------------------ twins */

static void write_twins(const struct weir_forms_results *results, FILE *out)
{
    fputs(
        "### Twins\n\nRegisters of a thread / static shared bytes of a block / blocks on an SM.\n\n"
        "| kernel | original | ticket | persistent | registers limited | cache kept | "
        "more registers | passes ms | driver's compiler ms |\n"
        "|---|---|---|---|---|---|---|---|---|\n",
        out);
    for (uint32_t k = 0; k < weir_forms_n_kernels; k++) {
        if (!results->kernels[k].facts[WEIR_FORMS_ORIGINAL].there) {
            continue;
        }
        fprintf(out, "| %s |", weir_forms_kernels[k]->name);
        for (uint32_t build = 0; build < WEIR_FORMS_BUILD_COUNT; build++) {
            const struct weir_forms_facts *facts = &results->kernels[k].facts[build];

            if (facts->there) {
                fprintf(out, " %d / %d / %d |", facts->registers, facts->shared_bytes,
                        facts->per_sm);
            } else {
                fprintf(out, " %s |", facts->reason);
            }
        }
        fprintf(out, " %.1f | %.0f |\n", results->kernels[k].make_ms, results->kernels[k].load_ms);
    }
    fputc('\n', out);
}

/* ------------------------------------------------------------ overhead */

struct mean {
    double sum_of_logs, worst;
    uint32_t n;
};

static void mean_add(struct mean *mean, double ratio)
{
    mean->sum_of_logs += log(ratio);
    mean->worst = mean->n == 0 || ratio > mean->worst ? ratio : mean->worst;
    mean->n++;
}

static double pct(double ratio)
{
    return (ratio - 1) * 100;
}

static const struct weir_forms_timing *find_timing(const struct weir_forms_item *item,
                                                   const struct weir_forms_variant *variant)
{
    for (uint32_t i = 0; i < item->n_timings; i++) {
        if (item->timings[i].ran &&
            memcmp(&item->timings[i].variant, variant, sizeof(*variant)) == 0) {
            return &item->timings[i];
        }
    }
    return NULL;
}

/* clang-format off */
#define TASKS(build) {build, 1}, {build, 2}, {build, 4}, {build, 8}
/* clang-format on */
static const struct weir_forms_variant columns[] = {{WEIR_FORMS_TICKET, 0},
                                                    TASKS(WEIR_FORMS_PERSISTENT),
                                                    TASKS(WEIR_FORMS_CAPPED),
                                                    TASKS(WEIR_FORMS_CARVED),
                                                    TASKS(WEIR_FORMS_ROOMY)};
#define N_COLUMNS (sizeof(columns) / sizeof(columns[0]))

static void write_mean(const char *name, const struct mean *mean, FILE *out)
{
    if (mean->n > 0) {
        fprintf(out, "- %s: geometric mean %+.2f %%, worst %+.2f %%, of %u kernels\n", name,
                pct(exp(mean->sum_of_logs / mean->n)), pct(mean->worst), mean->n);
    }
}

/* What the worker would choose among, and what it would choose. */
static void write_choice(const char *name, const struct weir_forms_item *item, FILE *out)
{
    const char *before = ": ";
    char text[32];

    if (item->candidates == 0) {
        return;
    }
    fprintf(out, "- %s, block %.1f us", name, item->block_us);
    for (uint32_t i = 0; i < item->n_timings; i++) {
        const char *bold = i == item->chosen ? "**" : "";

        if (item->candidates >> i & 1) {
            fprintf(out, "%s%s%s%s %+.2f %%", before, bold,
                    weir_forms_variant_text(&item->timings[i].variant, text), bold,
                    pct(item->timings[i].ratio));
            before = "; ";
        }
    }
    fputc('\n', out);
}

static void write_timing(const struct weir_forms_timing *timing, FILE *out)
{
    fprintf(out, " %+.2f +-%.2f%s |", pct(timing->ratio), timing->spread * 100,
            timing->equal       ? ""
            : timing->in_bounds ? " ~"
                                : " !=");
}

static void write_chosen(const struct weir_forms_item *item, struct mean *mean, FILE *out)
{
    char text[32];

    if (item->chosen == WEIR_FORMS_NONE) {
        fputs(" |", out);
        return;
    }
    const struct weir_forms_timing *timing = &item->timings[item->chosen];

    fprintf(out, " **%s**", weir_forms_variant_text(&timing->variant, text));
    write_timing(timing, out);
    mean_add(mean, timing->ratio);
}

static void write_overhead(const struct weir_forms_results *results, enum weir_forms_size size,
                           FILE *out)
{
    struct mean means[N_COLUMNS] = {0}, chosen = {0};
    char text[32];

    fprintf(out,
            "### Never stopped, %s inputs: time above the original's, %%\n\n"
            "Medians; behind +-, half of the distance between the quartiles. Behind the form: "
            "blocks of a task. **The chosen one**, as the worker would; != results are "
            "wrong; ~ they are not the original's to the bit, but right.\n\n"
            "| kernel | blocks | original us | block us | chosen |",
            weir_forms_size_names[size]);
    for (size_t c = 0; c < N_COLUMNS; c++) {
        fprintf(out, " %s |", weir_forms_variant_text(&columns[c], text));
    }
    fputs("\n|---|---|---|---|---|", out);
    for (size_t c = 0; c < N_COLUMNS; c++) {
        fputs("---|", out);
    }
    fputc('\n', out);
    for (uint32_t k = 0; k < weir_forms_n_kernels; k++) {
        const struct weir_forms_item *item = &results->items[k][size];

        if (item->n_timings == 0 || !item->timings[0].ran) {
            continue;
        }
        fprintf(out, "| %s | %u | %.1f | %.2f |", weir_forms_kernels[k]->name, item->blocks,
                item->original_us, item->block_us);
        write_chosen(item, &chosen, out);
        for (size_t c = 0; c < N_COLUMNS; c++) {
            const struct weir_forms_timing *timing = find_timing(item, &columns[c]);

            if (!timing) {
                fputs(" |", out);
                continue;
            }
            write_timing(timing, out);
            mean_add(&means[c], timing->ratio);
        }
        fputc('\n', out);
    }
    fputc('\n', out);
    for (size_t c = 0; c < N_COLUMNS; c++) {
        write_mean(weir_forms_variant_text(&columns[c], text), &means[c], out);
    }
    write_mean("**chosen**", &chosen, out);
    for (uint32_t k = 0; k < weir_forms_n_kernels; k++) {
        write_choice(weir_forms_kernels[k]->name, &results->items[k][size], out);
    }
    if (size == WEIR_FORMS_LARGE && chosen.n > 0) {
        fprintf(out, "- asked for: mean at most %.1f %%, worst at most %.1f %%\n",
                WEIR_FORMS_GOAL_MEAN_PCT, WEIR_FORMS_GOAL_WORST_PCT);
    }
    fputc('\n', out);
}

/* ------------------------------------------------------------ stops */

static void write_stop_row(const char *name, const struct weir_forms_item *item,
                           const struct weir_forms_stops *stops, FILE *out)
{
    char text[32];

    if (stops->runs == 0) {
        return;
    }
    fprintf(out,
            "| %s | %s | %.2f | %u | %.1f | %.1f | %.1f | %.1f | %.1f | %.1f | %.1f | %u | %.1f | "
            "%lld | %s |\n",
            name, weir_forms_variant_text(&stops->variant, text), item->block_us, stops->latency.n,
            stops->latency.p50, stops->latency.p99, stops->latency.max,
            stops->latency.p50 - item->block_us, stops->latency.p99 - item->block_us,
            stops->device.p50, stops->device.p99, stops->host_late, stops->lost_us,
            (long long)stops->blocks_twice, stops->wrong ? "DIFFERENT" : "equal");
}

static void write_stops(const struct weir_forms_results *results, FILE *out)
{
    fprintf(out,
            "### From the decision to stop to the GPU free, us\n\n"
            "Asked for: p50 at most %.0f and p99 at most %.0f above one block. Lost: time of a "
            "stop and resume, all in all, as the host sees it. GPU: from the write to the end by "
            "the GPU's own clock. Host late: stops "
            "in which the host's thread was held up for %.0f us or more. Wrong blocks: done twice "
            "or not at "
            "all. The word is written by %s.\n\n"
            "| kernel | form | block | stops | p50 | p99 | max | p50 - block | p99 - block | GPU "
            "p50 | GPU p99 | host late | lost "
            "| wrong blocks | results |\n"
            "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
            WEIR_FORMS_GOAL_P50_US, WEIR_FORMS_GOAL_P99_US, WEIR_FORMS_LATE_US,
            weir_forms_way_names[results->stop_by]);
    for (uint32_t k = 0; k < weir_forms_n_kernels; k++) {
        for (uint32_t size = 0; size < WEIR_FORMS_SIZE_COUNT; size++) {
            const struct weir_forms_item *item = &results->items[k][size];

            write_stop_row(weir_forms_kernels[k]->name, item, &item->stops, out);
            write_stop_row(weir_forms_kernels[k]->name, item, &item->ticket_stops, out);
        }
    }
    fputc('\n', out);
    for (uint32_t way = 0; way < WEIR_FORMS_WAY_COUNT; way++) {
        if (results->ways[way].n) {
            fprintf(out, "- %s alone, until a word written behind it is seen: p50 %.1f, p99 %.1f\n",
                    weir_forms_way_names[way], results->ways[way].p50, results->ways[way].p99);
        }
    }
    fputs("\n### Stopped, moved, resized and resumed at random, another kernel between\n\n"
          "| kernel | runs | starts | wrong blocks | results |\n|---|---|---|---|---|\n",
          out);
    for (uint32_t k = 0; k < weir_forms_n_kernels; k++) {
        for (uint32_t size = 0; size < WEIR_FORMS_SIZE_COUNT; size++) {
            const struct weir_forms_mixed *mixed = &results->items[k][size].mixed;

            if (mixed->runs) {
                fprintf(out, "| %s | %u | %u | %lld | %s |\n", weir_forms_kernels[k]->name,
                        mixed->runs, mixed->starts, (long long)mixed->blocks_twice,
                        mixed->wrong ? "DIFFERENT" : "equal");
            }
        }
    }
    fputc('\n', out);
}

/* ------------------------------------------------------------ space */

static void write_resizes(const struct weir_forms_results *results, FILE *out)
{
    char text[32];

    fprintf(
        out,
        "### Resizing while it runs, us\n\nFrom the host's decision until the workers' "
        "counters say so. Asked for: %.0f, above the block that a worker must end as for a stop; "
        "one that has taken its next task before it hears of the change does that, too.\n\n"
        "| kernel | form | SMs | block | changes | fewer: p50 | max | p50 - block | more: p50 | "
        "max | results |\n"
        "|---|---|---|---|---|---|---|---|---|---|---|\n",
        WEIR_FORMS_GOAL_RESIZE_US);
    for (uint32_t k = 0; k < weir_forms_n_kernels; k++) {
        for (uint32_t size = 0; size < WEIR_FORMS_SIZE_COUNT; size++) {
            const struct weir_forms_item *item = &results->items[k][size];
            const struct weir_forms_resizes *r = &item->resizes;

            if (r->shrink.n) {
                fprintf(
                    out,
                    "| %s | %s | %u, %u | %.2f | %u | %.1f | %.1f | %.1f | %.1f | %.1f | %s |\n",
                    weir_forms_kernels[k]->name,
                    weir_forms_variant_text(&item->timings[item->chosen].variant, text), r->sms,
                    r->sms_kept, item->block_us, r->shrink.n, r->shrink.p50, r->shrink.max,
                    r->shrink.p50 - item->block_us, r->grow.p50, r->grow.max,
                    r->wrong ? "DIFFERENT" : "equal");
            }
        }
    }
    fputc('\n', out);
}

static void write_spatial(const struct weir_forms_results *results, FILE *out)
{
    fprintf(out,
            "### Yielding to a small kernel: all SMs, or those it needs, us\n\n"
            "Cost: what the large kernel takes longer than undisturbed. Asked for: at least %.0f "
            "%% less.\n\n"
            "| kernel | SMs needed | alone | small alone | cost, all | cost, needed | less by | "
            "small, all | small, needed | turns | results |\n"
            "|---|---|---|---|---|---|---|---|---|---|---|\n",
            WEIR_FORMS_GOAL_SAVED_PCT);
    for (uint32_t k = 0; k < weir_forms_n_kernels; k++) {
        for (uint32_t size = 0; size < WEIR_FORMS_SIZE_COUNT; size++) {
            const struct weir_forms_spatial *s = &results->items[k][size].spatial;
            double all = s->all_us - s->alone_us, some = s->some_us - s->alone_us;

            if (s->n) {
                fprintf(out,
                        "| %s | %u | %.1f | %.1f | %.1f | %.1f | %.0f %% | %.1f | %.1f | %u | %s "
                        "|\n",
                        weir_forms_kernels[k]->name, s->sms_needed, s->alone_us, s->other_us, all,
                        some, all > 0 ? (1 - some / all) * 100 : 0.0, s->other_all_us,
                        s->other_some_us, s->n, s->wrong ? "DIFFERENT" : "equal");
            }
        }
    }
    fputc('\n', out);
}

/* ------------------------------------------------------------ all */

static bool is_wrong(const struct weir_forms_item *item)
{
    uint32_t unequal = 0;

    for (uint32_t i = 0; i < item->n_timings; i++) {
        unequal += !item->timings[i].equal;
    }
    return unequal || item->stops.wrong || item->stops.blocks_twice || item->ticket_stops.wrong ||
           item->ticket_stops.blocks_twice || item->mixed.wrong || item->mixed.blocks_twice ||
           item->resizes.wrong || item->spatial.wrong;
}

uint32_t weir_forms_failures(const struct weir_forms_results *results)
{
    uint32_t failures = 0;

    for (uint32_t k = 0; k < weir_forms_n_kernels; k++) {
        for (uint32_t size = 0; size < WEIR_FORMS_SIZE_COUNT; size++) {
            const struct weir_forms_item *item = &results->items[k][size];

            failures += item->state == WEIR_FORMS_FAILED || item->state == WEIR_FORMS_BEGUN ||
                        (item->state == WEIR_FORMS_DONE && (item->note[0] || is_wrong(item)));
        }
    }
    return failures;
}

static void write_troubles(const struct weir_forms_results *results, FILE *out)
{
    static const char *const states[] = {"not begun", "did not end", "done", "failed", "skipped"};

    for (uint32_t k = 0; k < weir_forms_n_kernels; k++) {
        for (uint32_t size = 0; size < WEIR_FORMS_SIZE_COUNT; size++) {
            const struct weir_forms_item *item = &results->items[k][size];

            if (item->state != WEIR_FORMS_NOT_BEGUN &&
                (item->state != WEIR_FORMS_DONE || item->note[0])) {
                fprintf(out, "- %s, %s: %s: %s\n", weir_forms_kernels[k]->name,
                        weir_forms_size_names[size], states[item->state], item->note);
            }
        }
    }
    fputc('\n', out);
}

void weir_forms_markdown(const struct weir_forms_results *results, FILE *out)
{
    fprintf(out, "%s, driver %d.%d, %d SMs\n\n", results->device, results->driver_version / 1000,
            results->driver_version % 1000 / 10, results->sms);
    write_troubles(results, out);
    write_twins(results, out);
    for (uint32_t size = 0; size < WEIR_FORMS_SIZE_COUNT; size++) {
        bool any = false;

        for (uint32_t k = 0; k < weir_forms_n_kernels; k++) {
            any |= results->items[k][size].n_timings > 0;
        }
        if (any) {
            write_overhead(results, (enum weir_forms_size)size, out);
        }
    }
    write_stops(results, out);
    write_resizes(results, out);
    write_spatial(results, out);
    fflush(out);
}
