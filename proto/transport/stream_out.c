/* The sending half of the stream transport: see stream.c. */
#include "base/thread.h"
#include "proto/transport/fd_message.h"
#include "proto/transport/stream_private.h"
#include <poll.h>
#include <stdlib.h>
#include <string.h>

/* How long a sender tries to finish a begun frame before the helper thread gets it. */
#define BEGUN_NS     (50 * WEIR_NS_PER_MS)
#define HELPER_STACK (512u << 10) /* the stack also holds the program's static TLS */
#define FRAME_PARTS  3

/* A frame that is being written. */
struct outgoing {
    struct weir_stream_frame frame;
    struct iovec parts[FRAME_PARTS];
    int n;
};

/* ---------------------------------------------------------------- writing */

static void drop_rest_locked(struct stream *s)
{
    free(s->rest);
    s->rest = NULL;
    s->rest_at = s->rest_len = 0;
}

/* Try once to write the kept rest of a frame. WEIR_ERR_AGAIN: no room. */
static enum weir_status push_rest_once_locked(struct stream *s)
{
    while (s->rest_at < s->rest_len) {
        struct iovec part = {s->rest + s->rest_at, s->rest_len - s->rest_at};
        ssize_t n = s->link->ops->write(s->link, &part, 1);
        if (n <= 0) {
            return n == 0 ? WEIR_ERR_AGAIN : WEIR_ERR_CLOSED;
        }
        s->rest_at += (size_t)n;
    }
    drop_rest_locked(s);
    return WEIR_OK;
}

enum weir_status weir_stream_push_rest_locked(struct stream *s, uint64_t deadline_ns)
{
    enum weir_status status = s->rest ? push_rest_once_locked(s) : WEIR_OK;
    while (status == WEIR_ERR_AGAIN) {
        status = weir_stream_wait_for_room(s, deadline_ns);
        WEIR_THEN(status, push_rest_once_locked(s));
    }
    return status;
}

static void consume(struct outgoing *out, size_t n)
{
    struct iovec *part = out->parts;
    int left = out->n;
    while (left > 0 && n >= part->iov_len) {
        n -= part->iov_len;
        part++;
        left--;
    }
    memmove(out->parts, part, (size_t)left * sizeof *part);
    out->n = left;
    if (left > 0) {
        out->parts[0].iov_base = (uint8_t *)out->parts[0].iov_base + n;
        out->parts[0].iov_len -= n;
    }
}

/* Keep the rest of a frame whose time has ended. */
static enum weir_status keep_rest_locked(struct stream *s, const struct outgoing *out)
{
    size_t len = 0;
    for (int i = 0; i < out->n; i++) {
        len += out->parts[i].iov_len;
    }
    s->rest = malloc(len);
    WEIR_FAIL_IF(!s->rest, WEIR_ERR_NO_MEMORY);
    for (int i = 0; i < out->n; i++) {
        memcpy(s->rest + s->rest_len, out->parts[i].iov_base, out->parts[i].iov_len);
        s->rest_len += out->parts[i].iov_len;
    }
    weir_stream_start_helper_locked(s);
    pthread_cond_signal(&s->out_changed);
    return WEIR_OK;
}

static enum weir_status write_frame_locked(struct stream *s, struct outgoing *out,
                                           uint64_t deadline_ns)
{
    bool begun = false;
    while (out->n > 0) {
        ssize_t n = s->link->ops->write(s->link, out->parts, out->n);
        WEIR_FAIL_IF(n < 0, WEIR_ERR_CLOSED);
        if (n > 0) {
            consume(out, (size_t)n);
            if (!begun) {
                uint64_t begun_ns = weir_deadline_after(BEGUN_NS);
                deadline_ns = WEIR_MAX(deadline_ns, begun_ns);
            }
            begun = true;
            continue;
        }
        enum weir_status status = weir_stream_wait_for_room(s, deadline_ns);
        if (status == WEIR_ERR_TIMED_OUT && begun) {
            status = keep_rest_locked(s, out);
            return status == WEIR_OK ? status : weir_stream_break_off(s, status);
        }
        if (status != WEIR_OK) {
            return status;
        }
    }
    return WEIR_OK;
}

enum weir_status weir_stream_send_frame(struct stream *s, enum weir_stream_kind kind,
                                        const void *head, size_t head_bytes, const void *bulk,
                                        size_t bulk_bytes, uint64_t deadline_ns)
{
    struct outgoing out = {.frame = {.magic = WEIR_STREAM_MAGIC,
                                     .kind = kind,
                                     .head_bytes = (uint32_t)head_bytes,
                                     .bulk_bytes = (uint32_t)bulk_bytes},
                           .n = bulk_bytes ? 3 : 2};
    out.parts[0] = (struct iovec){&out.frame, sizeof out.frame};
    out.parts[1] = (struct iovec){(void *)(uintptr_t)head, head_bytes};
    out.parts[2] = (struct iovec){(void *)(uintptr_t)bulk, bulk_bytes};
    WEIR_LOCKED(&s->out_lock);
    WEIR_TRY(weir_stream_push_rest_locked(s, deadline_ns));
    return write_frame_locked(s, &out, deadline_ns);
}

/* ---------------------------------------------------------------- the helper */

/* Write the kept rest of a frame; release the lock to senders while there is no room. */
static void help_with_rest_locked(struct stream *s)
{
    struct pollfd room = {.fd = s->link->fd, .events = POLLOUT};
    enum weir_status status = push_rest_once_locked(s);
    if (status == WEIR_ERR_CLOSED) {
        drop_rest_locked(s); /* the reading side learns the reason */
    } else if (status == WEIR_ERR_AGAIN) {
        pthread_mutex_unlock(&s->out_lock);
        poll(&room, 1, (int)(BEGUN_NS / WEIR_NS_PER_MS));
        pthread_mutex_lock(&s->out_lock);
    }
}

static void *help(void *user)
{
    struct stream *s = user;
    WEIR_LOCKED(&s->out_lock);
    while (!s->stop) {
        if (s->rest) {
            help_with_rest_locked(s);
        } else {
            pthread_cond_wait(&s->out_changed, &s->out_lock);
        }
    }
    return NULL;
}

void weir_stream_start_helper_locked(struct stream *s)
{
    if (s->has_helper) {
        return;
    }
    s->has_helper = weir_thread_start(&s->helper, HELPER_STACK, help, s) == 0;
}

void weir_stream_stop_helper(struct stream *s)
{
    pthread_mutex_lock(&s->out_lock);
    bool has_helper = s->has_helper;
    s->stop = true;
    pthread_cond_signal(&s->out_changed);
    pthread_mutex_unlock(&s->out_lock);
    if (has_helper) {
        pthread_join(s->helper, NULL);
    }
}
