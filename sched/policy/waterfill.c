/*
 * waterfill: two kernels on the same SMs, each with as many blocks on each as costs both least.
 *
 * Warped-Slicer measures each kernel's performance against its blocks per SM: a kernel that
 * computes gains with each block, one that waits for memory or is short of cache has its best with
 * few. Then it fills an SM as water finds its level: each kernel has one block, and as long as
 * there is room, the one that is farthest from its best gets as many more as make it better
 * (Algorithm 1). When one of K kernels would still lose more than 120 % / K, they get disjoint SMs
 * instead, in equal parts.
 *
 *     performance   memory  .____________       SM of 8 blocks:   c c c c c m m m
 *      1 |                 /        . '         c: 5/8 = 0.63
 *        |                /   . '  compute      m: 3/4 = 0.75
 *        |               /. '
 *        +--1--2--3--4--5--6--7--8 blocks
 *
 * What differs:
 *
 * - The paper gives SM 0 one block, SM 1 two and so on, and compares their instructions per cycle
 *   after 5000 cycles. Here nothing is counted but the time of whole kernels: each of two has half
 *   of the SMs, and all, half and a quarter of its blocks in turn; between these points the curve
 * is straight. Kernels of more than about ten milliseconds are not sampled: group_account.c ends
 * trials that cost more.
 * - Correcting a sample for the memory bandwidth that the others use (its equation for psi) takes
 *   counters. Samples are compared with samples only, so that what distorts all alike falls out.
 * - Of a block it is known how many fit, not which of registers, shared memory or threads is short:
 *   it takes 1/blocks of an SM. Two kernels that are short of different things would fit better.
 * - The curves are of each kernel alone on its SMs, and do not say what one does to the other
 * there. So the division that they give is where a search begins: one block more for the one, and
 * as many fewer for the other as that takes, as long as both together get faster; else the other
 * way.
 * - The paper never asks whether sharing was good. Here the gain of a pair, the sum of both speeds
 *   (time alone / time there), is measured: below MIN_GAIN it goes to disjoint halves, and when
 * that is no better, one after the other; after PAIR_AGAIN questions it is tried again.
 * - Two at a time: what three do to each other cannot be measured. The division takes any number.
 *
 * Source: Warped-Slicer (ISCA 2016) IV (Algorithm 1, threshold), IV-A (profiling)
 */
#include "sched/policy/waterfill.h"
#include "sched/policy/pair.h"

#define KERNELS  256u
#define PAIRS    1024u
#define POINTS   3u /* samples of a curve: all blocks, half of them, a quarter */
#define LIMIT    1.2
#define MIN_GAIN 1.02
#define TRIED    4u /* samples of each kernel before divisions are compared; the first is ignored */
#define BETTER   1.02 /* a division is better if its gain is so many times the best */
#define UNTRIED  10.0 /* more than any gain: unknown pairs go first */

/* ---- Algorithm 1 ---- */

/* The steps up of a kernel's curve: numbers of blocks that are faster than all smaller ones. */
struct steps {
    double best[WATERFILL_BLOCKS_MAX];
    uint32_t blocks[WATERFILL_BLOCKS_MAX];
    uint32_t count, at;
    bool full;
};

static void steps_make(const struct waterfill_curve *curve, struct steps *steps)
{
    double most = 0;

    *steps = (struct steps){.count = 0};
    for (uint32_t j = 1; j <= curve->blocks; j++) {
        if (curve->performance[j] > most || steps->count == 0) {
            most = curve->performance[j];
            steps->best[steps->count] = most;
            steps->blocks[steps->count++] = j;
        }
    }
}

/* The performance at the present step, as a part of the best. */
static double level(const struct steps *steps)
{
    double most = steps->best[steps->count - 1];

    return most > 0 ? steps->best[steps->at] / most : 1;
}

static uint32_t lowest(const struct steps *steps, uint32_t count)
{
    uint32_t low = count;

    for (uint32_t i = 0; i < count; i++) {
        if (!steps[i].full && steps[i].at + 1 < steps[i].count &&
            (low == count || level(&steps[i]) < level(&steps[low]))) {
            low = i;
        }
    }
    return low;
}

