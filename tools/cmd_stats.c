/* weir stats: count guests' calls by function and their kernels by form, or show how good the
 * predictions are, as tables or JSON lines. */
#include "base/guess.h"
#include "base/text.h"
#include "host_backend/config/status_text.h"
#include "tools/ask.h"
#include "tools/command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROWS_SHOWN 25

struct wish {
    const char *tenant; /* NULL: any tenant */
    long long session;  /* 0: any session */
    bool all;
    bool json;
    bool predictions;
};

typedef int (*compare_fn)(const void *left, const void *right);

static int falling(uint64_t a, uint64_t b)
{
    return a < b ? 1 : a > b ? -1 : 0;
}

static int by_wait(const void *left, const void *right)
{
    const struct weir_status_function *a = left;
    const struct weir_status_function *b = right;
    return falling(a->wait_ns, b->wait_ns);
}

static int by_waited(const void *left, const void *right)
{
    const struct weir_status_function *a = left;
    const struct weir_status_function *b = right;
    return falling(a->waited, b->waited);
}

static int by_calls(const void *left, const void *right)
{
    const struct weir_status_function *a = left;
    const struct weir_status_function *b = right;
    return falling(a->guest + a->posted + a->waited, b->guest + b->posted + b->waited);
}

static const struct {
    const char *name;
    compare_fn compare;
} orders[] = {{"time", by_wait}, {"waited", by_waited}, {"calls", by_calls}};

static compare_fn find_order(const char *name)
{
    size_t at = WEIR_FIRST(i, WEIR_COUNT(orders), strcmp(orders[i].name, name) == 0);
    return at < WEIR_COUNT(orders) ? orders[at].compare : NULL;
}

static bool is_wanted(const struct weir_status_counted *session, const struct wish *wish)
{
    return (!wish->tenant || strcmp(wish->tenant, session->tenant) == 0) &&
           (!wish->session || (uint64_t)wish->session == session->id);
}

static double mean_us(const struct weir_status_function *f)
{
    return f->waited ? (double)f->wait_ns / 1e3 / (double)f->waited : 0;
}

static void print_function(const struct weir_status_function *f)
{
    printf("%-44s %10llu %10llu %10llu %12.3f %10.1f %10.1f\n", f->name,
           (unsigned long long)f->guest, (unsigned long long)f->posted,
           (unsigned long long)f->waited, (double)f->wait_ns / 1e6, mean_us(f),
           (double)f->max_ns / 1e3);
}

static void add_to(struct weir_status_function *total, const struct weir_status_function *f)
{
    total->guest += f->guest;
    total->posted += f->posted;
    total->waited += f->waited;
    total->wait_ns += f->wait_ns;
    total->max_ns = WEIR_MAX(f->max_ns, total->max_ns);
}

/* Find where the counters of one session or one device end; they are adjacent. */
static size_t counts_of(const struct weir_status_count *rows, size_t n, size_t first)
{
    size_t last = first;
    while (last < n && rows[last].counted == rows[first].counted &&
           strcmp(rows[last].device, rows[first].device) == 0) {
        last++;
    }
    return last - first;
}

static void print_counts(const char *what, const struct weir_status_count *rows, size_t n,
                         bool json)
{
    printf(json ? "\"%s\":{" : "%s:", what);
    for (size_t i = 0; i < n; i++) {
        printf(json ? "%s\"%s\":%llu" : "%s %s %llu", i ? "," : "", rows[i].name,
               (unsigned long long)rows[i].n);
    }
    printf(json ? "}" : "\n");
}

static void print_table(const struct weir_status_counted *session,
                        const struct weir_status_function *functions, size_t n,
                        const struct weir_status_count *forms, size_t n_forms, bool all)
{
    struct weir_status_function total = {.name = "total"};
    char program[4 * WEIR_HOST_TEXT_BYTES];
    printf("session %llu, tenant %s, %s (pid %llu) via %s, %s %.1f s\n",
           (unsigned long long)session->id, session->tenant,
           weir_text_visible(session->program, program, sizeof program),
           (unsigned long long)session->pid, session->transport,
           session->ended ? "ended, lived" : "up", session->age_s);
    printf("%-44s %10s %10s %10s %12s %10s %10s\n", "FUNCTION", "GUEST", "POSTED", "WAITED",
           "WAIT ms", "MEAN us", "MAX us");
    for (size_t i = 0; i < n; i++) {
        if (all || i < ROWS_SHOWN) {
            print_function(&functions[i]);
        }
        add_to(&total, &functions[i]);
    }
    if (!all && n > ROWS_SHOWN) {
        printf("(%zu more: --all)\n", n - ROWS_SHOWN);
    }
    print_function(&total);
    if (n_forms) {
        print_counts("kernels", forms, n_forms, false);
    }
    printf("\n");
}

