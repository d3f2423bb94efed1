/*
 * A worker's end of its port to the gate process: names for its queues and items there, and the
 * requests that it posts. One client serves the gates of all the worker's devices.
 *
 * An item's name contains the index of its handle, the handle's generation and the client's epoch.
 * So a name that is no longer valid, or that belongs to an earlier client, is refused.
 *
 * Private to this folder. Source: docs/design/gate.md
 */
#pragma once

#include "base/thread.h"
#include "host_backend/gate/port.h"

struct weir_gate_item;

typedef uint64_t weir_gate_name; /* the name of an item; 0: none */

/* An item of the worker that the gate process knows. */
struct weir_gate_handle {
    struct weir_gate_item *item; /* NULL: the handle stands for undecided work that was reported */
    uint32_t generation;         /* odd while the handle is in use */
    uint32_t next_free;          /* index of the next free handle + 1; 0: none */
};

struct weir_gate_client {
    struct weir_gate_client *older; /* the client that this one replaced; its port stays mapped */
    struct weir_gate_port *port;
    int bell;
    uint32_t epoch;                   /* part of each name, from 1 to 0xffff */
    pthread_mutex_t lock;             /* guards the members below; the last lock to be taken */
    struct weir_gate_handle *handles; /* an array of WEIR_GATE_PORT_ITEMS */
    uint32_t handles_made, free_handle;
    uint32_t sequence[WEIR_GATE_PORT_QUEUES]; /* sequence number of the last arrival in each slot */
    uint64_t slots[WEIR_GATE_PORT_QUEUES / 64]; /* one bit for each slot that is in use */
    uint32_t unread_tail;                       /* the port's tail at the time unread_since_ns */
    uint64_t unread_since_ns;                   /* since when no request was read; 0: none waits */
    bool deaf; /* the gate process is unresponsive: a request found the ring full, e.g. */
};

/** Post a request. A full ring loses it, and the gate process counts as unresponsive. */
void weir_gate_client_post(struct weir_gate_client *client,
                           const struct weir_gate_request *request);
/** Post a request about an item. Does nothing if the name is not valid. */
void weir_gate_client_post_item(struct weir_gate_client *client, weir_gate_name name,
                                struct weir_gate_request *request);

/** Reserve a slot for a queue. @return WEIR_GATE_PORT_QUEUES: none is free */
uint32_t weir_gate_client_slot_take(struct weir_gate_client *client);
void weir_gate_client_slot_put(struct weir_gate_client *client, uint32_t slot);

/** Make a name for an item. @return 0: all names are in use */
weir_gate_name weir_gate_client_name(struct weir_gate_client *client, struct weir_gate_item *item);
/** Free a name. */
void weir_gate_client_unname(struct weir_gate_client *client, weir_gate_name name);
/** Find the item that an order is about. @return NULL: the item has ended */
struct weir_gate_item *weir_gate_client_item(struct weir_gate_client *client, uint32_t index,
                                             uint32_t generation);

/** The item of a handle. @param index  below WEIR_GATE_PORT_ITEMS. @return NULL: it has none */
struct weir_gate_item *weir_gate_client_item_at(struct weir_gate_client *client, uint32_t index);

/** Has the gate process stopped reading? Call this repeatedly, since the calls measure the time. */
bool weir_gate_client_is_deaf(struct weir_gate_client *client);
