/*
 * weir why: show how long a tenant's programs ran and waited, why, and for which tenant.
 *
 * It asks the tenant's own socket twice and shows the difference.
 */
#include "base/text.h"
#include "host_backend/config/status_text.h"
#include "proto/wire/connect.h"
#include "proto/wire/discover.h"
#include "tools/ask.h"
#include "tools/command.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TIMEOUT_NS 5000000000u

/* Not the scheduler's own table: a guest's `weir` is built without the scheduler. */
static const struct {
    const char *word, *text;
} causes[] = {
#define WEIR_SCHED_CAUSE(name, word, text) {word, text},
#include "sched/causes.def"
#undef WEIR_SCHED_CAUSE
};

/* What is asked, and how. */
struct request {
    const char *host; /* "ipc://PATH" */
    uint32_t interval_ms;
    bool json;
};

static int failed(const struct request *r, enum weir_status status, const char *said)
{
    char visible[256];
    fprintf(stderr, "weir why: %s: %s%s\n", r->host,
            said && *said ? weir_text_visible(said, visible, sizeof visible)
                          : weir_status_text(status),
            said && *said                    ? ""
            : status == WEIR_ERR_NOT_FOUND   ? " (is weir serve running, and has it this tenant?)"
            : status == WEIR_ERR_DENIED      ? " (this user may not be that tenant)"
            : status == WEIR_ERR_VERSION     ? " (the host is older than this command)"
            : status == WEIR_ERR_UNSUPPORTED ? " (only a tenant's socket of this machine tells it)"
                                             : "");
    return WEIR_EXIT_FAILED;
}

/* What the host says, as text and read. */
struct answer {
    char *text;
    struct weir_status_report *report;
};

static void forget(struct answer *answer)
{
    free(answer->text);
    weir_status_report_destroy(answer->report);
    *answer = (struct answer){.text = NULL};
}

/* Ask once. @return the exit status; the answer is empty unless it is 0 */
static int ask(const struct request *r, struct answer *ret_answer)
{
    char *changed; /* reading changes it */
    *ret_answer = (struct answer){.text = NULL};
    enum weir_status status = weir_connect_why(r->host, TIMEOUT_NS, &ret_answer->text);
    int exit_status = WEIR_EXIT_OK;
    if (status != WEIR_OK) {
        exit_status = failed(r, status, ret_answer->text);
        forget(ret_answer);
        return exit_status;
    }
    changed = strdup(ret_answer->text);
    status = changed ? weir_status_text_read(changed, &ret_answer->report) : WEIR_ERR_NO_MEMORY;
    free(changed);
    if (status != WEIR_OK) {
        forget(ret_answer);
        exit_status = failed(r, status, NULL);
    }
    return exit_status;
}

/* ---------------------------------------------------------------- numbers */

static bool is_of(const struct weir_status_wait *w, const struct weir_status_session *s)
{
    return w->session != 0 && w->session == s->id && w->worker == s->worker;
}

/* The time of the same wait in the earlier report; 0 if that report lacks it. */
static uint64_t before_ns(const struct weir_status_report *before, const struct weir_status_wait *w)
{
    for (size_t i = 0; i < before->n_waits; i++) {
        const struct weir_status_wait *b = &before->waits[i];
        if (b->session == w->session && b->worker == w->worker &&
            strcmp(b->program, w->program) == 0 && strcmp(b->cause, w->cause) == 0 &&
            strcmp(b->other, w->other) == 0) {
            return b->wait_ns;
        }
    }
    return 0;
}

static uint64_t since(uint64_t now, uint64_t before)
{
    return now > before ? now - before : 0;
}

/* Is this a wait for other tenants, and not for the tenant's own work? */
static bool is_for_others(const struct weir_status_wait *w)
{
    return strcmp(w->cause, "own") != 0;
}

