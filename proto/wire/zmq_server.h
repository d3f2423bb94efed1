/*
 * The worker's ZeroMQ end: one I/O thread, any number of endpoints, one transport per session.
 *
 * tcp endpoints are encrypted (CURVE) and a client's key names its tenant; a client with an unknown
 * key is refused before it can send anything. ipc endpoints are for guests that cannot share
 * memory: they first connect to the tenant's unix socket, and then send the one-time token that
 * they got there. So weir_accept_welcome() makes those sessions, without a callback.
 *
 * Built with WEIR_WITH_ZMQ only.
 */
#pragma once

#include "base/status.h"
#include "proto/transport/transport.h"
#include "proto/wire/accept.h"
#include "proto/wire/control.h"
#include "proto/wire/keys.h"
#include <stddef.h>

struct weir_zmq_server;

/* A guest that has sent Hello over tcp and waits for the answer: accept or refuse it, once. */
struct weir_zmq_pending;

struct weir_zmq_server_params {
    const char *const *endpoints; /* "tcp://ADDR:PORT" (PORT may be *) and "ipc://PATH" */
    size_t n_endpoints;
    int tcp_fd; /* a socket that listens at the tcp endpoint already, borrowed for the call; 0:
                 * none, the endpoint is bound here */
    int ipc_fd; /* a socket that listens at the ipc endpoint already; the caller removes its file */
    const char *secret_key; /* Z85; needed when there is a tcp endpoint */

    /*
     * Which tenant has this public key (Z85, NUL-terminated)? Copies the tenant's name, at most
     * tenant_bytes with its NUL, and returns true; false refuses the client. Called in the I/O
     * thread with no lock held; must not block.
     */
    bool (*tenant_of_key)(void *user, const char *public_key, char *ret_tenant,
                          size_t tenant_bytes);

    /*
     * A guest of a tenant wants a session. hello is borrowed for the call. The callee owns pending,
     * and answers it now or later, from any thread, before the server is destroyed. Called in the
     * I/O thread with no lock held; must not block.
     */
    void (*on_hello)(void *user, const char *tenant, const struct weir_hello *hello,
                     struct weir_zmq_pending *pending);
    void *user;
};

/**
 * Bind the endpoints and start the I/O thread.
 *
 * @return WEIR_OK
 * @return WEIR_ERR_INVALID  an endpoint is neither tcp:// nor ipc://, or a key is missing or wrong.
 * @return WEIR_ERR_EXISTS   an address is in use.
 * @return WEIR_ERR_IO, WEIR_ERR_NO_MEMORY
 * @thread any
 */
enum weir_status weir_zmq_server_create(const struct weir_zmq_server_params *params,
                                        struct weir_zmq_server **ret_server) WEIR_MUST_CHECK;

/**
 * Stop the server. All its transports must have been destroyed and every pending guest answered.
 * Accepts NULL. @thread owner
 */
void weir_zmq_server_destroy(struct weir_zmq_server *server);

/**
 * The endpoint as it was bound, with the port instead of *.
 * @return a string that lives as long as the server, or NULL. @thread any
 */
const char *weir_zmq_server_endpoint(const struct weir_zmq_server *server, size_t index);

/**
 * Accept a guest. Frees pending in any case.
 *
 * The segment is anonymous memory of this process; params->zmq and params->zmq_ipc_path are unused.
 *
 * @return WEIR_OK, WEIR_ERR_CLOSED (it went away), WEIR_ERR_INVALID, WEIR_ERR_NO_MEMORY
 * @thread any
 */
enum weir_status weir_zmq_accept(struct weir_zmq_pending *pending,
                                 const struct weir_welcome_params *params,
                                 struct weir_transport **ret_transport) WEIR_MUST_CHECK;

/** Refuse a guest, like weir_refuse(). Frees pending. @thread any */
void weir_zmq_refuse(struct weir_zmq_pending *pending, enum weir_status reason, int32_t result,
                     const char *message);
