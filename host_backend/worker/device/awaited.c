/*
 * Values that streams wait for: see awaited.h.
 *
 * Most values come soon, and only a wait that lasts matters. So when the list is full, it drops
 * values that streams have passed: each stream has an event, recorded the last time that the list
 * was full, which shows that the stream has passed the values noted before. Values that graphs wait
 * for are never dropped, since a graph may be launched again. Destroyed streams leave the values
 * that they may still wait for. Equal values are kept once.
 */
#include "host_backend/worker/device/awaited.h"

#include "base/clock.h"
#include "host_backend/worker/device/device_idle.h"
#include "host_backend/worker/device/order.h"
#include "host_backend/worker/device/streams.h"
#include <stdlib.h>

#define SLICE_NS (20 * WEIR_NS_PER_MS) /* how late the host may notice the program's end */

#define FIRST_ROOM 64u

struct value {
    const struct weir_host_stream *stream; /* NULL: a graph may wait, or a destroyed stream */
    uint64_t address, value;
    uint64_t number; /* sequence number of the note, from 1 */
    bool wide;
};

struct weir_awaited {
    struct value *values; /* sorted by the order of noting */
    size_t n, room;
    uint64_t noted; /* how many values were ever noted */
};

struct weir_awaited *weir_awaited_create(void)
{
    return calloc(1, sizeof(struct weir_awaited));
}

void weir_awaited_destroy(struct weir_awaited *awaited)
{
    if (awaited) {
        free(awaited->values);
        free(awaited);
    }
}

bool weir_awaited_can_come(uint64_t value, uint32_t flags, bool wide)
{
    uint64_t mask = wide ? UINT64_MAX : UINT32_MAX;

    switch (flags & CU_STREAM_WAIT_VALUE_NOR) { /* the comparison is two bits of the flags */
    case CU_STREAM_WAIT_VALUE_AND:              /* (*address & value) != 0 */
        return (value & mask) != 0;
    case CU_STREAM_WAIT_VALUE_NOR: /* ~(*address | value) != 0 */
        return (~value & mask) != 0;
    default:
        return true;
    }
}

/* ------------------------------------------------------------- dropping values that were passed */

/* Has a stream reached its event? If so, drop the values that were noted for it before. */
static void look_at(const struct weir_driver *driver, struct weir_host_stream *stream)
{
    struct weir_awaited_stream *mark = &stream->awaited;

    if (mark->pending && driver->cuEventQuery(mark->event) == CUDA_SUCCESS) {
        mark->passed = mark->covers;
        mark->pending = false;
    }
}

