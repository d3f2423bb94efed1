/* Arrays: made in the current context, and destroyed with it. */
#include "guest_lib/memory.h"
#include "proto/guest_calls.h"
#include "proto/guest_hand.h"

CUresult weir_guest_cuArray3DCreate_v2(CUarray *pHandle,
                                       const CUDA_ARRAY3D_DESCRIPTOR *pAllocateArray)
{
    struct weir_op_array_create_in in = {0};
    struct weir_guest_ctx *ctx;
    WEIR_FAIL_IF(!pHandle || !pAllocateArray, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_ctx_current(&ctx));
    WEIR_TRY(weir_guest_object_add(WEIR_KIND_ARRAY, ctx, &in.a));
    in.c = ctx->handle;
    in.desc = *pAllocateArray;
    CUresult result = weir_call_array_create(weir_guest_channel(), &in, NULL);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        weir_mem_make_room();
        result = weir_call_array_create(weir_guest_channel(), &in, NULL);
    }
    if (result != CUDA_SUCCESS) {
        weir_guest_drop(WEIR_KIND_ARRAY, in.a);
        return result;
    }
    *pHandle = (CUarray)(uintptr_t)in.a;
    return CUDA_SUCCESS;
}

CUresult weir_guest_cuMipmappedArrayCreate(CUmipmappedArray *pHandle,
                                           const CUDA_ARRAY3D_DESCRIPTOR *pMipmappedArrayDesc,
                                           unsigned int numMipmapLevels)
{
    struct weir_op_mipmap_create_in in = {.levels = numMipmapLevels};
    struct weir_guest_ctx *ctx;
    WEIR_FAIL_IF(!pHandle || !pMipmappedArrayDesc, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_ctx_current(&ctx));
    WEIR_TRY(weir_guest_object_add(WEIR_KIND_MIPMAP, ctx, &in.m));
    in.c = ctx->handle;
    in.desc = *pMipmappedArrayDesc;
    CUresult result = weir_call_mipmap_create(weir_guest_channel(), &in, NULL);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        weir_mem_make_room();
        result = weir_call_mipmap_create(weir_guest_channel(), &in, NULL);
    }
    if (result != CUDA_SUCCESS) {
        weir_guest_drop(WEIR_KIND_MIPMAP, in.m);
        return result;
    }
    *pHandle = (CUmipmappedArray)(uintptr_t)in.m;
    return CUDA_SUCCESS;
}
