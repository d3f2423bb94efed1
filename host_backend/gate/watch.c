/*
 * Carries out the orders of the gate process, and runs the thread that watches the device's
 * progress.
 *
 * Orders about runs are driver calls. So the gate's thread stores them as actions under the lock.
 * The thread that unlocks the gate executes them without the lock, in order, unless another thread
 * is doing so.
 *
 * The gate's thread sleeps while the gate process knows of no work in flight. Otherwise it checks
 * the marks, every few microseconds if the machine has cores to spare, and less often if not.
 */
#include "host_backend/gate/private.h"

#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#define SLACK_NS    1000ul         /* timer slack of this thread's sleeps; the default is 50 us */
#define SPIN_NS     WEIR_NS_PER_MS /* the thread spins for this long after a mark was reached */
#define PAUSES      64
#define NAP_NS      (20 * WEIR_NS_PER_US)
#define NAP_FEW_NS  (100 * WEIR_NS_PER_US) /* sleep between two looks where cores are few */
#define EXACT_NS    (60 * WEIR_NS_PER_US)  /* an end is exact if it was seen within this time .. */
#define EXACT_PART  16u                    /* .. or within 1/16 of the work's duration */
#define NEAR_PART   4u                     /* .. or 1/4 for one observation among many */
#define LATE_FACTOR 4u

/* ---------------------------------------------------------------- items */

void weir_gate_item_put_locked(struct weir_gate *gate, struct weir_gate_item *item)
{
    if (--item->refs != 0) {
        return;
    }
    gate->ops->item_gone(item->room);
    WEIR_PUSH(gate->free_items, item);
}

/* Mark an item as gone, since the gate process has forgotten it. */
static void gone_locked(struct weir_gate_item *item)
{
    if (!item->gone) {
        item->gone = true;
        item->gate->n_items--;
        weir_gate_item_put_locked(item->gate, item);
    }
}

void weir_gate_withdraw_locked(struct weir_gate_item *item, uint64_t now_ns)
{
    if (item->queue->waiting == item) {
        item->queue->waiting = NULL;
    }
    if (!item->gone) {
        weir_gate_tell_locked(
            item->gate, item->name,
            (struct weir_gate_request){.kind = WEIR_GATE_REQUEST_WITHDRAW, .at_ns = now_ns});
    }
    gone_locked(item);
}

void weir_gate_kick_locked(struct weir_gate *gate)
{
    if (gate->idle) {
        gate->idle = false;
        pthread_cond_signal(&gate->work);
        if (weir_gate_client_of(gate)) {
            weir_gate_port_call(weir_gate_client_of(gate)->port);
        }
    }
}

/* ---------------------------------------------------------------- orders */

static void note_locked(struct weir_gate_item *item, enum weir_gate_act act,
                        const struct weir_sched_place *place, uint64_t lease_ns)
{
    struct weir_gate *gate = item->gate;

    if (gate->orders.n == gate->orders.room) {
        uint32_t room = gate->orders.room * 2 + 64;
        struct weir_gate_action *bigger = calloc(room, sizeof *bigger);

        if (!bigger) {
            return; /* without memory no order is stored: leases and the watchdog end the run */
        }
        for (uint32_t i = 0; i < gate->orders.n; i++) {
            bigger[i] = gate->orders.ring[(gate->orders.first + i) % gate->orders.room];
        }
        free(gate->orders.ring);
        gate->orders.ring = bigger;
        gate->orders.room = room;
        gate->orders.first = 0;
    }
    item->refs++;
    gate->orders.ring[(gate->orders.first + gate->orders.n++) % gate->orders.room] =
        (struct weir_gate_action){.item = item,
                                  .act = act,
                                  .lease_ns = lease_ns,
                                  .place = place ? *place : (struct weir_sched_place){0}};
}

void weir_gate_stop_locked(struct weir_gate_item *item, uint64_t lease_ns)
{
    atomic_store(&item->halted, true);
    if (!item->given) {
        item->stop_late = true;
        item->lease_ns = lease_ns;
    } else {
        note_locked(item, WEIR_GATE_STOP, NULL, lease_ns);
    }
}

void weir_gate_resume_locked(struct weir_gate_item *item, const struct weir_sched_place *place)
{
    static const struct weir_sched_place whole;

    atomic_store(&item->halted, false);
    note_locked(item, WEIR_GATE_RESUME, item->gate->share_pct == 0 ? place : &whole, 0);
}

