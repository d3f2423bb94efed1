/* Two runs of one load under different settings, side by side: weir sim --compare. */
#ifndef WEIR_TOOLS_SIM_COMPARE_H
#define WEIR_TOOLS_SIM_COMPARE_H

#include "sched/sim/sim.h"

struct weir_sim_compare {
    const struct weir_sim_load *load;
    struct weir_sim_params params[2];
    const char *label[2]; /* description of each run's settings */
    uint32_t rows;        /* most rows of tenants */
};

/**
 * Run both and print the tables.
 * @return false: after a complaint on stderr.
 */
bool weir_sim_compare(const struct weir_sim_compare *compare);

#endif
