/* Entry points that the guest answers by itself: logs, and features that no device here has. */
#include "guest_lib/entry.h"
#include "guest_lib/module.h"
#include "proto/guest_hand.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* ---------------------------------------------------------------- logs */

/* The driver's messages about failed calls stay in the worker: this process's log is empty. */
static uintptr_t next_callback; /* atomic; counts registrations */

CUresult weir_guest_cuLogsRegisterCallback(CUlogsCallback callbackFunc, void *userData,
                                           CUlogsCallbackHandle *callback_out)
{
    (void)userData;
    WEIR_FAIL_IF(!callbackFunc, CUDA_ERROR_INVALID_VALUE);
    uintptr_t name = 8 * __atomic_add_fetch(&next_callback, 1, __ATOMIC_RELAXED);
    WEIR_GIVE(callback_out, (CUlogsCallbackHandle)name);
    return CUDA_SUCCESS;
}

CUresult weir_guest_cuLogsUnregisterCallback(CUlogsCallbackHandle callback)
{
    uintptr_t last = 8 * __atomic_load_n(&next_callback, __ATOMIC_RELAXED);
    uintptr_t name = (uintptr_t)callback;
    return name && name % 8 == 0 && name <= last ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult weir_guest_cuLogsDumpToFile(CUlogIterator *iterator, const char *pathToFile,
                                     unsigned int flags)
{
    WEIR_GUEST_KEEP_ERRNO;
    (void)iterator;
    WEIR_FAIL_IF(!pathToFile || flags, CUDA_ERROR_INVALID_VALUE);
    int fd = open(pathToFile, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    WEIR_FAIL_IF(fd < 0, CUDA_ERROR_INVALID_VALUE);
    (void)close(fd);
    return CUDA_SUCCESS;
}

CUresult weir_guest_cuLogsDumpToMemory(CUlogIterator *iterator, char *buffer, size_t *size,
                                       unsigned int flags)
{
    (void)iterator;
    WEIR_FAIL_IF(!buffer || !size || flags, CUDA_ERROR_INVALID_VALUE);
    if (*size) {
        buffer[0] = '\0';
    }
    *size = 0;
    return CUDA_SUCCESS;
}

/* -------------------------------------------------------------- features that do not exist here */

CUresult weir_guest_cuCtxGetExecAffinity(CUexecAffinityParam *pExecAffinity,
                                         CUexecAffinityType type)
{
    struct weir_guest_ctx *ctx;
    WEIR_FAIL_IF(!pExecAffinity || type != CU_EXEC_AFFINITY_TYPE_SM_COUNT,
                 CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_ctx_current(&ctx));
    uint64_t sms = weir_guest.devices[ctx->device].affinity_sms;
    WEIR_FAIL_IF(sms == 0, CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
    memset(pExecAffinity, 0, sizeof *pExecAffinity);
    pExecAffinity->type = type;
    pExecAffinity->param.smCount.val = (unsigned int)sms;
    return CUDA_SUCCESS;
}
