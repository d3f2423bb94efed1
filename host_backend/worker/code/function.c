/* Finds a function for the session's current device: see modules.h. */
#include "host_backend/worker/code/modules.h"
#include "host_backend/worker/device/device_idle.h"
#include "host_backend/worker/state/hooks.h"
#include "host_backend/worker/state/session.h"

#include "base/clock.h"
#include <stdlib.h>

#define RUNS_WAIT_NS                                                                               \
    WEIR_NS_PER_S /* how long a call waits until nothing is stopped; then it is made anyway */

CUresult weir_function_here(struct weir_session *s, struct weir_host_function *f,
                            CUfunction *ret_native)
{
    if (!f->kernel || s->device == f->o.device) {
        *ret_native = f->o.native;
        return CUDA_SUCCESS;
    }
    if (!f->elsewhere) {
        f->elsewhere = calloc(WEIR_DEVICES_MAX, sizeof(CUfunction));
        WEIR_FAIL_IF(!f->elsewhere, CUDA_ERROR_OUT_OF_MEMORY);
    }
    CUfunction *native = &f->elsewhere[s->device];
    if (!*native) { /* cuKernelGetFunction() loads the library into the context */
        uint32_t idle;

        WEIR_TRY(weir_device_idle_begin_or_fail(s, &idle));
        CUresult result = s->driver->cuKernelGetFunction(native, f->kernel);
        weir_device_idle_end(s->worker, idle);
        WEIR_TRY(result);
    }
    *ret_native = *native;
    return CUDA_SUCCESS;
}

CUresult weir_function_load(struct weir_session *s, struct weir_host_function *f, CUfunction native)
{
    const struct weir_session_hooks *hooks = weir_worker_hooks(s->worker);
    uint32_t idle = 0;

    if ((f->loaded_on >> s->device & 1) != 0) {
        return CUDA_SUCCESS;
    }
    if (hooks) {
        (void)hooks->device_idle_begin(weir_worker_forms(s->worker), RUNS_WAIT_NS, &idle);
    }
    CUresult result =
        s->driver->cuFuncLoad ? s->driver->cuFuncLoad(native) : CUDA_ERROR_NOT_SUPPORTED;
    if (hooks) {
        hooks->device_idle_end(weir_worker_forms(s->worker), idle);
    }
    f->loaded_on |= result == CUDA_SUCCESS ? 1u << s->device : 0;
    return result;
}
