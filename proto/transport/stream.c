/*
 * One end of the stream transport.
 *
 * Receiving: a thread that needs a frame pumps the link, which puts whole frames into the inbox. Of
 * the threads that must wait, one polls the descriptor; the others sleep on the condition until the
 * poller has pumped. A sender that has no room pumps as well, so two ends that send to each other
 * cannot deadlock.
 *
 * Sending: the caller writes. If the time ends inside a frame, the frame counts as sent: the rest
 * is kept, and a helper thread, made when first needed, writes it.
 *
 * Locks: out_lock guards writing; lock guards reading and the inbox. lock is taken last, and glance
 * is called with it held.
 */
#include "base/fd.h"
#include "base/thread.h"
#include "proto/transport/fd_message.h"
#include "proto/transport/ring.h"
#include "proto/transport/segment_map.h"
#include "proto/transport/stream_private.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define LINGER_NS (200 * WEIR_NS_PER_MS)

static struct stream *stream_of(struct weir_transport *t)
{
    return (struct stream *)(void *)t;
}

/* ---------------------------------------------------------------- the transport's operations */

static void *stream_segment(struct weir_transport *t)
{
    return stream_of(t)->view.base;
}

static const struct weir_segment_view *stream_view(struct weir_transport *t)
{
    return &stream_of(t)->view;
}

static enum weir_status stream_send(struct weir_transport *t, const struct weir_record *record,
                                    const void *bulk, size_t bulk_bytes, uint64_t timeout_ns)
{
    WEIR_TRY(weir_record_check_send(record, bulk, bulk_bytes));
    int saved_errno = errno;
    enum weir_status status =
        weir_stream_send_frame(stream_of(t), WEIR_STREAM_RECORD, record, record->len_bytes, bulk,
                               bulk_bytes, timeout_ns ? weir_deadline_after(timeout_ns) : 0);
    errno = saved_errno;
    return status;
}

static struct weir_stream_node *take_first_locked(struct stream *s)
{
    struct weir_stream_node *node = s->first;
    if (node) {
        s->first = node->next;
        s->last = s->first ? s->last : NULL;
        s->waiting_bytes -= sizeof *node + weir_stream_node_bytes(&node->frame);
    }
    return node;
}

/* Wait for a frame. Frames from before the peer's end are received; after a protocol error none. */
static enum weir_status await_locked(struct stream *s, uint64_t spin_ns, uint64_t deadline_ns)
{
    spin_ns = weir_useful_spin_ns(spin_ns);
    uint64_t spin_end_ns = spin_ns && deadline_ns ? weir_deadline_after(spin_ns) : 0;
    for (;;) {
        weir_stream_take_locked(s);
        if (s->failure == WEIR_ERR_PEER) {
            return s->failure;
        }
        s->held = take_first_locked(s);
        if (s->held) {
            return WEIR_OK;
        }
        if (s->failure != WEIR_OK) {
            return s->failure;
        }
        uint64_t left_ns = weir_deadline_left_ns(deadline_ns);
        WEIR_FAIL_IF(left_ns == 0, WEIR_ERR_TIMED_OUT);
        if (spin_end_ns && weir_deadline_left_ns(spin_end_ns) != 0) {
            pthread_mutex_unlock(&s->lock); /* lets a sender acquire the lock */
            weir_cpu_pause();
            pthread_mutex_lock(&s->lock);
        } else {
            weir_stream_wait_locked(s, false, left_ns);
        }
    }
}

static enum weir_status receive_frame(struct stream *s, uint64_t spin_ns, uint64_t deadline_ns)
{
    int saved_errno = errno;
    free(s->held);
    s->held = NULL;
    pthread_mutex_lock(&s->lock);
    enum weir_status status = await_locked(s, spin_ns, deadline_ns);
    pthread_mutex_unlock(&s->lock);
    errno = saved_errno;
    return status;
}

/*
 * A machine that was reset leaves its connections open without notice. Its new kernel refuses data
 * on them, so the host pings. If a guest does not read, its buffer fills up; then no ping is sent,
 * and the guest misses nothing.
 */
static void ping(struct stream *s)
{
    uint64_t now_ns = weir_clock_now_ns();
    if (!s->view.base || now_ns - s->pinged_ns < WEIR_STREAM_PING_NS) {
        return;
    }
    s->pinged_ns = now_ns;
    int saved_errno = errno;
    enum weir_status status = weir_stream_send_frame(s, WEIR_STREAM_PING, NULL, 0, NULL, 0, 0);
    (void)status; /* reading will show that a guest is gone */
    errno = saved_errno;
}

static enum weir_status stream_receive(struct weir_transport *t,
                                       const struct weir_record **ret_record, const void **ret_bulk,
                                       size_t *ret_bulk_bytes, uint64_t spin_ns,
                                       uint64_t timeout_ns)
{
    struct stream *s = stream_of(t);
    enum weir_status status =
        receive_frame(s, spin_ns, timeout_ns ? weir_deadline_after(timeout_ns) : 0);
    if (status == WEIR_ERR_TIMED_OUT) {
        ping(s);
    }
    if (status != WEIR_OK) {
        return status;
    }
    const struct weir_stream_frame *frame = &s->held->frame;
    if (frame->kind != WEIR_STREAM_RECORD) {
        return weir_stream_break_off(s, WEIR_ERR_PEER);
    }
    *ret_record = (const struct weir_record *)(const void *)s->held->bytes;
    *ret_bulk = frame->bulk_bytes ? s->held->bytes + weir_stream_bulk_offset(frame) : NULL;
    *ret_bulk_bytes = frame->bulk_bytes;
    return WEIR_OK;
}

