#include "host_backend/worker/device/device_idle.h"

#include "base/log.h"
#include "host_backend/worker/device/barrier.h"
#include "host_backend/worker/device/fault.h"
#include "host_backend/worker/device/put_off.h"
#include "host_backend/worker/device/streams.h"
#include "host_backend/worker/state/about.h"
#include "host_backend/worker/state/hooks.h"
#include "host_backend/worker/state/session.h"
#include "host_backend/worker/state/tenant.h"
#include "host_backend/worker/state/worker.h"
#include <sched.h>
#include <stdlib.h>

#define MOMENT_NS     (WEIR_NS_PER_MS)       /* how long the barrier stays closed at first */
#define MOMENT_MAX_NS (256 * WEIR_NS_PER_MS) /* how long the barrier stays closed at most */
#define LEAVE_NS      (20 * WEIR_NS_PER_MS)  /* time for sessions to leave their handlers */
#define STAYED_NS     (80 * WEIR_NS_PER_MS)  /* open time after a session stayed inside */
#define HOLD_NS       (400 * WEIR_NS_PER_MS) /* limit for runs to resume, and between turns */
#define PAUSE_NS      (20 * WEIR_NS_PER_US)
#define LONG_PAUSE_NS (WEIR_NS_PER_MS) /* pause in a wait that has lasted at least LONG_NS */
#define LONG_NS       (100 * WEIR_NS_PER_MS)
#define SPIN_NS       (50 * WEIR_NS_PER_US)
#define SAID_NS       (5 * WEIR_NS_PER_S)  /* time until a wait is logged */
#define UNLOADS_NS    (5 * WEIR_NS_PER_MS) /* how long a session's end keeps the device idle */

struct weir_session_idle {
    atomic_uint inside; /* the session's thread is in a handler */
    struct weir_put_off *put_off;
    bool unloads;      /* the session's objects are being destroyed */
    uint64_t since_ns; /* since when the device is kept idle for that; 0: it is not */
    uint32_t begun;    /* the value that weir_device_idle_begin() gave */
};

/* The session whose handler this thread executes. The thread leaves the barrier while it waits for
 * the others. */
static __thread struct weir_session *inside_of;

struct weir_device_idle *weir_device_idle_create(void)
{
    struct weir_device_idle *d = calloc(1, sizeof *d);
    pthread_mutexattr_t attr;

    WEIR_FAIL_IF(!d, NULL);
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&d->lock, &attr);
    pthread_mutexattr_destroy(&attr);
    pthread_mutex_init(&d->barrier, NULL);
    pthread_cond_init(&d->opened, NULL);
    return d;
}

void weir_device_idle_destroy(struct weir_worker *worker)
{
    struct weir_device_idle *d = worker->device_idle;

    for (uint32_t i = 0; i < worker->platform.n_devices; i++) {
        CUevent event = atomic_load(&d->events[i]);

        if (event) {
            (void)worker->platform.driver.cuEventDestroy_v2(event);
        }
    }
    pthread_cond_destroy(&d->opened);
    pthread_mutex_destroy(&d->barrier);
    pthread_mutex_destroy(&d->lock);
    free(d);
}

/* ---------------------------------------------------------------- sessions */

struct weir_session_idle *weir_session_idle_create(void)
{
    struct weir_session_idle *idle = calloc(1, sizeof *idle);

    if (idle && !(idle->put_off = weir_put_off_create())) {
        free(idle);
        return NULL;
    }
    return idle;
}

void weir_session_idle_destroy(struct weir_session_idle *idle)
{
    if (idle) {
        weir_put_off_destroy(idle->put_off);
    }
    free(idle);
}

struct weir_put_off *weir_session_put_off(const struct weir_session *session)
{
    return session->idle->put_off;
}

/* Either this thread sees that the barrier is closed, or the thread that closes it sees this one
 * inside: both store, then load, and all four are sequentially consistent (Dekker). */
static void enter(struct weir_session *s)
{
    struct weir_device_idle *d = s->worker->device_idle;

    for (;;) {
        atomic_store(&s->idle->inside, 1);
        if (atomic_load(&d->closed) == 0) {
            return;
        }
        atomic_store_explicit(&s->idle->inside, 0, memory_order_release);
        pthread_mutex_lock(&d->barrier);
        while (atomic_load(&d->closed) != 0) {
            pthread_cond_wait(&d->opened, &d->barrier);
        }
        pthread_mutex_unlock(&d->barrier);
    }
}

void weir_device_barrier_enter(struct weir_session *session)
{
    enter(session);
    inside_of = session;
}

void weir_device_barrier_leave(struct weir_session *session)
{
    inside_of = NULL;
    atomic_store_explicit(&session->idle->inside, 0, memory_order_release);
}

