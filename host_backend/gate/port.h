/*
 * A port: the memory through which a worker and the gate process talk about scheduling.
 *
 * The gate process makes a port for each worker, and the supervisor gives it to the worker. A port
 * has a ring of requests to the gate (arrivals, ends, withdrawals), a slot for each queue in which
 * the gate grants, and a few words that the gate publishes. For each device of the worker it has a
 * ring of orders (stop, resume, resize) and a ring of learned durations. All of it is plain data:
 * indices, never pointers.
 *
 * Both sides can write all of it. A worker that writes nonsense harms its own programs only,
 * because the gate copies what it reads once and checks it. A worker needs no permission to bypass
 * the gate either: it owns a context and could launch what it likes.
 *
 *     worker                                    gate
 *     weir_gate_port_post()      ─ requests ─▶  weir_gate_port_take()
 *     weir_gate_port_order()     ◀─ orders ──   weir_gate_port_send()
 *     weir_gate_slot.granted     ◀─────────────  the grant, with its place
 *
 * A side that sleeps sets a word, and the other side wakes it: the gate by the port's bell, an
 * eventfd; the worker's watchers by the futex `attention`; a session's thread by its slot's `word`.
 *
 * Source: docs/design/gate.md
 */
#pragma once

#include "base/clock.h"
#include "base/status.h"
#include "sched/predict.h"
#include "sched/sched.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define WEIR_GATE_PORT_VERSION  4u
#define WEIR_GATE_PORT_DEVICES  16u    /* devices of a worker */
#define WEIR_GATE_PORT_REQUESTS 8192u  /* a power of two */
#define WEIR_GATE_PORT_ORDERS   256u   /* a power of two */
#define WEIR_GATE_PORT_KNOWN    512u   /* a power of two */
#define WEIR_GATE_PORT_QUEUES   1024u  /* queues of a worker: a session has one for each device */
#define WEIR_GATE_PORT_ITEMS    65536u /* items of a worker that have not ended */
#define WEIR_GATE_BATCH_MAX     64u    /* the most items between two marks; they end together */

enum weir_gate_request_kind {
    WEIR_GATE_REQUEST_DEVICE =
        1,                   /* the worker begins to use a device, whose UUID is in key and size */
    WEIR_GATE_REQUEST_QUEUE, /* a queue begins: item is its tenant's slot, blocks its own SM
                                limit in percent; flags: WEIR_SCHED_PEERS if its work had it */
    WEIR_GATE_REQUEST_QUEUE_GONE, /* a queue ends: its items are withdrawn */
    WEIR_GATE_REQUEST_ARRIVE,     /* class, flags, key (of a copy: rest_bytes), size: bytes as in
                                     weir_gate_work, blocks, blocks_per_sm; ns: predicted duration,
                                     0: unknown; sequence: a number that the grant repeats, 0 if
                                     the item has STARTED */
    WEIR_GATE_REQUEST_STUCK,      /* a waiting item has passed without a grant */
    WEIR_GATE_REQUEST_FINISHED,   /* ns: as took_ns of weir_sched_finished() */
    WEIR_GATE_REQUEST_TOGETHER,   /* one of several items whose ends were seen together; blocks: how
                                     many more follow */
    WEIR_GATE_REQUEST_WITHDRAW,
    WEIR_GATE_REQUEST_STOPPED, /* blocks: how many of the item's blocks have ended */
    WEIR_GATE_REQUEST_RUNNING, /* flags: 1: the item may be stopped again */
    WEIR_GATE_REQUEST_LEARN, /* class, key, size; ns: each took; blocks: how many identical items */
    WEIR_GATE_REQUEST_CHARGE, /* undecided work of the queue has ended: class, ns */
};

struct weir_gate_request {
    uint8_t kind; /* enum weir_gate_request_kind */
    uint8_t class;
    uint16_t flags;
    uint32_t device;
    uint32_t queue;      /* the queue's slot */
    uint32_t item;       /* the item's index .. */
    uint32_t generation; /* .. and the generation of its handle */
    uint32_t sequence;
    uint64_t at_ns; /* when the event happened, CLOCK_MONOTONIC */
    uint64_t key, size, ns;
    uint32_t blocks, blocks_per_sm;
};

