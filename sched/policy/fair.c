/*
 * fair: weighted shares of the device's time.
 *
 * FLEP's FFS serves kernels in rounds, each for an epoch of T times its weight, and makes T just so
 * long that the cost of preempting each once stays below a part of the round:
 *
 *     sum(O_i) / (T * sum(W_i)) <= max_overhead
 *
 * Here, too, T follows from the measured costs of stopping, of a launch and, where tenants are in
 * different domains, of a change of context; but no slice is longer than slice_max_ns, so that
 * other tenants run in between, and none is shorter than slice_min_ns: light tenants get turns less
 * often instead. What differs from FFS:
 *
 * - Shares are kept by virtual time: with rounds, an epoch that a kernel of 20 ms overran by ten
 * times is never paid back. A tenant's virtual time is its service divided by its weight; V is the
 * weighted mean of the ready tenants. Of the tenants that are not ahead of V the one whose slice
 * must end first (its virtual time plus slice / weight) is served. So a tenant is never more than
 * about one slice, or one of its kernels, ahead or behind. (Stoica and Abdel-Wahab's earliest
 * eligible virtual deadline first, 1995.) Granted work that cannot be stopped counts as served.
 * - Among many tenants of different weights, those of one weight would have their turns in a row,
 * and a round takes 300 ms, so each second would have too much of some weights. So each tenant's
 * deadline has its own offset within a slice, and slices are short enough for six rounds in a
 * second.
 * - Where tenants are in different domains, the device stays in one for as long as a change of
 * domain costs divided by max_overhead, if a tenant of that domain may be served.
 * - Idle tenants accumulate no credit: a tenant that becomes ready starts at V, or where it was if
 * that is ahead. V does not change while none is ready: otherwise a tenant that had the device to
 * itself would owe for that to the next one. A tenant that was away only as long as a program takes
 * between two pieces of work keeps what it is behind, up to a bound: a service with one graph at a
 * time is without work after each, and would never get a greater share otherwise.
 * - A tenant that was away and had too much before pays for it, but waits at most
 * fair_debt_wait_ns: among many tenants its share is small, and a service that had used much while
 * it started would stand still for a second. If no tenant was seen to have work for fair_away_ns,
 * debts are forgotten as credits are, since those to whom the time was owed did not want it.
 * (Self-clocked fair queueing begins anew in each busy period, too; Golestani, INFOCOM 1994.)
 * - A tenant that synchronizes after each kernel is without work for some microseconds each time.
 * If it usually is back within brief_ns, which is less than stopping another tenant costs, it keeps
 * its place for that time and pays for it. After long kernels it keeps its place for longer:
 * otherwise two tenants with one kernel at a time would get the same, whatever their weights.
 * - A tenant that was away, such as a program that answers requests, often needs little when it
 * comes back. It goes first, also within another's slice and above running work of its class
 * (beside.c), until it has had the device for as long as it was away, at most 4 ms, and only while
 * it is ahead of its share by at most its part of 4 ms. Between short kernels it keeps its place,
 * and for 3 ms if others fill meanwhile, so that its next item finds only items at the lowest level
 * before it. This is borrowed virtual time (Duda and Cheriton, BVT, SOSP 1999), where an absence
 * gives the right to borrow. Work that bypassed the scheduler unseen is no absence.
 *
 * Source: FLEP (ASPLOS 2017) 5.2.2
 */
#include "sched/policy/fair.h"

#include <assert.h>

/* 2^64 / golden ratio: its multiples for consecutive numbers are spread evenly. */
#define GOLDEN        UINT64_C(0x9e3779b97f4a7c15)
#define ROUND_MAX_NS  10000000000u /* the longest round; slices have a bound, too */
#define FILL_TURN     (1u << 20) /* cost of a turn as a filler below a higher class, at weight 1 */
#define WEIGHT        100u       /* weight of a tenant without configuration */
#define FRACTION_BITS 10         /* virtual time counts in 1/1024 ns at weight 1 */

