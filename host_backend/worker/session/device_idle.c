#include "host_backend/worker/session/device_idle.h"

#include "base/log.h"
#include "host_backend/worker/session/about.h"
#include "host_backend/worker/session/barrier.h"
#include "host_backend/worker/session/hooks.h"
#include "host_backend/worker/session/object_types.h"
#include "host_backend/worker/session/tenant.h"
#include "host_backend/worker/session/worker.h"
#include <sched.h>
#include <stdlib.h>

#define MOMENT_NS     (WEIR_NS_PER_MS)       /* the barrier stays closed for, at first */
#define MOMENT_MAX_NS (256 * WEIR_NS_PER_MS) /* and at last */
#define LEAVE_NS      (20 * WEIR_NS_PER_MS)  /* for sessions to come out of their handlers */
#define PAUSE_NS      (20 * WEIR_NS_PER_US)
#define SPIN_NS       (50 * WEIR_NS_PER_US)
#define UNLOADS_NS    (5 * WEIR_NS_PER_MS) /* the device is kept idle for, while a session ends */

struct weir_session_idle {
    atomic_uint inside; /* a handler */
    bool unloads;       /* its objects are being destroyed */
    uint64_t since_ns;  /* the device is kept idle for that; 0: it is not */
    uint32_t begun;     /* what weir_device_idle_begin() gave */
};

/* The session whose handler this thread is in. It leaves while it waits for the others. */
static __thread struct weir_session *inside_of;

struct weir_device_idle *weir_device_idle_create(void)
{
    struct weir_device_idle *d = calloc(1, sizeof *d);
    pthread_mutexattr_t attr;

    if (d == NULL) {
        return NULL;
    }
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

        if (event != NULL) {
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
    return calloc(1, sizeof(struct weir_session_idle));
}

void weir_session_idle_destroy(struct weir_session_idle *idle)
{
    free(idle);
}

/* Either we see that the barrier is closed, or who closes it sees that we are inside: both store,
 * then load, and all four are sequentially consistent (Dekker). */
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

    if (session != NULL) {
        weir_device_barrier_leave(session);
    }
    return session;
}

void weir_device_barrier_resume(struct weir_session *session)
{
    if (session != NULL) {
        weir_device_barrier_enter(session);
    }
}

/* ---------------------------------------------------------------- the barrier */

/*
 * May anybody but the caller give the device work? A monitor, which each program that loads NVML
 * has beside its session, may not.
 *
 * @param self  the caller's session; NULL: it has none, and every session is another
 */
static bool others_there(struct weir_worker *w, const struct weir_session *self)
{
    uint32_t others;

    pthread_mutex_lock(&w->lock);
    others = w->n_sessions - (self != NULL); /* with those that are just coming, or going */
    for (const struct weir_session *s = w->sessions; s != NULL; s = s->next) {
        others -= s->about->monitor && s != self;
    }
    pthread_mutex_unlock(&w->lock);
    return others != 0;
}

/* Its own capture ends after this call, so there is nothing to wait for; and as long as it is open
 * the driver does not say what the device still has to do. */
static bool captures_itself(const struct weir_session *self)
{
    return self != NULL && self->n_captures != 0;
}

static bool any_inside(struct weir_worker *w)
{
    bool any = false;

    pthread_mutex_lock(&w->lock);
    for (struct weir_session *s = w->sessions; s != NULL && !any; s = s->next) {
        any = atomic_load(&s->idle->inside) != 0;
    }
    pthread_mutex_unlock(&w->lock);
    return any;
}

static void open_barrier(struct weir_device_idle *d)
{
    pthread_mutex_lock(&d->barrier);
    atomic_store(&d->closed, 0);
    pthread_cond_broadcast(&d->opened);
    pthread_mutex_unlock(&d->barrier);
}

/* What is short is not worth a sleep, which takes three times as long as it is asked for. */
static void rest(uint64_t since_ns)
{
    struct timespec pause = {0, (long)PAUSE_NS};

    if (weir_clock_now_ns() - since_ns < SPIN_NS) {
        weir_cpu_pause();
    } else {
        (void)nanosleep(&pause, NULL);
    }
}

/* false: somebody stays inside, in a call that waits for something itself. */
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

static bool record_on(struct weir_worker *w, uint32_t device)
{
    const struct weir_driver *driver = &w->platform.driver;
    CUcontext context = w->platform.devices[device].context;
    CUevent event = atomic_load(&w->device_idle->events[device]);

    if (driver->cuCtxSetCurrent(context) != CUDA_SUCCESS) {
        return false;
    }
    if (event == NULL) {
        if (driver->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
            return false;
        }
        atomic_store(&w->device_idle->events[device], event);
    }
    return driver->cuCtxRecordEvent(context, event) == CUDA_SUCCESS;
}

/* Behind everything that the devices have been given. Forbidden while a stream is under capture. */
static bool record(struct weir_worker *w)
{
    CUcontext here = NULL;
    bool ok = w->platform.driver.cuCtxGetCurrent(&here) == CUDA_SUCCESS;

    for (uint32_t i = 0; i < w->platform.n_devices && ok; i++) {
        ok = !weir_device_is_open(&w->platform.devices[i]) || record_on(w, i);
    }
    (void)w->platform.driver.cuCtxSetCurrent(here);
    return ok;
}

