/* Measured speeds of kernels at places, which policies get by measured(). Private to sched/. */
#ifndef WEIR_SCHED_MEASURE_H
#define WEIR_SCHED_MEASURE_H

#include "sched/policy.h"

/* The kernel beside another, and its place. */
struct company {
    uint64_t key; /* 0: none, or unknown */
    uint32_t sm_count, block_limit;
};

struct measures {
    struct weir_policy_measure *slot; /* MEASURES_SLOTS; allocated by the first measures_add() */
    uint64_t *used;                   /* by slot: `uses` when it was used last; 0: free */
    uint64_t uses;
};

void measures_finish(struct measures *measures);

/* Add an observation. NULL: no memory for the table. The result is valid until the next call. */
const struct weir_policy_measure *measures_add(struct measures *measures, uint64_t key,
                                               const struct weir_sched_place *place,
                                               const struct company *partner, uint32_t blocks,
                                               uint64_t took_ns);

#endif
