/* The begin and the end of the process's session. */
#pragma once

#include "guest_lib/state.h"

struct weir_transport;
struct weir_welcome;

/** cuInit: connect once. Later calls return the same result. @thread any */
CUresult weir_guest_init(void);

/**
 * The part of cuInit after a transport was connected: devices, tables, primary contexts. Tests over
 * the loop transport call it directly.
 *
 * @param welcome  borrowed.
 * @return CUDA_SUCCESS or the result for cuInit.
 * @thread init_lock held, or no other thread
 */
CUresult weir_guest_start(struct weir_transport *transport, const struct weir_welcome *welcome);

/**
 * Connect to the host that the environment names: for cuInit, and for NVML's monitor.
 *
 * @param monitor  the connection will only ask.
 * @return as weir_connect()
 * @thread any
 */
enum weir_status weir_guest_connect(bool monitor, struct weir_transport **ret_transport,
                                    struct weir_welcome **ret_welcome);

/** Undo a complete or failed weir_guest_start(): after a failed cuInit, and for tests.
 * @thread alone */
void weir_guest_stop(void);
