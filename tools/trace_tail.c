#include "tools/trace_tail.h"

#include "base/text.h"
#include "sched/sim/tail.h"
#include "tools/command.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define TENANTS_MAX 25u /* in text */

static double ms(uint64_t ns)
{
    return (double)ns / 1e6;
}

static const char *name_of(const struct weir_sim_tail *tail, uint32_t tenant, char *scratch)
{
    const char *name = tail->tenants[tenant].name;
    (void)snprintf(scratch, WEIR_SCHED_TRACE_NAME_BYTES, "tenant %u", tenant + 1);
    return name[0] ? name : scratch;
}

static struct weir_sim_tail_tenant sum_of(const struct weir_sim_tail *tail)
{
    struct weir_sim_tail_tenant sum = {.name = ""};
    for (uint32_t i = 0; i < tail->n_tenants; i++) {
        const struct weir_sim_tail_tenant *t = &tail->tenants[i];
        sum.items += t->items;
        sum.waited_ns += t->waited_ns;
        sum.unexplained_ns += t->unexplained_ns;
        if (t->longest_ns > sum.longest_ns) {
            sum.longest_ns = t->longest_ns;
        }
        if (t->longest_unexplained_ns > sum.longest_unexplained_ns) {
            sum.longest_unexplained_ns = t->longest_unexplained_ns;
        }
        for (unsigned c = 0; c < WEIR_SIM_TAIL_COUNT; c++) {
            sum.cause_ns[c] += t->cause_ns[c];
            if (t->longest_by_cause_ns[c] > sum.longest_by_cause_ns[c]) {
                sum.longest_by_cause_ns[c] = t->longest_by_cause_ns[c];
            }
        }
    }
    return sum;
}

/* ------------------------------------------------------------------ text */

static void print_tenants(const struct weir_sim_tail *tail)
{
    char scratch[WEIR_SCHED_TRACE_NAME_BYTES];
    printf("%-24s %6s %-6s %9s %12s %12s %14s %12s\n", "TENANT", "WEIGHT", "CLASS", "ITEMS",
           "WAITED ms", "LONGEST ms", "UNEXPLAINED ms", "LONGEST ms");
    for (uint32_t i = 0; i < tail->n_tenants && i < TENANTS_MAX; i++) {
        const struct weir_sim_tail_tenant *t = &tail->tenants[i];
        printf("%-24s %6u %-6s %9" PRIu64 " %12.3f %12.3f %14.3f %12.3f\n",
               name_of(tail, i, scratch), t->weight, weir_priority_names[t->priority], t->items,
               ms(t->waited_ns), ms(t->longest_ns), ms(t->unexplained_ns),
               ms(t->longest_unexplained_ns));
    }
    if (tail->n_tenants > TENANTS_MAX) {
        printf("and %u more (--json has all)\n", tail->n_tenants - TENANTS_MAX);
    }
}

static void print_causes(const struct weir_sim_tail_tenant *sum)
{
    printf("\n%-10s %12s %12s\n", "CAUSE", "ALL ms", "LONGEST ms");
    for (unsigned c = 0; c < WEIR_SIM_TAIL_COUNT; c++) {
        if (sum->cause_ns[c]) {
            printf("%-10s %12.3f %12.3f  %s%s\n", weir_sim_tail_causes[c].word,
                   ms(sum->cause_ns[c]), ms(sum->longest_by_cause_ns[c]),
                   weir_sim_tail_causes[c].is_explained ? "" : "unexplained: ",
                   weir_sim_tail_causes[c].text);
        }
    }
}

static void print_worst(const struct weir_sim_tail *tail)
{
    char scratch[WEIR_SCHED_TRACE_NAME_BYTES];
    if (tail->n_worst) {
        printf("\nthe longest unexplained waits:\n");
    }
    for (uint32_t i = 0; i < tail->n_worst; i++) {
        const struct weir_sim_tail_wait *w = &tail->worst[i];
        const char *event = weir_sched_trace_kind_word(w->ended_by);
        printf("%.9f %s item=%" PRIx64 " class=%s waited %.3f ms, unexplained %.3f:",
               (double)w->arrived_ns / 1e9, name_of(tail, w->tenant, scratch), w->item,
               weir_sched_trace_class_word(w->class), ms(w->waited_ns), ms(w->unexplained_ns));
        for (unsigned c = 0; c < WEIR_SIM_TAIL_COUNT; c++) {
            if (w->cause_ns[c]) {
                printf(" %s=%.3f", weir_sim_tail_causes[c].word, ms(w->cause_ns[c]));
            }
        }
        printf(event ? "; granted at: %s\n" : "; not granted\n", event);
    }
}

