/* How fast kernels were where: what measured() tells policies. Private to sched/. */
#ifndef WEIR_SCHED_MEASURE_H
#define WEIR_SCHED_MEASURE_H

#include "sched/policy.h"

/* Whom a kernel ran beside. */
struct company {
    uint64_t key; /* 0: nobody, or unknown */
    uint32_t sm_count, block_limit;
};

struct measures {
    struct weir_policy_measure *slot; /* MEASURES_SLOTS; made at the first */
    uint64_t *used;                   /* counts up; 0: free */
    uint64_t uses;
};

void measures_finish(struct measures *measures);

/* One more observation. NULL: no memory for the table. The result is valid until the next. */
const struct weir_policy_measure *measures_add(struct measures *measures, uint64_t key,
                                               const struct weir_sched_place *place,
                                               const struct company *partner, uint32_t blocks,
                                               uint64_t took_ns);

#endif
