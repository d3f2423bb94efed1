/* Programs whose kernels launch kernels (CUDA's dynamic parallelism), known by their own file. */
#ifndef WEIR_GUEST_LIB_DEVICE_LAUNCH_H
#define WEIR_GUEST_LIB_DEVICE_LAUNCH_H

#include <stdbool.h>

/**
 * Does the machine code in a program's file have kernels that launch kernels?
 *
 * What cannot be read has none; nor have code that is compressed, and code in other files.
 *
 * @param path  of an ELF file: /proc/self/exe.
 * @thread any
 */
bool weir_device_launch_is_in(const char *path);

#endif