/* Record an event behind a stream's work. If that fails, no value is dropped. */
static void put_event(struct weir_session *s, struct weir_host_stream *stream)
{
    struct weir_awaited_stream *mark = &stream->awaited;
    const struct weir_driver *d = s->driver;

    if (mark->pending || weir_host_stream_capturing(s, stream) ||
        weir_session_enter(s, stream->o.device) != CUDA_SUCCESS ||
        (!mark->event && d->cuEventCreate(&mark->event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) ||
        d->cuEventRecord(mark->event, weir_host_stream_at(stream)) != CUDA_SUCCESS) {
        return;
    }
    mark->covers = s->awaited->noted;
    mark->pending = true;
}

static void visit_streams(struct weir_session *s, bool marks)
{
    uint32_t here = s->device;

    for (struct weir_host_ctx *ctx = weir_session_contexts(s); ctx; ctx = ctx->next) {
        for (struct weir_host_stream *stream = ctx->streams; stream; stream = stream->next) {
            if (!marks) {
                look_at(s->driver, stream);
            } else if (stream->awaited.last > stream->awaited.passed) {
                put_event(s, stream);
            }
        }
    }
    (void)weir_session_enter(s, here);
}

static int by_number(const void *a, const void *b)
{
    const struct value *x = a, *y = b;

    return (x->number > y->number) - (x->number < y->number);
}

/* Sort equal values side by side, the latest note first. */
static int by_value(const void *a, const void *b)
{
    const struct value *x = a, *y = b;

    if (x->stream != y->stream) {
        return (uintptr_t)x->stream < (uintptr_t)y->stream ? -1 : 1;
    }
    if (x->address != y->address) {
        return x->address < y->address ? -1 : 1;
    }
    if (x->value != y->value) {
        return x->value < y->value ? -1 : 1;
    }
    return x->wide != y->wide ? (x->wide ? 1 : -1) : -by_number(a, b);
}

static bool same_value(const struct value *x, const struct value *y)
{
    return x->stream == y->stream && x->address == y->address && x->value == y->value &&
           x->wide == y->wide;
}

static void drop_passed(struct weir_session *s)
{
    struct weir_awaited *a = s->awaited;
    size_t n = 0, kept = 0;

    visit_streams(s, false);
    for (size_t i = 0; i < a->n; i++) {
        const struct value *v = &a->values[i];

        if (!v->stream || v->number > v->stream->awaited.passed) {
            a->values[n++] = *v;
        }
    }
    if (n != 0) {
        qsort(a->values, n, sizeof *a->values, by_value);
        for (size_t i = 0; i < n; i++) {
            if (i == 0 || !same_value(&a->values[i], &a->values[kept - 1])) {
                a->values[kept++] = a->values[i];
            }
        }
        qsort(a->values, kept, sizeof *a->values, by_number);
    }
    a->n = kept;
    visit_streams(s, true);
}

static CUresult make_room(struct weir_session *s)
{
    struct weir_awaited *a = s->awaited;
    size_t room = a->room != 0 ? a->room * 2 : FIRST_ROOM;

    if (a->n < a->room) {
        return CUDA_SUCCESS;
    }
    if (a->n != 0) {
        drop_passed(s);
    }
    /* Values noted since the last event, about half of them, cannot be dropped anyway. */
    if (a->n < a->room && (a->n <= a->room / 4 * 3 || a->room == WEIR_AWAITED_MAX)) {
        return CUDA_SUCCESS;
    }
    struct value *bigger =
        room <= WEIR_AWAITED_MAX ? realloc(a->values, room * sizeof *bigger) : NULL;
    if (!bigger) {
        return a->n < a->room ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    }
    a->values = bigger;
    a->room = room;
    return CUDA_SUCCESS;
}

CUresult weir_awaited_note(struct weir_session *session, struct weir_host_stream *stream,
                           uint64_t address, uint64_t value, bool wide)
{
    struct weir_awaited *a = session->awaited;
    WEIR_TRY(make_room(session));
    a->values[a->n++] = (struct value){
        .stream = stream, .address = address, .value = value, .number = ++a->noted, .wide = wide};
    if (stream) {
        stream->awaited.last = a->noted;
    }
    return CUDA_SUCCESS;
}

void weir_awaited_stream_gone(struct weir_session *session, struct weir_host_stream *stream)
{
    struct weir_awaited *a = session->awaited;
    struct weir_awaited_stream *mark = &stream->awaited;
    size_t n = 0;

    if (mark->last > mark->passed) {
        bool done = !weir_host_stream_capturing(session, stream) &&
                    session->driver->cuStreamQuery(weir_host_stream_at(stream)) == CUDA_SUCCESS;

        for (size_t i = 0; i < a->n; i++) {
            struct value *v = &a->values[i];

            if (v->stream != stream || !done) {
                a->values[n] = *v;
                a->values[n].stream = v->stream == stream ? NULL : v->stream;
                n++;
            }
        }
        a->n = n;
    }
    if (mark->event) {
        (void)session->driver->cuEventDestroy_v2(mark->event);
    }
    *mark = (struct weir_awaited_stream){0};
}

/* ---------------------------------------------------------------- writing the values at the end */

/* The GPU may only read the guest's own memory, but it is mapped in the worker, too. */
static void write_here(const struct value *v)
{
    void *at = (void *)(uintptr_t)v->address; /* checked; registered memory has one address */

    if (v->wide) {
        __atomic_store_n((uint64_t *)at, v->value, __ATOMIC_RELEASE);
    } else {
        __atomic_store_n((uint32_t *)at, (uint32_t)v->value, __ATOMIC_RELEASE);
    }
}

void weir_awaited_write(struct weir_session *session, weir_awaited_place_fn place)
{
    const struct weir_awaited *awaited = session->awaited;
    const struct weir_driver *d = session->driver;
    CUstream work;

    if (awaited->n == 0 || weir_session_work_stream(session, &work) != CUDA_SUCCESS) {
        return;
    }
    for (size_t i = 0; i < awaited->n; i++) {
        const struct value *v = &awaited->values[i];

        bool here;

        if (!place(session, v->address, v->wide ? 8 : 4, &here)) {
            continue; /* a write there would end the context of all tenants */
        }
        if (here) {
            write_here(v);
            continue;
        }
        if (v->wide) {
            (void)d->cuStreamWriteValue64_v2(work, v->address, v->value, 0);
        } else {
            (void)d->cuStreamWriteValue32_v2(work, v->address, (uint32_t)v->value, 0);
        }
        (void)d->cuStreamSynchronize(work);
    }
}

bool weir_awaited_any(const struct weir_session *session)
{
    return session->awaited->n != 0;
}

bool weir_awaited_within(const struct weir_session *session, uint64_t base, uint64_t bytes)
{
    const struct weir_awaited *awaited = session->awaited;
    size_t i = 0;

    while (i < awaited->n && awaited->values[i].address - base >= bytes) { /* below base: wraps */
        i++;
    }
    return i < awaited->n;
}

static bool settle_stream(struct weir_session *session, const struct weir_host_stream *stream)
{
    (void)weir_session_enter(session, stream->o.device);
    while (weir_host_stream_wait(session->driver, weir_host_stream_at(stream), SLICE_NS) ==
           CUDA_ERROR_TIMEOUT) {
        if (weir_session_is_over(session)) {
            return false;
        }
    }
    return true;
}

bool weir_awaited_settle(struct weir_session *session)
{
    return !weir_awaited_any(session) || weir_awaited_settle_all(session);
}

bool weir_awaited_settle_all(struct weir_session *session)
{
    struct weir_session *inside = weir_device_barrier_pause();
    uint32_t device = session->device;
    bool settled = true;

    /* The driver must not be asked about a stream under capture. */
    for (const struct weir_host_ctx *ctx = session->n_captures == 0 ? weir_session_contexts(session)
                                                                    : NULL;
         ctx; ctx = ctx->next) {
        for (const struct weir_host_stream *s = ctx->streams; s && settled; s = s->next) {
            settled = settle_stream(session, s);
        }
    }
    (void)weir_session_enter(session, device);
    weir_device_barrier_resume(inside);
    return settled;
}
