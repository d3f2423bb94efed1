/*
 * A worker's end of its port to the gate process: names for its queues and items there, and the
 * requests that it posts. One client serves the gates of all the worker's devices.
 *
 * An item's name holds a place in the client's table and how often that was used, so a name that is
 * no longer valid, also one of an earlier client, is refused and never taken for another's.
 *
 * Private to this folder. Source: docs/design/gate.md
 */
#ifndef WEIR_HOST_BACKEND_GATE_CLIENT_H
#define WEIR_HOST_BACKEND_GATE_CLIENT_H

#include "host_backend/gate/port.h"
#include <pthread.h>

struct weir_gate_item;

typedef uint64_t weir_gate_name; /* of an item; 0: none */

/* An item of the worker that the gate process knows. */
struct weir_gate_handle {
    struct weir_gate_item *item; /* NULL: undecided work that was reported */
    uint32_t generation;         /* odd: in use */
    uint32_t next_free;          /* index + 1 */
};

struct weir_gate_client {
    struct weir_gate_client *older; /* that the worker had before: it stays mapped */
    struct weir_gate_port *port;
    int bell;
    uint32_t epoch;                   /* of names: 1 .. 0xffff */
    pthread_mutex_t lock;             /* guards what follows; the last lock that is taken */
    struct weir_gate_handle *handles; /* WEIR_GATE_PORT_ITEMS */
    uint32_t handles_made, free_handle;
    uint32_t sequence[WEIR_GATE_PORT_QUEUES];   /* of the last arrival in a slot */
    uint64_t slots[WEIR_GATE_PORT_QUEUES / 64]; /* a bit for each that is in use */
    uint32_t unread_tail;                       /* where the gate stood .. */
    uint64_t unread_since_ns; /* .. since then, with requests to read; 0: it has read all */
    bool deaf;                /* a request found the ring full */
};

/** Post a request. A full ring makes the client deaf, and the request is lost. */
void weir_gate_client_post(struct weir_gate_client *client,
                           const struct weir_gate_request *request);
/** Post a request about an item. Refused: a name that is not valid. */
void weir_gate_client_post_item(struct weir_gate_client *client, weir_gate_name name,
                                struct weir_gate_request *request);

/** A slot for a queue; WEIR_GATE_PORT_QUEUES: none is free. */
uint32_t weir_gate_client_slot_take(struct weir_gate_client *client);
void weir_gate_client_slot_put(struct weir_gate_client *client, uint32_t slot);

/** A name for an item. 0: no more can be had. */
weir_gate_name weir_gate_client_name(struct weir_gate_client *client, struct weir_gate_item *item);
/** The name is not used any more. */
void weir_gate_client_unname(struct weir_gate_client *client, weir_gate_name name);
/** The item that an order is about; NULL: it has ended. */
struct weir_gate_item *weir_gate_client_item(struct weir_gate_client *client, uint32_t index,
                                             uint32_t generation);

/** The item at a place of the table, below WEIR_GATE_PORT_ITEMS; NULL: there is none. */
struct weir_gate_item *weir_gate_client_item_at(struct weir_gate_client *client, uint32_t index);

/** Has the gate process stopped reading? Ask now and then. */
bool weir_gate_client_is_deaf(struct weir_gate_client *client);

#endif