/* A QUEUE request also names its session: the session's number is in generation and sequence, and
 * its program's name in key, size and ns. */
static inline void weir_gate_port_name(struct weir_gate_request *request,
                                       void (*name)(void *session, uint64_t *ret_number,
                                                    char *ret_program),
                                       void *session)
{
    char program[3 * sizeof(uint64_t)] = "";
    uint64_t number = 0;

    name(session, &number, program);
    request->generation = (uint32_t)number;
    request->sequence = (uint32_t)(number >> 32);
    memcpy(&request->key, program, sizeof request->key);
    memcpy(&request->size, program + 8, sizeof request->size);
    memcpy(&request->ns, program + 16, sizeof request->ns);
}

static inline uint64_t weir_gate_port_named(const struct weir_gate_request *request,
                                            char ret_program[3 * sizeof(uint64_t)])
{
    memcpy(ret_program, &request->key, sizeof request->key);
    memcpy(ret_program + 8, &request->size, sizeof request->size);
    memcpy(ret_program + 16, &request->ns, sizeof request->ns);
    ret_program[3 * sizeof(uint64_t) - 1] = 0;
    return (uint64_t)request->sequence << 32 | request->generation;
}

enum weir_gate_order_kind {
    WEIR_GATE_ORDER_STOP = 1,
    WEIR_GATE_ORDER_RESUME,
    WEIR_GATE_ORDER_RESIZE
};

struct weir_gate_order {
    uint32_t kind; /* enum weir_gate_order_kind */
    uint32_t item, generation;
    struct weir_sched_place place; /* used in RESUME and RESIZE */
    uint64_t lease_ns;             /* for STOP */
};

/* Where the gate answers a queue's arrivals. At most one item of a queue waits. */
struct weir_gate_slot {
    _Alignas(
        64) _Atomic uint32_t granted; /* sequence number of the last arrival that was granted */
    _Atomic uint32_t soon;            /* sequence number of the item that will be granted soon */
    _Atomic uint32_t seen;            /* sequence number of the last arrival that the gate read */
    _Atomic uint32_t room;   /* the same number, if the item waits only for its queue's work */
    _Atomic uint32_t sleeps; /* written by the worker: its thread sleeps on `word` */
    uint32_t word;           /* a futex; changes with each of the members above */
    /* The gate's decision about the item; valid once `granted` has the item's number. */
    struct weir_sched_place place;
    uint32_t level;        /* enum weir_sched_level */
    uint32_t sure;         /* ns is reliable */
    uint64_t ns;           /* the predicted duration; 0: not known */
    uint32_t beside_bytes; /* as in weir_gate_pass */
    uint32_t cause;        /* enum weir_sched_cause: why it waited last */
};

struct weir_gate_orders {
    _Alignas(64) _Atomic uint32_t head; /* index, written by the gate */
    _Alignas(64) _Atomic uint32_t tail; /* index, written by the worker */
    struct weir_gate_order ring[WEIR_GATE_PORT_ORDERS];
};

/* Learned durations of work of the worker's tenants. The gate drops a row when the ring is full. */
struct weir_gate_known {
    _Alignas(64) _Atomic uint32_t head; /* index, written by the gate */
    _Alignas(64) _Atomic uint32_t tail; /* index, written by the worker */
    uint8_t ring[WEIR_GATE_PORT_KNOWN][WEIR_PREDICT_ROW_BYTES];
};

/* What the gate publishes about a device of the worker. */
struct weir_gate_news {
    /* 1 + the slot of the tenant that may pass undecided; 0: none may. */
    _Alignas(64) _Atomic uint32_t alone;
    _Atomic uint32_t crowded; /* bits by weir_gate_peers() and weir_gate_company() */
};

/*
 * The load of the last second. Bits by weir_gate_peers(): several tenants of the class had work or,
 * on a device without levels, of any class. Bits by weir_gate_company(): a tenant of the class had
 * work at the same time as another one of its class or a higher one.
 */
#define WEIR_GATE_CROWDS (2 * WEIR_PRIORITY_COUNT)

/** @param levels  the device runs work of higher classes first. */
static inline unsigned weir_gate_peers(bool levels, enum weir_priority priority)
{
    return levels ? (unsigned)priority : 0;
}

