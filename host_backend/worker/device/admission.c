/* A session's side of the gate: see admission.h. */
#include "host_backend/worker/device/admission.h"

#include "host_backend/worker/device/device_idle.h"
#include "host_backend/worker/device/gates.h"
#include "host_backend/worker/device/order.h"
#include "host_backend/worker/device/place.h"
#include "host_backend/worker/device/streams.h"
#include "host_backend/worker/state/about.h"
#include "host_backend/worker/state/segment.h"
#include "host_backend/worker/state/session.h"
#include "host_backend/worker/state/tenant.h"
#include "host_backend/worker/state/worker.h"
#include <stdio.h>
#include <stdlib.h>

static struct weir_device_gate *gate_of(const struct weir_session *s)
{
    return s->worker->gates[s->device];
}

struct weir_gate_queue *weir_admission_queue(const struct weir_session *session, uint32_t device)
{
    return atomic_load_explicit(&session->about->gate_queues[device], memory_order_relaxed);
}

/*
 * The percentage of the SMs to which runs confine the session: its tenant's limit, or its own if
 * lower. If its context has a share of the SMs, runs do not: the driver enforces the share, and the
 * worker does not know which SMs it has.
 */
static uint32_t sm_limit_pct(const struct weir_session *session)
{
    const struct weir_worker_device *device = &session->platform->devices[session->device];

    return weir_device_is_open(device) && device->share_pct != 0
               ? 100
               : weir_tenant_sm_limit(&session->tenant->config, session->about->wish.sm_pct);
}

uint32_t weir_admission_run_cost_pct(const struct weir_session *session,
                                     const struct weir_gate_hint *hint)
{
    const struct weir_device_gate *g = gate_of(session);

    return !g ? UINT32_MAX
              : weir_gate_run_cost_pct(g->gate, weir_tenant_setting(session->tenant, priority),
                                       sm_limit_pct(session), hint);
}

bool weir_admission_is_partable(const struct weir_session *session)
{
    return weir_place_has_parts(session) && sm_limit_pct(session) == 100;
}

bool weir_admission_may_want_runs(const struct weir_session *session)
{
    const struct weir_spin_page *host = session->platform->spin.page;

    return gate_of(session) && (sm_limit_pct(session) < 100 ||
                                atomic_load_explicit(&host->tenants, memory_order_relaxed) > 1);
}

bool weir_admission_has_company(const struct weir_session *session)
{
    const struct weir_device_gate *g = gate_of(session);

    return g && weir_gate_has_company(g->gate, weir_tenant_setting(session->tenant, priority));
}

bool weir_admission_on_several_devices(const struct weir_session *session)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < session->platform->n_devices; i++) {
        n += weir_admission_queue(session, i) != NULL;
    }
    return n > 1;
}

bool weir_admission_is_small(const struct weir_session *session, uint32_t sms)
{
    return gate_of(session) && weir_gate_is_small(gate_of(session)->gate, sms);
}

uint64_t weir_admission_graph_piece_ns(const struct weir_session *session)
{
    return gate_of(session) ? session->worker->config.scheduler.graph_piece_us * WEIR_NS_PER_US : 0;
}

bool weir_admission_contends(const struct weir_session *session)
{
    const struct weir_gate_queue *q = weir_admission_queue(session, session->device);

    return q && weir_gate_contends(q);
}

/* ---------------------------------------------------------------- marks */

static void unlist(struct weir_session *s, struct weir_host_stream *stream)
{
    struct weir_host_stream **at = &s->unmarked;

    while (*at != stream) {
        at = &(*at)->gate.next;
    }
    *at = stream->gate.next;
    stream->gate.listed = false;
}

/* Put a mark behind a stream's unmarked work. If that is impossible now, the work stays
 * unmarked. */
