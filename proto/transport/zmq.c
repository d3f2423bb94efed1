/*
 * The guest's end of the ZeroMQ transport: one DEALER socket, driven by whoever calls.
 *
 * No thread of our own: sender and receiver share the socket under a lock. Every call that touches
 * the socket "pumps" it: takes what has arrived, handles credit and goodbye, queues the records. A
 * caller that must wait becomes the one that polls the socket's descriptor, or, when somebody polls
 * already, sleeps on the condition until the poller has pumped.
 *
 * The descriptor is edge-triggered and any use of the socket may swallow its edge, so every use
 * ends with a pump, and a pump that found something rouses the poller.
 *
 * A lost host shows as a monitor event (ZeroMQ's heartbeat included) or as the end of the unix
 * socket that the handshake came through. We never reconnect: a session does not survive its
 * connection.
 */
#include "proto/transport/zmq.h"
#include "base/clock.h"
#include "base/thread.h"
#include "proto/transport/fd_message.h"
#include "proto/transport/ring.h"
#include "proto/transport/zmq_wire.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define SLICE_NS  (50 * WEIR_NS_PER_MS)
#define LINGER_MS 200 /* for the last posted records when the guest closes */
/* That a client opens: libzmq's for threads, sockets and the connection, and an event of ours. */
#define DESCRIPTORS 10

#define MONITOR_EVENTS                                                                             \
    (ZMQ_EVENT_CONNECTED | ZMQ_EVENT_CLOSED | ZMQ_EVENT_DISCONNECTED |                             \
     ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL |                        \
     ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH)

struct client {
    struct weir_transport base;
    const struct weir_zmq_api *api;
    struct weir_segment_view view;
    int socket_fd; /* of the unix handshake, or -1 */
    int mark_fd;   /* a socket that tells whether our descriptors are still there: that one, */
    uint64_t mark_cookie; /* .. or one that is for nothing else; 0: it cannot tell */
    int wake_fd;
    int zmq_fd;
    struct weir_zmq_node *held; /* the receiver's: borrowed by its caller */
    pthread_cond_t pumped;
    pthread_mutex_t lock; /* guards everything below, and all use of the sockets */
    void *ctx;
    void *socket;
    void *monitor;
    struct weir_zmq_flow flow;
    struct weir_zmq_inbox inbox;
    uint64_t begun_ns; /* to connect */
    bool is_polled;
    bool is_connected;
    bool is_secured;
    bool is_deserted; /* descriptors are another's: neither they nor libzmq are touched any more */
    enum weir_status failure; /* why nothing more will come; WEIR_OK while all is well */
    void *answer;             /* to Hello */
    size_t answer_len;
    size_t answer_max_bytes;
};

static struct client *client_of(struct weir_transport *t)
{
    return (struct client *)(void *)t;
}

static void fail_locked(struct client *client, enum weir_status status)
{
    if (client->failure == WEIR_OK) {
        client->failure = status;
    }
}

/* ---------------------------------------------------------------- taking in */

static bool has_mark(const struct client *client)
{
    return client->mark_cookie == 0 || weir_socket_cookie(client->mark_fd) == client->mark_cookie;
}

/*
 * Daemons close all descriptors. What they open then may have our numbers, and libzmq ends a
 * process in which it misses one of its own. So it is left alone from then on: its thread sleeps.
 */
static bool is_deserted_locked(struct client *client)
{
    if (!client->is_deserted && !has_mark(client)) {
        client->is_deserted = true;
        fail_locked(client, WEIR_ERR_CLOSED);
    }
    return client->is_deserted;
}

static void take_answer_locked(struct client *client, struct weir_zmq_message *message)
{
    size_t len = message->has_tail ? client->api->zmq_msg_size(&message->tail) : 0;
    if (client->answer || len == 0 || len > client->answer_max_bytes) {
        fail_locked(client, WEIR_ERR_PEER);
        return;
    }
    client->answer = malloc(len);
    if (!client->answer) {
        fail_locked(client, WEIR_ERR_NO_MEMORY);
        return;
    }
    memcpy(client->answer, client->api->zmq_msg_data(&message->tail), len);
    client->answer_len = len;
}

