/*
 * Starts, stops, resumes and resizes runs. The watcher (run_watch.c) executes the steps that must
 * wait for the device, such as starting more blocks of a run that has stopped.
 */
#include "host_backend/worker/runs/run_private.h"
#include "host_backend/worker/runs/run_streams.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define READ_WORDS    5u
#define FIRST_WAIT_NS (2 * WEIR_NS_PER_S) /* limit of a wait for the first chunk's zeroes */

/* ---------------------------------------------------------------- a device's runs */

static CUresult make_streams(struct weir_runs *runs)
{
    const struct weir_driver *d = runs->driver;
    int least = 0, greatest = 0;

    (void)d->cuCtxGetStreamPriorityRange(&least, &greatest);
    WEIR_TRY(d->cuStreamCreateWithPriority(&runs->control, CU_STREAM_NON_BLOCKING, greatest));
    WEIR_TRY(d->cuStreamCreateWithPriority(&runs->keeping, CU_STREAM_NON_BLOCKING, greatest));
    return d->cuMemHostAlloc((void **)&runs->words, READ_WORDS * sizeof(uint32_t),
                             CU_MEMHOSTALLOC_PORTABLE);
}

enum weir_status weir_runs_create(const struct weir_driver *driver, CUcontext context, uint32_t sms,
                                  struct weir_run_streams *streams, struct weir_runs **ret_runs)
{
    struct weir_runs *runs = calloc(1, sizeof *runs);
    uint64_t end_ns = weir_clock_now_ns() + FIRST_WAIT_NS;
    struct timespec pause = {0, 50 * 1000};

    WEIR_FAIL_IF(!runs, WEIR_ERR_NO_MEMORY);
    runs->driver = driver;
    runs->context = context;
    runs->sms = sms;
    runs->streams = streams;
    pthread_mutex_init(&runs->lock, NULL);
    weir_thread_condition_init(&runs->work);
    weir_thread_condition_init(&runs->ended);
    if (make_streams(runs) != CUDA_SUCCESS || !weir_run_lanes_init(runs)) {
        weir_runs_destroy(runs);
        return WEIR_ERR_DRIVER;
    }
    do {
        weir_run_chunks_look_locked(runs); /* no other thread knows the runs yet */
    } while (runs->n_chunks != 0 && runs->chunks[0]->state != WEIR_RUN_CHUNK_READY &&
             weir_clock_now_ns() < end_ns && nanosleep(&pause, NULL) == 0);
    runs->watching = pthread_create(&runs->watcher, NULL, weir_runs_watch, runs) == 0;
    if (!runs->watching || runs->n_chunks == 0) {
        weir_runs_destroy(runs);
        return WEIR_ERR_DRIVER;
    }
    *ret_runs = runs;
    return WEIR_OK;
}

void weir_runs_destroy(struct weir_runs *runs)
{
    if (!runs) {
        return;
    }
    const struct weir_driver *d = runs->driver;
    if (runs->watching) {
        pthread_mutex_lock(&runs->lock);
        runs->quit = true;
        pthread_cond_signal(&runs->work);
        pthread_mutex_unlock(&runs->lock);
        pthread_join(runs->watcher, NULL);
    }
    weir_run_lanes_finish(runs);
    weir_run_chunks_finish(runs);
    if (runs->words) {
        (void)d->cuMemFreeHost(runs->words);
    }
    if (runs->control) {
        (void)d->cuStreamDestroy_v2(runs->control);
    }
    if (runs->keeping) {
        (void)d->cuStreamDestroy_v2(runs->keeping);
    }
    pthread_cond_destroy(&runs->ended);
    pthread_cond_destroy(&runs->work);
    pthread_mutex_destroy(&runs->lock);
    free(runs);
}

/* ---------------------------------------------------------------- parameters and launches */

/* The word that tells worker blocks the run's place. 0: they have the whole GPU, and need not check
 * their SM. With look_always the word is never 0, so that they read orders. */
