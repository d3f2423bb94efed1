/*
 * The session's side of the gate: past the scheduler, or through it.
 *
 * Past it goes a tenant that is alone (shared->alone), while what the session has given and what is
 * not known to be done is below a bound. Nobody waits for a session that is just passing: what it
 * gave in the moment in which another tenant came is in its ring or its unmarked work, and is told
 * to the scheduler a moment later (weir_gate_adopt_locked()), by the session's next item or by the
 * watcher.
 *
 * Work in flight is followed by marks. Work since a stream's last mark is *unmarked*; a mark closes
 * it and makes it an entry of the session's ring. Marks are put when much is unmarked, before the
 * session waits, and when it has nothing more to give.
 *
 * Locks: the gate's before a queue's. No driver call is made with either held.
 */
#include "host_backend/gate/private.h"

#include "base/log.h"
#include "host_backend/worker/session/order.h"
#include <stdlib.h>
#include <string.h>

/* Items behind which a mark is put at the latest: alone, and not. */
#define UNMARKED_ALONE     WEIR_GATE_BATCH_MAX
#define UNMARKED_CONTENDED 16u
#define TIMED_EVERY        16u /* of a session's items, contended, one has marks on both sides .. */
#define TIMED_SURE         64u /* .. and of those whose durations are known */

/* ---------------------------------------------------------------- queues */

static struct weir_gate *gate_of(const struct weir_session *s)
{
    return s->worker->gates[s->device];
}

bool weir_gate_may_want_runs(const struct weir_session *session)
{
    struct weir_worker *worker = session->worker;
    uint32_t n = 0;

    if (gate_of(session) == NULL || weir_gate_sm_limit_pct(session) < 100) {
        return gate_of(session) != NULL;
    }
    pthread_mutex_lock(&worker->lock);
    for (uint32_t i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        n += worker->tenants[i] != NULL && !worker->tenants[i]->gone;
    }
    pthread_mutex_unlock(&worker->lock);
    return n > 1;
}

bool weir_gate_contends(const struct weir_session *session)
{
    const struct weir_gate *gate = gate_of(session);
    weir_sched_id alone =
        gate != NULL ? atomic_load_explicit(&gate->shared->alone, memory_order_relaxed) : 0;
    const struct weir_gate_queue *q =
        atomic_load_explicit(&session->gates[session->device], memory_order_relaxed);

    return gate != NULL && q != NULL && alone != q->member->id;
}

static enum weir_status add_member_locked(struct weir_gate *gate, struct weir_tenant *tenant)
{
    struct weir_gate_member *member = &gate->members[tenant->index];
    struct weir_sched_tenant_params params = weir_gate_tenant_params(tenant);
    enum weir_status status;

    if (member->id != 0) {
        return WEIR_OK;
    }
    member->tenant = tenant;
    status = weir_sched_tenant_add(gate->sched, weir_clock_now_ns(), &params, &member->id);
    weir_gate_trace_name_locked(gate, member);
    return status;
}

static struct weir_gate_queue *make_queue(struct weir_session *s)
{
    struct weir_gate *gate = gate_of(s);
    struct weir_gate_queue *q = calloc(1, sizeof *q);
    enum weir_status status;

    if (q == NULL) {
        return NULL;
    }
    q->gate = gate;
    q->session = s;
    q->sm_limit_pct = s->wish.sm_pct != 0 ? s->wish.sm_pct : 100;
    pthread_mutex_init(&q->lock, NULL);
    pthread_mutex_lock(&gate->lock);
    status = add_member_locked(gate, s->tenant);
    if (status == WEIR_OK) {
        q->member = &gate->members[s->tenant->index];
        status = weir_sched_queue_add(gate->sched, q->member->id, q->sm_limit_pct, &q->id);
    }
    if (status == WEIR_OK) {
        q->next = gate->queues;
        gate->queues = q;
        weir_gate_kick_locked(gate); /* a limit may have ended somebody's being alone */
    }
    pthread_mutex_unlock(&gate->lock);
    if (status != WEIR_OK) {
        pthread_mutex_destroy(&q->lock);
        free(q);
        return NULL;
    }
    /* Q1: publishes the queue; meets the acquire in weir_gate_session_wake(). */
    atomic_store_explicit(&s->gates[s->device], q, memory_order_release);
    return q;
}