static struct fair_tenant *fair_of(const struct weir_policy_tenant *tenant)
{
    return tenant->state[WEIR_POLICY_NEXT];
}

static uint64_t to_virtual(const struct weir_policy *self, const struct weir_policy_tenant *tenant,
                           uint64_t sm_ns)
{
    uint64_t divisor = (uint64_t)self->config->sms * tenant->weight;

    assert(divisor != 0);                     /* a device has SMs, and a weight is 1 or more */
    if (sm_ns >> (64 - FRACTION_BITS) == 0) { /* most of the cost of a decision is division */
        return (sm_ns << FRACTION_BITS) / divisor;
    }
    return (uint64_t)(((unsigned __int128)sm_ns << FRACTION_BITS) / divisor);
}

static void settle(const struct weir_policy *self, const struct weir_policy_tenant *tenant)
{
    struct fair_tenant *fair = fair_of(tenant);
    uint64_t served_ns = tenant->service_ns[WEIR_SCHED_COMPUTE] - fair->seen_ns;

    if (served_ns != 0) {
        uint64_t time_ns = served_ns / self->config->sms;

        fair->virtual_ns += to_virtual(self, tenant, served_ns);
        fair->seen_ns += served_ns;
        fair->rested_ns -= fair->rested_ns < time_ns ? fair->rested_ns : time_ns;
        fair->owes = false;
    }
}

/* The virtual time, including granted work that cannot be stopped. */
static uint64_t position(const struct weir_policy *self, const struct weir_policy_tenant *tenant)
{
    uint64_t at = fair_of(tenant)->virtual_ns;

    return tenant->committed_ns != 0 ? at + to_virtual(self, tenant, tenant->committed_ns) : at;
}

/* The measured cost of taking the device from this tenant. */
static uint64_t switch_cost_ns(const struct weir_policy *self,
                               const struct weir_policy_tenant *tenant)
{
    return self->config->launch_ns + tenant->switch_ns +
           (tenant->kernel.stoppable ? tenant->stop_ns : 0);
}

/* Sums over the ready tenants of the highest class, for one decision. */
struct round {
    enum weir_priority class;
    uint64_t weights; /* sum */
    uint32_t count;
    uint32_t weight;   /* weight of each; 0: weights differ */
    uint32_t heaviest; /* largest weight */
    uint64_t cost_ns;
    uint64_t unit; /* T: length of a round for weight 1, in 1/65536 ns */
    uint64_t base;
    __int128 sum;  /* sum of weight * (position - base) */
    uint64_t mean; /* V, once all tenants were added */
};

static uint64_t mean_of(const struct round *round)
{
    return round->base + (uint64_t)(int64_t)(round->sum / (__int128)round->weights);
}

/* Has a tenant that came back with a debt waited for it long enough? */
static bool has_waited_for_debt(const struct weir_policy_next_view *view,
                                const struct weir_policy_tenant *tenant)
{
    const struct fair_tenant *fair = fair_of(tenant);

    return fair->owes && view->now_ns - fair->ready_ns > tuning.fair_debt_wait_ns;
}

/*
 * Place a tenant that comes back, or comes from another class, relative to V of the ready tenants
 * or, if there are none, to the last one that ran out of work. It may be ahead by at most the bound
 * of debts, and behind by at most the bound of credits. It owes nothing if it has waited long
 * enough for its debt, or if that is forgotten.
 */
static void place(const struct weir_policy *self, const struct round *round,
                  const struct weir_policy_tenant *tenant, bool has_waited)
{
    struct fair_tenant *fair = fair_of(tenant);
    const struct fair *all = self->state;
    bool owes_nothing = has_waited || fair->idle_ns < all->forgiven_ns;
    uint64_t debt_max_ns = owes_nothing ? 0 : tuning.fair_debt_max_ns;
    uint64_t credit_max_ns = fair->keeps_credit ? tuning.fair_credit_ns : 0;
    uint64_t debt_max = to_virtual(self, tenant, debt_max_ns * self->config->sms);
    uint64_t credit_max = to_virtual(self, tenant, credit_max_ns * self->config->sms);
    uint64_t mean = round->weights != 0 ? mean_of(round) : all->last_ns[tenant->priority];
    int64_t ahead = (int64_t)(fair->virtual_ns - mean);

    ahead = fair->class != tenant->priority || fair->reweighed ? 0 : ahead;
    ahead = ahead < -(int64_t)credit_max ? -(int64_t)credit_max : ahead;
    ahead = ahead > (int64_t)debt_max ? (int64_t)debt_max : ahead;
    fair->owes = ahead > 0;
    fair->virtual_ns = mean + (uint64_t)ahead;
}

