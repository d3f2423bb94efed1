/*
 * Kernels of a collective operation wait for each other on their devices, and hold SMs meanwhile.
 * If kernels of one job are on one device and those of another job on a second, each may wait for
 * SMs that the other holds, without end. The scheduler cannot tell which kernels wait. So this rule
 * is about all compute of each tenant that has queues on several devices whose kernels may wait for
 * each other. Kernels of programs that share no memory cannot: tenants that run only such programs
 * are left alone.
 *
 * Tenants of several such devices that share one with each other take turns: of two that share one,
 * only one has compute on devices. A turn is for all of a tenant's devices. It ends in two steps.
 *
 *     TURN    its work is granted on each device as the device's policy says
 *     ENDS    no more is granted than what a kernel on another device may wait for, until all that
 *             cannot be stopped has ended on all devices
 *     WAITS   what can be stopped is stopped. The next turn may begin
 *
 * What is needed: each device gets as many of the tenant's items as the one that got most in this
 * turn, as ranks of a job do the same. If nothing comes or goes for longer than predicted, one more
 * is let in where the tenant has none, or everywhere. The patience doubles each time, so that a
 * turn also ends for tenants whose kernels do not wait for each other.
 *
 * The next turn is for the tenant that is furthest behind its share, by the time of its turns and
 * by its weight, within the highest class that waits. It keeps others from all of its devices, or
 * one with many of them would never find them free at once. A turn counts in full, since it keeps
 * others away whether the tenant has work for all of its devices or not. Tenants on one device are
 * no concern of this rule: their devices' policies let them lead, fill and run beside as always.
 *
 * Source: gang scheduling (Ousterhout, Scheduling Techniques for Concurrent Systems, ICDCS 1982),
 * with turns by virtual time instead of fixed slots.
 */
#include "sched/spans.h"

#include "sched/tuning.h"
#include <assert.h>

#define NEVER     UINT64_MAX
#define FRACTIONS 1024u /* virtual time counts in these parts of 1 ns at weight 1 */

/* A call of the rule. */
struct look {
    struct weir_sched_spans *spans;
    uint64_t now_ns;
};

static bool is_several(uint64_t devices)
{
    return (devices & (devices - 1)) != 0;
}

static bool share_devices(const struct weir_sched_span_tenant *a,
                          const struct weir_sched_span_tenant *b)
{
    return a != b && is_several(a->devices) && is_several(b->devices) &&
           (a->devices & b->devices) != 0;
}

/* The tenant behind `t`, or the first, that takes turns. */
static struct weir_sched_span_tenant *next_of(const struct look *l,
                                              const struct weir_sched_span_tenant *t)
{
    uint32_t number = t ? t->next : l->spans->first;

    return number != 0 ? &l->spans->tenants[number - 1] : NULL;
}

/* Ask a device about a tenant. false: the tenant is not there. */
static bool ask(const struct look *l, const struct weir_sched_span_tenant *t, uint32_t device,
                struct weir_sched_tenant_info *ret_info)
{
    struct weir_sched_spans *s = l->spans;
    const struct weir_sched_member m = s->member(s->user, device, (uint32_t)(t - s->tenants));

    return (t->devices >> device & 1) != 0 && m.id != 0 &&
           weir_sched_tenant_query(m.sched, m.id, ret_info) == WEIR_OK;
}

static void set(const struct look *l, const struct weir_sched_span_tenant *t, uint32_t device,
                enum weir_sched_span span, uint64_t more)
{
    struct weir_sched_spans *s = l->spans;
    const struct weir_sched_member m = s->member(s->user, device, (uint32_t)(t - s->tenants));
    struct weir_sched_tenant_info info;

    if (ask(l, t, device, &info)) {
        info.params.span = span;
        info.params.span_more =
            more < WEIR_SCHED_SPAN_MORE_MAX ? (uint32_t)more : WEIR_SCHED_SPAN_MORE_MAX;
        enum weir_status status = weir_sched_tenant_set(m.sched, l->now_ns, m.id, &info.params);
        assert(status == WEIR_OK); /* the rest is what the scheduler has */
        (void)status;
    }
}

static void set_all(const struct look *l, struct weir_sched_span_tenant *t,
                    enum weir_sched_span span)
{
    t->span = span;
    for (uint32_t i = 0; i < l->spans->n_devices; i++) {
        set(l, t, i, span, 0);
    }
}

/* ---- turns ---- */

