/*
 * A session's life: its thread receives records, has them handled, replies; at the end it takes
 * everything apart.
 *
 * Nothing a guest sends is believed: a record's operation, flags and form are checked here, handles
 * and addresses by the handlers. A guest that breaks the protocol, or does not read what it is sent
 * for 10 s, loses its session; one log line says why.
 */
#include "host_backend/worker/session/session.h"
#include "host_backend/worker/session/region.h"

#include "base/clock.h"
#include "base/log.h"
#include "host_backend/worker/session/device_idle.h"
#include "host_backend/worker/session/host_calls.h"
#include "host_backend/worker/session/nvml.h"
#include "host_backend/worker/session/objects.h"
#include "host_backend/worker/session/order.h"
#include "host_backend/worker/session/vmm.h"
#include "host_backend/worker/session/worker.h"
#include "host_backend/worker/twins/forms.h"
#include "proto/host_dispatch.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SEND_WAIT_NS    (10 * WEIR_NS_PER_S)
#define IDLE_WAIT_NS    WEIR_NS_PER_S
#define WATCH_WAIT_NS   (5 * WEIR_NS_PER_MS)
#define POLL_WAIT_NS    (50 * WEIR_NS_PER_US)
#define GATE_SPIN_NS    (5 * WEIR_NS_PER_US) /* until the end of what was given is looked for; .. */
#define GATE_SHARED_NS  (30 * WEIR_NS_PER_US) /* .. where others share: marks hold up streams */
#define DRAIN_STEP_NS   (20 * WEIR_NS_PER_MS)
#define DRAIN_WAIT_NS   (60 * WEIR_NS_PER_S) /* then the GPU is taken to hang */
#define DEVICE_IDLE_NS  (5 * WEIR_NS_PER_MS)
#define ARENA_CAP_BYTES (8u << 20)

CUresult weir_session_switch(struct weir_session *session, uint32_t device)
{
    CUresult result = session->driver->cuCtxSetCurrent(session->worker->devices[device].context);

    if (result == CUDA_SUCCESS) {
        session->device = device;
    }
    return result;
}

CUresult weir_session_work_stream(struct weir_session *session, CUstream *ret_stream)
{
    CUstream *stream = &session->work_streams[session->device];
    CUresult result = CUDA_SUCCESS;

    if (*stream == NULL) {
        result = session->driver->cuStreamCreate(stream, CU_STREAM_NON_BLOCKING);
    }
    *ret_stream = *stream;
    return result;
}

enum weir_status weir_session_create(const struct weir_session_params *params,
                                     struct weir_session **ret_session)
{
    struct weir_session *s = calloc(1, sizeof *s);
    enum weir_status status = WEIR_ERR_NO_MEMORY;
    CUstream work;

    if (s == NULL) {
        params->transport->ops->destroy(params->transport);
        return status;
    }
    s->worker = params->worker;
    s->tenant = params->tenant;
    s->driver = &params->worker->driver;
    s->transport = params->transport;
    s->remote = params->remote;
    s->region_end = params->region_end;
    s->pid = params->pid;
    s->uid = params->uid;
    s->guest_pid = params->guest_pid;
    s->monitor = params->monitor;
    if (params->wish != NULL) {
        s->wish = *params->wish;
    }
    s->id = params->id;
    s->started_ns = weir_clock_now_ns();
    snprintf(s->program, sizeof s->program, "%s", params->program);
    s->view = *s->transport->ops->view(s->transport);
    pthread_mutex_init(&s->send_lock, NULL);
    pthread_mutex_init(&s->calls_lock, NULL);
    pthread_cond_init(&s->calls_done, NULL);
    weir_arena_init(&s->arena, ARENA_CAP_BYTES);
    s->awaited = calloc(WEIR_AWAITED_MAX, sizeof *s->awaited);
    if (s->awaited != NULL) {
        status = weir_host_objects_init(s);
    }
    if (status == WEIR_OK && !s->monitor &&
        (weir_session_register(s) != CUDA_SUCCESS ||
         weir_session_work_stream(s, &work) != CUDA_SUCCESS)) {
        status = WEIR_ERR_DRIVER;
    }
    if (status != WEIR_OK) {
        weir_session_destroy(s);
        return status;
    }
    if (s->remote) {
        s->transport->glance_user = s;
        /* G1: publishes glance_user; meets the acquire in the transport's I/O thread. */
        __atomic_store_n(&s->transport->glance, weir_host_call_glance, __ATOMIC_RELEASE);
    }
    *ret_session = s;
    return WEIR_OK;
}

