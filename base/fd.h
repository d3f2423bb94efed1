/* Descriptors that may not be there: -1 stands for none. */
#ifndef WEIR_BASE_FD_H
#define WEIR_BASE_FD_H

#include <unistd.h>

/** Close a descriptor, if there is one. @return -1, for the variable that held it */
static inline int weir_fd_close(int fd)
{
    if (fd >= 0) {
        close(fd);
    }
    return -1;
}

#endif
