/*
 * Finds the struct of a program's CUstream, and keeps the per-thread default streams.
 *
 * CU_STREAM_PER_THREAD is an ordinary blocking stream that belongs to one guest thread and one
 * context. It is made when the thread first uses it and destroyed when the thread ends.
 */
#include "guest_lib/calls.h"
#include "guest_lib/stream.h"
#include <pthread.h>
#include <stdlib.h>

struct own_stream {
    struct own_stream *next;
    struct weir_guest_ctx *ctx;
    struct weir_guest_stream *stream;
    uint64_t stream_id; /* if it differs, the context was reset, and the stream is gone */
    uint32_t session;
};

static __thread struct own_stream *own_streams;
static pthread_key_t own_key;
static pthread_once_t own_once = PTHREAD_ONCE_INIT;
static bool own_key_made;

static bool is_alive(const struct own_stream *own)
{
    return own->session == weir_guest.session &&
           __atomic_load_n(&own->stream->id, __ATOMIC_ACQUIRE) == own->stream_id;
}

/* Destroy the thread's own streams. A context that is being destroyed destroys its streams
 * itself. */
static void drop_own_streams(void *list)
{
    bool ready = weir_guest_phase_now() == WEIR_PHASE_READY;
    for (struct own_stream *own = list; own;) {
        struct own_stream *next = own->next;
        if (ready && weir_ctx_use(own->ctx, NULL) && is_alive(own)) {
            CUresult result = weir_guest_stream_drop(own->stream);
            (void)result; /* the thread is ending, so it ignores errors */
        }
        weir_calls_leave(&weir_calls_thread);
        free(own);
        own = next;
    }
    own_streams = NULL;
}

static void make_key(void)
{
    own_key_made = pthread_key_create(&own_key, drop_own_streams) == 0;
}

static CUresult new_own_stream(struct weir_guest_ctx *ctx, struct own_stream *slot)
{
    WEIR_TRY(weir_guest_stream_new(ctx, 0, 0, &slot->stream));
    slot->ctx = ctx;
    slot->stream->per_thread = true;
    slot->stream_id = slot->stream->id;
    slot->session = weir_guest.session;
    return CUDA_SUCCESS;
}

static CUresult per_thread_stream(struct weir_guest_ctx *ctx, struct weir_guest_stream **ret_stream)
{
    struct own_stream *own = WEIR_LINKED(s, own_streams, s->ctx == ctx);
    if (own && is_alive(own)) {
        *ret_stream = own->stream;
        return CUDA_SUCCESS;
    }
    if (!own) {
        own = calloc(1, sizeof *own);
        WEIR_FAIL_IF(!own, CUDA_ERROR_OUT_OF_MEMORY);
        CUresult result = new_own_stream(ctx, own);
        if (result != CUDA_SUCCESS) {
            free(own);
            return result;
        }
        WEIR_PUSH(own_streams, own);
        pthread_once(&own_once, make_key);
        if (own_key_made) {
            pthread_setspecific(own_key, own_streams);
        }
    } else {
        WEIR_TRY(new_own_stream(ctx, own));
    }
    *ret_stream = own->stream;
    return CUDA_SUCCESS;
}

bool weir_guest_stream_find(CUstream handle, struct weir_guest_stream **ret_stream)
{
    struct weir_guest_stream *stream = weir_guest_object_get(WEIR_KIND_STREAM, handle);
    WEIR_FAIL_IF(!stream || !weir_ctx_use(stream->ctx, NULL), false);
    *ret_stream = stream;
    return true;
}

CUresult weir_guest_stream_get(CUstream handle, struct weir_guest_stream **ret_stream)
{
    struct weir_guest_ctx *ctx;
    WEIR_TRY(weir_ctx_current(&ctx));
    if (handle == CU_STREAM_LEGACY) {
        *ret_stream = __atomic_load_n(&ctx->legacy, __ATOMIC_ACQUIRE);
        return *ret_stream ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
    }
    if (handle == CU_STREAM_PER_THREAD) {
        return per_thread_stream(ctx, ret_stream);
    }
    return weir_guest_stream_find(handle, ret_stream) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
