/* Common parts of the policies of kind TOGETHER that pair two kernels. */
#ifndef WEIR_SCHED_POLICY_PAIR_H
#define WEIR_SCHED_POLICY_PAIR_H

#include "base/hash.h"
#include "sched/policy.h"

/* A kernel that joins or leaves costs two resizes of the others, 11 to 25 us each on an H200. */
#define PAIR_MIN_NS   200000u
#define PAIR_GAP_NS   1000000u
#define PAIR_VALID_NS 500000000u

/*
 * Can a tenant's kernel share the device? It must be known and movable, and its tenant must have
 * all SMs when alone, to compare with its speed on a part. It must not be a short kernel of a
 * client that waits for each, since the others would be resized all the time.
 */
static inline bool pair_is_able(const struct weir_policy *self,
                                const struct weir_policy_tenant *tenant)
{
    const struct weir_policy_kernel *kernel = &tenant->kernel;

    return kernel->class == WEIR_SCHED_KERNEL && kernel->key != 0 && kernel->movable &&
           tenant->sm_limit == self->config->sms &&
           (kernel->predicted_ns >= PAIR_MIN_NS || tenant->gap_ns > PAIR_GAP_NS);
}

/* A key for two kernels, the same in both orders. */
static inline uint64_t pair_key(uint64_t a, uint64_t b)
{
    return a < b ? a * 31 + b : b * 31 + a;
}

/* Length of a trial: each member can finish two items at half its speed. */
static inline uint64_t pair_sample_ns(const struct weir_policy_tenant *a,
                                      const struct weir_policy_tenant *b)
{
    uint64_t most = a->kernel.predicted_ns > b->kernel.predicted_ns ? a->kernel.predicted_ns
                                                                    : b->kernel.predicted_ns;

    return most < PAIR_VALID_NS / 5 ? 5 * most + PAIR_MIN_NS : PAIR_VALID_NS;
}

/* Predicted time of a block alone on all SMs, to compare a place with. 0: not known or unsure: if
 * it were too long, every place would seem to gain. */
static inline double pair_solo_ns(const struct weir_policy_kernel *kernel)
{
    return kernel->unsure
               ? 0
               : (double)kernel->predicted_ns / (kernel->blocks != 0 ? kernel->blocks : 1);
}

/* Give each of two tenants half of the SMs; the older one has the first half. */
static inline void pair_halves(const struct weir_policy *self,
                               const struct weir_policy_together_view *view, uint32_t index,
                               struct weir_policy_group *group)
{
    uint32_t half = self->config->sms / 2;
    bool leads = view->ready[0]->id < view->ready[index]->id;

    group->member[leads ? 0 : 1].place = (struct weir_sched_place){.sm_count = half};
    group->member[leads ? 1 : 0].place =
        (struct weir_sched_place){.sm_first = half, .sm_count = self->config->sms - half};
}

/* Questions for which a trial waits to be measured, and after which it is tried again. */
#define PAIR_PATIENCE 32u
#define PAIR_AGAIN    20000u

/* May a search wait for its measure at this question? Counts the questions. */
static inline bool pair_is_patient(uint32_t *asked)
{
    if (*asked <= PAIR_PATIENCE) {
        return true;
    }
    *asked = *asked < PAIR_AGAIN ? *asked + 1 : 0;
    return false;
}

/*
 * Programs of many kernels may never have the same two side by side for a whole kernel, so trials
 * of pair after pair would never end. After PAIR_BARREN_MAX trials in a row without a measure there
 * is a pause of PAIR_PAUSE_ASKED.
 */
#define PAIR_BARREN_MAX  256u
#define PAIR_PAUSE_ASKED 4096u

struct pair_brake {
    uint32_t barren; /* trials since the last measure, and those refused in a pause */
};

static inline void pair_learned(struct pair_brake *brake)
{
    brake->barren = 0;
}

/* In a pause replace an answer that is a trial by the preset one, the leader alone. */
static inline void pair_limit(struct pair_brake *brake, struct weir_policy_group *group)
{
    if (!group->sample) {
        return;
    }
    if (++brake->barren > PAIR_BARREN_MAX) {
        group->count = 1;
        group->sample = false;
        group->valid_ns = 0;
        group->member[0].place = (struct weir_sched_place){0};
    }
    if (brake->barren > PAIR_BARREN_MAX + PAIR_PAUSE_ASKED) {
        brake->barren = 0;
    }
}

#endif
