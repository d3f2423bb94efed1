/*
 * The server's loop has one thread, which alone touches connections and nghttp2. A call belongs to
 * two: to its stream, until that closes, and to whoever answers it, until weir_grpc_end(). Answers
 * are bytes in the call under the server's lock; an eventfd wakes the loop, which hands them on.
 *
 * A gRPC message is five bytes before the protobuf: 0 (not compressed), and the length.
 */
#include "kubernetes/grpc.h"

#include <errno.h>
#include <nghttp2/nghttp2.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define CONNECTIONS_MAX 32
#define LISTENERS_MAX   4
#define MESSAGE_MAX     (1u << 20)
#define HEAD_BYTES      5u

struct weir_grpc_call {
    struct weir_grpc *server;
    struct weir_grpc_call *next;
    struct connection *connection; /* NULL: the stream is closed; under the lock */
    int32_t stream;
    const struct weir_grpc_method *method;
    bool begun;    /* headers are sent; the loop's */
    bool answered; /* whoever answers has ended it; under the lock, as all below */
    uint8_t *out;  /* what is still to be sent */
    size_t out_bytes, out_sent;
    enum weir_grpc_code code;
    char why[512];
    uint8_t *in; /* the request; the loop's */
    size_t in_bytes;
};

struct connection {
    int fd; /* -1: free */
    nghttp2_session *session;
    struct weir_grpc *server;
};

struct weir_grpc {
    const struct weir_grpc_method *methods;
    void *user;
    int wake_fd;
    atomic_bool stops;
    pthread_mutex_t lock; /* guards calls and what their fields say */
    struct weir_grpc_call *calls;
    struct connection connections[CONNECTIONS_MAX];
    struct {
        int fd;
        char path[108];
    } listeners[LISTENERS_MAX];
    uint32_t n_listeners;
};

/* ---------------------------------------------------------------- calls */

static void free_call(struct weir_grpc_call *call)
{
    free(call->in);
    free(call->out);
    free(call);
}

/* Free the call if neither its stream nor anybody who answers has it. Takes it out of the list. */
static void drop_locked(struct weir_grpc *server, struct weir_grpc_call *call)
{
    struct weir_grpc_call **at = &server->calls;

    if (call->connection || !call->answered) {
        return;
    }
    while (*at != call) {
        at = &(*at)->next;
    }
    *at = call->next;
    free_call(call);
}

void weir_grpc_wake(struct weir_grpc *server)
{
    (void)!write(server->wake_fd, &(uint64_t){1}, sizeof(uint64_t));
}

void weir_grpc_stop(struct weir_grpc *server)
{
    atomic_store(&server->stops, true);
    weir_grpc_wake(server);
}

void weir_grpc_send(struct weir_grpc_call *call, const uint8_t *message, size_t bytes)
{
    struct weir_grpc *server = call->server;
    uint8_t *bigger;

    pthread_mutex_lock(&server->lock);
    bigger = call->connection ? realloc(call->out, call->out_bytes + HEAD_BYTES + bytes) : NULL;
    if (bigger) {
        uint8_t *head = bigger + call->out_bytes;

        call->out = bigger;
        head[0] = 0;
        for (int i = 0; i < 4; i++) {
            head[1 + i] = (uint8_t)(bytes >> (24 - 8 * i));
        }
        if (bytes != 0) {
            memcpy(head + HEAD_BYTES, message, bytes);
        }
        call->out_bytes += HEAD_BYTES + bytes;
    }
    pthread_mutex_unlock(&server->lock);
    weir_grpc_wake(server);
}

void weir_grpc_end(struct weir_grpc_call *call, enum weir_grpc_code code, const char *why)
{
    struct weir_grpc *server = call->server;

    pthread_mutex_lock(&server->lock);
    call->answered = true;
    call->code = code;
    snprintf(call->why, sizeof call->why, "%s", code != WEIR_GRPC_OK ? why : "");
    drop_locked(server, call);
    pthread_mutex_unlock(&server->lock);
    weir_grpc_wake(server);
}

bool weir_grpc_has_gone(struct weir_grpc_call *call)
{
    bool gone;

    pthread_mutex_lock(&call->server->lock);
    gone = !call->connection;
    pthread_mutex_unlock(&call->server->lock);
    return gone;
}

/* ---------------------------------------------------------------- what nghttp2 calls */

static nghttp2_nv pair(const char *name, const char *value)
{
    return (nghttp2_nv){.name = (uint8_t *)(uintptr_t)name,
                        .value = (uint8_t *)(uintptr_t)value,
                        .namelen = strlen(name),
                        .valuelen = strlen(value)};
}