void weir_gate_resize_locked(struct weir_gate_item *item, const struct weir_sched_place *place)
{
    if (item->gate->share_pct != 0) {
        return; /* the driver chooses which SMs its context has */
    }
    if (!item->given) {
        item->resize_late = true;
        item->late_place = *place;
    } else {
        note_locked(item, WEIR_GATE_RESIZE, place, 0);
    }
}

void weir_gate_late_orders_locked(struct weir_gate_item *item)
{
    if (item->resize_late) {
        note_locked(item, WEIR_GATE_RESIZE, &item->late_place, 0);
    }
    if (item->stop_late) {
        note_locked(item, WEIR_GATE_STOP, NULL, item->lease_ns);
    }
    item->resize_late = item->stop_late = false;
}

/* Execute an order without the lock; report a refused stop to the scheduler with the lock. */
static void carry_out(struct weir_gate *gate, const struct weir_gate_action *a)
{
    enum weir_gate_stop says;

    switch (a->act) {
    case WEIR_GATE_STOP:
        says = gate->ops->stop(gate->user, a->item->room, a->lease_ns);
        if (says != WEIR_GATE_STOPS) { /* launched in its original form, or must not stop now */
            pthread_mutex_lock(&gate->lock);
            atomic_store(&a->item->halted, false);
            weir_gate_tell_locked(
                gate, a->item->name,
                (struct weir_gate_request){.kind = WEIR_GATE_REQUEST_RUNNING,
                                           .at_ns = weir_clock_now_ns(),
                                           .flags = says == WEIR_GATE_STOPS_NOT_NOW});
            pthread_mutex_unlock(&gate->lock);
        }
        return;
    case WEIR_GATE_RESUME:
        gate->ops->resume(gate->user, a->item->room, &a->place);
        return;
    case WEIR_GATE_RESIZE:
    default:
        gate->ops->resize(gate->user, a->item->room, &a->place);
        return;
    }
}

void weir_gate_unlock(struct weir_gate *gate)
{
    if (gate->orders.acting) { /* the thread that is executing actions also executes ours */
        pthread_mutex_unlock(&gate->lock);
        return;
    }
    gate->orders.acting = true;
    while (gate->orders.n != 0) {
        struct weir_gate_action a = gate->orders.ring[gate->orders.first];

        gate->orders.first = (gate->orders.first + 1) % gate->orders.room;
        gate->orders.n--;
        if (!a.item->gone) {
            pthread_mutex_unlock(&gate->lock);
            carry_out(gate, &a);
            pthread_mutex_lock(&gate->lock);
        }
        weir_gate_item_put_locked(gate, a.item);
    }
    gate->orders.acting = false;
    pthread_mutex_unlock(&gate->lock);
}

/* ---------------------------------------------------------------- runs */

void *weir_gate_item_room(struct weir_gate_item *item)
{
    return item->room;
}

void weir_gate_item_hold(struct weir_gate_item *item)
{
    WEIR_LOCKED(&item->gate->lock);
    item->refs++;
}

void weir_gate_item_drop(struct weir_gate_item *item)
{
    struct weir_gate *gate = item->gate;

    WEIR_LOCKED(&gate->lock);
    weir_gate_item_put_locked(gate, item);
}

void weir_gate_run_stopped(struct weir_gate_item *item, uint32_t done_blocks)
{
    struct weir_gate_request request = {
        .kind = WEIR_GATE_REQUEST_STOPPED, .at_ns = weir_clock_now_ns(), .blocks = done_blocks};

    pthread_mutex_lock(&item->gate->lock);
    if (!item->gone) {
        weir_gate_tell_locked(item->gate, item->name, request);
    }
    weir_gate_unlock(item->gate);
}

void weir_gate_run_goes_on(struct weir_gate_item *item, bool may_stop)
{
    struct weir_gate_request request = {
        .kind = WEIR_GATE_REQUEST_RUNNING, .at_ns = weir_clock_now_ns(), .flags = may_stop};

    pthread_mutex_lock(&item->gate->lock);
    if (!item->gone) {
        atomic_store(&item->halted, false);
        weir_gate_tell_locked(item->gate, item->name, request);
    }
    weir_gate_unlock(item->gate);
}

