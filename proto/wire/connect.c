/*
 * The guest's handshake. Over ipc://PATH, a unix socket, the guest sends Hello and gets Welcome
 * with the segment's descriptor. The socket stays open to show when the other process ends. If
 * Welcome says zmq, a second Hello with Welcome's token goes to the worker's ZeroMQ endpoint.
 * tcp:// has one exchange, over ZeroMQ. connect_ivshmem.c and connect_stream.c are for virtual
 * machines.
 */
#include "proto/wire/connect.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/peer.h"
#include "proto/transport/fd_message.h"
#include "proto/transport/segment_map.h"
#include "proto/transport/shm.h"
#include "proto/wire/address.h"
#include "proto/wire/connect_ivshmem.h"
#include "proto/wire/connect_stream.h"
#include "proto/wire/control_codec.h"
#include "proto/wire/keys.h"
#include "proto/wire/unix_socket.h"
#ifdef WEIR_WITH_ZMQ
#include "proto/transport/zmq.h"
#endif
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Many contexts that are made at once may take this long. */
#define DEFAULT_TIMEOUT_NS (60 * WEIR_NS_PER_S)
#define AGAIN_FIRST_MS     10 /* pause between attempts while a worker restarts */
#define AGAIN_LAST_MS      160
#define CLOSED_PORT_NS     (1500 * WEIR_NS_PER_MS)
/* How long a host whose socket files exist may take to restart. A service manager starts it after
 * 0.1 s, and it listens long before its workers are ready. */
#define COMES_BACK_NS    (5 * WEIR_NS_PER_S)
#define CONNECT_RETRY_MS 2 /* a full backlog of a non-blocking unix socket cannot be polled for */

static bool transport_is_offered(enum weir_transport_id id)
{
#ifndef WEIR_WITH_ZMQ
    if (id == WEIR_TRANSPORT_ZMQ) {
        return false;
    }
#endif
    return weir_transport_kind(id)->negotiable;
}

static enum weir_status make_hello(const struct weir_connect_params *params,
                                   struct weir_hello *hello)
{
    *hello = (struct weir_hello){.protocol = WEIR_PROTOCOL,
                                 .ops = params->ops,
                                 .pid = (uint32_t)getpid(),
                                 .monitor = params->monitor};
    if (params->wish) {
        hello->wish = *params->wish;
    }
    weir_text_set(hello->version, sizeof hello->version, params->version);
    weir_text_set(hello->program, sizeof hello->program, params->program);
    if (params->transport) {
        enum weir_transport_id id = weir_transport_find(params->transport);
        WEIR_FAIL_IF(id == WEIR_TRANSPORT_COUNT || !weir_transport_kind(id)->negotiable,
                     WEIR_ERR_INVALID);
        WEIR_FAIL_IF(!transport_is_offered(id), WEIR_ERR_UNSUPPORTED);
    }
    for (int id = 0; id < WEIR_TRANSPORT_COUNT; id++) {
        const char *name = weir_transport_kind((enum weir_transport_id)id)->name;
        if (transport_is_offered((enum weir_transport_id)id) &&
            (!params->transport || strcmp(params->transport, name) == 0)) {
            weir_text_set(hello->transports[hello->n_transports++], WEIR_CONTROL_NAME_BYTES, name);
        }
    }
    return WEIR_OK;
}

static enum weir_status connect_unix(const char *path, uint64_t deadline_ns, int *ret_fd)
{
    struct sockaddr_un address;
    WEIR_FAIL_IF(weir_unix_address(path, &address) != WEIR_OK, WEIR_ERR_INVALID);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    WEIR_FAIL_IF(fd < 0, WEIR_ERR_IO);
    enum weir_status status;
    do {
        status = connect(fd, (const struct sockaddr *)&address, sizeof address) == 0
                     ? WEIR_OK
                     : weir_status_of_errno(errno);
        if (status == WEIR_ERR_AGAIN) {
            poll(NULL, 0, CONNECT_RETRY_MS);
        }
    } while (status == WEIR_ERR_AGAIN && weir_deadline_left_ns(deadline_ns) != 0);
    if (status != WEIR_OK) {
        close(fd);
        return status == WEIR_ERR_AGAIN ? WEIR_ERR_TIMED_OUT : status;
    }
    *ret_fd = fd;
    return WEIR_OK;
}

