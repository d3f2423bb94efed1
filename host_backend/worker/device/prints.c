/*
 * Collects printf output: see prints.h. An event stands behind each printing kernel, one for each
 * stream that prints. So the code never asks about a stream itself: that would break its capture,
 * or wait for its later work.
 *
 * A session that is about to print holds `turn` while it waits for the output of the session before
 * it. So printing sessions queue up, and no other session does. `lock` is held for moments only,
 * and not during driver calls that wait. `turn` is locked before `lock`.
 */
#include "host_backend/worker/device/prints.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/grow.h"
#include "base/log.h"
#include "base/thread.h"
#include "host_backend/worker/device/streams.h"
#include "host_backend/worker/state/worker.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define TEXT_MAX_BYTES                                                                             \
    (8u << 20) /* output that one session may print; more is lost, as in the device's buffer */

struct weir_prints {
    pthread_mutex_t turn; /* held by the session that is about to print */
    pthread_mutex_t lock; /* guards the members below and sessions' parts; a session's list is
                             changed by its own thread only */
    uint64_t settle_ns;   /* how long a session waits for another one's kernels */
    int fd;               /* file in memory that is this process's stdout */
    struct weir_session *owner;
};

/* A stream that a session has printed in. */
struct print_stream {
    CUstream stream; /* NULL: it is destroyed */
    CUevent event;   /* recorded behind the stream's last kernel that may print */
    uint32_t device;
    bool pending; /* that kernel has not been seen to end */
    bool late;    /* another session has given up waiting for that kernel */
};

struct weir_session_prints {
    char *text;
    size_t bytes;
    struct print_stream *streams;
    size_t n, room;
    bool launching; /* a launch is between begin and end; this is its stream: */
    size_t launched;
};

enum weir_status weir_prints_create(uint64_t settle_ns, struct weir_prints **ret_prints)
{
    struct weir_prints *prints = calloc(1, sizeof *prints);

    WEIR_FAIL_IF(!prints, WEIR_ERR_NO_MEMORY);
    pthread_mutex_init(&prints->turn, NULL);
    pthread_mutex_init(&prints->lock, NULL);
    prints->settle_ns = settle_ns;
    prints->fd = memfd_create("weir-printf", MFD_CLOEXEC);
    if (prints->fd < 0 || dup2(prints->fd, STDOUT_FILENO) < 0) {
        weir_prints_destroy(prints);
        return WEIR_ERR_IO;
    }
    *ret_prints = prints;
    return WEIR_OK;
}

void weir_prints_destroy(struct weir_prints *prints)
{
    if (!prints) {
        return;
    }
    weir_fd_close(prints->fd);
    pthread_mutex_destroy(&prints->lock);
    pthread_mutex_destroy(&prints->turn);
    free(prints);
}

