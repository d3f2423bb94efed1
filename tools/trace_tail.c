#include "tools/trace_tail.h"

#include "base/text.h"
#include "sched/sim/waits.h"
#include "tools/command.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TENANTS_MAX 25u /* most tenants in the text output */

static double ms(uint64_t ns)
{
    return (double)ns / 1e6;
}

static const char *name_of(const struct weir_sim_waits *waits, uint32_t tenant, char *scratch)
{
    const char *name = waits->tenants[tenant].name;
    (void)snprintf(scratch, WEIR_SCHED_TRACE_NAME_BYTES, "tenant %u", tenant + 1);
    return name[0] ? name : scratch;
}

static void add(struct weir_sim_waited *sum, const struct weir_sim_waited *more)
{
    sum->ns += more->ns;
    sum->unexplained_ns += more->unexplained_ns;
    for (unsigned c = 0; c < WEIR_SCHED_CAUSE_COUNT; c++) {
        sum->cause_ns[c] += more->cause_ns[c];
    }
}

static void keep_most(uint64_t *most_ns, uint64_t ns)
{
    *most_ns = ns > *most_ns ? ns : *most_ns;
}

static struct weir_sim_waits_tenant sum_of(const struct weir_sim_waits *waits)
{
    struct weir_sim_waits_tenant sum = {.name = ""};
    for (uint32_t i = 0; i < waits->n_tenants; i++) {
        const struct weir_sim_waits_tenant *t = &waits->tenants[i];
        sum.items += t->items;
        add(&sum.sum, &t->sum);
        keep_most(&sum.most.ns, t->most.ns);
        keep_most(&sum.most.unexplained_ns, t->most.unexplained_ns);
        for (unsigned c = 0; c < WEIR_SCHED_CAUSE_COUNT; c++) {
            keep_most(&sum.most.cause_ns[c], t->most.cause_ns[c]);
        }
    }
    return sum;
}

/* ------------------------------------------------------------------ text */

static void print_tenants(const struct weir_sim_waits *waits)
{
    char scratch[WEIR_SCHED_TRACE_NAME_BYTES];
    printf("%-24s %6s %-6s %9s %12s %12s %14s %12s\n", "TENANT", "WEIGHT", "CLASS", "ITEMS",
           "WAITED ms", "LONGEST ms", "UNEXPLAINED ms", "LONGEST ms");
    for (uint32_t i = 0; i < waits->n_tenants && i < TENANTS_MAX; i++) {
        const struct weir_sim_waits_tenant *t = &waits->tenants[i];
        printf("%-24s %6u %-6s %9" PRIu64 " %12.3f %12.3f %14.3f %12.3f\n",
               name_of(waits, i, scratch), t->weight, weir_priority_names[t->priority], t->items,
               ms(t->sum.ns), ms(t->most.ns), ms(t->sum.unexplained_ns),
               ms(t->most.unexplained_ns));
    }
    if (waits->n_tenants > TENANTS_MAX) {
        printf("and %u more (--json has all)\n", waits->n_tenants - TENANTS_MAX);
    }
}

static void print_causes(const struct weir_sim_waits_tenant *sum)
{
    printf("\n%-10s %12s %12s\n", "CAUSE", "ALL ms", "LONGEST ms");
    for (unsigned c = 0; c < WEIR_SCHED_CAUSE_COUNT; c++) {
        if (sum->sum.cause_ns[c]) {
            printf("%-10s %12.3f %12.3f  %s%s\n", weir_sched_causes[c].word,
                   ms(sum->sum.cause_ns[c]), ms(sum->most.cause_ns[c]),
                   weir_sched_causes[c].is_explained ? "" : "unexplained: ",
                   weir_sched_causes[c].text);
        }
    }
}

static int longest_first(const void *left, const void *right)
{
    const struct weir_sim_waited_for *a = left, *b = right;
    return a->ns != b->ns ? (a->ns < b->ns ? 1 : -1) : 0;
}

/* Who waited for whom. */
static void print_others(const struct weir_sim_waits *waits)
{
    char scratch[2][WEIR_SCHED_TRACE_NAME_BYTES];
    if (waits->n_waited_for) {
        printf("\n%-24s %-10s %-24s %12s\n", "TENANT", "CAUSE", "WAITED FOR", "ALL ms");
    }
    for (uint32_t i = 0; i < waits->n_waited_for && i < TENANTS_MAX; i++) {
        const struct weir_sim_waited_for *w = &waits->waited_for[i];
        printf("%-24s %-10s %-24s %12.3f\n", name_of(waits, w->tenant, scratch[0]),
               weir_sched_causes[w->cause].word, name_of(waits, w->other, scratch[1]), ms(w->ns));
    }
    if (waits->n_waited_for > TENANTS_MAX) {
        printf("and %u more (--json has all)\n", waits->n_waited_for - TENANTS_MAX);
    }
}