static void take_message_locked(struct client *client, struct weir_zmq_message *message)
{
    struct weir_zmq_control control;
    enum weir_status status = WEIR_OK;
    if (!weir_zmq_control_read(client->api, message, &control)) {
        status = weir_zmq_inbox_put(client->api, &client->inbox, &client->flow, message);
    } else if (control.kind == WEIR_ZMQ_WELCOME) {
        take_answer_locked(client, message);
    } else if (control.kind == WEIR_ZMQ_CREDIT) {
        status = weir_zmq_flow_credit(&client->flow, control.value) ? WEIR_OK : WEIR_ERR_PEER;
    } else {
        status = control.kind == WEIR_ZMQ_BYE ? WEIR_ERR_CLOSED : WEIR_ERR_PEER;
    }
    if (status != WEIR_OK) {
        fail_locked(client, status);
    }
}

/* Take everything that has arrived; true when something had. */
static bool pump_locked(struct client *client)
{
    bool found = false;
    if (is_deserted_locked(client)) {
        return false;
    }
    for (;;) {
        struct weir_zmq_message message;
        weir_zmq_message_init(client->api, &message);
        enum weir_status status =
            weir_zmq_message_receive(client->api, client->socket, false, &message);
        if (status == WEIR_OK) {
            take_message_locked(client, &message);
        }
        weir_zmq_message_finish(client->api, &message);
        if (status == WEIR_ERR_AGAIN) {
            return found;
        }
        found = true;
        if (status != WEIR_OK) {
            fail_locked(client, status);
            return found;
        }
    }
}

/*
 * A host that cannot read our Hello (its key is another) hangs up without a word, and at once. So
 * does one to which connections without a key come in a flood. One with far more to do than it has
 * cores hangs up when the handshake's time is over: come again.
 */
static enum weir_status why_hung_up(const struct client *client)
{
    uint64_t took_ns = weir_clock_now_ns() - client->begun_ns;
    bool in_time = took_ns < WEIR_ZMQ_HANDSHAKE_MS * WEIR_NS_PER_MS;

    return client->is_secured || !in_time ? WEIR_ERR_CLOSED : WEIR_ERR_FULL;
}

static void take_event_locked(struct client *client, int event)
{
    switch (event) {
    case ZMQ_EVENT_CONNECTED:
        client->is_connected = true;
        break;
    case ZMQ_EVENT_HANDSHAKE_SUCCEEDED:
        client->is_secured = true;
        break;
    case ZMQ_EVENT_HANDSHAKE_FAILED_AUTH:
        fail_locked(client, WEIR_ERR_DENIED);
        break;
    case ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL:
        fail_locked(client, WEIR_ERR_PEER);
        break;
    case ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL:
    case ZMQ_EVENT_DISCONNECTED:
        fail_locked(client, why_hung_up(client));
        break;
    case ZMQ_EVENT_CLOSED:
        fail_locked(client, client->is_connected ? WEIR_ERR_CLOSED : WEIR_ERR_NOT_FOUND);
        break;
    default:
        break;
    }
}

/* The slow look: is the host still there? */
static void check_peer_locked(struct client *client)
{
    int event;
    uint32_t value;
    if (is_deserted_locked(client)) {
        return;
    }
    while (weir_zmq_monitor_read(client->api, client->monitor, &event, &value)) {
        take_event_locked(client, event);
    }
    if (client->socket_fd >= 0 && weir_fd_peer_gone(client->socket_fd, -1)) {
        fail_locked(client, WEIR_ERR_CLOSED);
    }
}

/* Rouse whoever waits, after something came in while a caller used the socket. */
static void notify_locked(struct client *client)
{
    if (client->is_polled && !is_deserted_locked(client)) {
        eventfd_write(client->wake_fd, 1);
    }
    pthread_cond_broadcast(&client->pumped);
}

