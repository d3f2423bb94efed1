/*
 * tensor: a kernel that uses tensor cores and one that does not, on the same SMs.
 *
 * ISPA pairs kernels whose blocks keep different units of an SM busy. For both to have blocks on
 * each SM neither may have more than it needs, so each gets the fewest persistent blocks with which
 * it is as fast as with all that fit; these are found by bisection, in as many steps as the number
 * has bits. The kernel on tensor cores has its blocks; the other has what is left of the SM, and if
 * that is less than half of what it needs the pair is not made.
 *
 * Whether a pair pays is predicted from both times alone and a model with two stages: as long as
 * both are at work each has its speed; then who is left goes on alone. With speeds u and v
 *
 *     Tcd/v <= Ttc/u:  T = Ttc + Tcd * (1 - u) / v       pair   |              /  slope 1
 *     else:            T = Tcd + Ttc * (1 - v) / u              |    ______---/
 *                                                               |---- slope (1 - u) / v
 *                                                               +-------------|-- Tcd / Ttc
 *
 * which is ISPA's two-stage regression over the load ratio, with both slopes and the knee from two
 * numbers that each co-run measures. Of several pairs the one with the most gain,
 * Ttc + Tcd - T, is taken; where none gains, kernels run one after the other.
 *
 * What differs:
 *
 * - ISPA finds block numbers and pairs before services start. Here that is done at first runs: two
 *   kernels are searched at the same time, each on its half of the SMs, each number for as long as
 *   a kernel takes.
 * - Of a block it is known how many fit on an SM, not which of registers, shared memory and threads
 *   is short: it takes 1/blocks of it. So a kernel of one block per SM leaves nothing to others
 * here, even where it leaves registers and threads.
 * - Versions with smaller blocks (elastic blocks) or fewer registers are not made: that is another
 *   kernel to compile, and a policy can only choose places for those there are.
 * - What is gained is compared with the shorter of both kernels: the longer one goes on beside the
 *   next.
 * - A pair that gains less than MIN_GAIN when measured is not made for PAIR_AGAIN questions.
 *
 * Source: ISPA (IEEE Transactions on Computers) 6.2 (block numbers), 6.3 (pairs), 6.4
 * (model), 6.5 (decision)
 */
#include "sched/policy/tensor.h"
#include "sched/policy/pair.h"

#define KERNELS    512u
#define PAIRS      1024u
#define BLOCKS_MAX 32u  /* most blocks on an SM of any device */
#define AS_FAST    0.97 /* part of the speed with all blocks; ISPA's predictions err by 2 to 4 % */
#define MIN_GAIN   0.03 /* as part of the shorter kernel's time */
#define EXPECTED   0.65 /* speed assumed for each kernel of an unmeasured pair: a gain of 30 % */
#define UNTRIED    1e30 /* ns: unknown pairs go first */

/* ---- searches and model ---- */

uint32_t tensor_search_next(const struct tensor_search *search)
{
    if (search->low + 1 >= search->high) {
        return 0;
    }
    return search->base == 0 ? search->high : (search->low + search->high) / 2;
}

bool tensor_search_take(struct tensor_search *search, uint32_t blocks, double speed)
{
    if (blocks != tensor_search_next(search) || blocks == 0) {
        return false;
    }
    if (search->base == 0) {
        search->base = speed;
    } else if (speed >= AS_FAST * search->base) {
        search->high = blocks;
    } else {
        search->low = blocks;
    }
    return true;
}

uint32_t tensor_beside(uint32_t best, uint32_t most, uint32_t other_best, uint32_t other_most)
{
    uint32_t room = (most - best) * other_most / most;

    if (room == 0 || 2 * room < other_best) {
        return 0;
    }
    return room < other_best ? room : other_best;
}

double tensor_pair_ns(double a_ns, double b_ns, double a_speed, double b_speed)
{
    if (b_ns / b_speed <= a_ns / a_speed) {
        return a_ns + b_ns * (1 - a_speed) / b_speed;
    }
    return b_ns + a_ns * (1 - b_speed) / a_speed;
}

/* ---- measures ---- */

struct known_kernel {
    uint64_t key;
    double solo_ns; /* time of a block alone on all SMs; 0: not known */
    struct tensor_search search;
    uint32_t blocks; /* how many fit on an SM */
    uint32_t asked;  /* questions since the last measure */
};

/* A pair of kernels. The first one uses tensor cores. */
struct known_pair {
    uint64_t key[2];
    uint32_t block_limit[2]; /* 0: the kernels do not fit together */
    double speed[2];         /* time alone / time together; 0: not measured */
    uint32_t asked;
    bool refused;
};

