/* The context stack, contexts that programs create, and their settings. */
#include "guest_lib/ops/forward.h"
#include "proto/common/ctx_stack.h"
#include "proto/guest_calls.h"
#include "proto/guest_hand.h"

static CUcontext handle_of(const struct weir_guest_ctx *ctx)
{
    return (CUcontext)(uintptr_t)ctx->handle;
}

/* May the context be made current? An inactive primary context may: cudart does so before retaining
 * it. */
static CUresult check_settable(CUcontext handle)
{
    const struct weir_guest_ctx *ctx = weir_ctx_get(handle);
    WEIR_FAIL_IF(!ctx, CUDA_ERROR_INVALID_CONTEXT);
    return __atomic_load_n(&ctx->state, __ATOMIC_ACQUIRE) == WEIR_CTX_DESTROYED
               ? CUDA_ERROR_CONTEXT_IS_DESTROYED
               : CUDA_SUCCESS;
}

CUresult weir_guest_device_current(const struct weir_guest_device **ret_device)
{
    struct weir_guest_ctx *ctx;
    WEIR_TRY(weir_ctx_current(&ctx));
    *ret_device = &weir_guest.devices[ctx->device];
    return CUDA_SUCCESS;
}

bool weir_guest_ctx_flags_valid(unsigned int flags)
{
    return !(flags & ~(unsigned int)CU_CTX_FLAGS_MASK) &&
           (flags & CU_CTX_SCHED_MASK) <= CU_CTX_SCHED_BLOCKING_SYNC;
}

CUresult weir_guest_cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice dev)
{
    WEIR_FAIL_IF(!pctx || !weir_guest_ctx_flags_valid(flags), CUDA_ERROR_INVALID_VALUE);
    WEIR_FAIL_IF(!weir_guest_device_get(dev), CUDA_ERROR_INVALID_DEVICE);
    struct weir_guest_ctx *ctx;
    WEIR_TRY(weir_ctx_new(dev, false, flags, &ctx));
    WEIR_TRY(weir_ctx_activate(ctx));
    WEIR_FAIL_IF(weir_ctx_stack_push(handle_of(ctx)) != WEIR_OK, CUDA_ERROR_OUT_OF_MEMORY);
    *pctx = handle_of(ctx);
    return CUDA_SUCCESS;
}

CUresult weir_guest_cuCtxDestroy_v2(CUcontext ctx)
{
    struct weir_guest_ctx *found = weir_ctx_get(ctx);
    WEIR_FAIL_IF(!found || found->primary, CUDA_ERROR_INVALID_CONTEXT);
    WEIR_FAIL_IF(__atomic_exchange_n(&found->going, true, __ATOMIC_RELAXED),
                 CUDA_ERROR_CONTEXT_IS_DESTROYED); /* another thread destroys it, or is about to */
    CUresult result = weir_ctx_deactivate(found);
    if (weir_ctx_stack_current() == ctx) {
        weir_ctx_stack_set(NULL);
    }
    return result;
}

/* Deprecated, but PyCUDA releases each context by cuCtxDetach. */
CUresult weir_guest_cuCtxAttach(CUcontext *pctx, unsigned int flags)
{
    struct weir_guest_ctx *ctx;
    WEIR_FAIL_IF(!pctx || flags, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_ctx_current(&ctx));
    __atomic_fetch_add(&ctx->attached, 1, __ATOMIC_RELAXED);
    *pctx = handle_of(ctx);
    return CUDA_SUCCESS;
}

CUresult weir_guest_cuCtxDetach(CUcontext ctx)
{
    struct weir_guest_ctx *found = weir_ctx_get(ctx);
    WEIR_FAIL_IF(!found || found->primary || weir_ctx_stack_current() != ctx,
                 CUDA_ERROR_INVALID_CONTEXT);
    return __atomic_fetch_sub(&found->attached, 1, __ATOMIC_RELAXED) == 1
               ? weir_guest_cuCtxDestroy_v2(ctx)
               : CUDA_SUCCESS;
}

