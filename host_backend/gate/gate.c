/*
 * Handles a session's work at the gate: the work passes undecided, or the gate process decides
 * about it.
 *
 * A tenant that is alone passes undecided while the session has little work in flight. Work that
 * passes at the moment in which another tenant comes may go unreported at first. It is in the
 * session's ring or open batches, and the session's next item or the watcher reports it to the gate
 * process shortly after (weir_gate_adopt_locked()).
 *
 * Marks show when work in flight has ended. Work since a stream's last mark is *unmarked*; it is
 * one batch. A mark closes the batch and makes it an entry of the session's ring. A stream gets a
 * mark when much is unmarked, before the session waits, and when the session has no more work.
 *
 * Lock order: the gate's lock before a queue's. The worker is never called with either held, except
 * for weir_gate_ops.item_gone().
 */
#include "host_backend/gate/private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The most unmarked items that a stream may have while its tenant is alone, and while it is not. */
#define UNMARKED_ALONE     WEIR_GATE_BATCH_MAX
#define UNMARKED_CONTENDED 16u
/* While tenants contend, one item in this many gets a mark before and behind it, to measure its
 * duration. */
#define TIMED_EVERY 16u
#define TIMED_SURE  64u /* the same ratio for items with a reliable prediction */

#define SHARE_KEY UINT64_C(0x9e3779b97f4a7c15) /* 2^64 / golden ratio, to spread the shares */

/* ---------------------------------------------------------------- queues */

bool weir_gate_is_small(const struct weir_gate *gate, uint32_t sms)
{
    return weir_sched_is_small(&gate->config, sms);
}

bool weir_gate_contends(const struct weir_gate_queue *queue)
{
    return !weir_gate_may_pass(queue);
}

enum weir_status weir_gate_queue_create(struct weir_gate *gate, uint32_t slot, const char *tenant,
                                        uint32_t sm_limit_pct,
                                        const struct weir_gate_session_ops *ops, void *session,
                                        struct weir_gate_queue **ret_queue)
{
    struct weir_gate_queue *q = calloc(1, sizeof *q);

    WEIR_FAIL_IF(!q, WEIR_ERR_NO_MEMORY);
    q->gate = gate;
    q->member = &gate->members[slot];
    q->ops = ops;
    q->session = session;
    q->sm_limit_pct = sm_limit_pct;
    pthread_mutex_init(&q->lock, NULL);
    pthread_mutex_lock(&gate->lock);
    snprintf(q->member->name, sizeof q->member->name, "%s", tenant);
    WEIR_PUSH(gate->queues, q);
    weir_gate_enlist_locked(q);
    pthread_mutex_unlock(&gate->lock);
    *ret_queue = q;
    return WEIR_OK;
}

/* ---------------------------------------------------------------- batches */

bool weir_gate_batch_may_close(const struct weir_gate_queue *queue)
{
    return queue->n != WEIR_GATE_ENTRIES;
}

void weir_gate_batch_close(struct weir_gate_queue *queue, struct weir_gate_batch *batch,
                           const struct weir_gate_mark *mark)
{
    struct weir_gate_queue *q = queue;

    pthread_mutex_lock(&q->lock);
    struct weir_gate_entry *entry = &q->ring[(q->first + q->n++) % WEIR_GATE_ENTRIES];
    *entry = (struct weir_gate_entry){.mark = *mark, .work = *batch, .pending = true};
    pthread_mutex_unlock(&q->lock);
    atomic_store_explicit(&q->unmarked_ns,
                          atomic_load_explicit(&q->unmarked_ns, memory_order_relaxed) -
                              batch->beside_ns,
                          memory_order_release);
    *batch = (struct weir_gate_batch){0};
}

void weir_gate_batch_drop(struct weir_gate_queue *queue, struct weir_gate_batch *batch)
{
    pthread_mutex_lock(&queue->gate->lock);
    for (struct weir_gate_item *item; (item = WEIR_POP(batch->first));) {
        weir_gate_withdraw_locked(item, weir_clock_now_ns());
    }
    atomic_fetch_add(&queue->done_ns, batch->ns);
    weir_gate_unlock(queue->gate);
    atomic_fetch_sub(&queue->unmarked_ns, batch->beside_ns);
    *batch = (struct weir_gate_batch){0};
}

void weir_gate_look(struct weir_gate_queue *queue)
{
    pthread_mutex_lock(&queue->gate->lock);
    weir_gate_look_locked(queue, weir_clock_now_ns());
    weir_gate_unlock(queue->gate);
}

