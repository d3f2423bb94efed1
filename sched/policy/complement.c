/*
 * complement: kernels that use different resources share the device, on disjoint ranges of SMs.
 *
 * Slate labels kernels by compute and memory intensity and looks up in a table which pairs gain by
 * running at the same time; others run alone. A kernel that saturates the memory does not get
 * slower when it gives some of its SMs away, one that computes gets slower by just these: together
 * they have more than one after the other. Whoever arrives or leaves, the ranges are adjusted.
 *
 * There are no hardware counters for this while programs run (and reading them would disturb
 * them), so a kernel's class is how it scales: at its first runs it gets half of the SMs, with
 * another kernel that is to be looked at on the other half, and
 *
 *     speed on half    class        as in Slate
 *     fits in half     small        low compute, low memory: leaves SMs idle anyway
 *     below 0.62       scales       compute
 *     below 0.85       partial      medium memory
 *     else             saturates    high memory
 *
 * (speed: time alone on all SMs / time there). The best speed beside any partner counts: a kernel
 * that saturates the memory looks as if it scaled beside another such, and is recognized beside one
 * that does not. So a class other than `saturates` counts only after two partners. The table is
 * Slate's Table I, without the rows that scaling cannot tell apart:
 *
 *                  small   scales   partial   saturates
 *     small        yes     yes      yes       yes
 *     scales       yes     no       yes       yes
 *     partial      yes     yes      no        no
 *     saturates    yes     yes      no        no
 *
 * What differs:
 *
 * - The table says which pairs are tried; whether a pair goes on is measured. Its gain is the sum
 * of both speeds (1: as fast as one after the other; Slate's ANTT, T' < T, for two that are always
 *   there). Below MIN_GAIN it runs alone, and is tried again after PAIR_AGAIN questions.
 * - Slate does not say how it divides the SMs. Here a division starts where the small one has what
 *   it needs, else at halves, and moves by an eighth as long as the measured gain rises.
 * - Two share, both of the leader's class: a lower class would slow a higher one down, which
 *   `priority` promises not to.
 * - `fair` charges SMs, not speed: of a pair each pays for the range it has.
 *
 * Source: Slate (IPDPS 2019) III-B (selection, Table I), III-C (resizing)
 */
#include "sched/policy/pair.h"

#define KERNELS    1024u /* slots; a new kernel replaces one with the same hash */
#define PAIRS      1024u
#define SCALES     0.62 /* halved SMs leave 0.5, and more with the cost of launching */
#define PARTIAL    0.85
#define MIN_GAIN   1.03
#define BETTER     1.01 /* a division is taken if its gain is so many times the best */
#define STEPS      8u   /* a step is an eighth of the SMs */
#define MUCH       1.05 /* with a smaller ratio of gains the longest wait decides */
#define UNTRIED    3.0  /* more than any gain: unknown pairs go first */
#define EXPECTED   1.3  /* assumed gain of a pair that the table allows; better ones are kept */
#define WEIGHT_OLD 0.75 /* for moving means of a running pair's speeds */

struct known_kernel {
    uint64_t key;
    double solo_ns;    /* time of a block alone on all SMs; 0: not seen */
    double half_speed; /* best speed seen on half of the SMs; 0: not seen */
    uint64_t beside;   /* key of its first partner on halves */
    bool surely;       /* it has had another partner, too */
};

/* A pair of kernels. The one with the smaller key is the first, and has the SMs from 0 on. */
struct known_pair {
    uint64_t key[2];
    uint32_t sms;      /* SMs of the first in the present division */
    double speed[2];   /* speeds measured there; 0: not yet */
    uint32_t best_sms; /* best division so far; 0: none measured */
    double best_gain;
    int32_t step;   /* next change of sms; 0: settled */
    uint32_t asked; /* questions since a new measure or, if refused, since then */
    bool turned;    /* the search has changed its direction */
    bool refused;
};

struct complement {
    struct pair_brake brake;
    struct known_kernel kernel[KERNELS];
    struct known_pair pair[PAIRS];
};

enum scaling { SMALL, SCALING, PARTLY, SATURATING, UNKNOWN };

static struct known_kernel *kernel_slot(struct complement *state, uint64_t key)
{
    return &state->kernel[weir_hash_slot(key, KERNELS)];
}

static struct known_pair *pair_slot(struct complement *state, uint64_t a, uint64_t b)
{
    return &state->pair[weir_hash_slot(pair_key(a, b), PAIRS)];
}

/* ---- what is measured ---- */

static uint32_t step_of(const struct weir_policy *self)
{
    return self->config->sms >= STEPS ? self->config->sms / STEPS : 1;
}

static bool is_division(const struct weir_policy *self, int64_t sms)
{
    return sms >= (int64_t)step_of(self) && sms <= (int64_t)(self->config->sms - step_of(self));
}

