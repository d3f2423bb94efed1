/* weir drain: let no new programs in, and perhaps wait until the last has ended. */
#include "tools/ask.h"
#include "tools/command.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

#define LOOK_MS 500

/* Print how many programs run; with `wait`, until none does or the host ends. */
static int follow(const char *run_dir, const char *tenant, bool wait)
{
    char before[256] = "";
    for (;; (void)poll(NULL, 0, LOOK_MS)) {
        struct weir_status_report *report;
        char names[256];
        enum weir_status status = weir_control_status(run_dir, &report);
        if (status == WEIR_ERR_NOT_FOUND && before[0]) {
            printf("the host has ended\n");
            return WEIR_EXIT_OK;
        }
        WEIR_FAIL_IF(status != WEIR_OK, weir_ask_failed("drain", run_dir, status));
        unsigned n = weir_ask_programs(report, tenant, names);
        weir_status_report_destroy(report);
        if (strcmp(names, before) != 0) {
            printf("%s: drained, %s run%s\n", tenant ? tenant : "all tenants", names,
                   n > 1 ? "" : "s");
            fflush(stdout);
            memcpy(before, names, sizeof before);
        }
        if (n == 0 || !wait) {
            return WEIR_EXIT_OK;
        }
    }
}

int weir_cmd_drain(int argc, char **argv)
{
    const char *run_dir = NULL;
    bool wait = false;
    const struct weir_option options[] = {
        {"wait", NULL, "until the last program has ended; the drain outlasts an interrupt", NULL,
         &wait},
        {"run-dir", "DIR", "where the host's sockets are", &run_dir, NULL},
        {.name = NULL},
    };
    int first;
    int exit_status;
    if (!weir_options_parse(argc, argv, "[OPTIONS] [TENANT]",
                            "Let no new programs of a tenant in, or of any; those that run go on "
                            "to their ends.\nweir undrain is the opposite.",
                            options, &first, &exit_status)) {
        return exit_status;
    }
    const char *tenant = argv[first]; /* NULL: all */
    const char *const words[] = {"drain", tenant};
    exit_status = weir_ask_to("drain", run_dir, words, tenant ? 2 : 1);
    return exit_status == WEIR_EXIT_OK ? follow(run_dir, tenant, wait) : exit_status;
}