static struct weir_gate_queue *queue_of(const struct weir_session *s)
{
    return atomic_load_explicit(&s->gates[s->device], memory_order_relaxed);
}

/* ---------------------------------------------------------------- marks */

static void unlist(struct weir_gate_queue *q, struct weir_host_stream *stream)
{
    struct weir_host_stream **at = &q->unmarked_streams;

    while (*at != stream) {
        at = &(*at)->gate.next;
    }
    *at = stream->gate.next;
    stream->gate.listed = false;
}

/* Put a mark behind a stream's unmarked work. It stays unmarked where none can be put now. */
static void mark(struct weir_gate_queue *q, struct weir_host_stream *stream)
{
    struct weir_gate_unmarked *unmarked = &stream->gate.unmarked;
    struct weir_gate_entry *entry;
    struct weir_mark m;

    if (unmarked->n == 0 || q->n == WEIR_GATE_ENTRIES ||
        weir_host_stream_capturing(q->session, stream) ||
        weir_mark_stream(q->gate->marks, &stream->gate.word, weir_host_stream_at(stream), &m) !=
            CUDA_SUCCESS) {
        return;
    }
    pthread_mutex_lock(&q->lock);
    entry = &q->ring[(q->first + q->n++) % WEIR_GATE_ENTRIES];
    *entry = (struct weir_gate_entry){.mark = m, .work = *unmarked, .pending = true};
    pthread_mutex_unlock(&q->lock);
    atomic_store_explicit(&q->unmarked_ns,
                          atomic_load_explicit(&q->unmarked_ns, memory_order_relaxed) -
                              unmarked->beside_ns,
                          memory_order_release);
    *unmarked = (struct weir_gate_unmarked){0};
    unlist(q, stream);
}

static void mark_all(struct weir_gate_queue *q)
{
    for (struct weir_host_stream *s = q->unmarked_streams, *next; s != NULL; s = next) {
        next = s->gate.next;
        mark(q, s);
    }
}

void weir_gate_look(struct weir_gate_queue *q)
{
    pthread_mutex_lock(&q->gate->lock);
    weir_gate_look_locked(q, weir_clock_now_ns());
    weir_gate_unlock(q->gate);
}

bool weir_gate_has_unmarked(const struct weir_session *session)
{
    for (uint32_t i = 0; i < session->worker->n_devices; i++) {
        const struct weir_gate_queue *q =
            atomic_load_explicit(&session->gates[i], memory_order_relaxed);

        if (q != NULL && q->unmarked_streams != NULL) {
            return true;
        }
    }
    return false;
}

void weir_gate_idle(struct weir_session *session)
{
    uint32_t here = session->device;

    for (uint32_t i = 0; i < session->worker->n_devices; i++) {
        struct weir_gate_queue *q = atomic_load_explicit(&session->gates[i], memory_order_relaxed);

        if (q != NULL && q->unmarked_streams != NULL &&
            weir_session_enter(session, i) == CUDA_SUCCESS) {
            mark_all(q);
        }
        if (q != NULL && q->n != 0) {
            weir_gate_look(q);
        }
    }
    if (session->device != here) { /* a handler may be about to begin */
        (void)weir_session_enter(session, here);
    }
}

/* In the part of the device that a kernel that is launched as it is is to have; 0: all of it. */
static void place_stream(const struct weir_gate *gate, struct weir_host_stream *stream,
                         uint32_t sms)
{
    if (gate->parts != NULL && (sms != 0 || stream->parts != NULL)) {
        /* Where it cannot be moved it stays, and what it is given is done there. */
        (void)weir_parts_move(gate->parts, stream, sms);
    }
}

