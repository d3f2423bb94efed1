/* weir ptx: what is done with PTX files; each action is a file of its own. */
#include "tools/command.h"
#include "tools/ptx_transform.h"

#include <stdio.h>
#include <string.h>

int weir_cmd_ptx(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "transform") == 0) {
        return weir_ptx_transform_main(argc - 1, argv + 1);
    }
    fprintf(stderr, "Usage: weir ptx transform [OPTIONS] FILE\n");
    return argc > 1 && strcmp(argv[1], "--help") == 0 ? WEIR_EXIT_OK : WEIR_EXIT_USAGE;
}