void weir_session_end(struct weir_session *session)
{
    pthread_mutex_lock(&session->calls_lock);
    atomic_store(&session->ending, true);
    pthread_cond_broadcast(&session->calls_done);
    pthread_mutex_unlock(&session->calls_lock);
    weir_gate_session_wake(session);
}

enum weir_status weir_session_send(struct weir_session *session, struct weir_record *record,
                                   const void *bulk, size_t bulk_bytes)
{
    enum weir_status status;

    pthread_mutex_lock(&session->send_lock);
    record->deferred_seq = session->deferred_seq;
    record->deferred_error = session->deferred_error;
    record->sticky_error = (uint32_t)atomic_load(&session->worker->sticky);
    status =
        session->transport->ops->send(session->transport, record, bulk, bulk_bytes, SEND_WAIT_NS);
    pthread_mutex_unlock(&session->send_lock);
    if (status != WEIR_OK && !atomic_load(&session->ending)) {
        if (status != WEIR_ERR_CLOSED) {
            weir_log_warn("session: guest does not read, ended session=%llu tenant=%s why=\"%s\"",
                          (unsigned long long)session->id, session->tenant->name,
                          weir_status_text(status));
        }
        weir_session_end(session);
    }
    return status;
}

void weir_session_defer(struct weir_session *session, CUresult error)
{
    pthread_mutex_lock(&session->send_lock); /* a trampoline's record carries them too */
    session->deferred_error = (uint32_t)error;
    session->deferred_seq++;
    /* D1: publishes the error; meets the guest's acquire of the count. */
    __atomic_store_n(&session->view.header->deferred_error, session->deferred_error,
                     __ATOMIC_RELAXED);
    __atomic_store_n(&session->view.header->deferred_seq, session->deferred_seq, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&session->send_lock);
}

void weir_session_watch(struct weir_session *session, uint32_t word, uint32_t value)
{
    session->marks[session->n_marks++ % WEIR_MARKS_WATCHED] =
        (struct weir_recent_mark){word, value};
}

static bool word_reached(const struct weir_session *s, uint32_t word, uint32_t value)
{
    uint32_t now = __atomic_load_n(&s->view.words[word], __ATOMIC_ACQUIRE);

    return (int32_t)(now - value) >= 0;
}

static bool marks_open(struct weir_session *s)
{
    uint32_t n = s->n_marks < WEIR_MARKS_WATCHED ? s->n_marks : WEIR_MARKS_WATCHED;

    for (uint32_t i = 0; i < n; i++) {
        if (!word_reached(s, s->marks[i].word, s->marks[i].value)) {
            return true;
        }
    }
    s->n_marks = 0;
    return false;
}

/* ---------------------------------------------------------------- one record */

static bool grow_reply(struct weir_session *s, size_t bytes)
{
    uint8_t *bigger;

    if (bytes <= s->reply_room) {
        return true;
    }
    bigger = realloc(s->reply, bytes + 4096);
    if (bigger == NULL) {
        return false;
    }
    s->reply = bigger;
    s->reply_room = bytes + 4096;
    return true;
}

static void reply(struct weir_session *s, uint16_t op, uint64_t seq, CUresult result,
                  const void *out)
{
    const struct weir_op_info *info = &weir_ops[op];
    size_t body = result == CUDA_SUCCESS ? info->out_bytes(out) : 0;
    struct weir_record *record;

    if (body == WEIR_OP_BYTES_INVALID || body + sizeof *record > WEIR_RECORD_MAX_BYTES) {
        weir_log_error("session: reply cannot be encoded op=%s", info->name);
        body = 0;
        result = CUDA_ERROR_UNKNOWN;
    }
    if (!grow_reply(s, sizeof *record + body)) {
        weir_session_end(s);
        return;
    }
    record = (struct weir_record *)(void *)s->reply;
    *record = (struct weir_record){.len_bytes = (uint32_t)(sizeof *record + body),
                                   .op = op,
                                   .flags = WEIR_RECORD_REPLY,
                                   .seq = seq,
                                   .status = (int32_t)result};
    if (body != 0) {
        info->out_encode(out, record + 1);
    }
    (void)!weir_session_send(s, record, result == CUDA_SUCCESS ? s->reply_bulk : NULL,
                             result == CUDA_SUCCESS ? s->reply_bulk_bytes : 0);
}

static void protocol_error(struct weir_session *s, const struct weir_record *record,
                           const char *what)
{
    weir_log_warn("session: protocol broken, ended session=%llu tenant=%s op=%u why=\"%s\"",
                  (unsigned long long)s->id, s->tenant->name, record->op, what);
    weir_session_end(s);
}

