/*
 * corun: two tenants at a time, side by side, in the division of the GPU that gets most done.
 *
 * Which division suits two programs cannot be seen from outside: a kernel that waits for memory has
 * nearly all of its speed on half of the SMs, one that computes has half; two kernels that need
 * different units of an SM share each SM well, and two that need the same cache do not. So corun
 * tries the divisions, and compares what both tenants get done in them:
 *
 *     turns     one at a time, as the policy `next` says, with work beside the leader
 *     beside    both on all SMs, as the hardware places their blocks
 *     blocks k  both on all SMs: of the blocks that fit on one, k/8 of its own for one, and as much
 *               as that leaves for the other; kernels that can be moved only
 *     part n    the first n SMs for one, the others for the other, n in steps of config.part_step
 *
 * A tenant's rate in a division is the work that it got done there, measured by what its items are
 * known to take alone, for each second. If these times are not known well, they are learned first,
 * in turns in which nobody else is on the device. Then divisions are tried, each for a window,
 * those that may be the best for more windows, and now and then again. What was found is kept for
 * the kernels that both ran then. When one of the two runs something else, it is looked up, or a
 * new search begins.
 *
 * The rates are to be in proportion to the weights. If a division's rates are not, turns correct
 * that: while a tenant is behind, it has the device to itself. So a division is worth the sum of
 * both rates in the mixture of division and such turns that keeps the shares, and is used only if
 * that is more than turns give.
 *
 * corun acts only for two tenants of a class whose kernels usually take 0.2 ms or more, as those
 * that were measured. It does not act for programs that launch graphs: two LLM engines together did
 * 1.02 to 1.15 times the work of one alone while divisions were tried, and 1.16 to 1.19 times in
 * turns, in which their small graphs run beside each other (H200).
 *
 * Sources: Slate (IPDPS 2019) III, parts of the SMs and the choice of partners by what they need;
 * Warped-Slicer (ISCA 2016) IV and ISPA (TPDS 2023), blocks; here the measure is the work done, and
 * not hardware counters of single kernels.
 */
#include "sched/policy.h"

#include <math.h>
#include <string.h>

#define NEVER     UINT64_MAX
#define PAIRS     64u
#define EIGHTHS   8u /* number of parts into which an SM's blocks are divided */
#define PARTS_MAX 8u

enum { TURNS, BESIDE, BLOCKS, PART = BLOCKS + EIGHTHS - 1, DIVISIONS = PART + PARTS_MAX };

struct division {
    double rate[2]; /* work per time; first that of the tenant with the smaller id */
    double square;  /* mean of the squared sum of both rates */
    uint32_t windows;
};

/* What two tenants run now. */
struct period {
    uint64_t from_ns;
    uint64_t key[2]; /* the kernel that is most of each one's work, if one is */
    double votes[2]; /* work of this kernel, less that of others */
    double work_ns[2];
};

/* Two tenants while they run certain kernels. Several couples may be of the same two tenants. */
struct couple {
    weir_sched_id id[2]; /* the smaller one first; 0: the slot is free */
    uint64_t key[2];     /* the kernel that is most of each one's work; 0: they run several */
    bool named;          /* key is known */
    struct division division[DIVISIONS];
    uint32_t now, best;
    bool tries;          /* `now` is being tried */
    bool alone;          /* the tenant that was behind has the device to itself */
    uint64_t again_ns;   /* when to try another division */
    uint64_t pause_ns;   /* pause after that until the next trial */
    uint64_t seen_ns;    /* time and work are counted up to this time */
    uint64_t work_ns[2]; /* work of each tenant at seen_ns */
    uint64_t window_ns;  /* length of the window so far */
    uint64_t done_ns[2]; /* and work */
    uint64_t longest_ns; /* longest item seen lately */
    uint64_t settled_ns; /* until then the device may still have work of the previous division */
    bool mixed;          /* there were turns in the window, which distorts the measurement */
    bool counts;         /* the time since seen_ns was spent in `now` */
    bool fresh;          /* nothing was chosen yet */
    double usual_ns[2];  /* mean time of a kernel; 0: not known */
    uint64_t graphs_until_ns; /* until then no divisions, as one of them launched a graph */
    uint32_t refused;         /* consecutive calls with kernels for which `now` is unsuitable */
    double unsure;            /* the fraction of their kernels whose times are not known well */
    uint32_t looks;           /* number of looks at that */
    bool knows;               /* unsure is small enough to compare divisions */
    bool learns;              /* they take turns alone, so that these times can be learned */
    uint64_t learned_ns;      /* total time of such turns */
};

