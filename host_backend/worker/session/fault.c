/*
 * Whose kernel ended the contexts: see fault.h.
 *
 * The report is made once for each worker, by the thread that meets the error first. It reads the
 * streams of all sessions: those in the worker's list, under the worker's lock, and each session's
 * streams under a lock of their own, because a session destroys streams without the worker's lock.
 */
#include "host_backend/worker/session/fault.h"

#include "base/log.h"
#include "base/text.h"
#include "host_backend/config/link.h"
#include "host_backend/worker/session/mark.h"
#include "host_backend/worker/session/object_types.h"
#include "host_backend/worker/session/tenant.h"
#include "host_backend/worker/session/worker.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME_BYTES    (WEIR_FAULT_NAME_WORDS * 8u)
#define VISIBLE_BYTES (4u * NAME_BYTES) /* each byte may become \xNN */

struct weir_session_faults {
    pthread_mutex_t lock; /* guards what follows */
    struct weir_fault_stream *streams;
};

struct weir_session_faults *weir_session_faults_create(void)
{
    struct weir_session_faults *faults = calloc(1, sizeof *faults);

    if (faults != NULL) {
        pthread_mutex_init(&faults->lock, NULL);
    }
    return faults;
}

void weir_session_faults_destroy(struct weir_session_faults *faults)
{
    if (faults != NULL) {
        pthread_mutex_destroy(&faults->lock);
        free(faults);
    }
}

/* ---------------------------------------------------------------- what streams were given */

static void store_name(struct weir_fault_stream *stream, const char *name)
{
    uint64_t words[WEIR_FAULT_NAME_WORDS] = {0};
    size_t n = name != NULL ? strnlen(name, NAME_BYTES - 1) : 0;

    memcpy(words, name != NULL ? name : "", n);
    for (size_t i = 0; i <= n / 8; i++) { /* up to the word with the NUL */
        atomic_store_explicit(&stream->name[i], words[i], memory_order_relaxed);
    }
}

void weir_fault_kernel_given(struct weir_session *session, struct weir_host_stream *stream,
                             const char *name)
{
    struct weir_session_faults *faults = session->faults;

    store_name(&stream->fault, name);
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

/* Fit for a quoted value of a log line. */
static void quotable(const char *name, char *text, size_t bytes)
{
    (void)weir_text_visible(name, text, bytes);
    for (char *quote = text; (quote = strchr(quote, '"')) != NULL;) {
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
    pthread_mutex_lock(&faults->lock);
    for (const struct weir_fault_stream *s = faults->streams; s != NULL; s = s->next) {
        if (!weir_mark_kernels_pending(s->marks)) {
            continue;
        }
        load_name(s, name, sizeof name);
        if (used + 2 + strlen(name) < bytes) {
            used += (size_t)snprintf(text + used, bytes - used, "%s%s", any ? ", " : "", name);
        }
        any = true;
    }
    pthread_mutex_unlock(&faults->lock);
    return any;
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

static void find_suspects_locked(const struct weir_worker *worker, struct suspects *suspects)
{
    char kernels[WEIR_FAULT_TEXT_BYTES];

    for (const struct weir_session *s = worker->sessions; s != NULL; s = s->next) {
        if (weir_fault_kernels(s, kernels, sizeof kernels)) {
            add_suspect(suspects, s->tenant);
        }
    }
    name_suspects(worker, suspects);
}

/* One line for each program of the worker: what it had on the GPU, or that it is not to blame. */
static void log_sessions_locked(const struct weir_worker *worker,
                                const struct weir_session *reporter,
                                const struct suspects *suspects)
{
    char kernels[WEIR_FAULT_TEXT_BYTES], program[2 * WEIR_HOST_TEXT_BYTES];

    for (const struct weir_session *s = worker->sessions; s != NULL; s = s->next) {
        if (weir_session_is_monitor(s)) {
            continue;
        }
        quotable(weir_session_program(s), program, sizeof program);
        if (weir_fault_kernels(s, kernels, sizeof kernels)) {
            weir_log_error("fault: %s session=%llu tenant=%s program=\"%s\" kernels=\"%s\"%s",
                           suspects->n_sessions > 1 ? "caused by one of those with kernels:"
                                                    : "caused by",
                           (unsigned long long)s->id, s->tenant->name, program, kernels,
                           s == reporter ? " (its call met the error first)" : "");
        } else {
            weir_log_error("fault: ends a session that had no kernel on the GPU session=%llu "
                           "tenant=%s program=\"%s\" cause=\"%s\"",
                           (unsigned long long)s->id, s->tenant->name, program, suspects->names);
        }
    }
}

static void tell_supervisor(const struct weir_worker *worker, const struct suspects *suspects,
                            CUresult error)
{
    for (uint32_t i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        struct weir_link_message message = {.type = WEIR_LINK_FAULT};

        if (suspects->tenant[i]) {
            message.fault = (struct weir_link_fault){.tenant_index = i,
                                                     .goings = worker->tenants[i]->goings,
                                                     .error = (int32_t)error,
                                                     .n_suspects = suspects->n_tenants};
            (void)!weir_link_send(worker->link, &message, -1); /* a lost link: it is gone, too */
        }
    }
}

static const char *error_name(const struct weir_worker *worker, CUresult error)
{
    const char *name = NULL;

    return worker->driver.cuGetErrorName != NULL &&
                   worker->driver.cuGetErrorName(error, &name) == CUDA_SUCCESS && name != NULL
               ? name
               : "unknown";
}

/* Uncorrectable memory is the hardware's fault. */
static bool has_culprit(CUresult error)
{
    return error != CUDA_ERROR_ECC_UNCORRECTABLE;
}

static void report(struct weir_worker *worker, const struct weir_session *reporter, CUresult error)
{
    struct suspects suspects = {.n_tenants = 0};
    uint64_t one = 1;

    pthread_mutex_lock(&worker->lock);
    if (has_culprit(error)) {
        find_suspects_locked(worker, &suspects);
    } else {
        snprintf(suspects.names, sizeof suspects.names, "the GPU's memory");
    }
    weir_log_error(
        "fault: the GPU context died, all its sessions end result=%d name=%s cause=\"%s\"",
        (int)error, error_name(worker, error), suspects.names);
    log_sessions_locked(worker, reporter, &suspects);
    tell_supervisor(worker, &suspects, error);
    for (struct weir_session *s = worker->sessions; s != NULL; s = s->next) {
        weir_session_show_sticky(s, error);
    }
    pthread_mutex_unlock(&worker->lock);
    if (worker->wake_fd >= 0) {
        (void)!write(worker->wake_fd, &one, sizeof one);
    }
}

void weir_session_fault(struct weir_session *session, CUresult error)
{
    int none = 0;

    if (atomic_compare_exchange_strong(&session->worker->sticky, &none, (int)error)) {
        report(session->worker, session, error);
    }
}
