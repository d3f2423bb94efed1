/* The receiving half of the stream transport: see stream.c. */
#include "proto/transport/fd_message.h"
#include "proto/transport/ring.h"
#include "proto/transport/stream_private.h"
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

#define SLICE_NS   (250 * WEIR_NS_PER_MS)
#define PUMP_BYTES (1u << 20) /* bytes to read at a time once there is data */

/* ---------------------------------------------------------------- reading */

static bool frame_is_possible(const struct weir_stream_frame *frame)
{
    if (frame->magic != WEIR_STREAM_MAGIC || frame->pad != 0) {
        return false;
    }
    switch (frame->kind) {
    case WEIR_STREAM_HELLO:
    case WEIR_STREAM_WELCOME:
        return frame->head_bytes <= WEIR_RECORD_MAX_BYTES && frame->bulk_bytes == 0;
    case WEIR_STREAM_RECORD:
        return weir_record_check_length(frame->head_bytes) == WEIR_OK &&
               frame->bulk_bytes <= WEIR_BULK_MAX_BYTES;
    case WEIR_STREAM_PING:
        return frame->head_bytes == 0 && frame->bulk_bytes == 0;
    default:
        return false;
    }
}

static enum weir_status begin_node_locked(struct stream *s)
{
    struct weir_stream_frame frame;
    memcpy(&frame, s->in + s->in_at, sizeof frame);
    WEIR_FAIL_IF(!frame_is_possible(&frame), WEIR_ERR_PEER);
    s->partial = malloc(sizeof *s->partial + weir_stream_node_bytes(&frame));
    WEIR_FAIL_IF(!s->partial, WEIR_ERR_NO_MEMORY);
    s->partial->next = NULL;
    s->partial->frame = frame;
    s->partial_at = 0;
    s->in_at += sizeof frame;
    return WEIR_OK;
}

/* Show a record to the glance function, before it is received. */
static void glance_locked(struct stream *s, const struct weir_stream_node *node)
{
    /* G1: meets the release in weir_session_create(): glance_user is visible. */
    void (*glance)(void *, const struct weir_record *) =
        __atomic_load_n(&s->base.glance, __ATOMIC_ACQUIRE);
    if (glance && node->frame.kind == WEIR_STREAM_RECORD) {
        glance(s->base.glance_user, (const struct weir_record *)(const void *)node->bytes);
    }
}

static enum weir_status end_node_locked(struct stream *s)
{
    struct weir_stream_node *node = s->partial;
    struct weir_record record;
    s->partial = NULL;
    if (node->frame.kind == WEIR_STREAM_PING) {
        free(node);
        return WEIR_OK;
    }
    if (node->frame.kind == WEIR_STREAM_RECORD) {
        memcpy(&record, node->bytes, sizeof record);
        if (record.len_bytes != node->frame.head_bytes) {
            free(node);
            return WEIR_ERR_PEER;
        }
    }
    if (s->last) {
        s->last->next = node;
    } else {
        s->first = node;
    }
    s->last = node;
    s->waiting_bytes += sizeof *node + weir_stream_node_bytes(&node->frame);
    glance_locked(s, node);
    return WEIR_OK;
}

/* Find the place for the next bytes of the arriving frame, and how many fit there. */
static uint8_t *gap_of(const struct stream *s, size_t *ret_len)
{
    const struct weir_stream_frame *frame = &s->partial->frame;
    size_t at = s->partial_at;
    if (at < frame->head_bytes) {
        *ret_len = frame->head_bytes - at;
        return s->partial->bytes + at;
    }
    *ret_len = (size_t)frame->head_bytes + frame->bulk_bytes - at;
    return s->partial->bytes + weir_stream_bulk_offset(frame) + (at - frame->head_bytes);
}

/* Read one more part of the arriving frame. 0: the link has nothing now; -1: failed. */
static ssize_t fill_node_locked(struct stream *s)
{
    size_t len, ready = s->in_end - s->in_at;
    uint8_t *gap = gap_of(s, &len);
    ssize_t n;
    if (ready > 0) {
        n = (ssize_t)(WEIR_MIN(ready, len));
        memcpy(gap, s->in + s->in_at, (size_t)n);
        s->in_at += (size_t)n;
    } else if (len >= WEIR_STREAM_IN_BYTES / 2) {
        n = s->link->ops->read(s->link, gap, len); /* read bulk data directly to its place */
    } else {
        n = s->link->ops->read(s->link, s->in, WEIR_STREAM_IN_BYTES);
        s->in_at = 0;
        s->in_end = n > 0 ? (size_t)n : 0;
        return n;
    }
    if (n > 0) {
        s->partial_at += (size_t)n;
    }
    return n;
}

