/* How a session comes and goes; at its end it takes everything apart. */
#include "host_backend/worker/session/tenant.h"
#include "host_backend/worker/sessions.h"

#include "base/clock.h"
#include "base/log.h"
#include "host_backend/worker/session/about.h"
#include "host_backend/worker/session/awaited.h"
#include "host_backend/worker/session/channel.h"
#include "host_backend/worker/session/conditions.h"
#include "host_backend/worker/session/device_idle.h"
#include "host_backend/worker/session/holdings.h"
#include "host_backend/worker/session/host_calls.h"
#include "host_backend/worker/session/memory.h"
#include "host_backend/worker/session/objects.h"
#include "host_backend/worker/session/order.h"
#include "host_backend/worker/session/prints.h"
#include "host_backend/worker/session/region.h"
#include "host_backend/worker/session/segment.h"
#include "host_backend/worker/session/vmm.h"
#include "host_backend/worker/session/worker.h"
#include "host_backend/worker/twins/forms.h"
#include <stdio.h>
#include <stdlib.h>

#define DRAIN_STEP_NS   (20 * WEIR_NS_PER_MS)
#define DRAIN_WAIT_NS   (60 * WEIR_NS_PER_S) /* then the GPU is taken to hang */
#define ARENA_CAP_BYTES (8u << 20)

static bool make_parts(struct weir_session *s)
{
    s->about = calloc(1, sizeof *s->about);
    s->channel = calloc(1, sizeof *s->channel);
    if (s->channel != NULL) {
        pthread_mutex_init(&s->channel->send_lock, NULL);
    }
    return s->about != NULL && s->channel != NULL &&
           (s->host_calls = weir_host_calls_create()) != NULL &&
           (s->handles = weir_handles_create()) != NULL &&
           (s->holdings = weir_holdings_create()) != NULL &&
           (s->admission = weir_session_admission_create()) != NULL &&
           (s->awaited = weir_awaited_create()) != NULL &&
           (s->idle = weir_session_idle_create()) != NULL;
}

static void free_parts(struct weir_session *s)
{
    if (s->about != NULL) {
        free(s->about->stats);
        free(s->about);
    }
    if (s->channel != NULL) {
        pthread_mutex_destroy(&s->channel->send_lock);
        free(s->channel->reply);
        free(s->channel);
    }
    weir_host_calls_destroy(s->host_calls);
    weir_handles_destroy(s->handles);
    weir_holdings_destroy(s->holdings);
    weir_session_admission_destroy(s->admission);
    weir_awaited_destroy(s->awaited);
    weir_conditions_destroy(s->conditions);
    weir_session_prints_destroy(s->prints);
    weir_session_idle_destroy(s->idle);
}

enum weir_status weir_session_create(const struct weir_session_params *params,
                                     struct weir_session **ret_session)
{
    struct weir_session *s = calloc(1, sizeof *s);
    CUstream work;

    if (s == NULL || !make_parts(s)) {
        if (s != NULL) {
            free_parts(s);
        }
        free(s);
        params->transport->ops->destroy(params->transport);
        return WEIR_ERR_NO_MEMORY;
    }
    s->worker = params->worker;
    s->tenant = params->tenant;
    s->driver = &params->worker->driver;
    s->channel->transport = params->transport;
    s->channel->remote = params->remote;
    s->channel->region_end = params->region_end;
    s->channel->view = *params->transport->ops->view(params->transport);
    s->about->pid = params->pid;
    s->about->guest_pid = params->guest_pid;
    s->about->monitor = params->monitor;
    if (params->wish != NULL) {
        s->about->wish = *params->wish;
    }
    s->id = params->id;
    s->about->started_ns = weir_clock_now_ns();
    snprintf(s->about->program, sizeof s->about->program, "%s", params->program);
    weir_arena_init(&s->op.arena, ARENA_CAP_BYTES);
    if (!s->about->monitor && (weir_session_register(s) != CUDA_SUCCESS ||
                               weir_session_work_stream(s, &work) != CUDA_SUCCESS)) {
        weir_session_destroy(s);
        return WEIR_ERR_DRIVER;
    }
    if (s->channel->remote) {
        s->channel->transport->glance_user = s;
        /* G1: publishes glance_user; meets the acquire in the transport's I/O thread. */
        __atomic_store_n(&s->channel->transport->glance, weir_host_call_glance, __ATOMIC_RELEASE);
    }
    *ret_session = s;
    return WEIR_OK;
}

