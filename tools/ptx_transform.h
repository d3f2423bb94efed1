/* `weir ptx transform`, for cmd_ptx.c. */
#ifndef WEIR_TOOLS_PTX_TRANSFORM_H
#define WEIR_TOOLS_PTX_TRANSFORM_H

/* argv[0] is "transform". Returns the exit status. */
int weir_ptx_transform_main(int argc, char **argv);

#endif
