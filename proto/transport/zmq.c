/*
 * The guest's end of the ZeroMQ transport: one DEALER socket, and two threads that use it.
 *
 * libzmq ends the process when one of its descriptors is missing or was replaced, and some programs
 * close descriptors that they did not open: daemons close all. So libzmq's descriptors are not in
 * the program's table. The receiver, our first thread, switches to an empty table, which all
 * threads that it starts share: the sender and libzmq's own. Only these threads call functions that
 * use descriptors. The program's threads put messages into one queue and take records out of
 * another. A forked child inherits nothing of this.
 *
 * The receiver sleeps in poll() on the descriptors of the socket and its monitor, and "pumps" the
 * socket: it takes arrived messages, handles credit and goodbye, and queues the records. The
 * socket's descriptor is edge-triggered and any use of the socket may swallow its edge, so the
 * sender pumps, too, after each message. Both do it under the lock.
 *
 * A lost host shows as a monitor event (a failed network included) or as the end of the unix
 * socket that the handshake came through. We never reconnect: a session does not survive its
 * connection.
 */
#include "proto/transport/zmq.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/thread.h"
#include "proto/transport/fd_message.h"
#include "proto/transport/ring.h"
#include "proto/transport/zmq_wire.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LINGER_MS 200 /* time to send the last posted records when the guest closes */
/* Descriptors that a client opens: libzmq's for threads, sockets and the connection, and one event
 * of ours. */
#define DESCRIPTORS 10

#define MONITOR_EVENTS                                                                             \
    (ZMQ_EVENT_CONNECTED | ZMQ_EVENT_CLOSED | ZMQ_EVENT_DISCONNECTED |                             \
     ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL |                        \
     ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH)

/* A message that waits for the sender's thread. */
struct outgoing {
    struct outgoing *next;
    struct weir_zmq_message message;
};

struct client {
    struct weir_transport base;
    const struct weir_zmq_api *api;
    const struct weir_zmq_client_params *params; /* used by the receiver until there is an answer */
    struct weir_segment_view view;
    struct weir_zmq_node *held; /* lent to the caller of receive */
    pthread_t receiver;

    /* Used by the receiver, but for wake_fd, by which the sender signals that the client closes. */
    pthread_t sender;
    bool has_sender;
    void *ctx;
    void *monitor;
    int socket_fd; /* socket of the unix handshake, or -1 */
    int zmq_fd;
    int monitor_fd;
    int wake_fd;

    pthread_mutex_t lock; /* guards everything below, and all use of the socket */
    pthread_cond_t came;  /* signals a record, credit, the answer or a failure */
    pthread_cond_t asked; /* signals that there is something to send, or that the client closes */
    void *socket;
    struct weir_zmq_flow flow;
    struct weir_zmq_inbox inbox;
    struct outgoing *first; /* messages to send */
    struct outgoing *last;
    uint64_t begun_ns; /* when connecting began */
    bool is_connected;
    bool is_secured;
    bool is_closing;
    enum weir_status failure; /* why no more data will come; WEIR_OK while the link works */
    void *answer;             /* the answer to Hello */
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
    pthread_cond_broadcast(&client->came);
}

/* ---------------------------------------------------------------- taking in */

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

static void pump_locked(struct client *client)
{
    enum weir_status status = WEIR_OK;
    while (status == WEIR_OK) {
        struct weir_zmq_message message;
        weir_zmq_message_init(client->api, &message);
        status = weir_zmq_message_receive(client->api, client->socket, false, &message);
        if (status == WEIR_OK) {
            take_message_locked(client, &message);
            pthread_cond_broadcast(&client->came);
        }
        weir_zmq_message_finish(client->api, &message);
    }
    if (status != WEIR_ERR_AGAIN) {
        fail_locked(client, status);
    }
}

/*
 * Guess why the host has hung up. A host that cannot read our Hello, because it has another key,
 * hangs up at once without an answer. So does a host that is flooded with connections without a
 * key. A host with far more work than cores hangs up when the handshake's time has passed: then try
 * again.
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

/* Is the host still there? */
static void check_peer_locked(struct client *client)
{
    int event;
    uint32_t value;
    while (weir_zmq_monitor_read(client->api, client->monitor, &event, &value)) {
        take_event_locked(client, event);
    }
    if (client->socket_fd >= 0 && weir_fd_peer_gone(client->socket_fd, -1)) {
        fail_locked(client, WEIR_ERR_CLOSED);
    }
}

