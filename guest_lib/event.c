/* Events: see stream.h for the model. Structs come from slabs that are never unmapped. */
#include "guest_lib/stream.h"
#include "proto/guest_calls.h"
#include <stdlib.h>
#include <string.h>

#define SLAB_EVENTS 64
/* After so many records without a query an event is taken to be only for streams. Programs that
 * query events query most records; NCCL, which does not, makes two in each operation. */
#define UNASKED_MAX 3

struct slab {
    struct slab *next;
    struct weir_guest_event events[SLAB_EVENTS];
};

/* The lock guards these members. */
static struct {
    struct weir_lock lock;
    struct slab *slabs;
    struct weir_guest_event *free;
} pool;

void weir_events_finish(void)
{
    for (struct slab *slab; (slab = WEIR_POP(pool.slabs));) {
        free(slab);
    }
    memset(&pool, 0, sizeof pool);
}

static struct weir_guest_event *take_struct(void)
{
    WEIR_GUEST_LOCKED(&pool.lock);
    if (!pool.free) {
        struct slab *slab = calloc(1, sizeof *slab);
        if (slab) {
            WEIR_PUSH(pool.slabs, slab);
            for (int i = 0; i < SLAB_EVENTS; i++) {
                slab->events[i].next_free = pool.free;
                pool.free = &slab->events[i];
            }
        }
    }
    struct weir_guest_event *event = pool.free;
    if (event) {
        pool.free = event->next_free;
    }
    return event;
}

static void give_struct(struct weir_guest_event *event)
{
    WEIR_GUEST_LOCKED(&pool.lock);
    event->next_free = pool.free;
    pool.free = event;
}

CUresult weir_event_get(CUevent handle, struct weir_guest_event **ret_event)
{
    struct weir_guest_event *event = weir_guest_object_get(WEIR_KIND_EVENT, handle);
    WEIR_FAIL_IF(!event || !weir_ctx_use(event->ctx, NULL), CUDA_ERROR_INVALID_HANDLE);
    *ret_event = event;
    return CUDA_SUCCESS;
}

/* Choose the word that the next record writes. It writes none if the event is only for streams to
 * wait for, as NCCL's are: it has no timing, and the program has not queried several records. */
static uint32_t next_word_locked(const struct weir_guest_event *event)
{
    bool writes = event->flags != CU_EVENT_DISABLE_TIMING || event->unasked < UNASKED_MAX ||
                  weir_guest.channel.remote;
    return writes ? event->word : WEIR_WORD_NONE;
}

CUresult weir_event_new(struct weir_guest_ctx *ctx, unsigned int flags, bool imported,
                        struct weir_guest_event **ret_event)
{
    struct weir_guest_event *event = take_struct();
    WEIR_FAIL_IF(!event, CUDA_ERROR_OUT_OF_MEMORY);
    event->ctx = ctx;
    event->flags = flags;
    event->imported = imported;
    event->exported = event->in_graph = event->recorded = event->captured = event->written = false;
    event->at = event->wrote = (struct weir_stream_point){0};
    event->word = WEIR_WORD_NONE;
    event->value = 0;
    event->unasked = 0;
    CUresult result = imported ? CUDA_SUCCESS : weir_word_take(&event->word, &event->value);
    if (result == CUDA_SUCCESS) {
        result = weir_guest_object_add(WEIR_KIND_EVENT, event, &event->handle);
        if (result != CUDA_SUCCESS && !imported) {
            weir_word_give(event->word, event->value);
        }
    }
    if (result != CUDA_SUCCESS) {
        give_struct(event);
        return result;
    }
    *ret_event = event;
    return imported
               ? CUDA_SUCCESS
               : weir_post_event_create(weir_guest_channel(),
                                        &(struct weir_op_event_create_in){.e = event->handle,
                                                                          .c = event->ctx->handle,
                                                                          .flags = event->flags});
}

void weir_event_drop(struct weir_guest_event *event, bool tell_host)
{
    weir_guest_object_remove(WEIR_KIND_EVENT, event->handle);
    if (tell_host) {
        CUresult result = weir_post_event_destroy(
            weir_guest_channel(), &(struct weir_op_event_destroy_in){.e = event->handle});
        (void)result; /* a dead host has no events, so it need not be sent anything */
    }
    if (event->word != WEIR_WORD_NONE) {
        weir_word_give(event->word, event->value);
    }
    give_struct(event);
}

