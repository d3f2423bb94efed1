/*
 * One guest's session over the server's sockets.
 *
 * Sending uses the ROUTER socket directly, under the server's lock; receiving waits on the
 * session's inbox, which the server's I/O thread fills. The peer's window
 * (proto/transport/zmq_wire.h) bounds what we may send, ours bounds what the inbox holds: a guest
 * that sends more has broken the protocol and loses its session.
 */
#include "proto/wire/zmq_session.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/thread.h"
#include "proto/transport/fd_message.h"
#include "proto/transport/ring.h"
#include "proto/transport/segment_map.h"
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#define SLICE_NS (100 * WEIR_NS_PER_MS)
/* How long to wait for the next record that libzmq still holds. */
#define LAST_NS       (500 * WEIR_NS_PER_MS)
#define SPIN_BATCH    16
#define TOKEN_LIFE_NS (30 * WEIR_NS_PER_S)

static struct weir_zmq_session *session_of(struct weir_transport *t)
{
    return (struct weir_zmq_session *)(void *)t;
}

void weir_zmq_session_fail_locked(struct weir_zmq_session *session, enum weir_status reason)
{
    if (session->failure == WEIR_OK) {
        session->failure = reason;
    }
    pthread_cond_broadcast(&session->changed);
}

/* ---------------------------------------------------------------- sending */

/* Make the I/O thread check the sockets again: another thread used one, and it is readable. */
static void kick_locked(struct weir_zmq_server *server, const struct weir_zmq_port *port)
{
    if (weir_zmq_readable(server->api, port->socket)) {
        eventfd_write(server->wake_fd, 1);
    }
}

/* Send a filled message to an address; empties it. */
static enum weir_status send_to_locked(struct weir_zmq_server *server,
                                       const struct weir_zmq_address *address,
                                       struct weir_zmq_message *message)
{
    enum weir_status status =
        weir_zmq_message_address(server->api, message, address->identity, address->identity_len);
    WEIR_THEN(status, weir_zmq_message_send(server->api, address->port->socket, message));
    kick_locked(server, address->port);
    return status;
}

/* Send a control message to an address. */
static enum weir_status send_control_locked(struct weir_zmq_server *server,
                                            const struct weir_zmq_address *address, uint32_t kind,
                                            uint64_t value, const void *payload, size_t payload_len)
{
    struct weir_zmq_control control = {
        .magic = WEIR_ZMQ_CONTROL_MAGIC, .kind = kind, .value = value};
    struct weir_zmq_message message;
    weir_zmq_message_init(server->api, &message);
    enum weir_status status = weir_zmq_message_fill(server->api, &message, &control, sizeof control,
                                                    payload, payload_len);
    WEIR_THEN(status, send_to_locked(server, address, &message));
    weir_zmq_message_finish(server->api, &message);
    return status;
}

enum weir_status weir_zmq_send_welcome_locked(struct weir_zmq_server *server,
                                              const struct weir_zmq_address *address,
                                              struct weir_control_bytes *bytes)
{
    enum weir_status status =
        send_control_locked(server, address, WEIR_ZMQ_WELCOME, 0, bytes->bytes, bytes->len);
    free(bytes->bytes);
    *bytes = (struct weir_control_bytes){0};
    return status;
}

void weir_zmq_send_refusal_locked(struct weir_zmq_server *server,
                                  const struct weir_zmq_address *address, enum weir_status reason,
                                  int32_t result, const char *message)
{
    struct weir_control_bytes bytes;
    enum weir_status status = weir_refusal_encode(reason, result, message, &bytes);
    WEIR_THEN(status, weir_zmq_send_welcome_locked(server, address, &bytes));
    if (status != WEIR_OK) {
        weir_log_debug("zmq: refusal not delivered reason=%s", weir_status_text(status));
    }
}

static bool socket_ended(const struct weir_zmq_session *session)
{
    return session->socket_fd >= 0 && weir_fd_peer_gone(session->socket_fd, session->pid_fd);
}

