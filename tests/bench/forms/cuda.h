/* The driver under measurement: opened by path, so that none is needed to link. */
#pragma once

#include "proto/cuda_abi.h"

#include <stdbool.h>

#define WEIR_FORMS_CUDA(F)                                                                         \
    F(cuInit)                                                                                      \
    F(cuDriverGetVersion)                                                                          \
    F(cuDeviceGet)                                                                                 \
    F(cuDeviceGetName)                                                                             \
    F(cuDeviceGetAttribute)                                                                        \
    F(cuDevicePrimaryCtxRetain)                                                                    \
    F(cuCtxSetCurrent)                                                                             \
    F(cuModuleLoadDataEx)                                                                          \
    F(cuModuleUnload)                                                                              \
    F(cuModuleGetFunction)                                                                         \
    F(cuModuleGetGlobal_v2)                                                                        \
    F(cuFuncGetAttribute)                                                                          \
    F(cuFuncSetAttribute)                                                                          \
    F(cuOccupancyMaxActiveBlocksPerMultiprocessor)                                                 \
    F(cuLaunchKernel)                                                                              \
    F(cuStreamCreate)                                                                              \
    F(cuStreamQuery)                                                                               \
    F(cuStreamSynchronize)                                                                         \
    F(cuStreamWriteValue32_v2)                                                                     \
    F(cuStreamWaitValue32_v2)                                                                      \
    F(cuEventCreate)                                                                               \
    F(cuEventRecord)                                                                               \
    F(cuEventQuery)                                                                                \
    F(cuEventSynchronize)                                                                          \
    F(cuEventElapsedTime)                                                                          \
    F(cuMemAlloc_v2)                                                                               \
    F(cuMemFree_v2)                                                                                \
    F(cuMemHostAlloc)                                                                              \
    F(cuMemHostGetDevicePointer_v2)                                                                \
    F(cuMemcpyHtoD_v2)                                                                             \
    F(cuMemcpyDtoH_v2)                                                                             \
    F(cuMemcpyHtoDAsync_v2)                                                                        \
    F(cuMemcpyDtoDAsync_v2)                                                                        \
    F(cuMemsetD8Async)                                                                             \
    F(cuMemsetD32Async)

struct weir_forms_cuda {
#define F(name) __typeof__(name) *name;
    WEIR_FORMS_CUDA(F)
#undef F
};

extern struct weir_forms_cuda cu;

/** Open the driver. False after a message. */
bool weir_forms_cuda_load(const char *path);

/** Whether a call succeeded; else keeps "CALL gave N" as the reason of the failure. */
bool weir_forms_ok(CUresult result, const char *call);

/** Keep a reason, in printf's form, unless one is kept already. Always false. */
bool weir_forms_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/** The reason kept, and forget it; "" for none. Valid until the next one. */
const char *weir_forms_reason(void);

/** Whether an error was seen after which the context is of no more use. */
bool weir_forms_is_broken(void);

#define WEIR_FORMS_TRY(call)                                                                       \
    do {                                                                                           \
        if (!weir_forms_ok((call), #call)) {                                                       \
            return false;                                                                          \
        }                                                                                          \
    } while (0)
