/*
 * Handles guests that arrive at the worker.
 *
 * Each gets a detached thread, which reads the hello, welcomes or refuses the guest, serves it, and
 * cleans up. A tenant's connections are limited before the thread exists; its sessions and monitors
 * are limited after the hello.
 */
#include "base/fd.h"
#include "host_backend/worker/guests_private.h"

#include "host_backend/worker/device/device.h"
#include "host_backend/worker/memory/tenant_window.h"
#include "host_backend/worker/sessions.h"
#include "host_backend/worker/state/tenant.h"
#include "host_backend/worker/state/worker.h"

#include "base/clock.h"
#include "base/log.h"
#include "host_backend/worker/device/connections.h"
#include "host_backend/worker/rebuild/rebuild.h"
#include "host_backend/worker/regions.h"
#include "host_backend/worker/state/about.h"
#include "host_backend/worker/state/channel.h"
#include "host_backend/worker/state/ending.h"
#include "host_backend/worker/stats.h"
#include "proto/transport/stream.h"
#include "proto/wire/accept.h"
#include "proto/wire/accept_stream.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <unistd.h>
#ifdef WEIR_WITH_ZMQ
#include "proto/wire/zmq_server.h"
#endif

#define ARRIVALS_MAX  256 /* connections of a tenant that have not yet said hello */
#define PLACE_WAIT_NS WEIR_NS_PER_S
#define HELLO_WAIT_NS (5 * WEIR_NS_PER_S)
#define STACK_BYTES   (8u << 20) /* the driver compiles PTX on this stack */
#define LOOK_AT       64         /* most events that epoll returns at once */

struct weir_guests *weir_guests_create(void)
{
    struct weir_guests *guests = calloc(1, sizeof *guests);

    if (guests) {
        guests->gone_fd = epoll_create1(EPOLL_CLOEXEC);
    }
    return guests;
}

#define OWN_NUMBERS 1000000u /* how many sessions a worker numbers before it starts again */

static bool is_for(const struct weir_tenant *t, const struct weir_link_guest *guest,
                   const char *name)
{
    assert(name || guest);
    return name ? strcmp(t->name, name) == 0
                : t->index == guest->tenant_index && t->generation == guest->generation;
}

static bool is_ending_locked(const struct weir_worker *worker)
{
    return worker->guests->closed || atomic_load(&worker->sticky) != 0;
}

/* Count an arrival of a tenant. NULL: there are too many at once, or no such tenant. */
static struct weir_tenant *admit(struct weir_worker *worker, const struct weir_link_guest *guest,
                                 const char *name)
{
    struct weir_tenant *found = NULL;

    WEIR_LOCKED(&worker->lock);
    for (uint32_t i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        struct weir_tenant *t = worker->tenants[i];

        if (t && !t->gone && is_for(t, guest, name) &&
            t->n_arrivals < weir_account_limit(&t->account, WEIR_ACCOUNT_SESSIONS) + ARRIVALS_MAX &&
            !is_ending_locked(worker)) {
            t->n_arrivals++;
            worker->n_sessions++;
            found = t;
        }
    }
    return found;
}

/*
 * After the hello: may the guest have a session, or be a monitor? If all places are taken, wait for
 * the tenant's ended programs, whose memory takes a while to clear, or for connections without
 * hello.
 */
static bool promote(struct weir_arrival *a)
{
    struct weir_programs *programs = a->tenant->programs;
    uint64_t start_ns = weir_clock_now_ns();

    a->item = a->monitor ? WEIR_ACCOUNT_MONITORS : WEIR_ACCOUNT_SESSIONS;
    for (;;) {
        uint32_t ends = weir_programs_ends(programs);
        bool any = weir_tenant_endings(a->tenant) != 0;
        uint64_t end_ns = start_ns + (any ? WEIR_ENDING_NS : PLACE_WAIT_NS), now_ns;

        a->counted = weir_account_charge(&a->tenant->account, a->item, 1);
        now_ns = weir_clock_now_ns();
        if (a->counted || now_ns >= end_ns) {
            return a->counted;
        }
        weir_programs_await(programs, ends, end_ns - now_ns);
    }
}

