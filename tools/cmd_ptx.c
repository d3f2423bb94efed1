/* weir ptx: actions on PTX files. */
#include "tools/command.h"
#include "tools/ptx_inspect.h"

int weir_cmd_ptx(int argc, char **argv)
{
    static const struct weir_action actions[] = {
        {"inspect", weir_ptx_inspect_main, "show what kernels contain, and their forms"},
        {.name = NULL}};
    static const char *const valued[] = {"kernel", NULL};
    static const struct weir_actions all = {"ptx", "Look at PTX files.", actions, valued};
    return weir_actions_run(argc, argv, &all);
}
