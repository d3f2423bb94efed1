/*
 * The gate's side towards the scheduler: carries out its orders, and runs the thread that sees what
 * the device has done.
 *
 * Orders about runs are driver calls. So they are noted under the lock and carried out without it,
 * in their order and by one thread at a time: the thread that unlocks the gate, if no other is
 * carrying them out. That is often the thread whose item waits for the place, so a stop loses no
 * time. Orders of the gate process are noted by the gate's thread.
 *
 * The gate's thread sleeps while the scheduler has no work in flight. Otherwise it looks at the
 * marks, every few microseconds if the machine has cores to spare, and less often if not.
 */
#include "host_backend/gate/private.h"

#include "base/log.h"
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#define CROWDED_NS  WEIR_NS_PER_S
#define SLACK_NS    1000ul         /* of our sleeps; the default is 50 us */
#define SPIN_NS     WEIR_NS_PER_MS /* after something has happened */
#define PAUSES      64
#define NAP_NS      (20 * WEIR_NS_PER_US)
#define NAP_FEW_NS  (100 * WEIR_NS_PER_US) /* where cores are few */
#define EXACT_NS    (60 * WEIR_NS_PER_US) /* between two looks: then it is known when it was done */
#define EXACT_PART  16u                   /* the same, of what the work took */
#define NEAR_PART   4u                    /* the same, for one observation among many */
#define LATE_FACTOR 4u

/* ---------------------------------------------------------------- items */

void weir_gate_item_put_locked(struct weir_gate *gate, struct weir_gate_item *item)
{
    if (--item->refs != 0) {
        return;
    }
    gate->ops->item_gone(item->room);
    item->next = gate->free_items;
    gate->free_items = item;
}

/* The scheduler has forgotten the item. */
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
        weir_gate_forget_locked(item->gate, now_ns, item->id);
    }
    gone_locked(item);
}

void weir_gate_kick_locked(struct weir_gate *gate)
{
    if (gate->idle) {
        gate->idle = false;
        pthread_cond_signal(&gate->work);
        if (weir_gate_client_of(gate) != NULL) {
            weir_gate_port_call(weir_gate_client_of(gate)->port);
        }
    }
}

static void crowd_locked(struct weir_gate *gate, unsigned crowd, uint64_t now_ns)
{
    if (!atomic_load_explicit(&gate->crowded[crowd], memory_order_relaxed)) {
        atomic_store_explicit(&gate->crowded[crowd], true, memory_order_relaxed);
        weir_gate_kick_locked(gate);
    }
    gate->crowded_until_ns[crowd] = now_ns + CROWDED_NS;
}

/* Of two tenants at work, the one of the lower class has company, or both of one class have. */
static void note_company_locked(struct weir_gate *gate, struct weir_gate_member *member,
                                uint64_t now_ns)
{
    enum weir_priority own = member->params.priority;

    member->seen_ns = now_ns;
    for (int other = 0; other < WEIR_PRIORITY_COUNT; other++) {
        const struct weir_gate_member *last =
            gate->last_member[weir_gate_company((enum weir_priority)other)];

        if (last != NULL && last != member && now_ns - last->seen_ns < CROWDED_NS) {
            crowd_locked(gate,
                         weir_gate_company((int)own < other ? own : (enum weir_priority)other),
                         now_ns);
        }
    }
    gate->last_member[weir_gate_company(own)] = member;
}

void weir_gate_seen_locked(struct weir_gate *gate, struct weir_gate_member *member, uint64_t now_ns)
{
    unsigned peers = weir_gate_peers(gate->levels, member->params.priority);

    if (gate->last_member[peers] != member && gate->last_member[peers] != NULL) {
        crowd_locked(gate, peers, now_ns);
    }
    gate->last_member[peers] = member;
    note_company_locked(gate, member, now_ns);
}

void weir_gate_joined_locked(struct weir_gate *gate, weir_sched_id id, uint64_t now_ns)
{
    for (uint32_t i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        if (gate->members[i].id == id) {
            note_company_locked(gate, &gate->members[i], now_ns);
        }
    }
}

/* ---------------------------------------------------------------- orders */

