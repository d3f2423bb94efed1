/*
 * Parts of a device's SMs for kernels as they are, by CUDA's green contexts.
 *
 * A stream is moved into a part: what it is given next goes to a stream of its own there, behind
 * what it had, and so again when it is moved back. What it is to the guest stays the same. See
 * docs/design/scheduling.md, "Stream priorities and parts of the device".
 *
 * A device's parts are made once, while it is idle, and then only read: any thread. A stream is
 * moved by its session's thread, with the device's context current.
 */
#ifndef WEIR_HOST_BACKEND_WORKER_SESSION_PART_H
#define WEIR_HOST_BACKEND_WORKER_SESSION_PART_H

#include "base/status.h"
#include "proto/cuda_abi.h"
#include <stdint.h>

#define WEIR_PARTS_MAX 32u

struct weir_driver;
struct weir_parts;
struct weir_host_stream;

/* Of a stream that has been moved: where it is, and its streams in the parts. */
struct weir_stream_parts {
    CUstream at;
    uint32_t sms;                    /* of the part that it is in; 0: in none */
    CUstream stream[WEIR_PARTS_MAX]; /* by part; NULL: not made yet */
};

/**
 * Make the parts of a device: of its first SMs so many as it can be divided by, twice as many, and
 * so on, but not all. The device's primary context is current.
 *
 * @param driver    outlives the parts.
 * @param priority  of the streams there, as cuGreenCtxStreamCreate takes it.
 * @return WEIR_OK
 * @return WEIR_ERR_UNSUPPORTED  the driver has no green contexts, cannot divide this device, or
 *                               does not keep their streams in order with others.
 * @return WEIR_ERR_NO_MEMORY
 * @thread main, before there are sessions
 */
enum weir_status weir_parts_create(const struct weir_driver *driver, CUdevice device, int priority,
                                   struct weir_parts **ret_parts) WEIR_MUST_CHECK;

/** No stream may have been left there. Accepts NULL. @thread main */
void weir_parts_destroy(struct weir_parts *parts);

/**
 * Have what a stream is given from now on run on a part of the device, or on all of it.
 *
 * @param sms  it is the smallest part with at least so many; 0, or more than any has: all.
 * @return CUDA_SUCCESS, also where it is there already. Else it is where it was: an error of the
 *         driver, CUDA_ERROR_OUT_OF_MEMORY.
 * @thread session
 */
CUresult weir_parts_move(const struct weir_parts *parts, struct weir_host_stream *stream,
                         uint32_t sms);

/** A stream goes: those that it has in parts do, too. @thread session */
void weir_parts_stream_gone(const struct weir_driver *driver, struct weir_host_stream *stream);

#endif
