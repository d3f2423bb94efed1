/* The devices as a session uses them: see session_devices.h. */
#include "host_backend/worker/session/session_devices.h"
#include "host_backend/worker/session/contexts.h"

CUresult weir_session_switch(struct weir_session *session, uint32_t device)
{
    CUresult result;

    if ((session->devices.used >> device & 1) == 0) {
        WEIR_TRY(weir_worker_device_open(session->worker, device));
        session->devices.used |= 1u << device;
        session->devices.first_use(session, device);
    }
    result = session->driver->cuCtxSetCurrent(session->platform->devices[device].context);
    if (result == CUDA_SUCCESS) {
        session->device = device;
    }
    return result;
}

CUresult weir_session_work_stream(struct weir_session *session, CUstream *ret_stream)
{
    CUstream *stream = &session->devices.work_streams[session->device];
    CUresult result = CUDA_SUCCESS;

    if (*stream == NULL) {
        result = session->driver->cuStreamCreate(stream, CU_STREAM_NON_BLOCKING);
    }
    *ret_stream = *stream;
    return result;
}

void weir_session_work_streams_end(struct weir_session *session)
{
    const struct weir_driver *d = session->driver;

    for (uint32_t i = 0; i < WEIR_DEVICES_MAX; i++) {
        CUstream stream = session->devices.work_streams[i];

        if (stream != NULL && weir_session_enter(session, i) == CUDA_SUCCESS) {
            (void)d->cuStreamSynchronize(stream);
            (void)d->cuStreamDestroy_v2(stream);
        }
    }
}
