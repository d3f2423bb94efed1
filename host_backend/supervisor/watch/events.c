/*
 * The last events, for clients that ask, and a stream of events for followers.
 *
 * KEPT_MAX events are kept. When another one needs room, the oldest event of the holder (users.h)
 * with most of them is dropped, so that no tenant can push out events about others, and no user can
 * do so with many short shares. Events that a holder's programs can cause also have a limit for
 * each interval. Those over the limit are counted, and one later event reports their number.
 *
 * A follower is an operator's connection that never ends. It gets events as fast as it reads. A
 * follower that falls behind misses dropped events, as the numbers of events show.
 */
#include "host_backend/supervisor/watch/events.h"

#include "host_backend/supervisor/state/supervisor.h"
#include "host_backend/supervisor/state/users.h"
#include "host_backend/supervisor/watch/append.h"

#include "base/clock.h"
#include "host_backend/config/status_text.h"
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define KEPT_MAX    1024u
#define LIMIT_MAX   50u              /* the most events of a holder in an interval */
#define NOBODY      WEIR_HOLDERS_MAX /* holder of the events that are about no tenant */
#define INTERVAL_NS (10 * WEIR_NS_PER_S)

struct limit {
    uint64_t since_ns;
    uint32_t n;
    uint64_t left_out;
};

struct follower {
    int fd;        /* -1: free */
    uint64_t next; /* number of the next event for the follower */
    char *line;    /* the line that was sent in part; NULL: none */
    size_t bytes, sent;
};

struct kept {
    struct weir_status_event event;
    uint32_t holder;
};

struct weir_sup_events {
    uint64_t n; /* number of the last event */
    uint32_t n_kept;
    struct kept room[KEPT_MAX];
    struct kept *kept[KEPT_MAX]; /* n_kept events in order of their numbers; the rest is free */
    struct limit limits[WEIR_HOLDERS_MAX];
    struct follower followers[WEIR_FOLLOWERS_MAX];
};

static const struct {
    const char *name;
    bool limited;
} kinds[WEIR_EVENT_COUNT] = {
#define ALWAYS                          false
#define LIMITED                         true
#define WEIR_EVENT(kind, text, limited) [WEIR_EVENT_##kind] = {text, limited},
#include "host_backend/config/events.def"
#undef WEIR_EVENT
#undef LIMITED
#undef ALWAYS
};

bool weir_sup_events_open(struct weir_supervisor *sup)
{
    sup->events = calloc(1, sizeof *sup->events);
    for (uint32_t i = 0; sup->events && i < WEIR_FOLLOWERS_MAX; i++) {
        sup->events->followers[i].fd = -1;
    }
    for (uint32_t i = 0; sup->events && i < KEPT_MAX; i++) {
        sup->events->kept[i] = &sup->events->room[i];
    }
    return sup->events != NULL;
}

static void drop(struct follower *f)
{
    close(f->fd);
    free(f->line);
    *f = (struct follower){.fd = -1};
}

void weir_sup_events_close(struct weir_supervisor *sup)
{
    if (!sup->events) {
        return;
    }
    for (uint32_t i = 0; i < WEIR_FOLLOWERS_MAX; i++) {
        if (sup->events->followers[i].fd >= 0) {
            drop(&sup->events->followers[i]);
        }
    }
    free(sup->events);
    sup->events = NULL;
}

/* ---------------------------------------------------------------- followers */

/* Find the first event with this number or a higher one; NULL: there is none. */
static const struct weir_status_event *first_from(const struct weir_sup_events *events,
                                                  uint64_t number)
{
    uint32_t i = events->n_kept;

    while (i != 0 && events->kept[i - 1]->event.number >= number) {
        i--;
    }
    return i < events->n_kept ? &events->kept[i]->event : NULL;
}

/* Format the next event for a follower; false: there is none. */
static bool next_line(struct weir_sup_events *events, struct follower *f)
{
    const struct weir_status_event *event = first_from(events, f->next);
    FILE *out = event ? open_memstream(&f->line, &f->bytes) : NULL;

    WEIR_FAIL_IF(!out, false);
    weir_status_text_event(out, event);
    if (fclose(out) != 0) {
        free(f->line);
        f->line = NULL;
        return false;
    }
    f->next = event->number + 1;
    f->sent = 0;
    return true;
}

