/*
 * The guest's end of a session: one ordered channel shared by all threads of the process.
 *
 * Sending: a record is encoded outside the lock, numbered and sent under it. Receiving is
 * leader/follower: a thread that waits for a reply reads the transport if nobody else does, and
 * hands every other reply to its waiter; notifications go to the callback runner (callback.h).
 * Once the host is gone every function here returns CUDA_ERROR_DEVICE_UNAVAILABLE, for ever.
 *
 * Source: docs/design/guest.md, docs/design/wire.md
 */
#pragma once

#include "guest_lib/lock.h"
#include "proto/cuda_abi.h"
#include "proto/ops.h"
#include "proto/transport/transport.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How long a thread spins where there are few cores or the host says that cores are short. */
#define WEIR_FEW_SPIN_NS (20 * WEIR_NS_PER_US)

/* How threads wait. The policy follows from the welcome and the number of processors. */
struct weir_wait_policy {
    uint64_t spin_ns;      /* spin with pause instructions for this long first */
    uint64_t yield_ns;     /* then call sched_yield until this long has passed in all */
    uint64_t slice_min_ns; /* then sleep in slices that begin with this length */
    uint64_t slice_max_ns; /* and grow to a sixteenth of the time waited, up to this length */
};

struct weir_channel_wait;

/* Receives a notification. Whichever thread reads the channel calls it, so it must not block. */
typedef void (*weir_channel_notify_fn)(void *user, enum weir_op op, const void *body,
                                       size_t body_bytes);

/* Internally locked. Fields above the locks never change after weir_channel_init(). */
struct weir_channel {
    struct weir_transport *transport;
    /* Header of the segment, or &shadow; it holds deferred and sticky errors. */
    struct weir_segment_header *header;
    const uint32_t *words; /* NULL when remote */
    uint8_t *arena;        /* NULL when remote */
    uint64_t arena_bytes;
    uint32_t n_words;
    bool remote;
    bool passes_fds; /* the transport can pass descriptors */
    bool polled;     /* the host cannot wake this process by a futex, so waits poll */
    struct weir_wait_policy wait;
    bool preempted; /* atomic: the last thread that spun lost its core, so the next one sleeps */
    /* Gives the device for each request; NULL: the host has one device. */
    uint8_t (*device_of_thread)(void);
    weir_channel_notify_fn notify;
    void *notify_user;

    uint32_t dead;         /* atomic; 0, or the CUresult that every call returns from now on */
    uint32_t reported_seq; /* atomic; deferred errors up to this one have been returned */

    struct weir_lock send_lock; /* guards next_seq and the transport's sending end */
    uint64_t next_seq;

    struct weir_lock receive_lock; /* guards reading and waits */
    bool reading;                  /* a leader is in the transport's receiving end */
    struct weir_channel_wait *waits;
    /* For a remote session: the errors in the last reply. */
    struct weir_segment_header shadow;
};

/**
 * Take over a connected transport.
 *
 * @param channel    zeroed memory; must outlive every use.
 * @param transport  taken; weir_channel_finish() destroys it.
 * @param wait       copied.
 * @return WEIR_OK
 * @return WEIR_ERR_PEER  a co-located transport without a segment.
 * @thread before others see it
 */
enum weir_status weir_channel_init(struct weir_channel *channel, struct weir_transport *transport,
                                   const struct weir_wait_policy *wait) WEIR_MUST_CHECK;

/** Drop the connection; for tests. Accepts a zeroed object. @thread no other call under way */
void weir_channel_finish(struct weir_channel *channel);

/**
 * Send a request and wait for its reply. The generated weir_call_<op>() use it.
 *
 * Variable-length outputs point into a buffer of the calling thread and stay until its next call.
 *
 * @param in   struct weir_<op>_in of op, or NULL if it has no inputs.
 * @param out  struct weir_<op>_out, or NULL; written only on CUDA_SUCCESS.
 * @return the host's CUresult; CUDA_ERROR_DEVICE_UNAVAILABLE when it is gone or breaks the
 *         protocol.
 * @thread any; blocks without holding a lock
 */
CUresult weir_channel_call(struct weir_channel *channel, enum weir_op op, const void *in,
                           void *out);

