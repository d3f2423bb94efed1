/*
 * The watcher of a device's runs: sees when they stop and end, and starts further grids of them.
 *
 * A run that was never stopped or resized needs no driver call: the GPU writes "passed" to host
 * memory. A run that was stopped, resized, or started on some SMs only may need one more grid, so
 * the watcher also reads its control block. It checks every 20 us while it waits for something,
 * every 200 us otherwise, and not at all while there are no runs.
 */
#include "host_backend/worker/runs/run_private.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include <sys/prctl.h>
#include <time.h>

#define LOOK_NS       (200 * WEIR_NS_PER_US)
#define LOOK_SOON_NS  (20 * WEIR_NS_PER_US)
#define STOP_LIMIT_NS (2 * WEIR_NS_PER_S) /* a run that needs longer counts as unstoppable */
#define READ_LIMIT_NS WEIR_NS_PER_S
#define WAYS_MAX      5u
#define SLACK_NS      1000ul /* timer slack of the watcher's sleeps; the default is 50 us */

static void tell(struct weir_runs *runs, struct weir_run *run, enum weir_run_event event)
{
    if (run->p.notify) {
        run->refs++;
        pthread_mutex_unlock(&runs->lock);
        run->p.notify(run->p.user, run, event);
        pthread_mutex_lock(&runs->lock);
        weir_run_drop_locked(run);
    }
}

/* Read {next, ask, done, workers, finished} of the control block, behind all orders written to it.
 * Drops the lock during the read; only the watcher removes runs from the list. */
static bool read_words(struct weir_run *run, uint32_t *ret_finished)
{
    struct weir_runs *runs = run->runs;
    const struct weir_driver *d = runs->driver;
    CUdeviceptr at = weir_run_control(run) + offsetof(struct weir_ptx_control, next);
    uint64_t end_ns = weir_clock_now_ns() + READ_LIMIT_NS;

    pthread_mutex_unlock(&runs->lock);
    CUresult result = d->cuMemcpyDtoHAsync_v2(runs->words, at, 5 * sizeof(uint32_t), runs->control);
    while (result == CUDA_SUCCESS) {
        result = d->cuStreamQuery(runs->control);
        if (result != CUDA_ERROR_NOT_READY) {
            break;
        }
        result = weir_clock_now_ns() < end_ns ? CUDA_SUCCESS : CUDA_ERROR_TIMEOUT;
        weir_cpu_pause();
    }
    if (result == CUDA_ERROR_TIMEOUT) {
        (void)d->cuStreamSynchronize(runs->control); /* a late copy would overwrite the words */
    }
    pthread_mutex_lock(&runs->lock);
    WEIR_FAIL_IF(result != CUDA_SUCCESS, false);
    run->blocks.next = __atomic_load_n(&runs->words[0], __ATOMIC_RELAXED);
    run->blocks.done = __atomic_load_n(&runs->words[2], __ATOMIC_RELAXED);
    run->blocks.workers = __atomic_load_n(&runs->words[3], __ATOMIC_RELAXED);
    *ret_finished = __atomic_load_n(&runs->words[4], __ATOMIC_RELAXED);
    run->begun |= run->blocks.next != 0;
    return true;
}

static bool all_gone(struct weir_run *run)
{
    if (!run->first_gone) {
        run->first_gone = run->runs->driver->cuEventQuery(run->events.first) == CUDA_SUCCESS;
    }
    return run->first_gone && run->lanes == 0;
}

/* ---------------------------------------------------------------- by state */

/* A run does not stop. The order cannot be withdrawn before it takes effect (control_block.h); then
 * the run is resumed. */
static void does_not_stop(struct weir_run *run)
{
    struct weir_runs *runs = run->runs;

    weir_log_warn("forms: a kernel does not stop, never stopped again blocks=%u begun=%u done=%u",
                  run->args.total, run->blocks.next, run->blocks.done);
    run->end.stuck = true;
    run->end.no_stop = true;
    run->want.resume = true;
    pthread_cond_broadcast(&runs->ended);
    runs->counts.stuck++;
    tell(runs, run, WEIR_RUN_DOES_NOT_STOP);
}

/* Let the stream of a run that has stopped for good continue, as if the run had finished. */
static void let_on(struct weir_run *run)
{
    struct weir_runs *runs = run->runs;
    CUdeviceptr at = weir_run_control(run) + offsetof(struct weir_ptx_control, finished);

    if (!run->end.let_on &&
        runs->driver->cuStreamWriteValue32_v2(runs->control, at, 1,
                                              CU_STREAM_WRITE_VALUE_DEFAULT) == CUDA_SUCCESS) {
        run->end.let_on = true;
        runs->counts.withdrawn++;
        pthread_cond_broadcast(&runs->ended);
    }
}

