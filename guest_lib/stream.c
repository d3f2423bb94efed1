/*
 * Makes streams, marks them, and waits for them. stream.h has the model.
 *
 * The counts are correct with several threads: a mark covers the `finished` count read before it is
 * sent. Work that was begun but not yet sent at that time counts in `started`, but the mark does
 * not cover it. So the stream does not look idle until a later mark. started >= finished always.
 */
#include "guest_lib/stream.h"
#include "guest_lib/module.h"
#include "proto/guest_calls.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define SLAB_STREAMS  32
#define QUERY_SPIN_NS (15 * WEIR_NS_PER_US) /* see query_host() */
#define SYNC_POINTS   32

/*
 * Work sent less than 2 to 10 us ago cannot be done: on an H200 the shortest kernel's end is seen
 * 7.5 us after its launch (2026-11-21).
 */
#define JUST_NOW_TICKS 10000

struct slab {
    struct slab *next;
    struct weir_guest_stream streams[SLAB_STREAMS];
};

/* Guarded by lock. */
static struct {
    struct weir_lock lock;
    struct slab *slabs;
    struct weir_guest_stream *free;
} pool;

void weir_streams_finish(void)
{
    for (struct slab *slab; (slab = WEIR_POP(pool.slabs));) {
        free(slab);
    }
    memset(&pool, 0, sizeof pool);
}

static void give_struct(struct weir_guest_stream *stream)
{
    WEIR_GUEST_LOCKED(&pool.lock);
    __atomic_store_n(&stream->id, 0, __ATOMIC_RELEASE);
    stream->next_in_ctx = pool.free;
    pool.free = stream;
}

static struct weir_guest_stream *take_struct(void)
{
    WEIR_GUEST_LOCKED(&pool.lock);
    if (!pool.free) {
        struct slab *slab = calloc(1, sizeof *slab);
        if (slab) {
            WEIR_PUSH(pool.slabs, slab);
            for (int i = 0; i < SLAB_STREAMS; i++) {
                slab->streams[i].next_in_ctx = pool.free;
                pool.free = &slab->streams[i];
            }
        }
    }
    struct weir_guest_stream *stream = pool.free;
    if (stream) {
        pool.free = stream->next_in_ctx;
    }
    return stream;
}

/* ---------------------------------------------------------------- making and dropping */

static void fill_stream(struct weir_guest_stream *stream, struct weir_guest_ctx *ctx,
                        unsigned int flags, int priority, bool legacy)
{
    stream->ctx = ctx;
    stream->ctx_epoch = __atomic_load_n(&ctx->epoch, __ATOMIC_RELAXED) + (legacy ? 1 : 0);
    stream->flags = flags;
    stream->priority = priority;
    stream->legacy = legacy;
    stream->per_thread = false;
    __atomic_store_n(&stream->capture.under_way, false, __ATOMIC_RELAXED);
    stream->goes_later = false;
    __atomic_store_n(&stream->started_own, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&stream->finished_own, 0, __ATOMIC_RELAXED);
    uint64_t done = legacy ? __atomic_load_n(&ctx->blocking_finished, __ATOMIC_ACQUIRE) : 0;
    stream->mark_covers = done;
    __atomic_store_n(&stream->done, done, __ATOMIC_RELAXED);
    __atomic_store_n(&stream->id, weir_guest_objects_next_id(), __ATOMIC_RELEASE);
}

static CUresult new_stream(struct weir_guest_ctx *ctx, unsigned int flags, int priority,
                           bool legacy, struct weir_guest_stream **ret_stream)
{
    struct weir_guest_stream *stream = take_struct();
    WEIR_FAIL_IF(!stream, CUDA_ERROR_OUT_OF_MEMORY);
    CUresult result = weir_word_take(&stream->word, &stream->mark_value);
    if (result != CUDA_SUCCESS) {
        give_struct(stream);
        return result;
    }
    fill_stream(stream, ctx, flags, priority, legacy);
    result = weir_guest_object_add(WEIR_KIND_STREAM, stream, &stream->handle);
    if (result != CUDA_SUCCESS) {
        weir_word_give(stream->word, stream->mark_value);
        give_struct(stream);
        return result;
    }
    weir_lock_acquire(&ctx->lock);
    stream->next_in_ctx = ctx->streams;
    ctx->streams = stream;
    weir_lock_release(&ctx->lock);
    *ret_stream = stream;
    return CUDA_SUCCESS;
}