/* Read the next header into `in`. */
static ssize_t fill_header_locked(struct stream *s)
{
    size_t ready = s->in_end - s->in_at;
    memmove(s->in, s->in + s->in_at, ready);
    s->in_at = 0;
    s->in_end = ready;
    ssize_t n = s->link->ops->read(s->link, s->in + ready, WEIR_STREAM_IN_BYTES - ready);
    s->in_end += n > 0 ? (size_t)n : 0;
    return n;
}

/* Make one step of reading. WEIR_ERR_AGAIN: there is no data now. */
static enum weir_status step_locked(struct stream *s, size_t *ret_bytes)
{
    ssize_t n = 1;
    enum weir_status status = WEIR_OK;
    if (!s->partial && s->in_end - s->in_at >= sizeof(struct weir_stream_frame)) {
        status = begin_node_locked(s);
    } else {
        n = s->partial ? fill_node_locked(s) : fill_header_locked(s);
    }
    if (n <= 0) {
        return n == 0 ? WEIR_ERR_AGAIN : WEIR_ERR_CLOSED;
    }
    *ret_bytes += (size_t)n;
    if (status == WEIR_OK && s->partial &&
        s->partial_at == (size_t)s->partial->frame.head_bytes + s->partial->frame.bulk_bytes) {
        status = end_node_locked(s);
    }
    return status;
}

/* Note that no more data will come. The first reason stays, but a protocol error comes before an
 * end. */
static void fail_locked(struct stream *s, enum weir_status reason)
{
    if (s->failure == WEIR_OK || reason == WEIR_ERR_PEER) {
        s->failure = reason;
        pthread_cond_broadcast(&s->pumped);
    }
}

bool weir_stream_pump_locked(struct stream *s)
{
    const struct weir_stream_node *before = s->last;
    size_t bytes = 0;
    while (s->failure == WEIR_OK && s->waiting_bytes < WEIR_STREAM_WINDOW_BYTES &&
           (s->last == before || bytes < PUMP_BYTES)) {
        enum weir_status status = step_locked(s, &bytes);
        if (status == WEIR_ERR_AGAIN) {
            break;
        }
        if (status != WEIR_OK) {
            fail_locked(s, status);
        }
    }
    return s->last != before || s->failure != WEIR_OK;
}

void weir_stream_notify_locked(struct stream *s)
{
    if (s->is_polled) {
        eventfd_write(s->wake_fd, 1);
    }
    pthread_cond_broadcast(&s->pumped);
}

void weir_stream_take_locked(struct stream *s)
{
    if (weir_stream_pump_locked(s)) {
        weir_stream_notify_locked(s);
    }
}

/* ---------------------------------------------------------------- waiting */

void weir_stream_wait_locked(struct stream *s, bool writer, uint64_t left_ns)
{
    bool reads = !s->is_polled && s->waiting_bytes < WEIR_STREAM_WINDOW_BYTES;
    uint64_t slice_ns = WEIR_MIN(left_ns, SLICE_NS);
    if (!reads && !writer) {
        struct timespec end = weir_stream_timespec(weir_deadline_after(slice_ns));
        pthread_cond_timedwait(&s->pumped, &s->lock, &end);
        return;
    }
    struct pollfd fds[2] = {
        {.fd = s->link->fd, .events = (short)((reads ? POLLIN : 0) | (writer ? POLLOUT : 0))},
        {.fd = reads ? s->wake_fd : -1, .events = POLLIN}};
    struct timespec slice = weir_stream_timespec(slice_ns);
    s->is_polled = s->is_polled || reads;
    pthread_mutex_unlock(&s->lock);
    ppoll(fds, 2, &slice, NULL);
    if (fds[1].revents) {
        eventfd_t count;
        eventfd_read(s->wake_fd, &count);
    }
    pthread_mutex_lock(&s->lock);
    if (reads) {
        s->is_polled = false;
        weir_stream_pump_locked(s);
        pthread_cond_broadcast(&s->pumped); /* another thread must poll now */
    }
}

enum weir_status weir_stream_wait_for_room(struct stream *s, uint64_t deadline_ns)
{
    enum weir_status status = WEIR_OK;
    uint64_t left_ns = weir_deadline_left_ns(deadline_ns);
    WEIR_FAIL_IF(left_ns == 0, WEIR_ERR_TIMED_OUT);
    WEIR_LOCKED(&s->lock);
    weir_stream_take_locked(s);
    if (s->failure == WEIR_OK) {
        weir_stream_wait_locked(s, true, left_ns);
    }
    if (s->failure != WEIR_OK) {
        status = s->failure;
    }
    return status;
}

enum weir_status weir_stream_break_off(struct stream *s, enum weir_status status)
{
    WEIR_LOCKED(&s->lock);
    fail_locked(s, status);
    return status;
}