struct corun {
    struct couple couple[PAIRS];
    struct couple *now; /* the couple that works now, if its ids are theirs */
    struct period period;
    uint64_t last_key[2];                     /* the kernels of the period before */
    const struct weir_policy_tenant *last[2]; /* the tenants that had work last */
    uint64_t last_ns[2];                      /* when each last had work; NEVER: it has work now */
    uint64_t crowd_until_ns;                  /* until then a third tenant has, or had, work */
    uint64_t busy_from_ns;                    /* from then on both count as busy */
    bool broke;                               /* one of them had no work since last together() */
};

/* ---- which tenants have work ---- */

static uint32_t place_of(const struct corun *state, const struct weir_policy_tenant *tenant)
{
    return state->last[0] == tenant ? 0 : state->last[1] == tenant ? 1 : 2;
}

static void corun_ready(struct weir_policy *self, uint64_t now_ns,
                        struct weir_policy_tenant *tenant)
{
    struct corun *state = self->state;
    uint32_t at = place_of(state, tenant);

    if (at == 2) {
        at = state->last_ns[0] <= state->last_ns[1] ? 0 : 1;
        if (state->last[at] &&
            (state->last_ns[at] == NEVER || now_ns - state->last_ns[at] < tuning.lately_ns)) {
            state->crowd_until_ns = now_ns + tuning.lately_ns;
        }
        if (state->last[at] && state->last_ns[at] == NEVER) {
            return; /* both have work */
        }
        state->last[at] = tenant;
    }
    if (now_ns - state->last_ns[at] >= tuning.corun_away_ns) {
        state->busy_from_ns = now_ns + tuning.corun_window_items * tuning.corun_away_ns;
    }
    state->broke |= now_ns - state->last_ns[at] >= tuning.wait_max_ns;
    state->last_ns[at] = NEVER;
}

static void corun_idle(struct weir_policy *self, uint64_t now_ns, struct weir_policy_tenant *tenant)
{
    struct corun *state = self->state;
    uint32_t at = place_of(state, tenant);

    if (at < 2) {
        state->last_ns[at] = now_ns;
    } else {
        state->crowd_until_ns = now_ns + tuning.lately_ns;
    }
}

static void corun_left(struct weir_policy *self, struct weir_policy_tenant *tenant)
{
    struct corun *state = self->state;
    uint32_t at = place_of(state, tenant);

    if (at < 2) {
        state->last[at] = NULL;
        state->last_ns[at] = 0;
    }
    for (uint32_t i = 0; i < PAIRS; i++) {
        if (state->couple[i].id[0] == tenant->id || state->couple[i].id[1] == tenant->id) {
            state->couple[i] = (struct couple){0};
        }
    }
}

/* ---- what a division is worth ---- */

/*
 * The sum of both rates, in a mixture of the division and turns of one tenant alone that keeps the
 * shares, less the gain that a division needs to be worth it.
 */
static double worth(const struct division *division, const double *share)
{
    const double *rate = division->rate;
    double least[2], mixed;
    uint32_t who;

    if (share[0] == share[1]) {
        who = rate[0] <= rate[1] ? 0 : 1;
        if (rate[who] >= share[who] * (1 - tuning.corun_error)) {
            return (rate[0] + rate[1]) / (1 + tuning.corun_error);
        }
        mixed = (1 - share[who]) / (1 - rate[who]); /* part of the time in the division */
        return (share[who] + mixed * rate[1 - who]) / (1 + tuning.clearly);
    }
    least[0] = rate[0] / share[0];
    least[1] = rate[1] / share[1];
    who = least[0] <= least[1] ? 0 : 1;
    mixed = 1 / (1 - rate[who] + share[who] * least[1 - who]);
    return (mixed * (rate[0] + rate[1]) + 1 - mixed) / (1 + tuning.clearly);
}

static void shares_of(const struct weir_policy_tenant *const *tenant, double *ret_share)
{
    double sum = (double)tenant[0]->weight + tenant[1]->weight;

    ret_share[0] = tenant[0]->weight / sum;
    ret_share[1] = tenant[1]->weight / sum;
}

