/* Makes a session, and destroys all its objects at its end. */
#include "host_backend/worker/code/images.h"
#include "host_backend/worker/guests.h"
#include "host_backend/worker/sessions.h"
#include "host_backend/worker/state/tenant.h"

#include "base/clock.h"
#include "base/log.h"
#include "host_backend/worker/device/awaited.h"
#include "host_backend/worker/device/device.h"
#include "host_backend/worker/device/device_idle.h"
#include "host_backend/worker/device/fault.h"
#include "host_backend/worker/device/order.h"
#include "host_backend/worker/device/prints.h"
#include "host_backend/worker/device/put_off.h"
#include "host_backend/worker/memory/away.h"
#include "host_backend/worker/memory/holdings.h"
#include "host_backend/worker/memory/managed.h"
#include "host_backend/worker/memory/memory.h"
#include "host_backend/worker/memory/region.h"
#include "host_backend/worker/memory/spare.h"
#include "host_backend/worker/memory/vmm.h"
#include "host_backend/worker/profile/profile.h"
#include "host_backend/worker/session/book.h"
#include "host_backend/worker/session/conditions.h"
#include "host_backend/worker/session/event_times.h"
#include "host_backend/worker/session/objects.h"
#include "host_backend/worker/state/about.h"
#include "host_backend/worker/state/channel.h"
#include "host_backend/worker/state/ending.h"
#include "host_backend/worker/state/host_calls.h"
#include "host_backend/worker/state/platform.h"
#include "host_backend/worker/state/segment.h"
#include "host_backend/worker/state/session.h"
#include "host_backend/worker/state/suspension.h"
#include "host_backend/worker/twins/forms.h"
#include <stdio.h>
#include <stdlib.h>

#define DRAIN_STEP_NS   (20 * WEIR_NS_PER_MS)
#define ORPHAN_AFTER_NS WEIR_NS_PER_S /* about as long as the restart of a worker */
#define ARENA_CAP_BYTES (8u << 20)

static bool make_parts(struct weir_session *s)
{
    s->about = calloc(1, sizeof *s->about);
    s->channel = calloc(1, sizeof *s->channel);
    if (s->channel) {
        pthread_mutex_init(&s->channel->send_lock, NULL);
    }
    return s->about && s->channel && (s->host_calls = weir_host_calls_create()) &&
           (s->handles = weir_handles_create()) && (s->holdings = weir_holdings_create()) &&
           (s->awaited = weir_awaited_create()) && (s->idle = weir_session_idle_create()) &&
           (s->faults = weir_session_faults_create()) &&
           (s->devices.suspension = calloc(1, sizeof *s->devices.suspension));
}

static void free_parts(struct weir_session *s)
{
    if (s->about) {
        free(s->about->stats);
        free(s->about);
    }
    if (s->channel) {
        pthread_mutex_destroy(&s->channel->send_lock);
        free(s->channel->reply);
        free(s->channel);
    }
    weir_host_calls_destroy(s->host_calls);
    weir_handles_destroy(s->handles);
    weir_holdings_destroy(s->holdings);
    weir_awaited_destroy(s->awaited);
    weir_conditions_destroy(s->conditions);
    weir_session_prints_destroy(s->prints);
    weir_session_idle_destroy(s->idle);
    weir_session_faults_destroy(s->faults);
    free(s->devices.suspension);
    free(s->devices.book);
}

enum weir_status weir_session_create(const struct weir_session_params *params,
                                     struct weir_session **ret_session)
{
    struct weir_session *s = calloc(1, sizeof *s);
    CUstream work;