static void look_stopping(struct weir_run *run)
{
    struct weir_runs *runs = run->runs;
    bool gone = all_gone(run), still;
    uint32_t finished, taken;

    if (!read_words(run, &finished) || run->state != WEIR_RUN_STOPPING) {
        return;
    }
    if (finished != 0) {
        run->state = WEIR_RUN_RUNNING; /* the GPU is about to write "passed" */
        runs->counts.late += !run->end.stuck;
        pthread_cond_broadcast(&runs->ended);
        return;
    }
    taken = WEIR_MIN(run->blocks.next, run->args.total);
    still = run->p.form == WEIR_PTX_FORM_TICKET ? taken == 0 || gone : run->blocks.workers == 0;
    if (!still) {
        if (!run->end.stuck && weir_clock_now_ns() - run->time.stop_ns > STOP_LIMIT_NS) {
            does_not_stop(run);
        }
        return;
    }
    run->state = WEIR_RUN_STOPPED;
    runs->counts.stopped += !run->end.stuck;
    if (run->end.withdrawn) {
        let_on(run);
        return;
    }
    tell(runs, run, WEIR_RUN_HAS_STOPPED);
    if (run->want.resume && run->state == WEIR_RUN_STOPPED) {
        (void)weir_run_resume_locked(run);
    }
}

static void look_stopped(struct weir_run *run)
{
    struct weir_runs *runs = run->runs;
    bool over = weir_clock_now_ns() >= run->time.lease_end_ns;

    if (run->end.withdrawn) {
        let_on(run);
        return;
    }
    if (!over && !run->want.resume && !run->end.no_stop) {
        return;
    }
    runs->counts.leases += over && !run->want.resume && !run->end.no_stop;
    if (weir_run_resume_locked(run) == CUDA_SUCCESS && run->state == WEIR_RUN_RUNNING) {
        tell(runs, run, WEIR_RUN_HAS_RESUMED);
    }
}

/* Handle grids that have all ended without finishing: they were placed on no SM of theirs, or were
 * stopped. */
static void look_unfinished(struct weir_run *run)
{
    struct weir_runs *runs = run->runs;
    uint32_t finished;

    if (!read_words(run, &finished) || finished != 0 || run->state != WEIR_RUN_RUNNING ||
        !all_gone(run)) {
        return;
    }
    if (run->restarts++ != 0) {
        run->place = (struct weir_run_place){.task_blocks = run->place.task_blocks};
        run->replaced = true; /* the next grid's parameters have that place */
    }
    runs->counts.restarts++;
    (void)weir_run_again_locked(run);
}

/* Has the first grid not begun yet? */
static bool is_ahead(const struct weir_run *run)
{
    return run->runs->driver->cuEventQuery(run->events.before) == CUDA_ERROR_NOT_READY;
}

/* May a further grid be launched? It may not overtake the run's own stream. While the first grid
 * has not taken a block, all its worker blocks may be about to leave because of an old order. In
 * the ticket form only one grid at a time is allowed: the kernel behind it reports that all blocks
 * are done when all have begun. */
static bool may_have_another(struct weir_run *run)
{
    uint32_t finished;

    return (run->begun || run->first_gone || read_words(run, &finished)) &&
           run->state == WEIR_RUN_RUNNING && (run->begun || run->first_gone) &&
           (run->p.form != WEIR_PTX_FORM_TICKET || all_gone(run));
}

/* Make sure that a run ends while a call wants the device idle. If its stream has not reached the
 * run, nothing is needed: the stream may wait for a host function or a value of a program whose
 * next call may be waiting here. Any other run gets a further grid, behind all orders, which
 * executes the rest. The device must reach that grid now, since later work might block it. */
static void make_sure(struct weir_run *run)
{
    struct weir_runs *runs = run->runs;

    if (runs->driver->cuStreamQuery(runs->control) != CUDA_SUCCESS) {
        return; /* the word that resumes the run is not written yet */
    }
    if (!run->sent && !is_ahead(run)) {
        run->sent = may_have_another(run) && weir_run_again_locked(run) == CUDA_SUCCESS;
        return;
    }
    if (weir_run_lanes_are_reached_locked(run)) {
        run->sure = true;
        pthread_cond_broadcast(&runs->ended);
    }
}

/*
 * Try another lane. The driver chooses the connection of a lane's work, and it may be one on which
 * the run's own stream waits for this grid. Another lane may use another connection. The grid left
 * behind will find no block to execute.
 */
static void try_another_way(struct weir_run *run)
{
    if (run->p.form == WEIR_PTX_FORM_PERSISTENT && run->ways < WAYS_MAX && run->lanes != 0 &&
        weir_run_lanes_are_blocked_locked(run) && weir_run_again_locked(run) == CUDA_SUCCESS) {
        run->ways++;
        run->runs->counts.other_ways++;
    }
}

