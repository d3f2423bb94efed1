#include "tools/sim_report.h"

#include "base/text.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define SHARES_COLUMNS 12u

static double percent(double part, double whole)
{
    return whole > 0 ? 100 * part / whole : 0;
}

static const char *name_of(const struct weir_sim_report *r, uint32_t tenant, char *scratch)
{
    const char *name = r->load->tenants[tenant].name;
    (void)snprintf(scratch, WEIR_SCHED_TRACE_NAME_BYTES, "tenant %u", tenant + 1);
    return name[0] ? name : scratch;
}

/* The run's duration, on all GPUs together. */
static double gpu_time(const struct weir_sim_report *r)
{
    return (double)r->result->end_ns * r->result->n_gpus;
}

static double sm_time(const struct weir_sim_report *r)
{
    return gpu_time(r) * r->params->gpu.sms;
}

static void print_load(const struct weir_sim_report *r)
{
    const struct weir_sim_load *load = r->load;
    printf("load       %u tenants, %u queues, %u items%s\n", load->n_tenants, load->n_queues,
           load->n_items - load->left_out,
           load->header.flags & WEIR_SCHED_TRACE_GENERATED ? ", made up" : "");
    if (load->left_out || load->estimated) {
        printf("           %u items left out (nothing says how long they take), the time of %u "
               "estimated\n",
               load->left_out, load->estimated);
    }
    if (load->lost || load->unknown || load->is_cut) {
        printf("           the trace is incomplete: %" PRIu64 " records lost, %u about the unknown"
               "%s\n",
               load->lost, load->unknown, load->is_cut ? ", no end" : "");
    }
    if (load->header.sms != r->params->gpu.sms) {
        printf("           recorded on %u SMs: blocks are taken to last as long here\n",
               load->header.sms);
    }
    printf("device     %s, %u SMs (%s)\n", r->params->gpu.name, r->params->gpu.sms,
           r->params->gpu.about);
    if (r->result->n_gpus > 1) {
        printf("           %u of these\n", r->result->n_gpus);
    }
    printf("policies   %s\n", r->policies);
}

static void print_sums(const struct weir_sim_report *r)
{
    const struct weir_sim_result *result = r->result;
    const struct weir_sim_usage *u = &result->usage;
    const struct weir_sim_decisions *d = &result->decisions;
    double end = gpu_time(r);
    printf("time       %.6f s%s\n", (double)result->end_ns / 1e9,
           result->was_cut ? " (cut; work is left)" : "");
    if (r->metrics) {
        printf("STP        %.4f of %u programs\nANTT       %.4f (kernels' turnaround: %.4f)\n",
               r->metrics->stp, r->metrics->n_programs, r->metrics->antt, r->metrics->kernel_antt);
    }
    printf("used       SMs %.2f %%, memory %.2f %%, to device %.2f %%, from device %.2f %%\n",
           percent(u->sm_ns, sm_time(r)), percent(u->dram_ns, end),
           percent(u->engine_ns[WEIR_SIM_H2D], end), percent(u->engine_ns[WEIR_SIM_D2H], end));
    printf("           %.2f %% of the SMs' time was idle while kernels were started\n",
           percent(u->idle_sm_ns, sm_time(r)));
    if (u->peers_sm_ns > 0) {
        printf("           %.2f %% was held by kernels that waited for their peers\n",
               percent(u->peers_sm_ns, sm_time(r)));
    }
    printf("decisions  %" PRIu64 " starts, %" PRIu64 " stops, %" PRIu64 " resumes, %" PRIu64
           " resizes; %" PRIu64 " choices, %" PRIu64 " switches, %" PRIu64 " rescues\n",
           d->counts.starts, d->counts.stops, d->counts.resumes, d->counts.resizes,
           d->counts.decisions, d->counts.switches, d->counts.rescues);
    if (r->has_cost) {
        printf("           %" PRIu64 " calls into the scheduler, %.0f ns each, at most %.1f us "
               "(on this machine)\n",
               d->calls, d->calls ? (double)d->cost_ns / (double)d->calls : 0,
               (double)d->cost_max_ns / 1e3);
    }
}

