/*
 * A session's contexts, streams and events, the context that is current in its thread, and its own
 * streams. Only that thread uses them.
 */
#pragma once

#include "host_backend/worker/device/admission.h"
#include "host_backend/worker/device/awaited.h"
#include "host_backend/worker/device/fault.h"
#include "host_backend/worker/device/part.h"
#include "host_backend/worker/state/hooks.h"
#include "host_backend/worker/state/object.h"
#include "host_backend/worker/state/session.h"

struct weir_ipc_event;

/* A context of the guest. All contexts of a device share its one primary context. */
struct weir_host_ctx {
    struct weir_object o;
    struct weir_host_ctx *next;
    struct weir_host_stream *legacy;
    struct weir_host_stream *streams; /* all streams of the context, with the legacy stream */
    /* Counters for the legacy order (device/order.c). */
    uint64_t legacy_epoch; /* number of operations that the legacy stream has got */
    uint64_t event_epoch;  /* number of them before the last record of legacy_event */
    CUevent legacy_event;  /* NULL until it is needed */
    uint32_t flags;
};

struct weir_host_stream {
    struct weir_object o;
    struct weir_host_stream *next; /* next stream of the context */
    uint32_t word;
    uint32_t flags;
    int priority; /* the priority that the guest asks for */
    bool legacy;
    bool blocking;          /* the stream is ordered against the legacy stream */
    bool dirty;             /* the stream has had work since the legacy stream last waited for it */
    bool left;              /* destroyed by the guest, but waits for a value or is captured */
    bool capturing;         /* this stream began a capture that has not ended */
    bool capture_given;     /* the capture goes into a graph of the guest */
    uint64_t capture_graph; /* handle of the graph under capture if it was named; else 0 */
    uint16_t capture_depth; /* while the captured graph has no name: its depth and within */
    uint32_t capture_within;
    uint32_t capture_nodes; /* nodes that the given graph had when they were last counted */
    uint64_t seen_epoch;    /* the last operation of the legacy stream that it waits for */
    CUevent join;           /* NULL until it is needed */
    struct weir_admission_stream gate;
    struct weir_fault_stream fault;
    struct weir_stream_told told;
    struct weir_awaited_stream awaited;
    struct weir_stream_part part;
};

/** The driver's stream that gets this stream's work: its own, or the second one in a part of the
 * device. */
static inline CUstream weir_host_stream_at(const struct weir_host_stream *stream)
{
    return stream->part.in ? stream->part.stream : stream->o.native;
}

struct weir_host_event {
    struct weir_object o;
    uint32_t flags;
    bool captured;     /* its last record was captured: it has joined streams, and means no work */
    bool was_captured; /* an earlier one was */
    struct weir_ipc_event *shared; /* reference to an interprocess event; NULL: it is none */
    double
        at_ms; /* when it was recorded, if another driver did that (event_times.h); 0: not known */
};

/**
 * Make a device's context current. A device without one is opened.
 * @param device  below the worker's n_devices
 * @return CUDA_SUCCESS, as weir_worker_device_open(); then the last device's stays current
 */
CUresult weir_session_switch(struct weir_session *session, uint32_t device);
static inline CUresult weir_session_enter(struct weir_session *session, uint32_t device)
{
    return __builtin_expect(session->device != device, 0) ? weir_session_switch(session, device)
                                                          : CUDA_SUCCESS;
}

/** cuEventElapsedTime, of which older and newer drivers have different versions. */
static inline CUresult weir_event_elapsed(const struct weir_driver *driver, float *ret_ms,
                                          CUevent start, CUevent end)
{
    return weir_driver_has(driver, cuEventElapsedTime_v2)
               ? driver->cuEventElapsedTime_v2(ret_ms, start, end)
               : driver->cuEventElapsedTime(ret_ms, start, end);
}

/** The current device's stream for clearing memory. */
CUresult weir_session_work_stream(struct weir_session *session, CUstream *ret_stream);
/** Destroy these streams of all devices. */
void weir_session_work_streams_end(struct weir_session *session);
