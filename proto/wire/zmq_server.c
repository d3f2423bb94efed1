/*
 * The I/O thread: gives messages that arrive at the ROUTER sockets to their sessions, answers which
 * clients may connect (ZAP, ZeroMQ RFC 27), and notices connections that end.
 *
 * Sockets are shared with the sessions' senders under the lock, so the thread never polls a socket,
 * only its (edge-triggered) descriptor; a sender whose use swallowed an edge wakes the thread.
 *
 * A ROUTER does not report which guests have gone, but its monitor gives the descriptor of each
 * connection that ends, and each message has the descriptor that it came over. libzmq reports the
 * end before it closes the descriptor, so a later connection with the same number can only send
 * Hello after that report. Reading the monitor before each Hello therefore distinguishes the two.
 *
 * Messages of a peer without a session are dropped.
 */
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/thread.h"
#include "proto/wire/zmq_accept.h"
#include "proto/wire/zmq_session.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#define ZAP_ADDRESS "inproc://zeromq.zap.01"
#define ZAP_FRAMES  8
/* The token decides who gets a session; the directory decides who may connect at all. */
#define IPC_MODE 0666

#define MONITOR_EVENTS (ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_HANDSHAKE_SUCCEEDED)

/* The list of this process's servers. Its lock is acquired before any server's. */
static struct {
    pthread_mutex_t lock;
    struct weir_zmq_server *first;
} servers = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const struct weir_zmq_api linked = {
#define WEIR_ZMQ_FUNCTION(type, name, arguments) .name = name,
#include "proto/transport/zmq_functions.def"
#undef WEIR_ZMQ_FUNCTION
};

/* --------------------------------------------------------------- ZAP: which clients may connect */

/* Frames of a request: version, id, domain, address, identity, mechanism, credentials. */
struct zap_request {
    char frames[ZAP_FRAMES][64];
    size_t lens[ZAP_FRAMES];
    size_t n;
};

static bool zap_read(void *socket, struct zap_request *request)
{
    zmq_msg_t frame;
    bool more = true;
    request->n = 0;
    while (more) {
        zmq_msg_init(&frame);
        if (zmq_msg_recv(&frame, socket, ZMQ_DONTWAIT) < 0) {
            zmq_msg_close(&frame);
            return false;
        }
        more = zmq_msg_more(&frame);
        if (request->n < ZAP_FRAMES) {
            size_t len = zmq_msg_size(&frame);
            size_t kept = len < sizeof request->frames[0] ? len : sizeof request->frames[0] - 1;
            memcpy(request->frames[request->n], zmq_msg_data(&frame), kept);
            request->frames[request->n][kept] = '\0';
            request->lens[request->n++] = len;
        }
        zmq_msg_close(&frame);
    }
    return true;
}

static bool zap_allows(const struct weir_zmq_server *server, const struct zap_request *request,
                       char *ret_tenant, size_t tenant_bytes)
{
    char key[WEIR_KEY_TEXT_BYTES];
    if (request->n != 7 || strcmp(request->frames[5], "CURVE") != 0 || request->lens[6] != 32 ||
        !zmq_z85_encode(key, (const uint8_t *)request->frames[6], 32)) {
        return false;
    }
    return server->params.tenant_of_key(server->params.user, key, ret_tenant, tenant_bytes);
}

static void zap_answer(struct weir_zmq_server *server, const struct zap_request *request)
{
    char tenant[WEIR_CONTROL_TEXT_BYTES] = "";
    bool allowed = zap_allows(server, request, tenant, sizeof tenant);
    if (!allowed) {
        weir_log_warn("zmq: unknown key turned away address=%s", request->frames[3]);
    }
    const char *frames[] = {"1.0",
                            request->frames[1],
                            allowed ? "200" : "400",
                            allowed ? "OK" : "unknown key",
                            allowed ? tenant : "",
                            ""};
    size_t n = WEIR_COUNT(frames);
    for (size_t i = 0; i < n; i++) {
        size_t len = i == 1 ? request->lens[1] : strlen(frames[i]);
        zmq_send(server->zap, frames[i], len, ZMQ_DONTWAIT | (i + 1 < n ? ZMQ_SNDMORE : 0));
    }
}