static void mark(struct weir_session *s, struct weir_host_stream *stream)
{
    struct weir_admission_stream *gate = &stream->gate;
    struct weir_device_gate *g = s->worker->gates[stream->o.device];
    struct weir_gate_mark m;

    if (gate->unmarked.n == 0 || !weir_gate_batch_may_close(gate->queue) ||
        weir_host_stream_capturing(s, stream) ||
        weir_mark_stream(g->marks, &gate->word, weir_host_stream_at(stream), &m) != CUDA_SUCCESS) {
        return;
    }
    weir_gate_batch_close(gate->queue, &gate->unmarked, &m);
    unlist(s, stream);
}

/* Put marks behind the unmarked work of all streams of a queue. Its device is current. */
static void mark_all(void *session, struct weir_gate_queue *queue)
{
    struct weir_session *s = session;

    for (struct weir_host_stream *stream = s->unmarked, *next; stream; stream = next) {
        next = stream->gate.next;
        if (stream->gate.queue == queue) {
            mark(s, stream);
        }
    }
}

bool weir_admission_has_unmarked(const struct weir_session *session)
{
    return session->unmarked != NULL;
}

static bool has_unmarked_on(const struct weir_session *s, const struct weir_gate_queue *queue)
{
    const struct weir_host_stream *stream = s->unmarked;

    while (stream && stream->gate.queue != queue) {
        stream = stream->gate.next;
    }
    return stream != NULL;
}

void weir_admission_idle(struct weir_session *session)
{
    uint32_t here = session->device;

    for (uint32_t i = 0; i < session->platform->n_devices; i++) {
        struct weir_gate_queue *q = weir_admission_queue(session, i);

        if (q && has_unmarked_on(session, q) && weir_session_enter(session, i) == CUDA_SUCCESS) {
            mark_all(session, q);
        }
        if (q && weir_gate_in_flight(q)) {
            weir_gate_look(q);
        }
    }
    if (session->device != here) { /* a handler may be about to begin on another device */
        (void)weir_session_enter(session, here);
    }
}

static void close_stream(struct weir_session *session, struct weir_host_stream *stream)
{
    uint32_t here = session->device;

    if (stream->gate.listed && weir_session_enter(session, stream->o.device) == CUDA_SUCCESS) {
        mark(session, stream);
        (void)weir_session_enter(session, here);
    }
}

void weir_admission_stream_awaited(struct weir_session *session, struct weir_host_stream *stream)
{
    if (stream->gate.listed && weir_admission_contends(session)) {
        mark(session, stream);
    }
}

void weir_admission_stream_gone(struct weir_session *session, struct weir_host_stream *stream)
{
    struct weir_admission_stream *gate = &stream->gate;

    close_stream(session, stream);
    if (gate->listed) { /* the capture has failed, so no mark can be written */
        weir_gate_batch_drop(gate->queue, &gate->unmarked);
        unlist(session, stream);
    }
    if (gate->queue) {
        weir_mark_word_put(session->worker->gates[stream->o.device]->marks, &gate->word);
    }
}

/* ---------------------------------------------------------------- parts of the device, and
 * priorities */

void weir_admission_stream_whole(struct weir_session *session, struct weir_host_stream *stream)
{
    if (stream->part.in) {
        weir_place_stream(session, stream, NULL);
    }
}

static int priority_of(const struct weir_session *s, enum weir_sched_level level, bool decided,
                       int asked)
{
    return weir_device_gate_priority(gate_of(s), weir_tenant_setting(s->tenant, priority), level,
                                     decided, asked);
}

int weir_admission_stream_priority(const struct weir_session *session, int asked)
{
    return !gate_of(session)
               ? asked
               : priority_of(session, WEIR_SCHED_PLAIN, weir_admission_contends(session), asked);
}

int weir_admission_asked_priority(const struct weir_session *session, int native)
{
    return !gate_of(session)
               ? native
               : weir_device_gate_asked(gate_of(session),
                                        weir_tenant_setting(session->tenant, priority), native);
}

