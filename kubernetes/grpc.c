/*
 * Each connection has a thread that reads, and each request a thread that answers. The connection's
 * lock guards the session of nghttp2 and all calls; a thread that holds it lets nghttp2 send. A
 * call exists until its stream is closed and its thread has ended.
 *
 * A gRPC message is five bytes before the protobuf: 0 (not compressed), and the length.
 */
#include "kubernetes/grpc.h"

#include "base/fd.h"
#include "base/thread.h"
#include <errno.h>
#include <nghttp2/nghttp2.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* kubelet has one connection for registration and one for claims, and new ones when it restarts.
 * Other clients may open one for each call. */
#define CONNECTIONS_MAX 32
/* Requests of a connection at a time; its client queues further ones. kubelet sends one for each
 * pod, and the Weir host answers 64 requests at a time. */
#define STREAMS_MAX 48
#define STACK_BYTES ((size_t)512 << 10) /* libcurl and TLS take some 100 KiB */
#define SEND_S      10                  /* a client that reads nothing for so long is gone */
#define MESSAGE_MAX (1u << 20)
#define HEAD_BYTES  5u

struct weir_grpc_call {
    struct connection *connection;
    struct weir_grpc_call *next;
    const struct weir_grpc_method *method;
    int32_t stream;
    bool closed;  /* its stream is */
    bool running; /* a thread has it */
    bool begun;
    enum weir_grpc_code code;
    const char *why;   /* why the call failed; NULL: no reason is sent */
    uint8_t *in, *out; /* the request; the part of the answer that is still to be sent */
    size_t in_bytes, out_bytes, out_sent;
};

struct connection {
    int fd;
    nghttp2_session *session;
    const struct weir_grpc_method *methods;
    void *user;
    pthread_mutex_t lock; /* guards session and calls */
    struct weir_grpc_call *calls;
    bool over;
};

struct listener {
    int fd;
    const struct weir_grpc_method *methods;
    void *user;
};

static atomic_int n_connections;

/* ---------------------------------------------------------------- calls, with the lock held */

/* Free the call if its stream is closed and its thread has ended. */
static void drop(struct weir_grpc_call *call)
{
    struct weir_grpc_call **at = &call->connection->calls;

    if (!call->closed || call->running) {
        return;
    }
    while (*at != call) {
        at = &(*at)->next;
    }
    *at = call->next;
    free(call->in);
    free(call->out);
    free(call);
}

static void send_all(struct connection *c)
{
    if (!c->over && nghttp2_session_send(c->session) != 0) {
        c->over = true;
        (void)shutdown(c->fd, SHUT_RDWR); /* the connection's thread ends it */
    }
}

/* Unlock the connection, and free it if its end has come and nothing uses it any more. */
static void leave(struct connection *c)
{
    bool last = c->over && !c->calls && !c->session;

    pthread_mutex_unlock(&c->lock);
    if (last) {
        pthread_mutex_destroy(&c->lock);
        free(c);
        atomic_fetch_sub(&n_connections, 1);
    }
}

bool weir_grpc_send(struct weir_grpc_call *call, const uint8_t *message, size_t bytes)
{
    const uint8_t head[HEAD_BYTES] = {0, (uint8_t)(bytes >> 24), (uint8_t)(bytes >> 16),
                                      (uint8_t)(bytes >> 8), (uint8_t)bytes};
    struct connection *c = call->connection;
    uint8_t *bigger = NULL;

    WEIR_LOCKED(&c->lock);
    if (!call->closed) {
        bigger = realloc(call->out, call->out_bytes + HEAD_BYTES + bytes);
    }
    if (bigger) {
        call->out = bigger;
        memcpy(bigger + call->out_bytes, head, HEAD_BYTES);
        if (bytes != 0) {
            memcpy(bigger + call->out_bytes + HEAD_BYTES, message, bytes);
        }
        call->out_bytes += HEAD_BYTES + bytes;
        (void)nghttp2_session_resume_data(c->session, call->stream);
        send_all(c);
    }
    return bigger;
}

enum weir_grpc_code weir_grpc_refuse(struct weir_grpc_call *call, const char *why)
{
    call->why = why; /* read when the thread no longer has the call */
    return WEIR_GRPC_INVALID;
}

/* Get the request's message. NULL: the request is not a single uncompressed message. */
static const uint8_t *message_of(const struct weir_grpc_call *call, size_t *ret_bytes)
{
    const uint8_t *in = call->in;

    *ret_bytes = call->in_bytes - HEAD_BYTES;
    return call->in_bytes >= HEAD_BYTES && in[0] == 0 &&
                   ((uint32_t)in[1] << 24 | in[2] << 16 | in[3] << 8 | in[4]) == *ret_bytes
               ? in + HEAD_BYTES
               : NULL;
}

