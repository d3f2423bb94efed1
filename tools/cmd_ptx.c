/* weir ptx: what is done with PTX files; each action is a file of its own. */
#include "tools/command.h"
#include "tools/ptx_inspect.h"
#include "tools/ptx_transform.h"

#include <stdio.h>
#include <string.h>

int weir_cmd_ptx(int argc, char **argv)
{
    /* The name in full is what an action gets for argv[0], and so what its help shows. */
    static struct {
        char full[24];
        weir_command_fn run;
    } actions[] = {
        {"ptx inspect", weir_ptx_inspect_main},
        {"ptx transform", weir_ptx_transform_main},
    };

    for (size_t i = 0; argc > 1 && i < sizeof(actions) / sizeof(actions[0]); i++) {
        if (strcmp(argv[1], actions[i].full + strlen("ptx ")) == 0) {
            argv[1] = actions[i].full;
            return actions[i].run(argc - 1, argv + 1);
        }
    }
    bool is_help = argc > 1 && weir_option_is_help(argv[1]);

    fprintf(is_help ? stdout : stderr, "Usage: weir ptx inspect|transform [OPTIONS] FILE\n\n"
                                       "What each does is shown by weir ptx ACTION --help.\n");
    return is_help ? WEIR_EXIT_OK : WEIR_EXIT_USAGE;
}