/* Errors are for the call itself to find. */
static bool wait_until(struct weir_worker *w, uint64_t end_ns)
{
    uint64_t now_ns = weir_clock_now_ns();

    for (uint32_t i = 0; i < w->platform.n_devices; i++) {
        CUevent event = atomic_load(&w->device_idle->events[i]);

        while (event != NULL && w->platform.driver.cuEventQuery(event) == CUDA_ERROR_NOT_READY) {
            if (weir_clock_now_ns() >= end_ns) {
                return false;
            }
            rest(now_ns);
        }
    }
    return true;
}

/* One turn; true: the barrier is closed and the devices have nothing to do. */
static bool turn(struct weir_worker *w, uint64_t moment_ns, bool *ret_recorded)
{
    struct weir_device_idle *d = w->device_idle;

    *ret_recorded = false;
    if (!close_barrier(w)) {
        return false;
    }
    *ret_recorded = atomic_load(&d->captures) == 0 && record(w);
    if (*ret_recorded && wait_until(w, weir_clock_now_ns() + moment_ns)) {
        return true;
    }
    open_barrier(d);
    return false;
}

/*
 * Between two turns: until the devices have done what they had, or a capture may have ended. Others
 * may make their calls meanwhile: who captures must, or its capture never ends.
 */
static void wait_apart(struct weir_worker *w, bool recorded, uint64_t end_ns)
{
    struct weir_device_idle *d = w->device_idle;

    d->depth--;
    pthread_mutex_unlock(&d->lock);
    if (recorded) {
        (void)wait_until(w, end_ns);
    } else {
        rest(0);
    }
    pthread_mutex_lock(&d->lock);
    d->depth++;
}

/*
 * Is the device kept busy by work that a program has left behind? It may never end, and a driver
 * call that waited for it would keep all other sessions out of the driver. So such a call is not
 * made: its own session waits, and nobody else. Not once the context is dead.
 */
static bool waits_for_orphan(struct weir_worker *w)
{
    bool any = false;

    if (atomic_load(&w->sticky) != 0) {
        return false;
    }
    pthread_mutex_lock(&w->lock);
    for (const struct weir_session *s = w->sessions; s != NULL && !any; s = s->next) {
        any = atomic_load(&s->about->orphaned_ns) != 0;
        if (any) {
            weir_log_warn("worker: a call that needs an idle GPU waits for work that a program has "
                          "left behind session=%llu tenant=%s",
                          (unsigned long long)s->id, s->tenant->name);
        }
    }
    pthread_mutex_unlock(&w->lock);
    return any;
}

uint32_t weir_device_idle_begin(struct weir_worker *worker, const struct weir_session *caller)
{
    struct weir_session *inside = inside_of;
    const struct weir_session *self = caller != NULL ? caller : inside;
    struct weir_device_idle *d = worker->device_idle;
    uint64_t end_ns = weir_clock_now_ns() + WEIR_DEVICE_IDLE_LIMIT_NS, moment_ns = MOMENT_NS;
    bool recorded;
    uint32_t idle;

    if (inside != NULL) { /* or two that wait for an idle device wait for each other */
        atomic_store_explicit(&inside->idle->inside, 0, memory_order_release);
    }
    idle = worker->hooks != NULL ? worker->hooks->device_idle_begin(worker->forms) : 0;
    if (!worker->platform.real) {
        return idle; /* a call that waits keeps nobody else waiting */
    }
    pthread_mutex_lock(&d->lock);
    if (d->depth++ != 0 || captures_itself(self) || !others_there(worker, self)) {
        return idle;
    }
    while (!turn(worker, moment_ns, &recorded)) {
        wait_apart(worker, recorded, end_ns);
        atomic_fetch_add(&d->turns, 1);
        moment_ns = moment_ns < MOMENT_MAX_NS ? 2 * moment_ns : moment_ns;
        if (weir_clock_now_ns() < end_ns) {
            continue;
        }
        if (!waits_for_orphan(worker)) {
            atomic_fetch_add(&d->forced, 1);
            weir_log_warn("worker: the device does not come to rest, a call that needs it waits");
            break;
        }
        end_ns = weir_clock_now_ns() + WEIR_DEVICE_IDLE_LIMIT_NS;
    }
    return idle;
}

void weir_device_idle_end(struct weir_worker *worker, uint32_t idle)
{
    struct weir_session *self = inside_of;
    struct weir_device_idle *d = worker->device_idle;

    if (worker->platform.real) {
        if (--d->depth == 0 && atomic_load(&d->closed) != 0) {
            open_barrier(d);
        }
        pthread_mutex_unlock(&d->lock);
    }
    if (worker->hooks != NULL) {
        worker->hooks->device_idle_end(worker->forms, idle);
    }
    if (self != NULL) {
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
    atomic_fetch_sub(&session->worker->device_idle->captures, 1);
}

/* ---------------------------------------------------------------- while a session's objects go */

void weir_session_unloads(struct weir_session *session)
{
    session->idle->unloads = true;
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