/* The tenant that a wait was for; "" for none. */
static const char *other_of(const struct weir_sim_waits *waits, const struct weir_sim_wait *w,
                            unsigned cause, char *scratch)
{
    uint32_t other = w->others[cause];
    return other == 0                       ? ""
           : other == WEIR_SIM_WAIT_SEVERAL ? "several"
                                            : name_of(waits, other - 1, scratch);
}

static void print_worst(const struct weir_sim_waits *waits)
{
    char scratch[WEIR_SCHED_TRACE_NAME_BYTES];
    if (waits->n_worst) {
        printf("\nthe longest waits, those that nothing explains first:\n");
    }
    for (uint32_t i = 0; i < waits->n_worst; i++) {
        const struct weir_sim_wait *w = &waits->worst[i];
        const char *event = weir_sched_trace_kind_word(w->ended_by);
        printf("%.9f %s item=%" PRIx64 " class=%s waited %.3f ms, unexplained %.3f:",
               (double)w->arrived_ns / 1e9, name_of(waits, w->tenant, scratch), w->item,
               weir_sched_trace_class_word(w->class), ms(w->waited.ns),
               ms(w->waited.unexplained_ns));
        for (unsigned c = 0; c < WEIR_SCHED_CAUSE_COUNT; c++) {
            if (w->waited.cause_ns[c]) {
                const char *other = other_of(waits, w, c, scratch);
                printf(" %s=%.3f%s%s", weir_sched_causes[c].word, ms(w->waited.cause_ns[c]),
                       *other ? " for " : "", other);
            }
        }
        printf(event ? "; granted at: %s\n" : "; not granted\n", event);
    }
}

static void print_text(const struct weir_sim_waits *waits, const struct weir_sim_waits_tenant *sum)
{
    printf("%.6f s, %u tenants, %" PRIu64 " items\n", (double)waits->ns / 1e9, waits->n_tenants,
           sum->items);
    if (waits->lost || waits->unknown) {
        printf("the trace is incomplete: %" PRIu64 " records lost, %" PRIu64
               " about what came before it\n",
               waits->lost, waits->unknown);
    }
    printf("waited %.3f ms, %.3f ms of it unexplained\n\n", ms(sum->sum.ns),
           ms(sum->sum.unexplained_ns));
    print_tenants(waits);
    print_causes(sum);
    print_others(waits);
    print_worst(waits);
}

/* ------------------------------------------------------------------ JSON */

static void put_causes(const uint64_t *cause_ns)
{
    const char *comma = "";
    for (unsigned c = 0; c < WEIR_SCHED_CAUSE_COUNT; c++) {
        if (cause_ns[c]) {
            printf("%s\"%s\":%.9f", comma, weir_sched_causes[c].word, (double)cause_ns[c] / 1e9);
            comma = ",";
        }
    }
}

static void put_sums(const struct weir_sim_waits_tenant *t)
{
    printf("\"items\":%" PRIu64 ",\"waited_s\":%.9f,\"longest_s\":%.9f,\"unexplained_s\":%.9f,"
           "\"longest_unexplained_s\":%.9f,\"causes\":{",
           t->items, (double)t->sum.ns / 1e9, (double)t->most.ns / 1e9,
           (double)t->sum.unexplained_ns / 1e9, (double)t->most.unexplained_ns / 1e9);
    put_causes(t->sum.cause_ns);
    printf("},\"longest_by_cause\":{");
    put_causes(t->most.cause_ns);
    printf("}");
}

static void put_others(const struct weir_sim_waits *waits, uint32_t tenant)
{
    char scratch[WEIR_SCHED_TRACE_NAME_BYTES];
    const char *comma = "";
    printf(",\"waited_for\":[");
    for (uint32_t i = 0; i < waits->n_waited_for; i++) {
        const struct weir_sim_waited_for *w = &waits->waited_for[i];
        if (w->tenant == tenant) {
            printf("%s{\"other\":", comma);
            weir_json_put(stdout, name_of(waits, w->other, scratch));
            printf(",\"cause\":\"%s\",\"waited_s\":%.9f}", weir_sched_causes[w->cause].word,
                   (double)w->ns / 1e9);
            comma = ",";
        }
    }
    printf("]");
}