static bool stream_peer_gone(struct weir_transport *t)
{
    struct stream *s = stream_of(t);
    int saved_errno = errno;
    pthread_mutex_lock(&s->lock);
    weir_stream_take_locked(s);
    bool gone = s->failure != WEIR_OK;
    pthread_mutex_unlock(&s->lock);
    errno = saved_errno;
    return gone;
}

static void stream_attend(struct weir_transport *t, uint64_t timeout_ns)
{
    struct stream *s = stream_of(t);
    int saved_errno = errno;
    pthread_mutex_lock(&s->lock);
    if (!weir_stream_pump_locked(s)) {
        weir_stream_wait_locked(s, false, timeout_ns);
    } else {
        weir_stream_notify_locked(s);
    }
    pthread_mutex_unlock(&s->lock);
    errno = saved_errno;
}

static void free_stream(struct stream *s)
{
    free(s->held);
    free(s->partial);
    free(s->rest);
    for (struct weir_stream_node *node; (node = take_first_locked(s));) {
        free(node);
    }
    weir_fd_close(s->wake_fd);
    weir_segment_unmap(&s->view);
    pthread_cond_destroy(&s->pumped);
    pthread_cond_destroy(&s->out_changed);
    pthread_mutex_destroy(&s->lock);
    pthread_mutex_destroy(&s->out_lock);
    free(s);
}

static void stream_destroy(struct weir_transport *t)
{
    struct stream *s = stream_of(t);
    int saved_errno = errno;
    weir_stream_stop_helper(s);
    pthread_mutex_lock(&s->out_lock);
    enum weir_status status = weir_stream_push_rest_locked(s, weir_deadline_after(LINGER_NS));
    pthread_mutex_unlock(&s->out_lock);
    (void)status; /* the peer sees the connection's end inside a frame */
    s->link->ops->close(s->link, false);
    free_stream(s);
    errno = saved_errno;
}

/* Other threads may hold locks, and do not exist in the child: only descriptors are closed, all
 * else stays. */
static void stream_abandon(struct weir_transport *t)
{
    struct stream *s = stream_of(t);
    s->link->ops->close(s->link, true);
    close(s->wake_fd);
}

/* ---------------------------------------------------------------- the row */

static const struct weir_transport_ops stream_ops = {.name = "vsock",
                                                     .segment = stream_segment,
                                                     .view = stream_view,
                                                     .send = stream_send,
                                                     .receive = stream_receive,
                                                     .peer_gone = stream_peer_gone,
                                                     .attend = stream_attend,
                                                     .destroy = stream_destroy,
                                                     .abandon = stream_abandon};

enum weir_status weir_stream_create(struct weir_stream_link *link,
                                    struct weir_transport **ret_transport)
{
    struct stream *s = calloc(1, sizeof *s);
    if (!s) {
        link->ops->close(link, false);
        return WEIR_ERR_NO_MEMORY;
    }
    s->base.ops = &stream_ops;
    s->link = link;
    pthread_mutex_init(&s->lock, NULL);
    pthread_mutex_init(&s->out_lock, NULL);
    weir_thread_condition_init(&s->pumped);
    weir_thread_condition_init(&s->out_changed);
    s->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (s->wake_fd < 0) {
        link->ops->close(link, false);
        free_stream(s);
        return WEIR_ERR_IO;
    }
    *ret_transport = &s->base;
    return WEIR_OK;
}

void weir_stream_set_view(struct weir_transport *t, const struct weir_segment_view *view)
{
    stream_of(t)->view = *view;
}

enum weir_status weir_stream_say(struct weir_transport *t, enum weir_stream_kind kind,
                                 const void *message, size_t len, uint64_t deadline_ns)
{
    int saved_errno = errno;
    enum weir_status status =
        weir_stream_send_frame(stream_of(t), kind, message, len, NULL, 0, deadline_ns);
    errno = saved_errno;
    return status;
}

enum weir_status weir_stream_hear(struct weir_transport *t, enum weir_stream_kind kind,
                                  size_t max_bytes, uint64_t deadline_ns, const void **ret_message,
                                  size_t *ret_len)
{
    struct stream *s = stream_of(t);
    enum weir_status status = receive_frame(s, 0, deadline_ns);
    if (status == WEIR_OK &&
        (s->held->frame.kind != kind || s->held->frame.head_bytes > max_bytes)) {
        status = weir_stream_break_off(s, WEIR_ERR_PEER);
    }
    if (status == WEIR_OK) {
        *ret_message = s->held->bytes;
        *ret_len = s->held->frame.head_bytes;
    }
    return status;
}
