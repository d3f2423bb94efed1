/* Types and functions that the files of the stream transport share. Private to them. */
#pragma once

#include "base/clock.h"
#include "base/thread.h"
#include "proto/transport/stream.h"
#include <time.h>

#define WEIR_STREAM_IN_BYTES 65536u

/* A frame that was received. */
struct weir_stream_node {
    struct weir_stream_node *next;
    struct weir_stream_frame frame;
    _Alignas(16) uint8_t bytes[]; /* the head, then the bulk data from the next 16 bytes on */
};

struct stream {
    struct weir_transport base;
    struct weir_stream_link *link;
    struct weir_segment_view view;
    int wake_fd;
    struct weir_stream_node *held; /* receiver only: the frame lent to its caller */
    uint64_t pinged_ns;            /* used by the receiver only */
    pthread_t helper;
    bool has_helper; /* guarded by out_lock */
    bool stop;       /* guarded by out_lock */
    pthread_cond_t out_changed;
    pthread_mutex_t out_lock;
    uint8_t *rest; /* the unwritten part of a frame; guarded by out_lock, as are the next members */
    size_t rest_at, rest_len;
    pthread_cond_t pumped;
    pthread_mutex_t lock;     /* guards what follows, and reading from the link */
    enum weir_status failure; /* why no more data will come; WEIR_OK while the link works */
    bool is_polled;
    struct weir_stream_node *first, *last;
    uint64_t waiting_bytes;           /* bytes in the inbox */
    struct weir_stream_node *partial; /* the node whose frame is arriving */
    size_t partial_at;
    size_t in_at, in_end; /* the part of `in` that was read and not yet parsed */
    _Alignas(16) uint8_t in[WEIR_STREAM_IN_BYTES];
};

static inline size_t weir_stream_bulk_offset(const struct weir_stream_frame *frame)
{
    return frame->bulk_bytes ? ((size_t)frame->head_bytes + 15) & ~(size_t)15 : frame->head_bytes;
}

/* How many bytes a frame takes in memory, which also count in the window. */
static inline size_t weir_stream_node_bytes(const struct weir_stream_frame *frame)
{
    return weir_stream_bulk_offset(frame) + frame->bulk_bytes;
}

static inline struct timespec weir_stream_timespec(uint64_t ns)
{
    return (struct timespec){.tv_sec = (time_t)(ns / WEIR_NS_PER_S),
                             .tv_nsec = (long)(ns % WEIR_NS_PER_S)};
}

/* stream_in.c: reading and waiting. The caller holds `lock` for all but the last two functions. */

/**
 * Read the data that has arrived; true if a frame or the end has. It may stop before all is read,
 * but not without having something for the receiver, so no thread sleeps while there is data.
 */
bool weir_stream_pump_locked(struct stream *s);
/** Wake all waiting threads, after data has come in while a caller used the link. */
void weir_stream_notify_locked(struct stream *s);
/** Both. */
void weir_stream_take_locked(struct stream *s);
/**
 * Wait until something may have come in or, for a writer, until there may be room; left_ns is not
 * 0. The caller has pumped.
 */
void weir_stream_wait_locked(struct stream *s, bool writer, uint64_t left_ns);
/** Wait for room to write. @return WEIR_OK, WEIR_ERR_TIMED_OUT, or why there will be none */
enum weir_status weir_stream_wait_for_room(struct stream *s, uint64_t deadline_ns) WEIR_MUST_CHECK;
/** End the connection, for instance behind half a frame. @return status */
enum weir_status weir_stream_break_off(struct stream *s, enum weir_status status);

/* stream_out.c: writing, and the helper thread. */

enum weir_status weir_stream_send_frame(struct stream *s, enum weir_stream_kind kind,
                                        const void *head, size_t head_bytes, const void *bulk,
                                        size_t bulk_bytes, uint64_t deadline_ns) WEIR_MUST_CHECK;
/** Continue to write the rest of a frame that was kept. The caller holds out_lock. */
enum weir_status weir_stream_push_rest_locked(struct stream *s,
                                              uint64_t deadline_ns) WEIR_MUST_CHECK;
/** Start the helper thread. Without one (no memory) the next caller writes the rest. The caller
 * holds out_lock, or no other thread knows s yet. */
void weir_stream_start_helper_locked(struct stream *s);
void weir_stream_stop_helper(struct stream *s);
