/*
 * Functions of the guest that the GPU's queue reaches.
 *
 * The driver calls a trampoline on a thread of its own; it sends host_func_call to the guest and
 * waits for host_func_done. It holds no lock while it waits, and it goes at once when the session
 * ends, so the session's streams can always be drained.
 */
#include "host_backend/worker/host_calls.h"

#include "proto/ops.h"
#include <stdlib.h>

struct weir_host_call *weir_host_call_create(struct weir_session *session, uint64_t token,
                                             bool once)
{
    struct weir_host_call *call = malloc(sizeof *call);

    if (call == NULL) {
        return NULL;
    }
    pthread_mutex_lock(&session->calls_lock);
    if (session->n_calls >= WEIR_HOST_CALLS_MAX) {
        free(call);
        call = NULL;
    } else {
        *call = (struct weir_host_call){
            .next = session->calls, .session = session, .token = token, .once = once};
        if (session->calls != NULL) {
            session->calls->back = &call->next;
        }
        call->back = &session->calls;
        session->calls = call;
        session->n_calls++;
    }
    pthread_mutex_unlock(&session->calls_lock);
    return call;
}

static void unlink_locked(struct weir_host_call *call)
{
    *call->back = call->next;
    if (call->next != NULL) {
        call->next->back = call->back;
    }
    call->session->n_calls--;
    free(call);
}

void weir_host_call_cancel(struct weir_host_call *call)
{
    struct weir_session *session = call->session;

    pthread_mutex_lock(&session->calls_lock);
    unlink_locked(call);
    pthread_mutex_unlock(&session->calls_lock);
}

static bool send_call(struct weir_session *session, uint64_t token, uint64_t ticket)
{
    struct weir_op_host_func_call_in in = {.token = token, .ticket = ticket};
    struct {
        struct weir_record record;
        uint64_t body[8];
    } room = {.record = {.op = WEIR_OP_host_func_call, .flags = WEIR_RECORD_NOTIFY}};
    size_t bytes = weir_ops[WEIR_OP_host_func_call].in_bytes(&in);

    if (bytes > sizeof room.body) {
        return false;
    }
    weir_ops[WEIR_OP_host_func_call].in_encode(&in, room.body);
    room.record.len_bytes = (uint32_t)(sizeof room.record + bytes);
    return weir_session_send(session, &room.record, NULL, 0) == WEIR_OK;
}

static void wait_for_guest(struct weir_session *session, struct weir_host_ticket *ticket)
{
    pthread_mutex_lock(&session->calls_lock);
    while (!ticket->done && !atomic_load(&session->ending)) {
        pthread_cond_wait(&session->calls_done, &session->calls_lock);
    }
    pthread_mutex_unlock(&session->calls_lock);
}

static void forget_ticket_locked(struct weir_session *session, struct weir_host_ticket *ticket)
{
    struct weir_host_ticket **at = &session->tickets;

    while (*at != ticket) {
        at = &(*at)->next;
    }
    *at = ticket->next;
}

void CUDA_CB weir_host_call_run(void *user_data)
{
    struct weir_host_call *call = user_data;
    struct weir_session *session = call->session;
    struct weir_host_ticket ticket = {0};
    uint64_t token = call->token;
    bool ending;

    pthread_mutex_lock(&session->calls_lock);
    ending = atomic_load(&session->ending);
    if (call->once) {
        unlink_locked(call);
    }
    if (!ending) {
        ticket.ticket = ++session->next_ticket;
        ticket.next = session->tickets;
        session->tickets = &ticket;
        session->n_running++;
    }
    pthread_mutex_unlock(&session->calls_lock);
    if (ending) {
        return;
    }
    if (send_call(session, token, ticket.ticket)) {
        wait_for_guest(session, &ticket);
    }
    pthread_mutex_lock(&session->calls_lock);
    forget_ticket_locked(session, &ticket);
    session->n_running--;
    pthread_cond_broadcast(&session->calls_done);
    pthread_mutex_unlock(&session->calls_lock);
}

CUresult weir_host_call_done(struct weir_session *session, uint64_t ticket)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;

    pthread_mutex_lock(&session->calls_lock);
    for (struct weir_host_ticket *t = session->tickets; t != NULL; t = t->next) {
        if (t->ticket == ticket && !t->done) {
            t->done = true;
            result = CUDA_SUCCESS;
            pthread_cond_broadcast(&session->calls_done);
            break;
        }
    }
    pthread_mutex_unlock(&session->calls_lock);
    return result;
}

void weir_host_calls_finish(struct weir_session *session)
{
    pthread_mutex_lock(&session->calls_lock);
    while (session->n_running != 0) {
        pthread_cond_wait(&session->calls_done, &session->calls_lock);
    }
    while (session->calls != NULL) {
        unlink_locked(session->calls);
    }
    pthread_mutex_unlock(&session->calls_lock);
}