static void receive_until_over(struct client *client)
{
    struct pollfd fds[] = {{.fd = client->zmq_fd, .events = POLLIN},
                           {.fd = client->monitor_fd, .events = POLLIN},
                           {.fd = client->wake_fd, .events = POLLIN},
                           {.fd = client->socket_fd, .events = POLLRDHUP}};
    pthread_mutex_lock(&client->lock);
    for (;;) {
        pump_locked(client);
        check_peer_locked(client);
        pump_locked(client); /* take the host's last messages */
        if (client->is_closing || client->failure != WEIR_OK) {
            break;
        }
        pthread_mutex_unlock(&client->lock);
        (void)poll(fds, WEIR_COUNT(fds), -1);
        pthread_mutex_lock(&client->lock);
    }
    pthread_mutex_unlock(&client->lock);
}

/* ---------------------------------------------------------------- sending */

static struct outgoing *make_outgoing(const struct weir_zmq_api *api, const void *head,
                                      size_t head_len, const void *tail, size_t tail_len)
{
    struct outgoing *out = malloc(sizeof *out);
    WEIR_FAIL_IF(!out, NULL);
    out->next = NULL;
    weir_zmq_message_init(api, &out->message);
    if (weir_zmq_message_fill(api, &out->message, head, head_len, tail, tail_len) != WEIR_OK) {
        weir_zmq_message_finish(api, &out->message);
        free(out);
        return NULL;
    }
    return out;
}

static void put_outgoing_locked(struct client *client, struct outgoing *out)
{
    if (client->last) {
        client->last->next = out;
    } else {
        client->first = out;
    }
    client->last = out;
    pthread_cond_signal(&client->asked);
}

static struct outgoing *take_outgoing_locked(struct client *client)
{
    struct outgoing *out = client->first;
    if (out) {
        client->first = out->next;
        if (!client->first) {
            client->last = NULL;
        }
    }
    return out;
}

static void free_outgoing(const struct weir_zmq_api *api, struct outgoing *out)
{
    if (out) {
        weir_zmq_message_finish(api, &out->message);
        free(out);
    }
}

static enum weir_status put_control_locked(struct client *client, uint32_t kind, uint64_t value,
                                           const void *payload, size_t payload_len)
{
    struct weir_zmq_control control = {
        .magic = WEIR_ZMQ_CONTROL_MAGIC, .kind = kind, .value = value};
    struct outgoing *out =
        make_outgoing(client->api, &control, sizeof control, payload, payload_len);
    if (out) {
        put_outgoing_locked(client, out);
    }
    return out ? WEIR_OK : WEIR_ERR_NO_MEMORY;
}

static void wake_receiver(const struct client *client)
{
    eventfd_write(client->wake_fd, 1);
}

static void *run_sender(void *user)
{
    struct client *client = user;
    pthread_mutex_lock(&client->lock);
    for (;;) {
        struct outgoing *out = take_outgoing_locked(client);
        if (out && client->failure == WEIR_OK) {
            enum weir_status status =
                weir_zmq_message_send(client->api, client->socket, &out->message);
            if (status != WEIR_OK) {
                fail_locked(client, status);
            }
            pump_locked(client);
        }
        free_outgoing(client->api, out);
        if (!out && client->is_closing) {
            break;
        }
        if (!out) {
            pthread_cond_wait(&client->asked, &client->lock);
        }
    }
    pthread_mutex_unlock(&client->lock);
    wake_receiver(client);
    return NULL;
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
    WEIR_LOCKED(&client->lock);
    return client->failure != WEIR_OK;
}

/* Wait until a message has arrived; false: the time has passed. */
static bool wait_locked(struct client *client, uint64_t deadline_ns)
{
    WEIR_FAIL_IF(weir_deadline_left_ns(deadline_ns) == 0, false);
    return weir_thread_condition_wait(&client->came, &client->lock, deadline_ns);
}

/* Wait for room in the window, then queue the message, which the sender owns on WEIR_OK. */
static enum weir_status put_record_locked(struct client *client, struct outgoing *out,
                                          uint64_t cost, uint64_t deadline_ns)
{
    while (client->failure == WEIR_OK && !weir_zmq_flow_may_send(&client->flow, cost)) {
        if (!wait_locked(client, deadline_ns)) {
            return client->failure == WEIR_OK ? WEIR_ERR_TIMED_OUT : client->failure;
        }
    }
    if (client->failure == WEIR_OK) {
        client->flow.sent += cost;
        put_outgoing_locked(client, out);
    }
    return client->failure;
}

static enum weir_status zmq_send_record(struct weir_transport *t, const struct weir_record *record,
                                        const void *bulk, size_t bulk_bytes, uint64_t timeout_ns)
{
    struct client *client = client_of(t);
    WEIR_TRY(weir_record_check_send(record, bulk, bulk_bytes));
    int saved_errno = errno;
    struct outgoing *out = make_outgoing(client->api, record, record->len_bytes, bulk, bulk_bytes);
    enum weir_status status = WEIR_ERR_NO_MEMORY;
    if (out) {
        uint64_t deadline_ns = timeout_ns ? weir_deadline_after(timeout_ns) : 0;
        pthread_mutex_lock(&client->lock);
        status = put_record_locked(client, out, weir_zmq_cost(record->len_bytes, bulk_bytes),
                                   deadline_ns);
        pthread_mutex_unlock(&client->lock);
        if (status != WEIR_OK) {
            free_outgoing(client->api, out);
        }
    }
    errno = saved_errno;
    return status;
}

