/* Messages between supervisor and worker: one struct a packet, at most one descriptor with it. */
#include "host_backend/link.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

union fd_room {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(int))];
};

static enum weir_status status_of_errno(void)
{
    switch (errno) {
    case EAGAIN:
        return WEIR_ERR_AGAIN;
    case EPIPE:
    case ECONNRESET:
    case ENOTCONN:
        return WEIR_ERR_CLOSED;
    default:
        return WEIR_ERR_IO;
    }
}

enum weir_status weir_link_send(int link, const struct weir_link_message *message, int fd)
{
    struct iovec iov = {(void *)(uintptr_t)message, sizeof *message};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    union fd_room room = {0};
    ssize_t n;

    if (fd >= 0) {
        struct cmsghdr *c;

        msg.msg_control = room.bytes;
        msg.msg_controllen = sizeof room.bytes;
        c = CMSG_FIRSTHDR(&msg);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(c), &fd, sizeof fd);
    }
    do {
        n = sendmsg(link, &msg, MSG_NOSIGNAL);
    } while (n < 0 && errno == EINTR);
    return n < 0 ? status_of_errno() : WEIR_OK;
}

enum weir_status weir_link_receive(int link, struct weir_link_message *ret_message, int *ret_fd)
{
    struct iovec iov = {ret_message, sizeof *ret_message};
    union fd_room room = {0};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = room.bytes,
                         .msg_controllen = sizeof room.bytes};
    ssize_t n;

    *ret_fd = -1;
    do {
        n = recvmsg(link, &msg, MSG_CMSG_CLOEXEC);
    } while (n < 0 && errno == EINTR);
    if (n < 0) {
        return status_of_errno();
    }
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c != NULL; c = CMSG_NXTHDR(&msg, c)) {
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
            memcpy(ret_fd, CMSG_DATA(c), sizeof *ret_fd);
        }
    }
    if (n == sizeof *ret_message && (msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0) {
        return WEIR_OK;
    }
    if (*ret_fd >= 0) {
        close(*ret_fd);
        *ret_fd = -1;
    }
    return n == 0 ? WEIR_ERR_CLOSED : WEIR_ERR_PEER;
}