static void begin(const struct look *l, struct weir_sched_span_tenant *t)
{
    struct weir_sched_tenant_info info;

    t->turn_ns = l->now_ns;
    t->idle_ns = 0;
    t->helped = t->starves;
    for (uint32_t i = 0; i < l->spans->n_devices; i++) {
        t->starts[i] = ask(l, t, i, &info) ? info.compute.starts : 0;
    }
    set_all(l, t, WEIR_SCHED_SPAN_TURN);
}

/* What a tenant has had and has on its devices. */
struct sums {
    uint64_t starts[WEIR_SCHED_SPANS_DEVICES]; /* in this turn */
    uint64_t most;                             /* of these */
    uint64_t moves, rest_ns;
    uint64_t fixed; /* items that cannot be stopped */
    bool any_idle;  /* on a device it has none of these, and others wait */
};

static struct sums sum_up(const struct look *l, const struct weir_sched_span_tenant *t)
{
    struct sums sums = {.most = 0};
    struct weir_sched_tenant_info info;

    for (uint32_t i = 0; i < l->spans->n_devices; i++) {
        if (ask(l, t, i, &info)) {
            sums.starts[i] = info.compute.starts - t->starts[i];
            sums.most = sums.starts[i] > sums.most ? sums.starts[i] : sums.most;
            sums.moves += info.compute.starts + info.finished;
            sums.fixed += info.compute.fixed;
            sums.rest_ns =
                info.compute.rest_ns > sums.rest_ns ? info.compute.rest_ns : sums.rest_ns;
            sums.any_idle |= info.compute.fixed == 0 && info.compute.works;
        }
    }
    return sums;
}

static uint64_t patience_ns(const struct weir_sched_span_tenant *t)
{
    return t->rest_ns + (tuning.brief_ns << (t->tries < 16 ? t->tries : 16));
}

/* A turn ends: let in what the tenant's other devices may wait for. @return true: it has ended */
static bool drain(const struct look *l, struct weir_sched_span_tenant *t)
{
    const struct sums sums = sum_up(l, t);
    struct weir_sched_tenant_info info;

    if (sums.fixed == 0 && l->now_ns >= t->unseen_ns) {
        set_all(l, t, WEIR_SCHED_SPAN_WAITS);
        return true;
    }
    if (sums.moves != t->moves) {
        t->moves = sums.moves;
        t->rest_ns = sums.rest_ns;
        t->moved_ns = l->now_ns;
    }
    bool is_due = l->now_ns - t->moved_ns >= patience_ns(t);
    for (uint32_t i = 0; i < l->spans->n_devices; i++) {
        if (ask(l, t, i, &info) && info.params.span_more == 0) {
            uint64_t more = sums.most - sums.starts[i];

            more += more == 0 && is_due && (info.compute.fixed == 0 || !sums.any_idle);
            if (more != 0) {
                set(l, t, i, WEIR_SCHED_SPAN_ENDS, more);
            }
        }
    }
    if (is_due) {
        t->tries++;
        t->moved_ns = l->now_ns;
    }
    return false;
}

static void end(const struct look *l, struct weir_sched_span_tenant *t)
{
    set_all(l, t, WEIR_SCHED_SPAN_ENDS);
    t->moves = 0;
    t->tries = 0;
    (void)drain(l, t);
}

/* How long the turn is kept without work. */
static uint64_t linger_ns(const struct weir_sched_span_tenant *t)
{
    uint64_t ns = (t->idle_ns - t->turn_ns) / tuning.wait_part;

    ns = ns < tuning.wait_max_ns ? ns : tuning.wait_max_ns;
    return ns > tuning.brief_ns ? ns : tuning.brief_ns;
}

/* ---- who is next ---- */

/* Find out what a tenant wants, and charge it for its turn. */
static void look_at(const struct look *l, struct weir_sched_span_tenant *t)
{
    struct weir_sched_tenant_info info;
    uint64_t weight = 1;

    t->works = t->waits = t->starves = false;
    for (uint32_t i = 0; i < l->spans->n_devices; i++) {
        if (ask(l, t, i, &info)) {
            t->works |= info.compute.works;
            t->waits |= info.compute.blocked;
            t->starves |= info.compute.starves;
            t->class = info.params.priority;
            weight = info.weight;
        }
    }
    if (t->span != WEIR_SCHED_SPAN_WAITS) {
        t->virtual_ns += (l->now_ns - t->seen_ns) * FRACTIONS / weight;
    }
    t->seen_ns = l->now_ns;
    t->idle_ns = t->works ? 0 : t->idle_ns != 0 ? t->idle_ns : l->now_ns;
}