/*
 * Has a bound session's guest ended? The unix socket may end before the guest's last records have
 * come over ZeroMQ. So ZeroMQ's report, which comes behind the records, decides; the socket only
 * counts if that report does not come.
 */
static bool guest_ended_locked(struct weir_zmq_session *session)
{
    WEIR_FAIL_IF(!socket_ended(session), false);
    if (session->last_ns == 0) {
        session->last_ns = weir_deadline_after(LAST_NS);
    }
    return !session->address.port || weir_deadline_left_ns(session->last_ns) == 0;
}

/* Sleep until something changes or the deadline comes. WEIR_ERR_CLOSED: the guest has gone. */
static enum weir_status wait_locked(struct weir_zmq_session *session, uint64_t deadline_ns)
{
    if (guest_ended_locked(session)) {
        weir_zmq_session_fail_locked(session, WEIR_ERR_CLOSED);
        return session->failure;
    }
    uint64_t left_ns = weir_deadline_left_ns(deadline_ns);
    WEIR_FAIL_IF(left_ns == 0, WEIR_ERR_TIMED_OUT);
    uint64_t end_ns = weir_deadline_after(WEIR_MIN(left_ns, SLICE_NS));
    (void)weir_thread_condition_wait(&session->changed, &session->server->lock, end_ns);
    return WEIR_OK;
}

static enum weir_status send_locked(struct weir_zmq_session *session,
                                    struct weir_zmq_message *message, uint64_t cost,
                                    uint64_t deadline_ns)
{
    while (session->failure == WEIR_OK &&
           (!session->address.port || !weir_zmq_flow_may_send(&session->flow, cost))) {
        WEIR_TRY(wait_locked(session, deadline_ns));
    }
    if (session->failure != WEIR_OK) {
        return session->failure;
    }
    enum weir_status status = send_to_locked(session->server, &session->address, message);
    if (status == WEIR_OK) {
        session->flow.sent += cost;
    } else {
        weir_zmq_session_fail_locked(session, status);
    }
    return status;
}

static enum weir_status session_send(struct weir_transport *t, const struct weir_record *record,
                                     const void *bulk, size_t bulk_bytes, uint64_t timeout_ns)
{
    struct weir_zmq_session *session = session_of(t);
    const struct weir_zmq_api *api = session->server->api;
    WEIR_TRY(weir_record_check_send(record, bulk, bulk_bytes));
    struct weir_zmq_message message;
    weir_zmq_message_init(api, &message);
    enum weir_status status =
        weir_zmq_message_fill(api, &message, record, record->len_bytes, bulk, bulk_bytes);
    if (status == WEIR_OK) {
        uint64_t deadline_ns = timeout_ns ? weir_deadline_after(timeout_ns) : 0;
        pthread_mutex_lock(&session->server->lock);
        status = send_locked(session, &message, weir_zmq_cost(record->len_bytes, bulk_bytes),
                             deadline_ns);
        pthread_mutex_unlock(&session->server->lock);
    }
    weir_zmq_message_finish(api, &message);
    return status;
}

/* ---------------------------------------------------------------- receiving */

static void take_control_locked(struct weir_zmq_session *session,
                                const struct weir_zmq_control *control)
{
    if (control->kind == WEIR_ZMQ_CREDIT && weir_zmq_flow_credit(&session->flow, control->value)) {
        pthread_cond_broadcast(&session->changed);
    } else {
        weir_zmq_session_fail_locked(session, WEIR_ERR_PEER);
    }
}

/* Show the newest record to the glance function, before it is received. */
static void glance_locked(struct weir_zmq_session *session)
{
    /* G1: meets the release in weir_session_create(): glance_user is visible. */
    void (*glance)(void *, const struct weir_record *) =
        __atomic_load_n(&session->base.glance, __ATOMIC_ACQUIRE);
    if (glance) {
        const void *record = session->inbox.last->record;
        glance(session->base.glance_user, record);
    }
}

