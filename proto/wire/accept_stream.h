/*
 * The host's handshake over the stream transport: a virtual machine's vsock connection. The caller
 * already knows the machine, by its CID.
 */
#pragma once

#include "base/status.h"
#include "proto/transport/transport.h"
#include "proto/wire/accept.h"
#include "proto/wire/control.h"

/**
 * Read a guest's Hello and check its versions; a guest whose versions differ is refused with that
 * reason.
 *
 * @param t  of weir_stream_create(); stays the caller's.
 * @return as weir_accept_hello() @thread owner
 */
enum weir_status weir_stream_hello(struct weir_transport *t, uint64_t timeout_ns,
                                   struct weir_hello **ret_hello) WEIR_MUST_CHECK;

/**
 * Make the segment and welcome the guest: t is ready for records.
 *
 * The segment is anonymous memory of this process; the transports in params are ignored.
 *
 * @return WEIR_OK, WEIR_ERR_INVALID, WEIR_ERR_NO_MEMORY, WEIR_ERR_CLOSED, WEIR_ERR_TIMED_OUT
 * @thread owner
 */
enum weir_status weir_stream_welcome(struct weir_transport *t,
                                     const struct weir_welcome_params *params) WEIR_MUST_CHECK;

/** Refuse a guest, like weir_refuse(). The caller destroys t. @thread owner */
void weir_stream_refuse(struct weir_transport *t, enum weir_status reason, int32_t result,
                        const char *message);