CUresult weir_guest_stream_new_legacy(struct weir_guest_ctx *ctx,
                                      struct weir_guest_stream **ret_stream)
{
    return new_stream(ctx, 0, 0, true, ret_stream);
}

CUresult weir_guest_stream_new(struct weir_guest_ctx *ctx, unsigned int flags, int priority,
                               struct weir_guest_stream **ret_stream)
{
    weir_streams_reap(ctx);
    struct weir_guest_stream *stream;
    WEIR_TRY(new_stream(ctx, flags, priority, false, &stream));
    CUresult result = weir_post_stream_create(
        weir_guest_channel(), &(struct weir_op_stream_create_in){.s = stream->handle,
                                                                 .c = ctx->handle,
                                                                 .flags = flags,
                                                                 .priority = priority,
                                                                 .word = stream->word});
    *ret_stream = stream;
    return result;
}

static void unlink_locked(struct weir_guest_stream **list, const struct weir_guest_stream *stream)
{
    for (; *list; list = &(*list)->next_in_ctx) {
        if (*list == stream) {
            *list = stream->next_in_ctx;
            return;
        }
    }
}

/* Post the destruction: the last record about the stream. */
static CUresult take_leave(struct weir_guest_stream *stream)
{
    struct weir_stream_point point = weir_guest_stream_here(stream);
    weir_guest_object_remove(WEIR_KIND_STREAM, stream->handle);
    if (!weir_guest_stream_passed(&point)) {
        CUresult result = weir_guest_stream_mark(&point);
        (void)result; /* the host is dead, so no work runs, and the post below reports that */
    }
    return weir_post_stream_destroy(weir_guest_channel(),
                                    &(struct weir_op_stream_destroy_in){.s = stream->handle});
}

/* Is the stream captured? A mark would then break its capture. */
static bool is_captured(const struct weir_guest_stream *stream)
{
    struct weir_op_capture_info_out out;
    return weir_guest_capturing() &&
           weir_call_capture_info(weir_guest_channel(),
                                  &(struct weir_op_capture_info_in){.s = stream->handle},
                                  &out) == CUDA_SUCCESS &&
           out.status != CU_STREAM_CAPTURE_STATUS_NONE;
}

static void zombify_locked(struct weir_guest_ctx *ctx, struct weir_guest_stream *stream)
{
    stream->next_in_ctx = ctx->zombies;
    __atomic_store_n(&ctx->zombies, stream, __ATOMIC_RELAXED); /* read without the lock */
}

CUresult weir_guest_stream_drop(struct weir_guest_stream *stream)
{
    struct weir_guest_ctx *ctx = stream->ctx;
    bool later = is_captured(stream);
    CUresult result = later ? CUDA_SUCCESS : take_leave(stream);
    weir_lock_acquire(&ctx->lock);
    stream->goes_later = later;
    unlink_locked(&ctx->streams, stream);
    zombify_locked(ctx, stream);
    weir_lock_release(&ctx->lock);
    weir_streams_reap(ctx);
    return result;
}