static void poll_unlocked(const struct client *client, uint64_t slice_ns)
{
    struct pollfd fds[3] = {{.fd = client->zmq_fd, .events = POLLIN},
                            {.fd = client->wake_fd, .events = POLLIN},
                            {.fd = client->socket_fd, .events = POLLRDHUP}};
    struct timespec slice = {.tv_sec = (time_t)(slice_ns / WEIR_NS_PER_S),
                             .tv_nsec = (long)(slice_ns % WEIR_NS_PER_S)};
    ppoll(fds, 3, &slice, NULL);
    if (fds[1].revents && has_mark(client)) {
        eventfd_t count;
        eventfd_read(client->wake_fd, &count);
    }
}

static void wait_condition_locked(struct client *client, uint64_t slice_ns)
{
    (void)weir_thread_condition_wait(&client->pumped, &client->lock, weir_deadline_after(slice_ns));
}

/* Wait until something may have come in; left_ns is not 0. The caller has pumped. */
static void wait_locked(struct client *client, uint64_t left_ns)
{
    uint64_t slice_ns = left_ns < SLICE_NS ? left_ns : SLICE_NS;
    if (client->is_polled) {
        wait_condition_locked(client, slice_ns);
        return;
    }
    client->is_polled = true;
    pthread_mutex_unlock(&client->lock);
    poll_unlocked(client, slice_ns);
    pthread_mutex_lock(&client->lock);
    client->is_polled = false;
    if (!pump_locked(client)) {
        check_peer_locked(client);
        (void)pump_locked(client); /* its last words */
    }
    pthread_cond_broadcast(&client->pumped); /* somebody else must poll now */
}

/* ---------------------------------------------------------------- the transport's operations */

static void *zmq_segment(struct weir_transport *t)
{
    (void)t;
    return NULL;
}

static const struct weir_segment_view *zmq_view(struct weir_transport *t)
{
    return &client_of(t)->view;
}

static bool zmq_peer_gone(struct weir_transport *t)
{
    struct client *client = client_of(t);
    int saved_errno = errno;
    pthread_mutex_lock(&client->lock);
    check_peer_locked(client);
    if (pump_locked(client)) {
        notify_locked(client);
    }
    bool gone = client->failure != WEIR_OK;
    pthread_mutex_unlock(&client->lock);
    errno = saved_errno;
    return gone;
}

static enum weir_status send_control_locked(struct client *client, uint32_t kind, uint64_t value,
                                            const void *payload, size_t payload_len)
{
    struct weir_zmq_control control = {
        .magic = WEIR_ZMQ_CONTROL_MAGIC, .kind = kind, .value = value};
    struct weir_zmq_message message;
    if (is_deserted_locked(client)) {
        return WEIR_ERR_CLOSED;
    }
    weir_zmq_message_init(client->api, &message);
    enum weir_status status = weir_zmq_message_fill(client->api, &message, &control, sizeof control,
                                                    payload, payload_len);
    if (status == WEIR_OK) {
        status = weir_zmq_message_send(client->api, client->socket, &message);
    }
    weir_zmq_message_finish(client->api, &message);
    return status;
}

/* Wait for window, then send. */
static enum weir_status send_locked(struct client *client, struct weir_zmq_message *message,
                                    uint64_t cost, uint64_t deadline_ns)
{
    while (client->failure == WEIR_OK && !weir_zmq_flow_may_send(&client->flow, cost)) {
        if (pump_locked(client)) {
            notify_locked(client);
            continue;
        }
        uint64_t left_ns = weir_deadline_left_ns(deadline_ns);
        if (left_ns == 0) {
            check_peer_locked(client);
            return client->failure == WEIR_OK ? WEIR_ERR_TIMED_OUT : client->failure;
        }
        wait_locked(client, left_ns);
    }
    if (is_deserted_locked(client) || client->failure != WEIR_OK) {
        return client->failure;
    }
    enum weir_status status = weir_zmq_message_send(client->api, client->socket, message);
    if (status == WEIR_OK) {
        client->flow.sent += cost;
    }
    if (pump_locked(client)) {
        notify_locked(client);
    }
    return status;
}

