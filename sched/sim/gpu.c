/*
 * The model of a GPU: streams, engines and time. gpu_share.c computes the speeds of kernels.
 *
 * Time passes in steps in which nothing changes: weir_sim_gpu_advance() goes to the next moment at
 * which a unit begins, ends, stops, or becomes known to the host, lets all units work until then,
 * and makes that one change. Times are whole nanoseconds. Work is a double, but the same steps are
 * always added in the same order, so runs repeat exactly.
 *
 *   QUEUED -> RUNNING -> DONE -> (told, gone)
 *                |  ^
 *                v  | resume
 *             STOPPING -> DRAINING -> STOPPED
 */
#include "sched/sim/gpu_private.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NEVER UINT64_MAX

/* A context keeps the SMs this long while another one waits for them; the driver's default. */
#define CONTEXT_SLICE_NS 2000000u

/* The longest unit of work is a day, so that sums of times do not overflow. */
#define TIME_MAX_NS UINT64_C(86400000000000)

enum weir_status weir_sim_gpu_create(const struct weir_sim_gpu_params *params,
                                     struct weir_sim_gpu **ret_gpu)
{
    if (!params->sms || params->sms > WEIR_SIM_SMS_MAX || !params->h2d_mb_s || !params->d2h_mb_s) {
        return WEIR_ERR_INVALID;
    }
    struct weir_sim_gpu *gpu = calloc(1, sizeof *gpu);
    WEIR_FAIL_IF(!gpu, WEIR_ERR_NO_MEMORY);
    gpu->params = *params;
    *ret_gpu = gpu;
    return WEIR_OK;
}

static void unit_free(struct weir_sim_unit *unit)
{
    free(unit->shares);
    free(unit);
}

void weir_sim_gpu_destroy(struct weir_sim_gpu *gpu)
{
    if (!gpu) {
        return;
    }
    for (size_t i = 0; i < gpu->n_units; i++) {
        unit_free(gpu->units[i]);
    }
    free(gpu->units);
    free(gpu->sorted);
    free(gpu);
}

void weir_sim_gpu_watch(struct weir_sim_gpu *gpu, weir_sim_hold_fn hold, void *user)
{
    gpu->hold = hold;
    gpu->hold_user = user;
}

void weir_sim_gpu_usage(const struct weir_sim_gpu *gpu, struct weir_sim_usage *ret_usage)
{
    *ret_usage = gpu->usage;
    ret_usage->now_ns = gpu->now_ns;
}

void weir_sim_gpu_end(struct weir_sim_gpu *gpu)
{
    for (size_t i = 0; i < gpu->n_units; i++) {
        if (weir_sim_unit_holds(gpu->units[i])) {
            weir_sim_gpu_tell_held(gpu, gpu->units[i]);
        }
    }
}

static struct weir_sim_unit *find(const struct weir_sim_gpu *gpu, uint64_t id)
{
    for (size_t i = 0; i < gpu->n_units; i++) {
        if (gpu->units[i]->id == id) {
            return gpu->units[i];
        }
    }
    return NULL;
}

static bool is_place(const struct weir_sim_gpu *gpu, const struct weir_sim_place *place)
{
    return !place->sm_count || (place->sm_first < gpu->params.sms &&
                                place->sm_count <= gpu->params.sms - place->sm_first);
}

static bool is_work(const struct weir_sim_work *work)
{
    if (work->engine != WEIR_SIM_COMPUTE) {
        return work->engine < WEIR_SIM_ENGINES;
    }
    return work->blocks && work->blocks_per_sm && work->sm_ns <= TIME_MAX_NS * WEIR_SIM_SMS_MAX &&
           work->need >= 0 && work->need <= 1 && work->memory >= 0 && work->memory <= 1;
}

static uint64_t copy_ns(const struct weir_sim_gpu *gpu, const struct weir_sim_work *work)
{
    uint64_t mb_s = work->engine == WEIR_SIM_H2D ? gpu->params.h2d_mb_s : gpu->params.d2h_mb_s;
    double ns = ceil((double)work->bytes * 1000.0 / (double)mb_s);
    return ns < (double)TIME_MAX_NS ? (uint64_t)ns : TIME_MAX_NS;
}

