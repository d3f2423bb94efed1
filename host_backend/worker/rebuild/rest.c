/* Can a session that rests go on in another worker? */
#include "host_backend/worker/rebuild/rebuild.h"

#include "base/clock.h"
#include "host_backend/worker/device/awaited.h"
#include "host_backend/worker/device/put_off.h"
#include "host_backend/worker/memory/away.h"
#include "host_backend/worker/rebuild/private.h"
#include "host_backend/worker/session/event_times.h"
#include "host_backend/worker/state/host_calls.h"
#include "host_backend/worker/state/suspension.h"

/* Copies of variables and arrays take so small a part of the time at rest: a record that comes
 * meanwhile waits for them. */
#define COPY_PARTS 20

bool weir_rebuild_is_quiet(struct weir_session *session)
{
    struct weir_session *s = session;

    return !s->uploads && (!s->devices.book || s->devices.book->n_promised == 0) &&
           !weir_put_off_any(s) && !weir_awaited_any(s) && !weir_host_calls_any(s) &&
           weir_session_has_no_work(s);
}

/* Why the session stays, whatever is in its variables. */
static const char *why_it_stays(struct weir_session *session)
{
    const char *why = weir_session_is_remote(session) ? "no shared memory with its program"
                      : session->devices.profile      ? "profiled work"
                      : session->prints               ? "kernels that print"
                                                      : weir_session_book_why(session);

    return why ? why : weir_rebuild_memory_why(session);
}

const char *weir_rebuild_why(struct weir_session *session)
{
    const char *why = why_it_stays(session);

    why = why ? why : weir_rebuild_variables_why(session);
    return why ? why : weir_rebuild_arrays_why(session);
}

const char *weir_rebuild_prepare(struct weir_session *session)
{
    uint64_t begin_ns = weir_clock_now_ns();
    const char *why = why_it_stays(session);

    why = why ? why : weir_rebuild_variables_save(session);
    why = why ? why : weir_rebuild_arrays_save(session, begin_ns);
    return why ? why : weir_event_times_note(session) != CUDA_SUCCESS ? "times of events" : NULL;
}

void weir_rebuild_rests(struct weir_session *session)
{
    struct weir_session_book *book = session->devices.book;
    const char *why;

    if (!book || book->rests || !weir_rebuild_is_quiet(session)) {
        return;
    }
    book->is_due =
        weir_clock_now_ns() - session->devices.suspension->rests_since_ns + WEIR_REST_NS <
        COPY_PARTS * book->copy_ns;
    if (book->is_due) {
        return;
    }
    why = weir_rebuild_prepare(session);
    book->rests = true;
    atomic_store(&book->why,
                 why ? why
                 : weir_rebuild_variables_fixed(session) || weir_rebuild_textures_any(session)
                     ? weir_book_if_same
                     : "");
    atomic_store(&book->leaving.may, !why);
}
