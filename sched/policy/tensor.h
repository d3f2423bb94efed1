/* The searches and the model behind `tensor`. Private to sched/ and its tests. */
#ifndef WEIR_SCHED_POLICY_TENSOR_H
#define WEIR_SCHED_POLICY_TENSOR_H

#include <stdbool.h>
#include <stdint.h>

/* A search for the fewest blocks per SM that are as fast as all: above `low`, at most `high`. */
struct tensor_search {
    uint32_t low, high;
    double base; /* speed with all blocks; 0: not measured yet */
};

/* The number of blocks to measure next; 0: the search has ended with `high`. */
uint32_t tensor_search_next(const struct tensor_search *search);

/* Take a measured speed. Returns false, and ignores it, if it is not of the blocks asked for. */
bool tensor_search_take(struct tensor_search *search, uint32_t blocks, double speed);

/*
 * The blocks per SM of the other kernel beside one that uses tensor cores and has `best` of the
 * `most` blocks that fit. 0: the other would have less than half of what it needs.
 */
uint32_t tensor_beside(uint32_t best, uint32_t most, uint32_t other_best, uint32_t other_most);

/* How long two kernels take together, by their times alone and their speeds while both run. */
double tensor_pair_ns(double a_ns, double b_ns, double a_speed, double b_speed);

#endif
