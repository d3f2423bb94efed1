/* What a session takes to another worker beside memory and objects (rebuild/rebuild.h). */
#pragma once

#include "host_backend/config/control.h"
#include "host_backend/worker/state/session.h"
#include "host_backend/worker/state/unknown_ops.h"

struct weir_transport_state;

struct weir_session_carried {
    uint64_t id, calls, started_ns;
    int64_t pid;
    uint32_t guest_pid, deferred_seq, deferred_error;
    struct weir_limit_wish wish;
    struct weir_unknown_ops unknown;
    char program[WEIR_HOST_TEXT_BYTES];
};

/** What the session is and has counted. @thread owner */
void weir_session_carry(const struct weir_session *session, struct weir_session_carried *ret);
/** Let a new session count on from there. @thread owner, before others know of it */
void weir_session_continue(struct weir_session *session, const struct weir_session_carried *from);
/** As of struct weir_transport_ops. @thread owner */
bool weir_session_transport_state(const struct weir_session *session,
                                  struct weir_transport_state *ret_state);