/* How many sizes a part may have: both tenants get at least a step. */
static uint32_t n_parts(const struct weir_policy *self)
{
    const struct weir_sched_config *c = self->config;
    uint32_t n = c->part_step != 0 ? c->sms / c->part_step : 0;

    n = n != 0 ? n - 1 : 0;
    return n < PARTS_MAX ? n : PARTS_MAX;
}

static uint64_t window_of(const struct couple *couple)
{
    uint64_t ns = tuning.corun_window_items * couple->longest_ns;

    ns = ns > tuning.corun_window_ns ? ns : tuning.corun_window_ns;
    return ns < tuning.corun_again_ns ? ns : tuning.corun_again_ns;
}

/* May a kernel get a part of so many SMs? One that cannot be moved stays there until it ends. */
static bool suits_part(const struct weir_policy *self, const struct couple *couple,
                       const struct weir_policy_kernel *kernel, uint32_t sms)
{
    bool any = kernel->class != WEIR_SCHED_KERNEL && kernel->class != WEIR_SCHED_GRAPH;

    return any ||
           (kernel->partable && (kernel->movable || kernel->predicted_ns * self->config->sms <=
                                                        window_of(couple) * sms));
}

static bool is_possible(const struct weir_policy *self, const struct couple *couple,
                        const struct weir_policy_tenant *const *tenant, uint32_t index)
{
    uint32_t first = index < PART ? 0 : (index - PART + 1) * self->config->part_step;
    bool divisible = true;

    for (uint32_t i = 0; i < 2; i++) {
        const struct weir_policy_kernel *kernel = &tenant[i]->kernel;

        divisible &= kernel->divisible ||
                     (kernel->class != WEIR_SCHED_KERNEL && kernel->class != WEIR_SCHED_GRAPH);
    }
    return index < BLOCKS ? true
           : index < PART
               ? divisible
               : index - PART < n_parts(self) &&
                     suits_part(self, couple, &tenant[0]->kernel, first) &&
                     suits_part(self, couple, &tenant[1]->kernel, self->config->sms - first);
}

/*
 * The place of the tenant with the smaller id, i = 0, or of the other one in a division. Kernels
 * that can be moved keep to their SMs by themselves, so they get a block limit, which means that
 * they need no part.
 */
static struct weir_sched_place place_in(const struct weir_policy *self, uint32_t division,
                                        uint32_t i, const struct weir_policy_tenant *const *pair)
{
    const struct weir_policy_tenant *tenant = pair[i];
    bool movable = pair[0]->kernel.movable && pair[1]->kernel.movable;
    uint32_t first, eighths, blocks;

    if (division >= PART) {
        first = (division - PART + 1) * self->config->part_step;
        return (struct weir_sched_place){.sm_first = i == 0 ? 0 : first,
                                         .sm_count = i == 0 ? first : self->config->sms - first,
                                         .block_limit = movable ? WEIR_POLICY_BLOCKS_MAX : 0};
    }
    if (division == BESIDE) {
        return (struct weir_sched_place){.block_limit = WEIR_POLICY_BLOCKS_MAX};
    }
    eighths = division - BLOCKS + 1;
    blocks = tenant->kernel.blocks_per_sm * (i == 0 ? eighths : EIGHTHS - eighths) / EIGHTHS;
    return (struct weir_sched_place){.block_limit = blocks != 0 ? blocks : 1};
}

/* ---- which kernels they run ---- */

static void begin(struct couple *couple, const struct weir_policy_tenant *const *tenant)
{
    double share[2];

    shares_of(tenant, share);
    *couple = (struct couple){.id = {tenant[0]->id, tenant[1]->id}, .fresh = true};
    /* Assume that in turns each tenant gets its share. They will show a little less. */
    couple->division[TURNS] =
        (struct division){.rate = {share[0], share[1]}, .square = 1, .windows = 1};
    couple->unsure = 1;
}

/* Make a couple in the place of the one that was not seen for longest. */
static struct couple *couple_new(struct corun *state,
                                 const struct weir_policy_tenant *const *tenant)
{
    struct couple *oldest = &state->couple[0];

    for (uint32_t i = 1; i < PAIRS; i++) {
        oldest = state->couple[i].seen_ns < oldest->seen_ns ? &state->couple[i] : oldest;
    }
    begin(oldest, tenant);
    return oldest;
}