static void dismiss(struct weir_arrival *a)
{
    struct weir_worker *worker = a->worker;
    const uint64_t one = 1;

    weir_arrival_is_over(a);

    pthread_mutex_lock(&worker->lock);
    a->tenant->n_arrivals--;
    if (a->counted) {
        weir_account_release(&a->tenant->account, a->item, 1);
        weir_programs_remove(a->tenant->programs, 0); /* arrivals that wait for a place retry */
    }
    worker->guests->n_going -= a->going;
    worker->n_sessions--;
    if (a->let_in) {
        weir_connections_leave_locked(worker);
    }
    if (worker->n_sessions == 0 && worker->config.by_program) {
        (void)!write(worker->wake_fd, &one, sizeof one); /* wake the main thread */
    }
    pthread_cond_broadcast(&worker->idle);
    pthread_mutex_unlock(&worker->lock);
    free(a);
}

/* Make an arrival of a tenant; or NULL: refuse it. */
static struct weir_arrival *arrive(struct weir_worker *worker, const struct weir_link_guest *guest,
                                   const char *name)
{
    struct weir_arrival *a = calloc(1, sizeof *a);

    if (a) {
        a->worker = worker;
        a->stages.taken_ns = weir_clock_now_ns();
        a->fd = a->box_fd = -1;
        a->tenant = admit(worker, guest, name);
        if (!a->tenant) {
            free(a);
            a = NULL;
        }
    }
    return a;
}

/* Why an arrival was not counted: a worker that is about to be replaced answers "again". */
static enum weir_status why_not(struct weir_worker *worker, const char **ret_text)
{
    pthread_mutex_lock(&worker->lock);
    bool dying = is_ending_locked(worker);
    pthread_mutex_unlock(&worker->lock);
    *ret_text = dying ? "the worker is being replaced" : "too many connections";
    return dying ? WEIR_ERR_AGAIN : WEIR_ERR_QUOTA;
}

static void refuse(struct weir_arrival *a, enum weir_status reason, CUresult result,
                   const char *message)
{
    weir_log_info("guest: refused tenant=%s pid=%lld why=\"%s\"", a->tenant->name,
                  (long long)a->pid, message);
    if (reason != WEIR_ERR_AGAIN) {
        struct weir_link_event event = {.kind = WEIR_EVENT_SESSION_REFUSED, .pid = a->pid};

        snprintf(event.program, sizeof event.program, "%s", a->program);
        snprintf(event.why, sizeof event.why, "%s", message);
        weir_event_tell(a->worker, a->tenant, event);
    }
#ifdef WEIR_WITH_ZMQ
    if (a->pending) {
        weir_zmq_refuse(a->pending, reason, (int32_t)result, message);
        a->pending = NULL;
    }
#endif
    if (a->mail) {
        weir_region_refuse(a->mail, reason, (int32_t)result, message);
        a->mail = NULL;
    }
    if (a->stream) {
        weir_stream_refuse(a->stream, reason, (int32_t)result, message);
        a->stream->ops->destroy(a->stream);
        a->stream = NULL;
    }
    if (a->fd >= 0) {
        weir_refuse(a->fd, reason, (int32_t)result, message);
        close(a->fd);
        a->fd = -1;
    }
}

static enum weir_status welcome(struct weir_arrival *a, const struct weir_hello *hello, uint64_t id,
                                struct weir_transport **ret_transport)
{
    struct weir_worker *w = a->worker;
    struct weir_device devices[WEIR_DEVICES_MAX];
    char weight[WEIR_SETTING_TEXT_BYTES];
    struct weir_welcome_params params = {.session = id,
                                         .keeps_segment = w->config.by_program,
                                         .tenant = a->tenant->name,
                                         .weight = weight,
                                         .window_base = weir_tenant_window_base(a->tenant),
                                         .window_bytes = w->config.window_bytes,
                                         .devices = devices,
                                         .n_devices = w->platform.n_devices};