static void *run_call(void *user)
{
    struct weir_grpc_call *call = user;
    struct connection *c = call->connection;
    size_t bytes;
    const uint8_t *message = message_of(call, &bytes);
    enum weir_grpc_code code =
        message ? call->method->run(c->user, call, message, bytes) : WEIR_GRPC_INVALID;

    pthread_mutex_lock(&c->lock);
    call->code = code;
    call->running = false;
    if (!call->closed) {
        (void)nghttp2_session_resume_data(c->session, call->stream);
        send_all(c); /* may close the stream, and free the call */
    } else {
        drop(call);
    }
    leave(c);
    return NULL;
}

/* ---------------------------------------------------------------- nghttp2's callbacks, likewise */

static nghttp2_nv pair(const char *name, const char *value)
{
    return (nghttp2_nv){.name = (uint8_t *)(uintptr_t)name,
                        .value = (uint8_t *)(uintptr_t)value,
                        .namelen = strlen(name),
                        .valuelen = strlen(value)};
}

static ssize_t on_wants_data(nghttp2_session *session, int32_t stream, uint8_t *to, size_t room,
                             uint32_t *flags, nghttp2_data_source *source, void *user)
{
    struct weir_grpc_call *call = source->ptr;
    size_t left = call->out_bytes - call->out_sent;
    char code[8];
    nghttp2_nv trailers[2];

    (void)user;
    if (left != 0) {
        left = WEIR_MIN(left, room);
        memcpy(to, call->out + call->out_sent, left);
        call->out_sent += left;
        if (call->out_sent == call->out_bytes) {
            call->out_bytes = call->out_sent = 0;
        }
        return (ssize_t)left;
    }
    if (call->running) {
        return NGHTTP2_ERR_DEFERRED;
    }
    *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
    snprintf(code, sizeof code, "%d", (int)call->code);
    trailers[0] = pair("grpc-status", code);
    trailers[1] = pair("grpc-message", call->why ? call->why : "");
    return nghttp2_submit_trailer(session, stream, trailers, 2) == 0
               ? 0
               : NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
}

/* Each request has one :path header: begin its call there. */
static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_bytes, const uint8_t *value, size_t bytes, uint8_t flags,
                     void *user)
{
    struct connection *c = user;

    (void)flags;
    if (name_bytes != 5 || memcmp(name, ":path", 5) != 0) {
        return 0;
    }
    struct weir_grpc_call *call = calloc(1, sizeof *call);
    if (!call) {
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    }
    *call = (struct weir_grpc_call){.connection = c,
                                    .next = c->calls,
                                    .stream = frame->hd.stream_id,
                                    .code = WEIR_GRPC_UNIMPLEMENTED};
    c->calls = call;
    for (const struct weir_grpc_method *m = c->methods; m->path; m++) {
        if (strlen(m->path) == bytes && memcmp(m->path, value, bytes) == 0) {
            call->method = m;
        }
    }
    return nghttp2_session_set_stream_user_data(session, frame->hd.stream_id, call);
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t stream, const uint8_t *data,
                   size_t bytes, void *user)
{
    struct weir_grpc_call *call = nghttp2_session_get_stream_user_data(session, stream);

    (void)flags;
    (void)user;
    if (!call || call->begun) {
        return 0;
    }
    uint8_t *bigger = bytes <= MESSAGE_MAX - call->in_bytes
                          ? realloc(call->in, call->in_bytes + bytes + 1)
                          : NULL;
    if (!bigger) {
        return NGHTTP2_ERR_CALLBACK_FAILURE; /* too much: the connection ends */
    }
    call->in = bigger;
    memcpy(call->in + call->in_bytes, data, bytes);
    call->in_bytes += bytes;
    return 0;
}

/* If the request is complete, start a thread for its method. */
static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    const nghttp2_nv headers[] = {pair(":status", "200"), pair("content-type", "application/grpc")};
    struct weir_grpc_call *call =
        nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    const nghttp2_data_provider provider = {.source = {.ptr = call},
                                            .read_callback = on_wants_data};
    pthread_t thread;

    (void)user;
    if (!call || call->begun || !(frame->hd.flags & NGHTTP2_FLAG_END_STREAM) ||
        (frame->hd.type != NGHTTP2_DATA && frame->hd.type != NGHTTP2_HEADERS)) {
        return 0;
    }
    call->begun = true;
    if (call->method) {
        call->running = weir_thread_start(&thread, STACK_BYTES, run_call, call) == 0 &&
                        pthread_detach(thread) == 0; /* it takes the lock before it ends */
        call->code = WEIR_GRPC_EXHAUSTED;
    }
    return nghttp2_submit_response(session, call->stream, headers, 2, &provider) == 0
               ? 0
               : NGHTTP2_ERR_CALLBACK_FAILURE;
}

