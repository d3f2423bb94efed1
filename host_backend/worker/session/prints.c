/*
 * See prints.h. The lock is held while a session waits for the output of the one before it: so it
 * orders printing sessions among themselves, nobody else. What a session waits for of its own, it
 * waits for without the lock.
 */
#include "host_backend/worker/session/prints.h"

#include "base/clock.h"
#include "base/log.h"
#include "host_backend/worker/session/order.h"
#include "host_backend/worker/session/session.h"
#include "host_backend/worker/session/worker.h"
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define TEXT_MAX_BYTES                                                                             \
    (8u << 20) /* of one session; more is lost, as the device's buffer loses it */

struct weir_prints {
    pthread_mutex_t lock; /* guards all of it, and sessions' text; driver calls are made under it */
    uint64_t settle_ns;   /* a guest that never finishes holds another one up no longer */
    int fd;               /* a file in memory that is this process's stdout */
    struct weir_session *owner;
    CUstream *streams; /* where the owner's printing kernels went */
    size_t n_streams, room;
};

struct weir_session_prints {
    char *text;
    size_t bytes;
    bool is_late; /* another session has given up waiting for this stream of it: */
    CUstream late;
};

enum weir_status weir_prints_create(uint64_t settle_ns, struct weir_prints **ret_prints)
{
    struct weir_prints *prints = calloc(1, sizeof *prints);

    if (prints == NULL) {
        return WEIR_ERR_NO_MEMORY;
    }
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
    if (prints == NULL) {
        return;
    }
    free(prints->streams);
    if (prints->fd >= 0) {
        close(prints->fd);
    }
    pthread_mutex_destroy(&prints->lock);
    free(prints);
}

