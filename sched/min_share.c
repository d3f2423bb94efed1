/*
 * Guaranteed shares: what a tenant weighs among those that have work.
 *
 * A tenant with a min_share gets that part of the device's time while it has work, however many
 * others have work and whatever they weigh. Policies know weights alone; so the weights that they
 * see are made from the tenants' own. Of the active tenants of a class, those whose weight gives
 * them less than their min_share get just that, and the others divide the rest by weight. Where all
 * weights give enough, policies see the tenants' own.
 *
 * A tenant is active while it has work and for ACTIVE_NS after: a program that is back at once does
 * not change what all others weigh twice for each of its kernels.
 *
 * Min_shares of more than all together are met in proportion, and nobody else gets more than a
 * weight of 1. They hold within a class: a higher one goes first.
 *
 * Source: mClock (Gulati, Merchant, Varman, OSDI 2010) has reservations beside weights. It keeps
 * them by a tag of each request. Here they are kept by weights, because turns, fillers, small
 * graphs and copies go by weights already.
 */
#include "sched/private.h"

#define ACTIVE_NS UINT64_C(100000000)
#define WHOLE     10000u /* the weights of a class, where they are not the tenants' own */

_Static_assert(WHOLE <= WEIR_SCHED_WEIGHT_MAX, "policies see such weights");

static bool is_active(const struct weir_sched *sched, const struct tenant *tenant)
{
    return tenant->is_ready ||
           (tenant->idle_ns != NEVER && sched->now_ns - tenant->idle_ns < ACTIVE_NS);
}

static uint32_t part_of(const struct tenant *tenant) /* of WHOLE */
{
    return tenant->min_share * (WHOLE / 100);
}

/* Of the active tenants of a class. */
struct division {
    uint64_t weights; /* of those that get less than a min_share of theirs would be, or have none */
    uint64_t parts;   /* of the others */
};

static uint64_t rest_of(const struct division *d)
{
    return d->parts < WHOLE ? WHOLE - d->parts : 0;
}

static struct tenant *next_active(const struct weir_sched *sched, enum weir_priority class,
                                  uint32_t *index)
{
    struct tenant *tenant;

    while ((tenant = table_next(&sched->tenants, index)) != NULL) {
        if (tenant->active && tenant->view.priority == class) {
            return tenant;
        }
    }
    return NULL;
}

/* Give a min_share to those whose weight gives them less; that leaves less for the others. */
static struct division divide(struct weir_sched *sched, enum weir_priority class)
{
    struct division d = {0};
    struct tenant *tenant;
    bool again = true;
    uint32_t at = 0;

    while ((tenant = next_active(sched, class, &at)) != NULL) {
        tenant->guaranteed = false;
        d.weights += tenant->weight;
    }
    while (again) {
        again = false;
        at = 0;
        while ((tenant = next_active(sched, class, &at)) != NULL) {
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
        sched->changed = true;
    }
}

static void weigh_class(struct weir_sched *sched, enum weir_priority class)
{
    struct division d = divide(sched, class);
    struct tenant *tenant;
    uint32_t at = 0;

    while ((tenant = next_active(sched, class, &at)) != NULL) {
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
    sched->with_min_share += (min_share != 0) - (uint32_t)(tenant->min_share != 0);
    tenant->min_share = min_share;
    tenant->weight = weight;
    tenant->view.weight = weight;
    sched->shares_stale = true;
}

void min_share_look(struct weir_sched *sched)
{
    struct tenant *tenant;
    bool changed = sched->shares_stale;
    uint32_t at = 0;

    if (!sched->shares_stale && (sched->with_min_share == 0 || sched->now_ns < sched->shares_ns)) {
        return;
    }
    while ((tenant = table_next(&sched->tenants, &at)) != NULL) {
        bool active = sched->with_min_share != 0 && is_active(sched, tenant);

        changed |= active != tenant->active;
        tenant->active = active;
        if (!active) {
            weigh(sched, tenant, tenant->weight);
        }
    }
    for (int class = 0; class < WEIR_PRIORITY_COUNT && changed; class ++) {
        weigh_class(sched, (enum weir_priority) class);
    }
    sched->shares_stale = false;
    sched->shares_ns = sched->now_ns + ACTIVE_NS / 4;
}
