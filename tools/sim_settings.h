/* Settings of a simulated run by name, as --set of weir sim takes them. */
#pragma once

#include "sched/sim/sim.h"

#define WEIR_SIM_SETTINGS_ERROR_BYTES 256u

/**
 * Change parameters of a run: "policy=fair+corun,fill=all,small_sms=0,switch_ns=140000".
 *
 * Names are those of the scheduler's settings, as weir-sim(1) lists them, and the columns of
 * gpus.def. fill=all also sets small_sms, as a host does; a small_sms behind it overrides that.
 *
 * @param ret_error  WEIR_SIM_SETTINGS_ERROR_BYTES; what is wrong, unless true is returned.
 * @return false: a name is not known, or a value is none of its.
 */
bool weir_sim_settings_apply(struct weir_sim_params *params, const char *text, char *ret_error);

/**
 * Give constants of the scheduler other values for this process: "slice_max_ns=4000000".
 *
 * @param text  NAME=VALUE with commas between them: rows of sched/tuning.def, numbers above 0.
 * @param ret_error  as above.
 * @return false: a name is not known, or a value is none of its. Those before it are changed.
 * @thread one, before any scheduler is made.
 */
bool weir_sim_settings_tune(const char *text, char *ret_error);
