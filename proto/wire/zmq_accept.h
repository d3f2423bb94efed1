/*
 * How libzmq accepts connections in this process: it is kept from what it does not survive, and
 * from taking all descriptors. Private to proto/wire.
 */
#ifndef WEIR_PROTO_WIRE_ZMQ_ACCEPT_H
#define WEIR_PROTO_WIRE_ZMQ_ACCEPT_H

#include "proto/wire/control.h"
#include <stdbool.h>

/**
 * From now on; for every accept() and accept4() of the process.
 * @param expects  may this process connect to a unix socket now? Called by libzmq's I/O thread.
 * @thread any; the same function each time
 */
void weir_zmq_accept_guard(bool (*expects)(const struct weir_peer *peer));

/** Its handshake is over, or its connection. @param fd  as libzmq's monitors tell it @thread any */
void weir_zmq_accept_settled(int fd);

#endif
