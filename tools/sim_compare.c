/* Run the same load under two settings, and print the results in tables with a column for each. */
#include "tools/sim_compare.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NEVER UINT64_MAX

struct side {
    struct weir_sim_result result;
    uint64_t wait_p50_ns, wait_p99_ns, wait_max_ns; /* waits of all items */
};

static int by_value(const void *left, const void *right)
{
    uint64_t a, b;
    memcpy(&a, left, sizeof a);
    memcpy(&b, right, sizeof b);
    return a < b ? -1 : a > b;
}

/* Collect how long items waited, from arrival to start. */
static bool fill_waits(struct side *side)
{
    uint64_t *waits = calloc(side->result.n_items + 1u, sizeof *waits);
    uint32_t n = 0;
    if (!waits) {
        return false;
    }
    for (uint32_t i = 0; i < side->result.n_items; i++) {
        if (side->result.waited_ns[i] != NEVER) {
            waits[n++] = side->result.waited_ns[i];
        }
    }
    qsort(waits, n, sizeof *waits, by_value);
    if (n != 0) {
        side->wait_p50_ns = waits[(n - 1) / 2];
        side->wait_p99_ns = waits[(uint64_t)(n - 1) * 99 / 100];
        side->wait_max_ns = waits[n - 1];
    }
    free(waits);
    return true;
}

static bool run_side(const struct weir_sim_compare *c, int i, struct side *side)
{
    char error[WEIR_SIM_ERROR_BYTES];
    if (weir_sim_run(c->load, &c->params[i], &side->result, error) != WEIR_OK) {
        fprintf(stderr, "weir sim: %s: %s\n", c->label[i], error);
        return false;
    }
    if (!fill_waits(side)) {
        fprintf(stderr, "weir sim: out of memory\n");
        return false;
    }
    return true;
}

/* ------------------------------------------------------------------ the tables */

static void print_row(const char *what, double a, double b)
{
    printf("%-32s %14.2f %14.2f", what, a, b);
    if (a > 0) {
        printf(" %10.3f", b / a);
    }
    putchar('\n');
}

static double seconds(const struct side *side)
{
    return (double)side->result.end_ns / 1e9;
}

static double finished(const struct side *side)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < side->result.n_tenants; i++) {
        sum += side->result.tenants[i].finished;
    }
    return (double)sum;
}

static double used_pct(const struct weir_sim_compare *c, const struct side *side, int i)
{
    double all = (double)side->result.end_ns * c->params[i].gpu.sms * side->result.n_gpus;
    return all > 0 ? 100 * side->result.usage.sm_ns / all : 0;
}

static double engine_pct(const struct side *side, enum weir_sim_engine engine)
{
    double all = (double)side->result.end_ns * side->result.n_gpus;
    return all > 0 ? 100 * side->result.usage.engine_ns[engine] / all : 0;
}

static void print_sums(const struct weir_sim_compare *c, const struct side *s)
{
    printf("A  %s\nB  %s\n\n%-32s %14s %14s %10s\n", c->label[0], c->label[1], "", "A", "B",
           "B / A");
    print_row("time, s", seconds(&s[0]), seconds(&s[1]));
    print_row("finished, items a second", finished(&s[0]) / seconds(&s[0]),
              finished(&s[1]) / seconds(&s[1]));
    print_row("waited, p50, us", (double)s[0].wait_p50_ns / 1e3, (double)s[1].wait_p50_ns / 1e3);
    print_row("waited, p99, us", (double)s[0].wait_p99_ns / 1e3, (double)s[1].wait_p99_ns / 1e3);
    print_row("waited, longest, us", (double)s[0].wait_max_ns / 1e3,
              (double)s[1].wait_max_ns / 1e3);
    print_row("SMs held, %", used_pct(c, &s[0], 0), used_pct(c, &s[1], 1));
    print_row("bus to the device, %", engine_pct(&s[0], WEIR_SIM_H2D),
              engine_pct(&s[1], WEIR_SIM_H2D));
    print_row("bus from the device, %", engine_pct(&s[0], WEIR_SIM_D2H),
              engine_pct(&s[1], WEIR_SIM_D2H));
    print_row("changes of GPU context", (double)s[0].result.usage.switches,
              (double)s[1].result.usage.switches);
    print_row("changes of leader", (double)s[0].result.decisions.counts.switches,
              (double)s[1].result.decisions.counts.switches);
}

static void print_tenants(const struct weir_sim_compare *c, const struct side *s)
{
    uint32_t n = c->load->n_tenants < c->rows ? c->load->n_tenants : c->rows;
    printf("\n%-24s %6s %14s %14s %10s %14s %14s\n", "FINISHED A SECOND", "WEIGHT", "A", "B",
           "B / A", "A: SHARE% SMs", "B: SHARE% SMs");
    for (uint32_t i = 0; i < n; i++) {
        const struct weir_sim_tenant_result *a = &s[0].result.tenants[i];
        const struct weir_sim_tenant_result *b = &s[1].result.tenants[i];
        double of_a = (double)a->finished / seconds(&s[0]);
        double of_b = (double)b->finished / seconds(&s[1]);
        const char *name = c->load->tenants[i].name;
        printf("%-24s %6u %14.2f %14.2f %10.3f %14.2f %14.2f\n", name[0] != '\0' ? name : "?",
               c->load->tenants[i].params.weight, of_a, of_b, of_a > 0 ? of_b / of_a : 0,
               s[0].result.usage.sm_ns > 0 ? 100 * a->sm_ns / s[0].result.usage.sm_ns : 0,
               s[1].result.usage.sm_ns > 0 ? 100 * b->sm_ns / s[1].result.usage.sm_ns : 0);
    }
    if (n < c->load->n_tenants) {
        printf("(%u more: --all)\n", c->load->n_tenants - n);
    }
}

bool weir_sim_compare(const struct weir_sim_compare *compare)
{
    struct side sides[2] = {0};
    bool is_good = run_side(compare, 0, &sides[0]) && run_side(compare, 1, &sides[1]);
    if (is_good) {
        print_sums(compare, sides);
        print_tenants(compare, sides);
    }
    for (int i = 0; i < 2; i++) {
        weir_sim_result_finish(&sides[i].result);
    }
    return is_good;
}
