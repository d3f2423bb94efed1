/*
 * Runs functions of the guest that are in a stream (cuLaunchHostFunc).
 *
 * The driver calls a trampoline on a thread of its own; it sends host_func_call to the guest and
 * waits for the answer. It holds no lock while it waits, and it returns soon when the session ends,
 * so the session's streams can always be drained.
 *
 * The answer must not come through the session's thread: that thread may be in a driver call that
 * waits for the GPU, as loading a module does, while the GPU waits for this function. So a local
 * guest writes to a word of the segment on which the trampoline sleeps. A remote guest's
 * host_func_done is handled when it arrives (weir_host_call_glance()): by the transport's I/O
 * thread or, if it has none, by a waiting thread such as the trampoline.
 *
 * For the same reason a remote guest that reads or writes its arena during a function does not ask
 * the session's thread: the trampoline answers host_func_read, and the thread that receives
 * host_func_write executes it.
 */
#include "host_backend/worker/state/host_calls.h"
#include "host_backend/worker/state/channel.h"
#include "host_backend/worker/state/segment.h"
#include "host_backend/worker/state/session.h"

#include "base/clock.h"
#include "base/thread.h"
#include "proto/ops.h"
#include "proto/wire/op_kinds.h"
#include <stdlib.h>
#include <string.h>

/* How late a trampoline may notice the end of the session or of its guest. */
#define SLICE_NS (20 * WEIR_NS_PER_MS)

_Static_assert(WEIR_WORDS_TICKETS == 64, "a bit each");

/* A function of the guest in a stream or graph. */
struct weir_host_call {
    struct weir_host_call *next;
    struct weir_host_call **back; /* the pointer that points to this call */
    struct weir_session *session;
    uint64_t token;
    bool once;         /* the call belongs to a stream: freed when it has run */
    CUuserObject kept; /* user object of the graphs that own the call; NULL: the session does */
};

/* Guards call->session. A thread that does not know whether the call's session still exists takes
 * it before the session's lock: the last graph may be destroyed after the session. */
static pthread_mutex_t graphs_lock = PTHREAD_MUTEX_INITIALIZER;

/* A call that the guest has begun and not yet answered. */
struct ticket {
    struct ticket *next;
    uint64_t ticket;
    uint32_t word; /* the guest writes here at the end; WEIR_WORD_NONE: it sends a record */
    bool done;
    bool wants; /* the guest waits for read_bytes of its arena from read_offset on */
    uint64_t read_offset, read_bytes;
};

struct weir_host_calls {
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t done;  /* a ticket is answered, a trampoline has left, or the session ends */
    struct weir_host_call *calls;
    struct ticket *tickets;
    uint64_t next_ticket;
    uint64_t ticket_words; /* bit mask of the words of WEIR_WORDS_TICKETS that are in use */
    uint32_t n_calls;
    uint32_t n_running;                        /* trampolines inside the session */
    void (*ran)(struct weir_session *session); /* constant; NULL: nobody listens */
};

struct weir_host_calls *weir_host_calls_create(void)
{
    struct weir_host_calls *calls = calloc(1, sizeof *calls);

    if (calls) {
        pthread_mutex_init(&calls->lock, NULL);
        weir_thread_condition_init(&calls->done);
    }
    return calls;
}

void weir_host_calls_listen(struct weir_host_calls *calls, void (*ran)(struct weir_session *))
{
    calls->ran = ran;
}

void weir_host_calls_destroy(struct weir_host_calls *calls)
{
    if (calls) {
        pthread_cond_destroy(&calls->done);
        pthread_mutex_destroy(&calls->lock);
        free(calls);
    }
}

void weir_host_calls_end(struct weir_session *session)
{
    WEIR_LOCKED(&session->host_calls->lock);
    atomic_store(&session->ending, true);
    pthread_cond_broadcast(&session->host_calls->done);
}

