/*
 * A run as Chrome's trace events (JSON), which Perfetto and chrome://tracing show: a track for each
 * queue with what was on the device, one for each copy engine, and the SMs that each tenant holds.
 *
 * Events are written as they come; only the SMs that each tenant holds now are kept.
 */
#pragma once

#include "sched/sim/sim.h"
#include <stdio.h>

struct weir_sim_timeline;

/**
 * @param out  borrowed until close.
 * @return WEIR_OK, WEIR_ERR_NO_MEMORY
 */
enum weir_status weir_sim_timeline_open(FILE *out, const struct weir_sim_load *load,
                                        struct weir_sim_timeline **ret_timeline) WEIR_MUST_CHECK;

/** To be called by the functions of struct weir_sim_watch. */
void weir_sim_timeline_span(struct weir_sim_timeline *timeline, const struct weir_sim_span *span);
void weir_sim_timeline_hold(struct weir_sim_timeline *timeline, const struct weir_sim_hold *hold);

/** Write the end of the file, and free the timeline. Accepts NULL. @return WEIR_OK, WEIR_ERR_IO */
enum weir_status weir_sim_timeline_close(struct weir_sim_timeline *timeline);
