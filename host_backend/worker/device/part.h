/*
 * A part of a device's SMs for kernels as they are, by a green context of CUDA: what a kernel keeps
 * to while it leaves room for small graphs (sched/room.c).
 *
 * A stream is moved into the part: what it is given next goes to a stream of its own there, behind
 * what it had, and so again when it is moved back. What it is to the guest stays the same. See
 * docs/design/scheduling.md, "Stream priorities and the part of the device".
 *
 * A device's part is made once, while its context is idle (the driver waits for the context's
 * kernels when it makes a green context), and then only read: any thread. A stream is moved by its
 * session's thread, with the device's context current.
 */
#ifndef WEIR_HOST_BACKEND_WORKER_DEVICE_PART_H
#define WEIR_HOST_BACKEND_WORKER_DEVICE_PART_H

#include "base/status.h"
#include "proto/cuda_abi.h"
#include <stdbool.h>
#include <stdint.h>

struct weir_driver;
struct weir_part;
struct weir_host_stream;

/* The part's state of a stream that may have been moved. */
struct weir_stream_part {
    CUstream stream; /* the stream that stands for it in the part; NULL: not made yet */
    int priority;    /* the priority of stream */
    uint32_t set;    /* bit mask of attributes that the guest has set and stream lacks */
    bool in;         /* the work goes to stream now */
};

/**
 * Make the part: of the device's first SMs as few as it allows that are at least `sms`. The
 * device's primary context is current.
 *
 * @param driver  outlives the part.
 * @param sms     1 .. less than the device has.
 * @return WEIR_OK
 * @return WEIR_ERR_UNSUPPORTED  the driver has no green contexts, cannot divide this device so, or
 *                               does not keep their streams in order with others.
 * @return WEIR_ERR_NO_MEMORY
 * @thread main, before there are sessions
 */
enum weir_status weir_part_create(const struct weir_driver *driver, CUdevice device, uint32_t sms,
                                  struct weir_part **ret_part) WEIR_MUST_CHECK;

/**
 * Does the driver divide the device so? It may still not make the part.
 *
 * @param sms  as weir_part_create() takes it.
 * @thread any
 */
bool weir_part_is_possible(const struct weir_driver *driver, CUdevice device, uint32_t sms);

/** No stream may have been left there. Accepts NULL. @thread main */
void weir_part_destroy(struct weir_part *part);

/** @return how many SMs were asked for. @thread any */
uint32_t weir_part_sms(const struct weir_part *part);

/**
 * Have what a stream is given from now on run on the part, or on all of the device.
 *
 * @param priority  of the stream there, as cuGreenCtxStreamCreate takes it.
 * @return CUDA_SUCCESS, also where it is there already. Else it is where it was: an error of the
 *         driver.
 * @thread session
 */
CUresult weir_part_move(const struct weir_part *part, struct weir_host_stream *stream, bool in,
                        int priority);

/** The guest has set an attribute of the stream other than its priority, which one in the part is
 * given before its next work. @thread session */
void weir_part_attribute_set(struct weir_host_stream *stream, CUlaunchAttributeID id);

/** A stream goes: the one that it has in the part does, too. @thread session */
void weir_part_stream_gone(const struct weir_driver *driver, struct weir_host_stream *stream);

#endif