CUresult weir_prints_expect(struct weir_session *session)
{
    if (!session->prints) {
        session->prints = calloc(1, sizeof *session->prints);
    }
    return session->prints ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void weir_session_prints_destroy(struct weir_session_prints *prints)
{
    if (prints) {
        free(prints->streams);
        free(prints->text);
        free(prints);
    }
}

/* Move the driver's output into the owner's text. */
static void collect_locked(struct weir_prints *prints, struct weir_session_prints *owner)
{
    struct stat info;

    fflush(stdout);
    if (fstat(prints->fd, &info) != 0 || info.st_size == 0) {
        return;
    }
    size_t bytes = (size_t)info.st_size;
    if (owner->bytes + bytes > TEXT_MAX_BYTES) {
        bytes = TEXT_MAX_BYTES - owner->bytes;
    }
    char *bigger = bytes != 0 ? realloc(owner->text, owner->bytes + bytes) : NULL;
    if (bigger) {
        ssize_t n = pread(prints->fd, bigger + owner->bytes, bytes, 0);

        owner->text = bigger;
        owner->bytes += n > 0 ? (size_t)n : 0;
    }
    if (ftruncate(prints->fd, 0) != 0 || lseek(prints->fd, 0, SEEK_SET) < 0) {
        weir_log_warn("prints: output not cleared errno=%d", errno);
    }
}

/*
 * Make the driver write the output of a kernel that has ended. A query does not do that. By the
 * manual, waiting for the event does; if a driver skips that for a completed event, waiting for a
 * stream does, here one without work. Neither really waits.
 */
static CUresult flush(struct weir_session *self, const struct print_stream *s)
{
    const struct weir_driver *d = self->driver;
    uint32_t here = self->device;
    CUresult result = d->cuEventSynchronize(s->event);
    CUstream idle;

    WEIR_THEN(result, weir_session_enter(self, s->device));
    WEIR_THEN(result, weir_session_work_stream(self, &idle));
    WEIR_THEN(result, d->cuStreamSynchronize(idle));
    (void)weir_session_enter(self, here);
    return result;
}

/* See which of the owner's kernels have ended, and have their output written. Are others left? */
static CUresult look_locked(struct weir_session *self, struct weir_session_prints *owner,
                            bool *ret_left)
{
    CUresult result = CUDA_SUCCESS;

    *ret_left = owner->launching;
    for (size_t i = 0; i < owner->n; i++) {
        struct print_stream *s = &owner->streams[i];
        CUresult one = s->pending ? self->driver->cuEventQuery(s->event) : CUDA_SUCCESS;

        if (one == CUDA_ERROR_NOT_READY) {
            *ret_left = true;
            continue;
        }
        if (one == CUDA_SUCCESS && s->pending) {
            one = flush(self, s);
        }
        s->pending = s->late = false;
        result = one != CUDA_SUCCESS ? one : result;
    }
    return result;
}

static void pause_longer(long *pause_ns)
{
    nanosleep(&(struct timespec){0, *pause_ns}, NULL);
    *pause_ns = *pause_ns < 1000 * 1000 ? *pause_ns * 2 : *pause_ns;
}

/* Try to take over the output, after waiting since begin_ns. @return whether the session owns it
 * now */
static bool take_over_locked(struct weir_prints *prints, struct weir_session *self,
                             uint64_t begin_ns)
{
    struct weir_session_prints *owner =
        prints->owner && prints->owner != self ? prints->owner->prints : NULL;
    bool left = false;

    if (owner) {
        (void)look_locked(self, owner, &left); /* another session reports its own error */
        if (left && weir_clock_now_ns() - begin_ns < prints->settle_ns) {
            return false;
        }
        for (size_t i = 0; i < owner->n; i++) {
            owner->streams[i].late |= owner->streams[i].pending;
        }
        collect_locked(prints, owner);
    }
    prints->owner = self;
    self->prints->launching = true;
    return true;
}

/* Take over the output: wait up to settle_ns for all of the owner's kernels together. */
static void take_over(struct weir_prints *prints, struct weir_session *self)
{
    uint64_t begin_ns = weir_clock_now_ns();
    long pause_ns = 10 * 1000;
    bool done = false;

    pthread_mutex_lock(&prints->turn);
    while (!done) {
        pthread_mutex_lock(&prints->lock);
        done = take_over_locked(prints, self, begin_ns);
        pthread_mutex_unlock(&prints->lock);
        if (!done) {
            pause_longer(&pause_ns);
        }
    }
    pthread_mutex_unlock(&prints->turn);
}

/* @return whether a late kernel of the session has not ended yet */
static bool late_left_locked(struct weir_session *self)
{
    bool left = false;

    for (size_t i = 0; i < self->prints->n && !left; i++) {
        const struct print_stream *s = &self->prints->streams[i];

        left = s->late && self->driver->cuEventQuery(s->event) == CUDA_ERROR_NOT_READY;
    }
    return left;
}

/* If the session has delayed another one: wait for its late kernels, at most as long as the other
 * one did. */
static void wait_for_late(struct weir_session *self)
{
    struct weir_prints *prints = self->worker->prints;
    uint64_t begin_ns = weir_clock_now_ns();
    long pause_ns = 10 * 1000;
    bool left = true;

    while (left) {
        pthread_mutex_lock(&prints->lock);
        left = late_left_locked(self) && weir_clock_now_ns() - begin_ns < prints->settle_ns;
        for (size_t i = 0; i < self->prints->n && !left; i++) {
            self->prints->streams[i].late = false;
        }
        pthread_mutex_unlock(&prints->lock);
        if (left) {
            pause_longer(&pause_ns);
        }
    }
}

/* @return the index of a stream in the session's list, or n. */
static size_t place_of(const struct weir_session_prints *own, CUstream stream)
{
    size_t i = 0;

    while (i < own->n && own->streams[i].stream != stream) {
        i++;
    }
    return i;
}

/* Drop destroyed streams whose work has ended. */
static void forget_gone_locked(struct weir_session *self)
{
    const struct weir_driver *d = self->driver;
    struct weir_session_prints *own = self->prints;

    for (size_t i = own->n; i-- > 0;) {
        struct print_stream *s = &own->streams[i];

        if (s->stream || (s->pending && d->cuEventQuery(s->event) == CUDA_ERROR_NOT_READY)) {
            continue;
        }
        if (s->pending) {
            (void)flush(self, s); /* an error is reported to the next wait */
        }
        (void)d->cuEventDestroy_v2(s->event);
        *s = own->streams[--own->n];
    }
}

static CUresult remember_locked(struct weir_session *self, CUstream stream)
{
    struct weir_session_prints *own = self->prints;
    struct print_stream s = {.stream = stream, .device = self->device};

    forget_gone_locked(self);
    own->launched = place_of(own, stream);
    if (own->launched < own->n) {
        return CUDA_SUCCESS;
    }
    WEIR_FAIL_IF(!WEIR_GROW(own->streams, own->n, own->room), CUDA_ERROR_OUT_OF_MEMORY);
    WEIR_TRY(self->driver->cuEventCreate(&s.event, CU_EVENT_DISABLE_TIMING));
    own->streams[own->n++] = s;
    return CUDA_SUCCESS;
}

CUresult weir_prints_begin(struct weir_session *session, CUstream stream)
{
    struct weir_prints *prints = session->worker->prints;
    WEIR_TRY(weir_prints_expect(session));
    pthread_mutex_lock(&prints->lock);
    CUresult result = remember_locked(session, stream);
    pthread_mutex_unlock(&prints->lock);
    if (result == CUDA_SUCCESS) {
        wait_for_late(session);
        take_over(prints, session);
    }
    return result;
}

void weir_prints_end(struct weir_session *session, CUstream at, bool launched)
{
    struct weir_prints *prints = session->worker->prints;
    struct weir_session_prints *own = session->prints;

    /* Record the event without the lock: the call waits if the stream's queue is full. It fails
     * only in a dead context, which the session notices soon. */
    if (launched) {
        launched =
            session->driver->cuEventRecord(own->streams[own->launched].event, at) == CUDA_SUCCESS;
    }
    WEIR_LOCKED(&prints->lock);
    own->streams[own->launched].pending |= launched;
    own->launching = false;
}

CUresult weir_prints_collect(struct weir_session *session)
{
    struct weir_prints *prints = session->worker->prints;
    CUresult result = CUDA_SUCCESS;
    bool left;

    if (!session->prints) {
        return CUDA_SUCCESS;
    }
    WEIR_LOCKED(&prints->lock);
    if (prints->owner == session) {
        result = look_locked(session, session->prints, &left);
        collect_locked(prints, session->prints);
        prints->owner = left ? session : NULL;
    }
    return result;
}

size_t weir_prints_bytes(const struct weir_session *session)
{
    struct weir_prints *prints = session->worker->prints;

    if (!session->prints) {
        return 0;
    }
    WEIR_LOCKED(&prints->lock);
    return session->prints->bytes;
}

void weir_prints_take(struct weir_session *session, void *to, size_t n)
{
    struct weir_prints *prints = session->worker->prints;
    struct weir_session_prints *own = session->prints;

    WEIR_LOCKED(&prints->lock);
    memcpy(to, own->text, n);
    memmove(own->text, own->text + n, own->bytes - n);
    own->bytes -= n;
}

void weir_prints_forget(struct weir_session *session, CUstream stream)
{
    struct weir_prints *prints = session->worker->prints;
    struct weir_session_prints *own = session->prints;

    if (!own) {
        return;
    }
    WEIR_LOCKED(&prints->lock);
    for (size_t i = 0; i < own->n; i++) {
        if (!stream || own->streams[i].stream == stream) {
            own->streams[i].stream = NULL;
            own->streams[i].late = false;
            own->streams[i].pending &= stream != NULL;
        }
    }
    if (!stream && prints->owner == session) {
        collect_locked(prints, own);
        prints->owner = NULL;
    }
    forget_gone_locked(session);
}