static enum weir_status zmq_send_record(struct weir_transport *t, const struct weir_record *record,
                                        const void *bulk, size_t bulk_bytes, uint64_t timeout_ns)
{
    struct client *client = client_of(t);
    enum weir_status status = weir_record_check_send(record, bulk, bulk_bytes);
    if (status != WEIR_OK) {
        return status;
    }
    int saved_errno = errno;
    struct weir_zmq_message message;
    weir_zmq_message_init(client->api, &message);
    status =
        weir_zmq_message_fill(client->api, &message, record, record->len_bytes, bulk, bulk_bytes);
    if (status == WEIR_OK) {
        uint64_t deadline_ns = timeout_ns ? weir_deadline_after(timeout_ns) : 0;
        pthread_mutex_lock(&client->lock);
        status = send_locked(client, &message, weir_zmq_cost(record->len_bytes, bulk_bytes),
                             deadline_ns);
        pthread_mutex_unlock(&client->lock);
    }
    weir_zmq_message_finish(client->api, &message);
    errno = saved_errno;
    return status;
}

static enum weir_status await_node_locked(struct client *client, uint64_t spin_ns,
                                          uint64_t deadline_ns, struct weir_zmq_node **ret_node)
{
    spin_ns = weir_useful_spin_ns(spin_ns);
    uint64_t spin_end_ns = spin_ns && deadline_ns ? weir_deadline_after(spin_ns) : 0;
    for (;;) {
        bool found = pump_locked(client);
        *ret_node = weir_zmq_inbox_take(&client->inbox);
        if (found) {
            notify_locked(client); /* a sender may wait for the credit that came */
        }
        if (*ret_node) {
            return WEIR_OK;
        }
        if (client->failure != WEIR_OK) {
            return client->failure;
        }
        uint64_t left_ns = weir_deadline_left_ns(deadline_ns);
        if (left_ns == 0) {
            check_peer_locked(client);
            return client->failure == WEIR_OK ? WEIR_ERR_TIMED_OUT : client->failure;
        }
        if (spin_end_ns && weir_deadline_left_ns(spin_end_ns) != 0) {
            pthread_mutex_unlock(&client->lock); /* let a sender in */
            weir_cpu_pause();
            pthread_mutex_lock(&client->lock);
        } else {
            wait_locked(client, left_ns);
        }
    }
}

static enum weir_status zmq_receive(struct weir_transport *t, const struct weir_record **ret_record,
                                    const void **ret_bulk, size_t *ret_bulk_bytes, uint64_t spin_ns,
                                    uint64_t timeout_ns)
{
    struct client *client = client_of(t);
    int saved_errno = errno;
    uint64_t deadline_ns = timeout_ns ? weir_deadline_after(timeout_ns) : 0;
    weir_zmq_node_free(client->api, client->held);
    client->held = NULL;
    struct weir_zmq_node *node;
    pthread_mutex_lock(&client->lock);
    enum weir_status status = await_node_locked(client, spin_ns, deadline_ns, &node);
    if (status == WEIR_OK && weir_zmq_flow_consume(&client->flow, node->cost)) {
        /* A host that is gone needs no credit; the next call says that it is gone. */
        enum weir_status sent =
            send_control_locked(client, WEIR_ZMQ_CREDIT, client->flow.consumed, NULL, 0);
        if (sent != WEIR_OK) {
            fail_locked(client, sent);
        }
        if (pump_locked(client)) {
            notify_locked(client);
        }
    }
    pthread_mutex_unlock(&client->lock);
    if (status == WEIR_OK) {
        client->held = node;
        *ret_record = (const struct weir_record *)(void *)node->record;
        *ret_bulk = node->has_bulk ? client->api->zmq_msg_data(&node->bulk) : NULL;
        *ret_bulk_bytes = node->has_bulk ? client->api->zmq_msg_size(&node->bulk) : 0;
    }
    errno = saved_errno;
    return status;
}

static void close_fds(const struct client *client)
{
    if (!has_mark(client)) {
        return;
    }
    if (client->mark_fd >= 0) { /* which is socket_fd, if there is one */
        close(client->mark_fd);
    }
    if (client->wake_fd >= 0) {
        close(client->wake_fd);
    }
}

