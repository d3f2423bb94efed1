/* The worker's handshake over a unix socket, and the listening socket. */
#include "proto/wire/accept.h"
#include "base/fd.h"
#include "base/log.h"
#include "proto/transport/fd_message.h"
#include "proto/transport/segment_map.h"
#include "proto/transport/shm.h"
#include "proto/wire/control_codec.h"
#include "proto/wire/unix_socket.h"
#ifdef WEIR_WITH_ZMQ
#include "proto/wire/zmq_session.h"
#endif
#include "base/clock.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LISTEN_BACKLOG 128
/* how long a guest may take to receive its Welcome */
#define SEND_TIMEOUT_NS (2 * WEIR_NS_PER_S)

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Linux 6.5 */
#endif

/* ---------------------------------------------------------------- listening */

/* Does a process listen on the socket? A stream socket or a full backlog also counts as a
 * listener. */
static bool somebody_listens(const struct sockaddr_un *address)
{
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return true;
    }
    bool nobody = connect(fd, (const struct sockaddr *)address, sizeof *address) != 0 &&
                  (errno == ECONNREFUSED || errno == ENOENT);
    close(fd);
    return !nobody;
}

static enum weir_status remove_stale(const struct sockaddr_un *address)
{
    struct stat info;
    if (lstat(address->sun_path, &info) != 0) {
        return errno == ENOENT ? WEIR_OK : weir_status_of_errno(errno);
    }
    WEIR_FAIL_IF(!S_ISSOCK(info.st_mode) || somebody_listens(address), WEIR_ERR_EXISTS);
    return unlink(address->sun_path) == 0 || errno == ENOENT ? WEIR_OK : WEIR_ERR_DENIED;
}

enum weir_status weir_listen_unix(const char *path, mode_t mode, int *ret_fd)
{
    struct sockaddr_un address;
    WEIR_TRY(weir_unix_address(path, &address));
    WEIR_TRY(remove_stale(&address));
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    WEIR_FAIL_IF(fd < 0, weir_status_of_errno(errno));
    enum weir_status status = WEIR_OK;
    /* bind() makes the file with this mode, less the umask; chmod() widens it later. */
    if (fchmod(fd, S_IRUSR | S_IWUSR) != 0 ||
        bind(fd, (const struct sockaddr *)&address, sizeof address) != 0) {
        status = weir_status_of_errno(errno);
    } else if (listen(fd, LISTEN_BACKLOG) != 0 || chmod(path, mode & 0777) != 0) {
        status = WEIR_ERR_IO;
        unlink(path);
    }
    if (status != WEIR_OK) {
        close(fd);
        return status;
    }
    *ret_fd = fd;
    return WEIR_OK;
}

enum weir_status weir_peer_of(int fd, struct weir_peer *ret_peer)
{
    struct ucred credentials;
    socklen_t len = sizeof credentials;
    WEIR_FAIL_IF(getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &len) != 0, WEIR_ERR_IO);
    *ret_peer = (struct weir_peer){
        .pid = credentials.pid, .uid = credentials.uid, .gid = credentials.gid, .known = true};
    return WEIR_OK;
}

/*
 * Open a descriptor that shows the end of the guest's process; -1: none. The socket alone would not
 * show it, since a child that the guest forked holds it open.
 */
static int open_peer_process(int fd)
{
    int pid_fd;
    socklen_t len = sizeof pid_fd;
    struct weir_peer peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &pid_fd, &len) == 0) {
        return pid_fd;
    }
    if (weir_peer_of(fd, &peer) != WEIR_OK || peer.pid <= 0) {
        return -1;
    }
    return (int)syscall(SYS_pidfd_open, peer.pid, 0); /* the descriptor is close-on-exec */
}

/* ---------------------------------------------------------------- hello */

static enum weir_status make_nonblocking(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0 ? WEIR_OK : WEIR_ERR_IO;
}

