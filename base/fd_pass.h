/* Passes descriptors with a message over a unix socket (SCM_RIGHTS). */
#ifndef WEIR_BASE_FD_PASS_H
#define WEIR_BASE_FD_PASS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* More than any peer may send, so that unexpected descriptors are seen and closed. */
#define WEIR_FDS_MAX 8

/* Descriptors that came with a message. */
struct weir_fds {
    int fd[WEIR_FDS_MAX]; /* the receiver closes them */
    uint32_t n;
    bool fds_cut;   /* more descriptors were sent, or this process cannot open more */
    bool bytes_cut; /* the message is longer than the buffer */
};

/**
 * sendmsg() with at most one descriptor. Continues after a signal and raises no SIGPIPE.
 *
 * @param pass_fd  descriptor to pass, borrowed; -1: none.
 * @param flags    MSG_DONTWAIT or 0.
 * @return bytes sent; -1: see errno.
 * @thread any
 */
ssize_t weir_fd_send(int socket_fd, const void *bytes, size_t len, int pass_fd, int flags);

/**
 * recvmsg() with descriptors, which are closed on exec. Continues after a signal.
 *
 * @param size of bytes.
 * @param flags     MSG_DONTWAIT or 0.
 * @param ret_fds   always written; empty on failure.
 * @return bytes received; -1: see errno.
 * @thread any
 */
ssize_t weir_fd_receive(int socket_fd, void *bytes, size_t capacity, int flags,
                        struct weir_fds *ret_fds);

/** Close all descriptors; errno is preserved. @thread owner */
void weir_fds_close(struct weir_fds *fds);

#endif
