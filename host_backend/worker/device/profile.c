/*
 * Two timing events stand around each piece of profiled work. When the guest asks, the ended ones
 * become records: an event's time is its distance from the device's *anchor*, an event whose time
 * on the host's clock is known.
 *
 * The device's clock drifts from the host's, and distances are floats of milliseconds, so anchors
 * are made anew. An anchor is an event in the session's work stream, which is idle, that the thread
 * sees done a few microseconds after it was recorded. On a busy device this may fail; then the
 * older anchor stays. From one anchor to the next times may step by some microseconds. So work that
 * seems to begin before it was given, or before its stream's earlier work had ended, is shifted.
 */
#include "host_backend/worker/device/profile.h"

#include "base/clock.h"
#include "host_backend/worker/device/order.h"
#include "host_backend/worker/device/streams.h"
#include "host_backend/worker/state/platform.h"
#include "host_backend/worker/state/session.h"
#include "proto/ops.h"
#include <stdlib.h>

#define ANCHOR_AGE_NS  WEIR_NS_PER_S          /* a float of 1 s in ms has steps of 0.06 us */
#define ANCHOR_TRY_NS  (100 * WEIR_NS_PER_MS) /* how often to try, where none could be made */
#define ANCHOR_SEEN_NS (100 * WEIR_NS_PER_US) /* an event that is seen later is too inexact */
#define ANCHOR_GOOD_NS (10 * WEIR_NS_PER_US)  /* an event seen this soon ends the search */
#define ANCHOR_TRIES   5
#define STREAM_ENDS    64u
#define UNENDED_MAX    64u /* streams with unended work that are told apart */

_Static_assert((int)WEIR_PROFILE_KERNEL == (int)WEIR_SCHED_KERNEL &&
                   (int)WEIR_PROFILE_GRAPH == (int)WEIR_SCHED_GRAPH &&
                   (int)WEIR_PROFILE_H2D == (int)WEIR_SCHED_H2D &&
                   (int)WEIR_PROFILE_D2H == (int)WEIR_SCHED_D2H &&
                   (int)WEIR_PROFILE_D2D == (int)WEIR_SCHED_D2D &&
                   (int)WEIR_PROFILE_MEMSET == (int)WEIR_SCHED_MEMSET,
               "a record has the scheduler's class");
_Static_assert((int)WEIR_PROFILE_OWN == (int)WEIR_SCHED_CAUSE_OWN + 1 &&
                   (int)WEIR_PROFILE_DOMAIN == (int)WEIR_SCHED_CAUSE_DOMAIN + 1 &&
                   (int)WEIR_PROFILE_CAUSES == (int)WEIR_SCHED_CAUSE_COUNT + 1,
               "a record has the scheduler's cause");

struct weir_profile_span {
    struct weir_profile_record record;
    uint64_t given_ns;
    CUevent begin, end;             /* on `device`; NULL until first used */
    struct weir_profile_span *next; /* in the list of open spans, or of free ones */
    uint32_t device;
    uint64_t stream; /* the guest's handle */
};

struct anchor {
    CUevent event[2]; /* event[now] is the anchor; NULL until first used */
    uint32_t now;
    uint64_t
        ns; /* when the anchor event was recorded, on the host's clock; 0: there is no anchor */
    uint64_t tried_ns; /* when making an anchor was last tried */
};

/* When a stream's last recorded work ended. */
struct stream_end {
    uint64_t stream, ns;
};

struct weir_profile {
    struct weir_profile_span *first, *last; /* recorded, and not taken yet; oldest first */
    struct weir_profile_span *free;
    uint32_t n_open, n_used; /* open spans; the part of spans[] that was ever used */
    uint64_t dropped;
    struct anchor anchors[WEIR_DEVICES_MAX];
    struct stream_end ends[STREAM_ENDS]; /* by stream % STREAM_ENDS; a later one takes the place */
    struct weir_profile_record ready[WEIR_PROFILE_RECORDS_MAX]; /* the last reply */
    struct weir_profile_span spans[WEIR_PROFILE_RECORDS_MAX];
};

/* ---------------------------------------------------------------- anchors */

/* Record the event, and see it done. @return its time, which is wrong by half of ret_took_ns at
 * most; 0: it was seen too late */
static uint64_t see(const struct weir_driver *driver, CUevent event, CUstream work,
                    uint64_t *ret_took_ns)
{
    uint64_t before_ns = weir_clock_now_ns();

    if (driver->cuEventRecord(event, work) != CUDA_SUCCESS) {
        return 0;
    }
    do {
        *ret_took_ns = weir_clock_now_ns() - before_ns;
        if (*ret_took_ns > ANCHOR_SEEN_NS) {
            return 0;
        }
    } while (driver->cuEventQuery(event) == CUDA_ERROR_NOT_READY);
    *ret_took_ns = weir_clock_now_ns() - before_ns;
    return *ret_took_ns > ANCHOR_SEEN_NS ? 0 : before_ns + *ret_took_ns / 2;
}

