/*
 * Lets a session's thread wait in the gate: for a grant or, while its tenant is alone, until less
 * work is in flight. The thread holds no lock meanwhile. It stops waiting when its session ends or
 * its guest goes, and lets the session do what cannot wait.
 */
#include "host_backend/gate/private.h"

#include "base/log.h"
#include <time.h>

#define SPIN_NS           (300 * WEIR_NS_PER_US)
#define SOON_NS           WEIR_NS_PER_MS /* a long copy's prediction is often wrong by this much */
#define NAP_NS            (20 * WEIR_NS_PER_US)
#define NAP_MAX_NS        WEIR_NS_PER_MS
#define NAP_PART          16u                   /* a sleep is at most 1/16 of the time waited */
#define ROOM_LOOK_NS      (10 * WEIR_NS_PER_US) /* how often a spinning thread checks for room */
#define ROOM_SLEEP_NS     (50 * WEIR_NS_PER_US) /* how often other threads check for room */
#define WAIT_SLICE_NS     (20 * WEIR_NS_PER_MS)
#define WAIT_SOON_NS      WEIR_NS_PER_MS /* longest sleep while the session has other work */
#define EARLY_PART        8u /* the next item may go when 1/8 of the oldest is left .. */
#define EARLY_MAX_NS      WEIR_NS_PER_MS         /* .. but at most this long before its end */
#define STUCK_NS          (500 * WEIR_NS_PER_MS) /* work without progress for this long is stuck */
#define STUCK_PACE_NS     (2 * WEIR_NS_PER_MS)
#define STUCK_PACE_MAX_NS (50 * WEIR_NS_PER_MS) /* longest wait of an item behind stuck work */
#define STUCK_SHARE       4u /* an item behind it waits this many times its predicted duration */
#define STUCK_SAY_NS      (10 * WEIR_NS_PER_S) /* between two log lines about a tenant's work */
#define STUCK_LIMITED_NS  WEIR_NS_PER_S        /* .. or as an SM limit demands, at most this */

static void nap(uint64_t ns)
{
    struct timespec pause = {0, (long)ns};

    nanosleep(&pause, NULL);
}

static uint64_t flying_ns(const struct weir_gate_queue *q)
{
    return atomic_load_explicit(&q->given_ns, memory_order_relaxed) -
           atomic_load_explicit(&q->done_ns, memory_order_relaxed);
}

bool weir_gate_below(const struct weir_gate_queue *q, uint64_t ns)
{
    uint64_t flying = flying_ns(q);

    return flying + ns <= q->gate->config.alone_ns || flying == 0;
}

bool weir_gate_may_pass(const struct weir_gate_queue *q)
{
    const struct weir_gate_client *client = weir_gate_queue_client(q);
    uint32_t tenant = (uint32_t)(q->member - q->gate->members);

    if (!client) {
        return !weir_gate_client_of(q->gate); /* the gate process has no slot for the queue */
    }
    return atomic_load_explicit(&client->port->news[q->gate->device].alone, memory_order_acquire) ==
           tenant + 1;
}

/* The oldest work in flight, up to its mark. */
struct oldest {
    uint32_t n; /* number of its items; 0: none is in flight, and the other members are not valid */
    bool known; /* its duration is predicted: ns */
    bool halted; /* its first run is stopped, or is about to be */
    uint64_t ns;
    /* When it became the oldest. A queue that makes progress is not stuck, however long it is. If
     * more items passed, it would only get longer. */
    uint64_t since_ns;
};

static struct oldest oldest_of(struct weir_gate_queue *q)
{
    struct oldest oldest;

    WEIR_LOCKED(&q->lock);
    const struct weir_gate_batch *work = &q->ring[q->first].work;
    oldest =
        (struct oldest){.n = q->n,
                        .known = !work->guessed,
                        .halted = q->n != 0 && work->first && work->first->halted,
                        .ns = work->ns,
                        .since_ns = work->since_ns > q->first_ns ? work->since_ns : q->first_ns};
    return oldest;
}

