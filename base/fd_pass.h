/* Passes descriptors with a message over a unix socket (SCM_RIGHTS). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define WEIR_FDS_ONCE 253 /* most descriptors of one message: the kernel's SCM_MAX_FD */
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
 * sendmsg() with descriptors. Continues after a signal and raises no SIGPIPE.
 *
 * @param fds    to pass, borrowed.
 * @param n      WEIR_FDS_ONCE at most.
 * @param flags  MSG_DONTWAIT or 0.
 * @return bytes sent; -1: see errno.
 * @thread any
 */
ssize_t weir_fds_send(int socket_fd, const void *bytes, size_t len, const int *fds, uint32_t n,
                      int flags);

/** Does what weir_fds_send() does, for one descriptor. @param pass_fd  -1: pass none. */
static inline ssize_t weir_fd_send(int socket_fd, const void *bytes, size_t len, int pass_fd,
                                   int flags)
{
    return weir_fds_send(socket_fd, bytes, len, &pass_fd, pass_fd >= 0, flags);
}

/**
 * recvmsg() with descriptors, which are closed on exec. Continues after a signal.
 *
 * @param flags     MSG_DONTWAIT or 0.
 * @param room      of fds; WEIR_FDS_ONCE at most.
 * @param ret_n     always written; 0 on failure.
 * @param ret_flags always written: MSG_CTRUNC, MSG_TRUNC as recvmsg() gives them.
 * @return bytes received; -1: see errno.
 * @thread any
 */
ssize_t weir_fds_receive(int socket_fd, void *bytes, size_t capacity, int flags, int *fds,
                         uint32_t room, uint32_t *ret_n, int *ret_flags);

/** Does what weir_fds_receive() does, for WEIR_FDS_MAX descriptors at most. @param ret_fds  always
 * written; empty on failure. */
ssize_t weir_fd_receive(int socket_fd, void *bytes, size_t capacity, int flags,
                        struct weir_fds *ret_fds);

/** Close all descriptors; errno is preserved. @thread owner */
void weir_fds_close(struct weir_fds *fds);