static void put_worst_others(const struct weir_sim_waits *waits, const struct weir_sim_wait *w)
{
    char scratch[WEIR_SCHED_TRACE_NAME_BYTES];
    const char *comma = "";
    printf("},\"waited_for\":{");
    for (unsigned c = 0; c < WEIR_SCHED_CAUSE_COUNT; c++) {
        const char *other = other_of(waits, w, c, scratch);
        if (*other) {
            printf("%s\"%s\":", comma, weir_sched_causes[c].word);
            weir_json_put(stdout, other);
            comma = ",";
        }
    }
    printf("}}");
}

static void print_json(const struct weir_sim_waits *waits, const struct weir_sim_waits_tenant *sum)
{
    char scratch[WEIR_SCHED_TRACE_NAME_BYTES];
    printf("{\"time_s\":%.9f,\"lost\":%" PRIu64 ",\"unknown\":%" PRIu64 ",",
           (double)waits->ns / 1e9, waits->lost, waits->unknown);
    put_sums(sum);
    printf(",\"tenants\":[");
    for (uint32_t i = 0; i < waits->n_tenants; i++) {
        const struct weir_sim_waits_tenant *t = &waits->tenants[i];
        printf("%s{\"name\":", i ? "," : "");
        weir_json_put(stdout, name_of(waits, i, scratch));
        printf(",\"weight\":%u,\"priority\":\"%s\",", t->weight, weir_priority_names[t->priority]);
        put_sums(t);
        put_others(waits, i);
        printf("}");
    }
    printf("],\"worst\":[");
    for (uint32_t i = 0; i < waits->n_worst; i++) {
        const struct weir_sim_wait *w = &waits->worst[i];
        const char *event = weir_sched_trace_kind_word(w->ended_by);
        printf("%s{\"at_s\":%.9f,\"tenant\":", i ? "," : "", (double)w->arrived_ns / 1e9);
        weir_json_put(stdout, name_of(waits, w->tenant, scratch));
        printf(",\"item\":\"%" PRIx64
               "\",\"class\":\"%s\",\"waited_s\":%.9f,\"unexplained_s\":%.9f,"
               "\"granted_at\":\"%s\",\"causes\":{",
               w->item, weir_sched_trace_class_word(w->class), (double)w->waited.ns / 1e9,
               (double)w->waited.unexplained_ns / 1e9, event ? event : "");
        put_causes(w->waited.cause_ns);
        put_worst_others(waits, w);
    }
    printf("]}\n");
}

/* ------------------------------------------------------------------ all */

int weir_trace_tail(const char *path, const void *data, uint64_t bytes, uint32_t n_worst,
                    uint64_t bound_ns, bool is_json)
{
    struct weir_sched_trace_error error;
    struct weir_sim_waits waits;
    enum weir_status status = weir_sim_waits_read(data, bytes, n_worst, &waits, &error);
    int exit_status = WEIR_EXIT_OK;
    if (status == WEIR_ERR_NO_MEMORY) {
        fprintf(stderr, "weir trace: %s: no memory\n", path);
        return WEIR_EXIT_FAILED;
    }
    if (status != WEIR_OK) {
        fprintf(stderr, "weir trace: %s: offset %" PRIu64 ": %s\n", path, error.offset, error.text);
        return WEIR_EXIT_FAILED;
    }
    struct weir_sim_waits_tenant sum = sum_of(&waits);
    if (waits.n_waited_for) {
        qsort(waits.waited_for, waits.n_waited_for, sizeof waits.waited_for[0], longest_first);
    }
    if (is_json) {
        print_json(&waits, &sum);
    } else {
        print_text(&waits, &sum);
    }
    if (fflush(stdout) != 0) {
        fprintf(stderr, "weir trace: standard output: %s\n", strerror(errno));
        exit_status = WEIR_EXIT_FAILED;
    } else if (sum.most.unexplained_ns > bound_ns) {
        fprintf(stderr,
                "weir trace: %s: %.3f ms of a wait are unexplained, more than --bound %.3f ms\n",
                path, ms(sum.most.unexplained_ns), ms(bound_ns));
        exit_status = WEIR_EXIT_FAILED;
    }
    weir_sim_waits_finish(&waits);
    return exit_status;
}