void weir_gate_stream_whole(struct weir_session *session, struct weir_host_stream *stream)
{
    if (stream->parts != NULL) {
        place_stream(session->worker->gates[stream->o.device], stream, 0);
    }
}

static void close_stream(struct weir_session *session, struct weir_host_stream *stream)
{
    uint32_t here = session->device;

    if (stream->gate.listed && weir_session_enter(session, stream->o.device) == CUDA_SUCCESS) {
        mark(stream->gate.queue, stream);
        (void)weir_session_enter(session, here);
    }
}

void weir_gate_stream_captures(struct weir_session *session, struct weir_host_stream *stream)
{
    close_stream(session, stream);
    for (struct weir_host_ctx *ctx = session->contexts; ctx != NULL; ctx = ctx->next) {
        for (struct weir_host_stream *s = ctx->streams; s != NULL; s = s->next) {
            weir_gate_stream_whole(session, s); /* events may draw any of them into it */
        }
    }
}

void weir_gate_stream_awaited(struct weir_session *session, struct weir_host_stream *stream)
{
    if (stream->gate.listed && weir_gate_contends(session)) {
        mark(stream->gate.queue, stream);
    }
}

void weir_gate_stream_gone(struct weir_session *session, struct weir_host_stream *stream)
{
    struct weir_gate_unmarked *unmarked = &stream->gate.unmarked;
    struct weir_gate_queue *q = stream->gate.queue;

    close_stream(session, stream);
    if (stream->gate.listed) { /* its capture is broken off: there is no mark to be had */
        pthread_mutex_lock(&q->gate->lock);
        while (unmarked->first != NULL) {
            struct weir_gate_item *item = unmarked->first;

            unmarked->first = item->next;
            weir_gate_withdraw_locked(item, weir_clock_now_ns());
        }
        atomic_fetch_add(&q->done_ns, unmarked->ns);
        weir_gate_unlock(q->gate);
        atomic_fetch_sub(&q->unmarked_ns, unmarked->beside_ns);
        *unmarked = (struct weir_gate_unmarked){0};
        unlist(q, stream);
    }
    if (q != NULL) {
        weir_mark_word_put(q->gate->marks, &stream->gate.word);
    }
}

/* ---------------------------------------------------------------- through the scheduler */

static struct weir_gate_item *take_item_locked(struct weir_gate_queue *q)
{
    struct weir_gate *gate = q->gate;
    struct weir_gate_item *item = gate->free_items;

    if (item != NULL) {
        gate->free_items = item->next;
        memset(item, 0, sizeof *item);
    } else {
        item = calloc(1, sizeof *item);
    }
    if (item != NULL) {
        item->gate = gate;
        item->queue = q;
        item->refs = 1;
        item->order = (struct weir_forms_order){
            .item = item, .notify = weir_gate_run_event, .ended = weir_gate_run_ended};
    }
    return item;
}

/* Whoever was alone is so no more: tell of what it has in flight. */
static void close_locked(struct weir_gate_queue *q, uint64_t now_ns)
{
    struct weir_gate *gate = q->gate;
    weir_sched_id alone = atomic_load(&gate->shared->alone);

    if (alone != 0 && alone != q->member->id) {
        (void)weir_sched_close(gate->sched);
        for (struct weir_gate_queue *other = gate->queues; other != NULL; other = other->next) {
            if (other->member->id == alone) {
                weir_gate_look_locked(other, now_ns);
                weir_gate_adopt_locked(other, now_ns);
            }
        }
    }
    weir_gate_look_locked(q, now_ns);
    if (alone != q->member->id) {
        weir_gate_adopt_locked(q, now_ns);
    }
}

