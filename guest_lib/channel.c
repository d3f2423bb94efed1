/*
 * The session's channel: see channel.h for its interface.
 *
 * A thread that waits for a reply has a struct weir_channel_wait on its stack, linked into
 * channel->waits under receive_lock before its request is sent. Exactly one thread at a time, the
 * leader (channel->reading), is inside the transport's receiving end, without the lock; it copies
 * each reply into its waiter's buffer under the lock and sets the waiter's state. When the leader
 * has its own reply, it makes another waiter the leader. States of a wait:
 *
 *     WAITING -> SLEEPING -> WAITING ..   the waiter itself, around its futex
 *     any -> DONE                         the leader, or weir_channel_kill()
 *     any -> LEAD                         a leader that leaves
 */
#include "guest_lib/channel.h"
#include "base/log.h"
#include "guest_lib/calls.h"
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define HOST_GONE     CUDA_ERROR_DEVICE_UNAVAILABLE
#define PEER_CHECK_NS (50 * WEIR_NS_PER_MS)
/* Records up to this size are encoded on the stack: all records except large launches. */
#define INLINE_BYTES    768
#define PAUSES_PER_LOOK 8

enum wait_state { WAITING, SLEEPING, DONE, LEAD };

/* A growing buffer of one thread; freed when the thread ends. */
struct thread_buffer {
    uint8_t *data;
    size_t cap_bytes;
};

struct weir_channel_wait {
    struct weir_channel_wait *next;
    uint64_t seq;
    uint32_t state; /* atomic, enum wait_state */
    enum weir_op op;
    CUresult result;
    struct thread_buffer *reply; /* the waiter's own buffer; the leader fills it */
    size_t body_bytes;
    void *ret_bulk;
    size_t ret_bulk_bytes;
    struct weir_channel_piece *pieces; /* parts of a call with several requests; NULL: it has one */
    size_t n_sent, n_open; /* how many of the pieces are sent, and how many have no reply yet */
};

struct thread_buffers {
    struct thread_buffer request;
    struct thread_buffer reply;
    bool registered;
};

static __thread struct thread_buffers buffers;
static pthread_key_t buffers_key;
static pthread_once_t buffers_once = PTHREAD_ONCE_INIT;

static void buffers_free(void *arg)
{
    struct thread_buffers *mine = arg;
    free(mine->request.data);
    free(mine->reply.data);
    memset(mine, 0, sizeof *mine);
}

static void buffers_make_key(void)
{
    if (pthread_key_create(&buffers_key, buffers_free) != 0) {
        weir_log_error("guest: no thread key left, buffers of ended threads stay");
    }
}

static void buffers_register(void)
{
    if (!buffers.registered) {
        pthread_once(&buffers_once, buffers_make_key);
        pthread_setspecific(buffers_key, &buffers);
        buffers.registered = true;
    }
}

static bool buffer_reserve(struct thread_buffer *buffer, size_t bytes)
{
    if (bytes <= buffer->cap_bytes) {
        return true;
    }
    size_t cap = bytes < 4096 ? 4096 : bytes + bytes / 2;
    uint8_t *data = realloc(buffer->data, cap);
    WEIR_FAIL_IF(!data, false);
    buffer->data = data;
    buffer->cap_bytes = cap;
    return true;
}

enum weir_status weir_channel_init(struct weir_channel *channel, struct weir_transport *transport,
                                   const struct weir_wait_policy *wait)
{
    const struct weir_segment_view *view = transport->ops->view(transport);
    channel->transport = transport;
    channel->wait = *wait;
    channel->remote = !view->base;
    channel->header = channel->remote ? &channel->shadow : view->header;
    channel->passes_fds = transport->ops->send_fd != NULL;
    channel->polled = view->polled;
    channel->words = view->words;
    channel->arena = view->arena;
    channel->arena_bytes = view->arena_bytes;
    channel->n_words = view->n_words;
    WEIR_FAIL_IF(!channel->header || view->n_words < 2, WEIR_ERR_PEER);
    return WEIR_OK;
}

void weir_channel_finish(struct weir_channel *channel)
{
    if (channel->transport) {
        channel->transport->ops->destroy(channel->transport);
    }
    memset(channel, 0, sizeof *channel);
}

static CUresult channel_dead(const struct weir_channel *channel)
{
    return (CUresult)__atomic_load_n(&channel->dead, __ATOMIC_ACQUIRE);
}

