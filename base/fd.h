/* Descriptors that may not be there: -1 stands for none. */
#pragma once

#include <unistd.h>

/** Close a descriptor, if there is one. @return -1, for the variable that held it */
static inline int weir_fd_close(int fd)
{
    if (fd >= 0) {
        close(fd);
    }
    return -1;
}
