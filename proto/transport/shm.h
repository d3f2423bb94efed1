/* The co-located transport, made from a mapped segment and a connected socket.
 * Private to proto/. */
#pragma once

#include "base/status.h"
#include "proto/transport/segment.h"
#include "proto/transport/transport.h"
#include <stdbool.h>

/*
 * Replacements for the socket if there is none (regions): they report whether the peer lives, and
 * clean up at the end. Callers of the transport call them; no lock is held.
 */
struct weir_shm_hooks {
    bool (*gone)(void *user);  /* is the peer gone? Must be cheap */
    void (*leave)(void *user); /* called when the guest's process ends; NULL at the host's end */
    /* The last call. @param child in a forked child, which must spare the parent's connection. */
    void (*close)(void *user, bool child);
    int (*region_fd)(void *user);
    void (*ring_bell)(void *user);
    void *user;
};

struct weir_shm_params {
    enum weir_transport_id id; /* SHM or LOOP, which differ only in name; others need hooks */
    bool is_host;
    int socket_fd; /* shows the peer's end, passes descriptors; non-blocking SEQPACKET; or -1 */
    int pid_fd;    /* pidfd of the peer's process, or -1 */
    struct weir_segment_view view; /* a view with rings */
    struct weir_shm_hooks hooks;   /* for IVSHMEM and DEVDAX only */
    volatile uint32_t *bell; /* register that wakes the peer; NULL: the peer is woken by futex */
    uint32_t bell_value;
};

/**
 * Make one end. On success it owns socket, pid_fd, the mapping and the hooks' object.
 * @return WEIR_OK, WEIR_ERR_NO_MEMORY @thread any
 */
enum weir_status weir_shm_create(const struct weir_shm_params *params,
                                 struct weir_transport **ret_transport) WEIR_MUST_CHECK;

/** Keep the segment's file, so that state() can show it. @param segment_fd  taken. @thread owner */
void weir_shm_keep_segment(struct weir_transport *transport, int segment_fd);

/**
 * Go on in place of a host's end that another process had (WEIR_TRANSPORT_SHM).
 * @param state  on success the transport has taken the descriptors.
 * @return WEIR_OK, as weir_segment_map(), WEIR_ERR_NO_MEMORY @thread any
 */
enum weir_status weir_shm_resume(const struct weir_transport_state *state,
                                 struct weir_transport **ret_transport) WEIR_MUST_CHECK;