static uint32_t place_word(const struct weir_run *run)
{
    const struct weir_run_place *place = &run->place;
    bool all_sms = place->sm_count == 0, no_block_limit = place->block_limit == 0;
    uint32_t block_limit = no_block_limit
                               ? WEIR_PTX_ASK_NO_BLOCK_LIMIT
                               : WEIR_MIN(place->block_limit, WEIR_PTX_ASK_NO_BLOCK_LIMIT);

    if (all_sms && no_block_limit && run->args.sm_range == 0 && run->args.block_limit == 0 &&
        !run->p.look_always) {
        return 0;
    }
    if (no_block_limit && run->args.block_limit == 0) {
        block_limit = 0; /* as the parameter; "none" would be one more value to check */
    }
    return WEIR_PTX_ASK(all_sms ? 0 : place->sm_first,
                        all_sms ? WEIR_PTX_ASK_MAX_SMS
                                : WEIR_MIN(place->sm_count, WEIR_PTX_ASK_MAX_SMS),
                        block_limit);
}

CUresult weir_run_ask(struct weir_run *run, CUstream stream, bool stop)
{
    bool ticket = run->p.form == WEIR_PTX_FORM_TICKET;
    size_t at =
        ticket ? offsetof(struct weir_ptx_control, stop) : offsetof(struct weir_ptx_control, ask);
    uint32_t place = run->replaced || run->p.look_always ? place_word(run) : 0;
    uint32_t word = ticket ? stop : place | (stop ? WEIR_PTX_ASK_STOP : 0);

    return run->runs->driver->cuStreamWriteValue32_v2(stream, weir_run_control(run) + at, word,
                                                      CU_STREAM_WRITE_VALUE_DEFAULT);
}

/*
 * How many worker blocks a grid has. The hardware places them, and worker blocks on a wrong SM
 * leave. So a range of SMs needs as many blocks as all SMs hold. A block limit does, too: the
 * hardware puts too many blocks on the emptiest SMs, where some leave, and too few on others. Of
 * two kernels with just enough blocks for nine and two an SM, half of the SMs had so many, and 16
 * of 132 had none of the first (H200, 2026-11-23).
 */
static uint32_t grid_blocks(const struct weir_run *run)
{
    const struct weir_run_place *place = &run->place;
    uint32_t total = run->args.total;
    uint64_t workers = (uint64_t)run->runs->sms * run->p.blocks_per_sm, tasks;

    if (run->p.form == WEIR_PTX_FORM_TICKET) {
        return run->blocks.next < total ? total - run->blocks.next : 1;
    }
    tasks = ((uint64_t)total + run->args.task_blocks - 1) / run->args.task_blocks;
    return (uint32_t)(place->sm_count == 0 && place->block_limit == 0 && tasks < workers ? tasks
                                                                                         : workers);
}

static CUresult launch_packed(const struct weir_driver *d, CUfunction f, uint32_t blocks,
                              const uint32_t block[3], uint32_t shared_bytes, CUstream stream,
                              void *params, size_t bytes)
{
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, params, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                     CU_LAUNCH_PARAM_END};

    return d->cuLaunchKernel(f, blocks, 1, 1, block[0], block[1], block[2], shared_bytes, stream,
                             NULL, extra);
}

/* Put one more grid of a run into a stream. */
static CUresult launch(struct weir_run *run, CUstream stream)
{
    const struct weir_driver *d = run->runs->driver;
    static const uint32_t one[3] = {1, 1, 1};
    WEIR_TRY(launch_packed(d, run->p.twin, grid_blocks(run), run->p.block, run->p.shared_bytes,
                           stream, run->params, run->p.param_bytes));
    if (run->p.form == WEIR_PTX_FORM_TICKET) {
        WEIR_TRY(launch_packed(d, run->p.finish, 1, one, 0, stream, &run->args, sizeof run->args));
    }
    return CUDA_SUCCESS;
}

/* Behind the first grid: make the stream wait for all blocks, and then write "passed". */
static CUresult hold_stream(struct weir_run *run)
{
    const struct weir_driver *d = run->runs->driver;
    CUstreamBatchMemOpParams ops[2];
    CUresult result = d->cuEventRecord(run->events.first, run->p.stream);

    memset(ops, 0, sizeof ops);
    ops[0].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    ops[0].waitValue.address = weir_run_control(run) + offsetof(struct weir_ptx_control, finished);
    ops[0].waitValue.value = 1;
    ops[0].waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
    ops[1].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    ops[1].writeValue.address = run->chunk->passed_dptr + run->slot * sizeof(uint32_t);
    ops[1].writeValue.value = 1;
    ops[1].writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
    return result != CUDA_SUCCESS ? result : d->cuStreamBatchMemOp_v2(run->p.stream, 2, ops, 0);
}

