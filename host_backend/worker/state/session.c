/*
 * What a session sends to its guest: replies, deferred errors, descriptors; and functions for other
 * threads that ask about it. worker/session_life.c makes and ends it, worker/session_run.c has its
 * loop.
 */
#include "host_backend/worker/state/carried.h"

#include "base/clock.h"
#include "base/log.h"
#include "host_backend/gate/gate.h"
#include "host_backend/worker/state/about.h"
#include "host_backend/worker/state/channel.h"
#include "host_backend/worker/state/handles.h"
#include "host_backend/worker/state/host_calls.h"
#include "host_backend/worker/state/platform.h"
#include "host_backend/worker/state/tenant.h"
#include "proto/ops.h"
#include "proto/wire/session_api.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEND_WAIT_NS (10 * WEIR_NS_PER_S)

void weir_session_gates_wake(struct weir_session *session)
{
    for (uint32_t i = 0; i < session->platform->n_devices; i++) {
        struct weir_gate_queue *q =
            atomic_load_explicit(&session->about->gate_queues[i], memory_order_acquire);

        if (q) {
            weir_gate_queue_wake(q);
        }
    }
}

void weir_session_end(struct weir_session *session)
{
    weir_host_calls_end(session);
    weir_session_gates_wake(session);
}

enum weir_status weir_session_send(struct weir_session *session, struct weir_record *record,
                                   const void *bulk, size_t bulk_bytes)
{
    struct weir_session_channel *channel = session->channel;
    enum weir_status status;

    pthread_mutex_lock(&channel->send_lock);
    record->deferred_seq = channel->deferred_seq;
    record->deferred_error = channel->deferred_error;
    record->sticky_error = (uint32_t)weir_worker_sticky_error(session->worker);
    status =
        channel->transport->ops->send(channel->transport, record, bulk, bulk_bytes, SEND_WAIT_NS);
    pthread_mutex_unlock(&channel->send_lock);
    if (status != WEIR_OK && !atomic_load(&session->ending)) {
        if (status != WEIR_ERR_CLOSED) {
            weir_log_warn("session: guest does not read, ended session=%llu tenant=%s why=\"%s\"",
                          (unsigned long long)session->id, session->tenant->name,
                          weir_status_text(status));
        }
        weir_session_end(session);
    }
    return status;
}

void weir_session_defer(struct weir_session *session, CUresult error)
{
    struct weir_session_channel *channel = session->channel;

    WEIR_LOCKED(&channel->send_lock); /* a trampoline's record carries them, too */
    channel->deferred_error = (uint32_t)error;
    channel->deferred_seq++;
    /* D1: publishes the error; meets the guest's acquire of the count. */
    __atomic_store_n(&channel->view.header->deferred_error, channel->deferred_error,
                     __ATOMIC_RELAXED);
    __atomic_store_n(&channel->view.header->deferred_seq, channel->deferred_seq, __ATOMIC_RELEASE);
}

/* ---------------------------------------------------------------- replies */

static bool grow_reply(struct weir_session *s, size_t bytes)
{
    struct weir_session_channel *channel = s->channel;

    if (bytes <= channel->reply_room) {
        return true;
    }
    uint8_t *bigger = realloc(channel->reply, bytes + 4096);
    WEIR_FAIL_IF(!bigger, false);
    channel->reply = bigger;
    channel->reply_room = bytes + 4096;
    return true;
}

/* A reply with room for a body; NULL: the session ends, as there is no memory. */
static struct weir_record *begin_reply(struct weir_session *s, uint16_t op, uint64_t seq,
                                       CUresult result, size_t body)
{
    struct weir_record *record;

    if (!grow_reply(s, sizeof *record + body)) {
        weir_session_end(s);
        return NULL;
    }
    record = (struct weir_record *)(void *)s->channel->reply;
    *record = (struct weir_record){.len_bytes = (uint32_t)(sizeof *record + body),
                                   .op = op,
                                   .flags = WEIR_RECORD_REPLY,
                                   .seq = seq,
                                   .status = (int32_t)result};
    return record;
}

void weir_session_reply_error(struct weir_session *session, uint16_t op, uint64_t seq,
                              CUresult result)
{
    struct weir_record *record = begin_reply(session, op, seq, result, 0);

    if (record) {
        (void)!weir_session_send(session, record, NULL, 0);
    }
}

void weir_session_reply(struct weir_session *session, uint16_t op, uint64_t seq, CUresult result,
                        const void *out)
{
    struct weir_session *s = session;
    const struct weir_op_info *info = &weir_ops[op];
    struct weir_record *record;

    if (result != CUDA_SUCCESS) {
        weir_session_reply_error(s, op, seq, result);
        return;
    }
    size_t body = info->out_bytes(out);
    if (body == WEIR_OP_BYTES_INVALID || body + sizeof *record > WEIR_RECORD_MAX_BYTES) {
        weir_log_error("session: reply cannot be encoded op=%s", info->name);
        weir_session_reply_error(s, op, seq, CUDA_ERROR_UNKNOWN);
        return;
    }
    record = begin_reply(s, op, seq, result, body);
    if (record) {
        if (body != 0) {
            info->out_encode(out, record + 1);
        }
        (void)!weir_session_send(s, record, s->op.reply_bulk, s->op.reply_bulk_bytes);
    }
}