    if (a->moved) {
        return weir_moved_transport(a->moved, ret_transport);
    }
    (void)weir_sessions_lock(w);
    weir_setting_text((size_t)weir_setting_find("weight"), &a->tenant->config, weight);
    weir_sessions_unlock(w);
    params.memory_quota_bytes = weir_account_limit(&a->tenant->account, WEIR_ACCOUNT_DEVICE_MEMORY);
    for (uint32_t i = 0; i < w->platform.n_devices; i++) {
        uint64_t quota = weir_account_limit(&a->tenant->account, WEIR_ACCOUNT_OF_DEVICE + i);

        devices[i] = w->platform.devices[i].about;
        if (devices[i].total_memory_bytes > quota) {
            devices[i].total_memory_bytes = quota;
        }
        if (devices[i].total_memory_bytes > params.memory_quota_bytes) {
            devices[i].total_memory_bytes = params.memory_quota_bytes;
        }
        if (a->wish.memory_bytes[i] != 0 &&
            devices[i].total_memory_bytes > a->wish.memory_bytes[i]) {
            devices[i].total_memory_bytes = a->wish.memory_bytes[i];
        }
    }
    if (a->mail) {
        struct weir_region_mail *mail = a->mail;

        a->mail = NULL; /* weir_region_welcome() frees the mail in any case */
        return weir_region_welcome(mail, &params, a->monitor, ret_transport, &a->region_end);
    }
    if (a->stream) {
        enum weir_status status = weir_stream_welcome(a->stream, &params);

        if (status == WEIR_OK) {
            *ret_transport = a->stream;
            a->stream = NULL;
        }
        return status;
    }
#ifdef WEIR_WITH_ZMQ
    if (a->pending) {
        struct weir_zmq_pending *pending = a->pending;

        a->pending = NULL; /* weir_zmq_accept() frees it in any case */
        return weir_zmq_accept(pending, &params, ret_transport);
    }
    params.zmq = w->guests->zmq;
    params.zmq_ipc_path = w->guests->zmq_path;
#endif
    return weir_accept_welcome(a->fd, hello, &params, ret_transport);
}

/* List the session for others. false: its tenant was removed. */
static bool enlist(struct weir_session *session)
{
    struct weir_worker *w = session->worker;

    WEIR_LOCKED(&w->lock);
    WEIR_PUSH(w->sessions, session);
    bool gone = session->tenant->gone;
    return !gone;
}

static void delist(struct weir_session *session)
{
    struct weir_worker *w = session->worker;

    WEIR_LOCKED(&w->lock);
    WEIR_UNLINK(w->sessions, session, next);
    weir_stats_keep_locked(session);
}

/* ---------------------------------------------------------------- guests that end without a
 * message */

int weir_guests_gone_fd(const struct weir_worker *worker)
{
    return worker->guests->gone_fd;
}

/* A session's thread sleeps until a record comes, and a killed guest sends none: so the main thread
 * watches its socket for the end. A session that cannot be watched polls. */
static void watch(struct weir_session *session)
{
    struct weir_transport *transport = session->channel->transport;
    int fd = session->worker->guests->gone_fd;

    if (fd >= 0 && transport->ops->watch) {
        (void)transport->ops->watch(transport, fd, session->id);
    }
}

void weir_guests_look(struct weir_worker *worker)
{
    struct epoll_event events[LOOK_AT];
    int n = epoll_wait(worker->guests->gone_fd, events, LOOK_AT, 0);

    WEIR_LOCKED(&worker->lock); /* a listed session has its transport */
    for (int i = 0; i < n; i++) {
        for (struct weir_session *s = worker->sessions; s; s = s->next) {
            if (s->id == events[i].data.u64) {
                weir_session_ended(s);
                s->channel->transport->ops->look(s->channel->transport);
            }
        }
    }
}

/* ---------------------------------------------------------------- the end */

/* The arrival's session holds nothing any more, but may have to wait for an idle GPU: free its
 * place. */
static void give_up_place(struct weir_arrival *a, struct weir_session *session)
{
    pthread_mutex_lock(&a->worker->lock);
    if (a->counted) {
        weir_account_release(&a->tenant->account, a->item, 1);
    }
    a->counted = false;
    a->going = true;
    a->worker->guests->n_going++;
    pthread_cond_broadcast(&a->worker->idle);
    pthread_mutex_unlock(&a->worker->lock);
    weir_session_gone(session);
}