static void look_running(struct weir_run *run)
{
    uint32_t finished;

    try_another_way(run);
    if (run->want.ask && weir_run_lanes_are_reached_locked(run)) {
        run->want.ask = weir_run_ask(run, run->runs->control, false) != CUDA_SUCCESS;
    }
    if (run->plain || run->sure) {
        return;
    }
    if (run->runs->idle_wanted != 0) {
        (void)all_gone(run);
        make_sure(run);
        return;
    }
    if (all_gone(run)) {
        look_unfinished(run);
        return;
    }
    if (run->want.grow && (run->begun || read_words(run, &finished)) &&
        run->state == WEIR_RUN_RUNNING) {
        if (!run->begun) {
            run->want.grow = false; /* its first grid has not begun, and will read the new order */
        } else if (weir_run_again_locked(run) != CUDA_ERROR_NOT_READY) {
            run->want.grow = false;
        }
    }
}

/* ---------------------------------------------------------------- the end of a run */

static void end_locked(struct weir_run *run)
{
    struct weir_runs *runs = run->runs;
    void (*ended)(void *user) = run->p.ended;
    void *user = run->p.user;

    *(run->previous ? &run->previous->next : &runs->first) = run->next;
    *(run->next ? &run->next->previous : &runs->last) = run->previous;
    run->next = run->previous = NULL;
    run->linked = false;
    runs->counts.flying--;
    runs->counts.finished++;
    weir_run_drop_locked(run);
    if (ended) {
        pthread_mutex_unlock(&runs->lock);
        ended(user);
        pthread_mutex_lock(&runs->lock);
    }
    pthread_cond_broadcast(&runs->ended);
}

/* A1: acquires the stream's work; meets the GPU's write behind the wait. */
static bool passed(const struct weir_run *run)
{
    return __atomic_load_n(&run->chunk->passed[run->slot], __ATOMIC_ACQUIRE) != 0;
}

/* Check one run. true: check it again soon. It may be freed afterwards. */
static bool look(struct weir_run *run)
{
    if (passed(run)) {
        if (!run->end.told_finished) {
            run->end.told_finished = true;
            run->runs->counts.late += run->state == WEIR_RUN_STOPPING && !run->end.stuck;
            run->state = WEIR_RUN_FINISHED;
            pthread_cond_broadcast(&run->runs->ended);
            run->blocks.next = run->blocks.done = run->args.total;
            run->time.finished_ns = weir_clock_now_ns();
            tell(run->runs, run, WEIR_RUN_HAS_FINISHED);
        }
        if (run->lanes == 0) {
            end_locked(run);
        }
        return false;
    }
    switch (run->state) {
    case WEIR_RUN_STOPPING:
        look_stopping(run);
        return true;
    case WEIR_RUN_STOPPED:
        look_stopped(run);
        return run->want.resume;
    case WEIR_RUN_RUNNING:
        look_running(run);
        return run->want.grow || run->want.ask ||
               (run->runs->idle_wanted != 0 && !run->plain && !run->sure);
    case WEIR_RUN_FINISHED:
    default:
        return false;
    }
}

/* Check all runs. New ones are added at the end. The lock is dropped now and then, but only this
 * thread removes runs. */
static bool look_at_all(struct weir_runs *runs)
{
    bool soon = false;

    if (runs->n_lanes != 0) {
        weir_run_lanes_look_locked(runs);
    }
    for (struct weir_run *run = runs->first, *next; run; run = next) {
        next = run->next;
        soon |= look(run);
    }
    return soon;
}

static void sleep_locked(struct weir_runs *runs, uint64_t ns)
{
    (void)weir_thread_condition_wait(&runs->work, &runs->lock, weir_clock_now_ns() + ns);
}

void *weir_runs_watch(void *user)
{
    struct weir_runs *runs = user;

    (void)prctl(PR_SET_NAME, "weir-watch");
    (void)prctl(PR_SET_TIMERSLACK, SLACK_NS);
    (void)runs->driver->cuCtxSetCurrent(runs->context);
    WEIR_LOCKED(&runs->lock);
    while (!runs->quit) {
        bool soon = look_at_all(runs);

        weir_run_chunks_look_locked(runs);
        if (runs->quit) {
            break; /* quit was set while the lock was dropped */
        }
        if (!runs->first && !weir_run_chunks_busy_locked(runs)) {
            runs->idle = true;
            pthread_cond_wait(&runs->work, &runs->lock);
            runs->idle = false;
        } else {
            sleep_locked(runs, soon ? LOOK_SOON_NS : LOOK_NS);
        }
    }
    return NULL;
}
