/*
 * Finds out whose kernel ended the contexts: see fault.h.
 *
 * The report is made once for each worker, by the thread that meets the error first. It reads the
 * streams of all sessions: those in the worker's list, under the worker's lock, and each session's
 * streams under a lock of their own, because a session destroys streams without the worker's lock.
 */
#include "host_backend/worker/device/fault.h"

#include "base/log.h"
#include "base/text.h"
#include "base/thread.h"
#include "host_backend/config/link.h"
#include "host_backend/worker/device/mark.h"
#include "host_backend/worker/device/streams.h"
#include "host_backend/worker/state/host_calls.h"
#include "host_backend/worker/state/tenant.h"
#include "host_backend/worker/state/worker.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME_BYTES    (WEIR_FAULT_NAME_WORDS * 8u)
#define VISIBLE_BYTES (4u * NAME_BYTES) /* each byte of a name may become \xNN */

struct weir_session_faults {
    bool graphs_may_assert; /* used by the session's thread alone */
    pthread_mutex_t lock;   /* guards what follows */
    struct weir_fault_stream *streams;
};

struct weir_session_faults *weir_session_faults_create(void)
{
    struct weir_session_faults *faults = calloc(1, sizeof *faults);

    if (faults) {
        pthread_mutex_init(&faults->lock, NULL);
    }
    return faults;
}

void weir_session_faults_destroy(struct weir_session_faults *faults)
{
    if (faults) {
        pthread_mutex_destroy(&faults->lock);
        free(faults);
    }
}

/* ---------------------------------------------------------------- asserts */

static struct weir_host_stream *stream_of(struct weir_fault_stream *fault)
{
    return (struct weir_host_stream *)((char *)fault - offsetof(struct weir_host_stream, fault));
}

/* Is all work of an unchecked stream done? The marks cannot tell: after a failed assert they may
 * say that it is not. */
static bool is_done(struct weir_session *session, struct weir_fault_stream *fault)
{
    const struct weir_host_stream *stream = stream_of(fault);

    return weir_session_enter(session, stream->o.device) == CUDA_SUCCESS &&
           session->driver->cuStreamQuery(weir_host_stream_at(stream)) == CUDA_SUCCESS;
}

/* Make the driver look for failed asserts. Waiting for any stream of the context makes it look; a
 * query does not always. So this waits for a stream that has no work. */
static CUresult look_for_asserts(struct weir_session *session)
{
    CUstream idle;
    CUresult result = weir_session_work_stream(session, &idle);

    return result == CUDA_SUCCESS ? session->driver->cuStreamSynchronize(idle) : result;
}

CUresult weir_fault_check_asserts(struct weir_session *session)
{
    CUresult result = CUDA_SUCCESS;
    uint32_t device = session->device;
    bool left = false;

    if (session->n_captures != 0) {
        return CUDA_SUCCESS; /* a query of a stream under capture might break the capture */
    }
    /* Only this thread changes the list. */
    for (struct weir_fault_stream *s = session->faults->streams; s && !weir_error_is_sticky(result);
         s = s->next) {
        if (atomic_load_explicit(&s->unchecked, memory_order_relaxed)) {
            bool done = is_done(session, s); /* before the look, which covers ended work */

            result = look_for_asserts(session);
            done = done && result == CUDA_SUCCESS;
            atomic_store_explicit(&s->unchecked, !done, memory_order_relaxed);
            left |= !done;
        }
    }
    (void)weir_session_enter(session, device);
    weir_session_show_unchecked(session, left);
    return weir_error_is_sticky(result) ? result : CUDA_SUCCESS;
}

/* ---------------------------------------------------------------- the work of streams */

static void store_name(struct weir_fault_stream *stream, const char *name)
{
    uint64_t words[WEIR_FAULT_NAME_WORDS] = {0};
    size_t n = name ? strnlen(name, NAME_BYTES - 1) : 0;

    memcpy(words, name ? name : "", n);
    for (size_t i = 0; i <= n / 8; i++) { /* stop behind the word that holds the NUL */
        atomic_store_explicit(&stream->name[i], words[i], memory_order_relaxed);
    }
}

