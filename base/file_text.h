/* Reads short files, such as those of /proc and /sys. */
#pragma once

#include "base/fd.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>

/**
 * @param ret_text  ends with NUL, also where there is nothing to read; what does not fit is cut
 * off.
 * @param bytes     its room, 1 or more.
 * @return false: it is not there, not to be read, or empty
 * @thread any
 */
static inline bool weir_file_text(const char *path, char *ret_text, size_t bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, ret_text, bytes - 1) : -1;
    weir_fd_close(fd);
    ret_text[n > 0 ? n : 0] = 0;
    return n > 0;
}