struct weir_session *weir_device_barrier_pause(void)
{
    struct weir_session *session = inside_of;

    if (session) {
        weir_device_barrier_leave(session);
    }
    return session;
}

void weir_device_barrier_resume(struct weir_session *session)
{
    if (session) {
        weir_device_barrier_enter(session);
    }
}

/* ---------------------------------------------------------------- the barrier */

/*
 * May a session other than the caller give the device work? In a worker of several programs another
 * one may come while the call waits. Monitors, which programs with NVML have beside their sessions,
 * give none.
 * @param self the caller's session; NULL: it has none, and every session is another
 */
static bool others_may_come(struct weir_worker *w, const struct weir_session *self)
{
    if (!w->platform.by_program) {
        return true;
    }
    WEIR_LOCKED(&w->lock);
    uint32_t others =
        w->n_sessions - (self != NULL); /* also counts sessions that are starting or ending */
    for (const struct weir_session *s = w->sessions; s; s = s->next) {
        others -= s->about->monitor && s != self;
    }
    return others != 0;
}

/* Is a stream of the session under capture? Waiting is useless, since the capture can only end
 * after this call. Until then the driver does not report the device's remaining work. */
static bool captures_itself(const struct weir_session *self)
{
    return self && self->n_captures != 0;
}

static bool any_inside(struct weir_worker *w)
{
    WEIR_LOCKED(&w->lock);
    return WEIR_LINKED(s, w->sessions, atomic_load(&s->idle->inside) != 0) != NULL;
}

static void open_barrier(struct weir_device_idle *d)
{
    WEIR_LOCKED(&d->barrier);
    atomic_store(&d->closed, 0);
    pthread_cond_broadcast(&d->opened);
}

static void sleep_for(uint64_t ns)
{
    struct timespec pause = {(time_t)(ns / WEIR_NS_PER_S), (long)(ns % WEIR_NS_PER_S)};

    (void)nanosleep(&pause, NULL);
}

/* Pause a waiting thread. A short wait spins: a short sleep takes three times as long as
 * requested. */
static void rest(uint64_t since_ns)
{
    uint64_t waited_ns = weir_clock_now_ns() - since_ns;

    if (waited_ns < SPIN_NS) {
        weir_cpu_pause();
    } else {
        sleep_for(waited_ns < LONG_NS ? PAUSE_NS : LONG_PAUSE_NS);
    }
}

/* Close the barrier. false: a session stays in its handler, whose driver call waits. */
static bool close_barrier(struct weir_worker *w)
{
    uint64_t now_ns = weir_clock_now_ns(), end_ns = now_ns + LEAVE_NS;

    atomic_store(&w->device_idle->closed, 1);
    while (any_inside(w)) {
        if (weir_clock_now_ns() >= end_ns) {
            open_barrier(w->device_idle);
            return false;
        }
        rest(now_ns);
    }
    return true;
}

/* ---------------------------------------------------------------- the devices */