bool weir_gate_in_flight(const struct weir_gate_queue *queue)
{
    return queue->n != 0;
}

/* ---------------------------------------------------------------- through the gate process */

static struct weir_gate_item *take_item_locked(struct weir_gate_queue *q)
{
    const size_t kept = offsetof(struct weir_gate_item, next);
    struct weir_gate *gate = q->gate;
    struct weir_gate_item *item = gate->free_items;

    if (item) {
        gate->free_items = item->next;
        memset((char *)item + kept, 0, sizeof *item - kept + gate->item_room);
    } else {
        item = calloc(1, sizeof *item + gate->item_room);
        if (item) {
            item->gate = gate;
        }
    }
    if (item) {
        item->queue = q;
        item->refs = 1;
    }
    return item;
}

/* The number of SMs that an SM limit of share_pct percent allows. */
static uint32_t share_sms(const struct weir_gate *gate)
{
    uint32_t sms = (uint32_t)((uint64_t)gate->config.sms * gate->share_pct / 100);

    return sms != 0 ? sms : 1;
}

/*
 * The driver keeps the work to its context's share of the SMs, so the gate process treats it as
 * confined to SMs and need not delay it. If the limit is now lower than the share, the gate process
 * delays the work and charges it for the whole share.
 */
static void confine(const struct weir_gate_queue *q, struct weir_gate_request *request)
{
    const struct weir_gate *gate = q->gate;

    if (gate->share_pct == 0 || weir_gate_is_copy((enum weir_sched_class)request->class)) {
        return;
    }
    if (weir_gate_sm_limit_pct(q) >= gate->share_pct) {
        request->flags |= WEIR_SCHED_MOVABLE;
        return;
    }
    request->flags &= (uint16_t)~WEIR_SCHED_MOVABLE;
    if (request->class == WEIR_SCHED_KERNEL && request->blocks > share_sms(gate)) {
        request->blocks = share_sms(gate);
        request->blocks_per_sm = 1;
    }
}

static enum weir_status bring_locked(struct weir_gate_queue *q, const struct weir_gate_work *work,
                                     const struct weir_gate_pass *pass,
                                     struct weir_gate_item **ret_item)
{
    bool copies = weir_gate_is_copy(work->class);
    struct weir_gate *gate = q->gate;
    struct weir_gate_request request = {.class = (uint8_t)work->class,
                                        .flags = (uint16_t)work->flags,
                                        .at_ns = weir_clock_now_ns(),
                                        .key = copies ? work->rest_bytes : work->key,
                                        .size = work->bytes,
                                        .ns = pass->guessed ? 0 : pass->ns,
                                        .blocks = work->blocks,
                                        .blocks_per_sm = work->blocks_per_sm};
    struct weir_gate_item *item = take_item_locked(q);

    WEIR_FAIL_IF(!item, WEIR_ERR_NO_MEMORY);
    item->sure =
        copies || work->key == 0 || weir_predict_is_sure(gate->predict, work->class, work->key);
    item->stoppable = (work->flags & WEIR_SCHED_STOPPABLE) != 0;
    item->brought_ns = request.at_ns;
    confine(q, &request);
    request.flags |= item->sure ? 0 : WEIR_SCHED_UNSURE;
    enum weir_status status = weir_gate_arrive_locked(q, &request, item, &item->name);
    if (status != WEIR_OK) {
        item->gone = true;
        weir_gate_item_put_locked(gate, item);
        return status;
    }
    q->has_peers |= (work->flags & WEIR_SCHED_PEERS) != 0;
    gate->n_items++;
    q->waiting = item;
    *ret_item = item;
    return WEIR_OK;
}

/* Report earlier undecided work to the gate process, then bring it the item. Sets *ret_item to NULL
 * if there is no gate process: the item passes. */
static enum weir_status bring(struct weir_gate_queue *q, const struct weir_gate_work *work,
                              struct weir_gate_pass *pass, struct weir_gate_item **ret_item)
{
    struct weir_gate *gate = q->gate;
    uint64_t now_ns = weir_clock_now_ns();
    enum weir_status status = WEIR_OK;

    *ret_item = NULL;
    pthread_mutex_lock(&gate->lock);
    weir_gate_look_locked(q, now_ns);
    weir_gate_ask_locked(gate, work, pass);
    if (weir_gate_client_of(gate)) {
        weir_gate_enlist_locked(q);
        if (!weir_gate_may_pass(q)) {
            weir_gate_adopt_locked(q, now_ns);
        }
        status = bring_locked(q, work, pass, ret_item);
    }
    weir_gate_unlock(gate);
    return status;
}