void weir_zmq_session_deliver_locked(struct weir_zmq_session *session,
                                     struct weir_zmq_message *message)
{
    const struct weir_zmq_api *api = session->server->api;
    struct weir_zmq_control control;
    if (session->failure != WEIR_OK) {
        return;
    }
    if (weir_zmq_control_read(api, message, &control)) {
        take_control_locked(session, &control);
        return;
    }
    enum weir_status status = weir_zmq_inbox_put(api, &session->inbox, &session->flow, message);
    if (status != WEIR_OK) {
        weir_zmq_session_fail_locked(session, status);
    } else {
        session->last_ns = 0; /* more records may follow this one */
        glance_locked(session);
    }
    pthread_cond_broadcast(&session->changed);
}

/* Wait without the lock until there is a record, or the spin time has passed. */
static void spin(const struct weir_zmq_session *session, uint64_t spin_ns)
{
    spin_ns = weir_useful_spin_ns(spin_ns);
    uint64_t end_ns = spin_ns ? weir_deadline_after(spin_ns) : 0;
    while (end_ns && weir_deadline_left_ns(end_ns) != 0) {
        for (int i = 0; i < SPIN_BATCH; i++) {
            if (__atomic_load_n(&session->inbox.count, __ATOMIC_ACQUIRE) != 0) {
                return;
            }
            weir_cpu_pause();
        }
    }
}

static enum weir_status take_locked(struct weir_zmq_session *session, uint64_t deadline_ns,
                                    struct weir_zmq_node **ret_node)
{
    /* Records from before the end are received; records from before a protocol error are not. */
    while (session->failure != WEIR_ERR_PEER) {
        struct weir_zmq_node *node = weir_zmq_inbox_take(&session->inbox);
        if (node) {
            *ret_node = node;
            return WEIR_OK;
        }
        if (session->failure != WEIR_OK) {
            return session->failure;
        }
        enum weir_status status = wait_locked(session, deadline_ns);
        if (status == WEIR_ERR_TIMED_OUT) {
            return status;
        }
    }
    return WEIR_ERR_PEER;
}

static enum weir_status session_receive(struct weir_transport *t,
                                        const struct weir_record **ret_record,
                                        const void **ret_bulk, size_t *ret_bulk_bytes,
                                        uint64_t spin_ns, uint64_t timeout_ns)
{
    struct weir_zmq_session *session = session_of(t);
    const struct weir_zmq_api *api = session->server->api;
    uint64_t deadline_ns = timeout_ns ? weir_deadline_after(timeout_ns) : 0;
    weir_zmq_node_free(api, session->held);
    session->held = NULL;
    spin(session, WEIR_MIN(spin_ns, timeout_ns));
    struct weir_zmq_node *node = NULL;
    pthread_mutex_lock(&session->server->lock);
    enum weir_status status = take_locked(session, deadline_ns, &node);
    if (status == WEIR_OK && weir_zmq_flow_consume(&session->flow, node->cost)) {
        enum weir_status sent = send_control_locked(
            session->server, &session->address, WEIR_ZMQ_CREDIT, session->flow.consumed, NULL, 0);
        if (sent != WEIR_OK) {
            weir_zmq_session_fail_locked(session, sent);
        }
    }
    pthread_mutex_unlock(&session->server->lock);
    if (status == WEIR_OK) {
        session->held = node;
        *ret_record = (const struct weir_record *)(void *)node->record;
        *ret_bulk = node->has_bulk ? api->zmq_msg_data(&node->bulk) : NULL;
        *ret_bulk_bytes = node->has_bulk ? api->zmq_msg_size(&node->bulk) : 0;
    }
    return status;
}

/* ---------------------------------------------------------------- the rest */

static void *session_segment(struct weir_transport *t)
{
    return session_of(t)->view.base;
}

static const struct weir_segment_view *session_view(struct weir_transport *t)
{
    return &session_of(t)->view;
}

