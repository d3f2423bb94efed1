/* `weir ptx inspect`, for cmd_ptx.c. */
#pragma once

/* argv[0] is "inspect". Returns the exit status. */
int weir_ptx_inspect_main(int argc, char **argv);
