#include "base/fd_pass.h"
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

ssize_t weir_fd_send(int socket_fd, const void *bytes, size_t len, int pass_fd, int flags)
{
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof pass_fd)];
    } control;
    struct iovec part = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = len};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    ssize_t sent;

    if (pass_fd >= 0) {
        memset(&control, 0, sizeof control);
        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        control.header.cmsg_len = CMSG_LEN(sizeof pass_fd);
        memcpy(CMSG_DATA(&control.header), &pass_fd, sizeof pass_fd);
        message.msg_control = &control;
        message.msg_controllen = sizeof control;
    }
    do {
        sent = sendmsg(socket_fd, &message, flags | MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    return sent;
}

static void take(struct msghdr *message, struct weir_fds *fds)
{
    for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header;
         header = CMSG_NXTHDR(message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count && fds->n < WEIR_FDS_MAX; i++) {
            memcpy(&fds->fd[fds->n++], CMSG_DATA(header) + i * sizeof(int), sizeof(int));
        }
    }
}

ssize_t weir_fd_receive(int socket_fd, void *bytes, size_t capacity, int flags,
                        struct weir_fds *ret_fds)
{
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int) * WEIR_FDS_MAX)];
    } control;
    struct iovec part = {.iov_base = bytes, .iov_len = capacity};
    struct msghdr message;
    ssize_t received;

    *ret_fds = (struct weir_fds){.n = 0};
    do {
        message = (struct msghdr){.msg_iov = &part,
                                  .msg_iovlen = 1,
                                  .msg_control = &control,
                                  .msg_controllen = sizeof control};
        received = recvmsg(socket_fd, &message, flags | MSG_CMSG_CLOEXEC);
    } while (received < 0 && errno == EINTR);
    if (received >= 0) {
        take(&message, ret_fds);
        ret_fds->fds_cut = (message.msg_flags & MSG_CTRUNC) != 0;
        ret_fds->bytes_cut = (message.msg_flags & MSG_TRUNC) != 0;
    }
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