static enum weir_priority highest_class(const struct weir_policy_next_view *view)
{
    enum weir_priority class = WEIR_PRIORITY_LOW;

    for (uint32_t i = 0; i < view->ready_count; i++) {
        class = view->ready[i]->priority > class ? view->ready[i]->priority : class;
    }
    return class;
}

static bool is_placed(const struct weir_policy_tenant *tenant)
{
    return fair_of(tenant)->placed && fair_of(tenant)->class == tenant->priority;
}

static void add(const struct weir_policy *self, struct round *round,
                const struct weir_policy_tenant *tenant)
{
    uint64_t at = position(self, tenant);

    fair_of(tenant)->position = at;
    if (round->weights == 0) {
        round->base = at;
        round->weight = tenant->weight;
    } else if (round->weight != tenant->weight) {
        round->weight = 0;
    }
    round->heaviest = tenant->weight > round->heaviest ? tenant->weight : round->heaviest;
    round->weights += tenant->weight;
    round->count++;
    round->cost_ns += switch_cost_ns(self, tenant);
    round->sum += (__int128)(int64_t)(at - round->base) * tenant->weight;
}

/* Place the tenants that came back relative to those that were there before, and add them. */
static void add_who_comes_back(const struct weir_policy *self,
                               const struct weir_policy_next_view *view, struct round *round)
{
    for (uint32_t i = 0; i < view->ready_count; i++) {
        struct fair_tenant *fair = fair_of(view->ready[i]);
        bool has_waited = has_waited_for_debt(view, view->ready[i]);

        if (view->ready[i]->priority == round->class &&
            (has_waited || !is_placed(view->ready[i]))) {
            place(self, round, view->ready[i], has_waited);
            fair->placed = true;
            fair->reweighed = false;
            fair->class = round->class;
            add(self, round, view->ready[i]);
        }
    }
}

static struct round look(const struct weir_policy *self, const struct weir_policy_next_view *view)
{
    struct round round = {.class = highest_class(view)};
    bool all_placed = true;

    for (uint32_t i = 0; i < view->ready_count; i++) {
        if (view->ready[i]->priority == round.class) {
            settle(self, view->ready[i]);
            if (is_placed(view->ready[i]) && !has_waited_for_debt(view, view->ready[i])) {
                add(self, &round, view->ready[i]);
            } else {
                all_placed = false;
            }
        }
    }
    if (!all_placed) {
        add_who_comes_back(self, view, &round);
    }
    uint64_t round_ns = round.cost_ns * 1000000 / self->config->overhead_ppm;
    round_ns = round_ns < ROUND_MAX_NS ? round_ns : ROUND_MAX_NS;
    assert(round.weights != 0); /* a tenant is ready, and its weight is 1 or more */
    round.unit = (round_ns << 16) / round.weights;
    round.mean = mean_of(&round);
    ((struct fair *)self->state)->mean_ns = round.mean;
    ((struct fair *)self->state)->mean_class = round.class;
    ((struct fair *)self->state)->weights = round.weights;
    return round;
}

/* Are there many tenants, with different weights? */
static bool is_mixed(const struct round *round)
{
    return round->weight == 0 && round->count > tuning.few;
}

/* The longest slice among many tenants of different weights. The heaviest get their part of
 * fair_mixed_ns, others less in proportion to their weight, so that each has a turn in each round.
 * A tenant whose kernels are longer than its slice gets the slice of the heaviest: otherwise its
 * kernel would be stopped in each turn. */
