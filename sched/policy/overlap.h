/* The search behind `overlap`, apart from windows and items. Private to sched/ and its tests. */
#ifndef WEIR_SCHED_POLICY_OVERLAP_H
#define WEIR_SCHED_POLICY_OVERLAP_H

#include "sched/sched.h"
#include <stdint.h>

#define OVERLAP_TASKS_MAX WEIR_SCHED_WINDOW_MAX /* 2^10 subsets */

/* A task: copies to the device, then kernels, then copies back, and the memory held meanwhile. */
struct overlap_task {
    uint64_t send_ns, process_ns, receive_ns;
    uint64_t memory_bytes;
};

/* The work under way when the first task could begin. Times count from now. */
struct overlap_start {
    uint64_t send_ns, process_ns, receive_ns; /* time until each resource is free */
    uint64_t memory_used_bytes;               /* memory that is free when all three resources are */
    uint64_t memory_limit_bytes;              /* 0: none */
};

/* When the last task of an order ends; count 1 .. OVERLAP_TASKS_MAX. */
uint64_t overlap_total_ns(const struct overlap_task *tasks, uint32_t count,
                          const struct overlap_start *start, const uint8_t *order);

/* Find an order by dynamic programming. @return when its last task ends */
uint64_t overlap_search(const struct overlap_task *tasks, uint32_t count,
                        const struct overlap_start *start, uint8_t *ret_order);

/* Find the best of the orders that Johnson's rule gives for pairs of the three parts. @return when
 * its last task ends. This takes few steps for any count. */
uint64_t overlap_order_by_rules(const struct overlap_task *tasks, uint32_t count,
                                const struct overlap_start *start, uint8_t *ret_order);

#endif