CUresult weir_guest_cuCtxPushCurrent_v2(CUcontext ctx)
{
    WEIR_TRY(check_settable(ctx));
    return weir_ctx_stack_push(ctx) == WEIR_OK ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult weir_guest_cuCtxPopCurrent_v2(CUcontext *pctx)
{
    return weir_ctx_stack_pop(pctx) == WEIR_OK ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult weir_guest_cuCtxSetCurrent(CUcontext ctx)
{
    WEIR_TRY(ctx ? check_settable(ctx) : CUDA_SUCCESS);
    weir_ctx_stack_set(ctx);
    return CUDA_SUCCESS;
}

CUresult weir_guest_ctx_any(CUcontext handle, struct weir_guest_ctx **ret_ctx)
{
    handle = handle ? handle : weir_ctx_stack_current();
    *ret_ctx = handle ? weir_ctx_get(handle) : NULL;
    WEIR_FAIL_IF(!*ret_ctx, CUDA_ERROR_INVALID_CONTEXT);
    return __atomic_load_n(&(*ret_ctx)->state, __ATOMIC_ACQUIRE) == WEIR_CTX_DESTROYED
               ? CUDA_ERROR_CONTEXT_IS_DESTROYED
               : CUDA_SUCCESS;
}

CUresult weir_guest_cuCtxSynchronize_v2(CUcontext ctx)
{
    struct weir_guest_ctx *found;
    CUresult result = weir_ctx_resolve(ctx, &found);
    if (result == CUDA_SUCCESS && weir_guest_capturing()) {
        result = weir_guest_refuse_unsafe(found);
    }
    return result == CUDA_SUCCESS ? weir_ctx_synchronize(found) : result;
}

static void remember_limit(struct weir_guest_ctx *ctx, CUlimit limit, uint64_t value)
{
    if ((unsigned int)limit < WEIR_CTX_LIMITS) {
        weir_lock_acquire(&ctx->lock);
        ctx->limit_values[limit] = value;
        ctx->limit_known |= 1u << limit;
        weir_lock_release(&ctx->lock);
    }
}

static bool recall_limit(struct weir_guest_ctx *ctx, CUlimit limit, size_t *ret_value)
{
    bool known = false;
    if ((unsigned int)limit < WEIR_CTX_LIMITS) {
        weir_lock_acquire(&ctx->lock);
        known = ctx->limit_known >> limit & 1;
        if (known) {
            *ret_value = ctx->limit_values[limit];
        }
        weir_lock_release(&ctx->lock);
    }
    return known;
}

CUresult weir_guest_cuCtxSetLimit(CUlimit limit, size_t value)
{
    struct weir_guest_ctx *ctx;
    WEIR_TRY(weir_ctx_current(&ctx));
    struct weir_op_ctx_limit_set_out out = {0};
    WEIR_TRY(weir_call_ctx_limit_set(
        weir_guest_channel(),
        &(struct weir_op_ctx_limit_set_in){.c = ctx->handle, .limit = limit, .value = value},
        &out));
    remember_limit(ctx, limit, out.value);
    return CUDA_SUCCESS;
}

CUresult weir_guest_cuCtxGetLimit(size_t *pvalue, CUlimit limit)
{
    struct weir_guest_ctx *ctx;
    WEIR_TRY(weir_ctx_current(&ctx));
    WEIR_FAIL_IF(!pvalue, CUDA_ERROR_INVALID_VALUE);
    if (recall_limit(ctx, limit, pvalue)) {
        return CUDA_SUCCESS;
    }
    struct weir_op_ctx_limit_get_out out = {0};
    WEIR_TRY(weir_call_ctx_limit_get(
        weir_guest_channel(), &(struct weir_op_ctx_limit_get_in){.c = ctx->handle, .limit = limit},
        &out));
    remember_limit(ctx, limit, out.value);
    *pvalue = out.value;
    return CUDA_SUCCESS;
}

/*
 * The host gives all devices access to every chunk (docs/design/devices.md), so a context only
 * remembers what the program has asked for.
 */
CUresult weir_guest_cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags)
{
    struct weir_guest_ctx *ctx, *peer;
    WEIR_TRY(weir_ctx_current(&ctx));
    WEIR_TRY(weir_ctx_resolve(peerContext, &peer));
    WEIR_FAIL_IF(Flags || !peerContext, CUDA_ERROR_INVALID_VALUE);
    WEIR_FAIL_IF(ctx->device == peer->device, CUDA_ERROR_INVALID_CONTEXT);
    WEIR_FAIL_IF(!weir_guest_can_access(ctx->device, peer->device),
                 CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    uint32_t bit = 1u << peer->device;
    uint32_t before = __atomic_fetch_or(&ctx->peers, bit, __ATOMIC_RELAXED);
    return before & bit ? CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED : CUDA_SUCCESS;
}

CUresult weir_guest_cuCtxDisablePeerAccess(CUcontext peerContext)
{
    struct weir_guest_ctx *ctx;
    WEIR_TRY(weir_ctx_current(&ctx));
    const struct weir_guest_ctx *peer = weir_ctx_get(peerContext);
    WEIR_FAIL_IF(!peer, CUDA_ERROR_INVALID_CONTEXT);
    uint32_t bit = 1u << peer->device;
    uint32_t before = __atomic_fetch_and(&ctx->peers, ~bit, __ATOMIC_RELAXED);
    return before & bit ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}