/* Convert SM time into time of the whole device. */
static double device_s(const struct weir_status_report *report, uint64_t sm_ns)
{
    uint32_t sms = report->n_devices && report->devices[0].sms ? report->devices[0].sms : 1;
    return (double)sm_ns / 1e9 / sms;
}

static uint64_t sm_ns_before(const struct weir_status_report *before,
                             const struct weir_status_session *s)
{
    size_t at =
        WEIR_FIRST(i, before->n_sessions,
                   before->sessions[i].id == s->id && before->sessions[i].worker == s->worker);
    return at < before->n_sessions ? before->sessions[at].sm_ns : 0;
}

/* ---------------------------------------------------------------- text */

static const char *text_of_cause(const char *word)
{
    size_t at = WEIR_FIRST(i, WEIR_COUNT(causes), strcmp(causes[i].word, word) == 0);
    return at < WEIR_COUNT(causes) ? causes[at].text : "";
}

static int longest_first(const void *left, const void *right)
{
    const struct weir_status_wait *a = left, *b = right;
    return a->wait_ns != b->wait_ns ? (a->wait_ns < b->wait_ns ? 1 : -1) : 0;
}

static void print_wait(const struct weir_status_wait *w, uint64_t lately_ns)
{
    printf("  %9.2f %11.2f  %-10s %-20s %s\n", (double)lately_ns / 1e9, (double)w->wait_ns / 1e9,
           w->cause, *w->other ? w->other : "-", text_of_cause(w->cause));
}

static void print_head(void)
{
    printf("  %9s %11s  %-10s %-20s\n", "LATELY s", "IN ALL s", "WAITED", "FOR");
}

static void print_session(const struct weir_status_report *before,
                          const struct weir_status_report *now, const struct weir_status_session *s)
{
    char program[4 * sizeof s->program];
    uint64_t lately_ns = 0, all_ns = 0;
    bool any = false;
    for (size_t i = 0; i < now->n_waits; i++) {
        const struct weir_status_wait *w = &now->waits[i];
        if (is_of(w, s) && is_for_others(w)) {
            all_ns += w->wait_ns;
            lately_ns += since(w->wait_ns, before_ns(before, w));
        }
    }
    printf("\n%s (pid %llu, session %llu): lately it ran %.2f s and waited %.2f s; in all it ran "
           "%.2f s "
           "and waited %.2f s\n",
           weir_text_visible(s->program, program, sizeof program), (unsigned long long)s->pid,
           (unsigned long long)s->id, device_s(now, since(s->sm_ns, sm_ns_before(before, s))),
           (double)lately_ns / 1e9, device_s(now, s->sm_ns), (double)all_ns / 1e9);
    for (size_t i = 0; i < now->n_waits; i++) {
        const struct weir_status_wait *w = &now->waits[i];
        if (is_of(w, s)) {
            if (!any) {
                print_head();
            }
            any = true;
            print_wait(w, since(w->wait_ns, before_ns(before, w)));
        }
    }
}

/* Have programs of this name ended, so that live sessions do not show all of the time? */
static bool have_ended(const struct weir_status_report *report, const struct weir_status_program *p)
{
    uint64_t sm_ns = 0;
    for (size_t i = 0; i < report->n_sessions; i++) {
        const struct weir_status_session *s = &report->sessions[i];
        sm_ns += strncmp(s->program, p->program, sizeof p->program - 1) == 0 ? s->sm_ns : 0;
    }
    return sm_ns < p->sm_ns;
}

/* Print programs by name, including those that have ended. */
static void print_all(const struct weir_status_report *before, const struct weir_status_report *now)
{
    for (size_t k = 0; k < now->n_programs; k++) {
        const struct weir_status_program *p = &now->programs[k];
        char program[4 * sizeof p->program];
        bool any = false;
        if (!have_ended(now, p)) {
            continue;
        }
        printf("\nall programs named %s, those that have ended included: they ran %.2f s\n",
               weir_text_visible(p->program, program, sizeof program), device_s(now, p->sm_ns));
        for (size_t i = 0; i < now->n_waits; i++) {
            const struct weir_status_wait *w = &now->waits[i];
            if (w->session == 0 && strcmp(w->program, p->program) == 0) {
                if (!any) {
                    print_head();
                }
                any = true;
                print_wait(w, since(w->wait_ns, before_ns(before, w)));
            }
        }
    }
}

