/* Runs a function while every other thread of the process is stopped. */
#pragma once

#include <stdbool.h>

/**
 * Run fn while no other thread of the process runs, and none is inside a system call that touches
 * the process's memory.
 *
 * The caller is parked in the kernel, and fn runs on a stack of its own. So fn may replace any
 * pages, those of stacks included. A stopped thread may hold any lock: so fn takes no lock,
 * allocates nothing, and only calls functions that are system calls without a cancellation point.
 *
 * @param fn, user  user is passed to fn; it must not lie on the caller's stack if fn replaces that.
 * @param ret_why   on failure the reason; a constant.
 * @return false: fn was not called.
 * @thread any, but one at a time
 */
bool weir_run_alone(void (*fn)(void *user), void *user, const char **ret_why);