/*
 * The time until the thread checks the work in flight again: half of the remaining time that is
 * predicted for the oldest work. A kernel's time may depend on its arguments, as a collective's
 * does on its size. So the thread never sleeps longer than a part of the time that it has waited
 * already. Then it sees the end of shorter work late by that part at most, which is exact enough to
 * correct the prediction (is_exact() in watch.c).
 */
static uint64_t until_look_ns(struct weir_gate_queue *q, uint64_t since_ns)
{
    struct oldest oldest = oldest_of(q);
    uint64_t now_ns = weir_clock_now_ns(), end_ns = oldest.since_ns + oldest.ns;
    uint64_t ns = (now_ns - since_ns) / NAP_PART;

    if (oldest.n == 0 || !oldest.known || end_ns <= now_ns + EARLY_MAX_NS + 2 * NAP_NS) {
        return NAP_NS;
    }
    if (ns > (end_ns - now_ns - EARLY_MAX_NS) / 2) {
        ns = (end_ns - now_ns - EARLY_MAX_NS) / 2;
    }
    return ns < NAP_NS ? NAP_NS : WEIR_MIN(ns, NAP_MAX_NS);
}

/* Wait, then check the work in flight again. false: the session is over. */
static bool look_again(struct weir_gate_queue *q, uint64_t since_ns)
{
    if (q->ops->is_over(q->session)) {
        return false;
    }
    (void)q->ops->attend(q->session);
    nap(until_look_ns(q, since_ns));
    return true;
}

/* How long the queue may make no progress before this counts as a stall: longer if its work is
 * known to be long. */
static uint64_t stall_ns(struct weir_gate_queue *q)
{
    struct oldest oldest = oldest_of(q);
    uint64_t ns = oldest.ns * STUCK_SHARE;

    return oldest.n != 0 && oldest.known && ns > WEIR_GATE_STALL_NS ? ns : WEIR_GATE_STALL_NS;
}

/*
 * Is all work in flight covered by one mark, and known to end soon? Then the next item may go now,
 * so that the device does not idle. Another tenant that comes must wait for the item as if it had
 * begun.
 */
static bool is_nearly_over(struct weir_gate_queue *q)
{
    struct oldest oldest = oldest_of(q);
    uint64_t early_ns =
        oldest.ns / EARLY_PART < EARLY_MAX_NS ? oldest.ns / EARLY_PART : EARLY_MAX_NS;

    return oldest.n == 1 && oldest.known && oldest.ns == flying_ns(q) &&
           weir_clock_now_ns() + q->gate->config.inflight_ns + early_ns >=
               oldest.since_ns + oldest.ns;
}

/*
 * The tenant is alone and has much in flight: wait until some of it has ended. Work in flight may
 * itself wait for what is held back here, e.g. a kernel for a later copy in another stream. So when
 * nothing makes progress, the next item passes, and all items after it until some work ends.
 */
static bool below_at_last(struct weir_gate_queue *q, uint64_t ns)
{
    uint64_t came_ns = weir_clock_now_ns(), since_ns = came_ns, done_ns = atomic_load(&q->done_ns);

    do {
        uint64_t now_done_ns, now_ns;

        weir_gate_look(q);
        if (weir_gate_below(q, ns) || is_nearly_over(q) || !weir_gate_may_pass(q)) {
            return true;
        }
        now_done_ns = atomic_load(&q->done_ns);
        now_ns = weir_clock_now_ns();
        if (now_done_ns != done_ns) {
            done_ns = now_done_ns;
            since_ns = now_ns;
        }
        if (atomic_load(&q->stalled_at) == done_ns + 1 || now_ns - since_ns > stall_ns(q)) {
            atomic_store(&q->stalled_at, done_ns + 1);
            return true;
        }
    } while (look_again(q, came_ns));
    return false;
}

static bool done_at_last(struct weir_gate_queue *q, uint64_t given_ns, bool *ret_done)
{
    uint64_t since_ns = weir_clock_now_ns();

    do {
        weir_gate_look(q);
        *ret_done = (int64_t)(atomic_load(&q->done_ns) - given_ns) >= 0;
        if (*ret_done || !weir_gate_may_pass(q) || weir_clock_now_ns() - since_ns > STUCK_NS) {
            return true;
        }
    } while (look_again(q, since_ns));
    return false;
}