/* Room for one more unit; both arrays have the same length. */
static bool grow(struct weir_sim_gpu *gpu)
{
    if (gpu->n_units < gpu->cap_units) {
        return true;
    }
    size_t cap = gpu->cap_units ? gpu->cap_units * 2 : 64;
    struct weir_sim_unit **units = realloc(gpu->units, cap * sizeof *units);
    WEIR_FAIL_IF(!units, false);
    gpu->units = units;
    struct weir_sim_unit **sorted = realloc(gpu->sorted, cap * sizeof *sorted);
    WEIR_FAIL_IF(!sorted, false);
    gpu->sorted = sorted;
    gpu->cap_units = cap;
    return true;
}

static struct weir_sim_unit *unit_make(const struct weir_sim_gpu *gpu,
                                       const struct weir_sim_work *work)
{
    struct weir_sim_unit *unit = calloc(1, sizeof *unit);
    WEIR_FAIL_IF(!unit, NULL);
    unit->work = *work;
    unit->waits = work->has_peers;
    unit->finish_ns = unit->stop_ns = unit->notice_ns = NEVER;
    unit->next_place_ns = unit->settled_ns = NEVER;
    if (work->engine == WEIR_SIM_COMPUTE) {
        unit->shares = calloc(gpu->params.sms, sizeof *unit->shares);
        unit->left = (double)work->sm_ns;
        unit->parallel = (double)work->blocks / work->blocks_per_sm;
        if (!unit->shares) {
            free(unit);
            return NULL;
        }
    } else {
        unit->left = (double)copy_ns(gpu, work);
    }
    return unit;
}

static bool is_of_stream(const struct weir_sim_unit *unit, uint32_t stream)
{
    return unit->work.stream == stream && unit->state != WEIR_SIM_UNIT_DONE;
}

enum weir_status weir_sim_gpu_start(struct weir_sim_gpu *gpu, uint64_t now_ns, uint64_t id,
                                    const struct weir_sim_work *work,
                                    const struct weir_sim_place *place)
{
    WEIR_FAIL_IF(!is_place(gpu, place) || !is_work(work) || now_ns < gpu->now_ns || find(gpu, id),
                 WEIR_ERR_INVALID);
    struct weir_sim_unit *unit = grow(gpu) ? unit_make(gpu, work) : NULL;
    WEIR_FAIL_IF(!unit, WEIR_ERR_NO_MEMORY);
    unit->id = id;
    unit->place = *place;
    unit->ready_ns = now_ns + gpu->params.launch_ns + work->delay_ns;
    unit->launched = gpu->launches++;
    unit->head = true;
    for (size_t i = 0; i < gpu->n_units; i++) {
        if (is_of_stream(gpu->units[i], work->stream)) {
            unit->head = false;
        }
    }
    if (work->engine == WEIR_SIM_COMPUTE && !gpu->has_context) {
        gpu->has_context = true;
        gpu->context = work->context;
    }
    gpu->has_others |= work->engine == WEIR_SIM_COMPUTE && work->context != gpu->context;
    gpu->units[gpu->n_units++] = unit;
    return WEIR_OK;
}

static double task_ns(const struct weir_sim_unit *unit)
{
    uint32_t blocks = unit->work.task_blocks ? unit->work.task_blocks : 1;
    return unit->share > 0 ? weir_sim_block_ns(&unit->work) * blocks : 0;
}

enum weir_status weir_sim_gpu_stop(struct weir_sim_gpu *gpu, uint64_t now_ns, uint64_t id)
{
    struct weir_sim_unit *unit = find(gpu, id);
    WEIR_FAIL_IF(!unit || unit->work.engine != WEIR_SIM_COMPUTE || now_ns < gpu->now_ns,
                 WEIR_ERR_NOT_FOUND);
    if (unit->state == WEIR_SIM_UNIT_RUNNING || unit->state == WEIR_SIM_UNIT_QUEUED) {
        unit->state = WEIR_SIM_UNIT_STOPPING;
        unit->stop_ns = now_ns + gpu->params.stop_ns + (uint64_t)task_ns(unit);
        gpu->is_stale = true;
    }
    return WEIR_OK;
}

static uint32_t blocks_left(const struct weir_sim_unit *unit)
{
    if (!unit->work.sm_ns || unit->left <= 0) {
        return 0;
    }
    double part = unit->left / (double)unit->work.sm_ns;
    double blocks = ceil(part * unit->work.blocks - 1e-6);
    return blocks >= unit->work.blocks ? unit->work.blocks : (uint32_t)blocks;
}