static enum weir_status bring_locked(struct weir_gate_queue *q, const struct weir_gate_work *work,
                                     const struct weir_gate_pass *pass,
                                     struct weir_gate_item **ret_item)
{
    struct weir_sched_item_params params = {.class = work->class,
                                            .flags = work->flags,
                                            .key = work->key,
                                            .bytes = work->bytes,
                                            .blocks = work->blocks,
                                            .blocks_per_sm = work->blocks_per_sm,
                                            .predicted_ns = pass->guessed ? 0 : pass->ns};
    struct weir_gate *gate = q->gate;
    bool sure = weir_gate_is_copy(work->class) || work->key == 0 ||
                weir_predict_is_sure(gate->predict, work->class, work->key);
    struct weir_gate_item *item = take_item_locked(q);
    uint64_t now_ns = weir_clock_now_ns();
    enum weir_status status;

    if (item == NULL) {
        return WEIR_ERR_NO_MEMORY;
    }
    params.user = item;
    params.flags |= sure ? 0u : WEIR_SCHED_UNSURE;
    item->sure = sure;
    item->stoppable = (work->flags & WEIR_SCHED_STOPPABLE) != 0;
    item->brought_ns = now_ns;
    status = weir_sched_arrive(gate->sched, now_ns, q->id, &params, &item->id);
    if (status != WEIR_OK) {
        item->gone = true;
        weir_gate_item_put_locked(gate, item);
        return status;
    }
    gate->n_items++;
    q->member->gated++;
    q->waiting = atomic_load(&item->granted) ? NULL : item;
    weir_gate_kick_locked(gate);
    *ret_item = item;
    return WEIR_OK;
}

static CUresult through(struct weir_gate_queue *q, const struct weir_gate_work *work,
                        struct weir_gate_pass *pass)
{
    struct weir_gate *gate = q->gate;
    uint64_t now_ns = weir_clock_now_ns();
    struct weir_gate_item *item = NULL;
    enum weir_status status;

    pthread_mutex_lock(&gate->lock);
    weir_gate_seen_locked(gate, q->member, now_ns);
    close_locked(q, now_ns);
    weir_gate_ask_locked(gate, work, pass, now_ns);
    status = bring_locked(q, work, pass, &item);
    weir_gate_unlock(gate);
    if (status != WEIR_OK) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (!atomic_load_explicit(&item->granted, memory_order_acquire) &&
        !weir_gate_wait_room(q, item)) {
        mark_all(q); /* it may wait for the end of unmarked work, or others do */
    }
    if (!weir_gate_wait_granted(q, item, pass->ns)) {
        pthread_mutex_lock(&gate->lock);
        weir_gate_withdraw_locked(item, weir_clock_now_ns());
        weir_gate_unlock(gate);
        return CUDA_ERROR_DEVICE_UNAVAILABLE; /* the session ends */
    }
    pass->item = item;
    return CUDA_SUCCESS;
}

/* ---------------------------------------------------------------- enter, leave */

static void add_given(struct weir_gate_queue *q, uint64_t ns)
{
    atomic_store_explicit(&q->given_ns,
                          atomic_load_explicit(&q->given_ns, memory_order_relaxed) + ns,
                          memory_order_relaxed);
}

/* What fills what others leave takes longer than it would alone: nothing is learned from that. */
static bool is_timed(const struct weir_gate_pass *pass)
{
    bool sure = pass->item->sure;
    bool each = !sure && pass->queue->gate->config.fill >= WEIR_SCHED_FILL_ALL;

    return (each || pass->queue->gated % (sure ? TIMED_SURE : TIMED_EVERY) == 0) &&
           pass->item->fills == WEIR_SCHED_FILL_NONE;
}

/*
 * A mark before the item: what passed beside the scheduler is not its, nor is another's time. And
 * whoever wants the copy engine waits for a copy's end, not for the kernels behind it.
 */
static void begin_apart(const struct weir_gate_pass *pass)
{
    const struct weir_gate_unmarked *unmarked = &pass->stream->gate.unmarked;

    if (unmarked->n != 0 &&
        (unmarked->first == NULL || is_timed(pass) ||
         (weir_gate_is_copy(unmarked->last_class) && pass->class != unmarked->last_class))) {
        mark(pass->queue, pass->stream);
    }
}

