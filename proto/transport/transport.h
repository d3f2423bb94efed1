/*
 * A transport: an ordered, reliable, two-way channel of records between one guest process and the
 * worker, with bulk data beside the records.
 *
 * There are two kinds. With a *co-located* transport (shm, ivshmem, devdax, loop) both ends map a
 * segment, so the guest reads completion words and fills staging memory in place. With a *remote*
 * one (zmq, vsock) only the worker has the segment's words and arena; the guest reaches them by
 * records (arena_write, arena_read, word_wait), whose bulk data travels behind them.
 *
 * One thread sends and one thread receives at a time, at each end; the two may differ. The guest's
 * channel and the worker's session hold the locks.
 */
#pragma once

#include "base/status.h"
#include "proto/transport/segment.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* Every record begins with this. Lengths include it; bodies are padded to 8 bytes. */
struct weir_record {
    uint32_t len_bytes; /* header and body, a multiple of 8, at most WEIR_RECORD_MAX_BYTES */
    uint16_t op;        /* a value of enum weir_op */
    uint8_t flags;      /* WEIR_RECORD_* */
    uint8_t device;     /* request: the sending thread's device, as an index in the welcome */
    uint64_t seq;       /* the sender's number; a reply has its request's number */
    int32_t status;     /* reply: CUresult; request: the calling function (proto/wire/caller.h) */
    union {
        /* Reply to a remote guest: deferred_seq of the segment's header. */
        uint32_t deferred_seq;
        /* Request: the guest's number of the call if it wants a record of the call's work
         * (proto/profile/record.h), else 0. */
        uint32_t profile;
    };
    uint32_t deferred_error;
    uint32_t sticky_error;
};
_Static_assert(sizeof(struct weir_record) == 32, "layout on the wire");

#define WEIR_RECORD_POSTED 0x1u /* the sender wants no reply */
#define WEIR_RECORD_REPLY  0x2u
#define WEIR_RECORD_NOTIFY 0x4u /* the host sends it without a request */

#define WEIR_RECORD_MAX_BYTES (2u << 20) /* a record is small; bulk data does not travel in it */
#define WEIR_BULK_MAX_BYTES   (16u << 20)

struct weir_transport;

/* What another process needs to go on in place of the host's end. */
struct weir_transport_state {
    int segment_fd, socket_fd, pid_fd; /* pid_fd may be -1 */
    uint64_t segment_bytes;
    uint32_t sent, received; /* the end's own indices of its rings */
};

struct weir_transport_ops {
    const char *name; /* the name in transports.def */

    /* The segment's mapping in this process; NULL at the guest's end of a remote transport. */
    void *(*segment)(struct weir_transport *t);

    /*
     * The layout of the segment, from this end's private copy: never NULL. The peer can write the
     * header in the segment, so no code reads the geometry from there. At the guest's end of a
     * remote transport pointers are NULL and the counts are valid.
     */
    const struct weir_segment_view *(*view)(struct weir_transport *t);

    /*
     * Send one record (len_bytes of it, checked), and its bulk data where the transport is remote
     * (else bulk_bytes must be 0). All bytes are copied or sent before it returns. Waits for room
     * up to timeout_ns (WEIR_FOREVER allowed), adaptively: spin, then sleep. WEIR_ERR_TIMED_OUT:
     * nothing was sent. WEIR_ERR_TOO_BIG: it can never fit. WEIR_ERR_CLOSED: the peer is gone
     * (noticed within a second). WEIR_ERR_PEER: the peer sent an impossible index: close.
     */
    enum weir_status (*send)(struct weir_transport *t, const struct weir_record *record,
                             const void *bulk, size_t bulk_bytes, uint64_t timeout_ns);

    /*
     * Receive the next record. *ret_record (8-byte aligned, private: the peer cannot change it) and
     * *ret_bulk are borrowed until the next receive. Only len_bytes is checked, against the bytes
     * that arrived and against the limits. Same errors as send. timeout_ns 0 polls. Spins first for
     * at most spin_ns, then sleeps.
     */
    enum weir_status (*receive)(struct weir_transport *t, const struct weir_record **ret_record,
                                const void **ret_bulk, size_t *ret_bulk_bytes, uint64_t spin_ns,
                                uint64_t timeout_ns);