static enum weir_status send_hello(int fd, const struct weir_hello *hello, uint64_t deadline_ns)
{
    struct weir_control_bytes request = {0};
    enum weir_status status = weir_hello_encode(hello, &request);
    WEIR_THEN(status, weir_fd_message_send(fd, request.bytes, request.len, -1, deadline_ns));
    free(request.bytes);
    return status;
}

/* Send Hello and receive Welcome, with the segment's descriptor if one came (else -1). */
static enum weir_status exchange(int fd, const struct weir_hello *hello, uint64_t deadline_ns,
                                 struct weir_welcome **ret_welcome, int *ret_segment_fd)
{
    size_t len;
    int segment_fd = -1;
    uint8_t *answer = malloc(WEIR_CONTROL_MAX_BYTES);
    enum weir_status status = answer ? send_hello(fd, hello, deadline_ns) : WEIR_ERR_NO_MEMORY;
    /* A host that refuses at once may have closed before our Hello arrived: its answer can still be
     * read. */
    bool sent = status == WEIR_OK || (status == WEIR_ERR_CLOSED && answer);
    if (sent) {
        status = weir_peer_await(fd, deadline_ns);
    }
    if (sent && status != WEIR_ERR_STOPPED) {
        status = weir_fd_message_receive(fd, answer, WEIR_CONTROL_MAX_BYTES, deadline_ns, &len,
                                         &segment_fd);
    }
    WEIR_THEN(status, weir_welcome_decode(answer, len, ret_welcome));
    if (status == WEIR_OK) {
        *ret_segment_fd = segment_fd;
    } else {
        weir_fd_close(segment_fd);
    }
    free(answer);
    return status;
}

static enum weir_status start_shm(int socket_fd, int segment_fd, const struct weir_welcome *welcome,
                                  struct weir_transport **ret_transport)
{
    struct weir_shm_params end = {
        .id = WEIR_TRANSPORT_SHM, .is_host = false, .socket_fd = socket_fd, .pid_fd = -1};
    WEIR_FAIL_IF(segment_fd < 0, WEIR_ERR_PEER);
    WEIR_TRY(weir_segment_map(segment_fd, welcome->segment_bytes, &end.view));
    bool as_told =
        end.view.n_words == welcome->n_words && end.view.arena_bytes == welcome->arena_bytes;
    enum weir_status status = as_told ? weir_shm_create(&end, ret_transport) : WEIR_ERR_PEER;
    if (status != WEIR_OK) {
        weir_segment_unmap(&end.view);
    }
    return status;
}

#ifdef WEIR_WITH_ZMQ

/* Exchange the first or second Hello over ZeroMQ. */
static enum weir_status exchange_zmq(struct weir_zmq_client_params *client,
                                     const struct weir_hello *hello,
                                     struct weir_transport **ret_transport,
                                     struct weir_welcome **ret_welcome)
{
    struct weir_control_bytes request = {0};
    void *answer = NULL;
    size_t answer_len;
    struct weir_transport *transport = NULL;
    enum weir_status status = weir_hello_encode(hello, &request);
    if (status == WEIR_OK) {
        client->hello = request.bytes;
        client->hello_len = request.len;
        client->answer_max_bytes = WEIR_CONTROL_MAX_BYTES;
        status = weir_zmq_client_connect(client, &transport, &answer, &answer_len);
    }
    if (status == WEIR_OK) {
        status = weir_welcome_decode(answer, answer_len, ret_welcome);
        if (status == WEIR_OK && (*ret_welcome)->status == WEIR_OK) {
            weir_zmq_client_set_view(transport, (*ret_welcome)->n_words,
                                     (*ret_welcome)->arena_bytes);
            *ret_transport = transport;
        } else {
            transport->ops->destroy(transport);
        }
    }
    free(answer);
    free(request.bytes);
    return status;
}

/* "ipc://./NAME" is in the same folder as the socket that we used: paths differ inside a
 * container. */
