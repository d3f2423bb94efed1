/*
 * Each piece of profiled work is a *span*. When the guest asks, the ended ones become records.
 *
 * With NVIDIA's libcupti a span has ended when its records have come (cupti.h), whose number is
 * known: one of a kernel, a copy or a memset, and one for each of a graph's. libcupti keeps a
 * buffer until all work in it has ended, so records may come long after their work.
 *
 * Without it, and where the number is not known, two timing events stand around the work, and an
 * event's time is its distance from the device's *anchor*, an event whose time on the host's clock
 * is known. The device's clock drifts from the host's, and distances are floats of milliseconds, so
 * anchors are made anew. An anchor is an event in the session's work stream, which is idle, that
 * the thread sees done a few microseconds after it was recorded. On a busy device this may fail;
 * then the older anchor stays. From one anchor to the next times may step by some microseconds. So
 * work that seems to begin before it was given, or before its stream's earlier work had ended, is
 * shifted.
 */
#include "host_backend/worker/profile/profile.h"

#include "base/clock.h"
#include "base/grow.h"
#include "host_backend/worker/device/order.h"
#include "host_backend/worker/device/streams.h"
#include "host_backend/worker/profile/cupti.h"
#include "host_backend/worker/state/platform.h"
#include "host_backend/worker/state/session.h"
#include "proto/ops.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ANCHOR_AGE_NS  WEIR_NS_PER_S          /* a float of 1 s in ms has steps of 0.06 us */
#define ANCHOR_TRY_NS  (100 * WEIR_NS_PER_MS) /* how often to try, where none could be made */
#define ANCHOR_SEEN_NS (100 * WEIR_NS_PER_US) /* an event that is seen later is too inexact */
#define ANCHOR_GOOD_NS (10 * WEIR_NS_PER_US)  /* an event seen this soon ends the search */
#define ANCHOR_TRIES   5
#define STREAM_ENDS    64u
#define UNENDED_MAX    64u /* streams with unended work that are told apart */

#define INDEX_BITS 14 /* of a span's id: its index in spans[]; the others count its uses */
#define NODES_MAX  (8u * WEIR_PROFILE_RECORDS_MAX) /* 128 launches of a graph of 1,000 nodes */
#define NAMES      256u
#define NONE       UINT32_MAX
#define REST_NS    WEIR_NS_PER_S /* libcupti is off after so long without profiled work */
#define LATE_NS    WEIR_NS_PER_S /* records of ended work do not come any more after this time */

/* Most that two events add to the time of a kernel between them: 10 us (H200, 2026-11-30). */
#define EVENTS_NS (20 * WEIR_NS_PER_US)

_Static_assert(1u << INDEX_BITS == WEIR_PROFILE_RECORDS_MAX, "an id has room for the index");

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

    uint32_t id;                    /* for libcupti */
    uint32_t expected;              /* records of libcupti; 0: not known, the events count */
    uint32_t n_got;                 /* .. of them */
    bool timed;                     /* both events are recorded */
    bool has_end;                   /* the event behind it is recorded */
    bool is_lost;                   /* there are no events for it */
    bool is_nodes;                  /* each node of the graph gets a record */
    uint32_t first_node, last_node; /* in nodes[], as they ended; NONE: none */
    uint64_t late_ns; /* when the event behind it was seen done, but not its records; 0: not yet */
};

/* A record of libcupti of a graph's node. */
struct node {
    struct weir_profile_record record;
    uint32_t previous, next; /* of the span's, or next free one; NONE: none */
};

/* The function that has a name. */
struct named {
    const char *name; /* as the sink has it */
    uint64_t function;
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
    struct weir_profile_span *under_way; /* begun, but its work was not given yet; NULL: none */
    uint32_t n_open, n_used;             /* open spans; the part of spans[] that was ever used */
    uint64_t dropped;

