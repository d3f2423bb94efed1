/*
 * Pools of control blocks, and of lanes: streams for further grids of runs.
 *
 * Runs get the slots of a chunk in order. When all slots were used and all their runs are gone, one
 * operation zeroes the whole chunk, and it is used again. The watcher keeps one zeroed chunk ready,
 * so that no launch waits for memory. If none is ready, the kernel is launched as its original.
 */
#include "host_backend/worker/runs/run_private.h"

#include "base/clock.h"
#include <stdlib.h>
#include <string.h>

#define LANES_FIRST   4u /* made at the start, so that runs need not wait for the driver */
#define WAY_NS        (2 * WEIR_NS_PER_MS)
#define CONTROL_BYTES sizeof(struct weir_ptx_control)
#define CLEAR_WORDS   (WEIR_PTX_CONTROL_CLEAR_BYTES / sizeof(uint32_t))

/* ---------------------------------------------------------------- chunks */

static void chunk_destroy(struct weir_runs *runs, struct weir_run_chunk *chunk)
{
    const struct weir_driver *d = runs->driver;

    for (uint32_t i = 0; i < WEIR_RUN_CHUNK_SLOTS; i++) {
        if (chunk->runs[i].events.before) {
            (void)d->cuEventDestroy_v2(chunk->runs[i].events.before);
        }
        if (chunk->runs[i].events.first) {
            (void)d->cuEventDestroy_v2(chunk->runs[i].events.first);
        }
    }
    if (chunk->zeroed) {
        (void)d->cuEventDestroy_v2(chunk->zeroed);
    }
    if (chunk->passed) {
        (void)d->cuMemFreeHost(chunk->passed);
    }
    if (chunk->control != 0) {
        (void)d->cuMemFree_v2(chunk->control);
    }
    free(chunk);
}

static struct weir_run_chunk *chunk_create(struct weir_runs *runs)
{
    const struct weir_driver *d = runs->driver;
    struct weir_run_chunk *chunk = calloc(1, sizeof *chunk);
    unsigned flags = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP;
    size_t words = WEIR_RUN_CHUNK_SLOTS * sizeof(uint32_t);

