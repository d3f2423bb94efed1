/*
 * Streams and events of the guest, and how it sees the end of their work.
 *
 * Every piece of work is counted: weir_guest_stream_work_begin() before its record is posted and
 * weir_guest_stream_work_end() after. A *mark* makes the GPU write a number into the stream's word;
 * the mark covers what had been finished posting when it was sent. A stream is idle when a mark
 * that covers all begun work has been seen: then query and synchronize need no message. Marks are
 * sent only when a call needs them.
 *
 * The legacy stream's counters are those of its context: work on any blocking stream counts, since
 * a mark on the legacy stream comes after it.
 *
 * If an event is recorded again while an earlier record is pending on another stream, two writes to
 * one word could come in the wrong order. So the event moves to a fresh word under a fresh name
 * (`wire`).
 *
 * Posting work, the whole pattern:
 *
 *     result = weir_guest_stream_get(hStream, &stream); // checks context, sticky error, handle
 *     if (result != CUDA_SUCCESS) return result;
 *     in = (struct weir_op_launch_in){.s = stream->handle, ...};
 *     weir_guest_stream_work_begin(stream);
 *     result = weir_post_launch(weir_guest_channel(), &in);
 *     return weir_guest_stream_work_end(stream, result); // deferred errors, honours blocking
 *
 * While weir_guest_capturing(), use weir_call_<op>() in place of weir_post_<op>(): capture errors
 * are synchronous.
 *
 * Source: docs/design/guest.md
 */
#pragma once

#include "base/clock.h"
#include "guest_lib/entry.h"
#include "guest_lib/lock.h"
#include "guest_lib/objects.h"
#include "proto/cuda_abi.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* The capture that began in a stream, if any (ops/capture.c). */
struct weir_guest_capture {
    bool under_way; /* atomic */
    /* Next in the list of all captures; that list's lock guards this and the members below. */
    struct weir_guest_stream *next;
    CUstreamCaptureMode mode;
    pthread_t thread; /* thread that began the capture */
    bool broken;      /* the host was asked to invalidate it */
    uint64_t id;
    uint64_t into;  /* the program's graph that it extends; 0: the capture makes one */
    uint64_t named; /* the graph, once the program has asked for it; 0: it has no name yet */
};

/*
 * A stream. handle .. id are immutable. The counters are atomic. Structs are reused after
 * destruction, never unmapped.
 */
struct weir_guest_stream {
    uint64_t handle; /* == the CUstream, and its name on the wire */
    struct weir_guest_ctx *ctx;
    uint32_t ctx_epoch; /* activation of the context that the stream belongs to */
    unsigned int flags; /* flags of cuStreamCreate */
    int priority;
    bool legacy;
    bool per_thread;
    struct weir_guest_capture capture;
    uint32_t word;
    uint64_t id;

    /* Number of pieces of work begun. The legacy stream uses its context's counters instead. */
    uint64_t started_own;
    uint64_t finished_own; /* number of pieces of work whose record is sent */
    uint64_t ticks_own;    /* weir_clock_ticks() when the newest record was sent */
    uint64_t done;         /* all work up to this count is known to be complete */

    struct weir_lock lock; /* guards the pair below */
    uint64_t mark_covers;  /* count of finished posts that the newest mark covers */
    uint32_t mark_value;   /* the newest mark's number, continuing from the word's former owner */

    struct weir_guest_stream *next_in_ctx; /* guarded by ctx->lock; also links the free list */
    bool goes_later; /* it is destroyed, but that was not posted yet; guarded by ctx->lock */
};

static inline uint64_t *weir_guest_stream_started(struct weir_guest_stream *stream)
{
    return stream->legacy ? &stream->ctx->blocking_started : &stream->started_own;
}
static inline uint64_t *weir_guest_stream_finished(struct weir_guest_stream *stream)
{
    return stream->legacy ? &stream->ctx->blocking_finished : &stream->finished_own;
}
static inline uint64_t *weir_guest_stream_ticks(struct weir_guest_stream *stream)
{
    return stream->legacy ? &stream->ctx->blocking_ticks : &stream->ticks_own;
}

/**
 * Find the stream of a program's argument: its context's legacy stream, its thread's own stream, or
 * a handle.
 *
 * @return CUDA_SUCCESS
 * @return CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_CONTEXT_IS_DESTROYED, a sticky error
 * @return CUDA_ERROR_INVALID_HANDLE  no such stream
 * @thread any; makes the thread's per-thread stream on first use
 */
