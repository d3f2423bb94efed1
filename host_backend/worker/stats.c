/* The worker's reports to the supervisor: statistics of its sessions, live and ended, for `weir
 * stats`, and the rows of `weir status` and of the metrics. */
#include "host_backend/worker/stats.h"

#include "host_backend/worker/code/images.h"
#include "host_backend/worker/device/device.h"
#include "host_backend/worker/device/gates.h"
#include "host_backend/worker/session/book.h"
#include "host_backend/worker/state/about.h"
#include "host_backend/worker/state/suspension.h"
#include "host_backend/worker/state/tenant.h"

#include "base/clock.h"
#include "host_backend/config/status_text.h"
#include "host_backend/worker/device/device_status.h"
#include "host_backend/worker/session/stats_page.h"
#include "host_backend/worker/state/channel.h"
#include "host_backend/worker/state/ending.h"
#include "host_backend/worker/state/session.h"
#include "host_backend/worker/state/worker.h"
#include "host_backend/worker/twins/forms.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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
    snprintf(about.transport, sizeof about.transport, "%s", s->channel->transport->ops->name);
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

    if (!ended) {
        return;
    }
    ended->about = describe(session);
    ended->about.ended = 1;
    ended->set = session->channel->remote ? session->about->stats
                                          : weir_stats_read_page(session->channel->view.stats);
    session->about->stats = NULL;
    read_launched(session, ended->launched);
    WEIR_PUSH(session->worker->ended, ended);
    for (at = &session->worker->ended; *at && n < WEIR_STATS_ENDED_MAX; n++) {
        at = &(*at)->next;
    }
    if (*at) {
        free((*at)->set);
        free(*at);
        *at = NULL;
    }
}