struct tensor {
    struct pair_brake brake;
    struct known_kernel kernel[KERNELS];
    struct known_pair pair[PAIRS];
};

static struct known_kernel *kernel_slot(struct tensor *state, uint64_t key)
{
    return &state->kernel[weir_hash_slot(key, KERNELS)];
}

static struct known_pair *pair_slot(struct tensor *state, uint64_t a, uint64_t b)
{
    return &state->pair[weir_hash_slot(pair_key(a, b), PAIRS)];
}

static void learn_pair(struct tensor *state, const struct weir_policy_measure *measure,
                       double speed)
{
    struct known_pair *pair = pair_slot(state, measure->key, measure->partner_key);
    uint32_t side = pair->key[0] == measure->key ? 0 : 1;

    if (pair->key[side] != measure->key || pair->key[1 - side] != measure->partner_key ||
        pair->block_limit[side] != measure->block_limit ||
        pair->block_limit[1 - side] != measure->partner_block_limit) {
        return;
    }
    if (pair->speed[side] == 0) { /* only a kernel not measured yet is progress */
        pair->asked = 0;
    }
    pair->speed[side] = speed;
    pair_learned(&state->brake);
    if (pair->speed[0] > 0 && pair->speed[1] > 0) {
        pair->refused = pair->speed[0] + pair->speed[1] < 1 + MIN_GAIN;
    }
}

static void tensor_measured(struct weir_policy *self, const struct weir_policy_measure *measure)
{
    struct known_kernel *kernel = kernel_slot(self->state, measure->key);

    if (kernel->key != measure->key || measure->block_ns <= 0) {
        return;
    }
    if (measure->partner_key == 0) {
        if (measure->sm_count == 0 && measure->block_limit == 0) {
            kernel->solo_ns = measure->block_ns;
        }
    } else if (measure->sm_count != 0) {
        if (tensor_search_take(&kernel->search, measure->block_limit,
                               1 / (measure->block_ns * measure->sm_count))) {
            kernel->asked = 0;
            pair_learned(&((struct tensor *)self->state)->brake);
        }
    } else if (measure->block_limit != 0 && kernel->solo_ns > 0) {
        learn_pair(self->state, measure, kernel->solo_ns / measure->block_ns);
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
        kernel->blocks_per_sm > BLOCKS_MAX) {
        return NULL;
    }
    known = kernel_slot(self->state, kernel->key);
    if (known->key != kernel->key || known->blocks != kernel->blocks_per_sm) {
        *known = (struct known_kernel){.key = kernel->key,
                                       .blocks = kernel->blocks_per_sm,
                                       .search = {.high = kernel->blocks_per_sm}};
    }
    if (known->solo_ns == 0) {
        known->solo_ns = pair_solo_ns(kernel);
    }
    return known->solo_ns > 0 ? known : NULL;
}

static struct known_pair *pair_of(struct weir_policy *self, const struct known_kernel *tensor,
                                  const struct known_kernel *other)
{
    struct known_pair *pair = pair_slot(self->state, tensor->key, other->key);

    if (pair->key[0] != tensor->key || pair->key[1] != other->key) {
        *pair = (struct known_pair){.key = {tensor->key, other->key}};
        pair->block_limit[1] =
            tensor_beside(tensor->search.high, tensor->blocks, other->search.high, other->blocks);
        pair->block_limit[0] = pair->block_limit[1] != 0 ? tensor->search.high : 0;
    }
    return pair;
}

static bool can_search(struct known_kernel *kernel)
{
    return tensor_search_next(&kernel->search) == 0 || pair_is_patient(&kernel->asked);
}

static bool is_measured(const struct known_pair *pair)
{
    return pair->speed[0] > 0 && pair->speed[1] > 0;
}

static bool is_refused(struct known_pair *pair)
{
    if (!pair->refused && !is_measured(pair) && pair->asked > PAIR_PATIENCE) {
        pair->refused = true;
        pair->asked = 0;
    }
    if (pair->refused && ++pair->asked >= PAIR_AGAIN) {
        pair->refused = false;
        pair->asked = 0;
        pair->speed[0] = pair->speed[1] = 0;
    }
    return pair->refused;
}

static double pair_ns(const struct known_pair *pair, double tensor_ns, double other_ns)
{
    return is_measured(pair) ? tensor_pair_ns(tensor_ns, other_ns, pair->speed[0], pair->speed[1])
                             : tensor_pair_ns(tensor_ns, other_ns, EXPECTED, EXPECTED);
}