static void zmq_destroy(struct weir_transport *t)
{
    struct client *client = client_of(t);
    int saved_errno = errno;
    if (!has_mark(client)) {
        return; /* libzmq's thread may still use what it has */
    }
    if (client->monitor) {
        client->api->zmq_socket_monitor(client->socket, NULL, 0);
        client->api->zmq_close(client->monitor);
    }
    if (client->socket) {
        client->api->zmq_close(client->socket);
    }
    if (client->ctx) {
        client->api->zmq_ctx_term(client->ctx);
    }
    weir_zmq_node_free(client->api, client->held);
    for (struct weir_zmq_node *node; (node = weir_zmq_inbox_take(&client->inbox));) {
        weir_zmq_node_free(client->api, node);
    }
    close_fds(client);
    free(client->answer);
    pthread_cond_destroy(&client->pumped);
    pthread_mutex_destroy(&client->lock);
    free(client);
    errno = saved_errno;
}

/* libzmq's threads did not survive the fork: its memory and sockets are left as they are. */
static void zmq_abandon(struct weir_transport *t)
{
    close_fds(client_of(t));
}

static const struct weir_transport_ops client_ops = {
    .name = "zmq",
    .segment = zmq_segment,
    .view = zmq_view,
    .send = zmq_send_record,
    .receive = zmq_receive,
    .peer_gone = zmq_peer_gone,
    .destroy = zmq_destroy,
    .abandon = zmq_abandon,
};

/* ---------------------------------------------------------------- connecting */

static bool set_text(struct client *client, int option, const char *text)
{
    return client->api->zmq_setsockopt(client->socket, option, text, strlen(text)) == 0;
}

static enum weir_status open_socket(struct client *client,
                                    const struct weir_zmq_client_params *params)
{
    const struct weir_zmq_api *api = client->api;
    const int linger_ms = LINGER_MS, no_reconnect = -1, unlimited = 0;
    const int patient =
        0; /* a worker that is being replaced answers later: the deadline bounds it */
    client->ctx = api->zmq_ctx_new();
    client->socket = client->ctx ? api->zmq_socket(client->ctx, ZMQ_DEALER) : NULL;
    if (!client->socket) {
        return WEIR_ERR_NO_MEMORY;
    }
    if (!weir_zmq_socket_setup(api, client->socket) ||
        api->zmq_setsockopt(client->socket, ZMQ_LINGER, &linger_ms, sizeof linger_ms) != 0 ||
        api->zmq_setsockopt(client->socket, ZMQ_HANDSHAKE_IVL, &patient, sizeof patient) != 0 ||
        api->zmq_setsockopt(client->socket, ZMQ_RCVHWM, &unlimited, sizeof unlimited) != 0 ||
        api->zmq_setsockopt(client->socket, ZMQ_RECONNECT_IVL, &no_reconnect,
                            sizeof no_reconnect) != 0) {
        return WEIR_ERR_IO;
    }
    if (params->server_key && !(set_text(client, ZMQ_CURVE_SERVERKEY, params->server_key) &&
                                set_text(client, ZMQ_CURVE_PUBLICKEY, params->public_key) &&
                                set_text(client, ZMQ_CURVE_SECRETKEY, params->secret_key))) {
        return WEIR_ERR_INVALID;
    }
    return WEIR_OK;
}

static enum weir_status open_monitor(struct client *client)
{
    const struct weir_zmq_api *api = client->api;
    static const char address[] = "inproc://weir-monitor"; /* the context is this client's own */
    client->monitor = api->zmq_socket(client->ctx, ZMQ_PAIR);
    const int none = 0;
    if (!client->monitor) {
        return WEIR_ERR_NO_MEMORY;
    }
    bool done = api->zmq_setsockopt(client->monitor, ZMQ_LINGER, &none, sizeof none) == 0 &&
                api->zmq_socket_monitor(client->socket, address, MONITOR_EVENTS) == 0 &&
                api->zmq_connect(client->monitor, address) == 0;
    client->zmq_fd = weir_zmq_fd(api, client->socket);
    client->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return done && client->zmq_fd >= 0 && client->wake_fd >= 0 ? WEIR_OK : WEIR_ERR_IO;
}