    struct weir_cupti_sink *sink; /* NULL: nothing is recorded by libcupti */
    bool without_cupti;           /* it was tried in vain, or may not be used */
    uint64_t used_ns;             /* when profiled work last came */
    weir_profile_function_fn *function_of;
    struct node *nodes;                          /* owned */
    uint32_t room_nodes, free_nodes, used_nodes; /* used: the part that was ever used */
    struct named names[NAMES];                   /* by the address of the name */

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
        span->id = (uint32_t)(span - profile->spans);
    }
    return span;
}

static void put_span(struct weir_profile *profile, struct weir_profile_span *span)
{
    WEIR_PUSH(profile->free, span);
}

static void destroy_event(const struct weir_driver *driver, CUevent *event)
{
    if (*event) {
        (void)driver->cuEventDestroy_v2(*event);
        *event = NULL;
    }
}

/* Have an event of the current device. */
static bool have_event(const struct weir_session *s, CUevent *event)
{
    return *event || s->driver->cuEventCreate(event, CU_EVENT_DEFAULT) == CUDA_SUCCESS;
}

/* Have the events that the span needs. */
static bool have_events(const struct weir_session *s, struct weir_profile_span *span)
{
    if (span->device != s->device) {
        destroy_event(s->driver, &span->begin);
        destroy_event(s->driver, &span->end);
        span->device = s->device;
    }
    return (!span->timed || have_event(s, &span->begin)) &&
           (!span->has_end || have_event(s, &span->end));
}

/* ---------------------------------------------------------------- libcupti's records */

static void close_sink(struct weir_profile *profile)
{
    weir_cupti_close(profile->sink);
    profile->sink = NULL;
    memset(profile->names, 0, sizeof profile->names);
}

static uint32_t take_node(struct weir_profile *profile)
{
    uint32_t at = profile->free_nodes;

    if (at != NONE) {
        profile->free_nodes = profile->nodes[at].next;
        return at;
    }
    return profile->used_nodes < NODES_MAX &&
                   WEIR_GROW(profile->nodes, profile->used_nodes, profile->room_nodes)
               ? profile->used_nodes++
               : NONE;
}

static void put_node(struct weir_profile *profile, uint32_t at)
{
    profile->nodes[at].next = profile->free_nodes;
    profile->free_nodes = at;
}

static uint64_t function_named(struct weir_session *s, const char *name)
{
    struct named *known = &s->devices.profile->names[(uintptr_t)name / 16 % NAMES];
    uint64_t guess = known->name == name ? known->function : 0;

    *known = (struct named){name, s->devices.profile->function_of(s, name, guess)};
    return known->function;
}

/* Add a node's record, in the order of the ends. */
static void add_node(struct weir_session *s, struct weir_profile_span *span,
                     const struct weir_cupti_record *from)
{
    struct weir_profile *profile = s->devices.profile;
    uint32_t at = take_node(profile), previous = span->last_node;

    if (at == NONE) {
        profile->dropped++;
        return;
    }
    struct node *node = &profile->nodes[at];
    node->record =
        (struct weir_profile_record){.begin_ns = from->begin_ns,
                                     .end_ns = from->end_ns,
                                     .arrived_ns = span->record.arrived_ns,
                                     .bytes = from->bytes,
                                     .call = span->record.call,
                                     .class = from->class,
                                     .cause = span->record.cause,
                                     .device = span->record.device,
                                     .node = from->node,
                                     .value = from->value,
                                     .function = from->name ? function_named(s, from->name) : 0,
                                     .grid = {from->grid[0], from->grid[1], from->grid[2]},
                                     .block = {from->block[0], from->block[1], from->block[2]},
                                     .shared_bytes = from->shared_bytes};
    while (previous != NONE && profile->nodes[previous].record.end_ns > from->end_ns) {
        previous = profile->nodes[previous].previous;
    }
    node->previous = previous;
    node->next = previous == NONE ? span->first_node : profile->nodes[previous].next;
    *(node->previous == NONE ? &span->first_node : &profile->nodes[node->previous].next) = at;
    *(node->next == NONE ? &span->last_node : &profile->nodes[node->next].previous) = at;
}

