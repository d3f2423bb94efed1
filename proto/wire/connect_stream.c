#include "proto/wire/connect_stream.h"
#include "base/clock.h"
#include "proto/transport/fd_message.h"
#include "proto/transport/stream.h"
#include "proto/wire/address.h"
#include "proto/wire/control_codec.h"
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <linux/vm_sockets.h>

enum weir_status weir_greet_stream(struct weir_transport *t, const struct weir_hello *hello,
                                   uint64_t deadline_ns, struct weir_welcome **ret_welcome)
{
    struct weir_control_bytes request = {0};
    const void *answer;
    size_t len;
    enum weir_status status = weir_hello_encode(hello, &request);
    WEIR_THEN(status,
              weir_stream_say(t, WEIR_STREAM_HELLO, request.bytes, request.len, deadline_ns));
    /* A host that refuses at once may have closed before our Hello arrived: its answer can still be
     * read. */
    if (status == WEIR_OK || status == WEIR_ERR_CLOSED) {
        status = weir_stream_hear(t, WEIR_STREAM_WELCOME, WEIR_CONTROL_MAX_BYTES, deadline_ns,
                                  &answer, &len);
    }
    WEIR_THEN(status, weir_welcome_decode(answer, len, ret_welcome));
    free(request.bytes);
    if (status != WEIR_OK || (*ret_welcome)->status != WEIR_OK) {
        return status != WEIR_OK ? status : (*ret_welcome)->status;
    }
    WEIR_FAIL_IF(strcmp((*ret_welcome)->transport, t->ops->name) != 0, WEIR_ERR_PEER);
    struct weir_segment_view view = {.n_words = (*ret_welcome)->n_words,
                                     .arena_bytes = (*ret_welcome)->arena_bytes};
    weir_stream_set_view(t, &view);
    return WEIR_OK;
}

/* Shake hands over the link and make it a transport. Takes the link, also on failure. */
static enum weir_status start(struct weir_stream_link *link, const struct weir_hello *hello,
                              uint64_t deadline_ns, struct weir_transport **ret_transport,
                              struct weir_welcome **ret_welcome)
{
    struct weir_transport *t;
    WEIR_TRY(weir_stream_create(link, &t));
    enum weir_status status = weir_greet_stream(t, hello, deadline_ns, ret_welcome);
    if (status == WEIR_OK) {
        *ret_transport = t;
    } else {
        t->ops->destroy(t);
    }
    return status;
}

/* ---------------------------------------------------------------- vsock */

static enum weir_status status_of_errno(int error)
{
    switch (error) {
    case ECONNREFUSED:
    case ECONNRESET:
    case ENODEV:
    case ENETUNREACH:
    case EHOSTUNREACH:
    case EADDRNOTAVAIL:
        return WEIR_ERR_NOT_FOUND;
    case EACCES:
    case EPERM:
        return WEIR_ERR_DENIED;
    case ETIMEDOUT:
        return WEIR_ERR_TIMED_OUT;
    case EAFNOSUPPORT:
        return WEIR_ERR_UNSUPPORTED;
    default:
        return WEIR_ERR_IO;
    }
}

static enum weir_status connect_within(int fd, const struct sockaddr_vm *address,
                                       uint64_t deadline_ns)
{
    if (connect(fd, (const struct sockaddr *)address, sizeof *address) == 0) {
        return WEIR_OK;
    }
    if (errno != EINPROGRESS && errno != EINTR) {
        return status_of_errno(errno);
    }
    struct pollfd ready = {.fd = fd, .events = POLLOUT};
    int n, error = 0;
    socklen_t len = sizeof error;
    do {
        uint64_t left_ms = weir_deadline_left_ns(deadline_ns) / WEIR_NS_PER_MS;
        n = poll(&ready, 1, left_ms < 60000 ? (int)left_ms : 60000);
    } while (n < 0 && errno == EINTR);
    WEIR_FAIL_IF(n == 0, WEIR_ERR_TIMED_OUT);
    WEIR_FAIL_IF(n < 0 || getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) != 0, WEIR_ERR_IO);
    return error == 0 ? WEIR_OK : status_of_errno(error);
}

enum weir_status weir_connect_vsock(const char *place, const struct weir_hello *hello,
                                    uint64_t deadline_ns, struct weir_transport **ret_transport,
                                    struct weir_welcome **ret_welcome)
{
    struct sockaddr_vm address = {.svm_family = AF_VSOCK};
    WEIR_FAIL_IF(!weir_address_vsock(place, &address.svm_cid, &address.svm_port), WEIR_ERR_INVALID);
    int fd = socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return status_of_errno(errno);
    }
    enum weir_status status = connect_within(fd, &address, deadline_ns);
    if (status != WEIR_OK || !hello) {
        close(fd);
        return status;
    }
    struct weir_stream_link *link = weir_stream_socket(fd);
    return link ? start(link, hello, deadline_ns, ret_transport, ret_welcome) : WEIR_ERR_NO_MEMORY;
}