static bool complete_locked(struct weir_guest_event *event)
{
    if (!event->recorded || weir_guest_stream_passed(&event->at)) {
        return true;
    }
    if (weir_guest.channel.remote || !event->written ||
        !weir_channel_word_reached(weir_guest_channel(), event->word, event->value)) {
        return false;
    }
    weir_guest_stream_note_done(&event->at);
    return true;
}

/* Take another word if an older record may still write this one from another stream. */
static CUresult own_word_locked(struct weir_guest_event *event,
                                const struct weir_guest_stream *stream)
{
    uint32_t word, value;
    if (next_word_locked(event) == WEIR_WORD_NONE || !event->wrote.stream ||
        event->wrote.stream == stream || weir_guest_stream_passed(&event->wrote) ||
        (!weir_guest.channel.remote &&
         weir_channel_word_reached(weir_guest_channel(), event->word, event->value))) {
        return CUDA_SUCCESS;
    }
    WEIR_TRY(weir_word_take(&word, &value));
    weir_word_give(event->word, event->value);
    event->word = word;
    event->value = value;
    return CUDA_SUCCESS;
}

static void note_record_locked(struct weir_guest_event *event, struct weir_guest_stream *stream,
                               bool captured)
{
    event->captured = captured;
    event->recorded = true;
    if (!captured) {
        event->written = next_word_locked(event) != WEIR_WORD_NONE;
        event->value += event->written;
        event->unasked += event->unasked < UNASKED_MAX;
        event->at = weir_guest_stream_here(stream);
        event->wrote = event->written ? event->at : event->wrote;
    }
}

static CUresult record_locked(struct weir_guest_event *event, struct weir_guest_stream *stream,
                              unsigned int flags)
{
    WEIR_TRY(own_word_locked(event, stream));
    struct weir_op_event_record_in in = {.e = event->handle,
                                         .s = stream->handle,
                                         .word = next_word_locked(event),
                                         .value = event->value + 1,
                                         .flags = flags};
    bool captured = false;
    CUresult result;
    weir_guest_stream_work_begin(stream);
    /* Wait for the host: another process that learns of the record must find it made, although its
     * own records use another ring. */
    if (weir_guest_capturing() || weir_event_is_shared(event)) {
        struct weir_op_event_record_out out = {0};
        result = weir_call_event_record(weir_guest_channel(), &in, &out);
        captured = out.captured != 0;
    } else {
        result = weir_post_event_record(weir_guest_channel(), &in);
    }
    result = weir_guest_stream_work_end(stream, result);
    if (result == CUDA_SUCCESS && captured && flags == CU_EVENT_RECORD_EXTERNAL) {
        __atomic_store_n(&event->in_graph, true, __ATOMIC_RELAXED);
    } else if (result == CUDA_SUCCESS) {
        note_record_locked(event, stream, captured);
    }
    return result;
}

CUresult weir_event_record(struct weir_guest_event *event, struct weir_guest_stream *stream,
                           unsigned int flags)
{
    WEIR_FAIL_IF(flags & ~(unsigned int)CU_EVENT_RECORD_EXTERNAL, CUDA_ERROR_INVALID_VALUE);
    WEIR_GUEST_LOCKED(&event->lock);
    return record_locked(event, stream, flags);
}

CUresult weir_event_launch_begin(struct weir_guest_event *event, struct weir_guest_stream *stream)
{
    WEIR_FAIL_IF(event->ctx != stream->ctx || event->imported, CUDA_ERROR_INVALID_HANDLE);
    WEIR_FAIL_IF(!(event->flags & CU_EVENT_DISABLE_TIMING), CUDA_ERROR_INVALID_VALUE);
    weir_lock_acquire(&event->lock);
    CUresult result = own_word_locked(event, stream);
    if (result != CUDA_SUCCESS) {
        weir_lock_release(&event->lock);
    }
    return result;
}