struct weir_host_call *weir_host_call_create(struct weir_session *session, uint64_t token,
                                             bool once)
{
    struct weir_host_call *call = malloc(sizeof *call);

    WEIR_FAIL_IF(!call, NULL);
    WEIR_LOCKED(&session->host_calls->lock);
    if (session->host_calls->n_calls >= WEIR_HOST_CALLS_MAX) {
        free(call);
        call = NULL;
    } else {
        *call = (struct weir_host_call){
            .next = session->host_calls->calls, .session = session, .token = token, .once = once};
        if (session->host_calls->calls) {
            session->host_calls->calls->back = &call->next;
        }
        call->back = &session->host_calls->calls;
        session->host_calls->calls = call;
        session->host_calls->n_calls++;
    }
    return call;
}

static void unlink_locked(struct weir_host_call *call)
{
    *call->back = call->next;
    if (call->next) {
        call->next->back = call->back;
    }
    call->session->host_calls->n_calls--;
}

uint64_t weir_host_call_token(const struct weir_host_call *call)
{
    return call->token;
}

void weir_host_call_cancel(struct weir_host_call *call)
{
    struct weir_session *session = call->session;

    pthread_mutex_lock(&session->host_calls->lock);
    unlink_locked(call);
    pthread_mutex_unlock(&session->host_calls->lock);
    free(call);
}

/* No graph and no launch of one has the call any more. @thread any, of the driver */
static void CUDA_CB graphs_gone(void *user)
{
    struct weir_host_call *call = user;

    pthread_mutex_lock(&graphs_lock);
    if (call->session) {
        struct weir_host_calls *calls = call->session->host_calls;

        pthread_mutex_lock(&calls->lock);
        unlink_locked(call);
        pthread_mutex_unlock(&calls->lock);
    }
    pthread_mutex_unlock(&graphs_lock);
    free(call);
}

/* Let graphs own the call. If the graph cannot take the user object, the call and the user object
 * stay until the session's end: releasing the user object would free the call. */
void weir_host_call_keep(struct weir_host_call *call, CUgraph graph)
{
    const struct weir_driver *d = call->session->driver;
    CUuserObject object;

    if (d->cuUserObjectCreate(&object, call, graphs_gone, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) ==
            CUDA_SUCCESS &&
        d->cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE) == CUDA_SUCCESS) {
        call->kept = object;
    }
}

void weir_host_call_let_go(struct weir_host_call *call, CUgraph graph)
{
    if (call->kept) {
        (void)call->session->driver->cuGraphReleaseUserObject(graph, call->kept, 1);
    }
}

static bool send_call(struct weir_session *session, uint64_t token, const struct ticket *ticket)
{
    struct weir_op_host_func_call_in in = {
        .token = token, .ticket = ticket->ticket, .word = ticket->word};
    struct {
        struct weir_record record;
        uint64_t body[8];
    } room = {.record = {.op = WEIR_OP_host_func_call, .flags = WEIR_RECORD_NOTIFY}};
    size_t bytes = weir_ops[WEIR_OP_host_func_call].in_bytes(&in);

    WEIR_FAIL_IF(bytes > sizeof room.body, false);
    weir_ops[WEIR_OP_host_func_call].in_encode(&in, room.body);
    room.record.len_bytes = (uint32_t)(sizeof room.record + bytes);
    return weir_session_send(session, &room.record, NULL, 0) == WEIR_OK;
}

void weir_host_call_refuse(struct weir_session *session, uint64_t token)
{
    const struct ticket none = {0};

    (void)send_call(session, token, &none); /* a guest that has ended need not know */
}

/* Answer a host_func_read. An invalid block of the arena gets an empty answer. */
static void send_data(struct weir_session *session, uint64_t offset, uint64_t bytes)
{
    const uint8_t *from = weir_session_arena(session, offset, bytes);
    bool good = from && bytes <= WEIR_HOST_FUNC_DATA_BYTES;
    struct weir_op_host_func_data_in in = {.data = from, .n_data = good ? (uint32_t)bytes : 0};
    size_t body_bytes = weir_ops[WEIR_OP_host_func_data].in_bytes(&in);
    struct weir_record *record = calloc(1, sizeof *record + body_bytes);

    if (!record) {
        weir_session_end(session);
        return;
    }
    record->op = WEIR_OP_host_func_data;
    record->flags = WEIR_RECORD_NOTIFY;
    record->len_bytes = (uint32_t)(sizeof *record + body_bytes);
    weir_ops[WEIR_OP_host_func_data].in_encode(&in, record + 1);
    (void)!weir_session_send(session, record, NULL, 0);
    free(record);
}