static uint64_t mixed_most_ns(const struct round *round, const struct weir_policy_tenant *tenant)
{
    uint64_t heaviest_ns = tuning.fair_mixed_ns / round->count;
    uint64_t own_ns = heaviest_ns * tenant->weight / round->heaviest;
    uint64_t kernel_ns = tenant->kernel.predicted_ns; /* 0: not known */

    return kernel_ns != 0 && kernel_ns <= own_ns ? own_ns : heaviest_ns;
}

/* Compute the slice: this tenant's part of a round that is long enough for the cost of
 * switching. */
static uint64_t slice_of(const struct round *round, const struct weir_policy_tenant *tenant)
{
    uint64_t slice_ns = round->unit * tenant->weight >> 16;
    uint64_t most_ns = is_mixed(round) ? mixed_most_ns(round, tenant) : tuning.slice_max_ns;

    slice_ns = slice_ns < most_ns ? slice_ns : most_ns;
    slice_ns = slice_ns < tuning.slice_max_ns ? slice_ns : tuning.slice_max_ns;
    return slice_ns > tuning.slice_min_ns ? slice_ns : tuning.slice_min_ns;
}

/* The virtual time of a tenant after its turn, which takes at least as long as a kernel that cannot
 * be stopped. Among many tenants with different weights an offset within a slice, always the same
 * for one tenant, is added. */
static uint64_t deadline(const struct weir_policy *self, const struct round *round,
                         const struct weir_policy_tenant *tenant)
{
    uint64_t slice_ns = slice_of(round, tenant), turn_ns = slice_ns;

    if (!tenant->kernel.stoppable && tenant->kernel.predicted_ns > turn_ns) {
        turn_ns = tenant->kernel.predicted_ns;
    }
    if (is_mixed(round)) {
        turn_ns += slice_ns * (tenant->id * GOLDEN >> 48) >> 16;
    }
    return fair_of(tenant)->position + to_virtual(self, tenant, turn_ns * self->config->sms);
}

static bool is_small_graph(const struct weir_policy *self, const struct weir_policy_tenant *tenant)
{
    return tenant->kernel.class == WEIR_SCHED_GRAPH && !tenant->kernel.stoppable &&
           weir_sched_is_small(self->config, tenant->kernel.need_sms);
}

/* Is a tenant's virtual time so little ahead of V that it may go first? */
static bool is_within_credit(uint64_t position, uint64_t mean, uint64_t weights)
{
    return (int64_t)(position - mean) <= (int64_t)((tuning.slack_ns << FRACTION_BITS) / weights);
}

/* Does a tenant go first after an absence? It does until it has used up rested_ns, unless it is too
 * far ahead of its share. Small graphs run beside the leader and need not lead. */
static bool goes_first(const struct weir_policy *self, const struct round *round,
                       const struct weir_policy_tenant *tenant)
{
    const struct fair_tenant *fair = fair_of(tenant);

    return tenant->priority == round->class && fair->rested_ns >= tuning.fair_rest_ns &&
           !is_small_graph(self, tenant) &&
           is_within_credit(fair->position, round->mean, round->weights);
}

static uint32_t pick_rested(const struct weir_policy *self,
                            const struct weir_policy_next_view *view, const struct round *round)
{
    uint32_t best = UINT32_MAX;

    for (uint32_t i = 0; i < view->ready_count; i++) {
        if (goes_first(self, round, view->ready[i]) &&
            (best == UINT32_MAX || (int64_t)(fair_of(view->ready[i])->position -
                                             fair_of(view->ready[best])->position) < 0)) {
            best = i;
        }
    }
    return best;
}

