/* The messages between the keeper and a supervisor: one packet each, several descriptors. */
#include "host_backend/keeper/keep.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#define HEAD_BYTES offsetof(struct weir_keep_message, data)

bool weir_keep_send(int socket_fd, const struct weir_keep_message *message, const int *fds,
                    uint32_t n)
{
    size_t bytes = HEAD_BYTES + message->bytes;

    if (n > WEIR_FDS_MAX) {
        errno = E2BIG;
        return false;
    }
    return weir_fds_send(socket_fd, message, bytes, fds, n, 0) == (ssize_t)bytes;
}

bool weir_keep_receive(int socket_fd, struct weir_keep_message *ret_message,
                       struct weir_fds *ret_fds)
{
    ssize_t n = weir_fd_receive(socket_fd, ret_message, sizeof *ret_message, 0, ret_fds);

    WEIR_FAIL_IF(n <= 0, false);
    if ((size_t)n < HEAD_BYTES || ret_message->bytes != (size_t)n - HEAD_BYTES ||
        ret_fds->fds_cut || ret_fds->bytes_cut) {
        ret_message->type = WEIR_KEEP_NONE;
    }
    return true;
}

const uint8_t *weir_keep_spawn_row(const struct weir_keep_message *message,
                                   struct weir_keep_spawn *ret_spawn)
{
    size_t words = 0, at;

    WEIR_FAIL_IF(message->bytes < sizeof *ret_spawn, NULL);
    memcpy(ret_spawn, message->data, sizeof *ret_spawn);
    at = sizeof *ret_spawn + (size_t)ret_spawn->row_bytes;
    if (ret_spawn->row_bytes > message->bytes || at >= message->bytes ||
        message->data[message->bytes - 1] != 0) {
        return NULL;
    }
    for (size_t i = at; i < message->bytes; i++) {
        words += message->data[i] == 0;
    }
    return ret_spawn->n_argv != 0 && ret_spawn->n_argv <= words && ret_spawn->n_fds <= WEIR_FDS_MAX
               ? message->data + sizeof *ret_spawn
               : NULL;
}
