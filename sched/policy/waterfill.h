/* The division of an SM behind `waterfill`, apart from samples. Private to sched/ and its tests. */
#ifndef WEIR_SCHED_POLICY_WATERFILL_H
#define WEIR_SCHED_POLICY_WATERFILL_H

#include <stdbool.h>
#include <stdint.h>

#define WATERFILL_BLOCKS_MAX  32u /* most blocks on an SM of any device */
#define WATERFILL_KERNELS_MAX 8u

/* Performance against blocks per SM: [1] .. [blocks], in any unit. */
struct waterfill_curve {
    double performance[WATERFILL_BLOCKS_MAX + 1];
    uint32_t
        blocks; /* how many fit on an SM: each takes 1/blocks of it. 1 .. WATERFILL_BLOCKS_MAX */
};

/*
 * Find the blocks per SM of each kernel with which the kernel that loses most loses least.
 *
 * ret_blocks and ret_kept (performance there, of each kernel's best) are written for all of them.
 * Returns false when not even one block of each fits.
 */
bool waterfill_divide(const struct waterfill_curve *const *curves, uint32_t count,
                      uint32_t *ret_blocks, double *ret_kept);

/* May the kernels share SMs? Not if one of them would lose more than 120 % / count. */
bool waterfill_is_tolerable(const double *kept, uint32_t count);

#endif
