/*
 * Contexts: one primary object per device, made at cuInit, and those that the program creates.
 *
 * The device's real context is in the worker and shared. A guest's context has a legacy stream,
 * limits and context-local storage, and owns memory, modules and streams. Its structs are never
 * freed (there are few). So a thread's stack may hold handles of destroyed contexts, and gets
 * CUDA_ERROR_CONTEXT_IS_DESTROYED instead of a crash.
 */
#include "guest_lib/calls.h"
#include "guest_lib/entry.h"
#include "guest_lib/module.h"
#include "guest_lib/stream.h"
#include "proto/common/ctx_stack.h"
#include "proto/guest_calls.h"
#include <stdlib.h>
#include <string.h>

/* The last handle and its struct, which never changes: a hit needs no look-up and no lock. */
static __thread struct {
    CUcontext handle;
    struct weir_guest_ctx *ctx;
    uint32_t session;
} last_ctx;

struct weir_guest_ctx *weir_ctx_get(CUcontext handle)
{
    if (last_ctx.handle == handle && handle && last_ctx.session == weir_guest.session) {
        return last_ctx.ctx;
    }
    /* weir_guest_object_get() is not needed here, because a context is never freed. */
    struct weir_guest_ctx *ctx =
        weir_id_table_get(weir_guest.objects.tables[WEIR_KIND_CONTEXT], (uintptr_t)handle);
    if (ctx) {
        last_ctx.handle = handle;
        last_ctx.ctx = ctx;
        last_ctx.session = weir_guest.session;
    }
    return ctx;
}

bool weir_ctx_use(const struct weir_guest_ctx *ctx, uint32_t *ret_state)
{
    weir_calls_enter(ctx);
    uint32_t state = __atomic_load_n(&ctx->state, __ATOMIC_SEQ_CST);
    WEIR_GIVE(ret_state, state);
    return state == WEIR_CTX_ACTIVE;
}

CUresult weir_ctx_resolve(CUcontext handle, struct weir_guest_ctx **ret_ctx)
{
    if (!handle) {
        handle = weir_ctx_stack_current();
    }
    struct weir_guest_ctx *ctx = handle ? weir_ctx_get(handle) : NULL;
    WEIR_FAIL_IF(!ctx, CUDA_ERROR_INVALID_CONTEXT);
    uint32_t state;
    if (__builtin_expect(!weir_ctx_use(ctx, &state), 0)) {
        return state == WEIR_CTX_DESTROYED ? CUDA_ERROR_CONTEXT_IS_DESTROYED
                                           : CUDA_ERROR_INVALID_CONTEXT;
    }
    const struct weir_channel *channel = &weir_guest.channel;
    uint32_t broken = __atomic_load_n(&channel->dead, __ATOMIC_RELAXED);
    broken = broken ? broken : __atomic_load_n(&channel->header->sticky_error, __ATOMIC_RELAXED);
    if (__builtin_expect(broken != 0, 0)) {
        return (CUresult)broken;
    }
    *ret_ctx = ctx;
    return CUDA_SUCCESS;
}

CUresult weir_ctx_current(struct weir_guest_ctx **ret_ctx)
{
    return weir_ctx_resolve(NULL, ret_ctx);
}

CUresult weir_ctx_on_device(struct weir_guest_ctx *ctx, CUdevice device,
                            struct weir_guest_ctx **ret_ctx)
{
    if (ctx->device == device) {
        *ret_ctx = ctx;
        return CUDA_SUCCESS;
    }
    const struct weir_guest_ctx *primary = weir_guest.devices[device].primary;
    return weir_ctx_resolve((CUcontext)(uintptr_t)primary->handle, ret_ctx);
}

CUdevice weir_device_current(void)
{
    CUcontext current = weir_ctx_stack_current();
    const struct weir_guest_ctx *ctx = current ? weir_ctx_get(current) : NULL;
    return ctx ? ctx->device : 0;
}