static void note_locked(struct weir_gate_item *item, enum weir_gate_act act,
                        const struct weir_sched_place *place, uint64_t lease_ns)
{
    struct weir_gate *gate = item->gate;

    if (gate->n_actions == gate->actions_room) {
        uint32_t room = gate->actions_room * 2 + 64;
        struct weir_gate_action *bigger = calloc(room, sizeof *bigger);

        if (bigger == NULL) {
            return; /* leases and the watchdog go on without it */
        }
        for (uint32_t i = 0; i < gate->n_actions; i++) {
            bigger[i] = gate->actions[(gate->first_action + i) % gate->actions_room];
        }
        free(gate->actions);
        gate->actions = bigger;
        gate->actions_room = room;
        gate->first_action = 0;
    }
    item->refs++;
    gate->actions[(gate->first_action + gate->n_actions++) % gate->actions_room] =
        (struct weir_gate_action){.item = item,
                                  .act = act,
                                  .lease_ns = lease_ns,
                                  .place = place != NULL ? *place : (struct weir_sched_place){0}};
}

static void on_start(void *user, weir_sched_id id, void *item_user,
                     const struct weir_sched_place *place, enum weir_sched_level level)
{
    struct weir_gate_item *item = item_user;
    struct weir_gate_queue *q = item->queue;

    (void)user;
    (void)id;
    item->place = *place;
    item->level = level;
    /* G1: publishes the place; meets the acquire in wait_granted(). */
    atomic_store_explicit(&item->granted, true, memory_order_release);
    if (q->waiting == item) {
        q->waiting = NULL;
        __atomic_fetch_add(&q->word, 1, __ATOMIC_RELEASE);
        weir_futex_wake(&q->word, 1);
    }
}

/* Waking up takes a thread 10 to 60 us, in which the copy engine would have nothing to do. */
static void on_soon(void *user, weir_sched_id id, void *item_user)
{
    struct weir_gate_item *item = item_user;
    struct weir_gate_queue *q = item->queue;

    (void)user;
    (void)id;
    if (q->waiting == item && weir_gate_may_spin(q->gate)) {
        /* G2: meets the exchange in granted_at_last(). */
        atomic_store_explicit(&item->soon, true, memory_order_release);
        __atomic_fetch_add(&q->word, 1, __ATOMIC_RELEASE);
        weir_futex_wake(&q->word, 1);
    }
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
        return; /* which SMs its context has is the driver's to choose */
    }
    if (!item->given) {
        item->resize_late = true;
        item->late_place = *place;
    } else {
        note_locked(item, WEIR_GATE_RESIZE, place, 0);
    }
}

static void on_stop(void *user, weir_sched_id id, void *item_user, uint64_t lease_ns)
{
    (void)user;
    (void)id;
    weir_gate_stop_locked(item_user, lease_ns);
}

static void on_resume(void *user, weir_sched_id id, void *item_user,
                      const struct weir_sched_place *place)
{
    (void)user;
    (void)id;
    weir_gate_resume_locked(item_user, place);
}

static void on_resize(void *user, weir_sched_id id, void *item_user,
                      const struct weir_sched_place *place)
{
    (void)user;
    (void)id;
    weir_gate_resize_locked(item_user, place);
}

static void on_timer(void *user, uint64_t at_ns)
{
    struct weir_gate *gate = user;

    if (at_ns < gate->timer_ns) {
        weir_gate_kick_locked(gate);
    }
    gate->timer_ns = at_ns;
}

static void on_log(void *user, const char *line)
{
    (void)user;
    weir_log_warn("sched: %s", line);
}