static void print_text(const struct weir_sim_tail *tail, const struct weir_sim_tail_tenant *sum)
{
    printf("%.6f s, %u tenants, %" PRIu64 " items\n", (double)tail->ns / 1e9, tail->n_tenants,
           sum->items);
    if (tail->lost || tail->unknown) {
        printf("the trace is incomplete: %" PRIu64 " records lost, %" PRIu64
               " about what came before it\n",
               tail->lost, tail->unknown);
    }
    printf("waited %.3f ms, %.3f ms of it unexplained\n\n", ms(sum->waited_ns),
           ms(sum->unexplained_ns));
    print_tenants(tail);
    print_causes(sum);
    print_worst(tail);
}

/* ------------------------------------------------------------------ JSON */

static void put_causes(const uint64_t *cause_ns)
{
    const char *comma = "";
    for (unsigned c = 0; c < WEIR_SIM_TAIL_COUNT; c++) {
        if (cause_ns[c]) {
            printf("%s\"%s\":%.9f", comma, weir_sim_tail_causes[c].word, (double)cause_ns[c] / 1e9);
            comma = ",";
        }
    }
}

static void put_sums(const struct weir_sim_tail_tenant *t)
{
    printf("\"items\":%" PRIu64 ",\"waited_s\":%.9f,\"longest_s\":%.9f,\"unexplained_s\":%.9f,"
           "\"longest_unexplained_s\":%.9f,\"causes\":{",
           t->items, (double)t->waited_ns / 1e9, (double)t->longest_ns / 1e9,
           (double)t->unexplained_ns / 1e9, (double)t->longest_unexplained_ns / 1e9);
    put_causes(t->cause_ns);
    printf("},\"longest_by_cause\":{");
    put_causes(t->longest_by_cause_ns);
    printf("}");
}

static void print_json(const struct weir_sim_tail *tail, const struct weir_sim_tail_tenant *sum)
{
    char scratch[WEIR_SCHED_TRACE_NAME_BYTES];
    printf("{\"time_s\":%.9f,\"lost\":%" PRIu64 ",\"unknown\":%" PRIu64 ",", (double)tail->ns / 1e9,
           tail->lost, tail->unknown);
    put_sums(sum);
    printf(",\"tenants\":[");
    for (uint32_t i = 0; i < tail->n_tenants; i++) {
        const struct weir_sim_tail_tenant *t = &tail->tenants[i];
        printf("%s{\"name\":", i ? "," : "");
        weir_json_put(stdout, name_of(tail, i, scratch));
        printf(",\"weight\":%u,\"priority\":\"%s\",", t->weight, weir_priority_names[t->priority]);
        put_sums(t);
        printf("}");
    }
    printf("],\"worst\":[");
    for (uint32_t i = 0; i < tail->n_worst; i++) {
        const struct weir_sim_tail_wait *w = &tail->worst[i];
        const char *event = weir_sched_trace_kind_word(w->ended_by);
        printf("%s{\"at_s\":%.9f,\"tenant\":", i ? "," : "", (double)w->arrived_ns / 1e9);
        weir_json_put(stdout, name_of(tail, w->tenant, scratch));
        printf(",\"item\":\"%" PRIx64
               "\",\"class\":\"%s\",\"waited_s\":%.9f,\"unexplained_s\":%.9f,"
               "\"granted_at\":\"%s\",\"causes\":{",
               w->item, weir_sched_trace_class_word(w->class), (double)w->waited_ns / 1e9,
               (double)w->unexplained_ns / 1e9, event ? event : "");
        put_causes(w->cause_ns);
        printf("}}");
    }
    printf("]}\n");
}

/* ------------------------------------------------------------------ all */

int weir_trace_tail(const char *path, const void *data, uint64_t bytes, uint32_t n_worst,
                    uint64_t bound_ns, bool is_json)
{
    struct weir_sched_trace_error error;
    struct weir_sim_tail tail;
    enum weir_status status = weir_sim_tail_read(data, bytes, n_worst, &tail, &error);
    int exit_status = WEIR_EXIT_OK;
    if (status == WEIR_ERR_NO_MEMORY) {
        fprintf(stderr, "weir trace: %s: no memory\n", path);
        return WEIR_EXIT_FAILED;
    }
    if (status != WEIR_OK) {
        fprintf(stderr, "weir trace: %s: offset %" PRIu64 ": %s\n", path, error.offset, error.text);
        return WEIR_EXIT_FAILED;
    }
    struct weir_sim_tail_tenant sum = sum_of(&tail);
    if (is_json) {
        print_json(&tail, &sum);
    } else {
        print_text(&tail, &sum);
    }
    if (fflush(stdout) != 0) {
        fprintf(stderr, "weir trace: standard output: %s\n", strerror(errno));
        exit_status = WEIR_EXIT_FAILED;
    } else if (sum.longest_unexplained_ns > bound_ns) {
        fprintf(stderr,
                "weir trace: %s: %.3f ms of a wait are unexplained, more than --bound %.3f ms\n",
                path, ms(sum.longest_unexplained_ns), ms(bound_ns));
        exit_status = WEIR_EXIT_FAILED;
    }
    weir_sim_tail_finish(&tail);
    return exit_status;
}
