#include "host_backend/worker/session/capture.h"

#include "host_backend/worker/session/objects.h"
#include "host_backend/worker/session/session.h"

CUresult weir_capture_read(const struct weir_session *session,
                           const struct weir_host_stream *stream, struct weir_capture *ret_capture)
{
    const struct weir_driver *d = session->driver;
    struct weir_capture *c = ret_capture;

    *c = (struct weir_capture){.status = CU_STREAM_CAPTURE_STATUS_NONE};
    return weir_driver_has(d, cuStreamGetCaptureInfo_v3)
               ? d->cuStreamGetCaptureInfo_v3(stream->o.native, &c->status, &c->id, &c->graph,
                                              &c->nodes, &c->edges, &c->n)
               : d->cuStreamGetCaptureInfo_v2(stream->o.native, &c->status, &c->id, &c->graph,
                                              &c->nodes, &c->n);
}

CUresult weir_capture_graph(const struct weir_session *session,
                            const struct weir_host_stream *stream, CUgraph *ret_graph)
{
    struct weir_capture c;

    WEIR_TRY(weir_capture_read(session, stream, &c));
    if (c.status != CU_STREAM_CAPTURE_STATUS_ACTIVE) {
        return CUDA_ERROR_ILLEGAL_STATE;
    }
    *ret_graph = c.graph;
    return CUDA_SUCCESS;
}