/* ---------------------------------------------------------------- the end */

static bool stream_drained(struct weir_session *s, struct weir_host_stream *stream, uint64_t end_ns)
{
    CUgraph graph = NULL;

    (void)weir_session_enter(s, stream->o.device);
    if (stream->capturing) {
        if (s->driver->cuStreamEndCapture(stream->o.native, &graph) == CUDA_SUCCESS &&
            graph != NULL && weir_host_object_find(s, WEIR_KIND_GRAPH, graph) == NULL) {
            (void)s->driver->cuGraphDestroy(graph);
        }
        weir_session_capture_end(s, stream);
    }
    while (weir_host_stream_wait(s->driver, weir_host_stream_at(stream), DRAIN_STEP_NS) ==
           CUDA_ERROR_TIMEOUT) {
        if (weir_clock_now_ns() >= end_ns || atomic_load(&s->worker->sticky) != 0) {
            return false;
        }
        weir_awaited_write(s);
    }
    return true;
}

/* Wait for all work of the session. A GPU that does not come back is given up as a whole. */
static void drain(struct weir_session *s)
{
    uint64_t end_ns = weir_clock_now_ns() + DRAIN_WAIT_NS;

    for (struct weir_host_ctx *ctx = weir_session_contexts(s); ctx != NULL; ctx = ctx->next) {
        for (struct weir_host_stream *stream = ctx->streams; stream != NULL;
             stream = stream->next) {
            if (stream_drained(s, stream, end_ns)) {
                continue;
            }
            if (atomic_load(&s->worker->sticky) == 0) {
                weir_log_error("session: its work does not end session=%llu tenant=%s",
                               (unsigned long long)s->id, s->tenant->name);
                weir_worker_sticky(s->worker, CUDA_ERROR_LAUNCH_TIMEOUT);
            }
            return;
        }
    }
}

static void destroy_objects(struct weir_session *s)
{
    static const enum weir_kind kinds[] = {WEIR_KIND_EXEC,    WEIR_KIND_GRAPH, WEIR_KIND_TEXTURE,
                                           WEIR_KIND_SURFACE, WEIR_KIND_ARRAY, WEIR_KIND_MIPMAP,
                                           WEIR_KIND_LINK};

    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        weir_host_objects_destroy_all(s, kinds[i], NULL);
    }
    while (weir_session_contexts(s) != NULL) {
        weir_ctx_destroy(s, weir_session_contexts(s));
    }
    for (int kind = 1; kind < WEIR_KIND_COUNT; kind++) {
        weir_host_objects_destroy_all(s, (enum weir_kind)kind, NULL);
    }
}

static void release_memory(struct weir_session *s)
{
    while (s->holdings->registrations != NULL) {
        weir_registration_drop(s, s->holdings->registrations);
    }
    weir_session_vmm_finish(s);
    while (s->holdings->grants != NULL) {
        weir_grant_drop(s, s->holdings->grants);
    }
    weir_uploads_free(&s->tenant->images, s->uploads);
}

void weir_session_destroy(struct weir_session *session)
{
    struct weir_session *s = session;
    uint32_t idle;

    if (s == NULL) {
        return;
    }
    weir_session_end(s);
    if (s->channel->region_end != NULL) {
        weir_region_end_closing(s->channel->region_end);
    }
    weir_forms_session_ends(s);
    weir_admission_session_ends(s);
    drain(s);
    weir_prints_forget(s, NULL);
    if (s->n_captures != 0) { /* the device does not come to rest before they end */
        weir_host_objects_destroy_all(s, WEIR_KIND_STREAM, NULL);
    }
    weir_session_unloads(s);
    destroy_objects(s);
    weir_session_device_idle_end(s);
    weir_forms_session_gone(s);
    weir_host_calls_finish(s);
    weir_admission_session_gone(s);
    release_memory(s);
    weir_session_work_streams_end(s);
    idle = weir_device_idle_begin(s->worker, s);
    weir_session_unregister(s);
    weir_device_idle_end(s->worker, idle);
    weir_arena_finish(&s->op.arena);
    s->channel->transport->ops->destroy(s->channel->transport);
    free_parts(s);
    free(s);
}