static void wait_finish(struct weir_channel_wait *wait, CUresult result)
{
    wait->result = result;
    /* C1: the reply is in place; meets the acquire in wait_for_reply(). */
    if (__atomic_exchange_n(&wait->state, DONE, __ATOMIC_RELEASE) == SLEEPING) {
        weir_futex_wake(&wait->state, 1);
    }
}

void weir_channel_kill(struct weir_channel *channel, CUresult error)
{
    uint32_t alive = 0;
    uint32_t sticky =
        channel->header ? __atomic_load_n(&channel->header->sticky_error, __ATOMIC_ACQUIRE) : 0;
    /* If the host ended together with its GPU context, the program gets that context's error. */
    error = sticky ? (CUresult)sticky : error;
    if (__atomic_compare_exchange_n(&channel->dead, &alive, (uint32_t)error, false,
                                    __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {
        if (sticky) {
            weir_log_error(
                "guest: a kernel's fault ended the GPU context, and its worker with it result=%d",
                (int)error);
        } else {
            weir_log_error("guest: the host is gone, result=%d", (int)error);
        }
    }
    WEIR_GUEST_LOCKED(&channel->receive_lock);
    for (struct weir_channel_wait *wait; (wait = WEIR_POP(channel->waits));) {
        wait_finish(wait, channel_dead(channel));
    }
}

/* Log these errors: CUDA's texts do not say what the user can do. */
static CUresult note_error(CUresult error)
{
    static bool told;
    if (error == CUDA_ERROR_OUT_OF_MEMORY) {
        weir_calls_mark_lacked();
    }
    if (error == CUDA_ERROR_CDP_NOT_SUPPORTED &&
        !__atomic_exchange_n(&told, true, __ATOMIC_RELAXED)) {
        weir_log_error(
            "guest: a kernel launches kernels, which is not possible under MPS: have the "
            "tenant's isolation = \"strict\", or mps = \"off\" for the host");
    }
    return error;
}

static CUresult channel_failed(struct weir_channel *channel, enum weir_status status)
{
    WEIR_FAIL_IF(status == WEIR_ERR_TOO_BIG, CUDA_ERROR_INVALID_VALUE);
    weir_channel_kill(channel, HOST_GONE);
    return channel_dead(channel);
}

/* ---------------------------------------------------------------- receiving */

/* Remove a wait from the list, if it is there. */
static void unlink_wait_locked(struct weir_channel *channel, const struct weir_channel_wait *wait)
{
    WEIR_UNLINK(channel->waits, wait, next);
}

static struct weir_channel_piece *find_piece(const struct weir_channel_wait *wait, uint64_t seq)
{
    size_t i = 0;
    while (i < wait->n_sent && wait->pieces[i].seq != seq) {
        i++;
    }
    return i < wait->n_sent ? &wait->pieces[i] : NULL;
}

static struct weir_channel_wait *find_wait_locked(const struct weir_channel *channel, uint64_t seq)
{
    return WEIR_LINKED(wait, channel->waits,
                       wait->pieces ? find_piece(wait, seq) != NULL : wait->seq == seq);
}

static CUresult fill_wait(struct weir_channel_wait *wait, const struct weir_record *record,
                          const void *bulk, size_t bulk_bytes)
{
    size_t body = record->len_bytes - sizeof *record;
    if (record->op != wait->op ||
        (wait->ret_bulk && record->status == CUDA_SUCCESS && bulk_bytes != wait->ret_bulk_bytes)) {
        return HOST_GONE;
    }
    WEIR_FAIL_IF(!buffer_reserve(wait->reply, body), CUDA_ERROR_OUT_OF_MEMORY);
    if (body) {
        memcpy(wait->reply->data, record + 1, body);
    }
    wait->body_bytes = body;
    if (wait->ret_bulk && record->status == CUDA_SUCCESS) {
        memcpy(wait->ret_bulk, bulk, bulk_bytes);
    }
    return (CUresult)record->status;
}

/* Store one of several replies. @return true: it was the last */
static bool fill_piece(struct weir_channel_wait *wait, const struct weir_record *record,
                       const void *bulk, size_t bulk_bytes)
{
    struct weir_channel_piece *piece = find_piece(wait, record->seq);
    CUresult result = (CUresult)record->status;
    if (record->op != wait->op || (result == CUDA_SUCCESS && bulk_bytes != piece->bytes)) {
        result = HOST_GONE;
    } else if (result == CUDA_SUCCESS) {
        memcpy(piece->ret_bulk, bulk, bulk_bytes);
    }
    wait->result = wait->result == CUDA_SUCCESS ? result : wait->result;
    piece->seq = 0; /* no request has this number, so a second reply finds no piece */
    return --wait->n_open == 0;
}

static void take_errors(struct weir_channel *channel, const struct weir_record *record)
{
    struct weir_segment_header *shadow = &channel->shadow;
    __atomic_store_n(&shadow->sticky_error, record->sticky_error, __ATOMIC_RELAXED);
    __atomic_store_n(&shadow->deferred_error, record->deferred_error, __ATOMIC_RELAXED);
    __atomic_store_n(&shadow->deferred_seq, record->deferred_seq, __ATOMIC_RELEASE);
}

static void dispatch(struct weir_channel *channel, const struct weir_record *record,
                     const void *bulk, size_t bulk_bytes)
{
    if (record->flags & WEIR_RECORD_NOTIFY) {
        if (channel->notify) {
            channel->notify(channel->notify_user, (enum weir_op)record->op, record + 1,
                            record->len_bytes - sizeof *record);
        }
        return;
    }
    if (!(record->flags & WEIR_RECORD_REPLY)) {
        return;
    }
    WEIR_GUEST_LOCKED(&channel->receive_lock);
    if (channel->remote) {
        take_errors(channel, record);
    }
    struct weir_channel_wait *wait = find_wait_locked(channel, record->seq);
    if (wait && !wait->pieces) {
        unlink_wait_locked(channel, wait);
        wait_finish(wait, fill_wait(wait, record, bulk, bulk_bytes));
    } else if (wait && fill_piece(wait, record, bulk, bulk_bytes)) {
        unlink_wait_locked(channel, wait);
        wait_finish(wait, wait->result);
    }
}

/* Read one record as the leader. False: the channel is dead. */
static bool receive_one(struct weir_channel *channel, uint64_t spin_ns, uint64_t timeout_ns)
{
    const struct weir_record *record;
    const void *bulk;
    size_t bulk_bytes;
    enum weir_status status = channel->transport->ops->receive(channel->transport, &record, &bulk,
                                                               &bulk_bytes, spin_ns, timeout_ns);
    if (status == WEIR_OK) {
        dispatch(channel, record, bulk, bulk_bytes);
        return true;
    }
    if (status == WEIR_ERR_TIMED_OUT || status == WEIR_ERR_AGAIN) {
        if (!channel->transport->ops->peer_gone(channel->transport)) {
            return true;
        }
    }
    weir_channel_kill(channel, HOST_GONE);
    return false;
}

static bool become_leader(struct weir_channel *channel)
{
    WEIR_GUEST_LOCKED(&channel->receive_lock);
    bool leader = !channel->reading;
    channel->reading = true;
    return leader;
}

static void stop_leading(struct weir_channel *channel)
{
    WEIR_GUEST_LOCKED(&channel->receive_lock);
    channel->reading = false;
    struct weir_channel_wait *heir = channel->waits;
    if (heir) {
        uint32_t state = __atomic_exchange_n(&heir->state, LEAD, __ATOMIC_RELAXED);
        if (state == SLEEPING) {
            weir_futex_wake(&heir->state, 1);
        }
    }
}

/* Sleep until the wait's state changes, because another thread reads. */
static void follow(struct weir_channel *channel, struct weir_channel_wait *wait)
{
    uint64_t end_ns = weir_clock_now_ns() + weir_channel_spin_ns(channel, channel->wait.spin_ns);
    while (__atomic_load_n(&wait->state, __ATOMIC_ACQUIRE) == WAITING) {
        if (weir_clock_now_ns() < end_ns) {
            for (int i = 0; i < PAUSES_PER_LOOK; i++) {
                weir_cpu_pause();
            }
            continue;
        }
        uint32_t expected = WAITING;
        if (__atomic_compare_exchange_n(&wait->state, &expected, SLEEPING, false, __ATOMIC_ACQUIRE,
                                        __ATOMIC_ACQUIRE)) {
            weir_futex_wait(&wait->state, SLEEPING, PEER_CHECK_NS);
            expected = SLEEPING;
            __atomic_compare_exchange_n(&wait->state, &expected, WAITING, false, __ATOMIC_ACQUIRE,
                                        __ATOMIC_ACQUIRE);
        }
        return;
    }
}

static CUresult wait_for_reply(struct weir_channel *channel, struct weir_channel_wait *wait)
{
    while (__atomic_load_n(&wait->state, __ATOMIC_ACQUIRE) != DONE) {
        uint32_t expected = LEAD;
        __atomic_compare_exchange_n(&wait->state, &expected, WAITING, false, __ATOMIC_ACQUIRE,
                                    __ATOMIC_ACQUIRE);
        if (!become_leader(channel)) {
            follow(channel, wait);
            continue;
        }
        while (__atomic_load_n(&wait->state, __ATOMIC_ACQUIRE) != DONE &&
               receive_one(channel, weir_channel_spin_ns(channel, channel->wait.spin_ns),
                           PEER_CHECK_NS)) {
        }
        stop_leading(channel);
    }
    /* The thread that set DONE may still hold the lock; it must be finished with *wait before the
     * waiter returns. */
    weir_lock_acquire(&channel->receive_lock);
    weir_lock_release(&channel->receive_lock);
    return wait->result;
}

bool weir_channel_pump(struct weir_channel *channel, uint64_t timeout_ns)
{
    if (channel_dead(channel) || !become_leader(channel)) {
        return false;
    }
    receive_one(channel, 0, timeout_ns);
    stop_leading(channel);
    return true;
}

/* ---------------------------------------------------------------- sending */

/* Encode a record behind its header, in inline_space if it fits, else in the thread's buffer. */
static struct weir_record *encode(const struct weir_channel *channel, enum weir_op op,
                                  const void *in, bool posted, uint64_t *inline_space)
{
    struct weir_record *record = (struct weir_record *)inline_space;
    size_t body = weir_ops[op].in_bytes(in);
    if (body > INLINE_BYTES) {
        buffers_register();
        if (body > WEIR_RECORD_MAX_BYTES - sizeof *record ||
            !buffer_reserve(&buffers.request, sizeof *record + body)) {
            return NULL;
        }
        record = (struct weir_record *)buffers.request.data;
    }
    weir_ops[op].in_encode(in, record + 1);
    memset(record, 0, sizeof *record);
    record->len_bytes = (uint32_t)(sizeof *record + body);
    record->op = (uint16_t)op;
    record->flags = posted ? WEIR_RECORD_POSTED : 0;
    record->status = weir_calls_thread.caller;
    record->profile = weir_calls_thread.profile;
    if (channel->device_of_thread) {
        record->device = channel->device_of_thread();
    }
    return record;
}

static void add_wait(struct weir_channel *channel, struct weir_channel_wait *wait, uint64_t seq)
{
    wait->seq = seq;
    WEIR_GUEST_LOCKED(&channel->receive_lock);
    if (wait->pieces) {
        wait->pieces[wait->n_sent].seq = seq;
    }
    if (wait->n_sent == 0) {
        WEIR_PUSH(channel->waits, wait);
    }
    wait->n_sent++;
}

static void cancel_wait(struct weir_channel *channel, struct weir_channel_wait *wait)
{
    WEIR_GUEST_LOCKED(&channel->receive_lock);
    unlink_wait_locked(channel, wait);
}

/* Send a record. If there is no room at once, mark a wait in the statistics. */
static enum weir_status send_record(struct weir_transport *transport, struct weir_record *record,
                                    const struct weir_channel_extra *extra)
{
    const void *bulk = extra ? extra->bulk : NULL;
    size_t bulk_bytes = extra ? extra->bulk_bytes : 0;
    enum weir_status status = transport->ops->send(transport, record, bulk, bulk_bytes, 0);
    if (status == WEIR_ERR_TIMED_OUT) {
        weir_calls_mark_waiting();
        status = transport->ops->send(transport, record, bulk, bulk_bytes, WEIR_FOREVER);
    }
    return status;
}

/* Number the record and send it. A wait, if there is one, is registered first so that no reply can
 * miss it. */
static CUresult transmit(struct weir_channel *channel, struct weir_record *record,
                         const struct weir_channel_extra *extra, struct weir_channel_wait *wait)
{
    struct weir_transport *transport = channel->transport;
    weir_lock_acquire(&channel->send_lock);
    CUresult dead = channel_dead(channel);
    if (dead) {
        weir_lock_release(&channel->send_lock);
        return dead;
    }
    record->seq = ++channel->next_seq;
    if (wait) {
        add_wait(channel, wait, record->seq);
        weir_calls_mark_waiting();
    } else {
        weir_calls_mark_posted();
    }
    enum weir_status status = send_record(transport, record, extra);
    if (status == WEIR_OK && extra && extra->send_fd) {
        status = transport->ops->send_fd ? transport->ops->send_fd(transport, extra->fd)
                                         : WEIR_ERR_UNSUPPORTED;
    }
    weir_lock_release(&channel->send_lock);
    if (status == WEIR_OK) {
        return CUDA_SUCCESS;
    }
    if (wait) {
        cancel_wait(channel, wait);
    }
    return channel_failed(channel, status);
}

CUresult weir_channel_call_extra(struct weir_channel *channel, enum weir_op op, const void *in,
                                 void *out, const struct weir_channel_extra *extra, bool posted)
{
    uint64_t space[(sizeof(struct weir_record) + INLINE_BYTES) / sizeof(uint64_t)];
    struct weir_record *record = encode(channel, op, in, posted, space);
    WEIR_FAIL_IF(!record, CUDA_ERROR_INVALID_VALUE);
    if (posted) {
        return transmit(channel, record, extra, NULL);
    }
    buffers_register();
    struct weir_channel_wait wait = {.op = op,
                                     .reply = &buffers.reply,
                                     .ret_bulk = extra ? extra->ret_bulk : NULL,
                                     .ret_bulk_bytes = extra ? extra->ret_bulk_bytes : 0};
    WEIR_TRY(transmit(channel, record, extra, &wait));
    WEIR_TRY(note_error(wait_for_reply(channel, &wait)));
    if (out && !weir_ops[op].out_decode(buffers.reply.data, wait.body_bytes, out)) {
        weir_log_error("guest: malformed reply, op=%s", weir_ops[op].name);
        weir_channel_kill(channel, HOST_GONE);
        return HOST_GONE;
    }
    return CUDA_SUCCESS;
}

CUresult weir_channel_call_pieces(struct weir_channel *channel, enum weir_op op,
                                  struct weir_channel_piece *pieces, size_t n)
{
    uint64_t space[(sizeof(struct weir_record) + INLINE_BYTES) / sizeof(uint64_t)];
    struct weir_channel_wait wait = {.op = op, .pieces = pieces, .n_open = n};
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; i < n && result == CUDA_SUCCESS; i++) {
        struct weir_record *record = encode(channel, op, pieces[i].in, false, space);
        result = record ? transmit(channel, record, NULL, &wait) : CUDA_ERROR_INVALID_VALUE;
    }
    if (result == CUDA_SUCCESS) {
        return wait_for_reply(channel, &wait);
    }
    cancel_wait(channel, &wait); /* replies to the other pieces find no waiter */
    return result;
}

CUresult weir_channel_call(struct weir_channel *channel, enum weir_op op, const void *in, void *out)
{
    return weir_channel_call_extra(channel, op, in, out, NULL, false);
}

CUresult weir_channel_post(struct weir_channel *channel, enum weir_op op, const void *in)
{
    uint64_t space[(sizeof(struct weir_record) + INLINE_BYTES) / sizeof(uint64_t)];
    struct weir_record *record = encode(channel, op, in, true, space);
    return record ? transmit(channel, record, NULL, NULL) : CUDA_ERROR_INVALID_VALUE;
}

CUresult weir_channel_receive_fd(struct weir_channel *channel, int *ret_fd)
{
    struct weir_transport *transport = channel->transport;
    WEIR_FAIL_IF(!transport->ops->receive_fd, CUDA_ERROR_NOT_SUPPORTED);
    enum weir_status status = transport->ops->receive_fd(transport, 5 * WEIR_NS_PER_S, ret_fd);
    if (status == WEIR_ERR_NO_DESCRIPTOR) {
        return CUDA_ERROR_OPERATING_SYSTEM; /* this descriptor is lost, but the next one will be
                                               complete */
    }
    return status == WEIR_OK ? CUDA_SUCCESS : channel_failed(channel, WEIR_ERR_PEER);
}

/* ---------------------------------------------------------------- errors */

CUresult weir_channel_report_slow(struct weir_channel *channel)
{
    CUresult dead = channel_dead(channel);
    if (dead) {
        return dead;
    }
    uint32_t sticky = __atomic_load_n(&channel->header->sticky_error, __ATOMIC_ACQUIRE);
    if (sticky) {
        return (CUresult)sticky;
    }
    uint32_t seq = __atomic_load_n(&channel->header->deferred_seq, __ATOMIC_ACQUIRE);
    uint32_t error = __atomic_load_n(&channel->header->deferred_error, __ATOMIC_RELAXED);
    /* If several threads see the error, only one reports it. A thread that sees an older one
     * reports nothing. */
    uint32_t reported = __atomic_load_n(&channel->reported_seq, __ATOMIC_RELAXED);
    do {
        if ((int32_t)(seq - reported) <= 0) {
            return CUDA_SUCCESS;
        }
    } while (!__atomic_compare_exchange_n(&channel->reported_seq, &reported, seq, true,
                                          __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return note_error((CUresult)error);
}