/* No stream is captured: mark the destroyed streams that could not be marked before. */
static void let_go(struct weir_guest_ctx *ctx)
{
    struct weir_guest_stream *going = NULL;
    weir_lock_acquire(&ctx->lock);
    for (struct weir_guest_stream **at = &ctx->zombies; *at;) {
        struct weir_guest_stream *zombie = *at;
        if (zombie->goes_later) {
            __atomic_store_n(at, zombie->next_in_ctx, __ATOMIC_RELAXED);
            zombie->goes_later = false;
            zombie->next_in_ctx = going;
            going = zombie;
        } else {
            at = &zombie->next_in_ctx;
        }
    }
    weir_lock_release(&ctx->lock);
    while (going) {
        struct weir_guest_stream *next = going->next_in_ctx;
        CUresult result = take_leave(going);
        (void)result; /* for the program the stream is destroyed */
        weir_lock_acquire(&ctx->lock);
        zombify_locked(ctx, going);
        weir_lock_release(&ctx->lock);
        going = next;
    }
}

static void recycle(struct weir_guest_stream *stream)
{
    weir_word_give(stream->word, stream->mark_value);
    give_struct(stream);
}

void weir_streams_reap(struct weir_guest_ctx *ctx)
{
    if (!__atomic_load_n(&ctx->zombies, __ATOMIC_RELAXED)) {
        return;
    }
    if (!weir_guest_capturing()) {
        let_go(ctx);
    }
    struct weir_guest_stream *done = NULL;
    weir_lock_acquire(&ctx->lock);
    for (struct weir_guest_stream **at = &ctx->zombies; *at;) {
        struct weir_guest_stream *zombie = *at;
        struct weir_stream_point point = weir_guest_stream_here(zombie);
        if (!zombie->goes_later && weir_guest_stream_passed(&point)) {
            __atomic_store_n(at, zombie->next_in_ctx, __ATOMIC_RELAXED);
            zombie->next_in_ctx = done;
            done = zombie;
        } else {
            at = &zombie->next_in_ctx;
        }
    }
    weir_lock_release(&ctx->lock);
    while (done) {
        struct weir_guest_stream *next = done->next_in_ctx;
        recycle(done);
        done = next;
    }
}

/* ---------------------------------------------------------------- asserts that the driver reports
 * late */

CUresult weir_guest_stream_asserts(struct weir_guest_ctx *ctx)
{
    struct weir_segment_header *header = weir_guest.channel.header;

    if (!header || !__builtin_expect(__atomic_load_n(&header->unchecked, __ATOMIC_RELAXED), 0)) {
        return CUDA_SUCCESS;
    }
    weir_guest_printf_flush(ctx);
    return (CUresult)__atomic_load_n(&header->sticky_error, __ATOMIC_ACQUIRE);
}

/* ---------------------------------------------------------------- points and marks */

struct weir_stream_point weir_guest_stream_here(struct weir_guest_stream *stream)
{
    return (struct weir_stream_point){
        .stream = stream,
        .stream_id = __atomic_load_n(&stream->id, __ATOMIC_ACQUIRE),
        /* S3: meets S2: all work counted here has been sent. */
        .count = __atomic_load_n(weir_guest_stream_finished(stream), __ATOMIC_ACQUIRE)};
}

static bool point_is_old(const struct weir_stream_point *point)
{
    return __atomic_load_n(&point->stream->id, __ATOMIC_ACQUIRE) != point->stream_id;
}