static enum weir_status resolve_endpoint(const char *endpoint, const char *socket_path, char *text,
                                         size_t text_bytes)
{
    static const char beside[] = "ipc://./";
    if (strncmp(endpoint, beside, strlen(beside)) != 0 || strchr(endpoint + strlen(beside), '/')) {
        return WEIR_ERR_PEER;
    }
    const char *slash = strrchr(socket_path, '/');
    int directory_len = slash ? (int)(slash - socket_path) : 1;
    int len = snprintf(text, text_bytes, "ipc://%.*s/%s", directory_len, slash ? socket_path : ".",
                       endpoint + strlen(beside));
    return len > 0 && (size_t)len < text_bytes ? WEIR_OK : WEIR_ERR_INVALID;
}

static enum weir_status start_zmq_ipc(int socket_fd, const char *path, struct weir_hello *hello,
                                      const struct weir_welcome *welcome, uint64_t deadline_ns,
                                      struct weir_transport **ret_transport)
{
    char endpoint[2 * WEIR_CONTROL_TEXT_BYTES];
    WEIR_FAIL_IF(!welcome->has_token, WEIR_ERR_PEER);
    WEIR_TRY(resolve_endpoint(welcome->zmq_endpoint, path, endpoint, sizeof endpoint));
    hello->has_token = true;
    memcpy(hello->token, welcome->token, sizeof hello->token);
    struct weir_zmq_client_params client = {
        .endpoint = endpoint, .socket_fd = socket_fd, .deadline_ns = deadline_ns};
    struct weir_welcome *second = NULL;
    enum weir_status status = exchange_zmq(&client, hello, ret_transport, &second);
    if (status == WEIR_OK && second->status != WEIR_OK) {
        status = second->status;
    }
    weir_welcome_destroy(second);
    return status;
}

static enum weir_status read_keys(const struct weir_connect_params *params,
                                  char keys[3][WEIR_KEY_TEXT_BYTES])
{
    const char *given[3] = {params->public_key, params->secret_key, params->server_key};
    for (int i = 0; i < 3; i++) {
        enum weir_status status = given[i] ? weir_key_read(given[i], keys[i]) : WEIR_ERR_INVALID;
        if (status != WEIR_OK) {
            return status == WEIR_ERR_NOT_FOUND ? WEIR_ERR_INVALID : status;
        }
    }
    return WEIR_OK;
}

static enum weir_status connect_tcp(const struct weir_connect_params *params,
                                    const struct weir_hello *hello, uint64_t deadline_ns,
                                    struct weir_transport **ret_transport,
                                    struct weir_welcome **ret_welcome)
{
    char keys[3][WEIR_KEY_TEXT_BYTES];
    WEIR_TRY(read_keys(params, keys));
    struct weir_zmq_client_params client = {.endpoint = params->host,
                                            .public_key = keys[0],
                                            .secret_key = keys[1],
                                            .server_key = keys[2],
                                            .socket_fd = -1,
                                            .deadline_ns = deadline_ns};
    enum weir_status status = exchange_zmq(&client, hello, ret_transport, ret_welcome);
    memset(keys, 0, sizeof keys);
    __asm__ volatile("" : : "r"(keys) : "memory"); /* the keys are gone for good */
    return status == WEIR_OK ? (*ret_welcome)->status : status;
}
#endif

static enum weir_status connect_ipc(const char *path, struct weir_hello *hello,
                                    uint64_t deadline_ns, struct weir_transport **ret_transport,
                                    struct weir_welcome **ret_welcome)
{
    int fd = -1;
    int segment_fd = -1;
    struct weir_welcome *welcome = NULL;
    WEIR_TRY(connect_unix(path, deadline_ns, &fd));
    enum weir_status status = exchange(fd, hello, deadline_ns, &welcome, &segment_fd);
    if (status == WEIR_OK) {
        *ret_welcome = welcome;
        status = welcome->status;
    }
    bool keep_socket = false;
    if (status == WEIR_OK && strcmp(welcome->transport, "shm") == 0) {
        status = start_shm(fd, segment_fd, welcome, ret_transport);
        keep_socket = status == WEIR_OK;
    } else if (status == WEIR_OK) {
        status = WEIR_ERR_PEER;
#ifdef WEIR_WITH_ZMQ
        if (strcmp(welcome->transport, "zmq") == 0) {
            status = start_zmq_ipc(fd, path, hello, welcome, deadline_ns, ret_transport);
        }
#endif
    }
    weir_fd_close(segment_fd);
    if (!keep_socket) {
        close(fd);
    }
    return status;
}

