/* The guest's handshake through the region of its virtual machine. Private to proto/wire. */
#pragma once

#include "proto/transport/transport.h"
#include "proto/wire/control.h"

/**
 * Put a Hello into a free mailbox of the region and wait for the Welcome.
 *
 * @param path         of the region, as weir_region_open() takes it.
 * @param deadline_ns  for the whole exchange.
 * @param ret_welcome  the host's answer, also a refusal, whose status is returned.
 * @return WEIR_OK, or an error of weir_region_open()
 * @return WEIR_ERR_AGAIN      no worker serves the region now.
 * @return WEIR_ERR_NOT_FOUND  a region, but no host reads it.
 * @return WEIR_ERR_TIMED_OUT, WEIR_ERR_PEER, WEIR_ERR_NO_MEMORY
 * @thread any
 */
enum weir_status weir_connect_ivshmem(const char *path, const struct weir_hello *hello,
                                      uint64_t deadline_ns, struct weir_transport **ret_transport,
                                      struct weir_welcome **ret_welcome) WEIR_MUST_CHECK;