bool waterfill_divide(const struct waterfill_curve *const *curves, uint32_t count,
                      uint32_t *ret_blocks, double *ret_kept)
{
    struct steps steps[WATERFILL_KERNELS_MAX];
    double left = 1 + 1e-9; /* free part of an SM; the excess lets three thirds fit */
    uint32_t low;

    for (uint32_t i = 0; i < count; i++) {
        steps_make(curves[i], &steps[i]);
        left -= steps[i].blocks[0] / (double)curves[i]->blocks;
    }
    if (left < 0) {
        return false;
    }
    while ((low = lowest(steps, count)) < count) {
        struct steps *s = &steps[low];
        double more = (s->blocks[s->at + 1] - s->blocks[s->at]) / (double)curves[low]->blocks;

        if (more <= left) {
            left -= more;
            s->at++;
        } else {
            s->full = true;
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        ret_blocks[i] = steps[i].blocks[steps[i].at];
        ret_kept[i] = level(&steps[i]);
    }
    return true;
}

bool waterfill_is_tolerable(const double *kept, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (1 - kept[i] > LIMIT / count) {
            return false;
        }
    }
    return true;
}

/* ---- measures ---- */

struct known_kernel {
    uint64_t key;
    double solo_ns;       /* time of a block alone on all SMs; 0: not known */
    double speed[POINTS]; /* on half of the SMs, blocks per ns and SM; 0: not sampled */
    uint32_t blocks;      /* how many fit on an SM */
    uint32_t asked;       /* questions since the last measure */
};

enum mode { SAME_SMS, APART, REFUSED };
enum way { FIRST_MORE, SECOND_MORE, SEARCHED };

struct division {
    uint32_t block_limit[2];
    double speed[2]; /* time alone / time there; 0: not measured */
};

/* The search for a better division. */
struct search {
    struct division best; /* best division so far */
    enum way way;
    bool moved; /* a step in this direction was better */
    /* Samples of the division that is tried now. */
    uint32_t samples[2];
    double block_ns[2]; /* sum without the first sample */
};

/* A pair of kernels. The one with the smaller key is the first. */
struct known_pair {
    uint64_t key[2];
    struct division now;
    double expected; /* sum of both speeds by their curves */
    enum mode mode;
    struct search search;
    uint32_t asked;
};

struct waterfill {
    struct pair_brake brake;
    struct known_kernel kernel[KERNELS];
    struct known_pair pair[PAIRS];
};

static struct known_kernel *kernel_slot(struct waterfill *state, uint64_t key)
{
    return &state->kernel[weir_hash_slot(key, KERNELS)];
}

static struct known_pair *pair_slot(struct waterfill *state, uint64_t a, uint64_t b)
{
    return &state->pair[weir_hash_slot(pair_key(a, b), PAIRS)];
}

static uint32_t point_blocks(uint32_t blocks, uint32_t point)
{
    return blocks >> point > 0 ? blocks >> point : 1;
}

static void learn_point(struct known_kernel *kernel, const struct weir_policy_measure *measure)
{
    for (uint32_t i = 0; i < POINTS; i++) {
        if (point_blocks(kernel->blocks, i) == measure->block_limit) {
            kernel->speed[i] = 1 / (measure->block_ns * measure->sm_count);
            kernel->asked = 0;
        }
    }
}

static bool is_as_told(const struct known_pair *pair, const struct weir_policy_measure *measure,
                       uint32_t side)
{
    if (pair->key[side] != measure->key || pair->key[1 - side] != measure->partner_key) {
        return false;
    }
    if (pair->mode == SAME_SMS) {
        return measure->sm_count == 0 && measure->block_limit == pair->now.block_limit[side] &&
               measure->partner_block_limit == pair->now.block_limit[1 - side];
    }
    return pair->mode == APART && measure->sm_count != 0 && measure->block_limit == 0;
}

/* Are both kernels' speeds in the division known? */
static bool is_measured(const struct division *division)
{
    return division->speed[0] > 0 && division->speed[1] > 0;
}

static double together(const struct division *division)
{
    return division->speed[0] + division->speed[1];
}

static bool is_searched(const struct known_pair *pair)
{
    return pair->mode == SAME_SMS && pair->search.way != SEARCHED;
}

