/* Entries that need no device. */
#include "base/log.h"
#include "softgpu/driver/driver.h"

void weir_soft_unsupported(const char *symbol)
{
    weir_log_info("softgpu: %s is not supported", symbol);
}

CUresult weir_soft_cuFlushGPUDirectRDMAWrites(CUflushGPUDirectRDMAWritesTarget target,
                                              CUflushGPUDirectRDMAWritesScope scope)
{
    (void)target;
    (void)scope;
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    return CUDA_SUCCESS;
}
