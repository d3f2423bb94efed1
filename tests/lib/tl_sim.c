#include "base/hash.h"
#include "tests/lib/tl_sched_check.h"
#include "tests/lib/tl_sim_private.h"
#include <stdlib.h>

uint64_t tl_sim_random(struct tl_sim *sim, uint64_t below)
{
    /* xorshift64* (Vigna 2014): any generator will do, but it must be this one everywhere. */
    sim->random ^= sim->random >> 12;
    sim->random ^= sim->random << 25;
    sim->random ^= sim->random >> 27;
    return below != 0 ? (sim->random * 2685821657736338717u >> 11) % below : 0;
}

/* ---- events ---- */

static bool sooner(const struct event *a, const struct event *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->order < b->order;
}

void sim_push(struct tl_sim *sim, struct event event)
{
    uint32_t i = sim->heap_count++;

    assert_true(i < HEAP_MAX);
    event.order = sim->orders++;
    if (event.work) {
        event.work->references++;
        event.version = event.work->version;
    }
    while (i > 0 && sooner(&event, &sim->heap[(i - 1) / 2])) {
        sim->heap[i] = sim->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    sim->heap[i] = event;
}

struct event sim_pop(struct tl_sim *sim)
{
    struct event top = sim->heap[0];
    struct event last = sim->heap[--sim->heap_count];
    uint32_t i = 0;

    for (;;) {
        uint32_t child = 2 * i + 1;

        if (child >= sim->heap_count) {
            break;
        }
        if (child + 1 < sim->heap_count && sooner(&sim->heap[child + 1], &sim->heap[child])) {
            child++;
        }
        if (!sooner(&sim->heap[child], &last)) {
            break;
        }
        sim->heap[i] = sim->heap[child];
        i = child;
    }
    sim->heap[i] = last;
    return top;
}

void sim_work_put(struct work *work)
{
    if (work->gone && work->references == 0) {
        free(work);
    }
}

/* ---- the device ---- */

void sim_dev_remove(struct tl_sim *sim, struct work *work)
{
    if (!work->on_device) {
        return;
    }
    *(work->dev_prev ? &work->dev_prev->dev_next : &sim->dev_first) = work->dev_next;
    *(work->dev_next ? &work->dev_next->dev_prev : &sim->dev_last) = work->dev_prev;
    work->dev_next = work->dev_prev = NULL;
    work->on_device = false;
}

/* Behind all of its class or higher: the device takes what came first, of the highest priority. */
static void dev_add(struct tl_sim *sim, struct work *work)
{
    struct work *after = sim->dev_last;
    enum weir_priority priority = sim->tenant[work->lane->tenant]->priority;

    while (after && sim->tenant[after->lane->tenant]->priority < priority) {
        after = after->dev_prev;
    }
    work->dev_prev = after;
    work->dev_next = after ? after->dev_next : sim->dev_first;
    *(work->dev_next ? &work->dev_next->dev_prev : &sim->dev_last) = work;
    *(after ? &after->dev_next : &sim->dev_first) = work;
    work->on_device = true;
}

static bool is_copy(const struct work *work)
{
    return work->class == WEIR_SCHED_H2D || work->class == WEIR_SCHED_D2H;
}

/* A kernel's progress on the SMs that are left. Returns how much of them it takes. */
static double set_rate(const struct tl_sim *sim, struct work *w, double left)
{
    double sms = w->movable && w->place.sm_count != 0 ? w->place.sm_count : sim->params.config.sms;
    double part = 1; /* of each of its SMs; what it achieves there */
    double speed = 1;

    if (w->movable && w->place.block_limit != 0 && w->place.block_limit < w->blocks_per_sm) {
        part = (double)w->place.block_limit / w->blocks_per_sm;
        speed = w->enough_blocks == 0 ? part
                : w->place.block_limit >= w->enough_blocks
                    ? 1
                    : (double)w->place.block_limit / w->enough_blocks;
    }
    sms = sms < w->need_sms ? sms : w->need_sms;
    sms = sms * part < left ? sms : left / part;
    w->rate = speed * sms;
    if (w->enough_sms != 0) {
        w->rate = speed * w->need_sms * (sms < w->enough_sms ? sms / w->enough_sms : 1);
    }
    return sms * part;
}

/* Whoever came first has the SMs of its range: what is left of this one's. */
static double left_of_range(const struct work *w, bool *taken, double left)
{
    double in_range = 0;

    if (!w->movable || w->place.sm_count == 0 || w->place.block_limit != 0) {
        return left;
    }
    for (uint32_t i = w->place.sm_first; i < w->place.sm_first + w->place.sm_count; i++) {
        in_range += !taken[i];
        taken[i] = true;
    }
    return in_range < left ? in_range : left;
}

/* Has another tenant's kernel SMs? */
static bool has_company(const struct tl_sim *sim, const struct work *work)
{
    const struct work *w = sim->dev_first;

    while (w && (!w->has_sms || w->lane->tenant == work->lane->tenant)) {
        w = w->dev_next;
    }
    return w != NULL;
}

static void set_rates(struct tl_sim *sim)
{
    double left = sim->params.config.sms;
    uint32_t engine[WEIR_SCHED_CLASS_COUNT] = {0};
    bool taken[SMS_MAX] = {false};

    for (struct work *w = sim->dev_first; w; w = w->dev_next) {
        w->rate = 0;
        w->has_sms = false;
        if (w != w->lane->first) {
            continue;
        }
        if (is_copy(w)) { /* one at a time and direction */
            w->rate = engine[w->class]++ == 0 ? 1 : 0;
            continue;
        }
        left -= set_rate(sim, w, left_of_range(w, taken, left));
        w->has_sms = w->rate > 0;
    }
    for (struct work *w = sim->dev_first; w; w = w->dev_next) {
        w->rate *= w->lost_beside != 0 && has_company(sim, w) ? 1 - w->lost_beside : 1;
    }
}

static void advance(struct tl_sim *sim, uint64_t to_ns)
{
    double dt = (double)(to_ns - sim->now_ns);

    for (struct work *w = sim->dev_first; w; w = w->dev_next) {
        struct sim_tenant *tenant = sim->tenant[w->lane->tenant];

        if (w->rate == 0) {
            continue;
        }
        if (!w->seen_work) {
            uint64_t waited = sim->now_ns - w->arrived_ns;

            w->seen_work = true;
            tenant->stats.wait_max_ns =
                waited > tenant->stats.wait_max_ns ? waited : tenant->stats.wait_max_ns;
        }
        w->rest -= w->rate * dt;
        if (is_copy(w)) {
            tenant->stats.copied_ns += to_ns - sim->now_ns;
        } else {
            tenant->stats.service_ns += w->rate * dt / sim->params.config.sms;
        }
    }
    sim->now_ns = to_ns;
}

/* When the next kernel is done at the present rates. */
static uint64_t next_done(const struct tl_sim *sim, struct work **ret_work)
{
    uint64_t best = UINT64_MAX;

    for (struct work *w = sim->dev_first; w; w = w->dev_next) {
        if (w->rate > 0) {
            double ns = w->rest > 0 ? w->rest / w->rate : 0;
            uint64_t at = sim->now_ns + (uint64_t)(ns + 0.999);

            if (at < best) {
                best = at;
                *ret_work = w;
            }
        }
    }
    return best;
}

/* ---- the environment ---- */

static struct work *launch(struct tl_sim *sim, void *item_user,
                           const struct weir_sched_place *place)
{
    struct work *work = item_user;

    assert_true(sim->inside);
    assert_true(place->sm_first + place->sm_count <= sim->params.config.sms);
    work->place = *place;
    work->state = WORK_LAUNCHED;
    work->version++;
    sim_push(sim, (struct event){.at_ns = sim->now_ns + sim->params.launch_ns,
                                 .kind = EVENT_BEGIN,
                                 .work = work});
    return work;
}

void sim_bring_next(struct tl_sim *sim, struct lane *lane, uint64_t after_ns)
{
    const struct tl_sim_load *load = &sim->tenant[lane->tenant]->load;

    if (load->count == 0 || lane->brought < load->count) {
        lane->brought++;
        sim_push(sim, (struct event){
                          .at_ns = sim->now_ns + after_ns, .kind = EVENT_ARRIVE, .lane = lane});
    }
}

static void sim_start(void *user, weir_sched_id item, void *item_user,
                      const struct weir_sched_place *place, enum weir_sched_level level)
{
    struct tl_sim *sim = user;
    struct work *work = item_user;

    if (!work) {
        return; /* tl_sim_bring() */
    }
    sim->tenant[work->lane->tenant]->stats.fillers +=
        level == WEIR_SCHED_BELOW || level == WEIR_SCHED_BELOW_EQUAL;
    assert_int_equal(work->state, WORK_WAITING);
    for (struct work *w = work->lane->first; w != work; w = w->next) {
        assert_int_not_equal(w->state, WORK_WAITING); /* nobody is overtaken */
    }
    work->item = item;
    launch(sim, work, place);
    if (!sim->tenant[work->lane->tenant]->load.sync) {
        sim_bring_next(sim, work->lane, sim->tenant[work->lane->tenant]->load.think_ns);
    }
}

static void sim_stop(void *user, weir_sched_id item, void *item_user, uint64_t lease_ns)
{
    struct tl_sim *sim = user;
    struct work *work = item_user;
    bool refuse = sim->params.refuse_stop && ++sim->stops % 2 == 0;

    assert_int_equal(work->item, item);
    assert_true(work->stoppable);
    assert_true(work->state == WORK_LAUNCHED || work->state == WORK_AT_WORK ||
                work->state == WORK_DONE);
    assert_true(lease_ns > 0);
    sim_push(sim, (struct event){.at_ns = sim->now_ns + sim->params.stop_ns,
                                 .kind = refuse ? EVENT_REFUSED : EVENT_STOP,
                                 .work = work});
}

static void sim_resume(void *user, weir_sched_id item, void *item_user,
                       const struct weir_sched_place *place)
{
    struct work *work = item_user;

    assert_int_equal(work->item, item);
    assert_int_equal(work->state, WORK_STOPPED);
    launch(user, work, place);
}

static void sim_resize(void *user, weir_sched_id item, void *item_user,
                       const struct weir_sched_place *place)
{
    struct tl_sim *sim = user;
    struct work *work = item_user;

    assert_int_equal(work->item, item);
    assert_true(work->movable);
    assert_int_not_equal(work->state, WORK_WAITING);
    sim_push(sim, (struct event){.at_ns = sim->now_ns + sim->params.resize_ns,
                                 .kind = EVENT_RESIZE,
                                 .work = work,
                                 .place = *place});
}

static void sim_timer(void *user, uint64_t at_ns)
{
    ((struct tl_sim *)user)->timer_ns = at_ns;
}

static void sim_trace(void *user, const struct weir_sched_record *record)
{
    struct tl_sim *sim = user;
    uint64_t both[2] = {sim->trace_hash, weir_hash64_of(record, sizeof(*record))};

    assert_true(record->kind < WEIR_SCHED_REC_KIND_COUNT);
    assert_int_equal(record->at_ns, sim->now_ns);
    sim->trace_hash = weir_hash64_of(both, sizeof(both));
}

static void sim_log(void *user, const char *line)
{
    struct tl_sim *sim = user;

    sim->log_lines++;
    snprintf(sim->last_line, sizeof(sim->last_line), "%s", line);
}

struct weir_sched_env sim_env(struct tl_sim *sim, bool traced)
{
    return (struct weir_sched_env){
        .user = sim,
        .start = sim_start,
        .stop = sim_stop,
        .resume = sim_resume,
        .resize = sim_resize,
        .timer = sim_timer,
        .trace = traced ? sim_trace : NULL,
        .log = sim_log,
    };
}

void sim_enter(struct tl_sim *sim)
{
    assert_false(sim->inside);
    sim->inside = true;
}

void sim_leave(struct tl_sim *sim)
{
    sim->inside = false;
    if (sim->params.check) {
        const char *wrong = tl_sched_check(sim->sched);
        struct weir_sched_item_info info;

        if (weir_sched_waits_for_room(sim->sched, sim->last_item)) {
            assert_int_equal(weir_sched_item_query(sim->sched, sim->last_item, &info), WEIR_OK);
            assert_int_equal(info.state, WEIR_SCHED_WAITING);
        }
        if (wrong) {
            fail_msg("at %llu ns: %s", (unsigned long long)sim->now_ns, wrong);
        }
    }
}

/* ---- what happens ---- */

static struct work *make_work(struct tl_sim *sim, struct lane *lane)
{
    const struct tl_sim_load *load = &sim->tenant[lane->tenant]->load;
    uint64_t duration = load->duration_ns + tl_sim_random(sim, load->jitter_ns);
    struct work *work = calloc(1, sizeof(*work));
    uint32_t sms = sim->params.config.sms;

    assert_non_null(work);
    *work = (struct work){
        .lane = lane,
        .class = load->class,
        .movable = (load->flags & WEIR_SCHED_MOVABLE) != 0,
        .stoppable = (load->flags & WEIR_SCHED_STOPPABLE) != 0,
        .need_sms = sms,
        .enough_sms = load->enough_sms,
        .blocks_per_sm = load->blocks_per_sm,
        .enough_blocks = load->enough_blocks,
        .lost_beside = load->lost_beside,
        .blocks = load->blocks,
        .arrived_ns = sim->now_ns,
    };
    if (load->blocks != 0 && load->blocks_per_sm != 0) {
        uint32_t need = (load->blocks - 1) / load->blocks_per_sm + 1;

        work->need_sms = need < sms ? need : sms;
    }
    work->rest = (double)duration * (is_copy(work) ? 1 : work->need_sms);
    work->whole = work->rest;
    *(lane->last ? &lane->last->next : &lane->first) = work;
    lane->last = work;
    return work;
}

static void arrive(struct tl_sim *sim, struct lane *lane)
{
    const struct tl_sim_load *load = &sim->tenant[lane->tenant]->load;
    struct work *work;
    struct weir_sched_item_params params;
    weir_sched_id item;

    if (lane->closed) {
        return;
    }
    work = make_work(sim, lane);
    params = (struct weir_sched_item_params){
        .class = load->class,
        .flags = load->flags,
        .key = load->key,
        .bytes = load->bytes,
        .rest_bytes = load->rest_bytes,
        .blocks = load->blocks,
        .blocks_per_sm = load->blocks_per_sm,
        .user = work,
    };
    if (load->predicted) {
        params.predicted_ns = (uint64_t)(work->whole / (is_copy(work) ? 1 : work->need_sms));
    }
    sim->pending++;
    sim_enter(sim);
    assert_int_equal(weir_sched_arrive(sim->sched, sim->now_ns, lane->queue, &params, &item),
                     WEIR_OK);
    work->item = sim->last_item = item;
    sim_leave(sim);
}

static void stop_now(struct tl_sim *sim, struct work *work)
{
    if (work->state == WORK_DONE) {
        return; /* it was quicker */
    }
    if (work->on_device && work->rate > 0) {
        /* The last of its blocks worked on while others of its SMs were idle already. */
        double lost = work->rate * (double)sim->params.drain_ns / 2;

        lost = work->rest + lost < work->whole ? lost : work->whole - work->rest;
        work->rest += lost;
        sim->tenant[work->lane->tenant]->stats.lost_ns += lost / sim->params.config.sms;
    }
    sim_dev_remove(sim, work);
    work->state = WORK_STOPPED;
    work->version++;
    sim_push(sim, (struct event){.at_ns = sim->now_ns + sim->params.notice_ns,
                                 .kind = EVENT_STOPPED,
                                 .work = work});
}

static uint32_t done_blocks(const struct work *work)
{
    return (uint32_t)((1 - work->rest / work->whole) * work->blocks);
}

static void tell_done(struct tl_sim *sim, struct work *work)
{
    struct lane *lane = work->lane;
    struct sim_tenant *tenant = sim->tenant[lane->tenant];
    uint64_t turn = sim->now_ns - work->arrived_ns;

    tenant->stats.finished++;
    tenant->stats.turn_sum_ns += turn;
    tenant->stats.turn_max_ns = turn > tenant->stats.turn_max_ns ? turn : tenant->stats.turn_max_ns;
    work->gone = true;
    sim->pending--;
    sim_enter(sim);
    assert_int_equal(weir_sched_finished(sim->sched, sim->now_ns, work->item, 0), WEIR_OK);
    sim_leave(sim);
    if (tenant->load.sync) {
        sim_bring_next(sim, lane, tenant->load.think_ns);
    }
}

static void tell_refused(struct tl_sim *sim, struct work *work)
{
    bool again = sim->stops % 4 != 0;

    if (work->state == WORK_DONE) {
        return;
    }
    work->stoppable = again;
    sim_enter(sim);
    assert_int_equal(weir_sched_running(sim->sched, sim->now_ns, work->item, again), WEIR_OK);
    sim_leave(sim);
}

static void happen(struct tl_sim *sim, const struct event *event)
{
    struct work *work = event->work;
    bool stale = work && (work->gone || work->version != event->version);

    switch (event->kind) {
    case EVENT_ARRIVE:
        arrive(sim, event->lane);
        break;
    case EVENT_BEGIN:
        if (!stale) {
            work->state = WORK_AT_WORK;
            dev_add(sim, work);
        }
        break;
    case EVENT_STOP:
        if (!work->gone) {
            stop_now(sim, work);
        }
        break;
    case EVENT_STOPPED:
        if (!stale) {
            sim_enter(sim);
            assert_int_equal(
                weir_sched_stopped(sim->sched, sim->now_ns, work->item, done_blocks(work)),
                WEIR_OK);
            sim_leave(sim);
        }
        break;
    case EVENT_REFUSED:
        if (!work->gone) {
            tell_refused(sim, work);
        }
        break;
    case EVENT_RESIZE:
        if (!work->gone) {
            work->place = event->place;
        }
        break;
    case EVENT_DONE:
        if (!work->gone) {
            tell_done(sim, work);
        }
        break;
    case EVENT_SAMPLE:
        for (uint32_t i = 0; i < sim->tenants && sim->samples < SAMPLES_MAX; i++) {
            sim->tenant[i]->sample[sim->samples] = sim->tenant[i]->stats.service_ns;
        }
        sim->samples++;
        sim_push(sim, (struct event){.at_ns = sim->now_ns + SAMPLE_NS, .kind = EVENT_SAMPLE});
        break;
    }
    if (work) {
        work->references--;
        sim_work_put(work);
    }
}

static void done(struct tl_sim *sim, struct work *work)
{
    struct lane *lane = work->lane;

    sim_dev_remove(sim, work);
    work->state = WORK_DONE;
    work->version++;
    assert_ptr_equal(lane->first, work);
    lane->first = work->next;
    if (!lane->first) {
        lane->last = NULL;
    } else if (lane->first->on_device) {
        /* Of a stream the device looks at the first kernel only: others were there before. */
        sim_dev_remove(sim, lane->first);
        dev_add(sim, lane->first);
    }
    sim_push(sim, (struct event){.at_ns = sim->now_ns + sim->params.notice_ns,
                                 .kind = EVENT_DONE,
                                 .work = work});
}

void tl_sim_run(struct tl_sim *sim, uint64_t for_ns)
{
    uint64_t until_ns = sim->now_ns + for_ns;

    while (sim->now_ns < until_ns) {
        struct work *work = NULL;
        uint64_t done_ns;
        uint64_t event_ns = sim->heap_count > 0 ? sim->heap[0].at_ns : UINT64_MAX;
        uint64_t next_ns;

        set_rates(sim);
        done_ns = next_done(sim, &work);
        next_ns = event_ns < done_ns ? event_ns : done_ns;
        next_ns = sim->timer_ns < next_ns ? sim->timer_ns : next_ns;
        if (next_ns >= until_ns) {
            advance(sim, until_ns);
            return;
        }
        advance(sim, next_ns > sim->now_ns ? next_ns : sim->now_ns);
        if (done_ns <= next_ns) {
            done(sim, work);
        } else if (event_ns <= next_ns) {
            struct event event = sim_pop(sim);

            happen(sim, &event);
        } else {
            sim->timer_ns = UINT64_MAX;
            sim_enter(sim);
            weir_sched_tick(sim->sched, sim->now_ns);
            sim_leave(sim);
        }
    }
}