void weir_fault_kernel_given(struct weir_session *session, struct weir_host_stream *stream,
                             const char *name, uint64_t key, bool may_assert)
{
    struct weir_session_faults *faults = session->faults;

    if ((may_assert || (key == 0 && faults->graphs_may_assert)) &&
        session->worker->config.under_mps) {
        atomic_store_explicit(&stream->fault.unchecked, true, memory_order_relaxed);
        weir_session_show_unchecked(session, true);
    }
    if (stream->fault.key != key) {
        stream->fault.key = key;
        store_name(&stream->fault, name);
    }
    weir_mark_kernel_given(&stream->gate.word, 1);
    if (!stream->fault.listed) {
        stream->fault.listed = true;
        stream->fault.marks = &stream->gate.word;
        pthread_mutex_lock(&faults->lock);
        stream->fault.next = faults->streams;
        faults->streams = &stream->fault;
        pthread_mutex_unlock(&faults->lock);
    }
}

void weir_fault_kernel_in_graph(struct weir_session *session, bool may_assert)
{
    session->faults->graphs_may_assert |= may_assert;
}

void weir_fault_kernel_refused(struct weir_host_stream *stream)
{
    weir_mark_kernel_given(&stream->gate.word, -1);
}

void weir_fault_stream_gone(struct weir_session *session, struct weir_host_stream *stream)
{
    struct weir_session_faults *faults = session->faults;
    struct weir_fault_stream **at;

    if (!stream->fault.listed) {
        return;
    }
    pthread_mutex_lock(&faults->lock);
    for (at = &faults->streams; *at != &stream->fault; at = &(*at)->next) {
    }
    *at = stream->fault.next;
    pthread_mutex_unlock(&faults->lock);
    stream->fault.listed = false;
}

/* ---------------------------------------------------------------- unfinished kernels */

/* Make a name fit for a quoted value of a log line. */
static void quotable(const char *name, char *text, size_t bytes)
{
    (void)weir_text_visible(name, text, bytes);
    for (char *quote = text; (quote = strchr(quote, '"'));) {
        *quote = '\'';
    }
}

static void load_name(const struct weir_fault_stream *stream, char *text, size_t bytes)
{
    char name[NAME_BYTES + 1];

    for (size_t i = 0; i < WEIR_FAULT_NAME_WORDS; i++) {
        uint64_t word = atomic_load_explicit(&stream->name[i], memory_order_relaxed);

        memcpy(name + 8 * i, &word, sizeof word);
    }
    name[NAME_BYTES] = 0;
    if (name[0] == 0) {
        snprintf(text, bytes, "(a graph)");
    } else {
        quotable(name, text, bytes);
    }
}

bool weir_fault_kernels(const struct weir_session *session, char *text, size_t bytes)
{
    struct weir_session_faults *faults = session->faults;
    char name[VISIBLE_BYTES];
    size_t used = 0;
    bool any = false;

    text[0] = 0;
    WEIR_LOCKED(&faults->lock);
    for (const struct weir_fault_stream *s = faults->streams; s; s = s->next) {
        if (!weir_mark_kernels_pending(s->marks) &&
            !atomic_load_explicit(&s->unchecked, memory_order_relaxed)) {
            continue;
        }
        load_name(s, name, sizeof name);
        if (used + 2 + strlen(name) < bytes) {
            used += (size_t)snprintf(text + used, bytes - used, "%s%s", any ? ", " : "", name);
        }
        any = true;
    }
    return any;
}

/* "tenant=a program=x kernels=k, l", fit for a quoted value of a log line. */
static size_t describe(const struct weir_session *s, char *text, size_t bytes)
{
    char kernels[WEIR_FAULT_TEXT_BYTES], program[2 * WEIR_HOST_TEXT_BYTES];
    bool any = weir_fault_kernels(s, kernels, sizeof kernels), calls = weir_host_calls_any(s);

    if (!any && !calls) {
        return 0;
    }
    quotable(weir_session_program(s), program, sizeof program);
    int n = snprintf(text, bytes, "tenant=%s program=%s%s%s%s", s->tenant->name, program,
                     any ? " kernels=" : "", kernels, calls ? " host_function=1" : "");
    return n > 0 ? (size_t)n : 0;
}