/* ---------------------------------------------------------------- start */

static void let_go_if_needed_locked(struct weir_runs *runs);

static int runs_priority(const struct weir_driver *d, CUstream stream)
{
    int priority = 0;

    (void)d->cuStreamGetPriority(stream, &priority);
    return priority;
}

static CUresult fill(struct weir_run *run, const struct weir_run_params *p, bool idle)
{
    uint32_t task = p->place.task_blocks != 0 ? p->place.task_blocks : 1;
    uint32_t n = WEIR_MIN(p->argument_bytes, p->args_offset);

    run->p = *p;
    run->p.arguments = NULL;
    if (idle) { /* while the device is to be idle, the run may use all SMs */
        run->p.place = (struct weir_run_place){.task_blocks = p->place.task_blocks};
    }
    run->place = run->p.place;
    run->params = p->param_bytes <= sizeof run->inside ? run->inside : malloc(p->param_bytes);
    WEIR_FAIL_IF(!run->params, CUDA_ERROR_OUT_OF_MEMORY);
    WEIR_FAIL_IF(!weir_ptx_form_args_init(p->grid, &run->args), CUDA_ERROR_INVALID_VALUE);
    run->args.control = weir_run_control(run);
    run->args.task_blocks = WEIR_MIN(task, WEIR_PTX_FORM_MAX_TASK);
    run->args.sm_range =
        run->place.sm_count != 0 ? WEIR_PTX_SM_RANGE(run->place.sm_first, run->place.sm_count) : 0;
    run->args.block_limit = run->place.block_limit;
    run->plain = run->place.sm_count == 0 && run->place.block_limit == 0;
    memset(run->params, 0, p->param_bytes);
    if (n != 0) { /* a kernel without parameters has no arguments */
        memcpy(run->params, p->arguments, n);
    }
    memcpy(run->params + p->args_offset, &run->args, sizeof run->args);
    run->priority = runs_priority(run->runs->driver, p->stream);
    run->time.started_ns = weir_clock_now_ns();
    return CUDA_SUCCESS;
}

static void link_locked(struct weir_runs *runs, struct weir_run *run)
{
    run->previous = runs->last;
    *(runs->last ? &runs->last->next : &runs->first) = run;
    runs->last = run;
    run->linked = true;
    runs->counts.started++;
    runs->counts.flying++;
    if (runs->idle) {
        pthread_cond_signal(&runs->work);
    }
}

CUresult weir_run_start(struct weir_runs *runs, const struct weir_run_params *params,
                        struct weir_run **ret_run)
{
    struct weir_run *run = NULL;
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;

    pthread_mutex_lock(&runs->lock);
    bool idle = runs->idle_wanted != 0;
    if (weir_run_streams_are_many(runs->streams, params->stream)) {
        runs->counts.crowded++;
        result = CUDA_ERROR_NOT_PERMITTED;
    } else if (!(run = weir_run_take_locked(runs))) {
        pthread_cond_signal(&runs->work); /* the watcher looks for a free lane */
    } else if (!idle) {
        runs->starting++;
    }
    pthread_mutex_unlock(&runs->lock);
    if (!run) {
        goto out;
    }
    result = fill(run, params, idle);
    WEIR_THEN(result, runs->driver->cuEventRecord(run->events.before, params->stream));
    WEIR_THEN(result, launch(run, params->stream));
    pthread_mutex_lock(&runs->lock);
    if (result != CUDA_SUCCESS) {
        weir_run_drop_locked(run);
    } else {
        CUresult held = hold_stream(run);

        if (held != CUDA_SUCCESS) {
            /* The launch succeeded. This was only ever seen with a dead context. */
            weir_log_error("forms: a stream cannot be held result=%d", (int)held);
            run->end.no_stop = true;
        } else if (params->look_always && !idle && runs->idle_wanted == 0) {
            (void)weir_run_ask(run, runs->control, false); /* if it fails, changes take longer */
        }
        if (ret_run) {
            run->refs++;
            *ret_run = run;
        }
        link_locked(runs, run);
    }
    if (!idle && --runs->starting == 0 && runs->idle_wanted != 0) {
        let_go_if_needed_locked(runs);
    }
    pthread_mutex_unlock(&runs->lock);
out:
    if (result != CUDA_SUCCESS && params->ended) {
        params->ended(params->user);
    }
    return result;
}