/* Find the entitled tenant whose slice must end first. @param domain 0: of any */
static uint32_t pick(const struct weir_policy *self, const struct weir_policy_next_view *view,
                     const struct round *round, uint64_t domain)
{
    uint32_t best = UINT32_MAX;
    uint64_t best_at = 0;

    for (uint32_t i = 0; i < view->ready_count; i++) {
        const struct weir_policy_tenant *tenant = view->ready[i];

        if (tenant->priority != round->class || (domain != 0 && tenant->domain != domain) ||
            (int64_t)(fair_of(tenant)->position - round->mean) > 0) {
            continue;
        }
        uint64_t at = deadline(self, round, tenant);
        if (best == UINT32_MAX || (int64_t)(at - best_at) < 0 ||
            (at == best_at && view->ready[best] == view->leader)) {
            best = i;
            best_at = at;
        }
    }
    return best;
}

/* Find the domain in which the device must stay, because it has been there too briefly to justify
 * the cost of a change; 0: there is none. */
static uint64_t domain_to_stay_in(const struct weir_policy *self,
                                  const struct weir_policy_next_view *view)
{
    const struct fair *fair = self->state;
    uint64_t stay_ns = view->ready[0]->switch_ns * 1000000 / self->config->overhead_ppm;

    return view->now_ns - fair->domain_ns < stay_ns ? fair->domain : 0;
}

static void note_domain(const struct weir_policy *self, uint64_t now_ns,
                        const struct weir_policy_tenant *tenant)
{
    struct fair *fair = self->state;

    if (tenant->domain != fair->domain) {
        fair->domain = tenant->domain;
        fair->domain_ns = now_ns;
    }
}

static uint32_t index_of(const struct weir_policy_next_view *view,
                         const struct weir_policy_tenant *tenant)
{
    uint32_t i = 0;

    while (i < view->ready_count && view->ready[i] != tenant) {
        i++;
    }
    return i;
}

/* How long a tenant without work still counts as busy. Graphs that always run beside other work
 * have no predicted duration, but their time on the device is known. */
static uint64_t pause_of(const struct weir_policy_tenant *tenant)
{
    const struct weir_policy_kernel *kernel = &tenant->kernel;
    uint64_t has_ns = kernel->stoppable                   ? 0
                      : kernel->predicted_ns != 0         ? kernel->predicted_ns
                      : kernel->class == WEIR_SCHED_GRAPH ? tenant->graph_ns
                                                          : 0;
    uint64_t most_ns = has_ns / tuning.wait_part;

    most_ns = most_ns < tuning.wait_max_ns ? most_ns : tuning.wait_max_ns;
    return most_ns > tuning.brief_ns ? most_ns : tuning.brief_ns;
}

/* How long a leader without work keeps its place. */
static uint64_t linger_of(const struct weir_policy_tenant *tenant)
{
    uint64_t most_ns = pause_of(tenant);

    return tenant->gap_ns <= most_ns / 2 ? most_ns : 0;
}

/* Does a tenant launch kernel after kernel, so that most end before the next one comes? */
static bool has_short_pauses(const struct weir_policy_tenant *tenant)
{
    uint64_t pause_ns = fair_of(tenant)->pause_ns;

    return pause_ns != 0 && pause_ns <= tuning.fair_rest_ns / 2;
}

void fair_next(struct weir_policy *self, const struct weir_policy_next_view *view,
               struct weir_policy_choice *choice)
{
    struct round round = look(self, view);
    uint32_t chosen = pick_rested(self, view, &round);

    if (view->arrived && view->leader->priority == round.class &&
        (chosen == UINT32_MAX || goes_first(self, &round, view->leader))) {
        choice->ready = index_of(view, view->leader);
        return;
    }
    bool rested = chosen != UINT32_MAX;
    if (!rested) {
        chosen = pick(self, view, &round, domain_to_stay_in(self, view));
    }
    if (chosen == UINT32_MAX) {
        chosen = pick(self, view, &round, 0);
    }
    if (chosen != UINT32_MAX) { /* rounding of the mean may leave no tenant entitled */
        choice->ready = chosen;
    }
    const struct weir_policy_tenant *tenant = view->ready[choice->ready];
    note_domain(self, view->now_ns, tenant);
    choice->slice_ns = slice_of(&round, tenant);
    choice->linger_ns = linger_of(tenant);
    if (rested && has_short_pauses(tenant)) {
        choice->linger_ns = tuning.fair_rest_ns;
        choice->keep_ns = tuning.fair_rest_keep_ns;
    }
}