void weir_fault_running(struct weir_worker *worker, char *text, size_t bytes)
{
    size_t used = 0;

    text[0] = 0;
    WEIR_LOCKED(&worker->lock);
    for (const struct weir_session *s = worker->sessions; s && used + 3 < bytes; s = s->next) {
        size_t gap = used != 0 ? 2 : 0;
        size_t n = describe(s, text + used + gap, bytes - used - gap);

        if (n != 0) {
            memcpy(text + used, "; ", gap);
            used += gap + n;
        } else {
            text[used] = 0;
        }
    }
}

/* ---------------------------------------------------------------- the report */

/* Tenants by index. Filled under the worker's lock. */
struct suspects {
    bool tenant[WEIR_CONFIG_TENANTS_MAX];
    uint32_t n_tenants, n_sessions;
    char names[WEIR_FAULT_TEXT_BYTES]; /* "tenant=a", or "one of tenant=a tenant=b" */
};

static void add_suspect(struct suspects *suspects, const struct weir_tenant *tenant)
{
    suspects->n_tenants += !suspects->tenant[tenant->index];
    suspects->tenant[tenant->index] = true;
    suspects->n_sessions++;
}

static void name_suspects(const struct weir_worker *worker, struct suspects *suspects)
{
    size_t used = (size_t)snprintf(suspects->names, sizeof suspects->names, "%s",
                                   suspects->n_tenants > 1    ? "one of"
                                   : suspects->n_tenants == 0 ? "not known"
                                                              : "");

    for (uint32_t i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        if (suspects->tenant[i] && used < sizeof suspects->names) {
            used += (size_t)snprintf(suspects->names + used, sizeof suspects->names - used,
                                     "%stenant=%s", used == 0 ? "" : " ", worker->tenants[i]->name);
        }
    }
}

/* May the session have caused the fault? @param culprit the session that caused it; NULL:
 * unknown */
static bool is_suspect(const struct weir_session *s, const struct weir_session *culprit,
                       char *kernels, size_t bytes)
{
    bool has_kernels = weir_fault_kernels(s, kernels, bytes);

    return culprit ? s == culprit : has_kernels;
}

static void find_suspects_locked(const struct weir_worker *worker,
                                 const struct weir_session *culprit, struct suspects *suspects)
{
    char kernels[WEIR_FAULT_TEXT_BYTES];

    for (const struct weir_session *s = worker->sessions; s; s = s->next) {
        if (is_suspect(s, culprit, kernels, sizeof kernels)) {
            add_suspect(suspects, s->tenant);
        }
    }
    name_suspects(worker, suspects);
}

struct report {
    CUresult error;
    const struct weir_session *reporter; /* the session whose call met the error; NULL: none did */
    const struct weir_session *culprit;  /* NULL: not known yet */
    bool given_up;                       /* the work took too long, and there was no fault */
    bool elsewhere;                      /* the fault was in another worker */
};

/* Log a line for each program of the worker: its work on the GPU, or that it did not cause the
 * fault. */
static void log_sessions_locked(const struct weir_worker *worker, const struct report *report,
                                const struct suspects *suspects)
{
    char kernels[WEIR_FAULT_TEXT_BYTES], program[2 * WEIR_HOST_TEXT_BYTES];

    for (const struct weir_session *s = worker->sessions; s; s = s->next) {
        if (weir_session_is_monitor(s)) {
            continue;
        }
        quotable(weir_session_program(s), program, sizeof program);
        if (is_suspect(s, report->culprit, kernels, sizeof kernels) && suspects->n_tenants != 0) {
            weir_log_error("fault: %s session=%llu tenant=%s program=\"%s\" kernels=\"%s\"%s",
                           worker->config.under_mps && !report->culprit ? "may be caused by"
                           : suspects->n_sessions > 1 ? "caused by one of those with kernels:"
                                                      : "caused by",
                           (unsigned long long)s->id, s->tenant->name, program, kernels,
                           s == report->reporter ? " (its call met the error first)" : "");
        } else {
            weir_log_error("fault: ends a session that %s not to blame session=%llu tenant=%s "
                           "program=\"%s\" cause=\"%s\"",
                           report->elsewhere ? "may be" : "is", (unsigned long long)s->id,
                           s->tenant->name, program, suspects->names);
        }
    }
}

