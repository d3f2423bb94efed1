/* weir events: print recent events of the host, or follow new ones, one a line. */
#include "base/text.h"
#include "host_backend/config/status_text.h"
#include "tools/ask.h"
#include "tools/command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define EVENTS_MAX 1024 /* how many events a host keeps */

struct wish {
    const char *run_dir;
    const char *tenant; /* NULL: any tenant */
    bool json;
    bool follow;
    char since[32];  /* UTC, in the form that events have; "": any time */
    uint64_t number; /* number of the first event to show; 0: any */
};

static bool is_wanted(const struct wish *wish, const struct weir_status_event *e)
{
    return e->number >= wish->number && strcmp(e->time, wish->since) >= 0 &&
           (!wish->tenant || strcmp(wish->tenant, e->tenant) == 0);
}

static void print_text(const struct weir_status_event *e)
{
    char visible[4 * sizeof e->why];
    printf("%s %-18s", e->time, e->kind);
    if (e->tenant[0]) {
        printf(" tenant=%s", e->tenant);
    }
    if (e->labels[0]) {
        printf(" labels=\"%s\"", e->labels);
    }
    if (e->program[0]) {
        printf(" program=\"%s\"", weir_text_visible(e->program, visible, sizeof visible));
    }
    if (e->pid) {
        printf(" pid=%llu", (unsigned long long)e->pid);
    }
    if (e->worker) {
        printf(" worker=%llu", (unsigned long long)e->worker);
    }
    if (e->call[0]) {
        char bytes[16];
        printf(" call=%s size=\"%s\"", e->call, weir_human_bytes(e->bytes, bytes));
    }
    if (e->n > 1) {
        printf(" times=%llu", (unsigned long long)e->n);
    }
    printf("%s%s\n", e->why[0] ? ": " : "", weir_text_visible(e->why, visible, sizeof visible));
}

static bool take(void *user, const struct weir_status_event *event)
{
    const struct wish *wish = user;
    if (!is_wanted(wish, event)) {
        return true;
    }
    if (wish->json) {
        weir_status_text_event(stdout, event);
    } else {
        print_text(event);
    }
    return !(wish->follow && (fflush(stdout) != 0 || ferror(stdout)));
}

static struct weir_status_report *ask(const struct wish *wish, int *ret_exit)
{
    static const char *const words[] = {"events"};
    return weir_ask("events", wish->run_dir, words, 1, -1, ret_exit);
}

/* Print only the last n of the matching events, and then new ones. */
static int skip_to_last(struct wish *wish, long long n)
{
    int exit_status = WEIR_EXIT_OK;
    struct weir_status_report *report = ask(wish, &exit_status);
    size_t i = report ? report->n_events : 0;
    uint64_t number = i ? report->events[i - 1].number + 1 : 0;
    while (i > 0 && n > 0) {
        i--;
        if (is_wanted(wish, &report->events[i])) {
            number = report->events[i].number;
            n--;
        }
    }
    wish->number = number;
    weir_status_report_destroy(report);
    return exit_status;
}

/* "10m" means that long ago; "2026-01-31" or "2026-01-31T12:00" is a time. */
static bool read_since(const char *text, char *ret_since, size_t bytes)
{
    static const struct {
        const char *unit;
        int seconds;
    } units[] = {{"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86400}};
    char *end;
    double n = strtod(text, &end);
    time_t then = time(NULL);
    struct tm utc;

    if (strspn(text, "0123456789-T:.Z") == strlen(text) && strlen(text) >= strlen("2026-01-31") &&
        text[4] == '-' && strlen(text) < bytes) {
        snprintf(ret_since, bytes, "%s", text);
        return true;
    }
    for (size_t i = 0; i < WEIR_COUNT(units); i++) {
        if (end != text && strcmp(end, units[i].unit) == 0 && n >= 0 && n <= 1e6) {
            then -= (time_t)(n * units[i].seconds);
            (void)strftime(ret_since, bytes, "%Y-%m-%dT%H:%M:%S", gmtime_r(&then, &utc));
            return true;
        }
    }
    fprintf(stderr,
            "weir events: --since '%s': 30s, 10m, 2h and 1d are times ago, "
            "2026-01-31T12:00 is one in UTC\n",
            text);
    return false;
}

static int show(struct wish *wish)
{
    int exit_status = WEIR_EXIT_OK;
    struct weir_status_report *report = ask(wish, &exit_status);
    for (size_t i = 0; report && i < report->n_events; i++) {
        (void)take(wish, &report->events[i]);
    }
    weir_status_report_destroy(report);
    return exit_status;
}

static int follow(struct wish *wish)
{
    struct weir_status_report *report = NULL;
    /* Following a stopped host would never print anything. */
    enum weir_status status = weir_control_status(wish->run_dir, &report);
    weir_status_report_destroy(report);
    WEIR_THEN(status, weir_control_follow(wish->run_dir, take, wish));
    if (status == WEIR_ERR_CLOSED) {
        fprintf(stderr, "weir events: the host has ended, or too many others follow its events\n");
        return WEIR_EXIT_FAILED;
    }
    return status == WEIR_OK ? WEIR_EXIT_OK : weir_ask_failed("events", wish->run_dir, status);
}

int weir_cmd_events(int argc, char **argv)
{
    struct wish wish = {0};
    const char *since = NULL;
    const char *tail = NULL;
    long long n;
    const struct weir_option options[] = {
        {"follow", NULL, "go on with what happens from now on", NULL, &wish.follow},
        {"json", NULL, "one JSON object a line", NULL, &wish.json},
        {"since", "TIME", "only from then on: 10m ago, or 2026-01-31T12:00 (UTC)", &since, NULL},
        {"tail", "N", "only the last N, and with --follow what comes then", &tail, NULL},
        {"tenant", "NAME", "only this tenant's", &wish.tenant, NULL},
        {"run-dir", "DIR", "where the host's sockets are", &wish.run_dir, NULL},
        {.name = NULL},
    };
    int first;
    int exit_status;
    if (!weir_options_parse(argc, argv, "[OPTIONS]",
                            "Show what happened: tenants, sessions, refusals, faults, workers.",
                            options, &first, &exit_status)) {
        return exit_status;
    }
    if ((since && !read_since(since, wish.since, sizeof(wish.since))) ||
        (tail && !weir_option_number("tail", tail, 0, EVENTS_MAX, &n))) {
        return WEIR_EXIT_USAGE;
    }
    exit_status = tail ? skip_to_last(&wish, n) : WEIR_EXIT_OK;
    if (exit_status != WEIR_EXIT_OK) {
        return exit_status;
    }
    return wish.follow ? follow(&wish) : show(&wish);
}