/* ---------------------------------------------------------------- about it */

uint64_t weir_session_started_ns(const struct weir_session *session)
{
    return session->about->started_ns;
}

bool weir_session_is_over(const struct weir_session *session)
{
    return atomic_load(&session->ending) || weir_session_peer_gone(session) ||
           weir_worker_sticky_error(session->worker) != CUDA_SUCCESS;
}

uint64_t weir_session_calls(const struct weir_session *session)
{
    return atomic_load_explicit(&session->about->calls_total, memory_order_relaxed);
}

const char *weir_session_program(const struct weir_session *session)
{
    return session->about->program;
}

bool weir_session_is_monitor(const struct weir_session *session)
{
    return session->about->monitor;
}

void weir_session_say_stats(struct weir_session *session, struct weir_stats_set *set)
{
    (void)weir_sessions_lock(session->worker);
    struct weir_stats_set *old = session->about->stats;
    session->about->stats = set;
    weir_sessions_unlock(session->worker);
    free(old);
}

/* ---------------------------------------------------------------- members of a session */

struct weir_host_ctx *weir_session_contexts(const struct weir_session *session)
{
    return session->handles->contexts;
}

uint64_t weir_session_graphs_gone(const struct weir_session *session)
{
    return session->handles->graphs_gone;
}

uint32_t weir_session_n_kept(const struct weir_session *session)
{
    return session->handles->n_kept;
}

void weir_session_graph_gone(struct weir_session *session)
{
    session->handles->graphs_gone++;
}

void *weir_session_alloc(struct weir_session *session, size_t bytes)
{
    void *memory = weir_arena_alloc(&session->op.arena, bytes);

    return memory ? memset(memory, 0, bytes) : NULL;
}

/* ---------------------------------------------------------------- the transport */

void weir_session_show_unchecked(struct weir_session *session, bool unchecked)
{
    struct weir_segment_header *header = session->channel->view.header;

    if (header) {
        __atomic_store_n(&header->unchecked, unchecked, __ATOMIC_RELAXED);
    }
}

void weir_session_show_sticky(struct weir_session *session, CUresult error)
{
    /* S1: publishes the error; meets the guest's acquire in every wait loop. */
    __atomic_store_n(&session->channel->view.header->sticky_error, (uint32_t)error,
                     __ATOMIC_RELEASE);
}

bool weir_session_is_remote(const struct weir_session *session)
{
    return session->channel->remote;
}

bool weir_session_peer_gone(const struct weir_session *session)
{
    struct weir_transport *t = session->channel->transport;

    return t->ops->peer_gone(t);
}

struct weir_region_end *weir_session_region(const struct weir_session *session)
{
    return session->channel->region_end;
}

bool weir_session_passes_fds(const struct weir_session *session)
{
    return session->channel->transport->ops->send_fd != NULL;
}

enum weir_status weir_session_send_fd(struct weir_session *session, int fd)
{
    struct weir_transport *t = session->channel->transport;

    return t->ops->send_fd ? t->ops->send_fd(t, fd) : WEIR_ERR_UNSUPPORTED;
}

enum weir_status weir_session_receive_fd(struct weir_session *session, uint64_t timeout_ns,
                                         int *ret_fd)
{
    struct weir_transport *t = session->channel->transport;

    return t->ops->receive_fd ? t->ops->receive_fd(t, timeout_ns, ret_fd) : WEIR_ERR_UNSUPPORTED;
}

void weir_session_call(struct weir_session *session)
{
    struct weir_transport *transport = session->channel->transport;

    atomic_store(&transport->called, true);
    if (transport->ops->look) {
        transport->ops->look(transport);
    }
}

int64_t weir_session_pid(const struct weir_session *session)
{
    return session->about->pid;
}

void weir_session_carry(const struct weir_session *session, struct weir_session_carried *ret)
{
    *ret = (struct weir_session_carried){.id = session->id,
                                         .calls = weir_session_calls(session),
                                         .started_ns = session->about->started_ns,
                                         .pid = session->about->pid,
                                         .guest_pid = session->about->guest_pid,
                                         .deferred_seq = session->channel->deferred_seq,
                                         .deferred_error = session->channel->deferred_error,
                                         .wish = session->about->wish,
                                         .unknown = session->about->unknown};
    snprintf(ret->program, sizeof ret->program, "%s", session->about->program);
}

void weir_session_continue(struct weir_session *session, const struct weir_session_carried *from)
{
    session->channel->deferred_seq = from->deferred_seq;
    session->channel->deferred_error = from->deferred_error;
    session->about->started_ns = from->started_ns;
    atomic_store(&session->about->calls_total, from->calls);
}

bool weir_session_transport_state(const struct weir_session *session,
                                  struct weir_transport_state *ret_state)
{
    struct weir_transport *t = session->channel->transport;

    return t->ops->state && t->ops->state(t, ret_state);
}
