/*
 * The common code of both ends of the ZeroMQ transport: the function table, frames, flow control,
 * the inbox. Private to proto/.
 *
 * A message is one frame, or two:
 *     record   [bulk]      a struct weir_record with its body, 32 bytes at least
 *     control  [payload]   a struct weir_zmq_control, 16 bytes: Hello and Welcome have a payload
 * (a ROUTER socket adds the peer's identity in front).
 *
 * Weir has its own flow control, by credit: ZeroMQ counts messages and not bytes, and a ROUTER that
 * is full for one peer would have to block or drop. A sender may be WEIR_ZMQ_WINDOW_BYTES ahead of
 * what the receiver has consumed; the receiver sends its total from time to time. So each session
 * has a bounded amount of data in flight in either direction, and a guest that sends more breaks
 * the protocol.
 *
 * Source: docs/design/ring.md
 */
#pragma once

#include "base/status.h"
#include "proto/transport/transport.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <zmq.h>

/* libzmq's functions: the guest loads them, the host links them. */
struct weir_zmq_api {
#define WEIR_ZMQ_FUNCTION(type, name, arguments) type(*name) arguments;
#include "proto/transport/zmq_functions.def"
#undef WEIR_ZMQ_FUNCTION
};

/**
 * Load libzmq, once per process: $WEIR_LIBZMQ, or weir-remote/libzmq.so.5 beside this library, or
 * libzmq.so.5 where the system finds it.
 * @return the table, or NULL. @thread any
 */
const struct weir_zmq_api *weir_zmq_load(void);

#define WEIR_ZMQ_WINDOW_BYTES (64u << 20)
/* Cost added for each message, so that empty ones cost something, too. */
#define WEIR_ZMQ_MESSAGE_COST 64u
#define WEIR_ZMQ_FRAME_MAX    (WEIR_BULK_MAX_BYTES + 4096u)

/*
 * The end of a peer is noticed at once, because its connection closes. If its machine or the
 * network fails, the kernel's probes show that after IDLE + COUNT * INTERVAL, which are seconds,
 * and data that nobody acknowledges after LOST_MS. The peer's kernel answers for it, so a peer may
 * pause: a guest in a debugger, or either end on an overloaded machine.
 */
#define WEIR_ZMQ_PROBE_IDLE_S     10
#define WEIR_ZMQ_PROBE_INTERVAL_S 2
#define WEIR_ZMQ_PROBE_COUNT      5
#define WEIR_ZMQ_LOST_MS          20000
#define WEIR_ZMQ_HANDSHAKE_MS     5000

#define WEIR_ZMQ_CONTROL_MAGIC 0x5A524957u /* "WIRZ" */

enum weir_zmq_control_kind {
    WEIR_ZMQ_HELLO = 1, /* payload: weir.control.Hello */
    WEIR_ZMQ_WELCOME,   /* payload: weir.control.Welcome */
    WEIR_ZMQ_CREDIT,    /* value: bytes consumed since the session began */
    WEIR_ZMQ_BYE        /* the host has ended the session */
};

struct weir_zmq_control {
    uint32_t magic;
    uint32_t kind;
    uint64_t value;
};
_Static_assert(sizeof(struct weir_zmq_control) == 16, "layout on the wire");

/* Totals of one session at one end. Guarded by the owner's lock. */
struct weir_zmq_flow {
    uint64_t sent;
    uint64_t acknowledged; /* part of sent that the peer has acknowledged by credit */
    uint64_t received;
    uint64_t consumed; /* part of received that the caller of receive has taken */
    uint64_t credited; /* the last total that was sent to the peer as credit */
};

/* Two frames to send, or as received. */
struct weir_zmq_message {
    zmq_msg_t identity; /* of a ROUTER socket only */
    zmq_msg_t head;
    zmq_msg_t tail;
    bool has_identity;
    bool has_tail;
};

/* A received record that waits for its reader. The record is a private, aligned copy. */
struct weir_zmq_node {
    struct weir_zmq_node *next;
    uint64_t cost;
    zmq_msg_t bulk;
    bool has_bulk;
    _Alignas(16) uint8_t record[];
};

