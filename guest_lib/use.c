/* Handles of the program, as the host knows them: what generated entry points name. */
#include "guest_lib/stream.h"
#include "proto/wire/guest_api.h"

static CUresult use_stream(const void *value, uint64_t *ret_handle)
{
    struct weir_guest_stream *stream;
    WEIR_TRY(weir_guest_stream_get(value ? (CUstream)(uintptr_t)value : CU_STREAM_LEGACY, &stream));
    *ret_handle = stream->handle;
    return CUDA_SUCCESS;
}

CUresult weir_guest_use(enum weir_kind kind, const void *value, uint64_t *ret_handle)
{
    if (kind == WEIR_KIND_STREAM) {
        return use_stream(value, ret_handle);
    }
    if (kind == WEIR_KIND_CONTEXT) {
        struct weir_guest_ctx *ctx;
        CUresult result = weir_ctx_resolve((CUcontext)(uintptr_t)value, &ctx);
        *ret_handle = result == CUDA_SUCCESS ? ctx->handle : 0;
        return result;
    }
    void *object = weir_guest_object_get(kind, value);
    WEIR_FAIL_IF(!object, CUDA_ERROR_INVALID_HANDLE);
    if (kind == WEIR_KIND_EVENT) { /* generated functions name events only for nodes of graphs */
        weir_event_use_in_graph(object);
    }
    *ret_handle = (uintptr_t)value;
    return CUDA_SUCCESS;
}
