/*
 * A session's device memory goes to host memory and comes back at the same addresses: the session
 * is suspended, and resumed (docs/design/suspend.md).
 *
 * For the session's thread.
 */
#pragma once

#include "host_backend/worker/state/session.h"
#include <stdint.h>

/** Has all work of the session ended, including runs that were stopped for other tenants, and is no
 * stream captured? */
bool weir_session_has_no_work(const struct weir_session *session);

/**
 * Move what can be moved, if the session rests: none of its streams has work, or is captured.
 * @param least_bytes  device memory that the tenant keeps.
 * @return CUDA_SUCCESS; else nothing was moved: CUDA_ERROR_NOT_READY (the session does not
 *         rest), CUDA_ERROR_NOT_FOUND (nothing can be moved), CUDA_ERROR_OUT_OF_MEMORY (the
 *         tenant may have no such host memory), the driver's
 */
CUresult weir_away_begin(struct weir_session *session, uint64_t least_bytes);

/**
 * Bring everything back. Waits for device memory as long as it takes, unless the session is over.
 * @return CUDA_SUCCESS, CUDA_ERROR_OUT_OF_MEMORY (the session is over), the driver's
 */
CUresult weir_away_end(struct weir_session *session);

/** The session ends, and what is away is lost. */
void weir_away_forget(struct weir_session *session);

/** How much of the session's device memory weir_away_begin() would move. */
uint64_t weir_away_movable(const struct weir_session *session);