bool weir_guests_close(struct weir_worker *worker)
{
    WEIR_LOCKED(&worker->lock);
    bool none = worker->n_sessions == 0;
    worker->guests->closed = none;
    return none;
}

bool weir_guests_keep_segments(struct weir_worker *worker)
{
    uint32_t n = 0;

    WEIR_LOCKED(&worker->lock);
    for (const struct weir_session *s = worker->sessions; s; s = s->next) {
        n += !weir_session_is_remote(s) && !weir_session_region(s);
    }
    return n + worker->guests->n_going == worker->n_sessions;
}

bool weir_guests_only_orphans(struct weir_worker *worker)
{
    uint32_t n = 0;

    WEIR_LOCKED(&worker->lock);
    for (const struct weir_session *s = worker->sessions; s; s = s->next) {
        n += atomic_load(&s->about->orphaned_ns) != 0;
    }
    return n + worker->guests->n_going == worker->n_sessions;
}

static void say_ended(struct weir_session *session)
{
    weir_log_info("session: ended session=%llu tenant=%s calls=%llu objects=%llu bytes=%llu",
                  (unsigned long long)session->id, session->tenant->name,
                  (unsigned long long)atomic_load(&session->about->calls_total),
                  (unsigned long long)atomic_load(&session->about->objects),
                  (unsigned long long)atomic_load(&session->about->held_bytes));
    weir_session_event(session, WEIR_EVENT_SESSION_ENDED, "");
}

/* The session is in its box, and its context dies, as does the process. It is not listed any more,
 * so that its program is not told. */
static void leave_dying(struct weir_session *session)
{
    delist(session);
    (void)weir_rebuild_pass_on(session, false);
    for (;;) {
        pause();
    }
}

static void serve(struct weir_arrival *a, struct weir_transport *transport, uint64_t id)
{
    const char *name = transport->ops->name;
    enum weir_transport_id kind = weir_transport_find(name);
    struct weir_session_params params = {.worker = a->worker,
                                         .tenant = a->tenant,
                                         .transport = transport,
                                         .id = id,
                                         .remote = weir_transport_kind(kind)->remote,
                                         .region_end = a->region_end,
                                         .pid = a->pid,
                                         .pid_here = a->pid_here,
                                         .guest_pid = a->guest_pid,
                                         .monitor = a->monitor,
                                         .wish = &a->wish,
                                         .unknown = &a->unknown,
                                         .program = a->program};
    struct weir_session *session;

    if (weir_session_create(&params, &session) != WEIR_OK) {
        weir_log_warn("guest: session not made tenant=%s pid=%lld", a->tenant->name,
                      (long long)a->pid);
        return;
    }
    bool left = false, made = !a->moved || weir_arrival_rebuild(a, session);
    if (!a->moved) {
        weir_arrival_begin(a, session, name);
    }
    if (!enlist(session) || atomic_load(&a->worker->sticky) != 0 || !made) {
        weir_session_end(session);
    } else if (a->moved) {
        weir_arrival_is_here(a);
    }
    watch(session);
    (void)prctl(PR_SET_NAME, "weir-session");
    do {
        weir_session_run(session);
        const struct weir_session_book *book = session->devices.book;
        if (book && book->leaving.box >= 0 && atomic_load(&book->leaving.dying)) {
            leave_dying(session);
        }
        left = book && book->leaving.box >= 0 && weir_arrival_leaves(a, session);
    } while (!left && !atomic_load(&session->ending));
    if (left) {
        weir_session_finish(session);
    }
    delist(session);
    if (!left && (made || !weir_moved_waits(a->moved))) {
        say_ended(session);
    }
    weir_session_clear(session);
    give_up_place(a, session);
    weir_session_destroy(session);
}

/* Admit a guest with the connections that it asks for. A monitor needs none: it submits no work. */
static bool let_in(struct weir_arrival *a)
{
    uint32_t wanted = a->monitor ? 0 : a->wish.connections;

    a->let_in = weir_connections_admit(a->worker, a->tenant->name, wanted);
    return a->let_in;
}

/* May the guest begin? A drained tenant takes monitors, but no programs. */
static bool may_begin(const struct weir_arrival *a)
{
    return a->monitor || atomic_load(&a->tenant->drain) == WEIR_DRAIN_OFF;
}

