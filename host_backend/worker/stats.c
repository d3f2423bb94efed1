/* Statistics of sessions, live and ended, as `weir stats` asks for them. */
#include "host_backend/worker/stats.h"
#include "host_backend/worker/session/about.h"
#include "host_backend/worker/session/gates.h"
#include "host_backend/worker/session/tenant.h"

#include "base/clock.h"
#include "host_backend/config/status_text.h"
#include "host_backend/worker/session/channel.h"
#include "host_backend/worker/session/session.h"
#include "host_backend/worker/session/stats_page.h"
#include "host_backend/worker/session/worker.h"
#include "host_backend/worker/twins/forms.h"
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

static struct weir_status_counted describe(const struct weir_session *s)
{
    struct weir_status_counted about = {.id = s->id, .pid = (uint64_t)s->about->pid};

    snprintf(about.tenant, sizeof about.tenant, "%s", s->tenant->name);
    snprintf(about.program, sizeof about.program, "%s", s->about->program);
    snprintf(about.transport, sizeof about.transport, "%s", weir_session_transport_name(s));
    about.age_s = (double)(weir_clock_now_ns() - s->about->started_ns) / (double)WEIR_NS_PER_S;
    return about;
}

static void read_launched(const struct weir_session *s, uint64_t *ret_launched)
{
    for (size_t i = 0; i < WEIR_FORMS_LAUNCHED_COUNT; i++) {
        ret_launched[i] = atomic_load_explicit(&s->about->launched[i], memory_order_relaxed);
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
    ended->set = session->channel->remote ? session->about->stats
                                          : weir_stats_read_page(session->channel->view.stats);
    session->about->stats = NULL;
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
    if (s->channel->remote) {
        write_set(out, &about, launched, s->about->stats);
    } else {
        struct weir_stats_set *set = weir_stats_read_page(s->channel->view.stats);

        write_set(out, &about, launched, set);
        free(set);
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
    weir_forms_write_runs(out, worker->forms);
    fclose(out);
    return fd;
}