static void zap_run(struct weir_zmq_server *server)
{
    struct zap_request request;
    while (server->zap && zap_read(server->zap, &request)) {
        if (request.n >= 2 && request.lens[1] < sizeof request.frames[1]) {
            zap_answer(server, &request);
        } else {
            /* The request did not come from libzmq: answer it to keep the REP socket in step. */
            zmq_send(server->zap, "", 0, ZMQ_DONTWAIT);
        }
    }
}

/* ---------------------------------------------------------------- guests that have gone */

static void connection_ended_locked(struct weir_zmq_server *server,
                                    const struct weir_zmq_port *port, int fd)
{
    for (struct weir_zmq_session *session = server->sessions; session; session = session->next) {
        if (session->address.port == port && session->address.connection_fd == fd) {
            weir_zmq_session_fail_locked(session, WEIR_ERR_CLOSED);
            session->address.connection_fd = -1;
        }
    }
    for (struct weir_zmq_pending *pending = server->pendings; pending; pending = pending->next) {
        if (pending->address.port == port && pending->address.connection_fd == fd) {
            pending->is_gone = true;
            pending->address.connection_fd = -1;
        }
    }
}

/* Read the next report of a port's monitor; its value is libzmq's descriptor of a connection. */
static bool read_report(const struct weir_zmq_port *port, int *ret_event, uint32_t *ret_value)
{
    bool found = weir_zmq_monitor_read(&linked, port->monitor, ret_event, ret_value);
    if (found && port->is_tcp) {
        weir_zmq_accept_settled((int)*ret_value);
    }
    return found;
}

static void read_monitor_locked(struct weir_zmq_server *server, const struct weir_zmq_port *port)
{
    int event;
    uint32_t value;
    while (read_report(port, &event, &value)) {
        if (event == ZMQ_EVENT_DISCONNECTED) {
            connection_ended_locked(server, port, (int)value);
        }
    }
}

/* ---------------------------------------------------------------- hello */

static bool is_at(const struct weir_zmq_address *address, const struct weir_zmq_port *port,
                  const void *identity, size_t len)
{
    return address->port == port && address->identity_len == len &&
           memcmp(address->identity, identity, len) == 0;
}

static struct weir_zmq_address address_of(struct weir_zmq_port *port,
                                          struct weir_zmq_message *message)
{
    struct weir_zmq_address address = {.port = port};
    address.connection_fd = zmq_msg_get(&message->head, ZMQ_SRCFD);
    address.identity_len = zmq_msg_size(&message->identity);
    if (address.identity_len > sizeof address.identity) {
        address.identity_len = sizeof address.identity; /* ZeroMQ has no longer ones */
    }
    memcpy(address.identity, zmq_msg_data(&message->identity), address.identity_len);
    return address;
}

static bool tokens_equal(const uint8_t *one, const uint8_t *other)
{
    /* Compare in constant time, so that the time reveals nothing about a guess. */
    uint8_t difference = 0;
    for (size_t i = 0; i < WEIR_CONTROL_TOKEN_BYTES; i++) {
        difference |= one[i] ^ other[i];
    }
    return difference == 0;
}

static bool is_expected_locked(const struct weir_zmq_session *session, uint64_t now_ns)
{
    return !session->address.port && now_ns < session->expires_ns && session->failure == WEIR_OK;
}

static struct weir_zmq_session *find_expected_locked(struct weir_zmq_server *server,
                                                     const struct weir_hello *hello)
{
    uint64_t now_ns = weir_clock_now_ns();
    for (struct weir_zmq_session *session = server->sessions; session; session = session->next) {
        if (is_expected_locked(session, now_ns) && hello->has_token &&
            tokens_equal(session->token, hello->token)) {
            return session;
        }
    }
    return NULL;
}

/* A process of another pid namespace has no number here: then its user id must suffice. */
static bool is_same(const struct weir_peer *a, const struct weir_peer *b)
{
    return a->pid == b->pid && (a->pid != 0 || a->uid == b->uid);
}

