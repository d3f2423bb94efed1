/* Replaces a file as a whole: a reader finds either the old contents or the new ones. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

/**
 * Open PATH.new, to which the caller writes the new contents.
 * @return NULL: it cannot be opened, or its name is too long. @thread any
 */
FILE *weir_replace_begin(const char *path);

/**
 * Close the file and give it the name PATH. It is not synced, so a power cut may lose it.
 * @param path  of weir_replace_begin().
 * @param good  false: the caller could not write everything, so PATH stays as it was.
 * @return false: PATH stays as it was, as after a full disk. @thread any
 */
bool weir_replace_end(FILE *file, const char *path, bool good);