static void add_times(struct weir_profile_span *span, const struct weir_cupti_record *from)
{
    struct weir_profile_record *record = &span->record;
    bool first = span->n_got == 0;

    record->begin_ns =
        first || from->begin_ns < record->begin_ns ? from->begin_ns : record->begin_ns;
    record->end_ns = first || from->end_ns > record->end_ns ? from->end_ns : record->end_ns;
}

/* Give the spans the records that have come. */
static void gather(struct weir_session *s, struct weir_profile *profile)
{
    uint32_t n = 0, lost = 0;
    const struct weir_cupti_record *records = weir_cupti_take(profile->sink, &n, &lost);

    for (uint32_t i = 0; i < n; i++) {
        struct weir_profile_span *span = &profile->spans[records[i].id % WEIR_PROFILE_RECORDS_MAX];

        if (span->id != records[i].id) {
            continue; /* it was given up */
        }
        if (span->is_nodes && records[i].node != 0) {
            add_node(s, span, &records[i]);
        }
        add_times(span, &records[i]);
        span->n_got++;
    }
    for (struct weir_profile_span *span = profile->first; span && lost != 0; span = span->next) {
        if (span->n_got < span->expected) { /* nobody knows whose records they were */
            profile->dropped += span->expected - span->n_got - (span->n_got == 0);
            span->expected = span->n_got; /* 0: it has no times, and is counted as one more */
        }
    }
}

/* ---------------------------------------------------------------- work */

static struct weir_profile *create(weir_profile_function_fn *function_of)
{
    struct weir_profile *profile = calloc(1, sizeof *profile);

    if (profile) {
        profile->function_of = function_of;
        profile->free_nodes = NONE;
    }
    return profile;
}

struct weir_profile_span *weir_profile_arrives(struct weir_session *session,
                                               const struct weir_host_stream *stream,
                                               const struct weir_gate_work *work,
                                               weir_profile_function_fn *function_of)
{
    struct weir_profile *profile = session->devices.profile;

    if (weir_host_stream_capturing(session, stream)) {
        return NULL;
    }
    if (!profile) {
        profile = session->devices.profile = create(function_of);
    }
    WEIR_FAIL_IF(!profile, NULL);
    if (!profile->sink && !profile->without_cupti) {
        profile->sink = session->platform->cupti ? weir_cupti_open(session->platform->cupti) : NULL;
        profile->without_cupti = !profile->sink;
    }
    profile->used_ns = weir_clock_now_ns();
    struct weir_profile_span *span = take_span(profile);
    if (!span) {
        profile->dropped++;
        return NULL;
    }
    span->id += WEIR_PROFILE_RECORDS_MAX;
    span->n_got = 0;
    span->is_nodes = false;
    span->first_node = span->last_node = NONE;
    span->late_ns = 0;
    span->record =
        (struct weir_profile_record){.arrived_ns = profile->used_ns,
                                     .bytes = work->bytes,
                                     .call = session->op.profile & ~WEIR_PROFILE_WHOLE_GRAPHS,
                                     .class = (uint8_t)work->class,
                                     .device = (uint16_t)session->device};
    return span;
}

void weir_profile_begins(struct weir_session *session, const struct weir_host_stream *stream,
                         struct weir_profile_span *span, const struct weir_gate_pass *pass,
                         uint32_t expected)
{
    struct weir_profile *profile = session->devices.profile;

    span->expected = profile->sink ? expected : 0;
    span->timed = span->expected == 0;
    span->has_end = span->timed || span->record.class != WEIR_PROFILE_KERNEL;
    span->is_lost = !have_events(session, span);
    if (span->timed) {
        renew_anchor(session, &profile->anchors[session->device]);
    }
    span->given_ns = weir_clock_now_ns();
    span->stream = stream->o.handle;
    span->record.waited_ns = span->given_ns - span->record.arrived_ns;
    span->record.cause =
        pass->queue && pass->item ? (uint8_t)(pass->cause + 1) : WEIR_PROFILE_ALONE;
    if (span->timed && !span->is_lost) {
        (void)session->driver->cuEventRecord(span->begin, weir_host_stream_at(stream));
    }
    profile->under_way = span;
    if (profile->sink) {
        weir_cupti_push(profile->sink, span->id);
    }
}