/* Each token allows one connection. */
static bool take_connection_locked(struct weir_zmq_server *server, const struct weir_peer *peer)
{
    uint64_t now_ns = weir_clock_now_ns();
    for (struct weir_zmq_session *session = server->sessions; session; session = session->next) {
        if (is_expected_locked(session, now_ns) && !session->came &&
            is_same(&session->peer, peer)) {
            session->came = true;
            return true;
        }
    }
    return false;
}

static bool expects(const struct weir_peer *peer)
{
    bool expected = false;
    pthread_mutex_lock(&servers.lock);
    for (struct weir_zmq_server *server = servers.first; server && !expected;
         server = server->next) {
        pthread_mutex_lock(&server->lock);
        expected = take_connection_locked(server, peer);
        pthread_mutex_unlock(&server->lock);
    }
    pthread_mutex_unlock(&servers.lock);
    return expected;
}

/* Handle the second Hello of a guest that came through a unix socket. */
static void hello_ipc_locked(struct weir_zmq_server *server, const struct weir_zmq_address *address,
                             const struct weir_hello *hello)
{
    struct weir_zmq_session *session = find_expected_locked(server, hello);
    if (!session) {
        weir_log_warn("zmq: hello without a valid token endpoint=%s", address->port->bound);
        weir_zmq_send_refusal_locked(server, address, WEIR_ERR_DENIED, 0, "no valid token");
        return;
    }
    struct weir_welcome welcome = {
        .status = WEIR_OK,
        .transport = "zmq",
        .n_devices = 1, /* its fields are empty: the first welcome described the devices */
        .n_words = session->view.n_words,
        .arena_bytes = session->view.arena_bytes};
    struct weir_control_bytes bytes;
    session->address = *address;
    memset(session->token, 0, sizeof session->token);
    enum weir_status status = weir_welcome_encode(&welcome, &bytes);
    WEIR_THEN(status, weir_zmq_send_welcome_locked(server, address, &bytes));
    if (status != WEIR_OK) {
        weir_zmq_session_fail_locked(session, status);
    }
    pthread_cond_broadcast(&session->changed);
}

/* Handle the Hello of a guest from the network: the callback decides, after the lock is
 * released. */
static struct weir_zmq_pending *hello_tcp_locked(struct weir_zmq_server *server,
                                                 const struct weir_zmq_address *address,
                                                 struct weir_hello *hello, const char *tenant)
{
    char why[WEIR_CONTROL_TEXT_BYTES];
    if (!tenant || !*tenant) {
        weir_zmq_send_refusal_locked(server, address, WEIR_ERR_DENIED, 0, "no tenant");
        return NULL;
    }
    if (!weir_hello_fits(hello, why, sizeof why)) {
        weir_zmq_send_refusal_locked(server, address, WEIR_ERR_VERSION, WEIR_RESULT_VERSION, why);
        return NULL;
    }
    struct weir_zmq_pending *pending = calloc(1, sizeof *pending);
    if (!pending) {
        weir_zmq_send_refusal_locked(server, address, WEIR_ERR_NO_MEMORY, 0, "host out of memory");
        return NULL;
    }
    pending->server = server;
    pending->address = *address;
    pending->hello = hello;
    weir_text_set(pending->tenant, sizeof pending->tenant, tenant);
    WEIR_PUSH(server->pendings, pending);
    return pending;
}

static struct weir_zmq_pending *take_hello_locked(struct weir_zmq_server *server,
                                                  struct weir_zmq_port *port,
                                                  struct weir_zmq_message *message)
{
    struct weir_hello *hello;
    struct weir_zmq_pending *pending = NULL;
    /* This must come before a new guest is known (see the top). */
    read_monitor_locked(server, port);
    struct weir_zmq_address address = address_of(port, message);
    enum weir_status status = WEIR_ERR_PEER;
    if (message->has_tail) {
        status =
            weir_hello_decode(zmq_msg_data(&message->tail), zmq_msg_size(&message->tail), &hello);
    }
    if (status != WEIR_OK) {
        weir_zmq_send_refusal_locked(server, &address, status, 0, "not a Hello");
        return NULL;
    }
    if (port->is_tcp) {
        pending =
            hello_tcp_locked(server, &address, hello, zmq_msg_gets(&message->head, "User-Id"));
    } else {
        hello_ipc_locked(server, &address, hello);
    }
    if (!pending) {
        weir_hello_destroy(hello);
    }
    return pending;
}