static CUresult record_on(struct weir_worker *w, uint32_t device)
{
    const struct weir_driver *driver = &w->platform.driver;
    CUcontext context = w->platform.devices[device].context;
    CUevent event = atomic_load(&w->device_idle->events[device]);

    WEIR_TRY(driver->cuCtxSetCurrent(context));
    if (!event) {
        WEIR_TRY(driver->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
        atomic_store(&w->device_idle->events[device], event);
    }
    return driver->cuCtxRecordEvent(context, event);
}

/* Record events behind all work of the devices. Impossible while a stream is under capture. */
static CUresult record(struct weir_worker *w)
{
    CUcontext here = NULL;
    CUresult result = w->platform.driver.cuCtxGetCurrent(&here);

    for (uint32_t i = 0; i < w->platform.n_devices && result == CUDA_SUCCESS; i++) {
        result = weir_device_is_open(&w->platform.devices[i]) ? record_on(w, i) : CUDA_SUCCESS;
    }
    (void)w->platform.driver.cuCtxSetCurrent(here);
    return result;
}

/* Wait for the recorded events. Errors are ignored, since the call itself will return them. @param
 * give_up set: stop waiting; or NULL */
static bool wait_until(struct weir_worker *w, uint64_t end_ns, const atomic_bool *give_up)
{
    uint64_t now_ns = weir_clock_now_ns();

    for (uint32_t i = 0; i < w->platform.n_devices; i++) {
        CUevent event = atomic_load(&w->device_idle->events[i]);

        while (event && w->platform.driver.cuEventQuery(event) == CUDA_ERROR_NOT_READY) {
            if (weir_clock_now_ns() >= end_ns || (give_up && atomic_load(give_up))) {
                return false;
            }
            rest(now_ns);
        }
    }
    return true;
}

bool weir_device_may_be_idle(struct weir_worker *worker)
{
    return wait_until(worker, 0, NULL);
}

static bool begin_runs(struct weir_worker *w, uint32_t *ret_idle)
{
    *ret_idle = 0;
    return !w->hooks || w->hooks->device_idle_begin(w->forms, HOLD_NS, ret_idle);
}

static void end_runs(struct weir_worker *w, uint32_t idle)
{
    if (w->hooks) {
        w->hooks->device_idle_end(w->forms, idle);
    }
}

struct turn {
    uint32_t idle;              /* value of the runs, for their end function */
    bool recorded;              /* events behind the devices' work were recorded in this turn */
    bool stayed;                /* a session did not leave its handler */
    const atomic_bool *give_up; /* set: stop waiting; or NULL */
};

/* One attempt. True: the barrier is closed and the devices have nothing to do; or their contexts
 * are dead, so that the call fails at once. */
static bool turn(struct weir_worker *w, uint64_t moment_ns, struct turn *t)
{
    struct weir_device_idle *d = w->device_idle;

    *t = (struct turn){.give_up = t->give_up};
    WEIR_FAIL_IF(!begin_runs(w, &t->idle), false);
    t->stayed = !close_barrier(w);
    if (t->stayed) {
        return false;
    }
    CUresult result = atomic_load(&d->captures) == 0 ? record(w) : CUDA_ERROR_NOT_READY;
    t->recorded = result == CUDA_SUCCESS;
    if (weir_error_is_sticky(result) ||
        (t->recorded && wait_until(w, weir_clock_now_ns() + moment_ns, NULL))) {
        return true;
    }
    open_barrier(d);
    return false;
}

static uint64_t earlier(uint64_t a_ns, uint64_t b_ns)
{
    return WEIR_MIN(a_ns, b_ns);
}

/*
 * Wait between two turns until the devices have done their work, or a capture may have ended. Other
 * sessions may make their calls meanwhile, since only such a call ends a capture. After a while
 * this allows the scheduler to stop kernels again. Otherwise a kernel that never ends would keep
 * the other tenants waiting.
 */
static void wait_apart(struct weir_worker *w, const struct turn *t, uint64_t end_ns)
{
    struct weir_device_idle *d = w->device_idle;
    bool over = false;

    d->depth--;
    pthread_mutex_unlock(&d->lock);
    if (t->recorded) {
        over = wait_until(w, earlier(weir_clock_now_ns() + HOLD_NS, end_ns), t->give_up);
    }
    end_runs(w, t->idle);
    if (t->recorded && !over) {
        (void)wait_until(w, end_ns, t->give_up);
    } else if (!t->recorded) {
        sleep_for(t->stayed ? STAYED_NS : PAUSE_NS);
    }
    pthread_mutex_lock(&d->lock);
    d->depth++;
}

uint64_t weir_device_idle_limit_ns(const struct weir_session *session)
{
    return weir_tenant_setting(session->tenant, load_wait_s) * WEIR_NS_PER_S;
}

/* Log that a call waits, or that it failed after waiting. */
static void say(struct weir_worker *w, const struct weir_session *self, uint64_t waited_ns,
                const char *what)
{
    char running[WEIR_FAULT_TEXT_BYTES];
    bool ours = self && self->tenant;

    weir_fault_running(w, running, sizeof running);
    weir_log_warn("worker: %s session=%llu tenant=%s after_s=%.1f running=\"%s\"", what,
                  self ? (unsigned long long)self->id : 0, ours ? self->tenant->name : "-",
                  (double)waited_ns / (double)WEIR_NS_PER_S, running);
}

/* Repeat turns. The caller holds the lock. @return false: the device is still busy */
static bool wait_for_turn(struct weir_worker *w, const struct weir_session *self, uint64_t limit_ns,
                          uint32_t *ret_idle)
{
    struct weir_device_idle *d = w->device_idle;
    uint64_t start_ns = weir_clock_now_ns(), now_ns, moment_ns = MOMENT_NS, end_ns;
    uint64_t say_ns = start_ns + SAID_NS;
    struct turn t = {.give_up = self && limit_ns != UINT64_MAX ? &self->ending : NULL};

    end_ns = limit_ns < UINT64_MAX - start_ns ? start_ns + limit_ns : UINT64_MAX;
    while (!turn(w, moment_ns, &t)) {
        atomic_fetch_add(&d->turns, 1);
        moment_ns = moment_ns < MOMENT_MAX_NS ? 2 * moment_ns : moment_ns;
        if (weir_clock_now_ns() >= end_ns || (t.give_up && atomic_load(t.give_up))) {
            end_runs(w, t.idle);
            return false;
        }
        wait_apart(w, &t, earlier(end_ns, say_ns));
        now_ns = weir_clock_now_ns();
        if (now_ns >= say_ns) {
            say(w, self, now_ns - start_ns, "a call waits until the GPU is idle");
            say_ns = UINT64_MAX;
        }
    }
    *ret_idle = t.idle;
    return true;
}

/* Wait until the device is idle, and keep others' work from it.
 * @param own  wait even if no session but the caller's can send work to the device */
static CUresult begin_within(struct weir_worker *worker, const struct weir_session *caller,
                             bool own, uint64_t limit_ns, uint32_t *ret_idle)
{
    struct weir_session *inside = inside_of;
    const struct weir_session *self = caller ? caller : inside;
    struct weir_device_idle *d = worker->device_idle;

    if (inside) { /* otherwise two calls waiting for idle devices block each other */
        atomic_store_explicit(&inside->idle->inside, 0, memory_order_release);
    }
    if (!worker->platform.keeps_out) { /* such a call blocks no other thread here */
        (void)begin_runs(worker, ret_idle);
        return CUDA_SUCCESS;
    }
    pthread_mutex_lock(&d->lock);
    if (d->depth++ != 0 || captures_itself(self) || (!own && !others_may_come(worker, self))) {
        (void)begin_runs(worker, ret_idle);
        return CUDA_SUCCESS;
    }
    if (wait_for_turn(worker, self, limit_ns, ret_idle)) {
        return CUDA_SUCCESS;
    }
    atomic_fetch_add(&d->late, 1);
    d->depth--;
    pthread_mutex_unlock(&d->lock);
    if (inside) {
        enter(inside);
    }
    return CUDA_ERROR_TIMEOUT;
}

CUresult weir_device_idle_begin_within(struct weir_worker *worker,
                                       const struct weir_session *caller, uint64_t limit_ns,
                                       uint32_t *ret_idle)
{
    return begin_within(worker, caller, false, limit_ns, ret_idle);
}

CUresult weir_device_idle_begin_own(struct weir_worker *worker, const struct weir_session *caller,
                                    uint64_t limit_ns, uint32_t *ret_idle)
{
    return begin_within(worker, caller, true, limit_ns, ret_idle);
}

CUresult weir_device_idle_begin_or_fail(struct weir_session *session, uint32_t *ret_idle)
{
    uint64_t limit_ns = weir_device_idle_limit_ns(session);
    CUresult result = weir_device_idle_begin_within(session->worker, session, limit_ns, ret_idle);

    if (result != CUDA_SUCCESS) {
        say(session->worker, session, limit_ns,
            "a call failed with CUDA_ERROR_TIMEOUT, for the GPU did not become idle");
    }
    return result;
}

uint32_t weir_device_idle_begin(struct weir_worker *worker, const struct weir_session *caller)
{
    uint32_t idle = 0;

    while (weir_device_idle_begin_within(worker, caller, UINT64_MAX, &idle) != CUDA_SUCCESS) {
    }
    return idle;
}

void weir_device_idle_end(struct weir_worker *worker, uint32_t idle)
{
    struct weir_session *self = inside_of;
    struct weir_device_idle *d = worker->device_idle;

    if (worker->platform.keeps_out) {
        if (--d->depth == 0 && atomic_load(&d->closed) != 0) {
            open_barrier(d);
        }
        pthread_mutex_unlock(&d->lock);
    }
    end_runs(worker, idle);
    if (self) {
        enter(self);
    }
}

/* ---------------------------------------------------------------- captures */

void weir_session_capture_begin(struct weir_session *session, struct weir_host_stream *stream)
{
    stream->capturing = true;
    session->n_captures++;
    atomic_fetch_add(&session->worker->device_idle->captures, 1);
}

void weir_session_capture_end(struct weir_session *session, struct weir_host_stream *stream)
{
    stream->capturing = false;
    session->n_captures--;
    weir_session_graph_gone(session); /* the captured graph may have had no name */
    atomic_fetch_sub(&session->worker->device_idle->captures, 1);
}

/* --------------------------------------------------------------- destroying a session's objects */

void weir_session_unloads(struct weir_session *session)
{
    session->idle->unloads = true;
}

bool weir_session_is_unloading(const struct weir_session *session)
{
    return session->idle->unloads;
}

void weir_session_device_idle_end(struct weir_session *session)
{
    struct weir_session_idle *i = session->idle;

    if (i->since_ns != 0) {
        i->since_ns = 0;
        weir_device_idle_end(session->worker, i->begun);
    }
}

void weir_session_device_idle(struct weir_session *session)
{
    struct weir_session_idle *i = session->idle;

    if (i->since_ns != 0 && weir_clock_now_ns() - i->since_ns > UNLOADS_NS) {
        weir_session_device_idle_end(session);
    }
    if (i->unloads && i->since_ns == 0) {
        i->begun = weir_device_idle_begin(session->worker, session);
        i->since_ns = weir_clock_now_ns();
    }
}