/* The last step gave no gain: search in the other direction, once, and then settle. */
static void pair_turn(struct known_pair *pair)
{
    pair->step = pair->turned ? 0 : -pair->step;
    pair->turned = true;
}

/* Both kernels were measured at a division: choose the next division. */
static void pair_move(const struct weir_policy *self, struct known_pair *pair)
{
    double gain = pair->speed[0] + pair->speed[1];
    uint32_t next;

    if (pair->sms == pair->best_sms) { /* settled, and measured again */
        pair->best_gain = gain;
    } else if (gain > pair->best_gain * BETTER) {
        pair->best_gain = gain;
        pair->best_sms = pair->sms;
    } else {
        pair_turn(pair);
    }
    while (pair->step != 0 && !is_division(self, (int64_t)pair->best_sms + pair->step)) {
        pair_turn(pair);
    }
    if (pair->step == 0) {
        pair->refused = pair->best_gain < MIN_GAIN;
    }
    next = (uint32_t)((int64_t)pair->best_sms + pair->step);
    if (next != pair->sms) {
        pair->sms = next;
        pair->speed[0] = pair->speed[1] = 0;
    }
}

/* A division cannot be measured: settle for the best one known. */
static void pair_settle(struct known_pair *pair)
{
    pair->step = 0;
    pair->asked = 0;
    pair->refused = pair->best_gain < MIN_GAIN;
    pair->sms = pair->best_sms != 0 ? pair->best_sms : pair->sms;
}

static void learn_pair(const struct weir_policy *self, const struct weir_policy_measure *measure,
                       double speed)
{
    struct complement *state = self->state;
    struct known_pair *pair = pair_slot(state, measure->key, measure->partner_key);
    uint32_t side = measure->key > measure->partner_key;
    bool both = measure->key == measure->partner_key;

    if (pair->key[side] != measure->key || pair->key[1 - side] != measure->partner_key) {
        return;
    }
    if ((side == 0 ? measure->sm_count : measure->partner_sm_count) != pair->sms && !both) {
        return;
    }
    if (pair->speed[side] == 0) { /* only a kernel not measured yet is progress */
        pair->asked = 0;
    }
    for (uint32_t i = side; i <= (both ? 1 : side); i++) {
        pair->speed[i] =
            pair->speed[i] == 0 ? speed : WEIGHT_OLD * pair->speed[i] + (1 - WEIGHT_OLD) * speed;
    }
    pair_learned(&state->brake);
    if (pair->speed[0] > 0 && pair->speed[1] > 0) {
        pair_move(self, pair);
    }
}

static void complement_measured(struct weir_policy *self, const struct weir_policy_measure *measure)
{
    struct known_kernel *kernel = kernel_slot(self->state, measure->key);
    double speed;

    if (measure->block_limit != 0) {
        return;
    }
    if (kernel->key != measure->key) {
        *kernel = (struct known_kernel){.key = measure->key};
    }
    if (measure->partner_key == 0) {
        kernel->solo_ns = measure->sm_count == 0 ? measure->block_ns : kernel->solo_ns;
        return;
    }
    if (kernel->solo_ns == 0 || measure->block_ns <= 0 ||
        measure->sm_count + measure->partner_sm_count != self->config->sms) {
        return;
    }
    speed = kernel->solo_ns / measure->block_ns;
    if (measure->sm_count == self->config->sms / 2 ||
        measure->partner_sm_count == self->config->sms / 2) {
        kernel->half_speed = speed > kernel->half_speed ? speed : kernel->half_speed;
        kernel->surely |= kernel->beside != 0 && kernel->beside != measure->partner_key;
        kernel->beside = kernel->beside != 0 ? kernel->beside : measure->partner_key;
    }
    learn_pair(self, measure, speed);
}

/* ---- which kernels run beside each other ---- */

static enum scaling scaling_of(struct weir_policy *self, const struct weir_policy_kernel *kernel)
{
    struct known_kernel *known = kernel_slot(self->state, kernel->key);

    if (kernel->need_sms <= self->config->sms / 2) {
        return SMALL;
    }
    if (known->key != kernel->key || known->half_speed == 0 ||
        (known->half_speed < PARTIAL && !known->surely)) {
        return UNKNOWN;
    }
    return known->half_speed < SCALES ? SCALING : known->half_speed < PARTIAL ? PARTLY : SATURATING;
}

static bool table_says(enum scaling a, enum scaling b)
{
    static const bool table[4][4] = {
        {true, true, true, true},
        {true, false, true, true},
        {true, true, false, false},
        {true, true, false, false},
    };

    return table[a][b];
}

/* Is the kernel's time alone known, to compare with? Makes its slot. */
static bool has_solo(struct weir_policy *self, const struct weir_policy_kernel *kernel)
{
    struct known_kernel *known = kernel_slot(self->state, kernel->key);

    if (known->key != kernel->key) {
        *known = (struct known_kernel){.key = kernel->key};
    }
    if (known->solo_ns == 0) {
        known->solo_ns = pair_solo_ns(kernel);
    }
    return known->solo_ns > 0;
}