/* ---------------------------------------------------------------- messages */

static struct weir_zmq_session *find_session_locked(struct weir_zmq_server *server,
                                                    const struct weir_zmq_port *port,
                                                    struct weir_zmq_message *message)
{
    const void *identity = zmq_msg_data(&message->identity);
    size_t len = zmq_msg_size(&message->identity);
    for (struct weir_zmq_session *session = server->sessions; session; session = session->next) {
        if (is_at(&session->address, port, identity, len)) {
            return session;
        }
    }
    return NULL;
}

static bool is_pending_locked(struct weir_zmq_server *server, const struct weir_zmq_port *port,
                              struct weir_zmq_message *message)
{
    const void *identity = zmq_msg_data(&message->identity);
    size_t len = zmq_msg_size(&message->identity);
    return WEIR_LINKED(pending, server->pendings,
                       is_at(&pending->address, port, identity, len) && !pending->is_gone) != NULL;
}

/* Handle a message. Returns a new guest for on_hello, or NULL. */
static struct weir_zmq_pending *take_message_locked(struct weir_zmq_server *server,
                                                    struct weir_zmq_port *port,
                                                    struct weir_zmq_message *message)
{
    struct weir_zmq_control control;
    struct weir_zmq_session *session = find_session_locked(server, port, message);
    if (session) {
        weir_zmq_session_deliver_locked(session, message);
    } else if (weir_zmq_control_read(&linked, message, &control) &&
               control.kind == WEIR_ZMQ_HELLO && !is_pending_locked(server, port, message)) {
        return take_hello_locked(server, port, message);
    }
    return NULL;
}

static void announce(struct weir_zmq_server *server, struct weir_zmq_pending *pending)
{
    /* From here on_hello owns pending, which may be gone when on_hello returns. */
    char tenant[WEIR_CONTROL_TEXT_BYTES];
    struct weir_hello *hello = pending->hello;
    memcpy(tenant, pending->tenant, sizeof tenant);
    pending->hello = NULL;
    server->params.on_hello(server->params.user, tenant, hello, pending);
    weir_hello_destroy(hello);
}

static void run_port(struct weir_zmq_server *server, struct weir_zmq_port *port)
{
    enum weir_status status = WEIR_OK;
    while (status != WEIR_ERR_AGAIN && status != WEIR_ERR_IO) {
        struct weir_zmq_message message;
        struct weir_zmq_pending *pending = NULL;
        weir_zmq_message_init(&linked, &message);
        pthread_mutex_lock(&server->lock);
        status = weir_zmq_message_receive(&linked, port->socket, true, &message);
        if (status == WEIR_OK) {
            pending = take_message_locked(server, port, &message);
        } else if (status == WEIR_ERR_PEER) {
            struct weir_zmq_session *session = find_session_locked(server, port, &message);
            if (session) {
                weir_zmq_session_fail_locked(session, WEIR_ERR_PEER);
            }
        }
        pthread_mutex_unlock(&server->lock);
        weir_zmq_message_finish(&linked, &message);
        if (pending) {
            announce(server, pending);
        }
    }
}

/* A connection's end takes effect after its last messages, which all arrived before the report. */
static void run_monitor(struct weir_zmq_server *server, struct weir_zmq_port *port)
{
    int ended[64];
    size_t n;
    do {
        int event;
        uint32_t value;
        n = 0;
        while (n < WEIR_COUNT(ended) && read_report(port, &event, &value)) {
            if (event == ZMQ_EVENT_DISCONNECTED) {
                ended[n++] = (int)value;
            }
        }
        if (n > 0) {
            run_port(server, port);
        }
        pthread_mutex_lock(&server->lock);
        for (size_t i = 0; i < n; i++) {
            connection_ended_locked(server, port, ended[i]);
        }
        pthread_mutex_unlock(&server->lock);
    } while (n > 0);
}

