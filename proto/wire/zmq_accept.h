/*
 * Accepts libzmq's connections in this process. It keeps libzmq from running out of descriptors,
 * which would end the process, and from taking all of them. Private to proto/wire.
 */
#pragma once

#include "proto/wire/control.h"
#include <stdbool.h>

/**
 * Guard every accept() and accept4() of the process from now on.
 * @param expects  may this process connect to a unix socket now? Called by libzmq's I/O thread.
 * @thread any; the same function each time
 */
void weir_zmq_accept_guard(bool (*expects)(const struct weir_peer *peer));

/** Note that the handshake of this connection, or the connection, has ended. @param fd from
 * libzmq's monitors @thread any */
void weir_zmq_accept_settled(int fd);