static void raise_done(struct weir_guest_stream *stream, uint64_t count)
{
    uint64_t done = __atomic_load_n(&stream->done, __ATOMIC_RELAXED);
    while (done < count && !__atomic_compare_exchange_n(&stream->done, &done, count, true,
                                                        __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {
    }
}

void weir_guest_stream_note_done(const struct weir_stream_point *point)
{
    if (point->stream && !point_is_old(point)) {
        raise_done(point->stream, point->count);
    }
}

/* Has the stream reached its newest mark? Then all work that the mark covers is done. */
static void look_at_mark(struct weir_guest_stream *stream)
{
    WEIR_GUEST_LOCKED(&stream->lock);
    uint64_t covers = stream->mark_covers;
    if (__atomic_load_n(&stream->done, __ATOMIC_RELAXED) < covers &&
        weir_channel_word_reached(weir_guest_channel(), stream->word, stream->mark_value)) {
        raise_done(stream, covers);
    }
}

bool weir_guest_stream_passed(const struct weir_stream_point *point)
{
    struct weir_guest_stream *stream = point->stream;
    if (!stream || point_is_old(point) ||
        __atomic_load_n(&stream->done, __ATOMIC_ACQUIRE) >= point->count) {
        return true;
    }
    if (weir_guest.channel.remote) {
        return false;
    }
    look_at_mark(stream);
    return __atomic_load_n(&stream->done, __ATOMIC_ACQUIRE) >= point->count;
}

/*
 * Send a mark if none covers the point; returns the number to wait for and the count that it
 * covers. During a capture ask the host, because the number of a captured stream would never be
 * written.
 */
static CUresult mark_point(const struct weir_stream_point *point, uint32_t *ret_value,
                           uint64_t *ret_covers)
{
    struct weir_guest_stream *stream = point->stream;
    CUresult result = CUDA_SUCCESS;
    WEIR_GUEST_LOCKED(&stream->lock);
    if (stream->mark_covers < point->count) {
        uint64_t covers = __atomic_load_n(weir_guest_stream_finished(stream), __ATOMIC_ACQUIRE);
        uint32_t value = stream->mark_value + 1;
        struct weir_op_stream_mark_in in = {.s = stream->handle, .value = value};
        result = weir_guest_capturing() ? weir_call_stream_mark(weir_guest_channel(), &in, NULL)
                                        : weir_post_stream_mark(weir_guest_channel(), &in);
        if (result == CUDA_SUCCESS) {
            stream->mark_covers = covers;
            stream->mark_value = value;
        }
    }
    bool captured = result == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    result = captured ? CUDA_SUCCESS : result;
    *ret_value = stream->mark_value;
    *ret_covers = captured ? point->count : stream->mark_covers;
    return result;
}

CUresult weir_guest_stream_mark(const struct weir_stream_point *point)
{
    uint32_t value;
    uint64_t covers;
    if (!point->stream || point_is_old(point)) {
        return CUDA_SUCCESS;
    }
    return mark_point(point, &value, &covers);
}

CUresult weir_guest_stream_mark_before_capture(struct weir_guest_stream *stream)
{
    struct weir_guest_stream *legacy = __atomic_load_n(&stream->ctx->legacy, __ATOMIC_ACQUIRE);
    struct weir_stream_point point = weir_guest_stream_here(stream);
    CUresult result = weir_guest_stream_mark(&point);
    if (result == CUDA_SUCCESS && legacy && !(stream->flags & CU_STREAM_NON_BLOCKING)) {
        point = weir_guest_stream_here(legacy); /* while a blocking stream is captured the host
                                                   refuses marks on the legacy stream, too */
        result = weir_guest_stream_mark(&point);
    }
    return result;
}

CUresult weir_guest_stream_wait(const struct weir_stream_point *point)
{
    struct weir_guest_stream *stream = point->stream;
    if (weir_guest_stream_passed(point)) {
        return stream ? weir_guest_stream_asserts(stream->ctx) : CUDA_SUCCESS;
    }
    uint32_t value;
    uint64_t covers;
    WEIR_TRY(mark_point(point, &value, &covers));
    unsigned int flags = __atomic_load_n(&stream->ctx->flags, __ATOMIC_RELAXED);
    bool soon = (flags & CU_CTX_SCHED_MASK) == CU_CTX_SCHED_BLOCKING_SYNC;
    WEIR_TRY(weir_channel_word_wait(weir_guest_channel(), stream->word, value, soon));
    raise_done(stream, covers);
    return weir_guest_stream_asserts(stream->ctx);
}

/* ---------------------------------------------------------------- functions for entry points */

CUresult weir_guest_stream_ask_host(struct weir_guest_stream *stream)
{
    struct weir_stream_point point = weir_guest_stream_here(stream);
    WEIR_TRY(weir_call_stream_query(weir_guest_channel(),
                                    &(struct weir_op_stream_query_in){.s = stream->handle}, NULL));
    weir_guest_stream_note_done(&point);
    return CUDA_SUCCESS;
}

CUresult weir_guest_stream_settled(struct weir_guest_ctx *ctx)
{
    weir_guest_stream_run_actions();
    if (__builtin_expect(__atomic_load_n(&weir_guest.uses_printf, __ATOMIC_RELAXED), 0)) {
        weir_guest_printf_flush(ctx);
    } else {
        (void)weir_guest_stream_asserts(ctx); /* the caller reports errors of the session */
    }
    return weir_managed_pull();
}

CUresult weir_guest_stream_synchronize(struct weir_guest_stream *stream)
{
    if (__builtin_expect(weir_guest_capturing(), 0)) {
        CUresult result = weir_guest_stream_ask_host(stream);
        if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) {
            return result;
        }
    }
    struct weir_stream_point point = weir_guest_stream_here(stream);
    CUresult result = weir_guest_stream_wait(&point);
    CUresult settled = weir_guest_stream_settled(stream->ctx);
    return weir_guest_result(result != CUDA_SUCCESS ? result : settled);
}

static bool sent_just_now(struct weir_guest_stream *stream)
{
    uint64_t sent = __atomic_load_n(weir_guest_stream_ticks(stream), __ATOMIC_RELAXED);
    return weir_clock_ticks() - sent < JUST_NOW_TICKS;
}

/*
 * Ask the host whether the newest work is done, since no mark is pending. Its answer is exact,
 * except for a legacy stream that the host has just made wait for other streams: the GPU needs a
 * moment for that.
 */
static CUresult query_host(const struct weir_stream_point *point)
{
    CUresult result = weir_guest_stream_ask_host(point->stream);
    if (result == CUDA_ERROR_NOT_READY) {
        result = weir_guest_stream_mark(point);
        uint64_t end_ns = weir_clock_now_ns() + (point->stream->legacy ? QUERY_SPIN_NS : 0);
        while (result == CUDA_SUCCESS && !weir_guest_stream_passed(point)) {
            result = weir_clock_now_ns() < end_ns ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
            weir_cpu_pause();
        }
    }
    return result;
}

/*
 * Answer from memory, except the first query some time after the newest work. docs/design/guest.md
 * has the reasons.
 */
static CUresult query_local(const struct weir_stream_point *point)
{
    struct weir_guest_stream *stream = point->stream;
    weir_lock_acquire(&stream->lock);
    bool under_way = __atomic_load_n(&stream->done, __ATOMIC_RELAXED) < stream->mark_covers;
    weir_lock_release(&stream->lock);
    WEIR_FAIL_IF(under_way, CUDA_ERROR_NOT_READY);
    if (!sent_just_now(stream)) {
        return query_host(point);
    }
    WEIR_TRY(weir_guest_stream_mark(point));
    return CUDA_ERROR_NOT_READY;
}

CUresult weir_guest_stream_query(struct weir_guest_stream *stream)
{
    struct weir_stream_point point = weir_guest_stream_here(stream);
    bool captures = weir_guest_capturing();
    CUresult result = CUDA_SUCCESS;
    /* What the program has waited for is done, though the driver may see that only in a moment. */
    if (captures || !weir_guest_stream_passed(&point)) {
        result = captures || weir_guest.channel.remote ? weir_guest_stream_ask_host(stream)
                                                       : query_local(&point);
    }
    result = result == CUDA_SUCCESS ? weir_guest_stream_asserts(stream->ctx) : result;
    if (result == CUDA_SUCCESS) {
        weir_guest_stream_run_actions();
        return weir_guest_result(weir_managed_pull());
    }
    WEIR_TRY(weir_guest_report());
    return result;
}

CUresult weir_guest_stream_work_settle(struct weir_guest_stream *stream, CUresult result)
{
    if (result == CUDA_SUCCESS && !weir_guest_capturing()) {
        struct weir_stream_point point = weir_guest_stream_here(stream);
        result = weir_guest_result(weir_guest_stream_wait(&point));
    }
    return result;
}

/* ---------------------------------------------------------------- a whole context */

struct points {
    struct weir_stream_point fixed[SYNC_POINTS];
    struct weir_stream_point *all;
    size_t count;
    size_t cap;
};

static bool add_point(struct points *points, struct weir_guest_stream *stream)
{
    struct weir_stream_point point = weir_guest_stream_here(stream);
    if (weir_guest_stream_passed(&point)) {
        return true;
    }
    if (points->count == points->cap) {
        size_t cap = points->cap * 4;
        struct weir_stream_point *all = malloc(cap * sizeof *all);
        WEIR_FAIL_IF(!all, false);
        memcpy(all, points->all, points->count * sizeof *all);
        if (points->all != points->fixed) {
            free(points->all);
        }
        points->all = all;
        points->cap = cap;
    }
    points->all[points->count++] = point;
    return true;
}

static bool collect(struct weir_guest_ctx *ctx, struct points *points)
{
    bool ok = true;
    WEIR_GUEST_LOCKED(&ctx->lock);
    for (struct weir_guest_stream *s = ctx->streams; s && ok; s = s->next_in_ctx) {
        ok = add_point(points, s);
    }
    for (struct weir_guest_stream *s = ctx->zombies; s && ok; s = s->next_in_ctx) {
        ok = add_point(points, s);
    }
    return ok;
}

/* The legacy stream comes after every blocking stream: one mark on it covers them all. */
static bool covered_by_legacy(const struct weir_guest_stream *stream)
{
    return !stream->legacy && !(stream->flags & CU_STREAM_NON_BLOCKING);
}

static CUresult wait_points(struct weir_guest_ctx *ctx, const struct points *points)
{
    CUresult result = CUDA_SUCCESS;
    struct weir_stream_point legacy = weir_guest_stream_here(ctx->legacy);
    bool passed = weir_guest_stream_passed(&legacy);
    for (size_t i = 0; i < points->count && result == CUDA_SUCCESS; i++) {
        if (!covered_by_legacy(points->all[i].stream)) {
            result = weir_guest_stream_mark(&points->all[i]);
        }
    }
    if (result == CUDA_SUCCESS && !passed) {
        result = weir_guest_stream_wait(&legacy);
    }
    for (size_t i = 0; i < points->count && result == CUDA_SUCCESS; i++) {
        if (covered_by_legacy(points->all[i].stream)) {
            weir_guest_stream_note_done(&points->all[i]);
        } else {
            result = weir_guest_stream_wait(&points->all[i]);
        }
    }
    return result;
}

CUresult weir_streams_wait_all(struct weir_guest_ctx *ctx)
{
    struct points points = {.cap = SYNC_POINTS};
    points.all = points.fixed;
    CUresult result = collect(ctx, &points) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    WEIR_THEN(result, wait_points(ctx, &points));
    if (points.all != points.fixed) {
        free(points.all);
    }
    weir_streams_reap(ctx);
    return result;
}

static void forget_event(weir_handle handle, void *object, void *user)
{
    struct weir_guest_event *event = object;
    if (event->ctx == user && event->handle == handle) {
        weir_event_drop(event, false);
    }
}

void weir_streams_forget(struct weir_guest_ctx *ctx)
{
    weir_id_table_visit(weir_guest.objects.tables[WEIR_KIND_EVENT], forget_event, ctx);
    weir_lock_acquire(&ctx->lock);
    struct weir_guest_stream *lists[] = {ctx->streams, ctx->zombies};
    ctx->streams = ctx->zombies = NULL;
    ctx->legacy = NULL;
    weir_lock_release(&ctx->lock);
    for (int i = 0; i < 2; i++) {
        while (lists[i]) {
            struct weir_guest_stream *stream = lists[i];
            lists[i] = stream->next_in_ctx;
            CUresult result = weir_guest.tell.stream_gone(stream);
            (void)result; /* without memory there is no graph that could lack it */
            weir_guest_object_remove(WEIR_KIND_STREAM, stream->handle);
            recycle(stream);
        }
    }
}
