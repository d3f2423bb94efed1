/* Entries that need no device. */
#include "base/log.h"
#include "proto/common/procaddr.h"
#include "proto/errors.h"
#include "softgpu/driver/driver.h"

CUresult weir_soft_cuGetErrorName(CUresult error, const char **text)
{
    if (text == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *text = weir_cuda_error_name(error);
    return *text != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult weir_soft_cuGetErrorString(CUresult error, const char **text)
{
    if (text == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *text = weir_cuda_error_string(error);
    return *text != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult weir_soft_cuGetProcAddress(const char *name, void **pfn, int version, cuuint64_t flags)
{
    return weir_procaddr_get_v1(name, pfn, version, flags);
}

CUresult weir_soft_cuGetProcAddress_v2(const char *name, void **pfn, int version, cuuint64_t flags,
                                       CUdriverProcAddressQueryResult *status)
{
    return weir_procaddr_get(name, pfn, version, flags, status);
}

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

CUresult weir_soft_cuProfilerStart(void)
{
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuProfilerStop(void)
{
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuProfilerInitialize(const char *config, const char *output, CUoutput_mode mode)
{
    (void)config;
    (void)output;
    (void)mode;
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuFlushGPUDirectRDMAWrites(CUflushGPUDirectRDMAWritesTarget target,
                                              CUflushGPUDirectRDMAWritesScope scope)
{
    (void)target;
    (void)scope;
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    return CUDA_SUCCESS;
}