enum weir_status weir_sim_gpu_resume(struct weir_sim_gpu *gpu, uint64_t now_ns, uint64_t id,
                                     const struct weir_sim_place *place)
{
    struct weir_sim_unit *unit = find(gpu, id);
    WEIR_FAIL_IF(!unit || now_ns < gpu->now_ns, WEIR_ERR_NOT_FOUND);
    WEIR_FAIL_IF(!is_place(gpu, place), WEIR_ERR_INVALID);
    if (unit->state == WEIR_SIM_UNIT_STOPPED && unit->notice_ns == NEVER) {
        unit->state = WEIR_SIM_UNIT_QUEUED;
        unit->launched = gpu->launches++;
        unit->place = *place;
        unit->next_place_ns = NEVER;
        unit->ready_ns = now_ns + gpu->params.resume_ns;
        unit->parallel = (double)blocks_left(unit) / unit->work.blocks_per_sm;
    } else if (unit->state == WEIR_SIM_UNIT_STOPPING) {
        /* The stop is revoked before it took effect: SMs that were left come back later. */
        unit->state = unit->is_on ? WEIR_SIM_UNIT_RUNNING : WEIR_SIM_UNIT_QUEUED;
        unit->stop_ns = NEVER;
        unit->next_place = *place;
        unit->next_place_ns = now_ns + gpu->params.resume_ns;
    } else {
        return WEIR_ERR_NOT_FOUND;
    }
    gpu->is_stale = true;
    return WEIR_OK;
}

enum weir_status weir_sim_gpu_release(struct weir_sim_gpu *gpu, uint64_t id)
{
    struct weir_sim_unit *unit = find(gpu, id);
    WEIR_FAIL_IF(!unit, WEIR_ERR_NOT_FOUND);
    unit->waits = false;
    gpu->is_stale = true;
    return WEIR_OK;
}

/* Is all of inner's range in outer's, with no smaller block limit? */
static bool is_within(const struct weir_sim_gpu *gpu, const struct weir_sim_place *inner,
                      const struct weir_sim_place *outer)
{
    uint32_t sms = gpu->params.sms;
    uint32_t inner_first = inner->sm_count ? inner->sm_first : 0;
    uint32_t outer_first = outer->sm_count ? outer->sm_first : 0;
    uint32_t inner_end = inner->sm_count ? inner_first + inner->sm_count : sms;
    uint32_t outer_end = outer->sm_count ? outer_first + outer->sm_count : sms;
    return inner_first >= outer_first && inner_end <= outer_end &&
           (!outer->block_limit ||
            (inner->block_limit && inner->block_limit <= outer->block_limit));
}

enum weir_status weir_sim_gpu_resize(struct weir_sim_gpu *gpu, uint64_t now_ns, uint64_t id,
                                     const struct weir_sim_place *place)
{
    struct weir_sim_unit *unit = find(gpu, id);
    WEIR_FAIL_IF(!unit || unit->work.engine != WEIR_SIM_COMPUTE || now_ns < gpu->now_ns,
                 WEIR_ERR_NOT_FOUND);
    WEIR_FAIL_IF(!is_place(gpu, place), WEIR_ERR_INVALID);
    if (!weir_sim_unit_holds(unit)) {
        unit->place = *place;
        unit->next_place_ns = NEVER;
        return WEIR_OK;
    }
    /* A unit that only grows starts blocks; one that leaves an SM first ends its task there. */
    uint64_t after_ns = is_within(gpu, &unit->place, place)
                            ? gpu->params.resume_ns
                            : gpu->params.stop_ns + (uint64_t)task_ns(unit);
    unit->next_place = *place;
    unit->next_place_ns = now_ns + after_ns;
    return WEIR_OK;
}

static bool engine_is_busy(const struct weir_sim_gpu *gpu, enum weir_sim_engine engine)
{
    for (size_t i = 0; engine != WEIR_SIM_COMPUTE && i < gpu->n_units; i++) {
        const struct weir_sim_unit *unit = gpu->units[i];
        if (unit->work.engine == engine && unit->state == WEIR_SIM_UNIT_RUNNING) {
            return true;
        }
    }
    return false;
}

static bool is_waiting_compute(const struct weir_sim_unit *unit)
{
    return unit->work.engine == WEIR_SIM_COMPUTE && unit->head &&
           unit->state == WEIR_SIM_UNIT_QUEUED;
}

