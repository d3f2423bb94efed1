/*
 * Values that streams of a session wait for, and that only the guest would have written. So when a
 * session ends, the worker writes them itself, or the streams would wait for ever.
 */
#pragma once

#include "base/status.h"
#include "proto/cuda_abi.h"
#include <stdbool.h>
#include <stdint.h>

/* Values that a session's streams and graphs may wait for at a time; a power of two. The queues of
 * 64 streams hold fewer. */
#define WEIR_AWAITED_MAX 65536u

struct weir_awaited;
struct weir_host_stream;
struct weir_session;

/* A stream's part of these values. Zeroed: no value was noted for it. */
struct weir_awaited_stream {
    CUevent event;   /* NULL until it is needed */
    uint64_t last;   /* number of the last value noted for the stream */
    uint64_t covers; /* number of the last value noted when the event was recorded */
    uint64_t passed; /* the stream has passed all values up to this number */
    bool pending;    /* the event was recorded, and not yet seen reached */
};

/** Make a session's list of values. NULL: out of memory. */
struct weir_awaited *weir_awaited_create(void);
/** Accepts NULL. */
void weir_awaited_destroy(struct weir_awaited *awaited);

/**
 * Can any value end such a wait? Without one the end of the session cannot end it either.
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

/** May a value be written at this address (memory.h)? @param ret_here set for the program's own
 * memory that is mapped in the worker, too. */
typedef bool (*weir_awaited_place_fn)(struct weir_session *session, uint64_t address,
                                      uint64_t bytes, bool *ret_here);
/** Write all noted values, and wait until they are written. @thread session, at its end */
void weir_awaited_write(struct weir_session *session, weir_awaited_place_fn place);

/** May a stream of the session wait for a value? @thread session */
bool weir_awaited_any(const struct weir_session *session);

/** May a stream of the session wait for a value within this memory? @thread session */
bool weir_awaited_within(const struct weir_session *session, uint64_t base, uint64_t bytes);

/**
 * If a stream of the session may wait for a value, wait until all the session's streams have
 * finished.
 *
 * Call this before a driver call that waits for the device: inside the driver the session's thread
 * could not write the value when the program has ended, and no other thread would.
 *
 * @return false: the program is gone, or the session ends. The call must not be made, since the end
 *         of the session writes the values.
 * @thread session, in a handler
 */
bool weir_awaited_settle(struct weir_session *session) WEIR_MUST_CHECK;

/**
 * Wait until the session's streams have finished, whatever they wait for. After unregistering
 * memory the program may use it for other data, and no earlier copy may reach it then.
 * @return as weir_awaited_settle()
 * @thread session, in a handler
 */
bool weir_awaited_settle_all(struct weir_session *session) WEIR_MUST_CHECK;