static bool is_of(const struct couple *couple, const weir_sched_id *id)
{
    return couple->id[0] == id[0] && couple->id[1] == id[1];
}

/* The couple that these two are now: the one seen last, or a new one. */
static struct couple *couple_of(struct corun *state, const struct weir_policy_tenant *const *tenant)
{
    const weir_sched_id id[] = {tenant[0]->id, tenant[1]->id};
    struct couple *latest = NULL;

    if (state->now && is_of(state->now, id)) {
        return state->now;
    }
    for (uint32_t i = 0; i < PAIRS; i++) {
        struct couple *couple = &state->couple[i];

        if (is_of(couple, id) && (!latest || couple->seen_ns > latest->seen_ns)) {
            latest = couple;
        }
    }
    state->now = latest ? latest : couple_new(state, tenant);
    state->period = (struct period){0};
    return state->now;
}

/* Count a tenant's work since the last call as work of its current first kernel. The kernel that
 * has most votes in the end is that of most of the work, if there is one (Boyer and Moore, 1981).
 */
static void note_kernel(struct period *period, struct couple *couple, uint32_t i,
                        const struct weir_policy_kernel *kernel, uint64_t work_ns)
{
    double *votes = &period->votes[i], ns = (double)work_ns;

    if (kernel->class != WEIR_SCHED_KERNEL || kernel->predicted_ns == 0) {
        return;
    }
    if (!kernel->unsure || couple->usual_ns[i] == 0) {
        couple->usual_ns[i] += ((double)kernel->predicted_ns - couple->usual_ns[i]) /
                               (1 + couple->looks * (1 - couple->unsure));
    }
    period->work_ns[i] += ns;
    *votes += kernel->key == period->key[i] ? ns : -ns;
    if (*votes < 0) {
        *votes = -*votes;
        period->key[i] = kernel->key;
    }
}

/* Another couple of the same tenants, with these kernels; NULL: none. */
static struct couple *couple_with(struct corun *state, const uint64_t *key)
{
    for (uint32_t i = 0; i < PAIRS; i++) {
        struct couple *other = &state->couple[i];

        if (other != state->now && is_of(other, state->now->id) && other->named &&
            other->key[0] == key[0] && other->key[1] == key[1]) {
            return other;
        }
    }
    return NULL;
}

/* Go on with another couple of the same tenants. */
static void turn_to(struct corun *state, struct couple *other)
{
    struct couple *was = state->now;

    other->seen_ns = was->seen_ns;
    other->longest_ns = was->longest_ns;
    other->graphs_until_ns = was->graphs_until_ns;
    other->fresh = true;
    memcpy(other->work_ns, was->work_ns, sizeof other->work_ns);
    state->now = other;
}

/*
 * Look at the kernels that both ran in the period that is over. If two periods in a row were of the
 * same other kernels, they run something else: it is the turn of the couple that stands for that.
 */
static struct couple *look_what_they_run(struct corun *state,
                                         const struct weir_policy_tenant *const *tenant)
{
    struct couple *couple = state->now, *other;
    const struct period was = state->period;
    uint64_t *key = state->period.key;

    if (couple->seen_ns - was.from_ns < window_of(couple) || was.work_ns[0] == 0 ||
        was.work_ns[1] == 0) {
        return couple;
    }
    state->period = (struct period){.from_ns = couple->seen_ns};
    for (uint32_t i = 0; i < 2; i++) {
        key[i] = was.votes[i] > tuning.corun_changed * was.work_ns[i] ? was.key[i] : 0;
    }
    bool again = memcmp(key, state->last_key, sizeof state->last_key) == 0;
    memcpy(state->last_key, key, sizeof state->last_key);
    if (couple->named && memcmp(couple->key, key, sizeof couple->key) != 0) {
        couple->mixed = true;
        if (!again) {
            return couple;
        }
        other = couple_with(state, key);
        turn_to(state, other ? other : couple_new(state, tenant));
    }
    memcpy(state->now->key, key, sizeof state->now->key);
    state->now->named = true;
    return state->now;
}

/* ---- which division to try or use next ---- */

