/*
 * The stream transport: records over a link that carries bytes in order, which is a socket (vsock).
 * A remote transport. Private to proto/.
 *
 * Frames: a header of 24 bytes, a head (a record, or a handshake's message) and perhaps bulk data.
 * Both ends are the same code; there is no receiving thread: any waiting thread reads, even one
 * that waits for the GPU's callbacks (weir_transport_ops.attend). The bytes that were read but not
 * yet received are bounded: at the bound an end stops reading, and the peer's writes wait.
 *
 * Source: docs/design/ring.md
 */
#pragma once

#include "base/status.h"
#include "proto/transport/transport.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

struct weir_stream_link;

/*
 * Functions of a link, which carries the bytes. One thread at a time calls read and the other
 * receiving functions, and one at a time calls write; the two may run in parallel. None of them
 * waits.
 */
struct weir_stream_link_ops {
    /* Read up to len bytes. 0: none now. -1: the peer is gone, and all that it sent was read. */
    ssize_t (*read)(struct weir_stream_link *link, void *bytes, size_t len);

    /* Write bytes of these parts, in order. 0: no room now. -1: the peer is gone. */
    ssize_t (*write)(struct weir_stream_link *link, struct iovec *parts, int n);

    /* Close the link. child: in a forked child, which must not harm the parent's connection. */
    void (*close)(struct weir_stream_link *link, bool child);
};

/* The first member of every link. */
struct weir_stream_link {
    const struct weir_stream_link_ops *ops;
    int fd; /* for poll() */
};

/* How often the end of an idle host pings. */
#define WEIR_STREAM_PING_NS UINT64_C(10000000000)

/* Most bytes at one end that are read and not yet received. */
#define WEIR_STREAM_WINDOW_BYTES (64u << 20)

#define WEIR_STREAM_MAGIC 0x53524957u /* "WIRS" */

enum weir_stream_kind {
    WEIR_STREAM_HELLO = 1, /* guest to host, first; the head is weir.control.Hello */
    WEIR_STREAM_WELCOME,   /* the answer; the head is weir.control.Welcome */
    WEIR_STREAM_RECORD,
    WEIR_STREAM_PING /* host to guest, empty; a guest that was reset refuses it, so the host
                        learns of the reset */
};

struct weir_stream_frame {
    uint32_t magic;
    uint32_t kind;
    uint32_t head_bytes;
    uint32_t bulk_bytes; /* bulk data of a record */
    uint64_t pad;        /* always 0 */
};
_Static_assert(sizeof(struct weir_stream_frame) == 24, "layout on the wire");

/**
 * An end over a link, for the handshake first.
 *
 * @param link           taken, also on failure.
 * @param ret_transport  its view is empty before weir_stream_set_view().
 * @return WEIR_OK, WEIR_ERR_NO_MEMORY, WEIR_ERR_IO
 * @thread any
 */
enum weir_status weir_stream_create(struct weir_stream_link *link,
                                    struct weir_transport **ret_transport) WEIR_MUST_CHECK;

/**
 * Send a message of the handshake.
 * @param deadline_ns  of weir_clock_now_ns().
 * @return WEIR_OK, WEIR_ERR_TIMED_OUT, WEIR_ERR_CLOSED @thread owner
 */
enum weir_status weir_stream_say(struct weir_transport *t, enum weir_stream_kind kind,
                                 const void *message, size_t len,
                                 uint64_t deadline_ns) WEIR_MUST_CHECK;

/**
 * Receive a message of the handshake.
 *
 * @param max_bytes    longer ones are WEIR_ERR_PEER.
 * @param ret_message  borrowed until the next receive.
 * @return WEIR_OK, WEIR_ERR_TIMED_OUT, WEIR_ERR_CLOSED, WEIR_ERR_PEER (also: of another kind)
 * @thread owner
 */
enum weir_status weir_stream_hear(struct weir_transport *t, enum weir_stream_kind kind,
                                  size_t max_bytes, uint64_t deadline_ns, const void **ret_message,
                                  size_t *ret_len) WEIR_MUST_CHECK;

/**
 * Set the segment on which both ends agreed, before the first record.
 * @param view  the host's segment, which is taken; or, at the guest's end, only its sizes, without
 *              a mapping.
 * @thread owner
 */
void weir_stream_set_view(struct weir_transport *t, const struct weir_segment_view *view);

/**
 * A link over a connected stream socket, AF_VSOCK or AF_UNIX.
 * @param fd  taken, also on failure.
 * @return NULL: no memory. @thread any
 */
struct weir_stream_link *weir_stream_socket(int fd) WEIR_MUST_CHECK;