bool weir_admission_has_levels(const struct weir_session *session)
{
    return gate_of(session) && weir_device_gate_has_levels(gate_of(session));
}

void weir_admission_stream_made(struct weir_host_stream *stream, int native)
{
    stream->gate.priority = native;
}

static void apply_priority(struct weir_session *s, struct weir_host_stream *stream, int native)
{
    weir_host_stream_set_priority(s->driver, stream->o.native, &stream->gate.priority, native);
}

/* Captured work keeps the priority of its stream if the graph is to use its nodes' priorities, as
 * PyTorch's graphs do. */
void weir_admission_stream_captures(struct weir_session *session, struct weir_host_stream *stream)
{
    close_stream(session, stream);
    for (struct weir_host_ctx *ctx = weir_session_contexts(session); ctx; ctx = ctx->next) {
        for (struct weir_host_stream *s = ctx->streams; s; s = s->next) {
            weir_admission_stream_whole(session, s); /* events may draw any stream into a capture */
            if (gate_of(session)) {
                apply_priority(session, s,
                               priority_of(session, WEIR_SCHED_PLAIN, false, s->priority));
            }
        }
    }
}

/*
 * Move a kernel's stream to the granted part. Graphs are not moved, and copies need no SMs.
 * @return the part for a graph, counted; NULL: it has all SMs
 */
static struct weir_part *apply_place(struct weir_session *s, struct weir_host_stream *stream,
                                     const struct weir_gate_pass *pass, uint32_t flags,
                                     bool *ret_in_part)
{
    bool heeds = (flags & WEIR_SCHED_PARTABLE) != 0 && pass->item && pass->place.sm_count != 0 &&
                 s->n_captures == 0;
    struct weir_part *part = heeds ? weir_place_part(s, stream, &pass->place) : NULL;

    *ret_in_part = heeds && weir_place_is_part(s, &pass->place);
    if (pass->class == WEIR_SCHED_KERNEL) {
        weir_place_stream(s, stream, part);
        weir_part_put(part);
        return NULL;
    }
    if (pass->class == WEIR_SCHED_GRAPH) {
        weir_place_stream(s, stream, NULL);
    }
    return part;
}

/* ---------------------------------------------------------------- callbacks while the session
 * waits in the gate */

/*
 * Should the thread stop waiting? A session whose guest has gone ends here. The waiting work then
 * fails, and nothing behind it in the ring may be executed, or it would seem to have succeeded.
 */
static bool is_over(void *session)
{
    struct weir_session *s = session;

    if (weir_session_peer_gone(s)) {
        weir_session_end(s);
    }
    return atomic_load(&s->ending) || weir_worker_sticky_error(s->worker) != CUDA_SUCCESS;
}

/* Answer remote guests that wait for completion words. */
static bool attend(void *session)
{
    return weir_session_answer_waits(session);
}

/* The session waits in the gate or continues. Another session's weir_device_idle_begin() need not
 * wait for it meanwhile. */
static void rests(void *session, bool begins)
{
    if (begins) {
        weir_device_barrier_leave(session);
    } else {
        weir_device_barrier_enter(session);
    }
}

static void name(void *session, uint64_t *ret_number, char *ret_program)
{
    const struct weir_session *s = session;

    *ret_number = s->id;
    snprintf(ret_program, WEIR_GATE_PROGRAM_BYTES, "%.*s", (int)WEIR_GATE_PROGRAM_BYTES - 1,
             s->about->program);
}

static uint32_t sm_limit(void *session)
{
    const struct weir_session *s = session;

    return weir_tenant_setting(s->tenant, sm_limit_pct);
}

static struct weir_gate_queue *make_queue(struct weir_session *s)
{
    static const struct weir_gate_session_ops ops = {.is_over = is_over,
                                                     .attend = attend,
                                                     .rests = rests,
                                                     .name = name,
                                                     .sm_limit_pct = sm_limit,
                                                     .mark_all = mark_all};
    uint32_t limit_pct = s->about->wish.sm_pct != 0 ? s->about->wish.sm_pct : 100;
    uint32_t share_pct = s->platform->devices[s->device].share_pct;
    struct weir_gate_queue *q;

