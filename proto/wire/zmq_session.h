/* Types and functions that accept.c, zmq_server.c and zmq_session.c share. Private to
 * proto/wire. */
#pragma once

#include "base/log_rate.h"
#include "proto/transport/zmq_wire.h"
#include "proto/wire/control.h"
#include "proto/wire/control_codec.h"
#include "proto/wire/zmq_server.h"
#include <pthread.h>
#include <stdbool.h>

#define WEIR_ZMQ_IDENTITY_MAX 255u

/* A guest's address: the socket, its identity there, and its connection. */
struct weir_zmq_address {
    struct weir_zmq_port *port;
    int connection_fd; /* libzmq's descriptor; it is only compared with those that the monitor
                          reports */
    size_t identity_len;
    uint8_t identity[WEIR_ZMQ_IDENTITY_MAX];
};

/* One endpoint: a ROUTER socket and its monitor. */
struct weir_zmq_port {
    void *socket;  /* used under the server's lock */
    void *monitor; /* used by the I/O thread only */
    int socket_fd;
    int monitor_fd;
    bool is_tcp;
    char bound[WEIR_CONTROL_TEXT_BYTES];
};

struct weir_zmq_pending {
    struct weir_zmq_server *server;
    struct weir_zmq_pending *next; /* guarded by the server's lock */
    struct weir_zmq_address address;
    bool is_gone;             /* guarded by the server's lock */
    struct weir_hello *hello; /* valid until on_hello has returned */
    char tenant[WEIR_CONTROL_TEXT_BYTES];
};

/*
 * A session's transport. "Expected" until its guest brings the token (ipc), then bound.
 * The receiver owns held; everything below lock_guards is under the server's lock.
 */
struct weir_zmq_session {
    struct weir_transport base;
    struct weir_zmq_server *server;
    struct weir_segment_view view;
    int socket_fd; /* socket of the unix handshake, or -1 */
    int pid_fd;    /* pidfd of the guest's process, or -1 */
    struct weir_zmq_node *held;
    pthread_cond_t changed;
    /* lock_guards */
    struct weir_zmq_session *next;
    struct weir_zmq_address address; /* port NULL: the session is expected */
    struct weir_zmq_flow flow;
    struct weir_zmq_inbox inbox;
    enum weir_status failure; /* WEIR_OK while the session works */
    uint8_t token[WEIR_CONTROL_TOKEN_BYTES];
    uint64_t expires_ns;   /* when the token expires */
    struct weir_peer peer; /* the process that got the token */
    bool came;             /* the guest's process has connected: each token allows one connection */
    uint64_t last_ns;      /* after the unix socket has ended: when to stop waiting for records */
};

struct weir_zmq_server {
    /* Next of this process's servers; guarded by the lock of their list. */
    struct weir_zmq_server *next;
    const struct weir_zmq_api *api;
    /* Only the callbacks; pointers to text are no longer valid. */
    struct weir_zmq_server_params params;
    void *ctx;
    struct weir_zmq_port *ports;
    size_t n_ports;
    void *zap; /* used by the I/O thread only */
    int zap_fd;
    int wake_fd;
    int stop; /* atomic */
    bool has_thread;
    pthread_t thread;
    struct weir_log_rate log_rate; /* limits the I/O thread's log lines, which any peer can cause */
    pthread_mutex_t lock;          /* guards the use of the ports' sockets, and: */
    struct weir_zmq_session *sessions;
    struct weir_zmq_pending *pendings;
};

/**
 * Make a session for a guest that came through a unix socket and will connect again with a token.
 * @param peer  that guest's process: no other one can connect for it.
 * @return WEIR_OK, WEIR_ERR_INVALID, WEIR_ERR_NO_MEMORY, WEIR_ERR_IO @thread any
 */
enum weir_status weir_zmq_session_expect(struct weir_zmq_server *server,
                                         const struct weir_segment_params *segment,
                                         const struct weir_peer *peer,
                                         uint8_t ret_token[WEIR_CONTROL_TOKEN_BYTES],
                                         struct weir_transport **ret_transport) WEIR_MUST_CHECK;

/** Watch the unix socket and the process for the guest's end. @thread before other use */
void weir_zmq_session_watch(struct weir_transport *t, int socket_fd, int pid_fd);

/** Make a session that is in no list yet. @return WEIR_OK, WEIR_ERR_INVALID, WEIR_ERR_NO_MEMORY */
enum weir_status weir_zmq_session_create(struct weir_zmq_server *server,
                                         const struct weir_segment_params *segment,
                                         struct weir_zmq_session **ret_session) WEIR_MUST_CHECK;

/** Free a session that is in no list. Accepts NULL. */
void weir_zmq_session_free(struct weir_zmq_session *session);

/** A message for a bound session has arrived (I/O thread). */
void weir_zmq_session_deliver_locked(struct weir_zmq_session *session,
                                     struct weir_zmq_message *message);

/** Note that no more records will come or go; the first reason stays. */
void weir_zmq_session_fail_locked(struct weir_zmq_session *session, enum weir_status reason);

/** Send an encoded Welcome, and free bytes. */
enum weir_status weir_zmq_send_welcome_locked(struct weir_zmq_server *server,
                                              const struct weir_zmq_address *address,
                                              struct weir_control_bytes *bytes);

/** Refuse the guest at an address. */
void weir_zmq_send_refusal_locked(struct weir_zmq_server *server,
                                  const struct weir_zmq_address *address, enum weir_status reason,
                                  int32_t result, const char *message);