bool weir_hello_fits(const struct weir_hello *hello, char *ret_why, size_t why_bytes)
{
    if (hello->protocol != WEIR_PROTOCOL) {
        snprintf(ret_why, why_bytes,
                 "the guest library speaks protocol %u, this host %u: install the same version; "
                 "after an "
                 "upgrade, weir restart and new containers",
                 hello->protocol, WEIR_PROTOCOL);
        return false;
    }
    if (!hello->ops && !hello->why) { /* that needs no operation */
        snprintf(
            ret_why, why_bytes,
            "the guest library (%.60s) is too old for this host (%s), as it does not say which "
            "operations it knows: install a newer one, or make the container anew",
            hello->version, WEIR_VERSION);
        return false;
    }
    return true;
}

static enum weir_status check_hello(int fd, struct weir_hello *hello)
{
    char why[WEIR_CONTROL_TEXT_BYTES];
    if (!weir_hello_fits(hello, why, sizeof why)) {
        weir_refuse(fd, WEIR_ERR_VERSION, WEIR_RESULT_VERSION, why);
        return WEIR_ERR_VERSION;
    }
    return weir_peer_of(fd, &hello->peer);
}

enum weir_status weir_accept_hello(int fd, uint64_t timeout_ns, struct weir_hello **ret_hello)
{
    struct weir_hello *hello = NULL;
    size_t len;
    uint8_t *bytes = malloc(WEIR_CONTROL_MAX_BYTES);
    WEIR_FAIL_IF(!bytes, WEIR_ERR_NO_MEMORY);
    enum weir_status status = make_nonblocking(fd);
    WEIR_THEN(status, weir_fd_message_receive(fd, bytes, WEIR_CONTROL_MAX_BYTES,
                                              weir_deadline_after(timeout_ns), &len, NULL));
    WEIR_THEN(status, weir_hello_decode(bytes, len, &hello));
    free(bytes);
    WEIR_THEN(status, check_hello(fd, hello));
    if (status == WEIR_OK) {
        *ret_hello = hello;
    } else {
        weir_hello_destroy(hello);
    }
    return status;
}

/* ---------------------------------------------------------------- welcome */

void weir_welcome_prepare(const struct weir_welcome_params *params,
                          struct weir_welcome *ret_welcome)
{
    *ret_welcome = (struct weir_welcome){
        .status = WEIR_OK,
        .session = params->session,
        .window_base = params->window_base,
        .window_bytes = params->window_bytes,
        .memory_quota_bytes = params->memory_quota_bytes,
        .spin_ns = params->spin_ns,
        .n_devices = params->n_devices,
    };
    memcpy(ret_welcome->devices, params->devices, params->n_devices * sizeof *params->devices);
    weir_text_set(ret_welcome->tenant, sizeof ret_welcome->tenant, params->tenant);
    weir_text_set(ret_welcome->weight, sizeof ret_welcome->weight, params->weight);
}

static bool is_possible(const struct weir_welcome_params *params, enum weir_transport_id id)
{
    const struct weir_transport_kind *kind = weir_transport_kind(id);
    if (!kind || !kind->negotiable ||
        (params->transport && strcmp(params->transport, kind->name) != 0)) {
        return false;
    }
    return id != WEIR_TRANSPORT_ZMQ || (params->zmq && params->zmq_ipc_path);
}

/* Choose the guest's first transport that both sides have, or WEIR_TRANSPORT_COUNT. */
static enum weir_transport_id choose(const struct weir_hello *hello,
                                     const struct weir_welcome_params *params)
{
    for (uint32_t i = 0; i < hello->n_transports; i++) {
        enum weir_transport_id id = weir_transport_find(hello->transports[i]);
        if (is_possible(params, id)) {
            return id;
        }
    }
    return WEIR_TRANSPORT_COUNT;
}

static enum weir_status send_welcome(int fd, const struct weir_welcome *welcome, int segment_fd)
{
    struct weir_control_bytes bytes = {0};
    enum weir_status status = weir_welcome_encode(welcome, &bytes);
    WEIR_THEN(status, weir_fd_message_send(fd, bytes.bytes, bytes.len, segment_fd,
                                           weir_deadline_after(SEND_TIMEOUT_NS)));
    free(bytes.bytes);
    return status;
}