static uint32_t first_ticket_word(const struct weir_session *session)
{
    return session->channel->view.n_words - WEIR_WORDS_TICKETS;
}

/* Take a word for the answer; none is left if 64 functions run at once. */
static void take_word_locked(struct weir_session *session, struct ticket *ticket)
{
    if (session->channel->remote || session->channel->view.n_words <= WEIR_WORDS_TICKETS ||
        session->host_calls->ticket_words == UINT64_MAX) {
        return;
    }
    uint32_t bit = (uint32_t)__builtin_ctzll(~session->host_calls->ticket_words);

    session->host_calls->ticket_words |= 1ull << bit;
    ticket->word = first_ticket_word(session) + bit;
    __atomic_store_n(&session->channel->view.words[ticket->word], (uint32_t)~ticket->ticket,
                     __ATOMIC_RELAXED);
}

/* Can the guest no longer answer? The session's thread may be blocked, so the trampoline checks
 * this itself. */
static bool hopeless(struct weir_session *session)
{
    return atomic_load(&session->ending) ||
           session->channel->transport->ops->peer_gone(session->channel->transport);
}

static void wait_for_word(struct weir_session *session, const struct ticket *ticket)
{
    uint32_t *word = &session->channel->view.words[ticket->word];

    while (!hopeless(session)) {
        /* H1: meets the guest's release: what its function did is visible. */
        uint32_t now = __atomic_load_n(word, __ATOMIC_ACQUIRE);

        if (now == (uint32_t)ticket->ticket) {
            return;
        }
        weir_futex_wait(word, now, SLICE_NS);
    }
}

/* Sleep until the ticket changes, or for a slice. If the transport has no I/O thread, read. */
static void wait_for_change(struct weir_session *session, const struct ticket *ticket)
{
    void (*attend)(struct weir_transport *, uint64_t) = session->channel->transport->ops->attend;

    if (attend) {
        attend(session->channel->transport, SLICE_NS);
        return;
    }
    WEIR_LOCKED(&session->host_calls->lock);
    if (!ticket->done && !ticket->wants) {
        (void)weir_thread_condition_wait(&session->host_calls->done, &session->host_calls->lock,
                                         weir_clock_now_ns() + SLICE_NS);
    }
}

static void wait_for_guest(struct weir_session *session, struct ticket *ticket)
{
    if (ticket->word != WEIR_WORD_NONE) {
        wait_for_word(session, ticket);
        return;
    }
    bool done = false;

    while (!done && !hopeless(session)) {
        pthread_mutex_lock(&session->host_calls->lock);
        struct ticket now = *ticket;

        ticket->wants = false;
        pthread_mutex_unlock(&session->host_calls->lock);
        done = now.done;
        if (now.wants) {
            send_data(session, now.read_offset, now.read_bytes);
        } else if (!done) {
            wait_for_change(session, ticket);
        }
    }
}

static void forget_ticket_locked(struct weir_session *session, struct ticket *ticket)
{
    struct ticket **at = &session->host_calls->tickets;

    while (*at != ticket) {
        at = &(*at)->next;
    }
    *at = ticket->next;
    if (ticket->word != WEIR_WORD_NONE) {
        session->host_calls->ticket_words &= ~(1ull << (ticket->word - first_ticket_word(session)));
    }
}