static void *run(void *user)
{
    struct weir_zmq_server *server = user;
    nfds_t n = 0;
    weir_log_limit_thread(&server->log_rate, "-");
    struct pollfd *fds = calloc(2 + 2 * server->n_ports, sizeof *fds);
    if (!fds) {
        weir_log_error("zmq: out of memory, nothing is served");
        return NULL;
    }
    fds[n++] = (struct pollfd){.fd = server->wake_fd, .events = POLLIN};
    fds[n++] = (struct pollfd){.fd = server->zap_fd, .events = POLLIN};
    for (size_t i = 0; i < server->n_ports; i++) {
        fds[n++] = (struct pollfd){.fd = server->ports[i].socket_fd, .events = POLLIN};
        fds[n++] = (struct pollfd){.fd = server->ports[i].monitor_fd, .events = POLLIN};
    }
    while (!__atomic_load_n(&server->stop, __ATOMIC_ACQUIRE)) {
        zap_run(server);
        for (size_t i = 0; i < server->n_ports; i++) {
            run_port(server, &server->ports[i]);
            run_monitor(server, &server->ports[i]);
        }
        poll(fds, n, -1);
        if (fds[0].revents) {
            eventfd_t count;
            eventfd_read(server->wake_fd, &count);
        }
    }
    free(fds);
    return NULL;
}

/* ---------------------------------------------------------------- answering */

/* Remove a guest that waits for its answer from the server's list. @return whether the guest is
 * still connected */
static bool unlink_pending_locked(struct weir_zmq_pending *pending)
{
    struct weir_zmq_pending **at = &pending->server->pendings;
    while (*at && *at != pending) {
        at = &(*at)->next;
    }
    if (*at) {
        *at = pending->next;
    }
    return !pending->is_gone;
}

enum weir_status weir_zmq_accept(struct weir_zmq_pending *pending,
                                 const struct weir_welcome_params *params,
                                 struct weir_transport **ret_transport)
{
    struct weir_zmq_server *server = pending->server;
    struct weir_zmq_session *session = NULL;
    struct weir_control_bytes bytes = {0};
    struct weir_welcome welcome;
    weir_welcome_prepare(params, &welcome);
    weir_text_set(welcome.transport, sizeof welcome.transport, "zmq");
    enum weir_status status = weir_zmq_session_create(server, &params->segment, &session);
    if (status == WEIR_OK) {
        welcome.n_words = session->view.n_words;
        welcome.arena_bytes = session->view.arena_bytes;
        status = weir_welcome_encode(&welcome, &bytes);
    }
    pthread_mutex_lock(&server->lock);
    bool is_there = unlink_pending_locked(pending);
    if (status == WEIR_OK) {
        status = is_there ? weir_zmq_send_welcome_locked(server, &pending->address, &bytes)
                          : WEIR_ERR_CLOSED;
    } else if (is_there) {
        weir_zmq_send_refusal_locked(server, &pending->address, status, 0, "host out of resources");
    }
    if (status == WEIR_OK) {
        session->address = pending->address;
        WEIR_PUSH(server->sessions, session);
    }
    pthread_mutex_unlock(&server->lock);
    free(bytes.bytes);
    free(pending);
    if (status == WEIR_OK) {
        *ret_transport = &session->base;
    } else {
        weir_zmq_session_free(session);
    }
    return status;
}

void weir_zmq_refuse(struct weir_zmq_pending *pending, enum weir_status reason, int32_t result,
                     const char *message)
{
    pthread_mutex_lock(&pending->server->lock);
    if (unlink_pending_locked(pending)) {
        weir_zmq_send_refusal_locked(pending->server, &pending->address, reason, result, message);
    }
    pthread_mutex_unlock(&pending->server->lock);
    free(pending);
}

/* ---------------------------------------------------------------- starting and stopping */

static bool set_int(void *socket, int option, int value)
{
    return zmq_setsockopt(socket, option, &value, sizeof value) == 0;
}