static void print_text(const struct weir_status_report *before,
                       const struct weir_status_report *now, double interval_s)
{
    char used[16], quota[16];
    for (size_t i = 0; i < now->n_tenants; i++) {
        const struct weir_status_tenant *t = &now->tenants[i];
        printf("tenant %s: weight %u, priority %s, %s of %s in use, programs: %zu; lately: the "
               "last %.1f s\n",
               t->name, t->weight, t->priority, weir_human_bytes(t->used_bytes, used),
               weir_human_quota(t->quota_bytes, quota), now->n_sessions, interval_s);
    }
    if (strcmp(now->policy, "off") == 0) {
        printf("nothing waits: this host has no scheduler (policy \"off\")\n");
    }
    qsort(now->waits, now->n_waits, sizeof *now->waits, longest_first);
    for (size_t i = 0; i < now->n_sessions; i++) {
        print_session(before, now, &now->sessions[i]);
    }
    print_all(before, now);
}

/* ---------------------------------------------------------------- all */

static int why(const struct request *r)
{
    struct answer before, now;
    int exit_status = ask(r, &before);
    if (exit_status != WEIR_EXIT_OK) {
        return exit_status;
    }
    (void)usleep(r->interval_ms * 1000);
    exit_status = ask(r, &now);
    if (now.text && r->json) {
        size_t length = strlen(now.text), end = strlen(WEIR_STATUS_TEXT_END);
        printf("%.*s", (int)(length > end ? length - end : 0), now.text);
    } else if (now.report) {
        print_text(before.report, now.report, r->interval_ms / 1e3);
    }
    forget(&before);
    forget(&now);
    return exit_status;
}

int weir_cmd_why(int argc, char **argv)
{
    const char *tenant = NULL, *host = NULL, *run_dir = NULL, *interval = NULL;
    struct request r = {.interval_ms = 2000};
    const struct weir_option options[] = {
        {"tenant", "NAME", "of this tenant (default: of the one that programs here are)", &tenant,
         NULL},
        {"host", "URL", "ipc://PATH (default: $WEIR_HOST)", &host, NULL},
        {"run-dir", "DIR", "where the host's sockets are", &run_dir, NULL},
        {"interval-ms", "MS", "how long to look for what happens now (default 2000)", &interval,
         NULL},
        {"json", NULL, "print JSON, an object a line", NULL, &r.json},
        {.name = NULL},
    };
    int first, exit_status;
    if (!weir_options_parse(argc, argv, "[OPTIONS]",
                            "Show how long a tenant's programs ran and waited, for which cause and "
                            "for whom. Whoever may run programs as the tenant may ask.",
                            options, &first, &exit_status)) {
        return exit_status;
    }
    long long ms = 2000;
    if ((tenant && !weir_ask_tenant_good("why", tenant)) ||
        (interval && !weir_option_number("interval-ms", interval, 0, 3600000, &ms))) {
        return WEIR_EXIT_USAGE;
    }
    r.interval_ms = (uint32_t)ms;
    char url[PATH_MAX], route[WEIR_ROUTE_URL_BYTES];
    if (host || (!tenant && !run_dir)) {
        r.host = host ? host : weir_discover_host(getenv("WEIR_HOST"), route);
    } else {
        snprintf(url, sizeof url, "ipc://%s/%s.sock",
                 run_dir ? run_dir : weir_control_default_run_dir(), tenant ? tenant : "default");
        r.host = url;
    }
    return why(&r);
}