/* What a division is worth, as `worth` says; turns need no gain. */
static double value_of(const struct couple *couple, uint32_t index, const double *share)
{
    const struct division *d = &couple->division[index];

    return index == TURNS ? d->rate[0] + d->rate[1] : worth(d, share);
}

/* Find the most valuable division from `from` to `to` among those with enough windows; `from`: none
 * has. */
static uint32_t best_of(const struct weir_policy *self, const struct couple *couple,
                        const struct weir_policy_tenant *const *tenant, uint32_t from, uint32_t to,
                        const double *share, uint32_t windows)
{
    uint32_t best = from;
    double most = 0;

    for (uint32_t i = from; i < to; i++) {
        double value = value_of(couple, i, share);

        if ((couple->division[i].windows >= windows || i == TURNS) && value > most &&
            is_possible(self, couple, tenant, i)) {
            most = value;
            best = i;
        }
    }
    return best;
}

/*
 * Is this one of the divisions that are compared? Sizes of blocks and parts are searched from the
 * tenants' shares on: the neighbours of the best are tried. This finds the best, as the work done
 * has one maximum over the sizes.
 */
static bool is_compared(const struct weir_policy *self, const struct couple *couple,
                        const struct weir_policy_tenant *const *tenant, uint32_t index,
                        const double *share)
{
    bool part = index >= PART;
    uint32_t from = part ? PART : BLOCKS, to = part ? PART + n_parts(self) : PART, best;
    uint32_t first = (uint32_t)lround(share[0] * (to - from + 1));

    first = from + (first > 1 ? first - 1 : 0);
    if (!is_possible(self, couple, tenant, first)) {
        first = (from + to) / 2;
    }
    if (index < BLOCKS || couple->division[first].windows == 0) {
        return index < BLOCKS || index == first;
    }
    best = best_of(self, couple, tenant, from, to, share, 1);
    return index + 1 >= best && index <= best + 1;
}

/*
 * Does a division need more windows, since it may be better than the best? A program of many
 * kernels has phases, so the rates of its windows differ. The division gets windows until the
 * mean's error is below corun_error, unless it is worth less than the best by more than twice the
 * error.
 */
static bool is_open(const struct division *division, double value, double best)
{
    double mean = division->rate[0] + division->rate[1], error;

    if (division->windows < tuning.corun_trials) {
        return division->windows == 0 || value * (1 + tuning.clearly) > best;
    }
    error = sqrt(fmax(division->square - mean * mean, 0) / division->windows) / mean;
    return division->windows < tuning.corun_trials_most && error > tuning.corun_error &&
           value * (1 + 2 * error) > best * (1 + tuning.corun_error);
}

/* Choose the division to try next: the one tried now, if it is better than the best so far; among
 * the open ones, or else among all but turns, the one that was tried least; if there is none, the
 * best one. */
static uint32_t next_tried(const struct weir_policy *self, const struct couple *couple,
                           const struct weir_policy_tenant *const *tenant, const double *share,
                           bool *ret_is_open)
{
    double best = value_of(couple, couple->best, share);
    uint32_t next = couple->best;

    *ret_is_open = false;
    for (uint32_t i = 1; i < DIVISIONS; i++) {
        const struct division *d = &couple->division[i];
        double value = value_of(couple, i, share);
        bool open = is_open(d, value, best);

        if (!is_possible(self, couple, tenant, i) || !is_compared(self, couple, tenant, i, share)) {
            continue;
        }
        if (open && i == couple->now && value > best) {
            *ret_is_open = true;
            return i;
        }
        if (open != *ret_is_open ? open : d->windows < couple->division[next].windows) {
            next = i;
            *ret_is_open = open;
        }
    }
    return next;
}

/* Work that is on the device now still runs in the old division: note when it will have ended. */
static void settle(struct couple *couple, uint64_t now_ns)
{
    uint64_t ns = tuning.corun_settle_items * couple->longest_ns;

    couple->settled_ns = now_ns + (ns < tuning.corun_again_ns ? ns : tuning.corun_again_ns);
}