/* How long an item waits before it passes because the session's work in flight does not end. */
static uint64_t patience_of(struct weir_gate_queue *q, uint64_t ns, uint64_t now_ns)
{
    uint32_t limit_pct = weir_gate_sm_limit_pct(q);
    uint64_t most_ns = limit_pct < 100 ? STUCK_LIMITED_NS : STUCK_PACE_MAX_NS;
    struct oldest oldest = oldest_of(q);

    if (oldest.n == 0 || oldest.halted || now_ns - oldest.since_ns <= STUCK_NS) {
        return UINT64_MAX;
    }
    ns *= 100 / limit_pct > STUCK_SHARE ? 100 / limit_pct : STUCK_SHARE;
    return ns < STUCK_PACE_NS ? STUCK_PACE_NS : WEIR_MIN(ns, most_ns);
}

/*
 * Log the oldest work in flight, so that people can find out what it waits for. Slow work looks the
 * same, and many items may pass behind it. So each piece of work is logged once, and a tenant's
 * work seldom.
 */
static void tell_of_stuck_locked(struct weir_gate_queue *q, uint64_t now_ns)
{
    struct weir_gate_member *member = q->member;
    const struct weir_gate_entry *oldest = &q->ring[q->first];
    const struct weir_gate_item *item = oldest->work.first;
    uint64_t since_ns = oldest_of(q).since_ns;
    char run[160] = "";

    if (q->n == 0 || q->stuck_told_ns == since_ns) {
        return;
    }
    q->stuck_told_ns = since_ns;
    if (member->stuck_said_ns != 0 && now_ns - member->stuck_said_ns < STUCK_SAY_NS) {
        member->stuck_unsaid++;
        return;
    }
    if (item) {
        q->gate->ops->describe(item->room, run, sizeof run);
    }
    weir_log_warn("sched: work is slow, or waits for work behind it, which may pass it now "
                  "tenant=\"%s\" class=%u ms=%llu others_unsaid=%llu %s",
                  member->name, oldest->work.class,
                  (unsigned long long)((now_ns - since_ns) / WEIR_NS_PER_MS),
                  (unsigned long long)member->stuck_unsaid, run);
    member->stuck_said_ns = now_ns;
    member->stuck_unsaid = 0;
}

/*
 * The session's work in flight waits for something, perhaps for this item. So the item passes,
 * although its bound or turn forbids it, and the gate process is informed. A tenant that makes its
 * work wait on purpose gains little: the item is charged, and few pass in this way.
 */
static void pass_stuck(struct weir_gate_queue *q, struct weir_gate_item *item)
{
    struct weir_gate *gate = q->gate;
    uint64_t now_ns = weir_clock_now_ns();

    pthread_mutex_lock(&gate->lock);
    if (!weir_gate_is_granted(item)) {
        weir_gate_pass_locked(q, item, now_ns);
        tell_of_stuck_locked(q, now_ns);
        gate->passed.stuck++;
    }
    weir_gate_unlock(gate);
}

/* Spin instead of sleeping: a wake-up costs about 10 us, and the device may be idle meanwhile.
 * false: too many threads spin already. */
static bool spin(struct weir_gate *gate, struct weir_gate_item *item, uint64_t ns)
{
    uint64_t begin_ns = weir_clock_now_ns();
    bool may =
        atomic_fetch_add_explicit(&gate->spinners, 1, memory_order_relaxed) < gate->spinners_max &&
        weir_gate_may_spin(gate);

    while (may && !weir_gate_is_granted(item) && weir_clock_now_ns() - begin_ns < ns) {
        weir_cpu_pause();
    }
    atomic_fetch_sub_explicit(&gate->spinners, 1, memory_order_relaxed);
    return may;
}

/*
 * While the gate process is awake it answers within some microseconds, unless the item has to wait
 * for others. So poll for the answer about as long as a wake-up would take.
 */
