#include "host_backend/worker/session/capture.h"

#include "host_backend/worker/device/device_idle.h"
#include "host_backend/worker/session/book.h"
#include "host_backend/worker/session/graph_nesting.h"
#include "host_backend/worker/session/objects.h"
#include "host_backend/worker/state/session.h"

CUresult weir_capture_read(const struct weir_session *session,
                           const struct weir_host_stream *stream, struct weir_capture *ret_capture)
{
    struct weir_session_book *book = session->devices.book;
    const struct weir_driver *d = session->driver;
    struct weir_capture *c = ret_capture;

    *c = (struct weir_capture){.status = CU_STREAM_CAPTURE_STATUS_NONE};
    WEIR_TRY(weir_driver_has(d, cuStreamGetCaptureInfo_v3)
                 ? d->cuStreamGetCaptureInfo_v3(stream->o.native, &c->status, &c->id, &c->graph,
                                                &c->nodes, &c->edges, &c->n)
                 : d->cuStreamGetCaptureInfo_v2(stream->o.native, &c->status, &c->id, &c->graph,
                                                &c->nodes, &c->n));
    if (book && c->id != 0) { /* another driver may have used the number */
        c->id += book->capture_base;
        book->capture_last = WEIR_MAX(book->capture_last, c->id);
    }
    return CUDA_SUCCESS;
}

CUresult weir_capture_graph(const struct weir_session *session,
                            const struct weir_host_stream *stream, CUgraph *ret_graph)
{
    struct weir_capture c;

    WEIR_TRY(weir_capture_read(session, stream, &c));
    WEIR_FAIL_IF(c.status != CU_STREAM_CAPTURE_STATUS_ACTIVE, CUDA_ERROR_ILLEGAL_STATE);
    *ret_graph = c.graph;
    return CUDA_SUCCESS;
}

/* Does a node lie within the graph? NVIDIA's driver refuses to destroy the captured graph itself,
 * but not graphs around it. */
static bool is_within(const struct weir_object *graph, const struct weir_object *object)
{
    const struct weir_object *o = graph;

    if (object->kind == WEIR_KIND_NODE && object->owner == graph) {
        return true;
    }
    while (o && o != object) {
        o = o->owner;
    }
    return o != NULL;
}

bool weir_capture_within(struct weir_session *session, const struct weir_object *object)
{
    const struct weir_host_ctx *ctx =
        session->n_captures != 0 ? weir_session_contexts(session) : NULL;

    for (; ctx; ctx = ctx->next) {
        for (const struct weir_host_stream *s = ctx->streams; s; s = s->next) {
            const struct weir_object *graph =
                s->capturing ? weir_host_object_get(session, WEIR_KIND_GRAPH, s->capture_graph)
                             : NULL;

            if (graph && is_within(graph, object)) {
                return true;
            }
        }
    }
    return false;
}

void weir_capture_abandon(struct weir_session *session, struct weir_host_stream *stream)
{
    struct weir_object *graph =
        weir_host_object_get(session, WEIR_KIND_GRAPH, stream->capture_graph);
    CUgraph native = NULL;

    (void)session->driver->cuStreamEndCapture(stream->o.native, &native);
    weir_session_capture_end(session, stream);
    if (stream->capture_given) {
        if (graph) {
            weir_graph_nest_capture_end(session, stream, graph);
        }
        return;
    }
    if (native) {
        (void)session->driver->cuGraphDestroy(native);
    }
    if (graph) {
        weir_host_object_forget(session, graph);
    }
}
