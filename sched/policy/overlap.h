/* The search behind `overlap`, apart from windows and items. Private to sched/ and its tests. */
#ifndef WEIR_SCHED_POLICY_OVERLAP_H
#define WEIR_SCHED_POLICY_OVERLAP_H

#include "sched/sched.h"
#include <stdint.h>

#define OVERLAP_TASKS_MAX WEIR_SCHED_WINDOW_MAX /* 2^10 subsets */

/* Copies to the device, then kernels, then copies back; the memory it holds from first to last. */
struct overlap_task {
    uint64_t send_ns, process_ns, receive_ns;
    uint64_t memory_bytes;
};

/* What is under way when the first of the tasks could begin; from now. */
struct overlap_start {
    uint64_t send_ns, process_ns, receive_ns; /* until each resource is free */
    uint64_t memory_used_bytes;               /* free again when all three are */
    uint64_t memory_limit_bytes;              /* 0: none */
};

/* When the last task of an order ends; count 1 .. OVERLAP_TASKS_MAX. */
uint64_t overlap_total_ns(const struct overlap_task *tasks, uint32_t count,
                          const struct overlap_start *start, const uint8_t *order);

/* The order found by dynamic programming, and when its last task ends. */
uint64_t overlap_search(const struct overlap_task *tasks, uint32_t count,
                        const struct overlap_start *start, uint8_t *ret_order);

/* The best of the orders that Johnson's rule makes of pairs of the three parts, and when its last
 * task ends. Few steps, for any count. */
uint64_t overlap_order_by_rules(const struct overlap_task *tasks, uint32_t count,
                                const struct overlap_start *start, uint8_t *ret_order);

#endif