static bool is_behind(const struct weir_sched_span_tenant *a,
                      const struct weir_sched_span_tenant *b)
{
    return (int64_t)(a->virtual_ns - b->virtual_ns) < 0;
}

/* A tenant that had no work gets no time for that: it begins where the first of those is that it
 * shares devices with. */
static void place(const struct look *l, struct weir_sched_span_tenant *t)
{
    const struct weir_sched_span_tenant *least = NULL;

    for (struct weir_sched_span_tenant *o = next_of(l, NULL); o; o = next_of(l, o)) {
        if (share_devices(o, t) && o->span != WEIR_SCHED_SPAN_WAITS &&
            (!least || is_behind(o, least))) {
            least = o;
        }
    }
    if (least && is_behind(t, least)) {
        t->virtual_ns = least->virtual_ns;
    }
}

static bool is_kept(const struct look *l, const struct weir_sched_span_tenant *t)
{
    return t->span == WEIR_SCHED_SPAN_TURN && l->now_ns - t->turn_ns < tuning.span_turn_ns;
}

/* Who starves goes before all classes, until its turn is over. */
static int class_of(const struct look *l, const struct weir_sched_span_tenant *t)
{
    return t->starves || (t->helped && is_kept(l, t)) ? WEIR_PRIORITY_COUNT : (int)t->class;
}

static bool goes_before(const struct look *l, const struct weir_sched_span_tenant *a,
                        const struct weir_sched_span_tenant *b)
{
    int classes = class_of(l, a) - class_of(l, b);

    if (classes != 0 || is_kept(l, a) != is_kept(l, b)) {
        return classes != 0 ? classes > 0 : is_kept(l, a);
    }
    return a->virtual_ns != b->virtual_ns ? is_behind(a, b) : b->span == WEIR_SCHED_SPAN_TURN;
}

/* Does the tenant want a turn, or to keep the one that it has? */
static bool wants(const struct look *l, const struct weir_sched_span_tenant *t)
{
    return t->waits || (t->span != WEIR_SCHED_SPAN_WAITS &&
                        (t->works || l->now_ns - t->idle_ns < linger_ns(t)));
}

/* Let the turns end that keep a tenant from its own. @return true: nothing keeps it */
static bool make_room(const struct look *l, const struct weir_sched_span_tenant *t)
{
    bool is_free = true;

    for (struct weir_sched_span_tenant *o = next_of(l, NULL); o; o = next_of(l, o)) {
        if (!share_devices(o, t)) {
            continue;
        }
        /* One that never had a turn may have work on a device from when it used no other. */
        if (o->span == WEIR_SCHED_SPAN_TURN ||
            (o->span == WEIR_SCHED_SPAN_WAITS && sum_up(l, o).fixed != 0)) {
            end(l, o);
        }
        is_free &= o->span == WEIR_SCHED_SPAN_WAITS;
    }
    return is_free;
}

/* The first of those that want a turn and do not need a device that is taken, or NULL. */
static struct weir_sched_span_tenant *best_of(const struct look *l, uint64_t taken)
{
    struct weir_sched_span_tenant *best = NULL;

    for (struct weir_sched_span_tenant *t = next_of(l, NULL); t; t = next_of(l, t)) {
        if ((t->devices & taken) == 0 && wants(l, t) && (!best || goes_before(l, t, best))) {
            best = t;
        }
    }
    return best;
}

static void choose(const struct look *l)
{
    struct weir_sched_span_tenant *t;
    uint64_t taken = 0;

    while ((t = best_of(l, taken))) {
        taken |= t->devices;
        if (t->span == WEIR_SCHED_SPAN_TURN) {
            t->turn_ns = is_kept(l, t) ? t->turn_ns : l->now_ns;
        } else if (t->span == WEIR_SCHED_SPAN_ENDS) {
            set_all(l, t, WEIR_SCHED_SPAN_TURN);
            t->turn_ns = l->now_ns;
        } else if (make_room(l, t)) {
            begin(l, t);
        }
    }
}

/* ---- who takes turns ---- */

static bool takes_turns(const struct look *l, const struct weir_sched_span_tenant *t)
{
    const struct weir_sched_spans *s = l->spans;
    bool takes = false;

    for (uint32_t i = 0; is_several(t->devices) && !takes && i < s->n_tenants; i++) {
        takes = share_devices(t, &s->tenants[i]);
    }
    return takes;
}