/* A status text as gRPC has it in a header: percent-encoded. */
static void encode(const char *text, char encoded[3 * 512])
{
    for (; *text != 0; text++) {
        bool plain = *text >= ' ' && *text <= '~' && *text != '%';

        encoded += snprintf(encoded, 4, plain ? "%c" : "%%%02X", (unsigned char)*text);
    }
    *encoded = 0;
}

static int submit_trailers(struct weir_grpc_call *call, nghttp2_session *session)
{
    char code[8], why[3 * 512];
    nghttp2_nv trailers[2];

    snprintf(code, sizeof code, "%d", (int)call->code);
    encode(call->why, why);
    trailers[0] = pair("grpc-status", code);
    trailers[1] = pair("grpc-message", why);
    return nghttp2_submit_trailer(session, call->stream, trailers, *why != 0 ? 2 : 1);
}

static ssize_t on_wants_data(nghttp2_session *session, int32_t stream, uint8_t *to, size_t room,
                             uint32_t *flags, nghttp2_data_source *source, void *user)
{
    struct weir_grpc_call *call = source->ptr;
    ssize_t n = NGHTTP2_ERR_DEFERRED;
    size_t left;

    (void)stream;
    (void)user;
    pthread_mutex_lock(&call->server->lock);
    left = call->out_bytes - call->out_sent;
    if (left != 0) {
        left = left < room ? left : room;
        memcpy(to, call->out + call->out_sent, left);
        call->out_sent += left;
        n = (ssize_t)left;
        if (call->out_sent == call->out_bytes) {
            call->out_bytes = call->out_sent = 0;
        }
    } else if (call->answered) {
        *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
        n = submit_trailers(call, session) == 0 ? 0 : NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    }
    pthread_mutex_unlock(&call->server->lock);
    return n;
}

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    struct connection *c = user;
    struct weir_grpc_call *call;

    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST) {
        return 0;
    }
    call = calloc(1, sizeof *call);
    if (!call) {
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    }
    call->server = c->server;
    call->connection = c;
    call->stream = frame->hd.stream_id;
    call->answered = true; /* nobody has it yet but its stream */
    call->code = WEIR_GRPC_UNIMPLEMENTED;
    pthread_mutex_lock(&c->server->lock);
    call->next = c->server->calls;
    c->server->calls = call;
    pthread_mutex_unlock(&c->server->lock);
    return nghttp2_session_set_stream_user_data(session, frame->hd.stream_id, call);
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_bytes, const uint8_t *value, size_t bytes, uint8_t flags,
                     void *user)
{
    struct connection *c = user;
    struct weir_grpc_call *call =
        nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);

    (void)flags;
    if (!call || name_bytes != 5 || memcmp(name, ":path", 5) != 0) {
        return 0;
    }
    for (const struct weir_grpc_method *m = c->server->methods; m->path; m++) {
        if (strlen(m->path) == bytes && memcmp(m->path, value, bytes) == 0) {
            call->method = m;
        }
    }
    return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t stream, const uint8_t *data,
                   size_t bytes, void *user)
{
    struct weir_grpc_call *call = nghttp2_session_get_stream_user_data(session, stream);
    uint8_t *bigger;

    (void)flags;
    (void)user;
    if (!call) {
        return 0;
    }
    bigger = bytes <= MESSAGE_MAX - call->in_bytes ? realloc(call->in, call->in_bytes + bytes + 1)
                                                   : NULL;
    if (!bigger) {
        return NGHTTP2_ERR_CALLBACK_FAILURE; /* too much: the connection ends */
    }
    call->in = bigger;
    memcpy(call->in + call->in_bytes, data, bytes);
    call->in_bytes += bytes;
    return 0;
}

/* The request's message. false: it is none of one message, not compressed. */
static bool message_of(const struct weir_grpc_call *call, const uint8_t **ret_message,
                       size_t *ret_bytes)
{
    size_t bytes = 0;

    if (call->in_bytes < HEAD_BYTES || call->in[0] != 0) {
        return false;
    }
    for (int i = 0; i < 4; i++) {
        bytes = bytes << 8 | call->in[1 + i];
    }
    *ret_message = call->in + HEAD_BYTES;
    *ret_bytes = bytes;
    return bytes == call->in_bytes - HEAD_BYTES;
}