static void print_json(const struct weir_status_counted *session,
                       const struct weir_status_function *functions, size_t n,
                       const struct weir_status_count *forms, size_t n_forms)
{
    printf("{\"session\":%llu,\"tenant\":\"%s\",\"program\":", (unsigned long long)session->id,
           session->tenant);
    weir_json_put(stdout, session->program);
    printf(",\"pid\":%llu,\"transport\":\"%s\",\"ended\":%s,\"age_s\":%.3f,\"functions\":[",
           (unsigned long long)session->pid, session->transport, session->ended ? "true" : "false",
           session->age_s);
    for (size_t i = 0; i < n; i++) {
        const struct weir_status_function *f = &functions[i];
        printf("%s{\"name\":\"%s\",\"guest\":%llu,\"posted\":%llu,\"waited\":%llu,"
               "\"wait_ns\":%llu,\"max_ns\":%llu,\"busy_ns\":%llu}",
               i ? "," : "", f->name, (unsigned long long)f->guest, (unsigned long long)f->posted,
               (unsigned long long)f->waited, (unsigned long long)f->wait_ns,
               (unsigned long long)f->max_ns, (unsigned long long)f->busy_ns);
    }
    printf("],");
    print_counts("kernels", forms, n_forms, true);
    printf("}\n");
}

static void show_runs(const struct weir_status_report *report, bool json)
{
    for (size_t first = 0, n; first < report->n_runs; first += n) {
        char what[64];
        n = counts_of(report->runs, report->n_runs, first);
        if (json) {
            printf("{\"device\":\"%s\",", report->runs[first].device);
            print_counts("runs", report->runs + first, n, true);
            printf("}\n");
        } else {
            snprintf(what, sizeof what, "device %s, kernels that can be stopped",
                     report->runs[first].device);
            print_counts(what, report->runs + first, n, false);
        }
    }
}

static void print_prediction(const struct weir_status_prediction *p)
{
    printf("GPU %u: %u keys, %u were found on disk; asked %llu, known %llu\n", p->device, p->keys,
           p->keys_found, (unsigned long long)p->asked, (unsigned long long)p->known);
    printf("%-44s %10llu compared, error median %.1f %%, mean %.1f %%\n", "kernels and graphs",
           (unsigned long long)p->kernels, p->kernel_median * 100, p->kernel_mean * 100);
    printf("%-44s %10llu compared, error median %.1f %%, mean %.1f %%\n\n", "copies and memsets",
           (unsigned long long)p->copies, p->copy_median * 100, p->copy_mean * 100);
}

static void show_predictions(const struct weir_status_report *report, const struct wish *wish)
{
    for (size_t i = 0; i < report->n_predictions; i++) {
        if (wish->json) {
            weir_status_text_prediction(stdout, &report->predictions[i]);
        } else {
            print_prediction(&report->predictions[i]);
        }
    }
}

/* Print the sessions. @return how many were shown */
static size_t show(const struct weir_status_report *report, const struct wish *wish,
                   compare_fn compare)
{
    size_t at = 0;
    size_t form = 0;
    size_t shown = 0;
    for (size_t i = 0; i < report->n_counted; i++) {
        size_t first = at;
        const struct weir_status_count *forms = report->n_forms ? report->forms + form : NULL;
        bool has_forms = form < report->n_forms && forms->counted == i;
        size_t n_forms = has_forms ? counts_of(report->forms, report->n_forms, form) : 0;
        form += n_forms;
        while (at < report->n_functions && report->functions[at].counted == i) {
            at++;
        }
        if (!is_wanted(&report->counted[i], wish)) {
            continue;
        }
        struct weir_status_function *functions =
            report->n_functions ? report->functions + first : NULL;
        if (at > first) {
            qsort(functions, at - first, sizeof *functions, compare);
        }
        if (wish->json) {
            print_json(&report->counted[i], functions, at - first, forms, n_forms);
        } else {
            print_table(&report->counted[i], functions, at - first, forms, n_forms, wish->all);
        }
        shown++;
    }
    /* If the user named a session or tenant that does not exist, the caller complains. */
    if (!shown && !wish->session && !wish->tenant && !(wish->json && report->n_runs)) {
        printf(wish->json ? "{\"sessions\":0}\n" : "(no sessions)\n");
    }
    if (!wish->tenant && !wish->session) {
        show_runs(report, wish->json);
    }
    return shown;
}

