/*
 * The link over a virtio-serial port: a character device in the guest, a unix socket from QEMU at
 * the host. Private to proto/.
 *
 * A port has no connections: bytes go in at one end and come out at the other, whichever process
 * has it open, and a process that is killed leaves a half of what it was saying. So bytes travel in
 * packets of at most 32 KiB, each written by one system call, which the guest's kernel takes whole
 * or not at all; each says whose it is by a number that the opener drew. A process opens with OPEN
 * and waits for OPENED under its number; what is older it skips. The host serves one opener at a
 * time: the next one's OPEN ends the one before. An opener that is silent for 10 s is dead.
 *
 * The guest's kernel lets one process open a port at a time: a machine has several.
 *
 * Source: docs/design/kvm.md
 */
#ifndef WEIR_PROTO_TRANSPORT_STREAM_PORT_H
#define WEIR_PROTO_TRANSPORT_STREAM_PORT_H

#include "base/status.h"
#include "proto/transport/stream.h"
#include <stdbool.h>
#include <stdint.h>

#define WEIR_PORT_MAGIC        0x50524957u /* "WIRP" */
#define WEIR_PORT_PACKET_BYTES 32768u      /* with its header */

enum weir_port_kind {
    WEIR_PORT_OPEN = 1, /* guest: a new opener; payload: struct weir_port_proof */
    WEIR_PORT_OPENED,   /* host: it is served from here on; likewise */
    WEIR_PORT_DATA,
    WEIR_PORT_BEAT, /* guest: the opener lives */
    WEIR_PORT_BYE   /* this end is over */
};

struct weir_port_packet {
    uint32_t magic;
    uint16_t kind;
    uint16_t payload_bytes;
    uint64_t opener; /* not 0 */
};
_Static_assert(sizeof(struct weir_port_packet) == 16, "layout on the wire");

/* So that OPEN is not found by chance in the middle of something else. */
struct weir_port_proof {
    uint64_t not_opener; /* ~opener */
    uint64_t words;      /* WEIR_PORT_PROOF */
};
#define WEIR_PORT_PROOF UINT64_C(0x6e65706f20726965) /* "eir open" */

/* The host's end of a port, for one opener after the other. */
struct weir_port;

/**
 * @param fd         QEMU's connection; taken, also on failure.
 * @param clock_ns   the time by which silence is measured; it may stand still while QEMU does.
 *                   Called by whoever reads.
 * @return NULL: no memory. @thread any
 */
struct weir_port *weir_port_create(int fd, uint64_t (*clock_ns)(void *user), void *user);

/**
 * Wait for an opener. The link of the one before must be closed.
 *
 * @param ret_link  the opener's; the port outlives it.
 * @return WEIR_OK, WEIR_ERR_CLOSED (QEMU is gone, or weir_port_stop())
 * @thread owner
 */
enum weir_status weir_port_await(struct weir_port *port,
                                 struct weir_stream_link **ret_link) WEIR_MUST_CHECK;

/** End the opener, and have weir_port_await() return. @thread any */
void weir_port_stop(struct weir_port *port);

/** Accepts NULL. @thread owner */
void weir_port_destroy(struct weir_port *port);

/**
 * The guest's end: open a port and be served.
 *
 * @param path         of the character device.
 * @param deadline_ns  of weir_clock_now_ns().
 * @return WEIR_OK
 * @return WEIR_ERR_EXISTS     another process has it open.
 * @return WEIR_ERR_NOT_FOUND  no such port, or no host behind it.
 * @return WEIR_ERR_DENIED, WEIR_ERR_TIMED_OUT, WEIR_ERR_CLOSED, WEIR_ERR_NO_MEMORY, WEIR_ERR_IO
 * @thread any
 */
enum weir_status weir_port_open(const char *path, uint64_t deadline_ns,
                                struct weir_stream_link **ret_link) WEIR_MUST_CHECK;

/** The same over a descriptor that is open; taken, also on failure. */
enum weir_status weir_port_open_fd(int fd, uint64_t deadline_ns,
                                   struct weir_stream_link **ret_link) WEIR_MUST_CHECK;

#endif