static void look_for_answer(const struct weir_gate *gate, struct weir_gate_item *item)
{
    bool looks = gate->spin && weir_spin_gate_is_allowed(gate->spin_page);
    uint64_t begin_ns = weir_clock_now_ns();

    while (looks && !weir_gate_is_granted(item) &&
           weir_clock_now_ns() - begin_ns < WEIR_SHORT_SPIN_NS) {
        weir_cpu_pause();
    }
}

/* @param word the slot's word, read before the last check of the item. */
static void sleep_on(const struct weir_gate_item *item, uint32_t word, uint64_t ns)
{
    atomic_store(&item->slot->sleeps, 1);
    (void)weir_futex_wait(&item->slot->word, word, ns);
    atomic_store(&item->slot->sleeps, 0);
}

/* Detach from an unresponsive gate process. */
static void leave_deaf(struct weir_gate_queue *q)
{
    struct weir_gate_client *client = weir_gate_queue_client(q);

    if (client && weir_gate_client_is_deaf(client) && weir_gate_detach(q->gate)) {
        q->gate->ops->deaf(q->gate->user);
    }
}

static bool granted_at_last(struct weir_gate_queue *q, struct weir_gate_item *item, uint64_t ns)
{
    (void)spin(q->gate, item, SPIN_NS);
    for (;;) {
        uint32_t word = __atomic_load_n(&item->slot->word, __ATOMIC_ACQUIRE);
        uint64_t now_ns = weir_clock_now_ns(), slice_ns, patience_ns;

        if (weir_gate_is_granted(item)) {
            return true;
        }
        if (q->ops->is_over(q->session)) {
            return false;
        }
        slice_ns = q->ops->attend(q->session) ? WAIT_SOON_NS : WAIT_SLICE_NS;
        if (weir_gate_is_soon(item)) {
            (void)spin(q->gate, item, SOON_NS);
            continue;
        }
        patience_ns = patience_of(q, ns, now_ns);
        if (now_ns - item->brought_ns >= patience_ns) {
            pass_stuck(q, item);
            continue;
        }
        leave_deaf(q);
        sleep_on(item, word, WEIR_MIN(slice_ns, patience_ns));
    }
}

bool weir_gate_wait_below(struct weir_gate_queue *q, uint64_t ns)
{
    q->ops->rests(q->session, true);
    bool good = below_at_last(q, ns);
    q->ops->rests(q->session, false);
    return good;
}

bool weir_gate_wait_done(struct weir_gate_queue *q, uint64_t given_ns, bool *ret_done)
{
    q->ops->rests(q->session, true);
    bool good = done_at_last(q, given_ns, ret_done);
    q->ops->rests(q->session, false);
    return good;
}

bool weir_gate_wait_room(struct weir_gate_queue *q, struct weir_gate_item *item)
{
    struct weir_gate *gate = q->gate;
    uint64_t left_ns = weir_sched_fill_bound_ns(
        &gate->config,
        gate->config.fill == WEIR_SCHED_FILL_ALL ? WEIR_SCHED_BELOW_EQUAL : WEIR_SCHED_BELOW);
    bool room = true;

    look_for_answer(gate, item);
    while (!weir_gate_is_granted(item) && room && left_ns != 0) {
        uint32_t word = __atomic_load_n(&item->slot->word, __ATOMIC_ACQUIRE);
        uint64_t ns = ROOM_LOOK_NS;

        room = weir_gate_waits_for_room(item);
        if (room && !spin(gate, item, ns) && !weir_gate_is_granted(item)) {
            ns = ROOM_SLEEP_NS;
            sleep_on(item, word, ns);
        }
        left_ns -= WEIR_MIN(ns, left_ns);
    }
    return weir_gate_is_granted(item);
}

bool weir_gate_wait_granted(struct weir_gate_queue *q, struct weir_gate_item *item, uint64_t ns)
{
    if (weir_gate_is_granted(item)) {
        return true;
    }
    q->ops->rests(q->session, true);
    bool good = granted_at_last(q, item, ns);
    q->ops->rests(q->session, false);
    return good;
}

void weir_gate_queue_wake(struct weir_gate_queue *queue)
{
    WEIR_LOCKED(&queue->gate->lock);
    if (weir_gate_queue_client(queue)) {
        weir_gate_slot_changed(&queue->client->port->slot[queue->slot]);
    }
}