void weir_stats_finish(struct weir_worker *worker)
{
    for (struct weir_ended_session *ended; (ended = WEIR_POP(worker->ended));) {
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
    for (size_t i = 0; set && i < set->n; i++) {
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

/* Make a file with the statistics of all sessions. @return NULL: it could not be made */
static FILE *stats_file(struct weir_worker *worker)
{
    FILE *out = weir_status_text_file();

    WEIR_FAIL_IF(!out, NULL);
    pthread_mutex_lock(&worker->lock);
    for (const struct weir_session *s = worker->sessions; s; s = s->next) {
        write_live(out, s);
    }
    for (const struct weir_ended_session *e = worker->ended; e; e = e->next) {
        write_set(out, &e->about, e->launched, e->set);
    }
    pthread_mutex_unlock(&worker->lock);
    weir_forms_write_runs(out, worker->forms);
    fflush(out);
    return out;
}

/* ---------------------------------------------------------------- status */

static double orphan_age_s(const struct weir_session *s)
{
    uint64_t since_ns = atomic_load(&s->about->orphaned_ns);

    return since_ns != 0 ? (double)(weir_clock_now_ns() - since_ns) / (double)WEIR_NS_PER_S : 0;
}

/* Has the session's program ended, so that its resources will soon be free? */
static bool is_on_its_way_out(const struct weir_session *s)
{
    return weir_session_has_ended(s) && atomic_load(&s->about->orphaned_ns) == 0;
}

/* Fill in what a tenant holds here, without programs of it that have just ended. */
static void fill_holdings_locked(const struct weir_worker *worker, const struct weir_tenant *t,
                                 struct weir_status_tenant *row)
{
    struct weir_programs_sum all = weir_programs_look(t->programs, t->account.place, UINT64_MAX);
    uint64_t used_bytes = 0, pinned_bytes = 0;
    uint32_t n = 0;

    for (const struct weir_session *s = worker->sessions; s; s = s->next) {
        if (s->tenant != t || s->about->monitor || is_on_its_way_out(s)) {
            continue;
        }
        n++;
        row->orphans += atomic_load(&s->about->orphaned_ns) != 0;
        used_bytes += atomic_load(&s->about->held_bytes) + atomic_load(&s->about->opened_bytes);
        pinned_bytes += atomic_load(&s->about->pinned_bytes);
        row->managed_host_bytes += atomic_load(&s->about->managed_host_bytes);
    }
    row->sessions = (uint32_t)weir_account_used(&t->account, WEIR_ACCOUNT_SESSIONS);
    row->used_bytes = weir_account_used(&t->account, WEIR_ACCOUNT_DEVICE_MEMORY);
    row->pinned_bytes = weir_account_used(&t->account, WEIR_ACCOUNT_PINNED_MEMORY);
    used_bytes += n != 0 ? atomic_load(&t->limits.charged) : 0;
    if (all.n_ended > row->orphans) {
        row->sessions = (uint32_t)WEIR_MIN(row->sessions, n);
        row->used_bytes = WEIR_MIN(row->used_bytes, used_bytes);
        row->pinned_bytes = WEIR_MIN(row->pinned_bytes, pinned_bytes);
    }
}

/* Could another worker make the session again? */
static void fill_rebuild(const struct weir_session *s, struct weir_status_session *row)
{
    const char *why =
        s->devices.book ? atomic_load(&s->devices.book->why) : "its worker is not for one program";

    if (!s->about->monitor && why) {
        snprintf(row->rebuild, sizeof row->rebuild, "%s%s",
                 *why == 0                  ? "portable"
                 : why == weir_book_if_same ? "portable "
                                            : "stays: ",
                 why);
    }
}

static void fill_session_row(const struct weir_session *s, struct weir_status_session *row)
{
    uint64_t calls = atomic_load(&s->about->calls_total);

    *row =
        (struct weir_status_session){.id = s->id, .pid = (uint64_t)s->about->pid, .calls = calls};
    snprintf(row->tenant, sizeof row->tenant, "%s", s->tenant->name);
    snprintf(row->program, sizeof row->program, "%s", s->about->program);
    snprintf(row->transport, sizeof row->transport, "%s", s->channel->transport->ops->name);
    row->used_bytes = atomic_load(&s->about->held_bytes);
    row->away_bytes = atomic_load(&s->devices.suspension->away_bytes);
    snprintf(row->state, sizeof row->state, "%s",
             s->about->monitor ? "monitor"
             : atomic_load(&s->devices.suspension->wish) == WEIR_SUSPEND_HOLD
                 ? (atomic_load(&s->devices.suspension->held) ? "suspended" : "suspending")
             : row->away_bytes != 0 ? "away"
                                    : "");
    fill_rebuild(s, row);
    row->memory_limit_bytes = s->about->wish.memory_bytes[0];
    row->sm_limit_pct = s->about->wish.sm_pct;
    row->age_s = (double)(weir_clock_now_ns() - s->about->started_ns) / (double)WEIR_NS_PER_S;
    row->orphan_age_s = orphan_age_s(s);
    row->calls_per_s = row->age_s > 0 ? (double)calls / row->age_s : 0;
}

static uint32_t n_open(const struct weir_platform *platform)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < platform->n_devices; i++) {
        n += weir_device_is_open(&platform->devices[i]);
    }
    return n;
}

void weir_worker_status_fill(struct weir_worker *worker, struct weir_status_worker *row)
{
    weir_platform_text(&worker->platform, row->device, sizeof row->device);
    row->n_devices = worker->platform.n_devices;
    row->contexts = n_open(&worker->platform);
    row->sm_share_pct = worker->platform.devices[0].share_pct;
    for (uint32_t i = 0, at = 0; i < worker->platform.n_devices && at < sizeof row->devices; i++) {
        at += (uint32_t)snprintf(row->devices + at, sizeof row->devices - at, "%s%d",
                                 i == 0 ? "" : ",", (int)worker->platform.devices[i].cu);
    }
    snprintf(row->driver, sizeof row->driver, "%s", worker->platform.driver_name);
    row->memory_bytes = weir_platform_total_bytes(&worker->platform);
    row->pid = (uint64_t)getpid();
    row->objects = atomic_load(&worker->counts.objects);
    row->chunks = atomic_load(&worker->counts.chunks);
    row->chunk_bytes = atomic_load(&worker->counts.chunk_bytes);
}

/* Report the devices. The platform's context is current in this thread afterwards. */
static void tell_devices(struct weir_worker *worker, bool looks)
{
    struct weir_link_message message = {.type = WEIR_LINK_ROW_DEVICE};
    bool scheduled = worker->gates[0] != NULL; /* the first device is always open */

    for (uint32_t i = 0; i < worker->platform.n_devices; i++) {
        weir_device_status(worker, i, looks, &message.device_row);
        message.device_row.scheduled = scheduled;
        weir_worker_tell(worker, &message);
    }
    (void)weir_platform_enter(&worker->platform);
}

void weir_worker_tell_status(struct weir_worker *worker, bool stats, bool devices)
{
    struct weir_link_message message = {0};

    tell_devices(worker, devices);
    weir_worker_ask_sockets(worker, NULL);

    pthread_mutex_lock(&worker->lock);
    for (struct weir_session *s = worker->sessions; s; s = s->next) {
        if (is_on_its_way_out(s)) {
            continue;
        }
        message.type = WEIR_LINK_ROW_SESSION;
        fill_session_row(s, &message.session_row);
        weir_worker_tell(worker, &message);
    }
    for (uint32_t i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        struct weir_tenant *t = worker->tenants[i];
        struct weir_status_tenant *row = &message.tenant_row;

        if (!t || t->gone) {
            continue;
        }
        memset(&message, 0, sizeof message);
        message.type = WEIR_LINK_ROW_TENANT;
        snprintf(row->name, sizeof row->name, "%s", t->name);
        fill_holdings_locked(worker, t, row);
        row->image_bytes = weir_host_image_store_bytes(&t->images);
        row->refused_device = weir_refusals_take(t, WEIR_ACCOUNT_DEVICE_MEMORY);
        row->refused_pinned = weir_refusals_take(t, WEIR_ACCOUNT_PINNED_MEMORY);
        weir_gates_usage(t, row);
        weir_worker_tell(worker, &message);
    }
    pthread_mutex_unlock(&worker->lock);
    memset(&message, 0, sizeof message);
    message.type = WEIR_LINK_STATUS_END;
    weir_worker_status_fill(worker, &message.worker);
    FILE *file = stats ? stats_file(worker) : NULL;
    if (!file) {
        weir_worker_tell(worker, &message);
        return;
    }
    (void)!weir_link_send(worker->link, &message, fileno(file)); /* as in weir_worker_tell() */
    fclose(file);
}