void CUDA_CB weir_host_call_run(void *user_data)
{
    struct weir_host_call *call = user_data;
    struct weir_session *session = call->session;
    struct ticket ticket = {0};
    uint64_t token = call->token;

    pthread_mutex_lock(&session->host_calls->lock);
    bool ending = atomic_load(&session->ending);
    if (call->once) {
        unlink_locked(call);
        free(call);
    }
    if (!ending) {
        ticket.ticket = ++session->host_calls->next_ticket;
        take_word_locked(session, &ticket);
        ticket.next = session->host_calls->tickets;
        session->host_calls->tickets = &ticket;
        session->host_calls->n_running++;
    }
    pthread_mutex_unlock(&session->host_calls->lock);
    if (ending) {
        return;
    }
    if (send_call(session, token, &ticket)) {
        wait_for_guest(session, &ticket);
        if (session->host_calls->ran) {
            session->host_calls->ran(session);
        }
    }
    pthread_mutex_lock(&session->host_calls->lock);
    forget_ticket_locked(session, &ticket);
    session->host_calls->n_running--;
    pthread_cond_broadcast(&session->host_calls->done);
    pthread_mutex_unlock(&session->host_calls->lock);
}

bool weir_host_calls_any(const struct weir_session *session)
{
    struct weir_host_calls *calls = session->host_calls;

    WEIR_LOCKED(&calls->lock);
    return calls->n_running != 0;
}

static struct ticket *find_ticket_locked(struct weir_session *session, uint64_t number)
{
    struct ticket *t = session->host_calls->tickets;

    while (t && (t->ticket != number || t->done)) {
        t = t->next;
    }
    return t;
}

CUresult weir_host_call_done(struct weir_session *session, uint64_t ticket)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;

    WEIR_LOCKED(&session->host_calls->lock);
    struct ticket *found = find_ticket_locked(session, ticket);

    if (found) {
        found->done = true;
        result = CUDA_SUCCESS;
        pthread_cond_broadcast(&session->host_calls->done);
    }
    return result;
}

static void note_read(struct weir_session *session, const struct weir_op_host_func_read_in *in)
{
    WEIR_LOCKED(&session->host_calls->lock);
    struct ticket *ticket = find_ticket_locked(session, in->ticket);

    if (ticket) {
        ticket->wants = true;
        ticket->read_offset = in->offset;
        ticket->read_bytes = in->bytes;
        pthread_cond_broadcast(&session->host_calls->done);
    }
}

static void write_arena(struct weir_session *session, const struct weir_op_host_func_write_in *in)
{
    WEIR_LOCKED(&session->host_calls->lock);
    uint8_t *to = find_ticket_locked(session, in->ticket)
                      ? weir_session_arena(session, in->offset, in->n_data)
                      : NULL;

    if (to && in->n_data != 0) {
        memcpy(to, in->data, in->n_data);
    }
}

void weir_host_call_glance(void *user, const struct weir_record *record)
{
    struct weir_session *session = user;
    size_t bytes = record->len_bytes - sizeof *record;
    union {
        struct weir_op_host_func_done_in done;
        struct weir_op_host_func_read_in read;
        struct weir_op_host_func_write_in write;
    } in;

    if ((record->op != WEIR_OP_host_func_done && record->op != WEIR_OP_host_func_read &&
         record->op != WEIR_OP_host_func_write) ||
        !weir_ops[record->op].in_decode(record + 1, bytes, &in)) {
        return;
    }
    if (record->op == WEIR_OP_host_func_done) {
        (void)weir_host_call_done(session, in.done.ticket);
    } else if (record->op == WEIR_OP_host_func_read) {
        note_read(session, &in.read);
    } else {
        write_arena(session, &in.write);
    }
}

void weir_host_calls_finish(struct weir_session *session)
{
    struct weir_host_calls *calls = session->host_calls;

    pthread_mutex_lock(&calls->lock);
    while (calls->n_running != 0) {
        pthread_cond_wait(&calls->done, &calls->lock);
    }
    pthread_mutex_unlock(&calls->lock);
    pthread_mutex_lock(&graphs_lock); /* no thread is left that locks in the other order */
    for (struct weir_host_call *call = calls->calls, *next; call; call = next) {
        next = call->next;
        if (call->kept) {
            call->session = NULL; /* the driver still has to destroy the graphs */
        } else {
            free(call);
        }
    }
    calls->calls = NULL;
    calls->n_calls = 0;
    pthread_mutex_unlock(&graphs_lock);
}