static void print_tenant(const struct weir_sim_report *r, uint32_t i)
{
    char scratch[WEIR_SCHED_TRACE_NAME_BYTES];
    const struct weir_sim_tenant_result *t = &r->result->tenants[i];
    const struct weir_sched_tenant_params *p = &r->load->tenants[i].params;
    printf("%-20s %6u %-6s %9" PRIu64 " %9" PRIu64 " %10.4f", name_of(r, i, scratch), p->weight,
           weir_priority_names[p->priority], t->items, t->finished, t->sm_ns / 1e9);
    if (r->metrics) {
        const struct weir_sim_tenant_metrics *m = &r->metrics->tenants[i];
        printf(" %7.2f %7.2f %9.1f %9.1f %9.1f %8.3f %8.3f", 100 * m->share, 100 * m->entitled,
               (double)m->wait_p50_ns / 1e3, (double)m->wait_p99_ns / 1e3,
               (double)t->waited_max_ns / 1e3, m->slowdown, m->kernel_ntt);
    }
    printf(" %8.3f %8.3f %7" PRIu64 "\n", (double)t->copied_bytes[0] / 1e9,
           (double)t->copied_bytes[1] / 1e9, t->stops);
}

static void print_tenants(const struct weir_sim_report *r)
{
    uint32_t n = WEIR_MIN(r->load->n_tenants, r->rows);
    printf("\n%-20s %6s %-6s %9s %9s %10s", "TENANT", "WEIGHT", "CLASS", "ITEMS", "DONE", "SM s");
    if (r->metrics) {
        printf(" %7s %7s %9s %9s %9s %8s %8s", "SHARE%", "DUE%", "WAIT p50", "p99 us", "max us",
               "SLOWER", "NTT");
    }
    printf(" %8s %8s %7s\n", "H2D GB", "D2H GB", "STOPS");
    for (uint32_t i = 0; i < n; i++) {
        print_tenant(r, i);
    }
    if (n < r->load->n_tenants) {
        printf("(%u more: --all)\n", r->load->n_tenants - n);
    }
}

/* A tenant's share of the SM time that all tenants used in one interval, or on one GPU. */
static double share_in(const struct weir_sim_result *result, const double *rows, uint32_t at,
                       uint32_t tenant)
{
    const double *row = rows + (size_t)at * result->n_tenants;
    double held = 0;
    for (uint32_t i = 0; i < result->n_tenants; i++) {
        held += row[i];
    }
    return percent(row[tenant], held);
}

/* Print a row for each interval, which begin every step, or for each GPU. */
static void print_shares(const struct weir_sim_report *r, const char *what, const double *rows,
                         uint32_t count, double step)
{
    char scratch[WEIR_SCHED_TRACE_NAME_BYTES];
    uint32_t n = WEIR_MIN(r->load->n_tenants, SHARES_COLUMNS);
    printf("\nSHARE %% of what was held, %s", what);
    for (uint32_t i = 0; i < n; i++) {
        printf(" %8.8s", name_of(r, i, scratch));
    }
    putchar('\n');
    for (uint32_t b = 0; b < count; b++) {
        printf("%10.6g", b * step);
        for (uint32_t i = 0; i < n; i++) {
            printf(" %8.2f", share_in(r->result, rows, b, i));
        }
        putchar('\n');
    }
}

void weir_sim_report_text(const struct weir_sim_report *r)
{
    print_load(r);
    print_sums(r);
    print_tenants(r);
    if (r->result->n_gpus > 1) {
        print_shares(r, "on\n       GPU", r->result->gpu_sm_ns, r->result->n_gpus, 1);
    }
    if (r->has_shares) {
        print_shares(r, "from\n         s", r->result->bucket_sm_ns, r->result->n_buckets,
                     (double)r->params->bucket_ns / 1e9);
    }
}

/* ------------------------------------------------------------------ JSON */

static void json_text(const char *name, const char *text)
{
    printf("\"%s\":", name);
    weir_json_put(stdout, text);
}