/* Does the tenant exist? A tenant may have no sessions, but an unknown name is a typing error. */
static bool tenant_is_there(const char *run_dir, const char *tenant)
{
    static const char *const words[] = {"status"};
    int exit_status;
    struct weir_status_report *report = weir_ask("stats", run_dir, words, 1, -1, &exit_status);
    if (!report) {
        return false;
    }
    struct weir_guess guess = weir_guess_begin(tenant);
    bool there = false;
    for (size_t i = 0; i < report->n_tenants; i++) {
        there |= strcmp(report->tenants[i].name, tenant) == 0;
        weir_guess_offer(&guess, report->tenants[i].name);
    }
    if (!there) {
        char meant[64];
        fprintf(stderr, "weir stats: there is no tenant '%s'%s\n", tenant,
                weir_guess_text(&guess, meant));
    }
    weir_status_report_destroy(report);
    return there;
}

/* No session was shown: is that an error, because the user named an unknown session or tenant? */
static bool nothing_is_good(const char *run_dir, const struct wish *wish)
{
    if (wish->tenant && !tenant_is_there(run_dir, wish->tenant)) {
        return false;
    }
    if (wish->session) {
        fprintf(stderr, "weir stats: there is no session %lld%s%s\n", wish->session,
                wish->tenant ? " of tenant " : "", wish->tenant ? wish->tenant : "");
    } else if (wish->tenant) {
        printf(wish->json ? "{\"sessions\":0}\n" : "(no sessions)\n");
    }
    return !wish->session;
}

int weir_cmd_stats(int argc, char **argv)
{
    const char *run_dir = NULL;
    const char *session = NULL;
    const char *sort = "time";
    struct wish wish = {0};
    const struct weir_option options[] = {
        {"run-dir", "DIR", "where the host's sockets are", &run_dir, NULL},
        {"tenant", "NAME", "only this tenant's sessions", &wish.tenant, NULL},
        {"session", "N", "only this session", &session, NULL},
        {"sort", "time|waited|calls", "what comes first (default time)", &sort, NULL},
        {"all", NULL, "all functions, not only the first 25", NULL, &wish.all},
        {"predictions", NULL, "what the scheduler knows of durations, and how well, instead", NULL,
         &wish.predictions},
        {"json", NULL, "one JSON object a line, a session or device each", NULL, &wish.json},
        {.name = NULL},
    };
    int first;
    int exit_status;
    if (!weir_options_parse(argc, argv, "[OPTIONS]",
                            "Show how often guests' calls were answered in the guest, posted, or\n"
                            "waited for: of running sessions and of the last that have ended.",
                            options, &first, &exit_status)) {
        return exit_status;
    }
    compare_fn compare = find_order(sort);
    if (!compare) {
        fprintf(stderr, "weir stats: --sort is time, waited or calls\n");
        return WEIR_EXIT_USAGE;
    }
    if (session && !weir_option_number("session", session, 1, INT64_MAX, &wish.session)) {
        return WEIR_EXIT_USAGE;
    }
    const char *const words[] = {"stats"};
    struct weir_status_report *report = weir_ask("stats", run_dir, words, 1, -1, &exit_status);
    if (!report) {
        return exit_status;
    }
    bool good = true;
    if (wish.predictions) {
        show_predictions(report, &wish);
    } else {
        good = show(report, &wish, compare) || nothing_is_good(run_dir, &wish);
    }
    weir_status_report_destroy(report);
    return good ? WEIR_EXIT_OK : WEIR_EXIT_FAILED;
}