/* Make an anchor of the current device: of some events the one that was seen soonest. */
static void make_anchor(struct weir_session *s, struct anchor *anchor, CUstream work)
{
    uint64_t best_ns = UINT64_MAX;
    uint32_t other = 1 - anchor->now;

    for (int i = 0; i < ANCHOR_TRIES && best_ns > ANCHOR_GOOD_NS; i++) {
        uint64_t took_ns, ns;

        if (!anchor->event[other] &&
            s->driver->cuEventCreate(&anchor->event[other], CU_EVENT_DEFAULT) != CUDA_SUCCESS) {
            return;
        }
        ns = see(s->driver, anchor->event[other], work, &took_ns);
        if (ns != 0 && took_ns < best_ns) {
            best_ns = took_ns;
            anchor->ns = ns;
            anchor->now = other;
            other = 1 - other;
        }
    }
}

/* Make an anchor of the current device, if it has none or an old one. */
static void renew_anchor(struct weir_session *s, struct anchor *anchor)
{
    uint64_t now_ns = weir_clock_now_ns();
    CUstream work;

    if ((anchor->ns != 0 && now_ns - anchor->ns < ANCHOR_AGE_NS) ||
        (anchor->tried_ns != 0 && now_ns - anchor->tried_ns < ANCHOR_TRY_NS)) {
        return;
    }
    anchor->tried_ns = now_ns;
    if (weir_session_work_stream(s, &work) == CUDA_SUCCESS) {
        make_anchor(s, anchor, work);
    }
}

/* ---------------------------------------------------------------- spans */

static struct weir_profile_span *take_span(struct weir_profile *profile)
{
    struct weir_profile_span *span = profile->free;

    if (span) {
        profile->free = span->next;
    } else if (profile->n_used < WEIR_PROFILE_RECORDS_MAX) {
        span = &profile->spans[profile->n_used++];
    }
    return span;
}

static void put_span(struct weir_profile *profile, struct weir_profile_span *span)
{
    span->next = profile->free;
    profile->free = span;
}

static void destroy_events(const struct weir_driver *driver, struct weir_profile_span *span)
{
    if (span->begin) {
        driver->cuEventDestroy_v2(span->begin);
    }
    if (span->end) {
        driver->cuEventDestroy_v2(span->end);
    }
    span->begin = span->end = NULL;
}

/* Have two events of the current device. */
static bool have_events(const struct weir_session *s, struct weir_profile_span *span)
{
    if (span->begin && span->device == s->device) {
        return true;
    }
    destroy_events(s->driver, span);
    span->device = s->device;
    if (s->driver->cuEventCreate(&span->begin, CU_EVENT_DEFAULT) == CUDA_SUCCESS &&
        s->driver->cuEventCreate(&span->end, CU_EVENT_DEFAULT) == CUDA_SUCCESS) {
        return true;
    }
    destroy_events(s->driver, span);
    return false;
}

struct weir_profile_span *weir_profile_arrives(struct weir_session *session,
                                               const struct weir_host_stream *stream,
                                               const struct weir_gate_work *work)
{
    struct weir_profile *profile = session->devices.profile;
    struct weir_profile_span *span;

    if (weir_host_stream_capturing(session, stream)) {
        return NULL;
    }
    if (!profile) {
        profile = session->devices.profile = calloc(1, sizeof *profile);
    }
    if (!profile) {
        return NULL;
    }
    span = take_span(profile);
    if (!span || !have_events(session, span)) {
        profile->dropped++;
        if (span) {
            put_span(profile, span);
        }
        return NULL;
    }
    renew_anchor(session, &profile->anchors[session->device]);
    span->record =
        (struct weir_profile_record){.arrived_ns = weir_clock_now_ns(),
                                     .bytes = work->bytes,
                                     .call = session->op.profile & ~WEIR_PROFILE_WHOLE_GRAPHS,
                                     .class = (uint8_t)work->class,
                                     .device = (uint16_t)session->device};
    return span;
}

void weir_profile_begins(struct weir_session *session, const struct weir_host_stream *stream,
                         struct weir_profile_span *span, const struct weir_gate_pass *pass)
{
    span->given_ns = weir_clock_now_ns();
    span->stream = stream->o.handle;
    span->record.waited_ns = span->given_ns - span->record.arrived_ns;
    span->record.cause =
        pass->queue && pass->item ? (uint8_t)(pass->cause + 1) : WEIR_PROFILE_ALONE;
    (void)session->driver->cuEventRecord(span->begin, weir_host_stream_at(stream));
}

