/* weir resume: let suspended programs go on. */
#include "tools/ask.h"
#include "tools/command.h"

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
    const char *const words[] = {"resume", argv[first], session};
    return weir_ask_to("resume", run_dir, words, session ? 3 : 2);
}