static enum weir_status welcome_shm(int fd, const struct weir_welcome_params *params,
                                    struct weir_welcome *welcome,
                                    struct weir_transport **ret_transport)
{
    int segment_fd = -1;
    struct weir_shm_params end = {.id = WEIR_TRANSPORT_SHM, .is_host = true, .socket_fd = fd};
    struct weir_transport *transport = NULL;
    WEIR_TRY(weir_segment_create(&params->segment, &segment_fd, &end.view));
    welcome->segment_bytes = end.view.bytes;
    welcome->n_words = end.view.n_words;
    welcome->arena_bytes = end.view.arena_bytes;
    end.pid_fd = open_peer_process(fd);
    enum weir_status status = send_welcome(fd, welcome, segment_fd);
    WEIR_THEN(status, weir_shm_create(&end, &transport));
    if (status == WEIR_OK && params->keeps_segment) {
        weir_shm_keep_segment(transport, segment_fd);
    } else {
        close(segment_fd);
    }
    if (status == WEIR_OK) {
        *ret_transport = transport;
    } else {
        weir_segment_unmap(&end.view);
        weir_fd_close(end.pid_fd);
    }
    return status;
}

#ifdef WEIR_WITH_ZMQ
static enum weir_status welcome_zmq(int fd, const struct weir_welcome_params *params,
                                    struct weir_welcome *welcome,
                                    struct weir_transport **ret_transport)
{
    const char *slash = strrchr(params->zmq_ipc_path, '/');
    const char *name = slash ? slash + 1 : params->zmq_ipc_path;
    snprintf(welcome->zmq_endpoint, sizeof welcome->zmq_endpoint, "ipc://./%.200s", name);
    int pid_fd = open_peer_process(fd);
    struct weir_transport *transport;
    struct weir_peer peer;
    enum weir_status status = weir_peer_of(fd, &peer);
    WEIR_THEN(status, weir_zmq_session_expect(params->zmq, &params->segment, &peer, welcome->token,
                                              &transport));
    if (status == WEIR_OK) {
        const struct weir_segment_view *view = transport->ops->view(transport);
        welcome->has_token = true;
        welcome->n_words = view->n_words;
        welcome->arena_bytes = view->arena_bytes;
        status = send_welcome(fd, welcome, -1);
        if (status == WEIR_OK) {
            weir_zmq_session_watch(transport, fd, pid_fd);
            *ret_transport = transport;
            return WEIR_OK;
        }
        transport->ops->destroy(transport);
    }
    weir_fd_close(pid_fd);
    return status;
}
#endif

enum weir_status weir_accept_welcome(int fd, const struct weir_hello *hello,
                                     const struct weir_welcome_params *params,
                                     struct weir_transport **ret_transport)
{
    struct weir_welcome welcome;
    enum weir_transport_id id = choose(hello, params);
    WEIR_FAIL_IF(id == WEIR_TRANSPORT_COUNT, WEIR_ERR_UNSUPPORTED);
    weir_welcome_prepare(params, &welcome);
    weir_text_set(welcome.transport, sizeof welcome.transport, weir_transport_kind(id)->name);
#ifdef WEIR_WITH_ZMQ
    if (id == WEIR_TRANSPORT_ZMQ) {
        return welcome_zmq(fd, params, &welcome, ret_transport);
    }
#endif
    return welcome_shm(fd, params, &welcome, ret_transport);
}

enum weir_status weir_accept_resume(const struct weir_transport_state *state,
                                    struct weir_transport **ret_transport)
{
    return weir_shm_resume(state, ret_transport);
}

enum weir_status weir_refusal_encode(enum weir_status reason, int32_t result, const char *message,
                                     struct weir_control_bytes *ret_bytes)
{
    struct weir_welcome refusal = {.status = reason == WEIR_OK ? WEIR_ERR_INTERNAL : reason,
                                   .result = result};
    weir_text_set(refusal.message, sizeof refusal.message, message);
    return weir_welcome_encode(&refusal, ret_bytes);
}

void weir_refuse(int fd, enum weir_status reason, int32_t result, const char *message)
{
    struct weir_control_bytes bytes = {0};
    enum weir_status status = weir_refusal_encode(reason, result, message, &bytes);
    WEIR_THEN(status, weir_fd_message_send(fd, bytes.bytes, bytes.len, -1, 0));
    if (status != WEIR_OK) {
        weir_log_debug("accept: refusal not delivered reason=%s", weir_status_text(status));
    }
    free(bytes.bytes);
}
