/*
 * The recorded calls once more, into a scheduler of today: does it decide what it decided then?
 *
 * Everything that the recording scheduler was told (arrivals, completions, stops, ticks, tenants)
 * is told again at the recorded times, in the recorded order; every decision must then come out
 * where and when the trace has it. Nothing is simulated.
 *
 * Source: docs/design/simulation.md
 */
#ifndef WEIR_SCHED_SIM_REPLAY_H
#define WEIR_SCHED_SIM_REPLAY_H

#include "sched/policy.h"
#include "sched/trace/trace.h"

#define WEIR_SIM_REPLAY_TEXT_BYTES 512

struct weir_sim_replay {
    uint64_t records;   /* of the core that were compared */
    uint64_t decisions; /* of them, such as start, stop, resume, resize, choose */
    bool differs;
    uint64_t offset; /* of the record at which it differs */
    /* The record in the trace and what came instead, as text; "nothing" for none. */
    char traced[WEIR_SIM_REPLAY_TEXT_BYTES];
    char decided[WEIR_SIM_REPLAY_TEXT_BYTES];
};

/**
 * @param policies   those to begin with, or NULL: the trace says (POLICY records), else fair.
 *                   If given, POLICY records are not heeded.
 * @param ret        on WEIR_OK; see differs.
 * @param ret_error  filled in unless WEIR_OK.
 * @return WEIR_OK
 * @return WEIR_ERR_SYNTAX, WEIR_ERR_VERSION  of the file, or a call that no scheduler takes.
 * @return WEIR_ERR_UNSUPPORTED  the trace has gaps, or began in the middle of work: what the
 *                               scheduler knew then is not in it.
 * @return WEIR_ERR_NOT_FOUND    a policy of the trace does not exist here.
 * @return WEIR_ERR_NO_MEMORY
 * @thread any
 */
enum weir_status weir_sim_replay(const void *data, uint64_t bytes,
                                 const struct weir_policy_set *policies,
                                 struct weir_sim_replay *ret,
                                 struct weir_sched_trace_error *ret_error) WEIR_MUST_CHECK;

#endif