/* ---------------------------------------------------------------- looking */

/* Has the GPU written the mark's word, or reached its event? After a device error: yes. */
static bool is_reached(const struct weir_gate *gate, const struct weir_gate_mark *mark)
{
    if (mark->word) {
        /* A1: acquires what the stream has done; meets the GPU's write of the word. */
        return (int32_t)(__atomic_load_n(mark->word, __ATOMIC_ACQUIRE) - mark->value) >= 0;
    }
    return gate->ops->event_reached(gate->user, mark->event);
}

void weir_gate_mark_put(const struct weir_gate *gate, const struct weir_gate_mark *mark)
{
    if (mark->event) {
        gate->ops->event_put(gate->user, mark->event);
    }
}

/* Was the end seen early enough to know how long the work took? */
static bool is_exact(uint64_t late_ns, uint64_t took_ns)
{
    return late_ns < EXACT_NS || late_ns < took_ns / EXACT_PART;
}

/* The time that work took, by its marks: since it was given, or since the work before it ended. */
static uint64_t span_ns(const struct weir_gate_queue *q, const struct weir_gate_batch *work,
                        uint64_t now_ns)
{
    uint64_t since_ns = WEIR_MAX(work->since_ns, q->done_seen_ns);

    return now_ns > since_ns ? now_ns - since_ns : 0;
}

/* How much earlier than span_ns() assumes the work may have begun. */
static uint64_t begin_late_ns(const struct weir_gate_queue *q, const struct weir_gate_batch *work)
{
    return work->since_ns > q->done_seen_ns ? 0 : q->done_late_ns;
}

/* Undecided work has ended: charge its tenant, and learn from it if all of it was identical. */
static void account_alone(struct weir_gate_queue *q, const struct weir_gate_batch *work,
                          uint64_t now_ns, uint64_t late_ns)
{
    uint64_t took_ns = span_ns(q, work, now_ns);
    bool exactly = is_exact(late_ns, took_ns);
    bool stalled = atomic_load(&q->stalled_at) == atomic_load(&q->done_ns) + 1;
    uint64_t most_ns = took_ns + begin_late_ns(q, work);

    if (exactly && work->alike && is_exact(begin_late_ns(q, work), took_ns)) {
        /* Work that waited for held-back work would otherwise get a longer prediction each time. */
        uint64_t own_ns = stalled && took_ns > WEIR_GATE_STALL_NS ? WEIR_GATE_STALL_NS : took_ns;

        weir_gate_learn_locked(q, work, own_ns / work->n);
    } else if (work->alike && !work->guessed && most_ns < work->ns) {
        /* An end that was seen late still shows that the prediction is too long, which would delay
         * the next item. */
        weir_gate_learn_locked(q, work, most_ns / work->n);
    }
    if (!exactly && !work->guessed && took_ns > work->ns * LATE_FACTOR) {
        took_ns = work->ns * LATE_FACTOR; /* seen late because the session had nothing to do */
    }
    weir_gate_charge_locked(q, work->class, took_ns);
}

static void finished_locked(struct weir_gate *gate, weir_gate_name name, uint64_t now_ns,
                            uint64_t took_ns)
{
    weir_gate_tell_locked(gate, name,
                          (struct weir_gate_request){
                              .kind = WEIR_GATE_REQUEST_FINISHED, .at_ns = now_ns, .ns = took_ns});
}

/* Report items that ended together. The scheduler learns from the sum of their times, or from the
 * first if all are identical. */
static void tell_together_locked(struct weir_gate *gate, const struct weir_gate_item *first,
                                 uint64_t now_ns)
{
    uint32_t n = 0;

    for (const struct weir_gate_item *item = first; item; item = item->next) {
        n++;
    }
    for (const struct weir_gate_item *item = first; item; item = item->next) {
        weir_gate_tell_locked(gate, item->name,
                              (struct weir_gate_request){.kind = WEIR_GATE_REQUEST_TOGETHER,
                                                         .at_ns = now_ns,
                                                         .blocks = --n});
    }
}

/* Report the ends of a batch's items, whose time is only known as a sum. A kernel may be granted
 * long before its sleeping thread wakes up and launches it. An end that was seen late does not
 * change the prediction, because part of that time belongs to the next item. */
