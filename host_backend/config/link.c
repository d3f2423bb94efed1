/* Messages between supervisor and worker: one struct a packet, at most one descriptor with it. */
#include "host_backend/config/link.h"

#include "base/fd.h"
#include "base/fd_pass.h"
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static enum weir_status status_of_errno(void)
{
    switch (errno) {
    case EAGAIN:
    case ENOBUFS:
    case ENOMEM:
    case ETOOMANYREFS: /* too many descriptors are in flight between processes */
        return WEIR_ERR_AGAIN;
    case EPIPE:
    case ECONNRESET:
    case ENOTCONN:
        return WEIR_ERR_CLOSED;
    default:
        return WEIR_ERR_IO;
    }
}

static enum weir_status send_with(int link, const struct weir_link_message *message, int fd,
                                  int flags)
{
    return weir_fd_send(link, message, sizeof *message, fd, flags) < 0 ? status_of_errno()
                                                                       : WEIR_OK;
}

enum weir_status weir_link_send(int link, const struct weir_link_message *message, int fd)
{
    return send_with(link, message, fd, 0);
}

enum weir_status weir_link_send_now(int link, const struct weir_link_message *message, int fd)
{
    return send_with(link, message, fd, MSG_DONTWAIT);
}

static enum weir_status receive(int link, int flags, struct weir_link_message *ret_message,
                                int *ret_fd)
{
    struct weir_fds fds;
    ssize_t n = weir_fd_receive(link, ret_message, sizeof *ret_message, flags, &fds);

    *ret_fd = -1;
    if (n < 0) {
        return status_of_errno();
    }
    if (n >= (ssize_t)sizeof ret_message->type && fds.n <= 1 && (fds.n == 1 || !fds.fds_cut)) {
        memset((char *)ret_message + n, 0, sizeof *ret_message - (size_t)n);
        *ret_fd = fds.n == 1 ? fds.fd[0] : -1;
        return WEIR_OK;
    }
    if (n >= (ssize_t)sizeof ret_message->type && fds.fds_cut && fds.n == 0) {
        memset((char *)ret_message + n, 0, sizeof *ret_message - (size_t)n);
        return WEIR_ERR_NO_MEMORY;
    }
    weir_fds_close(&fds);
    return n == 0 ? WEIR_ERR_CLOSED : WEIR_ERR_PEER;
}

enum weir_status weir_link_receive(int link, struct weir_link_message *ret_message, int *ret_fd)
{
    return receive(link, 0, ret_message, ret_fd);
}

enum weir_status weir_link_peek(int link, struct weir_link_message *ret_message, int *ret_fd)
{
    return receive(link, MSG_PEEK, ret_message, ret_fd);
}

void weir_link_consume(int link)
{
    char byte;

    (void)!recv(link, &byte, sizeof byte, MSG_DONTWAIT);
}

void weir_link_finish(struct weir_link_heard *heard)
{
    int fd = weir_link_take_fd(heard);

    weir_fd_close(fd);
}
