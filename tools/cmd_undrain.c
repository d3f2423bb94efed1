/* weir undrain: let new programs in again. */
#include "tools/ask.h"
#include "tools/command.h"

#include <stdio.h>

int weir_cmd_undrain(int argc, char **argv)
{
    const char *run_dir = NULL;
    const struct weir_option options[] = {
        {"run-dir", "DIR", "where the host's sockets are", &run_dir, NULL},
        {.name = NULL},
    };
    int first;
    int exit_status;
    if (!weir_options_parse(argc, argv, "[OPTIONS] [TENANT]",
                            "Let new programs of a tenant in again, or of all tenants.", options,
                            &first, &exit_status)) {
        return exit_status;
    }
    if (argc - first > 1) {
        (void)weir_options_no_more(argc, argv, first + 1);
        return WEIR_EXIT_USAGE;
    }
    const char *const words[] = {"undrain", argv[first]};
    struct weir_status_report *report =
        weir_ask("undrain", run_dir, words, (size_t)(1 + argc - first), -1, &exit_status);
    if (!report) {
        return exit_status;
    }
    exit_status = weir_ask_notes("undrain", report) ? WEIR_EXIT_OK : WEIR_EXIT_FAILED;
    weir_status_report_destroy(report);
    return exit_status;
}