/**
 * Send a record that has no reply; if it fails, its error becomes a deferred error.
 *
 * @return CUDA_SUCCESS once sent; CUDA_ERROR_DEVICE_UNAVAILABLE when the host is gone;
 *         CUDA_ERROR_INVALID_VALUE when it does not fit into a record.
 * @thread any; blocks only while the ring is full
 */
CUresult weir_channel_post(struct weir_channel *channel, enum weir_op op, const void *in);

/* Data that goes with a call. Zero means that there is none. */
struct weir_channel_extra {
    const void *bulk; /* remote: sent beside the request */
    size_t bulk_bytes;
    void *ret_bulk; /* remote: room for the reply's bulk data, exactly ret_bulk_bytes */
    size_t ret_bulk_bytes;
    bool send_fd; /* co-located: the descriptor fd is sent after the request */
    int fd;       /* borrowed */
};

/** Like weir_channel_call(), with extra data; posted: do not wait for a reply. @thread any */
CUresult weir_channel_call_extra(struct weir_channel *channel, enum weir_op op, const void *in,
                                 void *out, const struct weir_channel_extra *extra, bool posted);

/* One of several calls without outputs whose replies have bulk data; the channel sets seq. */
struct weir_channel_piece {
    const void *in;
    void *ret_bulk;
    size_t bytes; /* size of the reply's bulk data, exactly */
    uint64_t seq;
};

/** Send all these calls of a remote channel, then wait for their replies. */
CUresult weir_channel_call_pieces(struct weir_channel *channel, enum weir_op op,
                                  struct weir_channel_piece *pieces, size_t n);

/** Receive a descriptor that a reply has announced (close-on-exec).
 * @thread any, in the replies' order */
CUresult weir_channel_receive_fd(struct weir_channel *channel, int *ret_fd);

/**
 * How long a thread may spin now: the policy's time, unless the host reports that cores are short
 * or the last thread that spun lost its core.
 * @param spin_ns  from the policy.
 * @thread any
 */
uint64_t weir_channel_spin_ns(struct weir_channel *channel, uint64_t spin_ns);

/** Has the word reached value (by signed distance)? In a remote session this asks the host. @thread
 * any */
bool weir_channel_word_reached(struct weir_channel *channel, uint32_t word, uint32_t value);

/** The word's present value; 0 if the session is remote and the host is gone. @thread any */
uint32_t weir_channel_word(struct weir_channel *channel, uint32_t word);

/**
 * Wait until the word has reached value.
 *
 * @param sleep_soon  the program asked for blocking synchronisation: spin very briefly.
 * @return CUDA_SUCCESS; the sticky error, if one appears; CUDA_ERROR_DEVICE_UNAVAILABLE.
 * @thread any; no lock held
 */
CUresult weir_channel_word_wait(struct weir_channel *channel, uint32_t word, uint32_t value,
                                bool sleep_soon);

/**
 * Read records for up to timeout_ns if no other thread reads, so that notifications arrive while no
 * thread waits for a reply. The callback runner uses it. False: another thread reads, or the host
 * is gone.
 * @thread any
 */
bool weir_channel_pump(struct weir_channel *channel, uint64_t timeout_ns);

/** Mark the host as gone or as having broken the protocol, and wake every waiter. @thread any */
void weir_channel_kill(struct weir_channel *channel, CUresult error);

/**
 * Return the error of earlier posted work once; a sticky error always; CUDA_SUCCESS if there is
 * none. Calls that may return errors of earlier asynchronous work end with this.
 * @thread any; two loads if there is no error
 */
CUresult weir_channel_report_slow(struct weir_channel *channel);

static inline CUresult weir_channel_report(struct weir_channel *channel)
{
    const struct weir_segment_header *header = channel->header;
    if (__builtin_expect(__atomic_load_n(&header->deferred_seq, __ATOMIC_ACQUIRE) ==
                                 __atomic_load_n(&channel->reported_seq, __ATOMIC_RELAXED) &&
                             !__atomic_load_n(&header->sticky_error, __ATOMIC_RELAXED) &&
                             !__atomic_load_n(&channel->dead, __ATOMIC_RELAXED),
                         1)) {
        return CUDA_SUCCESS;
    }
    return weir_channel_report_slow(channel);
}
