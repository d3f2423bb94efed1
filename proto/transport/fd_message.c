#include "proto/transport/fd_message.h"
#include "base/clock.h"
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Descriptors that we make room for, to see and close those that should not be there. */
#define MAX_PASSED 8

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

/* Wait until the socket is ready for events, or can only fail. */
static enum weir_status wait_ready(int fd, short events, uint64_t deadline_ns)
{
    uint64_t left_ns = weir_deadline_left_ns(deadline_ns);
    if (left_ns == 0) {
        return WEIR_ERR_TIMED_OUT;
    }
    uint64_t left_ms = left_ns == WEIR_FOREVER ? 60000 : left_ns / WEIR_NS_PER_MS + 1;
    struct pollfd poll_fd = {.fd = fd, .events = events};
    int rc = poll(&poll_fd, 1, left_ms > 60000 ? 60000 : (int)left_ms);
    return rc < 0 && errno != EINTR ? WEIR_ERR_IO : WEIR_OK;
}

static enum weir_status status_of_errno(int error)
{
    switch (error) {
    case EPIPE:
    case ECONNRESET:
    case ENOTCONN:
        return WEIR_ERR_CLOSED;
    case EMSGSIZE:
        return WEIR_ERR_TOO_BIG;
    case ENOMEM:
    case ENOBUFS:
        return WEIR_ERR_NO_MEMORY;
    default:
        return WEIR_ERR_IO;
    }
}

union control_space {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(int) * MAX_PASSED)];
};

enum weir_status weir_fd_message_send(int socket_fd, const void *bytes, size_t len, int pass_fd,
                                      uint64_t deadline_ns)
{
    int saved_errno = errno;
    union control_space control;
    memset(&control, 0, sizeof control);
    struct iovec part = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = len};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (pass_fd >= 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(sizeof pass_fd);
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof pass_fd);
        memcpy(CMSG_DATA(header), &pass_fd, sizeof pass_fd);
    }
    enum weir_status status = WEIR_OK;
    while (status == WEIR_OK && sendmsg(socket_fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
        if (errno == EAGAIN) {
            status = wait_ready(socket_fd, POLLOUT, deadline_ns);
        } else if (errno != EINTR) {
            status = status_of_errno(errno);
        }
    }
    errno = saved_errno;
    return status;
}

/* Take the descriptors out of a message: the only one to *ret_fd, everything else is closed. */
static enum weir_status take_fds(struct msghdr *message, int *ret_fd)
{
    int fds[MAX_PASSED];
    size_t n = 0;
    for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header;
         header = CMSG_NXTHDR(message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count && n < MAX_PASSED; i++) {
            memcpy(&fds[n++], CMSG_DATA(header) + i * sizeof(int), sizeof(int));
        }
    }
    bool cut = message->msg_flags & MSG_CTRUNC;
    if (!cut && (n == 0 || (n == 1 && ret_fd))) {
        if (ret_fd) {
            *ret_fd = n ? fds[0] : -1;
        }
        return WEIR_OK;
    }
    for (size_t i = 0; i < n; i++) {
        close(fds[i]);
    }
    /* Cut with nothing in it: this process has no descriptors left, which is not the peer's fault.
     */
    return cut && n == 0 ? WEIR_ERR_IO : WEIR_ERR_PEER;
}

enum weir_status weir_fd_message_receive(int socket_fd, void *bytes, size_t capacity,
                                         uint64_t deadline_ns, size_t *ret_len, int *ret_fd)
{
    int saved_errno = errno;
    union control_space control;
    struct iovec part = {.iov_base = bytes, .iov_len = capacity};
    struct msghdr message;
    enum weir_status status = WEIR_OK;
    ssize_t len = -1;
    bool was_reset = false;
    while (status == WEIR_OK && len < 0) {
        message = (struct msghdr){.msg_iov = &part,
                                  .msg_iovlen = 1,
                                  .msg_control = control.bytes,
                                  .msg_controllen = sizeof control.bytes};
        len = recvmsg(socket_fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
        if (len < 0 && errno == EAGAIN) {
            status = wait_ready(socket_fd, POLLIN, deadline_ns);
        } else if (len < 0 && errno == ECONNRESET && !was_reset) {
            /* A peer that closes with something of ours unread resets the socket; what it said
             * before is told only after that error. */
            was_reset = true;
        } else if (len < 0 && errno != EINTR) {
            status = status_of_errno(errno);
        }
    }
    int fd = -1;
    if (status == WEIR_OK) {
        status = take_fds(&message, ret_fd ? &fd : NULL);
    }
    if (status == WEIR_OK && len == 0 && fd < 0) {
        status = WEIR_ERR_CLOSED;
    } else if (status == WEIR_OK && ((message.msg_flags & MSG_TRUNC) || len == 0)) {
        status = WEIR_ERR_PEER;
    }
    if (status == WEIR_OK) {
        *ret_len = (size_t)len;
        if (ret_fd) {
            *ret_fd = fd;
        }
    } else if (fd >= 0) {
        close(fd);
    }
    errno = saved_errno;
    return status;
}
