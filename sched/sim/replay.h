/*
 * Replay the recorded calls into today's scheduler, to check whether it decides as it did then.
 *
 * All inputs of the recorded scheduler (arrivals, completions, stops, ticks, tenants) are repeated
 * at the recorded times, in the recorded order. Every decision must then come where and when the
 * trace has it. Nothing is simulated.
 *
 * Source: docs/design/simulation.md
 */
#pragma once

#include "sched/policy.h"
#include "sched/trace/trace.h"

#define WEIR_SIM_REPLAY_TEXT_BYTES 512

struct weir_sim_replay {
    uint64_t records;   /* number of the core's records that were compared */
    uint64_t decisions; /* how many of these are start, stop, resume, resize or choose */
    bool differs;
    uint64_t offset; /* offset of the first record that differs */
    /* The record in the trace and what came instead, as text; "nothing" for none. */
    char traced[WEIR_SIM_REPLAY_TEXT_BYTES];
    char decided[WEIR_SIM_REPLAY_TEXT_BYTES];
};

/**
 * @param policies   the policies; NULL: those of the trace's POLICY records, else fair.
 *                   If given, POLICY records are ignored.
 * @param ret        on WEIR_OK; see differs.
 * @param ret_error  filled in unless WEIR_OK.
 * @return WEIR_OK
 * @return WEIR_ERR_SYNTAX, WEIR_ERR_VERSION  the file is invalid, or has an invalid call.
 * @return WEIR_ERR_UNSUPPORTED  the trace has gaps, or began in the middle of work, so that the
 *                               scheduler's state is not known.
 * @return WEIR_ERR_NOT_FOUND    a policy of the trace does not exist here.
 * @return WEIR_ERR_NO_MEMORY
 * @thread any
 */
enum weir_status weir_sim_replay(const void *data, uint64_t bytes,
                                 const struct weir_policy_set *policies,
                                 struct weir_sim_replay *ret,
                                 struct weir_sched_trace_error *ret_error) WEIR_MUST_CHECK;
