/*
 * How libzmq accepts connections in this process: it is kept from what it does not survive, and
 * from taking all descriptors.
 */
#ifndef WEIR_PROTO_WIRE_ZMQ_ACCEPT_H
#define WEIR_PROTO_WIRE_ZMQ_ACCEPT_H

/* From now on; for every accept() and accept4() of the process. @thread any */
void weir_zmq_accept_guard(void);

#endif
