
#include "host_backend/supervisor/machines/channels.h"

#include "host_backend/supervisor/state/book.h"
#include "host_backend/supervisor/state/extras.h"
#include "host_backend/supervisor/state/sockets.h"
#include "host_backend/supervisor/state/supervisor.h"
#include "host_backend/supervisor/state/users.h"
#include "host_backend/supervisor/state/worker_link.h"
#include "host_backend/supervisor/workers/worker_for.h"

#include "base/log.h"
#include "host_backend/supervisor/machines/private.h"
#include "proto/cuda_abi.h"
#include "proto/transport/stream.h"
#include "proto/wire/accept_stream.h"
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <linux/vm_sockets.h>

#define BACKLOG 64

static struct weir_sup_tenant *tenant_of_cid(struct weir_supervisor *sup, uint32_t cid)
{
    for (int i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        struct weir_sup_tenant *tenant = &sup->tenants[i];

        if (tenant->used && !tenant->gone && tenant->config.vsock_cid != 0 &&
            (cid == 0 || tenant->config.vsock_cid == cid)) {
            return tenant;
        }
    }
    return NULL;
}

static int listen_vsock(uint32_t port)
{
    struct sockaddr_vm address = {
        .svm_family = AF_VSOCK, .svm_cid = VMADDR_CID_ANY, .svm_port = port};
    int fd = socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd >= 0 && (bind(fd, (const struct sockaddr *)&address, sizeof address) != 0 ||
                    listen(fd, BACKLOG) != 0)) {
        int why = errno;

        close(fd);
        errno = why;
        fd = -1;
    }
    return fd;
}

/* Write down the socket, or that there is none. */
static void note(struct weir_supervisor *sup)
{
    char name[32];

    snprintf(name, sizeof name, "vsock:%u", sup->config.vsock_port);
    weir_book_listens(sup, name, sup->machines->vsock_fd);
}

void weir_sup_vsock_follow(struct weir_supervisor *sup)
{
    bool wanted = sup->config.vsock_port != 0 && tenant_of_cid(sup, 0);

    if (!wanted) {
        weir_sup_vsock_close(sup);
        weir_sup_extra_unwanted(sup, WEIR_EXTRA_VSOCK);
    } else if (sup->machines->vsock_fd < 0) {
        char name[32];

        snprintf(name, sizeof name, "vsock:%u", sup->config.vsock_port);
        sup->machines->vsock_fd = weir_book_listener(sup, name);
        if (sup->machines->vsock_fd < 0) {
            sup->machines->vsock_fd = listen_vsock(sup->config.vsock_port);
        }
        note(sup);
        if (sup->machines->vsock_fd < 0) {
            weir_sup_extra_fails(sup, WEIR_EXTRA_VSOCK, "vsock_port %u: %s", sup->config.vsock_port,
                                 strerror(errno));
        } else {
            weir_sup_extra_works(sup, WEIR_EXTRA_VSOCK);
            weir_log_info("supervisor: listening on vsock port=%u", sup->config.vsock_port);
        }
    }
}

void weir_sup_vsock_close(struct weir_supervisor *sup)
{
    if (sup->machines->vsock_fd >= 0) {
        close(sup->machines->vsock_fd);
        sup->machines->vsock_fd = -1;
        note(sup);
    }
}

/* Send the reason of a refusal, and close the connection. */
static void refuse(int fd, enum weir_status reason, const char *text)
{
    struct weir_stream_link *link = weir_stream_socket(fd);
    struct weir_transport *stream;

    if (link && weir_stream_create(link, &stream) == WEIR_OK) {
        weir_stream_refuse(stream, reason, CUDA_ERROR_UNKNOWN, text);
        stream->ops->destroy(stream);
    }
}

static void accept_vsock(struct weir_supervisor *sup)
{
    struct weir_link_message message = {.type = WEIR_LINK_GUEST};
    struct sockaddr_vm peer = {0};
    socklen_t len = sizeof peer;
    int fd = weir_sup_accept_guest(sup, sup->machines->vsock_fd, (struct sockaddr *)&peer, &len);
    char text[80];

    if (fd < 0) {
        return;
    }
    struct weir_sup_tenant *tenant =
        tenant_of_cid(sup, peer.svm_cid == 0 ? UINT32_MAX : peer.svm_cid);
    if (!tenant) {
        weir_log_limit_thread(&sup->rates.strangers, "-");
        weir_log_warn("supervisor: no tenant has this vsock_cid cid=%u", peer.svm_cid);
        weir_log_limit_thread(NULL, NULL);
        snprintf(text, sizeof text, "no tenant of this host has the vsock_cid %u", peer.svm_cid);
        refuse(fd, WEIR_ERR_DENIED, text);
        return;
    }
    message.guest.channel = WEIR_CHANNEL_VSOCK;
    message.guest.tenant_index = tenant->index;
    message.guest.generation = tenant->generation;
    message.guest.session = ++sup->programs.n_guests;
    int worker = weir_sup_machine_worker(sup, tenant);
    if (worker >= 0 && sup->workers[worker].ready &&
        weir_sup_worker_send(sup, worker, &message, fd)) {
        close(fd);
    } else {
        refuse(fd, WEIR_ERR_AGAIN, "the worker is not ready");
    }
}

static void on_vsock(void *user, int index)
{
    struct weir_supervisor *sup = user;

    (void)index;
    if (sup->machines->vsock_fd >= 0) {
        accept_vsock(sup);
    }
}

void weir_sup_channels_watch(struct weir_supervisor *sup, struct weir_host_loop *loop)
{
    weir_host_loop_watch(loop, sup->machines->vsock_fd, POLLIN, on_vsock, sup, 0);
}
