/* weir events: what happened on the host lately, or from now on, a line each. */
#include "base/text.h"
#include "host_backend/config/status_text.h"
#include "tools/ask.h"
#include "tools/command.h"

#include <stdio.h>
#include <string.h>

struct wish {
    const char *run_dir;
    const char *tenant; /* NULL: any */
    bool json;
    bool follow;
};

static void print_text(const struct weir_status_event *e)
{
    char visible[4 * sizeof e->why];
    printf("%s %-18s", e->time, e->kind);
    if (e->tenant[0]) {
        printf(" tenant=%s", e->tenant);
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
    if (wish->tenant && strcmp(wish->tenant, event->tenant) != 0) {
        return true;
    }
    if (wish->json) {
        weir_status_text_event(stdout, event);
    } else {
        print_text(event);
    }
    return !(wish->follow && (fflush(stdout) != 0 || ferror(stdout)));
}

static int show(struct wish *wish)
{
    static const char *const words[] = {"events"};
    int exit_status = WEIR_EXIT_OK;
    struct weir_status_report *report =
        weir_ask("events", wish->run_dir, words, 1, -1, &exit_status);
    for (size_t i = 0; report && i < report->n_events; i++) {
        (void)take(wish, &report->events[i]);
    }
    weir_status_report_destroy(report);
    return exit_status;
}

static int follow(struct wish *wish)
{
    enum weir_status status = weir_control_follow(wish->run_dir, take, wish);
    if (status == WEIR_ERR_CLOSED) {
        fprintf(stderr, "weir events: the host has ended, or too many others follow its events\n");
        return WEIR_EXIT_FAILED;
    }
    return status == WEIR_OK ? WEIR_EXIT_OK : weir_ask_failed("events", wish->run_dir, status);
}

int weir_cmd_events(int argc, char **argv)
{
    struct wish wish = {0};
    const struct weir_option options[] = {
        {"follow", NULL, "go on with what happens from now on", NULL, &wish.follow},
        {"json", NULL, "one JSON object a line", NULL, &wish.json},
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
    if (!weir_options_no_more(argc, argv, first)) {
        return WEIR_EXIT_USAGE;
    }
    return wish.follow ? follow(&wish) : show(&wish);
}
