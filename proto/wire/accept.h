/*
 * The host's half of the handshake.
 *
 * Unix sockets: the supervisor listens (weir_listen_unix) and accepts; the worker gets the accepted
 * descriptor and calls weir_accept_hello(), then weir_accept_welcome() or weir_refuse(). ZeroMQ:
 * the worker owns a struct weir_zmq_server; see proto/wire/zmq_server.h.
 */
#pragma once

#include "base/status.h"
#include "proto/transport/transport.h"
#include "proto/wire/control.h"
#include <stdint.h>
#include <sys/types.h>

struct weir_zmq_server;

/**
 * Listen on a unix SOCK_SEQPACKET socket.
 *
 * A socket file that nobody listens on is replaced. The file appears with its mode, never wider.
 *
 * @param path    at most 107 bytes; borrowed.
 * @param mode    permission bits of the file, for instance 0666 in a directory that guards it.
 * @param ret_fd  non-blocking, close-on-exec.
 * @return WEIR_OK
 * @return WEIR_ERR_EXISTS   another process listens there, or something else has that name.
 * @return WEIR_ERR_TOO_BIG  path too long.
 * @return WEIR_ERR_NO_DESCRIPTOR  this process can open no more.
 * @return WEIR_ERR_DENIED, WEIR_ERR_NOT_FOUND, WEIR_ERR_IO
 * @thread any
 */
enum weir_status weir_listen_unix(const char *path, mode_t mode, int *ret_fd) WEIR_MUST_CHECK;

/** Read from the kernel who has connected. @return WEIR_OK, WEIR_ERR_IO @thread any */
enum weir_status weir_peer_of(int fd, struct weir_peer *ret_peer) WEIR_MUST_CHECK;

/**
 * Read a guest's Hello from an accepted socket and check its versions.
 *
 * A guest whose protocol differs, or that does not say which operations it knows, is refused here
 * with that reason (weir_refuse).
 *
 * @param fd          accepted; borrowed; made non-blocking.
 * @param timeout_ns  how long to wait for it.
 * @param ret_hello   gives the hello.
 * @return WEIR_OK
 * @return WEIR_ERR_VERSION    refused already; close fd.
 * @return WEIR_ERR_TIMED_OUT, WEIR_ERR_CLOSED, WEIR_ERR_PEER (not a Hello), WEIR_ERR_NO_MEMORY
 * @thread any
 */
enum weir_status weir_accept_hello(int fd, uint64_t timeout_ns,
                                   struct weir_hello **ret_hello) WEIR_MUST_CHECK;

/* A worker's answer to a guest that it accepts. Strings and device are borrowed for the call. */
struct weir_welcome_params {
    uint64_t session;
    const char *tenant;
    uint64_t memory_quota_bytes;
    const char *weight; /* for people; NULL: "" */
    uint64_t window_base;
    uint64_t window_bytes;
    uint64_t spin_ns; /* a hint for the guest; 0: none */
    struct weir_segment_params segment;
    bool keeps_segment; /* the transport can show its state, if it is shm */
    const struct weir_device *devices;
    uint32_t n_devices; /* 1 .. WEIR_CONTROL_MAX_DEVICES */
    /* The only transport allowed; NULL: the guest's first choice that both have. */
    const char *transport;
    /* For unix sockets: the server that offers zmq over ipc; NULL: shm only. */
    struct weir_zmq_server *zmq;
    const char *zmq_ipc_path; /* that server's ipc endpoint in this tenant's directory; or NULL */
};

/**
 * Welcome a guest: choose the transport, make the segment, tell the guest.
 *
 * @param fd             taken on success (the transport closes it), else still the caller's; on
 *                       failure no usable answer was sent: refuse or close it.
 * @param hello          of weir_accept_hello(); borrowed.
 * @param params         see struct weir_welcome_params.
 * @param ret_transport  the worker's end.
 * @return WEIR_OK
 * @return WEIR_ERR_UNSUPPORTED  no transport in common.
 * @return WEIR_ERR_INVALID      segment sizes out of range.
 * @return WEIR_ERR_NO_MEMORY, WEIR_ERR_CLOSED, WEIR_ERR_TIMED_OUT, WEIR_ERR_IO
 * @thread any
 */
enum weir_status weir_accept_welcome(int fd, const struct weir_hello *hello,
                                     const struct weir_welcome_params *params,
                                     struct weir_transport **ret_transport) WEIR_MUST_CHECK;

/**
 * Go on with a guest that another worker has welcomed, from the state of that worker's transport.
 * @param state  its descriptors are taken on success, else still the caller's.
 * @return WEIR_OK, WEIR_ERR_PEER (no such segment), WEIR_ERR_NO_MEMORY @thread any
 */
enum weir_status weir_accept_resume(const struct weir_transport_state *state,
                                    struct weir_transport **ret_transport) WEIR_MUST_CHECK;

/**
 * Send a guest the reason for its refusal. Never waits; the caller closes fd.
 *
 * @param fd       accepted, after its hello or before.
 * @param reason   WEIR_ERR_DENIED, _QUOTA, _VERSION, or another status.
 * @param result   CUresult that the program gets.
 * @param message  one line for people; borrowed.
 * @thread any
 */
void weir_refuse(int fd, enum weir_status reason, int32_t result, const char *message);
