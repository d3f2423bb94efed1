/* weir resume: let suspended programs go on. */
#include "tools/ask.h"
#include "tools/command.h"

#include <stdio.h>

int weir_cmd_resume(int argc, char **argv)
{
    const char *run_dir = NULL, *session = NULL;
    const struct weir_option options[] = {
        {"session", "ID", "only this one, as weir status lists it", &session, NULL},
        {"run-dir", "DIR", "where the host's sockets are", &run_dir, NULL},
        {.name = NULL},
    };
    int first;
    int exit_status;
    if (!weir_options_parse(argc, argv, "[OPTIONS] TENANT",
                            "Let suspended programs of a tenant go on (weir suspend).", options,
                            &first, &exit_status)) {
        return exit_status;
    }
    if (argc - first != 1) {
        fprintf(stderr, "weir resume: one tenant, please (see weir resume --help)\n");
        return WEIR_EXIT_USAGE;
    }
    const char *const words[] = {"resume", argv[first], session};
    struct weir_status_report *report =
        weir_ask("resume", run_dir, words, session ? 3 : 2, -1, &exit_status);
    if (!report) {
        return exit_status;
    }
    exit_status = weir_ask_notes("resume", report) ? WEIR_EXIT_OK : WEIR_EXIT_FAILED;
    weir_status_report_destroy(report);
    return exit_status;
}