    limit_pct = share_pct != 0 && share_pct < limit_pct ? share_pct : limit_pct;
    if (weir_gate_queue_create(gate_of(s)->gate, s->tenant->index, s->tenant->name, limit_pct, &ops,
                               s, &q) != WEIR_OK) {
        return NULL;
    }
    /* Q1: publishes the queue; meets the acquire in weir_session_gates_wake(). */
    atomic_store_explicit(&s->about->gate_queues[s->device], q, memory_order_release);
    return q;
}

/* ---------------------------------------------------------------- enter, leave */

CUresult weir_admission_enter(struct weir_session *session, struct weir_host_stream *stream,
                              const struct weir_gate_work *work, const int *priority,
                              struct weir_admission *ret_admission)
{
    struct weir_gate_pass *pass = &ret_admission->pass;

    pass->queue = NULL;
    pass->item = NULL;
    ret_admission->part = NULL;
    ret_admission->in_part = false;
    ret_admission->stream = stream;
    ret_admission->session = session;
    if (!gate_of(session) || weir_host_stream_capturing(session, stream)) {
        return CUDA_SUCCESS;
    }
    struct weir_gate_queue *q = weir_admission_queue(session, session->device);
    WEIR_FAIL_IF(!q && !(q = make_queue(session)), CUDA_ERROR_OUT_OF_MEMORY);
    enum weir_status status = weir_gate_enter(q, work, pass);
    if (status != WEIR_OK) {
        pass->queue = NULL;
        return status == WEIR_ERR_CLOSED ? CUDA_ERROR_DEVICE_UNAVAILABLE : CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (weir_gate_begins_apart(pass, &stream->gate.unmarked)) {
        mark(session, stream);
    }
    apply_priority(session, stream,
                   priority_of(session, session->n_captures == 0 ? pass->level : WEIR_SCHED_PLAIN,
                               session->n_captures == 0 && pass->item,
                               priority ? *priority : stream->priority));
    ret_admission->part = apply_place(session, stream, pass, work->flags, &ret_admission->in_part);
    return CUDA_SUCCESS;
}

void weir_admission_leave(struct weir_admission *admission, CUresult result)
{
    struct weir_host_stream *stream = admission->stream;
    struct weir_session *s = admission->session;
    struct weir_gate_pass *pass = &admission->pass;

    weir_part_put(admission->part);
    if (!pass->queue) {
        return;
    }
    bool due = weir_gate_leave(pass, &stream->gate.unmarked, result == CUDA_SUCCESS);
    if (stream->gate.unmarked.n != 0 && !stream->gate.listed) {
        stream->gate.queue = pass->queue;
        stream->gate.next = s->unmarked;
        s->unmarked = stream;
        stream->gate.listed = true;
    }
    if (due) {
        mark(s, stream);
    }
    if (due && !pass->item) {
        weir_gate_look(pass->queue);
    }
}

/* ---------------------------------------------------------------- a session's end */

void weir_admission_session_ends(struct weir_session *session)
{
    for (uint32_t i = 0; i < session->platform->n_devices; i++) {
        struct weir_gate_queue *q = weir_admission_queue(session, i);

        if (q && weir_session_enter(session, i) == CUDA_SUCCESS) {
            mark_all(session, q);
            weir_gate_queue_ends(q);
        }
    }
}

void weir_admission_session_gone(struct weir_session *session)
{
    for (uint32_t i = 0; i < session->platform->n_devices; i++) {
        struct weir_gate_queue *q = weir_admission_queue(session, i);

        if (q && weir_session_enter(session, i) == CUDA_SUCCESS) {
            atomic_store(&session->about->gate_queues[i], NULL);
            weir_gate_queue_destroy(q);
        }
    }
}
