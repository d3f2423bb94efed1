/*
 * A gRPC server on unix sockets, as kubelet talks to its drivers: HTTP/2 by nghttp2, one message a
 * request, one or many messages in the answer.
 */
#ifndef WEIR_KUBERNETES_GRPC_H
#define WEIR_KUBERNETES_GRPC_H

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

struct weir_grpc;
struct weir_grpc_call; /* internally locked */

/**
 * A request has come. Whoever has the call ends it with weir_grpc_end(), from any thread.
 * @param message  borrowed until the function returns.
 */
typedef void (*weir_grpc_fn)(void *user, struct weir_grpc_call *call, const uint8_t *message,
                             size_t bytes);

struct weir_grpc_method {
    const char *path; /* "/package.Service/Method"; NULL behind the last */
    weir_grpc_fn call;
};

/**
 * @param methods  borrowed while the server is there.
 * @param user     for the methods' functions, and for tick().
 * @return WEIR_OK, WEIR_ERR_NO_MEMORY, WEIR_ERR_IO
 * @thread main
 */
enum weir_status weir_grpc_create(const struct weir_grpc_method *methods, void *user,
                                  struct weir_grpc **ret_server) WEIR_MUST_CHECK;
/** Close all connections and remove the sockets. Accepts NULL. No call may be open elsewhere.
 * @thread main */
void weir_grpc_destroy(struct weir_grpc *server);
/** Remove the sockets, so that nobody comes any more. @thread main */
void weir_grpc_unlink(struct weir_grpc *server);
/** Listen at a path; what is there before is removed. @return WEIR_OK, WEIR_ERR_TOO_BIG,
 * WEIR_ERR_IO @thread main */
enum weir_status weir_grpc_listen(struct weir_grpc *server, const char *path) WEIR_MUST_CHECK;
/**
 * Serve until weir_grpc_stop().
 * @param tick  called in this thread after each turn, and once a second at least.
 * @thread main
 */
void weir_grpc_run(struct weir_grpc *server, void (*tick)(void *user));
/** Let weir_grpc_run() return, or call tick() soon. @thread any; a signal's handler, too */
void weir_grpc_stop(struct weir_grpc *server);
void weir_grpc_wake(struct weir_grpc *server);

/** Add a message to the answer. @thread any */
void weir_grpc_send(struct weir_grpc_call *call, const uint8_t *message, size_t bytes);
/**
 * End a call, which is gone for the caller then.
 * @param why  for people, where code is not WEIR_GRPC_OK; borrowed.
 * @thread any
 */
void weir_grpc_end(struct weir_grpc_call *call, enum weir_grpc_code code, const char *why);
/** Has the client given up the call? Then nobody reads what is sent. @thread any */
bool weir_grpc_has_gone(struct weir_grpc_call *call);

#endif
