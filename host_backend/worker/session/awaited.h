/*
 * Values that streams of a session wait for. Only the guest would have written them. So when a
 * session ends it writes them itself, or its streams would wait for ever. The last
 * WEIR_AWAITED_MAX values are kept.
 */
#ifndef WEIR_HOST_BACKEND_WORKER_SESSION_AWAITED_H
#define WEIR_HOST_BACKEND_WORKER_SESSION_AWAITED_H

#include "base/status.h"
#include <stdbool.h>
#include <stdint.h>

#define WEIR_AWAITED_MAX 1024u

struct weir_awaited;
struct weir_session;

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

/** A stream is about to wait for a value of 8 bytes (wide) or 4. @thread session */
void weir_awaited_note(struct weir_session *session, uint64_t address, uint64_t value, bool wide);

/** Write all of them, and wait until they are written. @thread session, at its end */
void weir_awaited_write(struct weir_session *session);

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
