/* The co-located transport, made from a mapped segment and a connected socket.
 * Private to proto/. */
#ifndef WEIR_PROTO_TRANSPORT_SHM_H
#define WEIR_PROTO_TRANSPORT_SHM_H

#include "base/status.h"
#include "proto/transport/segment.h"
#include "proto/transport/transport.h"
#include <stdbool.h>

/*
 * What stands in for the socket where there is none (regions): how the peer's life is told, and
 * what is done at the end. Called by whoever calls the transport; no lock is held.
 */
struct weir_shm_hooks {
    bool (*gone)(void *user);              /* cheap */
    void (*leave)(void *user);             /* the guest's process ends; NULL at the host's end */
    void (*close)(void *user, bool child); /* the last call; child: a forked one lets go */
    int (*region_fd)(void *user);
    void (*ring_bell)(void *user);
    void *user;
};

struct weir_shm_params {
    enum weir_transport_id id; /* SHM or LOOP: only the name differs. Others: with hooks */
    bool is_host;
    int socket_fd;                 /* liveness and descriptors; non-blocking SEQPACKET; or -1 */
    int pid_fd;                    /* of the peer's process, or -1 */
    struct weir_segment_view view; /* with rings */
    struct weir_shm_hooks hooks;   /* IVSHMEM and DEVDAX only */
    volatile uint32_t *bell;       /* how the peer is woken; NULL: by futex */
    uint32_t bell_value;
};

/**
 * Make one end. On success it owns socket, pid_fd, mapping and what the hooks stand for.
 * @return WEIR_OK, WEIR_ERR_NO_MEMORY @thread any
 */
enum weir_status weir_shm_create(const struct weir_shm_params *params,
                                 struct weir_transport **ret_transport) WEIR_MUST_CHECK;

#endif