/* Is a mark due behind the unmarked work? Sooner, where somebody may wait for a turn of his own. */
static bool is_mark_due(const struct weir_gate_pass *pass)
{
    const struct weir_gate_unmarked *unmarked = &pass->stream->gate.unmarked;
    uint64_t least_ns = pass->queue->gate->inflight_ns / 2;
    uint64_t filler_ns =
        weir_sched_fill_bound_ns(&pass->queue->gate->config, pass->item->fills) / 2;

    return unmarked->guessed || is_timed(pass) ||
           (pass->item->fills != WEIR_SCHED_FILL_NONE
                ? unmarked->n >= UNMARKED_ALONE || unmarked->ns >= filler_ns
                : unmarked->n >= UNMARKED_CONTENDED || unmarked->ns >= least_ns);
}

static void apply_priority(struct weir_gate_queue *q, struct weir_host_stream *stream, bool filler)
{
    uint32_t epoch =
        atomic_load_explicit(&q->session->tenant->priority_epoch, memory_order_relaxed);

    if (__builtin_expect(stream->gate.priority_epoch != epoch || stream->gate.filler != filler,
                         0)) {
        weir_gate_priority_apply(q->session, stream, filler);
        stream->gate.priority_epoch = epoch;
        stream->gate.filler = filler;
    }
}

/* What a stream has of the device is for the kernels that come now; copies need no SMs. */
static void apply_place(const struct weir_gate_pass *pass)
{
    const struct weir_gate_item *item = pass->item;
    bool heeds = pass->class == WEIR_SCHED_KERNEL && item != NULL && !item->stoppable &&
                 pass->queue->session->n_captures == 0;

    if (pass->class == WEIR_SCHED_KERNEL || pass->class == WEIR_SCHED_GRAPH) {
        place_stream(pass->queue->gate, pass->stream, heeds ? item->order.place.sm_count : 0);
    }
}

/* It may go to its stream now, which is made such as it is to have. */
static void let_pass(struct weir_gate_pass *pass)
{
    apply_priority(pass->queue, pass->stream,
                   pass->item != NULL && pass->item->fills != WEIR_SCHED_FILL_NONE);
    apply_place(pass);
    add_given(pass->queue, pass->ns);
}

