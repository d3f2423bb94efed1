/*
 * The memory that a session may name. limits.h has the charges.
 *
 * Owner thread only, unless a function says otherwise.
 */
#pragma once

#include "base/status.h"
#include "host_backend/worker/state/limits.h"
#include "proto/cuda_abi.h"
#include <stdbool.h>
#include <stdint.h>

struct weir_holdings;
struct weir_named_range;
struct weir_session;

/** Make a session's list. NULL: out of memory. */
struct weir_holdings *weir_holdings_create(void);
/** Free the list, which must be empty. Accepts NULL. */
void weir_holdings_destroy(struct weir_holdings *holdings);

/** Allow the guest to name this memory. @param owner the object with which the permission ends */
enum weir_status weir_session_admit(struct weir_session *session, uint64_t address, uint64_t bytes,
                                    const void *owner) WEIR_MUST_CHECK;
/** Forbid all memory of an owner, which is about to be destroyed. */
void weir_session_unadmit(struct weir_session *session, const void *owner);
/** Like weir_session_unadmit(), for an owner that has one range, which begins at address. */
void weir_session_unadmit_at(struct weir_session *session, uint64_t address, const void *owner);

/** Like weir_session_check_dptr(), for memory that is to be written. */
CUresult weir_session_check_write(struct weir_session *session, uint64_t address, uint64_t bytes);

/** As the two, for what one of them has found good before. */
CUresult weir_session_check_range(struct weir_session *session,
                                  const struct weir_named_range *range);

/** Is this the guest's own memory that it has registered? @param address the GPU's */
bool weir_session_registered(const struct weir_session *session, uint64_t address);

/** A weir_awaited_place_fn for weir_awaited_write(). */
bool weir_session_awaited_place(struct weir_session *session, uint64_t address, uint64_t bytes,
                                bool *ret_here);

/** Let a newly used device of the session access all device memory that the session may name. */
void weir_session_memory_reach(struct weir_session *session, uint32_t device);
