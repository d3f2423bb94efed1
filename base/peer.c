#include "base/peer.h"

#include "base/clock.h"
#include "base/file_text.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static bool is_stopped(int pid)
{
    char path[32], text[128];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    (void)weir_file_text(path, text, sizeof text);
    const char *name_end =
        strrchr(text, ')'); /* "17 (a name) T 1 ..."; a name may have any letter */
    return name_end && name_end[1] == ' ' && (name_end[2] == 'T' || name_end[2] == 't');
}

/* Has a signal or a debugger stopped the process that listens at the socket's other end?
 * If this process cannot know, because there is no /proc or the other process is in another pid
 * namespace, this returns false. */
static bool peer_is_stopped(int socket_fd)
{
    int saved_errno = errno;
    struct ucred peer;
    socklen_t bytes = sizeof peer;
    bool stopped = getsockopt(socket_fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 &&
                   peer.pid > 0 && is_stopped(peer.pid);
    errno = saved_errno;
    return stopped;
}

enum weir_status weir_peer_await(int socket_fd, uint64_t end_ns)
{
    int looks = 0;
    for (uint64_t now_ns; (now_ns = weir_clock_now_ns()) < end_ns;) {
        uint64_t left_ns = end_ns - now_ns;
        uint64_t wait_ns = WEIR_MIN(left_ns, WEIR_PEER_LOOK_NS);
        struct pollfd wait = {socket_fd, POLLIN, 0};
        int n = poll(&wait, 1, (int)(wait_ns / WEIR_NS_PER_MS) + 1);
        if (n > 0 || (n < 0 && errno != EINTR)) {
            return WEIR_OK;
        }
        looks = n == 0 && peer_is_stopped(socket_fd) ? looks + 1 : 0;
        WEIR_FAIL_IF(looks == WEIR_PEER_LOOKS, WEIR_ERR_STOPPED);
    }
    return WEIR_ERR_TIMED_OUT;
}