static enum weir_status attempt(const struct weir_connect_params *params, struct weir_hello *hello,
                                uint64_t deadline_ns, struct weir_transport **ret_transport,
                                struct weir_welcome **ret_welcome)
{
    const char *place;
    switch (weir_address_scheme(params->host, &place)) {
    case WEIR_SCHEME_IPC:
        return connect_ipc(place, hello, deadline_ns, ret_transport, ret_welcome);
    case WEIR_SCHEME_IVSHMEM:
    case WEIR_SCHEME_DEVDAX:
        return weir_connect_ivshmem(place, hello, deadline_ns, ret_transport, ret_welcome);
    case WEIR_SCHEME_VSOCK:
        return weir_connect_vsock(place, hello, deadline_ns, ret_transport, ret_welcome);
    case WEIR_SCHEME_TCP:
#ifdef WEIR_WITH_ZMQ
        if (!params->transport || strcmp(params->transport, "zmq") == 0) {
            return connect_tcp(params, hello, deadline_ns, ret_transport, ret_welcome);
        }
#endif
        return WEIR_ERR_UNSUPPORTED;
    case WEIR_SCHEME_COUNT:
        break;
    }
    return WEIR_ERR_INVALID;
}

/* Did the host hang up during the handshake, without a worker's answer? */
static bool was_hung_up_on(enum weir_status status, const struct weir_welcome *welcome)
{
    return status == WEIR_ERR_FULL && !welcome;
}

/*
 * Returns the time until which an attempt with this result is repeated. 0: do not repeat it.
 *
 * A restarting host closes its port for a moment but leaves its socket files, while a host that
 * stops removes them. A host that hangs up during the handshake is flooded, or has another key.
 */
static uint64_t insists_until_ns(const struct weir_connect_params *params, enum weir_status status,
                                 const struct weir_welcome *welcome, uint64_t seen_ns)
{
    const char *place;
    enum weir_scheme scheme = weir_address_scheme(params->host, &place);
    if ((status == WEIR_ERR_NOT_FOUND &&
         (scheme == WEIR_SCHEME_TCP || scheme == WEIR_SCHEME_VSOCK)) ||
        was_hung_up_on(status, welcome)) {
        return seen_ns + CLOSED_PORT_NS;
    }
    if (status == WEIR_ERR_NOT_FOUND && scheme == WEIR_SCHEME_IPC && access(place, F_OK) == 0) {
        return seen_ns + COMES_BACK_NS;
    }
    return status == WEIR_ERR_AGAIN || status == WEIR_ERR_CLOSED ? UINT64_MAX : 0;
}

/*
 * Repeat attempts. A worker whose GPU context has died is replaced within a second or two. Until
 * then it answers "again", or hangs up in the middle of the handshake: neither is a reason to give
 * up.
 */
static enum weir_status insist(const struct weir_connect_params *params,
                               const struct weir_hello *hello, uint64_t deadline_ns,
                               struct weir_transport **ret_transport,
                               struct weir_welcome **ret_welcome)
{
    enum weir_status before = WEIR_ERR_TIMED_OUT;
    uint64_t seen_ns = weir_clock_now_ns(); /* when the host was last there */
    for (int pause_ms = AGAIN_FIRST_MS;;) {
        struct weir_hello again = *hello;
        enum weir_status status = attempt(params, &again, deadline_ns, ret_transport, ret_welcome);
        if (status == WEIR_ERR_TIMED_OUT) {
            return before;
        }
        uint64_t now_ns = weir_clock_now_ns();
        if (now_ns >= insists_until_ns(params, status, *ret_welcome, seen_ns) ||
            weir_deadline_left_ns(deadline_ns) <= (uint64_t)pause_ms * WEIR_NS_PER_MS) {
            return was_hung_up_on(status, *ret_welcome) ? WEIR_ERR_DENIED : status;
        }
        seen_ns = status == WEIR_ERR_AGAIN || status == WEIR_ERR_CLOSED ? now_ns : seen_ns;
        before = status;
        weir_welcome_destroy(*ret_welcome);
        *ret_welcome = NULL;
        poll(NULL, 0, pause_ms);
        pause_ms = pause_ms * 2 < AGAIN_LAST_MS ? pause_ms * 2 : AGAIN_LAST_MS;
    }
}

