/* A scheduler's invariants. */
#pragma once

#include "sched/sched.h"

/**
 * Check the invariants of all lists, counts, states and sums of a scheduler between two calls.
 * @return NULL, or a static string that names the broken invariant.
 * @thread owner
 */
const char *tl_sched_check(const struct weir_sched *sched);
