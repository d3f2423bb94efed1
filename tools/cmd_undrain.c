/* weir undrain: let new programs in again. */
#include "tools/ask.h"
#include "tools/command.h"

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
    const char *const words[] = {"undrain", argv[first]};
    return weir_ask_to("undrain", run_dir, words, (size_t)(1 + argc - first));
}
