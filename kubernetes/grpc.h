/*
 * A gRPC server on unix sockets, as kubelet talks to its drivers: HTTP/2 by nghttp2, one message a
 * request, one or many messages in the answer. It serves until the process ends.
 */
#pragma once

#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Status codes of gRPC that are used here. */
enum weir_grpc_code {
    WEIR_GRPC_OK = 0,
    WEIR_GRPC_INVALID = 3,
    WEIR_GRPC_EXHAUSTED = 8,
    WEIR_GRPC_UNIMPLEMENTED = 12,
    WEIR_GRPC_INTERNAL = 13,
};

struct weir_grpc_call; /* internally locked */

/**
 * Answer a request, in a thread of its own; what it returns ends the call.
 * @param user     of weir_grpc_listen().
 * @param message  borrowed.
 */
typedef enum weir_grpc_code (*weir_grpc_fn)(void *user, struct weir_grpc_call *call,
                                            const uint8_t *message, size_t bytes);

struct weir_grpc_method {
    const char *path; /* "/package.Service/Method"; NULL behind the last */
    weir_grpc_fn run;
};

/**
 * Listen at a path and serve there, with threads of its own. A file that exists there is removed.
 * @param methods  borrowed for ever, as user.
 * @param ret_fd   the listening socket; shutdown() of it ends the listening. NULL: not wanted.
 * @return WEIR_OK, WEIR_ERR_TOO_BIG (the path), WEIR_ERR_IO, WEIR_ERR_NO_MEMORY
 * @thread any
 */
enum weir_status weir_grpc_listen(const char *path, const struct weir_grpc_method *methods,
                                  void *user, int *ret_fd) WEIR_MUST_CHECK;

/** Add a message to the answer. @return false: the client no longer reads, or memory is short
 * @thread the call's */
bool weir_grpc_send(struct weir_grpc_call *call, const uint8_t *message, size_t bytes);
/**
 * Say why a call fails.
 * @param why  for people; printable ASCII without %; borrowed for ever.
 * @return WEIR_GRPC_INVALID, for the method to return @thread the call's
 */
enum weir_grpc_code weir_grpc_refuse(struct weir_grpc_call *call, const char *why);