static enum weir_status through(struct weir_gate_queue *q, const struct weir_gate_work *work,
                                struct weir_gate_pass *pass)
{
    struct weir_gate *gate = q->gate;
    struct weir_gate_item *item;
    enum weir_status status = bring(q, work, pass, &item);

    if (status != WEIR_OK || !item) {
        return status;
    }
    if (!weir_gate_is_granted(item) && !weir_gate_wait_room(q, item)) {
        q->ops->mark_all(q->session,
                         q); /* this item, or other items, may wait for the end of unmarked work */
    }
    if (!weir_gate_wait_granted(q, item, pass->ns)) {
        pthread_mutex_lock(&gate->lock);
        weir_gate_withdraw_locked(item, weir_clock_now_ns());
        weir_gate_unlock(gate);
        return WEIR_ERR_CLOSED;
    }
    weir_gate_granted(q, item, work, pass);
    pass->item = item;
    pass->place = gate->share_pct == 0 ? item->place : (struct weir_sched_place){0};
    pass->beside_bytes = item->beside_bytes;
    pass->level = item->level;
    pass->cause = item->cause;
    pass->stoppable = item->stoppable;
    return WEIR_OK;
}

/* ---------------------------------------------------------------- enter, leave */

static void add_given(struct weir_gate_queue *q, uint64_t ns)
{
    atomic_store_explicit(&q->given_ns,
                          atomic_load_explicit(&q->given_ns, memory_order_relaxed) + ns,
                          memory_order_relaxed);
}

static bool is_below(const struct weir_gate_pass *pass)
{
    return pass->level == WEIR_SCHED_BELOW || pass->level == WEIR_SCHED_BELOW_EQUAL;
}

/* Does the item get a mark before and behind it? A filler is slowed down, so it is not measured. */
static bool is_timed(const struct weir_gate_pass *pass)
{
    bool sure = pass->item->sure;
    bool each = !sure && pass->queue->gate->config.fill == WEIR_SCHED_FILL_ALL;

    return (each || pass->queue->gated % (sure ? TIMED_SURE : TIMED_EVERY) == 0) && !is_below(pass);
}

/*
 * Put a mark before the item if its time must be separated from that of undecided work or other
 * items. A copy gets one, too, so that others need not wait for the kernels behind it.
 */
bool weir_gate_begins_apart(const struct weir_gate_pass *pass, const struct weir_gate_batch *batch)
{
    return pass->item && batch->n != 0 &&
           (!batch->first || is_timed(pass) ||
            (weir_gate_is_copy(batch->last_class) && pass->class != batch->last_class));
}

/* Is a mark due behind the unmarked work? It is due sooner when other tenants may be waiting. */
static bool is_mark_due(const struct weir_gate_pass *pass, const struct weir_gate_batch *unmarked)
{
    uint64_t least_ns = pass->queue->gate->config.inflight_ns / 2;
    uint64_t filler_ns = weir_sched_fill_bound_ns(&pass->queue->gate->config, pass->level) / 2;

    return unmarked->guessed || is_timed(pass) ||
           (is_below(pass) ? unmarked->n >= UNMARKED_ALONE || unmarked->ns >= filler_ns
                           : unmarked->n >= UNMARKED_CONTENDED || unmarked->ns >= least_ns);
}

/* Let the work pass undecided. @return WEIR_ERR_AGAIN: the gate process must decide about it now */
static enum weir_status beside(struct weir_gate_queue *q, const struct weir_gate_work *work,
                               struct weir_gate_pass *pass)
{
    weir_gate_predict(q->gate, work, pass);
    if (weir_gate_is_blind(q, work->hint)) {
        q->ops->mark_all(q->session, q);
        WEIR_FAIL_IF(!weir_gate_see(q, work, pass), WEIR_ERR_CLOSED);
    }
    if (weir_gate_below(q, pass->ns) && weir_gate_may_pass(q)) {
        return WEIR_OK;
    }
    q->ops->mark_all(q->session, q);
    WEIR_FAIL_IF(!weir_gate_wait_below(q, pass->ns), WEIR_ERR_CLOSED);
    return weir_gate_may_pass(q) ? WEIR_OK : WEIR_ERR_AGAIN;
}

