/* Executes the places of grants: see place.h. */
#include "host_backend/worker/device/place.h"

#include "base/clock.h"
#include "base/log.h"
#include "host_backend/worker/device/device_idle.h"
#include "host_backend/worker/device/gates.h"
#include "host_backend/worker/device/streams.h"
#include "host_backend/worker/state/worker.h"
#include "proto/driver_table.h"

/* Other tenants' work in flight takes some milliseconds. Twenty failed attempts each second cost 2
 * % of the device's time, for a program whose kernels wait for the part. */
#define DRAIN_NS   (20 * WEIR_NS_PER_MS)
#define BUSY_NS    WEIR_NS_PER_S
#define REFUSED_NS (60 * WEIR_NS_PER_S) /* until a driver that refused is asked again */

static struct weir_device_gate *gate_of(const struct weir_session *s)
{
    return s->worker->gates[s->device];
}

bool weir_place_has_parts(const struct weir_session *session)
{
    return gate_of(session) && gate_of(session)->parts;
}

#define STEP 8u /* step of weir_sched_room_sms(): other parts of large GPUs are larger */

bool weir_place_is_part(const struct weir_session *session, const struct weir_sched_place *place)
{
    const struct weir_session *s = session;
    uint32_t sms = weir_worker_sms(s->worker, s->device);
    uint32_t border = place->sm_first != 0 ? place->sm_first : place->sm_count;
    uint32_t step = gate_of(s)->part_step;

    return place->block_limit == 0 && border != 0 && border < sms &&
           border % (WEIR_MIN(step, STEP)) == 0 &&
           (place->sm_first == 0 || place->sm_first + place->sm_count == sms);
}

static bool has_runs(struct weir_session *s, const struct weir_host_stream *stream)
{
    const struct weir_session_hooks *hooks = weir_worker_hooks(s->worker);

    return hooks && hooks->has_runs(s, stream);
}

/* Give the stream all SMs again, and destroy its second stream. */
static void leave_part(struct weir_session *s, struct weir_host_stream *stream)
{
    const struct weir_session_hooks *hooks = weir_worker_hooks(s->worker);

    if (hooks) {
        hooks->stream_gone(s, stream);
    }
    weir_part_stream_gone(s->driver, stream);
    if (hooks) { /* its own work may not have ended */
        hooks->stream_given(s, stream, false);
    }
}

/* ---------------------------------------------------------------- making a part */

/* Give all streams all SMs. An event of the primary context shows the end of work in its own
 * streams. */
static void all_streams_whole(struct weir_session *s)
{
    for (struct weir_host_ctx *ctx = weir_session_contexts(s); ctx; ctx = ctx->next) {
        for (struct weir_host_stream *stream = ctx->streams; stream; stream = stream->next) {
            if (stream->o.device == s->device) {
                weir_place_stream(s, stream, NULL);
            }
        }
    }
}

/* Stop using a part. The session's streams have all SMs again, and the device is idle. */
static void let_go(struct weir_session *s, const struct weir_part *part)
{
    for (struct weir_host_ctx *ctx = weir_session_contexts(s); ctx; ctx = ctx->next) {
        for (struct weir_host_stream *stream = ctx->streams; stream; stream = stream->next) {
            if (stream->part.part == part && !stream->part.in) {
                leave_part(s, stream);
            }
        }
    }
    for (struct weir_placed_graph *graph = s->devices.placed, *next; graph; graph = next) {
        next = graph->next;
        if (graph->part == part) {
            weir_placed_graph_drop(s->driver, graph);
        }
    }
}

static struct weir_part *make(struct weir_session *s, uint32_t sm_first, uint32_t sm_count)
{
    struct weir_device_gate *g = gate_of(s);
    uint64_t start_ns = weir_clock_now_ns();
    struct weir_part *part = NULL;
    uint32_t idle;