CUresult weir_ctx_new(CUdevice device, bool primary, unsigned int flags,
                      struct weir_guest_ctx **ret_ctx)
{
    struct weir_guest_ctx *ctx = calloc(1, sizeof *ctx);
    WEIR_FAIL_IF(!ctx, CUDA_ERROR_OUT_OF_MEMORY);
    ctx->device = device;
    ctx->primary = primary;
    ctx->flags = flags;
    ctx->attached = 1;
    ctx->id = weir_guest_objects_next_id();
    ctx->api_version = 3020;
    weir_ctx_storage_init(&ctx->storage);
    CUresult result = weir_guest_object_add(WEIR_KIND_CONTEXT, ctx, &ctx->handle);
    if (result != CUDA_SUCCESS) {
        free(ctx);
        return result;
    }
    *ret_ctx = ctx;
    return CUDA_SUCCESS;
}

static bool any_was_active; /* atomic; a context of this process was active */

CUresult weir_ctx_activate(struct weir_guest_ctx *ctx)
{
    struct weir_guest_stream *legacy;
    WEIR_TRY(weir_guest_stream_new_legacy(ctx, &legacy));
    const struct weir_guest_device *device = &weir_guest.devices[ctx->device];
    struct weir_op_ctx_create_in in = {
        .c = ctx->handle,
        .legacy = legacy->handle,
        .legacy_word = legacy->word,
        .flags = ctx->flags,
        .device = device->host_ordinal,
    };
    /* The worker has a context on its first device only. It may have to open one on another device
     * now, for which memory may be short. It may also have to load libraries again, and the GPU may
     * be busy for too long. This call returns such errors, so that no later one does. */
    bool again = __atomic_exchange_n(&any_was_active, true, __ATOMIC_RELAXED);
    CUresult result;
    if (device->host_ordinal == 0 && !again) {
        result = weir_post_ctx_create(weir_guest_channel(), &in);
    } else {
        result = weir_call_ctx_create(weir_guest_channel(), &in, NULL);
        if (result != CUDA_SUCCESS) {
            weir_streams_forget(ctx);
            return result;
        }
    }
    ctx->limit_known = device->limits_known;
    memcpy(ctx->limit_values, device->limits, sizeof ctx->limit_values);
    __atomic_store_n(&ctx->peers, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&ctx->legacy, legacy, __ATOMIC_RELEASE);
    __atomic_add_fetch(&ctx->epoch, 1, __ATOMIC_RELAXED);
    __atomic_store_n(&ctx->state, WEIR_CTX_ACTIVE, __ATOMIC_RELEASE);
    return result;
}

CUresult weir_ctx_deactivate(struct weir_guest_ctx *ctx)
{
    CUcontext handle = (CUcontext)(uintptr_t)ctx->handle;
    weir_ctx_storage_clear(&ctx->storage, handle);
    CUresult waited = weir_streams_wait_all(ctx);
    CUresult settled = weir_guest_stream_settled(ctx);
    waited = waited != CUDA_SUCCESS ? waited : settled;
    __atomic_store_n(&ctx->state, ctx->primary ? WEIR_CTX_INACTIVE : WEIR_CTX_DESTROYED,
                     __ATOMIC_SEQ_CST);
    /* Wait for the end of other threads' calls in the context, and of the work that they posted. */
    weir_inside_wait(ctx, weir_calls_thread.inside);
    settled = weir_streams_wait_all(ctx);
    waited = waited != CUDA_SUCCESS ? waited : settled;
    weir_guest.tell.context_gone(ctx);
    weir_streams_forget(ctx);
    CUresult result = weir_call_ctx_destroy(
        weir_guest_channel(), &(struct weir_op_ctx_destroy_in){.c = ctx->handle}, NULL);
    return waited != CUDA_SUCCESS ? waited : result;
}

CUresult weir_ctx_synchronize(struct weir_guest_ctx *ctx)
{
    CUresult result = weir_streams_wait_all(ctx);
    CUresult settled = weir_guest_stream_settled(ctx);
    return weir_guest_result(result != CUDA_SUCCESS ? result : settled);
}