void weir_profile_graph_given(struct weir_session *session)
{
    struct weir_profile *profile = session->devices.profile;

    if (profile && profile->under_way) {
        profile->under_way->is_nodes = profile->under_way->expected != 0 &&
                                       (session->op.profile & WEIR_PROFILE_WHOLE_GRAPHS) == 0;
    }
}

void weir_profile_given(struct weir_session *session, const struct weir_host_stream *stream,
                        struct weir_profile_span *span, bool given)
{
    struct weir_profile *profile = session->devices.profile;

    if (profile->sink) {
        weir_cupti_pop();
    }
    profile->under_way = NULL;
    if (!given || span->is_lost ||
        (span->has_end &&
         session->driver->cuEventRecord(span->end, weir_host_stream_at(stream)) != CUDA_SUCCESS)) {
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
    return WEIR_MAX(a, b);
}

/* When the work began, by its events. */
static uint64_t begin_by_events(const struct weir_session *s, const struct weir_profile_span *span)
{
    const struct anchor *anchor = &s->devices.profile->anchors[span->record.device];
    float since_ms;

    if (anchor->ns == 0 || weir_event_elapsed(s->driver, &since_ms, anchor->event[anchor->now],
                                              span->begin) != CUDA_SUCCESS) {
        return span->given_ns;
    }
    return latest(span->given_ns, plus_ms(anchor->ns, since_ms));
}

/*
 * Fill in when the work began and ended. libcupti's times are the better ones. But it knows only
 * the first kernel of a run that was stopped, since others continued it on other threads: then the
 * work took much longer by the events.
 *
 * @return false: it is not known
 */
static bool time_span(const struct weir_session *s, struct weir_profile_span *span)
{
    struct weir_profile_record *record = &span->record;
    struct stream_end *before = &s->devices.profile->ends[span->stream % STREAM_ENDS];
    uint64_t took_ns = record->end_ns - record->begin_ns;
    float ms;

    bool by_events = span->timed &&
                     weir_event_elapsed(s->driver, &ms, span->begin, span->end) == CUDA_SUCCESS &&
                     (span->n_got == 0 || plus_ms(0, ms) > took_ns + EVENTS_NS);
    if (span->n_got == 0 && !by_events) {
        return false;
    }
    took_ns = by_events ? plus_ms(0, ms) : took_ns;
    record->begin_ns = span->n_got == 0 ? begin_by_events(s, span) : record->begin_ns;
    if (before->stream == span->stream) {
        record->begin_ns = latest(record->begin_ns, before->ns);
    }
    record->end_ns = record->begin_ns + took_ns;
    *before = (struct stream_end){.stream = span->stream, .ns = record->end_ns};
    return true;
}

static bool is_behind(const struct weir_session *s, const struct weir_profile_span *span)
{
    return s->driver->cuEventQuery(span->end) != CUDA_ERROR_NOT_READY;
}

/* Streams whose oldest open span has not ended. None of their spans counts as ended, to keep
 * order. */
struct unended {
    uint64_t streams[UNENDED_MAX];
    uint32_t n;
};

static bool has_ended(const struct weir_session *s, const struct weir_profile_span *span,
                      struct unended *unended)
{
    for (uint32_t i = 0; i < unended->n; i++) {
        if (unended->streams[i] == span->stream) {
            return false;
        }
    }
    if (span->expected != 0 ? span->n_got < span->expected : span->timed && !is_behind(s, span)) {
        unended->streams[unended->n++] = span->stream;
        return false;
    }
    return true;
}

/*
 * Give up the records of work that ended long ago, for work without any exists, such as a copy of
 * nothing. Not while other work is under way: libcupti may keep them until that has ended.
 */
static void give_up_late(const struct weir_session *s, struct weir_profile *profile)
{
    uint64_t now_ns = weir_clock_now_ns();
    bool late = true;

    for (struct weir_profile_span *span = profile->first; span && late; span = span->next) {
        if (span->n_got < span->expected) {
            late = span->has_end && is_behind(s, span);
            span->late_ns = late && span->late_ns == 0 ? now_ns : span->late_ns;
            late = late && now_ns - span->late_ns > LATE_NS;
        } else {
            late = span->expected != 0 || is_behind(s, span);
        }
    }
    for (struct weir_profile_span *span = profile->first; span && late; span = span->next) {
        span->expected = WEIR_MIN(span->n_got, span->expected);
    }
}

/* Move records of a graph's nodes to ready[]. @return whether that was all of them */
static bool move_nodes(struct weir_profile *profile, struct weir_profile_span *span, uint32_t *n)
{
    while (span->first_node != NONE && *n < WEIR_PROFILE_RECORDS_MAX) {
        uint32_t at = span->first_node;

        profile->ready[*n] = profile->nodes[at].record;
        profile->ready[*n].waited_ns = span->record.waited_ns;
        span->record.waited_ns = 0; /* the launch waited once */
        (*n)++;
        span->first_node = profile->nodes[at].next;
        put_node(profile, at);
    }
    return span->first_node == NONE;
}

/* Move what has ended from the open spans to ready[]. @return how many */
static uint32_t collect(struct weir_session *s, struct weir_profile *profile)
{
    struct weir_profile_span **at = &profile->first, *last = NULL;
    struct unended unended = {.n = 0};
    uint32_t n = 0;

    while (*at && unended.n < UNENDED_MAX && n < WEIR_PROFILE_RECORDS_MAX) {
        struct weir_profile_span *span = *at;

        if (!has_ended(s, span, &unended)) {
            last = span;
            at = &span->next;
            continue;
        }
        if (span->first_node != NONE) {
            if (!move_nodes(profile, span, &n)) {
                break;
            }
        } else if (time_span(s, span)) {
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
        if (profile->sink) {
            gather(session, profile);
            give_up_late(session, profile);
        }
        out->n_records = collect(session, profile) * (uint32_t)sizeof profile->ready[0];
        out->records = profile->ready;
        out->dropped = profile->dropped;
        out->pending = profile->n_open;
    }
}

void weir_profile_rests(struct weir_session *session)
{
    struct weir_profile *profile = session->devices.profile;

    if (!profile->sink) {
        return;
    }
    uint64_t now_ns = weir_clock_now_ns();
    if (now_ns - profile->used_ns < REST_NS) {
        return;
    }
    profile->used_ns = now_ns; /* when this was last tried */
    gather(session, profile);
    give_up_late(session, profile);
    for (const struct weir_profile_span *span = profile->first; span; span = span->next) {
        if (span->n_got < span->expected) {
            return;
        }
    }
    close_sink(profile);
}

void weir_profile_end(struct weir_session *session)
{
    struct weir_profile *profile = session->devices.profile;

    if (!profile) {
        return;
    }
    close_sink(profile);
    for (uint32_t i = 0; i < profile->n_used; i++) {
        destroy_event(session->driver, &profile->spans[i].begin);
        destroy_event(session->driver, &profile->spans[i].end);
    }
    for (uint32_t i = 0; i < WEIR_DEVICES_MAX; i++) {
        for (int k = 0; k < 2; k++) {
            destroy_event(session->driver, &profile->anchors[i].event[k]);
        }
    }
    free(profile->nodes);
    free(profile);
    session->devices.profile = NULL;
}