CUresult weir_guest_stream_get(CUstream handle, struct weir_guest_stream **ret_stream);

/** Find a program's stream of any active context, by its handle. False: none. @thread any */
bool weir_guest_stream_find(CUstream handle, struct weir_guest_stream **ret_stream);

/** A new stream of an active context. flags as cuStreamCreate. @thread any */
CUresult weir_guest_stream_new(struct weir_guest_ctx *ctx, unsigned int flags, int priority,
                               struct weir_guest_stream **ret_stream);

/** The legacy stream of a context that is being activated; ctx_create makes it on the host. */
CUresult weir_guest_stream_new_legacy(struct weir_guest_ctx *ctx,
                                      struct weir_guest_stream **ret_stream);

/**
 * Post a stream's destruction and forget its handle. Its work continues: the struct stays as one of
 * the context's zombies until a last mark has been seen, so that points in it remain valid. A
 * stream that has joined a capture cannot be marked: the destruction is posted when no stream is
 * captured.
 * @thread any
 */
CUresult weir_guest_stream_drop(struct weir_guest_stream *stream);

/** Wait for all work of the context, zombies included. @thread any; no lock held */
CUresult weir_streams_wait_all(struct weir_guest_ctx *ctx);

/** Forget every stream and event of a context whose work has ended. @thread any */
void weir_streams_forget(struct weir_guest_ctx *ctx);

/**
 * Free zombies whose last mark has been seen, and post the destructions that a capture has delayed.
 * @thread any; no lock held
 */
void weir_streams_reap(struct weir_guest_ctx *ctx);

/** Work is about to be posted on the stream. @thread any */
static inline void weir_guest_stream_work_begin(struct weir_guest_stream *stream)
{
    __atomic_fetch_add(weir_guest_stream_started(stream), 1, __ATOMIC_RELAXED);
    if (!stream->legacy && !(stream->flags & CU_STREAM_NON_BLOCKING)) {
        __atomic_fetch_add(&stream->ctx->blocking_started, 1, __ATOMIC_RELAXED);
    }
}

/** The slow half of weir_guest_stream_work_end(): blocking mode, errors. */
CUresult weir_guest_stream_work_settle(struct weir_guest_stream *stream, CUresult result);

/**
 * The record was sent, or failed with result. Returns the entry point's result: result, else a
 * deferred error; with WEIR_LAUNCH_BLOCKING it waits for the work first.
 * @thread any
 */
static inline CUresult weir_guest_stream_work_end(struct weir_guest_stream *stream, CUresult result)
{
    uint64_t ticks = weir_clock_ticks();
    __atomic_store_n(weir_guest_stream_ticks(stream), ticks, __ATOMIC_RELAXED);
    /* S2: the record is sent; meets the acquire in weir_guest_stream_mark(). */
    __atomic_fetch_add(weir_guest_stream_finished(stream), 1, __ATOMIC_RELEASE);
    if (!stream->legacy && !(stream->flags & CU_STREAM_NON_BLOCKING)) {
        __atomic_store_n(&stream->ctx->blocking_ticks, ticks, __ATOMIC_RELAXED);
        __atomic_fetch_add(&stream->ctx->blocking_finished, 1, __ATOMIC_RELEASE);
    }
    if (__builtin_expect(result != CUDA_SUCCESS || weir_guest.launch_blocking, 0)) {
        return weir_guest_stream_work_settle(stream, result);
    }
    return weir_guest_report();
}

/* A point in a stream's work: plain data to compare, keep, and wait for. */
struct weir_stream_point {
    struct weir_guest_stream *stream;
    /* If the struct was reused it has another id: then the point passed long ago. */
    uint64_t stream_id;
    uint64_t count; /* count of finished posts that must be done */
};

/** The point behind all work posted so far. Sends nothing. @thread any */
struct weir_stream_point weir_guest_stream_here(struct weir_guest_stream *stream);

/** Is the point known to be passed? Reads memory only, sends nothing (local sessions).
 * @thread any */
bool weir_guest_stream_passed(const struct weir_stream_point *point);

/**
 * Send a mark that covers the point, unless one did already. A captured stream is not marked: its
 * earlier work has a mark (weir_guest_stream_mark_before_capture()), and work given during the
 * capture does not run.
 * @thread any
 */