/* ---------------------------------------------------------------- stop, resume, resize */

static CUresult begin_stop_locked(struct weir_run *run)
{
    WEIR_TRY(weir_run_ask(run, run->runs->control, true));
    run->state = WEIR_RUN_STOPPING;
    run->plain = run->sure = run->sent = false;
    run->time.stop_ns = weir_clock_now_ns();
    run->runs->counts.stops++;
    pthread_cond_signal(&run->runs->work);
    return CUDA_SUCCESS;
}

CUresult weir_run_stop(struct weir_run *run, uint64_t lease_ns)
{
    struct weir_runs *runs = run->runs;
    CUresult result = CUDA_SUCCESS;

    WEIR_LOCKED(&runs->lock);
    if (run->state == WEIR_RUN_FINISHED) {
        runs->counts.no_finished++;
        result = CUDA_ERROR_NOT_PERMITTED;
    } else if (run->end.no_stop) {
        runs->counts.no_leaving++;
        result = CUDA_ERROR_NOT_PERMITTED;
    } else if (runs->idle_wanted != 0 ||
               (run->state == WEIR_RUN_RUNNING && !weir_run_lanes_are_reached_locked(run))) {
        runs->counts.no_idle++; /* otherwise the run would resume before the stop */
        result = CUDA_ERROR_NOT_READY;
    } else if (run->state == WEIR_RUN_RUNNING) {
        result = begin_stop_locked(run);
    }
    if (result == CUDA_SUCCESS) {
        run->time.lease_end_ns = weir_clock_now_ns() + lease_ns;
        run->want.resume = false;
    }
    return result;
}

/*
 * Write an order ahead of a grid, in the order of decisions: in the lane itself if the control
 * stream has nothing left to write. Otherwise the lane would have to wait for that stream, and
 * would occupy a connection meanwhile (run_streams.c).
 */
static CUresult ask_ahead_of(struct weir_run *run, struct weir_run_lane *lane)
{
    const struct weir_driver *d = run->runs->driver;
    CUstream control = run->runs->control;

    if (d->cuStreamQuery(control) == CUDA_SUCCESS) {
        return weir_run_ask(run, lane->stream, false);
    }
    WEIR_TRY(weir_run_ask(run, control, false));
    WEIR_TRY(d->cuEventRecord(lane->asked, control));
    return d->cuStreamWaitEvent(lane->stream, lane->asked, 0);
}

CUresult weir_run_again_locked(struct weir_run *run)
{
    const struct weir_driver *d = run->runs->driver;
    struct weir_run_lane *lane = weir_run_lane_take_locked(run);

    WEIR_FAIL_IF(!lane, CUDA_ERROR_NOT_READY);
    run->plain = false;
    CUresult result = ask_ahead_of(run, lane);
    if (result == CUDA_SUCCESS) {
        result = d->cuEventRecord(lane->reached, lane->stream);
        lane->is_reached = false;
        lane->given_ns = weir_clock_now_ns();
    }
    WEIR_THEN(result, launch(run, lane->stream));
    WEIR_THEN(result, d->cuEventRecord(lane->event, lane->stream));
    if (result != CUDA_SUCCESS) {
        weir_log_error("forms: a run cannot go on result=%d", (int)result);
    }
    return result;
}

/* Resume a run. A launch that has not begun continues in its own stream, behind earlier work. */
CUresult weir_run_resume_locked(struct weir_run *run)
{
    struct weir_runs *runs = run->runs;
    CUresult result = CUDA_SUCCESS;

    if (run->end.withdrawn) {
        return CUDA_SUCCESS;
    }
    if (run->state == WEIR_RUN_STOPPING) {
        run->want.resume = true;
        return CUDA_SUCCESS;
    }
    if (run->state != WEIR_RUN_STOPPED) {
        return CUDA_SUCCESS;
    }
    if (!run->first_gone && runs->driver->cuEventQuery(run->events.first) == CUDA_SUCCESS) {
        run->first_gone = true;
    }
    result = run->begun || run->first_gone ? weir_run_again_locked(run)
                                           : weir_run_ask(run, runs->control, false);
    run->want.resume = result != CUDA_SUCCESS; /* the watcher tries again */
    if (result == CUDA_SUCCESS) {
        run->state = WEIR_RUN_RUNNING;
        run->restarts = 0;
        pthread_cond_broadcast(&runs->ended);
        runs->counts.resumes++;
    }
    return result == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : result;
}