/* Try a division with one more block for one kernel, and for the other what fits beside it. */
static bool take_step(struct waterfill *state, struct known_pair *pair)
{
    const struct search *search = &pair->search;
    uint32_t more = search->way == FIRST_MORE ? 0 : 1;
    uint32_t blocks[2], block_limit, left;

    for (int i = 0; i < 2; i++) {
        const struct known_kernel *kernel = kernel_slot(state, pair->key[i]);

        if (kernel->key != pair->key[i]) {
            return false;
        }
        blocks[i] = kernel->blocks;
    }
    block_limit = search->best.block_limit[more] + 1;
    if (block_limit >= blocks[more]) {
        return false;
    }
    left = (blocks[more] - block_limit) * blocks[1 - more] / blocks[more];
    left = left < search->best.block_limit[1 - more] ? left : search->best.block_limit[1 - more];
    if (left == 0) {
        return false;
    }
    pair->now = (struct division){0};
    pair->now.block_limit[more] = block_limit;
    pair->now.block_limit[1 - more] = left;
    return true;
}

static void search_end(struct known_pair *pair)
{
    pair->search.way = SEARCHED;
    pair->now = pair->search.best;
}

static void turn_round(struct search *search)
{
    search->way = search->moved ? SEARCHED : search->way + 1;
}

/* The division was measured: keep it if it is the best so far, and choose the next one. */
static void search_on(struct waterfill *state, struct known_pair *pair)
{
    struct search *search = &pair->search;
    double best = together(&search->best);

    if (together(&pair->now) > best * BETTER) {
        search->moved = best > 0;
        search->best = pair->now;
    } else {
        turn_round(search);
    }
    while (search->way < SEARCHED && !take_step(state, pair)) {
        turn_round(search);
    }
    if (search->way == SEARCHED) {
        search_end(pair);
        return;
    }
    search->samples[0] = search->samples[1] = 0;
    search->block_ns[0] = search->block_ns[1] = 0;
}

/* Take a measure of a kernel in the division that is tried. */
static void learn_division(struct waterfill *state, struct known_pair *pair, uint32_t side,
                           double block_ns)
{
    struct search *search = &pair->search;

    if (search->samples[side] <= search->samples[1 - side]) {
        pair->asked = 0; /* only the kernel with fewer samples is progress */
    }
    search->block_ns[side] += search->samples[side] > 0 ? block_ns : 0;
    search->samples[side]++;
    if (search->samples[0] < TRIED || search->samples[1] < TRIED) {
        return;
    }
    for (int i = 0; i < 2; i++) {
        const struct known_kernel *kernel = kernel_slot(state, pair->key[i]);

        if (kernel->key == pair->key[i]) {
            pair->now.speed[i] = kernel->solo_ns * (search->samples[i] - 1) / search->block_ns[i];
        }
    }
    search_on(state, pair);
}

static void learn_pair(struct waterfill *state, const struct weir_policy_measure *measure,
                       double speed)
{
    struct known_pair *pair = pair_slot(state, measure->key, measure->partner_key);
    uint32_t side = measure->key > measure->partner_key;

    if (!is_as_told(pair, measure, side)) {
        return;
    }
    pair_learned(&state->brake);
    if (is_searched(pair)) {
        learn_division(state, pair, side, measure->latest_block_ns);
        if (is_searched(pair)) {
            return;
        }
    } else {
        if (pair->now.speed[side] == 0) {
            pair->asked = 0;
        }
        pair->now.speed[side] = speed;
        if (measure->key == measure->partner_key) {
            pair->now.speed[1] = speed;
        }
    }
    if (is_measured(&pair->now) && together(&pair->now) < MIN_GAIN) {
        pair->mode++;
        pair->now.speed[0] = pair->now.speed[1] = 0;
    }
}

static void waterfill_measured(struct weir_policy *self, const struct weir_policy_measure *measure)
{
    struct waterfill *state = self->state;
    struct known_kernel *kernel = kernel_slot(state, measure->key);

    if (kernel->key != measure->key || measure->block_ns <= 0) {
        return;
    }
    if (measure->partner_key == 0) {
        if (measure->sm_count == 0 && measure->block_limit == 0) {
            kernel->solo_ns = measure->block_ns;
        }
    } else if (measure->sm_count != 0 && measure->block_limit != 0) {
        learn_point(kernel, measure);
        pair_learned(&state->brake);
    } else if (kernel->solo_ns > 0) {
        learn_pair(state, measure, kernel->solo_ns / measure->block_ns);
    }
}

