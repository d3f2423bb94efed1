#include "proto/common/capture_mode.h"

#include "base/status.h"

static __thread CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

CUresult weir_capture_mode_exchange(CUstreamCaptureMode *mode)
{
    WEIR_FAIL_IF(!mode || (unsigned int)*mode > CU_STREAM_CAPTURE_MODE_RELAXED,
                 CUDA_ERROR_INVALID_VALUE);
    CUstreamCaptureMode old = thread_mode;
    thread_mode = *mode;
    *mode = old;
    return CUDA_SUCCESS;
}

bool weir_capture_forbids(CUstreamCaptureMode mode, pthread_t begun)
{
    if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED || mode == CU_STREAM_CAPTURE_MODE_RELAXED) {
        return false;
    }
    return pthread_equal(begun, pthread_self()) ||
           (thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL && mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
}
