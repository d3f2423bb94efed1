/* Both ends of a co-located session in one process: the shm transport without the handshake. */
#pragma once

#include "proto/transport/transport.h"

/**
 * Make a guest's and a worker's end in one process, over anonymous memory.
 *
 * @param params     sizes; checked.
 * @param ret_host   the worker's end.
 * @param ret_guest  the guest's end. Destroy each end separately.
 * @return WEIR_OK, WEIR_ERR_INVALID, WEIR_ERR_NO_MEMORY
 * @thread any
 */
enum weir_status tl_loop_create(const struct weir_segment_params *params,
                                struct weir_transport **ret_host,
                                struct weir_transport **ret_guest) WEIR_MUST_CHECK;
