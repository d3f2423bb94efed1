/* What `weir sim` prints. */
#ifndef WEIR_TOOLS_SIM_REPORT_H
#define WEIR_TOOLS_SIM_REPORT_H

#include "sched/sim/metrics.h"

struct weir_sim_report {
    const struct weir_sim_load *load;
    const struct weir_sim_params *params;
    const struct weir_sim_result *result;
    const struct weir_sim_metrics *metrics; /* NULL: were not asked for */
    const char *policies;                   /* as they were named */
    uint32_t rows;                          /* of tenants, at most */
    bool has_shares;                        /* with shares over time */
    bool has_cost;                          /* with what deciding cost on this machine */
};

/** Tables for people. */
void weir_sim_report_text(const struct weir_sim_report *report);

/** One JSON object; all tenants. */
void weir_sim_report_json(const struct weir_sim_report *report);

#endif