static int on_stream_closed(nghttp2_session *session, int32_t stream, uint32_t error, void *user)
{
    struct weir_grpc_call *call = nghttp2_session_get_stream_user_data(session, stream);

    (void)error;
    (void)user;
    if (call) {
        nghttp2_session_set_stream_user_data(session, stream, NULL);
        call->closed = true;
        drop(call);
    }
    return 0;
}

static ssize_t on_send(nghttp2_session *session, const uint8_t *data, size_t bytes, int flags,
                       void *user)
{
    const struct connection *c = user;
    ssize_t n = send(c->fd, data, bytes, MSG_NOSIGNAL); /* for SEND_S at most */

    (void)session;
    (void)flags;
    return n < 0 ? NGHTTP2_ERR_CALLBACK_FAILURE : n;
}

/* ---------------------------------------------------------------- connections */

static bool open_session(struct connection *c)
{
    const nghttp2_settings_entry settings = {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, STREAMS_MAX};
    nghttp2_session_callbacks *callbacks = NULL;
    bool good = nghttp2_session_callbacks_new(&callbacks) == 0;

    if (good) {
        nghttp2_session_callbacks_set_send_callback(callbacks, on_send);
        nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
        nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
        nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
        nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_closed);
        good = nghttp2_session_server_new(&c->session, callbacks, c) == 0 &&
               nghttp2_submit_settings(c->session, NGHTTP2_FLAG_NONE, &settings, 1) == 0;
        nghttp2_session_callbacks_del(callbacks);
    }
    return good;
}

/* Receive until the client or nghttp2 ends the connection; then close all streams. */
static void *run_connection(void *user)
{
    struct connection *c = user;
    struct weir_grpc_call *next;
    uint8_t data[16384];
    ssize_t n = 0;

    pthread_mutex_lock(&c->lock);
    c->over = !open_session(c);
    send_all(c);
    while (!c->over &&
           (nghttp2_session_want_read(c->session) || nghttp2_session_want_write(c->session))) {
        pthread_mutex_unlock(&c->lock);
        n = recv(c->fd, data, sizeof data, 0);
        pthread_mutex_lock(&c->lock);
        c->over |= n <= 0 || nghttp2_session_mem_recv(c->session, data, (size_t)n) != n;
        send_all(c);
    }
    c->over = true;
    nghttp2_session_del(c->session);
    c->session = NULL;
    close(c->fd);
    for (struct weir_grpc_call *call = c->calls; call; call = next) {
        next = call->next;
        call->closed = true;
        drop(call);
    }
    leave(c);
    return NULL;
}

static void begin_connection(const struct listener *l, int fd)
{
    const struct timeval wait = {.tv_sec = SEND_S};
    struct connection *c =
        atomic_fetch_add(&n_connections, 1) < CONNECTIONS_MAX ? calloc(1, sizeof *c) : NULL;
    pthread_t thread;

    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait);
    if (c) {
        *c = (struct connection){.fd = fd, .methods = l->methods, .user = l->user};
        pthread_mutex_init(&c->lock, NULL);
        if (weir_thread_start(&thread, STACK_BYTES, run_connection, c) == 0) {
            pthread_detach(thread);
            return;
        }
    }
    free(c);
    close(fd);
    atomic_fetch_sub(&n_connections, 1);
}

static void *run_listener(void *user)
{
    struct listener *l = user;

    for (;;) {
        int fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC);

        if (fd >= 0) {
            begin_connection(l, fd);
        } else if (errno == EINVAL) { /* it is shut down */
            break;
        } else { /* all descriptors are in use: wait for a moment */
            (void)usleep(100 * 1000);
        }
    }
    close(l->fd);
    free(l);
    return NULL;
}

enum weir_status weir_grpc_listen(const char *path, const struct weir_grpc_method *methods,
                                  void *user, int *ret_fd)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    pthread_t thread;

    WEIR_FAIL_IF(strlen(path) >= sizeof address.sun_path, WEIR_ERR_TOO_BIG);
    struct listener *l = malloc(sizeof *l);
    WEIR_FAIL_IF(!l, WEIR_ERR_NO_MEMORY);
    memcpy(address.sun_path, path, strlen(path) + 1);
    *l = (struct listener){socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), methods, user};
    (void)unlink(path);
    if (l->fd < 0 ||
        bind(l->fd, (const struct sockaddr *)(const void *)&address, sizeof address) != 0 ||
        chmod(path, 0600) != 0 || listen(l->fd, 16) != 0 ||
        weir_thread_start(&thread, STACK_BYTES, run_listener, l) != 0) {
        weir_fd_close(l->fd);
        free(l);
        return WEIR_ERR_IO;
    }
    pthread_detach(thread);
    WEIR_GIVE(ret_fd, l->fd);
    return WEIR_OK;
}