/*
 * Find the tenant that is furthest behind. It is of the leader's class, its work may pass, and it
 * is not ahead of V by more than its slice.
 *
 * Small items may come from a tenant that is farther ahead. If all tenants have the same weight the
 * bound is slack_ns: the device then shares evenly by itself, and holding an item back would only
 * lengthen the longest waits. If weights differ and half of the SMs are free, the heaviest tenant's
 * bound is slack_ns and the others' are less, in proportion to their weights. A tenant that was
 * away for a moment has more credit than that.
 */
static uint32_t furthest_behind(const struct weir_policy *self,
                                const struct weir_policy_next_view *view)
{
    bool has_room = view->free_sms >= self->config->small_sms / tuning.small_crowd_part;
    uint64_t equals_ns = view->free_sms != 0 ? tuning.slack_ns : 0;
    uint64_t ahead_ns = has_room ? equals_ns : 0;
    struct round round = look(self, view);
    uint32_t best = UINT32_MAX;

    if (view->leader->ready_since_ns == UINT64_MAX && is_placed(view->leader) &&
        view->leader->priority == round.class) {
        add(self, &round, view->leader);
        round.mean = mean_of(&round);
    }
    uint64_t ahead_unit = (ahead_ns << 16) / round.heaviest;
    for (uint32_t i = 0; i < view->ready_count; i++) {
        const struct weir_policy_tenant *tenant = view->ready[i];
        uint64_t slice_ns = slice_of(&round, tenant);
        uint64_t least_ns = round.weight != 0 ? equals_ns : ahead_unit * tenant->weight >> 16;
        uint64_t most_ns = slice_ns < least_ns ? least_ns : slice_ns;
        int64_t ahead = (int64_t)(fair_of(tenant)->position - round.mean);

        if (tenant->priority == round.class && tenant->may_pass &&
            ahead <= (int64_t)to_virtual(self, tenant, most_ns * self->config->sms) &&
            (best == UINT32_MAX ||
             (int64_t)(fair_of(tenant)->position - fair_of(view->ready[best])->position) < 0)) {
            best = i;
        }
    }
    return best;
}

static int64_t lag_ns(const struct weir_policy *self, const struct weir_policy_tenant *tenant)
{
    const struct fair *fair = self->state;

    settle(self, tenant);
    int64_t behind = (int64_t)(fair->mean_ns - position(self, tenant));
    return tenant->priority == fair->mean_class
               ? (int64_t)((__int128)behind * tenant->weight >> FRACTION_BITS)
               : 0;
}

/* A tenant that has rested goes first while what was granted to it fits into its credit. A single
 * item may still be longer than the credit. If it could not, a program that rests for as long as it
 * works would wait for others' kernels each time. */
static uint64_t first_ns(const struct weir_policy *self, const struct weir_policy_tenant *tenant)
{
    const struct fair *fair = self->state;

    settle(self, tenant);
    return tenant->priority == fair->mean_class && fair->weights != 0 &&
                   fair_of(tenant)->rested_ns >=
                       tuning.fair_rest_ns + tenant->committed_ns / self->config->sms &&
                   is_within_credit(position(self, tenant), fair->mean_ns, fair->weights)
               ? tuning.slack_ns
               : 0;
}

/* Find a filler of the next lower class. Its tenants take turns by weight (stride scheduling); a
 * tenant that was absent catches up on only a few turns. */