static enum weir_status await_answer(struct client *client, uint64_t deadline_ns)
{
    enum weir_status status = WEIR_OK;
    pthread_mutex_lock(&client->lock);
    pump_locked(client);
    while (!client->answer && client->failure == WEIR_OK && status == WEIR_OK) {
        uint64_t left_ns = weir_deadline_left_ns(deadline_ns);
        if (left_ns == 0) {
            status = WEIR_ERR_TIMED_OUT;
        } else {
            wait_locked(client, left_ns);
        }
    }
    if (!client->answer && client->failure != WEIR_OK) {
        status = client->failure;
    }
    pthread_mutex_unlock(&client->lock);
    return status;
}

/* libzmq ends the program when it gets some of the descriptors that it wants, but not all. */
static bool has_descriptors(int socket_fd)
{
    int fds[DESCRIPTORS];
    int n = 0;
    int any = socket_fd >= 0 ? dup(socket_fd) : eventfd(0, EFD_CLOEXEC);
    if (any < 0) {
        return false;
    }
    while (n < DESCRIPTORS && (fds[n] = fcntl(any, F_DUPFD_CLOEXEC, 0)) >= 0) {
        n++;
    }
    close(any);
    for (int i = 0; i < n; i++) {
        close(fds[i]);
    }
    return n == DESCRIPTORS;
}

static struct client *make_client(const struct weir_zmq_api *api, int socket_fd)
{
    struct client *client = calloc(1, sizeof *client);
    if (!client) {
        return NULL;
    }
    client->base.ops = &client_ops;
    client->api = api;
    client->socket_fd = socket_fd;
    client->mark_fd =
        socket_fd >= 0 ? socket_fd : socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    client->mark_cookie = weir_socket_cookie(client->mark_fd);
    client->wake_fd = -1;
    client->zmq_fd = -1;
    pthread_mutex_init(&client->lock, NULL);
    weir_thread_condition_init(&client->pumped);
    return client;
}

enum weir_status weir_zmq_client_connect(const struct weir_zmq_client_params *params,
                                         struct weir_transport **ret_transport, void **ret_answer,
                                         size_t *ret_answer_len)
{
    const struct weir_zmq_api *api = weir_zmq_load();
    struct client *client = api ? make_client(api, params->socket_fd) : NULL;
    if (!client) {
        if (params->socket_fd >= 0) {
            close(params->socket_fd);
        }
        return api ? WEIR_ERR_NO_MEMORY : WEIR_ERR_UNSUPPORTED;
    }
    client->answer_max_bytes = params->answer_max_bytes;
    client->begun_ns = weir_clock_now_ns();
    enum weir_status status =
        has_descriptors(params->socket_fd) ? open_socket(client, params) : WEIR_ERR_NO_DESCRIPTOR;
    if (status == WEIR_OK) {
        status = open_monitor(client);
    }
    if (status == WEIR_OK && api->zmq_connect(client->socket, params->endpoint) != 0) {
        status = WEIR_ERR_INVALID;
    }
    if (status == WEIR_OK) {
        status = send_control_locked(client, WEIR_ZMQ_HELLO, 0, params->hello, params->hello_len);
    }
    if (status == WEIR_OK) {
        status = await_answer(client, params->deadline_ns);
    }
    if (status != WEIR_OK) {
        zmq_destroy(&client->base);
        return status;
    }
    *ret_answer = client->answer;
    *ret_answer_len = client->answer_len;
    client->answer = NULL;
    client->answer_max_bytes = 0; /* a second answer is a lie */
    *ret_transport = &client->base;
    return WEIR_OK;
}

void weir_zmq_client_set_view(struct weir_transport *t, uint32_t n_words, uint64_t arena_bytes)
{
    client_of(t)->view = (struct weir_segment_view){.n_words = n_words, .arena_bytes = arena_bytes};
}
