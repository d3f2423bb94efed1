/* Entries that need no device. */
#include "base/log.h"
#include "softgpu/driver/driver.h"

void weir_soft_unsupported(const char *symbol)
{
    weir_log_info("softgpu: %s is not supported", symbol);
}

/* ------------------------------------------------------------------ core dumps */

static struct weir_coredump coredump;

CUresult weir_soft_cuCoredumpSetAttribute(CUcoredumpSettings attrib, void *value, size_t *size)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_ctx *ctx;
    WEIR_SOFT_TRY(weir_soft_ctx_current(&ctx));
    return weir_coredump_set(&ctx->coredump, attrib, value, size);
}

CUresult weir_soft_cuCoredumpSetAttributeGlobal(CUcoredumpSettings attrib, void *value,
                                                size_t *size)
{
    WEIR_SOFT_LOCKED();
    return weir_coredump_set(&coredump, attrib, value, size);
}

CUresult weir_soft_cuCoredumpGetAttribute(CUcoredumpSettings attrib, void *value, size_t *size)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_ctx *ctx;
    WEIR_SOFT_TRY(weir_soft_ctx_current(&ctx));
    return weir_coredump_get(&ctx->coredump, &coredump, attrib, value, size);
}

CUresult weir_soft_cuCoredumpGetAttributeGlobal(CUcoredumpSettings attrib, void *value,
                                                size_t *size)
{
    WEIR_SOFT_LOCKED();
    return weir_coredump_get(NULL, &coredump, attrib, value, size);
}

CUresult weir_soft_cuFlushGPUDirectRDMAWrites(CUflushGPUDirectRDMAWritesTarget target,
                                              CUflushGPUDirectRDMAWritesScope scope)
{
    (void)target;
    (void)scope;
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    return CUDA_SUCCESS;
}
