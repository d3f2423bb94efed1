/* What `weir sim` prints. */
#pragma once

#include "sched/sim/metrics.h"

struct weir_sim_report {
    const struct weir_sim_load *load;
    const struct weir_sim_params *params;
    const struct weir_sim_result *result;
    const struct weir_sim_metrics *metrics; /* NULL: metrics were not requested */
    const char *policies;                   /* the policies' names, as the user gave them */
    uint32_t rows;                          /* most rows of tenants */
    bool has_shares;                        /* print shares over time */
    bool has_cost;                          /* print what the decisions cost on this machine */
};

/** Print tables for people. */
void weir_sim_report_text(const struct weir_sim_report *report);

/** Print one JSON object with all tenants. */
void weir_sim_report_json(const struct weir_sim_report *report);
