/* The process at the other end of a unix socket. */
#pragma once

#include "base/status.h"
#include <stdbool.h>
#include <stdint.h>

/* How long the other end may be silent before a waiting thread checks whether it is stopped. It
 * checks a second time later: a short stop, as when a debugger attaches, is no reason to give
 * up. */
#define WEIR_PEER_LOOK_NS (1 * 1000000000ull)
#define WEIR_PEER_LOOKS   2

/**
 * Wait until there is something to read from the socket, or an error that a read returns.
 *
 * @param end_ns  when to give up, by weir_clock_now_ns().
 * @return WEIR_OK
 * @return WEIR_ERR_TIMED_OUT
 * @return WEIR_ERR_STOPPED  the process at the other end is stopped, so no answer will come.
 * @thread any
 */
enum weir_status weir_peer_await(int socket_fd, uint64_t end_ns) WEIR_MUST_CHECK;