static CUresult mark_locked(struct weir_guest_event *event, struct weir_guest_stream *stream)
{
    const struct weir_op_event_mark_in in = {.e = event->handle,
                                             .s = stream->handle,
                                             .word = next_word_locked(event),
                                             .value = event->value + 1};
    struct weir_op_event_mark_out out = {0};
    if (in.word == WEIR_WORD_NONE && !weir_guest_capturing()) {
        note_record_locked(event, stream, false);
        return CUDA_SUCCESS;
    }
    weir_guest_stream_work_begin(stream);
    CUresult result = weir_guest_capturing() ? weir_call_event_mark(weir_guest_channel(), &in, &out)
                                             : weir_post_event_mark(weir_guest_channel(), &in);
    WEIR_TRY(weir_guest_stream_work_end(stream, result));
    note_record_locked(event, stream, out.captured != 0);
    return CUDA_SUCCESS;
}

CUresult weir_event_launch_end(struct weir_guest_event *event, struct weir_guest_stream *stream,
                               CUresult launched)
{
    CUresult result = launched == CUDA_SUCCESS ? mark_locked(event, stream) : launched;
    weir_lock_release(&event->lock);
    return result;
}

bool weir_event_is_shared(const struct weir_guest_event *event)
{
    return event->imported || event->exported ||
           __atomic_load_n(&event->in_graph, __ATOMIC_RELAXED);
}

void weir_event_use_in_graph(struct weir_guest_event *event)
{
    WEIR_GUEST_LOCKED(&event->lock);
    __atomic_store_n(&event->in_graph, true, __ATOMIC_RELAXED);
}

bool weir_event_is_known_done(struct weir_guest_event *event)
{
    if (weir_event_is_shared(event) || weir_guest.channel.remote) {
        return false;
    }
    WEIR_GUEST_LOCKED(&event->lock);
    return !event->captured && complete_locked(event);
}

CUresult weir_event_query(struct weir_guest_event *event)
{
    bool ask = weir_event_is_shared(event) || (weir_guest.channel.remote && event->recorded);
    weir_lock_acquire(&event->lock);
    bool done = complete_locked(event);
    /* If the newest record is captured, the driver refuses the call and invalidates the capture. */
    ask |= event->captured || (!done && !event->written);
    event->unasked = 0;
    const struct weir_op_event_query_in in = {.e = event->handle};
    weir_lock_release(&event->lock);
    if (ask) {
        return weir_call_event_query(weir_guest_channel(), &in, NULL);
    }
    return done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

/* The newest record has no word here: ask the host, in intervals of a sixteenth of the time already
 * waited. */
static CUresult wait_by_asking(struct weir_guest_event *event)
{
    uint32_t nobody = 0;
    uint64_t begin_ns = weir_clock_now_ns();
    CUresult result;
    while ((result = weir_event_query(event)) == CUDA_ERROR_NOT_READY) {
        uint64_t pause_ns = (weir_clock_now_ns() - begin_ns) / 16;
        weir_futex_wait(&nobody, 0, WEIR_MIN(pause_ns, WEIR_NS_PER_MS));
    }
    return result;
}

CUresult weir_event_wait(struct weir_guest_event *event)
{
    weir_lock_acquire(&event->lock);
    bool captured = event->captured, written = event->written;
    bool complete = complete_locked(event);
    uint32_t word = event->word;
    uint32_t value = event->value;
    struct weir_stream_point at = event->at;
    event->unasked = 0;
    weir_lock_release(&event->lock);
    if (weir_event_is_shared(event)) {
        return wait_by_asking(event);
    }
    if (captured) {
        return weir_event_query(event);
    }
    if (complete) {
        return CUDA_SUCCESS;
    }
    if (!written) {
        /* If the stream got no work since, a mark tells exactly when the record is done. */
        return weir_guest_stream_here(at.stream).count == at.count ? weir_guest_stream_wait(&at)
                                                                   : wait_by_asking(event);
    }
    WEIR_TRY(weir_channel_word_wait(weir_guest_channel(), word, value,
                                    (event->flags & CU_EVENT_BLOCKING_SYNC) != 0));
    weir_guest_stream_note_done(&at);
    return CUDA_SUCCESS;
}
