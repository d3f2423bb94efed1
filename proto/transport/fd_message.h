/* Messages with at most one descriptor over a SOCK_SEQPACKET unix socket. Private to proto/. */
#pragma once

#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * Send one message.
 *
 * @param socket_fd    non-blocking; borrowed.
 * @param pass_fd      descriptor to pass, borrowed; -1 for none.
 * @param deadline_ns  of weir_clock_now_ns(); WEIR_FOREVER for none, 0 to try once.
 * @return WEIR_OK, WEIR_ERR_TIMED_OUT, WEIR_ERR_CLOSED, WEIR_ERR_TOO_BIG, WEIR_ERR_NO_MEMORY,
 *         WEIR_ERR_IO
 * @thread any; errno is preserved
 */
enum weir_status weir_fd_message_send(int socket_fd, const void *bytes, size_t len, int pass_fd,
                                      uint64_t deadline_ns) WEIR_MUST_CHECK;

/**
 * Receive one message.
 *
 * @param capacity  of bytes; a longer message is WEIR_ERR_PEER.
 * @param ret_len   its length, at least 1.
 * @param ret_fd    the descriptor that came with it, or -1; NULL: none may come. The caller closes.
 * @return WEIR_OK, WEIR_ERR_TIMED_OUT, WEIR_ERR_CLOSED, WEIR_ERR_PEER (too long, or unexpected
 *         descriptors, which are closed), WEIR_ERR_NO_DESCRIPTOR (this process can open no more:
 *         the sent one is lost, later messages are not affected), WEIR_ERR_IO
 * @thread one receiver at a time; errno is preserved
 */
enum weir_status weir_fd_message_receive(int socket_fd, void *bytes, size_t capacity,
                                         uint64_t deadline_ns, size_t *ret_len,
                                         int *ret_fd) WEIR_MUST_CHECK;

/** Is the other end of the socket gone, or the process of pid_fd (-1: do not test that)? @thread
 * any */
bool weir_fd_peer_gone(int socket_fd, int pid_fd);

/**
 * A number that no other socket has while the system runs. @return 0: the descriptor is no socket,
 * or the kernel gives no number. @thread any; errno is preserved
 */
uint64_t weir_socket_cookie(int socket_fd);

/** Returns the absolute time that is timeout_ns ahead; WEIR_FOREVER stays. @thread any */
uint64_t weir_deadline_after(uint64_t timeout_ns);

/** Returns the time that is left until a deadline, 0 after it; WEIR_FOREVER stays. @thread any */
uint64_t weir_deadline_left_ns(uint64_t deadline_ns);
