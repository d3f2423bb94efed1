#include "base/peer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static bool is_stopped(int pid)
{
    char path[32], text[128];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0) {
        close(fd);
    }
    text[n > 0 ? n : 0] = 0;
    const char *name_end =
        strrchr(text, ')'); /* "17 (a name) T 1 ..."; a name may have any letter */
    return name_end && name_end[1] == ' ' && (name_end[2] == 'T' || name_end[2] == 't');
}

bool weir_peer_is_stopped(int socket_fd)
{
    int saved_errno = errno;
    struct ucred peer;
    socklen_t bytes = sizeof peer;
    bool stopped = getsockopt(socket_fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 &&
                   peer.pid > 0 && is_stopped(peer.pid);
    errno = saved_errno;
    return stopped;
}
