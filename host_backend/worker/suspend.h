/* Suspended sessions: when their memory goes, and when it comes back. Source:
 * docs/design/suspend.md */
#pragma once

#include "host_backend/config/link.h"
#include "host_backend/worker/state/session.h"
#include "host_backend/worker/state/suspension.h"

/** Ask sessions of this worker for what the message says. @thread main */
void weir_suspend_ask(struct weir_worker *worker, const struct weir_link_suspend *what);

/** No record has come for a while, and no work of the session is under way. @thread owner */
void weir_session_rests(struct weir_session *session);

/** A record has come: bring back what is away, or wait while the session is held. If that is not
 * possible, the session ends, and must not handle the record. @thread owner */
void weir_session_wakes(struct weir_session *session);

/** Does the session rest, since weir_session_rests()? @thread owner */
static inline bool weir_session_is_resting(const struct weir_session *session)
{
    return session->devices.suspension->rests_since_ns != 0;
}

/** Must weir_session_wakes() be called for a record? @thread owner */
static inline bool weir_session_is_asked(const struct weir_session *session)
{
    return weir_session_is_resting(session) ||
           atomic_load_explicit(&session->devices.suspension->wish, memory_order_relaxed) !=
               WEIR_SUSPEND_NO;
}