/* Must the gate process, if there is one, get the work even while the tenant is alone? Nobody else
 * can stop it, or says that the queue's kernels may wait for others. */
static bool is_news(const struct weir_gate_queue *q, const struct weir_gate_work *work)
{
    return (work->flags & WEIR_SCHED_STOPPABLE) != 0 ||
           ((work->flags & WEIR_SCHED_PEERS) != 0 && !q->has_peers);
}

enum weir_status weir_gate_enter(struct weir_gate_queue *queue, const struct weir_gate_work *work,
                                 struct weir_gate_pass *ret_pass)
{
    struct weir_gate_queue *q = queue;
    enum weir_status status = WEIR_ERR_AGAIN;
    struct weir_gate_work own;

    if (q->gate->share_pct != 0 && work->key != 0) { /* its durations are learned separately */
        own = *work;
        own.key ^= q->gate->share_pct * SHARE_KEY & WEIR_PREDICT_KEY_MASK;
        work = &own;
    }
    *ret_pass = (struct weir_gate_pass){.queue = q,
                                        .class = (uint8_t)work->class,
                                        .key = work->key,
                                        .size = weir_gate_size_of(work)};
    if (weir_gate_may_pass(q) && (!is_news(q, work) || !weir_gate_client_of(q->gate))) {
        status = beside(q, work, ret_pass);
    }
    if (status == WEIR_ERR_AGAIN) {
        status = through(q, work, ret_pass);
        q->gated += ret_pass->item != NULL;
    }
    if (status == WEIR_OK) {
        add_given(q, ret_pass->ns);
    }
    return status;
}

/* Add work to the unmarked batch: the stream got it, and no mark follows it yet. */
static void add_unmarked(const struct weir_gate_pass *pass, struct weir_gate_batch *unmarked)
{
    struct weir_gate_queue *q = pass->queue;

    if (unmarked->n == 0) {
        *unmarked = (struct weir_gate_batch){.key = pass->key,
                                             .size = pass->size,
                                             .class = pass->class,
                                             .since_ns = weir_clock_now_ns(),
                                             .alike = true};
    }
    unmarked->last_class = pass->class;
    unmarked->alike &= unmarked->key == pass->key && unmarked->size == pass->size &&
                       unmarked->class == pass->class;
    unmarked->guessed |= pass->guessed;
    unmarked->ns += pass->ns;
    unmarked->n++;
    if (pass->item) {
        *(unmarked->last ? &unmarked->last->next : &unmarked->first) = pass->item;
        unmarked->last = pass->item;
        return;
    }
    unmarked->beside_ns += pass->ns;
    atomic_store_explicit(&q->unmarked_ns,
                          atomic_load_explicit(&q->unmarked_ns, memory_order_relaxed) + pass->ns,
                          memory_order_release);
}

/* The item went to its stream: execute the orders about it that arrived before. */
static void give(struct weir_gate *gate, struct weir_gate_item *item)
{
    pthread_mutex_lock(&gate->lock);
    item->given = true;
    weir_gate_late_orders_locked(item);
    weir_gate_unlock(gate);
}

/*
 * Some thread must notice the end of the new work. The watcher sleeps only while no item is known
 * (n_items). So a thread that has brought an item reads the value that `idle` had then, or false.
 */
static void wake_watcher(struct weir_gate *gate)
{
    if (atomic_load_explicit(&gate->idle, memory_order_relaxed)) {
        pthread_mutex_lock(&gate->lock);
        weir_gate_kick_locked(gate);
        pthread_mutex_unlock(&gate->lock);
    }
}

/* The stream got no work: undo the arrival. */
static void take_back(const struct weir_gate_pass *pass)
{
    struct weir_gate_queue *q = pass->queue;

    atomic_store_explicit(&q->given_ns,
                          atomic_load_explicit(&q->given_ns, memory_order_relaxed) - pass->ns,
                          memory_order_relaxed);
    if (pass->item) {
        pthread_mutex_lock(&q->gate->lock);
        weir_gate_withdraw_locked(pass->item, weir_clock_now_ns());
        weir_gate_unlock(q->gate);
    }
}

