/* PTX files for the actions of `weir ptx`. */
#pragma once

#include "ptx/ptx.h"

/**
 * Read and parse a PTX file without its debug information; complains on stderr.
 *
 * @param path  "-" for standard input.
 * @return the module, which the caller destroys, or NULL.
 */
struct weir_ptx_module *weir_ptx_file_load(const char *path);