CUresult weir_prints_expect(struct weir_session *session)
{
    if (session->prints == NULL) {
        session->prints = calloc(1, sizeof *session->prints);
    }
    return session->prints != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void weir_session_prints_destroy(struct weir_session_prints *prints)
{
    if (prints != NULL) {
        free(prints->text);
        free(prints);
    }
}

/* Move what has been written into the owner's text. */
static void collect_locked(struct weir_prints *prints, struct weir_session_prints *owner)
{
    struct stat info;
    size_t bytes;
    char *bigger;

    fflush(stdout);
    if (fstat(prints->fd, &info) != 0 || info.st_size == 0) {
        return;
    }
    bytes = (size_t)info.st_size;
    if (owner->bytes + bytes > TEXT_MAX_BYTES) {
        bytes = TEXT_MAX_BYTES - owner->bytes;
    }
    bigger = bytes != 0 ? realloc(owner->text, owner->bytes + bytes) : NULL;
    if (bigger != NULL) {
        ssize_t n = pread(prints->fd, bigger + owner->bytes, bytes, 0);

        owner->text = bigger;
        owner->bytes += n > 0 ? (size_t)n : 0;
    }
    if (ftruncate(prints->fd, 0) != 0 || lseek(prints->fd, 0, SEEK_SET) < 0) {
        weir_log_warn("prints: output not cleared errno=%d", errno);
    }
}

/* All of the owner's streams together have settle_ns. */
static CUresult settle_locked(struct weir_prints *prints)
{
    uint64_t end_ns = weir_clock_now_ns() + prints->settle_ns;
    struct weir_session *owner = prints->owner;
    CUresult result = CUDA_SUCCESS;

    if (owner == NULL) {
        return CUDA_SUCCESS;
    }
    for (size_t i = 0; i < prints->n_streams; i++) {
        CUstream stream = prints->streams[i];
        uint64_t now_ns = weir_clock_now_ns();
        CUresult one =
            weir_host_stream_wait(owner->driver, stream, now_ns < end_ns ? end_ns - now_ns : 0);

        if (one == CUDA_SUCCESS) {
            one = owner->driver->cuStreamSynchronize(stream); /* a query prints nothing */
        } else if (one == CUDA_ERROR_TIMEOUT) {
            owner->prints->is_late = true;
            owner->prints->late = stream;
        }
        /* A stream under capture has printed nothing yet. */
        if (one != CUDA_SUCCESS && one != CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) {
            result = one;
        }
    }
    collect_locked(prints, owner->prints);
    prints->n_streams = 0;
    prints->owner = NULL;
    return result;
}

/* The session's own stream of this place, which nobody but its thread destroys. */
static bool own_stream(struct weir_session *session, size_t at, CUstream *ret_stream)
{
    struct weir_prints *prints = session->worker->prints;
    bool there;

    pthread_mutex_lock(&prints->lock);
    there = prints->owner == session && at < prints->n_streams;
    if (there) {
        *ret_stream = prints->streams[at];
    }
    pthread_mutex_unlock(&prints->lock);
    return there;
}

static void wait_for_own(struct weir_session *session)
{
    CUstream stream;

    for (size_t i = 0; own_stream(session, i, &stream); i++) {
        (void)weir_host_stream_wait(session->driver, stream, session->worker->prints->settle_ns);
    }
}

/* It held somebody up: it prints no more before that has ended, or as much time has passed. */
static void wait_for_late(struct weir_session *session)
{
    struct weir_prints *prints = session->worker->prints;
    CUstream late;
    bool is_late;

    pthread_mutex_lock(&prints->lock);
    is_late = session->prints->is_late;
    late = session->prints->late;
    session->prints->is_late = false;
    pthread_mutex_unlock(&prints->lock);
    if (is_late) {
        (void)weir_host_stream_wait(session->driver, late, prints->settle_ns);
    }
}

static CUresult remember_locked(struct weir_prints *prints, CUstream stream)
{
    for (size_t i = 0; i < prints->n_streams; i++) {
        if (prints->streams[i] == stream) {
            return CUDA_SUCCESS;
        }
    }
    if (prints->n_streams == prints->room) {
        size_t room = prints->room != 0 ? prints->room * 2 : 8;
        CUstream *bigger = realloc(prints->streams, room * sizeof *bigger);

        if (bigger == NULL) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        prints->streams = bigger;
        prints->room = room;
    }
    prints->streams[prints->n_streams++] = stream;
    return CUDA_SUCCESS;
}

CUresult weir_prints_begin(struct weir_session *session, CUstream stream)
{
    struct weir_prints *prints = session->worker->prints;
    CUresult result = weir_prints_expect(session);

    if (result != CUDA_SUCCESS) {
        return result;
    }
    wait_for_late(session);
    pthread_mutex_lock(&prints->lock);
    if (prints->owner != session) {
        (void)settle_locked(prints); /* another session's error is its own to report */
        prints->owner = session;
    }
    result = remember_locked(prints, stream);
    pthread_mutex_unlock(&prints->lock);
    return result;
}

CUresult weir_prints_collect(struct weir_session *session)
{
    struct weir_prints *prints = session->worker->prints;
    CUresult result = CUDA_SUCCESS;

    if (session->prints == NULL) {
        return CUDA_SUCCESS;
    }
    wait_for_own(session);
    pthread_mutex_lock(&prints->lock);
    if (prints->owner == session) {
        result = settle_locked(prints);
    }
    pthread_mutex_unlock(&prints->lock);
    return result;
}

size_t weir_prints_bytes(const struct weir_session *session)
{
    return session->prints != NULL ? session->prints->bytes : 0;
}

void weir_prints_take(struct weir_session *session, void *to, size_t n)
{
    struct weir_session_prints *own = session->prints;

    memcpy(to, own->text, n);
    memmove(own->text, own->text + n, own->bytes - n);
    own->bytes -= n;
}

/* Has the session printed in this stream? */
static bool is_own(struct weir_session *session, CUstream stream)
{
    CUstream own;

    for (size_t i = 0; own_stream(session, i, &own); i++) {
        if (own == stream) {
            return true;
        }
    }
    return false;
}

void weir_prints_forget(struct weir_session *session, CUstream stream)
{
    if (session->prints == NULL) {
        return;
    }
    if (stream == NULL || is_own(session, stream)) {
        (void)weir_prints_collect(session);
    }
    pthread_mutex_lock(&session->worker->prints->lock);
    if (stream == NULL || session->prints->late == stream) {
        session->prints->is_late = false;
    }
    pthread_mutex_unlock(&session->worker->prints->lock);
}