bool weir_gate_leave(struct weir_gate_pass *pass, struct weir_gate_batch *batch, bool given)
{
    struct weir_gate_queue *q = pass->queue;

    if (!given) {
        take_back(pass);
        return false;
    }
    if (weir_gate_is_copy(pass->class)) {
        atomic_fetch_add_explicit(&q->bytes[pass->class == WEIR_SCHED_D2H], pass->size,
                                  memory_order_relaxed);
    }
    add_unmarked(pass, batch);
    if (!pass->item) {
        atomic_store_explicit(&q->passed,
                              atomic_load_explicit(&q->passed, memory_order_relaxed) + 1,
                              memory_order_relaxed);
        return batch->n >= UNMARKED_ALONE || batch->ns >= q->gate->config.alone_ns / 4;
    }
    wake_watcher(q->gate);
    if (pass->stoppable) {
        give(q->gate, pass->item);
        return true;
    }
    return is_mark_due(pass, batch);
}

static bool is_crowded(const struct weir_gate *gate, unsigned crowd)
{
    const struct weir_gate_news *news = weir_gate_news_of(gate);

    return news && (atomic_load_explicit(&news->crowded, memory_order_relaxed) >> crowd & 1) != 0;
}

/* What a launch in a form that can be stopped may cost beside others (FLEP's bound), and alone: so
 * little that nobody notices. */
#define RUN_COST_PCT       4u
#define RUN_COST_ALONE_PCT 1u
/* The launch of such a form and the mark behind it take some 10 us longer than the original's
 * (H200). Of a shorter kernel than these that is more than it may cost. */
#define SHORT_NS       (250 * WEIR_NS_PER_US)
#define SHORT_ALONE_NS (1 * WEIR_NS_PER_MS)

uint32_t weir_gate_run_cost_pct(const struct weir_gate *gate, enum weir_priority priority,
                                uint32_t sm_limit_pct, const struct weir_gate_hint *hint)
{
    if (!weir_gate_news_of(gate) || (hint->ns != 0 && hint->ns < SHORT_NS)) {
        return 0;
    }
    if (sm_limit_pct < 100) {
        return UINT32_MAX; /* the launch must keep the SM limit, on which other tenants rely */
    }
    if (is_crowded(gate, weir_gate_peers(gate->levels, priority))) {
        return RUN_COST_PCT;
    }
    return hint->ns > SHORT_ALONE_NS ? RUN_COST_ALONE_PCT : 0;
}

bool weir_gate_has_company(const struct weir_gate *gate, enum weir_priority priority)
{
    return is_crowded(gate, weir_gate_company(priority));
}

/* ---------------------------------------------------------------- a session's end */

void weir_gate_queue_ends(struct weir_gate_queue *queue)
{
    struct weir_gate_queue *q = queue;
    uint64_t now_ns = weir_clock_now_ns();

    pthread_mutex_lock(&q->gate->lock);
    weir_gate_look_locked(q, now_ns);
    for (uint32_t k = 0; k < q->n; k++) {
        struct weir_gate_entry *e = &q->ring[(q->first + k) % WEIR_GATE_ENTRIES];

        for (struct weir_gate_item *item = e->work.first; item; item = item->next) {
            weir_gate_tell_locked(
                q->gate, item->name,
                (struct weir_gate_request){.kind = WEIR_GATE_REQUEST_RUNNING, .at_ns = now_ns});
        }
    }
    weir_gate_unlock(q->gate);
}

/* @param name an item that stands for undecided work; 0: none. */
static void forget_started_locked(struct weir_gate *gate, weir_gate_name name, uint64_t now_ns)
{
    if (name != 0) {
        weir_gate_tell_locked(
            gate, name,
            (struct weir_gate_request){.kind = WEIR_GATE_REQUEST_WITHDRAW, .at_ns = now_ns});
        gate->n_items--;
    }
}

void weir_gate_queue_destroy(struct weir_gate_queue *queue)
{
    struct weir_gate_queue *q = queue;
    struct weir_gate *gate = q->gate;
    uint64_t now_ns = weir_clock_now_ns();
    struct weir_gate_queue **at;

    pthread_mutex_lock(&gate->lock);
    weir_gate_look_locked(q, now_ns);
    for (; q->n != 0; q->first = (q->first + 1) % WEIR_GATE_ENTRIES) {
        struct weir_gate_entry *e = &q->ring[q->first];

        for (struct weir_gate_item *item; (item = WEIR_POP(e->work.first));) {
            weir_gate_withdraw_locked(item, now_ns);
        }
        forget_started_locked(gate, e->started, now_ns);
        weir_gate_mark_put(gate, &e->mark);
        q->n--;
    }
    forget_started_locked(gate, q->unmarked_started, now_ns);
    weir_gate_delist_locked(q);
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
