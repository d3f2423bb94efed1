/* A connected pair of transports of any kind, host's end and guest's end in one process. */
#pragma once

#include "base/clock.h"
#include "proto/transport/transport.h"
#include "proto/wire/accept.h"
#include "proto/wire/connect.h"

extern const struct weir_op_hashes tl_ops; /* what their hellos say */

/* For what comes without fail: it only bounds a hang. */
#define TL_LONG_NS (40 * WEIR_NS_PER_S)

struct tl_pair {
    struct weir_transport *host;
    struct weir_transport *guest;
    struct weir_zmq_server *server; /* zmq only */
    char directory[64];             /* shm and zmq: of the sockets; "" else */
    struct tl_region *region;       /* ivshmem and devdax only */
};

/**
 * Make a pair of a row of transports.def; asserts on failure.
 * @param params  sizes of the segment; NULL for small ones.
 */
void tl_pair_make(enum weir_transport_id id, const struct weir_segment_params *params,
                  struct tl_pair *ret_pair);

/** Destroy what is left of it; an end that is NULL was destroyed before. */
void tl_pair_destroy(struct tl_pair *pair);

/** A small welcome for tests; the device is static. */
struct weir_welcome_params tl_welcome_params(void);