/* ---- which kernels run beside each other ---- */

/* Find or make a kernel's slot; NULL: the kernel cannot share. */
static struct known_kernel *kernel_of(struct weir_policy *self,
                                      const struct weir_policy_tenant *tenant)
{
    const struct weir_policy_kernel *kernel = &tenant->kernel;
    struct known_kernel *known;

    if (!pair_is_able(self, tenant) || kernel->blocks_per_sm == 0 ||
        kernel->blocks_per_sm > WATERFILL_BLOCKS_MAX) {
        return NULL;
    }
    known = kernel_slot(self->state, kernel->key);
    if (known->key != kernel->key || known->blocks != kernel->blocks_per_sm) {
        *known = (struct known_kernel){.key = kernel->key, .blocks = kernel->blocks_per_sm};
    }
    if (known->solo_ns == 0) {
        known->solo_ns = pair_solo_ns(kernel);
    }
    return known->solo_ns > 0 ? known : NULL;
}

/* The next point to sample; POINTS: none. */
static uint32_t missing(const struct known_kernel *kernel)
{
    uint32_t i = 0;

    while (i < POINTS && kernel->speed[i] > 0) {
        i++;
    }
    return i;
}

/* Make the curve of straight lines through the samples and zero. */
static void curve_of(const struct known_kernel *kernel, struct waterfill_curve *ret_curve)
{
    uint32_t from = 0;
    double from_speed = 0;

    ret_curve->blocks = kernel->blocks;
    for (uint32_t i = POINTS; i-- > 0;) {
        uint32_t to = point_blocks(kernel->blocks, i);

        for (uint32_t j = from + 1; j <= to; j++) {
            ret_curve->performance[j] =
                from_speed + (kernel->speed[i] - from_speed) * (j - from) / (to - from);
        }
        from = to;
        from_speed = kernel->speed[i];
    }
}

static struct known_pair *pair_of(struct weir_policy *self, const struct known_kernel *a,
                                  const struct known_kernel *b)
{
    struct known_pair *pair = pair_slot(self->state, a->key, b->key);
    const struct known_kernel *kernel[] = {a->key <= b->key ? a : b, a->key <= b->key ? b : a};
    struct waterfill_curve curve[2];
    const struct waterfill_curve *const curves[] = {&curve[0], &curve[1]};
    double kept[2];

    if (pair->key[0] == kernel[0]->key && pair->key[1] == kernel[1]->key) {
        return pair;
    }
    *pair = (struct known_pair){.key = {kernel[0]->key, kernel[1]->key}};
    for (int i = 0; i < 2; i++) {
        curve_of(kernel[i], &curve[i]);
    }
    if (waterfill_divide(curves, 2, pair->now.block_limit, kept) &&
        waterfill_is_tolerable(kept, 2)) {
        pair->expected = kept[0] + kept[1];
    } else {
        pair->mode = APART;
        pair->expected = 1;
    }
    if (a->key == b->key) { /* identical kernels have equal parts */
        pair->now.block_limit[0] = pair->now.block_limit[1] =
            pair->now.block_limit[0] < pair->now.block_limit[1] ? pair->now.block_limit[0]
                                                                : pair->now.block_limit[1];
        pair->search.way = SEARCHED;
    }
    return pair;
}

/* The gain of two sampled kernels together; 0: none. */
static double measured_gain(struct weir_policy *self, const struct known_kernel *a,
                            const struct known_kernel *b)
{
    struct known_pair *pair = pair_of(self, a, b);
    bool measured = is_measured(&pair->now);

    if (!measured && pair->asked > PAIR_PATIENCE && is_searched(pair) &&
        is_measured(&pair->search.best)) {
        search_end(pair);
        measured = true;
    } else if (pair->mode != REFUSED && !measured && pair->asked > PAIR_PATIENCE) {
        pair->mode = REFUSED;
        pair->asked = 0;
    }
    if (pair->mode == REFUSED) {
        if (++pair->asked < PAIR_AGAIN) {
            return 0;
        }
        pair->key[0] = pair->key[1] = 0;
        pair = pair_of(self, a, b);
    }
    return measured ? together(&pair->now) : pair->expected;
}

