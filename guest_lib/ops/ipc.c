/*
 * cuIpc*: sharing between guest processes of one tenant. The 64 bytes are an unguessable name that
 * the host stores. The memory has the same address in all processes of a worker; processes of other
 * workers get a free address.
 */
#include "guest_lib/memory.h"
#include "proto/guest_calls.h"
#include "proto/guest_hand.h"

#include <string.h>

CUresult weir_guest_cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr)
{
    struct weir_mem mem;
    struct weir_guest_ctx *ctx;
    WEIR_FAIL_IF(!pHandle, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_ctx_current(&ctx));
    if (!weir_mem_find(dptr, &mem) || mem.kind != WEIR_MEM_DEVICE || mem.pool) {
        return CUDA_ERROR_INVALID_VALUE; /* memory of pools is shared by cuMemPoolExportPointer */
    }
    const struct weir_op_ipc_export_in in = {.base = mem.base, .bytes = mem.bytes};
    struct weir_op_ipc_export_out out;
    WEIR_TRY(weir_call_ipc_export(weir_guest_channel(), &in, &out));
    _Static_assert(sizeof(out.handle) == sizeof(pHandle->reserved), "64 bytes both");
    memcpy(pHandle->reserved, out.handle, sizeof(out.handle));
    return CUDA_SUCCESS;
}

/* The address is in use: either the same memory was opened before, which is counted, or it is the
 * program's own. */
static CUresult open_again(uint64_t base)
{
    struct weir_mem there;
    if (weir_mem_count_opens(base, 1)) {
        return CUDA_SUCCESS;
    }
    return weir_mem_find(base, &there) && there.kind == WEIR_MEM_DEVICE ? CUDA_ERROR_INVALID_CONTEXT
                                                                        : CUDA_ERROR_ALREADY_MAPPED;
}

CUresult weir_guest_cuIpcOpenMemHandle_v2(CUdeviceptr *pdptr, CUipcMemHandle handle,
                                          unsigned int Flags)
{
    struct weir_guest_ctx *ctx;
    WEIR_FAIL_IF(!pdptr || Flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_ctx_current(&ctx));
    struct weir_op_ipc_open_in in;
    struct weir_op_ipc_open_out out;
    memcpy(in.handle, handle.reserved, sizeof(in.handle));
    WEIR_TRY(weir_call_ipc_open(weir_guest_channel(), &in, &out));
    /* The memory belongs to the device where it lies; all devices that can reach it may use it. */
    const struct weir_mem mem = {
        .device = weir_guest_ordinal_of_host((int)out.device),
        .base = out.base,
        .bytes = out.bytes,
        .kind = WEIR_MEM_IMPORTED,
        .device_base = out.base,
        .ctx = ctx,
        .buffer_id = weir_guest_objects_next_id(),
        .owner = (void *)(uintptr_t)out.reference,
    };
    if (!weir_mem_insert(&mem)) {
        const struct weir_op_ipc_close_in close = {.reference = out.reference};
        (void)weir_call_ipc_close(weir_guest_channel(), &close, NULL);
        WEIR_TRY(open_again(out.base));
    }
    *pdptr = out.base;
    return CUDA_SUCCESS;
}

CUresult weir_guest_cuIpcCloseMemHandle(CUdeviceptr dptr)
{
    struct weir_mem mem;
    struct weir_guest_ctx *ctx;
    WEIR_TRY(weir_ctx_current(&ctx));
    if (!weir_mem_find(dptr, &mem) || mem.kind != WEIR_MEM_IMPORTED || mem.base != dptr ||
        weir_mem_is_pool_import(&mem)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = weir_ctx_synchronize(ctx);
    if (result == CUDA_SUCCESS && weir_mem_count_opens(dptr, -1)) {
        return CUDA_SUCCESS; /* the memory was opened more often */
    }
    if (result != CUDA_SUCCESS || !weir_mem_remove(dptr, 1u << WEIR_MEM_IMPORTED, &mem)) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    }
    const struct weir_op_ipc_close_in in = {.reference = (uintptr_t)mem.owner};
    return weir_call_ipc_close(weir_guest_channel(), &in, NULL);
}

CUresult weir_guest_cuIpcGetEventHandle(CUipcEventHandle *pHandle, CUevent event)
{
    struct weir_guest_event *found;
    WEIR_TRY(weir_event_get(event, &found));
    WEIR_FAIL_IF(!pHandle || !(found->flags & CU_EVENT_INTERPROCESS), CUDA_ERROR_INVALID_VALUE);
    weir_lock_acquire(&found->lock);
    found->exported = true;
    weir_lock_release(&found->lock);
    const struct weir_op_ipc_event_export_in in = {.e = found->handle};
    struct weir_op_ipc_event_export_out out;
    WEIR_TRY(weir_call_ipc_event_export(weir_guest_channel(), &in, &out));
    memcpy(pHandle->reserved, out.handle, sizeof(out.handle));
    return CUDA_SUCCESS;
}

CUresult weir_guest_cuIpcOpenEventHandle(CUevent *phEvent, CUipcEventHandle handle)
{
    struct weir_guest_ctx *ctx;
    struct weir_guest_event *event;
    WEIR_FAIL_IF(!phEvent, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_ctx_current(&ctx));
    WEIR_TRY(weir_event_new(ctx, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING, true, &event));
    struct weir_op_ipc_event_open_in in = {.c = ctx->handle, .e = event->handle};
    memcpy(in.handle, handle.reserved, sizeof(in.handle));
    CUresult result = weir_call_ipc_event_open(weir_guest_channel(), &in, NULL);
    if (result != CUDA_SUCCESS) {
        weir_event_drop(event, false);
        return result;
    }
    *phEvent = (CUevent)(uintptr_t)event->handle;
    return CUDA_SUCCESS;
}