/* Could the tenant's work bypass a scheduler until now? */
static bool was_alone(const struct look *l, const struct weir_sched_span_tenant *t)
{
    struct weir_sched_spans *s = l->spans;
    bool alone = false;

    for (uint32_t i = 0; i < s->n_devices; i++) {
        const struct weir_sched_member m = s->member(s->user, i, (uint32_t)(t - s->tenants));

        alone |= m.id != 0 && atomic_load(&weir_sched_shared(m.sched)->alone) == m.id;
    }
    return alone;
}

/* Find out who takes turns. `comes` is new, and waits; others that are new have the turn. */
static void review(const struct look *l, const struct weir_sched_span_tenant *comes)
{
    struct weir_sched_spans *s = l->spans;

    s->first = 0;
    s->stale = false;
    for (uint32_t i = s->n_tenants; i-- != 0;) {
        struct weir_sched_span_tenant *t = &s->tenants[i];

        if (!takes_turns(l, t)) {
            if (t->span != WEIR_SCHED_SPAN_FREE) {
                set_all(l, t, WEIR_SCHED_SPAN_FREE);
            }
            continue;
        }
        t->next = s->first;
        s->first = i + 1;
        if (t->span == WEIR_SCHED_SPAN_FREE) {
            look_at(l, t);
            t->virtual_ns = 0;
            place(l, t);
            t->unseen_ns = was_alone(l, t) ? l->now_ns + tuning.patience_ns : 0;
            begin(l, t);
        }
        if (t == comes) {
            set_all(l, t, WEIR_SCHED_SPAN_WAITS);
        }
    }
}

/* ---- the rule ---- */

/* When a tenant's turn, or a step of its end, is over, if others wait. */
static uint64_t over_ns(const struct weir_sched_span_tenant *t)
{
    return t->span == WEIR_SCHED_SPAN_ENDS   ? t->moved_ns + patience_ns(t)
           : t->span != WEIR_SCHED_SPAN_TURN ? NEVER
           : t->idle_ns != 0                 ? t->idle_ns + linger_ns(t)
                                             : t->turn_ns + tuning.span_turn_ns;
}

static void look(const struct look *l)
{
    struct weir_sched_spans *s = l->spans;
    bool any_waits = false;

    for (struct weir_sched_span_tenant *t = next_of(l, NULL); t; t = next_of(l, t)) {
        bool worked = t->works;

        look_at(l, t);
        if (t->works && !worked) {
            place(l, t);
        }
        any_waits |= t->waits;
    }
    if (any_waits) {
        choose(l);
    }
    s->next_ns = NEVER;
    for (struct weir_sched_span_tenant *t = next_of(l, NULL); t && any_waits; t = next_of(l, t)) {
        uint64_t at_ns = over_ns(t);

        s->next_ns = at_ns > l->now_ns && at_ns < s->next_ns ? at_ns : s->next_ns;
    }
}

static uint64_t news_of(const struct weir_sched_spans *s)
{
    uint64_t news = 0;

    for (uint32_t i = 0; i < s->n_devices; i++) {
        news += weir_sched_span_news(s->member(s->user, i, 0).sched);
    }
    return news;
}

void weir_sched_spans_come(struct weir_sched_spans *spans, uint64_t now_ns, uint32_t device,
                           uint32_t tenant)
{
    const struct look l = {spans, now_ns};
    struct weir_sched_span_tenant *t = &spans->tenants[tenant];
    uint64_t bit = UINT64_C(1) << device;

    if ((t->devices & bit) == 0) {
        t->devices |= bit;
        if (is_several(t->devices)) {
            review(&l, t);
        }
    }
}

void weir_sched_spans_forget(struct weir_sched_spans *spans, uint32_t device, uint32_t tenant)
{
    const struct look l = {spans, 0}; /* at the time that the schedulers have */
    struct weir_sched_span_tenant *t = &spans->tenants[tenant];

    spans->stale |= t->span != WEIR_SCHED_SPAN_FREE;
    set(&l, t, device, WEIR_SCHED_SPAN_FREE, 0);
    t->devices &= ~(UINT64_C(1) << device);
}

void weir_sched_spans_tick(struct weir_sched_spans *spans, uint64_t now_ns)
{
    const struct look l = {spans, now_ns};

    if (spans->stale) {
        review(&l, NULL);
    }
    if (spans->first == 0) {
        spans->next_ns = NEVER;
        return;
    }
    uint64_t news = news_of(spans);
    bool is_due = news != spans->news || now_ns >= spans->next_ns;
    for (struct weir_sched_span_tenant *t = next_of(&l, NULL); t; t = next_of(&l, t)) {
        is_due |= t->span == WEIR_SCHED_SPAN_ENDS && drain(&l, t);
    }
    if (is_due) {
        spans->news = news;
        look(&l);
    }
}