static void json_tenant(const struct weir_sim_report *r, uint32_t i)
{
    char scratch[WEIR_SCHED_TRACE_NAME_BYTES];
    const struct weir_sim_tenant_result *t = &r->result->tenants[i];
    const struct weir_sched_tenant_params *p = &r->load->tenants[i].params;
    printf("%s{", i ? "," : "");
    json_text("name", name_of(r, i, scratch));
    printf(",\"weight\":%u,\"priority\":\"%s\",\"items\":%" PRIu64 ",\"finished\":%" PRIu64
           ",\"sm_s\":%.9f,\"h2d_bytes\":%" PRIu64 ",\"d2h_bytes\":%" PRIu64
           ",\"h2d_s\":%.9f,\"d2h_s\":%.9f,\"stops\":%" PRIu64 ",\"waited_s\":%.9f"
           ",\"waited_max_s\":%.9f",
           p->weight, weir_priority_names[p->priority], t->items, t->finished, t->sm_ns / 1e9,
           t->copied_bytes[0], t->copied_bytes[1], (double)t->copy_ns[0] / 1e9,
           (double)t->copy_ns[1] / 1e9, t->stops, (double)t->waited_ns / 1e9,
           (double)t->waited_max_ns / 1e9);
    if (r->metrics) {
        const struct weir_sim_tenant_metrics *m = &r->metrics->tenants[i];
        printf(",\"share\":%.9f,\"entitled\":%.9f,\"together_s\":%.9f,\"alone_s\":%.9f"
               ",\"slowdown\":%.9f,\"kernel_ntt\":%.9f,\"wait_p50_s\":%.9f,\"wait_p99_s\":%.9f",
               m->share, m->entitled, m->together_ns / 1e9, m->alone_ns / 1e9, m->slowdown,
               m->kernel_ntt, (double)m->wait_p50_ns / 1e9, (double)m->wait_p99_ns / 1e9);
    }
    if (r->has_shares) {
        printf(",\"shares\":[");
        for (uint32_t b = 0; b < r->result->n_buckets; b++) {
            printf("%s%.6f", b ? "," : "",
                   share_in(r->result, r->result->bucket_sm_ns, b, i) / 100);
        }
        putchar(']');
    }
    printf(",\"gpu_shares\":[");
    for (uint32_t g = 0; g < r->result->n_gpus; g++) {
        printf("%s%.6f", g ? "," : "", share_in(r->result, r->result->gpu_sm_ns, g, i) / 100);
    }
    putchar(']');
    putchar('}');
}

static void json_decisions(const struct weir_sim_report *r)
{
    const struct weir_sim_decisions *d = &r->result->decisions;
    const struct weir_sched_counts *c = &d->counts;
    printf(",\"decisions\":{\"starts\":%" PRIu64 ",\"stops\":%" PRIu64 ",\"resumes\":%" PRIu64
           ",\"resizes\":%" PRIu64 ",\"choices\":%" PRIu64 ",\"switches\":%" PRIu64
           ",\"rescues\":%" PRIu64 ",\"calls\":%" PRIu64,
           c->starts, c->stops, c->resumes, c->resizes, c->decisions, c->switches, c->rescues,
           d->calls);
    if (r->has_cost) {
        printf(",\"cost_ns\":%" PRIu64 ",\"cost_max_ns\":%" PRIu64, d->cost_ns, d->cost_max_ns);
    }
    putchar('}');
}

void weir_sim_report_json(const struct weir_sim_report *r)
{
    const struct weir_sim_usage *u = &r->result->usage;
    double end = gpu_time(r);
    putchar('{');
    json_text("gpu", r->params->gpu.name);
    putchar(',');
    json_text("policies", r->policies);
    printf(",\"sms\":%u,\"time_s\":%.9f,\"cut\":%s,\"items\":%u,\"left_out\":%u"
           ",\"estimated\":%u,\"lost\":%" PRIu64,
           r->params->gpu.sms, (double)r->result->end_ns / 1e9,
           r->result->was_cut ? "true" : "false", r->load->n_items - r->load->left_out,
           r->load->left_out, r->load->estimated, r->load->lost);
    if (r->metrics) {
        printf(",\"stp\":%.9f,\"antt\":%.9f,\"kernel_antt\":%.9f", r->metrics->stp,
               r->metrics->antt, r->metrics->kernel_antt);
    }
    printf(",\"used\":{\"sms\":%.9f,\"memory\":%.9f,\"h2d\":%.9f,\"d2h\":%.9f,\"idle_sms\":%.9f"
           ",\"peers\":%.9f}",
           percent(u->sm_ns, sm_time(r)) / 100, percent(u->dram_ns, end) / 100,
           percent(u->engine_ns[WEIR_SIM_H2D], end) / 100,
           percent(u->engine_ns[WEIR_SIM_D2H], end) / 100, percent(u->idle_sm_ns, sm_time(r)) / 100,
           percent(u->peers_sm_ns, sm_time(r)) / 100);
    json_decisions(r);
    printf(",\"interval_s\":%.9f,\"tenants\":[", (double)r->params->bucket_ns / 1e9);
    for (uint32_t i = 0; i < r->load->n_tenants; i++) {
        json_tenant(r, i);
    }
    printf("]}\n");
}
