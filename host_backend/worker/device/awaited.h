/*
 * Values that streams of a session wait for. Only the guest would have written them. So when a
 * session ends it writes them itself, or its streams would wait for ever.
 */
#ifndef WEIR_HOST_BACKEND_WORKER_DEVICE_AWAITED_H
#define WEIR_HOST_BACKEND_WORKER_DEVICE_AWAITED_H

#include "base/status.h"
#include "proto/cuda_abi.h"
#include <stdbool.h>
#include <stdint.h>

/* Values that a session's streams and graphs may wait for at a time; a power of two. More than fit
 * into the queues of 64 streams. */
#define WEIR_AWAITED_MAX 65536u

struct weir_awaited;
struct weir_host_stream;
struct weir_session;

/* State of a stream. Zeroed: no value was noted for it. */
struct weir_awaited_stream {
    CUevent event;   /* NULL until it is needed */
    uint64_t last;   /* number of the last value noted for the stream */
    uint64_t covers; /* number of the last value noted when the event was recorded */
    uint64_t passed; /* the stream waits for no value up to this number any more */
    bool pending;    /* the event has been recorded, and was not yet seen done */
};

/** A session's part. NULL: out of memory. */
struct weir_awaited *weir_awaited_create(void);
/** Accepts NULL. */
void weir_awaited_destroy(struct weir_awaited *awaited);

/**
 * Is there a value that ends such a wait? Without one the end of the session cannot end it either.
 * @param flags  CUstreamWaitValue_flags
 * @thread any
 */
bool weir_awaited_can_come(uint64_t value, uint32_t flags, bool wide);

/**
 * Note that a stream is about to wait for a value of 8 bytes (wide) or 4.
 * @param stream  NULL: a graph, whenever it is launched.
 * @return CUDA_SUCCESS
 * @return CUDA_ERROR_OUT_OF_MEMORY  no memory, or too many waits are under way; the stream must
 *                                   not wait.
 * @thread session
 */
CUresult weir_awaited_note(struct weir_session *session, struct weir_host_stream *stream,
                           uint64_t address, uint64_t value, bool wide);

/** A stream is about to be destroyed. @thread session, with its context */
void weir_awaited_stream_gone(struct weir_session *session, struct weir_host_stream *stream);

/** May a value be written there (memory.h)? @param ret_here  in memory of the program's own that is
 * mapped here, too. */
typedef bool (*weir_awaited_place_fn)(struct weir_session *session, uint64_t address,
                                      uint64_t bytes, bool *ret_here);
/** Write all of them, and wait until they are written. @thread session, at its end */
void weir_awaited_write(struct weir_session *session, weir_awaited_place_fn place);

/** May a stream of the session wait for a value? @thread session */
bool weir_awaited_any(const struct weir_session *session);

/** May one wait for a value within this memory? @thread session */
bool weir_awaited_within(const struct weir_session *session, uint64_t base, uint64_t bytes);

/**
 * If a stream of the session may wait for a value, wait until its streams have done their work.
 *
 * For what comes before a driver call that waits for the device: inside the driver the session's
 * thread could no longer write the value when the program is gone, and nobody would.
 *
 * @return false: the program is gone, or the session ends. The call must not be made, for the end
 *         of the session writes the values.
 * @thread session, in a handler
 */
bool weir_awaited_settle(struct weir_session *session) WEIR_MUST_CHECK;

/**
 * Wait until the session's streams have done their work, whatever they wait for. The program may
 * use memory otherwise as soon as it is unregistered, and its own copies are not to reach it then.
 * @return as weir_awaited_settle()
 * @thread session, in a handler
 */
bool weir_awaited_settle_all(struct weir_session *session) WEIR_MUST_CHECK;

#endif