/* The time that a pair gains, ns; 0: none. */
static double gain_of(struct weir_policy *self, const struct weir_policy_tenant *tensor,
                      const struct weir_policy_tenant *other, struct known_kernel *const *kernel)
{
    double tensor_ns =
        kernel[0]->solo_ns * (tensor->kernel.blocks != 0 ? tensor->kernel.blocks : 1);
    double other_ns = kernel[1]->solo_ns * (other->kernel.blocks != 0 ? other->kernel.blocks : 1);
    double shorter_ns = tensor_ns < other_ns ? tensor_ns : other_ns;
    struct known_pair *pair;
    double gain_ns;

    if (!can_search(kernel[0]) || !can_search(kernel[1])) {
        return 0;
    }
    if (tensor_search_next(&kernel[0]->search) != 0 ||
        tensor_search_next(&kernel[1]->search) != 0) {
        return UNTRIED;
    }
    pair = pair_of(self, kernel[0], kernel[1]);
    if (pair->block_limit[0] == 0 || is_refused(pair)) {
        return 0;
    }
    gain_ns = tensor_ns + other_ns - pair_ns(pair, tensor_ns, other_ns);
    return gain_ns >= MIN_GAIN * shorter_ns ? gain_ns : 0;
}

/* Put both kernels on halves of the SMs, each with the blocks that its search asks for. */
static void search_on(const struct weir_policy *self, const struct weir_policy_together_view *view,
                      uint32_t index, struct known_kernel *const *kernel,
                      struct weir_policy_group *group)
{
    pair_halves(self, view, index, group);
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t blocks = tensor_search_next(&kernel[i]->search);

        group->member[i].place.block_limit = blocks != 0 ? blocks : kernel[i]->search.high;
        kernel[i]->asked += blocks != 0;
    }
    group->sample = true;
}

/* Make the group of a pair; kernel[0] is the leader's. */
static void share(struct weir_policy *self, const struct weir_policy_together_view *view,
                  uint32_t index, struct known_kernel *const *kernel,
                  struct weir_policy_group *group)
{
    uint32_t leads_tensor = view->ready[0]->kernel.tensor ? 0 : 1;
    struct known_pair *pair;

    group->count = 2;
    group->member[1].ready = index;
    group->valid_ns = 2 * pair_sample_ns(view->ready[0], view->ready[index]);
    if (tensor_search_next(&kernel[0]->search) != 0 ||
        tensor_search_next(&kernel[1]->search) != 0) {
        search_on(self, view, index, kernel, group);
        return;
    }
    pair = pair_of(self, kernel[leads_tensor], kernel[1 - leads_tensor]);
    group->member[0].place =
        (struct weir_sched_place){.block_limit = pair->block_limit[leads_tensor]};
    group->member[1].place =
        (struct weir_sched_place){.block_limit = pair->block_limit[1 - leads_tensor]};
    if (is_measured(pair)) {
        group->valid_ns = 0;
    } else {
        group->sample = true;
        pair->asked++;
    }
}

static void tensor_together(struct weir_policy *self, const struct weir_policy_together_view *view,
                            struct weir_policy_group *group)
{
    const struct weir_policy_tenant *leader = view->ready[0];
    struct known_kernel *kernel[2] = {kernel_of(self, leader), NULL};
    uint32_t best_index = 0;
    double best_ns = 0;

    if (self->config->sms < 2 || !kernel[0]) {
        return;
    }
    for (uint32_t i = 1; i < view->ready_count; i++) {
        const struct weir_policy_tenant *tenant = view->ready[i];
        struct known_kernel *both[2] = {kernel[0], NULL};
        double gain_ns;

        if (tenant->priority != leader->priority ||
            tenant->kernel.tensor == leader->kernel.tensor ||
            !(both[1] = kernel_of(self, tenant)) || both[1] == kernel[0]) {
            continue;
        }
        if (leader->kernel.tensor) {
            gain_ns = gain_of(self, leader, tenant, both);
        } else {
            struct known_kernel *const swapped[2] = {both[1], both[0]};

            gain_ns = gain_of(self, tenant, leader, swapped);
        }
        if (gain_ns > best_ns) {
            best_ns = gain_ns;
            best_index = i;
            kernel[1] = both[1];
        }
    }
    /* Keys with the same slot replace each other; then no kernels share this time. */
    if (kernel[1] && kernel[0]->key == leader->kernel.key &&
        kernel[1]->key == view->ready[best_index]->kernel.key) {
        share(self, view, best_index, kernel, group);
        pair_limit(&((struct tensor *)self->state)->brake, group);
    }
}

const struct weir_policy_ops weir_policy_tensor = {
    .name = "tensor",
    .kind = WEIR_POLICY_TOGETHER,
    .state_bytes = sizeof(struct tensor),
    .measured = tensor_measured,
    .together = tensor_together,
};
