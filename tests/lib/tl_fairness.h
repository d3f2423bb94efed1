/*
 * How unfair a run was: the most by which one tenant was served more than another, over all
 * intervals of the run.
 *
 * Tenant j is ahead of tenant i in an interval by
 *
 *     W_j / w_j  -  W_i / w_i
 *
 * where W_i is all that i was served in it, W_j what j was served while i wanted more, and w their
 * weights. Only intervals count in which i always had work, and only tenants of one class. The
 * bounds are in units of
 *
 *     L_i / w_i  +  L_j / w_j
 *
 * where L is the most that a tenant is served before another is chosen, which the caller knows.
 * docs/design/scheduling.md states and explains the bounds.
 *
 * Service is what the scheduler charges: nanoseconds of all SMs, or of a copy direction.
 * Owner thread only.
 */
#pragma once

#include "sched/sim/sim.h"

struct tl_fairness;

/* The worst interval. */
struct tl_unfair {
    double ratio; /* in units of the bound; 0: nobody ever wanted more; infinite: there was
                     no memory to follow the run */
    double ns;    /* the same as normalised service */
    uint32_t ahead, behind; /* tenants */
    uint64_t from_ns, to_ns;
};

/**
 * @param longest_ns  L of each tenant of the load for that resource; copied.
 * @return WEIR_OK, WEIR_ERR_NO_MEMORY
 */
enum weir_status tl_fairness_create(const struct weir_sim_load *load,
                                    enum weir_sched_resource resource, uint32_t sms,
                                    const double *longest_ns,
                                    struct tl_fairness **ret_f) WEIR_MUST_CHECK;

/** For struct weir_sim_watch: record and called. */
void tl_fairness_record(struct tl_fairness *f, const struct weir_sched_record *record);
void tl_fairness_called(struct tl_fairness *f, uint64_t now_ns, const struct weir_sched *sched,
                        const weir_sched_id *tenants);

/** Up to the last call. */
struct tl_unfair tl_fairness_worst(const struct tl_fairness *f);

/** Accepts NULL. */
void tl_fairness_destroy(struct tl_fairness *f);
