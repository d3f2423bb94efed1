/* Can a session that rests go on in another worker? */
#include "host_backend/worker/rebuild/rebuild.h"

#include "host_backend/worker/device/awaited.h"
#include "host_backend/worker/device/put_off.h"
#include "host_backend/worker/memory/away.h"
#include "host_backend/worker/rebuild/private.h"
#include "host_backend/worker/session/event_times.h"
#include "host_backend/worker/state/host_calls.h"

bool weir_rebuild_is_quiet(struct weir_session *session)
{
    struct weir_session *s = session;

    return !s->uploads && (!s->devices.book || s->devices.book->n_promised == 0) &&
           !weir_put_off_any(s) && !weir_awaited_any(s) && !weir_host_calls_any(s) &&
           weir_session_has_no_work(s);
}

const char *weir_rebuild_why(struct weir_session *session)
{
    const char *why = weir_session_is_remote(session) ? "no shared memory with its program"
                      : session->devices.profile      ? "profiled work"
                      : session->prints               ? "kernels that print"
                                                      : weir_session_book_why(session);

    return why ? why : weir_rebuild_memory_why(session);
}

void weir_rebuild_rests(struct weir_session *session)
{
    struct weir_session_book *book = session->devices.book;
    const char *why;

    if (!book || book->rests || !weir_rebuild_is_quiet(session)) {
        return;
    }
    why = weir_rebuild_why(session);
    if (!why && weir_event_times_note(session) != CUDA_SUCCESS) {
        why = "times of events";
    }
    book->rests = true;
    atomic_store(&book->why, why ? why : "");
    atomic_store(&book->may_leave, !why);
}
