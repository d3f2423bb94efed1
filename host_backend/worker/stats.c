/*
 * Statistics of guests' calls, which come from memory or records that the guest wrote: numbers may
 * be anything, names are cut to what a symbol may consist of.
 */
#include "host_backend/worker/stats.h"

#include "base/clock.h"
#include "host_backend/config/status_text.h"
#include "host_backend/forms/forms.h"
#include "host_backend/hand/hand.h"
#include "host_backend/worker/session.h"
#include "host_backend/worker/worker.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define FILE_MAX_BYTES (8l << 20)

struct weir_ended_session {
    struct weir_ended_session *next;
    struct weir_status_counted about;
    struct weir_stats_set *set;
    uint64_t launched[WEIR_FORMS_LAUNCHED_COUNT];
};

/* A name that a guest may be changing right now: up to the first byte that no symbol has. */
static void take_name(char ret_name[WEIR_STATS_NAME_BYTES], const char *from)
{
    size_t n = 0;

    for (; n < WEIR_STATS_NAME_BYTES - 1; n++) {
        char c = ((const volatile char *)from)[n];

        if (!isalnum((unsigned char)c) && c != '_') {
            break;
        }
        ret_name[n] = c;
    }
    memset(ret_name + n, 0, WEIR_STATS_NAME_BYTES - n);
}

static uint64_t take(const uint64_t *from)
{
    return __atomic_load_n(from, __ATOMIC_RELAXED);
}

static void add_counts(struct weir_stats_counts *sum, const struct weir_stats_counts *part)
{
    uint64_t max_ns = take(&part->max_ns);

    sum->guest += take(&part->guest);
    sum->posted += take(&part->posted);
    sum->waited += take(&part->waited);
    sum->wait_ns += take(&part->wait_ns);
    sum->busy_ns += take(&part->busy_ns);
    sum->max_ns = sum->max_ns < max_ns ? max_ns : sum->max_ns;
}

static bool was_called(const struct weir_stats_counts *c)
{
    return (c->guest | c->posted | c->waited) != 0;
}

static struct weir_stats_set *new_set(size_t n)
{
    return calloc(1, sizeof(struct weir_stats_set) + n * sizeof(struct weir_stats_row));
}

struct weir_stats_set *weir_stats_read_page(const struct weir_stats_page *page)
{
    struct weir_stats_set *set;
    uint32_t n;

    /* T1: meets the guest's release once the names are there. */
    if (page == NULL || __atomic_load_n(&page->magic, __ATOMIC_ACQUIRE) != WEIR_STATS_MAGIC) {
        return NULL;
    }
    n = __atomic_load_n(&page->n_functions, __ATOMIC_RELAXED);
    if (n > WEIR_STATS_MAX_FUNCTIONS) {
        return NULL;
    }
    set = new_set(n);
    for (uint32_t i = 0; set != NULL && i < n; i++) {
        struct weir_stats_row row = {0};

        for (int block = 0; block < WEIR_STATS_BLOCKS; block++) {
            add_counts(&row.counts, &page->blocks[block][i]);
        }
        take_name(row.name, page->names[i]);
        if (was_called(&row.counts) && row.name[0] != 0) {
            set->rows[set->n++] = row;
        }
    }
    return set;
}

struct weir_stats_set *weir_stats_read_rows(const void *data, size_t bytes)
{
    size_t n = bytes / sizeof(struct weir_stats_row);
    struct weir_stats_set *set = n <= WEIR_STATS_MAX_FUNCTIONS ? new_set(n) : NULL;

    for (size_t i = 0; set != NULL && i < n; i++) {
        struct weir_stats_row from, *to = &set->rows[set->n];

        memcpy(&from, (const char *)data + i * sizeof from, sizeof from);
        take_name(to->name, from.name);
        to->counts = from.counts;
        set->n += was_called(&to->counts) && to->name[0] != 0;
    }
    return set;
}

CUresult weir_host_stats_put(struct weir_session *s, const struct weir_op_stats_put_in *in,
                             struct weir_op_stats_put_out *out)
{
    struct weir_stats_set *set, *old;

    (void)out;
    if (!s->remote) {
        return CUDA_ERROR_NOT_SUPPORTED; /* its page says it */
    }
    set = weir_stats_read_rows(in->data, in->n_data);
    if (set == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    pthread_mutex_lock(&s->worker->lock);
    old = s->stats;
    s->stats = set;
    pthread_mutex_unlock(&s->worker->lock);
    free(old);
    return CUDA_SUCCESS;
}

/* ---------------------------------------------------------------- sessions */

static struct weir_status_counted describe(const struct weir_session *s)
{
    struct weir_status_counted about = {.id = s->id, .pid = (uint64_t)s->pid};