    WEIR_FAIL_IF(!chunk, NULL);
    if (d->cuMemAlloc_v2(&chunk->control, WEIR_RUN_CHUNK_SLOTS * CONTROL_BYTES) != CUDA_SUCCESS ||
        d->cuMemHostAlloc((void **)&chunk->passed, words, flags) != CUDA_SUCCESS ||
        d->cuMemHostGetDevicePointer_v2(&chunk->passed_dptr, chunk->passed, 0) != CUDA_SUCCESS ||
        d->cuEventCreate(&chunk->zeroed, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS ||
        d->cuMemsetD8Async(chunk->control, 0, WEIR_RUN_CHUNK_SLOTS * CONTROL_BYTES,
                           runs->keeping) != CUDA_SUCCESS ||
        d->cuEventRecord(chunk->zeroed, runs->keeping) != CUDA_SUCCESS) {
        chunk_destroy(runs, chunk);
        return NULL;
    }
    memset(chunk->passed, 0, words);
    chunk->state = WEIR_RUN_CHUNK_ZEROING;
    return chunk;
}

void weir_run_chunks_finish(struct weir_runs *runs)
{
    for (uint32_t i = 0; i < runs->n_chunks; i++) {
        chunk_destroy(runs, runs->chunks[i]);
    }
    runs->n_chunks = 0;
}

/* Zero only what the kernels and we have written: `running` becomes zero by itself. Orders to runs
 * that have ended may still be in the control stream, so this waits for it. */
static void begin_zeroing(struct weir_runs *runs, struct weir_run_chunk *chunk)
{
    const struct weir_driver *d = runs->driver;

    if (d->cuEventRecord(chunk->zeroed, runs->control) == CUDA_SUCCESS &&
        d->cuStreamWaitEvent(runs->keeping, chunk->zeroed, 0) == CUDA_SUCCESS &&
        d->cuMemsetD2D32Async(chunk->control, CONTROL_BYTES, 0, CLEAR_WORDS, chunk->used,
                              runs->keeping) == CUDA_SUCCESS &&
        d->cuEventRecord(chunk->zeroed, runs->keeping) == CUDA_SUCCESS) {
        chunk->state = WEIR_RUN_CHUNK_ZEROING;
    }
}

void weir_run_chunks_look_locked(struct weir_runs *runs)
{
    bool spare = false;

    for (uint32_t i = 0; i < runs->n_chunks; i++) {
        struct weir_run_chunk *chunk = runs->chunks[i];

        if (chunk->state == WEIR_RUN_CHUNK_FULL && chunk->live == 0) {
            begin_zeroing(runs, chunk);
        }
        if (chunk->state == WEIR_RUN_CHUNK_ZEROING &&
            runs->driver->cuEventQuery(chunk->zeroed) == CUDA_SUCCESS) {
            memset(chunk->passed, 0, WEIR_RUN_CHUNK_SLOTS * sizeof(uint32_t));
            chunk->used = 0;
            chunk->state = WEIR_RUN_CHUNK_READY;
        }
        spare |= chunk->state == WEIR_RUN_CHUNK_READY || chunk->state == WEIR_RUN_CHUNK_ZEROING;
    }
    /* An allocation may wait for the device, and so for a run that only this process can resume. */
    if (!spare && runs->n_chunks < WEIR_RUN_CHUNKS_MAX && !weir_runs_any_stopped_locked(runs)) {
        struct weir_run_chunk *chunk = chunk_create(runs);

        if (chunk) {
            runs->chunks[runs->n_chunks++] = chunk;
        }
    }
}

bool weir_run_chunks_busy_locked(const struct weir_runs *runs)
{
    for (uint32_t i = 0; i < runs->n_chunks; i++) {
        if (runs->chunks[i]->state == WEIR_RUN_CHUNK_ZEROING) {
            return true;
        }
    }
    return false;
}

/* ---------------------------------------------------------------- slots */

static bool open_another(struct weir_runs *runs)
{
    for (uint32_t i = 0; i < runs->n_chunks; i++) {
        if (runs->chunks[i]->state == WEIR_RUN_CHUNK_READY) {
            runs->chunks[i]->state = WEIR_RUN_CHUNK_OPEN;
            runs->open = i;
            return true;
        }
    }
    return false;
}

static bool have_event(const struct weir_driver *d, CUevent *event)
{
    return *event || d->cuEventCreate(event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS;
}

struct weir_run *weir_run_take_locked(struct weir_runs *runs)
{
    struct weir_run_chunk *chunk = runs->n_chunks != 0 ? runs->chunks[runs->open] : NULL;
    CUevent before, first;

    if (!chunk || chunk->state != WEIR_RUN_CHUNK_OPEN) {
        WEIR_FAIL_IF(!open_another(runs), NULL);
        chunk = runs->chunks[runs->open];
    }
    struct weir_run *run = &chunk->runs[chunk->used];
    if (!have_event(runs->driver, &run->events.before) ||
        !have_event(runs->driver, &run->events.first)) {
        return NULL;
    }
    before = run->events.before;
    first = run->events.first;
    memset(run, 0, offsetof(struct weir_run, inside));
    run->runs = runs;
    run->chunk = chunk;
    run->slot = chunk->used++;
    run->events.before = before;
    run->events.first = first;
    run->refs = 1;
    chunk->live++;
    if (chunk->used == WEIR_RUN_CHUNK_SLOTS) {
        chunk->state = WEIR_RUN_CHUNK_FULL;
    }
    return run;
}

void weir_run_drop_locked(struct weir_run *run)
{
    if (--run->refs == 0) {
        if (run->params != run->inside) {
            free(run->params);
        }
        run->params = NULL;
        run->chunk->live--;
    }
}

/* ---------------------------------------------------------------- lanes */

static bool add_lane(struct weir_runs *runs)
{
    struct weir_run_lane *lane = &runs->lanes[runs->n_lanes];
    const struct weir_driver *d = runs->driver;

    WEIR_FAIL_IF(runs->n_lanes == WEIR_RUN_LANES_MAX, false);
    lane->priority = 0;
    if (d->cuStreamCreateWithPriority(&lane->stream, CU_STREAM_NON_BLOCKING, 0) != CUDA_SUCCESS) {
        return false;
    }
    if (d->cuEventCreate(&lane->event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
        (void)d->cuStreamDestroy_v2(lane->stream);
        return false;
    }
    if (d->cuEventCreate(&lane->asked, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
        (void)d->cuEventDestroy_v2(lane->event);
        (void)d->cuStreamDestroy_v2(lane->stream);
        return false;
    }
    if (d->cuEventCreate(&lane->reached, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
        (void)d->cuEventDestroy_v2(lane->asked);
        (void)d->cuEventDestroy_v2(lane->event);
        (void)d->cuStreamDestroy_v2(lane->stream);
        return false;
    }
    lane->run = NULL;
    runs->n_lanes++;
    return true;
}

bool weir_run_lanes_init(struct weir_runs *runs)
{
    while (runs->n_lanes < LANES_FIRST) {
        WEIR_FAIL_IF(!add_lane(runs), false);
    }
    return true;
}

static void set_priority(const struct weir_driver *d, struct weir_run_lane *lane, int priority)
{
    CUlaunchAttributeValue value;

    if (lane->priority == priority) {
        return;
    }
    memset(&value, 0, sizeof value);
    value.priority = priority;
    if (d->cuStreamSetAttribute(lane->stream, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value) ==
        CUDA_SUCCESS) {
        lane->priority = priority;
    }
}

struct weir_run_lane *weir_run_lane_take_locked(struct weir_run *run)
{
    struct weir_runs *runs = run->runs;
    uint32_t i = 0;

    while (i < runs->n_lanes && runs->lanes[i].run) {
        i++;
    }
    WEIR_FAIL_IF(i == runs->n_lanes && !add_lane(runs), NULL);
    set_priority(runs->driver, &runs->lanes[i], run->priority);
    runs->lanes[i].run = run;
    run->lanes |= 1u << i;
    return &runs->lanes[i];
}

void weir_run_lanes_look_locked(struct weir_runs *runs)
{
    for (uint32_t i = 0; i < runs->n_lanes; i++) {
        struct weir_run_lane *lane = &runs->lanes[i];

        if (lane->run && runs->driver->cuEventQuery(lane->event) == CUDA_SUCCESS) {
            lane->run->lanes &= ~(1u << i);
            lane->run = NULL;
        }
    }
}

static bool is_reached(struct weir_runs *runs, struct weir_run_lane *lane)
{
    lane->is_reached =
        lane->is_reached || runs->driver->cuEventQuery(lane->reached) == CUDA_SUCCESS;
    return lane->is_reached;
}

bool weir_run_lanes_are_reached_locked(struct weir_run *run)
{
    struct weir_runs *runs = run->runs;
    bool reached = run->lanes == 0;

    for (uint32_t i = 0; i < runs->n_lanes && !reached; i++) {
        reached = (run->lanes & 1u << i) != 0 && is_reached(runs, &runs->lanes[i]);
    }
    return reached;
}

bool weir_run_lanes_are_blocked_locked(struct weir_run *run)
{
    struct weir_runs *runs = run->runs;
    uint64_t now_ns = weir_clock_now_ns(), last_ns = 0;

    if (weir_run_lanes_are_reached_locked(run)) {
        run->ways = 0;
        return false;
    }
    for (uint32_t i = 0; i < runs->n_lanes; i++) {
        if ((run->lanes & 1u << i) != 0 && runs->lanes[i].given_ns > last_ns) {
            last_ns = runs->lanes[i].given_ns;
        }
    }
    return now_ns > last_ns && now_ns - last_ns > WAY_NS << run->ways;
}

void weir_run_lanes_finish(struct weir_runs *runs)
{
    for (uint32_t i = 0; i < runs->n_lanes; i++) {
        (void)runs->driver->cuStreamDestroy_v2(runs->lanes[i].stream);
        (void)runs->driver->cuEventDestroy_v2(runs->lanes[i].event);
        (void)runs->driver->cuEventDestroy_v2(runs->lanes[i].asked);
        (void)runs->driver->cuEventDestroy_v2(runs->lanes[i].reached);
    }
    runs->n_lanes = 0;
}