CUresult weir_gate_enter(struct weir_session *session, struct weir_host_stream *stream,
                         const struct weir_gate_work *work, struct weir_gate_pass *ret_pass)
{
    struct weir_gate_pass *pass = ret_pass;
    struct weir_gate_queue *q;

    pass->queue = NULL;
    pass->item = NULL;
    if (gate_of(session) == NULL || weir_host_stream_capturing(session, stream)) {
        return CUDA_SUCCESS;
    }
    q = queue_of(session);
    if (q == NULL && (q = make_queue(session)) == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    pass->queue = q;
    pass->stream = stream;
    pass->class = (uint8_t)work->class;
    pass->key = work->key;
    pass->size = weir_gate_size_of(work);
    if (weir_gate_is_alone(q) && (work->flags & WEIR_SCHED_STOPPABLE) == 0) {
        weir_gate_predict(q->gate, work, pass);
        if (weir_gate_is_blind(q, work->hint)) {
            mark_all(q);
            if (!weir_gate_see(q, work, pass)) {
                return CUDA_ERROR_DEVICE_UNAVAILABLE; /* the session ends */
            }
        }
        if (weir_gate_below(q, pass->ns) && weir_gate_is_alone(q)) {
            let_pass(pass);
            return CUDA_SUCCESS;
        }
        mark_all(q);
        if (!weir_gate_wait_below(q, pass->ns)) {
            return CUDA_ERROR_DEVICE_UNAVAILABLE; /* the session ends */
        }
        if (weir_gate_is_alone(q)) {
            let_pass(pass);
            return CUDA_SUCCESS;
        }
    }
    WEIR_TRY(through(q, work, pass));
    q->gated++;
    begin_apart(pass);
    let_pass(pass);
    return CUDA_SUCCESS;
}

/* The work was given to the stream; no mark stands behind it yet. */
static void add_unmarked(struct weir_gate_pass *pass)
{
    struct weir_gate_stream *stream = &pass->stream->gate;
    struct weir_gate_unmarked *unmarked = &stream->unmarked;
    struct weir_gate_queue *q = pass->queue;

    if (unmarked->n == 0) {
        *unmarked = (struct weir_gate_unmarked){.key = pass->key,
                                                .size = pass->size,
                                                .class = pass->class,
                                                .since_ns = weir_clock_now_ns(),
                                                .alike = true};
        stream->queue = q;
        stream->next = q->unmarked_streams;
        q->unmarked_streams = pass->stream;
        stream->listed = true;
    }
    unmarked->last_class = pass->class;
    unmarked->alike &= unmarked->key == pass->key && unmarked->size == pass->size &&
                       unmarked->class == pass->class;
    unmarked->guessed |= pass->guessed;
    unmarked->ns += pass->ns;
    unmarked->n++;
    if (pass->item != NULL) {
        *(unmarked->last != NULL ? &unmarked->last->next : &unmarked->first) = pass->item;
        unmarked->last = pass->item;
        return;
    }
    unmarked->beside_ns += pass->ns;
    atomic_store_explicit(&q->unmarked_ns,
                          atomic_load_explicit(&q->unmarked_ns, memory_order_relaxed) + pass->ns,
                          memory_order_release);
}

/* It is with the stream: what was ordered meanwhile is due. */
static void give(struct weir_gate *gate, struct weir_gate_item *item)
{
    pthread_mutex_lock(&gate->lock);
    item->given = true;
    weir_gate_late_orders_locked(item);
    weir_gate_unlock(gate);
}

void weir_gate_leave(struct weir_gate_pass *pass, CUresult result)
{
    struct weir_gate_queue *q = pass->queue;
    struct weir_gate_unmarked *unmarked;
    struct weir_gate *gate;

    if (q == NULL) {
        return;
    }
    gate = q->gate;
    if (result != CUDA_SUCCESS) {
        atomic_store_explicit(&q->given_ns,
                              atomic_load_explicit(&q->given_ns, memory_order_relaxed) - pass->ns,
                              memory_order_relaxed);
        if (pass->item != NULL) {
            pthread_mutex_lock(&gate->lock);
            weir_gate_withdraw_locked(pass->item, weir_clock_now_ns());
            weir_gate_unlock(gate);
        }
        return;
    }
    if (weir_gate_is_copy(pass->class)) {
        atomic_fetch_add_explicit(&q->bytes[pass->class == WEIR_SCHED_D2H], pass->size,
                                  memory_order_relaxed);
    }
    unmarked = &pass->stream->gate.unmarked;
    if (pass->item == NULL) {
        atomic_store_explicit(&q->passed,
                              atomic_load_explicit(&q->passed, memory_order_relaxed) + 1,
                              memory_order_relaxed);
        add_unmarked(pass);
        if (unmarked->n >= UNMARKED_ALONE || unmarked->ns >= gate->alone_limit_ns / 4) {
            mark(q, pass->stream);
            weir_gate_look(q);
        }
        return;
    }
    add_unmarked(pass);
    if (pass->item->order.run != NULL || pass->item->stoppable) {
        give(gate, pass->item);
        mark(q, pass->stream);
    } else if (is_mark_due(pass)) {
        mark(q, pass->stream);
    }
}

struct weir_forms_order *weir_gate_order(const struct weir_gate_pass *pass)
{
    struct weir_gate_item *item = pass->item;

    if (item == NULL) {
        return NULL;
    }
    pthread_mutex_lock(&item->gate->lock);
    item->refs++; /* the run's: weir_gate_run_ended() drops it */
    pthread_mutex_unlock(&item->gate->lock);
    return &item->order;
}

/* A run costs some 10 us of the stream's time, and its kernel some hundredths of its own. */
static uint64_t worth_stopping_ns(const struct weir_session *session, const struct weir_gate *gate,
                                  enum weir_sched_unpaired unpaired)
{
    if (weir_gate_sm_limit_pct(session) < 100) {
        return MOVABLE_NS;
    }
    if (!gate->levels || unpaired == WEIR_SCHED_NOT_UNPAIRED) {
        return atomic_load_explicit(&gate->worth_stopping_ns, memory_order_relaxed);
    }
    return unpaired == WEIR_SCHED_STEADY_UNPAIRED ? STEADY_TURN_NS : TURN_NS;
}

bool weir_gate_wants_runs(const struct weir_session *session, const struct weir_gate_hint *hint)
{
    const struct weir_gate *gate = gate_of(session);

    if (gate == NULL) {
        return true;
    }
    if (hint->ns != 0 && hint->ns < worth_stopping_ns(session, gate, hint->unpaired)) {
        return false;
    }
    return atomic_load_explicit(&gate->crowded[weir_gate_peers(gate, session->tenant)],
                                memory_order_relaxed) ||
           weir_gate_sm_limit_pct(session) < 100;
}

/* ---------------------------------------------------------------- a session's end */

void weir_gate_session_ends(struct weir_session *session)
{
    uint64_t now_ns = weir_clock_now_ns();

    for (uint32_t i = 0; i < session->worker->n_devices; i++) {
        struct weir_gate_queue *q = atomic_load_explicit(&session->gates[i], memory_order_relaxed);

        if (q == NULL || weir_session_enter(session, i) != CUDA_SUCCESS) {
            continue;
        }
        mark_all(q);
        pthread_mutex_lock(&q->gate->lock);
        weir_gate_look_locked(q, now_ns);
        for (uint32_t k = 0; k < q->n; k++) {
            struct weir_gate_entry *e = &q->ring[(q->first + k) % WEIR_GATE_ENTRIES];

            for (struct weir_gate_item *item = e->work.first; item != NULL; item = item->next) {
                (void)weir_sched_running(q->gate->sched, now_ns, item->id, false);
            }
        }
        weir_gate_unlock(q->gate);
    }
}

static void finish_queue(struct weir_gate_queue *q)
{
    struct weir_gate *gate = q->gate;
    uint64_t now_ns = weir_clock_now_ns();
    struct weir_gate_queue **at;

    pthread_mutex_lock(&gate->lock);
    weir_gate_look_locked(q, now_ns);
    for (; q->n != 0; q->first = (q->first + 1) % WEIR_GATE_ENTRIES) {
        struct weir_gate_entry *e = &q->ring[q->first];

        while (e->work.first != NULL) {
            struct weir_gate_item *item = e->work.first;

            e->work.first = item->next;
            weir_gate_withdraw_locked(item, now_ns);
        }
        if (e->started != 0) {
            gate->n_items--;
        }
        weir_mark_put(gate->marks, &e->mark);
        q->n--;
    }
    if (q->unmarked_started != 0) {
        gate->n_items--;
    }
    (void)weir_sched_queue_remove(gate->sched, now_ns, q->id);
    for (at = &gate->queues; *at != q; at = &(*at)->next) {
    }
    *at = q->next;
    q->member->passed += atomic_load(&q->passed);
    q->member->bytes[0] += atomic_load(&q->bytes[0]);
    q->member->bytes[1] += atomic_load(&q->bytes[1]);
    weir_gate_unlock(gate);
    pthread_mutex_destroy(&q->lock);
    free(q);
}

void weir_gate_session_gone(struct weir_session *session)
{
    for (uint32_t i = 0; i < session->worker->n_devices; i++) {
        struct weir_gate_queue *q = atomic_load_explicit(&session->gates[i], memory_order_relaxed);

        if (q != NULL && weir_session_enter(session, i) == CUDA_SUCCESS) {
            atomic_store(&session->gates[i], NULL);
            finish_queue(q);
        }
    }
}