    snprintf(about.tenant, sizeof about.tenant, "%s", s->tenant->name);
    snprintf(about.program, sizeof about.program, "%s", s->program);
    snprintf(about.transport, sizeof about.transport, "%s", s->transport->ops->name);
    about.age_s = (double)(weir_clock_now_ns() - s->started_ns) / (double)WEIR_NS_PER_S;
    return about;
}

static void read_launched(const struct weir_session *s, uint64_t *ret_launched)
{
    for (size_t i = 0; i < WEIR_FORMS_LAUNCHED_COUNT; i++) {
        ret_launched[i] = atomic_load_explicit(&s->launched[i], memory_order_relaxed);
    }
}

void weir_stats_keep_locked(struct weir_session *session)
{
    struct weir_ended_session *ended = calloc(1, sizeof *ended), **at;
    int n = 0;

    if (ended == NULL) {
        return;
    }
    ended->about = describe(session);
    ended->about.ended = 1;
    ended->set = session->remote ? session->stats : weir_stats_read_page(session->view.stats);
    session->stats = NULL;
    read_launched(session, ended->launched);
    ended->next = session->worker->ended;
    session->worker->ended = ended;
    for (at = &session->worker->ended; *at != NULL && n < WEIR_STATS_ENDED_MAX; n++) {
        at = &(*at)->next;
    }
    if (*at != NULL) {
        free((*at)->set);
        free(*at);
        *at = NULL;
    }
}

void weir_stats_finish(struct weir_worker *worker)
{
    while (worker->ended != NULL) {
        struct weir_ended_session *ended = worker->ended;

        worker->ended = ended->next;
        free(ended->set);
        free(ended);
    }
}

static void write_set(FILE *out, const struct weir_status_counted *about, const uint64_t *launched,
                      const struct weir_stats_set *set)
{
    if (ftell(out) > FILE_MAX_BYTES) {
        return;
    }
    weir_status_text_counted(out, about);
    weir_forms_write_launched(out, launched);
    for (size_t i = 0; set != NULL && i < set->n; i++) {
        const struct weir_stats_counts *c = &set->rows[i].counts;
        struct weir_status_function row = {.guest = c->guest,
                                           .posted = c->posted,
                                           .waited = c->waited,
                                           .wait_ns = c->wait_ns,
                                           .max_ns = c->max_ns,
                                           .busy_ns = c->busy_ns};

        memcpy(row.name, set->rows[i].name, sizeof row.name);
        weir_status_text_function(out, &row);
    }
}

static void write_live(FILE *out, const struct weir_session *s)
{
    struct weir_status_counted about = describe(s);
    uint64_t launched[WEIR_FORMS_LAUNCHED_COUNT];

    read_launched(s, launched);
    if (s->remote) {
        write_set(out, &about, launched, s->stats);
    } else {
        struct weir_stats_set *set = weir_stats_read_page(s->view.stats);

        write_set(out, &about, launched, set);
        free(set);
    }
}

static void write_predictions(FILE *out, struct weir_worker *worker)
{
    for (uint32_t i = 0; i < worker->n_devices; i++) {
        struct weir_status_prediction row = {.device = (uint32_t)worker->devices[i].cu};

        snprintf(row.worker, sizeof row.worker, "%.63s", worker->config.name);
        if (weir_gates_prediction(worker, i, &row)) {
            weir_status_text_prediction(out, &row);
        }
    }
}

int weir_stats_file(struct weir_worker *worker)
{
    int fd = memfd_create("weir-stats", MFD_CLOEXEC);
    int copy = fd >= 0 ? dup(fd) : -1;
    FILE *out = copy >= 0 ? fdopen(copy, "w") : NULL;

    if (out == NULL) {
        if (copy >= 0) {
            close(copy);
        }
        if (fd >= 0) {
            close(fd);
        }
        return -1;
    }
    pthread_mutex_lock(&worker->lock);
    for (const struct weir_session *s = worker->sessions; s != NULL; s = s->next) {
        write_live(out, s);
    }
    for (const struct weir_ended_session *e = worker->ended; e != NULL; e = e->next) {
        write_set(out, &e->about, e->launched, e->set);
    }
    pthread_mutex_unlock(&worker->lock);
    write_predictions(out, worker);
    weir_forms_write_runs(out, worker->forms);
    fclose(out);
    return fd;
}
