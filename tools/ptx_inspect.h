/* `weir ptx inspect`, for cmd_ptx.c. */
#ifndef WEIR_TOOLS_PTX_INSPECT_H
#define WEIR_TOOLS_PTX_INSPECT_H

/* argv[0] is "inspect". Returns the exit status. */
int weir_ptx_inspect_main(int argc, char **argv);

#endif
