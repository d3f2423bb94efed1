/* Finds out from a program's file whether its kernels launch kernels (CUDA's dynamic
 * parallelism). */
#pragma once

#include <stdbool.h>

/**
 * Does the machine code in a program's file have kernels that launch kernels?
 *
 * The answer is no if the file cannot be read. Compressed code and code in other files is not
 * found.
 *
 * @param path  of an ELF file: /proc/self/exe.
 * @thread any
 */
bool weir_device_launch_is_in(const char *path);