CUresult weir_guest_stream_mark(const struct weir_stream_point *point);

/**
 * Mark a stream's work before it may be captured, and let the legacy stream wait for that work: the
 * host accepts no mark during the capture. Does nothing for a stream that is captured already.
 * @thread any; no lock held
 */
CUresult weir_guest_stream_mark_before_capture(struct weir_guest_stream *stream);

/** Mark and wait. A point of a captured stream has passed when the work from before the capture is
 * done. CUDA_SUCCESS, a sticky error, or the host is gone. @thread any; no lock held */
CUresult weir_guest_stream_wait(const struct weir_stream_point *point);

/** Note that work up to the point is known to be done, by whatever evidence. @thread any */
void weir_guest_stream_note_done(const struct weir_stream_point *point);

/**
 * Ask the driver whether a stream's work is done. For calls during a capture that no capture can
 * contain.
 * @return CUDA_SUCCESS, CUDA_ERROR_NOT_READY
 * @return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT  the stream, or
 *         one that the legacy stream waits for, is captured; the capture is invalidated
 * @thread any
 */
CUresult weir_guest_stream_ask_host(struct weir_guest_stream *stream);

/** cuStreamQuery without the argument check: CUDA_SUCCESS, CUDA_ERROR_NOT_READY or an error. */
CUresult weir_guest_stream_query(struct weir_guest_stream *stream);

/**
 * The context's work is done: check whether an assert has failed. If the host reports that one may
 * have, it asks the driver now.
 * @return CUDA_SUCCESS, a sticky error
 * @thread any; no lock held
 */
CUresult weir_guest_stream_asserts(struct weir_guest_ctx *ctx);

/**
 * The last part of every synchronising call, after its wait: actions, device printf, managed
 * variables.
 * @thread any; no lock held
 */
CUresult weir_guest_stream_settled(struct weir_guest_ctx *ctx);

/** cuStreamSynchronize without the argument check: capture, wait, printf, errors. @thread any */
CUresult weir_guest_stream_synchronize(struct weir_guest_stream *stream);

/**
 * Forget the capture that began in a stream, if any, and its state. The caller ends it in the host.
 * @param graph that gets the capture's state; 0: none. @thread any
 */
CUresult weir_guest_capture_leave(struct weir_guest_stream *stream, uint64_t graph);

/* ---------------------------------------------------------------- events */

/* An event. Structs are reused, never unmapped. The members handle .. flags never change. */
struct weir_guest_event {
    uint64_t handle; /* == the CUevent */
    struct weir_guest_ctx *ctx;
    unsigned int flags;
    bool imported; /* opened from another process: it has no word, so calls ask the host */
    bool exported; /* another process may record it: its name is fixed, and calls ask the host */
    bool in_graph; /* atomic, never unset: a graph's launch may record it, so calls ask the host */

    struct weir_lock lock; /* guards what follows */
    uint32_t word;
    uint32_t value;   /* number in the word for the newest record that writes it */
    uint32_t unasked; /* records since the program last queried the event, counted up to a few */
    bool recorded;
    bool written;                   /* the newest record writes the word */
    bool captured;                  /* the newest record became a graph's edge */
    struct weir_stream_point at;    /* point of the newest record */
    struct weir_stream_point wrote; /* point of the newest record that writes the word */
    struct weir_guest_event *next_free;
};

/** Find the event of a handle. CUDA_ERROR_INVALID_HANDLE for anything else. @thread any */
CUresult weir_event_get(CUevent handle, struct weir_guest_event **ret_event);

/** Can another process or a graph record the event or wait for it? Then calls ask the host about
 * it. */
bool weir_event_is_shared(const struct weir_guest_event *event);
/** Note that a graph will record the event or wait for it. @thread any */
void weir_event_use_in_graph(struct weir_guest_event *event);
/** cuEventCreate in a context. imported: only reserve it, the caller opens it on the host. */
CUresult weir_event_new(struct weir_guest_ctx *ctx, unsigned int flags, bool imported,
                        struct weir_guest_event **ret_event);

/** Forget the event; tell_host: also post event_destroy. @thread any */
void weir_event_drop(struct weir_guest_event *event, bool tell_host);

/** cuEventRecordWithFlags. @thread any */
CUresult weir_event_record(struct weir_guest_event *event, struct weir_guest_stream *stream,
                           unsigned int flags);