    if (!s || !make_parts(s)) {
        if (s) {
            free_parts(s);
        }
        free(s);
        params->transport->ops->destroy(params->transport);
        return WEIR_ERR_NO_MEMORY;
    }
    s->worker = params->worker;
    s->tenant = params->tenant;
    s->platform = weir_worker_platform(params->worker);
    s->driver = &s->platform->driver;
    if (s->platform->by_program && !params->monitor) {
        s->devices.book = calloc(1, sizeof *s->devices.book); /* without one it stays where it is */
    }
    if (s->devices.book) {
        s->devices.book->leaving.box = -1;
        atomic_store(&s->devices.book->leaving.move,
                     s->platform->moves_every != 0 ? WEIR_MOVE_TEST : WEIR_MOVE_NO);
    }
    s->devices.used = 1; /* the first device is current in a session's thread */
    s->devices.first_use = weir_session_memory_reach;
    weir_host_calls_listen(s->host_calls, weir_managed_function_ran);
    s->channel->transport = params->transport;
    s->channel->remote = params->remote;
    s->channel->region_end = params->region_end;
    s->channel->view = *params->transport->ops->view(params->transport);
    s->about->pid = params->pid;
    s->about->guest_pid = params->guest_pid;
    s->about->monitor = params->monitor;
    if (params->wish) {
        s->about->wish = *params->wish;
    }
    if (params->unknown) {
        s->about->unknown = *params->unknown;
    }
    s->id = params->id;
    atomic_store(&s->devices.suspension->wish,
                 s->platform->away_tests ? WEIR_SUSPEND_TEST : WEIR_SUSPEND_NO);
    s->op.fd = -1;
    s->about->started_ns = weir_clock_now_ns();
    snprintf(s->about->program, sizeof s->about->program, "%s", params->program);
    if (!s->about->monitor) {
        s->about->number = weir_programs_add(s->tenant->programs, s->tenant->account.place,
                                             params->pid_here, s->about->program);
    }
    weir_arena_init(&s->op.arena, ARENA_CAP_BYTES);
    if (!s->about->monitor) {
        weir_context_limits_join(s->tenant);
    }
    if (!s->about->monitor && (weir_session_register(s) != CUDA_SUCCESS ||
                               weir_session_work_stream(s, &work) != CUDA_SUCCESS)) {
        weir_session_clear(s);
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

/*
 * A program may leave work behind: it was killed, or ended without waiting. Long kernels are legal,
 * and only the end of its context ends a kernel. So the session stays as an orphan, with its memory
 * and its place among its tenant's sessions, until its work has ended.
 */

static void orphan(struct weir_session *s, uint64_t since_ns)
{
    char kernels[WEIR_FAULT_TEXT_BYTES];

    (void)weir_fault_kernels(s, kernels, sizeof kernels);
    weir_log_warn("session: its program is gone, but not its work session=%llu tenant=%s "
                  "kernels=\"%s\" orphan_s=%u",
                  (unsigned long long)s->id, s->tenant->name, kernels,
                  weir_tenant_setting(s->tenant, orphan_s));
    atomic_store(&s->about->orphaned_ns, since_ns);
}

/* Called now and then while work of an ended session continues. @param since_ns  when the session
 * began to wait for its work */
static void look_at_orphan(struct weir_session *s, uint64_t since_ns)
{
    uint64_t age_ns = weir_clock_now_ns() - since_ns;
    uint32_t limit_s = weir_tenant_setting(s->tenant, orphan_s);

    if (age_ns < ORPHAN_AFTER_NS) {
        return;
    }
    if (age_ns >= WEIR_ENDING_NS) {
        weir_session_lasts(s);
    }
    if (atomic_load(&s->about->orphaned_ns) == 0) {
        orphan(s, since_ns);
    }
    if (limit_s != 0 && age_ns > limit_s * WEIR_NS_PER_S) {
        weir_session_overdue(s);
    } else if (s->platform->alone && weir_guests_only_orphans(s->worker)) {
        weir_session_overdue(s); /* no guest waits here, and a new worker starts sooner */
    }
}

static bool stream_drained(struct weir_session *s, struct weir_host_stream *stream,
                           uint64_t since_ns)
{
    CUgraph graph = NULL;
    CUresult result;

    (void)weir_session_enter(s, stream->o.device);
    if (stream->capturing) {
        if (s->driver->cuStreamEndCapture(stream->o.native, &graph) == CUDA_SUCCESS && graph &&
            !weir_host_object_find(s, WEIR_KIND_GRAPH, graph)) {
            (void)s->driver->cuGraphDestroy(graph);
        }
        weir_session_capture_end(s, stream);
    }
    while ((result = weir_host_stream_wait(s->driver, weir_host_stream_at(stream),
                                           DRAIN_STEP_NS)) == CUDA_ERROR_TIMEOUT) {
        look_at_orphan(s, since_ns);
        if (weir_worker_sticky_error(s->worker) != CUDA_SUCCESS) {
            return false;
        }
        weir_awaited_write(s, weir_session_awaited_place);
    }
    if (weir_error_is_sticky(result)) { /* no call will report the fault any more */
        weir_session_fault(s, result);
        return false;
    }
    return true;
}

/* Wait for all work of the session, unless the context is dead. */
static void drain(struct weir_session *s)
{
    uint64_t since_ns = weir_clock_now_ns();

    for (struct weir_host_ctx *ctx = weir_session_contexts(s); ctx; ctx = ctx->next) {
        for (struct weir_host_stream *stream = ctx->streams; stream; stream = stream->next) {
            if (!stream_drained(s, stream, since_ns)) {
                return;
            }
        }
    }
    if (atomic_load(&s->about->orphaned_ns) != 0) {
        weir_log_info(
            "session: the work of a program that is gone has ended session=%llu tenant=%s "
            "after_s=%.1f",
            (unsigned long long)s->id, s->tenant->name,
            (double)(weir_clock_now_ns() - since_ns) / (double)WEIR_NS_PER_S);
    }
}

/* Are all unfinished kernels of the session runs, and is there one? A kernel that cannot be stopped
 * needs the results of the runs before it, or it may fault. */
static bool only_runs_pending(const struct weir_session *s)
{
    bool any = false;

    for (struct weir_host_ctx *ctx = weir_session_contexts(s); ctx; ctx = ctx->next) {
        for (struct weir_host_stream *stream = ctx->streams; stream; stream = stream->next) {
            if (weir_mark_originals_pending(&stream->gate.word)) {
                return false;
            }
            any |= weir_mark_kernels_pending(&stream->gate.word);
        }
    }
    return any;
}

/* Can other processes wait for the session's streams? Then their kernels, too, need its results. */
static bool others_may_wait(const struct weir_session *s)
{
    WEIR_LOCKED(&s->tenant->lock);
    return s->tenant->events != NULL;
}

static void end_runs(struct weir_session *s)
{
    if (only_runs_pending(s) && !others_may_wait(s)) {
        weir_log_info("session: its kernels are stopped for good session=%llu tenant=%s",
                      (unsigned long long)s->id, s->tenant->name);
        weir_session_event(s, WEIR_EVENT_SESSION_STOPPED,
                           "its program is gone, so its kernels are stopped for good");
        weir_forms_session_withdraw(s);
    } else {
        weir_forms_session_ends(s);
    }
}

void weir_session_finish(struct weir_session *session)
{
    weir_session_end(session);
    weir_session_ended(session);
    if (session->channel->region_end) {
        weir_region_end_closing(session->channel->region_end);
    }
    end_runs(session);
    weir_admission_session_ends(session);
    drain(session);
}

static void destroy_objects(struct weir_session *s)
{
    static const enum weir_kind kinds[] = {WEIR_KIND_EXEC,    WEIR_KIND_GRAPH, WEIR_KIND_TEXTURE,
                                           WEIR_KIND_SURFACE, WEIR_KIND_ARRAY, WEIR_KIND_MIPMAP,
                                           WEIR_KIND_LINK};

    for (size_t i = 0; i < WEIR_COUNT(kinds); i++) {
        weir_host_objects_destroy_all(s, kinds[i], NULL);
    }
    weir_host_objects_kept_try(s);
    while (weir_session_contexts(s)) {
        weir_ctx_destroy(s, weir_session_contexts(s));
    }
    for (int kind = 1; kind < WEIR_KIND_COUNT; kind++) {
        weir_host_objects_destroy_all(s, (enum weir_kind)kind, NULL);
    }
}

static void release_memory(struct weir_session *s)
{
    const struct weir_range_set *registered = &s->holdings->registered;

    while (registered->n != 0) {
        weir_registration_drop(s, (void *)(uintptr_t)registered->ranges[registered->n - 1].owner);
    }
    weir_away_forget(s);
    weir_session_vmm_finish(s);
    weir_spares_end(s);
    while (s->holdings->grants) {
        weir_grant_drop(s, s->holdings->grants);
    }
    weir_managed_end(s);
    weir_uploads_free(&s->tenant->images, s->uploads);
}

void weir_session_clear(struct weir_session *session)
{
    struct weir_session *s = session;

    weir_session_end(s);
    weir_prints_forget(s, NULL);
    if (s->n_captures != 0) { /* while a capture is open, the device does not become idle */
        weir_host_objects_destroy_all(s, WEIR_KIND_STREAM, NULL);
    }
    weir_session_unloads(s);
    destroy_objects(s);
    weir_session_device_idle_end(s);
    weir_forms_session_gone(s);
    weir_host_calls_finish(s);
    weir_admission_session_gone(s);
    release_memory(s);
    weir_put_off_finish(s);
    weir_profile_end(s);
    weir_event_times_end(s);
    weir_session_book_end(s);
    weir_session_work_streams_end(s);
    if (!s->about->monitor) {
        weir_context_limits_leave(s->tenant);
    }
    if (!s->about->monitor && s->platform->posix_fds) {
        (void)weir_worker_sync(s->worker, WEIR_LINK_SYNC); /* the supervisor released its copies */
    }
}

void weir_session_destroy(struct weir_session *session)
{
    struct weir_session *s = session;

    if (!s) {
        return;
    }
    weir_session_gone(s);
    uint32_t idle = weir_device_idle_begin(s->worker, s);
    weir_session_unregister(s);
    weir_device_idle_end(s->worker, idle);
    weir_arena_finish(&s->op.arena);
    s->channel->transport->ops->destroy(s->channel->transport);
    free_parts(s);
    free(s);
}
