/* The guest's handshake over the stream transport (proto/transport/stream.h). Private to proto/. */
#pragma once

#include "base/status.h"
#include "proto/transport/transport.h"
#include "proto/wire/control.h"

#define WEIR_VSOCK_SCHEME "vsock://"
#define WEIR_VSOCK_PORT   7070 /* the default port */

/**
 * Connect to "CID:PORT"; without ":PORT" to WEIR_VSOCK_PORT, "" to that of this machine's host.
 *
 * @param hello  may be NULL: then only test whether a host listens.
 * @return as weir_connect(). @thread any
 */
enum weir_status weir_connect_vsock(const char *place, const struct weir_hello *hello,
                                    uint64_t deadline_ns, struct weir_transport **ret_transport,
                                    struct weir_welcome **ret_welcome) WEIR_MUST_CHECK;

/**
 * Exchange Hello and Welcome over a connected stream.
 *
 * @param t            owned by the caller; ready for records on WEIR_OK.
 * @param ret_welcome  also on refusal.
 * @return as weir_connect() @thread owner
 */
enum weir_status weir_greet_stream(struct weir_transport *t, const struct weir_hello *hello,
                                   uint64_t deadline_ns,
                                   struct weir_welcome **ret_welcome) WEIR_MUST_CHECK;
