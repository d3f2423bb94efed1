/* Finds installed programs of others, such as ptxas. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/** Is there a file at this path that this process may run? @thread any */
bool weir_is_program(const char *path);

/**
 * Look for a program in the folders of PATH, those with relative paths left out.
 * @param ret_path  gives its path; written in any case.
 * @param bytes     size of ret_path, 1 or more.
 * @return false: there is none, or its path does not fit
 * @thread any; nobody changes the environment meanwhile
 */
bool weir_program_find(const char *name, char *ret_path, size_t bytes);