void weir_gate_env_init(struct weir_gate *gate, struct weir_sched_env *ret_env)
{
    *ret_env = (struct weir_sched_env){.user = gate,
                                       .start = on_start,
                                       .soon = on_soon,
                                       .stop = on_stop,
                                       .resume = on_resume,
                                       .resize = on_resize,
                                       .timer = on_timer,
                                       .log = on_log};
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

/* Carry out an order without the lock; report its result to the scheduler with the lock. */
static void carry_out(struct weir_gate *gate, const struct weir_gate_action *a)
{
    enum weir_gate_stop says;

    switch (a->act) {
    case WEIR_GATE_STOP:
        says = gate->ops->stop(gate->user, a->item->room, a->lease_ns);
        if (says != WEIR_GATE_STOPS) { /* it was launched as it was, or must not stop now */
            pthread_mutex_lock(&gate->lock);
            atomic_store(&a->item->halted, false);
            weir_gate_running_locked(gate, weir_clock_now_ns(), a->item->id,
                                     says == WEIR_GATE_STOPS_NOT_NOW);
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
    if (gate->acting) { /* the thread that carries them out does ours, too */
        pthread_mutex_unlock(&gate->lock);
        return;
    }
    gate->acting = true;
    while (gate->n_actions != 0) {
        struct weir_gate_action a = gate->actions[gate->first_action];

        gate->first_action = (gate->first_action + 1) % gate->actions_room;
        gate->n_actions--;
        if (!a.item->gone) {
            pthread_mutex_unlock(&gate->lock);
            carry_out(gate, &a);
            pthread_mutex_lock(&gate->lock);
        }
        weir_gate_item_put_locked(gate, a.item);
    }
    gate->acting = false;
    pthread_mutex_unlock(&gate->lock);
}

/* ---------------------------------------------------------------- runs */

void *weir_gate_item_room(struct weir_gate_item *item)
{
    return item->room;
}

void weir_gate_item_hold(struct weir_gate_item *item)
{
    pthread_mutex_lock(&item->gate->lock);
    item->refs++;
    pthread_mutex_unlock(&item->gate->lock);
}

void weir_gate_item_drop(struct weir_gate_item *item)
{
    struct weir_gate *gate = item->gate;

    pthread_mutex_lock(&gate->lock);
    weir_gate_item_put_locked(gate, item);
    pthread_mutex_unlock(&gate->lock);
}

void weir_gate_run_stopped(struct weir_gate_item *item, uint32_t done_blocks)
{
    uint64_t now_ns = weir_clock_now_ns();

    pthread_mutex_lock(&item->gate->lock);
    if (!item->gone) {
        weir_gate_stopped_locked(item->gate, now_ns, item->id, done_blocks);
    }
    weir_gate_unlock(item->gate);
}

void weir_gate_run_goes_on(struct weir_gate_item *item, bool may_stop)
{
    uint64_t now_ns = weir_clock_now_ns();

    pthread_mutex_lock(&item->gate->lock);
    if (!item->gone) {
        atomic_store(&item->halted, false);
        weir_gate_running_locked(item->gate, now_ns, item->id, may_stop);
    }
    weir_gate_unlock(item->gate);
}

/* ---------------------------------------------------------------- looking */

/* The GPU has written the word, or it has reached the event. After an error of the device: yes. */
static bool is_reached(const struct weir_gate *gate, const struct weir_gate_mark *mark)
{
    if (mark->word != NULL) {
        /* A1: acquires what the stream has done; meets the GPU's write behind it. */
        return (int32_t)(__atomic_load_n(mark->word, __ATOMIC_ACQUIRE) - mark->value) >= 0;
    }
    return gate->ops->event_reached(gate->user, mark->event);
}

void weir_gate_mark_put(const struct weir_gate *gate, const struct weir_gate_mark *mark)
{
    if (mark->event != NULL) {
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
    uint64_t since_ns = work->since_ns > q->done_seen_ns ? work->since_ns : q->done_seen_ns;

    return now_ns > since_ns ? now_ns - since_ns : 0;
}

/* How much earlier than that the work may have begun. */
static uint64_t begin_late_ns(const struct weir_gate_queue *q, const struct weir_gate_batch *work)
{
    return work->since_ns > q->done_seen_ns ? 0 : q->done_late_ns;
}

/* Undecided work has ended: charge it to the tenant, and learn from it if all of it was alike. */
static void account_alone(struct weir_gate_queue *q, const struct weir_gate_batch *work,
                          uint64_t now_ns, uint64_t late_ns)
{
    uint64_t took_ns = span_ns(q, work, now_ns);
    bool exactly = is_exact(late_ns, took_ns);
    bool stalled = atomic_load(&q->stalled_at) == atomic_load(&q->done_ns) + 1;
    uint64_t most_ns = took_ns + begin_late_ns(q, work);

    if (exactly && work->alike && is_exact(begin_late_ns(q, work), took_ns)) {
        /* What waited for work that was held back would be given longer each time. */
        uint64_t own_ns = stalled && took_ns > WEIR_GATE_STALL_NS ? WEIR_GATE_STALL_NS : took_ns;

        weir_gate_learn_locked(q, work, own_ns / work->n);
    } else if (work->alike && !work->guessed && most_ns < work->ns) {
        /* Seen late, it still shows that the prediction is too long:
         * it would hold back the next. */
        weir_gate_learn_locked(q, work, most_ns / work->n);
    }
    if (!exactly && !work->guessed && took_ns > work->ns * LATE_FACTOR) {
        took_ns = work->ns * LATE_FACTOR; /* seen late: the session had nothing to do meanwhile */
    }
    weir_gate_charge_locked(q, work->class, took_ns);
}

/* The scheduler learns from the sum of their times, or from the first for all if they are alike. */
static void tell_together_locked(struct weir_gate_queue *q, const struct weir_gate_batch *work,
                                 uint64_t now_ns)
{
    weir_sched_id ids[WEIR_GATE_BATCH_MAX];
    uint32_t n = 0;

    if (work->n > WEIR_GATE_BATCH_MAX) {
        return;
    }
    for (const struct weir_gate_item *item = work->first; item != NULL; item = item->next) {
        ids[n++] = item->id;
    }
    weir_gate_together_locked(q->gate, now_ns, ids, n);
}

/* The time of several items is only known as a sum. A kernel may be granted long before its thread,
 * which was asleep, gives it to the device. An end that was seen late does not change what was
 * learned, because part of that time belongs to the next item. */
static void finish_items_locked(struct weir_gate_queue *q, struct weir_gate_batch *work,
                                uint64_t now_ns, uint64_t late_ns)
{
    uint64_t all_ns = span_ns(q, work, now_ns);
    bool vague = late_ns >= all_ns / NEAR_PART || begin_late_ns(q, work) >= all_ns / NEAR_PART;
    bool teaches;
    uint64_t took_ns;

    if (work->first == NULL) {
        return;
    }
    teaches = all_ns != 0 && !(vague && work->first->sure);
    took_ns = teaches ? all_ns / work->n : WEIR_SCHED_UNKNOWN;
    if (work->n > 1) {
        if (teaches) {
            tell_together_locked(q, work, now_ns);
        }
        took_ns = work->alike ? took_ns : WEIR_SCHED_UNKNOWN;
    } else if (work->class != WEIR_SCHED_KERNEL) {
        took_ns = 0;
    }
    while (work->first != NULL) {
        struct weir_gate_item *item = work->first;

        work->first = item->next;
        weir_gate_finished_locked(q->gate, now_ns, item->id, took_ns);
        took_ns = work->n > 1 ? WEIR_SCHED_UNKNOWN : 0;
        gone_locked(item);
    }
}

static void entry_done_locked(struct weir_gate_queue *q, struct weir_gate_entry *e, uint64_t now_ns,
                              uint64_t late_ns)
{
    struct weir_gate *gate = q->gate;

    if (e->started != 0) {
        weir_gate_finished_locked(gate, now_ns, e->started, 0);
        gate->n_items--;
    } else if (e->work.first == NULL) {
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

/* Work that was unmarked when it was reported, and has marks now, or was dropped: it ends with the
 * last mark, if that was not reached yet. */
static void settle_unmarked_locked(struct weir_gate_queue *q, uint64_t now_ns)
{
    struct weir_gate_entry *last;

    if (q->unmarked_started == 0 ||
        atomic_load_explicit(&q->unmarked_ns, memory_order_acquire) != 0) {
        return;
    }
    last = q->n != 0 ? &q->ring[(q->first + q->n - 1) % WEIR_GATE_ENTRIES] : NULL;
    if (last != NULL && last->pending && last->started == 0 && last->work.first == NULL) {
        last->started = q->unmarked_started;
    } else {
        weir_gate_finished_locked(q->gate, now_ns, q->unmarked_started, 0);
        q->gate->n_items--;
    }
    q->unmarked_started = 0;
}

void weir_gate_look_locked(struct weir_gate_queue *q, uint64_t now_ns)
{
    uint64_t late_ns = now_ns - q->looked_ns;

    pthread_mutex_lock(&q->lock);
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
    pthread_mutex_unlock(&q->lock);
}

static weir_sched_id adopt_one(struct weir_gate_queue *q, enum weir_sched_class class, uint64_t ns,
                               uint64_t now_ns)
{
    struct weir_sched_item_params params = {
        .class = class, .flags = WEIR_SCHED_STARTED, .predicted_ns = ns != 0 ? ns : 1};
    weir_sched_id id = 0;

    if (weir_gate_arrive_locked(q, now_ns, &params, &id) == WEIR_OK) {
        q->gate->n_items++;
        return id;
    }
    return 0;
}

void weir_gate_adopt_locked(struct weir_gate_queue *q, uint64_t now_ns)
{
    uint64_t unmarked_ns = atomic_load_explicit(&q->unmarked_ns, memory_order_acquire);
    uint32_t n, known = q->gate->n_items;

    pthread_mutex_lock(&q->lock);
    n = q->n;
    for (uint32_t i = 0; i < n; i++) {
        struct weir_gate_entry *e = &q->ring[(q->first + i) % WEIR_GATE_ENTRIES];

        if (e->pending && e->started == 0 && e->work.first == NULL) {
            e->started = adopt_one(q, (enum weir_sched_class)e->work.class, e->work.ns, now_ns);
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

/* Work that passed undecided while that was being forbidden. */
static void adopt_stragglers_locked(struct weir_gate_queue *q, uint64_t now_ns)
{
    if (!weir_gate_is_alone(q) && q->waiting == NULL &&
        (q->n != 0 || atomic_load(&q->unmarked_ns) != 0)) {
        weir_gate_adopt_locked(q, now_ns);
    }
}

static void look_all_locked(struct weir_gate *gate, uint64_t now_ns)
{
    for (struct weir_gate_queue *q = gate->queues; q != NULL; q = q->next) {
        if (q->n != 0 || q->unmarked_started != 0) {
            weir_gate_look_locked(q, now_ns);
        }
        adopt_stragglers_locked(q, now_ns);
    }
    weir_gate_take_orders_locked(gate);
    weir_gate_tick_locked(gate, now_ns);
}

void weir_gate_tick_locked(struct weir_gate *gate, uint64_t now_ns)
{
    if (now_ns >= gate->timer_ns) {
        gate->timer_ns = UINT64_MAX;
        weir_sched_tick(gate->sched, now_ns);
    }
    for (int i = 0; i < WEIR_GATE_CROWDS; i++) {
        if (now_ns >= gate->crowded_until_ns[i]) {
            atomic_store_explicit(&gate->crowded[i], false, memory_order_relaxed);
        }
    }
}

/* ---------------------------------------------------------------- the thread */

/* Until the gate process calls, or somebody of this process. */
static void sleep_attached_locked(struct weir_gate *gate, struct weir_gate_port *port,
                                  uint32_t attention, uint64_t end_ns)
{
    uint64_t now_ns = weir_clock_now_ns();

    pthread_mutex_unlock(&gate->lock);
    atomic_fetch_add(&port->watchers, 1);
    if (end_ns > now_ns) {
        (void)weir_futex_wait(&port->attention, attention,
                              end_ns == UINT64_MAX ? WEIR_FOREVER : end_ns - now_ns);
    }
    atomic_fetch_sub(&port->watchers, 1);
    pthread_mutex_lock(&gate->lock);
}

/* @param attention  of the client's port, before the last look; not looked at without one. */
static void sleep_locked(struct weir_gate *gate, struct weir_gate_client *client,
                         uint32_t attention)
{
    uint64_t end_ns = gate->timer_ns;
    struct timespec end;

    for (int i = 0; i < WEIR_GATE_CROWDS; i++) {
        if (atomic_load(&gate->crowded[i]) && gate->crowded_until_ns[i] < end_ns) {
            end_ns = gate->crowded_until_ns[i];
        }
    }
    gate->idle = true;
    if (client != NULL) {
        sleep_attached_locked(gate, client->port, attention, end_ns);
    } else if (end_ns == UINT64_MAX) {
        (void)pthread_cond_wait(&gate->work, &gate->lock);
    } else {
        end = (struct timespec){(time_t)(end_ns / WEIR_NS_PER_S), (long)(end_ns % WEIR_NS_PER_S)};
        (void)pthread_cond_timedwait(&gate->work, &gate->lock, &end);
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
            client != NULL ? __atomic_load_n(&client->port->attention, __ATOMIC_SEQ_CST) : 0;
        uint64_t now_ns = weir_clock_now_ns(), event_ns;

        look_all_locked(gate, now_ns);
        if (gate->n_items == 0 && gate->n_actions == 0) {
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
