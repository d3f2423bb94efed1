/*
 * Runs of the scheduler on the simulated H200, recorded as traces.
 *
 * A test makes a run, changes its parameters where it must, and has it recorded. What goes wrong
 * fails the cmocka test. Owner thread only.
 */
#pragma once

#include "sched/sim/sim.h"

struct tl_recorded {
    const char *policy;
    struct weir_sim_load load;
    struct weir_sim_params params; /* may be changed between make and run */
};

/** Make a run of a load. @param spec  as for weir sim. @param policy  such as "fair". */
void tl_recorded_make(struct tl_recorded *r, const char *spec, const char *policy, uint64_t run_ns);
/** Run it, and free it. @param flags  of the trace, WEIR_SCHED_TRACE_*. @return the trace's file */
int tl_recorded_run(struct tl_recorded *r, uint32_t flags);
