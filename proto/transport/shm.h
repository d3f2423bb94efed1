/* The co-located transport, made from a mapped segment and a connected socket. Private to proto/.
 */
#ifndef WEIR_PROTO_TRANSPORT_SHM_H
#define WEIR_PROTO_TRANSPORT_SHM_H

#include "base/status.h"
#include "proto/transport/segment.h"
#include "proto/transport/transport.h"
#include <stdbool.h>

struct weir_shm_params {
    enum weir_transport_id id; /* SHM or LOOP: only the name differs */
    bool is_host;
    int socket_fd;                 /* liveness and descriptors; non-blocking SEQPACKET */
    int pid_fd;                    /* of the peer's process, or -1 */
    struct weir_segment_view view; /* with rings */
};

/**
 * Make one end. On success it owns socket, pid_fd and mapping.
 * @return WEIR_OK, WEIR_ERR_NO_MEMORY @thread any
 */
enum weir_status weir_shm_create(const struct weir_shm_params *params,
                                 struct weir_transport **ret_transport) WEIR_MUST_CHECK;

#endif