static enum weir_status open_zap(struct weir_zmq_server *server)
{
    server->zap = zmq_socket(server->ctx, ZMQ_REP);
    WEIR_FAIL_IF(!server->zap, WEIR_ERR_NO_MEMORY);
    WEIR_FAIL_IF(!set_int(server->zap, ZMQ_LINGER, 0) || zmq_bind(server->zap, ZAP_ADDRESS) != 0,
                 WEIR_ERR_IO);
    server->zap_fd = weir_zmq_fd(&linked, server->zap);
    return WEIR_OK;
}

static enum weir_status secure_port(struct weir_zmq_port *port, const char *secret_key)
{
    static const char domain[] = "weir";
    WEIR_FAIL_IF(!secret_key || !weir_key_valid(secret_key), WEIR_ERR_INVALID);
    bool done = set_int(port->socket, ZMQ_CURVE_SERVER, 1) &&
                zmq_setsockopt(port->socket, ZMQ_CURVE_SECRETKEY, secret_key,
                               WEIR_KEY_TEXT_BYTES - 1) == 0 &&
                zmq_setsockopt(port->socket, ZMQ_ZAP_DOMAIN, domain, strlen(domain)) == 0;
    return done ? WEIR_OK : WEIR_ERR_UNSUPPORTED; /* fails with a libzmq without CURVE */
}

/* Accept from a socket that other processes also hold, which listens longer than this process. */
static enum weir_status use_listener(struct weir_zmq_port *port, int fd)
{
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 0); /* libzmq closes it */
    WEIR_FAIL_IF(own < 0, WEIR_ERR_IO);
    if (!set_int(port->socket, ZMQ_USE_FD, own)) {
        close(own);
        return WEIR_ERR_UNSUPPORTED;
    }
    return WEIR_OK;
}

/* @param bound the socket listens at that endpoint already. */
static enum weir_status bind_port(struct weir_zmq_port *port, const char *endpoint, bool bound)
{
    if (zmq_bind(port->socket, endpoint) != 0) {
        int error = zmq_errno();
        return error == EADDRINUSE ? WEIR_ERR_EXISTS
               : error == EINVAL   ? WEIR_ERR_INVALID
                                   : WEIR_ERR_IO;
    }
    size_t len = sizeof port->bound;
    WEIR_FAIL_IF(zmq_getsockopt(port->socket, ZMQ_LAST_ENDPOINT, port->bound, &len) != 0,
                 WEIR_ERR_IO);
    WEIR_FAIL_IF(!port->is_tcp && !bound && chmod(endpoint + strlen("ipc://"), IPC_MODE) != 0,
                 WEIR_ERR_IO);
    port->socket_fd = weir_zmq_fd(&linked, port->socket);
    return port->socket_fd >= 0 ? WEIR_OK : WEIR_ERR_IO;
}

static enum weir_status open_monitor(struct weir_zmq_server *server, struct weir_zmq_port *port)
{
    char address[64];
    snprintf(address, sizeof address, "inproc://weir-monitor-%td", port - server->ports);
    port->monitor = zmq_socket(server->ctx, ZMQ_PAIR);
    WEIR_FAIL_IF(!port->monitor, WEIR_ERR_NO_MEMORY);
    bool done = set_int(port->monitor, ZMQ_LINGER, 0) && set_int(port->monitor, ZMQ_RCVHWM, 0) &&
                zmq_socket_monitor(port->socket, address, MONITOR_EVENTS) == 0 &&
                zmq_connect(port->monitor, address) == 0;
    port->monitor_fd = done ? weir_zmq_fd(&linked, port->monitor) : -1;
    return port->monitor_fd >= 0 ? WEIR_OK : WEIR_ERR_IO;
}

static enum weir_status open_port(struct weir_zmq_server *server, struct weir_zmq_port *port,
                                  const char *endpoint, const struct weir_zmq_server_params *params)
{
    port->is_tcp = strncmp(endpoint, "tcp://", 6) == 0;
    WEIR_FAIL_IF(!port->is_tcp && strncmp(endpoint, "ipc://", 6) != 0, WEIR_ERR_INVALID);
    port->socket = zmq_socket(server->ctx, ZMQ_ROUTER);
    WEIR_FAIL_IF(!port->socket, WEIR_ERR_NO_MEMORY);
    enum weir_status status = WEIR_OK;
    if (!weir_zmq_socket_setup(&linked, port->socket) || !set_int(port->socket, ZMQ_LINGER, 0) ||
        !set_int(port->socket, ZMQ_ROUTER_MANDATORY, 1)) {
        status = WEIR_ERR_IO;
    }
    if (status == WEIR_OK && port->is_tcp) {
        status = secure_port(port, params->secret_key);
    }
    int listener = port->is_tcp ? params->tcp_fd : params->ipc_fd;
    if (status == WEIR_OK && listener > 0) {
        status = use_listener(port, listener);
    }
    if (status == WEIR_OK) {
        status = open_monitor(server, port); /* before any peer can connect */
    }
    return status == WEIR_OK ? bind_port(port, endpoint, listener > 0) : status;
}

