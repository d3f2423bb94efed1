/* weir ptx: actions on PTX files; each action has a file of its own. */
#include "tools/command.h"
#include "tools/ptx_inspect.h"
#include "tools/ptx_transform.h"

int weir_cmd_ptx(int argc, char **argv)
{
    static const struct weir_action actions[] = {
        {"inspect", weir_ptx_inspect_main, "show what kernels contain, and their forms"},
        {"transform", weir_ptx_transform_main, "print a file with twins of its kernels"},
        {.name = NULL}};
    static const char *const valued[] = {"kernel", "form", "max-regs", NULL};
    static const struct weir_actions all = {"ptx", "Look at PTX files, and change them.", actions,
                                            valued};
    return weir_actions_run(argc, argv, &all);
}