/* Spin for a while, looking for a record without the lock. */
static void spin(const struct client *client, uint64_t spin_ns)
{
    uint64_t end_ns = weir_deadline_after(spin_ns);
    while (__atomic_load_n(&client->inbox.count, __ATOMIC_ACQUIRE) == 0 &&
           weir_deadline_left_ns(end_ns) != 0) {
        weir_cpu_pause();
    }
}

static enum weir_status await_node_locked(struct client *client, uint64_t deadline_ns,
                                          struct weir_zmq_node **ret_node)
{
    bool in_time = true;
    while (!(*ret_node = weir_zmq_inbox_take(&client->inbox))) {
        if (client->failure != WEIR_OK) {
            return client->failure;
        }
        WEIR_FAIL_IF(!in_time, WEIR_ERR_TIMED_OUT);
        in_time = wait_locked(client, deadline_ns);
    }
    return WEIR_OK;
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
    spin_ns = timeout_ns ? weir_useful_spin_ns(spin_ns) : 0;
    if (spin_ns != 0) {
        spin(client, WEIR_MIN(spin_ns, timeout_ns));
    }
    pthread_mutex_lock(&client->lock);
    enum weir_status status = await_node_locked(client, deadline_ns, &node);
    if (status == WEIR_OK && weir_zmq_flow_consume(&client->flow, node->cost)) {
        enum weir_status put =
            put_control_locked(client, WEIR_ZMQ_CREDIT, client->flow.consumed, NULL, 0);
        if (put != WEIR_OK) {
            fail_locked(client, put);
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

static void free_client(struct client *client)
{
    weir_zmq_node_free(client->api, client->held);
    for (struct weir_zmq_node *node; (node = weir_zmq_inbox_take(&client->inbox));) {
        weir_zmq_node_free(client->api, node);
    }
    for (struct outgoing *out; (out = take_outgoing_locked(client));) {
        free_outgoing(client->api, out);
    }
    free(client->answer);
    pthread_cond_destroy(&client->asked);
    pthread_cond_destroy(&client->came);
    pthread_mutex_destroy(&client->lock);
    free(client);
}

static void zmq_destroy(struct weir_transport *t)
{
    struct client *client = client_of(t);
    int saved_errno = errno;
    pthread_mutex_lock(&client->lock);
    client->is_closing = true;
    pthread_cond_signal(&client->asked);
    pthread_mutex_unlock(&client->lock);
    pthread_join(client->receiver, NULL);
    free_client(client);
    errno = saved_errno;
}

/* The threads and their descriptors do not exist in the child. */
static void zmq_abandon(struct weir_transport *t)
{
    (void)t;
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
        0; /* a worker that is being replaced answers later, so only the deadline limits this */
    client->ctx = api->zmq_ctx_new();
    client->socket = client->ctx ? api->zmq_socket(client->ctx, ZMQ_DEALER) : NULL;
    WEIR_FAIL_IF(!client->socket, WEIR_ERR_NO_MEMORY);
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
    WEIR_FAIL_IF(!client->monitor, WEIR_ERR_NO_MEMORY);
    bool done = api->zmq_setsockopt(client->monitor, ZMQ_LINGER, &none, sizeof none) == 0 &&
                api->zmq_socket_monitor(client->socket, address, MONITOR_EVENTS) == 0 &&
                api->zmq_connect(client->monitor, address) == 0;
    client->zmq_fd = weir_zmq_fd(api, client->socket);
    client->monitor_fd = weir_zmq_fd(api, client->monitor);
    return done && client->zmq_fd >= 0 && client->monitor_fd >= 0 ? WEIR_OK : WEIR_ERR_IO;
}

/*
 * Switch to a descriptor table of this thread's own, with only the handshake's socket and, for the
 * standard streams, /dev/null. Kernels before Linux 5.9, and some others, do not allow that: then
 * the thread keeps the program's table.
 */
static void leave_table(struct client *client)
{
    int fd = client->params->socket_fd, standard;
    unsigned above = (unsigned)(fd + 1); /* 0: there is none */

    if (syscall(SYS_close_range, above, ~0u, CLOSE_RANGE_UNSHARE) != 0) {
        client->socket_fd = fd >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1;
        return;
    }
    client->socket_fd = fd;
    if (fd > 0) {
        (void)syscall(SYS_close_range, 0u, above - 2, 0);
    }
    do {
        standard = eventfd(0, EFD_CLOEXEC);
    } while (standard >= 0 && standard < STDERR_FILENO);
    if (standard > STDERR_FILENO) {
        close(standard);
    }
}

/* libzmq ends the program when it gets only some of the descriptors that it needs. */
static bool has_descriptors(const struct client *client)
{
    int fds[DESCRIPTORS];
    int n = 0;
    while (n < DESCRIPTORS && (fds[n] = fcntl(client->wake_fd, F_DUPFD_CLOEXEC, 0)) >= 0) {
        n++;
    }
    for (int i = 0; i < n; i++) {
        close(fds[i]);
    }
    return n == DESCRIPTORS;
}

static enum weir_status open_descriptors(struct client *client)
{
    leave_table(client);
    client->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return client->wake_fd >= 0 && has_descriptors(client) ? WEIR_OK : WEIR_ERR_NO_DESCRIPTOR;
}

static void close_descriptors(const struct client *client)
{
    weir_fd_close(client->socket_fd);
    weir_fd_close(client->wake_fd);
}

static enum weir_status begin(struct client *client)
{
    const struct weir_zmq_client_params *params = client->params;
    WEIR_TRY(open_descriptors(client));
    WEIR_TRY(open_socket(client, params));
    WEIR_TRY(open_monitor(client));
    WEIR_FAIL_IF(client->api->zmq_connect(client->socket, params->endpoint) != 0, WEIR_ERR_INVALID);
    WEIR_TRY(put_control_locked(client, WEIR_ZMQ_HELLO, 0, params->hello, params->hello_len));
    client->has_sender = weir_thread_start(&client->sender, 0, run_sender, client) == 0;
    return client->has_sender ? WEIR_OK : WEIR_ERR_NO_MEMORY;
}

static void *run_receiver(void *user)
{
    struct client *client = user;
    pthread_mutex_lock(&client->lock);
    enum weir_status status = begin(client);
    if (status != WEIR_OK) {
        fail_locked(client, status);
    }
    pthread_mutex_unlock(&client->lock);
    if (status == WEIR_OK) {
        receive_until_over(client);
        pthread_join(client->sender, NULL); /* this returns when the client closes */
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
    close_descriptors(client);
    return NULL;
}

static enum weir_status await_answer(struct client *client, uint64_t deadline_ns)
{
    enum weir_status status = WEIR_OK;
    WEIR_LOCKED(&client->lock);
    while (!client->answer && client->failure == WEIR_OK && status == WEIR_OK) {
        if (!wait_locked(client, deadline_ns)) {
            status = WEIR_ERR_TIMED_OUT;
        }
    }
    if (client->answer) {
        status = WEIR_OK;
    } else if (client->failure != WEIR_OK) {
        status = client->failure;
    }
    return status;
}

static struct client *make_client(const struct weir_zmq_api *api,
                                  const struct weir_zmq_client_params *params)
{
    struct client *client = calloc(1, sizeof *client);
    WEIR_FAIL_IF(!client, NULL);
    client->base.ops = &client_ops;
    client->api = api;
    client->params = params;
    client->answer_max_bytes = params->answer_max_bytes;
    client->begun_ns = weir_clock_now_ns();
    client->socket_fd = client->zmq_fd = client->monitor_fd = client->wake_fd = -1;
    pthread_mutex_init(&client->lock, NULL);
    weir_thread_condition_init(&client->came);
    weir_thread_condition_init(&client->asked);
    return client;
}

enum weir_status weir_zmq_client_connect(const struct weir_zmq_client_params *params,
                                         struct weir_transport **ret_transport, void **ret_answer,
                                         size_t *ret_answer_len)
{
    const struct weir_zmq_api *api = weir_zmq_load();
    WEIR_FAIL_IF(!api, WEIR_ERR_UNSUPPORTED);
    struct client *client = make_client(api, params);
    WEIR_FAIL_IF(!client, WEIR_ERR_NO_MEMORY);
    if (weir_thread_start(&client->receiver, 0, run_receiver, client) != 0) {
        free_client(client);
        return WEIR_ERR_NO_MEMORY;
    }
    enum weir_status status = await_answer(client, params->deadline_ns);
    if (status != WEIR_OK) {
        zmq_destroy(&client->base);
        return status;
    }
    pthread_mutex_lock(&client->lock);
    *ret_answer = client->answer;
    *ret_answer_len = client->answer_len;
    client->answer = NULL;
    client->answer_max_bytes = 0; /* a second answer breaks the protocol */
    pthread_mutex_unlock(&client->lock);
    *ret_transport = &client->base;
    return WEIR_OK;
}

void weir_zmq_client_set_view(struct weir_transport *t, uint32_t n_words, uint64_t arena_bytes)
{
    client_of(t)->view = (struct weir_segment_view){.n_words = n_words, .arena_bytes = arena_bytes};
}
