/* Handles for other processes of the tenant: 64 bytes that name an allocation in a chunk, or an
 * event. */
#include "host_backend/worker/memory/ipc.h"
#include "host_backend/worker/memory/chunk.h"
#include "host_backend/worker/ops/ops.h"

#include <string.h>

CUresult weir_host_ipc_export(struct weir_session *s, const struct weir_op_ipc_export_in *in,
                              struct weir_op_ipc_export_out *out)
{
    struct weir_host_chunk *chunk = weir_ops_granted(s, in->base, in->bytes);
    struct weir_ipc_handle handle = {.bytes = in->bytes};

    WEIR_FAIL_IF(!chunk, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_chunk_share(chunk));
    s->devices.has_peers = true;
    handle.offset = in->base - chunk->base;
    memcpy(handle.key, chunk->key, sizeof handle.key);
    memcpy(out->handle, &handle, sizeof out->handle);
    return CUDA_SUCCESS;
}

CUresult weir_host_ipc_event_export(struct weir_session *s,
                                    const struct weir_op_ipc_event_export_in *in,
                                    struct weir_op_ipc_event_export_out *out)
{
    const struct weir_host_event *e = weir_ops_event(s, in->e);
    struct weir_ipc_handle handle = {0};

    WEIR_FAIL_IF(!e, CUDA_ERROR_INVALID_HANDLE);
    WEIR_FAIL_IF(!e->shared, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_ipc_event_share(s, e->shared));
    memcpy(handle.key, e->shared->key, sizeof handle.key);
    memcpy(out->handle, &handle, sizeof out->handle);
    return CUDA_SUCCESS;
}

CUresult weir_host_ipc_event_open(struct weir_session *s,
                                  const struct weir_op_ipc_event_open_in *in)
{
    struct weir_host_ctx *ctx = weir_ops_ctx(s, in->c);
    struct weir_ipc_handle handle;
    struct weir_ipc_event *shared;
    struct weir_object *o;

    WEIR_FAIL_IF(!ctx, CUDA_ERROR_INVALID_CONTEXT);
    memcpy(&handle, in->handle, sizeof handle);
    WEIR_TRY(weir_ipc_event_open(s, handle.key, &shared));
    CUresult result = weir_host_object_create(s, WEIR_KIND_EVENT, sizeof(struct weir_host_event),
                                              in->e, shared->native, ctx, &o);
    if (result != CUDA_SUCCESS) {
        (void)weir_ipc_event_put(s, shared);
        return result;
    }
    ((struct weir_host_event *)o)->shared = shared;
    ((struct weir_host_event *)o)->flags = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING;
    return CUDA_SUCCESS;
}