static void choose(struct weir_policy *self, struct couple *couple, uint64_t now_ns,
                   const struct weir_policy_tenant *const *tenant)
{
    uint32_t next, was = couple->best, used = couple->now;
    double share[2];
    bool is_new;

    if (couple->fresh) {
        couple->again_ns = now_ns + couple->pause_ns;
    }
    shares_of(tenant, share);
    couple->best = best_of(self, couple, tenant, TURNS, DIVISIONS, share, tuning.corun_trials);
    next = next_tried(self, couple, tenant, share, &is_new);
    couple->tries = next != couple->best && (is_new || now_ns >= couple->again_ns);
    couple->now = couple->tries ? next : couple->best;
    if (is_new || was != couple->best) {
        couple->pause_ns = tuning.corun_again_ns;
    }
    if (couple->tries) {
        couple->again_ns = now_ns + couple->pause_ns;
        couple->pause_ns =
            couple->pause_ns < tuning.barred_max_ns ? 2 * couple->pause_ns : tuning.barred_max_ns;
    }
    couple->settled_ns = 0;
    if (couple->now != used || couple->fresh) {
        settle(couple, now_ns);
    }
    couple->longest_ns -= couple->longest_ns / 4; /* a program may not have such items any more */
    couple->refused = 0;
    couple->window_ns = 0;
    couple->done_ns[0] = couple->done_ns[1] = 0;
    couple->alone = couple->mixed = couple->fresh = false;
}

/* End the window: add its rates to those of earlier ones. */
static void close_window(struct couple *couple)
{
    struct division *d = &couple->division[couple->now];
    double part, sum = 0;

    if (couple->mixed || couple->fresh) {
        return;
    }
    d->windows++;
    part = 1.0 / (d->windows < tuning.corun_trials_most ? d->windows : tuning.corun_trials_most);
    for (uint32_t i = 0; i < 2; i++) {
        double rate = (double)couple->done_ns[i] / (double)couple->window_ns;

        d->rate[i] += (rate - d->rate[i]) * part;
        sum += rate;
    }
    d->square += (sum * sum - d->square) * part;
}

static bool is_full(const struct couple *couple)
{
    return couple->fresh ||
           couple->window_ns >=
               window_of(couple) * (couple->now == TURNS ? tuning.corun_window_items : 1);
}

/* Count the time and work since the last call. */
static void count(struct corun *state, uint64_t now_ns,
                  const struct weir_policy_tenant *const *tenant)
{
    struct couple *couple = state->now;

    for (uint32_t i = 0; i < 2; i++) {
        uint64_t ns = tenant[i]->kernel.predicted_ns;

        couple->done_ns[i] += couple->counts ? tenant[i]->work_ns - couple->work_ns[i] : 0;
        note_kernel(&state->period, couple, i, &tenant[i]->kernel,
                    tenant[i]->work_ns - couple->work_ns[i]);
        couple->work_ns[i] = tenant[i]->work_ns;
        couple->longest_ns = ns > couple->longest_ns ? ns : couple->longest_ns;
    }
    couple->window_ns += couple->counts ? now_ns - couple->seen_ns : 0;
    couple->seen_ns = now_ns;
    couple->counts = false;
}

/* Are the kernels of both long enough, and do they have no graphs? */
static bool is_suited(struct couple *couple, uint64_t now_ns,
                      const struct weir_policy_tenant *const *tenant)
{
    if (tenant[0]->kernel.class == WEIR_SCHED_GRAPH ||
        tenant[1]->kernel.class == WEIR_SCHED_GRAPH) {
        couple->graphs_until_ns = now_ns + tuning.corun_graphs_ns;
    }
    return couple->named && now_ns >= couple->graphs_until_ns &&
           couple->usual_ns[0] >= tuning.corun_usual_min_ns &&
           couple->usual_ns[1] >= tuning.corun_usual_min_ns;
}

/* Find out how well the times of their kernels are known. */
static void look_how_sure(struct couple *couple, const struct weir_policy_tenant *const *tenant)
{
    bool unsure = tenant[0]->kernel.unsure || tenant[1]->kernel.unsure;

    couple->looks += couple->looks < tuning.corun_trials_most;
    couple->unsure += ((unsure ? 1 : 0) - couple->unsure) / couple->looks;
    couple->knows =
        couple->unsure < (couple->knows ? tuning.corun_unsure_again : tuning.corun_unsure);
}

/* Put both into the group, each at its place in the division. */
static void divide(const struct weir_policy *self, uint32_t division,
                   const struct weir_policy_tenant *const *tenant, uint32_t leader,
                   struct weir_policy_group *group)
{
    group->count = 2;
    group->member[1].ready = 1;
    for (uint32_t i = 0; i < 2; i++) {
        group->member[i == leader ? 0 : 1].place = place_in(self, division, i, tenant);
    }
}