void weir_profile_given(struct weir_session *session, const struct weir_host_stream *stream,
                        struct weir_profile_span *span, bool given)
{
    struct weir_profile *profile = session->devices.profile;

    if (!given ||
        session->driver->cuEventRecord(span->end, weir_host_stream_at(stream)) != CUDA_SUCCESS) {
        profile->dropped += given;
        put_span(profile, span);
        return;
    }
    span->next = NULL;
    if (profile->last) {
        profile->last->next = span;
    } else {
        profile->first = span;
    }
    profile->last = span;
    profile->n_open++;
}

/* ---------------------------------------------------------------- records */

static uint64_t plus_ms(uint64_t ns, float ms)
{
    return (uint64_t)((int64_t)ns + (int64_t)((double)ms * 1e6));
}

static uint64_t latest(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Fill in when the work began and ended. @return false: the driver does not know */
static bool time_span(const struct weir_session *s, struct weir_profile_span *span)
{
    struct weir_profile *profile = s->devices.profile;
    const struct anchor *anchor = &profile->anchors[span->record.device];
    struct stream_end *before = &profile->ends[span->stream % STREAM_ENDS];
    float since_ms, took_ms;

    if (weir_event_elapsed(s->driver, &took_ms, span->begin, span->end) != CUDA_SUCCESS) {
        return false;
    }
    span->record.begin_ns = span->given_ns;
    if (anchor->ns != 0 && weir_event_elapsed(s->driver, &since_ms, anchor->event[anchor->now],
                                              span->begin) == CUDA_SUCCESS) {
        span->record.begin_ns = latest(span->given_ns, plus_ms(anchor->ns, since_ms));
    }
    if (before->stream == span->stream) {
        span->record.begin_ns = latest(span->record.begin_ns, before->ns);
    }
    span->record.end_ns = plus_ms(span->record.begin_ns, took_ms);
    *before = (struct stream_end){.stream = span->stream, .ns = span->record.end_ns};
    return true;
}

/* Streams whose oldest open span has not ended. None of their spans counts as ended, to keep
 * order. */
struct unended {
    uint64_t streams[UNENDED_MAX];
    uint32_t n;
};

static bool has_ended(const struct weir_session *s, const struct weir_profile_span *span,
                      struct unended *unended, CUresult *ret_result)
{
    for (uint32_t i = 0; i < unended->n; i++) {
        if (unended->streams[i] == span->stream) {
            return false;
        }
    }
    *ret_result = s->driver->cuEventQuery(span->end);
    if (*ret_result == CUDA_ERROR_NOT_READY) {
        unended->streams[unended->n++] = span->stream;
        return false;
    }
    return true;
}

/* Move what has ended from the open spans to ready[]. @return how many */
static uint32_t collect(struct weir_session *s, struct weir_profile *profile)
{
    struct weir_profile_span **at = &profile->first, *last = NULL;
    struct unended unended = {.n = 0};
    uint32_t n = 0;

    while (*at && unended.n < UNENDED_MAX && n < WEIR_PROFILE_RECORDS_MAX) {
        struct weir_profile_span *span = *at;
        CUresult result;

        if (!has_ended(s, span, &unended, &result)) {
            last = span;
            at = &span->next;
            continue;
        }
        if (result == CUDA_SUCCESS && time_span(s, span)) {
            profile->ready[n++] = span->record;
        } else {
            profile->dropped++;
        }
        *at = span->next;
        profile->last = profile->last == span ? last : profile->last;
        profile->n_open--;
        put_span(profile, span);
    }
    return n;
}

void weir_profile_take(struct weir_session *session, struct weir_op_profile_take_out *out)
{
    struct weir_profile *profile = session->devices.profile;

    out->now_ns = weir_clock_now_ns();
    if (profile) {
        out->n_records = collect(session, profile) * (uint32_t)sizeof profile->ready[0];
        out->records = profile->ready;
        out->dropped = profile->dropped;
        out->pending = profile->n_open;
    }
}

void weir_profile_end(struct weir_session *session)
{
    struct weir_profile *profile = session->devices.profile;

    if (!profile) {
        return;
    }
    for (uint32_t i = 0; i < profile->n_used; i++) {
        destroy_events(session->driver, &profile->spans[i]);
    }
    for (uint32_t i = 0; i < WEIR_DEVICES_MAX; i++) {
        for (int k = 0; k < 2; k++) {
            if (profile->anchors[i].event[k]) {
                session->driver->cuEventDestroy_v2(profile->anchors[i].event[k]);
            }
        }
    }
    free(profile);
    session->devices.profile = NULL;
}
