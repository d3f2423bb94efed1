/* weir policy: show or change the scheduling policies of a running host. */
#include "host_backend/config/status_text.h"
#include "sched/policy.h"
#include "tools/ask.h"
#include "tools/command.h"

#include <stdio.h>
#include <string.h>

static struct weir_status_policy describe(enum weir_policy_kind kind,
                                          const struct weir_policy_set *set)
{
    struct weir_status_policy row = {.kind = ""};
    const struct weir_policy_ops *ops;
    size_t used = 0;
    snprintf(row.kind, sizeof row.kind, "%s", weir_policy_kind_text(kind));
    snprintf(row.in_force, sizeof row.in_force, "%s",
             set->policy[kind] ? set->policy[kind]->name : "");
    for (uint32_t i = 0; (ops = weir_policy_at(i)); i++) {
        if (ops->kind == kind && used < sizeof row.known) {
            used += (size_t)snprintf(row.known + used, sizeof row.known - used, "%s%s",
                                     used ? ", " : "", ops->name);
        }
    }
    return row;
}

static int show(const struct weir_status_report *report, bool json)
{
    struct weir_policy_set set = {0};
    if (strcmp(report->policy, "off") != 0 &&
        weir_policy_set_parse(report->policy, &set, NULL) != WEIR_OK) {
        fprintf(stderr, "weir policy: the host has policies that this weir does not know: %s\n",
                report->policy);
        return WEIR_EXIT_FAILED;
    }
    if (!json) {
        printf("%-10s %-14s %s\n", "KIND", "IN FORCE", "THERE ARE");
    }
    for (int kind = 0; kind < WEIR_POLICY_KIND_COUNT; kind++) {
        const struct weir_status_policy row = describe((enum weir_policy_kind)kind, &set);
        if (json) {
            weir_status_text_policy(stdout, &row);
        } else {
            printf("%-10s %-14s %s\n", row.kind, row.in_force[0] ? row.in_force : "-", row.known);
        }
    }
    if (!json && strcmp(report->policy, "off") == 0) {
        printf("(the host was started without a scheduler)\n");
    }
    return WEIR_EXIT_OK;
}

static bool print_notes(const struct weir_status_report *report)
{
    for (size_t i = 0; i < report->n_notes; i++) {
        fprintf(stderr, "weir policy: %s\n", report->notes[i].text);
    }
    return report->n_notes == 0;
}

int weir_cmd_policy(int argc, char **argv)
{
    const char *run_dir = NULL;
    bool json = false;
    const struct weir_option options[] = {
        {"json", NULL, "one JSON object a line", NULL, &json},
        {"run-dir", "DIR", "where the host's sockets are", &run_dir, NULL},
        {.name = NULL},
    };
    int first;
    int exit_status;
    if (!weir_options_parse(argc, argv, "[OPTIONS] [show | set LIST]",
                            "Show which scheduling policies a running host has, or give it others.",
                            options, &first, &exit_status)) {
        return exit_status;
    }
    bool is_set = argc - first == 2 && strcmp(argv[first], "set") == 0;
    bool is_show = argc == first || (argc - first == 1 && strcmp(argv[first], "show") == 0);
    if (!is_set && !is_show) {
        fprintf(stderr,
                "Usage: weir policy [OPTIONS] [show | set LIST]\nSee weir policy --help.\n");
        return WEIR_EXIT_USAGE;
    }
    const char *const words[] = {is_set ? "policy" : "status", is_set ? argv[first + 1] : NULL};
    struct weir_status_report *report =
        weir_ask("policy", run_dir, words, is_set ? 2 : 1, -1, &exit_status);
    if (!report) {
        return exit_status;
    }
    bool good = print_notes(report);
    exit_status = good ? show(report, json) : WEIR_EXIT_FAILED;
    weir_status_report_destroy(report);
    return exit_status;
}