/* The request is complete: let its method have it. */
static int begin_call(struct weir_grpc_call *call, nghttp2_session *session)
{
    const nghttp2_nv headers[] = {pair(":status", "200"), pair("content-type", "application/grpc")};
    const nghttp2_data_provider provider = {.source = {.ptr = call},
                                            .read_callback = on_wants_data};
    const uint8_t *message = NULL;
    size_t bytes = 0;

    call->begun = true;
    if (call->method && message_of(call, &message, &bytes)) {
        pthread_mutex_lock(&call->server->lock);
        call->answered = false;
        pthread_mutex_unlock(&call->server->lock);
        call->method->call(call->server->user, call, message, bytes);
    } else if (call->method) {
        call->code = WEIR_GRPC_INVALID;
    }
    return nghttp2_submit_response(session, call->stream, headers, 2, &provider) == 0
               ? 0
               : NGHTTP2_ERR_CALLBACK_FAILURE;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    struct weir_grpc_call *call =
        nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);

    (void)user;
    if (!call || call->begun || !(frame->hd.flags & NGHTTP2_FLAG_END_STREAM) ||
        (frame->hd.type != NGHTTP2_DATA && frame->hd.type != NGHTTP2_HEADERS)) {
        return 0;
    }
    return begin_call(call, session);
}

static void leave(struct weir_grpc *server, struct weir_grpc_call *call)
{
    pthread_mutex_lock(&server->lock);
    call->connection = NULL;
    drop_locked(server, call);
    pthread_mutex_unlock(&server->lock);
}

static int on_stream_closed(nghttp2_session *session, int32_t stream, uint32_t error, void *user)
{
    struct connection *c = user;
    struct weir_grpc_call *call = nghttp2_session_get_stream_user_data(session, stream);

    (void)error;
    if (call) {
        nghttp2_session_set_stream_user_data(session, stream, NULL);
        leave(c->server, call);
    }
    return 0;
}

static ssize_t on_send(nghttp2_session *session, const uint8_t *data, size_t bytes, int flags,
                       void *user)
{
    const struct connection *c = user;
    ssize_t n = send(c->fd, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);

    (void)session;
    (void)flags;
    if (n < 0) {
        return errno == EAGAIN || errno == EINTR ? NGHTTP2_ERR_WOULDBLOCK
                                                 : NGHTTP2_ERR_CALLBACK_FAILURE;
    }
    return n;
}

/* ---------------------------------------------------------------- connections */

/* The streams' calls lose their connection. Those that somebody answers go with their end. */
static void close_connection(struct connection *c)
{
    struct weir_grpc *server = c->server;
    struct weir_grpc_call *next;

    nghttp2_session_del(c->session);
    close(c->fd);
    pthread_mutex_lock(&server->lock);
    for (struct weir_grpc_call *call = server->calls; call; call = next) {
        next = call->next;
        if (call->connection == c) {
            call->connection = NULL;
            drop_locked(server, call);
        }
    }
    pthread_mutex_unlock(&server->lock);
    *c = (struct connection){.fd = -1};
}

static bool open_session(struct connection *c)
{
    const nghttp2_settings_entry settings = {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, 256};
    nghttp2_session_callbacks *callbacks = NULL;
    bool good = nghttp2_session_callbacks_new(&callbacks) == 0;

    if (!good) {
        return false;
    }
    nghttp2_session_callbacks_set_send_callback(callbacks, on_send);
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_closed);
    good = nghttp2_session_server_new(&c->session, callbacks, c) == 0;
    nghttp2_session_callbacks_del(callbacks);
    return good && nghttp2_submit_settings(c->session, NGHTTP2_FLAG_NONE, &settings, 1) == 0;
}

static void accept_one(struct weir_grpc *server, int listen_fd)
{
    int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    for (int i = 0; fd >= 0 && i < CONNECTIONS_MAX; i++) {
        struct connection *c = &server->connections[i];

        if (c->fd < 0) {
            *c = (struct connection){.fd = fd, .server = server};
            if (!open_session(c)) {
                close_connection(c);
            }
            return;
        }
    }
    if (fd >= 0) {
        close(fd);
    }
}

/* @return false: the connection is over */
static bool receive(struct connection *c)
{
    uint8_t data[16384];
    ssize_t n = recv(c->fd, data, sizeof data, MSG_DONTWAIT);

    if (n < 0) {
        return errno == EAGAIN || errno == EINTR;
    }
    return n > 0 && nghttp2_session_mem_recv(c->session, data, (size_t)n) == n;
}