enum weir_status weir_connect(const struct weir_connect_params *params,
                              struct weir_transport **ret_transport,
                              struct weir_welcome **ret_welcome)
{
    *ret_welcome = NULL;
    int saved_errno = errno;
    struct weir_hello hello;
    uint64_t deadline_ns =
        weir_deadline_after(params->timeout_ns ? params->timeout_ns : DEFAULT_TIMEOUT_NS);
    enum weir_status status = params->host ? make_hello(params, &hello) : WEIR_ERR_INVALID;
    WEIR_THEN(status, insist(params, &hello, deadline_ns, ret_transport, ret_welcome));
    /* A welcome without a transport is only useful if it gives a reason. */
    if (status != WEIR_OK && *ret_welcome && (*ret_welcome)->status == WEIR_OK) {
        weir_welcome_destroy(*ret_welcome);
        *ret_welcome = NULL;
    }
    errno = saved_errno;
    return status;
}

/* ---------------------------------------------------------------- why work waits */

#define WHY_MAX_BYTES (8u << 20)

/* Read a Welcome: a host that refuses, or is older, sends one. */
static enum weir_status read_refusal(const uint8_t *bytes, size_t len, char **ret_text)
{
    struct weir_welcome *welcome = NULL;
    enum weir_status status = weir_welcome_decode(bytes, len, &welcome);
    if (status == WEIR_OK) {
        status = welcome->status == WEIR_OK ? WEIR_ERR_VERSION : welcome->status;
        *ret_text = strdup(welcome->message);
    }
    weir_welcome_destroy(welcome);
    return status;
}

/* Read pieces of text until the host closes. */
static enum weir_status read_text(int fd, uint64_t deadline_ns, char **ret_text)
{
    size_t used = 0, len;
    char *text = malloc(1);
    enum weir_status status = text ? WEIR_OK : WEIR_ERR_NO_MEMORY;
    while (status == WEIR_OK) {
        int passed = -1;
        char *bigger =
            used < WHY_MAX_BYTES ? realloc(text, used + WEIR_CONTROL_MAX_BYTES + 1) : NULL;
        if (!bigger) {
            status = WEIR_ERR_NO_MEMORY;
            break;
        }
        text = bigger;
        status = weir_fd_message_receive(fd, text + used, WEIR_CONTROL_MAX_BYTES, deadline_ns, &len,
                                         &passed);
        weir_fd_close(passed);
        if (status == WEIR_OK && used == 0 && text[0] != '{') {
            status = read_refusal((const uint8_t *)text, len, ret_text);
            status = status == WEIR_OK ? WEIR_ERR_PEER : status;
        } else if (status == WEIR_OK) {
            used += len;
        }
    }
    if (status == WEIR_ERR_CLOSED && used) {
        text[used] = '\0';
        *ret_text = text;
        return WEIR_OK;
    }
    free(text);
    return status;
}

enum weir_status weir_connect_why(const char *host, uint64_t timeout_ns, char **ret_text)
{
    /* An older host takes this for a monitor, which needs no context. */
    const struct weir_connect_params params = {.program = "weir why", .monitor = true};
    struct weir_hello hello;
    uint64_t deadline_ns = weir_deadline_after(timeout_ns);
    const char *path;
    int saved_errno = errno, fd = -1;
    *ret_text = NULL;
    WEIR_FAIL_IF(weir_address_scheme(host, &path) != WEIR_SCHEME_IPC, WEIR_ERR_UNSUPPORTED);
    enum weir_status status = make_hello(&params, &hello);
    hello.why = true;
    status = status == WEIR_OK ? connect_unix(path, deadline_ns, &fd) : status;
    status = status == WEIR_OK ? send_hello(fd, &hello, deadline_ns) : status;
    if (fd >= 0 && (status == WEIR_OK || status == WEIR_ERR_CLOSED)) {
        status = weir_peer_await(fd, deadline_ns);
        status = status == WEIR_OK ? read_text(fd, deadline_ns, ret_text) : status;
    }
    weir_fd_close(fd);
    errno = saved_errno;
    return status;
}