static uint32_t filler_below(const struct weir_policy_next_view *view)
{
    uint64_t saved = tuning.few * FILL_TURN / WEIGHT;
    enum weir_priority class = WEIR_PRIORITY_LOW;
    uint32_t best = UINT32_MAX;
    uint64_t most = 0;

    for (uint32_t i = 0; i < view->ready_count; i++) {
        const struct weir_policy_tenant *tenant = view->ready[i];

        if (tenant->priority < view->leader->priority && tenant->priority >= class &&
            tenant->may_pass) {
            class = tenant->priority;
            most = fair_of(tenant)->fill_pass > most ? fair_of(tenant)->fill_pass : most;
        }
    }
    for (uint32_t i = 0; i < view->ready_count; i++) {
        struct fair_tenant *fair = fair_of(view->ready[i]);

        if (view->ready[i]->priority != class || class >= view->leader->priority ||
            !view->ready[i]->may_pass) {
            continue;
        }
        if (fair->fill_pass + saved < most) {
            fair->fill_pass = most - saved;
        }
        if (best == UINT32_MAX || fair->fill_pass < fair_of(view->ready[best])->fill_pass) {
            best = i;
        }
    }
    if (best != UINT32_MAX) {
        fair_of(view->ready[best])->fill_pass += FILL_TURN / view->ready[best]->weight;
    }
    return best;
}

uint32_t fair_beside(struct weir_policy *self, const struct weir_policy_next_view *view)
{
    uint32_t best = view->free_sms == 0 ? filler_below(view) : UINT32_MAX;

    return best != UINT32_MAX ? best : furthest_behind(self, view);
}

void fair_ready(struct weir_policy *self, uint64_t now_ns, struct weir_policy_tenant *tenant)
{
    struct fair *all = self->state;
    struct fair_tenant *fair = fair_of(tenant);
    uint64_t away_ns = now_ns - fair->idle_ns;
    uint64_t pause_ns = pause_of(tenant);
    uint64_t forget_ns = pause_ns > tuning.fair_forget_ns ? pause_ns : tuning.fair_forget_ns;

    if (all->ready_count++ == 0 && now_ns - all->idle_ns > tuning.fair_away_ns) {
        all->forgiven_ns = now_ns;
    }
    fair->ready_ns = now_ns;
    if (fair->idle_ns != 0 && away_ns > forget_ns && !tenant->passed) {
        fair->rested_ns += away_ns;
        fair->rested_ns = fair->rested_ns < tuning.slack_ns ? fair->rested_ns : tuning.slack_ns;
    } else if (fair->idle_ns != 0 && !tenant->passed) {
        fair->pause_ns = fair->pause_ns != 0 ? (7 * fair->pause_ns + away_ns) / 8 : away_ns + 1;
    }
    fair->keeps_credit = fair->idle_ns != 0 && now_ns - fair->idle_ns <= tuning.fair_away_ns;
    fair->placed = fair->placed && now_ns - fair->idle_ns <= forget_ns;
}

void fair_idle(struct weir_policy *self, uint64_t now_ns, struct weir_policy_tenant *tenant)
{
    struct fair *all = self->state;

    settle(self, tenant); /* a lone tenant was served without a decision */
    all->last_ns[tenant->priority] = fair_of(tenant)->virtual_ns;
    all->idle_ns = now_ns;
    all->ready_count--;
    fair_of(tenant)->idle_ns = now_ns;
}

void fair_changing(struct weir_policy *self, struct weir_policy_tenant *tenant)
{
    settle(self, tenant);
    fair_of(tenant)->placed = false;
    fair_of(tenant)->reweighed = true;
}

void fair_joined(struct weir_policy *self, struct weir_policy_tenant *tenant)
{
    (void)self;
    fair_of(tenant)->seen_ns = tenant->service_ns[WEIR_SCHED_COMPUTE];
    fair_of(tenant)->class = tenant->priority;
}

const struct weir_policy_ops weir_policy_fair = {
    .name = "fair",
    .kind = WEIR_POLICY_NEXT,
    .state_bytes = sizeof(struct fair),
    .tenant_bytes = sizeof(struct fair_tenant),
    .joined = fair_joined,
    .changing = fair_changing,
    .ready = fair_ready,
    .idle = fair_idle,
    .next = fair_next,
    .beside = fair_beside,
    .lag_ns = lag_ns,
    .first_ns = first_ns,
};