/* Streams whose calls have something to send again. */
static void resume(struct weir_grpc *server)
{
    pthread_mutex_lock(&server->lock);
    for (struct weir_grpc_call *call = server->calls; call; call = call->next) {
        if (call->connection && call->begun && (call->answered || call->out_bytes != 0)) {
            (void)nghttp2_session_resume_data(call->connection->session, call->stream);
        }
    }
    pthread_mutex_unlock(&server->lock);
}

static void turn(struct weir_grpc *server)
{
    struct pollfd fds[1 + LISTENERS_MAX + CONNECTIONS_MAX] = {{server->wake_fd, POLLIN, 0}};
    struct connection *of[CONNECTIONS_MAX];
    nfds_t n = 1, n_of = 0;
    uint64_t count;

    for (uint32_t i = 0; i < server->n_listeners; i++) {
        fds[n++] = (struct pollfd){server->listeners[i].fd, POLLIN, 0};
    }
    for (int i = 0; i < CONNECTIONS_MAX; i++) {
        struct connection *c = &server->connections[i];

        if (c->fd >= 0) {
            fds[n++] = (struct pollfd){
                c->fd, (short)(POLLIN | (nghttp2_session_want_write(c->session) ? POLLOUT : 0)), 0};
            of[n_of++] = c;
        }
    }
    (void)poll(fds, n, 1000);
    (void)!read(server->wake_fd, &count, sizeof count);
    for (nfds_t i = 0; i < n_of; i++) {
        const struct pollfd *p = &fds[1 + server->n_listeners + i];

        if ((p->revents & (POLLIN | POLLHUP | POLLERR)) != 0 && !receive(of[i])) {
            close_connection(of[i]);
        }
    }
    for (uint32_t i = 0; i < server->n_listeners; i++) {
        if ((fds[1 + i].revents & POLLIN) != 0) {
            accept_one(server, server->listeners[i].fd);
        }
    }
    resume(server);
    for (int i = 0; i < CONNECTIONS_MAX; i++) {
        struct connection *c = &server->connections[i];

        if (c->fd >= 0 &&
            (nghttp2_session_send(c->session) != 0 ||
             (!nghttp2_session_want_read(c->session) && !nghttp2_session_want_write(c->session)))) {
            close_connection(c);
        }
    }
}

void weir_grpc_run(struct weir_grpc *server, void (*tick)(void *user))
{
    while (!atomic_load(&server->stops)) {
        turn(server);
        tick(server->user);
    }
}

enum weir_status weir_grpc_listen(struct weir_grpc *server, const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd;

    if (server->n_listeners == LISTENERS_MAX || strlen(path) >= sizeof address.sun_path) {
        return WEIR_ERR_TOO_BIG;
    }
    memcpy(address.sun_path, path, strlen(path) + 1);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    (void)unlink(path);
    if (fd < 0 || bind(fd, (const struct sockaddr *)(const void *)&address, sizeof address) != 0 ||
        chmod(path, 0600) != 0 || listen(fd, 16) != 0) {
        if (fd >= 0) {
            close(fd);
        }
        return WEIR_ERR_IO;
    }
    memcpy(server->listeners[server->n_listeners].path, path, strlen(path) + 1);
    server->listeners[server->n_listeners++].fd = fd;
    return WEIR_OK;
}

enum weir_status weir_grpc_create(const struct weir_grpc_method *methods, void *user,
                                  struct weir_grpc **ret_server)
{
    struct weir_grpc *server = calloc(1, sizeof *server);

    if (!server) {
        return WEIR_ERR_NO_MEMORY;
    }
    server->methods = methods;
    server->user = user;
    pthread_mutex_init(&server->lock, NULL);
    for (int i = 0; i < CONNECTIONS_MAX; i++) {
        server->connections[i].fd = -1;
    }
    server->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (server->wake_fd < 0) {
        free(server);
        return WEIR_ERR_IO;
    }
    *ret_server = server;
    return WEIR_OK;
}

void weir_grpc_unlink(struct weir_grpc *server)
{
    for (uint32_t i = 0; i < server->n_listeners; i++) {
        (void)unlink(server->listeners[i].path);
    }
}

void weir_grpc_destroy(struct weir_grpc *server)
{
    if (!server) {
        return;
    }
    weir_grpc_unlink(server);
    for (uint32_t i = 0; i < server->n_listeners; i++) {
        close(server->listeners[i].fd);
    }
    for (int i = 0; i < CONNECTIONS_MAX; i++) {
        if (server->connections[i].fd >= 0) {
            close_connection(&server->connections[i]);
        }
    }
    close(server->wake_fd);
    pthread_mutex_destroy(&server->lock);
    free(server);
}