static void tell_supervisor(const struct weir_worker *worker, const struct suspects *suspects,
                            CUresult error)
{
    for (uint32_t i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        struct weir_link_message message = {.type = WEIR_LINK_FAULT};

        if (suspects->tenant[i]) {
            message.fault = (struct weir_link_fault){
                .tenant_index = i,
                .generation = worker->tenants[i]->generation,
                .error = (int32_t)error,
                .n_suspects = suspects->n_tenants,
                .marks = worker->platform.devices[0].write_value_ok && worker->gates[0]};
            weir_worker_tell(worker, &message);
        }
    }
}

static const char *error_name(const struct weir_worker *worker, CUresult error)
{
    const char *name = NULL;

    return worker->platform.driver.cuGetErrorName &&
                   worker->platform.driver.cuGetErrorName(error, &name) == CUDA_SUCCESS && name
               ? name
               : "unknown";
}

static void report_locked(struct weir_worker *worker, const struct report *report)
{
    struct suspects suspects = {.n_tenants = 0};

    if (report->error == CUDA_ERROR_ECC_UNCORRECTABLE) {
        snprintf(suspects.names, sizeof suspects.names, "the GPU's memory");
    } else if (report->elsewhere) {
        snprintf(suspects.names, sizeof suspects.names, "a program of the same MPS server");
    } else {
        find_suspects_locked(worker, report->culprit, &suspects);
    }
    weir_log_error("fault: the GPU context %s, all its sessions end result=%d name=%s cause=\"%s\"",
                   report->given_up ? "is given up" : "died", (int)report->error,
                   error_name(worker, report->error), suspects.names);
    log_sessions_locked(worker, report, &suspects);
    if (!report->elsewhere &&
        (!report->given_up || !worker->config.alone)) { /* else no other session was affected */
        tell_supervisor(worker, &suspects, report->error);
    }
}

static void end_context(struct weir_worker *worker, const struct report *report)
{
    uint64_t one = 1;
    int none = 0;

    if (!atomic_compare_exchange_strong(&worker->sticky, &none, (int)report->error)) {
        return;
    }
    pthread_mutex_lock(&worker->lock);
    report_locked(worker, report);
    for (struct weir_session *s = worker->sessions; s; s = s->next) {
        weir_session_show_sticky(s, report->error);
    }
    pthread_mutex_unlock(&worker->lock);
    if (worker->wake_fd >= 0) {
        (void)!write(worker->wake_fd, &one, sizeof one);
    }
}

void weir_session_fault(struct weir_session *session, CUresult error)
{
    /* Under MPS an assert only ends its own client; any client may have caused another fault. */
    bool own = error == CUDA_ERROR_ASSERT && session->worker->config.under_mps;
    const struct report report = {
        .error = error, .reporter = session, .culprit = own ? session : NULL};

    end_context(session->worker, &report);
}

void weir_worker_fault_elsewhere(struct weir_worker *worker)
{
    /* Every client of the server gets this error, whatever the cause. */
    const struct report report = {.error = CUDA_ERROR_ILLEGAL_ADDRESS, .elsewhere = true};

    end_context(worker, &report);
}

void weir_session_look_at_contexts(struct weir_session *session)
{
    for (uint32_t i = 0; i < session->platform->n_devices; i++) {
        CUstream stream = session->devices.work_streams[i];
        CUresult result = stream ? session->driver->cuStreamQuery(stream) : CUDA_SUCCESS;

        if (result != CUDA_SUCCESS && weir_error_is_sticky(result)) {
            weir_session_fault(session, result);
        }
    }
}
void weir_session_overdue(struct weir_session *session)
{
    const struct report report = {
        .error = CUDA_ERROR_LAUNCH_TIMEOUT, .culprit = session, .given_up = true};

    end_context(session->worker, &report);
}