static void send_some(struct weir_sup_events *events, struct follower *f)
{
    while (f->line || next_line(events, f)) {
        ssize_t n = send(f->fd, f->line + f->sent, f->bytes - f->sent, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
            return;
        }
        if (n < 0) {
            drop(f);
            return;
        }
        f->sent += (size_t)n;
        if (f->sent == f->bytes) {
            free(f->line);
            f->line = NULL;
        }
    }
}

static void on_follower(void *user, int index)
{
    struct weir_supervisor *sup = user;
    struct follower *f = &sup->events->followers[index];
    char waste[256];

    if (f->fd < 0) {
        return;
    }
    if (recv(f->fd, waste, sizeof waste, MSG_DONTWAIT) >= 0 || errno != EAGAIN) {
        drop(f); /* the follower has disconnected, or sends something */
        return;
    }
    send_some(sup->events, f);
}

void weir_sup_events_watch(struct weir_supervisor *sup, struct weir_host_loop *loop)
{
    for (int i = 0; i < (int)WEIR_FOLLOWERS_MAX; i++) {
        const struct follower *f = &sup->events->followers[i];
        short events = f->line ? POLLIN | POLLOUT : POLLIN;

        weir_host_loop_watch(loop, f->fd, events, on_follower, sup, i);
    }
}

/* Send a client all kept events, and then new ones. Takes the client's descriptor. */
static void follow(struct weir_supervisor *sup, struct weir_admin_client *client)
{
    for (uint32_t i = 0; i < WEIR_FOLLOWERS_MAX; i++) {
        struct follower *f = &sup->events->followers[i];

        if (f->fd < 0) {
            *f = (struct follower){.fd = client->fd, .next = 1};
            client->fd = -1;
            send_some(sup->events, f);
            return;
        }
    }
    close(client->fd);
    client->fd = -1;
}

/* ---------------------------------------------------------------- events */

/* Drop the oldest event of the holder with most events; its memory is reused. */
static void make_room(struct weir_sup_events *events)
{
    uint32_t n[WEIR_HOLDERS_MAX + 1] = {0}, most = 0, i = 0;

    for (uint32_t k = 0; k < events->n_kept; k++) {
        n[events->kept[k]->holder]++;
    }
    for (uint32_t holder = 1; holder <= WEIR_HOLDERS_MAX; holder++) {
        most = n[holder] > n[most] ? holder : most;
    }
    while (events->kept[i]->holder != most) {
        i++;
    }
    struct kept *oldest = events->kept[i];
    events->n_kept--;
    memmove(&events->kept[i], &events->kept[i + 1], (events->n_kept - i) * sizeof oldest);
    events->kept[events->n_kept] = oldest;
}