/* Has another context's kernel waited for a time slice? Then no kernel of this one begins. */
static bool has_to_yield(const struct weir_sim_gpu *gpu)
{
    for (size_t i = 0; i < gpu->n_units; i++) {
        const struct weir_sim_unit *unit = gpu->units[i];
        uint64_t since_ns = WEIR_MAX(unit->ready_ns, gpu->context_ns);
        if (is_waiting_compute(unit) && unit->work.context != gpu->context &&
            since_ns + CONTEXT_SLICE_NS <= gpu->now_ns) {
            return true;
        }
    }
    return false;
}

/* Does the context that has the SMs keep them, by a kernel that runs or that begins now? */
static bool is_kept(const struct weir_sim_gpu *gpu)
{
    bool is_wanted = false;
    for (size_t i = 0; i < gpu->n_units; i++) {
        const struct weir_sim_unit *unit = gpu->units[i];
        if (weir_sim_unit_holds(unit)) {
            return true;
        }
        is_wanted |= is_waiting_compute(unit) && unit->work.context == gpu->context &&
                     unit->ready_ns <= gpu->now_ns;
    }
    return gpu->context_ns > gpu->now_ns || (is_wanted && !has_to_yield(gpu));
}

/* The earliest time at which contexts allow the head of a stream to begin. */
static uint64_t context_lets(const struct weir_sim_gpu *gpu, const struct weir_sim_unit *unit)
{
    if (unit->work.engine != WEIR_SIM_COMPUTE || !gpu->has_others) {
        return unit->ready_ns;
    }
    if (unit->work.context != gpu->context) {
        return is_kept(gpu) ? NEVER : unit->ready_ns;
    }
    if (has_to_yield(gpu)) {
        return NEVER;
    }
    return WEIR_MAX(unit->ready_ns, gpu->context_ns);
}

/* The time of a unit's next change by itself. */
static uint64_t unit_next_ns(const struct weir_sim_gpu *gpu, const struct weir_sim_unit *unit)
{
    uint64_t next = NEVER;
    switch (unit->state) {
    case WEIR_SIM_UNIT_QUEUED:
        if (unit->head && !engine_is_busy(gpu, unit->work.engine)) {
            next = context_lets(gpu, unit);
        }
        break;
    case WEIR_SIM_UNIT_RUNNING:
    case WEIR_SIM_UNIT_STOPPING:
        next = WEIR_MIN(unit->finish_ns, unit->stop_ns);
        next = WEIR_MIN(unit->next_place_ns, next);
        next = WEIR_MIN(unit->settled_ns, next);
        break;
    case WEIR_SIM_UNIT_DRAINING:
        next = unit->stop_ns;
        break;
    case WEIR_SIM_UNIT_STOPPED:
    case WEIR_SIM_UNIT_DONE:
        next = unit->notice_ns;
        break;
    }
    return next > gpu->now_ns || next == NEVER ? next : gpu->now_ns;
}

uint64_t weir_sim_gpu_next_ns(const struct weir_sim_gpu *gpu)
{
    if (gpu->is_stale) {
        return gpu->now_ns;
    }
    uint64_t next = NEVER;
    for (size_t i = 0; i < gpu->n_units; i++) {
        uint64_t one = unit_next_ns(gpu, gpu->units[i]);
        next = WEIR_MIN(one, next);
    }
    return next;
}

/* Let all units work until to_ns; no rate changes on the way. */
static void work_until(struct weir_sim_gpu *gpu, uint64_t to_ns)
{
    double ns = (double)(to_ns - gpu->now_ns);
    double held = 0;
    double dram = 0;
    bool is_busy[WEIR_SIM_ENGINES] = {false};
    bool is_wanted = false;
    for (size_t i = 0; ns > 0 && i < gpu->n_units; i++) {
        struct weir_sim_unit *unit = gpu->units[i];
        bool is_compute = unit->work.engine == WEIR_SIM_COMPUTE;
        is_wanted |= is_compute && unit->head && unit->state == WEIR_SIM_UNIT_QUEUED;
        if (is_compute ? weir_sim_unit_holds(unit) : unit->state == WEIR_SIM_UNIT_RUNNING) {
            unit->left -= unit->rate * ns;
            held += unit->share;
            gpu->usage.peers_sm_ns += unit->waits ? unit->share * ns : 0;
            dram += unit->speed * unit->work.memory;
            is_wanted |= is_compute;
            is_busy[unit->work.engine] |= !is_compute || unit->share > 0;
        }
    }
    gpu->usage.sm_ns += held * ns;
    gpu->usage.dram_ns += dram * ns;
    gpu->usage.idle_sm_ns += is_wanted ? (gpu->params.sms - held) * ns : 0;
    for (size_t i = 0; i < WEIR_SIM_ENGINES; i++) {
        gpu->usage.engine_ns[i] += is_busy[i] ? ns : 0;
    }
    gpu->now_ns = to_ns;
}

