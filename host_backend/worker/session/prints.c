/*
 * See prints.h. The lock is held over the waits: it orders printing sessions among themselves,
 * nobody else.
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

#define SETTLE_WAIT_NS                                                                             \
    (10 * WEIR_NS_PER_S) /* a guest that never finishes holds others up no longer */
#define TEXT_MAX_BYTES                                                                             \
    (8u << 20) /* of one session; more is lost, as the device's buffer loses it */

struct weir_prints {
    pthread_mutex_t lock; /* guards all of it, and sessions' text; driver calls are made under it */
    int fd;               /* a file in memory that is this process's stdout */
    struct weir_session *owner;
    CUstream *streams; /* where the owner's printing kernels went */
    size_t n_streams, room;
};

struct weir_session_prints {
    char *text;
    size_t bytes;
};

enum weir_status weir_prints_create(struct weir_prints **ret_prints)
{
    struct weir_prints *prints = calloc(1, sizeof *prints);

    if (prints == NULL) {
        return WEIR_ERR_NO_MEMORY;
    }
    pthread_mutex_init(&prints->lock, NULL);
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

static CUresult settle_locked(struct weir_prints *prints)
{
    CUresult result = CUDA_SUCCESS;

    if (prints->owner == NULL) {
        return CUDA_SUCCESS;
    }
    for (size_t i = 0; i < prints->n_streams; i++) {
        const struct weir_driver *driver = prints->owner->driver;
        CUresult one = weir_host_stream_wait(driver, prints->streams[i], SETTLE_WAIT_NS);

        if (one == CUDA_SUCCESS) {
            one = driver->cuStreamSynchronize(prints->streams[i]); /* a query prints nothing */
        }
        /* A stream under capture has printed nothing yet. */
        if (one != CUDA_SUCCESS && one != CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) {
            result = one;
        }
    }
    collect_locked(prints, prints->owner->prints);
    prints->n_streams = 0;
    prints->owner = NULL;
    return result;
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

void weir_prints_forget(struct weir_session *session, CUstream stream)
{
    struct weir_prints *prints = session->worker->prints;

    if (session->prints == NULL) {
        return;
    }
    pthread_mutex_lock(&prints->lock);
    if (prints->owner == session) {
        bool there = stream == NULL;

        for (size_t i = 0; i < prints->n_streams; i++) {
            there |= prints->streams[i] == stream;
        }
        if (there) {
            (void)settle_locked(prints);
        }
    }
    pthread_mutex_unlock(&prints->lock);
}