static bool session_peer_gone(struct weir_transport *t)
{
    struct weir_zmq_session *session = session_of(t);
    bool gone = socket_ended(session);
    WEIR_LOCKED(&session->server->lock);
    gone = gone || session->failure != WEIR_OK;
    return gone;
}

void weir_zmq_session_free(struct weir_zmq_session *session)
{
    if (!session) {
        return;
    }
    const struct weir_zmq_api *api = session->server->api;
    weir_zmq_node_free(api, session->held);
    for (struct weir_zmq_node *node; (node = weir_zmq_inbox_take(&session->inbox));) {
        weir_zmq_node_free(api, node);
    }
    weir_fd_close(session->socket_fd);
    weir_fd_close(session->pid_fd);
    weir_segment_unmap(&session->view);
    pthread_cond_destroy(&session->changed);
    free(session);
}

static void session_destroy(struct weir_transport *t)
{
    struct weir_zmq_session *session = session_of(t);
    struct weir_zmq_server *server = session->server;
    pthread_mutex_lock(&server->lock);
    WEIR_UNLINK(server->sessions, session, next);
    if (session->address.port && session->failure != WEIR_ERR_CLOSED) {
        /* A ROUTER cannot close one peer's connection, so send the guest a message. If that fails,
         * it has gone. */
        enum weir_status sent =
            send_control_locked(server, &session->address, WEIR_ZMQ_BYE, 0, NULL, 0);
        (void)sent;
    }
    pthread_mutex_unlock(&server->lock);
    weir_zmq_session_free(session);
}

/* A worker does not fork. If a tool does, the child leaves libzmq's state alone. */
static void session_abandon(struct weir_transport *t)
{
    struct weir_zmq_session *session = session_of(t);
    weir_fd_close(session->socket_fd);
    weir_segment_unmap(&session->view);
}

static const struct weir_transport_ops session_ops = {
    .name = "zmq",
    .segment = session_segment,
    .view = session_view,
    .send = session_send,
    .receive = session_receive,
    .peer_gone = session_peer_gone,
    .destroy = session_destroy,
    .abandon = session_abandon,
};

enum weir_status weir_zmq_session_create(struct weir_zmq_server *server,
                                         const struct weir_segment_params *segment,
                                         struct weir_zmq_session **ret_session)
{
    struct weir_zmq_session *session = calloc(1, sizeof *session);
    WEIR_FAIL_IF(!session, WEIR_ERR_NO_MEMORY);
    enum weir_status status = weir_segment_create_private(segment, &session->view);
    if (status != WEIR_OK) {
        free(session);
        return status;
    }
    session->base.ops = &session_ops;
    session->server = server;
    session->socket_fd = -1;
    session->pid_fd = -1;
    weir_thread_condition_init(&session->changed);
    *ret_session = session;
    return WEIR_OK;
}

enum weir_status weir_zmq_session_expect(struct weir_zmq_server *server,
                                         const struct weir_segment_params *segment,
                                         const struct weir_peer *peer,
                                         uint8_t ret_token[WEIR_CONTROL_TOKEN_BYTES],
                                         struct weir_transport **ret_transport)
{
    struct weir_zmq_session *session;
    WEIR_TRY(weir_zmq_session_create(server, segment, &session));
    if (getrandom(session->token, sizeof session->token, 0) != (ssize_t)sizeof session->token) {
        weir_zmq_session_free(session);
        return WEIR_ERR_IO;
    }
    memcpy(ret_token, session->token, sizeof session->token);
    session->expires_ns = weir_deadline_after(TOKEN_LIFE_NS);
    session->peer = *peer;
    pthread_mutex_lock(&server->lock);
    WEIR_PUSH(server->sessions, session);
    pthread_mutex_unlock(&server->lock);
    *ret_transport = &session->base;
    return WEIR_OK;
}

void weir_zmq_session_watch(struct weir_transport *t, int socket_fd, int pid_fd)
{
    session_of(t)->socket_fd = socket_fd;
    session_of(t)->pid_fd = pid_fd;
}