static void finish_items_locked(struct weir_gate_queue *q, struct weir_gate_batch *work,
                                uint64_t now_ns, uint64_t late_ns)
{
    uint64_t all_ns = span_ns(q, work, now_ns);
    bool vague = late_ns >= all_ns / NEAR_PART || begin_late_ns(q, work) >= all_ns / NEAR_PART;

    if (!work->first) {
        return;
    }
    bool teaches = all_ns != 0 && !(vague && work->first->sure);
    uint64_t took_ns = teaches ? all_ns / work->n : WEIR_SCHED_UNKNOWN;
    if (work->n > 1) {
        if (teaches && work->n <= WEIR_GATE_BATCH_MAX) {
            tell_together_locked(q->gate, work->first, now_ns);
        }
        took_ns = work->alike ? took_ns : WEIR_SCHED_UNKNOWN;
    } else if (work->class != WEIR_SCHED_KERNEL) {
        took_ns = 0;
    }
    for (struct weir_gate_item *item; (item = WEIR_POP(work->first));) {
        finished_locked(q->gate, item->name, now_ns, took_ns);
        took_ns = work->n > 1 ? WEIR_SCHED_UNKNOWN : 0;
        gone_locked(item);
    }
}

static void entry_done_locked(struct weir_gate_queue *q, struct weir_gate_entry *e, uint64_t now_ns,
                              uint64_t late_ns)
{
    struct weir_gate *gate = q->gate;

    if (e->started != 0) {
        finished_locked(gate, e->started, now_ns, 0);
        gate->n_items--;
    } else if (!e->work.first) {
        account_alone(q, &e->work, now_ns, late_ns);
    }
    finish_items_locked(q, &e->work, now_ns, late_ns);
    weir_gate_mark_put(gate, &e->mark);
    e->pending = false;
    atomic_store_explicit(&q->done_ns,
                          atomic_load_explicit(&q->done_ns, memory_order_relaxed) + e->work.ns,
                          memory_order_release);
    q->done_seen_ns = now_ns;
    q->done_late_ns = late_ns;
}

/* Report the end of work that was reported while it was unmarked, and that has marks now or was
 * dropped. It ends with its last mark, if that was not reached yet. */
static void settle_unmarked_locked(struct weir_gate_queue *q, uint64_t now_ns)
{
    if (q->unmarked_started == 0 ||
        atomic_load_explicit(&q->unmarked_ns, memory_order_acquire) != 0) {
        return;
    }
    struct weir_gate_entry *last =
        q->n != 0 ? &q->ring[(q->first + q->n - 1) % WEIR_GATE_ENTRIES] : NULL;
    if (last && last->pending && last->started == 0 && !last->work.first) {
        last->started = q->unmarked_started;
    } else {
        finished_locked(q->gate, q->unmarked_started, now_ns, 0);
        q->gate->n_items--;
    }
    q->unmarked_started = 0;
}

void weir_gate_look_locked(struct weir_gate_queue *q, uint64_t now_ns)
{
    uint64_t late_ns = now_ns - q->looked_ns;

    WEIR_LOCKED(&q->lock);
    settle_unmarked_locked(q, now_ns);
    for (uint32_t i = 0; i < q->n; i++) {
        struct weir_gate_entry *e = &q->ring[(q->first + i) % WEIR_GATE_ENTRIES];

        if (e->pending && is_reached(q->gate, &e->mark)) {
            entry_done_locked(q, e, now_ns, late_ns);
            q->gate->event_ns = now_ns;
        }
    }
    while (q->n != 0 && !q->ring[q->first].pending) {
        q->first = (q->first + 1) % WEIR_GATE_ENTRIES;
        q->n--;
        q->first_ns = now_ns;
    }
    q->looked_ns = now_ns;
}

static weir_gate_name adopt_one(struct weir_gate_queue *q, uint8_t class, uint64_t ns,
                                uint64_t now_ns)
{
    struct weir_gate_request request = {
        .class = class, .flags = WEIR_SCHED_STARTED, .at_ns = now_ns, .ns = ns != 0 ? ns : 1};
    weir_gate_name name = 0;

    if (weir_gate_arrive_locked(q, &request, NULL, &name) == WEIR_OK) {
        q->gate->n_items++;
    }
    return name;
}