    /* True once the peer is known to be gone; cheap enough for every wait loop's slow path. */
    bool (*peer_gone)(struct weir_transport *t);

    /*
     * Add to an epoll set, under the key, a descriptor that becomes ready when the peer has gone.
     * The reader of the set then calls look(), so send and receive check for the peer only once a
     * second. false: they check often. NULL: they notice the end anyway, or never. Call it before
     * others use the transport.
     */
    bool (*watch)(struct weir_transport *t, int epoll_fd, uint64_t key);

    /* Wake threads that wait in send or receive, so that they check whether the peer is there, and
     * whether `called` is set. Any thread. NULL: as for watch(). */
    void (*look)(struct weir_transport *t);

    /*
     * Process arriving data, as receive does but without taking a record, until some has come or
     * the time has passed. For a thread that waits for a glance while no thread receives.
     * timeout_ns is not 0. Any number of threads. NULL: a thread of the transport does this anyway.
     */
    void (*attend)(struct weir_transport *t, uint64_t timeout_ns);

    /* Pass or fetch a descriptor beside the records, in order. NULL: not possible (remote). */
    enum weir_status (*send_fd)(struct weir_transport *t, int fd);
    enum weir_status (*receive_fd)(struct weir_transport *t, uint64_t timeout_ns, int *ret_fd);

    /*
     * The file that contains the segment and granted memory, at the offsets that the host names;
     * NULL: these come as descriptors. At the guest's end only.
     */
    int (*region_fd)(struct weir_transport *t);

    /*
     * Tell a host that a futex in the guest cannot wake that the guest has changed a word; NULL: a
     * futex wakes the host.
     */
    void (*ring_bell)(struct weir_transport *t);

    /*
     * The process ends: notify the host, which would not notice otherwise. Nothing is sent or
     * received afterwards. NULL: the host notices by itself.
     */
    void (*leave)(struct weir_transport *t);

    /*
     * Show what another process needs to go on in place of this end; the descriptors are borrowed.
     * No thread sends or receives afterwards. false: no other process can. NULL: likewise.
     */
    bool (*state)(struct weir_transport *t, struct weir_transport_state *ret_state);

    /* Drop the connection and free it. The segment stays mapped until then. Accepts no NULL. */
    void (*destroy)(struct weir_transport *t);

    /*
     * In a forked child: release the parent's connection without harming it. Closes the child's
     * copy of the descriptors and unmaps; takes no lock. No other function may be called in the
     * child, not even before it (the rings belong to the parent).
     */
    void (*abandon)(struct weir_transport *t);
};

/*
 * Every transport's first member. The host of a remote transport may set a glance: it is called for
 * each record as it arrives, before it is received, by the thread that reads it, which holds a
 * lock; so it must neither block nor call the transport. Set glance_user first, then glance
 * (atomically).
 */
struct weir_transport {
    const struct weir_transport_ops *ops;
    atomic_bool
        called; /* makes a sleeping receive return as if its time had passed, and is then cleared */
    void (*glance)(void *user, const struct weir_record *record);
    void *glance_user;
};

enum weir_transport_id {
#define WEIR_TRANSPORT(id, name, negotiable, remote) WEIR_TRANSPORT_##id,
#include "proto/transport/transports.def"
#undef WEIR_TRANSPORT
    WEIR_TRANSPORT_COUNT
};

/* A row of transports.def. */
struct weir_transport_kind {
    const char *name;
    bool negotiable;
    bool remote;
};

/** Find the row of an id; NULL: outside the table. @thread any */
const struct weir_transport_kind *weir_transport_kind(enum weir_transport_id id);

/** Find the id of a name; WEIR_TRANSPORT_COUNT: none. @thread any */
enum weir_transport_id weir_transport_find(const char *name);

/** The caller's spin time, shortened if other threads need the cores. @thread any */
uint64_t weir_useful_spin_ns(uint64_t wanted_ns);
