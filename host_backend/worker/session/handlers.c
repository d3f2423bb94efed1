/* Functions that generated handlers need besides those of a session's objects: see
 * proto/wire/session_api.h. */
#include "host_backend/worker/device/order.h"
#include "host_backend/worker/session/objects.h"
#include "host_backend/worker/state/platform.h"
#include "host_backend/worker/state/session.h"

const struct weir_driver *weir_session_driver(struct weir_session *session)
{
    return session->driver;
}

CUresult weir_session_stream_begin(struct weir_session *session, uint64_t handle,
                                   CUstream *ret_stream)
{
    struct weir_host_stream *stream = weir_host_object_get(session, WEIR_KIND_STREAM, handle);

    WEIR_FAIL_IF(!stream, CUDA_ERROR_INVALID_HANDLE);
    WEIR_TRY(weir_session_enter(session, stream->o.device));
    weir_admission_stream_whole(session, stream);
    WEIR_TRY(weir_order_begin(session, stream, false));
    *ret_stream = stream->o.native;
    return CUDA_SUCCESS;
}

CUresult weir_session_device(struct weir_session *session, int32_t ordinal, CUdevice *ret_device)
{
    WEIR_FAIL_IF(ordinal < 0 || (uint32_t)ordinal >= session->platform->n_devices,
                 CUDA_ERROR_INVALID_DEVICE);
    *ret_device = session->platform->devices[ordinal].cu;
    return CUDA_SUCCESS;
}