static enum weir_status start_thread(struct weir_zmq_server *server)
{
    server->has_thread = weir_thread_start(&server->thread, 0, run, server) == 0;
    return server->has_thread ? WEIR_OK : WEIR_ERR_NO_MEMORY;
}

static enum weir_status open_server(struct weir_zmq_server *server,
                                    const struct weir_zmq_server_params *params)
{
    server->ctx = zmq_ctx_new();
    server->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    server->ports = calloc(params->n_endpoints, sizeof *server->ports);
    WEIR_FAIL_IF(!server->ctx || server->wake_fd < 0 || !server->ports, WEIR_ERR_NO_MEMORY);
    enum weir_status status = open_zap(server);
    for (size_t i = 0; status == WEIR_OK && i < params->n_endpoints; i++) {
        server->n_ports++;
        status = open_port(server, &server->ports[i], params->endpoints[i], params);
    }
    return status == WEIR_OK ? start_thread(server) : status;
}

enum weir_status weir_zmq_server_create(const struct weir_zmq_server_params *params,
                                        struct weir_zmq_server **ret_server)
{
    WEIR_FAIL_IF(params->n_endpoints == 0, WEIR_ERR_INVALID);
    struct weir_zmq_server *server = calloc(1, sizeof *server);
    WEIR_FAIL_IF(!server, WEIR_ERR_NO_MEMORY);
    server->api = &linked;
    server->params = *params;
    server->params.endpoints = NULL;
    server->params.secret_key = NULL;
    server->wake_fd = -1;
    server->zap_fd = -1;
    pthread_mutex_init(&server->lock, NULL);
    weir_log_rate_init(&server->log_rate);
    weir_zmq_accept_guard(expects);
    pthread_mutex_lock(&servers.lock);
    WEIR_PUSH(servers.first, server);
    pthread_mutex_unlock(&servers.lock);
    int saved_errno = errno;
    enum weir_status status = open_server(server, params);
    errno = saved_errno;
    if (status == WEIR_OK) {
        *ret_server = server;
    } else {
        weir_zmq_server_destroy(server);
    }
    return status;
}

static void take_out(struct weir_zmq_server *server)
{
    WEIR_LOCKED(&servers.lock);
    WEIR_UNLINK(servers.first, server, next);
}

void weir_zmq_server_destroy(struct weir_zmq_server *server)
{
    if (!server) {
        return;
    }
    take_out(server);
    if (server->has_thread) {
        __atomic_store_n(&server->stop, 1, __ATOMIC_RELEASE);
        eventfd_write(server->wake_fd, 1);
        pthread_join(server->thread, NULL);
    }
    for (size_t i = 0; i < server->n_ports; i++) {
        struct weir_zmq_port *port = &server->ports[i];
        if (port->monitor) {
            zmq_socket_monitor(port->socket, NULL, 0);
            zmq_close(port->monitor);
        }
        if (port->socket) {
            zmq_close(port->socket);
        }
    }
    if (server->zap) {
        zmq_close(server->zap);
    }
    if (server->ctx) {
        zmq_ctx_term(server->ctx);
    }
    weir_fd_close(server->wake_fd);
    free(server->ports);
    weir_log_rate_finish(&server->log_rate);
    pthread_mutex_destroy(&server->lock);
    free(server);
}

const char *weir_zmq_server_endpoint(const struct weir_zmq_server *server, size_t index)
{
    return index < server->n_ports ? server->ports[index].bound : NULL;
}
