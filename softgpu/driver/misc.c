/* Entries that need no state. */
#include "softgpu/driver/driver.h"

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
    return CUDA_ERROR_PROFILER_DISABLED;
}

CUresult weir_soft_cuFlushGPUDirectRDMAWrites(CUflushGPUDirectRDMAWritesTarget target,
                                              CUflushGPUDirectRDMAWritesScope scope)
{
    (void)target;
    (void)scope;
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    return CUDA_SUCCESS;
}