    all_streams_whole(s);
    weir_admission_idle(s); /* the gate needs to see when that work ends */
    if (weir_device_idle_begin_own(s->worker, s, DRAIN_NS, &idle) != CUDA_SUCCESS) {
        atomic_store(&g->parts_retry_ns, weir_clock_now_ns() + BUSY_NS);
        return NULL;
    }
    enum weir_status status = weir_parts_make(g->parts, sm_first, sm_count, &part);
    if (status == WEIR_ERR_AGAIN) {
        let_go(s, weir_parts_oldest(g->parts));
        status = weir_parts_make(g->parts, sm_first, sm_count, &part);
    }
    weir_device_idle_end(s->worker, idle);
    if (status != WEIR_OK) {
        weir_log_info("sched: a part of the device cannot be made, so work runs on all SMs "
                      "device=%u first=%u sms=%u why=\"%s\"",
                      g->device, sm_first, sm_count, weir_status_text(status));
        atomic_store(&g->parts_retry_ns,
                     weir_clock_now_ns() + (status == WEIR_ERR_AGAIN ? BUSY_NS : REFUSED_NS));
        return NULL;
    }
    weir_log_debug("sched: a part was made device=%u first=%u sms=%u us=%llu", g->device, sm_first,
                   sm_count,
                   (unsigned long long)((weir_clock_now_ns() - start_ns) / WEIR_NS_PER_US));
    return part;
}

struct weir_part *weir_place_part(struct weir_session *session, struct weir_host_stream *stream,
                                  const struct weir_sched_place *place)
{
    struct weir_session *s = session;
    struct weir_device_gate *g = gate_of(s);

    if (!weir_place_has_parts(s) || !weir_place_is_part(s, place)) {
        return NULL;
    }
    struct weir_part *part = weir_parts_find(g->parts, place->sm_first, place->sm_count);
    if (!part && s->n_captures == 0 && !has_runs(s, stream) &&
        weir_clock_now_ns() >= atomic_load(&g->parts_retry_ns)) {
        part = make(s, place->sm_first, place->sm_count);
    }
    return part;
}

struct weir_part *weir_place_any_part(struct weir_session *session, struct weir_host_stream *stream,
                                      uint64_t draw)
{
    uint32_t sms = weir_worker_sms(session->worker, session->device);
    uint32_t step = gate_of(session)->part_step;
    struct weir_sched_place place = {0};

    if (weir_place_has_parts(session)) {
        uint32_t border = step * (1 + (uint32_t)(draw >> 8) % ((sms - 1) / step));

        place = (draw & 1) != 0
                    ? (struct weir_sched_place){.sm_count = border}
                    : (struct weir_sched_place){.sm_first = border, .sm_count = sms - border};
    }
    return weir_place_part(session, stream, &place);
}

/* ---------------------------------------------------------------- streams */

void weir_place_stream(struct weir_session *session, struct weir_host_stream *stream,
                       struct weir_part *part)
{
    const struct weir_stream_part *p = &stream->part;
    bool other = p->part && p->part != part;

    if (part && (other || !p->in) && has_runs(session, stream)) {
        part = NULL;
    }
    if (p->in && (!part || other)) {
        (void)weir_part_move(session->driver, stream, NULL, stream->gate.priority);
    }
    if (part && other && !p->in) {
        leave_part(session, stream);
    }
    if (part && (!p->part || p->part == part)) {
        (void)weir_part_move(session->driver, stream, part, stream->gate.priority);
    }
}

/* ---------------------------------------------------------------- graphs */

void weir_placed_graph_keep(struct weir_session *session, struct weir_placed_graph *graph,
                            struct weir_part *part, CUgraphExec native)
{
    weir_part_use(part);
    *graph = (struct weir_placed_graph){.part = part,
                                        .native = native,
                                        .next = session->devices.placed,
                                        .at = &session->devices.placed};
    if (graph->next) {
        graph->next->at = &graph->next;
    }
    session->devices.placed = graph;
}

void weir_placed_graph_drop(const struct weir_driver *driver, struct weir_placed_graph *graph)
{
    if (!graph->part) {
        return;
    }
    if (graph->native) {
        (void)driver->cuGraphExecDestroy(graph->native);
    }
    weir_part_put(graph->part);
    *graph->at = graph->next;
    if (graph->next) {
        graph->next->at = graph->at;
    }
    *graph = (struct weir_placed_graph){0};
}