/* Operations in which the driver waits for the device (device_idle.h). */
static bool waits_for_device(uint16_t op)
{
    switch ((int)op) {
    case WEIR_OP_ctx_destroy:
    case WEIR_OP_ctx_limit_set:
    case WEIR_OP_module_load:
    case WEIR_OP_library_load:
    case WEIR_OP_module_unload:
    case WEIR_OP_library_unload:
    case WEIR_OP_library_module:
    case WEIR_OP_module_function: /* loads a kernel's code, and a library into the context */
    case WEIR_OP_library_kernel:
    case WEIR_OP_module_global:
    case WEIR_OP_library_global:
        return true;
    default:
        return false;
    }
}

static CUresult run_handler(struct weir_session *s, uint16_t op, const union weir_op_any_in *in,
                            union weir_op_any_out *out)
{
    CUresult result;
    uint32_t idle;

    if (waits_for_device(op)) {
        weir_gate_idle(s);
        idle = weir_device_idle_begin(s->worker, s);
        result = weir_host_table[op](s, in, out);
        weir_device_idle_end(s->worker, idle);
        return result;
    }
    weir_device_barrier_enter(s);
    result = weir_host_table[op](s, in, out);
    weir_device_barrier_leave(s);
    return result;
}

static void handle(struct weir_session *s, const struct weir_record *record)
{
    bool posted = record->flags == WEIR_RECORD_POSTED;
    union weir_op_any_in in;
    union weir_op_any_out out;
    CUresult result;

    if (record->op >= WEIR_OP_COUNT || weir_host_table[record->op] == NULL) {
        protocol_error(s, record, "no such operation");
        return;
    }
    if (s->monitor && !weir_nvml_may_ask((enum weir_op)record->op)) {
        protocol_error(s, record, "not of a monitor");
        return;
    }
    if ((record->flags != 0 && !posted) || record->device >= s->worker->n_devices) {
        protocol_error(s, record, "impossible flags or device");
        return;
    }
    if (!weir_ops[record->op].in_decode(record + 1, record->len_bytes - sizeof *record, &in)) {
        protocol_error(s, record, "malformed body");
        return;
    }
    memset(&out, 0, weir_ops[record->op].out_struct_bytes);
    s->op = record->op;
    s->op_seq = record->seq;
    s->op_posted = posted;
    s->op_first = s->op_last = NULL;
    s->reply_bulk = NULL;
    s->reply_bulk_bytes = 0;
    s->answer_later = false;
    s->touched_bytes = 0;
    weir_arena_reset(&s->arena);
    atomic_fetch_add_explicit(&s->calls_total, 1, memory_order_relaxed);
    result = weir_session_enter(s, record->device);
    if (result == CUDA_SUCCESS) {
        result = run_handler(s, record->op, &in, &out);
    }
    if (__builtin_expect(s->touched_bytes != 0, 0)) {
        weir_forms_wrote_unseen(s);
    }
    if (result != CUDA_SUCCESS && weir_error_is_sticky(result)) {
        weir_worker_sticky(s->worker, result);
    }
    if (posted) {
        if (result != CUDA_SUCCESS) {
            weir_session_defer(s, result);
        }
    } else if (!s->answer_later || result != CUDA_SUCCESS) {
        reply(s, record->op, record->seq, result, &out);
    }
}

/* ---------------------------------------------------------------- between records */

void weir_session_answer_waits(struct weir_session *session)
{
    struct weir_session *s = session;
    CUresult sticky = (CUresult)atomic_load(&s->worker->sticky);

    for (uint32_t i = 0; i < s->n_waits;) {
        struct weir_word_wait wait = s->waits[i];

        if (sticky == CUDA_SUCCESS && !word_reached(s, wait.word, wait.value)) {
            i++;
            continue;
        }
        struct weir_op_word_wait_out out = {
            .value = __atomic_load_n(&s->view.words[wait.word], __ATOMIC_ACQUIRE)};

        s->waits[i] = s->waits[--s->n_waits];
        s->reply_bulk = NULL;
        s->reply_bulk_bytes = 0;
        reply(s, WEIR_OP_word_wait, wait.seq, sticky, &out); /* nobody writes it any more */
    }
}

/* Nothing came for a while, and a GPU owes us a word: are the contexts alive? */
static void look_at_context(struct weir_session *s)
{
    for (uint32_t i = 0; i < s->worker->n_devices; i++) {
        CUresult result = CUDA_SUCCESS;

        if (s->work_streams[i] != NULL) {
            result = s->driver->cuStreamQuery(s->work_streams[i]);
        }
        if (result != CUDA_SUCCESS && weir_error_is_sticky(result)) {
            weir_worker_sticky(s->worker, result);
        }
    }
}