/* The first division of a pair: the SMs that a small kernel needs, else halves. */
static uint32_t first_sms(const struct weir_policy *self, const struct weir_policy_kernel *first,
                          const struct weir_policy_kernel *second)
{
    uint32_t sms = self->config->sms;

    if (first->need_sms <= sms / 2) {
        return first->need_sms;
    }
    return second->need_sms <= sms / 2 ? sms - second->need_sms : sms - sms / 2;
}

static struct known_pair *pair_of(struct weir_policy *self, const struct weir_policy_kernel *a,
                                  const struct weir_policy_kernel *b)
{
    struct known_pair *pair = pair_slot(self->state, a->key, b->key);
    const struct weir_policy_kernel *first = a->key <= b->key ? a : b;
    const struct weir_policy_kernel *second = a->key <= b->key ? b : a;

    if (pair->key[0] != first->key || pair->key[1] != second->key) {
        *pair = (struct known_pair){.key = {first->key, second->key},
                                    .sms = first_sms(self, first, second),
                                    .step = (int32_t)step_of(self)};
        if (first->key == second->key) { /* halves suit identical kernels */
            pair->step = 0;
            pair->sms = self->config->sms / 2;
        }
    }
    return pair;
}

/* The gain with a partner: 0 none, 1 and more; UNTRIED if the pair is to be tried first. */
static double gain_of(struct weir_policy *self, const struct weir_policy_tenant *leader,
                      const struct weir_policy_tenant *other, struct known_pair **ret_pair)
{
    enum scaling a = scaling_of(self, &leader->kernel);
    enum scaling b = scaling_of(self, &other->kernel);
    bool unknown = a == UNKNOWN || b == UNKNOWN;
    struct known_pair *pair;

    if (!has_solo(self, &other->kernel) || (!unknown && !table_says(a, b))) {
        return 0;
    }
    pair = pair_of(self, &leader->kernel, &other->kernel);
    if (pair->asked > PAIR_PATIENCE && !pair->refused) {
        pair_settle(pair);
    }
    if (pair->refused && ++pair->asked < PAIR_AGAIN) {
        return 0;
    }
    if (pair->refused) {
        *pair = (struct known_pair){0};
        pair = pair_of(self, &leader->kernel, &other->kernel);
    }
    *ret_pair = pair;
    return pair->best_sms != 0 ? pair->best_gain : unknown ? UNTRIED : EXPECTED;
}

static void share(const struct weir_policy *self, const struct weir_policy_together_view *view,
                  uint32_t index, struct known_pair *pair, struct weir_policy_group *group)
{
    const struct weir_policy_tenant *leader = view->ready[0];
    const struct weir_policy_tenant *other = view->ready[index];
    bool leads = leader->kernel.key != other->kernel.key ? leader->kernel.key < other->kernel.key
                                                         : leader->id < other->id;
    struct weir_sched_place first = {.sm_count = pair->sms};
    struct weir_sched_place second = {.sm_first = pair->sms,
                                      .sm_count = self->config->sms - pair->sms};

    group->count = 2;
    group->member[0].place = leads ? first : second;
    group->member[1].ready = index;
    group->member[1].place = leads ? second : first;
    if (pair->step != 0 || pair->best_sms == 0) {
        group->sample = true;
        group->valid_ns = pair_sample_ns(leader, other);
        pair->asked++;
    }
}

static void complement_together(struct weir_policy *self,
                                const struct weir_policy_together_view *view,
                                struct weir_policy_group *group)
{
    const struct weir_policy_tenant *leader = view->ready[0];
    struct known_pair *best = NULL;
    uint32_t best_index = 0;
    double best_gain = 0;

    if (self->config->sms < 2 || !pair_is_able(self, leader) || !has_solo(self, &leader->kernel)) {
        return;
    }
    for (uint32_t i = 1; i < view->ready_count; i++) {
        struct known_pair *pair = NULL;
        double gain;

        if (view->ready[i]->priority != leader->priority || !pair_is_able(self, view->ready[i])) {
            continue;
        }
        gain = gain_of(self, leader, view->ready[i], &pair);
        if (gain > best_gain * MUCH ||
            (gain > best_gain / MUCH &&
             view->ready[i]->waiting_since_ns < view->ready[best_index]->waiting_since_ns)) {
            best = pair;
            best_index = i;
            best_gain = gain;
        }
    }
    if (best) {
        share(self, view, best_index, best, group);
        pair_limit(&((struct complement *)self->state)->brake, group);
    }
}

const struct weir_policy_ops weir_policy_complement = {
    .name = "complement",
    .kind = WEIR_POLICY_TOGETHER,
    .state_bytes = sizeof(struct complement),
    .measured = complement_measured,
    .together = complement_together,
};
