/* Times of recorded events by the host's clock: see event_times.h. */
#include "host_backend/worker/session/event_times.h"

#include "base/clock.h"
#include "host_backend/worker/session/book.h"
#include "host_backend/worker/session/objects.h"
#include "host_backend/worker/state/platform.h"

#define NS_PER_MS 1e6

/* Record the device's base event, and note when it was. Others' times are taken from it. */
static CUresult record_base(struct weir_session *s, uint32_t device)
{
    struct weir_session_book *book = s->devices.book;
    CUstream work;

    WEIR_TRY(weir_session_enter(s, device));
    WEIR_TRY(weir_session_work_stream(s, &work));
    if (!book->bases[device]) {
        WEIR_TRY(s->driver->cuEventCreate(&book->bases[device], CU_EVENT_DEFAULT));
    }
    WEIR_TRY(s->driver->cuEventRecord(book->bases[device], work));
    WEIR_TRY(s->driver->cuStreamSynchronize(work));
    book->base_ms[device] = (double)weir_clock_now_ns() / NS_PER_MS;
    return CUDA_SUCCESS;
}

/* When the driver recorded the event. CUDA_ERROR_INVALID_HANDLE: it has not. */
static CUresult time_of(const struct weir_session *s, const struct weir_host_event *event,
                        double *ret_ms)
{
    const struct weir_session_book *book = s->devices.book;
    float ms;

    WEIR_TRY(weir_event_elapsed(s->driver, &ms, book->bases[event->o.device], event->o.native));
    *ret_ms = book->base_ms[event->o.device] + (double)ms;
    return CUDA_SUCCESS;
}

struct visit {
    struct weir_session *session;
    CUresult result;
};

static bool has_times(const struct weir_host_event *event)
{
    return (event->flags & CU_EVENT_DISABLE_TIMING) == 0 && !event->shared && !event->captured;
}

static void note(weir_handle handle, void *object, void *user)
{
    struct weir_host_event *event = object;
    struct visit *visit = user;
    CUresult result;

    (void)handle;
    if (!has_times(event) || visit->result != CUDA_SUCCESS) {
        return;
    }
    if (!visit->session->devices.book->bases[event->o.device] ||
        visit->session->device != event->o.device) {
        visit->result = record_base(visit->session, event->o.device);
    }
    result = visit->result == CUDA_SUCCESS ? time_of(visit->session, event, &event->at_ms)
                                           : visit->result;
    if (result != CUDA_ERROR_INVALID_HANDLE) { /* else it keeps the time that it has, or none */
        visit->result = result;
    }
}

CUresult weir_event_times_note(struct weir_session *session)
{
    struct visit visit = {session, CUDA_SUCCESS};
    uint32_t device = session->device;

    for (uint32_t i = 0; i < session->platform->n_devices; i++) {
        if (session->devices.book->bases[i]) {
            WEIR_TRY(record_base(session, i)); /* a time since long ago would be rounded */
        }
    }
    weir_host_objects_visit(session, WEIR_KIND_EVENT, note, &visit);
    (void)weir_session_enter(session, device);
    return visit.result;
}

static CUresult find_time(struct weir_session *s, const struct weir_host_event *event,
                          double *ret_ms)
{
    CUresult result;

    WEIR_TRY(record_base(s, event->o.device));
    result = time_of(s, event, ret_ms);
    if (result == CUDA_ERROR_INVALID_HANDLE && event->at_ms != 0) {
        *ret_ms = event->at_ms;
        return CUDA_SUCCESS;
    }
    return result;
}

CUresult weir_event_times_between(struct weir_session *session, const struct weir_host_event *start,
                                  const struct weir_host_event *end, float *ret_ms)
{
    double start_ms, end_ms;

    if (!session->devices.book || !has_times(start) || !has_times(end) ||
        (start->at_ms == 0 && end->at_ms == 0)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    WEIR_TRY(find_time(session, start, &start_ms));
    WEIR_TRY(find_time(session, end, &end_ms));
    *ret_ms = (float)(end_ms - start_ms);
    return CUDA_SUCCESS;
}

void weir_event_times_recorded(struct weir_host_event *event, bool captured)
{
    event->captured = captured;
    event->was_captured |= captured;
}

CUresult weir_event_times_forget_capture(struct weir_session *session,
                                         struct weir_host_event *event)
{
    CUevent fresh, old = event->o.native;

    if (!event->captured || event->shared || event->o.hold) { /* a graph may name the driver's */
        return CUDA_SUCCESS;
    }
    WEIR_TRY(weir_session_enter(session, event->o.device));
    WEIR_TRY(session->driver->cuEventCreate(&fresh, event->flags & CU_EVENT_DISABLE_TIMING));
    weir_host_object_hide(session, &event->o);
    weir_event_times_recorded(event, false);
    (void)session->driver->cuEventDestroy_v2(old);
    return weir_host_object_bind(session, &event->o, fresh);
}

void weir_event_times_end(struct weir_session *session)
{
    for (uint32_t i = 0; session->devices.book && i < session->platform->n_devices; i++) {
        if (session->devices.book->bases[i] && weir_session_enter(session, i) == CUDA_SUCCESS) {
            (void)session->driver->cuEventDestroy_v2(session->devices.book->bases[i]);
            session->devices.book->bases[i] = NULL;
        }
    }
}
