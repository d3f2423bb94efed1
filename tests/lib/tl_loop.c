#include "tests/lib/tl_loop.h"
#include "proto/transport/segment_map.h"
#include "proto/transport/shm.h"
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

enum weir_status tl_loop_create(const struct weir_segment_params *params,
                                struct weir_transport **ret_host, struct weir_transport **ret_guest)
{
    int saved_errno = errno;
    int memory_fd = -1;
    int sockets[2] = {-1, -1};
    struct weir_transport *host = NULL;
    struct weir_segment_view host_view = {0}, guest_view = {0};
    enum weir_status status = weir_segment_create(params, &memory_fd, &host_view);
    if (status == WEIR_OK) {
        status = weir_segment_map(memory_fd, host_view.bytes, &guest_view);
    }
    if (status == WEIR_OK &&
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, sockets) != 0) {
        status = WEIR_ERR_IO;
    }
    struct weir_shm_params end = {.id = WEIR_TRANSPORT_LOOP,
                                  .is_host = true,
                                  .socket_fd = sockets[0],
                                  .pid_fd = -1,
                                  .view = host_view};
    if (status == WEIR_OK) {
        status = weir_shm_create(&end, &host);
    }
    if (status == WEIR_OK) {
        end.is_host = false;
        end.socket_fd = sockets[1];
        end.view = guest_view;
        status = weir_shm_create(&end, ret_guest);
    }
    if (status == WEIR_OK) {
        *ret_host = host;
    } else {
        if (host) {
            host->ops->destroy(host); /* closes sockets[0] and unmaps host_view */
        } else {
            weir_segment_unmap(&host_view);
            if (sockets[0] >= 0) {
                close(sockets[0]);
            }
        }
        weir_segment_unmap(&guest_view);
        if (sockets[1] >= 0) {
            close(sockets[1]);
        }
    }
    if (memory_fd >= 0) {
        close(memory_fd);
    }
    errno = saved_errno;
    return status;
}
