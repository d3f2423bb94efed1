/* weir status: the host's tenants, sessions and workers, as a table or as JSON lines. */
#include "base/text.h"
#include "tools/ask.h"
#include "tools/command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_workers(const struct weir_status_report *report)
{
    printf("%-8s %-28s %-8s %-24s %8s %8s\n", "WORKER", "DEVICE", "ORDINALS", "DRIVER", "RESTARTS",
           "OBJECTS");
    for (size_t i = 0; i < report->n_workers; i++) {
        const struct weir_status_worker *w = &report->workers[i];
        char programs[256];
        char share[32] = "";
        if (w->sm_share_pct) {
            snprintf(share, sizeof share, "%u %% of the SMs", w->sm_share_pct);
        }
        printf("%-8llu %-28.28s %-8.16s %-24.24s %8u %8llu  %s%s%s%s%s%s\n",
               (unsigned long long)w->pid, w->device, w->devices, w->driver, w->restarts,
               (unsigned long long)w->objects, w->state, w->state[0] ? "  " : "",
               w->tenant[0] ? "only " : "", w->tenant, w->tenant[0] ? "  " : "", share);
        printf("         %s\n", weir_worker_programs(report, w, programs, sizeof programs));
    }
}

/* Width of the column of tenants' names: as wide as the longest name. */
static int name_width(const struct weir_status_report *report, int least)
{
    size_t width = (size_t)least;
    for (size_t i = 0; i < report->n_tenants; i++) {
        size_t length = strlen(report->tenants[i].name);
        width = WEIR_MAX(length, width);
    }
    return (int)width;
}

static void print_tenants(const struct weir_status_report *report)
{
    const int width = name_width(report, 20);
    printf("\n%-*s %6s %-8s %-8s %8s %12s %12s %12s\n", width, "TENANT", "WEIGHT", "PRIORITY",
           "ISOLATED", "SESSIONS", "MEMORY", "QUOTA", "PINNED");
    for (size_t i = 0; i < report->n_tenants; i++) {
        const struct weir_status_tenant *t = &report->tenants[i];
        char used[16];
        char quota[16];
        char pinned[16];
        char managed[16];
        printf("%-*s %6u %-8s %-8s %8u %12s %12s %12s", width, t->name, t->weight, t->priority,
               t->isolation, t->sessions, weir_human_bytes(t->used_bytes, used),
               weir_human_quota(t->quota_bytes, quota), weir_human_bytes(t->pinned_bytes, pinned));
        if (t->managed_host_bytes != 0) {
            printf("  %s managed on the host", weir_human_bytes(t->managed_host_bytes, managed));
        }
        printf("%s%s%s\n", t->drained ? "  drained" : "", t->labels[0] ? "  " : "", t->labels);
    }
}

static void print_host(const struct weir_status_report *report)
{
    printf("weir %s, pid %llu, up %.0f s, %s, %llu kept memory handles\n", report->version,
           (unsigned long long)report->pid, report->age_s, report->run_dir,
           (unsigned long long)report->kept_fds);
    if (strcmp(report->version, WEIR_VERSION) != 0 || !weir_speaks_same(report)) {
        printf("host runs %s, installed is %s%s\n", report->version, WEIR_VERSION,
               weir_speaks_same(report) ? "" : ": new programs are refused until weir restart");
    }
    for (size_t i = 0; i < report->n_extras; i++) {
        if (!report->extras[i].up) {
            printf("%s does not work: %s\n", report->extras[i].name, report->extras[i].why);
        }
    }
    if (report->drained) {
        printf("drained: no new programs until weir undrain\n");
    }
    printf("\n");
}

static void print_faults(const struct weir_status_report *report)
{
    const int width = name_width(report, 20);
    bool any = false;
    for (size_t i = 0; i < report->n_tenants; i++) {
        const struct weir_status_tenant *t = &report->tenants[i];
        char quarantine[16] = "-";
        if (!t->faults && !t->suspected_faults) {
            continue;
        }
        if (!any) {
            printf("\n%-*s %8s %10s %12s %12s\n", width, "TENANT", "FAULTS", "SUSPECTED", "LAST",
                   "QUARANTINE");
        }
        any = true;
        if (t->quarantined && t->quarantine_s > 0) {
            snprintf(quarantine, sizeof quarantine, "%.0fs", t->quarantine_s);
        } else if (t->quarantined) {
            snprintf(quarantine, sizeof quarantine, "ending");
        }
        printf("%-*s %8llu %10llu %7.0fs ago %12s\n", width, t->name, (unsigned long long)t->faults,
               (unsigned long long)t->suspected_faults, t->fault_age_s, quarantine);
    }
}

static void print_sessions(const struct weir_status_report *report)
{
    const int width = name_width(report, 16);
    printf("\n%-8s %-*s %8s %-20s %-6s %12s %10s %4s %12s %10s %8s\n", "SESSION", width, "TENANT",
           "PID", "PROGRAM", "VIA", "MEMORY", "LIMIT", "SM%", "CALLS", "CALLS/S", "AGE");
    for (size_t i = 0; i < report->n_sessions; i++) {
        const struct weir_status_session *s = &report->sessions[i];
        char used[16];
        char limit[16] = "-";
        char sm[16] = "-";
        char program[21];
        if (s->memory_limit_bytes) {
            weir_human_bytes(s->memory_limit_bytes, limit);
        }
        if (s->sm_limit_pct) {
            snprintf(sm, sizeof(sm), "%u", s->sm_limit_pct);
        }
        char orphan[48] = "";
        if (s->orphan_age_s > 0) {
            snprintf(orphan, sizeof orphan, "  gone, work left behind for %.0fs", s->orphan_age_s);
        }
        printf("%-8llu %-*s %8llu %-20s %-6s %12s %10s %4s %12llu %10.0f %7.0fs%s\n",
               (unsigned long long)s->id, width, s->tenant, (unsigned long long)s->pid,
               weir_text_visible(s->program, program, sizeof program), s->transport,
               weir_human_bytes(s->used_bytes, used), limit, sm, (unsigned long long)s->calls,
               s->calls_per_s, s->age_s, orphan);
    }
    if (!report->n_sessions) {
        printf("(none)\n");
    }
}

static int print_json(const char *run_dir)
{
    char *text;
    enum weir_status status = weir_control_status_text(run_dir, &text);
    WEIR_FAIL_IF(status != WEIR_OK, weir_ask_failed("status", run_dir, status));
    fputs(text, stdout);
    free(text);
    return WEIR_EXIT_OK;
}

int weir_cmd_status(int argc, char **argv)
{
    const char *run_dir = NULL;
    bool json = false;
    const struct weir_option options[] = {
        {"run-dir", "DIR", "where the host's sockets are", &run_dir, NULL},
        {"json", NULL, "one JSON object a line", NULL, &json},
        {.name = NULL},
    };
    int first;
    int exit_status;
    if (!weir_options_parse(argc, argv, "[OPTIONS]", "Show what the host on this machine does.",
                            options, &first, &exit_status)) {
        return exit_status;
    }
    if (json) {
        return print_json(run_dir);
    }
    struct weir_status_report *report;
    enum weir_status status = weir_control_status(run_dir, &report);
    WEIR_FAIL_IF(status != WEIR_OK, weir_ask_failed("status", run_dir, status));
    print_host(report);
    print_workers(report);
    print_tenants(report);
    print_faults(report);
    print_sessions(report);
    weir_status_report_destroy(report);
    return WEIR_EXIT_OK;
}