void weir_sim_gpu_pass(struct weir_sim_gpu *gpu, uint64_t to_ns)
{
    if (to_ns > gpu->now_ns) {
        work_until(gpu, to_ns);
    }
}

/* Give the SMs to another context; its unit begins after the change. */
static bool change_context(struct weir_sim_gpu *gpu, const struct weir_sim_unit *unit)
{
    if (unit->work.engine != WEIR_SIM_COMPUTE || unit->work.context == gpu->context) {
        return false;
    }
    gpu->context = unit->work.context;
    gpu->context_ns = gpu->now_ns + gpu->params.switch_ns;
    gpu->usage.switches++;
    return true;
}

static void begin(struct weir_sim_gpu *gpu, struct weir_sim_unit *unit)
{
    if (change_context(gpu, unit)) {
        return;
    }
    unit->state = WEIR_SIM_UNIT_RUNNING;
    if (unit->work.engine != WEIR_SIM_COMPUTE) {
        unit->has_begun = true;
        unit->begun_ns = gpu->now_ns;
        unit->rate = 1;
        unit->finish_ns = gpu->now_ns + (uint64_t)unit->left;
        return;
    }
    double displaced_ns = 0;
    for (size_t i = 0; i < gpu->n_units; i++) {
        const struct weir_sim_unit *other = gpu->units[i];
        if (weir_sim_unit_holds(other) && other->share > 0 && other->work.rank < unit->work.rank) {
            displaced_ns = fmax(displaced_ns, weir_sim_block_ns(&other->work) / 2);
        }
    }
    unit->settled_ns = displaced_ns > 0 ? gpu->now_ns + (uint64_t)displaced_ns : NEVER;
    unit->held_from_ns = gpu->now_ns;
    unit->is_on = true;
    gpu->is_stale = true;
}

/* Release a unit's SMs. */
static void let_go(struct weir_sim_gpu *gpu, struct weir_sim_unit *unit)
{
    if (unit->shares) {
        weir_sim_gpu_tell_held(gpu, unit);
        memset(unit->shares, 0, gpu->params.sms * sizeof *unit->shares);
        gpu->is_stale = true;
    }
    unit->rate = unit->share = unit->speed = 0;
    unit->is_on = false;
    unit->finish_ns = NEVER;
}

static uint64_t notice_of(const struct weir_sim_gpu *gpu, enum weir_sim_engine engine)
{
    return engine == WEIR_SIM_H2D   ? gpu->params.h2d_ns
           : engine == WEIR_SIM_D2H ? gpu->params.d2h_ns
                                    : gpu->params.notice_ns;
}

static void finish(struct weir_sim_gpu *gpu, struct weir_sim_unit *unit)
{
    let_go(gpu, unit);
    unit->state = WEIR_SIM_UNIT_DONE;
    unit->left = 0;
    unit->stop_ns = gpu->now_ns;
    unit->notice_ns = gpu->now_ns + notice_of(gpu, unit->work.engine);
    for (size_t i = 0; i < gpu->n_units; i++) {
        if (is_of_stream(gpu->units[i], unit->work.stream)) {
            gpu->units[i]->head = true;
            return;
        }
    }
}

