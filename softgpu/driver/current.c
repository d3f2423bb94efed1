/* The context that a call means: the one that it names, or the thread's current one. */
#include "proto/common/ctx_stack.h"
#include "softgpu/driver/forward.h"

struct weir_soft_ctx *weir_soft_ctx_of(CUcontext handle)
{
    struct weir_soft_ctx *ctx = weir_soft_object_find(WEIR_SOFT_CONTEXT, handle);
    const struct weir_soft_green *green =
        !ctx ? weir_soft_object_find(WEIR_SOFT_GREEN, handle) : NULL;
    return green ? green->object.ctx : ctx;
}

CUresult weir_soft_ctx_find(CUcontext handle, struct weir_soft_ctx **ret_ctx)
{
    if (!handle) {
        return weir_soft_ctx_current(ret_ctx);
    }
    struct weir_soft_ctx *ctx = weir_soft_ctx_of(handle);
    WEIR_FAIL_IF(!ctx, CUDA_ERROR_INVALID_CONTEXT);
    WEIR_FAIL_IF(!ctx->active, CUDA_ERROR_CONTEXT_IS_DESTROYED);
    *ret_ctx = ctx;
    return ctx->sticky;
}

struct weir_soft_green *weir_soft_green_current(void)
{
    return weir_soft_object_find(WEIR_SOFT_GREEN, weir_ctx_stack_current());
}

CUresult weir_soft_ctx_current(struct weir_soft_ctx **ret_ctx)
{
    CUcontext handle = weir_ctx_stack_current();
    WEIR_FAIL_IF(!handle, CUDA_ERROR_INVALID_CONTEXT);
    struct weir_soft_ctx *ctx = weir_soft_ctx_of(handle);
    WEIR_FAIL_IF(!ctx, CUDA_ERROR_CONTEXT_IS_DESTROYED);
    WEIR_FAIL_IF(!ctx->active, CUDA_ERROR_INVALID_CONTEXT);
    *ret_ctx = ctx;
    return ctx->sticky;
}

CUresult weir_soft_ctx_any(CUcontext handle, struct weir_soft_ctx **ret_ctx)
{
    CUcontext wanted = handle ? handle : weir_ctx_stack_current();
    WEIR_FAIL_IF(!wanted, CUDA_ERROR_INVALID_CONTEXT);
    *ret_ctx = weir_soft_object_find(WEIR_SOFT_CONTEXT, wanted);
    if (!*ret_ctx) {
        return handle ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_CONTEXT_IS_DESTROYED;
    }
    return CUDA_SUCCESS;
}
