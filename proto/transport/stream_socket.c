/* The link over a connected stream socket: the kernel reports when the peer is gone. */
#include "proto/transport/stream.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

struct socket_link {
    struct weir_stream_link base;
    bool was_reset;
};

static ssize_t socket_read(struct weir_stream_link *link, void *bytes, size_t len)
{
    struct socket_link *s = (struct socket_link *)(void *)link;
    for (;;) {
        ssize_t n = recv(link->fd, bytes, len, MSG_DONTWAIT);
        if (n > 0) {
            return n;
        }
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            return 0;
        }
        /* A peer that closes with unread bytes of ours resets the socket; its earlier bytes may be
         * delivered only after that error. */
        if (n < 0 && errno == ECONNRESET && !s->was_reset) {
            s->was_reset = true;
        } else if (n == 0 || errno != EINTR) {
            return -1;
        }
    }
}

static ssize_t socket_write(struct weir_stream_link *link, struct iovec *parts, int n)
{
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = (size_t)n};
    ssize_t sent;
    do {
        sent = sendmsg(link->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    if (sent >= 0) {
        return sent;
    }
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS ? 0 : -1;
}

static void socket_close(struct weir_stream_link *link, bool child)
{
    close(link->fd);
    if (!child) {
        free(link);
    }
}

static const struct weir_stream_link_ops socket_ops = {
    .read = socket_read,
    .write = socket_write,
    .close = socket_close,
};

struct weir_stream_link *weir_stream_socket(int fd)
{
    struct socket_link *link = malloc(sizeof *link);
    if (!link) {
        close(fd);
        return NULL;
    }
    *link = (struct socket_link){.base = {.ops = &socket_ops, .fd = fd}};
    return &link->base;
}
