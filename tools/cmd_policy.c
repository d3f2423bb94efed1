/* weir policy: which scheduling policies a running host has, and give it others. */
#include "sched/policy.h"
#include "tools/ask.h"
#include "tools/command.h"

#include <stdio.h>
#include <string.h>

static void print_kind(enum weir_policy_kind kind, const struct weir_policy_set *set)
{
    const struct weir_policy_ops *ops;
    bool first = true;
    printf("%-10s %-14s ", weir_policy_kind_text(kind),
           set->policy[kind] ? set->policy[kind]->name : "-");
    for (uint32_t i = 0; (ops = weir_policy_at(i)) != NULL; i++) {
        if (ops->kind == kind) {
            printf("%s%s", first ? "" : ", ", ops->name);
            first = false;
        }
    }
    printf("\n");
}

static int show(const struct weir_status_report *report)
{
    struct weir_policy_set set = {0};
    if (strcmp(report->policy, "off") != 0 &&
        weir_policy_set_parse(report->policy, &set, NULL) != WEIR_OK) {
        fprintf(stderr, "weir policy: the host has policies that this weir does not know: %s\n",
                report->policy);
        return WEIR_EXIT_FAILED;
    }
    printf("%-10s %-14s %s\n", "KIND", "IN FORCE", "THERE ARE");
    for (int kind = 0; kind < WEIR_POLICY_KIND_COUNT; kind++) {
        print_kind((enum weir_policy_kind)kind, &set);
    }
    if (strcmp(report->policy, "off") == 0) {
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
    const struct weir_option options[] = {
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
    exit_status = good ? show(report) : WEIR_EXIT_FAILED;
    weir_status_report_destroy(report);
    return exit_status;
}
