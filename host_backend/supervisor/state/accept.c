/*
 * Accepting connections when no descriptors are left.
 *
 * If accept() fails for want of a descriptor, the socket stays ready, and poll() returns at once
 * again and again. So the supervisor keeps some descriptors in reserve. With one of them it accepts
 * a guest that comes too late, sends it an error, and closes the connection. Operators (weir
 * status, metrics) keep a descriptor of the reserve, so that they can find out what is wrong. Only
 * the last one is used to refuse them, too.
 */
#include "base/fd.h"
#include "host_backend/supervisor/state/sockets.h"
#include "host_backend/supervisor/state/supervisor.h"

#include "base/log.h"
#include "proto/cuda_abi.h"
#include "proto/wire/accept.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#define SAY_NS (10 * WEIR_NS_PER_S)

static bool is_shortage(int error)
{
    return error == EMFILE || error == ENFILE;
}

void weir_sup_reserve_fill(struct weir_supervisor *sup)
{
    struct weir_sup_reserve *r = &sup->reserve;

    while (r->n < WEIR_SUP_RESERVE) {
        int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

        if (fd < 0) {
            return; /* the caller tries again when something was closed */
        }
        r->fd[r->n++] = fd;
    }
}

void weir_sup_reserve_close(struct weir_supervisor *sup)
{
    while (sup->reserve.n != 0) {
        close(sup->reserve.fd[--sup->reserve.n]);
    }
}

/* Accept a connection with a descriptor of the reserve. */
static int accept_with_reserve(struct weir_supervisor *sup, int listen_fd, struct sockaddr *address,
                               socklen_t *bytes, int flags)
{
    if (sup->reserve.n == 0) {
        return -1;
    }
    close(sup->reserve.fd[--sup->reserve.n]);
    return accept4(listen_fd, address, bytes, flags);
}

int weir_sup_accept_guest(struct weir_supervisor *sup, int listen_fd, struct sockaddr *address,
                          socklen_t *bytes)
{
    int fd = accept4(listen_fd, address, bytes, SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (fd >= 0 || !is_shortage(errno)) {
        return fd;
    }
    fd = accept_with_reserve(sup, listen_fd, address, bytes, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) {
        weir_refuse(fd, WEIR_ERR_NO_DESCRIPTOR, CUDA_ERROR_OUT_OF_MEMORY,
                    "the host has no file descriptor left");
        close(fd);
    }
    weir_sup_reserve_fill(sup);
    sup->reserve.refused++;
    uint64_t now_ns = weir_host_clock_ns();
    if (sup->reserve.said_ns == 0 || now_ns - sup->reserve.said_ns >= SAY_NS) {
        sup->reserve.said_ns = now_ns;
        weir_log_error("supervisor: no descriptors left, guests are turned away refused=%llu",
                       (unsigned long long)sup->reserve.refused);
    }
    return -1;
}

int weir_sup_accept_operator(struct weir_supervisor *sup, int listen_fd, int flags)
{
    int fd = accept4(listen_fd, NULL, NULL, flags);

    if (fd >= 0 || !is_shortage(errno)) {
        return fd;
    }
    if (sup->reserve.n > 1) {
        return accept_with_reserve(sup, listen_fd, NULL, NULL, flags);
    }
    fd = accept_with_reserve(sup, listen_fd, NULL, NULL, flags); /* only accepted to be refused */
    weir_fd_close(fd);
    weir_sup_reserve_fill(sup);
    return -1;
}