static void stop_now(struct weir_sim_gpu *gpu, struct weir_sim_unit *unit)
{
    uint64_t drain_ns = 0;
    if (unit->state == WEIR_SIM_UNIT_STOPPING && unit->work.one_shot && unit->has_begun) {
        drain_ns = (uint64_t)((double)blocks_left(unit) * ((unit->work.block_threads + 31) / 32) *
                              (double)gpu->params.drain_ps / 1000.0);
    }
    if (drain_ns) {
        unit->state = WEIR_SIM_UNIT_DRAINING;
        unit->stop_ns = gpu->now_ns + drain_ns;
        gpu->is_stale = true;
        return;
    }
    let_go(gpu, unit);
    /* Only whole blocks are done: blocks that had begun ended before the stop. */
    unit->left = (double)unit->work.sm_ns * blocks_left(unit) / unit->work.blocks;
    unit->state = WEIR_SIM_UNIT_STOPPED;
    unit->stop_ns = NEVER;
    unit->notice_ns = gpu->now_ns;
}

static void tell(const struct weir_sim_unit *unit, uint64_t now_ns,
                 struct weir_sim_event *ret_event)
{
    bool is_done = unit->state == WEIR_SIM_UNIT_DONE;
    *ret_event = (struct weir_sim_event){
        .kind = is_done ? WEIR_SIM_FINISHED : WEIR_SIM_STOPPED,
        .id = unit->id,
        .at_ns = now_ns,
        .begun_ns = unit->has_begun ? unit->begun_ns : now_ns,
        .ended_ns = is_done ? unit->stop_ns : now_ns,
        .done_blocks =
            unit->work.engine == WEIR_SIM_COMPUTE ? unit->work.blocks - blocks_left(unit) : 0,
    };
}

static void forget(struct weir_sim_gpu *gpu, size_t i)
{
    unit_free(gpu->units[i]);
    gpu->n_units--;
    memmove(gpu->units + i, gpu->units + i + 1, (gpu->n_units - i) * sizeof *gpu->units);
}

/* Make a unit's change that is due now; true: the host gets an event. */
static bool change(struct weir_sim_gpu *gpu, size_t i, struct weir_sim_event *ret_event)
{
    struct weir_sim_unit *unit = gpu->units[i];
    uint64_t now_ns = gpu->now_ns;
    if (unit->notice_ns <= now_ns) {
        tell(unit, now_ns, ret_event);
        unit->notice_ns = NEVER;
        if (unit->state == WEIR_SIM_UNIT_DONE) {
            forget(gpu, i);
        }
        return true;
    }
    if (unit->state == WEIR_SIM_UNIT_QUEUED) {
        begin(gpu, unit);
    } else if (unit->finish_ns <= now_ns) {
        finish(gpu, unit);
    } else if (unit->stop_ns <= now_ns) {
        stop_now(gpu, unit);
    } else if (unit->next_place_ns <= now_ns) {
        unit->place = unit->next_place;
        unit->next_place_ns = NEVER;
        gpu->is_stale = true;
    } else {
        unit->settled_ns = NEVER; /* running units lose SMs to its rank from now on */
        gpu->is_stale = true;
    }
    return false;
}

/* The first unit with a change due now, or n_units. */
static size_t find_due(const struct weir_sim_gpu *gpu)
{
    size_t i = 0;
    while (i < gpu->n_units && unit_next_ns(gpu, gpu->units[i]) > gpu->now_ns) {
        i++;
    }
    return i;
}

/* Tell that work which has peers has begun, if that was not told yet. */
static bool tell_begin(const struct weir_sim_gpu *gpu, struct weir_sim_event *ret_event)
{
    for (size_t i = 0; i < gpu->n_units; i++) {
        struct weir_sim_unit *unit = gpu->units[i];
        if (unit->waits && unit->has_begun && !unit->is_begin_told) {
            unit->is_begin_told = true;
            *ret_event = (struct weir_sim_event){
                .kind = WEIR_SIM_BEGUN, .id = unit->id, .at_ns = gpu->now_ns};
            return true;
        }
    }
    return false;
}

bool weir_sim_gpu_advance(struct weir_sim_gpu *gpu, uint64_t to_ns,
                          struct weir_sim_event *ret_event)
{
    for (;;) {
        size_t i = find_due(gpu);
        if (i < gpu->n_units) {
            if (change(gpu, i, ret_event)) {
                return true;
            }
            continue;
        }
        if (gpu->is_stale) {
            weir_sim_gpu_share(gpu);
            continue;
        }
        if (tell_begin(gpu, ret_event)) {
            return true;
        }
        if (gpu->now_ns >= to_ns) {
            return false;
        }
        uint64_t next_ns = weir_sim_gpu_next_ns(gpu);
        work_until(gpu, WEIR_MIN(next_ns, to_ns));
    }
}