CUresult weir_run_resume(struct weir_run *run)
{
    WEIR_LOCKED(&run->runs->lock);
    CUresult result = weir_run_resume_locked(run);
    pthread_cond_signal(&run->runs->work);
    return result;
}

/*
 * Must more worker blocks start at the new place? Where a run may have had no blocks because
 * others' were there, it needs some once both have a limit: the others leave then, too.
 */
static bool grows(const struct weir_run *run, const struct weir_run_place *to)
{
    const struct weir_run_place *from = &run->place;
    uint32_t all = run->runs->sms;
    uint32_t from_last = from->sm_count == 0 ? all : from->sm_first + from->sm_count;
    uint32_t to_last = to->sm_count == 0 ? all : to->sm_first + to->sm_count;
    uint32_t from_first = from->sm_count == 0 ? 0 : from->sm_first;
    uint32_t to_first = to->sm_count == 0 ? 0 : to->sm_first;

    return to_first < from_first || to_last > from_last ||
           (from->block_limit != 0 && to->block_limit != from->block_limit);
}

static CUresult resize_locked(struct weir_run *run, const struct weir_run_place *place)
{
    uint32_t task = run->place.task_blocks;

    if (run->state == WEIR_RUN_FINISHED) {
        return CUDA_SUCCESS;
    }
    run->want.grow |= grows(run, place);
    run->place = *place;
    run->place.task_blocks = task;
    run->plain = run->sure = run->sent = false;
    run->replaced = true;
    run->runs->counts.resizes++;
    pthread_cond_signal(&run->runs->work);
    run->want.ask = run->state == WEIR_RUN_RUNNING && !weir_run_lanes_are_reached_locked(run);
    return run->want.ask ? CUDA_SUCCESS
                         : weir_run_ask(run, run->runs->control, run->state != WEIR_RUN_RUNNING);
}

CUresult weir_run_resize(struct weir_run *run, const struct weir_run_place *place)
{
    struct weir_runs *runs = run->runs;
    CUresult result = CUDA_SUCCESS;

    if (run->p.form != WEIR_PTX_FORM_PERSISTENT || place->sm_first > WEIR_PTX_ASK_MAX_SMS ||
        place->sm_count > WEIR_PTX_ASK_MAX_SMS) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    WEIR_LOCKED(&runs->lock);
    if (runs->idle_wanted != 0) {
        result = CUDA_ERROR_NOT_READY;
    } else if (!run->end.no_stop) {
        result = resize_locked(run, place);
    }
    return result;
}

/* ---------------------------------------------------------------- looking */

void weir_run_query(struct weir_run *run, struct weir_run_info *ret_info)
{
    uint32_t total = run->args.total;

    WEIR_LOCKED(&run->runs->lock);
    *ret_info = (struct weir_run_info){
        .state = run->state,
        .begun = run->begun,
        .timed = run->p.timed,
        .plain = run->plain,
        .blocks_per_sm = run->p.blocks_per_sm,
        .total = total,
        .done_blocks = run->state == WEIR_RUN_FINISHED ? total : WEIR_MIN(run->blocks.next, total),
        .workers = run->blocks.workers,
        .grids = run->lanes,
        .started_ns = run->time.started_ns,
        .finished_ns = run->time.finished_ns,
        .place = run->place};
}

void weir_run_put(struct weir_run *run)
{
    struct weir_runs *runs = run->runs;

    WEIR_LOCKED(&runs->lock);
    weir_run_drop_locked(run);
}

void weir_runs_release(struct weir_runs *runs, const void *owner)
{
    WEIR_LOCKED(&runs->lock);
    for (struct weir_run *run = runs->first; run; run = run->next) {
        if (!owner || run->p.owner == owner) {
            run->end.no_stop = true;
            (void)weir_run_resume_locked(run);
        }
    }
    pthread_cond_signal(&runs->work);
}

/* Stop all runs of the owner before any of their streams continues, so that no work begins on
 * unfinished results of a stopped run. If a run cannot be stopped, the watcher lets it finish. */
