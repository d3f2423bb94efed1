/* The guest's half of the handshake: from a host's URL to a transport. */
#pragma once

#include "base/status.h"
#include "proto/transport/transport.h"
#include "proto/wire/control.h"
#include <stdbool.h>
#include <stdint.h>

/* Zero members that are not needed. All strings are borrowed for the call. */
struct weir_connect_params {
    const char *host;      /* "ipc://PATH" (a unix socket), "tcp://HOST:PORT", or, in a virtual
                            * machine, "ivshmem://PATH" (its device's resource2 in sysfs),
                            * "vsock://CID:PORT" */
    const char *transport; /* "shm" or "zmq" to use only that one over ipc; NULL: the best */
    const char *program;   /* the program's name, for people */
    const char *version;   /* the guest library's version, for people */
    const struct weir_op_hashes *ops;   /* of weir_op_hashes() */
    bool monitor;                       /* the connection will only ask about device and tenant */
    const struct weir_limit_wish *wish; /* limits to ask for; NULL: none */
    uint64_t timeout_ns;                /* time for all attempts; 0 means 60 s */
    const char *public_key; /* tcp: this client's CURVE key: 40 Z85 characters, or a file's path */
    const char *secret_key; /* tcp: this client's secret key, in the same form */
    const char *server_key; /* tcp: the host's public key, in the same form */
};

/**
 * Connect to a host and agree on a transport.
 *
 * @param params         see there.
 * @param ret_transport  on success, the channel; destroy it with its ops.
 * @param ret_welcome    on success and on refusal by the host, what it said (message, result);
 *                       free it with weir_welcome_destroy(). Else NULL.
 * @return WEIR_OK
 * @return WEIR_ERR_INVALID      unusable URL, transport name or key.
 * @return WEIR_ERR_NOT_FOUND    no host is there (no such socket, nobody listens).
 * @return WEIR_ERR_DENIED       refused: no permission for the socket, key unknown, tenant barred.
 * @return WEIR_ERR_QUOTA        refused: too many sessions, or the like.
 * @return WEIR_ERR_VERSION      refused: the protocol differs.
 * @return WEIR_ERR_UNSUPPORTED  no transport in common, or libzmq is needed and not there.
 * @return WEIR_ERR_TIMED_OUT    the host does not answer.
 * @return WEIR_ERR_STOPPED      nor can it: its process is stopped.
 * @return WEIR_ERR_CLOSED       the host went away meanwhile.
 * @return WEIR_ERR_PEER         the host broke the protocol.
 * @return WEIR_ERR_NO_MEMORY, WEIR_ERR_IO; any other status is the host's reason for refusing
 * @thread any; errno is preserved
 */
enum weir_status weir_connect(const struct weir_connect_params *params,
                              struct weir_transport **ret_transport,
                              struct weir_welcome **ret_welcome) WEIR_MUST_CHECK;

/**
 * Ask at a tenant's socket why the work of the tenant's programs waits.
 *
 * @param host        "ipc://PATH"; borrowed.
 * @param timeout_ns  for the whole exchange.
 * @param ret_text    on WEIR_OK, rows as of weir_status_text_write(); else the host's reason for
 *                    refusing, or NULL. Owned by the caller: free().
 * @return WEIR_OK
 * @return WEIR_ERR_UNSUPPORTED  this kind of address cannot be asked.
 * @return WEIR_ERR_VERSION      an older host, which does not answer this.
 * @return any other status      as weir_connect()
 * @thread any
 */
enum weir_status weir_connect_why(const char *host, uint64_t timeout_ns,
                                  char **ret_text) WEIR_MUST_CHECK;
