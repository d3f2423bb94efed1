/* Descriptors that may not be there (-1 stands for none), and all of what is read or written. */
#pragma once

#include <stddef.h>
#include <unistd.h>

/** Close a descriptor, if there is one. @return -1, for the variable that held it */
static inline int weir_fd_close(int fd)
{
    if (fd >= 0) {
        close(fd);
    }
    return -1;
}

/** Read that many bytes, if there are so many. @return how many; if fewer, the file has ended and
 * errno is 0, or errno says why. @thread any */
size_t weir_fd_read(int fd, void *to, size_t bytes);

/** Write all bytes. @return how many; if fewer, see errno. @thread any */
size_t weir_fd_write(int fd, const void *from, size_t bytes);

/**
 * Read to the end.
 *
 * @param max_bytes  EFBIG if there are more.
 * @return made by malloc, with a NUL behind it; NULL: see errno.
 * @thread any
 */
char *weir_fd_text(int fd, size_t max_bytes, size_t *ret_bytes);