void weir_runs_withdraw(struct weir_runs *runs, const void *owner)
{
    WEIR_LOCKED(&runs->lock);
    for (struct weir_run *run = runs->first; run; run = run->next) {
        if (run->p.owner != owner || run->state == WEIR_RUN_FINISHED) {
            continue;
        }
        run->end.no_stop = true;
        if (run->state != WEIR_RUN_RUNNING || begin_stop_locked(run) == CUDA_SUCCESS) {
            run->end.withdrawn = true;
            run->want.resume = false;
        }
    }
    pthread_cond_signal(&runs->work);
}

bool weir_runs_any_stopped_locked(const struct weir_runs *runs)
{
    const struct weir_run *run = runs->first;

    while (run && run->state != WEIR_RUN_STOPPED &&
           (run->state != WEIR_RUN_STOPPING || run->end.stuck)) {
        run = run->next;
    }
    return run != NULL;
}

/* Does a run need the worker to finish? A plain run does not. A run that was stopped must be
 * started again; so must one whose worker blocks all left because of its range or block limit. */
static bool any_needs_us_locked(const struct weir_runs *runs)
{
    const struct weir_run *run = runs->first;

    while (run && (run->plain || run->sure || run->end.let_on || run->state == WEIR_RUN_FINISHED)) {
        run = run->next;
    }
    return run || runs->starting != 0;
}

/* Resume all runs, on all SMs. */
static void let_go_locked(struct weir_runs *runs)
{
    const struct weir_run_place all = {0};

    for (struct weir_run *run = runs->first; run; run = run->next) {
        if (!run->plain && !run->sure && run->p.form == WEIR_PTX_FORM_PERSISTENT) {
            (void)resize_locked(run, &all);
        }
        (void)weir_run_resume_locked(run);
    }
    pthread_cond_signal(&runs->work);
}

/* Resume runs while a caller wants an idle device, including runs that were being started then. */
static void let_go_if_needed_locked(struct weir_runs *runs)
{
    if (any_needs_us_locked(runs)) {
        let_go_locked(runs);
    }
    pthread_cond_broadcast(&runs->ended);
}

bool weir_runs_device_idle_begin(struct weir_runs *runs, uint64_t limit_ns)
{
    uint64_t end_ns = weir_clock_now_ns() + limit_ns;

    WEIR_LOCKED(&runs->lock);
    runs->idle_wanted++;
    let_go_if_needed_locked(runs);
    while (any_needs_us_locked(runs) &&
           weir_thread_condition_wait(&runs->ended, &runs->lock, end_ns)) {
    }
    return !any_needs_us_locked(runs);
}

void weir_runs_device_idle_end(struct weir_runs *runs)
{
    WEIR_LOCKED(&runs->lock);
    runs->idle_wanted--;
}

static bool any_of(const struct weir_runs *runs, const void *owner)
{
    const struct weir_run *run = runs->first;

    while (run && owner && run->p.owner != owner) {
        run = run->next;
    }
    return run != NULL;
}

bool weir_runs_wait(struct weir_runs *runs, const void *owner, uint64_t timeout_ns)
{
    uint64_t end_ns = weir_clock_now_ns() + timeout_ns;

    WEIR_LOCKED(&runs->lock);
    while (any_of(runs, owner) && weir_thread_condition_wait(&runs->ended, &runs->lock, end_ns)) {
    }
    return !any_of(runs, owner);
}

void weir_runs_stop_missed(struct weir_runs *runs)
{
    WEIR_LOCKED(&runs->lock);
    runs->counts.no_run++;
}

void weir_runs_count(struct weir_runs *runs, struct weir_runs_counts *ret_counts)
{
    WEIR_LOCKED(&runs->lock);
    *ret_counts = runs->counts;
}

bool weir_runs_are_under_way(struct weir_runs *runs)
{
    struct weir_runs_counts counts = {0};

    if (runs) {
        weir_runs_count(runs, &counts);
    }
    return counts.flying != 0;
}

struct weir_run *weir_runs_pick(struct weir_runs *runs, uint32_t pick)
{
    WEIR_LOCKED(&runs->lock);
    struct weir_run *run = runs->first;
    for (uint32_t i = runs->counts.flying != 0 ? pick % runs->counts.flying : 0;
         i != 0 && run && run->next; i--) {
        run = run->next;
    }
    if (run) {
        run->refs++;
    }
    return run;
}