static void refuse_for_now(struct weir_arrival *a)
{
    char why[WEIR_TENANT_NAME_BYTES + 96];

    if (atomic_load(&a->tenant->drain) == WEIR_DRAIN_ON) {
        weir_drain_refusal(a->tenant->name, why, sizeof why);
        refuse(a, WEIR_ERR_DENIED, CUDA_ERROR_NO_DEVICE, why);
    } else {
        refuse(a, WEIR_ERR_AGAIN, CUDA_ERROR_UNKNOWN, "the host is about to restart");
    }
}

/* Make a session number. Guests that do not come through the supervisor get one that begins with
 * the worker's pid, so that it is unique in the host. */
static uint64_t number_of(const struct weir_arrival *a)
{
    return a->number != 0
               ? a->number
               : (uint64_t)getpid() * OWN_NUMBERS + ++a->worker->guests->next_session % OWN_NUMBERS;
}

/* Pass a guest that wants no session back to the supervisor, which knows the tenant's other
 * workers. */
static void pass_back(struct weir_arrival *a)
{
    struct weir_link_message why = {.type = WEIR_LINK_WHY, .guest.tenant_index = a->tenant->index};

    if (a->fd < 0 || weir_link_send(a->worker->link, &why, a->fd) != WEIR_OK) {
        refuse(a, WEIR_ERR_UNSUPPORTED, CUDA_ERROR_NOT_SUPPORTED,
               "why work waits is told at a tenant's socket on the host's machine only");
    }
}

static void *guest_thread(void *argument)
{
    struct weir_arrival *a = argument;
    struct weir_transport *transport;
    struct weir_hello *hello = NULL;
    enum weir_status status = WEIR_OK;

    weir_log_limit_thread(&a->tenant->log_rate, a->tenant->name);
    uint64_t id = number_of(a);
    if (a->box_fd >= 0) {
        status = weir_arrival_open(a);
    } else if (a->fd >= 0) {
        status = weir_accept_hello(a->fd, HELLO_WAIT_NS, &hello);
    } else if (a->stream) {
        status = weir_stream_hello(a->stream, HELLO_WAIT_NS, &hello);
    }
    a->stages.hello_ns = weir_clock_now_ns();
    if (status == WEIR_OK && hello) {
        a->pid = a->pid != 0 ? a->pid : hello->pid; /* over vsock nobody else reports a pid */
        weir_arrival_note_hello(a, hello);
    }
    if (a->unknown.any &&
        !a->moved) { /* logged here, where the rate limit of the tenant's log lines applies */
        weir_log_warn("guest: the guest library is of another release than this host, which "
                      "refuses %u operations tenant=%s pid=%lld program=\"%s\"",
                      weir_unknown_ops_count(&a->unknown), a->tenant->name, (long long)a->pid,
                      a->program);
    }
    if (status == WEIR_OK && hello && hello->why) {
        pass_back(a);
    } else if (status != WEIR_OK) {
        weir_log_info("guest: no hello tenant=%s pid=%lld why=\"%s\"", a->tenant->name,
                      (long long)a->pid, weir_status_text(status));
    } else if (!let_in(a)) {
        refuse(a, WEIR_ERR_AGAIN, CUDA_ERROR_UNKNOWN, "the worker starts with other connections");
    } else if (!promote(a)) {
        char why[WEIR_TENANT_NAME_BYTES + 64] = "too many monitors";

        if (!a->monitor) {
            weir_sessions_refusal(a->tenant->name,
                                  weir_account_limit(&a->tenant->account, WEIR_ACCOUNT_SESSIONS),
                                  why, sizeof why);
        }
        refuse(a, WEIR_ERR_QUOTA, CUDA_ERROR_OUT_OF_MEMORY, why);
    } else if (!a->moved &&
               !may_begin(a)) { /* checked last: from here on the status counts the session */
        refuse_for_now(a);
    } else if (atomic_load(&a->worker->sticky) != 0) {
        refuse(a, WEIR_ERR_AGAIN, CUDA_ERROR_UNKNOWN, "the worker is being replaced");
    } else if (weir_platform_enter(&a->worker->platform) != CUDA_SUCCESS) {
        refuse(a, WEIR_ERR_DRIVER, CUDA_ERROR_UNKNOWN, "the GPU's context is gone");
    } else if (weir_arrival_reserve(a) != CUDA_SUCCESS) {
        refuse(a, WEIR_ERR_QUOTA, CUDA_ERROR_OUT_OF_MEMORY,
               "the worker has no window of addresses for it");
    } else {
        a->stages.window_ns = weir_clock_now_ns();
        status = welcome(a, hello, id, &transport);
        a->stages.welcome_ns = weir_clock_now_ns();
        if (status == WEIR_OK) {
            a->fd = -1; /* the transport owns it now */
            serve(a, transport, id);
        } else if (a->fd >= 0 || a->stream || a->moved) {
            refuse(a, status, CUDA_ERROR_UNKNOWN, weir_status_text(status));
        }
    }
    weir_fd_close(a->fd);
    if (a->stream) {
        a->stream->ops->destroy(a->stream);
    }
    weir_moved_close(a->moved);
    weir_hello_destroy(hello);
    weir_log_limit_thread(NULL, NULL);
    dismiss(a);
    return NULL;
}

