/*
 * Counts the streams that have work beside runs.
 *
 * A context has few connections to the GPU (CUDA_DEVICE_MAX_CONNECTIONS; 2 or 8 under MPS, 8
 * otherwise), and a stream that waits occupies one. Measured (H100): while fewer streams wait than
 * there are connections, the driver finds a free one for all others. When as many wait, no other
 * work gets to the GPU, whatever its priority. A stream waits behind a run until all its blocks are
 * done. So a stopped run could never resume, since the grid that resumes it would not get to the
 * GPU.
 *
 * Any stream with work may wait: for an event, a value, a copy. So a kernel becomes a run only if
 * one connection is left. Before one more stream gets work, or a graph is launched, which has
 * streams of its own inside, all runs are resumed, and they are not stopped any more.
 */
#include "host_backend/worker/runs/run_streams.h"

#include "base/clock.h"
#include "base/log.h"
#include "host_backend/worker/runs/run_private.h"
#include <stdatomic.h>
#include <stdlib.h>

#define STREAMS_MAX 256u
#define FEW         1u                     /* most streams at work with two connections */
#define SEEN_NS     (100 * WEIR_NS_PER_US) /* checking needs a driver call for each stream */
#define GO_ON_NS    (50 * WEIR_NS_PER_MS)

struct weir_run_streams {
    const struct weir_driver *driver;
    atomic_uint_fast64_t changes; /* counts removals of streams, from 1; under the lock */
    pthread_mutex_t lock;         /* guards what follows; may be taken under a runs' lock */
    struct {
        const struct weir_stream_told *owner;
        CUstream stream;
    } busy[STREAMS_MAX]; /* streams that may have work under way */
    uint32_t n;
    uint32_t most; /* most streams that may have work while one of them has a run */
    bool lost;     /* more streams had work than allowed; lasts until all are idle */
    bool full;     /* more had work than the table holds; until those in it are gone */
    atomic_bool warned;
    uint64_t seen_ns; /* when idle streams were last removed */
};

struct weir_run_streams *weir_run_streams_create(const struct weir_driver *driver,
                                                 uint32_t connections)
{
    struct weir_run_streams *streams = calloc(1, sizeof *streams);

    if (streams) {
        streams->driver = driver;
        streams->most = connections - 1;
        atomic_init(&streams->changes, 1);
        pthread_mutex_init(&streams->lock, NULL);
    }
    return streams;
}

void weir_run_streams_destroy(struct weir_run_streams *streams)
{
    if (streams) {
        pthread_mutex_destroy(&streams->lock);
        free(streams);
    }
}

/* Is the stream idle? A query would end a capture, so a stream under capture counts as not idle. */
static bool is_idle(const struct weir_driver *d, CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

    return d->cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS ||
           status != CU_STREAM_CAPTURE_STATUS_NONE ||
           d->cuStreamQuery(stream) != CUDA_ERROR_NOT_READY;
}

/* Invalidate what streams remember of being noted (struct weir_stream_told). */
static void changed_locked(struct weir_run_streams *streams)
{
    /* S1: publishes the removal; meets S2. */
    atomic_fetch_add_explicit(&streams->changes, 1, memory_order_release);
}

/* Remove idle streams, except the one that is about to get work. */
static void take_out_idle_locked(struct weir_run_streams *streams, CUstream given)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < streams->n; i++) {
        if (streams->busy[i].stream == given ||
            !is_idle(streams->driver, streams->busy[i].stream)) {
            streams->busy[n++] = streams->busy[i];
        }
    }
    if (n != streams->n) {
        changed_locked(streams);
    }
    streams->n = n;
    streams->seen_ns = weir_clock_now_ns();
}

static uint32_t others_locked(const struct weir_run_streams *streams, CUstream stream)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < streams->n; i++) {
        n += streams->busy[i].stream != stream;
    }
    return n;
}

/* Are all streams idle? Asks the driver only until one is found that has work. */
static bool are_all_idle_locked(const struct weir_run_streams *streams)
{
    uint32_t i = 0;

    while (i < streams->n && is_idle(streams->driver, streams->busy[i].stream)) {
        i++;
    }
    return i == streams->n;
}

static bool are_many_locked(struct weir_run_streams *streams, CUstream stream)
{
    if (!streams->lost && others_locked(streams, stream) < streams->most) {
        return false;
    }
    uint64_t now_ns = weir_clock_now_ns();
    if (streams->full || now_ns - streams->seen_ns < SEEN_NS) {
        return true;
    }
    streams->seen_ns = now_ns;
    streams->lost = streams->lost && !are_all_idle_locked(streams);
    if (!streams->lost) {
        take_out_idle_locked(streams, stream);
    }
    return streams->lost || others_locked(streams, stream) >= streams->most;
}

bool weir_run_streams_are_many(struct weir_run_streams *streams, CUstream stream)
{
    WEIR_LOCKED(&streams->lock);
    return are_many_locked(streams, stream);
}

/* Note a stream with work. With two connections the driver does not always find the free one. So
 * once several streams had work, there are no runs until all are idle at the same time. */
static void add(struct weir_run_streams *streams, struct weir_stream_told *told, CUstream stream)
{
    WEIR_LOCKED(&streams->lock);
    if (others_locked(streams, stream) < streams->n) {
        /* the stream is noted already */
    } else if (streams->n < STREAMS_MAX) {
        if (streams->most <= FEW && streams->n != 0 && !streams->lost) {
            take_out_idle_locked(streams, stream);
            streams->lost = streams->n != 0;
        }
        streams->busy[streams->n].owner = told;
        streams->busy[streams->n++].stream = stream;
    } else {
        streams->lost = streams->full = true;
    }
    told->stream = stream;
    told->since = atomic_load_explicit(&streams->changes, memory_order_relaxed);
}

void weir_run_streams_given(struct weir_run_streams *streams, struct weir_runs *runs,
                            struct weir_stream_told *told, CUstream stream, bool forks)
{
    /* S2: meets S1. If a stream is removed as idle at this moment, its new work comes after the
     * removal in any case: with the lock held it would, too. */
    if (told->stream != stream ||
        told->since != atomic_load_explicit(&streams->changes, memory_order_acquire)) {
        add(streams, told, stream);
    }
    if (!runs) {
        return;
    }
    pthread_mutex_lock(&runs->lock);
    bool let_go = runs->counts.flying != 0 && (forks || weir_run_streams_are_many(streams, stream));
    for (struct weir_run *run = runs->first; run && let_go; run = run->next) {
        run->end.no_stop = true;
    }
    pthread_mutex_unlock(&runs->lock);
    if (let_go) {
        if (!weir_runs_device_idle_begin(runs, GO_ON_NS) && !streams->warned) {
            weir_log_warn("forms: a stopped kernel does not go on, though others need its way");
            streams->warned = true;
        }
        weir_runs_device_idle_end(runs);
    }
}

void weir_run_streams_gone(struct weir_run_streams *streams, struct weir_stream_told *told)
{
    uint32_t n = 0;

    WEIR_LOCKED(&streams->lock);
    for (uint32_t i = 0; i < streams->n; i++) {
        if (streams->busy[i].owner != told) {
            streams->busy[n++] = streams->busy[i];
        }
    }
    streams->n = n;
    streams->lost = streams->lost && n != 0;
    streams->full = streams->full && n != 0;
    changed_locked(streams);
    *told = (struct weir_stream_told){NULL, 0};
}