static bool can_sample(struct known_kernel *kernel)
{
    return missing(kernel) == POINTS || pair_is_patient(&kernel->asked);
}

static double gain_of(struct weir_policy *self, struct known_kernel *a, struct known_kernel *b)
{
    if (!can_sample(a) || !can_sample(b)) {
        return 0;
    }
    if (missing(a) < POINTS || missing(b) < POINTS) {
        return UNTRIED;
    }
    return measured_gain(self, a, b);
}

/* Length of a sample: with a quarter of its blocks on half of the SMs a kernel takes eight times as
 * long. */
static uint64_t sample_ns(const struct weir_policy_tenant *a, const struct weir_policy_tenant *b)
{
    return 4 * pair_sample_ns(a, b);
}

static void take_samples(const struct weir_policy *self,
                         const struct weir_policy_together_view *view, uint32_t index,
                         struct known_kernel *const *kernel, struct weir_policy_group *group)
{
    pair_halves(self, view, index, group);
    for (int i = 0; i < 2; i++) {
        uint32_t point = missing(kernel[i]);

        group->member[i].place.block_limit =
            point_blocks(kernel[i]->blocks, point < POINTS ? point : 0);
        kernel[i]->asked += point < POINTS;
    }
    group->sample = true;
    group->valid_ns = sample_ns(view->ready[0], view->ready[index]);
}

static void share(struct weir_policy *self, const struct weir_policy_together_view *view,
                  uint32_t index, struct known_kernel *const *kernel,
                  struct weir_policy_group *group)
{
    struct known_pair *pair;

    group->count = 2;
    group->member[1].ready = index;
    if (missing(kernel[0]) < POINTS || missing(kernel[1]) < POINTS) {
        take_samples(self, view, index, kernel, group);
        return;
    }
    pair = pair_of(self, kernel[0], kernel[1]);
    if (pair->mode == SAME_SMS) {
        bool first = kernel[0]->key <= kernel[1]->key;

        group->member[0].place =
            (struct weir_sched_place){.block_limit = pair->now.block_limit[first ? 0 : 1]};
        group->member[1].place =
            (struct weir_sched_place){.block_limit = pair->now.block_limit[first ? 1 : 0]};
    } else {
        pair_halves(self, view, index, group);
    }
    if (!is_measured(&pair->now) || is_searched(pair)) {
        group->sample = true;
        group->valid_ns = sample_ns(view->ready[0], view->ready[index]);
        pair->asked++;
    }
}

static void waterfill_together(struct weir_policy *self,
                               const struct weir_policy_together_view *view,
                               struct weir_policy_group *group)
{
    const struct weir_policy_tenant *leader = view->ready[0];
    struct known_kernel *kernel[2] = {kernel_of(self, leader), NULL};
    uint32_t best_index = 0;
    double best = 0;

    if (self->config->sms < 2 || !kernel[0]) {
        return;
    }
    for (uint32_t i = 1; i < view->ready_count; i++) {
        struct known_kernel *other =
            view->ready[i]->priority == leader->priority ? kernel_of(self, view->ready[i]) : NULL;
        double gain = other && (other != kernel[0] || other->key == leader->kernel.key)
                          ? gain_of(self, kernel[0], other)
                          : 0;

        if (gain > best) {
            best = gain;
            best_index = i;
            kernel[1] = other;
        }
    }
    if (kernel[1] && kernel[0]->key == leader->kernel.key &&
        kernel[1]->key == view->ready[best_index]->kernel.key) {
        share(self, view, best_index, kernel, group);
        pair_limit(&((struct waterfill *)self->state)->brake, group);
    }
}

const struct weir_policy_ops weir_policy_waterfill = {
    .name = "waterfill",
    .kind = WEIR_POLICY_TOGETHER,
    .state_bytes = sizeof(struct waterfill),
    .measured = waterfill_measured,
    .together = waterfill_together,
};
