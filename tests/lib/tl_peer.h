/*
 * A hostile other end. It speaks the handshake well, or not at all, and then does in the segment or
 * on the socket what no honest peer does; the transport under test is at the other end.
 */
#pragma once

#include "proto/transport/segment.h"
#include "proto/transport/transport.h"
#include <stdbool.h>

struct tl_peer {
    struct weir_transport *victim;         /* the honest end */
    int socket_fd;                         /* the liar's end of the session's socket */
    int memory_fd;                         /* the sealed memfd, as the liar has it */
    struct weir_segment_view view;         /* the liar's own mapping */
    struct weir_ring_control *control_in;  /* of the ring that the victim reads */
    struct weir_ring_control *control_out; /* of the ring that the victim writes */
    uint8_t *ring_in;                      /* memory of the first */
};

/** A victim (host or guest) with 4096-byte rings and a liar. Asserts on failure. */
void tl_peer_make(bool victim_is_host, struct tl_peer *ret_peer);
void tl_peer_destroy(struct tl_peer *peer);

/** Hang up. */
void tl_peer_hang_up(struct tl_peer *peer);

/** Write a record's header into the victim's ring at byte 0, without publishing it. */
void tl_peer_plant(struct tl_peer *peer, uint32_t len_bytes);

/** Move the tail of the ring that the victim reads, or the head of the one that it writes. */
void tl_peer_set_tail(struct tl_peer *peer, uint32_t tail);
void tl_peer_set_head(struct tl_peer *peer, uint32_t head);