/* Do only the two ready tenants have work? Puts the one with the smaller id first. */
static bool are_two(const struct weir_policy *self, const struct weir_policy_together_view *view,
                    const struct weir_policy_tenant **ret_tenant)
{
    const struct corun *state = self->state;
    uint32_t sms = self->config->sms;
    bool swapped = view->ready_count == 2 && view->ready[1]->id < view->ready[0]->id;

    if (view->now_ns < state->crowd_until_ns || view->now_ns < state->busy_from_ns ||
        view->ready_count != 2 || view->ready[0]->priority != view->ready[1]->priority ||
        view->ready[0]->sm_limit < sms || view->ready[1]->sm_limit < sms) {
        return false;
    }
    ret_tenant[0] = view->ready[swapped ? 1 : 0];
    ret_tenant[1] = view->ready[swapped ? 0 : 1];
    return true;
}

static void corun_together(struct weir_policy *self, const struct weir_policy_together_view *view,
                           struct weir_policy_group *group)
{
    struct corun *state = self->state;
    const struct weir_policy_tenant *tenant[2];
    uint64_t learns_ns, usual_ns;

    if (!are_two(self, view, tenant)) {
        return;
    }
    struct couple *couple = couple_of(state, tenant);
    learns_ns = couple->seen_ns;
    couple->learns &= !state->broke;
    couple->counts &= !state->broke;
    usual_ns =
        couple->longest_ns > tuning.corun_window_ns ? couple->longest_ns : tuning.corun_window_ns;
    if (view->now_ns - couple->seen_ns > 2 * usual_ns) { /* they were barred from groups */
        couple->counts = false;
        settle(couple, view->now_ns);
    }
    couple->alone &= !state->broke;
    state->broke = false;
    count(state, view->now_ns, tenant);
    look_how_sure(couple, tenant);
    couple = look_what_they_run(state, tenant);
    if (!is_suited(couple, view->now_ns, tenant)) {
        couple->alone = couple->learns = false;
        return;
    }
    if (!couple->knows &&
        couple->learned_ns < tuning.corun_learn_ns) { /* in turns alone the times are learned */
        couple->learned_ns += couple->learns ? view->now_ns - learns_ns : 0;
        couple->learns = true;
        group->valid_ns = tuning.corun_window_ns;
        group->hold_ns = tuning.wait_max_ns;
        group->quiet = true;
        return;
    }
    couple->learns = false;
    if (is_full(couple)) {
        close_window(couple);
        choose(self, couple, view->now_ns, tenant);
    }
    if (!is_possible(self, couple, tenant, couple->now)) {
        /* Refuse for these kernels. The window continues with the next ones, unless this lasts
         * long. */
        if (++couple->refused == tuning.corun_trials_most) {
            choose(self, couple, view->now_ns, tenant);
        }
        return;
    }
    couple->refused = 0;
    couple->alone = couple->now != TURNS && !couple->tries &&
                    tenant[0]->weight != tenant[1]->weight &&
                    view->behind_ns > (couple->alone ? 0 : (int64_t)tuning.lag_ns);
    if (couple->alone) {
        couple->mixed = true;
        group->valid_ns = tuning.lag_ns / 2;
        group->hold_ns = tuning.wait_max_ns;
        group->by_work = true;
        return;
    }
    couple->counts = view->now_ns >= couple->settled_ns;
    if (couple->now != TURNS) {
        divide(self, couple->now, tenant, tenant[0] == view->ready[0] ? 0 : 1, group);
        group->sample = couple->tries;
        group->hold_ns = tuning.wait_max_ns;
        group->by_work = tenant[0]->weight != tenant[1]->weight;
        group->valid_ns =
            couple->counts ? tuning.corun_window_ns : couple->settled_ns - view->now_ns;
    }
}

/* ---- the policy ---- */

const struct weir_policy_ops weir_policy_corun = {
    .name = "corun",
    .kind = WEIR_POLICY_TOGETHER,
    .state_bytes = sizeof(struct corun),
    .left = corun_left,
    .ready = corun_ready,
    .idle = corun_idle,
    .together = corun_together,
};