static inline unsigned weir_gate_company(enum weir_priority priority)
{
    return WEIR_PRIORITY_COUNT + (unsigned)priority;
}

static inline bool weir_gate_is_copy(enum weir_sched_class class)
{
    return class == WEIR_SCHED_H2D || class == WEIR_SCHED_D2H;
}

struct weir_gate_port {
    uint32_t version;                     /* is WEIR_GATE_PORT_VERSION */
    _Alignas(64) _Atomic uint32_t asleep; /* the gate sleeps: the worker must ring the bell */
    _Atomic uint32_t tail; /* requests taken; written by the gate, which never reads it */
    _Alignas(64) _Atomic uint32_t head; /* requests posted; written by the worker */
    _Alignas(64) uint32_t attention;    /* a futex: the gate has orders or news */
    _Atomic uint32_t watchers;          /* threads of the worker that sleep on `attention` */
    struct weir_gate_news news[WEIR_GATE_PORT_DEVICES];
    struct weir_gate_orders orders[WEIR_GATE_PORT_DEVICES];
    struct weir_gate_known known[WEIR_GATE_PORT_DEVICES];
    struct weir_gate_slot slot[WEIR_GATE_PORT_QUEUES];
    struct weir_gate_request request[WEIR_GATE_PORT_REQUESTS];
};

/**
 * Make a port.
 * @param ret_fd    gives a sealed memfd for weir_gate_port_map() in the worker and in the gate.
 * @param ret_bell  gives an eventfd: the worker writes, the gate polls.
 * @return WEIR_OK, WEIR_ERR_IO, WEIR_ERR_NO_MEMORY
 * @thread any
 */
enum weir_status weir_gate_port_create(int *ret_fd, int *ret_bell) WEIR_MUST_CHECK;

/**
 * Map a port.
 * @param fd  borrowed.
 * @return WEIR_OK, WEIR_ERR_INVALID (no port, or a smaller one), WEIR_ERR_VERSION,
 *         WEIR_ERR_NO_MEMORY
 * @thread any
 */
enum weir_status weir_gate_port_map(int fd, struct weir_gate_port **ret_port) WEIR_MUST_CHECK;
/** Accepts NULL. @thread any */
void weir_gate_port_unmap(struct weir_gate_port *port);

/**
 * The worker: put a request into the ring, and ring the bell if the gate sleeps.
 * @param bell  borrowed.
 * @return false: the ring is full, because the gate does not read it.
 * @thread one at a time
 */
bool weir_gate_port_post(struct weir_gate_port *port, int bell,
                         const struct weir_gate_request *request);
/**
 * The gate: take the oldest request.
 *
 * @param tail  the gate's own count of requests taken, 0 at first: not the port's, which the worker
 *              can write.
 * @return false: there is none.
 * @thread one at a time
 */
bool weir_gate_port_take(struct weir_gate_port *port, uint32_t *tail,
                         struct weir_gate_request *ret_request);

/**
 * The gate: put an order for a device into its ring. weir_gate_port_call() must follow.
 * @return false: the ring is full, because the worker does not read it.
 * @thread one at a time
 */
bool weir_gate_port_send(struct weir_gate_port *port, uint32_t device,
                         const struct weir_gate_order *order);
/** The worker: take the oldest order. @return false: there is none. @thread one for a device */
bool weir_gate_port_order(struct weir_gate_port *port, uint32_t device,
                          struct weir_gate_order *ret_order);

/** The gate: send a row of weir_predict_rows() to the worker.
 * @return false: there is no room. @thread one at a time */
bool weir_gate_port_tell(struct weir_gate_port *port, uint32_t device,
                         const uint8_t row[WEIR_PREDICT_ROW_BYTES]);
/** The worker: take the oldest row. @return false: there is none. @thread one for a device */
bool weir_gate_port_known(struct weir_gate_port *port, uint32_t device,
                          uint8_t ret_row[WEIR_PREDICT_ROW_BYTES]);

/** The gate: wake the worker's watchers, if one sleeps. @thread any */
void weir_gate_port_call(struct weir_gate_port *port);
/** The gate: a slot has changed; wake its session's thread, if it sleeps. @thread any */
void weir_gate_slot_changed(struct weir_gate_slot *slot);
