#include "proto/transport/fd_message.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/fd_pass.h"
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

uint64_t weir_deadline_after(uint64_t timeout_ns)
{
    uint64_t now = weir_clock_now_ns();
    return timeout_ns >= WEIR_FOREVER - now ? WEIR_FOREVER : now + timeout_ns;
}

uint64_t weir_deadline_left_ns(uint64_t deadline_ns)
{
    if (deadline_ns == WEIR_FOREVER || deadline_ns == 0) {
        return deadline_ns;
    }
    uint64_t now = weir_clock_now_ns();
    return now < deadline_ns ? deadline_ns - now : 0;
}

bool weir_fd_peer_gone(int socket_fd, int pid_fd)
{
    int saved_errno = errno;
    struct pollfd fds[2] = {{.fd = socket_fd, .events = POLLRDHUP},
                            {.fd = pid_fd, .events = POLLIN}};
    bool gone = poll(fds, 2, 0) > 0 &&
                ((fds[0].revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL)) || fds[1].revents);
    errno = saved_errno;
    return gone;
}

uint64_t weir_socket_cookie(int socket_fd)
{
    int saved_errno = errno;
    uint64_t cookie = 0;
    socklen_t len = sizeof cookie;
    if (getsockopt(socket_fd, SOL_SOCKET, SO_COOKIE, &cookie, &len) != 0) {
        cookie = 0;
    }
    errno = saved_errno;
    return cookie;
}

/* Wait until the socket is ready for the events or has failed. */
static enum weir_status wait_ready(int fd, short events, uint64_t deadline_ns)
{
    uint64_t left_ns = weir_deadline_left_ns(deadline_ns);
    WEIR_FAIL_IF(left_ns == 0, WEIR_ERR_TIMED_OUT);
    uint64_t left_ms = left_ns == WEIR_FOREVER ? 60000 : left_ns / WEIR_NS_PER_MS + 1;
    struct pollfd poll_fd = {.fd = fd, .events = events};
    int result = poll(&poll_fd, 1, left_ms > 60000 ? 60000 : (int)left_ms);
    return result < 0 && errno != EINTR ? WEIR_ERR_IO : WEIR_OK;
}

enum weir_status weir_fd_message_send(int socket_fd, const void *bytes, size_t len, int pass_fd,
                                      uint64_t deadline_ns)
{
    int saved_errno = errno;
    enum weir_status status = WEIR_OK;
    while (status == WEIR_OK && weir_fd_send(socket_fd, bytes, len, pass_fd, MSG_DONTWAIT) < 0) {
        status = errno == EAGAIN ? wait_ready(socket_fd, POLLOUT, deadline_ns)
                                 : weir_status_of_errno(errno);
    }
    errno = saved_errno;
    return status;
}

/* Give the only descriptor to *ret_fd if one is expected; close all others. */
static enum weir_status take_fd(struct weir_fds *fds, int *ret_fd)
{
    if (!fds->fds_cut && (fds->n == 0 || (fds->n == 1 && ret_fd))) {
        WEIR_GIVE(ret_fd, fds->n ? fds->fd[0] : -1);
        return WEIR_OK;
    }
    /* The list was cut off without any descriptor in it: this process can open no more, which is
     * not the peer's fault. */
    enum weir_status status = fds->fds_cut && fds->n == 0 ? WEIR_ERR_NO_DESCRIPTOR : WEIR_ERR_PEER;
    weir_fds_close(fds);
    return status;
}

enum weir_status weir_fd_message_receive(int socket_fd, void *bytes, size_t capacity,
                                         uint64_t deadline_ns, size_t *ret_len, int *ret_fd)
{
    int saved_errno = errno;
    struct weir_fds fds;
    enum weir_status status = WEIR_OK;
    ssize_t len = -1;
    bool was_reset = false;
    while (status == WEIR_OK && len < 0) {
        len = weir_fd_receive(socket_fd, bytes, capacity, MSG_DONTWAIT, &fds);
        if (len < 0 && errno == EAGAIN) {
            status = wait_ready(socket_fd, POLLIN, deadline_ns);
        } else if (len < 0 && errno == ECONNRESET && !was_reset) {
            /* A peer that closes with unread bytes of ours resets the socket; its earlier messages
             * are delivered only after that error. */
            was_reset = true;
        } else if (len < 0) {
            status = weir_status_of_errno(errno);
        }
    }
    int fd = -1;
    WEIR_THEN(status, take_fd(&fds, ret_fd ? &fd : NULL));
    if (status == WEIR_OK && len == 0 && fd < 0) {
        status = WEIR_ERR_CLOSED;
    } else if (status == WEIR_OK && (fds.bytes_cut || len == 0)) {
        status = WEIR_ERR_PEER;
    }
    if (status == WEIR_OK) {
        *ret_len = (size_t)len;
        WEIR_GIVE(ret_fd, fd);
    } else {
        weir_fd_close(fd);
    }
    errno = saved_errno;
    return status;
}
