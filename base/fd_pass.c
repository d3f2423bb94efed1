#include "base/fd_pass.h"
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Room for the descriptors of one message. */
union control {
    struct cmsghdr header;
    char room[CMSG_SPACE(sizeof(int) * WEIR_FDS_ONCE)];
};

ssize_t weir_fds_send(int socket_fd, const void *bytes, size_t len, const int *fds, uint32_t n,
                      int flags)
{
    struct iovec part = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = len};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    union control control;
    ssize_t sent;

    if (n > WEIR_FDS_ONCE) {
        errno = E2BIG;
        return -1;
    }
    if (n != 0) {
        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE(n * sizeof *fds);
        memset(&control, 0, message.msg_controllen);
        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        control.header.cmsg_len = CMSG_LEN(n * sizeof *fds);
        memcpy(CMSG_DATA(&control.header), fds, n * sizeof *fds);
    }
    do {
        sent = sendmsg(socket_fd, &message, flags | MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    return sent;
}

static uint32_t take(struct msghdr *message, int *fds, uint32_t room)
{
    uint32_t n = 0;

    for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header;
         header = CMSG_NXTHDR(message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count && n < room; i++) {
            memcpy(&fds[n++], CMSG_DATA(header) + i * sizeof(int), sizeof(int));
        }
    }
    return n;
}

ssize_t weir_fds_receive(int socket_fd, void *bytes, size_t capacity, int flags, int *fds,
                         uint32_t room, uint32_t *ret_n, int *ret_flags)
{
    struct iovec part = {.iov_base = bytes, .iov_len = capacity};
    union control control;
    struct msghdr message;
    ssize_t received;

    do {
        message = (struct msghdr){.msg_iov = &part,
                                  .msg_iovlen = 1,
                                  .msg_control = &control,
                                  .msg_controllen = CMSG_SPACE(room * sizeof *fds)};
        received = recvmsg(socket_fd, &message, flags | MSG_CMSG_CLOEXEC);
    } while (received < 0 && errno == EINTR);
    *ret_n = received >= 0 ? take(&message, fds, room) : 0;
    *ret_flags = received >= 0 ? message.msg_flags : 0;
    return received;
}

ssize_t weir_fd_receive(int socket_fd, void *bytes, size_t capacity, int flags,
                        struct weir_fds *ret_fds)
{
    int got;
    ssize_t received = weir_fds_receive(socket_fd, bytes, capacity, flags, ret_fds->fd,
                                        WEIR_FDS_MAX, &ret_fds->n, &got);

    ret_fds->fds_cut = (got & MSG_CTRUNC) != 0;
    ret_fds->bytes_cut = (got & MSG_TRUNC) != 0;
    return received;
}

void weir_fds_close(struct weir_fds *fds)
{
    int saved_errno = errno;

    for (uint32_t i = 0; i < fds->n; i++) {
        close(fds->fd[i]);
    }
    fds->n = 0;
    errno = saved_errno;
}