/*
 * How long to spin for the next record. A guest that waits for the GPU sends its next work the
 * moment it sees the word, and waking a sleeping thread then costs 0.13 ms (a tenth of a 64 MiB
 * copy, H200, 16 cores, 2026-11-21): while a word is owed, spin longer, as the driver itself would.
 */
static uint64_t spin_for(struct weir_session *s)
{
    uint64_t spin_ns = s->worker->spin_ns;

    if (!weir_spin_host_may(s->worker->spin)) {
        return spin_ns < WEIR_SHORT_SPIN_NS ? spin_ns : WEIR_SHORT_SPIN_NS;
    }
    if (s->worker->owed_spin_ns > spin_ns && s->n_marks != 0 && marks_open(s)) {
        spin_ns = s->worker->owed_spin_ns;
    }
    return spin_ns;
}

/* Count the session active, and tell its guest whether it may wait by spinning. */
static void note_spin(struct weir_session *s)
{
    enum weir_spin_level level = weir_spin_note(s->worker->spin, &s->spin_epoch);
    uint32_t told = level == WEIR_SPIN_NOBODY ? WEIR_SEGMENT_SPIN_NO : WEIR_SEGMENT_SPIN_YES;

    if (s->remote || s->region_end != NULL) {
        return; /* its cores are not ours */
    }
    if (__atomic_load_n(&s->view.header->spin, __ATOMIC_RELAXED) != told) {
        __atomic_store_n(&s->view.header->spin, told, __ATOMIC_RELAXED);
    }
}

void weir_session_run(struct weir_session *session)
{
    uint64_t spin_ns = spin_for(session);
    bool open = false;
    bool given = false; /* work, since marks were last put behind it */

    while (!atomic_load_explicit(&session->ending, memory_order_relaxed)) {
        const struct weir_record *record;
        uint64_t wait_ns = open ? WATCH_WAIT_NS : IDLE_WAIT_NS;
        enum weir_status status;

        if (session->n_waits != 0) {
            wait_ns = POLL_WAIT_NS;
        }
        given = given && weir_gate_has_unmarked(session);
        if (given) {
            uint64_t quiet_ns = weir_gate_contends(session) ? GATE_SHARED_NS : GATE_SPIN_NS;

            spin_ns = spin_ns < quiet_ns ? spin_ns : quiet_ns;
            wait_ns = 0;
        }
        status = session->transport->ops->receive(session->transport, &record, &session->bulk,
                                                  &session->bulk_bytes, spin_ns, wait_ns);
        if (status == WEIR_ERR_TIMED_OUT && given) { /* nothing more at once: let its end be seen */
            weir_gate_idle(session);
            given = false;
            spin_ns = spin_for(session);
            continue;
        }
        if (status == WEIR_OK) {
            note_spin(session);
            handle(session, record);
            given = true;
            spin_ns = spin_for(session);
            open = true; /* looked at once nothing more comes */
        } else if (status == WEIR_ERR_TIMED_OUT) {
            open = marks_open(session);
            if (open) {
                look_at_context(session);
            }
            spin_ns = 0;
        } else {
            if (status == WEIR_ERR_PEER) {
                weir_log_warn("session: guest lies in its ring, ended session=%llu tenant=%s",
                              (unsigned long long)session->id, session->tenant->name);
            }
            break;
        }
        if (session->n_waits != 0) {
            weir_session_answer_waits(session);
        }
    }
    weir_session_end(session);
}

/* ---------------------------------------------------------------- the end */

/* Streams may be waiting for values that only this guest would have written. */
static void write_awaited(struct weir_session *s)
{
    uint32_t n = s->n_awaited < WEIR_AWAITED_MAX ? s->n_awaited : WEIR_AWAITED_MAX;
    CUstream work;

    if (n == 0 || weir_session_work_stream(s, &work) != CUDA_SUCCESS) {
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        const struct weir_awaited_value *a = &s->awaited[i];

        if (!weir_host_range_covers(&s->ranges, a->address, a->wide ? 8 : 4) ||
            !weir_session_vmm_make_writable(s, a->address, a->wide ? 8 : 4)) {
            continue; /* a write there would end the context of all tenants */
        }
        if (a->wide) {
            (void)s->driver->cuStreamWriteValue64_v2(work, a->address, a->value, 0);
        } else {
            (void)s->driver->cuStreamWriteValue32_v2(work, a->address, (uint32_t)a->value, 0);
        }
        (void)s->driver->cuStreamSynchronize(work);
    }
}