/**
 * A launch that records the event by an attribute: begin takes the event's lock, end (only after a
 * begin that succeeded) gives it back. The event's word is written at the kernel's end, so queries
 * by the program may see it later than streams that wait for it do.
 *
 * @return CUDA_SUCCESS, CUDA_ERROR_INVALID_HANDLE (another context's, or opened),
 *         CUDA_ERROR_INVALID_VALUE (an event with timing), CUDA_ERROR_OUT_OF_MEMORY
 */
CUresult weir_event_launch_begin(struct weir_guest_event *event, struct weir_guest_stream *stream);
CUresult weir_event_launch_end(struct weir_guest_event *event, struct weir_guest_stream *stream,
                               CUresult launched);

/**
 * CUDA_SUCCESS, CUDA_ERROR_NOT_READY, CUDA_ERROR_CAPTURED_EVENT. Not recorded counts as done. From
 * now on the event's records write a word, so the guest sees their end without asking the host.
 */
CUresult weir_event_query(struct weir_guest_event *event);

/** Is the newest record known to be done? The host is not asked; false for a shared event. */
bool weir_event_is_known_done(struct weir_guest_event *event);

/** Wait for the newest record. @thread any; no lock held */
CUresult weir_event_wait(struct weir_guest_event *event);

/** Free all structs; for tests. */
void weir_events_finish(void);

/* ---------------------------------------------------------------- copies under capture */

/* Memory that the GPU reaches, owned by a graph for one of its pageable copies (graph_block.c). */
struct weir_graph_block {
    enum {
        WEIR_GRAPH_BLOCK_ARENA,
        WEIR_GRAPH_BLOCK_PINNED,
        WEIR_GRAPH_BLOCK_DEVICE, /* device memory of a remote session, if the arena has no room */
    } place;
    uint64_t at; /* offset in the arena, or address of memory */
    uint64_t bytes;
    uint64_t buffer_id; /* buffer_id of the memory at the address */
};

/*
 * A copy between pageable memory and the GPU, in a stream that may be capturing. A graph copies
 * again at every launch, so the graph code keeps the copy: `host` rows are packed into the block
 * before each launch (to_gpu) or unpacked from it after the launch's mark has been seen.
 */
struct weir_stream_capture_copy {
    bool to_gpu;
    uint8_t *host;       /* first byte in the program's memory */
    uint64_t row_bytes;  /* width of a row; rows are packed in the block */
    uint64_t host_pitch; /* bytes from row to row */
    uint64_t host_slice; /* bytes from slice to slice */
    uint64_t n_rows;     /* rows per slice; 1 for a linear copy */
    uint64_t n_slices;
    struct weir_graph_block block; /* n_slices * n_rows * row_bytes; the hook takes it */
};

/*
 * weir_guest.capture_copy(stream, copy, &side, &result): if the stream is capturing, the function
 * takes the copy, gives its block as a side of the copy's operation, and returns true. The caller
 * then posts the operation as usual, unless the result is an error. False: the stream is not
 * capturing, copy as usual. Called with no lock held.
 *
 * A function to call once a stream has passed a point, for instance to unpack after a graph launch:
 */
typedef void (*weir_stream_action_fn)(void *user);

/**
 * Run fn once the point is passed: at the next synchronising call that sees it, by that call's
 * thread, before it returns. Actions of one stream run in order.
 *
 * @param fn    called with no lock held; must not call entry points.
 * @return CUDA_SUCCESS, CUDA_ERROR_OUT_OF_MEMORY
 * @thread any
 */
CUresult weir_guest_stream_on_passed(const struct weir_stream_point *point,
                                     weir_stream_action_fn fn, void *user);

/** Run the actions whose points have passed. Every call that sees completion calls this. */
void weir_guest_stream_run_actions(void);

/* ---------------------------------------------------------------- words and threads */

/**
 * Take a completion word.
 * @param ret_value  the last number of its former owner; continue above it.
 * @return CUDA_SUCCESS, CUDA_ERROR_OUT_OF_MEMORY (as many streams and events as words)
 * @thread any
 */
CUresult weir_word_take(uint32_t *ret_word, uint32_t *ret_value);

/** Give the word back; last_value: newest number that may still be written to it. @thread any */
void weir_word_give(uint32_t word, uint32_t last_value);

/** Called by weir_guest_start() and weir_guest_stop(). */
CUresult weir_words_init(void);
void weir_words_finish(void);
void weir_streams_finish(void);