static void append(struct weir_sup_events *events, uint32_t holder, struct weir_status_event *event)
{
    struct timespec now;
    struct tm utc;
    char seconds[24];

    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    strftime(seconds, sizeof seconds, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(event->time, sizeof event->time, "%s.%03uZ", seconds,
             (unsigned)(now.tv_nsec / 1000000) % 1000);
    event->number = ++events->n;
    if (events->n_kept == KEPT_MAX) {
        make_room(events);
    }
    *events->kept[events->n_kept++] = (struct kept){*event, holder};
    for (uint32_t i = 0; i < WEIR_FOLLOWERS_MAX; i++) {
        if (events->followers[i].fd >= 0) {
            send_some(events, &events->followers[i]);
        }
    }
}

/* May the tenant's holder have another event? First adds an event for those that were left out. */
static bool may_tell(struct weir_sup_events *events, const struct weir_sup_tenant *tenant)
{
    struct limit *l = &events->limits[weir_sup_holder(tenant)];
    uint64_t now_ns = weir_host_clock_ns();

    if (l->n == 0 || now_ns - l->since_ns >= INTERVAL_NS) {
        l->since_ns = now_ns;
        l->n = 0;
    }
    if (l->n == LIMIT_MAX) {
        l->left_out++;
        return false;
    }
    l->n++;
    if (l->left_out != 0) {
        struct weir_status_event event = {.n = l->left_out};

        snprintf(event.kind, sizeof event.kind, "%s", kinds[WEIR_EVENT_LEFT_OUT].name);
        snprintf(event.tenant, sizeof event.tenant, "%s", tenant->config.name);
        memcpy(event.labels, tenant->config.labels, sizeof event.labels);
        snprintf(event.why, sizeof event.why, "more than %u events in %u s", LIMIT_MAX,
                 (unsigned)(INTERVAL_NS / WEIR_NS_PER_S));
        l->left_out = 0;
        append(events, weir_sup_holder(tenant), &event);
    }
    return true;
}

/* Can a tenant cause the event often? A user can start and end shares on demand. */
static bool is_limited(const struct weir_sup_event *what)
{
    return what->tenant && (kinds[what->kind].limited || weir_sup_is_of_user(what->tenant));
}

void weir_sup_event(struct weir_supervisor *sup, const struct weir_sup_event *what, const char *why,
                    ...)
{
    struct weir_status_event event = {.pid = what->pid,
                                      .worker = what->worker,
                                      .session = what->session,
                                      .bytes = what->bytes,
                                      .n = what->n != 0 ? what->n : 1};
    va_list args;

    if (!sup->events || (is_limited(what) && !may_tell(sup->events, what->tenant))) {
        return;
    }
    snprintf(event.kind, sizeof event.kind, "%s", kinds[what->kind].name);
    if (what->tenant) {
        snprintf(event.tenant, sizeof event.tenant, "%s", what->tenant->config.name);
        memcpy(event.labels, what->tenant->config.labels, sizeof event.labels);
    }
    snprintf(event.program, sizeof event.program, "%s", what->program ? what->program : "");
    snprintf(event.call, sizeof event.call, "%s", what->call ? what->call : "");
    va_start(args, why);
    vsnprintf(event.why, sizeof event.why, why, args);
    va_end(args);
    append(sup->events, what->tenant ? weir_sup_holder(what->tenant) : NOBODY, &event);
}

/* ---------------------------------------------------------------- reports of workers */

static struct weir_sup_tenant *tenant_of(struct weir_supervisor *sup,
                                         const struct weir_link_event *event)
{
    WEIR_FAIL_IF(event->tenant_index >= WEIR_CONFIG_TENANTS_MAX, NULL);
    struct weir_sup_tenant *tenant = &sup->tenants[event->tenant_index];
    return tenant->used && !tenant->gone && tenant->generation == event->generation ? tenant : NULL;
}

static bool is_from_workers(uint32_t kind)
{
    return kind == WEIR_EVENT_SESSION_BEGAN || kind == WEIR_EVENT_SESSION_ENDED ||
           kind == WEIR_EVENT_SESSION_MOVED || kind == WEIR_EVENT_SESSION_REFUSED ||
           kind == WEIR_EVENT_SESSION_STOPPED || kind == WEIR_EVENT_ALLOCATION_REFUSED;
}

void weir_sup_worker_event(struct weir_supervisor *sup, int worker, struct weir_link_event *event)
{
    struct weir_sup_tenant *tenant = tenant_of(sup, event);

    if (!tenant || !is_from_workers(event->kind)) {
        return;
    }
    if (event->kind == WEIR_EVENT_SESSION_REFUSED) {
        tenant->refused.sessions += event->n;
    } else if (event->kind == WEIR_EVENT_ALLOCATION_REFUSED) {
        *(event->pinned ? &tenant->refused.pinned : &tenant->refused.device) += event->n;
    }
    event->program[sizeof event->program - 1] = 0;
    event->call[sizeof event->call - 1] = 0;
    event->why[sizeof event->why - 1] = 0;
    weir_sup_event(sup,
                   &(struct weir_sup_event){.kind = (enum weir_event_kind)event->kind,
                                            .tenant = tenant,
                                            .program = event->program,
                                            .call = event->call,
                                            .pid = (uint64_t)event->pid,
                                            .worker = (uint64_t)sup->workers[worker].pid,
                                            .session = event->session,
                                            .bytes = event->bytes,
                                            .n = event->n},
                   "%s", event->why);
}

/* ---------------------------------------------------------------- the request */

static void answer(struct weir_supervisor *sup, struct weir_admin_client *client,
                   struct weir_status_report *report)
{
    const struct weir_sup_events *events = sup->events;

    (void)client;
    for (uint32_t i = 0; i < events->n_kept; i++) {
        weir_sup_append((void **)&report->events, &report->n_events, &events->kept[i]->event,
                        sizeof events->kept[i]->event);
    }
}

bool weir_sup_events_request(struct weir_supervisor *sup, struct weir_admin_client *client,
                             char **words, size_t n_words)
{
    if (n_words == 2 && strcmp(words[1], "follow") == 0) {
        follow(sup, client);
        return true;
    }
    client->looks = true;
    client->answer = answer;
    return n_words == 1;
}