static bool stream_drained(struct weir_session *s, struct weir_host_stream *stream, uint64_t end_ns)
{
    CUgraph graph = NULL;

    (void)weir_session_enter(s, stream->o.device);
    if (stream->capturing) {
        if (s->driver->cuStreamEndCapture(stream->o.native, &graph) == CUDA_SUCCESS &&
            graph != NULL && weir_native_find(&s->natives, WEIR_KIND_GRAPH, graph) == NULL) {
            (void)s->driver->cuGraphDestroy(graph);
        }
        stream->capturing = false;
        s->n_captures--;
        atomic_fetch_sub(&s->worker->device_idle.captures, 1);
    }
    while (weir_host_stream_wait(s->driver, weir_host_stream_at(stream), DRAIN_STEP_NS) ==
           CUDA_ERROR_TIMEOUT) {
        if (weir_clock_now_ns() >= end_ns || atomic_load(&s->worker->sticky) != 0) {
            return false;
        }
        write_awaited(s);
    }
    return true;
}

/* Wait for all work of the session. A GPU that does not come back is given up as a whole. */
static void drain(struct weir_session *s)
{
    uint64_t end_ns = weir_clock_now_ns() + DRAIN_WAIT_NS;

    for (struct weir_host_ctx *ctx = s->contexts; ctx != NULL; ctx = ctx->next) {
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

static void end_device_idle(struct weir_session *s)
{
    if (s->device_idle_since_ns != 0) {
        s->device_idle_since_ns = 0;
        weir_device_idle_end(s->worker, s->device_idle);
    }
}

void weir_session_device_idle(struct weir_session *session)
{
    struct weir_session *s = session;

    if (s->device_idle_since_ns != 0 &&
        weir_clock_now_ns() - s->device_idle_since_ns > DEVICE_IDLE_NS) {
        end_device_idle(s);
    }
    if (s->goes && s->device_idle_since_ns == 0) {
        s->device_idle = weir_device_idle_begin(s->worker, s);
        s->device_idle_since_ns = weir_clock_now_ns();
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
    while (s->contexts != NULL) {
        weir_ctx_destroy(s, s->contexts);
    }
    for (int kind = 1; kind < WEIR_KIND_COUNT; kind++) {
        weir_host_objects_destroy_all(s, (enum weir_kind)kind, NULL);
    }
}

static void release_memory(struct weir_session *s)
{
    while (s->registrations != NULL) {
        weir_registration_drop(s, s->registrations);
    }
    weir_session_vmm_finish(s);
    while (s->grants != NULL) {
        weir_grant_drop(s, s->grants);
    }
    while (s->uploads != NULL) {
        struct weir_upload *upload = s->uploads;

        s->uploads = upload->next;
        free(upload->data);
        free(upload);
    }
}

void weir_session_destroy(struct weir_session *session)
{
    struct weir_session *s = session;
    uint32_t idle;

    if (s == NULL) {
        return;
    }
    weir_session_end(s);
    if (s->region_end != NULL) {
        weir_region_end_closing(s->region_end);
    }
    if (s->tables[WEIR_KIND_COUNT - 1] != NULL) {
        weir_forms_session_ends(s);
        weir_gate_session_ends(s);
        drain(s);
        weir_prints_forget(s, NULL);
        if (s->n_captures != 0) { /* the device does not come to rest before they end */
            weir_host_objects_destroy_all(s, WEIR_KIND_STREAM, NULL);
        }
        s->goes = true;
        destroy_objects(s);
        end_device_idle(s);
        weir_forms_session_gone(s);
    }
    weir_host_calls_finish(s);
    weir_gate_session_gone(s);
    release_memory(s);
    for (uint32_t i = 0; i < WEIR_DEVICES_MAX; i++) {
        if (s->work_streams[i] != NULL && weir_session_enter(s, i) == CUDA_SUCCESS) {
            (void)s->driver->cuStreamSynchronize(s->work_streams[i]);
            (void)s->driver->cuStreamDestroy_v2(s->work_streams[i]);
        }
    }
    idle = weir_device_idle_begin(s->worker, s);
    weir_session_unregister(s);
    weir_device_idle_end(s->worker, idle);
    weir_host_objects_finish(s);
    weir_host_range_finish(&s->ranges);
    weir_arena_finish(&s->arena);
    s->transport->ops->destroy(s->transport);
    pthread_cond_destroy(&s->calls_done);
    pthread_mutex_destroy(&s->calls_lock);
    pthread_mutex_destroy(&s->send_lock);
    free(s->stats);
    free(s->awaited);
    free(s->conditions);
    free(s->print_text);
    free(s->reply);
    free(s);
}