/* Start the thread of an arrival, and give the arrival to it. */
static void start(struct weir_arrival *a)
{
    pthread_attr_t attr;
    pthread_t thread;

    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    int failed = pthread_create(&thread, &attr, guest_thread, a);
    pthread_attr_destroy(&attr);
    if (failed != 0) {
        refuse(a, WEIR_ERR_QUOTA, CUDA_ERROR_OUT_OF_MEMORY, "no thread for it");
        dismiss(a);
    }
}

static void vsock_arrived(struct weir_worker *worker, const struct weir_link_guest *guest, int fd)
{
    struct weir_stream_link *link = weir_stream_socket(fd);
    struct weir_transport *stream;

    if (!link || weir_stream_create(link, &stream) != WEIR_OK) {
        return;
    }
    struct weir_arrival *a = arrive(worker, guest, NULL);
    if (!a) {
        const char *text;
        enum weir_status reason = why_not(worker, &text);

        weir_stream_refuse(stream, reason, CUDA_ERROR_OUT_OF_MEMORY, text);
        stream->ops->destroy(stream);
        return;
    }
    a->stream = stream;
    start(a);
}

void weir_guest_arrived(struct weir_worker *worker, const struct weir_link_guest *guest, int fd)
{
    if (guest->channel == WEIR_CHANNEL_VSOCK) {
        vsock_arrived(worker, guest, fd);
        return;
    }
    struct weir_arrival *a = arrive(worker, guest, NULL);

    if (!a) {
        const char *text;
        enum weir_status reason = why_not(worker, &text);

        weir_log_info("guest: refused tenant_index=%u pid=%lld why=\"%s\"", guest->tenant_index,
                      (long long)guest->pid, text);
        weir_refuse(fd, reason, CUDA_ERROR_OUT_OF_MEMORY, text);
        close(fd);
        if (guest->channel == WEIR_CHANNEL_BOX) {
            weir_rebuild_say(worker, guest->session, guest->tenant_index, WEIR_MOVE_FAILED);
        }
        return;
    }
    if (guest->channel == WEIR_CHANNEL_BOX) {
        a->box_fd = fd;
        a->in_box = true;
    } else {
        a->fd = fd;
    }
    a->stages.before = guest->start;
    a->number = guest->session;
    a->pid = guest->pid;
    a->pid_here = (uint32_t)guest->pid;
    memcpy(a->program, guest->program, sizeof a->program);
    a->program[sizeof a->program - 1] = 0;
    start(a);
}

void weir_guest_wrote(struct weir_worker *worker, const struct weir_link_guest *guest,
                      struct weir_region_mail *mail, const struct weir_hello *hello)
{
    struct weir_arrival *a = arrive(worker, guest, NULL);

    if (!a) {
        const char *text;
        enum weir_status reason = why_not(worker, &text);

        weir_region_refuse(mail, reason, CUDA_ERROR_OUT_OF_MEMORY, text);
        return;
    }
    weir_arrival_note_hello(a, hello);
    a->pid = guest->pid; /* the pid of the virtual machine */
    a->mail = mail;
    start(a);
}