void weir_gate_adopt_locked(struct weir_gate_queue *q, uint64_t now_ns)
{
    uint64_t unmarked_ns = atomic_load_explicit(&q->unmarked_ns, memory_order_acquire);
    uint32_t n, known = q->gate->n_items;

    pthread_mutex_lock(&q->lock);
    n = q->n;
    for (uint32_t i = 0; i < n; i++) {
        struct weir_gate_entry *e = &q->ring[(q->first + i) % WEIR_GATE_ENTRIES];

        if (e->pending && e->started == 0 && !e->work.first) {
            e->started = adopt_one(q, e->work.class, e->work.ns, now_ns);
        }
    }
    pthread_mutex_unlock(&q->lock);
    if (unmarked_ns != 0 && q->unmarked_started == 0) {
        q->unmarked_started = adopt_one(q, WEIR_SCHED_KERNEL, unmarked_ns, now_ns);
    }
    if (q->gate->n_items != known) {
        weir_gate_kick_locked(q->gate);
    }
}

/* Report work that passed undecided at the moment when that became forbidden. */
static void adopt_stragglers_locked(struct weir_gate_queue *q, uint64_t now_ns)
{
    if (!weir_gate_may_pass(q) && !q->waiting && (q->n != 0 || atomic_load(&q->unmarked_ns) != 0)) {
        weir_gate_adopt_locked(q, now_ns);
    }
}

static void look_all_locked(struct weir_gate *gate, uint64_t now_ns)
{
    for (struct weir_gate_queue *q = gate->queues; q; q = q->next) {
        if (q->n != 0 || q->unmarked_started != 0) {
            weir_gate_look_locked(q, now_ns);
        }
        adopt_stragglers_locked(q, now_ns);
    }
    weir_gate_take_orders_locked(gate);
}

/* ---------------------------------------------------------------- the thread */

/* Sleep until the gate process, or a thread of this process, wakes the port's watchers. */
static void sleep_attached_locked(struct weir_gate *gate, struct weir_gate_port *port,
                                  uint32_t attention)
{
    pthread_mutex_unlock(&gate->lock);
    atomic_fetch_add(&port->watchers, 1);
    (void)weir_futex_wait(&port->attention, attention, WEIR_FOREVER);
    atomic_fetch_sub(&port->watchers, 1);
    pthread_mutex_lock(&gate->lock);
}

/* Sleep until woken. @param attention of the client's port, before the last check; else unused. */
static void sleep_locked(struct weir_gate *gate, struct weir_gate_client *client,
                         uint32_t attention)
{
    gate->idle = true;
    if (client) {
        sleep_attached_locked(gate, client->port, attention);
    } else {
        (void)pthread_cond_wait(&gate->work, &gate->lock);
    }
    gate->idle = false;
}

static void pause_between(const struct weir_gate *gate, uint64_t since_event_ns)
{
    struct timespec nap = {0, gate->spin ? (long)NAP_NS : (long)NAP_FEW_NS};

    if (weir_gate_may_spin(gate) && since_event_ns < SPIN_NS) {
        for (int i = 0; i < PAUSES; i++) {
            weir_cpu_pause();
        }
        return;
    }
    nanosleep(&nap, NULL);
}

void *weir_gate_watch(void *user)
{
    struct weir_gate *gate = user;

    (void)prctl(PR_SET_NAME, "weir-sched");
    (void)prctl(PR_SET_TIMERSLACK, SLACK_NS);
    gate->ops->thread_begins(gate->user);
    pthread_mutex_lock(&gate->lock);
    while (!gate->quit) {
        struct weir_gate_client *client = weir_gate_client_of(gate);
        uint32_t attention =
            client ? __atomic_load_n(&client->port->attention, __ATOMIC_SEQ_CST) : 0;
        uint64_t now_ns = weir_clock_now_ns(), event_ns;

        look_all_locked(gate, now_ns);
        if (gate->n_items == 0 && gate->orders.n == 0) {
            sleep_locked(gate, client, attention);
            continue;
        }
        event_ns = gate->event_ns;
        weir_gate_unlock(gate);
        pause_between(gate, now_ns - event_ns);
        pthread_mutex_lock(&gate->lock);
    }
    pthread_mutex_unlock(&gate->lock);
    return NULL;
}
