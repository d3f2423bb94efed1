/*
 * Parts of a device's SMs, made with green contexts of CUDA. The scheduler may confine work to a
 * part if nothing can move that work once it runs (weir_sched_config.part_step, sched/small.c). A
 * part is the device's first SMs, or all SMs behind these. So a first part of one process and the
 * rest of another one share no SM.
 *
 * A stream is moved into a part: its next work goes to a second stream there, ordered behind its
 * earlier work. The same happens when it is moved on. The guest notices nothing. A graph is not
 * moved, but launched in another form (ops/graph_parts.h).
 *
 * A part is made when it is first wanted (place.c), since it takes 1.2 to 2.0 ms and 4 to 6 MiB of
 * the GPU's memory (H200, driver 580), and most workers never want one. A part counts its users. A
 * device has at most WEIR_PARTS_MAX: then the part that was unused for longest is destroyed.
 *
 * The table is locked inside: any thread. A stream is moved by its session's thread, with the
 * device's context current.
 *
 * Source: docs/design/scheduling.md, "Stream priorities and parts of the device"
 */
#pragma once

#include "base/status.h"
#include "proto/cuda_abi.h"
#include <stdbool.h>
#include <stdint.h>

/* All of them take some 40 MiB of the GPU's memory. They are enough for both sides of four
 * divisions; the scheduler seldom changes the division. */
#define WEIR_PARTS_MAX 8u

struct weir_driver;
struct weir_host_stream;
struct weir_part;
struct weir_parts; /* those of one device */

/* The part to which a stream was moved, and the stream there. */
struct weir_stream_part {
    struct weir_part *part; /* counted: the part of `stream`; NULL: `stream` was not made yet */
    CUstream stream;        /* takes the place of the guest's stream in the part */
    int priority;           /* the priority of stream */
    uint32_t set;           /* bit mask of attributes that the guest has set */
    uint32_t lacks;         /* attributes among them that `stream` does not have yet */
    bool in;                /* the work now goes to `stream` */
};

/** Does the driver divide the device into its first sms SMs and the others? It may still not make
 * the parts. @param sms  1 .. less than the device has. @thread any */
bool weir_part_is_possible(const struct weir_driver *driver, CUdevice device, uint32_t sms);

/** Make an empty table of parts. @param driver must outlive it. @return NULL: out of memory.
 * @thread any */
struct weir_parts *weir_parts_create(const struct weir_driver *driver, CUdevice device);

/** Destroy the table. No part may be in use. Accepts NULL. @thread main, with the device's
 * context */
void weir_parts_destroy(struct weir_parts *parts);

/**
 * Find a part that was made.
 * @param sm_first, sm_count  as in struct weir_sched_place.
 * @return counted, for weir_part_put(); NULL: it was not made.
 * @thread any
 */
struct weir_part *weir_parts_find(struct weir_parts *parts, uint32_t sm_first, uint32_t sm_count);

/** Count one more user of a part that has one. @thread any */
void weir_part_use(struct weir_part *part);
/** Count one user less. Accepts NULL. @thread any */
void weir_part_put(struct weir_part *part);

/**
 * Make a part, while the device's context is idle: the driver waits for its kernels. If there is no
 * room, the part that was unused for longest is destroyed.
 *
 * @param sm_first, sm_count  0 and n, or n and the device's SMs less n.
 * @param ret_part  counted, for weir_part_put().
 * @return WEIR_OK               also if another thread has just made it
 * @return WEIR_ERR_AGAIN        there is no room, and all parts are in use (weir_parts_oldest())
 * @return WEIR_ERR_UNSUPPORTED  the driver has no green contexts, cannot divide this device so,
 *                               does not keep their streams in order with others, or has no memory
 * @thread any, with the device's context
 */
enum weir_status weir_parts_make(struct weir_parts *parts, uint32_t sm_first, uint32_t sm_count,
                                 struct weir_part **ret_part) WEIR_MUST_CHECK;

/** Find the part that was found longest ago: its users may stop using it. Not counted: only for
 * comparing. NULL: there is none. @thread any */
const struct weir_part *weir_parts_oldest(struct weir_parts *parts);

/** The part's green context, as nodes of graphs name it. Valid as long as the part is used. @thread
 * any */
CUcontext weir_part_context(const struct weir_part *part);

/** The number of SMs of the part. @thread any */
uint32_t weir_part_sms(const struct weir_part *part);

/**
 * Let the next work of a stream run on a part, or on all of the device.
 *
 * @param part      NULL: all of the device. Else the stream has no stream in another part
 *                  (weir_part_stream_gone()).
 * @param priority  of the stream there, as cuGreenCtxStreamCreate takes it.
 * @return CUDA_SUCCESS, also if the stream is there already; else an error of the driver, and the
 *         stream stays where it was.
 * @thread session
 */
CUresult weir_part_move(const struct weir_driver *driver, struct weir_host_stream *stream,
                        struct weir_part *part, int priority);

/** The guest has set an attribute of the stream, other than its priority. The second stream in a
 * part gets it before its next work. @thread session */
void weir_part_attribute_set(struct weir_host_stream *stream, CUlaunchAttributeID id);

/** A stream is destroyed, or will move to another part: destroy its second stream. If it is in the
 * part, no work may follow. @thread session */
void weir_part_stream_gone(const struct weir_driver *driver, struct weir_host_stream *stream);