/* ---------------------------------------------------------------- over tcp */

static void close_own(struct weir_guests *guests)
{
    weir_fd_close(guests->gone_fd);
    free(guests);
}

#ifdef WEIR_WITH_ZMQ
static bool tenant_of_key(void *user, const char *public_key, char *ret_tenant, size_t tenant_bytes)
{
    struct weir_worker *worker = user;
    bool found = false;

    WEIR_LOCKED(&worker->lock);
    for (uint32_t i = 0; i < WEIR_CONFIG_TENANTS_MAX && !found; i++) {
        struct weir_tenant *t = worker->tenants[i];

        if (t && !t->gone && t->config.key[0] != 0 && strcmp(t->config.key, public_key) == 0) {
            snprintf(ret_tenant, tenant_bytes, "%s", t->name);
            found = true;
        }
    }
    return found;
}

static void on_hello(void *user, const char *tenant_name, const struct weir_hello *hello,
                     struct weir_zmq_pending *pending)
{
    struct weir_worker *worker = user;
    struct weir_arrival *a = arrive(worker, NULL, tenant_name);

    if (!a) {
        const char *text;
        enum weir_status reason = why_not(worker, &text);

        weir_zmq_refuse(pending, reason, CUDA_ERROR_OUT_OF_MEMORY, text);
        return;
    }
    weir_arrival_note_hello(a, hello);
    a->pid = hello->pid;
    a->pending = pending;
    start(a);
}

enum weir_status weir_guests_listen(struct weir_worker *worker, int tcp_fd)
{
    struct weir_guests *g = worker->guests;
    char endpoint[WEIR_CONFIG_PATH_BYTES + 16], ipc[sizeof g->zmq_path + 8];
    const char *endpoints[2] = {ipc, endpoint};
    struct weir_zmq_server_params params = {.endpoints = endpoints,
                                            .n_endpoints = 1,
                                            .ipc_fd = WEIR_LINK_LISTENER_FD,
                                            .tenant_of_key = tenant_of_key,
                                            .on_hello = on_hello,
                                            .user = worker};

    /* Guests that come through the socket and cannot share memory use this one. */
    snprintf(g->zmq_path, sizeof g->zmq_path, "%s/zmq-%s.sock", worker->config.run_dir,
             worker->config.name);
    snprintf(ipc, sizeof ipc, "ipc://%s", g->zmq_path);
    if (worker->config.listen_tcp[0] != 0) {
        snprintf(endpoint, sizeof endpoint, "%s%s",
                 strncmp(worker->config.listen_tcp, "tcp://", 6) == 0 ? "" : "tcp://",
                 worker->config.listen_tcp);
        params.n_endpoints = 2;
        params.tcp_fd = WEIR_MAX(tcp_fd, 0);
        params.secret_key = worker->config.server_key;
    }
    enum weir_status status = weir_zmq_server_create(&params, &g->zmq);
    explicit_bzero(worker->config.server_key, sizeof worker->config.server_key);
    close(WEIR_LINK_LISTENER_FD); /* ZeroMQ has its own copy */
    weir_fd_close(tcp_fd);
    if (status != WEIR_OK) {
        weir_log_error("worker: cannot listen for ZeroMQ endpoint=%s why=\"%s\"",
                       params.n_endpoints == 2 ? endpoint : ipc, weir_status_text(status));
    } else if (params.n_endpoints == 2) {
        weir_log_info("worker: listening endpoint=%s", weir_zmq_server_endpoint(g->zmq, 1));
    }
    return status;
}

void weir_guests_destroy(struct weir_guests *guests)
{
    if (guests->zmq) {
        weir_zmq_server_destroy(guests->zmq);
    }
    close_own(guests);
}
#else
enum weir_status weir_guests_listen(struct weir_worker *worker, int tcp_fd)
{
    weir_fd_close(tcp_fd);
    if (worker->config.listen_tcp[0] != 0) {
        weir_log_error("worker: built without ZeroMQ, cannot listen on tcp");
        return WEIR_ERR_UNSUPPORTED;
    }
    return WEIR_OK;
}

void weir_guests_destroy(struct weir_guests *guests)
{
    close_own(guests);
}
#endif
