/* Waiting for memory of programs that have ended. The model: ended.h. */
#ifndef WEIR_HOST_BACKEND_WORKER_SESSION_ENDING_H
#define WEIR_HOST_BACKEND_WORKER_SESSION_ENDING_H

#include "host_backend/worker/session/ended.h"

/**
 * The operation has failed. If memory that it lacked may be there soon, wait for it.
 * @param result  of the operation.
 * @return true: carry it out again, from the beginning.
 * @thread owner, in no handler and with no lock
 */
bool weir_session_tries_again(struct weir_session *session, CUresult result);

#endif
