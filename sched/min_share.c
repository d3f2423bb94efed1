/*
 * Guaranteed shares: the weights of tenants among those that have work.
 *
 * A tenant with a min_share gets that part of the device's time while it has work, however many
 * others have work and whatever their weights. Policies know weights alone, so the weights that
 * they see are computed from the configured ones. Of the active tenants of a class, those whose
 * weight gives them less than their min_share get exactly that, and the others divide the rest by
 * weight. If no tenant needs its guarantee, policies see the configured weights.
 *
 * A tenant is active while it has work and for lately_ns after that, so a program that is
 * back at once does not change all others' weights twice for each of its kernels.
 *
 * Min_shares that sum up to more than 100 % are met in proportion, and other tenants get a weight
 * of 1. Min_shares count within a class: a higher class goes first.
 *
 * Source: mClock (Gulati, Merchant, Varman, OSDI 2010) has reservations beside weights. It keeps
 * them by a tag of each request. Here they are kept by weights, because turns, fillers, small
 * graphs and copies go by weights already.
 */
#include "sched/private.h"

#define WHOLE 10000u /* sum of the computed weights of a class */

_Static_assert(WHOLE <= WEIR_SCHED_WEIGHT_MAX, "policies see such weights");

static bool is_active(const struct weir_sched *sched, const struct tenant *tenant)
{
    return tenant->works ||
           (tenant->idle_ns != NEVER && sched->now_ns - tenant->idle_ns < tuning.lately_ns);
}

static uint32_t part_of(const struct tenant *tenant) /* of WHOLE */
{
    return tenant->min_share * (WHOLE / 100);
}

/* The division of the device among the active tenants of a class. */
struct division {
    uint64_t weights; /* sum of the weights of tenants that are not guaranteed */
    uint64_t parts;   /* sum of the guaranteed parts, of WHOLE */
};

static uint64_t rest_of(const struct division *d)
{
    return d->parts < WHOLE ? WHOLE - d->parts : 0;
}

static struct tenant *next_active(const struct weir_sched *sched, enum weir_priority class,
                                  uint32_t *index)
{
    struct tenant *tenant;

    while ((tenant = table_next(&sched->tenants, index))) {
        if (tenant->active && tenant->view.priority == class) {
            return tenant;
        }
    }
    return NULL;
}

/* Guarantee the min_share of tenants whose weight gives them less. Repeat, as the others then get
 * less. */
static struct division divide(struct weir_sched *sched, enum weir_priority class)
{
    struct division d = {0};
    struct tenant *tenant;
    bool again = true;
    uint32_t at = 0;

    while ((tenant = next_active(sched, class, &at))) {
        tenant->guaranteed = false;
        d.weights += tenant->weight;
    }
    while (again) {
        again = false;
        at = 0;
        while ((tenant = next_active(sched, class, &at))) {
            if (!tenant->guaranteed && tenant->weight * rest_of(&d) < part_of(tenant) * d.weights) {
                tenant->guaranteed = true;
                d.weights -= tenant->weight;
                d.parts += part_of(tenant);
                again = true;
            }
        }
    }
    return d;
}

static void weigh(struct weir_sched *sched, struct tenant *tenant, uint64_t weight)
{
    weight = weight != 0 ? weight : 1;
    if (tenant->view.weight != weight) {
        policies_changing(sched, tenant);
        tenant->view.weight = (uint32_t)weight;
        sched->news.changed = true;
    }
}

static void weigh_class(struct weir_sched *sched, enum weir_priority class)
{
    struct division d = divide(sched, class);
    struct tenant *tenant;
    uint32_t at = 0;

    while ((tenant = next_active(sched, class, &at))) {
        if (d.parts == 0) {
            weigh(sched, tenant, tenant->weight);
        } else if (tenant->guaranteed) {
            weigh(sched, tenant,
                  d.parts > WHOLE ? (uint64_t)part_of(tenant) * WHOLE / d.parts : part_of(tenant));
        } else {
            weigh(sched, tenant, tenant->weight * rest_of(&d) / d.weights);
        }
    }
}

void min_share_set(struct weir_sched *sched, struct tenant *tenant, uint32_t weight,
                   uint32_t min_share)
{
    sched->min_shares.tenants += (min_share != 0) - (uint32_t)(tenant->min_share != 0);
    tenant->min_share = min_share;
    tenant->weight = weight;
    tenant->view.weight = weight;
    sched->min_shares.stale = true;
}

void min_share_look(struct weir_sched *sched)
{
    struct tenant *tenant;
    bool changed = sched->min_shares.stale;
    uint32_t at = 0;

    if (!sched->min_shares.stale &&
        (sched->min_shares.tenants == 0 || sched->now_ns < sched->min_shares.at_ns)) {
        return;
    }
    while ((tenant = table_next(&sched->tenants, &at))) {
        bool active = sched->min_shares.tenants != 0 && is_active(sched, tenant);

        changed |= active != tenant->active;
        tenant->active = active;
        if (!active) {
            weigh(sched, tenant, tenant->weight);
        }
    }
    for (int class = 0; class < WEIR_PRIORITY_COUNT && changed; class ++) {
        weigh_class(sched, (enum weir_priority) class);
    }
    sched->min_shares.stale = false;
    sched->min_shares.at_ns = sched->now_ns + tuning.lately_ns / 4;
}
