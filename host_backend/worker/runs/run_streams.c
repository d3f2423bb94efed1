/*
 * Streams at work beside runs.
 *
 * A context has few connections to the GPU (CUDA_DEVICE_MAX_CONNECTIONS; 2 under MPS, 8 otherwise),
 * and a stream that waits keeps one to itself. Measured (H100): while fewer streams wait than there
 * are connections, the driver finds a free one for all others. When as many wait, nothing else gets
 * to the GPU, whatever its priority. A stream waits behind a run until all its blocks are done. So
 * a run that was stopped could never go on, since what starts it again would not get there.
 *
 * Any stream at work may wait: for an event, a value, a copy. So a kernel becomes a run only if so
 * few streams are at work that one connection is left. Whoever gives work to one stream more, or a
 * graph, which has streams of its own inside, first lets all runs go on, and they are not stopped
 * any more.
 */
#include "host_backend/worker/runs/run_private.h"

#include "base/clock.h"
#include "base/log.h"

#define SEEN_NS  (100 * WEIR_NS_PER_US) /* looking costs a driver call for each stream */
#define GO_ON_NS (50 * WEIR_NS_PER_MS)

/* To ask about a stream under capture would end the capture; what it had before is not known then.
 */
static bool is_idle(const struct weir_driver *d, CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

    return d->cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS ||
           status != CU_STREAM_CAPTURE_STATUS_NONE ||
           d->cuStreamQuery(stream) != CUDA_ERROR_NOT_READY;
}

static void take_out_idle_locked(struct weir_runs *runs)
{
    uint64_t now_ns = weir_clock_now_ns();
    uint32_t n = 0;

    if (now_ns - runs->busy_seen_ns < SEEN_NS) {
        return;
    }
    for (uint32_t i = 0; i < runs->n_busy; i++) {
        if (!is_idle(runs->driver, runs->busy[i].stream)) {
            runs->busy[n++] = runs->busy[i];
        }
    }
    runs->n_busy = n;
    runs->busy_lost = runs->busy_lost && n > runs->busy_most;
    runs->busy_seen_ns = now_ns;
}

static uint32_t others_locked(const struct weir_runs *runs, CUstream stream)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < runs->n_busy; i++) {
        n += runs->busy[i].stream != stream;
    }
    return n;
}

bool weir_run_is_crowded_locked(struct weir_runs *runs, CUstream stream)
{
    if (!runs->busy_lost && others_locked(runs, stream) < runs->busy_most) {
        return false;
    }
    take_out_idle_locked(runs);
    return runs->busy_lost || others_locked(runs, stream) >= runs->busy_most;
}

static void add_locked(struct weir_runs *runs, const void *owner, CUstream stream)
{
    if (others_locked(runs, stream) < runs->n_busy) {
        return; /* it is there */
    }
    if (runs->n_busy == WEIR_RUN_BUSY_MAX) {
        take_out_idle_locked(runs);
    }
    if (runs->n_busy < WEIR_RUN_BUSY_MAX) {
        runs->busy[runs->n_busy++] = (struct weir_run_busy){.owner = owner, .stream = stream};
    } else {
        runs->busy_lost = true;
    }
}

void weir_runs_stream_given(struct weir_runs *runs, const void *owner, CUstream stream, bool forks)
{
    bool let_go;

    pthread_mutex_lock(&runs->lock);
    add_locked(runs, owner, stream);
    let_go = runs->counts.flying != 0 && (forks || weir_run_is_crowded_locked(runs, stream));
    for (struct weir_run *run = runs->first; run != NULL && let_go; run = run->next) {
        run->no_stop = true;
    }
    pthread_mutex_unlock(&runs->lock);
    if (let_go) {
        if (!weir_runs_device_idle_begin(runs, GO_ON_NS)) {
            weir_log_warn("forms: a stopped kernel does not go on, though others need its way");
        }
        weir_runs_device_idle_end(runs);
    }
}

void weir_runs_stream_gone(struct weir_runs *runs, const void *owner)
{
    uint32_t n = 0;

    pthread_mutex_lock(&runs->lock);
    for (uint32_t i = 0; i < runs->n_busy; i++) {
        if (runs->busy[i].owner != owner) {
            runs->busy[n++] = runs->busy[i];
        }
    }
    runs->n_busy = n;
    pthread_mutex_unlock(&runs->lock);
}