struct weir_zmq_inbox {
    struct weir_zmq_node *first;
    struct weir_zmq_node *last;
    uint32_t count; /* atomic: spinning readers look at it without the lock */
};

/** Options of every DEALER and ROUTER socket. @return false: libzmq refused */
bool weir_zmq_socket_setup(const struct weir_zmq_api *api, void *socket);

/** Make a message empty, and free any message. */
void weir_zmq_message_init(const struct weir_zmq_api *api, struct weir_zmq_message *message);
void weir_zmq_message_finish(const struct weir_zmq_api *api, struct weir_zmq_message *message);

/** Fill head, and tail when tail_len is not 0, with copies. @return WEIR_OK, WEIR_ERR_NO_MEMORY */
enum weir_status weir_zmq_message_fill(const struct weir_zmq_api *api,
                                       struct weir_zmq_message *message, const void *head,
                                       size_t head_len, const void *tail, size_t tail_len);

/** Set the identity frame of a message. @return WEIR_OK, WEIR_ERR_NO_MEMORY */
enum weir_status weir_zmq_message_address(const struct weir_zmq_api *api,
                                          struct weir_zmq_message *message, const void *identity,
                                          size_t len);

/**
 * Send a message without waiting; the message is empty afterwards, also on failure.
 * @return WEIR_OK, WEIR_ERR_CLOSED (no such peer any more), WEIR_ERR_IO
 * @thread the socket's lock is held
 */
enum weir_status weir_zmq_message_send(const struct weir_zmq_api *api, void *socket,
                                       struct weir_zmq_message *message);

/**
 * Receive the next message without waiting.
 *
 * @param message  initialised, empty; filled on WEIR_OK only.
 * @return WEIR_OK, WEIR_ERR_AGAIN (none), WEIR_ERR_PEER (too many or too few frames: dropped),
 *         WEIR_ERR_IO
 * @thread the socket's lock is held
 */
enum weir_status weir_zmq_message_receive(const struct weir_zmq_api *api, void *socket,
                                          bool with_identity, struct weir_zmq_message *message);

/** Read the control part of a message; false: it is a record, or invalid. */
bool weir_zmq_control_read(const struct weir_zmq_api *api, struct weir_zmq_message *message,
                           struct weir_zmq_control *ret_control);

/** How much a message takes of its sender's window. */
uint64_t weir_zmq_cost(size_t record_bytes, size_t bulk_bytes);

/** Does the window have room for cost more? */
bool weir_zmq_flow_may_send(const struct weir_zmq_flow *flow, uint64_t cost);

/** Take the peer's credit. @return false: the value is impossible */
bool weir_zmq_flow_credit(struct weir_zmq_flow *flow, uint64_t total);

/** Note that the caller took a message. @return true: send flow->consumed to the peer now */
bool weir_zmq_flow_consume(struct weir_zmq_flow *flow, uint64_t cost);

/**
 * Check a received record and put it into the inbox; the message's bulk data moves with it.
 * @return WEIR_OK, WEIR_ERR_PEER (impossible length, or over the window), WEIR_ERR_NO_MEMORY
 */
enum weir_status weir_zmq_inbox_put(const struct weir_zmq_api *api, struct weir_zmq_inbox *inbox,
                                    struct weir_zmq_flow *flow, struct weir_zmq_message *message);

/** Take the oldest record, or NULL. Free it with weir_zmq_node_free(). */
struct weir_zmq_node *weir_zmq_inbox_take(struct weir_zmq_inbox *inbox);

/** Free a node. Accepts NULL. */
void weir_zmq_node_free(const struct weir_zmq_api *api, struct weir_zmq_node *node);

/** Does the socket have something to receive? @thread the socket's lock is held */
bool weir_zmq_readable(const struct weir_zmq_api *api, void *socket);

/** The socket's descriptor, which becomes ready (edge-triggered) when the socket needs attention;
 * -1 on failure. */
int weir_zmq_fd(const struct weir_zmq_api *api, void *socket);

/**
 * Read one event of a monitor, never waiting.
 * @return false: none.
 */
bool weir_zmq_monitor_read(const struct weir_zmq_api *api, void *monitor, int *ret_event,
                           uint32_t *ret_value);
