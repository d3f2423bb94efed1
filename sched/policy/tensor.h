/* The searches and the model behind `tensor`. Private to sched/ and its tests. */
#ifndef WEIR_SCHED_POLICY_TENSOR_H
#define WEIR_SCHED_POLICY_TENSOR_H

#include <stdbool.h>
#include <stdint.h>

/* How few blocks per SM are as fast as all: more than `low`, `high` is enough. */
struct tensor_search {
    uint32_t low, high;
    double base; /* speed with all blocks; 0: to be measured first */
};

/* The number of blocks to measure next; 0: high is the answer. */
uint32_t tensor_search_next(const struct tensor_search *search);

/* A speed was measured; what was not asked for is passed over. Returns false for that. */
bool tensor_search_take(struct tensor_search *search, uint32_t blocks, double speed);

/*
 * Blocks per SM of the other kernel beside one that uses tensor cores and has `best` of the `most`
 * blocks that fit. 0: it would have less than half of what it needs.
 */
uint32_t tensor_beside(uint32_t best, uint32_t most, uint32_t other_best, uint32_t other_most);

/* How long two kernels take together; their times alone, and speeds while both are at work. */
double tensor_pair_ns(double a_ns, double b_ns, double a_speed, double b_speed);

#endif
