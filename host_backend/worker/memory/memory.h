/*
 * The memory that a session may name. What it is charged to: limits.h.
 *
 * Owner thread only, unless a function says otherwise.
 */
#ifndef WEIR_HOST_BACKEND_WORKER_MEMORY_MEMORY_H
#define WEIR_HOST_BACKEND_WORKER_MEMORY_MEMORY_H

#include "base/status.h"
#include "host_backend/worker/state/limits.h"
#include "proto/cuda_abi.h"
#include <stdbool.h>
#include <stdint.h>

struct weir_holdings;
struct weir_session;

/** A session's part. NULL: out of memory. */
struct weir_holdings *weir_holdings_create(void);
/** Nothing may be held. Accepts NULL. */
void weir_holdings_destroy(struct weir_holdings *holdings);

/** Allow the guest to name this memory. @param owner  the memory goes away with its owner */
enum weir_status weir_session_admit(struct weir_session *session, uint64_t address, uint64_t bytes,
                                    const void *owner) WEIR_MUST_CHECK;
/** An owner goes. */
void weir_session_unadmit(struct weir_session *session, const void *owner);
/** Like weir_session_unadmit(), for an owner that has one range, which begins at address. */
void weir_session_unadmit_at(struct weir_session *session, uint64_t address, const void *owner);

/** Like weir_session_check_dptr(), for memory that is to be written. */
CUresult weir_session_check_write(struct weir_session *session, uint64_t address, uint64_t bytes);

/** Is it the guest's own memory that it has registered? @param address  for the GPU */
bool weir_session_registered(const struct weir_session *session, uint64_t address);

/** A weir_awaited_place_fn for weir_awaited_write(). */
bool weir_session_awaited_place(struct weir_session *session, uint64_t address, uint64_t bytes,
                                bool *ret_here);

/** Let a device that the session has not used before reach all device memory that it may name. */
void weir_session_memory_reach(struct weir_session *session, uint32_t device);

#endif
